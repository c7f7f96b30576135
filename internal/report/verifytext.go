package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/olekukonko/tablewriter/pkg/twwidth"

	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/internal/ui"
)

type verifyText struct {
	w     io.Writer
	rules Rules
	pal   ui.Palette
	notes bool
	width int
}

// NewVerifyText writes for people, log by log: the verdict, what was found, and
// for each broken rule what to do. Notes are listed only if asked for. Lines are
// wrapped at width; with 0, which is right for anything but a terminal, each
// finding is one line that begins with file and line.
func NewVerifyText(w io.Writer, rules Rules, pal ui.Palette, notes bool, width int) VerifyWriter {
	return &verifyText{w, rules, pal, notes, width}
}

// line writes one line, or several when it is too wide.
func (v *verifyText) line(s string) error {
	if v.width > 0 {
		s = wrapLine(s, v.width)
	}
	return writeString(v.w, s, "\n")
}

// wrapLine breaks a line at spaces. What follows the first line is indented further
// than it. A word that is too wide, like a path, is left whole: the terminal
// breaks it, and it can be copied.
func wrapLine(s string, width int) string {
	body := strings.TrimLeft(s, " ")
	indent := s[:len(s)-len(body)]
	more := indent + "    "
	if width < len(more)+20 || visible(s) <= width {
		return s
	}
	var b strings.Builder
	b.WriteString(indent)
	at, fresh := len(indent), true
	for word := range strings.SplitSeq(body, " ") {
		w := visible(word)
		switch {
		case fresh:
		case at+1+w > width:
			b.WriteString("\n" + more)
			at = len(more)
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += w
		fresh = false
	}
	return b.String()
}

// visible is the width of text on a terminal. Colour takes none.
func visible(s string) int {
	var b strings.Builder
	for {
		i := strings.Index(s, "\x1b[")
		if i < 0 {
			break
		}
		b.WriteString(s[:i])
		j := strings.IndexByte(s[i:], 'm')
		if j < 0 {
			s = s[i:]
			break
		}
		s = s[i+j+1:]
	}
	b.WriteString(s)
	return twwidth.Width(b.String())
}

func (v *verifyText) verdict(s string) string {
	switch s {
	case "ok":
		return v.pal.Good(s)
	case "warn", "open", "torn", "unsupported":
		return v.pal.Warn(s)
	}
	return v.pal.Bad(s)
}

func (v *verifyText) Result(r *Result) error {
	if r.Whole && !v.notes && r.Errors+r.Warnings == 0 {
		return nil
	}
	path := ui.Escape(string(r.Path))
	if err := v.line(v.pal.Head(ui.Escape(r.name())) + ": " + v.verdict(r.Verdict) + ": " + meanings[r.Verdict] +
		"; " + strings.Join(r.facts(), ", ")); err != nil {
		return err
	}
	advised := map[string]bool{}
	for i := range r.Findings {
		f := &r.Findings[i]
		if !v.notes && !r.listed(f) {
			continue
		}
		if err := v.finding(path, f); err != nil {
			return err
		}
		if advised[f.Rule] || !r.listed(f) {
			continue
		}
		advised[f.Rule] = true
		if rule := v.rules(f.Rule); rule != nil {
			if err := v.line("    advice: " + rule.Advice); err != nil {
				return err
			}
		}
	}
	for _, o := range r.Omitted {
		if err := v.line("    and " + count(o.Count, "more finding") + " of " + o.Rule); err != nil {
			return err
		}
	}
	if v.notes {
		for _, d := range r.details() {
			if err := v.line("    " + d); err != nil {
				return err
			}
		}
	}
	if r.Damage != nil {
		var b strings.Builder
		r.Damage.appendText(&b, path)
		for line := range strings.Lines(b.String()) {
			if err := v.line(strings.TrimSuffix(line, "\n")); err != nil {
				return err
			}
		}
	}
	if c := r.Recording; c != nil {
		if err := v.line(path + ": recording " + ui.Escape(string(c.Path)) + ": " + c.String()); err != nil {
			return err
		}
	}
	if r.Migration != nil {
		var b strings.Builder
		r.Migration.appendText(&b, path)
		for line := range strings.Lines(b.String()) {
			if err := v.line(strings.TrimSuffix(line, "\n")); err != nil {
				return err
			}
		}
	}
	return nil
}

// appendText says it in a line, and what to do in another.
func (m *Migration) appendText(b *strings.Builder, path string) {
	fmt.Fprintf(b, "%s: migration to %s: ", path, m.To)
	if m.Accepted {
		b.WriteString("accepted")
	} else {
		fmt.Fprintf(b, "refused at %s: %s", m.Stage, m.Rule)
		if m.Line > 0 {
			fmt.Fprintf(b, ", line %d", m.Line)
		}
		if m.Seq != nil {
			fmt.Fprintf(b, ", seq %d", *m.Seq)
		}
		fmt.Fprintf(b, ": %s", ui.Escape(string(m.Message)))
	}
	if m.Unverified {
		b.WriteString(" (unverified)")
	}
	b.WriteByte('\n')
	if m.Advice != "" {
		fmt.Fprintf(b, "    advice: %s\n", ui.Escape(string(m.Advice)))
	}
}

// facts says in words how much there is of everything.
func (r *Result) facts() []string {
	var facts []string
	for _, c := range []struct {
		n    int64
		word string
	}{{r.Errors, "error"}, {r.Warnings, "warning"}, {r.Notes, "note"}, {r.Known.total(), "known finding"}} {
		if c.n > 0 {
			facts = append(facts, count(c.n, c.word))
		}
	}
	if !r.Whole {
		facts = append(facts, count(r.Events, "event"))
	}
	if r.Requests != (Requests{}) {
		facts = append(facts, r.Requests.String())
	}
	if p := r.Paranoid; p != nil {
		switch {
		case p.Skipped != "":
			facts = append(facts, "none of them a second time: "+ui.Escape(string(p.Skipped)))
		case p.Of > 0:
			facts = append(facts, fmt.Sprintf("%d of %d a second time", p.Checked, p.Of))
		}
	}
	return facts
}

// details says in words what is known beside the findings.
func (r *Result) details() []string {
	var out []string
	if u := r.Usage; u != nil {
		s := "usage: " + u.Requests.String()
		if u.Silent > 0 {
			s += fmt.Sprintf("; %s without a report", count(u.Silent, "request"))
		}
		if u.Compactions != nil {
			s += "; of compactions " + u.Compactions.String()
		}
		if u.CacheChecked > 0 {
			s += fmt.Sprintf("; cache reads of %s judged", count(u.CacheChecked, "request"))
		}
		out = append(out, s)
	}
	if h := r.Resumes; h != nil {
		out = append(out, fmt.Sprintf("resumed: the header stayed the same %d of %d times", h.Clean, h.Clean+h.Drifted))
	}
	if l := r.Lineage; l != nil {
		s := "fork of " + ui.Escape(string(l.Parent))
		if l.Parent == "" {
			s = "fork of a session that is not named"
		}
		s += fmt.Sprintf(": %s inherited, %d of its own", count(l.Inherited, "event"), l.Own)
		switch {
		case l.Missing:
			s += "; the log of the parent was not given, so they are not compared"
		case l.Compared > 0:
			s += fmt.Sprintf("; %d held against the log of the parent", l.Compared)
			if l.Upgraded > 0 {
				s += fmt.Sprintf(", %d of them equal after an upgrade", l.Upgraded)
			}
		}
		out = append(out, s)
	}
	if r.Extended > 0 {
		out = append(out, count(r.Extended, "request")+" that must extend the one before, and do")
	}
	return out
}

// String says the sums in words.
func (t *Tokens) String() string {
	s := fmt.Sprintf("%s: %s in", count(t.Reports, "report"), plural.Count(t.Input, "token"))
	if t.CacheRead > 0 {
		s += fmt.Sprintf(", %d read from the cache", t.CacheRead)
	}
	if t.CacheWrite > 0 {
		s += fmt.Sprintf(", %d written to it", t.CacheWrite)
	}
	s += fmt.Sprintf(", %d out", t.Output)
	if t.Reasoning > 0 {
		s += fmt.Sprintf(" (%d of reasoning)", t.Reasoning)
	}
	return s
}

// String says the counts in words.
func (r Requests) String() string {
	n := r.Exact + r.Messages + r.Ambiguous
	s := count(n, "request")
	switch {
	case n > 0 && r.Exact == n:
		s += " rebuilt exactly"
	case n > 0 && r.Messages == n:
		s += " rebuilt as message lists (no header was logged in this era)"
	case n > 0:
		var parts []string
		for _, g := range []struct {
			n    int64
			word string
		}{{r.Exact, "exact"}, {r.Messages, "as message lists"}, {r.Ambiguous, "ambiguous"}} {
			if g.n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", g.n, g.word))
			}
		}
		s += " rebuilt (" + strings.Join(parts, ", ") + ")"
	}
	if r.Candidates > 0 {
		s += fmt.Sprintf(", %d more may or may not have been sent", r.Candidates)
	}
	if r.Inherited > 0 {
		s += fmt.Sprintf(", %d inherited from the parent log", r.Inherited)
	}
	return s
}

