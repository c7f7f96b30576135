// Command corpus runs the programs over the full corpus of recorded logs and
// prints how many cases of each kind agree with what was recorded.
//
//	go run ./scripts/corpus [CORPUS]
//
// CORPUS is a folder with head, july and big in it; the default is DSH_CORPUS,
// else ../shared/corpus. The programs run in this process, through the same entry
// point as on a command line, on as many cases at a time as there are processors.
// The exit status is 1 when a case disagrees.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/ncruces/go-sqlite3"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/replay"
	"github.com/dsh-audit/dsh-audit/internal/cli/verify"
	"github.com/dsh-audit/dsh-audit/internal/report"
)

// kinds of checks, in the order of the report.
var kinds = []struct{ id, title string }{
	{"requests", "recorded requests printed byte for byte, in order, by requests --bodies --candidates (one per log)"},
	{"request-lines", "recorded requests in them"},
	{"sent-only", "requests --bodies prints nothing that was not sent"},
	{"recording", "verify --requests finds no difference (key order aside where built in)"},
	{"messages", "messages equals its file"},
	{"header", "header equals its file"},
	{"surface", "surface equals its file"},
	{"events", "events equals its file"},
	{"sound", "undamaged logs: exit 0 and no error"},
	{"stores", "a Zstandard log or a session of a database gives the same events, requests and verdict"},
	{"refused", "logs the harness refused: not ok"},
	{"accepted", "damaged logs the harness accepted: a verdict, whatever it is"},
	{"sweep", "cuts of sound logs: torn, open, or as good as whole; corrupt only without a header"},
	{"digests", "digests of the requests of the big log"},
}

type run struct {
	root  string
	every int // of the cuts of a sweep, and of the logs of 20 MB, this one is tried; 1 for all

	mu     sync.Mutex
	ok     map[string]int
	bad    map[string]int
	fails  []string
	warned []string                  // undamaged logs with warnings
	counts map[string]map[string]int // verdicts by kind of case
}

func main() {
	dir := filepath.Join("..", "shared", "corpus")
	if d := os.Getenv("DSH_CORPUS"); d != "" {
		dir = d
	}
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	r := newRun(dir)
	if err := r.all(); err != nil {
		fmt.Fprintln(os.Stderr, "corpus:", err)
		os.Exit(2)
	}
	out := bufio.NewWriter(os.Stdout)
	r.report(out)
	if err := out.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, "corpus:", err)
		os.Exit(2)
	}
	if total, bad := r.totals(); bad > 0 || total == 0 {
		os.Exit(1)
	}
}

func newRun(root string) *run {
	return &run{root: root, every: 1, ok: map[string]int{}, bad: map[string]int{}, counts: map[string]map[string]int{}}
}

// all runs the whole corpus.
func (r *run) all() error {
	if err := r.parts("head", "july"); err != nil {
		return err
	}
	r.big()
	return nil
}

