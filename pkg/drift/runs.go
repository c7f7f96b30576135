package drift

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// A Run is one recording, turn by turn.
type Run struct {
	History *History
	turns   []*runTurn
	vol     *volatiles
}

type runTurn struct {
	turn     int64 // 0: what stands behind the last turn
	messages []runMessage
	requests []runRequest
	end      []byte // reason of its turn/end; nil when it has none
	endSeq   int64
}

type runRequest struct {
	name    string // TURN.STEP, or TURN.STEP.ATTEMPT from the second attempt on
	outcome string
	header  *fold.EpochHeader
}

// A runMessage is a message that came onto the surface in a turn.
type runMessage struct {
	note     *note
	raw      []byte
	skeleton string
	values   []volatileValue
}

type volatileValue struct {
	kind  volatileKind
	value string
}

// ReadRun reads a recording. Defects of the log go to the function.
func ReadRun(log *logfmt.Log, o fold.Options, defect func(error)) *Run {
	t := NewTracker(log.Header, o)
	r := &Run{History: t.History}
	raws := make(map[int64][]byte) // by seq
	seen := func(nodes func(func(*fold.Node, []byte) bool)) {
		nodes(func(n *fold.Node, m []byte) bool {
			if _, ok := raws[n.Seq]; !ok {
				raws[n.Seq] = bytes.Clone(m)
			}
			return true
		})
	}
	open := &runTurn{}     // events outside a turn belong to the next one
	turnOf := []*runTurn{} // of the notes
	inTurn := false
	take := func(list []*Sent) {
		for _, s := range list {
			seen(s.Messages())
			if s.Candidate != "" {
				continue
			}
			q := runRequest{name: fmt.Sprintf("%d.%d", s.Turn, s.Step), outcome: "no answer", header: s.Header()}
			if s.Attempt > 1 {
				q.name += fmt.Sprintf(".%d", s.Attempt)
			}
			switch {
			case s.Finish != "":
				q.outcome = s.Finish
			case s.Response >= 0:
				q.outcome = "answered"
			}
			open.requests = append(open.requests, q)
		}
	}
	for e, d := range log.Events() {
		if d != nil {
			defect(d)
			continue
		}
		if e.Type == logfmt.TypeTurnStart {
			if inTurn { // the turn before has no end
				r.turns = append(r.turns, open)
				open = &runTurn{}
			}
			open.turn, _ = jsjson.SafeInt(jsjson.Get(e.Data, "turn"))
			inTurn = true
		}
		take(t.Add(e))
		for len(turnOf) < len(r.History.notes) {
			turnOf = append(turnOf, open)
		}
		if e.Type == logfmt.TypeTurnEnd && inTurn {
			open.end, open.endSeq = bytes.Clone(jsjson.Get(e.Data, "reason")), e.Seq
			r.turns = append(r.turns, open)
			open, inTurn = &runTurn{}, false
		}
	}
	take(t.End())
	seen(t.fold.Messages())
	if inTurn || len(open.requests) > 0 {
		r.turns = append(r.turns, open)
	} else if len(turnOf) > 0 && turnOf[len(turnOf)-1] == open {
		open.turn = 0
		r.turns = append(r.turns, open)
	}
	r.vol = newVolatiles(r.History)
	for i := range r.History.notes {
		if raw := raws[r.History.notes[i].Seq]; raw != nil {
			r.vol.learn(raw)
		}
	}
	for i := range r.History.notes {
		n := &r.History.notes[i]
		raw := raws[n.Seq]
		if raw == nil {
			continue // the model never saw it
		}
		m := runMessage{note: n, raw: raw}
		m.skeleton = string(r.vol.rewrite(raw, func(k volatileKind, s string) string {
			m.values = append(m.values, volatileValue{k, s})
			return volatileNames[k]
		}))
		if n.op != nil {
			m.skeleton = fmt.Sprintf("replaces %d ", len(n.op.ShadowedSeqs)) + m.skeleton
		}
		turnOf[i].messages = append(turnOf[i].messages, m)
	}
	return r
}

