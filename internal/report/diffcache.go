package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/internal/ui"
	"github.com/dsh-audit/dsh-audit/pkg/drift"
)

// CacheTotals sums up the cache view of one or more sessions.
type CacheTotals struct {
	Logs        int   `json:"logs"`
	Requests    int   `json:"requests"`
	Breaks      int   `json:"breaks"`
	Bytes       int64 `json:"bytes"`
	SharedBytes int64 `json:"sharedBytes"`
	Tokens      int64 `json:"tokensEstimated"`
	Reusable    int64 `json:"reusableEstimated"`

	Reported    int   `json:"cacheReported"`     // requests with a cache figure
	Prompt      int64 `json:"promptTokens"`      // of these
	CacheRead   int64 `json:"cacheReadTokens"`   // of these
	Low         int64 `json:"expectedLow"`       // of these
	High        int64 `json:"expectedHigh"`      // of these
	Short       int   `json:"short"`             // requests that read less than expected
	Shortfall   int64 `json:"shortfallTokens"`   // by so much
	More        int   `json:"more"`              // requests that read more
	Collapses   int   `json:"collapses"`         // requests that read less than half of the prompt before
	Unexplained int   `json:"shortUnexplained"`  // short without a break or a process between
	Measured    int   `json:"estimatorMeasured"` // requests whose prompt size was reported
	Estimated   int64 `json:"estimatorTokens"`   // estimate for these
	Actual      int64 `json:"estimatorActual"`   // reported for these
	WorstLow    int64 `json:"estimatorLowest"`   // lowest and highest estimate, in percent of what was reported
	WorstHigh   int64 `json:"estimatorHighest"`
}

// Add counts a row.
func (t *CacheTotals) Add(r *drift.CacheRow) {
	t.Requests++
	if r.Break != "" {
		t.Breaks++
	}
	t.Bytes += r.Bytes
	t.SharedBytes += r.SharedBytes
	t.Tokens += r.Tokens
	t.Reusable += r.Reusable
	if p := r.Usage.Prompt(); p > 0 {
		percent := (r.Tokens*100 + p/2) / p
		if t.Measured == 0 || percent < t.WorstLow {
			t.WorstLow = percent
		}
		if t.Measured == 0 || percent > t.WorstHigh {
			t.WorstHigh = percent
		}
		t.Measured++
		t.Estimated += r.Tokens
		t.Actual += p
	}
	if r.Collapse {
		t.Collapses++
	}
	if r.Verdict == drift.CacheUnknown {
		return
	}
	t.Reported++
	t.Prompt += max(0, r.Usage.Prompt())
	t.CacheRead += r.Usage.CacheRead
	t.Low += r.Low
	t.High += r.High
	switch r.Verdict {
	case drift.CacheShort:
		t.Short++
		t.Shortfall += r.Low - r.Usage.CacheRead
		if shortUnexplained(r) {
			t.Unexplained++
		}
	case drift.CacheMore:
		t.More++
	}
}

// Plus adds the totals of another session.
func (t *CacheTotals) Plus(o *CacheTotals) {
	low, high := t.WorstLow, t.WorstHigh
	switch {
	case t.Measured == 0:
		low, high = o.WorstLow, o.WorstHigh
	case o.Measured > 0:
		low, high = min(low, o.WorstLow), max(high, o.WorstHigh)
	}
	t.Logs += o.Logs
	t.Requests += o.Requests
	t.Breaks += o.Breaks
	t.Bytes += o.Bytes
	t.SharedBytes += o.SharedBytes
	t.Tokens += o.Tokens
	t.Reusable += o.Reusable
	t.Reported += o.Reported
	t.Prompt += o.Prompt
	t.CacheRead += o.CacheRead
	t.Low += o.Low
	t.High += o.High
	t.Short += o.Short
	t.Shortfall += o.Shortfall
	t.More += o.More
	t.Collapses += o.Collapses
	t.Unexplained += o.Unexplained
	t.Measured += o.Measured
	t.Estimated += o.Estimated
	t.Actual += o.Actual
	t.WorstLow, t.WorstHigh = low, high
}

