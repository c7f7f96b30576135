package jsjson

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestFacts(t *testing.T) {
	tests := []struct {
		in    string
		out   string // "" if the same
		facts Facts
	}{
		{in: `null`},
		{in: `[]`},
		{in: `{"a":[1,-1,0.5,1e+21,1e-7,true,false,null,"x"],"b":{}}`},
		{in: ` 1`, out: `1`, facts: Whitespace},
		{in: "1\r", out: `1`, facts: Whitespace},
		{in: `[1, 2]`, out: `[1,2]`, facts: Whitespace},
		{in: `{ }`, out: `{}`, facts: Whitespace},
		{in: `[ ]`, out: `[]`, facts: Whitespace},
		{in: `{"a" :1}`, out: `{"a":1}`, facts: Whitespace},
		{in: `{"a": 1}`, out: `{"a":1}`, facts: Whitespace},
		{in: `{ "a":1}`, out: `{"a":1}`, facts: Whitespace},
		{in: `{"a":1 }`, out: `{"a":1}`, facts: Whitespace},
		{in: `{"a":1, "b":2}`, out: `{"a":1,"b":2}`, facts: Whitespace},

		{in: `{"0":1,"9":1,"10":1,"4294967294":1,"4294967295":1,"a":1,"01":1,"-0":1,"1.5":1}`},
		{in: `{"b":1,"10":2,"9":3}`, out: `{"9":3,"10":2,"b":1}`, facts: KeyOrder},
		{in: `{"a":1,"4294967294":2}`, out: `{"4294967294":2,"a":1}`, facts: KeyOrder},
		{in: `{"":1,"0":2}`, out: `{"0":2,"":1}`, facts: KeyOrder},
		{in: `{"a":1,"4294967295":2,"00":3,"99999999999":4}`},
		{in: `{"a":{"x":{"b":1,"1":2}},"c":[{"b":1,"1":2}]}`, out: `{"a":{"x":{"1":2,"b":1}},"c":[{"1":2,"b":1}]}`, facts: KeyOrder},
		{in: `{"x":{"a":1},"1":{"b":2,"0":3}}`, out: `{"1":{"0":3,"b":2},"x":{"a":1}}`, facts: KeyOrder},
		{in: `{"b":1,"\u0031":2}`, out: `{"1":2,"b":1}`, facts: KeyOrder | EscapeForm},
		{in: `{"2":1,"\u0031":2}`, out: `{"1":2,"2":1}`, facts: KeyOrder | EscapeForm},
		{in: `{"\u0032":1,"1":2}`, out: `{"1":2,"2":1}`, facts: KeyOrder | EscapeForm},

		{in: `{"a":1,"b":2,"a":3}`, out: `{"a":3,"b":2}`, facts: DuplicateKey},
		{in: `{"a":{"a":1},"b":{"a":1}}`},
		{in: `[{"a":1},{"a":1}]`},
		{in: `{"type":1,"\u0074ype":2}`, out: `{"type":2}`, facts: DuplicateKey | EscapeForm},
		{in: `{"\n":1,"\u000a":2}`, out: `{"\n":2}`, facts: DuplicateKey | EscapeForm},
		{in: `{"\u000A":1,"\n":2}`, out: `{"\n":2}`, facts: DuplicateKey | EscapeForm},
		{in: `{"\ud800":1,"\uD800":2}`, out: `{"\ud800":2}`, facts: DuplicateKey | EscapeForm | LoneSurrogate},
		{in: "{\"\xff\":1,\"\xfe\":2,\"\ufffd\":3}", out: `{"` + "\ufffd" + `":3}`, facts: DuplicateKey | BadUTF8},
		{in: `{"argumentsDelta":1,"argumentsDelta":2}`, out: `{"argumentsDelta":2}`, facts: DuplicateKey},
		{in: `{"1":1,"1":2}`, out: `{"1":2}`, facts: DuplicateKey},
		{in: `{"__proto__":1,"__proto__":{"x":1}}`, out: `{"__proto__":{"x":1}}`, facts: DuplicateKey},
		{in: `{"":1,"":2}`, out: `{"":2}`, facts: DuplicateKey},

		{in: `1.0`, out: `1`, facts: NumberForm},
		{in: `0.0`, out: `0`, facts: NumberForm},
		{in: `0e99999999999999999999`, out: `0`, facts: NumberForm},
		{in: `1E2`, out: `100`, facts: NumberForm},
		{in: `0.10`, out: `0.1`, facts: NumberForm},
		{in: `1e21`, out: `1e+21`, facts: NumberForm},
		{in: `1000000000000000000000`, out: `1e+21`, facts: NumberForm},
		{in: `0.0000001`, out: `1e-7`, facts: NumberForm},
		{in: `123456789012345680000`},
		{in: `9007199254740992`},
		{in: `-9007199254740991`},
		{in: `5e-324`},
		{in: `1.7976931348623157e+308`},
		{in: `9007199254740993`, out: `9007199254740992`, facts: NumberLoss},
		{in: `123456789012345678901`, out: `123456789012345680000`, facts: NumberLoss},
		{in: `0.1000000000000000055511151231257827`, out: `0.1`, facts: NumberLoss},
		{in: `0.30000000000000001`, out: `0.3`, facts: NumberLoss},
		{in: `2e-324`, out: `0`, facts: NumberLoss},
		{in: `1e-400`, out: `0`, facts: NumberLoss},
		{in: `3e-324`, out: `5e-324`, facts: NumberLoss},
		{in: `-1e-400`, out: `0`, facts: NumberLoss | NegativeZero},
		{in: `1e400`, out: `null`, facts: NumberOverflow},
		{in: `-1e400`, out: `null`, facts: NumberOverflow},
		{in: `1e99999999999999999999`, out: `null`, facts: NumberOverflow},
		{in: `-0`, out: `0`, facts: NegativeZero},
		{in: `-0.0e7`, out: `0`, facts: NegativeZero},
		{in: `[-0,1.0,1e400]`, out: `[0,1,null]`, facts: NegativeZero | NumberForm | NumberOverflow},
		// A long mantissa that the exponent brings back.
		{in: `0.` + strings.Repeat("0", 200000) + `1e200001`, out: `1`, facts: NumberForm},
		{in: `1` + strings.Repeat("0", 200000) + `e-200001`, out: `0.1`, facts: NumberForm},
		{in: `1` + strings.Repeat("0", 200000) + `e-199000`, out: `null`, facts: NumberOverflow},
		{in: `0.` + strings.Repeat("0", 9998) + `1e9999`, out: `1`, facts: NumberForm},
		{in: `25e-00306`, out: `2.5e-305`, facts: NumberForm},
		{in: `25e+00304`, out: `2.5e+305`, facts: NumberForm},
		{in: `25e-00999`, out: `0`, facts: NumberLoss},
		{in: `-25e+00999`, out: `null`, facts: NumberOverflow},
		{in: `7e00000000000000000000000000`, out: `7`, facts: NumberForm},

		{in: `"\"\\\b\f\n\r\t\u0000\u000b\u001f` + "\x7f\u2028\u2029\ufeff<>&/" + `"`},
		{in: `"\/"`, out: `"/"`, facts: EscapeForm},
		{in: `"\u0041"`, out: `"A"`, facts: EscapeForm},
		{in: `"\u000a"`, out: `"\n"`, facts: EscapeForm},
		{in: `"\u001F"`, out: `"\u001f"`, facts: EscapeForm},
		{in: `"\u0022\u005c"`, out: `"\"\\"`, facts: EscapeForm},
		{in: `"\u007f"`, out: "\"\x7f\"", facts: EscapeForm},
		{in: `"\ud83d\ude00"`, out: `"` + "\U0001F600" + `"`, facts: EscapeForm},
		{in: `"\ud83d"`, facts: LoneSurrogate},
		{in: `"\ude00\ud83d"`, facts: LoneSurrogate},
		{in: `"\ud83d\ud83d\ude00"`, out: `"\ud83d` + "\U0001F600" + `"`, facts: LoneSurrogate | EscapeForm},
		{in: `"\ud83dx\ude00"`, facts: LoneSurrogate},
		{in: `"\ud83d\\ude00"`, facts: LoneSurrogate},
		{in: `"\uD83D"`, out: `"\ud83d"`, facts: LoneSurrogate | EscapeForm},

		{in: "\"\xed\xa0\x80\"", out: "\"\ufffd\ufffd\ufffd\"", facts: BadUTF8},
		{in: "\"\xed\xa0\xbd\xed\xb8\x80\"", out: "\"\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\"", facts: BadUTF8},
		{in: "\"\xe2\x82A\"", out: "\"\ufffdA\"", facts: BadUTF8},
		{in: "\"\xe2\x82\"", out: "\"\ufffd\"", facts: BadUTF8},
		{in: "\"\xf4\x90\x80\x80\"", out: "\"\ufffd\ufffd\ufffd\ufffd\"", facts: BadUTF8},
		{in: `"\ud83d` + "\xed\xb8\x80" + `"`, out: `"\ud83d` + "\ufffd\ufffd\ufffd" + `"`, facts: LoneSurrogate | BadUTF8},
	}
	for _, tt := range tests {
		name := tt.in
		if len(name) > 40 {
			name = name[:40]
		}
		t.Run(name, func(t *testing.T) {
			in := []byte(tt.in)
			want := tt.out
			if want == "" {
				want = tt.in
			}
			facts, err := Check(in)
			if err != nil || facts != tt.facts {
				t.Errorf("Check = %b, %v, want %b", facts, err, tt.facts)
			}
			got, facts, err := Stringify(in)
			if string(got) != want || facts != tt.facts || err != nil {
				t.Errorf("Stringify = %.80q, %b, %v, want %.80q, %b", got, facts, err, want, tt.facts)
			}
			if same := &got[0] == &in[0]; same != (tt.out == "") {
				t.Errorf("Stringify returned its input: %v", same)
			}
			app, facts, err := AppendStringify([]byte("x"), in)
			if string(app) != "x"+want || facts != tt.facts || err != nil {
				t.Errorf("AppendStringify = %.80q, %b, %v, want %.80q", app, facts, err, "x"+want)
			}
			if got := Canonical(in); got != (tt.out == "") {
				t.Errorf("Canonical = %v", got)
			}
			if !Canonical([]byte(want)) {
				t.Errorf("the canonical form %.80q is not canonical", want)
			}
		})
	}
}

