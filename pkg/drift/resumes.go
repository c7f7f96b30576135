package drift

import (
	"iter"

	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// ResumeVerdict says what a process found when it went on with a log.
type ResumeVerdict string

const (
	Clean    ResumeVerdict = "clean"    // the same header, and what was sent before is still what is sent
	Drifted  ResumeVerdict = "drift"    // another header
	Changed  ResumeVerdict = "messages" // the same header, but messages that were sent before are others now
	NoHeader ResumeVerdict = "unknown"  // no header is logged in that era: only the messages can be compared, and they agree
	Silent   ResumeVerdict = "silent"   // nothing was sent after it, or nothing before it
)

// A Resume is one process that went on with a log, and how its first request
// stands to the last one before it (SEMANTICS §5.4, §10.3).
type Resume struct {
	Point   *Point
	Verdict ResumeVerdict
	A, B    *Source // nil when nothing was sent before, or after
	Diff    *Diff   // nil unless both are there
}

// Resumes yields the resumes of a log. Those that a fork inherited are its
// parent's and left out, and so is the beginning of the fork itself.
func (t *Tracker) Resumes(log *logfmt.Log) iter.Seq2[*Resume, error] {
	return func(yield func(*Resume, error) bool) {
		var last *Sent
		g := t.History
		done := 0 // points told
		tell := func(p *Point, b *Sent) bool {
			// Without a request before it, it is only a resume if something was
			// repaired: a fresh child, too, is marked off before it begins.
			if p.Fork || p.Seq < g.Seed || last == nil && len(p.Repairs) == 0 {
				return true
			}
			r, err := g.resume(p, last, b)
			return yield(r, err)
		}
		for s, err := range t.Walk(log) {
			if err != nil {
				if !yield(nil, err) {
					return
				}
				continue
			}
			if s.Candidate != "" {
				continue
			}
			var due []*Point
			for done < len(g.points) && g.points[done].Seq < s.horizonSeq() {
				due = append(due, g.points[done])
				done++
			}
			for i, p := range due {
				var b *Sent
				if i == len(due)-1 {
					b = s
				}
				if !tell(p, b) {
					return
				}
			}
			last = s
		}
		for ; done < len(g.points); done++ {
			if !tell(g.points[done], nil) {
				return
			}
		}
	}
}

func (g *History) resume(p *Point, a, b *Sent) (*Resume, error) {
	r := &Resume{Point: p, Verdict: Silent}
	var err error
	if a != nil {
		if r.A, err = NewSource(a, g); err != nil {
			return nil, err
		}
	}
	if b != nil {
		if r.B, err = NewSource(b, g); err != nil {
			return nil, err
		}
	}
	if a == nil || b == nil {
		return r, nil
	}
	r.Diff = Explain(r.A, r.B)
	d := r.Diff
	sent := false // something that was sent is another thing now
	for _, c := range d.Messages.Changes {
		sent = sent || c.Kind != Appended
	}
	before, after := a.Header(), b.Header()
	switch {
	case !d.HeaderEqual() || d.KeyOrder || len(d.Defaults) > 0 || after != nil && !fold.HeaderEquals(before, after):
		r.Verdict = Drifted
	case sent:
		r.Verdict = Changed
	case after == nil:
		r.Verdict = NoHeader
	default:
		r.Verdict = Clean
	}
	return r, nil
}
