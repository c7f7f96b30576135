package invariants

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about where headers stand and what changes from one to the next.
var driftRules = []*Rule{
	{
		ID: "HDR-PLACE", Severity: Warning, Since: eraStart[fold.E3], Spec: "SEMANTICS §5.4, §6.2, §6.4",
		Title:  "a header is logged inside its step, before the attempt it belongs to",
		Text:   "The loop logs a header between the start of a step and the first chunk of an attempt. Until 08-05 a step has one attempt and so one header; since then each attempt may have one. Anywhere else it is unclear which request was made with it.",
		How:    "The event was moved or inserted, or two processes share the log.",
		Advice: "Requests are rebuilt with the header in force when their first chunk came. Look whether the step before or after was meant.",
		Types:  []string{"request/header", "request/header-delta", "step/start"},
		New:    func() Checker { return new(placeChecker) },
	},
	{
		ID: "HDR-CHURN", Severity: Warning, Since: eraStart[fold.E3], Spec: "SEMANTICS §5.4, §9; WIRE §4.3",
		Title:  "no part of the header changes with every step",
		Text:   "What stands before the messages is the beginning of every request, and a provider can reuse its work only up to the first change. A prompt that holds the time of day, or tools whose order varies, make each request new from its beginning. A note for temperature, maxTokens and stop, which are no part of what the model reads.",
		How:    "A part of the prompt or of a tool is computed anew for each step: a clock, a counter, a list without a fixed order.",
		Advice: "Look at the lines shown: what varies should move into a message, or be computed once for a session.",
	},
	{
		ID: "HDR-RESUME-DRIFT", Severity: Note, Since: eraStart[fold.E3], Spec: "SEMANTICS §5.4",
		Title:  "a resumed session goes on with the header it had",
		Text:   "A new process logs its header as a whole. Compared with the one before it shows what changed while nobody was looking: another model, another prompt, other tools. That is no fault of the log, and may be what was wanted.",
		How:    "Settings, plugins, files or the program itself changed between the two processes.",
		Advice: "If it was not wanted, pin what is named. --fail-on-drift makes it a failure.",
		Types:  []string{"request/header"},
		New:    stateless(checkResume),
	},
	{
		ID: "REQ-EXTEND", Severity: Error, Spec: "SEMANTICS §6.2",
		Title:  "without a change in between, a request begins with the one before it",
		Text:   "When no header was logged and nothing was replaced between two requests of a process, the second is the first with messages added. This holds by what a surface is; it is checked on the rebuilt requests to prove that the rebuilding is right.",
		How:    "dsh-audit is at fault, or the log is damaged in a way it has not understood.",
		Advice: "Please report it with the log, or with the part of it around the place named.",
	},
}

type placeChecker struct {
	lost int64
	n    int
	at   Place
}

func (p *placeChecker) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&p.lost) || e.Type == "step/start" {
		p.n = 0
	}
	if e.Type == "step/start" || !c.Turn.Known || !c.Turn.Open || !c.Step.Known {
		return // outside a turn it is TURN-ENCLOSE that is broken
	}
	s := &c.stream
	switch {
	case !c.Step.Open:
		c.Report(e, "", "%s stands outside any step, expected it between step/start and the first chunk", e.Type)
		return
	case s.open && s.finish == "" && !s.blind:
		f := c.Report(e, "", "%s stands behind the first chunk of its attempt, expected it before", e.Type)
		f.Related = append(f.Related, Related{s.place.Seq, s.place.Pos.Line, "the first chunk"})
	case c.Asked > 0:
		c.Report(e, "", "%s stands behind the answer of step %s, expected it before the first chunk", e.Type, number(c.Step.N))
	case p.n > 0 && c.Builds.Before(buildReact):
		f := c.Report(e, "", "%s is the second header in step %s, expected one", e.Type, number(c.Step.N))
		f.Related = append(f.Related, Related{p.at.Seq, p.at.Pos.Line, "the first one"})
	}
	p.n++
	p.at = c.place(e)
}

func (p *placeChecker) End(*Context) {}

