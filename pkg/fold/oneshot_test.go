package fold

import (
	"path/filepath"
	"testing"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
)

// foldAll folds a log with one-shot calls.
func foldAll(tb testing.TB, path string) (requests []*Request, calls []*OneShot, f *Fold) {
	tb.Helper()
	l := openLog(tb, path)
	defer l.Close()
	f = New(l.Header, Options{OneShots: true})
	for e, d := range l.Events() {
		if d != nil {
			tb.Fatal(d)
		}
		for _, q := range f.Add(e) {
			requests = append(requests, q.Clone())
		}
		calls = append(calls, f.OneShots()...)
	}
	for _, q := range f.End() {
		requests = append(requests, q.Clone())
	}
	return requests, calls, f
}

func TestRecordedOneShots(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	cases := []struct {
		folder  string
		file    string
		at      []int // rows of the file that are one-shot calls; nil for all
		unknown int
	}{
		{"head/compaction-manual", "aux-requests.jsonl", nil, 0},
		{"head/compaction-overflow", "aux-requests.jsonl", nil, 0},
		{"head/compaction-pressure", "aux-requests.jsonl", nil, 1},
		{"july/b-real-compaction", "requests.jsonl", []int{5, 9, 13}, 0},
		{"july/b2-real-compaction", "requests.jsonl", []int{5, 9, 13}, 0},
	}
	matched := 0
	for _, c := range cases {
		t.Run(c.folder, func(t *testing.T) {
			_, calls, _ := foldAll(t, filepath.Join(dir, c.folder, "session.jsonl"))
			sent := readRequests(t, filepath.Join(dir, c.folder, c.file))
			if c.at != nil {
				var some []recorded
				for _, i := range c.at {
					some = append(some, sent[i])
				}
				sent = some
			}
			if len(calls) != len(sent) {
				t.Fatalf("%d calls, %d recorded", len(calls), len(sent))
			}
			unknown := 0
			for i, call := range calls {
				if !call.Known() {
					unknown++
					if call.Grade != Ambiguous {
						t.Errorf("call %d: grade %s of an unknown call", i, call.Grade)
					}
					continue
				}
				if call.Grade != Template {
					t.Errorf("call %d: grade %s %v", i, call.Grade, call.Reasons)
				}
				if err := call.Match(sent[i].body); err != nil {
					t.Errorf("call %d: %v\nbody %s", i, err, call.AppendBody(nil))
				}
				matched++
			}
			if unknown != c.unknown {
				t.Errorf("%d calls unknown, want %d", unknown, c.unknown)
			}
		})
	}
	t.Logf("%d calls matched", matched)
}
