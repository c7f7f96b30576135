package logfmt

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

var update = flag.Bool("update", false, "write the golden files anew")

// readAll reads a log to its end and returns its events, one a line, as far as
// the harness keeps them.
func readAll(tb testing.TB, l *Log) (kept []byte) {
	tb.Helper()
	for e, d := range l.Events() {
		if d == nil && !e.AfterDamage {
			kept = append(append(kept, e.JSON...), '\n')
		}
	}
	return kept
}

func openFile(tb testing.TB, path string) *Log {
	tb.Helper()
	l, err := OpenFile(path, Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	return l
}

func readFile(tb testing.TB, path string) []byte {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// summary is what reading found, in a stable text.
func summary(l *Log, events int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d of %d events kept, %d bytes", l.Class(), l.Kept(), events, l.Committed())
	if l.Header == nil {
		b.WriteString(", no header")
	} else if l.Header.Fault != 0 {
		fmt.Fprintf(&b, ", header %#x", uint16(l.Header.Fault))
	}
	b.WriteByte('\n')
	for _, d := range l.Defects() {
		fmt.Fprintf(&b, "  line %d offset %d+%d seq %d %s (%s): %s\n", d.Pos.Line, d.Pos.Offset, d.At, d.Seq, d.Rule, d.Class, d.Message)
	}
	return b.String()
}

// TestLogs reads the logs that ship with the package, one event a line and
// packed, and wants the events byte for byte.
func TestLogs(t *testing.T) {
	cases, err := filepath.Glob("testdata/logs/*")
	if err != nil || len(cases) != 3 {
		t.Fatalf("%d cases, want 3: %v", len(cases), err)
	}
	for _, dir := range cases {
		want := readFile(t, filepath.Join(dir, "events.jsonl"))
		for _, name := range []string{"session.jsonl", "session.packed.jsonl"} {
			path := filepath.Join(dir, name)
			t.Run(filepath.ToSlash(path), func(t *testing.T) {
				l := openFile(t, path)
				if diff := cmp.Diff(string(want), string(readAll(t, l))); diff != "" {
					t.Error(diff)
				}
				st, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				if l.Class() != Intact || l.Committed() != st.Size() || l.Defects() != nil {
					t.Errorf("class %s, committed %d of %d, defects %v", l.Class(), l.Committed(), st.Size(), l.Defects())
				}
				// A file may be read again.
				if !bytes.Equal(want, readAll(t, l)) {
					t.Error("another reading yields other events")
				}
			})
		}
	}
}

// TestDamaged compares what is found in damaged logs with testdata/damaged.golden.
func TestDamaged(t *testing.T) {
	files, err := filepath.Glob("testdata/damaged/*.jsonl")
	if err != nil || len(files) != 44 {
		t.Fatalf("%d cases, want 44: %v", len(files), err)
	}
	var got bytes.Buffer
	for _, f := range files {
		l := openFile(t, f)
		n := 0
		for _, d := range l.Events() {
			if d == nil {
				n++
			}
		}
		fmt.Fprintf(&got, "%s: %s", strings.TrimSuffix(filepath.Base(f), ".jsonl"), summary(l, n))
	}
	golden(t, "testdata/damaged.golden", got.Bytes())
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(readFile(t, path)), string(got)); diff != "" {
		t.Errorf("%s (- want, + got):\n%s", path, diff)
	}
}

// TestCutAnywhere cuts a log after every byte and wants the events the harness
// keeps of it: testdata/sweep.json holds, for each cut from which on that number
// changes, the number; -1 stands for a refused log.
func TestCutAnywhere(t *testing.T) {
	var sweep map[string]struct {
		Cases int
		Steps [][2]int64
	}
	if err := json.Unmarshal(readFile(t, "testdata/sweep.json"), &sweep); err != nil {
		t.Fatal(err)
	}
	for kind, name := range map[string]string{"plain": "session.jsonl", "packed": "session.packed.jsonl"} {
		t.Run(kind, func(t *testing.T) {
			want, step := int64(-2), 0
			text := readFile(t, "testdata/logs/plain-turn/"+name)
			events := readFile(t, "testdata/logs/plain-turn/events.jsonl")
			if len(text)+1 != sweep[kind].Cases {
				t.Fatalf("%d cuts, want %d", len(text)+1, sweep[kind].Cases)
			}
			for cut := range sweep[kind].Cases {
				if step < len(sweep[kind].Steps) && sweep[kind].Steps[step][0] == int64(cut) {
					want = sweep[kind].Steps[step][1]
					step++
				}
				checkCut(t, text[:cut], events, want)
			}
		})
	}
}

// checkCut reads the start of a sound log of which the harness keeps so many
// events; -1 says that it refuses it.
func checkCut(t *testing.T, text, events []byte, want int64) {
	t.Helper()
	l, err := NewReader(bytes.NewReader(text), "cut", Options{})
	if err != nil {
		t.Fatal(err)
	}
	kept := readAll(t, l)
	if want < 0 {
		if l.Class() != Corrupt || l.Kept() != 0 || l.Defects()[0].Rule != RuleHeader {
			t.Errorf("cut %d: %s, kept %d, %v; want a corrupt header", len(text), l.Class(), l.Kept(), l.Defects())
		}
		return
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	class, defects := Torn, 1
	if whole == len(text) {
		class, defects = Intact, 0
	}
	if l.Class() != class || len(l.Defects()) != defects || l.Kept() != want || l.Committed() != int64(whole) {
		t.Errorf("cut %d: %s, kept %d to byte %d, %v; want %s, %d to %d", len(text), l.Class(), l.Kept(), l.Committed(), l.Defects(), class, want, whole)
	}
	if int64(bytes.Count(kept, []byte("\n"))) != want || !bytes.HasPrefix(events, kept) {
		t.Errorf("cut %d: kept other events than the log holds", len(text))
	}
	if defects == 1 {
		if d := l.Defects()[0]; d.Rule != RuleTorn || d.Seq != want || d.Pos.Offset != int64(whole) {
			t.Errorf("cut %d: defect %v", len(text), d)
		}
	}
}

// TestCorpusEvents reads every plain log that comes with its events.
func TestCorpusEvents(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	files, _ := filepath.Glob(filepath.Join(dir, "head", "*", "session*.jsonl"))
	n, dirs := 0, map[string]bool{}
	for _, f := range files {
		name := strings.Replace(filepath.Base(f), "session", "events", 1)
		name = strings.Replace(name, ".packed", "", 1)
		want, err := os.ReadFile(filepath.Join(filepath.Dir(f), name))
		if err != nil {
			continue // a case that has no events file
		}
		l := openFile(t, f)
		if got := readAll(t, l); !bytes.Equal(want, got) {
			t.Errorf("%s: %s", f, cmp.Diff(string(want), string(got)))
		}
		if l.Class() != Intact {
			t.Errorf("%s: %s: %v", f, l.Class(), l.Defects())
		}
		n++
		dirs[filepath.Dir(f)] = true
	}
	t.Logf("%d logs of %d cases equal their events.jsonl", n, len(dirs))
	if n < 96 {
		t.Errorf("only %d logs", n)
	}

	// The others hold events that are their own canonical form.
	n = 0
	files, _ = filepath.Glob(filepath.Join(dir, "july", "*", "session.jsonl"))
	for _, f := range files {
		if strings.Contains(f, "-invalid-") {
			continue
		}
		l := openFile(t, f)
		_, body, _ := bytes.Cut(readFile(t, f), []byte("\n"))
		if got := readAll(t, l); !bytes.Equal(body, got) || l.Class() != Intact {
			t.Errorf("%s: %s: %v", f, l.Class(), cmp.Diff(string(body), string(got)))
		}
		n++
	}
	t.Logf("%d July logs read back as they are", n)
	if n < 96 {
		t.Errorf("only %d logs", n)
	}
}

// TestCorpusCuts is TestCutAnywhere with the recorded sweeps and crashes
// themselves.
func TestCorpusCuts(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	for _, sweep := range []string{"crash-sweep-plain", "crash-sweep-packed"} {
		var base struct{ Base string }
		if err := json.Unmarshal(readFile(t, filepath.Join(dir, "head", sweep, "base.json")), &base); err != nil {
			t.Fatal(err)
		}
		text := readFile(t, filepath.Join(dir, "head", base.Base))
		events := readFile(t, filepath.Join(dir, "head", filepath.Dir(base.Base), "events.jsonl"))
		n := 0
		for line := range bytes.Lines(readFile(t, filepath.Join(dir, "head", sweep, "cases.jsonl"))) {
			var c struct {
				Cut       int
				OK        bool
				Preserved int64
			}
			if err := json.Unmarshal(line, &c); err != nil {
				t.Fatal(err)
			}
			if !c.OK {
				c.Preserved = -1
			}
			checkCut(t, text[:c.Cut], events, c.Preserved)
			n++
		}
		t.Logf("%s: %d cuts", sweep, n)
	}

	files, _ := filepath.Glob(filepath.Join(dir, "head", "crash-*", "damaged.jsonl"))
	n := 0
	for _, f := range files {
		var v struct {
			PreservedEvents *int64
			FileBytesAfter  int64
			Closers         *int
		}
		if err := json.Unmarshal(readFile(t, filepath.Join(filepath.Dir(f), "verdict.json")), &v); err != nil {
			t.Fatal(err)
		}
		l := openFile(t, f)
		kept := readAll(t, l)
		n++
		if v.PreservedEvents == nil {
			if l.Class() != Corrupt {
				t.Errorf("%s: %s, the harness refuses it", f, l.Class())
			}
			continue
		}
		if l.Class() == Corrupt || l.Kept() != *v.PreservedEvents {
			t.Errorf("%s: %s, kept %d events, the harness %d", f, l.Class(), l.Kept(), *v.PreservedEvents)
		}
		// What the harness wrote when it went on begins with what it kept.
		repaired := readFile(t, filepath.Join(filepath.Dir(f), "repaired.jsonl"))
		if !bytes.HasPrefix(repaired, kept) {
			t.Errorf("%s: the kept events are not those of the repaired log", f)
		}
		file := readFile(t, filepath.Join(filepath.Dir(f), "repaired-file.jsonl"))
		if !bytes.HasPrefix(file, readFile(t, f)[:l.Committed()]) {
			t.Errorf("%s: the harness cut before byte %d", f, l.Committed())
		}
		if *v.Closers == 0 && int64(len(file)) != l.Committed() {
			t.Errorf("%s: committed %d bytes, the harness kept %d", f, l.Committed(), len(file))
		}
	}
	t.Logf("%d crashed logs", n)
	if n < 17 {
		t.Errorf("only %d crashed logs", n)
	}
}

// aboveRecords lists logs that the harness of their day refused for something
// else than damage of records: an era settles it with the events, or a rule about
// their meaning breaks. Header.Fault or Event.Type shows what.
var aboveRecords = map[string]string{
	"invalid-header-createdat-float":      "legal before 07-24, see HeaderCreatedAt",
	"invalid-header-no-depth":             "legal before 07-20, see HeaderNoDepth",
	"b2-invalid-18-format-version-1":      "a June header, see HeaderJune",
	"invalid-version-1":                   "a later generation, under the name of this one",
	"c-invalid-01-legacy-header-delta":    "a type that a later era dropped",
	"c-invalid-02-legacy-fallback-reason": "a reason that a later era dropped",
}

// TestCorpusVerdicts compares every mutated plain log with the verdict of the
// harness's own reader.
func TestCorpusVerdicts(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	seen := map[string]bool{}
	count := map[Class]int{}

	files, _ := filepath.Glob(filepath.Join(dir, "head", "*", "session.jsonl"))
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(f), "verdict.json"))
		if err != nil {
			continue
		}
		var v struct {
			ScanLog *struct {
				OK             bool
				Events         int64
				CommittedBytes int64
			}
		}
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		if v.ScanLog == nil {
			continue
		}
		name := filepath.Base(filepath.Dir(f))
		l := openFile(t, f)
		readAll(t, l)
		count[l.Class()]++
		if !v.ScanLog.OK {
			if _, above := aboveRecords[name]; above {
				seen[name] = true
				if l.Class() != Intact {
					t.Errorf("%s: %s, listed as sound in its records", name, l.Class())
				}
			} else if l.Class() != Corrupt && l.Class() != Unsupported {
				t.Errorf("%s: %s, the harness refuses it", name, l.Class())
			}
			continue
		}
		class := Intact
		if size := int64(len(readFile(t, f))); size != v.ScanLog.CommittedBytes {
			class = Torn
		}
		if l.Class() != class || l.Kept() != v.ScanLog.Events || l.Committed() != v.ScanLog.CommittedBytes {
			t.Errorf("%s: %s, kept %d events to byte %d, the harness %s, %d to %d: %v", name, l.Class(), l.Kept(), l.Committed(),
				class, v.ScanLog.Events, v.ScanLog.CommittedBytes, l.Defects())
		}
	}
	t.Logf("head: %v", count)

	count = map[Class]int{}
	loaded := regexp.MustCompile(`^ok \((\d+) events(; file REPAIRED on load: (\d+) -> (\d+) bytes)?\)$`)
	files, _ = filepath.Glob(filepath.Join(dir, "july", "*-invalid-*", "session.jsonl"))
	for _, f := range files {
		var v struct{ Stages map[string]string }
		if err := json.Unmarshal(readFile(t, filepath.Join(filepath.Dir(f), "verdict.json")), &v); err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(filepath.Dir(f))
		l := openFile(t, f)
		readAll(t, l)
		count[l.Class()]++
		load := v.Stages["load"]
		if load == "reject" {
			if _, above := aboveRecords[name]; above {
				seen[name] = true
				if l.Class() != Intact {
					t.Errorf("%s: %s, listed as sound in its records", name, l.Class())
				}
			} else if l.Class() != Corrupt {
				t.Errorf("%s: %s, the harness refuses it", name, l.Class())
			}
			continue
		}
		m := loaded.FindStringSubmatch(load)
		if m == nil {
			t.Errorf("%s: verdict %q", name, load)
			continue
		}
		n, _ := strconv.ParseInt(m[1], 10, 64)
		// With an open turn the harness adds closers, at least turn/end.
		if l.Kept() > n || l.Class() == Corrupt || l.Class() == Unsupported {
			t.Errorf("%s: %s, kept %d events, the harness %d", name, l.Class(), l.Kept(), n)
		}
		if after := int64(len(readFile(t, f))); m[2] == "" && (l.Class() != Intact || l.Kept() != n || l.Committed() != after) {
			t.Errorf("%s: %s, kept %d events to byte %d, the harness all %d", name, l.Class(), l.Kept(), l.Committed(), n)
		}
	}
	t.Logf("july: %v", count)
	for name := range aboveRecords {
		if !seen[name] {
			t.Errorf("%s: listed, but not met", name)
		}
	}
}

