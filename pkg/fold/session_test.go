package fold

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// faultKinds tells what a recorded refusal is about by its words.
var faultKinds = []struct {
	words string
	want  string
}{
	{"seed must be contiguous", "seq"},
	{"JSON-serializable", "json"},
	{"carries no surfaceOp marker|requires a surfaceOp marker", "surface marker"},
	{"is not surface-eligible", "surface eligible"},
	{"carries an invalid", "surface op"},
	{"reading 'start'|seq undefined", "surface op"},
	{"not found in surface|is after end", "surface range"},
	{"must not be empty", "surface empty"},
	{"duplicates|must reference earlier|densely contain|must be an array", "surface sources"},
	{"must include every shadowed", "surface shadow"},
	{"may change only content|must target", "surface rewrite"},
}

func kindOfRefusal(t *testing.T, text string) string {
	t.Helper()
	for _, k := range faultKinds {
		if regexp.MustCompile(k.words).MatchString(text) {
			return k.want
		}
	}
	t.Fatalf("no kind for %q", text)
	return ""
}

func kindOfError(err error) string {
	var se *SessionError
	var fault *SurfaceError
	s := ""
	if errors.As(err, &se) {
		s = string(se.Rule)
	}
	if errors.As(err, &fault) {
		s = "surface " + fault.Fault.String()
	}
	return s
}

