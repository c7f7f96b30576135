package invariants

import (
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

var compactionTypes = []string{
	"compact/start", "compact/summary", "compact/end", "compaction/start", "compaction/summary", "compaction/end",
	"turn/start", "turn/end", "session/end-seed",
}

// Rules about compactions.
var compactionRules = []*Rule{
	{
		ID: "CMP-PAIR", Severity: Error, Since: buildCompanions, Spec: "SEMANTICS §8.2, §11.1",
		Title:  "a compaction starts, is summed up once, and ends",
		Text:   "At most one compaction is open. Its summary and its end follow its start, there is one summary, an end without an error has one, and the end names the same owner as the start.",
		How:    "An event of the compaction was lost or edited, or two processes compacted at once.",
		Advice: "Look at the replacement that the compaction made: what it hid from the model may not be what its summary says.",
		Types:  compactionTypes,
		New:    func() Checker { return new(pairChecker) },
	},
	{
		ID: "CMP-OWNER", Severity: Error, Since: buildCompanions, Spec: "SEMANTICS §8.2, §11.2",
		Title:  "a compaction belongs to the open turn, or to none",
		Text:   "A compaction that names a turn runs inside that turn; one that names none runs between turns, from 07-31. No turn starts or ends while it is open.",
		How:    "The event was edited or moved, or two processes share the log.",
		Advice: "Compare the turn in the event with the turn around it.",
		Types:  compactionTypes,
		New:    func() Checker { return new(ownerChecker) },
	},
}

// bracket is an open compaction.
type bracket struct {
	open      bool
	known     bool   // its start was seen and made sense
	owner     []byte // turn of its start, canonical JSON
	id        []byte // its compactionId, likewise; nil when it has none
	summaries int
	at        Place
}

// stage is the part of a compaction that an event is: start, summary or end.
func stage(typ string) string {
	if i := strings.LastIndexByte(typ, '/'); i > 0 && (typ[:i] == "compact" || typ[:i] == "compaction") {
		return typ[i+1:]
	}
	return ""
}

// abandoned reports whether an event means that an open compaction was given
// up: a resumed process does not continue that of the one before.
func abandoned(e *logfmt.Event) bool {
	return e.Type == "session/end-seed" ||
		e.Type == "turn/end" && jsjson.StrEq(jsjson.Get(jsjson.Get(e.Data, "reason"), "kind"), "interrupted")
}

// abandoned is the same for the generation of the log: from 2 on only
// session/end-seed gives a compaction up (FORMATS §7.4 P3).
func (c *Context) abandoned(e *logfmt.Event) bool {
	return abandoned(e) && (e.Type == "session/end-seed" || c.gen == nil || !c.gen.loose)
}

func sameOwner(a, b []byte) bool { return string(a) == string(b) }

type pairChecker struct {
	b     bracket
	old   stale
	lost  int64 // losses that were taken into account
	blind bool  // events were lost since the last event of a compaction
}

func (p *pairChecker) Event(c *Context, e *logfmt.Event) {
	owner := jsjson.Get(e.Data, "turn")
	if c.unsettled(&p.lost) {
		p.blind, p.b.known = true, false
	}
	part := stage(e.Type)
	blind := p.blind
	if part != "" {
		p.blind = false
	}
	if !p.b.open && (part == "summary" || part == "end") && p.old.goesOn(e) {
		return // said of session/end-seed
	}
	switch part {
	case "start":
		if p.old.id == nil {
			p.old = stale{}
		}
		if p.b.open && !blind {
			f := c.Report(e, "", "%s while a compaction is open, expected its end first", e.Type)
			f.Related = append(f.Related, Related{p.b.at.Seq, p.b.at.Pos.Line, "the open compaction starts here"})
		}
		p.b = bracket{open: true, known: true, owner: clone(owner), id: clone(jsjson.Get(e.Data, "compactionId")), at: c.place(e)}
		if owner == nil || wantOwner(owner) != "" || !ownerFits(c, owner) {
			p.b.owner = nil // said elsewhere, and nothing to compare the end with
		}
	case "summary":
		switch {
		case !p.b.open && !blind:
			c.Report(e, "", "%s without an open compaction, expected %s before it", e.Type, e.Type[:strings.IndexByte(e.Type, '/')]+"/start")
		case p.b.open && p.b.summaries > 0 && !blind:
			c.Report(e, "", "%s is the second of its compaction, expected one", e.Type)
		}
		p.b.open = true
		p.b.summaries++
	case "end":
		switch {
		case blind:
		case !p.b.open:
			c.Report(e, "", "%s without an open compaction, expected %s before it", e.Type, e.Type[:strings.IndexByte(e.Type, '/')]+"/start")
		case p.b.summaries == 0 && jsjson.Get(e.Data, "error") == nil && p.b.known:
			c.Report(e, "", "%s without an error ends a compaction that has no summary", e.Type)
		case p.b.known && p.b.owner != nil && !sameOwner(p.b.owner, owner):
			f := c.Report(e, "data.turn", "%s names turn %s, expected that of its start, %s", e.Type, show(owner), show(p.b.owner))
			f.Related = append(f.Related, Related{p.b.at.Seq, p.b.at.Pos.Line, "the compaction starts here"})
		}
		p.b = bracket{}
	default:
		if e.Type == "session/end-seed" && p.b.open {
			p.old.take(&p.b)
		}
		if c.abandoned(e) {
			p.b, p.blind = bracket{}, false
		}
	}
}

func (p *pairChecker) End(*Context) {}

// ownerFits reports whether the owner of a compaction is the open turn, or none
// when no turn is open.
func ownerFits(c *Context, owner []byte) bool {
	if !c.Turn.Known {
		return true
	}
	n, ok := jsjson.SafeInt(owner)
	if !ok {
		return !c.Turn.Open
	}
	return c.Turn.names(n)
}

// unsettled reports whether events were lost since the caller last asked.
func (c *Context) unsettled(mark *int64) bool {
	was := *mark
	*mark = c.losses
	return was != c.losses
}

type ownerChecker struct {
	b    bracket
	lost int64
}

func (o *ownerChecker) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&o.lost) {
		o.b = bracket{}
	}
	owner := jsjson.Get(e.Data, "turn")
	switch stage(e.Type) {
	case "start":
		o.b = bracket{open: true, at: c.place(e)}
		if owner == nil || wantOwner(owner) != "" || ownerFits(c, owner) {
			break
		}
		if n, ok := jsjson.SafeInt(owner); ok {
			if c.Turn.Open {
				c.Report(e, "data.turn", "%s names turn %d, expected the open turn %s", e.Type, n, number(c.Turn.N))
			} else {
				c.Report(e, "data.turn", "%s names turn %d, but no turn is open; expected null", e.Type, n)
			}
			break
		}
		c.Report(e, "data.turn", "%s names no turn, expected the open turn %s", e.Type, number(c.Turn.N))
	case "end":
		o.b = bracket{}
	case "":
		if abandoned(e) {
			o.b = bracket{}
			break
		}
		if o.b.open && (e.Type == "turn/start" || e.Type == "turn/end") {
			f := c.Report(e, "", "%s while a compaction is open, expected its end first", e.Type)
			f.Related = append(f.Related, Related{o.b.at.Seq, o.b.at.Pos.Line, "the open compaction starts here"})
			o.b = bracket{}
		}
	}
}

func (o *ownerChecker) End(*Context) {}
