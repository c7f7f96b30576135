package golden

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/dsh-audit/dsh-audit/pkg/drift"
)

// Fold finds the requests of a golden that was parsed.
func (g *Golden) Fold(ctx context.Context) error { return g.fold(ctx) }

// A Diff is what differs between a golden and what a recording gives now.
type Diff struct {
	Verdict  [2]string // before and now
	Findings []FindingChange
	Requests []RequestChange // all of them, in order
	Header   bool            // the header record differs
	Kept     int             // events that are equal
	Changed  []EventChange   // the others
	Paths    []Path          // of now
	Stale    bool            // golden.json is not what its own log leads to
}

// A FindingChange is a rule that is broken more or less often.
type FindingChange struct {
	Rule, Severity string
	Before, Now    int64
}

// An EventChange is an event that is not the same.
type EventChange struct {
	Before, Now int // seq; -1 when absent
	Type        string
}

// RequestState says what became of a request.
type RequestState string

// States of a request.
const (
	Same    RequestState = "same"
	Changed RequestState = "changed"
	Regrade RequestState = "grade" // the same bytes, with another grade or state
	Added   RequestState = "added"
	Gone    RequestState = "gone"
)

// A RequestChange is a request before and now.
type RequestChange struct {
	Name        string
	State       RequestState
	Before, Now *Request    // nil when absent
	Diff        *drift.Diff // of a changed one
}

// Compare compares a golden with its renewal, both folded. manifest is golden.json
// as it was.
func Compare(old, now *Golden, manifest []byte) *Diff {
	d := &Diff{Verdict: [2]string{old.Verdict, now.Verdict}, Paths: now.Paths, Header: !bytes.Equal(old.header, now.header),
		Stale: !bytes.Equal(old.manifest(), manifest)}
	d.findings(old, now)
	d.requests(old, now)
	d.events(old, now)
	return d
}

func (d *Diff) findings(old, now *Golden) {
	at := map[string]int{}
	get := func(f Finding) *FindingChange {
		key := f.Rule + " " + f.Severity
		if _, ok := at[key]; !ok {
			at[key] = len(d.Findings)
			d.Findings = append(d.Findings, FindingChange{Rule: f.Rule, Severity: f.Severity})
		}
		return &d.Findings[at[key]]
	}
	for _, f := range old.Findings {
		get(f).Before += f.Count
	}
	for _, f := range now.Findings {
		get(f).Now += f.Count
	}
	list := d.Findings
	d.Findings = nil
	for _, f := range list {
		if f.Before != f.Now {
			d.Findings = append(d.Findings, f)
		}
	}
}

func (d *Diff) requests(old, now *Golden) {
	// A name may stand for several requests: the n-th is paired with the n-th.
	names := func(g *Golden) []string {
		seen := map[string]int{}
		out := make([]string, len(g.Requests))
		for i, r := range g.Requests {
			seen[r.Name]++
			out[i] = fmt.Sprintf("%s#%d", r.Name, seen[r.Name])
		}
		return out
	}
	before := map[string]*Request{}
	na, nb := names(old), names(now)
	for i := range old.Requests {
		before[na[i]] = &old.Requests[i]
	}
	for i := range now.Requests {
		b := &now.Requests[i]
		c := RequestChange{Name: b.Name, Now: b, Before: before[nb[i]]}
		delete(before, nb[i])
		switch a := c.Before; {
		case a == nil:
			c.State = Added
		case a.SHA256 != b.SHA256:
			c.State, c.Diff = Changed, drift.Explain(a.Source, b.Source)
		case a.Grade != b.Grade || a.State != b.State || strings.Join(a.Reasons, " ") != strings.Join(b.Reasons, " "):
			c.State = Regrade
		default:
			c.State = Same
		}
		d.Requests = append(d.Requests, c)
	}
	for i := range old.Requests {
		if a := &old.Requests[i]; before[na[i]] == a {
			d.Requests = append(d.Requests, RequestChange{Name: a.Name, State: Gone, Before: a})
		}
	}
}

func (d *Diff) events(old, now *Golden) {
	text := func(g *Golden) []string {
		out := make([]string, len(g.events))
		for i, e := range g.events {
			out[i] = string(e.json)
		}
		return out
	}
	a, b := text(old), text(now)
	pairs := make(map[int]int, len(b)) // of now, with those before
	match(a, b, 0, 0, func(i, j int) { pairs[j] = i })
	at := 0
	gone := func(to int) {
		for ; at < to; at++ {
			d.Changed = append(d.Changed, EventChange{at, -1, old.events[at].typ})
		}
	}
	for j, e := range now.events {
		i, ok := pairs[j]
		if !ok {
			d.Changed = append(d.Changed, EventChange{-1, j, e.typ})
			continue
		}
		gone(i)
		if at = i + 1; a[i] == b[j] {
			d.Kept++
			continue
		}
		d.Changed = append(d.Changed, EventChange{i, j, e.typ})
	}
	gone(len(a))
}

// Same reports whether nothing differs.
func (d *Diff) Same() bool {
	for _, r := range d.Requests {
		if r.State != Same {
			return false
		}
	}
	return d.Verdict[0] == d.Verdict[1] && len(d.Findings) == 0 && !d.Header && len(d.Changed) == 0 && !d.Stale
}
