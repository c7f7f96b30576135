package invariants

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/load"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Bracket is the state of the turn or of the step.
type Bracket struct {
	Open  bool
	Known bool  // false when events were lost or unreadable since: Open and N say nothing
	N     int64 // its number; -1 when it opened without a usable one
	At    Place // its start
	// The number of the one before, and how many there were: two ways to know
	// which number comes next, so that one wrong number is one finding.
	Last  int64
	Count int64
}

// next reports whether n is a number the next bracket may have.
func (b *Bracket) next(n int64) bool { return n == b.Last+1 || n == b.Count+1 }

// names reports whether n is the open bracket's number, as far as known.
func (b *Bracket) names(n int64) bool { return b.Open && (b.N < 0 || b.N == n) }

// Attempt is one try of a step to get a response (SEMANTICS §6.4).
type Attempt struct {
	Number     int
	FirstChunk int64  // -1 before the first
	Finish     string // kind of its finish chunk, "" before
	Answered   bool   // its assistant/message was logged
}

// Context is what checkers share: the log as far as it was read, seen from just
// before the event at hand. Checkers read it and report through it.
type Context struct {
	log  *logfmt.Log
	opts Options

	Builds  Builds // builds that may have written the event at hand
	Foreign bool   // its shape was retired before the log's earlier events were written
	Turn    Bracket
	Step    Bracket
	Attempt Attempt
	Calls   map[string]int64 // callId to seq of the tool/calls of the step without a result
	// CallsLost tells that a call of the step may be missing.
	CallsLost bool
	Asked     int // assistant messages appended in the step

	// Surface and Header are the state before the event at hand. Faults are those
	// the event has against the surface, Change is what it will do to it.
	Surface *fold.Surface
	Change  fold.Change
	Faults  []*fold.SurfaceError
	Header  *fold.EpochHeader // nil before the first
	// HeaderSeen tells that a header event was seen, whether or not it made
	// sense; HeaderLost that one may be missing.
	HeaderSeen bool
	HeaderLost bool

	said     bool      // a rule about forms speaks of the event at hand
	eras     fold.Eras // of Builds
	chunkIs  string    // type of its chunk, "" when it has none that is known
	turn     int64     // named by the event at hand; -1 when none, or no whole number from 1
	step     int64     // likewise
	surfaced bool      // its type takes a place on the surface
	payload  [4][]byte // its members turn, step, chunk and message; of a piece the chunk only

	gen     *generation // of the log; nil for generation 0
	pending calls       // of the open step, see followCalls
	soft    bool        // findings are warnings at most
	own     int64       // seq of the first event that is not inherited
	rule    *Rule
	running []runner
	byType  map[string][]runner // in catalogue order, those that want the type
	same    struct {            // of the event before
		typ     string
		runners []runner
	}
	builds      *builds
	ranges      []Builds // of the processes, the last one current
	headed      bool     // the header record was judged
	oddCreation bool     // createdAt is one that later builds refuse

	events  int64
	next    int64 // seq that follows the events seen
	lost    []span
	losses  int64  // how often events were lost
	lossAt  int64  // nodes below this seq may have left the surface unseen
	doubt   []span // nodes that a faulty event may have put on the surface or taken from it
	found   map[string]*bucket
	defects map[*logfmt.Defect]bool
	damaged *tail // state at the first damage
	last    Place // of the last event

	run       run
	reports   int64     // findings so far, listed or not
	time      int64     // of the latest event in place that has one
	timed     bool      // there was one
	where     placement // of the event at hand
	says      answer    // of the assistant message at hand, once asked for
	saysAt    int64     // events by then
	stream    stream
	called    callList
	witness   witness
	second    second
	lineage   lineage
	fed       int64   // events that the fold took
	headerAt  Place   // of the last header event
	headerLog []Place // of the last few
	breaks    []int64 // seqs at which what a request begins with may change, the last few
	resumes   Resumes
	// unanswered are calls of whose missing results was told, by id token.
	unanswered map[string]bool
	extended   int64

	fold     *folder
	loader   *load.Loader
	outcome  *load.Outcome
	refused  bool // judged as loaded, and not loaded
	counts   RequestCounts
	tailOpen bool
}

type runner struct {
	rule    *Rule
	checker Checker
	types   []string // it wants to see; nil: all
	alone   bool     // see Rule.Alone
}

// tail is where a log ends: in which turn and step.
type tail struct {
	turn, step Bracket
	last       Place
	any        bool
}

type span struct{ from, to int64 } // [from, to)

