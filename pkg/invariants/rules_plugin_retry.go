package invariants

import (
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

var retryTypes = []string{"llm/retry", "llm/retry-started", "step/start", "step/end", "turn/start", "turn/end"}

// Rules about retries of failed requests.
var retryRules = []*Rule{
	{
		ID: "RETRY", Severity: Error, Since: buildFailure, Spec: "SEMANTICS §8.2, §1.2, §6.4",
		Title:  "a retry follows its failure and is counted",
		Text:   "The failure has a message and a code that are not empty, a status of 100 to 599, a positive wait. Retries count from 1, up to maxRetries in mode normal and without it in mode always; the delay is one a timer can keep. A retry stands in the turn it names. From 08-05 it stands in the step as well, its provider is that of the header, and each one counts on from the one before of the same policy; from 08-09 a chain of retries keeps its id and no other chain has it. Before 07-21 a breach is a warning. From generation 2 on the numbers of the failure, of the delay and of the limit are warnings, and a retry may stand behind the end of its step.",
		How:    "An event was lost or edited, or two processes share the log.",
		Advice: "The attempts of the step show what was really sent; compare their number with the retries.",
		Types:  retryTypes,
		New:    func() Checker { return new(retryChecker) },
	},
	{
		ID: "RETRY-START", Severity: Error, Since: buildIDs, Spec: "SEMANTICS §8.2, §6.4",
		Title:  "a retry starts once, after it was scheduled",
		Text:   "llm/retry-started names a retry that was scheduled in the same step, by its id and number, and none that was started before.",
		How:    "The llm/retry was lost or edited, or two processes share the log.",
		Advice: "Look for the llm/retry with that id. A start without it is no evidence of another request; the chunks are.",
		Types:  retryTypes,
		New:    func() Checker { return new(retryStartChecker) },
	},
}

const maxTimer = 1<<31 - 1 // ms that a timer of the runtime can wait

type retryChain struct {
	last int64
	id   []byte
}

type retryChecker struct {
	chains map[string]*retryChain // of the open step, by provider and policy
	used   ledger[struct{}]       // ids of chains
	lost   int64
	blind  bool // events of the step were lost
}

func (r *retryChecker) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&r.lost) {
		r.blind = true
	}
	switch e.Type {
	case "llm/retry":
		r.check(c, e)
	case "llm/retry-started":
	default:
		clear(r.chains)
		r.blind = false
	}
}

func (r *retryChecker) End(*Context) {}

// retryValues checks what a retry says by itself. It returns its number and
// whether it has a usable one.
func retryValues(c *Context, e *logfmt.Event) (n int64, counted bool) {
	d := e.Data
	report := func(path, format string, args ...any) {
		c.weigh(c.Report(e, "data."+path, format, args...), buildCompanions)
	}
	c.empty(e, "failure.message", buildCompanions)
	c.empty(e, "failure.code", buildCompanions)
	c.empty(e, "failure.requestId", buildCompanions)
	fail := jsjson.Get(d, "failure")
	if v := jsjson.Get(fail, "status"); jsjson.KindOf(v) == jsjson.Number {
		if n, ok := jsjson.SafeInt(v); !ok || n < 100 || n > 599 {
			report("failure.status", "failure.status of llm/retry is %s, expected a whole number of 100 to 599", show(v))
		}
	}
	if v := jsjson.Get(fail, "providerRetryAfterMs"); jsjson.KindOf(v) == jsjson.Number {
		if f, ok := jsjson.Float(v); ok && f <= 0 {
			report("failure.providerRetryAfterMs", "failure.providerRetryAfterMs of llm/retry is %s, expected more than 0", show(v))
		}
	}
	if v := jsjson.Get(d, "delayMs"); jsjson.KindOf(v) == jsjson.Number {
		if f, ok := jsjson.Float(v); ok && (f < 0 || f > maxTimer) {
			report("delayMs", "delayMs of llm/retry is %s, expected a number of 0 to %d", show(v), maxTimer)
		}
	}
	n, counted = jsjson.SafeInt(jsjson.Get(d, "retry"))
	if v := jsjson.Get(d, "retry"); jsjson.KindOf(v) == jsjson.Number && wantPositive(v) != "" {
		report("retry", "retry of llm/retry is %s, expected %s", show(v), wantPositive(v))
		counted = false
	}
	retryLimit(c, e, n, counted)
	return n, counted
}

func (r *retryChecker) check(c *Context, e *logfmt.Event) {
	d := e.Data
	report := func(path, format string, args ...any) {
		c.weigh(c.Report(e, "data."+path, format, args...), buildCompanions)
	}
	n, counted := retryValues(c, e)
	if !c.turnOf(e, c.turn, buildCompanions) || !c.Builds.Since(buildReact) {
		return
	}
	if id, _ := jsjson.Str(jsjson.Get(d, "retryId")); c.gen != nil && strings.HasPrefix(id, "legacy-retry:") {
		return // made by the step to generation 1 for a retry that builds before 08-09 logged
	}
	if c.step > 0 && c.Step.Known && c.Turn.Known && !c.Step.names(c.step) {
		if c.Step.Open {
			report("step", "llm/retry names step %d, expected the open step %s", c.step, number(c.Step.N))
		} else {
			report("step", "llm/retry names step %d, but no step is open", c.step)
		}
		return
	}
	provider := jsjson.Get(d, "provider")
	if c.Header != nil && !c.HeaderLost && jsjson.KindOf(provider) == jsjson.String {
		if want := jsjson.Get(jsjson.Get(c.Header.JSON(), "config"), "provider"); want != nil && !jsjson.Equal(provider, want) {
			report("provider", "provider of llm/retry is %s, expected that of the header, %s", show(provider), show(want))
		}
	}
	r.chain(c, e, n, counted)
}

