package cli_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
)

// terminal opens a terminal of 60 columns: what is written to tty is read from ptm.
func terminal(t *testing.T) (ptm, tty *os.File) {
	t.Helper()
	ptm, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminals on this system: %v", err)
	}
	t.Cleanup(func() { ptm.Close() })
	ioctl := func(f *os.File, what uintptr, arg unsafe.Pointer) {
		if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), what, uintptr(arg)); e != 0 {
			t.Skipf("no terminals on this system: %v", e)
		}
	}
	var n, lock int32
	ioctl(ptm, syscall.TIOCSPTLCK, unsafe.Pointer(&lock))
	ioctl(ptm, syscall.TIOCGPTN, unsafe.Pointer(&n))
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Skipf("no terminals on this system: %v", err)
	}
	size := [4]uint16{24, 60}
	ioctl(tty, syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	return ptm, tty
}

// shown is everything that a terminal is sent until nobody holds it any more.
func shown(ptm *os.File) <-chan string {
	out := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(ptm) // it ends in an error when the last one has closed it
		out <- strings.ReplaceAll(string(b), "\r\n", "\n")
	}()
	return out
}

var escape = regexp.MustCompile("\x1b\\[[0-9;]*m")

// On a terminal text is wrapped at its width and coloured, unless that is not wanted.
// The words are those that a file gets.
func TestTerminalText(t *testing.T) {
	t.Chdir(corpus.Root(t))
	_, plain, _ := verifyHere(t, "goldens/damaged/seq-swap", "goldens/damaged/tool-result-twice")
	words := strings.Join(strings.Fields(plain), " ")
	for _, c := range []struct {
		name    string
		env     []string
		args    []string
		colored bool
	}{
		{"colour", []string{"TERM=xterm", "NO_COLOR="}, nil, true},
		{"NO_COLOR", []string{"TERM=xterm", "NO_COLOR=1"}, nil, false},
		{"dumb", []string{"TERM=dumb", "NO_COLOR="}, nil, false},
		{"never", []string{"TERM=xterm", "NO_COLOR="}, []string{"--color", "never"}, false},
		{"always", []string{"TERM=dumb", "NO_COLOR=1"}, []string{"--color", "always"}, true},
	} {
		ptm, tty := terminal(t)
		cmd := exec.Command("dsh-verify", append(c.args, "goldens/damaged/seq-swap", "goldens/damaged/tool-result-twice")...)
		cmd.Env = append(os.Environ(), c.env...)
		cmd.Stdout = tty
		out := shown(ptm)
		cmd.Run()
		tty.Close()
		text := <-out
		if escape.MatchString(text) != c.colored {
			t.Errorf("%s: coloured %v, want %v", c.name, !c.colored, c.colored)
		}
		text = escape.ReplaceAllString(text, "")
		if got := strings.Join(strings.Fields(text), " "); got != words {
			t.Errorf("%s: other words than in a file:\n%s", c.name, text)
		}
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if len(line) > 60 && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("%s: %d columns: %s", c.name, len(line), line)
			}
		}
	}
}

// Progress is on a terminal behind standard error only, and nothing of it stays; what
// goes into a pipe is as if there were none.
func TestTerminalProgress(t *testing.T) {
	log, err := os.ReadFile(filepath.Join("testdata", "logs", "watch.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, term := range []string{"xterm", "dumb"} {
		ptm, tty := terminal(t)
		cmd := exec.Command("dsh-verify", "testdata/logs/watch.jsonl", "-", "testdata/logs/watch.jsonl")
		cmd.Env = append(os.Environ(), "TERM="+term, "NO_COLOR=")
		cmd.Stderr = tty
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		drawn := shown(ptm)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		tty.Close()
		first := make([]byte, 64) // the first log is judged, and the line is not yet due
		if _, err := io.ReadFull(out, first); err != nil {
			t.Fatal(err)
		}
		time.Sleep(150 * time.Millisecond)
		in.Write(log)
		in.Close()
		rest, err := io.ReadAll(out)
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if b := append(first, rest...); bytes.ContainsAny(b, "\x1b\r") || !bytes.Contains(b, []byte("\nchecked 3 logs: 3 ok; next: ")) {
			t.Errorf("%s: standard output is %q", term, b)
		}
		text := <-drawn
		if term == "dumb" {
			if text != "" {
				t.Errorf("a terminal that cannot rewrite a line shows %q", text)
			}
			continue
		}
		if !strings.Contains(text, "judging 2") || strings.ContainsAny(text, "\n\x1b") {
			t.Errorf("%s: shown %q, want a line with judging 2", term, text)
		}
		if i := strings.LastIndex(text, "\r"); strings.TrimSpace(text[i+1:]) != "" {
			t.Errorf("%s: %q is left", term, text[i+1:])
		}
	}
}