func newContext(log *logfmt.Log, opts Options) *Context {
	c := &Context{
		log:     log,
		opts:    opts,
		Turn:    Bracket{Known: true},
		Step:    Bracket{Known: true},
		Attempt: Attempt{FirstChunk: -1},
		Calls:   map[string]int64{},
		byType:  map[string][]runner{},
		found:   map[string]*bucket{},
		defects: map[*logfmt.Defect]bool{},
		last:    Place{Seq: -1, Turn: -1, Step: -1},
		second:  second{mode: opts.Paranoid},

		headerAt: Place{Seq: -1, Turn: -1, Step: -1},
	}
	if c.own = log.Header.Seed(); log.Header.CutUnknown() {
		c.own = math.MaxInt64
	}
	if c.gen = generationOf(log.Header); c.gen != nil {
		c.gen.addRunners(c)
		return c
	}
	for _, r := range registry {
		if r.New == nil || !c.runs(r.ID) {
			continue
		}
		c.running = append(c.running, runner{r, r.New(), r.Types, r.Alone})
	}
	return c
}

// runners returns the checkers that want to see a type.
func (c *Context) runners(typ string) []runner {
	// Most events are of the type of the one before: a run of chunks.
	if typ != c.same.typ || c.same.runners == nil {
		c.same.typ, c.same.runners = typ, c.lookup(typ)
	}
	return c.same.runners
}

func (c *Context) lookup(typ string) []runner {
	rs, ok := c.byType[typ]
	if ok {
		return rs
	}
	for _, r := range c.running {
		if r.types == nil || slices.Contains(r.types, typ) {
			rs = append(rs, r)
		}
	}
	if c.known(typ) {
		c.byType[typ] = rs // types nobody knows are as many as a log likes
	}
	return rs
}

// header starts the judgement, once the header record is read.
func (c *Context) header() {
	if c.headed {
		return
	}
	c.headed = true
	golden := c.log.Container == logfmt.Golden
	c.builds = newBuilds(c.log.Header, golden)
	c.Builds = c.builds.now()
	c.eras = c.Builds.Eras()
	c.ranges = append(c.ranges, c.Builds)
	c.fold = newFolder(c)
	c.loader = load.New(c.log.Header, load.Options{})
	if c.rule = byID["LOG-HEADER"]; c.log.Header != nil && c.runs(c.rule.ID) {
		checkHeaderRecord(c)
	}
	if c.log.Header != nil {
		checkName(c)
	}
	c.lineage.open(c)
}

// runs reports whether a rule is wanted.
func (c *Context) runs(id string) bool {
	return (c.opts.Rules == nil || c.opts.Rules(id)) && !(ofWriter[id] && (c.opts.AsLoaded || c.gen != nil && c.gen.version == 1))
}

// Inherited reports whether the event was copied from a parent log.
func (c *Context) Inherited(e *logfmt.Event) bool { return e.Seq < c.own }

func (c *Context) event(e *logfmt.Event) {
	if c.run.next(c, e) {
		return
	}
	c.header()
	if e.AfterDamage && c.damaged == nil {
		c.damage()
	}
	reports := c.reports
	c.events++
	if e.SetsCut() && c.log.Header.CutUnknown() {
		c.own = e.Seq
		c.fold.inherit()
	}
	where := c.follow(e)
	c.where = where
	c.read(e)
	c.evidence(e)
	if c.builds.beyond {
		checkHeaderAge(c, e)
	}
	if c.oddCreation && c.Builds.Since(buildCreatedAt) {
		c.oddCreation = false
		checkCreation(c)
	}
	c.Header = c.fold.f.Header()
	c.Change, c.Faults = fold.Unchanged, nil
	if c.surfaced = !e.IsPiece() && c.onSurface(e.Type); e.Op != nil || e.Sources != nil || c.surfaced {
		c.Change, c.Faults = c.Surface.Check(e, c.eras)
	}
	if where == inPlace {
		if e.Type == "assistant/chunk" {
			c.stream.chunk(c, e)
		}
		c.lineage.event(c, e)
	}
	c.said = false
	for _, r := range c.runners(e.Type) {
		if (r.alone || where == inPlace) && r.rule.active(c.Builds) {
			c.rule = r.rule
			r.checker.Event(c, e)
		}
	}
	c.rule = nil
	switch where {
	case inPlace:
		if hasTime(e) {
			c.time, c.timed = e.Time, true
		}
		c.fold.add(e)
		c.apply(e)
	case late:
		c.fold.add(e)
		c.forget() // what it changed was changed before what is known by now
	}
	c.last = c.place(e)
	c.run.begin(c, e, c.reports != reports)
}

