package invariants

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ncruces/go-sqlite3"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// placed are the findings of a log without their words.
func placed(res *Result) []string {
	var out []string
	for _, f := range res.Findings {
		out = append(out, fmt.Sprintf("%s %s line %d offset %d seq %d", f.Rule, f.Severity, f.Pos.Line, f.Offset(), f.Seq))
	}
	slices.Sort(out)
	return out
}

// cut is what must be found in the first n bytes of a sound log of whole lines,
// counted without any of the code under test.
func cut(text []byte, n int) (want []string, verdict Verdict) {
	header := bytes.IndexByte(text, '\n') + 1
	switch {
	case n == 0:
		return []string{"LOAD-REFUSED note line 1 offset 0 seq -1", "LOG-HEADER error line 1 offset 0 seq -1"}, Corrupt
	case n < header:
		return []string{"LOAD-REFUSED note line 1 offset 0 seq -1", fmt.Sprintf("LOG-HEADER error line 1 offset %d seq -1", n)}, Corrupt
	}
	whole := text[:bytes.LastIndexByte(text[:n], '\n')+1]
	line, at, next, begun, verdict := 1, header, 0, 0, OK
	openAt := ""
	for l := range bytes.Lines(whole[header:]) {
		line++
		seqs := 1
		if bytes.Contains(l, []byte(`"seq0":`)) {
			var row struct {
				Data struct{ Texts, Args []string }
			}
			if err := json.Unmarshal(l, &row); err != nil {
				panic(err)
			}
			seqs = max(len(row.Data.Texts), len(row.Data.Args))
		}
		next += seqs
		switch {
		case bytes.HasPrefix(l, []byte(`{"type":"turn/start"`)):
			begun++
		case bytes.HasPrefix(l, []byte(`{"type":"turn/end"`)):
			begun--
		}
		openAt = fmt.Sprintf("TAIL-OPEN note line %d offset %d seq %d", line, at, next-1)
		at += len(l)
	}
	if begun > 0 {
		want, verdict = append(want, openAt), Open
	}
	if n > len(whole) {
		want, verdict = append(want, fmt.Sprintf("LINE-TORN warning line %d offset %d seq %d", line+1, n, next)), Torn
	}
	slices.Sort(want)
	return want, verdict
}

// A sound log that ends early, wherever it does: the verdict and every finding with
// its line, offset and seq.
func TestCuts(t *testing.T) {
	every := 11
	if corpus.Race {
		every = 61
	}
	for _, name := range []string{"head-multi-step-tools/session.jsonl", "head-multi-step-tools/session.packed.jsonl"} {
		text := read(t, filepath.Join(corpus.Root(t), "goldens", "sound", filepath.FromSlash(name)))
		verdicts := map[Verdict]int{}
		for n := range len(text) + 1 {
			// Around the ends of lines is where mistakes are made.
			if n%every != 0 && (n < 2 || text[n-1] != '\n' && text[n-2] != '\n' && n < len(text) && text[n] != '\n') {
				continue
			}
			want, verdict := cut(text, n)
			res := judge(t, text[:n], Options{})
			verdicts[verdict]++
			if d := cmp.Diff(want, placed(res)); d != "" || res.Verdict != verdict {
				t.Errorf("%s, %d bytes: verdict %s, want %s; findings (-want +got):\n%s", name, n, res.Verdict, verdict, d)
			}
		}
		t.Logf("%s: %v", name, verdicts)
		for _, v := range []Verdict{OK, Open, Torn, Corrupt} {
			if verdicts[v] < 2 {
				t.Errorf("%s: %d cuts are %s, want at least 2", name, verdicts[v], v)
			}
		}
	}
}

