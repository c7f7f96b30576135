package drift

import (
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
)

// CauseKind says what kind of event made a difference.
type CauseKind string

const (
	CauseHeader     CauseKind = "header"          // a header snapshot; Reason says which
	CauseDelta      CauseKind = "header-delta"    // a header delta
	CauseCompaction CauseKind = "compaction"      // a summary took the place of a range
	CausePrune      CauseKind = "prune"           // a tool result was rewritten in place
	CauseReplace    CauseKind = "replace"         // another replace
	CausePrompt     CauseKind = "prompt"          // a message of the user
	CauseContext    CauseKind = "context"         // an injected message; Reason says by whom
	CauseRuntime    CauseKind = "runtime-context" // the snapshot of the runtime context
	CauseSystem     CauseKind = "system-prompt"   // a message of the system
	CauseOffload    CauseKind = "image-offload"   // images of the message were put away
	CauseSteering   CauseKind = "steering"        // a steering message
	CauseResponse   CauseKind = "response"        // the model's answer
	CauseCancelled  CauseKind = "cancelled"       // what had come of an answer that was cancelled
	CauseToolResult CauseKind = "tool-result"     // the result of a tool call; Reason is its error code, if any
	CauseRepair     CauseKind = "repair"          // a result that crash repair made up; Reason is its code
	CauseProcess    CauseKind = "process"         // a later process derives the event differently
	CauseFork       CauseKind = "fork"            // the log goes on where another one was copied
	CauseRetry      CauseKind = "retry"           // the request was sent again
	CauseLogs       CauseKind = "logs"            // the logs are of different sessions
	Unexplained     CauseKind = "unexplained"     // no event accounts for it
)

// A Cause names what made a difference.
type Cause struct {
	Kind     CauseKind
	Event    *EventRef // the event that took effect; nil when there is none
	Reason   string
	Note     string            // what else there is to say, in words
	With     []EventRef        // events that belong to it, in order of the log
	Sources  []int64           // what the event cites; nil when nothing
	Replaced *fold.Replacement // of a replace
	Log      string            // "a" or "b": the log of the event, when the sides have different logs
	Reverse  bool              // the event stands behind B, before A: B does not have it yet
}

func unexplained() *Cause { return &Cause{Kind: Unexplained} }

// A Source is one side of a comparison with its history.
type Source struct {
	*Sent
	*Body
	History *History
}

// NewSource takes a request apart.
func NewSource(s *Sent, h *History) (*Source, error) {
	b, err := FromRequest(s.Request)
	if err != nil {
		return nil, err
	}
	return &Source{s, b, h}, nil
}

// boundary is the seq below which events count for a request's messages.
func (s *Source) boundary() int64 { return s.Request.Boundary.Seq }

// horizon is the seq below which the log holds all that the request was made of.
func (s *Source) horizon() int64 { return max(s.boundary(), s.HeaderSeq+1) }

// An explainer looks for causes. It sees the two sides as one log, or as two
// that share their first events.
type explainer struct {
	a, b   *Source
	common int64
	one    bool // one log holds all that both sides were made of
	back   bool // and B comes before A in it
	log    *History
}

// Explain compares two requests and names the causes of every difference.
func Explain(a, b *Source) *Diff {
	x := &explainer{a: a, b: b}
	if a.History == b.History {
		x.common = a.History.end
	} else {
		x.common = Common(a.History, b.History)
	}
	if x.common > 0 {
		inB, inA := a.horizon() <= x.common, b.horizon() <= x.common
		x.back = earlier(b, a)
		x.one = inB && !x.back || inA && x.back
		x.log = b.History
		if x.back {
			x.log = a.History
		}
	}
	d := Compare(a.Body, b.Body, x.common)
	if x.one {
		x.mergeReplaced(d)
	}
	x.header(d)
	for i := range d.Messages.Changes {
		c := &d.Messages.Changes[i]
		if c.Cause == nil {
			c.Cause = x.message(c)
		}
	}
	if d.Session != nil {
		d.Session.Cause = x.session()
	}
	return d
}

func earlier(a, b *Source) bool {
	if a.boundary() != b.boundary() {
		return a.boundary() < b.boundary()
	}
	if a.HeaderSeq != b.HeaderSeq {
		return a.HeaderSeq < b.HeaderSeq
	}
	return a.Pos.Offset < b.Pos.Offset
}

func (x *explainer) logName(h *History) string {
	switch {
	case x.a.History == x.b.History || x.one:
		return ""
	case h == x.a.History:
		return "a"
	}
	return "b"
}

