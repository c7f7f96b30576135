package migrate

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/invariants"
	"github.com/dsh-audit/dsh-audit/pkg/load"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// A taker takes the rows of one generation; end tells that there are no more.
type taker interface {
	take(r *row)
	end()
}

// steps are the steps of the chain, tied together.
type steps struct {
	c      *chain
	from   int64
	first  taker
	judges []*judge
	up     *load.Loader // upgrades events of older dialects
	seqs   []int64
	last   *outlet
}

// newSteps ties the chain together, from the generation of the log to the target.
func newSteps(ctx context.Context, c *chain, log *logfmt.Log, from int64, watch func(int64, []byte)) *steps {
	s := &steps{c: c, from: from}
	h := log.Header
	if h == nil {
		h = &logfmt.Header{}
	}
	if from == 0 {
		s.up = load.New(h, load.Options{})
	}
	id := h.ID
	var next taker
	gen := c.to
	for ; gen > from; gen-- {
		o := s.outlet(ctx, gen, h, next, watch)
		switch gen {
		case 1:
			next = &toV1{c: c, id: id, out: o}
		case 2:
			next = &toV2{c: c, out: o, cut: h.Seed(), seeded: h.SeedLength != nil}
		case 3:
			next = &toV3{c: c, id: id, out: o, head: -1, names: map[string]bool{}}
		case 4:
			next = &toV4{c: c, out: o}
		}
	}
	if from >= 2 || from == 1 {
		// What the log holds has to pass the rules of its own generation first.
		s.first = s.outlet(ctx, from, h, next, watch)
	} else {
		s.first = next
	}
	if s.first == nil {
		s.first = s.outlet(ctx, from, h, nil, watch)
	}
	return s
}

// source hands an event of the log to the first step.
func (s *steps) source(e *logfmt.Event) {
	ev := e
	if s.up != nil {
		if s.c.refusals[step(0)] != nil {
			return
		}
		ev = s.up.Add(e)
		if ev == nil {
			return
		}
	}
	r := row{typ: ev.Type, seq: e.Seq, src: e.Seq, line: e.Pos.Line, time: e.Time, data: ev.Data, op: ev.Op, ignorable: e.Ignorable, cites: ev.Sources != nil}
	if s.from <= 1 {
		if jsjson.KindOf(ev.Data) != jsjson.Object {
			s.c.refuse(step(s.from), &r, "EVT-SHAPE", "restore the event from a copy", "data of the event is no object")
			return
		}
		if e.Fault&logfmt.FaultType != 0 {
			s.c.refuse(step(s.from), &r, "LOG-TYPE", "", "the event has no type")
			return
		}
		const envelope = logfmt.FaultTime | logfmt.FaultExtraKey | logfmt.FaultIgnorable
		if e.Fault&envelope != 0 {
			s.c.refuse(restore(1), &r, "LOG-ENV", "restore the event from a copy", "the event is not in the closed envelope: time is a whole number, ignorable only ever true, and there are no further keys")
		}
	}
	if r.cites {
		s.seqs, _ = ev.SourceSeqs(s.seqs[:0])
		r.sources = s.seqs
	}
	s.first.take(&r)
}

// close ends the steps and takes the judges' words into account. It returns how
// many events the target has.
func (s *steps) close() int64 {
	s.first.end()
	for _, j := range s.judges {
		j.close()
	}
	if s.last == nil {
		return 0
	}
	return s.last.n
}

// outlet numbers the rows of a generation, lets them be judged, and hands them on.
type outlet struct {
	c     *chain
	gen   int64
	n     int64
	next  taker
	judge *judge
	watch func(int64, []byte)
	buf   []byte
}

func (s *steps) outlet(ctx context.Context, gen int64, h *logfmt.Header, next taker, watch func(int64, []byte)) *outlet {
	o := &outlet{c: s.c, gen: gen, next: next, watch: watch}
	if s.last == nil {
		s.last = o
	}
	o.judge = newJudge(ctx, s.c, gen, h)
	s.judges = append(s.judges, o.judge)
	if watch != nil {
		watch(gen, headerLine(gen, h))
	}
	return o
}

