package ui

import (
	"strings"
	"unicode/utf8"
)

// Escape returns text that is safe on one line of a terminal. Line feeds and
// tabs are shown as \n and \t; what else could move the cursor, start a
// sequence, reverse the reading direction or hide is shown as \x1b or \u202e;
// bytes that are not UTF-8 as \xff; a lone surrogate of WTF-8 as \ud800.
// Everything else, including backslashes, stays as it is.
func Escape(s string) string { return escape(s, false) }

// EscapeLines is Escape for text of several lines: line feeds and tabs stay.
// A carriage return does not: it would let a line overwrite itself.
func EscapeLines(s string) string { return escape(s, true) }

func escape(s string, lines bool) string {
	i := 0
	for i < len(s) && s[i] >= 0x20 && s[i] < 0x7f {
		i++
	}
	if i == len(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	b.WriteString(s[:i])
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n <= 1:
			if i+2 < len(s) && s[i] == 0xed && s[i+1] >= 0xa0 && s[i+1] <= 0xbf && s[i+2]&0xc0 == 0x80 {
				hex(&b, 'u', 0xd000|uint32(s[i+1]&0x3f)<<6|uint32(s[i+2]&0x3f), 4)
				n = 3
				break
			}
			hex(&b, 'x', uint32(s[i]), 2)
		case r == '\n' || r == '\t':
			switch {
			case lines:
				b.WriteByte(byte(r))
			case r == '\n':
				b.WriteString(`\n`)
			default:
				b.WriteString(`\t`)
			}
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x20 || r == 0x7f:
			hex(&b, 'x', uint32(r), 2)
		case hidden(r):
			if r > 0xffff {
				hex(&b, 'U', uint32(r), 8)
			} else {
				hex(&b, 'u', uint32(r), 4)
			}
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// hidden reports the characters that act on a terminal or on a reader's eye
// without being seen. U+200C and U+200D stay: scripts and emoji need them.
func hidden(r rune) bool {
	switch {
	case r >= 0x80 && r <= 0x9f: // C1: U+009B starts a sequence like ESC [
	case r == 0x061c, r == 0x200e, r == 0x200f: // direction marks
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069: // embeddings, overrides, isolates
	case r == 0x2028, r == 0x2029: // line and paragraph separators
	case r == 0x00ad, r == 0x200b, r == 0xfeff, r >= 0x2060 && r <= 0x2064, r >= 0x206a && r <= 0x206f, r >= 0xfff9 && r <= 0xfffb: // invisible
	case r >= 0xe0000 && r <= 0xe007f: // tags
	default:
		return false
	}
	return true
}

const digits = "0123456789abcdef"

func hex(b *strings.Builder, kind byte, v uint32, width int) {
	b.WriteByte('\\')
	b.WriteByte(kind)
	for k := width - 1; k >= 0; k-- {
		b.WriteByte(digits[v>>(4*k)&0xf])
	}
}
