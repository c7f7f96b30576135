package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// loaded is a log as the harness holds it.
type loaded struct {
	Outcome
	events []string
	loader *Loader
}

// text is the events, one a line.
func (l *loaded) text() string { return strings.Join(append(l.events, ""), "\n") }

func loadLog(log *logfmt.Log, o Options) *loaded {
	l := &loaded{loader: New(log.Header, o)}
	for e, d := range log.Events() {
		if d != nil {
			continue
		}
		if e = l.loader.Add(e); e != nil {
			l.events = append(l.events, string(e.JSON))
		}
	}
	l.Outcome = *l.loader.End(log)
	for _, c := range l.Closers {
		l.events = append(l.events, string(c.JSON))
	}
	return l
}

func loadBytes(t testing.TB, name string, data []byte, o Options) *loaded {
	t.Helper()
	log, err := logfmt.NewReader(bytes.NewReader(data), name, logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	return loadLog(log, o)
}

const header = `{"type":"session","version":0,"id":"s1","createdAt":1,"cwd":"/w","delegationDepth":0}` + "\n"

// The vectors were made by the harness itself: a log whose every upgrade and
// refusal it decided.
func TestVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/headload.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name    string
		Events  []string
		Loaded  []string
		Refused *struct {
			Stage       string
			Seq         int64
			Unsupported bool
		}
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != 33 {
		t.Fatalf("%d cases, want 33", len(cases))
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			got := loadBytes(t, "session.jsonl", []byte(header+strings.Join(append(c.Events, ""), "\n")), Options{ID: "s1"})
			if c.Refused == nil {
				if got.Refusal != nil {
					t.Fatalf("refused at %s: %v", got.Refusal.Stage, got.Refusal)
				}
				if d := cmp.Diff(c.Loaded, got.events); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
				return
			}
			if got.Refusal == nil {
				t.Fatal("loaded, want a refusal")
			}
			r := got.Refusal
			if r.Stage.String() != c.Refused.Stage || r.Seq != c.Refused.Seq || r.Unsupported != c.Refused.Unsupported {
				t.Errorf("refused at %s, seq %d, unsupported %v: %v; want %+v", r.Stage, r.Seq, r.Unsupported, r, *c.Refused)
			}
			if got.Closers != nil {
				t.Errorf("%d closers for a log that is refused", len(got.Closers))
			}
		})
	}
}

