package report

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/olekukonko/tablewriter/pkg/twwidth"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/internal/ui"
	"github.com/dsh-audit/dsh-audit/pkg/drift"
)

// DiffOptions say how comparisons are shown.
type DiffOptions struct {
	Palette ui.Palette
	Stat    bool // counts only
	Full    bool // nothing is cut or folded
	Side    bool // texts side by side
	Width   int  // columns of Side
}

// screen is how many lines one change may take.
const screen = 40

// context is how many equal lines are shown around changed ones.
const context = 3

func (s *Side) ref() string {
	n := fmt.Sprintf("%d.%d", s.Turn, s.Step)
	if s.Attempt > 1 {
		n += fmt.Sprintf(".%d", s.Attempt)
	}
	return n
}

func (s *Side) name() string { return ui.Escape(string(s.Log)) + "@" + s.ref() }

// A differ writes comparisons.
type differ struct {
	DiffOptions
	out strings.Builder
}

func (w *differ) p(format string, args ...any) {
	w.out.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " ") + "\n")
}

// change writes the lines of one change, cut to a screen.
func (w *differ) change(indent string, lines []string) {
	n := len(lines)
	if !w.Full && n > screen {
		n = screen - 1
	}
	for _, l := range lines[:n] {
		w.p("%s%s", indent, l)
	}
	if n < len(lines) {
		w.p("%s%s", indent, w.Palette.Dim(fmt.Sprintf("... %s; --full shows all", plural.Count(len(lines)-n, "more line"))))
	}
}

// WriteDiffText writes a comparison for people.
func WriteDiffText(out io.Writer, o DiffOptions, a, b *Side, d *drift.Diff) error {
	w := &differ{DiffOptions: o}
	for _, s := range []struct {
		letter string
		side   *Side
	}{{"A", a}, {"B", b}} {
		w.p("%s  %s  %s bytes, %s, sha256 %s", s.letter, w.Palette.Head(s.side.name()), fmt.Sprint(s.side.Bytes), grade(s.side), s.side.SHA256)
	}
	if d.Same {
		w.p("%s: every byte is equal", w.Palette.Good("same"))
	} else {
		w.p("%s: first at byte %d, in %s", w.Palette.Warn("differ"), d.At.Offset, where(d.At.Path))
	}
	if !d.Same || len(d.Defaults) > 0 {
		w.diff(d)
	}
	if !d.Same {
		w.p("extends   %s", extends(d))
	}
	w.unexplained(d)
	return writeString(out, w.out.String())
}

// unexplained says loudly what no event accounts for.
func (w *differ) unexplained(d *drift.Diff) {
	if n := d.Unexplained(); n > 0 {
		w.p("%s", w.Palette.Bad(fmt.Sprintf("UNEXPLAINED: no event of the log accounts for %s", count(int64(n), "difference"))))
	}
}

func where(path string) string {
	if path == "" {
		return "the object itself"
	}
	return clip(ui.Escape(path), 200)
}

func (w *differ) diff(d *drift.Diff) {
	w.session(d.Session)
	w.config(d)
	w.system(d.System)
	w.tools(&d.Tools)
	w.messages(&d.Messages)
}

func grade(s *Side) string {
	if len(s.Reasons) == 0 {
		return s.Grade
	}
	return s.Grade + " (" + strings.Join(s.Reasons, ", ") + ")"
}

// timeless is the time of an event from which it was taken.
const timeless = math.MinInt64

