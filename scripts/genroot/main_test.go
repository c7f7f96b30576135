package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
)

// Of a root of mixed containers exactly the damaged logs are found, in each of ten
// runs and in three parts.
func TestRoot(t *testing.T) {
	ts, err := templates(filepath.Join(corpus.Root(t), "goldens", "sound"))
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "root")
	list, err := generate(root, 70, 2*len(ways), 7, ts)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2*len(ways) {
		t.Fatalf("%d damaged logs, want %d", len(list), 2*len(ways))
	}
	problems, err := checkRoot(root, 70, list, 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
	// The check can fail: damage that it is not told of, and too much of it.
	problems, err = checkRoot(root, 70, list[1:], 0)
	if err != nil || len(problems) != 1 {
		t.Errorf("%v, %v, want one problem", problems, err)
	}
	more := append(slices.Clone(list), Damaged{Path: "plain/none", Session: "x"})
	more[0].Rule = "LOG-TIME"
	problems, err = checkRoot(root, 71, more, 0)
	if err != nil || len(problems) < 3 {
		t.Errorf("%v, %v, want three problems", problems, err)
	}
}

func TestGenerateIsStable(t *testing.T) {
	ts, err := templates(filepath.Join(corpus.Root(t), "goldens", "sound"))
	if err != nil {
		t.Fatal(err)
	}
	read := func() map[string]string {
		root := filepath.Join(t.TempDir(), "root")
		if _, err := generate(root, 40, 11, 3, ts); err != nil {
			t.Fatal(err)
		}
		files := map[string]string{}
		err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			rel, _ := filepath.Rel(root, path)
			files[rel] = string(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	if d := cmp.Diff(read(), read()); d != "" {
		t.Error("the same arguments give other files")
	}
}
