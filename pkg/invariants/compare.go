package invariants

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// A Comparison is what became of the requests of a recording.
type Comparison struct {
	Recorded  int64 // lines of the recording
	Matched   int64 // the same bytes
	KeyOrder  int64 // the same but for the order of config keys
	Misplaced int64 // the same but for the turn or step they are recorded under; in neither of the above
	Differing int64 // of the same step, and different
	Missing   int64 // rebuilt from the log, not recorded
	Extra     int64 // recorded, not in the log
	Auxiliary int64 // recorded, and not made by the loop: not compared
	Skipped   int64 // candidates of the log that were not recorded, so not sent
	Findings  []*Finding
	Omitted   []Omitted
}

// Errors counts the findings of severity error.
func (c *Comparison) Errors() int64 { return c.Misplaced + c.Differing + c.Missing + c.Extra }

// CompareRequests compares the requests of a log with a recording of what was
// sent: lines {"turn":T,"step":S,"request":BODY} in order of dispatch, BODY being
// the exact bytes; turn and step may be absent (SEMANTICS §6). Inherited requests
// of the log are left out, candidates may be in the recording or not. Where the
// log has no header the messages alone are compared.
//
// The error is that of requests or of reading the recording.
func CompareRequests(requests iter.Seq2[*fold.Request, error], recording io.Reader) (*Comparison, error) {
	c := NewComparer(recording)
	for r, err := range requests {
		if d := (*logfmt.Defect)(nil); errors.As(err, &d) {
			continue // damage is judged by Check; what is left is compared
		}
		if err != nil {
			return nil, err
		}
		if err := c.Add(r); err != nil {
			return nil, err
		}
	}
	return c.End()
}

// A Comparer is CompareRequests for requests that are pushed, as Check does by
// Options.Request. It holds a few requests of either side at a time.
type Comparer struct {
	in    *bufio.Reader
	line  int64
	got   []*sent
	rec   []*sent
	eof   bool
	ended bool // got is all there is
	err   error
	c     Comparison
	found map[string]*bucket

	// What was settled already, by the hash of its body, so that a request that
	// stands out of its place is called so.
	settled, left map[uint64]string // requests of the log; recorded ones that found none
}

// window is how many requests of each side are looked at to find the place
// where both go on alike.
const window = 8

// NewComparer starts a comparison with a recording.
func NewComparer(recording io.Reader) *Comparer {
	return &Comparer{
		in: bufio.NewReaderSize(recording, 64<<10), found: map[string]*bucket{},
		settled: map[uint64]string{}, left: map[uint64]string{},
	}
}

var bodySeed = maphash.MakeSeed()

func (s *sent) hash() uint64 { return maphash.Bytes(bodySeed, s.body) }

// sent is one request of either side.
type sent struct {
	turn, step int64 // -1 when unknown
	attempt    int
	candidate  bool
	bare       bool  // of the log: no header is logged, the body holds the messages alone
	line       int64 // of the recording
	place      Place // in the log
	body       []byte
}

func (s *sent) recorded() string {
	switch {
	case s.turn < 0 && s.step < 0:
		return fmt.Sprintf("recorded request on line %d", s.line)
	case s.turn < 0:
		return fmt.Sprintf("recorded request of step %d on line %d", s.step, s.line)
	case s.step < 0:
		return fmt.Sprintf("recorded request of turn %d on line %d", s.turn, s.line)
	}
	return fmt.Sprintf("recorded request of turn %d step %d on line %d", s.turn, s.step, s.line)
}

func (s *sent) rebuilt() string {
	if s.attempt > 1 {
		return fmt.Sprintf("request of turn %d step %d attempt %d", s.turn, s.step, s.attempt)
	}
	return fmt.Sprintf("request of turn %d step %d", s.turn, s.step)
}

// Add takes the next request of the log.
func (c *Comparer) Add(r *fold.Request) error {
	if r.Inherited || c.err != nil {
		return c.err
	}
	seq := r.FirstChunk
	if seq < 0 {
		seq = r.Response
	}
	c.got = append(c.got, &sent{
		turn: r.Turn, step: r.Step, attempt: r.Attempt, candidate: r.Candidate != "", bare: r.Header() == nil,
		place: Place{Pos: r.Pos, Seq: seq, Turn: r.Turn, Step: r.Step},
		body:  r.AppendBody(nil),
	})
	for len(c.got) > window && c.err == nil {
		c.settle()
	}
	return c.err
}

