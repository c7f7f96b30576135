// Package golden makes of a session log the form in which it is kept under
// version control and read in reviews, compares it with a later recording, and
// renews it so that only what changed shows. It implements SEMANTICS §12.
//
// # Files
//
//	session.jsonl               the projected log: the header record, then the
//	                            events without seq and time, runs of chunk deltas
//	                            as packed rows without seq0 and time0
//	system-prompt.expected.md   the system prompts, where {{system}} stands in the log
//	tool-schemas.expected.json  the tools, where {{tools}} stands in the log
//	last-request.txt            the last request that was sent, for a reader
//	golden.json                 what is normalised, the verdict, and size, digest
//	                            and grade of every request
//
// # Volatile values
//
//	cwd    the working directory, in every string: {{cwd}}
//	times  time and seq of events are left out; createdAt, other times of the
//	       recording under keys that say so, gaps between chunks and durations of
//	       hooks are 0
//	dates  dates and times near the recording within texts: {{time}}
//	uuids  the session's id and all UUIDs: {{sessionId}}
//	ids    ids stay as they are, but count as equal when those of one recording
//	       stand for those of the other one to one
//
// The digests are those of the requests to which the projected log leads; with
// nothing normalised they are those of the bodies that were sent.
//
// # Renewing
//
// A new recording takes over the ids of the old one: events that are equal but
// for their ids are paired, in order, and every id of the new one is exchanged for
// the one it stands for. What is left is what changed.
//
// # What is not done
//
// A path or an id that is split between two chunks is not seen in the chunks.
package golden

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/drift"
	"github.com/dsh-audit/dsh-audit/pkg/invariants"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Volatile is a kind of values that differ between recordings.
type Volatile string

// Kinds of volatile values that may be normalised.
const (
	Cwd   Volatile = "cwd"
	Dates Volatile = "dates"
	IDs   Volatile = "ids"
	Times Volatile = "times"
	UUIDs Volatile = "uuids"
)

// All lists the kinds, by name.
var All = []Volatile{Cwd, Dates, IDs, Times, UUIDs}

// Default is what is normalised unless one says otherwise.
var Default = []Volatile{Cwd, Dates, IDs, Times}

// ErrDamaged is returned for a log that the harness would not load.
var ErrDamaged = errors.New("the log is damaged")

const (
	tokenCwd     = "{{cwd}}"
	tokenTime    = "{{time}}"
	tokenSession = "{{sessionId}}"
)

// An event is an event of a projected log.
type event struct {
	typ  string
	json []byte // canonical, without seq and time
}

// A Golden is a projected log with what follows from it.
type Golden struct {
	Normalize []Volatile
	Verdict   string
	Findings  []Finding // of the recording, by rule
	Paths     []Path    // absolute ones in the arguments of calls
	Requests  []Request // in order of dispatch
	Last      *drift.Source

	header []byte
	events []event
}

// A Finding counts the findings of a rule.
type Finding struct {
	Rule     string
	Severity string
	Count    int64
}

// A Path is an absolute path in the arguments of a tool call. It makes a fixture
// depend on the directory it is replayed in.
type Path struct {
	Tool, Path string
	Count      int64
}

// A Request is one request, and with drift how it came about.
type Request struct {
	Name    string // TURN.STEP, or TURN.STEP.ATTEMPT
	Grade   string
	Reasons []string
	State   string // "candidate", "inherited" or ""
	Bytes   int64
	SHA256  [32]byte
	Source  *drift.Source
}

