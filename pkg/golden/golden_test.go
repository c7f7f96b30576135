package golden

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

func openText(text []byte) func() (*logfmt.Log, error) {
	return func() (*logfmt.Log, error) {
		return logfmt.NewReader(bytes.NewReader(text), "session.jsonl", logfmt.Options{})
	}
}

func build(tb testing.TB, text []byte, kinds ...Volatile) *Golden {
	tb.Helper()
	g, err := Build(context.Background(), openText(text), kinds)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

func sound(tb testing.TB) map[string][]byte {
	tb.Helper()
	paths, err := filepath.Glob(filepath.Join(corpus.Root(tb), "goldens", "sound", "*", "session.jsonl"))
	if err != nil || len(paths) < 40 {
		tb.Fatalf("%d logs: %v", len(paths), err)
	}
	out := map[string][]byte{}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			tb.Fatal(err)
		}
		out[filepath.Base(filepath.Dir(p))] = b
	}
	return out
}

var (
	timeMember = regexp.MustCompile(`"(time|time0|createdAt)":([0-9]+)`)
	idMember   = regexp.MustCompile(`"(?:id|callId|toolCallId)":"([^"\\]+)"`)
	dtMember   = regexp.MustCompile(`"dt":\[[0-9,]*\]`)
)

const elsewhere = "/home/ann/elsewhere"

// recordAgain derives a second recording: other ids, times and gaps, another
// directory.
func recordAgain(text []byte) []byte {
	head, _, _ := bytes.Cut(text, []byte("\n"))
	cwd, _ := jsjson.Str(jsjson.Get(head, "cwd"))
	ids := map[string]bool{}
	for _, m := range idMember.FindAllSubmatch(text, -1) {
		if !bytes.HasPrefix(m[1], []byte("interrupted-tool-result-")) { // made of another
			ids[string(m[1])] = true
		}
	}
	if id, ok := jsjson.Str(jsjson.Get(head, "parentSession")); ok {
		ids[id] = true
	}
	another := func(id string) string {
		sum := sha256.Sum256([]byte("again " + id))
		if uuidPattern.FindString(id) == id {
			return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
		}
		return fmt.Sprintf("%x", sum[:6])
	}
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		s := string(line)
		for id := range ids {
			s = strings.ReplaceAll(s, `"`+id+`"`, `"`+another(id)+`"`)
			s = strings.ReplaceAll(s, "interrupted-tool-result-"+id+"-", "interrupted-tool-result-"+another(id)+"-")
		}
		if strings.HasPrefix(cwd, "/") { // another one is damage that must stay
			s = strings.ReplaceAll(s, cwd, elsewhere)
		}
		s = timeMember.ReplaceAllStringFunc(s, func(m string) string {
			k := timeMember.FindStringSubmatch(m)
			n, _ := strconv.ParseInt(k[2], 10, 64)
			return fmt.Sprintf(`"%s":%d`, k[1], 86_400_000*400+n+n/2) // in the same order
		})
		s = dtMember.ReplaceAllStringFunc(s, func(m string) string {
			return strings.NewReplacer("2", "1", "3", "0", "4", "1").Replace(m)
		})
		out.WriteString(s)
	}
	return out.Bytes()
}

// renew is what an update does: the files of a golden, and those that a recording
// gives it.
func renew(tb testing.TB, old *Golden, text []byte) (before, after map[string][]byte, d *Diff) {
	tb.Helper()
	before = old.Files(nil)
	parsed, err := Parse("golden", before)
	if err != nil {
		tb.Fatal(err)
	}
	ctx := context.Background()
	if err := parsed.Fold(ctx); err != nil {
		tb.Fatal(err)
	}
	now := build(tb, text, parsed.Normalize...)
	if now.Carry(parsed) > 0 {
		if err := now.Fold(ctx); err != nil {
			tb.Fatal(err)
		}
	}
	return before, now.Files(nil), Compare(parsed, now, before[FileManifest])
}

