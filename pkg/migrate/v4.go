package migrate

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

func sum(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

// plugins are the kinds that sources of kind plugin become in generation 4. Those
// that are not listed keep their name behind "plugin:".
var plugins = map[string]string{
	"compact": "compact-checkpoint", "tools-code-mode": "ptc-mode", "tools-ptc": "ptc-mode", "dsh-compaction-basic": "compact-basic",
}

func init() {
	for _, name := range strings.Fields(`agent-instructions session-reference team-message goal skill-invocation skill-catalog coordinator
		subagent-report subagent-settled webhook agent-message model-selection plan-mode time-context tmux-context user-approval
		repeat-tool-reminder tool-cordis cordis-host-runner tool-goal tool-jobs hooks-codex hooks-claude-code schedule dsh-session-title-llm`) {
		plugins[name] = name
	}
}

// types3 are those of generation 3 that generation 2 does not have.
var types3 = []string{
	logfmt.TypeSystemMessage, logfmt.TypeToolPTCDispatch, logfmt.TypeToolPTCDispatchStart, logfmt.TypeDeliverablesPresented,
	logfmt.TypeImageOffload, logfmt.TypeSubagentCatalog, logfmt.TypeWorkspaceChanges,
}

func known3(typ string) bool {
	return contains(types3, typ) || known2(typ) && typ != logfmt.TypeToolCodeDispatch && typ != logfmt.TypeToolCodeDispatchStart
}

// toV4 takes generation 3 to 4: sources are named after who produced them, and a
// tool result becomes its own message (FORMATS §7.5).
type toV4 struct {
	c        *chain
	out      *outlet
	m        numbering
	turnOpen bool
	stepOpen bool
	turnN    int64
	splice   bool
}

func (t *toV4) take(r *row) {
	at := step(3)
	if t.c.refusals[at] != nil {
		return
	}
	old := r.seq
	r = r.clone()
	bad := func(rule, format string, args ...any) { t.c.refuse(at, r, rule, "", format, args...) }
	switch {
	case !known3(r.typ) && !r.ignorable:
		bad("LOG-TYPE", "event type %q is unknown and not marked ignorable", r.typ)
		return
	case !known3(r.typ):
		r.typ = "plugin:" + r.typ
		t.out.take(r)
		t.m.set(old, r.seq)
		return
	case r.typ == logfmt.TypeSessionLogDeepseekDeliveryAccepted:
		if n, ok := jsjson.SafeInt(jsjson.Get(r.data, "sessionFormatVersion")); ok && n == 4 {
			bad("DELIVERY", "the delivery mark claims the generation that the step leads to")
			return
		}
	case r.typ == logfmt.TypeRequestHeader:
		for tool := range jsjson.Elements(jsjson.Get(jsjson.Get(r.data, "header"), "tools")) {
			if jsjson.Get(tool, "deferLoading") != nil {
				bad("HDR-SHAPE", "a tool of the header has deferLoading, which came with generation 4")
				return
			}
		}
	case r.typ == logfmt.TypeToolResult:
		if !t.lift(r) {
			return
		}
	case r.typ == logfmt.TypeTurnStart:
		n, _ := jsjson.SafeInt(jsjson.Get(r.data, "turn"))
		if t.turnOpen && !t.stepOpen && t.splice && n == t.turnN+1 {
			t.out.take(&row{typ: logfmt.TypeTurnEnd, src: -1, time: r.time,
				data: append(append([]byte(`{"turn":`), itoa(t.turnN)...), `,"reason":{"kind":"interrupted"}}`...)})
		}
	}
	fault := ""
	r.data = messages(r.typ, r.data, func(m []byte) []byte { return t.message(m, &fault) })
	if fault != "" {
		bad("MSG-SHAPE", "%s", fault)
		return
	}
	switch r.typ {
	case logfmt.TypeTurnStart:
		t.turnN, _ = jsjson.SafeInt(jsjson.Get(r.data, "turn"))
		t.turnOpen, t.stepOpen = true, false
	case logfmt.TypeTurnEnd:
		t.turnOpen, t.stepOpen = false, false
	case logfmt.TypeStepStart:
		t.stepOpen = true
	case logfmt.TypeStepEnd:
		t.stepOpen = false
	}
	t.splice = r.typ == logfmt.TypeAgentInboxSpliced && is(r.data, "target", "next-turn") && jsjson.Len(jsjson.Get(r.data, "inserted")) > 0
	if gone := t.m.renumber(r, "startSeq", "endSeq", "startSeq", "endSeq"); gone != "" {
		bad("SURF-RANGE", "%s refers to no event", gone)
		return
	}
	t.out.take(r)
	t.m.set(old, r.seq)
}

func (t *toV4) end() { t.out.end() }

// message renames the source of a message and the types of blocks that are not
// known.
func (t *toV4) message(m []byte, fault *string) []byte {
	src := jsjson.Get(m, "source")
	if is(src, "kind", "plugin") {
		name, ok := jsjson.Str(jsjson.Get(src, "plugin"))
		if !ok {
			*fault = "a source of kind plugin names no plugin"
			return m
		}
		kind, listed := plugins[name]
		switch {
		case name == "@deepseek-ai/dsh-system-prompt" && is(m, "role", "system"):
			kind = "system-prompt"
		case name == "@deepseek-ai/dsh-system-prompt":
			kind = "runtime-context"
		case !listed:
			kind = "plugin:" + name
		}
		m = with(m, "source", mapped(src, func(k string, v []byte) []byte {
			switch k {
			case "plugin":
				return nil
			case "kind":
				return jsjson.AppendQuote(nil, kind)
			}
			return v
		}))
	}
	return mapped(m, func(k string, v []byte) []byte {
		if k != "content" {
			return v
		}
		return each(v, func(b []byte) []byte {
			typ, ok := jsjson.Str(jsjson.Get(b, "type"))
			if !ok {
				*fault = "a content block has no type"
				return b
			}
			if contains(blockTypes, typ) {
				return b
			}
			return with(b, "type", jsjson.AppendQuote(nil, "plugin:"+typ))
		})
	})
}

// lift makes a tool result its own message.
func (t *toV4) lift(r *row) bool {
	m := jsjson.Get(r.data, "message")
	content := jsjson.Get(m, "content")
	block := jsjson.Index(content, 0)
	call := jsjson.Get(jsjson.Get(m, "source"), "callId")
	if jsjson.Len(content) != 1 || !is(block, "type", "tool-result") || !jsjson.Equal(jsjson.Get(block, "toolCallId"), call) || jsjson.KindOf(jsjson.Get(block, "content")) != jsjson.Array {
		t.c.refuse(step(3), r, "MSG-SHAPE", "", "the tool/result is not exactly one tool-result block for the call of its source")
		return false
	}
	for b := range jsjson.Elements(jsjson.Get(block, "content")) {
		if is(b, "type", "tool-result") {
			t.c.refuse(step(3), r, "MSG-BLOCK", "", "a tool result holds another tool result")
			return false
		}
	}
	out := []byte(`{"role":"tool"`)
	add := func(key string, v []byte) {
		if v != nil {
			out = append(jsjson.AppendQuote(append(out, ','), key), ':')
			out = append(out, v...)
		}
	}
	add("source", jsjson.Get(m, "source"))
	add("toolCallId", jsjson.Get(block, "toolCallId"))
	add("content", jsjson.Get(block, "content"))
	add("isError", jsjson.Get(block, "isError"))
	add("id", jsjson.Get(m, "id"))
	for k, v := range jsjson.Members(m) {
		if key, _ := jsjson.Str(k); !contains([]string{"role", "source", "content", "id"}, key) {
			add("plugin:message:"+key, v)
		}
	}
	for k, v := range jsjson.Members(block) {
		if key, _ := jsjson.Str(k); !contains([]string{"type", "toolCallId", "content", "isError"}, key) {
			add("plugin:result:"+key, v)
		}
	}
	r.data = with(r.data, "message", append(out, '}'))
	return true
}
