package logfmt

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// quietLog is a small sound log.
func quietLog(version int, id, cwd string) string {
	h := fmt.Sprintf(`{"type":"session","version":%d,"id":%s,"createdAt":1000`, version, jsjson.AppendQuote(nil, id))
	if cwd != "" {
		h += `,"cwd":` + string(jsjson.AppendQuote(nil, cwd))
	}
	if version >= 2 {
		h += `,"isSeeded":false`
	}
	return h + `,"delegationDepth":0}` + "\n" +
		`{"type":"turn/start","seq":0,"time":1001,"data":{"turn":1}}` + "\n" +
		`{"type":"turn/end","seq":1,"time":1002,"data":{"turn":1,"reason":{"kind":"completed"}}}` + "\n"
}

// tree makes files below a new directory. A name that ends in a slash is an empty
// directory, a content of the form "-> x" a symbolic link.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		var err error
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o777)
		} else if err = os.MkdirAll(filepath.Dir(path), 0o777); err == nil {
			if to, ok := strings.CutPrefix(content, "-> "); ok {
				err = os.Symlink(to, path)
			} else {
				err = os.WriteFile(path, []byte(content), 0o666)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// unchanged fails the test if anything in a directory is another than before when
// the test ends.
func unchanged(t testing.TB, dir string) {
	t.Helper()
	state := func() string {
		var b strings.Builder
		filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			fmt.Fprintf(&b, "%q %v", strings.TrimPrefix(p, dir), err)
			if err == nil && d.Type().IsRegular() {
				data, err := os.ReadFile(p)
				st, _ := os.Stat(p)
				fmt.Fprintf(&b, " %v %s %d %x", err, st.ModTime(), len(data), sha256.Sum256(data))
			}
			b.WriteByte('\n')
			return nil
		})
		return b.String()
	}
	before := state()
	t.Cleanup(func() {
		if after := state(); after != before {
			t.Errorf("the input changed: %s", cmp.Diff(before, after))
		}
	})
}

// survey walks a directory and tells what it gave, a line each: logs with what is
// said about them, findings about the whole, errors, and entries passed over.
func survey(t testing.TB, path string) []string {
	t.Helper()
	rel := func(p string) string {
		if r, err := filepath.Rel(path, p); err == nil && !strings.HasPrefix(r, "..") {
			return r
		}
		return p
	}
	var out, skipped []string
	o := Options{
		Skip: func(p, reason string) { skipped = append(skipped, "skip "+rel(p)+": "+reason) },
		Finding: func(root string, c Container, d *Defect) {
			if d.Hint == "" && d.Rule != RuleName {
				t.Errorf("%s: no hint", d.Rule)
			}
			out = append(out, fmt.Sprintf("%s %s: %s: %s", d.Rule, rel(root), rel(d.File), d.Message))
		},
	}
	for l, err := range Open(path, o) {
		if err != nil {
			var pe *fs.PathError
			if !errors.As(err, &pe) {
				t.Errorf("not a path error: %v", err)
				continue
			}
			out = append(out, fmt.Sprintf("error %s: %v", rel(pe.Path), pe.Err))
			continue
		}
		n := 0
		var defects []string
		for _, d := range l.Events() {
			if d != nil {
				defects = append(defects, fmt.Sprintf("  %s %s", d.Rule, d.Message))
				continue
			}
			n++
		}
		out = append(out, fmt.Sprintf("log %s: %s, %d events, %s", rel(l.Path), l.Container, n, l.Class()))
		out = append(out, defects...)
	}
	return append(out, skipped...)
}

