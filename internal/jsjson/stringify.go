package jsjson

import (
	"bytes"
	"slices"
	"sort"
	"unicode/utf8"
)

// Stringify returns JSON.stringify(JSON.parse(src)). When src is canonical the
// result is src itself and nothing is allocated; otherwise it is a new slice
// and the facts say why. The error is a *SyntaxError.
func Stringify(src []byte) ([]byte, Facts, error) {
	facts, err := Check(src)
	if err != nil {
		return nil, facts, err
	}
	if facts.Canonical() {
		return src, facts, nil
	}
	return appendCanonical(make([]byte, 0, len(src)), src, facts), facts, nil
}

// AppendStringify appends JSON.stringify(JSON.parse(src)) to dst. When src is
// not JSON it returns dst as it was, with a *SyntaxError.
func AppendStringify(dst, src []byte) ([]byte, Facts, error) {
	facts, err := Check(src)
	if err != nil {
		return dst, facts, err
	}
	if facts.Canonical() {
		return append(dst, src...), facts, nil
	}
	return appendCanonical(dst, src, facts), facts, nil
}

// appendCanonical appends the canonical form of a valid text.
func appendCanonical(dst, src []byte, facts Facts) []byte {
	if facts&(KeyOrder|DuplicateKey) == 0 {
		return appendTokens(dst, src)
	}
	// Once every token is canonical, keys compare by their bytes.
	return appendArranged(dst, appendTokens(make([]byte, 0, len(src)), src), arrangeJS)
}

// appendTokens appends a valid text with every token in its canonical form,
// without white space, in the order in which the tokens stand.
func appendTokens(dst, src []byte) []byte {
	for i := 0; i < len(src); {
		switch c := src[i]; {
		case isSpace(c):
			i++
		case c == '"':
			end := endOfString(src, i+1)
			dst = append(dst, '"')
			dst = appendContent(dst, src[i+1:end-1])
			dst = append(dst, '"')
			i = end
		case c == '-' || isDigit(c):
			end := endOfScalar(src, i)
			dst = AppendNumber(dst, parseNumber(src[i:end]))
			i = end
		default:
			dst = append(dst, c)
			i++
		}
	}
	return dst
}

// A member is a member of an object in a text of canonical tokens: the key with
// its quotes, and the value.
type member struct {
	key, keyEnd, val, valEnd int
}

// An arrangement says that the object at [start,end) is to be written with
// these members instead of its own.
type arrangement struct {
	start, end int
	members    []member
}

// appendArranged appends a valid text of canonical tokens with the members of
// its objects chosen and ordered by arrange, which returns nil to leave an
// object as it is. It takes O(n log n), whatever the nesting.
func appendArranged(dst, b []byte, arrange func(b []byte, m []member) []member) []byte {
	plan := planArrangements(b, arrange)
	// Segments still to be written, the next one last. comma asks for one before.
	type segment struct {
		start, end int
		comma      bool
	}
	todo := []segment{{0, len(b), false}}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if s.comma {
			dst = append(dst, ',')
		}
		k := sort.Search(len(plan), func(k int) bool { return plan[k].start >= s.start })
		if k == len(plan) || plan[k].start >= s.end {
			dst = append(dst, b[s.start:s.end]...)
			continue
		}
		a := plan[k]
		dst = append(dst, b[s.start:a.start+1]...) // up to and with the brace
		todo = append(todo, segment{a.end - 1, s.end, false})
		for j := len(a.members) - 1; j >= 0; j-- {
			m := a.members[j]
			todo = append(todo, segment{m.val, m.valEnd, false}, segment{m.key, m.keyEnd + 1, j > 0})
		}
	}
	return dst
}

func planArrangements(b []byte, arrange func(b []byte, m []member) []member) []arrangement {
	type open struct{ start, base int }
	var (
		plan    []arrangement
		stack   []open
		members []member
		isKey   bool // the next string is a key
	)
	// closeValue notes the end of the value of the member being read.
	closeValue := func(end int) {
		if n := len(stack); n > 0 && stack[n-1].base >= 0 {
			members[len(members)-1].valEnd = end
		}
	}
	for i := 0; i < len(b); {
		switch c := b[i]; c {
		case '{':
			stack = append(stack, open{i, len(members)})
			isKey = true
			i++
		case '[':
			stack = append(stack, open{i, -1})
			isKey = false
			i++
		case ',':
			isKey = stack[len(stack)-1].base >= 0
			i++
		case ':':
			i++
		case '"':
			end := endOfString(b, i+1)
			if isKey {
				members = append(members, member{key: i, keyEnd: end, val: end + 1})
				isKey = false
			} else {
				closeValue(end)
			}
			i = end
		case '}', ']':
			top := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			i++
			isKey = false
			if c == '}' {
				if m := arrange(b, members[top.base:]); m != nil {
					plan = append(plan, arrangement{top.start, i, m})
				}
				members = members[:top.base]
			}
			closeValue(i)
		default:
			i = endOfScalar(b, i)
			closeValue(i)
		}
	}
	slices.SortFunc(plan, func(x, y arrangement) int { return x.start - y.start })
	return plan
}

