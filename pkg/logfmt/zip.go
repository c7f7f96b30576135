package logfmt

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/plural"
)

// Rules about export archives (PHYSICAL §1.7).
const (
	RuleZipDirectory = "ZIP-DIRECTORY" // the list of entries is missing or damaged
	RuleZipName      = "ZIP-NAME"      // an entry has a name that leads elsewhere
	RuleZipTwice     = "ZIP-DUPLICATE" // two entries have one name
	RuleZipMethod    = "ZIP-METHOD"    // an entry is encrypted, or compressed in an unknown way
	RuleZipBomb      = "ZIP-BOMB"      // an entry unfolds beyond all measure, or shares its bytes with another
	RuleZipData      = "ZIP-DATA"      // the bytes of an entry are damaged
	RuleZipEntry     = "ZIP-ENTRY"     // an entry that no export has, or that no log refers to
	RuleZipHash      = "ZIP-HASH"      // an attachment is not the one its name says
	RuleZipMedia     = "ZIP-MEDIA"     // an attachment that a log refers to is not there
	RuleZipIdentity  = "ZIP-IDENTITY"  // a log lies under the name of another session
)

const (
	archiveSep = "!" // stands between the path of an archive and the name of an entry
	rootEntry  = "session.jsonl"

	// Bounds against hostile archives. The list of entries is held in memory, an
	// entry is not.
	maxDirectory = 8 << 20  // bytes of the list of entries
	bombSize     = 64 << 20 // an entry up to this size may be as dense as it likes
	bombRatio    = 400      // a log with its running numbers stays far below
)

// An Archive is the export that a log was read from. It is valid as long as the
// log is open.
type Archive struct {
	Path string
	// Complete tells that the list of entries was read to its end: an attachment
	// that is not among them is missing.
	Complete bool

	media    map[string]*entry // by attachment id
	referred map[string]bool
	judged   int // logs of which every reference was told
}

// Medium looks for an attachment. It returns the extension of its entry, without
// the dot, and its size; false when there is none.
func (a *Archive) Medium(id string) (ext string, size int64, ok bool) {
	e := a.media[id]
	if e == nil {
		return "", 0, false
	}
	return strings.TrimPrefix(path.Ext(e.name), "."), e.size, true
}

// Refer tells that a log refers to an attachment.
func (a *Archive) Refer(id string) {
	if a.media[id] != nil {
		a.referred[id] = true
	}
}

// Judged tells that every attachment which a log refers to was told.
func (a *Archive) Judged() { a.judged++ }

// entry is a file in an archive.
type entry struct {
	name    string
	at      int64 // of its data in the archive; -1 when it has none
	packed  int64 // bytes of its data
	size    int64 // as the archive says; -1 when it does not
	method  uint16
	crypted bool
	cut     bool // the archive ends within it
	open    func() (io.ReadCloser, error)
	refused *Defect
}

// archive is an open export.
type archive struct {
	Archive
	file     *os.File
	uses     int
	logs     []*entry // the session itself, then its subagents by name
	media    []*entry
	findings []*Defect
}

func (a *archive) use() *archive { a.uses++; return a }

func (a *archive) close() error {
	if a.uses--; a.uses > 0 {
		return nil
	}
	return a.file.Close()
}

func (a *archive) find(rule string, class Class, name, hint, format string, args ...any) *Defect {
	d := placed(rule, a.Path, hint, format, args...)
	if d.Class = class; name != "" {
		d.File += archiveSep + name
	}
	a.findings = append(a.findings, d)
	return d
}

// openArchive reads the list of entries of an export.
func openArchive(path string) (*archive, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	a := &archive{Archive: Archive{Path: path, media: map[string]*entry{}, referred: map[string]bool{}}, file: f}
	a.use()
	if err := a.read(inside{f, st.Size()}, st.Size()); err != nil {
		f.Close()
		return nil, err
	}
	return a, nil
}

