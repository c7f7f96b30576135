package logfmt

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ncruces/go-sqlite3"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/sqlitedb"
)

// writeDatabase writes one session of the given events, one batch.
func writeDatabase(t testing.TB, h *Header, events ...[]byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "new.sqlite")
	w, err := CreateDatabase(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Begin(h); err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if err := w.AddJSON(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// storedRows lists the rows of events, with data decompressed.
func storedRows(t testing.TB, path string) []string {
	t.Helper()
	db, err := sqlitedb.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	st, err := db.Prepare(`SELECT session_id, seq, type, time, data, quote(source_event_seqs), quote(surface_op), quote(ignorable), typeof(data) FROM events ORDER BY session_id, seq`)
	if err != nil {
		t.Fatal(err)
	}
	var z blobReader
	var rows []string
	for st.Step() {
		var data string
		if st.ColumnType(4) != sqlitedb.Blob {
			data = st.ColumnText(4)
		} else {
			b, err := z.read(st.ColumnRawBlob(4), maxData)
			if err != nil {
				t.Fatal(err)
			}
			data = string(b)
		}
		rows = append(rows, strings.Join([]string{st.ColumnText(0), st.ColumnText(1), st.ColumnText(2), st.ColumnText(3), data,
			st.ColumnText(5), st.ColumnText(6), st.ColumnText(7), st.ColumnText(8)}, "|"))
	}
	if err := st.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// rewrite writes the sessions of a database anew, with a batch for each of its
// rows, so that the rows come out as they were.
func rewrite(t testing.TB, from string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "again.sqlite")
	w, err := CreateDatabase(path)
	if err != nil {
		t.Fatal(err)
	}
	for l, err := range DatabaseLogs(from, Options{}) {
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Begin(l.Header); err != nil {
			t.Fatal(err)
		}
		row := int64(0)
		for e, d := range l.Events() {
			if d != nil {
				t.Fatal(d)
			}
			if e.Pos.Row != row {
				if err := w.Flush(); err != nil {
					t.Fatal(err)
				}
				row = e.Pos.Row
			}
			if err := w.Add(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// Databases written anew hold the rows that the harness wrote.
func TestRewriteDatabase(t *testing.T) {
	files := []string{"testdata/sqlite/multi-step-tools.sqlite", "testdata/sqlite/unicode-torture.sqlite", "testdata/sqlite/fork-boundary.sqlite"}
	if dir, ok := corpus.Dir(t); ok {
		more, err := filepath.Glob(filepath.Join(dir, "head", "*", "session.sqlite"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range append(more, filepath.Join(dir, "big", "20mb", "session.sqlite")) {
			if !strings.Contains(f, "invalid-") {
				files = append(files, f)
			}
		}
	}
	rows, packed, blobs := 0, 0, 0
	for _, f := range files {
		want := storedRows(t, f)
		path := rewrite(t, f)
		got := storedRows(t, path)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", f, diff[:min(len(diff), 2000)])
		}
		for _, r := range got {
			if strings.HasSuffix(r, "|0|text") || strings.HasSuffix(r, "|0|blob") {
				packed++
			}
			if strings.HasSuffix(r, "|blob") {
				blobs++
			}
		}
		rows += len(got)
		before, _, _ := dbLogs(t, f)
		after, _, defects := dbLogs(t, path)
		if defects != "" || len(before) != len(after) {
			t.Fatalf("%s: %d logs\n%s", f, len(after), defects)
		}
		for i := range after {
			if string(before[i].Header.Raw) != string(after[i].Header.Raw) || after[i].Class() != Intact || after[i].Database.Schema != 17 ||
				!isUUID(after[i].Database.StoreID) || !isUUID(after[i].Database.Incarnation) || after[i].Database.Revision == 0 {
				t.Errorf("%s: %s %+v", f, after[i].Header.Raw, after[i].Database)
			}
		}
	}
	t.Logf("%d databases, %d rows, %d packed, %d compressed", len(files), rows, packed, blobs)
	if packed == 0 || blobs == 0 && len(files) > 3 {
		t.Error("not all kinds of rows occur")
	}
}

// Every plain log goes into a database and comes back.
func TestStoreLogs(t *testing.T) {
	files, _ := filepath.Glob("testdata/sqlite/*.jsonl")
	if dir, ok := corpus.Dir(t); ok {
		more, err := filepath.Glob(filepath.Join(dir, "*", "*", "session*.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range more {
			if rel := f[len(dir):]; !strings.Contains(rel, "invalid-") && !strings.Contains(rel, "legacy-") && !strings.HasPrefix(rel, "/migrated") {
				files = append(files, f)
			}
		}
	}
	n, events := 0, 0
	for _, f := range files {
		l := openFile(t, f)
		var all [][]byte
		for e, d := range l.Events() {
			if d != nil {
				t.Fatal(d)
			}
			all = append(all, bytes.Clone(e.JSON))
		}
		logs, got, defects := dbLogs(t, writeDatabase(t, l.Header, all...))
		if defects != "" || logs[0].Class() != Intact || string(logs[0].Header.Raw) != string(l.Header.Raw) {
			t.Errorf("%s: %s %s\n%s", f, logs[0].Class(), logs[0].Header.Raw, defects)
		}
		if diff, _ := diffEvents(all, got[0]); diff != "" {
			t.Errorf("%s: %s", f, diff)
		}
		n, events = n+1, events+len(all)
	}
	t.Logf("%d logs, %d events", n, events)
	if n < 8 {
		t.Errorf("%d logs", n)
	}
}

// chunk is a text delta.
func chunk(seq int, text string) []byte {
	return fmt.Appendf(nil, `{"type":"assistant/chunk","seq":%d,"time":%d,"data":{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"%s"}}}`, seq, 1000+seq*seq%7, text)
}

// The limits of a packed row.
func TestPackedLimits(t *testing.T) {
	h := &Header{ID: "s"}
	for _, tt := range []struct {
		name  string
		texts []string
		want  []int // events of each row
	}{
		{"two", fill2("x", 2), []int{1, 1}},
		{"three", fill2("x", 3), []int{3}},
		{"most", fill2("", 1024), []int{1024}},
		{"one more", fill2("", 1025), []int{1024, 1}},
		{"three more", fill2("", 1027), []int{1024, 3}},
		{"twice", fill2("", 2050), []int{1024, 1024, 1, 1}},
		{"too large", fill2(strings.Repeat("x", 300<<10), 7), []int{3, 3, 1}},
		{"huge", fill2(strings.Repeat("x", 400<<10), 4), []int{1, 1, 1, 1}},
		{"huge, then small", append(fill2(strings.Repeat("x", 1<<20), 2), fill2("y", 5)...), []int{1, 1, 5}},
		{"exactly full", []string{"a", "b", strings.Repeat("x", 1<<20-len(`{"turn":1,"step":1,"index":0,"dt":[1,1],"texts":["a","b",""]}`))}, []int{3}},
		{"one byte more", []string{"a", "b", strings.Repeat("x", 1<<20-len(`{"turn":1,"step":1,"index":0,"dt":[1,1],"texts":["a","b",""]}`)+1)}, []int{1, 1, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var events [][]byte
			for i, s := range tt.texts {
				e := chunk(i, s)
				if strings.Contains(tt.name, "exactly") || strings.Contains(tt.name, "byte") {
					e = bytes.Replace(e, fmt.Appendf(nil, `"time":%d`, 1000+i*i%7), fmt.Appendf(nil, `"time":%d`, i), 1)
				}
				events = append(events, e)
			}
			path := writeDatabase(t, h, events...)
			_, got, defects := dbLogs(t, path)
			if diff, exact := diffEvents(events, got[0]); diff != "" || exact != len(events) || defects != "" {
				t.Errorf("%s %s", diff[:min(len(diff), 300)], defects)
			}
			var rows []int
			last := int64(-1)
			for e := range openFile(t, path).Events() {
				if e.Pos.Row != last {
					rows = append(rows, 0)
					last = e.Pos.Row
				}
				rows[len(rows)-1]++
			}
			if diff := cmp.Diff(tt.want, rows); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func fill2(s string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = s
	}
	return out
}

// A run of any length is written in little memory.
func TestLongRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new.sqlite")
	w, err := CreateDatabase(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Begin(&Header{ID: "s"}); err != nil {
		t.Fatal(err)
	}
	for i := range 100_000 {
		if err := w.AddJSON(chunk(i, "word")); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.ends) > maxMembers || cap(w.text) > 1<<20 {
		t.Errorf("%d events, %d bytes held", len(w.ends), cap(w.text))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if rows := storedRows(t, path); len(rows) != 98 {
		t.Errorf("%d rows, want 98", len(rows))
	}
}

func TestDataColumn(t *testing.T) {
	v := loadDBVectors(t)
	if len(v.Data) != 2 || v.Data[0].PlainBytes != 4095 || v.Data[1].PlainBytes != 4096 {
		t.Fatalf("%+v", v.Data)
	}
	data := func(n int) string { return `{"t":"` + strings.Repeat("k", n-8) + `"}` }

	// What the harness stored reads as what it was.
	var z blobReader
	blob := []byte(nil)
	fmt.Sscanf(v.Data[1].BlobHex, "%x", &blob)
	got, err := z.read(blob, maxData)
	if err != nil || string(got) != data(4096) {
		t.Errorf("%.20q %v", got, err)
	}

	// The frames have the parameters of the harness's own (PHYSICAL §5.4).
	for _, tt := range []struct {
		n    int
		want string // begin of the stored value
	}{
		{4095, `{"t":`},
		{4096, "\x28\xb5\x2f\xfd\x60\x00\x0f"},
		{65791, "\x28\xb5\x2f\xfd\x60\xff\xff"},
		{65792, "\x28\xb5\x2f\xfd\xa0\x00\x01\x01\x00"},
		{2 << 20, "\x28\xb5\x2f\xfd\xa0\x00\x00\x20\x00"},
		{2<<20 + 1, "\x28\xb5\x2f\xfd\x80\x58\x01\x00\x20\x00"},
	} {
		e := []byte(`{"type":"x","seq":0,"time":0,"data":` + data(tt.n) + `}`)
		path := writeDatabase(t, &Header{ID: "s"}, e)
		db, err := sqlitedb.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		st, err := db.Prepare(`SELECT data FROM events`)
		if err != nil || !st.Step() {
			t.Fatal(err)
		}
		if got := string(st.ColumnRawBlob(0)); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%d: % x", tt.n, got[:12])
		}
		db.Close()
		if _, events, defects := dbLogs(t, path); len(events[0]) != 1 || !bytes.Equal(events[0][0], e) {
			t.Errorf("%d: %s", tt.n, defects)
		}
	}

	// What does not shrink stays text.
	noise := make([]byte, 5000)
	x := uint32(1)
	for i := range noise {
		x = x*1664525 + 1013904223
		noise[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 !#$%&()*+,-./:;<=>?@[]^_`{|}~¡"[x>>24%94]
	}
	rows := storedRows(t, writeDatabase(t, &Header{ID: "s"}, fmt.Appendf(nil, `{"type":"x","seq":0,"time":0,"data":"%s"}`, noise)))
	if !strings.HasSuffix(rows[0], "|text") && !strings.HasSuffix(rows[0], "|blob") {
		t.Error(rows[0])
	}
}

func TestWriterRefuses(t *testing.T) {
	str := func(s string) *string { return &s }
	num := func(n int64) *int64 { return &n }
	for _, tt := range []struct {
		want string
		h    Header
	}{
		{"the id is empty", Header{}},
		{"version 1", Header{ID: "s", Version: 1}},
		{"createdAt is not a non-negative safe integer", Header{ID: "s", CreatedAt: -1}},
		{"createdAt is not a non-negative safe integer", Header{ID: "s", Fault: HeaderCreatedAt}},
		{"cwd is not an absolute path", Header{ID: "s", Cwd: str("x/y")}},
		{"cwd is not an absolute path", Header{ID: "s", Fault: HeaderCwd}},
		{"parentSession is not a string", Header{ID: "s", Fault: HeaderParent}},
		{"seedLength is not a non-negative safe integer", Header{ID: "s", SeedLength: num(-1)}},
		{`origin "robot"`, Header{ID: "s", Origin: str("robot")}},
		{"delegationDepth is not a non-negative safe integer", Header{ID: "s", DelegationDepth: num(-1)}},
		{"id holds half of a surrogate pair", Header{ID: "s\xed\xa0\x80"}},
		{"agentPreset holds half of a surrogate pair", Header{ID: "s", AgentPreset: str("\xed\xbf\xbf")}},
	} {
		w, err := CreateDatabase(filepath.Join(t.TempDir(), "x"))
		if err != nil {
			t.Fatal(err)
		}
		err = w.Begin(&tt.h)
		if want := "header record: " + tt.want + ": a database of schema 17 does not take it"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		w.Abort()
	}
	const place = ": a database of schema 17 has no place for it"
	for _, tt := range []struct{ event, want string }{
		{`{"type":"x","seq":1,"time":0,"data":1}`, "expected seq 0, got 1"},
		{`{"type":"x","seq":"0","time":0,"data":1}`, "expected seq 0, got -1"},
		{`{"type":1,"seq":0,"time":0,"data":1}`, "seq 0: a type that is no name" + place},
		{`{"type":"","seq":0,"time":0,"data":1}`, "seq 0: a type that is no name" + place},
		{`{"type":"a\ud800","seq":0,"time":0,"data":1}`, "seq 0: a type that holds half of a surrogate pair" + place},
		{`{"type":"x","seq":0,"time":0.5,"data":1}`, "seq 0: a time that is no safe integer" + place},
		{`{"type":"x","seq":0,"time":0}`, "seq 0: no data" + place},
		{`{"type":"x","seq":0,"time":0,"data":1,"extra":1}`, "seq 0: a member outside the envelope" + place},
		{`{"type":"x","seq":0,"time":0,"data":1,"ignorable":false}`, "seq 0: an ignorable other than true" + place},
		{`{"type":"x","seq":0,"time":0,"data":1,"sourceEventSeqs":[[2,1]]}`, "seq 0: sourceEventSeqs that are no list of seqs" + place},
		{`{"type":"x","seq":0,"time":0,"data":1,"sourceEventSeqs":null}`, "seq 0: sourceEventSeqs that are no list of seqs" + place},
		{`null`, "seq 0: null is no event"},
	} {
		path := filepath.Join(t.TempDir(), "x")
		w, err := CreateDatabase(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.AddJSON([]byte(`{"type":"x","seq":0,"time":0,"data":1}`)); err == nil || err.Error() != "an event before its session" {
			t.Errorf("got %v", err)
		}
		if err := w.Begin(&Header{ID: "s"}); err != nil {
			t.Fatal(err)
		}
		if err := w.AddJSON([]byte(tt.event)); err == nil || err.Error() != tt.want {
			t.Errorf("got %v, want %s", err, tt.want)
		}
		w.Abort()
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Error("the file is still there")
		}
	}

	// Two sessions of one id.
	w, err := CreateDatabase(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Begin(&Header{ID: "s"}); err != nil {
		t.Fatal(err)
	}
	if err := w.Begin(&Header{ID: "s"}); err == nil || !strings.HasPrefix(err.Error(), `session "s": `) {
		t.Errorf("got %v", err)
	}
	w.Abort()

	// A file that exists is never written.
	path := filepath.Join(t.TempDir(), "precious")
	os.WriteFile(path, []byte("x"), 0o644)
	if _, err := CreateDatabase(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v", err)
	}
	if string(readFile(t, path)) != "x" {
		t.Error("overwritten")
	}
}

// What the writer makes: events that only a database holds, private modes,
// nothing beside the file, ids as they are given.
func TestWrittenDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new.sqlite")
	w, err := CreateDatabase(path)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	w.NewID = func() string { n++; return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }
	cwd, parent, origin, preset, seed, depth := "/srv", "p", "subagent", "minimal", int64(0), int64(1)
	full := &Header{ID: "b", CreatedAt: 7, Cwd: &cwd, ParentSession: &parent, SeedLength: &seed, Origin: &origin, DelegationDepth: &depth, AgentPreset: &preset}
	if err := w.Begin(full); err != nil {
		t.Fatal(err)
	}
	// A type that is the tag of a row: lines cannot hold such an event.
	tag := &Event{Type: "text-chunks", Seq: 0, Time: -5, Data: []byte(`{}`), Sources: []byte(`[]`), Op: []byte(`"append"`), Ignorable: true}
	tag.JSON = AppendEvent(nil, tag)
	if err := w.Add(tag); err != nil {
		t.Fatal(err)
	}
	w.Flush()
	w.Flush()
	if err := w.Begin(&Header{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("beside the file: %v", entries)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
		t.Errorf("%v %v", st.Mode(), err)
	}
	logs, events, defects := dbLogs(t, path)
	if len(logs) != 2 || defects != "" || logs[0].Session != "a" || len(events[0]) != 0 {
		t.Fatalf("%d logs\n%s", len(logs), defects)
	}
	if want := `{"type":"session","version":0,"id":"b","createdAt":7,"cwd":"/srv","parentSession":"p","seedLength":0,"origin":"subagent","delegationDepth":1,"agentPreset":"minimal"}`; string(logs[1].Header.Raw) != want {
		t.Errorf("header %s", logs[1].Header.Raw)
	}
	if want := `{"type":"text-chunks","seq":0,"time":-5,"data":{},"sourceEventSeqs":[],"surfaceOp":"append","ignorable":true}`; string(events[1][0]) != want {
		t.Errorf("event %s", events[1][0])
	}
	if db := logs[1].Database; db.StoreID != "00000000-0000-4000-8000-000000000001" || db.Incarnation != "00000000-0000-4000-8000-000000000002" || db.Revision != 1 {
		t.Errorf("%+v", db)
	}
	if logs[0].Database.Revision != 0 {
		t.Errorf("%+v", logs[0].Database)
	}
	if rows := storedRows(t, path); rows[0] != `b|0|text-chunks|-5|{}|X''|'"append"'|1|text` {
		t.Error(rows[0])
	}
	// SQLite finds nothing wrong with it.
	c, err := sqlite3.OpenFlags(path, sqlite3.OPEN_READONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	st, _, err := c.Prepare(`SELECT group_concat(integrity_check) || (SELECT count(*) FROM pragma_foreign_key_check) FROM pragma_integrity_check`)
	if err != nil || !st.Step() || st.ColumnText(0) != "ok0" {
		t.Errorf("%v %s", err, st.ColumnText(0))
	}

	empty := filepath.Join(t.TempDir(), "empty.sqlite")
	if w, err = CreateDatabase(empty); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if logs, _, defects := dbLogs(t, empty); len(logs) != 0 || defects != "" {
		t.Errorf("%d logs %s", len(logs), defects)
	}
}
