package drift

import (
	"crypto/sha256"
	"fmt"
	"iter"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// CacheUnit is the number of tokens that hits were always a multiple of; the
// provider speaks of 64 (WIRE §4.2).
const CacheUnit = 128

// Usage is what a provider reported for one attempt (SEMANTICS §9). A figure that
// was not reported is -1.
type Usage struct {
	Input, Output, CacheRead, CacheWrite int64
}

// Prompt is the size of the prompt, -1 when it was not reported.
func (u *Usage) Prompt() int64 {
	if u == nil || u.Input < 0 {
		return -1
	}
	return u.Input + max(0, u.CacheRead) + max(0, u.CacheWrite)
}

func readUsage(v []byte) *Usage {
	if jsjson.KindOf(v) != jsjson.Object {
		return nil
	}
	get := func(name string) int64 {
		n, ok := jsjson.SafeInt(jsjson.Get(v, name))
		if !ok || n < 0 {
			return -1
		}
		return n
	}
	return &Usage{get("inputTokens"), get("outputTokens"), get("cacheReadTokens"), get("cacheWriteTokens")}
}

// CacheVerdict says how a reported cache read stands to what was expected.
type CacheVerdict string

const (
	CacheUnknown  CacheVerdict = "not reported" // no cache figure: the adapter does not report it, or the attempt failed
	CacheExpected CacheVerdict = "as expected"
	CacheShort    CacheVerdict = "short" // less was read than an earlier request had stored
	CacheMore     CacheVerdict = "more"  // more than this session can have stored
)

// A RequestRef names a request.
type RequestRef struct {
	Turn, Step int64
	Attempt    int
	Time       int64
}

func (s *Sent) ref() RequestRef { return RequestRef{s.Turn, s.Step, s.Attempt, s.Time} }

// String is TURN.STEP, or TURN.STEP.ATTEMPT from the second attempt on.
func (r RequestRef) String() string {
	if r.Attempt > 1 {
		return fmt.Sprintf("%d.%d.%d", r.Turn, r.Step, r.Attempt)
	}
	return fmt.Sprintf("%d.%d", r.Turn, r.Step)
}

// A CacheRow is one request and what of it a provider could have cached.
//
// A prompt is taken for a sequence of segments: route (provider and model), tools,
// system prompt, then the messages (WIRE §4.3). Tools stand behind the messages
// in the body but before them in the prompt, so that the shared bytes of two
// bodies are not what can be reused.
type CacheRow struct {
	Request RequestRef

	Bytes       int64  // of the body
	SharedBytes int64  // that the body and the one before begin with alike
	Tokens      int64  // of the prompt, estimated
	Reusable    int64  // tokens of the whole segments it shares with the one before, estimated
	ReusedBytes int64  // bytes of these segments
	Break       string // the first segment that is not shared: route, tools, system, messages[N]; "" when B extends A or is the first
	Cause       *Cause // of the break
	Point       *Point // the process that began in between

	Usage     *Usage      // nil when not reported
	Low, High int64       // expected cache read in tokens, from what earlier requests stored
	Unit      *RequestRef // the request that stored it; nil when none did
	Answer    bool        // High counts its answer as well
	Verdict   CacheVerdict
	Collapse  bool  // read less than half of the prompt before, which was of some size (SEMANTICS §9)
	Idle      int64 // ms since the end of the request before; -1 for the first
	Effort    bool  // the reasoning effort changed, which may or may not break the prefix
}

// a stored prefix.
type cacheUnit struct {
	request  RequestRef
	key      [32]byte
	effort   string
	epoch    int
	nodes    []*fold.Node
	prompt   int64
	output   int64 // -1 when the answer cannot be part of a later prompt
	response int64
}

type cacher struct {
	history *History
	prev    *Source
	tokens  []int64 // of the messages of prev
	epoch   int     // counts the places where nodes changed their messages
	units   []*cacheUnit
	last    int64 // prompt of the request before, -1 when unknown
}

// Cache yields a row for every request that was sent. Inherited requests count
// as having stored their prefix, and have no rows.
func (t *Tracker) Cache(log *logfmt.Log) iter.Seq2[*CacheRow, error] {
	return func(yield func(*CacheRow, error) bool) {
		c := &cacher{history: t.History, last: -1}
		for s, err := range t.Walk(log) {
			if err == nil && s.Candidate != "" {
				continue
			}
			var row *CacheRow
			if err == nil {
				row, err = c.add(s)
			}
			if err == nil && s.Inherited {
				continue
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

func (c *cacher) add(s *Sent) (*CacheRow, error) {
	cur, err := NewSource(s, c.history)
	if err != nil {
		return nil, fmt.Errorf("request %d.%d: %w", s.Turn, s.Step, err)
	}
	row := &CacheRow{Request: s.ref(), Bytes: cur.Body.Len(), Usage: readUsage(s.Usage), Idle: -1}
	tokens := make([]int64, len(cur.Messages))
	kept := 0
	if c.prev != nil {
		for kept < min(len(c.tokens), len(tokens)) && sameSlice(c.prev.Messages[kept], cur.Messages[kept]) {
			tokens[kept] = c.tokens[kept]
			kept++
		}
	}
	for i := kept; i < len(tokens); i++ {
		tokens[i] = MessageTokens(cur.Messages[i])
	}
	row.Tokens = ToolsTokens(cur.Tools) + SystemTokens(cur.System)
	for _, n := range tokens {
		row.Tokens += n
	}
	if c.prev != nil {
		c.against(row, cur, tokens)
	}
	c.expect(row, cur)
	c.store(row, cur)
	c.prev, c.tokens, c.last = cur, tokens, row.Usage.Prompt()
	return row, nil
}

// sameSlice reports whether two messages are the same memory, or equal.
func sameSlice(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || string(a) == string(b))
}

// against compares a request with the one before it.
func (c *cacher) against(row *CacheRow, cur *Source, tokens []int64) {
	d := Explain(c.prev, cur)
	row.SharedBytes = row.Bytes
	if d.At != nil {
		row.SharedBytes = d.At.Offset
	}
	row.Idle = max(0, cur.Time-c.prev.Time)
	row.Point = c.history.pointIn(c.prev.horizonSeq(), cur.horizonSeq()+1)
	for i := range d.Config {
		switch d.Config[i].Name {
		case "provider", "model":
			if row.Break == "" {
				row.Break, row.Cause = "route", d.Config[i].Cause
			}
		case "reasoningEffort":
			row.Effort = true
		}
	}
	for i := range d.Messages.Changes {
		if m := &d.Messages.Changes[i]; m.Kind == Edited && m.A >= 0 && c.prev.Node(m.A) != nil {
			c.epoch++
			break
		}
	}
	if row.Break != "" {
		return
	}
	if !d.Tools.Equal() {
		row.Break = "tools"
		row.Cause = toolCauses(&d.Tools)[0]
		return
	}
	row.Reusable += ToolsTokens(cur.Tools)
	for _, t := range cur.Tools {
		row.ReusedBytes += int64(len(t))
	}
	if d.System != nil {
		row.Break, row.Cause = "system", d.System.Cause
		return
	}
	row.Reusable += SystemTokens(cur.System)
	row.ReusedBytes += int64(len(cur.System))
	n := 0
	for n < min(len(c.prev.Messages), len(cur.Messages)) && sameSlice(c.prev.Messages[n], cur.Messages[n]) {
		row.Reusable += tokens[n]
		row.ReusedBytes += int64(len(cur.Messages[n]))
		n++
	}
	if n == len(c.prev.Messages) {
		return
	}
	row.Break = fmt.Sprintf("messages[%d]", n)
	for i := range d.Messages.Changes {
		m := &d.Messages.Changes[i]
		if m.Kind != Appended && (m.A == n || m.B == n) {
			row.Cause = m.Cause
			return
		}
	}
	row.Cause = unexplained()
}

func toolCauses(t *ToolsDiff) (out []*Cause) {
	for _, x := range t.Removed {
		out = append(out, x.Cause)
	}
	for _, x := range t.Added {
		out = append(out, x.Cause)
	}
	for _, x := range t.Changed {
		out = append(out, x.Cause)
	}
	for _, x := range t.Moved {
		out = append(out, x.Cause)
	}
	if t.Present != nil {
		out = append(out, t.Present.Cause)
	}
	return out
}

// promptKey is the digest of what stands before the messages of the surface.
func promptKey(b *Body) (key [32]byte, effort string) {
	h := sha256.New()
	part := func(v []byte) {
		fmt.Fprintf(h, "%d:", len(v))
		h.Write(v)
	}
	for _, name := range []string{"provider", "model"} {
		var v []byte
		for _, m := range b.Config {
			switch m.Name {
			case name:
				v = m.Value
			case "reasoningEffort":
				effort = string(m.Value)
			}
		}
		part(v)
	}
	fmt.Fprintf(h, "%d tools", len(b.Tools))
	for _, t := range b.Tools {
		part(t)
	}
	part(b.System)
	for i, m := range b.Messages {
		if b.Node(i) != nil {
			break
		}
		part(m)
	}
	h.Sum(key[:0])
	return key, effort
}

func floorUnit(n int64) int64 { return n - n%CacheUnit }

// expect finds the longest stored prefix that the request begins with
// (WIRE §4.3).
func (c *cacher) expect(row *CacheRow, cur *Source) {
	key, effort := promptKey(cur.Body)
	nodes := cur.Request.Nodes()
	var best *cacheUnit
	answer, length := false, -1
	for i := len(c.units) - 1; i >= 0; i-- {
		u := c.units[i]
		n := len(u.nodes)
		if u.key != key || u.epoch != c.epoch || n > len(nodes) || n+1 <= length || n == 0 && best != nil {
			continue
		}
		if n > 0 && !sameNodes(u.nodes, nodes) {
			continue
		}
		// The prompt and the answer behind it, as long as it is sent back as it was.
		out := u.output >= 0 && n < len(nodes) && nodes[n].Seq == u.response
		full := n
		if out {
			full++
		}
		if full > length {
			best, answer, length = u, out, full
		}
	}
	if best != nil {
		row.Unit, row.Answer = &best.request, answer
		row.Low, row.High = floorUnit(best.prompt), floorUnit(best.prompt)
		if answer {
			row.High = floorUnit(best.prompt + best.output)
		}
		if best.effort != effort {
			row.Effort, row.Low = true, 0
		}
	}
	u := row.Usage
	if u == nil || u.CacheRead < 0 {
		row.Verdict = CacheUnknown
		return
	}
	switch {
	case u.CacheRead < row.Low:
		row.Verdict = CacheShort
	case u.CacheRead > row.High:
		row.Verdict = CacheMore
	default:
		row.Verdict = CacheExpected
	}
	row.Collapse = c.last >= 1024 && u.CacheRead*2 < c.last
}

// sameNodes reports whether a is the beginning of b.
func sameNodes(a, b []*fold.Node) bool {
	if a[len(a)-1] != b[len(a)-1] {
		return false
	}
	if &a[0] == &b[0] {
		return true // snapshots of one list
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// store notes what the provider may keep of a request.
func (c *cacher) store(row *CacheRow, cur *Source) {
	p := row.Usage.Prompt()
	if p < 0 {
		return
	}
	u := &cacheUnit{request: cur.ref(), epoch: c.epoch, nodes: cur.Request.Nodes(), prompt: p, output: -1, response: cur.Response}
	u.key, u.effort = promptKey(cur.Body)
	n := c.history.find(cur.Response)
	if n != nil && n.kind != CauseCancelled && row.Usage.Output >= 0 && cur.Finish != "max-tokens" {
		// A cancelled answer is sent back without what was not finished, one that
		// ran into the limit without its calls.
		u.output = row.Usage.Output
	}
	c.units = append(c.units, u)
}
