// Package drift compares two requests and says what differs.
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
//	system    line by line, split at U+000A
//	tools     by name; the n-th tool of a name is paired with the n-th of that
//	          name on the other side
//	messages  by their bytes, in order; two messages left over at the same place
//	          that carry the same id, or the same role and no id, are one message
//	          that changed
//
// B extends A when their headers (config, system, tools) are equal, the order of
// config members aside, and A's messages are the first messages of B: then a
// provider may reuse what it computed for A.
//
// # Not judged
//
// Where a request came from, and whether it is what the harness sent.
package drift

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// ErrBody is returned for bytes that are not a request body.
var ErrBody = errors.New("not a request body")

// A Member is one member of the config.
type Member struct {
	Name  string // decoded, WTF-8
	Value []byte // canonical JSON
}

// A Body is a request body taken apart. Every slice is part of Raw.
type Body struct {
	Raw       []byte
	Config    []Member
	Messages  [][]byte
	System    []byte   // canonical JSON; nil when absent
	Tools     [][]byte // nil when absent
	HasTools  bool
	SessionID []byte // canonical JSON; nil when absent
}

// Parse takes a body apart. The body must be canonical JSON; it fails with
// ErrBody when it is not an object with an array of messages.
func Parse(raw []byte) (*Body, error) {
	if jsjson.KindOf(raw) != jsjson.Object {
		return nil, fmt.Errorf("%w: it is not an object", ErrBody)
	}
	b := &Body{Raw: raw}
	found := false
	for key, value := range jsjson.Members(raw) {
		name, _ := jsjson.Str(key)
		switch {
		case name == "messages":
			if jsjson.KindOf(value) != jsjson.Array {
				return nil, fmt.Errorf("%w: its messages are not an array", ErrBody)
			}
			found = true
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
	if !found {
		return nil, fmt.Errorf("%w: it has no messages", ErrBody)
	}
	return b, nil
}

// A Diff is what differs between A and B.
type Diff struct {
	Same     bool
	At       *Divergence // nil when the bytes are the same
	Extends  bool        // B extends A
	Config   []Change    // in order of A, then what only B has
	KeyOrder bool        // the config members are equal, but stand in another order
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
	Offset int64  // of the first differing byte; the length of the shorter if one begins the other
	Path   string // of the value that stands there
}

// A Change is a named value that differs. A nil side has no such value.
type Change struct {
	Name string
	A, B []byte
}

// Compare compares two bodies.
func Compare(a, b *Body) *Diff {
	d := &Diff{
		Same:     bytes.Equal(a.Raw, b.Raw),
		At:       Diverge(a.Raw, b.Raw),
		Tools:    compareTools(a, b),
		Messages: compareMessages(a.Messages, b.Messages),
	}
	d.Config, d.KeyOrder = compareConfig(a.Config, b.Config)
	if !bytes.Equal(a.SessionID, b.SessionID) {
		d.Session = &Change{"sessionId", a.SessionID, b.SessionID}
	}
	if !bytes.Equal(a.System, b.System) {
		d.System = compareSystem(a.System, b.System)
	}
	d.Extends = d.HeaderEqual() && prefix(a.Messages, b.Messages)
	return d
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
			changes = append(changes, Change{m.Name, m.Value, v})
		}
	}
	for _, m := range b {
		if find(a, m.Name) == nil {
			changes = append(changes, Change{m.Name, nil, m.Value})
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

// Diverge returns the first place where two canonical JSON texts differ, nil if
// they do not.
func Diverge(a, b []byte) *Divergence {
	n := min(len(a), len(b))
	i := 0
	for i < n && a[i] == b[i] {
		i++
	}
	if i == len(a) && i == len(b) {
		return nil
	}
	// The deeper path is the better one: where A's number ends, B's may go on.
	pa, pb := PathAt(a, i), PathAt(b, i)
	if len(pb) > len(pa) {
		pa = pb
	}
	return &Divergence{int64(i), pa}
}
