package invariants

import (
	"slices"
	"strconv"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// pending is a call that an answer asks for and that has no result yet.
type pending struct {
	id, name, arguments string
	call                int64 // seq of its tool/call; -1 before
	at                  Place
}

// calls are the pending ones of the open step, in the order of the answer. They
// are kept for generations in which an answer announces them (FORMATS §7.4 T).
type calls struct {
	list   []pending
	lost   bool // one may be missing
	losses int64
}

func (p *calls) find(id string) *pending {
	for i := range p.list {
		if p.list[i].id == id {
			return &p.list[i]
		}
	}
	return nil
}

// followCalls takes the event into account, after the rules saw it.
func (c *Context) followCalls(e *logfmt.Event) {
	p := &c.pending
	if p.losses != c.losses {
		p.losses = c.losses
		p.list, p.lost = p.list[:0], true
	}
	switch e.Type {
	case "step/start", "step/end", "turn/start", "turn/end":
		p.list, p.lost = p.list[:0], false
	case "assistant/message":
		if isReplace(e) {
			return
		}
		for b := range toolCalls(e) {
			id, _ := jsjson.Str(jsjson.Get(b, "id"))
			if id == "" || p.find(id) != nil {
				continue
			}
			name, _ := jsjson.Str(jsjson.Get(b, "name"))
			arguments, _ := jsjson.Str(jsjson.Get(b, "arguments"))
			p.list = append(p.list, pending{id, name, arguments, -1, c.place(e)})
		}
	case "tool/call":
		id, _ := jsjson.Str(jsjson.Get(e.Data, "callId"))
		if x := p.find(id); x != nil {
			x.call = e.Seq
		}
	case "tool/result":
		if isReplace(e) {
			return
		}
		if id, ok := c.resultCall(e); ok {
			p.list = slices.DeleteFunc(p.list, func(x pending) bool { return x.id == id })
		}
	}
}

// toolCalls yields the tool-call blocks of an answer.
func toolCalls(e *logfmt.Event) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for b := range jsjson.Elements(jsjson.Get(jsjson.Get(e.Data, "message"), "content")) {
			if jsjson.StrEq(jsjson.Get(b, "type"), "tool-call") && !yield(b) {
				return
			}
		}
	}
}

// inStep reports whether the event names the open step: otherwise the scope is
// what is wrong.
func (c *Context) inStep() bool {
	turn, step, ok := c.numbers()
	return ok && c.Turn.Known && c.Step.Known && c.Turn.names(turn) && c.Step.names(step)
}

func genCallID(c *Context, e *logfmt.Event) {
	if e.Type != "assistant/message" || isReplace(e) || !c.inStep() {
		return
	}
	var seen []string
	bad := func(format string, args ...any) *Finding {
		f := c.Report(e, "data.message.content", format, args...)
		f.Severity = Error // the harness looks from generation 2 on
		return f
	}
	for b := range toolCalls(e) {
		v := jsjson.Get(b, "id")
		id, _ := jsjson.Str(v)
		switch {
		case id == "":
			bad("a tool call of the answer has the id %s, expected a non-empty string", show(v))
		case slices.Contains(seen, id):
			bad("two tool calls of the answer have the id %s, expected one", quoted(id))
		case c.pending.find(id) != nil:
			x := c.pending.find(id)
			f := bad("a tool call of the answer has the id %s, which a call without a result already has", quoted(id))
			f.Related = append(f.Related, Related{x.at.Seq, x.at.Pos.Line, "the call is asked for here"})
		}
		seen = append(seen, id)
	}
}

func genCallMatch(c *Context, e *logfmt.Event) {
	if e.Type != "tool/call" || !c.inStep() || c.pending.lost {
		return
	}
	id, ok := jsjson.Str(jsjson.Get(e.Data, "callId"))
	if !ok {
		return
	}
	x := c.pending.find(id)
	bad := func(path, format string, args ...any) {
		f := c.Report(e, path, format, args...)
		f.Severity = Error // the harness looks from generation 2 on
		if x != nil {
			f.Related = append(f.Related, Related{x.at.Seq, x.at.Pos.Line, "the answer asks for it here"})
		}
	}
	name, _ := jsjson.Str(jsjson.Get(e.Data, "name"))
	arguments, _ := jsjson.Str(jsjson.Get(e.Data, "arguments"))
	switch {
	case x == nil:
		bad("data.callId", "tool/call %s is a call that no answer of step %s asks for, or that has its result already", quoted(id), number(c.Step.N))
	case x.call >= 0:
		bad("data.callId", "tool/call %s is logged a second time, the first was seq %d", quoted(id), x.call)
	case x.name != name:
		bad("data.name", "tool/call %s names the tool %s, the answer %s", quoted(id), quoted(name), quoted(x.name))
	case x.arguments != arguments:
		bad("data.arguments", "tool/call %s has the arguments %s, the answer has %s", quoted(id), quoted(arguments), quoted(x.arguments))
	}
}

