package logfmt

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/internal/sqlitedb"
)

// Rules about the places of logs: what the harness makes of a root that breaks
// them (PHYSICAL §1.5, §1.6; FORMATS-V1-V4 §2.1). Defects of these rules have no
// Class: they damage no log.
const (
	RuleIdentity   = "ROOT-IDENTITY"   // a log does not lie where its header puts it
	RuleBucket     = "ROOT-BUCKET"     // the same, in the flat layout
	RuleTwice      = "ROOT-DUPLICATE"  // one id in two places
	RuleEncoding   = "ROOT-ENCODING"   // plain and compressed logs in one root
	RuleStray      = "ROOT-STRAY"      // a log in the flat layout beside session directories
	RuleFlat       = "ROOT-FLAT"       // a root in the flat layout
	RuleTemp       = "ROOT-TEMP"       // a temporary name was left behind
	RuleGeneration = "ROOT-GENERATION" // older generations beside the one that is read
	RuleEntry      = "ROOT-ENTRY"      // neither a file nor a directory
	RuleName       = "ROOT-NAME"       // a name that no harness gives
	RuleSidecar    = "ROOT-SIDECAR"    // a summary that does not fit a log
)

// A walker goes through a directory and yields the logs in it.
//
// A directory that holds project directories or buckets is a session root and is
// read as the harness reads it; any other one gives what looks like a log, and so
// do the directories in it. Links are never followed, so that no walk is endless.
// Entries come in the order of their names; of a huge directory no more than a
// batch of names is in memory.
type walker struct {
	o     Options
	yield func(*Log, error) bool
}

// walk yields the logs in the directory an operand names.
func walk(path string, o Options, yield func(*Log, error) bool) {
	w := &walker{o, yield}
	own, parent := filepath.Base(path), ""
	if abs, err := filepath.Abs(path); err == nil {
		own, parent = filepath.Base(abs), filepath.Base(filepath.Dir(abs))
	}
	// The operand may be a part of a root.
	switch {
	case isProjectName(own) || isBucketName(own):
		r := newRoot(w, path, filepath.Dir(path))
		_ = r.project(path, own) && r.finish()
	case isProjectName(parent):
		r := newRoot(w, path, filepath.Dir(filepath.Dir(path)))
		_ = r.session(path, parent, own) && r.finish()
	default:
		w.dir(path)
	}
}

func (w *walker) skip(path, reason string) {
	if w.o.Skip != nil {
		w.o.Skip(path, reason)
	}
}

// find reports something about a place in a root.
func (w *walker) find(root string, d *Defect) {
	if w.o.Finding != nil {
		w.o.Finding(root, Directory, d)
	}
}

