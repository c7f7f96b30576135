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
// The long way through Context.event is the reference: TestPiecesWithoutMark holds
// the two to the same result.
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

// goes reports whether pieces with the seqs first to last could be next in the run.
func (r *run) goes(c *Context, first, last int64) bool {
	return r.on && first == c.next && !(c.lineage.judged && (first < c.own || !c.lineage.cut)) &&
		c.stream.runs(first) && c.fold.f.Runs(first, last)
}

// next takes an event that goes on with the run. It reports false, having changed
// nothing, for any other event.
func (r *run) next(c *Context, e *logfmt.Event) bool {
	if !r.on || !e.IsPiece() || e.Time < c.time || !plainEvent(e) || !r.goes(c, e.Seq, e.Seq) {
		return false
	}
	head, text := e.PieceText()
	if !bytes.Equal(head, r.head) {
		return false
	}
	c.stream.asm.More(text)
	r.advance(c, 1, e.Seq, e.Time, e.Pos)
	return true
}

// record takes the events of a record behind its first one, which was taken, when
// they go on with the run. It reports false, having changed nothing, when they are
// to be taken one by one. With load the loader has yet to see them too.
func (r *run) record(c *Context, rec *logfmt.Record, load bool) bool {
	if !r.on || !rec.Run() {
		return false
	}
	n := int64(rec.Len() - 1)
	seq, time, pos := rec.Last()
	if !r.goes(c, seq-n+1, seq) || load && !c.loader.More(rec) {
		return false
	}
	for i := range rec.Len() - 1 {
		c.stream.asm.More(rec.Text(i + 1))
	}
	r.advance(c, n, seq, time, pos)
	return true
}

// advance moves what counts: n pieces were taken, of which the last has that seq,
// time and place.
func (r *run) advance(c *Context, n, seq, time int64, pos logfmt.Position) {
	s := &c.stream
	s.spans[len(s.spans)-1].to = seq + 1
	s.last, s.time = seq, time
	c.fed += n
	c.fold.f.MoreTo(seq)
	c.events += n
	c.next += n
	c.time = time
	if c.lineage.judged {
		c.lineage.Own += n
	}
	c.last.Pos, c.last.Seq = pos, seq
}

// runs reports whether a chunk with that seq would follow the last one, which was
// a delta.
func (s *stream) runs(seq int64) bool {
	n := len(s.spans)
	return n > 0 && s.spans[n-1].to == seq && s.asm.Runs()
}
