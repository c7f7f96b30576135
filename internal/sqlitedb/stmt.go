package sqlitedb

import (
	"context"

	"github.com/ncruces/go-sqlite3"
)

// The driver is known to this package alone; these are the parts of it that
// readers of rows use.
type (
	// Stmt is a prepared statement. What its ColumnRaw methods return is valid
	// until the next step.
	Stmt = sqlite3.Stmt
	// Type is the storage class of a value.
	Type = sqlite3.Datatype
)

// The storage classes.
const (
	Integer = sqlite3.INTEGER
	Real    = sqlite3.FLOAT
	Text    = sqlite3.TEXT
	Blob    = sqlite3.BLOB
	Null    = sqlite3.NULL
)

// Prepare compiles one statement.
func (db *DB) Prepare(sql string) (*Stmt, error) {
	db.work.used = 0
	st, _, err := db.conn.Prepare(sql)
	return st, err
}

// Step moves a statement to its next row. Pages of a damaged database can lead in
// circles, where SQLite would go on without end: the work of one step is bounded
// by the size of the database.
func (db *DB) Step(st *Stmt) bool {
	db.work.used = 0
	return st.Step()
}

// work counts the work of SQLite, in units of 1000 instructions of its virtual
// machine. It is a context because that is how the driver asks whether to go on.
type work struct {
	context.Context
	used, limit int64
}

// Err implements context.Context.
func (w *work) Err() error {
	if w.used++; w.used > w.limit {
		return context.Canceled
	}
	return nil
}

// newWork allows for a step that looks at every row, at some instructions a byte.
func newWork(size int64) *work {
	return &work{Context: context.Background(), limit: 1000 + size/250}
}
