package invariants

import (
	"maps"
	"slices"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// A generation says which rules a later format generation has (FORMATS §4 to §7):
// those of generation 0 that hold as they are, and its own. Generations differ
// nowhere else in this package.
type generation struct {
	version int64
	// builds are the releases that wrote it, for messages.
	builds string
	// shared are rules of generation 0 that are checked as they are there; nil for
	// all of them but those in own.
	shared []string
	own    []genRule
	// types is the vocabulary: members of the payload by type.
	types map[string]payload
	// opaque tells that an unknown type may stand if it is ignorable.
	opaque bool
	// loose tells that the harness does not look at members of most payloads.
	loose bool
	// rooted tells that the system prompt stands on the surface, and not in the
	// header.
	rooted bool
	// bare tells that a tool result is its own message, of role tool.
	bare bool
	// hard are rules whose breach is an error even in a tail that is dropped.
	hard []string
	// surface are the types of the surface.
	surface []string
}

// A genRule is how a generation checks a rule.
type genRule struct {
	id    string
	types []string // nil: all
	alone bool
	new   func() Checker
}

// payload is the members of the data of an event: those it must have, and those
// it may.
type payload struct{ required, optional []string }

// vocabulary reads a table of "type: required | optional".
func vocabulary(table string) map[string]payload {
	out := map[string]payload{}
	for line := range strings.Lines(table) {
		typ, members, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		required, optional, _ := strings.Cut(members, "|")
		out[typ] = payload{strings.Fields(required), strings.Fields(optional)}
	}
	return out
}

// amend is a vocabulary with some types changed, added and taken away.
func amend(base map[string]payload, table string, gone ...string) map[string]payload {
	out := maps.Clone(base)
	maps.Copy(out, vocabulary(table))
	for _, typ := range gone {
		delete(out, typ)
	}
	return out
}

var vocabulary1 = vocabulary(`
	agent-preset/selected: agentPreset
	agent/inbox/spliced: target start inserted | removedCount outcome
	approval/asked: id toolName | callId reason
	approval/decided: id outcome
	approval/policy: policy | source
	assistant/chunk: turn step chunk
	assistant/message: turn step message | usage interrupted
	command/done: commandId kind | text sourceEventSeq
	command/run: commandId name source | args
	compaction/end: compactionId turn | sourceCommandId error
	compaction/prune: shadowedRange shadowedSeqs shadowedTokenCount
	compaction/start: compactionId turn | sourceCommandId
	compaction/summary: compactionId summary shadowedRange shadowedSeqs shadowedTokenCount provider model | sourceCommandId maxTokens usage rawOutput llmStreamCall
	feedback/record: text
	goal/change: kind version operation | goal roundsStarted createdAt updatedAt cleared clearedAt
	hook/invoked: turn point dialect handlerId | matcher
	hook/result: turn point handlerId decision durationMs | exitCode stderrSummary
	llm/retry: retryId turn step provider mode policyKey retry delayMs failure | maxRetries
	llm/retry-started: retryId turn step retry
	model/selection: provider model | reasoningEffort
	permission/preset: preset
	plan/mode: active
	request/context: provider model | contextWindow
	request/header: header reason | startsSeries
	sandbox/mode: mode | source
	schedule/change: version operation | schedule id acceptedAt
	session-log-deepseek/delivery-accepted: sessionId throughSeq
	session/end-seed:
	session/title: title messageSeqs source
	session/title-llm-request: titleProvider messageSeqs route system messages maxTokens
	step/end: turn step
	step/start: turn step
	subagent/descriptor: mode version provider | label agentProvider agentModel agentReasoningEffort persona toolFilter
	subagent/model-selection-policy: allowedModels
	team/member: version teamId member
	team/message/delivered: version teamId messageId targetId
	team/message/queued: version teamId message
	team/task: version teamId task
	todo/write: todos
	tool-workflow/agent-end: runId seq outcome
	tool-workflow/agent-start: runId seq label childId | phase
	tool-workflow/run-end: runId stopReason
	tool-workflow/run-start: runId name
	tool/call: turn step callId name arguments
	tool/code-dispatch: rootCallId parentCallId subCallId name arguments isError content
	tool/code-dispatch-start: rootCallId parentCallId subCallId name arguments
	tool/result: turn step message | error meta
	turn/end: turn reason
	turn/start: turn
	user/message: role id content source
	web/deepseek-search-llm-request: endpoint apiVersion body
`)

var vocabulary2 = amend(vocabulary1, `
	assistant/message: turn step message stream | usage interrupted
	assistant/attempt: turn step stream
	session/end-seed: | inherited
	session-log-deepseek/delivery-accepted: sessionId throughSeq | sessionFormatVersion
	feedback/message-put: sessionId item
	feedback/message-delete: sessionId messageId
`, "assistant/chunk")

var vocabulary3 = amend(vocabulary2, `
	system/message: turn step message
	request/context: provider model | contextWindow systemPromptUpdate
	tool/ptc-dispatch: rootCallId parentCallId subCallId name arguments isError content
	tool/ptc-dispatch-start: rootCallId parentCallId subCallId name arguments
	deliverables/presented: turn callId files
	feedback/record: | text category
	image/offload: targets
	subagent/catalog: version childId childCreatedAt mode | label
	workspace/changes: turn
`, "tool/code-dispatch", "tool/code-dispatch-start")

var vocabulary4 = amend(vocabulary3, `
	developer/message: turn step message | headerSeq
	tool/ptc-dispatch: rootCallId parentCallId subCallId name arguments isError content | error meta
	session/title-llm-request: titleProvider messageSeqs route system messages maxTokens | reasoningEffort
	working-directory/change: cwd
`)

// lineShared are the rules about bytes and places, which do not depend on what
// events mean.
var lineShared = []string{
	"LOG-ENV", "LOG-TIME", "LINE-SPACE", "LINE-DUPKEY", "LINE-KEYS", "LINE-NUMBER", "LINE-ESCAPE", "LINE-UTF8",
}

// settledShared are the rules of generation 0 that hold as they are where an
// attempt is one event.
var settledShared = append(slices.Clone(lineShared),
	"TURN-OPEN", "TURN-CLOSE", "STEP-OPEN", "STEP-CLOSE", "RESULT-REWRITE-TURN", "ASST-ONE",
	"SURF-MARKER", "SURF-ELIGIBLE", "SURF-OP", "SURF-RANGE", "SURF-SOURCES", "SURF-EMPTY", "SURF-SHADOW", "SURF-REWRITE",
	"HDR-INITIAL", "RESULT-CITE", "CTX-CHANGE",
)

// hardRules are those of which generation 4 makes no exception for a tail that is
// dropped (FORMATS §2.6).
var hardRules = []string{"MSG-SHAPE", "MSG-BLOCK", "TOOL-UPDATE"}

// HardTail reports whether a breach of the rule may make the harness refuse a log
// of generation 4 even in the tail that it would drop of a torn one.
func HardTail(id string) bool {
	return slices.Contains(hardRules, id) || id == "LOG-TYPE" || id == "HDR-SHAPE"
}

// later are the generations after 0. They are put together in init because
// checkers look at them.
var later []*generation

func init() {
	later = []*generation{
		{
			version: 1, builds: "the converters of 0.1.3 to 0.1.5, which keep it in memory only",
			types: vocabulary1, own: rules1,
		},
		{
			version: 2, builds: "0.1.3-alpha.1 and alpha.2", types: vocabulary2, opaque: true, loose: true,
			shared: append(slices.Clone(settledShared), "HDR-NOOP", "HDR-CANON"), own: rules2,
		},
		{
			version: 3, builds: "0.1.5-alpha.1 to 0.1.6-alpha.1", types: vocabulary3, opaque: true, loose: true, rooted: true,
			shared: settledShared, own: rules3,
		},
		{
			version: 4, builds: "0.1.7-rc.1 to 0.2.1-alpha.2", types: vocabulary4, opaque: true, loose: true, rooted: true, bare: true,
			shared: settledShared, own: rules4,
			hard: hardRules,
		},
	}
	for _, g := range later {
		if g.surface = fold.SurfaceTypes(g.version); g.surface == nil {
			g.surface = []string{"user/message", "assistant/message", "tool/result"}
		}
	}
}

// shares reports whether a rule of generation 0 holds as it is.
func (g *generation) shares(id string) bool {
	if g.shared == nil {
		return !slices.Contains(notShared, id)
	}
	return slices.Contains(g.shared, id)
}

// firstGeneration is the first generation that has the rule; 0 for rules that are
// not about a generation.
func (r *Rule) firstGeneration() int64 {
	if r.New != nil {
		return 0
	}
	for _, g := range later {
		if slices.ContainsFunc(g.own, func(o genRule) bool { return o.id == r.ID }) {
			return g.version
		}
	}
	return 0
}

// notShared are rules of generation 0 about its own eras.
var notShared = []string{"LOG-TYPE", "LOG-REFUSED", "EVT-RETIRED"}

// generationOf returns the generation of a log, nil for generation 0.
func generationOf(h *logfmt.Header) *generation {
	if h == nil {
		return nil
	}
	for _, g := range later {
		if g.version == h.Generation {
			return g
		}
	}
	return nil
}

// addRunners makes the checkers of the generation.
func (g *generation) addRunners(c *Context) {
	add := func(r *Rule, types []string, alone bool, checker Checker) {
		c.running = append(c.running, runner{rule: r, checker: checker, types: types, alone: alone})
	}
	own := map[string]bool{}
	for _, o := range g.own {
		own[o.id] = true
	}
	for _, r := range registry {
		if !c.runs(r.ID) {
			continue
		}
		if r.New != nil && !own[r.ID] && g.shares(r.ID) {
			types := r.Types
			if slices.Equal(types, messageTypes) {
				types = g.surface
			}
			add(r, types, r.Alone, r.New())
		}
		for _, o := range g.own {
			if o.id == r.ID {
				add(r, o.types, o.alone, o.new())
			}
		}
	}
}

// onSurface reports whether events of a type take a place on the surface in the
// generation of the log.
func (c *Context) onSurface(typ string) bool {
	if c.gen != nil {
		return slices.Contains(c.gen.surface, typ)
	}
	return surfaceTypes[typ]
}

// known reports whether a type is in the vocabulary of the log's generation.
func (c *Context) known(typ string) bool {
	if c.gen != nil {
		_, ok := c.gen.types[typ]
		return ok
	}
	_, ok := lifetimes[typ]
	return ok
}

// skipped reports whether an event is opaque: its type is not known, and it says
// that it may be passed over.
func (c *Context) skipped(e *logfmt.Event) bool {
	return c.gen != nil && c.gen.opaque && e.Ignorable && !c.known(e.Type)
}

// checkName reports a file whose name says another generation than its header.
func checkName(c *Context) {
	if c.rule = byID["LOG-GENERATION"]; !c.runs(c.rule.ID) {
		return
	}
	h := c.log.Header
	if b := c.found[logfmt.RuleIdentity]; b != nil {
		for _, f := range b.kept {
			if strings.Contains(f.Message, "generation") {
				return // said of its place in the root
			}
		}
	}
	name := c.log.Path
	if i := strings.LastIndexAny(name, `/\`); i >= 0 {
		name = name[i+1:]
	}
	says, ok := logfmt.GenerationOfName(name)
	if !ok || says == h.Generation || logfmt.GenerationOf(h.Generation) == nil || c.log.Container != logfmt.Plain && c.log.Container != logfmt.Zstd {
		return
	}
	f := c.ReportAt(Place{Pos: h.Pos, Seq: -1, Turn: -1, Step: -1}, "version",
		"the name of the file says generation %d, its header %d; the harness refuses the log", says, h.Generation)
	f.Hint = "the events are read as the header says"
}

// checkExact reports keys of the header record that its generation does not have.
func checkExact(c *Context) {
	h := c.log.Header
	for _, key := range h.Unknown {
		c.ReportAt(Place{Pos: h.Pos, Seq: -1, Turn: -1, Step: -1}, key,
			"header has the key %s, which no header of generation %d has; a fork or another build (not %s) may have written it", quoted(key), c.gen.version, c.gen.builds)
	}
}

// genType judges the type of an event against the vocabulary of its generation.
func genType(c *Context, e *logfmt.Event) {
	if e.Fault&logfmt.FaultType != 0 || c.known(e.Type) {
		return
	}
	g := c.gen
	if e.Ignorable && g.opaque {
		return
	}
	if e.Ignorable {
		f := c.Report(e, "type", "event type %s is unknown to generation %d, which passes over none, ignorable or not", quoted(e.Type), g.version)
		f.Class = logfmt.Unsupported
		return
	}
	for _, o := range slices.Backward(later) {
		if _, ok := o.types[e.Type]; ok && o.version < g.version {
			f := c.Report(e, "type", "event type %s ended with generation %d, and is refused in generation %d", e.Type, o.version, g.version)
			f.hard = f.Dropped && g.hard != nil
			return
		}
	}
	if _, ok := lifetimes[e.Type]; ok {
		f := c.Report(e, "type", "event type %s ended with generation 0, and is refused in generation %d", e.Type, g.version)
		f.hard = f.Dropped && g.hard != nil
		return
	}
	who := "a newer build or a fork may know it"
	for _, o := range later {
		if _, ok := o.types[e.Type]; ok {
			who = "it came with generation " + number(o.version)
			break
		}
	}
	f := c.Report(e, "type", "event type %s is unknown to the builds that write generation %d (%s) and not marked ignorable: %s", quoted(e.Type), g.version, g.builds, who)
	f.Class = logfmt.Unsupported
}

// truthy reports whether a member is exactly true.
func truthy(obj []byte, key string) bool { return string(jsjson.Get(obj, key)) == "true" }

// eligible reports whether an event of the type belongs on the surface.
func (c *Context) eligible(typ string) bool {
	if c.gen != nil {
		return c.onSurface(typ)
	}
	return fold.Eligible(typ, c.eras)
}
