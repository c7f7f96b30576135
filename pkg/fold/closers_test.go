package fold

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

func log(lines ...string) func(func(*logfmt.Event) bool) {
	return func(yield func(*logfmt.Event) bool) {
		for i, l := range lines {
			raw := []byte(`{"type":` + l)
			if !strings.Contains(l, `"seq"`) {
				typ, rest, _ := strings.Cut(l, ",")
				raw = []byte(`{"type":` + typ + `,"seq":` + strconv.FormatInt(int64(i), 10) + `,"time":` + strconv.FormatInt(int64(100+i), 10) + `,` + rest)
			}
			if !jsjson.Canonical(raw) {
				panic("not canonical: " + string(raw))
			}
			if !yield(event(raw)) {
				return
			}
		}
	}
}

func jsonLines(events []*logfmt.Event) (out []string) {
	for _, e := range events {
		out = append(out, string(e.JSON))
	}
	return out
}

func TestClosers(t *testing.T) {
	texts := CloserTexts{Lost: "L", Started: "S", NotStarted: "N"}
	legacy := []string{
		`"turn/start","data":{"turn":1}}`,
		`"step/start","data":{"turn":1,"step":2}}`,
		`"assistant/message","data":{"turn":1,"step":2,"content":[{"type":"text","text":"a"},{"type":"tool-call","id":"c1"},{"type":"tool-call","id":"c\"2"}]}}`,
		`"tool/call","data":{"turn":1,"step":2,"callId":"c1"}}`,
	}
	identified := slices.Clone(legacy)
	identified[2] = `"assistant/message","data":{"turn":1,"step":2,"message":{"content":[{"type":"tool-call","id":"c1"},{"type":"tool-call","id":"c\"2"}]}}}`
	end := func(seq string) []string {
		n, _ := jsjson.SafeInt([]byte(seq))
		return []string{
			`{"type":"step/end","seq":` + seq + `,"time":103,"data":{"turn":1,"step":2}}`,
			`{"type":"turn/end","seq":` + strconv.FormatInt(n+1, 10) + `,"time":103,"data":{"turn":1,"reason":{"kind":"interrupted"}}}`,
		}
	}
	for _, tc := range []struct {
		name string
		log  []string
		form CloserForm
		want []string
	}{
		{name: "empty log", form: CloserIdentified},
		{name: "closed turn", log: []string{legacy[0], `"turn/end","data":{"turn":1,"reason":{"kind":"completed"}}}`}},
		{name: "before any turn", log: []string{`"session/end-seed","data":{}}`}},
		{
			name: "unmarked", log: legacy, form: CloserUnmarked,
			want: append([]string{
				`{"type":"tool/result","seq":4,"time":103,"data":{"turn":1,"step":2,"callId":"c1","content":[{"type":"text","text":"L"}],"isError":true,"error":{"name":"InterruptedError","code":"interrupted"}}}`,
				`{"type":"tool/result","seq":5,"time":103,"data":{"turn":1,"step":2,"callId":"c\"2","content":[{"type":"text","text":"L"}],"isError":true,"error":{"name":"InterruptedError","code":"interrupted"}}}`,
			}, end("6")...),
		},
		{
			name: "marked", log: legacy, form: CloserMarked,
			want: append([]string{
				`{"type":"tool/result","seq":4,"time":103,"data":{"turn":1,"step":2,"callId":"c1","content":[{"type":"text","text":"L"}],"isError":true,"error":{"name":"InterruptedError","code":"interrupted"}},"surfaceOp":"append","sourceEventSeqs":[3]}`,
				`{"type":"tool/result","seq":5,"time":103,"data":{"turn":1,"step":2,"callId":"c\"2","content":[{"type":"text","text":"L"}],"isError":true,"error":{"name":"InterruptedError","code":"interrupted"}},"surfaceOp":"append"}`,
			}, end("6")...),
		},
		{
			name: "outcome", log: legacy, form: CloserOutcome,
			want: append([]string{
				`{"type":"tool/result","seq":4,"time":103,"data":{"turn":1,"step":2,"callId":"c1","content":[{"type":"text","text":"S"}],"isError":true,"error":{"name":"ToolOutcomeUnknownError","code":"TOOL_OUTCOME_UNKNOWN"}},"surfaceOp":"append","sourceEventSeqs":[3]}`,
				`{"type":"tool/result","seq":5,"time":103,"data":{"turn":1,"step":2,"callId":"c\"2","content":[{"type":"text","text":"N"}],"isError":true,"error":{"name":"ToolNotStartedError","code":"TOOL_NOT_STARTED"}},"surfaceOp":"append"}`,
			}, end("6")...),
		},
		{
			name: "identified", log: identified, form: CloserIdentified,
			want: append([]string{
				`{"type":"tool/result","seq":4,"time":103,"data":{"turn":1,"step":2,"message":{"id":"interrupted-tool-result-c1-4","role":"user","source":{"kind":"tool","callId":"c1"},"content":[{"type":"tool-result","toolCallId":"c1","isError":true,"content":[{"type":"text","text":"S"}]}]},"error":{"name":"ToolOutcomeUnknownError","code":"TOOL_OUTCOME_UNKNOWN"}},"surfaceOp":"append","sourceEventSeqs":[3]}`,
				`{"type":"tool/result","seq":5,"time":103,"data":{"turn":1,"step":2,"message":{"id":"interrupted-tool-result-c\"2-5","role":"user","source":{"kind":"tool","callId":"c\"2"},"content":[{"type":"tool-result","toolCallId":"c\"2","isError":true,"content":[{"type":"text","text":"N"}]}]},"error":{"name":"ToolNotStartedError","code":"TOOL_NOT_STARTED"}},"surfaceOp":"append"}`,
			}, end("6")...),
		},
		{
			name: "a call made again keeps its place and is not recorded any more",
			log: append(slices.Clone(identified),
				`"tool/call","seq":4,"time":103,"data":{"callId":"c\"2"}}`,
				`"assistant/message","seq":5,"time":103,"data":{"step":2,"message":{"content":[{"type":"tool-call","id":"c1"}]}}}`,
				`"tool/result","seq":6,"time":103,"data":{"message":{"source":{"kind":"tool","callId":"c\"2"}}}}`,
			),
			form: CloserIdentified,
			want: append([]string{
				`{"type":"tool/result","seq":7,"time":103,"data":{"turn":1,"step":2,"message":{"id":"interrupted-tool-result-c1-7","role":"user","source":{"kind":"tool","callId":"c1"},"content":[{"type":"tool-result","toolCallId":"c1","isError":true,"content":[{"type":"text","text":"N"}]}]},"error":{"name":"ToolNotStartedError","code":"TOOL_NOT_STARTED"}},"surfaceOp":"append"}`,
			}, end("8")...),
		},
		{
			name: "a step that ended takes its calls with it",
			log:  append(slices.Clone(legacy), `"step/end","seq":4,"time":103,"data":{"turn":1,"step":2}}`),
			form: CloserMarked,
			want: []string{`{"type":"turn/end","seq":5,"time":103,"data":{"turn":1,"reason":{"kind":"interrupted"}}}`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Closers(log(tc.log...), tc.form, texts)
			if diff := cmp.Diff(tc.want, jsonLines(got)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			for _, e := range got {
				// The parts of an event and its text agree, and the text is canonical.
				if diff := cmp.Diff(event(e.JSON), e, cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "Pos" }, cmp.Ignore())); diff != "" {
					t.Errorf("event (-of its text +made)\n%s", diff)
				}
				if !jsjson.Canonical(e.JSON) {
					t.Errorf("not canonical: %s", e.JSON)
				}
			}
		})
	}
}

