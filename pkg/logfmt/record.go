package logfmt

// A Record is a stored record that holds events: one, or the members of a packed
// row.
type Record struct {
	events int
	event  *Event // the only one, or the current member
	row    *row   // nil when there is only one
	pos    Position
	json   []byte // of the current member
}

// set makes r the record rec, which holds n events.
func (r *Record) set(rec *record, n int) {
	r.events, r.event, r.row = n, &rec.event, nil
	if rec.packed {
		e := r.event
		e.Facts, e.Line, e.Synthetic, e.Gen = rec.facts, rec.line, rec.synth, 0
		if rec.gen != nil {
			e.Gen = uint8(rec.gen.Version)
		}
		r.row, r.pos = &rec.row, rec.pos
	}
}

// Len is the number of events in the record.
func (r *Record) Len() int { return r.events }

// Event makes event i the current one. They are asked for in order, from 0; when
// all were, or some, they may be asked for again. The event is valid until the next
// call.
func (r *Record) Event(i int) *Event {
	if r.row != nil {
		if i == 0 {
			r.row.rewind()
			r.event.Pos = r.pos
		}
		r.json = r.row.next(r.event, r.json)
	}
	return r.event
}

// Run reports whether the record holds more than one event, and they are pieces
// (see Event.Piece) of one block with times that never fall. Then they differ in
// seq, time and text only. It is asked behind Event(0).
func (r *Record) Run() bool {
	return r.row != nil && r.events > 1 && !r.row.falls && r.row.piece.Size != 0
}

// Last is the seq, the time and the place of the last event of a Run.
func (r *Record) Last() (seq, time int64, pos Position) {
	pos = r.pos
	pos.Member = r.events - 1
	return r.row.seq0 + int64(r.events-1), r.row.end, pos
}

// Text is the JSON string of piece i of a Run.
func (r *Record) Text(i int) []byte { return r.row.text(i) }
