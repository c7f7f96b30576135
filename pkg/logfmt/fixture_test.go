package logfmt

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

func readText(t testing.TB, text string) (l *Log, events []*Event) {
	t.Helper()
	l, err := NewReader(strings.NewReader(text), "session.jsonl", Options{})
	if err != nil {
		t.Fatal(err)
	}
	for e, d := range l.Events() {
		if d == nil {
			events = append(events, e.Clone())
		}
	}
	return l, events
}

// TestFixtures reads fixtures of both styles, made by projection from recorded
// sessions.
func TestFixtures(t *testing.T) {
	const both = SyntheticSeq | SyntheticTime
	for _, c := range []struct {
		file      string
		container Container
		events    int
		synthetic Synthetic // of every event
		headers   string    // system and tools of each header event: expanded, token, or text that was there
	}{
		{"packed-tools/session.jsonl", Golden, 66, both, "expanded expanded"},
		{"no-files/session.jsonl", Golden, 20, both, "token absent"},
		{"unscrubbed/session.jsonl", Golden, 90, both, "text text"},
		{"changes/session.jsonl", Golden, 120, both, strings.TrimSpace(strings.Repeat("expanded absent, ", 9) + "expanded absent")},
		{"early-deltas/session.jsonl", Plain, 203, 0, "token token, token token, token token, token token, token token, token token"},
		{"early-prefix/session.jsonl", Plain, 48, 0, "token absent, token absent"},
		{"early-files/session.jsonl", Plain, 56, 0, "expanded expanded"},
		{"family/session.jsonl", Golden, 44, both, "expanded absent"},
		{"family/session.1.jsonl", Golden, 58, both, "expanded absent, expanded absent"},
	} {
		t.Run(c.file, func(t *testing.T) {
			path := filepath.Join("testdata", "fixtures", c.file)
			unchanged(t, filepath.Dir(path))
			l, err := OpenFile(path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			for range 2 { // the second time from the file again
				n, headers := 0, []string{}
				for e, d := range l.Events() {
					if d != nil {
						t.Fatal(d)
					}
					if e.Seq != int64(n) || e.Time != 0 || e.Fault != 0 || e.Synthetic&^SyntheticHeader != c.synthetic {
						t.Fatalf("event %d: seq %d, time %d, fault %b, synthetic %b", n, e.Seq, e.Time, e.Fault, e.Synthetic)
					}
					if canon, facts, err := jsjson.Stringify(e.JSON); err != nil || !facts.Canonical() || !bytes.Equal(jsjson.Get(canon, "data"), e.Data) {
						t.Fatalf("event %d: %s, data %s, %v", n, e.JSON, e.Data, err)
					}
					if want := fmt.Sprintf(`,"seq":%d,"time":0,"data":`, n); !bytes.Contains(e.JSON, []byte(want)) {
						t.Fatalf("event %d: %s, want %s in it", n, e.JSON, want)
					}
					n++
					if e.Type != TypeRequestHeader {
						continue
					}
					word := func(key string) string {
						v := jsjson.Get(jsjson.Get(e.Data, "header"), key)
						switch {
						case v == nil:
							return "absent"
						case string(v) == tokenSystem, string(v) == tokenTools:
							return "token"
						case e.Synthetic&SyntheticHeader != 0:
							return "expanded"
						}
						return "text"
					}
					headers = append(headers, word("system")+" "+word("tools"))
				}
				if got := strings.Join(headers, ", "); n != c.events || got != c.headers || l.Class() != Intact || l.Container != c.container || !l.Fixture() && c.container == Golden {
					t.Errorf("%s, %s, %d events, headers: %s; want %s, %d, %s", l.Container, l.Class(), n, got, c.container, c.events, c.headers)
				}
			}
		})
	}
}

var (
	place  = regexp.MustCompile(`^(\{"type":"[^"]+"),"seq0?":[0-9]+,"time0?":-?[0-9]+`)
	timeOf = regexp.MustCompile(`^(\{"type":"[^"]+","seq":[0-9]+,"time":)(-?[0-9]+)`)
)

// TestProjected: whatever log is projected, the same events come back, with seq
// counted and without their times.
func TestProjected(t *testing.T) {
	globs := []string{filepath.Join(corpus.Root(t), "goldens", "sound", "*", "session*.jsonl")}
	if dir, ok := corpus.Dir(t); ok {
		for _, g := range []string{"head/*/session*.jsonl", "july/*/session.jsonl", "migrated/*/*/session.v*.jsonl"} {
			globs = append(globs, filepath.Join(dir, g))
		}
	}
	read, skipped := 0, 0
	for _, g := range globs {
		files, err := filepath.Glob(g)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no logs, %v", g, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			l, want := readText(t, string(text))
			// Projection is defined for sound logs of canonical rows only.
			sound := l.Class() == Intact && l.Container == Plain && len(want) > 0
			for _, e := range want {
				sound = sound && e.Facts == 0 && e.Fault&^FaultSourceRuns == 0
			}
			if !sound {
				skipped++
				continue
			}
			var projected strings.Builder
			rows := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
			projected.WriteString(rows[0])
			for _, r := range rows[1:] {
				if !place.MatchString(r) {
					t.Fatalf("%s: %s", file, r)
				}
				projected.WriteString(place.ReplaceAllString(r, "$1"))
			}
			projected.WriteString("\n")
			l, got := readText(t, projected.String())
			if l.Container != Golden || l.Class() != Intact || len(got) != len(want) {
				t.Fatalf("%s: %s, %s, %d events, want %d: %v", file, l.Container, l.Class(), len(got), len(want), l.Defects())
			}
			base := int64(0)
			for i, w := range want {
				if w.Pos.Member < 1 {
					base = w.Time
				}
				at := fmt.Sprintf("${1}%d", w.Time-base)
				if w := timeOf.ReplaceAllString(string(w.JSON), at); string(got[i].JSON) != w || !bytes.Equal(got[i].Data, want[i].Data) ||
					!bytes.Equal(got[i].Op, want[i].Op) || !bytes.Equal(got[i].Sources, want[i].Sources) || got[i].Pos.Line != want[i].Pos.Line {
					t.Fatalf("%s: event %d:\ngot  %s\nwant %s", file, i, got[i].JSON, w)
				}
			}
			read++
		}
	}
	t.Logf("%d logs projected and read back, %d others passed over", read, skipped)
	if read < 40 {
		t.Errorf("%d logs, want 40 at least", read)
	}
}

