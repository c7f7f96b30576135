package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/ui"
)

const (
	// GitHub shows the first ten annotations of a kind of each step; the tenth is
	// used to say how many there are.
	githubMost = 9
	// SummaryLimit is the largest step summary that GitHub takes.
	SummaryLimit = 1 << 20
)

// githubKinds names severities as workflow commands do.
var githubKinds = []struct{ severity, command string }{{"error", "error"}, {"warning", "warning"}, {"note", "notice"}}

type verifyGitHub struct {
	w       io.Writer
	rules   Rules
	notes   bool
	counts  map[string]int64 // findings by severity
	summary *githubSummary
}

// NewVerifyGitHub writes workflow commands, which GitHub Actions shows as
// annotations: the first nine of each severity and how many more there are. All
// findings go to the step summary, in Markdown, as far as room bytes hold them;
// summary is nil when there is none to write to.
func NewVerifyGitHub(w io.Writer, rules Rules, notes bool, summary io.Writer, room int64) VerifyWriter {
	v := &verifyGitHub{w: w, rules: rules, notes: notes, counts: map[string]int64{}}
	if summary != nil {
		v.summary = &githubSummary{w: summary, room: room}
	}
	return v
}

func (v *verifyGitHub) Result(r *Result) error {
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Severity == "note" && !v.notes {
			continue
		}
		v.summary.finding(r, f)
		v.counts[f.Severity]++
		if v.counts[f.Severity] > githubMost {
			continue
		}
		message := f.String()
		if f.Hint != "" {
			message += "\nhint: " + ui.Escape(string(f.Hint))
		}
		title := f.Rule
		if rule := v.rules(f.Rule); rule != nil {
			title += ": " + rule.Title
			message += "\nadvice: " + rule.Advice
		}
		if r.inDatabase() {
			message = "session " + ui.Escape(string(r.Session)) + ": " + message
		}
		if err := v.command(githubCommand(f.Severity), ui.Escape(r.Relative()), f.Line, title, message); err != nil {
			return err
		}
	}
	for _, k := range githubKinds {
		if n := r.omitted(k.severity); n > 0 && (k.severity != "note" || v.notes) {
			v.counts[k.severity] += n
			v.summary.omitted(r, k.severity, n)
		}
	}
	return nil
}

func githubCommand(severity string) string {
	for _, k := range githubKinds {
		if k.severity == severity {
			return k.command
		}
	}
	return "notice"
}

// command writes one workflow command. In its parts the characters that would end
// them are written as percent escapes.
func (v *verifyGitHub) command(name, file string, line int64, title, message string) error {
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	var props []string
	if file != "" {
		props = append(props, "file="+property.Replace(file))
	}
	if line > 0 {
		props = append(props, fmt.Sprintf("line=%d", line))
	}
	props = append(props, "title="+property.Replace(title))
	return writeString(v.w, "::", name, " ", strings.Join(props, ","), "::", data.Replace(message), "\n")
}

func (v *verifyGitHub) Close(s *Summary, next string) error {
	for _, k := range githubKinds {
		n := v.counts[k.severity] - githubMost
		if n <= 0 {
			continue
		}
		where := "run dsh-verify by itself to see them"
		if v.summary != nil {
			where = "they are in the summary of this step"
		}
		if err := v.command(k.command, "", 0, "dsh-verify", "and "+count(n, "more "+k.severity)+"; "+where); err != nil {
			return err
		}
	}
	line := s.line(func(word string) string { return word })
	if next != "" {
		line += "; next: " + ui.Escape(next)
	}
	if err := writeString(v.w, line, "\n"); err != nil {
		return err
	}
	return v.summary.close(line)
}

// githubSummary gathers a Markdown table that stays within its room. The table
// comes behind the line that sums up, so that is known only at the end.
type githubSummary struct {
	w    io.Writer
	room int64
	rows strings.Builder
	left int64 // findings that found no room
}

// reserve is kept for what stands around the rows.
const reserve = 4 << 10

func (g *githubSummary) row(n int64, cells ...string) {
	row := "| " + strings.Join(cells, " | ") + " |\n"
	if g.left > 0 || int64(g.rows.Len()+len(row))+reserve > g.room {
		g.left += n
		return
	}
	g.rows.WriteString(row)
}

func (g *githubSummary) finding(r *Result, f *Finding) {
	if g == nil {
		return
	}
	line := ""
	if f.Line > 0 {
		line = fmt.Sprint(f.Line)
	}
	g.row(1, f.Severity, markdown(f.Rule), markdown(r.relativeName()), line, markdown(f.String()))
}

func (g *githubSummary) omitted(r *Result, severity string, n int64) {
	if g != nil {
		g.row(n, severity, "", markdown(r.relativeName()), "", "and "+count(n, "more "+severity))
	}
}

func (g *githubSummary) close(line string) error {
	if g == nil {
		return nil
	}
	if len(line) > reserve/4 {
		line = strings.ToValidUTF8(line[:reserve/4], "") + "…"
	}
	text := "### dsh-verify\n\n" + markdown(line) + "\n"
	if g.rows.Len() > 0 {
		text += "\n| severity | rule | log | line | finding |\n| --- | --- | --- | ---: | --- |\n" + g.rows.String()
	}
	if g.left > 0 {
		text += "\nand " + count(g.left, "more finding") + " for which there is no room here\n"
	}
	if int64(len(text)) > g.room {
		return nil // not even room for the line
	}
	return writeString(g.w, text)
}

// relativeName is name with the path that does not depend on the machine.
func (r *Result) relativeName() string {
	c := *r
	c.Path = Text(r.Relative())
	return c.name()
}

// markdown is text that a cell of a table shows as it is: without links, tags,
// mentions or markup of its own.
func markdown(s string) string {
	var b strings.Builder
	for _, r := range ui.Escape(s) {
		if strings.ContainsRune("&<>\"'\\`*_[]()#.|~:@", r) {
			fmt.Fprintf(&b, "&#%d;", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