func genCallPair(c *Context, e *logfmt.Event) {
	if e.Type != "tool/result" || isReplace(e) || !c.inStep() || c.pending.lost {
		return
	}
	if id, ok := c.resultCall(e); ok && c.pending.find(id) == nil {
		c.Report(e, "", "tool/result answers call %s, expected one that the answer of step %s asks for and that has no result", quoted(id), number(c.Step.N))
	}
}

func genCallComplete(c *Context, e *logfmt.Event) {
	if e.Type != "step/end" && e.Type != "turn/end" || c.pending.lost || !c.Step.Known {
		return
	}
	for _, x := range c.pending.list {
		f := c.Report(e, "", "%s leaves call %s without a result", e.Type, quoted(x.id))
		f.Severity = Error
		f.Related = append(f.Related, Related{x.at.Seq, x.at.Pos.Line, "the answer asks for it here"})
	}
}

func genRepair(c *Context, e *logfmt.Event) {
	if e.Type != "tool/result" || isReplace(e) || !c.inStep() || c.pending.lost {
		return
	}
	id, ok := c.resultCall(e)
	x := c.pending.find(id)
	if !ok || x == nil || x.call >= 0 {
		return
	}
	message := jsjson.Get(e.Data, "message")
	result, at := message, "data.message" // that carries isError and content
	ids := "interrupted-tool-result-CALL-NUMBER or forked-tool-result-CALL-SEQ"
	if !c.gen.bare {
		result, at = jsjson.Index(jsjson.Get(message, "content"), 0), "data.message.content[0]"
		ids = "interrupted-tool-result-CALL-NUMBER"
	}
	bad := func(path, format string, args ...any) *Finding {
		f := c.Report(e, path, "call %s was never recorded as started, and its result is no repair: "+format, append([]any{quoted(id)}, args...)...)
		f.Related = append(f.Related, Related{x.at.Seq, x.at.Pos.Line, "the answer asks for it here"})
		return f
	}
	fault := jsjson.Get(e.Data, "error")
	own, _ := jsjson.Str(jsjson.Get(message, "id"))
	interrupted, isRepair := strings.CutPrefix(own, "interrupted-tool-result-"+id+"-")
	forked, isFork := strings.CutPrefix(own, "forked-tool-result-"+id+"-")
	isFork = isFork && c.gen.bare
	switch {
	case fault == nil:
		bad("data.error", "error is absent, expected ToolNotStartedError with code TOOL_NOT_STARTED")
	case !jsjson.StrEq(jsjson.Get(fault, "code"), "TOOL_NOT_STARTED"):
		bad("data.error.code", "code of its error is %s, expected TOOL_NOT_STARTED", show(jsjson.Get(fault, "code")))
	case !jsjson.StrEq(jsjson.Get(fault, "name"), "ToolNotStartedError"):
		bad("data.error.name", "name of its error is %s, expected ToolNotStartedError", show(jsjson.Get(fault, "name")))
	case !truthy(result, "isError"):
		bad(at+".isError", "isError is %s, expected true", show(jsjson.Get(result, "isError")))
	case e.Sources != nil:
		bad("sourceEventSeqs", "sourceEventSeqs is %s, expected none", show(e.Sources))
	case !isRepair && !isFork || !canonicalCount(interrupted) && !canonicalCount(forked):
		bad("data.message.id", "id is %s, expected %s", quoted(own), ids)
	case isFork:
		// Known from sources alone (FORMATS §7.4 F1).
		if n, _ := strconv.ParseInt(forked, 10, 64); n != e.Seq {
			bad("data.message.id", "id ends in %s, expected its own seq %d (unverified)", forked, e.Seq).Severity = Warning
		} else if content := jsjson.Get(result, "content"); jsjson.Len(content) != 1 || !jsjson.StrEq(jsjson.Get(jsjson.Index(content, 0), "type"), "text") {
			bad(at+".content", "content is %s, expected one block of text (unverified)", show(content)).Severity = Warning
		}
	case !repairText(jsjson.Get(result, "content")):
		bad(at+".content", "its text is not that of the harness")
	}
}

