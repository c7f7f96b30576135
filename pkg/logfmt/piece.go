package logfmt

import "github.com/dsh-audit/dsh-audit/internal/jsjson"

// A PieceMark is where the parts of a chunk event lie that is a piece of text or of
// reasoning. All but a few events of a log are such pieces, in the one form the
// writer gives them:
//
//	{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"…"}}
//
// Recognising the form once, where the event is read, saves every later stage its
// own walk over the members. The zero value says nothing: such an event is looked
// at member by member. Reading sets it; nothing else has to.
type PieceMark struct {
	Turn, Step uint8  // ends of the two numbers in the data
	Size       uint32 // of the data
}

// Piece returns turn, step and chunk of an assistant/chunk that carries a piece of
// text or reasoning exactly as the writer puts it: three members, both numbers
// from 1, a chunk of type, index and text. For any other event, and for one that
// was not read from a log, ok is false.
func (e *Event) Piece() (turn, step int64, chunk []byte, ok bool) {
	if d := e.Mark; d.Size != 0 && int(d.Size) == len(e.Data) {
		t, s := int(d.Turn), int(d.Step)
		return smallInt(e.Data[len(pieceTurn):t]), smallInt(e.Data[t+len(pieceStep) : s]), e.Data[s+len(pieceChunk) : len(e.Data)-1], true
	}
	return 0, 0, nil, false
}

// IsPiece reports whether Piece would find one.
func (e *Event) IsPiece() bool { return e.Mark.Size != 0 && int(e.Mark.Size) == len(e.Data) }

const (
	pieceTurn  = `{"turn":`
	pieceStep  = `,"step":`
	pieceChunk = `,"chunk":`
	pieceType  = `{"type":"`
	pieceText  = `text-delta","index":`
	pieceThink = `reasoning-delta","index":`
	pieceBody  = `,"text":`
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
		if j, ok = afterCount(data, i, pieceThink); !ok {
			return PieceMark{}
		}
	}
	if i, ok = after(data, j, pieceBody); !ok || i >= len(data) || data[i] != '"' {
		return PieceMark{}
	}
	if i = jsjson.Skip(data, i); i+2 != len(data) || uint64(len(data)) >= 1<<32 {
		return PieceMark{} // more members follow
	}
	d.Size = uint32(len(data))
	return d
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

func smallInt(b []byte) (n int64) {
	for _, c := range b {
		n = n*10 + int64(c-'0')
	}
	return n
}
