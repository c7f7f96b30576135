package ui

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEscape(t *testing.T) {
	tests := []struct{ name, in, line, lines string }{
		{"plain", `a "b" \ c`, `a "b" \ c`, `a "b" \ c`},
		{"empty", "", "", ""},
		{"layout", "a\n\tb\r", `a\n\tb\r`, "a\n\tb" + `\r`},
		{"escape sequence", "\x1b[2J\x1b]0;x\x07", `\x1b[2J\x1b]0;x\x07`, `\x1b[2J\x1b]0;x\x07`},
		{"nul and del", "\x00\x7f", `\x00\x7f`, `\x00\x7f`},
		{"c1", "\u009b31m", `\u009b31m`, `\u009b31m`},
		{"bidi", "a\u202eb\u2066c\u200f\u061c", `a\u202eb\u2066c\u200f\u061c`, `a\u202eb\u2066c\u200f\u061c`},
		{"separators", "\u2028\u2029", `\u2028\u2029`, `\u2028\u2029`},
		{"invisible", "\ufeff\u200b\u00ad\U000e0041", `\ufeff\u200b\u00ad\U000e0041`, `\ufeff\u200b\u00ad\U000e0041`},
		{"joiners stay", "👨\u200d👩 می\u200cخواهم", "👨\u200d👩 می\u200cخواهم", "👨\u200d👩 می\u200cخواهم"},
		{"text", "日本語 é 🙂 \ufffd", "日本語 é 🙂 \ufffd", "日本語 é 🙂 \ufffd"},
		{"bad bytes", "a\xff\xc3(", `a\xff\xc3(`, `a\xff\xc3(`},
		{"lone surrogates", "\xed\xa0\xbd \xed\xbf\xbf", `\ud83d \udfff`, `\ud83d \udfff`},
		{"cut surrogate", "\xed\xa0", `\xed\xa0`, `\xed\xa0`},
		{"overlong", "\xc0\x9b", `\xc0\x9b`, `\xc0\x9b`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Escape(tt.in); got != tt.line {
				t.Errorf("Escape(%q) = %q, want %q", tt.in, got, tt.line)
			}
			if got := EscapeLines(tt.in); got != tt.lines {
				t.Errorf("EscapeLines(%q) = %q, want %q", tt.in, got, tt.lines)
			}
		})
	}
}

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", "a\x1b[2J", "\u202e", "\xed\xa0\x80", "\xff\xfe", "\u009b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Escape(s)
		if !utf8.ValidString(got) {
			t.Fatalf("Escape(%q) = %q is not UTF-8", s, got)
		}
		for _, r := range got {
			if r < 0x20 || r == 0x7f || hidden(r) {
				t.Fatalf("Escape(%q) leaves %U", s, r)
			}
		}
		if again := Escape(got); again != got {
			t.Fatalf("Escape is not idempotent: %q then %q", got, again)
		}
	})
}

func TestColored(t *testing.T) {
	env := func(kv map[string]string) func(string) string { return func(k string) string { return kv[k] } }
	var pipe bytes.Buffer
	if Colored(Auto, &pipe, env(nil)) {
		t.Error("auto colours what is not a terminal")
	}
	if !Colored(Always, &pipe, env(map[string]string{"NO_COLOR": "1"})) {
		t.Error("always yields to NO_COLOR")
	}
	if Colored(Never, &pipe, env(nil)) {
		t.Error("never colours")
	}
}

func TestSay(t *testing.T) {
	var b strings.Builder
	u := New(&b, "dsh-x", NewPalette(false))
	u.Error("a\x1b[31m.jsonl: no such file")
	u.Warn("odd")
	u.Hint("look\nhere")
	want := "dsh-x: error: a\\x1b[31m.jsonl: no such file\ndsh-x: warning: odd\ndsh-x: hint: look\\nhere\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
	b.Reset()
	New(&b, "dsh-x", NewPalette(true)).Error("no")
	if want := "dsh-x: \x1b[31;1merror:\x1b[0;22m no\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
