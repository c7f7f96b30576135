package jsjson

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// MaxSafe is the largest integer that a double and its neighbours name without
// doubt: Number.MAX_SAFE_INTEGER.
const MaxSafe = 1<<53 - 1

// KindOf returns the kind of a canonical value, by its first byte.
func KindOf(v []byte) Kind {
	if len(v) == 0 {
		return Absent
	}
	switch c := v[0]; c {
	case '{':
		return Object
	case '[':
		return Array
	case '"':
		if len(v) < 2 {
			return Absent
		}
		return String
	case 't', 'f':
		return Bool
	case 'n':
		return Null
	default:
		if c == '-' || isDigit(c) {
			return Number
		}
		return Absent
	}
}

// String names a kind as JavaScript does, "undefined" for Absent.
func (k Kind) String() string {
	switch k {
	case Null:
		return "null"
	case Bool:
		return "boolean"
	case Number:
		return "number"
	case String:
		return "string"
	case Array:
		return "array"
	case Object:
		return "object"
	}
	return "undefined"
}

// Skip returns the end of the canonical value that starts at b[i]. On other
// input it returns some offset up to len(b).
func Skip(b []byte, i int) int {
	if i >= len(b) {
		return len(b)
	}
	switch b[i] {
	case '"':
		return endOfString(b, i+1)
	case '{', '[':
	default:
		return endOfScalar(b, i)
	}
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			i = endOfString(b, i+1)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return len(b)
}

// endOfString returns the offset behind the closing quote of the string whose
// content starts at b[i].
func endOfString(b []byte, i int) int {
	// Short strings end within a few words. In a long one the next quote is looked
	// for by the library, which is faster, and is the end unless it is escaped.
	const words = 4
	near := i + words*8
	for i < len(b) {
		for i+8 <= len(b) {
			if i >= near {
				return endOfLong(b, i)
			}
			x := binary.LittleEndian.Uint64(b[i:])
			q, s := x^'"'*ones, x^'\\'*ones
			if m := ((q-ones)&^q | (s-ones)&^s) & highs; m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
			i += 8
		}
		if i >= len(b) {
			break
		}
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i += 2
		default:
			i++
		}
	}
	return len(b)
}

// endOfLong is endOfString from within a string; b[i] is not escaped.
func endOfLong(b []byte, i int) int {
	for from := i; ; {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		i += n
		slashes := i
		for slashes > from && b[slashes-1] == '\\' {
			slashes--
		}
		i++
		if (i-1-slashes)%2 == 0 {
			return i
		}
	}
}

// endOfScalar returns the end of the number or literal at b[i].
func endOfScalar(b []byte, i int) int {
	for i < len(b) {
		switch b[i] {
		case ',', '}', ']', ':', '"', '{', '[', ' ', '\n', '\r', '\t':
			return i
		}
		i++
	}
	return i
}

// endOfKey is endOfString, and reports a backslash in the string. Keys are
// short: most end in the first word.
func endOfKey(b []byte, i int) (end int, odd bool) {
	if i+8 <= len(b) {
		if m := special(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			if j := i + bits.TrailingZeros64(m)>>3; b[j] == '"' {
				return j + 1, false
			}
		}
	}
	end = endOfString(b, i)
	return end, indexBackslash(b[min(i, end):end]) >= 0
}

// A memberSpan is a member of a canonical object: its key without the quotes,
// odd if it holds a backslash, and its value.
type memberSpan struct {
	key, keyEnd, val, valEnd int
	odd                      bool
}

// nextMember reads the member at obj[i:], where i is behind the brace or a
// comma; next is behind the comma that follows. ok is false at the end.
func nextMember(obj []byte, i int) (m memberSpan, next int, ok bool) {
	if i >= len(obj) || obj[i] != '"' {
		return m, i, false
	}
	m.key = i + 1
	k, odd := endOfKey(obj, i+1)
	if k >= len(obj) || k < i+2 {
		return m, i, false
	}
	m.keyEnd, m.odd, m.val = k-1, odd, k+1
	m.valEnd = Skip(obj, k+1)
	return m, m.valEnd + 1, m.valEnd > m.val
}

// Get returns the value of a member of an object, nil if it is absent or obj is
// no object. The key is a decoded string. Only the members up to the key are
// scanned.
func Get(obj []byte, key string) []byte {
	if KindOf(obj) != Object {
		return nil
	}
	for i := 1; i < len(obj) && obj[i] == '"'; {
		i++
		// A key that stands there as it is needs no search for its end.
		if end := i + len(key); end+1 < len(obj) && obj[end] == '"' && string(obj[i:end]) == key && plainKey(key) {
			v := end + 2
			to := Skip(obj, v)
			if to <= v {
				return nil
			}
			return obj[v:to:to]
		}
		end, odd := endOfKey(obj, i)
		v := end + 1
		if v > len(obj) || end < i+1 {
			return nil
		}
		to := Skip(obj, v)
		if to <= v {
			return nil
		}
		if odd && decodesTo(obj[i:end-1], key) {
			return obj[v:to:to]
		}
		i = to + 1
	}
	return nil
}

// plainKey reports whether a key is written without escapes, as far as quotes and
// backslashes go.
func plainKey(key string) bool {
	for i := 0; i < len(key); i++ {
		if key[i] == '"' || key[i] == '\\' {
			return false
		}
	}
	return true
}