func TestFixtureHeader(t *testing.T) {
	const row = `{"type":"turn/start","data":{"turn":1}}` + "\n"
	for _, c := range []struct{ header, want string }{
		{`{"type":"session","version":0,"id":"a","createdAt":0,"delegationDepth":0}`, "golden intact 1"},
		{`{"type":"session","id":"a","createdAt":0}`, "golden intact 1"},
		{`{"type":"session","version":0,"id":"{{sessionId}}","createdAt":0,"cwd":"{{cwd}}/sub","origin":"subagent"}`, "golden intact 1"},
		{`{"type":"session","version":4,"id":"a","createdAt":0,"isSeeded":false}`, "golden intact 1"},
		{`{"type":"session","version":4,"id":"a","createdAt":0,"delegationDepth":0}`, "golden corrupt 1 LOG-HEADER header record: isSeeded is missing, which every header of generation 4 has"},
		{`{"type":"session","version":99,"id":"a","createdAt":0}`, "golden unsupported 0 LOG-FORMAT format version 99: this build reads generations 0 to 4"},
		{`{"type":"session","version":"0","id":"a","createdAt":0}`, `golden corrupt 1 LOG-HEADER header record: expected a number as version, got "0"`},
		{`{"type":"session","version":0,"createdAt":0}`, "golden corrupt 1 LOG-HEADER header record: expected a string as id, got nothing"},
		{`{"type":"session","version":0,"id":"a","createdAt":0,"delegationDepth":-1}`, "golden corrupt 1 LOG-HEADER header record: delegationDepth must be a non-negative safe integer, got -1"},
		{`{"type":"other"}`, `jsonl corrupt 1 LOG-HEADER header record: expected type "session", got "other" LOG-SEQ the event has no seq, expected seq 0`},
	} {
		l, events := readText(t, c.header+"\n"+row)
		got := fmt.Sprintf("%s %s %d", l.Container, l.Class(), len(events))
		for _, d := range l.Defects() {
			got += fmt.Sprintf(" %s %s", d.Rule, d.Message)
		}
		if got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.header, got, c.want)
		}
	}
}

