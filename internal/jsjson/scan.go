package jsjson

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// Error gives the place first: "offset 17: expected ',' or '}', found 'x'".
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("offset %d: expected %s, found %s", e.Offset, e.Want, e.Got)
}

func syntaxError(b []byte, at int, want string) *SyntaxError {
	return &SyntaxError{Offset: at, Want: want, Got: found(b, at)}
}

// found names what stands at b[at] in printable ASCII.
func found(b []byte, at int) string {
	if at >= len(b) {
		return "end of input"
	}
	c := b[at]
	switch {
	case c == '\'':
		return `"'"`
	case c >= 0x20 && c < 0x7F:
		return "'" + string(rune(c)) + "'"
	case c >= utf8.RuneSelf:
		if n, ok := sequence(b, at); ok {
			r, _ := utf8.DecodeRune(b[at : at+n])
			return fmt.Sprintf("U+%04X", r)
		}
	}
	return fmt.Sprintf("0x%02x", c)
}

// Check scans a JSON text once. It reports what is remarkable about it, or a
// *SyntaxError for the first byte that JSON.parse would not accept; the facts
// are then those noticed before that byte. Nesting takes memory, not stack; a
// text of ordinary depth and key count is scanned without allocation.
func Check(b []byte) (Facts, error) {
	facts, at, want := scan(b, nil)
	if at >= 0 {
		return facts, syntaxError(b, at, want)
	}
	return facts, nil
}

// CheckFields is Check and, when b is canonical, Fields in the same scan. When b
// is no JSON text or not canonical, dst is cleared and others is -1: Stringify
// it, and use Fields on the result.
func CheckFields(b []byte, dst [][]byte, keys []string) (others int, facts Facts, err error) {
	want := lookup{dst: dst[:len(keys)], keys: keys, others: -1}
	clear(want.dst)
	facts, at, expected := scan(b, &want)
	if at >= 0 {
		return -1, facts, syntaxError(b, at, expected)
	}
	return want.others, facts, nil
}

// A lookup asks scan for members of the outermost object.
type lookup struct {
	dst    [][]byte
	keys   []string
	others int // members that are none of keys, -1 if not looked up
}

// fill notes the members of the canonical object b by the spans of its keys.
func (l *lookup) fill(b []byte, keys []keySpan) {
	l.others = 0
	hint := 0
	for i, k := range keys {
		end := len(b) - 1 // of the value: before the brace, or a comma and a quote
		if i+1 < len(keys) {
			end = keys[i+1].start - 2
		}
		stop, odd := k.end, false
		if stop < 0 {
			stop, odd = ^stop, true
		}
		j := keyIndex(b[k.start:stop], odd, l.keys, hint)
		if j < 0 {
			l.others++
			continue
		}
		l.dst[j] = b[stop+2 : end : end]
		hint = j + 1
	}
}

// keyIndex finds the canonical content of a key token among keys, trying
// keys[hint] first; -1 if it is none of them. An odd one holds a backslash.
func keyIndex(content []byte, odd bool, keys []string, hint int) int {
	if !odd && hint < len(keys) && string(content) == keys[hint] {
		return hint
	}
	for j, key := range keys {
		if odd && decodesTo(content, key) || !odd && string(content) == key {
			return j
		}
	}
	return -1
}

// Canonical reports whether b is a JSON text that equals its own canonical
// form: JSON.stringify(JSON.parse(b)) === b.
func Canonical(b []byte) bool {
	facts, at, _ := scan(b, nil)
	return at < 0 && facts.Canonical()
}

// A frame is a container that stays open around the current one.
type frame struct {
	kind byte   // '{', '[', or 0 outside of any
	base int    // the members of an object are keys[base:]
	seen uint64 // a Bloom filter of the object's keys, one bit each
}

// A keySpan is where the content of a key token stands. The end of an odd one,
// which holds a backslash or bad UTF-8 and must be decoded to be compared, is
// complemented.
type keySpan struct{ start, end int }

// Objects with more members than this are checked for duplicates by sorting
// when they close, smaller ones key by key.
const manyKeys = 64

// Wants, as SyntaxError shows them.
const (
	wantValue     = "value"
	wantElement   = "value or ']'"
	wantKey       = "key"
	wantMember    = "key or '}'"
	wantColon     = "':'"
	wantObjNext   = "',' or '}'"
	wantArrNext   = "',' or ']'"
	wantEnd       = "end of input"
	wantDigit     = "digit"
	wantQuote     = "'\"'"
	wantCharacter = "string character"
	wantEscape    = "escape character"
	wantHex       = "hex digit"
)

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