func TestRoot(t *testing.T) {
	key := func(cwd string) string {
		k, err := ProjectKey(cwd)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	app, win := key("/srv/app"), key(`C:\Users\me`)
	log := func(id, cwd string) string { return quietLog(0, id, cwd) }
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"sound", map[string]string{
			app + "/a/session.jsonl":            log("a", "/srv/app"),
			win + "/b~002Fc/session.jsonl":      log("b/c", `C:\Users\me`),
			"_no-cwd/~D83D~DE00/session.jsonl":  log("😀", ""),
			"_no-cwd/~002E~002E/session.jsonl":  log("..", ""),
			"_no-cwd/empty/":                    "",
			app + "/a/session.lock":             "",
			key("/") + "/deep.er/session.jsonl": log("deep.er", "//"),
		}, []string{
			"log " + win + "/b~002Fc/session.jsonl: jsonl, 2 events, intact",
			"log --root--/deep.er/session.jsonl: jsonl, 2 events, intact",
			"log --srv-app--/a/session.jsonl: jsonl, 2 events, intact",
			"log _no-cwd/~002E~002E/session.jsonl: jsonl, 2 events, intact",
			"log _no-cwd/~D83D~DE00/session.jsonl: jsonl, 2 events, intact",
			"skip --srv-app--/a/session.lock: a name that the harness ignores in a session directory",
		}},
		{"identity", map[string]string{
			app + "/a/session.jsonl":            log("b", "/srv/app"),
			app + "/c/session.jsonl":            log("c", "/srv/other"),
			app + "/d/session.jsonl":            log("d", ""),
			app + "/e%20/session.jsonl":         log("e ", "/srv/app"),
			app + "/f/session.jsonl":            log("", "/srv/app"),
			app + "/g/session.v2.jsonl":         quietLog(3, "g", "/srv/app"),
			app + "/h/session.jsonl":            "not a log\n",
			"notes/i/session.jsonl":             log("i", "/srv/app"),
			app + "/j/session.jsonl":            `{"type":"session","version":0,"id":"j","createdAt":1,"cwd":"","delegationDepth":0}` + "\n",
			app + "/k/session.jsonl":            `{"type":"session","version":0,"id":"k","createdAt":1,"cwd":7,"delegationDepth":0}` + "\n",
			app + "/deep/inner/session.2.jsonl": log("whatever", "/srv/app"),
		}, []string{
			"log --srv-app--/a/session.jsonl: jsonl, 2 events, intact",
			`  ROOT-IDENTITY the log lies in --srv-app--/a, its header puts it in --srv-app--/b: the directory is that of id "a", the header has id "b"`,
			"log --srv-app--/c/session.jsonl: jsonl, 2 events, intact",
			`  ROOT-IDENTITY the log lies in --srv-app--/c, its header puts it in --srv-other--/c: the header has cwd "/srv/other"`,
			"log --srv-app--/d/session.jsonl: jsonl, 2 events, intact",
			"  ROOT-IDENTITY the log lies in --srv-app--/d, its header puts it in _no-cwd/d: the header has no cwd",
			"log --srv-app--/deep/inner/session.2.jsonl: jsonl, 2 events, intact",
			"log --srv-app--/e%20/session.jsonl: jsonl, 2 events, intact",
			"  ROOT-IDENTITY the log lies in --srv-app--/e%20, its header puts it in --srv-app--/e~0020: the directory has the name of no id (byte 1: a name holds only A-Z a-z 0-9 . _ - and escapes, got byte 0x25)",
			"log --srv-app--/f/session.jsonl: jsonl, 2 events, intact",
			"  ROOT-IDENTITY the header has an empty id, which has no place in a root",
			"log --srv-app--/g/session.v2.jsonl: jsonl, 2 events, intact",
			"  ROOT-IDENTITY the name of the file says generation 2, the header version 3",
			"log --srv-app--/h/session.jsonl: jsonl, 0 events, unreadable",
			"  LOG-HEADER not a session log: not valid JSON: expected null, got 'o'",
			"log --srv-app--/j/session.jsonl: jsonl, 0 events, intact",
			"  ROOT-IDENTITY the header has an empty cwd, which has no place in a root",
			"log --srv-app--/k/session.jsonl: jsonl, 0 events, intact",
			"log notes/i/session.jsonl: jsonl, 2 events, intact",
			`  ROOT-IDENTITY the log lies in notes/i, its header puts it in --srv-app--/i: the header has cwd "/srv/app"`,
		}},
		{"two places, both encodings, a stray", map[string]string{
			app + "/a/session.jsonl":       log("a", "/srv/app"),
			"_no-cwd/a/session.jsonl":      log("a", ""),
			"_no-cwd/b/session.jsonl.zstd": "",
			"_no-cwd/c.jsonl":              log("c", ""),
			app + "/c/session.jsonl":       log("c", "/srv/app"),
		}, []string{
			"log --srv-app--/a/session.jsonl: jsonl, 2 events, intact",
			"log --srv-app--/c/session.jsonl: jsonl, 2 events, intact",
			"ROOT-DUPLICATE .: _no-cwd/a: the same session also lies at --srv-app--/a: the harness refuses to look it up",
			"log _no-cwd/a/session.jsonl: jsonl, 2 events, intact",
			"log _no-cwd/b/session.jsonl.zstd: zstd, 0 events, corrupt",
			"  LOG-HEADER the file is empty, expected a frame with the header record",
			"ROOT-DUPLICATE .: _no-cwd/c.jsonl: the same session also lies at --srv-app--/c: the harness refuses to look it up",
			"log _no-cwd/c.jsonl: jsonl, 2 events, intact",
			"ROOT-STRAY .: _no-cwd/c.jsonl: 1 log lies directly in a project directory, beside session directories such as --srv-app--/a: the harness refuses the whole root",
			"ROOT-ENCODING .: _no-cwd/b/session.jsonl.zstd: the root holds 4 plain logs (such as --srv-app--/a/session.jsonl) and 1 compressed log (such as _no-cwd/b/session.jsonl.zstd): the harness refuses it",
		}},
		{"generations", map[string]string{
			app + "/a/session.jsonl":    log("a", "/srv/app"),
			app + "/a/session.v3.jsonl": quietLog(3, "a", "/srv/app"),
			app + "/a/session.v9.jsonl": quietLog(9, "a", "/srv/app"),
			app + "/b/session.v1.jsonl": quietLog(1, "b", "/srv/app"),
		}, []string{
			"log --srv-app--/a/session.v9.jsonl: jsonl, 0 events, unsupported",
			"  LOG-FORMAT format version 9: this build reads generations 0 to 4",
			"ROOT-GENERATION .: --srv-app--/a/session.v3.jsonl: generation 3 of the session, which is kept but never read again: the harness opens session.v9.jsonl",
			"ROOT-GENERATION .: --srv-app--/a/session.jsonl: generation 0 of the session, which is kept but never read again: the harness opens session.v9.jsonl",
			"ROOT-NAME .: --srv-app--/b/session.v1.jsonl: no release leaves a log of generation 1 under this name",
			"log --srv-app--/b/session.v1.jsonl: jsonl, 2 events, intact",
			"skip --srv-app--/a/session.v3.jsonl: an older generation of the same session",
			"skip --srv-app--/a/session.jsonl: an older generation of the same session",
		}},
		{"left behind", map[string]string{
			".dsh-mkdir-AbCdEf/x/session.jsonl":                     log("x", ""),
			app + "/.dsh-mkdir-a-AbCdEf/session.jsonl":              log("y", ""),
			app + "/a/session.jsonl":                                log("a", "/srv/app"),
			app + "/a/session.jsonl.0123456789ab.tmp":               "",
			app + "/a/session.migration.0123456789abcdef.jsonl.tmp": "",
			"_no-cwd/b/session.jsonl.zstd.0123456789ab.tmp":         "",
			app + "/a/session.jsonl.0123456789AB.tmp":               "",
			"_no-cwd/b/notes\x1b[31m.txt":                           "",
			"_no-cwd/b/\xff":                                        "",
			"_no-cwd/loop":                                          "-> ../_no-cwd",
			"elsewhere":                                             "-> .",
		}, []string{
			"ROOT-TEMP .: --srv-app--/.dsh-mkdir-a-AbCdEf: a directory under a temporary name, left behind while it was made",
			"ROOT-TEMP .: --srv-app--/a/session.jsonl.0123456789ab.tmp: a file under a temporary name, left behind by a write that did not finish",
			"ROOT-TEMP .: --srv-app--/a/session.migration.0123456789abcdef.jsonl.tmp: a file under a temporary name, left behind by a write that did not finish",
			"log --srv-app--/a/session.jsonl: jsonl, 2 events, intact",
			"ROOT-TEMP .: .dsh-mkdir-AbCdEf: a directory under a temporary name, left behind while it was made",
			"ROOT-NAME .: _no-cwd/b/notes\x1b[31m.txt: the name holds control characters, which no harness writes",
			"ROOT-TEMP .: _no-cwd/b/session.jsonl.zstd.0123456789ab.tmp: a file under a temporary name, left behind by a write that did not finish",
			"ROOT-NAME .: _no-cwd/b/\xff: the name holds bytes that are no UTF-8, which no harness writes",
			"ROOT-ENTRY .: _no-cwd/loop: a symbolic link, which is not followed: what it stands for is not judged",
			"ROOT-ENTRY .: elsewhere: a symbolic link, which is not followed: what it stands for is not judged",
			"skip --srv-app--/.dsh-mkdir-a-AbCdEf: staging directory",
			"skip --srv-app--/a/session.jsonl.0123456789AB.tmp: a name that the harness ignores in a session directory",
			"skip --srv-app--/a/session.jsonl.0123456789ab.tmp: temporary file",
			"skip --srv-app--/a/session.migration.0123456789abcdef.jsonl.tmp: temporary file",
			"skip .dsh-mkdir-AbCdEf: staging directory",
			"skip _no-cwd/b/notes\x1b[31m.txt: a name that the harness ignores in a session directory",
			"skip _no-cwd/b/session.jsonl.zstd.0123456789ab.tmp: temporary file",
			"skip _no-cwd/b/\xff: a name that the harness ignores in a session directory",
			"skip _no-cwd/loop: not a regular file",
			"skip elsewhere: not a regular file",
		}},
		{"flat", map[string]string{
			CwdBucket("/srv/app") + "/a~002Fb.jsonl":        log("a/b", "/srv/app"),
			CwdBucket("/srv/app") + "/a~002Fb.summary.json": `{"updatedAt":1002,"firstPrompt":"tidy the loft"}`,
			CwdBucket("/srv/app") + "/gone.summary.json":    `{"updatedAt":1002}`,
			CwdBucket("/srv/app") + "/c.jsonl":              log("c", "/srv/other"),
			CwdBucket("/srv/app") + "/c.summary.json":       `{"title":"no time"}`,
			"_no-cwd/d.jsonl":                               log("e", ""),
			"_no-cwd/d.summary.json":                        `{"updatedAt":"now"}`,
		}, []string{
			"log _no-cwd/d.jsonl: jsonl, 2 events, intact",
			"  ROOT-BUCKET the log lies at _no-cwd/d, its header puts it at _no-cwd/e",
			`  ROOT-SIDECAR the summary d.summary.json: updatedAt is "now", expected milliseconds`,
			"log cwd-dae668e4084f/a~002Fb.jsonl: jsonl, 2 events, intact",
			"log cwd-dae668e4084f/c.jsonl: jsonl, 2 events, intact",
			"  ROOT-BUCKET the log lies at cwd-dae668e4084f/c, its header puts it at cwd-1c8a91610064/c",
			"  ROOT-SIDECAR the summary c.summary.json: updatedAt is nothing, expected milliseconds",
			"ROOT-SIDECAR .: cwd-dae668e4084f/gone.summary.json: a summary without its log",
			"ROOT-FLAT .: .: the root has the flat layout of builds before 07-25: 3 logs; later ones refuse it",
			"skip _no-cwd/d.summary.json: summary of a log",
			"skip cwd-dae668e4084f/a~002Fb.summary.json: summary of a log",
			"skip cwd-dae668e4084f/c.summary.json: summary of a log",
			"skip cwd-dae668e4084f/gone.summary.json: summary of a log",
		}},
		{"no known layout", map[string]string{
			"x/session.jsonl":                        log("x", "/srv/app"),
			"x/session.v3.jsonl":                     quietLog(3, "x", "/srv/app"),
			"x/other.jsonl":                          log("x", "/srv/app"),
			"x/session.2.jsonl":                      log("x", "/srv/app"),
			"y/sessions/" + app + "/a/session.jsonl": log("z", "/srv/app"),
			"z/notes.sqlite":                         "text",
			"z/index.sqlite":                         firstPage(searchID, ""),
			"z/other.db":                             firstPage(0, "CREATE TABLE people"),
			"z/session\x07.jsonl":                    log("x", "/srv/app"),
			"z/session.lnk.jsonl":                    "-> session.jsonl",
			"z/loop":                                 "-> loop",
			"z/up":                                   "-> ..",
			"z/dangling":                             "-> nothing",
		}, []string{
			"log x/session.2.jsonl: jsonl, 2 events, intact",
			"ROOT-GENERATION x: x/session.jsonl: generation 0 of the session, which is kept but never read again: the harness opens session.v3.jsonl",
			"log x/session.v3.jsonl: jsonl, 2 events, intact",
			"log y/sessions/--srv-app--/a/session.jsonl: jsonl, 2 events, intact",
			`  ROOT-IDENTITY the log lies in --srv-app--/a, its header puts it in --srv-app--/z: the directory is that of id "a", the header has id "z"`,
			"ROOT-ENTRY z: z/loop: a symbolic link, which is not followed: what it stands for is not judged",
			"ROOT-NAME z: z/session\a.jsonl: the name holds control characters, which no harness writes",
			"log z/session\a.jsonl: jsonl, 2 events, intact",
			"ROOT-ENTRY z: z/session.lnk.jsonl: a symbolic link, which is not followed: what it stands for is not judged",
			"ROOT-ENTRY z: z/up: a symbolic link, which is not followed: what it stands for is not judged",
			"skip x/other.jsonl: not named session*.jsonl or session*.jsonl.zstd",
			"skip x/session.jsonl: an older generation of the same session",
			"skip z/dangling: not a regular file",
			"skip z/index.sqlite: a search index, not a session store",
			"skip z/loop: not a regular file",
			"skip z/notes.sqlite: not an SQLite database",
			"skip z/other.db: an SQLite database of something else",
			"skip z/session.lnk.jsonl: not a regular file",
			"skip z/up: not a regular file",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := tree(t, c.files)
			unchanged(t, filepath.Dir(dir))
			if d := cmp.Diff(c.want, survey(t, dir)); d != "" {
				t.Error(d)
			}
		})
	}
}