func (o *outlet) take(r *row) {
	if !o.c.open(step(o.gen - 1)) {
		return
	}
	r.seq = o.n
	o.n++
	o.buf = r.append(o.buf[:0])
	if o.watch != nil {
		o.watch(o.gen, o.buf)
	}
	o.judge.add(r, o.buf)
	if o.next != nil {
		o.next.take(r)
	}
}

func (o *outlet) end() {
	if o.next != nil {
		o.next.end()
	}
}

// headerLine is the header record of a log in a generation.
func headerLine(gen int64, h *logfmt.Header) []byte {
	b := append([]byte(`{"type":"session","version":`), itoa(gen)...)
	b = jsjson.AppendQuote(append(b, `,"id":`...), h.ID)
	b = append(append(b, `,"createdAt":`...), itoa(max(h.CreatedAt, 0))...)
	str := func(key string, s *string) {
		if s != nil {
			b = jsjson.AppendQuote(append(b, key...), *s)
		}
	}
	str(`,"cwd":`, h.Cwd)
	str(`,"parentSession":`, h.ParentSession)
	seeded := h.SeedLength != nil || h.Seeded != nil && *h.Seeded
	switch {
	case gen >= 2:
		b = strconv.AppendBool(append(b, `,"isSeeded":`...), seeded)
	case h.SeedLength != nil:
		b = append(append(b, `,"seedLength":`...), itoa(*h.SeedLength)...)
	}
	str(`,"origin":`, h.Origin)
	depth := int64(0)
	if h.DelegationDepth != nil {
		depth = *h.DelegationDepth
	}
	b = append(append(b, `,"delegationDepth":`...), itoa(depth)...)
	preset := h.AgentPreset
	if preset != nil && *preset == "code" && gen >= 3 {
		ptc := "ptc"
		preset = &ptc
	}
	str(`,"agentPreset":`, preset)
	return append(b, "}\n"...)
}

// judge holds the rows of a generation to its rules, beside the steps.
type judge struct {
	c    *chain
	gen  int64
	pipe *io.PipeWriter
	w    *bufio.Writer
	done chan *invariants.Result
	src  []int64 // seqs in the log of the rows
	line []int64
	off  bool
}

// passed are rules that the harness's restore does not have: the session layer has
// them, or nobody.
var passed = []string{"SURF-REWRITE", "SURF-EMPTY", "LOG-HEADER", "LOG-GENERATION", "FORK-MARK"}

// atStep are rules of generation 1 that its step makes, and not its restore.
var atStep = []string{"LOG-TYPE", "EVT-SHAPE", "MSG-SHAPE", "HDR-SHAPE"}

func newJudge(ctx context.Context, c *chain, gen int64, h *logfmt.Header) *judge {
	j := &judge{c: c, gen: gen, done: make(chan *invariants.Result, 1)}
	r, w := io.Pipe()
	j.pipe, j.w = w, bufio.NewWriterSize(w, 64<<10)
	go func() {
		defer r.Close()
		defer close(j.done)
		log, err := logfmt.NewReader(r, "", logfmt.Options{})
		if err != nil {
			return
		}
		res, err := invariants.Check(ctx, log, invariants.Options{Rules: func(id string) bool { return counts(gen, id) }, MaxPerRule: 1})
		if err == nil {
			j.done <- res
		}
	}()
	j.w.Write(headerLine(gen, h))
	return j
}

// counts reports whether a breach of a rule is a refusal.
func counts(gen int64, id string) bool {
	for _, p := range passed {
		if id == p {
			return false
		}
	}
	if gen == 1 {
		for _, p := range atStep {
			if id == p {
				return true
			}
		}
		return false
	}
	switch id {
	case "LOG-TIME", "EVT-SHAPE", "HDR-NOOP", "HDR-INITIAL", "HDR-CANON", "HDR-FIRST", "ASST-ONE", "CHUNK-ASM", "CHUNK-USAGE", "STREAM-ROW":
		return false
	}
	return !strings.HasPrefix(id, "LINE-") && !strings.HasPrefix(id, "LOAD-") && !strings.HasPrefix(id, "REQ-")
}

