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
// items that differ. Beyond it the differing middle counts as replaced whole.
const maxItems = 20_000

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
	switch {
	case len(ma) == 0 || len(mb) == 0:
		add(Drop, len(ma))
		add(Add, len(mb))
	case len(ma)+len(mb) > maxItems:
		coarse = true
		add(Drop, len(ma))
		add(Add, len(mb))
	default:
		// Items become runes, so that the library compares items and not text:
		// it takes ill-formed bytes for equal.
		ids := make(map[string]rune)
		encode := func(items []string) []rune {
			out := make([]rune, len(items))
			for i, s := range items {
				r, ok := ids[s]
				if !ok {
					r = rune(len(ids) + 1)
					if r >= 0xd800 {
						r += 0x800 // surrogates do not survive string(rune)
					}
					ids[s] = r
				}
				out[i] = r
			}
			return out
		}
		dmp := diffmatchpatch.New()
		dmp.DiffTimeout = 0 // else the result depends on the machine's speed
		var drops, adds int
		flush := func() {
			add(Drop, drops)
			add(Add, adds)
			drops, adds = 0, 0
		}
		for _, d := range dmp.DiffMainRunes(encode(ma), encode(mb), false) {
			n := utf8.RuneCountInString(d.Text)
			switch d.Type {
			case diffmatchpatch.DiffDelete:
				drops += n
			case diffmatchpatch.DiffInsert:
				adds += n
			default:
				flush()
				add(Keep, n)
			}
		}
		flush()
	}
	add(Keep, tail)
	return runs, coarse
}
