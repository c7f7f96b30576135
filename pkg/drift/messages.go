package drift

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// MessageKind says what became of a message.
type MessageKind string

const (
	Appended  MessageKind = "appended"  // behind everything that was there
	Inserted  MessageKind = "inserted"  // before something that was there
	Replaced  MessageKind = "replaced"  // one or more messages gave way to one, by a replace operation
	Edited    MessageKind = "edited"    // the same message with other bytes
	Reordered MessageKind = "reordered" // the same message at another place
	Dropped   MessageKind = "dropped"
)

// A MessageChange is one message that is not the same on both sides.
type MessageChange struct {
	Kind   MessageKind
	A, B   int           // index in the message list; -1 when absent
	Range  []int         // of Replaced: all the messages of A that gave way, A the first of them
	Old    []byte        // of A; nil when absent
	New    []byte        // of B; nil when absent
	At     *Divergence   // of two sides, within the message
	Values []ValueChange // of two sides: what differs outside the list of blocks
	Blocks []BlockChange // of two sides
	Cause  *Cause
}

// BlockKind says what became of a content block.
type BlockKind string

const (
	BlockAdded   BlockKind = "added"
	BlockDropped BlockKind = "dropped"
	BlockChanged BlockKind = "changed"
)

// A BlockChange is one content block that is not the same on both sides.
type BlockChange struct {
	Kind     BlockKind
	A, B     int // index in the content; -1 when absent
	Old, New []byte
	Values   []ValueChange // of a changed one
}

// MessagesDiff is the difference of two message lists.
type MessagesDiff struct {
	A, B    int // lengths
	Kept    int
	Changes []MessageChange // in order of B; what only A has stands where it stood
	Coarse  bool            // too many messages differ to be aligned
}

// Count returns how many changes are of a kind.
func (d *MessagesDiff) Count(kind MessageKind) int {
	n := 0
	for _, c := range d.Changes {
		if c.Kind == kind {
			n++
		}
	}
	return n
}

// keys gives every message from the given place on a key that is equal for the
// same message on both sides. Two messages of one key may differ in their bytes,
// unless the key is the content. An id that stands twice on one side identifies
// nothing.
func keys(a, b *Body, from int, common int64) (ka, kb []string) {
	twice := make(map[string]bool)
	for _, body := range [2]*Body{a, b} {
		seen := make(map[string]bool)
		for _, m := range body.Messages[from:] {
			if id, ok := messageID(m); ok {
				twice[id] = twice[id] || seen[id]
				seen[id] = true
			}
		}
	}
	of := func(body *Body) (out []string) {
		for i := from; i < len(body.Messages); i++ {
			m := body.Messages[i]
			if n := body.Node(i); n != nil && n.Seq < common {
				out = append(out, "seq "+strconv.FormatInt(n.Seq, 10))
			} else if id, ok := messageID(m); ok && !twice[id] {
				out = append(out, "id "+id)
			} else {
				out = append(out, "raw "+string(m))
			}
		}
		return out
	}
	return of(a), of(b)
}

// sameMessage reports whether message i is the same on both sides, with the same
// bytes.
func sameMessage(a, b *Body, i int, common int64) bool {
	if !bytes.Equal(a.Messages[i], b.Messages[i]) {
		return false
	}
	na, nb := a.Node(i), b.Node(i)
	inA, inB := na != nil && na.Seq < common, nb != nil && nb.Seq < common
	return inA == inB && (!inA || na.Seq == nb.Seq)
}