// read lists the entries. The error is one of reading; damage is a finding.
func (a *archive) read(r io.ReaderAt, size int64) error {
	entries, err := listEntries(a, r, size)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	var taken []*entry
	for i, e := range entries {
		if strings.HasSuffix(e.name, "/") && hostileName(e.name) == "" {
			continue
		}
		if why := hostileName(e.name); why != "" {
			a.find(RuleZipName, "", "", "it is not read; whoever made this archive wants a careless program to write outside its folder",
				"entry %d is named %q: %s", i, clip([]byte(e.name)), why)
			continue
		}
		if names[e.name] {
			a.find(RuleZipTwice, "", e.name, "the first is judged; programs differ in which of the two they take", "entry %d has the name of an earlier one", i)
			continue
		}
		names[e.name] = true
		switch kind, id := entryKind(e.name); kind {
		case entryLog:
			a.logs = append(a.logs, e)
		case entryMedium:
			a.media = append(a.media, e)
			if a.Archive.media[id] != nil {
				a.find(RuleZipTwice, "", e.name, "the first is judged", "the attachment is there twice, under two extensions")
				continue
			}
			a.Archive.media[id] = e
		default:
			a.find(RuleZipEntry, "", e.name, "it is not read", "no export has an entry of this name")
			continue
		}
		taken = append(taken, e)
	}
	a.bound(taken)
	slices.SortStableFunc(a.logs, func(x, y *entry) int {
		if (x.name == rootEntry) != (y.name == rootEntry) {
			if x.name == rootEntry {
				return -1
			}
			return 1
		}
		return strings.Compare(x.name, y.name)
	})
	return nil
}

// bound refuses the entries that are not to be unfolded.
func (a *archive) bound(taken []*entry) {
	refuse := func(e *entry, rule, hint, format string, args ...any) {
		e.refused = placed(rule, "", hint, format, args...)
		e.refused.Class = Unsupported
	}
	for _, e := range taken {
		switch {
		case e.crypted:
			refuse(e, RuleZipMethod, "unpack it with its password, and judge the files", "the entry is encrypted")
		case e.method != zip.Store && e.method != zip.Deflate:
			refuse(e, RuleZipMethod, "unpack it with another program, and judge the files", "the entry is compressed by method %d, this build reads stored (0) and deflated (8) ones", e.method)
		case e.size > bombSize && e.size/bombRatio > e.packed:
			refuse(e, RuleZipBomb, "if the archive is trusted, unpack it and judge the files", "%d bytes unfold into %d: no log and no picture is that dense", e.packed, e.size)
		case e.method == zip.Store && e.size >= 0 && e.size != e.packed:
			refuse(e, RuleZipDirectory, "", "the entry is stored, but takes %d bytes for %d", e.packed, e.size)
			e.refused.Class = Corrupt
		}
	}
	// Entries that share bytes unfold without bound, each into all of them.
	order := slices.Clone(taken)
	slices.SortStableFunc(order, func(x, y *entry) int {
		if x.at != y.at {
			if x.at < y.at {
				return -1
			}
			return 1
		}
		return 0
	})
	var last *entry
	for _, e := range order {
		if e.at < 0 {
			continue
		}
		if last != nil && e.at < last.at+last.packed {
			if e.refused == nil {
				refuse(e, RuleZipBomb, "the archive is made to unfold without end; do not unpack it", "the entry shares its bytes with %s", last.name)
			}
			if e.at+e.packed <= last.at+last.packed {
				continue
			}
		}
		last = e
	}
}

