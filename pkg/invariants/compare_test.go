package invariants

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// compareFiles compares the log in one file with the recording in another.
func compareFiles(t *testing.T, log, recording string) *Comparison {
	t.Helper()
	l, err := logfmt.OpenFile(log, logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	in, err := os.Open(recording)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	c, err := CompareRequests(fold.Requests(l, fold.Options{}), in)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Every recorded scenario: each loop request is found byte for byte, each
// one-shot is told apart, nothing is missing or left over.
func TestCompareCorpus(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*", "*", "session*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	n, requests := 0, int64(0)
	for _, log := range logs {
		base := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(log), ".jsonl"), ".packed")
		rec := filepath.Join(filepath.Dir(log), strings.Replace(base, "session", "requests", 1)+".jsonl")
		if _, err := os.Stat(rec); err != nil || strings.Contains(log, "/migrated/") || strings.Contains(log, "/big/") {
			continue
		}
		name, _ := filepath.Rel(dir, log)
		c := compareFiles(t, log, rec)
		n++
		requests += c.Recorded
		var aux []int
		if meta, err := os.ReadFile(filepath.Join(filepath.Dir(log), "meta.json")); err == nil {
			var m struct{ RequestsNotLoopBuilt []int }
			if err := json.Unmarshal(meta, &m); err != nil {
				t.Fatal(err)
			}
			aux = m.RequestsNotLoopBuilt
		}
		want := &Comparison{Recorded: c.Recorded, Auxiliary: int64(len(aux))}
		var wantRules []string
		for range aux {
			wantRules = append(wantRules, "REQ-AUX")
		}
		if strings.Contains(name, "config-keyorder") {
			want.KeyOrder = 2
			wantRules = append(wantRules, "REQ-KEYORDER 2.1", "REQ-KEYORDER 4.1")
		}
		want.Matched = c.Recorded - want.Auxiliary - want.KeyOrder
		var rules []string
		for _, f := range c.Findings {
			if f.Rule == "REQ-AUX" {
				rules = append(rules, f.Rule)
			} else {
				rules = append(rules, fmt.Sprintf("%s %d.%d", f.Rule, f.Turn, f.Step))
			}
		}
		slices.Sort(rules)
		if d := cmp.Diff(wantRules, rules); d != "" {
			t.Errorf("%s: findings (-want +got):\n%s", name, d)
			for _, f := range c.Findings {
				t.Logf("%s: %s", f.Rule, f.Message)
			}
		}
		c.Findings, c.Skipped = nil, 0
		if d := cmp.Diff(want, c); d != "" {
			t.Errorf("%s: counts (-want +got):\n%s", name, d)
		}
	}
	if n == 0 {
		t.Fatal("no recording found")
	}
	t.Logf("%d logs with a recording, %d recorded requests", n, requests)
}
