package drift

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// A recording is one log with the requests that were really sent.
type recording struct {
	name   string
	log    string
	bodies [][]byte // of the loop
	bare   bool     // of an era without headers: only the messages are known
}

// recordings lists those below dir.
func recordings(tb testing.TB, dir string) (out []recording) {
	tb.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "*", "session*.jsonl"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, log := range logs {
		folder, file := filepath.Split(log)
		if strings.Contains(file, ".packed") {
			continue
		}
		suffix := strings.TrimSuffix(strings.TrimPrefix(file, "session"), ".jsonl")
		lines, err := os.ReadFile(filepath.Join(folder, "requests"+suffix+".jsonl"))
		if err != nil {
			continue // a damaged log, or one without requests
		}
		r := recording{name: filepath.Base(folder) + suffix, log: log}
		var meta struct {
			Era                  string
			RequestsNotLoopBuilt []int
		}
		if b, err := os.ReadFile(filepath.Join(folder, "meta.json")); err == nil {
			if err := json.Unmarshal(b, &meta); err != nil {
				tb.Fatal(err)
			}
		}
		r.bare = meta.Era == "a"
		i := -1
		for line := range bytes.Lines(lines) {
			if i++; slices.Contains(meta.RequestsNotLoopBuilt, i) {
				continue
			}
			body := jsjson.Get(bytes.TrimSuffix(line, []byte("\n")), "request")
			if r.bare {
				body = slices.Concat([]byte(`{"messages":`), jsjson.Get(body, "messages"), []byte(`}`))
			}
			r.bodies = append(r.bodies, bytes.Clone(body))
		}
		out = append(out, r)
	}
	return out
}

// shipped lists those in this repository.
func shipped(tb testing.TB) []recording {
	tb.Helper()
	root := filepath.Join(corpus.Root(tb), "goldens")
	return append(recordings(tb, filepath.Join(root, "sound")), recordings(tb, filepath.Join(root, "drift"))...)
}

func openLog(tb testing.TB, path string) *logfmt.Log {
	tb.Helper()
	log, err := logfmt.OpenFile(path, logfmt.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { log.Close() })
	return log
}

// sources folds a log and keeps those of its requests that were recorded.
func (r *recording) sources(tb testing.TB) (out []*Source) {
	tb.Helper()
	log := openLog(tb, r.log)
	t := NewTracker(log.Header, fold.Options{})
	for s, err := range t.Walk(log) {
		if err != nil {
			tb.Fatalf("%s: %v", r.name, err)
		}
		if s.Inherited {
			continue
		}
		if k := len(out); s.Candidate != "" && (k >= len(r.bodies) || !bytes.Equal(s.AppendBody(nil), r.bodies[k])) {
			continue
		}
		src, err := NewSource(s, t.History)
		if err != nil {
			tb.Fatalf("%s: %v", r.name, err)
		}
		out = append(out, src)
	}
	return out
}

// extendsByDefinition evaluates, with nothing of this package, what Extends
// says: all but messages and sessionId equal, and A's messages a prefix of B's.
func extendsByDefinition(tb testing.TB, a, b []byte) bool {
	tb.Helper()
	read := func(body []byte) (m map[string]json.RawMessage, list []json.RawMessage) {
		if err := json.Unmarshal(body, &m); err != nil {
			tb.Fatal(err)
		}
		if err := json.Unmarshal(m["messages"], &list); err != nil {
			tb.Fatal(err)
		}
		delete(m, "messages")
		delete(m, "sessionId")
		return m, list
	}
	ha, ma := read(a)
	hb, mb := read(b)
	if len(ha) != len(hb) || len(ma) > len(mb) {
		return false
	}
	for k, v := range ha {
		if w, ok := hb[k]; !ok || !bytes.Equal(v, w) {
			return false
		}
	}
	for i := range ma {
		if !bytes.Equal(ma[i], mb[i]) {
			return false
		}
	}
	return true
}

// firstDifference is what cmp prints, from 0; -1 when there is none.
func firstDifference(a, b []byte) int64 {
	for i := 0; ; i++ {
		switch {
		case i == len(a) && i == len(b):
			return -1
		case i == len(a) || i == len(b) || a[i] != b[i]:
			return int64(i)
		}
	}
}