// canonicalCount reports whether s is a whole number from 0 as the writer puts it.
func canonicalCount(s string) bool {
	n, err := strconv.ParseInt(s, 10, 64)
	return err == nil && n >= 0 && strconv.FormatInt(n, 10) == s
}

func repairText(content []byte) bool {
	b := jsjson.Index(content, 0)
	text, ok := jsjson.Str(jsjson.Get(b, "text"))
	return jsjson.Len(content) == 1 && ok && jsjson.StrEq(jsjson.Get(b, "type"), "text") && fold.OwnNotStarted(text)
}

func genEnclosed(c *Context, e *logfmt.Event) {
	if c.Turn.Known && !c.Turn.Open {
		c.Report(e, "", "%s stands outside any turn, expected turn/start before it", e.Type)
	}
}

func genOneAnswer(c *Context, e *logfmt.Event) {
	checkOneAnswer(c, e)
	if isReplace(e) || jsjson.Get(e.Data, "interrupted") != nil {
		return
	}
	if kind, _ := jsjson.Str(jsjson.Get(finishOf(e), "kind")); kind == "error" || kind == "aborted" {
		c.Report(e, "data.stream", "assistant/message keeps a stream that ended with %s, expected an assistant/attempt", kind)
	}
}

// finishOf is the reason of the last finish chunk of an embedded stream.
func finishOf(e *logfmt.Event) (reason []byte) {
	for r := range jsjson.Elements(jsjson.Get(e.Data, "stream")) {
		if ch := jsjson.Get(r, "chunk"); jsjson.StrEq(jsjson.Get(ch, "type"), "finish") {
			reason = jsjson.Get(ch, "reason")
		}
	}
	return reason
}

// genDispatch follows calls that code makes, within their turn.
type genDispatch struct {
	subs map[string]*genDispatched
	lost int64
}

type genDispatched struct {
	root, parent, name string
	arguments          []byte
	started, settled   bool
	at                 Place
}

func (d *genDispatch) Event(c *Context, e *logfmt.Event) {
	if e.Type == "turn/end" {
		d.subs = nil
		return
	}
	blind := c.unsettled(&d.lost)
	if blind {
		d.subs = nil
	}
	member := func(key string) string { s, _ := jsjson.Str(jsjson.Get(e.Data, key)); return s }
	id := member("subCallId")
	now := &genDispatched{root: member("rootCallId"), parent: member("parentCallId"), name: member("name"), arguments: clone(jsjson.Get(e.Data, "arguments")), at: c.place(e)}
	if id == "" || now.root == "" || now.parent == "" {
		return // its shape is what is wrong
	}
	x := d.subs[id]
	start := strings.HasSuffix(e.Type, "-start")
	about := func(f *Finding) {
		if x != nil {
			f.Related = append(f.Related, Related{x.at.Seq, x.at.Pos.Line, "the call was logged here before"})
		}
	}
	switch {
	case x == nil:
		if p := d.subs[now.parent]; now.parent != now.root && !blind && (p == nil || p.root != now.root) {
			c.Report(e, "data.parentCallId", "parent %s of call %s is neither its root %s nor a call of that root", quoted(now.parent), quoted(id), quoted(now.root))
		}
	case start:
		about(c.Report(e, "data.subCallId", "call %s starts a second time", quoted(id)))
		return
	case x.settled:
		about(c.Report(e, "data.subCallId", "call %s is settled a second time", quoted(id)))
		return
	case x.root != now.root || x.parent != now.parent || x.name != now.name || !jsjson.Equal(x.arguments, now.arguments):
		about(c.Report(e, "", "call %s is settled under another root, parent, name or arguments than it started with", quoted(id)))
	}
	if x == nil {
		x = now
		if d.subs == nil {
			d.subs = map[string]*genDispatched{}
		}
		d.subs[id] = x
	}
	x.started = x.started || start
	x.settled = x.settled || !start
}

func (d *genDispatch) End(*Context) {}

// genRetry follows the chains of retries.
type genRetry struct {
	chains map[string]*genChain
	owner  map[string]string // chain by id
	lost   int64
}

type genChain struct {
	id string
	n  int64
}

