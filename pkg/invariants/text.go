package invariants

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/plural"
)

// Text from a log is hostile. Whatever of it enters a message goes through one
// of these functions: cut short, control and invisible characters as escapes.

const quoteLimit = 48 // runes of log text shown in a message

// quoted shows log text in double quotes.
func quoted(s string) string {
	b := append(make([]byte, 0, len(s)+2), '"')
	b = appendSafe(b, s, quoteLimit)
	return string(append(b, '"'))
}

func appendSafe(b []byte, s string, limit int) []byte {
	for n := 0; len(s) > 0; n++ {
		if n == limit {
			return append(b, "…"...)
		}
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			b = append(b, `\x`...)
			b = append(b, hex(s[0]>>4), hex(s[0]&15))
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < 0x20 || r == 0x7f:
			b = append(b, `\x`...)
			b = append(b, hex(byte(r)>>4), hex(byte(r)&15))
		case !unicode.IsPrint(r):
			b = append(b, `\u{`...)
			b = strconv.AppendInt(b, int64(r), 16)
			b = append(b, '}')
		default:
			b = append(b, s[:size]...)
		}
		s = s[size:]
	}
	return b
}

func hex(n byte) byte { return "0123456789abcdef"[n] }

// show describes a JSON value for a message: short values as they stand, long
// ones by kind and size.
func show(v []byte) string {
	switch jsjson.KindOf(v) {
	case jsjson.Absent:
		return "absent"
	case jsjson.String:
		s, _ := jsjson.Str(v)
		return quoted(s)
	case jsjson.Array:
		if len(v) <= quoteLimit {
			return string(appendSafeJSON(nil, v))
		}
		return "an array of " + plural.Count(jsjson.Len(v), "element")
	case jsjson.Object:
		if len(v) <= quoteLimit {
			return string(appendSafeJSON(nil, v))
		}
		return "an object with keys " + keyList(v)
	}
	return string(appendSafeJSON(nil, v)) // null, true, false, a number
}

// appendSafeJSON shows canonical JSON: only what is not printable is escaped.
func appendSafeJSON(b, v []byte) []byte {
	n := 0
	for len(v) > 0 {
		if n++; n > 2*quoteLimit {
			return append(b, "…"...)
		}
		r, size := utf8.DecodeRune(v)
		if r == utf8.RuneError && size == 1 || !unicode.IsPrint(r) {
			b = append(b, `\u{`...)
			b = strconv.AppendInt(b, int64(r), 16)
			b = append(b, '}')
		} else {
			b = append(b, v[:size]...)
		}
		v = v[size:]
	}
	return b
}

// keyList names the keys of an object, at most eight of them.
func keyList(obj []byte) string {
	var b strings.Builder
	n := 0
	for k := range jsjson.Members(obj) {
		if n == 8 {
			b.WriteString(", …")
			break
		}
		if n > 0 {
			b.WriteString(", ")
		}
		s, _ := jsjson.Str(k)
		b.Write(appendSafe(nil, s, 24))
		n++
	}
	if n == 0 {
		return "none"
	}
	return b.String()
}

// seqList shows a list of seqs, at most a dozen of them.
func seqList(seqs []int64) string {
	b := []byte{'['}
	for i, s := range seqs {
		if i == 12 {
			b = append(b, ", … "...)
			b = strconv.AppendInt(b, int64(len(seqs)-12), 10)
			b = append(b, " more"...)
			break
		}
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendInt(b, s, 10)
	}
	return string(append(b, ']'))
}

// printable makes a message from elsewhere safe to show. Quotes and backslashes
// stay: the message may have escaped what it quotes.
func printable(s string) string {
	const most = 1000
	for _, r := range s {
		if !unicode.IsPrint(r) {
			b := make([]byte, 0, len(s)+16)
			for _, part := range strings.SplitAfter(s, `"`) {
				quote := strings.HasSuffix(part, `"`)
				part = strings.TrimSuffix(part, `"`)
				for i, sub := range strings.Split(part, `\\`) {
					if i > 0 {
						b = append(b, '\\')
					}
					b = appendSafe(b, sub, most)
				}
				if quote {
					b = append(b, '"')
				}
			}
			return string(b)
		}
	}
	return s
}
