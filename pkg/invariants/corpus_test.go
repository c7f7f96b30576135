package invariants

import (
	"bytes"
	"context"
	"crypto/sha256"
	hexenc "encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

var update = flag.Bool("update", false, "rewrite the expectations of damaged logs")

func judgeFile(t testing.TB, path string) *Result {
	t.Helper()
	log, err := logfmt.OpenFile(path, logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	res, err := Check(context.Background(), log, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// verdictLines is what a human reviews: verdict and findings with their places.
func verdictLines(res *Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "verdict %s\n", res.Verdict)
	for _, f := range res.Findings {
		fmt.Fprintf(&b, "%s %s", f.Rule, f.Severity)
		if f.Pos.Row >= 0 {
			fmt.Fprintf(&b, " row %d", f.Pos.Row)
		}
		if f.Pos.Frame >= 0 {
			fmt.Fprintf(&b, " frame %d", f.Pos.Frame)
		}
		fmt.Fprintf(&b, " line %d offset %d seq %d", f.Pos.Line, f.Offset(), f.Seq)
		if f.More > 0 {
			fmt.Fprintf(&b, " and %d more", f.More)
		}
		fmt.Fprintf(&b, ": %s\n", f.Message)
	}
	for _, o := range res.Omitted {
		fmt.Fprintf(&b, "%s %d not listed\n", o.Rule, o.Count)
	}
	return b.String()
}

// A damaged log that ships with the repository has its findings beside it, in
// expected.txt; lines that start with # say what was done to the log.
func TestDamaged(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(corpus.Root(t), "goldens", "damaged", "*", "session.*"))
	if err != nil {
		t.Fatal(err)
	}
	verdicts := map[Verdict]int{}
	n := map[string]int{}
	for _, log := range files {
		file := filepath.Join(filepath.Dir(log), "expected.txt")
		n[strings.TrimPrefix(filepath.Base(log), "session")]++
		t.Run(filepath.Base(filepath.Dir(log)), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var head, want []string
			for _, line := range strings.SplitAfter(string(data), "\n") {
				if strings.HasPrefix(line, "#") {
					head = append(head, line)
				} else {
					want = append(want, line)
				}
			}
			if len(head) == 0 {
				t.Error("expected.txt does not say what was done to the log")
			}
			before := read(t, log)
			res := judgeFile(t, log)
			verdicts[res.Verdict]++
			got := verdictLines(res)
			if *update {
				if err := os.WriteFile(file, []byte(strings.Join(head, "")+got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if d := cmp.Diff(strings.Join(want, ""), got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if !bytes.Equal(before, read(t, log)) {
				t.Error("the log was changed by reading it")
			}
		})
	}
	t.Logf("damaged logs: %v, %v", n, verdicts)
	for kind, least := range map[string]int{".jsonl": 80, ".jsonl.zstd": 20, ".sqlite": 8} {
		if n[kind] < least {
			t.Errorf("%d damaged logs %s in goldens, want at least %d", n[kind], kind, least)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// damagedCase reports whether a case of the corpus was damaged on purpose.
func damagedCase(name string) bool {
	for _, p := range []string{"invalid-", "crash-", "legacy-"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return strings.Contains(name, "-invalid-") // july/ERA-invalid-…
}

// warningLines are the warnings of a log that has no errors, wherever it is kept.
func warningLines(t *testing.T, name string, res *Result) string {
	t.Helper()
	if res.Errors != 0 || res.Verdict != OK && res.Verdict != Warn || (res.Verdict == OK) != (res.Warnings == 0) {
		t.Errorf("%s:\n%s", name, verdictLines(res))
	}
	var b strings.Builder
	for _, f := range res.Findings {
		if f.Severity == Warning {
			fmt.Fprintf(&b, "%s seq %d: %s\n", f.Rule, f.Seq, f.Message)
		}
	}
	return b.String()
}

// checkWarnings compares warnings by log with those that a human has reviewed.
func checkWarnings(t *testing.T, golden string, got map[string]string) {
	t.Helper()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if got[name] != "" {
			fmt.Fprintf(&b, "== %s\n%s\n", name, got[name])
		}
	}
	golden = filepath.Join("testdata", golden)
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(string(read(t, golden)), b.String()); d != "" {
		t.Errorf("%s (-want +got):\n%s", golden, d)
	}
}

// Every undamaged scenario is without errors in every container, and its
// warnings are those it was made to have.
func TestCorpusSound(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	n := map[string]int{}
	warnings := map[string]string{}
	for _, part := range []string{"head", "july"} {
		for _, pattern := range []string{"session*.jsonl", "session*.jsonl.zstd", "session*.sqlite"} {
			files, err := filepath.Glob(filepath.Join(dir, part, "*", pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if damagedCase(filepath.Base(filepath.Dir(file))) {
					continue
				}
				name, _ := filepath.Rel(dir, file)
				for log, err := range logfmt.Open(file, logfmt.Options{}) {
					if err != nil {
						t.Errorf("%s: %v", name, err)
						continue
					}
					n[part+" "+string(log.Container)]++
					res, err := Check(context.Background(), log, Options{})
					log.Close()
					if err != nil {
						t.Fatal(err)
					}
					got := warningLines(t, name, res)
					key := filepath.ToSlash(filepath.Dir(name)) + " " + res.Session
					if was, ok := warnings[key]; ok && was != got {
						t.Errorf("%s: warnings depend on the container (-other +this):\n%s", name, cmp.Diff(was, got))
					}
					warnings[key] = got
				}
			}
		}
	}
	for _, kind := range []string{"head jsonl", "head zstd", "head sqlite", "july jsonl", "july sqlite"} {
		if n[kind] == 0 {
			t.Fatalf("no scenarios found of %s: %v", kind, n)
		}
	}
	checkWarnings(t, "corpus-warnings.golden", warnings)
	t.Logf("sound logs: %v", n)
}

// Logs in which a process was killed and that no load repaired are open or torn.
func TestCorpusKilled(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	for pattern, want := range map[string]Verdict{
		"head/resume-killed-*/crashed/session*.jsonl":  Open,
		"head/resume-*/before-resume/session*.jsonl":   OK,
		"july/*-crash-repair/crashed.jsonl":            Torn,
		"head/crash-*/repaired-file.jsonl":             OK,
		"head/fork-boundary/session.grandchild*.jsonl": OK,
		"head/crash-bad-utf8-tail/repaired-file.jsonl": Warn,
		"head/crash-crlf-tail/repaired-file.jsonl":     Warn,
	} {
		logs, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
		if err != nil || len(logs) == 0 {
			t.Fatalf("%s: %d logs, %v", pattern, len(logs), err)
		}
		for _, log := range logs {
			name, _ := filepath.Rel(dir, log)
			if want == OK && (strings.Contains(name, "crash-bad-utf8-tail") || strings.Contains(name, "crash-crlf-tail")) {
				continue // has a line of its own
			}
			if res := judgeFile(t, log); res.Verdict != want {
				t.Errorf("%s: want %s, got:\n%s", name, want, verdictLines(res))
			}
		}
	}
}

// containers are the names of a case's log in each container that one may be in.
var containers = []string{"session.jsonl", "damaged.jsonl", "session.jsonl.zstd", "damaged.jsonl.zstd", "session.sqlite", "damaged.sqlite"}

// Every damaged case, whatever container it is in: the findings are those a human
// has reviewed, and what the harness refused is not ok. Logs of killed processes,
// which nothing has repaired, are listed too.
func TestCorpusDamaged(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	var cases []string
	for _, pattern := range []string{"head/*", "july/*", "head/*/crashed"} {
		found, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		cases = append(cases, found...)
	}
	slices.Sort(cases)
	var got strings.Builder
	n, refused := map[string]int{}, 0
	for _, c := range cases {
		name, _ := filepath.Rel(dir, c)
		name = filepath.ToSlash(name)
		names := containers
		switch base := filepath.Base(name); {
		case strings.HasPrefix(base, "crash-sweep-"):
			continue // lists of cuts: TestCuts
		case base == "crashed":
			names = append(slices.Clone(names), "session.packed.jsonl")
		case strings.HasPrefix(name, "july/") && strings.HasSuffix(base, "-crash-repair"):
			names = []string{"crashed.jsonl"} // session.* is the log after the repair, and sound
		case !damagedCase(base):
			continue
		}
		logs := 0
		for _, base := range names {
			path := filepath.Join(c, base)
			if !isFile(path) {
				continue
			}
			logs++
			n[strings.TrimLeft(base, "abcdefghijklmnopqrstuvwxyz")]++
			note, how := "the process was killed", "not loaded"
			no := false
			if verdict := filepath.Join(c, "verdict.json"); isFile(verdict) {
				note, no = harness(t, verdict)
				how = "accepted"
				if no {
					how = "refused"
					refused++
				}
			}
			fmt.Fprintf(&got, "== %s", name)
			if base != "session.jsonl" && base != "damaged.jsonl" {
				fmt.Fprintf(&got, "/%s", base)
			}
			fmt.Fprintf(&got, ": %s (%s)\n", note, how)
			sound := true
			for log, err := range logfmt.Open(path, logfmt.Options{}) {
				if err != nil {
					fmt.Fprintf(&got, "unreadable: %v\n", err)
					sound = false
					continue
				}
				res, err := Check(context.Background(), log, Options{})
				log.Close()
				if err != nil {
					t.Fatal(err)
				}
				got.WriteString(verdictLines(res))
				sound = sound && res.Verdict == OK
			}
			// What is wrong with this one is the place it was stored in: TestRootVerdicts.
			if no && sound && name != "head/invalid-header-id-mismatch" {
				t.Errorf("%s: refused by the harness (%s), and ok here", path, note)
			}
			got.WriteByte('\n')
		}
		if logs == 0 {
			t.Errorf("%s: no log in it", name)
		}
	}
	t.Logf("damaged logs: %v; %d refused by the harness", n, refused)
	for kind, least := range map[string]int{".jsonl": 200, ".jsonl.zstd": 20, ".sqlite": 55, ".packed.jsonl": 1} {
		if n[kind] < least {
			t.Errorf("%d cases of %s, want at least %d", n[kind], kind, least)
		}
	}
	golden := filepath.Join("testdata", "corpus.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(strings.ReplaceAll(got.String(), dir+string(filepath.Separator), "")), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(string(read(t, golden)), strings.ReplaceAll(got.String(), dir+string(filepath.Separator), "")); d != "" {
		t.Errorf("%s (-want +got):\n%s", golden, d)
	}
}

// harness reads what the harness said about a case: its note, and whether any
// stage refused it. Building a session from the raw events does not count for
// logs that a load upgrades first.
func harness(t *testing.T, path string) (note string, refused bool) {
	var v map[string]json.RawMessage
	if err := json.Unmarshal(read(t, path), &v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for _, key := range []string{"note", "why"} {
		if s := ""; json.Unmarshal(v[key], &s) == nil && s != "" {
			note = s
		}
	}
	stages := v
	if s := v["stages"]; s != nil {
		stages = nil
		if err := json.Unmarshal(s, &stages); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	legacy := strings.Contains(path, "legacy-")
	for key, raw := range stages {
		if legacy && key == "sessionCreate" || key == "note" || key == "why" {
			continue
		}
		var stage struct{ OK *bool }
		text := ""
		switch {
		case strings.HasSuffix(key, "Error") && string(raw) != "null":
			refused = true
		case json.Unmarshal(raw, &text) == nil:
			refused = refused || strings.HasPrefix(text, "reject")
		case json.Unmarshal(raw, &stage) == nil && stage.OK != nil:
			refused = refused || !*stage.OK
		}
	}
	return note, refused
}

// RequestsSHA256 is that of the requests that were recorded when the large log was
// made, in every form of it.
func TestRequestsSHA256(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the large logs are in the full corpus only")
	}
	dir = filepath.Join(dir, "big", "20mb")
	data, err := os.ReadFile(filepath.Join(dir, "request-hashes.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	all, n := sha256.New(), int64(0)
	for line := range bytes.Lines(data) {
		var row struct{ SHA256 string }
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		sum, err := hexenc.DecodeString(row.SHA256)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(sum)
		n++
	}
	want := fmt.Sprintf("%x", all.Sum(nil))
	for _, name := range []string{"session.jsonl", "session.packed.jsonl", "session.jsonl.zstd", "session.sqlite"} {
		for _, ahead := range []bool{false, true} {
			log, err := logfmt.OpenFile(filepath.Join(dir, name), logfmt.Options{})
			if err != nil {
				t.Fatal(err)
			}
			res, err := Check(context.Background(), log, Options{Ahead: ahead})
			log.Close()
			if err != nil {
				t.Fatal(err)
			}
			if res.Requests.Exact != n || res.RequestsSHA256 != want || res.Verdict != OK {
				t.Errorf("%s, ahead %t: %s, %d requests with %s; want %d with %s", name, ahead, res.Verdict, res.Requests.Exact, res.RequestsSHA256, n, want)
			}
		}
	}
	t.Logf("%d requests in 4 forms", n)
}