func (j *judge) add(r *row, line []byte) {
	if j.off {
		return
	}
	j.src = append(j.src, r.src)
	j.line = append(j.line, r.line)
	if _, err := j.w.Write(line); err != nil {
		j.off = true
	}
}

func (j *judge) close() {
	j.w.Flush()
	j.pipe.Close()
	res := <-j.done
	if res == nil {
		return
	}
	var first *invariants.Finding
	for _, f := range res.Findings {
		if f.Severity == invariants.Error && f.Rule != logfmt.RuleFormat && (first == nil || f.Seq >= 0 && first.Seq > f.Seq) {
			first = f
		}
	}
	if first == nil {
		return
	}
	at := restore(j.gen)
	if j.gen == 1 {
		at = step(0)
	}
	r := &row{src: -1}
	if first.Seq >= 0 && first.Seq < int64(len(j.src)) {
		r.src, r.line = j.src[first.Seq], j.line[first.Seq]
	}
	advice := ""
	if rule := invariants.Lookup(first.Rule); rule != nil {
		advice = rule.Advice
	}
	j.c.refuse(at, r, first.Rule, advice, "%s", first.Message)
}

// toV1 takes generation 0 to 1 (FORMATS §4.5). The log's events come upgraded from
// older dialects.
type toV1 struct {
	c       *chain
	id      string
	out     taker
	compact []byte // id of the open compaction of a build that gave none
}

func (t *toV1) take(r *row) {
	at := step(0)
	switch {
	case r.typ == logfmt.TypeRequestHeaderDelta || r.typ == logfmt.TypeModeSet:
		t.c.refuse(at, r, "LOG-TYPE", "no current build reads such a log; it can be shown and judged here", "%s is a type that no release since July 2026 reads", r.typ)
		return
	case r.typ == logfmt.TypeSubagentDescriptor:
		if n, ok := jsjson.SafeInt(jsjson.Get(r.data, "version")); !ok || n != 3 {
			t.c.refuse(at, r, "SUBAGENT-DESC", "children of releases before 0.1.2 cannot be taken over; continue them with a build of their time",
				"version of the subagent/descriptor is %s, the chain takes 3 only", jsjson.Get(r.data, "version"))
			return
		}
	case strings.HasPrefix(r.typ, "compact/"):
		t.compaction(r)
	case r.typ == logfmt.TypeRequestHeader:
		if h := jsjson.Get(r.data, "header"); jsjson.Get(h, "messagePrefix") != nil {
			r.data = with(r.data, "header", mapped(h, func(k string, v []byte) []byte {
				if k == "messagePrefix" {
					return nil
				}
				return v
			}))
		}
	case r.typ == logfmt.TypeLLMRetry && jsjson.Get(r.data, "retryId") == nil:
		r.data = with(r.data, "retryId", jsjson.AppendQuote(nil, "legacy-retry:"+t.id+":"+string(itoa(r.src))))
	}
	if reason := jsjson.Get(r.data, "reason"); r.typ == logfmt.TypeRequestHeader {
		ok := false
		for _, want := range []string{"initial", "resume", "change", "series"} {
			ok = ok || jsjson.StrEq(reason, want)
		}
		if !ok {
			t.c.refuse(at, r, "HDR-SHAPE", "", "reason of the request/header is %s, the chain takes initial, resume, change and series", reason)
			return
		}
	}
	t.out.take(r)
}

// compaction gives an event of the builds until 08-13 its name and id of today.
func (t *toV1) compaction(r *row) {
	r.typ = "compaction/" + strings.TrimPrefix(r.typ, "compact/")
	if r.typ == logfmt.TypeCompactionPrune {
		return
	}
	if r.typ == logfmt.TypeCompactionStart {
		t.compact = jsjson.AppendQuote(nil, "legacy-compaction:"+t.id+":"+string(itoa(r.src)))
	}
	if jsjson.Get(r.data, "compactionId") == nil && t.compact != nil {
		r.data = with(r.data, "compactionId", t.compact)
	}
}

