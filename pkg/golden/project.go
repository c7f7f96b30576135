package golden

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/drift"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

var foldOptions = fold.Options{}

// maxDepth bounds how deep values are looked into.
const maxDepth = 256

var uuidPattern = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`)

// A projector takes out what is volatile.
type projector struct {
	v       *drift.Volatile
	on      map[Volatile]bool
	session map[string]bool // ids of sessions
}

func newProjector(normalize []Volatile) *projector {
	p := &projector{on: map[Volatile]bool{}, session: map[string]bool{}}
	for _, k := range normalize {
		p.on[k] = true
	}
	return p
}

// idKeys reports whether strings of an event are ids because their keys say so. In
// a request header they are settings.
func idKeys(typ string) bool { return typ != logfmt.TypeRequestHeader }

// walker visits the strings and numbers of a value.
type walker struct {
	ids    bool                                                     // keys tell ids
	str    func(key []byte, s string, id bool) string               // of every string value
	number func(key []byte, in []byte, n int64) (to int64, ok bool) // of every integer; in is the key of the list or object around
}

func (w *walker) append(dst, value, key, around []byte, depth int) []byte {
	if depth > maxDepth {
		return append(dst, value...)
	}
	switch jsjson.KindOf(value) {
	case jsjson.Object:
		dst = append(dst, '{')
		sep := false
		for k, m := range jsjson.Members(value) {
			if sep {
				dst = append(dst, ',')
			}
			sep = true
			dst = append(append(dst, k...), ':')
			dst = w.append(dst, m, k, key, depth+1)
		}
		return append(dst, '}')
	case jsjson.Array:
		dst = append(dst, '[')
		sep := false
		for m := range jsjson.Elements(value) {
			if sep {
				dst = append(dst, ',')
			}
			sep = true
			dst = w.append(dst, m, key, around, depth+1)
		}
		return append(dst, ']')
	case jsjson.String:
		s, _ := jsjson.Str(value)
		id := w.ids && key != nil && drift.IDKey(key) && s != "" && !strings.HasPrefix(s, "sha256:")
		if t := w.str(key, s, id); t != s {
			return jsjson.AppendQuote(dst, t)
		}
	case jsjson.Number:
		if n, ok := jsjson.SafeInt(value); ok && w.number != nil && key != nil {
			if to, ok := w.number(key, around, n); ok && to != n {
				return jsjson.AppendNumber(dst, float64(to))
			}
		}
	}
	return append(dst, value...)
}

// learn takes up the ids of the header record.
func (p *projector) learn(head []byte) {
	for _, key := range []string{"id", "parentSession"} {
		if id, ok := jsjson.Str(jsjson.Get(head, key)); ok && id != "" {
			p.session[id] = true
			p.v.LearnID(id)
		}
	}
}

// learnEvent takes up the ids of an event.
func (p *projector) learnEvent(typ string, json []byte) { learnIDs(p.v, typ, json) }

func learnIDs(v *drift.Volatile, typ string, json []byte) {
	w := &walker{ids: idKeys(typ), str: func(_ []byte, s string, id bool) string {
		if id {
			v.LearnID(s)
		} else {
			for _, u := range uuidPattern.FindAllString(s, -1) {
				v.LearnID(u)
			}
		}
		return s
	}}
	w.append(nil, json, nil, nil, 0)
}

// value projects a value of an event of some type.
func (p *projector) value(typ string, value []byte) []byte {
	exchange := func(kind drift.VolatileKind, s string) string {
		switch {
		case kind == drift.VolatileCwd && p.on[Cwd]:
			return tokenCwd
		case kind == drift.VolatileTime && p.on[Dates]:
			return tokenTime
		case kind == drift.VolatileID && p.on[UUIDs] && (p.session[s] || uuidPattern.MatchString(s)):
			return tokenSession
		}
		return s
	}
	w := &walker{ids: idKeys(typ)}
	w.str = func(_ []byte, s string, id bool) string {
		if id && p.session[s] && p.on[UUIDs] {
			return tokenSession
		}
		t := p.v.Text(s, exchange)
		if p.on[Cwd] {
			t = strings.ReplaceAll(t, "/private"+tokenCwd, tokenCwd)
		}
		return t
	}
	if p.on[Times] {
		w.number = func(key, around []byte, n int64) (int64, bool) {
			switch string(key) {
			case `"dt"`, `"time0"`:
				return 0, string(around) == `"stream"`
			case `"durationMs"`:
				return 0, typ == "hook/result"
			}
			return 0, p.v.Time(key, n)
		}
	}
	return w.append(nil, value, nil, nil, 0)
}

// header projects the header record.
func (p *projector) header(head []byte) []byte {
	out := p.value("session", head)
	if p.on[Times] {
		out = mapMembers(out, func(key string, v []byte) ([]byte, bool) {
			if key == `"createdAt"` && jsjson.KindOf(v) == jsjson.Number {
				return []byte("0"), true
			}
			return v, true
		})
	}
	return out
}

// event projects an event.
func (p *projector) event(typ string, json []byte) []byte {
	return p.value(typ, bare(json))
}

// bare is an event without seq and time.
func bare(json []byte) []byte {
	return mapMembers(json, func(key string, v []byte) ([]byte, bool) { return v, key != `"seq"` && key != `"time"` })
}

// mapMembers rewrites the members of an object; keys are JSON tokens.
func mapMembers(obj []byte, f func(key string, value []byte) (to []byte, keep bool)) []byte {
	out := append(make([]byte, 0, len(obj)), '{')
	for k, v := range jsjson.Members(obj) {
		to, keep := f(string(k), v)
		if !keep {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, k...), ':'), to...)
	}
	return append(out, '}')
}

var absolute = regexp.MustCompile(`^(?:/[^/\s]|~/|[A-Za-z]:[\\/]|\\\\[^\\])`)

// paths notes the absolute paths in the arguments of an event's calls.
func (g *Golden) paths(e *logfmt.Event, p *projector, cwd string) {
	if e.Type != logfmt.TypeAssistantMessage || !bytes.Contains(e.Data, []byte(`"tool-call"`)) {
		return
	}
	var look func(v []byte, depth int)
	look = func(v []byte, depth int) {
		switch jsjson.KindOf(v) {
		case jsjson.Object:
			if jsjson.StrEq(jsjson.Get(v, "type"), "tool-call") {
				tool, _ := jsjson.Str(jsjson.Get(v, "name"))
				args, _ := jsjson.Str(jsjson.Get(v, "arguments"))
				g.argument(tool, args, p, cwd)
				return
			}
			for _, m := range jsjson.Members(v) {
				if depth < 16 {
					look(m, depth+1)
				}
			}
		case jsjson.Array:
			for m := range jsjson.Elements(v) {
				if depth < 16 {
					look(m, depth+1)
				}
			}
		}
	}
	content := jsjson.Get(e.Data, "content")
	if m := jsjson.Get(e.Data, "message"); m != nil {
		content = jsjson.Get(m, "content")
	}
	look(content, 0)
}

func (g *Golden) argument(tool, args string, p *projector, cwd string) {
	canon, _, err := jsjson.Stringify([]byte(args))
	if err != nil {
		return // broken arguments name no file
	}
	w := &walker{str: func(_ []byte, s string, _ bool) string {
		inside := false
		p.v.Text(s, func(k drift.VolatileKind, s string) string {
			inside = inside || k == drift.VolatileCwd
			return s
		})
		if !inside && !absolute.MatchString(s) && !strings.Contains(s, tokenCwd) {
			return s
		}
		if t, ok := jsjson.Str(p.value("", jsjson.AppendQuote(nil, s))); ok {
			if r := []rune(t); len(r) > 200 {
				t = string(r[:200]) + "…"
			}
			i := slices.IndexFunc(g.Paths, func(q Path) bool { return q.Tool == tool && q.Path == t })
			if i < 0 {
				i = len(g.Paths)
				g.Paths = append(g.Paths, Path{Tool: tool, Path: t})
			}
			g.Paths[i].Count++
		}
		return s
	}}
	w.append(nil, canon, nil, nil, 0)
}