func skipSpace(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return i
}

// scan returns at < 0 when all of b is one JSON text. It serves a lookup, if
// there is one, when b is canonical.
func scan(b []byte, l *lookup) (facts Facts, at int, want string) {
	var (
		// Room for ordinary texts; append moves to the heap beyond that.
		keyRoom   [24]keySpan
		frameRoom [8]frame
		keys      = keyRoom[:0]
		outer     = frameRoom[:0]

		// The current container, as in frame.
		kind byte
		base int
		seen uint64

		members int // of the object closed last

		i int
		f Facts
		k keySpan
	)

value:
	if i >= len(b) {
		return facts, i, wantValue
	}
	switch b[i] {
	case '"':
		i++
		// Most strings are short and plain.
		if i+8 <= len(b) {
			m := special(binary.LittleEndian.Uint64(b[i:]))
			if m == 0 {
				i += 8
			} else {
				i += bits.TrailingZeros64(m) >> 3
				if b[i] == '"' {
					i++
					goto after
				}
			}
		}
		i, f, want = scanString(b, i)
		facts |= f
		if want != "" {
			return facts, i, want
		}
		goto after
	case '{':
		outer = append(outer, frame{kind, base, seen})
		kind, base, seen = '{', len(keys), 0
		i++
		if i < len(b) && b[i] == '"' {
			goto key
		}
		if j := skipSpace(b, i); j != i {
			facts |= Whitespace
			i = j
		}
		if i < len(b) && b[i] == '}' {
			goto pop
		}
		want = wantMember
		goto key
	case '[':
		outer = append(outer, frame{kind, base, seen})
		kind = '['
		i++
		if j := skipSpace(b, i); j != i {
			facts |= Whitespace
			i = j
		}
		if i < len(b) && b[i] == ']' {
			goto pop
		}
		if i >= len(b) || b[i] == ',' || b[i] == '}' || b[i] == ':' {
			return facts, i, wantElement
		}
		goto value
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		i, f, want = scanNumber(b, i)
		facts |= f
		if want != "" {
			return facts, i, want
		}
		goto after
	case 't':
		if i = literal(b, i, "true"); i < 0 {
			return facts, ^i, "true"
		}
		goto after
	case 'f':
		if i = literal(b, i, "false"); i < 0 {
			return facts, ^i, "false"
		}
		goto after
	case 'n':
		if i = literal(b, i, "null"); i < 0 {
			return facts, ^i, "null"
		}
		goto after
	case ' ', '\n', '\r', '\t':
		facts |= Whitespace
		i = skipSpace(b, i)
		goto value
	}
	return facts, i, wantValue

key:
	if i >= len(b) || b[i] != '"' {
		if want == "" {
			want = wantKey
		}
		return facts, i, want
	}
	i++
	k.start = i
	// The fast way, without a call: a plain key of less than eight bytes that no
	// digit starts, and whose bit no key before it has.
	if i+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[i:])
		if m := special(x); m != 0 {
			n := bits.TrailingZeros64(m) &^ 7
			if end := i + n>>3; b[end] == '"' && !isDigit(b[i]) {
				bit := keyBit(x&(1<<n-1), n>>3)
				if seen&bit == 0 {
					seen |= bit
					keys = append(keys, keySpan{i, end})
					i = end + 1
					goto colon
				}
			}
		}
	}
	i, f, want = scanString(b, i)
	facts |= f
	if want != "" {
		return facts, i, want
	}
	k.end = i - 1
	if f&(sawEscape|BadUTF8) != 0 {
		k.end = ^k.end
	}
	f, seen = noteKey(b, keys[base:], k, seen)
	facts |= f
	keys = append(keys, k)

colon:
	if i < len(b) && b[i] == ':' {
		i++
		goto value
	}
	if j := skipSpace(b, i); j != i {
		facts |= Whitespace
		i = j
	}
	if i >= len(b) || b[i] != ':' {
		return facts, i, wantColon
	}
	i++
	goto value