var payloadKeys = []string{"turn", "step", "chunk", "message"}

// read takes turn and step out of the event.
func (c *Context) read(e *logfmt.Event) {
	if turn, step, chunk, ok := e.Piece(); ok {
		c.turn, c.step, c.payload = turn, step, [4][]byte{2: chunk}
		c.chunkIs = chunkType(chunk)
		return
	}
	c.turn, c.step, c.chunkIs = -1, -1, ""
	c.payload = [4][]byte{}
	if jsjson.KindOf(e.Data) != jsjson.Object {
		return
	}
	jsjson.Fields(e.Data, c.payload[:], payloadKeys)
	if n, ok := jsjson.SafeInt(c.payload[0]); ok && n > 0 {
		c.turn = n
	}
	if n, ok := jsjson.SafeInt(c.payload[1]); ok && n > 0 {
		c.step = n
	}
	if e.Type == "assistant/chunk" {
		c.chunkIs = chunkType(c.payload[2])
	}
}

// placement is where an event stands in the numbering.
type placement byte

const (
	inPlace placement = iota // behind all that was seen
	late                     // it was missed before
	again                    // its seq was seen before: not part of the log as it was
)

// follow keeps the count of seqs.
func (c *Context) follow(e *logfmt.Event) placement {
	switch {
	case e.Seq < 0:
		c.forget()
	case e.Seq < c.next:
		if c.arrived(e.Seq) {
			return late
		}
		return again
	default:
		if e.Seq > c.next {
			c.lose(c.next, e.Seq)
			c.forget()
		}
		c.next = e.Seq + 1
	}
	return inPlace
}

// arrived takes a seq out of those that were lost, if it is one of them.
func (c *Context) arrived(seq int64) bool {
	for i, s := range c.lost {
		if seq >= s.from && seq < s.to {
			c.lost = slices.Delete(c.lost, i, i+1)
			if s.from < seq {
				c.lost = append(c.lost, span{s.from, seq})
			}
			if seq+1 < s.to {
				c.lost = append(c.lost, span{seq + 1, s.to})
			}
			return true
		}
	}
	return false
}

// lose notes that seqs were never seen.
func (c *Context) lose(from, to int64) { c.lost = addSpan(c.lost, from, to) }

// addSpan adds [from,to). Many spans become one that is too large: then rules
// are silent that could have spoken, never the other way round.
func addSpan(list []span, from, to int64) []span {
	const most = 64
	if n := len(list); n > 0 && list[n-1].to == from {
		list[n-1].to = to
		return list
	}
	if len(list) == most {
		for _, s := range list {
			from, to = min(from, s.from), max(to, s.to)
		}
		list = list[:0]
	}
	return append(list, span{from, to})
}

// Doubtful reports whether it is unknown if the event with that seq stands on
// the surface: it was lost, or an earlier fault concerned it.
func (c *Context) Doubtful(seq int64) bool { return inSpans(c.lost, seq) || inSpans(c.doubt, seq) }

func inSpans(list []span, seq int64) bool {
	for _, s := range list {
		if seq >= s.from && seq < s.to {
			return true
		}
	}
	return false
}

// forget gives up everything that lost events may have changed.
func (c *Context) forget() {
	c.losses++
	c.lossAt = max(c.lossAt, c.next)
	c.Turn.Known, c.Step.Known = false, false
	c.CallsLost = true
	c.HeaderLost = true
	c.Attempt = Attempt{FirstChunk: -1}
	clear(c.Calls)
	c.Asked = 0
	c.stream.blind = true
	c.called.known = false
}

// damage keeps the state at the first damage: where the log ends if the rest of
// it is cut away.
func (c *Context) damage() {
	c.damaged = &tail{turn: c.Turn, step: c.Step, last: c.last, any: c.events > 0}
}

func (c *Context) evidence(e *logfmt.Event) {
	b := c.builds
	before := b.now()
	b.see(e, c.message(), c.Inherited(e))
	c.Foreign = b.foreign
	if now := b.now(); now != c.Builds {
		c.Builds, c.eras = now, now.Eras()
	}
	cur := &c.ranges[len(c.ranges)-1]
	if e.Type == "session/end-seed" || b.last.from > before.Max && !b.foreign {
		if *cur != c.Builds {
			c.ranges = append(c.ranges, c.Builds)
		}
		return
	}
	*cur = c.Builds
}

const maxRanges = 64