// A RunChange is a message that is not the same in both recordings. Old and New
// are shown with ids of A where B's stand for them, and without times and
// directories.
type RunChange struct {
	MessageChange
	EventA, EventB *EventRef // nil when absent
}

// A RunHeader is a difference between the headers of two requests.
type RunHeader struct {
	A, B string // the requests: TURN.STEP
	Diff *Diff
}

// A TurnDiff is how a turn differs between two recordings.
type TurnDiff struct {
	A, B     int64 // numbers of the turn; -1 when absent, 0 for what stands behind the last turn
	Kept     int   // messages that are the same
	Messages []RunChange
	Headers  []RunHeader
	Requests []Change // of requests that differ: outcome by name
	End      *Change  // how the turn ended
}

// Same reports whether nothing differs.
func (t *TurnDiff) Same() bool {
	return t.A >= 0 && t.B >= 0 && len(t.Messages)+len(t.Headers)+len(t.Requests) == 0 && t.End == nil
}

// A RunsDiff is how two recordings of one scenario differ.
type RunsDiff struct {
	A, B  *History
	Turns []TurnDiff
	IDs   int // pairs of ids that were matched
	Cwd   bool
}

// Same reports whether nothing differs.
func (d *RunsDiff) Same() bool {
	for i := range d.Turns {
		if !d.Turns[i].Same() {
			return false
		}
	}
	return true
}

type runner struct {
	a, b *Run
	ids  *bijection
	// heads remembers pairs of headers that were compared: a difference is told
	// where it first appears.
	heads map[[2]*fold.EpochHeader]bool
	last  [2]*fold.EpochHeader
}

// CompareRuns compares two recordings turn by turn.
func CompareRuns(a, b *Run) *RunsDiff {
	x := &runner{a: a, b: b, ids: newBijection(), heads: make(map[[2]*fold.EpochHeader]bool)}
	d := &RunsDiff{A: a.History, B: b.History, Cwd: len(a.vol.cwds) > 0 && len(b.vol.cwds) > 0}
	if a.History.SessionID != "" && b.History.SessionID != "" {
		x.ids.match(a.History.SessionID, b.History.SessionID)
	}
	if a.History.Parent != "" && b.History.Parent != "" {
		x.ids.match(a.History.Parent, b.History.Parent)
	}
	prompts := func(r *Run) (out []string) {
		for _, t := range r.turns {
			var b strings.Builder
			for _, m := range t.messages {
				if m.note.kind == CausePrompt {
					b.WriteString(m.skeleton)
					b.WriteByte('\n')
				}
			}
			out = append(out, b.String())
		}
		return out
	}
	i, j := 0, 0
	runs, _ := sequence(prompts(a), prompts(b))
	for k := 0; k < len(runs); {
		if runs[k].op == Keep {
			for range runs[k].n {
				d.Turns = append(d.Turns, x.turn(a.turns[i], b.turns[j]))
				i++
				j++
			}
			k++
			continue
		}
		drops, adds := 0, 0
		for ; k < len(runs) && runs[k].op != Keep; k++ {
			if runs[k].op == Drop {
				drops += runs[k].n
			} else {
				adds += runs[k].n
			}
		}
		for ; drops > 0 && adds > 0; drops, adds = drops-1, adds-1 {
			d.Turns = append(d.Turns, x.turn(a.turns[i], b.turns[j]))
			i++
			j++
		}
		for ; drops > 0; drops-- {
			d.Turns = append(d.Turns, x.turn(a.turns[i], nil))
			i++
		}
		for ; adds > 0; adds-- {
			d.Turns = append(d.Turns, x.turn(nil, b.turns[j]))
			j++
		}
	}
	d.IDs = len(x.ids.to)
	return d
}

