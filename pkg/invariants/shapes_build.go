package invariants

import (
	"strconv"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// A shape says what a value has to be. It reports what it finds wrong through
// the shaper, which knows the place.
type shape func(s *shaper, v []byte)

// part is one member of a payload, in terms of the builds that wrote it.
type part struct {
	key  string
	is   shape
	opt  bool  // may be left out at any time
	hard bool  // a check of the harness stumbles over it, see eventShape.checked
	from Build // first build that wrote it; 0: from the start
	to   Build // first build that no longer did; 0: still
	gone Build // first build that surely never did, where the member was retired
}

// eventShape is the payload of one event type.
type eventShape struct {
	// checked is the first build whose checks look at the hard parts; 0: from the
	// start. Before it, and for all other parts, a breach is a warning.
	checked Build
	parts   []part
	// more judges what a list of parts cannot say.
	more func(s *shaper)
	// message is a member that another rule judges as a message; "." for data
	// itself. Only its blocks and the details of its source are looked at.
	message string
}

// shaper walks the payload of one event.
type shaper struct {
	c       *Context
	e       *logfmt.Event
	checked Build
	hard    bool
	path    []hop
	found   int
	depth   int // of tool-result blocks in each other
}

// hop is a way down: to a member, or to an element when key is "".
type hop struct {
	key   string
	index int
}

// at walks into a member.
func (s *shaper) at(key string, is shape, v []byte) {
	s.path = append(s.path, hop{key: key})
	is(s, v)
	s.path = s.path[:len(s.path)-1]
}

// name is the place in words: the way down from data.
func (s *shaper) name() string {
	b := make([]byte, 0, 32)
	for _, p := range s.path {
		if p.key == "" {
			b = append(b, '[')
			b = strconv.AppendInt(b, int64(p.index), 10)
			b = append(b, ']')
			continue
		}
		if len(b) > 0 {
			b = append(b, '.')
		}
		b = append(b, p.key...)
	}
	return string(b)
}

func (s *shaper) bad(v []byte, expected string) {
	if string(v) == "null" && jsjson.Facts(s.e.Facts)&jsjson.NumberOverflow != 0 {
		return // a number that reads as infinity, which is said of the envelope
	}
	n := s.name()
	s.finding("data."+n, "%s of %s is %s, expected %s", n, s.e.Type, show(v), expected)
}

func (s *shaper) finding(path, format string, args ...any) *Finding {
	s.found++
	f := s.c.Report(s.e, path, format, args...)
	if !s.hard || s.checked != 0 && !s.c.Builds.Since(s.checked) {
		f.Severity = Warning
	}
	return f
}

// due reports whether every build that may have written the event put the
// member there. An inherited event may be older than the log lets on: what a
// parent was upgraded to on loading is what its children hold.
func (s *shaper) due(p *part) bool {
	if p.opt {
		return false
	}
	b := s.c.Builds
	if p.from != 0 && (!b.Since(p.from) || s.c.Inherited(s.e)) {
		return false
	}
	return p.to == 0 || b.Before(p.to)
}

func (s *shaper) parts(obj []byte, parts []part) {
	// All members in one pass: texts are long, and a walk goes through them.
	var keys [16]string
	var values [len(keys)][]byte
	n := min(len(parts), len(keys))
	for i := range n {
		keys[i] = parts[i].key
	}
	jsjson.Fields(obj, values[:n], keys[:n])
	hard := s.hard
	for i := range parts {
		p := &parts[i]
		var v []byte
		if i < n {
			v = values[i]
		} else {
			v = jsjson.Get(obj, p.key)
		}
		if v == nil && !s.due(p) {
			continue
		}
		if v != nil && p.gone != 0 && s.c.Builds.Since(p.gone) && s.c.ownWriting(s.e) {
			n := s.name()
			if n != "" {
				n += "."
			}
			n += p.key
			s.finding("data."+n, "%s of %s is %s, but builds since %s, which wrote this, have no such member", n, s.e.Type, show(v), p.gone).Severity = Warning
			continue
		}
		s.hard = hard && p.hard
		s.at(p.key, p.is, v)
	}
	s.hard = hard
}

// leaf is the shape of a value that is looked at as a whole.
func leaf(w want) shape {
	return func(s *shaper, v []byte) {
		if exp := w(v); exp != "" {
			s.bad(v, exp)
		}
	}
}

var (
	str      = leaf(wantString)
	text     = leaf(wantText)
	count    = leaf(wantCount)
	positive = leaf(wantPositive)
	num      = leaf(wantNumber)
	boolean  = leaf(wantBool)
	yes      = leaf(wantTrue)
	anArray  = leaf(wantArray)
	anObject = leaf(wantObject)
	owner    = leaf(wantOwner)
	some     = leaf(func(v []byte) string {
		if v != nil {
			return ""
		}
		return "a value"
	})
)

// oneOf is a string out of a closed set.
func oneOf(words ...string) shape {
	exp := ""
	for i, w := range words {
		switch {
		case i == 0:
		case i == len(words)-1:
			exp += " or "
		default:
			exp += ", "
		}
		exp += strconv.Quote(w)
	}
	return func(s *shaper, v []byte) {
		for _, w := range words {
			if jsjson.StrEq(v, w) {
				return
			}
		}
		s.bad(v, exp)
	}
}

// list is an array of which every element has a shape. The first that has not
// is reported.
func list(of shape) shape {
	return func(s *shaper, v []byte) {
		if exp := wantArray(v); exp != "" {
			s.bad(v, exp)
			return
		}
		before, last := s.found, len(s.path)
		s.path = append(s.path, hop{})
		for x := range jsjson.Elements(v) {
			if of(s, x); s.found != before {
				break
			}
			s.path[last].index++
		}
		s.path = s.path[:last]
	}
}

// object is an object with these members, and maybe others.
func object(parts ...part) shape {
	return func(s *shaper, v []byte) {
		if exp := wantObject(v); exp != "" {
			s.bad(v, exp)
			return
		}
		s.parts(v, parts)
	}
}

// unknownKind is no kind that any build wrote, and none that any refused.
func unknownKind(s *shaper, v []byte) {
	hard := s.hard
	s.hard = false
	s.bad(v, "one that a build wrote")
	s.hard = hard
}

// variants is an object whose member key says which other members it has. A kind
// that is not listed is what the set is when closed: unknown.
func variants(key string, closed bool, kinds map[string][]part) shape {
	return func(s *shaper, v []byte) {
		if exp := wantObject(v); exp != "" {
			s.bad(v, exp)
			return
		}
		kind := jsjson.Get(v, key)
		if jsjson.KindOf(kind) != jsjson.String {
			s.at(key, str, kind)
			return
		}
		parts, known := kinds[string(kind[1:len(kind)-1])] // written without escapes, all of them
		if !known {
			if closed {
				s.at(key, unknownKind, kind)
			}
			return
		}
		s.parts(v, parts)
	}
}

// shapeChecker keeps its shaper: most events of a log are chunks, for which
// nothing is to be allocated.
type shapeChecker struct{ s shaper }

func (k *shapeChecker) End(*Context) {}

func (k *shapeChecker) Event(c *Context, e *logfmt.Event) {
	if e.Fault&logfmt.FaultNoData != 0 {
		return // said of the envelope
	}
	is := eventShapes[e.Type]
	if jsjson.KindOf(e.Data) != jsjson.Object {
		if is.message != "." { // said by the rule about messages
			c.Report(e, "data", "data of %s is %s, expected an object", e.Type, show(e.Data))
		}
		return
	}
	if e.IsPiece() {
		return // of the right shape, or it would be none
	}
	k.s = shaper{c: c, e: e, checked: is.checked, hard: true, path: k.s.path[:0]}
	s := &k.s
	if e.Type == "assistant/chunk" && c.turn > 0 && c.step > 0 && jsjson.KindOf(c.payload[2]) == jsjson.Object {
		s.chunk()
		return
	}
	s.parts(e.Data, is.parts)
	if is.more != nil {
		is.more(s)
	}
	if is.message != "" {
		s.hard = false
		s.message(is.message)
	}
}

// ownWriting reports whether an event stands as the builds wrote it that this log
// shows: what a child inherited is partly upgraded and partly older, and so is
// what the harness holds once it loaded a log.
func (c *Context) ownWriting(e *logfmt.Event) bool { return !c.Inherited(e) && !c.opts.AsLoaded }
