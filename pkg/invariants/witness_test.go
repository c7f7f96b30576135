package invariants

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// soundLogs are the sound logs that ship with the repository.
func soundLogs(t testing.TB) []string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(corpus.Root(t), "goldens", "sound", "*", "session*.jsonl"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("%d sound logs, %v", len(logs), err)
	}
	return logs
}

// Every request of every sound log is rebuilt from the beginning to the same
// bytes, and extends the one before where nothing forbids it.
func TestParanoid(t *testing.T) {
	n, extended := int64(0), int64(0)
	for _, log := range soundLogs(t) {
		res := judgeWith(t, log, Options{Paranoid: ParanoidAll})
		counts := res.Requests
		want := Paranoid{Of: counts.Exact + counts.Messages + counts.Ambiguous + counts.Candidates + counts.Inherited}
		want.Checked = want.Of
		if d := cmp.Diff(want, res.Paranoid); d != "" || res.Errors != 0 {
			t.Errorf("%s: (-want +got):\n%s\n%s", log, d, verdictLines(res))
		}
		n += res.Paranoid.Checked
		extended += res.Extended
	}
	t.Logf("%d requests rebuilt, %d extend the one before", n, extended)
	if n < 229 || extended < 93 {
		t.Errorf("too few: %d rebuilt, %d extend the one before", n, extended)
	}
}

// taken judges a log but for its conclusion.
func taken(t *testing.T, log *logfmt.Log, opts Options) *Context {
	t.Helper()
	opts.MaxPerRule = defaultMaxPerRule
	c := newContext(log, opts)
	for e, d := range log.Events() {
		if d != nil {
			t.Fatal(d)
		}
		c.load(e)
	}
	return c
}

