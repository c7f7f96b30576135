package invariants

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/zframe"
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
		{"two encodings", map[string]string{
			"--srv-app--/a/session.jsonl":      rootLog("a", "/srv/app"),
			"--srv-app--/b/session.jsonl.zstd": string(zframe.NewEncoder().Append(nil, []byte(rootLog("b", "/srv/app")))),
		}, Options{}, []string{
			"jsonl --srv-app--/a/session.jsonl: ok",
			"zstd --srv-app--/b/session.jsonl.zstd: ok",
			"directory .: violations",
			"  ROOT-ENCODING error: --srv-app--/b/session.jsonl.zstd: the root holds 1 plain log (such as --srv-app--/a/session.jsonl) and 1 compressed log (such as --srv-app--/b/session.jsonl.zstd): the harness refuses it",
		}},
		{"a name and a generation too many", map[string]string{
			"--srv-app--/a/session.jsonl":    rootLog("a", "/srv/app"),
			"--srv-app--/a/session.v3.jsonl": `{"type":"session","version":3,"id":"a","createdAt":1000,"isSeeded":false,"cwd":"/srv/app","delegationDepth":0}` + "\n",
			"--srv-app--/b/session.v1.jsonl": `{"type":"session","version":1,"id":"b","createdAt":1000,"cwd":"/srv/app","delegationDepth":0}` + "\n",
		}, Options{}, []string{
			"jsonl --srv-app--/a/session.v3.jsonl: ok",
			"jsonl --srv-app--/b/session.v1.jsonl: ok",
			"directory .: warn",
			"  ROOT-GENERATION note: --srv-app--/a/session.jsonl: generation 0 of the session, which is kept but never read again: the harness opens session.v3.jsonl",
			"  ROOT-NAME warning: --srv-app--/b/session.v1.jsonl: no release leaves a log of generation 1 under this name",
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

func zipped(t testing.TB, entries ...[2]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range entries {
		w, err := z.Create(e[0])
		if err == nil {
			_, err = w.Write([]byte(e[1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestArchiveVerdicts(t *testing.T) {
	picture := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("picture")))
	head := `{"type":"session","version":0,"id":"root","createdAt":1000,"cwd":"/srv/app","delegationDepth":0,"agentPreset":"x"}` + "\n" +
		`{"type":"turn/start","seq":0,"time":1001,"data":{"turn":1}}` + "\n" +
		`{"type":"step/start","seq":1,"time":1002,"data":{"turn":1,"step":1}}` + "\n"
	message := func(blocks string) string {
		return `{"type":"user/message","seq":2,"time":1003,"data":{"content":[` + blocks + `],"source":{"kind":"user"},"role":"user","id":"u1"},"surfaceOp":"append"}` + "\n"
	}
	tail := `{"type":"step/end","seq":3,"time":1004,"data":{"turn":1,"step":1}}` + "\n" +
		`{"type":"turn/end","seq":4,"time":1005,"data":{"turn":1,"reason":{"kind":"completed"}}}` + "\n"
	image := func(id, typ string, n int) string {
		return fmt.Sprintf(`{"type":"image","attachment":{"attachmentId":%q,"mediaType":%q,"bytes":%d,"width":1,"height":1}}`, id, typ, n)
	}
	log := func(blocks ...string) string { return head + message(strings.Join(blocks, ",")) + tail }
	words := `{"type":"text","text":"\"attachment\":{\"attachmentId\":\"sha256:0\"}"}`
	for _, c := range []struct {
		name string
		zip  []byte
		want []string
	}{
		{"sound", zipped(t, [2]string{"session.jsonl", log(image(picture, "image/png", 7), image(picture, "image/png", 7), words)}, [2]string{"media/" + picture + ".png", "picture"}),
			[]string{"zip .!session.jsonl: ok"}},
		{"missing, and one too many", zipped(t, [2]string{"session.jsonl", log(image("att-1", "image/webp", 7), image("att-2", "image/tiff", 7))}, [2]string{"media/" + picture + ".png", "picture"}),
			[]string{
				"zip .!session.jsonl: warn",
				`  EVT-SHAPE warning: content[1].attachment.mediaType of user/message is "image/tiff", expected "image/png", "image/jpeg", "image/webp" or "image/gif"`,
				`  ZIP-MEDIA warning: attachment "att-1" is not in the archive: expected media/att-1.webp`,
				`  ZIP-MEDIA warning: attachment "att-2" is not in the archive: expected media/att-2.*`,
				"zip .: ok",
				"  ZIP-ENTRY note: media/" + picture + ".png: no log in the archive refers to this attachment",
			}},
		{"another type and size", zipped(t, [2]string{"session.jsonl", log(image(picture, "image/gif", 8))}, [2]string{"media/" + picture + ".png", "picture"}),
			[]string{
				"zip .!session.jsonl: warn",
				`  ZIP-MEDIA warning: attachment "` + picture[:48] + `…" has 8 bytes in the message, and 7 in the archive`,
				`  ZIP-MEDIA warning: attachment "` + picture[:48] + `…" is of type "image/gif", and lies in the archive as .png`,
			}},
		{"another picture", zipped(t, [2]string{"session.jsonl", log(image(picture, "image/png", 7))}, [2]string{"media/" + picture + ".png", "pictura"}),
			[]string{
				"zip .!session.jsonl: ok",
				"zip .: violations",
				fmt.Sprintf("  ZIP-HASH error: media/%s.png: the attachment has the digest %x, not the one in its name", picture, sha256.Sum256([]byte("pictura"))),
			}},
		{"hostile", zipped(t, [2]string{"session.jsonl", log()}, [2]string{"../\x1b[2J", ""}, [2]string{"subagents/x/session.jsonl", rootLog("y", "/")}),
			[]string{
				"zip .!session.jsonl: ok",
				"zip .!subagents/x/session.jsonl: violations",
				`  ZIP-IDENTITY error: the log lies under the name "x", its header has id "y", which an export puts under "y"`,
				"zip .: violations",
				`  ZIP-NAME error: entry 1 is named "../\x1b[2J": control characters, or bytes that are no UTF-8`,
			}},
		{"one log twice", zipped(t, [2]string{"session.jsonl", log()}, [2]string{"session.jsonl", log()}), []string{
			"zip .!session.jsonl: ok",
			"zip .: violations",
			"  ZIP-DUPLICATE error: session.jsonl: entry 1 has the name of an earlier one",
		}},
		{"an unknown method", bytes.ReplaceAll(zipped(t, [2]string{"session.jsonl", log()}),
			[]byte("\x14\x00\x08\x00\x08\x00"), []byte("\x14\x00\x08\x00\x63\x00")), []string{
			"zip .!session.jsonl: unsupported",
			"  LOAD-REFUSED note: the harness of 2026-08-21 refuses the log: the entry is compressed by method 99, this build reads stored (0) and deflated (8) ones",
			"  ZIP-METHOD error: the entry is compressed by method 99, this build reads stored (0) and deflated (8) ones",
		}},
		{"no log", zipped(t, [2]string{"x", ""}), []string{
			"zip .: unreadable",
			"  ZIP-ENTRY error: the archive holds no log",
			"zip .: ok",
			"  ZIP-ENTRY note: x: no export has an entry of this name",
		}},
		{"cut", zipped(t, [2]string{"session.jsonl", log()})[:300], []string{
			"zip .!session.jsonl: torn",
			"  ZIP-DATA warning: the archive ends within this entry: what was read of it is all there is",
			"zip .: corrupt",
			"  ZIP-DIRECTORY error: the file ends after 300 bytes without the list of its entries; 1 entry found without it",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.zip")
			if err := os.WriteFile(path, c.zip, 0o666); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range judgeAll(t, path, Options{}) {
				got = append(got, strings.Replace(l, "zip ../x.zip!", "zip .!", 1))
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestFixtures: the fixtures of a repository keep the rules, but for what their
// tokens and missing times stand for.
func TestFixtures(t *testing.T) {
	logs, err := filepath.Glob("../logfmt/testdata/fixtures/*/session*.jsonl")
	if err != nil || len(logs) != 9 {
		t.Fatalf("%d logs, %v, want 9", len(logs), err)
	}
	for _, path := range logs {
		log, err := logfmt.OpenFile(path, logfmt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		res, err := Check(context.Background(), log, Options{})
		log.Close()
		if err != nil {
			t.Fatal(err)
		}
		if res.Verdict != OK || res.Errors+res.Warnings > 0 {
			t.Errorf("%s: verdict %s", path, res.Verdict)
			for _, f := range res.Findings {
				t.Logf("%s %s: %s", f.Rule, f.Severity, f.Message)
			}
		}
	}
	dir := files(t, map[string]string{
		"session.jsonl": `{"type":"session","version":0,"id":"a","createdAt":0,"cwd":"{{cwd}}"}` + "\n" +
			`{"type":"text-chunks","data":{"turn":1,"step":1,"index":0,"dt":[7],"texts":["a","b"]}}` + "\n" +
			`{"type":"session/title","data":{"title":"later, at time 0"}}` + "\n",
		"tool-schemas.expected.json": "{}",
	})
	for _, l := range judgeAll(t, dir, Options{}) {
		if strings.Contains(l, "LOG-TIME") || strings.Contains(l, "LOG-HEADER") || strings.Contains(l, "LOG-SEQ") {
			t.Error(l)
		}
		if strings.Contains(l, "LOG-FIXTURE") && l != "  LOG-FIXTURE warning: tool-schemas.expected.json: initial is nothing, expected the list of tools" {
			t.Error(l)
		}
	}
	if got := judgeAll(t, dir, Options{Rules: func(id string) bool { return id == "LOG-FIXTURE" }}); len(got) != 2 {
		t.Errorf("%q", got)
	}
}
