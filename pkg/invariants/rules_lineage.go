package invariants

import (
	"bytes"
	"fmt"
	"iter"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/pkg/load"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about sessions that began as a copy of another one. Those that need the
// parent's log are silent when it is not at hand; see Options.Parent.
var lineageRules = []*Rule{
	{
		ID: "FORK-PREFIX", Severity: Error, Spec: "SEMANTICS §10.2, §10.4",
		Title:  "the inherited events are those of the parent",
		Text:   "The first seedLength events of a child are copies of its parent's, with every seq, time and id. They are the same JSON values, but for events of older dialects, which the harness upgrades when it loads the parent. Two records of one history that disagree mean that one of them was changed.",
		How:    "One of the two logs was edited or damaged after the fork, or the log given as the parent is another session.",
		Advice: "Compare the events at the seq named. The log whose neighbours cite what it says is the likelier one.",
	},
	{
		ID: "FORK-CUT", Severity: Error, Spec: "SEMANTICS §10.2, §10.4",
		Title:  "the inherited events end outside a turn",
		Text:   "A session is forked behind a turn/end; since 07-28 anywhere outside an open turn. A child that inherits half a turn begins with a step that nobody will finish.",
		How:    "seedLength or the events below it were edited.",
		Advice: "Look for the last turn/end below the length named. Which requests count as the child's own depends on it.",
	},
	{
		ID: "FORK-LEN", Severity: Warning, Since: buildSeedLength, Spec: "SEMANTICS §10.1, §10.4",
		Title:  "seedLength counts events that are there",
		Text:   "seedLength says how many leading events came from the parent. The child has at least as many, and so has the parent.",
		How:    "The header was edited, or one of the logs lost its end.",
		Advice: "Compare with the other log. Without the right length, inherited requests count as own ones or the other way round.",
	},
	{
		ID: "FORK-DEPTH", Severity: Warning, Since: buildDepth, Spec: "SEMANTICS §10.1, §10.4",
		Title:  "delegationDepth fits the lineage",
		Text:   "A session that a user started has depth 0, a subagent one more than its parent, and a fork that of its parent.",
		How:    "The header was edited, or the parent is not the one it names.",
		Advice: "Nothing is rebuilt from it; it limits how deep subagents may nest.",
	},
	{
		ID: "FORK-SEED", Severity: Warning, Since: buildEndSeed, Spec: "SEMANTICS §10.3",
		Title:  "the first event of a fork's own is session/end-seed",
		Text:   "From 07-30 a child logs session/end-seed right behind what it inherited, unless that already ends with one. It tells the child's own events from the parent's.",
		How:    "seedLength or the event was edited, or an event was inserted at the border.",
		Advice: "Find the session/end-seed next to the length named: one of the two is right.",
	},
}

// Lineage is what is known about where a log's first events came from.
type Lineage struct {
	Parent    string // id in the header; "" when none
	Inherited int64  // events below seedLength
	Own       int64  // the others; both are 0 in a session without a parent
	Compared  int64  // inherited events that were held against the parent's
	Upgraded  int64  // of these, equal only after the upgrade of an older dialect
	Missing   bool   // there is an inherited part, and its parent was not at hand
}

// lineage holds the inherited part of a log against the parent's log, which is
// read beside it.
type lineage struct {
	Lineage
	parent *logfmt.Log
	next   func() (*logfmt.Event, *logfmt.Defect, bool)
	stop   func()
	loader *load.Loader
	at     *logfmt.Event // the parent's event at hand; nil before the first and after the last
	up     *logfmt.Event // the same as the newest harness upgrades it
	ended  bool
	length int64 // events of the parent so far
	wrong  *Finding
	last   string // type of the last inherited event seen
	cut    bool   // the border was passed
	judged bool
}

var lineageIDs = []string{"FORK-PREFIX", "FORK-CUT", "FORK-LEN", "FORK-DEPTH", "FORK-SEED"}

// open looks for the parent once the header record is known.
func (l *lineage) open(c *Context) {
	h := c.log.Header
	if h == nil || c.opts.AsLoaded || c.gen != nil && !c.gen.shares("FORK-PREFIX") {
		return // as loaded, older events are no longer those that were copied
	}
	l.judged = h.ParentSession != nil || h.Seed() > 0
	if h.ParentSession != nil {
		l.Parent = *h.ParentSession
	}
	wanted := false
	for _, id := range lineageIDs {
		wanted = wanted || c.runs(id)
	}
	if wanted && l.Parent != "" && c.opts.Parent != nil {
		if p := c.opts.Parent(l.Parent); p != nil {
			if p.Header != nil && p.Header.ID == l.Parent {
				l.parent = p
			} else {
				p.Close()
			}
		}
	}
	l.depth(c)
	if h.Seed() == 0 {
		return
	}
	if l.parent == nil {
		l.Missing = true
		return
	}
	l.next, l.stop = iter.Pull2(l.parent.Events())
	l.loader = load.New(l.parent.Header, load.Options{})
}

func (l *lineage) close() {
	if l.stop != nil {
		l.stop()
	}
	if l.parent != nil {
		l.parent.Close()
	}
}

// depth compares the depths in the headers.
func (l *lineage) depth(c *Context) {
	h := c.log.Header
	if h.DelegationDepth == nil {
		return
	}
	n := *h.DelegationDepth
	tell := func(format string, args ...any) {
		c.tellHeader("FORK-DEPTH", "delegationDepth", format, args...)
	}
	subagent := h.Origin != nil && *h.Origin == "subagent"
	switch {
	case l.Parent == "":
		if n > 0 && !subagent {
			tell("delegationDepth is %d in a session without a parent, expected 0", n)
		}
	case l.parent == nil || l.parent.Header.DelegationDepth == nil:
		if subagent && n == 0 {
			tell("delegationDepth is 0 in the session of a subagent, expected at least 1")
		}
	default:
		up := *l.parent.Header.DelegationDepth
		switch {
		case subagent && n != up+1:
			tell("delegationDepth is %d in the session of a subagent, but the parent's is %d; expected %d", n, up, up+1)
		case n != up && n != up+1:
			tell("delegationDepth is %d, but the parent's is %d; expected %d for a fork and %d for a subagent", n, up, up, up+1)
		}
	}
}

// tellHeader reports about the header record, which no build dates.
func (c *Context) tellHeader(id, path, format string, args ...any) {
	if !c.runs(id) {
		return
	}
	c.rule = byID[id]
	c.ReportAt(Place{Pos: c.log.Header.Pos, Seq: -1, Turn: -1, Step: -1}, path, format, args...)
	c.rule = nil
}

// event takes the next event of the child, before the state takes it in.
func (l *lineage) event(c *Context, e *logfmt.Event) {
	if !l.judged {
		return
	}
	if !c.Inherited(e) {
		l.Own++
		if !l.cut {
			l.cut = true
			l.border(c, e)
		}
		return
	}
	l.Inherited++
	l.last = e.Type
	if l.next == nil {
		return
	}
	for !l.ended && (l.at == nil || l.at.Seq < e.Seq) {
		l.pull()
	}
	if l.at == nil || l.at.Seq != e.Seq {
		return // one that the parent lacks or that does not decode there; its length is compared in the end
	}
	l.Compared++
	if sameEvent(l.at, e) {
		return
	}
	if up := l.up; up != nil && up != l.at && (sameEvent(up, e) || keptSteering(l.at, up, e)) {
		l.Upgraded++
		return
	}
	if l.wrong != nil {
		l.wrong.More++
		return
	}
	path, is, want := eventDiff(e, l.at)
	l.wrong = c.tell("FORK-PREFIX", e, path, "inherited event %d differs from the parent's: %s is %s here and %s there", e.Seq, path, is, want)
	l.wrong.Related = append(l.wrong.Related, Related{l.at.Seq, 0, "line " + number(l.at.Pos.Line) + " of the parent's log"})
}

// pull takes the next event of the parent.
func (l *lineage) pull() {
	for {
		e, d, ok := l.next()
		if !ok {
			l.at, l.up, l.ended = nil, nil, true
			return
		}
		if d != nil {
			continue
		}
		l.at, l.up = e, l.loader.Add(e)
		if e.Seq >= 0 {
			l.length = max(l.length, e.Seq+1)
		}
		return
	}
}

// sameEvent compares two events as JSON values.
func sameEvent(a, b *logfmt.Event) bool {
	if bytes.Equal(a.JSON, b.JSON) {
		return true
	}
	return a.Type == b.Type && a.Seq == b.Seq && a.Time == b.Time && a.Ignorable == b.Ignorable &&
		sameValue(a.Data, b.Data) && sameValue(a.Op, b.Op) && sameValue(a.Sources, b.Sources)
}

// keptSteering compares a steering message as builds of 07-28 to 08-05 upgraded
// it: its message became an identified one, and its type stayed.
func keptSteering(p, up, e *logfmt.Event) bool {
	if p.Type != "steering/message" || e.Type != p.Type || jsjson.Get(p.Data, "message") != nil {
		return false
	}
	return sameValue(jsjson.Get(p.Data, "turn"), jsjson.Get(e.Data, "turn")) && sameValue(up.Data, jsjson.Get(e.Data, "message")) &&
		p.Time == e.Time && sameValue(p.Op, e.Op) && sameValue(p.Sources, e.Sources)
}

// eventDiff names the first member in which two events differ, and shows it.
func eventDiff(a, b *logfmt.Event) (path, is, want string) {
	switch {
	case a.Type != b.Type:
		return "type", quoted(a.Type), quoted(b.Type)
	case a.Time != b.Time:
		return "time", fmt.Sprint(a.Time), fmt.Sprint(b.Time)
	case !sameValue(a.Op, b.Op):
		return "surfaceOp", show(a.Op), show(b.Op)
	case !sameValue(a.Sources, b.Sources):
		return "sourceEventSeqs", excerpt(a.Sources, b.Sources), excerpt(b.Sources, a.Sources)
	case a.Ignorable != b.Ignorable:
		return "ignorable", fmt.Sprint(a.Ignorable), fmt.Sprint(b.Ignorable)
	}
	return valueDiff("data", a.Data, b.Data)
}

// valueDiff descends to the first value in which two JSON values differ.
func valueDiff(path string, a, b []byte) (at, is, want string) {
	for depth := 0; depth < 8; depth++ {
		next := ""
		var x, y []byte
		switch {
		case jsjson.KindOf(a) == jsjson.Object && jsjson.KindOf(b) == jsjson.Object:
			for _, o := range [...][]byte{a, b} {
				for k := range jsjson.Members(o) {
					key, _ := jsjson.Str(k)
					if x, y = jsjson.Get(a, key), jsjson.Get(b, key); next == "" && !sameValue(x, y) {
						next = "." + string(appendSafe(nil, key, 24))
						a, b = x, y
						break
					}
				}
				if next != "" {
					break
				}
			}
		case jsjson.KindOf(a) == jsjson.Array && jsjson.KindOf(b) == jsjson.Array && jsjson.Len(a) == jsjson.Len(b):
			pairwise(a, b, func(i int, v, w []byte) bool {
				if sameValue(v, w) {
					return true
				}
				next, x, y = "["+number(int64(i))+"]", v, w
				return false
			})
			if next != "" {
				a, b = x, y
			}
		}
		if next == "" {
			break
		}
		path += next
	}
	return path, excerpt(a, b), excerpt(b, a)
}

// border judges the place where the child's own events begin; e is nil when
// there are none.
func (l *lineage) border(c *Context, e *logfmt.Event) {
	seed := c.log.Header.Seed()
	if seed == 0 || c.losses > 0 || c.damaged != nil {
		return
	}
	p := c.last
	if e != nil {
		p = c.place(e)
		p.Turn, p.Step = -1, -1
	}
	switch {
	case !c.Turn.Known:
	case c.Turn.Open:
		f := c.tellAt("FORK-CUT", p, "", "what was inherited, %s, ends inside turn %s, expected it to end outside a turn", plural.Count(seed, "event"), number(c.Turn.N))
		since(f, &c.Turn, "the turn starts here")
	case c.Builds.Before(buildForkAnywhere) && l.last != "turn/end":
		c.tellAt("FORK-CUT", p, "", "what was inherited, %s, ends with %s, expected turn/end until %s", plural.Count(seed, "event"), quoted(l.last), buildForkAnywhere)
	}
	if e != nil && e.Seq == seed && e.Type != "session/end-seed" && l.last != "session/end-seed" {
		c.tellAt("FORK-SEED", p, "", "the first event of the fork's own is %s, expected session/end-seed at seq %d", typeName(e), seed)
	}
}

const buildForkAnywhere Build = 7_28_00_00 // within that day

// finish judges the lengths.
func (l *lineage) finish(c *Context) {
	h := c.log.Header
	seed := h.Seed()
	if seed == 0 || !l.judged {
		return
	}
	whole := c.log.Class() == logfmt.Intact
	if !l.cut && c.next == seed && whole {
		l.border(c, nil)
	}
	if c.next < seed && whole {
		c.tellHeader("FORK-LEN", "seedLength", "seedLength is %d, but the log has %s", seed, plural.Count(c.next, "event"))
	}
	if l.next == nil {
		return
	}
	for !l.ended && l.length < seed {
		l.pull()
	}
	if l.ended && l.length < seed {
		c.tellHeader("FORK-LEN", "seedLength", "seedLength is %d, but the parent's log has %s", seed, plural.Count(l.length, "event"))
	}
}
