package load

import (
	"strconv"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// known are the event types of that harness (PHYSICAL §7.4).
var known = map[string]bool{}

func init() {
	for _, t := range []string{
		logfmt.TypeAgentPresetSelected, logfmt.TypeAgentInboxSpliced, logfmt.TypeApprovalAsked, logfmt.TypeApprovalDecided,
		logfmt.TypeApprovalPolicy, logfmt.TypeAssistantChunk, logfmt.TypeAssistantMessage, logfmt.TypeCommandDone,
		logfmt.TypeCommandRun, logfmt.TypeCompactionEnd, logfmt.TypeCompactionPrune, logfmt.TypeCompactionStart,
		logfmt.TypeCompactionSummary, logfmt.TypeFeedbackRecord, logfmt.TypeGoalChange, logfmt.TypeHookInvoked,
		logfmt.TypeHookResult, logfmt.TypeLLMRetry, logfmt.TypeLLMRetryStarted, logfmt.TypePermissionPreset,
		logfmt.TypePlanMode, logfmt.TypeRequestContext, logfmt.TypeRequestHeader, logfmt.TypeSandboxMode,
		logfmt.TypeScheduleChange, logfmt.TypeSessionEndSeed, logfmt.TypeSessionTitle, logfmt.TypeSessionTitleLLMRequest,
		logfmt.TypeStepEnd, logfmt.TypeStepStart, logfmt.TypeSubagentDescriptor, logfmt.TypeTeamMember,
		logfmt.TypeTeamMessageDelivered, logfmt.TypeTeamMessageQueued, logfmt.TypeTeamTask, logfmt.TypeTodoWrite,
		logfmt.TypeToolWorkflowAgentEnd, logfmt.TypeToolWorkflowAgentStart, logfmt.TypeToolWorkflowRunEnd,
		logfmt.TypeToolWorkflowRunStart, logfmt.TypeToolCall, logfmt.TypeToolCodeDispatch, logfmt.TypeToolCodeDispatchStart,
		logfmt.TypeToolResult, logfmt.TypeTurnEnd, logfmt.TypeTurnStart, logfmt.TypeUserMessage,
		logfmt.TypeWebDeepseekSearchLLMRequest,
	} {
		known[t] = true
	}
}

// upgrade returns the event as the harness upgrades it (PHYSICAL §6.2), or the
// event itself. What only looks like an older dialect is left alone, and fails
// the checks that follow, or is refused here.
func (l *Loader) upgrade(e *logfmt.Event) *logfmt.Event {
	var typ string
	var data []byte
	ok := true
	switch e.Type {
	case logfmt.TypeTurnStart:
		data, ok = l.turnStart(e)
	case logfmt.TypeTurnEnd:
		data, ok = l.turnEnd(e)
	case logfmt.TypeSteeringMessage:
		typ = logfmt.TypeUserMessage
		data, ok = l.steering(e)
	case logfmt.TypeUserMessage:
		data = l.user(e.Data, e.Seq)
	case logfmt.TypeAssistantMessage:
		data = l.assistant(e)
	case logfmt.TypeToolResult:
		data = l.result(e)
	}
	if !ok {
		l.refuse(Upgrade, e, "data", "the %s is malformed: it is neither one of today nor one that it upgrades", e.Type)
		return e
	}
	if data == nil {
		return e
	}
	l.ev = *e
	if typ != "" {
		l.ev.Type = typ
	}
	var at [2]int
	l.buf, at = splice(l.buf[:0], e.JSON, typ, data)
	l.ev.JSON = l.buf
	l.ev.Data = l.buf[at[0]:at[1]:at[1]]
	return &l.ev
}

// splice appends an event with another type, unless typ is "", and other data.
// The order of the keys stays. It returns where the data stands.
func splice(dst, event []byte, typ string, data []byte) (_ []byte, at [2]int) {
	dst = append(dst, '{')
	first := true
	for k, v := range jsjson.Members(event) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(dst, k...), ':')
		switch {
		case typ != "" && string(k) == `"type"`:
			dst = jsjson.AppendQuote(dst, typ)
		case string(k) == `"data"`:
			at[0] = len(dst)
			dst = append(dst, data...)
			at[1] = len(dst)
		default:
			dst = append(dst, v...)
		}
	}
	return append(dst, '}'), at
}

// fields looks members up and reports whether the object has no others. Absent
// ones are nil.
func fields(obj []byte, dst [][]byte, names ...string) (only bool) {
	return jsjson.Fields(obj, dst, names) == 0
}

