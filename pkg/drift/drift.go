// Package drift compares two requests, or two recordings, says what differs, and
// names the events of the log that made it so. It implements the comparisons of
// SEMANTICS §5.4, §9 and §10 and WIRE §4 and §5.
//
// # Requests
//
// A request body is one canonical JSON object (see internal/jsjson): the config
// members, then messages, system, tools and sessionId (SEMANTICS §6.1). Two
// bodies are the same only if their bytes are; everything else here explains a
// difference.
//
// # Parts
//
//	config    every member but the four named above, by name; a config whose
//	          members stand in another order only is marked as such
//	system    line by line, split at U+000A, changed lines word by word
//	tools     by name; the n-th tool of a name is paired with the n-th of that
//	          name on the other side; a changed one by JSON path
//	messages  by identity: the event that made it where both sides have the same
//	          log, else its id, else its content; block by block
//
// B extends A when what is around the messages (config, system, tools) is equal,
// the order of config members aside, and A's messages are the first messages of
// B: then a provider may reuse what it computed for A. The session id and the
// marks of adapter defaults do not count: neither is part of the prompt, and the
// marks are not even sent.
//
// # Causes
//
// Compare knows bodies only. [Explain] adds, from the history of the log or logs,
// the events that made each difference; what no event accounts for is marked
// [Unexplained].
//
// # Not judged
//
// Whether a request is what the harness sent.
package drift

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
)

// ErrBody is returned for bytes that are not a request body.
var ErrBody = errors.New("not a request body")

// A Member is one member of the config.
type Member struct {
	Name  string // decoded, WTF-8
	Value []byte // canonical JSON
}

// A Body is a request body taken apart. It must not be written to.
type Body struct {
	Config    []Member
	Messages  [][]byte
	System    []byte   // canonical JSON; nil when absent
	Tools     [][]byte // nil when absent
	HasTools  bool
	SessionID []byte // canonical JSON; nil when absent

	// Nodes are the events the messages were made from, nil for those of the
	// header's prefix. The slice itself is nil when nothing is known.
	Nodes []*fold.Node
	// Defaults says which config values the model adapter filled in, as logged
	// (SEMANTICS §5.1); nil when none.
	Defaults []byte

	// The text is frame[:at], the messages with commas between, frame[at:].
	frame []byte
	at    int
}

// Parse takes a body apart. The body must be canonical JSON; it fails with
// ErrBody when it is not an object with an array of messages.
func Parse(raw []byte) (*Body, error) {
	if jsjson.KindOf(raw) != jsjson.Object {
		return nil, fmt.Errorf("%w: it is not an object", ErrBody)
	}
	b := &Body{}
	open, end := -1, -1
	for i := 1; i < len(raw) && raw[i] == '"'; i++ {
		j := jsjson.Skip(raw, i)
		key, from := raw[i:j], j+1
		i = jsjson.Skip(raw, from)
		value := raw[from:i:i]
		name, _ := jsjson.Str(key)
		switch {
		case name == "messages":
			if jsjson.KindOf(value) != jsjson.Array {
				return nil, fmt.Errorf("%w: its messages are not an array", ErrBody)
			}
			open, end = from+1, i-1
			for m := range jsjson.Elements(value) {
				b.Messages = append(b.Messages, m)
			}
		case name == "system":
			b.System = value
		case name == "sessionId":
			b.SessionID = value
		case name == "tools" && jsjson.KindOf(value) == jsjson.Array:
			b.HasTools = true
			for t := range jsjson.Elements(value) {
				b.Tools = append(b.Tools, t)
			}
		default:
			b.Config = append(b.Config, Member{name, value})
		}
	}
	if open < 0 {
		return nil, fmt.Errorf("%w: it has no messages", ErrBody)
	}
	b.at = open
	b.frame = append(append(make([]byte, 0, len(raw)-end+open), raw[:open]...), raw[end:]...)
	return b, nil
}

