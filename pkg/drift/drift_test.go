package drift

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

func mustParse(tb testing.TB, s string) *Body {
	tb.Helper()
	b, err := Parse([]byte(s))
	if err != nil {
		tb.Fatalf("Parse(%s): %v", s, err)
	}
	return b
}

func TestParse(t *testing.T) {
	b := mustParse(t, `{"7":1,"provider":"p","model":"m","messages":[{"role":"user"},2],"system":"s","tools":[{"name":"t"}],"temperature":0.5,"sessionId":"x"}`)
	got := fmt.Sprintf("%s %s %s %s %s", b.Config, b.Messages, b.System, b.Tools, b.SessionID)
	want := `[{7 1} {provider "p"} {model "m"} {temperature 0.5}] [{"role":"user"} 2] "s" [{"name":"t"}] "x"`
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for in, want := range map[string]string{
		`[]`:                 "not a request body: it is not an object",
		`{}`:                 "not a request body: it has no messages",
		`{"messages":{}}`:    "not a request body: its messages are not an array",
		`{"messages2":[[]]}`: "not a request body: it has no messages",
	} {
		if _, err := Parse([]byte(in)); !errors.Is(err, ErrBody) || err.Error() != want {
			t.Errorf("Parse(%s): %v, want %q", in, err, want)
		}
	}
	// Tools that are no list are a config value like any other.
	if b := mustParse(t, `{"messages":[],"tools":"all"}`); b.HasTools || len(b.Config) != 1 {
		t.Errorf("tools: got %v %v", b.HasTools, b.Config)
	}
}

// brief writes a Diff in a few words.
func brief(d *Diff) string {
	var w []string
	add := func(format string, args ...any) { w = append(w, fmt.Sprintf(format, args...)) }
	if d.At != nil {
		add("at %d %s", d.At.Offset, d.At.Path)
	}
	if d.Same {
		add("same")
	}
	if d.Extends {
		add("extends")
	}
	for _, c := range d.Config {
		add("config %s %s>%s", c.Name, c.A, c.B)
	}
	if d.KeyOrder {
		add("key-order")
	}
	if d.Session != nil {
		add("session %s>%s", d.Session.A, d.Session.B)
	}
	if s := d.System; s != nil {
		if !s.Text {
			add("system %s>%s", s.A, s.B)
		}
		for _, l := range s.Lines {
			if l.Op == Edit {
				add("system ~%q%q", l.Text, l.New)
			} else {
				add("system %c%q", " -+"[l.Op], l.Text)
			}
		}
	}
	for _, x := range d.Tools.Added {
		add("tool +%s@%d", x.Name, x.Index)
	}
	for _, x := range d.Tools.Removed {
		add("tool -%s@%d", x.Name, x.Index)
	}
	for _, x := range d.Tools.Changed {
		add("tool ~%s@%d>%d %s+%d %s", x.Name, x.IndexA, x.IndexB, x.At.Path, x.At.Offset, briefValues(x.Values))
	}
	for _, x := range d.Tools.Moved {
		add("tool >%s@%d", x.Name, x.Index)
	}
	if p := d.Tools.Present; p != nil {
		add("tools %s>%s", p.A, p.B)
	}
	add("kept %d", d.Messages.Kept)
	for _, c := range d.Messages.Changes {
		s := fmt.Sprintf("%s %d>%d", c.Kind, c.A, c.B)
		if c.At != nil {
			s += fmt.Sprintf(" %s+%d", c.At.Path, c.At.Offset)
			if len(c.Values) > 0 {
				s += " " + briefValues(c.Values)
			}
		}
		for _, b := range c.Blocks {
			s += fmt.Sprintf(" block %s %d>%d", b.Kind, b.A, b.B)
			if len(b.Values) > 0 {
				s += " " + briefValues(b.Values)
			}
		}
		add("%s", s)
	}
	return strings.Join(w, "; ")
}