// stamp shows a time of a log, in milliseconds since the epoch.
func stamp(ms int64) string {
	if ms < -62167219200000 || ms > 253402300799999 {
		return fmt.Sprintf("time %d", ms) // beyond years of four digits
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// seqs lists seqs, runs of them as ranges.
func seqs(list []int64) string {
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		switch {
		case j > i+1:
			parts = append(parts, fmt.Sprintf("%d to %d", list[i], list[j]))
		default:
			j = i
			parts = append(parts, fmt.Sprint(list[i]))
		}
		i = j + 1
	}
	if len(parts) > 12 {
		parts = append(parts[:10], fmt.Sprintf("... (%d in all)", len(list)))
	}
	if len(list) == 1 {
		return "seq " + parts[0]
	}
	return "seqs " + strings.Join(parts, ", ")
}

func eventName(e drift.EventRef) string { return fmt.Sprintf("%s seq %d", ui.Escape(e.Type), e.Seq) }

// causeText says in one line what made a difference.
func causeText(pal ui.Palette, c *drift.Cause) string {
	if c == nil {
		return ""
	}
	if c.Kind == drift.Unexplained {
		return pal.Bad("UNEXPLAINED: no event of the log accounts for this")
	}
	var b strings.Builder
	reason := ui.Escape(clip(c.Reason, 80))
	in := func(s string) string {
		if reason == "" {
			return s
		}
		return s + " (" + reason + ")"
	}
	switch c.Kind {
	case drift.CauseHeader:
		b.WriteString(in("header snapshot"))
	case drift.CauseDelta:
		b.WriteString("header delta")
	case drift.CauseReplace:
		b.WriteString(in("replace by another program"))
	case drift.CausePrune:
		b.WriteString("prune of a tool result")
	case drift.CausePrompt:
		b.WriteString("prompt")
	case drift.CauseContext:
		b.WriteString(in("injected context"))
	case drift.CauseRuntime:
		b.WriteString("runtime context")
	case drift.CauseSystem:
		b.WriteString("system prompt")
	case drift.CauseOffload:
		b.WriteString("images put away")
	case drift.CauseResponse:
		b.WriteString("answer")
	case drift.CauseCancelled:
		b.WriteString("begun answer that was cancelled")
	case drift.CauseToolResult:
		b.WriteString(in("tool result"))
	case drift.CauseRepair:
		b.WriteString(in("crash repair"))
	case drift.CauseProcess:
		b.WriteString(in("another build derives the event differently"))
	case drift.CauseFork:
		b.WriteString("fork")
	case drift.CauseRetry:
		b.WriteString("retry")
	case drift.CauseLogs:
		b.WriteString("the logs are of different sessions")
	default:
		b.WriteString(in(string(c.Kind)))
	}
	if e := c.Event; e != nil {
		fmt.Fprintf(&b, ": %s", eventName(*e))
		if c.Log != "" {
			fmt.Fprintf(&b, " of %s", strings.ToUpper(c.Log))
		}
		if r := c.Replaced; r != nil {
			fmt.Fprintf(&b, " replaces %s", seqs(r.ShadowedSeqs))
		}
		if len(c.Sources) > 0 && c.Kind != drift.CauseResponse && c.Kind != drift.CauseCancelled {
			fmt.Fprintf(&b, ", cites %s", seqs(c.Sources))
		}
		if e.Time != timeless {
			fmt.Fprintf(&b, ", %s", stamp(e.Time))
		}
	}
	for i, e := range c.With {
		if i == 0 {
			b.WriteString("; with ")
		} else {
			b.WriteString(", ")
		}
		b.WriteString(eventName(e))
	}
	if c.Note != "" {
		b.WriteString("; " + ui.Escape(clip(c.Note, 120)))
	}
	if c.Reverse {
		b.WriteString(" (later than B)")
	}
	return pal.Dim(b.String())
}

// shared returns the cause that all have in common, nil when they have none.
func shared(list []*drift.Cause) *drift.Cause {
	if len(list) == 0 || list[0] == nil || list[0].Event == nil {
		return nil
	}
	for _, c := range list[1:] {
		if c == nil || c.Event == nil || c.Kind != list[0].Kind || *c.Event != *list[0].Event || c.Log != list[0].Log || len(c.With) != len(list[0].With) {
			return nil
		}
	}
	return list[0]
}

// by writes the cause under what it made.
func (w *differ) by(indent string, c *drift.Cause) {
	switch {
	case c == nil || w.Stat:
	case c.Event == nil:
		w.p("%s%s", indent, causeText(w.Palette, c))
	default:
		w.p("%sby %s", indent, causeText(w.Palette, c))
	}
}

// each returns what to write under every single change: nothing when one cause,
// which is written first, made them all.
func (w *differ) each(causes []*drift.Cause) func(c *drift.Cause) {
	if c := shared(causes); c != nil {
		w.by("          ", c)
		return func(*drift.Cause) {}
	}
	return func(c *drift.Cause) { w.by("      ", c) }
}

func byDefault(set bool) string {
	if set {
		return " (adapter default)"
	}
	return ""
}

func (w *differ) config(d *drift.Diff) {
	pal := w.Palette
	var causes []*drift.Cause
	for i := range d.Config {
		causes = append(causes, d.Config[i].Cause)
	}
	for i := range d.Defaults {
		causes = append(causes, d.Defaults[i].Cause)
	}
	note := ""
	if n := len(d.Defaults); n > 0 {
		note = fmt.Sprintf(", %s set or unset as an adapter default", count(int64(n), "value"))
	}
	switch {
	case d.KeyOrder:
		causes = append(causes, d.Order)
		w.p("config    same values, in another order of keys%s", note)
	case len(d.Config) == 0:
		w.p("config    same%s", note)
	default:
		w.p("config    %d changed%s", len(d.Config), note)
	}
	if w.Stat {
		return
	}
	each := w.each(causes)
	if d.KeyOrder {
		each(d.Order)
	}
	for i := range d.Config {
		c := &d.Config[i]
		name := ui.Escape(c.Name)
		switch {
		case c.A == nil:
			w.p("  %s", pal.Added("+ "+name+": "+w.value(c.B)+byDefault(c.DefaultB)))
		case c.B == nil:
			w.p("  %s", pal.Gone("- "+name+": "+w.value(c.A)+byDefault(c.DefaultA)))
		default:
			w.p("  ~ %s: %s -> %s", name, pal.Gone(w.value(c.A)+byDefault(c.DefaultA)), pal.Added(w.value(c.B)+byDefault(c.DefaultB)))
		}
		each(c.Cause)
	}
	for i := range d.Defaults {
		c := &d.Defaults[i]
		was, is := "set", "an adapter default"
		if c.DefaultA {
			was, is = is, was
		}
		w.p("  ~ %s: %s, was %s, is %s", ui.Escape(c.Name), w.value(c.A), was, is)
		each(c.Cause)
	}
}

func (w *differ) session(c *drift.Change) {
	if c != nil {
		w.p("session   %s -> %s", w.Palette.Gone(w.value(c.A)), w.Palette.Added(w.value(c.B)))
		w.by("          ", c.Cause)
	}
}

// value shows a JSON value in one line.
func (w *differ) value(v []byte) string {
	if w.Full && v != nil {
		return string(ui.SafeJSON(v))
	}
	return excerpt(v)
}

func (w *differ) line(s string) string {
	if w.Full {
		return ui.Escape(s)
	}
	return clip(ui.Escape(s), 120)
}

func (w *differ) system(s *drift.SystemDiff) {
	if s == nil {
		w.p("system    same")
		return
	}
	if !s.Text {
		w.p("system    %s -> %s", w.value(s.A), w.value(s.B))
		w.by("          ", s.Cause)
		return
	}
	dropped, added := s.Count()
	note := ""
	if s.Coarse {
		note = "; too many lines differ to be aligned"
	}
	switch {
	case s.A == nil:
		note += "; A has none"
	case s.B == nil:
		note += "; B has none"
	}
	w.p("system    %s dropped, %d added%s", count(int64(dropped), "line"), added, note)
	if w.Stat {
		return
	}
	w.by("          ", s.Cause)
	w.change("  ", w.textLines(&s.TextDiff))
}

// textLines shows the difference of two texts, with numbers of lines of A, side
// by side when asked.
func (w *differ) textLines(d *drift.TextDiff) (out []string) {
	pal := w.Palette
	number := func(n int) string { return fmt.Sprintf("%5d", n) }
	const blank = "     "
	add := func(s string) { out = append(out, s) }
	if w.Side {
		return w.sideLines(d)
	}
	ln := 1 // of A
	for i, run := range d.Lines {
		switch run.Op {
		case drift.Drop, drift.Add:
			head, tail, hidden := w.cut(len(run.Text))
			for k, t := range run.Text {
				switch {
				case k >= head && k < len(run.Text)-tail:
					if k == head {
						add(blank + " " + pal.Dim(fmt.Sprintf("... %s %s", plural.Count(hidden, "more line"), gone(run.Op))))
					}
				case run.Op == drift.Drop:
					add(number(ln) + " " + pal.Gone("- "+w.line(t)))
				default:
					add(blank + " " + pal.Added("+ "+w.line(t)))
				}
				if run.Op == drift.Drop {
					ln++
				}
			}
		case drift.Edit:
			for k := range run.Text {
				add(number(ln) + " ~ " + w.marked(run.Marks[k]))
				ln++
			}
		default:
			head, tail, hidden := w.fold(len(run.Text), i == 0, i == len(d.Lines)-1)
			for k, t := range run.Text {
				switch {
				case k < head || k >= len(run.Text)-tail:
					add(number(ln) + "   " + w.line(t))
				case k == head:
					add(blank + " " + pal.Dim(fmt.Sprintf("... %s equal", count(int64(hidden), "line"))))
				}
				ln++
			}
		}
	}
	return out
}

// fold says how many of n equal lines are shown at their beginning and end.
func (w *differ) fold(n int, first, last bool) (head, tail, hidden int) {
	if w.Full {
		return n, 0, 0
	}
	head, tail = min(n, context), min(n, context)
	if first {
		head = 0
	}
	if last {
		tail = 0
	}
	if head+tail >= n-1 { // a line that says "1 line equal" saves nothing
		return n, 0, 0
	}
	return head, tail, n - head - tail
}

// cut says how many of n lines that went or came are shown at their beginning and
// end, so that one side of a change leaves room for the other.
func (w *differ) cut(n int) (head, tail, hidden int) {
	const most, first, last = 16, 11, 3
	if w.Full || n <= most {
		return n, 0, 0
	}
	return first, last, n - first - last
}

func gone(op drift.Op) string {
	if op == drift.Drop {
		return "dropped"
	}
	return "added"
}

// marked shows a line that changed: [-what went-] and {+what came+}.
func (w *differ) marked(marks []drift.Mark) string {
	var b strings.Builder
	for i, m := range marks {
		text := ui.Escape(m.Text)
		switch m.Op {
		case drift.Drop:
			b.WriteString(w.Palette.Gone("[-" + w.middle(text, 120) + "-]"))
		case drift.Add:
			b.WriteString(w.Palette.Added("{+" + w.middle(text, 120) + "+}"))
		default:
			switch {
			case w.Full || utf8.RuneCountInString(text) <= 60:
			case i == 0:
				text = "..." + lastRunes(text, 40)
			case i == len(marks)-1:
				text = firstRunes(text, 40) + "..."
			default:
				text = firstRunes(text, 25) + "..." + lastRunes(text, 25)
			}
			b.WriteString(text)
		}
	}
	return b.String()
}

func (w *differ) middle(s string, n int) string {
	if w.Full || utf8.RuneCountInString(s) <= n {
		return s
	}
	return firstRunes(s, n/2) + "..." + lastRunes(s, n/2-3)
}

func firstRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

func lastRunes(s string, n int) string {
	i := len(s)
	for ; n > 0 && i > 0; n-- {
		_, k := utf8.DecodeLastRuneInString(s[:i])
		i -= k
	}
	return s[i:]
}

// sideLines shows the difference of two texts in two columns.
func (w *differ) sideLines(d *drift.TextDiff) (out []string) {
	width := max(20, (w.Width-9)/2)
	pal := w.Palette
	row := func(mark, a, b string, pa, pb func(string) string) {
		ca, cb := wrap(a, width), wrap(b, width)
		for k := range max(len(ca), len(cb)) {
			cell := func(c []string) string {
				if k < len(c) {
					return c[k]
				}
				return ""
			}
			left := cell(ca)
			pad := strings.Repeat(" ", width-twwidth.Width(left))
			out = append(out, strings.TrimRight(fmt.Sprintf("%s%s %s %s", pa(left), pad, mark, pb(cell(cb))), " "))
		}
	}
	plain := func(s string) string { return s }
	for i, run := range d.Lines {
		switch run.Op {
		case drift.Drop, drift.Add:
			head, tail, hidden := w.cut(len(run.Text))
			for k, t := range run.Text {
				switch {
				case k >= head && k < len(run.Text)-tail:
					if k == head {
						out = append(out, pal.Dim(fmt.Sprintf("... %s %s", plural.Count(hidden, "more line"), gone(run.Op))))
					}
				case run.Op == drift.Drop:
					row("<", ui.Escape(t), "", pal.Gone, plain)
				default:
					row(">", "", ui.Escape(t), plain, pal.Added)
				}
			}
		case drift.Edit:
			for k := range run.Text {
				row("|", ui.Escape(run.Text[k]), ui.Escape(run.New[k]), pal.Gone, pal.Added)
			}
		default:
			head, tail, hidden := w.fold(len(run.Text), i == 0, i == len(d.Lines)-1)
			for k, t := range run.Text {
				switch {
				case k < head || k >= len(run.Text)-tail:
					row(" ", ui.Escape(t), ui.Escape(t), plain, plain)
				case k == head:
					out = append(out, pal.Dim(fmt.Sprintf("... %s equal", count(int64(hidden), "line"))))
				}
			}
		}
	}
	return out
}

// wrap cuts a line into pieces of at most width columns, at a space where there is
// one in the second half.
func wrap(s string, width int) (out []string) {
	start, used, space := 0, 0, -1
	for i, r := range s {
		n := twwidth.Width(string(r))
		if used+n > width && i > start {
			end := i
			if space > start && twwidth.Width(s[start:space]) >= width/2 {
				end = space
			}
			out = append(out, s[start:end])
			start, space = end, -1
			used = twwidth.Width(s[start:i])
		}
		used += n
		if r == ' ' {
			space = i + 1
		}
	}
	return append(out, s[start:])
}

func (w *differ) tools(t *drift.ToolsDiff) {
	pal := w.Palette
	switch {
	case t.Present != nil && t.Present.A == nil:
		w.p("tools     A has no tools member, B an empty list")
		w.by("          ", t.Present.Cause)
		return
	case t.Present != nil:
		w.p("tools     A has an empty list, B no tools member")
		w.by("          ", t.Present.Cause)
		return
	case t.Equal():
		w.p("tools     same (%d)", t.A)
		return
	}
	w.p("tools     %d kept, %d added, %d removed, %d changed, %d reordered",
		t.Kept, len(t.Added), len(t.Removed), len(t.Changed), len(t.Moved))
	if w.Stat {
		return
	}
	name := func(s string, i int) string {
		if s == "" {
			return fmt.Sprintf("[%d]", i)
		}
		return w.line(s)
	}
	var causes []*drift.Cause
	for _, x := range t.Removed {
		causes = append(causes, x.Cause)
	}
	for _, x := range t.Added {
		causes = append(causes, x.Cause)
	}
	for _, x := range t.Changed {
		causes = append(causes, x.Cause)
	}
	for _, x := range t.Moved {
		causes = append(causes, x.Cause)
	}
	each := w.each(causes)
	about := func(v []byte) string {
		d, ok := jsjson.Str(jsjson.Get(v, "description"))
		if !ok {
			return ""
		}
		return ": " + quote(d)
	}
	for _, x := range t.Removed {
		w.p("  %s", pal.Gone("- "+name(x.Name, x.Index)+about(x.Value)))
		each(x.Cause)
	}
	for _, x := range t.Added {
		w.p("  %s", pal.Added("+ "+name(x.Name, x.Index)+about(x.Value)))
		each(x.Cause)
	}
	for i := range t.Changed {
		x := &t.Changed[i]
		what := fmt.Sprintf("first at byte %d of the tool", x.At.Offset)
		if x.KeyOrderOnly() {
			what = "same values, in another order of keys"
		}
		w.p("  ~ %s: %s", name(x.Name, x.IndexB), what)
		each(x.Cause)
		w.change("    ", w.values(x.Values))
	}
	for _, x := range t.Moved {
		w.p("  > %s: now at place %d", name(x.Name, x.Index), x.Index)
		each(x.Cause)
	}
}

// values shows what differs inside a value, path by path.
func (w *differ) values(list []drift.ValueChange) (out []string) {
	pal := w.Palette
	for _, v := range list {
		path := "itself"
		if v.Path != "" {
			path = w.line(v.Path)
		}
		switch v.Kind {
		case drift.ValueAdded:
			out = append(out, pal.Added("+ "+path+": "+w.value(v.B)))
		case drift.ValueRemoved:
			out = append(out, pal.Gone("- "+path+": "+w.value(v.A)))
		case drift.ValueKeyOrder:
			out = append(out, "> "+path+": keys in another order")
		case drift.ValueReordered:
			out = append(out, "> "+path+": elements in another order")
		default:
			edit := v.Text != nil && len(v.Text.Lines) == 1 && v.Text.Lines[0].Op == drift.Edit
			if v.Text == nil || len(v.A) <= 60 && len(v.B) <= 60 && oneLine(v.A) && oneLine(v.B) && !edit {
				out = append(out, "~ "+path+": "+pal.Gone(w.value(v.A))+" -> "+pal.Added(w.value(v.B)))
				continue
			}
			if l := v.Text.Lines; edit && len(l[0].Text) == 1 && !w.Side {
				out = append(out, "~ "+path+": "+w.marked(l[0].Marks[0]))
				continue
			}
			dropped, added := v.Text.Count()
			out = append(out, fmt.Sprintf("~ %s: %s dropped, %d added", path, count(int64(dropped), "line"), added))
			for _, l := range w.textLines(v.Text) {
				out = append(out, "  "+l)
			}
		}
	}
	return out
}

// oneLine reports whether a JSON string holds no line feed.
func oneLine(v []byte) bool { return !strings.Contains(string(v), `\n`) }

func (w *differ) messages(m *drift.MessagesDiff) {
	pal := w.Palette
	if len(m.Changes) == 0 {
		w.p("messages  same (%d)", m.A)
		return
	}
	w.p("messages  %s", messageCounts(m))
	if w.Stat {
		return
	}
	for i := range m.Changes {
		c := &m.Changes[i]
		switch c.Kind {
		case drift.Appended:
			w.p("  %s", pal.Added(fmt.Sprintf("+ [%d] %s", c.B, Gist(c.New))))
		case drift.Inserted:
			w.p("  %s", pal.Added(fmt.Sprintf("+ [%d] inserted: %s", c.B, Gist(c.New))))
		case drift.Dropped:
			w.p("  %s", pal.Gone(fmt.Sprintf("- [%d] %s", c.A, Gist(c.Old))))
		case drift.Reordered:
			w.p("  > [%d] -> [%d] moved: %s", c.A, c.B, Gist(c.New))
		case drift.Replaced:
			w.replaced(c)
		default:
			w.p("  ~ [%d] -> [%d] edited: %s", c.A, c.B, Gist(c.New))
		}
		w.by("      ", c.Cause)
		if c.At != nil {
			w.p("      first at byte %d of the message%s", c.At.Offset, inPath(c.At.Path))
			w.change("      ", append(w.values(c.Values), w.blocks(c.Blocks)...))
		}
	}
}

func (w *differ) replaced(c *drift.MessageChange) {
	pal := w.Palette
	places := fmt.Sprintf("[%d]", c.Range[0])
	if n := len(c.Range); n > 1 {
		places = fmt.Sprintf("[%d..%d] (%d messages)", c.Range[0], c.Range[n-1], n)
	}
	reverse := c.Cause != nil && c.Cause.Reverse
	switch {
	case reverse && c.A < 0:
		w.p("  %s", pal.Added(fmt.Sprintf("+ %s, not yet removed: %s", places, Gist(c.New))))
	case reverse:
		w.p("  = [%d] -> %s, not yet replaced", c.A, places)
		w.p("      %s", pal.Gone("- "+Gist(c.Old)))
		w.p("      %s", pal.Added("+ "+Gist(c.New)))
	case c.B < 0:
		w.p("  %s", pal.Gone(fmt.Sprintf("- %s removed: %s", places, Gist(c.Old))))
	default:
		w.p("  = %s -> [%d] replaced", places, c.B)
		if c.At == nil || c.Values != nil {
			w.p("      %s", pal.Gone("- "+Gist(c.Old)))
			w.p("      %s", pal.Added("+ "+Gist(c.New)))
		}
	}
}

// blocks shows what differs in the content of a message.
func (w *differ) blocks(list []drift.BlockChange) (out []string) {
	pal := w.Palette
	for _, b := range list {
		switch b.Kind {
		case drift.BlockAdded:
			out = append(out, pal.Added(fmt.Sprintf("+ content[%d] %s", b.B, blockGist(b.New))))
		case drift.BlockDropped:
			out = append(out, pal.Gone(fmt.Sprintf("- content[%d] %s", b.A, blockGist(b.Old))))
		default:
			for _, v := range b.Values {
				path := fmt.Sprintf("content[%d]", b.B)
				if v.Path != "" && v.Path[0] != '[' {
					path += "."
				}
				v.Path = path + v.Path
				out = append(out, w.values([]drift.ValueChange{v})...)
			}
		}
	}
	return out
}

func messageCounts(m *drift.MessagesDiff) string {
	parts := []string{fmt.Sprintf("%d kept", m.Kept)}
	for _, k := range []drift.MessageKind{drift.Appended, drift.Inserted, drift.Replaced, drift.Edited, drift.Reordered, drift.Dropped} {
		if n := m.Count(k); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, k))
		}
	}
	s := strings.Join(parts, ", ")
	if m.Coarse {
		s += "; too many messages differ to be aligned"
	}
	return s
}

