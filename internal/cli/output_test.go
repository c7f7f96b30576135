package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/corpus"
)

var verifyFormats = []string{"text", "json", "jsonl", "junit", "sarif", "github"}

// verify runs dsh-verify in this process.
func verifyHere(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = cli.Execute(context.Background(), programs()["dsh-verify"], append([]string{"dsh-verify"}, args...), strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

// names lists a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// A process that is interrupted while it judges leaves no part of a report, and
// what stood in its place before.
func TestInterruptLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old.json")
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	summary := filepath.Join(dir, "summary.md")
	cmd := exec.Command("dsh-verify", "--output", "json="+old, "--output", "sarif="+filepath.Join(dir, "new.sarif"),
		"--format", "github", "testdata/logs/corrupt.jsonl", "-")
	cmd.Env = append(os.Environ(), "GITHUB_STEP_SUMMARY="+summary)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	in, err := cmd.StdinPipe() // it never ends
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); len(names(t, dir)) < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			cmd.Process.Kill()
			t.Fatalf("no files are being written: %v", names(t, dir))
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Errorf("ended with %v, want code 130", err)
	}
	if got, want := errs.String(), "dsh-verify: error: interrupted\n"; got != want {
		t.Errorf("standard error %q, want %q", got, want)
	}
	if got := names(t, dir); !cmp.Equal(got, []string{"old.json"}) {
		t.Errorf("left %v, want only old.json", got)
	}
	if b, err := os.ReadFile(old); err != nil || string(b) != "old" {
		t.Errorf("old.json holds %q, %v", b, err)
	}
}

// A report that cannot be written is never taken for one that was.
func TestOutputFails(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full on this system")
	}
	defer full.Close()
	for _, format := range verifyFormats {
		run := func(stdout io.Writer, args ...string) (int, string) {
			var errs bytes.Buffer
			words := append([]string{"dsh-verify"}, args...)
			code := cli.Execute(context.Background(), programs()["dsh-verify"], words, strings.NewReader(""), stdout, &errs)
			return code, errs.String()
		}
		if code, errs := run(full, "--format", format, "testdata/logs/watch.jsonl"); code != 2 || errs != "dsh-verify: error: standard output: no space left on device\n" {
			t.Errorf("%s on a full disk: code %d, %q", format, code, errs)
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		dir := t.TempDir()
		code, errs := run(w, "--format", format, "--output", "json="+filepath.Join(dir, "out.json"), "testdata/logs/watch.jsonl")
		if code != 2 || errs != "dsh-verify: error: standard output: broken pipe\n" {
			t.Errorf("%s into a closed pipe: code %d, %q", format, code, errs)
		}
		if left := names(t, dir); len(left) > 0 {
			t.Errorf("%s into a closed pipe: left %v", format, left)
		}
		w.Close()
		var out bytes.Buffer
		code, errs = run(&out, "--output", format+"=/dev/full", "testdata/logs/watch.jsonl")
		if code != 2 || errs != "dsh-verify: error: /dev/full: no space left on device\n" {
			t.Errorf("%s to a full disk: code %d, %q", format, code, errs)
		}
		// A second report, which is complete, does not appear either.
		code, _ = run(&out, "--output", format+"=/dev/full", "--output", "json="+filepath.Join(dir, "out.json"), "testdata/logs/watch.jsonl")
		if left := names(t, dir); code != 2 || len(left) > 0 {
			t.Errorf("%s to a full disk: code %d, left %v", format, code, left)
		}
	}
}

