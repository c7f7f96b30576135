package logfmt

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// Synthetic is a set of parts of an event that stand in no log: they were made up
// for a fixture from which they had been taken (SEMANTICS §12, PHYSICAL §1.7).
type Synthetic uint8

const (
	SyntheticSeq    Synthetic = 1 << iota // seq was counted
	SyntheticTime                         // time is 0, or, in a packed row, counted from 0
	SyntheticHeader                       // system prompt or tools come from the files beside the fixture
)

// Tokens that stand in fixtures for what differs from run to run.
const (
	tokenCwd    = "{{cwd}}"
	tokenSystem = `"{{system}}"`
	tokenTools  = `"{{tools}}"`
)

// Fixture reports whether the log is one of a repository, in which tokens stand
// for ids and paths of the run: what should be unique or absolute need not be.
func (l *Log) Fixture() bool {
	h := l.Header
	return l.Container == Golden || h != nil && (strings.HasPrefix(h.ID, "{{") || h.Cwd != nil && strings.HasPrefix(*h.Cwd, tokenCwd))
}

// projection puts back what the projection of a fixture took from its rows.
type projection struct {
	seq   int64
	mixed bool // a row was seen that has what the others lack
}

// restore completes the record just parsed. In a fixture either all rows lack seq
// and time or none does.
func (p *projection) restore(r *record) {
	r.synth = 0
	f := &r.env.field
	switch {
	case r.env.shape == shapeRow && r.packed && f[fSeq0] == nil && f[fTime0] == nil:
		r.synth = SyntheticSeq | SyntheticTime
		if r.defect != nil && r.defect.Rule != RuleRow || r.gen != nil && !r.gen.Packed {
			return
		}
		r.defect = nil
		row := &r.row
		row.reset(r.env.typ)
		err := error(nil)
		if row.seq0 = p.seq; r.env.members() != 2 || f[fData] == nil {
			err = &rowError{r.env.typ, "envelope must be exactly {type, data} in a projected fixture"}
		} else {
			err = row.decodeData(f[fData], r.facts&uint16(jsjson.NumberOverflow) != 0)
		}
		if err != nil {
			r.defect = &Defect{Rule: RuleRow, Class: Corrupt, Message: err.Error(), Err: err}
			return
		}
		r.got = nil
	case r.defect != nil || r.value:
		return
	case !r.packed && f[fSeq] == nil && f[fTime] == nil:
		r.synth = SyntheticSeq | SyntheticTime
		e := &r.event
		e.Seq, e.Time, e.Synthetic = p.seq, 0, r.synth
		e.Fault &^= FaultSeq | FaultTime
		r.exp = insertPlace(r.exp[:0], e.JSON, p.seq)
		e.JSON = r.exp
		if r.odd = ""; r.gen != nil && r.gen.Closed {
			r.odd = r.notClosed()
		}
	case !p.mixed:
		p.mixed, r.strict = true, true
		r.defect = &Defect{Rule: RuleEnvelope, Class: Corrupt,
			Message: fmt.Sprintf("the row has a seq or a time of its own, the rows before it have none: expected neither, and seq %d by its place", p.seq),
			Hint:    "a fixture has them in all rows or in none; if this is no fixture, its first event lost them"}
		p.seq++
		return
	}
	if n := r.first(); n >= 0 {
		p.seq = n + int64(r.count())
	}
}

// insertPlace appends a canonical event with seq and time put where the live
// writer has them, behind the type.
func insertPlace(dst, event []byte, seq int64) []byte {
	at := 1
	if bytes.HasPrefix(event, []byte(`{"type":`)) {
		at = jsjson.Skip(event, len(`{"type":`))
	}
	dst = append(dst, event[:at]...)
	if at > 1 {
		dst = append(dst, ',')
	}
	dst = append(dst, `"seq":`...)
	dst = appendInt(dst, seq)
	dst = append(dst, `,"time":0`...)
	if at == 1 && event[1] != '}' {
		dst = append(dst, ',')
	}
	return append(dst, event[at:]...)
}

// snapshots are the system prompts and tool schemas beside a fixture in which
// tokens stand for them: those of its first header, and of each change.
type snapshots struct {
	system map[int]string // as JSON strings
	tools  map[int]string // as canonical JSON

	headers int // header events so far
	changes int // of them, those for a change
}

const maxSnapshot = 16 << 20

var fixtureName = regexp.MustCompile(`^session(\.[0-9]+)?(\.v[0-9]+)?\.jsonl$`)

// readSnapshots looks for the files beside a log. It returns nil when there are
// none, and tells what is wrong with those that are there.
func readSnapshots(path string) (*snapshots, []*Defect) {
	m := fixtureName.FindStringSubmatch(filepath.Base(path))
	if m == nil {
		return nil, nil
	}
	s := &snapshots{}
	var defects []*Defect
	read := func(name, ext string, parse func([]byte) error) {
		for _, word := range []string{".expected", ".golden"} {
			file := name + m[1] + word + ext
			path := filepath.Join(filepath.Dir(path), file)
			if st, err := os.Lstat(path); err != nil || !st.Mode().IsRegular() {
				continue
			}
			b, err := readAtMost(path, maxSnapshot)
			if err == nil {
				err = parse(b)
			}
			if err != nil {
				d := placed(RuleFixture, path, "without it requests are graded as ambiguous", "%s: %v", file, err)
				defects = append(defects, d)
			}
			return
		}
	}
	read("system-prompt", ".md", func(b []byte) error {
		s.system = parsePrompts(b)
		return nil
	})
	read("tool-schemas", ".json", func(b []byte) (err error) {
		s.tools, err = parseTools(b)
		return err
	})
	if s.system == nil && s.tools == nil {
		return nil, defects
	}
	return s, defects
}

