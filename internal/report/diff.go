package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/ui"
	"github.com/dsh-audit/dsh-audit/pkg/drift"
)

// DiffSchema names the JSON format of dsh-diff.
const DiffSchema = "dsh-audit/diff/1"

// A Side is one of two compared requests.
type Side struct {
	Log     Text     `json:"log"`
	Turn    int64    `json:"turn"`
	Step    int64    `json:"step"`
	Attempt int      `json:"attempt"`
	Grade   string   `json:"grade"`
	Reasons []string `json:"reasons,omitempty"`
	Bytes   int64    `json:"bytes"`
	SHA256  string   `json:"sha256"`
}

func (s *Side) name() string {
	n := fmt.Sprintf("%s@%d.%d", ui.Escape(string(s.Log)), s.Turn, s.Step)
	if s.Attempt > 1 {
		n += fmt.Sprintf(".%d", s.Attempt)
	}
	return n
}

type jsonAt struct {
	Offset int64 `json:"offset"`
	Path   Text  `json:"path"`
}

type jsonChange struct {
	Name Text `json:"name"`
	A    Raw  `json:"a"` // null when absent, see inA
	B    Raw  `json:"b"`
	InA  bool `json:"inA"`
	InB  bool `json:"inB"`
}

type jsonLines struct {
	Op    string `json:"op"` // keep, drop, add
	Lines []Text `json:"lines"`
}

type jsonSystem struct {
	Dropped int         `json:"dropped"`
	Added   int         `json:"added"`
	Coarse  bool        `json:"coarse,omitempty"`
	A       Raw         `json:"a,omitempty"` // only when a side is not text
	B       Raw         `json:"b,omitempty"`
	Lines   []jsonLines `json:"lines"`
}

type jsonTool struct {
	Name   Text `json:"name"`
	IndexA *int `json:"indexA,omitempty"`
	IndexB *int `json:"indexB,omitempty"`
	*jsonAt
}

type jsonTools struct {
	A         int        `json:"a"`
	B         int        `json:"b"`
	Kept      int        `json:"kept"`
	Added     []jsonTool `json:"added"`
	Removed   []jsonTool `json:"removed"`
	Changed   []jsonTool `json:"changed"`
	Reordered []jsonTool `json:"reordered"`
	Presence  bool       `json:"presence,omitempty"` // one side has no tools member, the other an empty list
}

type jsonMessage struct {
	Kind   string `json:"kind"`
	IndexA *int   `json:"indexA,omitempty"`
	IndexB *int   `json:"indexB,omitempty"`
	*jsonAt
	A Raw `json:"a,omitempty"`
	B Raw `json:"b,omitempty"`
}

type jsonMessages struct {
	A       int           `json:"a"`
	B       int           `json:"b"`
	Kept    int           `json:"kept"`
	Coarse  bool          `json:"coarse,omitempty"`
	Changes []jsonMessage `json:"changes"`
}

type jsonDiff struct {
	Schema   string       `json:"schema"`
	A        *Side        `json:"a"`
	B        *Side        `json:"b"`
	Same     bool         `json:"same"`
	Extends  bool         `json:"extends"`
	First    *jsonAt      `json:"firstDivergence"`
	Config   []jsonChange `json:"config"`
	KeyOrder bool         `json:"keyOrder"`
	Session  *jsonChange  `json:"sessionId,omitempty"`
	System   *jsonSystem  `json:"system,omitempty"`
	Tools    jsonTools    `json:"tools"`
	Messages jsonMessages `json:"messages"`
}

