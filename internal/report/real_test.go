package report_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/verify"
	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/report"
)

// The reports of the program on the logs that ship, with everything it can be asked
// for, are valid in every format that has a schema.
func TestRealReports(t *testing.T) {
	t.Chdir(corpus.Root(t))
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	run := func(args ...string) []byte {
		t.Helper()
		var out, errs bytes.Buffer
		if code := cli.Execute(context.Background(), verify.Program(), append([]string{"dsh-verify"}, args...), strings.NewReader(""), &out, &errs); code > 3 {
			t.Fatalf("%v: code %d, %s", args, code, errs.Bytes())
		}
		return out.Bytes()
	}
	if err := os.WriteFile(at("settings"), []byte("strict: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hostile := at("a,b:c%\n::error::x\x1b[2J]]>&<.jsonl")
	log, err := os.ReadFile("goldens/damaged/seq-swap/session.jsonl")
	if err == nil {
		err = os.WriteFile(hostile, log, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	whole, line := report.Schema(t, ""), report.Schema(t, "#/$defs/line")
	members := map[string]int{}
	for _, args := range [][]string{
		{"--notes", "--paranoid=all", "--write-baseline", at("known"), "goldens"},
		{"--baseline", at("known"), "--config", at("settings"), "goldens/damaged", hostile, at("gone")},
		{"--shard", "1/2", "--disable", "LOG-TIME", "--limit", "1", "goldens/damaged"},
		{"--fail-on-drift", "goldens/drift"},
		{"--migrate-to", "v4", "goldens/sound", "goldens/damaged"},
		{"--as-loaded", "--paranoid", "goldens/sound", "goldens/damaged"},
		{"--requests", "goldens/sound/head-tool-prune/requests.jsonl", "goldens/sound/head-tool-prune/session.jsonl"},
		{"goldens/sound/b-fork-child/session.jsonl", "goldens/sound/b-fork-parent/session.jsonl"},
		{"internal/cli/testdata/logs"},
	} {
		for _, f := range []string{"jsonl", "junit", "sarif"} {
			args = append([]string{"--output", f + "=" + at(f)}, args...)
		}
		doc := run(append([]string{"--format", "json"}, args...)...)
		if err := report.Validate(t, whole, doc); err != nil {
			t.Errorf("%v: %v", args, err)
		}
		var v struct{ Results []map[string]any }
		if err := json.Unmarshal(doc, &v); err != nil {
			t.Fatal(err)
		}
		tests, findings := 0, 0
		for _, r := range v.Results {
			for m := range r {
				members[m]++
			}
			if r["whole"] != true {
				tests++
			}
			findings += int(r["errors"].(float64) + r["warnings"].(float64))
		}
		lines, err := os.ReadFile(at("jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for l := range bytes.Lines(lines) {
			if err := report.Validate(t, line, l); err != nil {
				t.Errorf("%v: %s: %v", args, l, err)
			}
		}
		xml, err := os.ReadFile(at("junit"))
		if err != nil {
			t.Fatal(err)
		}
		count, attr := report.CheckJUnit(t, xml)
		if count["testcase"] < tests || attr["testsuite.tests"] != strconv.Itoa(count["testcase"]) {
			t.Errorf("%v: %d tests of %d logs, %s counted", args, count["testcase"], tests, attr["testsuite.tests"])
		}
		sarif, err := os.ReadFile(at("sarif"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(args, "--notes") && !slices.Contains(args, "--limit") { // which list more, and less
			report.CheckSARIF(t, sarif, findings)
		}
	}
	// Every member that a result may have has been in one.
	for _, m := range []string{"path", "file", "session", "container", "generation", "eras", "mode", "events", "requests", "verdict", "errors", "warnings", "notes",
		"findings", "omitted", "damage", "usage", "resumes", "lineage", "extended", "paranoid", "recording", "migration", "whole", "known", "at"} {
		if members[m] == 0 {
			t.Errorf("no result has the member %s", m)
		}
	}
	t.Logf("%v", members)
}
