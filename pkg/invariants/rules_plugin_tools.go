package invariants

import (
	"strconv"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about hooks, calls from code, approvals and the settings of a session.
var toolPluginRules = []*Rule{
	{
		ID: "HOOK-PAIR", Severity: Error, Since: 7_04_10_54, Spec: "SEMANTICS §8.2",
		Title:  "a hook result answers an invocation of its turn",
		Text:   "Hooks run inside the turn that they name. Point and handler are not empty, the dialect is claude-code or codex, a duration is not negative, and each result has an invocation with the same turn, point and handler before it that no other result has answered. Before 07-21 a breach is a warning. From generation 2 on only the dialect is looked at, as a warning: how hooks follow one another there is not known.",
		How:    "The invocation was lost, an event was edited or moved, or two processes share the log.",
		Advice: "Look for the hook/invoked of the same handler in the turn. A decision without invocation may have changed what the model saw.",
		Types:  []string{"hook/invoked", "hook/result", "turn/start", "turn/end"},
		New:    func() Checker { return new(hookChecker) },
	},
	{
		ID: "DISPATCH", Severity: Error, Since: 7_09_23_24, Spec: "SEMANTICS §8.2",
		Title:  "a call made from code hangs from the call that runs the code",
		Text:   "Such calls happen inside a turn. Their ids are not empty; from 08-09 a sub-call keeps its root, and its parent is that root or another sub-call of it. Before 07-21 a breach is a warning.",
		How:    "The event of the parent was lost, or an id was edited.",
		Advice: "Follow parentCallId up to the tool/call at the root: where it breaks off, an event is missing.",
		Types:  []string{"tool/code-dispatch", "tool/code-dispatch-start"},
		New:    func() Checker { return new(dispatchChecker) },
	},
	{
		ID: "APPR-PAIR", Severity: Error, Since: 7_11_22_17, Spec: "SEMANTICS §8.2, §1.2",
		Title:  "an approval is asked for once and decided after it was asked",
		Text:   "Questions and decisions stand inside a turn. A question names a tool; its id is not that of another question that is still open; a decision answers a question and is one of allowed-once, rejected, cancelled, unavailable. The policy is ask or never. Before 07-21 a breach is a warning. From generation 2 on only the outcome and the policy are looked at, as warnings: whether every decision has its question there is not known.",
		How:    "The question was lost, an event was edited, or two processes share the log.",
		Advice: "A decision without a question is no evidence that anybody was asked: compare with a copy of the session.",
		Types:  []string{"approval/asked", "approval/decided", "approval/policy"},
		New:    func() Checker { return new(approvalChecker) },
	},
	{
		ID: "TODO", Severity: Error, Since: buildTodo, Spec: "SEMANTICS §8.2",
		Title:  "the items of a todo list are distinct, and each has a known status",
		Text:   "The content of an item is not empty, has no blanks around it and occurs once; its status is pending, in_progress or completed. Before 07-21 a breach is a warning. From generation 2 on only the status is looked at, as a warning.",
		How:    "The event was edited, or written by a program other than the harness.",
		Advice: "Compare with the tool call that wrote the list.",
		Types:  []string{"todo/write"},
		New:    stateless(checkTodos),
	},
	{
		ID: "PLAN", Severity: Error, Since: 7_22_20_34, Spec: "SEMANTICS §8.2",
		Title:  "plan mode is on or off",
		Text:   "active is true or false, nothing else. From generation 2 on a breach is a warning.",
		How:    "The event was edited, or written by a program other than the harness.",
		Advice: "Restore the event from a copy of the session. Do not rely on what the log says about plan mode from here on.",
		Types:  []string{"plan/mode"},
		New:    stateless(checkPlan),
	},
	{
		ID: "SANDBOX", Severity: Error, Since: 7_20_16_35, Spec: "SEMANTICS §8.2, §1.2",
		Title:  "the sandbox is in a known mode",
		Text:   "The mode is read-only, workspace-write or danger-full-access. Before 07-21 a breach is a warning. From generation 2 on a breach is a warning.",
		How:    "The event was edited, or written by a program other than the harness.",
		Advice: "Do not rely on what the log says about the sandbox from here on.",
		Types:  []string{"sandbox/mode"},
		New: stateless(func(c *Context, e *logfmt.Event) {
			c.oneOfWords(e, "mode", jsjson.Get(e.Data, "mode"), buildCompanions, "read-only", "workspace-write", "danger-full-access")
		}),
	},
	{
		ID: "PRESET", Severity: Warning, Since: 7_14_10_52, Spec: "SEMANTICS §8.2",
		Title:  "a permission preset has a name",
		Text:   "The preset is one that was configured where the session ran. Which ones those are the log does not say, so only an empty name is known to be wrong. Whether a name may be empty in generations after 1 is not known: nothing is said of it there.",
		How:    "The event was edited.",
		Advice: "Compare the preset with the configuration of the harness that wrote the log.",
		Types:  []string{"permission/preset"},
		New: stateless(func(c *Context, e *logfmt.Event) {
			c.empty(e, "preset", firstBuild)
		}),
	},
}

func checkPlan(c *Context, e *logfmt.Event) {
	if v := jsjson.Get(e.Data, "active"); jsjson.KindOf(e.Data) == jsjson.Object && wantBool(v) != "" {
		c.Report(e, "data.active", "active of plan/mode is %s, expected true or false", show(v))
	}
}

type hookChecker struct {
	open  ledger[int] // invocations without a result, by turn, point and handler
	lost  int64
	blind bool
}

func (h *hookChecker) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&h.lost) {
		h.blind = true
	}
	if e.Type == "turn/start" || e.Type == "turn/end" {
		h.open.reset()
		h.blind = false
		return
	}
	inTurn := c.turnOf(e, c.turn, buildCompanions)
	c.empty(e, "point", buildCompanions)
	c.empty(e, "handlerId", buildCompanions)
	point, handler := jsjson.Get(e.Data, "point"), jsjson.Get(e.Data, "handlerId")
	usable := c.turn > 0 && jsjson.KindOf(point) == jsjson.String && jsjson.KindOf(handler) == jsjson.String
	key := strconv.FormatInt(c.turn, 10) + string(point) + string(handler)
	if len(key) > 256 {
		key, _ = idOf([]byte(strconv.Quote(key)))
	}
	n, _ := h.open.get(key)
	if e.Type == "hook/invoked" {
		c.oneOfWords(e, "dialect", jsjson.Get(e.Data, "dialect"), buildCompanions, "claude-code", "codex")
		if usable {
			h.open.put(key, n+1)
		}
		return
	}
	if d := jsjson.Get(e.Data, "durationMs"); jsjson.KindOf(d) == jsjson.Number && d[0] == '-' {
		c.weigh(c.Report(e, "data.durationMs", "durationMs of hook/result is %s, expected a number from 0", show(d)), buildCompanions)
	}
	switch {
	case !usable || !inTurn:
	case n > 1:
		h.open.put(key, n-1)
	case n == 1:
		h.open.drop(key)
	case !h.blind && !h.open.blind && c.Turn.Known:
		c.weigh(c.Report(e, "", "hook/result of %s at %s answers no invocation, expected hook/invoked of the same handler before it in turn %d and no other result", show(handler), show(point), c.turn), buildCompanions)
	}
}