after:
	if i < len(b) {
		switch b[i] {
		case ',':
			if kind == '{' {
				i++
				if i < len(b) && b[i] == '"' {
					goto key
				}
				if j := skipSpace(b, i); j != i {
					facts |= Whitespace
					i = j
				}
				goto key
			}
			if kind == '[' {
				i++
				goto value
			}
		case '}':
			if kind == '{' {
				if len(keys)-base > manyKeys && facts&DuplicateKey == 0 && hasDuplicate(b, keys[base:]) {
					facts |= DuplicateKey
				}
				goto pop
			}
		case ']':
			if kind == '[' {
				goto pop
			}
		case ' ', '\n', '\r', '\t':
			facts |= Whitespace
			i = skipSpace(b, i)
			goto after
		}
	}
	switch kind {
	case '{':
		return facts, i, wantObjNext
	case '[':
		return facts, i, wantArrNext
	}
	if i < len(b) {
		return facts, i, wantEnd
	}
	facts &^= sawEscape
	if l != nil && b[0] == '{' && facts.Canonical() {
		// The keys popped last are those of the outermost object.
		l.fill(b, keys[:members])
	}
	return facts, -1, ""

pop:
	i++
	if kind == '{' {
		members = len(keys) - base
		keys = keys[:base]
	}
	{
		top := &outer[len(outer)-1]
		kind, base, seen = top.kind, top.base, top.seen
	}
	outer = outer[:len(outer)-1]
	goto after
}

// literal returns the end of word at b[i:], or the complement of the offset of
// the first byte that differs.
func literal(b []byte, i int, word string) int {
	for k := 0; k < len(word); k++ {
		if i+k >= len(b) || b[i+k] != word[k] {
			return ^(i + k)
		}
	}
	return i + len(word)
}

func isDigit(c byte) bool { return c-'0' <= 9 }

func digits(b []byte, i int) int {
	for i < len(b) && isDigit(b[i]) {
		i++
	}
	return i
}