// placed is a defect about the place at path.
func placed(rule, path, hint, format string, args ...any) *Defect {
	return &Defect{Rule: rule, File: path, Pos: nowhere, Seq: -1, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// each calls f for the entries of a directory. It reports false when the
// iteration is over.
func (w *walker) each(dir string, f func(path string, e fs.DirEntry) bool) bool {
	more := true
	err := eachEntry(dir, nameBatch, func(e fs.DirEntry) bool {
		more = f(filepath.Join(dir, e.Name()), e)
		return more
	})
	if more && err != nil {
		more = w.yield(nil, err)
	}
	return more
}

// dir walks a directory of which nothing is known.
func (w *walker) dir(dir string) bool {
	if holdsProjects(dir) {
		r := newRoot(w, dir, dir)
		return r.walk() && r.finish()
	}
	return w.each(dir, func(path string, e fs.DirEntry) bool {
		switch {
		case e.IsDir() && strings.HasPrefix(e.Name(), stagingName):
			w.skip(path, "staging directory")
		case e.IsDir():
			return w.dir(path)
		case !e.Type().IsRegular():
			w.skip(path, "not a regular file")
			if isLogName(e.Name()) || e.Type()&fs.ModeSymlink != 0 && leadsToDir(path) {
				w.find(dir, w.entry(path, e))
			}
		default:
			if newer := newerBeside(dir, e.Name()); newer != "" && sameSession(path, filepath.Join(dir, newer)) {
				n, _ := GenerationOfName(e.Name())
				w.skip(path, "an older generation of the same session")
				w.find(dir, olderGeneration(path, n, newer, 0))
				return true
			}
			return w.file(dir, path, e.Name())
		}
		return true
	})
}

// olderGeneration reports a log beside a later generation of itself.
func olderGeneration(path string, generation int64, newer string, more int) *Defect {
	message := fmt.Sprintf("generation %d of the session, which is kept but never read again: the harness opens %s", generation, newer)
	if more > 0 {
		message += fmt.Sprintf(" (and %s)", plural.Count(more, "more log"))
	}
	return placed(RuleGeneration, path, "to judge it, name it", "%s", message)
}

// newerBeside names the log of the highest generation that lies beside the log of
// that name, "" when it is the highest itself.
func newerBeside(dir, name string) (newer string) {
	own, ok := GenerationOfName(name)
	if !ok {
		return ""
	}
	eachEntry(dir, nameBatch, func(e fs.DirEntry) bool {
		if n, ok := GenerationOfName(e.Name()); ok && n > own && e.Type().IsRegular() {
			own, newer = n, e.Name()
		}
		return true
	})
	return newer
}

// sameSession reports whether two files are logs of one session. Where the layout
// is not known, the directory does not tell.
func sameSession(a, b string) bool {
	id := func(path string) (string, bool) {
		l, err := OpenFile(path, Options{})
		if err != nil {
			return "", false
		}
		defer l.Close()
		if l.Header == nil {
			return "", false
		}
		return l.Header.ID, true
	}
	x, ok1 := id(a)
	y, ok2 := id(b)
	return ok1 && ok2 && x == y
}

// leadsToDir reports whether a link leads to a directory, or nowhere for being
// part of a loop.
func leadsToDir(path string) bool {
	st, err := os.Stat(path)
	return err != nil && !errors.Is(err, fs.ErrNotExist) || err == nil && st.IsDir()
}

// file yields the logs in a file whose name alone makes it one.
func (w *walker) file(dir, path, name string) bool {
	switch reason := notTaken(path, name); {
	case reason != "":
		w.skip(path, reason)
		return true
	case !plainName(name):
		w.find(dir, odd(path, name))
	}
	return openEach(path, w.o, w.yield)
}

// entry reports an entry that is not opened.
func (w *walker) entry(path string, e fs.DirEntry) *Defect {
	what := "a special file"
	hint := "the harness never makes one; find out what did"
	if e.Type()&fs.ModeSymlink != 0 {
		what, hint = "a symbolic link, which is not followed", "to judge what it leads to, name that"
	}
	return placed(RuleEntry, path, hint, "%s: what it stands for is not judged", what)
}

func odd(path, name string) *Defect {
	why := "control characters"
	if !utf8.ValidString(name) {
		why = "bytes that are no UTF-8"
	}
	return placed(RuleName, path, "find out what made it", "the name holds %s, which no harness writes", why)
}

// plainName reports whether a name is text without control characters.
func plainName(name string) bool {
	for _, r := range name {
		if r < 0x20 || r >= 0x7F && r < 0xA0 {
			return false
		}
	}
	return utf8.ValidString(name)
}

// notTaken says why a file in a directory of no known layout is not read as a
// log, "" when it is.
func notTaken(path, name string) string {
	if isLogName(name) {
		return ""
	}
	switch strings.ToLower(filepath.Ext(name)) {
	case ".sqlite", ".sqlite3", ".db":
		return notStore(path)
	case ".zip":
		return notExport(path, name)
	}
	return "not named session*.jsonl or session*.jsonl.zstd"
}

// notStore says why a file that may be a database of sessions is none.
func notStore(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "" // said when it is opened
	}
	defer f.Close()
	page := make([]byte, 64<<10)
	n, err := io.ReadFull(f, page)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return ""
	}
	if page = page[:n]; n < 100 || !bytes.HasPrefix(page, []byte(sqlitedb.Magic)) {
		return "not an SQLite database"
	}
	switch binary.BigEndian.Uint32(page[68:]) {
	case storeID:
		return ""
	case searchID:
		return "a search index, not a session store"
	case 0: // before 07-24 no store had a mark: its tables tell
		page = bytes.ToLower(page)
		if bytes.Contains(page, []byte("table sessions")) || bytes.Contains(page, []byte(`table "sessions"`)) {
			return ""
		}
		if st, err := os.Stat(path + "-wal"); err == nil && st.Size() > 0 {
			return "" // the tables may stand there
		}
	}
	return "an SQLite database of something else"
}

