package invariants

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// files makes a directory of files.
func files(t testing.TB, content map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "root")
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, ok := strings.CutPrefix(text, "-> "); ok {
			err = os.Symlink(to, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// judgeAll gives the verdicts and findings of everything at a path, a line each.
func judgeAll(t testing.TB, path string, opts Options) []string {
	t.Helper()
	var out []string
	tell := func(res *Result) {
		rel, err := filepath.Rel(path, res.Path)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s %s: %s", res.Container, rel, res.Verdict))
		for _, f := range res.Findings {
			out = append(out, fmt.Sprintf("  %s %s: %s", f.Rule, f.Severity, f.Message))
		}
		for _, o := range res.Omitted {
			out = append(out, fmt.Sprintf("  and %d of %s", o.Count, o.Rule))
		}
	}
	var roots []*Root
	byPath := map[string]*Root{}
	for log, err := range logfmt.Open(path, logfmt.Options{Finding: func(place string, c logfmt.Container, d *logfmt.Defect) {
		if byPath[place] == nil {
			byPath[place] = NewRoot(place, c, opts)
			roots = append(roots, byPath[place])
		}
		byPath[place].Add(d)
	}}) {
		if err != nil {
			t.Fatal(err)
		}
		res, err := Check(context.Background(), log, opts)
		if err != nil {
			t.Fatal(err)
		}
		tell(res)
	}
	for _, r := range roots {
		tell(r.Result())
	}
	return out
}

// rootLog is a sound log of the builds since cwd, id and depth are in the header.
func rootLog(id, cwd string) string {
	return `{"type":"session","version":0,"id":"` + id + `","createdAt":1000,"cwd":"` + cwd + `","delegationDepth":0}` + "\n"
}

func TestRootVerdicts(t *testing.T) {
	early := `{"type":"session","version":1,"id":"a","createdAt":1000,"cwd":"/srv/app"}` + "\n" +
		`{"type":"turn/start","seq":0,"time":1001,"data":{"turn":1,"trigger":{"kind":"message","source":{"kind":"user"}}}}` + "\n" +
		`{"type":"turn/end","seq":1,"time":1002,"data":{"turn":1,"reason":{"kind":"completed"}}}` + "\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		opts  Options
		want  []string
	}{
		{"sound", map[string]string{"--srv-app--/a/session.jsonl": rootLog("a", "/srv/app")}, Options{},
			[]string{"jsonl --srv-app--/a/session.jsonl: ok"}},
		{"identity", map[string]string{"--srv-app--/a/session.jsonl": rootLog("b", "/srv/app")}, Options{},
			[]string{
				"jsonl --srv-app--/a/session.jsonl: violations",
				`  ROOT-IDENTITY error: the log lies in --srv-app--/a, its header puts it in --srv-app--/b: the directory is that of id "a", the header has id "b"`,
			}},
		{"identity, not asked for", map[string]string{"--srv-app--/a/session.jsonl": rootLog("b", "/srv/app")},
			Options{Rules: func(id string) bool { return id != logfmt.RuleIdentity }},
			[]string{"jsonl --srv-app--/a/session.jsonl: ok"}},
		{"refused", map[string]string{
			"--srv-app--/a/session.jsonl": rootLog("a", "/srv/app"),
			"--srv-app--/b.jsonl":         rootLog("b", "/srv/app"),
			"_no-cwd/a/session.jsonl":     `{"type":"session","version":0,"id":"a","createdAt":1000,"delegationDepth":0}` + "\n",
		}, Options{}, []string{
			"jsonl --srv-app--/a/session.jsonl: ok",
			"jsonl --srv-app--/b.jsonl: ok",
			"jsonl _no-cwd/a/session.jsonl: ok",
			"directory .: violations",
			"  ROOT-DUPLICATE error: _no-cwd/a: the same session also lies at --srv-app--/a: the harness refuses to look it up",
			"  ROOT-STRAY error: --srv-app--/b.jsonl: 1 log lies directly in a project directory, beside session directories such as --srv-app--/a: the harness refuses the whole root",
		}},
		{"warnings", map[string]string{"--srv-app--/a/session.jsonl": rootLog("a", "/srv/app"), "--srv-app--/\x1b": "-> a"}, Options{},
			[]string{
				"jsonl --srv-app--/a/session.jsonl: ok",
				"directory .: warn",
				`  ROOT-ENTRY warning: --srv-app--/\x1b: a symbolic link, which is not followed: what it stands for is not judged`,
			}},
		{"notes, and one too many", map[string]string{
			"--srv-app--/a/session.jsonl":                      rootLog("a", "/srv/app"),
			"--srv-app--/a/session.jsonl.0123456789ab.tmp":     "",
			"--srv-app--/a/session.jsonl.0123456789ac.tmp":     "",
			"--srv-app--/.dsh-mkdir-AbCdEf/session.jsonl.part": "",
		}, Options{MaxPerRule: 2}, []string{
			"jsonl --srv-app--/a/session.jsonl: ok",
			"directory .: ok",
			"  ROOT-TEMP note: --srv-app--/.dsh-mkdir-AbCdEf: a directory under a temporary name, left behind while it was made",
			"  ROOT-TEMP note: --srv-app--/a/session.jsonl.0123456789ab.tmp: a file under a temporary name, left behind by a write that did not finish",
			"  and 1 of ROOT-TEMP",
		}},
		{"flat, summary behind", map[string]string{
			"cwd-dae668e4084f/a.jsonl":        early,
			"cwd-dae668e4084f/a.summary.json": `{"updatedAt":1001}`,
		}, Options{}, []string{
			"jsonl cwd-dae668e4084f/a.jsonl: ok",
			"  LOAD-REFUSED note: the harness of 2026-08-21 refuses the log: it takes format version 1 for a later one than the 0 that it reads, although builds of 06-17 to 06-21 wrote it",
			"  ROOT-SIDECAR note: the summary beside the log was last updated at 1001, before this event of 1002",
			"directory .: ok",
			"  ROOT-FLAT note: the root has the flat layout of builds before 07-25: 1 log; later ones refuse it",
		}},
		{"flat, moved", map[string]string{
			"cwd-dae668e4084e/a.jsonl":        early,
			"cwd-dae668e4084e/a.summary.json": `{"updatedAt":1002}`,
		}, Options{}, []string{
			"jsonl cwd-dae668e4084e/a.jsonl: warn",
			"  ROOT-BUCKET warning: the log lies at cwd-dae668e4084e/a, its header puts it at cwd-dae668e4084f/a",
			"  LOAD-REFUSED note: the harness of 2026-08-21 refuses the log: it takes format version 1 for a later one than the 0 that it reads, although builds of 06-17 to 06-21 wrote it",
			"directory .: ok",
			"  ROOT-FLAT note: the root has the flat layout of builds before 07-25: 1 log; later ones refuse it",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, judgeAll(t, files(t, c.files), c.opts)); d != "" {
				t.Error(d)
			}
		})
	}
}
