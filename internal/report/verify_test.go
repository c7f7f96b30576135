package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/ui"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func p64(n int64) *int64 { return &n }

// hostile holds what a format might take for its own: control sequences, markup,
// ends of CDATA, workflow commands, links, lone surrogates, bytes that are no text.
const hostile = "\x1b[31m]]>&<b>\r\n::error::x%0A|`*[a](http://e)\u202e\ufffe\ufeff\xed\xa0\x80"

// samples are results of every kind.
func samples() []*Result {
	gen := int64(0)
	ok := &Result{Path: "logs/a.jsonl", Session: "a", Container: "jsonl", Generation: &gen, Eras: []string{"E10-E13"}, Mode: "surface",
		Events: 49, Requests: Requests{Exact: 4, Candidates: 1}, Verdict: "ok",
		Usage: &Usage{Requests: Tokens{Reports: 4, Input: 100, Output: 30, CacheRead: 900, CacheWrite: 50, Reasoning: 10}, Silent: 1,
			Compactions: &Tokens{Reports: 1, Input: 7, Output: 2}, Inherited: 3, CacheChecked: 3},
		Resumes: &Resumes{Clean: 2, Drifted: 1}, Lineage: &Lineage{Parent: hostile, Inherited: 9, Own: 40, Compared: 9, Upgraded: 1}, Extended: 2,
		Paranoid: &Paranoid{Checked: 3, Of: 4}}
	bad := &Result{Path: "/w/logs/b.jsonl", File: "logs/b.jsonl", Session: "b", Container: "jsonl", Generation: &gen, Eras: []string{"E5", "E6"},
		Mode: "surface", Events: 20, Requests: Requests{Exact: 1}, Verdict: "violations", Errors: 3, Warnings: 1, Notes: 1, Fails: true,
		Findings: []Finding{
			{Rule: "SURF-MARKER", Severity: "error", Line: 15, Offset: p64(2464), Seq: p64(13), Turn: p64(1), Step: p64(1), Path: "surfaceOp",
				Message: "no surfaceOp", Hint: "look at it", Related: []Related{{Line: 3, Seq: p64(1), Message: "the turn starts here"}, {Message: "and\nmore"}}},
			{Rule: "SURF-MARKER", Severity: "error", Line: 16, Offset: p64(2600), Seq: p64(13), Path: "surfaceOp", Message: "again", More: 2},
			{Rule: "LOG-TIME", Severity: "warning", Line: 17, Seq: p64(14), Message: "goes back"},
			{Rule: "NO-SUCH", Severity: "note", Message: "a note"},
		},
		Omitted: []Omitted{{"SURF-MARKER", 1}}}
	wild := &Result{Path: Text("logs/" + hostile + "\xff.sqlite"), Session: Text(hostile), Container: "sqlite", Eras: []string{"E13"}, Mode: "surface",
		Events: 1, Verdict: "corrupt", Errors: 1, Fails: true,
		Findings: []Finding{{Rule: "DB-DATA", Severity: "error", Row: p64(7), Seq: p64(7), Path: Text(hostile), Message: Text(hostile), Hint: Text(hostile),
			Related: []Related{{Seq: p64(1), Message: Text(hostile)}}}}}
	torn := &Result{Path: "logs/t.jsonl.zstd", Session: "t", Container: "zstd", Generation: &gen, Eras: []string{"E13"}, Mode: "surface", Events: 3,
		Lineage: &Lineage{Inherited: 1, Own: 2, Missing: true}, Paranoid: &Paranoid{Skipped: "standard input can be read only once"},
		Verdict: "torn", Warnings: 1, Known: &Known{Errors: 1, Notes: 2},
		Damage: &Damage{Kind: "torn", Rule: "FRAME-TORN", Message: "cut", At: DamageAt{Line: 5, Offset: p64(99), Frame: new(int), FrameOffset: p64(80), Seq: p64(3)},
			Before:  Extent{Events: 3, First: p64(0), Last: p64(2), Turns: 1, LastTurn: p64(1)},
			Harness: Harness{Build: "2026-08-21", Action: "cut", Byte: p64(80), Adds: []Added{{Type: "turn/end", Seq: 3}}},
			Next:    "dsh-replay export --to zstd -o t.repaired.jsonl.zstd --repair logs/t.jsonl.zstd"},
		Findings: []Finding{{Rule: "FRAME-TORN", Severity: "warning", Line: 5, Offset: p64(99), Frame: new(int), Message: "cut"}}}
	none := &Result{Path: "../gone.jsonl", Verdict: "unreadable", Errors: 1, Fails: true,
		Findings: []Finding{{Rule: "LOG-READ", Severity: "error", Message: "no such file or directory"}}}
	later := &Result{Path: "logs/v9.jsonl", Container: "jsonl", Verdict: "unsupported", Errors: 1, Fails: true,
		Findings: []Finding{{Rule: "LOG-FORMAT", Severity: "error", Line: 1, Offset: p64(0), Message: "format version 9"}}}
	place := &Result{Path: "logs", Container: "directory", Whole: true, Verdict: "warn", Warnings: 1,
		Findings: []Finding{{Rule: "ROOT-ENTRY", Severity: "warning", Message: "x: a symbolic link"}}}
	quiet := &Result{Path: "other", Container: "directory", Whole: true, Verdict: "ok", Notes: 1,
		Findings: []Finding{{Rule: "ROOT-TEMP", Severity: "note", Message: "left over"}}}
	return []*Result{ok, bad, wild, torn, none, later, place, quiet}
}

