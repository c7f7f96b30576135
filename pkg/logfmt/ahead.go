package logfmt

import (
	"bytes"
	"fmt"
	"iter"
	"runtime/debug"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// EventsAhead yields what Events yields, and reads ahead in another goroutine, so
// that reading and what the caller does with the events take two processors. Events
// are handed over as copies in batches: this takes a little more processor time, and
// memory for a few batches.
//
// each, unless it is nil, is called in that other goroutine for every event that is
// read, in order, before it is yielded. All that it did has happened before the
// loop ends. The state of the log (Class, Defects, Kept and Committed) is to be
// looked at only behind the loop.
func (l *Log) EventsAhead(each func(*Event)) iter.Seq2[*Event, *Defect] {
	return func(yield func(*Event, *Defect) bool) {
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
			for e, d := range l.Events() {
				if e != nil && each != nil {
					each(e)
				}
				if !b.add(e, d) && (!pass() || !b.add(e, d)) {
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
		for b := range full {
			for i := range b.items {
				x := &b.items[i]
				if x.defect != nil {
					if !yield(nil, x.defect) {
						return
					}
				} else if !yield(&x.event, nil) {
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
)

// A batch is a row of events that own their bytes.
type batch struct {
	items []batchItem
	buf   []byte
	row   []byte // copy of the line that the last event was a member of, if it was one
}

type batchItem struct {
	event  Event
	defect *Defect
}

func (b *batch) reset() {
	b.items, b.buf, b.row = b.items[:0], b.buf[:0], nil
}

// add takes a copy of an event, or a defect. It reports false when the batch is
// full, which an empty one never is.
func (b *batch) add(e *Event, d *Defect) bool {
	if b.items == nil {
		b.items = make([]batchItem, 0, batchItems)
		b.buf = make([]byte, 0, batchBytes)
	}
	n := len(b.items)
	if n == cap(b.items) {
		return false
	}
	if d != nil {
		b.items = append(b.items, batchItem{defect: d})
		b.row = nil
		return true
	}
	// At most what take copies: JSON, the line and the three parts.
	need := len(e.JSON) + len(e.Line) + len(e.Data) + len(e.Op) + len(e.Sources)
	if len(b.buf)+need > cap(b.buf) {
		if n > 0 {
			return false
		}
		b.buf = make([]byte, 0, need)
	}
	b.items = b.items[:n+1]
	x := &b.items[n]
	x.defect = nil
	runs := x.event.Runs.list
	x.event = *e
	x.event.Runs = KnownRuns{list: runs[:0]}
	b.own(&x.event, e)
	return true
}

// own makes c, which is the same as e, hold copies of e's bytes.
func (b *batch) own(c, e *Event) {
	c.JSON = b.take(e.JSON)
	switch {
	case e.Pos.Member > 0 && b.row != nil:
		c.Line = b.row // that of the member before
	case same(e.Line, e.JSON):
		c.Line = c.JSON
	default:
		c.Line = b.take(e.Line)
	}
	if b.row = nil; e.Pos.Member >= 0 {
		b.row = c.Line
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
