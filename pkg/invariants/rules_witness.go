package invariants

import (
	"bytes"
	"slices"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules that hold one part of the log against another: chunks against the
// message, the message's tool calls against the calls and results, the message
// and the request context against the header.
var witnessRules = []*Rule{
	{
		ID: "CHUNK-CITE", Severity: Warning, Spec: "SEMANTICS §6.4, §8.1",
		Title:  "an assistant message cites exactly the chunks it was made from",
		Text:   "sourceEventSeqs of an appended assistant/message lists the chunks of the attempt that it answers, all of them and no others. Chunks of failed attempts are not among them. A stream without chunks is cited as an empty list since 07-19, and not at all before. From generation 2 on an answer holds its chunks itself and cites none.",
		How:    "Chunks were lost, added or renumbered, or the message was edited.",
		Advice: "Compare the message with the chunks around it. What the model really streamed is in the chunks; what later requests hold is in the message.",
		Types:  []string{"assistant/message"},
		New:    stateless(checkCited),
	},
	{
		ID: "CHUNK-ASM", Severity: Warning, Since: buildEffort, Spec: "SEMANTICS §6.4, §8.3",
		Title:  "an assistant message is what its chunks add up to",
		Text:   "The content, and from the provider's state the part that is kept, follow from the chunks: closed blocks as they were closed, open ones as far as they came, no tool calls when the answer ran into its limit, only text and reasoning when it was cancelled. Until 07-27 a hook could rewrite an answer, so the rule begins there.",
		How:    "The message or a chunk was edited after the fact, or a plugin changed the answer before it was logged.",
		Advice: "Put the chunks together by hand and compare: the chunks are what came from the provider, the message is what later requests hold.",
		Types:  []string{"assistant/message"},
		New:    stateless(checkAssembly),
	},
	{
		ID: "CHUNK-USAGE", Severity: Warning, Since: eraStart[fold.E1], Spec: "SEMANTICS §8.1, §9",
		Title:  "an assistant message carries the usage its stream reported",
		Text:   "usage of the message is a copy of the last usage chunk of its attempt, and is absent when there was none.",
		How:    "One of the two was edited or lost.",
		Advice: "Bills follow what the provider reported, which is the chunk.",
		Types:  []string{"assistant/message"},
		New:    stateless(checkUsage),
	},
	{
		ID: "CHUNK-ANSWER", Severity: Warning, Since: buildEmptySources, Spec: "SEMANTICS §6.4; FORMATS §2.8",
		Title:  "a stream that finished well has its message",
		Text:   "A successful attempt always ends in an assistant/message, even if that is empty. Without it the answer, and the tool calls in it, are in no later request. A step with neither chunks nor an answer, in a turn that went well behind a header, has lost both. From generation 2 on an attempt is one event with its end, so there a step of a turn that went well has one or the other.",
		How:    "The message was removed, or the process was stopped at just that moment and nothing says so.",
		Advice: "Compare with a copy of the session. The answer can be put together from its chunks.",
		Types:  []string{"step/start", "step/end", "turn/start", "turn/end", "session/end-seed", "llm/retry"},
		New:    func() Checker { return new(answerChecker) },
	},
	{
		ID: "CALL-MATCH", Severity: Warning, Spec: "SEMANTICS §8.1",
		Title:  "a tool call is one that the model asked for",
		Text:   "tool/call repeats id, name and raw arguments of a tool-call block of the step's answer. What was run and what the model asked for are logged apart, so that one proves the other.",
		How:    "The call or the answer was edited, or a plugin changed the call on its way.",
		Advice: "Compare the two: the block is what the model said and sees again, the call is what was run.",
		Types:  []string{"tool/call"},
		New:    stateless(checkCallMatch),
	},
	{
		ID: "CALL-RESULT-COMPLETE", Severity: Warning, Spec: "SEMANTICS §6.5, §8.1",
		Title:  "every tool call of an answer is run once and answered once, in order",
		Text:   "Each tool-call block of an answer has one tool/call and one tool/result before its step ends, in the order of the blocks. Only a turn that was aborted, failed or interrupted may leave some out. Providers refuse a history in which a call has no result.",
		How:    "The event was lost or removed, or the process gave up a call without a trace.",
		Advice: "Look at the step: which call has no result, and whether the next request could have been accepted.",
		Types:  []string{"assistant/message", "tool/call", "tool/result", "step/start", "step/end", "turn/start", "turn/end", "session/end-seed"},
		New:    func() Checker { return new(completeChecker) },
	},
	{
		ID: "RESULT-CITE", Severity: Warning, Spec: "SEMANTICS §6.5, §8.1",
		Title:  "a tool result cites its call",
		Text:   "sourceEventSeqs of an appended tool/result is the seq of its tool/call and nothing else. It is absent only where crash repair answered a call that never started. From generation 2 on a result without a citation is passed over: nothing says that it must have one.",
		How:    "The event was edited, or the log was renumbered without its citations.",
		Advice: "Compare with a copy of the session. The request is the same with and without it.",
		Types:  []string{"tool/result"},
		New:    stateless(checkResultCite),
	},
	{
		ID: "ASST-SOURCE", Severity: Warning, Since: buildProvider, Spec: "SEMANTICS §8.1",
		Title:  "an answer comes from the model that was asked",
		Text:   "Provider and model in the source of an assistant message (its provenance before 07-28) are those of the header its request was made with. Whether an answer names the model of the header in generations after 1 is not known: nothing is said of it there.",
		How:    "The header or the message was edited, a header event was lost, or a plugin routed the request elsewhere.",
		Advice: "Find out which of the two is right before reading anything into the answer.",
		Types:  []string{"assistant/message"},
		New:    stateless(checkAnswerSource),
	},
	{
		ID: "CTX-CHANGE", Severity: Warning, Since: buildContext, Spec: "SEMANTICS §8.1, §9",
		Title:  "a request context says something new, of the model in force",
		Text:   "request/context is logged when provider, model or context window differ from the last one, behind the header it belongs to. From generation 3 on a new way to update the system prompt is a change as well.",
		How:    "The event was repeated, or edited, or a header is missing.",
		Advice: "Nothing is lost: requests are the same with and without it.",
		Types:  []string{"request/context"},
		New:    func() Checker { return new(contextChecker) },
	},
	{
		ID: "USER-PLACE", Severity: Warning, Since: eraStart[fold.E6], Spec: "SEMANTICS §6.2, §8.1",
		Title:  "a user's message stands where the loop takes it up",
		Text:   "From 08-05 the loop appends what the user sent right behind the start of the step, before the answer. From 07-20 until then it stood before the step. A log of a generation after 0 may hold messages of either time, so nothing is said of it there.",
		How:    "The event was moved or inserted, or a plugin appended it in the user's name.",
		Advice: "Look which request first holds the message, and whether the user had sent it by then.",
		Types:  []string{"user/message", "step/start", "step/end", "assistant/chunk", "assistant/message", "tool/call", "tool/result"},
		New:    func() Checker { return new(userPlaceChecker) },
	},
}

// ofWriter are rules about what a build does when it writes. An event that was
// upgraded as the log was loaded, or by a converter, no longer tells which build
// that was.
var ofWriter = map[string]bool{
	"CHUNK-CITE": true, "CHUNK-ASM": true, "CHUNK-ANSWER": true, "USER-PLACE": true, "HDR-PLACE": true,
}

const (
	buildContext       Build = 7_31_17_17
	buildReplayTrimmed Build = 8_18_00_00 // some time on the day before
)

// answer is what an assistant message says, whatever its dialect.
type answer struct {
	identified bool   // it is a message of its own, as from 07-28
	at         string // path of the message within the event
	content    []byte
	source     []byte // source, or provenance
	from       string // its name
}

// answerOf reads the assistant message at hand, once for all who ask.
func (c *Context) answerOf(e *logfmt.Event) *answer {
	if c.saysAt != c.events {
		c.saysAt, c.says = c.events, readAnswer(e.Data)
	}
	return &c.says
}

func readAnswer(data []byte) answer {
	var f [3][]byte
	jsjson.Fields(data, f[:], answerKeys)
	if m := f[0]; m != nil {
		var in [2][]byte
		jsjson.Fields(m, in[:], messageKeys)
		return answer{true, "data.message", in[0], in[1], "source"}
	}
	return answer{false, "data", f[1], f[2], "provenance"}
}

var (
	answerKeys  = []string{"message", "content", "provenance"}
	messageKeys = []string{"content", "source"}
)

// answers reports whether an assistant message is the first answer of its step,
// about which its stream can be asked.
func (c *Context) answers(e *logfmt.Event) bool {
	return c.first(e) && !c.stream.failed
}

func (c *Context) first(e *logfmt.Event) bool {
	if c.Builds.Since(buildMessages) && !c.answerOf(e).identified {
		return false // no message of its time, which is what is wrong with it
	}
	return !isReplace(e) && c.Step.Known && c.Step.Open && c.Asked == 0 && !c.stream.blind
}

// altered reports whether the bytes of a message or of its chunks do not read as
// what they say, which is told of the line.
func (c *Context) altered(e *logfmt.Event) bool {
	return jsjson.Facts(e.Facts)&alters != 0 || c.stream.open && c.stream.altered
}

const alters = jsjson.BadUTF8 | jsjson.DuplicateKey | jsjson.NumberLoss | jsjson.NumberOverflow

func cancelled(e *logfmt.Event) bool { return string(jsjson.Get(e.Data, "interrupted")) == "true" }

// cancelledHere reports whether it is a cancelled answer that may follow a
// stream that failed.
func (c *Context) cancelledHere(e *logfmt.Event) bool {
	return cancelled(e) && c.first(e)
}

func checkCited(c *Context, e *logfmt.Event) {
	if !c.answers(e) && !c.cancelledHere(e) {
		return
	}
	s := &c.stream
	for _, f := range c.Faults {
		if f.Fault == fold.FaultSources || f.Fault == fold.FaultEmpty || f.Fault == fold.FaultMarker {
			return
		}
	}
	var seqs []int64
	var n int64
	if s.open {
		if len(s.spans) == mostSpans {
			return
		}
		for _, sp := range s.spans {
			n += sp.to - sp.from
		}
	}
	if e.Sources == nil {
		switch {
		case n == 0 && !c.Builds.Since(buildEmptySources):
		case n == 0:
			c.Report(e, "sourceEventSeqs", "sourceEventSeqs is absent, expected [] for a stream without chunks")
		case c.Builds.Since(eraStart[fold.E2]) && e.Op != nil:
			c.Report(e, "sourceEventSeqs", "sourceEventSeqs is absent, expected the %s", chunkSpan(s))
		}
		return
	}
	if runs, ok := e.SourceRuns(); ok && n > 0 && sameRuns(runs, s.spans) {
		return
	}
	seqs, ok := e.SourceSeqs(s.cited[:0])
	if !ok {
		return
	}
	s.cited = seqs
	if n == 0 {
		if len(seqs) > 0 {
			c.Report(e, "sourceEventSeqs", "sourceEventSeqs is %s, but no chunk came since the attempt began; expected []", seqList(seqs))
		} else if c.Builds.Before(buildEmptySources) {
			c.Report(e, "sourceEventSeqs", "sourceEventSeqs is [], expected none before %s", buildEmptySources)
		}
		return
	}
	i, from := 0, s.spans
	for _, sp := range from {
		for q := sp.from; q < sp.to; q++ {
			if i == len(seqs) {
				c.Report(e, "sourceEventSeqs", "sourceEventSeqs ends before seq %d, expected the %s", q, chunkSpan(s))
				return
			}
			if seqs[i] != q {
				c.Report(e, "sourceEventSeqs", "sourceEventSeqs has %d at its place %d, expected %d: the attempt has the %s", seqs[i], i, q, chunkSpan(s))
				return
			}
			i++
		}
	}
	if i < len(seqs) {
		c.Report(e, "sourceEventSeqs", "sourceEventSeqs goes on with %d, expected it to end with the last chunk: the attempt has the %s", seqs[i], chunkSpan(s))
	}
}

// sameRuns reports whether runs are the spans, one for one. Runs that are cut
// elsewhere may be the same seqs as well.
func sameRuns(runs []logfmt.SeqRange, spans []span) bool {
	return slices.EqualFunc(runs, spans, func(r logfmt.SeqRange, s span) bool { return r.First == s.from && r.Last == s.to-1 })
}

// chunkSpan describes the chunks of the open attempt.
func chunkSpan(s *stream) string {
	n := int64(0)
	for _, sp := range s.spans {
		n += sp.to - sp.from
	}
	if n == 1 {
		return "chunk " + number(s.place.Seq)
	}
	return number(n) + " chunks from " + number(s.place.Seq) + " to " + number(s.last)
}

// replayRules are the rules for the provider's state that the builds may have
// followed.
func replayRules(b Builds) []fold.ReplayRule {
	switch {
	case b.Max < buildMessages:
		return []fold.ReplayRule{fold.ReplayIfUnchanged}
	case b.Since(buildReplayTrimmed):
		return []fold.ReplayRule{fold.ReplayTrimmed}
	case b.Since(buildMessages) && b.Max < buildReplayTrimmed-1_00_00:
		return []fold.ReplayRule{fold.ReplayAsIs}
	}
	return []fold.ReplayRule{fold.ReplayTrimmed, fold.ReplayAsIs, fold.ReplayIfUnchanged}
}

func checkAssembly(c *Context, e *logfmt.Event) {
	if !c.answers(e) && !c.cancelledHere(e) {
		return
	}
	s, a := &c.stream, c.answerOf(e)
	if jsjson.KindOf(a.content) != jsjson.Array || c.altered(e) {
		return
	}
	if !s.open {
		if len(a.content) > 2 && c.Builds.Since(eraStart[fold.E2]) && len(e.Sources) == 2 {
			c.Report(e, a.at+".content", "the message has content, but its stream had no chunks")
		}
		return
	}
	if cancelled(e) {
		got, err := s.asm.Interrupted()
		if err != nil {
			return
		}
		if got == nil {
			c.Report(e, a.at+".content", "the message of a cancelled answer has content, but its chunks say nothing")
			return
		}
		if stated := jsjson.Get(a.source, "replayState"); compareContent(c, e, a, got) && stated != nil {
			c.Report(e, a.at+"."+a.from+".replayState", "replayState of a cancelled answer is %s, expected none", show(stated))
		}
		return
	}
	var state []byte
	stated := jsjson.Get(a.source, "replayState")
	for i, rule := range replayRules(c.Builds) {
		got, err := s.asm.Result(rule)
		if err != nil {
			return // a chunk is malformed, or a block of an unknown kind was left open
		}
		if i == 0 && !compareContent(c, e, a, got) {
			return
		}
		if got.ReplayState == nil && stated == nil || got.ReplayState != nil && stated != nil && jsjson.Equal(got.ReplayState, stated) {
			return
		}
		if i == 0 {
			state = got.ReplayState
		}
	}
	if jsjson.KindOf(a.source) == jsjson.Object {
		c.Report(e, a.at+"."+a.from+".replayState", "replayState is %s, but the finish chunk gives %s", show(stated), show(state))
	}
}

// compareContent reports the first block that is not what the chunks add up to.
func compareContent(c *Context, e *logfmt.Event, a *answer, got *fold.Assembly) bool {
	if bytes.Equal(got.Content, a.content) || jsjson.Equal(got.Content, a.content) {
		return true
	}
	same := true
	pairwise(a.content, got.Content, func(i int, is, want []byte) bool {
		if same = jsjson.Equal(is, want); same {
			return true
		}
		path := a.at + ".content[" + number(int64(i)) + "]"
		for k, v := range jsjson.Members(want) {
			key, _ := jsjson.Str(k)
			if w := jsjson.Get(is, key); !jsjson.Equal(w, v) {
				key = string(appendSafe(nil, key, 24))
				c.Report(e, path+"."+key, "%s of block %d is %s, but its chunks give %s", key, i, excerpt(w, v), excerpt(v, w))
				return false
			}
		}
		c.Report(e, path, "block %d is %s, but its chunks give %s", i, show(is), show(want))
		return false
	})
	if same {
		c.Report(e, a.at+".content", "the message has %s, but its chunks give %d", blockCount(jsjson.Len(a.content)), jsjson.Len(got.Content))
	}
	return false
}

func blockCount(n int) string {
	if n == 1 {
		return "1 block"
	}
	return number(int64(n)) + " blocks"
}

// pairwise walks over two arrays as far as both go, until f returns false.
func pairwise(a, b []byte, f func(i int, x, y []byte) bool) {
	if jsjson.KindOf(a) != jsjson.Array || jsjson.KindOf(b) != jsjson.Array {
		return
	}
	for n, i, j := 0, 1, 1; i < len(a)-1 && j < len(b)-1; n++ {
		x, y := jsjson.Skip(a, i), jsjson.Skip(b, j)
		if !f(n, a[i:x], b[j:y]) {
			return
		}
		i, j = x+1, y+1
	}
}

func checkUsage(c *Context, e *logfmt.Event) {
	if !c.answers(e) && !c.cancelledHere(e) || c.altered(e) {
		return
	}
	var reported []byte
	if c.stream.open {
		reported = c.stream.asm.Usage()
	}
	usage := jsjson.Get(e.Data, "usage")
	switch {
	case reported == nil && usage == nil:
	case reported == nil && !c.stream.open && len(e.Sources) != 2:
		// Whatever streamed is not in the log.
	case reported == nil:
		c.Report(e, "data.usage", "usage is %s, but the stream reported none", show(usage))
	case usage == nil:
		c.Report(e, "data.usage", "usage is absent, but the stream reported %s", show(reported))
	case !jsjson.Equal(usage, reported):
		c.Report(e, "data.usage", "usage is %s, but the stream reported %s", show(usage), show(reported))
	}
}

func checkAnswerSource(c *Context, e *logfmt.Event) {
	if isReplace(e) {
		return
	}
	h, known := c.Header, !c.HeaderLost
	if c.stream.open {
		h, known = c.stream.header, c.stream.kept && known
	}
	a := c.answerOf(e)
	if h == nil || !known || jsjson.KindOf(a.source) != jsjson.Object {
		return
	}
	key, is, want := otherModel(a.source, h)
	if key != "" {
		c.Report(e, a.at+"."+a.from+"."+key, "%s of the answer is %s, but the request asked %s", key, show(is), show(want))
	}
}

// otherModel finds the first of provider and model in which a value differs from
// the config of a header; key is "" when neither does, or when either is no name.
func otherModel(v []byte, h *fold.EpochHeader) (key string, is, want []byte) {
	for _, key := range [...]string{"provider", "model"} {
		is, want := jsjson.Get(v, key), jsjson.Get(h.Config, key)
		if wantText(is) == "" && wantText(want) == "" && !bytes.Equal(is, want) {
			return key, is, want
		}
	}
	return "", nil, nil
}

// callList is the tool calls of the open step's answer.
type callList struct {
	list  []call
	known bool // the answer was seen, and nothing was lost since
}

type call struct {
	id, name, args []byte // JSON tokens
	block          int    // its place in the content
	ran, answered  bool
}

// take reads the calls of an answer.
func (k *callList) take(c *Context, e *logfmt.Event) {
	k.list, k.known = k.list[:0], true
	i := 0
	for b := range jsjson.Elements(c.answerOf(e).content) {
		if jsjson.StrEq(jsjson.Get(b, "type"), "tool-call") {
			if len(k.list) == mostCalls {
				k.list, k.known = k.list[:0], false
				return
			}
			k.list = append(k.list, call{
				id: clone(jsjson.Get(b, "id")), name: clone(jsjson.Get(b, "name")), args: clone(jsjson.Get(b, "arguments")),
				block: i,
			})
		}
		i++
	}
}

// mostCalls bounds the calls of one answer that are followed; no model asks for
// that many.
const mostCalls = 2048

// find returns the first call with that id for which ok holds.
func (k *callList) find(id []byte, ok func(*call) bool) *call {
	for i := range k.list {
		if c := &k.list[i]; bytes.Equal(c.id, id) && ok(c) {
			return c
		}
	}
	return nil
}

// repeats reports whether several calls have that id.
func (k *callList) repeats(id []byte) bool {
	first := k.find(id, func(*call) bool { return true })
	return first != nil && k.find(id, func(b *call) bool { return b != first }) != nil
}

// after takes an event into the state.
func (k *callList) after(c *Context, e *logfmt.Event) {
	switch e.Type {
	case "assistant/message":
		if !isReplace(e) && c.Step.Open && c.Asked == 1 {
			k.take(c, e)
		}
	case "tool/call":
		if b := k.find(jsjson.Get(e.Data, "callId"), func(b *call) bool { return !b.ran }); b != nil {
			b.ran = true
		}
	case "tool/result":
		if isReplace(e) {
			return
		}
		id := c.resultToken(e)
		if jsjson.KindOf(id) != jsjson.String {
			k.known = false // it may have been any call's
			return
		}
		b := k.find(id, func(b *call) bool { return b.ran && !b.answered })
		if b == nil {
			b = k.find(id, func(b *call) bool { return !b.answered })
		}
		if b != nil {
			b.answered = true
		}
	case "step/start", "step/end", "turn/start", "turn/end", "session/end-seed":
		k.list, k.known = k.list[:0], false
	}
}

// resultToken is the id of the call that a tool result answers, a JSON token.
func (c *Context) resultToken(e *logfmt.Event) []byte {
	if m := c.message(); m != nil {
		return jsjson.Get(jsjson.Get(m, "source"), "callId")
	}
	return jsjson.Get(e.Data, "callId")
}

func checkCallMatch(c *Context, e *logfmt.Event) {
	k := &c.called
	id := jsjson.Get(e.Data, "callId")
	if !c.inStep() || jsjson.KindOf(id) != jsjson.String || c.CallsLost {
		return
	}
	if c.Asked == 0 {
		c.Report(e, "", "tool/call %s stands before the answer of its step, expected it behind the assistant/message that asks for it", show(id))
		return
	}
	if !k.known {
		return
	}
	b := k.find(id, func(b *call) bool { return !b.ran })
	if b == nil {
		if k.find(id, func(*call) bool { return true }) != nil {
			c.Report(e, "data.callId", "tool/call runs call %s a second time, expected once", show(id))
		} else {
			c.Report(e, "data.callId", "tool/call runs call %s, which is none of the step's answer, which has %s", show(id), plural.Count(len(k.list), "call"))
		}
		return
	}
	for _, m := range [...]struct {
		key  string
		want []byte
	}{{"name", b.name}, {"arguments", b.args}} {
		is := jsjson.Get(e.Data, m.key)
		if jsjson.KindOf(is) == jsjson.String && !bytes.Equal(is, m.want) {
			c.Report(e, "data."+m.key, "%s of call %s is %s, but the answer asks for %s", m.key, show(id), excerpt(is, m.want), excerpt(m.want, is))
		}
	}
}

func checkResultCite(c *Context, e *logfmt.Event) {
	if isReplace(e) || !c.inStep() || c.CallsLost {
		return
	}
	for _, f := range c.Faults {
		if f.Fault == fold.FaultSources || f.Fault == fold.FaultEmpty || f.Fault == fold.FaultMarker || f.Fault == fold.FaultShadow {
			return
		}
	}
	id, ok := c.resultCall(e)
	if !ok {
		return
	}
	if c.called.repeats(c.resultToken(e)) {
		return // which call is meant is what nobody knows
	}
	seq, pending := c.Calls[id]
	if !pending {
		if e.Sources != nil && synthetic(c, e) && (c.gen == nil || !c.gen.loose) { // later RESULT-REPAIR says so
			c.Report(e, "sourceEventSeqs", "sourceEventSeqs of a result for a call that never started is %s, expected none", show(e.Sources))
		}
		return
	}
	if e.Sources == nil {
		// From generation 2 on results are seen to cite their calls, but nothing
		// says that they have to.
		if c.Builds.Since(eraStart[fold.E2]) && (c.gen == nil || !c.gen.loose) {
			c.Report(e, "sourceEventSeqs", "sourceEventSeqs is absent, expected [%d], the tool/call", seq)
		}
		return
	}
	if runs, ok := e.SourceRuns(); ok && len(runs) == 1 && runs[0] == (logfmt.SeqRange{First: seq, Last: seq}) {
		return
	}
	seqs, ok := e.SourceSeqs(c.stream.cited[:0])
	if !ok {
		return
	}
	c.stream.cited = seqs
	if len(seqs) != 1 || seqs[0] != seq {
		f := c.Report(e, "sourceEventSeqs", "sourceEventSeqs is %s, expected [%d], the tool/call", seqList(seqs), seq)
		f.Related = append(f.Related, Related{Seq: seq, Message: "the tool/call that the result answers"})
	}
}

// completeChecker settles when a turn has ended what its last step left open.
type completeChecker struct {
	lost    int64
	at      Place
	path    string
	askew   bool // an order was reported in this step
	pending []missing
}

type missing struct {
	at   Place
	path string
	id   string // of a call
	text string
}

func (m *completeChecker) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&m.lost) {
		m.pending = m.pending[:0]
	}
	k := &c.called
	switch e.Type {
	case "assistant/message":
		if !isReplace(e) && c.Asked == 0 {
			m.at, m.path, m.askew = c.place(e), c.answerOf(e).at+".content", false
		}
	case "tool/call":
		if k.known && c.inStep() && !m.askew {
			m.order(c, e, jsjson.Get(e.Data, "callId"), "tool/call", func(b *call) bool { return b.ran })
		}
	case "tool/result":
		if k.known && c.inStep() && !m.askew && !isReplace(e) {
			m.order(c, e, c.resultToken(e), "tool/result", func(b *call) bool { return b.answered })
		}
	case "step/start":
		m.flush(c)
	case "step/end":
		if !k.known || c.CallsLost {
			return
		}
		for i := range k.list {
			b := &k.list[i]
			what := ""
			switch {
			case b.answered:
				continue // one without a tool/call breaks CALL-PAIR
			case b.ran:
				what = "no tool/result"
			default:
				what = "neither tool/call nor tool/result"
			}
			m.pending = append(m.pending, missing{m.at, m.path + "[" + number(int64(b.block)) + "]", string(b.id),
				"call " + show(b.id) + " has " + what + " when its step ends, expected one of each"})
		}
	case "turn/end":
		kind, _ := jsjson.Str(jsjson.Get(jsjson.Get(e.Data, "reason"), "kind"))
		switch kind {
		case "error", "aborted", "interrupted", "disposed":
			m.pending = m.pending[:0]
		}
		m.flush(c)
	default:
		m.pending = m.pending[:0]
	}
}