// root is the session root being walked.
type root struct {
	*walker
	label string // what the findings are said to be about
	dir   string // the root's own path

	projects []string           // names, in order
	seen     map[[16]byte]int32 // project in which a segment was seen first
	flat     int64              // logs in the flat layout
	dirs     int64              // session directories with a log
	plain    int64
	zstd     int64
	first    struct{ flat, dirs, plain, zstd string }
}

// maxSeen bounds the memory for segments; beyond it directories are asked.
const maxSeen = 1 << 19

func newRoot(w *walker, label, dir string) *root {
	return &root{walker: w, label: label, dir: dir, seen: make(map[[16]byte]int32)}
}

// holdsProjects reports whether a directory is a session root.
func holdsProjects(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	for {
		es, err := f.ReadDir(256)
		for _, e := range es {
			if e.IsDir() && (isProjectName(e.Name()) || isBucketName(e.Name())) {
				return true
			}
		}
		if err != nil {
			return false
		}
	}
}

func (r *root) report(d *Defect) { r.find(r.label, d) }

// common deals with the entries that may stand anywhere in a root.
func (r *root) common(path string, e fs.DirEntry) (done bool) {
	name := e.Name()
	switch {
	case !e.IsDir() && !e.Type().IsRegular():
		r.skip(path, "not a regular file")
		r.report(r.entry(path, e))
		return true
	case !plainName(name):
		r.report(odd(path, name))
	}
	const hint = "nothing in it was published; once no harness runs it can be removed"
	if e.IsDir() && strings.HasPrefix(name, stagingName) {
		r.skip(path, "staging directory")
		r.report(placed(RuleTemp, path, hint, "a directory under a temporary name, left behind while it was made"))
		return true
	}
	if !e.IsDir() && isTempName(name) {
		r.skip(path, "temporary file")
		r.report(placed(RuleTemp, path, hint, "a file under a temporary name, left behind by a write that did not finish"))
		return true
	}
	return false
}

func (r *root) walk() bool {
	return r.each(r.dir, func(path string, e fs.DirEntry) bool {
		switch {
		case r.common(path, e):
			return true
		case e.IsDir():
			return r.project(path, e.Name())
		}
		return r.file(r.label, path, e.Name())
	})
}

