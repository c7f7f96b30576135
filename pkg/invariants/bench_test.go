package invariants

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// BenchmarkCheck judges a whole log in each of its forms. Bytes are those of the
// plain text, so that the forms can be compared.
func BenchmarkCheck(b *testing.B) {
	dir, ok := corpus.Dir(b)
	if !ok {
		b.Skip("the full corpus is not here")
	}
	dir = filepath.Join(dir, "big", "20mb")
	st, err := os.Stat(filepath.Join(dir, "session.jsonl"))
	if err != nil {
		b.Skip(err)
	}
	check := func(b *testing.B, name string, opts Options) {
		b.SetBytes(st.Size())
		b.ReportAllocs()
		for b.Loop() {
			log, err := logfmt.OpenFile(filepath.Join(dir, name), logfmt.Options{})
			if err != nil {
				b.Fatal(err)
			}
			res, err := Check(context.Background(), log, opts)
			log.Close()
			if err != nil || res.Verdict != OK {
				b.Fatal(res.Verdict, err)
			}
		}
	}
	for _, name := range []string{"session.jsonl", "session.packed.jsonl", "session.jsonl.zstd", "session.sqlite"} {
		b.Run(name, func(b *testing.B) { check(b, name, Options{}) })
	}
	b.Run("ahead", func(b *testing.B) { check(b, "session.jsonl", Options{Ahead: true}) })
	// What is left without any rule: reading, loading and the fold.
	b.Run("no-rules", func(b *testing.B) {
		check(b, "session.jsonl", Options{Rules: func(string) bool { return false }})
	})
}

// BenchmarkChunks judges chunks alone: the path that must not allocate. A piece is
// one in the writer's form; the other has its members in another order and is
// taken member by member.
func BenchmarkChunks(b *testing.B) {
	const start = `{"type":"session","version":0,"id":"s","createdAt":1795980000000,"cwd":"/srv/demo","delegationDepth":0}
{"type":"turn/start","seq":0,"time":1795980000000,"data":{"turn":1}}
{"type":"step/start","seq":1,"time":1795980000000,"data":{"turn":1,"step":1}}
`
	for _, k := range []struct{ name, data string }{
		{"piece", `{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"some words of an answer"}}`},
		{"members", `{"step":1,"turn":1,"chunk":{"type":"text-delta","index":0,"text":"some words of an answer"}}`},
	} {
		b.Run(k.name, func(b *testing.B) {
			text := start + `{"type":"assistant/chunk","seq":2,"time":1795980000000,"data":` + k.data + "}\n"
			log, err := logfmt.NewReader(strings.NewReader(text), "bench", logfmt.Options{})
			if err != nil {
				b.Fatal(err)
			}
			c := newContext(log, Options{MaxPerRule: 1})
			var last *logfmt.Event
			for e, d := range log.Events() {
				if d != nil {
					b.Fatal(d)
				}
				c.load(e)
				last = e.Clone()
			}
			if last.IsPiece() != (k.name == "piece") {
				b.Fatal("not the form that is meant")
			}
			b.SetBytes(int64(len(last.JSON)))
			b.ReportAllocs()
			for b.Loop() {
				last.Seq++
				c.load(last)
			}
		})
	}
}

// BenchmarkRuns reads and judges a block of many pieces, as lines and as packed
// rows: what nearly all of a log is.
func BenchmarkRuns(b *testing.B) {
	const (
		pieces = 100_000
		start  = `{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"/srv/demo","delegationDepth":0}
{"type":"turn/start","seq":0,"time":1795980000000,"data":{"turn":1}}
{"type":"step/start","seq":1,"time":1795980000000,"data":{"turn":1,"step":1}}
`
	)
	plain, packed := []byte(start), []byte(start)
	for i := range pieces {
		plain = fmt.Appendf(plain, `{"type":"assistant/chunk","seq":%d,"time":1795980000000,"data":{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":" words"}}}`+"\n", i+2)
	}
	const row = 200
	for i := 0; i < pieces; i += row {
		packed = fmt.Appendf(packed, `{"type":"text-chunks","seq0":%d,"time0":1795980000000,"data":{"turn":1,"step":1,"index":0,"dt":[0%s],"texts":[" words"%s]}}`+"\n",
			i+2, strings.Repeat(",0", row-2), strings.Repeat(`," words"`, row-1))
	}
	for _, k := range []struct {
		name string
		text []byte
	}{{"plain", plain}, {"packed", packed}} {
		b.Run(k.name, func(b *testing.B) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			n := 0
			for b.Loop() {
				log, err := logfmt.NewReader(bytes.NewReader(k.text), "bench", logfmt.Options{})
				if err != nil {
					b.Fatal(err)
				}
				res, err := Check(context.Background(), log, Options{})
				if err != nil || res.Events != pieces+2 || res.Verdict != Open {
					b.Fatal(res, err)
				}
				n++
			}
			runtime.ReadMemStats(&after)
			events := float64(n * pieces)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/events, "ns/event")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/events, "allocs/event")
			b.SetBytes(int64(len(plain))) // of the plain text in both
		})
	}
}
