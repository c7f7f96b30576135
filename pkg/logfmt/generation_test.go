package logfmt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
)

// migration is one row of migrated/RESULTS.jsonl.
type migration struct {
	Case   string
	OK     map[string]struct{ Events, Cut int64 }
	Errors map[string]any
}

func migrations(t *testing.T, dir string) (out []migration) {
	t.Helper()
	for line := range bytes.Lines(readFile(t, filepath.Join(dir, "migrated", "RESULTS.jsonl"))) {
		var m migration
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

// TestCorpusGenerations reads every log that the released converters wrote: all
// are whole, with as many events and the cut where the converter saw them.
func TestCorpusGenerations(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	count := map[string]int{}
	for _, m := range migrations(t, dir) {
		for version, want := range m.OK {
			file := filepath.Join(dir, "migrated", filepath.FromSlash(m.Case), "session."+version+".jsonl")
			l := openFile(t, file)
			readAll(t, l)
			if l.Class() != Intact || l.Kept() != want.Events || l.Header.Seed() != want.Cut {
				t.Errorf("%s: %s, %d events, cut at %d, want %d and %d: %v", file, l.Class(), l.Kept(), l.Header.Seed(), want.Events, want.Cut, l.Defects())
			}
			if got := fmt.Sprintf("v%d", l.Header.Generation); got != version {
				t.Errorf("%s: generation %s", file, got)
			}
			count[version]++
		}
	}
	t.Logf("%v", count)
	if diff := cmp.Diff(map[string]int{"v1": 189, "v2": 163, "v3": 162}, count); diff != "" {
		t.Errorf("logs (-want +got):\n%s", diff)
	}
}

// TestCorpusExamples reads the example log of each generation, and those of the
// newest one in frames as a live session and as a migration writes them.
func TestCorpusExamples(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	for name, want := range map[string]string{
		"v1.jsonl":               "jsonl intact v1 17 events",
		"v2.jsonl":               "jsonl intact v2 18 events",
		"v3.jsonl":               "jsonl intact v3 18 events",
		"v4.jsonl":               "jsonl intact v4 20 events",
		"v4.live.jsonl.zstd":     "zstd intact v4 20 events",
		"v4.migrated.jsonl.zstd": "zstd intact v4 20 events",
	} {
		l := openFile(t, filepath.Join(dir, "migrated", "examples", name))
		readAll(t, l)
		got := fmt.Sprintf("%s %s v%d %d events", l.Container, l.Class(), l.Header.Generation, l.Kept())
		if got != want {
			t.Errorf("%s: %s, want %s: %v", name, got, want, l.Defects())
		}
	}
}

const (
	head2 = `{"type":"session","version":2,"id":"s","createdAt":1,"cwd":"/w","isSeeded":false,"delegationDepth":0}`
	head4 = `{"type":"session","version":4,"id":"s","createdAt":1,"isSeeded":true,"delegationDepth":0}`
)

func TestGenerationHeaders(t *testing.T) {
	const v2 = `{"type":"session","version":2,"id":"s","createdAt":1,`
	for _, c := range []struct{ header, want string }{
		{head2, "intact v2 seeded false"},
		{head4, "intact v4 seeded true"},
		{`{"isSeeded":false,"delegationDepth":0,"createdAt":1,"id":"","version":3,"type":"session"}`, "intact v3 seeded false"},
		{`{"type":"session","version":1,"id":"s","createdAt":1,"seedLength":2,"delegationDepth":0}`, "intact v1"},
		{`{"type":"session","version":1,"id":"s","createdAt":1,"delegationDepth":0,"isSeeded":true}`, "intact v1 unknown [isSeeded]"},
		{`{"type":"session","version":0,"id":"s","createdAt":1,"delegationDepth":0,"isSeeded":true}`, "intact v0 unknown [isSeeded]"},
		{v2 + `"isSeeded":false,"delegationDepth":0,"seedLength":3}`, "intact v2 unknown [seedLength] seeded false"},
		{v2 + `"isSeeded":false,"delegationDepth":0,"approvalPolicy":"ask","teamName":"x"}`, "intact v2 unknown [approvalPolicy teamName] seeded false"},
		{v2 + `"delegationDepth":0}`, "corrupt header record: isSeeded is missing, which every header of generation 2 has"},
		{v2 + `"isSeeded":false}`, "corrupt header record: delegationDepth is missing, which every header of generation 2 has"},
		{v2 + `"isSeeded":1,"delegationDepth":0}`, "corrupt header record: expected true or false as isSeeded, got 1"},
		{v2 + `"isSeeded":true,"delegationDepth":-0}`, "corrupt header record: delegationDepth must be a non-negative safe integer, got -0"},
		{`{"type":"session","version":3,"id":"s","createdAt":1.5,"isSeeded":true,"delegationDepth":0}`, "corrupt header record: createdAt must be a non-negative safe integer, got 1.5"},
		{`{"type":"session","version":3,"createdAt":1,"isSeeded":true,"delegationDepth":0}`, "corrupt header record: id is missing, which every header of generation 3 has"},
		{`{"type":"session","version":5,"id":"s","createdAt":1,"isSeeded":false,"delegationDepth":0}`, "unsupported v5 seeded false format version 5: this build reads generations 0 to 4"},
		{`{"type":"session","version":12,"shape":{}}`, "unsupported v12 unknown [shape] format version 12: this build reads generations 0 to 4"},
	} {
		l, _, _ := read(t, c.header+"\n")
		got := string(l.Class())
		if h := l.Header; h != nil {
			got += fmt.Sprintf(" v%d", h.Generation)
			if h.Unknown != nil {
				got += fmt.Sprintf(" unknown %v", h.Unknown)
			}
			if h.Seeded != nil {
				got += fmt.Sprintf(" seeded %v", *h.Seeded)
			}
		}
		for _, d := range l.Defects() {
			got += " " + d.Message
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.header, got, c.want)
		}
	}
}

func TestForeignGeneration(t *testing.T) {
	for version, want := range map[string]string{
		"5":    "no release up to 0.2.1-alpha.2 writes it: a fork of the harness did, or a newer release; forks that have a version 5 differ from one another",
		"6":    "the log was written by a newer harness, or by a fork of it",
		"-1":   "no harness wrote this number",
		"0.5":  "the log was written by a newer harness, or by a fork of it",
		"1e99": "the log was written by a newer harness, or by a fork of it",
	} {
		l, _, _ := read(t, `{"type":"session","version":`+version+"}\n")
		if ds := l.Defects(); len(ds) != 1 || ds[0].Rule != RuleFormat || ds[0].Hint != want {
			t.Errorf("%s: %+v, want the hint %q", version, ds, want)
		}
	}
}

func TestGenerationOfName(t *testing.T) {
	for name, want := range map[string]int64{
		"session.jsonl": 0, "session.jsonl.zstd": 0, "session.v1.jsonl": 1, "session.v4.jsonl.zstd": 4, "session.v12.jsonl": 12,
		"session.v0.jsonl": -1, "session.v01.jsonl": -1, "session.V4.jsonl": -1, "session.v4.jsonl.gz": -1, "session.v.jsonl": -1,
		"session.child1.jsonl": -1, "v4.jsonl": -1, "session": -1, "session.v99999999999999999999.jsonl": -1, "session.v+4.jsonl": -1,
	} {
		n, ok := GenerationOfName(name)
		if ok != (want >= 0) || ok && n != want {
			t.Errorf("%s: %d, %v, want %d", name, n, ok, want)
		}
	}
	for _, g := range generations {
		if n, ok := GenerationOfName(g.FileName()); !ok || n != g.Version {
			t.Errorf("%s: %d, %v", g.FileName(), n, ok)
		}
	}
}

// TestClosedEnvelope: from generation 2 a record that is not exactly an event is
// damage, where generation 0 leaves it to the rules.
func TestClosedEnvelope(t *testing.T) {
	ok := `{"type":"plan/mode","seq":0,"time":1,"data":{}}`
	end := `{"type":"turn/end","seq":2,"time":3,"data":{}}`
	for _, c := range []struct{ line, want string }{
		{`{"type":"plan/mode","seq":1,"time":-2,"data":{}}`, ""},
		{`{"data":{},"ignorable":true,"time":2,"seq":1,"type":"x","surfaceOp":1,"sourceEventSeqs":2}`, ""},
		{`{"type":"plan/mode","seq":1,"time":2,"data":{},"extra":1}`, "LOG-ENV the event has a key outside the envelope; expected type, seq, time, data, sourceEventSeqs, surfaceOp, ignorable"},
		{`{"type":"plan/mode","seq":1,"time":2.5,"data":{}}`, "LOG-ENV time is 2.5, expected milliseconds as a whole number"},
		{`{"type":"plan/mode","seq":1,"time":-0,"data":{}}`, "LOG-ENV seq or time is a minus zero"},
		{`{"type":"plan/mode","seq":1,"time":2}`, "LOG-ENV data is absent, expected the payload of the event"},
		{`{"type":7,"seq":1,"time":2,"data":{}}`, "LOG-ENV type is 7, expected a string"},
		{`{"type":"plan/mode","seq":1,"time":2,"data":{},"ignorable":false}`, "LOG-ENV ignorable is false, expected true or no such key"},
		{`{"type":"text-chunks","seq0":1,"time0":2,"data":{"turn":1,"step":1,"index":0,"dt":[],"texts":["a"]}}`,
			"LINE-ROW a packed row of type text-chunks, which generation 2 does not have: its chunks are in the stream of the message"},
	} {
		for _, tail := range []bool{false, true} {
			lines := []string{head2, ok, c.line}
			class := Corrupt
			if !tail {
				lines = append(lines, end)
			} else {
				class = Torn
			}
			l, _, _ := read(t, strings.Join(lines, "\n")+"\n")
			got := ""
			for _, d := range l.Defects() {
				got += d.Rule + " " + d.Message
			}
			if c.want == "" {
				class = Intact
			}
			if got != c.want || l.Class() != class {
				t.Errorf("%s:\n got %s %s\nwant %s %s", c.line, l.Class(), got, class, c.want)
			}
		}
		l, _, _ := read(t, strings.Join([]string{strings.Replace(head2, `2,"id"`, `0,"id"`, 1), ok, c.line}, "\n")+"\n")
		if l.Class() != Intact {
			t.Errorf("%s: generation 0: %s %v", c.line, l.Class(), l.Defects())
		}
	}
}

// TestReplaceKeys: the names of a range's ends belong to the generation.
func TestReplaceKeys(t *testing.T) {
	old := `{"type":"user/message","seq":0,"time":1,"data":{},"surfaceOp":{"op":"replace","start":3,"end":4}}`
	now := `{"type":"user/message","seq":0,"time":1,"data":{},"surfaceOp":{"op":"replace","startSeq":3,"endSeq":4}}`
	mixed := `{"type":"user/message","seq":0,"time":1,"data":{},"surfaceOp":{"op":"replace","startSeq":3,"end":4}}`
	for _, g := range generations[1:] {
		header := strings.Replace(head2, `"version":2`, fmt.Sprintf(`"version":%d`, g.Version), 1)
		for line, want := range map[string]bool{old: g.Version < 3, now: g.Version >= 3, mixed: false} {
			l, err := NewReader(strings.NewReader(header+"\n"+line+"\n"), "log", Options{})
			if err != nil {
				t.Fatal(err)
			}
			for e := range l.Events() {
				op, ok := e.Replace()
				if ok != want || ok && op != (ReplaceOp{Start: 3, End: 4}) || (e.Fault&FaultOp == 0) != want || int64(e.Gen) != g.Version {
					t.Errorf("generation %d, %s: %+v, %v, faults %#x", g.Version, line, op, ok, e.Fault)
				}
			}
		}
	}
}

func TestSources(t *testing.T) {
	for _, c := range []struct {
		list string
		want []int64
		runs []SeqRange
	}{
		{`[]`, nil, nil},
		{`[1,2,5]`, []int64{1, 2, 5}, []SeqRange{{1, 1}, {2, 2}, {5, 5}}},
		{`[[1,3],5]`, []int64{1, 2, 3, 5}, []SeqRange{{1, 3}, {5, 5}}},
		{`[0,[2,2]]`, []int64{0, 2}, []SeqRange{{0, 0}, {2, 2}}},
		{`[[0,9007199254740990]]`, nil, []SeqRange{{0, 9007199254740990}}},
		{`[[3,1]]`, nil, nil},
		{`[[1]]`, nil, nil},
		{`[-1]`, nil, nil},
	} {
		e := Event{Seq: 9, Sources: []byte(c.list)}
		e.Fault |= checkSources(e.Sources)
		got, _ := e.SourceSeqs(nil)
		runs, _ := e.SourceRanges(nil)
		if !slices.Equal(got, c.want) || !slices.Equal(runs, c.runs) {
			t.Errorf("%s: %v, %v, want %v, %v", c.list, got, runs, c.want, c.runs)
		}
	}
	// A pair that claims the whole range of integers costs nothing.
	e := Event{Seq: maxSafe, Sources: []byte(`[[0,9007199254740990]]`)}
	if got, ok := e.SourceSeqs(nil); ok || got != nil {
		t.Errorf("%d seqs, %v", len(got), ok)
	}
}

// TestCut: the last inherited mark of a seeded log sets the cut, and is known
// before the events when the log can be read twice.
func TestCut(t *testing.T) {
	ev := func(seq int, typ, data string) string {
		return fmt.Sprintf(`{"type":%q,"seq":%d,"time":1,"data":%s}`, typ, seq, data)
	}
	text := strings.Join([]string{head4,
		ev(0, "plan/mode", `{"active":true}`),
		ev(1, "session/end-seed", `{"inherited":true}`),
		ev(2, "session/end-seed", `{}`),
		ev(3, "todo/write", `{"todos":["\"session/end-seed\"","\"inherited\""]}`),
		ev(4, "session/end-seed", `{"inherited":true}`),
		ev(5, "plan/mode", `{"active":false}`),
	}, "\n") + "\n"
	file := filepath.Join(t.TempDir(), "session.v4.jsonl")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l := openFile(t, file)
	if l.Header.Cut == nil || *l.Header.Cut != 4 || l.Header.Seed() != 4 || l.Header.CutUnknown() {
		t.Errorf("cut %v, seed %d", l.Header.Cut, l.Header.Seed())
	}
	readAll(t, l)
	if l.Kept() != 6 {
		t.Errorf("%d events kept", l.Kept())
	}
	s, err := NewReader(strings.NewReader(text), "-", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !s.Header.CutUnknown() || s.Header.Seed() != 0 {
		t.Errorf("a stream: cut %v", s.Header.Cut)
	}
	var marks []int64
	for e := range s.Events() {
		if e.SetsCut() {
			marks = append(marks, e.Seq)
		}
	}
	if !slices.Equal(marks, []int64{1, 4}) {
		t.Errorf("marks %v", marks)
	}
}
