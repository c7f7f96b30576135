package golden

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Schema names the form of golden.json.
const Schema = "dsh-audit/golden/1"

// Names of the files of a golden. The log of a later generation has that in its
// name, see Golden.FileLog.
const (
	FileLog      = "session.jsonl"
	FileSystem   = "system-prompt.expected.md"
	FileTools    = "tool-schemas.expected.json"
	FileLast     = "last-request.txt"
	FileManifest = "golden.json"
)

// Names are the files of a golden, golden.json last: with it the others are
// complete.
var Names = []string{FileLog, "session.v1.jsonl", "session.v2.jsonl", "session.v3.jsonl", "session.v4.jsonl", FileSystem, FileTools, FileLast, FileManifest}

const (
	tokenSystem = `"{{system}}"`
	tokenTools  = `"{{tools}}"`
)

// Files returns the content of the files; those that the golden does not have are
// absent. last is the rendered last request, nil when none was sent.
func (g *Golden) Files(last []byte) map[string][]byte {
	out := map[string][]byte{FileManifest: g.manifest()}
	system, tools := g.part("system", true), g.part("tools", false)
	if system != nil {
		out[FileSystem] = prompts(system)
	}
	if tools != nil {
		out[FileTools] = schemas(tools)
	}
	out[g.FileLog()] = g.projected(system != nil, tools != nil)
	if last != nil {
		out[FileLast] = last
	}
	return out
}

// FileLog is the name of the projected log (FORMATS §9).
func (g *Golden) FileLog() string {
	if n, ok := jsjson.SafeInt(jsjson.Get(g.header, "version")); ok && n > 0 {
		return fmt.Sprintf("session.v%d.jsonl", n)
	}
	return FileLog
}

// part returns the system prompt or the tools of every header, nil when the files
// beside a log could not tell which header has which: the values then stay in the
// log. Where there is only one value it is that of all headers; else the file
// numbers the changes, which is clear when every header but the first is one.
func (g *Golden) part(key string, text bool) [][]byte {
	var all [][]byte
	distinct := map[string]bool{}
	numbered := true
	for _, e := range g.events {
		switch e.typ {
		case logfmt.TypeRequestHeaderDelta:
			return nil
		case logfmt.TypeRequestHeader:
		default:
			continue
		}
		data := jsjson.Get(e.json, "data")
		v := jsjson.Get(jsjson.Get(data, "header"), key)
		switch {
		case v == nil:
			all = append(all, nil)
			numbered = false
		case text && jsjson.KindOf(v) == jsjson.String && holds(v), !text && jsjson.KindOf(v) == jsjson.Array:
			all = append(all, v)
			distinct[string(v)] = true
		default:
			return nil
		}
		if len(all) > 1 && !jsjson.StrEq(jsjson.Get(data, "reason"), "change") {
			numbered = false
		}
	}
	switch {
	case len(distinct) == 0:
		return nil
	case len(distinct) == 1:
		for _, v := range all {
			if v != nil {
				return [][]byte{v}
			}
		}
	case numbered:
		return all
	}
	return nil
}

// holds reports whether a prompt survives in a text file, and does nothing to the
// terminal of one who reads it: else it stays in the log, where JSON escapes it.
func holds(v []byte) bool {
	s, _ := jsjson.Str(v)
	return s == string(jsjson.ReplaceBadUTF8(nil, []byte(s))) && !changeMark.MatchString("\n\n"+s+"\n\n") && string(v) != tokenSystem &&
		strings.IndexFunc(s, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) < 0
}

var changeMark = regexp.MustCompile(`\n\n<!-- request/header change ([0-9]{1,9}) -->\n\n`)

func prompts(list [][]byte) []byte {
	var out bytes.Buffer
	for i, v := range list {
		if i > 0 {
			fmt.Fprintf(&out, "\n\n<!-- request/header change %d -->\n\n", i)
		}
		s, _ := jsjson.Str(v)
		out.WriteString(s)
	}
	out.WriteByte('\n')
	return out.Bytes()
}

func parsePrompts(b []byte) [][]byte {
	text := strings.TrimSuffix(string(b), "\n")
	var out [][]byte
	for {
		at := changeMark.FindStringIndex(text)
		if at == nil {
			return append(out, jsjson.AppendQuote(nil, text))
		}
		out = append(out, jsjson.AppendQuote(nil, text[:at[0]]))
		text = text[at[1]:]
	}
}

func schemas(list [][]byte) []byte {
	out := []byte("{\n  \"initial\": ")
	out = appendIndented(out, list[0], 1)
	out = append(out, ",\n  \"changes\": ["...)
	for i, v := range list[1:] {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendIndented(append(out, "\n    "...), v, 2)
	}
	if len(list) > 1 {
		out = append(out, "\n  "...)
	}
	return append(out, "]\n}\n"...)
}