// firstPage is the first page of an SQLite database.
func firstPage(application uint32, schema string) string {
	b := make([]byte, 4096)
	copy(b, "SQLite format 3\x00")
	binary.BigEndian.PutUint32(b[68:], application)
	copy(b[3000:], schema)
	return string(b)
}

// TestRootParts: a project directory and a session directory are judged as parts
// of a root, a file is judged by itself.
func TestRootParts(t *testing.T) {
	dir := tree(t, map[string]string{
		"--srv-app--/a/session.jsonl":    quietLog(0, "b", "/srv/app"),
		"--srv-app--/a/session.v2.jsonl": quietLog(2, "a", "/srv/app"),
		"--srv-app--/c/session.jsonl":    quietLog(0, "d", "/srv/app"),
	})
	for _, c := range []struct {
		path string
		want []string
	}{
		{"--srv-app--", []string{
			"log a/session.v2.jsonl: jsonl, 2 events, intact",
			"ROOT-GENERATION .: a/session.jsonl: generation 0 of the session, which is kept but never read again: the harness opens session.v2.jsonl",
			"log c/session.jsonl: jsonl, 2 events, intact",
			`  ROOT-IDENTITY the log lies in --srv-app--/c, its header puts it in --srv-app--/d: the directory is that of id "c", the header has id "d"`,
			"skip a/session.jsonl: an older generation of the same session",
		}},
		{"--srv-app--/c", []string{
			"log session.jsonl: jsonl, 2 events, intact",
			`  ROOT-IDENTITY the log lies in --srv-app--/c, its header puts it in --srv-app--/d: the directory is that of id "c", the header has id "d"`,
		}},
		{"--srv-app--/c/session.jsonl", []string{"log .: jsonl, 2 events, intact"}},
		{"--srv-app--/a/session.jsonl", []string{"log .: jsonl, 2 events, intact"}},
	} {
		if d := cmp.Diff(c.want, survey(t, filepath.Join(dir, c.path))); d != "" {
			t.Errorf("%s: %s", c.path, d)
		}
	}
}

