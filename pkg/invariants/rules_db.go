package invariants

import "github.com/dsh-audit/dsh-audit/pkg/logfmt"

// Rules about the database that a log is kept in. All but the last are found by
// the reader.
var databaseRules = []*Rule{
	{
		ID: "DB-OPEN", Severity: Error, Spec: "PHYSICAL §5.7",
		Title:  "a database is a whole SQLite file, and what lies beside it belongs to it",
		Text:   "The header of the file names its page size and counts its pages. A file that ends before its last page, a header that no SQLite writes, or a WAL with pages of another size means that files were cut or mixed. What can be read is read.",
		How:    "A copy was interrupted, the disk was full, or a database was copied without the -wal and -journal files beside it.",
		Advice: "Copy the database again, together with what lies beside it, while nothing writes to it.",
	},
	{
		ID: "DB-WAL", Severity: Error, Spec: "PHYSICAL §5.7",
		Title:  "every transaction written to the WAL can be reached",
		Text:   "Transactions wait in the -wal file until SQLite moves them into the database. SQLite reads that file up to the first frame whose checksum is wrong and forgets the rest without a word, so the end of a log can be missing although the harness opens it.",
		How:    "A bit flipped, the file was overwritten or copied while the harness wrote, or the machine lost power.",
		Advice: "Keep a copy of both files: opening the database with the harness or with sqlite3 removes what cannot be reached.",
	},
	{
		ID: "DB-PAGE", Severity: Error, Spec: "PHYSICAL §5.8",
		Title:  "SQLite can read every page of the database",
		Text:   "Rows are kept in trees of pages. A damaged page hides the rows on it, and a damaged page of an index hides the way to others. The harness gives the session up; here the rows that can be reached in any other way are read.",
		How:    "Storage failed, or something other than SQLite wrote to the file.",
		Advice: "Restore the database from a copy. The command .recover of sqlite3 may save more rows.",
	},
	{
		ID: "DB-SCHEMA", Severity: Error, Spec: "PHYSICAL §5.1, §5.2, §5.7",
		Title:  "a database has the schema of a released harness",
		Text:   "A store of the harness names its schema by two numbers in the header and by its columns. Several numbers were used for different columns by development builds, and no build converts one schema into another. Schema 17 is compared word for word.",
		How:    "A development build or a newer harness wrote it, a tool changed its tables, or it is another program's database, such as the search index of the harness.",
		Advice: "Open it with the build that wrote it. An index or a table that was added to schema 17 has to be dropped before the harness takes the store back.",
	},
	{
		ID: "DB-STORE", Severity: Error, Spec: "PHYSICAL §5.2, §5.8",
		Title:  "a store of schema 17 has an identity",
		Text:   "The table persistence_state holds one row with a UUID. Without it the harness refuses every session of the store.",
		How:    "The row was deleted or edited, or the store was assembled by hand.",
		Advice: "Restore the row from a copy; the sessions themselves are not touched.",
	},
	{
		ID: "DB-SESSION", Severity: Error, Spec: "PHYSICAL §2.2, §5.2, §5.8",
		Title:  "each session has a row, and the row makes a header",
		Text:   "The row of a session takes the place of the header record. Its numbers are non-negative safe integers, cwd is an absolute path, origin is absent or subagent, the incarnation is a UUID. Events without such a row are not found by the harness, a malformed row makes it refuse the session.",
		How:    "The row was deleted or edited, or foreign keys were off while it was.",
		Advice: "Restore the row from a copy or from an export of the session.",
	},
	{
		ID: "DB-COLUMN", Severity: Error, Spec: "PHYSICAL §5.3, §5.8",
		Title:  "each column of an event holds what its schema allows",
		Text:   "seq and time are safe integers, type is text and not empty, data is text or, in schema 17, a BLOB, and so on. One wrong column makes the harness refuse the whole session, also behind the last turn/end.",
		How:    "The row was edited, or written by a program other than the harness.",
		Advice: "Find out what wrote the row. It alone is not read here.",
	},
	{
		ID: "DB-DATA", Severity: Error, Spec: "PHYSICAL §5.4, §5.8",
		Title:  "the data of an event decodes",
		Text:   "data is JSON; in schema 17 long values are kept as one Zstandard frame of UTF-8 text. A row whose data does not decode is lost, and with it everything behind it up to the last turn/end makes the log corrupt.",
		How:    "The value was edited or damaged in storage.",
		Advice: "Compare the row with a copy. The rows behind it are read here.",
	},
	{
		ID: "DB-SOURCES", Severity: Error, Spec: "PHYSICAL §5.3, §5.5",
		Title:  "the sources of an event decode",
		Text:   "source_event_seqs is a JSON array up to schema 15, and a list of differences as variable-length integers in schema 17, each written in its shortest form and within the safe integers.",
		How:    "The value was edited, damaged in storage, or written by a program with an encoding of its own.",
		Advice: "Compare the row with a copy. The rows behind it are read here.",
	},
	{
		ID: "DB-OP", Severity: Error, Spec: "PHYSICAL §5.3",
		Title:  "the surface operation of an event is JSON",
		Text:   "surface_op is NULL or JSON text. The word append stands there with its quotes.",
		How:    "The value was edited, often by writing append without quotes.",
		Advice: "Compare the row with a copy. The rows behind it are read here.",
	},
	{
		ID: "DB-READ", Severity: Note, Spec: "PHYSICAL §5.1, §5.7",
		Title:  "a database stands by itself and names its schema",
		Text:   "Part of a database may lie in the -wal file beside it, or a transaction that never ended has to be rolled back with the -journal file. Both are taken into account without touching any file: the pages of the WAL are read in place, a rollback is done on a private copy. What was found beside the database, and what its schema had to be guessed from, is said here.",
		How:    "The database was copied while a harness had it open, its writer was killed, or a build of June to July 2026 wrote it.",
		Advice: "Nothing is wrong. Keep these files together when you copy the database.",
		New:    func() Checker { return databaseChecker{} },
	},
}

type databaseChecker struct{}

func (databaseChecker) Event(*Context, *logfmt.Event) {}

func (databaseChecker) End(c *Context) {
	if c.log.Database == nil {
		return
	}
	nowhere := logfmt.Position{Frame: -1, FrameAt: -1, Row: -1, Member: -1}
	for _, n := range c.log.Database.Notes {
		c.ReportAt(Place{Pos: nowhere, Seq: -1, Turn: -1, Step: -1}, "", "%s", printable(n))
	}
}
