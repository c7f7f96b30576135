package logfmt

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/internal/sqlitedb"
)

// Rules that damage of a database breaks, beside RuleSeq and RuleRow.
const (
	RuleDBOpen    = "DB-OPEN"    // the file, or what lies beside it, is damaged
	RuleDBWAL     = "DB-WAL"     // transactions in the WAL cannot be reached
	RuleDBSchema  = "DB-SCHEMA"  // a schema that no released harness reads
	RuleDBStore   = "DB-STORE"   // the identity of the store is missing or malformed
	RuleDBSession = "DB-SESSION" // the row of a session is missing or malformed
	RuleDBColumn  = "DB-COLUMN"  // a column of an event holds what it must not
	RuleDBData    = "DB-DATA"    // the data of an event does not decode
	RuleDBSources = "DB-SOURCES" // the sources of an event do not decode
	RuleDBOp      = "DB-OP"      // the surface operation of an event is not JSON
	RuleDBPage    = "DB-PAGE"    // SQLite could not read a part of the database
)

const (
	storeID  = 0x44534850 // application_id of a session store
	searchID = 0x44534851 // application_id of a search index
)

// Database says where in an SQLite database a log was read (PHYSICAL §5).
type Database struct {
	Schema      int    // number of the schema, as its columns show it
	UserVersion int    // number in the file; 0 where a harness has yet to stamp it
	Sessions    int    // sessions in the database
	StoreID     string // schema 8 on
	Incarnation string // schema 8 on
	Revision    int64  // schema 8 on: appends and repairs so far
	// Summary is what schema 1 kept beside the events.
	Summary *Summary
	// Notes are remarks on how the database was read: what was found beside it,
	// which part of a WAL was left out. None of them is damage.
	Notes []string
}

// Summary is the description of a session that builds of 06-17 to 06-20 kept
// beside its events (PHYSICAL §1.2, §5.3).
type Summary struct {
	UpdatedAt   int64
	Title       *string
	FirstPrompt *string
}

// column is a column of a table as PRAGMA table_xinfo tells it.
type column struct {
	name, typ string
	notNull   bool
	pk        int
}

// A layout is what the tables of a schema look like (PHYSICAL §5.2).
type layout struct {
	schema   int
	branch   string // of a development build, read nevertheless
	sessions []column
	events   []column
}

// columnsOf reads "name T!, …": T text, I integer, A any, ! not null, # key.
func columnsOf(parts ...string) []column {
	var cols []column
	for part := range strings.SplitSeq(strings.Join(parts, ", "), ", ") {
		name, typ, _ := strings.Cut(part, " ")
		c := column{name: name, typ: map[byte]string{'T': "TEXT", 'I': "INTEGER", 'A': "ANY"}[typ[0]]}
		c.notNull = strings.HasSuffix(typ, "!")
		cols = append(cols, c)
	}
	return cols
}

var layouts = func() []layout {
	const (
		base     = "id T, version I!, created_at I!, cwd T, parent_session T"
		summary  = "updated_at I!, title T, first_prompt T"
		seed     = "seed_length I"
		depth    = "delegation_depth I"
		life     = "incarnation T!, revision I!"
		event    = "session_id T!, seq I!, type T!, time I!, data T!"
		surface  = "source_event_seqs T, surface_op T"
		event17  = "session_id T!, seq I!, type T!, time I!, data A!, source_event_seqs A, surface_op T"
		ignore   = "ignorable I"
		origin   = "origin T"
		preset   = "agent_preset T"
		june23rd = "the development build of 2026-06-23"
	)
	c := columnsOf
	return []layout{
		{1, "", c(base, summary), c(event)},
		{2, "", c(base), c(event)},
		{3, "", c(base, seed), c(event)},
		{3, june23rd, c(base), c(event, surface)},
		{4, "", c(base, seed), c(event, surface)},
		{5, "", c(base, seed, depth), c(event, surface)},
		{8, "", c(base, seed, depth, life), c(event, surface)},
		{10, "", c(base, seed, depth, life), c(event, surface)},
		{12, "", c(base, seed, depth, life), c(event, surface)},
		{13, "", c(base, seed, origin, depth, life), c(event, surface)},
		{14, "", c(base, seed, origin, depth, preset, life), c(event, surface)},
		{15, "", c(base, seed, origin, depth, preset, life), c(event, surface, ignore)},
		{17, "", c(base, seed, origin, depth, preset, life), c(event17, ignore)},
	}
}()

// branchColumns are columns that only development builds had in a schema whose
// released form lacks them.
var branchColumns = map[string]bool{
	"materialized": true, "source_event_seqs": true, "surface_op": true, "seed_length": true, "revision": true,
	"incarnation": true, "sandbox_mode": true, "approval_policy": true, "time_zone": true, "origin": true,
	"agent_preset": true, "delegation_depth": true, "ignorable": true, "updated_at": true,
}

