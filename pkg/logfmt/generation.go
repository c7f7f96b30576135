package logfmt

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// A Generation is a format of logs as far as their records go (FORMATS §2). What
// the events mean is known to package fold, their rules to package invariants.
// Generations are found by number in one table; nothing else in this package
// asks for a particular one.
type Generation struct {
	Version int64
	// Releases says which releases wrote it.
	Releases string
	// Header lists the keys of the header record in the writer's order. Nil means
	// that the era decides (generation 0).
	Header []string
	// Required are those of them that no header of the generation lacks.
	Required []string
	// Packed tells that runs of chunk events may be packed in one row.
	Packed bool
	// First and Last are the keys in a replace that name the ends of its range.
	First, Last string
	// Closed tells that a record whose envelope is not exact decodes to no event
	// (FORMATS §2.4, §2.6).
	Closed bool
}

var (
	headerSeedLength = []string{"type", "version", "id", "createdAt", "cwd", "parentSession", "seedLength", "origin", "delegationDepth", "agentPreset"}
	headerSeeded     = []string{"type", "version", "id", "createdAt", "cwd", "parentSession", "isSeeded", "origin", "delegationDepth", "agentPreset"}
	headerAlways     = []string{"type", "version", "id", "createdAt", "delegationDepth"}
	headerWithSeeded = append(slices.Clone(headerAlways), "isSeeded")
)

// generations are those that are read, by number.
var generations = []*Generation{
	{Version: 0, Releases: "releases up to 0.1.2-rc.1", Packed: true, First: "start", Last: "end"},
	{Version: 1, Releases: "no release; it exists inside migrations only", Header: headerSeedLength, Required: headerAlways,
		Packed: true, First: "start", Last: "end"},
	{Version: 2, Releases: "0.1.3-alpha.1 and alpha.2", Header: headerSeeded, Required: headerWithSeeded,
		First: "start", Last: "end", Closed: true},
	{Version: 3, Releases: "0.1.5-alpha.1 to 0.1.6-alpha.1", Header: headerSeeded, Required: headerWithSeeded,
		First: "startSeq", Last: "endSeq", Closed: true},
	{Version: 4, Releases: "releases from 0.1.7-rc.1 on", Header: headerSeeded, Required: headerWithSeeded,
		First: "startSeq", Last: "endSeq", Closed: true},
}

// GenerationOf returns the generation of that number, nil when it is not read.
func GenerationOf(version int64) *Generation {
	if version < 0 || version >= int64(len(generations)) {
		return nil
	}
	return generations[version]
}

// LatestGeneration is the newest generation that is read.
func LatestGeneration() *Generation { return generations[len(generations)-1] }

// FileName is the name of a plain log of the generation (FORMATS §2.1).
func (g *Generation) FileName() string {
	if g.Version == 0 {
		return "session.jsonl"
	}
	return fmt.Sprintf("session.v%d.jsonl", g.Version)
}

