// Package fold gives events their meaning: it folds a log into a surface and a
// request header, and these into the requests the harness sent. It implements
// SEMANTICS §3 to §8.3 and §10.4.
//
// # Terms
//
//	surface   the ordered list of events whose messages the model sees
//	node      one of its entries
//	header    config, system prompt, tools, message prefix: a request but for its messages
//	attempt   one call within a step, from its first chunk to its end
//	boundary  the place in the log up to which messages belong to a request
//	era       a span of builds that wrote alike; see Dialect
//
// # How a request comes about
//
// Events go into a [Fold] one by one. What a request is made of is frozen when
// its attempt begins, and the request is given out when the attempt ends:
//
//	era        messages are those before   header
//	E0 to E2   the first chunk             none is logged
//	E3 to E9   step/start                  the last one before the first chunk
//	E10 on     the first chunk             the same
//
// An attempt ends with a finish chunk that reports an error or an abort, with
// the assistant message, with an event that only stands between attempts, or
// with its step. One that left neither chunk nor message is a candidate.
//
// Each request says how sure it is ([Grade]), and why not surer. Nothing is
// guessed in silence: where shapes leave something open, the likelier reading is
// taken, the grade is ambiguous, and an option settles it.
//
// # Bytes
//
// Messages and headers are slices of the log's own canonical bytes; nothing is
// decoded into maps or encoded again. A body is a rope of such slices. Lengths
// and SHA-256 are accumulated along the surface, so that all digests of a log
// cost one pass over each message for each distinct config.
//
// # What is not done here
//
// Rules are not judged: a fold goes on after every breach and tells what it did
// (package invariants has the rules). What adapters make of a request on its way
// to a provider is outside the log.
package fold

import (
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Era is one of the dialects of format generation 0 (SEMANTICS §0.1), in order
// of time. Logs of the branch EB are told apart by nothing: without markers they
// count as E1, with markers as E2.
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
	Candidate    string // not empty: why the log cannot tell whether it was sent; mostly, it left neither chunk nor message
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
