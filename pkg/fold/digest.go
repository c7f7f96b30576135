package fold

import (
	"bytes"
	"crypto/sha256"
	"hash"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// view names a projection among those that one log can need.
type view uint8

const (
	viewFramed      view = iota // E1 to E5
	viewFramedEmpty             // E0: an assistant message without content counts
	viewVerbatim                // E6 to E8
	viewImported                // E9
	viewReact                   // E10 on
	viewAny                     // a message that is the same in every view
)

// derived is the message of a node in one view.
type derived struct {
	view    view
	message []byte // nil when none
	err     error
}

// message derives the node's message, once for each view asked for.
func (n *Node) message(v view, session string) ([]byte, error) {
	for i := range n.memo {
		if d := &n.memo[i]; d.view == v || d.view == viewAny {
			return d.message, d.err
		}
	}
	d := derived{view: v}
	d.message, d.err = DeriveEventMessage(n.event(), n.projection(v, session))
	if len(n.offloaded) > 0 && d.message != nil {
		d.message = markImages(d.message, n.offloaded)
	}
	if n.Type != logfmt.TypeSteeringMessage && n.identified() && v != viewFramedEmpty {
		d.view = viewAny
	}
	n.memo = append(n.memo, d)
	return d.message, d.err
}

func (n *Node) identified() bool {
	if n.Type == logfmt.TypeUserMessage {
		return jsjson.Get(n.Data, "role") != nil && jsjson.Get(n.Data, "id") != nil
	}
	return jsjson.Get(n.Data, "message") != nil
}

// framable reports whether framing makes a difference to the node's message.
func (n *Node) framable() bool {
	switch n.Type {
	case logfmt.TypeContextMessage:
		return !jsjson.StrEq(jsjson.Get(n.Data, "envelope"), "raw")
	case logfmt.TypeSteeringMessage:
		return !n.identified()
	}
	return false
}

func (n *Node) projection(v view, session string) Projection {
	switch v {
	case viewFramed, viewFramedEmpty:
		return Projection{Form: FormFramed, KeepEmpty: v == viewFramedEmpty, Provenance: true}
	case viewVerbatim:
		return Verbatim()
	}
	p := Imported(session, func(int64) []byte {
		if n.root == n.Seq {
			return nil
		}
		if n.identity != nil {
			return n.identity
		}
		return p0(session).legacyID(n.root)
	})
	p.React = v == viewReact
	return p
}

func p0(session string) Projection { return Projection{SessionID: session} }

// extent is the list of nodes at one moment. Two extents of one generation
// are prefixes of one another.
type extent struct {
	nodes []*Node
	gen   int // of the surface; linearGen for a linear scan
}

const linearGen = -1

// line is a list of nodes along which something is accumulated. A later
// snapshot of the same generation continues it without a comparison.
type line struct {
	nodes []*Node
	gen   int
}

// sync makes the line a prefix of s or s a prefix of the line, and returns how
// many of the line's nodes are kept.
func (l *line) sync(s extent) int {
	if l.gen == s.gen {
		return len(l.nodes)
	}
	n := 0
	for n < len(l.nodes) && n < len(s.nodes) && l.nodes[n] == s.nodes[n] {
		n++
	}
	l.cut(n)
	l.gen = s.gen
	return n
}

func (l *line) cut(n int) {
	if n < len(l.nodes) {
		clear(l.nodes[n:])
		l.nodes = l.nodes[:n]
	}
}

// replaced follows a replace of the surface that made generation gen and left
// the nodes before pos as they were.
func (l *line) replaced(gen, pos int) (kept int, ok bool) {
	if l.gen != gen-1 {
		return 0, false // lags behind: the next sync compares
	}
	l.cut(pos)
	l.gen = gen
	return len(l.nodes), true
}

// total is what the messages of a surface prefix come to.
type total struct {
	bytes    int64 // of the messages, without commas
	messages int
	framable int // messages that framing changes
	bad      int // nodes from whose shape no message follows
}

// tally keeps a total for every prefix of the surface in one view.
type tally struct {
	line
	view view
	at   []total // at[i] counts nodes[:i]
}

func (t *tally) of(s extent, session string) total {
	if len(t.at) == 0 {
		t.at = append(t.at, total{})
	}
	t.at = t.at[:t.sync(s)+1]
	for i := len(t.nodes); i < len(s.nodes); i++ {
		n := s.nodes[i]
		c := t.at[i]
		m, err := n.message(t.view, session)
		switch {
		case err != nil:
			c.bad++
		case m != nil:
			c.bytes += int64(len(m))
			c.messages++
			if n.framable() {
				c.framable++
			}
		}
		t.nodes = append(t.nodes, n)
		t.at = append(t.at, c)
	}
	return t.at[len(s.nodes)]
}

// chain keeps the state of SHA-256 for every prefix of the surface behind one
// head, the bytes of a request before its first message.
type chain struct {
	line
	view   view
	head   []byte
	listed bool // the head already holds messages
	at     []checkpoint
	used   int64
}

type checkpoint struct {
	state hash.Cloner
	any   bool // a message has been written: the next one needs a comma
}

func clone(h hash.Cloner) hash.Cloner {
	c, err := h.Clone()
	if err != nil {
		panic("sha256: " + err.Error()) // the standard implementation never fails
	}
	return c
}

func newSHA() hash.Cloner { return sha256.New().(hash.Cloner) }

var comma = []byte{','}

func (c *chain) of(s extent, session string) hash.Cloner {
	if len(c.at) == 0 {
		h := newSHA()
		h.Write(c.head)
		c.at = append(c.at, checkpoint{h, c.listed})
	}
	kept := c.sync(s) + 1
	clear(c.at[kept:])
	c.at = c.at[:kept]
	for i := len(c.nodes); i < len(s.nodes); i++ {
		n := s.nodes[i]
		p := c.at[i]
		if m, err := n.message(c.view, session); err == nil && m != nil {
			p.state = clone(p.state)
			if p.any {
				p.state.Write(comma)
			}
			p.state.Write(m)
			p.any = true
		}
		c.nodes = append(c.nodes, n)
		c.at = append(c.at, p)
	}
	return clone(c.at[len(s.nodes)].state)
}

// maxChains bounds how many heads keep their states: a log that goes back and
// forth between configs hashes each side once.
const maxChains = 16

// digester accumulates along the surface for all requests of one fold.
type digester struct {
	session string
	tallies []*tally
	chains  []*chain
	clock   int64
}

func (d *digester) total(s extent, v view) total {
	for _, t := range d.tallies {
		if t.view == v {
			return t.of(s, d.session)
		}
	}
	t := &tally{view: v, line: line{gen: s.gen}}
	d.tallies = append(d.tallies, t)
	return t.of(s, d.session)
}

func (d *digester) sum(s extent, v view, head []byte, listed bool) hash.Cloner {
	d.clock++
	oldest := -1
	for i, c := range d.chains {
		if c.view == v && c.listed == listed && bytes.Equal(c.head, head) {
			c.used = d.clock
			return c.of(s, d.session)
		}
		if oldest < 0 || c.used < d.chains[oldest].used {
			oldest = i
		}
	}
	c := &chain{view: v, head: head, listed: listed, used: d.clock, line: line{gen: s.gen}}
	if len(d.chains) < maxChains {
		d.chains = append(d.chains, c)
	} else {
		d.chains[oldest] = c
	}
	return c.of(s, d.session)
}

func (d *digester) replaced(gen, pos int) {
	for _, t := range d.tallies {
		if n, ok := t.replaced(gen, pos); ok {
			t.at = t.at[:n+1]
		}
	}
	for _, c := range d.chains {
		if n, ok := c.replaced(gen, pos); ok {
			clear(c.at[n+1:])
			c.at = c.at[:n+1]
		}
	}
}