// End compares what is left and returns the result.
func (c *Comparer) End() (*Comparison, error) {
	c.ended = true
	for c.err == nil {
		c.fill()
		if len(c.got) == 0 && len(c.rec) == 0 {
			break
		}
		c.settle()
	}
	if c.err != nil {
		return nil, c.err
	}
	for id, b := range c.found {
		c.c.Findings = append(c.c.Findings, b.kept...)
		if n := b.total(); n > 0 {
			c.c.Omitted = append(c.c.Omitted, Omitted{id, n})
		}
	}
	sortFindings(c.c.Findings, c.c.Omitted)
	return &c.c, nil
}

// fill reads the recording up to the window.
func (c *Comparer) fill() {
	for !c.eof && len(c.rec) < window {
		line, err := c.in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			c.err = fmt.Errorf("recording line %d: %w", c.line+1, err)
			return
		}
		c.eof = err != nil
		if len(line) == 0 {
			return
		}
		c.line++
		line = bytes.TrimSuffix(line, []byte{'\n'})
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		c.c.Recorded++
		s, why := readSent(line)
		if why != "" {
			c.report("REQ-RECORD", Place{Seq: -1, Turn: -1, Step: -1}, "", "recording line %d: %s", c.line, why)
			c.c.Extra++
			continue
		}
		s.line = c.line
		c.rec = append(c.rec, s)
	}
}

func readSent(line []byte) (*sent, string) {
	canon, _, err := jsjson.Stringify(line)
	if err != nil {
		return nil, "not valid JSON: " + printable(err.Error())
	}
	body := jsjson.Get(canon, "request")
	if jsjson.KindOf(body) != jsjson.Object {
		return nil, `request is ` + show(body) + `, expected an object`
	}
	s := &sent{turn: -1, step: -1, body: bytes.Clone(body)}
	for _, at := range [...]struct {
		key string
		to  *int64
	}{{"turn", &s.turn}, {"step", &s.step}} {
		v := jsjson.Get(canon, at.key)
		if v == nil || string(v) == "null" {
			continue
		}
		n, ok := jsjson.SafeInt(v)
		if !ok || n < 0 {
			return nil, at.key + " is " + show(v) + ", expected a whole number"
		}
		*at.to = n
	}
	return s, ""
}

// labelled reports whether a recorded request says no other turn or step than the
// one of the log.
func (s *sent) labelled(r *sent) bool {
	return (r.turn < 0 || r.turn == s.turn) && (r.step < 0 || r.step == s.step)
}

// alike reports whether two requests are the same, config key order aside.
func alike(g, r *sent) (same, reordered bool) {
	if g.bare {
		return bytes.Equal(jsjson.Get(g.body, "messages"), jsjson.Get(r.body, "messages")), false
	}
	if bytes.Equal(g.body, r.body) {
		return true, false
	}
	return false, keyOrderOnly(g.body, r.body)
}

// settle decides about the first request of at least one side.
func (c *Comparer) settle() {
	c.fill()
	if c.err != nil {
		return
	}
	switch {
	case len(c.rec) == 0:
		c.missing(c.got[0])
		c.got = c.got[1:]
		return
	case len(c.got) == 0:
		c.extra(c.rec[0])
		c.rec = c.rec[1:]
		return
	}
	// The nearest place from where both sides go on alike, at the same distance one
	// that both call the same.
	for d := 0; d < len(c.got)+len(c.rec)-1; d++ {
		x, y, like := -1, -1, false
		for i := max(0, d-len(c.rec)+1); i <= d && i < len(c.got); i++ {
			j := d - i
			if x >= 0 && !c.got[i].labelled(c.rec[j]) {
				continue
			}
			if same, reordered := alike(c.got[i], c.rec[j]); same || reordered {
				x, y, like = i, j, same
				if c.got[i].labelled(c.rec[j]) {
					break
				}
			}
		}
		if x < 0 {
			continue
		}
		if x == 0 && y == 0 && !c.got[0].labelled(c.rec[0]) {
			x, y = c.skip()
		}
		c.unequal(x, y)
		if x == 0 && y == 0 {
			c.match(like)
		}
		return
	}
	c.unequal(len(c.got), len(c.rec))
}

