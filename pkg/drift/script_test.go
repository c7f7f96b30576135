package drift

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/load"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// A script writes a log of the newest dialect, event by event.
type script struct {
	out        bytes.Buffer
	seq        int64
	time       int64
	turn, step int
	messages   int
}

const (
	plainHeader = `{"config":{"provider":"mocha","model":"mocha-1"},"system":"Keep the log.","tools":[{"name":"bell"}]}`
	otherHeader = `{"config":{"provider":"mocha","model":"mocha-1","maxTokens":9},"adapterDefaults":{"maxTokens":true},"system":"Keep the log.\nBe brief.","tools":[{"name":"bell"},{"name":"lamp"}]}`
)

func newScript(id, more string) *script { return newScriptAt(1795980000000, id, more) }

func newScriptAt(time int64, id, more string) *script {
	s := &script{time: time}
	fmt.Fprintf(&s.out, `{"type":"session","version":0,"id":%q,"createdAt":%d,"cwd":"/srv/harbour"%s,"delegationDepth":0}`+"\n", id, s.time, more)
	return s
}

// ev writes one event; more is what stands behind its data.
func (s *script) ev(typ, data, more string) int64 {
	s.time += 7
	fmt.Fprintf(&s.out, `{"type":%q,"seq":%d,"time":%d,"data":%s%s}`+"\n", typ, s.seq, s.time, data, more)
	s.seq++
	return s.seq - 1
}

const onSurface = `,"surfaceOp":"append"`

func (s *script) id() string {
	s.messages++
	return fmt.Sprintf("m%d", s.messages)
}

// user writes a message of that source.
func (s *script) user(text, source, more string) int64 {
	return s.ev("user/message", fmt.Sprintf(`{"content":[{"type":"text","text":%q}],"source":%s,"role":"user","id":%q}`, text, source, s.id()), more)
}

const byUser = `{"kind":"user"}`

// open begins a turn and its first step with a prompt.
func (s *script) open(prompt string) int64 {
	s.turn++
	s.step = 0
	s.ev("turn/start", fmt.Sprintf(`{"turn":%d}`, s.turn), "")
	s.next()
	return s.user(prompt, byUser, onSurface)
}

func (s *script) next() {
	s.step++
	s.ev("step/start", fmt.Sprintf(`{"turn":%d,"step":%d}`, s.turn, s.step), "")
}

func (s *script) header(reason, header string) int64 {
	return s.ev("request/header", fmt.Sprintf(`{"header":%s,"reason":%q}`, header, reason), "")
}

func (s *script) chunk(chunk string) int64 {
	return s.ev("assistant/chunk", fmt.Sprintf(`{"turn":%d,"step":%d,"chunk":%s}`, s.turn, s.step, chunk), "")
}

// say is an attempt that is answered with text, with the provider's usage unless
// it is empty.
func (s *script) say(text, usage string) int64 {
	return s.answer(fmt.Sprintf(`{"type":"text","text":%q}`, text), usage, "stop", "")
}

func (s *script) answer(block, usage, finish, more string) int64 {
	from := s.chunk(`{"type":"block-end","index":0,"block":` + block + `}`)
	if usage != "" {
		s.chunk(`{"type":"usage","usage":` + usage + `}`)
		more += `,"usage":` + usage
	}
	to := s.chunk(fmt.Sprintf(`{"type":"finish","reason":{"kind":%q}}`, finish))
	var sources []string
	for i := from; i <= to; i++ {
		sources = append(sources, fmt.Sprint(i))
	}
	return s.ev("assistant/message", fmt.Sprintf(`{"turn":%d,"step":%d,"message":{"role":"assistant","content":[%s],"source":{"kind":"model","provider":"mocha","model":"mocha-1"},"id":%q}%s}`,
		s.turn, s.step, block, s.id(), more), fmt.Sprintf(`,"sourceEventSeqs":[%s]`, strings.Join(sources, ","))+onSurface)
}