// listEntries reads the list of entries, or finds them one by one when there is none.
func listEntries(a *archive, r io.ReaderAt, size int64) ([]*entry, error) {
	start, why, err := directory(r, size)
	if err != nil {
		return nil, err
	}
	if why == "" && size-start > maxDirectory {
		a.find(RuleZipDirectory, Unsupported, "", "no export has so many entries", "the list of entries takes %d bytes, this build reads at most %d", size-start, maxDirectory)
		return nil, nil
	}
	var z *zip.Reader
	if why == "" {
		z, err = zip.NewReader(r, size)
		if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
			if !damaged(err) {
				return nil, err
			}
			why = "the list of entries at byte " + fmt.Sprint(start) + " does not read: " + strings.TrimPrefix(err.Error(), "zip: ")
		}
	}
	if why != "" {
		es, err := scanEntries(r, size)
		what := "nothing"
		if len(es) > 0 {
			what = times(int64(len(es)), "entry", "entries")
		}
		a.find(RuleZipDirectory, Corrupt, "", "get the archive again: the copy was cut short or changed", "%s; %s found without it", why, what)
		return es, err
	}
	a.Complete = true
	var es []*entry
	for _, f := range z.File {
		e := &entry{
			name: f.Name, at: -1, packed: int64(min(f.CompressedSize64, 1<<62)), size: int64(min(f.UncompressedSize64, 1<<62)),
			method: f.Method, crypted: f.Flags&0x41 != 0, open: f.Open,
		}
		es = append(es, e)
		if e.packed == 0 && e.size == 0 {
			continue
		}
		if at, err := f.DataOffset(); err == nil {
			e.at = at
		} else if !damaged(err) {
			return nil, err
		}
	}
	return es, nil
}

// directory finds where the list of entries starts at the earliest. why says why it is not there.
func directory(r io.ReaderAt, size int64) (start int64, why string, err error) {
	const endLen, most = 22, 22 + 65535
	tail := make([]byte, min(size, most))
	if err := readFull(r, tail, size-int64(len(tail))); err != nil {
		return 0, "", err
	}
	for i := len(tail) - endLen; i >= 0; i-- {
		if string(tail[i:i+4]) != "PK\x05\x06" || int(binary.LittleEndian.Uint16(tail[i+20:])) > len(tail)-i-endLen {
			continue
		}
		at := int64(binary.LittleEndian.Uint32(tail[i+16:]))
		length := int64(binary.LittleEndian.Uint32(tail[i+12:]))
		end := size - int64(len(tail)) + int64(i)
		if at == 1<<32-1 || binary.LittleEndian.Uint16(tail[i+10:]) == 1<<16-1 {
			// The numbers stand in the large form, which a locator before this points to.
			var b [56]byte
			if end < 20 {
				return 0, "the list of entries is said to lie behind the end of the file", nil
			}
			if err := readFull(r, b[:20], end-20); err != nil {
				return 0, "", err
			}
			if string(b[:4]) != "PK\x06\x07" {
				return min(at, max(end-length, 0)), "", nil
			}
			large := binary.LittleEndian.Uint64(b[8:])
			if large > uint64(size)-56 || size < 56 {
				return 0, "the list of entries is said to lie behind the end of the file", nil
			}
			if err := readFull(r, b[:], int64(large)); err != nil {
				return 0, "", err
			}
			at = int64(min(binary.LittleEndian.Uint64(b[48:]), 1<<62))
			length = int64(min(binary.LittleEndian.Uint64(b[40:]), 1<<62))
			end = int64(large)
		}
		if at > size {
			return 0, "the list of entries is said to lie behind the end of the file", nil
		}
		// Bytes may stand before the archive: then it starts where its length says.
		return min(at, max(end-length, 0)), "", nil
	}
	return 0, fmt.Sprintf("the file ends after %s without the list of its entries", plural.Count(size, "byte")), nil
}

// inside answers for a file at places that an archive only claims to have.
type inside struct {
	r    io.ReaderAt
	size int64
}

func (i inside) ReadAt(p []byte, at int64) (int, error) {
	if at < 0 || at > i.size {
		return 0, io.ErrUnexpectedEOF
	}
	return i.r.ReadAt(p, at)
}

// readFull reads all of p, which the caller knows to be there.
func readFull(r io.ReaderAt, p []byte, at int64) error {
	n, err := r.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	if err == io.EOF || err == nil {
		err = io.ErrUnexpectedEOF // the file shrank meanwhile
	}
	return err
}