func (r *genRetry) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&r.lost) {
		r.chains, r.owner = nil, nil
	}
	genRetryValues(c, e)
	turn, step, ok := c.numbers()
	n, okN := jsjson.SafeInt(jsjson.Get(e.Data, "retry"))
	id, okID := jsjson.Str(jsjson.Get(e.Data, "retryId"))
	provider, _ := jsjson.Str(jsjson.Get(e.Data, "provider"))
	policy, _ := jsjson.Str(jsjson.Get(e.Data, "policyKey"))
	if !ok || !okN || !okID {
		return
	}
	if c.Turn.Known && c.Step.Known {
		last := c.Step.N
		if !c.Step.Open {
			last = c.Step.Last
		}
		switch {
		case !c.Turn.Open:
			c.Report(e, "", "llm/retry of turn %d step %d stands outside any turn", turn, step)
		case !c.Turn.names(turn) || last >= 0 && step != last:
			c.Report(e, "data.step", "llm/retry names turn %d step %d, expected turn %s step %s", turn, step, number(c.Turn.N), number(last))
		}
	}
	if c.Header != nil && !c.HeaderLost {
		if p := jsjson.Get(c.Header.Config, "provider"); !jsjson.StrEq(p, provider) {
			c.Report(e, "data.provider", "llm/retry goes to provider %s, the header in force names %s", quoted(provider), show(p))
		}
	}
	key := strconv.FormatInt(turn, 10) + " " + strconv.FormatInt(step, 10) + "\x00" + provider + "\x00" + policy
	chain := r.chains[key]
	if chain == nil {
		chain = &genChain{id: id}
		if r.chains == nil {
			r.chains, r.owner = map[string]*genChain{}, map[string]string{}
		}
		r.chains[key] = chain
		if r.lost > 0 {
			chain.n = n - 1 // those before may have been lost
		}
	}
	if chain.id != id {
		c.Report(e, "data.retryId", "llm/retry has the id %s, the retries before it have %s", quoted(id), quoted(chain.id))
	} else if o, used := r.owner[id]; used && o != key {
		c.Report(e, "data.retryId", "llm/retry has the id %s, which retries of another step, provider or policy have", quoted(id))
	}
	if n != chain.n+1 {
		c.Report(e, "data.retry", "llm/retry is number %d, expected %d", n, chain.n+1)
	}
	chain.n = n
	r.owner[id] = key
}

func (r *genRetry) End(*Context) {}

// genRetryStart pairs retries with their start.
type genRetryStart struct {
	open map[string]*genScheduled
	lost int64
}

type genScheduled struct {
	turn, step int64
	started    bool
}

func (s *genRetryStart) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&s.lost) {
		s.open = nil
	}
	turn, step, ok := c.numbers()
	n, okN := jsjson.SafeInt(jsjson.Get(e.Data, "retry"))
	id, okID := jsjson.Str(jsjson.Get(e.Data, "retryId"))
	if !ok || !okN || !okID {
		return
	}
	key := strconv.FormatInt(n, 10) + " " + id
	if e.Type == "llm/retry" {
		if s.open == nil {
			s.open = map[string]*genScheduled{}
		}
		if s.open[key] == nil {
			s.open[key] = &genScheduled{turn: turn, step: step}
		}
		return
	}
	x := s.open[key]
	switch {
	case x == nil && s.lost > 0:
	case x == nil:
		c.Report(e, "data.retryId", "llm/retry-started names retry %d of %s, which was not scheduled", n, quoted(id))
	case x.started:
		c.Report(e, "data.retryId", "llm/retry-started names retry %d of %s, which has started before", n, quoted(id))
	case x.turn != turn || x.step != step:
		c.Report(e, "data.step", "llm/retry-started names turn %d step %d, the retry was scheduled in turn %d step %d", turn, step, x.turn, x.step)
	}
	if x != nil {
		x.started = true
	}
}

func (s *genRetryStart) End(*Context) {}

// genTitle holds titles to the messages of the user that they cite.
type genTitle struct {
	human map[int64]bool
}

