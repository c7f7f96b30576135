package invariants

import (
	"regexp"
	"strconv"
	"time"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about commands, titles, workflows, schedules, clocks and children.
var sessionPluginRules = []*Rule{
	{
		ID: "CMD", Severity: Error, Since: 7_28_17_56, Spec: "SEMANTICS §8.2, §1.2",
		Title:  "a command runs once and is done after it ran",
		Text:   "The id of a command is unique in the log and command/done names one that ran before. Only a success points at an event, which is an earlier one and none of a command. A second command/done for the same command is a warning.",
		How:    "The command/run was lost or edited, or two processes share the log.",
		Advice: "Look for the command/run with that id. What the command changed is in the event it points at.",
		Types:  []string{"command/run", "command/done"},
		New:    func() Checker { return new(commandChecker) },
	},
	{
		ID: "TITLE", Severity: Error, Since: 7_21_23_30, Spec: "SEMANTICS §8.2, §1.2",
		Title:  "a title made from messages names them, one given by the user names none",
		Text:   "messageSeqs is empty when the user chose the title and lists the messages it was made from otherwise. Before 08-05 a breach is a warning.",
		How:    "The event was edited, or a plugin wrote a title past the harness.",
		Advice: "The title is shown to people only: no request depends on it.",
		Types:  []string{"session/title"},
		New:    stateless(checkTitle),
	},
	{
		ID: "WF", Severity: Error, Since: 8_11_19_05, Spec: "SEMANTICS §8.2, §1.2",
		Title:  "a workflow starts, its agents start and end within it, and it ends",
		Text:   "The id of a run is unique. An agent starts in an open run under a number from 1 that none had before, ends once with a known outcome, and no agent is left when the run ends, for a known reason. Nothing of a run comes behind its end. From generation 2 on only the outcome, the reason and the numbers of agents are looked at, as warnings: how the events of a run follow one another there is not known.",
		How:    "An event of the run was lost or edited, or two processes share the log.",
		Advice: "Look for the event of the run that is missing. The logs of its children say what they did.",
		Types:  []string{"tool-workflow/run-start", "tool-workflow/agent-start", "tool-workflow/agent-end", "tool-workflow/run-end"},
		New:    func() Checker { return new(workflowChecker) },
	},
	{
		ID: "SCHED", Severity: Error, Since: 8_11_20_53, Spec: "SEMANTICS §8.2, §1.2",
		Title:  "a schedule is made once, and fires or goes only while it is active",
		Text:   "Every operation has exactly its members and points in time are written in UTC. The id of a schedule is never used again. What repeats says when a round was accepted, not before it was due; what fires once does not say so and is gone then. A child does not take over the schedules of its parent. Whether schedules go on like this in generations after 1 is not known: nothing is said of them there.",
		How:    "The event that made the schedule was lost or edited, or two processes share the log.",
		Advice: "Look for the earlier operations with that id: prompts that were sent in its name have no other origin.",
		Types:  []string{"schedule/change"},
		New:    func() Checker { return new(scheduleChecker) },
	},
	{
		ID: "TIME", Severity: Error, Since: buildReact, Spec: "SEMANTICS §8.2",
		Title:  "a reading of the clock is one block, made at the start of its step",
		Text:   "A message of the plugin time-context is exactly one text block without further members. It stands in a step, before the header event and the answer of that step, and does not tell a time later than that of its event. What a reading looks like in generations after 1 is not known: nothing is said of it there.",
		How:    "The event was edited or moved, or the clock of the machine was set back.",
		Advice: "Compare the time in the text with the times of the events around it.",
		Types:  []string{"user/message", "step/start", "request/header"},
		New:    func() Checker { return new(clockChecker) },
	},
	{
		ID: "SUBAGENT-DESC", Severity: Warning, Since: 8_02_12_51, Spec: "SEMANTICS §8.2, §1.2, §10.3",
		Title:  "the log of a subagent describes it once",
		Text:   "A child whose header says subagent holds exactly one descriptor of its own before it is done, of a known version and with no members but those of that version. Descriptors in the part it took over from its parent belong to others. Generations after 1 list children in the log of their parent, and what they hold of descriptors is not known: nothing is said of them there.",
		How:    "The descriptor was lost or edited, or the child was made by a program other than the harness.",
		Advice: "Compare with the log of the parent, which says how the child was asked for.",
		Types:  []string{"subagent/descriptor", "assistant/message", "turn/end"},
		New:    func() Checker { return new(descriptorChecker) },
	},
}

type commandChecker struct {
	runs ledger[bool] // whether it was done
	seqs ledger[struct{}]
	lost int64
}

func (k *commandChecker) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&k.lost) {
		k.runs.blind = true
	}
	k.seqs.put(strconv.FormatInt(e.Seq, 10), struct{}{})
	raw := jsjson.Get(e.Data, "commandId")
	id, ok := idOf(raw)
	done, seen := k.runs.get(id)
	if e.Type == "command/run" {
		c.empty(e, "commandId", firstBuild)
		if ok && seen {
			c.Report(e, "data.commandId", "commandId of command/run is %s, which another command had before", show(raw))
		} else if ok {
			k.runs.put(id, false)
		}
		return
	}
	switch {
	case !ok:
	case !seen:
		if !k.runs.blind {
			c.Report(e, "data.commandId", "commandId of command/done is %s, expected that of a command/run before it", show(raw))
		}
	case done:
		c.Report(e, "data.commandId", "command %s is done a second time", show(raw)).Severity = Warning
	default:
		k.runs.put(id, true)
	}
	at := jsjson.Get(e.Data, "sourceEventSeq")
	n, whole := jsjson.SafeInt(at)
	if !whole {
		return
	}
	if _, own := k.seqs.get(strconv.FormatInt(n, 10)); jsjson.StrEq(jsjson.Get(e.Data, "kind"), "error") {
		c.Report(e, "data.sourceEventSeq", "sourceEventSeq of command/done is %d, expected none for a command that failed", n)
	} else if n >= e.Seq {
		c.Report(e, "data.sourceEventSeq", "sourceEventSeq of command/done is %d, expected an earlier event than %d", n, e.Seq)
	} else if own {
		c.Report(e, "data.sourceEventSeq", "sourceEventSeq of command/done is %d, which is an event of a command; expected one that the command caused", n)
	}
}