// checkPair holds a comparison to plain computations over the two texts.
func checkPair(tb testing.TB, d *Diff, a, b []byte) error {
	tb.Helper()
	if want := extendsByDefinition(tb, a, b); d.Extends != want {
		return fmt.Errorf("extends %t, want %t", d.Extends, want)
	}
	at := int64(-1)
	if d.At != nil {
		at = d.At.Offset
	}
	if want := firstDifference(a, b); at != want {
		return fmt.Errorf("first divergent byte %d, want %d", at, want)
	}
	if d.Same != bytes.Equal(a, b) {
		return fmt.Errorf("same %t, want %t", d.Same, !d.Same)
	}
	if d.At != nil {
		if want := Diverge(a, b); *d.At != *want {
			return fmt.Errorf("divergence %v, want %v", d.At, want)
		}
	}
	return nil
}

// checkPairs compares consecutive requests of every recording: as recorded and
// as rebuilt, forward and backward.
func checkPairs(t *testing.T, list []recording) (pairs, breaks, unequal int) {
	for _, r := range list {
		src := r.sources(t)
		for i := 1; i < len(r.bodies); i++ {
			a, b := r.bodies[i-1], r.bodies[i]
			pa, pb := mustParse(t, string(a)), mustParse(t, string(b))
			d := Compare(pa, pb, 0)
			if err := checkPair(t, d, a, b); err != nil {
				t.Errorf("%s: requests %d and %d: %v", r.name, i-1, i, err)
			}
			if err := checkComplete(d, pa, pb); err != nil {
				t.Errorf("%s: requests %d and %d: %v", r.name, i-1, i, err)
			}
			if err := checkPair(t, Compare(pb, pa, 0), b, a); err != nil {
				t.Errorf("%s: requests %d and %d: %v", r.name, i, i-1, err)
			}
			pairs++
			if !d.Extends {
				breaks++
			}
			if i >= len(src) {
				t.Errorf("%s: %d requests rebuilt, %d recorded", r.name, len(src), len(r.bodies))
				break
			}
			// What the log does not determine is held to its own bytes.
			sa, sb := src[i-1].AppendBody(nil), src[i].AppendBody(nil)
			if !bytes.Equal(sa, a) || !bytes.Equal(sb, b) {
				unequal++
			}
			d = Explain(src[i-1], src[i])
			if err := checkPair(t, d, sa, sb); err != nil {
				t.Errorf("%s: rebuilt requests %d and %d: %v", r.name, i-1, i, err)
			}
			if err := checkComplete(d, src[i-1].Body, src[i].Body); err != nil {
				t.Errorf("%s: rebuilt requests %d and %d: %v", r.name, i-1, i, err)
			}
			for _, c := range d.Causes() {
				if c == nil {
					t.Errorf("%s: rebuilt requests %d and %d: a difference without a cause", r.name, i-1, i)
				}
			}
			if n := d.Unexplained(); n != 0 {
				t.Errorf("%s: rebuilt requests %d and %d: %d differences unexplained", r.name, i-1, i, n)
			}
			d = Explain(src[i], src[i-1])
			if err := checkPair(t, d, sb, sa); err != nil {
				t.Errorf("%s: rebuilt requests %d and %d: %v", r.name, i, i-1, err)
			}
			if err := checkComplete(d, src[i].Body, src[i-1].Body); err != nil {
				t.Errorf("%s: rebuilt requests %d and %d: %v", r.name, i, i-1, err)
			}
			if n := d.Unexplained(); n != 0 {
				t.Errorf("%s: rebuilt requests %d and %d, backward: %d differences unexplained", r.name, i, i-1, n)
			}
		}
	}
	return pairs, breaks, unequal
}

// TestPairs is the property test over all consecutive requests that ship. The
// counts are exact, so that no pair can drop out unnoticed.
func TestPairs(t *testing.T) {
	pairs, breaks, unequal := checkPairs(t, shipped(t))
	if got, want := [3]int{pairs, breaks, unequal}, [3]int{173, 72, 3}; got != want {
		t.Errorf("pairs, breaks, not rebuilt to the byte: got %v, want %v", got, want)
	}
}

// TestCorpusPairs is TestPairs over the full corpus.
func TestCorpusPairs(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("no corpus")
	}
	for _, kind := range []string{"head", "july"} {
		list := recordings(t, filepath.Join(dir, kind))
		pairs, breaks, unequal := checkPairs(t, list)
		t.Logf("%s: %d pairs of %d recordings, %d not extensions, %d not rebuilt to the byte", kind, pairs, len(list), breaks, unequal)
	}
}

