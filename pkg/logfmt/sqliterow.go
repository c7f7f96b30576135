package logfmt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/sqlitedb"
	"github.com/dsh-audit/dsh-audit/internal/zframe"
)

// Limits of packed rows in schema 17 (PHYSICAL §4.5).
const (
	minMembers  = 3
	maxMembers  = 1024
	maxRowBytes = 1 << 20
)

// maxData is the most text that is read from one column, as of one line.
const maxData = MaxLine

// dbSource reads the rows of one session.
type dbSource struct {
	d      *database
	key    sessionKey
	strict bool // schema 17
	st     *sqlitedb.Stmt
	zstd   blobReader

	last    int64 // seq of the last row read
	any     bool  // there was one
	salvage *salvage
	done    bool
}

func (d *database) source(k sessionKey) *dbSource {
	return &dbSource{d: d, key: k, strict: d.layout.schema >= 17}
}

func (s *dbSource) peekSeq() (int64, bool) { return 0, false }

func (s *dbSource) close() error {
	if s.d == nil {
		return nil
	}
	err := s.st.Close()
	if s.salvage != nil {
		err = errors.Join(err, s.salvage.list.Close(), s.salvage.row.Close())
	}
	err = errors.Join(err, s.d.close())
	s.d = nil
	return err
}

// Columns of the statements below.
const (
	colSeq = iota
	colType
	colTime
	colData
	colSources
	colOp
	colIgnorable
	colSize
)

// columns is the list of columns to select; those that the schema lacks are NULL.
// Of a value that is too long only that fact is brought into memory: the data
// column is NULL then, the others are 0.
func (s *dbSource) columns() string {
	cols := []string{"seq", "type", "time", fmt.Sprintf("iif(octet_length(data) <= %d, data, NULL)", maxData), "NULL", "NULL", "NULL", "octet_length(data)"}
	limited := func(name string) string {
		return fmt.Sprintf("iif(octet_length(%s) > %d, 0, %[1]s)", name, maxData)
	}
	for _, c := range s.d.layout.events {
		switch c.name {
		case "source_event_seqs":
			cols[colSources] = limited(c.name)
		case "surface_op":
			cols[colOp] = limited(c.name)
		case "ignorable":
			cols[colIgnorable] = c.name
		}
	}
	return strings.Join(cols, ", ")
}

// next implements source.
func (s *dbSource) next(rec *record) error {
	if s.done {
		return s.end()
	}
	if s.st == nil {
		st, err := s.prepare(`SELECT ` + s.columns() + ` FROM events WHERE session_id = ?1 ORDER BY seq`)
		if err != nil {
			return err
		}
		s.st = st
	}
	if s.salvage != nil {
		return s.nextSalvaged(rec)
	}
	err := error(nil)
	if s.d.db.Step(s.st) {
		if s.st.ColumnType(colSeq) != sqlitedb.Integer {
			// Of no use, and nothing tells whether such rows come to an end.
			s.decode(rec, s.st)
			s.done = true
			return nil
		}
		if !s.any || s.st.ColumnInt64(colSeq) > s.last {
			s.decode(rec, s.st)
			return nil
		}
		err = errOrder
	} else {
		err = s.st.Err()
	}
	if err == nil {
		s.done = true
		return s.end()
	}
	return s.broken(rec, err)
}

// end is what comes after the last row: nothing, unless somebody has written.
func (s *dbSource) end() error {
	if path, changed := s.d.db.Changed(); changed {
		return fmt.Errorf("%s changed while it was read: copy the database and what lies beside it, then read the copy", path)
	}
	return io.EOF
}

func (s *dbSource) prepare(sql string) (*sqlitedb.Stmt, error) {
	st, err := s.d.db.Prepare(sql)
	if err != nil {
		return nil, fmt.Errorf("%s", sqlitedb.Message(err))
	}
	if err := st.BindRawText(1, s.key.raw); err != nil {
		st.Close()
		return nil, err
	}
	return st, nil
}

// fail makes the record one that does not decode.
func fail(rec *record, rule string, at int, err error, format string, args ...any) {
	rec.defect = &Defect{Rule: rule, Class: Corrupt, At: int64(at), Err: err, Message: fmt.Sprintf(format, args...),
		Hint: "the harness loses this row and everything behind it"}
}