func TestSyntaxError(t *testing.T) {
	tests := []struct {
		in     string
		offset int
		want   string
		got    string
	}{
		{"", 0, "value", "end of input"},
		{" \t", 2, "value", "end of input"},
		{"\ufeff1", 0, "value", "U+FEFF"},
		{"\xff", 0, "value", "0xff"},
		{"'a'", 0, "value", `"'"`},
		{"nul", 3, "null", "end of input"},
		{"nulx", 3, "null", "'x'"},
		{"tRue", 1, "true", "'R'"},
		{"falsy", 4, "false", "'y'"},
		{"nulll", 4, "end of input", "'l'"},
		{"NaN", 0, "value", "'N'"},
		{"+1", 0, "value", "'+'"},
		{".5", 0, "value", "'.'"},
		{"01", 1, "end of input", "'1'"},
		{"-01", 2, "end of input", "'1'"},
		{"-", 1, "digit", "end of input"},
		{"-x", 1, "digit", "'x'"},
		{"1.", 2, "digit", "end of input"},
		{"1.e5", 2, "digit", "'e'"},
		{"1e", 2, "digit", "end of input"},
		{"1e+", 3, "digit", "end of input"},
		{"1e+x", 3, "digit", "'x'"},
		{"1 2", 2, "end of input", "'2'"},
		{"1,", 1, "end of input", "','"},
		{"[]]", 2, "end of input", "']'"},
		{"[", 1, "value or ']'", "end of input"},
		{"[ ", 2, "value or ']'", "end of input"},
		{"[,", 1, "value or ']'", "','"},
		{"[1", 2, "',' or ']'", "end of input"},
		{"[1 2]", 3, "',' or ']'", "'2'"},
		{"[1}", 2, "',' or ']'", "'}'"},
		{"[1,]", 3, "value", "']'"},
		{"[1,", 3, "value", "end of input"},
		{"[1,,2]", 3, "value", "','"},
		{"{", 1, "key or '}'", "end of input"},
		{"{ ", 2, "key or '}'", "end of input"},
		{"{1:2}", 1, "key or '}'", "'1'"},
		{"{a", 1, "key or '}'", "'a'"},
		{`{"a"}`, 4, "':'", "'}'"},
		{`{"a" `, 5, "':'", "end of input"},
		{`{"a":`, 5, "value", "end of input"},
		{`{"a":}`, 5, "value", "'}'"},
		{`{"a":1`, 6, "',' or '}'", "end of input"},
		{`{"a":1]`, 6, "',' or '}'", "']'"},
		{`{"a":1 "b"`, 7, "',' or '}'", "'\"'"},
		{`{"a":1,}`, 7, "key", "'}'"},
		{`{"a":1, `, 8, "key", "end of input"},
		{`{"a":1,2`, 7, "key", "'2'"},
		{`"`, 1, `'"'`, "end of input"},
		{`"abcdefghi`, 10, `'"'`, "end of input"},
		{`"\`, 2, "escape character", "end of input"},
		{`"\x41"`, 2, "escape character", "'x'"},
		{`"\u`, 3, "hex digit", "end of input"},
		{`"\u00g0"`, 5, "hex digit", "'g'"},
		{`"\ud83d\u"`, 9, "hex digit", "'\"'"},
		{`"\ud83d\x"`, 8, "escape character", "'x'"},
		{"\"\t\"", 1, "string character", "0x09"},
		{"\"abcdefghij\x00\"", 11, "string character", "0x00"},
		{"[1]\x1b", 3, "end of input", "0x1b"},
		{"[1]\x7f", 3, "end of input", "0x7f"},
		{"[\xe2\x82]", 1, "value", "0xe2"},
		{"{\"a\xff\":1,\"b\":\xff}", 12, "value", "0xff"},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			want := &SyntaxError{tt.offset, tt.want, tt.got}
			_, err := Check([]byte(tt.in))
			var got *SyntaxError
			if !errors.As(err, &got) {
				t.Fatalf("Check: %v, want a *SyntaxError", err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Check (-want +got):\n%s", diff)
			}
			text := fmt.Sprintf("offset %d: expected %s, found %s", tt.offset, tt.want, tt.got)
			if err.Error() != text {
				t.Errorf("Error() = %q, want %q", err, text)
			}
			out, _, err := Stringify([]byte(tt.in))
			if out != nil || !errors.As(err, &got) || *got != *want {
				t.Errorf("Stringify = %q, %v", out, err)
			}
			out, _, err = AppendStringify([]byte("keep"), []byte(tt.in))
			if string(out) != "keep" || !errors.As(err, &got) || *got != *want {
				t.Errorf("AppendStringify = %q, %v", out, err)
			}
			if Canonical([]byte(tt.in)) {
				t.Error("Canonical = true")
			}
		})
	}
}