// GenerationOfName returns the format version that a file name stands for, and
// false when it is no name the harness gives to a log (FORMATS §2.1).
func GenerationOfName(name string) (version int64, ok bool) {
	s, ok := strings.CutPrefix(name, "session")
	if !ok {
		return 0, false
	}
	s, ok = strings.CutSuffix(strings.TrimSuffix(s, zstdSuffix), ".jsonl")
	if !ok {
		return 0, false
	}
	if s == "" {
		return 0, true
	}
	digits, ok := strings.CutPrefix(s, ".v")
	if !ok || digits == "" || digits[0] < '1' || digits[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == digits
}

// Format is the generation of the log, generation 0 for a nil header.
func (h *Header) Format() *Generation {
	if h != nil {
		if g := GenerationOf(h.Generation); g != nil {
			return g
		}
	}
	return generations[0]
}

// foreign describes a format version that is not read.
func foreign(version []byte) (message, hint string) {
	newest := LatestGeneration()
	message = fmt.Sprintf("format version %s: this build reads generations 0 to %d", clip(version), newest.Version)
	switch n, ok := safeInt(version); {
	case len(version) > 0 && version[0] == '-' || ok && n <= newest.Version:
		hint = "no harness wrote this number"
	case ok && n == newest.Version+1:
		hint = fmt.Sprintf("no release up to 0.2.1-alpha.2 writes it: a fork of the harness did, or a newer release; forks that have a version %d differ from one another", n)
	default:
		hint = "the log was written by a newer harness, or by a fork of it"
	}
	return message, hint
}

// checkExact judges the keys of a header record whose generation fixes them. It
// returns what is missing, "" when nothing is, and notes keys that are too many.
func (h *Header) checkExact(g *Generation) (missing string) {
	h.Unknown = h.Unknown[:0]
	h.Fault &^= HeaderUnknownKey
	for k := range jsjson.Members(h.Raw) {
		s, _ := jsjson.Str(k)
		if !slices.Contains(g.Header, s) {
			h.Unknown = append(h.Unknown, s)
			h.Fault |= HeaderUnknownKey
		}
	}
	if slices.Contains(h.Unknown, "isSeeded") {
		h.Seeded = nil
		h.Fault &^= HeaderSeeded
	}
	if slices.Contains(h.Unknown, "seedLength") {
		h.SeedLength = nil
		h.Fault &^= HeaderSeed
	}
	for _, key := range g.Required {
		if jsjson.Get(h.Raw, key) == nil {
			return key
		}
	}
	return ""
}

// A SeqRange is a run of seqs, both ends included.
type SeqRange struct{ First, Last int64 }

// SourceRanges appends the seqs of sourceEventSeqs to dst as runs, in the order
// of the list; a seq by itself is a run of one. It reports false when there is no
// such list, or when it is none of seqs and [first,last] pairs. Unlike SourceSeqs
// it takes no memory for what a pair claims.
func (e *Event) SourceRanges(dst []SeqRange) ([]SeqRange, bool) {
	v := e.Sources
	if len(v) == 0 || v[0] != '[' || e.Fault&FaultSources != 0 {
		return dst, false
	}
	n := len(dst)
	for i := 1; i < len(v) && v[i] != ']'; i++ {
		j := jsjson.Skip(v, i)
		el := v[i:j]
		i = j
		if len(el) > 0 && el[0] == '[' {
			a, b, ok := readRun(el)
			if !ok {
				return dst[:n], false
			}
			dst = append(dst, SeqRange{a, b})
			continue
		}
		s, ok := safeInt(el)
		if !ok || s < 0 {
			return dst[:n], false
		}
		dst = append(dst, SeqRange{s, s})
	}
	return dst, true
}

// SourceRuns returns the seqs of sourceEventSeqs as runs, in the order of the list:
// like SourceRanges, but seqs that follow one another are one run. The runs are
// valid until the next event and are not to be changed.
func (e *Event) SourceRuns() ([]SeqRange, bool) {
	if len(e.Sources) == 0 || e.Fault&FaultSources != 0 {
		return nil, false
	}
	if e.Runs.of == &e.Sources[0] && e.Runs.size == len(e.Sources) {
		return e.Runs.list, true
	}
	runs, fault := appendRuns(nil, e.Sources)
	return runs, fault&FaultSources == 0
}

// readRun reads [first,last] of two seqs with the first not after the last.
func readRun(v []byte) (first, last int64, ok bool) {
	i := jsjson.Skip(v, 1)
	if i >= len(v) || v[i] != ',' {
		return 0, 0, false
	}
	j := jsjson.Skip(v, i+1)
	if j != len(v)-1 {
		return 0, 0, false
	}
	first, ok1 := safeInt(v[1:i])
	last, ok2 := safeInt(v[i+1 : j])
	return first, last, ok1 && ok2 && first >= 0 && first <= last
}

// notClosed describes why the record of an event decodes to none, "" when it
// does.
func (r *record) notClosed() string {
	e := &r.event
	facts := jsjson.Facts(r.facts)
	f := &r.env.field
	switch {
	case e.Fault&FaultType != 0:
		return "type is " + valueName(f[fType]) + ", expected a string"
	case e.Fault&FaultTime != 0:
		return "time is " + valueName(f[fTime]) + ", expected milliseconds as a whole number"
	case facts&jsjson.NegativeZero != 0 && (negativeZero(rawMember(r.line, `"time"`)) || negativeZero(rawMember(r.line, `"seq"`))):
		return "seq or time is a minus zero"
	case e.Fault&FaultNoData != 0:
		return "data is absent, expected the payload of the event"
	case e.Fault&FaultExtraKey != 0:
		return "the event has a key outside the envelope; expected type, seq, time, data, sourceEventSeqs, surfaceOp, ignorable"
	case e.Fault&FaultIgnorable != 0:
		return "ignorable is " + valueName(f[fIgnorable]) + ", expected true or no such key"
	}
	return ""
}

// endSeedMark and inheritedMark are in every line that may set the cut.
var endSeedMark, inheritedMark = []byte(`"session/end-seed"`), []byte(`"inherited"`)

// SetsCut reports whether the event ends what was inherited from a parent: a
// session/end-seed that says inherited (FORMATS §2.3). The last one of a log
// counts.
func (e *Event) SetsCut() bool {
	return e.Gen >= 2 && e.Type == TypeSessionEndSeed && string(jsjson.Get(e.Data, "inherited")) == "true"
}

// findCut looks ahead for the cut of a seeded log, in a second pass over its
// text, when it can be read twice. Which events are inherited is settled only by
// the last mark in the log, and whoever reads the first one needs to know.
func (l *Log) findCut() {
	h := l.Header
	if h == nil || h.Seeded == nil || !*h.Seeded || l.stop {
		return
	}
	src, err := l.reopen()
	if err != nil {
		return // a stream
	}
	defer src.close()
	cut := int64(-1)
	rec := record{gen: h.Format()}
	for src.next(&rec) == nil {
		if !bytes.Contains(rec.line, endSeedMark) || !bytes.Contains(rec.line, inheritedMark) {
			continue
		}
		r := newRecord(&rec)
		for i := range r.Len() {
			if e := r.Event(i); e.SetsCut() && e.Seq >= 0 {
				cut = e.Seq
			}
		}
	}
	if cut >= 0 {
		h.Cut = &cut
	}
}

// Names of the event types that generations after 0 brought (FORMATS §5.2, §6.2,
// §7.2).
const (
	TypeAssistantAttempt       = "assistant/attempt"
	TypeDeliverablesPresented  = "deliverables/presented"
	TypeDeveloperMessage       = "developer/message"
	TypeFeedbackMessageDelete  = "feedback/message-delete"
	TypeFeedbackMessagePut     = "feedback/message-put"
	TypeImageOffload           = "image/offload"
	TypeSubagentCatalog        = "subagent/catalog"
	TypeSystemMessage          = "system/message"
	TypeToolPTCDispatch        = "tool/ptc-dispatch"
	TypeToolPTCDispatchStart   = "tool/ptc-dispatch-start"
	TypeWorkingDirectoryChange = "working-directory/change"
	TypeWorkspaceChanges       = "workspace/changes"
)
