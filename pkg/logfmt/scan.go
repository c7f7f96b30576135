package logfmt

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/plural"
)

// Rules that physical damage breaks. Ids are forever.
const (
	RuleHeader   = "LOG-HEADER"  // no usable header record
	RuleSeq      = "LOG-SEQ"     // seq is not the next index
	RuleEnvelope = "LOG-ENV"     // an event is not in the closed envelope of its generation
	RuleFormat   = "LOG-FORMAT"  // a generation, container or encoding that is recognised but not read
	RuleRead     = "LOG-READ"    // the bytes could not be read
	RuleJSON     = "LINE-JSON"   // a line is not JSON
	RuleBlank    = "LINE-BLANK"  // a line holds nothing
	RuleValue    = "LINE-VALUE"  // a line is JSON, but no object
	RuleRow      = "LINE-ROW"    // a packed row fails a check of PHYSICAL §4.4
	RuleTorn     = "LINE-TORN"   // the last line is not ended by a line feed
	RuleLong     = "LINE-LONG"   // a line is longer than MaxLine and was not read
	RuleFixture  = "LOG-FIXTURE" // a file beside a fixture does not read
)

// A source yields the stored records of one log in order, whatever the
// container. It decodes them; the scanner judges them.
type source interface {
	// next fills rec with the next record, whose slices are valid until the next
	// call. It returns io.EOF after the last, any other error when the bytes
	// cannot be read.
	next(rec *record) error
	// peekSeq tells the first seq of the record that follows, if that is cheap to
	// know. It only sharpens messages.
	peekSeq() (int64, bool)
	// close releases what the source holds.
	close() error
}

// record is one stored record: a line, or a row of a table. Exactly one of the
// four forms holds: broken (defect), a JSON value that is no object (value), a
// packed row (packed), or one event.
type record struct {
	pos    Position
	line   []byte // stored bytes without line feed
	facts  uint16
	defect *Defect // the record does not decode
	value  bool    // a JSON value without seq; null is fatal to the harness
	null   bool
	packed bool
	event  Event
	row    row
	run    lineRun // of plain lines; the event is the first
	// got is what stands where seq should, as canonical JSON; nil when absent.
	got []byte
	// strict marks records of a region in which any damage is corruption, even
	// behind the last turn/end: the complete frames of a Zstandard log
	// (PHYSICAL §3.3).
	strict bool
	// whole marks a defect that stands between records: none was lost by it.
	whole bool
	// odd says why an event does not count as one where the envelope is closed.
	odd string
	// synth says what of the record was put back into a fixture.
	synth Synthetic

	gen   *Generation // of the log; nil for generation 0
	buf   []byte      // canonical form, when line is not canonical
	exp   []byte      // JSON of an event with its place put back, see projection
	env   envelope
	names nameCache
}

// first is the seq of the first event of the record, -1 when it has none.
func (r *record) first() int64 {
	switch {
	case r.value:
		return -1
	case r.packed:
		return r.row.seq0
	}
	return r.event.Seq
}

// count is the number of events in the record.
func (r *record) count() int {
	switch {
	case r.defect != nil || r.value:
		return 0
	case r.packed:
		return r.row.members
	}
	return max(1, len(r.run.lines))
}

// last is the seq of the last line of a run, and the place of that.
func (r *record) last() (seq int64, pos Position) {
	n := len(r.run.lines) - 1
	return r.run.seq + int64(n), r.run.pos(n, r.pos)
}

// fail makes the record a defect of the container at d.Pos.
func (r *record) fail(d *Defect, strict, whole bool) {
	r.pos, r.line = d.Pos, nil
	r.value, r.null, r.packed, r.got, r.facts = false, false, false, nil, 0
	r.defect, r.strict, r.whole = d, strict, whole
}

