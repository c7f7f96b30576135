package sqlitedb

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/ncruces/go-sqlite3"
)

// A Writer fills a new database in one transaction. Nothing lies beside the file
// at any time; until Close has returned without error it is worth nothing.
type Writer struct {
	path string
	conn *sqlite3.Conn
}

// Create makes a new database, readable by its owner alone. The file must not
// exist.
func Create(path string) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, ioError(path, err)
	}
	w := &Writer{path: path}
	if err := f.Close(); err != nil {
		w.Abort()
		return nil, ioError(path, err)
	}
	full, err := filepath.Abs(path)
	if err != nil {
		w.Abort()
		return nil, ioError(path, err)
	}
	if w.conn, err = sqlite3.OpenFlags(full, sqlite3.OPEN_READWRITE); err != nil {
		w.Abort()
		return nil, w.error(err)
	}
	// No journal: what is cut short is thrown away. Close makes the file durable.
	err = w.Exec(`PRAGMA journal_mode = off; PRAGMA synchronous = off; PRAGMA locking_mode = exclusive; PRAGMA temp_store = memory; BEGIN`)
	if err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// Exec runs statements without a result.
func (w *Writer) Exec(sql string) error { return w.error(w.conn.Exec(sql)) }

// Prepare compiles one statement.
func (w *Writer) Prepare(sql string) (*Stmt, error) {
	st, _, err := w.conn.Prepare(sql)
	return st, w.error(err)
}

// Close commits, and returns when the file is durable. On an error the file is
// removed.
func (w *Writer) Close() error {
	err := w.Exec(`COMMIT`)
	err = errors.Join(err, w.error(closeConn(w.conn)))
	w.conn = nil
	if err == nil {
		err = w.sync()
	}
	if err != nil {
		os.Remove(w.path)
	}
	return err
}

func (w *Writer) sync() error {
	f, err := os.OpenFile(w.path, os.O_RDWR, 0)
	if err != nil {
		return ioError(w.path, err)
	}
	err = f.Sync()
	if err = errors.Join(err, f.Close()); err != nil {
		return ioError(w.path, err)
	}
	return nil
}

// Abort throws the database away.
func (w *Writer) Abort() error {
	if w.conn != nil {
		closeConn(w.conn)
		w.conn = nil
	}
	return os.Remove(w.path)
}

func (w *Writer) error(err error) error {
	if err == nil {
		return nil
	}
	return &Error{Path: w.path, Offset: -1, Message: Message(err), Err: err}
}
