package logfmt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/sqlitedb"
)

// Options says how logs are opened. The zero value is ready.
type Options struct {
	// Skip, when set, is told of every file in a directory that is not read as a
	// log, with the reason.
	Skip func(path, reason string)
	// Finding, when set, is told what is to be said about a directory (Directory)
	// or an archive (ZIP) as a whole. What concerns the place of one log is a defect of that log,
	// without Class.
	Finding func(place string, c Container, d *Defect)
	// Session, when set, is the id of the one session to be read from a database
	// that holds several.
	Session string
}

// A Log is one opened log. Header, Container and the problems of opening are
// known at once; the rest comes with Events.
type Log struct {
	Path      string // as given by the caller; "-" is standard input
	Container Container
	Header    *Header // nil when there is no usable one

	// Of a log in a database.
	Session  string    // id of the session; known even when there is no header
	Database *Database // nil when the database could not be used at all

	// Archive is the export that the log was read from; nil for any other log.
	Archive *Archive
	// Sidecar is the summary beside a log of June 2026, when the log was found in a
	// session root; see ReadSummary.
	Sidecar *Summary

	scan     scanner
	opening  []*Defect // found before the first event
	stop     bool      // no events are read
	headless bool      // the first line is an event
	beside   bool      // there may be files beside the log that belong to it
	prepared bool      // they were looked at
	frames   FrameStats
	first    source // positioned behind the header; used by the first Events
	reopen   func() (source, error)
}

// Class is the physical soundness of the log, as far as it was read.
func (l *Log) Class() Class { return l.scan.class() }

// Defects lists the damage in order of appearance, as far as the log was read.
func (l *Log) Defects() []*Defect { return l.scan.defects }

// Kept is the number of events the harness would keep: those before the first
// defect.
func (l *Log) Kept() int64 { return l.scan.kept }

// Committed is the byte offset behind the last record the harness would keep.
// A harness that continues a torn log cuts it there. Of a Zstandard log it is the
// end in the file of the last complete frame, once the log was read to its end;
// Kept counts events behind it that were recovered from a cut frame.
func (l *Log) Committed() int64 { return l.scan.committed }

// Close releases the log. It need not be called on logs that Open yields.
func (l *Log) Close() error {
	if l.first == nil {
		return nil
	}
	src := l.first
	l.first = nil
	return src.close()
}

// Events reads the log from its first event to its end. Each step yields an
// event or a defect; a defect comes before the events of its record. Reading
// goes on behind defects. An event is valid until the next step.
//
// A file may be read several times; a stream yields a defect the second time.
func (l *Log) Events() iter.Seq2[*Event, *Defect] {
	return func(yield func(*Event, *Defect) bool) {
		for r, d := range l.Records() {
			if d != nil {
				if !yield(nil, d) {
					return
				}
				continue
			}
			for i := range r.Len() {
				if !yield(r.Event(i), nil) {
					return
				}
			}
		}
	}
}

// Records is Events for those who take the events of a packed row together. A
// record is valid until the next step.
func (l *Log) Records() iter.Seq2[*Record, *Defect] {
	return func(yield func(*Record, *Defect) bool) {
		l.reset()
		for _, d := range l.scan.defects {
			if !yield(nil, d) {
				return
			}
		}
		if l.stop {
			l.Close()
			return
		}
		src := l.first
		l.first = nil
		if src == nil {
			var err error
			if src, err = l.reopen(); err != nil {
				yield(nil, l.unreadable(err))
				return
			}
		}
		defer src.close()
		if f, ok := src.(interface{ finish(*Log) }); ok {
			defer f.finish(l)
		}

		s := &l.scan
		rec := record{gen: l.Header.Format()}
		var out Record
		for {
			if err := src.next(&rec); err == io.EOF {
				return
			} else if err != nil {
				yield(nil, l.unreadable(err))
				return
			}
			if d := s.judge(&rec, src); d != nil && !yield(nil, d) {
				return
			}
			if n := rec.count(); n > 0 {
				rec.event.AfterDamage = s.damaged
				if out.set(&rec, n); !yield(&out, nil) {
					return
				}
			}
		}
	}
}