// sampleRules explains every rule but one.
func sampleRules(id string) *RuleInfo {
	if id == "NO-SUCH" {
		return nil
	}
	sev := "error"
	switch id {
	case "LOG-TIME", "FRAME-TORN", "ROOT-ENTRY":
		sev = "warning"
	case "ROOT-TEMP":
		sev = "note"
	}
	return &RuleInfo{ID: id, Severity: sev, Title: "title of " + id, Text: "Text of " + id + ".", How: "How of " + id + ".", Advice: "Advice of " + id + "."}
}

func write(t *testing.T, v VerifyWriter, results []*Result, sum *Summary) {
	t.Helper()
	for _, r := range results {
		sum.Tally(r)
		if err := v.Result(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.Close(sum, "dsh-verify explain SURF-MARKER"); err != nil {
		t.Fatal(err)
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
}

// allFormats writes the samples in every format.
func allFormats(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string]*bytes.Buffer{}
	buf := func(name string) *bytes.Buffer {
		out[name] = new(bytes.Buffer)
		return out[name]
	}
	var summary bytes.Buffer
	for _, v := range []VerifyWriter{
		NewVerifyText(buf("text.txt"), sampleRules, ui.NewPalette(false), false, 0),
		NewVerifyText(buf("narrow.txt"), sampleRules, ui.NewPalette(true), true, 60),
		NewVerifyJSON(buf("report.json"), sampleRules, nil),
		NewVerifyJSON(buf("shard.json"), sampleRules, &Shard{2, 3}),
		NewVerifyLines(buf("report.jsonl"), sampleRules, &Shard{2, 3}),
		NewVerifyJUnit(buf("junit.xml"), sampleRules),
		NewVerifySARIF(buf("report.sarif"), sampleRules, true, "v1.2.3"),
		NewVerifyGitHub(buf("github.txt"), sampleRules, true, &summary, SummaryLimit),
	} {
		write(t, v, samples(), &Summary{Skipped: 2, NotRun: []string{"LOG-TIME"}, Config: ".dsh-audit.yaml", Empty: []Text{"void"}})
	}
	out["summary.md"] = &summary
	all := map[string][]byte{}
	for name, b := range out {
		all[name] = b.Bytes()
	}
	return all
}

func TestVerifyFormats(t *testing.T) {
	for name, got := range allFormats(t) {
		golden(t, name, got)
	}
}

// No format lets a character of a log act on a terminal, and none writes a line
// that GitHub Actions would take for a command of the log's making.
func TestVerifyFormatsAreSafe(t *testing.T) {
	for name, got := range allFormats(t) {
		text := string(got)
		if name == "narrow.txt" {
			text = regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(text, "")
		}
		for line := range strings.Lines(text) {
			body := strings.TrimSuffix(line, "\n")
			if ui.Escape(strings.ReplaceAll(body, "\t", "")) != strings.ReplaceAll(body, "\t", "") {
				t.Errorf("%s: unsafe line %q", name, body)
			}
			if strings.HasPrefix(strings.TrimSpace(body), "::") && (name != "github.txt" || !regexp.MustCompile(`^::(error|warning|notice) (file=|title=)`).MatchString(body)) {
				t.Errorf("%s: a workflow command: %q", name, body)
			}
		}
		if strings.Contains(name, "narrow") {
			for line := range strings.Lines(text) {
				if w := visible(strings.TrimSuffix(line, "\n")); w > 60 && strings.Contains(strings.TrimSpace(line), " ") && !strings.Contains(line, "[31m") {
					t.Errorf("%s: %d columns: %q", name, w, line)
				}
			}
		}
	}
}

// schema compiles the schema of the documentation, made strict: a member that it
// does not know is a failure here.
func schema(t *testing.T, pointer string) *jsonschema.Schema {
	t.Helper()
	f, err := os.Open(filepath.Join(corpus.Root(t), "docs", "verify.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	doc, err := jsonschema.UnmarshalJSON(f)
	if err != nil {
		t.Fatal(err)
	}
	strict(doc.(map[string]any), true)
	delete(doc.(map[string]any), "$id")
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:///schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("mem:///schema.json" + pointer)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// strict closes every object that is not itself a part of a larger one.
func strict(s map[string]any, whole bool) {
	_, isRef := s["$ref"]
	if whole && (isRef || s["properties"] != nil || s["allOf"] != nil) {
		s["unevaluatedProperties"] = false
	}
	each := func(v any, whole bool) {
		for _, x := range v.(map[string]any) {
			if m, ok := x.(map[string]any); ok {
				strict(m, whole)
			}
		}
	}
	for k, v := range s {
		switch v := v.(type) {
		case map[string]any:
			switch k {
			case "$defs":
				each(v, false)
			case "properties":
				each(v, true)
			case "items":
				strict(v, true)
			}
		case []any:
			for _, x := range v {
				if m, ok := x.(map[string]any); ok {
					strict(m, k == "oneOf")
				}
			}
		}
	}
}

func validate(t *testing.T, s *jsonschema.Schema, doc []byte) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

func TestVerifySchema(t *testing.T) {
	all := allFormats(t)
	whole, line := schema(t, ""), schema(t, "#/$defs/line")
	for _, name := range []string{"report.json", "shard.json"} {
		if err := validate(t, whole, all[name]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	n := 0
	for l := range bytes.Lines(all["report.jsonl"]) {
		if err := validate(t, line, l); err != nil {
			t.Errorf("%s: %v", l, err)
		}
		n++
	}
	if want := 1 + 8 + 10 + 1; n != want {
		t.Errorf("%d lines, want %d", n, want)
	}
	// The schema can fail.
	for _, c := range []struct{ old, new string }{
		{`"verdict":"ok"`, `"verdict":"fine"`},
		{`"events":49`, `"events":-1`},
		{`"rule":"LOG-READ"`, `"rule":"log read"`},
		{`"events":49`, `"evens":49`},
		{`"severity":"error","line":15`, `"severity":"error","column":1,"line":15`},
		{`"skipped":2`, `"skiped":2`},
	} {
		if !bytes.Contains(all["report.json"], []byte(c.old)) {
			t.Fatalf("no %s", c.old)
		}
		if validate(t, whole, bytes.Replace(all["report.json"], []byte(c.old), []byte(c.new), 1)) == nil {
			t.Errorf("the schema takes %s for %s", c.new, c.old)
		}
	}
}

// What was read is what was written, and reads the same again.
func TestVerifyReader(t *testing.T) {
	for _, name := range []string{"report.json", "shard.json"} {
		doc := allFormats(t)[name]
		r, err := NewVerifyReader(bytes.NewReader(doc))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		w := NewVerifyJSON(&out, sampleRules, r.Shard())
		for {
			res, err := r.Next()
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if err := w.Result(res); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(r.Summary(), ""); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(doc), out.String()); d != "" {
			t.Errorf("%s (-first +second):\n%s", name, d)
		}
		// A report that is cut anywhere is no report.
		for n := range len(doc) - 1 {
			if n%7 != 0 && n < len(doc)-40 {
				continue
			}
			if err := readAll(doc[:n]); err == nil {
				t.Fatalf("%s cut at %d of %d bytes is read", name, n, len(doc))
			} else if !strings.Contains(err.Error(), "complete") && !strings.HasPrefix(err.Error(), "not a report") {
				t.Fatalf("cut at %d: %v", n, err)
			}
		}
	}
	for _, c := range []struct{ doc, want string }{
		{`[]`, "not a report of dsh-verify --format json: byte 1: expected {"},
		{`{"schema":"dsh-audit/verify/2"`, `not a report of dsh-verify --format json: byte 30: schema "dsh-audit/verify/2", expected "dsh-audit/verify/1"`},
		{`{"schema":"dsh-audit/verify/1","results":[{"verdict":"good"}`, `not a report of dsh-verify --format json: byte 60: unknown verdict "good"`},
		{`{"schema":"dsh-audit/verify/1","results":[],"summary":{"logs":1}}`, `not a report of dsh-verify --format json: byte 65: the summary counts 1 result, the report holds 0`},
		{`{"schema":"dsh-audit/verify/1","results":[],"rules":[]}`, `not a report of dsh-verify --format json: byte 55: expected the member "summary"`},
		{`{"schema":"dsh-audit/verify/1","results":[],"summary":{}} {}`, `not a report of dsh-verify --format json: byte 59: expected the end of the file`},
		{`{"schema":"dsh-audit/verify/1","results":[{"verdict":"ok","findings":[{"rule":"A\u001b[2J","severity":"note"}]}`,
			`not a report of dsh-verify --format json: byte 111: "A\x1b[2J" is not the id of a rule`},
		{`{"schema":"dsh-audit/verify/1","results":[{"verdict":"ok","findings":[{"rule":"A","severity":"\n::error::"}]}`,
			`not a report of dsh-verify --format json: byte 109: unknown severity "\n::error::"`},
		{`{"schema":"dsh-audit/verify/1","results":[{"verdict":"ok","omitted":[{"rule":""}]}`,
			`not a report of dsh-verify --format json: byte 82: "" is not the id of a rule`},
		{`{"schema":"dsh-audit/verify/1","results":[{"verdict":"ok","damage":{"kind":"\u001b"}}`,
			`not a report of dsh-verify --format json: byte 85: unknown kind of damage "\x1b"`},
		{`{"schema":"dsh-audit/verify/1","results":[{"verdict":"ok","migration":{"stage":"\u001b"}}`,
			`not a report of dsh-verify --format json: byte 89: unknown stage or rule of a migration "\x1b"`},
		{`{"schema":"dsh-audit/verify/1","results":[],"summary":{"notRun":["\u001b"]}}`,
			`not a report of dsh-verify --format json: byte 76: "\x1b" is not the id of a rule`},
	} {
		if err := readAll([]byte(c.doc)); err == nil || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", c.doc, err, c.want)
		}
	}
}

func readAll(doc []byte) error {
	r, err := NewVerifyReader(bytes.NewReader(doc))
	for err == nil {
		_, err = r.Next()
	}
	if err == io.EOF {
		return nil
	}
	return err
}

func TestBaselineFile(t *testing.T) {
	b := &Baseline{Findings: []KnownEntry{
		{Key{Rule: "LOG-TIME", File: "a.jsonl", Seq: p64(3)}, 1},
		{Key{Rule: "DB-DATA", File: Text(hostile), Session: Text(hostile), Path: "data.x"}, 7},
	}}
	var out bytes.Buffer
	if err := b.Write(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, "baseline.json", out.Bytes())
	got, err := ReadBaseline(&out)
	if err != nil {
		t.Fatal(err)
	}
	b.Schema = BaselineSchema
	if d := cmp.Diff(b, got); d != "" {
		t.Errorf("(-written +read):\n%s", d)
	}
	for _, c := range []struct{ doc, want string }{
		{``, "not a baseline: the file ends before it is complete"},
		{`{"schema":"dsh-audit/baseline/1","findings":[`, "not a baseline: the file ends before it is complete"},
		{`{"schema":"x","findings":[]}`, `not a baseline: schema "x", expected "dsh-audit/baseline/1"`},
		{`{"schema":"dsh-audit/baseline/1","findings":[{"rule":"A","file":"f","count":0}]}`, "not a baseline: finding 1 has no rule, no file or no count"},
		{`{"schema":"dsh-audit/baseline/1","findings":[{"rule":"A","file":"f","count":1,"line":4}]}`, `not a baseline: byte 89: json: unknown field "line"`},
		{`{"schema":"dsh-audit/baseline/1","findings":[]} x`, "not a baseline: byte 48: expected the end of the file"},
	} {
		if _, err := ReadBaseline(strings.NewReader(c.doc)); err == nil || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", c.doc, err, c.want)
		}
	}
}

// The shape that the public schema of JUnit reports (the one of the xUnit plugin of
// Jenkins) gives to elements: which attributes they may have, which they must, and
// which elements stand in them.
var junitShape = map[string]struct{ attrs, must, inside []string }{
	"testsuites": {attrs: []string{"name", "time", "tests", "failures", "disabled", "errors"}, inside: []string{"testsuite"}},
	"testsuite": {attrs: []string{"name", "tests", "failures", "errors", "time", "disabled", "skipped", "timestamp", "hostname", "id", "package"},
		must: []string{"name", "tests"}, inside: []string{"properties", "testcase", "system-out", "system-err"}},
	"testcase": {attrs: []string{"name", "assertions", "time", "classname", "status"}, must: []string{"name"},
		inside: []string{"skipped", "error", "failure", "system-out", "system-err"}},
	"skipped":    {attrs: []string{"type", "message"}},
	"error":      {attrs: []string{"type", "message"}},
	"failure":    {attrs: []string{"type", "message"}},
	"system-out": {},
}

func TestJUnitShape(t *testing.T) {
	count, attr := checkJUnit(t, allFormats(t)["junit.xml"])
	want := map[string]int{"testsuites": 1, "testsuite": 1, "testcase": 6, "failure": 2, "error": 1, "skipped": 1, "system-out": 3}
	if d := cmp.Diff(want, count); d != "" {
		t.Errorf("elements (-want +got):\n%s", d)
	}
	for name, n := range map[string]string{"testsuite.tests": "6", "testsuite.failures": "2", "testsuite.errors": "1", "testsuite.skipped": "1"} {
		if attr[name] != n {
			t.Errorf("%s is %q, want %s", name, attr[name], n)
		}
	}
}

// checkJUnit holds a document to the shape, and counts elements.
func checkJUnit(t *testing.T, doc []byte) (count map[string]int, attr map[string]string) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(doc))
	d.Strict = true
	var stack []string
	count, attr = map[string]int{}, map[string]string{}
	for {
		tok, err := d.Token()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		switch e := tok.(type) {
		case xml.StartElement:
			name := e.Name.Local
			shape, ok := junitShape[name]
			switch {
			case !ok:
				t.Errorf("element %s", name)
			case len(stack) == 0 && name != "testsuites":
				t.Errorf("root is %s", name)
			case len(stack) > 0 && !slices.Contains(junitShape[stack[len(stack)-1]].inside, name):
				t.Errorf("%s stands in %s", name, stack[len(stack)-1])
			}
			have := []string{}
			for _, a := range e.Attr {
				if !slices.Contains(shape.attrs, a.Name.Local) || slices.Contains(have, a.Name.Local) {
					t.Errorf("%s has the attribute %s", name, a.Name.Local)
				}
				have = append(have, a.Name.Local)
				attr[name+"."+a.Name.Local] = a.Value
			}
			for _, m := range shape.must {
				if !slices.Contains(have, m) {
					t.Errorf("%s lacks the attribute %s", name, m)
				}
			}
			count[name]++
			stack = append(stack, name)
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		case xml.CharData:
			if len(stack) > 0 && len(junitShape[stack[len(stack)-1]].inside) > 0 && strings.TrimSpace(string(e)) != "" {
				t.Errorf("text in %s: %q", stack[len(stack)-1], e)
			}
		}
	}
	return count, attr
}

func TestSARIFIsValid(t *testing.T) {
	doc := allFormats(t)["report.sarif"]
	checkSARIF(t, doc, 10)
	for _, absent := range []string{":-1,", ":[]", ":{}", ":null"} {
		if bytes.Contains(doc, []byte(absent)) {
			t.Errorf("an empty member was left: %s", absent)
		}
	}
}

// sarifSchema is the public schema, which the library holds but does not give away.
func sarifSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/owenrumney/go-sarif/v3")
	cmd.Dir = corpus.Root(t)
	dir, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	src, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "pkg", "report", "v210", "sarif", "schema.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(src), "`")
	text, _, _ = strings.Cut(text, "`")
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("mem:///sarif.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("mem:///sarif.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checkSARIF validates a document against the schema that the library holds.
func checkSARIF(t *testing.T, doc []byte, results int) {
	t.Helper()
	if err := validate(t, sarifSchema(t), doc); err != nil {
		t.Fatal(err)
	}
	// The library validates what its structs took from the document.
	rep, err := sarif.FromBytes(doc)
	if err != nil {
		t.Fatal(err)
	}
	if err := rep.Validate(); err != nil {
		t.Fatal(err)
	}
	if len(rep.Runs) != 1 || len(rep.Runs[0].Results) != results {
		t.Fatalf("%d runs, %d results, want 1 and %d", len(rep.Runs), len(rep.Runs[0].Results), results)
	}
	seen := map[string]bool{}
	for i, r := range rep.Runs[0].Results {
		f := r.PartialFingerprints["dshAuditFinding/v1"]
		if f == "" || seen[f] {
			t.Errorf("result %d: fingerprint %q is not its own", i, f)
		}
		seen[f] = true
		uri := *r.Locations[0].PhysicalLocation.ArtifactLocation.URI
		if u, err := url.Parse(uri); err != nil || u.Scheme != "" || u.Host != "" || u.Path == "" || strings.HasPrefix(u.Path, "/") {
			t.Errorf("result %d: %q is not relative", i, uri)
		}
	}
}

// Fingerprints depend neither on words, nor on the machine, nor on the order or
// number of other findings.
func TestSARIFFingerprints(t *testing.T) {
	prints := func(results ...*Result) map[string]string {
		var out bytes.Buffer
		write(t, NewVerifySARIF(&out, sampleRules, true, ""), results, &Summary{})
		var doc struct {
			Runs []struct {
				Results []struct {
					RuleID              string `json:"ruleId"`
					Level               string
					PartialFingerprints map[string]string
					Properties          struct{ Seq int64 }
				}
			}
		}
		if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		m := map[string]string{}
		for _, r := range doc.Runs[0].Results {
			key := fmt.Sprint(r.RuleID, r.Properties.Seq)
			for m[key] != "" {
				key += "'"
			}
			m[key] = r.PartialFingerprints["dshAuditFinding/v1"]
		}
		return m
	}
	bad := samples()[1]
	first := prints(samples()...)
	moved := samples()[1]
	moved.Path = "/elsewhere/logs/b.jsonl"
	for i := range moved.Findings {
		moved.Findings[i].Message += " in other words"
		moved.Findings[i].Line += 7
		moved.Findings[i].Offset = p64(int64(i))
	}
	moved.Findings = append([]Finding{{Rule: "AAA", Severity: "error", Message: "new"}}, moved.Findings...)
	second := prints(moved)
	for _, f := range bad.Findings {
		seq := int64(0)
		if f.Seq != nil {
			seq = *f.Seq
		}
		key := fmt.Sprint(f.Rule, seq)
		if first[key] == "" || first[key] != second[key] {
			t.Errorf("%s: %q, then %q", key, first[key], second[key])
		}
	}
	if first["SURF-MARKER13"] == first["SURF-MARKER13'"] {
		t.Error("two findings with one key have one fingerprint")
	}
	other := samples()[1]
	other.File = "logs/c.jsonl"
	if prints(other)["LOG-TIME14"] == first["LOG-TIME14"] {
		t.Error("findings of two logs have one fingerprint")
	}
}

// Of more results than GitHub takes the most severe are kept.
func TestSARIFLimit(t *testing.T) {
	many := func(path Text, severity, rule string, n int) *Result {
		r := &Result{Path: path, Container: "jsonl", Verdict: "warn"}
		*map[string]*int64{"error": &r.Errors, "warning": &r.Warnings, "note": &r.Notes}[severity] = int64(n)
		for i := range n {
			r.Findings = append(r.Findings, Finding{Rule: rule, Severity: severity, Line: int64(i + 1), Message: "m"})
		}
		return r
	}
	var out bytes.Buffer
	write(t, NewVerifySARIF(&out, sampleRules, false, ""), []*Result{
		many("w", "warning", "LOG-TIME", 24_000), many("e", "error", "LOG-READ", 1_200), many("n", "note", "ROOT-TEMP", 5)}, &Summary{})
	var doc struct {
		Runs []struct {
			Invocations []struct {
				ToolExecutionNotifications []struct {
					Message struct{ Text string }
				}
			}
			Results []struct{ Level string }
		}
	}
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, r := range doc.Runs[0].Results {
		count[r.Level]++
	}
	if want := map[string]int{"error": 1200, "warning": 23800}; !cmp.Equal(count, want) {
		t.Errorf("results %v, want %v", count, want)
	}
	notes := doc.Runs[0].Invocations[0].ToolExecutionNotifications
	if got, want := notes[len(notes)-1].Message.Text, "200 more findings left out, none of them more severe"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestGitHubLimits(t *testing.T) {
	r := &Result{Path: "a.jsonl", Container: "jsonl", Verdict: "violations"}
	for i := range 40_000 {
		r.Findings = append(r.Findings, Finding{Rule: "LOG-SEQ", Severity: "error", Line: int64(i + 1), Message: "m, n: 100%"})
	}
	r.Omitted = []Omitted{{"LOG-SEQ", 3}}
	r.Errors = 40_003
	var out, summary bytes.Buffer
	write(t, NewVerifyGitHub(&out, sampleRules, false, &summary, SummaryLimit-100), []*Result{r}, &Summary{})
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 11 {
		t.Fatalf("%d lines, want 9 annotations, a count and a summary: %s", len(lines), out.String())
	}
	for i, want := range map[int]string{
		0:  "::error file=a.jsonl,line=1,title=LOG-SEQ%3A title of LOG-SEQ::m, n: 100%25%0Aadvice: Advice of LOG-SEQ.",
		8:  "::error file=a.jsonl,line=9,title=LOG-SEQ%3A title of LOG-SEQ::m, n: 100%25%0Aadvice: Advice of LOG-SEQ.",
		9:  "::error title=dsh-verify::and 39994 more errors; they are in the summary of this step",
		10: "checked 1 log: 1 violations; next: dsh-verify explain SURF-MARKER",
	} {
		if lines[i] != want {
			t.Errorf("line %d:\n got %s\nwant %s", i+1, lines[i], want)
		}
	}
	if n := summary.Len(); n > SummaryLimit-100 || n < SummaryLimit-(8<<10) {
		t.Errorf("the summary has %d bytes, want just below %d", n, SummaryLimit-100)
	}
	rows := bytes.Count(summary.Bytes(), []byte("\n| error "))
	want := fmt.Sprintf("and %d more findings for which there is no room here\n", 40_003-rows)
	if !strings.HasSuffix(summary.String(), want) {
		t.Errorf("the summary does not end in %q", want)
	}
	// A file that is full already is left alone.
	summary.Reset()
	write(t, NewVerifyGitHub(&out, sampleRules, false, &summary, 40), []*Result{r}, &Summary{})
	if summary.Len() > 0 {
		t.Errorf("written beyond the limit: %q", summary.String())
	}
}

func TestWrapLine(t *testing.T) {
	for _, c := range []struct {
		in    string
		width int
		want  string
	}{
		{"a b c", 0, "a b c"},
		{"one two three four five six seven eight", 30, "one two three four five six\n    seven eight"},
		{"  one two three four five six seven eight", 30, "  one two three four five six\n      seven eight"},
		{"日本語日本語日本語 日本語日本語日本語", 30, "日本語日本語日本語\n    日本語日本語日本語"},
		{"\x1b[31;1mone two three four five six\x1b[0m seven", 30, "\x1b[31;1mone two three four five six\x1b[0m\n    seven"},
		{"averyveryverylongpaththatdoesnotfit/at/all.jsonl:1: x", 30, "averyveryverylongpaththatdoesnotfit/at/all.jsonl:1:\n    x"},
	} {
		got := c.in
		if c.width > 0 {
			got = wrapLine(c.in, c.width)
		}
		if got != c.want {
			t.Errorf("%q at %d:\n got %q\nwant %q", c.in, c.width, got, c.want)
		}
	}
}