// schema17 are the definitions that a harness of schema 17 insists on, by type
// and name (PHYSICAL §5.2).
var schema17 = []struct{ name, sql string }{
	{"events", "CREATE TABLE events ( session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE, seq INTEGER NOT NULL, " +
		"type TEXT NOT NULL, time INTEGER NOT NULL, data ANY NOT NULL, source_event_seqs ANY, surface_op TEXT, " +
		"ignorable INTEGER CHECK (ignorable IS NULL OR ignorable IN (0, 1)), PRIMARY KEY (session_id, seq) ) STRICT"},
	{"persistence_state", "CREATE TABLE persistence_state ( singleton INTEGER PRIMARY KEY CHECK (singleton = 1), store_id TEXT NOT NULL ) STRICT"},
	{"sessions", "CREATE TABLE sessions ( id TEXT PRIMARY KEY, version INTEGER NOT NULL, created_at INTEGER NOT NULL, cwd TEXT, " +
		"parent_session TEXT, seed_length INTEGER, origin TEXT, delegation_depth INTEGER, agent_preset TEXT, " +
		"incarnation TEXT NOT NULL, revision INTEGER NOT NULL ) STRICT"},
}

// database is an open database and what was found out about it. It is closed
// when the last of those who use it lets go.
type database struct {
	db       *sqlitedb.DB
	users    int
	path     string
	layout   *layout
	storeID  string
	notes    []string
	opening  []*Defect // of every log in the database
	sessions int
}

func (d *database) use() *database {
	d.users++
	return d
}

func (d *database) close() error {
	if d.users--; d.users > 0 || d.db == nil {
		return nil
	}
	err := d.db.Close()
	d.db = nil
	return err
}

var nowhere = Position{Frame: -1, FrameAt: -1, Row: -1, Member: -1}

func (d *database) defect(class Class, rule, hint, format string, args ...any) {
	d.opening = append(d.opening, &Defect{Rule: rule, Class: class, Pos: nowhere, Seq: -1, Hint: hint, Message: fmt.Sprintf(format, args...)})
}

func (d *database) note(format string, args ...any) {
	d.notes = append(d.notes, fmt.Sprintf(format, args...))
}

// unusable is a database from which no log can be read, with the reason.
type unusable struct{ defect *Defect }

func (e *unusable) Error() string { return e.defect.Message }

func unusableBecause(class Class, rule, hint, format string, args ...any) error {
	return &unusable{&Defect{Rule: rule, Class: class, Pos: nowhere, Seq: -1, Hint: hint, Message: fmt.Sprintf(format, args...)}}
}

// openDatabase opens a database and identifies its schema. An error that is no
// *unusable is one of the system.
func openDatabase(path string) (*database, error) {
	db, err := sqlitedb.Open(path)
	if err != nil {
		return nil, openError(err)
	}
	return identify(db, path)
}

// openError turns an error of package sqlitedb into a defect, where it is one.
func openError(err error) error {
	var e *sqlitedb.Error
	if !errors.As(err, &e) {
		return err
	}
	class := Unreadable
	switch {
	case errors.Is(err, sqlitedb.ErrUnsupported):
		class = Unsupported
	case errors.Is(err, sqlitedb.ErrDamaged):
		class = Corrupt
	case errors.Is(err, sqlitedb.ErrNotDatabase):
		// The first bytes are right, or nobody would have come here.
		class = Corrupt
	default:
		return err
	}
	d := &Defect{Rule: RuleDBOpen, Class: class, Pos: nowhere, Seq: -1, Message: e.Message, Hint: e.Hint, Err: err}
	if strings.HasSuffix(e.Path, "-wal") {
		d.Message = "the WAL beside it: " + d.Message
	} else if strings.HasSuffix(e.Path, "-journal") {
		d.Message = "the journal beside it: " + d.Message
	}
	if e.Offset > 0 {
		d.Pos.Offset = e.Offset
	}
	return &unusable{d}
}

