// Package fold gives events their meaning: it folds a log into a surface and a
// request header, and these into the requests the harness sent. It implements
// SEMANTICS §3 to §8.3 and §10.4.
//
// Messages and headers are slices of the log's own canonical bytes; nothing is
// decoded into maps or encoded again.
package fold

import (
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Era is one of the dialects of format generation 0 (SEMANTICS §0.1), in order
// of time. EB, the marker-less branch, is E1 for every purpose but the empty
// assistant rule; see Dialect.
type Era int

const (
	E0 Era = iota
	E1
	E2
	E3
	E4
	E5
	E6
	E7
	E8
	E9
	E10
	E11
	E12
	E13
)

// Eras is the inclusive range of builds that may have written an event, as far
// as the shapes seen in its process so far can tell.
type Eras struct{ Min, Max Era }

// Since reports whether every build in the range has era e or later.
func (r Eras) Since(e Era) bool { return r.Min >= e }

// Before reports whether every build in the range is older than era e.
func (r Eras) Before(e Era) bool { return r.Max < e }

// Mode says how the surface of a log was found.
type Mode string

const (
	SurfaceMode Mode = "surface" // by surfaceOp markers
	LinearMode  Mode = "linear"  // by scan: no marker and no evidence of E2 or later (SEMANTICS §3.2)
)

// Grade says how sure a request is.
type Grade string

const (
	Exact     Grade = "exact"
	Messages  Grade = "messages"  // the era logged no header: the body is {"messages":[…]}
	Ambiguous Grade = "ambiguous" // see Request.Reasons
)

// Request is one request of the agent loop, as far as the log determines it
// (SEMANTICS §6). It is valid until the next iteration; Clone keeps one.
type Request struct {
	Turn, Step   int64
	Attempt      int    // from 1, within the step
	Candidate    string // not empty: neither chunk nor message; why the log cannot tell whether it was sent
	Inherited    bool   // lies below the header's seedLength
	Eras         Eras   // builds that may have sent it
	Grade        Grade
	Reasons      []string // of an ambiguous grade: "framing-window", "dispatch-unknown", "damage", …
	Assumptions  []string // what nothing contradicts but the log cannot prove: "config-key-order"
	Mode         Mode
	Boundary     Boundary
	HeaderSeq    int64           // of the header event in force; -1 when none
	HeaderReason string          // its reason, "delta" for a delta, "" when none
	HeaderOwn    bool            // the attempt logged it itself
	AfterHeader  []int64         // surface events between its own header and its first chunk (SEMANTICS §6.2)
	Late         []int64         // surface events after the boundary and before the response: they join the next request
	FirstChunk   int64           // -1 when none
	LastChunk    int64           // -1 when none
	Response     int64           // seq of its assistant/message; -1 when none
	Finish       string          // kind of the finish chunk; "" when none
	End          int64           // seq of the event that ended the attempt; one past the last event at the end of the log
	Pos          logfmt.Position // of the first chunk, or of the event that ended the attempt

	body *body
}

// Boundary is the place up to which messages count: those of events with seq
// below Seq.
type Boundary struct {
	Seq  int64
	Rule string // "step/start" (to E9) or "first-chunk" (from E10), "attempt-end" when there was no chunk
}