// call is an attempt that calls a tool, and its result.
func (s *script) call(id, result string) int64 {
	s.answer(fmt.Sprintf(`{"type":"tool-call","id":%q,"name":"bell","arguments":"{}"}`, id), "", "tool-calls", "")
	c := s.ev("tool/call", fmt.Sprintf(`{"turn":%d,"step":%d,"callId":%q,"name":"bell","arguments":"{}"}`, s.turn, s.step, id), "")
	return s.result(id, result, "", fmt.Sprintf(`,"sourceEventSeqs":[%d]`, c)+onSurface, s.id())
}

func (s *script) result(call, text, fault, more, id string) int64 {
	failed := "false"
	if fault != "" {
		failed = "true"
		fault = fmt.Sprintf(`,"error":{"name":"E","code":%q}`, fault)
	}
	return s.ev("tool/result", fmt.Sprintf(`{"turn":%d,"step":%d,"message":{"source":{"kind":"tool","callId":%q},"content":[{"type":"tool-result","toolCallId":%q,"content":[{"type":"text","text":%q}],"isError":%s}],"role":"user","id":%q}%s}`,
		s.turn, s.step, call, call, text, failed, id, fault), more)
}

// compact replaces two neighbours by a summary.
func (s *script) compact(from, to int64) int64 {
	start := s.ev("compaction/start", `{"compactionId":"k","turn":null}`, "")
	sum := s.ev("compaction/summary", fmt.Sprintf(`{"compactionId":"k","summary":[],"shadowedRange":{"start":%d,"end":%d},"shadowedSeqs":[%d,%d],"shadowedTokenCount":1}`, from, to, from, to), "")
	seq := s.user("sum", `{"kind":"plugin","plugin":"compact","compactionId":"k"}`,
		fmt.Sprintf(`,"sourceEventSeqs":[%d,%d,%d,%d],"surfaceOp":{"op":"replace","start":%d,"end":%d}`, start, sum, from, to, from, to))
	s.ev("compaction/end", `{"compactionId":"k","turn":null}`, "")
	return seq
}

func (s *script) endStep() {
	s.ev("step/end", fmt.Sprintf(`{"turn":%d,"step":%d}`, s.turn, s.step), "")
}

// close ends the step and the turn.
func (s *script) close() {
	s.endStep()
	s.ev("turn/end", fmt.Sprintf(`{"turn":%d,"reason":{"kind":"completed"}}`, s.turn), "")
}

func (s *script) log(tb testing.TB) *logfmt.Log {
	tb.Helper()
	log, err := logfmt.NewReader(bytes.NewReader(s.out.Bytes()), "script", logfmt.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return log
}

// sources are the requests of the script that were sent.
func (s *script) sources(tb testing.TB) (out []*Source) {
	tb.Helper()
	log := s.log(tb)
	t := NewTracker(log.Header, fold.Options{})
	for r, err := range t.Walk(log) {
		if err != nil {
			tb.Fatalf("%v\n%s", err, s.out.Bytes())
		}
		if r.Candidate != "" {
			continue
		}
		src, err := NewSource(r, t.History)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, src)
	}
	return out
}

// briefCause is a cause in a few words.
func briefCause(c *Cause) string {
	if c == nil {
		return "none"
	}
	s := string(c.Kind)
	if c.Reason != "" {
		s += "(" + c.Reason + ")"
	}
	if c.Event != nil {
		s += fmt.Sprintf("@%d", c.Event.Seq)
	}
	if c.Log != "" {
		s += c.Log
	}
	if c.Replaced != nil {
		s += fmt.Sprintf("%d", c.Replaced.ShadowedSeqs)
	}
	for _, e := range c.With {
		s += fmt.Sprintf("+%d", e.Seq)
	}
	if c.Note != "" {
		s += " " + c.Note
	}
	if c.Reverse {
		s += " back"
	}
	return s
}

