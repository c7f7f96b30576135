package invariants

import (
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about teams.
var teamRules = []*Rule{{
	ID: "TEAM", Severity: Error, Since: 8_18_16_14, Spec: "SEMANTICS §8.2, §1.2",
	Title:  "members, tasks and messages of a team go through their stages",
	Text:   "A member starts as provisioning and becomes active or failed once; its name is its own, and name, provider and context stay. Revisions of a task count from 1, and no task waits for itself. A message is queued once and delivered once afterwards, to the one it was for. Only the team of the log itself is followed. Builds of generation 2 write another version of these events, of which little is known: nothing is said of teams in generations after 1.",
	How:    "An event of the team was lost or edited, or two processes share the log.",
	Advice: "Compare with the logs of the other members, which hold what they received.",
	Types:  []string{"team/member", "team/task", "team/message/queued", "team/message/delivered"},
	New:    func() Checker { return new(teamChecker) },
}}

type teamMember struct {
	fixed   [3]string // name, provider, context
	settled bool      // active or failed
	at      Related
}

type teamTask struct {
	revision int64
	waits    []string // for these tasks
}

type teamMail struct {
	target    string
	delivered bool
	at        Related
}

type teamChecker struct {
	team    string // its id, "" before the first event of a team
	members ledger[*teamMember]
	names   ledger[string] // member of each name
	tasks   ledger[*teamTask]
	edges   int // of all tasks
	mail    ledger[*teamMail]
	lost    int64
}

func (t *teamChecker) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&t.lost) {
		t.members.blind, t.tasks.blind, t.mail.blind = true, true, true
	}
	if v := jsjson.Get(e.Data, "version"); jsjson.KindOf(v) == jsjson.Number && string(v) != "1" {
		c.Report(e, "data.version", "version of %s is %s, expected 1", e.Type, show(v))
		return
	}
	team, ok := idOf(jsjson.Get(e.Data, "teamId"))
	if !ok || c.Inherited(e) {
		return
	}
	if t.team == "" {
		t.team = team
	}
	if t.team != team {
		return
	}
	switch e.Type {
	case "team/member":
		t.member(c, e, jsjson.Get(e.Data, "member"))
	case "team/task":
		t.task(c, e, jsjson.Get(e.Data, "task"))
	case "team/message/queued":
		t.queued(c, e, jsjson.Get(e.Data, "message"))
	case "team/message/delivered":
		t.delivered(c, e)
	}
}

func (t *teamChecker) End(*Context) {}

func (t *teamChecker) member(c *Context, e *logfmt.Event, m []byte) {
	raw := jsjson.Get(m, "id")
	id, ok := idOf(raw)
	if !ok {
		return
	}
	phase, _ := jsjson.Str(jsjson.Get(m, "phase"))
	if !c.oneOfWords(e, "member.phase", jsjson.Get(m, "phase"), firstBuild, "provisioning", "active", "failed") {
		return
	}
	was, seen := t.members.get(id)
	if !seen {
		now := &teamMember{settled: phase != "provisioning", at: Related{e.Seq, e.Pos.Line, "the member joins here"}}
		for i, key := range teamFixed {
			now.fixed[i], _ = idOf(jsjson.Get(m, key))
		}
		if name := now.fixed[0]; name != "" {
			if of, taken := t.names.get(name); taken && of != id {
				c.Report(e, "data.member.name", "name of the member is %s, which another member has", show(jsjson.Get(m, "name")))
			} else {
				t.names.put(name, id)
			}
		}
		if phase != "provisioning" && !t.members.blind {
			c.Report(e, "data.member.phase", "the first phase of member %s is %s, expected provisioning", show(raw), phase)
		}
		t.members.put(id, now)
		return
	}
	for i, key := range teamFixed {
		if v, ok := idOf(jsjson.Get(m, key)); ok && was.fixed[i] != "" && v != was.fixed[i] {
			f := c.Report(e, "data.member."+key, "%s of member %s is %s, expected the one it had before", key, show(raw), show(jsjson.Get(m, key)))
			f.Related = append(f.Related, was.at)
		}
	}
	switch {
	case t.members.blind:
	case phase == "provisioning":
		c.Report(e, "data.member.phase", "member %s is provisioning a second time, expected active or failed", show(raw))
	case was.settled:
		c.Report(e, "data.member.phase", "member %s becomes %s, but it was active or failed before", show(raw), phase)
	}
	was.settled = was.settled || phase != "provisioning"
}