// WriteDiffJSON writes a comparison as one JSON object.
func WriteDiffJSON(w io.Writer, a, b *Side, d *drift.Diff) error {
	at := func(v *drift.Divergence) *jsonAt {
		if v == nil {
			return nil
		}
		return &jsonAt{v.Offset, Text(v.Path)}
	}
	change := func(c *drift.Change) jsonChange {
		return jsonChange{Text(c.Name), safe(c.A), safe(c.B), c.A != nil, c.B != nil}
	}
	index := func(i int) *int {
		if i < 0 {
			return nil
		}
		return &i
	}
	out := jsonDiff{Schema: DiffSchema, A: a, B: b, Same: d.Same, Extends: d.Extends, First: at(d.At),
		Config: []jsonChange{}, KeyOrder: d.KeyOrder}
	for i := range d.Config {
		out.Config = append(out.Config, change(&d.Config[i]))
	}
	if d.Session != nil {
		c := change(d.Session)
		out.Session = &c
	}
	if s := d.System; s != nil {
		js := &jsonSystem{Coarse: s.Coarse, Lines: []jsonLines{}}
		js.Dropped, js.Added = s.Count()
		if !s.Text {
			js.A, js.B = safe(s.A), safe(s.B)
		}
		for _, l := range s.Lines {
			jl := jsonLines{Op: [...]string{drift.Keep: "keep", drift.Drop: "drop", drift.Add: "add"}[l.Op]}
			for _, t := range l.Text {
				jl.Lines = append(jl.Lines, Text(t))
			}
			js.Lines = append(js.Lines, jl)
		}
		out.System = js
	}
	t := &d.Tools
	out.Tools = jsonTools{A: t.A, B: t.B, Kept: t.Kept, Added: []jsonTool{}, Removed: []jsonTool{},
		Changed: []jsonTool{}, Reordered: []jsonTool{}, Presence: t.Present != nil}
	for _, x := range t.Added {
		out.Tools.Added = append(out.Tools.Added, jsonTool{Name: Text(x.Name), IndexB: index(x.Index)})
	}
	for _, x := range t.Removed {
		out.Tools.Removed = append(out.Tools.Removed, jsonTool{Name: Text(x.Name), IndexA: index(x.Index)})
	}
	for _, x := range t.Changed {
		out.Tools.Changed = append(out.Tools.Changed, jsonTool{Text(x.Name), index(x.IndexA), index(x.IndexB), at(&x.At)})
	}
	for _, x := range t.Moved {
		out.Tools.Reordered = append(out.Tools.Reordered, jsonTool{Name: Text(x.Name), IndexB: index(x.Index)})
	}
	m := &d.Messages
	out.Messages = jsonMessages{A: m.A, B: m.B, Kept: m.Kept, Coarse: m.Coarse, Changes: []jsonMessage{}}
	for _, c := range m.Changes {
		out.Messages.Changes = append(out.Messages.Changes, jsonMessage{string(c.Kind), index(c.A), index(c.B), at(c.At), safe(c.Old), safe(c.New)})
	}
	line, err := Marshal(&out)
	if err != nil {
		return err
	}
	return writeString(w, string(line), "\n")
}

func safe(v []byte) Raw {
	if v == nil {
		return nil
	}
	return ui.SafeJSON(v)
}

// WriteDiffText writes a comparison for people.
func WriteDiffText(w io.Writer, pal ui.Palette, a, b *Side, d *drift.Diff) error {
	var out strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	for _, s := range []struct {
		letter string
		side   *Side
	}{{"A", a}, {"B", b}} {
		p("%s  %s  %s bytes, %s, sha256 %s", s.letter, pal.Head(s.side.name()), fmt.Sprint(s.side.Bytes), grade(s.side), s.side.SHA256)
	}
	if d.Same {
		p("%s: every byte is equal", pal.Good("same"))
		return writeString(w, out.String())
	}
	where := "the object itself"
	if d.At.Path != "" {
		where = clip(ui.Escape(d.At.Path), 200)
	}
	p("%s: first at byte %d, in %s", pal.Warn("differ"), d.At.Offset, where)

	diffConfig(p, pal, d)
	diffSystem(p, pal, d.System)
	diffTools(p, pal, &d.Tools)
	diffMessages(p, pal, &d.Messages)
	p("extends   %s", extends(d))
	return writeString(w, out.String())
}

func grade(s *Side) string {
	if len(s.Reasons) == 0 {
		return s.Grade
	}
	return s.Grade + " (" + strings.Join(s.Reasons, ", ") + ")"
}

type printer func(format string, args ...any)

