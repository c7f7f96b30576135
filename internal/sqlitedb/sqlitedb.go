// Package sqlitedb opens SQLite databases as evidence: neither the file nor
// anything beside it is written, locked, created or removed.
//
// # What is read
//
//	x.db          the database
//	x.db-wal      the write-ahead log, if there is one
//	x.db-journal  the rollback journal, if there is one
//
// SQLite itself cannot read a database in WAL mode without creating a shared
// memory file beside it, and when told that the file is immutable it leaves the
// WAL out. So the WAL is checked here, frame by frame (salts, checksums, commit
// marks), and its committed pages are shown over the file to an SQLite that
// believes it reads a plain immutable database. This costs 8 bytes of memory
// for each frame of the WAL.
//
// A hot rollback journal (left by a writer that died inside a transaction) means
// that the file itself is in an unfinished state. The database and its journal are
// copied into a private temporary folder, SQLite rolls the copy back, and the
// copy is read.
//
// A file or a WAL that is shorter than it should be is still opened: missing
// pages read as zeros, Info says how many there are, and SQLite reports
// whichever of them it meets.
//
// # What is not checked
//
// That nobody writes the database while it is read: take a copy of the file and of
// what lies beside it first. Changed notices the common cases afterwards.
//
// It implements the offline reading part of PHYSICAL §5.7.
package sqlitedb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs/readervfs"
)

// Magic begins every SQLite database file.
const Magic = "SQLite format 3\x00"

const headerSize = 100 // bytes of the database header

// What kept a database from being opened. Use errors.Is.
var (
	ErrNotDatabase = errors.New("not an SQLite database")
	ErrDamaged     = errors.New("damaged SQLite database")
	ErrUnsupported = errors.New("unsupported SQLite state")
)

// An Error says which file could not be used and why. It wraps one of the
// sentinels above, or the error of the system.
type Error struct {
	Path    string
	Offset  int64  // of the byte concerned, -1 if none
	Message string // lower case, no period
	Hint    string // what to do next, may be empty
	Err     error
}

func (e *Error) Error() string {
	if e.Offset >= 0 {
		return fmt.Sprintf("%s: byte %d: %s", e.Path, e.Offset, e.Message)
	}
	return e.Path + ": " + e.Message
}

func (e *Error) Unwrap() error { return e.Err }

// Info is what the bytes say about a database, without SQL.
type Info struct {
	Path          string // after resolving symbolic links
	PageSize      int
	Size          int64  // bytes of the database file
	Pages         int64  // pages shown to SQLite
	HeaderPages   uint32 // pages counted by the database header, 0 if it is not to be trusted
	MissingPages  int64  // pages that are neither in the file nor in the WAL; they read as zeros
	PartialPage   int    // bytes of an incomplete page at the end of the file, 0 if none
	UserVersion   int32
	ApplicationID uint32
	WAL           *WAL     // nil if there is none
	Journal       *Journal // nil if there is none
}

// A DB is an open database.
type DB struct {
	Info
	conn    *sqlite3.Conn
	work    *work
	name    string // in the registry of readervfs
	files   []*os.File
	temp    string // private folder, removed on Close
	watched []watched
}

// watched is a file and what it looked like when the database was opened.
type watched struct {
	path string
	info fs.FileInfo // nil: was not there
}

var counter atomic.Uint64

// Open opens a database file for reading.
func Open(path string) (*DB, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, ioError(path, err)
	}
	db := &DB{}
	db.Path = real
	ok := false
	defer func() {
		if !ok {
			db.Close()
		}
	}()
	file, size, err := db.open(real)
	if err != nil {
		return nil, err
	}
	if file == nil {
		return nil, &Error{Path: path, Offset: -1, Message: "no such file", Err: fs.ErrNotExist}
	}
	wal, walSize, err := db.open(real + "-wal")
	if err != nil {
		return nil, err
	}
	journal, journalSize, err := db.open(real + "-journal")
	if err != nil {
		return nil, err
	}
	db.Size = size
	if size == 0 {
		err := notDatabase(real, size, nil)
		if walSize > 0 {
			err.Hint = "SQLite would throw away the -wal file beside it: save both before anything opens them"
		}
		return nil, err
	}
	if journal != nil {
		j, err := readJournal(journal, journalSize)
		if err != nil {
			return nil, ioError(journal.Name(), err)
		}
		j.Path = journal.Name()
		db.Journal = j
		if j.Hot {
			if j.Super {
				return nil, &Error{Path: j.Path, Offset: journalSize - 8, Err: ErrUnsupported,
					Message: "hot rollback journal of a transaction over several databases, which the harness never writes",
					Hint:    "copy all the databases concerned and open the copy once with sqlite3"}
			}
			if file, size, err = db.rollback(file, journal); err != nil {
				return nil, err
			}
		}
	}
	var w io.ReaderAt
	if wal != nil {
		w = wal
	}
	if err := db.mount(file, size, w, walSize); err != nil {
		return nil, err
	}
	if db.WAL != nil {
		db.WAL.Path = wal.Name()
	}
	ok = true
	return db, nil
}