// order reports a call that is run, or answered, before one that the answer
// names first.
func (m *completeChecker) order(c *Context, e *logfmt.Event, id []byte, what string, done func(*call) bool) {
	k := &c.called
	b := k.find(id, func(b *call) bool { return !done(b) })
	if b == nil {
		return
	}
	for i := range k.list {
		a := &k.list[i]
		if a == b {
			return
		}
		if !done(a) {
			m.askew = true
			c.Report(e, "", "%s of call %s comes before that of call %s, expected the order of the answer", what, show(b.id), show(a.id))
			return
		}
	}
}

func (m *completeChecker) flush(c *Context) {
	for _, p := range m.pending {
		c.ReportAt(p.at, p.path, "%s", p.text)
		if c.unanswered == nil {
			c.unanswered = map[string]bool{}
		}
		if len(c.unanswered) < mostTold {
			c.unanswered[p.id] = true
		}
	}
	m.pending = m.pending[:0]
}

func (m *completeChecker) End(*Context) {}

// answerChecker settles when a turn has ended whether its last step should have
// had an answer.
type answerChecker struct {
	lost    int64
	pending *missing
}

func (a *answerChecker) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&a.lost) {
		a.pending = nil
	}
	s := &c.stream
	switch e.Type {
	case "step/end":
		switch {
		case s.blind || c.Asked > 0 || !c.Step.Known:
		case !s.open && c.Step.Open && c.Header != nil: // without a header nothing was asked
			a.pending = &missing{c.place(e), "", "", "step " + number(c.Step.N) + " ends with neither chunks nor an assistant/message, although its turn went well"}
		case s.open && s.finish != "" && !s.failed:
			a.pending = &missing{c.place(e), "", "", "step " + number(c.Step.N) + " ends without an assistant/message, although its stream finished with " +
				string(appendSafe(nil, s.finish, 24)) + " at seq " + number(s.last)}
		}
		return
	case "llm/retry":
		a.pending = nil // the step failed, and is tried again as another one
		return
	case "turn/end":
		switch kind, _ := jsjson.Str(jsjson.Get(jsjson.Get(e.Data, "reason"), "kind")); kind {
		case "completed", "max-tokens":
		default:
			a.pending = nil
		}
	case "step/start":
	default:
		a.pending = nil
	}
	if p := a.pending; p != nil {
		c.ReportAt(p.at, "", "%s", p.text)
		a.pending = nil
	}
}

