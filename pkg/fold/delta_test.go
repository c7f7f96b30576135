package fold

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Malformed deltas whose results were computed by the same steps in V8: what
// slice, spread, Set, Map and join make of values they were not meant for.
func TestApplyCoercions(t *testing.T) {
	n, refused := 0, 0
	for _, v := range vectors(t, filepath.Join("testdata", "coercions.json")) {
		n++
		delta := jsjson.Get(v, "delta")
		h, err := ApplyHeaderDelta(verbatimHeader(jsjson.Get(v, "prev")), delta)
		if jsjson.Get(v, "error") != nil {
			refused++
			var he *HeaderError
			if !errors.As(err, &he) || he.Path == "" || he.Refusal == "" {
				t.Errorf("%s: error %v", delta, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", delta, err)
			continue
		}
		if diff := cmp.Diff(string(jsjson.Get(v, "result")), string(h.JSON())); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", delta, diff)
		}
	}
	if n != 200 || refused != 40 {
		t.Errorf("%d vectors with %d refusals, want 200 with 40", n, refused)
	}
}

func TestToNumber(t *testing.T) {
	for in, want := range map[string]string{
		`null`: "0", `true`: "1", `false`: "0", `""`: "0", `" \n\t"`: "0", `"\ufeff12 "`: "12", `"0x1F"`: "31", `"0b101"`: "5", `"0O17"`: "15",
		`"0x"`: "NaN", `"-0x1"`: "NaN", `"1e3"`: "1000", `".5"`: "0.5", `"5."`: "5", `"."`: "NaN", `"1_0"`: "NaN", `"Infinity"`: "Infinity", `"-Infinity"`: "-Infinity",
		`"inf"`: "NaN", `"nan"`: "NaN", `"1e400"`: "Infinity", `"--1"`: "NaN", `"+-1"`: "NaN", `"1 2"`: "NaN", `"0x1p3"`: "NaN", `"1p3"`: "NaN",
		`[]`: "0", `[7]`: "7", `[[8]]`: "8", `[1,2]`: "NaN", `{}`: "NaN", `[null]`: "0", `["3"]`: "3", `-0.5`: "-0.5", `"0x1g"`: "NaN", `"0b12"`: "NaN",
	} {
		b, _, err := jsjson.Stringify([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		f := toNumber(b)
		got := "NaN"
		switch {
		case f != f:
		case f > 1e308:
			got = "Infinity"
		case f < -1e308:
			got = "-Infinity"
		default:
			got = string(jsjson.AppendNumber(nil, f))
		}
		if got != want {
			t.Errorf("toNumber(%s) = %s, want %s", in, got, want)
		}
	}
	if f := toNumber(nil); f == f {
		t.Errorf("toNumber of nothing = %v, want NaN", f)
	}
}

// A line can be a value nested as deep as memory allows.
func TestApplyDeepNesting(t *testing.T) {
	const depth = 1 << 20
	deep := strings.Repeat("[", depth) + `"x"` + strings.Repeat("]", depth)
	h, err := ApplyHeaderDelta(&EpochHeader{Config: []byte(`{}`)}, []byte(`{"system":{"keepStart":`+deep+`,"keepEnd":0,"insert":[`+deep+`]}}`))
	if err != nil || string(h.System) != `"x"` {
		t.Errorf("error %v", err)
	}
}

func genLines() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		if rapid.Bool().Draw(t, "absent") {
			return nil
		}
		lines := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "\xed\xa0\xbd", "\xed\xb2\xa5", "\"\\", "é"}), 1, 7).Draw(t, "lines")
		b := jsjson.AppendQuote(nil, strings.Join(lines, "\n"))
		if len(b) == 2 {
			return nil
		}
		return b
	})
}