// OpenReader opens a database whose bytes, and those of its WAL, come from
// elsewhere. A nil wal means that there is none.
func OpenReader(name string, file io.ReaderAt, size int64, wal io.ReaderAt, walSize int64) (*DB, error) {
	db := &DB{}
	db.Path = name
	db.Size = size
	if err := db.mount(file, size, wal, walSize); err != nil {
		db.Close()
		return nil, err
	}
	if db.WAL != nil {
		db.WAL.Path = name + "-wal"
	}
	return db, nil
}

// open opens one of the files and remembers what it looked like. A missing file
// is nil without an error.
func (db *DB) open(path string) (*os.File, int64, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		db.watched = append(db.watched, watched{path, nil})
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, ioError(path, err)
	}
	if !st.Mode().IsRegular() {
		return nil, 0, &Error{Path: path, Offset: -1, Message: "not a regular file", Err: ErrNotDatabase}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, ioError(path, err)
	}
	db.files = append(db.files, f)
	if st, err = f.Stat(); err != nil {
		return nil, 0, ioError(path, err)
	}
	db.watched = append(db.watched, watched{path, st})
	return f, st.Size(), nil
}

// mount reads the headers, lays the WAL over the file and connects SQLite.
func (db *DB) mount(file io.ReaderAt, size int64, wal io.ReaderAt, walSize int64) error {
	var head [headerSize]byte
	n, err := readFull(file, head[:], 0)
	if err != nil {
		return ioError(db.Path, err)
	}
	if n < headerSize || string(head[:len(Magic)]) != Magic {
		return notDatabase(db.Path, size, head[:n])
	}
	ps := pageSize(head[:])
	if ps == 0 {
		return &Error{Path: db.Path, Offset: 16, Err: ErrNotDatabase,
			Message: fmt.Sprintf("page size %d is not a power of two from 512 to 65536", binary.BigEndian.Uint16(head[16:]))}
	}
	ov := &overlay{file: file, fileSize: size, wal: wal, pageSize: int64(ps)}
	if wal != nil {
		w, frames, err := scanWAL(wal, walSize)
		if err != nil {
			var e *Error
			if errors.As(err, &e) {
				e.Path = db.Path + "-wal"
				return e
			}
			return ioError(db.Path+"-wal", err)
		}
		db.WAL = w
		if w.Committed > 0 {
			if w.PageSize != ps {
				return &Error{Path: db.Path + "-wal", Offset: 8, Err: ErrDamaged,
					Message: fmt.Sprintf("pages of %d bytes, the database has pages of %d: the two do not belong together", w.PageSize, ps),
					Hint:    "check that the -wal file was copied together with this database"}
			}
			ov.frames = frames
			ov.pages = int64(w.dbPages)
		}
	}
	db.PageSize = ps
	db.PartialPage = int(size % int64(ps))
	filePages := size / int64(ps)

	// The header as SQLite will see it: page 1 may be in the WAL.
	if _, err := ov.ReadAt(head[:], 0); err != nil && err != io.EOF {
		return ioError(db.Path, err)
	}
	if string(head[24:28]) == string(head[92:96]) {
		db.HeaderPages = binary.BigEndian.Uint32(head[28:])
	}
	db.UserVersion = int32(binary.BigEndian.Uint32(head[60:]))
	db.ApplicationID = binary.BigEndian.Uint32(head[68:])

	if ov.pages == 0 {
		ov.pages = (size + int64(ps) - 1) / int64(ps)
		if int64(db.HeaderPages) > ov.pages {
			ov.pages = int64(db.HeaderPages)
		}
	}
	db.Pages = ov.pages
	db.MissingPages = ov.missing(filePages)

	db.name = "dsh-audit-" + strconv.FormatUint(counter.Add(1), 10)
	readervfs.Create(db.name, ov)
	conn, err := sqlite3.OpenFlags("file:"+db.name+"?vfs=reader&immutable=1", sqlite3.OPEN_READONLY|sqlite3.OPEN_URI)
	if err != nil {
		return db.sqlError(err)
	}
	db.conn = conn
	db.work = newWork(size + walSize)
	conn.SetInterrupt(db.work)
	for _, op := range []struct {
		op sqlite3.DBConfig
		on bool
	}{
		{sqlite3.DBCONFIG_DEFENSIVE, true},
		{sqlite3.DBCONFIG_TRUSTED_SCHEMA, false},
		{sqlite3.DBCONFIG_ENABLE_TRIGGER, false},
		{sqlite3.DBCONFIG_ENABLE_VIEW, false},
	} {
		if _, err := conn.Config(op.op, op.on); err != nil {
			return db.sqlError(err)
		}
	}
	// Nothing may spill to disk, nor change what is mapped.
	err = conn.Exec(`PRAGMA temp_store = memory; PRAGMA mmap_size = 0; PRAGMA query_only = on; PRAGMA cell_size_check = on`)
	if err != nil {
		return db.sqlError(err)
	}
	return nil
}

