package invariants

import (
	"bytes"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about request headers.
var headerRules = []*Rule{
	{
		ID: "HDR-SHAPE", Severity: Error, Alone: true, Spec: "SEMANTICS §3.3, §5.1, §5.3; PHYSICAL §6.4",
		Title:  "a request header has the shape of its era",
		Text:   "A header holds the call config, and may hold the system prompt, the tools and, in their time, a message prefix and marks for what the adapter filled in. The config names a model, from 07-17 a provider too. The harness refuses a session in which it does not.",
		How:    "The event was edited, or a plugin wrote it past the harness.",
		Advice: "Restore the event from a copy. Every request up to the next header is rebuilt from this one.",
		Types:  []string{"request/header"},
		New:    stateless(checkHeaderShape),
	},
	{
		ID: "HDR-DELTA", Severity: Error, Spec: "SEMANTICS §5.4, §5.5",
		Title:  "a header delta fits the header before it",
		Text:   "From 07-06 to 07-17 a changed header could be logged as a delta: lines kept at both ends of the prompt, tools added, removed and changed, a new config. A delta that refers to more than the header before it has, or has no header before it, folds to something no writer meant, without an error.",
		How:    "The delta was edited, or the snapshot it builds on was lost.",
		Advice: "Compare with a copy of the session. Requests from here to the next snapshot are rebuilt as the harness would have folded them.",
		Types:  []string{"request/header-delta"},
		New:    stateless(checkDelta),
	},
	{
		ID: "HDR-FIRST", Severity: Warning, Since: eraStart[fold.E3], Spec: "SEMANTICS §5.4, §8.1",
		Title:  "a header is logged before the first chunk",
		Text:   "From 07-06 the first request of a log has its header in the log before the model answers. Without it the request cannot be rebuilt.",
		How:    "The header event was lost or edited, or the log was written by hand.",
		Advice: "Compare with a copy, or with the parent log of a fork.",
		Types:  []string{"assistant/chunk", "request/header", "request/header-delta"},
		New:    func() Checker { return new(firstHeaderChecker) },
	},
	{
		ID: "HDR-INITIAL", Severity: Warning, Since: eraStart[fold.E3], Spec: "SEMANTICS §5.4, §8.1",
		Title:  "the reason of a header fits its place",
		Text:   "initial is the reason of the first header of a log, resume that of the first header of a later process, and change, fallback and deltas amend a header of their own process.",
		How:    "The event was edited, events before it were lost, or two processes wrote into one log.",
		Advice: "Look at the header before this one and at the session/end-seed between them.",
		Types:  []string{"request/header", "session/end-seed"},
		New:    func() Checker { return new(reasonChecker) },
	},
	{
		ID: "HDR-NOOP", Severity: Warning, Since: eraStart[fold.E3], Spec: "SEMANTICS §5.2, §5.4, §8.1",
		Title:  "a header change changes something",
		Text:   "A header is logged again within a process only when it differs from the one before, and as a whole in the time of deltas only when no delta could say it.",
		How:    "The event was edited, or written by something other than the loop.",
		Advice: "Nothing is lost: the requests are the same with and without it.",
		Types:  []string{"request/header", "request/header-delta"},
		New:    stateless(checkNoop),
	},
	{
		ID: "HDR-CANON", Severity: Warning, Since: eraStart[fold.E3], Spec: "SEMANTICS §5.2, §8.1",
		Title:  "a header is logged in canonical form",
		Text:   "The writer leaves out an empty prompt, an empty list of tools and marks that mark nothing, and keeps the keys in one order.",
		How:    "The event was edited, or written by something other than the loop.",
		Advice: "Nothing is lost: the fold brings it into canonical form.",
		Types:  []string{"request/header"},
		New:    stateless(checkCanon),
	},
}

func checkHeaderShape(c *Context, e *logfmt.Event) {
	if e.Fault&logfmt.FaultNoData != 0 {
		return
	}
	d := e.Data
	if jsjson.KindOf(d) != jsjson.Object {
		c.Report(e, "data", "data of request/header is %s, expected an object", show(d))
		return
	}
	reason, ok := jsjson.Str(jsjson.Get(d, "reason"))
	switch {
	case !ok:
		c.Report(e, "data.reason", "reason of the header is %s, expected a string", show(jsjson.Get(d, "reason")))
	case reason == "fallback":
		if c.Builds.Since(buildNoDelta) {
			c.Report(e, "data.reason", `reason of the header is "fallback", which builds since %s refuse; expected initial, resume or change`, buildNoDelta)
		}
	case reason == "series":
		// From 0.1.2 on: the same conversation, a new series of requests for the cache.
	case reason != "initial" && reason != "resume" && reason != "change":
		c.Report(e, "data.reason", "reason of the header is %s, expected initial, resume, change or fallback", quoted(reason)).Severity = Warning
	}
	h := jsjson.Get(d, "header")
	if jsjson.KindOf(h) != jsjson.Object {
		c.Report(e, "data.header", "header is %s, expected an object", show(h))
		return
	}
	checkConfig(c, e, jsjson.Get(h, "config"))
	opt := func(key string, w want) bool {
		v := jsjson.Get(h, key)
		if v == nil {
			return false
		}
		if exp := w(v); exp != "" {
			c.Report(e, "data.header."+key, "%s of the header is %s, expected %s", key, show(v), exp)
			return false
		}
		return true
	}
	opt("system", wantString)
	// In a fixture a token stands for all of them, or each is its name.
	if v := jsjson.Get(h, "tools"); !jsjson.StrEq(v, "{{tools}}") && opt("tools", wantArray) {
		n := 0
		for t := range jsjson.Elements(jsjson.Get(h, "tools")) {
			if wantString(jsjson.Get(t, "name")) != "" && !jsjson.StrEq(t, "{{tools}}") &&
				!(c.log.Container == logfmt.Golden && jsjson.KindOf(t) == jsjson.String) {
				c.Report(e, "data.header.tools["+number(int64(n))+"]", "tool %d of the header has the name %s, expected a string", n, show(jsjson.Get(t, "name")))
				break
			}
			n++
		}
	}
	if v := jsjson.Get(h, "messagePrefix"); !jsjson.StrEq(v, "{{messagePrefix}}") {
		opt("messagePrefix", wantArray)
	}
	checkDefaults(c, e, h)
}

func checkConfig(c *Context, e *logfmt.Event, config []byte) {
	if jsjson.KindOf(config) != jsjson.Object {
		c.Report(e, "data.header.config", "config of the header is %s, expected an object", show(config))
		return
	}
	member := func(key string, w want) {
		v := jsjson.Get(config, key)
		if exp := w(v); exp != "" {
			c.Report(e, "data.header.config."+key, "%s of the config is %s, expected %s", key, show(v), exp)
		}
	}
	opt := func(key string, w want) {
		if jsjson.Get(config, key) != nil {
			member(key, w)
		}
	}
	if c.Builds.Since(buildProvider) {
		member("provider", wantText)
		member("model", wantText)
	} else {
		opt("provider", wantString)
		member("model", wantString)
	}
	if c.Builds.Since(buildEffort) {
		opt("reasoningEffort", wantText)
	}
	opt("temperature", wantNumber)
	opt("maxTokens", wantNumber)
	opt("stop", wantArray)
}

func checkDefaults(c *Context, e *logfmt.Event, h []byte) {
	v := jsjson.Get(h, "adapterDefaults")
	if v == nil {
		return
	}
	if jsjson.KindOf(v) != jsjson.Object {
		c.Report(e, "data.header.adapterDefaults", "adapterDefaults is %s, expected an object", show(v))
		return
	}
	config := jsjson.Get(h, "config")
	for k, mark := range jsjson.Members(v) {
		key, _ := jsjson.Str(k)
		switch {
		case key != "reasoningEffort" && key != "maxTokens":
			c.Report(e, "data.header.adapterDefaults", "adapterDefaults marks %s, expected reasoningEffort or maxTokens", quoted(key))
		case string(mark) != "true":
			c.Report(e, "data.header.adapterDefaults."+key, "adapterDefaults %s is %s, expected true", key, show(mark))
		case jsjson.Get(config, key) == nil:
			c.Report(e, "data.header.adapterDefaults."+key, "adapterDefaults marks %s, which the config does not have", key)
		}
	}
}

func checkDelta(c *Context, e *logfmt.Event) {
	if c.Header == nil {
		if c.HeaderLost {
			return
		}
		c.Report(e, "", "the delta has no header before it, expected a request/header first")
		return
	}
	if c.HeaderLost || c.Header.Scrubbed() || fold.ScrubbedDelta(e.Data) {
		return
	}
	for _, d := range fold.DeltaDefects(c.Header, e.Data) {
		if emptyChange(d) {
			continue
		}
		c.Report(e, deltaPath(d), "%s of the delta %s", d.Path, printable(d.Problem))
	}
}

// emptyChange reports whether a defect is that the delta says nothing, which is
// of no consequence.
func emptyChange(d fold.DeltaDefect) bool {
	return d.Problem == "is empty" || strings.HasPrefix(d.Problem, "changes no")
}

type firstHeaderChecker struct{ done bool }

func (h *firstHeaderChecker) Event(c *Context, e *logfmt.Event) {
	if h.done || e.Type != "assistant/chunk" {
		h.done = true
		return
	}
	h.done = true
	if c.HeaderSeen || c.HeaderLost || !c.Turn.Known || !c.Step.Known {
		return
	}
	c.Report(e, "", "the model answers before any request/header, expected one first")
}

func (h *firstHeaderChecker) End(*Context) {}

type reasonChecker struct {
	boundary bool // a session/end-seed stands between the header before and now
}

func (r *reasonChecker) Event(c *Context, e *logfmt.Event) {
	if e.Type == "session/end-seed" {
		r.boundary = true
		return
	}
	boundary := r.boundary
	r.boundary = false
	reason, ok := jsjson.Str(jsjson.Get(e.Data, "reason"))
	if !ok || c.HeaderLost || c.Inherited(e) {
		return
	}
	switch {
	case reason == "initial" && c.HeaderSeen:
		c.Report(e, "data.reason", "reason of the header is initial, but a header came before it; expected resume or change")
	case reason == "resume" && !c.HeaderSeen:
		c.Report(e, "data.reason", "reason of the header is resume, but no header came before it; expected initial")
	case (reason == "change" || reason == "fallback") && !c.HeaderSeen:
		c.Report(e, "data.reason", "reason of the header is %s, but no header came before it; expected initial", reason)
	case reason == "change" && boundary:
		c.Report(e, "data.reason", "reason of the header is change, but a new process began since the header before; expected resume")
	case reason == "resume" && !boundary && c.Builds.Since(buildReact):
		c.Report(e, "data.reason", "reason of the header is resume, but no session/end-seed shows a new process since the header before; expected change")
	}
}

func (r *reasonChecker) End(*Context) {}

func checkNoop(c *Context, e *logfmt.Event) {
	if c.Header == nil || c.HeaderLost || c.Header.Scrubbed() {
		return
	}
	if e.Type == "request/header-delta" {
		if fold.ScrubbedDelta(e.Data) {
			return
		}
		for _, d := range fold.DeltaDefects(c.Header, e.Data) {
			if emptyChange(d) {
				c.Report(e, deltaPath(d), "%s of the delta %s", d.Path, printable(d.Problem))
			}
		}
		return
	}
	next, err := fold.CanonicalHeader(jsjson.Get(e.Data, "header"))
	if err != nil {
		return
	}
	reason := jsjson.Get(e.Data, "reason")
	switch {
	case jsjson.StrEq(reason, "change") && fold.HeaderEquals(c.Header, next):
		c.Report(e, "data.header", "the header equals the one before it, expected a change")
	case jsjson.StrEq(reason, "fallback") && c.Builds.Before(buildNoDelta):
		if fold.HeaderEquals(c.Header, next) {
			c.Report(e, "data.header", "the header equals the one before it, expected a change")
		} else if fold.NextHeaderEvent(fold.E4, c.Header, next, false).Type == "request/header-delta" {
			c.Report(e, "data.reason", "the header is logged as a whole for the reason fallback, but a delta could say it")
		}
	}
}

// deltaPath is where in the event a defect of a delta lies. Its own path is data for
// the delta as a whole, else it begins in it.
func deltaPath(d fold.DeltaDefect) string {
	if d.Path == "data" {
		return "data"
	}
	return "data." + d.Path
}

func checkCanon(c *Context, e *logfmt.Event) {
	raw := jsjson.Get(e.Data, "header")
	if jsjson.KindOf(raw) != jsjson.Object {
		return
	}
	h, err := fold.CanonicalHeader(raw)
	if err != nil || bytes.Equal(h.JSON(), raw) {
		return
	}
	for k, v := range jsjson.Members(raw) {
		key, _ := jsjson.Str(k)
		if now := jsjson.Get(h.JSON(), key); now == nil {
			c.Report(e, "data.header."+key, "%s of the header is %s, expected it to be left out", string(appendSafe(nil, key, 24)), show(v))
			return
		}
	}
	c.Report(e, "data.header", "the keys of the header are in the order %s, expected %s", keyList(raw), keyList(h.JSON()))
}
