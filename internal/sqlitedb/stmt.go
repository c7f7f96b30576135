package sqlitedb

import "github.com/ncruces/go-sqlite3"

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
	st, _, err := db.conn.Prepare(sql)
	return st, err
}
