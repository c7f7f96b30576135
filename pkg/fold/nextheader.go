package fold

import "github.com/dsh-audit/dsh-audit/pkg/logfmt"

// HeaderEvent is a header event that a request owes the log (SEMANTICS §5.4).
// The zero value owes nothing.
type HeaderEvent struct {
	Type   string // "request/header", "request/header-delta" or ""
	Reason string // of a snapshot: "initial", "resume", "fallback", "change"
	Data   []byte // canonical JSON of the event's data
}

// NextHeaderEvent is the writer protocol (SEMANTICS §5.4): what a build of the
// given era appends before a request with header next, when the log folds to
// folded (nil for none) and first says that its process has not logged a header
// yet. The header is written in canonical form.
//
// Deltas end twenty minutes into E5; for those minutes ask with E4.
func NextHeaderEvent(era Era, folded, next *EpochHeader, first bool) HeaderEvent {
	if era < E3 || next == nil {
		return HeaderEvent{}
	}
	if first || folded == nil {
		if folded == nil {
			return snapshot(next, "initial")
		}
		return snapshot(next, "resume")
	}
	if HeaderEquals(folded, next) {
		return HeaderEvent{}
	}
	if era >= E5 {
		return snapshot(next, "change")
	}
	delta := DiffHeader(folded, next)
	if applied, err := ApplyHeaderDelta(folded, delta); err == nil && HeaderEquals(applied, next) {
		return HeaderEvent{Type: logfmt.TypeRequestHeaderDelta, Data: delta}
	}
	return snapshot(next, "fallback")
}

func snapshot(h *EpochHeader, reason string) HeaderEvent {
	c := *h
	if err := c.canonicalise(); err != nil {
		c = *h
	}
	data := append(c.AppendJSON([]byte(`{"header":`)), `,"reason":"`...)
	data = append(data, reason...)
	return HeaderEvent{Type: logfmt.TypeRequestHeader, Reason: reason, Data: append(data, `"}`...)}
}