// reset starts the scan again with what opening found.
func (l *Log) reset() {
	l.scan = scanner{file: l.Path, lastFirst: -1}
	s := &l.scan
	if l.Header != nil {
		s.committed = l.Header.Pos.Offset + l.Header.Pos.Length
	}
	for _, d := range l.opening {
		s.add(d)
		switch d.Class {
		case Corrupt:
			s.damaged, s.corrupt = true, true
		case Torn:
			s.torn = true // what is left is whole
		case Unsupported:
			s.unsupported = true
		case Unreadable:
			s.damaged, s.unreadable = true, true
		}
	}
}

func (l *Log) unreadable(err error) *Defect {
	l.scan.damaged, l.scan.unreadable = true, true
	return l.scan.add(&Defect{Rule: RuleRead, Class: Unreadable, Err: err, Seq: l.scan.expect,
		Pos:     Position{Offset: l.scan.committed, Frame: -1, FrameAt: -1, Row: -1, Member: -1},
		Message: "reading failed: " + err.Error()})
}

// NewReader opens a log that comes as a stream, under a name for messages. It
// reads the header, and waits for the line behind it. If r is an io.Closer, the
// log closes it.
//
// An error means that nothing could be read at all. Damage is no error.
func NewReader(r io.Reader, name string, o Options) (*Log, error) {
	c, _ := r.(io.Closer)
	return openInput(&input{path: name, r: r, closer: c, o: o})
}

// OpenFile opens the log in one file, whatever its container, or standard input
// when path is "-". The caller closes it. For a path that holds several logs use
// Open.
func OpenFile(path string, o Options) (*Log, error) {
	if path == "-" {
		// Standard input is not ours to close.
		return NewReader(struct{ io.Reader }{os.Stdin}, path, o)
	}
	f, err := os.Open(path)
	if err != nil {
		if archive, name, ok := splitEntry(path); ok {
			return openArchiveFile(archive, name, o)
		}
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.IsDir() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("is a directory")}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return openInput(&input{path: path, r: f, file: f, closer: f, o: o})
}

// openEach yields the logs in one file. It reports false when the iteration is
// over.
func openEach(path string, o Options, yield func(*Log, error) bool) bool {
	if isDatabase(path) {
		for l, err := range DatabaseLogs(path, o) {
			if !yield(l, err) {
				return false
			}
		}
		return true
	}
	if isArchive(path) {
		for l, err := range ArchiveLogs(path, o) {
			if !yield(l, err) {
				return false
			}
		}
		return true
	}
	l, err := OpenFile(path, o)
	if err != nil {
		return yield(nil, err)
	}
	defer l.Close()
	if k := kindOf(l.Container); k != nil && k.each != nil && !l.stop {
		return k.each(l, o, yield)
	}
	return yield(l, nil)
}

// Open yields every log at path: the one in a file or on standard input ("-"),
// or those of a directory and the directories in it, in order of their names. A
// directory that holds project directories or buckets is read as a session root
// (PHYSICAL §1); any other gives its files named session*.jsonl[.zstd], its session
// databases and its exports. An error stands for a path or log that could not be
// opened; the iteration goes on behind it. A log is closed when its step ends.
func Open(path string, o Options) iter.Seq2[*Log, error] {
	return func(yield func(*Log, error) bool) {
		if path == "-" {
			openEach(path, o, yield)
			return
		}
		st, err := os.Stat(path)
		if err != nil {
			yield(nil, err)
			return
		}
		if !st.IsDir() {
			openEach(path, o, yield)
			return
		}
		walk(path, o, yield)
	}
}

// isLogName reports whether a directory entry is taken for a log.
func isLogName(name string) bool {
	return strings.HasPrefix(name, "session") && strings.HasSuffix(strings.TrimSuffix(name, zstdSuffix), ".jsonl")
}

// input is what a container reads: a file, or a stream when file is nil.
type input struct {
	path   string
	file   *os.File
	r      io.Reader // from the first byte on, whatever was looked at already
	closer io.Closer // may be nil
	head   []byte    // the first bytes
	once   bool      // the file can be read only once, like a pipe
	o      Options
}

func (in *input) close() {
	if in.closer != nil {
		in.closer.Close()
	}
}