// fatal makes the record one on which the harness gives the session up, wherever
// it stands.
func fatal(rec *record, rule string, format string, args ...any) {
	fail(rec, rule, 0, nil, format, args...)
	rec.strict = true
	rec.defect.Hint = "the harness refuses the whole session"
}

// decode reads the row a statement stands on.
func (s *dbSource) decode(rec *record, st *sqlitedb.Stmt) {
	rec.line, rec.facts, rec.defect, rec.strict = nil, 0, nil, false
	rec.value, rec.null, rec.packed, rec.got, rec.whole = false, false, false, nil, false
	rec.pos = nowhere
	e := &rec.event
	*e = Event{Seq: -1, Pos: rec.pos}

	// The columns of the row. STRICT tables keep their types; files need not.
	if st.ColumnType(colSeq) != sqlitedb.Integer {
		fatal(rec, RuleDBColumn, "seq is %s, expected an integer", describe(st, colSeq))
		return
	}
	e.Seq = st.ColumnInt64(colSeq)
	rec.pos.Row = e.Seq
	e.Pos = rec.pos
	s.last, s.any = e.Seq, true
	switch {
	case e.Seq > maxSafe || e.Seq < -maxSafe || s.strict && e.Seq < 0:
		fatal(rec, RuleDBColumn, "seq is %d, expected a non-negative safe integer", e.Seq)
		return
	case st.ColumnType(colType) != sqlitedb.Text:
		fatal(rec, RuleDBColumn, "type is %s, expected text", describe(st, colType))
		return
	case st.ColumnType(colTime) != sqlitedb.Integer:
		fatal(rec, RuleDBColumn, "time is %s, expected an integer", describe(st, colTime))
		return
	}
	e.Time = st.ColumnInt64(colTime)
	if e.Time > maxSafe || e.Time < -maxSafe {
		fatal(rec, RuleDBColumn, "time is %d, beyond the safe integers", e.Time)
		return
	}
	if e.Time < 0 {
		e.Fault |= FaultTimeNeg
	}
	if st.ColumnType(colData) == sqlitedb.Null && st.ColumnType(colSize) == sqlitedb.Integer && st.ColumnInt64(colSize) > maxData {
		passOver(rec, "data", st.ColumnInt64(colSize))
		return
	}
	dataType, sourcesType, opType := st.ColumnType(colData), st.ColumnType(colSources), st.ColumnType(colOp)
	packed := false
	switch st.ColumnType(colIgnorable) {
	case sqlitedb.Null:
	case sqlitedb.Integer:
		switch n := st.ColumnInt64(colIgnorable); {
		case n == 1:
			e.Ignorable = true
		case n == 0 && s.strict:
			packed = true
		case s.strict:
			fatal(rec, RuleDBColumn, "ignorable is %d, expected NULL, 0 or 1", n)
			return
		case n != 0:
			e.Fault |= FaultIgnorable
		}
	default:
		fatal(rec, RuleDBColumn, "ignorable is %s, expected NULL, 0 or 1", describe(st, colIgnorable))
		return
	}
	bad := ""
	switch {
	case dataType != sqlitedb.Text && !(s.strict && dataType == sqlitedb.Blob):
		bad = "data is " + describe(st, colData) + ", expected text"
	case sourcesType == sqlitedb.Integer:
		passOver(rec, "source_event_seqs", -1)
		return
	case opType == sqlitedb.Integer:
		passOver(rec, "surface_op", -1)
		return
	case sourcesType != sqlitedb.Null && s.strict && sourcesType != sqlitedb.Blob:
		bad = "source_event_seqs is " + describe(st, colSources) + ", expected a BLOB or NULL"
	case sourcesType != sqlitedb.Null && !s.strict && sourcesType != sqlitedb.Text:
		bad = "source_event_seqs is " + describe(st, colSources) + ", expected text or NULL"
	case opType != sqlitedb.Null && opType != sqlitedb.Text:
		bad = "surface_op is " + describe(st, colOp) + ", expected text or NULL"
	}
	if bad != "" {
		fatal(rec, RuleDBColumn, "%s", bad)
		return
	}

	// {"type":…,"seq":…,"time":…,"data":…,"sourceEventSeqs":…,"surfaceOp":…,"ignorable":true}
	b := append(rec.buf[:0], `{"type":`...)
	at := len(b)
	b = appendText(b, st.ColumnRawText(colType))
	e.Type = rec.names.intern(b[at:])
	if s.strict && e.Type == "" {
		rec.buf = b
		fatal(rec, RuleDBColumn, "type is empty, expected a name")
		return
	}
	if packed {
		rec.buf = b
		s.decodePacked(rec, st)
		return
	}
	b = append(b, `,"seq":`...)
	at = len(b)
	b = appendInt(b, e.Seq)
	seqAt, seqEnd := at, len(b)
	b = append(b, `,"time":`...)
	b = appendInt(b, e.Time)
	b = append(b, `,"data":`...)
	dataAt := len(b)
	b = s.appendData(b, rec, st, dataType, maxData)
	rec.buf = b
	if rec.defect != nil {
		return
	}
	dataEnd := len(b)

	sourcesAt := -1
	if sourcesType != sqlitedb.Null {
		b = append(b, `,"sourceEventSeqs":`...)
		sourcesAt = len(b)
		if s.strict {
			var err error
			if b, err = appendSources(b, st.ColumnRawBlob(colSources)); err != nil {
				rec.buf = b
				fail(rec, RuleDBSources, 0, err, "%v", err)
				return
			}
		} else if b = appendJSON(b, rec, RuleDBSources, "source_event_seqs", st.ColumnRawText(colSources)); rec.defect != nil {
			rec.buf = b
			return
		}
	}
	sourcesEnd := len(b)
	opAt := -1
	if opType != sqlitedb.Null {
		b = append(b, `,"surfaceOp":`...)
		opAt = len(b)
		if b = appendJSON(b, rec, RuleDBOp, "surface_op", st.ColumnRawText(colOp)); rec.defect != nil {
			rec.buf = b
			return
		}
	}
	opEnd := len(b)
	if e.Ignorable {
		b = append(b, `,"ignorable":true`...)
	}
	b = append(b, '}')

	rec.buf, rec.line = b, b
	rec.got = b[seqAt:seqEnd]
	e.JSON, e.Line, e.Facts = b, b, rec.facts
	e.Data = b[dataAt:dataEnd]
	if e.Type == TypeAssistantChunk {
		e.Mark = readPiece(e.Data)
	}
	if sourcesAt >= 0 {
		e.Sources = b[sourcesAt:sourcesEnd]
		e.readSources()
	}
	if opAt >= 0 {
		e.Op = b[opAt:opEnd]
		if _, ok := parseOp(e.Op, generations[0]); !ok {
			e.Fault |= FaultOp
		}
	}
}

