package logfmt

// A Record holds events that were stored together: one, the members of a packed
// row, or a run of lines that differ in seq, time and text only.
type Record struct {
	events int
	event  *Event   // the only one, or the current one
	row    *row     // nil unless it is a packed row
	run    *lineRun // nil unless it is a run of lines
	pos    Position // of the row, or of the first line
	json   []byte   // of the current member of a row
}

// newRecord returns the record rec with all its events.
func newRecord(rec *record) *Record {
	r := new(Record)
	r.set(rec, rec.count())
	return r
}

// set makes r the record rec, which holds n events.
func (r *Record) set(rec *record, n int) {
	r.events, r.event, r.row, r.run, r.pos = n, &rec.event, nil, nil, rec.pos
	switch {
	case rec.packed:
		e := r.event
		e.Facts, e.Line, e.Synthetic, e.Gen = rec.facts, rec.line, rec.synth, 0
		if rec.gen != nil {
			e.Gen = uint8(rec.gen.Version)
		}
		r.row = &rec.row
	case n > 1:
		r.run = &rec.run
	}
}

// Len is the number of events in the record.
func (r *Record) Len() int { return r.events }

// Event makes event i the current one. They are asked for in order, from 0; when
// all were, or some, they may be asked for again. The event is valid until the next
// call.
func (r *Record) Event(i int) *Event {
	switch {
	case r.row != nil:
		if i == 0 {
			r.row.rewind()
			r.event.Pos = r.pos
		}
		r.json = r.row.next(r.event, r.json)
	case r.run != nil:
		r.run.event(i, r.event, r.pos)
	}
	return r.event
}

// Run reports whether the record holds more than one event, and they are pieces
// (see Event.Piece) of one block with times that never fall. Then they differ in
// seq, time and text only. It is asked behind Event(0).
func (r *Record) Run() bool {
	return r.run != nil || r.row != nil && r.events > 1 && !r.row.falls && r.row.piece.Size != 0
}

// Last is the seq, the time and the place of the last event of a Run.
func (r *Record) Last() (seq, time int64, pos Position) {
	n := r.events - 1
	if r.run != nil {
		return r.run.seq + int64(n), r.run.lines[n].time, r.run.pos(n, r.pos)
	}
	pos = r.pos
	pos.Member = n
	return r.row.seq0 + int64(n), r.row.end, pos
}

// Text is the JSON string of piece i of a Run.
func (r *Record) Text(i int) []byte {
	if r.run != nil {
		return r.run.piece(i)
	}
	return r.row.text(i)
}