// The recorded closers hold sentences of the harness, which stay out of the
// repository: where the corpus is, its texts are read from it.
func TestVectorsClosers(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	spec, ok := corpus.Spec(t)
	if !ok {
		t.Skip("the recorded vectors are not here")
	}
	n := 0
	check := func(name string, events, want []byte, form CloserForm) {
		n++
		texts := DefaultCloserTexts
		var lines []string
		for v := range jsjson.Elements(want) {
			if s, isText := jsjson.Str(v); isText {
				v = []byte(s)
			}
			lines = append(lines, string(v))
			data := jsjson.Get(v, "data")
			content := jsjson.Get(data, "content")
			if m := jsjson.Get(data, "message"); m != nil {
				content = jsjson.Get(jsjson.Index(jsjson.Get(m, "content"), 0), "content")
			}
			if text, isText := jsjson.Str(jsjson.Get(jsjson.Index(content, 0), "text")); isText {
				switch code, _ := jsjson.Str(jsjson.Get(jsjson.Get(data, "error"), "code")); code {
				case "interrupted":
					texts.Lost = text
				case "TOOL_OUTCOME_UNKNOWN":
					texts.Started = text
				case "TOOL_NOT_STARTED":
					texts.NotStarted = text
				}
			}
		}
		if diff := cmp.Diff(lines, jsonLines(Closers(eventSeq(events), form, texts))); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
	for _, era := range []string{"a", "b", "b2", "c"} {
		for _, v := range vectors(t, filepath.Join(dir, "vectors", "july", era+"-crash-closers.json")) {
			check(era+" "+str(t, v, "name"), jsjson.Get(v, "events"), jsjson.Get(v, "result"), CloserMarked)
		}
	}
	if n != 44 {
		t.Errorf("%d vectors of July, want 44", n)
	}
	for _, v := range fileMember(t, filepath.Join(spec, "VECTORS.json"), "closers") {
		check("head "+str(t, v, "name"), jsjson.Get(v, "events"), jsjson.Get(v, "closers"), CloserFormOf(E13))
	}
	if n != 50 {
		t.Errorf("%d vectors, want 50", n)
	}
	t.Logf("%d vectors", n)
}
