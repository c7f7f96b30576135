package fold

import (
	"iter"
	"math"
	"slices"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Options settle what a log may leave open. The zero value lets shapes decide
// and reports the rest as ambiguous.
type Options struct {
	Framing Framing
	Layout  Layout
	// OneShots asks for the model calls outside the loop as well; see
	// Fold.OneShots.
	OneShots bool
	// Ancestor finds the header record of another session, nil when it is not at
	// hand. It settles under whose id an inherited request was sent: the parent may
	// itself have begun with events of another (SEMANTICS §10.1), and nothing in the
	// child tells. It is asked for the parent first, and for each session once.
	Ancestor func(id string) *logfmt.Header
}

// Fold takes the events of one log in order and gives its requests, each as soon
// as the event that ends its attempt has been added (SEMANTICS §6.8). It keeps
// the live surface, the header in force and the open step; no event is looked at
// twice.
type Fold struct {
	opts    Options
	seed    int64
	session string // id of the header record, WTF-8
	idToken []byte // its JSON string, nil when there is no header record
	owners  lineage

	format   *format
	toolHist toolHistory
	offloads int  // events that put images away
	cutOpen  bool // the events tell where the inherited ones end
	cutSeen  bool

	dialect *Dialect
	eras    Eras
	surface Surface
	linear  []*Node // every message so far, while a linear scan is possible
	scan    bool
	marked  bool
	header  HeaderFold
	dig     digester

	headerSeq    int64
	headerReason string
	headerLogged bool  // the current process logged a header
	headerErr    error // of the latest header event
	headerFrames [2]*frameParts
	sameFrames   int8 // whether both layouts give the same body: 0 not compared, 1 yes, -1 no
	scrubbed     bool
	fixture      bool         // events of it were completed
	snapshotted  bool         // of the header in force, prompt or tools come from beside the log
	framed       *EpochHeader // the header of headerFrames
	framedFor    string       // and the session id within
	framedTools  []byte       // and the history of the tools

	next     int64 // seq expected next
	damaged  bool
	doubtful bool // a surface fault that decides which messages count
	badHead  bool // the header in force is not the one that was meant
	unmarked []int64
	faults   []*SurfaceError
	change   Change

	turn turnState
	step stepState
	try  attempt

	out        []*Request
	aux        []*OneShot
	compacting bool // a compaction began and has no summary yet
}

type turnState struct {
	known   bool
	trigger bool // its turn/start has one: E9 or older
	turn    int64
}

// stepState is the open step.
type stepState struct {
	open     bool
	implicit bool // chunks without a step/start
	turn     int64
	step     int64
	start    int64 // seq of step/start
	attempts int
	before   extent  // surface just before step/start
	scanned  extent  // the linear scan there
	due      string  // why an attempt that has left nothing may have been sent; "" when none is due
	failed   bool    // the latest attempt ended without a message
	answered bool    // an attempt ended with one
	nameless bool    // step/start does not say which step it is
	messages []int64 // message events since the start, or since the last attempt ended
	times    []int64 // and their times
	header   int     // index in messages of the attempt's own header; -1 when none
	own      bool    // the coming attempt logged a header itself
	snapshot bool    // and it was a snapshot
}

// attempt is the open attempt.
type attempt struct {
	open     bool
	first    int64
	last     int64
	finish   string
	finished bool
	at       extent
	scanned  extent
	context  requestContext
	late     int // index in step.messages of the first message after the first chunk
	pos      logfmt.Position
}

// requestContext is what a request is built from besides its messages, taken
// when its first chunk arrives.
type requestContext struct {
	header       *EpochHeader
	headerSeq    int64
	headerReason string
	snapshotted  bool // prompt or tools come from beside the log
	own          bool
	snapshot     bool
	afterHeader  []int64
	eras         Eras
	scan         bool
	damaged      bool
	doubtful     bool
	badHead      bool
}

// New starts the fold of a log with that header record; nil when it has none.
func New(h *logfmt.Header, opts Options) *Fold {
	f := &Fold{opts: opts, headerSeq: -1, scan: true, format: chunked}
	if h != nil {
		f.format = formatOf(uint8(h.Format().Version))
		if f.seed = h.Seed(); h.CutUnknown() {
			f.seed, f.cutOpen = math.MaxInt64, true
		}
		f.session = h.ID
		f.idToken = jsjson.AppendQuote(nil, h.ID)
		f.owners = lineage{ask: opts.Ancestor, line: []*logfmt.Header{h}}
	}
	f.dialect = NewDialect(h)
	f.eras = f.dialect.Eras()
	f.dig.session = f.session
	f.surface.onReplace = func(pos int) { f.dig.replaced(f.surface.gen, pos) }
	f.decideMode()
	return f
}

// Surface is the surface as of the latest event. It is empty where a linear scan
// found the messages.
func (f *Fold) Surface() *Surface { return &f.surface }

// Header is the header in force; nil when none was logged.
func (f *Fold) Header() *EpochHeader { return f.header.Header }

// HeaderError is the error of the latest event, when that is a header event from
// which no header follows.
func (f *Fold) HeaderError() error { return f.headerErr }

// SurfaceErrors are the surface rules that the latest event breaks. While the
// log may still turn out to be one without markers, a message without one is
// among Unmarked and not reported here.
func (f *Fold) SurfaceErrors() []*SurfaceError { return f.faults }

// Change is what the latest event did to the surface.
func (f *Fold) Change() Change { return f.change }

// Unmarked lists the messages without a marker of a log that is not, or not all,
// one without markers (SEMANTICS §3.2); nil as long as a linear scan applies.
func (f *Fold) Unmarked() []int64 {
	if f.scan {
		return nil
	}
	return f.unmarked
}

// Eras are the builds that may have written the latest event.
func (f *Fold) Eras() Eras { return f.eras }

// Process counts the process boundaries so far.
func (f *Fold) Process() int { return f.dialect.Process() }

// Mode says how the messages are found as of the latest event.
func (f *Fold) Mode() Mode {
	if f.scan {
		return LinearMode
	}
	return SurfaceMode
}

// Messages yields the messages the next request would hold, as far as the log
// goes, in the projection of the build that wrote the latest event; those of the
// header's prefix are not among them.
func (f *Fold) Messages() iter.Seq2[*Node, []byte] {
	s := f.now()
	if f.scan {
		s = f.scanned()
	}
	v, _ := f.view(f.eras, f.header.Header)
	return (&body{dig: &f.dig, snap: s, view: v}).messages()
}

// AppendMessages appends the messages as a JSON array.
func (f *Fold) AppendMessages(dst []byte) []byte {
	dst = append(dst, '[')
	sep := false
	for _, m := range f.Messages() {
		if sep {
			dst = append(dst, ',')
		}
		sep = true
		dst = append(dst, m...)
	}
	return append(dst, ']')
}

// OneShots are the one-shot calls that the latest event records, when Options ask
// for them.
func (f *Fold) OneShots() []*OneShot { return f.aux }

func (f *Fold) now() extent     { return extent{f.surface.Nodes(), f.surface.gen} }
func (f *Fold) scanned() extent { return extent{f.linear[:len(f.linear):len(f.linear)], linearGen} }

func (f *Fold) decideMode() {
	if f.scan && (f.marked || f.eras.Min >= E2) {
		f.scan = false
		f.linear = nil
		if len(f.unmarked) > 0 {
			f.doubtful = true
		}
	}
}

// Add takes the next event and returns the requests it completed, which are
// valid until the next call.
func (f *Fold) Add(e *logfmt.Event) []*Request {
	f.out, f.aux, f.faults, f.headerErr, f.change = f.out[:0], nil, nil, nil, Unchanged
	if e.Synthetic != 0 {
		f.fixture = true
	}
	if e.AfterDamage || e.Seq != f.next {
		f.damaged = true
	}
	if e.Seq >= 0 {
		f.next = e.Seq + 1
	}
	if e.Type == logfmt.TypeAssistantChunk {
		f.eras = f.dialect.Add(e)
		f.decideMode()
		if !f.format.settled {
			f.chunk(e)
		}
		return f.out
	}

	// What closes an attempt does so before the event itself counts.
	switch e.Type {
	case logfmt.TypeAssistantMessage:
		if f.format.settled {
			if f.appends(e) {
				f.settle(e)
			}
			f.eras = f.dialect.Add(e)
			break
		}
		if f.step.open && f.appends(e) {
			f.eras = f.dialect.Add(e)
			f.respond(e)
			break
		}
		f.eras = f.dialect.Add(e)
	case logfmt.TypeTurnStart, logfmt.TypeTurnEnd, logfmt.TypeStepStart, logfmt.TypeStepEnd, logfmt.TypeSessionEndSeed:
		f.closeStep(e, e.Seq)
		f.eras = f.dialect.Add(e)
	default:
		if f.format.settled && e.Type == logfmt.TypeAssistantAttempt {
			f.settle(e)
		} else if f.try.open && f.betweenAttempts(e) {
			f.endAttempt(e, e.Seq)
		}
		f.eras = f.dialect.Add(e)
	}

	switch e.Type {
	case logfmt.TypeTurnStart:
		turn, _ := jsjson.SafeInt(jsjson.Get(e.Data, "turn"))
		f.turn = turnState{known: true, turn: turn, trigger: jsjson.Get(e.Data, "trigger") != nil}
	case logfmt.TypeTurnEnd:
		f.turn = turnState{}
	case logfmt.TypeStepStart:
		f.openStep(e)
	case logfmt.TypeSessionEndSeed:
		f.headerLogged = false
		f.turn = turnState{}
	case logfmt.TypeRequestHeader, logfmt.TypeRequestHeaderDelta:
		f.logHeader(e)
	case logfmt.TypeLLMRetry:
		f.retryScheduled(e)
	case logfmt.TypeLLMRetryStarted:
		if f.step.open && !f.try.open {
			f.step.due = "llm/retry-started is not followed by a chunk"
		}
	case logfmt.TypeCompactionEnd, logfmt.TypeCompactEnd:
		if f.step.open && !f.try.open && f.step.failed && f.eras.Min >= E10 && jsjson.Get(e.Data, "error") == nil {
			f.step.due = "the compaction after a failed attempt is not followed by a chunk"
		}
	}
	f.oneShot(e)
	f.apply(e)
	f.addFormat(e)
	return f.out
}

// Runs reports whether chunks with the seqs first to last would change nothing but
// what MoreTo changes. They are to differ from the event before them, which was
// added, in seq, time and text only (see logfmt.Event.PieceText).
func (f *Fold) Runs(first, last int64) bool {
	seed := f.dialect.seed
	return f.try.open && !f.try.finished && !f.format.settled && first == f.next && (seed < first || seed > last)
}

// MoreTo is Add for all chunks up to the one with that seq, once Runs was asked.
func (f *Fold) MoreTo(last int64) {
	f.out = f.out[:0]
	f.next, f.try.last = last+1, last
}

// inherits reports whether an event was copied from a parent. One without a usable
// seq is where the count has come to.
func (f *Fold) inherits(seq int64) bool {
	if seq < 0 {
		seq = f.next
	}
	return seq < f.seed
}

// End closes the log and returns the requests that were still open.
func (f *Fold) End() []*Request {
	f.out, f.aux = f.out[:0], nil
	f.closeStep(nil, f.next)
	return f.out
}

// appends reports whether an assistant message joins at the end, as a response
// does, and does not replace.
func (f *Fold) appends(e *logfmt.Event) bool {
	return e.Op == nil || jsjson.KindOf(e.Op) == jsjson.String
}

// apply takes the event up in the surface and, while it is possible, the scan.
func (f *Fold) apply(e *logfmt.Event) {
	if e.Op != nil && !f.marked && takesPart(e) {
		f.marked = true
	}
	f.decideMode()
	if f.format.offload && e.Type == logfmt.TypeImageOffload {
		if f.offloads++; f.surface.offload(e) {
			f.change = Marked
		}
		f.faults = f.surface.faults
		return
	}
	if e.Op == nil && e.Sources == nil && !takesPart(e) {
		return
	}
	f.change, f.faults = f.surface.Apply(e, f.eras)
	for i := 0; i < len(f.faults); i++ {
		switch fault := f.faults[i]; fault.Fault {
		case FaultMarker:
			f.unmarked = append(f.unmarked, e.Seq)
			if f.scan {
				f.faults = append(f.faults[:i], f.faults[i+1:]...)
				i--
				continue
			}
			f.doubtful = true
		case FaultRange, FaultOpShape:
			f.doubtful = true
		case FaultEligible:
			f.doubtful = f.doubtful || takesPart(e)
		}
	}
	if !takesPart(e) {
		return
	}
	if f.scan {
		f.linear = append(f.linear, newNode(e))
	}
	if f.step.open && (f.change != Unchanged || f.scan) {
		f.step.messages = append(f.step.messages, e.Seq)
		f.step.times = append(f.step.times, e.Time)
	}
}

func (f *Fold) openStep(e *logfmt.Event) {
	turn, ok1 := jsjson.SafeInt(jsjson.Get(e.Data, "turn"))
	step, ok2 := jsjson.SafeInt(jsjson.Get(e.Data, "step"))
	f.step = stepState{
		open: true, turn: turn, step: step, start: e.Seq, header: -1, nameless: !ok1 || !ok2,
		before: f.now(), due: "the step ends with neither chunk nor message",
		messages: f.step.messages[:0], times: f.step.times[:0],
	}
	if f.scan {
		f.step.scanned = f.scanned()
	}
}

// closeStep ends the open attempt and the step before event e, nil at the end of
// the log.
func (f *Fold) closeStep(e *logfmt.Event, seq int64) {
	if !f.step.open {
		return
	}
	if f.try.open {
		f.endAttempt(e, seq)
	}
	if f.step.due != "" && f.mayHaveBeenSent(e) {
		if e == nil && f.step.attempts == 0 {
			f.step.due = "the log ends before the step's first chunk"
		}
		f.candidate(e, seq, f.step.due)
	}
	f.step = stepState{messages: f.step.messages[:0], times: f.step.times[:0]}
}

// mayHaveBeenSent excludes the step that provably sent nothing: since E3 the
// first request of a process logs a header before it is sent.
func (f *Fold) mayHaveBeenSent(e *logfmt.Event) bool {
	if f.headerLogged || f.damaged || f.eras.Min < E3 {
		return true
	}
	return e == nil && f.header.Header != nil
}

// betweenAttempts reports whether an event that is logged between two attempts,
// or before a new dispatch, shows that the open one is over.
func (f *Fold) betweenAttempts(e *logfmt.Event) bool {
	switch e.Type {
	case logfmt.TypeLLMRetry, logfmt.TypeLLMRetryStarted:
		return true
	case logfmt.TypeRequestHeader, logfmt.TypeRequestHeaderDelta, logfmt.TypeRequestContext,
		logfmt.TypeCompactionStart, logfmt.TypeCompactStart:
		return f.try.finished
	}
	return false
}

func (f *Fold) chunk(e *logfmt.Event) {
	var reason []byte // of a finish
	if !e.IsPiece() {
		reason = finishReason(e.Data)
	}
	if !f.step.open {
		f.implicitStep(e)
	} else if f.step.implicit {
		turn, _ := jsjson.SafeInt(jsjson.Get(e.Data, "turn"))
		step, _ := jsjson.SafeInt(jsjson.Get(e.Data, "step"))
		if turn != f.step.turn || step != f.step.step {
			f.closeStep(e, e.Seq)
			f.implicitStep(e)
		}
	}
	if !f.try.open {
		s := &f.step
		if s.nameless {
			s.turn, _ = jsjson.SafeInt(jsjson.Get(e.Data, "turn"))
			s.step, _ = jsjson.SafeInt(jsjson.Get(e.Data, "step"))
		}
		s.attempts++
		s.due, s.failed = "", false
		f.try = attempt{
			open: true, first: e.Seq, at: f.now(), late: len(s.messages), pos: e.Pos,
			context: f.context(),
		}
		if f.scan {
			f.try.scanned = f.scanned()
		}
	}
	f.try.last = e.Seq
	if reason == nil {
		return
	}
	kind, _ := jsjson.Str(jsjson.Get(reason, "kind"))
	f.try.finish, f.try.finished = kind, true
	if kind == "error" || kind == "aborted" {
		f.endAttempt(e, e.Seq)
	}
}

func (f *Fold) implicitStep(e *logfmt.Event) {
	turn, _ := jsjson.SafeInt(jsjson.Get(e.Data, "turn"))
	step, _ := jsjson.SafeInt(jsjson.Get(e.Data, "step"))
	f.step = stepState{
		open: true, implicit: true, turn: turn, step: step, start: e.Seq, header: -1,
		before: f.now(), messages: f.step.messages[:0], times: f.step.times[:0],
	}
	if f.scan {
		f.step.scanned = f.scanned()
	}
}

// context freezes what the coming request is built from.
func (f *Fold) context() requestContext {
	c := requestContext{
		header: f.header.Header, headerSeq: f.headerSeq, headerReason: f.headerReason,
		snapshotted: f.snapshotted, own: f.step.own, snapshot: f.step.snapshot,
		eras: f.eras, scan: f.scan,
		damaged: f.damaged, doubtful: f.doubtful, badHead: f.badHead,
	}
	if f.step.header >= 0 && f.step.header < len(f.step.messages) {
		c.afterHeader = append(c.afterHeader, f.step.messages[f.step.header:]...)
	}
	return c
}

// respond ends the open attempt with its message; without one, the message
// stands for a stream that gave no chunk.
func (f *Fold) respond(e *logfmt.Event) {
	if !f.try.open {
		f.step.attempts++
		f.step.due = ""
		f.try = attempt{
			open: true, first: -1, last: -1, at: f.now(), late: len(f.step.messages),
			pos: e.Pos, context: f.context(),
		}
		if f.scan {
			f.try.scanned = f.scanned()
		}
	}
	r := f.request(f.step.attempts, e.Seq)
	r.Response = e.Seq
	f.finishAttempt(false)
	f.step.answered = true
}

func (f *Fold) endAttempt(_ *logfmt.Event, seq int64) {
	f.request(f.step.attempts, seq)
	f.finishAttempt(true)
}

func (f *Fold) finishAttempt(failed bool) {
	f.try = attempt{}
	s := &f.step
	s.failed, s.own, s.snapshot, s.header = failed, false, false, -1
	s.messages, s.times = s.messages[:0], s.times[:0]
	s.due = ""
}

// candidate reports an attempt that has left nothing in the log.
func (f *Fold) candidate(e *logfmt.Event, seq int64, why string) {
	f.step.attempts++
	f.try = attempt{open: true, first: -1, last: -1, at: f.now(), late: len(f.step.messages), context: f.context()}
	if f.scan {
		f.try.scanned = f.scanned()
	}
	if e != nil {
		f.try.pos = e.Pos
	}
	r := f.request(f.step.attempts, seq)
	if r.Candidate == "" {
		if r.Candidate = why; f.format.settled && settledWords[why] != "" {
			r.Candidate = settledWords[why]
		}
	}
	if f.format.tools {
		f.toolGrade(r)
	}
	r.doubt(ReasonDispatch)
	f.finishAttempt(true)
}

func (f *Fold) retryScheduled(e *logfmt.Event) {
	s := &f.step
	if !s.open {
		return
	}
	if s.due != "" && s.attempts > 0 {
		f.candidate(e, e.Seq, s.due)
	} else if s.due != "" {
		f.candidate(e, e.Seq, "llm/retry follows without a chunk")
	}
	// Builds of the first days of E10 did not log that the retry began.
	if jsjson.Get(e.Data, "retryId") == nil && f.eras.Min >= E10 {
		s.due = "llm/retry is not followed by a chunk"
	}
}

func (f *Fold) logHeader(e *logfmt.Event) {
	_, err := f.header.Add(e)
	f.headerErr = err
	if err != nil {
		f.badHead = true
		return
	}
	f.headerLogged = true
	f.headerSeq = e.Seq
	if e.Type == logfmt.TypeRequestHeader {
		f.snapshotted = e.Synthetic&logfmt.SyntheticHeader != 0
	}
	if e.Type == logfmt.TypeRequestHeaderDelta {
		f.headerReason = "delta"
	} else {
		f.headerReason, _ = jsjson.Str(jsjson.Get(e.Data, "reason"))
		f.badHead = false
	}
	if s := &f.step; s.open && !f.try.open {
		s.own = true
		s.snapshot = e.Type == logfmt.TypeRequestHeader
		s.header = len(s.messages)
		if s.due == "" {
			s.due = "a header was logged for an attempt that left no chunk"
		}
	}
}

// view chooses the projection of requests sent by the given builds under the
// given header, and says whether framing was left open.
func (f *Fold) view(r Eras, h *EpochHeader) (v view, open bool) {
	switch {
	case r.Min >= E10:
		return viewReact, false
	case r.Min >= E9:
		return viewImported, false
	case r.Min >= E6:
		return viewVerbatim, false
	case r.Max == E0:
		return viewFramedEmpty, false
	case r.Max < E6, h == nil, jsjson.Get(h.Config, "provider") == nil:
		return viewFramed, false
	}
	if f.opts.Framing == FramingVerbatim {
		return viewVerbatim, true
	}
	return viewFramed, true
}

// layout chooses the key order, and says whether the choice was left open.
func (f *Fold) layout(r Eras, h *EpochHeader) (l Layout, open bool) {
	switch {
	case r.Min >= E8:
		return LayoutSpread, false
	case r.Max < E8, jsjson.Get(h.Config, "provider") == nil, h.MessagePrefix != nil:
		return LayoutNamed, false
	case f.opts.Layout == LayoutSpread:
		return LayoutSpread, true
	}
	return LayoutNamed, true
}

// around returns the parts of a body around its messages, kept while the header
// stays the same.
func (f *Fold) around(h *EpochHeader, l Layout, session []byte) *frameParts {
	var tools []byte
	if f.format.tools {
		tools = f.toolHist.value()
	}
	if f.framed != h || f.framedFor != string(session) || !sameSlice(f.framedTools, tools) { // the compiler compares without a copy
		f.framed, f.framedFor, f.framedTools, f.headerFrames, f.sameFrames = h, string(session), tools, [2]*frameParts{}, 0
		f.scrubbed = h.Scrubbed()
	}
	p := &f.headerFrames[l-LayoutNamed]
	if *p == nil {
		parts := frameBody(h, session, l, true, tools, f.format.rooted)
		*p = &parts
	}
	return *p
}

// layoutsAgree reports whether the key order makes no difference to the body.
func (f *Fold) layoutsAgree(h *EpochHeader, session []byte) bool {
	a, b := f.around(h, LayoutNamed, session), f.around(h, LayoutSpread, session)
	if f.sameFrames == 0 {
		f.sameFrames = -1
		if a.equal(b) {
			f.sameFrames = 1
		}
	}
	return f.sameFrames > 0
}

func (r *Request) doubt(reason string) {
	r.Grade = Ambiguous
	if !slices.Contains(r.Reasons, reason) {
		r.Reasons = append(r.Reasons, reason)
	}
}

// request builds the request of the open attempt, which event end has ended.
func (f *Fold) request(number int, end int64) *Request {
	t, s, c := &f.try, &f.step, &f.try.context
	r := &Request{
		Turn: s.turn, Step: s.step, Attempt: number,
		Inherited: f.inherits(s.start),
		Eras:      c.eras, Grade: Exact, Mode: SurfaceMode,
		HeaderSeq: c.headerSeq, HeaderReason: c.headerReason, HeaderOwn: c.own, AfterHeader: c.afterHeader,
		FirstChunk: t.first, LastChunk: t.last, Response: -1, Finish: t.finish,
		End: end, Pos: t.pos,
	}
	b := &body{dig: &f.dig, header: c.header}
	r.body = b

	// Which messages: SEMANTICS §6.2.
	early, undecided := f.derivedBeforeStep(c)
	b.snap = t.at
	before := s.before
	if c.scan {
		r.Mode = LinearMode
		b.snap, before = t.scanned, s.scanned
	}
	late := s.messages[min(t.late, len(s.messages)):]
	switch {
	case early:
		r.Boundary = Boundary{Seq: s.start, Rule: "step/start"}
		b.snap = before
		late = s.messages
	case t.first >= 0:
		r.Boundary = Boundary{Seq: t.first, Rule: "first-chunk"}
	default:
		r.Boundary = Boundary{Seq: end, Rule: "attempt-end"}
	}
	if len(late) > 0 {
		r.Late = append([]int64(nil), late...)
	}

	// In which projection and layout.
	var frameOpen bool
	b.view, frameOpen = f.view(c.eras, c.header)
	b.total = f.dig.total(b.snap, b.view)
	session, known := f.idToken, true
	if r.Inherited {
		if session, known = f.owners.of(s.start); session == nil {
			session = f.idToken // the header names no parent
		}
	}
	switch {
	case c.header == nil:
		p := messagesOnly()
		b.head, b.tail = p.head, p.tail
		r.Grade = Messages
		if c.eras.Min >= E3 {
			r.doubt(ReasonHeader)
		}
	default:
		l, open := f.layout(c.eras, c.header)
		p := f.around(c.header, l, session)
		if open && !f.layoutsAgree(c.header, session) {
			if f.opts.Layout == LayoutAuto {
				r.doubt(ReasonLayout)
			} else {
				r.Assumptions = append(r.Assumptions, AssumeLayout)
			}
		}
		b.head, b.listed, b.tail = p.head, p.listed, p.tail
		if !known {
			r.doubt(ReasonSession)
		}
		if l == LayoutSpread && !(c.own && c.snapshot) {
			r.Assumptions = append(r.Assumptions, AssumeKeyOrder)
		}
		if f.scrubbed {
			r.doubt(ReasonScrubbed)
		}
	}
	if f.fixture {
		r.Assumptions = append(r.Assumptions, AssumeFixture)
	}
	if c.snapshotted {
		r.Assumptions = append(r.Assumptions, AssumeSnapshot)
	}
	if frameOpen && b.total.framable > 0 {
		if f.opts.Framing == FramingAuto {
			r.doubt(ReasonFraming)
		} else {
			r.Assumptions = append(r.Assumptions, AssumeFraming)
		}
	}
	if undecided && (len(before.nodes) != len(t.at.nodes) || before.gen != t.at.gen) {
		r.doubt(ReasonBoundary)
	}
	// The header is the last thing logged before a request is sent: what stands
	// behind it may have come too late.
	if !early && !f.format.settled && len(c.afterHeader) > 0 {
		r.doubt(ReasonBoundary)
	}
	if b.total.bad > 0 {
		r.doubt(ReasonMessage)
	}
	if c.badHead || c.header != nil && jsjson.KindOf(c.header.Config) != jsjson.Object {
		r.doubt(ReasonHeader)
	}
	if c.doubtful && !c.scan {
		r.doubt(ReasonSurface)
	}
	if c.damaged || f.idToken == nil {
		r.doubt(ReasonDamage)
	}
	if s.implicit || s.nameless {
		r.doubt(ReasonStep)
	}
	// One step asks again only after a failure, and before E10 not at all
	// (SEMANTICS §6.4): what follows an answer is no attempt any build makes.
	switch {
	case number == 1:
	case s.answered:
		r.Candidate = "it follows the step's answer"
		r.doubt(ReasonDispatch)
	case f.turn.trigger || c.eras.Max < E10:
		r.Candidate = "builds of this era asked once in a step"
		r.doubt(ReasonDispatch)
	}
	f.out = append(f.out, r)
	return r
}

// derivedBeforeStep reports whether the build took the messages just before
// step/start (E3 to E9); older and newer ones took them when the request was
// sent (SEMANTICS §6.2).
func (f *Fold) derivedBeforeStep(c *requestContext) (early, undecided bool) {
	switch {
	case f.step.implicit, f.format.settled:
		return false, false
	case f.turn.known && f.turn.trigger:
		return c.header != nil || c.eras.Min >= E3, false
	case f.turn.known:
		return false, false
	case c.eras.Min >= E10, c.eras.Max < E3:
		return false, false
	case c.eras.Max < E10:
		return c.header != nil || c.eras.Min >= E3, false
	}
	return false, true
}
