package fold

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// IsJSONValue reports whether a value survives JSON.stringify and JSON.parse
// unchanged, and so may stand in a log (PHYSICAL §9.1): nil, booleans, strings,
// finite numbers other than -0, integers that a double holds exactly, []any and
// map[string]any of such without cycles, and json.RawMessage that is valid and
// loses nothing. Strings are WTF-8. Every other Go type is refused, however it
// would be encoded.
func IsJSONValue(v any) bool {
	_, err := appendJSONValue(nil, v)
	return err == nil
}

// A jsonValueError says why a value cannot stand in a log.
type jsonValueError struct {
	path string // "" for the value itself, else like ".a[3]"
	why  string
}

func (e *jsonValueError) Error() string {
	path := e.path
	if path == "" {
		path = "the value"
	}
	return path + " " + e.why
}

// lossy are the facts about a JSON text whose value JSON.stringify does not give
// back.
const lossy = jsjson.NumberLoss | jsjson.NumberOverflow | jsjson.NegativeZero | jsjson.BadUTF8

// frameOf is a container that is being written.
type frameOf struct {
	list []any          // of an array
	keys []string       // of an object
	obj  map[string]any // nil for an array
	at   int            // next element
	id   identity
}

// identity tells containers apart, to find one inside itself.
type identity struct {
	ptr uintptr
	n   int
}

// appendJSONValue appends the value as JSON.stringify writes it, keeping the
// walk off the stack: a value may be nested as deep as memory allows. A Go map
// has no order; its keys are written in theirs, integer-like ones first.
func appendJSONValue(dst []byte, v any) ([]byte, error) {
	var stack []frameOf
	open := map[identity]bool{}
	path := func() (s string) {
		from := max(0, len(stack)-8)
		if from > 0 {
			s = "…"
		}
		for i := range stack[from:] {
			f := &stack[from+i]
			if f.obj != nil {
				s += "." + strconv.Quote(f.keys[f.at-1])
			} else {
				s += "[" + strconv.Itoa(f.at-1) + "]"
			}
		}
		return s
	}
	for {
		var err error
		push := false
		switch x := v.(type) {
		case []any:
			if len(x) == 0 {
				dst = append(dst, `[]`...)
				break
			}
			id := identity{reflect.ValueOf(x).Pointer(), len(x)}
			if open[id] {
				return nil, &jsonValueError{path(), "contains itself"}
			}
			open[id] = true
			stack = append(stack, frameOf{list: x, id: id})
			dst = append(dst, '[')
			push = true
		case map[string]any:
			if x == nil {
				return nil, &jsonValueError{path(), "is a nil map"}
			}
			if len(x) == 0 {
				dst = append(dst, `{}`...)
				break
			}
			id := identity{reflect.ValueOf(x).Pointer(), -1}
			if open[id] {
				return nil, &jsonValueError{path(), "contains itself"}
			}
			open[id] = true
			stack = append(stack, frameOf{obj: x, keys: jsKeys(x), id: id})
			dst = append(dst, '{')
			push = true
		default:
			if dst, err = appendScalar(dst, v); err != nil {
				return nil, &jsonValueError{path(), err.Error()}
			}
		}
		// On to the next element, closing what is complete.
		for {
			if len(stack) == 0 {
				return dst, nil
			}
			f := &stack[len(stack)-1]
			n := len(f.list)
			if f.obj != nil {
				n = len(f.keys)
			}
			if f.at == n {
				if f.obj != nil {
					dst = append(dst, '}')
				} else {
					dst = append(dst, ']')
				}
				delete(open, f.id)
				stack = stack[:len(stack)-1]
				push = false
				continue
			}
			if !push {
				dst = append(dst, ',')
			}
			f.at++
			if f.obj == nil {
				v = f.list[f.at-1]
				break
			}
			key := f.keys[f.at-1]
			if !isWTF8(key) {
				return nil, &jsonValueError{path(), "has a key that is no text"}
			}
			dst = jsjson.AppendQuote(dst, key)
			dst = append(dst, ':')
			v = f.obj[key]
			break
		}
	}
}

func appendScalar(dst []byte, v any) ([]byte, error) {
	integer := func(n int64) ([]byte, error) {
		if n > jsjson.MaxSafe || n < -jsjson.MaxSafe {
			return nil, fmt.Errorf("is %d, beyond the integers that a double holds exactly", n)
		}
		return strconv.AppendInt(dst, n, 10), nil
	}
	switch x := v.(type) {
	case nil:
		return append(dst, `null`...), nil
	case bool:
		return strconv.AppendBool(dst, x), nil
	case string:
		if !isWTF8(x) {
			return nil, fmt.Errorf("is no text")
		}
		return jsjson.AppendQuote(dst, x), nil
	case float64:
		switch {
		case math.IsNaN(x) || math.IsInf(x, 0):
			return nil, fmt.Errorf("is no finite number")
		case x == 0 && math.Signbit(x):
			return nil, fmt.Errorf("is negative zero")
		}
		return jsjson.AppendNumber(dst, x), nil
	case float32:
		return appendScalar(dst, float64(x))
	case int:
		return integer(int64(x))
	case int8:
		return integer(int64(x))
	case int16:
		return integer(int64(x))
	case int32:
		return integer(int64(x))
	case int64:
		return integer(x)
	case uint8:
		return integer(int64(x))
	case uint16:
		return integer(int64(x))
	case uint32:
		return integer(int64(x))
	case uint:
		return appendScalar(dst, uint64(x))
	case uint64:
		if x > jsjson.MaxSafe {
			return nil, fmt.Errorf("is %d, beyond the integers that a double holds exactly", x)
		}
		return integer(int64(x))
	case json.RawMessage:
		out, facts, err := jsjson.AppendStringify(dst, x)
		if err != nil {
			return nil, fmt.Errorf("is not valid JSON: %w", err)
		}
		if facts&lossy != 0 {
			return nil, fmt.Errorf("is JSON that loses something when it is read: a number or ill-formed text")
		}
		return out, nil
	}
	return nil, fmt.Errorf("is a %T, which JSON has no form for", v)
}

// jsKeys returns the keys of a map in an order that JavaScript could have:
// array indices ascending, then the others.
func jsKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		x, isX := arrayIndex(a)
		y, isY := arrayIndex(b)
		switch {
		case isX && isY:
			return int(x - y)
		case isX:
			return -1
		case isY:
			return 1
		case a < b:
			return -1
		}
		return 1
	})
	return keys
}

// arrayIndex reads a canonical decimal from 0 to 4294967294.
func arrayIndex(s string) (int64, bool) {
	if s == "" || len(s) > 10 || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, n <= 1<<32-2
}

// isWTF8 reports whether a string is text as JavaScript has it: UTF-8, in which
// a surrogate may stand alone.
func isWTF8(s string) bool {
	for i := 0; i < len(s); {
		if s[i] < 0x80 {
			i++
			continue
		}
		n := wtf8Len(s[i])
		if s[i] < 0xc2 || s[i] > 0xf4 || i+n > len(s) {
			return false
		}
		for _, c := range []byte(s[i+1 : i+n]) {
			if c&0xc0 != 0x80 {
				return false
			}
		}
		switch c := s[i+1]; {
		case s[i] == 0xe0 && c < 0xa0, s[i] == 0xf0 && c < 0x90, s[i] == 0xf4 && c > 0x8f:
			return false
		}
		i += n
	}
	return true
}
