package invariants

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Judged as loaded, an old log that the newest harness refuses has an error.
func TestAsLoadedRefused(t *testing.T) {
	a, err := txtar.ParseFile("testdata/LOAD-REFUSED.txtar")
	if err != nil {
		t.Fatal(err)
	}
	res := judge(t, a.Files[0].Data, Options{AsLoaded: true})
	want := []string{"LOAD-REFUSED error 1 -1"}
	if d := cmp.Diff(want, lines(res, true)); d != "" || res.Verdict != Violations {
		t.Errorf("verdict %s, findings (-want +got):\n%s", res.Verdict, d)
	}
}

// Judged as loaded, a log is judged by what the harness holds: upgraded events,
// no torn tail, a closed turn.
func TestAsLoaded(t *testing.T) {
	const text = `{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"/w","delegationDepth":0}
{"type":"turn/start","seq":0,"time":10,"data":{"turn":1,"trigger":{"kind":"message","source":{"kind":"user"}}}}
{"type":"user/message","seq":1,"time":11,"data":{"content":[{"type":"text","text":"q"}],"source":{"kind":"user"}},"surfaceOp":"append"}
{"type":"step/start","seq":2,"time":12,"data":{"turn":1,"step":1}}
{"type":"todo/wri`
	res := judge(t, []byte(text), Options{})
	if d := cmp.Diff([]string{"TAIL-OPEN note 4 2", "LINE-TORN warning 5 3"}, lines(res, true)); d != "" || res.Verdict != Torn {
		t.Errorf("as stored: verdict %s, findings (-want +got):\n%s", res.Verdict, d)
	}
	res = judge(t, []byte(text), Options{AsLoaded: true})
	if d := cmp.Diff([]string{"LINE-TORN warning 5 3"}, lines(res, true)); d != "" || res.Verdict != Torn {
		t.Errorf("as loaded: verdict %s, findings (-want +got):\n%s", res.Verdict, d)
	}
	if res.Events != 5 {
		t.Errorf("%d events, want 3 stored ones and 2 closers", res.Events)
	}
}

// What is loaded is judged like a log that holds exactly these events.
func TestCorpusAsLoaded(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	files, err := filepath.Glob(filepath.Join(dir, "head", "*", "verdict.json"))
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		var log string
		for _, base := range []string{"session.jsonl", "damaged.jsonl"} {
			if p := filepath.Join(filepath.Dir(file), base); log == "" && isFile(p) {
				log = p
			}
		}
		if log == "" {
			continue
		}
		var events []byte
		for _, base := range []string{"loaded.jsonl", "repaired.jsonl"} {
			if p := filepath.Join(filepath.Dir(file), base); isFile(p) {
				events = read(t, p)
			}
		}
		res := judgeWith(t, log, Options{AsLoaded: true})
		refused := slices.ContainsFunc(res.Findings, func(f *Finding) bool { return f.Rule == ruleRefused && f.Severity == Error })
		// What is wrong with this one is the place it was stored in.
		if want := events == nil; refused != want && name != "invalid-header-id-mismatch" {
			t.Errorf("%s: refused: %v, want %v:\n%s", name, refused, want, verdictLines(res))
		}
		if events == nil {
			n["refused"]++
			continue
		}
		n["loaded"]++
		header, _, _ := bytes.Cut(read(t, log), []byte("\n"))
		want := judge(t, slices.Concat(header, []byte("\n"), events), Options{})
		if got, want := meanings(res), meanings(want); !slices.Equal(got, want) {
			t.Errorf("%s: judged as loaded %q, judged when stored %q", name, got, want)
		}
	}
	t.Logf("%v", n)
	if n["refused"] == 0 || n["loaded"] == 0 {
		t.Error("cases are missing")
	}
}

// meanings are the kinds of findings that are not about stored bytes, nor about
// the build that wrote them.
func meanings(res *Result) []string {
	var out []string
	for _, f := range res.Findings {
		if f.Class == "" && !strings.HasPrefix(f.Rule, "LINE-") && !ofWriter[f.Rule] && !(f.Rule == "LOG-ENV" && strings.Contains(f.Message, "the line holds")) {
			out = append(out, fmt.Sprintf("%s %s", f.Rule, f.Severity))
		}
	}
	slices.Sort(out)
	return slices.Compact(out) // a packed row has one finding for all its events
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

func judgeWith(t testing.TB, path string, opts Options) *Result {
	t.Helper()
	log, err := logfmt.OpenFile(path, logfmt.Options{})
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
