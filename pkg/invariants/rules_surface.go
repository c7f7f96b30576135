package invariants

import (
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about the surface: one for each row of SEMANTICS §3.3 that concerns it.
// What an event breaks is found by the surface itself; the rules give it name,
// severity and the eras in which it counted.
var surfaceRules = []*Rule{
	{
		ID: "SURF-MARKER", Severity: Error, Spec: "SEMANTICS §3.2, §3.3",
		Title:  "a message event says what it does to the surface",
		Text:   "From 06-26 every event that puts a message before the model carries surfaceOp. Without it the message is in the log and not in any request. Only in logs that hold no marker at all, and nothing newer, are messages taken in order of the log.",
		How:    "The marker was lost when the event was edited or copied, or a plugin appended the event past the harness.",
		Advice: "Compare with a copy of the session. Until the marker is back, what the model saw is not what the log seems to say.",
		Types:  messageTypes,
		New:    func() Checker { return new(markerChecker) },
	},
	{
		ID: "SURF-ELIGIBLE", Severity: Error, Alone: true, Spec: "SEMANTICS §1.1, §3.3; PHYSICAL §6.6",
		Title:  "only message events touch the surface",
		Text:   "surfaceOp and sourceEventSeqs belong on events that put a message before the model, and on no others, not even on ignorable ones.",
		How:    "The event was edited, or a plugin marked an event of its own.",
		Advice: "Remove the marker from a copy and compare the requests; the harness refuses to load the session with it.",
		New:    stateless(checkEligible),
	},
	{
		ID: "SURF-OP", Severity: Error, Alone: true, Spec: "SEMANTICS §3.3; PHYSICAL §2.3",
		Title:  "surfaceOp is append or an exact replace",
		Text:   `surfaceOp is the string "append", or an object with exactly op "replace" and the seqs start and end. Anything else leaves open what the model saw.`,
		How:    "The event was edited, or written by a program other than the harness.",
		Advice: "Restore the marker from a copy of the session, which the harness refuses to load as it is. Here an event takes a place on the surface only if the marker still says which.",
		Types:  messageTypes,
		New:    stateless(checkOp),
	},
	{
		ID: "SURF-RANGE", Severity: Error, Spec: "SEMANTICS §3.1, §3.3",
		Title:  "a replace names two nodes of the surface, the first not after the last",
		Text:   "start and end are events that stand on the surface at that moment. They are compared by place and not by number: after an earlier replacement a larger seq may stand in front of a smaller one.",
		How:    "The event was edited, the events it replaces were lost, or they had been replaced before.",
		Advice: "Look at the surface before this event with dsh-replay surface --at. The replacement has no effect as it stands.",
		Types:  messageTypes,
		New:    stateless(checkRange),
	},
	{
		ID: "SURF-SOURCES", Severity: Error, Alone: true, Spec: "SEMANTICS §3.3; PHYSICAL §2.3",
		Title:  "sourceEventSeqs lists different, earlier events",
		Text:   "An event cites the events it was made from: as an array of distinct seqs, each smaller than its own.",
		How:    "The event was edited, or its citations were renumbered without it.",
		Advice: "Compare with a copy of the session. The request is rebuilt without the citations; only the proof of origin is lost.",
		Types:  messageTypes,
		New:    stateless(checkSources),
	},
	{
		ID: "SURF-EMPTY", Severity: Error, Alone: true, Spec: "SEMANTICS §3.3",
		Title:  "only an assistant message cites an empty stream",
		Text:   "An empty sourceEventSeqs means that the stream is known to have had no chunks, which only an assistant message can say. On other events the list is left out when nothing is cited.",
		How:    "The citations were stripped without removing the list.",
		Advice: "Restore the citations from a copy of the session, or remove the empty list: requests are the same with and without it.",
		Types:  messageTypes,
		New:    stateless(checkEmpty),
	},
	{
		ID: "SURF-SHADOW", Severity: Error, Spec: "SEMANTICS §3.3",
		Title:  "a replace cites every event it takes from the surface",
		Text:   "What a replacement hides from the model is among its sources, so that nothing disappears without a trace.",
		How:    "The citations were edited, or a plugin replaced more than it says.",
		Advice: "Look at the events that are not cited: they left the model's view here.",
		Types:  messageTypes,
		New:    stateless(checkShadow),
	},
	{
		ID: "SURF-REWRITE", Severity: Error, Since: buildRewrite, Spec: "SEMANTICS §3.3, §11.4",
		Title:  "a tool result replaces one tool result and changes only its content",
		Text:   "Pruning shortens the text of a result. Its id, call, step, error flag and everything else stay, whatever the order of keys.",
		How:    "The event was edited, or a plugin rewrote the history of calls.",
		Advice: "Compare the two results; the earlier one is still in the log.",
		Types:  []string{"tool/result"},
		New:    stateless(checkRewrite),
	},
}

var messageTypes = []string{"user/message", "assistant/message", "tool/result", "context/message", "steering/message"}

// markerChecker holds back until it is known how the surface is found. A log
// without any marker and without a trace of E2 has none by right.
type markerChecker struct {
	waiting []Place
	types   []string
	more    map[bool]int64 // beyond the limit, by whether they lie behind damage
}

func (m *markerChecker) Event(c *Context, e *logfmt.Event) {
	if e.Op != nil || !c.eligible(e.Type) {
		return
	}
	if c.mode() == fold.SurfaceMode {
		m.flush(c)
		m.report(c, c.place(e), e.Type)
		return
	}
	if len(m.waiting) > c.opts.MaxPerRule {
		if m.more == nil {
			m.more = map[bool]int64{}
		}
		m.more[e.AfterDamage]++
		return
	}
	m.waiting = append(m.waiting, c.place(e))
	m.types = append(m.types, e.Type)
}

func (m *markerChecker) report(c *Context, p Place, typ string) {
	c.ReportAt(p, "surfaceOp", "%s has no surfaceOp, expected \"append\" or a replace: the model never saw this message", typ)
}

func (m *markerChecker) flush(c *Context) {
	for i, p := range m.waiting {
		m.report(c, p, m.types[i])
	}
	for dropped, n := range m.more {
		c.found["SURF-MARKER"].omit(weight{severity: Error, dropped: dropped}, n)
	}
	m.waiting, m.types, m.more = nil, nil, nil
}

func (m *markerChecker) End(c *Context) {
	if c.mode() == fold.SurfaceMode {
		m.flush(c)
	}
}

// faults yields the faults of one kind that the event has.
func (c *Context) faults(kind fold.SurfaceFault) []*fold.SurfaceError {
	var out []*fold.SurfaceError
	for _, f := range c.Faults {
		if f.Fault == kind {
			out = append(out, f)
		}
	}
	return out
}

func checkEligible(c *Context, e *logfmt.Event) {
	if c.onSurface(e.Type) || e.Op == nil && e.Sources == nil || c.skipped(e) {
		return
	}
	switch {
	case e.Op != nil:
		c.Report(e, "surfaceOp", "%s carries surfaceOp %s, expected none: its type takes no place on the surface", typeName(e), show(e.Op))
	case e.Sources != nil:
		c.Report(e, "sourceEventSeqs", "%s carries sourceEventSeqs, expected none: its type takes no place on the surface", typeName(e))
	}
}

func checkOp(c *Context, e *logfmt.Event) {
	if len(c.faults(fold.FaultOpShape)) == 0 {
		return
	}
	g := c.log.Header.Format()
	f := c.Report(e, "surfaceOp", `surfaceOp is %s, expected "append" or {"op":"replace","%s":SEQ,"%s":SEQ}`, show(e.Op), g.First, g.Last)
	_, start := jsjson.SafeInt(jsjson.Get(e.Op, g.First))
	_, end := jsjson.SafeInt(jsjson.Get(e.Op, g.Last))
	if start && end && !c.Builds.Since(buildClosedEnv) {
		f.Severity = Warning // taken for a replace then
	}
}

func checkRange(c *Context, e *logfmt.Event) {
	faults := c.faults(fold.FaultRange)
	if len(faults) == 0 {
		return
	}
	g := c.log.Header.Format()
	start, _ := jsjson.SafeInt(jsjson.Get(e.Op, g.First))
	end, _ := jsjson.SafeInt(jsjson.Get(e.Op, g.Last))
	if c.Doubtful(start) || c.Doubtful(end) {
		return // nobody knows whether it stands there
	}
	f, path := faults[0], "surfaceOp."+g.First
	if f.Node == end && f.Node != start {
		path = "surfaceOp." + g.Last
	}
	c.Report(e, path, "%s; the surface is %s", f.Detail, seqList(c.Surface.Seqs(nil)))
}

func checkSources(c *Context, e *logfmt.Event) {
	for _, f := range c.faults(fold.FaultSources) {
		c.Report(e, "sourceEventSeqs", "%s: it is %s", f.Detail, show(e.Sources))
	}
}

func checkEmpty(c *Context, e *logfmt.Event) {
	if len(c.faults(fold.FaultEmpty)) > 0 {
		c.Report(e, "sourceEventSeqs", "sourceEventSeqs of %s is empty, expected at least one seq or no list", e.Type)
	}
}

func checkShadow(c *Context, e *logfmt.Event) {
	for _, s := range c.faults(fold.FaultShadow) {
		if s.Node < c.lossAt || c.Doubtful(s.Node) {
			continue
		}
		have := show(e.Sources)
		if e.Sources == nil {
			have = "absent"
		}
		f := c.Report(e, "sourceEventSeqs", "%s: sourceEventSeqs is %s", s.Detail, have)
		if !c.Builds.Since(eraStart[fold.E2]) {
			f.Severity = Warning // the branch builds before did not look
		}
	}
}

func checkRewrite(c *Context, e *logfmt.Event) {
	for _, f := range c.faults(fold.FaultRewrite) {
		c.Report(e, "", "%s", f.Detail)
	}
}