// skip decides about two first requests that are alike and called differently:
// whether one side has one too many, which is then left out (1 of that side), or
// the recording calls it wrong (0, 0). Of what explains the requests in sight it
// takes the least: a request sent again, as after a failure, is the same twice.
func (c *Comparer) skip() (i, j int) {
	const gap, wrong = 2, 1
	n, m := len(c.got), len(c.rec)
	cost := make([]int, (n+1)*(m+1))
	at := func(i, j int) *int { return &cost[i*(m+1)+j] }
	absent := func(g *sent) int {
		if g.candidate {
			return 0
		}
		return gap
	}
	pair := func(i, j int) (int, bool) {
		same, reordered := alike(c.got[i], c.rec[j])
		switch {
		case !same && !reordered:
			return 0, false
		case c.got[i].labelled(c.rec[j]):
			return *at(i+1, j+1), true
		}
		return *at(i+1, j+1) + wrong, true
	}
	for i := n; i >= 0; i-- {
		for j := m; j >= 0; j-- {
			best := 0
			switch {
			case i == n && j == m:
			case i == n: // more may come
				if best = *at(i, j+1); c.ended {
					best += gap
				}
			case j == m:
				if best = *at(i+1, j); c.eof {
					best += absent(c.got[i])
				}
			default:
				best = min(*at(i+1, j)+absent(c.got[i]), *at(i, j+1)+gap)
				if k, ok := pair(i, j); ok {
					best = min(best, k)
				}
			}
			*at(i, j) = best
		}
	}
	switch k, _ := pair(0, 0); {
	case k == *at(0, 0):
		return 0, 0
	case *at(0, 1)+gap == *at(0, 0):
		return 0, 1
	}
	return 1, 0
}

func (c *Comparer) match(same bool) {
	g, r := c.got[0], c.rec[0]
	c.got, c.rec = c.got[1:], c.rec[1:]
	c.settled[g.hash()] = g.rebuilt()
	if labelled := g.labelled(r); !labelled {
		c.c.Misplaced++
		var wrong []string
		if r.turn >= 0 && r.turn != g.turn {
			wrong = append(wrong, fmt.Sprintf("turn %d where the log gives %d", r.turn, g.turn))
		}
		if r.step >= 0 && r.step != g.step {
			wrong = append(wrong, fmt.Sprintf("step %d where the log gives %d", r.step, g.step))
		}
		c.report("REQ-LABEL", g.place, "", "%s equals the %s and is recorded under another place: %s",
			r.recorded(), g.rebuilt(), strings.Join(wrong, ", "))
		if same {
			return
		}
	} else if same {
		c.c.Matched++
		return
	} else {
		c.c.KeyOrder++
	}
	c.report("REQ-KEYORDER", g.place, "", "%s has its config keys in the order %s, the log gives %s",
		r.recorded(), configKeys(r.body), configKeys(g.body))
}

// unequal deals with the first i requests of the log and the first j of the
// recording, none of which are alike: those of one step belong together.
func (c *Comparer) unequal(i, j int) {
	for i > 0 || j > 0 {
		switch {
		case j > 0 && purpose(c.rec[0].body):
			c.aux(c.rec[0])
		case i == 0:
			c.extra(c.rec[0])
		case j == 0:
			c.missing(c.got[0])
			c.got, i = c.got[1:], i-1
			continue
		default:
			g, r := c.got[0], c.rec[0]
			switch order := g.order(r); {
			case order < 0 || g.candidate && i > 1 && c.got[1].order(r) == 0:
				c.missing(g)
				c.got, i = c.got[1:], i-1
				continue
			case order > 0 || oneShot(r.body) && !oneShot(g.body):
				c.extra(r)
			default:
				c.differ(g, r)
				c.got, i = c.got[1:], i-1
			}
		}
		c.rec, j = c.rec[1:], j-1
	}
}

// order compares the steps of a request of the log and a recorded one; 0 also
// when the recording does not say.
func (s *sent) order(r *sent) int {
	switch {
	case r.turn < 0 || r.step < 0 || s.turn == r.turn && s.step == r.step:
		return 0
	case s.turn < r.turn || s.turn == r.turn && s.step < r.step:
		return -1
	}
	return 1
}

func (c *Comparer) missing(g *sent) {
	if g.candidate {
		c.c.Skipped++
		return
	}
	c.c.Missing++
	r, n := closest(g, c.rec)
	other := c.left[g.hash()]
	if r != nil && n == len(g.body) && n == len(r.body) {
		other = r.recorded()
	}
	c.settled[g.hash()] = g.rebuilt()
	if other != "" {
		c.report("REQ-MISSING", g.place, "", "%s is out of its place in the recording: the %s equals it", g.rebuilt(), other)
		return
	}
	f := c.report("REQ-MISSING", g.place, "", "%s is in the log and not in the recording", g.rebuilt())
	if r != nil {
		f.Message += fmt.Sprintf("; the closest is the %s, alike for the first %d of %s", r.recorded(), n, plural.Count(len(r.body), "byte"))
	}
}