// FromRequest takes a rebuilt request apart without writing it out. The body
// stays valid when the request is a clone.
func FromRequest(r *fold.Request) (*Body, error) {
	head, tail := r.Frame()
	b, err := Parse(append(head[:len(head):len(head)], tail...))
	if err != nil {
		return nil, err
	}
	if h := r.Header(); h != nil {
		b.Defaults = h.AdapterDefaults
	}
	b.Nodes = make([]*fold.Node, len(b.Messages), len(b.Messages)+len(r.Nodes()))
	for n, m := range r.Messages() {
		b.Messages = append(b.Messages, m)
		b.Nodes = append(b.Nodes, n)
	}
	return b, nil
}

// Len is the length of the text in bytes.
func (b *Body) Len() int64 {
	n := int64(len(b.frame)) + int64(max(0, len(b.Messages)-1))
	for _, m := range b.Messages {
		n += int64(len(m))
	}
	return n
}

// AppendText appends the text.
func (b *Body) AppendText(dst []byte) []byte {
	dst = append(dst, b.frame[:b.at]...)
	for i, m := range b.Messages {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, m...)
	}
	return append(dst, b.frame[b.at:]...)
}

// defaulted reports whether the adapter filled in a config value.
func (b *Body) defaulted(name string) bool {
	v, ok := jsjson.BoolOf(jsjson.Get(b.Defaults, name))
	return ok && v
}

// Node is the event that message i was made from; nil when unknown.
func (b *Body) Node(i int) *fold.Node {
	if i < 0 || i >= len(b.Nodes) {
		return nil
	}
	return b.Nodes[i]
}

// A Diff is what differs between A and B.
type Diff struct {
	Same     bool
	At       *Divergence // nil when the bytes are the same
	Extends  bool        // B extends A
	Config   []Change    // in order of A, then what only B has
	KeyOrder bool        // the config members are equal, but stand in another order
	Order    *Cause      // of that order
	Defaults []Change    // config values that are equal, but set on one side and an adapter default on the other
	Session  *Change     // sessionId; nil when equal
	System   *SystemDiff // nil when equal
	Tools    ToolsDiff
	Messages MessagesDiff
}

// HeaderEqual reports whether config, system and tools are equal, the order of
// config members aside.
func (d *Diff) HeaderEqual() bool {
	return len(d.Config) == 0 && d.System == nil && d.Tools.Equal()
}

// A Divergence is the first place where two texts differ.
type Divergence struct {
	Offset int64  // of the first differing byte, from 0; the length of the shorter if one begins the other
	Path   string // of the value that stands there
}

// A Change is a named value that differs. A nil side has no such value.
type Change struct {
	Name               string
	A, B               []byte
	DefaultA, DefaultB bool // the model adapter filled the value in
	Cause              *Cause
}

// Compare compares two bodies. Messages made from events are one message when
// the event has the same seq below common, the number of leading events that the
// logs of the bodies share: 0 for unrelated logs.
func Compare(a, b *Body, common int64) *Diff {
	d := &Diff{
		At:       divergeBodies(a, b),
		Tools:    compareTools(a, b),
		Messages: compareMessages(a, b, common),
	}
	d.Same = d.At == nil
	d.Config, d.KeyOrder = compareConfig(a.Config, b.Config)
	for i := range d.Config {
		c := &d.Config[i]
		c.DefaultA, c.DefaultB = a.defaulted(c.Name), b.defaulted(c.Name)
	}
	for _, m := range a.Config {
		if x, y := a.defaulted(m.Name), b.defaulted(m.Name); x != y && !changed(d.Config, m.Name) {
			d.Defaults = append(d.Defaults, Change{Name: m.Name, A: m.Value, B: m.Value, DefaultA: x, DefaultB: y})
		}
	}
	if !bytes.Equal(a.SessionID, b.SessionID) {
		d.Session = &Change{Name: "sessionId", A: a.SessionID, B: b.SessionID}
	}
	if !bytes.Equal(a.System, b.System) {
		d.System = compareSystem(a.System, b.System)
	}
	d.Extends = d.HeaderEqual() && prefix(a.Messages, b.Messages)
	return d
}

