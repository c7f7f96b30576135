package drift

import (
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// The harness ships no tokenizer: its meter counts a quarter of the UTF-16 length
// of a text and four for every piece (WIRE §5). It is a rule of thumb, made for
// English prose.

// textTokens estimates a text of n UTF-16 units.
func textTokens(n int) int64 { return int64((n+3)/4) + 4 }

// utf16Len is the length of a JSON string, 0 for any other value.
func utf16Len(v []byte) int {
	s, _ := jsjson.Str(v)
	return jsjson.UTF16Len(s)
}

// jsonLen is the length of the JSON text itself.
func jsonLen(v []byte) int { return jsjson.UTF16Len(string(v)) }

// SystemTokens estimates a system prompt, 0 when it is absent.
func SystemTokens(system []byte) int64 {
	if system == nil {
		return 0
	}
	return textTokens(utf16Len(system))
}

// ToolsTokens estimates a list of tools, 0 when it is empty.
func ToolsTokens(tools [][]byte) int64 {
	if len(tools) == 0 {
		return 0
	}
	n := len(tools) + 1 // brackets and commas
	for _, t := range tools {
		n += jsonLen(t)
	}
	return textTokens(n)
}

// MessageTokens estimates a message.
func MessageTokens(m []byte) int64 {
	n := int64(4)
	for b := range jsjson.Elements(jsjson.Get(m, "content")) {
		n += blockTokens(b, 0)
	}
	return n
}

func blockTokens(b []byte, depth int) int64 {
	typ, _ := jsjson.Str(jsjson.Get(b, "type"))
	switch typ {
	case "text", "reasoning":
		return textTokens(utf16Len(jsjson.Get(b, "text")))
	case "tool-call":
		quarter := func(n int) int64 { return int64((n + 3) / 4) }
		return quarter(utf16Len(jsjson.Get(b, "name"))) + quarter(utf16Len(jsjson.Get(b, "arguments"))) + 4
	case "tool-result":
		if depth < maxDepth {
			n := int64(4)
			for inner := range jsjson.Elements(jsjson.Get(b, "content")) {
				n += blockTokens(inner, depth+1)
			}
			return n
		}
	}
	return textTokens(jsonLen(b))
}