// idleLong is from when on a pause alone may explain that a cache is gone.
const idleLong = 5 * time.Minute

func idle(r *drift.CacheRow) time.Duration { return time.Duration(r.Idle) * time.Millisecond }

// shortUnexplained reports whether nothing in the log says why less was read than
// expected.
func shortUnexplained(r *drift.CacheRow) bool {
	return r.Break == "" && r.Point == nil && idle(r) < idleLong
}

// A CacheWriter writes the cache view of one session after the other.
type CacheWriter struct {
	stream *DiffStream
	all    CacheTotals
	logs   int
}

// NewCacheWriter starts the output.
func NewCacheWriter(out io.Writer, asJSON bool, o DiffOptions) (*CacheWriter, error) {
	s, err := NewDiffStream(out, asJSON, o, "cache")
	return &CacheWriter{stream: s}, err
}

type jsonUsage struct {
	Input      *int64 `json:"inputTokens"`
	Output     *int64 `json:"outputTokens"`
	CacheRead  *int64 `json:"cacheReadTokens"`
	CacheWrite *int64 `json:"cacheWriteTokens"`
	Prompt     *int64 `json:"promptTokens"`
}

type jsonCacheRow struct {
	Turn        int64      `json:"turn"`
	Step        int64      `json:"step"`
	Attempt     int        `json:"attempt"`
	Time        int64      `json:"time"`
	Bytes       int64      `json:"bytes"`
	SharedBytes int64      `json:"sharedBytes"`
	Tokens      int64      `json:"tokensEstimated"`
	Reusable    int64      `json:"reusableEstimated"`
	ReusedBytes int64      `json:"reusableBytes"`
	Break       *string    `json:"break"`
	Cause       *jsonCause `json:"cause,omitempty"`
	Process     *jsonPoint `json:"process,omitempty"`
	Usage       *jsonUsage `json:"usage"`
	Low         int64      `json:"expectedLow"`
	High        int64      `json:"expectedHigh"`
	From        *string    `json:"expectedFrom"`
	Verdict     string     `json:"verdict"`
	Collapse    bool       `json:"collapse,omitempty"`
	Idle        *int64     `json:"idle"`
	Effort      bool       `json:"effortChanged,omitempty"`
}

func cacheRowJSON(r *drift.CacheRow) jsonCacheRow {
	positive := func(n int64) *int64 {
		if n < 0 {
			return nil
		}
		return &n
	}
	j := jsonCacheRow{Turn: r.Request.Turn, Step: r.Request.Step, Attempt: r.Request.Attempt, Time: r.Request.Time, Bytes: r.Bytes, SharedBytes: r.SharedBytes,
		Tokens: r.Tokens, Reusable: r.Reusable, ReusedBytes: r.ReusedBytes, Cause: causeJSON(r.Cause), Process: pointJSON(r.Point),
		Low: r.Low, High: r.High, Verdict: string(r.Verdict), Collapse: r.Collapse, Idle: positive(r.Idle), Effort: r.Effort}
	if r.Break != "" {
		j.Break = &r.Break
	}
	if u := r.Usage; u != nil {
		j.Usage = &jsonUsage{positive(u.Input), positive(u.Output), positive(u.CacheRead), positive(u.CacheWrite), positive(u.Prompt())}
	}
	if r.Unit != nil {
		n := r.Unit.String()
		j.From = &n
	}
	return j
}

// Session writes the rows of one session.
func (w *CacheWriter) Session(log, session string, rows []*drift.CacheRow) error {
	t := CacheTotals{Logs: 1}
	list := []jsonCacheRow{}
	for _, r := range rows {
		t.Add(r)
		if w.stream.json {
			list = append(list, cacheRowJSON(r))
		}
	}
	w.all.Plus(&t)
	w.logs++
	return w.stream.result(&struct {
		Log      Text           `json:"log"`
		Session  Text           `json:"session"`
		Requests []jsonCacheRow `json:"requests"`
		Totals   *CacheTotals   `json:"totals"`
	}{Text(log), Text(session), list, &t}, func(d *differ) {
		if w.logs > 1 {
			d.p("")
		}
		d.p("%s, session %s", d.Palette.Head(ui.Escape(log)), ui.Escape(session))
		if !d.Stat {
			d.cacheTable(rows)
		}
		d.cacheTotals(&t)
	})
}

