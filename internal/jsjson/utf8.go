package jsjson

import "unicode/utf8"

const replacement = "\uFFFD"

// sequence measures the UTF-8 sequence at b[i], whose first byte is not ASCII.
// If it is well-formed, n is its length. If not, n is the length of its maximal
// subpart: the longest prefix that could still have become a sequence, or the
// single byte that starts none (Unicode 3.9, table 3-7; the WHATWG decoder).
func sequence(b []byte, i int) (n int, ok bool) {
	c := b[i]
	lo, hi, size := byte(0x80), byte(0xBF), 0
	switch {
	case c < 0xC2:
		return 1, false
	case c < 0xE0:
		size = 2
	case c < 0xF0:
		size = 3
		if c == 0xE0 {
			lo = 0xA0
		} else if c == 0xED {
			hi = 0x9F
		}
	case c < 0xF5:
		size = 4
		if c == 0xF0 {
			lo = 0x90
		} else if c == 0xF4 {
			hi = 0x8F
		}
	default:
		return 1, false
	}
	for n = 1; n < size; n++ {
		if i+n >= len(b) || b[i+n] < lo || b[i+n] > hi {
			return n, false
		}
		lo, hi = 0x80, 0xBF
	}
	return size, true
}

// ReplaceBadUTF8 appends src to dst with every maximal ill-formed subpart
// replaced by U+FFFD, as TextDecoder and Buffer.toString do (PHYSICAL §9). The
// encoding of a surrogate (ED A0 80) is ill-formed: three bytes, three U+FFFD.
// A byte order mark is kept.
func ReplaceBadUTF8(dst, src []byte) []byte {
	if utf8.Valid(src) {
		return append(dst, src...)
	}
	from := 0
	for i := 0; i < len(src); {
		if src[i] < utf8.RuneSelf {
			i++
			continue
		}
		n, ok := sequence(src, i)
		if !ok {
			dst = append(dst, src[from:i]...)
			dst = append(dst, replacement...)
			from = i + n
		}
		i += n
	}
	return append(dst, src[from:]...)
}

// surrogate reports whether s[i:] starts with the WTF-8 encoding of a
// surrogate, and which.
func surrogate[T []byte | string](s T, i int) (u rune, ok bool) {
	if i+3 <= len(s) && s[i] == 0xED && s[i+1] >= 0xA0 && s[i+1] <= 0xBF && s[i+2]&0xC0 == 0x80 {
		return 0xD000 | rune(s[i+1]&0x3F)<<6 | rune(s[i+2]&0x3F), true
	}
	return 0, false
}

func isHigh(u rune) bool { return u&^0x3FF == 0xD800 }
func isLow(u rune) bool  { return u&^0x3FF == 0xDC00 }

func joinHalves(hi, lo rune) rune { return 0x10000 + (hi-0xD800)<<10 + (lo - 0xDC00) }

// appendUnit appends a code point to WTF-8 text: a surrogate as three bytes.
func appendUnit(dst []byte, u rune) []byte {
	if u&^0x7FF == 0xD800 {
		return append(dst, 0xED, 0x80|byte(u>>6&0x3F), 0x80|byte(u&0x3F))
	}
	return utf8.AppendRune(dst, u)
}

// appendJoined appends WTF-8 text to WTF-8 text; halves that meet are joined.
func appendJoined(dst []byte, s string) []byte {
	if lo, ok := surrogate(s, 0); ok && isLow(lo) && len(dst) >= 3 {
		if hi, ok := surrogate(dst, len(dst)-3); ok && isHigh(hi) {
			dst = utf8.AppendRune(dst[:len(dst)-3], joinHalves(hi, lo))
			s = s[3:]
		}
	}
	return append(dst, s...)
}

// Concat joins decoded strings as JavaScript's + does: a high surrogate at the
// end of one part and a low surrogate at the start of the next become one code
// point. Each part must be WTF-8.
func Concat(parts ...string) string {
	size, last, filled := 0, "", 0
	for _, p := range parts {
		if p != "" {
			size += len(p)
			last = p
			filled++
		}
	}
	if filled <= 1 {
		return last
	}
	dst := make([]byte, 0, size)
	for _, p := range parts {
		dst = appendJoined(dst, p)
	}
	return string(dst)
}

// UTF16Len is the length of a decoded string as JavaScript counts it, in
// UTF-16 code units.
func UTF16Len(s string) int {
	n := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c&0xC0 != 0x80 {
			n++
		}
		if c >= 0xF0 {
			n++
		}
	}
	return n
}

// TrimJS removes from both ends what String.prototype.trim does: white space
// and line terminators of ECMAScript, among them U+00A0, U+FEFF, U+2028.
func TrimJS(s string) string {
	for s != "" {
		r, n := utf8.DecodeRuneInString(s)
		if !isJSSpace(r) {
			break
		}
		s = s[n:]
	}
	for s != "" {
		r, n := utf8.DecodeLastRuneInString(s)
		if !isJSSpace(r) {
			break
		}
		s = s[:len(s)-n]
	}
	return s
}

func isJSSpace(r rune) bool {
	switch r {
	case '\t', '\n', '\v', '\f', '\r', ' ', 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF:
		return true
	}
	return 0x2000 <= r && r <= 0x200A
}