// processes lists the ranges of the processes without repetition.
func (c *Context) processes() []fold.Eras {
	if c.gen != nil {
		return nil // eras are those of generation 0
	}
	var out []fold.Eras
	for _, r := range c.ranges {
		e := r.Eras()
		if len(out) < maxRanges && (len(out) == 0 || out[len(out)-1] != e) {
			out = append(out, e)
		}
	}
	return out
}

// mode says how the surface of the log is found, as far as the events before
// the one at hand tell (SEMANTICS §3.2).
func (c *Context) mode() fold.Mode { return c.fold.f.Mode() }

// apply takes the event into the state.
func (c *Context) apply(e *logfmt.Event) {
	turn, step := c.turn, c.step
	okT, okS := turn > 0, step > 0
	switch e.Type {
	case "":
		c.forget() // it may have been anything
		return
	case "turn/start":
		c.startTurn(e, turn)
	case "turn/end":
		if !c.Turn.Known && okT {
			c.Turn.Last, c.Turn.Count = turn, turn
		}
		c.Turn.Open, c.Turn.Known = false, true
		c.Step.Open, c.Step.Known = false, true
		c.endStep()
	case "step/start":
		if !c.Turn.Known {
			c.adoptTurn(turn)
		}
		c.Step.Open, c.Step.Known, c.Step.N, c.Step.At = true, true, step, c.place(e)
		c.Step.Count++
		if c.Step.Last = step; step < 0 {
			c.Step.Last = c.Step.Count
		}
		c.endStep()
	case "step/end":
		if !c.Turn.Known {
			c.adoptTurn(turn)
		}
		if !c.Step.Known && okS {
			c.Step.Last, c.Step.Count = step, step
		}
		c.Step.Open, c.Step.Known = false, true
		c.endStep()
	case "assistant/chunk":
		c.adopt(turn, step)
		c.chunk(e)
	case "assistant/message":
		c.adopt(turn, step)
		if c.Change != fold.Replaced && !isReplace(e) {
			c.Asked++
			c.Attempt.Answered = true
		}
	case "tool/call":
		c.adopt(turn, step)
		if id, ok := jsjson.Str(jsjson.Get(e.Data, "callId")); ok {
			c.Calls[id] = e.Seq
		}
	case "tool/result":
		if !isReplace(e) {
			c.adopt(turn, step)
			if id, ok := c.resultCall(e); ok {
				delete(c.Calls, id)
			}
		}
	case "request/header", "request/header-delta":
		c.takeHeader(e)
	}
	c.takeSurface(e)
	if c.gen != nil {
		c.followCalls(e)
	}
	if e.Type != "assistant/chunk" {
		c.takeWitness(e)
	}
	// An open bracket without a usable number takes it from what names it.
	if okT && c.Turn.Open && c.Turn.N < 0 && e.Type != "turn/start" {
		c.Turn.N = turn
	}
	if okS && c.Step.Open && c.Step.N < 0 && e.Type != "step/start" {
		c.Step.N = step
	}
}

func (c *Context) startTurn(e *logfmt.Event, turn int64) {
	if c.Turn.Open && c.Turn.Known && turn > 0 && turn == c.Turn.N {
		return // said twice; what is open stays open
	}
	if !c.Turn.Known && turn > 0 {
		c.Turn.Count = turn - 1
	}
	c.Turn.Open, c.Turn.Known, c.Turn.N = true, true, turn
	c.Turn.At = c.place(e)
	c.Turn.Count++
	if c.Turn.Last = turn; turn < 0 {
		c.Turn.Last = c.Turn.Count
	}
	c.Step = Bracket{Known: true}
	c.endStep()
}

// adopt believes an event that names turn and step when the state is unknown.
func (c *Context) adopt(turn, step int64) {
	if !c.Turn.Known && turn > 0 {
		c.adoptTurn(turn)
	}
	if !c.Step.Known && step > 0 {
		c.Step.Open, c.Step.Known, c.Step.N = true, true, step
		c.Step.Last, c.Step.Count = step, step
	}
}

func (c *Context) adoptTurn(turn int64) {
	if turn < 0 {
		return
	}
	known := c.Step.Known
	c.Turn.Open, c.Turn.Known, c.Turn.N = true, true, turn
	c.Turn.Last, c.Turn.Count = turn, turn
	c.Turn.At = Place{Seq: -1, Turn: -1, Step: -1}
	c.Step.Known = known
}

func (c *Context) endStep() {
	c.Attempt = Attempt{FirstChunk: -1}
	clear(c.Calls)
	c.CallsLost = false
	c.Asked = 0
}

