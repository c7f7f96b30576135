package fold

import (
	"bytes"
	"crypto/sha256"
	"io"
	"iter"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Layout is the key order of a request body (SEMANTICS §6.1).
type Layout uint8

const (
	LayoutAuto   Layout = iota // as the shapes in the log tell
	LayoutNamed                // E3 to E7: provider, model and reasoningEffort, messages, system, tools, the other scalars, sessionId
	LayoutSpread               // E8 on: config as logged, messages, system, tools, sessionId
)

// Framing settles whether context and steering messages of E5 and E6 stood
// between tags, which the log may leave open (SEMANTICS §4.3).
type Framing uint8

const (
	FramingAuto     Framing = iota // as the shapes in the log tell
	FramingTagged                  // framed where the log leaves it open
	FramingVerbatim                // verbatim where the log leaves it open
)

// Reasons of an ambiguous grade.
const (
	ReasonDispatch = "dispatch-unknown" // a candidate: nothing in the log tells whether it was sent
	ReasonFraming  = "framing-window"   // context or steering may have been framed or not (SEMANTICS §4.3)
	ReasonLayout   = "config-layout"    // the era's key order is open, and it makes a difference (§6.1)
	ReasonBoundary = "boundary"         // messages may or may not belong to it: the turn's start is missing, or they follow its header (§6.2)
	ReasonDamage   = "damage"           // events before it are missing or damaged
	ReasonSurface  = "surface"          // an event before it broke a surface rule that decides which messages count
	ReasonMessage  = "message-shape"    // no message follows from the shape of a node
	ReasonHeader   = "header"           // the header in force does not fold, or there is none where one is owed
	ReasonScrubbed = "scrubbed"         // a fixture: prompt or tools stand as tokens
	ReasonStep     = "no-step"          // its chunks lie outside any step, or in one that does not say which it is
	ReasonSession  = "session-id"       // inherited: the parent or one of its own ancestors sent it (§10.1); see Options.Ancestor
)

// Assumptions that nothing contradicts but the log cannot prove.
const (
	AssumeKeyOrder = "config-key-order" // the live config had the key order that was logged last (SEMANTICS §6.1)
	AssumeFraming  = "framing"          // settled by Options.Framing
	AssumeLayout   = "layout"           // settled by Options.Layout
	AssumeFixture  = "fixture"          // a fixture: tokens in it stand for ids and paths of the run
	AssumeSnapshot = "snapshot"         // system prompt or tools come from the files beside a fixture
)

// body is a request as a rope: head, the messages of the surface, tail.
type body struct {
	dig    *digester // nil in a clone
	head   []byte
	listed int // messages in the head
	snap   extent
	view   view
	tail   [][]byte
	total  total
	fixed  [][]byte // messages of a clone
	header *EpochHeader
}

func (b *body) messages() iter.Seq2[*Node, []byte] {
	return func(yield func(*Node, []byte) bool) {
		for i, n := range b.snap.nodes {
			var m []byte
			if b.dig == nil {
				m = b.fixed[i]
			} else if got, err := n.message(b.view, b.dig.session); err == nil {
				m = got
			}
			if m != nil && !yield(n, m) {
				return
			}
		}
	}
}

// Certain reports whether nothing about the request is left open, but for the id
// of an ancestor's session that it was sent under.
func (r *Request) Certain() bool {
	return r.Grade != Ambiguous || len(r.Reasons) == 1 && r.Reasons[0] == ReasonSession
}

// Header is the header in force; nil when none was logged.
func (r *Request) Header() *EpochHeader { return r.body.header }

// Nodes are the surface nodes that made the messages, in order, also those that
// derive no message.
func (r *Request) Nodes() []*Node { return r.body.snap.nodes }

// Messages yields each node that derives a message together with the message as
// it stands in the body. Messages of the header's prefix have no node and are
// not among them.
func (r *Request) Messages() iter.Seq2[*Node, []byte] { return r.body.messages() }

// Frame is the body without the messages of the surface: what stands before them,
// up to the bracket that opens the list or the last message of the header's
// prefix, and what stands behind them, from the bracket that closes it.
func (r *Request) Frame() (head, tail []byte) {
	return r.body.head, bytes.Join(r.body.tail, nil)
}

// Len is the length of the body in bytes.
func (r *Request) Len() int64 {
	b := r.body
	n := int64(len(b.head)) + b.total.bytes
	switch { // commas: those within the head are counted there
	case b.listed > 0:
		n += int64(b.total.messages)
	case b.total.messages > 0:
		n += int64(b.total.messages - 1)
	}
	for _, t := range b.tail {
		n += int64(len(t))
	}
	return n
}

// Sum is the SHA-256 of the body. Along one log it hashes every message once for
// each distinct head, whatever the number of requests.
func (r *Request) Sum() (sum [32]byte) {
	b := r.body
	if b.dig == nil {
		h := sha256.New()
		r.WriteTo(h)
		h.Sum(sum[:0])
		return sum
	}
	h := b.dig.sum(b.snap, b.view, b.head, b.listed > 0)
	for _, t := range b.tail {
		h.Write(t)
	}
	h.Sum(sum[:0])
	return sum
}

// AppendBody appends the body: exactly the bytes of JSON.stringify over the
// request, the abort signal left out (SEMANTICS §0.4).
func (r *Request) AppendBody(dst []byte) []byte {
	for part := range r.parts() {
		dst = append(dst, part...)
	}
	return dst
}

// WriteTo writes the body to w.
func (r *Request) WriteTo(w io.Writer) (n int64, err error) {
	for part := range r.parts() {
		k, err := w.Write(part)
		n += int64(k)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func (r *Request) parts() iter.Seq[[]byte] {
	b := r.body
	return func(yield func([]byte) bool) {
		if !yield(b.head) {
			return
		}
		first := b.listed == 0
		for _, m := range b.messages() {
			if !first && !yield(comma) {
				return
			}
			first = false
			if !yield(m) {
				return
			}
		}
		for _, t := range b.tail {
			if !yield(t) {
				return
			}
		}
	}
}

// Clone returns a request that stays valid and may be used from another
// goroutine.
func (r *Request) Clone() *Request {
	c := *r
	c.Reasons = append([]string(nil), r.Reasons...)
	c.Assumptions = append([]string(nil), r.Assumptions...)
	c.Late = append([]int64(nil), r.Late...)
	c.AfterHeader = append([]int64(nil), r.AfterHeader...)
	b := *r.body
	if b.dig != nil {
		b.fixed = make([][]byte, len(b.snap.nodes))
		for i, n := range b.snap.nodes {
			if m, err := n.message(b.view, b.dig.session); err == nil {
				b.fixed[i] = m
			}
		}
		b.dig = nil
	}
	c.body = &b
	return &c
}

// SharedNodes counts the nodes that r and an earlier request of the same fold
// have in common, from the first on.
func (r *Request) SharedNodes(prev *Request) int {
	a, b := prev.Nodes(), r.Nodes()
	n := min(len(a), len(b))
	if n == 0 || &a[0] == &b[0] {
		return n // one list, grown at its end
	}
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// Extends reports whether r is an earlier request of the same fold with nothing
// changed but messages added at the end (SEMANTICS §6.2). It looks at what the
// bodies consist of, and not at how they came about.
func (r *Request) Extends(prev *Request) bool {
	a, b := prev.body, r.body
	if r.SharedNodes(prev) < len(a.snap.nodes) || !bytes.Equal(a.head, b.head) || len(a.tail) != len(b.tail) {
		return false
	}
	for i := range a.tail {
		if !bytes.Equal(a.tail[i], b.tail[i]) {
			return false
		}
	}
	if a.view == b.view {
		return true
	}
	for _, n := range a.snap.nodes {
		was, err1 := n.message(a.view, a.dig.session)
		now, err2 := n.message(b.view, b.dig.session)
		if err1 != nil || err2 != nil || !bytes.Equal(was, now) {
			return false
		}
	}
	return true
}

// frameParts is the part of a body around the messages, for one header and
// layout.
type frameParts struct {
	head   []byte
	listed int
	tail   [][]byte
}

var closeList, closeBody = []byte("]"), []byte("}")

// messagesOnly frames the body of an era that logged no header.
func messagesOnly() frameParts {
	return frameParts{head: []byte(`{"messages":[`), tail: [][]byte{closeList, closeBody}}
}

// A member of a body under construction; the messages have no value yet.
type bodyMember struct{ key, val []byte }

type bodyMembers []bodyMember

// set assigns as JavaScript does: a key that is there keeps its place.
func (m *bodyMembers) set(key string, val []byte) {
	if val == nil {
		return
	}
	token := []byte(`"` + key + `"`)
	for i := range *m {
		if bytes.Equal((*m)[i].key, token) {
			(*m)[i].val = val
			return
		}
	}
	*m = append(*m, bodyMember{token, val})
}

// frameBody lays out a body around its messages (SEMANTICS §6.1). Scalars that
// are absent stay absent; an empty system prompt or tool list was dropped by the
// canonical header.
func frameBody(h *EpochHeader, session []byte, l Layout, effort bool, history []byte, rooted bool) frameParts {
	var m bodyMembers
	config := func(keys ...string) {
		for _, key := range keys {
			m.set(key, jsjson.Get(h.Config, key))
		}
	}
	hole := []byte{} // stands for the messages
	if l == LayoutSpread {
		for key, val := range jsjson.Members(h.Config) {
			if string(key) != `"signal"` { // the abort signal takes its place and is left out
				m = append(m, bodyMember{key, val})
			}
		}
	} else {
		config("provider", "model")
		if effort {
			config("reasoningEffort")
		}
	}
	m.set("messages", hole)
	if !rooted {
		m.set("system", h.System)
	}
	m.set("toolHistory", history)
	m.set("tools", h.Tools)
	if l != LayoutSpread {
		config("temperature", "maxTokens", "stop")
	}
	m.set("sessionId", session)

	var p frameParts
	head := []byte{'{'}
	inHead := true
	for i, e := range m {
		lead := make([]byte, 0, len(e.key)+2)
		if i > 0 {
			lead = append(lead, ',')
		}
		lead = append(append(lead, e.key...), ':')
		switch {
		case string(e.key) == `"messages"`:
			head = append(append(head, lead...), '[')
			if l != LayoutSpread && jsjson.KindOf(h.MessagePrefix) == jsjson.Array {
				p.listed = jsjson.Len(h.MessagePrefix)
				head = append(head, h.MessagePrefix[1:len(h.MessagePrefix)-1]...)
			}
			inHead = false
			p.tail = append(p.tail, closeList)
		case inHead:
			head = append(append(head, lead...), e.val...)
		default:
			p.tail = append(p.tail, lead, e.val)
		}
	}
	p.head = head
	p.tail = append(p.tail, closeBody)
	return p
}

func (p *frameParts) equal(o *frameParts) bool {
	return p.listed == o.listed && bytes.Equal(p.head, o.head) && bytes.Equal(bytes.Join(p.tail, nil), bytes.Join(o.tail, nil))
}

// Requests folds a log and yields its loop requests in the order of dispatch,
// candidates and inherited ones among them. A defect of the log is yielded as an
// error in its place, and reading goes on. A request is valid until the next
// iteration.
func Requests(log *logfmt.Log, opts Options) iter.Seq2[*Request, error] {
	return func(yield func(*Request, error) bool) {
		f := New(log.Header, opts)
		for e, defect := range log.Events() {
			if defect != nil {
				if !yield(nil, defect) {
					return
				}
				continue
			}
			for _, r := range f.Add(e) {
				if !yield(r, nil) {
					return
				}
			}
		}
		for _, r := range f.End() {
			if !yield(r, nil) {
				return
			}
		}
	}
}