func inPath(path string) string {
	if path == "" {
		return ""
	}
	return ", in " + clip(ui.Escape(path), 200)
}

func extends(d *drift.Diff) string {
	m := &d.Messages
	switch {
	case d.Extends && m.A == m.B:
		return "yes: header and messages are equal"
	case d.Extends:
		return fmt.Sprintf("yes: B is A with %s appended", count(int64(m.B-m.A), "message"))
	}
	var why []string
	if len(d.Config) > 0 {
		why = append(why, "the config differs")
	}
	if d.System != nil {
		why = append(why, "the system prompt differs")
	}
	if !d.Tools.Equal() {
		why = append(why, "the tools differ")
	}
	gone := 0
	for _, c := range m.Changes {
		switch c.Kind {
		case drift.Replaced:
			if c.Cause != nil && c.Cause.Reverse {
				gone++
			} else {
				gone += len(c.Range)
			}
		case drift.Edited, drift.Reordered, drift.Dropped:
			gone++
		}
	}
	switch {
	case gone == 1:
		why = append(why, "1 message of A is not in B as it was")
	case gone > 1:
		why = append(why, fmt.Sprintf("%d messages of A are not in B as they were", gone))
	case len(why) == 0:
		why = append(why, "messages were inserted before the end")
	}
	return "no: " + strings.Join(why, "; ")
}