// Resumes counts the headers that a process logged after another.
type Resumes struct {
	Clean   int64 // equal to the header before
	Drifted int64 // each has a HDR-RESUME-DRIFT
}

func checkResume(c *Context, e *logfmt.Event) {
	if !jsjson.StrEq(jsjson.Get(e.Data, "reason"), "resume") || c.Header == nil || c.HeaderLost || c.Inherited(e) {
		return
	}
	next, err := fold.CanonicalHeader(jsjson.Get(e.Data, "header"))
	if err != nil {
		return
	}
	changes := headerChanges(c.Header, next)
	if len(changes) == 0 {
		c.resumes.Clean++
		return
	}
	c.resumes.Drifted++
	var fields, texts []string
	for _, ch := range changes {
		fields = append(fields, ch.field)
		texts = append(texts, ch.field+" "+ch.detail)
	}
	f := c.Report(e, "data.header", "the resumed session differs in %s: %s", strings.Join(fields, ", "), strings.Join(texts, "; "))
	if p := c.headerAt; p.Seq >= 0 {
		f.Related = append(f.Related, Related{p.Seq, p.Pos.Line, "the header before"})
	}
}

// A headerChange is one field in which two headers differ. Its detail is safe
// to print.
type headerChange struct{ field, detail string }

// headerChanges lists what a writer would call a change (SEMANTICS §5.2): config
// field by field, adapterDefaults, system by lines, tools by name and order, the
// message prefix.
func headerChanges(a, b *fold.EpochHeader) []headerChange {
	var out []headerChange
	add := func(field, format string, args ...any) {
		out = append(out, headerChange{field, fmt.Sprintf(format, args...)})
	}
	const many = 256 // members of a config that are compared one by one
	seen := map[string]bool{}
	if max(jsjson.Len(a.Config), jsjson.Len(b.Config)) > many {
		if !sameValue(a.Config, b.Config) {
			add("config", "was %s, is %s", show(a.Config), show(b.Config))
		}
		a, b = &fold.EpochHeader{AdapterDefaults: a.AdapterDefaults, System: a.System, Tools: a.Tools, MessagePrefix: a.MessagePrefix},
			&fold.EpochHeader{AdapterDefaults: b.AdapterDefaults, System: b.System, Tools: b.Tools, MessagePrefix: b.MessagePrefix}
	}
	for _, h := range [...]*fold.EpochHeader{a, b} {
		for k := range jsjson.Members(h.Config) {
			key, _ := jsjson.Str(k)
			if seen[key] {
				continue
			}
			seen[key] = true
			was, is := jsjson.Get(a.Config, key), jsjson.Get(b.Config, key)
			if !sameValue(was, is) {
				add(string(appendSafe(nil, key, 24)), "was %s, is %s", show(was), show(is))
			}
		}
	}
	if !sameValue(a.AdapterDefaults, b.AdapterDefaults) {
		add("adapterDefaults", "was %s, is %s", show(a.AdapterDefaults), show(b.AdapterDefaults))
	}
	if !bytes.Equal(a.System, b.System) {
		add("system", "%s", systemChange(a.System, b.System))
	}
	if !bytes.Equal(a.Tools, b.Tools) {
		if d := toolsChange(a.Tools, b.Tools); d != "" {
			add("tools", "%s", d)
		}
	}
	if !bytes.Equal(a.MessagePrefix, b.MessagePrefix) && (jsjson.Len(a.MessagePrefix) > 0 || jsjson.Len(b.MessagePrefix) > 0) {
		n, m := jsjson.Len(a.MessagePrefix), jsjson.Len(b.MessagePrefix)
		same := 0
		pairwise(a.MessagePrefix, b.MessagePrefix, func(i int, x, y []byte) bool {
			if bytes.Equal(x, y) {
				same++
				return true
			}
			return false
		})
		add("messagePrefix", "had %s, has %d; equal from the start: %d", plural.Count(n, "message"), m, same)
	}
	return out
}

func sameValue(a, b []byte) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return bytes.Equal(a, b) || jsjson.Equal(a, b)
}