func genHeader() *rapid.Generator[*EpochHeader] {
	return rapid.Custom(func(t *rapid.T) *EpochHeader {
		h := &EpochHeader{System: genLines().Draw(t, "system")}
		h.Config = []byte(rapid.SampledFrom([]string{
			`{"model":"m"}`, `{"model":"n","temperature":1}`, `{"temperature":1,"model":"n"}`, `{"model":"n","stop":[]}`, `{"model":"n","x":1}`,
		}).Draw(t, "config"))
		tools := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) []byte {
			return []byte(`{"name":"` + rapid.SampledFrom([]string{"a", "b", "c", "__proto__"}).Draw(t, "name") +
				`","description":"` + rapid.SampledFrom([]string{"x", "y"}).Draw(t, "description") + `"}`)
		}), 0, 4).Draw(t, "tools")
		if len(tools) > 0 {
			h.Tools = appendList(nil, tools)
		}
		if rapid.Bool().Draw(t, "prefix") {
			h.MessagePrefix = []byte(`[{"role":"user","content":[{"type":"text","text":"` + rapid.SampledFrom([]string{"p", "q"}).Draw(t, "text") + `"}]}]`)
		}
		return h
	})
}

// Whatever two headers a writer holds, what it logs folds to the second.
func TestWriterRoundTrip(t *testing.T) {
	kinds := map[string]int{}
	check := func(t *rapid.T) {
		prev, next := genHeader().Draw(t, "prev"), genHeader().Draw(t, "next")
		if rapid.IntRange(0, 3).Draw(t, "same") == 0 {
			next = prev.Clone()
		}
		era := rapid.SampledFrom([]Era{E3, E4, E5, E13}).Draw(t, "era")
		first := rapid.Bool().Draw(t, "first")
		ev := NextHeaderEvent(era, prev, next, first)
		kinds[ev.Type+" "+ev.Reason]++
		if (ev.Type == "") != (!first && HeaderEquals(prev, next)) {
			t.Fatalf("logs %q", ev.Type)
		}
		if ev.Type == logfmt.TypeRequestHeaderDelta && (era >= E5 || first) {
			t.Fatalf("a delta in era %d, first %v", era, first)
		}
		f := HeaderFold{Header: prev}
		if ev.Type != "" {
			if !jsjson.Canonical(ev.Data) {
				t.Fatalf("not canonical: %s", ev.Data)
			}
			if _, err := f.Add(&logfmt.Event{Type: ev.Type, Seq: 1, Data: ev.Data}); err != nil {
				t.Fatal(err)
			}
			// The part of a config that equality does not see is still replaced or kept whole.
			if ev.Type == logfmt.TypeRequestHeader && !bytes.Equal(f.Header.JSON(), next.JSON()) {
				t.Fatalf("folds to %s, want %s", f.Header.JSON(), next.JSON())
			}
		}
		if !HeaderEquals(f.Header, next) {
			t.Fatalf("folds to %s, want %s", f.Header.JSON(), next.JSON())
		}
		// The delta itself never fails to apply, and the tools alone decide whether it suffices.
		delta := DiffHeader(prev, next)
		applied, err := ApplyHeaderDelta(prev, delta)
		if err != nil {
			t.Fatal(err)
		}
		if !sameValue(applied.System, next.System) || !sameList(applied.MessagePrefix, next.MessagePrefix) || !ConfigEquals(applied.Config, next.Config) {
			t.Fatalf("delta %s gives %s, want %s", delta, applied.JSON(), next.JSON())
		}
	}
	// Drawn at random, so a rare kind may take more than one round to come up.
	missing := func() bool { return kinds["request/header fallback"] == 0 || kinds["request/header-delta "] == 0 }
	rapid.Check(t, check)
	for range 50 {
		if !missing() {
			break
		}
		rapid.Check(t, check)
	}
	for _, k := range []string{" ", "request/header resume", "request/header change", "request/header fallback", "request/header-delta "} {
		if kinds[k] == 0 {
			t.Errorf("no case of %q", k)
		}
	}
}

