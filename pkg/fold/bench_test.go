package fold

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// BenchmarkRequests digests every request of the big logs. It reports the heap
// that is live at the end, which the surface bounds.
func BenchmarkRequests(b *testing.B) {
	dir, ok := corpus.Dir(b)
	if !ok {
		b.Skip("the full corpus is not here")
	}
	for _, name := range []string{"20mb/session.jsonl", "20mb/session.packed.jsonl", "200mb/session.jsonl.zstd"} {
		path := filepath.Join(dir, "big", name)
		st, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		want := readHashes(b, filepath.Join(filepath.Dir(path), "request-hashes.jsonl"))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(st.Size())
			b.ReportAllocs()
			for b.Loop() {
				l, err := logfmt.OpenFile(path, logfmt.Options{})
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				for q, err := range Requests(l, Options{}) {
					if err != nil {
						b.Fatal(err)
					}
					sum := q.Sum()
					if got := fmt.Sprintf(`{"turn":%d,"step":%d,"bytes":%d,"sha256":"%x"}`, q.Turn, q.Step, q.Len(), sum[:]); n >= len(want) || got != want[n] {
						b.Fatalf("request %d: got %s", n, got)
					}
					n++
				}
				if n != len(want) {
					b.Fatalf("%d requests, %d recorded", n, len(want))
				}
				b.ReportMetric(float64(n), "requests")
				l.Close()
			}
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.HeapSys)/(1<<20), "heap-MB")
		})
	}
}

// BenchmarkChunks folds chunks alone: the path that must not allocate.
func BenchmarkChunks(b *testing.B) {
	f := New(nil, Options{})
	for _, raw := range []string{turn1, step11, asked("u"), headPM} {
		f.Add(event([]byte(raw)))
	}
	e := event([]byte(`{"type":"assistant/chunk","seq":4,"time":0,"data":{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"some words of an answer"}}}`))
	b.SetBytes(int64(len(e.JSON)))
	b.ReportAllocs()
	for b.Loop() {
		f.Add(e)
		e.Seq++
	}
}
