package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/ui"
	"github.com/dsh-audit/dsh-audit/pkg/drift"
)

// A DiffStream writes the results of a mode that looks at several logs, as they
// come: text, or one JSON object whose results stand in a list.
type DiffStream struct {
	out  io.Writer
	o    DiffOptions
	json bool
	any  bool
}

// NewDiffStream starts the output of a mode.
func NewDiffStream(out io.Writer, asJSON bool, o DiffOptions, mode string) (*DiffStream, error) {
	w := &DiffStream{out: out, o: o, json: asJSON}
	if !asJSON {
		return w, nil
	}
	return w, writeString(out, `{"schema":"`+DiffSchema+`","mode":"`+mode+`","results":[`)
}

func (w *DiffStream) result(v any, text func(d *differ)) error {
	if !w.json {
		d := &differ{DiffOptions: w.o}
		text(d)
		return writeString(w.out, d.out.String())
	}
	line, err := Marshal(v)
	if err != nil {
		return err
	}
	sep := "\n"
	if w.any {
		sep = ",\n"
	}
	w.any = true
	return writeString(w.out, sep, string(line))
}

func (w *DiffStream) close(summary any, text func(d *differ)) error {
	if !w.json {
		d := &differ{DiffOptions: w.o}
		text(d)
		return writeString(w.out, d.out.String())
	}
	line, err := Marshal(summary)
	if err != nil {
		return err
	}
	return writeString(w.out, "\n],\"summary\":", string(line), "}\n")
}

// ResumeCounts is the summary of resumes.
type ResumeCounts struct {
	Logs        int `json:"logs"`
	Resumes     int `json:"resumes"`
	Clean       int `json:"clean"`
	Drift       int `json:"drift"`
	Messages    int `json:"messages"`
	Unknown     int `json:"unknown"`
	Silent      int `json:"silent"`
	Repaired    int `json:"repaired"`
	Unexplained int `json:"unexplained"`
}

// ResumedLog is the resumes of one log.
type ResumedLog struct {
	Log     string
	History *drift.History
	Resumes []*drift.Resume
	Side    func(*drift.Source) *Side
}

type jsonResume struct {
	Verdict string     `json:"verdict"`
	Process *jsonPoint `json:"process"`
	*jsonPair
}

// Resumes writes the resumes of one log.
func (w *DiffStream) Resumes(l *ResumedLog, n *ResumeCounts) error {
	n.Logs++
	list := []jsonResume{}
	for _, r := range l.Resumes {
		n.Resumes++
		switch r.Verdict {
		case drift.Clean:
			n.Clean++
		case drift.Drifted:
			n.Drift++
		case drift.Changed:
			n.Messages++
		case drift.NoHeader:
			n.Unknown++
		default:
			n.Silent++
		}
		if len(r.Point.Repairs) > 0 {
			n.Repaired++
		}
		if r.Diff != nil {
			n.Unexplained += r.Diff.Unexplained()
		}
		j := jsonResume{Verdict: string(r.Verdict), Process: pointJSON(r.Point)}
		if w.json && r.Diff != nil {
			j.jsonPair = pairJSON(l.Side(r.A), l.Side(r.B), r.Diff)
		}
		list = append(list, j)
	}
	return w.result(&struct {
		Log     Text         `json:"log"`
		Session Text         `json:"session"`
		Resumes []jsonResume `json:"resumes"`
	}{Text(l.Log), Text(l.History.SessionID), list}, func(d *differ) {
		switch {
		case len(l.Resumes) == 0 && len(l.History.Headers()) == 0:
			d.p("%s: no resume is marked, and no header logged by which one would show", ui.Escape(l.Log))
		case len(l.Resumes) == 0:
			d.p("%s: no resume", ui.Escape(l.Log))
		default:
			d.p("%s: %s", d.Palette.Head(ui.Escape(l.Log)), count(int64(len(l.Resumes)), "resume"))
		}
		for _, r := range l.Resumes {
			d.resume(l, r)
		}
	})
}

