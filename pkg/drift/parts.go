package drift

import (
	"strconv"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// A SystemDiff is the difference of two system prompts.
type SystemDiff struct {
	A, B  []byte // canonical JSON; nil when absent
	Text  bool   // both sides are strings or absent; else there are no lines
	Cause *Cause
	TextDiff
}

func compareSystem(a, b []byte) *SystemDiff {
	d := &SystemDiff{A: a, B: b}
	la, oka := promptLines(a)
	lb, okb := promptLines(b)
	if oka && okb {
		d.Text = true
		d.TextDiff = compareLines(la, lb)
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
	Value []byte // the tool
	Cause *Cause
}

// A ToolChange is a tool that both sides have, with different bytes.
type ToolChange struct {
	Name           string
	IndexA, IndexB int
	A, B           []byte
	At             Divergence // within the tool
	Values         []ValueChange
	Cause          *Cause
}

// KeyOrderOnly reports whether nothing but the order of members changed.
func (c *ToolChange) KeyOrderOnly() bool {
	for _, v := range c.Values {
		if v.Kind != ValueKeyOrder {
			return false
		}
	}
	return true
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
		d.Present = &Change{Name: "tools", A: list(a.HasTools), B: list(b.HasTools)}
	}
	ka, na := toolKeys(a.Tools)
	kb, nb := toolKeys(b.Tools)
	inA, inB := index(ka), index(kb)
	var common [2][]string
	for i, k := range ka {
		j, ok := inB[k]
		if !ok {
			d.Removed = append(d.Removed, ToolRef{Name: na[i], Index: i, Value: a.Tools[i]})
			continue
		}
		common[0] = append(common[0], k)
		if at := Diverge(a.Tools[i], b.Tools[j]); at != nil {
			d.Changed = append(d.Changed, ToolChange{Name: na[i], IndexA: i, IndexB: j, A: a.Tools[i], B: b.Tools[j],
				At: *at, Values: CompareValues(a.Tools[i], b.Tools[j])})
		} else {
			d.Kept++
		}
	}
	for j, k := range kb {
		if _, ok := inA[k]; ok {
			common[1] = append(common[1], k)
		} else {
			d.Added = append(d.Added, ToolRef{Name: nb[j], Index: j, Value: b.Tools[j]})
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
				d.Moved = append(d.Moved, ToolRef{Name: nb[inB[k]], Index: inB[k], Value: b.Tools[inB[k]]})
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