// Conn is the connection. It can read, never write.
func (db *DB) Conn() *sqlite3.Conn { return db.conn }

// Changed returns the path of the first of the files that no longer looks as it
// did when it was opened: what was read since may be a mixture.
func (db *DB) Changed() (string, bool) {
	for _, w := range db.watched {
		st, err := os.Stat(w.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if w.info != nil {
				return w.path, true
			}
		case err != nil:
			return w.path, true
		case w.info == nil:
			return w.path, true
		case st.Size() != w.info.Size() || !st.ModTime().Equal(w.info.ModTime()) || !os.SameFile(st, w.info):
			return w.path, true
		}
	}
	return "", false
}

// Close releases everything, and removes the private copy if there was one.
func (db *DB) Close() error {
	var errs []error
	if db.conn != nil {
		errs = append(errs, closeConn(db.conn))
		db.conn = nil
	}
	if db.name != "" {
		readervfs.Delete(db.name)
		db.name = ""
	}
	for _, f := range db.files {
		errs = append(errs, f.Close())
	}
	db.files = nil
	if db.temp != "" {
		errs = append(errs, os.RemoveAll(db.temp))
		db.temp = ""
	}
	return errors.Join(errs...)
}

// closeConn closes a connection and the statements that would keep it open.
func closeConn(c *sqlite3.Conn) error {
	var errs []error
	for _, st := range slices.Collect(c.Stmts()) {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, c.Close())...)
}

// sqlError turns an error of SQLite into one of ours.
func (db *DB) sqlError(err error) error {
	e := &Error{Path: db.Path, Offset: -1, Message: Message(err), Err: ErrDamaged}
	if errors.Is(err, sqlite3.NOTADB) {
		e.Err = ErrNotDatabase
	}
	return e
}

// Message is the text of an error of SQLite without the prefix of the driver.
func Message(err error) string {
	if errors.Is(err, sqlite3.INTERRUPT) {
		return "its pages lead in a circle"
	}
	return strings.TrimPrefix(err.Error(), "sqlite3: ")
}

func notDatabase(path string, size int64, head []byte) *Error {
	e := &Error{Path: path, Offset: 0, Err: ErrNotDatabase}
	switch {
	case size == 0:
		e.Offset = -1
		e.Message = "empty file, not an SQLite database"
	case len(head) < headerSize:
		e.Offset = size
		e.Message = fmt.Sprintf("file ends after %d bytes, inside the 100 bytes of an SQLite header", size)
	default:
		e.Message = fmt.Sprintf("does not begin as an SQLite database: expected %q, found %q", Magic, head[:len(Magic)])
	}
	return e
}

func ioError(path string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return &Error{Path: path, Offset: -1, Message: err.Error(), Err: err}
}

// pageSize returns the page size of a database header, 0 if it is impossible.
func pageSize(head []byte) int {
	ps := int(binary.BigEndian.Uint16(head[16:]))
	if ps == 1 {
		ps = 65536
	}
	if ps < 512 || ps&(ps-1) != 0 {
		return 0
	}
	return ps
}

// readFull reads as much of b as there is. Fewer bytes are not an error.
func readFull(r io.ReaderAt, b []byte, off int64) (int, error) {
	n, err := r.ReadAt(b, off)
	if err == io.EOF {
		err = nil
	}
	return n, err
}
