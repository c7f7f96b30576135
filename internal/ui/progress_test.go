package ui

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

// visibleAfter is what a terminal shows after text with carriage returns.
func visibleAfter(text string) string {
	line := []rune{}
	at := 0
	for _, r := range text {
		switch {
		case r == '\r':
			at = 0
		case at < len(line):
			line[at] = r
			at++
		default:
			line = append(line, r)
			at++
		}
	}
	return strings.TrimRight(string(line), " ")
}

func TestProgress(t *testing.T) {
	var b bytes.Buffer
	p := newProgress(&b, "judging")
	p.Add(3)
	if b.Len() > 0 {
		t.Errorf("drawn too early: %q", b.String())
	}
	p.drawn = time.Now().Add(-progressEvery)
	p.Add(4)
	if got := visibleAfter(b.String()); !strings.HasSuffix(got, "judging 7") {
		t.Errorf("shown %q, want it to end in %q", got, "judging 7")
	}
	p.Clear()
	if got := visibleAfter(b.String()); got != "" {
		t.Errorf("left after Clear: %q", got)
	}
	p.drawn = time.Now().Add(-progressEvery)
	p.Add(1)
	if got := visibleAfter(b.String()); !strings.HasSuffix(got, "judging 8") {
		t.Errorf("shown %q, want it to end in %q", got, "judging 8")
	}
	p.Close()
	if got := visibleAfter(b.String()); got != "" {
		t.Errorf("left at the end: %q", got)
	}
	if strings.ContainsAny(b.String(), "\n\x1b") {
		t.Errorf("the line moved: %q", b.String())
	}
}

func TestProgressOnTerminalsOnly(t *testing.T) {
	none := func(string) string { return "" }
	var b bytes.Buffer
	f, err := os.Create(t.TempDir() + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, u := range []*UI{New(&b, "x", Palette{}), New(f, "x", Palette{})} {
		p := u.Progress("judging", none)
		if p != nil {
			t.Fatalf("%T has progress", u.w)
		}
		p.Add(1)
		p.Clear()
		p.Close()
		u.Warn("said")
	}
	if got := b.String(); got != "x: warning: said\n" {
		t.Errorf("got %q", got)
	}
}