// A kind is a container that shows itself by its first bytes (PHYSICAL §10).
type kind struct {
	magic     string
	container Container
	name      string
	// open makes the input a log: it sets first, Header and opening, and reopen
	// when the input can be read again. The source owns the input from then on.
	// Nil marks a container that is recognised but not read.
	open func(l *Log, in *input) error
	// each yields the logs of a container that may hold several, given what open
	// made of the input. It reports what yield reported last.
	each func(l *Log, o Options, yield func(*Log, error) bool) bool
}

func kindOf(c Container) *kind {
	for _, k := range kinds() {
		if k.container == c {
			return &k
		}
	}
	return nil
}

// kinds is the one place where containers are known. What has none of these magic
// bytes is taken for frames, if isZstd says so, or for lines. It is a function
// because a container may hold logs in other containers.
func kinds() []kind {
	return []kind{
		{magic: sqlitedb.Magic, container: SQLite, name: "an SQLite database", open: openSQLite},
		{magic: "PK\x03\x04", container: ZIP, name: "a ZIP archive", open: openZIP},
		{magic: "PK\x05\x06", container: ZIP, name: "an empty ZIP archive", open: openZIP},
	}
}

// sniffLen is how many bytes the first look takes.
const sniffLen = 512

// openInput looks at the first bytes and opens what they are.
func openInput(in *input) (*Log, error) {
	l := &Log{Path: in.path, Container: Plain}
	l.reopen = func() (source, error) {
		return nil, errors.New("a stream can be read only once")
	}
	l.reset()
	head := make([]byte, sniffLen)
	n, err := io.ReadFull(in.r, head)
	in.head = head[:n]
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		in.r = bytes.NewReader(in.head)
	case err != nil:
		in.close()
		return nil, err
	default:
		in.r = io.MultiReader(bytes.NewReader(in.head), in.r)
	}

	open := openPlain
	if isZstd(l.Path, in.head) {
		l.Container, open = Zstd, openZstd
	}
	for _, k := range kinds() {
		if bytes.HasPrefix(in.head, []byte(k.magic)) {
			l.Container = k.container
			if open = k.open; open == nil {
				open = func(l *Log, in *input) error {
					l.refuse(Unsupported, RuleFormat, k.name+": this build reads plain JSONL only", "")
					return nil
				}
			}
			break
		}
	}
	err = open(l, in)
	if err != nil {
		in.close()
		return nil, err
	}
	l.misnamed(in.head)
	if in.file != nil {
		if st, err := in.file.Stat(); err != nil || !st.Mode().IsRegular() {
			in.once = true
		}
	}
	if !in.once {
		l.findCut()
	}
	if l.stop || l.first == nil {
		in.close()
		l.first = nil
	}
	l.reset()
	return l, nil
}

// openPlain opens plain JSONL.
func openPlain(l *Log, in *input) error {
	if log, err := logBehind(in); err != nil {
		return err
	} else if !log {
		hint := noLogHint
		if bytes.HasPrefix(in.head, []byte("\xff\xfe")) || bytes.HasPrefix(in.head, []byte("\xfe\xff")) {
			hint = "the file begins like text in UTF-16; if some program converted a log, convert it back to UTF-8 without byte order mark"
		}
		l.refuse(Unreadable, RuleHeader, "not a session log: binary data of no known kind", hint)
		return nil
	}
	if in.file != nil {
		l.beside = true
		l.reopen = func() (source, error) {
			f, err := os.Open(in.path)
			if err != nil {
				return nil, err
			}
			return l.behindHeader(newLineSource(f, f))
		}
	}
	return l.openLines(newLineSource(in.r, in.closer))
}

// behindHeader moves a new source of lines to where openLines left the first one.
func (l *Log) behindHeader(src *lineSource) (source, error) {
	l.fixture(src)
	if l.headless {
		return src, nil
	}
	// At the end the file has shrunk since; what is left of it is no log.
	if _, _, err := src.lines.next(); err != nil && err != io.EOF {
		src.close()
		return nil, err
	}
	return src, nil
}