// appendIndented appends a canonical value with a member or element a line. It
// changes no token.
func appendIndented(dst, value []byte, depth int) []byte {
	line := func() { dst = append(append(dst, '\n'), strings.Repeat("  ", depth)...) }
	kind := jsjson.KindOf(value)
	if depth > maxDepth || len(value) == 2 || kind != jsjson.Object && kind != jsjson.Array {
		return append(dst, value...)
	}
	dst = append(dst, value[0])
	depth++
	n := 0
	if kind == jsjson.Object {
		for k, v := range jsjson.Members(value) {
			if n++; n > 1 {
				dst = append(dst, ',')
			}
			line()
			dst = appendIndented(append(append(dst, k...), ": "...), v, depth)
		}
	} else {
		for v := range jsjson.Elements(value) {
			if n++; n > 1 {
				dst = append(dst, ',')
			}
			line()
			dst = appendIndented(dst, v, depth)
		}
	}
	depth--
	line()
	return append(dst, value[len(value)-1])
}

// projected is the text of the projected log.
func (g *Golden) projected(system, tools bool) []byte {
	out := append(bytes.Clone(g.header), '\n')
	var packer logfmt.Packer
	var rows []byte
	for i, e := range g.events {
		json := e.json
		if e.typ == logfmt.TypeRequestHeader {
			json = exchangeHeader(json, func(key string, v []byte) []byte {
				switch {
				case key == `"system"` && system:
					return []byte(tokenSystem)
				case key == `"tools"` && tools:
					return []byte(tokenTools)
				}
				return v
			})
		}
		rows = packer.Add(rows, appendPlaced(nil, json, `"seq":`, `"time":0`, int64(i)))
	}
	rows = packer.Flush(rows)
	for line := range bytes.Lines(rows) {
		row := mapMembers(bytes.TrimSuffix(line, []byte("\n")), func(key string, v []byte) ([]byte, bool) {
			switch key {
			case `"seq"`, `"time"`, `"seq0"`, `"time0"`:
				return nil, false
			}
			return v, true
		})
		out = append(append(out, row...), '\n')
	}
	return out
}

// exchangeHeader rewrites the members of the header in a header event.
func exchangeHeader(json []byte, f func(key string, v []byte) []byte) []byte {
	return mapMembers(json, func(key string, data []byte) ([]byte, bool) {
		if key != `"data"` || jsjson.KindOf(data) != jsjson.Object {
			return data, true
		}
		return mapMembers(data, func(key string, header []byte) ([]byte, bool) {
			if key != `"header"` || jsjson.KindOf(header) != jsjson.Object {
				return header, true
			}
			return mapMembers(header, func(key string, v []byte) ([]byte, bool) { return f(key, v), true }), true
		}), true
	})
}

// manifest is golden.json: a request a line.
func (g *Golden) manifest() []byte {
	var b bytes.Buffer
	q := func(s string) []byte { return jsjson.AppendQuote(nil, s) }
	list := func(name string, n int, item func(i int), last bool) {
		fmt.Fprintf(&b, "  %s: [", q(name))
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString("\n    ")
			item(i)
		}
		if n > 0 {
			b.WriteString("\n  ")
		}
		b.WriteByte(']')
		if !last {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "{\n  \"schema\": %s,\n  \"normalize\": [", q(Schema))
	for i, k := range g.Normalize {
		if i > 0 {
			b.WriteString(", ")
		}
		b.Write(q(string(k)))
	}
	fmt.Fprintf(&b, "],\n  \"verdict\": %s,\n", q(g.Verdict))
	list("findings", len(g.Findings), func(i int) {
		f := g.Findings[i]
		fmt.Fprintf(&b, `{"rule": %s, "severity": %s, "count": %d}`, q(f.Rule), q(f.Severity), f.Count)
	}, false)
	list("paths", len(g.Paths), func(i int) {
		p := g.Paths[i]
		fmt.Fprintf(&b, `{"tool": %s, "path": %s, "count": %d}`, q(p.Tool), q(p.Path), p.Count)
	}, false)
	list("requests", len(g.Requests), func(i int) {
		r := g.Requests[i]
		fmt.Fprintf(&b, `{"request": %s, "grade": %s, `, q(r.Name), q(r.Grade))
		if len(r.Reasons) > 0 {
			fmt.Fprintf(&b, `"reasons": %s, `, q(strings.Join(r.Reasons, ", ")))
		}
		if r.State != "" {
			fmt.Fprintf(&b, `"state": %s, `, q(r.State))
		}
		fmt.Fprintf(&b, `"bytes": %d, "sha256": %s}`, r.Bytes, q(hex.EncodeToString(r.SHA256[:])))
	}, true)
	b.WriteString("}\n")
	return b.Bytes()
}

