package fold

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"iter"
	"strconv"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// CloserForm is the shape of the tool results that stand in for lost ones
// (PHYSICAL §8.2).
type CloserForm uint8

const (
	CloserUnmarked   CloserForm = iota // without surfaceOp (06-17 to 06-26)
	CloserMarked                       // on the surface, one text for all (06-26 to 07-22)
	CloserOutcome                      // told apart by whether the call was recorded (07-22 to 07-28)
	CloserIdentified                   // the same as an identified message (from 07-28)
	CloserBare                         // a message of its own, of role tool (generation 4, FORMATS §7.9)
)

// CloserFormOf returns the form of an era (PHYSICAL §8.2). The third form began in
// the middle of E6, for which it gives the second.
func CloserFormOf(era Era) CloserForm {
	switch {
	case era < E2:
		return CloserUnmarked
	case era < E7:
		return CloserMarked
	case era < E9:
		return CloserOutcome
	}
	return CloserIdentified
}

// CloserTexts are the words of a stand-in result (PHYSICAL §8.2). They are data of the harness,
// not of this package: whoever needs a log byte for byte passes the harness's.
type CloserTexts struct {
	Lost       string // up to CloserMarked
	Started    string // the call was recorded; its outcome is unknown
	NotStarted string // the call was not recorded
}

// DefaultCloserTexts are wordings of our own.
var DefaultCloserTexts = CloserTexts{
	Lost:       "(the process ended before this call returned; the log holds no result)",
	Started:    "(the process ended after this call was recorded; the log cannot say whether it took effect)",
	NotStarted: "(the process ended before this call was recorded as started)",
}

// notStarted is the SHA-256 of the text that stands in for the result of a call
// that was never recorded as started. The words are the harness's.
const notStarted = "613f8e88c4324029a758e388a77c9082e93d36d39ad23d5f76c5529fe7b0b42f"

// OwnNotStarted reports whether a text is the one that the harness gives a call
// which was not recorded. From generation 2 on it refuses a log with any other
// (FORMATS §7.4 T5).
func OwnNotStarted(text string) bool {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) == notStarted
}

// A CloserTracker follows a log and knows at every point what would have to be
// appended for it to end outside a turn (SEMANTICS §8.5, PHYSICAL §8.1). The
// zero value stands before the first event. It holds the open turn only.
type CloserTracker struct {
	seen       bool
	seq, time  int64
	turn, step []byte // JSON of the open ones; empty when none
	pending    []pendingCall
}

type pendingCall struct {
	id, step []byte
	call     int64 // seq of the tool/call; -1 before it
}

// More takes chunks, of which the last has that seq and time.
func (t *CloserTracker) More(seq, time int64) { t.seen, t.seq, t.time = true, seq, time }

var (
	answerKeys = []string{"step", "message", "content"}
	resultKeys = []string{"callId", "message"}
)

// Add takes the next event.
func (t *CloserTracker) Add(e *logfmt.Event) {
	t.seen, t.seq, t.time = true, e.Seq, e.Time
	switch e.Type {
	case logfmt.TypeTurnStart:
		t.turn = append(t.turn[:0], jsjson.Get(e.Data, "turn")...)
		t.step, t.pending = t.step[:0], t.pending[:0]
	case logfmt.TypeTurnEnd:
		t.turn, t.step, t.pending = t.turn[:0], t.step[:0], t.pending[:0]
	case logfmt.TypeStepStart:
		t.step = append(t.step[:0], jsjson.Get(e.Data, "step")...)
	case logfmt.TypeStepEnd:
		t.step, t.pending = t.step[:0], t.pending[:0]
	case logfmt.TypeAssistantMessage:
		var of [3][]byte
		jsjson.Fields(e.Data, of[:], answerKeys)
		step, content := of[0], of[2]
		if m := of[1]; m != nil {
			content = jsjson.Get(m, "content")
		}
		for b := range jsjson.Elements(content) {
			if jsjson.StrEq(jsjson.Get(b, "type"), "tool-call") {
				t.call(jsjson.Get(b, "id"), step)
			}
		}
	case logfmt.TypeToolCall:
		if p := t.find(jsjson.Get(e.Data, "callId")); p >= 0 {
			t.pending[p].call = e.Seq
		}
	case logfmt.TypeToolResult:
		var of [2][]byte
		jsjson.Fields(e.Data, of[:], resultKeys)
		id := of[0]
		if m := of[1]; m != nil {
			id = jsjson.Get(jsjson.Get(m, "source"), "callId")
		}
		if p := t.find(id); p >= 0 {
			t.pending = append(t.pending[:p], t.pending[p+1:]...)
		}
	}
}

func (t *CloserTracker) find(id []byte) int {
	for i := range t.pending {
		if bytes.Equal(t.pending[i].id, id) {
			return i
		}
	}
	return -1
}

// call registers a call. One that is pending already keeps its place and forgets
// that it was recorded.
func (t *CloserTracker) call(id, step []byte) {
	c := pendingCall{id: bytes.Clone(id), step: bytes.Clone(step), call: -1}
	if p := t.find(id); p >= 0 {
		t.pending[p] = c
		return
	}
	t.pending = append(t.pending, c)
}

// NotStarted returns the ids, as JSON, of pending calls that were not recorded.
func (t *CloserTracker) NotStarted() [][]byte {
	var out [][]byte
	for i := range t.pending {
		if t.pending[i].call < 0 {
			out = append(out, t.pending[i].id)
		}
	}
	return out
}

