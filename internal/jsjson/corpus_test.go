package jsjson

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
)

// TestCorpus: what the harness wrote, V8 wrote. Logs that were damaged or
// written by hand are left out: their directories are named so, and their
// events.jsonl are written by V8 again.
func TestCorpus(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("no corpus here")
	}
	files, err := filepath.Glob(filepath.Join(dir, "head", "*", "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n")) {
			if len(l) == 0 {
				continue
			}
			lines++
			if facts, err := Check(l); err != nil || !facts.Canonical() {
				t.Errorf("%s:%d: Check = %b, %v", name, i+1, facts, err)
			}
		}
	}
	if lines == 0 {
		t.Errorf("no lines in %s", dir)
	}
	t.Logf("%d lines of %d files", lines, len(files))
}