// parse decodes a stored line into the record. Position and line are set by
// parse; strict is left alone.
func (r *record) parse(line []byte, pos Position) {
	r.pos, r.line = pos, line
	r.defect, r.value, r.null, r.packed, r.got, r.facts = nil, false, false, false, nil, 0
	r.whole, r.odd, r.synth = false, "", 0
	r.event.Synthetic = 0
	others, facts, err := jsjson.CheckFields(line, r.env.field[:], fieldNames)
	if err != nil {
		r.defect = jsonDefect(line, err)
		return
	}
	canon := line
	r.env.others = others
	if !facts.Canonical() {
		r.buf, _, err = jsjson.AppendStringify(r.buf[:0], line)
		if err != nil { // CheckFields accepted it
			r.defect = jsonDefect(line, err)
			return
		}
		canon = r.buf
		r.env.others = jsjson.Fields(canon, r.env.field[:], fieldNames)
	}
	r.facts = uint16(facts)
	e := &r.event
	g := r.gen
	if g == nil {
		g = generations[0]
	}
	r.env.read(canon, e, &r.names, g)
	switch r.env.shape {
	case shapeNull:
		r.value, r.null = true, true
	case shapeValue:
		r.value = true
	case shapeRow:
		r.packed = true
		r.got = r.env.field[fSeq0]
		if !g.Packed {
			r.defect = &Defect{Rule: RuleRow, Class: Corrupt,
				Message: fmt.Sprintf("a packed row of type %s, which generation %d does not have: its chunks are in the stream of the message", r.env.typ, g.Version)}
			return
		}
		if err := r.row.decode(&r.env, facts&jsjson.NumberOverflow != 0); err != nil {
			r.defect = &Defect{Rule: RuleRow, Class: Corrupt, Message: err.Error(), Err: err}
		}
	case shapeEvent:
		r.got = r.env.field[fSeq]
		e.JSON, e.Line, e.Pos, e.Facts = canon, line, pos, r.facts
		if g.Closed {
			r.odd = r.notClosed()
		}
	}
}

// jsonDefect describes a line that is not JSON.
func jsonDefect(line []byte, err error) *Defect {
	if len(bytes.TrimLeft(line, " \t\r")) == 0 {
		return &Defect{Rule: RuleBlank, Class: Corrupt, Err: err,
			Message: "blank line, expected a record"}
	}
	d := &Defect{Rule: RuleJSON, Class: Corrupt, Err: err, Message: "not valid JSON"}
	if se := (*jsjson.SyntaxError)(nil); errors.As(err, &se) {
		d.At = int64(se.Offset)
		d.Message = fmt.Sprintf("not valid JSON: expected %s, got %s", se.Want, se.Got)
	}
	return d
}

// lineSource reads records that are lines: plain JSONL, or the text of a
// decompressed log.
type lineSource struct {
	lines  lineReader
	closer io.Closer
	again  bool // the current line is the next one
	form   pieceForm
	second int64 // seq of the second line of a run; -1 when the current record is none
	// Of a fixture: what puts back what its rows lack.
	project   *projection
	snapshots *snapshots
	// place, when set, completes the position of a line and says whether it lies
	// in a strict region.
	place func(Position) (p Position, strict bool)
}

func newLineSource(r io.Reader, c io.Closer) *lineSource {
	return &lineSource{lines: lineReader{r: r}, closer: c}
}

func (s *lineSource) pos() Position {
	return Position{
		Line: s.lines.line, Offset: s.lines.offset(), Length: int64(s.lines.end - s.lines.start),
		Frame: -1, FrameAt: -1, Row: -1, Member: -1,
	}
}