func (x *runner) turn(a, b *runTurn) TurnDiff {
	t := TurnDiff{A: -1, B: -1}
	none := &runTurn{}
	if a != nil {
		t.A = a.turn
	} else {
		a = none
	}
	if b != nil {
		t.B = b.turn
	} else {
		b = none
	}
	x.messages(&t, a.messages, b.messages)
	x.requests(&t, a.requests, b.requests)
	ea, eb := x.show(x.a, a.end), x.show(x.b, b.end)
	if (a.end == nil) != (b.end == nil) || !bytes.Equal(ea, eb) {
		t.End = &Change{Name: "turn/end", A: ea, B: eb}
	}
	return t
}

// show rewrites a value so that it can be compared by its bytes.
func (x *runner) show(r *Run, value []byte) []byte {
	if value == nil {
		return nil
	}
	return r.vol.rewrite(value, func(k volatileKind, s string) string {
		switch {
		case k != volatileID:
			return volatileNames[k]
		case r == x.b:
			if a, ok := x.ids.from[s]; ok {
				return a
			}
		}
		return s
	})
}

func (x *runner) messages(t *TurnDiff, a, b []runMessage) {
	skeletons := func(list []runMessage) []string {
		out := make([]string, len(list))
		for i := range list {
			out[i] = list[i].skeleton
		}
		return out
	}
	ref := func(m *runMessage) *EventRef { return &m.note.EventRef }
	edited := func(ma, mb *runMessage) {
		x.pairIDs(ma.raw, mb.raw, nil, 0)
		va, vb := x.show(x.a, ma.raw), x.show(x.b, mb.raw)
		c := RunChange{EventA: ref(ma), EventB: ref(mb)}
		c.MessageChange = changedMessage(Edited, [][]byte{va}, [][]byte{vb}, 0, 0)
		c.Cause = noteCause(mb.note, "b")
		if c.At == nil && replaces(ma.note) == replaces(mb.note) {
			t.Kept++
			return
		}
		t.Messages = append(t.Messages, c)
	}
	i, j := 0, 0
	runs, _ := sequence(skeletons(a), skeletons(b))
	for k := 0; k < len(runs); {
		if runs[k].op == Keep {
			for range runs[k].n {
				if x.agree(a[i].values, b[j].values) {
					t.Kept++
				} else {
					edited(&a[i], &b[j])
				}
				i++
				j++
			}
			k++
			continue
		}
		drops, adds := 0, 0
		for ; k < len(runs) && runs[k].op != Keep; k++ {
			if runs[k].op == Drop {
				drops += runs[k].n
			} else {
				adds += runs[k].n
			}
		}
		// Events of one type in one gap are one event that came out otherwise.
		i1, j1 := i+drops, j+adds
		for ; i < i1; i++ {
			p := j
			for p < j1 && b[p].note.Type != a[i].note.Type {
				p++
			}
			if p == j1 {
				t.Messages = append(t.Messages, RunChange{EventA: ref(&a[i]), MessageChange: MessageChange{Kind: Dropped, A: 0, B: -1,
					Old: x.show(x.a, a[i].raw), Cause: noteCause(a[i].note, "a")}})
				continue
			}
			for ; j < p; j++ {
				x.added(t, &b[j])
			}
			edited(&a[i], &b[j])
			j++
		}
		for ; j < j1; j++ {
			x.added(t, &b[j])
		}
	}
}

func (x *runner) added(t *TurnDiff, m *runMessage) {
	t.Messages = append(t.Messages, RunChange{EventB: &m.note.EventRef, MessageChange: MessageChange{Kind: Inserted, A: -1, B: 0,
		New: x.show(x.b, m.raw), Cause: noteCause(m.note, "b")}})
}

func replaces(n *note) int {
	if n.op == nil {
		return 0
	}
	return len(n.op.ShadowedSeqs)
}

func noteCause(n *note, log string) *Cause {
	return &Cause{Kind: n.kind, Reason: n.detail, Event: &n.EventRef, With: n.with, Sources: n.sources, Replaced: n.op, Log: log}
}

// agree matches the volatile values of two messages that are otherwise equal.
func (x *runner) agree(a, b []volatileValue) bool {
	ok := len(a) == len(b)
	for i := 0; ok && i < len(a); i++ {
		ok = a[i].kind == b[i].kind && (a[i].kind != volatileID || x.ids.match(a[i].value, b[i].value))
	}
	return ok
}