// A seed is accepted, folds and derives as the session of its time did it.
func TestVectorsSession(t *testing.T) {
	for name, want := range map[string]struct {
		era                   Era
		ok, atSeed, atSurface int
	}{
		"a": {E1, 27, 3, 13}, "b": {E3, 25, 5, 13}, "b2": {E4, 25, 5, 13}, "c": {E6, 9, 34, 0},
	} {
		ok, atSeed, atSurface := 0, 0, 0
		for _, v := range vectors(t, july(name+"-surface-fold")) {
			events := jsjson.Get(v, "events")
			vector := name + " " + str(t, v, "name")
			var seed []*logfmt.Event
			for raw := range jsjson.Elements(events) {
				text := bytes.ReplaceAll(raw, []byte(`"INF"`), []byte(`1e999`))
				b, facts, err := jsjson.Stringify(text)
				if err != nil {
					t.Fatal(err)
				}
				e := event(b)
				e.Facts = uint16(facts)
				seed = append(seed, e)
			}
			s, err := NewSessionOf(want.era, SessionMeta{ID: "s"}, seed...)
			if jsjson.Get(v, "seedError") != nil {
				atSeed++
				if diff := cmp.Diff(kindOfRefusal(t, str(t, v, "seedError")), kindOfError(err)); diff != "" {
					t.Errorf("%s: %v (-want +got)\n%s", vector, err, diff)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", vector, err)
				continue
			}
			view, err := s.Surface()
			messages, err2 := s.DeriveMessages()
			if jsjson.Get(v, "surfaceError") != nil {
				atSurface++
				kind := kindOfRefusal(t, str(t, v, "surfaceError"))
				if str(t, v, "name") == "op start string" {
					kind = "surface op" // "0" is looked up there as it is, and found nowhere
				}
				if diff := cmp.Diff(kind, kindOfError(err)); diff != "" || err2 != err {
					t.Errorf("%s: %v, deriving %v (-want +got)\n%s", vector, err, err2, diff)
				}
				continue
			}
			ok++
			if err != nil || err2 != nil {
				t.Errorf("%s: %v, %v", vector, err, err2)
				continue
			}
			if diff := cmp.Diff(string(jsjson.Get(v, "nodes")), string(appendSeqs(nil, view.Nodes))); diff != "" {
				t.Errorf("%s: nodes (-want +got)\n%s", vector, diff)
			}
			if diff := cmp.Diff(string(jsjson.Get(v, "messages")), "["+strings.Join(messages, ",")+"]"); diff != "" {
				t.Errorf("%s: messages (-want +got)\n%s", vector, diff)
			}
		}
		if ok != want.ok || atSeed != want.atSeed || atSurface != want.atSurface {
			t.Errorf("%s: %d accepted, %d refused, %d broken; want %v", name, ok, atSeed, atSurface, want)
		}
	}
}

const aMessage = `{"content":[{"type":"text","text":"q"}],"source":{"kind":"user"},"role":"user","id":"u1"}`

func mustAppend(t *testing.T, s *Session, typ, data string, opts AppendOptions) *logfmt.Event {
	t.Helper()
	e, err := s.Append(typ, json.RawMessage(data), opts)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func newTestSession(t *testing.T, era Era) *Session {
	t.Helper()
	s, err := NewSessionOf(era, SessionMeta{ID: "s"})
	if err != nil {
		t.Fatal(err)
	}
	s.SetClock(func() int64 { return 100 + s.Seq() })
	return s
}

// What Append refuses, by era: the newest and, where they differ, an older one.
func TestAppendRules(t *testing.T) {
	user := func(rest string) string { return `{"content":[],"source":{"kind":"user"},"role":"user"` + rest + `}` }
	assistant := func(source string) string {
		return `{"turn":1,"step":1,"message":{"role":"assistant","content":[],"source":` + source + `,"id":"a"}}`
	}
	tool := func(source, content string) string {
		return `{"turn":1,"step":1,"message":{"source":` + source + `,"content":` + content + `,"role":"user","id":"t"}}`
	}
	result := `[{"type":"tool-result","toolCallId":"c","content":[],"isError":false}]`
	source := `{"kind":"tool","callId":"c"}`
	model := `{"kind":"model","provider":"p","model":"m"}`
	header := func(h string) string { return `{"header":` + h + `,"reason":"initial"}` }
	const cfg = `"config":{"provider":"p","model":"m","maxTokens":1}`
	minusOne := int64(-1)
	for _, tc := range []struct {
		name string
		era  Era
		typ  string
		data any
		opts AppendOptions
		want string // "" if accepted
	}{
		{"user", E13, "user/message", json.RawMessage(user(`,"id":"u"`)), OnSurface(), ""},
		{"user without id", E13, "user/message", json.RawMessage(user(``)), OnSurface(), `seq 1: "user/message": data.id is absent, want text`},
		{"user without id in E8", E8, "user/message", json.RawMessage(user(``)), OnSurface(), ``},
		{"user with empty id", E13, "user/message", json.RawMessage(user(`,"id":""`)), OnSurface(), `seq 1: "user/message": data.id is empty, want text`},
		{"user of another role", E13, "user/message", json.RawMessage(strings.Replace(user(`,"id":"u"`), `"role":"user"`, `"role":"assistant"`, 1)), OnSurface(), `seq 1: "user/message": data.role is another, want "user"`},
		{"user without kind", E13, "user/message", json.RawMessage(`{"content":[],"source":{},"role":"user","id":"u"}`), OnSurface(), `seq 1: "user/message": data.source.kind is absent, want text`},
		{"user without content", E13, "user/message", json.RawMessage(`{"source":{"kind":"user"},"role":"user","id":"u"}`), OnSurface(), `seq 1: "user/message": data.content is absent, want an array`},
		{"assistant", E13, "assistant/message", json.RawMessage(assistant(model)), AppendOptions{Op: OpAppend(), Sources: []int64{}}, ""},
		{"assistant without message", E13, "assistant/message", json.RawMessage(`{"turn":1}`), OnSurface(), `seq 1: "assistant/message": data.message is absent, want an object`},
		{"assistant of another kind", E13, "assistant/message", json.RawMessage(assistant(`{"kind":"user"}`)), OnSurface(), `seq 1: "assistant/message": data.message.source.kind is another, want "model"`},
		{"assistant without model", E13, "assistant/message", json.RawMessage(assistant(`{"kind":"model","provider":"p"}`)), OnSurface(), `seq 1: "assistant/message": data.message.source.model is absent, want text`},
		{"assistant without provenance in E5", E5, "assistant/message", json.RawMessage(`{"turn":1,"step":1,"content":[]}`), OnSurface(), `seq 1: "assistant/message": provenance lacks provider or model`},
		{"assistant without provenance in E4", E4, "assistant/message", json.RawMessage(`{"turn":1,"step":1,"content":[]}`), OnSurface(), ""},
		{"tool", E13, "tool/result", json.RawMessage(tool(source, result)), OnSurface(0), ""},
		{"tool with two blocks", E13, "tool/result", json.RawMessage(tool(source, `[{},{}]`)), OnSurface(), `seq 1: "tool/result": data.message.content is an array of 2, want one block`},
		{"tool with text", E13, "tool/result", json.RawMessage(tool(source, `[{"type":"text"}]`)), OnSurface(), `seq 1: "tool/result": data.message.content[0].type is another, want "tool-result"`},
		{"tool of another call", E13, "tool/result", json.RawMessage(tool(source, strings.Replace(result, `"c"`, `"d"`, 1))), OnSurface(), `seq 1: "tool/result": data.message.content[0].toolCallId is another, want the callId of the source`},
		{"tool without content", E13, "tool/result", json.RawMessage(tool(source, strings.Replace(result, `[],`, `"x",`, 1))), OnSurface(), `seq 1: "tool/result": data.message.content[0].content is a string, want an array`},
		{"tool without callId", E13, "tool/result", json.RawMessage(tool(`{"kind":"tool"}`, result)), OnSurface(), `seq 1: "tool/result": data.message.source.callId is absent, want text`},

		{"header", E13, "request/header", json.RawMessage(header(`{` + cfg + `,"adapterDefaults":{"maxTokens":true}}`)), AppendOptions{}, ""},
		{"header without provider", E13, "request/header", json.RawMessage(header(`{"config":{"model":"m"}}`)), AppendOptions{}, `seq 1: "request/header": header.config lacks provider or model`},
		{"header without provider in E4", E4, "request/header", json.RawMessage(header(`{"config":{"model":"m"}}`)), AppendOptions{}, ""},
		{"header with an empty effort", E13, "request/header", json.RawMessage(header(`{"config":{"provider":"p","model":"m","reasoningEffort":""}}`)), AppendOptions{}, `seq 1: "request/header": header.config.reasoningEffort is no text`},
		{"header with an empty effort in E7", E7, "request/header", json.RawMessage(header(`{"config":{"provider":"p","model":"m","reasoningEffort":""}}`)), AppendOptions{}, ""},
		{"defaults that are no object", E13, "request/header", json.RawMessage(header(`{` + cfg + `,"adapterDefaults":[]}`)), AppendOptions{}, `seq 1: "request/header": header.adapterDefaults is an array, want an object`},
		{"defaults with another key", E13, "request/header", json.RawMessage(header(`{` + cfg + `,"adapterDefaults":{"model":true}}`)), AppendOptions{}, `seq 1: "request/header": header.adapterDefaults has a key other than reasoningEffort and maxTokens`},
		{"defaults that are not true", E13, "request/header", json.RawMessage(header(`{` + cfg + `,"adapterDefaults":{"maxTokens":false}}`)), AppendOptions{}, `seq 1: "request/header": header.adapterDefaults.maxTokens is not true`},
		{"defaults of nothing", E13, "request/header", json.RawMessage(header(`{` + cfg + `,"adapterDefaults":{"reasoningEffort":true}}`)), AppendOptions{}, `seq 1: "request/header": header.adapterDefaults names reasoningEffort, which header.config lacks`},
		{"fallback", E13, "request/header", json.RawMessage(`{"header":{` + cfg + `},"reason":"fallback"}`), AppendOptions{}, `seq 1: "request/header": builds since 07-17 do not accept the reason "fallback"`},
		{"fallback in E3", E3, "request/header", json.RawMessage(`{"header":{` + cfg + `},"reason":"fallback"}`), AppendOptions{}, ""},
		{"delta", E5, "request/header-delta", json.RawMessage(`{}`), AppendOptions{}, `seq 1: "request/header-delta": builds since 07-17 do not accept header deltas`},

		{"no marker", E13, "user/message", json.RawMessage(user(`,"id":"u"`)), AppendOptions{}, `seq 1: "user/message": a message without surfaceOp is not seen by the model`},
		{"no marker in E1", E1, "user/message", json.RawMessage(user(``)), AppendOptions{}, ""},
		{"marker on another type", E13, "todo/write", json.RawMessage(`{"todos":[]}`), OnSurface(), `seq 1: "todo/write": this type takes no place on the surface and cannot carry surfaceOp`},
		{"marker on another type in E4", E4, "todo/write", json.RawMessage(`{"todos":[]}`), OnSurface(), ""},
		{"marker on a type that is gone", E7, "context/message", json.RawMessage(`{"content":[],"source":{"kind":"user"}}`), OnSurface(), `seq 1: "context/message": this type takes no place on the surface and cannot carry surfaceOp`},
		{"replace of nothing", E13, "user/message", json.RawMessage(user(`,"id":"u"`)), AppendOptions{Op: OpReplace(7, 7), Sources: []int64{0}}, `seq 1: "user/message": replace starts at seq 7, which is not on the surface`},
		{"replace of nothing in E4", E4, "user/message", json.RawMessage(user(``)), AppendOptions{Op: OpReplace(7, 7)}, ""},
		{"an op that is no JSON", E13, "user/message", json.RawMessage(user(`,"id":"u"`)), AppendOptions{Op: json.RawMessage(`{`)}, `seq 1: "user/message": surfaceOp is not valid JSON`},
		{"an op with more keys", E13, "user/message", json.RawMessage(user(`,"id":"u"`)), AppendOptions{Op: json.RawMessage(`{"op":"replace","start":0,"end":0,"x":1}`), Sources: []int64{0}}, `seq 1: "user/message": surfaceOp is not exactly {"op":"replace","start":seq,"end":seq}`},
		{"citing what is to come", E13, "user/message", json.RawMessage(user(`,"id":"u"`)), OnSurface(1), `seq 1: "user/message": sourceEventSeqs cites seq 1, which is not an earlier event`},

		{"data that JSON does not keep", E13, "todo/write", map[string]any{"todos": []any{func() {}}}, AppendOptions{}, `seq 1: "todo/write": data: ."todos"[0] is a func(), which JSON has no form for`},
		{"raw data that loses", E13, "todo/write", json.RawMessage(`{"n":-0}`), AppendOptions{}, `seq 1: "todo/write": data: the value is JSON that loses something when it is read: a number or ill-formed text`},
		{"a type that is no text", E13, "\xff", nil, AppendOptions{}, `seq 1: "\xff": the type is no text`},
		{"an unknown type", E13, "gull/seen", nil, AppendOptions{Ignorable: true}, ""},
		{"ignorable before its time", E9, "gull/seen", nil, AppendOptions{Ignorable: true}, `seq 1: "gull/seen": this era knows no ignorable events`},
		{"before the epoch", E13, "turn/start", json.RawMessage(`{"turn":1}`), AppendOptions{Time: &minusOne}, ""},
		{"before the epoch in E9", E9, "turn/start", json.RawMessage(`{"turn":1}`), AppendOptions{Time: &minusOne}, `seq 1: "turn/start": time is negative`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newTestSession(t, tc.era)
			mustAppend(t, s, "step/start", `{"turn":1,"step":1}`, AppendOptions{})
			e, err := s.Append(tc.typ, tc.data, tc.opts)
			got := ""
			if err != nil {
				got = err.Error()
				var se *SessionError
				if !errors.As(err, &se) || e != nil || s.Seq() != 1 {
					t.Errorf("error %T, event %v, seq %d", err, e, s.Seq())
				}
			} else if s.Seq() != 2 || !jsjson.Canonical(e.JSON) {
				t.Errorf("seq %d, event %s", s.Seq(), e.JSON)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestSessionHeader(t *testing.T) {
	meta := SessionMeta{ID: "s\"1", CreatedAt: 5, Cwd: "/w", ParentSession: "p", SeedLength: 2, Origin: "subagent", DelegationDepth: 1, AgentPreset: "x"}
	for _, tc := range []struct {
		era  Era
		meta SessionMeta
		want string
	}{
		{E13, meta, `{"type":"session","version":0,"id":"s\"1","createdAt":5,"cwd":"/w","parentSession":"p","seedLength":2,"origin":"subagent","delegationDepth":1,"agentPreset":"x"}`},
		{E13, SessionMeta{ID: "s"}, `{"type":"session","version":0,"id":"s","createdAt":0,"delegationDepth":0}`},
		{E5, SessionMeta{ID: "s", CreatedAt: 5, Cwd: `C:\w`, SeedLength: 1}, `{"type":"session","version":0,"id":"s","createdAt":5,"cwd":"C:\\w","seedLength":1}`},
		{E0, SessionMeta{ID: "s"}, `{"type":"session","version":1,"id":"s","createdAt":0}`},
		{E13, SessionMeta{}, "!session header: id is empty"},
		{E13, SessionMeta{ID: "\xff"}, "!session header: id is no text"},
		{E13, SessionMeta{ID: "s", Cwd: "w"}, "!session header: cwd is not an absolute path"},
		{E13, SessionMeta{ID: "s", CreatedAt: -1}, "!session header: createdAt is no time"},
		{E13, SessionMeta{ID: "s", SeedLength: -1}, "!session header: seedLength is negative or too large"},
		{E0, SessionMeta{ID: "s", SeedLength: 1}, "!session header: this era writes no seedLength"},
		{E13, SessionMeta{ID: "s", Origin: "x"}, `!session header: origin is neither absent nor "subagent"`},
		{E8, SessionMeta{ID: "s", Origin: "subagent"}, "!session header: this era writes no origin"},
		{E13, SessionMeta{ID: "s", DelegationDepth: -1}, "!session header: delegationDepth is negative or too large"},
		{E5, SessionMeta{ID: "s", DelegationDepth: 1}, "!session header: this era writes no delegationDepth"},
		{E9, SessionMeta{ID: "s", AgentPreset: "x"}, "!session header: this era writes no agentPreset"},
	} {
		s, err := NewSessionOf(tc.era, tc.meta)
		got := ""
		if err != nil {
			got = "!" + err.Error()
		} else {
			h := s.Header()
			got = string(h.Raw)
			// A reader takes it for what it says.
			l, err := logfmt.NewReader(bytes.NewReader(append(bytes.Clone(h.Raw), '\n')), "made", logfmt.Options{})
			if err != nil {
				t.Errorf("%s: %v", got, err)
				continue
			}
			if diff := cmp.Diff(l.Header, h, cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "Pos" }, cmp.Ignore())); diff != "" {
				t.Errorf("%s: (-read +made)\n%s", got, diff)
			}
			*h = logfmt.Header{Raw: []byte("changed")}
			if string(s.Header().Raw) != got {
				t.Errorf("the header can be changed")
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("era %d: (-want +got)\n%s", tc.era, diff)
		}
	}
}

// A node is projected once in the session's life, whoever asks how often.
func TestDeriveMessagesOnce(t *testing.T) {
	s := newTestSession(t, Newest)
	msg := func(i int) string { return strings.Replace(aMessage, "u1", fmt.Sprint("u", i), 1) }
	want := func(projections int, ids ...int) {
		t.Helper()
		for range 3 {
			got, err := s.DeriveMessages()
			if err != nil {
				t.Fatal(err)
			}
			var texts []string
			for _, i := range ids {
				texts = append(texts, msg(i))
			}
			if diff := cmp.Diff(texts, got, cmp.Transformer("nil", func(s []string) []string { return append([]string{}, s...) })); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		}
		if s.projections != projections {
			t.Errorf("%d projections, want %d", s.projections, projections)
		}
	}
	want(0)
	for i := range 4 {
		mustAppend(t, s, "user/message", msg(i), OnSurface())
		mustAppend(t, s, "todo/write", `{}`, AppendOptions{})
	}
	want(4, 0, 1, 2, 3)
	mustAppend(t, s, "assistant/message", `{"turn":1,"step":1,"message":{"role":"assistant","content":[],"source":{"kind":"model","provider":"p","model":"m"},"id":"a"}}`, OnSurface())
	want(5, 0, 1, 2, 3) // takes a place, says nothing
	mustAppend(t, s, "user/message", msg(9), AppendOptions{Op: OpReplace(2, 4), Sources: []int64{2, 4}})
	want(6, 0, 9, 3)
	mustAppend(t, s, "user/message", msg(5), OnSurface())
	mustAppend(t, s, "user/message", msg(6), AppendOptions{Op: OpReplace(10, 10), Sources: []int64{10}})
	want(7, 0, 9, 3, 6) // the node that came and went was never asked for
	if n := len(s.messages); n != 5 {
		t.Errorf("%d messages are kept, want those of the surface and no others: 5", n)
	}
	v, err := s.Surface()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(SurfaceView{Nodes: []int64{0, 9, 6, 8, 11}, Replacements: []Replacement{
		{Seq: 9, Start: 2, End: 4, ShadowedSeqs: []int64{2, 4}}, {Seq: 11, Start: 10, End: 10, ShadowedSeqs: []int64{10}},
	}}, v); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Nothing that goes in or comes out is a way into the log.
func TestSessionIsolation(t *testing.T) {
	seedText := []byte(`{"type":"user/message","seq":0,"time":1,"data":` + aMessage + `,"surfaceOp":"append"}`)
	seed := event(seedText)
	s, err := NewSession(SessionMeta{ID: "s"}, seed)
	if err != nil {
		t.Fatal(err)
	}
	data := json.RawMessage(`{"header":{"config":{"provider":"p","model":"m"},"system":"S"},"reason":"initial"}`)
	sources := []int64{0}
	op := OpAppend()
	appended, err := s.Append("request/header", data, AppendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Append("user/message", json.RawMessage(strings.Replace(aMessage, "u1", "u2", 1)), AppendOptions{Op: op, Sources: sources})
	if err != nil {
		t.Fatal(err)
	}
	state := func() string {
		var b strings.Builder
		for e := range s.Events() {
			fmt.Fprintf(&b, "%s %s %s %s %d\n", e.JSON, e.Data, e.Op, e.Sources, e.Seq)
		}
		m, err := s.DeriveMessages()
		v, err2 := s.Surface()
		h, err3 := s.RequestHeader()
		fmt.Fprintf(&b, "%s %v %v %s %v %v %v", m, err, v, h.JSON(), err2, err3, s.Seq())
		return b.String()
	}
	before := state()
	spoil := func(b []byte) {
		for i := range b {
			b[i] = '!'
		}
	}
	spoil(seedText)
	spoil(data)
	spoil(op)
	sources[0] = 9
	for _, e := range []*logfmt.Event{appended, second} {
		spoil(e.JSON)
		spoil(e.Data)
		spoil(e.Op)
		spoil(e.Sources)
		e.Seq = 7
	}
	for e := range s.Events() {
		spoil(e.JSON)
		spoil(e.Data)
		spoil(e.Op)
		spoil(e.Sources)
		e.Type, e.Seq = "x", 7
	}
	m, _ := s.DeriveMessages()
	m[0] = "!"
	_ = append(m[:0], "?", "?")
	v, _ := s.Surface()
	v.Nodes[0] = 9
	h, _ := s.RequestHeader()
	spoil(h.Config)
	spoil(h.System)
	h.Tools = []byte("!")
	if diff := cmp.Diff(before, state()); diff != "" {
		t.Errorf("(-before +after)\n%s", diff)
	}
	mustAppend(t, s, "user/message", strings.Replace(aMessage, "u1", "u3", 1), AppendOptions{Op: OpReplace(0, 2), Sources: []int64{0, 2}})
	v2, _ := s.Surface()
	v2.Replacements[0].ShadowedSeqs[0] = 9
	v3, _ := s.Surface()
	if diff := cmp.Diff([]int64{0, 2}, v3.Replacements[0].ShadowedSeqs); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestSessionBeforeMarkers(t *testing.T) {
	s := newTestSession(t, E1)
	legacy := func(text string) string {
		return `{"content":[{"type":"text","text":"` + text + `"}],"source":{"kind":"user"}}`
	}
	mustAppend(t, s, "user/message", legacy("a"), AppendOptions{})
	mustAppend(t, s, "assistant/message", `{"turn":1,"step":1,"content":[]}`, AppendOptions{})
	mustAppend(t, s, "steering/message", `{"turn":1,"content":[],"source":{"kind":"user"}}`, AppendOptions{})
	got, err := s.DeriveMessages()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{
		`{"role":"user","content":[{"type":"text","text":"a"}]}`,
		`{"role":"user","content":[{"type":"text","text":"<steering source=\"user\">"},{"type":"text","text":"</steering>"}]}`,
	}, got); diff != "" {
		t.Errorf("scan (-want +got)\n%s", diff)
	}
	mustAppend(t, s, "user/message", legacy("b"), OnSurface())
	if got, err = s.DeriveMessages(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{`{"role":"user","content":[{"type":"text","text":"b"}]}`}, got); diff != "" {
		t.Errorf("with a marker (-want +got)\n%s", diff)
	}
}

// An event that an old era accepts and then cannot derive.
func TestDeriveMessagesError(t *testing.T) {
	s := newTestSession(t, E3)
	mustAppend(t, s, "context/message", `{"content":[]}`, OnSurface())
	for range 2 {
		_, err := s.DeriveMessages()
		var se *ShapeError
		if !errors.As(err, &se) || se.Path != "data.source" {
			t.Errorf("error %v", err)
		}
	}
	mustAppend(t, s, "user/message", `{"content":[],"source":{"kind":"user"}}`, AppendOptions{Op: OpReplace(0, 0)})
	got, err := s.DeriveMessages()
	if diff := cmp.Diff([]string{`{"role":"user","content":[]}`}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	mustAppend(t, s, "request/header-delta", `{}`, AppendOptions{})
	mustAppend(t, s, "request/header", `{"header":{"config":{}},"reason":"initial"}`, AppendOptions{})
	if _, err := s.RequestHeader(); !errors.Is(err, ErrNoSnapshot) {
		t.Errorf("error %v, want that of the delta without a snapshot", err)
	}
}

// The harness's own session took or refused these logs as seeds.
func TestSessionCorpus(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	read := func(path string) (seed []*logfmt.Event, l *logfmt.Log) {
		l, err := logfmt.OpenFile(path, logfmt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for e, _ := range l.Events() {
			if e != nil && !e.AfterDamage {
				seed = append(seed, e.Clone())
			}
		}
		if c := l.Class(); c != logfmt.Intact && c != logfmt.Torn || l.Header.Format().Version != 0 {
			return nil, nil
		}
		return seed, l
	}
	n, damaged := 0, 0
	verdicts, err := filepath.Glob(filepath.Join(dir, "head", "*", "verdict.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range verdicts {
		var verdict struct {
			SessionCreate json.RawMessage
		}
		raw, err := os.ReadFile(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &verdict); err != nil {
			t.Fatal(err)
		}
		log := filepath.Join(filepath.Dir(v), "session.jsonl")
		if _, err := os.Stat(log); err != nil || verdict.SessionCreate == nil {
			continue
		}
		name := filepath.Base(filepath.Dir(v))
		seed, l := read(log)
		if l == nil || l.Header == nil {
			damaged++ // no reader hands these on
			continue
		}
		n++
		want := string(verdict.SessionCreate)
		accepted := want == `"ok"` || strings.Contains(want, `"ok": true`) || strings.Contains(want, `"ok":true`)
		s, err := NewStore().Create(CreateOptions{Seed: seed, Meta: SessionMeta{ID: "seeded"}})
		if accepted != (err == nil) {
			t.Errorf("%s: %v, want accepted %v", name, err, accepted)
			continue
		}
		var count struct{ Events int64 }
		if err == nil && want != `"ok"` {
			if json.Unmarshal(verdict.SessionCreate, &count); count.Events != s.Seq() {
				t.Errorf("%s: %d events, want %d", name, s.Seq(), count.Events)
			}
		}
	}
	if n != 94 || damaged != 14 {
		t.Errorf("head: %d seeds and %d damaged logs, want 94 and 14", n, damaged)
	}
	t.Logf("head: %d seeds", n)

	n, damaged = 0, 0
	eras := map[string]Era{"a": E1, "b": E3, "b2": E4, "c": E6}
	verdicts, err = filepath.Glob(filepath.Join(dir, "july", "*", "verdict.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range verdicts {
		var verdict struct {
			Era    string
			Stages map[string]string
		}
		raw, err := os.ReadFile(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &verdict); err != nil {
			t.Fatal(err)
		}
		log := filepath.Join(filepath.Dir(v), "session.jsonl")
		if _, err := os.Stat(log); err != nil || verdict.Stages["seed"] == "" {
			continue
		}
		name := filepath.Base(filepath.Dir(v))
		seed, l := read(log)
		if l == nil || l.Header == nil {
			damaged++
			continue
		}
		n++
		// What was seeded here had been loaded, and so repaired, before.
		seed = append(seed, Closers(slices.Values(seed), CloserMarked, DefaultCloserTexts)...)
		got := map[string]string{"seed": "ok"}
		s, err := NewSessionOf(eras[verdict.Era], SessionMeta{ID: "seeded"}, seed...)
		if err != nil {
			got["seed"] = "reject"
		} else {
			view, err := s.Surface()
			got["surface"] = "ok " + string(appendSeqs(nil, view.Nodes))
			if err != nil {
				got["surface"] = "reject"
			}
			messages, err := s.DeriveMessages()
			got["derive"] = fmt.Sprintf("ok (%d messages)", len(messages))
			if err != nil {
				got["derive"] = "reject"
			}
			h, err := s.RequestHeader()
			got["fold"] = "ok " + string(h.JSON())
			if h == nil {
				got["fold"] = "ok undefined"
			}
			if err != nil {
				got["fold"] = "reject"
			}
		}
		want := map[string]string{}
		for stage := range got {
			w := verdict.Stages[stage]
			if strings.HasPrefix(w, "reject") || strings.HasPrefix(w, "error") {
				w = "reject"
			}
			if w == "" {
				delete(got, stage)
				continue
			}
			want[stage] = w
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", name, err, diff)
		}
	}
	if n != 84 || damaged != 0 {
		t.Errorf("july: %d seeds and %d damaged logs, want 84 and 0", n, damaged)
	}
	t.Logf("july: %d seeds", n)
}