// briefCauses lists the differences with their causes.
func briefCauses(d *Diff) string {
	var w []string
	add := func(what string, c *Cause) { w = append(w, what+": "+briefCause(c)) }
	for _, c := range d.Config {
		add(c.Name, c.Cause)
	}
	for _, c := range d.Defaults {
		add("default "+c.Name, c.Cause)
	}
	if d.KeyOrder {
		add("order", d.Order)
	}
	if d.System != nil {
		add("system", d.System.Cause)
	}
	for _, x := range d.Tools.Removed {
		add("-"+x.Name, x.Cause)
	}
	for _, x := range d.Tools.Added {
		add("+"+x.Name, x.Cause)
	}
	for _, x := range d.Tools.Changed {
		add("~"+x.Name, x.Cause)
	}
	for _, x := range d.Tools.Moved {
		add(">"+x.Name, x.Cause)
	}
	for _, c := range d.Messages.Changes {
		s := fmt.Sprintf("%s %d>%d", c.Kind, c.A, c.B)
		if c.Range != nil {
			s += fmt.Sprint(c.Range)
		}
		add(s, c.Cause)
	}
	if d.Session != nil {
		add("session", d.Session.Cause)
	}
	return strings.Join(w, "; ")
}

func TestCauses(t *testing.T) {
	tests := []struct {
		name       string
		write      func(s *script)
		a, b       int // requests, by number
		want, back string
	}{
		{"appended", func(s *script) {
			s.open("one")
			s.header("initial", plainHeader)
			s.say("1", "")
			s.user("note", `{"kind":"plugin","plugin":"tide"}`, onSurface)
			s.user("now", `{"kind":"plugin","plugin":"@deepseek-ai/dsh-system-prompt"}`, onSurface)
			s.close()
			s.open("two")
			s.say("2", "")
		}, 0, 1,
			"appended -1>1: response@6; appended -1>2: context(plugin tide)@7; appended -1>3: runtime-context@8; appended -1>4: prompt@13",
			"dropped 1>-1: response@6 back; dropped 2>-1: context(plugin tide)@7 back; dropped 3>-1: runtime-context@8 back; dropped 4>-1: prompt@13 back"},
		{"header", func(s *script) {
			s.open("one")
			s.header("initial", plainHeader)
			s.say("1", "")
			s.next()
			s.header("change", otherHeader)
			s.say("2", "")
			s.next()
			s.header("change", strings.Replace(otherHeader, "brief", "swift", 1))
			s.say("3", "")
		}, 0, 2,
			"maxTokens: header(change)@8; system: header(change)@13+8; +lamp: header(change)@8; appended -1>1: response@6; appended -1>2: response@11",
			"maxTokens: header(change)@8 back; system: header(change)@13+8 back; -lamp: header(change)@8 back; dropped 1>-1: response@6 back; dropped 2>-1: response@11 back"},
		{"default only", func(s *script) {
			s.open("one")
			s.header("initial", otherHeader)
			s.say("1", "")
			s.next()
			s.header("change", strings.Replace(otherHeader, `"adapterDefaults":{"maxTokens":true},`, "", 1))
			s.say("2", "")
		}, 0, 1,
			"default maxTokens: header(change)@8; appended -1>1: response@6",
			"default maxTokens: header(change)@8 back; dropped 1>-1: response@6 back"},
		{"resume with drift", func(s *script) {
			s.open("one")
			s.header("initial", plainHeader)
			s.say("1", "")
			s.close()
			s.ev("session/end-seed", "{}", "")
			s.open("two")
			s.header("resume", otherHeader)
			s.say("2", "")
		}, 0, 1,
			"maxTokens: header(resume)@13+9; system: header(resume)@13+9; +lamp: header(resume)@13+9; appended -1>1: response@6; appended -1>2: prompt@12",
			"maxTokens: header(resume)@13+9 back; system: header(resume)@13+9 back; -lamp: header(resume)@13+9 back; dropped 1>-1: response@6 back; dropped 2>-1: prompt@12 back"},
		{"replaced twice", func(s *script) {
			one := s.open("one")
			s.header("initial", plainHeader)
			a := s.say("1", "")
			s.close()
			two := s.open("two")
			s.say("2", "")
			s.close()
			sum := s.compact(one, a)
			s.user("all", `{"kind":"plugin","plugin":"tidy"}`, fmt.Sprintf(`,"sourceEventSeqs":[%d,%d],"surfaceOp":{"op":"replace","start":%d,"end":%d}`, sum, two, sum, two))
			s.open("three")
			s.say("3", "")
		}, 0, 2,
			"replaced 0>0[0]: replace(plugin tidy)@21[19 11]; appended -1>1: response@14; appended -1>2: prompt@24",
			"replaced 0>0[0]: replace(plugin tidy)@21[19 11] back; dropped 1>-1: response@14 back; dropped 2>-1: prompt@24 back"},
		{"compaction", func(s *script) {
			one := s.open("one")
			s.header("initial", plainHeader)
			a := s.say("1", "")
			s.next()
			s.say("2", "")
			s.compact(one, a)
			s.next()
			s.say("3", "")
		}, 1, 2,
			"replaced 0>0[0 1]: compaction@13[2 6]+11+12+14; appended -1>1: response@10",
			"replaced 0>0[0 1]: compaction@13[2 6]+11+12+14 back; dropped 1>-1: response@10 back"},
		{"prune, and what follows", func(s *script) {
			s.open("one")
			s.header("initial", plainHeader)
			r := s.call("c1", "long long") // result at 7
			s.next()
			s.say("2", "")
			s.ev("compaction/prune", fmt.Sprintf(`{"shadowedRange":{"start":%d,"end":%d},"shadowedSeqs":[%d],"shadowedTokenCount":1}`, r, r, r), "")
			s.result("c1", "long", "", fmt.Sprintf(`,"sourceEventSeqs":[%d],"surfaceOp":{"op":"replace","start":%d,"end":%d}`, r, r, r), "m3")
			s.next()
			s.say("3", "")
		}, 1, 2,
			"replaced 2>2[2]: prune@14[8]+13; appended -1>3: response@12",
			"replaced 2>2[2]: prune@14[8]+13 back; dropped 3>-1: response@12 back"},
		{"cancelled answer and crash repair", func(s *script) {
			s.open("one")
			s.header("initial", plainHeader)
			c := s.chunk(`{"type":"block-end","index":0,"block":{"type":"text","text":"half"}}`)
			s.ev("assistant/message", `{"turn":1,"step":1,"message":{"role":"assistant","content":[{"type":"text","text":"half"}],"source":{"kind":"model","provider":"mocha","model":"mocha-1"},"id":"half"},"interrupted":true}`,
				fmt.Sprintf(`,"sourceEventSeqs":[%d]`, c)+onSurface)
			s.result("c9", "lost", "TOOL_NOT_STARTED", onSurface, "interrupted-tool-result-c9-6")
			s.endStep()
			s.ev("turn/end", `{"turn":1,"reason":{"kind":"interrupted"}}`, "")
			s.ev("session/end-seed", "{}", "")
			s.open("two")
			s.header("resume", plainHeader)
			s.say("2", "")
		}, 0, 1,
			"appended -1>1: cancelled@5; appended -1>2: repair(TOOL_NOT_STARTED)@6; appended -1>3: prompt@12",
			"dropped 1>-1: cancelled@5 back; dropped 2>-1: repair(TOOL_NOT_STARTED)@6 back; dropped 3>-1: prompt@12 back"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScript("causes", "")
			tt.write(s)
			src := s.sources(t)
			if len(src) <= tt.b {
				t.Fatalf("%d requests in\n%s", len(src), s.out.Bytes())
			}
			if d := cmp.Diff(tt.want, briefCauses(Explain(src[tt.a], src[tt.b]))); d != "" {
				t.Errorf("(-want +got):\n%s\n%s", d, s.out.Bytes())
			}
			if d := cmp.Diff(tt.back, briefCauses(Explain(src[tt.b], src[tt.a]))); d != "" {
				t.Errorf("backward (-want +got):\n%s", d)
			}
			// Read as two logs, the same log tells the same.
			if d := cmp.Diff(tt.want, briefCauses(Explain(s.sources(t)[tt.a], s.sources(t)[tt.b]))); d != "" {
				t.Errorf("as two logs (-want +got):\n%s", d)
			}
		})
	}
}

