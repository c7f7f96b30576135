package invariants

import (
	"bytes"
	"crypto/sha256"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about the events of plugins: what their companions in the harness look
// at (SEMANTICS §8.2). A member that is missing or of another type is a matter
// of EVT-SHAPE; here it is passed over.
//
// Companions came on 07-21. What they check was the practice before, but nothing
// held a build to it: then a breach is a warning.

// weigh makes a finding a warning where not every build that may have written
// the event had a companion that fails on it.
func (c *Context) weigh(f *Finding, companion Build) *Finding {
	if !c.Builds.Since(companion) || c.builds.legacy {
		f.Severity = Warning
	}
	return f
}

// turnOf checks that an event stands in an open turn, and in the one it names
// unless n is negative. It reports whether nothing speaks against that.
func (c *Context) turnOf(e *logfmt.Event, n int64, companion Build) bool {
	switch {
	case !c.Turn.Known:
	case !c.Turn.Open:
		if c.Builds.Max >= buildMessages { // before, TURN-ENCLOSE says so
			c.weigh(c.Report(e, "", "%s stands outside any turn, expected an open turn", e.Type), companion)
		}
		return false
	case n > 0 && !c.Turn.names(n):
		f := c.weigh(c.Report(e, "data.turn", "%s names turn %d, expected the open turn %s", e.Type, n, number(c.Turn.N)), companion)
		since(f, &c.Turn, "the open turn starts here")
		return false
	}
	return true
}

// empty reports a string without content. What is no string is passed over.
func (c *Context) empty(e *logfmt.Event, path string, companion Build) {
	v := e.Data
	for _, key := range bytes.Split([]byte(path), []byte{'.'}) {
		v = jsjson.Get(v, string(key))
	}
	if string(v) == `""` {
		c.weigh(c.Report(e, "data."+path, "%s of %s is \"\", expected a non-empty string", path, e.Type), companion)
	}
}

// oneOfWords reports a string that is none of the words.
func (c *Context) oneOfWords(e *logfmt.Event, path string, v []byte, companion Build, words ...string) bool {
	if jsjson.KindOf(v) != jsjson.String {
		return false
	}
	exp := ""
	for i, w := range words {
		if jsjson.StrEq(v, w) {
			return true
		}
		switch {
		case i == 0:
		case i == len(words)-1:
			exp += " or "
		default:
			exp += ", "
		}
		exp += w
	}
	c.weigh(c.Report(e, "data."+path, "%s of %s is %s, expected %s", path, e.Type, show(v), exp), companion)
	return false
}

// A ledger remembers ids, but not more than so many: from there on what it does
// not hold may still have been seen.
type ledger[T any] struct {
	m     map[string]T
	blind bool // an id that is not here may have been seen
}

const mostIDs = 1 << 16

func (l *ledger[T]) get(id string) (T, bool) { v, ok := l.m[id]; return v, ok }

func (l *ledger[T]) put(id string, v T) bool {
	if _, ok := l.m[id]; !ok && len(l.m) >= mostIDs {
		l.blind = true
		return false
	}
	if l.m == nil {
		l.m = map[string]T{}
	}
	l.m[id] = v
	return true
}

func (l *ledger[T]) drop(id string) { delete(l.m, id) }

// reset forgets everything; nothing was seen before.
func (l *ledger[T]) reset() { *l = ledger[T]{} }

// idOf is an id to remember. It is no use when it is no string, empty, or was
// scrubbed, as all ids of a recorded fixture are scrubbed to the same text.
func idOf(v []byte) (string, bool) {
	if jsjson.KindOf(v) != jsjson.String || len(v) == 2 || bytes.Contains(v, []byte("{{")) {
		return "", false
	}
	if len(v) > 2*sha256.Size {
		sum := sha256.Sum256(v)
		return string(sum[:]), true
	}
	return string(v), true
}

// sourceKind is the kind of the source of a user/message, whose data is the
// message in every era.
func sourceKind(e *logfmt.Event) (src []byte, kind string) {
	src = jsjson.Get(e.Data, "source")
	kind, _ = jsjson.Str(jsjson.Get(src, "kind"))
	return src, kind
}

// fromPlugin reports whether a user/message comes from the plugin of that name.
func fromPlugin(e *logfmt.Event, name string) ([]byte, bool) {
	src, kind := sourceKind(e)
	return src, kind == "plugin" && jsjson.StrEq(jsjson.Get(src, "plugin"), name)
}

// seqsIn are the seqs in a list, as far as they are seqs.
func seqsIn(list []byte) []int64 {
	var out []int64
	for v := range jsjson.Elements(list) {
		if n, ok := jsjson.SafeInt(v); ok && n >= 0 {
			out = append(out, n)
		}
	}
	return out
}
