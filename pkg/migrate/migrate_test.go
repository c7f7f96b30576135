package migrate

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

func openLog(t *testing.T, path string) *logfmt.Log {
	t.Helper()
	log, err := logfmt.OpenFile(path, logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return log
}

func check(t *testing.T, path string, to int64) *Result {
	t.Helper()
	res, err := Check(context.Background(), openLog(t, path), to)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestCorpusVerdicts holds the verdict on every log of the corpus to what the
// released converters said: accepted, or refused at the step where they refused.
func TestCorpusVerdicts(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	count := map[string]int{}
	for _, m := range corpus.Migrations(t, dir) {
		want := ""
		for stage := range m.Errors {
			want = stage
		}
		for to := int64(1); to <= 4; to++ {
			version := fmt.Sprintf("v%d", to)
			reached, accepted := m.OK[version]
			if to == 4 {
				// Not recorded: what gets to generation 3 goes on.
				reached, accepted = m.OK["v3"]
			}
			stage := want
			if accepted {
				stage = ""
			}
			res := check(t, m.Source, to)
			got := res.Stage
			if got != stage {
				t.Errorf("%s to %s: stage %q (%s at seq %d: %s), want %q: %s", m.Case, version, got, res.Rule, res.Seq, res.Message, stage, m.Errors[want])
				continue
			}
			if accepted && res.Events != reached.Events {
				t.Errorf("%s to %s: %d events, want %d", m.Case, version, res.Events, reached.Events)
			}
			if got == "" {
				got = "accepted"
			}
			count[version+" "+got]++
		}
	}
	want := map[string]int{
		"v1 accepted": 189, "v1 read": 1, "v1 v0-decode": 44, "v1 v0-to-v1": 41, "v1 v1-restore": 3,
		"v2 accepted": 163, "v2 read": 1, "v2 v0-decode": 44, "v2 v0-to-v1": 41, "v2 v1-restore": 3, "v2 v1-to-v2": 10, "v2 v2-restore": 16,
		"v3 accepted": 162, "v3 read": 1, "v3 v0-decode": 44, "v3 v0-to-v1": 41, "v3 v1-restore": 3, "v3 v1-to-v2": 10, "v3 v2-restore": 16, "v3 v2-to-v3": 1,
		"v4 accepted": 162, "v4 read": 1, "v4 v0-decode": 44, "v4 v0-to-v1": 41, "v4 v1-restore": 3, "v4 v1-to-v2": 10, "v4 v2-restore": 16, "v4 v2-to-v3": 1,
	}
	if d := cmp.Diff(want, count); d != "" {
		t.Errorf("verdicts (-want +got):\n%s", d)
	}
}

// TestCorpusRows holds what comes out of every step to what the converters wrote,
// value by value; the chunks of embedded streams are left out here.
func TestCorpusRows(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	count := map[string]int{}
	for _, m := range corpus.Migrations(t, dir) {
		for to := int64(1); to <= 4; to++ {
			version := fmt.Sprintf("v%d", to)
			file := m.Log(dir, version)
			if _, err := os.Stat(file); err != nil {
				continue
			}
			var got [][]byte
			if _, err := run(context.Background(), openLog(t, m.Source), to, func(gen int64, line []byte) {
				if gen == to {
					got = append(got, bytes.Clone(line))
				}
			}); err != nil {
				t.Fatal(err)
			}
			want := [][]byte{openLog(t, file).Header.Raw}
			for e, d := range openLog(t, file).Events() {
				if d != nil {
					t.Fatal(d)
				}
				want = append(want, bytes.Clone(normal(e)))
			}
			if len(got) != len(want) {
				t.Errorf("%s %s: %d rows, want %d", m.Case, version, len(got), len(want))
				continue
			}
			for i := range got {
				row, _, err := jsjson.Stringify(got[i])
				if err != nil {
					t.Fatal(err)
				}
				if !jsjson.Equal(row, want[i]) {
					t.Errorf("%s %s: row %d\n got %s\nwant %s", m.Case, version, i, row, want[i])
					break
				}
			}
			count[version]++
			count[version+" rows"] += len(got)
		}
	}
	want := map[string]int{"v1": 189, "v1 rows": 13894, "v2": 163, "v2 rows": 4232, "v3": 162, "v3 rows": 4524, "v4": 162, "v4 rows": 4524}
	if d := cmp.Diff(want, count); d != "" {
		t.Errorf("rows (-want +got):\n%s", d)
	}
}

var update = flag.Bool("update", false, "write the golden file anew")

// TestGoldens pins what the chain makes of the logs that ship with the repository.
func TestGoldens(t *testing.T) {
	var logs []string
	for _, pattern := range []string{"damaged/*/session.jsonl", "sound/*/session*.jsonl", "generations/*/session.v*"} {
		found, err := filepath.Glob(filepath.Join(corpus.Root(t), "goldens", filepath.FromSlash(pattern)))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d logs, %v", pattern, len(found), err)
		}
		logs = append(logs, found...)
	}
	var got strings.Builder
	for _, log := range logs {
		name, _ := filepath.Rel(filepath.Join(corpus.Root(t), "goldens"), log)
		res := check(t, log, Latest)
		fmt.Fprintf(&got, "%s v%d: ", filepath.ToSlash(name), res.From)
		if res.Accepted {
			fmt.Fprintf(&got, "accepted, %d events\n", res.Events)
			continue
		}
		fmt.Fprintf(&got, "%s %s line %d seq %d: %s\n", res.Stage, res.Rule, res.Line, res.Seq, res.Message)
	}
	golden := filepath.Join("testdata", "verdicts.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// FuzzCheck: whatever the log, the chain comes to an end and to one verdict.
func FuzzCheck(f *testing.F) {
	for _, name := range []string{"sound/head-plain-turn/session.jsonl", "sound/head-tool-prune/session.jsonl", "generations/v2-fork-child/session.v2.jsonl", "damaged/crash-mid-chunk/session.jsonl"} {
		b, err := os.ReadFile(filepath.Join(corpus.Root(f), "goldens", filepath.FromSlash(name)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		log, err := logfmt.NewReader(bytes.NewReader(b), "log", logfmt.Options{})
		if err != nil {
			return
		}
		defer log.Close()
		res, err := Check(context.Background(), log, Latest)
		if err != nil {
			t.Fatal(err)
		}
		if res.Accepted != (res.Stage == "") || res.Accepted && res.Rule != "" || !res.Accepted && (res.Rule == "" || res.Message == "") {
			t.Errorf("%+v", res)
		}
	})
}

// TestOlderTarget: a log is not taken back to an older generation.
func TestOlderTarget(t *testing.T) {
	res := check(t, filepath.Join(corpus.Root(t), "goldens", "generations", "v3-max-tokens", "session.v3.jsonl"), 2)
	want := &Result{From: 3, To: 2, Stage: "v2-decode", Rule: "LOG-FORMAT", Seq: -1, Message: "a build of generation 2 reads no log of generation 3"}
	if d := cmp.Diff(want, res); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestCorpusSuccessors: every log of the corpus and what the converters made of it
// are one conversation; with an event changed or taken away they are not.
func TestCorpusSuccessors(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	count := map[string]int{}
	for _, m := range corpus.Migrations(t, dir) {
		for to := int64(1); to <= 4; to++ {
			file := m.Log(dir, fmt.Sprintf("v%d", to))
			if _, err := os.Stat(file); err != nil {
				continue
			}
			s, err := Follow(context.Background(), openLog(t, m.Source), openLog(t, file))
			if err != nil {
				t.Fatal(err)
			}
			count[fmt.Sprintf("v%d same %v", to, s.Same())]++
			if !s.Same() {
				t.Errorf("%s v%d: %+v", m.Case, to, s)
				if s.First != nil {
					t.Errorf("want %s\n got %s", s.First.Want, s.First.Got)
				}
			}
		}
	}
	if d := cmp.Diff(map[string]int{"v1 same true": 189, "v2 same true": 163, "v3 same true": 162, "v4 same true": 162}, count); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
