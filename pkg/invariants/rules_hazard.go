package invariants

import (
	"slices"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about logs that are what the harness wrote and still hold something
// that goes wrong later: at the provider, in a reader, or between two processes.
var hazardRules = []*Rule{
	{
		ID: "CALL-ID", Severity: Warning, Spec: "SEMANTICS §2.1, §8.3; WIRE §1.3",
		Title:  "the tool calls of an answer have ids of their own",
		Text:   "A result is matched to its call by the id alone. Calls of one answer that share an id, or have an empty one, cannot be told apart, and a provider may refuse the history.",
		How:    "The provider or its adapter numbered the calls badly.",
		Advice: "Look which result belongs to which call by their order. The adapter should make up ids where the provider gives none.",
		Types:  []string{"assistant/message"},
		New:    stateless(checkCallIDs),
	},
	{
		ID: "CALL-OPEN", Severity: Note, Spec: "SEMANTICS §6.5, §11.3; WIRE §1.3",
		Title:  "every tool call that the model sees has its result",
		Text:   "When a request is made, each tool-call block on the surface has a tool result on the surface, and each result its call. Providers refuse a history in which they do not match.",
		How:    "A turn was cut off and its calls were never answered, or a replacement took one half of a pair from the surface. The harness accepts both.",
		Advice: "Look how the provider answered the request of the step named. A replaced range should be cut where no call is open.",
		Types:  []string{"user/message", "assistant/message", "tool/result", "context/message", "steering/message", "assistant/chunk"},
		New:    func() Checker { return new(pairingChecker) },
	},
	{
		ID: "ASST-REPLAY", Severity: Warning, Since: buildMessages, Spec: "SEMANTICS §2.3, §8.3; WIRE §2",
		Title:  "the provider's state fits the blocks of its message",
		Text:   "An adapter may keep one entry for each block of the answer under replayState.blocks, to give the provider its own words back. Entries and blocks are matched by place, so a list of another length belongs to another answer. A note where the log may come from a build before 08-17.",
		How:    "The message was edited without its state, or a build before 08-17 dropped blocks of the answer and kept all entries.",
		Advice: "The adapter will send the state of one block with another, or give it up. Compare with the finish chunk of the step.",
		Types:  []string{"assistant/message"},
		New:    stateless(checkReplayState),
	},
	{
		ID: "ASST-EMPTY", Severity: Note, Spec: "SEMANTICS §4.2, §6.4",
		Title:  "an answer has content",
		Text:   "An assistant message without content is there for its usage only. It takes a place on the surface and gives no message, so that the next request looks as if the model had never been asked.",
		How:    "The stream was empty, or held nothing but tool calls when it ran into its limit.",
		Advice: "Nothing is wrong with the log. Many of them in a row mean that a limit is too low, or that the provider answers with nothing.",
		Types:  []string{"assistant/message"},
		New:    stateless(checkEmptyAnswer),
	},
	{
		ID: "LINE-SURROGATE", Severity: Note, Spec: "PHYSICAL §9.3; SEMANTICS §0.4",
		Title:  "text that the model sees is Unicode",
		Text:   "Half of a surrogate pair is a string to JavaScript and no text to anyone else. The log keeps it as an escape; on its way to a provider it becomes U+FFFD, is stripped, or the request is refused.",
		How:    "A text was cut in the middle of a character, by a tool, a limit or a chunk border.",
		Advice: "Nothing is lost in the log. Cut texts at code points.",
		Types:  []string{"user/message", "assistant/message", "tool/result", "context/message", "steering/message", "request/header"},
		New:    func() Checker { return new(surrogateChecker) },
	},
	{
		ID: "LOG-WRITERS", Severity: Warning, Alone: true, Spec: "PHYSICAL §2.5, §8; SEMANTICS §0.3, §8.5",
		Title:  "one process at a time writes a log",
		Text:   "Each process numbers on from the last event it read. Two of them give the same seqs to different events, and a process that loads the log of a living one closes a turn that goes on. Each shows as a breach of another rule; together they say what happened.",
		How:    "The session was opened twice: by two windows, two machines on one share, or a restart that did not wait.",
		Advice: "Split the log by hand: the lines named belong to another process. Only one of the two histories is what the model saw.",
		New:    func() Checker { return new(writersChecker) },
	},
}

func checkCallIDs(c *Context, e *logfmt.Event) {
	if isReplace(e) {
		return
	}
	a := c.answerOf(e)
	var seen map[string]int
	i := -1
	for b := range jsjson.Elements(a.content) {
		i++
		if !jsjson.StrEq(jsjson.Get(b, "type"), "tool-call") {
			continue
		}
		id := jsjson.Get(b, "id")
		path := a.at + ".content[" + number(int64(i)) + "].id"
		switch {
		case jsjson.KindOf(id) != jsjson.String:
			c.Report(e, path, "tool call in block %d has the id %s, expected a string", i, show(id))
			continue
		case len(id) == 2:
			c.Report(e, path, "tool call in block %d has an empty id", i)
			continue
		}
		if seen == nil {
			seen = map[string]int{}
		}
		if first, ok := seen[string(id)]; ok {
			c.Report(e, path, "tool call in block %d has the id %s of block %d, expected one of its own", i, show(id), first)
			continue
		}
		seen[string(id)] = i
	}
}

// pairingChecker keeps the calls and results of the surface that lack their
// counterpart.
type pairingChecker struct {
	open    map[string]openCall // calls without a result, by id token
	order   []string            // of open, some of them gone
	orphans []orphan            // results without a call
	stale   bool                // the surface was rewritten: count again
	told    map[string]bool
	off     bool // a faulty replacement decides what is on the surface
}

type openCall struct {
	seq int64 // of the answer that asks for it
	n   int   // how many calls of that id there are
}

type orphan struct {
	id  string
	seq int64
}

func (p *pairingChecker) Event(c *Context, e *logfmt.Event) {
	switch e.Type {
	case "assistant/chunk":
		// Only the first chunk of an attempt shows a request.
		if c.stream.place.Seq == e.Seq && c.Asked == 0 {
			p.dispatch(c, e)
		}
		return
	}
	switch c.Change {
	case fold.Replaced:
		p.stale = true
		p.off = p.off || len(c.Faults) > 0
	case fold.Appended:
		if !p.stale {
			switch e.Type {
			case "assistant/message":
				p.ask(c.answerOf(e).content, e.Seq)
			case "tool/result":
				p.answer(c.resultToken(e), e.Seq, false)
			}
		}
	}
}

// mostTold bounds what is remembered as told.
const mostTold = 4096

// tell reports whether something is told for the first time.
func (p *pairingChecker) tell(key string) bool {
	if p.told == nil {
		p.told = map[string]bool{}
	}
	was := p.told[key]
	if !was && len(p.told) == mostTold {
		return false // it is said often enough
	}
	p.told[key] = true
	return !was
}

// ask counts the calls of an answer on the surface, by its content.
func (p *pairingChecker) ask(content []byte, seq int64) {
	for b := range jsjson.Elements(content) {
		if !jsjson.StrEq(jsjson.Get(b, "type"), "tool-call") {
			continue
		}
		if id := jsjson.Get(b, "id"); len(id) > 2 {
			if p.open == nil {
				p.open = map[string]openCall{}
			}
			p.open[string(id)] = openCall{seq, p.open[string(id)].n + 1}
			p.order = append(p.order, string(id))
		}
	}
}

// answer counts a result on the surface, by the id of its call; again tells that
// all nodes are counted again.
func (p *pairingChecker) answer(id []byte, seq int64, again bool) {
	if len(id) <= 2 {
		p.off = p.off || jsjson.KindOf(id) != jsjson.String // it may be any call's
		return
	}
	o, ok := p.open[string(id)]
	switch {
	case !ok && again:
		p.orphans = append(p.orphans, orphan{string(id), seq})
	case !ok: // it answers nothing as it is appended, which is CALL-PAIR
		p.tell("result " + string(id))
	case o.n > 1:
		p.open[string(id)] = openCall{o.seq, o.n - 1}
	default:
		delete(p.open, string(id))
	}
	const few = 64
	if len(p.order) > few+2*len(p.open) { // most of them were answered
		p.order = slices.DeleteFunc(p.order, func(id string) bool { _, ok := p.open[id]; return !ok })
	}
}

func (p *pairingChecker) dispatch(c *Context, e *logfmt.Event) {
	if c.mode() != fold.SurfaceMode || p.off {
		return
	}
	if p.stale {
		clear(p.open)
		p.order, p.orphans, p.stale = p.order[:0], p.orphans[:0], false
		for _, n := range c.Surface.Nodes() {
			switch n.Type {
			case "assistant/message":
				p.ask(readAnswer(n.Data).content, n.Seq)
			case "tool/result":
				id := jsjson.Get(n.Data, "callId")
				if m := jsjson.Get(n.Data, "message"); m != nil {
					id = jsjson.Get(jsjson.Get(m, "source"), "callId")
				}
				p.answer(id, n.Seq, true)
			}
		}
	}
	if len(p.open) == 0 && len(p.orphans) == 0 || c.losses > 0 || len(c.doubt) > 0 {
		return
	}
	turn, step, _ := c.numbers()
	for _, id := range p.order {
		if o, ok := p.open[id]; ok && !c.unanswered[id] && p.tell(id) {
			f := c.Report(e, "", "the request of turn %d step %d holds call %s without a result", turn, step, show([]byte(id)))
			f.Related = append(f.Related, Related{Seq: o.seq, Message: "the answer that asks for it"})
		}
	}
	for _, o := range p.orphans {
		if p.tell("result " + o.id) {
			f := c.Report(e, "", "the request of turn %d step %d holds a result for call %s, but not the call", turn, step, show([]byte(o.id)))
			f.Related = append(f.Related, Related{Seq: o.seq, Message: "the result"})
		}
	}
}

func (p *pairingChecker) End(*Context) {}

func checkReplayState(c *Context, e *logfmt.Event) {
	a := c.answerOf(e)
	blocks := jsjson.Get(jsjson.Get(a.source, "replayState"), "blocks")
	if jsjson.KindOf(blocks) != jsjson.Array || jsjson.KindOf(a.content) != jsjson.Array {
		return
	}
	if n, m := jsjson.Len(blocks), jsjson.Len(a.content); n != m {
		f := c.Report(e, a.at+".source.replayState.blocks", "replayState has %s for %s of content, expected one for each", plural.Count(n, "entry"), plural.Count(m, "block"))
		if !c.Builds.Since(buildReplayTrimmed) {
			f.Severity = Note // builds before that kept the state of blocks they dropped
		}
	}
}

func checkEmptyAnswer(c *Context, e *logfmt.Event) {
	if !isReplace(e) && !c.Inherited(e) && (c.answerOf(e).identified || !c.Builds.Since(buildMessages)) && string(c.answerOf(e).content) == "[]" {
		c.Report(e, "", "the answer has no content, and gives no message")
	}
}

// surrogateChecker reports the first half of a pair and counts the rest.
type surrogateChecker struct{ first *Finding }

func (s *surrogateChecker) Event(c *Context, e *logfmt.Event) {
	if jsjson.Facts(e.Facts)&jsjson.LoneSurrogate == 0 || e.Type != "request/header" && c.Change == fold.Unchanged && c.mode() == fold.SurfaceMode {
		return
	}
	v, path := e.Data, "data"
	switch e.Type {
	case "request/header":
		v, path = jsjson.Get(v, "header"), "data.header"
	default:
		if m := jsjson.Get(v, "message"); m != nil {
			v, path = m, "data.message"
		}
		v, path = jsjson.Get(v, "content"), path+".content"
	}
	if !hasLoneSurrogate(v) {
		return
	}
	if s.first != nil {
		s.first.More++
		return
	}
	s.first = c.Report(e, path, "%s holds half of a surrogate pair, which is no text outside JavaScript", e.Type)
}

func (s *surrogateChecker) End(*Context) {}

// hasLoneSurrogate looks for the escape of a half pair in canonical JSON, where
// nothing else is escaped as \ud….
func hasLoneSurrogate(v []byte) bool {
	for i := 0; i+2 < len(v); i++ {
		if v[i] != '\\' {
			continue
		}
		if v[i+1] == 'u' && v[i+2] == 'd' {
			return true
		}
		i++
	}
	return false
}

// writersChecker puts together what two processes on one log leave behind.
type writersChecker struct {
	// A run of events whose seqs were given before, in a row or by turns with those
	// of another process.
	from, to int64
	at       Place
	n        int64
	lines    int // records they stand in
	line     int64
	row      int64
	between  bool // another event came behind the last of the run
	turns    bool // and then the run went on

	// A turn that crash repair has closed.
	closed bool
	turn   int64
	end    Place
}

func (w *writersChecker) Event(c *Context, e *logfmt.Event) {
	switch c.where {
	case again:
		if w.n > 0 && e.Seq == w.to {
			w.turns = w.turns || w.between
			w.n, w.to = w.n+1, w.to+1
			if e.Pos.Line != w.line || e.Pos.Row != w.row {
				w.lines++
				w.line, w.row = e.Pos.Line, e.Pos.Row
			}
			return
		}
		w.flush(c)
		w.from, w.to, w.at, w.n, w.lines = e.Seq, e.Seq+1, c.place(e), 1, 1
		w.between, w.turns = false, false
		w.line, w.row = e.Pos.Line, e.Pos.Row
		return
	case late:
		return
	}
	w.between = true
	switch e.Type {
	case "turn/end":
		w.closed = false
		if jsjson.StrEq(jsjson.Get(jsjson.Get(e.Data, "reason"), "kind"), "interrupted") && c.turn > 0 && c.Turn.Known && c.Turn.names(c.turn) {
			w.closed, w.turn, w.end = true, c.turn, c.place(e)
		}
	case "turn/start", "session/end-seed":
		w.closed = false
	default:
		if w.closed && c.turn == w.turn && c.step > 0 && scoped(e) {
			w.closed = false
			f := c.Report(e, "data.turn", "%s goes on with turn %d, which crash repair had closed: the process that wrote it was still alive", e.Type, w.turn)
			f.Related = append(f.Related, Related{w.end.Seq, w.end.Pos.Line, "another process closed the turn here"})
		}
	}
}

// scoped reports whether an event belongs to the step it names.
func scoped(e *logfmt.Event) bool {
	switch e.Type {
	case "step/start", "step/end", "assistant/chunk", "assistant/message", "tool/call":
		return true
	case "tool/result":
		return !isReplace(e)
	}
	return false
}

// flush reports a run of repeated seqs; one record alone may be a copied line.
func (w *writersChecker) flush(c *Context) {
	if w.lines > 1 {
		how := "in a row"
		if w.turns {
			how = "between others"
		}
		c.ReportAt(w.at, "", "%d events %s have seqs that were given before, %d to %d: a second process numbered on from seq %d, or lines were copied", w.n, how, w.from, w.to-1, w.from-1)
	}
	w.n, w.lines, w.between, w.turns = 0, 0, false, false
}

func (w *writersChecker) End(c *Context) { w.flush(c) }
