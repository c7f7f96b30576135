package logfmt

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/zframe"
)

func readBytes(tb testing.TB, name string, b []byte) *Log {
	tb.Helper()
	l, err := NewReader(bytes.NewReader(b), name, Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// TestZstdVectors reads the files that were given to the harness and compares
// what it made of them.
func TestZstdVectors(t *testing.T) {
	var vectors []struct {
		Name, Hex string
		Inspect   struct {
			OK  []string
			Err string
		}
	}
	if err := json.Unmarshal(readFile(t, "testdata/zstd/vectors.json"), &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) != 15 {
		t.Fatalf("%d vectors, want 15", len(vectors))
	}
	// closers counts the events that the harness added to those of the log.
	closers := map[string]int{"tornChecksumTrailer": 2}
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			b, err := hex.DecodeString(v.Hex)
			if err != nil {
				t.Fatal(err)
			}
			l := readBytes(t, v.Name, b)
			kept := readAll(t, l)
			if v.Inspect.Err != "" {
				if l.Class() != Corrupt {
					t.Errorf("%s: %v, the harness says: %s", l.Class(), l.Defects(), v.Inspect.Err)
				}
				return
			}
			want := strings.Join(v.Inspect.OK[:len(v.Inspect.OK)-closers[v.Name]], "\n") + "\n"
			if diff := cmp.Diff(want, string(kept)); diff != "" {
				t.Error(diff)
			}
			class := Intact
			if strings.HasPrefix(v.Name, "torn") || v.Name == "junk2" {
				class = Torn
			}
			if l.Class() != class {
				t.Errorf("%s: %v, want %s", l.Class(), l.Defects(), class)
			}
		})
	}
}

// TestZstdDamaged compares what is found in damaged logs with a golden file.
func TestZstdDamaged(t *testing.T) {
	files, err := filepath.Glob("testdata/zstd/*.jsonl.zstd")
	if err != nil || len(files) != 22 {
		t.Fatalf("%d cases, want 22: %v", len(files), err)
	}
	var got bytes.Buffer
	for _, f := range files {
		before := readFile(t, f)
		l := openFile(t, f)
		text, n := zstdSummary(l)
		fmt.Fprintf(&got, "%s: %s", strings.TrimSuffix(filepath.Base(f), ".jsonl.zstd"), text)
		if !bytes.Equal(before, readFile(t, f)) {
			t.Errorf("%s: the file has changed", f)
		}
		// Another reading, and a stream, find the same.
		if again, m := zstdSummary(l); again != text || m != n {
			t.Errorf("%s: read again:\n%s", f, cmp.Diff(text, again))
		}
		if again, _ := zstdSummary(readBytes(t, f, before)); again != text {
			t.Errorf("%s: as a stream:\n%s", f, cmp.Diff(text, again))
		}
	}
	golden(t, "testdata/zstd/damaged.golden", got.Bytes())
}

// zstdSummary reads a log and says what was found, frames included.
func zstdSummary(l *Log) (string, int) {
	n := 0
	for _, d := range l.Events() {
		if d == nil {
			n++
		}
	}
	var b strings.Builder
	b.WriteString(summary(l, n))
	for _, d := range l.Defects() {
		fmt.Fprintf(&b, "    frame %d at %d; %s\n", d.Pos.Frame, d.Pos.FrameAt, d.Hint)
	}
	fmt.Fprintf(&b, "  %+v\n", l.Frames())
	return b.String(), n
}

// TestZstdCuts cuts logs at the places where the harness was tried and wants the
// events it kept; -1 stands for a refused log.
func TestZstdCuts(t *testing.T) {
	var sweep map[string]struct {
		First, Step, Cases int
		Steps              [][2]int64
	}
	if err := json.Unmarshal(readFile(t, "testdata/zstd/sweep.json"), &sweep); err != nil {
		t.Fatal(err)
	}
	total := 0
	for name, s := range sweep {
		file := readFile(t, "testdata/zstd/sweep/"+name+".jsonl.zstd")
		whole := readBytes(t, name, file)
		events := readAll(t, whole)
		if whole.Class() != Intact {
			t.Fatal(name, whole.Defects())
		}
		want, step := int64(-2), 0
		for i := range s.Cases {
			cut := s.First + i*s.Step
			if step < len(s.Steps) && s.Steps[step][0] == int64(cut) {
				want = s.Steps[step][1]
				step++
			}
			checkZstdCut(t, file[:cut], events, want)
			total++
		}
	}
	t.Logf("%d cuts", total)
	if total != 2118+96+230 {
		t.Errorf("%d cuts", total)
	}
}

// checkZstdCut reads the start of a sound log of which the harness keeps so many
// events; -1 says that it refuses it.
func checkZstdCut(t *testing.T, file, events []byte, want int64) {
	t.Helper()
	l := readBytes(t, "cut.jsonl.zstd", file)
	kept := readAll(t, l)
	if want < 0 {
		if l.Class() != Corrupt || l.Kept() != 0 {
			t.Errorf("cut %d: %s, kept %d, %v; the harness refuses it", len(file), l.Class(), l.Kept(), l.Defects())
		}
		return
	}
	r := bytes.NewReader(file)
	w := zframe.NewWalker(r, int64(len(file)))
	class, whole := Intact, int64(len(file))
	for {
		f, err := w.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if f.Cut != zframe.Whole {
			class, whole = Torn, f.Offset
		}
	}
	if l.Class() != class || l.Kept() != want || l.Committed() != whole {
		t.Errorf("cut %d: %s, kept %d to byte %d, %v; want %s, %d to %d", len(file), l.Class(), l.Kept(), l.Committed(), l.Defects(), class, want, whole)
	}
	if int64(bytes.Count(kept, []byte("\n"))) != want || !bytes.HasPrefix(events, kept) {
		t.Errorf("cut %d: kept other events than the log holds", len(file))
	}
	if class == Torn {
		if d := l.Defects(); len(d) != 1 || d[0].Rule != RuleFrameTorn || d[0].Seq != want || d[0].Pos.FrameAt != whole {
			t.Errorf("cut %d: defects %v", len(file), d)
		}
	}
}

