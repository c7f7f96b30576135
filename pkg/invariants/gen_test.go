package invariants

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// TestGenerationName: a file whose name says another generation than its header
// breaks a rule, and nothing else.
func TestGenerationName(t *testing.T) {
	head := func(version string) string {
		keys := `"delegationDepth":0`
		if version > "1" {
			keys = `"isSeeded":false,` + keys
		}
		return `{"type":"session","version":` + version + `,"id":"s","createdAt":1,"cwd":"/w",` + keys + "}\n"
	}
	for _, c := range []struct{ name, version, want string }{
		{"session.jsonl", "0", "ok"},
		{"session.v3.jsonl", "3", "ok"},
		{"copy of session.v3.jsonl", "2", "ok"},
		{"session.jsonl", "4", "violations LOG-GENERATION the name of the file says generation 0, its header 4; the harness refuses the log"},
		{"session.v4.jsonl", "3", "violations LOG-GENERATION the name of the file says generation 4, its header 3; the harness refuses the log"},
		{"session.v1.jsonl", "0", "violations LOG-GENERATION the name of the file says generation 1, its header 0; the harness refuses the log"},
		{"session.jsonl", "5", "unsupported LOG-FORMAT format version 5: this build reads generations 0 to 4 LOAD-REFUSED the harness of 2026-08-21 refuses the log: it takes format version 5 for a later one than the 0 that it reads"},
	} {
		file := filepath.Join(t.TempDir(), c.name)
		if err := os.WriteFile(file, []byte(head(c.version)), 0o600); err != nil {
			t.Fatal(err)
		}
		res := judgeFile(t, file)
		got := string(res.Verdict)
		for _, f := range res.Findings {
			got += " " + f.Rule + " " + f.Message
		}
		if got != c.want {
			t.Errorf("%s with version %s:\n got %s\nwant %s", c.name, c.version, got, c.want)
		}
	}
}

// errorRules are the rules that a log breaks with severity error.
func errorRules(res *Result) (out []string) {
	for _, f := range res.Findings {
		if f.Severity == Error && !slices.Contains(out, f.Rule) {
			out = append(out, f.Rule)
		}
	}
	slices.Sort(out)
	return out
}

// TestCorpusMigrated: what the released converters wrote breaks no rule that its
// source does not break.
func TestCorpusMigrated(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	count := map[string]int{}
	for _, m := range corpus.Migrations(t, dir) {
		if len(m.OK) == 0 {
			continue
		}
		src := judgeFile(t, m.Source)
		for _, version := range []string{"v1", "v2", "v3", "v4"} {
			file := m.Log(dir, version)
			if _, err := os.Stat(file); err != nil {
				continue
			}
			res := judgeFile(t, file)
			count[version]++
			count[version+" "+string(res.Verdict)]++
			if got := fmt.Sprintf("v%d", res.Generation); got != version {
				t.Errorf("%s: generation %s", file, got)
			}
			var more []string
			for _, id := range errorRules(res) {
				if !slices.Contains(errorRules(src), id) {
					more = append(more, id)
				}
			}
			if more != nil {
				t.Errorf("%s %s: breaks %s, its source does not:\n%s", m.Case, version, strings.Join(more, ", "), verdictLines(res))
			}
		}
	}
	t.Logf("%v", count)
}

// TestCorpusExamples: the example log of each generation is sound.
func TestCorpusExamples(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	for name, want := range map[string]string{
		"v1.jsonl":               "ok jsonl v1 17 events, 1 exact 0 ambiguous",
		"v2.jsonl":               "ok jsonl v2 18 events, 3 exact 0 ambiguous",
		"v3.jsonl":               "ok jsonl v3 18 events, 2 exact 0 ambiguous",
		"v4.jsonl":               "ok jsonl v4 20 events, 1 exact 1 ambiguous",
		"v4.live.jsonl.zstd":     "ok zstd v4 20 events, 1 exact 1 ambiguous",
		"v4.migrated.jsonl.zstd": "ok zstd v4 20 events, 1 exact 1 ambiguous",
	} {
		res := judgeFile(t, filepath.Join(dir, "migrated", "examples", name))
		got := fmt.Sprintf("%s %s v%d %d events, %d exact %d ambiguous", res.Verdict, res.Container, res.Generation, res.Events, res.Requests.Exact, res.Requests.Ambiguous)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s%s", name, d, verdictLines(res))
		}
	}
}

var _ = context.Background
var _ = logfmt.Plain