// Fields looks up several keys in one scan: dst[i] becomes the value of
// keys[i], nil if it is absent. It returns the number of members that are none
// of the keys, or -1 if obj is no object; dst is cleared either way. The scan is
// fastest when keys stand in the order in which the object has them. dst must
// be at least as long as keys.
func Fields(obj []byte, dst [][]byte, keys []string) (others int) {
	dst = dst[:len(keys)]
	clear(dst)
	if KindOf(obj) != Object {
		return -1
	}
	hint := 0
	for i := 1; ; {
		m, next, ok := nextMember(obj, i)
		if !ok {
			return others
		}
		i = next
		if j := keyIndex(obj[m.key:m.keyEnd], m.odd, keys, hint); j >= 0 {
			dst[j] = obj[m.val:m.valEnd:m.valEnd]
			hint = j + 1
		} else {
			others++
		}
	}
}

// Members iterates over an object: the raw key token with its quotes, and the
// value. What is no object has none.
func Members(obj []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		if KindOf(obj) != Object {
			return
		}
		for i := 1; ; {
			m, next, ok := nextMember(obj, i)
			if !ok || !yield(obj[m.key-1:m.keyEnd+1:m.keyEnd+1], obj[m.val:m.valEnd:m.valEnd]) {
				return
			}
			i = next
		}
	}
}

// Elements iterates over an array. What is no array has none.
func Elements(arr []byte) iter.Seq[[]byte] {
	return func(yield func(value []byte) bool) {
		if KindOf(arr) != Array {
			return
		}
		for i := 1; i < len(arr) && arr[i] != ']'; {
			end := Skip(arr, i)
			if end <= i || !yield(arr[i:end:end]) {
				return
			}
			i = end + 1
		}
	}
}

// Index returns the element of an array at position n, from 0, nil if there is
// none.
func Index(arr []byte, n int) []byte {
	for v := range Elements(arr) {
		if n == 0 {
			return v
		}
		n--
	}
	return nil
}

// Len counts the elements of an array or the members of an object; any other
// value has length 0.
func Len(v []byte) int {
	n := 0
	switch KindOf(v) {
	case Array:
		for range Elements(v) {
			n++
		}
	case Object:
		for range Members(v) {
			n++
		}
	}
	return n
}

// SafeInt reads a number that is a safe integer, |n| ≤ 2^53-1.
func SafeInt(v []byte) (int64, bool) {
	i, neg := 0, false
	if len(v) > 0 && v[0] == '-' {
		neg = true
		i = 1
	}
	if len(v) == i || len(v)-i > 16 {
		return 0, false
	}
	var n int64
	for ; i < len(v); i++ {
		if !isDigit(v[i]) {
			return 0, false
		}
		n = n*10 + int64(v[i]-'0')
	}
	if n > MaxSafe {
		return 0, false
	}
	if neg {
		n = -n
	}
	return n, true
}

// Float reads a number.
func Float(v []byte) (float64, bool) {
	if KindOf(v) != Number {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(v), 64)
	return f, err == nil
}

// BoolOf reads true or false.
func BoolOf(v []byte) (value, ok bool) {
	switch string(v) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

// Str decodes a string to WTF-8: a lone surrogate is three bytes.
func Str(v []byte) (string, bool) {
	if KindOf(v) != String {
		return "", false
	}
	s := v[1 : len(v)-1]
	if indexBackslash(s) < 0 {
		return string(s), true
	}
	return string(appendDecodedCanonical(make([]byte, 0, len(s)), s)), true
}

// AppendStr appends a decoded string to dst, which is WTF-8; halves that meet
// are joined. What is no string appends nothing.
func AppendStr(dst, v []byte) []byte {
	if KindOf(v) != String {
		return dst
	}
	s := v[1 : len(v)-1]
	if lo, ok := escapedHalf(s, 0); ok && isLow(lo) && len(dst) >= 3 {
		dst = appendJoined(dst, string(appendUnit(nil, lo)))
		s = s[6:]
	}
	return appendDecodedCanonical(dst, s)
}

// StrEq reports whether v is a string that decodes to s, which must be WTF-8
// with its halves joined.
func StrEq(v []byte, s string) bool {
	if KindOf(v) != String {
		return false
	}
	c := v[1 : len(v)-1]
	// Decoding never lengthens, and shortens whenever there is an escape.
	if len(c) <= len(s) {
		return string(c) == s && strings.IndexByte(s, '\\') < 0
	}
	return indexBackslash(c) >= 0 && decodesTo(c, s)
}

// decodesTo reports whether the content of a string token decodes to s.
func decodesTo(content []byte, s string) bool {
	var buf [64]byte
	return string(appendDecodedCanonical(buf[:0], content)) == s
}

func indexBackslash(s []byte) int {
	for i, c := range s {
		if c == '\\' {
			return i
		}
	}
	return -1
}

// appendDecodedCanonical is appendDecoded, safe on content that is no valid
// string: an accessor must not panic whatever it is given.
func appendDecodedCanonical(dst, s []byte) []byte {
	for i := 0; i < len(s); {
		j := i
		for j < len(s) && s[j] != '\\' {
			j++
		}
		dst = append(dst, s[i:j]...)
		if j+1 >= len(s) {
			return append(dst, s[j:]...)
		}
		u, end := decodeEscape(s, j)
		if end <= j {
			return append(dst, s[j:]...)
		}
		dst = appendUnit(dst, u)
		i = end
	}
	return dst
}

// CanonicalString returns the end of the string token at b[i], which may be
// followed by anything, or -1 when there is none that is whole and canonical, or
// one that holds half of a surrogate pair.
func CanonicalString(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	end, facts, want := scanString(b, i+1)
	if want != "" || facts&^sawEscape != 0 {
		return -1
	}
	return end
}
