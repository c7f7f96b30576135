package jsjson

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	halfHigh = "\xed\xa0\xbd" // U+D83D in WTF-8
	halfLow  = "\xed\xb8\x80" // U+DE00
	smile    = "\U0001F600"   // both
)

func TestKindOf(t *testing.T) {
	for in, want := range map[string]Kind{
		``: Absent, `null`: Null, `true`: Bool, `false`: Bool, `0`: Number, `-1`: Number, `"a"`: String, `""`: String,
		`[]`: Array, `{}`: Object, `"`: Absent, `x`: Absent, ` 1`: Absent,
	} {
		if got := KindOf([]byte(in)); got != want {
			t.Errorf("KindOf(%q) = %v, want %v", in, got, want)
		}
	}
	var names []string
	for k := Absent; k <= Object+1; k++ {
		names = append(names, k.String())
	}
	want := []string{"undefined", "null", "boolean", "number", "string", "array", "object", "undefined"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("kind names (-want +got):\n%s", diff)
	}
}

func TestGet(t *testing.T) {
	obj := `{"a":1,"long key name":"x\"y","b":{"a":[2,{"c":3}]},"\n":4,"\\n":5,"é":6,"\ud83d":7,"":8,"__proto__":9,"z":null}`
	for key, want := range map[string]string{
		"a": `1`, "long key name": `"x\"y"`, "b": `{"a":[2,{"c":3}]}`, "\n": `4`, `\n`: `5`, "é": `6`, halfHigh: `7`,
		"": `8`, "__proto__": `9`, "z": `null`, "c": ``, "A": ``, `\ud83d`: ``,
	} {
		got := Get([]byte(obj), key)
		if string(got) != want || (got == nil) != (want == "") {
			t.Errorf("Get(%q) = %q, want %q", key, got, want)
		}
		if cap(got) != len(got) {
			t.Errorf("Get(%q) has room behind it: an append would write into the object", key)
		}
	}
	for _, v := range []string{``, `null`, `[]`, `["a",1]`, `"a"`, `1`, `{}`} {
		if got := Get([]byte(v), "a"); got != nil {
			t.Errorf("Get of %s = %q, want nil", v, got)
		}
	}
}

func TestFields(t *testing.T) {
	keys := []string{"type", "seq", "time", "data", "x\ny"}
	tests := []struct {
		in     string
		want   [5]string
		others int
	}{
		{`{"type":"a/b","seq":1,"time":2,"data":{"type":3,"l":[{"seq":4}]}}`, [5]string{`"a/b"`, `1`, `2`, `{"type":3,"l":[{"seq":4}]}`}, 0},
		{`{"data":null,"surfaceOp":"append","x\ny":[],"time":2,"seq":1,"type":"t","more":{}}`, [5]string{`"t"`, `1`, `2`, `null`, `[]`}, 2},
		{`{"x\\ny":1}`, [5]string{}, 1},
		{`{}`, [5]string{}, 0},
		{`[{"type":1}]`, [5]string{}, -1},
		{`"type"`, [5]string{}, -1},
	}
	for _, tt := range tests {
		dst := [][]byte{{1}, {1}, {1}, {1}, {1}, {1}}
		var got [5]string
		texts := func() [5]string {
			for i, v := range dst[:5] {
				got[i] = string(v)
				if cap(v) != len(v) {
					t.Errorf("%s: value %d has room behind it", tt.in, i)
				}
				if (v == nil) != (tt.want[i] == "") {
					t.Errorf("%s: value %d is nil: %v", tt.in, i, v == nil)
				}
			}
			return got
		}
		if n := Fields([]byte(tt.in), dst, keys); n != tt.others || texts() != tt.want {
			t.Errorf("Fields(%s) = %d, %q, want %d, %q", tt.in, n, got, tt.others, tt.want)
		}
		for i := range dst {
			dst[i] = []byte{1}
		}
		n, facts, err := CheckFields([]byte(tt.in), dst, keys)
		if n != tt.others || facts != 0 || err != nil || texts() != tt.want {
			t.Errorf("CheckFields(%s) = %d, %b, %v, %q, want %d, %q", tt.in, n, facts, err, got, tt.others, tt.want)
		}
	}
	dst := [][]byte{{1}}
	if n, facts, err := CheckFields([]byte(`{"a": 1}`), dst, []string{"a"}); n != -1 || facts != Whitespace || err != nil || dst[0] != nil {
		t.Errorf("CheckFields of what is not canonical = %d, %b, %v, %q", n, facts, err, dst[0])
	}
	dst = [][]byte{{1}}
	if n, _, err := CheckFields([]byte(`{"a":1`), dst, []string{"a"}); n != -1 || err == nil || dst[0] != nil {
		t.Errorf("CheckFields of what is no JSON = %d, %v, %q", n, err, dst[0])
	}
}

