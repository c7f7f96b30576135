package drift

import (
	"strconv"
	"strings"
)

// PathAt returns the path of the innermost value of a canonical JSON text that
// contains the byte at offset: "" for the whole text, else like
// messages[3].content[0].text. A key that is not a plain word is shown as its
// JSON token in brackets. It reads the text up to offset once, whatever its
// depth.
func PathAt(text []byte, offset int) string {
	type frame struct {
		key   []byte // JSON token of the current member; nil in an array
		index int
		obj   bool
	}
	var stack []frame
	path := func(inside bool) string {
		frames := stack
		if !inside && len(frames) > 0 {
			frames = frames[:len(frames)-1]
		}
		var b strings.Builder
		for _, f := range frames {
			switch {
			case !f.obj:
				b.WriteByte('[')
				b.WriteString(strconv.Itoa(f.index))
				b.WriteByte(']')
			case plainKey(f.key):
				if b.Len() > 0 {
					b.WriteByte('.')
				}
				b.Write(f.key[1 : len(f.key)-1])
			default:
				b.WriteByte('[')
				b.Write(f.key)
				b.WriteByte(']')
			}
		}
		return b.String()
	}
	wantKey := false
	for i := 0; i < len(text) && i <= offset; {
		switch text[i] {
		case '{', '[':
			// An opening bracket belongs to the container's own value.
			if i == offset {
				return path(true)
			}
			stack = append(stack, frame{obj: text[i] == '{'})
			wantKey = text[i] == '{'
			i++
		case '}', ']':
			if i == offset {
				return path(false)
			}
			if len(stack) > 0 {
				stack = stack[:len(stack)-1]
			}
			wantKey = false
			i++
		case ',', ':':
			if i == offset {
				return path(false)
			}
			if text[i] == ',' && len(stack) > 0 {
				f := &stack[len(stack)-1]
				f.index++
				wantKey = f.obj
			}
			i++
		case '"':
			end := stringEnd(text, i)
			if wantKey && len(stack) > 0 {
				if offset < end {
					return path(false)
				}
				stack[len(stack)-1].key = text[i:end]
				wantKey = false
			} else if offset < end {
				return path(true)
			}
			i = end
		default:
			end := i + 1
			for end < len(text) && text[end] != ',' && text[end] != '}' && text[end] != ']' {
				end++
			}
			if offset < end {
				return path(true)
			}
			i = end
		}
	}
	return path(false)
}

// stringEnd is the offset after the string that begins at i.
func stringEnd(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

func plainKey(token []byte) bool {
	if len(token) < 3 {
		return false
	}
	for _, c := range token[1 : len(token)-1] {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c == '-') {
			return false
		}
	}
	return true
}
