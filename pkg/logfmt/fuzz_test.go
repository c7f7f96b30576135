package logfmt

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// transcript is everything that reading yields, as text.
func transcript(r io.Reader) (string, *Log, error) {
	l, err := NewReader(r, "fuzz", Options{})
	if err != nil {
		return "", nil, err
	}
	var b bytes.Buffer
	n := 0
	for e, d := range l.Events() {
		if d != nil {
			fmt.Fprintf(&b, "%s %s %v\n", d.Rule, d.Error(), d.Pos)
			continue
		}
		n++
		fmt.Fprintf(&b, "%v %q %d %d %x %x %v %s %s %s %s %q\n", e.Pos, e.Type, e.Seq, e.Time, e.Facts, e.Fault, e.AfterDamage, e.JSON, e.Data, e.Op, e.Sources, e.Line)
	}
	return b.String() + summary(l, n), l, nil
}

// chunked hands out its bytes in pieces whose sizes come from a seed.
type chunked struct {
	b    []byte
	seed uint32
}

func (c *chunked) Read(p []byte) (int, error) {
	if len(c.b) == 0 {
		return 0, io.EOF
	}
	c.seed = c.seed*1664525 + 1013904223
	n := min(len(p), len(c.b), int(c.seed>>16)%97+1)
	copy(p, c.b[:n])
	c.b = c.b[n:]
	if len(c.b) == 0 && c.seed&1 == 0 {
		return n, io.EOF
	}
	return n, nil
}

// harnessScan is the rule of PHYSICAL §2.5 written down as plainly as possible:
// what the harness keeps of the lines behind a sound header, and whether it
// refuses the log.
func harnessScan(text []byte) (kept, committed int64, refused bool) {
	pos := bytes.IndexByte(text, '\n') + 1
	committed = int64(pos)
	issue := false
	for {
		n := bytes.IndexByte(text[pos:], '\n')
		if n < 0 {
			return kept, committed, refused
		}
		line := text[pos : pos+n]
		pos += n + 1
		v, _, err := jsjson.Stringify(line)
		if err != nil {
			issue = true
			continue
		}
		if string(v) == "null" {
			refused, issue = true, true
			continue
		}
		isEnd := jsjson.StrEq(jsjson.Get(v, "type"), "turn/end")
		first, n2, isRow := int64(-1), int64(1), false
		for _, tag := range []string{"text-chunks", "reasoning-chunks", "tool-call-chunks"} {
			isRow = isRow || jsjson.StrEq(jsjson.Get(v, "type"), tag)
		}
		if isRow {
			var rec record
			if rec.parse(line, Position{}); rec.defect != nil {
				issue = true
				continue
			}
			first, n2 = rec.first(), int64(rec.count())
		} else if n, ok := jsjson.SafeInt(jsjson.Get(v, "seq")); ok {
			first = n
		}
		if !issue && first != kept {
			issue = true
		} else if !issue {
			kept += n2
			committed = int64(pos)
		}
		refused = refused || issue && isEnd
	}
}

