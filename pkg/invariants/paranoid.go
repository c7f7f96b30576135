package invariants

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Paranoia says how many requests are rebuilt a second time.
type Paranoia uint8

const (
	ParanoidOff    Paranoia = iota
	ParanoidSample          // all of a small log, a spread of a large one
	ParanoidAll
)

// Paranoid counts what the second fold did.
type Paranoid struct {
	Checked int64  // requests rebuilt from a fresh fold of their prefix
	Of      int64  // requests of the log
	Skipped string // why nothing was checked although it was asked for; "" otherwise
}

var paranoidRules = []*Rule{
	{
		ID: "REQ-PARANOID", Severity: Error, Spec: "SEMANTICS §6.7, §6.8",
		Title:  "a request is the same when it is rebuilt from the log's beginning",
		Text:   "Requests are rebuilt in one pass that carries the surface, the header and digests along. A second pass starts afresh for each request, takes only the events before its end, finds the surface anew by plain search in a list, and writes the body out. Both must come to the same bytes.",
		How:    "dsh-audit is at fault, or the file was written to while it was read.",
		Advice: "Run the check again on a copy. If it persists, please report it with the log.",
	},
}

// paranoidBudget is how many events a sampled second fold reads in all, as a
// multiple of the events of the log; below paranoidSmall it reads all it wants.
const (
	paranoidBudget = 4
	paranoidSmall  = 200_000
)

// A mark is what the first pass made of one request.
type mark struct {
	end   int64 // events that were read when it was done
	sum   [sha256.Size]byte
	len   int64
	grade fold.Grade
	at    Place
	turn  int64
	step  int64
	try   int
}

// second is the second fold.
type second struct {
	mode  Paranoia
	marks []mark
}

// request notes the result of the first pass.
func (s *second) request(c *Context, r *fold.Request) {
	if s.mode == ParanoidOff {
		return
	}
	s.marks = append(s.marks, mark{
		end: c.fed, sum: r.Sum(), len: r.Len(), grade: r.Grade, at: c.requestPlace(r),
		turn: r.Turn, step: r.Step, try: r.Attempt,
	})
}

// chosen picks the requests to rebuild, in order. A sample is spread evenly, and
// always has the first and the last.
func (s *second) chosen() []int {
	n := len(s.marks)
	all := make([]int, n)
	total := int64(0)
	for i := range all {
		all[i] = i
		total = plus(total, s.marks[i].end)
	}
	last := max(1, s.marks[n-1].end)
	budget := max(paranoidSmall, paranoidBudget*last)
	if s.mode == ParanoidAll || n <= 2 || total <= budget {
		return all
	}
	// Evenly spread requests cost about half the log each.
	k := max(2, min(n, int(2*budget/last)))
	out := all[:0]
	for j := range k {
		out = append(out, j*(n-1)/(k-1))
	}
	return slices.Compact(out)
}

// run rebuilds the chosen requests.
func (s *second) run(ctx context.Context, c *Context) (Paranoid, error) {
	res := Paranoid{Of: int64(len(s.marks))}
	if s.mode == ParanoidOff || !c.runs("REQ-PARANOID") {
		return res, nil
	}
	if c.opts.AsLoaded {
		res.Skipped = "the log was judged as loaded, and holds other events as stored"
		return res, nil
	}
	if len(s.marks) == 0 {
		return res, nil
	}
	for _, i := range s.chosen() {
		if err := ctx.Err(); err != nil {
			return res, err
		}
		m := &s.marks[i]
		got, why := s.rebuild(ctx, c, i)
		if ctx.Err() != nil {
			return res, ctx.Err()
		}
		if why == unread {
			res.Skipped = why
			return res, nil
		}
		res.Checked++
		if why == "" && got == m.sum {
			continue
		}
		if why == "" {
			why = "its bytes differ"
		}
		c.rule = byID["REQ-PARANOID"]
		c.ReportAt(m.at, "", "the request of turn %d step %d attempt %d is not the same when it is rebuilt from the beginning: %s", m.turn, m.step, m.try, why)
		c.rule = nil
	}
	return res, nil
}

