package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	"github.com/dsh-audit/dsh-audit/internal/ui"
)

// What GitHub makes of SARIF: it refuses a run of more than 25,000 results, or of
// more rules than that, and shows the 5,000 most severe. It takes results for the
// same that have the same fingerprint. A place needs a path relative to the
// repository; a line begins with 1, and byte offsets are not looked at. Related
// locations are not shown, so the message says what matters.
const sarifMost = 25000

type verifySARIF struct {
	w       io.Writer
	rules   Rules
	notes   bool
	version string

	results map[string][][]byte // by severity, each as JSON
	left    map[string]int64    // by severity: found, but beyond the limit
	seen    map[string]bool     // rules with findings
	same    map[string]int      // how often a key came already
}

// NewVerifySARIF writes SARIF 2.1.0 when it is closed. Of more findings than one
// run may have, the most severe ones are kept.
func NewVerifySARIF(w io.Writer, rules Rules, notes bool, version string) VerifyWriter {
	return &verifySARIF{w: w, rules: rules, notes: notes, version: version,
		results: map[string][][]byte{}, left: map[string]int64{}, seen: map[string]bool{}, same: map[string]int{}}
}

func (v *verifySARIF) Result(r *Result) error {
	clear(v.same) // a key names its log
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Severity == "note" && !v.notes {
			continue
		}
		if len(v.results[f.Severity]) == sarifMost {
			v.left[f.Severity]++
			continue
		}
		v.seen[f.Rule] = true
		b, err := json.Marshal(v.result(r, f))
		if err != nil {
			return err
		}
		if b, err = prune(b); err != nil {
			return err
		}
		v.results[f.Severity] = append(v.results[f.Severity], b)
	}
	for _, k := range githubKinds {
		if k.severity != "note" || v.notes {
			v.left[k.severity] += r.omitted(k.severity)
		}
	}
	return nil
}

// result is one finding. Its message begins with what GitHub shows first.
func (v *verifySARIF) result(r *Result, f *Finding) *sarif.Result {
	text := f.String()
	if r.inDatabase() {
		text = "session " + ui.Escape(string(r.Session)) + ": " + text
	}
	for _, rel := range f.Related {
		text += "\n" + rel.String()
	}
	if f.Hint != "" {
		text += "\nhint: " + ui.Escape(string(f.Hint))
	}
	if rule := v.rules(f.Rule); rule != nil {
		text += "\nadvice: " + rule.Advice
	}
	key := r.Key(f)
	n := v.same[key.String()]
	v.same[key.String()]++

	props := sarif.NewPropertyBag()
	props.Add("verdict", r.Verdict)
	for _, p := range []struct {
		name string
		n    *int64
	}{{"seq", f.Seq}, {"turn", f.Turn}, {"step", f.Step}, {"offset", f.Offset}, {"row", f.Row}} {
		if p.n != nil {
			props.Add(p.name, *p.n)
		}
	}
	if f.Path != "" {
		props.Add("path", ui.Escape(string(f.Path)))
	}
	if r.Session != "" {
		props.Add("session", ui.Escape(string(r.Session)))
	}

	place := sarif.NewPhysicalLocation().WithArtifactLocation(artifact(r.Relative()))
	if f.Line > 0 {
		place.WithRegion(sarif.NewRegion().WithStartLine(int(f.Line)))
	}
	res := sarif.NewRuleResult(f.Rule).
		WithLevel(f.Severity).
		WithMessage(sarif.NewTextMessage(unlinked(text))).
		WithLocations([]*sarif.Location{sarif.NewLocationWithPhysicalLocation(place)}).
		WithProperties(props)
	res.PartialFingerprints = map[string]string{"dshAuditFinding/v1": key.fingerprint(n)}
	return res
}

// unlinked keeps text of a log from becoming a link, which a message of SARIF may
// hold.
func unlinked(s string) string {
	if strings.Contains(s, "](") {
		s = strings.ReplaceAll(s, "[", `\[`)
	}
	return s
}

