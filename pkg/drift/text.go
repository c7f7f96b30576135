package drift

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A TextDiff is the difference of two texts, line by line. Lines are split at
// U+000A and are WTF-8.
type TextDiff struct {
	Lines  []Lines
	Coarse bool // too many lines differ to be aligned: the middle counts as replaced
}

// Lines is a run of lines with the same fate.
type Lines struct {
	Op   Op
	Text []string // of A; of B in a run of added lines
	New  []string // of an Edit: the same lines in B
	// Marks are the words of an Edit's lines, line by line: what stayed, what
	// went, what came.
	Marks [][]Mark
}

// A Mark is a run of characters within a line that changed.
type Mark struct {
	Op   Op
	Text string
}

// Count returns how many lines went and came. An edited line does both.
func (t *TextDiff) Count() (dropped, added int) {
	for _, l := range t.Lines {
		switch l.Op {
		case Drop:
			dropped += len(l.Text)
		case Add:
			added += len(l.Text)
		case Edit:
			dropped += len(l.Text)
			added += len(l.New)
		}
	}
	return dropped, added
}

// CompareText compares two texts.
func CompareText(a, b string) TextDiff {
	return compareLines(strings.Split(a, "\n"), strings.Split(b, "\n"))
}

func compareLines(la, lb []string) (d TextDiff) {
	runs, coarse := sequence(la, lb)
	d.Coarse = coarse
	i, j := 0, 0
	for k := 0; k < len(runs); k++ {
		r := runs[k]
		switch {
		case r.op == Drop && k+1 < len(runs) && runs[k+1].op == Add:
			m := runs[k+1].n
			d.gap(la[i:i+r.n], lb[j:j+m])
			i += r.n
			j += m
			k++
		case r.op == Drop:
			d.Lines = append(d.Lines, Lines{Op: Drop, Text: la[i : i+r.n]})
			i += r.n
		case r.op == Add:
			d.Lines = append(d.Lines, Lines{Op: Add, Text: lb[j : j+r.n]})
			j += r.n
		default:
			d.Lines = append(d.Lines, Lines{Op: Keep, Text: la[i : i+r.n]})
			i += r.n
			j += r.n
		}
	}
	return d
}

const (
	maxPairs  = 4_000 // pairs of lines that are looked at in one gap
	maxTokens = 2_000 // words of two lines that are compared with each other
	alike     = 0.5   // of a line must stay for it to count as edited
)

// gap splits dropped and added lines at one place into those that are one line
// with other words, and the rest.
func (d *TextDiff) gap(drop, add []string) {
	pairs := pairLines(drop, add)
	i, j := 0, 0
	flush := func(di, aj int) {
		if di > i {
			d.Lines = append(d.Lines, Lines{Op: Drop, Text: drop[i:di]})
		}
		if aj > j {
			d.Lines = append(d.Lines, Lines{Op: Add, Text: add[j:aj]})
		}
		i, j = di, aj
	}
	for _, p := range pairs {
		flush(p[0], p[1])
		if n := len(d.Lines); n > 0 && d.Lines[n-1].Op == Edit {
			l := &d.Lines[n-1]
			l.Text = append(l.Text, drop[i])
			l.New = append(l.New, add[j])
			l.Marks = append(l.Marks, marks(drop[i], add[j]))
		} else {
			d.Lines = append(d.Lines, Lines{Op: Edit, Text: []string{drop[i]}, New: []string{add[j]}, Marks: [][]Mark{marks(drop[i], add[j])}})
		}
		i++
		j++
	}
	flush(len(drop), len(add))
}

// pairLines picks pairs of similar lines, in order on both sides, so that the
// similarity adds up to the most.
func pairLines(a, b []string) [][2]int {
	if len(a)*len(b) > maxPairs {
		return nil
	}
	// best[i][j] is the most that a[i:] and b[j:] can come to.
	w := len(b) + 1
	best := make([]float64, (len(a)+1)*w)
	like := make([]float64, len(a)*len(b))
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			s := similar(a[i], b[j])
			like[i*len(b)+j] = s
			m := max(best[(i+1)*w+j], best[i*w+j+1])
			if s >= alike {
				m = max(m, s+best[(i+1)*w+j+1])
			}
			best[i*w+j] = m
		}
	}
	var out [][2]int
	for i, j := 0, 0; i < len(a) && j < len(b); {
		s := like[i*len(b)+j]
		switch {
		case s >= alike && best[i*w+j] == s+best[(i+1)*w+j+1]:
			out = append(out, [2]int{i, j})
			i++
			j++
		case best[i*w+j] == best[(i+1)*w+j]:
			i++
		default:
			j++
		}
	}
	return out
}

// similar is the share of two lines that their common beginning and end make up.
func similar(a, b string) float64 {
	n := min(len(a), len(b))
	head := 0
	for head < n && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < n-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	return float64(head+tail) / float64(max(len(a), len(b), 1))
}

// marks compares two lines word by word.
func marks(a, b string) (out []Mark) {
	ta, tb := words(a), words(b)
	head := 0
	for head < len(ta) && head < len(tb) && ta[head] == tb[head] {
		head++
	}
	tail := 0
	for tail < len(ta)-head && tail < len(tb)-head && ta[len(ta)-1-tail] == tb[len(tb)-1-tail] {
		tail++
	}
	add := func(op Op, list []string) {
		if len(list) == 0 {
			return
		}
		text := strings.Join(list, "")
		if n := len(out); n > 0 && out[n-1].Op == op {
			out[n-1].Text += text
			return
		}
		out = append(out, Mark{op, text})
	}
	add(Keep, ta[:head])
	ma, mb := ta[head:len(ta)-tail], tb[head:len(tb)-tail]
	if len(ma)+len(mb) > maxTokens {
		add(Drop, ma)
		add(Add, mb)
	} else {
		runs, _ := sequence(ma, mb)
		i, j := 0, 0
		for _, r := range runs {
			switch r.op {
			case Drop:
				add(Drop, ma[i:i+r.n])
				i += r.n
			case Add:
				add(Add, mb[j:j+r.n])
				j += r.n
			default:
				add(Keep, ma[i:i+r.n])
				i += r.n
				j += r.n
			}
		}
	}
	add(Keep, ta[len(ta)-tail:])
	return out
}

// words splits a line into words of letters and digits and single other
// characters; bytes that are no text stand alone, so that joined the words are
// the line again.
func words(s string) (out []string) {
	start := 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if i+2 < len(s) && s[i] == 0xed && s[i+1] >= 0xa0 && s[i+2]&0xc0 == 0x80 {
			n = 3 // a lone surrogate of WTF-8
		}
		word := r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) || r == '_') &&
			// Scripts without spaces: every character is a word.
			!unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai)
		if !word {
			if i > start {
				out = append(out, s[start:i])
			}
			out = append(out, s[i:i+n])
			start = i + n
		}
		i += n
	}
	if start < len(s) {
		out = append(out, s[start:])
	}
	return out
}