// TestSpec runs the vectors of the format description. Where V8 names a
// position in its message, ours is the same.
func TestSpec(t *testing.T) {
	b, err := os.ReadFile("testdata/spec.json")
	if err != nil {
		t.Fatal(err)
	}
	b, _, err = Stringify(b)
	if err != nil {
		t.Fatal(err)
	}
	position := regexp.MustCompile(`at position (\d+) `)
	var ok, bad, positions int
	for v := range Elements(Get(b, "jsonReserialize")) {
		in, _ := Str(Get(v, "in"))
		got, _, err := Stringify([]byte(in))
		if want, is := Str(Get(v, "ok")); is {
			ok++
			if err != nil || string(got) != want {
				t.Errorf("Stringify(%q) = %q, %v, want %q", in, got, err, want)
			}
			continue
		}
		bad++
		message, _ := Str(Get(v, "err"))
		var syntax *SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("Stringify(%q) = %q, %v, want %s", in, got, err, message)
			continue
		}
		if m := position.FindStringSubmatch(message); m != nil {
			positions++
			if want, _ := strconv.Atoi(m[1]); syntax.Offset != want {
				t.Errorf("Stringify(%q): %v, want offset %d", in, err, want)
			}
		}
	}
	if ok != 21 || bad != 5 || positions != 3 {
		t.Errorf("jsonReserialize: %d accepted, %d refused, %d positions, want 21, 5, 3", ok, bad, positions)
	}
	n := 0
	for v := range Elements(Get(b, "utf8Replace")) {
		n++
		var in []byte
		for e := range Elements(Get(v, "bytes")) {
			c, _ := SafeInt(e)
			in = append(in, byte(c))
		}
		want, _ := Str(Get(v, "decoded"))
		if got := ReplaceBadUTF8(nil, in); string(got) != want {
			t.Errorf("ReplaceBadUTF8(%q) = %q, want %q", in, got, want)
		}
		if got, facts, err := Stringify(in); string(got) != want || facts != BadUTF8 || err != nil {
			t.Errorf("Stringify(%q) = %q, %b, %v, want %q", in, got, facts, err, want)
		}
	}
	if n != 5 {
		t.Errorf("utf8Replace: %d vectors, want 5", n)
	}
}