// cause makes the cause of an event of the surface.
func (x *explainer) cause(h *History, n *note) *Cause {
	c := &Cause{Kind: n.kind, Reason: n.detail, Event: &n.EventRef, With: n.with, Sources: n.sources, Replaced: n.op, Log: x.logName(h)}
	return c
}

// mergeReplaced joins what a replace removed and what it put there into one
// change.
func (x *explainer) mergeReplaced(d *Diff) {
	from, to := x.a, x.b
	if x.back {
		from, to = x.b, x.a
	}
	// final follows replaces to the last one that took the place.
	final := func(seq int64) (n *note) {
		for {
			next := x.log.shadowedBy(seq, to.boundary())
			if next == nil {
				return n
			}
			n, seq = next, next.Seq
		}
	}
	place := make(map[int64]int) // of events in to
	for j := range to.Messages {
		if n := to.Node(j); n != nil {
			place[n.Seq] = j
		}
	}
	gone, come := Dropped, func(k MessageKind) bool { return k == Appended || k == Inserted }
	oldIndex := func(c *MessageChange) int { return c.A }
	if x.back {
		// Seen from A the summary goes and the range comes back.
		oldIndex = func(c *MessageChange) int { return c.B }
	}
	isOld := func(c *MessageChange) bool {
		if x.back {
			return come(c.Kind)
		}
		return c.Kind == gone
	}
	type merged struct {
		n    *note
		olds []int
	}
	groups := make(map[int64]*merged)
	for i := range d.Messages.Changes {
		c := &d.Messages.Changes[i]
		if !isOld(c) {
			continue
		}
		node := from.Node(oldIndex(c))
		if node == nil || node.Seq >= from.boundary() {
			continue
		}
		if n := final(node.Seq); n != nil {
			if groups[n.Seq] == nil {
				groups[n.Seq] = &merged{n: n}
			}
			groups[n.Seq].olds = append(groups[n.Seq].olds, oldIndex(c))
		}
	}
	if len(groups) == 0 {
		return
	}
	var out []MessageChange
	done := make(map[int64]bool)
	for _, c := range d.Messages.Changes {
		var g *merged
		if isOld(&c) {
			if node := from.Node(oldIndex(&c)); node != nil {
				if n := final(node.Seq); n != nil {
					g = groups[n.Seq]
				}
			}
		} else if !x.back && come(c.Kind) {
			if node := to.Node(c.B); node != nil {
				g = groups[node.Seq]
			}
		} else if x.back && c.Kind == gone {
			if node := to.Node(c.A); node != nil {
				g = groups[node.Seq]
			}
		}
		if g == nil {
			out = append(out, c)
			continue
		}
		if done[g.n.Seq] {
			continue
		}
		done[g.n.Seq] = true
		j, ok := place[g.n.Seq]
		if !ok {
			j = -1 // what took the place derives no message
		}
		m := MessageChange{Kind: Replaced, A: g.olds[0], B: j, Range: g.olds}
		switch {
		case x.back && j >= 0:
			m.A, m.B = j, g.olds[0]
			m.Old, m.New = x.a.Messages[j], x.b.Messages[g.olds[0]]
		case x.back:
			m.A, m.B = -1, g.olds[0]
			m.New = x.b.Messages[g.olds[0]]
		case j >= 0:
			m.Old, m.New = x.a.Messages[g.olds[0]], x.b.Messages[j]
		default:
			m.Old = x.a.Messages[g.olds[0]]
		}
		if len(g.olds) == 1 && m.A >= 0 && m.B >= 0 {
			both := changedMessage(Replaced, x.a.Messages, x.b.Messages, m.A, m.B)
			both.Range = m.Range
			m = both
		}
		m.Cause = x.cause(x.log, g.n)
		m.Cause.Reverse = x.back
		out = append(out, m)
	}
	d.Messages.Changes = out
}

