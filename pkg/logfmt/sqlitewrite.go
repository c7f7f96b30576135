package logfmt

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/dsh-audit/dsh-audit/internal/sqlitedb"
	"github.com/dsh-audit/dsh-audit/internal/zframe"
)

// minCompressed is the shortest data that is compressed (PHYSICAL §5.4).
const minCompressed = 4096

// A DatabaseWriter writes sessions into a new database of schema 17 (PHYSICAL
// §4.5, §5.2 to §5.6). The file is worth nothing until Close has returned without
// error; any other error leaves it to Abort.
//
//	w, err := CreateDatabase(path)
//	err = w.Begin(header)
//	err = w.Add(event) // in order, as often as there are events
//	err = w.Flush()    // where a batch ends; Begin and Close end one as well
//	err = w.Close()
type DatabaseWriter struct {
	// NewID makes the id of the store and the incarnation of each session. It is
	// random unless it is set, before the first Begin.
	NewID func() string

	db       *sqlitedb.Writer
	insert   *sqlitedb.Stmt
	session  *sqlitedb.Stmt
	revision *sqlitedb.Stmt
	zstd     *zframe.BlobEncoder
	blob     []byte

	id      string // of the open session
	open    bool
	next    int64 // seq
	batch   bool  // the batch holds events
	batches int64

	packer Packer
	text   []byte // the events of the open run
	ends   []int  // of each of them in text
	run    []delta
	full   int // bytes of text at which to look whether the run overflows a row

	ev    Event // of AddJSON
	one   Event // of a delta that is not packed
	env   envelope
	names nameCache
	buf   []byte
	seqs  []int64
}

// CreateDatabase makes a new database. The file must not exist.
func CreateDatabase(path string) (*DatabaseWriter, error) {
	db, err := sqlitedb.Create(path)
	if err != nil {
		return nil, err
	}
	return &DatabaseWriter{db: db, NewID: randomUUID}, nil
}