// TestFixtureRows: what is wrong with a row of a fixture.
func TestFixtureRows(t *testing.T) {
	const head = `{"type":"session","version":0,"id":"a","createdAt":0,"delegationDepth":0}` + "\n"
	const start = `{"type":"turn/start","data":{"turn":1}}` + "\n"
	const end = `{"type":"turn/end","data":{"turn":1,"reason":{"kind":"completed"}}}` + "\n"
	const row = `{"type":"text-chunks","data":{"turn":1,"step":1,"index":0,"dt":[3,4],"texts":["a","b","c"]}}` + "\n"
	for _, c := range []struct {
		name, rows, want string
	}{
		{"sound", start + row + end, "0:0 1:0 2:3 3:7 4:0 intact"},
		{"empty data of a row", start + `{"type":"text-chunks"}` + "\n" + end,
			"0:0 1:0! corrupt LINE-ROW malformed text-chunks storage row: envelope must be exactly {type, data} in a projected fixture"},
		{"a row with too much", start + strings.Replace(row, `"data"`, `"more":1,"data"`, 1),
			"0:0 torn LINE-ROW malformed text-chunks storage row: envelope must be exactly {type, data} in a projected fixture"},
		{"a malformed row", start + strings.Replace(row, `[3,4]`, `[3]`, 1) + row,
			"0:0 1:0! 2:3! 3:7! torn LINE-ROW malformed text-chunks storage row: dt length 1 does not match 3 members"},
		{"broken line", start + "{\n" + end, "0:0 1:0! corrupt LINE-JSON not valid JSON: expected key or '}', got end of input"},
		{"null", start + "null\n", "0:0 corrupt LINE-VALUE the line is null, expected the event with seq 1"},
		{"number", start + "7\n", "0:0 torn LINE-VALUE the line is a number, expected an object with seq 1"},
		{"torn", start + strings.TrimSuffix(end, "\n"), "0:0 torn LINE-TORN the last line has no line feed: it reads as a whole record, but the harness drops it"},
		{"first event lost its place", start + `{"type":"turn/end","seq":1,"time":7,"data":{"turn":1,"reason":{"kind":"completed"}}}` + "\n" + `{"type":"x","seq":2,"time":8,"data":{}}` + "\n",
			"0:0 2:8! corrupt LOG-ENV the row has a seq or a time of its own, the rows before it have none: expected neither, and seq 1 by its place"},
		{"and then another", start + `{"type":"x","seq":1,"time":7,"data":{}}` + "\n" + `{"type":"x","seq":5,"time":8,"data":{}}` + "\n" + end,
			"0:0 5:8! 6:0! corrupt LOG-ENV the row has a seq or a time of its own, the rows before it have none: expected neither, and seq 1 by its place"},
		{"a row with a place", start + `{"type":"text-chunks","seq0":1,"time0":5,"data":{"turn":1,"step":1,"index":0,"dt":[],"texts":["a"]}}` + "\n",
			"0:0 corrupt LOG-ENV the row has a seq or a time of its own, the rows before it have none: expected neither, and seq 1 by its place"},
		{"keys in another order", start + `{"data":{},"type":"x"}` + "\n", "0:0 1:0 intact"},
		{"no type", start + `{"data":{}}` + "\n" + `{}` + "\n", "0:0 1:0 2:0 intact"},
	} {
		l, events := readText(t, head+c.rows)
		got := ""
		for _, e := range events {
			got += fmt.Sprintf("%d:%d", e.Seq, e.Time)
			if e.AfterDamage {
				got += "!"
			}
			got += " "
			if canon, facts, err := jsjson.Stringify(e.JSON); err != nil || !facts.Canonical() || !bytes.Contains(canon, []byte(fmt.Sprintf(`"seq":%d,"time":%d`, e.Seq, e.Time))) {
				t.Errorf("%s: event %s: %v", c.name, e.JSON, err)
			}
		}
		got += string(l.Class())
		for _, d := range l.Defects() {
			got += fmt.Sprintf(" %s %s", d.Rule, d.Message)
		}
		if got != c.want || l.Container != Golden {
			t.Errorf("%s: %s\ngot  %s\nwant %s", c.name, l.Container, got, c.want)
		}
	}
}

