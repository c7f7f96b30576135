package fold

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// authored makes a log of a header record and events without seq and time, which
// it numbers. A line may be three chunks of a stream: "chunks T S text", or a
// whole one with a finish: "stream T S text kind".
func authored(tb testing.TB, header string, lines ...string) *logfmt.Log {
	tb.Helper()
	var b strings.Builder
	b.WriteString(header + "\n")
	seq := 0
	emit := func(event string) {
		i := strings.Index(event, `,"data"`)
		fmt.Fprintf(&b, "%s,\"seq\":%d,\"time\":%d%s\n", event[:i], seq, seq, event[i:])
		seq++
	}
	for _, l := range lines {
		w := strings.Fields(l)
		switch w[0] {
		case "gap":
			n, _ := strconv.Atoi(w[1])
			seq += n
		case "chunks", "stream":
			chunk := func(c string) {
				emit(`{"type":"assistant/chunk","data":{"turn":` + w[1] + `,"step":` + w[2] + `,"chunk":` + c + `}}`)
			}
			chunk(`{"type":"text-delta","index":0,"text":"` + w[3] + `"}`)
			if w[0] == "stream" {
				chunk(`{"type":"finish","reason":{"kind":"` + w[4] + `"}}`)
			}
		default:
			emit(l)
		}
	}
	log, err := logfmt.NewReader(strings.NewReader(b.String()), "authored.jsonl", logfmt.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return log
}

// outline folds a log and describes each request in a line, with its body.
func outline(tb testing.TB, log *logfmt.Log, o Options) string {
	tb.Helper()
	var b strings.Builder
	for q, err := range Requests(log, o) {
		if err != nil {
			fmt.Fprintf(&b, "defect %s\n", err.(*logfmt.Defect).Rule)
			continue
		}
		fmt.Fprintf(&b, "%d.%d.%d %s %s %s@%d", q.Turn, q.Step, q.Attempt, q.Grade, q.Mode, q.Boundary.Rule, q.Boundary.Seq)
		if q.HeaderSeq >= 0 {
			fmt.Fprintf(&b, " %s@%d", q.HeaderReason, q.HeaderSeq)
			if q.HeaderOwn {
				b.WriteString("!")
			}
		}
		fmt.Fprintf(&b, " chunks %d-%d", q.FirstChunk, q.LastChunk)
		if q.Response >= 0 {
			fmt.Fprintf(&b, " response %d", q.Response)
		}
		if q.Finish != "" {
			fmt.Fprintf(&b, " %s", q.Finish)
		}
		for _, x := range []struct {
			name string
			list []int64
		}{{"after-header", q.AfterHeader}, {"late", q.Late}} {
			if len(x.list) > 0 {
				fmt.Fprintf(&b, " %s %v", x.name, x.list)
			}
		}
		if q.Inherited {
			b.WriteString(" inherited")
		}
		for _, r := range q.Reasons {
			b.WriteString(" ?" + r)
		}
		for _, r := range q.Assumptions {
			b.WriteString(" ~" + r)
		}
		if q.Candidate != "" {
			fmt.Fprintf(&b, " (%s)", q.Candidate)
		}
		fmt.Fprintf(&b, "\n  %s\n", q.AppendBody(nil))
	}
	return b.String()
}

const (
	headNew   = `{"type":"session","version":0,"id":"s","createdAt":0,"delegationDepth":0}`
	headOld   = `{"type":"session","version":0,"id":"s","createdAt":0}`
	turn1     = `{"type":"turn/start","data":{"turn":1}}`
	turn1old  = `{"type":"turn/start","data":{"turn":1,"trigger":{"kind":"message","source":{"kind":"user"}}}}`
	turn2     = `{"type":"turn/start","data":{"turn":2}}`
	turn2old  = `{"type":"turn/start","data":{"turn":2,"trigger":{"kind":"message","source":{"kind":"user"}}}}`
	step11    = `{"type":"step/start","data":{"turn":1,"step":1}}`
	step21    = `{"type":"step/start","data":{"turn":2,"step":1}}`
	endStep11 = `{"type":"step/end","data":{"turn":1,"step":1}}`
	endStep21 = `{"type":"step/end","data":{"turn":2,"step":1}}`
	endTurn1  = `{"type":"turn/end","data":{"turn":1,"reason":{"kind":"completed"}}}`
	headPM    = `{"type":"request/header","data":{"header":{"config":{"provider":"p","model":"m"}},"reason":"initial"}}`
	headM     = `{"type":"request/header","data":{"header":{"config":{"model":"m"}},"reason":"initial"}}`
)

// asked is a user message of E9 on, asked0 a legacy one.
func asked(id string) string {
	return `{"type":"user/message","data":{"content":[],"source":{"kind":"user"},"role":"user","id":"` + id + `"},"surfaceOp":"append"}`
}

func asked0(text, op string) string {
	return `{"type":"user/message","data":{"content":[{"type":"text","text":"` + text + `"}],"source":{"kind":"user"}}` + op + `}`
}

const withOp = `,"surfaceOp":"append"`

func answered(id string) string {
	return `{"type":"assistant/message","data":{"turn":1,"step":1,"message":{"role":"assistant","content":[1],"source":{"kind":"model"},"id":"` + id + `"}},"surfaceOp":"append"}`
}

func answered0(turn, content, more, op string) string {
	return `{"type":"assistant/message","data":{"turn":` + turn + `,"step":1,"content":` + content + more + `}` + op + `}`
}

func TestAuthoredRequests(t *testing.T) {
	cases := []struct {
		name   string
		header string
		opts   Options
		events []string
		want   string
	}{
		{"attempts of a step", headNew, Options{}, []string{
			turn1, step11, asked("u"), headPM, "stream 1 1 x error",
			`{"type":"llm/retry","data":{"retryId":"r","turn":1,"step":1,"retry":1}}`,
			`{"type":"llm/retry-started","data":{"retryId":"r","turn":1,"step":1,"retry":1}}`,
			"stream 1 1 a stop", answered("a"), endStep11, endTurn1,
		}, `1.1.1 exact surface first-chunk@4 initial@3! chunks 4-5 error
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}
1.1.2 exact surface first-chunk@8 initial@3 chunks 8-9 response 10 stop ~config-key-order
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}
`},
		{"the surface changes between attempts", headNew, Options{}, []string{
			turn1, step11, asked("u"), headPM, "stream 1 1 x error",
			`{"type":"compaction/start","data":{"compactionId":"k","turn":1}}`,
			`{"type":"user/message","data":{"content":[],"source":{"kind":"plugin"},"role":"user","id":"k"},"sourceEventSeqs":[6,2],"surfaceOp":{"op":"replace","start":2,"end":2}}`,
			`{"type":"compaction/end","data":{"compactionId":"k","turn":1}}`,
			"chunks 1 1 a",
		}, `1.1.1 exact surface first-chunk@4 initial@3! chunks 4-5 error
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}
1.1.2 exact surface first-chunk@9 initial@3 chunks 9-9 ~config-key-order
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"plugin"},"role":"user","id":"k"}],"sessionId":"s"}
`},
		{"the same, cancelled after the compaction", headNew, Options{}, []string{
			turn1, step11, asked("u"), headPM, "stream 1 1 x error",
			`{"type":"compaction/start","data":{"compactionId":"k","turn":1}}`,
			`{"type":"compaction/end","data":{"compactionId":"k","turn":1}}`,
			endStep11,
		}, `1.1.1 exact surface first-chunk@4 initial@3! chunks 4-5 error
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}
1.1.2 ambiguous surface attempt-end@8 initial@3 chunks -1--1 ?dispatch-unknown ~config-key-order (the compaction after a failed attempt is not followed by a chunk)
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}
`},
		{"a failed compaction proves nothing", headNew, Options{}, []string{
			turn1, step11, asked("u"), headPM, "stream 1 1 x error",
			`{"type":"compaction/start","data":{"compactionId":"k","turn":1}}`,
			`{"type":"compaction/end","data":{"compactionId":"k","turn":1,"error":"e"}}`,
			endStep11,
		}, `1.1.1 exact surface first-chunk@4 initial@3! chunks 4-5 error
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}
`},
		{"a retry that left no chunk", headNew, Options{}, []string{
			turn1, step11, asked("u"), headPM, "stream 1 1 x error",
			`{"type":"llm/retry","data":{"retryId":"r","turn":1,"step":1,"retry":1}}`,
			`{"type":"llm/retry-started","data":{"retryId":"r","turn":1,"step":1,"retry":1}}`,
			endStep11,
		}, `1.1.1 exact surface first-chunk@4 initial@3! chunks 4-5 error
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}
1.1.2 ambiguous surface attempt-end@8 initial@3 chunks -1--1 ?dispatch-unknown ~config-key-order (llm/retry-started is not followed by a chunk)
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}
`},
		{"a retry that was only scheduled", headNew, Options{}, []string{
			turn1, step11, asked("u"), headPM, "stream 1 1 x error",
			`{"type":"llm/retry","data":{"retryId":"r","turn":1,"step":1,"retry":1}}`, endStep11,
		}, `1.1.1 exact surface first-chunk@4 initial@3! chunks 4-5 error
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}
`},
		{"a retry of the days before retries were seen to start", headNew, Options{}, []string{
			turn1, step11, asked("u"), headPM, "stream 1 1 x error",
			`{"type":"llm/retry","data":{"turn":1,"step":1,"mode":"normal","retry":1}}`, endStep11,
		}, `1.1.1 exact surface first-chunk@4 initial@3! chunks 4-5 error
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}
1.1.2 ambiguous surface attempt-end@7 initial@3 chunks -1--1 ?dispatch-unknown ~config-key-order (llm/retry is not followed by a chunk)
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}
`},
		{"an empty stream", headNew, Options{}, []string{
			turn1, step11, asked("u"), headPM,
			`{"type":"assistant/message","data":{"turn":1,"step":1,"message":{"content":[]}},"sourceEventSeqs":[],"surfaceOp":"append"}`,
			endStep11,
		}, `1.1.1 exact surface attempt-end@4 initial@3! chunks -1--1 response 4
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}
`},
		{"killed in the stream", headNew, Options{}, []string{turn1, step11, asked("u"), headPM, "chunks 1 1 x"},
			`1.1.1 exact surface first-chunk@4 initial@3! chunks 4-4
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}
`},
		{"killed before the stream", headNew, Options{}, []string{turn1, step11, asked("u"), headPM},
			`1.1.1 ambiguous surface attempt-end@4 initial@3! chunks -1--1 ?dispatch-unknown (the log ends before the step's first chunk)
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}
`},
		{"no header, so nothing was sent", headNew, Options{}, []string{turn1, step11, asked("u"), endStep11, endTurn1}, ``},
		{"a message before the header's request", headNew, Options{}, []string{
			turn1, step11, asked("u"), headPM, asked("v"), "chunks 1 1 x", asked("w"), answered("a"), asked("x"), endStep11,
		}, `1.1.1 ambiguous surface first-chunk@5 initial@3! chunks 5-5 response 7 after-header [4] late [6] ?boundary
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"},{"content":[],"source":{"kind":"user"},"role":"user","id":"v"}],"sessionId":"s"}
`},
		{"the same before E10", headOld, Options{}, []string{
			turn1old, asked0("u", withOp), step11, headM, asked0("v", withOp), "chunks 1 1 x", asked0("w", withOp), answered0("1", `[1]`, ``, withOp), endStep11, endTurn1,
			turn2old, step21, "chunks 2 1 y",
		}, `1.1.1 exact surface step/start@2 initial@3! chunks 5-5 response 7 after-header [4] late [4 6]
  {"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"u"}]}],"sessionId":"s"}
2.1.1 exact surface step/start@11 initial@3 chunks 12-12
  {"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"u"}]},{"role":"user","content":[{"type":"text","text":"v"}]},{"role":"user","content":[{"type":"text","text":"w"}]},{"role":"assistant","content":[1]}],"sessionId":"s"}
`},
		{"before headers were logged", headOld, Options{}, []string{
			turn1old, asked0("u", withOp), step11, asked0("v", withOp), "chunks 1 1 x",
		}, `1.1.1 messages surface first-chunk@4 chunks 4-4
  {"messages":[{"role":"user","content":[{"type":"text","text":"u"}]},{"role":"user","content":[{"type":"text","text":"v"}]}]}
`},
		{"no markers", headOld, Options{}, []string{
			turn1old, asked0("u", ``), step11, "chunks 1 1 x", answered0("1", `[]`, `,"usage":{}`, ``), endStep11, endTurn1,
			turn2old, asked0("v", ``), step21, "chunks 2 1 y",
		}, `1.1.1 messages linear first-chunk@3 chunks 3-3 response 4
  {"messages":[{"role":"user","content":[{"type":"text","text":"u"}]}]}
2.1.1 messages linear first-chunk@10 chunks 10-10
  {"messages":[{"role":"user","content":[{"type":"text","text":"u"}]},{"role":"user","content":[{"type":"text","text":"v"}]}]}
`},
		{"no markers, and usage has its own event", `{"type":"session","version":0,"id":"s","createdAt":0}`, Options{}, []string{
			turn1old, asked0("u", ``), step11, "chunks 1 1 x", answered0("1", `[]`, ``, ``), `{"type":"usage","data":{"turn":1,"step":1,"usage":{}}}`, endStep11, endTurn1,
			turn2old, step21, "chunks 2 1 y",
		}, `1.1.1 messages linear first-chunk@3 chunks 3-3 response 4
  {"messages":[{"role":"user","content":[{"type":"text","text":"u"}]}]}
2.1.1 messages linear first-chunk@10 chunks 10-10
  {"messages":[{"role":"user","content":[{"type":"text","text":"u"}]},{"role":"assistant","content":[]}]}
`},
		{"markers begin in the middle", headOld, Options{}, []string{
			turn1old, asked0("u", ``), step11, "chunks 1 1 x", answered0("1", `[1]`, ``, ``), endStep11, endTurn1,
			turn2old, asked0("v", withOp), step21, "chunks 2 1 y",
		}, `1.1.1 messages linear first-chunk@3 chunks 3-3 response 4
  {"messages":[{"role":"user","content":[{"type":"text","text":"u"}]}]}
2.1.1 ambiguous surface first-chunk@10 chunks 10-10 ?surface
  {"messages":[{"role":"user","content":[{"type":"text","text":"v"}]}]}
`},
		{"a marker is missing where all have one", headOld, Options{}, []string{
			turn1old, asked0("u", ``), step11, headM, "chunks 1 1 x",
		}, `1.1.1 ambiguous surface step/start@2 initial@3! chunks 4-4 ?surface
  {"model":"m","messages":[],"sessionId":"s"}
`},
		{"framing is open", headOld, Options{}, []string{
			turn1old, `{"type":"context/message","data":{"content":[],"source":{"kind":"p"}},"surfaceOp":"append"}`, step11, headPM, "chunks 1 1 x",
		}, `1.1.1 ambiguous surface step/start@2 initial@3! chunks 4-4 ?framing-window
  {"provider":"p","model":"m","messages":[{"role":"user","content":[{"type":"text","text":"<context source=\"p\">"},{"type":"text","text":"</context>"}]}],"sessionId":"s"}
`},
		{"framing is settled", headOld, Options{Framing: FramingVerbatim}, []string{
			turn1old, `{"type":"context/message","data":{"content":[],"source":{"kind":"p"}},"surfaceOp":"append"}`, step11, headPM, "chunks 1 1 x",
		}, `1.1.1 exact surface step/start@2 initial@3! chunks 4-4 ~framing
  {"provider":"p","model":"m","messages":[{"role":"user","content":[]}],"sessionId":"s"}
`},
		{"framing is not open before providers", headOld, Options{Framing: FramingVerbatim}, []string{
			turn1old, `{"type":"steering/message","data":{"turn":1,"content":[],"source":{"kind":"user"}},"surfaceOp":"append"}`, step11, headM, "chunks 1 1 x",
		}, `1.1.1 exact surface step/start@2 initial@3! chunks 4-4
  {"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"<steering source=\"user\">"},{"type":"text","text":"</steering>"}]}],"sessionId":"s"}
`},
		{"framing is over when the record has a depth", headNew, Options{}, []string{
			turn1old, `{"type":"context/message","data":{"content":[],"source":{"kind":"p"}},"surfaceOp":"append"}`, step11, headPM, "chunks 1 1 x",
		}, `1.1.1 exact surface step/start@2 initial@3! chunks 4-4
  {"provider":"p","model":"m","messages":[{"role":"user","content":[]}],"sessionId":"s"}
`},
		{"the place of scalars is open", headNew, Options{}, []string{
			turn1old, step11, `{"type":"request/header","data":{"header":{"config":{"provider":"p","model":"m","maxTokens":1,"extra":2},"system":"S"},"reason":"initial"}}`, "chunks 1 1 x",
		}, `1.1.1 ambiguous surface step/start@1 initial@2! chunks 3-3 ?config-layout
  {"provider":"p","model":"m","messages":[],"system":"S","maxTokens":1,"sessionId":"s"}
`},
		{"the place of scalars is settled", headNew, Options{Layout: LayoutSpread}, []string{
			turn1old, step11, `{"type":"request/header","data":{"header":{"config":{"provider":"p","model":"m","maxTokens":1,"extra":2},"system":"S"},"reason":"initial"}}`, "chunks 1 1 x",
		}, `1.1.1 exact surface step/start@1 initial@2! chunks 3-3 ~layout
  {"provider":"p","model":"m","maxTokens":1,"extra":2,"messages":[],"system":"S","sessionId":"s"}
`},
		{"a prefix and scalars", headOld, Options{}, []string{
			turn1old, asked0("u", withOp), step11,
			`{"type":"request/header","data":{"header":{"config":{"stop":["x"],"model":"m","temperature":0},"messagePrefix":[{"role":"user","content":[]},{"role":"user","content":[2]}]},"reason":"initial"}}`, "chunks 1 1 x",
		}, `1.1.1 exact surface step/start@2 initial@3! chunks 4-4
  {"model":"m","messages":[{"role":"user","content":[]},{"role":"user","content":[2]},{"role":"user","content":[{"type":"text","text":"u"}]}],"temperature":0,"stop":["x"],"sessionId":"s"}
`},
		{"a prefix alone", headOld, Options{}, []string{
			turn1old, step11, `{"type":"request/header","data":{"header":{"config":{"model":"m"},"messagePrefix":[{"role":"user","content":[]}]},"reason":"initial"}}`, "chunks 1 1 x",
		}, `1.1.1 exact surface step/start@1 initial@2! chunks 3-3
  {"model":"m","messages":[{"role":"user","content":[]}],"sessionId":"s"}
`},
		{"a config that holds keys of the request", headNew, Options{}, []string{
			turn1, step11, `{"type":"request/header","data":{"header":{"config":{"7":1,"sessionId":"x","messages":1,"signal":{},"system":"kept"},"tools":[1]},"reason":"initial"}}`, "chunks 1 1 x",
		}, `1.1.1 exact surface first-chunk@3 initial@2! chunks 3-3
  {"7":1,"sessionId":"s","messages":[],"system":"kept","tools":[1]}
`},
		{"a delta without a snapshot", headOld, Options{}, []string{
			turn1old, step11, `{"type":"request/header-delta","data":{"config":{"model":"m"}}}`, "chunks 1 1 x",
		}, `1.1.1 ambiguous surface step/start@1 chunks 3-3 ?header
  {"messages":[]}
`},
		{"a fixture's token for a prompt", headNew, Options{}, []string{
			turn1, step11, `{"type":"request/header","data":{"header":{"config":{"provider":"p","model":"m"},"system":"{{system}}"},"reason":"initial"}}`, "chunks 1 1 x",
		}, `1.1.1 ambiguous surface first-chunk@3 initial@2! chunks 3-3 ?scrubbed
  {"provider":"p","model":"m","messages":[],"system":"{{system}}","sessionId":"s"}
`},
		{"chunks without a step", headNew, Options{}, []string{
			turn1, asked("u"), headPM, "stream 1 1 x stop", answered("a"), "chunks 1 2 y",
		}, `1.1.1 ambiguous surface first-chunk@3 initial@2 chunks 3-4 response 5 stop ?no-step ~config-key-order
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}
1.2.1 ambiguous surface first-chunk@6 initial@2 chunks 6-6 ?no-step ~config-key-order
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"},{"role":"assistant","content":[1],"source":{"kind":"model"},"id":"a"}],"sessionId":"s"}
`},
		{"chunks after the answer", headNew, Options{}, []string{
			turn1, step11, asked("u"), headPM, "stream 1 1 x stop", answered("a"), "chunks 1 1 y", endStep11,
		}, `1.1.1 exact surface first-chunk@4 initial@3! chunks 4-5 response 6 stop
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}
1.1.2 ambiguous surface first-chunk@7 initial@3 chunks 7-7 ?dispatch-unknown ~config-key-order (it follows the step's answer)
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"},{"role":"assistant","content":[1],"source":{"kind":"model"},"id":"a"}],"sessionId":"s"}
`},
		{"a second attempt before steps had any", headOld, Options{}, []string{
			turn1old, asked0("u", withOp), step11, headM, "stream 1 1 x error", "chunks 1 1 y", endStep11,
		}, `1.1.1 exact surface step/start@2 initial@3! chunks 4-5 error
  {"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"u"}]}],"sessionId":"s"}
1.1.2 ambiguous surface step/start@2 initial@3 chunks 6-6 ?dispatch-unknown (builds of this era asked once in a step)
  {"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"u"}]}],"sessionId":"s"}
`},
		{"a step without a name", headNew, Options{}, []string{
			turn1, `{"type":"step/start","data":null}`, asked("u"), headPM, "chunks 1 4 x",
		}, `1.4.1 ambiguous surface first-chunk@4 initial@3! chunks 4-4 ?no-step
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}
`},
		{"an old shape in a new log tells nothing", headNew, Options{}, []string{
			turn1, step11, asked("u"), headM, "chunks 1 1 x",
		}, `1.1.1 exact surface first-chunk@4 initial@3! chunks 4-4
  {"model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}
`},
		{"a message that is none", headNew, Options{}, []string{
			turn1, step11, `{"type":"assistant/message","data":{"turn":1,"step":1,"message":null},"surfaceOp":"append"}`, headPM, "chunks 1 1 x",
		}, `1.1.1 ambiguous surface attempt-end@2 chunks -1--1 response 2 ?header
  {"messages":[]}
1.1.2 ambiguous surface first-chunk@4 initial@3! chunks 4-4 ?message-shape ?dispatch-unknown (it follows the step's answer)
  {"provider":"p","model":"m","messages":[],"sessionId":"s"}
`},
		{"a gap", headNew, Options{}, []string{turn1, step11, asked("u"), "gap 1", headPM, "chunks 1 1 x"},
			`defect LOG-SEQ
1.1.1 ambiguous surface first-chunk@5 initial@4! chunks 5-5 ?damage
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}
`},
		{"inherited", `{"type":"session","version":0,"id":"s","createdAt":0,"parentSession":"q","seedLength":7,"delegationDepth":0}`, Options{}, []string{
			turn1, step11, asked("u"), headPM, "chunks 1 1 x", endStep11, endTurn1,
			`{"type":"session/end-seed","data":{}}`, turn2, step21, asked("v"),
			`{"type":"request/header","data":{"header":{"config":{"provider":"p","model":"m"}},"reason":"resume"}}`, "chunks 2 1 y",
		}, `1.1.1 ambiguous surface first-chunk@4 initial@3! chunks 4-4 inherited ?session-id
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"q"}
2.1.1 exact surface first-chunk@12 resume@11! chunks 12-12
  {"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"},{"content":[],"source":{"kind":"user"},"role":"user","id":"v"}],"sessionId":"s"}
`},
		{"E7: a retry is a new step", headNew, Options{}, []string{
			turn1old, asked0("u", withOp), step11, `{"type":"request/header","data":{"header":{"config":{"provider":"p","model":"m","reasoningEffort":"high"},"messagePrefix":[{"role":"user","content":[]}],"system":"S"},"reason":"initial"}}`,
			"stream 1 1 x error", endStep11, `{"type":"llm/retry","data":{"turn":1,"step":1,"provider":"p","mode":"normal","retry":1}}`,
			`{"type":"step/start","data":{"turn":1,"step":2}}`, "stream 1 2 y stop", `{"type":"step/end","data":{"turn":1,"step":2}}`,
		}, `1.1.1 exact surface step/start@2 initial@3! chunks 4-5 error
  {"provider":"p","model":"m","reasoningEffort":"high","messages":[{"role":"user","content":[]},{"role":"user","content":[{"type":"text","text":"u"}]}],"system":"S","sessionId":"s"}
1.2.1 exact surface step/start@8 initial@3 chunks 9-10 stop
  {"provider":"p","model":"m","reasoningEffort":"high","messages":[{"role":"user","content":[]},{"role":"user","content":[{"type":"text","text":"u"}]}],"system":"S","sessionId":"s"}
`},
		{"E9: identities, messages before the step, a retry is a new turn", headNew, Options{}, []string{
			turn1old, asked("u"), step11, `{"type":"request/header","data":{"header":{"config":{"maxTokens":1,"provider":"p","model":"m"},"adapterDefaults":{"maxTokens":true},"system":"S","tools":[1]},"reason":"initial"}}`,
			asked("v"), "stream 1 1 x error", endStep11, `{"type":"turn/end","data":{"turn":1,"reason":{"kind":"error","step":1,"failure":{}}}}`,
			`{"type":"turn/start","data":{"turn":2,"trigger":{"kind":"retry"}}}`, step21, "stream 2 1 y stop",
			`{"type":"assistant/message","data":{"turn":2,"step":1,"message":{"role":"assistant","content":[]}},"surfaceOp":"append"}`, endStep21,
		}, `1.1.1 exact surface step/start@2 initial@3! chunks 5-6 error after-header [4] late [4]
  {"maxTokens":1,"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"}],"system":"S","tools":[1],"sessionId":"s"}
2.1.1 exact surface step/start@10 initial@3 chunks 11-12 response 13 stop ~config-key-order
  {"maxTokens":1,"provider":"p","model":"m","messages":[{"content":[],"source":{"kind":"user"},"role":"user","id":"u"},{"content":[],"source":{"kind":"user"},"role":"user","id":"v"}],"system":"S","tools":[1],"sessionId":"s"}
`},
		{"a session of E6 resumed by E9", headNew, Options{}, []string{
			turn1old, asked0("u", withOp), `{"type":"steering/message","data":{"turn":1,"content":[3],"source":{"kind":"user"}},"surfaceOp":"append"}`, endTurn1,
			`{"type":"session/end-seed","data":{}}`, turn2old, asked("v"), step21, headPM, "chunks 2 1 z",
		}, `2.1.1 exact surface step/start@7 initial@8! chunks 9-9
  {"provider":"p","model":"m","messages":[{"content":[{"type":"text","text":"u"}],"source":{"kind":"user"},"id":"legacy-message:s:1","role":"user"},{"id":"legacy-message:s:2","role":"user","content":[3],"source":{"kind":"user"}},{"content":[],"source":{"kind":"user"},"role":"user","id":"v"}],"sessionId":"s"}
`},
		{"E5 resumed by E6 within one file: each in its own projection", headOld, Options{}, []string{
			turn1old, `{"type":"context/message","data":{"content":[],"source":{"kind":"p"},"envelope":"context"},"surfaceOp":"append"}`, step11, headPM, "chunks 1 1 x", endStep11, endTurn1,
			turn2old, `{"type":"sandbox/mode","data":{"mode":"read-only"}}`, step21, `{"type":"request/header","data":{"header":{"config":{"provider":"p","model":"m"}},"reason":"resume"}}`,
			"stream 2 1 y error", endStep21, `{"type":"llm/retry","data":{"turn":2,"step":1,"retry":1}}`,
			`{"type":"step/start","data":{"turn":2,"step":2}}`, "chunks 2 2 z",
		}, `1.1.1 exact surface step/start@2 initial@3! chunks 4-4
  {"provider":"p","model":"m","messages":[{"role":"user","content":[{"type":"text","text":"<context source=\"p\">"},{"type":"text","text":"</context>"}]}],"sessionId":"s"}
2.1.1 ambiguous surface step/start@9 resume@10! chunks 11-12 error ?framing-window
  {"provider":"p","model":"m","messages":[{"role":"user","content":[{"type":"text","text":"<context source=\"p\">"},{"type":"text","text":"</context>"}]}],"sessionId":"s"}
2.2.1 exact surface step/start@15 resume@10 chunks 16-16
  {"provider":"p","model":"m","messages":[{"role":"user","content":[]}],"sessionId":"s"}
`},
		{"a session of E6 resumed by E10", headNew, Options{}, []string{
			turn1old, asked0("u", withOp), step11, headPM, "stream 1 1 x tool-calls",
			answered0("1", `[1]`, `,"provenance":{"provider":"p","model":"m"},"usage":{}`, withOp),
			`{"type":"tool/result","data":{"turn":1,"step":1,"callId":"c","content":[{"type":"text","text":"long"}],"isError":false,"meta":1},"surfaceOp":"append"}`,
			`{"type":"steering/message","data":{"turn":1,"content":[3],"source":{"kind":"user"}},"surfaceOp":"append"}`,
			endStep11,
			`{"type":"tool/result","data":{"turn":1,"step":1,"callId":"c","content":[{"type":"text","text":"short"}],"isError":false,"meta":1},"sourceEventSeqs":[7],"surfaceOp":{"op":"replace","start":7,"end":7}}`,
			`{"type":"step/start","data":{"turn":1,"step":2}}`, "chunks 1 2 y", `{"type":"step/end","data":{"turn":1,"step":2}}`, endTurn1,
			`{"type":"session/end-seed","data":{}}`, turn2, step21, asked("v"),
			`{"type":"request/header","data":{"header":{"config":{"provider":"p","model":"m"}},"reason":"resume"}}`, "chunks 2 1 z",
		}, `1.1.1 exact surface step/start@2 initial@3! chunks 4-5 response 6 tool-calls
  {"provider":"p","model":"m","messages":[{"role":"user","content":[{"type":"text","text":"u"}]}],"sessionId":"s"}
1.2.1 exact surface step/start@11 initial@3 chunks 12-12
  {"provider":"p","model":"m","messages":[{"role":"user","content":[{"type":"text","text":"u"}]},{"role":"assistant","content":[1],"provenance":{"provider":"p","model":"m"}},{"role":"user","content":[{"type":"tool-result","toolCallId":"c","content":[{"type":"text","text":"short"}],"isError":false}]},{"role":"user","content":[3]}],"sessionId":"s"}
2.1.1 exact surface first-chunk@20 resume@19! chunks 20-20
  {"provider":"p","model":"m","messages":[{"content":[{"type":"text","text":"u"}],"source":{"kind":"user"},"id":"legacy-message:s:1","role":"user"},{"id":"legacy-message:s:6","role":"assistant","content":[1],"source":{"provider":"p","model":"m","kind":"model"}},{"id":"legacy-message:s:7","role":"user","content":[{"type":"tool-result","toolCallId":"c","content":[{"type":"text","text":"short"}],"isError":false}],"source":{"kind":"tool","callId":"c"}},{"content":[3],"source":{"kind":"user"},"id":"legacy-message:s:8","role":"user"},{"content":[],"source":{"kind":"user"},"role":"user","id":"v"}],"sessionId":"s"}
`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := outline(t, authored(t, c.header, c.events...), c.opts)
			if diff := cmp.Diff(strings.Split(c.want, "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// TestInheritedRequests holds what a fork shows of those it descends from to what
// they sent. Only with their headers is it certain under whose id.
func TestInheritedRequests(t *testing.T) {
	root := filepath.Join(corpus.Root(t), "goldens", "sound")
	for _, c := range []struct {
		child     string
		recorded  []string // what the inherited requests were: the first so many of a recording, in order
		ancestors []string // logs at hand
		grades    string   // E exact, A ambiguous for the session id alone
		wrong     int      // requests that are not those recorded
	}{
		{"head-fork-boundary/session.child.jsonl", []string{"head-fork-boundary/requests.parent.jsonl 2"}, nil, "AA", 0},
		{"head-fork-boundary/session.child.jsonl", []string{"head-fork-boundary/requests.parent.jsonl 2"},
			[]string{"head-fork-boundary/session.parent.jsonl"}, "EE", 0},
		// The parent is a fork itself, which the log does not show.
		{"head-fork-boundary/session.grandchild.jsonl", []string{"head-fork-boundary/requests.parent.jsonl 2", "head-fork-boundary/requests.child.jsonl 2"},
			nil, "AAAA", 2},
		{"head-fork-boundary/session.grandchild.jsonl", []string{"head-fork-boundary/requests.parent.jsonl 2", "head-fork-boundary/requests.child.jsonl 2"},
			[]string{"head-fork-boundary/session.parent.jsonl"}, "AAAA", 2},
		{"head-fork-boundary/session.grandchild.jsonl", []string{"head-fork-boundary/requests.parent.jsonl 2", "head-fork-boundary/requests.child.jsonl 2"},
			[]string{"head-fork-boundary/session.child.jsonl"}, "AAEE", 0},
		{"head-fork-boundary/session.grandchild.jsonl", []string{"head-fork-boundary/requests.parent.jsonl 2", "head-fork-boundary/requests.child.jsonl 2"},
			[]string{"head-fork-boundary/session.child.jsonl", "head-fork-boundary/session.parent.jsonl"}, "EEEE", 0},
		{"b-fork-child/session.jsonl", []string{"b-fork-parent/requests.jsonl 3"}, nil, "AAA", 0},
		{"b-fork-child/session.jsonl", []string{"b-fork-parent/requests.jsonl 3"}, []string{"b-fork-parent/session.jsonl"}, "EEE", 0},
	} {
		var sent []recorded
		for _, name := range c.recorded {
			name, count, _ := strings.Cut(name, " ")
			n, _ := strconv.Atoi(count)
			sent = append(sent, readRequests(t, filepath.Join(root, filepath.FromSlash(name)))[:n]...)
		}
		asked := map[string]int{}
		headers := map[string]*logfmt.Header{}
		for _, name := range c.ancestors {
			l := openLog(t, filepath.Join(root, filepath.FromSlash(name)))
			headers[l.Header.ID] = l.Header
			l.Close()
		}
		l := openLog(t, filepath.Join(root, filepath.FromSlash(c.child)))
		grades, wrong := "", 0
		for q, err := range Requests(l, Options{Ancestor: func(id string) *logfmt.Header { asked[id]++; return headers[id] }}) {
			if err != nil {
				t.Fatal(err)
			}
			if !q.Inherited {
				continue
			}
			n := len(grades)
			if body := q.AppendBody(nil); n >= len(sent) || !bytes.Equal(body, sent[n].body) {
				wrong++
			}
			switch {
			case q.Grade == Exact && q.Reasons == nil:
				grades += "E"
			case q.Grade == Ambiguous && slices.Equal(q.Reasons, []string{ReasonSession}):
				grades += "A"
			default:
				grades += "?"
			}
		}
		l.Close()
		if grades != c.grades || wrong != c.wrong {
			t.Errorf("%s with %v: grades %s with %d other than recorded, want %s with %d", c.child, c.ancestors, grades, wrong, c.grades, c.wrong)
		}
		for id, n := range asked {
			if n > 1 {
				t.Errorf("%s: asked %d times for %s", c.child, n, id)
			}
		}
	}
}

// A request extends the one before unless a header, a replacement or another
// session lies between.
func TestExtends(t *testing.T) {
	dir := filepath.Join(corpus.Root(t), "goldens", "sound")
	for _, tt := range []struct {
		log    string
		want   string // one letter for each request after the first: extends or not
		shared []int
	}{
		{"head-multi-step-tools/session.jsonl", "eee", []int{1, 3, 5}},
		{"head-compaction-append/session.jsonl", "e---", []int{1, 1, 1, 0}},
		{"b-tools-changes/session.jsonl", "--------------e", []int{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29}},
	} {
		log, err := logfmt.OpenFile(filepath.Join(dir, filepath.FromSlash(tt.log)), logfmt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, shared := "", []int(nil)
		var prev *Request
		for r, err := range Requests(log, Options{}) {
			if err != nil {
				t.Fatal(err)
			}
			if prev != nil {
				a, b := prev.AppendBody(nil), r.AppendBody(nil)
				letter := "-"
				if r.Extends(prev) {
					letter = "e"
				}
				got += letter
				shared = append(shared, r.SharedNodes(prev))
				// What extends has all messages of the other, and the same ends.
				end := -1
				for _, key := range []string{`],"system":`, `],"tools":`, `],"sessionId":`} {
					if end < 0 {
						end = bytes.Index(a, []byte(key))
					}
				}
				if letter == "e" && (end < 0 || !bytes.HasPrefix(b, a[:end]) || !bytes.HasSuffix(b, a[end:])) {
					t.Errorf("%s: turn %d step %d does not begin with the one before", tt.log, r.Turn, r.Step)
				}
			}
			prev = r
		}
		if got != tt.want || !slices.Equal(shared, tt.shared) {
			t.Errorf("%s: %q %v, want %q %v", tt.log, got, shared, tt.want, tt.shared)
		}
	}
}