// arrangeJS gives the members as JSON.parse keeps them: the last value of a
// key at its first place, integer-like keys first and ascending.
func arrangeJS(b []byte, m []member) []member {
	type ranked struct {
		member
		index   uint64
		isIndex bool
	}
	out := make([]ranked, 0, len(m))
	at := make(map[string]int, len(m))
	changed := false
	for _, x := range m {
		k := b[x.key+1 : x.keyEnd-1]
		if j, ok := at[string(k)]; ok {
			out[j].val, out[j].valEnd = x.val, x.valEnd
			changed = true
			continue
		}
		at[string(k)] = len(out)
		r := ranked{member: x}
		r.index, r.isIndex = arrayIndex(k)
		out = append(out, r)
	}
	compare := func(x, y ranked) int {
		switch {
		case !x.isIndex && !y.isIndex:
			return 0
		case !x.isIndex:
			return 1
		case !y.isIndex, x.index < y.index:
			return -1
		}
		return 1
	}
	if !slices.IsSortedFunc(out, compare) {
		changed = true
		slices.SortStableFunc(out, compare)
	}
	if !changed {
		return nil
	}
	res := make([]member, len(out))
	for i, r := range out {
		res[i] = r.member
	}
	return res
}

// arrangeSorted orders the members by key.
func arrangeSorted(b []byte, m []member) []member {
	compare := func(x, y member) int { return bytes.Compare(b[x.key:x.keyEnd], b[y.key:y.keyEnd]) }
	if slices.IsSortedFunc(m, compare) {
		return nil
	}
	m = slices.Clone(m)
	slices.SortFunc(m, compare)
	return m
}

// Equal reports whether two canonical values are deeply equal; the order of
// keys does not count. Absent equals only absent.
func Equal(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	if bytes.Equal(a, b) {
		return true
	}
	// Canonical values of other kinds are equal only byte for byte. The check
	// keeps what is not canonical from the code that relies on it.
	if k := KindOf(a); k != Object && k != Array || KindOf(b) != k || !Canonical(a) || !Canonical(b) {
		return false
	}
	return bytes.Equal(
		appendArranged(make([]byte, 0, len(a)), a, arrangeSorted),
		appendArranged(make([]byte, 0, len(b)), b, arrangeSorted))
}

// appendContent appends the content of a valid string token in its canonical
// form, without quotes.
func appendContent(dst, s []byte) []byte {
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '\\':
			end, f, _ := scanEscape(s, i)
			if f&EscapeForm != 0 {
				dst = append(dst, s[from:i]...)
				u, _ := decodeEscape(s, i)
				dst = appendQuotedUnit(dst, u)
				from = end
			}
			i = end
		case c < utf8.RuneSelf:
			i++
		default:
			n, ok := sequence(s, i)
			if !ok {
				dst = append(dst, s[from:i]...)
				dst = append(dst, replacement...)
				from = i + n
			}
			i += n
		}
	}
	return append(dst, s[from:]...)
}

// decodeEscape reads the valid escape at s[i], both halves of a pair at once.
func decodeEscape(s []byte, i int) (u rune, end int) {
	switch c := s[i+1]; c {
	case 'b':
		return '\b', i + 2
	case 'f':
		return '\f', i + 2
	case 'n':
		return '\n', i + 2
	case 'r':
		return '\r', i + 2
	case 't':
		return '\t', i + 2
	case 'u':
	default:
		return rune(c), i + 2
	}
	u, _, end, _ = hex4(s, i+2)
	if isHigh(u) && end+1 < len(s) && s[end] == '\\' && s[end+1] == 'u' {
		if lo, _, n, _ := hex4(s, end+2); isLow(lo) {
			return joinHalves(u, lo), n
		}
	}
	return u, end
}

