package logfmt

// Names of the event types that any build of generation 0 wrote (PHYSICAL §7.4,
// §7.5). Which era wrote which is known to package fold.
const (
	TypeAgentPresetSelected         = "agent-preset/selected"
	TypeAgentInboxSpliced           = "agent/inbox/spliced"
	TypeApprovalAsked               = "approval/asked"
	TypeApprovalDecided             = "approval/decided"
	TypeApprovalPolicy              = "approval/policy"
	TypeAssistantChunk              = "assistant/chunk"
	TypeAssistantMessage            = "assistant/message"
	TypeCommandDone                 = "command/done"
	TypeCommandRun                  = "command/run"
	TypeCompactionEnd               = "compaction/end"
	TypeCompactionPrune             = "compaction/prune"
	TypeCompactionStart             = "compaction/start"
	TypeCompactionSummary           = "compaction/summary"
	TypeFeedbackRecord              = "feedback/record"
	TypeGoalChange                  = "goal/change"
	TypeHookInvoked                 = "hook/invoked"
	TypeHookResult                  = "hook/result"
	TypeLLMRetry                    = "llm/retry"
	TypeLLMRetryStarted             = "llm/retry-started"
	TypePermissionPreset            = "permission/preset"
	TypePlanMode                    = "plan/mode"
	TypeRequestContext              = "request/context"
	TypeRequestHeader               = "request/header"
	TypeSandboxMode                 = "sandbox/mode"
	TypeScheduleChange              = "schedule/change"
	TypeSessionEndSeed              = "session/end-seed"
	TypeSessionTitle                = "session/title"
	TypeSessionTitleLLMRequest      = "session/title-llm-request"
	TypeStepEnd                     = "step/end"
	TypeStepStart                   = "step/start"
	TypeSubagentDescriptor          = "subagent/descriptor"
	TypeTeamMember                  = "team/member"
	TypeTeamMessageDelivered        = "team/message/delivered"
	TypeTeamMessageQueued           = "team/message/queued"
	TypeTeamTask                    = "team/task"
	TypeTodoWrite                   = "todo/write"
	TypeToolWorkflowAgentEnd        = "tool-workflow/agent-end"
	TypeToolWorkflowAgentStart      = "tool-workflow/agent-start"
	TypeToolWorkflowRunEnd          = "tool-workflow/run-end"
	TypeToolWorkflowRunStart        = "tool-workflow/run-start"
	TypeToolCall                    = "tool/call"
	TypeToolCodeDispatch            = "tool/code-dispatch"
	TypeToolCodeDispatchStart       = "tool/code-dispatch-start"
	TypeToolResult                  = "tool/result"
	TypeTurnEnd                     = "turn/end"
	TypeTurnStart                   = "turn/start"
	TypeUserMessage                 = "user/message"
	TypeWebDeepseekSearchLLMRequest = "web/deepseek-search-llm-request"
)

// Types that were renamed or dropped while the generation was current.
const (
	TypeBashSandboxMode    = "bash/sandbox-mode"
	TypeCompactEnd         = "compact/end"
	TypeCompactPrune       = "compact/prune"
	TypeCompactStart       = "compact/start"
	TypeCompactSummary     = "compact/summary"
	TypeContextMessage     = "context/message"
	TypeError              = "error"
	TypeModeSet            = "mode/set"
	TypePromptBlocked      = "prompt/blocked"
	TypeRequestHeaderDelta = "request/header-delta"
	TypeSteeringMessage    = "steering/message"
	TypeUsage              = "usage"
)

// Types that builds after the newest dialect described here added to the same
// generation (PHYSICAL appendix A).
const (
	TypeModelSelection                     = "model/selection"
	TypeSessionLogDeepseekDeliveryAccepted = "session-log-deepseek/delivery-accepted"
	TypeSubagentModelSelectionPolicy       = "subagent/model-selection-policy"
)

// Tags of packed rows (PHYSICAL §4): names of storage records, never of events.
const (
	rowText      = "text-chunks"
	rowReasoning = "reasoning-chunks"
	rowToolCall  = "tool-call-chunks"
)

