package drift

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// ValueKind says what became of a value inside a changed tool or message.
type ValueKind string

const (
	ValueAdded     ValueKind = "added"
	ValueRemoved   ValueKind = "removed"
	ValueChanged   ValueKind = "changed"
	ValueKeyOrder  ValueKind = "key-order" // an object whose members stand in another order only
	ValueReordered ValueKind = "reordered" // a list whose elements stand in another order only
)

// A ValueChange is one value that differs, by its path. The path is that in B,
// of a removed value that in A.
type ValueChange struct {
	Path string
	Kind ValueKind
	A, B []byte    // nil when absent; both the whole value for an order
	Text *TextDiff // of two strings
}

// maxDepth bounds how far values are compared member by member. What lies deeper
// is compared as a whole.
const maxDepth = 64

// CompareValues compares two canonical JSON values by structure. The changes
// stand in the order of B, removed ones where they stood.
func CompareValues(a, b []byte) []ValueChange { return appendValues(nil, "", a, b, 0) }

func appendValues(out []ValueChange, path string, a, b []byte, depth int) []ValueChange {
	if bytes.Equal(a, b) {
		return out
	}
	ka, kb := jsjson.KindOf(a), jsjson.KindOf(b)
	if depth < maxDepth && ka == kb {
		switch ka {
		case jsjson.Object:
			return appendObject(out, path, a, b, depth)
		case jsjson.Array:
			return appendArray(out, path, a, b, depth)
		}
	}
	c := ValueChange{Path: path, Kind: ValueChanged, A: a, B: b}
	if ka == jsjson.String && kb == jsjson.String {
		sa, _ := jsjson.Str(a)
		sb, _ := jsjson.Str(b)
		t := CompareText(sa, sb)
		c.Text = &t
	}
	return append(out, c)
}

func memberPath(path string, key []byte) string {
	if plainKey(key) {
		return joinPath(path, string(key[1:len(key)-1]))
	}
	return path + "[" + string(key) + "]"
}

func appendObject(out []ValueChange, path string, a, b []byte, depth int) []ValueChange {
	before := len(out)
	inA := make(map[string][]byte)
	for k, v := range jsjson.Members(a) {
		inA[string(k)] = v
	}
	inB := make(map[string]bool)
	for k := range jsjson.Members(b) {
		inB[string(k)] = true
	}
	for k, v := range jsjson.Members(a) {
		if !inB[string(k)] {
			out = append(out, ValueChange{Path: memberPath(path, k), Kind: ValueRemoved, A: v})
		}
	}
	for k, v := range jsjson.Members(b) {
		p := memberPath(path, k)
		if old, ok := inA[string(k)]; ok {
			out = appendValues(out, p, old, v, depth+1)
		} else {
			out = append(out, ValueChange{Path: p, Kind: ValueAdded, B: v})
		}
	}
	if len(out) == before {
		// Equal members but other bytes: only their order is left.
		out = append(out, ValueChange{Path: path, Kind: ValueKeyOrder, A: a, B: b})
	}
	return out
}

func appendArray(out []ValueChange, path string, a, b []byte, depth int) []ValueChange {
	ea, eb := slices.Collect(jsjson.Elements(a)), slices.Collect(jsjson.Elements(b))
	texts := func(list [][]byte) []string {
		t := make([]string, len(list))
		for i, v := range list {
			t[i] = string(v)
		}
		return t
	}
	ta, tb := texts(ea), texts(eb)
	if sa, sb := slices.Clone(ta), slices.Clone(tb); len(sa) == len(sb) {
		slices.Sort(sa)
		slices.Sort(sb)
		if slices.Equal(sa, sb) {
			return append(out, ValueChange{Path: path, Kind: ValueReordered, A: a, B: b})
		}
	}
	at := func(i int) string { return path + "[" + strconv.Itoa(i) + "]" }
	i, j := 0, 0
	runs, _ := sequence(ta, tb)
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
		// Elements of one kind at the same place are one element that changed,
		// unless they are plain values of a list that grew or shrank.
		n := min(drops, adds)
		for x := range n {
			va, vb := ea[i+x], eb[j+x]
			kind := jsjson.KindOf(va)
			if kind == jsjson.KindOf(vb) && (kind == jsjson.Object || kind == jsjson.Array || drops == adds) {
				out = appendValues(out, at(j+x), va, vb, depth+1)
				continue
			}
			out = append(out, ValueChange{Path: at(i + x), Kind: ValueRemoved, A: va},
				ValueChange{Path: at(j + x), Kind: ValueAdded, B: vb})
		}
		for x := n; x < drops; x++ {
			out = append(out, ValueChange{Path: at(i + x), Kind: ValueRemoved, A: ea[i+x]})
		}
		for x := n; x < adds; x++ {
			out = append(out, ValueChange{Path: at(j + x), Kind: ValueAdded, B: eb[j+x]})
		}
		i += drops
		j += adds
	}
	return out
}
