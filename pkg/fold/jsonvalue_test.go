package fold

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

func TestIsJSONValue(t *testing.T) {
	var list []any
	list = append(list, 1, nil)
	list[1] = list
	loop := map[string]any{}
	loop["a"] = []any{map[string]any{"b": loop}}
	shared := map[string]any{"x": 1}
	var deep any
	for range 1 << 17 {
		deep = []any{deep}
	}
	for _, tc := range []struct {
		name string
		v    any
		want string // the bytes, or why not behind "!"
	}{
		{"null", nil, `null`},
		{"true", true, `true`},
		{"text", "a\"\u2028\xed\xa0\xbd", `"a\"` + "\u2028" + `\ud83d"`},
		{"halves that meet", "\xed\xa0\xbe\xed\xb7\xad", `"` + "\U0001F9ED" + `"`},
		{"zero", 0.0, `0`},
		{"float", 1e21, `1e+21`},
		{"float32", float32(0.5), `0.5`},
		{"largest integer", int64(1<<53 - 1), `9007199254740991`},
		{"smallest integer", -(1<<53 - 1), `-9007199254740991`},
		{"unsigned", uint64(7), `7`},
		{"empty", []any{[]any{}, map[string]any{}}, `[[],{}]`},
		{"key order", map[string]any{"b": 1, "10": 2, "a": 3, "2": 4, "02": 5, "4294967295": 6}, `{"2":4,"10":2,"02":5,"4294967295":6,"a":3,"b":1}`},
		{"nested", []any{map[string]any{"a": []any{1, "x"}, "b": nil}, false}, `[{"a":[1,"x"],"b":null},false]`},
		{"the same value twice", []any{shared, shared}, `[{"x":1},{"x":1}]`},
		{"raw", json.RawMessage(` { "b" : 1.0 , "a" : "\u0041" } `), `{"b":1,"a":"A"}`},
		{"raw inside", []any{json.RawMessage(`"\ud83d"`)}, `["\ud83d"]`},

		{"not a number", math.NaN(), "!the value is no finite number"},
		{"infinity", []any{1, math.Inf(1)}, "![1] is no finite number"},
		{"negative zero", map[string]any{"a": []any{math.Copysign(0, -1)}}, `!."a"[0] is negative zero`},
		{"beyond the integers", 1 << 53, "!the value is 9007199254740992, beyond the integers that a double holds exactly"},
		{"beyond the integers, unsigned", uint64(1 << 63), "!the value is 9223372036854775808, beyond the integers that a double holds exactly"},
		{"no text", "a\xff", "!the value is no text"},
		{"overlong", "\xc0\x80", "!the value is no text"},
		{"half of a rune", "\xe2\x80", "!the value is no text"},
		{"beyond Unicode", "\xf4\x90\x80\x80", "!the value is no text"},
		{"key that is no text", map[string]any{"\xff": 1}, `!."\xff" has a key that is no text`},
		{"list in itself", list, "![1] contains itself"},
		{"map in itself", loop, `!."a"[0]."b" contains itself`},
		{"nil map", map[string]any(nil), "!the value is a nil map"},
		{"typed list", []int{1}, "!the value is a []int, which JSON has no form for"},
		{"typed map", map[string]string{}, "!the value is a map[string]string, which JSON has no form for"},
		{"struct", struct{ A int }{}, "!the value is a struct { A int }, which JSON has no form for"},
		{"date", time.Time{}, "!the value is a time.Time, which JSON has no form for"},
		{"number as text", json.Number("1"), "!the value is a json.Number, which JSON has no form for"},
		{"bytes", []byte("1"), "!the value is a []uint8, which JSON has no form for"},
		{"complex", 1i, "!the value is a complex128, which JSON has no form for"},
		{"raw overflow", json.RawMessage(`1e999`), "!the value is JSON that loses something when it is read: a number or ill-formed text"},
		{"raw negative zero", json.RawMessage(`[-0.0]`), "!the value is JSON that loses something when it is read: a number or ill-formed text"},
		{"raw loss", json.RawMessage(`9007199254740993`), "!the value is JSON that loses something when it is read: a number or ill-formed text"},
		{"raw bad text", json.RawMessage("\"\xff\""), "!the value is JSON that loses something when it is read: a number or ill-formed text"},
	} {
		b, err := appendJSONValue([]byte("x"), tc.v)
		got := strings.TrimPrefix(string(b), "x")
		if err != nil {
			got = "!" + err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
		if ok := IsJSONValue(tc.v); ok != !strings.HasPrefix(tc.want, "!") {
			t.Errorf("%s: IsJSONValue = %v", tc.name, ok)
		}
		if err == nil && !jsjson.Canonical(b[1:]) {
			t.Errorf("%s: not canonical: %s", tc.name, b)
		}
	}
	if !IsJSONValue(deep) {
		t.Error("a deep value is refused")
	}
	if b, err := appendJSONValue(nil, json.RawMessage(`{"a"`)); err == nil || IsJSONValue(json.RawMessage(``)) {
		t.Errorf("broken JSON gives %s", b)
	}
}
