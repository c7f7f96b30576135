package invariants

import (
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about turns, steps and what belongs into them.
var turnRules = []*Rule{
	{
		ID: "TURN-OPEN", Severity: Error, Spec: "SEMANTICS §8.1",
		Title:  "a turn starts when none is open, with the next number",
		Text:   "Turns are numbered from 1 and never nest. Where a turn begins decides what one request may see and what a fork may cut.",
		How:    "Two processes wrote into one log, events were lost without trace in seq, or the log was edited.",
		Advice: "Look at the events before this one: the end of a turn is missing, or a start was repeated.",
		Types:  []string{"turn/start"},
		New:    stateless(checkTurnOpen),
	},
	{
		ID: "TURN-CLOSE", Severity: Error, Spec: "SEMANTICS §8.1",
		Title:  "a turn ends under its own number, with no step open",
		Text:   "turn/end names the open turn, after its last step has ended.",
		How:    "Two processes wrote into one log, or the log was edited.",
		Advice: "Look for the missing step/end or turn/start before this event.",
		Types:  []string{"turn/end"},
		New:    stateless(checkTurnClose),
	},
	{
		ID: "TURN-ENCLOSE", Severity: Error, Spec: "SEMANTICS §8.1",
		Title:  "events that belong to a turn are inside one",
		Text:   "Until 07-28 everything happened inside a turn; since then the header, the context and the todo list of a request still do. Outside of any turn such an event belongs to nothing that was ever sent. From generation 2 on it is request/header, request/context and calls from code; whether todo/write has to stand in a turn is not known there.",
		How:    "The event was inserted or moved, or the start of its turn is missing.",
		Advice: "Look for the turn/start that is missing before it, or the turn/end that came too early. A copy of the session shows which.",
		New:    stateless(checkEnclosed),
	},
	{
		ID: "STEP-OPEN", Severity: Error, Spec: "SEMANTICS §8.1",
		Title:  "a step starts inside its turn when none is open, with the next number",
		Text:   "Steps are numbered from 1 within their turn and never nest. Each step owns at least one attempt at a request.",
		How:    "Two processes wrote into one log, events were lost without trace in seq, or the log was edited.",
		Advice: "Look at the events before this one: the end of a step is missing, or a start was repeated.",
		Types:  []string{"step/start"},
		New:    stateless(checkStepOpen),
	},
	{
		ID: "STEP-CLOSE", Severity: Error, Spec: "SEMANTICS §8.1",
		Title:  "a step ends under its own turn and number",
		Text:   "step/end names the open turn and step. Calls without a result are given up there.",
		How:    "The end was written twice, or its start is missing.",
		Advice: "Look for the missing step/start, or for a second writer.",
		Types:  []string{"step/end"},
		New:    stateless(checkStepClose),
	},
	{
		ID: "STEP-SCOPE", Severity: Error, Spec: "SEMANTICS §8.1",
		Title:  "chunks, answers, calls and results name the open turn and step",
		Text:   "What a step produced is logged inside it and says so. An event that names another step cannot be put into any request with certainty.",
		How:    "The event was edited or moved, or it comes from a second process on the same log.",
		Advice: "Look which step the event names. If that step is in the log, the event was moved here; if not, another process wrote it. A copy of the session shows which.",
		Types:  []string{"assistant/chunk", "assistant/message", "tool/call", "tool/result"},
		New:    stateless(checkScope),
	},
	{
		ID: "CALL-PAIR", Severity: Error, Spec: "SEMANTICS §8.1, §8.5",
		Title:  "a tool result answers a call of its step",
		Text:   "A result that is appended has a tool/call with the same id before it in the same step, and no other result in between. Only crash repair answers calls that were never started, and marks them so. Providers reject a history whose results do not match its calls.",
		How:    "The call was lost or edited, the result was written twice, or two processes share the log.",
		Advice: "Look for the tool/call with that id. If the result is a copy, the first one counts.",
		Types:  []string{"tool/result"},
		New:    stateless(checkCallPair),
	},
	{
		ID: "RESULT-REWRITE-TURN", Severity: Error, Since: buildFailure, Spec: "SEMANTICS §8.1, §11.4",
		Title:  "a tool result is rewritten only inside a turn",
		Text:   "Pruning replaces a tool result by a shorter one while a turn is open. Outside of a turn nothing of the harness does that.",
		How:    "The event was moved or written by another program.",
		Advice: "Compare with a copy of the session; the earlier result is still in the log.",
		Types:  []string{"tool/result"},
		New:    stateless(checkRewriteTurn),
	},
	{
		ID: "ASST-ONE", Severity: Warning, Spec: "SEMANTICS §6.4, §8.1",
		Title:  "a step has one answer, and a failed attempt none",
		Text:   "The model answers a step once. The chunks of an attempt that failed stay in the log without a message.",
		How:    "A message was written twice, or a plugin appended one of its own.",
		Advice: "Look at the chunks each message cites: one of them has none of its own.",
		Types:  []string{"assistant/message"},
		New:    stateless(checkOneAnswer),
	},
}

// numbers gives turn and step of an event; ok is false when its shape is
// already wrong.
func (c *Context) numbers() (turn, step int64, ok bool) {
	return c.turn, c.step, c.turn > 0 && c.step > 0
}

// since points from a finding to the start of the bracket it is about.
func since(f *Finding, b *Bracket, what string) {
	if b.At.Seq >= 0 && b.Open {
		f.Related = append(f.Related, Related{b.At.Seq, b.At.Pos.Line, what})
	}
}

func checkTurnOpen(c *Context, e *logfmt.Event) {
	n := c.turn
	if n < 0 || !c.Turn.Known {
		return
	}
	if c.Turn.Open {
		f := c.Report(e, "", "turn %d starts while turn %s is open, expected turn/end first", n, number(c.Turn.N))
		since(f, &c.Turn, "the open turn starts here")
		return
	}
	if !c.Turn.next(n) {
		c.Report(e, "data.turn", "turn %d starts after turn %d, expected turn %d", n, c.Turn.Last, c.Turn.Last+1)
	}
}

func checkTurnClose(c *Context, e *logfmt.Event) {
	n := c.turn
	if n < 0 || !c.Turn.Known {
		return
	}
	switch {
	case !c.Turn.Open:
		c.Report(e, "", "turn %d ends, but no turn is open", n)
	case !c.Turn.names(n):
		f := c.Report(e, "data.turn", "turn/end names turn %d, expected the open turn %s", n, number(c.Turn.N))
		since(f, &c.Turn, "the open turn starts here")
	case c.Step.Known && c.Step.Open:
		f := c.Report(e, "", "turn %d ends while its step %s is open, expected step/end first", n, number(c.Step.N))
		since(f, &c.Step, "the open step starts here")
	}
}

func checkStepOpen(c *Context, e *logfmt.Event) {
	turn, step, ok := c.numbers()
	if !ok || !c.Turn.Known {
		return
	}
	switch {
	case !c.Turn.Open:
		c.Report(e, "", "step %d of turn %d starts, but no turn is open", step, turn)
	case !c.Turn.names(turn):
		f := c.Report(e, "data.turn", "step/start names turn %d, expected the open turn %s", turn, number(c.Turn.N))
		since(f, &c.Turn, "the open turn starts here")
	case !c.Step.Known:
	case c.Step.Open:
		f := c.Report(e, "", "step %d starts while step %s is open, expected step/end first", step, number(c.Step.N))
		since(f, &c.Step, "the open step starts here")
	case !c.Step.next(step):
		c.Report(e, "data.step", "step %d starts after step %d of turn %d, expected step %d", step, c.Step.Last, turn, c.Step.Last+1)
	}
}

func checkStepClose(c *Context, e *logfmt.Event) {
	turn, step, ok := c.numbers()
	if !ok || !c.Turn.Known || !c.Step.Known {
		return
	}
	switch {
	case !c.Step.Open:
		c.Report(e, "", "step %d of turn %d ends, but no step is open", step, turn)
	case !c.Turn.names(turn) || !c.Step.names(step):
		f := c.Report(e, "data.step", "step/end names turn %d step %d, expected the open turn %s step %s", turn, step, number(c.Turn.N), number(c.Step.N))
		since(f, &c.Step, "the open step starts here")
	}
}

func checkScope(c *Context, e *logfmt.Event) {
	if e.Type == "tool/result" && isReplace(e) {
		return
	}
	if !c.Turn.Known || !c.Step.Known {
		return
	}
	turn, step, ok := c.numbers()
	if !ok {
		return
	}
	switch {
	case !c.Turn.Open:
		c.Report(e, "", "%s of turn %d step %d stands outside any turn", e.Type, turn, step)
	case !c.Step.Open:
		c.Report(e, "", "%s of turn %d step %d stands outside any step", e.Type, turn, step)
	case !c.Turn.names(turn) || !c.Step.names(step):
		path := "data.step"
		if !c.Turn.names(turn) {
			path = "data.turn"
		}
		f := c.Report(e, path, "%s names turn %d step %d, expected the open turn %s step %s", e.Type, turn, step, number(c.Turn.N), number(c.Step.N))
		since(f, &c.Step, "the open step starts here")
	}
}

func checkEnclosed(c *Context, e *logfmt.Event) {
	if !c.Turn.Known || c.Turn.Open || e.Fault&logfmt.FaultType != 0 {
		return
	}
	switch e.Type {
	case "turn/start", "turn/end", "step/start", "step/end", "assistant/chunk", "assistant/message", "tool/call":
		return // have rules of their own
	case "tool/result":
		return
	case "todo/write", "request/header":
	case "request/context":
	case "steering/message":
		if c.Builds.Max >= buildReact {
			return
		}
	case "user/message":
		// The earliest logs put it before its turn; later it could stand alone.
		if c.Builds.Min < eraStart[1] || c.Builds.Max >= buildEffort {
			return
		}
	default:
		if c.Builds.Max >= buildMessages {
			return
		}
	}
	c.Report(e, "", "%s stands outside any turn, expected turn/start before it", typeName(e))
}

func checkCallPair(c *Context, e *logfmt.Event) {
	if isReplace(e) || !c.Turn.Known || !c.Step.Known || !c.Step.Open {
		return // outside a step the scope is what is wrong
	}
	turn, step, ok := c.numbers()
	if ok && (!c.Turn.names(turn) || !c.Step.names(step)) {
		return
	}
	id, ok := c.resultCall(e)
	if !ok {
		return
	}
	if _, pending := c.Calls[id]; pending || synthetic(c, e) || c.CallsLost {
		return
	}
	c.Report(e, "", "tool/result answers call %s, expected a tool/call with that id before it in step %s and no other result", quoted(id), number(c.Step.N))
}

// synthetic reports whether crash repair wrote the result for a call that never
// started (SEMANTICS §8.5).
func synthetic(c *Context, e *logfmt.Event) bool {
	code := jsjson.Get(jsjson.Get(e.Data, "error"), "code")
	switch {
	case jsjson.StrEq(code, "interrupted"):
		return c.Builds.Min < buildNotStarted
	case jsjson.StrEq(code, "TOOL_NOT_STARTED"):
		isError := jsjson.Get(e.Data, "isError")
		if m := c.message(); m != nil {
			isError = jsjson.Get(jsjson.Index(jsjson.Get(m, "content"), 0), "isError")
		}
		return string(isError) == "true"
	}
	return false
}

func checkRewriteTurn(c *Context, e *logfmt.Event) {
	if isReplace(e) && c.Turn.Known && !c.Turn.Open {
		c.Report(e, "", "tool/result replaces an earlier one outside any turn, expected an open turn")
	}
}

func checkOneAnswer(c *Context, e *logfmt.Event) {
	if isReplace(e) || !c.Turn.Known || !c.Step.Known || !c.Step.Open {
		return
	}
	if c.Asked > 0 {
		c.Report(e, "", "step %s has a second assistant/message, expected one", number(c.Step.N))
		return
	}
	if string(e.Sources) == "[]" {
		return // the stream of an attempt of its own, known to have been empty
	}
	if a := c.Attempt; (a.Finish == "error" || a.Finish == "aborted") && jsjson.Get(e.Data, "interrupted") == nil {
		c.Report(e, "", "assistant/message follows an attempt that ended with %s, expected no message for it", a.Finish)
	}
}