func (c *Comparer) extra(r *sent) {
	if purpose(r.body) || oneShot(r.body) {
		c.aux(r)
		return
	}
	c.c.Extra++
	at := Place{Seq: -1, Turn: r.turn, Step: r.step}
	g, n := closest(r, c.got)
	other := c.settled[r.hash()]
	if g != nil && n == len(r.body) && n == len(g.body) {
		other = g.rebuilt()
	}
	c.left[r.hash()] = r.recorded()
	if other != "" {
		c.report("REQ-EXTRA", at, "", "%s stands where the log has none like it: it equals the %s", r.recorded(), other)
		return
	}
	f := c.report("REQ-EXTRA", at, "", "%s is not in the log", r.recorded())
	if g != nil {
		f.Message += fmt.Sprintf("; the closest is the %s, alike for the first %d of %s", g.rebuilt(), n, plural.Count(len(g.body), "byte"))
	}
}

func (c *Comparer) aux(r *sent) {
	c.c.Auxiliary++
	what := ""
	if p := jsjson.Get(r.body, "purpose"); p != nil {
		what = "its purpose is " + show(p)
	} else {
		what = "it asks for a summary of the conversation"
	}
	c.report("REQ-AUX", Place{Seq: -1, Turn: r.turn, Step: r.step}, "", "%s was not made by the loop: %s", r.recorded(), what)
}

func (c *Comparer) differ(g, r *sent) {
	c.c.Differing++
	x, y := g.body, r.body
	if g.bare {
		x, y = jsjson.Get(x, "messages"), jsjson.Get(y, "messages")
	}
	path, a, b := firstDifference(x, y)
	at := common(x, y)
	if g.bare {
		path = strings.TrimSuffix("messages"+path, ".")
		at += bytes.Index(r.body, y)
	}
	c.report("REQ-BYTES", g.place, path, "%s differs from the %s at %s, byte %d: recorded %s, the log gives %s",
		g.rebuilt(), r.recorded(), orRoot(path), at, excerpt(b, a), excerpt(a, b))
}

func orRoot(path string) string {
	if path == "" {
		return "the request itself"
	}
	return path
}

func (c *Comparer) report(id string, p Place, path, format string, args ...any) *Finding {
	rule := byID[id]
	f := &Finding{
		Rule: id, Severity: rule.Severity, Pos: p.Pos, Seq: p.Seq, Turn: p.Turn, Step: p.Step,
		Path: path, Message: fmt.Sprintf(format, args...),
	}
	b := c.found[id]
	if b == nil {
		b = &bucket{order: ruleOrder(id)}
		c.found[id] = b
	}
	f.order = b.order
	if len(b.kept) >= defaultMaxPerRule {
		b.omit(f.weight(), 1)
	} else {
		b.kept = append(b.kept, f)
	}
	return f
}

// closest finds the request with the longest common beginning.
func closest(s *sent, others []*sent) (best *sent, n int) {
	for _, o := range others {
		if o == s {
			continue
		}
		if k := common(s.body, o.body); best == nil || k > n {
			best, n = o, k
		}
	}
	return best, n
}

