package jsjson

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func addSeeds(f *testing.F) {
	for _, s := range []string{
		``, `null`, ` [1, 2.50, -0, 1e400]`, `{"b":1,"2":2,"1":3,"b":4}`, `{"\u0061":1,"a":2}`, `"\ud83d\ude00\ud83d"`, "\"\xed\xa0\x80\"",
		`{"a":{"b":[{}],"0":[]},"a":[[],[[]]]}`, `[9007199254740993,0.1000,1E-7]`, `{"type":"x/y","seq":1,"time":2,"data":{}}`,
		`"\u00`, `[1,`, `{"a":`, `01`, "\"\x01\"", `{"` + strings.Repeat("long key ", 4) + `":"` + strings.Repeat("text", 9) + `\n"}`,
	} {
		f.Add([]byte(s))
	}
}

// valid is JSON.parse's grammar as an independent parser sees it.
func valid(b []byte) bool {
	d := jsontext.NewDecoder(bytes.NewReader(b), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if _, err := d.ReadValue(); err != nil {
		return false
	}
	_, err := d.ReadToken()
	return errors.Is(err, io.EOF)
}

func FuzzStringify(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		in := bytes.Clone(b)
		got, facts, err := Stringify(b)
		if !bytes.Equal(b, in) {
			t.Fatalf("Stringify(%q) wrote to its input", in)
		}
		// The other parser stops at 10000 levels.
		if ok := err == nil; bytes.Count(b, []byte("["))+bytes.Count(b, []byte("{")) < 10000 && valid(b) != ok {
			t.Fatalf("%q: Stringify gives %v, jsontext accepts: %v", b, err, !ok)
		}
		if canonical := Canonical(b); canonical != (err == nil && facts.Canonical()) || canonical != (err == nil && bytes.Equal(got, b)) {
			t.Fatalf("%q: Canonical = %v, facts %b, stringified %q", b, canonical, facts, got)
		}
		if err != nil {
			var syntax *SyntaxError
			if !errors.As(err, &syntax) || syntax.Offset < 0 || syntax.Offset > len(b) || syntax.Want == "" || syntax.Got == "" {
				t.Fatalf("%q: error %#v", b, err)
			}
			// Everything before the offset is right: the text can be cut there
			// and the error is then that it ends.
			if _, err := Check(b[:syntax.Offset]); err != nil && err.(*SyntaxError).Offset != syntax.Offset {
				t.Fatalf("%q: %v, but cut there %v", b, syntax, err)
			}
			return
		}
		if len(b) > 0 && facts.Canonical() && &got[0] != &b[0] {
			t.Fatalf("%q is canonical and was copied", b)
		}
		again, facts2, err := Stringify(got)
		if err != nil || !facts2.Canonical() || &again[0] != &got[0] {
			t.Fatalf("%q became %q, which is not canonical: %b, %v", b, got, facts2, err)
		}
		// Replacing bad UTF-8 first changes nothing else.
		clean, facts3, err := Stringify(ReplaceBadUTF8(nil, b))
		if err != nil || facts3 != facts&^BadUTF8 || !bytes.Equal(clean, got) {
			t.Fatalf("%q: %q, %b; with bad UTF-8 replaced first %q, %b, %v", b, got, facts, clean, facts3, err)
		}
		walk(t, got)
	})
}

// walk holds the accessors to each other on a canonical value.
func walk(t *testing.T, v []byte) {
	t.Helper()
	if Skip(v, 0) != len(v) {
		t.Fatalf("Skip(%q) = %d", v, Skip(v, 0))
	}
	if !Equal(v, v) || Equal(v, nil) {
		t.Fatalf("Equal(%q)", v)
	}
	n := 0
	switch KindOf(v) {
	case Absent:
		t.Fatalf("KindOf(%q) = Absent", v)
	case Array:
		out := []byte("[")
		for e := range Elements(v) {
			if n > 0 {
				out = append(out, ',')
			}
			n++
			out = append(out, e...)
			walk(t, e)
		}
		if out = append(out, ']'); !bytes.Equal(out, v) || n != Len(v) {
			t.Fatalf("Elements(%q) give %q, Len %d", v, out, Len(v))
		}
	case Object:
		out := []byte("{")
		var keys []string
		var values [][]byte
		for k, e := range Members(v) {
			if n > 0 {
				out = append(out, ',')
			}
			n++
			out = append(append(append(out, k...), ':'), e...)
			key, ok := Str(k)
			if !ok {
				t.Fatalf("Str(%q) failed", k)
			}
			keys = append(keys, key)
			values = append(values, e)
			walk(t, e)
		}
		if out = append(out, '}'); !bytes.Equal(out, v) || n != Len(v) {
			t.Fatalf("Members(%q) give %q, Len %d", v, out, Len(v))
		}
		dst, dst2 := make([][]byte, n), make([][]byte, n)
		others := Fields(v, dst, keys)
		others2, facts, err := CheckFields(v, dst2, keys)
		if others != 0 || others2 != 0 || !facts.Canonical() || err != nil {
			t.Fatalf("Fields(%q) leave %d, CheckFields %d, %b, %v", v, others, others2, facts, err)
		}
		for i, key := range keys {
			for _, got := range [][]byte{Get(v, key), dst[i], dst2[i]} {
				if !bytes.Equal(got, values[i]) {
					t.Fatalf("%q of %q = %q, want %q", key, v, got, values[i])
				}
			}
		}
	case String:
		s, ok := Str(v)
		if !ok || !StrEq(v, s) || string(AppendQuote(nil, s)) != string(v) || string(AppendStr(nil, v)) != s {
			t.Fatalf("Str(%q) = %q, %v; quoted %q", v, s, ok, AppendQuote(nil, s))
		}
	case Number:
		f, ok := Float(v)
		if !ok || string(AppendNumber(nil, f)) != string(v) {
			t.Fatalf("Float(%q) = %g, %v; written %q", v, f, ok, AppendNumber(nil, f))
		}
		if i, ok := SafeInt(v); ok && float64(i) != f {
			t.Fatalf("SafeInt(%q) = %d, Float %g", v, i, f)
		}
	case Bool:
		if _, ok := BoolOf(v); !ok {
			t.Fatalf("BoolOf(%q) failed", v)
		}
	}
}

