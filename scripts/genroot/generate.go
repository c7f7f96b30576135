package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ncruces/go-sqlite3"

	"github.com/dsh-audit/dsh-audit/pkg/invariants"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// A Damaged is a log that was damaged on purpose.
type Damaged struct {
	Path    string `json:"path"` // within the root, as dsh-verify names it
	Session string `json:"session"`
	How     string `json:"how"`
	Verdict string `json:"verdict"` // that it must get
	Rule    string `json:"rule"`    // that must be among its findings
}

// A way is one way to damage a log of some containers.
type way struct {
	name    string
	in      []string // containers
	verdict string
	rule    string
	lines   func(lines [][]byte) [][]byte // of the plain text, each with its line feed
	bytes   func(b []byte) []byte         // of the file
	sql     string                        // in the database; ?1 is the session
	moved   bool                          // the log lies under another id
}

// ways are tried in order, over and over.
var ways = []way{
	{name: "torn-tail", in: []string{"plain", "packed", "zip"}, verdict: "torn", rule: "LINE-TORN", bytes: func(b []byte) []byte { return b[:len(b)-20] }},
	{name: "row-lost", in: []string{"sqlite"}, verdict: "corrupt", rule: "LOG-SEQ", sql: `DELETE FROM events WHERE session_id = ?1 AND seq = 2`},
	{name: "cut-line", in: []string{"plain", "packed", "zip"}, verdict: "corrupt", rule: "LINE-JSON", lines: func(l [][]byte) [][]byte {
		l[4] = append(l[4][:len(l[4])/2:len(l[4])/2], '\n')
		return l
	}},
	{name: "frame-flip", in: []string{"zstd"}, verdict: "corrupt", rule: "FRAME-DATA", bytes: func(b []byte) []byte { b[len(b)/2] ^= 0x10; return b }},
	{name: "lost-line", in: []string{"plain", "zip"}, verdict: "corrupt", rule: "LOG-SEQ", lines: func(l [][]byte) [][]byte { return slices.Delete(l, 4, 5) }},
	{name: "row-cut", in: []string{"sqlite"}, verdict: "corrupt", rule: "DB-DATA", sql: `UPDATE events SET data = substr(data, 1, length(data) / 2) WHERE session_id = ?1 AND seq = 1`},
	{name: "doubled-line", in: []string{"plain", "packed", "zip"}, verdict: "corrupt", rule: "LOG-SEQ", lines: func(l [][]byte) [][]byte { return slices.Insert(l, 4, l[3]) }},
	{name: "frame-cut", in: []string{"zstd"}, verdict: "torn", rule: "FRAME-TORN", bytes: func(b []byte) []byte { return b[:len(b)-5] }},
	{name: "blank-line", in: []string{"plain", "packed", "zip"}, verdict: "corrupt", rule: "LINE-BLANK", lines: func(l [][]byte) [][]byte { return slices.Insert(l, 4, []byte("\n")) }},
	{name: "no-marker", in: []string{"plain", "packed", "zip", "zstd"}, verdict: "violations", rule: "SURF-MARKER", lines: func(l [][]byte) [][]byte {
		for i := range l {
			if bytes.Contains(l[i], []byte(`,"surfaceOp":"append"`)) {
				l[i] = bytes.Replace(l[i], []byte(`,"surfaceOp":"append"`), nil, 1)
				break
			}
		}
		return l
	}},
	{name: "moved", in: []string{"plain", "packed", "zstd"}, verdict: "violations", rule: "ROOT-IDENTITY", moved: true},
}

var containers = []string{"plain", "packed", "zstd", "sqlite", "zip"}

// perDatabase is how many sessions share a database.
const perDatabase = 50

// A template is a sound log.
type template struct {
	name   string
	header map[string]json.RawMessage
	keys   []string // of the header, in order
	events []*logfmt.Event
}

