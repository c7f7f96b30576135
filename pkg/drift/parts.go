package drift

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// A SystemDiff is the difference of two system prompts.
type SystemDiff struct {
	A, B   []byte // canonical JSON; nil when absent
	Text   bool   // both sides are strings or absent; else Lines is empty
	Lines  []Lines
	Coarse bool // too many lines differ to be aligned: the middle counts as replaced
}

// Lines is a run of lines with the same fate. The lines are decoded text
// (WTF-8) without their line feeds.
type Lines struct {
	Op   Op
	Text []string
}

// Count returns how many lines were dropped and added.
func (s *SystemDiff) Count() (dropped, added int) {
	for _, l := range s.Lines {
		switch l.Op {
		case Drop:
			dropped += len(l.Text)
		case Add:
			added += len(l.Text)
		}
	}
	return dropped, added
}

func compareSystem(a, b []byte) *SystemDiff {
	d := &SystemDiff{A: a, B: b}
	la, oka := promptLines(a)
	lb, okb := promptLines(b)
	if !oka || !okb {
		return d
	}
	d.Text = true
	runs, coarse := sequence(la, lb)
	d.Coarse = coarse
	i, j := 0, 0
	for _, r := range runs {
		switch r.op {
		case Add:
			d.Lines = append(d.Lines, Lines{Add, lb[j : j+r.n]})
			j += r.n
		case Drop:
			d.Lines = append(d.Lines, Lines{Drop, la[i : i+r.n]})
			i += r.n
		default:
			d.Lines = append(d.Lines, Lines{Keep, la[i : i+r.n]})
			i += r.n
			j += r.n
		}
	}
	return d
}

func promptLines(v []byte) ([]string, bool) {
	if v == nil {
		return nil, true
	}
	s, ok := jsjson.Str(v)
	if !ok {
		return nil, false
	}
	return strings.Split(s, "\n"), true
}

// A ToolRef names one tool of a list.
type ToolRef struct {
	Name  string // decoded; "" when the tool has none
	Index int    // in its list
}

// A ToolChange is a tool that both sides have, with different bytes.
type ToolChange struct {
	Name           string
	IndexA, IndexB int
	At             Divergence // within the tool
}

// ToolsDiff is the difference of two tool lists.
type ToolsDiff struct {
	A, B    int // lengths
	Kept    int // in both, with the same bytes
	Added   []ToolRef
	Removed []ToolRef
	Changed []ToolChange
	Moved   []ToolRef // in both, but not in the same order: the fewest that explain it, by place in B
	Present *Change   // one side has no tools member, the other an empty list
}

// Equal reports whether the lists are equal.
func (d *ToolsDiff) Equal() bool {
	return len(d.Added)+len(d.Removed)+len(d.Changed)+len(d.Moved) == 0 && d.Present == nil
}

func compareTools(a, b *Body) ToolsDiff {
	d := ToolsDiff{A: len(a.Tools), B: len(b.Tools)}
	if a.HasTools != b.HasTools && d.A+d.B == 0 {
		list := func(has bool) []byte {
			if has {
				return []byte("[]")
			}
			return nil
		}
		d.Present = &Change{"tools", list(a.HasTools), list(b.HasTools)}
	}
	ka, na := toolKeys(a.Tools)
	kb, nb := toolKeys(b.Tools)
	inA, inB := index(ka), index(kb)
	var common [2][]string
	for i, k := range ka {
		j, ok := inB[k]
		if !ok {
			d.Removed = append(d.Removed, ToolRef{na[i], i})
			continue
		}
		common[0] = append(common[0], k)
		if at := Diverge(a.Tools[i], b.Tools[j]); at != nil {
			d.Changed = append(d.Changed, ToolChange{na[i], i, j, *at})
		} else {
			d.Kept++
		}
	}
	for j, k := range kb {
		if _, ok := inA[k]; ok {
			common[1] = append(common[1], k)
		} else {
			d.Added = append(d.Added, ToolRef{nb[j], j})
		}
	}
	runs, _ := sequence(common[0], common[1])
	j := 0
	for _, r := range runs {
		if r.op == Drop {
			continue
		}
		for _, k := range common[1][j : j+r.n] {
			if r.op == Add {
				d.Moved = append(d.Moved, ToolRef{nb[inB[k]], inB[k]})
			}
		}
		j += r.n
	}
	return d
}

