package invariants

import "slices"

// A settledLog is a sound log of a generation after 0, which breaches change.
type settledLog struct {
	head     string
	lines    []string
	breaches []breach
}

const (
	appended = "\t" + `,"surfaceOp":"append"`
	replaced = "\t" + `,"sourceEventSeqs":[10,11,3,5,7],"surfaceOp":{"op":"replace","startSeq":3,"endSeq":7}`
)

// settledLines are the events that logs of generations 3 and 4 have alike, around those
// in which they differ.
func settledLines(system, result, checkpoint, title string) []string {
	return []string{
		0:  `turn/start {"turn":1}`,
		1:  `step/start {"turn":1,"step":1}`,
		2:  system,
		3:  `user/message {"content":[{"type":"text","text":"q"}],"source":{"kind":"user"},"role":"user","id":"u1"}` + appended,
		4:  `request/header {"header":{"config":{"provider":"p","model":"m"},"tools":[{"name":"run","description":"d","parameters":{}}]},"reason":"initial"}`,
		5:  `assistant/message {"turn":1,"step":1,"message":{"role":"assistant","content":[{"type":"tool-call","id":"c1","name":"run","arguments":"{}"}],"source":{"kind":"model","provider":"p","model":"m"},"id":"a1"},"stream":[{"type":"chunk","time":15,"chunk":{"type":"block-start","index":0,"blockType":"tool-call"}},{"type":"chunk","time":15,"chunk":{"type":"block-end","index":0,"block":{"type":"tool-call","id":"c1","name":"run","arguments":"{}"}}},{"type":"chunk","time":15,"chunk":{"type":"finish","reason":{"kind":"tool-calls"}}}]}` + appended,
		6:  `tool/call {"turn":1,"step":1,"callId":"c1","name":"run","arguments":"{}"}`,
		7:  result,
		8:  `step/end {"turn":1,"step":1}`,
		9:  `turn/end {"turn":1,"reason":{"kind":"completed"}}`,
		10: `compaction/start {"compactionId":"k","turn":null}`,
		11: `compaction/summary {"compactionId":"k","summary":[{"type":"text","text":"s"}],"shadowedRange":{"start":3,"end":7},"shadowedSeqs":[3,5,7],"shadowedTokenCount":1,"provider":"p","model":"m"}`,
		12: checkpoint,
		13: `compaction/end {"compactionId":"k","turn":null}`,
		14: title,
	}
}

// more puts events behind all others.
func more(events ...string) func([]string) []string {
	return func(l []string) []string { return append(l, events...) }
}

const (
	lateEnd  = `compaction/end {"compactionId":"z","turn":null,"error":{"name":"E","message":"m"}}`
	lateTurn = `turn/start {"turn":3}`
)