// The same of the cuts for which it is known what the harness kept, in every
// container: a cut is found where the harness cuts, and nothing else is.
func TestCorpusCuts(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	every := 9
	if corpus.Race {
		every = 80
	}
	n := map[string]int{}
	sweeps, err := filepath.Glob(filepath.Join(dir, "head", "crash-sweep-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, sweep := range sweeps {
		var base struct{ Base, Kind, ID string }
		if err := json.Unmarshal(read(t, filepath.Join(sweep, "base.json")), &base); err != nil {
			t.Fatal(err)
		}
		text := read(t, filepath.Join(dir, "head", filepath.FromSlash(base.Base)))
		// What is found in the whole log is found before a cut.
		sound := judgeWith(t, filepath.Join(dir, "head", filepath.FromSlash(base.Base)), Options{})
		i := -1
		for line := range bytes.Lines(read(t, filepath.Join(sweep, "cases.jsonl"))) {
			if i++; i%every != 0 {
				continue
			}
			var c struct {
				Cut, DropLast     int
				OK                bool
				Preserved, Events int64
			}
			if err := json.Unmarshal(line, &c); err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf("%s: %s", filepath.Base(sweep), bytes.TrimSpace(line))
			path := filepath.Join(t.TempDir(), filepath.Base(base.Base))
			var rest int // bytes behind the last whole line or frame
			switch base.Kind {
			case "plain":
				text := text[:c.Cut]
				rest = len(text) - bytes.LastIndexByte(text, '\n') - 1
				write(t, path, text)
			case "zstd":
				rest = c.Cut - frameAt(text, c.Cut)
				write(t, path, text[:c.Cut])
			case "sqlite":
				write(t, path, text)
				dropLast(t, path, c.DropLast)
			}
			res := judgeWith(t, path, Options{})
			n[filepath.Base(sweep)]++
			if !c.OK {
				if f := res.Findings; res.Verdict != Corrupt || res.Errors != 1 || res.Events != 0 ||
					!slices.ContainsFunc(f, func(f *Finding) bool { return f.Severity == Error && f.Seq == -1 && f.Pos.Line <= 1 }) {
					t.Errorf("%s: want an error of the header only, got:\n%s", what, verdictLines(res))
				}
				continue
			}
			var want []string
			for _, f := range sound.Findings {
				if f.Seq < c.Preserved {
					want = append(want, fmt.Sprintf("%s %d", f.Rule, f.Seq))
				}
			}
			verdict := sound.Verdict
			if len(want) == 0 {
				verdict = OK
			}
			if c.Events > c.Preserved {
				want, verdict = append(want, fmt.Sprintf("TAIL-OPEN %d", c.Preserved-1)), Open
			}
			if rest > 0 {
				rule := map[string]string{"plain": "LINE-TORN", "zstd": "FRAME-TORN"}[base.Kind]
				want, verdict = append(want, fmt.Sprintf("%s %d", rule, c.Preserved)), Torn
			}
			var got []string
			for _, f := range res.Findings {
				got = append(got, fmt.Sprintf("%s %d", f.Rule, f.Seq))
			}
			slices.Sort(want)
			slices.Sort(got)
			if d := cmp.Diff(want, got); d != "" || res.Verdict != verdict || res.Events != c.Preserved {
				t.Errorf("%s: verdict %s, want %s; %d events; findings (-want +got):\n%s", what, res.Verdict, verdict, res.Events, d)
			}
		}
	}
	t.Logf("cuts: %v", n)
	if len(n) != 6 {
		t.Errorf("%d kinds of cuts, want 6", len(n))
	}
}

// frameAt is where the last frame begins that a cut of a file is in or behind, found
// by magic numbers, which no frame of the corpus has in it.
func frameAt(file []byte, cut int) int {
	if cut == len(file) {
		return cut
	}
	at := 0
	for i := range cut + 1 {
		if bytes.HasPrefix(file[i:], []byte("\x28\xb5\x2f\xfd")) {
			at = i
		}
	}
	return at
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// dropLast takes the last rows away from a database of one session.
func dropLast(t *testing.T, path string, n int) {
	t.Helper()
	db, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Exec(fmt.Sprintf(`DELETE FROM events WHERE seq IN (SELECT seq FROM events ORDER BY seq DESC LIMIT %d)`, n)); err != nil {
		t.Fatal(err)
	}
}

// What is wrong with the events of a log is found in every container alike.
func TestDamagedContainers(t *testing.T) {
	patterns := []string{filepath.Join(corpus.Root(t), "goldens", "damaged", "*", "session.jsonl")}
	if dir, ok := corpus.Dir(t); ok && !corpus.Race {
		patterns = append(patterns, filepath.Join(dir, "head", "invalid-*", "session.jsonl"), filepath.Join(dir, "july", "*-invalid-*", "session.jsonl"))
	}
	n := map[string]int{}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			testContainers(t, file, n)
		}
	}
	t.Logf("%v", n)
	for kind, least := range map[string]int{"packed": 50, "zstd": 50, "sqlite": 30} {
		if n[kind] < least {
			t.Errorf("%d logs were compared in %s, want at least %d", n[kind], kind, least)
		}
	}
}