func (t *toV1) end() {
	t.out.end()
}

// numbering maps the seqs of one generation to those of the next: -1 for events
// that have none there.
type numbering []int64

func (n *numbering) set(old, now int64) {
	for int64(len(*n)) <= old {
		*n = append(*n, -1)
	}
	(*n)[old] = now
}

// of is the new seq; unknown ones stay as they are. gone tells that the event has
// none.
func (n numbering) of(old int64) (now int64, gone bool) {
	if old < 0 || old >= int64(len(n)) {
		return old, false
	}
	return n[old], n[old] < 0
}

// places are where payloads refer to events of their own log.
func (n numbering) refs(typ string, data []byte, gone *string) []byte {
	seq := func(what string, v []byte) []byte {
		old, ok := jsjson.SafeInt(v)
		if !ok {
			return v
		}
		now, lost := n.of(old)
		if lost {
			*gone = what
			return v
		}
		return itoa(now)
	}
	switch typ {
	case logfmt.TypeCommandDone:
		return mapped(data, func(k string, v []byte) []byte {
			if k == "sourceEventSeq" {
				return seq("sourceEventSeq", v)
			}
			return v
		})
	case logfmt.TypeCompactionSummary, logfmt.TypeCompactionPrune:
		return mapped(data, func(k string, v []byte) []byte {
			switch k {
			case "shadowedRange":
				return mapped(v, func(_ string, v []byte) []byte { return seq("shadowedRange", v) })
			case "shadowedSeqs":
				return each(v, func(v []byte) []byte { return seq("shadowedSeqs", v) })
			}
			return v
		})
	case logfmt.TypeSessionTitle, logfmt.TypeSessionTitleLLMRequest:
		return mapped(data, func(k string, v []byte) []byte {
			if k == "messageSeqs" {
				return each(v, func(v []byte) []byte { return seq("messageSeqs", v) })
			}
			return v
		})
	case logfmt.TypeImageOffload:
		return mapped(data, func(k string, v []byte) []byte {
			if k != "targets" {
				return v
			}
			return each(v, func(v []byte) []byte {
				return mapped(v, func(k string, v []byte) []byte {
					if k == "seq" {
						return seq("targets", v)
					}
					return v
				})
			})
		})
	case logfmt.TypeDeveloperMessage:
		return mapped(data, func(k string, v []byte) []byte {
			if k == "headerSeq" {
				return seq("headerSeq", v)
			}
			return v
		})
	}
	return data
}

// renumber rewrites what a row refers to. It reports what refers to an event that
// is gone, "" when nothing does.
func (n numbering) renumber(r *row, first, last, newFirst, newLast string) (gone string) {
	if r.op != nil && string(r.op) != `"append"` {
		start, ok1 := jsjson.SafeInt(jsjson.Get(r.op, first))
		end, ok2 := jsjson.SafeInt(jsjson.Get(r.op, last))
		if !ok1 {
			return "surfaceOp." + first
		}
		if !ok2 {
			return "surfaceOp." + last
		}
		a, lost := n.of(start)
		if lost {
			return "surfaceOp." + first
		}
		b, lost := n.of(end)
		if lost {
			return "surfaceOp." + last
		}
		op := append([]byte(`{"op":"replace","`+newFirst+`":`), itoa(a)...)
		op = append(append(op, `,"`+newLast+`":`...), itoa(b)...)
		r.op = append(op, '}')
	}
	var seqs []int64
	for _, s := range r.sources {
		now, lost := n.of(s)
		if lost {
			return "sourceEventSeqs"
		}
		seqs = append(seqs, now)
	}
	r.sources = seqs
	r.data = n.refs(r.typ, r.data, &gone)
	return gone
}

