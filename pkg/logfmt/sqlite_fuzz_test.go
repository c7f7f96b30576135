package logfmt

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/sqlitedb"
)

// What decodes is a list of seqs, and there is one way to write it.
func FuzzSourceSeqs(f *testing.F) {
	for _, s := range []string{"", "\x05\x02\x02\x0a\x11", "\x80", "\x80\x00", "\xff\xff\xff\xff\xff\xff\xff\x0f", "\x00\xfe\xff\xff\xff\xff\xff\xff\x1f",
		"\x80\x80\x80\x80\x80\x80\x80\x80\x80", "\x00\x01", "\xff\xff\xff\xff\xff\xff\xff\x0f\xfd\xff\xff\xff\xff\xff\xff\x1f"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := appendSources(nil, b)
		if err != nil {
			return
		}
		if fault := checkSources(got); fault != 0 || !jsjson.Canonical(got) {
			t.Fatalf("%x: %s", b, got)
		}
		e := Event{Sources: got}
		seqs, ok := e.SourceSeqs(nil)
		if !ok {
			t.Fatalf("%x: %s", b, got)
		}
		if back, ok := AppendSourceSeqs(nil, seqs); !ok || !bytes.Equal(back, b) {
			t.Fatalf("%x: %s goes back to %x", b, got, back)
		}
	})
}

// readAnything reads whatever a database holds.
func readAnything(t *testing.T, file []byte) {
	db, err := sqlitedb.OpenReader("fuzz", bytes.NewReader(file), int64(len(file)), nil, 0)
	if err != nil {
		return
	}
	d, err := identify(db, "fuzz")
	if err != nil {
		return
	}
	defer d.close()
	keys, l, err := d.choose(Options{})
	if l != nil || err != nil {
		return
	}
	for _, k := range keys[:min(len(keys), 20)] {
		l := d.log(k)
		n := 0
		for e, defect := range l.Events() {
			if n++; n > 5000 {
				break
			}
			if defect != nil {
				_ = defect.Error()
				continue
			}
			if !jsjson.Canonical(e.JSON) {
				t.Fatalf("not canonical: %s", e.JSON)
			}
			if e.Data == nil || !bytes.Contains(e.JSON, e.Data) {
				t.Fatalf("data %s of %s", e.Data, e.JSON)
			}
		}
		if (l.Class() == Intact) != (len(l.Defects()) == 0) {
			t.Fatalf("%s with %d defects", l.Class(), len(l.Defects()))
		}
		l.Close()
	}
}

// smallDatabase is a database of a few pages of 512 bytes.
func smallDatabase(f *testing.F, schema int) []byte {
	f.Helper()
	path := filepath.Join(f.TempDir(), "x.db")
	switch schema {
	case 17:
		w, err := CreateDatabase(path)
		if err != nil {
			f.Fatal(err)
		}
		w.NewID = func() string { return "00000000-0000-4000-8000-000000000000" }
		if err := w.Begin(&Header{ID: "s"}); err != nil {
			f.Fatal(err)
		}
		for i := range 4 {
			w.AddJSON(chunk(i, "x"))
		}
		w.AddJSON([]byte(`{"type":"turn/end","seq":4,"time":1,"data":{},"sourceEventSeqs":[1,0],"surfaceOp":"append"}`))
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		dbExec(f, path, "PRAGMA page_size=512; VACUUM")
	default:
		dbExec(f, path, `PRAGMA page_size=512; PRAGMA user_version=4;
			CREATE TABLE sessions (id TEXT PRIMARY KEY, version INTEGER NOT NULL, created_at INTEGER NOT NULL, cwd TEXT, parent_session TEXT, seed_length INTEGER) STRICT;
			CREATE TABLE events (session_id TEXT NOT NULL, seq INTEGER NOT NULL, type TEXT NOT NULL, time INTEGER NOT NULL, data TEXT NOT NULL, source_event_seqs TEXT, surface_op TEXT, PRIMARY KEY (session_id, seq)) STRICT;
			INSERT INTO sessions VALUES ('s', 0, 1, NULL, NULL, NULL), ('t', 0, 1, '/x', 's', 1);
			INSERT INTO events VALUES ('s', 0, 'turn/start', 1, '{}', NULL, NULL), ('s', 1, 'turn/end', 1, '[1,2]', '[0]', '"append"'), ('t', 0, 'x', 1, '1', NULL, NULL)`)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	return b
}

// Bytes of a database changed in a few places: the fuzzer gives a list of places
// and values.
func FuzzDatabase(f *testing.F) {
	bases := [][]byte{smallDatabase(f, 17), smallDatabase(f, 4)}
	f.Add(false, []byte{0, 18, 2, 0, 60, 0})
	f.Add(true, []byte{2, 1, 0, 4, 0, 9})
	f.Add(true, []byte{1, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, old bool, edits []byte) {
		b := bytes.Clone(bases[0])
		if old {
			b = bytes.Clone(bases[1])
		}
		for ; len(edits) >= 3; edits = edits[3:] {
			b[(int(edits[0])<<8|int(edits[1]))%len(b)] = edits[2]
		}
		readAnything(t, b)
	})
}

// Columns with anything in them, in a database that is otherwise sound.
func FuzzRows(f *testing.F) {
	base := filepath.Join(f.TempDir(), "x.db")
	if err := os.WriteFile(base, smallDatabase(f, 17), 0o600); err != nil {
		f.Fatal(err)
	}
	c, err := sqlite3.OpenFlags(base, sqlite3.OPEN_READWRITE)
	if err != nil {
		f.Fatal(err)
	}
	defer c.Close()
	if err := c.Exec("PRAGMA synchronous=off; PRAGMA journal_mode=memory; PRAGMA ignore_check_constraints=on"); err != nil {
		f.Fatal(err)
	}
	st, _, err := c.Prepare(`UPDATE events SET type = ?, time = ?, data = ?, source_event_seqs = ?, surface_op = ?, ignorable = ? WHERE seq = 0`)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("text-chunks", int64(0), []byte(`{"turn":1,"step":1,"index":0,"dt":[1,1],"texts":["","",""]}`), false, []byte(nil), "", 0)
	f.Add("x", int64(-1), []byte("\x28\xb5\x2f\xfd\x00\x58\x11\x00\x00{}"), true, []byte{1, 2}, `"append"`, 1)
	f.Fuzz(func(t *testing.T, typ string, time int64, data []byte, blob bool, sources []byte, op string, ignorable int) {
		_ = st.BindText(1, typ)
		_ = st.BindInt64(2, time)
		if blob {
			_ = st.BindBlob(3, append([]byte{}, data...))
		} else {
			_ = st.BindText(3, string(data))
		}
		_ = st.BindNull(4)
		if sources != nil {
			_ = st.BindBlob(4, sources)
		}
		_ = st.BindNull(5)
		if op != "" {
			_ = st.BindText(5, op)
		}
		_ = st.BindNull(6)
		if ignorable%3 != 2 {
			_ = st.BindInt64(6, int64(ignorable%3))
		}
		if err := st.Exec(); err != nil {
			return
		}
		b, err := os.ReadFile(base)
		if err != nil {
			t.Fatal(err)
		}
		readAnything(t, b)
	})
}
