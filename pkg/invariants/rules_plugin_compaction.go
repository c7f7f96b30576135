package invariants

import (
	"bytes"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Further rules about compactions.
var compactionPluginRules = []*Rule{
	{
		ID: "CMP-RANGE", Severity: Error, Since: buildCompanions, Spec: "SEMANTICS §8.2, §11.1, §11.4",
		Title:  "a compaction names what it takes from the surface",
		Text:   "shadowedSeqs lists the messages that leave the surface, at least one; shadowedRange starts at the first and ends at the last of them; shadowedTokenCount is a whole number from 0. The same holds for pruning.",
		How:    "The event was edited, or a summary was put together by hand.",
		Advice: "Look at the replacement right behind the event: its range and citations say what really left the surface.",
		Types:  []string{"compact/summary", "compaction/summary", "compact/prune", "compaction/prune"},
		New:    stateless(checkTaken),
	},
	{
		ID: "CMP-ID", Severity: Error, Since: buildIDs, Spec: "SEMANTICS §8.2, §11.1",
		Title:  "the events of one compaction carry one id",
		Text:   "Start, summary, end and the source of the checkpoint name the same compactionId, and the same sourceCommandId or none of them any.",
		How:    "An event was edited or moved, or two processes compacted at once.",
		Advice: "Find the events that carry the other id: parts of two compactions are mixed.",
		Types:  append([]string{"user/message"}, compactionTypes...),
		New:    func() Checker { return new(idChecker) },
	},
	{
		ID: "CMP-SEED", Severity: Error, Since: buildCompanions, Spec: "SEMANTICS §8.2",
		Title:  "no compaction goes on behind session/end-seed",
		Text:   "A process that takes over a log drops a compaction that is still open there and starts its own. A summary or an end behind session/end-seed that belongs to a start before it was written by a process that should have been gone. From generation 2 on it is known that the compaction is dropped, and not whether going on with it is refused: a breach is a warning.",
		How:    "Two processes wrote into one log.",
		Advice: "Look for a second writer: other events behind session/end-seed may be of the older process too.",
		Types:  compactionTypes,
		New:    func() Checker { return new(seedChecker) },
	},
	{
		ID: "CMP-CITE", Severity: Warning, Since: 7_02_00_00, Spec: "SEMANTICS §8.2, §11.1, §11.4",
		Title:  "a checkpoint cites its compaction and takes its range",
		Text:   "The message that replaces a compacted range belongs to an open compaction that has its summary. It cites the start, the summary, then what the summary lists, and replaces the range that the summary names. From 08-06 the summary stands right before it, and a prune event right before the tool result that it announces. This is the one place where what was summed up and what was hidden can be compared. From generation 2 on only what is cited and replaced is looked at, and not what stands next to it.",
		How:    "The event was edited, a plugin compacted on its own, or two processes share the log.",
		Advice: "Compare the citations of the checkpoint with the summary: what is in only one of them was hidden without being summed up, or the reverse.",
		Types:  append([]string{"user/message", "tool/result", "tool/call", "assistant/message", "step/start", "step/end", "compact/prune", "compaction/prune"}, compactionTypes...),
		New:    func() Checker { return new(citeChecker) },
	},
}

func checkTaken(c *Context, e *logfmt.Event) {
	seqs, r := jsjson.Get(e.Data, "shadowedSeqs"), jsjson.Get(e.Data, "shadowedRange")
	if jsjson.KindOf(seqs) == jsjson.Array {
		var first, last []byte
		for v := range jsjson.Elements(seqs) {
			if first == nil {
				first = v
			}
			last = v
		}
		if first == nil {
			c.Report(e, "data.shadowedSeqs", "shadowedSeqs of %s is empty, expected the messages that leave the surface", e.Type)
		} else {
			shadowEdge(c, e, r, "start", first, "first")
			shadowEdge(c, e, r, "end", last, "last")
		}
	}
	if n := jsjson.Get(e.Data, "shadowedTokenCount"); jsjson.KindOf(n) == jsjson.Number && wantCount(n) != "" {
		c.Report(e, "data.shadowedTokenCount", "shadowedTokenCount of %s is %s, expected %s", e.Type, show(n), wantCount(n))
	}
}

func shadowEdge(c *Context, e *logfmt.Event, r []byte, key string, seq []byte, which string) {
	v := jsjson.Get(r, key)
	a, ok := jsjson.SafeInt(v)
	b, is := jsjson.SafeInt(seq)
	if ok && is && a != b {
		c.Report(e, "data.shadowedRange."+key, "shadowedRange.%s of %s is %d, expected the %s of shadowedSeqs, %d", key, e.Type, a, which, b)
	}
}

// checkpoint is the source of a message that stands for a compacted range, nil
// when the event is none.
func checkpoint(e *logfmt.Event) []byte {
	if e.Type != "user/message" || !isReplace(e) {
		return nil
	}
	src, ok := fromPlugin(e, "compact")
	if !ok {
		return nil
	}
	return src
}

type idChecker struct {
	open, summed bool
	id, command  []byte
	at           Place
	lost         int64
}

func (k *idChecker) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&k.lost) {
		k.open = false
	}
	part, from, path := stage(e.Type), e.Data, "data."
	if src := checkpoint(e); src != nil {
		part, from, path = "checkpoint", src, "data.source."
	}
	switch part {
	case "start":
		id := jsjson.Get(from, "compactionId")
		*k = idChecker{open: wantText(id) == "", id: clone(id), command: clone(jsjson.Get(from, "sourceCommandId")), at: c.place(e), lost: k.lost}
		return
	case "":
		if abandoned(e) {
			k.open = false
		}
		return
	}
	if !k.open || part == "checkpoint" && !k.summed {
		return
	}
	k.summed = k.summed || part == "summary"
	for _, m := range [...]struct {
		key  string
		want []byte
	}{{"compactionId", k.id}, {"sourceCommandId", k.command}} {
		got := jsjson.Get(from, m.key)
		if bytes.Equal(got, m.want) || got == nil && part != "checkpoint" && m.key == "compactionId" {
			continue // absent ids are a matter of shape, but for that of a source
		}
		f := c.Report(e, path+m.key, "%s of %s is %s, expected that of the compaction, %s", m.key, e.Type, show(got), show(m.want))
		f.Related = append(f.Related, Related{k.at.Seq, k.at.Pos.Line, "the compaction starts here"})
		break
	}
	if part == "end" {
		k.open = false
	}
}

