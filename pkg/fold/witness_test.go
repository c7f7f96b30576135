package fold

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// kept reads the events of a log that the harness keeps.
func kept(t *testing.T, path string) (out []*logfmt.Event) {
	t.Helper()
	l, err := logfmt.OpenFile(path, logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for e := range l.Events() {
		if e != nil && !e.AfterDamage {
			out = append(out, e.Clone())
		}
	}
	if l.Class() == logfmt.Corrupt || l.Class() == logfmt.Unreadable {
		return nil
	}
	return out
}

// Every header event that a recorded process logged is the one it owed.
func TestHeaderWriterCorpus(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	n := map[string]int{}
	for glob, era := range map[string]Era{"july/b-*": E4, "july/b2-*": E4, "july/c-*": E6, "head/*": E13} {
		logs, err := filepath.Glob(filepath.Join(dir, glob, "session*.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range logs {
			name, _ := filepath.Rel(dir, path)
			if strings.Contains(name, "invalid-") || strings.Contains(name, "legacy-") {
				continue
			}
			var f HeaderFold
			for _, e := range kept(t, path) {
				before := f.Header
				is, err := f.Add(e)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if !is {
					continue
				}
				reason, _ := jsjson.Str(jsjson.Get(e.Data, "reason"))
				want := HeaderEvent{Type: e.Type, Reason: reason, Data: e.Data}
				got := NextHeaderEvent(era, before, f.Header, reason == "initial" || reason == "resume")
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: seq %d: (-logged +owed)\n%s", name, e.Seq, diff)
				}
				if e.Type == logfmt.TypeRequestHeaderDelta {
					if d := DeltaDefects(before, e.Data); d != nil {
						t.Errorf("%s: seq %d: %v", name, e.Seq, d)
					}
					reason = "delta"
				}
				n[reason]++
			}
		}
	}
	t.Logf("header events: %v", n)
	want := map[string]int{"initial": 170, "resume": 34, "delta": 78, "fallback": 15, "change": 85}
	if diff := cmp.Diff(want, n); diff != "" {
		t.Errorf("header events (-want +got)\n%s", diff)
	}
}

// What the harness appended to the logs of killed processes.
func TestClosersCorpus(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	n := 0
	check := func(name string, damaged []*logfmt.Event, want [][]byte, form CloserForm) {
		texts := DefaultCloserTexts
		for _, raw := range want {
			e := event(raw)
			content := jsjson.Get(e.Data, "content")
			if m := jsjson.Get(e.Data, "message"); m != nil {
				content = jsjson.Get(jsjson.Index(jsjson.Get(m, "content"), 0), "content")
			}
			text, _ := jsjson.Str(jsjson.Get(jsjson.Index(content, 0), "text"))
			switch code, _ := jsjson.Str(jsjson.Get(jsjson.Get(e.Data, "error"), "code")); code {
			case "interrupted":
				texts.Lost = text
			case "TOOL_OUTCOME_UNKNOWN":
				texts.Started = text
			case "TOOL_NOT_STARTED":
				texts.NotStarted = text
			}
		}
		var lines, got []string
		for _, raw := range want {
			lines = append(lines, string(raw))
		}
		for _, e := range damaged {
			got = append(got, string(e.JSON))
		}
		var tracker CloserTracker
		for _, e := range damaged {
			tracker.Add(e)
		}
		closers := tracker.Closers(form, texts)
		if len(closers) > 0 != tracker.Open() {
			t.Errorf("%s: open %v with %d closers", name, tracker.Open(), len(closers))
		}
		n += len(closers)
		if diff := cmp.Diff(lines, append(got, jsonLines(closers)...)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
	split := func(path string) (out [][]byte) {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		for line := range bytes.Lines(raw) {
			if line = bytes.TrimSuffix(line, []byte("\n")); !bytes.HasPrefix(line, []byte(`{"type":"session",`)) {
				out = append(out, line)
			}
		}
		return out
	}
	logs, err := filepath.Glob(filepath.Join(dir, "head", "crash-*", "damaged.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	for _, path := range logs {
		repaired := split(filepath.Join(filepath.Dir(path), "repaired.jsonl"))
		if repaired == nil {
			continue // refused
		}
		cases++
		check(filepath.Base(filepath.Dir(path)), kept(t, path), repaired, CloserIdentified)
	}
	for _, era := range []string{"a", "b", "b2", "c"} {
		at := filepath.Join(dir, "july", era+"-crash-repair")
		crashed := kept(t, filepath.Join(at, "crashed.jsonl"))
		cases++
		session := kept(t, filepath.Join(at, "session.jsonl"))
		// The process that repaired the log went on with it.
		var want [][]byte
		for i, e := range session {
			if i >= len(crashed) && e.Type == logfmt.TypeTurnEnd {
				want = append(want, e.JSON)
				break
			}
			want = append(want, e.JSON)
		}
		check(era+"-crash-repair", crashed, want, CloserMarked)
	}
	t.Logf("%d logs, %d closers", cases, n)
	if cases != 21 || n != 41 {
		t.Errorf("%d logs with %d closers, want 21 with 41", cases, n)
	}
}
