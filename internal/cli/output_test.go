package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
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
	// Signals that are taken here are not ignored in a process that is started, even
	// when this one was started with nohup.
	taken := make(chan os.Signal, 1)
	signal.Notify(taken, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(taken)
	for _, c := range []struct {
		signal os.Signal
		code   int
	}{
		{os.Interrupt, 130},
		{syscall.SIGTERM, 130},
		{syscall.SIGHUP, 129},
	} {
		dir, cmd, errs := judging(t, "dsh-verify")
		if err := cmd.Process.Signal(c.signal); err != nil {
			t.Fatal(err)
		}
		err := cmd.Wait()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != c.code {
			t.Errorf("%v: ended with %v, want code %d", c.signal, err, c.code)
		}
		if got, want := errs.String(), "dsh-verify: error: interrupted\n"; got != want {
			t.Errorf("%v: standard error %q, want %q", c.signal, got, want)
		}
		if got := names(t, dir); !cmp.Equal(got, []string{"old.json"}) {
			t.Errorf("%v: left %v, want only old.json", c.signal, got)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "old.json")); err != nil || string(b) != "old" {
			t.Errorf("%v: old.json holds %q, %v", c.signal, b, err)
		}
	}
}

// When a terminal is closed, the system and the shell send a signal each. The second
// does not end a run that takes its time over the first, another signal does.
func TestHangUpTwice(t *testing.T) {
	taken := make(chan os.Signal, 1)
	signal.Notify(taken, syscall.SIGHUP, os.Interrupt)
	defer signal.Stop(taken)
	var log bytes.Buffer
	log.WriteString(`{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"/w","delegationDepth":0}` + "\n")
	for seq := range 10000 { // more than a pipe and the buffers before it hold
		fmt.Fprintf(&log, `{"type":"plan/mode","seq":%d,"time":1,"data":{"active":true}}`+"\n", seq)
	}
	path := filepath.Join(t.TempDir(), "log.jsonl")
	if err := os.WriteFile(path, log.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		then os.Signal
		code int // -1: by the signal
	}{{syscall.SIGHUP, 129}, {os.Interrupt, -1}} {
		cmd := exec.Command("dsh-replay", "events", path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// It runs when something comes, and is stuck when nobody takes the rest.
		if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		for _, s := range []os.Signal{syscall.SIGHUP, c.then} {
			if err := cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			time.Sleep(400 * time.Millisecond) // of the second that it has
		}
		state, err := cmd.Process.Wait()
		if err != nil {
			t.Fatal(err)
		}
		if state.ExitCode() != c.code {
			t.Errorf("a hangup and %v: ended with %v, want code %d", c.then, state, c.code)
		}
		out.Close()
	}
}

// judging starts a process that has files open and waits for its input.
func judging(t *testing.T, command ...string) (dir string, cmd *exec.Cmd, errs *bytes.Buffer) {
	t.Helper()
	dir = t.TempDir()
	old := filepath.Join(dir, "old.json")
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	summary := filepath.Join(dir, "summary.md")
	args := append(command[1:len(command):len(command)], "--output", "json="+old, "--output", "sarif="+filepath.Join(dir, "new.sarif"),
		"--format", "github", "testdata/logs/corrupt.jsonl", "-")
	cmd = exec.Command(command[0], args...)
	cmd.Env = append(os.Environ(), "GITHUB_STEP_SUMMARY="+summary)
	errs = &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = io.Discard, errs
	in, err := cmd.StdinPipe() // it never ends
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); len(names(t, dir)) < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			cmd.Process.Kill()
			t.Fatalf("no files are being written: %v", names(t, dir))
		}
	}
	return dir, cmd, errs
}

// A run below nohup goes on when the terminal is closed.
func TestNohup(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh on this system")
	}
	dir, cmd, errs := judging(t, sh, "-c", `trap "" HUP && exec dsh-verify "$@"`, "sh")
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Millisecond) // it would act on the signal now
	if got := len(names(t, dir)); got != 3 {
		t.Errorf("%d files after the hangup, want 3: %v", got, names(t, dir))
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if code, want := cmd.ProcessState.ExitCode(), 130; code != want || errs.String() != "dsh-verify: error: interrupted\n" {
		t.Errorf("code %d, %q, want %d", code, errs, want)
	}
}

