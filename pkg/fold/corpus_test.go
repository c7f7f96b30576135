package fold

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// A run is one recorded session: a log and what is known about it.
type run struct {
	name string
	log  string            // path
	want map[string]string // requests, messages, header, surface: paths, when recorded
	meta string            // meta.json, July only
	july bool
	bare bool // era a: only the messages of a request are in the log
}

// runs lists the recorded sessions below dir: each case folder may hold one
// session, or several told apart by a suffix.
func runs(tb testing.TB, dir string) (out []run) {
	tb.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "*", "session*.jsonl"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, log := range logs {
		folder, file := filepath.Split(log)
		suffix := strings.TrimPrefix(strings.TrimSuffix(strings.TrimSuffix(file, ".jsonl"), ".packed"), "session")
		r := run{name: filepath.Base(folder) + "/" + file, log: log, want: map[string]string{}}
		for kind, ext := range map[string]string{"requests": ".jsonl", "messages": ".json", "header": ".json", "surface": ".json"} {
			p := filepath.Join(folder, kind+suffix+ext)
			if _, err := os.Stat(p); err == nil {
				r.want[kind] = p
			}
		}
		if _, err := os.Stat(filepath.Join(folder, "meta.json")); err == nil {
			r.meta = filepath.Join(folder, "meta.json")
			r.july = true
		}
		if r.want["requests"] == "" {
			continue // a damaged log, or one without requests: tested elsewhere
		}
		out = append(out, r)
	}
	return out
}

// recorded is one line of requests.jsonl.
type recorded struct {
	turn, step int64
	body       []byte
}

func (r recorded) String() string { return fmt.Sprintf("%d.%d", r.turn, r.step) }

func readRequests(tb testing.TB, path string) (out []recorded) {
	tb.Helper()
	for _, line := range readLines(tb, path) {
		turn, _ := jsjson.SafeInt(jsjson.Get(line, "turn"))
		step, _ := jsjson.SafeInt(jsjson.Get(line, "step"))
		out = append(out, recorded{turn, step, jsjson.Get(line, "request")})
	}
	return out
}

func readLines(tb testing.TB, path string) (out [][]byte) {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		out = append(out, bytes.TrimSuffix(line, []byte("\n")))
	}
	return out
}

func (r *run) loopRequests(tb testing.TB) []recorded {
	want := readRequests(tb, r.want["requests"])
	if r.meta == "" {
		return want
	}
	raw, err := os.ReadFile(r.meta)
	if err != nil {
		tb.Fatal(err)
	}
	meta, _, err := jsjson.Stringify(raw)
	if err != nil {
		tb.Fatal(err)
	}
	r.bare = jsjson.StrEq(jsjson.Get(meta, "era"), "a")
	var notLoop []int64
	if list := jsjson.Get(meta, "requestsNotLoopBuilt"); list != nil {
		for v := range jsjson.Elements(list) {
			n, _ := jsjson.SafeInt(v)
			notLoop = append(notLoop, n)
		}
	}
	var out []recorded
	for i, w := range want {
		if slices.Contains(notLoop, int64(i)) {
			continue
		}
		if r.bare {
			w.body = slices.Concat([]byte(`{"messages":`), jsjson.Get(w.body, "messages"), []byte(`}`))
		}
		out = append(out, w)
	}
	return out
}