func identify(db *sqlitedb.DB, path string) (_ *database, err error) {
	d := &database{db: db, path: path, users: 1}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	d.surroundings()

	version := int(db.UserVersion)
	const newer = "the database was written by a newer harness; use a newer dsh-audit"
	switch id := db.ApplicationID; {
	case id == searchID:
		return nil, unusableBecause(Unsupported, RuleDBSchema, "the logs it was built from are the session files or the session store",
			"application_id %#08x: a search index of the harness, not a log", id)
	case id != 0 && id != storeID:
		return nil, unusableBecause(Unsupported, RuleDBSchema, "",
			"application_id %#08x: a database of another program, expected 0 or %#08x", id, storeID)
	case id == storeID && version < 10:
		return nil, unusableBecause(Unsupported, RuleDBSchema, "no harness opens such a database",
			"user_version %d together with application_id %#08x, which schemas 10 and later have", version, id)
	case id == 0 && version >= 10:
		return nil, unusableBecause(Unsupported, RuleDBSchema, "no harness opens such a database",
			"user_version %d without the application_id %#08x", version, storeID)
	case version > 17:
		return nil, unusableBecause(Unsupported, RuleDBSchema, newer, "schema %d: this build reads schemas up to 17", version)
	case version == 6, version == 7, version == 9, version == 11:
		return nil, unusableBecause(Unsupported, RuleDBSchema, "no release reads it", "schema %d: only development builds wrote it", version)
	case version == 16, version < 0:
		return nil, unusableBecause(Unsupported, RuleDBSchema, "no release reads it", "schema %d: no harness wrote it", version)
	}

	tables, err := d.tables()
	if err != nil {
		return nil, d.unreadable("its list of tables", err)
	}
	if version == 0 && len(tables) == 0 {
		return nil, unusableBecause(Unsupported, RuleDBSchema, "", "a database without tables: nothing was ever stored in it")
	}
	sessions, err := d.columns("sessions")
	if err != nil {
		return nil, d.unreadable("the columns of its tables", err)
	}
	events, err := d.columns("events")
	if err != nil {
		return nil, d.unreadable("the columns of its tables", err)
	}
	if len(sessions) == 0 && len(events) == 0 {
		return nil, unusableBecause(Unsupported, RuleDBSchema, "", "a database of another program: it has no tables sessions and events")
	}
	if version == 0 {
		d.layout = adopted(sessions, events)
		if d.layout == nil {
			return nil, unusableBecause(Unsupported, RuleDBSchema, "", "user_version 0, and its tables are those of no schema")
		}
		d.note("user_version is 0; the columns are those of schema %d, whose harness takes the database over and stamps it", d.layout.schema)
	} else {
		var why string
		d.layout, why = match(version, sessions, events)
		if d.layout == nil {
			return nil, unusableBecause(Unsupported, RuleDBSchema, "no release reads it; a development build may have written it", "schema %d: %s", version, why)
		}
		if why != "" {
			d.note("schema %d: %s", version, why)
		}
	}
	if version == 17 {
		if why, err := d.compare17(tables); err != nil {
			return nil, d.unreadable("its list of tables", err)
		} else if why != "" {
			d.defect(Unsupported, RuleDBSchema, "the harness refuses the whole database; its rows are read here all the same", "schema 17: %s", why)
		}
	}
	if slices.ContainsFunc(tables, func(t table) bool { return t.name == "persistence_state" && t.typ == "table" }) {
		if err := d.store(); err != nil {
			return nil, d.unreadable("its table persistence_state", err)
		}
	}
	return d, nil
}

// unreadable is a database that SQLite gave up on.
func (d *database) unreadable(what string, err error) error {
	if len(d.opening) > 0 {
		// The cause is known already: the file is cut.
		first := d.opening[0]
		return &unusable{&Defect{Rule: first.Rule, Class: Corrupt, Pos: nowhere, Seq: -1, Err: err, Hint: first.Hint,
			Message: fmt.Sprintf("%s; %s cannot be read: %s", first.Message, what, sqlitedb.Message(err))}}
	}
	return &unusable{&Defect{Rule: RuleDBPage, Class: Corrupt, Pos: nowhere, Seq: -1, Err: err,
		Hint: "restore the database from a copy; sqlite3's .recover may save rows", Message: what + " cannot be read: " + sqlitedb.Message(err)}}
}

// surroundings reports what the bytes of the database, its WAL and its journal
// say before any SQL.
func (d *database) surroundings() {
	in := d.db.Info
	if in.MissingPages > 0 {
		d.defect(Corrupt, RuleDBOpen, "restore the file from a copy; what can be read of it follows",
			"the file is cut: %d of its %d pages of %d bytes are missing", in.MissingPages, in.Pages, in.PageSize)
	} else if in.PartialPage > 0 {
		d.note("%s behind the last whole page", plural.Count(in.PartialPage, "byte"))
	}
	if j := in.Journal; j != nil {
		switch {
		case j.Hot:
			d.note("a hot rollback journal lies beside it: a writer died inside a transaction, which was rolled back on a private copy")
		case j.Odd:
			d.note("a file named as its journal lies beside it but is none; SQLite would remove it")
		}
	}
	w := in.WAL
	if w == nil {
		return
	}
	const lost = "the transactions in it are lost to the harness; keep a copy of both files before anything opens them"
	switch {
	case w.Fault != "" && w.Size > 32:
		d.defect(Torn, RuleDBWAL, lost, "the WAL beside it is of no use: %s", w.Fault)
	case w.Fault != "":
		d.note("the WAL beside it holds nothing: %s", w.Fault)
	case w.Committed > 0:
		d.note("read from the WAL beside it: %s of %s", plural.Count(w.Pages, "page"), plural.Count(w.Commits, "transaction"))
	}
	if w.Uncommitted > 0 {
		d.note("an unfinished transaction at the end of the WAL was left out (%s)", plural.Count(w.Uncommitted, "frame"))
	}
	if w.LostCommits > 0 {
		d.defect(Torn, RuleDBWAL, lost, "the WAL beside it is damaged at byte %d (%s): out of reach behind it: %s",
			w.RestOffset, w.RestFault, plural.Count(w.LostCommits, "transaction"))
	}
}

