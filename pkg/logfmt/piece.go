package logfmt

import (
	"bytes"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// A PieceMark is where the parts of a chunk event lie that is a piece of text, of
// reasoning or of a tool call's arguments. All but a few events of a log are such
// pieces, in the one form the writer gives them:
//
//	{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"…"}}
//	{"turn":1,"step":2,"chunk":{"type":"tool-call-delta","index":0,"id":"…","argumentsDelta":"…"}}
//
// Recognising the form once, where the event is read, saves every later stage its
// own walk over the members. The zero value says nothing: such an event is looked
// at member by member. Reading sets it; nothing else has to.
type PieceMark struct {
	Turn, Step uint8  // ends of the two numbers in the data
	Text       uint32 // start of the string that is the piece
	Size       uint32 // of the data
}

// Piece returns turn, step and chunk of an assistant/chunk that carries a piece
// exactly as the writer puts it: three members, both numbers from 1, a chunk of
// type, index, for a tool call its id and perhaps its name, and the text. For any
// other event, and for one that was not read from a log, ok is false.
func (e *Event) Piece() (turn, step int64, chunk []byte, ok bool) {
	if e.IsPiece() {
		t, s := int(e.Mark.Turn), int(e.Mark.Step)
		return smallInt(e.Data[len(pieceTurn):t]), smallInt(e.Data[t+len(pieceStep) : s]), e.Data[s+len(pieceChunk) : len(e.Data)-1], true
	}
	return 0, 0, nil, false
}

// IsPiece reports whether Piece would find one.
func (e *Event) IsPiece() bool { return e.Mark.Size != 0 && int(e.Mark.Size) == len(e.Data) }

// PieceText splits the data of an event that IsPiece: head is everything before
// the piece, text is its JSON string. Pieces with the same head differ in nothing
// but the text.
func (e *Event) PieceText() (head, text []byte) {
	n := int(e.Mark.Text)
	return e.Data[:n:n], e.Data[n : len(e.Data)-len(pieceEnd)+1]
}

const (
	pieceTurn  = `{"turn":`
	pieceStep  = `,"step":`
	pieceChunk = `,"chunk":`
	pieceType  = `{"type":"`
	pieceText  = `text-delta","index":`
	pieceThink = `reasoning-delta","index":`
	pieceCall  = `tool-call-delta","index":`
	pieceBody  = `,"text":`
	pieceID    = `,"id":`
	pieceName  = `,"name":`
	pieceArgs  = `,"argumentsDelta":`
	pieceEnd   = `}}}` // of chunk, data and event
)

// readPiece recognises the form in canonical bytes.
func readPiece(data []byte) (d PieceMark) {
	i, ok := afterCount(data, 0, pieceTurn)
	if !ok || data[len(pieceTurn)] == '0' {
		return PieceMark{}
	}
	d.Turn = uint8(i)
	n := i + len(pieceStep)
	if i, ok = afterCount(data, i, pieceStep); !ok || data[n] == '0' {
		return PieceMark{}
	}
	d.Step = uint8(i)
	if i, ok = after(data, i, pieceChunk+pieceType); !ok {
		return PieceMark{}
	}
	j, ok := afterCount(data, i, pieceText)
	if !ok {
		j, ok = afterCount(data, i, pieceThink)
	}
	if ok {
		if i, ok = after(data, j, pieceBody); !ok {
			return PieceMark{}
		}
	} else if i, ok = pieceOfCall(data, i); !ok {
		return PieceMark{}
	}
	if i >= len(data) || data[i] != '"' || uint64(len(data)) >= 1<<32 {
		return PieceMark{}
	}
	d.Text = uint32(i)
	if i = jsjson.Skip(data, i); i+2 != len(data) {
		return PieceMark{} // more members follow
	}
	d.Size = uint32(len(data))
	return d
}

// pieceOfCall passes over what a piece of a tool call has before its arguments.
func pieceOfCall(data []byte, i int) (int, bool) {
	i, ok := afterCount(data, i, pieceCall)
	if !ok {
		return i, false
	}
	if i, ok = afterString(data, i, pieceID); !ok {
		return i, false
	}
	if j, ok := afterString(data, i, pieceName); ok {
		i = j
	}
	return after(data, i, pieceArgs)
}

func after(b []byte, i int, s string) (int, bool) {
	if len(b)-i < len(s) || string(b[i:i+len(s)]) != s {
		return i, false
	}
	return i + len(s), true
}

// afterCount passes over s and a whole number of at most nine digits, behind which
// something else follows.
func afterCount(b []byte, i int, s string) (int, bool) {
	i, ok := after(b, i, s)
	if !ok {
		return i, false
	}
	from := i
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	return i, i > from && i-from <= 9 && i < len(b) && b[i] == ','
}

// afterString passes over s and a string.
func afterString(b []byte, i int, s string) (int, bool) {
	i, ok := after(b, i, s)
	if !ok || i >= len(b) || b[i] != '"' {
		return i, false
	}
	return jsjson.Skip(b, i), true
}

func smallInt(b []byte) (n int64) {
	for _, c := range b {
		n = n*10 + int64(c-'0')
	}
	return n
}

// A pieceForm is what the lines of a run of pieces have in common. Nearly every
// line of a plain log is the one before it with another seq, another time and
// another text, so that the rest need not be looked at again: it equals bytes
// that were.
type pieceForm struct {
	data []byte // from behind the time to the text; empty when there is no form
	mark PieceMark
	gen  uint8

	// next is how the line begins that has the seq behind the last one and the same
	// time, up to the text: most lines do. Empty when it is not known.
	next   []byte
	seqEnd int // of the seq in next
	seq    int64
	time   int64
}

const (
	formSeq  = `{"type":"assistant/chunk","seq":`
	formTime = `,"time":`
	formData = `,"data":`
)

// learn takes the form of a record that was read the long way.
func (f *pieceForm) learn(rec *record) {
	e := &rec.event
	if rec.defect != nil || rec.value || rec.packed || rec.odd != "" || !e.IsPiece() || e.Fault != 0 || e.Synthetic != 0 {
		return
	}
	head, _ := e.PieceText()
	f.data = append(append(f.data[:0], formData...), head...)
	f.mark, f.gen, f.next = e.Mark, e.Gen, f.next[:0]
}

// match reads a line of the form from the start of b, which holds more of the
// log. It reports false, having changed nothing, for whatever is not exactly of
// the form, or not whole; such a line is read the long way.
func (f *pieceForm) match(b []byte, rec *record) (line []byte, ok bool) {
	l, ok := f.find(b)
	if !ok {
		return nil, false
	}
	line = b[:l.end:l.end]
	e := &rec.event
	e.Type, e.Op, e.Sources, e.Ignorable, e.Fault, e.Facts = TypeAssistantChunk, nil, nil, false, 0, 0
	e.Gen, e.Synthetic = f.gen, 0
	e.setPiece(line, l.seq, l.time, l.text, len(f.data)-len(formData), f.mark)
	rec.line, rec.got = line, b[len(formSeq):l.seqEnd]
	rec.defect, rec.value, rec.null, rec.packed, rec.facts = nil, false, false, false, 0
	rec.whole, rec.odd, rec.synth = false, "", 0
	f.pass(b, l)
	return line, true
}

// setPiece makes e the event of a line of a form, whose text begins at text, and its
// data head bytes before that. What lines of a form have in common is left alone.
func (e *Event) setPiece(line []byte, seq, time int64, text, head int, mark PieceMark) {
	e.Seq, e.Time = seq, time
	e.JSON, e.Line = line, line
	e.Data = line[text-head : len(line)-1]
	e.Mark = mark
	e.Mark.Size = uint32(len(e.Data))
}

// A formLine is where the parts of a line of the form stand.
type formLine struct {
	seq, time         int64
	seqEnd, text, end int // end of the seq, start of the text, end without the line feed
}

// find looks for a line of the form at the start of b. It changes nothing.
func (f *pieceForm) find(b []byte) (l formLine, ok bool) {
	if len(f.data) == 0 {
		return l, false
	}
	l = formLine{seq: f.seq, time: f.time, seqEnd: f.seqEnd, text: len(f.next)}
	if l.text == 0 || len(b) < l.text || !bytes.Equal(b[:l.text], f.next) {
		if l.seq, l.time, l.seqEnd, l.text = f.head(b); l.text < 0 {
			return l, false
		}
	}
	i := jsjson.CanonicalString(b, l.text)
	if i < 0 || len(b)-i <= len(pieceEnd) || string(b[i:i+len(pieceEnd)]) != pieceEnd || b[i+len(pieceEnd)] != '\n' {
		return l, false
	}
	l.end = i + len(pieceEnd)
	return l, true
}

// pass notes that the line l at the start of b was read.
func (f *pieceForm) pass(b []byte, l formLine) {
	if len(f.next) != l.text || l.seq != f.seq || l.time != f.time {
		f.next = append(f.next[:0], b[:l.text]...)
		f.seqEnd, f.time = l.seqEnd, l.time
	}
	if f.seq = l.seq + 1; !increment(f.next[:f.seqEnd]) {
		f.next = f.next[:0] // the next seq is longer
	}
}

// A lineRun is a row of lines of one form with seqs that follow one another and
// times that never fall: pieces of one block.
type lineRun struct {
	text  []byte    // of the lines
	lines []runLine // none when the record is no run
	seq   int64     // of the first
	head  int       // see setPiece
	mark  PieceMark
}

type runLine struct {
	at, text, end int32 // of the line, of its text, and its end without the line feed
	time          int64
}

// mostRun bounds a run, so that what reads ahead hands on something soon.
const mostRun = 256

// extend makes a run of the first line of text, which was matched as e, and of those
// behind it, as many as go on with it. It returns the size of these.
func (r *lineRun) extend(f *pieceForm, text []byte, e *Event) (size int) {
	first := len(e.Line)
	at := first + 1
	for seq, time := e.Seq, e.Time; len(r.lines) < mostRun; {
		l, ok := f.find(text[at:])
		if !ok || l.seq != seq+1 || l.time < time {
			break
		}
		if len(r.lines) == 0 {
			head, _ := e.PieceText()
			r.seq, r.head, r.mark = e.Seq, len(head), e.Mark
			r.lines = append(r.lines, runLine{0, int32(first - 1 - len(e.Data) + len(head)), int32(first), e.Time})
		}
		f.pass(text[at:], l)
		r.lines = append(r.lines, runLine{int32(at), int32(l.text), int32(at + l.end), l.time})
		seq, time = l.seq, l.time
		at += l.end + 1
	}
	r.text = text[:at]
	return at - first - 1
}

// event makes line i of the run the event e, of which pos is the place of the first.
func (r *lineRun) event(i int, e *Event, pos Position) {
	l := &r.lines[i]
	e.setPiece(r.text[l.at:l.end:l.end], r.seq+int64(i), l.time, int(l.text), r.head, r.mark)
	e.Pos = r.pos(i, pos)
}

// pos is the place of line i.
func (r *lineRun) pos(i int, first Position) Position {
	l := &r.lines[i]
	first.Line += int64(i)
	first.Offset += int64(l.at)
	first.Length = int64(l.end-l.at) + 1
	return first
}

// piece is the JSON string of piece i.
func (r *lineRun) piece(i int) []byte {
	l := &r.lines[i]
	return r.text[l.at+l.text : int(l.end)-len(pieceEnd)]
}

// head reads what stands before the text of a line of the form; text is where that
// begins, -1 when the line is not of the form.
func (f *pieceForm) head(b []byte) (seq, time int64, seqEnd, text int) {
	i, ok := after(b, 0, formSeq)
	if !ok {
		return 0, 0, 0, -1
	}
	seq, seqEnd = plainCount(b, i)
	if i, ok = after(b, seqEnd, formTime); !ok || seq < 0 {
		return 0, 0, 0, -1
	}
	time, i = plainCount(b, i)
	if text = i + len(f.data); time < 0 || len(b) < text || !bytes.Equal(b[i:text], f.data) {
		return 0, 0, 0, -1
	}
	return seq, time, seqEnd, text
}

// plainCount reads a whole number as it is written, -1 when it is none that is
// surely safe, and returns the place behind it.
func plainCount(b []byte, i int) (int64, int) {
	from, n := i, int64(0)
	for i < len(b) && b[i]-'0' <= 9 {
		n = n*10 + int64(b[i]-'0')
		if i++; i-from > 15 {
			return -1, i
		}
	}
	if i == from || b[from] == '0' && i > from+1 {
		return -1, i
	}
	return n, i
}
