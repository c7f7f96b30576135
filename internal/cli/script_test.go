package cli_test

import (
	"crypto/sha256"
	"errors"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/diff"
	"github.com/dsh-audit/dsh-audit/internal/cli/replay"
	"github.com/dsh-audit/dsh-audit/internal/cli/verify"
	"github.com/dsh-audit/dsh-audit/internal/corpus"
)

var update = flag.Bool("update", false, "rewrite the expected output in the scripts")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"dsh-replay": func() { os.Exit(cli.Main(replay.Program())) },
		"dsh-diff":   func() { os.Exit(cli.Main(diff.Program())) },
		"dsh-verify": func() { os.Exit(cli.Main(verify.Program())) },
	})
}

// TestScripts runs the programs as processes. The logs of testdata/logs lie in
// $WORK, those that ship in $GOLDENS; after a script every one of them must be as
// it was.
func TestScripts(t *testing.T) {
	logs, err := filepath.Glob("testdata/logs/*.*")
	if err != nil || len(logs) == 0 {
		t.Fatalf("no logs: %v", err)
	}
	goldens := filepath.Join(corpus.Root(t), "goldens")
	before := digests(t, goldens)
	t.Run("scripts", func(t *testing.T) {
		testscript.Run(t, testscript.Params{
			Dir:           filepath.Join("testdata", "script"),
			UpdateScripts: *update,
			Cmds:          map[string]func(*testscript.TestScript, bool, []string){"exit": exitCommand},
			Setup: func(env *testscript.Env) error {
				env.Setenv("GOLDENS", goldens)
				env.Setenv("NO_COLOR", "")
				env.Setenv("TERM", "xterm")
				for _, log := range logs {
					b, err := os.ReadFile(log)
					if err != nil {
						return err
					}
					if err := os.WriteFile(filepath.Join(env.WorkDir, filepath.Base(log)), b, 0o444); err != nil {
						return err
					}
				}
				inputs := digests(t, env.WorkDir)
				env.Defer(func() { requireSame(t, env.WorkDir, inputs) })
				return nil
			},
		})
	})
	requireSame(t, goldens, before)
}

// exitCommand is "exit CODE PROGRAM ARGS...": it runs the program and fails
// unless it ends with exactly that code.
func exitCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit CODE PROGRAM [ARGS...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%s: %v", args[1], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s ended with code %d, want %d", args[1], got, want)
	}
}

type state struct {
	sum [32]byte
	fs.FileInfo
}

// digests reads every file of a tree.
func digests(t *testing.T, root string) map[string]state {
	t.Helper()
	files := make(map[string]state)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		files[path] = state{sha256.Sum256(b), info}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return files
}

// requireSame fails when a file changed since before was taken.
func requireSame(t *testing.T, root string, before map[string]state) {
	t.Helper()
	after := digests(t, root)
	for path, b := range before {
		a, ok := after[path]
		switch {
		case !ok:
			t.Errorf("%s is gone", path)
		case a.sum != b.sum:
			t.Errorf("%s has other content", path)
		case !a.ModTime().Equal(b.ModTime()) || a.Mode() != b.Mode():
			t.Errorf("%s was touched", path)
		}
	}
}