// table is an entry of sqlite_schema.
type table struct{ typ, name, tbl, sql string }

func (d *database) tables() ([]table, error) {
	var out []table
	err := d.query(`SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT GLOB 'sqlite_*' ORDER BY type, name`, func(st *sqlitedb.Stmt) error {
		out = append(out, table{st.ColumnText(0), st.ColumnText(1), st.ColumnText(2), st.ColumnText(3)})
		return nil
	})
	return out, err
}

// query runs a statement and calls f for each row.
func (d *database) query(sql string, f func(*sqlitedb.Stmt) error, args ...[]byte) error {
	st, err := d.db.Prepare(sql)
	if err != nil {
		return err
	}
	defer st.Close()
	for i, a := range args {
		if err := st.BindRawText(i+1, a); err != nil {
			return err
		}
	}
	for d.db.Step(st) {
		if err := f(st); err != nil {
			return err
		}
	}
	return st.Err()
}

// columns lists the stored columns of a real table. Columns that are computed
// are left out: no harness had any, and to read one is to run what the file says.
func (d *database) columns(name string) ([]column, error) {
	var cols []column
	err := d.query(`SELECT x.name, upper(x.type), x."notnull", x.pk FROM sqlite_schema AS s, pragma_table_xinfo(?1) AS x
		WHERE s.type = 'table' AND s.name = ?1 AND s.sql NOT LIKE 'create virtual%' AND x.hidden = 0 ORDER BY x.cid`, func(st *sqlitedb.Stmt) error {
		cols = append(cols, column{st.ColumnText(0), st.ColumnText(1), st.ColumnBool(2), st.ColumnInt(3)})
		return nil
	}, []byte(name))
	return cols, err
}

// difference names the first column that want has and got lacks, and those that
// only got has.
func difference(name string, want, got []column) (missing string, extra []string) {
	for _, w := range want {
		i := slices.IndexFunc(got, func(c column) bool { return strings.EqualFold(c.name, w.name) })
		switch {
		case i < 0 && missing == "":
			missing = fmt.Sprintf("%s has no column %s", name, w.name)
		case i >= 0 && got[i].typ != w.typ && missing == "":
			missing = fmt.Sprintf("%s.%s is %s, expected %s", name, w.name, cmp.Or(got[i].typ, "without a type"), w.typ)
		}
	}
	for _, g := range got {
		if !slices.ContainsFunc(want, func(c column) bool { return strings.EqualFold(c.name, g.name) }) {
			extra = append(extra, g.name)
		}
	}
	return missing, extra
}

// match finds the layout of a schema number that the columns have. With a layout,
// why is a remark; without one, the reason.
func match(version int, sessions, events []column) (_ *layout, why string) {
	for i := range layouts {
		l := &layouts[i]
		if l.schema != version {
			continue
		}
		m1, x1 := difference("sessions", l.sessions, sessions)
		m2, x2 := difference("events", l.events, events)
		extra := append(x1, x2...)
		switch {
		case m1 == "" && m2 == "" && len(extra) == 0:
			if l.branch != "" {
				return l, "the columns are those of " + l.branch
			}
			return l, ""
		case l.branch != "":
		case m1 == "" && m2 == "" && !slices.ContainsFunc(extra, func(c string) bool { return branchColumns[c] }):
			return l, "columns that no harness knows: " + strings.Join(extra, ", ")
		case why == "" && (m1 != "" || m2 != ""):
			why = cmp.Or(m1, m2)
		case why == "":
			why = "columns of a development build: " + strings.Join(extra, ", ")
		}
	}
	return nil, why
}

