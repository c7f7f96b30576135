package drift

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// checkComplete holds a comparison to its promise: what it lists differs, what it
// does not list is equal, and both sides can be put together again from it.
func checkComplete(d *Diff, a, b *Body) error {
	// Config: the listed members are exactly those that differ.
	config := func(x *Body) map[string]string {
		m := make(map[string]string)
		for _, c := range x.Config {
			m[c.Name] = string(c.Value)
		}
		return m
	}
	ca, cb := config(a), config(b)
	var want []string
	for k, v := range ca {
		if w, ok := cb[k]; !ok || !jsjson.Equal([]byte(v), []byte(w)) {
			want = append(want, k)
		}
	}
	for k := range cb {
		if _, ok := ca[k]; !ok {
			want = append(want, k)
		}
	}
	var got []string
	for _, c := range d.Config {
		got = append(got, c.Name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Errorf("config lists %q, want %q", got, want)
	}

	// System: the lines make up both sides.
	if (d.System == nil) != bytes.Equal(a.System, b.System) {
		return fmt.Errorf("system listed: %t", d.System != nil)
	}
	if s := d.System; s != nil && s.Text {
		sa, sb := rebuild(&s.TextDiff)
		la, _ := promptLines(a.System)
		lb, _ := promptLines(b.System)
		if !slices.Equal(sa, la) || !slices.Equal(sb, lb) {
			return fmt.Errorf("the lines make up %q and %q", sa, sb)
		}
	}

	// Tools: by key.
	ka, _ := toolKeys(a.Tools)
	kb, _ := toolKeys(b.Tools)
	fate := make(map[string]string)
	for _, x := range d.Tools.Removed {
		fate[ka[x.Index]] = "removed"
	}
	for _, x := range d.Tools.Added {
		fate[kb[x.Index]] = "added"
	}
	for _, x := range d.Tools.Changed {
		fate[ka[x.IndexA]] = "changed"
		if ka[x.IndexA] != kb[x.IndexB] || bytes.Equal(x.A, x.B) || len(x.Values) == 0 {
			return fmt.Errorf("tool %q: listed as changed", x.Name)
		}
	}
	for i, k := range ka {
		j := slices.Index(kb, k)
		f := ""
		switch {
		case j < 0:
			f = "removed"
		case !bytes.Equal(a.Tools[i], b.Tools[j]):
			f = "changed"
		}
		if fate[k] != f {
			return fmt.Errorf("tool %q: %q, want %q", k, fate[k], f)
		}
	}
	for _, k := range kb {
		if !slices.Contains(ka, k) && fate[k] != "added" {
			return fmt.Errorf("tool %q: %q, want added", k, fate[k])
		}
	}
	// Without those that moved, the tools of both sides stand in one order.
	still := func(keys, other []string, moved map[string]bool) (out []string) {
		for _, k := range keys {
			if slices.Contains(other, k) && !moved[k] {
				out = append(out, k)
			}
		}
		return out
	}
	moved := make(map[string]bool)
	for _, x := range d.Tools.Moved {
		moved[kb[x.Index]] = true
	}
	if x, y := still(ka, kb, moved), still(kb, ka, moved); !slices.Equal(x, y) {
		return fmt.Errorf("tools that did not move: %q and %q", x, y)
	}

	// Messages: every one of both sides is listed once, or kept.
	seenA, seenB := make([]bool, len(a.Messages)), make([]bool, len(b.Messages))
	mark := func(list []bool, i int) error {
		if i < 0 {
			return nil
		}
		if list[i] {
			return fmt.Errorf("message %d is listed twice", i)
		}
		list[i] = true
		return nil
	}
	for _, c := range d.Messages.Changes {
		reverse := c.Cause != nil && c.Cause.Reverse
		as, bs := []int{c.A}, []int{c.B}
		if c.Kind == Replaced && reverse {
			bs = c.Range
		} else if c.Kind == Replaced {
			as = c.Range
		}
		for _, i := range as {
			if err := mark(seenA, i); err != nil {
				return err
			}
		}
		for _, j := range bs {
			if err := mark(seenB, j); err != nil {
				return err
			}
		}
		if c.Kind == Edited && (bytes.Equal(c.Old, c.New) || len(c.Values)+len(c.Blocks) == 0) {
			return fmt.Errorf("message %d is listed as edited", c.A)
		}
	}
	rest := func(list [][]byte, seen []bool) (out []string) {
		for i, m := range list {
			if !seen[i] {
				out = append(out, string(m))
			}
		}
		return out
	}
	x, y := rest(a.Messages, seenA), rest(b.Messages, seenB)
	if !slices.Equal(x, y) || len(x) != d.Messages.Kept {
		return fmt.Errorf("%d messages of A and %d of B are not listed, %d kept", len(x), len(y), d.Messages.Kept)
	}
	return nil
}

// rebuild puts the two sides of a text together again.
func rebuild(d *TextDiff) (a, b []string) {
	for _, l := range d.Lines {
		switch l.Op {
		case Keep:
			a = append(a, l.Text...)
			b = append(b, l.Text...)
		case Drop:
			a = append(a, l.Text...)
		case Add:
			b = append(b, l.Text...)
		case Edit:
			for _, marks := range l.Marks {
				var x, y strings.Builder
				for _, m := range marks {
					if m.Op != Add {
						x.WriteString(m.Text)
					}
					if m.Op != Drop {
						y.WriteString(m.Text)
					}
				}
				a = append(a, x.String())
				b = append(b, y.String())
			}
		}
	}
	return a, b
}
