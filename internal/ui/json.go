package ui

import (
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// SafeJSON returns JSON text in which no character acts on a terminal: what
// Escape would hide is written as \u escapes, which changes the bytes but not
// the value. It is for showing exact bytes on a terminal; pipes and files get
// the bytes themselves. Text without such characters is returned as it is.
func SafeJSON(b []byte) []byte {
	i := 0
	for i < len(b) && b[i] < 0x7f && b[i] >= 0x20 {
		i++
	}
	if i == len(b) {
		return b
	}
	out := append(make([]byte, 0, len(b)+64), b[:i]...)
	for i < len(b) {
		r, n := utf8.DecodeRune(b[i:])
		switch {
		case r == utf8.RuneError && n <= 1:
			out = append(out, `\ufffd`...)
		case r > 0xffff && hidden(r):
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		case r == 0x7f || hidden(r):
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, b[i:i+n]...)
		}
		i += n
	}
	return out
}