func (t *genTitle) Event(c *Context, e *logfmt.Event) {
	switch e.Type {
	case "user/message":
		if jsjson.StrEq(jsjson.Get(jsjson.Get(e.Data, "source"), "kind"), "user") {
			if t.human == nil {
				t.human = map[int64]bool{}
			}
			t.human[e.Seq] = true
		}
		return
	case "session/title-llm-request":
		t.request(c, e)
	case "session/title":
		seqs := jsjson.Get(e.Data, "messageSeqs")
		kind, ok := jsjson.Str(jsjson.Get(jsjson.Get(e.Data, "source"), "kind"))
		if !ok || jsjson.KindOf(seqs) != jsjson.Array {
			return
		}
		if none := jsjson.Len(seqs) == 0; none != (kind == "user") {
			c.Report(e, "data.messageSeqs", "a title of source %s cites %s, expected messages exactly when the user did not give it", quoted(kind), show(seqs))
			return
		}
	}
	var seen []int64
	for v := range jsjson.Elements(jsjson.Get(e.Data, "messageSeqs")) {
		n, ok := jsjson.SafeInt(v)
		switch {
		case !ok:
		case slices.Contains(seen, n):
			c.Report(e, "data.messageSeqs", "%s cites seq %d twice", e.Type, n)
			return
		case !t.human[n] && !c.Doubtful(n):
			c.Report(e, "data.messageSeqs", "%s cites seq %d, which is no earlier message of the user", e.Type, n)
			return
		}
		seen = append(seen, n)
	}
}

func (t *genTitle) request(c *Context, e *logfmt.Event) {
	if seqs := jsjson.Get(e.Data, "messageSeqs"); jsjson.KindOf(seqs) == jsjson.Array && jsjson.Len(seqs) == 0 {
		c.Report(e, "data.messageSeqs", "the request for a title cites no message, expected at least one")
	}
	list := jsjson.Get(e.Data, "messages")
	if jsjson.KindOf(list) != jsjson.Array {
		return
	}
	m := jsjson.Index(list, 0)
	src := jsjson.Get(m, "source")
	kind, key := "dsh-session-title-llm", "kind"
	if !c.gen.bare {
		key = "plugin"
	}
	content := jsjson.Get(m, "content")
	if jsjson.Len(list) != 1 || !jsjson.StrEq(jsjson.Get(m, "role"), "user") || !jsjson.StrEq(jsjson.Get(src, key), kind) ||
		jsjson.Len(content) != 1 || !jsjson.StrEq(jsjson.Get(jsjson.Index(content, 0), "type"), "text") {
		c.Report(e, "data.messages", "the request for a title holds %s, expected one message of the user, from %s, with one block of text", show(list), kind)
	}
}

func (t *genTitle) End(*Context) {}

// genCommand pairs commands with their end.
type genCommand struct {
	ran  map[string]bool
	own  map[int64]bool // seqs of command events
	lost bool
	mark int64
}

func (k *genCommand) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&k.mark) {
		k.lost = true
	}
	if k.own == nil {
		k.ran, k.own = map[string]bool{}, map[int64]bool{}
	}
	id, ok := jsjson.Str(jsjson.Get(e.Data, "commandId"))
	if ok && e.Type == "command/run" {
		if k.ran[id] {
			c.Report(e, "data.commandId", "command %s runs a second time", quoted(id))
		}
		k.ran[id] = true
	}
	if ok && e.Type == "command/done" {
		if !k.ran[id] && !k.lost {
			c.Report(e, "data.commandId", "command %s is done, but did not run", quoted(id))
		}
		if v := jsjson.Get(e.Data, "sourceEventSeq"); v != nil {
			n, ok := jsjson.SafeInt(v)
			switch {
			case !jsjson.StrEq(jsjson.Get(e.Data, "kind"), "success"):
				c.Report(e, "data.sourceEventSeq", "command %s cites an event, but did not succeed", quoted(id))
			case ok && (n >= e.Seq || n < 0):
				c.Report(e, "data.sourceEventSeq", "command %s cites seq %d, which is no earlier event", quoted(id), n)
			case ok && k.own[n]:
				c.Report(e, "data.sourceEventSeq", "command %s cites seq %d, which is a command itself", quoted(id), n)
			}
		}
	}
	k.own[e.Seq] = true
}

func (k *genCommand) End(*Context) {}

// genSeed holds the header's word on inherited events to the mark that ends
// them.
type genSeed struct{ marked bool }

func (s *genSeed) Event(c *Context, e *logfmt.Event) {
	if !e.SetsCut() {
		return
	}
	if h := c.log.Header; !s.marked && h.Seeded != nil && !*h.Seeded {
		c.Report(e, "data.inherited", "the mark ends inherited events, but the header says isSeeded: false").Severity = Error
	}
	s.marked = true
}

