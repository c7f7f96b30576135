package invariants

import (
	"strconv"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// What the companions of plugins check in generations after 0.
//
// Generation 1 holds the events of generation 0 as they were (FORMATS §4.5), so
// its rules are those of generation 0. From generation 2 on nothing refuses a log
// for most events of plugins (FORMATS §7.4), and builds of their own write them.
// What is known of those events is the closed sets of values of the frozen
// vocabulary, which no generation after it changes (FORMATS §4.2, §5.2, §6.2,
// §7.2), and what is said of payloads in all of them (FORMATS §2.10): a breach is
// a warning. How such events follow one another is not told of any build that
// writes these generations, so nothing is said about it.

// softly makes findings of a checker warnings at most.
func softly(f check) check {
	return func(c *Context, e *logfmt.Event) {
		c.soft = true
		f(c, e)
		c.soft = false
	}
}

// genWord checks one member of an event against the words of the vocabulary.
func genWord(member map[string]string, words ...string) func() Checker {
	return stateless(softly(func(c *Context, e *logfmt.Event) {
		if path := member[e.Type]; path != "" {
			c.oneOfWords(e, path, jsjson.Get(e.Data, path), firstBuild, words...)
		}
	}))
}

var (
	genDialect = genWord(map[string]string{"hook/invoked": "dialect"}, "claude-code", "codex")
	genSandbox = genWord(map[string]string{"sandbox/mode": "mode"}, "read-only", "workspace-write", "danger-full-access")
)

func genApproval(c *Context, e *logfmt.Event) {
	if e.Type == "approval/policy" {
		c.oneOfWords(e, "policy", jsjson.Get(e.Data, "policy"), firstBuild, "ask", "never")
		return
	}
	c.oneOfWords(e, "outcome", jsjson.Get(e.Data, "outcome"), firstBuild, "allowed-once", "rejected", "cancelled", "unavailable")
}

// genTodos looks at the status of items only: that their contents differ was held
// to by a companion.
func genTodos(c *Context, e *logfmt.Event) {
	i := 0
	for item := range jsjson.Elements(jsjson.Get(e.Data, "todos")) {
		c.oneOfWords(e, "todos["+strconv.Itoa(i)+"].status", jsjson.Get(item, "status"), firstBuild, "pending", "in_progress", "completed")
		i++
	}
}

func genWorkflow(c *Context, e *logfmt.Event) {
	switch e.Type {
	case "tool-workflow/run-end":
		c.oneOfWords(e, "stopReason", jsjson.Get(e.Data, "stopReason"), firstBuild, "completed", "cancelled", "error")
		return
	case "tool-workflow/agent-end":
		c.oneOfWords(e, "outcome", jsjson.Get(e.Data, "outcome"), firstBuild, "completed", "failed", "cancelled")
	}
	// The run's own counter, and not the seq of an event.
	if v := jsjson.Get(e.Data, "seq"); jsjson.KindOf(v) == jsjson.Number && wantPositive(v) != "" {
		c.Report(e, "data.seq", "seq of %s is %s, expected %s", e.Type, show(v), wantPositive(v))
	}
}

// genInbox holds splices to what waits. Whether an id may wait twice, and whether
// a child goes on with the inbox of its parent, is not told of these generations:
// behind inherited events with something waiting nothing is said.
type genInbox struct{ inbox }

func (k *genInbox) Event(c *Context, e *logfmt.Event) {
	if e.Type == logfmt.TypeSessionEndSeed {
		for _, list := range k.lists {
			k.blind = k.blind || e.SetsCut() && len(list) > 0
		}
		return
	}
	target, _ := jsjson.Str(jsjson.Get(e.Data, "target"))
	if target != "next-turn" && target != "next-step" {
		k.blind = true // said of its shape
		return
	}
	have := len(k.lists[target])
	if _, ok := k.splice(c, e); !ok {
		k.outside(c, e, target, have).Severity = Warning
	}
}

func (k *genInbox) End(*Context) {}

// genStale is seedChecker where a compaction that was given up is known to be
// dropped (FORMATS §7.4 P3), and it is not known whether going on with it is
// refused.
type genStale struct{ seedChecker }

func (s *genStale) Event(c *Context, e *logfmt.Event) {
	c.soft = true
	s.seedChecker.Event(c, e)
	c.soft = false
}

// genCite holds the message that takes the place of a compacted range to its
// compaction: what it cites, and what it replaces. That it stands right behind the
// summary, and a pruned result right behind its compaction/prune, was agreed
// between builds of generation 0.
type genCite struct{ citeChecker }

func (k *genCite) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&k.lost) || !k.ready {
		k.ready, k.start, k.summary = true, -1, -1
	}
	switch e.Type {
	case "compaction/start":
		k.start, k.summary = e.Seq, -1
	case "compaction/summary":
		k.take(e)
	case "compaction/end", logfmt.TypeSessionEndSeed:
		k.start, k.summary = -1, -1
	case "user/message":
		// Anything else about it is said by CMP-ID and by the surface.
		if k.start >= 0 && k.summary >= 0 && replacesCompacted(e) != nil && len(c.Faults) == 0 && e.Fault&(logfmt.FaultSources|logfmt.FaultSourceRuns) == 0 {
			k.compare(c, e)
		}
	}
}

// replacesCompacted is the source of a message that takes the place of a compacted
// range, as generations from 2 name it; nil when the event is none.
func replacesCompacted(e *logfmt.Event) []byte {
	src := jsjson.Get(e.Data, "source")
	if isReplace(e) && (jsjson.StrEq(jsjson.Get(src, "kind"), "compact-checkpoint") ||
		jsjson.StrEq(jsjson.Get(src, "kind"), "plugin") && jsjson.StrEq(jsjson.Get(src, "plugin"), "compact")) {
		return src
	}
	return nil
}

// genRetryValues checks what an llm/retry says by itself (FORMATS §2.10).
func genRetryValues(c *Context, e *logfmt.Event) {
	c.soft = true
	defer func() { c.soft = false }()
	retryValues(c, e)
}