// openLines reads the header record from the first line of src.
func (l *Log) openLines(src *lineSource) error {
	l.first = src
	line, torn, err := src.lines.next()
	pos := src.pos()
	var long *longLine
	switch {
	case err == io.EOF:
		pos.Line = 1
		l.refuse(Corrupt, RuleHeader, "the file is empty, expected a header record", "nothing was ever written, or the content is lost")
		l.opening[0].Pos = pos
		return nil
	case errors.As(err, &long):
		l.refuse(Unsupported, RuleLong, "header record: "+long.Error(), "")
		pos.Offset, pos.Length = long.off, long.n
		l.opening[0].Pos = pos
		return nil
	case err != nil:
		return err
	case torn:
		h, d := parseHeader(line, pos)
		msg := fmt.Sprintf("header record: cut after %s, expected the rest of it and a line feed", bytesOf(len(line)))
		if h != nil {
			msg = "header record: no line feed behind it"
		}
		at := int64(len(line))
		if d != nil && (d.Err == nil || !headerish(line, true)) {
			if d.Class == Unsupported {
				l.opening, l.stop = []*Defect{d}, true
				return nil
			}
			if d.Err != nil || otherJSON(line) {
				l.refuse(Unreadable, RuleHeader, "not a session log: "+strings.TrimPrefix(d.Message, "header record: "), noLogHint)
				l.opening[0].Pos, l.opening[0].At = pos, d.At
				return nil
			}
			msg, at = d.Message, d.At
		}
		l.refuse(Corrupt, RuleHeader, msg, "the harness opens no log without a complete first line")
		l.opening[0].Pos, l.opening[0].At = pos, at
		return nil
	}

	h, d := parseHeader(line, pos)
	l.Header = h
	if d != nil {
		l.opening = append(l.opening, d)
	}
	second, more := src.lines.peek()
	switch {
	case more && isProjected(second) && (d == nil || headerish(line, false)):
		l.Container = Golden
		if l.Header, d = readHeader(line, pos, true); d == nil {
			l.opening = nil
		} else {
			l.opening = []*Defect{d}
			l.stop = d.Class == Unsupported && (l.Header == nil || l.Header.Fault&HeaderRetired == 0)
		}
	case d != nil && d.Class == Unsupported && (h == nil || h.Fault&HeaderRetired == 0):
		l.stop = true
	case d != nil && (d.Err != nil && !headerish(line, false) || otherJSON(line)) && !recordsIn(src.lines.lookAhead(recordLines, damagedStart)):
		d.Class = Unreadable
		d.Message = "not a session log: " + strings.TrimPrefix(d.Message, "header record: ")
		d.Hint = noLogHint
		if t := bytes.TrimSpace(line); more && len(t) == 1 && (t[0] == '{' || t[0] == '[') {
			d.Hint = "this is JSON over several lines; a log holds one object a line, and `jq -c .` makes it so again if some program has laid it out"
		}
		l.stop = true
	case h == nil && d.Class == Corrupt && looksLikeRecord(line):
		l.headless, src.again = true, true
	}
	l.fixture(src)
	return nil
}

// fixture sets up what a source needs to read a fixture as the log it was made
// from.
func (l *Log) fixture(src *lineSource) {
	if l.Container == Golden {
		src.project = &projection{}
	}
	if !l.beside {
		return
	}
	s, defects := readSnapshots(l.Path)
	src.snapshots = s
	if !l.prepared {
		l.opening = append(l.opening, defects...)
	}
	l.prepared = true
}

// refuse makes the log one without events.
func (l *Log) refuse(class Class, rule, message, hint string) {
	l.opening = []*Defect{{Rule: rule, Class: class, Seq: -1, Message: message, Hint: hint,
		Pos: Position{Frame: -1, FrameAt: -1, Row: -1, Member: -1}}}
	l.stop = true
}

// damagedStart is how far a log is looked for behind bytes that are no text: a few
// blocks of a disk that were never written.
const damagedStart = 1 << 20

// logBehind reports whether a text may be a log. One that begins with bytes that
// are no text is when its header or records of it stand behind them.
func logBehind(in *input) (bool, error) {
	if !notText(in.head) {
		return true, nil
	}
	head := make([]byte, damagedStart)
	n, err := io.ReadFull(in.r, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return false, err
	}
	head = head[:n]
	in.r = io.MultiReader(bytes.NewReader(head), in.r)
	return headerish(head, false) || recordsIn(head), nil
}

