package logfmt

import (
	"errors"
	"fmt"
	"io"

	"github.com/dsh-audit/dsh-audit/internal/zframe"
)

// A Form is a way to write a log as lines.
type Form uint8

const (
	FormPlain  Form = iota // one event a line (PHYSICAL §2)
	FormPacked             // runs of chunk deltas as packed rows (§4)
	FormZstd               // packed, in Zstandard frames (§3)
)

// Bounds of what is held in memory before it is written: events of a packed row,
// bytes of text of a frame. The harness has neither, but writes that often.
const (
	maxRun   = 1024
	maxFrame = 256 << 10
)

// A Writer writes one log. It is the inverse of reading: the header record, then
// the events in order, as they are; Flush where a batch ends.
type Writer struct {
	w      io.Writer
	form   Form
	packer Packer
	run    int // events added since the packer was flushed
	buf    []byte
	frame  []byte
	enc    *zframe.Encoder
	n      int64
	next   int64
}

// NewWriter returns a writer of the given form. It does not buffer more than a
// batch; w should.
func NewWriter(w io.Writer, form Form) *Writer {
	out := &Writer{w: w, form: form}
	if form == FormZstd {
		out.enc = zframe.NewEncoder()
	}
	return out
}

// Written is the number of bytes written so far.
func (w *Writer) Written() int64 { return w.n }

// Begin writes the header record, canonical JSON, in a batch of its own.
func (w *Writer) Begin(header []byte) error {
	w.buf = append(append(w.buf[:0], header...), '\n')
	return w.write()
}

// Add writes an event. One that a line cannot hold is an error.
func (w *Writer) Add(e *Event) error {
	switch {
	case e.JSON == nil:
		return fmt.Errorf("seq %d: an event without text", e.Seq)
	case e.Seq != w.next:
		return fmt.Errorf("expected seq %d, got %d", w.next, e.Seq)
	}
	switch e.Type {
	case rowText, rowReasoning, rowToolCall:
		// Only a database can tell one from a row (PHYSICAL §4.6).
		return fmt.Errorf("seq %d: the event type %s is the name of a packed row: a line has no place for it", e.Seq, e.Type)
	}
	w.next++
	if w.form == FormPlain {
		w.buf = append(append(w.buf, e.JSON...), '\n')
		return w.write()
	}
	w.buf = w.packer.Add(w.buf, e.JSON)
	if w.run++; w.run >= maxRun {
		w.buf, w.run = w.packer.Flush(w.buf), 0
	}
	if w.form == FormPacked || len(w.buf) >= maxFrame {
		return w.write()
	}
	return nil
}

// Flush ends a batch: no packed row and no frame crosses it.
func (w *Writer) Flush() error {
	w.buf, w.run = w.packer.Flush(w.buf), 0
	return w.write()
}

// Close ends the last batch. It does not close what is written to.
func (w *Writer) Close() error { return w.Flush() }

// write writes the text that is ready, as a frame where frames are wanted.
func (w *Writer) write() error {
	if len(w.buf) == 0 {
		return nil
	}
	out := w.buf
	if w.enc != nil {
		w.frame = w.enc.Append(w.frame[:0], w.buf)
		out = w.frame
	}
	n, err := w.w.Write(out)
	w.n += int64(n)
	if err == nil && n < len(out) {
		err = errors.New("short write")
	}
	w.buf = w.buf[:0]
	return err
}

// Line is the header record as JSONL holds it, canonical JSON. A database of
// schema 5 and later leaves out a delegation depth of 0, which a line has
// (PHYSICAL §5.3).
func (h *Header) Line(db *Database) []byte {
	if db == nil || db.Schema < 5 || h.DelegationDepth != nil {
		return h.Raw
	}
	full, zero := *h, int64(0)
	full.DelegationDepth = &zero
	return appendHeader(nil, &full)
}
