package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/internal/ui"
	"github.com/dsh-audit/dsh-audit/pkg/drift"
)

// StepCounts is the summary of a log's steps.
type StepCounts struct {
	Requests    int `json:"requests"`
	First       int `json:"first"`
	Extends     int `json:"extends"`
	Same        int `json:"same"`
	Breaks      int `json:"breaks"`
	Maybe       int `json:"maybe"`
	Unexplained int `json:"unexplained"`
}

// Add counts a step.
func (n *StepCounts) Add(s *drift.Step) {
	switch s.Verdict {
	case drift.First:
		n.First++
	case drift.Extended:
		n.Extends++
	case drift.Repeated:
		n.Same++
	case drift.Broken:
		n.Breaks++
	default:
		n.Maybe++
		return // not counted as a request
	}
	n.Requests++
	if s.Diff != nil {
		n.Unexplained += s.Diff.Unexplained()
	}
}

type jsonPoint struct {
	Seq     int64       `json:"seq"`
	Kind    string      `json:"kind"` // resume, fork
	EndSeed *jsonEvent  `json:"endSeed,omitempty"`
	Header  *jsonEvent  `json:"header,omitempty"`
	Reason  Text        `json:"reason,omitempty"`
	Repairs []jsonEvent `json:"repairs,omitempty"`
}

func pointJSON(p *drift.Point) *jsonPoint {
	if p == nil {
		return nil
	}
	out := &jsonPoint{Seq: p.Seq, Kind: pointKind(p), Repairs: events(p.Repairs)}
	if e := p.EndSeed; e != nil {
		out.EndSeed = &jsonEvent{e.Seq, jsonTime(e.Time), Text(e.Type)}
	}
	if h := p.Header; h != nil {
		out.Header = &jsonEvent{h.Seq, jsonTime(h.Time), Text(h.Type)}
		out.Reason = Text(h.Reason)
	}
	return out
}

func pointKind(p *drift.Point) string {
	if p.Fork {
		return "fork"
	}
	return "resume"
}

type jsonStep struct {
	Verdict string `json:"verdict"`
	*jsonPair
	Why     *jsonCause `json:"why,omitempty"`
	Process *jsonPoint `json:"process,omitempty"`
}

type jsonFirst struct {
	Verdict string `json:"verdict"`
	A       *Side  `json:"a"`
	B       *Side  `json:"b"`
}

// A StepsWriter writes the steps of a log as they come.
type StepsWriter struct {
	out    io.Writer
	o      DiffOptions
	json   bool
	counts StepCounts
	any    bool
	err    error
}

// NewStepsWriter starts with the log's name and session.
func NewStepsWriter(out io.Writer, asJSON bool, o DiffOptions, log, session string) *StepsWriter {
	w := &StepsWriter{out: out, o: o, json: asJSON}
	if asJSON {
		head, err := Marshal(&struct {
			Schema  string `json:"schema"`
			Mode    string `json:"mode"`
			Log     Text   `json:"log"`
			Session Text   `json:"session"`
		}{DiffSchema, "steps", Text(log), Text(session)})
		if err != nil {
			w.err = err
			return w
		}
		w.err = writeString(out, string(head[:len(head)-1]), `,"steps":[`)
	}
	return w
}

// Step writes one step. The sides are named by a and b; a is nil for the first.
func (w *StepsWriter) Step(a, b *Side, s *drift.Step) error {
	if w.err != nil {
		return w.err
	}
	w.counts.Add(s)
	if !w.json {
		d := &differ{DiffOptions: w.o}
		d.step(b, s)
		w.err = writeString(w.out, d.out.String())
		return w.err
	}
	var v any = &jsonFirst{Verdict: string(s.Verdict), B: b}
	if s.Diff != nil {
		v = &jsonStep{string(s.Verdict), pairJSON(a, b, s.Diff), causeJSON(s.Why), pointJSON(s.Point)}
	}
	line, err := Marshal(v)
	if err != nil {
		w.err = err
		return err
	}
	sep := "\n"
	if w.any {
		sep = ",\n"
	}
	w.any = true
	w.err = writeString(w.out, sep, string(line))
	return w.err
}

// Close writes the summary.
func (w *StepsWriter) Close() (StepCounts, error) {
	if w.err != nil {
		return w.counts, w.err
	}
	n := &w.counts
	if w.json {
		sum, err := Marshal(n)
		if err != nil {
			return *n, err
		}
		return *n, writeString(w.out, "\n],\"summary\":", string(sum), "}\n")
	}
	d := &differ{DiffOptions: w.o}
	text := fmt.Sprintf("%s: %d extend the one before, %d repeat it, %s", count(int64(n.Requests), "request"), n.Extends, n.Same, breaks(n.Breaks))
	if n.Maybe > 0 {
		text += fmt.Sprintf("; %d more may have been sent", n.Maybe)
	}
	d.p("%s", text)
	if n.Unexplained > 0 {
		d.p("%s", w.o.Palette.Bad(fmt.Sprintf("UNEXPLAINED: no event of the log accounts for %s", count(int64(n.Unexplained), "difference"))))
	}
	return *n, writeString(w.out, d.out.String())
}