// CloseResumes writes the summary.
func (w *DiffStream) CloseResumes(n *ResumeCounts) error {
	return w.close(n, func(d *differ) {
		text := fmt.Sprintf("%s, %s: %d clean, %d with another header, %d with other messages", count(int64(n.Logs), "log"), count(int64(n.Resumes), "resume"),
			n.Clean, n.Drift, n.Messages)
		if n.Unknown > 0 {
			text += fmt.Sprintf(", %d of eras that log no header", n.Unknown)
		}
		if n.Silent > 0 {
			text += fmt.Sprintf(", %d with nothing to compare", n.Silent)
		}
		if n.Repaired > 0 {
			text += fmt.Sprintf("; %d after a crash repair", n.Repaired)
		}
		d.p("%s", text)
		d.loud(n.Unexplained)
	})
}

func (w *differ) loud(n int) {
	if n > 0 {
		w.p("%s", w.Palette.Bad(fmt.Sprintf("UNEXPLAINED: no event of the log accounts for %s", count(int64(n), "difference"))))
	}
}

func (w *differ) resume(l *ResumedLog, r *drift.Resume) {
	pal := w.Palette
	p := r.Point
	var marks []string
	if p.EndSeed != nil {
		marks = append(marks, fmt.Sprintf("%s, %s", eventName(*p.EndSeed), stamp(p.EndSeed.Time)))
	}
	if p.Header != nil {
		marks = append(marks, fmt.Sprintf("%s (%s), %s", eventName(p.Header.EventRef), ui.Escape(p.Header.Reason), stamp(p.Header.Time)))
	}
	if len(marks) == 0 {
		marks = append(marks, "marked by its repairs only")
	}
	var what string
	switch r.Verdict {
	case drift.Clean:
		what = pal.Good("clean") + ": same header, what was sent is still sent"
	case drift.Drifted:
		what = pal.Warn("DRIFT") + ": " + driftParts(r.Diff)
	case drift.Changed:
		what = pal.Warn("MESSAGES") + ": same header, but what was sent is sent otherwise"
	case drift.NoHeader:
		what = "unknown: no header is logged in this era; what was sent is still sent"
	default:
		what = "nothing was sent after it"
		if r.A == nil {
			what = "nothing was sent before it"
		}
	}
	between := ""
	if r.A != nil && r.B != nil {
		between = fmt.Sprintf(" %s -> %s", l.Side(r.A).ref(), l.Side(r.B).ref())
	}
	w.p("  resume at seq %d:%s %s", p.Seq, between, what)
	w.p("    began    %s", strings.Join(marks, "; "))
	if len(p.Repairs) > 0 {
		var list []string
		for _, e := range p.Repairs {
			list = append(list, eventName(e))
		}
		w.p("    repairs  %s", strings.Join(list, ", "))
	}
	if r.Diff == nil || w.Stat {
		return
	}
	if r.Diff.Extends && r.Diff.Messages.Count(drift.Appended) > 0 {
		w.p("    new      %s", appended(&r.Diff.Messages, w.Full))
	}
	inner := &differ{DiffOptions: w.DiffOptions}
	inner.changed(r.Diff)
	for line := range strings.Lines(inner.out.String()) {
		w.out.WriteString("    " + line)
	}
}

// driftParts names the parts of a header that differ.
func driftParts(d *drift.Diff) string {
	var parts []string
	for i := range d.Config {
		parts = append(parts, ui.Escape(clip(d.Config[i].Name, 40)))
	}
	for i := range d.Defaults {
		parts = append(parts, ui.Escape(clip(d.Defaults[i].Name, 40))+" (adapter default)")
	}
	if d.KeyOrder {
		parts = append(parts, "order of the config")
	}
	if d.System != nil {
		parts = append(parts, "system prompt")
	}
	if !d.Tools.Equal() {
		parts = append(parts, "tools")
	}
	if len(parts) == 0 {
		parts = append(parts, "message prefix")
	}
	return strings.Join(parts, ", ")
}