// message finds the cause of what a replace does not explain.
func (x *explainer) message(c *MessageChange) *Cause {
	na, nb := x.a.Node(c.A), x.b.Node(c.B)
	switch c.Kind {
	case Appended, Inserted:
		if nb == nil {
			return x.prefix()
		}
		// B has it and A has not: it came later, or to B's log only. What came
		// later stands behind, unless it took a place.
		if n := x.b.History.find(nb.Seq); x.one && (x.back || nb.Seq < x.a.boundary() || c.Kind == Inserted && n != nil && n.op == nil) {
			return unexplained()
		}
		return x.origin(x.b.History, nb.Seq, false)
	case Dropped:
		if na == nil {
			return x.prefix()
		}
		if x.one && x.back && na.Seq >= x.b.boundary() {
			return x.origin(x.a.History, na.Seq, true)
		}
		if x.one {
			return unexplained()
		}
		if na.Seq < x.common {
			if n := x.b.History.shadowedBy(na.Seq, x.b.boundary()); n != nil {
				return x.cause(x.b.History, n)
			}
			if na.Seq < x.b.boundary() {
				return unexplained()
			}
		}
		return x.origin(x.a.History, na.Seq, false)
	}
	if na == nil || nb == nil {
		return x.prefix()
	}
	if na.Seq != nb.Seq || na.Seq >= x.common {
		// The logs each have their own.
		o := x.origin(x.b.History, nb.Seq, false)
		if o.Kind != Unexplained && x.one {
			return unexplained()
		}
		return o
	}
	if c.Kind == Edited {
		lo, hi := x.a.Sent, x.b.Sent
		if x.back {
			lo, hi = hi, lo
		}
		if x.log != nil {
			for i := range x.log.offloads {
				if o := &x.log.offloads[i]; o.Seq >= lo.Boundary.Seq && o.Seq < hi.Boundary.Seq {
					return &Cause{Kind: CauseOffload, Event: o, Log: x.logName(x.log), Reverse: x.back}
				}
			}
		}
		if x.log != nil {
			if p := x.log.pointIn(lo.Boundary.Seq, hi.horizonSeq()); p != nil {
				return x.process(p, CauseProcess)
			}
		}
		if lo.Eras != hi.Eras {
			return &Cause{Kind: CauseProcess, Reverse: x.back}
		}
	}
	return unexplained()
}

func (s *Sent) horizonSeq() int64 { return max(s.Boundary.Seq, s.HeaderSeq+1, s.FirstChunk) }

func (x *explainer) process(p *Point, kind CauseKind) *Cause {
	c := &Cause{Kind: kind, Log: x.logName(x.log), Reverse: x.back}
	switch {
	case p.EndSeed != nil:
		c.Event = p.EndSeed
	case p.Header != nil:
		c.Event, c.Reason = &p.Header.EventRef, p.Header.Reason
	case len(p.Repairs) > 0:
		c.Event = &p.Repairs[len(p.Repairs)-1]
	}
	return c
}

// origin is the event that a message was made from.
func (x *explainer) origin(h *History, seq int64, back bool) *Cause {
	n := h.find(seq)
	if n == nil {
		return unexplained()
	}
	c := x.cause(h, n)
	c.Reverse = back
	return c
}

// prefix is the cause of a change in the messages that the header puts in front.
func (x *explainer) prefix() *Cause {
	return x.headerCause(func(h *fold.EpochHeader) []byte { return h.MessagePrefix })
}

func (x *explainer) session() *Cause {
	a, b := x.a, x.b
	switch {
	case a.History == b.History || a.History.SessionID == b.History.SessionID:
		if a.Inherited != b.Inherited {
			for _, p := range b.History.points {
				if p.Fork {
					return x.process(p, CauseFork)
				}
			}
			return &Cause{Kind: CauseFork}
		}
		return unexplained()
	case b.History.Parent == a.History.SessionID, a.History.Parent == b.History.SessionID:
		return &Cause{Kind: CauseFork}
	}
	return &Cause{Kind: CauseLogs}
}

// header attributes every difference outside the messages.
func (x *explainer) header(d *Diff) {
	config := func(name string) func(*fold.EpochHeader) []byte {
		return func(h *fold.EpochHeader) []byte { return jsjson.Get(h.Config, name) }
	}
	for i := range d.Config {
		part := config(d.Config[i].Name)
		if d.Config[i].Name == "toolHistory" {
			// Not of the config: what a request of generation 4 says of its tools.
			part = func(h *fold.EpochHeader) []byte { return h.Tools }
		}
		d.Config[i].Cause = x.headerCause(part)
	}
	for i := range d.Defaults {
		name := d.Defaults[i].Name
		d.Defaults[i].Cause = x.headerCause(func(h *fold.EpochHeader) []byte { return jsjson.Get(h.AdapterDefaults, name) })
	}
	if d.KeyOrder {
		d.Order = x.headerCause(func(h *fold.EpochHeader) []byte { return h.Config })
	}
	if d.System != nil {
		d.System.Cause = x.headerCause(func(h *fold.EpochHeader) []byte { return h.System })
	}
	tool := func(key string) func(*fold.EpochHeader) []byte {
		return func(h *fold.EpochHeader) []byte { return toolOf(h.Tools, key) }
	}
	tools := func(h *fold.EpochHeader) []byte { return h.Tools }
	t := &d.Tools
	keysA, _ := toolKeys(x.a.Tools)
	keysB, _ := toolKeys(x.b.Tools)
	for i := range t.Added {
		t.Added[i].Cause = x.headerCause(tool(keysB[t.Added[i].Index]))
	}
	for i := range t.Removed {
		t.Removed[i].Cause = x.headerCause(tool(keysA[t.Removed[i].Index]))
	}
	for i := range t.Changed {
		t.Changed[i].Cause = x.headerCause(tool(keysB[t.Changed[i].IndexB]))
	}
	for i := range t.Moved {
		t.Moved[i].Cause = x.headerCause(tools)
	}
	if t.Present != nil {
		t.Present.Cause = x.headerCause(tools)
	}
}

