package logfmt

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What is read ahead is what is read: the same events and defects in the same
// order, with bytes of their own.
func TestEventsAhead(t *testing.T) {
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
			for e, d := range log.EventsAhead(func(*Event) { seen++ }) {
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
func TestEventsAheadLeft(t *testing.T) {
	data := manyPieces(20 * batchItems)
	before := runtime.NumGoroutine()
	for _, stop := range []int{1, batchItems, batchItems + 1, 10 * batchItems, 1 << 30} {
		log, err := NewReader(bytes.NewReader(data), "many", Options{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for e := range log.EventsAhead(nil) {
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
func TestEventsAheadPanic(t *testing.T) {
	log, err := NewReader(bytes.NewReader(manyPieces(3)), "many", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		got, _ := recover().(string)
		if !strings.HasPrefix(got, "at seq 2\n\nwhere it was reading ahead:\ngoroutine ") {
			t.Errorf("panic %q", got)
		}
	}()
	for range log.EventsAhead(func(e *Event) {
		if e.Seq == 2 {
			panic("at seq 2")
		}
	}) {
	}
	t.Error("no panic")
}
