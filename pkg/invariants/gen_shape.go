package invariants

import (
	"slices"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// genShapes are payloads that generations after 0 brought or changed; the others
// are those of generation 0.
var genShapes = map[string]eventShape{
	"assistant/message": {parts: []part{must("turn", positive), must("step", positive), must("stream", anArray), {key: "usage", is: usage, opt: true},
		{key: "interrupted", is: yes, opt: true, hard: true}}, message: "message"},
	"assistant/attempt":        {parts: []part{must("turn", positive), must("step", positive), must("stream", anArray)}},
	"system/message":           {parts: []part{must("turn", positive), must("step", positive)}, message: "message"},
	"developer/message":        {parts: []part{must("turn", positive), must("step", positive)}},
	"session/end-seed":         {parts: []part{{key: "inherited", is: yes, opt: true, hard: true}}},
	"tool/ptc-dispatch-start":  {parts: dispatchParts},
	"tool/ptc-dispatch":        {parts: slices.Concat(dispatchParts, []part{{key: "isError", is: boolean}, {key: "content", is: blocks}})},
	"deliverables/presented":   {parts: []part{{key: "turn", is: positive}, {key: "callId", is: str}, {key: "files", is: anArray}}},
	"feedback/record":          {parts: []part{{key: "text", is: str, opt: true}, {key: "category", is: str, opt: true}}},
	"feedback/message-put":     {parts: []part{{key: "sessionId", is: str}, {key: "item", is: object(part{key: "messageId", is: str}, part{key: "rating", is: oneOf("positive", "negative")})}}},
	"feedback/message-delete":  {parts: []part{{key: "sessionId", is: str}, {key: "messageId", is: str}}},
	"image/offload":            {parts: []part{must("targets", list(object(must("seq", count), must("imageIndexes", list(count)))))}},
	"subagent/catalog":         {parts: []part{must("version", count), must("childId", text), must("childCreatedAt", count), must("mode", str), {key: "label", is: str, opt: true}}},
	"workspace/changes":        {parts: []part{{key: "turn", is: positive}}},
	"working-directory/change": {parts: []part{{key: "cwd", is: str}}},
	"team/message/queued": {parts: []part{{key: "version", is: num}, {key: "teamId", is: str},
		{key: "message", is: object(part{key: "id", is: str}, part{key: "senderId", is: str}, part{key: "targetId", is: str}, part{key: "content", is: some})}}},
	"request/context": {parts: []part{{key: "provider", is: str}, {key: "model", is: str}, {key: "contextWindow", is: num, opt: true}, {key: "systemPromptUpdate", is: str, opt: true}}},
}

// coreTypes are those whose payload the harness looks at in every generation.
var coreTypes = []string{
	"turn/start", "turn/end", "step/start", "step/end", "user/message", "assistant/message", "assistant/attempt", "system/message", "developer/message",
	"tool/call", "tool/result", "session/end-seed", "compaction/start", "compaction/summary", "compaction/end", "llm/retry", "llm/retry-started",
	"session/title", "command/run", "command/done", "image/offload", "subagent/catalog", "tool/ptc-dispatch", "tool/ptc-dispatch-start",
	"tool/code-dispatch", "tool/code-dispatch-start",
}

// genShape judges the payload of an event: members that its type has to have, of
// the right kind, and none that its generation does not know.
func genShape(c *Context, e *logfmt.Event) {
	members, ok := c.gen.types[e.Type]
	if !ok || e.Fault&logfmt.FaultNoData != 0 {
		return
	}
	is, changed := genShapes[e.Type]
	if !changed || !c.gen.loose && e.Type == "assistant/message" {
		is = eventShapes[e.Type]
	}
	if jsjson.KindOf(e.Data) != jsjson.Object {
		if is.message != "." { // said by the rule about messages
			c.Report(e, "data", "data of %s is %s, expected an object", e.Type, show(e.Data))
		}
		return
	}
	core := slices.Contains(coreTypes, e.Type)
	c.soft = c.gen.loose && !core
	defer func() { c.soft = false }()
	forked := e.Type == "turn/end" && c.gen.bare && jsjson.StrEq(jsjson.Get(jsjson.Get(e.Data, "reason"), "kind"), "forked")
	s := shaper{c: c, e: e, checked: is.checked, hard: true}
	s.parts(e.Data, is.parts)
	if is.more != nil && !forked {
		is.more(&s)
	}
	if is.message != "" {
		s.hard = false
		s.message(is.message)
	}
	if forked && (c.log.Header.Seeded == nil || !*c.log.Header.Seeded || c.Inherited(e)) {
		c.Report(e, "data.reason.kind", "the turn ends as forked, expected that only behind the inherited events of a seeded log")
	}
	for _, key := range members.required {
		if jsjson.Get(e.Data, key) == nil && key != is.message && !slices.ContainsFunc(is.parts, func(p part) bool { return p.key == key && s.due(&p) }) &&
			!slices.Contains(messageMembers[e.Type], key) {
			c.Report(e, "data."+key, "%s of %s is absent, which every one of generation %d has", key, e.Type, c.gen.version)
		}
	}
	for k := range jsjson.Members(e.Data) {
		key, _ := jsjson.Str(k)
		if slices.Contains(members.required, key) || slices.Contains(members.optional, key) || is.more != nil && (e.Type == "turn/end" || e.Type == "turn/start") {
			continue
		}
		f := c.Report(e, "data."+string(appendSafe(nil, key, 24)), "%s has the further member %s, which builds of generation %d (%s) do not write", e.Type, quoted(key), c.gen.version, c.gen.builds)
		if c.gen.loose {
			f.Severity = Warning // kept as it is
		}
	}
}

// messageMembers are members whose absence the rule about messages reports.
var messageMembers = map[string][]string{
	"user/message":      {"role", "id", "content", "source"},
	"system/message":    {"message"},
	"developer/message": {"message"},
	"request/header":    {"header", "reason"},
}