// adopted finds the schema of a database without a number, as harnesses of
// schemas 1 to 8 adopted them.
func adopted(sessions, events []column) *layout {
	for i := range layouts {
		l := &layouts[i]
		m1, x1 := difference("sessions", l.sessions, sessions)
		m2, x2 := difference("events", l.events, events)
		if l.schema <= 8 && m1 == "" && m2 == "" && len(x1) == 0 && len(x2) == 0 {
			return l
		}
	}
	return nil
}

// compare17 compares the definitions of a database with those of schema 17.
func (d *database) compare17(tables []table) (string, error) {
	have := map[string]string{}
	for _, t := range tables {
		if t.typ == "table" && t.name == t.tbl {
			have[t.name] = t.sql
		}
	}
	for _, want := range schema17 {
		sql, ok := have[want.name]
		if !ok {
			return "it has no table " + want.name, nil
		}
		if got := collapse(sql); got != want.sql {
			i := 0
			for i < len(got) && i < len(want.sql) && got[i] == want.sql[i] {
				i++
			}
			return fmt.Sprintf("the definition of %s differs from the harness's own at %q, expected %q", want.name, near(got, i), near(want.sql, i)), nil
		}
	}
	for _, t := range tables {
		if !slices.ContainsFunc(schema17, func(w struct{ name, sql string }) bool { return t.typ == "table" && t.name == w.name }) {
			return fmt.Sprintf("it has the %s %q, which no harness made", t.typ, t.name), nil
		}
	}
	return "", nil
}

// near shows a text from a place on.
func near(s string, i int) string {
	if i >= len(s) {
		return "the end"
	}
	return clip([]byte(s[i:]))
}

// collapse makes each run of white space one space and trims, as the harness
// does before it compares.
func collapse(sql string) string {
	return strings.Join(strings.FieldsFunc(sql, func(r rune) bool { return unicode.IsSpace(r) || r == '\ufeff' }), " ")
}

// store reads the identity of the store.
func (d *database) store() error {
	rows := 0
	err := d.query(`SELECT store_id FROM persistence_state WHERE singleton = 1`, func(st *sqlitedb.Stmt) error {
		rows++
		d.storeID = columnText(st, 0)
		return nil
	})
	if err != nil || d.layout.schema < 17 {
		return err
	}
	switch {
	case rows == 0:
		d.defect(Corrupt, RuleDBStore, "the harness refuses the whole database", "persistence_state is empty, expected one row with the store_id")
	case !isUUID(d.storeID):
		d.defect(Corrupt, RuleDBStore, "the harness refuses the whole database", "store_id is %q, expected a UUID", d.storeID)
	}
	return nil
}

// columnText reads a column as the harness does: ill-formed UTF-8 becomes U+FFFD.
func columnText(st *sqlitedb.Stmt, col int) string {
	raw := st.ColumnRawText(col)
	return string(jsjson.ReplaceBadUTF8(nil, raw))
}

// isUUID reports whether s is a UUID of version 1 to 8 and the common variant.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i] | 0x20
		switch i {
		case 8, 13, 18, 23:
			if s[i] != '-' {
				return false
			}
			continue
		case 14:
			if c < '1' || c > '8' {
				return false
			}
		case 19:
			if c != '8' && c != '9' && c != 'a' && c != 'b' {
				return false
			}
		}
		if !(s[i] >= '0' && s[i] <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}

// errOrder is what an index of which a part is damaged, or refers to itself, gives.
var errOrder = errors.New("an index is out of order")

// sessionKey is a session that a database holds rows of.
type sessionKey struct {
	raw    []byte // as stored
	id     string
	orphan bool // it has events but no row of its own
}

// keys lists the sessions, by id.
func (d *database) keys() ([]sessionKey, error) {
	var keys []sessionKey
	err := d.query(`SELECT id FROM sessions ORDER BY id`, func(st *sqlitedb.Stmt) error {
		if st.ColumnType(0) != sqlitedb.Text {
			return nil
		}
		raw := append([]byte{}, st.ColumnRawText(0)...)
		if n := len(keys); n > 0 && bytes.Compare(raw, keys[n-1].raw) <= 0 {
			return errOrder
		}
		keys = append(keys, sessionKey{raw: raw, id: columnText(st, 0)})
		return nil
	})
	if err != nil {
		return keys, err
	}
	// Events of a session that has no row. Each step is one search in the index.
	n := len(keys)
	last := []byte(nil)
	for {
		var next []byte
		sql := `SELECT session_id FROM events WHERE session_id > ?1 ORDER BY session_id LIMIT 1`
		args := [][]byte{last}
		if last == nil {
			sql, args = `SELECT session_id FROM events ORDER BY session_id LIMIT 1`, nil
		}
		err := d.query(sql, func(st *sqlitedb.Stmt) error {
			if st.ColumnType(0) == sqlitedb.Text {
				next = append([]byte{}, st.ColumnRawText(0)...)
			}
			return nil
		}, args...)
		if err != nil {
			return keys[:n], err
		}
		if next == nil || last != nil && bytes.Compare(next, last) <= 0 {
			break
		}
		if _, found := slices.BinarySearchFunc(keys[:n], next, func(k sessionKey, t []byte) int { return bytes.Compare(k.raw, t) }); !found {
			keys = append(keys, sessionKey{raw: next, id: string(jsjson.ReplaceBadUTF8(nil, next)), orphan: true})
		}
		last = next
	}
	slices.SortStableFunc(keys, func(a, b sessionKey) int { return bytes.Compare(a.raw, b.raw) })
	return keys, nil
}