// Close writes the totals over all sessions.
func (w *CacheWriter) Close() error {
	return w.stream.close(&w.all, func(d *differ) {
		if w.logs > 1 {
			d.p("")
			d.p("%s", d.Palette.Head(fmt.Sprintf("all %d sessions", w.logs)))
			d.cacheTotals(&w.all)
		}
		d.p("")
		d.p("tokens are estimated by the harness's own rule (a quarter of the UTF-16 length, 4 a piece);")
		d.p("hits are expected in units of %d tokens, from earlier requests of the same session", drift.CacheUnit)
	})
}

func percent(part, whole int64) string {
	if whole <= 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", (part*100+whole/2)/whole)
}

func (w *differ) cacheTable(rows []*drift.CacheRow) {
	t := NewTable(&w.out, Column{"request", Left}, Column{"bytes", Right}, Column{"shared", Right}, Column{"est tokens", Right}, Column{"reusable", Right},
		Column{"prompt", Right}, Column{"read", Right}, Column{"expected", Right}, Column{"verdict", Left}, Column{"why", Left})
	for _, r := range rows {
		figure := func(n int64) string {
			if n < 0 {
				return "-"
			}
			return fmt.Sprint(n)
		}
		read, prompt := "-", "-"
		if u := r.Usage; u != nil {
			read, prompt = figure(u.CacheRead), figure(u.Prompt())
		}
		expected := "0"
		switch {
		case r.Low != r.High:
			expected = fmt.Sprintf("%d..%d", r.Low, r.High)
		case r.Unit != nil:
			expected = fmt.Sprint(r.Low)
		}
		verdict := string(r.Verdict)
		if r.Collapse {
			verdict += ", COLLAPSE"
		}
		// A failed write shows when the text is written.
		_ = t.Row(r.Request.String(), fmt.Sprint(r.Bytes), fmt.Sprint(r.SharedBytes), fmt.Sprint(r.Tokens), fmt.Sprint(r.Reusable),
			prompt, read, expected, verdict, strings.Join(cacheWhy(r), "; "))
	}
	_ = t.Close()
}

// cacheWhy says what broke the prefix, and what else may explain a short read.
func cacheWhy(r *drift.CacheRow) (out []string) {
	if r.Break != "" {
		why := "breaks at " + r.Break
		if c := r.Cause; c != nil && c.Event != nil {
			why += ": " + shortCause(c)
		} else if c != nil && c.Kind == drift.Unexplained {
			why += ": UNEXPLAINED"
		}
		out = append(out, why)
	}
	if r.Effort {
		out = append(out, "reasoning effort changed, which may break it")
	}
	if r.Point != nil {
		out = append(out, pointKind(r.Point))
	}
	if r.Verdict == drift.CacheShort || r.Collapse {
		switch {
		case idle(r) >= idleLong:
			out = append(out, "idle for "+idle(r).Round(time.Second).String())
		case r.Verdict == drift.CacheShort && shortUnexplained(r):
			out = append(out, "nothing in the log explains it: eviction, or another server")
		}
	}
	if r.Verdict == drift.CacheMore {
		out = append(out, "stored by another session, or as a part that requests have in common")
	}
	return out
}

func shortCause(c *drift.Cause) string {
	switch c.Kind {
	case drift.CauseHeader:
		return fmt.Sprintf("%s seq %d", orHeader(c.Reason), c.Event.Seq)
	case drift.CauseDelta:
		return fmt.Sprintf("header delta seq %d", c.Event.Seq)
	}
	return short(c)
}

func orHeader(reason string) string {
	if reason == "" {
		return "header"
	}
	return "header (" + ui.Escape(clip(reason, 40)) + ")"
}

