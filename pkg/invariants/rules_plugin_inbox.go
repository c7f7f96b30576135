package invariants

import (
	"crypto/sha256"
	"slices"
	"strconv"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about messages that wait to be delivered.
var inboxRules = []*Rule{
	{
		ID: "INBOX", Severity: Error, Since: buildReact, Spec: "SEMANTICS §8.2, §6.6",
		Title:  "the inbox is changed within its bounds, and a message waits in it once",
		Text:   "Messages wait in two lists, for the next turn and for the next step. A splice removes only what is there, and inserts whole messages of which none is waiting already. A child does not take over the inbox of its parent. From generation 2 on a splice beyond what is waiting is a warning. Whether a message may wait twice there, and what a child takes over, is not known: behind inherited events with something waiting nothing is said.",
		How:    "A splice was lost or edited, or two processes share the log.",
		Advice: "Look for the splice that is missing. What was delivered stands in the log as user/message in any case.",
		Types:  []string{"agent/inbox/spliced"},
		New:    func() Checker { return new(inboxChecker) },
	},
	{
		ID: "INBOX-COPY", Severity: Warning, Since: buildReact, Spec: "SEMANTICS §6.6",
		Title:  "a message is delivered as it waited",
		Text:   "A message that is taken out of the inbox for delivery is logged a second time when the model gets to see it: the same id, the same bytes. The two were written apart, so they bear witness for each other. It comes once, behind the splice that takes it out. Only a hook that runs before the step may rewrite what was taken. Whether builds of generations after 1 log the same bytes is not known: nothing is said of it there.",
		How:    "A hook rewrote the message, or one of the two was edited, lost or repeated.",
		Advice: "Compare the two. Without a hook that rewrites prompts, one of them is not what was written.",
		Types:  []string{"agent/inbox/spliced", "user/message", "turn/start", "turn/end"},
		New:    func() Checker { return new(copyChecker) },
	},
}

// waiting is a message in the inbox.
type waiting struct {
	id   string // as idOf gives it, "" when it is no use
	sum  [sha256.Size]byte
	from Related
}

const mostWaiting = 1 << 14 // messages of a target that are followed

// inbox holds what waits, by target.
type inbox struct {
	lists map[string][]*waiting
	lost  int64
	blind bool // what waits is not known
}

// splice does what an event says. The removed messages are valid until the next
// call. It is not ok when the event asks for what is not there.
func (b *inbox) splice(c *Context, e *logfmt.Event) (removed []*waiting, ok bool) {
	if c.unsettled(&b.lost) {
		b.blind = true
	}
	target, isText := jsjson.Str(jsjson.Get(e.Data, "target"))
	start, whole := jsjson.SafeInt(jsjson.Get(e.Data, "start"))
	count, inserted := jsjson.Get(e.Data, "removedCount"), jsjson.Get(e.Data, "inserted")
	n := int64(0)
	if count != nil {
		var is bool
		n, is = jsjson.SafeInt(count)
		whole = whole && is && n >= 0
	}
	if b.blind || !whole || start < 0 || !isText || jsjson.KindOf(inserted) != jsjson.Array {
		b.blind = true
		return nil, true
	}
	list := b.lists[target]
	if have := int64(len(list)); start > have || n > have-start {
		b.blind = true
		return nil, false
	}
	removed = slices.Clone(list[start : start+n])
	list = slices.Delete(list, int(start), int(start+n))
	var added []*waiting
	for v := range jsjson.Elements(inserted) {
		if len(list)+len(added) == mostWaiting {
			b.blind, b.lists = true, nil
			return removed, true
		}
		id, _ := idOf(jsjson.Get(v, "id"))
		added = append(added, &waiting{id, sha256.Sum256(v), Related{e.Seq, e.Pos.Line, "it was put into the inbox here"}})
	}
	if b.lists == nil {
		b.lists = map[string][]*waiting{}
	}
	b.lists[target] = slices.Insert(list, int(start), added...)
	return removed, true
}

// outside reports a splice of what is not there.
func (b *inbox) outside(c *Context, e *logfmt.Event, target string, have int) *Finding {
	return c.Report(e, "data.start", "the splice of %s removes %s from position %s, but what is waiting there ends at %d", target,
		counted(jsjson.Get(e.Data, "removedCount")), show(jsjson.Get(e.Data, "start")), have)
}

type inboxChecker struct {
	inbox
	ids map[string]int // how often each id waits
}

func (k *inboxChecker) Event(c *Context, e *logfmt.Event) {
	k.whole(c, e)
	if c.Inherited(e) {
		return
	}
	target, _ := jsjson.Str(jsjson.Get(e.Data, "target"))
	if target != "next-turn" && target != "next-step" {
		k.blind = true
		return
	}
	have := len(k.lists[target])
	removed, ok := k.splice(c, e)
	if !ok {
		k.outside(c, e, target, have)
		return
	}
	if k.blind {
		return
	}
	if k.ids == nil {
		k.ids = map[string]int{}
	}
	for _, w := range removed {
		if k.ids[w.id]--; k.ids[w.id] <= 0 {
			delete(k.ids, w.id)
		}
	}
	i := 0
	for v := range jsjson.Elements(jsjson.Get(e.Data, "inserted")) {
		raw := jsjson.Get(v, "id")
		id, usable := idOf(raw)
		if usable && k.ids[id] > 0 {
			c.Report(e, "data.inserted["+strconv.Itoa(i)+"].id", "message %s is put into the inbox while it is waiting there", show(raw))
		}
		k.ids[id]++
		i++
	}
}

func counted(v []byte) string {
	if v == nil {
		return "0"
	}
	return show(v)
}

// whole checks that what is put into the inbox can be a user/message.
func (k *inboxChecker) whole(c *Context, e *logfmt.Event) {
	i := 0
	for m := range jsjson.Elements(jsjson.Get(e.Data, "inserted")) {
		at := "inserted[" + strconv.Itoa(i) + "]"
		i++
		src := jsjson.Get(m, "source")
		for _, w := range [...]struct {
			key  string
			v    []byte
			want want
		}{
			{"id", jsjson.Get(m, "id"), wantText}, {"content", jsjson.Get(m, "content"), wantArray},
			{"source", src, wantObject}, {"source.kind", jsjson.Get(src, "kind"), wantText},
		} {
			if exp := w.want(w.v); exp != "" {
				c.Report(e, "data."+at+"."+w.key, "%s of %s is %s, expected %s", w.key, at, show(w.v), exp)
				break // one for each message
			}
		}
		if v := jsjson.Get(m, "role"); jsjson.KindOf(m) == jsjson.Object && !jsjson.StrEq(v, "user") {
			c.Report(e, "data."+at+".role", "role of %s is %s, expected \"user\"", at, show(v))
		}
	}
}

func (k *inboxChecker) End(*Context) {}

// copyChecker follows a message from the inbox to the model.
type copyChecker struct {
	inbox
	mark  int64            // of what was lost
	taken ledger[*waiting] // in the open turn, for delivery
	seen  ledger[Related]  // delivered in the open turn
}

func (k *copyChecker) Event(c *Context, e *logfmt.Event) {
	if c.unsettled(&k.mark) {
		k.taken.reset()
		k.seen.reset()
	}
	switch e.Type {
	case "turn/start", "turn/end":
		k.taken.reset()
		k.seen.reset()
	case "agent/inbox/spliced":
		if c.Inherited(e) {
			return
		}
		removed, _ := k.splice(c, e)
		if jsjson.Get(e.Data, "outcome") != nil {
			return
		}
		for _, w := range removed {
			if w.id != "" {
				k.taken.put(w.id, w)
				k.seen.drop(w.id)
			}
		}
	case "user/message":
		if !isReplace(e) {
			k.deliver(c, e)
		}
	}
}

func (k *copyChecker) deliver(c *Context, e *logfmt.Event) {
	raw := jsjson.Get(e.Data, "id")
	id, ok := idOf(raw)
	if !ok {
		return
	}
	w, taken := k.taken.get(id)
	if taken {
		if sha256.Sum256(e.Data) != w.sum {
			f := c.Report(e, "data", "message %s is not what was taken out of the inbox under that id", show(raw))
			f.Related = append(f.Related, w.from)
		}
		k.taken.drop(id)
		k.seen.put(id, Related{e.Seq, e.Pos.Line, "it was delivered here"})
		return
	}
	if first, again := k.seen.get(id); again {
		f := c.Report(e, "data.id", "message %s is delivered a second time, but was taken out of the inbox once", show(raw))
		f.Related = append(f.Related, first)
		return
	}
	if c.unsettled(&k.lost) || k.blind || c.Inherited(e) {
		k.blind = k.blind || !c.Inherited(e) // what was lost may have taken it out
		return
	}
	for _, target := range [...]string{"next-turn", "next-step"} {
		list := k.lists[target]
		if i := slices.IndexFunc(list, func(w *waiting) bool { return w.id == id }); i >= 0 {
			f := c.Report(e, "data.id", "message %s is delivered while it is waiting in the inbox, expected a splice that takes it out first", show(raw))
			f.Related = append(f.Related, list[i].from)
			return
		}
	}
}

func (k *copyChecker) End(*Context) {}
