package drift

import (
	"unicode/utf8"

	"github.com/sergi/go-diff/diffmatchpatch"
)

// Op says what became of a run of items.
type Op byte

const (
	Keep Op = iota
	Drop
	Add
	Edit // of lines: the same line with other words
)

// run is n items of A (Keep, Drop) or of B (Add).
type run struct {
	op Op
	n  int
}

// maxItems bounds the exact comparison: its time grows with the square of the
// items that both sides have in other places. Beyond it the differing middle
// counts as replaced whole.
const maxItems = 8_000

// sequence aligns two lists of items, equal items kept, in order. Drops come
// before adds at the same place. The result does not depend on time or machine.
func sequence(a, b []string) (runs []run, coarse bool) {
	add := func(op Op, n int) {
		if n == 0 {
			return
		}
		if k := len(runs); k > 0 && runs[k-1].op == op {
			runs[k-1].n += n
			return
		}
		runs = append(runs, run{op, n})
	}
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	add(Keep, head)
	ma, mb := a[head:len(a)-tail], b[head:len(b)-tail]
	pairs, coarse := align(ma, mb)
	i, j := 0, 0
	for _, p := range pairs {
		add(Drop, p[0]-i)
		add(Add, p[1]-j)
		add(Keep, 1)
		i, j = p[0]+1, p[1]+1
	}
	add(Drop, len(ma)-i)
	add(Add, len(mb)-j)
	add(Keep, tail)
	return runs, coarse
}

// align pairs the equal items of two lists, in order on both sides.
func align(a, b []string) (pairs [][2]int, coarse bool) {
	// An item that one side has not cannot be kept: it is left out beforehand.
	// Items become runes, so that the library compares items and not text: it
	// takes ill-formed bytes for equal.
	ids := make(map[string]rune)
	for _, s := range a {
		ids[s] = 0
	}
	n := rune(0)
	for _, s := range b {
		if id, ok := ids[s]; ok && id == 0 {
			n++
			id = n
			if id >= 0xd800 {
				id += 0x800 // surrogates do not survive string(rune)
			}
			ids[s] = id
		}
	}
	encode := func(items []string) (text []rune, at []int) {
		for i, s := range items {
			if id := ids[s]; id != 0 {
				text = append(text, id)
				at = append(at, i)
			}
		}
		return text, at
	}
	ta, atA := encode(a)
	tb, atB := encode(b)
	if len(ta) == 0 || len(tb) == 0 {
		return nil, false
	}
	if len(ta)+len(tb) > maxItems {
		return nil, true
	}
	dmp := diffmatchpatch.New()
	dmp.DiffTimeout = 0 // else the result depends on the machine's speed
	i, j := 0, 0
	for _, d := range dmp.DiffMainRunes(ta, tb, false) {
		n := utf8.RuneCountInString(d.Text)
		switch d.Type {
		case diffmatchpatch.DiffDelete:
			i += n
		case diffmatchpatch.DiffInsert:
			j += n
		default:
			for range n {
				pairs = append(pairs, [2]int{atA[i], atB[j]})
				i++
				j++
			}
		}
	}
	return pairs, false
}
