package drift

import (
	"bytes"
	"regexp"
	"sort"
	"strings"
	"time"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// Volatile values are those that differ between two recordings of one scenario:
//
//	id    a string that is the value of a member named id or …Id (a digest
//	      aside), a UUID anywhere in a text, the session's own id and that of its
//	      parent, and where an id of at least six characters stands as a word
//	cwd   the working directory of the header record, where a path begins with it
//	time  a date, a date with a time or a number of milliseconds within two days
//	      of the recording
//
// Ids and directories are matched one to one: an id of one recording stands for
// the same id of the other wherever it occurs. Times only stand for times: two
// events may share a second in one recording and not in the other.
type volatileKind byte

const (
	volatileID volatileKind = iota
	volatileCwd
	volatileTime
)

var volatileNames = [...]string{volatileID: "{{id}}", volatileCwd: "{{cwd}}", volatileTime: "{{time}}"}

// A volatiles knows the volatile values of one recording.
type volatiles struct {
	cwds        []string // spellings, longest first
	ids         map[string]bool
	first, last int64 // times between which a time is one of the recording
}

const twoDays = 48 * 3600 * 1000

func newVolatiles(h *History) *volatiles {
	v := &volatiles{ids: make(map[string]bool), first: min(h.first, h.CreatedAt) - twoDays, last: max(h.last, h.CreatedAt) + twoDays}
	if h.CreatedAt == 0 {
		v.first = h.first - twoDays
	}
	for _, id := range []string{h.SessionID, h.Parent} {
		if id != "" {
			v.ids[id] = true
		}
	}
	if cwd := strings.TrimRight(h.Cwd, `/\`); cwd != "" {
		v.cwds = []string{"/private" + cwd, cwd}
		if strings.Contains(cwd, `\`) {
			v.cwds = []string{strings.ReplaceAll(cwd, `\`, `\\`), cwd, strings.ReplaceAll(cwd, `\`, "/")}
		}
	}
	return v
}

// learn collects the ids in a value.
func (v *volatiles) learn(value []byte) {
	v.rewrite(value, func(kind volatileKind, s string) string {
		if kind == volatileID && len(s) >= 6 {
			v.ids[s] = true
		}
		return s
	})
}

// idKey reports whether the string under a key is an id.
func idKey(token []byte) bool {
	k := token[1 : len(token)-1]
	return string(k) == "id" || bytes.HasSuffix(k, []byte("Id")) || bytes.HasSuffix(k, []byte("_id")) || bytes.HasSuffix(k, []byte("ID"))
}

func timeKey(token []byte) bool {
	k := string(bytes.ToLower(token[1 : len(token)-1]))
	return k == "time" || strings.HasSuffix(k, "at") || strings.HasSuffix(k, "time") || strings.HasSuffix(k, "timestamp")
}

// rewrite returns the value with every volatile part exchanged for what visit
// returns. Deeply nested values are left alone.
func (v *volatiles) rewrite(value []byte, visit func(volatileKind, string) string) []byte {
	return v.appendValue(make([]byte, 0, len(value)), value, nil, visit, 0)
}

func (v *volatiles) appendValue(dst, value, key []byte, visit func(volatileKind, string) string, depth int) []byte {
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
			dst = v.appendValue(dst, m, k, visit, depth+1)
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
			dst = v.appendValue(dst, m, key, visit, depth+1)
		}
		return append(dst, ']')
	case jsjson.String:
		s, _ := jsjson.Str(value)
		if key != nil && idKey(key) && !strings.HasPrefix(s, "sha256:") && s != "" {
			return jsjson.AppendQuote(dst, visit(volatileID, s))
		}
		if t := v.text(s, visit); t != s {
			return jsjson.AppendQuote(dst, t)
		}
	case jsjson.Number:
		if n, ok := jsjson.SafeInt(value); ok && key != nil && timeKey(key) && v.recent(n) {
			if t := visit(volatileTime, string(value)); t != string(value) {
				return jsjson.AppendQuote(dst, t)
			}
		}
	}
	return append(dst, value...)
}

func (v *volatiles) recent(ms int64) bool { return ms >= v.first && ms <= v.last }

var (
	uuidPattern = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`)
	timePattern = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?(?: ?(?:Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2}))?)?`)
	msPattern   = regexp.MustCompile(`[0-9]{12,14}`)
	wordPattern = regexp.MustCompile(`[0-9A-Za-z_-]{6,}`)
)

type span struct {
	from, to int
	kind     volatileKind
}

// text exchanges the volatile parts of a text.
func (v *volatiles) text(s string, visit func(volatileKind, string) string) string {
	var spans []span
	for _, cwd := range v.cwds {
		for at := 0; ; {
			i := strings.Index(s[at:], cwd)
			if i < 0 {
				break
			}
			from, to := at+i, at+i+len(cwd)
			if (from == 0 || !pathByte(s[from-1])) && (to == len(s) || !nameByte(s[to])) {
				spans = append(spans, span{from, to, volatileCwd})
			}
			at = to
		}
	}
	for _, m := range uuidPattern.FindAllStringIndex(s, -1) {
		if edges(s, m[0], m[1]) {
			spans = append(spans, span{m[0], m[1], volatileID})
		}
	}
	for _, m := range timePattern.FindAllStringIndex(s, -1) {
		if edges(s, m[0], m[1]) && v.timeText(s[m[0]:m[1]]) {
			spans = append(spans, span{m[0], m[1], volatileTime})
		}
	}
	for _, m := range msPattern.FindAllStringIndex(s, -1) {
		if n, ok := jsjson.SafeInt([]byte(s[m[0]:m[1]])); ok && edges(s, m[0], m[1]) && v.recent(n) {
			spans = append(spans, span{m[0], m[1], volatileTime})
		}
	}
	if len(v.ids) > 0 {
		for _, m := range wordPattern.FindAllStringIndex(s, -1) {
			if v.ids[s[m[0]:m[1]]] {
				spans = append(spans, span{m[0], m[1], volatileID})
			}
		}
	}
	if len(spans) == 0 {
		return s
	}
	sort.SliceStable(spans, func(i, j int) bool {
		if spans[i].from != spans[j].from {
			return spans[i].from < spans[j].from
		}
		return spans[i].to > spans[j].to
	})
	var b strings.Builder
	at := 0
	for _, sp := range spans {
		if sp.from < at {
			continue
		}
		b.WriteString(s[at:sp.from])
		b.WriteString(visit(sp.kind, s[sp.from:sp.to]))
		at = sp.to
	}
	b.WriteString(s[at:])
	return b.String()
}

// edges reports whether a match does not continue into letters or digits.
func edges(s string, from, to int) bool {
	return (from == 0 || !alnum(s[from-1])) && (to == len(s) || !alnum(s[to]))
}

func alnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// nameByte reports whether a byte may go on a file name; pathByte also a path.
func nameByte(c byte) bool { return alnum(c) || c == '_' || c == '-' || c >= 0x80 }
func pathByte(c byte) bool { return nameByte(c) || c == '/' || c == '\\' || c == '.' }

// timeText reports whether a date lies near the recording.
func (v *volatiles) timeText(s string) bool {
	day, err := time.Parse("2006-01-02", s[:10])
	return err == nil && v.recent(day.UnixMilli()+twoDays/4)
}

// A bijection matches the values of one recording with those of another.
type bijection struct{ to, from map[string]string }

func newBijection() *bijection { return &bijection{map[string]string{}, map[string]string{}} }

// match reports whether a may stand for b, and from then on makes it so.
func (m *bijection) match(a, b string) bool {
	x, knowA := m.to[a]
	y, knowB := m.from[b]
	if !knowA && !knowB {
		m.to[a], m.from[b] = b, a
		return true
	}
	return knowA && knowB && x == b && y == a
}