func (s *lineSource) next(rec *record) error {
	var (
		line []byte
		torn bool
		err  error
	)
	rec.run.lines, s.second = rec.run.lines[:0], -1
	if s.again {
		s.again = false
		line = s.lines.current()
	} else if s.samePiece(rec) {
		return nil
	} else if line, torn, err = s.lines.next(); err != nil {
		var long *longLine
		if !errors.As(err, &long) {
			return err
		}
		pos, d := s.long(long)
		rec.strict = false
		if s.place != nil {
			pos, rec.strict = s.place(pos)
		}
		d.Pos = pos
		rec.fail(d, rec.strict, false)
		return nil
	}
	pos := s.pos()
	if rec.strict = false; s.place != nil {
		pos, rec.strict = s.place(pos)
	}
	if !torn {
		rec.parse(line, pos)
		switch {
		case s.project != nil:
			s.project.restore(rec)
		case s.snapshots == nil:
			s.form.learn(rec)
		}
		if s.snapshots != nil {
			s.snapshots.expand(rec)
		}
		return nil
	}
	// The harness never looks at a line without line feed. Whether it would have
	// been whole is worth knowing.
	rec.parse(line, pos)
	d := &Defect{Rule: RuleTorn, Class: Torn, Seq: -1, At: int64(len(line)),
		Message: fmt.Sprintf("the last line is cut after %s: expected the rest of a record and a line feed", bytesOf(len(line))),
		Hint:    "the write was cut short; everything before this line is kept",
	}
	switch {
	case rec.defect == nil && !rec.value:
		d.Message = "the last line has no line feed: it reads as a whole record, but the harness drops it"
	case len(bytes.Trim(line, "\x00")) == 0:
		d.At = 0
		d.Message = fmt.Sprintf("the file ends in zero bytes, %d of them, expected a record or the end", len(line))
	}
	rec.defect, rec.packed, rec.value, rec.null = d, false, false, false
	return nil
}

// samePiece reads the next line if it has the form of the last piece. Whatever it
// leaves alone is read the long way, with the same result.
func (s *lineSource) samePiece(rec *record) bool {
	line, ok := s.form.match(s.lines.ahead(), rec)
	if !ok {
		return false
	}
	s.lines.take(len(line) + 1)
	pos := &rec.event.Pos
	*pos = s.pos()
	if rec.strict = false; s.place != nil {
		*pos, rec.strict = s.place(*pos)
	}
	rec.pos = *pos
	if s.place == nil {
		// Lines that follow are taken along, as far as they were read.
		if size := rec.run.extend(&s.form, s.lines.buf[s.lines.start:], &rec.event); size > 0 {
			s.lines.end += size
			s.lines.line += int64(len(rec.run.lines) - 1)
			s.second = rec.run.seq + 1
		}
	}
	return true
}

// long describes a line that was passed over for its length.
func (s *lineSource) long(e *longLine) (Position, *Defect) {
	pos := s.pos()
	pos.Offset, pos.Length = e.off, e.n
	if e.torn {
		return pos, &Defect{Rule: RuleTorn, Class: Torn, At: e.n, Err: e,
			Message: fmt.Sprintf("the last line is cut after %d bytes: expected the rest of a record and a line feed", e.n),
			Hint:    "the write was cut short; everything before this line is kept"}
	}
	return pos, &Defect{Rule: RuleLong, Class: Unsupported, Err: e,
		Message: fmt.Sprintf("the line is %d bytes long, this build reads at most %d", e.n, MaxLine),
		Hint:    "its record is not judged, and what stands behind it is judged without it"}
}

func (s *lineSource) peekSeq() (int64, bool) {
	if s.second >= 0 {
		return s.second, true
	}
	line, ok := s.lines.peek()
	if !ok {
		return 0, false
	}
	// Another record, so that the current one stays as it is.
	var next record
	next.parse(line, Position{})
	if n := next.first(); next.defect == nil && n >= 0 {
		return n, true
	}
	return 0, false
}

func (s *lineSource) close() error {
	if s.closer == nil {
		return nil
	}
	return s.closer.Close()
}

// scanner applies the committed-region rule of PHYSICAL §2.5 to records. It is
// the same machine for every container.
//
// To the harness everything from the first defect on is lost, and the log is
// corrupt when a record holding turn/end lies at or behind it. The scanner reads
// on instead, and finds its place in the numbering again, so that each further
// defect is one of its own.
type scanner struct {
	file string

	expect    int64 // the next seq
	high      int64 // one more than the highest seq seen
	loose     bool  // the last record did not decode: how many events it held is unknown
	kept      int64
	committed int64 // offset behind the last kept record

	damaged     bool // a defect was seen: what follows is not kept
	broken      bool // the harness sees one as well
	corrupt     bool
	torn        bool
	unsupported bool
	unreadable  bool
	defects     []*Defect

	records   int64  // judged so far
	lastPos   spot   // of the record before
	lastFirst int64  // its first seq, -1 when unknown
	passed    []span // seqs that were passed over, the latest few
}