// TestCorpusRepack packs the events of every log as one batch, reads that back,
// and wants the same events: reading undoes writing.
func TestCorpusRepack(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	files, _ := filepath.Glob(filepath.Join(dir, "head", "*", "events*.jsonl"))
	n, rows := 0, 0
	for _, f := range files {
		events := readFile(t, f)
		if !slices.ContainsFunc(bytes.SplitAfter(events, []byte("\n")), func(l []byte) bool { return len(l) > 0 && !jsjson.Canonical(l[:len(l)-1]) }) {
			var p Packer
			packed := []byte(`{"type":"session","version":0,"id":"s","createdAt":0,"delegationDepth":0}` + "\n")
			for line := range bytes.Lines(events) {
				packed = p.Add(packed, bytes.TrimSuffix(line, []byte("\n")))
			}
			packed = p.Flush(packed)
			rows += bytes.Count(packed, []byte(`-chunks","seq0"`))
			l, err := NewReader(bytes.NewReader(packed), f, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if got := readAll(t, l); !bytes.Equal(events, got) {
				t.Errorf("%s: %s", f, cmp.Diff(string(events), string(got)))
			}
			n++
		}
	}
	t.Logf("%d logs, %d rows", n, rows)
	if n < 48 || rows < 42 {
		t.Errorf("only %d logs with %d rows", n, rows)
	}
}
