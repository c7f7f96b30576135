package main

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
)

var update = flag.Bool("update", false, "rewrite the warnings of sound logs")

// finish fails for every case that disagrees and logs the counts.
func (r *run) finish(t *testing.T, warnings string, atLeast map[string]int) {
	t.Helper()
	for _, f := range r.fails {
		t.Error(f)
	}
	// The warnings are those that the case was made to have.
	slices.Sort(r.warned)
	golden := filepath.Join("testdata", warnings)
	got := strings.Join(r.warned, "\n") + "\n"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if d := cmp.Diff(string(read(golden)), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", golden, d)
	}
	for kind, n := range atLeast {
		if r.ok[kind] < n {
			t.Errorf("%s: %d cases agree, want at least %d: some were not found", kind, r.ok[kind], n)
		}
	}
	var b strings.Builder
	r.report(&b)
	t.Logf("\n%s", b.String())
}

// TestGoldens runs the programs over the logs that ship with the repository.
func TestGoldens(t *testing.T) {
	r := newRun(filepath.Join(corpus.Root(t), "goldens"))
	if err := r.parts("sound"); err != nil {
		t.Fatal(err)
	}
	r.finish(t, "sound-warnings.golden", map[string]int{"requests": 45, "request-lines": 200, "sent-only": 45, "recording": 45, "messages": 45,
		"header": 40, "surface": 45, "events": 50, "sound": 50})
}

// TestCorpus runs them over the full corpus when it is there.
func TestCorpus(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skipf("no corpus at %s", dir)
	}
	r := newRun(dir)
	sweep, digests := 8443, 1752
	if corpus.Race {
		r.every, sweep, digests = 40, 8443/40, 438
	}
	if err := r.all(); err != nil {
		t.Fatal(err)
	}
	r.finish(t, "corpus-warnings.golden", map[string]int{"requests": 202, "request-lines": 839, "sent-only": 202, "recording": 202, "messages": 221,
		"header": 201, "surface": 221, "events": 223, "sound": 204, "stores": 612, "refused": 237, "accepted": 94, "sweep": sweep, "digests": digests})
}

// TestDisagreementIsNoticed damages one case of each kind.
func TestDisagreementIsNoticed(t *testing.T) {
	golden := filepath.Join(corpus.Root(t), "goldens", "sound", "head-several-turns")
	if !exists(golden) {
		golden = filepath.Join(corpus.Root(t), "goldens", "sound", "head-multi-step-tools")
	}
	for _, tt := range []struct{ file, old, new, kind string }{
		{"requests.jsonl", `"step":2`, `"step":9`, "requests"},
		{"requests.jsonl", `"text":"`, `"text":"x`, "recording"},
		{"messages.json", `"role"`, `"Role"`, "messages"},
		{"header.json", `"config"`, `"Config"`, "header"},
		{"surface.json", `"nodes":[`, `"nodes":[0,`, "surface"},
		{"session.jsonl", `"type":"turn/end"`, `"type":"turn/End"`, "sound"},
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "case")
		if err := os.CopyFS(dir, os.DirFS(golden)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, tt.file)
		before := string(read(path))
		after := strings.Replace(before, tt.old, tt.new, 1)
		if before == after {
			t.Fatalf("%s has no %s", tt.file, tt.old)
		}
		if err := os.WriteFile(path, []byte(after), 0o600); err != nil {
			t.Fatal(err)
		}
		r := newRun(root)
		if err := r.parts("case"); err != nil {
			t.Fatal(err)
		}
		if r.bad[tt.kind] == 0 {
			t.Errorf("%s with %s for %s: %s agrees", tt.file, tt.new, tt.old, tt.kind)
		}
	}
}