func openLog(tb testing.TB, path string) *logfmt.Log {
	tb.Helper()
	l, err := logfmt.OpenFile(path, logfmt.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// check folds the log and compares everything that was recorded.
func (r *run) check(t *testing.T, count map[string]int) {
	l := openLog(t, r.log)
	defer l.Close()
	f := New(l.Header, Options{})
	var got []*Request
	for e, d := range l.Events() {
		if d != nil {
			t.Fatalf("defect in a sound log: %v", d)
		}
		for _, q := range f.Add(e) {
			check(t, q)
			got = append(got, q.Clone())
		}
	}
	for _, q := range f.End() {
		check(t, q)
		got = append(got, q.Clone())
	}
	want := r.loopRequests(t)
	keyOrder := strings.Contains(r.name, "config-keyorder/")
	i := 0
	for _, q := range got {
		label := fmt.Sprintf("%d.%d.%d", q.Turn, q.Step, q.Attempt)
		if q.Inherited {
			count["inherited"]++
			continue
		}
		body := q.AppendBody(nil)
		match := i < len(want) && want[i].turn == q.Turn && want[i].step == q.Step
		if match && !bytes.Equal(want[i].body, body) && keyOrder && (q.Turn == 2 || q.Turn == 4) && jsjson.Equal(want[i].body, body) {
			if !slices.Contains(q.Assumptions, AssumeKeyOrder) {
				t.Errorf("request %s differs in key order without assuming it", label)
			}
			count["key order"]++
			i++
			continue
		}
		match = match && bytes.Equal(want[i].body, body)
		if q.Candidate != "" {
			if match {
				count["candidates sent"]++
				i++
			} else {
				count["candidates not sent"]++
			}
			if q.Grade != Ambiguous {
				t.Errorf("candidate %s is graded %s", label, q.Grade)
			}
			continue
		}
		if !match {
			if i >= len(want) {
				t.Fatalf("request %s was never sent: %s", label, body)
			}
			t.Fatalf("request %s:\n got %s\nwant %s (%v)", label, body, want[i].body, want[i])
		}
		count[string(q.Grade)]++
		for _, reason := range q.Reasons {
			count[reason]++
		}
		i++
	}
	if i != len(want) {
		t.Errorf("%d requests rebuilt, %d recorded", i, len(want))
	}
	r.compare(t, "messages", f.AppendMessages(nil))
	r.compare(t, "header", f.Header().JSON())
	if r.july {
		r.compare(t, "surface", appendSeqs(nil, f.Surface().Seqs(nil)))
	} else {
		r.compare(t, "surface", f.Surface().AppendJSON(nil))
	}
	count["logs"]++
	count["mode "+string(f.Mode())]++
}

func (r *run) compare(t *testing.T, kind string, got []byte) {
	t.Helper()
	if r.want[kind] == "" {
		return
	}
	want, err := os.ReadFile(r.want[kind])
	if err != nil {
		t.Fatal(err)
	}
	if r.july {
		// Some of these files are indented.
		if want, _, err = jsjson.Stringify(want); err != nil {
			t.Fatal(err)
		}
	}
	if want = bytes.TrimSuffix(want, []byte("\n")); !bytes.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", kind, got, want)
	}
}

// check holds a request's cheap figures to its body, and its clone to itself.
func check(t *testing.T, q *Request) {
	t.Helper()
	body := q.AppendBody(nil)
	if !jsjson.Canonical(body) {
		t.Errorf("request %d.%d.%d is not canonical: %s", q.Turn, q.Step, q.Attempt, body)
	}
	if q.Len() != int64(len(body)) {
		t.Errorf("request %d.%d.%d: Len %d, body has %d", q.Turn, q.Step, q.Attempt, q.Len(), len(body))
	}
	if q.Sum() != sum256(body) {
		t.Errorf("request %d.%d.%d: Sum is not that of the body", q.Turn, q.Step, q.Attempt)
	}
	c := q.Clone()
	if !bytes.Equal(c.AppendBody(nil), body) || c.Sum() != q.Sum() || c.Len() != q.Len() {
		t.Errorf("request %d.%d.%d: the clone differs", q.Turn, q.Step, q.Attempt)
	}
	if (len(q.Reasons) > 0) != (q.Grade == Ambiguous) {
		t.Errorf("request %d.%d.%d: grade %s with reasons %v", q.Turn, q.Step, q.Attempt, q.Grade, q.Reasons)
	}
}

func logCounts(t *testing.T, what string, count map[string]int) {
	keys := make([]string, 0, len(count))
	for k := range count {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "; %s %d", k, count[k])
	}
	t.Logf("%s%s", what, b.String())
}

func TestRecordedRequests(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	for _, part := range []string{"head", "july"} {
		t.Run(part, func(t *testing.T) {
			count := map[string]int{}
			for _, r := range runs(t, filepath.Join(dir, part)) {
				t.Run(r.name, func(t *testing.T) { r.check(t, count) })
			}
			logCounts(t, part, count)
		})
	}
}

// TestLegacyImport goes on with a session of an older dialect as a build of the
// newest one does: the messages are those it was seen to derive.
func TestLegacyImport(t *testing.T) {
	dir := filepath.Join("testdata", "legacy")
	l := openLog(t, filepath.Join(dir, "session.jsonl"))
	f := New(l.Header, Options{})
	for e, d := range l.Events() {
		if d != nil {
			t.Fatal(d)
		}
		f.Add(e)
	}
	if got := f.Eras(); got.Max > E8 {
		t.Errorf("the log counts as E%d to E%d", got.Min, got.Max)
	}
	for i, raw := range []string{`{"type":"session/end-seed","seq":10,"time":0,"data":{}}`, `{"type":"turn/start","seq":11,"time":0,"data":{"turn":2}}`} {
		f.Add(event([]byte(raw)))
		want, err := os.ReadFile(filepath.Join(dir, "messages.json"))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.AppendMessages(nil); !bytes.Equal(got, bytes.TrimSuffix(want, []byte("\n"))) {
			t.Errorf("after event %d:\n got %s\nwant %s", 10+i, got, want)
		}
	}
}

func TestBigLog(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	for _, file := range []string{"session.jsonl", "session.packed.jsonl"} {
		t.Run(file, func(t *testing.T) {
			want := readHashes(t, filepath.Join(dir, "big", "20mb", "request-hashes.jsonl"))
			l := openLog(t, filepath.Join(dir, "big", "20mb", file))
			i := 0
			for q, err := range Requests(l, Options{}) {
				if err != nil {
					t.Fatal(err)
				}
				if i >= len(want) {
					t.Fatalf("request %d.%d is one too many", q.Turn, q.Step)
				}
				sum := q.Sum()
				got := fmt.Sprintf(`{"turn":%d,"step":%d,"bytes":%d,"sha256":"%x"}`, q.Turn, q.Step, q.Len(), sum[:])
				if got != want[i] {
					t.Fatalf("request %d:\n got %s\nwant %s", i, got, want[i])
				}
				i++
			}
			if i != len(want) || i != 437 {
				t.Errorf("%d requests, %d recorded, 437 expected", i, len(want))
			}
			t.Logf("%d digests", i)
		})
	}
}

func readHashes(tb testing.TB, path string) (out []string) {
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		out = append(out, s.Text())
	}
	return out
}
