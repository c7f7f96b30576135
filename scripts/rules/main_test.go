package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
)

func TestReferenceIsUpToDate(t *testing.T) {
	root := corpus.Root(t)
	files, err := reference(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
		} else if d := cmp.Diff(string(want), string(got)); d != "" {
			t.Errorf("%s is not up to date; run: go run ./scripts/rules\n(-want +got):\n%s", name, d)
		}
	}
}