func TestMembersElements(t *testing.T) {
	var got []string
	for k, v := range Members([]byte(`{"a":1,"b,\"":{"x":[1,"}"]},"c":"]"}`)) {
		got = append(got, string(k), string(v))
	}
	if diff := cmp.Diff([]string{`"a"`, `1`, `"b,\""`, `{"x":[1,"}"]}`, `"c"`, `"]"`}, got); diff != "" {
		t.Errorf("Members (-want +got):\n%s", diff)
	}
	got = nil
	arr := []byte(`[1,"a,b",[],[[2],3],{"x":"]"},null,-0.5]`)
	for v := range Elements(arr) {
		got = append(got, string(v))
	}
	if diff := cmp.Diff([]string{`1`, `"a,b"`, `[]`, `[[2],3]`, `{"x":"]"}`, `null`, `-0.5`}, got); diff != "" {
		t.Errorf("Elements (-want +got):\n%s", diff)
	}
	for range Members([]byte(`{"a":1,"b":2}`)) {
		break
	}
	for range Elements(arr) {
		break
	}
	for in, want := range map[string]int{string(arr): 7, `[]`: 0, `{}`: 0, `{"a":1,"b":[1,2,3]}`: 2, `[[]]`: 1, `"abc"`: 0, `12`: 0, `null`: 0, ``: 0} {
		if got := Len([]byte(in)); got != want {
			t.Errorf("Len(%s) = %d, want %d", in, got, want)
		}
	}
	for n, want := range map[int]string{0: `1`, 3: `[[2],3]`, 6: `-0.5`, 7: ``, -1: ``} {
		if got := Index(arr, n); string(got) != want {
			t.Errorf("Index(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestSkip(t *testing.T) {
	b := `[1,"a\\",{"k":"\"}"},true,[],-2e+21]`
	for i, want := range map[int]int{0: len(b), 1: 2, 3: 8, 9: 20, 21: 25, 26: 28, 29: 35, len(b): len(b), len(b) + 5: len(b)} {
		if got := Skip([]byte(b), i); got != want {
			t.Errorf("Skip(%d) = %d, want %d", i, got, want)
		}
	}
}

func TestSafeInt(t *testing.T) {
	for in, want := range map[string]int64{
		`0`: 0, `7`: 7, `-1`: -1, `9007199254740991`: MaxSafe, `-9007199254740991`: -MaxSafe,
	} {
		if got, ok := SafeInt([]byte(in)); got != want || !ok {
			t.Errorf("SafeInt(%s) = %d, %v, want %d", in, got, ok, want)
		}
	}
	for _, in := range []string{``, `-`, `9007199254740992`, `-9007199254740992`, `123456789012345680000`, `1.5`, `1e+21`, `"1"`, `null`, `[]`} {
		if got, ok := SafeInt([]byte(in)); got != 0 || ok {
			t.Errorf("SafeInt(%s) = %d, %v, want none", in, got, ok)
		}
	}
}

func TestFloatBool(t *testing.T) {
	for in, want := range map[string]float64{`0`: 0, `-1.5`: -1.5, `1e+21`: 1e21, `5e-324`: 5e-324} {
		if got, ok := Float([]byte(in)); got != want || !ok {
			t.Errorf("Float(%s) = %g, %v, want %g", in, got, ok, want)
		}
	}
	for _, in := range []string{``, `null`, `"1"`, `[1]`, `-`} {
		if got, ok := Float([]byte(in)); got != 0 || ok {
			t.Errorf("Float(%s) = %g, %v, want none", in, got, ok)
		}
	}
	for in, want := range map[string][2]bool{`true`: {true, true}, `false`: {false, true}, `null`: {}, ``: {}, `"true"`: {}, `1`: {}} {
		if v, ok := BoolOf([]byte(in)); v != want[0] || ok != want[1] {
			t.Errorf("BoolOf(%s) = %v, %v, want %v", in, v, ok, want)
		}
	}
}

func TestStr(t *testing.T) {
	for in, want := range map[string]string{
		`""`: "", `"a"`: "a", `"\"\\\b\f\n\r\t\u0000\u001f"`: "\"\\\b\f\n\r\t\x00\x1f", `"é日` + smile + `"`: "é日" + smile,
		`"\ud83d"`: halfHigh, `"\ude00x\ud83d"`: halfLow + "x" + halfHigh, `"\\ud83d"`: `\ud83d`,
	} {
		if got, ok := Str([]byte(in)); got != want || !ok {
			t.Errorf("Str(%s) = %q, %v, want %q", in, got, ok, want)
		}
		if got := string(AppendStr([]byte("x"), []byte(in))); got != "x"+want {
			t.Errorf("AppendStr(%s) = %q, want %q", in, got, "x"+want)
		}
		if !StrEq([]byte(in), want) {
			t.Errorf("StrEq(%s, %q) = false", in, want)
		}
		if StrEq([]byte(in), want+"x") || want != "" && StrEq([]byte(in), want[1:]) {
			t.Errorf("StrEq(%s) equals another string", in)
		}
		if got := string(AppendQuote([]byte("x"), want)); got != "x"+in {
			t.Errorf("AppendQuote(%q) = %s, want x%s", want, got, in)
		}
	}
	for _, in := range []string{``, `null`, `1`, `[]`, `"`} {
		if got, ok := Str([]byte(in)); got != "" || ok || StrEq([]byte(in), "") {
			t.Errorf("Str(%s) = %q, %v, want none", in, got, ok)
		}
	}
	// The raw content equals the string, what it says does not.
	if StrEq([]byte(`"\n"`), `\n`) {
		t.Error(`StrEq("\n") takes the escape for two characters`)
	}
	if got := string(AppendStr([]byte(halfHigh), []byte(`"\ude00!"`))); got != smile+"!" {
		t.Errorf("AppendStr does not join halves: %q", got)
	}
}

func TestConcat(t *testing.T) {
	tests := []struct {
		parts []string
		want  string
		json  string
	}{
		{nil, "", `""`},
		{[]string{"", "a", ""}, "a", `"a"`},
		{[]string{"a", "b", "c"}, "abc", `"abc"`},
		{[]string{halfHigh, halfLow}, smile, `"` + smile + `"`},
		{[]string{"a" + halfHigh, "", halfLow + "b"}, "a" + smile + "b", `"a` + smile + `b"`},
		{[]string{halfLow, halfHigh}, halfLow + halfHigh, `"\ude00\ud83d"`},
		{[]string{halfHigh, halfHigh, halfLow, halfLow}, halfHigh + smile + halfLow, `"\ud83d` + smile + `\ude00"`},
		{[]string{halfHigh, "x"}, halfHigh + "x", `"\ud83dx"`},
		{[]string{halfHigh, "\n"}, halfHigh + "\n", `"\ud83d\n"`},
		{[]string{`\ud83d`, halfLow}, `\ud83d` + halfLow, `"\\ud83d\ude00"`},
		{[]string{`\`, halfHigh, halfLow}, `\` + smile, `"\\` + smile + `"`},
	}
	for _, tt := range tests {
		if got := Concat(tt.parts...); got != tt.want {
			t.Errorf("Concat(%q) = %q, want %q", tt.parts, got, tt.want)
		}
		if got := string(AppendString([]byte("x"), tt.parts...)); got != "x"+tt.json {
			t.Errorf("AppendString(%q) = %s, want x%s", tt.parts, got, tt.json)
		}
		raw := []byte(`"`)
		for _, p := range tt.parts {
			raw = AppendContent(raw, AppendQuote(nil, p))
		}
		if raw = append(raw, '"'); string(raw) != tt.json {
			t.Errorf("AppendContent of %q = %s, want %s", tt.parts, raw, tt.json)
		}
	}
	if got := string(AppendContent([]byte("x"), []byte("12"))); got != "x" {
		t.Errorf("AppendContent of a number = %q", got)
	}
	// Not WTF-8: the halves stand together, or the bytes are no text at all.
	for in, want := range map[string]string{
		halfHigh + halfLow: `"` + smile + `"`, "a\xffb\xe2\x82c": "\"a\ufffdb\ufffdc\"", halfHigh + "\xff": "\"\\ud83d\ufffd\"",
	} {
		if got := string(AppendQuote(nil, in)); got != want {
			t.Errorf("AppendQuote(%q) = %s, want %s", in, got, want)
		}
	}
}

// Every code unit, alone between two letters, through all ways.
func TestEveryCodeUnit(t *testing.T) {
	var escaped, lone int
	for u := rune(0); u < 0x10000; u++ {
		text := string(append(appendUnit([]byte("a"), u), 'z'))
		token := AppendQuote(nil, text)
		form := []byte{'"', 'a', '\\', 'u', hexDigits[u>>12], hexDigits[u>>8&15], hexDigits[u>>4&15], hexDigits[u&15], 'z', '"'}
		got, _, err := Stringify(form)
		if err != nil || string(got) != string(token) {
			t.Fatalf("Stringify(%s) = %s, %v, AppendQuote gives %s", form, got, err, token)
		}
		facts, err := Check(token)
		if err != nil || !facts.Canonical() {
			t.Fatalf("AppendQuote(%q) = %s: Check = %b, %v", text, token, facts, err)
		}
		if back, ok := Str(token); back != text || !ok {
			t.Fatalf("Str(%s) = %q, %v, want %q", token, back, ok, text)
		}
		if n := UTF16Len(text); n != 3 {
			t.Fatalf("UTF16Len(%q) = %d, want 3", text, n)
		}
		if string(token) != `"`+text+`"` {
			escaped++
		}
		if facts == LoneSurrogate {
			lone++
		}
	}
	if escaped != 32+2+2048 || lone != 2048 {
		t.Errorf("%d escaped, %d lone, want 2082, 2048", escaped, lone)
	}
}

func TestEqual(t *testing.T) {
	tests := []struct {
		a, b string
		want bool
	}{
		{``, ``, true}, {``, `null`, false}, {`null`, `null`, true}, {`1`, `2`, false}, {`"a"`, `"b"`, false},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, true},
		{`{"a":1,"b":2}`, `{"b":1,"a":2}`, false},
		{`[1,2]`, `[2,1]`, false},
		{`[{"a":[{"x":1,"y":2}],"b":0}]`, `[{"b":0,"a":[{"y":2,"x":1}]}]`, true},
		{`[{"a":[{"x":1,"y":2}],"b":0}]`, `[{"b":0,"a":[{"y":1,"x":2}]}]`, false},
		{`{"a":{"a":1,"b":2},"b":{}}`, `{"b":{},"a":{"b":2,"a":1}}`, true},
		{`{"a":1}`, `[1,"a"]`, false},
		{`{"a":1}`, `{"a"}1}`, false},
		{`[[[1]]}`, `[[1]]]}`, false},
	}
	for _, tt := range tests {
		for range 2 {
			if got := Equal([]byte(tt.a), []byte(tt.b)); got != tt.want {
				t.Errorf("Equal(%s, %s) = %v, want %v", tt.a, tt.b, got, tt.want)
			}
			tt.a, tt.b = tt.b, tt.a
		}
	}
}

func TestText(t *testing.T) {
	for in, want := range map[string]int{"": 0, "abc": 3, "é日": 2, smile: 2, halfHigh: 1, halfLow + halfHigh: 2, "a" + smile + "\u2028": 4} {
		if got := UTF16Len(in); got != want {
			t.Errorf("UTF16Len(%q) = %d, want %d", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"": "", " \t\n\v\f\r": "", "\ufeff a\u00a0b \u2028\u2029": "a\u00a0b", "\u1680\u2000\u200a\u202f\u205f\u3000x": "x",
		"\u200bx\u0085": "\u200bx\u0085", "\u180ex": "\u180ex", " " + halfHigh + " ": halfHigh, "a b": "a b",
	} {
		if got := TrimJS(in); got != want {
			t.Errorf("TrimJS(%q) = %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"": "", "abc é 日 " + smile: "abc é 日 " + smile, "\ufeffx": "\ufeffx",
		"a\xc0\x80b": "a\ufffd\ufffdb", "\xe2\x82": "\ufffd", "\xf0\x9f\x98": "\ufffd", "\xf0\x9f\xf0\x9f\x98\x80": "\ufffd" + smile,
		"\xe0\x80\x80": "\ufffd\ufffd\ufffd", "\xf5\x80": "\ufffd\ufffd", "\xf0\x8f\x80": "\ufffd\ufffd\ufffd", "\xc2": "\ufffd", "\xc2\xc2\xa9": "\ufffd©",
	} {
		if got := string(ReplaceBadUTF8([]byte("x"), []byte(in))); got != "x"+want {
			t.Errorf("ReplaceBadUTF8(%q) = %q, want %q", in, got, "x"+want)
		}
	}
}