// toolKeys gives every tool a key that is unique in its list: its name and how
// many tools of that name stand before it.
func toolKeys(tools [][]byte) (keys, names []string) {
	seen := make(map[string]int)
	for _, t := range tools {
		name, ok := jsjson.Str(jsjson.Get(t, "name"))
		id := "named " + name
		if !ok {
			id = "nameless"
		}
		keys = append(keys, id+"\x00"+strconv.Itoa(seen[id]))
		names = append(names, name)
		seen[id]++
	}
	return keys, names
}

func index(keys []string) map[string]int {
	m := make(map[string]int, len(keys))
	for i, k := range keys {
		m[k] = i
	}
	return m
}

// MessageKind says what became of a message.
type MessageKind string

const (
	Added   MessageKind = "added"
	Dropped MessageKind = "dropped"
	Changed MessageKind = "changed"
)

// A MessageChange is one message that is not the same on both sides.
type MessageChange struct {
	Kind MessageKind
	A, B int         // index in the message list; -1 when absent
	Old  []byte      // of A; nil when added
	New  []byte      // of B; nil when dropped
	At   *Divergence // of a changed message, within it
}

// MessagesDiff is the difference of two message lists.
type MessagesDiff struct {
	A, B    int // lengths
	Kept    int
	Changes []MessageChange // in order; at one place the changed and dropped ones first
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

func compareMessages(a, b [][]byte) MessagesDiff {
	d := MessagesDiff{A: len(a), B: len(b)}
	texts := func(ms [][]byte) []string {
		out := make([]string, len(ms))
		for i, m := range ms {
			out[i] = string(m)
		}
		return out
	}
	runs, coarse := sequence(texts(a), texts(b))
	d.Coarse = coarse
	i, j := 0, 0
	for k := 0; k < len(runs); {
		if runs[k].op == Keep {
			d.Kept += runs[k].n
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
		d.Changes = append(d.Changes, pair(a, b, i, i+drops, j, j+adds)...)
		i += drops
		j += adds
	}
	return d
}

// pair finds, in a gap of dropped and added messages, those that are one
// message with other content: first by id, then, among those without an id, by
// role in order.
func pair(a, b [][]byte, a0, a1, b0, b1 int) []MessageChange {
	partner := make(map[int]int) // of A in B
	taken := make(map[int]bool)  // of B
	byID := make(map[string]int)
	byRole := make(map[string][]int) // without id, in order
	for j := b0; j < b1; j++ {
		if id, ok := messageID(b[j]); !ok {
			role := string(jsjson.Get(b[j], "role"))
			byRole[role] = append(byRole[role], j)
		} else if _, dup := byID[id]; !dup {
			byID[id] = j
		}
	}
	for i := a0; i < a1; i++ {
		j, found := -1, false
		if id, ok := messageID(a[i]); ok {
			j, found = byID[id]
		} else {
			role := string(jsjson.Get(a[i], "role"))
			if rest := byRole[role]; len(rest) > 0 {
				j, found = rest[0], true
				byRole[role] = rest[1:]
			}
		}
		// Equal bytes can only be left over when the alignment is coarse: such a
		// message did not change.
		if found && !taken[j] && !bytes.Equal(a[i], b[j]) {
			partner[i], taken[j] = j, true
		}
	}
	var out []MessageChange
	for i := a0; i < a1; i++ {
		if j, ok := partner[i]; ok {
			out = append(out, MessageChange{Changed, i, j, a[i], b[j], Diverge(a[i], b[j])})
		} else {
			out = append(out, MessageChange{Dropped, i, -1, a[i], nil, nil})
		}
	}
	for j := b0; j < b1; j++ {
		if !taken[j] {
			out = append(out, MessageChange{Added, -1, j, nil, b[j], nil})
		}
	}
	return out
}

func messageID(m []byte) (string, bool) {
	id, ok := jsjson.Str(jsjson.Get(m, "id"))
	return id, ok && id != ""
}