// pairIDs matches the ids that stand at the same places of two values.
func (x *runner) pairIDs(a, b, key []byte, depth int) {
	ka, kb := jsjson.KindOf(a), jsjson.KindOf(b)
	if depth > maxDepth || ka != kb {
		return
	}
	switch ka {
	case jsjson.Object:
		for k, v := range jsjson.Members(a) {
			name, _ := jsjson.Str(k)
			if w := jsjson.Get(b, name); w != nil {
				x.pairIDs(v, w, k, depth+1)
			}
		}
	case jsjson.Array:
		i := 0
		for v := range jsjson.Elements(a) {
			if w := jsjson.Index(b, i); w != nil {
				x.pairIDs(v, w, key, depth+1)
			}
			i++
		}
	case jsjson.String:
		if key != nil && idKey(key) {
			sa, _ := jsjson.Str(a)
			sb, _ := jsjson.Str(b)
			if _, taken := x.ids.to[sa]; !taken {
				if _, taken := x.ids.from[sb]; !taken && !strings.HasPrefix(sa, "sha256:") {
					x.ids.match(sa, sb)
				}
			}
		}
	}
}

func (x *runner) requests(t *TurnDiff, a, b []runRequest) {
	outcome := func(q runRequest) []byte { return jsjson.AppendQuote(nil, q.outcome) }
	for i := range max(len(a), len(b)) {
		switch {
		case i >= len(a):
			t.Requests = append(t.Requests, Change{Name: b[i].name, B: outcome(b[i])})
		case i >= len(b):
			t.Requests = append(t.Requests, Change{Name: a[i].name, A: outcome(a[i])})
		default:
			if oa, ob := outcome(a[i]), outcome(b[i]); !bytes.Equal(oa, ob) {
				t.Requests = append(t.Requests, Change{Name: a[i].name, A: oa, B: ob})
			}
			x.header(t, a[i].name, b[i].name, a[i].header, b[i].header)
		}
	}
}

// header compares two headers, unless the pair was told before.
func (x *runner) header(t *TurnDiff, na, nb string, a, b *fold.EpochHeader) {
	pair := [2]*fold.EpochHeader{a, b}
	if x.heads[pair] {
		return
	}
	x.heads[pair] = true
	ba, bb := x.headerBody(x.a, a), x.headerBody(x.b, b)
	d := Compare(ba, bb, 0)
	same := d.HeaderEqual() && len(d.Messages.Changes) == 0 && !d.KeyOrder && len(d.Defaults) == 0
	// What differed at the request before and differs in the same way is told.
	if !same && !x.repeats(pair) {
		t.Headers = append(t.Headers, RunHeader{na, nb, d})
	}
	x.last = pair
}

// repeats reports whether the headers of the last pair that was compared differ
// in the same way: neither side changed.
func (x *runner) repeats(pair [2]*fold.EpochHeader) bool {
	return x.last[0] != nil && x.last[1] != nil && pair[0] != nil && pair[1] != nil &&
		fold.HeaderEquals(x.last[0], pair[0]) && fold.HeaderEquals(x.last[1], pair[1])
}

// headerBody makes a body of a header that can be compared across recordings.
func (x *runner) headerBody(r *Run, h *fold.EpochHeader) *Body {
	b := &Body{}
	if h != nil {
		for k, v := range jsjson.Members(x.show(r, h.Config)) {
			name, _ := jsjson.Str(k)
			b.Config = append(b.Config, Member{name, v})
		}
		b.Defaults = h.AdapterDefaults
		b.System = x.show(r, h.System)
		if h.Tools != nil {
			b.HasTools = true
			for v := range jsjson.Elements(x.show(r, h.Tools)) {
				b.Tools = append(b.Tools, v)
			}
		}
		for v := range jsjson.Elements(x.show(r, h.MessagePrefix)) {
			b.Messages = append(b.Messages, v)
		}
	}
	return b
}