// internType returns the known type or row tag whose JSON string is tok, without
// allocating, or "".
func internType(tok []byte) string {
	switch string(tok) {
	case `"assistant/chunk"`:
		return TypeAssistantChunk
	case `"agent-preset/selected"`:
		return TypeAgentPresetSelected
	case `"agent/inbox/spliced"`:
		return TypeAgentInboxSpliced
	case `"approval/asked"`:
		return TypeApprovalAsked
	case `"approval/decided"`:
		return TypeApprovalDecided
	case `"approval/policy"`:
		return TypeApprovalPolicy
	case `"assistant/message"`:
		return TypeAssistantMessage
	case `"bash/sandbox-mode"`:
		return TypeBashSandboxMode
	case `"command/done"`:
		return TypeCommandDone
	case `"command/run"`:
		return TypeCommandRun
	case `"compact/end"`:
		return TypeCompactEnd
	case `"compact/prune"`:
		return TypeCompactPrune
	case `"compact/start"`:
		return TypeCompactStart
	case `"compact/summary"`:
		return TypeCompactSummary
	case `"compaction/end"`:
		return TypeCompactionEnd
	case `"compaction/prune"`:
		return TypeCompactionPrune
	case `"compaction/start"`:
		return TypeCompactionStart
	case `"compaction/summary"`:
		return TypeCompactionSummary
	case `"context/message"`:
		return TypeContextMessage
	case `"error"`:
		return TypeError
	case `"feedback/record"`:
		return TypeFeedbackRecord
	case `"goal/change"`:
		return TypeGoalChange
	case `"hook/invoked"`:
		return TypeHookInvoked
	case `"hook/result"`:
		return TypeHookResult
	case `"llm/retry"`:
		return TypeLLMRetry
	case `"llm/retry-started"`:
		return TypeLLMRetryStarted
	case `"mode/set"`:
		return TypeModeSet
	case `"model/selection"`:
		return TypeModelSelection
	case `"permission/preset"`:
		return TypePermissionPreset
	case `"plan/mode"`:
		return TypePlanMode
	case `"prompt/blocked"`:
		return TypePromptBlocked
	case `"request/context"`:
		return TypeRequestContext
	case `"request/header"`:
		return TypeRequestHeader
	case `"request/header-delta"`:
		return TypeRequestHeaderDelta
	case `"sandbox/mode"`:
		return TypeSandboxMode
	case `"schedule/change"`:
		return TypeScheduleChange
	case `"session-log-deepseek/delivery-accepted"`:
		return TypeSessionLogDeepseekDeliveryAccepted
	case `"session/end-seed"`:
		return TypeSessionEndSeed
	case `"session/title"`:
		return TypeSessionTitle
	case `"session/title-llm-request"`:
		return TypeSessionTitleLLMRequest
	case `"steering/message"`:
		return TypeSteeringMessage
	case `"step/end"`:
		return TypeStepEnd
	case `"step/start"`:
		return TypeStepStart
	case `"subagent/descriptor"`:
		return TypeSubagentDescriptor
	case `"subagent/model-selection-policy"`:
		return TypeSubagentModelSelectionPolicy
	case `"team/member"`:
		return TypeTeamMember
	case `"team/message/delivered"`:
		return TypeTeamMessageDelivered
	case `"team/message/queued"`:
		return TypeTeamMessageQueued
	case `"team/task"`:
		return TypeTeamTask
	case `"todo/write"`:
		return TypeTodoWrite
	case `"tool-workflow/agent-end"`:
		return TypeToolWorkflowAgentEnd
	case `"tool-workflow/agent-start"`:
		return TypeToolWorkflowAgentStart
	case `"tool-workflow/run-end"`:
		return TypeToolWorkflowRunEnd
	case `"tool-workflow/run-start"`:
		return TypeToolWorkflowRunStart
	case `"tool/call"`:
		return TypeToolCall
	case `"tool/code-dispatch"`:
		return TypeToolCodeDispatch
	case `"tool/code-dispatch-start"`:
		return TypeToolCodeDispatchStart
	case `"tool/result"`:
		return TypeToolResult
	case `"turn/end"`:
		return TypeTurnEnd
	case `"turn/start"`:
		return TypeTurnStart
	case `"usage"`:
		return TypeUsage
	case `"user/message"`:
		return TypeUserMessage
	case `"web/deepseek-search-llm-request"`:
		return TypeWebDeepseekSearchLLMRequest
	case `"text-chunks"`:
		return rowText
	case `"reasoning-chunks"`:
		return rowReasoning
	case `"tool-call-chunks"`:
		return rowToolCall
	}
	return ""
}