type jsonEventDiff struct {
	Seq    int64      `json:"seq"`
	Path   Text       `json:"path"`
	Child  *jsonEvent `json:"child"`
	Parent *jsonEvent `json:"parent"`
}

func eventJSON(e *drift.EventRef) *jsonEvent {
	if e == nil {
		return nil
	}
	return &jsonEvent{e.Seq, jsonTime(e.Time), Text(e.Type)}
}

// WriteFork writes how a child's log stands to its parent's.
func WriteFork(out io.Writer, asJSON bool, o DiffOptions, child, parent string, f *drift.Fork, a, b *Side) error {
	if asJSON {
		v := struct {
			Schema  string         `json:"schema"`
			Mode    string         `json:"mode"`
			Child   Text           `json:"child"`
			Parent  Text           `json:"parent"`
			Session Text           `json:"childSession"`
			Origin  Text           `json:"parentSession"`
			Related bool           `json:"related"`
			Seed    int64          `json:"seedLength"`
			Equal   bool           `json:"prefixIdentical"`
			Events  int64          `json:"eventsEqual"`
			Upgrade int64          `json:"eventsUpgraded"`
			Order   int64          `json:"eventsKeyOrder"`
			First   *jsonEventDiff `json:"firstDifference"`
			Own     []jsonEvent    `json:"own"`
			Request *jsonPair      `json:"request"`
		}{Schema: DiffSchema, Mode: "fork", Child: Text(child), Parent: Text(parent), Session: Text(f.Child.SessionID), Origin: Text(f.Parent.SessionID),
			Related: f.Related, Seed: f.Seed, Equal: f.Identical(), Events: f.Compared, Upgrade: f.Upgraded, Order: f.KeyOrder, Own: events(f.Own)}
		if v.Own == nil {
			v.Own = []jsonEvent{}
		}
		if d := f.First; d != nil {
			v.First = &jsonEventDiff{d.Seq, Text(d.Path), eventJSON(d.Child), eventJSON(d.Parent)}
		}
		if f.Diff != nil {
			v.Request = pairJSON(a, b, f.Diff)
		}
		return writeJSON(out, &v)
	}
	w := &differ{DiffOptions: o}
	pal := o.Palette
	w.p("child   %s, session %s", pal.Head(ui.Escape(child)), ui.Escape(f.Child.SessionID))
	w.p("parent  %s, session %s", pal.Head(ui.Escape(parent)), ui.Escape(f.Parent.SessionID))
	if !f.Related {
		names := "no parent"
		if f.Child.Parent != "" {
			names = "session " + ui.Escape(f.Child.Parent) + " as its parent"
		}
		w.p("%s: the child names %s", pal.Bad("not related"), names)
	}
	switch {
	case f.Seed == 0:
		w.p("prefix    none: the child began with an empty log")
	case f.Identical():
		text := fmt.Sprintf("prefix    %s: all %s are the parent's", pal.Good("identical"), count(f.Seed, "event"))
		if f.Upgraded > 0 {
			text += fmt.Sprintf(", %d of them upgraded to a newer dialect", f.Upgraded)
		}
		if f.KeyOrder > 0 {
			text += fmt.Sprintf(", %d with keys in another order", f.KeyOrder)
		}
		w.p("%s", text)
	default:
		w.p("prefix    %s at seq %d of %d", pal.Bad("DIFFERS"), f.First.Seq, f.Seed)
		w.first(f.First)
	}
	if len(f.Own) > 0 {
		var names []string
		for i, e := range f.Own {
			if i == 12 && !o.Full {
				names = append(names, fmt.Sprintf("... %d more", len(f.Own)-i))
				break
			}
			names = append(names, eventName(e))
		}
		w.p("own       %s", strings.Join(names, ", "))
	}
	switch {
	case f.B == nil:
		w.p("request   the child has sent none of its own")
	case f.Diff == nil:
		w.p("request   %s is the first of the child; nothing to compare it with", b.ref())
	default:
		from := "inherited"
		if f.A.History == f.Parent {
			from = "the last of the parent before the child was made"
		}
		w.p("request   %s (%s) -> %s of the child", a.ref(), from, b.ref())
		if f.Diff.Same {
			w.p("          every byte is equal")
			break
		}
		w.p("          first at byte %d, in %s", f.Diff.At.Offset, where(f.Diff.At.Path))
		w.diff(f.Diff)
		w.p("extends   %s", extends(f.Diff))
		w.unexplained(f.Diff)
	}
	return writeString(out, w.out.String())
}