// String says the counts in words.
func (c *Compared) String() string {
	if c.NotCompared != "" {
		return "not compared: " + ui.Escape(string(c.NotCompared))
	}
	parts := []string{fmt.Sprintf("%d of %s equal byte for byte", c.Matched, count(c.Recorded, "recorded request"))}
	for _, x := range []struct {
		n    int64
		word string
	}{
		{c.KeyOrder, "differ in the order of config keys only"}, {c.Misplaced, "equal but recorded under another turn or step"}, {c.Differing, "differ"},
		{c.Missing, "rebuilt from the log but not recorded"}, {c.Extra, "recorded but not in the log"},
		{c.Auxiliary, "not of the agent loop, not judged"},
		{c.Unsent, "of the log not sent, by the recording"},
	} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.word))
		}
	}
	return strings.Join(parts, ", ")
}

func (v *verifyText) finding(path string, f *Finding) error {
	at := path
	if f.Line > 0 {
		at += fmt.Sprintf(":%d", f.Line)
	}
	sev := f.Severity
	switch sev {
	case "error":
		sev = v.pal.Bad(sev)
	case "warning":
		sev = v.pal.Warn(sev)
	}
	if err := v.line(at + ": " + f.Rule + " " + sev + ": " + f.String()); err != nil {
		return err
	}
	for _, r := range f.Related {
		if err := v.line("    " + r.String()); err != nil {
			return err
		}
	}
	if f.Hint != "" {
		return v.line("    hint: " + ui.Escape(string(f.Hint)))
	}
	return nil
}