// TestUnexplained changes what was rebuilt, so that no event accounts for it.
func TestUnexplained(t *testing.T) {
	write := func() *script {
		s := newScript("unexplained", "")
		s.open("one")
		s.header("initial", plainHeader)
		s.call("c1", "rang")
		s.next()
		s.say("2", "")
		return s
	}
	const known = "appended -1>1: response@6; appended -1>2: tool-result@8"
	tests := []struct {
		name   string
		change func(b *Body)
		want   string
	}{
		{"nothing", func(b *Body) {}, known},
		{"config", func(b *Body) { b.Config[1].Value = []byte(`"x"`) }, "model: unexplained; " + known},
		{"config appears", func(b *Body) { b.Config = append(b.Config, Member{"stop", []byte("[]")}) }, "stop: unexplained; " + known},
		{"system", func(b *Body) { b.System = []byte(`"x"`) }, "system: unexplained; " + known},
		{"tools", func(b *Body) { b.Tools = nil }, "-bell: unexplained; " + known},
		{"session", func(b *Body) { b.SessionID = []byte(`"x"`) }, known + "; session: unexplained"},
		{"message gone", func(b *Body) { b.Messages, b.Nodes = b.Messages[1:], b.Nodes[1:] },
			"dropped 0>-1: unexplained; appended -1>0: response@6; appended -1>1: tool-result@8"},
		{"message edited", func(b *Body) { b.Messages[0] = []byte(`{"role":"user","content":[]}`) }, "edited 0>0: unexplained; " + known},
		{"messages reordered", func(b *Body) {
			b.Messages[0], b.Messages[1] = b.Messages[1], b.Messages[0]
			b.Nodes[0], b.Nodes[1] = b.Nodes[1], b.Nodes[0]
		}, "inserted -1>0: unexplained; appended -1>2: tool-result@8"},
		{"message out of nowhere", func(b *Body) {
			b.Messages, b.Nodes = append(b.Messages, []byte(`{"id":"x"}`)), append(b.Nodes, &fold.Node{Seq: 1})
		}, known + "; appended -1>3: unexplained"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			src := write().sources(t)
			tt.change(src[1].Body)
			d := Explain(src[0], src[1])
			if diff := cmp.Diff(tt.want, briefCauses(d)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got, want := d.Unexplained(), strings.Count(tt.want, "unexplained"); got != want {
				t.Errorf("%d unexplained, want %d", got, want)
			}
		})
	}
}