// Each rule that the vectors do not reach, with the reason in our words.
func TestRefusals(t *testing.T) {
	const (
		turn = `{"type":"turn/start","seq":0,"time":1,"data":{"turn":1}}`
		user = `{"type":"user/message","seq":1,"time":1,"data":{"content":[],"source":{"kind":"user"},"role":"user","id":"u"},"surfaceOp":"append"}`
	)
	for _, c := range []struct {
		name, header string
		events       []string
		want         string // stage, then the error; "" for a log that is loaded
	}{
		{"sound", header, []string{turn, user}, ""},
		{"empty", header, nil, ""},
		{"windows cwd", strings.Replace(header, "/w", `C:\\w`, 1), nil, ""},
		{"june", `{"type":"session","version":1,"id":"s","createdAt":1,"cwd":"/w"}` + "\n", nil,
			"version: it takes format version 1 for a later one than the 0 that it reads, although builds of 06-17 to 06-21 wrote it"},
		{"later", `{"type":"session","version":2,"id":"s","createdAt":1,"isSeeded":false,"delegationDepth":0}` + "\n", nil,
			"version: it takes format version 2 for a later one than the 0 that it reads"},
		{"no number", `{"type":"session","version":1e999,"id":"s","createdAt":1,"delegationDepth":0}` + "\n", nil,
			"version: format version 1e999: this build reads generations 0 to 4"},
		{"older", `{"type":"session","version":-1,"id":"s","createdAt":1,"delegationDepth":0}` + "\n", nil,
			"version: it takes format version -1 for an older one than the 0 that it reads"},
		{"no depth", `{"type":"session","version":0,"id":"s","createdAt":1}` + "\n", nil,
			"record: the header has no delegationDepth, which it asks for since 07-20"},
		{"fraction", `{"type":"session","version":0,"id":"s","createdAt":1.5,"delegationDepth":0}` + "\n", nil,
			"record: createdAt in the header is no whole number from 0, which it asks for since 07-24"},
		{"retired keys", strings.Replace(header, `,"delegationDepth"`, `,"sandboxMode":1,"delegationDepth"`, 1), nil,
			"record: the header holds sandboxMode or approvalPolicy, which only a development build wrote"},
		{"cwd", strings.Replace(header, `"/w"`, `"w"`, 1), nil, "header: cwd in the header is no absolute path"},
		{"parent", strings.Replace(header, `,"delegationDepth"`, `,"parentSession":1,"delegationDepth"`, 1), nil, "header: parentSession in the header is no text"},
		{"seed", strings.Replace(header, `,"delegationDepth"`, `,"seedLength":-1,"delegationDepth"`, 1), nil, "header: seedLength in the header is no whole number from 0"},
		{"retired before malformed", header, []string{
			`{"type":"turn/start","seq":0,"time":1,"data":{"turn":1,"trigger":1}}`,
			`{"type":"request/header","seq":1,"time":1,"data":{"header":{"config":{"provider":"p","model":"m"}},"reason":"fallback"}}`,
			`{"type":"mode/set","seq":2,"time":1,"data":{}}`,
			`{"type":"request/header-delta","seq":3,"time":1,"data":{}}`},
			"retired: seq 3: it no longer reads request/header-delta, which builds of 07-06 to 07-17 wrote"},
		{"malformed before unknown", header, []string{
			`{"type":"gull/seen","seq":0,"time":1,"data":{}}`,
			`{"type":"turn/end","seq":1,"time":1,"data":{"turn":0,"reason":{"kind":"completed"}}}`},
			"upgrade: seq 1: the turn/end is malformed: it is neither one of today nor one that it upgrades"},
		{"unknown before envelope", header, []string{
			`{"type":"todo/write","seq":0,"time":1,"data":{},"x":1}`,
			`{"type":"gull/seen","seq":1,"time":1,"data":{}}`},
			`type: seq 1: event type "gull/seen" is unknown to it and not marked ignorable`},
		{"null data", header, []string{turn, `{"type":"step/start","seq":1,"time":1,"data":null}`},
			"closing: seq 1: the data of the step/start is missing, and it fails on reading it"},
		{"null block", header, []string{turn, `{"type":"assistant/message","seq":1,"time":1,"data":{"turn":1,"step":1,"message":{"id":"a","role":"assistant","content":[null],"source":{"kind":"model","provider":"p","model":"m"}}},"surfaceOp":"append"}`},
			"closing: seq 1: a content block is null, and it fails on reading it"},
		{"null turn/end", header, []string{turn, `{"type":"turn/end","seq":1,"time":1,"data":null}`}, ""},
		{"call without id", header, []string{turn, `{"type":"assistant/message","seq":1,"time":1,"data":{"turn":1,"step":1,"message":{"id":"a","role":"assistant","content":[{"type":"tool-call","id":7}],"source":{"kind":"model","provider":"p","model":"m"}}},"surfaceOp":"append"}`},
			"admit: seq 2: the message of the tool/result is malformed: data.message.source.callId is a number, expected text"},
		{"ranges", header, []string{turn, strings.Replace(user, `,"surfaceOp"`, `,"sourceEventSeqs":[[0,0]],"surfaceOp"`, 1)},
			"admit: seq 1: sourceEventSeqs holds something else than seqs"},
		{"replaced message without id", header, []string{turn,
			`{"type":"tool/result","seq":1,"time":1,"data":{"turn":1,"step":1,"callId":"c","content":[],"isError":false},"sourceEventSeqs":[0],"surfaceOp":{"op":"replace","start":0,"end":0}}`},
			"upgrade: seq 1: the message of the tool/result is malformed: data.message.id is absent, expected text"},
		{"torn", header, []string{turn, user, `{"type":"todo`}, ""},
		{"gap", header, []string{turn, `{"type":"turn/end","seq":2,"time":1,"data":{"turn":1,"reason":{"kind":"completed"}}}`},
			"storage: seq 1: line 3: expected seq 1, got 2: one event is missing"},
		{"no header", "", []string{turn}, "record: line 1: header record: missing, the first line is an event with seq 0"},
		{"no header, then damage", "", []string{turn, "{", `{"type":"turn/end","seq":1,"time":1,"data":{"turn":1,"reason":{"kind":"completed"}}}`},
			"record: line 1: header record: missing, the first line is an event with seq 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := c.header + strings.Join(append(c.events, ""), "\n")
			got := loadBytes(t, "session.jsonl", []byte(text), Options{})
			if got.Unjudged != "" {
				t.Errorf("unjudged: %s", got.Unjudged)
			}
			var s string
			if r := got.Refusal; r != nil {
				s = r.Stage.String() + ": " + r.Error()
			}
			if s != c.want {
				t.Errorf("got  %s\nwant %s", s, c.want)
			}
		})
	}
}