// templates reads the logs of the newest dialect that need no other log and that
// nothing is found in: what is found in their copies is then what was done to them.
func templates(dir string) ([]*template, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "head-*", "session.jsonl"))
	if err != nil {
		return nil, err
	}
	var out []*template
	for _, path := range paths {
		log, err := logfmt.OpenFile(path, logfmt.Options{})
		if err != nil {
			return nil, err
		}
		result, err := invariants.Check(context.Background(), log, invariants.Options{})
		if err != nil {
			return nil, err
		}
		if result.Verdict != invariants.OK {
			continue
		}
		t := &template{name: filepath.Base(filepath.Dir(path)), header: map[string]json.RawMessage{}}
		for e, d := range log.Events() {
			if d != nil {
				return nil, d
			}
			t.events = append(t.events, e.Clone())
		}
		if log.Header.ParentSession != nil || len(t.events) < 8 {
			continue
		}
		if err := json.Unmarshal(log.Header.Raw, &t.header); err != nil {
			return nil, err
		}
		t.keys = []string{"type", "version", "id", "createdAt", "cwd", "delegationDepth"}
		if len(t.keys) == len(t.header) {
			out = append(out, t)
		}
	}
	if len(out) < 5 {
		return nil, fmt.Errorf("%s: %d sound logs of the newest dialect, want at least 5", dir, len(out))
	}
	return out, nil
}

// head is the header record under another id and working directory.
func (t *template) head(id, cwd string) []byte {
	var b bytes.Buffer
	for i, k := range t.keys {
		v := string(t.header[k])
		switch k {
		case "id":
			v = fmt.Sprintf("%q", id)
		case "cwd":
			v = fmt.Sprintf("%q", cwd)
		}
		b.WriteString([]string{"{", ","}[min(i, 1)] + fmt.Sprintf("%q:%s", k, v))
	}
	b.WriteByte('}')
	return b.Bytes()
}

// write gives the log in a form. With a way that damages text, the text of a
// Zstandard log is damaged before it is compressed.
func (t *template) write(header []byte, form logfmt.Form, w *way) ([]byte, error) {
	var b bytes.Buffer
	write := func(form logfmt.Form) error {
		out := logfmt.NewWriter(&b, form)
		if err := out.Begin(header); err != nil {
			return err
		}
		for i, e := range t.events {
			if err := out.Add(e); err != nil {
				return err
			}
			if i%16 == 15 { // batches, as a harness writes them
				if err := out.Flush(); err != nil {
					return err
				}
			}
		}
		return out.Close()
	}
	if w == nil || w.lines == nil {
		if err := write(form); err != nil {
			return nil, err
		}
		if w != nil && w.bytes != nil {
			return w.bytes(b.Bytes()), nil
		}
		return b.Bytes(), nil
	}
	textForm := form
	if form == logfmt.FormZstd {
		textForm = logfmt.FormPlain
	}
	if err := write(textForm); err != nil {
		return nil, err
	}
	var lines [][]byte
	for l := range bytes.Lines(b.Bytes()) {
		lines = append(lines, bytes.Clone(l))
	}
	text := bytes.Join(w.lines(lines), nil)
	if form != logfmt.FormZstd {
		return text, nil
	}
	b.Reset()
	out := logfmt.NewWriter(&b, form)
	header, rest, _ := bytes.Cut(text, []byte("\n"))
	if err := out.Begin(header); err != nil {
		return nil, err
	}
	log, err := logfmt.NewReader(bytes.NewReader(text), "text", logfmt.Options{})
	if err != nil {
		return nil, err
	}
	for e, d := range log.Events() {
		if d != nil {
			return nil, fmt.Errorf("%s: %w in %d bytes", w.name, d, len(rest))
		}
		if err := out.Add(e); err != nil {
			return nil, err
		}
	}
	err = out.Close()
	return b.Bytes(), err
}

// A session is one log to be made.
type session struct {
	id, cwd   string
	t         *template
	container string
	way       *way
}