func (w *differ) cacheTotals(t *CacheTotals) {
	w.p("%s, %s; %s, %d (%s) shared with the one before; about %s, %d (%s) reusable", count(int64(t.Requests), "request"), plural.Count(t.Breaks, "break"),
		plural.Count(t.Bytes, "byte"), t.SharedBytes, percent(t.SharedBytes, t.Bytes), plural.Count(t.Tokens, "token"), t.Reusable, percent(t.Reusable, t.Tokens))
	if t.Reported == 0 {
		w.p("cache reads: not reported")
	} else {
		line := fmt.Sprintf("cache reads: %d of %d prompt tokens (%s) in %s that report it, expected %d to %d", t.CacheRead, t.Prompt,
			percent(t.CacheRead, t.Prompt), count(int64(t.Reported), "request"), t.Low, t.High)
		if t.Short > 0 {
			line += fmt.Sprintf("; %d short by %d in all, %d of them unexplained", t.Short, t.Shortfall, t.Unexplained)
		}
		if t.More > 0 {
			line += fmt.Sprintf("; %d read more", t.More)
		}
		if t.Collapses > 0 {
			line += "; " + w.Palette.Warn(count(int64(t.Collapses), "collapse"))
		}
		w.p("%s", line)
	}
	if t.Measured == 0 {
		w.p("estimator: no prompt size was reported to measure it by")
		return
	}
	w.p("estimator: %d estimated where %d were reported (%s) over %s; single requests %d%% to %d%%", t.Estimated, t.Actual,
		percent(t.Estimated, t.Actual), count(int64(t.Measured), "request"), t.WorstLow, t.WorstHigh)
}

type jsonGroup struct {
	Name     string       `json:"name"`
	SHA256   string       `json:"sha256"`
	Value    Raw          `json:"value"`
	Sessions int          `json:"sessions"`
	Headers  int          `json:"headers"`
	First    int64        `json:"first"`
	Last     int64        `json:"last"`
	Changes  []jsonHeader `json:"changes,omitempty"` // against the group before
}

func groupsJSON(list []*drift.HeaderGroup) []jsonGroup {
	out := []jsonGroup{}
	for _, g := range list {
		j := jsonGroup{g.Name, g.Digest, safe(g.Value), g.Sessions, g.Headers, g.First, g.Last, nil}
		d := drift.Diff{Config: g.Config, System: g.System}
		if g.Tools != nil {
			d.Tools = *g.Tools
		}
		if c := headerJSON(&d); len(c) > 0 {
			j.Changes = c
		}
		out = append(out, j)
	}
	return out
}

type jsonUse struct {
	jsonEvent
	Reason Text   `json:"reason"`
	Model  string `json:"model"`
	System string `json:"system"`
	Tools  string `json:"tools"`
}

type jsonHeaderSession struct {
	Log     Text      `json:"log"`
	Session Text      `json:"session"`
	Created int64     `json:"createdAt"`
	Headers []jsonUse `json:"headers"`
}

