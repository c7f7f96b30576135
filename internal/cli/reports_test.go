package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
)

// representative logs, of every verdict, and what is wrong with them.
var representative = []string{
	"sound/head-tool-prune",           // nothing
	"sound/b-fork-child",              // nothing; a fork whose parent is not given
	"sound/b-system-changes-midturn",  // the header changes with every request
	"damaged/crash-mid-chunk",         // killed while a line was written
	"damaged/crash-after-tool-result", // killed between two writes
	"damaged/bad-json-committed",      // a line that broke off, followed by others
	"damaged/seq-swap",                // two lines in the wrong order
	"damaged/tool-result-twice",       // an event too many
	"damaged/replace-unknown-start",   // a compaction of what is not there
	"damaged/unknown-type",            // an event of another program
	"damaged/zstd-last-frame-torn",    // a compressed log, killed while it was written
	"damaged/sqlite-gap-committed",    // a database that has lost a row
}

// TestReports compares what dsh-verify says about each with golden files, which are
// there to be read.
func TestReports(t *testing.T) {
	root := corpus.Root(t)
	dir := filepath.Join(root, "internal", "cli", "testdata", "reports")
	t.Chdir(root)
	for _, name := range representative {
		logs, err := filepath.Glob(filepath.Join("goldens", filepath.FromSlash(name), "session.*"))
		if err != nil || len(logs) == 0 {
			t.Fatalf("%s: no log, %v", name, err)
		}
		log := filepath.ToSlash(logs[0])
		for _, format := range []string{"text", "json"} {
			_, got, errs := verifyHere(t, "--format", format, log)
			if errs != "" {
				t.Errorf("%s: %s", log, errs)
			}
			file := filepath.Join(dir, filepath.Base(name)+map[string]string{"text": ".txt", "json": ".json"}[format])
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("%s (-want +got):\n%s", file, d)
			}
		}
	}
}

// Whatever is wrong with a log, its report says what to do next: for each finding
// that is more than a note, and for what a torn or corrupt log needs as a whole.
func TestEveryFindingHasANextStep(t *testing.T) {
	t.Chdir(corpus.Root(t))
	_, out, _ := verifyHere(t, "--format", "json", "goldens")
	var doc struct {
		Results []struct {
			Path, Verdict string
			Findings      []struct{ Rule, Severity, Hint string }
			Damage        *struct{ Next string }
		}
		Rules []struct{ ID, Advice string }
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatal(err)
	}
	advice := map[string]string{}
	for _, r := range doc.Rules {
		advice[r.ID] = r.Advice
	}
	findings := 0
	for _, r := range doc.Results {
		for _, f := range r.Findings {
			if f.Severity == "note" {
				continue
			}
			if findings++; advice[f.Rule] == "" {
				t.Errorf("%s: %s has no advice", r.Path, f.Rule)
			}
		}
		if (r.Verdict == "torn" || r.Verdict == "corrupt") && (r.Damage == nil || r.Damage.Next == "") {
			t.Errorf("%s is %s, and no next command is named", r.Path, r.Verdict)
		}
		if r.Verdict != "ok" && len(r.Findings) == 0 {
			t.Errorf("%s is %s for no reason", r.Path, r.Verdict)
		}
	}
	if findings < 100 {
		t.Errorf("only %d findings, want at least 100", findings)
	}
}