// randomUUID is a UUID of version 4.
func randomUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	s := hex.EncodeToString(b[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// start creates the tables.
func (w *DatabaseWriter) start() error {
	sql := fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = 17;", storeID)
	for _, name := range []string{"persistence_state", "sessions", "events"} {
		i := slices.IndexFunc(schema17, func(d struct{ name, sql string }) bool { return d.name == name })
		sql += schema17[i].sql + ";"
	}
	if err := w.db.Exec(sql); err != nil {
		return err
	}
	state, err := w.db.Prepare(`INSERT INTO persistence_state VALUES (1, ?)`)
	if err != nil {
		return err
	}
	if err := errors.Join(state.BindText(1, w.NewID()), state.Exec(), state.Close()); err != nil {
		return err
	}
	if w.session, err = w.db.Prepare(`INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)`); err != nil {
		return err
	}
	if w.insert, err = w.db.Prepare(`INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)`); err != nil {
		return err
	}
	if w.revision, err = w.db.Prepare(`UPDATE sessions SET revision = ? WHERE id = ?`); err != nil {
		return err
	}
	w.zstd = zframe.NewBlobEncoder()
	return nil
}

// Begin starts a session. It refuses what the harness would refuse to read back,
// and what a database cannot hold.
func (w *DatabaseWriter) Begin(h *Header) error {
	if w.session == nil {
		if err := w.start(); err != nil {
			return err
		}
	}
	if err := w.endSession(); err != nil {
		return err
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("header record: "+format+": a database of schema 17 does not take it", args...)
	}
	switch {
	case h.ID == "":
		return bad("the id is empty")
	case h.Version != 0:
		return bad("version %d", h.Version)
	case h.CreatedAt < 0 || h.CreatedAt > maxSafe || h.Fault&HeaderCreatedAt != 0:
		return bad("createdAt is not a non-negative safe integer")
	case h.Fault&HeaderCwd != 0 || h.Cwd != nil && !absolute(*h.Cwd):
		return bad("cwd is not an absolute path")
	case h.Fault&HeaderParent != 0:
		return bad("parentSession is not a string")
	case h.Fault&HeaderSeed != 0 || h.SeedLength != nil && (*h.SeedLength < 0 || *h.SeedLength > maxSafe):
		return bad("seedLength is not a non-negative safe integer")
	case h.Origin != nil && *h.Origin != "subagent":
		return bad("origin %q", *h.Origin)
	case h.DelegationDepth != nil && (*h.DelegationDepth < 0 || *h.DelegationDepth > maxSafe):
		return bad("delegationDepth is not a non-negative safe integer")
	}
	for _, s := range []struct {
		name  string
		value *string
	}{{"id", &h.ID}, {"cwd", h.Cwd}, {"parentSession", h.ParentSession}, {"agentPreset", h.AgentPreset}} {
		if s.value != nil && !utf8.ValidString(*s.value) {
			return bad("%s holds half of a surrogate pair", s.name)
		}
	}
	st := w.session
	str := func(i int, s *string) error {
		if s == nil {
			return st.BindNull(i)
		}
		return st.BindText(i, *s)
	}
	num := func(i int, n *int64) error {
		if n == nil {
			return st.BindNull(i)
		}
		return st.BindInt64(i, *n)
	}
	err := errors.Join(
		st.BindText(1, h.ID), st.BindInt64(2, 0), st.BindInt64(3, h.CreatedAt), str(4, h.Cwd), str(5, h.ParentSession),
		num(6, h.SeedLength), str(7, h.Origin), num(8, h.DelegationDepth), str(9, h.AgentPreset), st.BindText(10, w.NewID()))
	if err == nil {
		err = st.Exec()
	}
	if err != nil {
		return fmt.Errorf("session %q: %s", h.ID, sqlitedb.Message(err))
	}
	w.id, w.open, w.next, w.batches, w.full = h.ID, true, 0, 0, maxRowBytes
	return nil
}

// AddJSON adds the event that is the given canonical JSON.
func (w *DatabaseWriter) AddJSON(event []byte) error {
	w.ev = Event{JSON: event}
	parseEnvelope(event, &w.ev, &w.env, &w.names)
	if w.env.shape != shapeEvent {
		return fmt.Errorf("seq %d: %s is no event", w.next, clip(event))
	}
	return w.Add(&w.ev)
}

// Add adds the next event. Runs of chunk deltas become packed rows, within one
// batch. An event that the columns cannot hold is an error.
func (w *DatabaseWriter) Add(e *Event) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("seq %d: %s: a database of schema 17 has no place for it", w.next, fmt.Sprintf(format, args...))
	}
	switch {
	case !w.open:
		return errors.New("an event before its session")
	case e.Fault&FaultSeq != 0 || e.Seq != w.next:
		return fmt.Errorf("expected seq %d, got %d", w.next, e.Seq)
	case e.Fault&FaultType != 0 || e.Type == "":
		return bad("a type that is no name")
	case !utf8.ValidString(e.Type):
		return bad("a type that holds half of a surrogate pair")
	case e.Fault&FaultTime != 0:
		return bad("a time that is no safe integer")
	case e.Data == nil:
		return bad("no data")
	case e.Fault&FaultExtraKey != 0:
		return bad("a member outside the envelope")
	case e.Fault&FaultIgnorable != 0:
		return bad("an ignorable other than true")
	}
	if e.Sources != nil {
		var ok bool
		if w.seqs, ok = e.SourceSeqs(w.seqs[:0]); !ok {
			return bad("sourceEventSeqs that are no list of seqs")
		}
	}
	w.batch = true
	d, ok := w.packer.delta(e.JSON)
	ok = ok && d.seq == e.Seq
	if n := len(w.ends); n > 0 {
		last := w.member(n - 1)
		if !ok || !last.extends(&d) {
			if err := w.pack(true); err != nil {
				return err
			}
		}
	}
	w.next++
	if !ok {
		return w.scalar(e)
	}
	w.text = append(w.text, e.JSON...)
	w.ends = append(w.ends, len(w.text))
	if len(w.ends) >= maxMembers || len(w.text) > w.full {
		return w.pack(false)
	}
	return nil
}

// member reads delta i of the run; its slices are parts of the text.
func (w *DatabaseWriter) member(i int) delta {
	at := 0
	if i > 0 {
		at = w.ends[i-1]
	}
	d, _ := w.packer.delta(w.text[at:w.ends[i]])
	return d
}

// scalar writes a row of one event.
func (w *DatabaseWriter) scalar(e *Event) error {
	if err := w.row(e.Seq, e.Type, e.Time, e.Data); err != nil {
		return err
	}
	st := w.insert
	var err error
	if e.Sources != nil {
		var ok bool
		if w.buf, ok = AppendSourceSeqs(w.buf[:0], w.seqs); !ok {
			return fmt.Errorf("seq %d: sourceEventSeqs out of range", e.Seq)
		}
		if w.buf == nil {
			w.buf = []byte{} // an empty list is an empty BLOB, not NULL
		}
		err = st.BindBlob(6, w.buf)
	} else {
		err = st.BindNull(6)
	}
	if e.Op != nil {
		err = errors.Join(err, st.BindRawText(7, e.Op))
	} else {
		err = errors.Join(err, st.BindNull(7))
	}
	if e.Ignorable {
		err = errors.Join(err, st.BindInt64(8, 1))
	} else {
		err = errors.Join(err, st.BindNull(8))
	}
	return w.exec(e.Seq, err)
}