var settledLogs = map[string]settledLog{
	"generation 1": {
		head:  `{"type":"session","version":1,"id":"s","createdAt":1,"cwd":"/w","delegationDepth":0}`,
		lines: []string{`plan/mode {"active":true}`},
		breaches: []breach{
			{"LOG-TYPE", "unknown and ignorable", more(`weather/changed {}` + "\t" + `,"ignorable":true`)},
			{"LOG-TYPE", "of the first dialects", more(`steering/message {"content":[],"source":{"kind":"user"}}`)},
			{"EVT-SHAPE", "data is no object", in(0, `{"active":true}`, `[]`)},
		},
	},
	"generation 3": {
		head: `{"type":"session","version":3,"id":"s","createdAt":1,"cwd":"/w","isSeeded":false,"delegationDepth":0}`,
		lines: settledLines(
			`system/message {"turn":1,"step":1,"message":{"role":"system","content":[{"type":"text","text":"b"}],"source":{"kind":"plugin","plugin":"prompt"},"id":"y1"}}`+appended,
			`tool/result {"turn":1,"step":1,"message":{"role":"user","content":[{"type":"tool-result","toolCallId":"c1","content":[{"type":"text","text":"r"}],"isError":false}],"source":{"kind":"tool","callId":"c1"},"id":"r1"}}`+appended,
			`user/message {"content":[{"type":"text","text":"s"}],"source":{"kind":"plugin","plugin":"compact","compactionId":"k"},"role":"user","id":"u2"}`+replaced,
			`session/title-llm-request {"titleProvider":"t","messageSeqs":[3],"route":{"provider":"p","model":"m"},"system":"s","messages":[{"role":"user","content":[{"type":"text","text":"t"}],"source":{"kind":"plugin","plugin":"dsh-session-title-llm"},"id":"t1"}],"maxTokens":9}`,
		),
		breaches: []breach{
			{"MSG-SHAPE", "an error in a result that is none", in(7, `"r1"}`, `"r1"},"error":{"name":"E","message":"m"}`)},
			{"MSG-SHAPE", "a prompt of the user", in(2, `{"kind":"plugin","plugin":"prompt"}`, `{"kind":"user"}`)},
			{"RESULT-REPAIR", "that is no error", all(drop(6, 7), in(6, `"r1"}`, `"r1"},"error":{"name":"ToolNotStartedError","code":"TOOL_NOT_STARTED"}`))},
			{"RESULT-REPAIR", "with the id of a fork", all(drop(6, 7), in(6, `"isError":false`, `"isError":true`), in(6, `"r1"}`, `"forked-tool-result-c1-6"},"error":{"name":"ToolNotStartedError","code":"TOOL_NOT_STARTED"}`))},
			{"RESULT-REPAIR", "in other words", all(drop(6, 7), in(6, `"isError":false`, `"isError":true`), in(6, `"r1"}`, `"interrupted-tool-result-c1-6"},"error":{"name":"ToolNotStartedError","code":"TOOL_NOT_STARTED"}`))},
			{"TITLE", "asked for by another plugin", in(14, `dsh-session-title-llm`, `x`)},
			{"CMP-ID", "a checkpoint of another command", in(12, `"compactionId":"k"`, `"compactionId":"k","sourceCommandId":"o"`)},
			{"CMP-ID", "a summary without the command of its start", in(10, `"compactionId":"k"`, `"compactionId":"k","sourceCommandId":"o"`)},
			{"CMP-ID", "a checkpoint behind the end", func(l []string) []string { l[12], l[13] = l[13], l[12]; return l }},
			{"LOG-TYPE", "of generation 2", more(`tool/code-dispatch-start {"rootCallId":"c1","parentCallId":"c1","subCallId":"c2","name":"x","arguments":"{}"}`)},
		},
	},
	"generation 4": {
		head: `{"type":"session","version":4,"id":"s","createdAt":1,"cwd":"/w","isSeeded":false,"delegationDepth":0}`,
		lines: slices.Concat(settledLines(
			`system/message {"turn":1,"step":1,"message":{"role":"system","content":[{"type":"text","text":"b"}],"source":{"kind":"system-prompt"},"id":"y1"}}`+appended,
			`tool/result {"turn":1,"step":1,"message":{"role":"tool","source":{"kind":"tool","callId":"c1"},"toolCallId":"c1","content":[{"type":"text","text":"r"}],"isError":false,"id":"r1"}}`+appended,
			`user/message {"content":[{"type":"text","text":"s"}],"source":{"kind":"compact-checkpoint","compactionId":"k"},"role":"user","id":"u2"}`+replaced,
			`session/title-llm-request {"titleProvider":"t","messageSeqs":[3],"route":{"provider":"p","model":"m"},"system":"s","messages":[{"role":"user","content":[{"type":"text","text":"t"}],"source":{"kind":"dsh-session-title-llm"},"id":"t1"}],"maxTokens":9}`,
		), []string{
			15: `agent/inbox/spliced {"target":"next-turn","start":0,"inserted":[{"role":"user","content":[{"type":"text","text":"n"}],"source":{"kind":"user"},"id":"n1"}]}`,
			16: `turn/start {"turn":2}`,
			17: `agent/inbox/spliced {"target":"next-turn","start":0,"removedCount":1,"inserted":[]}`,
			18: `step/start {"turn":2,"step":1}`,
			19: `user/message {"role":"user","content":[{"type":"text","text":"n"}],"source":{"kind":"user"},"id":"n1"}` + appended,
			20: `request/header {"header":{"config":{"provider":"p","model":"m"},"tools":[{"name":"run","description":"d","parameters":{}},{"name":"see","description":"d","parameters":{}}]},"reason":"change"}`,
			21: `developer/message {"turn":2,"step":1,"message":{"source":{"kind":"tool-registry"},"content":[{"type":"tool-addition","toolName":"see"}],"role":"developer","id":"d1"},"headerSeq":20}` + appended,
			22: `assistant/message {"turn":2,"step":1,"message":{"role":"assistant","content":[{"type":"text","text":"a"}],"source":{"kind":"model","provider":"p","model":"m"},"id":"a2"},"stream":[{"type":"chunk","time":32,"chunk":{"type":"block-end","index":0,"block":{"type":"text","text":"a"}}},{"type":"chunk","time":32,"chunk":{"type":"finish","reason":{"kind":"stop"}}}]}` + appended,
			23: `step/end {"turn":2,"step":1}`,
			24: `turn/end {"turn":2,"reason":{"kind":"completed"}}`,
			25: `session-log-deepseek/delivery-accepted {"sessionId":"s","throughSeq":24,"sessionFormatVersion":4}`,
		}[15:]),
		breaches: []breach{
			{"LOG-TYPE", "of the first dialects", more(`steering/message {"content":[],"source":{"kind":"user"}}`)},
			{"LOG-TYPE", "of generation 1", more(`assistant/chunk {"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"stop"}}}`)},
			{"EVT-SHAPE", "data is no object", more(`plan/mode []`)},
			{"EVT-SHAPE", "a prompt whose data is no object", in(2, `{"turn":1,"step":1,"message":{"role":"system","content":[{"type":"text","text":"b"}],"source":{"kind":"system-prompt"},"id":"y1"}}`, `[]`)},
			{"MSG-SHAPE", "a prompt that is no object", in(2, `"message":{`, `"message":7,"was":{`)},
			{"MSG-SHAPE", "a prompt of the wrong role", in(2, `"role":"system"`, `"role":"user"`)},
			{"MSG-SHAPE", "a developer of the wrong role", in(21, `"role":"developer"`, `"role":"system"`)},
			{"MSG-SHAPE", "a prompt of the developer", in(19, `"role":"user"`, `"role":"developer"`)},
			{"MSG-SHAPE", "a result that is no object", in(7, `"message":{`, `"message":7,"was":{`)},
			{"MSG-SHAPE", "a result of the wrong role", in(7, `"role":"tool"`, `"role":"user"`)},
			{"MSG-SHAPE", "a result of no tool", in(7, `"kind":"tool"`, `"kind":"user"`)},
			{"MSG-SHAPE", "a result of another call", in(7, `"callId":"c1"`, `"callId":"c2"`)},
			{"MSG-SHAPE", "a result without call", in(7, `,"toolCallId":"c1"`, ``)},
			{"MSG-SHAPE", "a result that neither failed nor not", in(7, `"isError":false`, `"isError":1`)},
			{"MSG-SHAPE", "an error in a result that is none", in(7, `"r1"}`, `"r1"},"error":{"name":"E","message":"m"}`)},
			{"MSG-SHAPE", "a queued message without kind", in(15, `{"kind":"user"}`, `{"kind":""}`)},
			{"MSG-SHAPE", "a queued message without source", in(15, `"source":{"kind":"user"},`, ``)},
			{"MSG-SHAPE", "a queued message of a plugin", in(15, `{"kind":"user"}`, `{"kind":"plugin","plugin":"x"}`)},
			{"MSG-SHAPE", "a queued message of the developer", in(15, `"role":"user"`, `"role":"developer"`)},
			{"MSG-SHAPE", "a title asked for by the developer", in(14, `"role":"user"`, `"role":"developer"`)},
			{"MSG-BLOCK", "a chunk that starts a result", in(5, `"blockType":"tool-call"`, `"blockType":"tool-result"`)},
			{"MSG-BLOCK", "a chunk that ends a result", in(5, `"block":{"type":"tool-call"`, `"block":{"type":"tool-result"`)},
			{"MSG-BLOCK", "a tool that the user adds", in(19, `{"type":"text","text":"n"}`, `{"type":"tool-addition","toolName":"see"}`)},
			{"MSG-BLOCK", "a queued tool", in(15, `{"type":"text","text":"n"}`, `{"type":"tool-removal","toolName":"see"}`)},
			{"MSG-BLOCK", "a tool asked for a title", in(14, `{"type":"text","text":"t"}`, `{"type":"tool-removal","toolName":"see"}`)},
			{"MSG-BLOCK", "a result in a summary", in(11, `{"type":"text","text":"s"}`, `{"type":"tool-result","toolCallId":"c1","content":[]}`)},
			{"MSG-BLOCK", "a tool without name", in(21, `"toolName":"see"`, `"toolName":""`)},
			{"MSG-BLOCK", "a tool that is there as a whole", in(21, `"toolName":"see"`, `"toolName":"see","tool":{"name":"see"}`)},
			{"MSG-BLOCK", "a result sent to a team", more(`team/message/queued {"version":1,"teamId":"t","message":{"id":"m","senderId":"a","targetId":"b","content":[{"type":"tool-result","toolCallId":"c1","content":[]}]}}`)},
			{"TOOL-UPDATE", "a header for nothing", in(21, `tool-addition`, `tool-removal`)},
			{"TOOL-UPDATE", "no header", in(21, `,"headerSeq":20`, ``)},
			{"TOOL-UPDATE", "a header behind it", in(21, `"headerSeq":20`, `"headerSeq":21`)},
			{"TOOL-UPDATE", "no seq", in(21, `"headerSeq":20`, `"headerSeq":"20"`)},
			{"TOOL-UPDATE", "a seq of something else", in(21, `"headerSeq":20`, `"headerSeq":19`)},
			{"TOOL-UPDATE", "a tool without description", in(20, `"see","description":"d"`, `"see"`)},
			{"TOOL-UPDATE", "a tool without parameters", in(20, `"see","description":"d","parameters":{}`, `"see","description":"d","parameters":[]`)},
			{"TOOL-UPDATE", "two tools of the name", in(20, `"name":"run"`, `"name":"see"`)},
			{"HDR-SHAPE", "a system prompt", in(20, `"tools"`, `"system":"b","tools"`)},
			{"HDR-SHAPE", "no tools at all", in(20, `[{"name":"run","description":"d","parameters":{}},{"name":"see","description":"d","parameters":{}}]`, `[]`)},
			{"HDR-SHAPE", "no defaults at all", in(20, `"tools"`, `"adapterDefaults":{},"tools"`)},
			{"HDR-SHAPE", "a tool that does not wait", in(20, `"name":"see"`, `"name":"see","deferLoading":false`)},
			{"STREAM-ROW", "a chunk without type", in(22, `{"type":"block-end",`, `{"kind":"block-end",`)},
			{"STREAM-ROW", "a chunk of another type", in(22, `"type":"block-end"`, `"type":"block-stop"`)},
			{"CALL-ID", "empty", in(5, `"id":"c1","name":"run","arguments":"{}"}],`, `"id":"","name":"run","arguments":"{}"}],`)},
			{"CALL-MATCH", "run twice", at(7, `tool/call {"turn":1,"step":1,"callId":"c1","name":"run","arguments":"{}"}`)},
			{"CALL-MATCH", "of another name", in(6, `"run"`, `"see"`)},
			{"CHUNK-ASM", "a member less", in(22, `"block":{"type":"text","text":"a"`, `"block":{"type":"text","text":"a","more":1`)},
			{"CHUNK-ASM", "a block of no index", in(22, `"index":0`, `"index":"0"`)},
			{"CHUNK-ASM", "a block of a kind that deltas do not make", in(22, `{"type":"block-end","index":0,"block":{"type":"text","text":"a"}}`, `{"type":"block-start","index":0,"blockType":"plugin:x"}`)},
			{"CHUNK-ASM", "a call that was never finished", in(5, `{"type":"chunk","time":15,"chunk":{"type":"block-end","index":0,"block":{"type":"tool-call","id":"c1","name":"run","arguments":"{}"}}},`, ``)},
			{"CHUNK-ASM", "interrupted before it said anything", all(in(22, `"a2"}`, `"a2"},"interrupted":true`), in(22, `{"type":"block-end","index":0,"block":{"type":"text","text":"a"}}`, `{"type":"block-start","index":0,"blockType":"text"}`))},
			{"CMP-RANGE", "of nothing", in(11, `[3,5,7]`, `[]`)},
			{"CMP-RANGE", "from another event on", in(11, `"start":3`, `"start":2`)},
			{"CMP-RANGE", "to another event", in(11, `"end":7`, `"end":8`)},
			{"CMP-RANGE", "what is not on the surface", all(in(11, `[3,5,7]`, `[4,5,7]`), in(11, `"start":3`, `"start":4`))},
			{"CMP-RANGE", "with a gap", in(11, `[3,5,7]`, `[3,7]`)},
			{"CMP-RANGE", "beyond the surface", all(in(11, `[3,5,7]`, `[3,5,7,8]`), in(11, `"end":7`, `"end":8`))},
			{"CMP-OWNER", "of a turn that is over", more(`compaction/start {"compactionId":"z","turn":2}`, lateEnd)},
			{"CMP-OWNER", "of another turn", more(lateTurn, `compaction/start {"compactionId":"z","turn":2}`, lateEnd)},
			{"CMP-OWNER", "of no turn inside one", more(lateTurn, `compaction/start {"compactionId":"z","turn":null}`, lateEnd)},
			{"CMP-ID", "a checkpoint behind the end", func(l []string) []string { l[12], l[13] = l[13], l[12]; return l }},
			{"CMP-ID", "a checkpoint behind the end, without id", func(l []string) []string {
				l[12], l[13] = l[13], in(0, `,"compactionId":"k"`, ``)([]string{l[12]})[0]
				return l
			}},
			{"CMP-ID", "a checkpoint without id", in(12, `,"compactionId":"k"`, ``)},
			{"CMP-ID", "a checkpoint of another command", in(12, `"compactionId":"k"`, `"compactionId":"k","sourceCommandId":"o"`)},
			{"TITLE", "asked for from no message", in(14, `[3]`, `[]`)},
			{"TITLE", "asked for by another", in(14, `dsh-session-title-llm`, `user`)},
			{"TITLE", "asked for with two messages", in(14, `"messages":[{`, `"messages":[{},{`)},
			{"TITLE", "asked for with two blocks", in(14, `{"type":"text","text":"t"}`, `{"type":"text","text":"t"},{"type":"text","text":"t"}`)},
			{"DELIVERY", "of another session", in(25, `"sessionId":"s"`, `"sessionId":"p"`)},
		},
	},
	"generation 4, forked": {
		head: `{"type":"session","version":4,"id":"s","createdAt":1,"cwd":"/w","isSeeded":false,"delegationDepth":0}`,
		lines: slices.Concat(settledLines("", "", "", "")[:2], []string{
			2: `system/message {"turn":1,"step":1,"message":{"role":"system","content":[{"type":"text","text":"b"}],"source":{"kind":"system-prompt"},"id":"y1"}}` + appended,
			3: settledLines("", "", "", "")[3],
			4: settledLines("", "", "", "")[4],
			5: settledLines("", "", "", "")[5],
			6: `tool/result {"turn":1,"step":1,"message":{"role":"tool","source":{"kind":"tool","callId":"c1"},"toolCallId":"c1","content":[{"type":"text","text":"r"}],"isError":true,"id":"forked-tool-result-c1-6"},"error":{"name":"ToolNotStartedError","code":"TOOL_NOT_STARTED"}}` + appended,
			7: `step/end {"turn":1,"step":1}`,
			8: `turn/end {"turn":1,"reason":{"kind":"interrupted"}}`,
		}[2:]),
		breaches: []breach{
			{"RESULT-REPAIR", "without error", in(6, `,"error":{"name":"ToolNotStartedError","code":"TOOL_NOT_STARTED"}`, ``)},
			{"RESULT-REPAIR", "of another name", in(6, `"name":"ToolNotStartedError"`, `"name":"E"`)},
			{"RESULT-REPAIR", "of another code", in(6, `TOOL_NOT_STARTED`, `TOOL_OUTCOME_UNKNOWN`)},
			{"RESULT-REPAIR", "that is no error", in(6, `"isError":true`, `"isError":false`)},
			{"RESULT-REPAIR", "that cites", in(6, `,"surfaceOp"`, `,"sourceEventSeqs":[5],"surfaceOp"`)},
			{"RESULT-REPAIR", "with an id of its own", in(6, `forked-tool-result-c1-6`, `r1`)},
			{"RESULT-REPAIR", "with the id of another call", in(6, `-c1-`, `-c2-`)},
			{"RESULT-REPAIR", "with a number that is written otherwise", in(6, `-c1-6`, `-c1-06`)},
			{"RESULT-REPAIR", "with the number of another event", in(6, `-c1-6`, `-c1-5`)},
			{"RESULT-REPAIR", "in two blocks", in(6, `{"type":"text","text":"r"}`, `{"type":"text","text":"r"},{"type":"text","text":"r"}`)},
			{"RESULT-REPAIR", "after an interruption, in words of a fork", in(6, `forked-`, `interrupted-`)},
		},
	},
}