func TestIdentity(t *testing.T) {
	got := loadBytes(t, "s.jsonl", []byte(header), Options{ID: "other"})
	if got.Refusal == nil || got.Refusal.Stage != Identity {
		t.Errorf("refusal %v, want one for the id", got.Refusal)
	}
}

// What cannot be said is not said.
func TestUnjudged(t *testing.T) {
	got := loadBytes(t, "s.jsonl", []byte(header+`{"type":"turn/start","data":{"turn":1}}`+"\n"), Options{})
	if got.Unjudged != "a projected fixture is no log that the harness loads" {
		t.Errorf("unjudged: %q", got.Unjudged)
	}
}

// An upgraded event keeps its envelope, and its message is the one that the fold
// derives for builds that import it.
func TestUpgradeIsTheProjection(t *testing.T) {
	data, err := os.ReadFile("testdata/headload.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name           string
		Events, Loaded []string
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range cases {
		if c.Loaded == nil {
			continue
		}
		ids := map[int64][]byte{}
		p := fold.Imported("s1", func(seq int64) []byte { return ids[seq] })
		l := New(nil, Options{})
		l.id = "s1"
		log, err := logfmt.NewReader(strings.NewReader(header+strings.Join(append(c.Events, ""), "\n")), "s.jsonl", logfmt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for e, d := range log.Events() {
			if d != nil {
				t.Fatal(d)
			}
			ids[e.Seq] = fold.EventMessageID(e, p)
			switch e.Type {
			case logfmt.TypeUserMessage, logfmt.TypeAssistantMessage, logfmt.TypeToolResult, logfmt.TypeSteeringMessage:
			default:
				l.Add(e)
				continue
			}
			want, err := fold.DeriveEventMessage(e, p)
			if err != nil {
				t.Fatal(err)
			}
			up := l.Add(e)
			got, err := fold.DeriveEventMessage(up, p)
			if err != nil {
				t.Fatal(err)
			}
			if n++; !bytes.Equal(want, got) {
				t.Errorf("%s: seq %d:\nprojected %s\nloaded    %s", c.Name, e.Seq, want, got)
			}
			if !bytes.Equal(up.Clone().JSON, up.JSON) || !bytes.Equal(up.Clone().Data, up.Data) {
				t.Errorf("%s: seq %d: the copy of the event differs", c.Name, e.Seq)
			}
		}
	}
	if n < 7 {
		t.Errorf("only %d messages were compared", n)
	}
}

// However often a result is rewritten, it keeps the id it was first given, and of
// the ids that were given no more are remembered than the surface can ask for.
func TestManyRewrites(t *testing.T) {
	const n = 1000
	var b strings.Builder
	b.WriteString(header)
	result := func(seq int, op string) {
		fmt.Fprintf(&b, `{"type":"tool/result","seq":%d,"time":1,"data":{"turn":1,"step":1,"callId":"c","content":[{"type":"text","text":"%d"}],"isError":false}%s}`+"\n", seq, seq, op)
	}
	result(0, `,"surfaceOp":"append"`)
	for i := 1; i <= n; i++ {
		result(i, fmt.Sprintf(`,"sourceEventSeqs":[%d],"surfaceOp":{"op":"replace","start":%d,"end":%d}`, i-1, i-1, i-1))
	}
	l := loadBytes(t, "session.jsonl", []byte(b.String()), Options{})
	if l.Refusal != nil {
		t.Fatal(l.Refusal.Message)
	}
	want := fmt.Sprintf(`{"type":"tool/result","seq":%d,"time":1,"data":{"turn":1,"step":1,"message":{"id":"legacy-message:s1:0","role":"user",`+
		`"content":[{"type":"tool-result","toolCallId":"c","content":[{"type":"text","text":"%d"}],"isError":false}],"source":{"kind":"tool","callId":"c"}}},`+
		`"sourceEventSeqs":[%d],"surfaceOp":{"op":"replace","start":%d,"end":%d}}`, n, n, n-1, n-1, n-1)
	if d := cmp.Diff(want, l.events[n]); d != "" {
		t.Errorf("the last rewrite (-want +got):\n%s", d)
	}
	if got := len(l.loader.ids); got > 66 {
		t.Errorf("%d ids are remembered for a surface of one, want at most 66", got)
	}
}
