package verify

import (
	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/report"
	"github.com/dsh-audit/dsh-audit/pkg/invariants"
)

// A policy says which results make a run fail.
type policy struct {
	strict bool
	failOn string // error, warning, never
}

func (s *settings) policy() (policy, error) {
	failOn, err := s.choice("fail-on", "error", "warning", "never")
	if err != nil {
		return policy{}, err
	}
	p := policy{s.on("strict"), failOn}
	if p.strict && failOn == "never" {
		return p, cli.Usage("--strict and --fail-on never contradict each other")
	}
	return p, nil
}

// status is the exit code that one result calls for.
func (p policy) status(r *report.Result) cli.Status {
	v := invariants.Verdict(r.Verdict)
	if r.Known != nil {
		v = p.left(r)
	}
	status := cli.OK
	switch v {
	case invariants.Unreadable:
		return cli.Trouble
	case invariants.Unsupported:
		status = cli.Unsupported
	case invariants.Violations, invariants.Corrupt:
		status = cli.Found
	case invariants.Warn, invariants.Open, invariants.Torn:
		if p.strict {
			status = cli.Found
		}
	}
	if r.Migration != nil && !r.Migration.Accepted && status != cli.Unsupported {
		status = cli.Found
	}
	if p.failOn == "warning" && r.Warnings > 0 {
		status = cli.Found
	}
	if p.failOn == "never" && status == cli.Found {
		status = cli.OK
	}
	if status == cli.OK && uncompared(r) {
		return cli.Unsupported
	}
	return status
}

// uncompared reports whether a recording was to be compared and was not. That is
// no success, whatever else is accepted.
func uncompared(r *report.Result) bool { return r.Recording != nil && r.Recording.NotCompared != "" }

// left is the verdict that remains when what the baseline accepts is forgotten.
func (p policy) left(r *report.Result) invariants.Verdict {
	v := invariants.Verdict(r.Verdict)
	if r.Errors > 0 {
		return v
	}
	for i := range r.Findings {
		if r.Findings[i].Rule == openRule {
			return invariants.Open
		}
	}
	if r.Warnings > 0 {
		return invariants.Warn
	}
	return invariants.OK
}

// openRule is the note behind the verdict open.
const openRule = "TAIL-OPEN"

// worse is the status of a run with both.
func worse(a, b cli.Status) cli.Status {
	for _, s := range []cli.Status{cli.Trouble, cli.Found, cli.Unsupported} {
		if a == s || b == s {
			return s
		}
	}
	return cli.OK
}
