package verify

import (
	"fmt"

	"github.com/dsh-audit/dsh-audit/internal/report"
	"github.com/dsh-audit/dsh-audit/pkg/invariants"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// add joins a comparison to the result of the log: what the recording
// contradicts is held against the log like any other finding.
func add(res *invariants.Result, cmp *invariants.Comparison) {
	count := func(s invariants.Severity, n int64) {
		switch s {
		case invariants.Error:
			res.Errors += n
		case invariants.Warning:
			res.Warnings += n
		default:
			res.Notes += n
		}
	}
	var errs, warns int64
	for _, f := range cmp.Findings {
		count(f.Severity, 1)
		switch f.Severity {
		case invariants.Error:
			errs++
		case invariants.Warning:
			warns++
		}
	}
	for _, o := range cmp.Omitted {
		count(invariants.Lookup(o.Rule).Severity, o.Count)
	}
	res.Findings = append(res.Findings, cmp.Findings...)
	res.Omitted = append(res.Omitted, cmp.Omitted...)
	switch res.Verdict {
	case invariants.OK, invariants.Warn, invariants.Open, invariants.Torn, invariants.Unsupported:
		if errs > 0 {
			res.Verdict = invariants.Violations
		} else if warns > 0 && res.Verdict == invariants.OK {
			res.Verdict = invariants.Warn
		}
	}
}

// convert copies a result into the form that reports print.
func (p *pipeline) convert(res *invariants.Result, cmp *report.Compared) *report.Result {
	if p.plan.drift {
		promote(res)
	}
	r := &report.Result{
		Path: report.Text(res.Path), Session: report.Text(res.Session), Container: string(res.Container),
		Mode: string(res.Mode), Events: res.Events, Verdict: string(res.Verdict),
		Errors: res.Errors, Warnings: res.Warnings, Notes: res.Notes,
		Requests: report.Requests{Exact: res.Requests.Exact, Messages: res.Requests.Messages,
			Ambiguous: res.Requests.Ambiguous, Candidates: res.Requests.Candidates, Inherited: res.Requests.Inherited, SHA256: res.RequestsSHA256},
	}
	r.Recording = cmp
	if file := p.relative(res.Path); file != res.Path {
		r.File = report.Text(file)
	}
	if res.Generation >= 0 {
		r.Generation = &res.Generation
	}
	for _, e := range res.Eras {
		s := fmt.Sprintf("E%d", e.Min)
		if e.Max != e.Min {
			s += fmt.Sprintf("-E%d", e.Max)
		}
		r.Eras = append(r.Eras, s)
	}
	for _, f := range res.Findings {
		r.Findings = append(r.Findings, convertFinding(res.Container, f))
	}
	r.Damage = damage(res)
	p.witnesses(r, res)
	for _, o := range res.Omitted {
		r.Omitted = append(r.Omitted, report.Omitted{Rule: o.Rule, Count: o.Count})
	}
	return r
}

// witnesses copies what the log says about itself beside the findings, as far as
// there is any.
func (p *pipeline) witnesses(r *report.Result, res *invariants.Result) {
	if u := res.Usage; u != (invariants.Usage{}) {
		r.Usage = &report.Usage{Requests: report.Tokens(u.Requests), Silent: u.Silent, Inherited: u.Inherited, CacheChecked: u.CacheChecked}
		if u.Compactions != (invariants.Tokens{}) {
			c := report.Tokens(u.Compactions)
			r.Usage.Compactions = &c
		}
	}
	if res.Resumes != (invariants.Resumes{}) {
		h := report.Resumes(res.Resumes)
		r.Resumes = &h
	}
	if l := res.Lineage; l != (invariants.Lineage{}) {
		r.Lineage = &report.Lineage{Parent: report.Text(l.Parent), Inherited: l.Inherited, Own: l.Own,
			Compared: l.Compared, Upgraded: l.Upgraded, Missing: l.Missing}
	}
	r.Extended = res.Extended
	if p.plan.opts.Paranoid != invariants.ParanoidOff {
		r.Paranoid = &report.Paranoid{Checked: res.Paranoid.Checked, Of: res.Paranoid.Of, Skipped: report.Text(res.Paranoid.Skipped)}
	}
}

// convertFinding copies a finding with the places its container has.
func convertFinding(c logfmt.Container, f *invariants.Finding) report.Finding {
	out := report.Finding{
		Rule: f.Rule, Severity: f.Severity.String(), Line: f.Pos.Line,
		Seq: known(f.Seq), Turn: known(f.Turn), Step: known(f.Step),
		Path: report.Text(f.Path), Message: report.Text(f.Message), Hint: report.Text(f.Hint), More: f.More,
	}
	if c == logfmt.SQLite {
		out.Row = known(f.Pos.Row)
	} else if f.Pos.Line > 0 {
		out.Offset = known(f.Offset())
	}
	if frame := f.Pos.Frame; c == logfmt.Zstd && frame >= 0 {
		out.Frame = &frame
	}
	for _, r := range f.Related {
		out.Related = append(out.Related, report.Related{Line: r.Line, Seq: known(r.Seq), Message: report.Text(r.Message)})
	}
	return out
}

// promote makes drift at a resume an error, as --fail-on-drift asks.
func promote(res *invariants.Result) {
	n := int64(0)
	for _, f := range res.Findings {
		if f.Rule == driftRule && f.Severity == invariants.Note {
			f.Severity = invariants.Error
			n++
		}
	}
	for _, o := range res.Omitted {
		if n > 0 && o.Rule == driftRule {
			n += o.Count
		}
	}
	if n == 0 {
		return
	}
	res.Notes -= n
	res.Errors += n
	switch res.Verdict {
	case invariants.OK, invariants.Warn, invariants.Open, invariants.Torn:
		res.Verdict = invariants.Violations
	}
}