// scanEntries finds the entries by the headers before their data. The last one
// may be cut.
func scanEntries(r io.ReaderAt, size int64) (es []*entry, err error) {
	var b [30]byte
	for at := int64(0); at+int64(len(b)) <= size && len(es) < maxDirectory/64; {
		if err := readFull(r, b[:], at); err != nil {
			return es, err
		}
		if string(b[:4]) != "PK\x03\x04" {
			return es, nil
		}
		u16 := func(i int) uint16 { return binary.LittleEndian.Uint16(b[i:]) }
		u32 := func(i int) uint32 { return binary.LittleEndian.Uint32(b[i:]) }
		n, extra := int64(u16(26)), int64(u16(28))
		e := &entry{at: at + 30 + n + extra, method: u16(8), crypted: u16(6)&0x41 != 0, packed: int64(u32(18)), size: int64(u32(22))}
		if e.at > size {
			return es, nil
		}
		name := make([]byte, n)
		if err := readFull(r, name, at+30); err != nil {
			return es, err
		}
		e.name = string(name)
		sum, next := u32(14), int64(0)
		if u16(6)&8 != 0 || u32(18) == 1<<32-1 {
			// The sizes stand behind the data.
			d, after, err := descriptor(r, e.at, size)
			if err != nil {
				return es, err
			}
			if d == nil {
				e.cut, e.packed, e.size = true, size-e.at, -1
			} else {
				e.packed, e.size, sum = d.packed, d.size, d.sum
			}
			next = after
		} else if next = e.at + e.packed; next > size {
			e.cut, e.packed, next = true, size-e.at, size
		}
		e.open = scanned(r, e, sum)
		es = append(es, e)
		at = next
	}
	return es, nil
}

type tally struct {
	packed, size int64
	sum          uint32
}

// descriptor looks for the sizes behind data that starts at a place: they are
// there where the packed size is the distance. It returns nil and the end of the
// file when there is none.
func descriptor(r io.ReaderAt, start, size int64) (*tally, int64, error) {
	const step, keep = 64 << 10, 24
	buf := make([]byte, 0, step+keep)
	from := start // offset of buf[0]
	for at := start; at < size; {
		n := min(step, size-at)
		i := len(buf)
		buf = buf[:i+int(n)]
		if err := readFull(r, buf[i:], at); err != nil {
			return nil, size, err
		}
		at += n
		for i := 0; ; i++ {
			j := bytes.Index(buf[i:], []byte("PK\x07\x08"))
			if j < 0 {
				break
			}
			if i += j; i+16 > len(buf) {
				break
			}
			end := from + int64(i)
			d := &tally{sum: binary.LittleEndian.Uint32(buf[i+4:])}
			d.packed, d.size = int64(binary.LittleEndian.Uint32(buf[i+8:])), int64(binary.LittleEndian.Uint32(buf[i+12:]))
			if d.packed == end-start {
				return d, end + 16, nil
			}
			if i+24 <= len(buf) && binary.LittleEndian.Uint64(buf[i+8:]) == uint64(end-start) {
				d.packed, d.size = end-start, int64(min(binary.LittleEndian.Uint64(buf[i+16:]), 1<<62))
				return d, end + 24, nil
			}
		}
		if len(buf) > keep {
			from += int64(len(buf) - keep)
			buf = buf[:copy(buf[:keep], buf[len(buf)-keep:])]
		}
	}
	return nil, size, nil
}

// scanned opens an entry found without the list.
func scanned(r io.ReaderAt, e *entry, sum uint32) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		data := io.NewSectionReader(r, e.at, e.packed)
		s := &summed{want: sum, entry: e}
		switch e.method {
		case zip.Store:
			s.r = io.NopCloser(data)
		case zip.Deflate:
			s.r = flate.NewReader(data)
		default:
			return nil, zip.ErrAlgorithm
		}
		return s, nil
	}
}

// summed checks what an entry unfolds into.
type summed struct {
	r     io.ReadCloser
	entry *entry
	n     int64
	sum   uint32
	want  uint32
}

func (s *summed) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.n += int64(n)
	s.sum = crc32.Update(s.sum, crc32.IEEETable, p[:n])
	switch {
	case s.entry.size >= 0 && s.n > s.entry.size:
		return 0, zip.ErrFormat
	case err == io.EOF && s.entry.cut, err == io.EOF && s.n < s.entry.size:
		return n, io.ErrUnexpectedEOF
	case err == io.EOF && s.sum != s.want:
		return n, zip.ErrChecksum
	}
	return n, err
}