func testContainers(t *testing.T, file string, n map[string]int) {
	t.Helper()
	name := filepath.Join(filepath.Base(filepath.Dir(filepath.Dir(file))), filepath.Base(filepath.Dir(file)))
	log, err := logfmt.OpenFile(file, logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var events []*logfmt.Event
	for e, d := range log.Events() {
		if d != nil {
			n["damaged bytes, which no other container can have"]++
			return
		}
		events = append(events, e.Clone())
	}
	plain := judgeWith(t, file, Options{})
	if slices.ContainsFunc(plain.Findings, func(f *Finding) bool {
		return f.Rule == "LINE-NUMBER" || f.Rule == "LOG-ENV" && strings.Contains(f.Message, "a number beyond what a double can hold")
	}) {
		n["a number that is written as another"]++
		return
	}
	// What the text of a line is like is a fact of that line alone; whether the newest
	// harness loads a log depends on the container; and a database has a delegation
	// depth always.
	about := func(res *Result, kind string) []string {
		var out []string
		for _, f := range res.Findings {
			if kind == "sqlite" && f.Rule == "LOG-HEADER" && f.Path == "delegationDepth" {
				continue
			}
			if !strings.HasPrefix(f.Rule, "LINE-") && f.Rule != ruleRefused && !(f.Rule == "LOG-ENV" && strings.Contains(f.Message, "the line holds")) {
				out = append(out, fmt.Sprintf("%s %s seq %d %s: %s", f.Rule, f.Severity, f.Seq, f.Path, f.Message))
			}
		}
		slices.Sort(out)
		return out
	}
	compare := func(kind string, other *logfmt.Log) {
		t.Helper()
		res, err := Check(context.Background(), other, Options{})
		other.Close()
		if err != nil {
			t.Fatal(err)
		}
		n[kind]++
		if d := cmp.Diff(about(plain, kind), about(res, kind)); d != "" {
			t.Errorf("%s in %s (-plain +%s):\n%s", name, kind, kind, d)
		}
	}
	for kind, form := range map[string]logfmt.Form{"packed": logfmt.FormPacked, "zstd": logfmt.FormZstd} {
		var b bytes.Buffer
		w := logfmt.NewWriter(&b, form)
		err := w.Begin(log.Header.Raw)
		for _, e := range events {
			if err == nil {
				err = w.Add(e)
			}
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			n[kind+" does not hold it"]++
			continue
		}
		other, err := logfmt.NewReader(&b, "session.jsonl"+map[string]string{"zstd": ".zstd"}[kind], logfmt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		compare(kind, other)
	}
	path := filepath.Join(t.TempDir(), "x.sqlite")
	w, err := logfmt.CreateDatabase(path)
	if err != nil {
		t.Fatal(err)
	}
	err = w.Begin(log.Header)
	for _, e := range events {
		if err == nil {
			err = w.Add(e)
		}
	}
	if err != nil {
		n["sqlite does not hold it"]++
		w.Abort()
		return
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	other, err := logfmt.OpenFile(path, logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	compare("sqlite", other)
}