// FuzzRead reads any bytes: nothing panics, the way they arrive does not matter,
// and what the harness would keep is sound when read alone.
func FuzzRead(f *testing.F) {
	for _, glob := range []string{"testdata/damaged/*.jsonl", "testdata/logs/*/session*.jsonl"} {
		files, err := filepath.Glob(glob)
		if err != nil {
			f.Fatal(err)
		}
		for _, name := range files {
			b, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			if len(b) < 8<<10 {
				f.Add(b, uint32(7))
			}
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, seed uint32) {
		whole, l, err := transcript(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		for name, r := range map[string]io.Reader{
			"byte by byte": iotest.OneByteReader(bytes.NewReader(text)),
			"in pieces":    &chunked{text, seed},
			"with the end": iotest.DataErrReader(bytes.NewReader(text)),
		} {
			other, _, err := transcript(r)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(whole, other); diff != "" {
				t.Errorf("read %s: %s", name, diff)
			}
		}

		class, kept, committed := l.Class(), l.Kept(), l.Committed()
		if committed > int64(len(text)) {
			t.Fatalf("committed %d of %d bytes", committed, len(text))
		}
		if l.Container != Plain || l.stop || l.Header == nil {
			return
		}
		wantKept, wantCommitted, refused := harnessScan(text)
		if l.Header.Fault&HeaderRetired == 0 && (kept != wantKept || committed != wantCommitted || refused != (class == Corrupt)) {
			t.Errorf("%s, kept %d to byte %d, the plain rule %v, %d, %d", class, kept, committed, refused, wantKept, wantCommitted)
		}
		if class == Intact && committed != int64(len(text)) {
			t.Errorf("intact, but only %d of %d bytes are committed", committed, len(text))
		}
		prefix, err := NewReader(bytes.NewReader(text[:committed]), "prefix", Options{})
		if err != nil {
			t.Fatal(err)
		}
		n := int64(0)
		for e, d := range prefix.Events() {
			if d != nil {
				if d.Class != Unsupported {
					t.Fatal(d)
				}
				continue
			}
			if e.Seq != n || e.AfterDamage || !jsjson.Canonical(e.JSON) {
				t.Fatalf("event %d: %d %v %s", n, e.Seq, e.AfterDamage, e.JSON)
			}
			n++
		}
		if n != kept || prefix.Kept() != kept || prefix.Committed() != committed {
			t.Errorf("kept %d, alone %d to %d", kept, n, prefix.Committed())
		}
	})
}

// FuzzRow takes any record: if it is a row, its events packed again and read
// again are the same.
func FuzzRow(f *testing.F) {
	for _, s := range []string{
		`{"type":"text-chunks","seq0":3,"time0":1000,"data":{"turn":1,"step":1,"index":0,"dt":[7,-4],"texts":["a","b",""]}}`,
		`{"type":"reasoning-chunks","seq0":0,"time0":-5,"data":{"turn":1.5,"step":-1,"index":1e+21,"dt":[],"texts":["\ud800"]}}`,
		`{"type":"tool-call-chunks","seq0":7,"time0":9,"data":{"turn":1,"step":2,"index":3,"dt":[0,1],"id":"c","name":"bash","args":["{","}",""]}}`,
		`{"data":{"args":["{","}","x"],"id":"c","dt":[0,0],"index":0,"step":0,"turn":0},"time0":0,"seq0":0,"type":"tool-call-chunks"}`,
		`{"type":"assistant/chunk","seq":3,"time":1000,"data":{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"a"}}}`,
		`{"type":"text-chunks","seq0":9007199254740991,"time0":1,"data":{"turn":1,"step":1,"index":0,"dt":[0],"texts":["a","b"]}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.IndexByte(line, '\n') >= 0 {
			return
		}
		var rec record
		rec.parse(line, Position{})
		if rec.defect != nil || !rec.packed {
			return
		}
		var events [][]byte
		r := newRecord(&rec)
		for i := range r.Len() {
			e := r.Event(i)
			if !jsjson.Canonical(e.JSON) {
				t.Fatalf("member %d is not canonical: %s", i, e.JSON)
			}
			var again record
			again.parse(e.JSON, Position{})
			if g := &again.event; g.Seq != e.Seq && e.Seq <= maxSafe || g.Time != e.Time || g.Type != e.Type || !bytes.Equal(g.Data, e.Data) {
				t.Fatalf("member %d reads as something else alone: %s", i, e.JSON)
			}
			events = append(events, bytes.Clone(e.JSON))
		}
		packed := AppendPacked(nil, events...)
		n := 0
		for rest := range bytes.Lines(packed) {
			var rec record
			rec.parse(bytes.TrimSuffix(rest, []byte("\n")), Position{})
			if rec.defect != nil {
				t.Fatal(rec.defect)
			}
			r := newRecord(&rec)
			for i := range r.Len() {
				if got := r.Event(i).JSON; n >= len(events) || !bytes.Equal(got, events[n]) {
					t.Fatalf("event %d comes back as %s", n, got)
				}
				n++
			}
		}
		if n != len(events) {
			t.Fatalf("%d of %d events come back", n, len(events))
		}
	})
}

// FuzzZstd reads any bytes as a Zstandard log, as they are and as the text of
// frames: nothing panics, the way the bytes arrive does not matter, and the class
// agrees with the defects.
func FuzzZstd(f *testing.F) {
	files, err := filepath.Glob("testdata/zstd/*.zstd")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint32(7))
	}
	f.Add([]byte(zhead+turn(0)+turn(2)), uint32(40))
	f.Fuzz(func(t *testing.T, b []byte, seed uint32) {
		// Cut into frames, the text reads like the plain one where that is sound.
		if i := bytes.IndexByte(b, '\n'); i >= 0 && !isZstd("", b) {
			parts := []string{string(b[:i+1])}
			for rest := b[i+1:]; len(rest) > 0; {
				seed = seed*1664525 + 1013904223
				n := min(len(rest), int(seed>>16)%200)
				parts = append(parts, string(rest[:n]))
				rest = rest[n:]
			}
			plain, framed := readBytes(t, "plain", b), readBytes(t, "framed", bytes.Join(pack(parts...), nil))
			want, got := readAll(t, plain), readAll(t, framed)
			if !bytes.Equal(want, got) || plain.Class() == Intact && framed.Class() != Intact ||
				plain.Class() == Torn && framed.Class() != Corrupt && framed.Class() != Unsupported {
				t.Fatalf("plain %s, framed %s\n%s", plain.Class(), framed.Class(), cmp.Diff(string(want), string(got)))
			}
			return
		}
		read := func(r io.Reader) string {
			l, err := NewReader(r, "fuzz.zstd", Options{})
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			n := 0
			for e, d := range l.Events() {
				if d == nil {
					n++
					fmt.Fprintf(&out, "%v %v %s\n", e.Pos, e.AfterDamage, e.JSON)
				}
			}
			if (l.Class() == Intact) != (len(l.Defects()) == 0) {
				t.Fatalf("%s with %v", l.Class(), l.Defects())
			}
			if l.Kept() > int64(n) || l.Committed() > int64(len(b)) && l.Container == Zstd {
				t.Fatalf("kept %d of %d to byte %d of %d", l.Kept(), n, l.Committed(), len(b))
			}
			return out.String() + summary(l, n)
		}
		whole := read(bytes.NewReader(b))
		if slow := read(&chunked{b: b, seed: seed}); slow != whole {
			t.Fatal(cmp.Diff(whole, slow))
		}
	})
}