func (k *commandChecker) End(*Context) {}

func checkTitle(c *Context, e *logfmt.Event) {
	seqs := jsjson.Get(e.Data, "messageSeqs")
	kind, ok := jsjson.Str(jsjson.Get(jsjson.Get(e.Data, "source"), "kind"))
	if jsjson.KindOf(seqs) != jsjson.Array || !ok {
		return
	}
	n := jsjson.Len(seqs)
	switch {
	case kind == "user" && n > 0:
		c.weigh(c.Report(e, "data.messageSeqs", "messageSeqs of session/title is %s, expected [] for a title of the user", show(seqs)), buildReact)
	case kind != "user" && n == 0:
		c.weigh(c.Report(e, "data.messageSeqs", "messageSeqs of session/title is empty, expected the messages that the title was made from"), buildReact)
	}
}

type workflowRun struct {
	ended  bool
	agents map[int64]bool // whether it is running
	open   int
	at     Related
}

type workflowChecker struct {
	runs   ledger[*workflowRun]
	agents int // of all runs
	lost   int64
}

func (w *workflowChecker) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&w.lost) {
		w.runs.blind = true
	}
	raw := jsjson.Get(e.Data, "runId")
	id, ok := idOf(raw)
	if !ok {
		return
	}
	run, seen := w.runs.get(id)
	if e.Type == "tool-workflow/run-start" {
		if seen {
			f := c.Report(e, "data.runId", "runId of run-start is %s, which another run had before", show(raw))
			f.Related = append(f.Related, run.at)
			return
		}
		w.runs.put(id, &workflowRun{agents: map[int64]bool{}, at: Related{e.Seq, e.Pos.Line, "the run starts here"}})
		return
	}
	part := e.Type[len("tool-workflow/"):]
	switch {
	case !seen:
		if !w.runs.blind {
			c.Report(e, "data.runId", "runId of %s is %s, expected that of a run-start before it", part, show(raw))
		}
		run = nil
	case run.ended:
		f := c.Report(e, "", "%s of run %s comes behind the end of the run", part, show(raw))
		f.Related = append(f.Related, run.at)
		return
	}
	switch part {
	case "agent-start", "agent-end":
		w.agent(c, e, part, run)
	case "run-end":
		c.oneOfWords(e, "stopReason", jsjson.Get(e.Data, "stopReason"), firstBuild, "completed", "cancelled", "error")
		if run == nil {
			return
		}
		if run.open > 0 && !w.runs.blind {
			f := c.Report(e, "", "run %s ends while %d of its agents are running, expected agent-end first", show(raw), run.open)
			f.Related = append(f.Related, run.at)
		}
		run.ended = true
		w.agents -= len(run.agents)
		run.agents, run.open = nil, 0
	}
}