// A first pass that went wrong is found, whatever went wrong in it.
func TestParanoidFinds(t *testing.T) {
	path := filepath.Join(corpus.Root(t), "goldens", "sound", "head-tool-prune", "session.jsonl")
	for _, tt := range []struct {
		spoil func(m *mark)
		want  string
	}{
		{func(*mark) {}, ""},
		{func(m *mark) { m.sum[3] ^= 1 }, "its bytes differ"},
		{func(m *mark) { m.len++ }, "it has 3810 bytes and had 3811"},
		{func(m *mark) { m.grade = fold.Ambiguous }, "its grade is exact and was ambiguous"},
		{func(m *mark) { m.end = 1 }, "it is not among those found, 0 requests"},
	} {
		log, err := logfmt.OpenFile(path, logfmt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := taken(t, log, Options{Paranoid: ParanoidAll})
		res := c.conclude()
		tt.spoil(&c.second.marks[1])
		if res.Paranoid, err = c.second.run(context.Background(), c); err != nil {
			t.Fatal(err)
		}
		c.settle(res)
		log.Close()
		var got []string
		for _, f := range res.Findings {
			if f.Rule == "REQ-PARANOID" {
				_, why, _ := strings.Cut(f.Message, "beginning: ")
				got = append(got, fmt.Sprintf("%d.%d seq %d: %s", f.Turn, f.Step, f.Seq, why))
			}
		}
		var want []string
		if tt.want != "" {
			want = []string{"1.2 seq 18: " + tt.want}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if want := int64(len(c.second.marks)); res.Paranoid.Checked != want {
			t.Errorf("%d checked, want %d", res.Paranoid.Checked, want)
		}
	}
}

// A stream cannot be read twice, and a log as it is loaded is not the one that is
// stored; both are said and neither is a finding.
func TestParanoidSkipped(t *testing.T) {
	res := judge(t, []byte(small), Options{Paranoid: ParanoidAll})
	if d := cmp.Diff(Paranoid{Of: 1, Skipped: unread}, res.Paranoid); d != "" || res.Verdict != OK {
		t.Errorf("%s, (-want +got):\n%s", res.Verdict, d)
	}
	res = judge(t, []byte(small), Options{Paranoid: ParanoidAll, AsLoaded: true})
	if d := cmp.Diff(Paranoid{Of: 1, Skipped: "the log was judged as loaded, and holds other events as stored"}, res.Paranoid); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A sample of a large log is spread over it, within its budget.
func TestParanoidSample(t *testing.T) {
	s := second{mode: ParanoidSample}
	for i := range 1000 {
		s.marks = append(s.marks, mark{end: int64(i+1) * 1000})
	}
	got := s.chosen()
	if d := cmp.Diff([]int{0, 142, 285, 428, 570, 713, 856, 999}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	s.mode = ParanoidAll
	if n := len(s.chosen()); n != 1000 {
		t.Errorf("%d of 1000 chosen", n)
	}
	s = second{mode: ParanoidSample, marks: s.marks[:10]}
	if n := len(s.chosen()); n != 10 {
		t.Errorf("%d of 10 chosen in a small log", n)
	}
}

// The self check speaks when a request does not begin with the one before it.
func TestExtend(t *testing.T) {
	turns := func(first string) []byte {
		l := header + eventLines(
			`turn/start {"turn":1}`,
			`step/start {"turn":1,"step":1}`,
			`user/message {"content":[{"type":"text","text":"`+first+`"}],"source":{"kind":"user"},"role":"user","id":"u"}`+"\t"+`,"surfaceOp":"append"`,
			`request/header {"header":{"config":{"provider":"p","model":"m"}},"reason":"initial"}`,
			`assistant/chunk {"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"stop"}}}`,
			`assistant/message {"turn":1,"step":1,"message":{"role":"assistant","content":[],"source":{"kind":"model","provider":"p","model":"m"},"id":"a"}}`+"\t"+`,"sourceEventSeqs":[4],"surfaceOp":"append"`,
			`step/end {"turn":1,"step":1}`,
			`step/start {"turn":1,"step":2}`,
			`assistant/chunk {"turn":1,"step":2,"chunk":{"type":"finish","reason":{"kind":"stop"}}}`,
			`assistant/message {"turn":1,"step":2,"message":{"role":"assistant","content":[],"source":{"kind":"model","provider":"p","model":"m"},"id":"b"}}`+"\t"+`,"sourceEventSeqs":[8],"surfaceOp":"append"`,
			`step/end {"turn":1,"step":2}`,
			`turn/end {"turn":1,"reason":{"kind":"completed"}}`,
		)
		return []byte(l)
	}
	requests := func(data []byte) (out []*fold.Request) {
		log, err := logfmt.NewReader(bytes.NewReader(data), "log.jsonl", logfmt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range fold.Requests(log, fold.Options{}) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, r)
		}
		return out
	}
	one, other := requests(turns("q")), requests(turns("r"))
	log, err := logfmt.NewReader(bytes.NewReader(turns("q")), "log.jsonl", logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := taken(t, log, Options{})
	c.extended = 0
	(&extend{prev: one[0]}).request(c, one[1])
	if f := c.found["REQ-EXTEND"]; f != nil || c.extended != 1 {
		t.Errorf("%d extend, %v", c.extended, f)
	}
	(&extend{prev: other[0]}).request(c, one[1])
	if f := c.found["REQ-EXTEND"]; f == nil || len(f.kept) != 1 || f.kept[0].Seq != 8 || c.extended != 1 {
		t.Errorf("another first request: %d extend, %v", c.extended, f)
	}
}

// What providers reported is added up once: not again from the message, not from
// what was inherited, and also for attempts that failed.
func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		log  string
		want Usage
	}{
		{"head-multi-step-tools/session.jsonl", Usage{Requests: Tokens{Reports: 4, Input: 57, Output: 50, CacheRead: 9}}},
		{"head-provider-error-retry/session.jsonl", Usage{Requests: Tokens{Reports: 4, Input: 44, Output: 54}, Silent: 7}},
		{"b-fork-child/session.jsonl", Usage{Requests: Tokens{Reports: 2, Input: 62, Output: 18}, Inherited: 3}},
		{"a-plain-turn/session.jsonl", Usage{Requests: Tokens{Reports: 1, Input: 31, Output: 9}}},
		{"head-compaction-append/session.jsonl", Usage{Requests: Tokens{Reports: 5, Input: 55, Output: 19}}},
	} {
		res := judgeFile(t, filepath.Join(corpus.Root(t), "goldens", "sound", filepath.FromSlash(tt.log)))
		if d := cmp.Diff(tt.want, res.Usage); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.log, d)
		}
	}
	// The earliest logs report it in an event of its own.
	data := `{"type":"session","version":1,"id":"s","createdAt":1,"cwd":"/w"}` + "\n" + eventLines(
		`turn/start {"turn":1,"trigger":{"kind":"message","source":{"kind":"user"}}}`,
		`user/message {"content":[{"type":"text","text":"q"}],"source":{"kind":"user"}}`,
		`step/start {"turn":1,"step":1}`,
		`assistant/message {"turn":1,"step":1,"content":[{"type":"text","text":"a"}]}`,
		`usage {"turn":1,"step":1,"usage":{"inputTokens":7,"outputTokens":2,"cacheWriteTokens":1,"reasoningTokens":1}}`,
		`step/end {"turn":1,"step":1}`,
		`turn/end {"turn":1,"reason":{"kind":"completed"}}`,
	)
	res := judge(t, []byte(data), Options{})
	if d := cmp.Diff(Usage{Requests: Tokens{Reports: 1, Input: 7, Output: 2, CacheWrite: 1, Reasoning: 1}}, res.Usage); d != "" {
		t.Errorf("an event of its own (-want +got):\n%s", d)
	}
}