func (s *summed) Close() error { return s.r.Close() }

// damaged reports whether an error tells of the bytes of an archive, not of their
// storage.
func damaged(err error) bool {
	var corrupt flate.CorruptInputError
	var internal flate.InternalError
	return errors.Is(err, zip.ErrFormat) || errors.Is(err, zip.ErrChecksum) || errors.Is(err, zip.ErrAlgorithm) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.As(err, &corrupt) || errors.As(err, &internal) ||
		strings.HasPrefix(err.Error(), "zip: ")
}

// dataDefect words damage of the bytes of an entry.
func (e *entry) dataDefect(err error) *Defect {
	d := &Defect{Rule: RuleZipData, Class: Corrupt, Seq: -1, Pos: nowhere, Err: err,
		Hint: "get the archive again, or export the session once more"}
	var corrupt flate.CorruptInputError
	switch {
	case e.cut:
		d.Class = Torn
		d.Message = "the archive ends within this entry: what was read of it is all there is"
	case errors.Is(err, zip.ErrChecksum):
		d.Message = "the checksum of the entry is wrong: some of its bytes are not those that were exported"
	case errors.As(err, &corrupt):
		d.Message = fmt.Sprintf("the compressed data of the entry is damaged near its byte %d", int64(corrupt))
	case errors.Is(err, zip.ErrFormat):
		d.Message = fmt.Sprintf("the entry unfolds into more than the %d bytes that the archive says, or its header is damaged", e.size)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		d.Message = fmt.Sprintf("the entry ends before the %d bytes that the archive says", e.size)
	default:
		d.Message = "the entry does not unfold: " + strings.TrimPrefix(err.Error(), "zip: ")
	}
	return d
}

// Kinds of entries of an export.
const (
	entryOther = iota
	entryLog
	entryMedium
)

// entryKind tells what an entry is by its name; of an attachment also its id.
func entryKind(name string) (kind int, id string) {
	if name == rootEntry {
		return entryLog, ""
	}
	parts := strings.Split(name, "/")
	switch {
	case len(parts) == 3 && parts[0] == "subagents" && parts[2] == rootEntry:
		return entryLog, parts[1]
	case len(parts) == 2 && parts[0] == "media":
		switch ext := path.Ext(parts[1]); ext {
		case ".png", ".jpg", ".webp", ".gif":
			return entryMedium, strings.TrimSuffix(parts[1], ext)
		}
	}
	return entryOther, ""
}

