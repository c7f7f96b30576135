package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/jstemmer/go-junit-report/v2/junit"

	"github.com/dsh-audit/dsh-audit/internal/ui"
)

// junitLines is how many findings of a log are written out.
const junitLines = 200

type verifyJUnit struct {
	w     io.Writer
	rules Rules
	suite junit.Testsuite
}

// NewVerifyJUnit writes JUnit XML when it is closed: one test a log. A log that
// makes the run fail is a failure, one that cannot be read an error, one of an
// unsupported kind skipped. There are no times in it.
func NewVerifyJUnit(w io.Writer, rules Rules) VerifyWriter {
	return &verifyJUnit{w: w, rules: rules, suite: junit.Testsuite{Name: "dsh-verify", Time: "0"}}
}

func (v *verifyJUnit) Result(r *Result) error {
	if r.Whole && !r.Fails {
		return nil
	}
	class := "log"
	if r.Whole {
		class = "place"
	}
	if r.Container != "" {
		class += "." + r.Container
	}
	c := junit.Testcase{Name: xmlText(r.relativeName()), Classname: xmlText("dsh-verify." + class), Time: "0"}
	what := r.Verdict + ": " + meanings[r.Verdict] + "; " + strings.Join(r.facts(), ", ")
	res := &junit.Result{Message: xmlText(what), Type: r.Verdict, Data: v.findings(r)}
	switch {
	case r.Verdict == "unreadable":
		c.Error = res
	case r.Verdict == "unsupported" && (r.Recording == nil || r.Recording.NotCompared == ""):
		res.Data = "" // the schema has text in the attribute only
		c.Skipped = res
	case r.Fails:
		c.Failure = res
	}
	if c.Failure == nil && c.Error == nil && r.Errors+r.Warnings > 0 {
		c.SystemOut = &junit.Output{Data: xmlText(what) + "\n" + v.findings(r)}
	}
	v.suite.AddTestcase(c)
	return nil
}

// findings lists errors and warnings as text reports do.
func (v *verifyJUnit) findings(r *Result) string {
	var b strings.Builder
	n, left := 0, int64(0)
	advised := map[string]bool{}
	for i := range r.Findings {
		f := &r.Findings[i]
		if !r.listed(f) {
			continue
		}
		if n++; n > junitLines {
			left++
			continue
		}
		at := string(r.Path)
		if f.Line > 0 {
			at += fmt.Sprintf(":%d", f.Line)
		}
		b.WriteString(xmlText(at+": "+f.Rule+" "+f.Severity+": ") + xmlText(f.String()) + "\n")
		for _, rel := range f.Related {
			b.WriteString("    " + xmlText(rel.String()) + "\n")
		}
		if f.Hint != "" {
			b.WriteString("    hint: " + xmlText(string(f.Hint)) + "\n")
		}
		if rule := v.rules(f.Rule); rule != nil && !advised[f.Rule] {
			advised[f.Rule] = true
			b.WriteString("    advice: " + xmlText(rule.Advice) + "\n")
		}
	}
	for _, o := range r.Omitted {
		left += o.Count
	}
	if left > 0 {
		b.WriteString("and " + count(left, "more finding") + "\n")
	}
	return b.String()
}

func (v *verifyJUnit) Close(s *Summary, _ string) error {
	v.suite.SystemOut = &junit.Output{Data: xmlText(s.line(func(word string) string { return word }))}
	all := junit.Testsuites{Name: "dsh-verify", Time: "0"}
	all.AddSuite(v.suite)
	all.Skipped = 0 // the schema has this sum in suites only
	if err := writeString(v.w, `<?xml version="1.0" encoding="UTF-8"?>`, "\n"); err != nil {
		return err
	}
	return all.WriteXML(v.w)
}

// xmlText is text that XML can hold. The library writes it as it is, and one
// control character would make the whole document no XML; [ui.Escape] leaves none
// but two that XML excludes and terminals do not mind.
func xmlText(s string) string {
	return strings.NewReplacer("\ufffe", `\ufffe`, "\uffff", `\uffff`).Replace(ui.Escape(s))
}
