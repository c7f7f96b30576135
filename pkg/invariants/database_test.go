package invariants

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// judged is what must not depend on the container of a log.
type judged struct {
	Verdict  string
	Events   int64
	Requests RequestCounts
	Findings []string // errors and warnings
	Sums     []string // of the requests
}

func judgedAlike(t *testing.T, log *logfmt.Log) judged {
	t.Helper()
	res, err := Check(context.Background(), log, Options{})
	if err != nil {
		t.Fatal(err)
	}
	j := judged{Verdict: string(res.Verdict), Events: res.Events, Requests: res.Requests}
	for _, f := range res.Findings {
		if f.Severity != Note {
			j.Findings = append(j.Findings, fmt.Sprintf("%s %d %s", f.Rule, f.Seq, f.Message))
		}
	}
	for r, err := range fold.Requests(log, fold.Options{}) {
		if err != nil {
			j.Sums = append(j.Sums, err.Error())
			continue
		}
		j.Sums = append(j.Sums, fmt.Sprintf("%d %x %s", r.Len(), r.Sum(), r.Grade))
	}
	return j
}

// A log in a database gets the verdict and the requests of its lines.
func TestCorpusDatabases(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	n, requests := 0, 0
	for _, part := range []string{"head", "july", "big"} {
		files, err := filepath.Glob(filepath.Join(dir, part, "*", "session*.sqlite"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if damagedCase(filepath.Base(filepath.Dir(path))) {
				continue
			}
			name, _ := filepath.Rel(dir, path)
			plain, err := logfmt.OpenFile(strings.TrimSuffix(path, ".sqlite")+".jsonl", logfmt.Options{})
			if err != nil {
				t.Fatal(err)
			}
			stored, err := logfmt.OpenFile(path, logfmt.Options{Session: plain.Header.ID})
			if err != nil {
				t.Fatal(err)
			}
			want, got := judgedAlike(t, plain), judgedAlike(t, stored)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
			n, requests = n+1, requests+len(got.Sums)
		}
	}
	t.Logf("%d databases, %d requests", n, requests)
	if n < 140 || requests < 700 {
		t.Errorf("too few: %d databases, %d requests", n, requests)
	}
}