// generate makes a directory of n sessions in all containers: a root of plain and
// packed logs, one of Zstandard logs, databases and exports. It damages some and
// says which. The same arguments give the same bytes.
func generate(dir string, n, damaged int, seed uint64, ts []*template) ([]Damaged, error) {
	r := rand.New(rand.NewPCG(seed, 1))
	sessions := make([]*session, n)
	for i := range sessions {
		sessions[i] = &session{
			id: fmt.Sprintf("s-%05d", i), cwd: fmt.Sprintf("/srv/project-%d", r.IntN(7)),
			t: ts[r.IntN(len(ts))], container: containers[i%len(containers)],
		}
	}
	// Damage is spread over everything, one way after the other.
	for k := range damaged {
		w := &ways[k%len(ways)]
		i := r.IntN(n)
		for tries := 0; sessions[i].way != nil || !slices.Contains(w.in, sessions[i].container) || !sessions[i].t.fits(w); tries++ {
			if i = (i + 1) % n; tries > n {
				return nil, fmt.Errorf("no log left for %s", w.name)
			}
		}
		sessions[i].way = w
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		return nil, err
	}
	var out []Damaged
	note := func(s *session, path string) {
		if s.way != nil {
			out = append(out, Damaged{filepath.ToSlash(path), s.id, s.way.name, s.way.verdict, s.way.rule})
		}
	}
	var rows []*session
	for i, s := range sessions {
		if s.container == "sqlite" {
			rows = append(rows, s)
			continue
		}
		path, err := s.file(dir, i)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.id, err)
		}
		note(s, path)
	}
	for i := 0; len(rows) > 0; i++ {
		batch := rows[:min(len(rows), perDatabase)]
		rows = rows[len(batch):]
		path := filepath.Join("databases", fmt.Sprintf("store-%d.sqlite", i))
		if err := database(filepath.Join(dir, path), batch); err != nil {
			return nil, err
		}
		for _, s := range batch {
			note(s, path)
		}
	}
	slices.SortFunc(out, func(a, b Damaged) int { return strings.Compare(a.Path+a.Session, b.Path+b.Session) })
	return out, nil
}

// fits reports whether a way breaks this log as it says: what it takes away must
// be there, and be committed.
func (t *template) fits(w *way) bool {
	switch w.name {
	case "lost-line", "doubled-line", "cut-line", "blank-line", "row-cut", "row-lost":
		return !strings.Contains(string(t.events[2].Type), "chunk") && !strings.Contains(string(t.events[1].Type), "chunk")
	}
	return true
}

// file writes a session in a file of its own and returns its path in the root.
func (s *session) file(dir string, i int) (string, error) {
	form := map[string]logfmt.Form{"plain": logfmt.FormPlain, "packed": logfmt.FormPacked, "zip": logfmt.FormPlain, "zstd": logfmt.FormZstd}[s.container]
	id := s.id
	if s.way != nil && s.way.moved {
		id += "-other"
	}
	data, err := s.t.write(s.t.head(id, s.cwd), form, s.way)
	if err != nil {
		return "", err
	}
	s.id = id
	project, err := logfmt.ProjectKey(s.cwd)
	if err != nil {
		return "", err
	}
	segment := fmt.Sprintf("s-%05d", i)
	var path, entry string
	switch s.container {
	case "zip":
		path, entry = filepath.Join("exports", fmt.Sprintf("session-%05d.zip", i)), "session.jsonl"
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		w, err := z.Create(entry)
		if err == nil {
			_, err = w.Write(data)
		}
		if err = errors.Join(err, z.Close()); err != nil {
			return "", err
		}
		data = b.Bytes()
		entry = "!" + entry
	case "zstd":
		path = filepath.Join("compressed", project, segment, "session.jsonl.zstd")
	default:
		path = filepath.Join("plain", project, segment, "session.jsonl")
	}
	full := filepath.Join(dir, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o777); err != nil {
		return "", err
	}
	return path + entry, os.WriteFile(full, data, 0o666)
}

// database writes sessions into one database, and damages rows.
func database(path string, sessions []*session) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	w, err := logfmt.CreateDatabase(path)
	if err != nil {
		return err
	}
	n := 0
	w.NewID = func() string { n++; return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }
	for _, s := range sessions {
		log, err := logfmt.NewReader(bytes.NewReader(append(s.t.head(s.id, s.cwd), '\n')), s.id, logfmt.Options{})
		if err == nil {
			err = w.Begin(log.Header)
		}
		for _, e := range s.t.events {
			if err == nil {
				err = w.Add(e)
			}
		}
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", s.id, err), w.Abort())
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	db, err := sqlite3.Open(path)
	if err != nil {
		return err
	}
	for _, s := range sessions {
		if s.way == nil || err != nil {
			continue
		}
		var st *sqlite3.Stmt
		if st, _, err = db.Prepare(s.way.sql); err != nil {
			break
		}
		if err = st.BindText(1, s.id); err == nil {
			err = st.Exec()
		}
		if err == nil && db.Changes() != 1 {
			err = fmt.Errorf("%s: %s changed %d rows, want 1", s.id, s.way.name, db.Changes())
		}
		err = errors.Join(err, st.Close())
	}
	return errors.Join(err, db.Close())
}