// passOver makes the record one that this build does not read.
func passOver(rec *record, col string, n int64) {
	size := ""
	if n >= 0 {
		size = fmt.Sprintf(" of %d bytes", n)
	}
	fail(rec, RuleLong, 0, nil, "%s holds a value%s, this build reads at most %d bytes", col, size, maxData)
	rec.defect.Class = Unsupported
	rec.defect.Hint = "the row is passed over"
}

// decodePacked reads a packed row (PHYSICAL §5.6); tag, seq and time are known.
func (s *dbSource) decodePacked(rec *record, st *sqlitedb.Stmt) {
	e := &rec.event
	rec.row.reset(e.Type)
	rec.row.seq0, rec.row.time0, rec.row.stored = e.Seq, e.Time, true
	why := ""
	switch {
	case e.Type != rowText && e.Type != rowReasoning && e.Type != rowToolCall:
		why = "packed discriminator requires a chunk tag"
	case st.ColumnType(colSources) != sqlitedb.Null || st.ColumnType(colOp) != sqlitedb.Null:
		why = "packed surface fields must be null"
	}
	if why != "" {
		err := &rowError{e.Type, why}
		fail(rec, RuleRow, 0, err, "%v", err)
		return
	}
	rec.buf = s.appendData(rec.buf[:0], rec, st, st.ColumnType(colData), maxRowBytes)
	if rec.defect != nil {
		return
	}
	rec.line, rec.packed = rec.buf, true
	if err := rec.row.decodeData(rec.buf, jsjson.Facts(rec.facts)&jsjson.NumberOverflow != 0); err != nil {
		rec.packed = false
		fail(rec, RuleRow, 0, err, "%v", err)
	}
}

