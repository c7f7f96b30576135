// Package migrate says whether the harness's own chain of format migrations would
// take a log to a later generation, and if not, which step refuses it and why. It
// implements FORMATS §4.5, §5.5, §6.5, §7.5 and §8.
//
// # The chain
//
// A log is decoded, then taken from one generation to the next. Each step refuses
// what it cannot carry over, and what comes out of it has to pass the rules of its
// generation before the next step begins:
//
//	read        there is a header line
//	vN-decode   header record and records are exactly those of generation N
//	vN-to-vM    the step itself
//	vN-restore  the rules of generation N over what came out
//
// A step looks at the whole log before the next one begins, so a refusal of an
// earlier step counts, wherever in the log it lies. The chain is followed in one
// pass all the same: every step keeps its first refusal, and the earliest step
// with one has the last word.
//
// # What comes out
//
// The events of every generation are produced on the way, in the numbering of that
// generation, but without the chunks of embedded streams: nothing refuses a log for
// those. They are judged by the rules of package invariants.
//
// # What is not known
//
// The step to generation 4 was never run with the harness's own code: its verdict
// is unverified. That step ends with a list of the session's children, for which it
// reads their logs. The list is left out of what comes out here; Follow tells it from
// what came later.
package migrate

import (
	"context"
	"fmt"
	"strconv"

	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// A Result is what the chain makes of a log.
type Result struct {
	From, To int64
	Accepted bool
	// Stage names the step that refuses the log: "read", "v0-decode", "v0-to-v1",
	// "v1-restore", …; "" when none does.
	Stage   string
	Rule    string // what it refuses it for: the id of a rule, or a name of this package
	Seq     int64  // of the event in the log as it is; -1 when none is meant
	Line    int64  // its physical line; 0 when unknown
	Message string // lower case, safe to print after escaping
	Advice  string // what would make it acceptable; may be empty
	// Unverified tells that the step to the target was never run with the harness's
	// own code.
	Unverified bool
	Events     int64 // of the target generation, when accepted
}

// Latest is the newest generation that the chain leads to.
const Latest = 4

// stage is a place in the chain, in its order.
type stage int

// at is the stage of a step of generation n: its decoding, its restore, or the step
// to the next one.
func decoding(n int64) stage { return stage(3*n) + 1 }
func restore(n int64) stage  { return stage(3*n) + 2 }
func step(n int64) stage     { return stage(3*n) + 3 }

const reading stage = 0

func (s stage) String() string {
	if s == reading {
		return "read"
	}
	n := strconv.Itoa(int(s-1) / 3)
	switch (s - 1) % 3 {
	case 0:
		return "v" + n + "-decode"
	case 1:
		return "v" + n + "-restore"
	}
	return "v" + n + "-to-v" + strconv.Itoa(int(s-1)/3+1)
}

// refusal is why a step refuses a log.
type refusal struct {
	rule, message, advice string
	seq, line             int64
}

// chain is the state that all steps share.
type chain struct {
	to       int64
	refusals map[stage]*refusal
}

// open reports whether a refusal of the stage could still have the last word.
func (c *chain) open(s stage) bool {
	for t := range c.refusals {
		if t <= s {
			return false
		}
	}
	return true
}

// refuse keeps the first refusal of a stage.
func (c *chain) refuse(s stage, r *row, rule, advice, format string, args ...any) {
	if c.refusals[s] != nil {
		return
	}
	x := &refusal{rule: rule, advice: advice, seq: -1, message: fmt.Sprintf(format, args...)}
	if r != nil {
		x.seq, x.line = r.src, r.line
	}
	c.refusals[s] = x
}

// result draws the conclusion.
func (c *chain) result(from int64) *Result {
	res := &Result{From: from, To: c.to, Accepted: true, Seq: -1, Unverified: c.to >= 4}
	first := stage(1 << 30)
	for s := range c.refusals {
		first = min(first, s)
	}
	if r := c.refusals[first]; r != nil {
		res.Accepted, res.Stage, res.Rule = false, first.String(), r.rule
		res.Seq, res.Line, res.Message, res.Advice = r.seq, r.line, r.message, r.advice
	}
	return res
}

// Check follows the chain from the generation of the log to another one. The error
// is that of the context.
func Check(ctx context.Context, log *logfmt.Log, to int64) (*Result, error) {
	return run(ctx, log, to, nil)
}

// run is Check; with watch, every row that comes out is shown with its generation.
func run(ctx context.Context, log *logfmt.Log, to int64, watch func(gen int64, line []byte)) (*Result, error) {
	c := &chain{to: to, refusals: map[stage]*refusal{}}
	from := source(c, log)
	if from > to {
		c.refuse(decoding(to), nil, logfmt.RuleFormat, "", "a build of generation %d reads no log of generation %d", to, from)
		return c.result(from), nil
	}
	steps := newSteps(ctx, c, log, from, watch)
	err := decode(ctx, c, log, from, steps)
	events := steps.close()
	if err != nil {
		return nil, err
	}
	res := c.result(from)
	if res.Accepted {
		res.Events = events
	}
	return res, nil
}
