package invariants

import (
	"slices"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
)

// Builds of which only the day is known: what came is asked for from the next
// day on, what went until the day itself.
const (
	dayNoOldImage   Build = 7_04_00_00 // the url of an image went
	daySummaryModel Build = 7_07_00_00
	dayContentFrom  Build = 7_27_00_00 // content of tool/code-dispatch came
	daySummaryUntil Build = 7_26_00_00 // its resultSummary went
	dayRetryMode    Build = 7_28_00_00
	dayImage        Build = 8_11_00_00
	buildIDs        Build = 8_09_21_00 // ids of compactions, retries and root calls
	buildArgs       Build = 8_07_15_44 // args of command/run may be left out
)

// eventShapes is the payload of every event type by era (SEMANTICS §1, PHYSICAL
// §6, §7). Core events were checked from the start, those of plugins by their
// companions, from the build that is given as checked. What a companion says
// about the values in a payload is a rule of its own.
var eventShapes = map[string]eventShape{
	"turn/start":        {parts: []part{must("turn", positive)}, more: func(s *shaper) { checkTrigger(s.c, s.e) }},
	"turn/end":          {parts: []part{must("turn", positive), must("reason", anObject)}, more: func(s *shaper) { checkReason(s.c, s.e) }},
	"step/start":        {parts: []part{must("turn", positive), must("step", positive)}},
	"step/end":          {parts: []part{must("turn", positive), must("step", positive)}},
	"user/message":      {message: "."},
	"context/message":   {message: "."},
	"steering/message":  {parts: []part{must("turn", positive)}, message: "message"},
	"assistant/chunk":   {parts: []part{must("turn", positive), must("step", positive), must("chunk", anObject)}, more: (*shaper).chunk},
	"assistant/message": {parts: []part{must("turn", positive), must("step", positive), {key: "usage", is: usage, opt: true, hard: true}, {key: "interrupted", is: yes, opt: true, hard: true}}, message: "message"},
	"tool/call":         {parts: []part{must("turn", positive), must("step", positive), must("callId", str), must("name", str), must("arguments", str)}},
	"tool/result": {parts: []part{must("turn", positive), must("step", positive), {key: "error", opt: true, hard: true,
		is: object(part{key: "name", is: str}, part{key: "code", is: str})}}, message: "message"},
	"request/context":  {parts: []part{must("provider", str), must("model", str), {key: "contextWindow", is: num, opt: true, hard: true}}},
	"todo/write":       {checked: buildCompanions, parts: []part{must("todos", list(object(must("content", str), must("status", str))))}},
	"session/end-seed": {},
	"usage":            {parts: []part{must("turn", positive), must("step", positive), must("usage", usage)}},
	"error":            {parts: []part{must("turn", positive), must("step", positive), must("message", str), {key: "code", is: str, opt: true}}},
	"prompt/blocked":   {parts: []part{{key: "content", is: blocks}, {key: "source", is: source}, {key: "reason", is: str}}},

	"compact/start":      {checked: buildCompanions, parts: slices.Concat(idParts, []part{must("turn", owner)})},
	"compact/summary":    {checked: buildCompanions, parts: slices.Concat(idParts, summaryParts)},
	"compact/end":        {checked: buildCompanions, parts: slices.Concat(idParts, []part{must("turn", owner), {key: "error", is: str, opt: true, hard: true}})},
	"compact/prune":      {checked: buildCompanions, parts: shadowParts},
	"compaction/start":   {parts: slices.Concat(idParts, []part{must("turn", owner)})},
	"compaction/summary": {parts: slices.Concat(idParts, summaryParts)},
	"compaction/end":     {parts: slices.Concat(idParts, []part{must("turn", owner), {key: "error", is: str, opt: true, hard: true}})},
	"compaction/prune":   {parts: shadowParts},

	"hook/invoked": {checked: buildCompanions, parts: []part{must("turn", positive), must("point", str), must("dialect", str), must("handlerId", str),
		{key: "matcher", is: str, opt: true}}},
	"hook/result": {checked: buildCompanions, parts: []part{must("turn", positive), must("point", str), must("handlerId", str), {key: "decision", is: str},
		{key: "exitCode", is: num, opt: true}, {key: "stderrSummary", is: str, opt: true}, must("durationMs", num)}},

	"tool/code-dispatch-start": {checked: buildCompanions, parts: dispatchParts},
	"tool/code-dispatch": {checked: buildCompanions, parts: slices.Concat(dispatchParts, []part{{key: "isError", is: boolean},
		{key: "resultSummary", is: str, to: daySummaryUntil, gone: dayContentFrom}, {key: "content", is: blocks, from: dayContentFrom}})},

	"bash/sandbox-mode": {parts: []part{{key: "mode", is: str}}},
	"sandbox/mode":      {checked: buildCompanions, parts: []part{must("mode", str), {key: "source", is: oneOf("delegation"), opt: true}}},
	"approval/asked":    {checked: buildCompanions, parts: []part{must("id", str), must("toolName", str), {key: "callId", is: str, opt: true}, {key: "reason", is: str, opt: true}}},
	"approval/decided":  {checked: buildCompanions, parts: []part{must("id", str), must("outcome", str)}},
	"approval/policy":   {checked: buildCompanions, parts: []part{must("policy", str), {key: "source", is: oneOf("delegation"), opt: true}}},
	"permission/preset": {parts: []part{{key: "preset", is: str}}},

	"llm/retry": {checked: buildCompanions, parts: []part{{key: "retryId", is: str, hard: true, from: buildIDs}, must("turn", positive), must("step", positive),
		{key: "provider", is: str, hard: true, from: dayRetryMode}, {key: "mode", is: oneOf("normal", "always"), hard: true, from: dayRetryMode},
		{key: "policyKey", is: str, hard: true, from: dayRetryMode}, must("retry", num), {key: "maxRetries", is: num, opt: true, hard: true}, must("delayMs", num),
		must("failure", object(must("message", str), must("code", str), part{key: "status", is: num, opt: true, hard: true},
			part{key: "providerRetryAfterMs", is: num, opt: true, hard: true}, part{key: "requestId", is: str, opt: true, hard: true}))}},
	"llm/retry-started": {parts: []part{must("retryId", str), must("turn", positive), must("step", positive), must("retry", num)}},

	"session/title": {checked: buildReact, parts: []part{{key: "title", is: str}, must("messageSeqs", list(count)), must("source", variants("kind", true, map[string][]part{
		"fallback": nil, "user": nil, "provider": {{key: "provider", is: str}, {key: "model", is: object(route...), opt: true}},
	}))}},
	"session/title-llm-request": {parts: []part{{key: "titleProvider", is: str}, {key: "messageSeqs", is: list(count)}, {key: "route", is: object(route...)},
		{key: "system", is: str}, {key: "messages", is: list(object(part{key: "content", is: blocks}))}, {key: "maxTokens", is: num}}},
	"plan/mode":   {}, // PLAN
	"command/run": {parts: []part{must("commandId", str), {key: "name", is: str}, {key: "args", is: some, to: buildArgs}, {key: "source", is: object(part{key: "kind", is: text})}}},
	"command/done": {parts: []part{must("commandId", str), must("kind", oneOf("success", "error")), {key: "text", is: str, opt: true},
		{key: "sourceEventSeq", is: count, opt: true, hard: true}}},
	"web/deepseek-search-llm-request": {parts: []part{{key: "endpoint", is: str}, {key: "apiVersion", is: str}, {key: "body", is: object(
		part{key: "model", is: str}, part{key: "max_tokens", is: num}, part{key: "messages", is: anArray}, part{key: "tools", is: anArray})}}},
	"model/selection":                        {parts: []part{{key: "provider", is: text}, {key: "model", is: text}, {key: "reasoningEffort", is: text, opt: true}}},
	"session-log-deepseek/delivery-accepted": {parts: []part{{key: "sessionId", is: str}, {key: "throughSeq", is: count}}},
	"subagent/model-selection-policy":        {parts: []part{{key: "allowedModels", is: list(object(route...))}}},
	"subagent/descriptor":                    {parts: []part{{key: "version", is: count}, {key: "provider", is: str}}},
	"feedback/record":                        {parts: []part{{key: "text", is: str}}},
	"agent-preset/selected":                  {parts: []part{{key: "agentPreset", is: str}}},

	"agent/inbox/spliced": {parts: []part{must("target", oneOf("next-turn", "next-step")), must("start", count), {key: "removedCount", is: count, opt: true, hard: true},
		must("inserted", list(inboxMessage)), {key: "outcome", is: oneOf("canceled"), opt: true, hard: true}}},

	"tool-workflow/run-start":   {parts: []part{must("runId", str), must("name", str)}},
	"tool-workflow/agent-start": {parts: []part{must("runId", str), must("seq", num), must("label", str), {key: "phase", is: str, opt: true, hard: true}, must("childId", str)}},
	"tool-workflow/agent-end":   {parts: []part{must("runId", str), must("seq", num), must("outcome", str)}},
	"tool-workflow/run-end":     {parts: []part{must("runId", str), must("stopReason", str)}},

	"schedule/change": {parts: []part{must("version", num), must("operation", str)}, more: variantsOf("operation", map[string][]part{
		"create": {must("schedule", variants("kind", true, map[string][]part{
			"after": {must("id", str), must("prompt", str), must("afterSeconds", num), must("scheduledAt", str)},
			"at":    {must("id", str), must("prompt", str), must("scheduledAt", str)},
			"every": {must("id", str), must("prompt", str), must("everySeconds", num), must("scheduledAt", str)},
		}))},
		"delete":   {must("id", str)},
		"dispatch": {must("id", str), {key: "acceptedAt", is: str, opt: true, hard: true}},
	})},

	"team/member": {parts: []part{must("version", num), must("teamId", str), must("member", object(must("id", str), must("name", str), must("description", str),
		must("provider", str), must("context", oneOf("fresh", "fork")), must("phase", str), part{key: "error", is: some, opt: true}))}},
	"team/task": {parts: []part{must("version", num), must("teamId", str), must("task", object(must("id", str), must("revision", num), must("subject", str),
		must("description", str), must("status", str), part{key: "ownerId", is: str, opt: true, hard: true}, must("blockedBy", list(str)), must("writeScopes", anArray)))}},
	"team/message/queued": {parts: []part{must("version", num), must("teamId", str), must("message", object(must("id", str), must("senderId", str), must("senderName", str),
		must("targetId", str), must("delivery", oneOf("quiet", "wakeup")), must("content", some)))}},
	"team/message/delivered": {parts: []part{must("version", num), must("teamId", str), must("messageId", str), must("targetId", str)}},

	"goal/change": {parts: []part{must("kind", oneOf("goal/change")), must("version", num), must("operation", oneOf("create", "edit", "pause", "resume", "complete", "block", "clear"))},
		more: func(s *shaper) {
			if jsjson.StrEq(jsjson.Get(s.e.Data, "operation"), "clear") {
				s.parts(s.e.Data, []part{must("cleared", goalName), must("clearedAt", some)})
			} else if jsjson.KindOf(jsjson.Get(s.e.Data, "operation")) == jsjson.String {
				s.parts(s.e.Data, []part{must("goal", goalName), must("roundsStarted", count), must("createdAt", some), must("updatedAt", some)})
			}
		}},
}

