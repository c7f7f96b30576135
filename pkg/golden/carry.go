package golden

import (
	"slices"

	"github.com/dsh-audit/dsh-audit/pkg/drift"
)

// Carry gives g, a new recording, the ids of an old golden wherever they stand for
// each other (SEMANTICS §12.4). It returns how many ids were exchanged. Requests
// have to be folded anew, which it does not do.
func (g *Golden) Carry(old *Golden) int {
	va, vb := old.volatile(), g.volatile()
	fa, fb := fingerprints(old, va), fingerprints(g, vb)
	m := matching{to: map[string]string{}, from: map[string]string{}}
	m.pair(idsOf(va, "session", old.header), idsOf(vb, "session", g.header))
	pair := func(i, j int) {
		m.pair(idsOf(va, old.events[i].typ, old.events[i].json), idsOf(vb, g.events[j].typ, g.events[j].json))
	}
	var changed [][2]int // what equal events say counts more
	match(fa, fb, 0, 0, func(i, j int) {
		switch {
		case fa[i] == fb[j]:
			pair(i, j)
		case old.events[i].typ == g.events[j].typ:
			changed = append(changed, [2]int{i, j})
		}
	})
	for _, p := range changed {
		pair(p[0], p[1])
	}
	// An id of the new recording that stands for none must not become the same
	// as one that does.
	own := map[string]bool{}
	for _, id := range idsOf(vb, "session", g.header) {
		own[id] = true
	}
	for _, e := range g.events {
		for _, id := range idsOf(vb, e.typ, e.json) {
			own[id] = true
		}
	}
	for again := true; again; {
		again = false
		for id := range own {
			if _, moved := m.to[id]; moved {
				continue
			}
			if by, taken := m.from[id]; taken {
				delete(m.to, by)
				delete(m.from, id)
				again = true
			}
		}
	}
	n := 0
	for a, b := range m.to {
		if a != b {
			n++
		}
	}
	if n == 0 {
		return 0
	}
	exchange := func(s string) string {
		if t, ok := m.to[s]; ok {
			return t
		}
		return s
	}
	g.header = rewriteIDs(vb, "session", g.header, exchange)
	for i, e := range g.events {
		g.events[i].json = rewriteIDs(vb, e.typ, e.json, exchange)
	}
	return n
}

// matching matches ids of a new recording with those of an old one.
type matching struct{ to, from map[string]string }

func (m *matching) pair(old, now []string) {
	if len(old) != len(now) {
		return
	}
	for i, a := range now {
		b := old[i]
		if _, ok := m.to[a]; ok {
			continue
		}
		if _, ok := m.from[b]; ok {
			continue
		}
		m.to[a], m.from[b] = b, a
	}
}

// volatile knows the ids of a projected log.
func (g *Golden) volatile() *drift.Volatile {
	v := drift.NewVolatile("", 1, 0)
	learnIDs(v, "session", g.header)
	for _, e := range g.events {
		learnIDs(v, e.typ, e.json)
	}
	return v
}

// rewriteIDs returns a value with every id exchanged.
func rewriteIDs(v *drift.Volatile, typ string, json []byte, exchange func(string) string) []byte {
	parent := typ == "session"
	w := &walker{ids: idKeys(typ)}
	w.str = func(key []byte, s string, id bool) string {
		if id || parent && string(key) == `"parentSession"` {
			if t := exchange(s); t != s {
				return t
			}
			if id && uuidPattern.FindString(s) == s {
				return s
			}
		}
		return v.Text(s, func(k drift.VolatileKind, s string) string {
			if k != drift.VolatileID {
				return s
			}
			return exchange(s)
		})
	}
	return w.append(nil, json, nil, nil, 0)
}

// idsOf lists the ids in a value, in order.
func idsOf(v *drift.Volatile, typ string, json []byte) []string {
	var out []string
	w := &walker{ids: idKeys(typ)}
	parent := typ == "session"
	w.str = func(key []byte, s string, id bool) string {
		if id || parent && string(key) == `"parentSession"` {
			out = append(out, s)
			return s
		}
		v.Text(s, func(k drift.VolatileKind, s string) string {
			if k == drift.VolatileID {
				out = append(out, s)
			}
			return s
		})
		return s
	}
	w.append(nil, json, nil, nil, 0)
	return out
}

// fingerprints are the events without their ids and without the seqs they name.
func fingerprints(g *Golden, v *drift.Volatile) []string {
	out := make([]string, len(g.events))
	for i, e := range g.events {
		out[i] = string(anonymous(v, e))
	}
	return out
}

func anonymous(v *drift.Volatile, e event) []byte {
	w := &walker{ids: idKeys(e.typ)}
	w.str = func(_ []byte, s string, id bool) string {
		if id {
			return "{{id}}"
		}
		return v.Text(s, func(k drift.VolatileKind, s string) string {
			if k == drift.VolatileID {
				return "{{id}}"
			}
			return s
		})
	}
	json := mapMembers(e.json, func(key string, value []byte) ([]byte, bool) {
		return value, key != `"sourceEventSeqs"` && (key != `"surfaceOp"` || value[0] != '{')
	})
	return w.append(nil, json, nil, nil, 0)
}

// match pairs the items of two lists, equal ones in order: from both ends, then by
// items that each side has once, then again between those. What lies between two
// pairs on both sides, as many items, is paired too: these are the changed ones.
func match(a, b []string, i, j int, pair func(i, j int)) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		pair(i, j)
		a, b, i, j = a[1:], b[1:], i+1, j+1
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		pair(i+len(a)-1, j+len(b)-1)
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	if len(a) == 0 || len(b) == 0 {
		return
	}
	anchors := unique(a, b)
	if len(anchors) == 0 {
		if len(a) == len(b) {
			for k := range a {
				pair(i+k, j+k)
			}
		}
		return
	}
	x, y := 0, 0
	for _, p := range anchors {
		match(a[x:p[0]], b[y:p[1]], i+x, j+y, pair)
		pair(i+p[0], j+p[1])
		x, y = p[0]+1, p[1]+1
	}
	match(a[x:], b[y:], i+x, j+y, pair)
}

// unique pairs the items that both lists have exactly once, the longest run of
// pairs that stand in the same order.
func unique(a, b []string) [][2]int {
	type place struct{ n, at int }
	in := func(list []string) map[string]place {
		m := make(map[string]place, len(list))
		for i, s := range list {
			m[s] = place{m[s].n + 1, i}
		}
		return m
	}
	inA, inB := in(a), in(b)
	var pairs [][2]int
	for i, s := range a {
		if inA[s].n == 1 && inB[s].n == 1 {
			pairs = append(pairs, [2]int{i, inB[s].at})
		}
	}
	// The longest increasing run: tails[k] ends the best one of length k+1.
	var tails []int
	before := make([]int, len(pairs))
	for n, p := range pairs {
		k, _ := slices.BinarySearchFunc(tails, p[1], func(t, y int) int { return pairs[t][1] - y })
		before[n] = -1
		if k > 0 {
			before[n] = tails[k-1]
		}
		if k == len(tails) {
			tails = append(tails, n)
		} else {
			tails[k] = n
		}
	}
	if len(tails) == 0 {
		return nil
	}
	var out [][2]int
	for n := tails[len(tails)-1]; n >= 0; n = before[n] {
		out = append(out, pairs[n])
	}
	slices.Reverse(out)
	return out
}