func changed(list []Change, name string) bool {
	for i := range list {
		if list[i].Name == name {
			return true
		}
	}
	return false
}

func prefix(a, b [][]byte) bool {
	if len(a) > len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func compareConfig(a, b []Member) (changes []Change, order bool) {
	find := func(ms []Member, name string) []byte {
		for _, m := range ms {
			if m.Name == name {
				return m.Value
			}
		}
		return nil
	}
	for _, m := range a {
		if v := find(b, m.Name); v == nil || !jsjson.Equal(m.Value, v) {
			changes = append(changes, Change{Name: m.Name, A: m.Value, B: v})
		}
	}
	for _, m := range b {
		if find(a, m.Name) == nil {
			changes = append(changes, Change{Name: m.Name, B: m.Value})
		}
	}
	if len(changes) > 0 {
		return changes, false
	}
	for i := range a {
		if a[i].Name != b[i].Name || !bytes.Equal(a[i].Value, b[i].Value) {
			return nil, true
		}
	}
	return nil, false
}

// common is how many bytes two texts begin with alike.
func common(a, b []byte) int {
	n := min(len(a), len(b))
	if bytes.Equal(a[:n], b[:n]) { // much faster than the loop
		return n
	}
	i := 0
	for i+64 <= n && bytes.Equal(a[i:i+64], b[i:i+64]) {
		i += 64
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// Diverge returns the first place where two canonical JSON texts differ, nil if
// they do not.
func Diverge(a, b []byte) *Divergence {
	i := common(a, b)
	if i == len(a) && i == len(b) {
		return nil
	}
	return &Divergence{int64(i), deeper(PathAt(a, i), PathAt(b, i))}
}

// deeper chooses between the paths that a place has in two texts: where A's
// number ends, B's may go on.
func deeper(a, b string) string {
	if len(b) > len(a) {
		return b
	}
	return a
}

// divergeBodies is Diverge without writing the texts out. Messages that the two
// share in memory are not looked into.
func divergeBodies(a, b *Body) *Divergence {
	if i := common(a.frame[:a.at], b.frame[:b.at]); i < a.at || i < b.at {
		return &Divergence{int64(i), deeper(PathAt(a.frame, i), PathAt(b.frame, i))}
	}
	pos := int64(a.at)
	n := min(len(a.Messages), len(b.Messages))
	for i := range n {
		if i > 0 {
			pos++
		}
		ma, mb := a.Messages[i], b.Messages[i]
		k := common(ma, mb)
		if k < len(ma) || k < len(mb) {
			// What follows the shorter of two values that begin alike is no byte
			// of a value.
			return &Divergence{pos + int64(k), deeper(messagePath(i, ma, k), messagePath(i, mb, k))}
		}
		pos += int64(k)
	}
	if len(a.Messages) != len(b.Messages) {
		path := "messages"
		if n == 0 {
			path = "messages[0]" // no comma before the first
		}
		return &Divergence{pos, path}
	}
	ta, tb := a.frame[a.at:], b.frame[b.at:]
	k := common(ta, tb)
	if k == len(ta) && k == len(tb) {
		return nil
	}
	return &Divergence{pos + int64(k), deeper(PathAt(a.frame, a.at+k), PathAt(b.frame, b.at+k))}
}

// messagePath is the path of a byte in message i; one past its end lies in the
// list.
func messagePath(i int, m []byte, offset int) string {
	if offset >= len(m) {
		return "messages"
	}
	return joinPath(fmt.Sprintf("messages[%d]", i), PathAt(m, offset))
}

// joinPath puts a path behind the path of the value it starts from.
func joinPath(path, sub string) string {
	if path == "" || sub == "" || sub[0] == '[' {
		return path + sub
	}
	return path + "." + sub
}