func FuzzApplyHeaderDelta(f *testing.F) {
	f.Add([]byte(`{"config":{"model":"m"},"system":"a\nb","tools":[{"name":"t"}]}`), []byte(`{"system":{"keepStart":"1","keepEnd":null,"insert":"\ud83dx"},"tools":{"added":"x","changed":[{}]}}`))
	f.Add([]byte(`{"system":{"length":1},"tools":[null],"messagePrefix":[1]}`), []byte(`{"tools":{"added":[],"removed":"t","changed":[]},"messagePrefix":7}`))
	f.Add([]byte(`7`), []byte(`{"system":{"insert":[[[null]],{}]}}`))
	f.Fuzz(func(t *testing.T, header, delta []byte) {
		header, _, err := jsjson.Stringify(header)
		if err != nil {
			t.Skip()
		}
		delta, _, err = jsjson.Stringify(delta)
		if err != nil {
			t.Skip()
		}
		prev, err := CanonicalHeader(header)
		if err != nil {
			return
		}
		if again, err := CanonicalHeader(prev.JSON()); err != nil || !bytes.Equal(again.JSON(), prev.JSON()) {
			t.Errorf("canonical twice: %s, then %s (%v)", prev.JSON(), again.JSON(), err)
		}
		DeltaDefects(prev, delta)
		ScrubbedDelta(delta)
		prev.Scrubbed()
		next, err := ApplyHeaderDelta(prev, delta)
		var he *HeaderError
		if err != nil && !errors.As(err, &he) {
			t.Errorf("error %T", err)
		}
		if err == nil && !jsjson.Canonical(next.JSON()) {
			t.Errorf("not canonical: %s", next.JSON())
		}
		if err == nil {
			if d := DiffHeader(prev, next); !jsjson.Canonical(d) {
				t.Errorf("delta not canonical: %s", d)
			}
			if ev := NextHeaderEvent(E4, prev, next, false); ev.Data != nil && !jsjson.Canonical(ev.Data) {
				t.Errorf("event not canonical: %s", ev.Data)
			}
		}
	})
}

func TestDeltaDefects(t *testing.T) {
	prev := &EpochHeader{
		Config: []byte(`{"model":"m"}`), System: []byte(`"a\nb"`),
		Tools: []byte(`[{"name":"t"}]`), MessagePrefix: []byte(`[1]`),
	}
	for in, want := range map[string][]string{
		`[]`:                       {"data: is an array, want an object"},
		`{"config":{"model":"m"}}`: {"config: changes no field"},
		`{"config":7}`:             {"config: is a number, want an object"},
		`{"messagePrefix":[1]}`:    {"messagePrefix: changes nothing"},
		`{"messagePrefix":[]}`:     nil,
		`{"messagePrefix":"x"}`:    {"messagePrefix: is a string, want an array"},
		`{"system":[]}`:            {"system: is an array, want an object"},
		`{"tools":true}`:           {"tools: is a boolean, want an object"},
		`{"system":{"keepStart":0,"keepEnd":0,"insert":["x",null],"more":1}}`: {
			`system: has a key no writer uses, "more"`, "system.insert[1]: is null, want a line",
		},
		`{"system":{"keepStart":{},"keepEnd":0,"insert":[]}}`: {"system.keepStart: is an object, want a whole number from 0"},
		`{"tools":{"added":[{"name":"u"},{"name":"u"}],"removed":[7],"changed":"t"}}`: {
			"tools.removed[0]: has no name", `tools.added[1]: names "u" a second time`, "tools.changed: is a string, want an array",
		},
		`{"tools":{"added":[],"removed":[],"changed":[{"name":"t"}]}}`: {`tools.changed[0]: changes nothing in "t"`},
	} {
		var got []string
		for _, d := range DeltaDefects(prev, []byte(in)) {
			got = append(got, d.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", in, diff)
		}
	}
}
