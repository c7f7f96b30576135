package logfmt

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
)

// synthetic returns a log of turns in which a model streams text, plain and
// packed.
func synthetic(turns int) (plain, packed []byte) {
	const head = `{"type":"session","version":0,"id":"s","createdAt":1755600000000,"cwd":"/srv/demo","delegationDepth":0}` + "\n"
	plain, packed = []byte(head), []byte(head)
	seq, ms := 0, int64(1755600000000)
	var p Packer
	emit := func(format string, args ...any) {
		line := fmt.Appendf(nil, format, append([]any{seq, ms}, args...)...)
		plain = append(append(plain, line...), '\n')
		packed = p.Add(packed, line)
		seq++
		ms += 7
	}
	for turn := 1; turn <= turns; turn++ {
		emit(`{"type":"turn/start","seq":%d,"time":%d,"data":{"turn":%d}}`, turn)
		emit(`{"type":"step/start","seq":%d,"time":%d,"data":{"turn":%d,"step":1}}`, turn)
		for i := range 200 {
			emit(`{"type":"assistant/chunk","seq":%d,"time":%d,"data":{"turn":%d,"step":1,"chunk":{"type":"text-delta","index":0,"text":" harbour\n%d"}}}`, turn, i)
		}
		text := bytes.Repeat([]byte("the tide comes in, \u65e5\u672c\u8a9e and \\\"goes\\\" out again. "), 40)
		emit(`{"type":"assistant/message","seq":%d,"time":%d,"data":{"turn":%d,"step":1,"message":{"role":"assistant","content":[{"type":"text","text":"%s"}],"source":{"kind":"model","provider":"p","model":"m"},"id":"a"}},"sourceEventSeqs":[%d],"surfaceOp":"append"}`, turn, text, seq-1)
		emit(`{"type":"step/end","seq":%d,"time":%d,"data":{"turn":%d,"step":1}}`, turn)
		emit(`{"type":"turn/end","seq":%d,"time":%d,"data":{"turn":%d,"reason":{"kind":"completed"}}}`, turn)
	}
	return plain, p.Flush(packed)
}

func BenchmarkRead(b *testing.B) {
	plain, packed := synthetic(300)
	logs := []struct {
		name string
		text []byte
	}{{"plain", plain}, {"packed", packed}}
	if dir, ok := corpus.Dir(b); ok {
		for _, name := range []string{"session.jsonl", "session.packed.jsonl"} {
			if text, err := os.ReadFile(filepath.Join(dir, "big", "20mb", name)); err == nil {
				logs = append(logs, struct {
					name string
					text []byte
				}{"20mb/" + name, text})
			}
		}
	}
	for _, l := range logs {
		b.Run(l.name, func(b *testing.B) {
			b.SetBytes(int64(len(l.text)))
			b.ReportAllocs()
			events := 0
			for b.Loop() {
				log, err := NewReader(bytes.NewReader(l.text), "bench", Options{})
				if err != nil {
					b.Fatal(err)
				}
				events = 0
				for e, d := range log.Events() {
					if d != nil {
						b.Fatal(d)
					}
					events += 1
					_ = e
				}
			}
			b.ReportMetric(float64(events), "events")
		})
	}
}
