// Command biglog writes a sound log of any length, to measure with.
//
//	go run ./scripts/biglog [FLAGS] > FILE
//
// The log is what a model at work leaves behind: turns of a few steps, each an
// answer in many chunks, with a tool call in all steps of a turn but the last.
// When the surface has grown to -context messages, one message replaces them all,
// so that the requests of a long log are as long as those of a short one. The log
// ends with the first turn that reaches -bytes, -steps or -replaces, whichever is
// first.
// The same flags give the same log.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

func main() {
	var p plan
	flag.Int64Var(&p.bytes, "bytes", 0, "bytes of plain text to reach; 0 for no such bound")
	flag.Int64Var(&p.steps, "steps", 0, "steps to reach; 0 for no such bound")
	flag.Int64Var(&p.replaces, "replaces", 0, "replaces to reach; 0 for no such bound")
	flag.IntVar(&p.context, "context", 200, "messages on the surface at which all are replaced; 0 for never")
	flag.IntVar(&p.turn, "turn", 4, "steps of a turn")
	flag.IntVar(&p.chunks, "chunks", 100, "deltas of a block")
	flag.Uint64Var(&p.seed, "seed", 1, "seed of the random text")
	form := flag.String("form", "plain", "plain, packed, zstd or sqlite")
	out := flag.String("o", "", "file to write, instead of standard output; needed for sqlite")
	flag.Parse()
	if err := run(&p, *form, *out); err != nil {
		fmt.Fprintln(os.Stderr, "biglog:", err)
		os.Exit(2)
	}
}

func run(p *plan, form, out string) error {
	if p.bytes <= 0 && p.steps <= 0 && p.replaces <= 0 {
		return errors.New("one of -bytes, -steps and -replaces is needed")
	}
	if p.replaces > 0 && p.context <= 0 {
		return errors.New("-replaces needs a -context")
	}
	if p.turn < 1 || p.chunks < 1 {
		return errors.New("-turn and -chunks must be 1 at least")
	}
	forms := map[string]logfmt.Form{"plain": logfmt.FormPlain, "packed": logfmt.FormPacked, "zstd": logfmt.FormZstd}
	if form == "sqlite" {
		if out == "" {
			return errors.New("-form sqlite needs -o")
		}
		db, err := logfmt.CreateDatabase(out)
		if err != nil {
			return err
		}
		if err := write(p, database{db}); err != nil {
			return errors.Join(err, db.Abort())
		}
		return db.Close()
	}
	f, ok := forms[form]
	if !ok {
		return fmt.Errorf("-form %q is none of plain, packed, zstd, sqlite", form)
	}
	var dst io.WriteCloser = os.Stdout
	if out != "" {
		file, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err != nil {
			return err
		}
		dst = file
	}
	buf := bufio.NewWriterSize(dst, 1<<20)
	w := logfmt.NewWriter(buf, f)
	return errors.Join(write(p, lines{w}), w.Close(), buf.Flush(), dst.Close())
}

// A sink takes the log.
type sink interface {
	begin(header []byte) error
	add(seq int64, typ string, event []byte) error
	flush() error
}

type lines struct{ w *logfmt.Writer }

func (l lines) begin(h []byte) error { return l.w.Begin(h) }
func (l lines) flush() error         { return l.w.Flush() }
func (l lines) add(seq int64, typ string, event []byte) error {
	return l.w.Add(&logfmt.Event{Seq: seq, Type: typ, JSON: event})
}

type database struct{ w *logfmt.DatabaseWriter }

func (d database) flush() error { return d.w.Flush() }
func (d database) begin(h []byte) error {
	dir, depth := cwd, int64(0)
	return d.w.Begin(&logfmt.Header{ID: id, CreatedAt: epoch, Cwd: &dir, DelegationDepth: &depth, Raw: h})
}
func (d database) add(_ int64, _ string, event []byte) error { return d.w.AddJSON(event) }

const (
	id    = "big-log"
	cwd   = "/srv/demo"
	epoch = 1795980000000
)