// TestRootManyGenerations: of a directory full of generations the highest is
// found, and memory does not grow with them.
func TestRootManyGenerations(t *testing.T) {
	files := map[string]string{}
	for i := 2; i < 60; i++ {
		files[fmt.Sprintf("--a--/x/session.v%d.jsonl", i)] = ""
	}
	files["--a--/x/session.jsonl"] = ""
	got := survey(t, tree(t, files))
	var kept []string
	for _, l := range got {
		if strings.HasPrefix(l, "log ") || strings.HasPrefix(l, "ROOT-GENERATION") {
			kept = append(kept, l)
		}
	}
	if len(kept) != 16 || !strings.HasPrefix(kept[0], "log --a--/x/session.v59.jsonl") ||
		!strings.HasSuffix(kept[15], "--a--/x/session.v44.jsonl: generation 44 of the session, which is kept but never read again: the harness opens session.v59.jsonl (and 43 more logs)") {
		t.Errorf("%d lines: %q", len(kept), kept)
	}
}

// TestUnreadableDirectory: a directory that cannot be read is an error with its
// path, and the walk goes on behind it.
func TestUnreadableDirectory(t *testing.T) {
	dir := tree(t, map[string]string{
		"--a--/x/session.jsonl": quietLog(0, "x", "/a"),
		"--b--/y/session.jsonl": quietLog(0, "y", "/b"),
		"--c--/z/session.jsonl": quietLog(0, "z", "/c"),
	})
	if os.Getuid() == 0 {
		t.Skip("permissions do not hold for uid 0; TestDeepDirectory has an error of another kind")
	}
	for _, p := range []string{"--a--", "--b--/y"} {
		if err := os.Chmod(filepath.Join(dir, p), 0); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(filepath.Join(dir, p), 0o700)
	}
	want := []string{
		"error --a--: permission denied", "error --b--/y: permission denied",
		"log --c--/z/session.jsonl: jsonl, 2 events, intact",
	}
	if d := cmp.Diff(want, survey(t, dir)); d != "" {
		t.Error(d)
	}
}