func (k *idChecker) End(*Context) {}

// stale is a compaction that was open when a new process took over.
type stale struct {
	set bool
	id  []byte
	at  Place
}

// take notes that a process takes over while the compaction is open.
func (s *stale) take(b *bracket) { *s = stale{set: b.open, id: b.id, at: b.at} }

// goesOn reports whether a summary or an end belongs to it.
func (s *stale) goesOn(e *logfmt.Event) bool {
	return s.set && (s.id == nil || bytes.Equal(s.id, jsjson.Get(e.Data, "compactionId")))
}

type seedChecker struct {
	b    bracket
	old  stale
	lost int64
}

func (s *seedChecker) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&s.lost) {
		*s = seedChecker{lost: s.lost}
	}
	switch part := stage(e.Type); part {
	case "start":
		s.b = bracket{open: true, id: clone(jsjson.Get(e.Data, "compactionId")), at: c.place(e)}
		if s.old.id == nil {
			s.old = stale{}
		}
	case "summary", "end":
		if !s.b.open && s.old.goesOn(e) {
			f := c.Report(e, "", "%s goes on with a compaction from before session/end-seed, expected a new %s", e.Type, e.Type[:strings.IndexByte(e.Type, '/')]+"/start")
			f.Related = append(f.Related, Related{s.old.at.Seq, s.old.at.Pos.Line, "that compaction starts here"})
		}
		if part == "end" {
			s.b = bracket{}
		}
	default:
		if e.Type == "session/end-seed" && s.b.open {
			s.old.take(&s.b)
		}
		if c.abandoned(e) {
			s.b = bracket{}
		}
	}
}

func (s *seedChecker) End(*Context) {}