// chunk follows the attempts of a step: one ends with its finish chunk.
func (c *Context) chunk(e *logfmt.Event) {
	a := &c.Attempt
	if a.FirstChunk < 0 || a.Finish != "" {
		*a = Attempt{Number: a.Number + 1, FirstChunk: e.Seq}
	}
	if e.IsPiece() {
		return
	}
	ch := c.payload[2]
	if c.chunkIs == "finish" {
		a.Finish, _ = jsjson.Str(jsjson.Get(jsjson.Get(ch, "reason"), "kind"))
		if a.Finish == "" {
			a.Finish = "unknown"
		}
	}
}

// chunkType is the type of a chunk, "" when it is none that is known.
func chunkType(ch []byte) string {
	const key = `{"type":"`
	if len(ch) > len(key) && string(ch[:len(key)]) == key {
		rest := ch[len(key):]
		for _, t := range chunkTypes {
			if len(rest) > len(t) && rest[len(t)] == '"' && string(rest[:len(t)]) == t {
				return t
			}
		}
		return ""
	}
	typ := jsjson.Get(ch, "type")
	for _, t := range chunkTypes {
		if jsjson.StrEq(typ, t) {
			return t
		}
	}
	return ""
}

var chunkTypes = [...]string{"text-delta", "reasoning-delta", "tool-call-delta", "block-start", "block-end", "usage", "finish"}

// isReplace reports whether the event asks to replace, well formed or not.
func isReplace(e *logfmt.Event) bool { return jsjson.KindOf(e.Op) == jsjson.Object }

// message is the member message of the event at hand, nil when it has none. It is
// long, and looked for once.
func (c *Context) message() []byte { return c.payload[3] }

// resultCall is the call that a tool result answers.
func (c *Context) resultCall(e *logfmt.Event) (string, bool) { return jsjson.Str(c.resultToken(e)) }

// takeWitness follows what the parts of the log say about one another.
func (c *Context) takeWitness(e *logfmt.Event) {
	c.stream.after(c, e)
	c.called.after(c, e)
	c.witness.after(c, e)
	broken := c.fold.f.Change() == fold.Replaced || c.fold.f.Change() == fold.Marked
	switch e.Type {
	case "request/header", "request/header-delta":
		const few = 8
		c.headerAt = c.place(e)
		if c.headerLog = append(c.headerLog, c.headerAt); len(c.headerLog) > few {
			c.headerLog = slices.Delete(c.headerLog, 0, len(c.headerLog)-few)
		}
		broken = true
	case "session/end-seed":
		broken = true
	}
	if broken && len(c.breaks) < mostBreaks {
		c.breaks = append(c.breaks, e.Seq)
	}
}

// takeHeader follows whether the header in force is known.
func (c *Context) takeHeader(e *logfmt.Event) {
	c.HeaderSeen = true
	switch {
	case c.fold.f.HeaderError() != nil:
		c.HeaderLost = true
	case e.Type == "request/header":
		c.HeaderLost = false
	}
}

// takeSurface notes what a fault leaves open about the surface. What refers to
// it later is no fault of its own.
func (c *Context) takeSurface(e *logfmt.Event) {
	if !c.surfaced || e.Op != nil && c.fold.f.Change() != fold.Unchanged {
		return
	}
	c.doubt = addSpan(c.doubt, e.Seq, e.Seq+1)
	if e.Op == nil {
		return
	}
	cited, _ := e.SourceRanges(nil)
	slices.SortFunc(cited, func(a, b logfmt.SeqRange) int { return cmp.Compare(a.First, b.First) })
	for _, r := range cited {
		c.doubt = addSpan(c.doubt, r.First, r.Last+1)
	}
}

// closeState settles what the end of the log means.
func (c *Context) closeState() {
	end := &tail{turn: c.Turn, step: c.Step, last: c.last, any: c.events > 0}
	if c.damaged != nil && c.log.Class() == logfmt.Torn {
		end = c.damaged
	}
	if !end.any || !end.turn.Open || !end.turn.Known {
		return
	}
	c.tailOpen = true
	if c.rule = byID["TAIL-OPEN"]; !c.runs(c.rule.ID) {
		return
	}
	p := end.last
	p.Dropped = false
	p.Turn, p.Step = end.turn.N, -1
	inside := "between its steps"
	if end.step.Open {
		p.Step = end.step.N
		inside = "inside step " + number(end.step.N)
	}
	f := c.ReportAt(p, "", "the log ends inside turn %s, %s: expected turn/end", number(end.turn.N), inside)
	if at := end.turn.At; at.Seq >= 0 {
		f.Related = append(f.Related, Related{at.Seq, at.Pos.Line, "the turn starts here"})
	}
}

func clone(b []byte) []byte { return bytes.Clone(b) }
