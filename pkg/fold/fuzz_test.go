package fold

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// vocabulary is what FuzzFold builds logs from. SEQ is the event's own seq, ANY
// and OTHER are seqs chosen by the input.
var vocabulary = []string{
	turn1, turn1old, turn2, step11, endStep11, step21, endStep21, endTurn1, headPM, headM,
	`{"type":"user/message","data":{"content":[],"source":{"kind":"user"},"role":"user","id":"SEQ"},"surfaceOp":"append"}`,
	`{"type":"user/message","data":{"content":[SEQ],"source":{"kind":"user"}},"surfaceOp":"append"}`,
	`{"type":"user/message","data":{"content":[SEQ],"source":{"kind":"user"}}}`,
	`{"type":"user/message","data":{"content":[SEQ],"source":{"kind":"plugin"},"role":"user","id":"SEQ"},"sourceEventSeqs":[ANY,OTHER],"surfaceOp":{"op":"replace","start":ANY,"end":OTHER}}`,
	`{"type":"context/message","data":{"content":[],"source":{"kind":"p"}},"surfaceOp":"append"}`,
	`{"type":"steering/message","data":{"turn":1,"content":[SEQ],"source":{"kind":"p"}},"surfaceOp":"append"}`,
	`{"type":"assistant/message","data":{"turn":1,"step":1,"content":[SEQ],"provenance":{"provider":"p"}},"surfaceOp":"append"}`,
	`{"type":"assistant/message","data":{"turn":1,"step":1,"content":[],"usage":{}},"surfaceOp":"append"}`,
	`{"type":"assistant/message","data":{"turn":1,"step":1,"message":{"content":[SEQ],"id":"SEQ"}},"sourceEventSeqs":[],"surfaceOp":"append"}`,
	`{"type":"tool/result","data":{"turn":1,"step":1,"callId":"c","content":[SEQ],"isError":false},"surfaceOp":"append"}`,
	`{"type":"tool/result","data":{"turn":1,"step":1,"callId":"c","content":[],"isError":false},"sourceEventSeqs":[ANY],"surfaceOp":{"op":"replace","start":ANY,"end":ANY}}`,
	`{"type":"assistant/chunk","data":{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"x"}}}`,
	`{"type":"assistant/chunk","data":{"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"stop"}}}}`,
	`{"type":"assistant/chunk","data":{"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"error","failure":{}}}}}`,
	`{"type":"request/header","data":{"header":{"config":{"provider":"p","maxTokens":ANY},"system":"S","tools":[{"name":"t"}]},"reason":"change"}}`,
	`{"type":"request/header","data":{"header":{"config":{"model":"m"},"messagePrefix":[{"role":"user","content":[]}]},"reason":"resume"}}`,
	`{"type":"request/header-delta","data":{"system":{"keepStart":ANY,"keepEnd":0,"insert":["SEQ"]}}}`,
	`{"type":"llm/retry","data":{"retryId":"r","turn":1,"step":1,"retry":1}}`,
	`{"type":"llm/retry-started","data":{"retryId":"r","turn":1,"step":1,"retry":1}}`,
	`{"type":"compaction/start","data":{"compactionId":"k","turn":1}}`,
	`{"type":"compaction/summary","data":{"compactionId":"k","llmStreamCall":true,"summary":[],"shadowedRange":{"start":ANY,"end":OTHER},"provider":"p","model":"m","maxTokens":1}}`,
	`{"type":"compaction/end","data":{"compactionId":"k","turn":1}}`,
	`{"type":"compact/summary","data":{"summary":[],"shadowedRange":{"start":ANY,"end":OTHER},"model":"m"}}`,
	`{"type":"session/end-seed","data":{}}`,
	`{"type":"usage","data":{}}`,
	`{"type":"user/message","data":null,"surfaceOp":"append"}`,
	`{"type":"assistant/message","data":[],"surfaceOp":null}`,
	`{"type":"request/header","data":{"header":{"config":null},"reason":7}}`,
}

// script turns fuzz input into a log: three bytes an event.
func script(in []byte) (header string, events []*logfmt.Event) {
	header = headOld
	if len(in) > 0 && in[0]&1 == 1 {
		header = `{"type":"session","version":0,"id":"s","createdAt":0,"parentSession":"q","seedLength":6,"delegationDepth":0}`
	}
	for seq := 0; len(in) >= 4; seq++ {
		w := vocabulary[int(in[1])%len(vocabulary)]
		r := strings.NewReplacer("SEQ", fmt.Sprint(seq), "ANY", fmt.Sprint(in[2]%64), "OTHER", fmt.Sprint(in[3]%64))
		e := event([]byte(r.Replace(w)))
		e.Seq, e.Time = int64(seq), int64(seq)
		events = append(events, e)
		in = in[3:]
	}
	return header, events
}

// FuzzFold folds logs made of real and odd events. Nothing may panic; cheap
// figures equal those of the written body; and what the fold says after an event
// is what a fold started afresh says.
func FuzzFold(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte("\x00\x00\x00\x00\x03\x00\x00\x0a\x00\x00\x08\x00\x00\x15\x00\x00\x16\x00\x00\x12\x00\x00\x04\x00\x00"))
	f.Add([]byte("\x01\x01\x00\x00\x0b\x00\x00\x03\x00\x00\x09\x00\x00\x15\x00\x00\x10\x00\x00\x13\x00\x00\x14\x06\x00\x22\x00\x00\x02\x00\x00\x05\x00\x00\x15\x00\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 400 {
			return
		}
		header, events := script(in)
		open := func() *Fold {
			l, err := logfmt.NewReader(strings.NewReader(header+"\n"), "fuzz", logfmt.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return New(l.Header, Options{OneShots: true})
		}
		long := open()
		var kept []*Request
		var bodies [][]byte
		for i, e := range events {
			for _, q := range long.Add(e) {
				check(t, q)
				kept = append(kept, q.Clone())
				bodies = append(bodies, q.AppendBody(nil))
			}
			for _, o := range long.OneShots() {
				if o.Known() {
					o.AppendBody(nil)
				}
			}
			if i%7 != int(in[0]>>1)%7 {
				continue
			}
			fresh := open()
			for _, e := range events[:i+1] {
				fresh.Add(e)
			}
			for _, x := range []struct {
				what string
				a, b []byte
			}{
				{"surface", long.Surface().AppendJSON(nil), fresh.Surface().AppendJSON(nil)},
				{"header", long.Header().JSON(), fresh.Header().JSON()},
				{"messages", long.AppendMessages(nil), fresh.AppendMessages(nil)},
			} {
				if !bytes.Equal(x.a, x.b) {
					t.Errorf("after event %d: %s %s, afresh %s", i, x.what, x.a, x.b)
				}
			}
			if long.Mode() != fresh.Mode() || long.Eras() != fresh.Eras() {
				t.Errorf("after event %d: mode or eras differ from a fresh fold", i)
			}
		}
		for _, q := range long.End() {
			check(t, q)
		}
		for i, q := range kept {
			if !bytes.Equal(q.AppendBody(nil), bodies[i]) {
				t.Errorf("request %d changed after the fact", i)
			}
		}
	})
}

// FuzzLog folds arbitrary bytes as far as they are a log.
func FuzzLog(f *testing.F) {
	paths, err := filepath.Glob(filepath.Join(corpus.Root(f), "goldens", "sound", "*", "session.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		if len(b) < 8<<10 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := logfmt.NewReader(bytes.NewReader(b), "fuzz", logfmt.Options{})
		if err != nil {
			return
		}
		for q, err := range Requests(l, Options{}) {
			if err == nil {
				check(t, q)
			}
		}
	})
}