// toV2 takes generation 1 to 2: the chunks of an attempt go into one event
// (FORMATS §5.5).
type toV2 struct {
	c      *chain
	out    *outlet
	cut    int64
	seeded bool
	marked bool
	m      numbering

	open     bool // an attempt
	finished bool
	turn     int64
	step     int64
	chunks   []int64
	last     row // of its chunks
	between  int // of the held rows, those before the last chunk
	held     []*row

	turnOpen bool
	turnN    int64
	splice   bool // the row before is a next-turn splice with content
}

func (t *toV2) take(r *row) {
	if t.c.refusals[step(1)] != nil {
		return
	}
	if t.seeded && r.seq == t.cut {
		t.cutHere(r)
	}
	if r.typ == logfmt.TypeAssistantChunk {
		t.chunk(r)
		return
	}
	switch r.typ {
	case logfmt.TypeAssistantMessage:
		t.message(r)
		return
	case logfmt.TypeStepEnd, logfmt.TypeTurnEnd, logfmt.TypeLLMRetry, logfmt.TypeLLMRetryStarted:
		t.settle()
	}
	if t.open {
		t.held = append(t.held, r.clone())
		return
	}
	t.pass(r)
}

// chunk gathers a chunk.
func (t *toV2) chunk(r *row) {
	turn, _ := jsjson.SafeInt(jsjson.Get(r.data, "turn"))
	n, _ := jsjson.SafeInt(jsjson.Get(r.data, "step"))
	if t.open && (t.finished || turn != t.turn || n != t.step) {
		t.settle()
	}
	t.open, t.turn, t.step = true, turn, n
	t.chunks = append(t.chunks, r.seq)
	t.m.set(r.seq, -1)
	t.last = row{src: r.src, line: r.line, time: r.time}
	t.between = len(t.held)
	t.finished = is(jsjson.Get(r.data, "chunk"), "type", "finish")
}

// settle makes an attempt of chunks that no answer claims.
func (t *toV2) settle() {
	if !t.open {
		return
	}
	a := row{typ: logfmt.TypeAssistantAttempt, src: t.last.src, line: t.last.line, time: t.last.time}
	a.data = append(append(append([]byte(`{"turn":`), itoa(t.turn)...), `,"step":`...), itoa(t.step)...)
	a.data = append(a.data, `,"stream":[]}`...)
	t.release(&a)
}

// release lets the held rows go, behind the settlement of the attempt if there is
// one.
func (t *toV2) release(settled *row) {
	held := t.held
	t.open, t.finished, t.chunks, t.held = false, false, t.chunks[:0], nil
	if settled != nil {
		t.out.take(settled)
	}
	for _, h := range held {
		t.pass(h)
	}
}

func (t *toV2) message(r *row) {
	const advice = "the proof of origin is broken: restore the event from a copy"
	at := step(1)
	switch {
	case !r.cites && t.open:
		t.c.refuse(at, r, "CHUNK-CITE", advice, "the answer does not cite the %d chunks of its attempt", len(t.chunks))
		return
	case len(r.sources) == 0:
		t.settle()
	case !t.open || !sameSeqs(r.sources, t.chunks):
		t.c.refuse(at, r, "CHUNK-CITE", advice, "sourceEventSeqs of the answer is not exactly the chunks of its attempt")
		return
	default:
		t.release(nil)
	}
	r = r.clone()
	r.sources, r.cites = nil, false
	r.data = with(r.data, "stream", []byte("[]"))
	t.pass(r)
}