// excerpt shows a JSON value in one short line; nil is "nothing".
func excerpt(v []byte) string {
	if v == nil {
		return "nothing"
	}
	return clip(string(ui.SafeJSON(v)), 120)
}

// clip cuts text to at most n characters.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	k := 0
	for i := range s {
		if k == n-3 {
			return s[:i] + "..."
		}
		k++
	}
	return s
}

// Gist shows a message in one line: its role, then the beginning of its content.
func Gist(m []byte) string {
	role, ok := jsjson.Str(jsjson.Get(m, "role"))
	if !ok {
		return excerpt(m)
	}
	content := jsjson.Get(m, "content")
	var parts []string
	if s, ok := jsjson.Str(content); ok {
		parts = append(parts, quote(s))
	}
	for block := range jsjson.Elements(content) {
		if len(parts) == 4 {
			parts = append(parts, "...")
			break
		}
		parts = append(parts, blockGist(block))
	}
	return ui.Escape(role) + " " + clip(strings.Join(parts, " "), 160)
}

func blockGist(b []byte) string {
	typ, _ := jsjson.Str(jsjson.Get(b, "type"))
	str := func(key string) string {
		s, _ := jsjson.Str(jsjson.Get(b, key))
		return s
	}
	switch typ {
	case "text":
		return quote(str("text"))
	case "reasoning":
		return "reasoning " + quote(str("text"))
	case "tool-call":
		return "call " + ui.Escape(str("name")) + "(" + clip(ui.Escape(str("arguments")), 80) + ")"
	case "tool-result":
		s := "result"
		if string(jsjson.Get(b, "isError")) == "true" {
			s = "failed result"
		}
		for inner := range jsjson.Elements(jsjson.Get(b, "content")) {
			return s + " " + blockGist(inner)
		}
		return s
	}
	return excerpt(b)
}

func quote(s string) string { return `"` + clip(ui.Escape(s), 100) + `"` }
