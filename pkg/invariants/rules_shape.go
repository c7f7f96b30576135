package invariants

import (
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about the payload of the core events.
var shapeRules = []*Rule{
	{
		ID: "EVT-SHAPE", Severity: Error, Alone: true, Spec: "SEMANTICS §1.0, §1.1, §8.3; PHYSICAL §6.2, §7.6",
		Title:  "the data of an event has the members its type asks for",
		Text:   "Turns and steps are numbered by whole numbers from 1, a chunk names its block, a tool call carries its id, name and raw arguments, and a turn ends for a reason of a known form. A member that is missing or of another type leaves the event without the meaning that later events rely on.",
		How:    "The event was edited, or written by a program other than the harness.",
		Advice: "Compare the event with a copy of the session. Requests that depend on it are rebuilt on a guess at best.",
		Types: []string{"turn/start", "turn/end", "step/start", "step/end", "assistant/chunk", "assistant/message", "tool/call",
			"tool/result", "steering/message", "request/context", "todo/write", "session/end-seed",
			"usage", "error", "prompt/blocked", "compact/start", "compact/end", "compact/summary", "compaction/start", "compaction/end", "compaction/summary"},
		New: stateless(checkShape),
	},
	{
		ID: "MSG-SHAPE", Severity: Error, Alone: true, Spec: "SEMANTICS §2, §3.3; PHYSICAL §6.5",
		Title:  "a message is whole",
		Text:   "A message that the model sees has the role of its event, an array of content and a source with a kind; from 07-28 an id of its own. The answer of a model names provider and model, a tool result holds exactly one block and answers the call it names. The harness checks this at every append and at every load.",
		How:    "The event was edited, or a plugin wrote it past the harness.",
		Advice: "Restore the event from a copy. The harness refuses to load the session with it.",
		Types:  []string{"user/message", "assistant/message", "tool/result", "context/message", "steering/message"},
		New:    stateless(checkMessage),
	},
}

// A want is what a member has to be; it returns "" or what was expected.
type want func(v []byte) string

func wantPositive(v []byte) string {
	if n, ok := jsjson.SafeInt(v); ok && n >= 1 {
		return ""
	}
	return "a whole number from 1"
}

func wantCount(v []byte) string {
	if n, ok := jsjson.SafeInt(v); ok && n >= 0 {
		return ""
	}
	return "a whole number from 0"
}

func wantNumber(v []byte) string {
	if jsjson.KindOf(v) == jsjson.Number {
		return ""
	}
	return "a number"
}

func wantString(v []byte) string {
	if jsjson.KindOf(v) == jsjson.String {
		return ""
	}
	return "a string"
}

func wantText(v []byte) string {
	if jsjson.KindOf(v) == jsjson.String && len(v) > 2 {
		return ""
	}
	return "a non-empty string"
}

func wantBool(v []byte) string {
	if jsjson.KindOf(v) == jsjson.Bool {
		return ""
	}
	return "true or false"
}

func wantTrue(v []byte) string {
	if string(v) == "true" {
		return ""
	}
	return "true or no such member"
}

func wantArray(v []byte) string {
	if jsjson.KindOf(v) == jsjson.Array {
		return ""
	}
	return "an array"
}

func wantObject(v []byte) string {
	if jsjson.KindOf(v) == jsjson.Object {
		return ""
	}
	return "an object"
}

func wantOwner(v []byte) string {
	if jsjson.KindOf(v) == jsjson.Null {
		return ""
	}
	if wantPositive(v) == "" {
		return ""
	}
	return "a turn number or null"
}

// member is one member of a payload.
type member struct {
	key  string
	want want
	opt  bool
}

// shapes of the payloads that have no further structure to look at.
var shapes = map[string][]member{
	"turn/start":         {{key: "turn", want: wantPositive}},
	"turn/end":           {{key: "turn", want: wantPositive}, {key: "reason", want: wantObject}},
	"step/start":         {{key: "turn", want: wantPositive}, {key: "step", want: wantPositive}},
	"step/end":           {{key: "turn", want: wantPositive}, {key: "step", want: wantPositive}},
	"assistant/chunk":    {{key: "turn", want: wantPositive}, {key: "step", want: wantPositive}, {key: "chunk", want: wantObject}},
	"assistant/message":  {{key: "turn", want: wantPositive}, {key: "step", want: wantPositive}, {key: "usage", want: wantObject, opt: true}, {key: "interrupted", want: wantTrue, opt: true}},
	"tool/call":          {{key: "turn", want: wantPositive}, {key: "step", want: wantPositive}, {key: "callId", want: wantString}, {key: "name", want: wantString}, {key: "arguments", want: wantString}},
	"tool/result":        {{key: "turn", want: wantPositive}, {key: "step", want: wantPositive}, {key: "error", want: wantObject, opt: true}},
	"steering/message":   {{key: "turn", want: wantPositive}},
	"request/context":    {{key: "provider", want: wantString}, {key: "model", want: wantString}, {key: "contextWindow", want: wantNumber, opt: true}},
	"todo/write":         {{key: "todos", want: wantArray}},
	"session/end-seed":   {},
	"usage":              {{key: "turn", want: wantPositive}, {key: "step", want: wantPositive}, {key: "usage", want: wantObject}},
	"error":              {{key: "turn", want: wantPositive}, {key: "step", want: wantPositive}, {key: "message", want: wantString}},
	"prompt/blocked":     {{key: "content", want: wantArray}, {key: "source", want: wantObject}},
	"compact/start":      {{key: "turn", want: wantOwner}},
	"compact/end":        {{key: "turn", want: wantOwner}, {key: "error", want: wantString, opt: true}},
	"compact/summary":    summaryShape,
	"compaction/start":   {{key: "compactionId", want: wantText}, {key: "turn", want: wantOwner}},
	"compaction/end":     {{key: "compactionId", want: wantText}, {key: "turn", want: wantOwner}, {key: "error", want: wantString, opt: true}},
	"compaction/summary": append([]member{{key: "compactionId", want: wantText}}, summaryShape...),
}

var summaryShape = []member{
	{key: "summary", want: wantArray}, {key: "shadowedRange", want: wantObject},
	{key: "shadowedSeqs", want: wantArray}, {key: "shadowedTokenCount", want: wantNumber},
}

func checkShape(c *Context, e *logfmt.Event) {
	if e.Fault&logfmt.FaultNoData != 0 {
		return // said of the envelope
	}
	if jsjson.KindOf(e.Data) != jsjson.Object {
		c.Report(e, "data", "data of %s is %s, expected an object", e.Type, show(e.Data))
		return
	}
	if e.Type == "assistant/chunk" && c.turn > 0 && c.step > 0 && jsjson.KindOf(c.payload[2]) == jsjson.Object {
		checkChunk(c, e)
		return
	}
	for _, m := range shapes[e.Type] {
		v := jsjson.Get(e.Data, m.key)
		if v == nil && m.opt {
			continue
		}
		if exp := m.want(v); exp != "" {
			c.Report(e, "data."+m.key, "%s of %s is %s, expected %s", m.key, e.Type, show(v), exp)
		}
	}
	switch e.Type {
	case "assistant/chunk":
		checkChunk(c, e)
	case "turn/start":
		checkTrigger(c, e)
	case "turn/end":
		checkReason(c, e)
	}
}

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
		case jsjson.Object:
			if exp := wantText(jsjson.Get(why, "kind")); exp != "" {
				c.Report(e, "data.reason.reason.kind", "kind of the cause of reason aborted is %s, expected %s", show(jsjson.Get(why, "kind")), exp)
			}
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
	default:
		f := c.Report(e, "data.reason.kind", "reason kind of turn/end is %s, expected one that a build wrote", quoted(kind))
		f.Severity = Warning // passed through by every build
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

// chunkShapes are the members of a chunk by its type, index apart.
var chunkShapes = map[string][]member{
	"block-start":     {{key: "blockType", want: wantString}},
	"text-delta":      {{key: "text", want: wantString}},
	"reasoning-delta": {{key: "text", want: wantString}},
	"tool-call-delta": {{key: "id", want: wantString}, {key: "name", want: wantString, opt: true}, {key: "argumentsDelta", want: wantString}},
	"block-end":       {{key: "block", want: wantObject}},
	"usage":           {{key: "usage", want: wantObject}},
	"finish":          {{key: "reason", want: wantObject}},
}

func checkChunk(c *Context, e *logfmt.Event) {
	ch := c.payload[2]
	if jsjson.KindOf(ch) != jsjson.Object {
		return
	}
	typ := chunkType(ch)
	if typ == "" {
		v := jsjson.Get(ch, "type")
		if jsjson.KindOf(v) != jsjson.String {
			c.Report(e, "data.chunk.type", "type of the chunk is %s, expected a string", show(v))
			return
		}
		c.Report(e, "data.chunk.type", "type of the chunk is %s, expected one of block-start, text-delta, reasoning-delta, tool-call-delta, block-end, usage, finish", show(v)).Severity = Warning
		return
	}
	if plainDelta(ch, typ) {
		return
	}
	if typ != "usage" && typ != "finish" {
		if v := jsjson.Get(ch, "index"); wantCount(v) != "" {
			c.Report(e, "data.chunk.index", "index of the chunk is %s, expected a whole number from 0", show(v))
		}
	}
	for _, m := range chunkShapes[typ] {
		v := jsjson.Get(ch, m.key)
		if v == nil && m.opt {
			continue
		}
		if exp := m.want(v); exp != "" {
			c.Report(e, "data.chunk."+m.key, "%s of the chunk is %s, expected %s", m.key, show(v), exp)
		}
	}
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

// checkMessage judges the message of a surface event. The shape tells whether
// it is an identified one (from 07-28) or one of those before.
func checkMessage(c *Context, e *logfmt.Event) {
	d := e.Data
	if jsjson.KindOf(d) != jsjson.Object {
		if e.Type == "user/message" || e.Type == "context/message" {
			if e.Fault&logfmt.FaultNoData == 0 {
				c.Report(e, "data", "data of %s is %s, expected an object", e.Type, show(d))
			}
		}
		return
	}
	m := messageCheck{c: c, e: e}
	nested := jsjson.Get(d, "message")
	switch e.Type {
	case "user/message":
		if jsjson.Get(d, "role") != nil || jsjson.Get(d, "id") != nil || c.Builds.Since(buildMessages) && jsjson.Get(d, "source") == nil {
			m.identified(d, "data")
			return
		}
		m.legacy(d)
	case "context/message":
		m.legacy(d)
	case "steering/message":
		if nested != nil {
			m.identified(nested, "data.message")
			return
		}
		m.legacy(d)
	case "assistant/message":
		switch {
		case nested != nil:
			m.identified(nested, "data.message")
		case jsjson.Get(d, "provenance") == nil && c.Builds.Since(buildMessages):
			c.Report(e, "data.message", "message of assistant/message is absent, expected an identified message from %s", buildMessages)
		default:
			m.array(d, "data", "content")
			m.provenance()
		}
	case "tool/result":
		switch {
		case nested != nil:
			m.identified(nested, "data.message")
		case c.Builds.Since(buildMessages) && jsjson.Get(d, "callId") == nil:
			c.Report(e, "data.message", "message of tool/result is absent, expected an identified message from %s", buildMessages)
		default:
			m.member(d, "data", member{key: "callId", want: wantString})
			m.array(d, "data", "content")
			m.member(d, "data", member{key: "isError", want: wantBool})
		}
	}
}

type messageCheck struct {
	c *Context
	e *logfmt.Event
}

func (m messageCheck) member(obj []byte, path string, w member) bool {
	v := jsjson.Get(obj, w.key)
	if v == nil && w.opt {
		return true
	}
	exp := w.want(v)
	if exp != "" {
		m.c.Report(m.e, path+"."+w.key, "%s of the message is %s, expected %s", w.key, show(v), exp)
	}
	return exp == ""
}

func (m messageCheck) array(obj []byte, path, key string) bool {
	return m.member(obj, path, member{key: key, want: wantArray})
}

// source checks that there is a source and that it says what kind it is.
func (m messageCheck) source(obj []byte, path string) []byte {
	if !m.member(obj, path, member{key: "source", want: wantObject}) {
		return nil
	}
	src := jsjson.Get(obj, "source")
	if !m.member(src, path+".source", member{key: "kind", want: wantText}) {
		return nil
	}
	return src
}

func (m messageCheck) legacy(d []byte) {
	m.array(d, "data", "content")
	m.source(d, "data")
}

func (m messageCheck) provenance() {
	p := jsjson.Get(m.e.Data, "provenance")
	if p == nil {
		if m.c.Builds.Since(buildProvider) {
			m.c.Report(m.e, "data.provenance", "provenance of assistant/message is absent, expected provider and model from %s", buildProvider)
		}
		return
	}
	if jsjson.KindOf(p) != jsjson.Object {
		m.c.Report(m.e, "data.provenance", "provenance of the message is %s, expected an object", show(p))
		return
	}
	m.member(p, "data.provenance", member{key: "provider", want: wantText})
	m.member(p, "data.provenance", member{key: "model", want: wantText})
}

func (m messageCheck) identified(msg []byte, path string) {
	if jsjson.KindOf(msg) != jsjson.Object {
		m.c.Report(m.e, path, "the message is %s, expected an object", show(msg))
		return
	}
	m.member(msg, path, member{key: "id", want: wantText})
	role := "user"
	if m.e.Type == "assistant/message" {
		role = "assistant"
	}
	if v := jsjson.Get(msg, "role"); !jsjson.StrEq(v, role) {
		m.c.Report(m.e, path+".role", "role of the message is %s, expected %q for %s", show(v), role, m.e.Type)
	}
	array := m.array(msg, path, "content")
	src := m.source(msg, path)
	switch m.e.Type {
	case "assistant/message":
		if src == nil {
			return
		}
		if !jsjson.StrEq(jsjson.Get(src, "kind"), "model") {
			m.c.Report(m.e, path+".source.kind", "source kind of assistant/message is %s, expected \"model\"", show(jsjson.Get(src, "kind")))
			return
		}
		m.member(src, path+".source", member{key: "provider", want: wantText})
		m.member(src, path+".source", member{key: "model", want: wantText})
	case "tool/result":
		m.toolResult(msg, path, src, array)
	}
}

func (m messageCheck) toolResult(msg []byte, path string, src []byte, array bool) {
	call := []byte(nil)
	if src != nil {
		if !jsjson.StrEq(jsjson.Get(src, "kind"), "tool") {
			m.c.Report(m.e, path+".source.kind", "source kind of tool/result is %s, expected \"tool\"", show(jsjson.Get(src, "kind")))
		} else if m.member(src, path+".source", member{key: "callId", want: wantText}) {
			call = jsjson.Get(src, "callId")
		}
	}
	if !array {
		return
	}
	content := jsjson.Get(msg, "content")
	if n := jsjson.Len(content); n != 1 {
		m.c.Report(m.e, path+".content", "content of tool/result has %d blocks, expected exactly one", n)
		return
	}
	block, at := jsjson.Index(content, 0), path+".content[0]"
	if !jsjson.StrEq(jsjson.Get(block, "type"), "tool-result") {
		m.c.Report(m.e, at+".type", "type of the block is %s, expected \"tool-result\"", show(jsjson.Get(block, "type")))
		return
	}
	if v := jsjson.Get(block, "content"); wantArray(v) != "" {
		m.c.Report(m.e, at+".content", "content of the tool-result block is %s, expected an array", show(v))
	}
	if v := jsjson.Get(block, "toolCallId"); call != nil && !jsjson.Equal(v, call) {
		m.c.Report(m.e, at+".toolCallId", "toolCallId of the block is %s, expected the callId of the message's source, %s", show(v), show(call))
	}
}
