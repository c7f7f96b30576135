//go:build unix

package logfmt

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPipe: a pipe in a directory is not waited for.
func TestPipe(t *testing.T) {
	dir := tree(t, map[string]string{"--a--/x/session.jsonl": quietLog(0, "x", "/a")})
	if err := syscall.Mkfifo(filepath.Join(dir, "--a--/x/session.v2.jsonl"), 0o600); err != nil {
		t.Skipf("no pipes here: %v", err)
	}
	done := make(chan []string, 1)
	go func() { done <- survey(t, dir) }()
	select {
	case got := <-done:
		want := []string{
			"ROOT-ENTRY .: --a--/x/session.v2.jsonl: a special file: what it stands for is not judged",
			"log --a--/x/session.jsonl: jsonl, 2 events, intact",
			"skip --a--/x/session.v2.jsonl: not a regular file",
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	case <-time.After(time.Minute):
		t.Fatal("the walk waits for the pipe")
	}
}