// systemChange shows the first line in which two prompts differ, and how many
// there are.
func systemChange(a, b []byte) string {
	was, ok1 := jsjson.Str(a)
	is, ok2 := jsjson.Str(b)
	switch {
	case a == nil:
		return fmt.Sprintf("was absent, has %s", plural.Count(strings.Count(is, "\n")+1, "line"))
	case b == nil:
		return fmt.Sprintf("had %s, is absent", plural.Count(strings.Count(was, "\n")+1, "line"))
	case !ok1 || !ok2:
		return "was " + show(a) + ", is " + show(b)
	}
	from, to := strings.Split(was, "\n"), strings.Split(is, "\n")
	i := 0
	for i < len(from) && i < len(to) && from[i] == to[i] {
		i++
	}
	j := 0
	for j < len(from)-i && j < len(to)-i && from[len(from)-1-j] == to[len(to)-1-j] {
		j++
	}
	from, to = from[i:len(from)-j], to[i:len(to)-j]
	line := func(ls []string) string {
		switch len(ls) {
		case 0:
			return "nothing"
		case 1:
			return lineExcerpt(ls[0], from, to)
		}
		first := ls[0]
		for _, l := range ls {
			if strings.TrimSpace(l) != "" {
				first = l
				break
			}
		}
		return fmt.Sprintf("%s with %s", plural.Count(len(ls), "line"), lineExcerpt(first, from, to))
	}
	return fmt.Sprintf("line %d was %s, is %s", i+1, line(from), line(to))
}

// lineExcerpt shows a line from near the place where the two sides differ.
func lineExcerpt(s string, from, to []string) string {
	if len(from) == 0 || len(to) == 0 || len(s) <= quoteLimit {
		return quoted(s)
	}
	a, b := from[0], to[0]
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	const before = 16
	if i <= before || i > len(s) {
		return quoted(s)
	}
	i -= before
	for i > 0 && s[i]&0xc0 == 0x80 {
		i--
	}
	return "…" + quoted(s[i:])
}

func toolsChange(a, b []byte) string {
	type tool struct{ name, raw []byte }
	list := func(v []byte) (out []tool) {
		if jsjson.KindOf(v) != jsjson.Array {
			return nil
		}
		for t := range jsjson.Elements(v) {
			out = append(out, tool{jsjson.Get(t, "name"), t})
		}
		return out
	}
	was, is := list(a), list(b)
	find := func(l []tool, name []byte) int {
		return slices.IndexFunc(l, func(t tool) bool { return bytes.Equal(t.name, name) })
	}
	const many = 512
	if len(was) > many || len(is) > many {
		return fmt.Sprintf("were %d, are %d", len(was), len(is))
	}
	var added, removed, changed, order []string
	place := -1
	moved := false
	for _, t := range is {
		i := find(was, t.name)
		switch {
		case i < 0:
			added = append(added, show(t.name))
		case !bytes.Equal(was[i].raw, t.raw):
			changed = append(changed, show(t.name))
		}
		if i >= 0 {
			moved = moved || i < place
			place = i
		}
	}
	for _, t := range was {
		if find(is, t.name) < 0 {
			removed = append(removed, show(t.name))
		}
	}
	for _, p := range [...]struct {
		what string
		list []string
	}{{"added", added}, {"removed", removed}, {"changed", changed}} {
		if n := len(p.list); n > 6 {
			order = append(order, fmt.Sprintf("%s %s and %d more", p.what, strings.Join(p.list[:6], ", "), n-6))
		} else if n > 0 {
			order = append(order, p.what+" "+strings.Join(p.list, ", "))
		}
	}
	if moved {
		order = append(order, "in another order")
	}
	if len(order) == 0 {
		return fmt.Sprintf("were %d, are %d, with a name that stands twice", len(was), len(is))
	}
	return strings.Join(order, ", ")
}

// outsidePrompt are the fields of a config that change nothing in what the model
// reads (WIRE §4.3).
var outsidePrompt = map[string]bool{"temperature": true, "maxTokens": true, "stop": true}

// churnFrom is how many requests in a row have to change a field.
const churnFrom = 3