// artifact names a file by a relative reference.
func artifact(path string) *sarif.ArtifactLocation {
	a := sarif.NewArtifactLocation()
	path = strings.TrimLeft(path, "/")
	if path == "" {
		path = "."
	}
	a.WithURI((&url.URL{Path: path}).String())
	if !strings.HasPrefix(path, "../") {
		a.WithURIBaseID("%SRCROOT%")
	}
	return a
}

func (v *verifySARIF) Close(s *Summary, _ string) error {
	run := sarif.NewRunWithInformationURI("dsh-verify", "https://github.com/dsh-audit/dsh-audit")
	run.Tool.Driver.WithVersion(v.version)
	for _, rule := range ruleList(v.rules, v.seen) {
		level := rule.Severity
		help := fmt.Sprintf("%s\n\nHow it happens: %s\n\nWhat advice: %s", rule.Text, rule.How, rule.Advice)
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarif.NewReportingDescriptor().
			WithID(rule.ID).
			WithShortDescription(sarif.NewMultiformatMessageString().WithText(rule.Title)).
			WithFullDescription(sarif.NewMultiformatMessageString().WithText(rule.Text)).
			WithHelp(sarif.NewMultiformatMessageString().WithText(help)).
			WithDefaultConfiguration(sarif.NewReportingConfiguration().WithLevel(level)))
	}
	run.WithColumnKind("utf16CodeUnits")
	var results [][]byte
	left := int64(0)
	for _, k := range githubKinds {
		all := v.results[k.severity]
		n := min(len(all), sarifMost-len(results))
		results = append(results, all[:n]...)
		left += int64(len(all)-n) + v.left[k.severity]
	}
	inv := sarif.NewInvocation().WithExecutionSuccessful(s.Verdicts["unreadable"] == 0 && len(s.Empty) == 0)
	note := func(level, text string) {
		inv.ToolExecutionNotifications = append(inv.ToolExecutionNotifications,
			sarif.NewNotification().WithLevel(level).WithMessage(sarif.NewTextMessage(text)))
	}
	note("note", s.line(func(word string) string { return word }))
	if left > 0 {
		note("warning", count(left, "more finding")+" left out, none of them more severe")
	}
	run.Invocations = append(run.Invocations, inv)
	run.Results = []*sarif.Result{}
	rep := sarif.NewReport()
	rep.AddRun(run)

	b, err := json.Marshal(rep)
	if err != nil {
		return err
	}
	if b, err = prune(b); err != nil {
		return err
	}
	// Quotes are escaped in strings, so this stands where the results go.
	head, tail, ok := bytes.Cut(b, []byte(`"results":[]`))
	if !ok {
		return fmt.Errorf("SARIF without a place for results: %s", b)
	}
	if err := writeString(v.w, string(head), "\"results\":["); err != nil {
		return err
	}
	for i, r := range results {
		sep := ",\n"
		if i == 0 {
			sep = "\n"
		}
		if err := writeString(v.w, sep, string(r)); err != nil {
			return err
		}
	}
	return writeString(v.w, "]", string(tail), "\n")
}

// prune drops what the library writes for members that were not set: empty lists
// and objects, null, and the numbers that stand for absent.
func prune(b []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return Marshal(pruned(v))
}

func pruned(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			x = pruned(x)
			v[k] = x
			switch x := x.(type) {
			case nil:
				delete(v, k)
			case []any:
				if len(x) == 0 && k != "results" {
					delete(v, k)
				}
			case map[string]any:
				if len(x) == 0 {
					delete(v, k)
				}
			case json.Number:
				if x == "-1" && slices.Contains(absentNumbers, k) {
					delete(v, k)
				}
			}
		}
	case []any:
		for i := range v {
			v[i] = pruned(v[i])
		}
	}
	return v
}

// absentNumbers are the members whose default in the schema is -1.
var absentNumbers = []string{"id", "index", "parentIndex", "ruleIndex", "rank", "byteOffset", "charOffset",
	"absoluteAddress", "executionOrder", "nestingLevel", "exitCode", "processId"}