type plan struct {
	bytes, steps, replaces int64
	context, turn, chunks  int
	seed                   uint64

	sink     sink
	rng      *rand.Rand
	err      error
	seq      int64
	time     int64
	text     int64 // bytes written
	buf      []byte
	surface  []int64
	calls    int64
	messages int64
	made     int64 // steps
	replaced int64
}

func write(p *plan, s sink) error {
	p.sink, p.time = s, epoch
	p.rng = rand.New(rand.NewPCG(p.seed, 0))
	header := fmt.Appendf(nil, `{"type":"session","version":0,"id":"%s","createdAt":%d,"cwd":"%s","delegationDepth":0}`, id, int64(epoch), cwd)
	p.text = int64(len(header)) + 1
	if err := s.begin(header); err != nil {
		return err
	}
	for turn := int64(1); p.err == nil && !p.done(); turn++ {
		p.oneTurn(turn)
		if p.err == nil {
			p.err = s.flush()
		}
	}
	return p.err
}

func (p *plan) done() bool {
	reached := func(n, bound int64) bool { return bound > 0 && n >= bound }
	return reached(p.text, p.bytes) || reached(p.made, p.steps) || reached(p.replaced, p.replaces)
}

// event writes an event and gives its seq. The data is JSON; rest are further
// members of the envelope, with the comma before them.
func (p *plan) event(typ, rest, format string, args ...any) int64 {
	seq := p.seq
	p.seq++
	p.time += p.rng.Int64N(12)
	p.buf = fmt.Appendf(p.buf[:0], `{"type":"%s","seq":%d,"time":%d,"data":`, typ, seq, p.time)
	p.buf = fmt.Appendf(p.buf, format, args...)
	p.buf = append(append(p.buf, rest...), '}')
	p.text += int64(len(p.buf)) + 1
	if p.err == nil {
		p.err = p.sink.add(seq, typ, p.buf)
	}
	return seq
}

const appended = `,"surfaceOp":"append"`

func (p *plan) oneTurn(turn int64) {
	words := p.words(30)
	user := fmt.Sprintf(`{"content":[{"type":"text","text":%s}],"source":{"kind":"user"},"role":"user","id":"%s"}`, quote(words), p.message())
	p.event("agent/inbox/spliced", "", `{"target":"next-turn","start":0,"inserted":[%s]}`, user)
	p.event("turn/start", "", `{"turn":%d}`, turn)
	p.event("agent/inbox/spliced", "", `{"target":"next-turn","start":0,"removedCount":1,"inserted":[]}`)
	for step := 1; step <= p.turn; step++ {
		p.event("step/start", "", `{"turn":%d,"step":%d}`, turn, step)
		if step == 1 {
			p.surface = append(p.surface, p.event("user/message", appended, "%s", user))
			if turn == 1 {
				p.header()
			}
		}
		p.answer(turn, step, step < p.turn)
		p.event("step/end", "", `{"turn":%d,"step":%d}`, turn, step)
		p.made++
	}
	p.event("turn/end", "", `{"turn":%d,"reason":{"kind":"completed"}}`, turn)
	if p.context > 0 && len(p.surface) >= p.context {
		p.replace()
	}
}

func (p *plan) header() {
	tool := `{"name":"read_chart","description":"Reads a chart.","parameters":{"type":"object","properties":{"chart":{"type":"string"}},"required":["chart"]}}`
	p.event("request/header", "", `{"header":{"config":{"provider":"demo","model":"demo-1"},"system":%s,"tools":[%s]},"reason":"initial"}`, quote(p.words(300)), tool)
	p.event("request/context", "", `{"provider":"demo","model":"demo-1"}`)
}

