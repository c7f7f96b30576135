package logfmt

import (
	"bytes"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// eventsAhead yields the events of records that are read ahead.
func eventsAhead(l *Log, each func(*Record)) iter.Seq2[*Event, *Defect] {
	return func(yield func(*Event, *Defect) bool) {
		for r, d := range l.RecordsAhead(each) {
			if d != nil {
				if !yield(nil, d) {
					return
				}
				continue
			}
			for i := range r.Len() {
				if !yield(r.Event(i), nil) {
					return
				}
			}
		}
	}
}

// What is read ahead is what is read: the same events and defects in the same
// order, with bytes of their own.
func TestRecordsAhead(t *testing.T) {
	logs, events := 0, 0
	err := filepath.WalkDir(filepath.Join("..", "..", "goldens"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.Contains(filepath.Base(path), "session") {
			return err
		}
		for log, err := range Open(path, Options{}) {
			if err != nil {
				continue // no log, which is tested elsewhere
			}
			logs++
			var want []*Event
			var bad []*Defect
			for e, d := range log.Events() {
				if d != nil {
					bad = append(bad, d)
					want = append(want, nil)
					continue
				}
				want = append(want, e.Clone())
			}
			class, kept := log.Class(), log.Kept()
			i, seen := 0, 0
			for e, d := range eventsAhead(log, func(r *Record) { seen += r.Len() }) {
				if i == len(want) {
					t.Fatalf("%s: more than %d events", path, i)
				}
				if (d != nil) != (want[i] == nil) {
					t.Fatalf("%s: item %d: event %v, defect %v", path, i, e, d)
				}
				if d != nil {
					if bad[0].Message != d.Message || bad[0].Pos != d.Pos || bad[0].Rule != d.Rule {
						t.Errorf("%s: defect %v, want %v", path, d, bad[0])
					}
					bad = bad[1:]
				} else {
					got, w := e.Clone(), want[i]
					if diff := cmp.Diff(w, got); diff != "" {
						t.Fatalf("%s: seq %d (-read +ahead):\n%s", path, w.Seq, diff)
					}
					a, okA := e.SourceRuns()
					b, okB := w.SourceRuns()
					if okA != okB || !cmp.Equal(a, b) {
						t.Fatalf("%s: seq %d: runs %v, want %v", path, w.Seq, a, b)
					}
				}
				i++
			}
			if i != len(want) || log.Class() != class || log.Kept() != kept {
				t.Errorf("%s: %d items, class %v, %d kept; want %d, %v, %d", path, i, log.Class(), log.Kept(), len(want), class, kept)
			}
			n := 0
			for _, e := range want {
				if e != nil {
					n++
				}
			}
			if seen != n {
				t.Errorf("%s: each saw %d events, want %d", path, seen, n)
			}
			events += n
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if logs < 100 || events < 5_000 {
		t.Errorf("%d logs with %d events: too few to show anything", logs, events)
	}
	t.Logf("%d logs, %d events", logs, events)
}

// manyPieces is a log of n pieces and one large message.
func manyPieces(n int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"/srv","delegationDepth":0}` + "\n")
	for i := range n {
		b.WriteString(strings.Replace(aPiece, `"seq":9`, `"seq":`+string(appendInt(nil, int64(i))), 1) + "\n")
	}
	b.WriteString(`{"type":"user/message","seq":` + string(appendInt(nil, int64(n))) + `,"time":1,"data":{"content":"` + strings.Repeat("x", 2*batchBytes) + `"}}` + "\n")
	return b.Bytes()
}

// Whoever leaves the loop early leaves no goroutine behind, and the log can be
// closed.
func TestRecordsAheadLeft(t *testing.T) {
	data := manyPieces(20 * batchItems)
	before := runtime.NumGoroutine()
	for _, stop := range []int{1, batchItems, batchItems + 1, 10 * batchItems, 1 << 30} {
		log, err := NewReader(bytes.NewReader(data), "many", Options{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for e := range eventsAhead(log, nil) {
			if e.Seq != int64(n) {
				t.Fatalf("seq %d at place %d", e.Seq, n)
			}
			if n++; n == stop {
				break
			}
		}
		if want := min(stop, 20*batchItems+1); n != want {
			t.Errorf("%d events, want %d", n, want)
		}
		log.Close()
	}
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i == 1000 {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		time.Sleep(time.Millisecond)
	}
}

// A panic over there is one of the caller, with the place where it was.
func TestRecordsAheadPanic(t *testing.T) {
	log, err := NewReader(bytes.NewReader(manyPieces(3)), "many", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		got, _ := recover().(string)
		if !strings.HasPrefix(got, "at seq 3\n\nwhere it was reading ahead:\ngoroutine ") {
			t.Errorf("panic %q", got)
		}
	}()
	for range eventsAhead(log, func(r *Record) {
		if r.Event(0).Seq == 3 {
			panic("at seq 3")
		}
	}) {
	}
	t.Error("no panic")
}

// A record beyond measure is handed over alone, and what a batch took for it is
// given back.
func TestRecordsAheadLarge(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(`{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"/srv","delegationDepth":0}` + "\n")
	seq := int64(0)
	for range 6 {
		fmt.Fprintf(&b, `{"type":"user/message","seq":%d,"time":1,"data":{"content":%q}}`+"\n", seq, strings.Repeat("x", 3*batchBytes))
		const members = batchBytes / 2
		fmt.Fprintf(&b, `{"type":"text-chunks","seq0":%d,"time0":1,"data":{"turn":1,"step":1,"index":0,"dt":[0%s],"texts":["y","y"%s]}}`+"\n", seq+1,
			strings.Repeat(",0", members-2), strings.Repeat(`,"z"`, members-2))
		seq += 1 + members
	}
	log, err := NewReader(bytes.NewReader(b.Bytes()), "large", Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := int64(0)
	for e, d := range eventsAhead(log, nil) {
		if d != nil || e.Seq != n {
			t.Fatalf("seq %d at place %d: %v", e.Seq, n, d)
		}
		n++
	}
	if n != seq || log.Class() != Intact {
		t.Errorf("%d events, class %v; want %d", n, log.Class(), seq)
	}
	big := batch{buf: make([]byte, 0, batchBytes+1), ends: make([]int, 0, batchBytes+1), items: make([]batchItem, 3, 4)}
	if big.reset(); cap(big.buf) != 0 || cap(big.ends) != 0 || len(big.items) != 0 || cap(big.items) != 4 {
		t.Errorf("a batch keeps %d bytes, %d ends", cap(big.buf), cap(big.ends))
	}
}

// A record says of a row what its events say.
func TestRecordRun(t *testing.T) {
	const head = `{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"/srv","delegationDepth":0}` + "\n"
	row := func(dt, texts string) string {
		return `{"type":"text-chunks","seq0":0,"time0":5,"data":{"turn":1,"step":1,"index":0,"dt":[` + dt + `],"texts":[` + texts + `]}}` + "\n"
	}
	for _, c := range []struct {
		line string
		want bool
	}{
		{row("0,2", `"a","","c"`), true},
		{row("0,-1", `"a","","c"`), false},                                       // the time falls
		{row("", `"a"`), false},                                                  // one event
		{strings.Replace(row("0", `"a","b"`), `"turn":1`, `"turn":0`, 1), false}, // no piece
		{strings.Replace(row("0", `"a","b"`), `"index":0`, `"index":-1`, 1), false},
		{strings.Replace(aPiece, `"seq":9`, `"seq":0`, 1) + "\n", false}, // no row
	} {
		log, err := NewReader(strings.NewReader(head+c.line), "row", Options{})
		if err != nil {
			t.Fatal(err)
		}
		for r, d := range log.Records() {
			if d != nil {
				t.Fatal(d)
			}
			last := r.Event(0).Clone()
			texts := []string{}
			for i := 1; i < r.Len(); i++ {
				last = r.Event(i).Clone()
			}
			r.Event(0)
			if r.Run() != c.want {
				t.Errorf("%s: run %t, want %t", c.line, r.Run(), c.want)
			}
			if !r.Run() {
				continue
			}
			for i := range r.Len() {
				_, text := r.Event(i).PieceText()
				if string(text) != string(r.Text(i)) {
					t.Errorf("%s: text %d is %s, want %s", c.line, i, r.Text(i), text)
				}
				texts = append(texts, string(text))
			}
			seq, time, pos := r.Last()
			if seq != last.Seq || time != last.Time || pos != last.Pos || len(texts) != 3 {
				t.Errorf("%s: ends at %d, %d, %v; want %d, %d, %v", c.line, seq, time, pos, last.Seq, last.Time, last.Pos)
			}
		}
	}
}

// Lines of a run are the events they are one by one, with their own places, and
// defects stand where they stand.
func TestLineRuns(t *testing.T) {
	const head = `{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"/srv","delegationDepth":0}` + "\n"
	line := func(seq, time int64) string {
		return strings.Replace(aPiece, `9,"time":100`, fmt.Sprintf(`%d,"time":%d`, seq, time), 1) + "\n"
	}
	span := func(from, to int64) (s string) {
		for i := from; i < to; i++ {
			s += line(i, i/3)
		}
		return s
	}
	other := strings.Replace(line(20, 6), `"turn":1`, `"turn":2`, 1)
	for _, c := range []struct {
		name, lines string
		events      int
		defects     string // line and message of each
	}{
		{"sound", span(0, 30), 30, "[]"},
		{"many", span(0, 600), 600, "[]"},
		{"another form", span(0, 20) + other + span(21, 30), 30, "[]"},
		{"a time falls", span(0, 20) + line(20, 1) + span(21, 30), 30, "[]"},
		{"a gap", span(0, 20) + span(25, 30), 25, "[22 expected seq 20, got 25: 5 events are missing]"},
		{"again", span(0, 20) + span(19, 30), 31, "[22 expected seq 20, got 19: the seq of the record before it, at line 21, is used again]"},
		{"back", span(0, 20) + span(10, 30), 40, "[22 expected seq 20, got 10: the numbering goes back]"},
		{"late", span(0, 10) + span(15, 20) + span(10, 15) + span(20, 30), 30,
			"[12 expected seq 10, got 15: 5 events are missing 17 expected seq 20, got 10: it comes late, it was passed over at line 12]"},
		{"swapped", span(0, 10) + line(11, 3) + line(10, 3) + span(12, 30), 30,
			"[12 expected seq 10, got 11: seq 10 stands in the record behind it, the order is wrong]"},
		{"torn", span(0, 20) + strings.TrimSuffix(line(20, 9), "}\n"), 20,
			"[22 the last line is cut after 121 bytes: expected the rest of a record and a line feed]"},
		{"damaged", span(0, 20) + "{\n" + span(21, 30), 29, "[22 not valid JSON: expected key or '}', got end of input]"},
	} {
		data := head + c.lines
		log, err := NewReader(strings.NewReader(data), "runs", Options{})
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(data, "\n")
		offset := []int64{0}
		for _, l := range lines {
			offset = append(offset, offset[len(offset)-1]+int64(len(l)))
		}
		events, longest := 0, 0
		defects := []string{}
		at := 1 // place in lines
		for r, d := range log.Records() {
			if d != nil {
				defects = append(defects, fmt.Sprint(d.Pos.Line, " ", d.Message))
				if d.Rule == RuleJSON {
					at++
				}
				continue
			}
			events, longest = events+r.Len(), max(longest, r.Len())
			for i := range r.Len() {
				e := r.Event(i)
				want := Position{Line: int64(at + 1), Offset: offset[at], Length: int64(len(lines[at])), Frame: -1, FrameAt: -1, Row: -1, Member: -1}
				if string(e.Line)+"\n" != lines[at] || string(e.JSON) != string(e.Line) || e.Pos != want || !e.IsPiece() || e.AfterDamage != (len(defects) > 0) {
					t.Errorf("%s: event %d is %s at %+v, want %s at %+v", c.name, e.Seq, e.Line, e.Pos, lines[at], want)
				}
				if parsed := fmt.Sprintf(`{"type":"assistant/chunk","seq":%d,"time":%d,"data":%s}`, e.Seq, e.Time, e.Data); parsed != string(e.JSON) {
					t.Errorf("%s: event %d reads as %s, want %s", c.name, e.Seq, parsed, e.JSON)
				}
				at++
			}
		}
		// Where a run ends depends on what was read, too.
		if events != c.events || longest < 5 || longest > mostRun || fmt.Sprint(defects) != c.defects {
			t.Errorf("%s: %d events, the longest run %d, defects %v; want %d, %s", c.name, events, longest, defects, c.events, c.defects)
		}
	}
}
