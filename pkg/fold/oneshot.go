package fold

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Template grades a one-shot call that the log determines but for its holes:
// texts that stand in the program and not in the log, or an id that was never
// logged.
const Template Grade = "template"

// OneShotKind says what a model call outside the loop was for.
type OneShotKind string

const (
	CompactionCall OneShotKind = "compaction"
	TitleCall      OneShotKind = "session-title"
	WebSearchCall  OneShotKind = "web-search"
)

// Reasons of an ambiguous one-shot call.
const (
	ReasonCallForm  = "call-form"  // the era used two forms of the call (SEMANTICS §7.1)
	ReasonNotLogged = "not-logged" // what was asked for is not in the log
)

// OneShot is a model call outside the loop, which the log records only in part
// (SEMANTICS §7). Such calls are no loop requests and are listed apart.
type OneShot struct {
	Kind      OneShotKind
	Seq       int64 // of the event that records it
	Turn      int64 // open turn; -1 when none
	Inherited bool
	Grade     Grade // exact, template or ambiguous
	Reasons   []string
	Holes     []Hole
	Endpoint  string // of a web search: where the body was posted
	Pos       logfmt.Position

	parts []part
}

// Hole is a JSON string in a body whose text is not in the log.
type Hole struct {
	Name   string   // stands as {{name}} in the printed body
	SHA256 []string // of the texts that the program may hold, UTF-8, hex; none for a random id
}

// part is literal JSON, or a hole when hole is not negative.
type part struct {
	text []byte
	hole int
}

func (o *OneShot) add(text ...string) {
	for _, t := range text {
		o.raw([]byte(t))
	}
}

func (o *OneShot) raw(b []byte) { o.parts = append(o.parts, part{b, -1}) }

func (o *OneShot) hole(name string, sums ...string) {
	o.Holes = append(o.Holes, Hole{name, sums})
	o.parts = append(o.parts, part{hole: len(o.Holes) - 1})
}

func (o *OneShot) doubt(reason string) {
	o.Grade = Ambiguous
	o.Reasons = append(o.Reasons, reason)
}

// Known reports whether anything of the body is known.
func (o *OneShot) Known() bool { return len(o.parts) > 0 }

// AppendBody appends the body with each hole as the string "{{name}}".
func (o *OneShot) AppendBody(dst []byte) []byte {
	for _, p := range o.parts {
		if p.hole < 0 {
			dst = append(dst, p.text...)
		} else {
			dst = append(dst, `"{{`+o.Holes[p.hole].Name+`}}"`...)
		}
	}
	return dst
}

// Match compares the call with the bytes that were really sent. The error names
// the first byte that differs, or the hole whose text is none the program is
// known to have held.
func (o *OneShot) Match(sent []byte) error {
	if !o.Known() {
		return fmt.Errorf("seq %d: nothing of this call is in the log", o.Seq)
	}
	at := 0
	for _, p := range o.parts {
		if p.hole < 0 {
			rest := sent[at:]
			n := 0
			for n < len(p.text) && n < len(rest) && p.text[n] == rest[n] {
				n++
			}
			if at += n; n < len(p.text) {
				return fmt.Errorf("byte %d: the log has %s", at, clip(p.text[n:]))
			}
			continue
		}
		h := o.Holes[p.hole]
		if at >= len(sent) || sent[at] != '"' {
			return fmt.Errorf("byte %d: want a string, the %s", at, h.Name)
		}
		end := jsjson.Skip(sent, at)
		text, ok := jsjson.Str(sent[at:end])
		sum := sha256.Sum256([]byte(text))
		if !ok || len(h.SHA256) > 0 && !slices.Contains(h.SHA256, hex.EncodeToString(sum[:])) {
			return fmt.Errorf("byte %d: the %s is no text that builds of this era held", at, h.Name)
		}
		at = end
	}
	if at < len(sent) {
		return fmt.Errorf("byte %d: the log ends here", at)
	}
	return nil
}

