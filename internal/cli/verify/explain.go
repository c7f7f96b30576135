package verify

import (
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

func explain(c *cli.Call) error {
	if len(c.Operands) == 0 {
		return cli.Usage("no rule given", "to list the rules, run: dsh-verify rules")
	}
	for i, id := range c.Operands {
		r := invariants.Lookup(strings.ToUpper(id))
		if r == nil {
			return cli.Usage("no rule "+cli.Quote(id), "to list the rules, run: dsh-verify rules")
		}
		if i > 0 {
			fmt.Fprintln(c.Out)
		}
		fmt.Fprintf(c.Out, "%s (%s): %s\n", c.Palette.Head(r.ID), r.Severity, r.Title)
		for _, part := range []struct{ label, text string }{
			{"meaning", r.Text}, {"how it happens", r.How}, {"what to do", r.Advice},
			{"holds", r.When()}, {"specification", r.Spec},
		} {
			if part.text == "" {
				continue
			}
			fmt.Fprintf(c.Out, "\n%s\n%s", c.Palette.Head(part.label), wrap(part.text, "  ", 78))
		}
	}
	return nil
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