func diffConfig(p printer, pal ui.Palette, d *drift.Diff) {
	switch {
	case d.KeyOrder:
		p("config    same values, in another order of keys")
	case len(d.Config) == 0:
		p("config    same")
	default:
		p("config    %d changed", len(d.Config))
	}
	changes := d.Config
	if d.Session != nil {
		changes = append(changes[:len(changes):len(changes)], *d.Session)
	}
	for _, c := range changes {
		name := ui.Escape(c.Name)
		switch {
		case c.A == nil:
			p("  %s", pal.Added("+ "+name+": "+excerpt(c.B)))
		case c.B == nil:
			p("  %s", pal.Gone("- "+name+": "+excerpt(c.A)))
		default:
			p("  ~ %s: %s -> %s", name, pal.Gone(excerpt(c.A)), pal.Added(excerpt(c.B)))
		}
	}
}

// context is how many equal lines are shown around changed ones.
const context = 3

func diffSystem(p printer, pal ui.Palette, s *drift.SystemDiff) {
	if s == nil {
		p("system    same")
		return
	}
	if !s.Text {
		p("system    %s -> %s", excerpt(s.A), excerpt(s.B))
		return
	}
	dropped, added := s.Count()
	note := ""
	if s.Coarse {
		note = "; too many lines differ to be aligned"
	}
	switch {
	case s.A == nil:
		note += "; A has none"
	case s.B == nil:
		note += "; B has none"
	}
	p("system    %s dropped, %d added%s", count(int64(dropped), "line"), added, note)
	ln := 1 // of A
	for i, run := range s.Lines {
		if run.Op != drift.Keep {
			for _, t := range run.Text {
				if run.Op == drift.Drop {
					p("  %5d %s", ln, pal.Gone("- "+ui.Escape(t)))
					ln++
				} else {
					p("        %s", pal.Added("+ "+ui.Escape(t)))
				}
			}
			continue
		}
		// Lines after a change and before the next one; what lies between is cut.
		n := len(run.Text)
		head, tail := min(n, context), min(n, context)
		if i == 0 {
			head = 0
		}
		if i == len(s.Lines)-1 {
			tail = 0
		}
		for k, t := range run.Text {
			switch {
			case k < head || k >= n-tail:
				p("  %5d   %s", ln, ui.Escape(t))
			case k == head:
				p("        %s", pal.Dim(fmt.Sprintf("... %s equal", count(int64(n-head-tail), "line"))))
			}
			ln++
		}
	}
}

func diffTools(p printer, pal ui.Palette, t *drift.ToolsDiff) {
	switch {
	case t.Present != nil && t.Present.A == nil:
		p("tools     A has no tools member, B an empty list")
		return
	case t.Present != nil:
		p("tools     A has an empty list, B no tools member")
		return
	case t.Equal():
		p("tools     same (%d)", t.A)
		return
	}
	p("tools     %d kept, %d added, %d removed, %d changed, %d reordered",
		t.Kept, len(t.Added), len(t.Removed), len(t.Changed), len(t.Moved))
	name := func(s string, i int) string {
		if s == "" {
			return fmt.Sprintf("[%d]", i)
		}
		return ui.Escape(s)
	}
	for _, x := range t.Removed {
		p("  %s", pal.Gone("- "+name(x.Name, x.Index)))
	}
	for _, x := range t.Added {
		p("  %s", pal.Added("+ "+name(x.Name, x.Index)))
	}
	for _, x := range t.Changed {
		p("  ~ %s: first at byte %d of the tool%s", name(x.Name, x.IndexB), x.At.Offset, inPath(x.At.Path))
	}
	for _, x := range t.Moved {
		p("  > %s: now at place %d", name(x.Name, x.Index), x.Index)
	}
}

func inPath(path string) string {
	if path == "" {
		return ""
	}
	return ", in " + clip(ui.Escape(path), 200)
}