func clip(b []byte) string {
	const most = 40
	if len(b) > most {
		return fmt.Sprintf("%q…", b[:most])
	}
	return fmt.Sprintf("%q", b)
}

// Digests of the program texts of SEMANTICS §7.1. The texts themselves are not
// part of this program.
const (
	sumSummarizer = "ee3f9610fd778c061c012f39f2b2c3ac57cf62905e8be4cdecbaf207734ed7c8" // 07-02 to 07-21
	sumInstruct1  = "1210e4763d87f86e2b0a0c2f67683f1db0780ffed2be1cd1c202334f0816669d" // 07-21 to 07-31
	sumInstruct2  = "8d2c025a5f05f0683ab6be63950957ca69feadff9967d65df7726b98f422b0de" // 07-31 to 08-13
	sumInstruct3  = "3b7aa71f525b9a82afc2f1747c4434ceb7b3bc1fadf8b64c37c4e97db70d074b" // 08-13 on
)

// oneShot reports the call that an event records.
func (f *Fold) oneShot(e *logfmt.Event) {
	if !f.opts.OneShots {
		return
	}
	var o *OneShot
	switch e.Type {
	case logfmt.TypeCompactionStart, logfmt.TypeCompactStart:
		f.compacting = true
		return
	case logfmt.TypeCompactionSummary, logfmt.TypeCompactSummary:
		f.compacting = false
		o = f.compactionCall(e)
	case logfmt.TypeCompactionEnd, logfmt.TypeCompactEnd:
		// Failed or cancelled: there may have been a call, over an unknown range.
		if f.compacting && jsjson.Get(e.Data, "error") != nil {
			o = &OneShot{Kind: CompactionCall}
			o.doubt(ReasonNotLogged)
		}
		f.compacting = false
	case logfmt.TypeSessionTitleLLMRequest:
		o = f.titleCall(e)
	case logfmt.TypeWebDeepseekSearchLLMRequest:
		o = &OneShot{Kind: WebSearchCall, Grade: Exact}
		o.Endpoint, _ = jsjson.Str(jsjson.Get(e.Data, "endpoint"))
		if body := jsjson.Get(e.Data, "body"); body != nil {
			o.raw(bytes.Clone(body))
		} else {
			o.doubt(ReasonNotLogged)
		}
	}
	if o == nil {
		return
	}
	o.Seq, o.Pos, o.Turn = e.Seq, e.Pos, -1
	o.Inherited = f.inherits(e.Seq)
	if f.turn.known {
		o.Turn = f.turn.turn
	}
	if f.damaged {
		o.doubt(ReasonDamage)
	}
	f.aux = append(f.aux, o)
}

func (o *OneShot) member(key string, val []byte) {
	if val == nil {
		return
	}
	if len(o.parts) > 0 {
		o.add(",")
	}
	o.add(`"`+key+`":`, string(val))
}

// sessionOf returns the id, a JSON string, that the call which event e records
// was sent under.
func (f *Fold) sessionOf(e *logfmt.Event, o *OneShot) []byte {
	if !f.inherits(e.Seq) {
		return f.idToken
	}
	id, known := f.owners.of(e.Seq)
	if !known {
		o.doubt(ReasonSession)
	}
	if id == nil {
		return f.idToken
	}
	return id
}

func (f *Fold) titleCall(e *logfmt.Event) *OneShot {
	o := &OneShot{Kind: TitleCall, Grade: Exact}
	route := jsjson.Get(e.Data, "route")
	messages := jsjson.Get(e.Data, "messages")
	if route == nil || messages == nil {
		o.doubt(ReasonNotLogged)
		return o
	}
	o.member("provider", jsjson.Get(route, "provider"))
	o.member("model", jsjson.Get(route, "model"))
	o.member("messages", messages)
	o.member("system", jsjson.Get(e.Data, "system"))
	o.member("maxTokens", jsjson.Get(e.Data, "maxTokens"))
	o.member("sessionId", f.sessionOf(e, o))
	o.member("purpose", []byte(`"session-title"`))
	return o.braced()
}