func (w *differ) first(d *drift.EventDiff) {
	side := func(name string, e *drift.EventRef, text []byte) {
		if e == nil {
			w.p("  %-7s ends before it", name)
			return
		}
		w.p("  %-7s %s, %s", name, eventName(*e), stamp(e.Time))
		w.p("          %s", w.value(text))
	}
	if d.Child == nil && d.Parent == nil {
		w.p("  the child ends before its inherited prefix does")
		return
	}
	side("child", d.Child, d.ChildJSON)
	side("parent", d.Parent, d.ParentJSON)
	if d.Path != "" {
		w.p("  first difference in %s", where(d.Path))
	}
}

// WriteRuns writes how two recordings of one scenario differ.
func WriteRuns(out io.Writer, asJSON bool, o DiffOptions, a, b string, d *drift.RunsDiff) error {
	if asJSON {
		return writeRunsJSON(out, a, b, d)
	}
	w := &differ{DiffOptions: o}
	pal := o.Palette
	w.p("A  %s, session %s", pal.Head(ui.Escape(a)), ui.Escape(d.A.SessionID))
	w.p("B  %s, session %s", pal.Head(ui.Escape(b)), ui.Escape(d.B.SessionID))
	same := 0
	for i := range d.Turns {
		t := &d.Turns[i]
		if t.Same() {
			same++
			continue
		}
		w.turn(t)
	}
	what := pal.Good("same")
	if same < len(d.Turns) {
		what = pal.Warn("differ")
	}
	w.p("%s: %d of %s equal; %s matched one to one", what, same, count(int64(len(d.Turns)), "turn"), count(int64(d.IDs), "id"))
	return writeString(out, w.out.String())
}

func turnName(n int64) string {
	if n == 0 {
		return "what stands behind the last turn"
	}
	return fmt.Sprintf("turn %d", n)
}

func (w *differ) turn(t *drift.TurnDiff) {
	pal := w.Palette
	switch {
	case t.B < 0:
		w.p("%s of A is not in B", turnName(t.A))
	case t.A < 0:
		w.p("%s of B is not in A", turnName(t.B))
	case t.A == t.B:
		w.p("%s: %d kept", turnName(t.A), t.Kept)
	default:
		w.p("%s of A, %s of B: %d kept", turnName(t.A), turnName(t.B), t.Kept)
	}
	if w.Stat {
		w.p("  %s, %s, %s", count(int64(len(t.Messages)), "message"), count(int64(len(t.Headers)), "header"), count(int64(len(t.Requests)), "outcome"))
		return
	}
	for i := range t.Headers {
		h := &t.Headers[i]
		name := h.A
		if h.A != h.B {
			name = h.A + " of A, " + h.B + " of B"
		}
		w.p("  header of %s", name)
		inner := &differ{DiffOptions: w.DiffOptions}
		inner.changed(h.Diff)
		for line := range strings.Lines(inner.out.String()) {
			w.out.WriteString("    " + line)
		}
	}
	for i := range t.Messages {
		c := &t.Messages[i]
		switch c.Kind {
		case drift.Dropped:
			w.p("  %s", pal.Gone("- "+eventName(*c.EventA)+" "+Gist(c.Old)))
		case drift.Inserted:
			w.p("  %s", pal.Added("+ "+eventName(*c.EventB)+" "+Gist(c.New)))
		default:
			w.p("  ~ %s of A, seq %d of B", eventName(*c.EventA), c.EventB.Seq)
			if c.At == nil {
				w.p("      one of them replaces messages, or they replace other numbers of them")
				continue
			}
			w.change("      ", append(w.values(c.Values), w.blocks(c.Blocks)...))
		}
	}
	for _, c := range t.Requests {
		side := func(v []byte) string {
			if v == nil {
				return "not sent"
			}
			return excerpt(v)
		}
		w.p("  request %s: %s -> %s", c.Name, side(c.A), side(c.B))
	}
	if t.End != nil {
		w.p("  ended: %s -> %s", excerpt(t.End.A), excerpt(t.End.B))
	}
}