// scanNumber scans the literal at b[i], a digit or a minus.
func scanNumber(b []byte, i int) (end int, facts Facts, want string) {
	start := i
	if b[i] == '-' {
		i++
	}
	if i >= len(b) || !isDigit(b[i]) {
		return i, 0, wantDigit
	}
	if b[i] == '0' {
		i++
	} else {
		i = digits(b, i+1)
	}
	plain := true
	if i < len(b) && b[i] == '.' {
		plain = false
		if j := digits(b, i+1); j == i+1 {
			return j, 0, wantDigit
		} else {
			i = j
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		plain = false
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if j := digits(b, i); j == i {
			return j, 0, wantDigit
		} else {
			i = j
		}
	}
	// Integers of up to 15 digits are exact and in their shortest form.
	if plain && i-start <= 15 && (b[start] != '-' || b[start+1] != '0') {
		return i, 0, ""
	}
	return i, numberFacts(b[start:i]), ""
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks, by its high bit, the first byte of x that is a quote, a
// backslash, a control character or not ASCII. Marks above the first may be
// false.
func special(x uint64) uint64 {
	return (x | (x - 0x20*ones) | ((x ^ '"'*ones) - ones) | ((x ^ '\\'*ones) - ones)) & highs
}

// sawEscape is internal to scan: the string holds a backslash.
const sawEscape Facts = 1 << 15

// scanString scans the string whose content starts at b[i]; end is behind the
// closing quote.
func scanString(b []byte, i int) (end int, facts Facts, want string) {
	for {
		for i+8 <= len(b) {
			m := special(binary.LittleEndian.Uint64(b[i:]))
			if m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
			i += 8
		}
		if i >= len(b) {
			return i, facts, wantQuote
		}
		c := b[i]
		switch {
		case c == '"':
			return i + 1, facts, ""
		case c == '\\':
			n, f, w := scanEscape(b, i)
			facts |= f | sawEscape
			if w != "" {
				return n, facts, w
			}
			i = n
		case c < 0x20:
			return i, facts, wantCharacter
		case c < utf8.RuneSelf:
			i++
		default:
			// Text that is not ASCII comes in runs.
			for i+4 <= len(b) && b[i] >= utf8.RuneSelf {
				n := wellFormed(binary.LittleEndian.Uint32(b[i:]))
				if n == 0 {
					break
				}
				i += n
			}
			if i < len(b) && b[i] >= utf8.RuneSelf {
				n, ok := sequence(b, i)
				if !ok {
					facts |= BadUTF8
				}
				i += n
			}
		}
	}
}

// wellFormed returns the length of the UTF-8 sequence of two to four bytes that
// the little-endian word x starts with, 0 if it is ill-formed.
func wellFormed(x uint32) int {
	switch {
	case x&0x00C0C0F0 == 0x008080E0:
		// E0 needs A0 or more behind it, ED less than A0 (surrogates).
		if v := x & 0x200F; v == 0 || v == 0x200D {
			return 0
		}
		return 3
	case x&0xC0E0 == 0x80C0:
		if x&0x1E == 0 { // C0, C1
			return 0
		}
		return 2
	case x&0xC0C0C0F8 == 0x808080F0:
		// F0 needs 90 or more behind it, F4 less than 90.
		if v := x&0x07<<8 | x>>8&0x3F; v < 0x010 || v >= 0x410 {
			return 0
		}
		return 4
	}
	return 0
}

// hex4 reads four hex digits at b[i:]. If want is set, n is the offset of the
// wrong byte; upper reports an upper-case digit.
func hex4(b []byte, i int) (u rune, upper bool, n int, want string) {
	for k := 0; k < 4; k++ {
		if i+k >= len(b) {
			return 0, false, i + k, wantHex
		}
		c := b[i+k]
		switch {
		case isDigit(c):
			u = u<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			u = u<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			u = u<<4 | rune(c-'A'+10)
			upper = true
		default:
			return 0, false, i + k, wantHex
		}
	}
	return u, upper, i + 4, ""
}

// scanEscape scans the escape at b[i], a backslash; both halves of a pair are
// one escape.
func scanEscape(b []byte, i int) (end int, facts Facts, want string) {
	if i+1 >= len(b) {
		return i + 1, 0, wantEscape
	}
	switch b[i+1] {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		return i + 2, 0, ""
	case '/':
		return i + 2, EscapeForm, ""
	case 'u':
	default:
		return i + 1, 0, wantEscape
	}
	u, upper, n, want := hex4(b, i+2)
	if want != "" {
		return n, 0, want
	}
	switch {
	case isHigh(u):
		if n+1 < len(b) && b[n] == '\\' && b[n+1] == 'u' {
			lo, _, m, w := hex4(b, n+2)
			if w != "" {
				return m, LoneSurrogate, w
			}
			if isLow(lo) {
				return m, EscapeForm, ""
			}
		}
		facts = LoneSurrogate
	case isLow(u):
		facts = LoneSurrogate
	case u < 0x20 && u != '\b' && u != '\f' && u != '\n' && u != '\r' && u != '\t':
	default:
		return n, EscapeForm, ""
	}
	if upper {
		facts |= EscapeForm
	}
	return n, facts, ""
}

// noteKey compares a key with those before it in its object.
func noteKey(b []byte, before []keySpan, k keySpan, seen uint64) (Facts, uint64) {
	var facts Facts
	text := keyText(b, k)
	if len(text) > 0 && isDigit(text[0]) && len(before) > 0 {
		if n, ok := arrayIndex(text); ok {
			// The keys before are in order, so the last one tells.
			prev, ok := arrayIndex(keyText(b, before[len(before)-1]))
			if !ok || prev > n {
				facts |= KeyOrder
			}
		}
	}
	var bit uint64
	if n := len(text); n >= 8 {
		bit = keyBit(binary.LittleEndian.Uint64(text)^bits.RotateLeft64(binary.LittleEndian.Uint64(text[n-8:]), 29), n)
	} else {
		var x uint64
		for j, c := range text {
			x |= uint64(c) << (8 * j)
		}
		bit = keyBit(x, n)
	}
	if seen&bit != 0 && len(before) < manyKeys {
		for _, p := range before {
			if bytes.Equal(keyText(b, p), text) {
				facts |= DuplicateKey
				break
			}
		}
	}
	return facts, seen | bit
}

// keyText is what a key says.
func keyText(b []byte, k keySpan) []byte {
	if k.end < 0 {
		return appendDecoded(nil, b[k.start:^k.end])
	}
	return b[k.start:k.end]
}

// keyBit hashes a key, given as a word and its length, to one bit of 64.
func keyBit(x uint64, n int) uint64 {
	return 1 << ((x ^ uint64(n)) * 0x9E3779B97F4A7C15 >> 58)
}

// hasDuplicate sorts the keys of one object by what they decode to.
func hasDuplicate(b []byte, keys []keySpan) bool {
	texts := make([][]byte, len(keys))
	for i, k := range keys {
		texts[i] = keyText(b, k)
	}
	slices.SortFunc(texts, bytes.Compare)
	for i := 1; i < len(texts); i++ {
		if bytes.Equal(texts[i-1], texts[i]) {
			return true
		}
	}
	return false
}

// arrayIndex reads an integer-like key: a canonical decimal from 0 to
// 4294967294, an array index of ECMA-262.
func arrayIndex(k []byte) (uint64, bool) {
	if len(k) == 0 || len(k) > 10 || k[0] == '0' && len(k) > 1 {
		return 0, false
	}
	var n uint64
	for _, c := range k {
		if !isDigit(c) {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, n <= 4294967294
}