func (o *OneShot) braced() *OneShot {
	o.parts = slices.Insert(o.parts, 0, part{[]byte("{"), -1})
	o.add("}")
	return o
}

// compactionCall rebuilds the call behind a summary (SEMANTICS §7.1).
func (f *Fold) compactionCall(e *logfmt.Event) *OneShot {
	d := e.Data
	if jsjson.Get(d, "compactionId") != nil && string(jsjson.Get(d, "llmStreamCall")) != "true" {
		return nil // made without a model call of this session
	}
	o := &OneShot{Kind: CompactionCall, Grade: Template}
	span := jsjson.Get(d, "shadowedRange")
	start, ok1 := jsjson.SafeInt(jsjson.Get(span, "start"))
	end, ok2 := jsjson.SafeInt(jsjson.Get(span, "end"))
	i, j := f.surface.index(start), f.surface.index(end)
	if !ok1 || !ok2 || i < 0 || j < i {
		o.doubt(ReasonNotLogged)
		return o
	}
	nodes := f.surface.Nodes()[i : j+1]
	if f.doubtful {
		o.doubt(ReasonSurface)
	}
	o.member("provider", jsjson.Get(d, "provider"))
	if model := jsjson.Get(d, "model"); model != nil {
		o.member("model", model)
	} else {
		o.doubt(ReasonNotLogged)
	}
	maxTokens := jsjson.Get(d, "maxTokens")
	switch {
	case f.eras.Max < E6:
		o.summarizerCall(nodes, maxTokens, f.sessionOf(e, o))
	case f.eras.Min < E7:
		// The form changed within E6, and purpose came a day later.
		o.doubt(ReasonCallForm)
		fallthrough
	default:
		f.instructedCall(o, e, nodes, maxTokens)
	}
	return o.braced()
}

// What stands around the transcript in the compaction call of July.
const (
	summaryHead = "Summarize this conversation history:\n\n"
	summaryTail = "\n\nSummary:"
)

// AsksForSummary reports whether a content block is that of a compaction call
// until 07-21: a transcript to be summarized (SEMANTICS §7.1).
func AsksForSummary(block []byte) bool {
	if jsjson.Len(block) != 2 || !jsjson.StrEq(jsjson.Get(block, "type"), "text") {
		return false
	}
	text, _ := jsjson.Str(jsjson.Get(block, "text"))
	return len(text) >= len(summaryHead)+len(summaryTail) && strings.HasPrefix(text, summaryHead) && strings.HasSuffix(text, summaryTail)
}

// summarizerCall is the form until 07-21: a transcript under a fixed system
// prompt.
func (o *OneShot) summarizerCall(nodes []*Node, maxTokens, session []byte) {
	text := summaryHead + transcript(nodes) + summaryTail
	o.add(`,"messages":[{"role":"user","content":[{"type":"text","text":`)
	o.raw(jsjson.AppendQuote(nil, text))
	o.add(`}]}],"system":`)
	o.hole("summarizer-prompt", sumSummarizer)
	o.member("maxTokens", maxTokens)
	o.member("sessionId", session)
}