const zhead = `{"type":"session","version":0,"id":"s-1","createdAt":1755000000000,"cwd":"/srv/app","delegationDepth":0}` + "\n"

// turn is a turn of two events from seq on.
func turn(seq int) string {
	n := seq/2 + 1
	return fmt.Sprintf(`{"type":"turn/start","seq":%d,"time":1,"data":{"turn":%d}}`+"\n"+
		`{"type":"turn/end","seq":%d,"time":2,"data":{"turn":%d,"reason":{"kind":"completed"}}}`+"\n", seq, n, seq+1, n)
}

// pack makes frames of the parts.
func pack(parts ...string) [][]byte {
	e := zframe.NewEncoder()
	var fs [][]byte
	for _, p := range parts {
		fs = append(fs, e.Append(nil, []byte(p)))
	}
	return fs
}

// raw makes a frame of one raw block whose checksum is that of the text.
func raw(text string) []byte {
	b := []byte{0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x58}
	v := uint32(len(text))<<3 | 1
	return append(append(b, byte(v), byte(v>>8), byte(v>>16)), text...)
}

// TestZstdDefects damages logs in one way each.
func TestZstdDefects(t *testing.T) {
	// base is a header and three turns, one frame each.
	base := func() [][]byte { return pack(zhead, turn(0), turn(2), turn(4)) }
	lens := func() (n [5]int) {
		for i, f := range base() {
			n[i+1] = n[i] + len(f)
		}
		return n
	}()
	skip := []byte{0x50, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 'a', 'b', 'c'}
	foreign := func(header string, text string) []byte {
		b, err := hex.DecodeString(header)
		if err != nil {
			t.Fatal(err)
		}
		v := uint32(len(text))<<3 | 1
		return append(append(b, byte(v), byte(v>>8), byte(v>>16)), text...)
	}
	type want struct {
		class  Class
		kept   int64
		events int // yielded
		rules  string
		msg    string // of the first defect
	}
	cases := []struct {
		name string
		file []byte
		want
	}{
		{"sound", bytes.Join(base(), nil), want{Intact, 6, 6, "", ""}},
		{"checksum of a middle frame, text sound", func() []byte {
			f := base()
			f[2][len(f[2])-1] ^= 1
			return bytes.Join(f, nil)
		}(), want{Corrupt, 2, 6, "FRAME-DATA", "has a wrong checksum: it stores"}},
		{"checksum of a middle frame, text damaged", func() []byte {
			f := base()
			f[2] = raw(strings.Replace(turn(2), ":{", ":[", 1))
			f[2][4] = 0x04
			f[2] = append(f[2], 1, 2, 3, 4)
			return bytes.Join(f, nil)
		}(), want{Corrupt, 2, 4, "FRAME-DATA", "does not decode: checksum does not match the content (it stores 04030201"}},
		{"data of a middle frame", func() []byte {
			f := base()
			f[2][9] |= 0x0F
			f[2][10], f[2][11], f[2][12] = 0xFF, 0xFF, 0xFF
			return bytes.Join(f, nil)
		}(), want{Corrupt, 2, 4, "FRAME-DATA", fmt.Sprintf("the frame at byte %d, %d bytes long, does not decode", lens[2], lens[3]-lens[2])}},
		{"magic of a middle frame", func() []byte {
			f := base()
			f[2][0] = 0
			return bytes.Join(f, nil)
		}(), want{Corrupt, 2, 4, "FRAME-MAGIC", fmt.Sprintf("no frame begins at byte %d: expected 28 b5 2f fd, got 00 b5 2f fd; the next frame begins at byte %d", lens[2], lens[3])}},
		{"magic of the last frame", func() []byte {
			f := base()
			f[3][0] = 0
			return bytes.Join(f, nil)
		}(), want{Corrupt, 4, 4, "FRAME-MAGIC", fmt.Sprintf("no frame begins at byte %d: expected 28 b5 2f fd, got 00 b5 2f fd; no frame begins behind it", lens[3])}},
		{"magic of the first frame", func() []byte {
			f := base()
			f[0][0] = 0
			return bytes.Join(f, nil)
		}(), want{Corrupt, 0, 6, "FRAME-MAGIC LOG-HEADER", "no frame begins at byte 0"}},
		{"reserved bit", func() []byte {
			f := base()
			f[2][4] |= 0x08
			return bytes.Join(f, nil)
		}(), want{Corrupt, 2, 4, "FRAME-RESERVED", fmt.Sprintf("a reserved bit is set in the descriptor 0x0c at byte %d, in the frame at byte %d; the next frame begins at byte %d", lens[2]+4, lens[2], lens[3])}},
		{"reserved block type", func() []byte {
			f := base()
			f[2][6] |= 6
			return bytes.Join(f, nil)
		}(), want{Corrupt, 2, 4, "FRAME-RESERVED", fmt.Sprintf("a block of the reserved type 3 at byte %d, in the frame at byte %d; the next frame begins at byte %d", lens[2]+6, lens[2], lens[3])}},
		{"block length beyond the end of the file", func() []byte {
			f := base()
			f[2][8] |= 0x40
			return bytes.Join(f, nil)
		}(), want{Corrupt, 2, 4, "FRAME-DATA", fmt.Sprintf("the frame at byte %d runs past the end of the file, but a whole frame begins inside it, at byte %d", lens[2], lens[3])}},
		{"block length into the next frame", func() []byte {
			f := pack(zhead, turn(0), turn(2), turn(4), turn(6))
			f[2][6] += 8
			return bytes.Join(f, nil)
		}(), want{Corrupt, 2, 6, "FRAME-DATA FRAME-MAGIC", "does not decode"}},
		{"skippable in the middle", bytes.Join([][]byte{base()[0], base()[1], skip, base()[2], base()[3]}, nil),
			want{Corrupt, 2, 6, "FRAME-SKIP", fmt.Sprintf("a skippable frame of 11 bytes stands at byte %d", lens[2])}},
		{"skippable first", append(bytes.Clone(skip), bytes.Join(base(), nil)...),
			want{Corrupt, 0, 6, "FRAME-SKIP", "a skippable frame of 11 bytes stands at byte 0"}},
		{"skippable inside a record", bytes.Join([][]byte{base()[0], pack(turn(0)[:70])[0], skip, pack(turn(0)[70:])[0]}, nil),
			want{Corrupt, 1, 2, "FRAME-SKIP", "a skippable frame of 11 bytes"}},
		{"skippable and a gap", bytes.Join([][]byte{base()[0], base()[1], skip, base()[3]}, nil),
			want{Corrupt, 2, 4, "FRAME-SKIP LOG-SEQ", "a skippable frame of 11 bytes"}},
		{"skippable cut", append(bytes.Join(base(), nil), skip[:9]...),
			want{Corrupt, 6, 6, "FRAME-SKIP", fmt.Sprintf("a skippable frame stands at byte %d and is cut after 9 bytes", lens[4])}},
		{"a whole frame missing", bytes.Join([][]byte{base()[0], base()[1], base()[3]}, nil),
			want{Corrupt, 2, 4, "LOG-SEQ", "expected seq 2, got 4: 2 events are missing"}},
		{"a frame twice", bytes.Join([][]byte{base()[0], base()[1], base()[1]}, nil),
			want{Corrupt, 2, 4, "LOG-SEQ", "expected seq 2, got 0"}},
		{"absurd window", bytes.Join([][]byte{base()[0], base()[1], foreign("28b52ffd00ff", turn(2)), base()[3]}, nil),
			want{Corrupt, 2, 4, "FRAME-DATA", "window is larger than the limit (it asks for 4123168604160 bytes, at most 134217728 are allowed)"}},
		{"absurd content size", bytes.Join([][]byte{base()[0], base()[1], foreign("28b52ffdc058ffffffffffffff7f", turn(2)), base()[3]}, nil),
			want{Corrupt, 2, 4, "FRAME-DATA", "content size does not match the content (it claims 9223372036854775807 bytes, its blocks hold at most 142)"}},
		{"a dictionary", bytes.Join([][]byte{base()[0], base()[1], foreign("28b52ffd015807", turn(2)), base()[3]}, nil),
			want{Corrupt, 2, 4, "FRAME-DATA", "a dictionary is needed (it names dictionary 7)"}},
		{"no checksum", bytes.Join([][]byte{base()[0], base()[1], raw(turn(2)), base()[3]}, nil), want{Intact, 6, 6, "", ""}},
		{"empty frames", bytes.Join(pack(zhead, "", "", turn(0), ""), nil), want{Intact, 2, 2, "", ""}},
		{"record over three frames", bytes.Join(pack(zhead, turn(0)[:10], turn(0)[10:30], turn(0)[30:]), nil), want{Intact, 2, 2, "", ""}},
		{"record begun in the last complete frame", bytes.Join(pack(zhead, turn(0), turn(2)[:10]), nil),
			want{Corrupt, 2, 2, "FRAME-LINE", "the last complete frame ends 10 bytes into a record"}},
		{"record begun in a complete frame, ended in the cut one", append(bytes.Join(pack(zhead, turn(0), turn(2)[:10]), nil), raw(turn(2)[10:])[:100]...),
			want{Corrupt, 2, 3, "FRAME-LINE FRAME-TORN", "the last complete frame ends 10 bytes into a record"}},
		{"whole record without its line feed", bytes.Join(pack(zhead, turn(0), strings.TrimSuffix(turn(2), "\n")), nil),
			want{Corrupt, 3, 3, "FRAME-LINE", "the last complete frame ends 84 bytes into a record"}},
		{"bad line in a complete frame, no turn behind it", bytes.Join(pack(zhead, turn(0), "{\n"), nil),
			want{Corrupt, 2, 2, "LINE-JSON", "not valid JSON"}},
		{"bad line in the cut frame", append(bytes.Join(pack(zhead, turn(0)), nil), raw("{\n{}\n{")[:14]...),
			want{Torn, 2, 3, "LINE-JSON LOG-SEQ FRAME-TORN", "not valid JSON"}},
		{"turn end behind a bad line in the cut frame", append(bytes.Join(pack(zhead, turn(0)), nil), raw("{\n" + turn(2) + "{}")[:9+2+142]...),
			want{Corrupt, 2, 4, "LINE-JSON FRAME-TORN", "not valid JSON"}},
		{"cut raw block", append(bytes.Join(pack(zhead, turn(0)), nil), raw(turn(2))[:9+80]...),
			want{Torn, 3, 3, "FRAME-TORN", "is cut in a block after 89 bytes; 80 bytes of text can be read, 1 whole line and 23 bytes of another"}},
		{"damage in a cut frame", append(bytes.Join(pack(zhead, turn(0)), nil), append(append([]byte{0x28, 0xB5, 0x2F, 0xFD, 4, 0x58}, raw(turn(2))[6:]...)[:9+142], 0xFF)...),
			want{Torn, 4, 4, "FRAME-TORN", "is cut in its checksum after 152 bytes; 142 bytes of text can be read, 2 whole lines"}},
		{"decoder error in a cut frame", append(bytes.Join(pack(zhead, turn(0)), nil), func() []byte {
			b := raw(turn(2))
			b[6] &^= 1 // not the last block
			return append(b, 0x24, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0x24, 0)
		}()...), want{Torn, 2, 2, "FRAME-TORN", "; nothing of it is recovered: compressed data is damaged"}},
		{"header frame empty", bytes.Join(pack("", zhead, turn(0)), nil),
			want{Corrupt, 0, 2, "FRAME-HEADER", "the first frame is empty, expected exactly the header line"}},
		{"header over two frames", bytes.Join(pack(zhead[:20], zhead[20:], turn(0)), nil),
			want{Corrupt, 0, 2, "FRAME-HEADER", "the first frame holds 0 line feeds in 20 bytes, expected exactly the header line"}},
		{"events in the header frame", bytes.Join(pack(zhead+turn(0), turn(2)), nil),
			want{Corrupt, 0, 4, "FRAME-HEADER", "the first frame holds 3 line feeds in 247 bytes, expected exactly the header line"}},
		{"header frame does not decode", func() []byte {
			f := base()
			f[0][9], f[0][10], f[0][11], f[0][12] = 0xFF, 0xFF, 0xFF, 0xFF
			return bytes.Join(f, nil)
		}(), want{Corrupt, 0, 6, "FRAME-DATA LOG-HEADER", "the frame at byte 0"}},
		{"header frame with a wrong checksum", func() []byte {
			f := base()
			f[0][len(f[0])-1] ^= 1
			return bytes.Join(f, nil)
		}(), want{Corrupt, 0, 6, "FRAME-DATA", "the frame at byte 0"}},
		{"header frame cut in its checksum", base()[0][:len(base()[0])-1],
			want{Corrupt, 0, 0, "FRAME-HEADER FRAME-TORN", "the first frame is cut after"}},
		{"header not valid", bytes.Join(pack(`{"type":"session","version":0}`+"\n", turn(0)), nil),
			want{Corrupt, 0, 2, "LOG-HEADER", "header record: expected a string as id"}},
		{"newer version", bytes.Join(pack(strings.Replace(zhead, `"version":0`, `"version":9`, 1), turn(0)), nil),
			want{Unsupported, 0, 0, "LOG-FORMAT", "format version 9"}},
		{"newer version, damage in a later frame", func() []byte {
			f := pack(strings.Replace(zhead, `"version":0`, `"version":9`, 1), turn(0))
			f[1][len(f[1])-1] ^= 1
			return bytes.Join(f, nil)
		}(), want{Unsupported, 0, 0, "LOG-FORMAT", "format version 9"}},
		{"newer version, bad structure later", append(bytes.Join(pack(strings.Replace(zhead, `"version":0`, `"version":9`, 1), turn(0), turn(2)), nil), "junk"...),
			want{Corrupt, 0, 0, "FRAME-MAGIC LOG-FORMAT", "expected 28 b5 2f fd, got 6a 75 6e 6b"}},
		{"junk of three bytes", append(bytes.Join(base(), nil), "jun"...),
			want{Torn, 6, 6, "FRAME-TORN", "3 bytes behind the last frame are not the beginning of another"}},
		{"junk of four bytes", append(bytes.Join(base(), nil), "junk"...),
			want{Corrupt, 6, 6, "FRAME-MAGIC", fmt.Sprintf("no frame begins at byte %d: expected 28 b5 2f fd, got 6a 75 6e 6b; no frame begins behind it", lens[4])}},
		{"nothing", nil, want{Corrupt, 0, 0, "LOG-HEADER", "the file is empty, expected a frame with the header record"}},
		{"one byte", []byte{0x28}, want{Corrupt, 0, 0, "FRAME-HEADER", "the first frame is cut after 1 byte, expected"}},
		{"three zero bytes", []byte{0, 0, 0}, want{Corrupt, 0, 0, "FRAME-HEADER", "the first frame is cut after 3 bytes, expected"}},
		{"plain text", []byte(zhead + turn(0)), want{Corrupt, 0, 2, "FRAME-MAGIC", "plain text under the name of a Zstandard log: expected 28 b5 2f fd, got 7b 22 74 79"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "session.jsonl.zstd")
			if err := os.WriteFile(path, c.file, 0o400); err != nil {
				t.Fatal(err)
			}
			l := openFile(t, path)
			text, n := zstdSummary(l)
			var rules []string
			for _, d := range l.Defects() {
				rules = append(rules, d.Rule)
				if d.Hint == "" && d.Rule != RuleFormat && d.Rule != RuleHeader && d.Rule != RuleSeq || d.File != path {
					t.Errorf("no hint or file: %+v", d)
				}
			}
			got := want{l.Class(), l.Kept(), n, strings.Join(rules, " "), ""}
			if len(rules) > 0 && c.msg != "" {
				if got.msg = l.Defects()[0].Message; strings.Contains(got.msg, c.msg) {
					got.msg = c.msg
				}
			}
			if got != c.want {
				t.Errorf("got  %+v\nwant %+v\n%s", got, c.want, text)
			}
			if again, _ := zstdSummary(readBytes(t, path, c.file)); again != text {
				t.Errorf("as a stream:\n%s", cmp.Diff(text, again))
			}
			defer func(n int64) { aheadSize = n }(aheadSize)
			aheadSize = 0
			if again, _ := zstdSummary(readBytes(t, path, c.file)); again != text {
				t.Errorf("decoded ahead:\n%s", cmp.Diff(text, again))
			}
			slow, err := NewReader(iotest.HalfReader(bytes.NewReader(c.file)), path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if again, _ := zstdSummary(slow); again != text {
				t.Errorf("as a slow stream:\n%s", cmp.Diff(text, again))
			}
		})
	}
}

