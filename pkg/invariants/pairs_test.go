package invariants

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// judge checks a log held in memory.
func judge(t testing.TB, data []byte, opts Options) *Result {
	t.Helper()
	log, err := logfmt.NewReader(bytes.NewReader(data), "log.jsonl", logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	res, err := Check(context.Background(), log, opts)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// lines gives the findings in the form of the expectations.
func lines(res *Result, notes bool) []string {
	var out []string
	for _, f := range res.Findings {
		if f.Severity != Note || notes {
			line := fmt.Sprintf("%s %s %d %d", f.Rule, f.Severity, f.Pos.Line, f.Seq)
			if f.More > 0 {
				line += fmt.Sprintf(" and %d more", f.More)
			}
			out = append(out, line)
		}
	}
	return out
}

// Each rule has archives in testdata, named by its id and what they show: the
// smallest log that breaks it, bad.jsonl, with every finding that it gives
// (rule, severity, line, seq, how many more) and its verdict, and the nearest log that does not.
// Both may have a parent, parent.jsonl.
func TestPairs(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		rule := name
		for byID[rule] == nil {
			i := strings.LastIndexByte(rule, '-')
			if i < 0 {
				t.Fatalf("%s: no rule of that name", file)
			}
			rule = rule[:i]
		}
		seen[rule] = true
		t.Run(name, func(t *testing.T) { testPair(t, file, rule) })
	}
	sources := testSources(t)
	exempt := map[string]bool{}
	for test, rules := range elsewhere {
		for _, id := range rules {
			if exempt[id] = true; seen[id] || byID[id] == nil {
				t.Errorf("%s: has a pair, or is no rule", id)
			}
			if !regexp.MustCompile(`\b` + id + `\b`).MatchString(sources[test]) {
				t.Errorf("%s: %s does not break it", id, test)
			}
		}
	}
	for _, r := range All() {
		if !seen[r.ID] && !exempt[r.ID] {
			t.Errorf("%s: no testdata/%s.txtar", r.ID, r.ID)
		}
	}
}

// elsewhere are the rules that no log of lines breaks, and the tests in which what
// breaks them stands beside what does not.
var elsewhere = map[string][]string{
	"TestUnreadable":     {"LOG-READ"},
	"TestFixtures":       {"LOG-FIXTURE"},
	"TestGenerationName": {"LOG-GENERATION"}, // it is about the name of the file
	"TestFrames": {"FRAME-MAGIC", "FRAME-RESERVED", "FRAME-SKIP", "FRAME-DATA", "FRAME-HEADER", "FRAME-LINE", "FRAME-TORN",
		"LINE-LONG"}, // of which the smallest has 128 MiB
	"TestDatabaseRules": {"DB-OPEN", "DB-WAL", "DB-PAGE", "DB-SCHEMA", "DB-STORE", "DB-SESSION", "DB-COLUMN", "DB-DATA", "DB-SOURCES", "DB-OP", "DB-READ"},
	"TestRootVerdicts": {"ROOT-IDENTITY", "ROOT-BUCKET", "ROOT-DUPLICATE", "ROOT-ENCODING", "ROOT-STRAY", "ROOT-FLAT", "ROOT-TEMP",
		"ROOT-GENERATION", "ROOT-ENTRY", "ROOT-NAME", "ROOT-SIDECAR"},
	"TestArchiveVerdicts": {"ZIP-DIRECTORY", "ZIP-NAME", "ZIP-DUPLICATE", "ZIP-METHOD", "ZIP-DATA", "ZIP-ENTRY", "ZIP-IDENTITY", "ZIP-HASH", "ZIP-MEDIA"},
	"logfmt.TestArchive":  {"ZIP-BOMB"},   // with a lower limit than the programs have
	"TestExtend":          {"REQ-EXTEND"}, // no log breaks it: the test breaks the fold
	"TestParanoidFinds":   {"REQ-PARANOID"},
	"TestCompare":         {"REQ-BYTES", "REQ-KEYORDER", "REQ-MISSING", "REQ-EXTRA", "REQ-AUX", "REQ-RECORD", "REQ-LABEL"}, // recordings break them
}

// testSources are the texts of the test functions of this package and of logfmt.
func testSources(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for prefix, pattern := range map[string]string{"": "*_test.go", "logfmt.": "../logfmt/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			src := read(t, file)
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, file, src, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok {
					out[prefix+fn.Name.Name] = string(src[fset.Position(fn.Pos()).Offset:fset.Position(fn.End()).Offset])
				}
			}
		}
	}
	return out
}

func testPair(t *testing.T, file, rule string) {
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	logs := map[string][]byte{}
	for _, f := range a.Files {
		logs[f.Name] = f.Data
	}
	var want []string
	var verdict Verdict
	for _, line := range strings.Split(string(a.Comment), "\n") {
		key, rest, _ := strings.Cut(line, " ")
		switch key {
		case "want":
			want = append(want, rest)
		case "verdict":
			verdict = Verdict(rest)
		case "cut":
			logs[rest] = bytes.TrimSuffix(logs[rest], []byte{'\n'})
		}
	}
	if logs["bad.jsonl"] == nil || logs["ok.jsonl"] == nil || len(want) == 0 {
		t.Fatal("want bad.jsonl, ok.jsonl and an expectation")
	}
	opts := Options{Parent: func(id string) *logfmt.Log {
		data := logs["parent.jsonl"]
		if data == nil {
			return nil
		}
		log, err := logfmt.NewReader(bytes.NewReader(data), "parent.jsonl", logfmt.Options{})
		if err != nil || log.Header.ID != id {
			t.Fatalf("parent %q: %v", id, err)
		}
		return log
	}}
	bad := judge(t, logs["bad.jsonl"], opts)
	if d := cmp.Diff(sorted(want), sorted(lines(bad, true))); d != "" {
		t.Errorf("bad.jsonl: findings (-want +got):\n%s", d)
		for _, f := range bad.Findings {
			t.Logf("%s: %s", f.Rule, f.Message)
		}
	}
	if bad.Verdict != verdict {
		t.Errorf("bad.jsonl: verdict %s, want %s", bad.Verdict, verdict)
	}
	ok := judge(t, logs["ok.jsonl"], opts)
	if ok.Verdict != OK {
		t.Errorf("ok.jsonl: verdict %s, want ok: %v", ok.Verdict, lines(ok, true))
	}
	for _, f := range ok.Findings {
		if f.Rule == rule {
			t.Errorf("ok.jsonl: line %d: %s: %s", f.Pos.Line, f.Rule, f.Message)
		}
	}
	// Alone, the rule finds the same.
	opts.Rules = func(id string) bool { return id == rule }
	only := judge(t, logs["bad.jsonl"], opts)
	n := 0
	for _, f := range only.Findings {
		if f.Rule == rule {
			n++
		}
	}
	if n == 0 {
		t.Errorf("bad.jsonl: %s finds nothing when it runs alone", rule)
	}
}

func sorted(s []string) []string {
	out := slices.Clone(s)
	slices.Sort(out)
	return out
}