// churn follows which fields of the header change from request to request.
type churn struct {
	header     *fold.EpochHeader
	turn, step int64
	runs       []churnRun
}

type churnRun struct {
	field   string
	n       int
	details []string
	at      Place
	finding *Finding
}

// request takes the next request of the log's own.
func (h *churn) request(c *Context, r *fold.Request) {
	header := r.Header()
	was := h.header
	again := r.Turn == h.turn && r.Step == h.step
	h.header, h.turn, h.step = header, r.Turn, r.Step
	if was == nil || header == nil || was == header && !again || was.Scrubbed() || header.Scrubbed() {
		h.runs = h.runs[:0]
		return
	}
	if was == header {
		return
	}
	var next []churnRun
	for _, ch := range headerChanges(was, header) {
		run := churnRun{field: ch.field, at: c.headerPlace(r)}
		if i := slices.IndexFunc(h.runs, func(o churnRun) bool { return o.field == ch.field }); i >= 0 {
			run = h.runs[i]
		}
		if run.n++; len(run.details) < churnFrom+1 {
			run.details = append(run.details, ch.detail)
		}
		if run.n == churnFrom {
			run.finding = c.tellAt("HDR-CHURN", run.at, "data.header", "")
			if outsidePrompt[run.field] {
				run.finding.Severity = Note
			}
		}
		if run.finding != nil {
			more := ""
			if n := run.n - len(run.details); n > 0 {
				more = fmt.Sprintf("; and %d more", n)
			}
			run.finding.Message = fmt.Sprintf("%s changes with each of %d consecutive requests, expected it to stay: %s%s",
				run.field, run.n, strings.Join(run.details, "; then "), more)
		}
		next = append(next, run)
	}
	h.runs = next
}

// headerPlace is where the header of a request was logged.
func (c *Context) headerPlace(r *fold.Request) Place {
	for _, p := range c.headerLog {
		if p.Seq == r.HeaderSeq {
			return p
		}
	}
	return Place{Pos: r.Pos, Seq: r.HeaderSeq, Turn: r.Turn, Step: r.Step}
}

// extend compares a request with the one before it.
type extend struct {
	prev *fold.Request
}

func (x *extend) request(c *Context, r *fold.Request) {
	prev := x.prev
	x.prev = r
	broken := false
	if prev != nil {
		broken = c.brokenBetween(prev.Boundary.Seq, r.Boundary.Seq)
	}
	if prev == nil || c.losses > 0 || r.HeaderSeq != prev.HeaderSeq || r.Eras != prev.Eras || r.Mode != prev.Mode || r.Inherited != prev.Inherited ||
		r.Candidate != "" || prev.Candidate != "" || !settled(r) || !settled(prev) {
		return
	}
	if broken {
		return
	}
	if r.Extends(prev) {
		c.extended++
		return
	}
	c.tellAt("REQ-EXTEND", c.requestPlace(r), "", "the request of turn %d step %d does not begin with the one of turn %d step %d, although nothing between them changes what stands in it",
		r.Turn, r.Step, prev.Turn, prev.Step)
}

const mostBreaks = 1 << 16

// brokenBetween reports whether what a request begins with may have changed at a
// seq from one boundary up to another, and forgets what lies before both.
func (c *Context) brokenBetween(from, to int64) bool {
	i := 0
	for i < len(c.breaks) && c.breaks[i] < from {
		i++
	}
	if i == mostBreaks {
		return true // there may be more
	}
	c.breaks = slices.Delete(c.breaks, 0, i)
	return len(c.breaks) > 0 && c.breaks[0] < to
}

func settled(r *fold.Request) bool { return r.Certain() }

// requestPlace is where a request shows in the log: at its first chunk, or
// where it ended.
func (c *Context) requestPlace(r *fold.Request) Place {
	seq := r.FirstChunk
	if seq < 0 {
		seq = r.End
	}
	p := Place{Pos: r.Pos, Seq: seq, Turn: r.Turn, Step: r.Step}
	if r.Pos.Line == 0 && r.Pos.Row == 0 {
		p = c.last
	}
	return p
}