func (a *answerChecker) End(*Context) {}

type contextChecker struct {
	last []byte
	lost int64
}

func (k *contextChecker) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&k.lost) {
		k.last = nil
	}
	if k.last != nil && jsjson.Equal(k.last, e.Data) {
		c.Report(e, "data", "request/context equals the one before it, expected a change")
	}
	k.last = clone(e.Data)
	if c.Header == nil || c.HeaderLost {
		return
	}
	if key, is, want := otherModel(e.Data, c.Header); key != "" {
		c.Report(e, "data."+key, "%s of request/context is %s, but the header in force has %s", key, show(is), show(want))
	}
}

func (k *contextChecker) End(*Context) {}

// userPlaceChecker follows whether the loop has gone on since a step started.
type userPlaceChecker struct {
	past     string // the first event of the step behind which the loop takes up no message
	pastSeq  int64
	pastLine int64
}

func (u *userPlaceChecker) Event(c *Context, e *logfmt.Event) {
	switch e.Type {
	case "step/start", "step/end":
		u.past = ""
		return
	case "user/message":
	case "tool/result":
		if isReplace(e) {
			return
		}
		fallthrough
	default:
		if u.past == "" {
			u.past, u.pastSeq, u.pastLine = e.Type, e.Seq, e.Pos.Line
		}
		return
	}
	if isReplace(e) || !jsjson.StrEq(jsjson.Get(jsjson.Get(e.Data, "source"), "kind"), "user") || !c.Turn.Known || !c.Step.Known {
		return
	}
	switch {
	case c.Builds.Since(buildReact):
		switch {
		case !c.Step.Open:
			c.Report(e, "", "a user's message stands outside any step, expected it right behind step/start")
		case u.past != "":
			f := c.Report(e, "", "a user's message stands behind %s, expected it right behind step/start", u.past)
			f.Related = append(f.Related, Related{u.pastSeq, u.pastLine, "the step had gone on here"})
		}
	case c.Builds.Before(buildReact) && c.Step.Open:
		f := c.Report(e, "", "a user's message stands inside step %s, expected it before step/start", number(c.Step.N))
		since(f, &c.Step, "the open step starts here")
	}
}

func (u *userPlaceChecker) End(*Context) {}