// choose lists the sessions to be read, or returns the one log that says why
// there is none.
func (d *database) choose(o Options) ([]sessionKey, *Log, error) {
	keys, err := d.keys()
	d.sessions = len(keys)
	switch {
	case err != nil && len(keys) == 0:
		l, err := refused(d.path, d.unreadable("the list of its sessions", err))
		return nil, l, err
	case err != nil:
		d.defect(Corrupt, RuleDBPage, "sessions may be missing here", "the list of its sessions cannot be read to the end: %s", sqlitedb.Message(err))
	}
	if o.Session != "" {
		i := slices.IndexFunc(keys, func(k sessionKey) bool { return k.id == o.Session })
		if i < 0 {
			return nil, nil, fmt.Errorf("%s: no session %q in this database, it holds %s", d.path, o.Session, listed(keys))
		}
		keys = keys[i : i+1]
	}
	if len(keys) == 0 && len(d.opening) > 0 {
		l := &Log{Path: d.path, Container: SQLite, Database: d.describe(), opening: d.opening, stop: true}
		l.reset()
		return nil, l, nil
	}
	return keys, nil, nil
}

// DatabaseLogs yields the logs of the sessions in an SQLite database, in order of
// their ids, or the one that o.Session names. A database from which nothing can
// be read is one log without header, whose defect says why. A log is closed when
// its step ends.
func DatabaseLogs(path string, o Options) iter.Seq2[*Log, error] {
	return func(yield func(*Log, error) bool) {
		d, err := openDatabase(path)
		if err != nil {
			yield(refused(path, err))
			return
		}
		defer d.close()
		keys, l, err := d.choose(o)
		if l != nil || err != nil {
			yield(l, err)
			return
		}
		if len(keys) == 0 && o.Skip != nil {
			o.Skip(path, "a database without sessions")
		}
		for _, k := range keys {
			l := d.log(k)
			more := yield(l, nil)
			l.Close()
			if !more {
				return
			}
		}
	}
}

// refused is the log of a database from which none can be read.
func refused(path string, err error) (*Log, error) {
	var u *unusable
	if !errors.As(err, &u) {
		return nil, err
	}
	l := &Log{Path: path, Container: SQLite, opening: []*Defect{u.defect}, stop: true}
	l.reset()
	return l, nil
}

// isDatabase reports whether the file at path begins like a database.
func isDatabase(path string) bool {
	// Opening a pipe would wait for its writer.
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, len(sqlitedb.Magic))
	_, err = io.ReadFull(f, head)
	return err == nil && string(head) == sqlitedb.Magic
}

// openSQLite makes an input the log of its only session.
func openSQLite(l *Log, in *input) error {
	if in.file == nil {
		l.refuse(Unsupported, RuleFormat, "an SQLite database cannot be read from a stream", "save it to a file first, together with the -wal file if there is one")
		return nil
	}
	in.close() // the database is opened by its path, with what lies beside it
	in.closer = nil
	got, err := openDatabaseFile(in.path, in.o)
	if err == nil {
		*l = *got
	}
	return err
}

// openDatabaseFile opens the only log of a database, or the one that is asked for.
func openDatabaseFile(path string, o Options) (*Log, error) {
	d, err := openDatabase(path)
	if err != nil {
		return refused(path, err)
	}
	defer d.close() // the log holds the database by itself
	keys, l, err := d.choose(o)
	switch {
	case l != nil || err != nil:
		return l, err
	case len(keys) == 0:
		return nil, fmt.Errorf("%s: the database holds no sessions", path)
	case len(keys) > 1:
		return nil, fmt.Errorf("%s: the database holds %s; name one", path, listed(keys))
	}
	return d.log(keys[0]), nil
}