func (w *workflowChecker) agent(c *Context, e *logfmt.Event, part string, run *workflowRun) {
	v := jsjson.Get(e.Data, "seq")
	n, ok := jsjson.SafeInt(v)
	if jsjson.KindOf(v) == jsjson.Number && (!ok || n < 1) {
		c.Report(e, "data.seq", "seq of %s is %s, expected %s", part, show(v), wantPositive(v))
		return
	}
	if part == "agent-end" {
		c.oneOfWords(e, "outcome", jsjson.Get(e.Data, "outcome"), firstBuild, "completed", "failed", "cancelled")
	}
	if run == nil || !ok {
		return
	}
	running, seen := run.agents[n]
	switch {
	case part == "agent-start" && seen:
		c.Report(e, "data.seq", "seq of agent-start is %d, which another agent of the run had before", n)
	case part == "agent-start":
		if w.agents == mostIDs {
			w.runs.blind = true
			return
		}
		w.agents++
		run.agents[n] = true
		run.open++
	case running:
		run.agents[n] = false
		run.open--
	case seen:
		c.Report(e, "data.seq", "agent %d of the run ends a second time", n)
	case !w.runs.blind:
		c.Report(e, "data.seq", "seq of agent-end is %d, expected that of an agent that was started in the run", n)
	}
}

func (w *workflowChecker) End(*Context) {}