// Every format describes the same run, whatever goes to standard output and what
// to a file; a file has the same bytes as standard output.
func TestOutputs(t *testing.T) {
	root := corpus.Root(t)
	t.Chdir(root)
	dir := t.TempDir()
	args := []string{}
	for _, f := range verifyFormats {
		args = append(args, "--output", f+"="+filepath.Join(dir, f))
	}
	code, out, errs := verifyHere(t, append(args, "goldens/damaged")...)
	if code != 1 || errs != "" {
		t.Fatalf("code %d, %q", code, errs)
	}
	for _, f := range verifyFormats {
		file, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			t.Fatal(err)
		}
		if f == "text" && string(file) != out {
			t.Error("text in a file differs from text on standard output")
		}
		_, alone, _ := verifyHere(t, "--format", f, "goldens/damaged")
		if alone != string(file) {
			t.Errorf("%s in a file differs from the same on standard output", f)
		}
		switch f {
		case "json", "sarif":
			if !json.Valid(file) {
				t.Errorf("%s is no JSON", f)
			}
		case "junit":
			var v struct {
				Tests    int `xml:"tests,attr"`
				Failures int `xml:"failures,attr"`
			}
			if err := xml.Unmarshal(file, &v); err != nil || v.Tests == 0 || v.Failures == 0 {
				t.Errorf("junit: %v, %+v", err, v)
			}
		}
	}
	if st, err := os.Stat(filepath.Join(dir, "json")); err != nil || st.Mode().Perm()&0o444 == 0o400 && umaskAllows(t) {
		t.Errorf("a report is readable by its owner only: %v, %v", st.Mode(), err)
	}
}

// umaskAllows reports whether files are made for others to read.
func umaskAllows(t *testing.T) bool {
	old := syscall.Umask(0)
	syscall.Umask(old)
	return old&0o044 == 0
}

// What is to be read, and what looks like a log, is not written over.
func TestOutputSparesLogs(t *testing.T) {
	dir := t.TempDir()
	log, err := os.ReadFile("testdata/logs/watch.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	watch := write("watch.jsonl", log)
	odd := write("odd.jsonl", []byte("not a log"))
	sqlite := write("s", []byte("SQLite format 3\x00..."))
	zstd := write("z", []byte("\x28\xb5\x2f\xfd..."))
	zip := write("p", []byte("PK\x03\x04..."))
	link := filepath.Join(dir, "link")
	if err := os.Symlink("watch.jsonl", link); err != nil {
		t.Fatal(err)
	}
	dangling := filepath.Join(dir, "dangling")
	if err := os.Symlink("nowhere", dangling); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ target, want string }{
		{odd, odd + ": would be overwritten, and is to be read"},
		{watch, watch + ": would be overwritten, and is a session log, a database or an archive"},
		{link, link + ": would be overwritten, and is a session log, a database or an archive"},
		{sqlite, sqlite + ": would be overwritten, and is a session log, a database or an archive"},
		{zstd, zstd + ": would be overwritten, and is a session log, a database or an archive"},
		{zip, zip + ": would be overwritten, and is a session log, a database or an archive"},
		{dangling, dangling + ": a link to nowhere, which is not there"},
		{dir, dir + ": is a directory"},
		{filepath.Join(dir, "no", "x"), filepath.Join(dir, "no", "x") + ": no such file or directory"},
	} {
		for _, args := range [][]string{{"--output", "json=" + c.target}, {"--write-baseline", c.target}} {
			code, out, errs := verifyHere(t, append(args, odd, "testdata/logs/watch.jsonl")...)
			if code != 2 || errs != "dsh-verify: error: "+c.want+"\n" || out != "" {
				t.Errorf("%s: code %d, %q, want %q", args, code, errs, c.want)
			}
		}
	}
	if b, err := os.ReadFile(watch); err != nil || !bytes.Equal(b, log) {
		t.Error("the log was changed")
	}
	// A link to a report is kept, and the report behind it replaced.
	report := write("report.json", []byte("{}"))
	if err := os.Chmod(report, 0o640); err != nil {
		t.Fatal(err)
	}
	alias := filepath.Join(dir, "alias")
	if err := os.Symlink("report.json", alias); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := verifyHere(t, "--output", "json="+alias, watch); code != 0 || errs != "" {
		t.Fatalf("code %d, %q", code, errs)
	}
	st, err := os.Lstat(alias)
	if err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", st.Mode(), err)
	}
	st, err = os.Stat(report)
	if err != nil || st.Mode().Perm() != 0o640 || st.Size() < 100 {
		t.Errorf("the report is %v of %d bytes, %v", st.Mode(), st.Size(), err)
	}
}
