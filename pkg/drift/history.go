package drift

import (
	"hash/maphash"
	"iter"
	"slices"
	"sort"
	"strconv"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// An EventRef names one event of a log.
type EventRef struct {
	Seq, Time int64
	Type      string
}

func refOf(e *logfmt.Event) EventRef { return EventRef{e.Seq, e.Time, e.Type} }

// A message note is what the history keeps of an event that took part in the
// surface.
type note struct {
	EventRef
	kind    CauseKind
	detail  string // kind of the source, code of an error
	sources []int64
	op      *fold.Replacement // of a replace that took effect
	with    []EventRef        // events that belong to it: of a compaction or prune
	hash    uint64            // of data and op
}

// A HeaderNote is a header event and the header it led to.
type HeaderNote struct {
	EventRef
	Reason string // of a snapshot; "delta" for a delta
	Note   string // of a fallback: why no delta was logged
	Header *fold.EpochHeader
	hash   uint64
}

// A Point is the beginning of a process in a log: a resume, or the place where a
// fork goes on by itself (SEMANTICS §10.3).
type Point struct {
	Seq     int64
	Fork    bool
	EndSeed *EventRef   // session/end-seed
	Header  *HeaderNote // the header snapshot with which it began
	Repairs []EventRef  // what crash repair appended before it (SEMANTICS §8.5)
}

// A History keeps of a log what explains its requests. It grows with the number
// of messages, not with their size.
type History struct {
	SessionID string
	Parent    string // "" when none
	Seed      int64
	CreatedAt int64
	Cwd       string

	notes   []note // by seq
	headers []HeaderNote
	points  []*Point
	retries []EventRef
	// offloads are the events that put images away.
	offloads []EventRef
	end      int64 // one past the last event
	last     int64 // time of the last event
	first    int64 // time of the first event

	// while events come in
	repairs    []EventRef // of the tail that crash repair is appending
	compaction []EventRef // start and summary of the open compaction
	prune      *EventRef  // waits for its replacement
	open       *Point     // no request was sent since
	forked     bool
	requests   bool // one was sent
}

// NewHistory starts the history of a log with that header record; nil when it
// has none.
func NewHistory(h *logfmt.Header) *History {
	g := &History{Seed: h.Seed(), first: -1}
	if h != nil {
		g.SessionID, g.CreatedAt = h.ID, h.CreatedAt
		if h.ParentSession != nil {
			g.Parent = *h.ParentSession
		}
		if h.Cwd != nil {
			g.Cwd = *h.Cwd
		}
	}
	return g
}

var hashSeed = maphash.MakeSeed()

func hashOf(e *logfmt.Event) uint64 {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	h.WriteString(e.Type)
	h.WriteByte(0)
	h.Write(e.Data)
	h.WriteByte(0)
	h.Write(e.Op)
	return h.Sum64()
}

// Add takes the next event, which f has just folded.
func (g *History) Add(e *logfmt.Event, f *fold.Fold) {
	if e.Seq >= g.end {
		g.end = e.Seq + 1
	}
	if e.Type == logfmt.TypeAssistantChunk {
		return
	}
	if g.first < 0 {
		g.first = e.Time
	}
	g.last = e.Time
	if g.Seed > 0 && e.Seq >= g.Seed && !g.forked {
		g.forked = true
		g.begin(&Point{Seq: e.Seq, Fork: true})
	}
	closer := false
	switch e.Type {
	case logfmt.TypeRequestHeader, logfmt.TypeRequestHeaderDelta:
		if f.HeaderError() != nil {
			break
		}
		n := HeaderNote{EventRef: refOf(e), Reason: "delta", Header: f.Header(), hash: hashOf(e)}
		if e.Type == logfmt.TypeRequestHeader {
			n.Reason, _ = jsjson.Str(jsjson.Get(e.Data, "reason"))
		}
		if k := len(g.headers); n.Reason == "fallback" && k > 0 {
			n.Note = fallback(g.headers[k-1].Header, n.Header)
		}
		g.headers = append(g.headers, n)
		if n.Reason == "initial" || n.Reason == "resume" {
			if g.open == nil || g.open.Header != nil {
				if len(g.headers) == 1 && !g.requests {
					break // the first process of the log
				}
				g.begin(&Point{Seq: e.Seq})
			}
			g.open.Header = &n
		}
	case logfmt.TypeSessionEndSeed:
		r := refOf(e)
		if g.open == nil || g.open.Header != nil {
			g.begin(&Point{Seq: e.Seq})
		}
		g.open.EndSeed = &r
	case logfmt.TypeCompactionStart, logfmt.TypeCompactStart:
		g.compaction = []EventRef{refOf(e)}
	case logfmt.TypeCompactionSummary, logfmt.TypeCompactSummary:
		g.compaction = append(g.compaction, refOf(e))
	case logfmt.TypeCompactionEnd, logfmt.TypeCompactEnd:
		// The checkpoint came before the end.
		if len(g.compaction) > 0 && len(g.notes) > 0 {
			n := &g.notes[len(g.notes)-1]
			if n.kind == CauseCompaction && n.Seq > g.compaction[0].Seq {
				n.with = append(n.with, refOf(e))
			}
		}
		g.compaction = nil
	case logfmt.TypeCompactionPrune, logfmt.TypeCompactPrune:
		r := refOf(e)
		g.prune = &r
	case logfmt.TypeLLMRetry, logfmt.TypeLLMRetryStarted:
		g.retries = append(g.retries, refOf(e))
	case logfmt.TypeStepEnd:
		closer = true
		if len(g.repairs) > 0 {
			g.repairs = append(g.repairs, refOf(e))
		} else {
			g.repairs = []EventRef{refOf(e)} // if turn/end says so
		}
	case logfmt.TypeTurnEnd:
		if jsjson.StrEq(jsjson.Get(jsjson.Get(e.Data, "reason"), "kind"), "interrupted") {
			list := append(g.repairs, refOf(e))
			if g.open == nil || g.open.Header != nil {
				g.begin(&Point{Seq: list[0].Seq})
			}
			g.open.Repairs = append(g.open.Repairs, list...)
		}
	}
	if f.Change() == fold.Marked {
		g.offloads = append(g.offloads, refOf(e))
	} else if f.Change() != fold.Unchanged || f.Mode() == fold.LinearMode && fold.Eligible(e.Type, fold.Eras{}) {
		n := g.note(e, f)
		g.notes = append(g.notes, n)
		if n.kind == CauseRepair {
			closer = true
			g.repairs = append(g.repairs, n.EventRef)
		}
	}
	if !closer {
		g.repairs = nil
	}
}

func (g *History) begin(p *Point) {
	g.points = append(g.points, p)
	g.open = p
}

// sent tells the history that a request was sent.
func (g *History) sent() {
	g.requests = true
	g.open = nil
}

// fallback says why a change was logged as a snapshot where deltas were in use:
// a delta names tools, and cannot place them (SEMANTICS §5.5).
func fallback(prev, next *fold.EpochHeader) string {
	names := func(tools []byte) (list []string, twice string) {
		seen := make(map[string]bool)
		for t := range jsjson.Elements(tools) {
			name, _ := jsjson.Str(jsjson.Get(t, "name"))
			if seen[name] && twice == "" {
				twice = name
			}
			seen[name] = true
			list = append(list, name)
		}
		return list, twice
	}
	was, twice := names(prev.Tools)
	is, again := names(next.Tools)
	if twice == "" {
		twice = again
	}
	if twice != "" {
		return "a delta cannot tell apart two tools named " + strconv.Quote(twice)
	}
	// A delta keeps the order of the old tools and puts new ones at the end.
	var want []string
	for _, n := range was {
		if slices.Contains(is, n) {
			want = append(want, n)
		}
	}
	for _, n := range is {
		if !slices.Contains(was, n) {
			want = append(want, n)
		}
	}
	if !slices.Equal(want, is) {
		return "a delta cannot express the order of the tools"
	}
	delta := fold.DiffHeader(prev, next)
	if applied, err := fold.ApplyHeaderDelta(prev, delta); err == nil && fold.HeaderEquals(applied, next) {
		return "a delta would have done"
	}
	return "a delta cannot express the change"
}

// note classifies an event of the surface.
func (g *History) note(e *logfmt.Event, f *fold.Fold) note {
	n := note{EventRef: refOf(e), hash: hashOf(e)}
	if s, ok := e.SourceSeqs(nil); ok {
		n.sources = s
	}
	if f.Change() == fold.Replaced {
		h := f.Surface().Replacements()
		n.op = &h[len(h)-1]
	}
	n.kind, n.detail = classify(e)
	switch {
	case n.op == nil:
	case e.Type == logfmt.TypeToolResult:
		n.kind = CausePrune
		if g.prune != nil {
			n.with = append(n.with, *g.prune)
			g.prune = nil
		}
	case len(g.compaction) > 0 || n.kind == CauseCompaction:
		n.kind = CauseCompaction
		n.with = append(n.with, g.compaction...)
	case n.kind == CauseSystem:
	default:
		n.kind = CauseReplace
	}
	return n
}

// classify says what an event of the surface is, a replace aside.
func classify(e *logfmt.Event) (CauseKind, string) {
	data := e.Data
	message := jsjson.Get(data, "message")
	if message == nil {
		message = data
	}
	source := jsjson.Get(message, "source")
	kind, _ := jsjson.Str(jsjson.Get(source, "kind"))
	switch e.Type {
	case logfmt.TypeAssistantMessage:
		if string(jsjson.Get(data, "interrupted")) == "true" {
			return CauseCancelled, ""
		}
		return CauseResponse, ""
	case logfmt.TypeToolResult:
		code, _ := jsjson.Str(jsjson.Get(jsjson.Get(data, "error"), "code"))
		switch code {
		case "interrupted", "TOOL_OUTCOME_UNKNOWN", "TOOL_NOT_STARTED":
			return CauseRepair, code
		}
		return CauseToolResult, code
	case logfmt.TypeSteeringMessage:
		return CauseSteering, kind
	case logfmt.TypeContextMessage:
		return CauseContext, sourceName(source, kind)
	case logfmt.TypeSystemMessage:
		return CauseSystem, ""
	}
	switch kind {
	case "runtime-context":
		return CauseRuntime, ""
	case "compact-checkpoint":
		return CauseCompaction, ""
	}
	if kind == "user" {
		return CausePrompt, ""
	}
	if kind == "plugin" {
		plugin, _ := jsjson.Str(jsjson.Get(source, "plugin"))
		switch plugin {
		case "@deepseek-ai/dsh-system-prompt":
			return CauseRuntime, ""
		case "compact":
			return CauseCompaction, ""
		}
	}
	return CauseContext, sourceName(source, kind)
}

// sourceName tells who injected a message.
func sourceName(source []byte, kind string) string {
	if plugin, ok := jsjson.Str(jsjson.Get(source, "plugin")); ok && kind == "plugin" {
		return "plugin " + plugin
	}
	return kind
}

// find returns the note of the event with that seq, nil when it took no part in
// the surface.
func (g *History) find(seq int64) *note {
	i := sort.Search(len(g.notes), func(i int) bool { return g.notes[i].Seq >= seq })
	if i < len(g.notes) && g.notes[i].Seq == seq {
		return &g.notes[i]
	}
	return nil
}

// shadowedBy returns the replace that removed the event with that seq from the
// surface, before the boundary; nil when none did.
func (g *History) shadowedBy(seq, boundary int64) *note {
	i := sort.Search(len(g.notes), func(i int) bool { return g.notes[i].Seq > seq })
	for ; i < len(g.notes) && g.notes[i].Seq < boundary; i++ {
		if op := g.notes[i].op; op != nil {
			for _, s := range op.ShadowedSeqs {
				if s == seq {
					return &g.notes[i]
				}
			}
		}
	}
	return nil
}

// headerAt returns the header in force behind the event with that seq; nil when
// none.
func (g *History) headerAt(seq int64) *fold.EpochHeader {
	i := sort.Search(len(g.headers), func(i int) bool { return g.headers[i].Seq > seq })
	if i == 0 {
		return nil
	}
	return g.headers[i-1].Header
}

// pointIn returns the last process that began in [from, to); nil when none.
func (g *History) pointIn(from, to int64) *Point {
	for i := len(g.points) - 1; i >= 0; i-- {
		if p := g.points[i]; p.Seq >= from && p.Seq < to {
			return p
		}
	}
	return nil
}

// Points lists the processes that began in the log behind the first one.
func (g *History) Points() []*Point { return g.points }

// Headers lists the header events.
func (g *History) Headers() []HeaderNote { return g.headers }

// Common is the number of leading events that two logs share, as far as messages
// and headers tell: the whole shorter log when nothing differs. It is 0 unless
// the logs are of one session, or one is of a fork of the other.
func Common(a, b *History) int64 {
	limit := min(a.end, b.end)
	switch {
	case a.SessionID == b.SessionID:
	case b.Parent != "" && b.Parent == a.SessionID:
		limit = min(limit, b.Seed)
	case a.Parent != "" && a.Parent == b.SessionID:
		limit = min(limit, a.Seed)
	default:
		return 0
	}
	for i := 0; ; i++ {
		inA, inB := i < len(a.notes), i < len(b.notes)
		if !inA && !inB {
			break
		}
		if inA && inB && a.notes[i].Seq == b.notes[i].Seq && a.notes[i].hash == b.notes[i].hash {
			continue
		}
		if inA {
			limit = min(limit, a.notes[i].Seq)
		}
		if inB {
			limit = min(limit, b.notes[i].Seq)
		}
		break
	}
	for i := 0; ; i++ {
		inA, inB := i < len(a.headers), i < len(b.headers)
		if !inA && !inB {
			break
		}
		if inA && inB && a.headers[i].Seq == b.headers[i].Seq && a.headers[i].hash == b.headers[i].hash {
			continue
		}
		if inA {
			limit = min(limit, a.headers[i].Seq)
		}
		if inB {
			limit = min(limit, b.headers[i].Seq)
		}
		break
	}
	return limit
}

// A Sent is one request of a log, as a clone, with what the log tells about it.
type Sent struct {
	*fold.Request
	Time  int64  // of its first chunk, else of the event that ended the attempt
	Usage []byte // the provider's, canonical JSON; nil when not reported
}

// A Tracker folds a log and keeps its history.
type Tracker struct {
	History *History
	fold    *fold.Fold
	usage   []byte
	usageAt int64
	chunkAt int64 // seq of the first chunk since the last request
	chunked int64 // its time
	last    int64 // time of the last event
	out     []*Sent
}

// NewTracker starts with the header record of a log; nil when it has none.
func NewTracker(h *logfmt.Header, o fold.Options) *Tracker {
	return &Tracker{History: NewHistory(h), fold: fold.New(h, o), chunkAt: -1, usageAt: -1}
}

// Add takes the next event and returns the requests it completed. They stay
// valid.
func (t *Tracker) Add(e *logfmt.Event) []*Sent {
	reqs := t.fold.Add(e)
	t.last = e.Time
	t.out = t.out[:0]
	if e.Type == logfmt.TypeAssistantChunk {
		if t.chunkAt < 0 {
			t.chunkAt, t.chunked = e.Seq, e.Time
		}
		if chunk := jsjson.Get(e.Data, "chunk"); jsjson.StrEq(jsjson.Get(chunk, "type"), "usage") {
			t.usage, t.usageAt = append(t.usage[:0], jsjson.Get(chunk, "usage")...), e.Seq
		}
	}
	for _, r := range reqs {
		t.take(r, e)
	}
	t.History.Add(e, t.fold)
	return t.out
}

// End closes the log and returns the requests that were still open.
func (t *Tracker) End() []*Sent {
	t.out = t.out[:0]
	for _, r := range t.fold.End() {
		t.take(r, nil)
	}
	return t.out
}

func (t *Tracker) take(r *fold.Request, e *logfmt.Event) {
	s := &Sent{Request: r.Clone(), Time: t.last}
	if r.FirstChunk >= 0 && r.FirstChunk == t.chunkAt {
		s.Time = t.chunked
	}
	if r.FirstChunk >= 0 && t.usageAt >= r.FirstChunk && t.usageAt <= r.LastChunk {
		s.Usage = append([]byte(nil), t.usage...)
	} else if e != nil && r.Response == e.Seq {
		s.Usage = append([]byte(nil), jsjson.Get(e.Data, "usage")...)
	}
	if len(s.Usage) == 0 {
		s.Usage = nil
	}
	t.chunkAt, t.usageAt = -1, -1
	if r.Candidate == "" {
		t.History.sent()
	}
	t.out = append(t.out, s)
}

// Walk folds a log and yields its requests in the order of dispatch, candidates
// and inherited ones among them. A defect of the log is yielded as an error in
// its place, and reading goes on. When the iteration ends, t.History holds the
// whole log.
func (t *Tracker) Walk(log *logfmt.Log) iter.Seq2[*Sent, error] {
	return func(yield func(*Sent, error) bool) {
		for e, defect := range log.Events() {
			if defect != nil {
				if !yield(nil, defect) {
					return
				}
				continue
			}
			for _, s := range t.Add(e) {
				if !yield(s, nil) {
					return
				}
			}
		}
		for _, s := range t.End() {
			if !yield(s, nil) {
				return
			}
		}
	}
}