// Read reads the files of a golden that are there.
func Read(dir string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, name := range Names {
		b, err := os.ReadFile(filepath.Join(dir, name))
		switch {
		case err == nil:
			out[name] = b
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return out, nil
}

// Parse reads a golden from its files. Of what follows from the log only what
// golden.json alone tells is filled in; Fold does the rest.
func Parse(dir string, files map[string][]byte) (*Golden, error) {
	at := func(name string) string { return filepath.Join(dir, name) }
	g := &Golden{}
	manifest, _, err := jsjson.Stringify(bytes.TrimSpace(files[FileManifest]))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at(FileManifest), err)
	}
	str := func(v []byte, key string) string {
		s, _ := jsjson.Str(jsjson.Get(v, key))
		return s
	}
	num := func(v []byte, key string) int64 {
		n, _ := jsjson.SafeInt(jsjson.Get(v, key))
		return n
	}
	if s := str(manifest, "schema"); s != Schema {
		return nil, fmt.Errorf("%s: schema is %q, expected %q", at(FileManifest), s, Schema)
	}
	for v := range jsjson.Elements(jsjson.Get(manifest, "normalize")) {
		s, _ := jsjson.Str(v)
		if !slices.Contains(All, Volatile(s)) {
			return nil, fmt.Errorf("%s: normalize holds %q, which is not known", at(FileManifest), s)
		}
		g.Normalize = append(g.Normalize, Volatile(s))
	}
	g.Verdict = str(manifest, "verdict")
	for v := range jsjson.Elements(jsjson.Get(manifest, "findings")) {
		g.Findings = append(g.Findings, Finding{str(v, "rule"), str(v, "severity"), num(v, "count")})
	}
	for v := range jsjson.Elements(jsjson.Get(manifest, "paths")) {
		g.Paths = append(g.Paths, Path{str(v, "tool"), str(v, "path"), num(v, "count")})
	}
	log := ""
	for _, name := range Names {
		if !strings.HasPrefix(name, "session.") || files[name] == nil {
			continue
		}
		if log != "" {
			return nil, fmt.Errorf("%s: there is %s too, and a golden has one log", at(name), log)
		}
		log = name
	}
	if log == "" {
		return nil, fmt.Errorf("%s: the file is missing", at(FileLog))
	}
	if err := g.parseLog(files, log); err != nil {
		return nil, fmt.Errorf("%s:%w", at(log), err)
	}
	return g, nil
}

func (g *Golden) parseLog(files map[string][]byte, name string) error {
	var system, tools [][]byte
	if b := files[FileSystem]; b != nil {
		system = parsePrompts(b)
	}
	if b := files[FileTools]; b != nil {
		canon, _, err := jsjson.Stringify(bytes.TrimSpace(b))
		if err != nil {
			return fmt.Errorf(" %s: %w", FileTools, err)
		}
		tools = [][]byte{jsjson.Get(canon, "initial")}
		for v := range jsjson.Elements(jsjson.Get(canon, "changes")) {
			tools = append(tools, v)
		}
	}
	headers := 0
	of := func(list [][]byte, v []byte) []byte {
		switch {
		case len(list) == 1 && list[0] != nil:
			return list[0]
		case headers < len(list):
			return list[headers]
		}
		return v
	}
	var text []byte
	seq := int64(0)
	n := 0
	for line := range bytes.Lines(files[name]) {
		n++
		row, _, err := jsjson.Stringify(bytes.TrimSpace(line))
		if err != nil || jsjson.KindOf(row) != jsjson.Object {
			return fmt.Errorf("%d: not a JSON object; restore the file, or write the golden anew", n)
		}
		if n == 1 {
			g.header = bytes.Clone(row)
			text = append(text, g.plain()...) // the header alone
			continue
		}
		typ, _ := jsjson.Str(jsjson.Get(row, "type"))
		row = bare(row)
		switch data := jsjson.Get(row, "data"); typ {
		case "text-chunks", "reasoning-chunks", "tool-call-chunks":
			members := max(jsjson.Len(jsjson.Get(data, "texts")), jsjson.Len(jsjson.Get(data, "args")), 1)
			text = append(appendPlaced(text, row, `"seq0":`, `"time0":0`, seq), '\n')
			seq += int64(members)
			continue
		case logfmt.TypeRequestHeader:
			row = exchangeHeader(row, func(key string, v []byte) []byte {
				switch {
				case key == `"system"` && string(v) == tokenSystem:
					return of(system, v)
				case key == `"tools"` && string(v) == tokenTools:
					return of(tools, v)
				}
				return v
			})
			headers++
		}
		text = append(appendPlaced(text, row, `"seq":`, `"time":0`, seq), '\n')
		seq++
	}
	log, err := logfmt.NewReader(bytes.NewReader(text), name, logfmt.Options{})
	if err != nil {
		return fmt.Errorf(" %w", err)
	}
	for e, d := range log.Events() {
		if d != nil && d.Class != "" && e == nil {
			return fmt.Errorf("%s: %s; restore the file, or write the golden anew", strconv.FormatInt(d.Pos.Line, 10), d.Message)
		}
		if e != nil {
			g.events = append(g.events, event{e.Type, bare(bytes.Clone(e.JSON))})
		}
	}
	return nil
}