const unread = "the log could not be read a second time"

// rebuild reads the log up to the end of request i into a fresh fold.
func (s *second) rebuild(ctx context.Context, c *Context, i int) (sum [sha256.Size]byte, why string) {
	f := fold.New(c.log.Header, c.opts.Fold)
	var plain plainSurface
	n, fed := 0, int64(0)
	var got *fold.Request
	take := func(rs []*fold.Request) bool {
		for _, r := range rs {
			if n == i {
				got = r
			}
			n++
		}
		return got != nil
	}
	m := &s.marks[i]
	read := false
	var numbering Context // which events count is decided as in the first pass
	for e, d := range c.log.Events() {
		if d != nil {
			if d.Class == logfmt.Unreadable {
				return sum, unread
			}
			continue
		}
		read = true
		if numbering.follow(e) == again {
			continue
		}
		if fed&1023 == 0 && ctx.Err() != nil {
			return sum, ""
		}
		fed++
		if take(f.Add(e)) || fed == m.end {
			break
		}
		plain.add(e)
	}
	if !read {
		return sum, unread
	}
	if got == nil && !take(f.End()) {
		return sum, fmt.Sprintf("it is not among those found, %s", plural.Count(n, "request"))
	}
	if got.Grade != m.grade {
		return sum, fmt.Sprintf("its grade is %s and was %s", got.Grade, m.grade)
	}
	if got.Len() != m.len {
		return sum, fmt.Sprintf("it has %s and had %d", plural.Count(got.Len(), "byte"), m.len)
	}
	if got.Mode == fold.SurfaceMode && got.Grade != fold.Messages && got.Certain() && c.gen == nil {
		if why := plain.differs(got); why != "" {
			return sum, why
		}
	}
	h := sha256.New()
	got.WriteTo(h)
	h.Sum(sum[:0])
	return sum, ""
}

// plainSurface finds the surface as SEMANTICS §3.1 words it: a list, searched
// from its beginning. It keeps what was there at every seq of interest by
// keeping the operations.
type plainSurface struct{ ops []plainOp }

type plainOp struct{ seq, start, end int64 } // start is -1 for an append

func (p *plainSurface) add(e *logfmt.Event) {
	switch {
	case !surfaceTypes[e.Type]:
	case jsjson.StrEq(e.Op, "append"):
		p.ops = append(p.ops, plainOp{e.Seq, -1, -1})
	case jsjson.StrEq(jsjson.Get(e.Op, "op"), "replace"):
		start, ok1 := jsjson.SafeInt(jsjson.Get(e.Op, "start"))
		end, ok2 := jsjson.SafeInt(jsjson.Get(e.Op, "end"))
		if ok1 && ok2 {
			p.ops = append(p.ops, plainOp{e.Seq, start, end})
		}
	}
}

// differs compares with the nodes of a request.
func (p *plainSurface) differs(r *fold.Request) string {
	var list []int64
	for _, op := range p.ops {
		if op.seq >= r.Boundary.Seq {
			break
		}
		if op.start < 0 {
			list = append(list, op.seq)
			continue
		}
		i, j := slices.Index(list, op.start), slices.Index(list, op.end)
		if i < 0 || j < i {
			return "" // a fault, and what the fold makes of it is its own affair
		}
		list = slices.Replace(list, i, j+1, op.seq)
	}
	nodes := r.Nodes()
	if len(nodes) != len(list) {
		return fmt.Sprintf("it has %s on the surface, a plain search finds %d", plural.Count(len(nodes), "message"), len(list))
	}
	for i, n := range nodes {
		if n.Seq != list[i] {
			return fmt.Sprintf("its message %d is seq %d, a plain search finds %d", i+1, n.Seq, list[i])
		}
	}
	return ""
}
