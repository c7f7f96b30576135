package invariants

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
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
			out = append(out, fmt.Sprintf("%s %s %d %d", f.Rule, f.Severity, f.Pos.Line, f.Seq))
		}
	}
	return out
}

// Each rule has archives in testdata, named by its id and what they show: the
// smallest log that breaks it, bad.jsonl, with every finding that it gives
// (rule, severity, line, seq) and its verdict, and the nearest log that does not.
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
	for _, r := range All() {
		if !seen[r.ID] && !elsewhere[r.ID] {
			t.Errorf("%s: no testdata/%s.txtar", r.ID, r.ID)
		}
	}
}

// elsewhere are the rules that no single log breaks.
var elsewhere = map[string]bool{
	"LOG-READ":       true, // TestUnreadable
	"LOG-FIXTURE":    true, // TestFixtures
	"LOG-GENERATION": true, // TestGenerationName
	// TestFrames
	"FRAME-MAGIC": true, "FRAME-RESERVED": true, "FRAME-SKIP": true, "FRAME-DATA": true,
	"FRAME-HEADER": true, "FRAME-LINE": true, "FRAME-TORN": true, "LINE-LONG": true,
	// TestDatabaseRules
	"DB-OPEN": true, "DB-WAL": true, "DB-PAGE": true, "DB-SCHEMA": true, "DB-STORE": true, "DB-SESSION": true,
	"DB-COLUMN": true, "DB-DATA": true, "DB-SOURCES": true, "DB-OP": true, "DB-READ": true,
	// TestRootVerdicts, and TestRoot of package logfmt
	"ROOT-IDENTITY": true, "ROOT-BUCKET": true, "ROOT-DUPLICATE": true, "ROOT-ENCODING": true, "ROOT-STRAY": true, "ROOT-FLAT": true,
	"ROOT-TEMP": true, "ROOT-GENERATION": true, "ROOT-ENTRY": true, "ROOT-NAME": true, "ROOT-SIDECAR": true,
	// TestArchiveVerdicts, and TestArchive of package logfmt
	"ZIP-DIRECTORY": true, "ZIP-NAME": true, "ZIP-DUPLICATE": true, "ZIP-METHOD": true, "ZIP-BOMB": true, "ZIP-DATA": true,
	"ZIP-ENTRY": true, "ZIP-IDENTITY": true, "ZIP-HASH": true, "ZIP-MEDIA": true,
	"REQ-EXTEND": true, "REQ-PARANOID": true, // no log does; TestExtend, TestParanoid
	// TestCompare
	"REQ-BYTES": true, "REQ-KEYORDER": true, "REQ-MISSING": true, "REQ-EXTRA": true, "REQ-AUX": true, "REQ-RECORD": true,
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