// notText reports whether bytes cannot be the start of any log: they hold a NUL
// and do not begin like JSON.
func notText(head []byte) bool {
	t := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	return len(t) > 0 && t[0] != '{' && bytes.IndexByte(t, 0) >= 0
}

// noLogHint says what a log looks like to whoever named something else.
const noLogHint = `a log is a text whose first line is its header record, {"type":"session",...}; name one, or a session database or an export`

// headerish reports whether a line that is no JSON at least starts like a header,
// or holds most of the members of one; when it is cut, whether it may have become
// one.
func headerish(line []byte, cut bool) bool {
	const start = `{"type":"session"`
	if n := min(len(line), len(start)); cut && n > 0 && string(line[:n]) == start[:n] {
		return true
	}
	if bytes.Contains(line, []byte(`"type":"session"`)) {
		return true
	}
	n := 0
	for _, key := range [...]string{`"version":`, `"id":`, `"createdAt":`, `"cwd":"`, `"parentSession":"`, `"seedLength":`, `"isSeeded":`, `"delegationDepth":`, `"agentPreset":"`} {
		if bytes.Contains(line, []byte(key)) {
			n++
		}
	}
	return n >= 3
}

// otherJSON reports whether a line is JSON and neither a header record nor an
// event with one or two members damaged: a recording of requests, say, or the
// manifest of a package. That a header is one shows in members of the right kind,
// among them one that only logs have or the number of a generation; it has more of
// these than of others. What stands behind the line is for the caller to look at.
func otherJSON(line []byte) bool {
	canon, _, err := jsjson.Stringify(line)
	if err != nil {
		return false
	}
	if canon[0] != '{' {
		return true
	}
	known, other, own, event := 0, 0, false, 0
	is := func(ours, ok bool) {
		if ok {
			known++
			own = own || ours
		} else {
			other++
		}
	}
	for k, v := range jsjson.Members(canon) {
		kind := jsjson.KindOf(v)
		switch key, _ := jsjson.Str(k); key {
		case "type":
			if jsjson.StrEq(v, "session") {
				return false
			}
			if kind == jsjson.String {
				event++
			}
		case "version":
			n, ok := safeInt(v)
			is(ok && GenerationOf(n) != nil, kind == jsjson.Number)
		case "id":
			is(false, kind == jsjson.String)
		case "createdAt":
			is(false, kind == jsjson.Number)
		case "cwd":
			is(false, kind == jsjson.String)
		case "parentSession", "agentPreset", "origin":
			is(true, kind == jsjson.String)
		case "seedLength", "delegationDepth":
			is(true, kind == jsjson.Number)
		case "isSeeded":
			is(true, kind == jsjson.Bool)
		case "seq", "time", "seq0", "time0":
			if kind == jsjson.Number {
				event++
			}
		case "data":
			event++
		default:
			other++
		}
	}
	return event < 3 && !(known >= 2 && own && other < known)
}

// recordLines is how many lines behind a damaged start are looked at.
const recordLines = 32

// recordsIn reports whether some line of a text is a record of a log, also of a
// projected one. It looks at whole lines, and no further than a damaged start may
// reach.
func recordsIn(text []byte) bool {
	for range recordLines {
		line, rest, found := bytes.Cut(text, []byte{'\n'})
		if !found {
			return false
		}
		if looksLikeRecord(line) || isProjected(line) && bytes.IndexByte(line[:min(len(line), 60)], '/') >= 0 {
			return true
		}
		text = rest
	}
	return false
}

// looksLikeRecord reports whether a line reads as an event or a packed row.
func looksLikeRecord(line []byte) bool {
	var rec record
	rec.parse(line, Position{})
	return rec.defect == nil && !rec.value && (rec.packed || rec.event.Seq >= 0)
}

// isProjected reports whether a line is a row of a projected fixture: an event
// or packed row without seq and time, its keys beginning type, data (PHYSICAL
// §1.7).
func isProjected(line []byte) bool {
	var rec record
	rec.parse(line, Position{})
	env := &rec.env
	f := &env.field
	return !rec.value && f[fType] != nil && f[fData] != nil && bytes.HasPrefix(line, []byte(`{"type":`)) &&
		f[fSeq] == nil && f[fTime] == nil && f[fSeq0] == nil && f[fTime0] == nil
}
