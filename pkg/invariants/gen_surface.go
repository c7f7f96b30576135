package invariants

import (
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

func genSources(c *Context, e *logfmt.Event) {
	if c.skipped(e) {
		return
	}
	for _, f := range c.faults(fold.FaultCited) {
		c.Report(e, "sourceEventSeqs", "%s", f.Detail)
	}
	checkSources(c, e)
}

func genHead(c *Context, e *logfmt.Event) {
	for _, f := range c.faults(fold.FaultHead) {
		if !c.Doubtful(f.Node) {
			c.Report(e, "surfaceOp", "%s", f.Detail)
		}
	}
}

func genOffload(c *Context, e *logfmt.Event) {
	for _, f := range c.Surface.CheckOffload(e) {
		if f.Node < 0 || !c.Doubtful(f.Node) && f.Node >= c.lossAt {
			c.Report(e, "data.targets", "%s", f.Detail)
		}
	}
}

// genRange holds the seqs that a compaction names to the surface at hand.
func genRange(c *Context, e *logfmt.Event) {
	list := jsjson.Get(e.Data, "shadowedSeqs")
	if jsjson.KindOf(list) != jsjson.Array {
		return
	}
	var seqs []int64
	for v := range jsjson.Elements(list) {
		n, ok := jsjson.SafeInt(v)
		if !ok {
			return
		}
		if c.Doubtful(n) || n < c.lossAt {
			return
		}
		seqs = append(seqs, n)
	}
	if len(seqs) == 0 {
		c.Report(e, "data.shadowedSeqs", "%s names no event, expected at least one", e.Type)
		return
	}
	r := jsjson.Get(e.Data, "shadowedRange")
	first, ok1 := jsjson.SafeInt(jsjson.Get(r, "start"))
	last, ok2 := jsjson.SafeInt(jsjson.Get(r, "end"))
	if ok1 && ok2 && (first != seqs[0] || last != seqs[len(seqs)-1]) {
		c.Report(e, "data.shadowedRange", "%s names the range %d to %d, its list goes from %d to %d", e.Type, first, last, seqs[0], seqs[len(seqs)-1])
		return
	}
	nodes := c.Surface.Seqs(nil)
	at := -1
	for i, n := range nodes {
		if n == seqs[0] {
			at = i
		}
	}
	if at < 0 {
		c.Report(e, "data.shadowedSeqs", "%s names seq %d, which is not on the surface", e.Type, seqs[0])
		return
	}
	for i, n := range seqs {
		if at+i >= len(nodes) || nodes[at+i] != n {
			c.Report(e, "data.shadowedSeqs", "%s names %s, which is no span of the surface %s", e.Type, seqList(seqs), seqList(nodes))
			return
		}
	}
	if c.gen.rooted && at == 0 && c.Surface.Nodes()[0].Type == logfmt.TypeSystemMessage {
		c.Report(e, "data.shadowedSeqs", "%s names seq %d, the system prompt, expected what follows it", e.Type, seqs[0])
	}
}

// genOwner is ownerChecker where a compaction may cross the end of its turn only
// when it was given up: when a session/end-seed follows before its end (FORMATS
// §7.4 P3).
type genOwner struct {
	b       bracket
	lost    int64
	crossed []crossing
}

type crossing struct {
	at   Place
	typ  string
	from Place
}

func (o *genOwner) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&o.lost) {
		o.b, o.crossed = bracket{}, nil
	}
	turn := jsjson.Get(e.Data, "turn")
	switch e.Type {
	case "compaction/start":
		o.settle(c)
		o.b = bracket{open: true, at: c.place(e)}
		if turn == nil || wantOwner(turn) != "" || ownerFits(c, turn) {
			return
		}
		if n, ok := jsjson.SafeInt(turn); ok && c.Turn.Open {
			c.Report(e, "data.turn", "%s names turn %d, expected the open turn %s", e.Type, n, number(c.Turn.N))
		} else if ok {
			c.Report(e, "data.turn", "%s names turn %d, but no turn is open; expected null", e.Type, n)
		} else {
			c.Report(e, "data.turn", "%s names no turn, expected the open turn %s", e.Type, number(c.Turn.N))
		}
	case "compaction/end":
		o.settle(c)
		o.b = bracket{}
	case "session/end-seed":
		o.b, o.crossed = bracket{}, nil // given up
	case "turn/start", "turn/end":
		if o.b.open && len(o.crossed) < 4 {
			o.crossed = append(o.crossed, crossing{c.place(e), e.Type, o.b.at})
		}
	}
}

func (o *genOwner) settle(c *Context) {
	for _, x := range o.crossed {
		f := c.ReportAt(x.at, "", "%s while a compaction is open, expected its end first, or a session/end-seed that gives it up", x.typ)
		f.Related = append(f.Related, Related{x.from.Seq, x.from.Pos.Line, "the open compaction starts here"})
	}
	o.crossed = nil
}

func (o *genOwner) End(c *Context) { o.settle(c) }

// genCompactionID follows the ids of the open compaction.
type genCompactionID struct {
	open        bool
	id, command []byte
	at          Place
	lost        int64
	blind       bool
}

func (k *genCompactionID) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&k.lost) {
		*k = genCompactionID{lost: k.lost, blind: true}
	}
	id, command := jsjson.Get(e.Data, "compactionId"), jsjson.Get(e.Data, "sourceCommandId")
	switch e.Type {
	case "compaction/start":
		*k = genCompactionID{open: true, id: clone(id), command: clone(command), at: c.place(e), lost: k.lost}
	case "compaction/summary", "compaction/end":
		if k.open {
			k.compare(c, e, "data", id, command)
		}
		if e.Type == "compaction/end" {
			k.open, k.blind = false, false
		}
	case "session/end-seed":
		k.open, k.blind = false, false
	case "user/message":
		src := replacesCompacted(e)
		if src == nil {
			return
		}
		own := jsjson.Get(src, "compactionId")
		switch {
		case own == nil && !c.gen.bare: // older sources may lack it
		case k.open:
			k.compare(c, e, "data.source", own, jsjson.Get(src, "sourceCommandId"))
		case !k.blind:
			which := "a compaction"
			if own != nil {
				which = "compaction " + show(own)
			}
			c.Report(e, "data.source.compactionId", "the message takes the place of what %s summed up, but none is open", which)
		}
	}
}

func (k *genCompactionID) compare(c *Context, e *logfmt.Event, path string, id, command []byte) {
	var f *Finding
	switch {
	// An event of the compaction that has none is told of by its shape.
	case (id != nil || e.Type == "user/message") && k.id != nil && !jsjson.Equal(id, k.id):
		f = c.Report(e, path+".compactionId", "compactionId is %s, expected that of the start, %s", show(id), show(k.id))
	case !jsjson.Equal(command, k.command):
		f = c.Report(e, path+".sourceCommandId", "sourceCommandId is %s, expected that of the start, %s", show(command), show(k.command))
	default:
		return
	}
	f.Related = append(f.Related, Related{k.at.Seq, k.at.Pos.Line, "the compaction starts here"})
}

func (k *genCompactionID) End(*Context) {}