var teamFixed = [...]string{"name", "provider", "context"}

func (t *teamChecker) task(c *Context, e *logfmt.Event, task []byte) {
	raw := jsjson.Get(task, "id")
	id, ok := idOf(raw)
	n, whole := jsjson.SafeInt(jsjson.Get(task, "revision"))
	if !ok || !whole {
		return
	}
	was, seen := t.tasks.get(id)
	want := int64(1)
	if seen {
		want = was.revision + 1
	}
	if n != want && !(t.tasks.blind && n > want) {
		c.Report(e, "data.task.revision", "revision of task %s is %d, expected %d", show(raw), n, want)
	}
	if !seen {
		was = new(teamTask)
		if !t.tasks.put(id, was) {
			return
		}
	}
	was.revision = n
	t.edges -= len(was.waits)
	was.waits = was.waits[:0]
	const mostEdges = 1 << 10 // what is looked through at each change
	for v := range jsjson.Elements(jsjson.Get(task, "blockedBy")) {
		if on, ok := idOf(v); ok && t.edges < mostEdges {
			was.waits = append(was.waits, on)
			t.edges++
		}
	}
	if t.circular(id) {
		c.Report(e, "data.task.blockedBy", "task %s waits for itself, through the tasks that block it", show(raw))
		t.edges -= len(was.waits)
		was.waits = nil // said once
	}
}

// circular reports whether a task waits for itself.
func (t *teamChecker) circular(id string) bool {
	seen := map[string]bool{}
	stack := []string{id}
	for len(stack) > 0 {
		task, ok := t.tasks.get(stack[len(stack)-1])
		stack = stack[:len(stack)-1]
		if !ok {
			continue
		}
		for _, on := range task.waits {
			if on == id {
				return true
			}
			if !seen[on] {
				seen[on] = true
				stack = append(stack, on)
			}
		}
	}
	return false
}

func (t *teamChecker) queued(c *Context, e *logfmt.Event, m []byte) {
	raw := jsjson.Get(m, "id")
	id, ok := idOf(raw)
	if !ok {
		return
	}
	if was, seen := t.mail.get(id); seen {
		f := c.Report(e, "data.message.id", "message %s is queued a second time", show(raw))
		f.Related = append(f.Related, was.at)
		return
	}
	target, _ := idOf(jsjson.Get(m, "targetId"))
	t.mail.put(id, &teamMail{target: target, at: Related{e.Seq, e.Pos.Line, "the message is queued here"}})
}

func (t *teamChecker) delivered(c *Context, e *logfmt.Event) {
	raw := jsjson.Get(e.Data, "messageId")
	id, ok := idOf(raw)
	if !ok {
		return
	}
	was, seen := t.mail.get(id)
	if !seen {
		if !t.mail.blind {
			c.Report(e, "data.messageId", "message %s is delivered, expected team/message/queued with that id before", show(raw))
		}
		return
	}
	target, usable := idOf(jsjson.Get(e.Data, "targetId"))
	switch {
	case was.delivered:
		f := c.Report(e, "data.messageId", "message %s is delivered a second time", show(raw))
		f.Related = append(f.Related, was.at)
	case usable && was.target != "" && target != was.target:
		f := c.Report(e, "data.targetId", "message %s is delivered to %s, expected the one it was queued for", show(raw), show(jsjson.Get(e.Data, "targetId")))
		f.Related = append(f.Related, was.at)
	}
	was.delivered = true
}