// checkReplaced holds what a comparison says about replaces to the surface: every
// replace between two requests that is on the surface of the second is one
// change, of exactly the messages of the first that it removed.
func checkReplaced(d *Diff, a, b *Source) (n int, err error) {
	onB := make(map[int64]bool)
	for _, node := range b.Request.Nodes() {
		onB[node.Seq] = true
	}
	gone := make(map[int64][]int64) // by replace: what it removed, replaces expanded
	for i := range b.History.notes {
		note := &b.History.notes[i]
		if note.op == nil || note.Seq >= b.boundary() {
			continue
		}
		var list []int64
		for _, s := range note.op.ShadowedSeqs {
			if inner, ok := gone[s]; ok && s >= a.boundary() {
				list = append(list, inner...)
			} else {
				list = append(list, s)
			}
		}
		gone[note.Seq] = list
		if note.Seq < a.boundary() || !onB[note.Seq] {
			continue
		}
		var want []int
		for i := range a.Messages {
			if node := a.Node(i); node != nil && slices.Contains(list, node.Seq) {
				want = append(want, i)
			}
		}
		var got []int
		for _, c := range d.Messages.Changes {
			if c.Kind == Replaced && c.Cause.Event.Seq == note.Seq {
				got = append(got, c.Range...)
				if c.B < 0 || b.Node(c.B).Seq != note.Seq {
					return n, fmt.Errorf("replace at seq %d: shown at message %d", note.Seq, c.B)
				}
			}
		}
		if !slices.Equal(got, want) {
			return n, fmt.Errorf("replace at seq %d: messages %v of A shown, want %v", note.Seq, got, want)
		}
		if len(want) > 0 {
			n++
		}
	}
	return n, nil
}

func countReplaced(t *testing.T, list []recording) (n int) {
	for _, r := range list {
		src := r.sources(t)
		for i := 1; i < len(src); i++ {
			k, err := checkReplaced(Explain(src[i-1], src[i]), src[i-1], src[i])
			if err != nil {
				t.Errorf("%s: requests %d and %d: %v", r.name, i-1, i, err)
			}
			n += k
		}
	}
	return n
}

func TestReplaced(t *testing.T) {
	if got, want := countReplaced(t, shipped(t)), 14; got != want {
		t.Errorf("%d replaces, want %d", got, want)
	}
}

func TestCorpusReplaced(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("no corpus")
	}
	for _, kind := range []string{"head", "july"} {
		t.Logf("%s: %d replaces", kind, countReplaced(t, recordings(t, filepath.Join(dir, kind))))
	}
}

// TestCorpusForks compares every child of the corpus with its parent.
func TestCorpusForks(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("no corpus")
	}
	parents := make(map[string]string) // by session id and dialect
	key := func(r *recording, id string) string {
		return strings.SplitN(r.name, "-", 2)[0] + " " + id
	}
	var children []recording
	for _, kind := range []string{"head", "july"} {
		logs, err := filepath.Glob(filepath.Join(dir, kind, "*", "session*.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range logs {
			if strings.Contains(path, ".packed") || strings.Contains(path, "invalid") {
				continue
			}
			r := recording{name: filepath.Base(filepath.Dir(path)), log: path}
			log := openLog(t, path)
			if log.Header == nil {
				continue
			}
			if kind == "head" {
				r.name = "head-" + r.name
			}
			parents[key(&r, log.Header.ID)] = path
			if log.Header.ParentSession != nil {
				children = append(children, r)
			}
		}
	}
	compared, fresh := 0, 0
	for _, r := range children {
		child := openLog(t, r.log)
		path, ok := parents[key(&r, *child.Header.ParentSession)]
		if !ok {
			t.Logf("%s: its parent %q is not in the corpus", r.name, *child.Header.ParentSession)
			continue
		}
		f, err := CompareFork(child, openLog(t, path), fold.Options{}, func(err error) { t.Error(err) }, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		if !f.Related || !f.Identical() {
			t.Errorf("%s: related %t, %d of %d events, first %+v", r.name, f.Related, f.Compared, f.Seed, f.First)
		}
		if f.Diff != nil && f.Diff.Unexplained() > 0 {
			t.Errorf("%s: %s", r.name, briefCauses(f.Diff))
		}
		compared++
		if f.Seed == 0 {
			fresh++
		}
	}
	t.Logf("%d children compared, %d of them without a prefix", compared, fresh)
}
