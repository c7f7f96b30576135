package sqlitedb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ncruces/go-sqlite3"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
)

// snapshot is everything about a folder that a reader could have changed.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		st, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		m[e.Name()] = fmt.Sprintf("%v %v %x", st.Mode(), st.ModTime().UnixNano(), b)
	}
	return m
}

// requireUntouched fails the test if the folder changes before the test ends.
func requireUntouched(t *testing.T, dir string) {
	t.Helper()
	before := snapshot(t, dir)
	t.Cleanup(func() {
		if diff := cmp.Diff(before, snapshot(t, dir)); diff != "" {
			if len(diff) > 2000 {
				diff = diff[:2000]
			}
			t.Errorf("the evidence in %s changed:\n%s", dir, diff)
		}
	})
}

func mustExec(t testing.TB, c *sqlite3.Conn, sql string) {
	t.Helper()
	if err := c.Exec(sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func writable(t testing.TB, path string) *sqlite3.Conn {
	t.Helper()
	c, err := sqlite3.OpenFlags(path, sqlite3.OPEN_READWRITE|sqlite3.OPEN_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// copyFiles copies the database and what lies beside it, in the given order.
func copyFiles(t testing.TB, path, to string, suffixes ...string) string {
	t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(to, "x.db")
	for _, s := range suffixes {
		b, err := os.ReadFile(path + s)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(out+s, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// column runs a query of one row and one column.
func column(t *testing.T, db *DB, sql string) string {
	t.Helper()
	s, err := query(db, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return s
}

func query(db *DB, sql string) (string, error) {
	st, _, err := db.Conn().Prepare(sql)
	if err != nil {
		return "", err
	}
	defer st.Close()
	if !st.Step() {
		return "", st.Err()
	}
	return st.ColumnText(0), nil
}

// walDatabase makes a database with 1000 rows in the file and 500 more in the WAL,
// in 5 transactions, and returns a copy of its files.
func walDatabase(t testing.TB, pageSize int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "live.db")
	c := writable(t, path)
	mustExec(t, c, fmt.Sprintf(`PRAGMA page_size=%d; PRAGMA journal_mode=wal; PRAGMA wal_autocheckpoint=0`, pageSize))
	mustExec(t, c, `PRAGMA application_id=0x44534850; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)`)
	mustExec(t, c, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<1000) INSERT INTO t SELECT i, printf('row %d', i) FROM n`)
	mustExec(t, c, `PRAGMA wal_checkpoint(TRUNCATE)`)
	for k := range 5 {
		mustExec(t, c, fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT %d UNION ALL SELECT i+1 FROM n WHERE i<%d) INSERT INTO t SELECT i, printf('row %%d', i) FROM n`, 1001+100*k, 1100+100*k))
	}
	mustExec(t, c, `PRAGMA user_version=17`)
	return copyFiles(t, path, filepath.Join(t.TempDir(), "copy"), "", "-wal", "-shm")
}

// reseal writes the header and the checksums of a WAL anew.
func reseal(b []byte, big bool, salts [8]byte) []byte {
	b = bytes.Clone(b)
	magic := uint32(walMagicLE)
	if big {
		magic = walMagicBE
	}
	binary.BigEndian.PutUint32(b, magic)
	copy(b[16:], salts[:])
	put := func(at int, s [2]uint32) {
		binary.BigEndian.PutUint32(b[at:], s[0])
		binary.BigEndian.PutUint32(b[at+4:], s[1])
	}
	sum := checksum(big, [2]uint32{}, b[:24])
	put(24, sum)
	ps := int(binary.BigEndian.Uint32(b[8:]))
	for at := 32; at+24+ps <= len(b); at += 24 + ps {
		copy(b[at+8:], salts[:])
		sum = checksum(big, sum, b[at:at+8])
		sum = checksum(big, sum, b[at+24:at+24+ps])
		put(at+16, sum)
	}
	return b
}

func edit(t *testing.T, path string, f func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, f(b), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestWAL(t *testing.T) {
	for _, pageSize := range []int{512, 4096, 65536} {
		for _, tt := range []struct {
			name string
			edit func(b []byte, step int) []byte
			rows string
			// what WAL says, with the frame counts relative to a sound file
			fault                              string
			rest, committed, uncommitted, lost int64 // deltas of whole transactions are computed below
			restFault                          RestFault
		}{
			{name: "sound", rows: "1500"},
			{name: "big-endian", rows: "1500", edit: func(b []byte, step int) []byte {
				return reseal(b, true, [8]byte{1, 2, 3, 4, 5, 6, 7, 8})
			}},
			{name: "resealed", rows: "1500", edit: func(b []byte, step int) []byte {
				return reseal(b, false, [8]byte{9})
			}},
			{name: "empty", rows: "1000", edit: func(b []byte, step int) []byte { return nil }},
			{name: "half header", rows: "1000", fault: "ends after 31 bytes, inside its header of 32", edit: func(b []byte, step int) []byte { return b[:31] }},
			{name: "header only", rows: "1000", edit: func(b []byte, step int) []byte { return b[:32] }},
			{name: "bad mark", rows: "1000", fault: "begins with 0x377f0684, not the mark of a WAL", edit: func(b []byte, step int) []byte {
				b[3] = 0x84
				return b
			}},
			{name: "bad header checksum", rows: "1000", fault: "wrong checksum of the header", edit: func(b []byte, step int) []byte {
				b[12] ^= 1
				return b
			}},
			{name: "bad page size", rows: "1000", fault: "page size 1000 is not a power of two from 512 to 65536", edit: func(b []byte, step int) []byte {
				binary.BigEndian.PutUint32(b[8:], 1000)
				return b
			}},
		} {
			t.Run(fmt.Sprint(pageSize, " ", tt.name), func(t *testing.T) {
				path := walDatabase(t, pageSize)
				if tt.edit != nil {
					edit(t, path+"-wal", func(b []byte) []byte { return tt.edit(b, pageSize+24) })
				}
				requireUntouched(t, filepath.Dir(path))
				db, err := Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				if got := column(t, db, `SELECT count(*) FROM t`); got != tt.rows {
					t.Errorf("rows: got %s, want %s", got, tt.rows)
				}
				if got := column(t, db, `PRAGMA integrity_check`); got != "ok" {
					t.Errorf("integrity_check: %s", got)
				}
				if db.WAL == nil || db.WAL.Fault != tt.fault {
					t.Errorf("WAL %+v, want fault %q", db.WAL, tt.fault)
				}
				wantVersion := int32(0)
				if tt.rows == "1500" {
					wantVersion = 17
					if w := db.WAL; w.Commits != 6 || w.Committed != w.Frames || w.Uncommitted != 0 || w.Rest != 0 {
						t.Errorf("WAL %+v", w)
					}
				}
				if db.UserVersion != wantVersion || db.ApplicationID != 0x44534850 || db.PageSize != pageSize || db.MissingPages != 0 {
					t.Errorf("info %+v", db.Info)
				}
				if path, changed := db.Changed(); changed {
					t.Errorf("%s changed", path)
				}
			})
		}
	}
}

// commits returns the numbers, from 1, of the frames that end transactions.
func commits(b []byte, step int) []int {
	var ends []int
	for n, at := 1, 32; at+step <= len(b); n, at = n+1, at+step {
		if binary.BigEndian.Uint32(b[at+4:]) != 0 {
			ends = append(ends, n)
		}
	}
	return ends
}

func TestWALTail(t *testing.T) {
	const pageSize = 512
	const step = pageSize + 24
	base := walDatabase(t, pageSize)
	wal, err := os.ReadFile(base + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	ends := commits(wal, step)
	if len(ends) != 6 || ends[2]-ends[1] < 3 {
		t.Fatalf("unfit WAL: commits at %v", ends)
	}
	total := int64(len(wal)-32) / step
	at := func(frame int) int { return 32 + (frame-1)*step } // frames from 1
	for _, tt := range []struct {
		name string
		edit func(b []byte) []byte
		rows string
		want WAL
	}{
		{"cut inside the third transaction", func(b []byte) []byte { return b[:at(ends[2])+100] }, "1200",
			WAL{Frames: int64(ends[2]) - 1, Committed: int64(ends[1]), Commits: 2, Uncommitted: int64(ends[2] - ends[1] - 1), PartialEnd: 100}},
		{"cut after the third transaction", func(b []byte) []byte { return b[:at(ends[2]+1)] }, "1300",
			WAL{Frames: int64(ends[2]), Committed: int64(ends[2]), Commits: 3}},
		{"flipped bit in the third transaction", func(b []byte) []byte {
			b[at(ends[1]+1)+24+7] ^= 4
			return b
		}, "1200",
			WAL{Frames: total, Committed: int64(ends[1]), Commits: 2, Rest: total - int64(ends[1]), RestFault: RestChecksum, RestOffset: int64(at(ends[1] + 1)), LostCommits: 4}},
		{"old frames after the third transaction", func(b []byte) []byte {
			for f := ends[2] + 1; f <= int(total); f++ {
				b[at(f)+8] ^= 1
			}
			return b
		}, "1300",
			WAL{Frames: total, Committed: int64(ends[2]), Commits: 3, Rest: total - int64(ends[2]), RestFault: RestSalt, RestOffset: int64(at(ends[2] + 1))}},
		{"page 0", func(b []byte) []byte {
			clear(b[at(ends[3]+1) : at(ends[3]+1)+4])
			return b
		}, "1400",
			WAL{Frames: total, Committed: int64(ends[3]), Commits: 4, Rest: total - int64(ends[3]), RestFault: RestPage, RestOffset: int64(at(ends[3] + 1)), LostCommits: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := copyFiles(t, base, t.TempDir(), "", "-wal")
			edit(t, path+"-wal", tt.edit)
			requireUntouched(t, filepath.Dir(path))
			db, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if got := column(t, db, `SELECT count(*) FROM t`); got != tt.rows {
				t.Errorf("rows: got %s, want %s", got, tt.rows)
			}
			if got := column(t, db, `PRAGMA integrity_check`); got != "ok" {
				t.Errorf("integrity_check: %s", got)
			}
			got := *db.WAL
			got.Path, got.Size, got.PageSize, got.Pages, got.dbPages = "", 0, 0, 0, 0
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(WAL{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWALOfAnotherDatabase(t *testing.T) {
	path := walDatabase(t, 512)
	other := walDatabase(t, 4096)
	edit(t, path+"-wal", func([]byte) []byte {
		b, err := os.ReadFile(other + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return b
	})
	_, err := Open(path)
	want := path + "-wal: byte 8: pages of 4096 bytes, the database has pages of 512: the two do not belong together"
	if err == nil || err.Error() != want || !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v, want %s", err, want)
	}

	path = walDatabase(t, 512)
	edit(t, path+"-wal", func(b []byte) []byte {
		binary.BigEndian.PutUint32(b[4:], 3007001)
		return reseal(b, false, [8]byte{})
	})
	_, err = Open(path)
	want = path + "-wal: byte 4: WAL format 3007001, SQLite reads only 3007000"
	if err == nil || err.Error() != want || !errors.Is(err, ErrUnsupported) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// The folder cannot be written: SQLite itself fails here.
func TestReadOnlyFolder(t *testing.T) {
	path := walDatabase(t, 4096)
	os.Remove(path + "-shm")
	dir := filepath.Dir(path)
	requireUntouched(t, dir)
	for _, f := range []string{path, path + "-wal"} {
		if err := os.Chmod(f, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		os.Chmod(dir, 0o755)
		os.Chmod(path, 0o644)
		os.Chmod(path+"-wal", 0o644)
	})
	db, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if got := column(t, db, `SELECT count(*) FROM t`); got != "1500" {
		t.Errorf("rows: got %s", got)
	}
}

func TestCannotWrite(t *testing.T) {
	path := walDatabase(t, 4096)
	requireUntouched(t, filepath.Dir(path))
	db, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, sql := range []string{
		`INSERT INTO t VALUES (9999,'x')`, `CREATE TABLE u(a)`, `PRAGMA user_version=3`,
		`PRAGMA journal_mode=delete; DELETE FROM t`, `ATTACH 'beside.db' AS b; CREATE TABLE b.x(a)`,
		`VACUUM INTO '` + filepath.Join(filepath.Dir(path), "out.db") + `'`,
	} {
		if err := db.Conn().Exec(sql); err == nil {
			t.Errorf("%s: no error", sql)
		}
	}
}

// hotJournal makes a database of 1000 rows whose writer died while it was
// rewriting them, and returns a copy of its files.
func hotJournal(t *testing.T, mode string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "live.db")
	c := writable(t, path)
	mustExec(t, c, `PRAGMA page_size=512; PRAGMA journal_mode=`+mode+`; PRAGMA cache_size=5; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)`)
	mustExec(t, c, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<1000) INSERT INTO t SELECT i, 'old' FROM n`)
	mustExec(t, c, `BEGIN; UPDATE t SET b='new row'; INSERT INTO t SELECT a+1000, b FROM t`)
	to := copyFiles(t, path, filepath.Join(t.TempDir(), "copy"), "", "-journal")
	mustExec(t, c, `ROLLBACK`)
	return to
}

func TestHotJournal(t *testing.T) {
	for _, mode := range []string{"delete", "truncate", "persist"} {
		t.Run(mode, func(t *testing.T) {
			temp := t.TempDir()
			t.Setenv("TMPDIR", temp)
			path := hotJournal(t, mode)
			requireUntouched(t, filepath.Dir(path))

			// The file alone is not what was committed.
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(raw, []byte("new row")) {
				t.Fatal("the writer has not touched the file yet")
			}

			db, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if !db.Journal.Hot || db.Journal.Pages == 0 || db.Journal.Path != path+"-journal" {
				t.Errorf("journal %+v", db.Journal)
			}
			if got := column(t, db, `SELECT count(*) || ' ' || min(b) || ' ' || max(b) FROM t`); got != "1000 old old" {
				t.Errorf("got %q", got)
			}
			if got := column(t, db, `PRAGMA integrity_check`); got != "ok" {
				t.Errorf("integrity_check: %s", got)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			left, err := os.ReadDir(temp)
			if err != nil || len(left) != 0 {
				t.Errorf("left behind: %v %v", left, err)
			}
		})
	}
}

func TestColdJournal(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(b []byte) []byte
		want Journal
	}{
		{"empty", func(b []byte) []byte { return nil }, Journal{}},
		{"zeroed", func(b []byte) []byte { clear(b[:28]); return b[:512] }, Journal{Size: 512}},
		{"not a journal", func(b []byte) []byte { return []byte("notes about the harbour, nothing more") }, Journal{Size: 37, Odd: true}},
		{"cut header", func(b []byte) []byte { return b[:27] }, Journal{Size: 27, Odd: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			src := walDatabase(t, 512)
			os.Remove(src + "-wal")
			os.Remove(src + "-shm")
			hot, err := os.ReadFile(hotJournal(t, "delete") + "-journal")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(src+"-journal", tt.edit(hot), 0o644); err != nil {
				t.Fatal(err)
			}
			requireUntouched(t, filepath.Dir(src))
			db, err := Open(src)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			tt.want.Path = src + "-journal"
			if diff := cmp.Diff(&tt.want, db.Journal); diff != "" {
				t.Error(diff)
			}
			if got := column(t, db, `SELECT count(*) FROM t`); got != "1000" {
				t.Errorf("rows: %s", got)
			}
		})
	}
}

// A journal can name a file that SQLite would read and then delete.
func TestSuperJournal(t *testing.T) {
	path := hotJournal(t, "delete")
	victim := filepath.Join(filepath.Dir(path), "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	edit(t, path+"-journal", func(b []byte) []byte {
		var sum uint32
		for _, c := range []byte(victim) {
			sum += uint32(c)
		}
		b = append(b, 0, 0, 0, 0)
		b = append(b, victim...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(victim)))
		b = binary.BigEndian.AppendUint32(b, sum)
		return append(b, journalMagic...)
	})
	requireUntouched(t, filepath.Dir(path))
	_, err := Open(path)
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "hot rollback journal of a transaction over several databases") {
		t.Errorf("got %v", err)
	}
}

func TestNotDatabase(t *testing.T) {
	dir := t.TempDir()
	head := append([]byte(Magic), 0x10, 0)
	bad := bytes.Clone(append(head, make([]byte, 82)...))
	bad[16], bad[17] = 0x03, 0xe8
	for _, tt := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "empty file, not an SQLite database"},
		{"short", head, "byte 18: file ends after 18 bytes, inside the 100 bytes of an SQLite header"},
		{"text", bytes.Repeat([]byte("{\"type\":\"session\"}\n"), 10), `byte 0: does not begin as an SQLite database: expected "SQLite format 3\x00", found "{\"type\":\"session"`},
		{"page size", bad, "byte 16: page size 1000 is not a power of two from 512 to 65536"},
	} {
		path := filepath.Join(dir, tt.name)
		if err := os.WriteFile(path, tt.data, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Open(path)
		if err == nil || err.Error() != path+": "+tt.want || !errors.Is(err, ErrNotDatabase) {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrNotDatabase) {
		t.Errorf("folder: %v", err)
	}
}

func TestTruncated(t *testing.T) {
	path := walDatabase(t, 512)
	os.Remove(path + "-wal")
	os.Remove(path + "-shm")
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	pages := st.Size() / 512
	if err := os.Truncate(path, 512*5+100); err != nil {
		t.Fatal(err)
	}
	requireUntouched(t, filepath.Dir(path))
	db, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if db.MissingPages != pages-5 || db.Pages != pages || int64(db.HeaderPages) != pages || db.PartialPage != 100 {
		t.Errorf("info %+v, want %d pages", db.Info, pages)
	}
	// What is there can be read, what is not is an error.
	if got := column(t, db, `SELECT sql FROM sqlite_schema`); got != "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)" {
		t.Errorf("schema: %s", got)
	}
	if _, err := query(db, `SELECT sum(length(b)) FROM t`); !errors.Is(err, sqlite3.CORRUPT) {
		t.Errorf("got %v", err)
	}
}

func TestChanged(t *testing.T) {
	path := walDatabase(t, 512)
	for _, suffix := range []string{"", "-wal", "-journal"} {
		db, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path+suffix, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteString("x")
		f.Close()
		if got, changed := db.Changed(); !changed || got != path+suffix {
			t.Errorf("%q: got %q %v", suffix, got, changed)
		}
		db.Close()
	}
}

// The recorded database was copied while its writer was open.
func TestCorpusLiveWAL(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the corpus is not here")
	}
	base := filepath.Join(dir, "head", "sqlite-wal-live")
	requireUntouched(t, base)
	live, err := Open(filepath.Join(base, "live.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	closed, err := Open(filepath.Join(base, "session.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Close()
	const sql = `SELECT count(*) || ' ' || group_concat(hex(data), ',') FROM (SELECT data FROM events ORDER BY seq)`
	if a, b := column(t, live, sql), column(t, closed, sql); a != b {
		t.Errorf("live %s\nclosed %s", a, b)
	}
	if live.UserVersion != 17 || live.ApplicationID != 0x44534850 || live.WAL.Committed != 28 || live.WAL.Commits == 0 {
		t.Errorf("live %+v %+v", live.Info, live.WAL)
	}
	if closed.WAL != nil || closed.Journal != nil {
		t.Errorf("closed %+v", closed.Info)
	}
}

func FuzzWAL(f *testing.F) {
	path := filepath.Join(f.TempDir(), "live.db")
	c := writable(f, path)
	mustExec(f, c, `PRAGMA page_size=512; PRAGMA journal_mode=wal; PRAGMA wal_autocheckpoint=0; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);
		INSERT INTO t VALUES(1, hex(zeroblob(300))); PRAGMA wal_checkpoint(TRUNCATE);
		INSERT INTO t VALUES(2, 'two'); INSERT INTO t VALUES(3, hex(zeroblob(900))); DELETE FROM t WHERE a=1`)
	file, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	wal, err := os.ReadFile(path + "-wal")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(wal, false)
	f.Add(wal[:len(wal)/2], true)
	f.Add(reseal(wal[:32+5*536], true, [8]byte{1}), false)
	f.Add(wal[:32], false)
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, wal []byte, seal bool) {
		if seal && len(wal) >= 32 {
			// Let the fuzzer past the checksums, with pages of 512 bytes.
			binary.BigEndian.PutUint32(wal[8:], 512)
			binary.BigEndian.PutUint32(wal[4:], walVersion)
			wal = reseal(wal, wal[0]&1 == 1, [8]byte(wal[16:24]))
		}
		db, err := OpenReader("fuzz", bytes.NewReader(file), int64(len(file)), bytes.NewReader(wal), int64(len(wal)))
		if err != nil {
			return
		}
		defer db.Close()
		w := db.WAL
		if w.Committed+w.Uncommitted+w.Rest != w.Frames || w.Pages > w.Committed || w.Committed > 0 && w.Commits == 0 {
			t.Fatalf("%+v", w)
		}
		query(db, `SELECT count(*), sum(length(b)) FROM t`)
	})
}

func BenchmarkScan(b *testing.B) {
	path := filepath.Join(b.TempDir(), "x.db")
	c := writable(b, path)
	mustExec(b, c, `CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<100000) INSERT INTO t SELECT i, hex(randomblob(300)) FROM n`)
	c.Close()
	db, err := Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	st, _, err := db.Conn().Prepare(`SELECT a, b FROM t`)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(100000 * 600)
	b.ReportAllocs()
	for b.Loop() {
		for st.Step() {
			_ = st.ColumnInt64(0)
			_ = st.ColumnRawText(1)
		}
		st.Reset()
	}
}
