package invariants

import (
	"bytes"

	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// A run is a row of pieces of one block: chunks that differ in seq, time and text
// only. Nearly all events of a log stand in one. What the rules say of a piece
// they say of the next one, as long as nothing else comes between, so that behind
// a piece that no rule had anything to say about only counters move.
//
// The long way through Context.event is the reference: TestRuns holds the two to
// the same result.
type run struct {
	on   bool
	head []byte // of the pieces' data, up to the text
}

// begin opens a run behind an event that went the long way, if it can be the
// first of one. said tells that something was found in the event.
func (r *run) begin(c *Context, e *logfmt.Event, said bool) {
	if r.on = !said && c.where == inPlace && e.IsPiece() && plainEvent(e) && c.gen == nil && c.log.Sidecar == nil; r.on {
		head, _ := e.PieceText()
		r.head = append(r.head[:0], head...)
	}
}

// plainEvent reports whether an event has nothing about it but its payload.
func plainEvent(e *logfmt.Event) bool {
	return e.Fault == 0 && e.Facts == 0 && e.Op == nil && e.Sources == nil && !e.Ignorable && !e.AfterDamage && e.Synthetic == 0
}

// next takes an event that goes on with the run. It reports false, having changed
// nothing, for any other event.
func (r *run) next(c *Context, e *logfmt.Event) bool {
	if !r.on || !e.IsPiece() || e.Seq != c.next || e.Time < c.time || !plainEvent(e) || c.lineage.judged && (c.Inherited(e) || !c.lineage.cut) {
		return false
	}
	head, text := e.PieceText()
	if !bytes.Equal(head, r.head) || !c.stream.more(e, text) {
		return false
	}
	c.fold.more(e)
	c.events++
	c.next++
	c.time = e.Time
	c.Attempt.LastChunk = e.Seq
	if c.lineage.judged {
		c.lineage.Own++
	}
	c.last.Pos, c.last.Seq = e.Pos, e.Seq
	return true
}

// more takes a chunk that goes on with the run of the one before it.
func (s *stream) more(e *logfmt.Event, text []byte) bool {
	n := len(s.spans)
	if n == 0 || s.spans[n-1].to != e.Seq || !s.asm.More(text) {
		return false
	}
	s.spans[n-1].to = e.Seq + 1
	s.last, s.time = e.Seq, e.Time
	return true
}