// WriteHeaders writes how headers vary over many sessions.
func WriteHeaders(out io.Writer, asJSON bool, o DiffOptions, v *drift.HeaderSurvey) error {
	if asJSON {
		sessions := []jsonHeaderSession{}
		for _, s := range v.Sessions {
			j := jsonHeaderSession{Text(s.Path), Text(s.SessionID), s.CreatedAt, []jsonUse{}}
			for _, u := range s.Uses {
				j.Headers = append(j.Headers, jsonUse{jsonEvent{u.Seq, jsonTime(u.Time), Text(u.Type)}, Text(u.Reason),
					v.Models[u.Model].Name, v.Systems[u.System].Name, v.Tools[u.Tools].Name})
			}
			sessions = append(sessions, j)
		}
		return writeJSON(out, &struct {
			Schema   string              `json:"schema"`
			Mode     string              `json:"mode"`
			Models   []jsonGroup         `json:"models"`
			Systems  []jsonGroup         `json:"systems"`
			Tools    []jsonGroup         `json:"tools"`
			Sessions []jsonHeaderSession `json:"sessions"`
			Without  int                 `json:"withoutHeader"`
		}{DiffSchema, "headers", groupsJSON(v.Models), groupsJSON(v.Systems), groupsJSON(v.Tools), sessions, v.Without})
	}
	w := &differ{DiffOptions: o}
	w.groups("models", v.Models, func(g *drift.HeaderGroup) string { return w.model(g.Value) }, func(g *drift.HeaderGroup) {
		inner := &differ{DiffOptions: o}
		inner.config(&drift.Diff{Config: g.Config})
		w.indent("      ", inner, 1)
	})
	w.groups("system prompts", v.Systems, func(g *drift.HeaderGroup) string {
		if g.Value == nil {
			return "none"
		}
		s, _ := jsjson.Str(g.Value)
		return fmt.Sprintf("%s, %s", count(int64(len(s)), "byte"), count(int64(strings.Count(s, "\n")+1), "line"))
	}, func(g *drift.HeaderGroup) {
		inner := &differ{DiffOptions: o}
		inner.system(g.System)
		w.indent("      ", inner, 0)
	})
	w.groups("tools", v.Tools, func(g *drift.HeaderGroup) string {
		if g.Value == nil {
			return "none"
		}
		var names []string
		for t := range jsjson.Elements(g.Value) {
			name, _ := jsjson.Str(jsjson.Get(t, "name"))
			names = append(names, ui.Escape(clip(name, 40)))
		}
		n := len(names)
		if n > 12 && !o.Full {
			names = append(names[:12], fmt.Sprintf("... %d more", n-12))
		}
		return fmt.Sprintf("%s: %s", count(int64(n), "tool"), strings.Join(names, ", "))
	}, func(g *drift.HeaderGroup) {
		inner := &differ{DiffOptions: o}
		inner.tools(g.Tools)
		w.indent("      ", inner, 0)
	})
	w.p("%s", o.Palette.Head(fmt.Sprintf("sessions (%d)", len(v.Sessions))))
	t := NewTable(&w.out, Column{"session", Left}, Column{"created", Left}, Column{"model", Left}, Column{"system", Left}, Column{"tools", Left}, Column{"log", Left})
	for _, s := range v.Sessions {
		_ = t.Row(s.SessionID, stamp(s.CreatedAt), uses(s, func(u *drift.HeaderUse) string { return v.Models[u.Model].Name }),
			uses(s, func(u *drift.HeaderUse) string { return v.Systems[u.System].Name }),
			uses(s, func(u *drift.HeaderUse) string { return v.Tools[u.Tools].Name }), s.Path)
	}
	_ = t.Close()
	if v.Without > 0 {
		w.p("%s without a header: of an era that logs none, or nothing was sent", count(int64(v.Without), "session"))
	}
	return writeString(out, w.out.String())
}

// indent writes what another writer wrote, without its first lines.
func (w *differ) indent(indent string, inner *differ, skip int) {
	for line := range strings.Lines(inner.out.String()) {
		if skip--; skip < 0 {
			w.out.WriteString(indent + line)
		}
	}
}

// uses lists the groups a session went through.
func uses(s *drift.HeaderSession, name func(*drift.HeaderUse) string) string {
	var out []string
	for i := range s.Uses {
		n := name(&s.Uses[i])
		if len(out) == 0 || out[len(out)-1] != n {
			out = append(out, n)
		}
	}
	if len(out) == 0 {
		return "-"
	}
	if len(out) > 6 {
		out = append(out[:5], fmt.Sprintf("... %d more", len(out)-5))
	}
	return strings.Join(out, " > ")
}

func (w *differ) model(config []byte) string {
	var parts []string
	for k, v := range jsjson.Members(config) {
		name, _ := jsjson.Str(k)
		parts = append(parts, ui.Escape(clip(name, 40))+" "+w.value(v))
	}
	return strings.Join(parts, ", ")
}

func (w *differ) groups(title string, list []*drift.HeaderGroup, about func(*drift.HeaderGroup) string, change func(*drift.HeaderGroup)) {
	w.p("%s", w.Palette.Head(fmt.Sprintf("%s (%d)", title, len(list))))
	for i, g := range list {
		w.p("  %-4s %s", g.Name, about(g))
		w.p("       in %s, %s, %s to %s", count(int64(g.Sessions), "session"), count(int64(g.Headers), "header"), stamp(g.First), stamp(g.Last))
		if i > 0 && !w.Stat {
			w.p("       against %s:", list[i-1].Name)
			change(g)
		}
	}
}