// retryLimit checks the number of a retry against how many there may be.
func retryLimit(c *Context, e *logfmt.Event, n int64, counted bool) {
	limit := jsjson.Get(e.Data, "maxRetries")
	if jsjson.StrEq(jsjson.Get(e.Data, "mode"), "always") {
		if limit != nil {
			c.weigh(c.Report(e, "data.maxRetries", "maxRetries of llm/retry is %s, expected none in mode always", show(limit)), buildCompanions)
		}
		return
	}
	most, ok := jsjson.SafeInt(limit)
	switch {
	case limit == nil || jsjson.KindOf(limit) == jsjson.Number && (!ok || most < 1):
		c.weigh(c.Report(e, "data.maxRetries", "maxRetries of llm/retry is %s, expected a whole number from 1", show(limit)), buildCompanions)
	case ok && counted && n > most:
		c.weigh(c.Report(e, "data.retry", "retry of llm/retry is %d, expected at most maxRetries, %d", n, most), buildCompanions)
	}
}

// chain checks the number and the id of a retry against the one before it.
func (r *retryChecker) chain(c *Context, e *logfmt.Event, n int64, counted bool) {
	if !c.Turn.Known || !c.Step.Known || c.step < 0 {
		return
	}
	key := string(jsjson.Get(e.Data, "provider")) + string(jsjson.Get(e.Data, "policyKey"))
	if r.chains == nil {
		r.chains = map[string]*retryChain{}
	}
	ch := r.chains[key]
	id := jsjson.Get(e.Data, "retryId")
	used, usable := idOf(id)
	fresh := ch == nil
	if fresh {
		if len(r.chains) == 256 {
			return
		}
		ch = new(retryChain)
		r.chains[key] = ch
	}
	if counted && !(fresh && r.blind) && n != ch.last+1 {
		c.Report(e, "data.retry", "retry of llm/retry is %d, expected %d: one more than the retry before it in the step", n, ch.last+1)
	}
	if counted {
		ch.last = n
	}
	if !c.Builds.Since(buildIDs) || !usable {
		return
	}
	_, known := r.used.get(used)
	switch {
	case !fresh && ch.id != nil && string(ch.id) != string(id):
		c.Report(e, "data.retryId", "retryId of llm/retry is %s, expected that of the retry before it in the step, %s", show(id), show(ch.id))
	case fresh && known && !r.blind:
		c.Report(e, "data.retryId", "retryId of llm/retry is %s, which other retries had before", show(id))
	}
	ch.id = clone(id)
	r.used.put(used, struct{}{})
}

type scheduledRetry struct {
	n       int64
	started bool
	at      Related
}

type retryStartChecker struct {
	open  ledger[*scheduledRetry] // of the step, the last one of each id
	lost  int64
	blind bool
}

func (r *retryStartChecker) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&r.lost) {
		r.blind = true
	}
	id := jsjson.Get(e.Data, "retryId")
	key, ok := idOf(id)
	n, counted := jsjson.SafeInt(jsjson.Get(e.Data, "retry"))
	switch e.Type {
	case "llm/retry":
		if ok && counted {
			r.open.put(key, &scheduledRetry{n: n, at: Related{e.Seq, e.Pos.Line, "the retry was scheduled here"}})
		}
		return
	case "llm/retry-started":
	default:
		r.open.reset()
		r.blind = false
		return
	}
	if !ok || !counted {
		return
	}
	s, seen := r.open.get(key)
	switch {
	case !seen:
		if !r.blind && !r.open.blind && c.Turn.Known && c.Step.Known {
			c.Report(e, "data.retryId", "llm/retry-started names the retry %s, expected an llm/retry with that id before it in the step", show(id))
		}
	case s.n != n:
		if !r.blind {
			f := c.Report(e, "data.retry", "llm/retry-started starts retry %d of %s, expected the scheduled one, %d", n, show(id), s.n)
			f.Related = append(f.Related, s.at)
		}
	case s.started:
		f := c.Report(e, "", "llm/retry-started starts retry %d of %s a second time", n, show(id))
		f.Related = append(f.Related, s.at)
	case c.Turn.Known && c.Step.Known && c.turn > 0 && c.step > 0 && !(c.Turn.names(c.turn) && c.Step.names(c.step)):
		f := c.Report(e, "data.step", "llm/retry-started names turn %d step %d, expected those of the retry, turn %s step %s", c.turn, c.step, number(c.Turn.N), number(c.Step.N))
		f.Related = append(f.Related, s.at)
	default:
		s.started = true
	}
}

func (r *retryStartChecker) End(*Context) {}
