package logfmt

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ncruces/go-sqlite3"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// dbExec runs SQL on a database that may be written.
func dbExec(t testing.TB, path string, sql ...string) {
	t.Helper()
	c, err := sqlite3.OpenFlags(path, sqlite3.OPEN_READWRITE|sqlite3.OPEN_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, s := range sql {
		if err := c.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// mutant copies a shipped database and changes the copy.
func mutant(t testing.TB, name string, sql ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.sqlite")
	if err := os.WriteFile(path, readFile(t, filepath.Join("testdata", "sqlite", name+".sqlite")), 0o644); err != nil {
		t.Fatal(err)
	}
	if len(sql) > 0 {
		dbExec(t, path, append([]string{"PRAGMA ignore_check_constraints=on; PRAGMA foreign_keys=off"}, sql...)...)
	}
	return path
}

// dbLogs reads every log of a database. The returned text holds, log by log,
// what summary says and the defects.
func dbLogs(t testing.TB, path string) (logs []*Log, events [][][]byte, defects string) {
	t.Helper()
	var b strings.Builder
	for l, err := range Open(path, Options{}) {
		if err != nil {
			t.Fatal(err)
		}
		var evs [][]byte
		for e, d := range l.Events() {
			if d != nil {
				fmt.Fprintf(&b, "%s %s: %s\n", d.Rule, d.Class, strings.TrimPrefix(d.Error(), path+": "))
				continue
			}
			evs = append(evs, bytes.Clone(e.JSON))
		}
		logs = append(logs, l)
		events = append(events, evs)
	}
	return logs, events, b.String()
}

// lines returns the lines of a JSONL file behind the first, which is the header.
func logLines(t testing.TB, path string) (header []byte, events [][]byte) {
	t.Helper()
	b := readFile(t, path)
	all := bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
	return all[0], all[1:]
}

// diffEvents compares events by value: crash closers have another key order in
// JSONL (PHYSICAL §2.3).
func diffEvents(want, got [][]byte) (string, int) {
	exact := 0
	for i := range min(len(want), len(got)) {
		if bytes.Equal(want[i], got[i]) {
			exact++
			continue
		}
		w, _, err := jsjson.Stringify(want[i])
		if err != nil || !jsjson.Equal(w, got[i]) {
			return fmt.Sprintf("event %d\nwant %s\ngot  %s", i, want[i], got[i]), exact
		}
	}
	if len(want) != len(got) {
		return fmt.Sprintf("want %d events, got %d", len(want), len(got)), exact
	}
	return "", exact
}

func TestDatabaseLogs(t *testing.T) {
	for _, tt := range []struct {
		name     string
		schema   int
		sessions []string // ids; the JSONL of each is named after what follows the last dash
		files    []string
		notes    []string
	}{
		{"multi-step-tools", 17, []string{"oracle-multi-step-tools"}, []string{"multi-step-tools"}, nil},
		{"unicode-torture", 17, []string{"oracle-unicode-ü-😀-~x"}, []string{"unicode-torture"}, nil},
		{"fork-boundary", 17, []string{"oracle-fork-child", "oracle-fork-grandchild", "oracle-fork-parent"},
			[]string{"fork-boundary.child", "fork-boundary.grandchild", "fork-boundary.parent"}, nil},
		{"a-plain-turn", 3, []string{"plain-turn"}, []string{"a-plain-turn"},
			[]string{"schema 3: the columns are those of the development build of 2026-06-23"}},
		{"b-plain-turn", 4, []string{"plain-turn"}, []string{"b-plain-turn"}, nil},
		{"c-plain-turn", 5, []string{"plain-turn"}, []string{"c-plain-turn"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := mutant(t, tt.name)
			before := folder(t, path)
			logs, events, defects := dbLogs(t, path)
			if defects != "" || len(logs) != len(tt.sessions) {
				t.Fatalf("%d logs, want %d\n%s", len(logs), len(tt.sessions), defects)
			}
			for i, l := range logs {
				header, want := logLines(t, filepath.Join("testdata", "sqlite", tt.files[i]+".jsonl"))
				if diff, exact := diffEvents(want, events[i]); diff != "" || exact != len(want) {
					t.Errorf("%d of %d exact, %s", exact, len(want), diff)
				}
				if l.Class() != Intact || l.Kept() != int64(len(want)) || l.Session != tt.sessions[i] || l.Header.ID != tt.sessions[i] || l.Container != SQLite {
					t.Errorf("%s %s kept %d session %q header %q", l.Container, l.Class(), l.Kept(), l.Session, l.Header.ID)
				}
				// The stored header, but for a depth that the newest builds store as NULL and
				// JSONL writes as 0.
				if tt.schema == 17 {
					header = bytes.Replace(header, []byte(`,"delegationDepth":0`), nil, 1)
				}
				if diff := cmp.Diff(string(header), string(l.Header.Raw)); diff != "" {
					t.Errorf("header: %s", diff)
				}
				if db := l.Database; db.Schema != tt.schema || db.Sessions != len(tt.sessions) || !slices.Equal(db.Notes, tt.notes) {
					t.Errorf("database %+v", db)
				}
				if _, ok := l.TornFrom(); ok {
					t.Error("torn")
				}
			}
			if diff := cmp.Diff(before, folder(t, path)); diff != "" {
				t.Errorf("the folder changed: %s", diff)
			}
		})
	}
}

// folder is what lies in the folder of a file.
func folder(t testing.TB, path string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		m[e.Name()] = string(readFile(t, filepath.Join(filepath.Dir(path), e.Name())))
	}
	return m
}

// Positions, names and lifetimes of events from a database.
func TestDatabaseEvents(t *testing.T) {
	l := openFile(t, mutant(t, "multi-step-tools"))
	var got []string
	var members []int
	for e, d := range l.Events() {
		if d != nil {
			t.Fatal(d)
		}
		if e.Seq >= 7 && e.Seq <= 12 {
			got = append(got, fmt.Sprintf("%s seq %d row %d member %d line %d", e.Type, e.Seq, e.Pos.Row, e.Pos.Member, e.Pos.Line))
		}
		if e.Pos.Member >= 0 {
			members = append(members, e.Pos.Member)
		}
		if !bytes.Contains(e.JSON, e.Data) || e.Fault != 0 {
			t.Errorf("seq %d: fault %v", e.Seq, e.Fault)
		}
		if e.Seq == 20 {
			seqs, ok := e.SourceSeqs(nil)
			if want := []int64{7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}; !ok || !slices.Equal(seqs, want) {
				t.Errorf("sources %v %v", seqs, ok)
			}
			if op, ok := e.Replace(); !ok || !op.Append || string(e.Op) != `"append"` {
				t.Errorf("op %s", e.Op)
			}
			if c := e.Clone(); string(c.JSON) != string(e.JSON) || string(c.Data) != string(e.Data) {
				t.Error("clone differs")
			}
		}
	}
	want := []string{
		"assistant/chunk seq 7 row 7 member -1 line 0",
		"assistant/chunk seq 8 row 8 member 0 line 0",
		"assistant/chunk seq 9 row 8 member 1 line 0",
		"assistant/chunk seq 10 row 8 member 2 line 0",
		"assistant/chunk seq 11 row 8 member 3 line 0",
		"assistant/chunk seq 12 row 12 member -1 line 0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(members) == 0 {
		t.Error("no packed members")
	}
	// A second reading gives the same.
	n := 0
	for range l.Events() {
		n++
	}
	if n != 66 || l.Class() != Intact {
		t.Errorf("second reading: %d events, %s", n, l.Class())
	}
}

func TestDatabaseSession(t *testing.T) {
	path := mutant(t, "fork-boundary")
	_, err := OpenFile(path, Options{})
	want := path + `: the database holds 3 sessions: "oracle-fork-child", "oracle-fork-grandchild", "oracle-fork-parent"; name one`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	_, err = OpenFile(path, Options{Session: "nobody"})
	want = path + `: no session "nobody" in this database, it holds 3 sessions: "oracle-fork-child", "oracle-fork-grandchild", "oracle-fork-parent"`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	l, err := OpenFile(path, Options{Session: "oracle-fork-parent"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := 0
	for _, d := range l.Events() {
		if d != nil {
			t.Fatal(d)
		}
		n++
	}
	if n != 44 || l.Header.ID != "oracle-fork-parent" {
		t.Errorf("%d events of %s", n, l.Header.ID)
	}
	for l, err := range Open(path, Options{Session: "oracle-fork-child"}) {
		if err != nil || l.Session != "oracle-fork-child" || l.Header.Seed() != 30 || *l.Header.ParentSession != "oracle-fork-parent" {
			t.Errorf("%v %+v", err, l)
		}
	}

	empty := mutant(t, "multi-step-tools", "DELETE FROM events", "DELETE FROM sessions")
	var skipped []string
	for l := range Open(empty, Options{Skip: func(p, reason string) { skipped = append(skipped, reason) }}) {
		t.Errorf("a log %+v", l)
	}
	if !slices.Equal(skipped, []string{"a database without sessions"}) {
		t.Errorf("skipped %q", skipped)
	}
	if _, err := OpenFile(empty, Options{}); err == nil || err.Error() != empty+": the database holds no sessions" {
		t.Errorf("got %v", err)
	}

	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err = NewReader(f, "-", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := firstDefect(l); got != "-: an SQLite database cannot be read from a stream" || l.Class() != Unsupported {
		t.Errorf("got %s, %s", got, l.Class())
	}
}

func firstDefect(l *Log) string {
	for _, d := range l.Events() {
		if d != nil {
			return d.Error()
		}
	}
	return ""
}

// Each way a database can be wrong, on a copy of a sound one with 66 events whose
// last turn/end is the last event.
func TestDatabaseDamage(t *testing.T) {
	const session = `oracle-multi-step-tools`
	for _, tt := range []struct {
		name    string
		base    string // multi-step-tools if empty
		sql     string
		class   Class
		events  int
		kept    int64
		torn    int64 // where a harness cuts, -1 if not torn
		defects string
	}{
		// Rows of schema 17.
		{name: "data not JSON", sql: `UPDATE events SET data='{"turn"' WHERE seq=5`,
			class: Corrupt, events: 65, kept: 5, torn: -1,
			defects: "DB-DATA corrupt: seq 5: row 5: data is not valid JSON at byte 7: expected ':', got end of input"},
		{name: "data not JSON in the tail", sql: `DELETE FROM events WHERE seq>=63; UPDATE events SET data='{' WHERE seq=60; UPDATE events SET type='step/end' WHERE type='turn/end'`,
			class: Torn, events: 62, kept: 60, torn: 60,
			defects: "DB-DATA corrupt: seq 60: row 60: data is not valid JSON at byte 1: expected key or '}', got end of input"},
		{name: "gap", sql: `DELETE FROM events WHERE seq=6`, class: Corrupt, events: 65, kept: 6, torn: -1,
			defects: "LOG-SEQ corrupt: seq 6: row 7: expected seq 6, got 7: one event is missing"},
		{name: "gap in the tail", sql: `DELETE FROM events WHERE seq=60; DELETE FROM events WHERE type='turn/end'`,
			class: Torn, events: 64, kept: 60, torn: 61,
			defects: "LOG-SEQ corrupt: seq 60: row 61: expected seq 60, got 61: one event is missing"},
		{name: "overlap", sql: `INSERT INTO events SELECT session_id, 10, type, time, data, NULL, NULL, NULL FROM events WHERE seq=7`,
			class: Corrupt, events: 67, kept: 12, torn: -1,
			defects: "LOG-SEQ corrupt: seq 12: row 10: expected seq 12, got 10: the numbering goes back"},
		{name: "blob not zstd", sql: `UPDATE events SET data=x'00112233' WHERE seq=5`, class: Corrupt, events: 65, kept: 5, torn: -1,
			defects: "DB-DATA corrupt: seq 5: row 5: data is a BLOB that does not decompress: byte 0: no zstd frame begins here: 00 11 22 33 instead of 28 b5 2f fd"},
		{name: "empty blob", sql: `UPDATE events SET data=x'' WHERE seq=5`, class: Corrupt, events: 65, kept: 5, torn: -1,
			defects: "DB-DATA corrupt: seq 5: row 5: data is a BLOB that does not decompress: it is empty, expected a zstd frame"},
		{name: "skippable frame", sql: `UPDATE events SET data=x'502a4d1800000000' WHERE seq=5`, class: Corrupt, events: 65, kept: 5, torn: -1,
			defects: "DB-DATA corrupt: seq 5: row 5: data is a BLOB that does not decompress: it begins with a skippable frame"},
		{name: "cut blob", sql: `UPDATE events SET data=x'28b52ffd60000f850000' WHERE seq=5`, class: Corrupt, events: 65, kept: 5, torn: -1,
			defects: "DB-DATA corrupt: seq 5: row 5: data is a BLOB that does not decompress: the frame is cut after 10 bytes"},
		{name: "bytes behind the frame", sql: `UPDATE events SET data=x'` + zstdHex(`{"turn":1}`) + `00112233' WHERE seq=1`, class: Intact, events: 66, kept: 66, torn: -1},
		{name: "two frames", sql: `UPDATE events SET data=x'` + zstdHex(`{"turn":1}`) + zstdHex(`x`) + `' WHERE seq=1`, class: Intact, events: 66, kept: 66, torn: -1},
		{name: "byte order mark in a blob", sql: `UPDATE events SET data=x'` + zstdHex("\ufeff{\"turn\":1}") + `' WHERE seq=1`, class: Intact, events: 66, kept: 66, torn: -1},
		{name: "two byte order marks", sql: `UPDATE events SET data=x'` + zstdHex("\ufeff\ufeff{\"turn\":1}") + `' WHERE seq=1`, class: Corrupt, events: 65, kept: 1, torn: -1,
			defects: "DB-DATA corrupt: seq 1: row 1: data is not valid JSON at byte 0: expected value, got U+FEFF"},
		{name: "bad UTF-8 in a blob", sql: `UPDATE events SET data=x'` + zstdHex("{\"turn\":\"\xff\"}") + `' WHERE seq=1`, class: Corrupt, events: 65, kept: 1, torn: -1,
			defects: "DB-DATA corrupt: seq 1: row 1: the compressed data is not valid UTF-8"},
		{name: "byte order mark in text", sql: `UPDATE events SET data=char(65279) || data WHERE seq=1`, class: Corrupt, events: 65, kept: 1, torn: -1,
			defects: "DB-DATA corrupt: seq 1: row 1: data is not valid JSON at byte 0: expected value, got U+FEFF"},
		{name: "data a number", sql: `UPDATE events SET data=7 WHERE seq=65`, class: Corrupt, events: 65, kept: 65, torn: -1,
			defects: "DB-COLUMN corrupt: seq 65: row 65: data is 7, expected text"},
		{name: "negative seq", sql: `UPDATE events SET seq=-1 WHERE seq=65`, class: Corrupt, events: 65, kept: 0, torn: -1,
			defects: "DB-COLUMN corrupt: seq 0: seq is -1, expected a non-negative safe integer"},
		{name: "huge seq", sql: `UPDATE events SET seq=9007199254740992 WHERE seq=65`, class: Corrupt, events: 65, kept: 65, torn: -1,
			defects: "DB-COLUMN corrupt: seq 65: row 9007199254740992: seq is 9007199254740992, expected a non-negative safe integer"},
		{name: "huge time", sql: `UPDATE events SET time=-9007199254740992 WHERE seq=65`, class: Corrupt, events: 65, kept: 65, torn: -1,
			defects: "DB-COLUMN corrupt: seq 65: row 65: time is -9007199254740992, beyond the safe integers"},
		{name: "empty type", sql: `UPDATE events SET type='' WHERE seq=65`, class: Corrupt, events: 65, kept: 65, torn: -1,
			defects: "DB-COLUMN corrupt: seq 65: row 65: type is empty, expected a name"},
		{name: "sources are text", sql: `UPDATE events SET source_event_seqs='[1]' WHERE seq=65`, class: Corrupt, events: 65, kept: 65, torn: -1,
			defects: "DB-COLUMN corrupt: seq 65: row 65: source_event_seqs is text, expected a BLOB or NULL"},
		{name: "ignorable 2", sql: `UPDATE events SET ignorable=2 WHERE seq=65`, class: Corrupt, events: 65, kept: 65, torn: -1,
			defects: "DB-COLUMN corrupt: seq 65: row 65: ignorable is 2, expected NULL, 0 or 1"},
		{name: "op not JSON", sql: `UPDATE events SET surface_op='append' WHERE seq=4`, class: Corrupt, events: 65, kept: 4, torn: -1,
			defects: "DB-OP corrupt: seq 4: row 4: surface_op is not valid JSON at byte 0: expected value, got 'a'"},
		{name: "op null", sql: `UPDATE events SET surface_op='null' WHERE seq=4`, class: Intact, events: 66, kept: 66, torn: -1},
		{name: "varint cut", sql: `UPDATE events SET source_event_seqs=x'80' WHERE seq=20`, class: Corrupt, events: 65, kept: 20, torn: -1,
			defects: "DB-SOURCES corrupt: seq 20: row 20: malformed source_event_seqs storage value: truncated varint"},
		{name: "no sources", sql: `UPDATE events SET source_event_seqs=x'' WHERE seq=20`, class: Intact, events: 66, kept: 66, torn: -1},
		{name: "packed without tag", sql: `UPDATE events SET ignorable=0 WHERE seq=7`, class: Corrupt, events: 65, kept: 7, torn: -1,
			defects: "LINE-ROW corrupt: seq 7: row 7: malformed assistant/chunk storage row: packed discriminator requires a chunk tag"},
		{name: "packed on the surface", sql: `UPDATE events SET surface_op='"append"' WHERE seq=8`, class: Corrupt, events: 62, kept: 8, torn: -1,
			defects: "LINE-ROW corrupt: seq 8: row 8: malformed text-chunks storage row: packed surface fields must be null"},
		{name: "two members", sql: `UPDATE events SET data='{"turn":1,"step":1,"index":0,"dt":[1],"texts":["a","b"]}' WHERE seq=8`, class: Corrupt, events: 62, kept: 8, torn: -1,
			defects: "LINE-ROW corrupt: seq 8: row 8: malformed text-chunks storage row: texts must contain 3..1024 strings"},
		{name: "too many members", sql: `UPDATE events SET data=(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<1025)
			SELECT json_object('turn',1,'step',1,'index',0,'dt',json_group_array(1),'texts',json_group_array('')) FROM n) WHERE seq=8`,
			class: Corrupt, events: 62, kept: 8, torn: -1,
			defects: "LINE-ROW corrupt: seq 8: row 8: malformed text-chunks storage row: texts must contain 3..1024 strings"},
		{name: "too much text", sql: `UPDATE events SET data=json_object('turn',1,'step',1,'index',0,'dt',json('[1,1]'),'texts',json_array('','',printf('%.*c',1048576,'x'))) WHERE seq=8`,
			class: Corrupt, events: 62, kept: 8, torn: -1,
			defects: "LINE-ROW corrupt: seq 8: row 8: malformed text-chunks storage row: data exceeds 1048576 UTF-8 bytes"},
		{name: "too much compressed text", sql: `UPDATE events SET data=x'` + zstdHex(strings.Repeat(" ", 1<<20+1)) + `' WHERE seq=8`,
			class: Corrupt, events: 62, kept: 8, torn: -1,
			defects: "LINE-ROW corrupt: seq 8: row 8: malformed text-chunks storage row: data exceeds 1048576 UTF-8 bytes"},
		{name: "extra field", sql: `UPDATE events SET data=json_set(data,'$.x',1) WHERE seq=8`, class: Corrupt, events: 62, kept: 8, torn: -1,
			defects: "LINE-ROW corrupt: seq 8: row 8: malformed text-chunks storage row: invalid text data fields"},
		{name: "short dt", sql: `UPDATE events SET data=json_set(data,'$.dt',json('[1,2]')) WHERE seq=8`, class: Corrupt, events: 62, kept: 8, torn: -1,
			defects: "LINE-ROW corrupt: seq 8: row 8: malformed text-chunks storage row: dt length must match the member count"},
		{name: "times run over", sql: `UPDATE events SET data=json_set(data,'$.dt',json('[9007199254740991,1,1]')) WHERE seq=8`, class: Corrupt, events: 62, kept: 8, torn: -1,
			defects: "LINE-ROW corrupt: seq 8: row 8: malformed text-chunks storage row: member times exceed safe integers"},
		{name: "tool fields", sql: `UPDATE events SET type='tool-call-chunks' WHERE seq=8`, class: Corrupt, events: 62, kept: 8, torn: -1,
			defects: "LINE-ROW corrupt: seq 8: row 8: malformed tool-call-chunks storage row: invalid tool-call data fields"},
		{name: "tool id", sql: `UPDATE events SET type='tool-call-chunks', data='{"turn":1,"step":1,"index":0,"id":1,"dt":[1,1],"args":["","",""]}' WHERE seq=8`, class: Corrupt, events: 62, kept: 8, torn: -1,
			defects: "LINE-ROW corrupt: seq 8: row 8: malformed tool-call-chunks storage row: id and optional name must be strings"},
		{name: "several", sql: `UPDATE events SET data='x' WHERE seq IN (3, 30); DELETE FROM events WHERE seq=45`, class: Corrupt, events: 63, kept: 3, torn: -1,
			defects: "DB-DATA corrupt: seq 3: row 3: data is not valid JSON at byte 0: expected value, got 'x'\n" +
				"DB-DATA corrupt: seq 30: row 30: data is not valid JSON at byte 0: expected value, got 'x'\n" +
				"LOG-SEQ corrupt: seq 45: row 46: expected seq 45, got 46: one event is missing"},

		// Rows of older schemas.
		{name: "old: gap in the tail", base: "b-plain-turn", sql: `DELETE FROM events WHERE seq=10; DELETE FROM events WHERE type='turn/end'`, class: Torn, events: 12, kept: 10, torn: 10,
			defects: "LOG-SEQ corrupt: seq 10: row 11: expected seq 10, got 11: one event is missing"},
		{name: "old: negative seq", base: "b-plain-turn", sql: `UPDATE events SET seq=-1 WHERE seq=0`, class: Corrupt, events: 14, kept: 0, torn: -1,
			defects: "LOG-SEQ corrupt: seq 0: seq is -1, expected 0"},
		{name: "old: huge time", base: "b-plain-turn", sql: `DELETE FROM events WHERE type='turn/end'; UPDATE events SET time=1<<60 WHERE seq=12`, class: Corrupt, events: 12, kept: 12, torn: -1,
			defects: "DB-COLUMN corrupt: seq 12: row 12: time is 1152921504606846976, beyond the safe integers"},
		{name: "old: sources not JSON", base: "c-plain-turn", sql: `UPDATE events SET source_event_seqs='[1,' WHERE seq=3`, class: Corrupt, events: 13, kept: 3, torn: -1,
			defects: "DB-SOURCES corrupt: seq 3: row 3: source_event_seqs is not valid JSON at byte 3: expected value, got end of input"},
		{name: "old: tag as type", base: "c-plain-turn", sql: `UPDATE events SET type='text-chunks' WHERE seq=3`, class: Intact, events: 14, kept: 14, torn: -1},

		// The row of the session and the store.
		{name: "no session row", sql: `DELETE FROM sessions`, class: Corrupt, events: 66, kept: 0, torn: -1,
			defects: `DB-SESSION corrupt: the events of session "` + session + `" have no row in the table sessions: its header is lost`},
		{name: "version 7", sql: `UPDATE sessions SET version=7`, class: Unsupported, torn: -1,
			defects: "LOG-FORMAT unsupported: format version 7: this build reads generation 0"},
		{name: "old: version 1", base: "b-plain-turn", sql: `UPDATE sessions SET version=1`, class: Unsupported, torn: -1,
			defects: "LOG-FORMAT unsupported: format version 1: this build reads generation 0"},
		{name: "bad columns", sql: `UPDATE sessions SET created_at=-1, cwd='x/y', seed_length=-2, origin='robot', delegation_depth=-3, incarnation='z', revision=-4`,
			class: Corrupt, events: 66, kept: 0, torn: -1,
			defects: "DB-SESSION corrupt: created_at is -1, expected a non-negative integer\n" +
				"DB-SESSION corrupt: cwd is \"x/y\", expected an absolute path\n" +
				"DB-SESSION corrupt: seed_length is -2, expected a non-negative integer\n" +
				"DB-SESSION corrupt: origin is \"robot\", expected NULL or \"subagent\"\n" +
				"DB-SESSION corrupt: delegation_depth is -3, expected a non-negative integer\n" +
				"DB-SESSION corrupt: incarnation is \"z\", expected a UUID\n" +
				"DB-SESSION corrupt: revision is -4, expected a non-negative integer"},
		{name: "unsafe column", sql: `UPDATE sessions SET created_at=9007199254740992`, class: Corrupt, events: 66, kept: 0, torn: -1,
			defects: "DB-SESSION corrupt: created_at is 9007199254740992, beyond the safe integers"},
		{name: "empty id", sql: `UPDATE events SET session_id=''; UPDATE sessions SET id=''`, class: Corrupt, events: 66, kept: 0, torn: -1,
			defects: "DB-SESSION corrupt: the id is empty"},
		{name: "windows cwd", sql: `UPDATE sessions SET cwd='C:\work'`, class: Intact, events: 66, kept: 66, torn: -1},
		{name: "no state", sql: `DELETE FROM persistence_state`, class: Corrupt, events: 66, kept: 0, torn: -1,
			defects: "DB-STORE corrupt: persistence_state is empty, expected one row with the store_id"},
		{name: "bad store", sql: `UPDATE persistence_state SET store_id='9371f980-118a-982b-a2f5-35a57b2b8e71'`, class: Corrupt, events: 66, kept: 0, torn: -1,
			defects: `DB-STORE corrupt: store_id is "9371f980-118a-982b-a2f5-35a57b2b8e71", expected a UUID`},

		// Schemas.
		{name: "version 0", sql: `PRAGMA user_version=0`, class: Unsupported, torn: -1,
			defects: "DB-SCHEMA unsupported: user_version 0 together with application_id 0x44534850, which schemas 10 and later have"},
		{name: "old: version 0", base: "c-plain-turn", sql: `PRAGMA user_version=0`, class: Intact, events: 14, kept: 14, torn: -1},
		{name: "schema 18", sql: `PRAGMA user_version=18`, class: Unsupported, torn: -1,
			defects: "DB-SCHEMA unsupported: schema 18: this build reads schemas up to 17"},
		{name: "schema 16", sql: `PRAGMA user_version=16`, class: Unsupported, torn: -1,
			defects: "DB-SCHEMA unsupported: schema 16: no harness wrote it"},
		{name: "schema 11", sql: `PRAGMA user_version=11`, class: Unsupported, torn: -1,
			defects: "DB-SCHEMA unsupported: schema 11: only development builds wrote it"},
		{name: "schema 6", base: "c-plain-turn", sql: `PRAGMA user_version=6`, class: Unsupported, torn: -1,
			defects: "DB-SCHEMA unsupported: schema 6: only development builds wrote it"},
		{name: "search index", sql: `PRAGMA application_id=0x44534851`, class: Unsupported, torn: -1,
			defects: "DB-SCHEMA unsupported: application_id 0x44534851: a search index of the harness, not a log"},
		{name: "foreign id", sql: `PRAGMA application_id=1`, class: Unsupported, torn: -1,
			defects: "DB-SCHEMA unsupported: application_id 0x00000001: a database of another program, expected 0 or 0x44534850"},
		{name: "no id", sql: `PRAGMA application_id=0`, class: Unsupported, torn: -1,
			defects: "DB-SCHEMA unsupported: user_version 17 without the application_id 0x44534850"},
		{name: "foreign tables", base: "c-plain-turn", sql: `DROP TABLE events; DROP TABLE sessions; CREATE TABLE recipes(a)`, class: Unsupported, torn: -1,
			defects: "DB-SCHEMA unsupported: a database of another program: it has no tables sessions and events"},
		{name: "no tables", base: "c-plain-turn", sql: `DROP TABLE events; DROP TABLE sessions; PRAGMA user_version=0`, class: Unsupported, torn: -1,
			defects: "DB-SCHEMA unsupported: a database without tables: nothing was ever stored in it"},
		{name: "a view for a table", base: "c-plain-turn", sql: `ALTER TABLE events RENAME TO e; CREATE VIEW events AS SELECT * FROM e`, class: Unsupported, torn: -1,
			defects: "DB-SCHEMA unsupported: schema 5: events has no column session_id"},
		{name: "column missing", base: "c-plain-turn", sql: `ALTER TABLE events DROP COLUMN surface_op`, class: Unsupported, torn: -1,
			defects: "DB-SCHEMA unsupported: schema 5: events has no column surface_op"},
		{name: "column of a branch", base: "c-plain-turn", sql: `ALTER TABLE sessions ADD COLUMN revision INTEGER`, class: Unsupported, torn: -1,
			defects: "DB-SCHEMA unsupported: schema 5: columns of a development build: revision"},
		{name: "unknown column", base: "c-plain-turn", sql: `ALTER TABLE sessions ADD COLUMN colour TEXT`, class: Intact, events: 14, kept: 14, torn: -1},
		{name: "index in 17", sql: `CREATE INDEX quick ON events(type)`, class: Unsupported, events: 66, kept: 66, torn: -1,
			defects: `DB-SCHEMA unsupported: schema 17: it has the index "quick", which no harness made`},
		{name: "definition of 17", sql: `ALTER TABLE sessions ADD COLUMN colour TEXT`, class: Unsupported, events: 66, kept: 66, torn: -1,
			defects: `DB-SCHEMA unsupported: schema 17: the definition of sessions differs from the harness's own at ", colour TEXT) STRICT", expected ") STRICT"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			base := tt.base
			if base == "" {
				base = "multi-step-tools"
			}
			path := mutant(t, base, tt.sql)
			before := folder(t, path)
			logs, events, defects := dbLogs(t, path)
			if len(logs) != 1 {
				t.Fatalf("%d logs", len(logs))
			}
			l := logs[0]
			if diff := cmp.Diff(tt.defects, strings.TrimSuffix(defects, "\n")); diff != "" {
				t.Error(diff)
			}
			if l.Class() != tt.class || len(events[0]) != tt.events || l.Kept() != tt.kept {
				t.Errorf("%s, %d events, kept %d", l.Class(), len(events[0]), l.Kept())
			}
			torn, ok := l.TornFrom()
			if !ok {
				torn = -1
			}
			if torn != tt.torn {
				t.Errorf("torn from %d, want %d", torn, tt.torn)
			}
			if diff := cmp.Diff(before, folder(t, path)); diff != "" {
				t.Error("the folder changed")
			}
		})
	}
}

// Every schema in the form its releases created it, with all columns in use.
func TestSchemas(t *testing.T) {
	const events = `session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE, seq INTEGER NOT NULL, type TEXT NOT NULL, time INTEGER NOT NULL, data TEXT NOT NULL`
	const key = `, PRIMARY KEY (session_id, seq)) STRICT`
	const base = `id TEXT PRIMARY KEY, version INTEGER NOT NULL, created_at INTEGER NOT NULL, cwd TEXT, parent_session TEXT`
	const surface = `, source_event_seqs TEXT, surface_op TEXT`
	const life = `, incarnation TEXT NOT NULL, revision INTEGER NOT NULL`
	const state = `CREATE TABLE persistence_state (singleton INTEGER PRIMARY KEY CHECK (singleton = 1), store_id TEXT NOT NULL) STRICT;
		INSERT INTO persistence_state VALUES (1, '9371f980-118a-482a-b2f5-35a57b2b8e71');`
	const uuid = `'eb1d6cab-db61-4e15-991f-f6dcbb8e3040', 7`
	plain := [][]byte{
		[]byte(`{"type":"turn/start","seq":0,"time":11,"data":{"turn":1}}`),
		[]byte(`{"type":"user/message","seq":1,"time":12,"data":{"content":[]}}`),
		[]byte(`{"type":"turn/end","seq":2,"time":-13,"data":null}`),
	}
	marked := slices.Clone(plain)
	marked[1] = []byte(`{"type":"user/message","seq":1,"time":12,"data":{"content":[]},"sourceEventSeqs":[0],"surfaceOp":{"op":"replace","start":3,"end":9}}`)
	ignorable := slices.Clone(marked)
	ignorable[2] = []byte(`{"type":"turn/end","seq":2,"time":-13,"data":null,"ignorable":true}`)
	for _, tt := range []struct {
		schema   int
		sessions string
		row      string
		extra    string // of events
		header   string
		want     [][]byte
		id       bool
	}{
		{1, base + `, updated_at INTEGER NOT NULL, title TEXT, first_prompt TEXT`, `'s', 1, 5, '/srv', NULL, 77, NULL, 'tidy the loft'`, "",
			`{"type":"session","version":1,"id":"s","createdAt":5,"cwd":"/srv"}`, plain, false},
		{2, base, `'s', 1, 5, '/srv', 'p'`, "", `{"type":"session","version":1,"id":"s","createdAt":5,"cwd":"/srv","parentSession":"p"}`, plain, false},
		{3, base + `, seed_length INTEGER`, `'s', 0, 5, NULL, 'p', 0`, "", `{"type":"session","version":0,"id":"s","createdAt":5,"parentSession":"p","seedLength":0}`, plain, false},
		{4, base + `, seed_length INTEGER`, `'s', 0, 5, NULL, 'p', 3`, surface, `{"type":"session","version":0,"id":"s","createdAt":5,"parentSession":"p","seedLength":3}`, marked, false},
		{5, base + `, seed_length INTEGER, delegation_depth INTEGER`, `'s', 0, 5, NULL, 'p', 3, 2`, surface,
			`{"type":"session","version":0,"id":"s","createdAt":5,"parentSession":"p","seedLength":3,"delegationDepth":2}`, marked, false},
		{8, base + `, seed_length INTEGER, delegation_depth INTEGER` + life, `'s', 0, 5, NULL, NULL, NULL, NULL, ` + uuid, surface,
			`{"type":"session","version":0,"id":"s","createdAt":5}`, marked, false},
		{10, base + `, seed_length INTEGER, delegation_depth INTEGER` + life, `'s', 0, 5, NULL, NULL, NULL, 0, ` + uuid, surface,
			`{"type":"session","version":0,"id":"s","createdAt":5,"delegationDepth":0}`, marked, true},
		{12, base + `, seed_length INTEGER, delegation_depth INTEGER` + life, `'s', 0, 5, NULL, NULL, NULL, 1, ` + uuid, surface,
			`{"type":"session","version":0,"id":"s","createdAt":5,"delegationDepth":1}`, marked, true},
		{13, base + `, seed_length INTEGER, origin TEXT, delegation_depth INTEGER` + life, `'s', 0, 5, NULL, NULL, NULL, 'subagent', 1, ` + uuid, surface,
			`{"type":"session","version":0,"id":"s","createdAt":5,"origin":"subagent","delegationDepth":1}`, marked, true},
		{14, base + `, seed_length INTEGER, origin TEXT, delegation_depth INTEGER, agent_preset TEXT` + life, `'s', 0, 5, NULL, NULL, NULL, 'subagent', 1, 'minimal', ` + uuid, surface,
			`{"type":"session","version":0,"id":"s","createdAt":5,"origin":"subagent","delegationDepth":1,"agentPreset":"minimal"}`, marked, true},
		{15, base + `, seed_length INTEGER, origin TEXT, delegation_depth INTEGER, agent_preset TEXT` + life, `'s', 0, 5, NULL, NULL, NULL, 'subagent', NULL, 'minimal', ` + uuid, surface + `, ignorable INTEGER`,
			`{"type":"session","version":0,"id":"s","createdAt":5,"origin":"subagent","agentPreset":"minimal"}`, ignorable, true},
	} {
		for _, mode := range []string{"delete", "wal"} {
			t.Run(fmt.Sprint(tt.schema, " ", mode), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "live.db")
				c, err := sqlite3.OpenFlags(path, sqlite3.OPEN_READWRITE|sqlite3.OPEN_CREATE)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				sql := `PRAGMA journal_mode=` + mode + `; PRAGMA wal_autocheckpoint=0; PRAGMA user_version=` + fmt.Sprint(tt.schema) + `;`
				if tt.id {
					sql += `PRAGMA application_id=0x44534850;`
				}
				sql += `CREATE TABLE sessions (` + tt.sessions + `) STRICT; CREATE TABLE events (` + events + tt.extra + key + `;`
				if tt.schema >= 8 {
					sql += state
				}
				sql += `INSERT INTO sessions VALUES (` + tt.row + `);
					INSERT INTO events(session_id, seq, type, time, data) VALUES ('s', 0, 'turn/start', 11, '{"turn":1}'), ('s', 1, 'user/message', 12, '{"content":[]}'), ('s', 2, 'turn/end', -13, 'null');`
				if tt.extra != "" {
					sql += `UPDATE events SET source_event_seqs='[0]', surface_op='{"op":"replace","start":3,"end":9}' WHERE seq=1;`
				}
				if tt.schema == 15 {
					sql += `UPDATE events SET ignorable=1 WHERE seq=2;`
				}
				if err := c.Exec(sql); err != nil {
					t.Fatal(err)
				}
				// As a killed writer leaves it: in WAL mode everything may be in the WAL,
				// the number of the schema included.
				copied := filepath.Join(t.TempDir(), "x.db")
				notes := 0
				for _, suffix := range []string{"", "-wal"} {
					if b, err := os.ReadFile(path + suffix); err == nil {
						os.WriteFile(copied+suffix, b, 0o644)
						if suffix == "-wal" {
							notes++
						}
					}
				}
				if mode == "wal" && bytes.Contains(readFile(t, copied), []byte("turn/start")) {
					t.Fatal("the database is not in its WAL alone")
				}
				before := folder(t, copied)

				logs, got, defects := dbLogs(t, copied)
				if len(logs) != 1 || defects != "" {
					t.Fatalf("%d logs\n%s", len(logs), defects)
				}
				l := logs[0]
				if diff, exact := diffEvents(tt.want, got[0]); diff != "" || exact != 3 {
					t.Error(diff)
				}
				if string(l.Header.Raw) != tt.header {
					t.Errorf("header %s\nwant   %s", l.Header.Raw, tt.header)
				}
				db := l.Database
				if db.Schema != tt.schema || db.UserVersion != tt.schema || l.Class() != Intact || len(db.Notes) != notes {
					t.Errorf("%s %+v", l.Class(), db)
				}
				if tt.schema >= 8 && (db.StoreID != "9371f980-118a-482a-b2f5-35a57b2b8e71" || db.Incarnation != "eb1d6cab-db61-4e15-991f-f6dcbb8e3040" || db.Revision != 7) {
					t.Errorf("%+v", db)
				}
				if s := db.Summary; (s != nil) != (tt.schema == 1) || s != nil && (s.UpdatedAt != 77 || s.Title != nil || *s.FirstPrompt != "tidy the loft") {
					t.Errorf("summary %+v", s)
				}
				if june := l.Header.Fault&HeaderJune != 0; june != (tt.schema <= 2) {
					t.Errorf("fault %b", l.Header.Fault)
				}
				if noDepth := l.Header.Fault&HeaderNoDepth != 0; noDepth != (tt.schema < 5) {
					t.Errorf("fault %b", l.Header.Fault)
				}
				if diff := cmp.Diff(before, folder(t, copied)); diff != "" {
					t.Error("the folder changed")
				}
			})
		}
	}
}

// A page of the table or of its index is damaged: the rows elsewhere are read.
func TestDatabasePages(t *testing.T) {
	for _, tt := range []struct {
		name  string
		root  string // of which the second leaf is overwritten
		index bool
	}{
		{name: "table", root: "events"},
		{name: "index", root: "sqlite_autoindex_events_1", index: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.db")
			dbExec(t, path, `PRAGMA page_size=512; PRAGMA user_version=2;
				CREATE TABLE sessions (id TEXT PRIMARY KEY, version INTEGER NOT NULL, created_at INTEGER NOT NULL, cwd TEXT, parent_session TEXT) STRICT;
				CREATE TABLE events (session_id TEXT NOT NULL, seq INTEGER NOT NULL, type TEXT NOT NULL, time INTEGER NOT NULL, data TEXT NOT NULL, PRIMARY KEY (session_id, seq)) STRICT;
				INSERT INTO sessions VALUES ('s', 0, 1, NULL, NULL);
				WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<199) INSERT INTO events SELECT 's', i, 'step/start', i, '{"turn":1}' FROM n`)
			b := readFile(t, path)
			c, err := sqlite3.OpenFlags(path, sqlite3.OPEN_READONLY)
			if err != nil {
				t.Fatal(err)
			}
			st, _, err := c.Prepare(`SELECT rootpage FROM sqlite_schema WHERE name='` + tt.root + `'`)
			if err != nil || !st.Step() {
				t.Fatal(err)
			}
			root := st.ColumnInt(0)
			st.Close()
			c.Close()
			// The root is an interior page: its second cell points to the second leaf.
			page := b[(root-1)*512 : root*512]
			if page[0] != 5 && page[0] != 2 {
				t.Fatalf("page type %d", page[0])
			}
			cell := int(page[14])<<8 | int(page[15])
			leaf := int(page[cell+2])<<8 | int(page[cell+3])
			copy(b[(leaf-1)*512:leaf*512], bytes.Repeat([]byte{0xee}, 512))
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}

			logs, events, defects := dbLogs(t, path)
			l := logs[0]
			if l.Class() != Corrupt || !strings.Contains(defects, "DB-PAGE corrupt") || !strings.Contains(defects, "database disk image is malformed") {
				t.Errorf("%s\n%s", l.Class(), defects)
			}
			n := len(events[0])
			if tt.index {
				// The table is whole.
				if n != 200 || strings.Count(defects, "\n") != 1 {
					t.Errorf("%d events\n%s", n, defects)
				}
			} else if n < 150 || n >= 200 || strings.Count(defects, "\n") != 1 {
				t.Errorf("%d events\n%s", n, defects)
			}
			for i, e := range events[0] {
				if seq, _ := jsjson.SafeInt(jsjson.Get(e, "seq")); i > 0 && seq == 0 {
					t.Errorf("event %d: %s", i, e)
				}
			}
		})
	}
}

// The database is written while it is read.
func TestDatabaseChanges(t *testing.T) {
	path := mutant(t, "multi-step-tools")
	l := openFile(t, path)
	var last *Defect
	n := 0
	for _, d := range l.Events() {
		if d != nil {
			last = d
			continue
		}
		if n++; n == 10 {
			f, err := os.OpenFile(path+"-wal", os.O_CREATE|os.O_WRONLY, 0o644)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
	}
	if last == nil || last.Class != Unreadable || l.Class() != Unreadable ||
		last.Message != "reading failed: "+path+"-wal changed while it was read: copy the database and what lies beside it, then read the copy" {
		t.Errorf("%s %v", l.Class(), last)
	}
}

func TestWALDefects(t *testing.T) {
	path := filepath.Join(t.TempDir(), "live.db")
	if err := os.WriteFile(path, readFile(t, "testdata/sqlite/multi-step-tools.sqlite"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := sqlite3.OpenFlags(path, sqlite3.OPEN_READWRITE)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, sql := range []string{`PRAGMA journal_mode=wal; PRAGMA wal_autocheckpoint=0`, `DELETE FROM events WHERE seq>=60`, `DELETE FROM events WHERE seq>=50`, `DELETE FROM events WHERE seq>=40`} {
		if err := c.Exec(sql); err != nil {
			t.Fatal(err)
		}
	}
	file, wal := readFile(t, path), readFile(t, path+"-wal")
	step := 4096 + 24
	frames := (len(wal) - 32) / step
	for _, tt := range []struct {
		name    string
		edit    func(b []byte) []byte
		class   Class
		events  int
		defects string
		notes   []string
	}{
		{"whole", func(b []byte) []byte { return b }, Intact, 45, "", []string{fmt.Sprintf("read from the WAL beside it: %d pages of 3 transactions", walPages(wal, frames, step))}},
		{"header damaged", func(b []byte) []byte { b[5] ^= 1; return b }, Torn, 66,
			"DB-WAL torn: the WAL beside it is of no use: wrong checksum of the header", nil},
		{"header cut", func(b []byte) []byte { return b[:20] }, Intact, 66, "",
			[]string{"the WAL beside it holds nothing: ends after 20 bytes, inside its header of 32"}},
		{"page damaged", func(b []byte) []byte { b[32+24+100] ^= 1; return b }, Torn, 66,
			"DB-WAL torn: the WAL beside it is damaged at byte 32 (checksum): out of reach behind it: 3 transactions", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.db")
			os.WriteFile(path, file, 0o644)
			os.WriteFile(path+"-wal", tt.edit(bytes.Clone(wal)), 0o644)
			logs, events, defects := dbLogs(t, path)
			l := logs[0]
			if l.Class() != tt.class || len(events[0]) != tt.events || l.Kept() != int64(tt.events) {
				t.Errorf("%s, %d events, kept %d", l.Class(), len(events[0]), l.Kept())
			}
			if diff := cmp.Diff(tt.defects, strings.TrimSuffix(defects, "\n")); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.notes, l.Database.Notes); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// walPages counts the distinct pages of a WAL.
func walPages(wal []byte, frames, step int) int {
	seen := map[string]bool{}
	for i := range frames {
		seen[string(wal[32+i*step:][:4])] = true
	}
	return len(seen)
}

// Files that begin like a database.
func TestDatabaseFiles(t *testing.T) {
	whole := readFile(t, "testdata/sqlite/multi-step-tools.sqlite")
	bad := bytes.Clone(whole)
	bad[16], bad[17] = 1, 1
	root := bytes.Clone(whole)
	clear(root[100:200])
	for _, tt := range []struct {
		name string
		data []byte
		want string
	}{
		{"magic alone", whole[:16], "DB-OPEN corrupt: byte 16: file ends after 16 bytes, inside the 100 bytes of an SQLite header"},
		{"page size", bad, "DB-OPEN corrupt: byte 16: page size 257 is not a power of two from 512 to 65536"},
		{"no schema", root, "DB-PAGE corrupt: its list of tables cannot be read: database disk image is malformed"},
		{"one page", whole[:4096], "DB-OPEN corrupt: the file is cut: 8 of its 9 pages of 4096 bytes are missing; its table persistence_state cannot be read: database disk image is malformed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.db")
			if err := os.WriteFile(path, tt.data, 0o644); err != nil {
				t.Fatal(err)
			}
			logs, _, defects := dbLogs(t, path)
			if len(logs) != 1 || logs[0].Class() != Corrupt || strings.TrimSuffix(defects, "\n") != tt.want {
				t.Errorf("%d logs\ngot  %swant %s", len(logs), defects, tt.want)
			}
		})
	}
}

// A BLOB that claims or holds more than any event is passed over in little memory.
func TestDecompressionBomb(t *testing.T) {
	var z blobReader
	bomb := bombFrame(300 << 20)
	claim := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 1, 0, 0, 0}, bomb[6:]...) // 4 GiB
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := z.read(bomb, maxData); !errors.Is(err, errTooLong) {
		t.Errorf("got %v", err)
	}
	if _, err := z.read(claim, maxData); !errors.Is(err, errTooLong) {
		t.Errorf("got %v", err)
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 16<<20 {
		t.Errorf("%d bytes allocated", after.TotalAlloc-before.TotalAlloc)
	}
	path := mutant(t, "multi-step-tools", `UPDATE events SET data=x'`+hex.EncodeToString(bomb)+`' WHERE seq=5`)
	logs, events, defects := dbLogs(t, path)
	if logs[0].Class() != Unsupported || len(events[0]) != 65 || logs[0].Kept() != 5 ||
		defects != "LINE-LONG unsupported: seq 5: row 5: data holds a value, this build reads at most 134217728 bytes\n" {
		t.Errorf("%s %d kept %d\n%s", logs[0].Class(), len(events[0]), logs[0].Kept(), defects)
	}
}

// bombFrame is a frame of n spaces in blocks of one repeated byte.
func bombFrame(n int) []byte {
	b := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58}
	for n > 0 {
		size := min(n, 128<<10)
		n -= size
		h := uint32(size)<<3 | 1<<1
		if n == 0 {
			h |= 1
		}
		b = append(b, byte(h), byte(h>>8), byte(h>>16), ' ')
	}
	return b
}

// zstdHex is a frame of text as one raw block, or repeated ones for spaces.
func zstdHex(text string) string {
	if len(text) > 1000 && strings.Trim(text, " ") == "" {
		return hex.EncodeToString(bombFrame(len(text)))
	}
	h := uint32(len(text))<<3 | 1
	b := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58, byte(h), byte(h >> 8), byte(h >> 16)}
	return hex.EncodeToString(append(b, text...))
}

type dbVectors struct {
	Sources []struct {
		Seqs []int64
		Hex  string
	} `json:"sourceSeqsV17"`
	Decode []struct {
		Hex string
		OK  []int64
		Err string
	} `json:"sourceSeqsV17Decode"`
	Rows []struct {
		Rows []struct {
			Seq       int64
			Type      string
			Data      string
			Ignorable *int
		}
		OK *struct {
			Seqs     []int64
			TornFrom *int64
		}
		Err string
	} `json:"scanRowsV17"`
	Data []struct {
		PlainBytes int
		Text       int
		BlobHex    string
	} `json:"sqliteDataColumn"`
}

func loadDBVectors(t *testing.T) (v dbVectors) {
	t.Helper()
	if err := json.Unmarshal(readFile(t, "testdata/sqlite/vectors.json"), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVectorsSources(t *testing.T) {
	v := loadDBVectors(t)
	if len(v.Sources) != 9 || len(v.Decode) != 14 {
		t.Fatalf("%d and %d vectors", len(v.Sources), len(v.Decode))
	}
	for _, c := range v.Sources {
		got, ok := AppendSourceSeqs(nil, c.Seqs)
		if !ok || hex.EncodeToString(got) != c.Hex {
			t.Errorf("%v: got %x, want %s", c.Seqs, got, c.Hex)
		}
		want, _ := json.Marshal(c.Seqs)
		back, err := appendSources(nil, got)
		if err != nil || string(back) != string(want) {
			t.Errorf("%v: back %s, %v", c.Seqs, back, err)
		}
	}
	for _, c := range v.Decode {
		b, err := hex.DecodeString(c.Hex)
		if err != nil {
			t.Fatal(err)
		}
		got, err := appendSources(nil, b)
		if c.Err != "" {
			if err == nil || err.Error() != c.Err {
				t.Errorf("%s: got %s %v, want %s", c.Hex, got, err, c.Err)
			}
			continue
		}
		want, _ := json.Marshal(c.OK)
		if err != nil || string(got) != string(want) {
			t.Errorf("%s: got %s %v, want %s", c.Hex, got, err, want)
		}
	}
	for _, seqs := range [][]int64{{-1}, {maxSafe + 1}, {1, -1}} {
		if _, ok := AppendSourceSeqs(nil, seqs); ok {
			t.Errorf("%v accepted", seqs)
		}
	}
}

func TestVectorsRows(t *testing.T) {
	v := loadDBVectors(t)
	if len(v.Rows) != 9 {
		t.Fatalf("%d vectors, want 9", len(v.Rows))
	}
	for i, c := range v.Rows {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			var sql strings.Builder
			sql.WriteString(`DELETE FROM events;`)
			for _, r := range c.Rows {
				ign := "NULL"
				if r.Ignorable != nil {
					ign = fmt.Sprint(*r.Ignorable)
				}
				fmt.Fprintf(&sql, `INSERT INTO events VALUES ('oracle-multi-step-tools', %d, '%s', 0, '%s', NULL, NULL, %s);`, r.Seq, r.Type, r.Data, ign)
			}
			logs, events, defects := dbLogs(t, mutant(t, "multi-step-tools", sql.String()))
			l := logs[0]
			if c.Err != "" {
				// The harness names the row; so does the first defect.
				row := c.Err[strings.LastIndexByte(c.Err, ' ')+1:]
				if l.Class() != Corrupt || !strings.Contains(defects, ": row "+row+": ") {
					t.Errorf("%s, want %s\n%s", l.Class(), c.Err, defects)
				}
				return
			}
			var seqs []int64
			for _, e := range events[0][:l.Kept()] {
				n, _ := jsjson.SafeInt(jsjson.Get(e, "seq"))
				seqs = append(seqs, n)
			}
			if !slices.Equal(seqs, c.OK.Seqs) {
				t.Errorf("seqs %v, want %v", seqs, c.OK.Seqs)
			}
			torn, ok := l.TornFrom()
			if want := c.OK.TornFrom; ok != (want != nil) || ok && torn != *want {
				t.Errorf("torn from %d %v", torn, ok)
			}
		})
	}
}

func TestCorpusDatabases(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the corpus is not here")
	}
	var files []string
	for _, pattern := range []string{"head/*/session*.sqlite", "head/*/*/session.sqlite", "head/*/repaired-file.sqlite", "head/sqlite-wal-live/live.sqlite", "july/*/session.sqlite", "big/*/session.sqlite"} {
		m, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, m...)
	}
	logs, compared, total, exact, damaged := 0, 0, 0, 0, 0
	for _, path := range files {
		rel := strings.TrimPrefix(path, dir+string(filepath.Separator))
		if strings.Contains(rel, "invalid-") {
			damaged++
			continue // TestCorpusDatabaseVerdicts
		}
		before := folder(t, path)
		// The plain logs beside it, by the id in their header.
		plain := map[string]string{}
		for _, pattern := range []string{"session*.jsonl", "repaired-file.jsonl", "../session*.jsonl"} {
			m, _ := filepath.Glob(filepath.Join(filepath.Dir(path), pattern))
			for _, p := range m {
				if strings.HasSuffix(p, ".packed.jsonl") {
					continue
				}
				h, _ := logLines(t, p)
				id, _ := jsjson.Str(jsjson.Get(h, "id"))
				if _, ok := plain[id]; !ok {
					plain[id] = p
				}
			}
		}
		found, events, defects := dbLogs(t, path)
		if defects != "" {
			t.Errorf("%s: %s", rel, defects)
		}
		for i, l := range found {
			logs++
			if l.Class() != Intact || l.Kept() != int64(len(events[i])) {
				t.Errorf("%s %s: %s, kept %d of %d", rel, l.Session, l.Class(), l.Kept(), len(events[i]))
			}
			var want [][]byte
			var header []byte
			if strings.HasPrefix(filepath.Base(path), "repaired-file") {
				want = bytes.Split(bytes.TrimSuffix(readFile(t, filepath.Join(filepath.Dir(path), "repaired.jsonl")), []byte("\n")), []byte("\n"))
				if len(want) == 1 && len(want[0]) == 0 {
					want = nil
				}
			} else {
				p, ok := plain[l.Session]
				if !ok {
					// The stores of july's fork children hold the parent too, whose log lies in its
					// own folder.
					p = filepath.Join(filepath.Dir(filepath.Dir(path)), strings.Replace(filepath.Base(filepath.Dir(path)), "fork-child", "fork-parent", 1), "session.jsonl")
				}
				header, want = logLines(t, p)
			}
			if strings.Contains(rel, "/crashed/") || strings.Contains(rel, "/before-resume/") {
				// An earlier state of the same log.
				if len(events[i]) > len(want) {
					t.Errorf("%s: %d events, the log has %d", rel, len(events[i]), len(want))
				}
				want = want[:min(len(want), len(events[i]))]
			}
			diff, n := diffEvents(want, events[i])
			if diff != "" {
				t.Errorf("%s %s: %s", rel, l.Session, diff)
			}
			compared, exact, total = compared+1, exact+n, total+len(want)
			if header != nil {
				h := bytes.Replace(header, []byte(`,"delegationDepth":0`), nil, 1)
				raw := bytes.Replace(l.Header.Raw, []byte(`,"delegationDepth":0`), nil, 1)
				if diff := cmp.Diff(string(h), string(raw)); diff != "" {
					t.Errorf("%s %s: header %s", rel, l.Session, diff)
				}
			}
		}
		if diff := cmp.Diff(before, folder(t, path)); diff != "" {
			t.Errorf("%s: the folder changed", rel)
		}
	}
	t.Logf("%d databases, %d logs, %d compared: %d events, %d byte for byte; %d mutated ones elsewhere", len(files)-damaged, logs, compared, total, exact, damaged)
	if len(files) < 150 || compared < 150 || total < 10000 {
		t.Error("too few")
	}
}

// What the harness said of damaged databases.
func TestCorpusDatabaseVerdicts(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the corpus is not here")
	}
	var files []string
	for _, pattern := range []string{"head/invalid-*/session.sqlite", "head/crash-sqlite-*/damaged.sqlite", "july/*-invalid-*/session.sqlite"} {
		m, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, m...)
	}
	// What is unsupported; everything else that is refused is corrupt.
	unsupported := []string{"invalid-sqlite-session-version-1", "invalid-sqlite-user-version-0", "41-sqlite-older-schema", "47-sqlite-session-version"}
	// Accepted here: the containers are sound, what is wrong is left to rules of the events.
	events := []string{"invalid-sqlite-varint-max", "48-sqlite-surface-op-null"}
	// The harness accepts what is not quite whole.
	torn := []string{"49-sqlite-tail-bad-json", "crash-sqlite-gap-tail"}
	has := func(list []string, rel string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(rel, s) })
	}
	count := map[Class]int{}
	for _, path := range files {
		rel, _ := filepath.Rel(dir, path)
		var v struct {
			PreservedEvents *int64
			LoadError       *string
			RepairedEvents  *int64
			Kind            string
			Load            struct {
				OK     *bool
				Events int64
			}
			Stages map[string]string
		}
		if err := json.Unmarshal(readFile(t, filepath.Join(filepath.Dir(path), "verdict.json")), &v); err != nil {
			t.Fatal(err)
		}
		refused := v.LoadError != nil
		kept := int64(-1)
		switch {
		case v.Load.OK != nil:
			refused = !*v.Load.OK
			if *v.Load.OK {
				kept = v.Load.Events
			}
		case v.Stages != nil:
			refused = v.Stages["load"] == "reject"
			fmt.Sscanf(v.Stages["load"], "ok (%d events)", &kept)
		case v.PreservedEvents != nil:
			kept = *v.PreservedEvents
		}
		logs, _, defects := dbLogs(t, path)
		if len(logs) != 1 {
			t.Fatalf("%s: %d logs", rel, len(logs))
		}
		l := logs[0]
		count[l.Class()]++
		want := Intact
		switch {
		case has(unsupported, rel):
			want = Unsupported
		case has(events, rel):
			// Intact.
		case has(torn, rel):
			want = Torn
		case refused:
			want = Corrupt
		}
		if l.Class() != want || (want == Intact) != (defects == "") {
			t.Errorf("%s: %s, want %s\n%s", rel, l.Class(), want, defects)
		}
		if refused && l.Class() == Intact && !has(events, rel) {
			t.Errorf("%s: intact, the harness refuses it", rel)
		}
		if kept >= 0 && l.Kept() != kept {
			t.Errorf("%s: kept %d, want %d", rel, l.Kept(), kept)
		}
	}
	t.Logf("%d databases: %v", len(files), count)
	if len(files) != 57 {
		t.Errorf("%d files", len(files))
	}
}

// Every number of rows cut from the end of a database.
func TestCorpusDatabaseCuts(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the corpus is not here")
	}
	base := filepath.Join(t.TempDir(), "x.sqlite")
	if err := os.WriteFile(base, readFile(t, filepath.Join(dir, "head/parallel-tools/session.sqlite")), 0o644); err != nil {
		t.Fatal(err)
	}
	n := 0
	_, all, _ := dbLogs(t, base)
	for line := range bytes.Lines(readFile(t, filepath.Join(dir, "head/crash-sweep-sqlite/cases.jsonl"))) {
		var c struct {
			DropLast  int
			OK        bool
			Preserved int64
		}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		if c.DropLast > 0 {
			dbExec(t, base, `DELETE FROM events WHERE seq=(SELECT max(seq) FROM events)`)
		}
		logs, events, defects := dbLogs(t, base)
		if !c.OK || defects != "" || logs[0].Class() != Intact || logs[0].Kept() != c.Preserved {
			t.Errorf("%d dropped: %s, kept %d, want %d\n%s", c.DropLast, logs[0].Class(), logs[0].Kept(), c.Preserved, defects)
		}
		if diff, exact := diffEvents(all[0][:c.Preserved], events[0]); diff != "" || int64(exact) != c.Preserved {
			t.Errorf("%d dropped: %s", c.DropLast, diff)
		}
		n++
	}
	t.Logf("%d cuts", n)
	if n != 77 {
		t.Errorf("%d cuts, want 77", n)
	}
}

func BenchmarkDatabase(b *testing.B) {
	var events [][]byte
	text := strings.Repeat("some words of a message, ", 20)
	for i := range 20_000 {
		e := fmt.Appendf(nil, `{"type":"user/message","seq":%d,"time":%d,"data":{"content":[{"type":"text","text":"%s"}],"source":{"kind":"user"}},"sourceEventSeqs":[0],"surfaceOp":"append"}`, i, i, text)
		events = append(events, e)
	}
	path := writeDatabase(b, &Header{ID: "s"}, events...)
	l, err := OpenFile(path, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(events) * len(events[0])))
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for range l.Events() {
			n++
		}
		if n != len(events) {
			b.Fatal(n)
		}
	}
}

// Seqs that follow one another are written one from the other.
func TestSourcesInRows(t *testing.T) {
	for _, seqs := range [][]int64{
		{8, 9, 10, 11}, {98, 99, 100, 101, 5, 6}, {999999, 1000000}, {3, 2, 1}, {0, 1}, {9}, {7, 9, 10, 12},
		{maxSafe - 1, maxSafe},
	} {
		stored, ok := AppendSourceSeqs(nil, seqs)
		if !ok {
			t.Fatalf("%v is not written", seqs)
		}
		want, _ := json.Marshal(seqs)
		if got, err := appendSources([]byte("x9"), stored); err != nil || string(got) != "x9"+string(want) {
			t.Errorf("%v: got %s, %v", seqs, got, err)
		}
	}
}