// instructedCall is the form since then: the region itself under the header in
// force, and an instruction as the last message.
func (f *Fold) instructedCall(o *OneShot, e *logfmt.Event, nodes []*Node, maxTokens []byte) {
	o.add(`,"messages":[`)
	v, open := f.view(f.eras, f.header.Header)
	if h := f.header.Header; h != nil && f.eras.Min < E8 && jsjson.Len(h.MessagePrefix) > 0 {
		o.add(string(h.MessagePrefix[1:len(h.MessagePrefix)-1]), ",")
	}
	framable := false
	for _, n := range nodes {
		m, err := n.message(v, f.session)
		if err != nil {
			o.doubt(ReasonMessage)
			continue
		}
		if m != nil {
			o.raw(m)
			o.add(",")
			framable = framable || n.framable()
		}
	}
	if open && framable && f.opts.Framing == FramingAuto {
		o.doubt(ReasonFraming)
	}
	instruction := func() {
		switch {
		case f.eras.Min >= E11:
			o.hole("instruction", sumInstruct3)
		case f.eras.Min >= E10:
			o.hole("instruction", sumInstruct2)
		case f.eras.Min >= E9:
			o.hole("instruction", sumInstruct1, sumInstruct2)
		default:
			o.hole("instruction", sumInstruct1)
		}
	}
	if f.eras.Min < E9 {
		o.add(`{"role":"user","content":[{"type":"text","text":`)
		instruction()
		o.add(`}]}`)
	} else {
		plugin := "dsh-compaction-basic"
		if f.eras.Min < E11 {
			plugin = "dsh-compact-basic"
		}
		o.add(`{"content":[{"type":"text","text":`)
		instruction()
		o.add(`}],"source":{"kind":"plugin","plugin":"`, plugin, `"},"role":"user","id":`)
		o.hole("message-id")
		o.add(`}`)
	}
	o.add(`]`)
	if h := f.header.Header; h != nil {
		o.member("system", h.System)
		o.member("tools", h.Tools)
	} else {
		o.doubt(ReasonHeader)
	}
	o.member("maxTokens", maxTokens)
	o.member("sessionId", f.sessionOf(e, o))
	o.member("purpose", []byte(`"compaction"`))
}

// transcript renders nodes as the summarizer of E2 to E5 did.
func transcript(nodes []*Node) string {
	var parts []string
	for i, n := range nodes {
		if i > 0 {
			parts = append(parts, "\n\n")
		}
		content := jsjson.Get(n.Data, "content")
		switch n.Type {
		case logfmt.TypeAssistantMessage:
			parts = append(parts, "Assistant: ")
		case logfmt.TypeToolResult:
			id, _ := jsjson.Str(jsjson.Get(n.Data, "callId"))
			kind := "Tool result"
			if string(jsjson.Get(n.Data, "isError")) == "true" {
				kind = "Tool error"
			}
			parts = append(parts, kind, " (call ", id, "): ")
		case logfmt.TypeContextMessage:
			parts = append(parts, "[Context: ")
		case logfmt.TypeSteeringMessage:
			parts = append(parts, "[Steering: ")
		default:
			parts = append(parts, "User: ")
		}
		parts = appendBlocks(parts, content, 0)
		if n.Type == logfmt.TypeContextMessage || n.Type == logfmt.TypeSteeringMessage {
			parts = append(parts, "]")
		}
	}
	return jsjson.Concat(parts...)
}

// maxNesting bounds tool results within tool results in a transcript; no tool
// ever nested one.
const maxNesting = 32

// appendBlocks renders content blocks, one a line.
func appendBlocks(parts []string, content []byte, depth int) []string {
	if depth > maxNesting {
		return parts
	}
	for i, b := range collect(content) {
		if i > 0 {
			parts = append(parts, "\n")
		}
		get := func(key string) string {
			s, _ := jsjson.Str(jsjson.Get(b, key))
			return s
		}
		switch typ := get("type"); typ {
		case "text":
			parts = append(parts, get("text"))
		case "reasoning":
			parts = append(parts, "[reasoning: ", get("text"), "]")
		case "tool-call":
			parts = append(parts, "[tool-call: ", get("name"), "(", get("arguments"), ")]")
		case "tool-result":
			if inner := jsjson.Get(b, "content"); jsjson.Len(inner) > 0 {
				parts = append(parts, "[tool-result: ")
				parts = appendBlocks(parts, inner, depth+1)
				parts = append(parts, "]")
				continue
			}
			parts = append(parts, "[tool-result]")
		default:
			parts = append(parts, "[", typ, "]")
		}
	}
	return parts
}
