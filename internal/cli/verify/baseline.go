package verify

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/source"
	"github.com/dsh-audit/dsh-audit/internal/report"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// baselineMost is how many findings of one rule and log a baseline deals with.
const baselineMost = 100_000

// accepted is a baseline in use: how many findings of each key it accepts in one
// judgement. A log that is judged twice, because two arguments lead to it, has no new
// findings by that; and which parts of a run meet it does not matter.
type accepted struct{ known map[string]int64 }

func readBaseline(path string) (*accepted, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, source.Trouble(path, err)
	}
	defer f.Close()
	b, err := report.ReadBaseline(f)
	if err != nil {
		return nil, cli.Fail(cli.Trouble, fmt.Errorf("%s: %w", path, err), "to write one, run: dsh-verify --write-baseline FILE PATH ...")
	}
	k := &accepted{map[string]int64{}}
	for _, e := range b.Findings {
		k.known[e.Key.String()] += e.Count
	}
	return k, nil
}

// accept takes the findings that are known out of a result. Its verdict stays:
// what is known is no less true. That a file cannot be read is never known.
func (k *accepted) accept(r *report.Result) {
	var n report.Known
	used := map[string]int64{}
	r.Findings = slices.DeleteFunc(r.Findings, func(f report.Finding) bool {
		key := r.Key(&f).String()
		if used[key] >= k.known[key] || f.Rule == logfmt.RuleRead {
			return false
		}
		used[key]++
		switch f.Severity {
		case "error":
			n.Errors++
		case "warning":
			n.Warnings++
		default:
			n.Notes++
		}
		return true
	})
	if n != (report.Known{}) {
		r.Known = &n
		r.Errors -= n.Errors
		r.Warnings -= n.Warnings
		r.Notes -= n.Notes
	}
}

// shorten keeps the first findings of each rule and counts the others.
func shorten(r *report.Result, most int) {
	kept := map[string]int{}
	more := map[string]report.Omitted{}
	for _, o := range r.Omitted {
		more[o.Rule] = o
	}
	r.Findings = slices.DeleteFunc(r.Findings, func(f report.Finding) bool {
		if kept[f.Rule]++; kept[f.Rule] <= most {
			return false
		}
		o := more[f.Rule]
		more[f.Rule] = report.Omitted{Rule: f.Rule, Count: o.Count + 1}
		return true
	})
	r.Omitted = nil
	for _, o := range more {
		r.Omitted = append(r.Omitted, o)
	}
	slices.SortFunc(r.Omitted, func(a, b report.Omitted) int { return cmp.Compare(a.Rule, b.Rule) })
}

// A gathering is a baseline to be written.
type gathering struct {
	file    *outfile
	entries map[string]*report.KnownEntry
	beyond  int64 // findings that were only counted
}

func (g *gathering) add(r *report.Result) {
	count := map[string]int64{} // in this judgement of the log, which may not be the only one
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Severity == "note" && f.Rule != openRule || f.Rule == logfmt.RuleRead {
			continue
		}
		key := r.Key(f)
		id := key.String()
		if g.entries[id] == nil {
			g.entries[id] = &report.KnownEntry{Key: key}
		}
		count[id]++
		g.entries[id].Count = max(g.entries[id].Count, count[id])
	}
	for _, o := range r.Omitted {
		g.beyond += o.Count
	}
}

// baseline lists what was gathered, by log and place.
func (g *gathering) baseline() *report.Baseline {
	b := &report.Baseline{Schema: report.BaselineSchema, Findings: []report.KnownEntry{}}
	for _, e := range g.entries {
		b.Findings = append(b.Findings, *e)
	}
	seq := func(e *report.KnownEntry) int64 {
		if e.Seq == nil {
			return -1
		}
		return *e.Seq
	}
	slices.SortFunc(b.Findings, func(x, y report.KnownEntry) int {
		return cmp.Or(cmp.Compare(x.File, y.File), cmp.Compare(x.Session, y.Session), cmp.Compare(seq(&x), seq(&y)),
			cmp.Compare(x.Rule, y.Rule), cmp.Compare(x.Path, y.Path))
	})
	return b
}