// hostileName says why an entry's name is not to be trusted, "" when it is.
func hostileName(name string) string {
	switch {
	case name == "":
		return "an empty name"
	case !plainName(name):
		return "control characters, or bytes that are no UTF-8"
	case strings.HasPrefix(name, "/"):
		return "an absolute path"
	case strings.Contains(name, `\`):
		return "a backslash, which is a separator on one platform"
	case len(name) >= 2 && name[1] == ':' && (name[0]|0x20 >= 'a' && name[0]|0x20 <= 'z'):
		return "a path with a drive"
	}
	for _, p := range strings.Split(strings.TrimSuffix(name, "/"), "/") {
		switch p {
		case "..":
			return "it leads out of the archive"
		case "", ".":
			return "an empty part"
		}
	}
	return ""
}

// zipSource reads the records of a log in an archive.
type zipSource struct {
	lineSource
	entry *entry
	held  *archive
	done  bool
}

func (s *zipSource) next(rec *record) error {
	if s.done {
		return io.EOF
	}
	err := s.lineSource.next(rec)
	if err == nil || err == io.EOF || !damaged(err) {
		return err
	}
	s.done = true
	d := s.entry.dataDefect(err)
	d.Pos = s.pos()
	d.Pos.Offset, d.Pos.Length = s.lines.offset(), 0
	rec.fail(d, d.Class == Corrupt, true)
	return nil
}

func (s *zipSource) close() error {
	err := s.lineSource.close()
	if s.held != nil {
		err = cmpErr(err, s.held.close())
		s.held = nil
	}
	return err
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// log opens the log in an entry. It holds the archive until it is closed.
func (a *archive) log(e *entry) (*Log, error) {
	l := &Log{Path: a.Path + archiveSep + e.name, Container: ZIP, Archive: &a.Archive}
	defer l.reset()
	if e.refused != nil {
		l.opening, l.stop = []*Defect{e.refused}, true
		return l, nil
	}
	rc, err := e.open()
	if err != nil {
		if !damaged(err) {
			return nil, &fs.PathError{Op: "read", Path: l.Path, Err: err}
		}
		l.opening, l.stop = []*Defect{e.dataDefect(err)}, true
		return l, nil
	}
	src := &zipSource{lineSource: *newLineSource(rc, rc), entry: e, held: a.use()}
	if err := l.openLines(&src.lineSource); err != nil {
		src.close()
		if !damaged(err) {
			return nil, &fs.PathError{Op: "read", Path: l.Path, Err: err}
		}
		l.Header, l.first = nil, nil
		d := e.dataDefect(err)
		d.Class = Corrupt // whatever was cut, there is no header
		l.opening, l.stop = []*Defect{d}, true
		return l, nil
	}
	l.first = src
	if l.stop {
		src.close()
		l.first = nil
	}
	l.reopen = func() (source, error) {
		again, err := openArchive(a.Path)
		if err != nil {
			return nil, err
		}
		defer again.close()
		for _, x := range again.logs {
			if x.name != e.name || x.refused != nil {
				continue
			}
			rc, err := x.open()
			if err != nil {
				return nil, err
			}
			src := &zipSource{lineSource: *newLineSource(rc, rc), entry: x, held: again.use()}
			if _, err := l.behindHeader(&src.lineSource); err != nil {
				return nil, err
			}
			return src, nil
		}
		return nil, errors.New("the entry is no longer in the archive")
	}
	if h := l.Header; h != nil && e.name != rootEntry {
		if _, dir := entryKind(e.name); exportName(h.ID) != dir {
			d := placed(RuleZipIdentity, l.Path, "the archive was put together by hand, or the header was changed",
				"the log lies under the name %q, its header has id %q, which an export puts under %q", dir, h.ID, exportName(h.ID))
			l.opening = append(l.opening, d)
		}
	}
	return l, nil
}

// nothing is the log of an archive that holds none.
func (a *archive) nothing() *Log {
	l := &Log{Path: a.Path, Container: ZIP}
	for _, d := range a.findings {
		if d.Class != "" {
			l.opening = append(l.opening, d)
		}
	}
	if len(l.opening) == 0 {
		l.opening = []*Defect{placed(RuleZipEntry, a.Path, "an export has the entry session.jsonl", "the archive holds no log")}
		l.opening[0].Class = Unreadable
	}
	l.stop = true
	l.reset()
	return l
}

// ArchiveLogs yields the logs in an export: the session itself, then its
// subagents by name. Nothing is ever unpacked to a file. An archive without a log
// is one log without header, whose defect says why. A log is closed when its step
// ends.
func ArchiveLogs(path string, o Options) iter.Seq2[*Log, error] {
	return func(yield func(*Log, error) bool) {
		a, err := openArchive(path)
		if err != nil {
			yield(nil, err)
			return
		}
		defer a.close()
		told := 0
		tell := func() {
			for ; told < len(a.findings); told++ {
				if o.Finding != nil {
					o.Finding(path, ZIP, a.findings[told])
				}
			}
		}
		if len(a.logs) == 0 {
			l := a.nothing()
			for _, d := range a.findings {
				if d.Class == "" && o.Finding != nil {
					o.Finding(path, ZIP, d)
				}
			}
			yield(l, nil)
			return
		}
		tell()
		if a.logs[0].name != rootEntry {
			a.find(RuleZipEntry, "", "", "an export has the log of the session itself as session.jsonl", "the archive holds logs of subagents, but not the one of their session")
		}
		for _, e := range a.logs {
			l, err := a.log(e)
			if err != nil {
				if !yield(nil, err) {
					return
				}
				continue
			}
			if o.Session != "" && (l.Header == nil || l.Header.ID != o.Session) {
				l.Close()
				continue
			}
			more := yield(l, nil)
			l.Close()
			if !more {
				return
			}
		}
		if o.Finding != nil {
			if err := a.verify(); err != nil {
				yield(nil, &fs.PathError{Op: "read", Path: path, Err: err})
			}
			tell()
		}
	}
}

// verify compares the attachments with the digests in their names, and with what
// the logs refer to.
func (a *archive) verify() error {
	for _, e := range a.media {
		_, id := entryKind(e.name)
		if e.refused != nil {
			d := *e.refused
			d.File = a.Path + archiveSep + e.name
			a.findings = append(a.findings, &d)
			continue
		}
		digest, addressed := strings.CutPrefix(id, "sha256:")
		h := sha256.New()
		rc, err := e.open()
		if err == nil {
			_, err = io.Copy(h, rc)
			rc.Close()
		}
		switch {
		case err != nil && !damaged(err):
			return err
		case err != nil:
			d := e.dataDefect(err)
			d.File = a.Path + archiveSep + e.name
			a.findings = append(a.findings, d)
		case addressed && hex.EncodeToString(h.Sum(nil)) != digest:
			a.find(RuleZipHash, "", e.name, "the picture is not the one that the model saw",
				"the attachment has the digest %x, not the one in its name", h.Sum(nil))
		}
		if a.judged >= len(a.logs) && !a.referred[id] && a.Archive.media[id] == e {
			a.find(RuleZipEntry, "", e.name, "it may have been added later", "no log in the archive refers to this attachment")
		}
	}
	return nil
}

// isArchive reports whether the file at path begins like an archive.
func isArchive(path string) bool {
	head, ok := headOf(path, 4)
	return ok && isZip(head)
}

func isZip(head []byte) bool {
	return bytes.HasPrefix(head, []byte("PK\x03\x04")) || bytes.HasPrefix(head, []byte("PK\x05\x06"))
}

// headOf returns the first bytes of a regular file.
func headOf(path string, n int) ([]byte, bool) {
	// Opening a pipe would wait for its writer.
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
		return nil, false
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	head := make([]byte, n)
	_, err = io.ReadFull(f, head)
	return head, err == nil
}

// openZIP makes an input the log of the session itself, or of the one that is
// asked for.
func openZIP(l *Log, in *input) error {
	if in.file == nil {
		l.refuse(Unsupported, RuleFormat, "an archive cannot be read from a stream", "save it to a file first")
		return nil
	}
	in.close() // it is opened by its path
	in.closer = nil
	got, err := openArchiveFile(in.path, "", in.o)
	if err == nil {
		*l = *got
	}
	return err
}

// openArchiveFile opens one log of an archive: the entry of that name, the session
// that is asked for, or the session itself.
func openArchiveFile(path, name string, o Options) (*Log, error) {
	a, err := openArchive(path)
	if err != nil {
		return nil, err
	}
	defer a.close() // the log holds the archive by itself
	if name == "" && len(a.logs) == 0 {
		return a.nothing(), nil
	}
	for _, e := range a.logs {
		if name != "" && e.name != name {
			continue
		}
		l, err := a.log(e)
		if err != nil {
			return nil, err
		}
		if o.Session == "" || l.Header != nil && l.Header.ID == o.Session {
			return l, nil
		}
		l.Close()
	}
	if name != "" {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("no log %q in this archive", name)}
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("no session %q in this archive", o.Session)}
}

// splitEntry reads the path of an entry as logs have it: ARCHIVE!NAME.
func splitEntry(path string) (archive, name string, ok bool) {
	for i := range len(path) {
		if path[i] == '!' && i > 0 && isArchive(path[:i]) {
			return path[:i], path[i+1:], true
		}
	}
	return "", "", false
}

// notExport says why an archive in a directory is not read as an export, "" when
// it is.
func notExport(path, name string) string {
	if strings.HasPrefix(name, "dsh-session-") {
		return ""
	}
	if !isArchive(path) {
		return "not a ZIP archive"
	}
	a, err := openArchive(path)
	if err != nil {
		return "" // said when it is opened
	}
	defer a.close()
	if len(a.logs) == 0 {
		return "a ZIP archive that is no export of a session"
	}
	return ""
}
