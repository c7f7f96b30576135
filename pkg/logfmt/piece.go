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
	if len(f.data) == 0 {
		return nil, false
	}
	text := len(f.next)
	seq, time, seqEnd := f.seq, f.time, f.seqEnd
	if text == 0 || len(b) < text || !bytes.Equal(b[:text], f.next) {
		if seq, time, seqEnd, text = f.head(b); text < 0 {
			return nil, false
		}
	}
	dataAt := text - len(f.data) + len(formData)
	i := jsjson.CanonicalString(b, text)
	if i < 0 || len(b)-i <= len(pieceEnd) || string(b[i:i+len(pieceEnd)]) != pieceEnd || b[i+len(pieceEnd)] != '\n' {
		return nil, false
	}
	i += len(pieceEnd)
	line = b[:i:i]
	e := &rec.event
	e.Type, e.Seq, e.Time = TypeAssistantChunk, seq, time
	e.Data = line[dataAt : i-1]
	e.Op, e.Sources, e.Ignorable, e.Fault, e.Facts = nil, nil, false, 0, 0
	e.JSON, e.Line, e.Gen, e.Synthetic = line, line, f.gen, 0
	e.Mark = f.mark
	e.Mark.Size = uint32(len(e.Data))
	rec.line, rec.got = line, b[len(formSeq):seqEnd]
	rec.defect, rec.value, rec.null, rec.packed, rec.facts = nil, false, false, false, 0
	rec.whole, rec.odd, rec.synth = false, "", 0

	if len(f.next) != text || seq != f.seq || time != f.time {
		f.next = append(f.next[:0], b[:text]...)
		f.seqEnd, f.time = seqEnd, time
	}
	if f.seq = seq + 1; !increment(f.next[:f.seqEnd]) {
		f.next = f.next[:0] // the next seq is longer
	}
	return line, true
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