func briefValues(list []ValueChange) string {
	var w []string
	for _, v := range list {
		switch v.Kind {
		case ValueKeyOrder, ValueReordered:
			w = append(w, fmt.Sprintf("%s %s", v.Kind, v.Path))
		default:
			w = append(w, fmt.Sprintf("%s:%s>%s", v.Path, v.A, v.B))
		}
	}
	return "(" + strings.Join(w, ", ") + ")"
}

func TestCompare(t *testing.T) {
	const m1, m2, m3 = `{"role":"user","content":"1"}`, `{"role":"assistant","content":"2"}`, `{"role":"user","content":"3"}`
	body := func(rest string, msgs ...string) string {
		return `{"model":"m","messages":[` + strings.Join(msgs, ",") + `]` + rest + `}`
	}
	tests := []struct{ name, a, b, want string }{
		{"same", body("", m1), body("", m1), "same; extends; kept 1"},
		{"extends", body("", m1), body("", m1, m2, m3), "at 54 messages; extends; kept 1; appended -1>1; appended -1>2"},
		{"shorter", body("", m1, m2), body("", m1), "at 54 messages; kept 1; dropped 1>-1"},
		{"no messages yet", body(""), body("", m1), "at 25 messages[0]; extends; kept 0; appended -1>0"},
		{"changed by place", body("", m1, m2), body("", m1, `{"role":"assistant","content":"4"}`),
			`at 86 messages[1].content; kept 1; edited 1>1 content+31 (content:"2">"4")`},
		{"another role is another message", body("", m1), body("", `{"role":"assistant","content":"1"}`),
			"at 34 messages[0].role; kept 0; dropped 0>-1; appended -1>0"},
		{"changed by id", body("", `{"id":"a","t":1}`, `{"id":"b","t":1}`), body("", `{"id":"b","t":2}`, `{"id":"c","t":1}`),
			"at 32 messages[0].id; kept 0; dropped 0>-1; edited 1>0 t+14 (t:1>2); appended -1>1"},
		{"replaced in the middle", body("", m1, m2, m3), body("", m1, `{"id":"x"}`, m3), "at 57 messages[1]; kept 2; dropped 1>-1; inserted -1>1"},
		{"moved", body("", `{"id":"a"}`, `{"id":"b"}`, `{"id":"c"}`), body("", `{"id":"b"}`, `{"id":"c"}`, `{"id":"a"}`),
			"at 32 messages[0].id; kept 2; reordered 0>2"},
		{"moved and edited", body("", `{"id":"a","t":1}`, `{"id":"b"}`, `{"id":"c"}`), body("", `{"id":"b"}`, `{"id":"c"}`, `{"id":"a","t":2}`),
			"at 32 messages[0].id; kept 2; reordered 0>2 t+14 (t:1>2)"},
		{"one id twice", body("", `{"id":"a","t":1}`, `{"id":"a","t":2}`), body("", `{"id":"a","t":2}`),
			"at 39 messages[0].t; kept 1; dropped 0>-1"},
		{"blocks", body("", `{"id":"a","content":[{"type":"text","text":"x"},{"type":"tool-call","id":"1"},{"type":"text","text":"z"}],"n":1}`),
			body("", `{"id":"a","content":[{"type":"text","text":"y"},{"type":"text","text":"z"},{"type":"reasoning","text":"r"}],"n":2}`),
			"at 69 messages[0].content[0].text; kept 0; edited 0>0 content[0].text+44 (n:1>2)" +
				` block changed 0>0 (text:"x">"y") block dropped 1>-1 block added -1>2`},
		{"order of members in a message", body("", `{"id":"a","content":[]}`), body("", `{"content":[],"id":"a"}`),
			"at 27 messages[0]; kept 0; edited 0>0 +2 (key-order )"},
		{"config", `{"model":"m","maxTokens":5,"messages":[]}`, `{"model":"n","messages":[],"stop":[]}`,
			`at 10 model; config model "m">"n"; config maxTokens 5>; config stop >[]; kept 0`},
		{"config order", `{"provider":"p","model":"m","messages":[]}`, `{"model":"m","provider":"p","messages":[]}`,
			"at 2 ; extends; key-order; kept 0"},
		{"order inside a config value", `{"x":{"a":1,"b":2},"messages":[]}`, `{"x":{"b":2,"a":1},"messages":[]}`,
			"at 7 x; extends; key-order; kept 0"},
		{"session only", body(`,"sessionId":"a"`, m1), body(`,"sessionId":"b"`, m1), `at 69 sessionId; extends; session "a">"b"; kept 1`},
		{"system", body(`,"system":"a\nb\nc"`), body(`,"system":"a\nX\nc\nd"`),
			`at 40 system; system  ["a"]; system -["b"]; system +["X"]; system  ["c"]; system +["d"]; kept 0`},
		{"system appears", body(""), body(`,"system":"a"`), `at 26 ; system +["a"]; kept 0`},
		{"system is empty", body(""), body(`,"system":""`), `at 26 ; system +[""]; kept 0`},
		{"system is no text", body(`,"system":1`), body(`,"system":"a"`), `at 36 system; system 1>"a"; kept 0`},
		{"bad text differs", body(`,"system":"x\ud800y"`), body(`,"system":"x\ud801y"`),
			"at 43 system; system ~[\"x\\xed\\xa0\\x80y\"][\"x\\xed\\xa0\\x81y\"]; kept 0"},
		{"tools", body(`,"tools":[{"name":"a"},{"name":"b","d":1},{"name":"c"},{"name":"d"}]`),
			body(`,"tools":[{"name":"d"},{"name":"b","d":2},{"name":"c"},{"name":"e"}]`),
			"at 45 tools[0].name; tool +e@3; tool -a@0; tool ~b@1>1 d+16 (d:1>2); tool >d@0; kept 0"},
		{"schema", body(`,"tools":[{"name":"a","parameters":{"properties":{"x":{"type":"string"},"y":{"type":"number"}},"required":["x","y"],"enum":["p","q"]}}]`),
			body(`,"tools":[{"name":"a","parameters":{"properties":{"x":{"type":"string","minLength":1},"z z":{}},"required":["y","x"],"enum":["p","r","s"]}}]`),
			`at 96 tools[0].parameters.properties.x; tool ~a@0>0 parameters.properties.x+60 (parameters.properties.y:{"type":"number"}>, ` +
				`parameters.properties.x.minLength:>1, parameters.properties["z z"]:>{}, reordered parameters.required, ` +
				`parameters.enum[1]:"q">, parameters.enum[1]:>"r", parameters.enum[2]:>"s"); kept 0`},
		{"key order in a tool", body(`,"tools":[{"name":"a","d":1}]`), body(`,"tools":[{"d":1,"name":"a"}]`),
			"at 38 tools[0]; tool ~a@0>0 +2 (key-order ); kept 0"},
		{"tools of one name", body(`,"tools":[{"name":"a","d":1},{"name":"a","d":2}]`), body(`,"tools":[{"name":"a","d":1}]`),
			"at 54 tools; tool -a@1; kept 0"},
		{"tools without a name", body(`,"tools":[{"d":1},7]`), body(`,"tools":[{"d":1},8]`), "at 44 tools[1]; tool ~@1>1 +0 (:7>8); kept 0"},
		{"empty tools", body(""), body(`,"tools":[]`), "at 26 ; tools >[]; kept 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := brief(Compare(mustParse(t, tt.a), mustParse(t, tt.b), 0))
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestPathAt(t *testing.T) {
	const text = `{"a":1,"b c":[true,{"k-1":"x\"y","":{}}],"z":"end"}`
	at := func(s string, n int) int {
		t.Helper()
		i := strings.Index(text, s)
		if i < 0 {
			t.Fatalf("%q is not in the text", s)
		}
		return i + n
	}
	tests := []struct {
		offset int
		want   string
	}{
		{0, ""},
		{at(`"a"`, 1), ""},
		{at(`:1`, 0), ""},
		{at(`:1`, 1), "a"},
		{at(`[true`, 0), `["b c"]`},
		{at(`true`, 2), `["b c"][0]`},
		{at(`,{`, 0), `["b c"]`},
		{at(`{"k-1"`, 0), `["b c"][1]`},
		{at(`k-1`, 0), `["b c"][1]`},
		{at(`x\"y`, 3), `["b c"][1].k-1`},
		{at(`{}`, 0), `["b c"][1][""]`},
		{at(`{}`, 1), `["b c"][1][""]`},
		{at(`]`, 0), `["b c"]`},
		{at(`end"`, 3), "z"},
		{len(text) - 1, ""},
		{len(text), ""},
	}
	for _, tt := range tests {
		if got := PathAt([]byte(text), tt.offset); got != tt.want {
			t.Errorf("PathAt(%d, at %q) = %q, want %q", tt.offset, text[:min(tt.offset, len(text))], got, tt.want)
		}
	}
	deep := strings.Repeat("[", 300_000)
	if got := PathAt([]byte(deep), len(deep)-1); len(got) != 3*(len(deep)-1) {
		t.Errorf("deep path has %d bytes, want %d", len(got), 3*(len(deep)-1))
	}
}

func TestDiverge(t *testing.T) {
	tests := []struct {
		a, b string
		want *Divergence
	}{
		{`[1]`, `[1]`, nil},
		{`[12]`, `[123]`, &Divergence{3, "[0]"}},
		{`[123]`, `[12]`, &Divergence{3, "[0]"}},
		{`1`, `12`, &Divergence{1, ""}},
		{`{"a":"x"}`, `{"a":"xy"}`, &Divergence{7, "a"}},
	}
	for _, tt := range tests {
		if d := cmp.Diff(tt.want, Diverge([]byte(tt.a), []byte(tt.b))); d != "" {
			t.Errorf("Diverge(%s, %s) (-want +got):\n%s", tt.a, tt.b, d)
		}
	}
}

// replay checks that the runs really lead from a to b.
func replay(a, b []string, runs []run) error {
	i, j := 0, 0
	for _, r := range runs {
		for range r.n {
			switch {
			case r.op != Add && i >= len(a), r.op != Drop && j >= len(b):
				return fmt.Errorf("runs go beyond the lists")
			case r.op == Keep && a[i] != b[j]:
				return fmt.Errorf("kept %q for %q", a[i], b[j])
			}
			if r.op != Add {
				i++
			}
			if r.op != Drop {
				j++
			}
		}
	}
	if i != len(a) || j != len(b) {
		return fmt.Errorf("runs end at %d and %d of %d and %d", i, j, len(a), len(b))
	}
	return nil
}

func TestSequenceLimits(t *testing.T) {
	list := func(from, to, step int) (out []string) {
		for i := from; i != to; i += step {
			out = append(out, fmt.Sprint(i))
		}
		return out
	}
	const half = maxItems / 2
	up, down := list(0, half, 1), list(half-1, -1, -1)
	runs, coarse := sequence(up, down)
	if err := replay(up, down, runs); err != nil || coarse {
		t.Errorf("at the limit: %v, coarse %t", err, coarse)
	}
	up, down = list(0, half+1, 1), list(half, -1, -1)
	runs, coarse = sequence(up, down)
	if want := []run{{Drop, half + 1}, {Add, half + 1}}; !coarse || !slices.Equal(runs, want) {
		t.Errorf("beyond the limit: got %v, coarse %t; want %v, coarse", runs, coarse, want)
	}
	// Items of one side alone do not count, nor do a common head and tail.
	long := append(append(slices.Clone(up), list(100_000, 200_000, 1)...), "x", "y")
	other := append(append(slices.Clone(up), list(200_000, 300_000, 1)...), "x", "z", "y")
	runs, coarse = sequence(long, other)
	if want := []run{{Keep, half + 1}, {Drop, 100_000}, {Add, 100_000}, {Keep, 1}, {Add, 1}, {Keep, 1}}; coarse || !slices.Equal(runs, want) {
		t.Errorf("got %v, coarse %t; want %v, exact", runs, coarse, want)
	}
}

func FuzzSequence(f *testing.F) {
	f.Add("abcabba", "cbabac")
	f.Add("", "x")
	f.Add("\xff\xfe", "\xfe\xff")
	f.Fuzz(func(t *testing.T, x, y string) {
		a, b := strings.Split(x, ""), strings.Split(y, "")
		runs, _ := sequence(a, b)
		if err := replay(a, b, runs); err != nil {
			t.Fatalf("%q to %q: %v: %v", a, b, runs, err)
		}
	})
}

func FuzzPathAt(f *testing.F) {
	f.Add([]byte(`{"a":[1,"x"]}`), 7)
	f.Add([]byte(`]}"\`), 3)
	f.Fuzz(func(t *testing.T, text []byte, offset int) { PathAt(text, offset) })
}

// FuzzCompare compares two texts of which requests can be made: nothing panics,
// and what is listed is what differs.
func FuzzCompare(f *testing.F) {
	f.Add(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"system":"s\nt","tools":[{"name":"a"}]}`,
		`{"model":"n","messages":[{"role":"user","content":[{"type":"text","text":"b"}]},{"id":"x"}],"system":"s","tools":[{"name":"b"},{"name":"a"}]}`)
	f.Add(`{"messages":[1,[2,{"id":"a"}],{"id":"a"}]}`, `{"messages":[{"id":"a","content":[[]]},12]}`)
	f.Add(`{"messages":[{"id":"a"},{"id":"b"},{"id":"c"}]}`, `{"messages":[{"id":"c"},{"id":"a"},{"id":"b","content":[]}]}`)
	f.Fuzz(func(t *testing.T, x, y string) {
		var bodies [2]*Body
		var texts [2][]byte
		for i, s := range []string{x, y} {
			text, _, err := jsjson.Stringify([]byte(s))
			if err != nil {
				return
			}
			b, err := Parse(text)
			if err != nil {
				return
			}
			if got := b.AppendText(nil); string(got) != string(text) || b.Len() != int64(len(text)) {
				t.Fatalf("Parse(%s) is written as %s (%d bytes)", text, got, b.Len())
			}
			bodies[i], texts[i] = b, text
		}
		d := Compare(bodies[0], bodies[1], 0)
		if err := checkComplete(d, bodies[0], bodies[1]); err != nil {
			t.Fatalf("%s and %s: %v", texts[0], texts[1], err)
		}
		want := Diverge(texts[0], texts[1])
		if diff := cmp.Diff(want, d.At); diff != "" {
			t.Fatalf("%s and %s (-want +got):\n%s", texts[0], texts[1], diff)
		}
	})
}

// FuzzText compares two texts: both can be put together again.
func FuzzText(f *testing.F) {
	f.Add("a\nb c d\ne", "a\nb x d\nf\ne")
	f.Add("\xed\xa0\x80y z", "\xed\xa0\x81y z")
	f.Add("日本語のテキスト", "日本のテキスト")
	f.Fuzz(func(t *testing.T, x, y string) {
		d := CompareText(x, y)
		a, b := rebuild(&d)
		if strings.Join(a, "\n") != x || strings.Join(b, "\n") != y {
			t.Fatalf("%q and %q: %+v", x, y, d)
		}
	})
}

// FuzzVolatile rewrites nothing where nothing is exchanged, and keeps JSON.
func FuzzVolatile(f *testing.F) {
	f.Add(`{"id":"x","text":"/srv/a/b 2025-07-07T10:00:00Z 5f0c0000-0000-4000-8000-000000000000"}`)
	f.Fuzz(func(t *testing.T, s string) {
		text, _, err := jsjson.Stringify([]byte(s))
		if err != nil {
			return
		}
		v := newVolatiles(&History{SessionID: "session-1", Cwd: "/srv/a", CreatedAt: 1751900000000, first: 1751900000000, last: 1751900000001})
		if got := v.rewrite(text, func(_ volatileKind, s string) string { return s }); string(got) != string(text) {
			t.Fatalf("%s became %s", text, got)
		}
		marked := v.rewrite(text, func(k volatileKind, _ string) string { return volatileNames[k] })
		if again, _, err := jsjson.Stringify(marked); err != nil || string(again) != string(marked) {
			t.Fatalf("%s became %s: %v", text, marked, err)
		}
	})
}
