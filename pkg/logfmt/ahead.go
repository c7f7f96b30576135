package logfmt

import (
	"bytes"
	"fmt"
	"iter"
	"runtime/debug"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// RecordsAhead yields what Records yields, and reads ahead in another goroutine, so
// that reading and what the caller does with the events take two processors.
// Records are handed over as copies in batches: this takes a little more processor
// time, and memory for a few batches.
//
// each, unless it is nil, is called in that other goroutine for every record that
// is read, in order, before it is yielded. All that it did has happened before the
// loop ends. The state of the log (Class, Defects, Kept and Committed) is to be
// looked at only behind the loop.
func (l *Log) RecordsAhead(each func(*Record)) iter.Seq2[*Record, *Defect] {
	return func(yield func(*Record, *Defect) bool) {
		var (
			full  = make(chan *batch, batches)
			empty = make(chan *batch, batches)
			stop  = make(chan struct{})
			wrong any // a panic of the other goroutine, which is one of this
		)
		for range batches {
			empty <- new(batch)
		}
		go func() {
			defer close(full)
			defer func() {
				if r := recover(); r != nil {
					wrong = fmt.Sprintf("%v\n\nwhere it was reading ahead:\n%s", r, debug.Stack())
				}
			}()
			b := <-empty
			pass := func() bool {
				full <- b
				select {
				case b = <-empty:
				case <-stop:
					return false
				}
				b.reset()
				return true
			}
			// idle waits until every batch but b is back: records beyond measure
			// are not to be held several at a time.
			idle := func() bool {
				for range batches - 1 {
					select {
					case x := <-empty:
						x.reset()
						defer func() { empty <- x }()
					case <-stop:
						return false
					}
				}
				return true
			}
			for r, d := range l.Records() {
				if r != nil && each != nil {
					each(r)
				}
				if !b.add(r, d) && (!pass() || !b.add(r, d)) {
					return
				}
				if len(b.buf) > batchBytes && !(pass() && idle()) {
					return
				}
			}
			full <- b
		}()
		defer func() {
			close(stop)
			for range full {
				// Until the other goroutine has ended: the log is its until then.
			}
			if wrong != nil {
				panic(wrong)
			}
		}()
		var out Record
		for b := range full {
			for i := range b.items {
				x := &b.items[i]
				if x.defect != nil {
					if !yield(nil, x.defect) {
						return
					}
					continue
				}
				out.events, out.event, out.row, out.run, out.pos = 1, &x.event, nil, nil, x.event.Pos
				switch {
				case x.row > 0:
					out.row = &b.rows[x.row-1]
					out.events = out.row.members
				case x.run > 0:
					out.run = &b.runs[x.run-1]
					out.events = len(out.run.lines)
				}
				if !yield(&out, nil) {
					return
				}
			}
			empty <- b
		}
	}
}

// Handing over a batch wakes a goroutine, which takes as long as reading a few
// hundred events.
const (
	batches    = 4
	batchItems = 2048
	batchBytes = 512 << 10
	batchRows  = 256
)

// A batch is a row of records that own their bytes.
type batch struct {
	items []batchItem
	rows  []row
	runs  []lineRun
	buf   []byte
	ends  []int     // of the texts of the rows
	gaps  []int64   // between their times
	lines []runLine // of the runs
}

type batchItem struct {
	event  Event // of a row or a run, what its events have in common
	row    int   // place in rows, from 1; 0 when the record is no packed row
	run    int   // place in runs, likewise
	defect *Defect
}

// reset empties the batch. It keeps its memory, but for what one large record took.
func (b *batch) reset() {
	b.items, b.rows, b.runs, b.buf = b.items[:0], b.rows[:0], b.runs[:0], b.buf[:0]
	b.ends, b.gaps, b.lines = b.ends[:0], b.gaps[:0], b.lines[:0]
	if cap(b.buf) > batchBytes {
		b.buf = nil
	}
	if cap(b.ends) > batchBytes || cap(b.gaps) > batchBytes {
		b.ends, b.gaps = nil, nil
	}
}

// add takes a copy of a record, or a defect. It reports false when the batch is
// full, which an empty one never is.
func (b *batch) add(r *Record, d *Defect) bool {
	if b.items == nil {
		b.items = make([]batchItem, 0, batchItems)
	}
	if b.buf == nil {
		b.buf = make([]byte, 0, batchBytes)
	}
	n := len(b.items)
	if n == cap(b.items) {
		return false
	}
	if d != nil {
		b.items = append(b.items, batchItem{defect: d})
		return true
	}
	e := r.event
	var need int
	switch {
	case r.row != nil:
		need = len(e.Line) + len(r.row.texts) + len(r.row.head)
	case r.run != nil:
		need = len(r.run.text)
	default: // at most what own copies
		need = len(e.Line) + len(e.JSON) + len(e.Data) + len(e.Op) + len(e.Sources)
	}
	if n > 0 && (len(b.buf)+need > cap(b.buf) || len(b.rows) == batchRows || len(b.runs) == batchRows) {
		return false
	}
	if len(b.buf)+need > cap(b.buf) {
		b.buf = make([]byte, 0, need)
	}
	b.items = b.items[:n+1]
	x := &b.items[n]
	x.defect, x.row, x.run = nil, 0, 0
	runs := x.event.Runs.list
	x.event = *e
	x.event.Runs = KnownRuns{list: runs[:0]}
	if r.row == nil && r.run == nil {
		b.own(&x.event, e)
		return true
	}
	c := &x.event
	c.JSON, c.Data, c.Line, c.Pos = nil, nil, nil, r.pos // Event(0) sets them
	if b.rows == nil {
		b.rows, b.runs = make([]row, 0, batchRows), make([]lineRun, 0, batchRows)
	}
	if r.row != nil {
		c.Line = b.take(e.Line)
		b.rows = b.rows[:len(b.rows)+1]
		x.row = len(b.rows)
		b.rows[x.row-1].copy(r.row, b)
	} else {
		b.runs = b.runs[:len(b.runs)+1]
		x.run = len(b.runs)
		b.runs[x.run-1].copy(r.run, b)
	}
	return true
}

// copy makes r the run from, in bytes of the batch.
func (r *lineRun) copy(from *lineRun, b *batch) {
	*r = lineRun{text: b.take(from.text), seq: from.seq, head: from.head, mark: from.mark}
	n := len(b.lines)
	b.lines = append(b.lines, from.lines...)
	r.lines = b.lines[n:len(b.lines):len(b.lines)]
}

// copy makes r hold what from needs to be walked over, in bytes of the batch.
func (r *row) copy(from *row, b *batch) {
	*r = row{
		tag: from.tag, seq0: from.seq0, time0: from.time0, end: from.end, falls: from.falls, members: from.members, piece: from.piece,
		texts: b.take(from.texts), head: b.take(from.head),
	}
	n := len(b.ends)
	b.ends = append(b.ends, from.ends...)
	r.ends = b.ends[n:len(b.ends):len(b.ends)]
	n = len(b.gaps)
	b.gaps = append(b.gaps, from.gaps...)
	r.gaps = b.gaps[n:len(b.gaps):len(b.gaps)]
}

// own makes c, which is the same as e, hold copies of e's bytes.
func (b *batch) own(c, e *Event) {
	c.JSON = b.take(e.JSON)
	if c.Line = c.JSON; !same(e.Line, e.JSON) {
		c.Line = b.take(e.Line)
	}
	if n := len(c.JSON) - 1; e.IsPiece() && n >= len(e.Data) && e.Op == nil && e.Sources == nil && bytes.Equal(c.JSON[n-len(e.Data):n], e.Data) {
		c.Data = c.JSON[n-len(e.Data) : n : n] // what most events are
		return
	}
	var field [numFields][]byte
	jsjson.Fields(c.JSON, field[:], fieldNames)
	part := func(own, old []byte) []byte {
		if old == nil || bytes.Equal(own, old) {
			return own[:len(old):len(old)]
		}
		return b.take(old)
	}
	c.Data, c.Op, c.Sources = part(field[fData], e.Data), part(field[fOp], e.Op), part(field[fSources], e.Sources)
	if e.Data == nil {
		c.Data = nil
	}
	if e.Op == nil {
		c.Op = nil
	}
	if e.Sources == nil {
		c.Sources = nil
	} else if e.Runs.of == &e.Sources[0] {
		c.Runs = KnownRuns{append(c.Runs.list, e.Runs.list...), &c.Sources[0], len(c.Sources)}
	}
}

// take copies v into the batch, which has room for it.
func (b *batch) take(v []byte) []byte {
	if v == nil {
		return nil
	}
	n := len(b.buf)
	b.buf = append(b.buf, v...)
	return b.buf[n:len(b.buf):len(b.buf)]
}

// same reports whether a and b are the same bytes in the same place.
func same(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