func TestLogIsCanonical(t *testing.T) {
	lines := logLines(t)
	if len(lines) != 67 {
		t.Errorf("%d lines, want 67", len(lines))
	}
	for i, l := range lines {
		if facts, err := Check(l); facts != 0 || err != nil {
			t.Errorf("line %d: Check = %b, %v", i+1, facts, err)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	line := wideLines()[0]
	keys := []string{"type", "seq", "time", "data", "surfaceOp"}
	number := []byte("-1.7976931348623157e+308")
	var dst [5][]byte
	buf := make([]byte, 0, 4096)
	for name, f := range map[string]func(){
		"Check":           func() { Check(line) },
		"Canonical":       func() { Canonical(line) },
		"Stringify":       func() { Stringify(line) },
		"AppendStringify": func() { AppendStringify(buf[:0], line) },
		"CheckFields":     func() { CheckFields(line, dst[:], keys) },
		"Fields":          func() { Fields(line, dst[:], keys) },
		"Get":             func() { Get(Get(line, "data"), "message") },
		"Members": func() {
			for range Members(line) {
			}
		},
		"StrEq":  func() { StrEq(Get(line, "type"), "assistant/message") },
		"Number": func() { Check(number) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}

// Nesting takes memory, not stack, and no more than linear time.
func TestDeep(t *testing.T) {
	const levels = 1_000_000
	arrays := []byte(strings.Repeat("[", levels) + strings.Repeat("]", levels))
	objects := []byte(strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels))
	for name, b := range map[string][]byte{"arrays": arrays, "objects": objects} {
		got, facts, err := Stringify(b)
		if facts != 0 || err != nil || &got[0] != &b[0] {
			t.Errorf("%s: Stringify = %b, %v", name, facts, err)
		}
		if end := Skip(b, 0); end != len(b) {
			t.Errorf("%s: Skip = %d, want %d", name, end, len(b))
		}
		if n := Len(b); n != 1 {
			t.Errorf("%s: Len = %d, want 1", name, n)
		}
	}
	_, err := Check(arrays[:len(arrays)-1])
	if want := "offset 1999999: expected ',' or ']', found end of input"; err == nil || err.Error() != want {
		t.Errorf("Check of unclosed arrays: %v, want %s", err, want)
	}

	// Every object has to be rearranged.
	const depth = 200_000
	objects = []byte(strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth))
	in := []byte(strings.Repeat(`{"b":0,"1":`, depth) + "1" + strings.Repeat("}", depth))
	want := strings.Repeat(`{"1":`, depth) + "1" + strings.Repeat(`,"b":0}`, depth)
	got, facts, err := Stringify(in)
	if string(got) != want || facts != KeyOrder || err != nil {
		t.Errorf("Stringify of %d objects to rearrange: %b, %v, %.60q", depth, facts, err, got)
	}
	in = []byte(strings.Repeat(`{"a":0,"a":`, depth) + "1" + strings.Repeat("}", depth))
	got, facts, err = Stringify(in)
	if !bytes.Equal(got, objects) || facts != DuplicateKey || err != nil {
		t.Errorf("Stringify of %d objects with duplicates: %b, %v, %.60q", depth, facts, err, got)
	}

	x := []byte(strings.Repeat(`{"a":0,"b":`, depth) + "1" + strings.Repeat("}", depth))
	y := []byte(strings.Repeat(`{"b":`, depth) + "1" + strings.Repeat(`,"a":0}`, depth))
	if !Equal(x, y) {
		t.Error("Equal of two orders = false")
	}
	y[len(y)-3] = '2'
	if Equal(x, y) {
		t.Error("Equal of different values = true")
	}
}

func TestManyKeys(t *testing.T) {
	object := func(n int, key func(i int) string, last string) []byte {
		b := []byte("{")
		for i := range n {
			b = fmt.Appendf(b, `%s:%d,`, key(i), i)
		}
		return append(b, last+":true}"...)
	}
	long := strings.Repeat("k", 40)
	word := func(i int) string { return fmt.Sprintf(`"%s%d"`, long, i) }
	for _, n := range []int{1, 22, 23, 24, 63, 64, 65, 66, 100_000} {
		b := object(n, word, `"end"`)
		if facts, err := Check(b); facts != 0 || err != nil {
			t.Errorf("%d keys: Check = %b, %v", n, facts, err)
		}
		if got := Len(b); got != n+1 {
			t.Errorf("%d keys: Len = %d", n, got)
		}
		for _, i := range []int{0, n / 2, n - 1} {
			dup := object(n, word, word(i))
			if facts, err := Check(dup); facts != DuplicateKey || err != nil {
				t.Errorf("%d keys, duplicate of %d: Check = %b, %v", n, i, facts, err)
			}
			escaped := object(n, word, strings.Replace(word(i), "k", `\u006b`, 1))
			if facts, err := Check(escaped); facts != DuplicateKey|EscapeForm || err != nil {
				t.Errorf("%d keys, escaped duplicate of %d: Check = %b, %v", n, i, facts, err)
			}
			got, _, err := Stringify(escaped)
			want := bytes.Replace(object(n, word, `"end"`), []byte(`,"end":true`), nil, 1)
			want = bytes.Replace(want, fmt.Appendf(nil, "%s:%d", word(i), i), []byte(word(i)+":true"), 1)
			if !bytes.Equal(got, want) || err != nil {
				t.Errorf("%d keys, escaped duplicate of %d: Stringify = %.90q, %v, want %.90q", n, i, got, err, want)
			}
		}
	}
	down := object(100_000, func(i int) string { return strconv.Quote(strconv.Itoa(100_000 - i)) }, `"0"`)
	got, facts, err := Stringify(down)
	if facts != KeyOrder || err != nil || !bytes.HasPrefix(got, []byte(`{"0":true,"1":99999,"2":99998,`)) || len(got) != len(down) {
		t.Errorf("descending keys: %.60q, %b, %v", got, facts, err)
	}
}

// The quick test for a sequence agrees with the exact one.
func TestWellFormed(t *testing.T) {
	good := 0
	for lead := 0x80; lead < 0x100; lead++ {
		for second := range 0x100 {
			for _, third := range []byte{0x00, 0x7F, 0x80, 0xBF, 0xC0, 0xFF} {
				for _, fourth := range []byte{0x00, 0x7F, 0x80, 0xBF, 0xC0, 0xFF} {
					b := []byte{byte(lead), byte(second), third, fourth}
					want, ok := sequence(b, 0)
					if valid := utf8.FullRune(b) && utf8.Valid(b[:want]); valid != ok {
						t.Fatalf("sequence(%x) = %d, %v", b, want, ok)
					}
					if ok {
						good++
					} else {
						want = 0
					}
					if got := wellFormed(binary.LittleEndian.Uint32(b)); got != want {
						t.Fatalf("wellFormed(%x) = %d, want %d", b, got, want)
					}
				}
			}
		}
	}
	// 30 leads of two bytes with 64, 16 of three with 64 but E0 and ED with 32,
	// five of four bytes: F0 with 48, F1 to F3 with 64, F4 with 16.
	if want := 30*64*36 + (14*64+2*32)*2*6 + (48+3*64+16)*4; good != want {
		t.Errorf("%d well-formed, want %d", good, want)
	}
}

// Every byte at every place of a word, and of a string.
func TestSpecial(t *testing.T) {
	for c := range 0x100 {
		stops := c < 0x20 || c == '"' || c == '\\' || c >= 0x80
		for at := range 24 {
			text := []byte(strings.Repeat("a", 24))
			text[at] = byte(c)
			if at < 8 {
				m := special(binary.LittleEndian.Uint64(text))
				if first := bits.TrailingZeros64(m) >> 3; stops != (m != 0) || stops && first != at {
					t.Errorf("special with %#02x at %d marks %#x", c, at, m)
				}
			}
			in := append(append([]byte{'"'}, text...), '"')
			facts, err := Check(in)
			want := "<nil>"
			switch {
			case c < 0x20:
				want = fmt.Sprintf("offset %d: expected string character, found 0x%02x", at+1, c)
			case c == '"' && at < 23:
				want = fmt.Sprintf("offset %d: expected end of input, found 'a'", at+2)
			case c == '"':
				want = fmt.Sprintf("offset %d: expected end of input, found '\"'", at+2)
			case c == '\\' && at < 23:
				want = fmt.Sprintf("offset %d: expected escape character, found 'a'", at+2)
			case c == '\\':
				want = "offset 26: expected '\"', found end of input"
			}
			if got := fmt.Sprint(err); got != want || (facts == BadUTF8) != (c >= 0x80) {
				t.Errorf("%#02x at %d: Check = %b, %s, want %s", c, at, facts, got, want)
			}
		}
	}
}

func TestAppendNumber(t *testing.T) {
	tests := []struct {
		f    float64
		want string
	}{
		{0, "0"}, {math.Copysign(0, -1), "0"}, {1, "1"}, {-1.5, "-1.5"},
		{math.NaN(), "null"}, {math.Inf(1), "null"}, {math.Inf(-1), "null"},
		{1e20, "100000000000000000000"}, {1e21, "1e+21"}, {-1e21, "-1e+21"}, {1.5e300, "1.5e+300"},
		{1e-6, "0.000001"}, {1e-7, "1e-7"}, {-1.25e-9, "-1.25e-9"}, {1e-10, "1e-10"}, {1e100, "1e+100"}, {5e-324, "5e-324"},
		{123456789012345680000, "123456789012345680000"}, {1 << 53, "9007199254740992"},
		{-1.2658976361944994e-308, "-1.2658976361944994e-308"},
	}
	for _, tt := range tests {
		if got := string(AppendNumber(nil, tt.f)); got != tt.want {
			t.Errorf("AppendNumber(%g) = %s, want %s", tt.f, got, tt.want)
		}
		if got := string(AppendNumber([]byte("x"), tt.f)); got != "x"+tt.want {
			t.Errorf("AppendNumber(x, %g) = %s, want x%s", tt.f, got, tt.want)
		}
	}
}
