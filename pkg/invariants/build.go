package invariants

import (
	"fmt"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// A Build is a moment on the main line of the harness, as the decimal digits
// MDDhhmm (China Standard Time, 2026): 7_20_19_53 is July 20, 19:53. Rules came
// and went between two eras too, so they are dated by build and not by era.
type Build int

const (
	firstBuild Build = 6_11_10_55
	lastBuild  Build = 9_04_23_59
)

// The builds that start an era (SEMANTICS §0.1).
var eraStart = [...]Build{
	fold.E0:  firstBuild,
	fold.E1:  6_21_20_34,
	fold.E2:  6_26_08_57,
	fold.E3:  7_06_13_37,
	fold.E4:  7_09_00_00,
	fold.E5:  7_17_22_21,
	fold.E6:  7_20_17_05,
	fold.E7:  7_24_20_19,
	fold.E8:  7_27_22_39,
	fold.E9:  7_28_19_39,
	fold.E10: 8_05_22_13,
	fold.E11: 8_13_01_21,
	fold.E12: 8_19_15_39,
	fold.E13: 8_21_12_35,
}

// Other builds that changed what is checked here.
const (
	buildBranch       Build = 6_17_15_01 // first branch builds with optional markers
	buildSeedLength   Build = 6_23_23_39
	buildTodo         Build = 6_29_21_46
	buildMeta         Build = 7_03_00_00 // of which the day is known
	buildNoNegZero    Build = 7_13_14_10
	buildClosedEnv    Build = 7_14_10_52
	buildProvider     Build = 7_17_22_21
	buildNoDelta      Build = 7_17_22_41
	buildEmptySources Build = 7_19_13_23
	buildRewrite      Build = 7_20_17_30
	buildDepth        Build = 7_20_19_53
	buildFailure      Build = 7_20_22_27
	buildCompanions   Build = 7_21_21_25
	buildNotStarted   Build = 7_22_22_18
	buildNoContext    Build = 7_24_20_19
	buildCreatedAt    Build = 7_24_21_14
	buildEffort       Build = 7_27_22_39
	buildNoPrefix     Build = 7_27_22_39
	buildMessages     Build = 7_28_19_39
	buildRetiredKeys  Build = 7_29_01_01
	buildEndSeed      Build = 7_30_16_51
	buildDefaults     Build = 7_31_02_05
	buildEmptyEndSeed Build = 7_31_14_05
	buildOrigin       Build = 8_02_13_03
	buildReact        Build = 8_05_22_13
	buildTimeNegative Build = 8_07_00_00
	buildPreset       Build = 8_10_11_55
	buildIgnorable    Build = 8_11_11_34
	buildInterrupted  Build = 8_19_15_39
	buildDrift        Build = 8_27_00_00 // 0.1.2-alpha.1, of which the day is known
)

// Era returns the era a build belongs to.
func (b Build) Era() fold.Era {
	e := fold.E0
	for i, s := range eraStart {
		if b >= s {
			e = fold.Era(i)
		}
	}
	return e
}

// String gives the date, as in "07-20 19:53".
func (b Build) String() string {
	return fmt.Sprintf("%02d-%02d %02d:%02d", int(b)/1_00_00_00, int(b)/1_00_00%100, int(b)/1_00%100, int(b)%100)
}

// Builds is an inclusive range of builds that may have written an event.
type Builds struct{ Min, Max Build }

// Since reports whether every build of the range is b or later.
func (r Builds) Since(b Build) bool { return r.Min >= b }

// Before reports whether every build of the range is older than b.
func (r Builds) Before(b Build) bool { return r.Max < b }

// Eras is the range in terms of eras.
func (r Builds) Eras() fold.Eras { return fold.Eras{Min: r.Min.Era(), Max: r.Max.Era()} }

// between is the lifetime of a shape: the first build that wrote it and the
// first that no longer did. A zero end means that it is still written.
type between struct{ from, to Build }

// last is a bound that no build that wrote the shape lies above.
func (b between) last() Build {
	if b.to == 0 {
		return lastBuild
	}
	return b.to - 1
}

// lifetimes of the event types (PHYSICAL §7.4, §7.5).
var lifetimes = map[string]between{
	"turn/start":                      {firstBuild, 0},
	"turn/end":                        {firstBuild, 0},
	"step/start":                      {firstBuild, 0},
	"step/end":                        {firstBuild, 0},
	"user/message":                    {firstBuild, 0},
	"assistant/chunk":                 {firstBuild, 0},
	"assistant/message":               {firstBuild, 0},
	"tool/call":                       {firstBuild, 0},
	"tool/result":                     {firstBuild, 0},
	"todo/write":                      {buildTodo, 0},
	"hook/invoked":                    {7_04_10_54, 0},
	"hook/result":                     {7_04_10_54, 0},
	"request/header":                  {7_06_13_37, 0},
	"tool/code-dispatch":              {7_09_23_24, 0},
	"approval/asked":                  {7_11_22_17, 0},
	"approval/decided":                {7_11_22_17, 0},
	"approval/policy":                 {7_11_22_17, 0},
	"permission/preset":               {7_14_10_52, 0},
	"sandbox/mode":                    {7_20_16_35, 0},
	"llm/retry":                       {7_20_22_27, 0},
	"session/title":                   {7_21_23_30, 0},
	"session/title-llm-request":       {7_21_23_30, 0},
	"plan/mode":                       {7_22_20_34, 0},
	"tool/code-dispatch-start":        {7_26_21_29, 0},
	"command/run":                     {7_28_17_56, 0},
	"command/done":                    {7_28_17_56, 0},
	"session/end-seed":                {buildEndSeed, 0},
	"web/deepseek-search-llm-request": {7_31_16_01, 0},
	"request/context":                 {7_31_17_17, 0},
	"subagent/descriptor":             {8_02_12_51, 0},
	"agent/inbox/spliced":             {buildReact, 0},
	"goal/change":                     {buildReact, 0},
	"feedback/record":                 {8_07_15_44, 0},
	"llm/retry-started":               {8_09_21_00, 0},
	"agent-preset/selected":           {8_10_11_55, 0},
	"tool-workflow/run-start":         {8_11_19_05, 0},
	"tool-workflow/run-end":           {8_11_19_05, 0},
	"tool-workflow/agent-start":       {8_11_19_05, 0},
	"tool-workflow/agent-end":         {8_11_19_05, 0},
	"schedule/change":                 {8_11_20_53, 0},
	"compaction/start":                {8_13_01_21, 0},
	"compaction/summary":              {8_13_01_21, 0},
	"compaction/end":                  {8_13_01_21, 0},
	"compaction/prune":                {8_13_01_21, 0},
	"team/member":                     {8_18_16_14, 0},
	"team/task":                       {8_18_16_14, 0},
	"team/message/queued":             {8_18_16_14, 0},
	"team/message/delivered":          {8_18_16_14, 0},

	"model/selection":                        {buildDrift, 0},
	"session-log-deepseek/delivery-accepted": {buildDrift, 0},
	"subagent/model-selection-policy":        {buildDrift, 0},

	"usage":                {firstBuild, 6_21_20_34},
	"error":                {firstBuild, 6_21_20_34},
	"request/header-delta": {7_06_13_37, buildNoDelta},
	"bash/sandbox-mode":    {7_11_22_17, 7_20_16_35},
	"context/message":      {firstBuild, buildNoContext},
	"prompt/blocked":       {7_04_10_54, buildNoPrefix},
	"steering/message":     {firstBuild, buildReact},
	"compact/start":        {6_26_10_00, 8_13_01_21},
	"compact/summary":      {6_26_10_00, 8_13_01_21},
	"compact/end":          {6_26_10_00, 8_13_01_21},
	"compact/prune":        {8_06_11_59, 8_13_01_21},
}

// surfaceTypes are the types that ever were eligible for the surface.
var surfaceTypes = map[string]bool{
	"user/message": true, "assistant/message": true, "tool/result": true,
	"context/message": true, "steering/message": true,
}

// builds tracks which builds may have written the event at hand. A log only
// grows, so the lower bound never falls; the upper bound holds for one process
// and is lifted when a later one takes over, which shows in a process boundary
// or in a shape the old one could not have written.
type builds struct {
	lo, hi Build // bounds for the current process
	cap    Build // no build above this one appends to the file, by its header record
	turnHi Build // upper bound by what was seen since the last turn/start

	last    between // lifetime of the shape of the event just seen
	foreign bool    // the event just seen has a shape retired before lo
	beyond  bool    // the event just seen is newer than cap
	fixed   bool    // a later generation: no build of these wrote it
	legacy  bool    // but one before 07-28 may have written what the event was made from
}

func newBuilds(h *logfmt.Header, golden bool) *builds {
	b := &builds{lo: firstBuild, hi: lastBuild, turnHi: lastBuild, cap: lastBuild}
	if h == nil || golden {
		return b
	}
	if h.Generation > 0 {
		// Written by none of these builds, and after all of them.
		b.lo, b.fixed = lastBuild, true
		return b
	}
	if h.Fault&logfmt.HeaderJune != 0 {
		b.cap = eraStart[fold.E1] - 1
	} else {
		b.lo = eraStart[fold.E1]
		// A database leaves the member out where JSONL writes 0; there it dates nothing.
		if h.Fault&logfmt.HeaderNoDepth != 0 {
			b.cap = buildDepth - 1
		}
	}
	// The header record dates the build that created the file. Inherited events
	// are copies of older ones, so only what is this file's own is dated by it.
	if h.Seed() == 0 {
		for _, k := range [...]struct {
			key string
			at  Build
		}{{"seedLength", buildSeedLength}, {"delegationDepth", buildDepth}, {"origin", buildOrigin}, {"agentPreset", buildPreset}} {
			if jsjson.Get(h.Raw, k.key) != nil {
				b.lo = max(b.lo, k.at)
			}
		}
	}
	b.hi, b.turnHi = b.cap, b.cap
	return b
}

// see takes the evidence of one event, of which message is that member.
func (b *builds) see(e *logfmt.Event, message []byte, inherited bool) {
	b.foreign, b.beyond = false, false
	if b.fixed {
		b.upgraded(e)
		return
	}
	if e.Type == "assistant/chunk" {
		// The same shape in every era. That it comes from a packed row says who
		// stored the log last, not who wrote the event: a log may be converted.
		return
	}
	life, known := lifetimes[e.Type]
	if !known {
		life = between{firstBuild, 0}
	}
	if e.Op != nil {
		life.from = max(life.from, buildBranch)
	}
	if e.Ignorable {
		life.from = max(life.from, buildIgnorable)
	}
	if e.Fault&logfmt.FaultSourceRuns != 0 {
		life.from = max(life.from, buildDrift)
	}
	narrow := func(from, to Build) {
		life.from = max(life.from, from)
		if to != 0 && (life.to == 0 || to < life.to) {
			life.to = to
		}
	}
	d := e.Data
	switch e.Type {
	case "turn/start":
		b.turnHi = b.cap
		if jsjson.Get(d, "trigger") != nil {
			narrow(0, buildReact)
		} else if !inherited && jsjson.KindOf(d) == jsjson.Object {
			narrow(buildReact, 0)
		}
	case "turn/end":
		endEvidence(jsjson.Get(d, "reason"), narrow)
	case "user/message":
		switch {
		case jsjson.Get(d, "role") != nil && jsjson.Get(d, "id") != nil:
			narrow(buildMessages, 0)
		case jsjson.Get(d, "content") != nil && jsjson.Get(d, "source") != nil && jsjson.Get(d, "role") == nil:
			narrow(0, buildMessages)
		}
	case "assistant/message":
		switch {
		case message != nil:
			narrow(buildMessages, 0)
			if jsjson.Get(d, "interrupted") != nil {
				narrow(buildInterrupted, 0)
			}
		case jsjson.Get(d, "provenance") != nil:
			narrow(buildProvider, buildMessages)
		case jsjson.Get(d, "content") != nil:
			narrow(0, buildProvider)
			if jsjson.Get(d, "usage") != nil {
				narrow(eraStart[fold.E1], 0) // before, it came in an event of its own
			}
		}
		if len(e.Sources) == 2 { // "[]"
			narrow(buildEmptySources, 0)
		}
	case "tool/result":
		if message != nil {
			narrow(buildMessages, 0)
		} else if jsjson.Get(d, "callId") != nil {
			narrow(0, buildMessages)
			if jsjson.Get(d, "meta") != nil {
				narrow(buildMeta, 0)
			}
		}
	case "steering/message":
		if message != nil {
			narrow(buildMessages, 0)
		}
	case "request/header":
		headerEvidence(d, narrow)
		reason := jsjson.Get(d, "reason")
		switch {
		case jsjson.StrEq(reason, "resume"), jsjson.StrEq(reason, "initial"):
			// A process logs this header in its first turn, so what was seen
			// in this turn still counts and what came before does not.
			b.hi = b.turnHi
		case jsjson.StrEq(reason, "fallback"):
			narrow(0, buildNoDelta)
		case jsjson.StrEq(reason, "change"):
			narrow(buildNoDelta, 0)
		case jsjson.StrEq(reason, "series"):
			narrow(buildDrift, 0)
		}
	case "session/end-seed":
		b.hi, b.turnHi = b.cap, b.cap
	case "llm/retry":
		if jsjson.Get(d, "retryId") != nil {
			narrow(buildIDs, 0)
		}
	case "compact/start", "compact/summary", "compact/end":
		if jsjson.Get(d, "compactionId") != nil {
			narrow(buildIDs, 0)
		}
	}
	if known {
		b.apply(life)
	}
}

// upgraded follows, in a later generation, whether the events before it come from
// builds that gave messages no ids: the step to generation 1 made them (FORMATS
// §4.5).
func (b *builds) upgraded(e *logfmt.Event) {
	m := e.Data
	switch e.Type {
	case "assistant/message", "tool/result":
		m = jsjson.Get(m, "message")
	case "user/message":
	default:
		return
	}
	if id, ok := jsjson.Str(jsjson.Get(m, "id")); ok {
		b.legacy = strings.HasPrefix(id, "legacy-message:")
	}
}

func endEvidence(reason []byte, narrow func(from, to Build)) {
	kind, _ := jsjson.Str(jsjson.Get(reason, "kind"))
	switch kind {
	case "blocked":
		narrow(buildReact, 0)
	case "disposed":
		narrow(0, buildReact)
	case "rejected":
		narrow(7_04_10_54, buildNoPrefix)
	case "max-tokens":
		narrow(6_18_01_02, 0)
	case "aborted":
		switch jsjson.KindOf(jsjson.Get(reason, "reason")) {
		case jsjson.Object:
			narrow(buildReact, 0)
		case jsjson.String:
			narrow(0, buildCompanions)
		}
	case "error":
		switch {
		case jsjson.Get(reason, "error") != nil:
			narrow(buildReact, 0)
		case jsjson.Get(reason, "failure") != nil:
			narrow(buildFailure, buildReact)
		case jsjson.Get(reason, "step") != nil:
			narrow(eraStart[fold.E1], buildReact)
		case jsjson.Get(reason, "message") != nil:
			narrow(0, eraStart[fold.E1])
		}
	}
}

func headerEvidence(d []byte, narrow func(from, to Build)) {
	h := jsjson.Get(d, "header")
	if jsjson.Get(h, "messagePrefix") != nil {
		narrow(eraStart[fold.E4], buildNoPrefix)
	}
	if jsjson.Get(h, "adapterDefaults") != nil {
		narrow(buildDefaults, 0)
	}
	c := jsjson.Get(h, "config")
	switch {
	case jsjson.Get(c, "provider") != nil:
		narrow(buildProvider, 0)
	case jsjson.KindOf(c) == jsjson.Object:
		narrow(0, buildProvider)
	}
}

// apply narrows the range by the lifetime of a shape.
func (b *builds) apply(l between) {
	b.last = l
	if l.last() < b.lo {
		b.foreign = true // older than what already wrote to this log
		return
	}
	if l.from > b.hi {
		if l.from > b.cap {
			b.beyond = true
			b.cap = lastBuild // said once; from here on the file is what its events say
		}
		b.hi, b.turnHi = b.cap, b.cap // a newer process has taken over
	}
	b.lo = max(b.lo, l.from)
	b.hi = min(b.hi, l.last())
	b.turnHi = min(b.turnHi, l.last())
	b.hi = max(b.hi, b.lo)
}

func (b *builds) now() Builds { return Builds{b.lo, max(b.lo, b.hi)} }
