package load

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ncruces/go-sqlite3"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

func corpusDir(t *testing.T) string {
	t.Helper()
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	return filepath.Join(dir, "head")
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// recordedTexts finds the words that the harness gives to lost results in what it
// wrote: they are its own and not kept here.
func recordedTexts(t *testing.T, head string) *fold.CloserTexts {
	t.Helper()
	// Killed inside a call that was recorded, and inside one that was not.
	files := []string{
		filepath.Join(head, "crash-after-tool-call", "repaired.jsonl"),
		filepath.Join(head, "resume-killed-in-tool", "events.jsonl"),
	}
	var texts fold.CloserTexts
	for _, file := range files {
		for line := range bytes.Lines(read(t, file)) {
			data := jsjson.Get(bytes.TrimSpace(line), "data")
			code, _ := jsjson.Str(jsjson.Get(jsjson.Get(data, "error"), "code"))
			block := jsjson.Index(jsjson.Get(jsjson.Get(data, "message"), "content"), 0)
			text, _ := jsjson.Str(jsjson.Get(jsjson.Index(jsjson.Get(block, "content"), 0), "text"))
			switch code {
			case "TOOL_OUTCOME_UNKNOWN":
				texts.Started = text
			case "TOOL_NOT_STARTED":
				texts.NotStarted = text
			}
		}
	}
	if texts.Started == "" || texts.NotStarted == "" {
		t.Fatalf("no recorded closers: %+v", texts)
	}
	return &texts
}

// caseFile is the log of a case, "" if the case holds none.
func caseFile(t testing.TB, dir string) string {
	t.Helper()
	for _, base := range []string{"session", "damaged"} {
		for _, suffix := range []string{".jsonl", ".jsonl.zstd", ".sqlite"} {
			if p := filepath.Join(dir, base+suffix); exists(p) {
				return p
			}
		}
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func open(t testing.TB, path string) *logfmt.Log {
	t.Helper()
	log, err := logfmt.OpenFile(path, logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return log
}

// verdict is what the harness said about a case.
type verdict struct {
	Note, ID, Kind                           string
	Load, Inspect, ReadFrom0, FromRestore    *stage
	ScanLog                                  *stage
	LoadError, InspectError                  *string
	PreservedEvents, RepairedEvents, Closers *int64
}

// stage is one of its answers: {"ok":…}, or "ok" or "reject".
type stage struct{ OK bool }

func (s *stage) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		s.OK = string(b) == `"ok"`
		return nil
	}
	type plain stage
	return json.Unmarshal(b, (*plain)(s))
}

func (v *verdict) accepted() bool {
	if v.Kind != "" {
		return v.LoadError == nil && v.InspectError == nil
	}
	return v.Load.OK
}

// placed are the cases in which the harness fails to find the log where the
// header says it belongs, before it looks into it: readFrom0 says nothing there.
var placed = map[string]bool{"invalid-header-cwd-number": true, "invalid-header-cwd-relative": true}

// Every case that the harness was asked about is loaded or refused as it said,
// and what it loads holds the events that it recorded.
func TestCorpusVerdicts(t *testing.T) {
	head := corpusDir(t)
	texts := recordedTexts(t, head)
	dirs, err := filepath.Glob(filepath.Join(head, "*", "verdict.json"))
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, file := range dirs {
		dir := filepath.Dir(file)
		name := filepath.Base(dir)
		t.Run(name, func(t *testing.T) {
			var v verdict
			if err := json.Unmarshal(read(t, file), &v); err != nil {
				t.Fatal(err)
			}
			path := caseFile(t, dir)
			if path == "" {
				t.Fatal("no log")
			}
			before := read(t, path)
			log := open(t, path)
			got := loadLog(log, Options{ID: v.ID, Texts: texts})
			n["cases"]++
			if got.Unjudged != "" {
				t.Errorf("unjudged: %s", got.Unjudged)
			}
			if want := v.accepted(); want != (got.Refusal == nil) {
				t.Errorf("%s: the harness accepts it: %v, here: %v", v.Note, want, got.Refusal)
			}
			if v.Inspect != nil && v.Inspect.OK != (got.Refusal == nil) {
				t.Errorf("%s: the harness shows it: %v, here: %v", v.Note, v.Inspect.OK, got.Refusal)
			}
			// readFrom0 ends before the events are admitted.
			if v.ReadFrom0 != nil && !placed[name] {
				n["read"]++
				if ok := got.Refusal == nil || got.Refusal.Stage >= Closing; ok != v.ReadFrom0.OK {
					t.Errorf("%s: read by the harness: %v, here: %v", v.Note, v.ReadFrom0.OK, got.Refusal)
				}
			}
			if v.FromRestore != nil && v.ScanLog != nil && v.ScanLog.OK {
				n["restored"]++
				if ok := restored(log); ok != v.FromRestore.OK {
					t.Errorf("%s: restored by the harness: %v, here: %v", v.Note, v.FromRestore.OK, ok)
				}
			}
			if got.Refusal == nil {
				n["loaded"]++
			} else {
				n["refused"]++
			}
			if v.PreservedEvents != nil {
				n["crash"]++
				if got.Kept != *v.PreservedEvents || int64(len(got.Closers)) != *v.Closers || int64(len(got.events)) != *v.RepairedEvents {
					t.Errorf("kept %d, closers %d, events %d; want %d, %d, %d", got.Kept, len(got.Closers), len(got.events),
						*v.PreservedEvents, *v.Closers, *v.RepairedEvents)
				}
			}
			if p := filepath.Join(dir, "repaired-file"+strings.TrimPrefix(filepath.Base(path), "damaged")); got.Cut.Torn && exists(p) && got.Cut.Byte >= 0 {
				n["cut"]++
				// The file that the harness cut and went on writing.
				after := read(t, p)
				if k := got.Cut.Byte; int64(len(after)) < k || !bytes.Equal(before[:k], after[:k]) ||
					log.Container == logfmt.Zstd && got.Cut.Recovered+int64(len(got.Closers)) == 0 && int64(len(after)) != k {
					t.Errorf("cut at byte %d of %d: the harness kept other bytes", k, len(before))
				}
				if log.Container == logfmt.Plain {
					var b []byte
					for _, e := range got.Closers {
						b = append(append(b, e.JSON...), '\n')
					}
					if !bytes.Equal(after[got.Cut.Byte:], b) {
						t.Errorf("the harness added %q behind the cut, want %q", after[got.Cut.Byte:], b)
					}
				}
			}
			for _, want := range []string{"loaded.jsonl", "repaired.jsonl"} {
				if p := filepath.Join(dir, want); exists(p) {
					n[want]++
					if d := cmp.Diff(string(read(t, p)), got.text()); d != "" {
						t.Errorf("%s (-want +got):\n%s", want, d)
					}
				}
			}
			if !bytes.Equal(before, read(t, path)) {
				t.Error("the log was changed by reading it")
			}
		})
	}
	t.Logf("%v", n)
	if n["cases"] != 206 || n["loaded.jsonl"] == 0 || n["repaired.jsonl"] == 0 || n["crash"] == 0 || n["restored"] == 0 {
		t.Errorf("not all cases ran: %v", n)
	}
}

// restored reports whether the harness makes a session of the stored events as
// they are: the rules of admission alone.
func restored(log *logfmt.Log) bool {
	l := New(nil, Options{})
	for e, d := range log.Events() {
		if d != nil || e.AfterDamage {
			continue
		}
		if e.Type == logfmt.TypeRequestHeader {
			l.vocabulary(e)
		}
		l.admit(e)
	}
	message := l.refusals[Upgrade] // of admit: the shape of a message
	return message == nil && l.refusals[Admit] == nil && l.retired[2] == nil
}

// Every cut of the sweeps is accepted or refused as the harness said, and leaves
// the events and the closers that it recorded.
func TestCorpusSweeps(t *testing.T) {
	head := corpusDir(t)
	texts := recordedTexts(t, head)
	total := map[string]int{}
	for _, sweep := range []string{"plain", "packed", "zstd", "zstd-bigframe", "zstd-multiblock", "sqlite"} {
		dir := filepath.Join(head, "crash-sweep-"+sweep)
		var base struct{ Base, ID string }
		if err := json.Unmarshal(read(t, filepath.Join(dir, "base.json")), &base); err != nil {
			t.Fatal(err)
		}
		whole := read(t, filepath.Join(head, filepath.FromSlash(base.Base)))
		name := filepath.Base(base.Base)
		var db *rows
		if sweep == "sqlite" {
			db = openRows(t, whole)
		}
		n := map[string]int{}
		for line := range bytes.Lines(read(t, filepath.Join(dir, "cases.jsonl"))) {
			var c struct {
				Cut       int
				DropLast  int
				OK        bool
				Preserved int64
				Events    int
				SHA256    string
				Closers   []string
			}
			if err := json.Unmarshal(line, &c); err != nil {
				t.Fatal(err)
			}
			o := Options{ID: base.ID, Texts: texts}
			var got *loaded
			if db != nil {
				c.Cut = c.DropLast
				got = loadLog(open(t, db.drop(t, c.DropLast)), o)
				c.Closers = nil // not recorded
			} else {
				got = loadBytes(t, name, whole[:c.Cut], o)
			}
			n["cuts"]++
			if got.Unjudged != "" || c.OK != (got.Refusal == nil) {
				t.Errorf("%s: cut %d: loaded by the harness: %v, here: %v %s", sweep, c.Cut, c.OK, got.Refusal, got.Unjudged)
				continue
			}
			if !c.OK {
				n["refused"]++
				continue
			}
			n["closers"] += len(got.Closers)
			if got.Cut.Torn && db == nil {
				// What is left when the harness has cut the file.
				n["torn"]++
				n["recovered"] += int(got.Cut.Recovered)
				if left := loadBytes(t, name, whole[:got.Cut.Byte], o); left.Cut.Torn || left.Refusal != nil || left.Kept+got.Cut.Recovered != got.Kept {
					t.Errorf("%s: cut %d: cut again at byte %d it holds %d events, and %d were recovered, of %d", sweep, c.Cut, got.Cut.Byte, left.Kept, got.Cut.Recovered, got.Kept)
				}
			}
			var closers []string
			for _, e := range got.Closers {
				closers = append(closers, e.Type)
			}
			sum := sha256.Sum256([]byte(got.text()))
			if db != nil {
				closers = nil
			}
			if got.Kept != c.Preserved || len(got.events) != c.Events || !slices.Equal(closers, c.Closers) || hex.EncodeToString(sum[:]) != c.SHA256 {
				t.Errorf("%s: cut %d: kept %d, events %d, closers %v, sha256 %x; want %+v", sweep, c.Cut, got.Kept, len(got.events), closers, sum, c)
			}
		}
		t.Logf("%s: %v", sweep, n)
		for k, v := range n {
			total[k] += v
		}
	}
	t.Logf("total: %v", total)
	if total["cuts"] != 2628+3294+2118+96+230+77 {
		t.Errorf("%d cuts", total["cuts"])
	}
}

// A log of older dialects derives to the messages that the harness recorded.
func TestCorpusLegacy(t *testing.T) {
	dir := filepath.Join(corpusDir(t), "legacy-messages")
	log := open(t, filepath.Join(dir, "session.jsonl"))
	f := fold.New(log.Header, fold.Options{})
	var out Outcome
	for e, d := range Events(log, Options{}, &out) {
		if d != nil {
			t.Fatal(d)
		}
		f.Add(e)
	}
	if out.Refusal != nil {
		t.Fatal(out.Refusal)
	}
	want := strings.TrimSpace(string(read(t, filepath.Join(dir, "messages.json"))))
	if got := string(f.AppendMessages(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if out.Upgraded == 0 {
		t.Error("no event was upgraded")
	}
}

// rows is a copy of a database whose last rows are deleted, one after the other.
type rows struct {
	path string
	gone int
}

func openRows(t *testing.T, data []byte) *rows {
	r := &rows{path: filepath.Join(t.TempDir(), "x.sqlite")}
	if err := os.WriteFile(r.path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// drop leaves the copy without its last n rows.
func (r *rows) drop(t *testing.T, n int) string {
	t.Helper()
	c, err := sqlite3.OpenFlags(r.path, sqlite3.OPEN_READWRITE)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n < r.gone {
		t.Fatalf("%d rows are gone already, not %d", r.gone, n)
	}
	for ; r.gone < n; r.gone++ {
		if err := c.Exec("DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)"); err != nil {
			t.Fatal(err)
		}
	}
	return r.path
}
