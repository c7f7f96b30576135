package invariants

import (
	"fmt"
	"math"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about what providers report of their prefix caches. A shortfall that
// the log explains is a note, whatever the rule says.
var cacheRules = []*Rule{
	{
		ID: "CACHE-ZERO", Severity: Warning, Spec: "SEMANTICS §9; WIRE §4.2, §4.3",
		Title:  "a request that begins like the one before reads from the cache",
		Text:   "A provider keeps its work on the beginning of a request and reads it again when the next one begins alike. A request whose beginning had at least " + cacheMinText + " tokens and of which nothing was read paid for all of them again. A note when the log shows a cause: a changed header, a replaced part of the history, a new process, a long pause.",
		How:    "The provider dropped its cache or sent the request to another machine, or something outside the log changed the beginning of the request.",
		Advice: "One such step is chance. If they come often, compare the two requests with dsh-diff and look at what the adapter makes of them.",
	},
	{
		ID: "CACHE-COLLAPSE", Severity: Warning, Spec: "SEMANTICS §9; WIRE §4.2, §4.3",
		Title:  "a request that begins like the one before reads most of it from the cache",
		Text:   "When less than half of the request before was read again, the beginning that the provider knew ended early: something in the first half differs, or was dropped. A note when the log shows a cause.",
		How:    "As for CACHE-ZERO; or the adapter changes early messages from request to request.",
		Advice: "Compare the two requests with dsh-diff: the first difference is where the reuse ends.",
	},
}

const (
	cacheMin     = 1024 // tokens of a request from which a read from the cache is expected
	cacheMinText = "1024"
	cacheUnit    = 128           // tokens that are kept together (WIRE §4.2)
	cacheIdle    = 5 * 60 * 1000 // ms after which the shortest-lived caches are gone
)

// Tokens are sums of what providers reported (SEMANTICS §9).
type Tokens struct {
	Reports    int64 // how many reports were added
	Input      int64 // prompt tokens that were neither read from nor written to a cache
	Output     int64 // includes Reasoning
	CacheRead  int64
	CacheWrite int64
	Reasoning  int64
}

// Prompt is the size of all prompts.
func (t Tokens) Prompt() int64 { return plus(plus(t.Input, t.CacheRead), t.CacheWrite) }

func (t *Tokens) add(u Tokens) {
	t.Reports = plus(t.Reports, u.Reports)
	t.Input = plus(t.Input, u.Input)
	t.Output = plus(t.Output, u.Output)
	t.CacheRead = plus(t.CacheRead, u.CacheRead)
	t.CacheWrite = plus(t.CacheWrite, u.CacheWrite)
	t.Reasoning = plus(t.Reasoning, u.Reasoning)
}

// plus adds counts that a log claims, which may be anything.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Usage is what a log's own requests cost, every request counted once: a report
// stands in the chunks and again in the message, a failed attempt has one too,
// and what was inherited from a parent was paid for there.
type Usage struct {
	Requests    Tokens
	Silent      int64  // own requests without a report
	Compactions Tokens // of the calls that summed up the history (from 07-29)
	Inherited   int64  // reports of inherited requests, not added
	// CacheChecked counts the requests whose reads from the cache were held
	// against the request before.
	CacheChecked int64
}

// readTokens reads a usage report; hasRead tells whether it speaks of reads from
// the cache.
func readTokens(v []byte) (t Tokens, hasRead, ok bool) {
	if jsjson.KindOf(v) != jsjson.Object {
		return t, false, false
	}
	count := func(key string) (int64, bool) {
		n, ok := jsjson.SafeInt(jsjson.Get(v, key))
		return max(n, 0), ok && n >= 0
	}
	t.Reports = 1
	_, in := jsjson.SafeInt(jsjson.Get(v, "inputTokens"))
	t.Input, _ = count("inputTokens")
	t.Output, _ = count("outputTokens")
	t.CacheRead, hasRead = count("cacheReadTokens")
	t.CacheWrite, _ = count("cacheWriteTokens")
	t.Reasoning, _ = count("reasoningTokens")
	return t, hasRead && in, true
}

// witness follows the requests of a log: what they cost, and how each compares
// with the one before.
type witness struct {
	usage  Usage
	churn  churn
	extend extend
	// unpaid is the last own request when no report of it was found yet: in the
	// earliest logs it comes behind the answer.
	unpaid     bool
	unpaidSeed bool

	ref        *fold.Request // the last request with a report
	refTokens  Tokens
	refTime    int64
	refFailed  bool
	refProcess int
}

// request takes the next request, which event e has ended; nil at the end of
// the log.
func (w *witness) request(c *Context, r *fold.Request, e *logfmt.Event) {
	report := c.reported(r, e)
	t, hasRead, ok := readTokens(report)
	if r.Candidate != "" && !ok {
		return
	}
	w.unpaid, w.unpaidSeed = !ok, r.Inherited
	switch {
	case r.Inherited && ok:
		w.usage.Inherited++
	case r.Inherited:
	case ok:
		w.usage.Requests.add(t)
	default:
		w.usage.Silent++
	}
	if !r.Inherited {
		w.churn.request(c, r)
	}
	w.extend.request(c, r)
	if !ok {
		return
	}
	process := c.fold.f.Process()
	if hasRead && w.ref != nil && !r.Inherited {
		w.cache(c, r, t, process)
	}
	w.ref, w.refTokens, w.refProcess = r, t, process
	w.refTime = c.stream.time
	w.refFailed = r.Response < 0
}

// reported is the usage of a request: of its chunks, or of its message when it
// had none.
func (c *Context) reported(r *fold.Request, e *logfmt.Event) []byte {
	if r.FirstChunk >= 0 {
		if c.stream.place.Seq == r.FirstChunk {
			if u := c.stream.asm.Usage(); u != nil {
				return u
			}
		}
	}
	if r.Response >= 0 && e != nil && e.Seq == r.Response {
		return jsjson.Get(e.Data, "usage")
	}
	return nil
}

// cache holds the reads of a request against what the one before left behind.
func (w *witness) cache(c *Context, r *fold.Request, t Tokens, process int) {
	expected := w.refTokens.Prompt() / cacheUnit * cacheUnit
	if expected < cacheMin || t.Prompt() < cacheMin {
		return
	}
	w.usage.CacheChecked++
	if t.CacheRead >= expected/2 {
		return
	}
	id, found := "CACHE-COLLAPSE", fmt.Sprintf("only %d", t.CacheRead)
	if t.CacheRead == 0 {
		id, found = "CACHE-ZERO", "none"
	}
	causes := w.causes(c, r, process)
	f := c.tellAt(id, c.requestPlace(r), "", "turn %d step %d read %s of its %d prompt tokens from the cache, expected about %d, the request of turn %d step %d",
		r.Turn, r.Step, found, t.Prompt(), expected, w.ref.Turn, w.ref.Step)
	if len(causes) > 0 {
		f.Severity = Note
		f.Message += ": " + strings.Join(causes, "; ")
	}
}

// causes lists what the log shows that may have kept the provider from reusing
// the request before.
func (w *witness) causes(c *Context, r *fold.Request, process int) (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if a, b := w.ref.Header(), r.Header(); a != b && a != nil && b != nil {
		switched := ""
		var fields []string
		for _, ch := range headerChanges(a, b) {
			switch {
			case ch.field == "provider" || ch.field == "model":
				switched = "another model was asked"
			case !outsidePrompt[ch.field]:
				fields = append(fields, ch.field)
			}
		}
		if switched != "" {
			add("%s", switched)
		}
		if len(fields) > 0 {
			add("the header changed in %s at seq %d", strings.Join(fields, ", "), r.HeaderSeq)
		}
	}
	if n := r.SharedNodes(w.ref); n < len(w.ref.Nodes()) {
		node := int64(-1)
		what := "the history was replaced"
		if n < len(r.Nodes()) {
			node = r.Nodes()[n].Seq
			switch r.Nodes()[n].Type {
			case "tool/result":
				what = "a tool result was pruned"
			case "user/message":
				what = "the history was compacted"
			}
		}
		add("%s from message %d on at seq %d", what, n+1, node)
	}
	switch {
	case r.Inherited != w.ref.Inherited:
		add("the session was forked from its parent")
	case process != w.refProcess:
		add("another process took over")
	case r.HeaderSeq != w.ref.HeaderSeq && r.HeaderReason == "resume":
		add("another process took over")
	}
	if pause := c.stream.began - w.refTime; pause >= cacheIdle {
		add("%s had passed", plural.Count(pause/60_000, "minute"))
	}
	if w.refFailed && w.ref.Turn == r.Turn && w.ref.Step == r.Step {
		add("the attempt before it failed")
	}
	return out
}

// after takes the reports that stand in events of their own.
func (w *witness) after(c *Context, e *logfmt.Event) {
	switch e.Type {
	case "usage":
		if t, _, ok := readTokens(jsjson.Get(e.Data, "usage")); ok && w.unpaid {
			w.unpaid = false
			if w.unpaidSeed {
				w.usage.Inherited++
				return
			}
			w.usage.Silent--
			w.usage.Requests.add(t)
		}
	case "compaction/summary", "compact/summary":
		if t, _, ok := readTokens(jsjson.Get(e.Data, "usage")); ok && !c.Inherited(e) {
			w.usage.Compactions.add(t)
		}
	}
}