// parts runs every case in some folders of the root.
func (r *run) parts(parts ...string) error {
	var dirs []string
	for _, part := range parts {
		err := filepath.WalkDir(filepath.Join(r.root, part), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	each(dirs, func(dir string) {
		switch base := filepath.Base(dir); {
		case strings.HasPrefix(base, "crash-sweep-"):
			r.sweep(dir)
		case exists(filepath.Join(dir, "verdict.json")):
			r.damaged(dir)
		default:
			r.scenario(dir)
		}
	})
	return nil
}

// each calls f for all cases, several at a time.
func each[T any](cases []T, f func(T)) {
	var wg sync.WaitGroup
	work := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, c := range cases {
		wg.Add(1)
		work <- struct{}{}
		go func() {
			defer func() { <-work; wg.Done() }()
			f(c)
		}()
	}
	wg.Wait()
}

// execute runs a program and returns its exit code and output.
func execute(p *cli.Program, stdin []byte, args ...string) (code int, out, errs []byte) {
	var o, e bytes.Buffer
	code = cli.Execute(context.Background(), p, append([]string{p.Name}, args...), bytes.NewReader(stdin), &o, &e)
	return code, o.Bytes(), e.Bytes()
}

func (r *run) check(kind, what string, ok bool, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ok {
		r.ok[kind]++
		return
	}
	r.bad[kind]++
	if rel, err := filepath.Rel(r.root, what); err == nil {
		what = rel
	}
	r.fails = append(r.fails, fmt.Sprintf("%s: %s: %s", kind, what, why))
}

// scenario checks an undamaged run: every session in dir, by its suffix.
func (r *run) scenario(dir string) {
	logs, _ := filepath.Glob(filepath.Join(dir, "session*.jsonl"))
	july := exists(filepath.Join(dir, "meta.json"))
	for _, log := range logs {
		suffix := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(log), "session"), ".jsonl")
		suffix = strings.TrimSuffix(suffix, ".packed")
		file := func(name, ext string) string { return filepath.Join(dir, name+suffix+ext) }
		if rec := file("requests", ".jsonl"); exists(rec) {
			r.requests(dir, log, rec, july)
		}
		r.states(log, file, july)
		verdict := r.sound(log)
		if strings.HasSuffix(log, ".packed.jsonl") {
			continue
		}
		for _, store := range []string{"session" + suffix + ".jsonl.zstd", "session" + suffix + ".sqlite"} {
			if path := filepath.Join(dir, store); exists(path) {
				r.store(log, path, verdict)
			}
		}
	}
}

// store compares the same session in another container with the plain log.
func (r *run) store(plain, store, verdict string) {
	args := []string{store}
	if strings.HasSuffix(store, ".sqlite") {
		args = []string{"--session", headerID(plain), store} // it may hold others
	}
	for _, command := range [][]string{{"events"}, {"requests", "--bodies", "--candidates"}} {
		_, want, _ := execute(replay.Program(), nil, append(slices.Clone(command), plain)...)
		code, got, errs := execute(replay.Program(), nil, append(slices.Clone(command), args...)...)
		same := bytes.Equal(got, want)
		if !same && command[0] == "events" && strings.HasSuffix(store, ".sqlite") {
			// Columns hold no order of keys. What crash repair appends has another one.
			same = slices.EqualFunc(lines(got), lines(want), sameValue)
		}
		r.check("stores", store, code == 0 && same, command[0]+": "+differs(got, want)+stderrOf(errs))
	}
	_, out, errs := execute(verify.Program(), nil, append([]string{"--format", "json"}, args...)...)
	v, err := decodeVerdict(out)
	if err != nil {
		r.check("stores", store, false, err.Error()+stderrOf(errs))
		return
	}
	r.count("stores", v.Verdict)
	r.check("stores", store, v.Verdict == verdict, fmt.Sprintf("verdict %s, that of the plain log is %s", v.Verdict, verdict))
}

// headerID is the id in the header of a plain log.
func headerID(log string) string {
	var h struct{ ID string }
	line, _, _ := bytes.Cut(read(log), []byte("\n"))
	if err := json.Unmarshal(line, &h); err != nil {
		panic(log + ": " + err.Error())
	}
	return h.ID
}

// states compares what stands at the end of a log with its files.
func (r *run) states(log string, file func(name, ext string) string, july bool) {
	for _, name := range []string{"messages", "header", "surface", "events"} {
		ext := ".json"
		if name == "events" {
			ext = ".jsonl"
		}
		want, err := os.ReadFile(file(name, ext))
		if err != nil && name == "events" && exists(file("session", ".jsonl")) {
			// Written one event a line, a sound log is its own list of events.
			_, want, _ = bytes.Cut(read(file("session", ".jsonl")), []byte("\n"))
		} else if err != nil {
			continue // that era or case has no such file
		}
		code, got, errs := execute(replay.Program(), nil, name, log)
		got, want = bytes.TrimSuffix(got, []byte("\n")), bytes.TrimSuffix(want, []byte("\n"))
		if name == "surface" && july {
			want = slices.Concat([]byte(`{"nodes":`), want, []byte(`,"replacements":`))
			got = got[:min(len(got), len(want))] // its files hold the nodes alone
		}
		r.check(name, log, code == 0 && bytes.Equal(got, want), differs(got, want)+stderrOf(errs))
	}
}