type citeChecker struct {
	start, summary int64 // seqs; -1 when not seen
	seqs           []int64
	from, to       int64 // the range
	ranged         bool
	prune          Place // pending, Seq -1 when none
	pruneType      string
	pruned         int64 // what it prunes
	lost           int64
	blind          bool
	ready          bool
}

func (k *citeChecker) Event(c *Context, e *logfmt.Event) {
	if !k.ready {
		k.ready, k.start, k.summary, k.prune.Seq = true, -1, -1, -1
	}
	if c.unsettled(&k.lost) {
		k.blind, k.start, k.summary, k.prune.Seq = true, -1, -1, -1
	}
	k.follows(c, e)
	switch stage(e.Type) {
	case "start":
		k.blind, k.start, k.summary = false, e.Seq, -1
		return
	case "summary":
		k.take(e)
		return
	case "end":
		k.blind, k.start, k.summary, k.seqs = false, -1, -1, nil
		return
	case "prune":
		if c.Builds.Since(8_06_11_59) {
			if n := seqsIn(jsjson.Get(e.Data, "shadowedSeqs")); len(n) == 1 {
				k.prune, k.pruneType, k.pruned = c.place(e), e.Type, n[0]
			}
		}
		return
	}
	if abandoned(e) {
		k.blind, k.start, k.summary, k.seqs = false, -1, -1, nil
	}
	if checkpoint(e) != nil {
		k.check(c, e)
	}
}

// take remembers a summary.
func (k *citeChecker) take(e *logfmt.Event) {
	k.summary = e.Seq
	k.seqs = seqsIn(jsjson.Get(e.Data, "shadowedSeqs"))
	r := jsjson.Get(e.Data, "shadowedRange")
	var a, b bool
	k.from, a = jsjson.SafeInt(jsjson.Get(r, "start"))
	k.to, b = jsjson.SafeInt(jsjson.Get(r, "end"))
	k.ranged = a && b
}

// follows checks what stands behind a prune event.
func (k *citeChecker) follows(c *Context, e *logfmt.Event) {
	if k.prune.Seq < 0 {
		return
	}
	p := k.prune
	k.prune.Seq = -1
	if len(c.Faults) > 0 {
		return // said of the surface
	}
	if e.Seq == p.Seq+1 && e.Type == "tool/result" {
		if op, ok := e.Replace(); ok && op.Start == k.pruned && op.End == k.pruned {
			return
		}
	}
	c.ReportAt(p, "", "%s announces that event %d is replaced, expected the tool/result that does so right behind it", k.pruneType, k.pruned)
}

func (k *citeChecker) check(c *Context, e *logfmt.Event) {
	if k.blind || len(c.Faults) > 0 || e.Fault&(logfmt.FaultSources|logfmt.FaultSourceRuns) != 0 {
		return // lost, or said of the surface
	}
	if k.start < 0 && k.summary >= 0 {
		return // said of the summary
	}
	if k.summary < 0 {
		c.Report(e, "", "user/message stands for a compacted range, but no compaction with a summary is open")
		return
	}
	k.compare(c, e)
	if c.Builds.Since(8_06_11_59) && e.Seq != k.summary+1 {
		c.Report(e, "", "the checkpoint stands %s behind the summary, expected right behind it", plural.Count(e.Seq-k.summary, "event"))
	}
}

// compare holds a checkpoint to the start and the summary of its compaction.
func (k *citeChecker) compare(c *Context, e *logfmt.Event) {
	want := append([]int64{k.start, k.summary}, k.seqs...)
	got := seqsIn(e.Sources)
	for i, n := range want {
		if i >= len(got) || got[i] != n {
			c.Report(e, "sourceEventSeqs", "the checkpoint cites %s, expected %s: the start, the summary and what the summary lists", seqList(got), seqList(want))
			break
		}
	}
	if op, ok := e.Replace(); ok && k.ranged && (op.Start != k.from || op.End != k.to) {
		c.Report(e, "surfaceOp", "the checkpoint replaces %d to %d, expected the range of the summary, %d to %d", op.Start, op.End, k.from, k.to)
	}
}

func (k *citeChecker) End(*Context) {}