// FuzzConcat: the three ways to join strings agree, and cutting a string
// anywhere does not matter.
func FuzzConcat(f *testing.F) {
	f.Add([]byte(`"a\ud83d"`), []byte(`"\ude00b"`), 1)
	f.Add([]byte(`"\\ud83d"`), []byte(`"\ude00"`), 3)
	f.Add([]byte("\"é\U0001F600\\n\""), []byte(`"\ud83d\ud83d"`), 4)
	f.Fuzz(func(t *testing.T, x, y []byte, cut int) {
		x, _, errX := Stringify(x)
		y, _, errY := Stringify(y)
		if errX != nil || errY != nil || KindOf(x) != String || KindOf(y) != String {
			t.Skip()
		}
		a, _ := Str(x)
		b, _ := Str(y)
		joined := Concat(a, b)
		want := string(AppendQuote(nil, joined))
		raw := append(AppendContent(AppendContent([]byte(`"`), x), y), '"')
		if got := string(AppendString(nil, a, b)); got != want || string(raw) != want {
			t.Fatalf("%q + %q: quoted %q, AppendString %q, AppendContent %q", x, y, want, got, raw)
		}
		if got := AppendStr(AppendStr(nil, x), y); string(got) != joined {
			t.Fatalf("%q + %q: AppendStr %q, Concat %q", x, y, got, joined)
		}
		if !Canonical([]byte(want)) {
			t.Fatalf("%q is not canonical", want)
		}
		if UTF16Len(joined) != UTF16Len(a)+UTF16Len(b) {
			t.Fatalf("lengths of %q and %q do not add up", a, b)
		}
	})
}

// FuzzAccess: whatever the bytes, an accessor returns.
func FuzzAccess(f *testing.F) {
	addSeeds(f)
	for _, s := range []string{`{"a"`, `{"a":`, `{"a":1`, `{"a"x`, `{""`, `{":"`, `[`, `[[`, `[,`, `"\`, `"\u12"`, `"\"`, `{"\`, `{"a":}`, `}`, `{1}`, `[}]`, `{"a":1]}`, `-`} {
		f.Add([]byte(s))
	}
	keys := []string{"a", "", "type", "\n"}
	f.Fuzz(func(t *testing.T, b []byte) {
		var dst [4][]byte
		Fields(b, dst[:], keys)
		CheckFields(b, dst[:], keys)
		Get(b, "a")
		Index(b, 1)
		Len(b)
		SafeInt(b)
		Float(b)
		BoolOf(b)
		Str(b)
		StrEq(b, "a")
		AppendStr([]byte(halfHigh), b)
		AppendContent([]byte(`"\ud83d`), b)
		AppendQuote(nil, string(b))
		Equal(b, append([]byte("["), b...))
		Equal(b, []byte(strings.ToUpper(string(b))))
		_ = UTF16Len(string(b))
		TrimJS(string(b))
		for i := range len(b) + 1 {
			if end := Skip(b, i); end < i && i <= len(b) || end > len(b) {
				t.Fatalf("Skip(%q, %d) = %d", b, i, end)
			}
		}
		for k, v := range Members(b) {
			if len(k) < 2 || len(v) == 0 {
				t.Fatalf("Members(%q) give %q, %q", b, k, v)
			}
		}
		for v := range Elements(b) {
			if len(v) == 0 {
				t.Fatalf("Elements(%q) give an empty value", b)
			}
		}
		if !Canonical(AppendQuote(nil, string(b))) {
			t.Fatalf("AppendQuote(%q) = %q is not canonical", b, AppendQuote(nil, string(b)))
		}
	})
}