// sound checks an undamaged log and returns its verdict.
func (r *run) sound(log string) string {
	code, out, errs := execute(verify.Program(), nil, "--format", "json", log)
	v, err := decodeVerdict(out)
	if err != nil {
		r.check("sound", log, false, err.Error()+stderrOf(errs))
		return ""
	}
	r.count("sound", v.Verdict)
	why := fmt.Sprintf("exit %d, verdict %s", code, v.Verdict)
	for _, f := range v.Findings {
		if f.Severity != "note" {
			why += fmt.Sprintf("; line %d: %s: %s", f.Line, f.Rule, f.Message)
		}
		if f.Severity == "warning" {
			rel, _ := filepath.Rel(r.root, log)
			r.mu.Lock()
			r.warned = append(r.warned, fmt.Sprintf("%s:%d: %s: %s", rel, f.Line, f.Rule, f.Message))
			r.mu.Unlock()
		}
	}
	r.check("sound", log, code == 0 && v.Errors == 0, why)
	return v.Verdict
}

// requests compares what a log gives with what was recorded.
func (r *run) requests(dir, log, recording string, july bool) {
	recorded, aux := loopLines(dir, recording, july)
	_, out, errs := execute(replay.Program(), nil, "requests", "--bodies", "--candidates", log)
	printed := lines(out)
	bare := july && strings.HasPrefix(filepath.Base(dir), "a-")
	reordered := strings.TrimPrefix(filepath.Base(dir), "head-") == "config-keyorder"
	want := make([]string, len(recorded))
	for i, line := range recorded {
		want[i] = line
		if bare {
			want[i] = messagesOnly(line)
		}
	}
	matched, exceptions := 0, 0
	at := 0
	firstMiss := ""
	for i, line := range want {
		k := at
		for k < len(printed) && printed[k] != line && !(reordered && sameValue(printed[k], line)) {
			k++
		}
		if k == len(printed) {
			why := fmt.Sprintf("recorded request %d of %d is not printed: %.120s", i+1, len(want), line)
			if firstMiss == "" {
				firstMiss = why
			}
			r.check("request-lines", log, false, why)
			continue
		}
		if printed[k] != line {
			exceptions++
		}
		matched++
		r.check("request-lines", log, true, "")
		at = k + 1
	}
	if reordered && exceptions != 2 && firstMiss == "" {
		firstMiss = fmt.Sprintf("%d requests differ in key order, want 2", exceptions)
	}
	r.check("requests", log, firstMiss == "", firstMiss+stderrOf(errs))

	_, out, _ = execute(replay.Program(), nil, "requests", "--bodies", log)
	at = 0
	unsent := ""
	for _, line := range lines(out) {
		k := at
		for k < len(want) && want[k] != line && !(reordered && sameValue(want[k], line)) {
			k++
		}
		if k == len(want) {
			unsent = fmt.Sprintf("printed, but not recorded: %.120s", line)
			break
		}
		at = k + 1
	}
	r.check("sent-only", log, unsent == "", unsent)

	code, out, errs := execute(verify.Program(), nil, "--format", "json", "--requests", recording, log)
	v, err := decodeVerdict(out)
	if err != nil {
		r.check("recording", log, false, err.Error()+stderrOf(errs))
		return
	}
	c := v.Recording
	keyOrder := int64(0)
	if reordered {
		keyOrder = 2
	}
	ok := c != nil && code == 0 && c.Differing+c.Missing+c.Extra == 0 && c.KeyOrder == keyOrder &&
		c.Auxiliary == int64(aux) && c.Matched+c.KeyOrder == int64(len(recorded))
	r.check("recording", log, ok, fmt.Sprintf("exit %d, %+v, want %d loop requests and %d others", code, c, len(recorded), aux))
}

