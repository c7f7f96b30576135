// Package load says what the harness of 2026-08-21 makes of a stored log when it
// loads it: which logs it refuses and why, how it upgrades events of older
// dialects, which events it adds to a log that ends inside a turn. It implements
// PHYSICAL §6 to §8.
//
// # Order
//
// A log passes the checks of PHYSICAL §6.4 in the order of Stage. The harness
// makes each check for the whole log before the next one, and stops at the first
// that fails. A Loader makes them all in one pass and keeps the first refusal of
// every stage; the one of the earliest stage is what the harness would say.
//
// # Bytes
//
// An event that no rule touches keeps its bytes. An upgraded one keeps its
// envelope with the order of its keys; only type and data are exchanged, and the
// keys of the data stand in the order in which the harness builds them (PHYSICAL
// §6.2).
//
// # What is not judged here
//
// Where the log is stored: the place a root gives to an id and a cwd. Options.ID
// stands for the id that was asked for. Whether a path is absolute is judged by
// its own style: the harness on the system the path belongs to accepts it.
package load

import (
	"bytes"
	"fmt"
	"iter"
	"strconv"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Date is the day of the harness whose rules these are.
const Date = "2026-08-21"

// Schema is the only SQLite schema that harness opens (PHYSICAL §5.1).
const Schema = 17

// A Stage is one step of the admission of a log (PHYSICAL §6.4).
type Stage uint8

// The stages, in the order in which the harness takes them.
const (
	Storage  Stage = iota // the stored bytes: container, records, numbering (§2, §3, §5)
	Record                // shape of the header record (§2.2)
	Identity              // the id is the one asked for (§6.4 step 2), and one that a place follows from (§1.3)
	Version               // format version and schema (§2.2, §7.1)
	Retired               // vocabulary that is refused outright (§6.1)
	Upgrade               // malformed events of older dialects (§6.2), message shapes (§6.5)
	Type                  // types unknown and not ignorable (§7.3)
	Closing               // data that the search for an open turn trips over (§8.1)
	Header                // members of the header (§6.4 step 6a)
	Admit                 // envelope, request header, message, surface (§6.4 step 6b to 6f)
	numStages
)

var stageNames = [numStages]string{"storage", "record", "identity", "version", "retired", "upgrade", "type", "closing", "header", "admit"}

// String is the name of the stage: storage, record, identity, version, retired,
// upgrade, type, closing, header or admit.
func (s Stage) String() string {
	if s < numStages {
		return stageNames[s]
	}
	return "stage " + strconv.Itoa(int(s))
}

// A Refusal is why the harness does not load a log.
type Refusal struct {
	Stage Stage
	// Unsupported marks what the harness takes for a log of another version of
	// itself, and not for damage.
	Unsupported bool
	Seq         int64 // of the event; -1 when none is meant
	Pos         logfmt.Position
	Path        string // the value meant within the event or the header; "" for the whole
	Message     string // lower case; may quote the log
	Err         error  // cause; may be nil
}

func (r *Refusal) Error() string {
	if r.Seq < 0 {
		return r.Message
	}
	return fmt.Sprintf("seq %d: %s", r.Seq, r.Message)
}

func (r *Refusal) Unwrap() error { return r.Err }

// Options steers a load. The zero value is ready.
type Options struct {
	ID string // the session that is asked for; "" takes any
	// Texts are the words of the results that stand in for lost ones; nil stands
	// for wordings of our own.
	Texts *fold.CloserTexts
}

// An Outcome is what became of a load.
type Outcome struct {
	Refusal *Refusal // nil when the log is loaded
	// Unjudged says why the outcome is not known; "" when it is. Refusal and
	// Closers then speak of what could be read.
	Unjudged string
	Kept     int64           // stored events that the harness keeps
	Upgraded int64           // of these, events that it upgrades
	Closers  []*logfmt.Event // what it adds; none to a log that is refused
	Before   Extent          // what stands before the first damage; all of a sound log
	Behind   Extent          // what can be read behind it
	Cut      Cut             // what it takes away to continue a log that is torn
}

// A Loader takes one log event by event. It holds the surface and the open turn,
// nothing else of the log.
type Loader struct {
	id       string
	opts     Options
	texts    fold.CloserTexts
	surface  fold.Surface
	closers  fold.CloserTracker
	ids      map[int64][]byte // of the messages on the surface, JSON string tokens
	seqs     []int64
	refusals [numStages]*Refusal
	retired  [3]*Refusal // by kind, in the order in which they are looked for
	spare    Refusal     // where refusals go that are not kept
	next     int64
	upgraded int64
	before   Extent
	behind   Extent
	frameAt  int64 // of the frame of the last event
	inFrame  int64 // kept events of that frame

	ev  logfmt.Event // the upgraded event
	buf []byte
	tmp []byte
}

// New starts the load of a log with the given header, which may be nil.
func New(h *logfmt.Header, o Options) *Loader {
	l := &Loader{opts: o, texts: fold.DefaultCloserTexts, ids: map[int64][]byte{}, before: none, behind: none}
	l.surface.Lean = true
	if o.Texts != nil {
		l.texts = *o.Texts
	}
	if h != nil {
		l.id = h.ID
		l.header(h)
	}
	return l
}

// refuse keeps the first refusal of a stage.
func (l *Loader) refuse(s Stage, e *logfmt.Event, path, format string, args ...any) *Refusal {
	if l.refusals[s] != nil {
		return &l.spare // told already
	}
	r := &Refusal{Stage: s, Seq: -1, Path: path, Pos: nowhere, Message: fmt.Sprintf(format, args...)}
	if e != nil {
		r.Seq, r.Pos = e.Seq, e.Pos
	}
	l.refusals[s] = r
	return r
}

var nowhere = logfmt.Position{Frame: -1, FrameAt: -1, Row: -1, Member: -1}

// Add takes the next event and returns it as the harness holds it: the same one,
// or an upgraded one that is valid until the next call. It returns nil for an
// event behind damage, which the harness never sees. An event that cannot be
// upgraded comes back as it is.
func (l *Loader) Add(e *logfmt.Event) *logfmt.Event {
	if e.AfterDamage {
		l.behind.add(e)
		return nil
	}
	l.before.add(e)
	if e.Pos.FrameAt != l.frameAt {
		l.frameAt, l.inFrame = e.Pos.FrameAt, 0
	}
	l.inFrame++
	if ordinary(e) && e.Seq == l.next {
		// Nearly all events: nothing that follows looks at one.
		l.closers.Add(e)
		l.next++
		return e
	}
	l.vocabulary(e)
	up := l.upgrade(e)
	if up != e {
		l.upgraded++
	}
	l.admit(up)
	return up
}

// Record takes the events of a record.
func (l *Loader) Record(r *logfmt.Record) {
	for i := range r.Len() {
		l.Add(r.Event(i))
		if i == 0 && r.Run() && l.More(r) {
			return
		}
	}
}

// More takes the events of a run behind its first, which was added. It reports
// false, having changed nothing, when they are to be added one by one.
func (l *Loader) More(r *logfmt.Record) bool {
	e, n := r.Event(0), int64(r.Len()-1)
	seq, time, _ := r.Last()
	if !ordinary(e) || e.AfterDamage || l.next != seq-n+1 {
		return false
	}
	l.before.Events += n
	l.before.Last = seq
	l.inFrame += n
	l.next += n
	l.closers.More(seq, time)
	return true
}

// ordinary reports whether an event is a chunk that nothing looks at behind Add.
func ordinary(e *logfmt.Event) bool {
	return e.Type == logfmt.TypeAssistantChunk && e.Fault&^logfmt.FaultTimeNeg == 0 && e.Op == nil && e.Sources == nil
}

// admit makes the checks that follow the upgrade.
func (l *Loader) admit(e *logfmt.Event) {
	if err := fold.CheckMessageShape(e); err != nil {
		l.shape(Upgrade, e, err)
	}
	if !e.Ignorable && (e.Fault&logfmt.FaultType != 0 || !known[e.Type]) {
		if e.Fault&logfmt.FaultType != 0 {
			l.refuse(Type, e, "type", "the type is no string, which makes it an unknown one").Unsupported = true
		} else {
			l.refuse(Type, e, "type", "event type %q is unknown to it and not marked ignorable", e.Type).Unsupported = true
		}
	}
	l.trip(e)
	l.closers.Add(e)
	l.envelope(e)
	if e.Type == logfmt.TypeRequestHeader {
		if why := fold.CheckHeaderConfig(fold.Newest, jsjson.Get(e.Data, "header")); why != "" {
			l.refuse(Admit, e, "data.header", "%s", why)
		}
	}
	if e.Seq != l.next {
		l.refuse(Admit, e, "seq", "seq is %d, expected %d", e.Seq, l.next)
	}
	l.next++
	l.place(e)
}

// shape words what is wrong with the message of an event.
func (l *Loader) shape(s Stage, e *logfmt.Event, err error) {
	se := err.(*fold.ShapeError)
	l.refuse(s, e, se.Path, "the message of the %s is malformed: %s is %s, expected %s", e.Type, se.Path, se.Got, se.Want).Err = err
}

// vocabulary looks for what is refused outright (PHYSICAL §6.1): each kind in the
// whole log before the next.
func (l *Loader) vocabulary(e *logfmt.Event) {
	kind, what := 0, ""
	switch e.Type {
	case logfmt.TypeRequestHeaderDelta:
		what = "it no longer reads request/header-delta, which builds of 07-06 to 07-17 wrote"
	case logfmt.TypeModeSet:
		kind, what = 1, "it does not read mode/set, which only development builds wrote"
	case logfmt.TypeRequestHeader:
		if jsjson.StrEq(jsjson.Get(e.Data, "reason"), "fallback") {
			kind, what = 2, `it no longer reads a request/header with reason "fallback", which builds of 07-06 to 07-17 wrote`
		}
	}
	if what != "" && l.retired[kind] == nil {
		l.retired[kind] = &Refusal{Stage: Retired, Seq: e.Seq, Pos: e.Pos, Message: what}
	}
}

// trip finds data that the harness fails on while it looks for an open turn: it
// reads members of null (PHYSICAL §8.1).
func (l *Loader) trip(e *logfmt.Event) {
	switch e.Type {
	case logfmt.TypeTurnStart, logfmt.TypeStepStart, logfmt.TypeToolCall:
		if e.Data == nil || string(e.Data) == "null" {
			l.refuse(Closing, e, "data", "the data of the %s is missing, and it fails on reading it", e.Type)
		}
	case logfmt.TypeAssistantMessage:
		i := 0
		for b := range jsjson.Elements(jsjson.Get(jsjson.Get(e.Data, "message"), "content")) {
			if string(b) == "null" {
				l.refuse(Closing, e, "data.message.content["+strconv.Itoa(i)+"]", "a content block is null, and it fails on reading it")
			}
			i++
		}
	}
}

// envelope holds an event to the closed envelope (PHYSICAL §6.4 step 6b).
func (l *Loader) envelope(e *logfmt.Event) {
	switch {
	case e.Fault&^(logfmt.FaultTimeNeg|logfmt.FaultOp|logfmt.FaultSources|logfmt.FaultSourceRuns) == 0:
	case e.Fault&logfmt.FaultType != 0:
		l.refuse(Admit, e, "type", "the type is no string")
	case e.Fault&logfmt.FaultSeq != 0:
		l.refuse(Admit, e, "seq", "seq is no whole number from 0")
	case e.Fault&logfmt.FaultTime != 0:
		l.refuse(Admit, e, "time", "time is no whole number of milliseconds")
	case e.Fault&logfmt.FaultNoData != 0:
		l.refuse(Admit, e, "data", "the event has no data")
	case e.Fault&logfmt.FaultExtraKey != 0:
		l.refuse(Admit, e, "", "the event has a key outside the envelope")
	case e.Fault&logfmt.FaultIgnorable != 0:
		l.refuse(Admit, e, "ignorable", "ignorable is not true")
	}
}

// place holds an event to the surface rules (PHYSICAL §6.6) and takes it up.
func (l *Loader) place(e *logfmt.Event) {
	if e.Fault&logfmt.FaultSourceRuns != 0 {
		l.refuse(Admit, e, "sourceEventSeqs", "sourceEventSeqs holds something else than seqs")
	}
	_, faults := l.surface.Apply(e, fold.Eras{Min: fold.Newest, Max: fold.Newest})
	if len(faults) > 0 {
		path := "surfaceOp"
		switch faults[0].Fault {
		case fold.FaultSources, fold.FaultEmpty, fold.FaultShadow:
			path = "sourceEventSeqs"
		case fold.FaultRewrite:
			path = "data"
		}
		l.refuse(Admit, e, path, "%s", faults[0].Detail).Err = faults[0]
	}
	if id := messageID(e); id != nil {
		l.ids[e.Seq] = bytes.Clone(id)
	}
	if n := len(l.surface.Nodes()); len(l.ids) > 2*n+64 {
		// Only what stands on the surface can be replaced. Most are let go at once:
		// a replacement must not cost the whole surface.
		l.seqs = l.surface.Seqs(l.seqs[:0])
		kept := make(map[int64][]byte, len(l.seqs))
		for _, s := range l.seqs {
			if id, ok := l.ids[s]; ok {
				kept[s] = id
			}
		}
		l.ids = kept
	}
}

// messageID is the id that an event is remembered by, as a JSON string token.
func messageID(e *logfmt.Event) []byte {
	var id []byte
	switch e.Type {
	case logfmt.TypeUserMessage:
		id = jsjson.Get(e.Data, "id")
	case logfmt.TypeAssistantMessage, logfmt.TypeToolResult:
		id = jsjson.Get(jsjson.Get(e.Data, "message"), "id")
	}
	if jsjson.KindOf(id) != jsjson.String {
		return nil
	}
	return id
}

// End says what became of the log, after its last event. The log tells what is
// wrong with the stored bytes; nil stands for a sound one.
func (l *Loader) End(log *logfmt.Log) *Outcome {
	o := &Outcome{Kept: l.next, Upgraded: l.upgraded, Before: l.before, Behind: l.behind}
	if log != nil {
		o.Unjudged = l.storage(log)
		o.Cut = l.cut(log)
	}
	for _, r := range l.retired {
		if r != nil && l.refusals[Retired] == nil {
			l.refusals[Retired] = r
		}
	}
	closers := l.closers.Closers(fold.CloserIdentified, l.texts)
	if o.Refusal = l.refusal(); o.Refusal == nil {
		// The harness holds what it adds to the rules as well: a call with an id
		// that is no text makes a result that it refuses.
		for _, c := range closers {
			if err := fold.CheckMessageShape(c); err != nil {
				l.shape(Admit, c, err)
			}
			l.place(c)
		}
		if o.Refusal = l.refusal(); o.Refusal == nil {
			o.Closers = closers
		}
	}
	return o
}

// refusal is the first of the earliest stage.
func (l *Loader) refusal() *Refusal {
	for _, r := range l.refusals {
		if r != nil {
			return r
		}
	}
	return nil
}

// Events reads a log to its end and yields the events as the harness holds them
// after loading, the closers last. Defects are yielded as they are met. An event
// is valid until the next step. What became of the load is written to out when
// the log is read: only then it is known whether the harness would hold any of
// these events.
func Events(log *logfmt.Log, o Options, out *Outcome) iter.Seq2[*logfmt.Event, *logfmt.Defect] {
	return func(yield func(*logfmt.Event, *logfmt.Defect) bool) {
		l := New(log.Header, o)
		for e, d := range log.Events() {
			if d != nil {
				if !yield(nil, d) {
					return
				}
				continue
			}
			if e = l.Add(e); e != nil && !yield(e, nil) {
				return
			}
		}
		*out = *l.End(log)
		for _, c := range out.Closers {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// Check reads a log to its end and says what the harness makes of it.
func Check(log *logfmt.Log, o Options) *Outcome {
	var out Outcome
	for range Events(log, o, &out) {
	}
	return &out
}