func isObject(v []byte) bool { return jsjson.KindOf(v) == jsjson.Object }
func isString(v []byte) bool { return jsjson.KindOf(v) == jsjson.String }

// isNumber reports a number; one beyond the doubles reads as infinity and is
// written as null.
func isNumber(v []byte, e *logfmt.Event) bool {
	return jsjson.KindOf(v) == jsjson.Number ||
		string(v) == "null" && jsjson.Facts(e.Facts)&jsjson.NumberOverflow != 0
}

// atLeast reports a safe integer of at least n.
func atLeast(v []byte, n int64) bool {
	i, ok := jsjson.SafeInt(v)
	return ok && i >= n
}

// turnStart is PHYSICAL §6.2a: the trigger is dropped.
func (l *Loader) turnStart(e *logfmt.Event) ([]byte, bool) {
	var f [2][]byte
	only := fields(e.Data, f[:], "turn", "trigger")
	turn, trigger := f[0], f[1]
	if trigger == nil {
		return nil, true
	}
	kind := jsjson.Get(trigger, "kind")
	if !only || !atLeast(turn, 1) || !isObject(trigger) || !isString(kind) || len(kind) == 2 {
		return nil, false
	}
	l.tmp = append(append(l.tmp[:0], `{"turn":`...), turn...)
	return append(l.tmp, '}'), true
}

// turnEnd is PHYSICAL §6.2b. It holds today's events to their shape as well.
func (l *Loader) turnEnd(e *logfmt.Event) ([]byte, bool) {
	if !isObject(e.Data) {
		return nil, true
	}
	var f [2][]byte
	only := fields(e.Data, f[:], "turn", "reason")
	turn, reason := f[0], f[1]
	kind, ok := jsjson.Str(jsjson.Get(reason, "kind"))
	if !only || !atLeast(turn, 1) || !isObject(reason) || !ok {
		return nil, false
	}
	bare := jsjson.Len(reason) == 1
	to := ""
	var fault []byte
	switch kind {
	case "completed", "blocked", "max-tokens", "interrupted":
		return nil, bare
	case "aborted":
		if jsjson.Get(reason, "reason") != nil {
			return nil, true
		}
		to = `{"kind":"aborted","reason":{"kind":"legacy"}}`
	case "disposed":
		to = `{"kind":"aborted","reason":{"kind":"disposed"}}`
	case "error":
		if jsjson.Get(reason, "error") != nil {
			return nil, true
		}
		fault, bare = failure(reason, e)
		to = `{"kind":"error","error":`
	default:
		return nil, true
	}
	if !bare {
		return nil, false
	}
	// The order of turn and reason is the stored one: reason is exchanged in place.
	b := append(l.tmp[:0], '{')
	for k, v := range jsjson.Members(e.Data) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(b, k...), ':')
		switch {
		case string(k) != `"reason"`:
			b = append(b, v...)
		case fault != nil:
			b = append(append(append(b, to...), fault...), '}')
		default:
			b = append(b, to...)
		}
	}
	l.tmp = b
	return append(b, '}'), true
}

// failure reads the error of a reason that builds of 06-21 to 08-05 wrote.
func failure(reason []byte, e *logfmt.Event) ([]byte, bool) {
	var f [5][]byte
	if !fields(reason, f[:], "kind", "step", "failure", "message", "code") || !atLeast(f[1], 0) {
		return nil, false
	}
	if fail := f[2]; fail != nil {
		var m [5][]byte
		ok := f[3] == nil && f[4] == nil && isObject(fail) &&
			fields(fail, m[:], "message", "code", "requestId", "status", "providerRetryAfterMs") &&
			isString(m[0]) && isString(m[1]) && (m[2] == nil || isString(m[2])) &&
			(m[3] == nil || isNumber(m[3], e)) && (m[4] == nil || isNumber(m[4], e))
		return fail, ok
	}
	if !isString(f[3]) || f[4] != nil && !isString(f[4]) {
		return nil, false
	}
	b := append([]byte(`{"message":`), f[3]...)
	code := f[4]
	if code == nil {
		code = []byte(`"UNKNOWN"`)
	}
	b = append(append(b, `,"code":`...), code...)
	return append(b, '}'), true
}