// appendData appends the canonical JSON of the data column.
func (s *dbSource) appendData(b []byte, rec *record, st *sqlitedb.Stmt, typ sqlitedb.Type, limit int) []byte {
	var text []byte
	if typ == sqlitedb.Text {
		text = st.ColumnRawText(colData)
	} else {
		var err error
		text, err = s.zstd.read(st.ColumnRawBlob(colData), limit)
		switch {
		case errors.Is(err, errTooLong) && limit == maxData:
			passOver(rec, "data", -1)
			return b
		case errors.Is(err, errTooLong):
			tooLarge(rec, limit)
			return b
		case err != nil:
			fail(rec, RuleDBData, 0, err, "data is a BLOB that does not decompress: %v", err)
			return b
		}
		if text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")); !utf8.Valid(text) {
			fail(rec, RuleDBData, validPrefix(text), nil, "the compressed data is not valid UTF-8")
			return b
		}
	}
	if len(text) > limit {
		tooLarge(rec, limit)
		return b
	}
	return appendJSON(b, rec, RuleDBData, "data", text)
}

// tooLarge makes the record a packed row that holds too much.
func tooLarge(rec *record, limit int) {
	err := &rowError{rec.event.Type, fmt.Sprintf("data exceeds %d UTF-8 bytes", limit)}
	fail(rec, RuleRow, limit, err, "%v", err)
}

// validPrefix is the length of the well-formed beginning of b.
func validPrefix(b []byte) int {
	n := 0
	for n < len(b) {
		r, size := utf8.DecodeRune(b[n:])
		if r == utf8.RuneError && size <= 1 {
			break
		}
		n += size
	}
	return n
}

// appendJSON appends the canonical form of a JSON text, or fails the record.
func appendJSON(b []byte, rec *record, rule, col string, text []byte) []byte {
	facts, err := jsjson.Check(text)
	if err == nil && facts.Canonical() {
		rec.facts |= uint16(facts)
		return append(b, text...)
	}
	if err == nil {
		rec.facts |= uint16(facts)
		var out []byte
		if out, _, err = jsjson.AppendStringify(b, text); err == nil {
			return out
		}
	}
	at := 0
	what := "not valid JSON"
	if se := (*jsjson.SyntaxError)(nil); errors.As(err, &se) {
		at = se.Offset
		what = fmt.Sprintf("not valid JSON at byte %d: expected %s, got %s", at, se.Want, se.Got)
	}
	fail(rec, rule, at, err, "%s is %s", col, what)
	return b
}

