package invariants

import (
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

func checkTrigger(c *Context, e *logfmt.Event) {
	t := jsjson.Get(e.Data, "trigger")
	if t == nil {
		if c.Builds.Before(buildReact) && !c.Inherited(e) {
			c.Report(e, "data.trigger", "trigger of turn/start is absent, expected an object until %s", buildReact)
		}
		return
	}
	if jsjson.KindOf(t) != jsjson.Object || wantText(jsjson.Get(t, "kind")) != "" {
		c.Report(e, "data.trigger", "trigger of turn/start is %s, expected an object whose kind is a non-empty string", show(t))
	}
	switch kind, _ := jsjson.Str(jsjson.Get(t, "kind")); kind {
	case "message", "injection":
		src := jsjson.Get(t, "source")
		if jsjson.KindOf(src) != jsjson.Object || wantText(jsjson.Get(src, "kind")) != "" {
			c.Report(e, "data.trigger.source", "source of the trigger %s is %s, expected an object whose kind is a non-empty string", kind, show(src)).Severity = Warning
		}
	case "continuation", "session-title", "retry", "":
	default: // every build lets it pass
		c.Report(e, "data.trigger.kind", "trigger kind of turn/start is %s, expected one that a build wrote", quoted(kind)).Severity = Note
	}
	if extra := keysBut(e.Data, "turn", "trigger"); extra != "" {
		c.Report(e, "data", "turn/start has the further key %s, expected exactly turn and trigger", extra)
	}
}

// keysBut names the first key of an object beyond the given ones, "" when there
// is none.
func keysBut(obj []byte, keys ...string) string {
next:
	for k := range jsjson.Members(obj) {
		s, _ := jsjson.Str(k)
		for _, key := range keys {
			if s == key {
				continue next
			}
		}
		return quoted(s)
	}
	return ""
}

func checkReason(c *Context, e *logfmt.Event) {
	if extra := keysBut(e.Data, "turn", "reason"); extra != "" {
		c.Report(e, "data", "turn/end has the further key %s, expected exactly turn and reason", extra)
	}
	r := jsjson.Get(e.Data, "reason")
	if jsjson.KindOf(r) != jsjson.Object {
		return
	}
	kind, ok := jsjson.Str(jsjson.Get(r, "kind"))
	if !ok {
		c.Report(e, "data.reason.kind", "reason kind of turn/end is %s, expected a string", show(jsjson.Get(r, "kind")))
		return
	}
	exact := func(keys ...string) {
		if extra := keysBut(r, keys...); extra != "" {
			c.Report(e, "data.reason", "reason %s of turn/end has the further key %s", kind, extra)
		}
	}
	member := func(key string, w want, opt bool) {
		v := jsjson.Get(r, key)
		if v == nil && opt {
			return
		}
		if exp := w(v); exp != "" {
			c.Report(e, "data.reason."+key, "%s of reason %s is %s, expected %s", key, kind, show(v), exp)
		}
	}
	switch kind {
	case "completed", "max-tokens", "interrupted", "blocked", "disposed":
		exact("kind")
	case "aborted":
		why := jsjson.Get(r, "reason")
		switch jsjson.KindOf(why) {
		case jsjson.Absent:
			exact("kind")
			if jsjson.Len(r) == 1 && c.Builds.Since(buildReact) && !c.Inherited(e) {
				c.Report(e, "data.reason.reason", "cause of reason aborted is absent, expected an object from %s", buildReact).Severity = Warning
			}
		case jsjson.Object:
			cause(c, e, why)
			exact("kind", "reason")
		case jsjson.String:
			exact("kind", "reason")
			if c.Builds.Since(buildCompanions) {
				c.Report(e, "data.reason.reason", "cause of reason aborted is %s, expected none from %s and an object from %s", show(why), buildCompanions, buildReact)
			}
		default:
			c.Report(e, "data.reason.reason", "cause of reason aborted is %s, expected an object, and a string before %s", show(why), buildCompanions)
		}
	case "error":
		switch {
		case jsjson.Get(r, "error") != nil:
			member("error", wantObject, false)
			failure(c, e, jsjson.Get(r, "error"), "data.reason.error")
			exact("kind", "error")
		case jsjson.Get(r, "failure") != nil:
			member("failure", wantObject, false)
			member("step", wantCount, false)
			failure(c, e, jsjson.Get(r, "failure"), "data.reason.failure")
			exact("kind", "step", "failure")
		default:
			member("message", wantString, false)
			member("code", wantString, true)
			if c.Builds.Since(eraStart[fold.E1]) {
				member("step", wantCount, false)
			}
			exact("kind", "step", "message", "code")
		}
	case "rejected":
		if v := jsjson.Get(r, "reason"); wantString(v) != "" {
			c.Report(e, "data.reason.reason", "reason of reason rejected is %s, expected a string", show(v)).Severity = Warning
		}
	default:
		f := c.Report(e, "data.reason.kind", "reason kind of turn/end is %s, expected one that a build wrote", quoted(kind))
		f.Severity = Warning // passed through by every build
	}
}

// cause checks what a turn was aborted by.
func cause(c *Context, e *logfmt.Event, why []byte) {
	kind := jsjson.Get(why, "kind")
	if exp := wantText(kind); exp != "" {
		c.Report(e, "data.reason.reason.kind", "kind of the cause of reason aborted is %s, expected %s", show(kind), exp)
		return
	}
	switch k, _ := jsjson.Str(kind); k {
	case "user", "parent", "disposed", "legacy":
	case "hook":
		if v := jsjson.Get(why, "reason"); wantString(v) != "" {
			c.Report(e, "data.reason.reason.reason", "reason of the cause hook is %s, expected a string", show(v)).Severity = Warning
		}
	default:
		c.Report(e, "data.reason.reason.kind", "kind of the cause of reason aborted is %s, expected one that a build wrote", show(kind)).Severity = Warning
	}
}

// failure checks an LlmFailure (SEMANTICS §1.0).
func failure(c *Context, e *logfmt.Event, v []byte, path string) {
	if jsjson.KindOf(v) != jsjson.Object {
		return
	}
	for _, m := range [...]member{
		{key: "message", want: wantString}, {key: "code", want: wantString}, {key: "status", want: wantNumber, opt: true},
		{key: "providerRetryAfterMs", want: wantNumber, opt: true}, {key: "requestId", want: wantString, opt: true},
	} {
		x := jsjson.Get(v, m.key)
		if x == nil && m.opt {
			continue
		}
		if exp := m.want(x); exp != "" {
			c.Report(e, path+"."+m.key, "%s of the failure is %s, expected %s", m.key, show(x), exp)
		}
	}
}

// chunk checks a chunk as a stream of the model brought it.
func (s *shaper) chunk() {
	c, e := s.c, s.e
	ch := c.payload[2]
	if jsjson.KindOf(ch) != jsjson.Object {
		return
	}
	typ := c.chunkIs
	if typ == "" {
		v := jsjson.Get(ch, "type")
		if jsjson.KindOf(v) != jsjson.String {
			c.Report(e, "data.chunk.type", "type of the chunk is %s, expected a string", show(v))
			return
		}
		c.Report(e, "data.chunk.type", "type of the chunk is %s, expected one of block-start, text-delta, reasoning-delta, tool-call-delta, block-end, usage, finish", show(v)).Severity = Warning
		return
	}
	if typ != "usage" && typ != "finish" {
		if v := jsjson.Get(ch, "index"); wantNumber(v) != "" { // which number, is STREAM-INDEX
			c.Report(e, "data.chunk.index", "index of the chunk is %s, expected a whole number from 0", show(v))
		}
	}
	s.path = append(s.path[:0], hop{key: "chunk"})
	s.parts(ch, chunkShapes[typ])
}

// plainDelta recognises a text or reasoning delta as the writer puts it, which
// is what most of a log consists of: type, a small index, text.
func plainDelta(ch []byte, typ string) bool {
	if typ != "text-delta" && typ != "reasoning-delta" {
		return false
	}
	const before, after = `{"type":"`, `","index":`
	rest := ch[len(before):]
	if string(ch[:len(before)]) != before || len(rest) < len(typ)+len(after)+8 {
		return false
	}
	rest = rest[len(typ):]
	if string(rest[:len(after)]) != after {
		return false
	}
	rest = rest[len(after):]
	n := 0
	for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
		n++
	}
	const text = `,"text":"`
	return n > 0 && n < 10 && len(rest) > n+len(text) && string(rest[n:n+len(text)]) == text
}