func (h *hookChecker) End(*Context) {}

type dispatchChecker struct {
	roots ledger[string] // root of each sub-call
	lost  int64
}

func (d *dispatchChecker) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&d.lost) {
		d.roots.blind = true
	}
	c.turnOf(e, -1, buildCompanions)
	c.empty(e, "rootCallId", buildCompanions)
	c.empty(e, "parentCallId", buildCompanions)
	c.empty(e, "subCallId", buildCompanions)
	root, hasRoot := idOf(jsjson.Get(e.Data, "rootCallId"))
	sub, hasSub := idOf(jsjson.Get(e.Data, "subCallId"))
	parent, hasParent := idOf(jsjson.Get(e.Data, "parentCallId"))
	if !hasRoot {
		return
	}
	if was, seen := d.roots.get(sub); hasSub && seen && was != root {
		c.Report(e, "data.rootCallId", "rootCallId of sub-call %s is %s, expected the one it had before", show(jsjson.Get(e.Data, "subCallId")), show(jsjson.Get(e.Data, "rootCallId")))
	} else if hasSub {
		d.roots.put(sub, root)
	}
	if !hasParent || parent == root {
		return
	}
	if of, seen := d.roots.get(parent); seen && of != root || !seen && !d.roots.blind || hasSub && parent == sub {
		c.Report(e, "data.parentCallId", "parentCallId of %s is %s, expected the root call %s or a sub-call of it", e.Type, show(jsjson.Get(e.Data, "parentCallId")), show(jsjson.Get(e.Data, "rootCallId")))
	}
}

func (d *dispatchChecker) End(*Context) {}

type approvalChecker struct {
	open ledger[Related]
	lost int64
}

func (a *approvalChecker) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&a.lost) {
		a.open.blind = true
	}
	if e.Type == "approval/policy" {
		c.oneOfWords(e, "policy", jsjson.Get(e.Data, "policy"), buildCompanions, "ask", "never")
		return
	}
	c.turnOf(e, -1, buildCompanions)
	raw := jsjson.Get(e.Data, "id")
	id, ok := idOf(raw)
	if e.Type == "approval/asked" {
		c.empty(e, "toolName", buildCompanions)
		if was, open := a.open.get(id); ok && open {
			f := c.weigh(c.Report(e, "data.id", "approval %s is asked for while it is open, expected a decision first", show(raw)), buildCompanions)
			f.Related = append(f.Related, was)
		} else if ok {
			a.open.put(id, Related{e.Seq, e.Pos.Line, "it was asked for here"})
		}
		return
	}
	c.oneOfWords(e, "outcome", jsjson.Get(e.Data, "outcome"), buildCompanions, "allowed-once", "rejected", "cancelled", "unavailable")
	if _, open := a.open.get(id); ok && !open && !a.open.blind {
		c.weigh(c.Report(e, "data.id", "approval %s is decided, expected approval/asked with that id before and no other decision", show(raw)), buildCompanions)
	}
	a.open.drop(id)
}

func (a *approvalChecker) End(*Context) {}

func checkTodos(c *Context, e *logfmt.Event) {
	seen := map[string]bool{}
	i := 0
	for item := range jsjson.Elements(jsjson.Get(e.Data, "todos")) {
		at := "todos[" + strconv.Itoa(i) + "]"
		i++
		raw := jsjson.Get(item, "content")
		if s, ok := jsjson.Str(raw); ok {
			switch {
			case s == "":
				c.weigh(c.Report(e, "data."+at+".content", "content of %s is \"\", expected a non-empty string", at), buildCompanions)
			case jsjson.TrimJS(s) != s:
				c.weigh(c.Report(e, "data."+at+".content", "content of %s is %s, expected no blanks around it", at, show(raw)), buildCompanions)
			case seen[s]:
				c.weigh(c.Report(e, "data."+at+".content", "content of %s is %s, which is in the list already", at, show(raw)), buildCompanions)
			}
			seen[s] = true
		}
		c.oneOfWords(e, at+".status", jsjson.Get(item, "status"), buildCompanions, "pending", "in_progress", "completed")
	}
}
