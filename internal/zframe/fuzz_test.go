package zframe

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// FuzzWalk holds the walk to its promises on any bytes: frames follow one
// another without gap, a cut frame is the last, damage has its place inside the
// file, and Resync moves forward.
func FuzzWalk(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		w := NewWalker(bytes.NewReader(b), int64(len(b)))
		var at int64
		for n := 0; ; n++ {
			fr, err := w.Next()
			var bad *Error
			switch {
			case err == io.EOF:
				if at != int64(len(b)) {
					t.Fatalf("ended at %d of %d", at, len(b))
				}
				return
			case errors.As(err, &bad):
				if bad.Start != at || bad.Offset < at || bad.Offset >= int64(len(b)) || bad.Error() == "" {
					t.Fatalf("%+v while at %d of %d", bad, at, len(b))
				}
				next, err := w.Resync(at + 1)
				if err != nil || next >= 0 && next <= at {
					t.Fatalf("resync from %d to %d, %v", at, next, err)
				}
				if next < 0 {
					return
				}
				at = next
				continue
			case err != nil:
				t.Fatal(err)
			}
			if fr.Offset != at || fr.Length <= 0 || fr.End() > int64(len(b)) || fr.Index != n && n < 1 {
				t.Fatalf("%+v while at %d of %d", fr, at, len(b))
			}
			if fr.Cut != Whole && fr.End() != int64(len(b)) {
				t.Fatalf("cut before the end: %+v", fr)
			}
			at = fr.End()
		}
	})
}

// FuzzDecode decodes whatever frames the bytes hold, both ways, and every text
// within what the blocks can hold.
func FuzzDecode(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		w := NewWalker(r, int64(len(b)))
		d := NewDecoder()
		for {
			fr, err := w.Next()
			if err != nil {
				return
			}
			if !fr.Small() {
				// Text of this size would only slow the search down.
				continue
			}
			text, err := d.Decode(nil, r, fr)
			if int64(len(text)) > fr.MaxPlain {
				t.Fatalf("%d bytes out of a frame of at most %d", len(text), fr.MaxPlain)
			}
			if err != nil && !errors.Is(err, ErrChecksum) && len(text) > 0 {
				t.Fatalf("%d bytes in spite of %v", len(text), err)
			}
			stream, serr := io.ReadAll(d.Open(r, fr))
			if (err == nil) != (serr == nil) {
				t.Fatalf("Decode gives %v, Open %v", err, serr)
			}
			if err == nil && !bytes.Equal(text, stream) {
				t.Fatal("Decode and Open differ")
			}
		}
	})
}

// FuzzCut is the torn tail: of any text, cut anywhere, what comes back is a
// prefix of the text.
func FuzzCut(f *testing.F) {
	f.Add([]byte(headerLine), uint(50))
	f.Add(bytes.Repeat([]byte(headerLine), 3000), uint(400))
	f.Fuzz(func(t *testing.T, text []byte, n uint) {
		frame := NewEncoder().Append(nil, text)
		frame = frame[:1+n%uint(len(frame))]
		r := bytes.NewReader(frame)
		fr, err := NewWalker(r, int64(len(frame))).Next()
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(NewDecoder().Open(r, fr))
		if err != nil || !bytes.HasPrefix(text, got) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	})
}

func seeds(tb testing.TB) [][]byte {
	e := NewEncoder()
	two := append(unhex(tb, headerFrame), unhex(tb, rawFrame)...)
	return [][]byte{
		two,
		two[:110],
		two[:122],
		append(two[:len(two):len(two)], "junk"...),
		unhex(tb, rawFrame+"502a4d1802000000 0102"+rawFrame),
		unhex(tb, "28b52ffdc088 0000000001000000 410000 6151377a7e6b390a"),
		e.Append(nil, bytes.Repeat([]byte(headerLine), 100)),
		bomb(0x58, 20),
	}
}