// imported writes a log of July that a build of August went on with: it sees the
// old messages in another form.
func imported() *script {
	s := newScript("imported", "")
	s.turn, s.step = 1, 1
	s.ev("turn/start", `{"turn":1,"trigger":{"kind":"message","source":{"kind":"user"}}}`, "")
	s.ev("user/message", `{"content":[{"type":"text","text":"one"}],"source":{"kind":"user"}}`, onSurface)
	s.ev("step/start", `{"turn":1,"step":1}`, "")
	s.header("initial", plainHeader)
	s.chunk(`{"type":"finish","reason":{"kind":"stop"}}`)
	s.ev("assistant/message", `{"turn":1,"step":1,"content":[{"type":"text","text":"1"}],"provenance":{"provider":"mocha","model":"mocha-1"}}`, `,"sourceEventSeqs":[4]`+onSurface)
	s.close()
	s.ev("session/end-seed", "{}", "")
	s.open("two")
	s.header("resume", plainHeader)
	s.say("2", "")
	s.close()
	return s
}

func TestResumes(t *testing.T) {
	tests := []struct {
		name  string
		write func(s *script) *script
		want  []string
	}{
		{"none", func(s *script) *script {
			s.open("one")
			s.header("initial", plainHeader)
			s.say("1", "")
			s.close()
			return s
		}, nil},
		{"clean, then drift, then nothing", func(s *script) *script {
			for i, h := range []string{plainHeader, plainHeader, otherHeader} {
				s.open("go")
				s.header(map[bool]string{true: "initial", false: "resume"}[i == 0], h)
				s.say("1", "")
				s.close()
				s.ev("session/end-seed", "{}", "")
			}
			return s
		}, []string{"clean seed 9 header 13 1.1>2.1", "drift seed 19 header 23 2.1>3.1", "silent seed 29 3.1>-"}},
		{"opened twice before it went on", func(s *script) *script {
			s.open("one")
			s.header("initial", plainHeader)
			s.say("1", "")
			s.close()
			s.ev("session/end-seed", "{}", "")
			s.open("two")
			s.header("resume", plainHeader)
			s.endStep()
			s.ev("turn/end", `{"turn":2,"reason":{"kind":"interrupted"}}`, "")
			s.ev("session/end-seed", "{}", "")
			s.open("three")
			s.header("resume", plainHeader)
			s.say("3", "")
			return s
		}, []string{"silent seed 9 header 13 1.1>-", "clean seed 16 header 20 repairs [14 15] 1.1>3.1"}},
		{"another build", func(*script) *script { return imported() }, []string{"messages seed 8 header 12 1.1>2.1"}},
		{"a fresh child is no resume", func(s *script) *script {
			s.ev("subagent/descriptor", `{"version":2,"mode":"one-shot","provider":"p"}`, "")
			s.ev("session/end-seed", "{}", "")
			s.open("one")
			s.header("initial", plainHeader)
			s.say("1", "")
			return s
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.write(newScript("resumes", ""))
			log := s.log(t)
			tr := NewTracker(log.Header, fold.Options{})
			var got []string
			for r, err := range tr.Resumes(log) {
				if err != nil {
					t.Fatal(err)
				}
				w := string(r.Verdict)
				if e := r.Point.EndSeed; e != nil {
					w += fmt.Sprintf(" seed %d", e.Seq)
				}
				if h := r.Point.Header; h != nil {
					w += fmt.Sprintf(" header %d", h.Seq)
				}
				if len(r.Point.Repairs) > 0 {
					var seqs []int64
					for _, e := range r.Point.Repairs {
						seqs = append(seqs, e.Seq)
					}
					w += fmt.Sprintf(" repairs %d", seqs)
				}
				name := func(s *Source) string {
					if s == nil {
						return "-"
					}
					return s.ref().String()
				}
				got = append(got, w+" "+name(r.A)+">"+name(r.B))
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s\n%s", d, s.out.Bytes())
			}
		})
	}
}