// answer is the response of a model, chunk by chunk and whole, and with a call
// also what the tool gave.
func (p *plan) answer(turn int64, step int, call bool) {
	first := p.seq
	chunk := func(format string, args ...any) {
		p.event("assistant/chunk", "", `{"turn":%d,"step":%d,"chunk":`+format+`}`, append([]any{turn, step}, args...)...)
	}
	blocks := ""
	for i, kind := range []string{"reasoning", "text"} {
		chunk(`{"type":"block-start","index":%d,"blockType":"%s"}`, i, kind)
		whole := ""
		for range p.chunks {
			delta := p.words(1) + " "
			whole += delta
			chunk(`{"type":"%s-delta","index":%d,"text":%s}`, kind, i, quote(delta))
		}
		block := fmt.Sprintf(`{"type":"%s","text":%s}`, kind, quote(whole))
		chunk(`{"type":"block-end","index":%d,"block":%s}`, i, block)
		blocks += "," + block
	}
	finish, callID, arguments := "stop", "", ""
	if call {
		finish = "tool-calls"
		p.calls++
		callID = fmt.Sprintf("call_%08d", p.calls)
		chunk(`{"type":"block-start","index":2,"blockType":"tool-call"}`)
		for i, part := range []string{`{"chart":"`, p.words(2), p.words(2), `"}`} {
			arguments += part
			name := ""
			if i == 0 {
				name = `"name":"read_chart",`
			}
			chunk(`{"type":"tool-call-delta","index":2,"id":"%s",%s"argumentsDelta":%s}`, callID, name, quote(part))
		}
		block := fmt.Sprintf(`{"type":"tool-call","id":"%s","name":"read_chart","arguments":%s}`, callID, quote(arguments))
		chunk(`{"type":"block-end","index":2,"block":%s}`, block)
		blocks += "," + block
	}
	chunk(`{"type":"usage","usage":{"inputTokens":1000,"outputTokens":200}}`)
	chunk(`{"type":"finish","reason":{"kind":"%s"}}`, finish)
	sources := make([]int64, 0, p.seq-first)
	for s := first; s < p.seq; s++ {
		sources = append(sources, s)
	}
	p.surface = append(p.surface, p.event("assistant/message", cite(sources)+appended,
		`{"turn":%d,"step":%d,"message":{"role":"assistant","content":[%s],"source":{"kind":"model","provider":"demo","model":"demo-1"},"id":"%s"},"usage":{"inputTokens":1000,"outputTokens":200}}`,
		turn, step, blocks[1:], p.message()))
	if !call {
		return
	}
	asked := p.event("tool/call", "", `{"turn":%d,"step":%d,"callId":"%s","name":"read_chart","arguments":%s}`, turn, step, callID, quote(arguments))
	p.surface = append(p.surface, p.event("tool/result", cite([]int64{asked})+appended,
		`{"turn":%d,"step":%d,"message":{"source":{"kind":"tool","callId":"%s"},"content":[{"type":"tool-result","toolCallId":"%s","content":[{"type":"text","text":%s}],"isError":false}],"role":"user","id":"%s"}}`,
		turn, step, callID, callID, quote(p.words(60)), p.message()))
}

// replace puts one message in the place of the whole surface.
func (p *plan) replace() {
	first, last := p.surface[0], p.surface[len(p.surface)-1]
	op := fmt.Sprintf(`,"surfaceOp":{"op":"replace","start":%d,"end":%d}`, first, last)
	seq := p.event("user/message", cite(p.surface)+op,
		`{"content":[{"type":"text","text":%s}],"source":{"kind":"plugin","plugin":"demo-notes"},"role":"user","id":"%s"}`, quote(p.words(100)), p.message())
	p.surface = append(p.surface[:0], seq)
	p.replaced++
}

func cite(seqs []int64) string {
	b := []byte(`,"sourceEventSeqs":[`)
	for i, s := range seqs {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, s, 10)
	}
	return string(append(b, ']'))
}

// message is the id of the next message.
func (p *plan) message() string {
	p.messages++
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", p.messages&math.MaxUint32, p.messages)
}

var vocabulary = []string{
	"tide", "harbour", "quay", "chart", "lantern", "rope", "gull", "salt", "keel", "north", "grüße", "時計",
	"\U0001F30A", "line\n", "\"said\"", "two", "slow", "anchor", "buoy", "a", "of", "the", "and", "mast",
}

func (p *plan) words(n int) string {
	s := ""
	for i := range n {
		if i > 0 {
			s += " "
		}
		s += vocabulary[p.rng.IntN(len(vocabulary))]
	}
	return s
}

func quote(s string) string { return string(jsjson.AppendQuote(nil, s)) }