// Open reports whether the log stands inside a turn.
func (t *CloserTracker) Open() bool { return t.seen && len(t.turn) > 0 }

// Closers returns the events that end the open turn (PHYSICAL §8.1): a result for
// every pending call, the end of the step, the end of the turn, with the seqs that follow and
// the time of the last event. A log outside a turn needs none.
func (t *CloserTracker) Closers(form CloserForm, texts CloserTexts) []*logfmt.Event {
	if !t.Open() {
		return nil
	}
	var out []*logfmt.Event
	add := func(typ string, data []byte, marked bool, call int64) {
		e := &logfmt.Event{Type: typ, Seq: t.seq + 1 + int64(len(out)), Time: t.time, Pos: logfmt.Position{Member: -1, Frame: -1, FrameAt: -1, Row: -1}}
		// Here surfaceOp comes before sourceEventSeqs, unlike in live events; in
		// generation 4 closers are appended like any event.
		b := logfmt.AppendEvent(nil, e)
		b = append(b[:len(b)-1], `,"data":`...)
		from := len(b)
		b = append(b, data...)
		to := len(b)
		var op, src [2]int
		cite := func() {
			if !marked || call < 0 {
				return
			}
			b = append(b, `,"sourceEventSeqs":`...)
			src[0] = len(b)
			b = append(b, '[')
			b = strconv.AppendInt(b, call, 10)
			b = append(b, ']')
			src[1] = len(b)
		}
		if form == CloserBare {
			cite()
		}
		if marked {
			b = append(b, `,"surfaceOp":`...)
			op[0] = len(b)
			b = append(b, `"append"`...)
			op[1] = len(b)
		}
		if form != CloserBare {
			cite()
		}
		b = append(b, '}')
		e.JSON, e.Line, e.Data = b, b, b[from:to:to]
		if op[1] > 0 {
			e.Op = b[op[0]:op[1]:op[1]]
		}
		if src[1] > 0 {
			e.Sources = b[src[0]:src[1]:src[1]]
		}
		out = append(out, e)
	}
	for i := range t.pending {
		p := &t.pending[i]
		add(logfmt.TypeToolResult, t.result(p, form, texts, t.seq+1+int64(len(out))), form >= CloserMarked, p.call)
	}
	turn := append([]byte(`{"turn":`), t.turn...)
	if len(t.step) > 0 {
		data := append(bytes.Clone(turn), `,"step":`...)
		add(logfmt.TypeStepEnd, append(append(data, t.step...), '}'), false, -1)
	}
	add(logfmt.TypeTurnEnd, append(turn, `,"reason":{"kind":"interrupted"}}`...), false, -1)
	return out
}

// result is the data of one stand-in result.
func (t *CloserTracker) result(p *pendingCall, form CloserForm, texts CloserTexts, seq int64) []byte {
	text, fault := texts.Lost, `{"name":"InterruptedError","code":"interrupted"}`
	switch {
	case form < CloserOutcome:
	case p.call >= 0:
		text, fault = texts.Started, `{"name":"ToolOutcomeUnknownError","code":"TOOL_OUTCOME_UNKNOWN"}`
	default:
		text, fault = texts.NotStarted, `{"name":"ToolNotStartedError","code":"TOOL_NOT_STARTED"}`
	}
	content := append(jsjson.AppendQuote([]byte(`[{"type":"text","text":`), text), `}]`...)

	b := append([]byte(`{"turn":`), t.turn...)
	b = appendMember(b, `,"step":`, p.step)
	if form < CloserIdentified {
		b = appendMember(b, `,"callId":`, p.id)
		b = append(b, `,"content":`...)
		b = append(b, content...)
		b = append(b, `,"isError":true`...)
	} else {
		id, _ := jsjson.Str(p.id)
		b = append(b, `,"message":{"id":`...)
		b = jsjson.AppendQuote(b, "interrupted-tool-result-"+id+"-"+strconv.FormatInt(seq, 10))
		if form == CloserBare {
			b = append(b, `,"role":"tool"`...)
			b = appendMember(b, `,"toolCallId":`, p.id)
			b = append(b, `,"isError":true,"source":{"kind":"tool"`...)
			b = appendMember(b, `,"callId":`, p.id)
			b = append(append(append(b, `},"content":`...), content...), `},"error":`...)
			return append(append(b, fault...), '}')
		}
		b = append(b, `,"role":"user","source":{"kind":"tool"`...)
		b = appendMember(b, `,"callId":`, p.id)
		b = append(b, `},"content":[{"type":"tool-result"`...)
		b = appendMember(b, `,"toolCallId":`, p.id)
		b = append(b, `,"isError":true,"content":`...)
		b = append(b, content...)
		b = append(b, `}]}`...)
	}
	b = append(b, `,"error":`...)
	return append(append(b, fault...), '}')
}

// appendMember appends a member unless it is absent, as JSON.stringify leaves
// out undefined.
func appendMember(dst []byte, key string, v []byte) []byte {
	if len(v) == 0 {
		return dst
	}
	return append(append(dst, key...), v...)
}

// Closers returns what the harness appends to a log that ends inside a turn when
// it loads it (SEMANTICS §8.5, PHYSICAL §8); nothing for one that does not.
func Closers(events iter.Seq[*logfmt.Event], form CloserForm, texts CloserTexts) []*logfmt.Event {
	var t CloserTracker
	for e := range events {
		t.Add(e)
	}
	return t.Closers(form, texts)
}