func diffMessages(p printer, pal ui.Palette, m *drift.MessagesDiff) {
	if len(m.Changes) == 0 {
		p("messages  same (%d)", m.A)
		return
	}
	note := ""
	if m.Coarse {
		note = "; too many messages differ to be aligned"
	}
	p("messages  %d kept, %d added, %d changed, %d dropped%s", m.Kept,
		m.Count(drift.Added), m.Count(drift.Changed), m.Count(drift.Dropped), note)
	for _, c := range m.Changes {
		switch c.Kind {
		case drift.Added:
			p("  %s", pal.Added(fmt.Sprintf("+ [%d] %s", c.B, Gist(c.New))))
		case drift.Dropped:
			p("  %s", pal.Gone(fmt.Sprintf("- [%d] %s", c.A, Gist(c.Old))))
		default:
			p("  ~ [%d] -> [%d] first at byte %d of the message%s", c.A, c.B, c.At.Offset, inPath(c.At.Path))
			p("    %s", pal.Gone("- "+around(c.Old, c.At.Offset)))
			p("    %s", pal.Added("+ "+around(c.New, c.At.Offset)))
		}
	}
}

func extends(d *drift.Diff) string {
	m := &d.Messages
	switch {
	case d.Extends && m.A == m.B:
		return "yes: header and messages are equal"
	case d.Extends:
		return fmt.Sprintf("yes: B is A with %s appended", count(int64(m.B-m.A), "message"))
	}
	var why []string
	if len(d.Config) > 0 {
		why = append(why, "the config differs")
	}
	if d.System != nil {
		why = append(why, "the system prompt differs")
	}
	if !d.Tools.Equal() {
		why = append(why, "the tools differ")
	}
	if n := m.Count(drift.Dropped) + m.Count(drift.Changed); n > 0 {
		why = append(why, fmt.Sprintf("%s not in B as %s", countAre(n, "message of A", "messages of A"), map[bool]string{true: "it was", false: "they were"}[n == 1]))
	} else if len(why) == 0 {
		why = append(why, "messages were inserted before the end")
	}
	return "no: " + strings.Join(why, "; ")
}

func countAre(n int, one, many string) string {
	if n == 1 {
		return "1 " + one + " is"
	}
	return fmt.Sprintf("%d %s are", n, many)
}

// excerpt shows a JSON value in one short line; nil is "nothing".
func excerpt(v []byte) string {
	if v == nil {
		return "nothing"
	}
	return clip(string(ui.SafeJSON(v)), 120)
}

// around shows the JSON text about an offset.
func around(v []byte, offset int64) string {
	const before, after = 30, 90
	from, to := max(0, int(offset)-before), min(len(v), int(offset)+after)
	for from > 0 && !utf8.RuneStart(v[from]) {
		from--
	}
	for to < len(v) && !utf8.RuneStart(v[to]) {
		to++
	}
	s := string(ui.SafeJSON(v[from:to]))
	if from > 0 {
		s = "..." + s
	}
	if to < len(v) {
		s += "..."
	}
	return s
}

// clip cuts text to at most n characters.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	k := 0
	for i := range s {
		if k == n-3 {
			return s[:i] + "..."
		}
		k++
	}
	return s
}

// Gist shows a message in one line: its role, then the beginning of its content.
func Gist(m []byte) string {
	role, ok := jsjson.Str(jsjson.Get(m, "role"))
	if !ok {
		return excerpt(m)
	}
	content := jsjson.Get(m, "content")
	var parts []string
	if s, ok := jsjson.Str(content); ok {
		parts = append(parts, quote(s))
	}
	for block := range jsjson.Elements(content) {
		if len(parts) == 4 {
			parts = append(parts, "...")
			break
		}
		parts = append(parts, blockGist(block))
	}
	return ui.Escape(role) + " " + clip(strings.Join(parts, " "), 160)
}

func blockGist(b []byte) string {
	typ, _ := jsjson.Str(jsjson.Get(b, "type"))
	str := func(key string) string {
		s, _ := jsjson.Str(jsjson.Get(b, key))
		return s
	}
	switch typ {
	case "text":
		return quote(str("text"))
	case "reasoning":
		return "reasoning " + quote(str("text"))
	case "tool-call":
		return "call " + ui.Escape(str("name")) + "(" + clip(ui.Escape(str("arguments")), 80) + ")"
	case "tool-result":
		s := "result"
		if string(jsjson.Get(b, "isError")) == "true" {
			s = "failed result"
		}
		for inner := range jsjson.Elements(jsjson.Get(b, "content")) {
			return s + " " + blockGist(inner)
		}
		return s
	}
	return excerpt(b)
}

func quote(s string) string { return `"` + clip(ui.Escape(s), 100) + `"` }