type jsonRunMessage struct {
	jsonMessage
	EventA *jsonEvent `json:"eventA,omitempty"`
	EventB *jsonEvent `json:"eventB,omitempty"`
}

type jsonRunHeader struct {
	A        string        `json:"a"`
	B        string        `json:"b"`
	Changes  []jsonHeader  `json:"changes"`
	Messages []jsonMessage `json:"messages,omitempty"` // of the prefix
}

type jsonOutcome struct {
	Request string `json:"request"`
	A       Raw    `json:"a"`
	B       Raw    `json:"b"`
}

type jsonTurn struct {
	A        *int64           `json:"a"`
	B        *int64           `json:"b"`
	Same     bool             `json:"same"`
	Kept     int              `json:"kept"`
	Messages []jsonRunMessage `json:"messages"`
	Headers  []jsonRunHeader  `json:"headers"`
	Requests []jsonOutcome    `json:"requests"`
	End      *jsonOutcome     `json:"end,omitempty"`
}

func writeRunsJSON(out io.Writer, a, b string, d *drift.RunsDiff) error {
	turns := []jsonTurn{}
	number := func(n int64) *int64 {
		if n < 0 {
			return nil
		}
		return &n
	}
	for i := range d.Turns {
		t := &d.Turns[i]
		j := jsonTurn{A: number(t.A), B: number(t.B), Same: t.Same(), Kept: t.Kept, Messages: []jsonRunMessage{}, Headers: []jsonRunHeader{}, Requests: []jsonOutcome{}}
		for k := range t.Messages {
			c := &t.Messages[k]
			m := drift.MessagesDiff{Changes: []drift.MessageChange{c.MessageChange}}
			one := messagesJSON(&m)[0]
			one.IndexA, one.IndexB = nil, nil
			j.Messages = append(j.Messages, jsonRunMessage{one, eventJSON(c.EventA), eventJSON(c.EventB)})
		}
		for k := range t.Headers {
			h := &t.Headers[k]
			j.Headers = append(j.Headers, jsonRunHeader{h.A, h.B, headerJSON(h.Diff), messagesJSON(&h.Diff.Messages)})
		}
		for _, c := range t.Requests {
			j.Requests = append(j.Requests, jsonOutcome{c.Name, safe(c.A), safe(c.B)})
		}
		if t.End != nil {
			j.End = &jsonOutcome{A: safe(t.End.A), B: safe(t.End.B)}
		}
		turns = append(turns, j)
	}
	type name struct {
		Log     Text `json:"log"`
		Session Text `json:"session"`
	}
	return writeJSON(out, &struct {
		Schema string     `json:"schema"`
		Mode   string     `json:"mode"`
		A      name       `json:"a"`
		B      name       `json:"b"`
		Same   bool       `json:"same"`
		IDs    int        `json:"idsMatched"`
		Turns  []jsonTurn `json:"turns"`
	}{DiffSchema, "runs", name{Text(a), Text(d.A.SessionID)}, name{Text(b), Text(d.B.SessionID)}, d.Same(), d.IDs, turns})
}
