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
	"github.com/dsh-audit/dsh-audit/pkg/fold"
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
	want := map[string]int{
		"v1": 189, "v1 ok": 119, "v1 warn": 19, "v1 open": 20, "v1 violations": 31,
		"v2": 163, "v2 ok": 131, "v2 warn": 5, "v2 open": 20, "v2 violations": 7,
		"v3": 162, "v3 ok": 132, "v3 warn": 4, "v3 open": 20, "v3 violations": 6,
		"v4": 162, "v4 ok": 132, "v4 warn": 4, "v4 open": 20, "v4 violations": 6,
	}
	if d := cmp.Diff(want, count); d != "" {
		t.Errorf("verdicts (-want +got):\n%s", d)
	}
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

// seededLog is a log of generation 4 whose events up to the second mark are
// inherited: one request before the first mark, one between, one behind.
func seededLog() string {
	b := `{"type":"session","version":4,"id":"g","createdAt":1,"cwd":"/w","parentSession":"c","isSeeded":true,"delegationDepth":0}` + "\n"
	n := 0
	add := func(typ, data, rest string) {
		b += fmt.Sprintf(`{"type":%q,"seq":%d,"time":%d,"data":%s%s}`+"\n", typ, n, 10+n, data, rest)
		n++
	}
	for turn := 1; turn <= 3; turn++ {
		add("turn/start", fmt.Sprintf(`{"turn":%d}`, turn), "")
		add("step/start", fmt.Sprintf(`{"turn":%d,"step":1}`, turn), "")
		add("user/message", fmt.Sprintf(`{"content":[{"type":"text","text":"q"}],"source":{"kind":"user"},"role":"user","id":"u%d"}`, turn), `,"surfaceOp":"append"`)
		if turn == 1 {
			add("request/header", `{"header":{"config":{"provider":"p","model":"m"}},"reason":"initial"}`, "")
		}
		add("assistant/message", fmt.Sprintf(`{"turn":%d,"step":1,"message":{"role":"assistant","content":[{"type":"text","text":"a"}],"source":{"kind":"model","provider":"p","model":"m"},"id":"a%d"},"stream":[]}`, turn, turn), `,"surfaceOp":"append"`)
		add("step/end", fmt.Sprintf(`{"turn":%d,"step":1}`, turn), "")
		add("turn/end", fmt.Sprintf(`{"turn":%d,"reason":{"kind":"completed"}}`, turn), "")
		if turn < 3 {
			add("session/end-seed", `{"inherited":true}`, "")
		}
	}
	return b
}

// TestInheritedRequests: requests before the last mark are the parent's, whether
// the log can be read twice or comes as a stream.
func TestInheritedRequests(t *testing.T) {
	text := seededLog()
	file := filepath.Join(t.TempDir(), "session.v4.jsonl")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := RequestCounts{Exact: 1, Inherited: 2}
	for name, res := range map[string]*Result{"file": judgeFile(t, file), "stream": judge(t, []byte(text), Options{})} {
		if res.Requests != want || res.Verdict != OK {
			t.Errorf("%s: %+v, want %+v\n%s", name, res.Requests, want, verdictLines(res))
		}
	}
	log, err := logfmt.OpenFile(file, logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var got []bool
	if _, err := Check(context.Background(), log, Options{Request: func(r *fold.Request) { got = append(got, r.Inherited) }}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]bool{true, true, false}, got); d != "" {
		t.Errorf("inherited (-want +got):\n%s", d)
	}
}

// TestHardTail: in generation 4 a spelling that retired is an error even behind a
// cut, where anything else is only noted.
func TestHardTail(t *testing.T) {
	head := func(v int) string {
		return fmt.Sprintf(`{"type":"session","version":%d,"id":"s","createdAt":1,"cwd":"/w","isSeeded":false,"delegationDepth":0}`+"\n", v) +
			`{"type":"plan/mode","seq":0,"time":1,"data":{"active":true}}` + "\n" + `{"type":` + "\n"
	}
	user := func(source string) string {
		return `{"type":"user/message","seq":1,"time":2,"data":{"content":[],"source":` + source + `,"role":"user","id":"u"},"surfaceOp":"append"}` + "\n"
	}
	const plugin = `{"kind":"plugin","plugin":"x"}`
	for _, c := range []struct{ name, text, want string }{
		{"cut", head(4), "torn LINE-JSON warning"},
		{"retired source", head(4) + user(plugin), "violations LINE-JSON warning MSG-SHAPE error"},
		{"the generation before", head(3) + user(plugin), "torn LINE-JSON warning"},
		{"another fault", head(4) + user(`{"kind":"x"}`) + `{"type":"turn/start","seq":2,"time":1,"data":{"turn":7}}` + "\n", "torn LINE-JSON warning TURN-OPEN note LOG-TIME note"},
		{"retired type", head(4) + `{"type":"tool/code-dispatch","seq":1,"time":2,"data":{}}` + "\n", "violations LINE-JSON warning LOG-TYPE error"},
		{"header with a prompt", head(4) + `{"type":"request/header","seq":1,"time":2,"data":{"header":{"config":{"provider":"p","model":"m"},"system":"x"},"reason":"initial"}}` + "\n",
			"violations LINE-JSON warning HDR-SHAPE error TURN-ENCLOSE note"},
	} {
		res := judge(t, []byte(c.text), Options{})
		got := string(res.Verdict)
		for _, f := range res.Findings {
			got += " " + f.Rule + " " + f.Severity.String()
		}
		for _, w := range strings.Fields(strings.ReplaceAll(c.want, " ", "\n")) {
			if !strings.Contains(got, w) {
				t.Errorf("%s: got %s, want %s\n%s", c.name, got, c.want, verdictLines(res))
				break
			}
		}
		if len(strings.Fields(got)) != len(strings.Fields(c.want)) {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}
