package logfmt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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
		{`{"turn":1,"step":2,"chunk":{"type":"tool-call-delta","index":0,"id":"c","argumentsDelta":"a"}}`, `1 2 {"type":"tool-call-delta","index":0,"id":"c","argumentsDelta":"a"}`},
		{`{"turn":1,"step":2,"chunk":{"type":"tool-call-delta","index":0,"id":"c","name":"\"","argumentsDelta":"{\""}}`, `1 2 {"type":"tool-call-delta","index":0,"id":"c","name":"\"","argumentsDelta":"{\""}`},
		{`{"turn":1,"step":2,"chunk":{"type":"tool-call-delta","index":0,"id":1,"argumentsDelta":"a"}}`, ""},
		{`{"turn":1,"step":2,"chunk":{"type":"tool-call-delta","index":0,"id":"c","name":null,"argumentsDelta":"a"}}`, ""},
		{`{"turn":1,"step":2,"chunk":{"type":"tool-call-delta","index":0,"argumentsDelta":"a"}}`, ""},
		{`{"turn":1,"step":2,"chunk":{"type":"tool-call-delta","index":0,"id":"c","argumentsDelta":{}}}`, ""},
		{`{"turn":1,"step":2,"chunk":{"type":"tool-call-delta","index":0,"id":"c"`, ""},
		{`{"turn":1,"step":2,"chunk":{"type":"tool-call-delta","index":0,"id":`, ""},
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
		if ok {
			head, text := e.PieceText()
			if whole := string(head) + string(text) + "}}"; whole != c.data || !json.Valid(text) || text[0] != '"' {
				t.Errorf("%s: head %s, text %s", c.data, head, text)
			}
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

// Lines that are read as more of the form of the line before them are the same
// records as when each is read by itself. It returns how many were, in all
// generations.
func checkForm(t *testing.T, first, second []byte) (matched int) {
	t.Helper()
	var form pieceForm
	for _, g := range generations {
		rec := record{gen: g}
		rec.parse(first, Position{})
		form.learn(&rec)
		for rest := second; ; {
			line, ok := form.match(rest, &rec)
			if !ok {
				break
			}
			matched++
			n := bytes.IndexByte(rest, '\n')
			if n != len(line) || !bytes.Equal(line, rest[:n]) {
				t.Fatalf("matched %q of %q", line, rest)
			}
			want := record{gen: g}
			want.parse(line, Position{})
			opts := cmp.AllowUnexported(record{})
			scratch := cmpopts.IgnoreFields(record{}, "buf", "exp", "env", "names", "row", "run", "gen")
			if d := cmp.Diff(want, rec, opts, scratch); d != "" {
				t.Fatalf("%q of %q behind %q (-alone +matched):\n%s", line, second, first, d)
			}
			rest = rest[n+1:]
		}
	}
	return matched
}

const aPiece = `{"type":"assistant/chunk","seq":9,"time":100,"data":{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"a"}}}`

func TestPieceForm(t *testing.T) {
	call := strings.Replace(aPiece, `"text-delta","index":0,"text":`, `"tool-call-delta","index":0,"id":"c","argumentsDelta":`, 1)
	for _, c := range []struct {
		first, second string
		want          bool
	}{
		{aPiece, aPiece + "\n", true},
		{aPiece, strings.Replace(aPiece, `"a"`, `"é \"b\" 🌊\\"`, 1) + "\n{", true},
		{aPiece, strings.Replace(aPiece, `9,"time":100`, `123456789012345,"time":0`, 1) + "\n", true},
		{call, strings.Replace(call, `"a"`, `"{\""`, 1) + "\n", true},
		{aPiece, aPiece, false}, // no line feed: it may be torn
		{aPiece, aPiece + "\r\n", false},
		{aPiece, aPiece + " \n", false},
		{aPiece, aPiece[:len(aPiece)-1] + ",\n", false},
		{aPiece, aPiece[:len(aPiece)-1] + "\n", false},
		{aPiece, "", false},
		{aPiece, "\n", false},
		{aPiece, call + "\n", false},
		{aPiece, strings.Replace(aPiece, `9,`, `09,`, 1) + "\n", false},
		{aPiece, strings.Replace(aPiece, `9,`, `-9,`, 1) + "\n", false},
		{aPiece, strings.Replace(aPiece, `9,`, `9.5,`, 1) + "\n", false},
		{aPiece, strings.Replace(aPiece, `9,`, `1234567890123456,`, 1) + "\n", false},
		{aPiece, strings.Replace(aPiece, `100,`, `-100,`, 1) + "\n", false},
		{aPiece, strings.Replace(aPiece, `"turn":1`, `"turn":2`, 1) + "\n", false},
		{aPiece, strings.Replace(aPiece, `"a"`, `"\u0061"`, 1) + "\n", false},
		{aPiece, strings.Replace(aPiece, `"a"`, `"\ud800"`, 1) + "\n", false},
		{aPiece, strings.Replace(aPiece, `"a"`, `"\/"`, 1) + "\n", false},
		{aPiece, strings.Replace(aPiece, `"a"`, "\"\xff\"", 1) + "\n", false},
		{aPiece, strings.Replace(aPiece, `"a"`, "\"\n\"", 1) + "\n", false},
		{aPiece, strings.Replace(aPiece, `"a"`, `"a","more":1`, 1) + "\n", false},
		{strings.Replace(aPiece, `"a"`, `"\ud800"`, 1), aPiece + "\n", true},     // half a pair changes no byte
		{strings.Replace(aPiece, `,"time"`, ` ,"time"`, 1), aPiece + "\n", true}, // the form is that of the canonical bytes
		{strings.Replace(aPiece, `"seq":9`, `"seq":-9`, 1), aPiece + "\n", false},
		{`{}`, aPiece + "\n", false},
		{`{`, aPiece + "\n", false},
	} {
		if got := checkForm(t, []byte(c.first), []byte(c.second)) > 0; got != c.want {
			t.Errorf("%q behind %q: matched %t, want %t", c.second, c.first, got, c.want)
		}
	}
}

// A run of lines: seqs that grow longer, that leave some out, that go back; times
// that change.
func TestPieceFormRun(t *testing.T) {
	var run []byte
	n := 0
	for _, at := range [][2]int64{
		{10, 100}, {11, 100}, {12, 100}, {99, 100}, {100, 100}, {101, 101}, {102, 99}, {103, 99}, {998, 1000},
		{999, 1000}, {1000, 1000}, {1001, 1000}, {1001, 1000}, {5, 1000}, {6, 1000}, {9, 0}, {10, 0},
		{999_999_999_999_998, 0}, {999_999_999_999_999, 0},
	} {
		n++
		run = append(run, strings.Replace(aPiece, `9,"time":100`, fmt.Sprintf(`%d,"time":%d`, at[0], at[1]), 1)...)
		run = append(run, '\n')
	}
	run = append(run, strings.Replace(aPiece, `9,`, `1000000000000000,`, 1)+"\n"...) // read the long way
	if got := checkForm(t, []byte(aPiece), run); got != len(generations)*n {
		t.Errorf("%d lines matched, want %d", got, len(generations)*n)
	}
}

func FuzzPieceForm(f *testing.F) {
	f.Add([]byte(aPiece), []byte(aPiece+"\n"))
	f.Add([]byte(aPiece), []byte(strings.Replace(aPiece, `"a"`, `"\n🌊"`, 1)+"\n{"))
	f.Add([]byte(aPiece), []byte(strings.Replace(aPiece, `100,`, `10,"ignorable":true,`, 1)+"\n"))
	f.Add([]byte(aPiece), []byte(strings.Replace(aPiece, "9,", "99,", 1)+"\n"+strings.Replace(aPiece, "9,", "100,", 1)+"\n"))
	f.Fuzz(func(t *testing.T, first, second []byte) { checkForm(t, first, second) })
}

// SourceRuns names the seqs of SourceRanges in the same order, whether reading
// noted them or not, and joins neighbours.
func TestSourceRuns(t *testing.T) {
	for _, c := range []struct {
		sources string
		want    string // the runs; "no" when it is no such list
	}{
		{`[]`, "[]"},
		{`[7]`, "[{7 7}]"},
		{`[1,2,3]`, "[{1 3}]"},
		{`[0,1,3,4,9]`, "[{0 1} {3 4} {9 9}]"},
		{`[3,2,1]`, "[{3 3} {2 2} {1 1}]"},
		{`[1,1,2]`, "[{1 1} {1 2}]"},
		{`[9007199254740990,9007199254740991]`, "[{9007199254740990 9007199254740991}]"},
		{`[1,[2,5],6]`, "[{1 1} {2 6}]"},
		{`[[1,2],[4,5]]`, "[{1 2} {4 5}]"},
		{`[-1]`, "no"},
		{`[1.5]`, "no"},
		{`[1e+21]`, "no"},
		{`[9007199254740992]`, "no"},
		{`["1"]`, "no"},
		{`[[2,1]]`, "no"},
		{`[null]`, "no"},
		{`{}`, "no"},
		{`"[1]"`, "no"},
	} {
		read := Event{Sources: []byte(c.sources)}
		read.readSources()
		other := read // whose bytes are others
		other.Sources = []byte(c.sources)
		for _, e := range []*Event{{Sources: []byte(c.sources)}, &read, &other} {
			got := "no"
			runs, ok := e.SourceRuns()
			if ok {
				got = fmt.Sprint(runs)
			}
			if got != c.want {
				t.Errorf("%s: runs %s, want %s", c.sources, got, c.want)
			}
			ranges, also := e.SourceRanges(nil)
			if ok != also || !slices.Equal(eachSeq(runs), eachSeq(ranges)) {
				t.Errorf("%s: runs %v %t, ranges %v %t", c.sources, runs, ok, ranges, also)
			}
		}
	}
	if runs, ok := new(Event).SourceRuns(); runs != nil || ok {
		t.Error("an event without sources has", runs)
	}
}

func eachSeq(rs []SeqRange) (seqs []int64) {
	for _, r := range rs {
		for s := r.First; s <= r.Last; s++ {
			seqs = append(seqs, s)
		}
	}
	return seqs
}

// Members of a row are expanded one from the other. Each is what it is by itself.
func TestRowMembers(t *testing.T) {
	for _, seq0 := range []int64{0, 8, 98, 9_999_998, 99_999_999_999_998} {
		for _, gap := range []string{"0,0,0,0", "0,1,0,9", "-3,0,0,5", "1,1,1,1", "0,0,0,100000000000"} {
			row := fmt.Sprintf(`{"type":"text-chunks","seq0":%d,"time0":1,"data":{"turn":1,"step":2,"index":0,"dt":[%s],"texts":["a","","\"}}}","🌊🌊","9"]}}`, seq0, gap)
			var rec record
			rec.parse([]byte(row), Position{})
			if rec.defect != nil || rec.count() != 5 {
				t.Fatalf("%s: %v, %d members", row, rec.defect, rec.count())
			}
			r := newRecord(&rec)
			time := int64(1)
			gaps := strings.Split("0,"+gap, ",")
			for range 2 { // a record may be expanded again
				time = 1
				for i, text := range []string{`"a"`, `""`, `"\"}}}"`, `"🌊🌊"`, `"9"`} {
					n, _ := strconv.ParseInt(gaps[i], 10, 64)
					time += n
					e := r.Event(i)
					data := `{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":` + text + `}}`
					want := fmt.Sprintf(`{"type":"assistant/chunk","seq":%d,"time":%d,"data":%s}`, seq0+int64(i), time, data)
					if string(e.JSON) != want || string(e.Data) != data || e.Seq != seq0+int64(i) || e.Time != time || !e.IsPiece() {
						t.Errorf("%s: member %d is %s, want %s", row, i, e.JSON, want)
					}
				}
			}
		}
	}
}