// TestAgain holds every recording to a second one with other ids, times and
// directories, and to itself.
func TestAgain(t *testing.T) {
	n := 0
	check := func(name string, text []byte) {
		g := build(t, text, Default...)
		for what, again := range map[string][]byte{"itself": text, "recorded again": recordAgain(text)} {
			before, after, d := renew(t, g, again)
			if diff := cmp.Diff(before, after); diff != "" || !d.Same() {
				t.Errorf("%s: %s, the golden differs (same %v) (-before +after):\n%s", name, what, d.Same(), diff)
			}
		}
		n++
	}
	for name, text := range sound(t) {
		check(name, text)
	}
	t.Logf("%d recordings", n)
	dir, ok := corpus.Dir(t)
	if !ok {
		return
	}
	more := 0
	for _, kind := range []string{"head", "july", "migrated"} {
		paths, _ := filepath.Glob(filepath.Join(dir, kind, "*", "session*.jsonl"))
		for _, p := range paths {
			if st, err := os.Stat(p); err != nil || st.Size() > 20_000 {
				continue // large ones say nothing new, and take long
			}
			text, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Build(context.Background(), openText(text), Default); err != nil {
				continue // damaged on purpose
			}
			check(p, text)
			more++
		}
	}
	t.Logf("%d more of the corpus", more)
}

// TestExact keeps requests to the byte when nothing is normalised.
func TestExact(t *testing.T) {
	compared := 0
	for name, text := range sound(t) {
		b, err := os.ReadFile(filepath.Join(corpus.Root(t), "goldens", "sound", name, "requests.jsonl"))
		if err != nil {
			continue // no recording of requests
		}
		sent := map[string][][]byte{}
		for line := range bytes.Lines(b) {
			line = bytes.TrimSpace(line)
			key := fmt.Sprintf("%s.%s", jsjson.Get(line, "turn"), jsjson.Get(line, "step"))
			sent[key] = append(sent[key], jsjson.Get(line, "request"))
		}
		seen := map[string]int{}
		for _, r := range build(t, text).Requests {
			if r.State == "" {
				key := fmt.Sprintf("%d.%d", r.Source.Turn, r.Source.Step)
				n := seen[key]
				seen[key]++
				if r.Grade != "exact" || len(r.Source.Assumptions) > 0 {
					continue
				}
				if len(sent[key]) <= n || sha256.Sum256(sent[key][n]) != r.SHA256 || int64(len(sent[key][n])) != r.Bytes {
					t.Errorf("%s: request %s is not the one recorded", name, r.Name)
				}
				compared++
			}
		}
	}
	if compared < 50 {
		t.Errorf("%d requests compared, want at least 50", compared)
	}
	t.Logf("%d requests compared", compared)
}

