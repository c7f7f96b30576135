package fold

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

func one(t *testing.T, text string) *logfmt.Event {
	t.Helper()
	b, _, err := jsjson.Stringify([]byte(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	e := event(b)
	if e.Seq < 0 {
		e.Seq = 7
	}
	return e
}

// Every projection of every shape, by build.
func TestDeriveByBuild(t *testing.T) {
	text := `[{"type":"text","text":"A"}]`
	prov := `{"provider":"p","model":"m"}`
	legacyUser := `{"type":"user/message","data":{"content":` + text + `,"source":{"kind":"user"},"meta":1}}`
	legacyTool := `{"type":"tool/result","data":{"turn":1,"step":1,"callId":"c","content":` + text + `,"isError":true,"meta":1}}`
	context := `{"type":"context/message","data":{"content":` + text + `,"source":{"kind":"plugin","plugin":"p"},"envelope":"raw"}}`
	framed := `{"type":"context/message","data":{"content":` + text + `,"source":{"kind":"plugin","plugin":"p"},"envelope":"context"}}`
	steering := `{"type":"steering/message","data":{"turn":1,"content":` + text + `,"source":{"kind":"user"}}}`
	assistant := `{"type":"assistant/message","data":{"turn":1,"step":1,"content":` + text + `,"provenance":` + prov + `,"usage":{}}}`
	emptyAssistant := `{"type":"assistant/message","data":{"turn":1,"step":1,"content":[],"provenance":` + prov + `}}`
	ids := func(seq int64) []byte {
		if seq == 3 {
			return []byte(`"m3"`)
		}
		return nil
	}
	at := func(era Era) Projection { return ProjectionOf(era, "s\"1", ids) }
	const id = `"legacy-message:s\"1:7"`
	user := `{"role":"user","content":` + text + `}`
	tagged := func(tag, kind string) string {
		return `{"role":"user","content":[{"type":"text","text":"<` + tag + ` source=\"` + kind + `\">"},{"type":"text","text":"A"},{"type":"text","text":"</` + tag + `>"}]}`
	}
	block := `[{"type":"tool-result","toolCallId":"c","content":` + text + `,"isError":true}]`

	for _, tc := range []struct {
		name, event string
		p           Projection
		want        string // "" for none, an error's text behind "!"
	}{
		{"E0 user", legacyUser, at(E0), user},
		{"E8 user", legacyUser, at(E8), user},
		{"E9 user", legacyUser, at(E9), `{"content":` + text + `,"source":{"kind":"user"},"meta":1,"id":` + id + `,"role":"user"}`},
		{"E13 user", legacyUser, at(E13), `{"content":` + text + `,"source":{"kind":"user"},"meta":1,"id":` + id + `,"role":"user"}`},

		{"E0 empty assistant", emptyAssistant, at(E0), `{"role":"assistant","content":[]}`},
		{"E1 empty assistant", emptyAssistant, at(E1), ""},
		{"E5 empty assistant", emptyAssistant, at(E5), ""},
		{"E9 empty assistant", emptyAssistant, at(E9), ""},
		{"E4 assistant", assistant, at(E4), `{"role":"assistant","content":` + text + `}`},
		{"E5 assistant", assistant, at(E5), `{"role":"assistant","content":` + text + `,"provenance":` + prov + `}`},
		{"E8 assistant", assistant, at(E8), `{"role":"assistant","content":` + text + `,"provenance":` + prov + `}`},
		{"E9 assistant", assistant, at(E9), `{"id":` + id + `,"role":"assistant","content":` + text + `,"source":{"provider":"p","model":"m","kind":"model"}}`},
		{"a kind in provenance keeps its place", strings.Replace(assistant, `{"provider"`, `{"kind":"x","provider"`, 1), at(E9),
			`{"id":` + id + `,"role":"assistant","content":` + text + `,"source":{"kind":"model","provider":"p","model":"m"}}`},
		{"empty provenance", strings.Replace(assistant, prov, `{}`, 1), at(E9),
			`{"id":` + id + `,"role":"assistant","content":` + text + `,"source":{"kind":"model"}}`},
		{"no provenance", strings.Replace(assistant, `,"provenance":`+prov, ``, 1), at(E9),
			"!seq 7: assistant/message: data.provenance is absent, want an object"},

		{"E8 tool", legacyTool, at(E8), `{"role":"user","content":` + block + `}`},
		{"E9 tool", legacyTool, at(E9), `{"id":` + id + `,"role":"user","content":` + block + `,"source":{"kind":"tool","callId":"c"}}`},
		{"E9 rewritten tool", strings.Replace(legacyTool, `}}`, `},"surfaceOp":{"op":"replace","start":3,"end":3}}`, 1), at(E9),
			`{"id":"m3","role":"user","content":` + block + `,"source":{"kind":"tool","callId":"c"}}`},
		{"E9 rewritten tool of nothing", strings.Replace(legacyTool, `}}`, `},"surfaceOp":{"op":"replace","start":4,"end":4}}`, 1), at(E9),
			"!seq 7: tool/result: surfaceOp.start is a number that names none, want the seq of an event with a message id"},
		{"E9 tool without isError", strings.Replace(legacyTool, `"isError":true,`, ``, 1), at(E9),
			"!seq 7: tool/result: data.isError is absent, want a boolean"},

		{"E3 context", framed, at(E3), tagged("context", "plugin")},
		{"E3 raw context", context, at(E3), user},
		{"E5 raw context", context, at(E5), user},
		{"E6 context", framed, at(E6), user},
		{"E9 context", context, at(E9), "!seq 7: context/message: type is older, want a type that builds since 07-24 load"},

		{"E3 steering", steering, at(E3), tagged("steering", "user")},
		{"E3 raw steering", strings.Replace(steering, `}}}`, `},"envelope":"raw"}}`, 1), at(E5), tagged("steering", "user")},
		{"E6 steering", steering, at(E6), user},
		{"E9 steering", steering, at(E9), `{"id":` + id + `,"role":"user","content":` + text + `,"source":{"kind":"user"}}`},
		{"E9 steering with meta", strings.Replace(steering, `"turn":1,`, `"turn":1,"meta":1,`, 1), at(E9),
			`{"id":` + id + `,"role":"user","content":` + text + `,"source":{"kind":"user"}}`},
		{"E10 steering", steering, at(E10), `{"content":` + text + `,"source":{"kind":"user"},"id":` + id + `,"role":"user"}`},
		{"E10 steering in another order", `{"type":"steering/message","data":{"source":{"kind":"user"},"turn":1,"content":` + text + `}}`, at(E10),
			`{"source":{"kind":"user"},"content":` + text + `,"id":` + id + `,"role":"user"}`},
		{"E10 steering with meta", strings.Replace(steering, `"turn":1,`, `"turn":1,"meta":1,`, 1), at(E10),
			"!seq 7: steering/message: data is an object of 4, want 3 keys"},
		{"E10 steering without turn", strings.Replace(steering, `"turn":1,`, ``, 1), at(E10),
			"!seq 7: steering/message: data.turn is absent, want an integer"},
		{"identified steering", `{"type":"steering/message","data":{"turn":1,"message":{"id":"x","role":"user","content":[],"source":{"kind":"user"}}}}`, at(E10),
			`{"id":"x","role":"user","content":[],"source":{"kind":"user"}}`},
		{"wrapped steering without identity", `{"type":"steering/message","data":{"turn":1,"message":{"content":[],"source":{"kind":"user"}}}}`, at(E10),
			`{"content":[],"source":{"kind":"user"},"id":` + id + `,"role":"user"}`},

		{"half an identity", `{"type":"user/message","data":{"content":[],"source":{"kind":"user"},"id":"x"}}`, at(E9),
			`!seq 7: user/message: data.role is absent, want "user"`},
		{"the other half", `{"type":"user/message","data":{"content":[],"source":{"kind":"user"},"role":"user"}}`, at(E9),
			"!seq 7: user/message: data.id is absent, want a string"},
		{"no content", `{"type":"user/message","data":{"source":{"kind":"user"}}}`, at(E4), "!seq 7: user/message: data.content is absent, want an array"},
		{"content of another kind", `{"type":"user/message","data":{"content":"x","source":{"kind":"user"}}}`, at(E4), "!seq 7: user/message: data.content is a string, want an array"},
		{"no source on import", `{"type":"user/message","data":{"content":[]}}`, at(E9), "!seq 7: user/message: data.source is absent, want an object"},
		{"no data", `{"type":"tool/result"}`, at(E4), "!seq 7: tool/result: data is absent, want an object"},
		{"null data", `{"type":"tool/result","data":null}`, at(E4), "!seq 7: tool/result: data is null, want an object"},
		{"no call", `{"type":"tool/result","data":{"content":[]}}`, at(E4), "!seq 7: tool/result: data.callId is absent, want a string"},
		{"a message that is none", `{"type":"tool/result","data":{"message":[]}}`, at(E9), "!seq 7: tool/result: data.message is an array, want an object"},
		{"a message without content", `{"type":"assistant/message","data":{"message":{}}}`, at(E9), "!seq 7: assistant/message: data.message.content is absent, want an array"},
		{"no type at all", `{"data":{"content":[]}}`, at(E9), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			msg, err := DeriveEventMessage(one(t, tc.event), tc.p)
			got := string(msg)
			if err != nil {
				var se *ShapeError
				if !errors.As(err, &se) || msg != nil {
					t.Errorf("error %T with message %s", err, msg)
				}
				got = "!" + err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if msg != nil && !jsjson.Canonical(msg) {
				t.Errorf("not canonical: %s", msg)
			}
		})
	}
}

// What the harness makes of older events when it loads them.
func TestVectorsImport(t *testing.T) {
	refused := map[string]string{
		"steeringWithEnvelope":  "seq 1: steering/message: data is an object of 4, want 3 keys",
		"contextMessage":        "seq 1: context/message: type is older, want a type that builds since 07-24 load",
		"assistantNoProvenance": "seq 1: assistant/message: data.provenance is absent, want an object",
	}
	n, messages := 0, 0
	for _, v := range vectors(t, filepath.Join("testdata", "import.json")) {
		n++
		name := str(t, v, "name")
		ids := map[int64][]byte{}
		p := Imported(str(t, v, "session"), func(seq int64) []byte { return ids[seq] })
		loaded := jsjson.Get(v, "loaded")
		var failed error
		i := 0
		for e := range eventSeq(jsjson.Get(v, "events")) {
			msg, err := DeriveEventMessage(e, p)
			if err != nil {
				failed = err
				break
			}
			if id := EventMessageID(e, p); id != nil {
				ids[e.Seq] = id
			}
			if loaded != nil {
				after := event(jsjson.Index(loaded, i))
				want, err := DeriveEventMessage(after, p)
				if err != nil {
					t.Errorf("%s: seq %d: loaded event: %v", name, e.Seq, err)
				}
				if diff := cmp.Diff(string(want), string(msg)); diff != "" {
					t.Errorf("%s: seq %d: (-want +got)\n%s", name, e.Seq, diff)
				}
				if want != nil {
					messages++
				}
			}
			i++
		}
		got := ""
		if failed != nil {
			got = failed.Error()
		}
		if diff := cmp.Diff(refused[name], got); diff != "" {
			t.Errorf("%s: refusal (-want +got)\n%s", name, diff)
		}
	}
	if n != 6 || messages != 7 {
		t.Errorf("%d vectors with %d messages, want 6 with 7", n, messages)
	}
}

func TestEventMessageID(t *testing.T) {
	p := Imported("s", func(seq int64) []byte { return []byte(`"r"`) })
	for _, tc := range []struct {
		event, want string
		p           Projection
	}{
		{`{"type":"user/message","data":{"id":"a","role":"user"}}`, `"a"`, Framed()},
		{`{"type":"user/message","data":{"content":[],"source":{}}}`, ``, Verbatim()},
		{`{"type":"user/message","data":{"content":[],"source":{}}}`, `"legacy-message:s:7"`, p},
		{`{"type":"assistant/message","data":{"message":{"id":"b","content":[]}}}`, `"b"`, Framed()},
		{`{"type":"assistant/message","data":{"content":[],"provenance":{}}}`, `"legacy-message:s:7"`, p},
		{`{"type":"assistant/message","data":{"content":[]}}`, ``, p},
		{`{"type":"tool/result","data":{"message":{"id":7}}}`, ``, p},
		{`{"type":"tool/result","data":{"callId":"c","content":[],"isError":false},"surfaceOp":{"op":"replace","start":1,"end":1}}`, `"r"`, p},
		{`{"type":"turn/start","data":{"turn":1}}`, ``, p},
		{`{"type":"turn/start"}`, ``, p},
	} {
		if got := string(EventMessageID(one(t, tc.event), tc.p)); got != tc.want {
			t.Errorf("%s: id %s, want %s", tc.event, got, tc.want)
		}
	}
}

// Today's events are their own messages: a slice, not a copy.
func TestDeriveDoesNotAllocate(t *testing.T) {
	for _, text := range []string{
		`{"type":"user/message","data":{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}}`,
		`{"type":"assistant/message","data":{"turn":1,"message":{"role":"assistant","content":[{}],"id":"u"}}}`,
		`{"type":"tool/result","data":{"message":{"id":"u"}}}`,
	} {
		e := one(t, text)
		p := ProjectionOf(E13, "s", nil)
		var msg []byte
		if n := testing.AllocsPerRun(100, func() { msg, _ = DeriveEventMessage(e, p) }); n != 0 {
			t.Errorf("%s: %v allocations", e.Type, n)
		}
		if i := strings.Index(string(e.Data), string(msg)); len(msg) == 0 || &e.Data[i] != &msg[0] {
			t.Errorf("%s: the message is not a slice of the data", e.Type)
		}
	}
}

func FuzzDeriveEventMessage(f *testing.F) {
	for _, typ := range []string{"user/message", "assistant/message", "tool/result", "context/message", "steering/message"} {
		f.Add(typ, []byte(`{"turn":1,"content":[{"type":"text","text":"\ud83d"}],"source":{"kind":{"a":[1]}},"callId":"c","isError":1,"provenance":{"1":2}}`), []byte(`{"op":"replace","start":3}`))
		f.Add(typ, []byte(`{"turn":1,"message":{"id":"x","role":"user","content":[],"source":{"kind":"user"}}}`), []byte(`"append"`))
		f.Add(typ, []byte(`{"content":[],"source":null,"id":null}`), []byte(`7`))
		f.Add(typ, []byte(`[]`), []byte(`{}`))
	}
	f.Fuzz(func(t *testing.T, typ string, data, op []byte) {
		e := &logfmt.Event{Type: typ, Seq: 7}
		var err error
		if e.Data, _, err = jsjson.Stringify(data); err != nil {
			e.Data = nil
		}
		if e.Op, _, err = jsjson.Stringify(op); err != nil {
			e.Op = nil
		}
		before := string(e.Data)
		for era := E0; era <= E13; era++ {
			p := ProjectionOf(era, "s\xed\xa0\xbd", func(seq int64) []byte {
				if seq%2 == 1 {
					return []byte(`"m"`)
				}
				return nil
			})
			msg, err := DeriveEventMessage(e, p)
			var se *ShapeError
			switch {
			case err != nil && (msg != nil || !errors.As(err, &se) || se.Path == "" || se.Want == "" || se.Got == ""):
				t.Errorf("era %d: message %s with error %v", era, msg, err)
			case msg != nil && !jsjson.Canonical(msg):
				t.Errorf("era %d: not canonical: %s", era, msg)
			case msg != nil && jsjson.KindOf(msg) != jsjson.Object:
				t.Errorf("era %d: no object: %s", era, msg)
			}
			EventMessageID(e, p)
		}
		if string(e.Data) != before {
			t.Error("the event was changed")
		}
	})
}

// What depends on nothing but the era.
func TestByEra(t *testing.T) {
	replay := map[ReplayRule][]Era{}
	closer := map[CloserForm][]Era{}
	for era := E0; era <= E13; era++ {
		r, c := ReplayRuleOf(era), CloserFormOf(era)
		replay[r] = append(replay[r], era)
		closer[c] = append(closer[c], era)
	}
	if diff := cmp.Diff(map[ReplayRule][]Era{
		ReplayNever: {E0, E1, E2, E3, E4}, ReplayIfUnchanged: {E5, E6, E7, E8}, ReplayAsIs: {E9, E10, E11}, ReplayTrimmed: {E12, E13},
	}, replay); diff != "" {
		t.Errorf("replay (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(map[CloserForm][]Era{
		CloserUnmarked: {E0, E1}, CloserMarked: {E2, E3, E4, E5, E6}, CloserOutcome: {E7, E8}, CloserIdentified: {E9, E10, E11, E12, E13},
	}, closer); diff != "" {
		t.Errorf("closers (-want +got)\n%s", diff)
	}
}
