package sqlitedb

import (
	"encoding/binary"
	"io"
	"os"
	"path/filepath"

	"github.com/ncruces/go-sqlite3"
)

const (
	journalMagic      = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
	journalHeaderSize = 28
)

// A Journal describes a rollback journal.
type Journal struct {
	Path string
	Size int64
	// Hot: it belongs to a transaction that never ended; the database was rolled
	// back on a private copy before it was read.
	Hot bool
	// Super: the transaction spans several databases.
	Super bool
	// Odd: it is neither empty nor zeroed, but has no header that SQLite would
	// accept. SQLite throws such a journal away without using it.
	Odd bool
	// Pages is the size of the database before that transaction.
	Pages uint32
}

// readJournal decides whether a journal is hot, by the rules of SQLite: a zero
// first byte means that its transaction was committed.
func readJournal(r io.ReaderAt, size int64) (*Journal, error) {
	j := &Journal{Size: size}
	if size == 0 {
		return j, nil
	}
	var head [journalHeaderSize]byte
	n, err := readFull(r, head[:], 0)
	if err != nil {
		return nil, err
	}
	if head[0] == 0 {
		return j, nil
	}
	if n < journalHeaderSize || string(head[:8]) != journalMagic {
		j.Odd = true
		return j, nil
	}
	j.Hot = true
	j.Pages = binary.BigEndian.Uint32(head[16:])
	if size >= journalHeaderSize+16 {
		// The name of a super-journal ends the file: length, checksum, mark.
		var tail [8]byte
		if _, err := readFull(r, tail[:], size-8); err != nil {
			return nil, err
		}
		j.Super = string(tail[:]) == journalMagic
	}
	return j, nil
}

// rollback copies the database and its journal into a private folder, lets
// SQLite roll the copy back, and returns the copy.
//
// The WAL is left behind: SQLite, too, rolls the file back before it looks at it.
func (db *DB) rollback(file, journal *os.File) (*os.File, int64, error) {
	dir, err := os.MkdirTemp("", "dsh-audit-")
	if err != nil {
		return nil, 0, ioError(os.TempDir(), err)
	}
	db.temp = dir
	path := filepath.Join(dir, "copy.db")
	if err := copyTo(path, file); err != nil {
		return nil, 0, ioError(path, err)
	}
	if err := copyTo(path+"-journal", journal); err != nil {
		return nil, 0, ioError(path, err)
	}
	conn, err := sqlite3.OpenFlags(path, sqlite3.OPEN_READWRITE)
	if err != nil {
		return nil, 0, db.sqlError(err)
	}
	// Any access does it. Whether the schema can be read is judged later.
	conn.Config(sqlite3.DBCONFIG_DEFENSIVE, true)
	conn.Config(sqlite3.DBCONFIG_TRUSTED_SCHEMA, false)
	execErr := conn.Exec(`PRAGMA schema_version`)
	if err := conn.Close(); err != nil {
		return nil, 0, db.sqlError(err)
	}
	if _, err := os.Stat(path + "-journal"); err == nil {
		e := &Error{Path: db.Journal.Path, Offset: -1, Message: "the hot rollback journal could not be rolled back", Err: ErrDamaged}
		if execErr != nil {
			e.Message += ": " + Message(execErr)
		}
		return nil, 0, e
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, ioError(path, err)
	}
	db.files = append(db.files, f)
	st, err := f.Stat()
	if err != nil {
		return nil, 0, ioError(path, err)
	}
	return f, st.Size(), nil
}

func copyTo(path string, from *os.File) error {
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, io.NewSectionReader(from, 0, 1<<62)); err != nil {
		to.Close()
		return err
	}
	return to.Close()
}