// listed names the first few sessions, for a message.
func listed(keys []sessionKey) string {
	if len(keys) == 0 {
		return "no sessions"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d sessions: ", len(keys))
	if len(keys) == 1 {
		b.Reset()
		b.WriteString("one session: ")
	}
	for i, k := range keys {
		if i == 8 {
			b.WriteString(", …")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", k.id)
	}
	return b.String()
}

func (d *database) describe() *Database {
	return &Database{Schema: d.layout.schema, UserVersion: int(d.db.UserVersion), Sessions: d.sessions, StoreID: d.storeID, Notes: slices.Clone(d.notes)}
}

// log makes the log of one session. It holds the database until it is closed.
func (d *database) log(k sessionKey) *Log {
	l := &Log{Path: d.path, Container: SQLite, Session: k.id, Database: d.describe(), opening: slices.Clone(d.opening)}
	if k.orphan {
		l.opening = append(l.opening, &Defect{Rule: RuleDBSession, Class: Corrupt, Pos: nowhere, Seq: -1,
			Message: fmt.Sprintf("the events of session %q have no row in the table sessions: its header is lost", k.id),
			Hint:    "the harness does not find this session"})
	} else {
		d.header(l, k)
	}
	for _, def := range l.opening {
		if def.Class == Unsupported && def.Rule == RuleFormat {
			l.stop = true
		}
	}
	l.first = d.use().source(k)
	l.reopen = func() (source, error) {
		if d.db != nil {
			return d.use().source(k), nil
		}
		again, err := openDatabase(d.path)
		if err != nil {
			return nil, err
		}
		if again.layout != d.layout {
			again.close()
			return nil, errors.New("the database has another schema than before")
		}
		return again.source(k), nil
	}
	l.reset()
	return l
}

// header reads the row of a session into the header of its log.
//
// The record is the one JSONL would hold, with one difference: delegation_depth
// is NULL where the header did not have the member, and JSONL writes 0 there.
func (d *database) header(l *Log, k sessionKey) {
	bad := func(class Class, rule, hint, format string, args ...any) {
		l.opening = append(l.opening, &Defect{Rule: rule, Class: class, Pos: nowhere, Seq: -1, Hint: hint, Message: fmt.Sprintf(format, args...)})
	}
	const refuses = "the harness refuses this session"
	cols := make([]string, len(d.layout.sessions))
	for i, c := range d.layout.sessions {
		cols[i] = c.name
	}
	strict := d.layout.schema >= 17
	h := &Header{Pos: nowhere}
	rows := 0
	err := d.query(`SELECT `+strings.Join(cols, ", ")+` FROM sessions WHERE id = ?1`, func(st *sqlitedb.Stmt) error {
		if rows++; rows > 1 {
			return nil
		}
		str := func(i int) *string {
			if st.ColumnType(i) != sqlitedb.Text {
				if st.ColumnType(i) != sqlitedb.Null {
					bad(Corrupt, RuleDBSession, refuses, "%s is %s, expected text", cols[i], describe(st, i))
				}
				return nil
			}
			s := columnText(st, i)
			return &s
		}
		num := func(i int) *int64 {
			if st.ColumnType(i) != sqlitedb.Integer {
				if st.ColumnType(i) != sqlitedb.Null {
					bad(Corrupt, RuleDBSession, refuses, "%s is %s, expected an integer", cols[i], describe(st, i))
				}
				return nil
			}
			n := st.ColumnInt64(i)
			if n > maxSafe || n < -maxSafe {
				bad(Corrupt, RuleDBSession, refuses, "%s is %d, beyond the safe integers", cols[i], n)
			}
			return &n
		}
		need := func(i int) int64 {
			n := num(i)
			if n == nil {
				if st.ColumnType(i) == sqlitedb.Null {
					bad(Corrupt, RuleDBSession, refuses, "%s is NULL, expected an integer", cols[i])
				}
				return 0
			}
			return *n
		}
		h.ID = k.id
		for i, c := range cols {
			switch c {
			case "id":
				if strict && h.ID == "" {
					bad(Corrupt, RuleDBSession, refuses, "the id is empty")
				}
			case "version":
				h.Version = need(i)
			case "created_at":
				if h.CreatedAt = need(i); h.CreatedAt < 0 {
					if strict {
						bad(Corrupt, RuleDBSession, refuses, "created_at is %d, expected a non-negative integer", h.CreatedAt)
					} else {
						h.Fault |= HeaderCreatedAt
					}
				}
			case "cwd":
				if h.Cwd = str(i); h.Cwd != nil && !absolute(*h.Cwd) {
					h.Fault |= HeaderCwdRelative
					if strict {
						bad(Corrupt, RuleDBSession, refuses, "cwd is %q, expected an absolute path", clip([]byte(*h.Cwd)))
					}
				}
			case "parent_session":
				h.ParentSession = str(i)
			case "seed_length":
				if h.SeedLength = num(i); h.SeedLength != nil && *h.SeedLength < 0 {
					h.Fault |= HeaderSeed
					if strict {
						bad(Corrupt, RuleDBSession, refuses, "seed_length is %d, expected a non-negative integer", *h.SeedLength)
					}
				}
			case "origin":
				if h.Origin = str(i); h.Origin != nil && *h.Origin != "subagent" {
					bad(Corrupt, RuleDBSession, refuses, `origin is %q, expected NULL or "subagent"`, clip([]byte(*h.Origin)))
				}
			case "delegation_depth":
				if h.DelegationDepth = num(i); h.DelegationDepth != nil && *h.DelegationDepth < 0 {
					bad(Corrupt, RuleDBSession, refuses, "delegation_depth is %d, expected a non-negative integer", *h.DelegationDepth)
				}
			case "agent_preset":
				h.AgentPreset = str(i)
			case "incarnation":
				if s := str(i); s != nil {
					l.Database.Incarnation = *s
				}
				if strict && !isUUID(l.Database.Incarnation) {
					bad(Corrupt, RuleDBSession, refuses, "incarnation is %q, expected a UUID", clip([]byte(l.Database.Incarnation)))
				}
			case "revision":
				if l.Database.Revision = need(i); strict && l.Database.Revision < 0 {
					bad(Corrupt, RuleDBSession, refuses, "revision is %d, expected a non-negative integer", l.Database.Revision)
				}
			case "updated_at":
				l.Database.Summary = &Summary{UpdatedAt: need(i)}
			case "title":
				l.Database.Summary.Title = str(i)
			case "first_prompt":
				l.Database.Summary.FirstPrompt = str(i)
			}
		}
		return nil
	}, k.raw)
	if err != nil {
		bad(Corrupt, RuleDBPage, "its events are read all the same", "the row of session %q cannot be read: %s", k.id, sqlitedb.Message(err))
		return
	}
	if rows == 0 {
		bad(Corrupt, RuleDBSession, refuses, "the row of session %q is in the index but not in the table sessions", k.id)
		return
	}
	if d.layout.schema < 5 {
		h.Fault |= HeaderNoDepth
	}
	h.Raw = appendHeader(nil, h)
	l.Header = h
	h.Generation = h.Version
	if h.Version == 0 {
		return
	}
	if h.Version == 1 && d.layout.schema <= 2 {
		h.Fault |= HeaderJune
		h.Generation = 0
		return
	}
	hint := "the log was written by a newer harness"
	if h.Version < 0 {
		hint = "no harness wrote this number"
	}
	bad(Unsupported, RuleFormat, hint, "format version %d: this build reads generation 0", h.Version)
}

// appendHeader appends the header record in the key order of JSONL.
func appendHeader(dst []byte, h *Header) []byte {
	dst = append(dst, `{"type":"session","version":`...)
	dst = appendInt(dst, h.Version)
	dst = append(dst, `,"id":`...)
	dst = jsjson.AppendQuote(dst, h.ID)
	dst = append(dst, `,"createdAt":`...)
	dst = appendInt(dst, h.CreatedAt)
	str := func(key string, s *string) {
		if s != nil {
			dst = append(dst, key...)
			dst = jsjson.AppendQuote(dst, *s)
		}
	}
	num := func(key string, n *int64) {
		if n != nil {
			dst = append(dst, key...)
			dst = appendInt(dst, *n)
		}
	}
	str(`,"cwd":`, h.Cwd)
	str(`,"parentSession":`, h.ParentSession)
	num(`,"seedLength":`, h.SeedLength)
	str(`,"origin":`, h.Origin)
	num(`,"delegationDepth":`, h.DelegationDepth)
	str(`,"agentPreset":`, h.AgentPreset)
	return append(dst, '}')
}

// describe names the value of a column, for a message.
func describe(st *sqlitedb.Stmt, col int) string {
	switch st.ColumnType(col) {
	case sqlitedb.Integer:
		return fmt.Sprint(st.ColumnInt64(col))
	case sqlitedb.Real:
		return "the real number " + st.ColumnText(col)
	case sqlitedb.Text:
		return "text"
	case sqlitedb.Blob:
		return "a BLOB"
	}
	return "NULL"
}

// TornFrom is the seq from which on a harness that continues a torn log deletes
// its rows: the seq expected next up to schema 15, the one of the offending row
// in schema 17 (PHYSICAL §5.8). It reports false for logs that are not torn and
// for other containers.
func (l *Log) TornFrom() (int64, bool) {
	if l.Container != SQLite || l.Database == nil || l.Class() != Torn {
		return 0, false
	}
	for _, d := range l.Defects() {
		if d.Pos.Row < 0 {
			continue
		}
		if l.Database.Schema >= 17 {
			return d.Pos.Row, true
		}
		return l.Kept(), true
	}
	return 0, false
}