// must is a part that was there from the start, and that checks look at.
func must(key string, is shape) part { return part{key: key, is: is, hard: true} }

var (
	idParts = []part{{key: "compactionId", is: text, hard: true, from: buildIDs}, {key: "sourceCommandId", is: str, opt: true, hard: true}}

	shadowParts = []part{must("shadowedRange", object(must("start", count), must("end", count))), must("shadowedSeqs", list(count)), must("shadowedTokenCount", num)}

	summaryParts = slices.Concat([]part{must("summary", blocks), {key: "rawOutput", is: blocks, opt: true}, {key: "llmStreamCall", is: yes, opt: true}}, shadowParts,
		[]part{{key: "provider", is: str, from: eraStart[fold.E6]}, {key: "model", is: str, from: daySummaryModel}, {key: "maxTokens", is: num, opt: true}, {key: "usage", is: usage, opt: true}})

	dispatchParts = []part{{key: "rootCallId", is: str, hard: true, from: buildIDs}, must("parentCallId", str), must("subCallId", str), {key: "name", is: str}, {key: "arguments", is: some}}

	route = []part{{key: "provider", is: str}, {key: "model", is: str}}

	goalName = object(must("id", str), must("revision", num))
)

// variantsOf is what data has to have besides, by one of its members.
func variantsOf(key string, kinds map[string][]part) func(*shaper) {
	is := variants(key, true, kinds)
	return func(s *shaper) {
		if jsjson.KindOf(jsjson.Get(s.e.Data, key)) == jsjson.String {
			is(s, s.e.Data)
		}
	}
}

