package invariants

import "slices"

// Rules that only later generations have, and those that came with them. Rules
// that generation 0 has too are in its files.
var genRules = []*Rule{
	{
		ID: "LOG-GENERATION", Severity: Error, Spec: "FORMATS §2.1",
		Title:  "the name of a log and its header say the same generation",
		Text:   "A log is named after its format generation, session.jsonl for the first and session.vN.jsonl for the others. The harness picks the file with the highest number by name, and refuses it when the header says another one.",
		How:    "The file was renamed or copied under another name, or its header was edited.",
		Advice: "Rename the file after the version in its header. Nothing in the log itself is wrong.",
	},
	{
		ID: "FORK-MARK", Severity: Error, Spec: "FORMATS §2.3, §7.4 C1",
		Title:  "a seeded log says where its own events begin, and no other does",
		Text:   "From generation 2 the header says only whether events were inherited. Where they end is told by the last session/end-seed with inherited: true. One without the other leaves open which events are the session's own.",
		How:    "The mark was lost or added when the log was edited, or the header belongs to another log.",
		Advice: "Compare with the parent log: its events are the inherited ones.",
	},
	{
		ID: "MSG-BLOCK", Severity: Error, Spec: "FORMATS §7.4 M3 to M5, §7.6",
		Title:  "a message holds no block that its generation has given up",
		Text:   "Generation 4 has no tool-result block: a result is a message of its own. Blocks that add and remove tools stand in messages of the developer only, and name one tool. The harness refuses the log for such a block wherever it stands, even in a tail that it would otherwise drop.",
		How:    "An event of an older generation was copied into the log, or a plugin wrote it past the harness.",
		Advice: "Take the event out of a copy and compare the requests.",
	},
	{
		ID: "TOOL-UPDATE", Severity: Error, Spec: "FORMATS §7.4 M9, T6, T7",
		Title:  "a message that adds tools names the header that defines them",
		Text:   "A developer/message that adds a tool carries headerSeq, the seq of an earlier request/header in which exactly one tool has that name, with a description and parameters. One that only removes tools carries none. Without it nobody knows what was declared to the model.",
		How:    "The event was edited or moved, or the header it refers to was lost.",
		Advice: "Look at the request/header just before the message. Requests behind it are rebuilt without the tools that cannot be found.",
	},
	{
		ID: "CALL-ID", Severity: Error, Spec: "FORMATS §7.4 T1",
		Title:  "the calls of an answer have ids of their own",
		Text:   "Each tool call of an answer has an id that is not empty and that no call without a result has. The result finds its call by it.",
		How:    "The provider gave no id or the same one twice, or the event was edited.",
		Advice: "Look at the calls of the step. Results can be matched with calls by their order only.",
	},
	{
		ID: "CALL-MATCH", Severity: Warning, Spec: "SEMANTICS §8.1; FORMATS §7.4 T2",
		Title:  "a tool/call is the call that the answer asks for",
		Text:   "Id, name and arguments of a tool/call are those of a block in the answer of its step, and it is logged once. From generation 2 the harness refuses a log in which they differ.",
		How:    "The call was edited, or a hook changed it without changing the answer.",
		Advice: "The answer is what the model sees; the tool/call is what was run.",
	},
	{
		ID: "CALL-RESULT-COMPLETE", Severity: Warning, Spec: "SEMANTICS §8.1; FORMATS §7.4 L6",
		Title:  "every call has its result before the step ends",
		Text:   "A call that the answer asks for gets a result in its step, a stand-in at least. Providers refuse a history in which a call has none. From generation 2 the harness refuses the log as well.",
		How:    "The result was lost or edited, or the process was killed and the log not repaired.",
		Advice: "Look at the end of the step: the next request holds a call without a result.",
	},
	{
		ID: "RESULT-REPAIR", Severity: Error, Spec: "FORMATS §7.4 T5, F1, §7.9",
		Title:  "a result for a call that never started has the form of a repair",
		Text:   "A result without a tool/call comes only from a repair after a crash or a fork. It says so by its error, cites nothing, is marked as an error and has an id made of its call and a number. Anything else that answers a call which was not recorded as started is refused.",
		How:    "The tool/call was lost, or the result was edited or written by another program.",
		Advice: "Look for the tool/call. If it is there in a copy, restore it.",
	},
	{
		ID: "SURF-HEAD", Severity: Error, Spec: "FORMATS §6.3, §7.4 S7, S11",
		Title:  "the system prompt is the head of the surface and stays there",
		Text:   "From generation 3 the system prompt is a message. If there is one, it is the first the surface ever had, and what replaces it is another one in its place alone. The model would see its instructions somewhere else, or lose them, otherwise.",
		How:    "The event was moved or edited, or a compaction took more than it may.",
		Advice: "Look at the first messages of the surface before this event.",
	},
	{
		ID: "SURF-OFFLOAD", Severity: Error, Spec: "FORMATS §6.3",
		Title:  "an image that is put away is on the surface",
		Text:   "image/offload marks images of messages that stand on the surface, by their seq and by their place in the message, in rising order.",
		How:    "The event was edited, or what it refers to was replaced before.",
		Advice: "Look at the surface before this event. Images that cannot be found are left as they are.",
	},
	{
		ID: "STREAM-ROW", Severity: Error, Spec: "FORMATS §2.7",
		Title:  "an embedded stream consists of well-formed records",
		Text:   "The chunks of an attempt are kept inside its event: packed runs with one gap less than members, and single chunks. A record that is none of these holds no chunks. A chunk whose own members are missing or of the wrong kind is a warning: the harness asks for few of them.",
		How:    "The event was edited, or written by a program other than the harness.",
		Advice: "The message itself is whole. Only the proof of how it came is lost.",
	},
	{
		ID: "CHUNK-ASM", Severity: Warning, Spec: "SEMANTICS §8.3; FORMATS §2.7",
		Title:  "an answer is what its chunks add up to",
		Text:   "The content of an answer is assembled from its chunks. The two are independent records of what the model said, so a difference means that one of them was changed.",
		How:    "The answer or its chunks were edited.",
		Advice: "Compare the two. The model sees the content, the user saw the chunks.",
	},
	{
		ID: "CHUNK-USAGE", Severity: Warning, Spec: "SEMANTICS §8.1; FORMATS §2.9",
		Title:  "the usage of an answer is that of its last usage chunk",
		Text:   "The provider reports usage in a chunk, and the answer keeps a copy.",
		How:    "One of the two was edited.",
		Advice: "Count the chunk: the answer holds the copy.",
	},
	{
		ID: "DISPATCH", Severity: Error, Spec: "SEMANTICS §8.2; FORMATS §7.4 X1 to X5",
		Title:  "a call from code belongs to one root and is settled once",
		Text:   "A call that a program of the model makes has an id of its own, the id of the call that runs the program, and that of its parent, which is the root or another call of the same root. It starts once and is settled once, under the same name and arguments.",
		How:    "The event was edited, or two processes share the log.",
		Advice: "Look at the other events with the same subCallId.",
	},
	{
		ID: "RETRY", Severity: Error, Spec: "SEMANTICS §8.2; FORMATS §7.4 Y1 to Y5",
		Title:  "retries count up under one id",
		Text:   "A retry belongs to the step at hand or the one just closed, goes to the provider of the header, and counts from 1 for its step, provider and policy. All retries of such a chain have one id, which no other chain has.",
		How:    "The event was edited, or retries before it were lost.",
		Advice: "Look at the attempts of the step.",
	},
	{
		ID: "RETRY-START", Severity: Error, Spec: "SEMANTICS §8.2; FORMATS §7.4 Y6",
		Title:  "a retry that starts was scheduled",
		Text:   "llm/retry-started names a retry that was scheduled in the same turn and step, and each starts once.",
		How:    "The event was edited or written twice, or the llm/retry was lost.",
		Advice: "Look for the llm/retry with the same retryId and number.",
	},
	{
		ID: "TITLE", Severity: Error, Spec: "SEMANTICS §8.2; FORMATS §7.4 N1 to N3",
		Title:  "a title cites the messages it was made from",
		Text:   "A title that the user gave cites nothing, any other one cites earlier messages of the user, each once. The request for a title holds one message with one block of text.",
		How:    "The event was edited or moved.",
		Advice: "Nothing that the model sees depends on it.",
	},
	{
		ID: "CMD", Severity: Error, Spec: "SEMANTICS §8.2; FORMATS §7.4 O1 to O3",
		Title:  "a command runs once and is done once it ran",
		Text:   "A command has an id of its own. command/done names one that ran, and cites an earlier event, which is no command, only when it succeeded.",
		How:    "The event was edited, or the command/run was lost.",
		Advice: "Look for the command/run with the same commandId.",
	},
	{
		ID: "CMP-RANGE", Severity: Error, Spec: "SEMANTICS §8.2; FORMATS §7.4 P4, P5",
		Title:  "a compaction names one span of the surface",
		Text:   "The seqs that a compaction sums up or prunes stand next to each other on the surface, and the range names the first and the last of them. The system prompt at the head is never among them.",
		How:    "The event was edited, or the surface changed while the compaction ran.",
		Advice: "Compare with the replacement that follows: that is what the model lost.",
	},
	{
		ID: "CMP-ID", Severity: Error, Spec: "SEMANTICS §8.2; FORMATS §7.4 P7, P8",
		Title:  "the events of a compaction carry its id",
		Text:   "Start, summary, end and the message that takes the place of what was summed up have one compactionId, and the same sourceCommandId or none. That message is logged while the compaction is open.",
		How:    "An event was edited, or two compactions were mixed.",
		Advice: "Look at the compaction/start before it.",
	},
	{
		ID: "SUBAGENT-CATALOG", Severity: Error, Spec: "FORMATS §7.2, §7.4 K1, K2",
		Title:  "a child is listed once, in a known form",
		Text:   "subagent/catalog lists a child of the session: its id, when it was made, and how it runs. A log lists each of its own children once.",
		How:    "The event was edited, or a migration ran twice over the same children.",
		Advice: "Nothing that the model sees depends on it.",
	},
	{
		ID: "DELIVERY", Severity: Error, Spec: "FORMATS §7.4 D1, D2",
		Title:  "a delivery mark of the log's generation points at an earlier event of the session",
		Text:   "The mark says up to which event a log was delivered. In the numbering of its own generation that event comes before the mark, and the session is the log's own, or the parent's in what was inherited.",
		How:    "The event was edited, or the log was renumbered.",
		Advice: "Nothing that the model sees depends on it.",
	},
}