func TestParsePrompts(t *testing.T) {
	for _, c := range []struct {
		text string
		want map[int]string
	}{
		{"", map[int]string{0: `""`}},
		{"one\n", map[int]string{0: `"one"`}},
		{"one\n\n", map[int]string{0: `"one\n"`}},
		{"one", map[int]string{0: `"one"`}},
		{"one\n\n<!-- request/header change 1 -->\n\ntwo\n\n<!-- request/header change 3 -->\n\n\n", map[int]string{0: `"one"`, 1: `"two"`, 3: `""`}},
		{"a\n<!-- request/header change 1 -->\nb\n", map[int]string{0: `"a\n<!-- request/header change 1 -->\nb"`}},
		{"\xff\n", map[int]string{0: "\"\ufffd\""}},
	} {
		if d := cmp.Diff(c.want, parsePrompts([]byte(c.text))); d != "" {
			t.Errorf("%q: %s", c.text, d)
		}
	}
	for text, want := range map[string]string{
		`{"initial":[],"changes":[[1],[2]]}`: "map[0:[] 1:[1] 2:[2]]",
		`{ "initial": [ {"a" : 1} ] }`:       `map[0:[{"a":1}]]`,
		`{"initial":{}}`:                     "initial is an object, expected the list of tools",
		`{"changes":[]}`:                     "initial is nothing, expected the list of tools",
		`{"initial":[],"changes":{}}`:        "changes is an object, expected a list of lists of tools",
		`{"initial":[],"changes":[[],{}]}`:   "change 2 is an object, expected the list of tools",
		`{`:                                  "offset 1: expected key or '}', found end of input",
	} {
		got := ""
		if m, err := parseTools([]byte(text)); err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprint(m)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// TestSnapshots: which of the prompts beside a fixture belongs to a header, and
// where that is open.
func TestSnapshots(t *testing.T) {
	const change = "\n\n<!-- request/header change %d -->\n\n"
	header := func(reason string) string {
		return `{"type":"request/header","data":{"header":{"config":{},"system":"{{system}}","tools":"{{tools}}"},"reason":"` + reason + `"}}` + "\n"
	}
	many := "a" + fmt.Sprintf(change, 1) + "b" + fmt.Sprintf(change, 2) + "c\n"
	for _, c := range []struct {
		name    string
		reasons string
		files   map[string]string
		want    string
	}{
		{"none", "initial", nil, "- -"},
		{"one for all", "initial resume change", map[string]string{"system-prompt.expected.md": "a\n"}, "a - a - a -"},
		{"changes", "initial change change change", map[string]string{"system-prompt.expected.md": many}, "a - b - c - - -"},
		{"a header between", "initial resume change change", map[string]string{"system-prompt.expected.md": many}, "a - - - - - - -"},
		{"a header between, nothing changed", "initial resume change", map[string]string{"system-prompt.expected.md": "a" + fmt.Sprintf(change, 1) + "b" + fmt.Sprintf(change, 2) + "b\n"}, "a - - - b -"},
		{"tools alone", "initial change", map[string]string{"tool-schemas.expected.json": `{"initial":[1],"changes":[[2]]}`}, "- [1] - [2]"},
		{"the older names", "initial", map[string]string{"system-prompt.golden.md": "a", "tool-schemas.golden.json": `{"initial":[1]}`}, "a [1]"},
		{"of another log", "initial", map[string]string{"system-prompt.1.expected.md": "a"}, "- -"},
		{"a link", "initial", map[string]string{"secret": "a", "system-prompt.expected.md": "-> secret"}, "- -"},
		{"unreadable", "initial", map[string]string{"tool-schemas.expected.json": "[]", "system-prompt.expected.md": "a"},
			"LOG-FIXTURE tool-schemas.expected.json: initial is nothing, expected the list of tools; a -"},
		{"huge", "initial", map[string]string{"system-prompt.expected.md": strings.Repeat("x", maxSnapshot+1)},
			"LOG-FIXTURE system-prompt.expected.md: more than 16777216 bytes; - -"},
	} {
		text := `{"type":"session","version":0,"id":"a","createdAt":0}` + "\n"
		for _, r := range strings.Fields(c.reasons) {
			text += header(r)
		}
		files := map[string]string{"session.jsonl": text}
		for k, v := range c.files {
			files[k] = v
		}
		dir := tree(t, files)
		l, err := OpenFile(filepath.Join(dir, "session.jsonl"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for e, d := range l.Events() {
			if d != nil {
				got = append(got, d.Rule+" "+d.Message+";")
				continue
			}
			h := jsjson.Get(e.Data, "header")
			for _, k := range []string{"system", "tools"} {
				v := string(jsjson.Get(h, k))
				if strings.Contains(v, "{{") {
					v = "-"
				}
				got = append(got, strings.Trim(v, `"`))
			}
			if expanded := e.Synthetic&SyntheticHeader != 0; expanded != (got[len(got)-1] != "-" || got[len(got)-2] != "-") {
				t.Errorf("%s: synthetic %b with %v", c.name, e.Synthetic, got)
			}
		}
		if g := strings.Join(got, " "); g != c.want || l.Class() != Intact {
			t.Errorf("%s: %s: got %s, want %s", c.name, l.Class(), g, c.want)
		}
	}
	// A stream has nothing beside it, whatever its name.
	l, events := readText(t, `{"type":"session","version":0,"id":"a","createdAt":0}`+"\n"+header("initial"))
	if len(events) != 1 || events[0].Synthetic&SyntheticHeader != 0 || len(l.Defects()) != 0 {
		t.Errorf("a stream: %v", events)
	}
}

// FuzzFixture: rows of a fixture get the seqs in order, and what comes out is
// canonical.
func FuzzFixture(f *testing.F) {
	const start = `{"type":"turn/start","data":{"turn":1}}` + "\n"
	for _, s := range []string{
		start, start + `{"type":"text-chunks","data":{"turn":1,"step":1,"index":0,"dt":[3],"texts":["a","b"]}}` + "\n" + start,
		start + "{}\n{\"data\":1}\nnull\n", start + `{"type":"x","seq":7,"data":{}}` + "\n" + start,
		start + `{"type":"request/header","data":{"header":{"tools":"{{tools}}","x":[1],"system":"{{system}}"}}}` + "\n",
		start + `{"data":{"header":{"system":"{{system}}"}},"ignorable":true,"type":"request/header"}` + "\n",
	} {
		f.Add(s)
	}
	shots := &snapshots{system: map[int]string{0: `"a long prompt"`}, tools: map[int]string{0: `[{"name":"x"}]`}}
	f.Fuzz(func(t *testing.T, rows string) {
		l, err := NewReader(strings.NewReader(`{"type":"session","id":"a","createdAt":0}`+"\n"+rows), "session.jsonl", Options{})
		if err != nil {
			t.Fatal(err)
		}
		if src, ok := l.first.(*lineSource); ok {
			own := *shots
			src.snapshots = &own
		}
		n, own := int64(0), true
		for e, d := range l.Events() {
			if d != nil {
				own = false
				continue
			}
			if own && l.Container == Golden && e.Seq != n {
				t.Fatalf("seq %d, want %d", e.Seq, n)
			}
			n++
			if e.Synthetic == 0 {
				continue
			}
			canon, facts, err := jsjson.Stringify(e.JSON)
			if err != nil || !bytes.Equal(canon, e.JSON) || !facts.Canonical() {
				t.Fatalf("event %s is %s, %v", e.JSON, canon, err)
			}
			if got, ok := jsjson.SafeInt(jsjson.Get(canon, "seq")); e.Synthetic&SyntheticSeq != 0 && (!ok || got != e.Seq) || !bytes.Equal(jsjson.Get(canon, "data"), e.Data) {
				t.Fatalf("event %s: seq %d, data %s", canon, e.Seq, e.Data)
			}
		}
	})
}