// appendDecoded appends what the content of a valid string token says, in
// WTF-8, bad UTF-8 replaced.
func appendDecoded(dst, s []byte) []byte {
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '\\':
			dst = append(dst, s[from:i]...)
			u, end := decodeEscape(s, i)
			dst = appendUnit(dst, u)
			i, from = end, end
		case c < utf8.RuneSelf:
			i++
		default:
			n, ok := sequence(s, i)
			if !ok {
				dst = append(dst, s[from:i]...)
				dst = append(dst, replacement...)
				from = i + n
			}
			i += n
		}
	}
	return append(dst, s[from:]...)
}

const hexDigits = "0123456789abcdef"

// appendQuotedUnit appends a code point as JSON.stringify writes it in a string.
func appendQuotedUnit(dst []byte, u rune) []byte {
	switch u {
	case '"', '\\':
		return append(dst, '\\', byte(u))
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	if u < 0x20 || u&^0x7FF == 0xD800 {
		return append(dst, '\\', 'u', hexDigits[u>>12&15], hexDigits[u>>8&15], hexDigits[u>>4&15], hexDigits[u&15])
	}
	return utf8.AppendRune(dst, u)
}

// AppendQuote appends a decoded string as a JSON string token, as
// JSON.stringify does (PHYSICAL §9.3). Text must be WTF-8; halves of a pair that
// stand together are joined, bytes that are no WTF-8 are replaced as
// ReplaceBadUTF8 does.
func AppendQuote(dst []byte, text string) []byte {
	return AppendString(dst, text)
}

// AppendString appends the concatenation of decoded strings as one JSON string
// token: AppendQuote(dst, Concat(parts...)) without the copy.
func AppendString(dst []byte, parts ...string) []byte {
	dst = append(dst, '"')
	var high rune // a high surrogate not written yet
	for _, s := range parts {
		from := 0
		for i := 0; i < len(s); {
			c := s[i]
			if high != 0 {
				lo, ok := surrogate(s, i)
				if ok && isLow(lo) {
					dst = utf8.AppendRune(dst, joinHalves(high, lo))
					i += 3
				} else {
					dst = appendQuotedUnit(dst, high)
				}
				high, from = 0, i
				continue
			}
			switch {
			case c < 0x20 || c == '"' || c == '\\':
				dst = append(dst, s[from:i]...)
				dst = appendQuotedUnit(dst, rune(c))
				i++
				from = i
			case c < utf8.RuneSelf:
				i++
			default:
				if u, ok := surrogate(s, i); ok {
					dst = append(dst, s[from:i]...)
					if isHigh(u) {
						high = u
					} else {
						dst = appendQuotedUnit(dst, u)
					}
					i += 3
					from = i
					continue
				}
				_, n := utf8.DecodeRuneInString(s[i:])
				if n > 1 {
					i += n
					continue
				}
				dst = append(dst, s[from:i]...)
				dst = append(dst, replacement...)
				n, _ = sequence([]byte(s[i:min(i+4, len(s))]), 0)
				i += n
				from = i
			}
		}
		dst = append(dst, s[from:]...)
	}
	if high != 0 {
		dst = appendQuotedUnit(dst, high)
	}
	return append(dst, '"')
}

// AppendContent appends the content of a canonical string token v, without its
// quotes, to dst, which ends with the content of such a token: concatenation
// of strings without decoding them. A lone high half that dst ends with and a
// lone low half that v starts with become one code point. What is no string
// token appends nothing.
func AppendContent(dst, v []byte) []byte {
	if KindOf(v) != String {
		return dst
	}
	s := v[1 : len(v)-1]
	if lo, ok := escapedHalf(s, 0); ok && isLow(lo) {
		at := len(dst) - 6
		if hi, ok := escapedHalf(dst, at); ok && isHigh(hi) && !escapedAt(dst, at) {
			dst = utf8.AppendRune(dst[:at], joinHalves(hi, lo))
			s = s[6:]
		}
	}
	return append(dst, s...)
}

// escapedHalf reads \udxxx at s[i:].
func escapedHalf(s []byte, i int) (u rune, ok bool) {
	if i < 0 || i+6 > len(s) || s[i] != '\\' || s[i+1] != 'u' || s[i+2] != 'd' {
		return 0, false
	}
	u, _, _, want := hex4(s, i+2)
	return u, want == "" && (isHigh(u) || isLow(u))
}

// escapedAt reports whether the byte s[i] is itself escaped: an odd number of
// backslashes stands before it.
func escapedAt(s []byte, i int) bool {
	n := 0
	for i-n > 0 && s[i-n-1] == '\\' {
		n++
	}
	return n%2 == 1
}