// Resumes of recorded sessions, and each field that drifted.
func TestResumes(t *testing.T) {
	type resumed struct {
		Resumes
		Drift []string
	}
	for name, want := range map[string]resumed{
		"c-resume-identical": {Resumes: Resumes{Clean: 1}},
		"b2-resume-drifted": {Resumes{Drifted: 1}, []string{
			`the resumed session differs in model, system, tools: model was "quill-1", is "quill-2"; system line 1 was nothing, is "drifted"; tools added "buoy"`,
		}},
		"head-resume-drift-tools": {Resumes{Drifted: 1}, []string{
			`the resumed session differs in tools: tools added "lamp", removed "tide_table", changed "sound_bell"`,
		}},
	} {
		res := judgeFile(t, filepath.Join(corpus.Root(t), "goldens", "sound", name, "session.jsonl"))
		got := resumed{Resumes: res.Resumes}
		for _, f := range res.Findings {
			if f.Rule == "HDR-RESUME-DRIFT" {
				got.Drift = append(got.Drift, f.Message)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// siblings finds a parent among the logs of a folder.
func siblings(t *testing.T, pattern string) func(id string) *logfmt.Log {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(files), err)
	}
	return func(id string) *logfmt.Log {
		for _, file := range files {
			log, err := logfmt.OpenFile(file, logfmt.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if log.Header != nil && log.Header.ID == id {
				return log
			}
			log.Close()
		}
		return nil
	}
}

// A recorded child is held against its parent, event by event.
func TestLineage(t *testing.T) {
	root := filepath.Join(corpus.Root(t), "goldens", "sound")
	for _, tt := range []struct {
		log, parents string
		want         Lineage
	}{
		{"head-fork-boundary/session.child.jsonl", "head-fork-boundary/session.*.jsonl",
			Lineage{Parent: "oracle-fork-parent", Inherited: 30, Own: 28, Compared: 30}},
		{"head-fork-boundary/session.grandchild.jsonl", "head-fork-boundary/session.*.jsonl",
			Lineage{Parent: "oracle-fork-child", Inherited: 58, Own: 1, Compared: 58}},
		{"b-fork-child/session.jsonl", "b-fork-parent/session.jsonl",
			Lineage{Parent: "fork-parent", Inherited: 39, Own: 27, Compared: 39}},
		{"b-fork-child/session.jsonl", "head-plain-turn/session.jsonl",
			Lineage{Parent: "fork-parent", Inherited: 39, Own: 27, Missing: true}},
		{"b-fork-parent/session.jsonl", "b-fork-child/session.jsonl", Lineage{}},
	} {
		res := judgeWith(t, filepath.Join(root, filepath.FromSlash(tt.log)), Options{Parent: siblings(t, filepath.Join(root, filepath.FromSlash(tt.parents)))})
		if d := cmp.Diff(tt.want, res.Lineage); d != "" || res.Verdict != OK {
			t.Errorf("%s: %s", tt.log, verdictLines(res))
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	dir, ok := corpus.Dir(t)
	if !ok {
		return
	}
	children, n := 0, int64(0)
	for _, part := range []string{"head", "july"} {
		files, err := filepath.Glob(filepath.Join(dir, part, "*", "session*.jsonl*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if damagedCase(filepath.Base(filepath.Dir(file))) {
				continue
			}
			parents := filepath.Join(filepath.Dir(file), "session*.jsonl*")
			if part == "july" {
				parents = filepath.Join(strings.Replace(filepath.Dir(file), "-child", "-parent", 1), "session.jsonl")
			}
			res := judgeWith(t, file, Options{Parent: siblings(t, parents)})
			if res.Lineage.Inherited == 0 {
				continue
			}
			children++
			n += res.Lineage.Compared
			if res.Lineage.Missing || res.Lineage.Compared != res.Lineage.Inherited || res.Errors != 0 {
				t.Errorf("%s: %+v\n%s", file, res.Lineage, verdictLines(res))
			}
		}
	}
	t.Logf("%d children, %d inherited events", children, n)
	if children == 0 {
		t.Error("no children found")
	}
}

// A child of a parent in an older dialect holds the upgraded events.
func TestLineageUpgraded(t *testing.T) {
	turn := func(turn int) string {
		return fmt.Sprintf(`turn/start {"turn":%d}`, turn)
	}
	parent := `{"type":"session","version":0,"id":"p","createdAt":1,"cwd":"/w","delegationDepth":0}` + "\n" + eventLines(
		`turn/start {"turn":1,"trigger":{"kind":"message","source":{"kind":"user"}}}`,
		`user/message {"content":[{"type":"text","text":"q"}],"source":{"kind":"user"}}`+"\t"+`,"surfaceOp":"append"`,
		`steering/message {"turn":1,"content":[{"type":"text","text":"s"}],"source":{"kind":"user"}}`+"\t"+`,"surfaceOp":"append"`,
		`turn/end {"turn":1,"reason":{"kind":"completed"}}`,
	)
	child := func(kind string) []byte {
		return []byte(`{"type":"session","version":0,"id":"c","createdAt":2,"cwd":"/w","parentSession":"p","seedLength":4,"delegationDepth":0}` + "\n" + eventLines(
			turn(1),
			`user/message {"content":[{"type":"text","text":"q"}],"source":{"kind":"`+kind+`"},"id":"legacy-message:p:1","role":"user"}`+"\t"+`,"surfaceOp":"append"`,
			`user/message {"content":[{"type":"text","text":"s"}],"source":{"kind":"user"},"id":"legacy-message:p:2","role":"user"}`+"\t"+`,"surfaceOp":"append"`,
			`turn/end {"turn":1,"reason":{"kind":"completed"}}`,
			`session/end-seed {}`,
		))
	}
	opts := Options{
		Rules: func(id string) bool { return strings.HasPrefix(id, "FORK-") },
		Parent: func(id string) *logfmt.Log {
			log, err := logfmt.NewReader(strings.NewReader(parent), "parent.jsonl", logfmt.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return log
		},
	}
	res := judge(t, child("user"), opts)
	want := Lineage{Parent: "p", Inherited: 4, Own: 1, Compared: 4, Upgraded: 3}
	if d := cmp.Diff(want, res.Lineage); d != "" || len(res.Findings) != 0 {
		t.Errorf("%v (-want +got):\n%s", lines(res, true), d)
	}
	res = judge(t, child("plugin"), opts)
	finding := &Finding{Rule: "FORK-PREFIX", Severity: Error, Seq: 1, Turn: 1, Step: -1, Path: "data",
		Message: `inherited event 1 differs from the parent's: data is an object with keys content, source, id, role here and {"content":[{"type":"text","text":"q"}],"source":… there`}
	if d := cmp.Diff([]*Finding{finding}, res.Findings, cmpopts.IgnoreUnexported(Finding{}), cmpopts.IgnoreFields(Finding{}, "Pos", "Related", "Message", "Path")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// An attempt of any length is followed without keeping its chunks.
func TestStreamAllocates(t *testing.T) {
	log, err := logfmt.NewReader(strings.NewReader(small), "log.jsonl", logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := newContext(log, Options{MaxPerRule: 1})
	for e, d := range log.Events() {
		if d != nil {
			t.Fatal(d)
		}
		if e.Seq == 4 {
			break
		}
		c.load(e)
	}
	e := &logfmt.Event{Type: "assistant/chunk", Seq: 4, Time: 14, Pos: logfmt.Position{Frame: -1, Row: -1, Member: -1}}
	set := func(chunk string) {
		e.Data = []byte(`{"turn":1,"step":1,"chunk":` + chunk + `}`)
		e.JSON = fmt.Appendf(nil, `{"type":"assistant/chunk","seq":%d,"time":14,"data":%s}`, e.Seq, e.Data)
		e.Line = e.JSON
	}
	set(`{"type":"block-start","index":0,"blockType":"text"}`)
	c.load(e)
	e.Seq++
	set(`{"type":"text-delta","index":0,"text":"some words of an answer "}`)
	n := testing.AllocsPerRun(2000, func() {
		c.load(e)
		e.Seq++
	})
	if n > 0.1 { // the text itself grows
		t.Errorf("%v allocations for each chunk", n)
	}
	if len(c.stream.spans) != 1 || c.stream.blind || len(c.found) != 0 {
		t.Errorf("%d spans, blind %v, findings %v", len(c.stream.spans), c.stream.blind, c.found)
	}
}

// A log of 20 MB: what it cost, and a sample of its requests rebuilt.
func TestBigUsage(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	path := filepath.Join(dir, "big", "20mb", "session.packed.jsonl")
	if _, err := os.Stat(path); err != nil {
		t.Skip(err)
	}
	res := judgeWith(t, path, Options{Paranoid: ParanoidSample})
	want := Usage{Requests: Tokens{Reports: 437, Input: 437000, Output: 308*200 + 129*300}}
	if d := cmp.Diff(want, res.Usage); d != "" || res.Verdict != OK {
		t.Errorf("%s (-want +got):\n%s", verdictLines(res), d)
	}
	if d := cmp.Diff(Paranoid{Checked: 8, Of: 437}, res.Paranoid); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