// loopLines returns the recorded requests that the loop made, and how many others
// the recording holds.
func loopLines(dir, recording string, july bool) (loop []string, aux int) {
	all := lines(read(recording))
	if !july {
		return all, 0
	}
	var meta struct {
		RequestsNotLoopBuilt []int `json:"requestsNotLoopBuilt"`
	}
	if err := json.Unmarshal(read(filepath.Join(dir, "meta.json")), &meta); err != nil {
		panic(dir + ": " + err.Error())
	}
	for i, line := range all {
		if slices.Contains(meta.RequestsNotLoopBuilt, i) {
			aux++
			continue
		}
		loop = append(loop, line)
	}
	return loop, aux
}

// messagesOnly turns a recorded line into the one that an era without headers
// determines.
func messagesOnly(line string) string {
	var v struct {
		Turn, Step json.RawMessage
		Request    struct{ Messages json.RawMessage }
	}
	if err := json.Unmarshal([]byte(line), &v); err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"turn":%s,"step":%s,"request":{"messages":%s}}`, v.Turn, v.Step, v.Request.Messages)
}

// sameValue reports whether two lines hold the same JSON value, whatever the
// order of keys.
func sameValue(a, b string) bool {
	norm := func(s string) string {
		var v any
		if json.Unmarshal([]byte(s), &v) != nil {
			return s
		}
		out, _ := json.Marshal(v)
		return string(out)
	}
	return norm(a) == norm(b)
}

// damaged checks a case with a verdict of the harness.
func (r *run) damaged(dir string) {
	base := filepath.Base(dir)
	if base == "invalid-header-id-mismatch" {
		return // what is wrong is the place it was stored in
	}
	var stages map[string]any
	if err := json.Unmarshal(read(filepath.Join(dir, "verdict.json")), &stages); err != nil {
		panic(dir + ": " + err.Error())
	}
	if inner, ok := stages["stages"].(map[string]any); ok {
		stages = inner
	}
	if strings.HasPrefix(base, "legacy-") {
		delete(stages, "sessionCreate")
	}
	refused := false
	for name, v := range stages {
		switch v := v.(type) {
		case map[string]any:
			refused = refused || v["ok"] == false
		case string:
			refused = refused || v == "reject" || strings.HasSuffix(name, "Error")
		}
	}
	id, _ := stages["id"].(string)
	for _, name := range []string{"session.jsonl", "damaged.jsonl", "session.jsonl.zstd", "damaged.jsonl.zstd", "session.sqlite", "damaged.sqlite"} {
		log := filepath.Join(dir, name)
		if !exists(log) {
			continue // kept in another container
		}
		args := []string{"--format", "json", log}
		if strings.HasSuffix(name, ".sqlite") && id != "" {
			args = []string{"--format", "json", "--session", id, log}
		}
		kind := "accepted"
		if refused {
			kind = "refused"
		}
		code, out, errs := execute(verify.Program(), nil, args...)
		v, err := decodeVerdict(out)
		if err != nil {
			r.check(kind, log, false, err.Error()+stderrOf(errs))
			continue
		}
		r.count(kind, v.Verdict)
		want := map[string]int{"violations": 1, "corrupt": 1, "unsupported": 3, "unreadable": 2}[v.Verdict]
		r.check(kind, log, code == want && (!refused || v.Verdict != "ok"), fmt.Sprintf("verdict %s, exit %d", v.Verdict, code))
	}
	// After its repair the log is sound and folds to the recorded state.
	if fixed := filepath.Join(dir, "repaired-file.jsonl"); exists(fixed) {
		r.states(fixed, func(name, ext string) string {
			if name == "events" {
				name = "repaired"
			}
			return filepath.Join(dir, name+ext)
		}, false)
	}
}

// sweep cuts a sound log at many places, or takes away the last rows of a database.
func (r *run) sweep(dir string) {
	var base struct{ Base, Kind, ID string }
	if err := json.Unmarshal(read(filepath.Join(dir, "base.json")), &base); err != nil {
		panic(err)
	}
	text := read(filepath.Join(r.root, "head", base.Base))
	header := bytes.IndexByte(text, '\n') + 1 // of a plain log
	temp, err := os.MkdirTemp("", "sweep")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(temp)
	for i, line := range lines(read(filepath.Join(dir, "cases.jsonl"))) {
		if i%r.every != 0 {
			continue
		}
		var c struct {
			Cut, DropLast, Preserved, Events int
			OK                               bool
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			panic(err)
		}
		what := fmt.Sprintf("%s cut at %d", dir, c.Cut)
		var stdin []byte
		args := []string{"--format", "json", "-"}
		switch base.Kind {
		case "sqlite":
			what = fmt.Sprintf("%s without the last %d rows", dir, c.DropLast)
			path := filepath.Join(temp, fmt.Sprintf("%d.sqlite", i))
			write(path, text)
			if err := dropLast(path, base.ID, c.DropLast); err != nil {
				panic(what + ": " + err.Error())
			}
			args = []string{"--format", "json", "--session", base.ID, path}
		case "zstd":
			// The name tells what the first bytes of the file cannot yet.
			path := filepath.Join(temp, "session.jsonl.zstd")
			write(path, text[:c.Cut])
			args[2] = path
		default:
			stdin = text[:c.Cut]
		}
		_, out, errs := execute(verify.Program(), stdin, args...)
		v, err := decodeVerdict(out)
		if err != nil {
			r.check("sweep", what, false, err.Error()+stderrOf(errs))
			continue
		}
		r.count("sweep", v.Verdict)
		ok := false
		whole := v.Verdict == "ok" || v.Verdict == "warn"
		inside := c.Events > c.Preserved // the harness closes the turn that is left open
		switch base.Kind {
		case "sqlite":
			// Rows that are not there leave no trace.
			ok = c.OK && (whole || v.Verdict == "open") && inside == (v.Verdict == "open")
		case "zstd":
			switch v.Verdict {
			case "torn":
				ok = c.OK
			case "open":
				ok = c.OK && inside
			case "ok", "warn":
				ok = c.OK && !inside
			default:
				ok = !c.OK
			}
		default:
			switch v.Verdict {
			case "torn":
				ok = text[c.Cut-1] != '\n'
			case "open", "ok":
				ok = text[c.Cut-1] == '\n'
			case "corrupt":
				ok = c.Cut < header
			}
			ok = ok && c.OK == (c.Cut >= header)
		}
		r.check("sweep", what, ok, fmt.Sprintf("verdict %s, loaded by the harness: %t", v.Verdict, c.OK))
	}
}

func write(path string, b []byte) {
	if err := os.WriteFile(path, b, 0o600); err != nil {
		panic(err)
	}
}

// dropLast deletes the last n rows of a session.
func dropLast(path, id string, n int) error {
	db, err := sqlite3.Open(path)
	if err != nil {
		return err
	}
	defer db.Close()
	st, _, err := db.Prepare(`DELETE FROM events WHERE session_id = ?1 AND seq IN
		(SELECT seq FROM events WHERE session_id = ?1 ORDER BY seq DESC LIMIT ?2)`)
	if err != nil {
		return err
	}
	defer st.Close()
	if err := st.BindText(1, id); err != nil {
		return err
	}
	if err := st.BindInt(2, n); err != nil {
		return err
	}
	if err := st.Exec(); err != nil {
		return err
	}
	if got := db.Changes(); n > 0 && got != int64(n) {
		return fmt.Errorf("%d rows deleted, want %d", got, n)
	}
	return nil
}

// big compares the digests of a log of 20 MB.
func (r *run) big() {
	dir := filepath.Join(r.root, "big", "20mb")
	if !exists(filepath.Join(dir, "request-hashes.jsonl")) {
		return
	}
	stores := []string{"session.jsonl.zstd", "session.sqlite", "session.packed.jsonl", "session.jsonl"}
	each(stores[:max(1, len(stores)/r.every)], func(name string) {
		log := filepath.Join(dir, name)
		_, out, errs := execute(replay.Program(), nil, "requests", "--format", "jsonl", log)
		type digest struct {
			Kind       string
			Turn, Step int64
			Bytes      int64
			SHA256     string
		}
		var got []digest
		for _, line := range lines(out) {
			var d digest
			if json.Unmarshal([]byte(line), &d) == nil && d.Kind == "request" {
				got = append(got, d)
			}
		}
		want := lines(read(filepath.Join(dir, "request-hashes.jsonl")))
		r.check("digests", log, len(got) == len(want), fmt.Sprintf("%d requests, want %d%s", len(got), len(want), stderrOf(errs)))
		for i := range min(len(got), len(want)) {
			w := digest{Kind: "request"}
			if err := json.Unmarshal([]byte(want[i]), &w); err != nil {
				panic(err)
			}
			r.check("digests", log, got[i] == w, fmt.Sprintf("request %d: %+v, want %+v", i, got[i], w))
		}
	})
}

type verdict struct {
	Verdict  string
	Errors   int64
	Warnings int64
	Findings []struct {
		Rule, Severity, Message string
		Line                    int64
	}
	Recording *struct {
		Recorded, Matched, KeyOrder, Differing, Missing, Extra, Auxiliary, Unsent int64
	}
}

func decodeVerdict(out []byte) (*verdict, error) {
	var v struct {
		Schema  string
		Results []verdict
	}
	if err := json.Unmarshal(out, &v); err != nil {
		return nil, fmt.Errorf("no JSON: %w", err)
	}
	if len(v.Results) != 1 {
		return nil, fmt.Errorf("%d results, want 1", len(v.Results))
	}
	return &v.Results[0], nil
}

func (r *run) count(kind, verdict string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts[kind] == nil {
		r.counts[kind] = map[string]int{}
	}
	r.counts[kind][verdict]++
}

// totals counts the checks that agreed and those that did not.
func (r *run) totals() (agree, differ int) {
	for _, k := range kinds {
		agree += r.ok[k.id]
		differ += r.bad[k.id]
	}
	return agree, differ
}

// report prints what disagrees, then the counts.
func (r *run) report(w io.Writer) {
	sort.Strings(r.fails) // cases end in any order
	for _, f := range r.fails {
		fmt.Fprintln(w, "FAIL", f)
	}
	sort.Strings(r.warned)
	for _, s := range r.warned {
		fmt.Fprintln(w, "warning on a sound log:", s)
	}
	fmt.Fprintf(w, "%7s %7s  %s\n", "agree", "differ", "check")
	for _, k := range kinds {
		fmt.Fprintf(w, "%7d %7d  %s: %s\n", r.ok[k.id], r.bad[k.id], k.id, k.title)
		if c := r.counts[k.id]; c != nil {
			var parts []string
			for _, v := range report.Verdicts {
				if c[v] > 0 {
					parts = append(parts, fmt.Sprintf("%d %s", c[v], v))
				}
			}
			fmt.Fprintf(w, "%17sverdicts: %s\n", "", strings.Join(parts, ", "))
		}
	}
	agree, differ := r.totals()
	fmt.Fprintf(w, "%7d %7d  all\n", agree, differ)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func read(path string) []byte {
	b, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	return b
}

// lines splits text at line feeds; a final line feed ends the last line.
func lines(b []byte) []string {
	s := strings.TrimSuffix(string(b), "\n")
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

func differs(got, want []byte) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	return fmt.Sprintf("first at byte %d: got %.80q, want %.80q", i, got[i:], want[i:])
}

func stderrOf(errs []byte) string {
	if len(errs) == 0 {
		return ""
	}
	return " (" + strings.TrimSpace(string(errs)) + ")"
}
