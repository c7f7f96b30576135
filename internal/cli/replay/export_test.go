package replay_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/replay"
	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/invariants"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

var forms = []string{"plain", "packed", "zstd", "sqlite"}

// execute runs dsh-replay.
func execute(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = cli.Execute(context.Background(), replay.Program(), append([]string{"dsh-replay"}, args...), strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

// scratch is a directory for files to be written: in memory where there is one,
// since every export waits until its file is durable.
func scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "dsh-audit-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// export writes a log in a form and returns the new file.
func export(t *testing.T, form, log string, more ...string) string {
	t.Helper()
	out := filepath.Join(scratch(t), "out")
	args := append([]string{"export", "--to", form, "-o", out}, more...)
	if code, _, errs := execute(append(args, log)...); code != 0 {
		t.Fatalf("export --to %s %s: code %d\n%s", form, log, code, errs)
	}
	return out
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// events reads the events of a log, one a line, the envelopes in one order: a
// database has its own.
func events(t testing.TB, path string) []byte {
	t.Helper()
	log, err := logfmt.OpenFile(path, logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var b []byte
	for e, d := range log.Events() {
		if d != nil {
			t.Fatalf("%s: %v", path, d)
		}
		b = append(logfmt.AppendEvent(b, e), '\n')
	}
	if log.Class() != logfmt.Intact {
		t.Fatalf("%s is %s", path, log.Class())
	}
	return b
}

// ordered brings the envelopes of lines into that order.
func ordered(t testing.TB, lines []byte) []byte {
	t.Helper()
	log, err := logfmt.NewReader(io.MultiReader(strings.NewReader(`{"type":"session","version":0,"id":"s","createdAt":1,"delegationDepth":0}`+"\n"), bytes.NewReader(lines)), "s.jsonl", logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	for e, d := range log.Events() {
		if d != nil {
			t.Fatal(d)
		}
		b = append(logfmt.AppendEvent(b, e), '\n')
	}
	return b
}

func verdict(t testing.TB, path string) (invariants.Verdict, *invariants.Result) {
	t.Helper()
	log, err := logfmt.OpenFile(path, logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	res, err := invariants.Check(context.Background(), log, invariants.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return res.Verdict, res
}

// tree is what lies in a directory.
func tree(t testing.TB, dir string) map[string][32]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][32]byte{}
	for _, e := range entries {
		if e.Type().IsRegular() {
			files[e.Name()] = sha256.Sum256(read(t, filepath.Join(dir, e.Name())))
		}
	}
	return files
}

func sameTree(t testing.TB, dir string, before map[string][32]byte) {
	t.Helper()
	after := tree(t, dir)
	for name, sum := range after {
		if old, ok := before[name]; !ok {
			t.Errorf("%s appeared in %s", name, dir)
		} else if old != sum {
			t.Errorf("%s in %s was changed", name, dir)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			t.Errorf("%s is gone from %s", name, dir)
		}
	}
}

// roundTrips writes a log in every form and each of those as plain lines again:
// the events stay the same, and so do the requests and the verdict.
func roundTrips(t *testing.T, log string) (n int) {
	t.Helper()
	want := events(t, log)
	judged, _ := verdict(t, log)
	_, requests, _ := execute("requests", "--bodies", "--candidates", log)
	for _, form := range forms {
		out := export(t, form, log)
		if _, got, _ := execute("requests", "--bodies", "--candidates", out); got != requests {
			t.Errorf("%s: as %s it leads to other requests", log, form)
		}
		if got := events(t, out); !bytes.Equal(got, want) {
			t.Errorf("%s: as %s it holds other events", log, form)
		}
		if v, res := verdict(t, out); v != judged {
			t.Errorf("%s: verdict %s, as %s %s: %v", log, judged, form, v, findings(res))
		}
		if got := events(t, export(t, "plain", out)); !bytes.Equal(got, want) {
			t.Errorf("%s: as %s and back it holds other events", log, form)
		}
		n += 2
	}
	return n
}

func findings(res *invariants.Result) (out []string) {
	for _, f := range res.Findings {
		if f.Severity != invariants.Note {
			out = append(out, f.Rule+": "+f.Message)
		}
	}
	return out
}

func TestRoundTrips(t *testing.T) {
	logs, err := filepath.Glob(filepath.Join(corpus.Root(t), "goldens", "sound", "*", "session*.jsonl"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no logs: %v", err)
	}
	n := 0
	for _, log := range logs {
		before := tree(t, filepath.Dir(log))
		n += roundTrips(t, log)
		sameTree(t, filepath.Dir(log), before)
	}
	t.Logf("%d round trips of %d logs", n, len(logs))
}

// notInSQLite are logs that a database of schema 17 cannot hold.
func notInSQLite(err string) bool { return strings.Contains(err, "cannot be written as sqlite") }

// Every store of every recorded session holds the same events in every form.
func TestCorpusRoundTrips(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	n := map[string]int{}
	for _, part := range []string{"head", "july"} {
		cases, err := os.ReadDir(filepath.Join(dir, part))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			name := c.Name()
			if strings.HasPrefix(name, "invalid-") || strings.HasPrefix(name, "crash-") || strings.HasPrefix(name, "legacy-bad") || strings.Contains(name, "-invalid-") || !c.IsDir() {
				continue
			}
			folder := filepath.Join(dir, part, name)
			before := tree(t, folder)
			for file := range before {
				if !strings.HasPrefix(file, "session") || strings.HasPrefix(file, "session-header") ||
					!strings.HasSuffix(file, ".jsonl") && !strings.HasSuffix(file, ".jsonl.zstd") && !strings.HasSuffix(file, ".sqlite") {
					continue
				}
				log := filepath.Join(folder, file)
				if strings.HasSuffix(file, ".sqlite") && several(t, log) {
					continue // its sessions are in the other stores as well
				}
				n["logs"]++
				want := events(t, log)
				judged, _ := verdict(t, log)
				plain := strings.HasSuffix(file, ".jsonl") && !strings.HasSuffix(file, ".packed.jsonl")
				for _, form := range forms {
					out := filepath.Join(scratch(t), "out")
					code, _, errs := execute("export", "--to", form, "-o", out, log)
					if code != 0 {
						if form == "sqlite" && notInSQLite(errs) {
							n["not in sqlite"]++
							t.Logf("%s/%s: %s", name, file, errs)
							continue
						}
						t.Errorf("%s/%s: export --to %s: %s", name, file, form, errs)
						continue
					}
					n[form]++
					if !bytes.Equal(events(t, out), want) {
						t.Errorf("%s/%s: as %s it holds other events", name, file, form)
					}
					if !plain {
						continue // the same events judged again
					}
					if v, res := verdict(t, out); v != judged {
						t.Errorf("%s/%s: verdict %s, as %s %s: %v", name, file, judged, form, v, findings(res))
					}
				}
			}
			sameTree(t, folder, before)
		}
	}
	t.Logf("%v", n)
	if n["logs"] < 200 {
		t.Errorf("only %d logs", n["logs"])
	}
}

// A database that a harness has open, with its WAL beside it, is read as it is and
// left as it is.
func TestCorpusExportLive(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	folder := filepath.Join(dir, "head", "sqlite-wal-live")
	before := tree(t, folder)
	want := ordered(t, read(t, filepath.Join(folder, "events.jsonl")))
	for _, form := range forms {
		if got := events(t, export(t, form, filepath.Join(folder, "live.sqlite"))); !bytes.Equal(got, want) {
			t.Errorf("as %s it holds other events", form)
		}
	}
	sameTree(t, folder, before)
}

func several(t *testing.T, db string) bool {
	t.Helper()
	n := 0
	for log, err := range logfmt.DatabaseLogs(db, logfmt.Options{}) {
		if err != nil {
			t.Fatal(err)
		}
		log.Close()
		n++
	}
	return n != 1
}

// recordedTexts finds the words that the harness gives to lost results in what it
// wrote: they are its own and not kept here.
func recordedTexts(t *testing.T, head string) []string {
	t.Helper()
	texts := map[string]string{}
	for _, file := range []string{"crash-after-tool-call/repaired.jsonl", "resume-killed-in-tool/events.jsonl"} {
		for line := range bytes.Lines(read(t, filepath.Join(head, filepath.FromSlash(file)))) {
			data := jsjson.Get(bytes.TrimSpace(line), "data")
			code, _ := jsjson.Str(jsjson.Get(jsjson.Get(data, "error"), "code"))
			block := jsjson.Index(jsjson.Get(jsjson.Get(data, "message"), "content"), 0)
			texts[code], _ = jsjson.Str(jsjson.Get(jsjson.Index(jsjson.Get(block, "content"), 0), "text"))
		}
	}
	if texts["TOOL_OUTCOME_UNKNOWN"] == "" || texts["TOOL_NOT_STARTED"] == "" {
		t.Fatalf("no recorded closers: %v", texts)
	}
	return []string{"--recovery-text-started", texts["TOOL_OUTCOME_UNKNOWN"], "--recovery-text-not-started", texts["TOOL_NOT_STARTED"]}
}

// Every log that a crash left is repaired into the events that the harness made
// of it, in every form, and verifies without error; what the harness refused is
// not written.
func TestCorpusRepairs(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	head := filepath.Join(dir, "head")
	texts := recordedTexts(t, head)
	folders, err := filepath.Glob(filepath.Join(head, "crash-*"))
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, folder := range folders {
		name := filepath.Base(folder)
		logs, _ := filepath.Glob(filepath.Join(folder, "damaged.*"))
		if len(logs) == 0 {
			continue // a sweep
		}
		before := tree(t, folder)
		repaired, err := os.ReadFile(filepath.Join(folder, "repaired.jsonl"))
		refused := err != nil
		for _, form := range forms {
			out := filepath.Join(scratch(t), "out")
			code, _, errs := execute(slices.Concat([]string{"export", "--to", form, "-o", out, "--repair"}, texts, logs)...)
			if refused {
				n["refused"]++
				if code == 0 || len(tree(t, filepath.Dir(out))) > 0 {
					t.Errorf("%s: the harness refuses it, here: code %d, files %v", name, code, tree(t, filepath.Dir(out)))
				}
				continue
			}
			if code != 0 {
				t.Errorf("%s: code %d: %s", name, code, errs)
				continue
			}
			n["repaired"]++
			if got, want := events(t, out), ordered(t, repaired); !bytes.Equal(got, want) {
				t.Errorf("%s: repaired as %s:\n%s\nwant\n%s", name, form, got, want)
			}
			if form == "plain" {
				// Here even the bytes are those of the harness.
				if _, got, _ := bytes.Cut(read(t, out), []byte("\n")); !bytes.Equal(got, repaired) && !strings.HasSuffix(logs[0], ".sqlite") {
					t.Errorf("%s: the lines are not those of the harness", name)
				}
			}
			if _, res := verdict(t, out); res.Errors > 0 {
				t.Errorf("%s: repaired as %s it is %s: %v", name, form, res.Verdict, findings(res))
			}
		}
		sameTree(t, folder, before)
	}
	t.Logf("%v", n)
	if n["repaired"] < 100 || n["refused"] < 20 {
		t.Errorf("too few cases: %v", n)
	}
}

// A log of June or July is closed with the events that its own builds added.
func TestCorpusRepairsOld(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	logs, err := filepath.Glob(filepath.Join(dir, "july", "*-crash-repair", "crashed.jsonl"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no logs: %v", err)
	}
	newest := 0
	for _, log := range logs {
		name := filepath.Base(filepath.Dir(log))
		// What the harness of the time wrote behind the cut.
		whole := events(t, filepath.Join(filepath.Dir(log), "session.jsonl"))
		text := ""
		for line := range bytes.Lines(whole) {
			data := jsjson.Get(bytes.TrimSpace(line), "data")
			if code, _ := jsjson.Str(jsjson.Get(jsjson.Get(data, "error"), "code")); code == "interrupted" {
				text, _ = jsjson.Str(jsjson.Get(jsjson.Index(jsjson.Get(data, "content"), 0), "text"))
			}
		}
		if text == "" {
			t.Fatalf("%s: no recorded closer", name)
		}
		out := export(t, "plain", log, "--repair", "--recovery-text", text)
		got := events(t, out)
		if code, _, _ := execute("events", "--as-loaded", log); code != 1 {
			t.Errorf("%s: a torn log, code %d", name, code)
		}
		if _, _, errs := execute("events", "--as-loaded", log); !strings.Contains(errs, "refuses the log") {
			// The newest harness would go on with it, and add what it adds today.
			newest++
			if !bytes.Contains(got, []byte(`"data":{"turn":2,"step":1,"message":{"id":"interrupted-tool-result-`)) {
				t.Errorf("%s: repaired it is\n%s", name, got)
			}
		} else if !bytes.HasPrefix(whole, got) {
			t.Errorf("%s: repaired it is\n%s\nthe harness went on from\n%s", name, got, whole)
		}
		if _, res := verdict(t, out); res.Errors > 0 {
			t.Errorf("%s: repaired it is %s: %v", name, res.Verdict, findings(res))
		}
	}
	t.Logf("%d logs, %d of them loaded by the newest harness", len(logs), newest)
}

// Cuts of the sweeps, a sample: what is written holds the events and closers that
// were recorded.
func TestCorpusRepairSweeps(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	head := filepath.Join(dir, "head")
	texts := recordedTexts(t, head)
	n := map[string]int{}
	for _, sweep := range []string{"plain", "packed", "zstd", "zstd-multiblock"} {
		folder := filepath.Join(head, "crash-sweep-"+sweep)
		var base struct{ Base string }
		if err := json.Unmarshal(read(t, filepath.Join(folder, "base.json")), &base); err != nil {
			t.Fatal(err)
		}
		whole := read(t, filepath.Join(head, filepath.FromSlash(base.Base)))
		work := scratch(t)
		log := filepath.Join(work, filepath.Base(base.Base))
		i := 0
		for line := range bytes.Lines(read(t, filepath.Join(folder, "cases.jsonl"))) {
			if i++; i%41 != 0 {
				continue
			}
			var c struct {
				Cut    int
				OK     bool
				SHA256 string
			}
			if err := json.Unmarshal(line, &c); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(log, whole[:c.Cut], 0o600); err != nil {
				t.Fatal(err)
			}
			out := filepath.Join(work, "out")
			code, _, errs := execute(slices.Concat([]string{"export", "--to", "plain", "-o", out, "--repair"}, texts, []string{log})...)
			n[sweep]++
			if !c.OK {
				if code == 0 {
					t.Errorf("%s: cut %d: the harness refuses it, and here it is written", sweep, c.Cut)
				}
			} else if code != 0 {
				t.Errorf("%s: cut %d: code %d: %s", sweep, c.Cut, code, errs)
			} else {
				_, lines, _ := bytes.Cut(read(t, out), []byte("\n"))
				if sum := sha256.Sum256(lines); c.SHA256 != strings.ToLower(hexOf(sum[:])) {
					t.Errorf("%s: cut %d: other lines than the harness makes of it", sweep, c.Cut)
				}
				n["written"]++
				os.Remove(out)
			}
			if names := tree(t, work); len(names) != 1 {
				t.Errorf("%s: cut %d: files are left over: %v", sweep, c.Cut, names)
			}
		}
	}
	t.Logf("%v", n)
}

func hexOf(b []byte) string {
	const digits = "0123456789abcdef"
	var s strings.Builder
	for _, c := range b {
		s.WriteByte(digits[c>>4])
		s.WriteByte(digits[c&15])
	}
	return s.String()
}

const torn = `{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"/w","delegationDepth":0}
{"type":"turn/start","seq":0,"time":10,"data":{"turn":1}}
{"type":"step/sta`

// An interrupted run leaves nothing behind, even while it waits for its input.
func TestExportInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	in, feed := io.Pipe()
	out := filepath.Join(dir, "out.jsonl")
	done := make(chan int)
	go func() {
		var o, e bytes.Buffer
		done <- cli.Execute(ctx, replay.Program(), []string{"dsh-replay", "export", "--to", "plain", "-o", out, "-"}, in, &o, &e)
	}()
	go func() {
		header, rest, _ := strings.Cut(torn, "\n")
		io.WriteString(feed, header+"\n")
		for seq := range 5000 { // more than is read ahead
			first, _, _ := strings.Cut(rest, "\n")
			io.WriteString(feed, strings.Replace(first, `"seq":0`, fmt.Sprintf(`"seq":%d`, seq), 1)+"\n")
		}
		// And no end.
	}()
	waitFor(t, "the file that is written aside", func() bool { return len(tree(t, dir)) == 1 })
	cancel()
	waitFor(t, "its removal", func() bool { return len(tree(t, dir)) == 0 })
	feed.Close()
	if code := <-done; code != 130 {
		t.Errorf("code %d, want 130", code)
	}
	if left := tree(t, dir); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%s does not come", what)
}

// What a form cannot hold is an error that says so, and nothing is written.
func TestExportUnrepresentable(t *testing.T) {
	for _, c := range []struct{ name, log, form, want string }{
		{"extra key", `{"type":"session","version":0,"id":"s","createdAt":1,"delegationDepth":0}` + "\n" + `{"type":"turn/start","seq":0,"time":1,"data":{"turn":1},"x":1}` + "\n",
			"sqlite", "seq 0: a member outside the envelope"},
		{"header", `{"type":"session","version":1,"id":"s","createdAt":1}` + "\n", "sqlite", "header record: version 1"},
		{"surrogate", `{"type":"session","version":0,"id":"\ud800","createdAt":1,"delegationDepth":0}` + "\n", "sqlite", "header record: id holds half of a surrogate pair"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			log := filepath.Join(dir, "session.jsonl")
			if err := os.WriteFile(log, []byte(c.log), 0o600); err != nil {
				t.Fatal(err)
			}
			before := tree(t, dir)
			code, out, errs := execute("export", "--to", c.form, "-o", filepath.Join(dir, "out"), log)
			if code != 1 || out != "" || !strings.Contains(errs, "cannot be written as "+c.form+": "+c.want) {
				t.Errorf("code %d, output %q, errors %s", code, out, errs)
			}
			sameTree(t, dir, before)
			for _, form := range []string{"plain", "packed", "zstd"} {
				if got := events(t, export(t, form, log)); !bytes.Equal(got, events(t, log)) {
					t.Errorf("as %s it holds other events", form)
				}
			}
		})
	}
}
