package replay

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file that appears while another is written under the same name stays.
func TestPublishNeverReplaces(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "out")
	p, err := newPublication(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{p.temp: "mine", name: "other"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.publish(); err == nil || !strings.Contains(err.Error(), "the file exists, and export never replaces one") {
		t.Errorf("publish: %v", err)
	}
	p.abandon()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != "other" {
		t.Errorf("%q, %v", b, err)
	}
}

// A dangling link is a name that is taken.
func TestPublishLink(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "out")
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), name); err != nil {
		t.Skip(err)
	}
	if _, err := newPublication(context.Background(), name); err == nil {
		t.Error("a link was taken for a free name")
	}
}

// Nothing is published once the run was interrupted.
func TestPublishInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	p, err := newPublication(ctx, filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.temp, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cancel()
	for {
		p.mu.Lock()
		gone := p.gone
		p.mu.Unlock()
		if gone {
			break
		}
	}
	if err := p.publish(); !errors.Is(err, context.Canceled) {
		t.Errorf("publish: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestPublishNowhere(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{filepath.Join(dir, "missing", "out"), filepath.Join(file, "out"), dir} {
		if _, err := newPublication(context.Background(), name); err == nil {
			t.Errorf("%s: taken for a place to write to", name)
		}
	}
}