// A process whose output nobody takes is stuck in a write when it is interrupted: as
// below a pager that has been left alone. Its files are gone all the same.
func TestInterruptOfAStuckWrite(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old.json")
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	// More than a pipe and the buffers before it hold.
	args := []string{"--format", "json", "--output", "json=" + old, "--output", "sarif=" + filepath.Join(dir, "new.sarif"), "--write-baseline", filepath.Join(dir, "known.json")}
	for range 5 {
		args = append(args, filepath.Join(corpus.Root(t), "goldens", "damaged"))
	}
	for _, args := range [][]string{args, append([]string{"merge"}, mergeable(t)...)} {
		if args[0] == "merge" {
			args = append([]string{"merge", "--format", "json", "--output", "json=" + old, "--output", "junit=" + filepath.Join(dir, "new.xml")}, args[1:]...)
		}
		cmd := exec.Command("dsh-verify", args...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		cmd.Stdout = w
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		// It is stuck when the pipe is full: nothing more is written to files either.
		for size, same, deadline := int64(0), 0, time.Now().Add(time.Minute); same < 20; time.Sleep(20 * time.Millisecond) {
			n := written(t, dir)
			if same++; n != size || n < 32<<10 {
				same = 0
			}
			if size = n; time.Now().After(deadline) {
				cmd.Process.Kill()
				t.Fatalf("it does not get stuck: %d bytes, %v", n, names(t, dir))
			}
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		err = cmd.Wait()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 130 {
			t.Errorf("%s ended with %v, want code 130", args[0], err)
		}
		if got, want := errs.String(), "dsh-verify: error: interrupted\n"; got != want {
			t.Errorf("standard error %q, want %q", got, want)
		}
		if got := names(t, dir); !cmp.Equal(got, []string{"old.json"}) {
			t.Errorf("%s left %v, want only old.json", args[0], got)
		}
		if b, err := os.ReadFile(old); err != nil || string(b) != "old" {
			t.Errorf("old.json holds %q, %v", b, err)
		}
	}
}

// mergeable are reports that make more than a pipe holds.
func mergeable(t *testing.T) (out []string) {
	t.Helper()
	_, report, _ := verifyHere(t, "--format", "json", filepath.Join(corpus.Root(t), "goldens", "damaged"))
	path := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(path, []byte(report), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		out = append(out, path)
	}
	return out
}

// written is how many bytes the files of a directory have.
func written(t *testing.T, dir string) (n int64) {
	t.Helper()
	for _, name := range names(t, dir) {
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil {
			n += st.Size()
		}
	}
	return n
}

// Whenever a process is interrupted, each of its files is complete, or is what it was.
func TestInterruptAtAnyTime(t *testing.T) {
	root := corpus.Root(t)
	ended := map[int]int{}
	for delay := 5 * time.Millisecond; ended[0]+ended[1] == 0 && delay < 10*time.Second; delay = delay * 3 / 2 {
		dir := t.TempDir()
		args := []string{"--format", "jsonl"}
		for _, f := range []string{"json", "sarif", "junit"} {
			args = append(args, "--output", f+"="+filepath.Join(dir, f))
		}
		cmd := exec.Command("dsh-verify", append(args, filepath.Join(root, "goldens", "damaged"), filepath.Join(root, "goldens", "sound"))...)
		cmd.Stdout = io.Discard
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(delay)
		cmd.Process.Signal(os.Interrupt) // it may be over already
		err := cmd.Wait()
		code := cmd.ProcessState.ExitCode()
		ended[code]++
		for _, name := range names(t, dir) {
			b, rerr := os.ReadFile(filepath.Join(dir, name))
			if rerr != nil {
				t.Fatal(rerr)
			}
			var v struct{}
			switch {
			case (name == "json" || name == "sarif") && json.Valid(b):
			case name == "junit" && xml.Unmarshal(b, &v) == nil:
			default:
				t.Errorf("after %v: left %s, %d bytes, which is not complete", delay, name, len(b))
			}
		}
		// Before the program takes signals, the system ends it.
		if code != 130 && code != 1 && !(code == -1 && delay < time.Second) {
			t.Errorf("after %v: ended with %v, want code 130, or 1 when it was done", delay, err)
		}
		if code == 1 && len(names(t, dir)) != 3 {
			t.Errorf("after %v: left %v, want three reports", delay, names(t, dir))
		}
	}
	t.Logf("codes: %v", ended)
	if ended[130] == 0 || ended[1] == 0 {
		t.Errorf("codes %v, want runs that were interrupted and one that was not", ended)
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

// A disk that fills up while a file is written: the limit on the size of files, which
// a process inherits, stands for it.
func TestFilesFail(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no shell to set the limit")
	}
	damaged := filepath.Join(corpus.Root(t), "goldens", "damaged")
	report := mergeable(t)[0]
	dir := t.TempDir()
	file := filepath.Join(dir, "out")
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := [][]string{{"--write-baseline", file, damaged}, {"merge", "--output", "json=" + file, report}}
	for _, format := range verifyFormats {
		if format != "github" { // of which there is never that much
			cases = append(cases, []string{"--output", format + "=" + file, "--output", "github=" + filepath.Join(dir, "second"), damaged})
		}
	}
	for _, args := range cases {
		cmd := exec.Command("sh", append([]string{"-c", `ulimit -f 8 && exec "$@"`, "sh", "dsh-verify"}, args...)...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		cmd.Run()
		if code, want := cmd.ProcessState.ExitCode(), "dsh-verify: error: "+file+": file too large\n"; code != 2 || errs.String() != want {
			t.Errorf("%v: code %d, %q; want 2, %q", args, code, errs.String(), want)
		}
		if got := names(t, dir); !cmp.Equal(got, []string{"out"}) {
			t.Errorf("%v: left %v, want only out", args, got)
		}
		if b, err := os.ReadFile(file); err != nil || string(b) != "old" {
			t.Errorf("%v: out holds %.20q, %v", args, b, err)
		}
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full on this system")
	}
	defer full.Close()
	for _, args := range [][]string{{"--write-baseline", "/dev/full", damaged}, {"merge", "--output", "json=/dev/full", report}} {
		if code, _, errs := verifyHere(t, args...); code != 2 || errs != "dsh-verify: error: /dev/full: no space left on device\n" {
			t.Errorf("%v: code %d, %q", args, code, errs)
		}
	}
	for _, args := range [][]string{{"merge", report}, {"merge", "--format", "junit", report}, {"rules"}, {"explain", "LOG-SEQ"}} {
		var errs bytes.Buffer
		code := cli.Execute(context.Background(), programs()["dsh-verify"], append([]string{"dsh-verify"}, args...), strings.NewReader(""), full, &errs)
		if code != 2 || errs.String() != "dsh-verify: error: standard output: no space left on device\n" {
			t.Errorf("%v: code %d, %q", args, code, errs.String())
		}
	}
	t.Setenv("GITHUB_STEP_SUMMARY", "/dev/full")
	if code, _, errs := verifyHere(t, "--format", "github", damaged); code != 2 || errs != "dsh-verify: error: GITHUB_STEP_SUMMARY: /dev/full: no space left on device\n" {
		t.Errorf("step summary: code %d, %q", code, errs)
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