// Build makes the golden form of a log. open gives the log, from its beginning,
// as often as it is asked.
func Build(ctx context.Context, open func() (*logfmt.Log, error), normalize []Volatile) (*Golden, error) {
	log, err := open()
	if err != nil {
		return nil, err
	}
	result, err := invariants.Check(ctx, log, invariants.Options{MaxPerRule: math.MaxInt32})
	log.Close()
	if err != nil {
		return nil, err
	}
	if log.Header == nil || log.Class() != logfmt.Intact && log.Class() != logfmt.Torn {
		for _, d := range log.Defects() {
			return nil, fmt.Errorf("%w: %w", ErrDamaged, d)
		}
		return nil, fmt.Errorf("%s: %w", log.Path, ErrDamaged)
	}
	g := &Golden{Normalize: normalize, Verdict: string(result.Verdict)}
	g.count(result)

	// Once to learn what is volatile, once to project.
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	p := newProjector(normalize)
	if log, err = open(); err != nil {
		return nil, err
	}
	defer log.Close()
	var events []*logfmt.Event
	for e, d := range log.Events() {
		if len(events)&1023 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if d != nil || e.AfterDamage {
			continue
		}
		e = e.Clone()
		first, last = min(first, e.Time), max(last, e.Time)
		events = append(events, e)
	}
	if log.Header == nil {
		return nil, fmt.Errorf("%s: %w", log.Path, ErrDamaged)
	}
	head := log.Header.Line(log.Database)
	if n, ok := jsjson.SafeInt(jsjson.Get(head, "createdAt")); ok && n > 0 {
		first, last = min(first, n), max(last, n)
	}
	cwd, _ := jsjson.Str(jsjson.Get(head, "cwd"))
	if cwd == tokenCwd {
		cwd = ""
	}
	p.v = drift.NewVolatile(cwd, first, last)
	p.learn(head)
	for _, e := range events {
		p.learnEvent(e.Type, e.JSON)
	}
	g.header = p.header(head)
	for _, e := range events {
		g.events = append(g.events, event{e.Type, p.event(e.Type, e.JSON)})
		g.paths(e, p, cwd)
	}
	slices.SortStableFunc(g.Paths, func(a, b Path) int {
		if c := strings.Compare(a.Tool, b.Tool); c != 0 {
			return c
		}
		return strings.Compare(a.Path, b.Path)
	})
	return g, g.fold(ctx)
}

// count sums the findings up.
func (g *Golden) count(r *invariants.Result) {
	at := map[string]int{}
	for _, f := range r.Findings {
		key := f.Rule + " " + f.Severity.String()
		i, ok := at[key]
		if !ok {
			i = len(g.Findings)
			at[key] = i
			g.Findings = append(g.Findings, Finding{Rule: f.Rule, Severity: f.Severity.String()})
		}
		g.Findings[i].Count++
	}
	slices.SortStableFunc(g.Findings, func(a, b Finding) int { return strings.Compare(a.Rule+" "+a.Severity, b.Rule+" "+b.Severity) })
}

// plain is the projected log with seq and time put back, one event a line.
func (g *Golden) plain() []byte {
	out := append(bytes.Clone(g.header), '\n')
	if cwd := jsjson.Get(g.header, "cwd"); string(cwd) == `"`+tokenCwd+`"` {
		// A reader wants an absolute path; requests do not hold it.
		out = append(bytes.Replace(bytes.Clone(g.header), append([]byte(`"cwd":`), cwd...), []byte(`"cwd":"/`+tokenCwd+`"`), 1), '\n')
	}
	for i, e := range g.events {
		out = append(appendPlaced(out, e.json, `"seq":`, `"time":0`, int64(i)), '\n')
	}
	return out
}

// appendPlaced appends a canonical object with two members put where a writer has
// them, behind the type.
func appendPlaced(dst, obj []byte, seq, time string, n int64) []byte {
	at := 1
	if bytes.HasPrefix(obj, []byte(`{"type":`)) {
		at = jsjson.Skip(obj, len(`{"type":`))
	}
	dst = append(dst, obj[:at]...)
	if at > 1 {
		dst = append(dst, ',')
	}
	dst = fmt.Appendf(dst, "%s%d,%s", seq, n, time)
	if at == 1 && obj[1] != '}' {
		dst = append(dst, ',')
	}
	return append(dst, obj[at:]...)
}

// fold finds the requests to which the projected log leads.
func (g *Golden) fold(ctx context.Context) error {
	log, err := logfmt.NewReader(bytes.NewReader(g.plain()), "golden", logfmt.Options{})
	if err != nil {
		return err
	}
	t := drift.NewTracker(log.Header, foldOptions)
	g.Requests, g.Last = nil, nil
	for s, err := range t.Walk(log) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			var d *logfmt.Defect
			if errors.As(err, &d) {
				continue // it is counted among the findings
			}
			return err
		}
		src, err := drift.NewSource(s, t.History)
		if err != nil {
			return fmt.Errorf("request %d.%d: %w", s.Turn, s.Step, err)
		}
		r := Request{Name: name(s), Grade: string(s.Grade), Reasons: s.Reasons, Bytes: s.Request.Len(), SHA256: s.Sum(), Source: src}
		switch {
		case s.Inherited:
			r.State = "inherited"
		case s.Candidate != "":
			r.State = "candidate"
		default:
			g.Last = src
		}
		g.Requests = append(g.Requests, r)
	}
	return nil
}

func name(s *drift.Sent) string {
	if s.Attempt > 1 {
		return fmt.Sprintf("%d.%d.%d", s.Turn, s.Step, s.Attempt)
	}
	return fmt.Sprintf("%d.%d", s.Turn, s.Step)
}
