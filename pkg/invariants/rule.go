package invariants

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Severity is the weight of a finding.
type Severity uint8

const (
	Note    Severity = iota // never changes a verdict
	Warning                 // every verified log keeps the rule, and no build enforced it
	Error                   // the builds that may have written the log refuse it, or their own checks fail
)

var severityNames = [...]string{"note", "warning", "error"}

func (s Severity) String() string { return severityNames[s] }

// MarshalText gives the name used in machine formats.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (s *Severity) UnmarshalText(b []byte) error {
	for i, n := range severityNames {
		if n == string(b) {
			*s = Severity(i)
			return nil
		}
	}
	return fmt.Errorf("unknown severity %q", b)
}

// A Rule is one statement about logs. Its id is stable and never used for
// anything else.
type Rule struct {
	ID       string
	Severity Severity
	Title    string   // a line that completes "the rule says that …"
	Text     string   // what it means and why it matters
	How      string   // how a log comes to break it
	Advice   string   // what to do about it
	Spec     string   // the sections it implements
	Since    Build    // first build that held to it; 0: from the start
	Until    Build    // last build that held to it; 0: still
	Types    []string // event types its checker wants to see; nil: all
	// Alone tells that the checker judges an event by itself. Other checkers do
	// not see events that stand out of place in the numbering.
	Alone bool
	// New makes a checker for one log. It is nil for rules whose findings come
	// from elsewhere: from the reader (physical damage) or from CompareRequests.
	New func() Checker

	stream bool // its findings come from the stream that all such rules share
}

// Eras is the range of eras in which the rule holds.
func (r *Rule) Eras() fold.Eras {
	return Builds{max(r.Since, firstBuild), between{0, r.Until}.last()}.Eras()
}

// When says in words when the rule holds.
func (r *Rule) When() string {
	if first := r.firstGeneration(); first > 0 {
		return fmt.Sprintf("from generation %d", first)
	}
	return r.whenFirst() + generationList(r.Generations())
}

// Generations are the format generations after 0 in which the rule is checked. It
// is empty for rules that do not depend on the generation.
func (r *Rule) Generations() []int64 {
	for _, about := range [...]string{"ROOT-", "ZIP-", "DB-"} {
		if strings.HasPrefix(r.ID, about) {
			return nil // about the place of a log
		}
	}
	var out []int64
	for _, g := range later {
		own := slices.ContainsFunc(g.own, func(o genRule) bool { return o.id == r.ID })
		shared := (r.New != nil || r.stream) && g.shares(r.ID) && !(ofWriter[r.ID] && g.version == 1)
		if own || shared {
			out = append(out, g.version)
		}
	}
	return out
}

func generationList(gens []int64) string {
	switch n := len(gens); n {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(", and in generation %d", gens[0])
	case 2:
		return fmt.Sprintf(", and in generations %d and %d", gens[0], gens[1])
	default:
		return fmt.Sprintf(", and in generations %d to %d", gens[0], gens[n-1])
	}
}

// whenFirst is the part of When about the eras of generation 0.
func (r *Rule) whenFirst() string {
	switch {
	case r.Since == 0 && r.Until == 0:
		return "all eras"
	case r.Until == 0:
		return fmt.Sprintf("from %s (era E%d)", r.Since, r.Since.Era())
	case r.Since == 0:
		return fmt.Sprintf("until %s (era E%d)", r.Until, r.Until.Era())
	}
	return fmt.Sprintf("from %s (era E%d) until %s (era E%d)", r.Since, r.Since.Era(), r.Until, r.Until.Era())
}

// active reports whether every build of the range held to the rule.
func (r *Rule) active(b Builds) bool {
	return (r.Since == 0 || b.Since(r.Since)) && (r.Until == 0 || b.Max <= r.Until)
}

// A Checker looks at one log for one rule. It is fed the events in order, after
// the shared state took in everything before the event and before it takes in
// the event itself.
type Checker interface {
	Event(c *Context, e *logfmt.Event)
	End(c *Context)
}

// check is a checker without state of its own and without a last word.
type check func(c *Context, e *logfmt.Event)

func (f check) Event(c *Context, e *logfmt.Event) { f(c, e) }
func (f check) End(*Context)                      {}

func stateless(f check) func() Checker { return func() Checker { return f } }

var (
	registry []*Rule
	byID     = map[string]*Rule{}
)

// register adds rules to the catalogue. Order of registration is the order of
// findings at one and the same place.
func register(rules ...*Rule) {
	for _, r := range rules {
		if byID[r.ID] != nil {
			panic("invariants: rule " + r.ID + " registered twice")
		}
		byID[r.ID] = r
		registry = append(registry, r)
	}
}

func init() {
	register(logRules...)
	register(lineRules...)
	register(frameRules...)
	register(databaseRules...)
	register(shapeRules...)
	register(turnRules...)
	register(surfaceRules...)
	register(headerRules...)
	register(compactionRules...)
	register(compactionPluginRules...)
	register(toolPluginRules...)
	register(retryRules...)
	register(sessionPluginRules...)
	register(teamRules...)
	register(goalRules...)
	register(inboxRules...)
	register(requestRules...)
	register(rootRules...)
	register(zipRules...)
	register(streamRules...)
	register(witnessRules...)
	register(driftRules...)
	register(hazardRules...)
	register(retiredRules...)
	register(cacheRules...)
	register(lineageRules...)
	register(paranoidRules...)
	registerMissing(genRules...)
}

// All returns every rule, by id.
func All() []*Rule {
	out := append([]*Rule(nil), registry...)
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out
}

// Lookup returns the rule with that id, nil when there is none.
func Lookup(id string) *Rule { return byID[id] }
