package fold

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

func TestCanonicalHeaderShapes(t *testing.T) {
	for in, want := range map[string]string{
		`{"tools":[1],"system":"s","adapterDefaults":{"maxTokens":true},"config":{"b":1,"a":2},"z":1}`: `{"config":{"b":1,"a":2},"adapterDefaults":{"maxTokens":true},"system":"s","tools":[1]}`,
		`{"config":{},"messagePrefix":[1],"tools":[2]}`:                                                `{"config":{},"tools":[2],"messagePrefix":[1]}`,
		`{"config":{},"adapterDefaults":{}}`:                                                           `{"config":{}}`,
		`{"config":{},"adapterDefaults":{"maxTokens":false}}`:                                          `{"config":{}}`,
		`{"config":{},"adapterDefaults":{"reasoningEffort":true}}`:                                     `{"config":{},"adapterDefaults":{"reasoningEffort":true}}`,
		`{"config":null,"system":7,"tools":true,"messagePrefix":{}}`:                                   `{"config":null}`,
		`{"config":{},"system":["a"],"tools":"x","messagePrefix":{"length":1}}`:                        `{"config":{},"system":["a"],"tools":"x","messagePrefix":{"length":1}}`,
		`{}`:                         `{}`,
		`"text"`:                     `{}`,
		`null`:                       "!header is null, want an object",
		`{"tools":null}`:             "!header.tools is null, want an object",
		`{"messagePrefix":null}`:     "!header.messagePrefix is null, want an object",
		`{"adapterDefaults":"true"}`: `{}`,
	} {
		b, _, err := jsjson.Stringify([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		h, err := CanonicalHeader(b)
		got := string(h.JSON())
		if err != nil {
			got = "!" + err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestHeaderEquals(t *testing.T) {
	base := `{"config":{"provider":"p","model":"m","reasoningEffort":"low","temperature":1,"maxTokens":2,"stop":["a"]},"adapterDefaults":{"maxTokens":true},"system":"s","tools":[{"name":"t","a":1}],"messagePrefix":[1]}`
	for in, want := range map[string]bool{
		base: true,
		`{"config":{"stop":["a"],"maxTokens":2,"temperature":1,"reasoningEffort":"low","model":"m","provider":"p","more":1},"adapterDefaults":{"maxTokens":true,"more":1},"system":"s","tools":[{"name":"t","a":1}],"messagePrefix":[1]}`:      true,
		`{"config":{"provider":"q","model":"m","reasoningEffort":"low","temperature":1,"maxTokens":2,"stop":["a"]},"adapterDefaults":{"maxTokens":true},"system":"s","tools":[{"name":"t","a":1}],"messagePrefix":[1]}`:                        false,
		`{"config":{"provider":"p","model":"m","reasoningEffort":"high","temperature":1,"maxTokens":2,"stop":["a"]},"adapterDefaults":{"maxTokens":true},"system":"s","tools":[{"name":"t","a":1}],"messagePrefix":[1]}`:                       false,
		`{"config":{"provider":"p","model":"m","reasoningEffort":"low","temperature":1,"maxTokens":2},"adapterDefaults":{"maxTokens":true},"system":"s","tools":[{"name":"t","a":1}],"messagePrefix":[1]}`:                                     false,
		`{"config":{"provider":"p","model":"m","reasoningEffort":"low","temperature":1,"maxTokens":2,"stop":["a"]},"system":"s","tools":[{"name":"t","a":1}],"messagePrefix":[1]}`:                                                             false,
		`{"config":{"provider":"p","model":"m","reasoningEffort":"low","temperature":1,"maxTokens":2,"stop":["a"]},"adapterDefaults":{"maxTokens":true,"reasoningEffort":true},"system":"s","tools":[{"name":"t","a":1}],"messagePrefix":[1]}`: false,
		`{"config":{"provider":"p","model":"m","reasoningEffort":"low","temperature":1,"maxTokens":2,"stop":["a"]},"adapterDefaults":{"maxTokens":true},"tools":[{"name":"t","a":1}],"messagePrefix":[1]}`:                                     false,
		`{"config":{"provider":"p","model":"m","reasoningEffort":"low","temperature":1,"maxTokens":2,"stop":["a"]},"adapterDefaults":{"maxTokens":true},"system":"s","tools":[{"a":1,"name":"t"}],"messagePrefix":[1]}`:                        false,
		`{"config":{"provider":"p","model":"m","reasoningEffort":"low","temperature":1,"maxTokens":2,"stop":["a"]},"adapterDefaults":{"maxTokens":true},"system":"s","tools":[{"name":"t","a":1}]}`:                                            false,
	} {
		if got := HeaderEquals(verbatimHeader([]byte(base)), verbatimHeader([]byte(in))); got != want {
			t.Errorf("%s: %v, want %v", in, got, want)
		}
	}
	if !HeaderEquals(nil, nil) || HeaderEquals(nil, &EpochHeader{}) || HeaderEquals(&EpochHeader{}, nil) {
		t.Error("a nil header equals only nil")
	}
	if !HeaderEquals(&EpochHeader{Tools: []byte(`[]`)}, &EpochHeader{MessagePrefix: []byte(`[]`)}) {
		t.Error("an absent list is an empty one")
	}
}

func TestNextHeaderEvent(t *testing.T) {
	a := &EpochHeader{Config: []byte(`{"model":"m"}`), System: []byte(`"a"`)}
	b := &EpochHeader{Config: []byte(`{"model":"m"}`), System: []byte(`"b"`), Tools: []byte(`[]`)}
	one := &EpochHeader{Config: []byte(`{"model":"m"}`), Tools: []byte(`[{"name":"x"},{"name":"y"}]`)}
	two := &EpochHeader{Config: []byte(`{"model":"m"}`), Tools: []byte(`[{"name":"y"},{"name":"x"}]`)}
	for _, tc := range []struct {
		name         string
		era          Era
		folded, next *EpochHeader
		first        bool
		want         HeaderEvent
	}{
		{"no header yet in E2", E2, nil, a, true, HeaderEvent{}},
		{"initial", E3, nil, a, true, HeaderEvent{"request/header", "initial", []byte(`{"header":{"config":{"model":"m"},"system":"a"},"reason":"initial"}`)}},
		{"initial without a first", E3, nil, a, false, HeaderEvent{"request/header", "initial", []byte(`{"header":{"config":{"model":"m"},"system":"a"},"reason":"initial"}`)}},
		{"resume without a change", E13, a, a, true, HeaderEvent{"request/header", "resume", []byte(`{"header":{"config":{"model":"m"},"system":"a"},"reason":"resume"}`)}},
		{"nothing", E13, a, a, false, HeaderEvent{}},
		{"delta", E4, a, b, false, HeaderEvent{"request/header-delta", "", []byte(`{"system":{"keepStart":0,"keepEnd":0,"insert":["b"]}}`)}},
		{"change, in canonical form", E5, a, b, false, HeaderEvent{"request/header", "change", []byte(`{"header":{"config":{"model":"m"},"system":"b"},"reason":"change"}`)}},
		{"fallback", E3, one, two, false, HeaderEvent{"request/header", "fallback", []byte(`{"header":{"config":{"model":"m"},"tools":[{"name":"y"},{"name":"x"}]},"reason":"fallback"}`)}},
	} {
		if diff := cmp.Diff(tc.want, NextHeaderEvent(tc.era, tc.folded, tc.next, tc.first)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tc.name, diff)
		}
	}
}

// What a fold holds outlives the events it came from, and an error changes
// nothing.
func TestHeaderFold(t *testing.T) {
	var f HeaderFold
	feed := func(typ, data string) error {
		buf := []byte(data)
		_, err := f.Add(&logfmt.Event{Type: typ, Seq: 4, Data: buf})
		for i := range buf {
			buf[i] = 'x'
		}
		return err
	}
	if err := feed("request/header-delta", `{"config":{"model":"m"}}`); !errors.Is(err, ErrNoSnapshot) || err.Error() != "seq 4: header delta before any header snapshot" {
		t.Errorf("error %v", err)
	}
	if err := feed("request/header", `{"header":{"config":{"model":"m"},"system":"a\nb"},"reason":"whatever"}`); err != nil {
		t.Fatal(err)
	}
	first := f.Header
	if err := feed("request/header-delta", `{"system":{"keepStart":1,"keepEnd":0,"insert":["c"]}}`); err != nil {
		t.Fatal(err)
	}
	if err := feed("request/header-delta", `{"system":null}`); err == nil || err.Error() != "seq 4: data.system is null, want an object" {
		t.Errorf("error %v", err)
	}
	if err := feed("request/header", `{"reason":"change"}`); err == nil || err.Error() != "seq 4: data.header is absent, want an object" {
		t.Errorf("error %v", err)
	}
	if err := feed("assistant/chunk", `{}`); err != nil {
		t.Error(err)
	}
	if got, want := string(f.Header.JSON()), `{"config":{"model":"m"},"system":"a\nc"}`; got != want {
		t.Errorf("folds to %s, want %s", got, want)
	}
	if got, want := string(first.JSON()), `{"config":{"model":"m"},"system":"a\nb"}`; got != want {
		t.Errorf("an earlier header became %s, want %s", got, want)
	}
}

func TestScrubbed(t *testing.T) {
	for in, want := range map[string]bool{
		`{"system":"{{system}}"}`:                           true,
		`{"tools":"{{tools}}"}`:                             true,
		`{"tools":[{"name":"a","parameters":"{{tools}}"}]}`: true,
		`{"messagePrefix":["{{messagePrefix}}"]}`:           true,
		`{"system":"a {{system}}","tools":[{"name":"a"}]}`:  false,
		`{}`: false,
	} {
		if got := verbatimHeader([]byte(in)).Scrubbed(); got != want {
			t.Errorf("header %s: %v, want %v", in, got, want)
		}
	}
	for in, want := range map[string]bool{
		`{"system":{"keepStart":3,"keepEnd":0,"insert":["{{system}}","{{system}}"]}}`:            true,
		`{"tools":{"added":[{"name":"a","description":"{{tools}}"}],"removed":[],"changed":[]}}`: true,
		`{"tools":{"added":[],"removed":[],"changed":["{{tools}}"]}}`:                            true,
		`{"messagePrefix":["{{messagePrefix}}"]}`:                                                true,
		`{"system":{"keepStart":3,"keepEnd":0,"insert":["about {{system}}"]}}`:                   false,
		`{"config":{"model":"{{system}}"}}`:                                                      false,
		`null`:                                                                                   false,
	} {
		if got := ScrubbedDelta([]byte(in)); got != want {
			t.Errorf("delta %s: %v, want %v", in, got, want)
		}
	}
	if (*EpochHeader)(nil).Scrubbed() {
		t.Error("no header is scrubbed")
	}
}