// span is a range of seqs [from,to) that a gap passed over.
type span struct {
	from, to int64
	record   int64 // number of the record behind the gap
	pos      Position
	told     bool // the defect says that they follow
}

func (s *scanner) class() Class {
	switch {
	case s.unreadable:
		return Unreadable
	case s.corrupt:
		return Corrupt
	case s.unsupported:
		return Unsupported
	case s.torn:
		return Torn
	}
	return Intact
}

// add records a defect and what it makes of the log by itself.
func (s *scanner) add(d *Defect) *Defect {
	d.File = s.file
	s.defects = append(s.defects, d)
	return d
}

const hintStrict = "in a complete frame every record has to be sound: the harness refuses the log"

// damage records a defect of a record: the log is torn by it, until a turn/end
// follows.
func (s *scanner) damage(rec *record, d *Defect) *Defect {
	d.Pos, d.Seq = rec.pos, s.expect
	s.damaged = true
	if d.Class == Unsupported {
		s.unsupported = true
		return s.add(d)
	}
	s.broken, s.torn = true, true
	if rec.strict || rec.null {
		s.corrupt = true
	}
	if rec.strict && d.Hint == "" {
		d.Hint = hintStrict
	}
	return s.add(d)
}

// judge takes the next record. It returns the defect that begins with it, if
// any; events of the record follow the defect.
func (s *scanner) judge(rec *record, src source) *Defect {
	s.records++
	if s.broken && rec.hasTurnEnd() {
		s.corrupt = true
	}
	if rec.defect != nil {
		if rec.defect.Rule != RuleTorn && !rec.whole {
			s.loose = true
		}
		if rec.defect.Hint == "" {
			rec.defect.Hint = "the harness loses this line and everything behind it"
			if rec.strict {
				rec.defect.Hint = hintStrict
			}
		}
		s.lastFirst = -1
		return s.damage(rec, rec.defect)
	}
	first, n := rec.first(), int64(rec.count())
	if first == s.expect && !rec.value {
		var d *Defect
		if rec.odd != "" {
			d = s.damage(rec, &Defect{Rule: RuleEnvelope, Class: Corrupt, Message: rec.odd,
				Hint: "the harness loses this event and everything behind it"})
		}
		s.advance(rec, first, n)
		return d
	}
	d := s.gap(rec, src, first)
	if d != nil {
		d = s.damage(rec, d)
		if rec.hasTurnEnd() {
			s.corrupt = true
		}
	}
	if rec.value || first < 0 {
		s.loose = true
		s.lastFirst = -1
		return d
	}
	s.advance(rec, first, n)
	return d
}

// advance takes the events first to first+n-1 as read.
func (s *scanner) advance(rec *record, first, n int64) {
	s.loose = false
	s.expect = first + n
	if s.expect > s.high {
		s.high = s.expect
	}
	last, pos := first, rec.pos
	if lines := int64(len(rec.run.lines)); lines > 0 {
		last, pos = rec.last()
		s.records += lines - 1 // each line is a record
	}
	s.lastFirst, s.lastPos = last, where(pos)
	if !s.damaged {
		s.kept += n
		s.committed = pos.Offset + pos.Length
	}
}

