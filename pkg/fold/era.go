package fold

import (
	"bytes"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// anyEra is the range that says nothing.
var anyEra = Eras{E0, LatestEra}

// LatestEra is the newest era of generation 0.
const LatestEra = E13

// typeEras says which builds wrote events of a type (SEMANTICS §1, PHYSICAL
// §7.4, §7.5). A type that came or went within an era counts for the whole era.
var typeEras = map[string]Eras{
	logfmt.TypeTurnStart:        {E0, E13},
	logfmt.TypeTurnEnd:          {E0, E13},
	logfmt.TypeStepStart:        {E0, E13},
	logfmt.TypeStepEnd:          {E0, E13},
	logfmt.TypeUserMessage:      {E0, E13},
	logfmt.TypeAssistantChunk:   {E0, E13},
	logfmt.TypeAssistantMessage: {E0, E13},
	logfmt.TypeToolCall:         {E0, E13},
	logfmt.TypeToolResult:       {E0, E13},

	logfmt.TypeContextMessage:     {E0, E6},
	logfmt.TypeSteeringMessage:    {E0, E9},
	logfmt.TypeUsage:              {E0, E0},
	logfmt.TypeError:              {E0, E0},
	logfmt.TypePromptBlocked:      {E2, E7},
	logfmt.TypeRequestHeaderDelta: {E3, E5},
	logfmt.TypeBashSandboxMode:    {E4, E5},
	logfmt.TypeCompactStart:       {E2, E10},
	logfmt.TypeCompactSummary:     {E2, E10},
	logfmt.TypeCompactEnd:         {E2, E10},
	logfmt.TypeCompactPrune:       {E10, E10},

	logfmt.TypeTodoWrite:                   {E2, E13},
	logfmt.TypeHookInvoked:                 {E2, E13},
	logfmt.TypeHookResult:                  {E2, E13},
	logfmt.TypeRequestHeader:               {E3, E13},
	logfmt.TypeToolCodeDispatch:            {E4, E13},
	logfmt.TypeToolCodeDispatchStart:       {E7, E13},
	logfmt.TypeApprovalAsked:               {E4, E13},
	logfmt.TypeApprovalDecided:             {E4, E13},
	logfmt.TypeApprovalPolicy:              {E4, E13},
	logfmt.TypePermissionPreset:            {E4, E13},
	logfmt.TypeSandboxMode:                 {E5, E13},
	logfmt.TypeLLMRetry:                    {E6, E13},
	logfmt.TypeSessionTitle:                {E6, E13},
	logfmt.TypeSessionTitleLLMRequest:      {E6, E13},
	logfmt.TypePlanMode:                    {E6, E13},
	logfmt.TypeCommandRun:                  {E8, E13},
	logfmt.TypeCommandDone:                 {E8, E13},
	logfmt.TypeSessionEndSeed:              {E9, E13},
	logfmt.TypeWebDeepseekSearchLLMRequest: {E9, E13},
	logfmt.TypeRequestContext:              {E9, E13},
	logfmt.TypeSubagentDescriptor:          {E9, E13},
	logfmt.TypeAgentInboxSpliced:           {E10, E13},
	logfmt.TypeGoalChange:                  {E10, E13},
	logfmt.TypeFeedbackRecord:              {E10, E13},
	logfmt.TypeLLMRetryStarted:             {E10, E13},
	logfmt.TypeAgentPresetSelected:         {E10, E13},
	logfmt.TypeToolWorkflowRunStart:        {E10, E13},
	logfmt.TypeToolWorkflowRunEnd:          {E10, E13},
	logfmt.TypeToolWorkflowAgentStart:      {E10, E13},
	logfmt.TypeToolWorkflowAgentEnd:        {E10, E13},
	logfmt.TypeScheduleChange:              {E10, E13},
	logfmt.TypeCompactionStart:             {E11, E13},
	logfmt.TypeCompactionSummary:           {E11, E13},
	logfmt.TypeCompactionEnd:               {E11, E13},
	logfmt.TypeCompactionPrune:             {E11, E13},
	logfmt.TypeTeamMember:                  {E11, E13},
	logfmt.TypeTeamTask:                    {E11, E13},
	logfmt.TypeTeamMessageQueued:           {E11, E13},
	logfmt.TypeTeamMessageDelivered:        {E11, E13},
}

// TypeEras returns the eras that wrote events of a type; ok is false for a type
// unknown to every era of generation 0.
func TypeEras(typ string) (r Eras, ok bool) {
	r, ok = typeEras[typ]
	return r, ok
}

func (r Eras) and(o Eras) Eras { return Eras{max(r.Min, o.Min), min(r.Max, o.Max)} }

// EventEras returns the builds that may have written an event, judged by its
// shape alone (SEMANTICS §0.1, §1; PHYSICAL §10 step 5, §7.6). Shapes that
// contradict one another give a range with Min above Max.
//
// A marker counts from E2: the branch that had markers before is not told apart.
func EventEras(e *logfmt.Event) Eras {
	r := anyEra
	if e.Type == logfmt.TypeAssistantChunk {
		// The path of nearly all events: no lookup, no walk unless it finishes. That
		// it comes from a packed row says nothing: a log may have been converted.
		if e.IsPiece() {
			return r
		}
		if reason := finishReason(e.Data); reason != nil {
			r = r.and(finishEras(reason))
		}
		return r
	}
	if t, ok := typeEras[e.Type]; ok {
		r = t
	}
	if e.Op != nil {
		r.Min = max(r.Min, E2)
	}
	if e.Sources != nil {
		r.Min = max(r.Min, E2)
		if len(e.Sources) == 2 && e.Type == logfmt.TypeAssistantMessage {
			r.Min = max(r.Min, E5) // a known empty stream; on any other type a mistake of every era
		}
	}
	if e.Ignorable {
		r.Min = max(r.Min, E10)
	}
	d := e.Data
	has := func(key string) bool { return jsjson.Get(d, key) != nil }
	from := func(era Era) { r.Min = max(r.Min, era) }
	upTo := func(era Era) { r.Max = min(r.Max, era) }
	switch e.Type {
	case logfmt.TypeTurnStart:
		trigger := jsjson.Get(d, "trigger")
		if trigger == nil {
			from(E10)
			break
		}
		upTo(E9)
		switch kind, _ := jsjson.Str(jsjson.Get(trigger, "kind")); kind {
		case "continuation":
			upTo(E2)
		case "session-title":
			r = r.and(Eras{E6, E8})
		case "retry":
			from(E7)
		}
	case logfmt.TypeTurnEnd:
		r = r.and(turnEndEras(jsjson.Get(d, "reason")))
	case logfmt.TypeUserMessage:
		switch {
		case has("role") && has("id"):
			from(E9)
		case has("content"):
			upTo(E8)
			if has("envelope") {
				r = r.and(Eras{E6, E7})
			}
			if has("meta") {
				r = r.and(Eras{E6, E7})
			}
		}
	case logfmt.TypeContextMessage:
		if has("envelope") {
			r = r.and(Eras{E4, E5})
		}
		if has("meta") {
			from(E4)
		}
	case logfmt.TypeSteeringMessage:
		switch {
		case has("message"):
			from(E9)
		case has("content"):
			upTo(E8)
			if has("envelope") {
				r = r.and(Eras{E6, E7})
			}
			if has("meta") {
				r = r.and(Eras{E6, E7})
			}
		}
	case logfmt.TypeAssistantMessage:
		switch {
		case has("message"):
			from(E9)
			if has("interrupted") {
				from(E12)
			}
		case has("provenance"):
			r = r.and(Eras{E5, E8})
		case has("content"):
			upTo(E4)
		}
		if has("usage") {
			from(E1)
		}
	case logfmt.TypeToolResult:
		switch {
		case has("message"):
			from(E9)
		case has("content"):
			upTo(E8)
		}
		if has("meta") {
			from(E2)
		}
		switch code, _ := jsjson.Str(jsjson.Get(jsjson.Get(d, "error"), "code")); code {
		case "interrupted":
			upTo(E6)
		case "TOOL_OUTCOME_UNKNOWN", "TOOL_NOT_STARTED":
			from(E6)
		}
	case logfmt.TypeRequestHeader:
		r = r.and(headerEras(d))
	case logfmt.TypeRequestHeaderDelta:
		if has("messagePrefix") {
			from(E4)
		}
		if config := jsjson.Get(d, "config"); config != nil {
			r = r.and(configEras(config))
		}
	case logfmt.TypeCompactStart, logfmt.TypeCompactSummary, logfmt.TypeCompactEnd:
		if has("compactionId") {
			from(E10)
		} else {
			upTo(E10)
		}
		switch {
		case has("llmStreamCall"):
			from(E10)
		case has("rawOutput"):
			from(E9)
		case has("provider"):
			from(E5)
		case has("model"):
			r = r.and(Eras{E3, E4})
		case e.Type == logfmt.TypeCompactSummary:
			upTo(E2)
		case string(jsjson.Get(d, "turn")) == "null":
			from(E9)
		}
	case logfmt.TypeLLMRetry:
		switch {
		case has("retryId"):
			from(E10)
		case has("mode"):
			r = r.and(Eras{E7, E10})
		case has("retry"):
			upTo(E7)
		}
	case logfmt.TypeToolCodeDispatch:
		switch {
		case has("rootCallId"):
			from(E10)
		case has("resultSummary"):
			upTo(E7)
		case has("content"):
			from(E7)
		}
	}
	return r
}

// headerEras dates a request/header.
func headerEras(data []byte) Eras {
	r := anyEra
	header := jsjson.Get(data, "header")
	if config := jsjson.Get(header, "config"); config != nil {
		r = r.and(configEras(config))
	}
	if jsjson.Get(header, "messagePrefix") != nil {
		r = r.and(Eras{E4, E7})
	}
	if jsjson.Get(header, "adapterDefaults") != nil {
		r = r.and(Eras{E9, LatestEra})
	}
	switch reason, _ := jsjson.Str(jsjson.Get(data, "reason")); reason {
	case "fallback":
		r = r.and(Eras{E3, E5})
	case "change":
		r = r.and(Eras{E5, LatestEra})
	}
	return r
}

func configEras(config []byte) Eras {
	if jsjson.Get(config, "provider") != nil {
		return Eras{E5, LatestEra}
	}
	return Eras{E0, E4}
}

// turnEndEras dates the reason of a turn/end (SEMANTICS §1.0).
func turnEndEras(reason []byte) Eras {
	kind, _ := jsjson.Str(jsjson.Get(reason, "kind"))
	switch kind {
	case "disposed":
		return Eras{E0, E9}
	case "blocked":
		return Eras{E10, LatestEra}
	case "rejected":
		return Eras{E2, E7}
	case "aborted":
		switch jsjson.KindOf(jsjson.Get(reason, "reason")) {
		case jsjson.Object:
			return Eras{E10, LatestEra}
		case jsjson.String:
			return Eras{E0, E6}
		case jsjson.Absent:
			return Eras{E0, E9}
		}
	case "error":
		switch {
		case jsjson.Get(reason, "error") != nil:
			return Eras{E10, LatestEra}
		case jsjson.Get(reason, "failure") != nil:
			return Eras{E6, E9}
		case jsjson.Get(reason, "step") != nil:
			return Eras{E1, E9}
		case jsjson.Get(reason, "message") != nil:
			return Eras{E0, E0}
		}
	}
	return anyEra
}

// finishEras dates the reason of a finish chunk (SEMANTICS §1.0).
func finishEras(reason []byte) Eras {
	if kind := jsjson.Get(reason, "kind"); jsjson.StrEq(kind, "error") || jsjson.StrEq(kind, "aborted") {
		if jsjson.Get(reason, "failure") != nil {
			return Eras{E6, LatestEra}
		}
		return Eras{E0, E6}
	}
	return anyEra
}

// typeOfChunk finds where the type of the chunk is named in data laid out as the
// writer lays it out, {"turn":1,"step":2,"chunk":{"type":"…; 0 for another layout.
func typeOfChunk(data []byte) int {
	i := 0
	for _, key := range [...]string{`{"turn":`, `,"step":`} {
		if len(data)-i < len(key) || string(data[i:i+len(key)]) != key {
			return 0
		}
		for i += len(key); i < len(data) && data[i] >= '0' && data[i] <= '9'; i++ {
		}
	}
	const key = `,"chunk":{"type":"`
	if len(data)-i <= len(key) || string(data[i:i+len(key)]) != key {
		return 0
	}
	return i + len(key)
}

var finishToken = []byte(`"type":"finish"`)

// finishReason returns the reason of a finish chunk, nil for any other chunk.
func finishReason(data []byte) []byte {
	// Nearly every chunk is settled here. In canonical bytes the token cannot be
	// part of a string, whose quotes are escaped.
	if i := typeOfChunk(data); i > 0 && data[i] != 'f' || i <= 0 && !bytes.Contains(data, finishToken) {
		return nil
	}
	chunk := jsjson.Get(data, "chunk")
	if !jsjson.StrEq(jsjson.Get(chunk, "type"), "finish") {
		return nil
	}
	return jsjson.Get(chunk, "reason")
}

// Dialect follows which builds may have written a log, event by event. One file
// may have been appended to by several builds, each newer than the one before:
// the oldest possible build never goes back, the newest possible one starts
// anew with every process (SEMANTICS §0.1, §10.3).
type Dialect struct {
	seed    int64 // first seq of this session's own process; 0 when nothing is inherited
	first   Era   // no build before this one is left
	last    Era   // no later build in this process
	hint    Eras  // of the header record: yields to events that contradict it
	turn    Eras  // of the events of the open turn, which no process boundary cuts
	inTurn  bool
	seeded  bool // a boundary was marked; the next initial or resume header belongs to it
	process int
	fixed   bool // a later generation, which has no eras
	cur     Eras
}

// NewDialect starts with what the header record tells (PHYSICAL §10 step 3);
// nil tells nothing.
func NewDialect(h *logfmt.Header) *Dialect {
	d := &Dialect{first: E0, last: LatestEra, hint: anyEra, turn: anyEra}
	if h != nil && h.Generation > 0 {
		// Whatever wrote it came after every era, and rewrote what it took over.
		d.fixed = true
		d.cur = Eras{LatestEra, LatestEra}
		return d
	}
	if h != nil {
		d.seed = h.Seed()
		switch {
		case h.Fault&logfmt.HeaderJune != 0:
			d.hint.Max = E0
		case h.Origin != nil:
			d.hint.Min = E9
		case h.AgentPreset != nil:
			d.hint.Min = E10
		case h.DelegationDepth != nil:
			d.hint.Min = E6
		case h.Fault&logfmt.HeaderNoDepth != 0:
			d.hint.Max = E6
		}
		if h.AgentPreset != nil {
			d.hint.Min = E10
		}
		if h.SeedLength != nil {
			d.hint.Min = max(d.hint.Min, E1)
		}
	}
	d.cur = d.eras()
	return d
}

// Eras returns the builds that may have written the latest event.
func (d *Dialect) Eras() Eras { return d.cur }

// Process counts the process boundaries so far: 0 for the first process.
func (d *Dialect) Process() int { return d.process }

// Add takes the next event into account and returns the range that holds for it.
func (d *Dialect) Add(e *logfmt.Event) Eras {
	if d.fixed {
		if e.Type == logfmt.TypeSessionEndSeed {
			d.process++
		}
		return d.cur
	}
	shape := EventEras(e)
	if shape.Min > shape.Max {
		shape = anyEra // contradicts itself: tells nothing
	}
	switch e.Type {
	case logfmt.TypeTurnStart:
		d.turn, d.inTurn = anyEra, true
	case logfmt.TypeSessionEndSeed:
		d.boundary(anyEra)
		d.seeded = true
	case logfmt.TypeRequestHeader:
		reason := jsjson.Get(e.Data, "reason")
		if jsjson.StrEq(reason, "initial") || jsjson.StrEq(reason, "resume") {
			if !d.seeded {
				// The process began unmarked, at the latest with this turn.
				d.boundary(d.turn)
			}
			d.seeded = false
		}
	}
	if d.seed > 0 && e.Seq == d.seed && e.Type != logfmt.TypeSessionEndSeed {
		d.boundary(anyEra)
		d.seeded = true
	}
	if d.inTurn {
		if t := d.turn.and(shape); t.Min <= t.Max {
			d.turn = t
		}
	}
	if e.Type == logfmt.TypeTurnEnd {
		d.turn, d.inTurn = anyEra, false
	}
	switch {
	case shape.Max < d.first:
		// A shape from before what was seen already: a mistake, it tells nothing.
	case shape.Min > d.last:
		// A newer build went on here without saying so.
		d.first, d.last = max(d.first, shape.Min), shape.Max
	default:
		d.first, d.last = max(d.first, shape.Min), min(d.last, shape.Max)
	}
	d.cur = d.eras()
	return d.cur
}

func (d *Dialect) boundary(known Eras) {
	d.process++
	d.last = max(known.Max, d.first)
}

func (d *Dialect) eras() Eras {
	r := Eras{d.first, d.last}
	if h := r.and(d.hint); h.Min <= h.Max {
		return h
	}
	return r
}
