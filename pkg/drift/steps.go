package drift

import (
	"iter"

	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Verdict says how a request stands to the one before it.
type Verdict string

const (
	First    Verdict = "first"   // there is none before it
	Extended Verdict = "extends" // the one before, and messages behind it
	Repeated Verdict = "same"    // the same bytes again
	Broken   Verdict = "break"   // something before the end changed
	Maybe    Verdict = "maybe"   // the log cannot tell whether it was sent
)

// A Step is one request of a log and how it stands to the one before it that was
// sent.
type Step struct {
	Verdict Verdict
	A, B    *Source // A is nil for the first request
	Diff    *Diff   // nil for the first request
	Why     *Cause  // of a request that was sent again
	Point   *Point  // the process that began in between; nil when none
}

// Steps compares every request of a log with the one before it. Requests that a
// fork inherited only stand before the first of its own; candidates stand before
// none.
func (t *Tracker) Steps(log *logfmt.Log) iter.Seq2[*Step, error] {
	return func(yield func(*Step, error) bool) {
		var last *Sent
		for s, err := range t.Walk(log) {
			if err != nil {
				if !yield(nil, err) {
					return
				}
				continue
			}
			if s.Inherited {
				if s.Candidate == "" {
					last = s
				}
				continue
			}
			step, err := t.History.step(last, s)
			if s.Candidate == "" {
				last = s
			}
			if !yield(step, err) {
				return
			}
		}
	}
}

func (g *History) step(a, b *Sent) (*Step, error) {
	s := &Step{Verdict: First}
	var err error
	if s.B, err = NewSource(b, g); err != nil {
		return nil, err
	}
	if a != nil {
		if s.A, err = NewSource(a, g); err != nil {
			return nil, err
		}
		s.Diff = Explain(s.A, s.B)
		s.Point = g.pointIn(a.horizonSeq(), b.horizonSeq()+1)
		switch {
		case s.Diff.Same:
			s.Verdict = Repeated
			s.Why = g.retryIn(a.horizonSeq(), b.horizonSeq())
		case s.Diff.Extends:
			s.Verdict = Extended
		default:
			s.Verdict = Broken
		}
	}
	if b.Candidate != "" {
		s.Verdict = Maybe
	}
	return s, nil
}

// retryIn finds the retry that was logged between two requests.
func (g *History) retryIn(from, to int64) *Cause {
	var c *Cause
	for i := range g.retries {
		r := &g.retries[i]
		if r.Seq < from || r.Seq > to {
			continue
		}
		if c == nil {
			c = &Cause{Kind: CauseRetry, Event: r}
		} else {
			c.With = append(c.With, *r)
		}
	}
	return c
}