// gap describes a record whose first seq is not the expected one. It returns nil
// when the place in the numbering is found again after an earlier defect.
func (s *scanner) gap(rec *record, src source, first int64) *Defect {
	d := &Defect{Rule: RuleSeq, Class: Corrupt}
	switch {
	case rec.null:
		d.Rule = RuleValue
		d.Message = fmt.Sprintf("the line is null, expected the event with seq %d", s.expect)
		d.Hint = "the harness fails on a null line wherever it stands; remove it"
	case rec.value:
		d.Rule = RuleValue
		d.Message = fmt.Sprintf("the line is %s, expected an object with seq %d", kindName(rec.line), s.expect)
	case first < 0 && rec.got == nil && rec.event.Type == "session":
		d.Message = fmt.Sprintf("a second header record, expected the event with seq %d", s.expect)
		d.Hint = "another log was appended to this one"
	case first < 0 && rec.got == nil:
		d.Message = fmt.Sprintf("the event has no seq, expected seq %d", s.expect)
	case first < 0:
		d.Message = fmt.Sprintf("seq is %s, expected %d", clip(rec.got), s.expect)
	case first > s.expect:
		if s.loose && first >= s.expect || first == s.high {
			// The events between were in the line that did not decode, or this is
			// where the numbering had got to before it went back.
			return nil
		}
		n := first - s.expect
		what := fmt.Sprintf("%d events are missing", n)
		if n == 1 {
			what = "one event is missing"
		}
		next, ok := src.peekSeq()
		told := ok && next == s.expect
		if told {
			what = fmt.Sprintf("seq %d stands in the record behind it, the order is wrong", next)
		}
		d.Message = fmt.Sprintf("expected seq %d, got %d: %s", s.expect, first, what)
		s.pass(span{s.expect, first, s.records, rec.pos, told})
	case s.passedOver(first) != nil:
		p := s.passedOver(first)
		if p.told && p.record == s.records-1 {
			return nil // half of a pair that was reported with the other half
		}
		d.Message = fmt.Sprintf("expected seq %d, got %d: it comes late, it was passed over at %s", s.expect, first, where(p.pos))
	case first == s.lastFirst:
		d.Message = fmt.Sprintf("expected seq %d, got %d: the seq of the record before it, at %s, is used again", s.expect, first, s.lastPos)
	case first == 0:
		d.Message = fmt.Sprintf("expected seq %d, got 0: the numbering starts again, as if another log was appended", s.expect)
	default:
		d.Message = fmt.Sprintf("expected seq %d, got %d: the numbering goes back", s.expect, first)
	}
	return d
}

// pass notes seqs that were passed over, so that a record that comes late is
// recognised. Only the latest few are kept.
func (s *scanner) pass(p span) {
	if len(s.passed) == 8 {
		s.passed = append(s.passed[:0], s.passed[1:]...)
	}
	s.passed = append(s.passed, p)
}

// passedOver returns the gap that seq was passed over in, or nil.
func (s *scanner) passedOver(seq int64) *span {
	for i := range s.passed {
		if p := &s.passed[i]; seq >= p.from && seq < p.to {
			return p
		}
	}
	return nil
}

// spot is as much of a position as a message names.
type spot struct{ line, row int64 }

func (p spot) String() string {
	if p.line > 0 {
		return fmt.Sprintf("line %d", p.line)
	}
	return fmt.Sprintf("row %d", p.row)
}

// where names a place for a message.
func where(p Position) spot { return spot{p.Line, p.Row} }

// hasTurnEnd reports whether the record holds a turn/end. Packed rows never do.
func (r *record) hasTurnEnd() bool {
	return r.defect == nil && !r.value && !r.packed && r.event.Type == TypeTurnEnd
}

// kindName names a JSON value that is no object.
func kindName(line []byte) string {
	b := bytes.TrimLeft(line, " \t\r")
	if len(b) > 0 {
		switch c := b[0]; {
		case c == '[':
			return "an array"
		case c == '"':
			return "a string"
		case c == 't' || c == 'f':
			return "a boolean"
		}
	}
	return "a number"
}

// bytesOf counts bytes in words.
func bytesOf(n int) string {
	return plural.Count(n, "byte")
}

// clip shortens a value for a message.
func clip(v []byte) string {
	const most = 40
	if len(v) <= most {
		return string(v)
	}
	return string(bytes.ToValidUTF8(v[:most], nil)) + "…"
}