// steering is PHYSICAL §6.2c: it becomes a user/message.
func (l *Loader) steering(e *logfmt.Event) ([]byte, bool) {
	var f [4][]byte
	only := fields(e.Data, f[:], "turn", "message", "content", "source")
	if _, ok := jsjson.SafeInt(f[0]); !ok || !only {
		return nil, false
	}
	switch {
	case f[1] != nil && f[2] == nil && f[3] == nil && isObject(f[1]):
		if up := l.user(f[1], e.Seq); up != nil {
			return up, true
		}
		return f[1], true
	case f[1] == nil && f[2] != nil && f[3] != nil:
		b := append(without(l.tmp[:0], e.Data, `"turn"`), `,"id":`...)
		b = l.legacyID(b, e.Seq)
		l.tmp = append(b, `,"role":"user"}`...)
		return l.tmp, true
	}
	return nil, false
}

// without appends an object without some of its members and without the brace at
// its end. Keys are tokens with their quotes.
func without(dst, obj []byte, keys ...string) []byte {
	dst = append(dst, '{')
	n := 0
next:
	for k, v := range jsjson.Members(obj) {
		for _, key := range keys {
			if string(k) == key {
				continue next
			}
		}
		if n++; n > 1 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, k...), ':'), v...)
	}
	return dst
}

// legacyID appends the id of an upgraded message, a JSON string.
func (l *Loader) legacyID(dst []byte, seq int64) []byte {
	return jsjson.AppendQuote(dst, "legacy-message:"+l.id+":"+strconv.FormatInt(seq, 10))
}

// user is the first row of PHYSICAL §6.2d: id and role are added. It returns nil
// for a message that it does not apply to.
func (l *Loader) user(data []byte, seq int64) []byte {
	var f [5][]byte
	fields(data, f[:], "content", "source", "role", "id", "message")
	if f[0] == nil || f[1] == nil || f[2] != nil || f[3] != nil || f[4] != nil {
		return nil
	}
	b := append(l.tmp[:0], data[:len(data)-1]...)
	b = l.legacyID(append(b, `,"id":`...), seq)
	l.tmp = append(b, `,"role":"user"}`...)
	return l.tmp
}

// assistant is the second row of PHYSICAL §6.2d.
func (l *Loader) assistant(e *logfmt.Event) []byte {
	var f [3][]byte
	fields(e.Data, f[:], "message", "content", "provenance")
	if f[0] != nil || f[1] == nil || f[2] == nil {
		return nil
	}
	b := without(l.tmp[:0], e.Data, `"content"`, `"provenance"`)
	if len(b) > 1 {
		b = append(b, ',')
	}
	b = l.legacyID(append(b, `"message":{"id":`...), e.Seq)
	b = append(append(b, `,"role":"assistant","content":`...), f[1]...)
	b = append(b, `,"source":{`...)
	found, n := false, 0
	for k, v := range jsjson.Members(f[2]) {
		if n++; n > 1 {
			b = append(b, ',')
		}
		b = append(append(b, k...), ':')
		if string(k) == `"kind"` {
			found = true
			v = []byte(`"model"`)
		}
		b = append(b, v...)
	}
	if !found {
		if n > 0 {
			b = append(b, ',')
		}
		b = append(b, `"kind":"model"`...)
	}
	l.tmp = append(b, `}}}`...)
	return l.tmp
}

// result is the third row of PHYSICAL §6.2d. One that replaces another takes over
// its id; where that is not known the id is left out, and the event refused.
func (l *Loader) result(e *logfmt.Event) []byte {
	var f [4][]byte
	fields(e.Data, f[:], "message", "callId", "content", "isError")
	if f[0] != nil || f[1] == nil || f[2] == nil || f[3] == nil {
		return nil
	}
	b := without(l.tmp[:0], e.Data, `"callId"`, `"content"`, `"isError"`)
	if len(b) > 1 {
		b = append(b, ',')
	}
	b = append(b, `"message":{`...)
	if jsjson.StrEq(jsjson.Get(e.Op, "op"), "replace") {
		if start, ok := jsjson.SafeInt(jsjson.Get(e.Op, "start")); ok && l.ids[start] != nil {
			b = append(append(append(b, `"id":`...), l.ids[start]...), ',')
		}
	} else {
		b = append(l.legacyID(append(b, `"id":`...), e.Seq), ',')
	}
	b = append(b, `"role":"user","content":[{"type":"tool-result","toolCallId":`...)
	b = append(b, f[1]...)
	b = append(append(b, `,"content":`...), f[2]...)
	b = append(append(b, `,"isError":`...), f[3]...)
	b = append(append(b, `}],"source":{"kind":"tool","callId":`...), f[1]...)
	l.tmp = append(b, `}}}`...)
	return l.tmp
}
