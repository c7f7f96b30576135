package drift

import (
	"bytes"
	"fmt"
	"iter"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/load"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// A Fork is a child's log held against its parent's (SEMANTICS §10).
type Fork struct {
	Child, Parent *History
	Related       bool  // the child names the parent
	Seed          int64 // length of the inherited prefix
	Compared      int64 // leading events that are equal as JSON values
	Upgraded      int64 // of these, events that are equal once a newer build has upgraded them
	KeyOrder      int64 // of these, events with keys in another order
	First         *EventDiff
	Own           []EventRef // what stands in the child before its first own request, chunks left out

	// The first own request of the child, and what it goes on from: the last one
	// it inherited, or without a prefix the last one the parent had sent when the
	// child was made. Nil when there is none.
	A, B *Source
	Diff *Diff
}

// An EventDiff is the first event of a prefix that is not the parent's.
type EventDiff struct {
	Seq          int64
	Child        *EventRef // nil when the child's log ends before
	Parent       *EventRef // nil when the parent's log ends before
	Path         string    // of the first difference
	ChildJSON    []byte
	ParentJSON   []byte
	ChildDefect  error
	ParentDefect error
}

// Identical reports whether the whole prefix is the parent's.
func (f *Fork) Identical() bool { return f.First == nil && f.Compared == f.Seed }

// CompareFork holds a child's log against its parent's. Defects of the two logs
// go to the functions; an error ends the comparison.
func CompareFork(child, parent *logfmt.Log, o fold.Options, childDefect, parentDefect func(error)) (*Fork, error) {
	ct, pt := NewTracker(child.Header, o), NewTracker(parent.Header, o)
	f := &Fork{Child: ct.History, Parent: pt.History, Seed: child.Header.Seed()}
	f.Related = f.Child.Parent != "" && f.Child.Parent == f.Parent.SessionID

	up := load.New(parent.Header, load.Options{})
	next, stop := iter.Pull2(parent.Events())
	defer stop()
	var parentLast *Sent // with which the child begins
	take := func(sents []*Sent) {
		for _, s := range sents {
			inPrefix := s.horizonSeq() <= f.Seed
			if f.Seed == 0 {
				inPrefix = s.Time <= f.Child.CreatedAt
			}
			if s.Candidate == "" && inPrefix {
				parentLast = s
			}
		}
	}
	// parentNext reads and folds one event of the parent.
	parentNext := func() *logfmt.Event {
		for {
			e, d, ok := next()
			if !ok {
				return nil
			}
			if d != nil {
				parentDefect(d)
				continue
			}
			take(pt.Add(e))
			return e
		}
	}

	var inherited, first *Sent
	see := func(s *Sent) {
		switch {
		case s.Candidate != "":
		case s.Inherited:
			inherited = s
		case first == nil:
			first = s
		}
	}
	for e, d := range child.Events() {
		if d != nil {
			childDefect(d)
			continue
		}
		if e.Seq < f.Seed && f.First == nil {
			f.compare(e, parentNext(), up)
		}
		for _, s := range ct.Add(e) {
			see(s)
		}
		if e.Seq >= f.Seed && first == nil && e.Type != logfmt.TypeAssistantChunk && len(f.Own) < maxOwn {
			f.Own = append(f.Own, refOf(e))
		}
	}
	for _, s := range ct.End() {
		see(s)
	}
	for parentNext() != nil {
	}
	take(pt.End())
	if f.First == nil && f.Compared < f.Seed {
		f.First = &EventDiff{Seq: f.Compared}
	}

	if first == nil {
		return f, nil
	}
	// What follows the first chunk of the request is no part of it.
	for i, e := range f.Own {
		if e.Seq >= first.horizonSeq() {
			f.Own = f.Own[:i]
			break
		}
	}
	var err error
	if f.B, err = NewSource(first, f.Child); err != nil {
		return nil, fmt.Errorf("request %d.%d of the child: %w", first.Turn, first.Step, err)
	}
	switch {
	case inherited != nil:
		f.A, err = NewSource(inherited, f.Child)
	case parentLast != nil && f.Related:
		f.A, err = NewSource(parentLast, f.Parent)
	}
	if err != nil {
		return nil, fmt.Errorf("the request before the fork: %w", err)
	}
	if f.A != nil {
		f.Diff = Explain(f.A, f.B)
	}
	return f, nil
}

const maxOwn = 1000

// compare holds one inherited event against the parent's.
func (f *Fork) compare(c, p *logfmt.Event, up *load.Loader) {
	d := &EventDiff{Seq: c.Seq}
	ref := refOf(c)
	d.Child, d.ChildJSON = &ref, c.JSON
	if p != nil {
		ref := refOf(p)
		d.Parent, d.ParentJSON = &ref, p.JSON
		upgraded := up.Add(p)
		switch {
		case bytes.Equal(c.JSON, p.JSON):
			f.Compared++
			return
		case jsjson.Equal(c.JSON, p.JSON):
			f.Compared++
			f.KeyOrder++
			return
		case upgraded != nil && upgraded != p && jsjson.Equal(c.JSON, upgraded.JSON):
			f.Compared++
			f.Upgraded++
			return
		}
		if values := CompareValues(p.JSON, c.JSON); len(values) > 0 {
			d.Path = values[0].Path
		}
		d.ParentJSON = bytes.Clone(p.JSON)
	}
	d.ChildJSON = bytes.Clone(c.JSON)
	f.First = d
}
