package logfmt

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

func TestPiece(t *testing.T) {
	for _, c := range []struct {
		data string
		want string // turn step chunk, "" for none
	}{
		{`{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"a"}}`, `1 2 {"type":"text-delta","index":0,"text":"a"}`},
		{`{"turn":123456789,"step":10,"chunk":{"type":"reasoning-delta","index":17,"text":""}}`, `123456789 10 {"type":"reasoning-delta","index":17,"text":""}`},
		{`{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"\"}}"}}`, `1 2 {"type":"text-delta","index":0,"text":"\"}}"}`},
		{`{"turn":0,"step":2,"chunk":{"type":"text-delta","index":0,"text":"a"}}`, ""},
		{`{"turn":1,"step":0,"chunk":{"type":"text-delta","index":0,"text":"a"}}`, ""},
		{`{"turn":-1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"a"}}`, ""},
		{`{"turn":1.5,"step":2,"chunk":{"type":"text-delta","index":0,"text":"a"}}`, ""},
		{`{"turn":1,"step":1e+21,"chunk":{"type":"text-delta","index":0,"text":"a"}}`, ""},
		{`{"turn":1234567890,"step":2,"chunk":{"type":"text-delta","index":0,"text":"a"}}`, ""},
		{`{"turn":1,"step":2,"chunk":{"type":"text-delta","index":-1,"text":"a"}}`, ""},
		{`{"turn":1,"step":2,"chunk":{"type":"text-delta","index":null,"text":"a"}}`, ""},
		{`{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":1}}`, ""},
		{`{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"a","more":1}}`, ""},
		{`{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"a"},"more":{}}`, ""},
		{`{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":["a"]}}`, ""},
		{`{"turn":1,"step":2,"chunk":{"type":"text-delta","text":"a","index":0}}`, ""},
		{`{"step":2,"turn":1,"chunk":{"type":"text-delta","index":0,"text":"a"}}`, ""},
		{`{"turn":1,"step":2,"chunk":{"type":"finish","reason":{"kind":"stop"}}}`, ""},
		{`{"turn":1}`, ""},
		{`{"turn":1`, ""},
		{`{"turn":`, ""},
		{`{}`, ""},
		{``, ""},
	} {
		e := Event{Data: []byte(c.data), Mark: readPiece([]byte(c.data))}
		got := ""
		turn, step, chunk, ok := e.Piece()
		if ok {
			got = fmt.Sprint(turn, step, " ", string(chunk))
		}
		if got != c.want || ok != e.IsPiece() {
			t.Errorf("%s: got %q, want %q", c.data, got, c.want)
		}
	}
}

// An event that carries the mark of other data is no piece.
func TestPieceOfOtherData(t *testing.T) {
	data := []byte(`{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"a"}}`)
	e := Event{Data: []byte(`{}`), Mark: readPiece(data)}
	if _, _, _, ok := e.Piece(); ok || e.IsPiece() {
		t.Error("found a piece")
	}
}

// FuzzPiece holds the short way to the walk over the members.
func FuzzPiece(f *testing.F) {
	f.Add([]byte(`{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"a\n"}}`))
	f.Add([]byte(`{"turn":1,"step":2,"chunk":{"type":"reasoning-delta","index":0,"text":"a"},"x":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if !jsjson.Canonical(data) {
			readPiece(data) // must not panic
			return
		}
		e := Event{Data: data, Mark: readPiece(data)}
		turn, step, chunk, ok := e.Piece()
		if !ok {
			return
		}
		var field [3][]byte
		others := jsjson.Fields(data, field[:], []string{"turn", "step", "chunk"})
		wantTurn, okT := jsjson.SafeInt(field[0])
		wantStep, okS := jsjson.SafeInt(field[1])
		if others != 0 || !okT || !okS || turn != wantTurn || step != wantStep || turn < 1 || step < 1 || !bytes.Equal(chunk, field[2]) {
			t.Fatalf("%s: %d %d %s", data, turn, step, chunk)
		}
		var in [3][]byte
		others = jsjson.Fields(chunk, in[:], []string{"type", "index", "text"})
		index, okI := jsjson.SafeInt(in[1])
		if others != 0 || !okI || index < 0 || jsjson.KindOf(in[2]) != jsjson.String || string(in[0]) != `"text-delta"` && string(in[0]) != `"reasoning-delta"` {
			t.Fatalf("%s: chunk %s", data, chunk)
		}
	})
}

func BenchmarkPiece(b *testing.B) {
	data := []byte(`{"turn":12,"step":2,"chunk":{"type":"text-delta","index":0,"text":"some words of an answer"}}`)
	b.Run("short", func(b *testing.B) {
		b.ReportAllocs()
		e := Event{Data: data}
		for b.Loop() {
			e.Mark = readPiece(data)
			e.Piece()
		}
	})
	b.Run("members", func(b *testing.B) {
		b.ReportAllocs()
		var field [3][]byte
		for b.Loop() {
			jsjson.Fields(data, field[:], []string{"turn", "step", "chunk"})
			jsjson.SafeInt(field[0])
			jsjson.SafeInt(field[1])
		}
	})
}