// Positions name the frame a record begins in and its place in the plain text.
func TestZstdPositions(t *testing.T) {
	two := turn(0)
	i := strings.IndexByte(two, '\n') + 1
	fs := pack(zhead, two[:10], "", two[10:i], two[i:])
	l := readBytes(t, "p", bytes.Join(fs, nil))
	at := []int64{0}
	for _, f := range fs {
		at = append(at, at[len(at)-1]+int64(len(f)))
	}
	want := []Position{
		{Line: 2, Offset: int64(len(zhead)), Length: int64(i), Frame: 1, FrameAt: at[1], Row: -1, Member: -1},
		{Line: 3, Offset: int64(len(zhead) + i), Length: int64(len(two) - i), Frame: 4, FrameAt: at[4], Row: -1, Member: -1},
	}
	var got []Position
	for e, d := range l.Events() {
		if d != nil {
			t.Fatal(d)
		}
		got = append(got, e.Pos)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	head := Position{Line: 1, Length: int64(len(zhead)), Frame: 0, FrameAt: 0, Row: -1, Member: -1}
	if diff := cmp.Diff(head, l.Header.Pos); diff != "" {
		t.Error(diff)
	}
	if got, want := l.Frames(), (FrameStats{Frames: 5, Empty: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	d := Defect{File: "a.jsonl.zstd", Pos: want[1], At: 3, Seq: 1, Message: "m"}
	if got, want := d.Error(), fmt.Sprintf("a.jsonl.zstd:3: seq 1: frame 4: text byte %d: m", len(zhead)+i+3); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A frame that is too large for memory is verified before any of it is shown.
func TestZstdLargeFrame(t *testing.T) {
	var b bytes.Buffer
	n := 0
	for ; b.Len() < 9<<20; n++ {
		fmt.Fprintf(&b, `{"type":"x/y","seq":%d,"time":1,"data":{"n":%d,"text":%q}}`+"\n", n, n*n, strings.Repeat("tide ", n%40))
	}
	fs := pack(zhead, b.String(), fmt.Sprintf(`{"type":"x/z","seq":%d,"time":1,"data":null}`+"\n", n))
	file := bytes.Join(fs, nil)
	l := readBytes(t, "large", file)
	if got := bytes.Count(readAll(t, l), []byte("\n")); l.Class() != Intact || got != n+1 {
		t.Errorf("%s, %d events of %d: %v", l.Class(), got, n+1, l.Defects())
	}

	// Cut: what is there of it is shown, after it has proven readable.
	cut := len(fs[0]) + len(fs[1])*9/10
	l = readBytes(t, "large", file[:cut])
	kept := readAll(t, l)
	if l.Class() != Torn || !bytes.HasPrefix(b.Bytes(), kept) || len(kept) < 8<<20 {
		t.Errorf("%s, %d bytes kept: %v", l.Class(), len(kept), l.Defects())
	}

	// Damaged at its end: nothing is shown.
	file[len(fs[0])+len(fs[1])-1] ^= 1
	l = readBytes(t, "large", file)
	got := 0
	for _, d := range l.Events() {
		if d == nil {
			got++
		}
	}
	if l.Class() != Corrupt || l.Kept() != 0 || got != 1 || len(l.Defects()) != 1 {
		t.Errorf("%s, %d events of which %d kept: %v", l.Class(), got, l.Kept(), l.Defects())
	}
}

// Frames that are decoded ahead give the same as frames decoded when they are
// wanted, and a reading that is broken off leaves nothing running.
func TestZstdAhead(t *testing.T) {
	defer func(n int64) { aheadSize = n }(aheadSize)
	aheadSize = 0
	parts := []string{zhead}
	for i := range 500 {
		parts = append(parts, turn(2*i))
	}
	fs := pack(parts...)
	// A large frame, a skippable one and a damaged one stop the decoding ahead.
	big := fmt.Sprintf(`{"type":"x/y","seq":1000,"time":1,"data":%q}`+"\n", strings.Repeat("tide ", 1<<20))
	fs = append(fs, pack(big)...)
	for i := 1001; i < 1101; i += 2 {
		fs = append(fs, pack(turn(i))...)
	}
	file := bytes.Join(fs, nil)
	before := runtime.NumGoroutine()
	l := readBytes(t, "ahead", file)
	for range 2 {
		if n := bytes.Count(readAll(t, l), []byte("\n")); n != 1101 || l.Class() != Intact || l.Frames().Frames != 552 {
			t.Fatalf("%s, %d events, %+v: %v", l.Class(), n, l.Frames(), l.Defects())
		}
		l = readBytes(t, "ahead", file)
	}
	for stop := 0; stop < 1101; stop += 7 {
		l := readBytes(t, "ahead", file)
		n := 0
		for e, d := range l.Events() {
			if d != nil || e.Seq != int64(n) {
				t.Fatal(e, d)
			}
			if n++; n > stop {
				break
			}
		}
	}
	fs[300] = append([]byte{0x50, 0x2A, 0x4D, 0x18, 0, 0, 0, 0}, fs[300]...)
	fs[400][len(fs[400])-1] ^= 1
	file = bytes.Join(fs, nil)
	file = file[:len(file)-2]
	l = readBytes(t, "ahead", file)
	ahead, n := zstdSummary(l)
	aheadSize = 1 << 62
	inline, m := zstdSummary(readBytes(t, "ahead", file))
	if ahead != inline || n != m || n != 1101 || len(l.Defects()) != 3 {
		t.Errorf("%d and %d events\n%s", n, m, cmp.Diff(inline, ahead))
	}
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i == 1000 {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		runtime.Gosched()
	}
}

// A stream that does not fit into memory goes by way of a file that is gone
// afterwards.
func TestZstdSpool(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir)
	var parts []string
	parts = append(parts, zhead)
	seed := uint32(1)
	n := 0
	for size := 0; size < 6<<20; n++ {
		noise := make([]byte, 30<<10)
		for i := range noise {
			seed = seed*1664525 + 1013904223
			noise[i] = byte(seed >> 24)
		}
		parts = append(parts, fmt.Sprintf(`{"type":"x/y","seq":%d,"time":1,"data":"%x"}`+"\n", n, noise))
		size += len(noise)
	}
	file := bytes.Join(pack(parts...), nil)
	if len(file) <= spoolMemory {
		t.Fatalf("a file of %d bytes proves nothing", len(file))
	}
	l := readBytes(t, "-", file)
	if got := bytes.Count(readAll(t, l), []byte("\n")); got != n || l.Class() != Intact {
		t.Errorf("%s, %d events of %d: %v", l.Class(), got, n, l.Defects())
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Directories yield Zstandard logs as well, and a name that promises plain text.
func TestZstdOpen(t *testing.T) {
	root := t.TempDir()
	file := bytes.Join(pack(zhead, turn(0)), nil)
	for name, b := range map[string][]byte{
		"a/session.jsonl.zstd": file,
		"b/session.jsonl":      file,
		"c/session.jsonl.zst":  file,
		"d/log.bin":            file,
	} {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for l, err := range Open(root, Options{Skip: func(p, why string) {
		got = append(got, "skip "+filepath.Base(p)+": "+why)
	}}) {
		if err != nil {
			t.Fatal(err)
		}
		readAll(t, l)
		rel, _ := filepath.Rel(root, l.Path)
		s := fmt.Sprintf("%s: %s %s, %d", filepath.ToSlash(rel), l.Container, l.Class(), l.Kept())
		for _, d := range l.Defects() {
			s += ", " + d.Message
		}
		got = append(got, s)
	}
	want := []string{
		"a/session.jsonl.zstd: zstd intact, 2",
		"b/session.jsonl: zstd corrupt, 0, Zstandard frames under the name of a plain log",
		"skip session.jsonl.zst: not named session*.jsonl or session*.jsonl.zstd",
		"skip log.bin: not named session*.jsonl or session*.jsonl.zstd",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// By its path, a file of any name is read.
	for _, name := range []string{"c/session.jsonl.zst", "d/log.bin"} {
		l := openFile(t, filepath.Join(root, name))
		if readAll(t, l); l.Class() != Intact || l.Kept() != 2 {
			t.Errorf("%s: %s, %v", name, l.Class(), l.Defects())
		}
	}
}

// TestCorpusZstd reads every recorded log in frames and compares its events with
// those that were recorded beside it.
func TestCorpusZstd(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	files, _ := filepath.Glob(filepath.Join(dir, "head", "*", "session*.jsonl.zstd"))
	n := 0
	for _, f := range files {
		name := strings.TrimSuffix(strings.Replace(filepath.Base(f), "session", "events", 1), ".zstd")
		want, err := os.ReadFile(filepath.Join(filepath.Dir(f), name))
		if err != nil {
			continue // the invalid ones have no events file; they are in TestZstdDamaged
		}
		l := openFile(t, f)
		if got := readAll(t, l); !bytes.Equal(want, got) {
			t.Errorf("%s: %s", f, cmp.Diff(string(want), string(got)))
		}
		if st, err := os.Stat(f); err != nil || l.Class() != Intact || l.Committed() != st.Size() {
			t.Errorf("%s: %s, committed %d: %v", f, l.Class(), l.Committed(), l.Defects())
		}
		if s := l.Frames(); s.Frames == 0 || s.Empty+s.NoChecksum+s.Foreign != 0 {
			t.Errorf("%s: %+v", f, s)
		}
		n++
	}
	t.Logf("%d logs equal their events.jsonl", n)
	if n != 48 {
		t.Errorf("%d logs, want 48", n)
	}
}

// TestCorpusZstdDamage compares what is kept of damaged logs with what the
// harness kept.
func TestCorpusZstdDamage(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	files, _ := filepath.Glob(filepath.Join(dir, "head", "crash-zstd-*", "damaged.jsonl.zstd"))
	refused := 0
	for _, f := range files {
		var v struct{ PreservedEvents *int64 }
		if err := json.Unmarshal(readFile(t, filepath.Join(filepath.Dir(f), "verdict.json")), &v); err != nil {
			t.Fatal(err)
		}
		l := openFile(t, f)
		kept := readAll(t, l)
		if v.PreservedEvents == nil {
			refused++
			if l.Class() != Corrupt {
				t.Errorf("%s: %s, the harness refuses it", f, l.Class())
			}
			continue
		}
		if l.Class() == Corrupt || l.Kept() != *v.PreservedEvents {
			t.Errorf("%s: %s, kept %d events, the harness %d", f, l.Class(), l.Kept(), *v.PreservedEvents)
		}
		if !bytes.HasPrefix(readFile(t, filepath.Join(filepath.Dir(f), "repaired.jsonl")), kept) {
			t.Errorf("%s: the kept events are not those of the repaired log", f)
		}
		// The harness cut the file at the end of its complete frames, and read
		// its own repair back as sound.
		repaired := filepath.Join(filepath.Dir(f), "repaired-file.jsonl.zstd")
		if !bytes.HasPrefix(readFile(t, repaired), readFile(t, f)[:l.Committed()]) {
			t.Errorf("%s: the harness cut before byte %d", f, l.Committed())
		}
		r := openFile(t, repaired)
		if got := readAll(t, r); r.Class() != Intact || !bytes.Equal(got, readFile(t, filepath.Join(filepath.Dir(f), "repaired.jsonl"))) {
			t.Errorf("%s: %s, %v", repaired, r.Class(), r.Defects())
		}
	}
	t.Logf("%d crashed logs, %d of them refused", len(files), refused)
	if len(files) != 13 || refused != 7 {
		t.Errorf("%d logs, %d refused, want 13 and 7", len(files), refused)
	}

	files, _ = filepath.Glob(filepath.Join(dir, "head", "invalid-zstd-*", "session.jsonl.zstd"))
	refused = 0
	for _, f := range files {
		var v struct {
			Load struct {
				OK     bool
				Events int64
			}
		}
		if err := json.Unmarshal(readFile(t, filepath.Join(filepath.Dir(f), "verdict.json")), &v); err != nil {
			t.Fatal(err)
		}
		l := openFile(t, f)
		kept := readAll(t, l)
		if !v.Load.OK {
			refused++
			if l.Class() != Corrupt {
				t.Errorf("%s: %s, the harness refuses it", f, l.Class())
			}
			continue
		}
		if l.Class() != Intact || l.Kept() != v.Load.Events || !bytes.Equal(kept, readFile(t, filepath.Join(filepath.Dir(f), "loaded.jsonl"))) {
			t.Errorf("%s: %s, kept %d events, the harness %d: %v", f, l.Class(), l.Kept(), v.Load.Events, l.Defects())
		}
	}
	t.Logf("%d invalid logs, %d of them refused", len(files), refused)
	if len(files) != 9 || refused != 7 {
		t.Errorf("%d logs, %d refused, want 9 and 7", len(files), refused)
	}

	total := 0
	for _, sweep := range []string{"crash-sweep-zstd", "crash-sweep-zstd-bigframe", "crash-sweep-zstd-multiblock"} {
		var base struct{ Base string }
		if err := json.Unmarshal(readFile(t, filepath.Join(dir, "head", sweep, "base.json")), &base); err != nil {
			t.Fatal(err)
		}
		file := readFile(t, filepath.Join(dir, "head", base.Base))
		events := readFile(t, filepath.Join(dir, "head", filepath.Dir(base.Base), "events.jsonl"))
		for line := range bytes.Lines(readFile(t, filepath.Join(dir, "head", sweep, "cases.jsonl"))) {
			var c struct {
				Cut       int
				OK        bool
				Preserved int64
			}
			if err := json.Unmarshal(line, &c); err != nil {
				t.Fatal(err)
			}
			if !c.OK {
				c.Preserved = -1
			}
			checkZstdCut(t, file[:c.Cut], events, c.Preserved)
			total++
		}
	}
	t.Logf("%d cuts", total)
	if total != 2444 {
		t.Errorf("%d cuts, want 2444", total)
	}
}

// bomb is a frame whose text is a repeated byte, 128 KiB in four bytes, and then
// the rest.
func bomb(size int, rest string) []byte {
	b := []byte{0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x58}
	for ; size > 0; size -= 128 << 10 {
		b = append(b, 0x02, 0x00, 0x10, 'A')
	}
	v := uint32(len(rest))<<3 | 1
	return append(append(b, byte(v), byte(v>>8), byte(v>>16)), rest...)
}

// heap runs f and returns by how much the heap had grown at its largest, as far
// as f asks.
func heap(f func(look func())) int64 {
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	peak := before.HeapAlloc
	f(func() {
		runtime.ReadMemStats(&now)
		peak = max(peak, now.HeapAlloc)
	})
	return int64(peak) - int64(before.HeapAlloc)
}

// Lines of a megabyte each, 256 of them out of a file of 10 kB: memory stays at
// what one line takes.
func TestZstdBomb(t *testing.T) {
	file := pack(zhead)[0]
	for range 256 {
		file = append(file, bomb(1<<20, "\n")...)
	}
	var l *Log
	n := 0
	grown := heap(func(look func()) {
		l = readBytes(t, "bomb", file)
		for e, d := range l.Events() {
			if e != nil || d.Rule != RuleJSON {
				t.Fatalf("%v, %v", e, d)
			}
			if n++; n%32 == 0 {
				look()
			}
		}
	})
	t.Logf("%d bytes of file, %d lines of 1 MiB, heap grown by %d", len(file), n, grown)
	if n != 256 || l.Class() != Corrupt || grown > 24<<20 {
		t.Errorf("%d lines, %s, heap grown by %d", n, l.Class(), grown)
	}
}

// patience hands out a line of n bytes and then the rest, and looks at the heap
// now and then.
type patience struct {
	n    int
	rest string
	look func()
}

func (p *patience) Read(b []byte) (int, error) {
	if p.n > 0 {
		k := min(p.n, len(b))
		for i := range b[:k] {
			b[i] = 'A'
		}
		if p.n>>25 != (p.n-k)>>25 {
			p.look()
		}
		p.n -= k
		return k, nil
	}
	if p.rest == "" {
		return 0, io.EOF
	}
	k := copy(b, p.rest)
	p.rest = p.rest[k:]
	return k, nil
}

// A line of one gigabyte, plain and out of 32 kB of frame, is passed over: what
// stands behind it is read, and memory stays at a small multiple of MaxLine.
func TestLongLine(t *testing.T) {
	const size = 1 << 30
	const most = 3 * MaxLine
	type got struct {
		class        Class
		kept         int64
		events       int
		rules        string
		offset, long int64
	}
	read := func(l *Log, look func()) (g got) {
		for e, d := range l.Events() {
			look()
			if d != nil {
				g.rules += d.Rule + " "
				if d.Rule == RuleLong {
					g.offset, g.long = d.Pos.Offset, d.Pos.Length
				}
				continue
			}
			if g.events++; e.AfterDamage == (e.Seq < 2) {
				t.Errorf("seq %d after damage: %v", e.Seq, e.AfterDamage)
			}
		}
		g.class, g.kept = l.Class(), l.Kept()
		return g
	}
	at := int64(len(zhead + turn(0)))
	// The harness might read the line, so that this is no corruption, whatever follows.
	want := got{Unsupported, 2, 4, RuleLong + " ", at, size + 1}
	var g got
	grown := heap(func(look func()) {
		l, err := NewReader(io.MultiReader(strings.NewReader(zhead+turn(0)), &patience{size, "\n" + turn(4), look}), "plain", Options{})
		if err != nil {
			t.Fatal(err)
		}
		g = read(l, look)
	})
	t.Logf("plain: heap grown by %d", grown)
	if g != want || grown > most {
		t.Errorf("plain: %+v, heap grown by %d, want %+v", g, grown, want)
	}

	grown = heap(func(look func()) {
		file := append(bytes.Join(pack(zhead, turn(0)), nil), bomb(size, "\n"+turn(4))...)
		g = read(readBytes(t, "zstd", file), look)
	})
	t.Logf("zstd: heap grown by %d", grown)
	if g != want || grown > most {
		t.Errorf("zstd: %+v, heap grown by %d, want %+v", g, grown, want)
	}

	// Without its line feed it is what a crash leaves, or damage in a whole frame.
	l, err := NewReader(io.MultiReader(strings.NewReader(zhead+turn(0)), &patience{MaxLine + 1, "", func() {}}), "plain", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if g, want := read(l, func() {}), (got{Torn, 2, 2, RuleTorn + " ", 0, 0}); g != want {
		t.Errorf("plain, cut: %+v, want %+v", g, want)
	}
	g = read(readBytes(t, "zstd", append(bytes.Join(pack(zhead, turn(0)), nil), bomb(MaxLine+1, "")...)), func() {})
	if want := (got{Corrupt, 2, 2, RuleFrameLine + " ", 0, 0}); g != want {
		t.Errorf("zstd, cut: %+v, want %+v", g, want)
	}
	if l, err = NewReader(&patience{MaxLine + 1, "\n", func() {}}, "plain", Options{}); err != nil {
		t.Fatal(err)
	}
	if g, want := read(l, func() {}), (got{Unsupported, 0, 0, RuleLong + " ", 0, MaxLine + 2}); g != want {
		t.Errorf("header: %+v, want %+v", g, want)
	}
}

func BenchmarkReadZstd(b *testing.B) {
	plain, packed := synthetic(300)
	dir := b.TempDir()
	files := map[string]string{}
	for name, text := range map[string][]byte{"plain": plain, "packed": packed} {
		// Batches of some 20 kB, as a flush at the end of a turn makes them.
		head, rest, _ := bytes.Cut(text, []byte("\n"))
		parts := []string{string(head) + "\n"}
		for len(rest) > 0 {
			n := min(20<<10, len(rest))
			n += bytes.IndexByte(rest[n-1:], '\n')
			parts = append(parts, string(rest[:n]))
			rest = rest[n:]
		}
		path := filepath.Join(dir, name+".jsonl.zstd")
		if err := os.WriteFile(path, bytes.Join(pack(parts...), nil), 0o600); err != nil {
			b.Fatal(err)
		}
		files[name] = path
	}
	if dir, ok := corpus.Dir(b); ok {
		for _, name := range []string{"20mb", "200mb"} {
			path := filepath.Join(dir, "big", name, "session.jsonl.zstd")
			if _, err := os.Stat(path); err == nil {
				files[name] = path
			}
		}
	}
	for _, name := range []string{"plain", "packed", "20mb", "200mb"} {
		path, ok := files[name]
		if !ok {
			continue
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l, err := OpenFile(path, Options{})
				if err != nil {
					b.Fatal(err)
				}
				text := int64(0)
				for e, d := range l.Events() {
					if d != nil {
						b.Fatal(d)
					}
					text = e.Pos.Offset + e.Pos.Length
				}
				b.SetBytes(text)
			}
		})
	}
}