func readAtMost(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("more than %d bytes", most)
	}
	return b, err
}

var changeMark = regexp.MustCompile(`\n\n<!-- request/header change ([0-9]{1,9}) -->\n\n`)

// parsePrompts reads prompts that are kept apart by lines that number the change
// of header. The line feed at the end is the file's, not the prompt's.
func parsePrompts(b []byte) map[int]string {
	out := map[int]string{}
	text := string(jsjson.ReplaceBadUTF8(nil, bytes.TrimSuffix(b, []byte("\n"))))
	n := 0
	for {
		at := changeMark.FindStringSubmatchIndex(text)
		end := len(text)
		if at != nil {
			end = at[0]
		}
		out[n] = string(jsjson.AppendQuote(nil, text[:end]))
		if at == nil {
			return out
		}
		n, _ = strconv.Atoi(text[at[2]:at[3]])
		text = text[at[1]:]
	}
}

// parseTools reads {"initial":[…],"changes":[…]}, the tool lists of the first
// header and of each change.
func parseTools(b []byte) (map[int]string, error) {
	canon, _, err := jsjson.Stringify(bytes.TrimSpace(b))
	if err != nil {
		return nil, err
	}
	initial := jsjson.Get(canon, "initial")
	if jsjson.KindOf(initial) != jsjson.Array {
		return nil, fmt.Errorf("initial is %s, expected the list of tools", valueName(initial))
	}
	out := map[int]string{0: string(initial)}
	changes := jsjson.Get(canon, "changes")
	if changes != nil && jsjson.KindOf(changes) != jsjson.Array {
		return nil, fmt.Errorf("changes is %s, expected a list of lists of tools", valueName(changes))
	}
	n := 0
	for v := range jsjson.Elements(changes) {
		if n++; jsjson.KindOf(v) != jsjson.Array {
			return nil, fmt.Errorf("change %d is %s, expected the list of tools", n, valueName(v))
		}
		out[n] = string(v)
	}
	return out, nil
}

// expand puts the prompt and the tools into a header event in which tokens stand
// for them.
func (s *snapshots) expand(r *record) {
	e := &r.event
	if r.defect != nil || r.value || r.packed || e.Type != TypeRequestHeader {
		return
	}
	s.headers++
	if jsjson.StrEq(jsjson.Get(e.Data, "reason"), "change") {
		s.changes++
	}
	data, ok := memberSpan(e.JSON, span{to: int64(len(e.JSON))}, `"data"`)
	if !ok {
		return
	}
	header, ok := memberSpan(e.JSON, data, `"header"`)
	if !ok {
		return
	}
	// From the last to the first, so that places stay.
	type change struct {
		at   span
		with string
	}
	var changes []change
	for _, m := range []struct {
		key, token string
		of         map[int]string
	}{{`"system"`, tokenSystem, s.system}, {`"tools"`, tokenTools, s.tools}} {
		at, ok := memberSpan(e.JSON, header, m.key)
		if ok && string(e.JSON[at.from:at.to]) == m.token {
			if with := s.at(m.of); with != "" {
				changes = append(changes, change{at, with})
			}
		}
	}
	if len(changes) == 0 {
		return
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(b.at.from, a.at.from) })
	out := bytes.Clone(e.JSON)
	for _, c := range changes {
		out = slices.Replace(out, int(c.at.from), int(c.at.to), []byte(c.with)...)
		data.to += int64(len(c.with)) - (c.at.to - c.at.from)
	}
	e.JSON, e.Data = out, out[data.from:data.to:data.to]
	e.Mark = PieceMark{} // of other bytes
	e.Synthetic |= SyntheticHeader
}

// memberSpan finds the value of a member of the object that stands at a place in
// canonical JSON.
func memberSpan(b []byte, obj span, key string) (span, bool) {
	if b[obj.from] != '{' {
		return span{}, false
	}
	for i := int(obj.from) + 1; i < len(b) && b[i] == '"'; i++ {
		j := jsjson.Skip(b, i)
		end := jsjson.Skip(b, j+1)
		if string(b[i:j]) == key {
			return span{from: int64(j + 1), to: int64(end)}, true
		}
		i = end
	}
	return span{}, false
}

// at returns the snapshot for the current header, "" where the files leave it
// open: whether a change is numbered among all headers or among those logged for
// a change, they do not say.
func (s *snapshots) at(of map[int]string) string {
	if s.headers == 1 || len(of) == 1 {
		return of[0]
	}
	all, ok := of[s.headers-1]
	if !ok || all != of[s.changes] {
		return ""
	}
	return all
}