// instant reads a point in time as the harness writes it, in UTC.
func instant(v []byte) (time.Time, bool) {
	s, ok := jsjson.Str(v)
	if !ok || !utc.MatchString(s) {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	return t, err == nil
}

var utc = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z$`)

type schedule struct {
	every, active bool
	due           time.Time
	at            Related
}

type scheduleChecker struct {
	known ledger[*schedule]
	lost  int64
}

func (k *scheduleChecker) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&k.lost) {
		k.known.blind = true
	}
	if c.Inherited(e) {
		return
	}
	if v := jsjson.Get(e.Data, "version"); jsjson.KindOf(v) == jsjson.Number && string(v) != "1" {
		c.Report(e, "data.version", "version of schedule/change is %s, expected 1", show(v))
		return
	}
	op, _ := jsjson.Str(jsjson.Get(e.Data, "operation"))
	switch op {
	case "create":
		k.create(c, e)
	case "delete", "dispatch":
		k.act(c, e, op)
	}
}

func (k *scheduleChecker) exact(c *Context, e *logfmt.Event, obj []byte, what string, keys ...string) {
	if extra := keysBut(obj, keys...); extra != "" {
		c.Report(e, "data", "%s has the further key %s", what, extra)
	}
}

func (k *scheduleChecker) instant(c *Context, e *logfmt.Event, path string, v []byte) (time.Time, bool) {
	t, ok := instant(v)
	if _, usable := idOf(v); !ok && (usable || string(v) == `""`) { // not one that was scrubbed

		c.Report(e, "data."+path, "%s of schedule/change is %s, expected a point in time in UTC, as in 2026-08-12T09:30:00.000Z", path, show(v))
	}
	return t, ok
}

func (k *scheduleChecker) create(c *Context, e *logfmt.Event) {
	k.exact(c, e, e.Data, "the creation of a schedule", "version", "operation", "schedule")
	s := jsjson.Get(e.Data, "schedule")
	kind, _ := jsjson.Str(jsjson.Get(s, "kind"))
	switch kind {
	case "after":
		k.exact(c, e, s, "a schedule of kind after", "id", "kind", "prompt", "afterSeconds", "scheduledAt")
	case "at":
		k.exact(c, e, s, "a schedule of kind at", "id", "kind", "prompt", "scheduledAt")
	case "every":
		k.exact(c, e, s, "a schedule of kind every", "id", "kind", "prompt", "everySeconds", "scheduledAt")
	default:
		return
	}
	due, _ := k.instant(c, e, "schedule.scheduledAt", jsjson.Get(s, "scheduledAt"))
	raw := jsjson.Get(s, "id")
	id, ok := idOf(raw)
	if !ok {
		return
	}
	if was, seen := k.known.get(id); seen {
		f := c.Report(e, "data.schedule.id", "id of the schedule is %s, which another schedule had before", show(raw))
		f.Related = append(f.Related, was.at)
		return
	}
	k.known.put(id, &schedule{every: kind == "every", active: true, due: due, at: Related{e.Seq, e.Pos.Line, "the schedule was made here"}})
}

func (k *scheduleChecker) act(c *Context, e *logfmt.Event, op string) {
	accepted := jsjson.Get(e.Data, "acceptedAt")
	if op == "delete" {
		k.exact(c, e, e.Data, "the deletion of a schedule", "version", "operation", "id")
	} else {
		k.exact(c, e, e.Data, "the dispatch of a schedule", "version", "operation", "id", "acceptedAt")
	}
	raw := jsjson.Get(e.Data, "id")
	id, ok := idOf(raw)
	if !ok {
		return
	}
	s, seen := k.known.get(id)
	if !seen {
		if !k.known.blind {
			c.Report(e, "data.id", "%s of schedule %s, expected its creation before", op, show(raw))
		}
		return
	}
	if !s.active {
		f := c.Report(e, "data.id", "%s of schedule %s, which is no longer active", op, show(raw))
		f.Related = append(f.Related, s.at)
		return
	}
	switch {
	case op == "delete":
		s.active = false
	case s.every:
		t, ok := k.instant(c, e, "acceptedAt", accepted)
		if accepted == nil {
			c.Report(e, "data.acceptedAt", "acceptedAt is absent, expected one for a schedule that repeats")
		} else if ok && !s.due.IsZero() && t.Before(s.due) {
			f := c.Report(e, "data.acceptedAt", "acceptedAt is %s, expected no time before that of the schedule", show(accepted))
			f.Related = append(f.Related, s.at)
		}
	default:
		s.active = false
		if accepted != nil {
			c.Report(e, "data.acceptedAt", "acceptedAt is %s, expected none for a schedule that fires once", show(accepted))
		}
	}
}

func (k *scheduleChecker) End(*Context) {}

type clockChecker struct {
	header bool // a header event stands in the open step
}

// reading is a local time with its zone, wherever it stands in a text.
var reading = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)

func (k *clockChecker) Event(c *Context, e *logfmt.Event) {
	switch e.Type {
	case "step/start":
		k.header = false
		return
	case "request/header":
		k.header = true
		return
	}
	if _, ok := fromPlugin(e, "time-context"); !ok || isReplace(e) {
		return
	}
	content := jsjson.Get(e.Data, "content")
	if jsjson.KindOf(content) == jsjson.Array {
		block := jsjson.Index(content, 0)
		text, ok := jsjson.Str(jsjson.Get(block, "text"))
		if jsjson.Len(content) != 1 || !ok || !jsjson.StrEq(jsjson.Get(block, "type"), "text") || jsjson.Len(block) != 2 {
			c.Report(e, "data.content", "content of a reading of the clock is %s, expected exactly one text block of type and text", show(content))
		} else {
			told(c, e, text)
		}
	}
	switch {
	case !c.Turn.Known || !c.Step.Known:
	case !c.Step.Open:
		c.Report(e, "", "a reading of the clock stands outside any step, expected it at the start of one")
	case k.header:
		c.Report(e, "", "a reading of the clock stands behind the header of step %s, expected it before", number(c.Step.N))
	case c.Attempt.FirstChunk >= 0 || c.Asked > 0:
		c.Report(e, "", "a reading of the clock stands behind the answer of step %s, expected it before", number(c.Step.N))
	}
}

// told checks that a text tells no time later than that of its event.
func told(c *Context, e *logfmt.Event, text string) {
	s := reading.FindString(text)
	if s == "" || e.Time <= 0 {
		return // recorded fixtures have no times
	}
	t, err := time.Parse("2006-01-02T15:04:05.999999999Z07:00", s[:10]+"T"+s[11:])
	if err == nil && t.UnixMilli() > e.Time {
		c.Report(e, "data.content[0].text", "the clock reads %s, which is later than the time of the event, %d", s, e.Time)
	}
}

func (k *clockChecker) End(*Context) {}

type descriptorChecker struct {
	seen    int64 // own descriptors
	first   Related
	worked  bool // the child answered and ended a turn
	asked   bool
	last    Place
	damaged bool
	lost    int64
}

func (k *descriptorChecker) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&k.lost) {
		k.damaged = true
	}
	if c.Inherited(e) {
		return
	}
	switch e.Type {
	case "assistant/message":
		k.asked = true
		return
	case "turn/end":
		k.worked = k.worked || k.asked
		k.last = c.place(e)
		return
	}
	k.shape(c, e)
	if k.seen++; k.seen == 1 {
		k.first = Related{e.Seq, e.Pos.Line, "the first one"}
		return
	}
	if c.log.Header != nil && c.log.Header.Origin != nil {
		f := c.Report(e, "", "a second subagent/descriptor, expected one")
		f.Related = append(f.Related, k.first)
	}
}

// shape checks the members of a descriptor by its version.
func (k *descriptorChecker) shape(c *Context, e *logfmt.Event) {
	v := jsjson.Get(e.Data, "version")
	mode := jsjson.Get(e.Data, "mode")
	var keys []string
	switch string(v) {
	case "1":
		keys = []string{"version", "provider", "agentProvider", "agentModel", "persona", "toolFilter"}
	case "2", "3":
		keys = []string{"version", "mode", "provider", "label"}
		if jsjson.StrEq(mode, "continuable") || string(v) == "3" {
			keys = append(keys, "agentProvider", "agentModel", "persona", "toolFilter")
		}
		if string(v) == "3" {
			keys = append(keys, "agentReasoningEffort")
		}
		switch {
		case !jsjson.StrEq(mode, "one-shot") && !jsjson.StrEq(mode, "continuable"):
			c.Report(e, "data.mode", "mode of subagent/descriptor is %s, expected one-shot or continuable", show(mode))
			return
		case jsjson.StrEq(mode, "continuable") && wantString(jsjson.Get(e.Data, "label")) != "":
			c.Report(e, "data.label", "label of subagent/descriptor is %s, expected a string for a child that can be continued", show(jsjson.Get(e.Data, "label")))
		}
	default:
		if wantCount(v) == "" { // otherwise a matter of shape
			c.Report(e, "data.version", "version of subagent/descriptor is %s, expected 1, 2 or 3", show(v))
		}
		return
	}
	if extra := keysBut(e.Data, keys...); extra != "" {
		c.Report(e, "data", "subagent/descriptor of version %s has the further key %s", v, extra)
	}
}

func (k *descriptorChecker) End(c *Context) {
	h := c.log.Header
	if h == nil || h.Origin == nil || *h.Origin != "subagent" || k.seen > 0 || !k.worked || k.damaged || c.damaged != nil {
		return
	}
	c.ReportAt(k.last, "", "the log of a subagent ends without a subagent/descriptor of its own, expected one before the first request")
}