// registerMissing adds rules that are not in the catalogue yet.
func registerMissing(rules ...*Rule) {
	for _, r := range rules {
		if byID[r.ID] == nil {
			register(r)
		}
	}
}

var (
	lifeTypes = []string{"assistant/message", "tool/call", "tool/result", "step/end", "turn/end"}
	compTypes = []string{"compaction/start", "compaction/summary", "compaction/end", "compaction/prune", "turn/start", "turn/end", "session/end-seed", "user/message"}

	rules1 = []genRule{
		{id: "LOG-TYPE", alone: true, new: stateless(genType)},
		{id: "EVT-SHAPE", alone: true, new: stateless(genShape)},
	}
	rules2 = []genRule{
		{id: "LOG-TYPE", alone: true, new: stateless(genType)},
		{id: "FORK-MARK", types: []string{"session/end-seed"}, new: func() Checker { return new(genSeed) }},
		{id: "EVT-SHAPE", alone: true, new: stateless(genShape)},
		{id: "MSG-SHAPE", types: []string{"user/message", "assistant/message", "tool/result"}, alone: true, new: stateless(checkMessage)},
		{id: "STEP-SCOPE", types: []string{"assistant/message", "assistant/attempt", "tool/call", "tool/result"}, new: stateless(checkScope)},
		{id: "TURN-ENCLOSE", types: []string{"request/header", "request/context", "tool/code-dispatch", "tool/code-dispatch-start"}, new: stateless(genEnclosed)},
		{id: "CALL-ID", types: lifeTypes, new: stateless(genCallID)},
		{id: "CALL-MATCH", types: lifeTypes, new: stateless(genCallMatch)},
		{id: "CALL-PAIR", types: lifeTypes, new: stateless(genCallPair)},
		{id: "CALL-RESULT-COMPLETE", types: lifeTypes, new: stateless(genCallComplete)},
		{id: "RESULT-REPAIR", types: lifeTypes, new: stateless(genRepair)},
		{id: "ASST-ONE", types: []string{"assistant/message"}, new: stateless(genOneAnswer)},
		{id: "CHUNK-ANSWER", types: []string{"step/start", "step/end", "turn/start", "turn/end", "session/end-seed", "assistant/message", "assistant/attempt", "llm/retry"}, new: func() Checker { return new(genAnswer) }},
		{id: "HDR-SHAPE", types: []string{"request/header"}, alone: true, new: stateless(genHeader)},
		{id: "HDR-FIRST", types: []string{"assistant/message", "assistant/attempt", "request/header"}, new: func() Checker { return new(genFirstHeader) }},
		{id: "HDR-NOOP", types: []string{"request/header", "system/message"}, new: func() Checker { return new(genNoop) }},
		{id: "SURF-SOURCES", alone: true, new: stateless(genSources)},
		{id: "STREAM-ROW", types: settlements, alone: true, new: stateless(genStream)},
		{id: "STREAM-FINISH", types: []string{"assistant/message"}, alone: true, new: stateless(genFinish)},
		{id: "CHUNK-ASM", types: settlements, alone: true, new: func() Checker { return new(genAsm) }},
		{id: "CHUNK-USAGE", types: settlements, alone: true, new: stateless(genUsage)},
		{id: "DISPATCH", types: dispatchTypes, new: func() Checker { return new(genDispatch) }},
		{id: "RETRY", types: []string{"llm/retry"}, new: func() Checker { return new(genRetry) }},
		{id: "RETRY-START", types: []string{"llm/retry", "llm/retry-started"}, new: func() Checker { return new(genRetryStart) }},
		{id: "TITLE", types: []string{"session/title", "session/title-llm-request", "user/message"}, new: func() Checker { return new(genTitle) }},
		{id: "CMD", types: []string{"command/run", "command/done"}, new: func() Checker { return new(genCommand) }},
		{id: "CMP-PAIR", types: compTypes, new: func() Checker { return new(pairChecker) }},
		{id: "CMP-OWNER", types: compTypes, new: func() Checker { return new(genOwner) }},
		{id: "CMP-RANGE", types: []string{"compaction/summary", "compaction/prune"}, new: stateless(genRange)},
		{id: "CMP-ID", types: compTypes, new: func() Checker { return new(genCompactionID) }},
		{id: "CMP-SEED", types: compTypes, new: func() Checker { return new(genStale) }},
		{id: "CMP-CITE", types: compTypes, new: func() Checker { return new(genCite) }},
		{id: "HOOK-PAIR", types: []string{"hook/invoked"}, new: genDialect},
		{id: "APPR-PAIR", types: []string{"approval/decided", "approval/policy"}, new: stateless(softly(genApproval))},
		{id: "TODO", types: []string{"todo/write"}, new: stateless(softly(genTodos))},
		{id: "PLAN", types: []string{"plan/mode"}, new: stateless(softly(checkPlan))},
		{id: "SANDBOX", types: []string{"sandbox/mode"}, new: genSandbox},
		{id: "WF", types: []string{"tool-workflow/agent-start", "tool-workflow/agent-end", "tool-workflow/run-end"}, new: stateless(softly(genWorkflow))},
		{id: "INBOX", types: []string{"agent/inbox/spliced", "session/end-seed"}, new: func() Checker { return new(genInbox) }},
	}
	rules3 = with(rules2,
		genRule{id: "MSG-SHAPE", types: []string{"system/message", "user/message", "assistant/message", "tool/result"}, alone: true, new: stateless(genMessage)},
		genRule{id: "STEP-SCOPE", types: []string{"system/message", "assistant/message", "assistant/attempt", "tool/call", "tool/result"}, new: stateless(checkScope)},
		genRule{id: "TURN-ENCLOSE", types: []string{"request/header", "request/context", "tool/ptc-dispatch", "tool/ptc-dispatch-start"}, new: stateless(genEnclosed)},
		genRule{id: "SURF-HEAD", new: stateless(genHead)},
		genRule{id: "SURF-OFFLOAD", types: []string{"image/offload"}, new: stateless(genOffload)},
		genRule{id: "SUBAGENT-CATALOG", types: []string{"subagent/catalog"}, new: func() Checker { return new(genCatalog) }},
	)
	rules4 = with(rules3,
		genRule{id: "MSG-SHAPE", types: []string{"system/message", "developer/message", "user/message", "assistant/message", "tool/result", "agent/inbox/spliced", "session/title-llm-request"},
			alone: true, new: stateless(genMessage)},
		genRule{id: "MSG-BLOCK", alone: true, new: stateless(genBlocks)},
		genRule{id: "STEP-SCOPE", types: []string{"system/message", "developer/message", "assistant/message", "assistant/attempt", "tool/call", "tool/result"}, new: stateless(checkScope)},
		genRule{id: "TOOL-UPDATE", types: []string{"developer/message", "request/header"}, new: func() Checker { return new(genUpdate) }},
		genRule{id: "DELIVERY", types: []string{"session-log-deepseek/delivery-accepted"}, new: stateless(genDelivery)},
	)
)

var (
	settlements   = []string{"assistant/message", "assistant/attempt"}
	dispatchTypes = []string{"tool/code-dispatch-start", "tool/code-dispatch", "tool/ptc-dispatch-start", "tool/ptc-dispatch", "turn/end"}
)

// with is a list of rules with some of them checked otherwise, and others added.
func with(base []genRule, own ...genRule) []genRule {
	out := slices.Clone(base)
	for _, o := range own {
		if i := slices.IndexFunc(out, func(r genRule) bool { return r.id == o.id }); i >= 0 {
			out[i] = o
		} else {
			out = append(out, o)
		}
	}
	return out
}