func (s *genSeed) End(c *Context) {
	h := c.log.Header
	if s.marked || h.Seeded == nil || !*h.Seeded || len(c.lost) > 0 || c.losses > 0 || c.log.Class() == logfmt.Torn {
		return
	}
	c.ReportAt(Place{Pos: h.Pos, Seq: -1, Turn: -1, Step: -1}, "isSeeded", "the header says isSeeded: true, but no session/end-seed says inherited: true: nothing tells which events are inherited").Severity = Error // of a header that says so
}

// genCatalog holds the list of children together.
type genCatalog struct{ seen map[string]int64 }

func (k *genCatalog) Event(c *Context, e *logfmt.Event) {
	version, okV := jsjson.SafeInt(jsjson.Get(e.Data, "version"))
	mode, okM := jsjson.Str(jsjson.Get(e.Data, "mode"))
	label := jsjson.Get(e.Data, "label")
	if okV && okM {
		modes := []string{"continuable", "one-shot"}
		if version >= 1 {
			modes = append(modes, "unknown")
		}
		switch {
		case version > 1 || version < 0:
			if version != 2 || mode != "external" {
				c.Report(e, "data.version", "catalog version %d with mode %s is not known to %s", version, quoted(mode), c.gen.builds).Severity = Warning
			}
		case !slices.Contains(modes, mode):
			f := c.Report(e, "data.mode", "mode of catalog version %d is %s, expected %s", version, quoted(mode), strings.Join(modes, ", "))
			if mode == "external" {
				f.Severity = Warning // written by builds that others do not know
			}
		case mode == "continuable" && wantString(label) != "":
			c.Report(e, "data.label", "label of a continuable child is %s, expected a string", show(label))
		}
	}
	id, ok := jsjson.Str(jsjson.Get(e.Data, "childId"))
	if !ok || c.Inherited(e) {
		return
	}
	if at, twice := k.seen[id]; twice {
		c.Report(e, "data.childId", "child %s is listed a second time, the first was seq %d", quoted(id), at)
		return
	}
	if k.seen == nil {
		k.seen = map[string]int64{}
	}
	k.seen[id] = e.Seq
}

func (k *genCatalog) End(*Context) {}

func genDelivery(c *Context, e *logfmt.Event) {
	n, ok := jsjson.SafeInt(jsjson.Get(e.Data, "sessionFormatVersion"))
	if !ok || n != c.gen.version {
		return // numbers of another generation say nothing here
	}
	if through, ok := jsjson.SafeInt(jsjson.Get(e.Data, "throughSeq")); ok && through >= e.Seq {
		c.Report(e, "data.throughSeq", "throughSeq is %d, expected an earlier event than the mark", through)
	}
	id, ok := jsjson.Str(jsjson.Get(e.Data, "sessionId"))
	h := c.log.Header
	if ok && id != h.ID && (!c.Inherited(e) || h.ParentSession == nil) {
		c.Report(e, "data.sessionId", "sessionId is %s, expected that of the log, %s", quoted(id), quoted(h.ID))
	}
}

// genAnswer asks for the settlement of a step: a call of the model ends in exactly
// one event (FORMATS §2.8). A step may have none where the process was killed, or
// the call failed or was given up before it was made; the turn does not end well
// then. A failed step that was tried again as another one, as in July, stands in
// migrated logs with its retry.
type genAnswer struct {
	lost    int64
	in      bool // the open step was seen from its start
	settled bool
	ended   bool // without being settled
	place   Place
	step    int64
}

func (k *genAnswer) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&k.lost) {
		*k = genAnswer{lost: k.lost}
	}
	switch e.Type {
	case "step/start":
		if k.ended {
			k.report(c, "its turn goes on")
		}
		*k = genAnswer{lost: k.lost, in: true, step: c.step}
	case "step/end":
		if k.in && !k.settled && c.Header != nil { // without one nothing was asked
			k.ended, k.place = true, c.place(e)
		}
		k.in = false
	case "turn/end":
		if kind, _ := jsjson.Str(jsjson.Get(jsjson.Get(e.Data, "reason"), "kind")); k.ended && (kind == "completed" || kind == "max-tokens") {
			k.report(c, "its turn ends with "+kind)
		}
		*k = genAnswer{lost: k.lost}
	case "turn/start", logfmt.TypeSessionEndSeed:
		*k = genAnswer{lost: k.lost}
	default: // an answer, an attempt, a retry
		k.settled, k.ended = true, false
	}
}

func (k *genAnswer) report(c *Context, why string) {
	c.ReportAt(k.place, "", "step %d ends with neither an assistant/message nor an assistant/attempt, although %s", k.step, why)
}

func (k *genAnswer) End(*Context) {}