// appendText appends text from a database as a JSON string.
func appendText(b, text []byte) []byte {
	for _, c := range text {
		if c < 0x20 || c >= 0x80 || c == '"' || c == '\\' {
			return jsjson.AppendQuote(b, string(jsjson.ReplaceBadUTF8(nil, text)))
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}

// blobReader decompresses data columns.
type blobReader struct {
	dec  *zframe.Decoder
	walk *zframe.Walker
	src  bytes.Reader
	out  []byte
}

var errTooLong = errors.New("too long")

// read returns the text of the first frame of a BLOB; whatever follows the frame
// is ignored, as by the harness. It returns errTooLong instead of more than limit
// bytes. The text is valid until the next call.
func (z *blobReader) read(blob []byte, limit int) ([]byte, error) {
	if z.dec == nil {
		z.dec = zframe.NewDecoder()
	}
	z.src.Reset(blob)
	if size := int64(len(blob)); z.walk == nil {
		z.walk = zframe.NewWalker(&z.src, size)
	} else {
		z.walk.Reset(&z.src, size)
	}
	f, err := z.walk.Next()
	var structure *zframe.Error
	switch {
	case err == io.EOF:
		return nil, errors.New("it is empty, expected a zstd frame")
	case errors.As(err, &structure):
		return nil, err
	case err != nil:
		return nil, err
	case f.Skippable:
		return nil, errors.New("it begins with a skippable frame")
	case f.Cut != zframe.Whole:
		return nil, fmt.Errorf("the frame is cut after %d bytes", f.Length)
	case f.Content > int64(limit):
		return nil, errTooLong
	}
	if f.Small() {
		z.out, err = z.dec.Decode(z.out[:0], &z.src, f)
		if err != nil {
			return nil, err
		}
		if len(z.out) > limit {
			return nil, errTooLong
		}
		return z.out, nil
	}
	// Twice: what is too long must not be kept, and what is kept is kept once.
	n, err := io.Copy(io.Discard, io.LimitReader(z.dec.Open(&z.src, f), int64(limit)+1))
	switch {
	case n > int64(limit):
		return nil, errTooLong
	case err != nil:
		return nil, err
	}
	out := make([]byte, n)
	_, err = io.ReadFull(z.dec.Open(&z.src, f), out)
	return out, err
}

// A sourcesError says why a source_event_seqs value of schema 17 does not decode
// (PHYSICAL §5.5).
type sourcesError string

func (e sourcesError) Error() string {
	return "malformed source_event_seqs storage value: " + string(e)
}

const (
	errVarintCut   sourcesError = "truncated varint"
	errVarintForm  sourcesError = "non-canonical varint"
	errVarintRange sourcesError = "varint is out of range"
	errSeqRange    sourcesError = "decoded seq is out of range"
)

// appendSources appends the JSON array that a source_event_seqs value of schema
// 17 stands for: the first seq as a varint, then zigzag differences.
func appendSources(dst, v []byte) ([]byte, error) {
	dst = append(dst, '[')
	var seq int64
	last := 0 // where the last number begins
	for first := true; len(v) > 0; first = false {
		limit := uint64(maxSafe)
		if !first {
			limit = 2 * maxSafe
		}
		n, size, err := uvarint(v, limit)
		if err != nil {
			return dst, err
		}
		v = v[size:]
		if first {
			seq = int64(n)
		} else {
			d := int64(n >> 1)
			if n&1 == 1 {
				d = -d - 1
			}
			if seq += d; seq < 0 || seq > maxSafe {
				return dst, errSeqRange
			}
			end := len(dst)
			dst = append(dst, ',')
			if d == 1 { // as nearly always
				if dst = append(dst, dst[last:end]...); increment(dst[end+1:]) {
					last = end + 1
					continue
				}
				dst = dst[:end+1]
			}
		}
		last = len(dst)
		dst = appendInt(dst, seq)
	}
	return append(dst, ']'), nil
}

// uvarint reads one varint of at most limit, which is below 2^55.
func uvarint(v []byte, limit uint64) (n uint64, size int, err error) {
	for i, c := range v {
		low := uint64(c & 0x7f)
		if n |= low << (7 * i); n > limit {
			return 0, 0, errVarintRange
		}
		switch {
		case c < 0x80 && low == 0 && i > 0:
			return 0, 0, errVarintForm
		case c < 0x80:
			return n, i + 1, nil
		case i == 8:
			return 0, 0, errVarintRange
		}
	}
	return 0, 0, errVarintCut
}

// AppendSourceSeqs appends the source_event_seqs value of schema 17 for seqs. It
// is the inverse of what the reader does. It reports false if a seq is not a
// non-negative safe integer.
func AppendSourceSeqs(dst []byte, seqs []int64) ([]byte, bool) {
	for i, s := range seqs {
		if s < 0 || s > maxSafe {
			return dst, false
		}
		n := uint64(s)
		if i > 0 {
			if d := s - seqs[i-1]; d >= 0 {
				n = uint64(d) << 1
			} else {
				n = uint64(-d)<<1 - 1
			}
		}
		for ; n >= 0x80; n >>= 7 {
			dst = append(dst, byte(n)|0x80)
		}
		dst = append(dst, byte(n))
	}
	return dst, true
}

// salvage reads row by row where SQLite cannot read the session in one go: first
// the rows that the index names, then, if the index is damaged as well, those of
// the table in the order of writing.
type salvage struct {
	list  *sqlitedb.Stmt // seq and key of each row
	row   *sqlitedb.Stmt // one row by its key
	table bool           // list walks the table, the key is the rowid
	from  int64          // rows up to here were read before the walk
	some  bool           // there were any
	key   int64          // the last one listed
	begun bool           // there was one

	// The rows since the last one that could be read.
	lost        int64
	first, last int64
	err         error
	held        bool // row stands on a row that comes behind the defect for these
}

// broken begins to salvage after an error at the row behind s.last.
func (s *dbSource) broken(rec *record, err error) error {
	s.st.Close()
	s.st = &sqlitedb.Stmt{}
	s.salvage = &salvage{err: err}
	if err := s.walk(); err != nil {
		return err
	}
	return s.nextSalvaged(rec)
}

// walk starts to list the rows behind the last one.
func (s *dbSource) walk() error {
	v := s.salvage
	v.list.Close()
	v.row.Close()
	v.from, v.some, v.begun = s.last, s.any, false
	list, key := `SELECT seq, seq FROM events WHERE session_id = ?1 ORDER BY seq`, "seq"
	if v.table {
		// Without a condition, so that each step is one row.
		list, key = `SELECT seq, rowid, session_id FROM events NOT INDEXED ORDER BY rowid`, "rowid"
	}
	var err error
	if v.list, err = s.d.db.Prepare(list); err != nil {
		return fmt.Errorf("%s", sqlitedb.Message(err))
	}
	if !v.table {
		if err := v.list.BindRawText(1, s.key.raw); err != nil {
			return err
		}
	}
	v.row, err = s.prepare(`SELECT ` + s.columns() + ` FROM events WHERE session_id = ?1 AND ` + key + ` = ?2`)
	return err
}

// nextSalvaged yields a defect for each stretch of rows that cannot be read, and
// the rows between.
func (s *dbSource) nextSalvaged(rec *record) error {
	v := s.salvage
	if v.held {
		v.held = false
		s.decode(rec, v.row)
		return nil
	}
	for s.d.db.Step(v.list) {
		seq, key := v.list.ColumnInt64(0), v.list.ColumnInt64(1)
		if v.begun && key <= v.key {
			if v.err == nil {
				v.err = errOrder
			}
			break
		}
		v.key, v.begun = key, true
		if v.some && seq <= v.from || v.table && !bytes.Equal(v.list.ColumnRawText(2), s.key.raw) {
			continue
		}
		v.row.Reset()
		if err := v.row.BindInt64(2, key); err != nil {
			return err
		}
		if s.d.db.Step(v.row) {
			if v.lost == 0 && v.err == nil {
				s.decode(rec, v.row)
				return nil
			}
			v.held = true
			s.lostRows(rec)
			return nil
		}
		if v.lost++; v.lost == 1 {
			v.first = seq
		}
		v.last = seq
		if err := v.row.Err(); err != nil {
			v.err = err
		} else if v.err == nil {
			v.err = errors.New("the index names rows that are not in the table")
		}
		s.last, s.any = seq, true
	}
	err := v.list.Err()
	if v.err == nil {
		v.err = err
	}
	if !v.table && (err != nil || v.err == errOrder) {
		v.table = true
		if err := s.walk(); err != nil {
			return err
		}
		return s.nextSalvaged(rec)
	}
	s.done = true
	if v.lost == 0 && v.err == nil {
		return s.end()
	}
	s.lostRows(rec)
	return nil
}

// lostRows makes the record a defect for the rows that could not be read.
func (s *dbSource) lostRows(rec *record) {
	v := s.salvage
	rec.pos = nowhere
	rec.line, rec.packed, rec.value, rec.null, rec.facts, rec.whole = nil, false, false, false, 0, false
	rec.event = Event{Seq: -1}
	what := "the rows behind here"
	switch {
	case v.lost == 1:
		rec.pos.Row = v.first
		what = "row " + strconv.FormatInt(v.first, 10)
	case v.lost > 1:
		rec.pos.Row = v.first
		what = fmt.Sprintf("rows %d to %d", v.first, v.last)
	}
	fatal(rec, RuleDBPage, "%s cannot be read: %s", what, sqlitedb.Message(v.err))
	rec.defect.Err = v.err
	v.lost, v.err = 0, nil
}