// TestDeepDirectory: directories too deep for the system are an error with their
// path, and the walk goes on behind them.
func TestDeepDirectory(t *testing.T) {
	dir := tree(t, map[string]string{"z/session.jsonl": quietLog(0, "z", "")})
	home, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	defer os.Chdir(home)
	// One long name below the other, each made from within.
	name := strings.Repeat("d", 200)
	if err := os.Chdir(dir); err != nil {
		t.Fatal(err)
	}
	for range 25 {
		if err := os.Mkdir(name, 0o777); err != nil {
			t.Skipf("the system does not make such a tree: %v", err)
		}
		if err := os.Chdir(name); err != nil {
			t.Skipf("the system does not enter such a tree: %v", err)
		}
	}
	if err := os.Chdir(home); err != nil {
		t.Fatal(err)
	}
	got := survey(t, dir)
	if len(got) != 2 || !strings.HasPrefix(got[0], "error "+name) || !strings.HasSuffix(got[0], ": "+syscall.ENAMETOOLONG.Error()) ||
		got[1] != "log z/session.jsonl: jsonl, 2 events, intact" {
		t.Errorf("got %q", got)
	}
}

// TestLinkedOperand: a link that is named is followed, one that leads nowhere is
// an error.
func TestLinkedOperand(t *testing.T) {
	dir := tree(t, map[string]string{
		"real/--a--/x/session.jsonl": quietLog(0, "x", "/a"),
		"link":                       "-> real", "loop": "-> loop", "gone": "-> nothing",
	})
	for name, want := range map[string][]string{
		"link": {"log --a--/x/session.jsonl: jsonl, 2 events, intact"},
		"loop": {"error .: too many levels of symbolic links"},
		"gone": {"error .: no such file or directory"},
	} {
		if d := cmp.Diff(want, survey(t, filepath.Join(dir, name))); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// TestManyEntries: entries come in the order of their names however they are
// batched, and no more than a batch of names is kept.
func TestManyEntries(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for i := range 2000 {
		name := fmt.Sprintf("%07d", i*7919%2000)
		want = append(want, name)
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	sort.Strings(want)
	for _, batch := range []int{400, 1999, 2000, 2001, nameBatch} {
		var got []string
		if err := eachEntry(dir, batch, func(e fs.DirEntry) bool { got = append(got, e.Name()); return true }); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("batches of %d: %d names, want %d in order", batch, len(got), len(want))
		}
	}
	es, more, err := nextEntries(dir, 100, "0000999", true)
	if err != nil || !more || len(es) != 100 || es[0].Name() != "0001000" {
		t.Fatalf("%d entries, %t, %v, from %v", len(es), more, err, es[0])
	}
	n := 0
	if err := eachEntry(dir, 10, func(fs.DirEntry) bool { n++; return n < 25 }); err != nil || n != 25 {
		t.Errorf("stopped after %d entries, %v, want 25", n, err)
	}
	if err := eachEntry(filepath.Join(dir, "none"), 10, func(fs.DirEntry) bool { return true }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
}

func TestReadSummary(t *testing.T) {
	dir := tree(t, map[string]string{
		"a.jsonl": quietLog(0, "a", ""), "a.summary.json": `{"updatedAt":1750000000000,"title":"t\u001b","firstPrompt":"tidy the loft"}`,
		"b.jsonl": quietLog(0, "b", ""),
		"c.jsonl": quietLog(0, "c", ""), "c.summary.json": "-> a.summary.json",
		"d.jsonl": quietLog(0, "d", ""), "d.summary.json": "[1]",
		"e.jsonl": quietLog(0, "e", ""), "e.summary.json": `{"updatedAt":1}x`,
		"f.jsonl": quietLog(0, "f", ""), "f.summary.json": `{"updatedAt":1,"title":null}`,
		"g.jsonl": quietLog(0, "g", ""), "g.summary.json": `{"updatedAt":1,"title":"` + strings.Repeat("x", maxSidecar) + `"}`,
	})
	text := func(s *string) string {
		if s == nil {
			return "none"
		}
		return *s
	}
	for name, want := range map[string]string{
		"a": "1750000000000 t\x1b tidy the loft", "b": "nothing",
		"c": "the summary c.summary.json is not a regular file",
		"d": "the summary d.summary.json: updatedAt is nothing, expected milliseconds",
		"e": "the summary e.summary.json: not valid JSON: offset 15: expected end of input, found 'x'",
		"f": "the summary f.summary.json: title is null, expected a string",
		"g": "the summary g.summary.json cannot be read: more than 1048576 bytes",
	} {
		l, err := OpenFile(filepath.Join(dir, name+".jsonl"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := "nothing"
		if s, err := l.ReadSummary(); err != nil {
			got = err.Error()
		} else if s != nil {
			got = fmt.Sprint(s.UpdatedAt, " ", text(s.Title), " ", text(s.FirstPrompt))
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
		l.Close()
	}
}

// FuzzRoot walks trees made of a list of paths, in which the last part of each is
// a file with a small log.
func FuzzRoot(f *testing.F) {
	f.Add("--srv-app--/a/session.jsonl\n_no-cwd/b/session.jsonl.zstd\n--x--/c.jsonl")
	f.Add("cwd-0123456789ab/a.jsonl\ncwd-0123456789ab/a.summary.json\n_no-cwd/b.jsonl")
	f.Add("--a--/x/session.v3.jsonl\n--a--/x/session.v03.jsonl\n--b--/x/session.jsonl")
	f.Add(".dsh-mkdir-x/a\n--a--/.dsh-mkdir-/session.jsonl\n--a--/b/session.jsonl.0123456789ab.tmp")
	f.Add("~/session.jsonl\n--~--/~/session.jsonl\n------/x/session.jsonl")
	f.Fuzz(func(t *testing.T, paths string) {
		files := map[string]string{}
		for i, p := range strings.Split(paths, "\n") {
			if p = strings.ReplaceAll(p, "\x00", ""); i > 20 || len(p) > 200 || !filepath.IsLocal(p) || strings.HasSuffix(p, ".zip") {
				continue
			}
			files[filepath.Clean(p)] = quietLog(i%3, fmt.Sprintf("s%d", i), "/srv/app")
		}
		dir := filepath.Join(t.TempDir(), "root")
		regular := 0
		for _, p := range slices.Sorted(maps(files)) {
			path := filepath.Join(dir, p)
			if os.MkdirAll(filepath.Dir(path), 0o777) != nil {
				continue // a file has the name
			}
			if _, err := os.Lstat(path); err == nil {
				continue
			}
			if os.WriteFile(path, []byte(files[p]), 0o666) == nil {
				regular++
			}
		}
		if regular == 0 {
			return
		}
		unchanged(t, filepath.Dir(dir))
		first := survey(t, dir)
		if d := cmp.Diff(first, survey(t, dir)); d != "" {
			t.Fatalf("a second walk differs: %s", d)
		}
		// Every file is either a log or passed over, except what lies in directories
		// that are passed over as a whole.
		n, staged := 0, 0
		for _, l := range first {
			if strings.HasPrefix(l, "log ") || strings.HasPrefix(l, "skip ") {
				n++
			}
			if strings.HasSuffix(l, ": staging directory") {
				n, staged = n-1, staged+1
			}
		}
		if n > regular || staged == 0 && n != regular {
			t.Fatalf("%d files, %d accounted for: %q", regular, n, first)
		}
	})
}

func maps(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// TestCorpusIdentity: the recorded log that the harness refuses for its place is
// sound by itself, and found where it was stored.
func TestCorpusIdentity(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("no corpus")
	}
	text, err := os.ReadFile(filepath.Join(dir, "head", "invalid-header-id-mismatch", "session.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	l, events := readText(t, string(text))
	if l.Class() != Intact || len(events) != 20 || l.Header.ID != "someone-else" {
		t.Fatalf("by itself: %s, %d events, id %q", l.Class(), len(events), l.Header.ID)
	}
	root := tree(t, map[string]string{"--srv-harbour--/oracle-plain-turn/session.jsonl": string(text)})
	want := []string{
		"log --srv-harbour--/oracle-plain-turn/session.jsonl: jsonl, 20 events, intact",
		`  ROOT-IDENTITY the log lies in --srv-harbour--/oracle-plain-turn, its header puts it in --srv-harbour--/someone-else: the directory is that of id "oracle-plain-turn", the header has id "someone-else"`,
	}
	if d := cmp.Diff(want, survey(t, root)); d != "" {
		t.Error(d)
	}
}

// TestRootMemory: a directory of many entries is walked in the memory of a batch
// of names.
func TestRootMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many files")
	}
	const many = nameBatch + nameBatch/4 // two batches
	dir := filepath.Join(t.TempDir(), "--srv-app--", "a")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("n", 200)
	for i := range many {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s%06d", long, i)))
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	base, peak, n := int64(m.HeapAlloc), int64(0), 0
	last := ""
	for range Open(filepath.Dir(filepath.Dir(dir)), Options{Skip: func(p, _ string) {
		if p <= last {
			t.Fatalf("%q after %q", p, last)
		}
		last = p
		if n++; n%(nameBatch/4) == 0 {
			runtime.GC()
			runtime.ReadMemStats(&m)
			peak = max(peak, int64(m.HeapAlloc)-base)
		}
	}}) {
		t.Fatal("a log where there is none")
	}
	t.Logf("%d entries, %d KiB more memory", n, peak>>10)
	if most := int64(3 * nameBatch * 400); n != many || peak > most {
		t.Errorf("%d entries, memory grew by %d bytes, want %d and at most %d", n, peak, many, most)
	}
}