func breaks(n int) string {
	if n == 1 {
		return "1 breaks"
	}
	return fmt.Sprintf("%d break", n)
}

// short names an event's part in a request: "answer seq 11".
func short(c *drift.Cause) string {
	if c == nil || c.Event == nil {
		return "?"
	}
	name := string(c.Kind)
	switch c.Kind {
	case drift.CauseResponse:
		name = "answer"
	case drift.CauseToolResult:
		name = "tool result"
	case drift.CauseCancelled:
		name = "cancelled answer"
	case drift.CauseRepair:
		name = "crash repair"
	case drift.CauseRuntime:
		name = "runtime context"
	case drift.CauseSystem:
		name = "system prompt"
	case drift.CauseContext:
		name = "context"
		if c.Reason != "" {
			name += " (" + ui.Escape(clip(c.Reason, 40)) + ")"
		}
	}
	return fmt.Sprintf("%s seq %d", name, c.Event.Seq)
}

// appended lists the messages that stand behind everything else.
func appended(m *drift.MessagesDiff, full bool) string {
	var parts []string
	n := 0
	for i := range m.Changes {
		c := &m.Changes[i]
		if c.Kind != drift.Appended {
			continue
		}
		if n++; n <= 8 || full {
			parts = append(parts, short(c.Cause))
		}
	}
	if n > len(parts) {
		parts = append(parts, fmt.Sprintf("... %d more", n-len(parts)))
	}
	return fmt.Sprintf("%s: %s", count(int64(n), "message"), strings.Join(parts, ", "))
}

func (w *differ) step(b *Side, s *drift.Step) {
	pal := w.Palette
	name := fmt.Sprintf("%-8s", b.ref())
	process := ""
	if p := s.Point; p != nil {
		var at string
		switch {
		case p.EndSeed != nil:
			at = eventName(*p.EndSeed)
		case p.Header != nil:
			at = eventName(p.Header.EventRef)
		case len(p.Repairs) > 0:
			at = eventName(p.Repairs[len(p.Repairs)-1])
		default: // builds before request headers left no other trace of a fork
			at = fmt.Sprintf("seq %d", p.Seq)
		}
		process = fmt.Sprintf(" [%s: %s]", pointKind(p), at)
	}
	line := func(verdict, text string) {
		pad := strings.Repeat(" ", max(1, 9-len(verdict)))
		switch s.Verdict {
		case drift.Broken:
			verdict = pal.Warn(verdict)
		case drift.Maybe:
			verdict = pal.Dim(verdict)
		default:
			verdict = pal.Good(verdict)
		}
		w.p("%s %s%s%s%s", name, verdict, pad, text, process)
	}
	d := s.Diff
	switch s.Verdict {
	case drift.First:
		line("first", fmt.Sprintf("%s, %s", plural.Count(b.Bytes, "byte"), count(int64(len(s.B.Messages)), "message")))
	case drift.Extended:
		if d.Messages.A == d.Messages.B {
			line("extends", fmt.Sprintf("no message; other bytes from %d on, in %s", d.At.Offset, where(d.At.Path)))
		} else {
			line("extends", "+ "+appended(&d.Messages, w.Full))
		}
	case drift.Repeated:
		text := "every byte is equal"
		if s.Why != nil {
			text += "; retry: " + eventName(*s.Why.Event)
			for _, e := range s.Why.With {
				text += ", " + eventName(e)
			}
		}
		line("same", text)
	case drift.Broken:
		line("BREAK", fmt.Sprintf("at byte %d, in %s; %s", d.At.Offset, where(d.At.Path), messageCounts(&d.Messages)))
	default:
		line("maybe", "may have been sent or not: "+ui.Escape(s.B.Candidate))
		return
	}
	if d == nil || w.Stat {
		return
	}
	inner := &differ{DiffOptions: w.DiffOptions}
	inner.changed(d)
	for l := range strings.Lines(inner.out.String()) {
		w.out.WriteString("         " + l)
	}
}

// changed writes the parts that differ, appended messages in one line.
func (w *differ) changed(d *drift.Diff) {
	w.session(d.Session)
	if len(d.Config) > 0 || d.KeyOrder || len(d.Defaults) > 0 {
		w.config(d)
	}
	if d.System != nil {
		w.system(d.System)
	}
	if !d.Tools.Equal() {
		w.tools(&d.Tools)
	}
	if len(d.Messages.Changes) == d.Messages.Count(drift.Appended) {
		if !d.Extends && len(d.Messages.Changes) > 0 {
			w.p("messages  + %s", appended(&d.Messages, w.Full))
		}
		return
	}
	rest := d.Messages
	rest.Changes = nil
	for _, c := range d.Messages.Changes {
		if c.Kind != drift.Appended {
			rest.Changes = append(rest.Changes, c)
		}
	}
	w.messages(&rest)
	if len(rest.Changes) < len(d.Messages.Changes) {
		w.p("  + %s", appended(&d.Messages, w.Full))
	}
}