func sameSeqs(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// cutHere marks where the inherited events end.
func (t *toV2) cutHere(r *row) {
	if t.open && !t.finished {
		t.c.refuse(step(1), r, "FORK-CUT", "", "the inherited events end inside an attempt")
		return
	}
	t.settle()
	t.marked = true
	if r.typ == logfmt.TypeSessionEndSeed {
		r.data = []byte(`{"inherited":true}`)
		return
	}
	t.mark(r.time)
}

func (t *toV2) mark(time int64) {
	t.out.take(&row{typ: logfmt.TypeSessionEndSeed, src: -1, time: time, data: []byte(`{"inherited":true}`)})
}

// pass numbers a row anew and hands it on.
func (t *toV2) pass(r *row) {
	old := r.seq
	r = r.clone()
	if string(r.op) == "null" {
		t.c.refuse(step(1), r, "SURF-OP", "restore the event from a copy", "surfaceOp is null")
		return
	}
	if gone := t.m.renumber(r, "start", "end", "start", "end"); gone != "" {
		t.c.refuse(step(1), r, "SURF-RANGE", "restore the event from a copy", "%s refers to no event that the next generation has", gone)
		return
	}
	switch r.typ {
	case logfmt.TypeTurnStart:
		n, _ := jsjson.SafeInt(jsjson.Get(r.data, "turn"))
		if t.turnOpen {
			if !t.splice || n != t.turnN+1 {
				t.c.refuse(step(1), r, "TURN-OPEN", "close the turn before: reopen the log with a build of its generation", "turn %d starts while turn %d is open", n, t.turnN)
				return
			}
			t.out.take(&row{typ: logfmt.TypeTurnEnd, src: -1, time: r.time,
				data: append(append([]byte(`{"turn":`), itoa(t.turnN)...), `,"reason":{"kind":"interrupted"}}`...)})
		}
		t.turnOpen, t.turnN = true, n
	case logfmt.TypeTurnEnd:
		t.turnOpen = false
	}
	t.splice = r.typ == logfmt.TypeAgentInboxSpliced && is(r.data, "target", "next-turn") && jsjson.Len(jsjson.Get(r.data, "inserted")) > 0
	t.out.take(r)
	t.m.set(old, r.seq)
}

func (t *toV2) end() {
	t.settle()
	if t.seeded && !t.marked && t.c.open(step(1)) {
		t.mark(t.last.time)
	}
	t.out.end()
}

// messages are where a row holds messages: what f makes of each is put in its
// place.
func messages(typ string, data []byte, f func(m []byte) []byte) []byte {
	switch typ {
	case logfmt.TypeUserMessage:
		return f(data)
	case logfmt.TypeAssistantMessage, logfmt.TypeToolResult, logfmt.TypeSystemMessage:
		return mapped(data, func(k string, v []byte) []byte {
			if k == "message" {
				return f(v)
			}
			return v
		})
	case logfmt.TypeAgentInboxSpliced:
		return mapped(data, func(k string, v []byte) []byte {
			if k == "inserted" {
				return each(v, f)
			}
			return v
		})
	case logfmt.TypeSessionTitleLLMRequest:
		return mapped(data, func(k string, v []byte) []byte {
			if k == "messages" {
				return each(v, f)
			}
			return v
		})
	}
	return data
}

// sourceKinds and blockTypes are those that the step to generation 3 knows.
var (
	sourceKinds = []string{"user", "plugin", "model", "tool", "agent-instructions", "session-reference", "team-message", "goal", "skill-invocation",
		"skill-catalog", "coordinator", "subagent-report", "subagent-settled", "webhook", "agent-message"}
	blockTypes = []string{"text", "reasoning", "image", "file", "tool-call", "tool-result"}
)

// toV3 takes generation 2 to 3: the system prompt moves from the header to the
// surface (FORMATS §6.5).
type toV3 struct {
	c      *chain
	id     string
	out    *outlet
	m      numbering
	begun  bool  // a step has started
	head   int64 // new seq of the prompt's message; -1 before
	prompt []byte
	turn   int64
	step   int64
	open   bool
	names  map[string]bool
}

func (t *toV3) take(r *row) {
	at := step(2)
	if t.c.refusals[at] != nil {
		return
	}
	old := r.seq
	r = r.clone()
	if !known2(r.typ) {
		t.c.refuse(at, r, "LOG-TYPE", "remove the plugin's events from a copy, or keep the log in its generation", "event type %q is none that the step to generation 3 knows, ignorable or not", r.typ)
		return
	}
	switch r.typ {
	case logfmt.TypeUserMessage, logfmt.TypeAssistantMessage, logfmt.TypeToolResult:
		if !t.begun {
			t.c.refuse(at, r, "SURF-HEAD", "", "a message stands before the first step/start: no system prompt can come before it")
			return
		}
		if r.cites && len(r.sources) == 0 {
			t.c.refuse(at, r, "SURF-EMPTY", "restore the event from a copy", "sourceEventSeqs of %s is empty", r.typ)
			return
		}
	case logfmt.TypeTeamMember, logfmt.TypeTeamTask, logfmt.TypeTeamMessageQueued, logfmt.TypeTeamMessageDelivered:
		if n, _ := jsjson.SafeInt(jsjson.Get(r.data, "version")); n != 1 {
			t.c.refuse(at, r, "TEAM", "team sessions of 0.1.3 cannot be taken over", "version of %s is %s, the step takes 1 only", r.typ, jsjson.Get(r.data, "version"))
			return
		}
	case logfmt.TypeSessionLogDeepseekDeliveryAccepted:
		if n, ok := jsjson.SafeInt(jsjson.Get(r.data, "sessionFormatVersion")); ok && n == 3 {
			t.c.refuse(at, r, "DELIVERY", "", "the delivery mark claims the generation that the step leads to")
			return
		}
	}
	if what := t.unclassified(r); what != "" {
		t.c.refuse(at, r, "MSG-SHAPE", "remove the event from a copy, or keep the log in its generation", "%s", what)
		return
	}
	if r.typ == logfmt.TypeToolResult && jsjson.Get(r.data, "error") != nil &&
		!truthy(jsjson.Index(jsjson.Get(jsjson.Get(r.data, "message"), "content"), 0), "isError") {
		t.c.refuse(at, r, "MSG-SHAPE", "", "the tool/result carries an error, but its block does not say isError: true")
		return
	}
	if gone := t.m.renumber(r, "start", "end", "startSeq", "endSeq"); gone != "" {
		t.c.refuse(at, r, "SURF-RANGE", "", "%s refers to no event", gone)
		return
	}
	t.follow(r)
	if r.typ == logfmt.TypeRequestHeader && !t.header(r, old) {
		return
	}
	t.rename(r)
	t.out.take(r)
	t.m.set(old, r.seq)
	if r.typ == logfmt.TypeStepStart && !t.begun {
		t.begun = true
		t.system(r, old, "step/start", []byte("[]"), nil)
	}
}

func (t *toV3) end() { t.out.end() }

// known2 reports whether generation 2 has a type.
func known2(typ string) bool {
	switch typ {
	case logfmt.TypeAssistantAttempt, logfmt.TypeFeedbackMessagePut, logfmt.TypeFeedbackMessageDelete, logfmt.TypeModelSelection,
		logfmt.TypeSessionLogDeepseekDeliveryAccepted, logfmt.TypeSubagentModelSelectionPolicy:
		return true
	case logfmt.TypeAssistantChunk:
		return false
	}
	r, ok := fold.TypeEras(typ)
	return ok && r.Max == fold.LatestEra
}

// unclassified names the first source or block that the step does not know.
func (t *toV3) unclassified(r *row) (what string) {
	content := func(blocks []byte) {
		for b := range jsjson.Elements(blocks) {
			typ, _ := jsjson.Str(jsjson.Get(b, "type"))
			if !contains(blockTypes, typ) && what == "" {
				what = "a block of type " + strconv.Quote(typ) + " is none that the step to generation 3 knows"
			}
		}
	}
	messages(r.typ, r.data, func(m []byte) []byte {
		kind, _ := jsjson.Str(jsjson.Get(jsjson.Get(m, "source"), "kind"))
		if !contains(sourceKinds, kind) && what == "" {
			what = "a source of kind " + strconv.Quote(kind) + " is none that the step to generation 3 knows"
		}
		content(jsjson.Get(m, "content"))
		for b := range jsjson.Elements(jsjson.Get(m, "content")) {
			if is(b, "type", "tool-result") {
				content(jsjson.Get(b, "content"))
			}
		}
		return m
	})
	return what
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// follow keeps the open step.
func (t *toV3) follow(r *row) {
	switch r.typ {
	case logfmt.TypeStepStart:
		t.turn, _ = jsjson.SafeInt(jsjson.Get(r.data, "turn"))
		t.step, _ = jsjson.SafeInt(jsjson.Get(r.data, "step"))
		t.open = true
	case logfmt.TypeStepEnd, logfmt.TypeTurnEnd:
		t.open = false
	}
}

// header takes the prompt out of a request header, and puts it on the surface when
// it is another one than before.
func (t *toV3) header(r *row, old int64) bool {
	h := jsjson.Get(r.data, "header")
	prompt := jsjson.Get(h, "system")
	if len(prompt) == 2 {
		prompt = nil
	}
	if !bytes.Equal(prompt, t.prompt) {
		if !t.open {
			t.c.refuse(step(2), r, "SURF-HEAD", "", "the system prompt changes outside any step")
			return false
		}
		content := []byte("[]")
		if prompt != nil {
			content = append(append([]byte(`[{"type":"text","text":`), prompt...), `}]`...)
		}
		t.system(r, old, "request/header", content, []int64{t.head})
		t.prompt = append([]byte(nil), prompt...)
		if prompt == nil {
			t.prompt = nil
		}
	}
	r.data = with(r.data, "header", mapped(h, func(k string, v []byte) []byte {
		if k == "system" || (k == "tools" || k == "adapterDefaults") && len(v) == 2 {
			return nil
		}
		return v
	}))
	return true
}

// system adds a message of the system.
func (t *toV3) system(anchor *row, old int64, typ string, content []byte, replaces []int64) {
	key := jsjson.AppendQuote([]byte(`["session-format-v2-to-v3",`), t.id)
	key = append(append(append(key, ','), itoa(old)...), ',')
	key = append(jsjson.AppendQuote(key, typ), ']')
	id := "v2-to-v3-system-" + sum(key)
	if t.names[id] {
		t.c.refuse(step(2), anchor, "MSG-SHAPE", "", "the id %s is taken", id)
		return
	}
	data := append(append(append([]byte(`{"turn":`), itoa(t.turn)...), `,"step":`...), itoa(t.step)...)
	data = jsjson.AppendQuote(append(data, `,"message":{"id":`...), id)
	data = append(data, `,"role":"system","source":{"kind":"plugin","plugin":"@deepseek-ai/dsh-system-prompt"},"content":`...)
	data = append(append(data, content...), `}}`...)
	s := row{typ: logfmt.TypeSystemMessage, src: anchor.src, line: anchor.line, time: anchor.time, data: data, op: []byte(`"append"`)}
	if replaces != nil {
		s.op = append(append(append([]byte(`{"op":"replace","startSeq":`), itoa(replaces[0])...), `,"endSeq":`...), itoa(replaces[0])...)
		s.op = append(s.op, '}')
		s.sources, s.cites = replaces, true
	}
	t.out.take(&s)
	t.head = s.seq
}

// rename gives types, presets and plugins their names of generation 3.
func (t *toV3) rename(r *row) {
	switch r.typ {
	case logfmt.TypeToolCodeDispatch:
		r.typ = logfmt.TypeToolPTCDispatch
	case logfmt.TypeToolCodeDispatchStart:
		r.typ = logfmt.TypeToolPTCDispatchStart
	case logfmt.TypeAgentPresetSelected:
		if is(r.data, "agentPreset", "code") {
			r.data = with(r.data, "agentPreset", []byte(`"ptc"`))
		}
	}
	r.data = messages(r.typ, r.data, func(m []byte) []byte {
		src := jsjson.Get(m, "source")
		if is(src, "kind", "plugin") && is(src, "plugin", "tools-code-mode") {
			return with(m, "source", with(src, "plugin", []byte(`"tools-ptc"`)))
		}
		return m
	})
}