// String is the finding in words: where within its log, and what. It is one line
// and safe to print.
func (f *Finding) String() string {
	var place []string
	if f.Row != nil {
		place = append(place, fmt.Sprintf("row %d", *f.Row))
	}
	if f.Seq != nil {
		place = append(place, fmt.Sprintf("seq %d", *f.Seq))
	}
	if f.Turn != nil {
		t := fmt.Sprintf("turn %d", *f.Turn)
		if f.Step != nil {
			t += fmt.Sprintf(".%d", *f.Step)
		}
		place = append(place, t)
	}
	if f.Frame != nil {
		place = append(place, fmt.Sprintf("frame %d", *f.Frame))
	}
	if f.Offset != nil {
		place = append(place, fmt.Sprintf("byte %d", *f.Offset))
	}
	if f.Path != "" {
		place = append(place, ui.Escape(string(f.Path)))
	}
	s := ui.Escape(string(f.Message))
	if len(place) > 0 {
		s = strings.Join(place, ", ") + ": " + s
	}
	switch {
	case f.More == 0:
	case !strings.HasPrefix(f.Rule, "LINE-"): // members of one packed row
		s += " (and in " + count(f.More, "more event") + " of the same row)"
	case f.Line > 0: // said once of all lines of a kind
		s += " (and in " + count(f.More, "more line") + ")"
	default:
		s += " (and in " + count(f.More, "more row") + ")"
	}
	return s
}

// String is the other place in words.
func (r *Related) String() string {
	s := ""
	if r.Line > 0 {
		s += fmt.Sprintf("line %d, ", r.Line)
	}
	if r.Seq != nil {
		s += fmt.Sprintf("seq %d: ", *r.Seq)
	}
	return s + ui.Escape(string(r.Message))
}

func (v *verifyText) Close(s *Summary, next string) error {
	line := s.line(v.verdict)
	if next != "" {
		line += "; next: " + ui.Escape(next)
	}
	return v.line(line)
}

// line says in one line what a run checked and found.
func (s *Summary) line(verdict func(string) string) string {
	var parts []string
	for _, word := range Verdicts {
		if n := s.Verdicts[word]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, verdict(word)))
		}
	}
	line := "checked " + count(s.Logs, "log")
	if s.Places > 0 {
		line += " and " + count(s.Places, "place")
	}
	if s.Skipped > 0 {
		line += fmt.Sprintf(" (%s passed over)", count(s.Skipped, "other file"))
	}
	if len(parts) > 0 {
		line += ": " + strings.Join(parts, ", ")
	}
	if s.Known > 0 {
		line += "; " + count(s.Known, "known finding") + " accepted"
	}
	if len(s.NotRun) > 0 {
		line += "; without " + listed(s.NotRun, 6)
	}
	if s.Config != "" {
		line += "; settings of " + ui.Escape(string(s.Config))
	}
	return line
}

// listed names the first few of a list.
func listed(words []string, most int) string {
	if len(words) <= most+1 {
		return strings.Join(words, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), len(words)-most)
}