// usage is a TokenUsage.
var usage = object(part{key: "inputTokens", is: count}, part{key: "outputTokens", is: count}, part{key: "cacheReadTokens", is: count, opt: true},
	part{key: "cacheWriteTokens", is: count, opt: true}, part{key: "reasoningTokens", is: count, opt: true}, part{key: "totalTokens", is: count, opt: true})

// chunkShapes are the members of a chunk by its type, index apart.
var chunkShapes = map[string][]part{
	"block-start":     {must("blockType", str)},
	"text-delta":      {must("text", str)},
	"reasoning-delta": {must("text", str)},
	"tool-call-delta": {must("id", str), {key: "name", is: str, opt: true, hard: true}, must("argumentsDelta", str)},
	"block-end":       {must("block", block)},
	"usage":           {must("usage", usage)},
	"finish":          {must("reason", finishReason)},
}

// finishReason is how a stream ended. A failure came with its own type on 07-20.
var finishReason = variants("kind", true, map[string][]part{
	"stop": nil, "tool-calls": nil, "max-tokens": nil,
	"aborted": {{key: "failure", is: llmFailure, from: buildFailure}},
	"error":   {{key: "message", is: str, to: eraStart[fold.E6]}, {key: "code", is: str, opt: true}, {key: "failure", is: llmFailure, from: buildFailure}},
})

var llmFailure = object(part{key: "message", is: str}, part{key: "code", is: str}, part{key: "status", is: num, opt: true},
	part{key: "providerRetryAfterMs", is: num, opt: true}, part{key: "requestId", is: str, opt: true})