func compareMessages(a, b *Body, common int64) MessagesDiff {
	d := MessagesDiff{A: len(a.Messages), B: len(b.Messages)}
	n := 0
	for n < d.A && n < d.B && sameMessage(a, b, n, common) {
		n++
	}
	d.Kept = n
	ka, kb := keys(a, b, n, common)
	runs, coarse := sequence(ka, kb)
	d.Coarse = coarse

	// partner[i] is where A's message stands in B, -1 when nowhere.
	partner := make([]int, d.A)
	for i := range partner {
		partner[i] = -1
	}
	taken := make([]bool, d.B)
	moved := make([]bool, d.A)
	join := func(i, j int) { partner[i], taken[j] = j, true }
	i, j := n, n
	type gap struct{ a0, a1, b0, b1 int }
	var gaps []gap
	for _, r := range runs {
		if r.op == Keep {
			for range r.n {
				join(i, j)
				i++
				j++
			}
			continue
		}
		if len(gaps) == 0 || gaps[len(gaps)-1].a1 != i || gaps[len(gaps)-1].b1 != j {
			gaps = append(gaps, gap{i, i, j, j})
		}
		g := &gaps[len(gaps)-1]
		if r.op == Drop {
			i += r.n
			g.a1 = i
		} else {
			j += r.n
			g.b1 = j
		}
	}
	// What is left over on both sides under one key stands at another place.
	rest := make(map[string][]int)
	for _, g := range gaps {
		for j := g.b0; j < g.b1; j++ {
			rest[kb[j-n]] = append(rest[kb[j-n]], j)
		}
	}
	for _, g := range gaps {
		for i := g.a0; i < g.a1; i++ {
			if list := rest[ka[i-n]]; len(list) > 0 {
				join(i, list[0])
				moved[i] = true
				rest[ka[i-n]] = list[1:]
			}
		}
	}
	// Messages without an identity that stand in one gap are told apart by role.
	for _, g := range gaps {
		byRole := make(map[string][]int)
		for j := g.b0; j < g.b1; j++ {
			if !taken[j] && !identified(b, j, common) {
				role := string(jsjson.Get(b.Messages[j], "role"))
				byRole[role] = append(byRole[role], j)
			}
		}
		for i := g.a0; i < g.a1; i++ {
			if partner[i] >= 0 || identified(a, i, common) {
				continue
			}
			role := string(jsjson.Get(a.Messages[i], "role"))
			if list := byRole[role]; len(list) > 0 {
				join(i, list[0])
				byRole[role] = list[1:]
			}
		}
	}

	last := n - 1 // of B, that A has too
	for i := n; i < d.A; i++ {
		last = max(last, partner[i])
	}
	i = n
	drops := func(to int) {
		for ; i < to; i++ {
			if partner[i] < 0 {
				d.Changes = append(d.Changes, MessageChange{Kind: Dropped, A: i, B: -1, Old: a.Messages[i]})
			}
		}
	}
	from := make(map[int]int, d.A-n) // partner, the other way
	for i := n; i < d.A; i++ {
		if partner[i] >= 0 {
			from[partner[i]] = i
		}
	}
	// next[j-n] is where in A the next message stands that B kept in its place.
	next := make([]int, d.B-n+1)
	next[d.B-n] = d.A
	for j := d.B - 1; j >= n; j-- {
		next[j-n] = next[j-n+1]
		if k, ok := from[j]; ok && !moved[k] {
			next[j-n] = k
		}
	}
	for j := n; j < d.B; j++ {
		k, ok := from[j]
		if !ok {
			drops(next[j-n])
			kind := Inserted
			if j > last {
				kind = Appended
			}
			d.Changes = append(d.Changes, MessageChange{Kind: kind, A: -1, B: j, New: b.Messages[j]})
			continue
		}
		if !moved[k] {
			drops(k)
		}
		c := changedMessage(Edited, a.Messages, b.Messages, k, j)
		switch {
		case moved[k]:
			c.Kind = Reordered
			d.Changes = append(d.Changes, c)
		case c.At != nil:
			d.Changes = append(d.Changes, c)
		default:
			d.Kept++
		}
	}
	drops(d.A)
	return d
}

func identified(b *Body, i int, common int64) bool {
	if n := b.Node(i); n != nil && n.Seq < common {
		return true
	}
	_, ok := messageID(b.Messages[i])
	return ok
}

// changedMessage compares message i of A with message j of B.
func changedMessage(kind MessageKind, a, b [][]byte, i, j int) MessageChange {
	c := MessageChange{Kind: kind, A: i, B: j, Old: a[i], New: b[j]}
	if c.At = Diverge(c.Old, c.New); c.At == nil {
		return c
	}
	contentA, contentB := jsjson.Get(c.Old, "content"), jsjson.Get(c.New, "content")
	blocks := jsjson.KindOf(contentA) == jsjson.Array && jsjson.KindOf(contentB) == jsjson.Array
	if !blocks {
		c.Values = CompareValues(c.Old, c.New)
		return c
	}
	c.Blocks = compareBlocks(contentA, contentB)
	c.Values = append(c.Values, CompareValues(without(c.Old, "content"), without(c.New, "content"))...)
	if len(c.Blocks)+len(c.Values) == 0 {
		c.Values = []ValueChange{{Kind: ValueKeyOrder, A: c.Old, B: c.New}}
	}
	return c
}

// without is an object without one of its members.
func without(obj []byte, name string) []byte {
	out := []byte{'{'}
	for k, v := range jsjson.Members(obj) {
		if string(k) == `"`+name+`"` {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, k...), ':'), v...)
	}
	return append(out, '}')
}

// compareBlocks compares the content of two messages. Blocks of one type at the
// same place are one block that changed.
func compareBlocks(a, b []byte) (out []BlockChange) {
	ba, bb := slices.Collect(jsjson.Elements(a)), slices.Collect(jsjson.Elements(b))
	texts := func(list [][]byte) []string {
		t := make([]string, len(list))
		for i, v := range list {
			t[i] = string(v)
		}
		return t
	}
	runs, _ := sequence(texts(ba), texts(bb))
	i, j := 0, 0
	for k := 0; k < len(runs); {
		if runs[k].op == Keep {
			i += runs[k].n
			j += runs[k].n
			k++
			continue
		}
		drops, adds := 0, 0
		for ; k < len(runs) && runs[k].op != Keep; k++ {
			if runs[k].op == Drop {
				drops += runs[k].n
			} else {
				adds += runs[k].n
			}
		}
		j0 := j
		for ; drops > 0; drops-- {
			typ := jsjson.Get(ba[i], "type")
			k := j
			for k < j0+adds && !bytes.Equal(jsjson.Get(bb[k], "type"), typ) {
				k++
			}
			if k < j0+adds {
				for ; j < k; j++ {
					out = append(out, BlockChange{Kind: BlockAdded, A: -1, B: j, New: bb[j]})
				}
				out = append(out, BlockChange{Kind: BlockChanged, A: i, B: j, Old: ba[i], New: bb[j], Values: CompareValues(ba[i], bb[j])})
				j++
			} else {
				out = append(out, BlockChange{Kind: BlockDropped, A: i, B: -1, Old: ba[i]})
			}
			i++
		}
		for ; j < j0+adds; j++ {
			out = append(out, BlockChange{Kind: BlockAdded, A: -1, B: j, New: bb[j]})
		}
	}
	return out
}

func messageID(m []byte) (string, bool) {
	id, ok := jsjson.Str(jsjson.Get(m, "id"))
	return id, ok && id != ""
}