// headerCause finds the header events that changed what get reads: the last of
// them is the cause, the ones before go with it.
func (x *explainer) headerCause(get func(*fold.EpochHeader) []byte) *Cause {
	read := func(h *fold.EpochHeader) []byte {
		if h == nil {
			return nil
		}
		return get(h)
	}
	changes := func(h *History, after, upTo int64, value []byte) (out []*HeaderNote) {
		for i := range h.headers {
			n := &h.headers[i]
			if n.Seq <= after || n.Seq > upTo {
				continue
			}
			if v := read(n.Header); string(v) != string(value) || (v == nil) != (value == nil) {
				value = v
				out = append(out, n)
			}
		}
		return out
	}
	build := func(h *History, list []*HeaderNote) *Cause {
		n := list[len(list)-1]
		c := &Cause{Kind: CauseHeader, Event: &n.EventRef, Reason: n.Reason, Note: n.Note, Log: x.logName(h), Reverse: x.one && x.back}
		if n.Reason == "delta" {
			c.Kind, c.Reason = CauseDelta, ""
		}
		for _, m := range list[:len(list)-1] {
			c.With = append(c.With, m.EventRef)
		}
		// The process in which the snapshot was the first.
		for _, p := range h.points {
			if p.Header != nil && p.Header.Seq == n.Seq && p.EndSeed != nil {
				c.With = append(c.With, *p.EndSeed)
			}
		}
		return c
	}
	if x.one {
		lo, hi := x.a, x.b
		if x.back {
			lo, hi = hi, lo
		}
		list := changes(x.log, lo.HeaderSeq, hi.HeaderSeq, read(x.log.headerAt(lo.HeaderSeq)))
		if len(list) == 0 {
			return unexplained()
		}
		return build(x.log, list)
	}
	base := read(x.b.History.headerAt(x.common - 1))
	if x.common == 0 {
		base = nil
	}
	if list := changes(x.b.History, x.common-1, x.b.HeaderSeq, base); len(list) > 0 {
		return build(x.b.History, list)
	}
	if list := changes(x.a.History, x.common-1, x.a.HeaderSeq, base); len(list) > 0 {
		return build(x.a.History, list)
	}
	return unexplained()
}

// toolOf finds a tool by its key, see toolKeys.
func toolOf(tools []byte, key string) []byte {
	var list [][]byte
	for t := range jsjson.Elements(tools) {
		list = append(list, t)
	}
	keys, _ := toolKeys(list)
	for i, k := range keys {
		if k == key {
			return list[i]
		}
	}
	return nil
}

// Causes yields the cause of every difference, nil where none was looked for.
func (d *Diff) Causes() []*Cause {
	var out []*Cause
	list := func(cs []Change) {
		for i := range cs {
			out = append(out, cs[i].Cause)
		}
	}
	list(d.Config)
	list(d.Defaults)
	if d.KeyOrder {
		out = append(out, d.Order)
	}
	if d.System != nil {
		out = append(out, d.System.Cause)
	}
	out = append(out, toolCauses(&d.Tools)...)
	for _, m := range d.Messages.Changes {
		out = append(out, m.Cause)
	}
	if d.Session != nil {
		out = append(out, d.Session.Cause)
	}
	return out
}

// Unexplained counts the differences that no event accounts for.
func (d *Diff) Unexplained() int {
	n := 0
	for _, c := range d.Causes() {
		if c != nil && c.Kind == Unexplained {
			n++
		}
	}
	return n
}