// TestChanged changes one thing in a second recording: nothing else may differ.
func TestChanged(t *testing.T) {
	text := sound(t)["head-tool-prune"]
	again := recordAgain(text)
	for _, tt := range []struct {
		name, old, with string
		want            []RequestState
		changed         []string
		files           []string
	}{
		{"prompt", `You keep the harbour log.`, `You keep the harbour log.\nBe brief.`,
			[]RequestState{Changed, Changed, Changed, Changed, Changed}, []string{"request/header"}, []string{FileManifest, FileSystem}},
		{"user message", `Dump it.`, `Dump it all.`,
			[]RequestState{Changed, Changed, Changed, Changed, Changed}, []string{"agent/inbox/spliced", "user/message"}, []string{FileManifest, FileLog}},
		{"tool", `Dump a log.`, `Dump one log.`,
			[]RequestState{Changed, Changed, Changed, Changed, Changed}, []string{"request/header"}, []string{FileManifest, FileTools}},
		{"model", `"config":{"provider":"mocha","model":"mocha-1"}`, `"config":{"provider":"mocha","model":"mocha-2"}`,
			[]RequestState{Changed, Changed, Changed, Changed, Changed}, []string{"request/header"}, []string{FileManifest, FileLog}},
	} {
		now := bytes.ReplaceAll(again, []byte(tt.old), []byte(tt.with))
		if bytes.Equal(now, again) {
			t.Fatalf("%s: nothing was replaced", tt.name)
		}
		before, after, d := renew(t, build(t, text, Default...), now)
		var states []RequestState
		for _, r := range d.Requests {
			states = append(states, r.State)
		}
		var changed, files []string
		for _, e := range d.Changed {
			changed = append(changed, e.Type)
			if e.Before != e.Now {
				t.Errorf("%s: seq %d became %d", tt.name, e.Before, e.Now)
			}
		}
		for _, name := range []string{FileManifest, FileLog, FileSystem, FileTools} {
			if !bytes.Equal(before[name], after[name]) {
				files = append(files, name)
			}
		}
		if diff := cmp.Diff([]any{tt.want, tt.changed, tt.files}, []any{states, changed, files}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if d.Same() {
			t.Errorf("%s: nothing differs", tt.name)
		}
	}
}

// TestIDs exchanges ids between events: what stands for each other no longer does.
func TestIDs(t *testing.T) {
	text := sound(t)["head-tool-prune"]
	// The second result names another call than the one it answers.
	now := bytes.Replace(text, []byte(`"toolCallId":"tp-1"`), []byte(`"toolCallId":"tp-9"`), 1)
	if bytes.Equal(now, text) {
		t.Fatal("nothing was replaced")
	}
	before, after, d := renew(t, build(t, text, Default...), now)
	if bytes.Equal(before[FileLog], after[FileLog]) || d.Same() {
		t.Error("an id that stands for two others went unnoticed")
	}
	// Kept as they are, ids have to be the same.
	kinds := []Volatile{Cwd, Dates, Times}
	a, b := build(t, text, kinds...), build(t, recordAgain(text), kinds...)
	if bytes.Equal(a.Files(nil)[FileLog], b.Files(nil)[FileLog]) {
		t.Error("other ids, the same golden, though ids count")
	}
	// As tokens all UUIDs are the same.
	kinds = append(kinds, IDs, UUIDs)
	g := build(t, text, kinds...)
	if m := uuidPattern.Find(g.Files(nil)[FileLog]); m != nil {
		t.Errorf("the UUID %s is left", m)
	}
	if _, _, d := renew(t, g, recordAgain(text)); !d.Same() {
		t.Errorf("with tokens the second recording differs: %+v", d)
	}
}

// TestPaths reports absolute paths in arguments.
func TestPaths(t *testing.T) {
	text := sound(t)["head-tool-prune"]
	head, _, _ := bytes.Cut(text, []byte("\n"))
	cwd, _ := jsjson.Str(jsjson.Get(head, "cwd"))
	now := bytes.ReplaceAll(text, []byte(`"arguments":"{\"n\":300}"`),
		[]byte(`"arguments":"{\"n\":\"cat `+cwd+`/a.txt\",\"m\":[\"/etc/hosts\",\"s/a/b/\",\"C:\\\\x\",\"~/y\",\"rel/z\"]}"`))
	if bytes.Equal(now, text) {
		t.Fatal("nothing was replaced")
	}
	want := []Path{{"dump", "/etc/hosts", 1}, {"dump", `C:\x`, 1}, {"dump", "cat {{cwd}}/a.txt", 1}, {"dump", "~/y", 1}}
	if d := cmp.Diff(want, build(t, now, Default...).Paths); d != "" {
		t.Errorf("paths (-want +got):\n%s", d)
	}
}

// TestPrompt leaves prompts in the log that the file beside it could not hold.
func TestPrompt(t *testing.T) {
	text := sound(t)["head-tool-prune"]
	for _, tt := range []struct {
		prompt string // as in JSON
		beside bool
	}{
		{`Tabs\t and\n\nlines\n`, true},
		{`\n\n`, true},
		{``, true},
		{`red \u001b[31m`, false},
		{`\u009b31m`, false},
		{`over\rwritten`, false},
		{`half \ud800`, false},
		{`a\n\n<!-- request/header change 1 -->\n\nb`, false},
		{`<!-- request/header change 1 -->`, false},
		{`{{system}}`, false},
	} {
		now := bytes.ReplaceAll(text, []byte(`"system":"You are an AI agent powered by DeepSeek Harness.\n\nYou keep the harbour log."`), []byte(`"system":"`+tt.prompt+`"`))
		if bytes.Equal(now, text) {
			t.Fatal("nothing was replaced")
		}
		g := build(t, now, Default...)
		before, after, d := renew(t, g, now)
		if _, beside := before[FileSystem]; beside != tt.beside {
			t.Errorf("%s: in a file of its own is %v, want %v", tt.prompt, beside, tt.beside)
		}
		if diff := cmp.Diff(before, after); diff != "" || !d.Same() {
			t.Errorf("%s: same is %v (-before +after):\n%s", tt.prompt, d.Same(), diff)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, tt := range []struct{ a, b, want string }{
		{"abc", "abc", "aa bb cc"},
		{"abc", "axc", "aa cc bx"},
		{"abcd", "acd", "aa dd cc"},
		{"abab", "aab", "aa bb aa"},
		{"pqr", "rqp", "rr"},
		{"", "x", ""},
	} {
		var got []string
		match(strings.Split(tt.a, ""), strings.Split(tt.b, ""), 0, 0, func(i, j int) {
			got = append(got, tt.a[i:i+1]+tt.b[j:j+1])
		})
		if tt.a == "" {
			got = nil
		}
		if d := cmp.Diff(tt.want, strings.Join(got, " ")); d != "" {
			t.Errorf("%q and %q (-want +got):\n%s", tt.a, tt.b, d)
		}
	}
}

// TestFixtures reads the goldens of this repository as fixtures: they lead to the
// requests that golden.json tells of, and their files are made anew by the byte.
func TestFixtures(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(corpus.Root(t), "goldens", "fixtures", "*", "*"))
	if err != nil || len(dirs) < 50 {
		t.Fatalf("%d goldens: %v", len(dirs), err)
	}
	for _, dir := range dirs {
		files, err := Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		g, err := Parse(dir, files)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Fold(context.Background()); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(files, g.Files(files[FileLast])); d != "" {
			t.Errorf("%s: made anew (-is +anew):\n%s", dir, d)
		}
		log, err := logfmt.OpenFile(filepath.Join(dir, g.FileLog()), logfmt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for r, err := range fold.Requests(log, fold.Options{}) {
			if err != nil {
				t.Errorf("%s: %v", dir, err)
				continue
			}
			got = append(got, fmt.Sprintf("%d.%d %s %x", r.Turn, r.Step, r.Grade, r.Sum()))
		}
		log.Close()
		for _, r := range g.Requests {
			want = append(want, fmt.Sprintf("%d.%d %s %x", r.Source.Turn, r.Source.Step, r.Grade, r.SHA256))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: read as a fixture (-golden +read):\n%s", dir, d)
		}
	}
}

// FuzzParse reads goldens that anyone may have edited: no input may panic, and what
// is read is written the same way every time.
func FuzzParse(f *testing.F) {
	dirs, _ := filepath.Glob(filepath.Join(corpus.Root(f), "goldens", "fixtures", "*", "*"))
	for i, dir := range dirs {
		if i%9 != 0 {
			continue
		}
		files, err := Read(dir)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(files[FileManifest], files[FileLog], files[FileSystem], files[FileTools])
	}
	f.Fuzz(func(t *testing.T, manifest, log, system, tools []byte) {
		files := map[string][]byte{FileManifest: manifest, FileLog: log}
		if system != nil {
			files[FileSystem] = system
		}
		if tools != nil {
			files[FileTools] = tools
		}
		g, err := Parse("dir", files)
		if err != nil || g.Fold(context.Background()) != nil {
			return
		}
		out := g.Files(nil)
		again, err := Parse("dir", out)
		if err != nil {
			t.Fatalf("what was written is not read: %v", err)
		}
		if err := again.Fold(context.Background()); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(out, again.Files(nil)); d != "" {
			t.Fatalf("written, read and written (-once +twice):\n%s", d)
		}
		Compare(g, again, out[FileManifest])
		again.Carry(g)
	})
}