// project walks a project directory, or a bucket of the flat layout: to the
// harness every directory in a root is one.
func (r *root) project(dir, name string) bool {
	r.projects = append(r.projects, name)
	return r.each(dir, func(path string, e fs.DirEntry) bool {
		switch {
		case r.common(path, e):
			return true
		case e.IsDir():
			return r.session(path, name, e.Name())
		}
		if segment, zstd, ok := flatName(e.Name()); ok {
			return r.flatLog(path, name, segment, zstd)
		}
		if segment, ok := strings.CutSuffix(e.Name(), sidecarName); ok {
			r.skip(path, "summary of a log")
			if !exists(filepath.Join(dir, segment+".jsonl")) && !exists(filepath.Join(dir, segment+".jsonl"+zstdSuffix)) {
				r.report(placed(RuleSidecar, path, "the log it describes was moved or removed", "a summary without its log"))
			}
			return true
		}
		return r.file(r.label, path, e.Name())
	})
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// count takes up a log for what is said about the root as a whole.
func (r *root) count(path string, zstd bool) {
	n, first := &r.plain, &r.first.plain
	if zstd {
		n, first = &r.zstd, &r.first.zstd
	}
	if *n++; *n == 1 {
		*first = path
	}
}

// place notes where a segment stands, and reports one that stands elsewhere too.
func (r *root) place(path, segment string) {
	here := int32(len(r.projects) - 1)
	sum := sha256.Sum256([]byte(segment))
	key := [16]byte(sum[:16])
	other, found := r.seen[key]
	if !found && len(r.seen) < maxSeen {
		r.seen[key] = here
	} else if !found {
		for i, p := range r.projects[:max(here, 0)] {
			if r.stands(p, segment) != "" {
				other, found = int32(i), true
				break
			}
		}
	}
	if !found || other == here {
		return
	}
	r.report(placed(RuleTwice, path, "keep one, and move the other out of the root",
		"the same session also lies at %s: the harness refuses to look it up", r.stands(r.projects[other], segment)))
}

// stands returns where in a project a segment stands, "" if it does not.
func (r *root) stands(project, segment string) string {
	for _, p := range []string{segment, segment + ".jsonl", segment + ".jsonl" + zstdSuffix} {
		if rel := filepath.Join(project, p); exists(filepath.Join(r.dir, rel)) {
			return rel
		}
	}
	return ""
}

// session walks a session directory and yields the log in it that the harness
// opens: the one of the highest generation.
func (r *root) session(dir, project, segment string) bool {
	type file struct {
		name       string
		generation int64
		zstd       bool
	}
	const most = 16 // logs of one session that are listed
	var logs []file
	n := 0
	more := r.each(dir, func(path string, e fs.DirEntry) bool {
		switch {
		case r.common(path, e):
			return true
		case e.IsDir():
			return r.walker.dir(path) // nothing of the harness's; logs in it are judged by themselves
		}
		generation, zstd, ok := logName(e.Name())
		if !ok {
			r.skip(path, "a name that the harness ignores in a session directory")
			return true
		}
		n++
		logs = append(logs, file{e.Name(), generation, zstd})
		// The highest first, so that what is dropped is the lowest.
		slices.SortStableFunc(logs, func(a, b file) int {
			return cmp.Or(cmp.Compare(b.generation, a.generation), strings.Compare(a.name, b.name))
		})
		logs = logs[:min(len(logs), most)]
		r.count(path, zstd)
		if generation == 1 {
			r.report(placed(RuleName, path, "", "no release leaves a log of generation 1 under this name"))
		}
		return true
	})
	if !more || len(logs) == 0 {
		return more
	}
	if r.dirs++; r.dirs == 1 {
		r.first.dirs = dir
	}
	if len(r.projects) == 0 {
		r.projects = append(r.projects, project)
	}
	r.place(dir, segment)
	for i, f := range logs {
		path := filepath.Join(dir, f.name)
		if f.generation < logs[0].generation {
			r.skip(path, "an older generation of the same session")
			rest := 0
			if i == len(logs)-1 {
				rest = n - len(logs)
			}
			r.report(olderGeneration(path, f.generation, logs[0].name, rest))
			continue
		}
		ok := r.log(path, func(l *Log) {
			r.identify(l, path, project, segment, f.generation)
		})
		if !ok {
			return false
		}
	}
	return true
}

// flatLog yields a log that lies in a project directory itself.
func (r *root) flatLog(path, project, segment string, zstd bool) bool {
	if r.flat++; r.flat == 1 {
		r.first.flat = path
	}
	r.count(path, zstd)
	r.place(path, segment)
	return r.log(path, func(l *Log) {
		r.identifyFlat(l, path, project, segment)
		sum, err := l.ReadSummary()
		if err != nil {
			l.told(placed(RuleSidecar, path, "the harness of that time wrote it after each append; it holds nothing that the log does not", "%s", err))
		}
		l.Sidecar = sum
	})
}

// log yields the log in a file, after what is to be said about its place.
func (r *root) log(path string, place func(*Log)) bool {
	l, err := OpenFile(path, r.o)
	if err != nil {
		return r.yield(nil, err)
	}
	defer l.Close()
	place(l)
	return r.yield(l, nil)
}

// told adds what is said about the place of a log.
func (l *Log) told(d *Defect) {
	d.File = l.Path
	l.opening = append(l.opening, d)
	l.reset()
}

const hintMoved = "the log was moved, copied or renamed, or its header was changed; a harness that meets it refuses to list the whole root"

// identify compares the place of a log with its header.
func (r *root) identify(l *Log, path, project, segment string, generation int64) {
	h := l.Header
	if h == nil || len(h.Raw) == 0 {
		return
	}
	if h.Version != generation {
		l.told(placed(RuleIdentity, path, hintMoved, "the name of the file says generation %d, the header version %d", generation, h.Version))
	}
	wantSegment, err := EncodeSegment(h.ID)
	if err != nil {
		l.told(placed(RuleIdentity, path, hintMoved, "the header has an empty id, which has no place in a root"))
		return
	}
	wantProject, ok := noCwdName, true
	if h.Cwd != nil {
		key, err := ProjectKey(*h.Cwd)
		if err != nil {
			l.told(placed(RuleIdentity, path, hintMoved, "the header has an empty cwd, which has no place in a root"))
			wantProject, ok = project, false
		} else {
			wantProject = key
		}
	} else if h.Fault&HeaderCwd != 0 {
		wantProject, ok = project, false // said as a fault of the header
	}
	if wantSegment == segment && wantProject == project {
		return
	}
	// On a file system that ignores case the same place has more than one name.
	if ok && strings.EqualFold(wantProject, project) && strings.EqualFold(wantSegment, segment) &&
		sameFile(filepath.Join(r.dir, wantProject, wantSegment), filepath.Join(r.dir, project, segment)) {
		return
	}
	message := fmt.Sprintf("the log lies in %s, its header puts it in %s", project+"/"+segment, wantProject+"/"+wantSegment)
	if wantSegment != segment {
		if id, err := DecodeSegment(segment); err != nil {
			message += fmt.Sprintf(": the directory has the name of no id (%v)", err)
		} else {
			message += fmt.Sprintf(": the directory is that of id %q, the header has id %q", id, h.ID)
		}
	} else {
		cwd := "no cwd"
		if h.Cwd != nil {
			cwd = fmt.Sprintf("cwd %q", *h.Cwd)
		}
		message += ": the header has " + cwd
	}
	l.told(placed(RuleIdentity, path, hintMoved, "%s", message))
}

// identifyFlat does the same in the flat layout, where a reader compared the two
// for the last two days only.
func (r *root) identifyFlat(l *Log, path, project, segment string) {
	h := l.Header
	if h == nil || len(h.Raw) == 0 || h.Fault&HeaderCwd != 0 {
		return
	}
	wantSegment, err := EncodeSegment(h.ID)
	want := noCwdName
	if h.Cwd != nil {
		want = CwdBucket(*h.Cwd)
	}
	// In a root of the later layout it is a stray whatever its name.
	if err == nil && wantSegment == segment && (want == project || !isBucketName(project) && project != noCwdName) {
		return
	}
	l.told(placed(RuleBucket, path, "the log was moved, copied or renamed, or its header was changed",
		"the log lies at %s, its header puts it at %s", project+"/"+segment, want+"/"+wantSegment))
}

func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// finish says what only the whole root shows.
func (r *root) finish() bool {
	rel := func(p string) string {
		if s, err := filepath.Rel(r.dir, p); err == nil {
			return s
		}
		return p
	}
	switch {
	case r.flat > 0 && r.dirs > 0:
		r.report(placed(RuleStray, r.first.flat, "move it out of the root",
			"%s directly in a project directory, beside session directories such as %s: the harness refuses the whole root",
			times(r.flat, "log lies", "logs lie"), rel(r.first.dirs)))
	case r.flat > 0:
		r.report(placed(RuleFlat, r.label, "builds of that time read it as it is",
			"the root has the flat layout of builds before 07-25: %s; later ones refuse it", times(r.flat, "log", "logs")))
	}
	if r.plain > 0 && r.zstd > 0 {
		where := r.first.zstd
		if r.plain < r.zstd {
			where = r.first.plain
		}
		r.report(placed(RuleEncoding, where, "one root holds one encoding; move the others out of it",
			"the root holds %s (such as %s) and %s (such as %s): the harness refuses it",
			times(r.plain, "plain log", "plain logs"), rel(r.first.plain), times(r.zstd, "compressed log", "compressed logs"), rel(r.first.zstd)))
	}
	return true
}

func times(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// maxSidecar is the largest summary that is read.
const maxSidecar = 1 << 20

// ReadSummary reads what the harness of 06-17 to 06-20 kept about a session
// beside its events (PHYSICAL §1.2): the file beside a plain log, or columns of
// schema 1. It returns nil when there is none.
func (l *Log) ReadSummary() (*Summary, error) {
	if l.Database != nil {
		return l.Database.Summary, nil
	}
	base, ok := strings.CutSuffix(l.Path, ".jsonl")
	if !ok || l.Container != Plain {
		return nil, nil
	}
	path := base + sidecarName
	if st, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err == nil && !st.Mode().IsRegular() {
		return nil, fmt.Errorf("the summary %s is not a regular file", filepath.Base(path))
	}
	b, err := readAtMost(path, maxSidecar)
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, fmt.Errorf("the summary %s cannot be read: %w", filepath.Base(path), err)
	}
	s, err := parseSummary(b)
	if err != nil {
		return nil, fmt.Errorf("the summary %s: %w", filepath.Base(path), err)
	}
	return s, nil
}

// parseSummary reads {"updatedAt":N,"title"?:S,"firstPrompt"?:S}.
func parseSummary(b []byte) (*Summary, error) {
	canon, _, err := jsjson.Stringify(b)
	if err != nil {
		return nil, fmt.Errorf("not valid JSON: %w", err)
	}
	s := &Summary{}
	at, ok := safeInt(jsjson.Get(canon, "updatedAt"))
	if !ok {
		return nil, fmt.Errorf("updatedAt is %s, expected milliseconds", valueName(jsjson.Get(canon, "updatedAt")))
	}
	s.UpdatedAt = at
	for _, m := range []struct {
		key string
		to  **string
	}{{"title", &s.Title}, {"firstPrompt", &s.FirstPrompt}} {
		v := jsjson.Get(canon, m.key)
		if v == nil {
			continue
		}
		text, ok := jsjson.Str(v)
		if !ok {
			return nil, fmt.Errorf("%s is %s, expected a string", m.key, valueName(v))
		}
		*m.to = &text
	}
	return s, nil
}

// nameBatch is how many names of one directory are in memory at a time.
const nameBatch = 1 << 14

// eachEntry calls f for the entries of a directory in order of their names. It
// reads the directory once for every batch of names, so that memory does not grow
// with the directory.
func eachEntry(dir string, batch int, f func(fs.DirEntry) bool) error {
	after, any := "", false
	for {
		es, more, err := nextEntries(dir, batch, after, any)
		for _, e := range es {
			if !f(e) {
				return nil
			}
		}
		if err != nil || !more || len(es) == 0 {
			return err
		}
		after, any = es[len(es)-1].Name(), true
	}
}

// nextEntries returns the first n entries behind a name, and whether there are
// more. Entries read before an error are returned with it.
func nextEntries(dir string, n int, after string, any bool) (es []fs.DirEntry, more bool, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, false, err
	}
	defer d.Close()
	cut := func() {
		slices.SortFunc(es, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		if len(es) > n {
			clear(es[n:])
			es, more = es[:n], true
		}
	}
	for {
		got, err := d.ReadDir(1024)
		for _, e := range got {
			if !any || e.Name() > after {
				es = append(es, e)
			}
		}
		if len(es) >= 2*n {
			cut()
		}
		if err != nil {
			cut()
			if err == io.EOF {
				err = nil
			}
			return es, more, err
		}
	}
}