// row binds the columns that all rows have.
func (w *DatabaseWriter) row(seq int64, typ string, time int64, data []byte) error {
	st := w.insert
	err := errors.Join(st.BindText(1, w.id), st.BindInt64(2, seq), st.BindText(3, typ), st.BindInt64(4, time))
	if len(data) >= minCompressed {
		if w.blob = w.zstd.Append(w.blob[:0], data); len(w.blob) < len(data) {
			return errors.Join(err, st.BindBlob(5, w.blob))
		}
	}
	return errors.Join(err, st.BindRawText(5, data))
}

func (w *DatabaseWriter) exec(seq int64, err error) error {
	if err == nil {
		err = w.insert.Exec()
	}
	if err != nil {
		return fmt.Errorf("seq %d: %s", seq, sqlitedb.Message(err))
	}
	return nil
}

// pack writes the open run: greedily as many events a row as the limits allow,
// the rest as rows of their own (PHYSICAL §4.5). Unless the run has ended, what
// more events may join is kept.
func (w *DatabaseWriter) pack(ended bool) error {
	w.run = w.run[:0]
	for i := range w.ends {
		w.run = append(w.run, w.member(i))
	}
	i := 0
	for i < len(w.run) {
		rest := len(w.run) - i
		if !ended && rest < minMembers {
			break
		}
		n := w.fits(i, min(rest, maxMembers))
		if !ended && n == rest && n < maxMembers {
			break
		}
		if n >= minMembers {
			if err := w.packed(w.run[i : i+n]); err != nil {
				return err
			}
			i += n
			continue
		}
		at := 0
		if i > 0 {
			at = w.ends[i-1]
		}
		parseEnvelope(w.text[at:w.ends[i]], &w.one, &w.env, &w.names)
		if err := w.scalar(&w.one); err != nil {
			return err
		}
		i++
	}
	if i > 0 {
		cut := w.ends[i-1]
		w.text = append(w.text[:0], w.text[cut:]...)
		w.ends = append(w.ends[:0], w.ends[i:]...)
		for k := range w.ends {
			w.ends[k] -= cut
		}
	}
	w.full = len(w.text) + maxRowBytes
	return nil
}

// fits returns how many of n deltas from i on fit into one row, 0 if fewer than
// a row needs.
func (w *DatabaseWriter) fits(i, n int) int {
	if n < minMembers {
		return 0
	}
	size := func(n int) bool {
		w.buf = appendPacked(w.buf[:0], w.run[i:i+n])
		return len(w.buf) <= maxRowBytes
	}
	if size(n) {
		return n
	}
	if !size(minMembers) {
		return 0
	}
	low, high := minMembers, n-1
	for low < high {
		if mid := (low + high + 1) / 2; size(mid) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// appendPacked appends the data of a packed row.
func appendPacked(b []byte, run []delta) []byte {
	d := &run[0]
	b = append(append(b, `{"turn":`...), d.turn...)
	b = append(append(b, `,"step":`...), d.step...)
	b = append(append(b, `,"index":`...), d.index...)
	b = append(b, `,"dt":[`...)
	for i := 1; i < len(run); i++ {
		if i > 1 {
			b = append(b, ',')
		}
		b = appendInt(b, run[i].time-run[i-1].time)
	}
	key := `],"texts":[`
	if d.tag == rowToolCall {
		b = append(append(b, `],"id":`...), d.id...)
		if d.name != nil {
			b = append(append(b, `,"name":`...), d.name...)
		}
		key = `,"args":[`
	}
	b = append(b, key...)
	for i := range run {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, run[i].text...)
	}
	return append(b, "]}"...)
}

// packed writes a packed row.
func (w *DatabaseWriter) packed(run []delta) error {
	w.buf = appendPacked(w.buf[:0], run)
	st := w.insert
	err := w.row(run[0].seq, run[0].tag, run[0].time, w.buf)
	return w.exec(run[0].seq, errors.Join(err, st.BindNull(6), st.BindNull(7), st.BindInt64(8, 0)))
}

// Flush ends a batch: no packed row crosses it.
func (w *DatabaseWriter) Flush() error {
	if err := w.pack(true); err != nil {
		return err
	}
	if w.batch {
		w.batches++
	}
	w.batch = false
	return nil
}

// endSession writes what is left of the open session.
func (w *DatabaseWriter) endSession() error {
	if !w.open {
		return nil
	}
	w.open = false
	err := w.Flush()
	if err == nil {
		err = errors.Join(w.revision.BindInt64(1, w.batches), w.revision.BindText(2, w.id), w.revision.Exec())
	}
	return err
}

// Close ends the last session and makes the file durable. On an error the file
// is removed.
func (w *DatabaseWriter) Close() error {
	var err error
	if w.session == nil {
		err = w.start()
	}
	if err == nil {
		err = w.endSession()
	}
	if err != nil {
		w.db.Abort()
		return err
	}
	return w.db.Close()
}

// Abort throws the database away.
func (w *DatabaseWriter) Abort() error { return w.db.Abort() }
