package verify

import (
	"bytes"
	_ "embed"
	"fmt"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/report"
	"github.com/dsh-audit/dsh-audit/pkg/invariants"
)

// ruleInfo is what reports tell about a rule.
func ruleInfo(id string) *report.RuleInfo {
	r := invariants.Lookup(id)
	if r == nil {
		return nil
	}
	return &report.RuleInfo{ID: r.ID, Severity: r.Severity.String(), Title: r.Title, Text: r.Text, How: r.How, Advice: r.Advice, When: r.When()}
}

//go:embed examples.txt
var examplesText string

// ParseExamples reads texts by name: "-- NAME --" stands before each, what stands
// before the first one is a comment.
func ParseExamples(s string) map[string]string {
	out := map[string]string{}
	name := ""
	var b strings.Builder
	end := func() {
		if name != "" {
			out[name] = strings.TrimSuffix(b.String(), "\n")
		}
		b.Reset()
	}
	for line := range strings.Lines(s) {
		if n, ok := strings.CutPrefix(line, "-- "); ok && strings.HasSuffix(n, " --\n") {
			end()
			name = strings.TrimSuffix(n, " --\n")
			continue
		}
		b.WriteString(line)
	}
	end()
	return out
}

// A part is one of the things that are to be known about a rule.
type part struct {
	label string
	text  string
	code  bool // lines that stand as they are
}

// parts is what explain and the rule reference say about a rule.
func parts(r *invariants.Rule, example string) []part {
	return []part{
		{label: "meaning", text: r.Text}, {label: "example", text: example, code: true},
		{label: "how it happens", text: r.How}, {label: "what to do", text: r.Advice},
		{label: "holds", text: r.When()}, {label: "specification", text: r.Spec},
	}
}

func explain(c *cli.Call) error {
	if len(c.Operands) == 0 {
		return cli.Usage("no rule given", "to list the rules, run: dsh-verify rules")
	}
	examples := ParseExamples(examplesText)
	for i, id := range c.Operands {
		r := invariants.Lookup(strings.ToUpper(id))
		if r == nil {
			return cli.Usage("no rule "+cli.Quote(id), "to list the rules, run: dsh-verify rules")
		}
		if i > 0 {
			fmt.Fprintln(c.Out)
		}
		fmt.Fprintf(c.Out, "%s (%s): %s\n", c.Palette.Head(r.ID), r.Severity, r.Title)
		for _, part := range parts(r, examples[r.ID]) {
			switch {
			case part.text == "":
			case part.code:
				fmt.Fprintf(c.Out, "\n%s\n  %s\n", c.Palette.Head(part.label), strings.ReplaceAll(part.text, "\n", "\n  "))
			default:
				fmt.Fprintf(c.Out, "\n%s\n%s", c.Palette.Head(part.label), wrap(part.text, "  ", 78))
			}
		}
	}
	return nil
}

// RuleReference is the rule reference in Markdown. The examples are given, because
// those in the program may be older.
func RuleReference(examples map[string]string) []byte {
	var b bytes.Buffer
	b.WriteString("# Rules\n\nMade by `go run ./scripts/rules`; not to be edited. `dsh-verify explain ID` prints the same.\n\n" +
		"An `error` makes a log `violations` (or `corrupt`, when bytes are damaged), a `warning` makes it\n" +
		"`warn` at least, a `note` changes nothing. A rule is silent outside the eras in which it held.\n\n" +
		"Where a rule or a comment names a section of PHYSICAL, SEMANTICS, WIRE or FORMATS, it means working papers\n" +
		"that describe what builds of the harness write, read and send. They are not part of this repository, and nothing\n" +
		"here needs them: what a rule asks for is said in its own text. The names tell maintainers what a rule rests on,\n" +
		"and that two rules rest on the same.\n\n" +
		"| rule | severity | says that |\n| --- | --- | --- |\n")
	for _, r := range invariants.All() {
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s |\n", r.ID, strings.ToLower(r.ID), r.Severity, markdown(r.Title))
	}
	for _, r := range invariants.All() {
		fmt.Fprintf(&b, "\n## %s\n\n%s: %s.\n", r.ID, r.Severity, markdown(r.Title))
		for _, part := range parts(r, examples[r.ID]) {
			switch {
			case part.text == "":
			case part.code:
				b.WriteString("\n    " + strings.ReplaceAll(part.text, "\n", "\n    ") + "\n")
			case part.label == "meaning":
				b.WriteString("\n" + wrap(markdown(part.text), "", 90))
			default:
				label := strings.ToUpper(part.label[:1]) + part.label[1:]
				b.WriteString("\n" + wrap("*"+label+".* "+markdown(part.text), "", 90))
			}
		}
	}
	return b.Bytes()
}

// markdown keeps the text of a rule from being markup.
func markdown(s string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "_", `\_`, "<", `\<`, "[", `\[`, "`", "\\`").Replace(s)
}

// wrap breaks text into lines of at most width bytes, each behind indent.
func wrap(text, indent string, width int) string {
	var b strings.Builder
	n := 0
	for _, w := range strings.Fields(text) {
		switch {
		case n == 0:
			b.WriteString(indent)
			n = len(indent)
		case n+1+len(w) > width:
			b.WriteString("\n" + indent)
			n = len(indent)
		default:
			b.WriteByte(' ')
			n++
		}
		b.WriteString(w)
		n += len(w)
	}
	b.WriteByte('\n')
	return b.String()
}

func rules(c *cli.Call) error {
	if len(c.Operands) > 0 {
		return cli.Usage("rules takes no operand", "to explain one, run: "+cli.CommandLine(append([]string{"dsh-verify", "explain"}, c.Operands[0])))
	}
	t := report.NewTable(c.Out, report.Column{Name: "rule"}, report.Column{Name: "severity"}, report.Column{Name: "says that"})
	for _, r := range invariants.All() {
		if err := t.Row(r.ID, r.Severity.String(), r.Title); err != nil {
			return err
		}
	}
	return t.Close()
}