// common is the length of the common beginning.
func common(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// purpose reports whether a request says what it is for, which those of the
// loop never do.
func purpose(body []byte) bool { return jsjson.Get(body, "purpose") != nil }

// oneShot recognises the compaction calls of July, which carry no purpose: one
// user message around a transcript, a system prompt, a limit, no tools
// (SEMANTICS §7.1).
func oneShot(body []byte) bool {
	messages := jsjson.Get(body, "messages")
	if jsjson.Len(messages) != 1 || jsjson.Get(body, "maxTokens") == nil || jsjson.Get(body, "system") == nil || jsjson.Get(body, "tools") != nil {
		return false
	}
	m := jsjson.Index(messages, 0)
	content := jsjson.Get(m, "content")
	if jsjson.Len(m) != 2 || !jsjson.StrEq(jsjson.Get(m, "role"), "user") || jsjson.Len(content) != 1 {
		return false
	}
	return fold.AsksForSummary(jsjson.Index(content, 0))
}

// isConfig reports whether a member of a body, by its raw key, is one of the
// config.
func isConfig(key []byte) bool {
	switch string(key) {
	case `"messages"`, `"system"`, `"tools"`, `"sessionId"`, `"purpose"`:
		return false
	}
	return true
}

// keyOrderOnly reports whether two bodies differ in nothing but the order of
// their config members.
func keyOrderOnly(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	n := 0
	rest := [2][][]byte{}
	for i, body := range [2][]byte{a, b} {
		for k, v := range jsjson.Members(body) {
			if !isConfig(k) {
				rest[i] = append(rest[i], k, v)
			} else if i == 0 {
				n++
				key, _ := jsjson.Str(k)
				if !bytes.Equal(v, jsjson.Get(b, key)) || jsjson.Get(b, key) == nil {
					return false
				}
			} else {
				n--
			}
		}
	}
	if n != 0 || len(rest[0]) != len(rest[1]) {
		return false
	}
	for i := range rest[0] {
		if !bytes.Equal(rest[0][i], rest[1][i]) {
			return false
		}
	}
	return true
}

func configKeys(body []byte) string {
	var out []string
	for k := range jsjson.Members(body) {
		if isConfig(k) && len(out) < 8 {
			s, _ := jsjson.Str(k)
			out = append(out, string(appendSafe(nil, s, 24)))
		}
	}
	return strings.Join(out, ", ")
}

// firstDifference walks two values in step and returns the path of the first
// difference and what stands there on either side; nil where nothing does.
func firstDifference(a, b []byte) (path string, av, bv []byte) {
	for {
		ka, kb := jsjson.KindOf(a), jsjson.KindOf(b)
		if ka != kb || ka != jsjson.Object && ka != jsjson.Array {
			return path, a, b
		}
		step, x, y, ok := differingChild(a, b, ka == jsjson.Array)
		if !ok {
			return path, a, b
		}
		path += step
		if x == nil || y == nil {
			return strings.TrimPrefix(path, "."), x, y
		}
		if bytes.Equal(x, y) { // the same value at another place
			return strings.TrimPrefix(path, "."), a, b
		}
		a, b = x, y
		path = strings.TrimPrefix(path, ".")
	}
}

// differingChild returns the first child in which two arrays or two objects
// differ.
func differingChild(a, b []byte, array bool) (step string, x, y []byte, ok bool) {
	if array {
		next, stop := iter.Pull(jsjson.Elements(b))
		defer stop()
		i := 0
		for v := range jsjson.Elements(a) {
			w, more := next()
			if !more || !bytes.Equal(v, w) {
				return fmt.Sprintf("[%d]", i), v, w, true
			}
			i++
		}
		if w, more := next(); more {
			return fmt.Sprintf("[%d]", i), nil, w, true
		}
		return "", nil, nil, false
	}
	next, stop := iter.Pull2(jsjson.Members(b))
	defer stop()
	for k, v := range jsjson.Members(a) {
		l, w, more := next()
		switch {
		case !more:
			return keyStep(k), v, nil, true
		case !bytes.Equal(k, l):
			// A member more on either side, or the same ones in another order.
			if key, _ := jsjson.Str(l); jsjson.Get(a, key) == nil {
				return keyStep(l), nil, w, true
			}
			key, _ := jsjson.Str(k)
			return keyStep(k), v, jsjson.Get(b, key), true
		case !bytes.Equal(v, w):
			return keyStep(k), v, w, true
		}
	}
	if l, w, more := next(); more {
		return keyStep(l), nil, w, true
	}
	return "", nil, nil, false
}

func keyStep(token []byte) string {
	key, _ := jsjson.Str(token)
	for i := 0; i < len(key); i++ {
		if c := key[i]; c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return "[" + quoted(key) + "]"
		}
	}
	return "." + string(appendSafe(nil, key, 40))
}

// excerpt shows a value next to another one: of long strings the part around
// their first difference.
func excerpt(v, other []byte) string {
	if jsjson.KindOf(v) != jsjson.String || jsjson.KindOf(other) != jsjson.String || len(v) <= quoteLimit {
		return show(v)
	}
	s, _ := jsjson.Str(v)
	o, _ := jsjson.Str(other)
	at := common([]byte(s), []byte(o))
	from := max(0, at-16)
	for from > 0 && s[from]&0xC0 == 0x80 {
		from--
	}
	out := quoted(s[from:])
	if from > 0 {
		out = `"…` + out[1:]
	}
	return out
}