func TestProcess(t *testing.T) {
	src := imported().sources(t)
	want := "edited 0>0: process@8; appended -1>1: response@5; appended -1>2: prompt@11"
	if d := cmp.Diff(want, briefCauses(Explain(src[0], src[1]))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestCompareFork(t *testing.T) {
	parent := func() *script {
		s := newScript("parent", "")
		s.open("one")
		s.header("initial", plainHeader)
		s.say("1", "")
		s.close()
		return s
	}
	// fork copies the events of a log as the newest build holds them.
	fork := func(p *script, change func(i int, line []byte) []byte) *script {
		log := p.log(t)
		l := load.New(log.Header, load.Options{})
		c := newScript("child", fmt.Sprintf(`,"parentSession":%q,"seedLength":%d`, log.Header.ID, p.seq))
		i := 0
		for e, d := range log.Events() {
			if d != nil {
				t.Fatal(d)
			}
			line := l.Add(e).JSON
			if change != nil {
				line = change(i, line)
			}
			if line != nil {
				c.out.Write(line)
				c.out.WriteByte('\n')
			}
			i++
		}
		c.seq, c.time, c.turn, c.messages = p.seq, p.time, p.turn, 100
		return c
	}
	goOn := func(c *script, header string) *script {
		c.ev("session/end-seed", "{}", "")
		c.open("own")
		c.header("resume", header)
		c.say("done", "")
		c.close()
		return c
	}
	brief := func(f *Fork) string {
		w := fmt.Sprintf("related %t, %d of %d, upgraded %d, order %d, own %d", f.Related, f.Compared, f.Seed, f.Upgraded, f.KeyOrder, len(f.Own))
		if d := f.First; d != nil {
			w += fmt.Sprintf(", first %d %s child %t parent %t", d.Seq, d.Path, d.Child != nil, d.Parent != nil)
		}
		if f.Diff != nil {
			w += ", " + f.A.ref().String() + ">" + f.B.ref().String() + ": " + briefCauses(f.Diff)
		}
		return w
	}
	const own = "appended -1>1: response@6; appended -1>2: prompt@12; session: fork@9"
	tests := []struct {
		name          string
		child, parent *script
		want          string
	}{
		{"identical", goOn(fork(parent(), nil), plainHeader), parent(), "related true, 9 of 9, upgraded 0, order 0, own 5, 1.1>2.1: " + own},
		{"other header", goOn(fork(parent(), nil), strings.Replace(plainHeader, "Keep", "Read", 1)), parent(),
			"related true, 9 of 9, upgraded 0, order 0, own 5, 1.1>2.1: system: header(resume)@13+9; " + own},
		{"one event changed", goOn(fork(parent(), func(i int, line []byte) []byte {
			return bytes.Replace(line, []byte(`"text":"one"`), []byte(`"text":"won"`), 1)
		}), plainHeader), parent(),
			"related true, 2 of 9, upgraded 0, order 0, own 5, first 2 data.content[0].text child true parent true, 1.1>2.1: " + own},
		{"keys in another order", goOn(fork(parent(), func(i int, line []byte) []byte {
			return bytes.Replace(line, []byte(`"turn":1,"step":1}`), []byte(`"step":1,"turn":1}`), 1)
		}), plainHeader), parent(), "related true, 9 of 9, upgraded 0, order 2, own 5, 1.1>2.1: " + own},
		{"parent is shorter", goOn(fork(parent(), nil), plainHeader), newScript("parent", ""),
			"related true, 0 of 9, upgraded 0, order 0, own 5, first 0  child true parent false, 1.1>2.1: " + own},
		{"child is shorter", fork(parent(), func(i int, line []byte) []byte {
			if i > 3 {
				return nil
			}
			return line
		}), parent(), "related true, 4 of 9, upgraded 0, order 0, own 0, first 4  child false parent false"},
		{"another parent", goOn(fork(parent(), nil), plainHeader), goOn(newScript("stranger", ""), plainHeader),
			"related false, 0 of 9, upgraded 0, order 0, own 5, first 0 type child true parent true, 1.1>2.1: " + own},
		{"no prefix", func() *script {
			return goOn(newScriptAt(1795980001000, "child", `,"parentSession":"parent"`), otherHeader)
		}(), parent(), "related true, 0 of 0, upgraded 0, order 0, own 5, 1.1>1.1: maxTokens: header(resume)@4b+0; system: header(resume)@4b+0; " +
			"+lamp: header(resume)@4b+0; edited 0>0: prompt@3b; session: fork"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := CompareFork(tt.child.log(t), tt.parent.log(t), fold.Options{}, func(err error) { t.Error(err) }, func(err error) { t.Error(err) })
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, brief(f)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
	// A child of a log of July holds its events in the form of August.
	old := newScript("imported", "")
	old.out.Reset()
	text := imported().out.Bytes()
	cut := bytes.Index(text, []byte(`{"type":"session/end-seed"`))
	old.out.Write(text[:cut])
	old.seq, old.turn = 8, 1
	f, err := CompareFork(goOn(fork(old, nil), plainHeader).log(t), old.log(t), fold.Options{}, func(err error) { t.Error(err) }, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	if got, want := brief(f), "related true, 8 of 8, upgraded 3, order 0, own 5, 1.1>2.1: appended -1>1: response@5; appended -1>2: prompt@11; session: fork@8"; got != want {
		t.Errorf("upgraded: got %s\nwant %s", got, want)
	}
}
