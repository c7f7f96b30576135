package fold

import (
	"bytes"
	"errors"
	"fmt"
	"iter"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// EpochHeader is the half of a request that is not its messages (SEMANTICS
// §5.1). Every member is canonical JSON, nil when absent.
type EpochHeader struct {
	Config          []byte
	AdapterDefaults []byte // E9 on
	System          []byte
	Tools           []byte
	MessagePrefix   []byte // E4 to E7
}

// AppendJSON appends the header as JSON.stringify writes it, in the canonical
// key order of SEMANTICS §5.1: config, adapterDefaults, system, tools,
// messagePrefix. No era has both the second and the last, so that one order
// serves them all.
func (h *EpochHeader) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	sep := ""
	for _, m := range [...]struct {
		key string
		val []byte
	}{
		{`"config":`, h.Config},
		{`"adapterDefaults":`, h.AdapterDefaults},
		{`"system":`, h.System},
		{`"tools":`, h.Tools},
		{`"messagePrefix":`, h.MessagePrefix},
	} {
		if m.val != nil {
			dst = append(dst, sep...)
			dst = append(dst, m.key...)
			dst = append(dst, m.val...)
			sep = ","
		}
	}
	return append(dst, '}')
}

// JSON returns AppendJSON(nil); "null" for a nil header.
func (h *EpochHeader) JSON() []byte {
	if h == nil {
		return []byte("null")
	}
	n := len(h.Config) + len(h.AdapterDefaults) + len(h.System) + len(h.Tools) + len(h.MessagePrefix)
	return h.AppendJSON(make([]byte, 0, n+80))
}

// Clone returns a header that shares no memory with h; nil for nil.
func (h *EpochHeader) Clone() *EpochHeader {
	if h == nil {
		return nil
	}
	return &EpochHeader{
		Config:          bytes.Clone(h.Config),
		AdapterDefaults: bytes.Clone(h.AdapterDefaults),
		System:          bytes.Clone(h.System),
		Tools:           bytes.Clone(h.Tools),
		MessagePrefix:   bytes.Clone(h.MessagePrefix),
	}
}

// Refusal names the way in which the harness's own fold throws (SEMANTICS §5.4,
// §5.5).
type Refusal string

const (
	RefusalNull        Refusal = "null"         // a member is read from null, or from nothing
	RefusalNotIterable Refusal = "not-iterable" // a list is needed, and the value is no list
	RefusalNoMethod    Refusal = "no-method"    // a method of lists or strings is called on something else
	RefusalNoSnapshot  Refusal = "no-snapshot"  // a delta stands before any snapshot
)

// ErrNoSnapshot is the cause of a HeaderError with RefusalNoSnapshot.
var ErrNoSnapshot = errors.New("header delta before any header snapshot")

// A HeaderError is a header event from which no header follows (SEMANTICS §5.4).
type HeaderError struct {
	Seq     int64 // of the event; -1 when only its value was given
	Path    string
	Refusal Refusal
	Got     string // kind of the value at Path
}

func (e *HeaderError) Error() string {
	pos := ""
	if e.Seq >= 0 {
		pos = fmt.Sprintf("seq %d: ", e.Seq)
	}
	switch e.Refusal {
	case RefusalNoSnapshot:
		return pos + ErrNoSnapshot.Error()
	case RefusalNull:
		return pos + e.Path + " is " + e.Got + ", want an object"
	case RefusalNotIterable:
		return pos + e.Path + " is " + e.Got + ", want a list"
	}
	return pos + e.Path + " is " + e.Got + ", want a list or text"
}

func (e *HeaderError) Unwrap() error {
	if e.Refusal == RefusalNoSnapshot {
		return ErrNoSnapshot
	}
	return nil
}

func refuse(path string, r Refusal, v []byte) error {
	return &HeaderError{Seq: -1, Path: path, Refusal: r, Got: got(v)}
}

// CanonicalHeader reads a logged header into its canonical form (SEMANTICS
// §5.2): an empty system prompt, tool list or message prefix is absent,
// adapterDefaults stay only with a marker that is true, any other key is
// dropped, config passes through. The result shares memory with raw.
//
// The value is taken as JavaScript takes it: a header that is null, or has null
// for one of the lists, is a *HeaderError; other misfits pass through.
func CanonicalHeader(raw []byte) (*EpochHeader, error) {
	if k := jsjson.KindOf(raw); k == jsjson.Absent || k == jsjson.Null {
		return nil, refuse("header", RefusalNull, raw)
	}
	h := &EpochHeader{}
	for i := 1; ; {
		key, val, next := member(raw, i)
		if key == nil {
			break
		}
		switch string(key) {
		case `"config"`:
			h.Config = val
		case `"adapterDefaults"`:
			h.AdapterDefaults = val
		case `"system"`:
			h.System = val
		case `"tools"`:
			h.Tools = val
		case `"messagePrefix"`:
			h.MessagePrefix = val
		}
		i = next
	}
	if err := h.canonicalise(); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *EpochHeader) canonicalise() error {
	for _, m := range [...]struct {
		path string
		val  *[]byte
	}{{"header.system", &h.System}, {"header.tools", &h.Tools}, {"header.messagePrefix", &h.MessagePrefix}} {
		if *m.val == nil {
			continue
		}
		if jsjson.KindOf(*m.val) == jsjson.Null {
			return refuse(m.path, RefusalNull, *m.val)
		}
		if !hasLength(*m.val) {
			*m.val = nil
		}
	}
	if h.AdapterDefaults != nil && !marked(h.AdapterDefaults, "reasoningEffort") && !marked(h.AdapterDefaults, "maxTokens") {
		h.AdapterDefaults = nil
	}
	return nil
}

// hasLength is v.length > 0.
func hasLength(v []byte) bool {
	switch jsjson.KindOf(v) {
	case jsjson.String, jsjson.Array:
		return len(v) > 2
	case jsjson.Object:
		n := jsjson.Get(v, "length")
		return n != nil && toNumber(n) > 0
	}
	return false
}

func marked(defaults []byte, key string) bool {
	return string(jsjson.Get(defaults, key)) == "true"
}

// ConfigEquals compares two call configs field by field (SEMANTICS §5.3): key
// order and unknown keys do not count.
func ConfigEquals(a, b []byte) bool {
	for _, key := range [...]string{"provider", "model", "reasoningEffort", "temperature", "maxTokens", "stop"} {
		if !sameValue(jsjson.Get(a, key), jsjson.Get(b, key)) {
			return false
		}
	}
	return true
}

// sameValue compares canonical bytes; absent equals only absent.
func sameValue(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

var emptyList = []byte("[]")

// sameList compares lists of which an absent one is empty.
func sameList(a, b []byte) bool {
	if a == nil {
		a = emptyList
	}
	if b == nil {
		b = emptyList
	}
	return bytes.Equal(a, b)
}

// HeaderEquals reports whether a writer treats two headers as the same
// (SEMANTICS §5.2): config field by field, adapterDefaults marker by marker,
// the system prompt strictly, tools and message prefix as JSON text in order
// with absent like empty. A nil header equals only nil.
func HeaderEquals(a, b *EpochHeader) bool {
	if a == nil || b == nil {
		return a == b
	}
	return ConfigEquals(a.Config, b.Config) &&
		marked(a.AdapterDefaults, "reasoningEffort") == marked(b.AdapterDefaults, "reasoningEffort") &&
		marked(a.AdapterDefaults, "maxTokens") == marked(b.AdapterDefaults, "maxTokens") &&
		sameValue(a.System, b.System) &&
		sameList(a.Tools, b.Tools) &&
		sameList(a.MessagePrefix, b.MessagePrefix)
}

// Scrubbed reports whether the header comes from a repository fixture in which
// the prompt or the tools were replaced by a token (SEMANTICS §12.2), so that
// no delta applies to it meaningfully and no request can be rebuilt from it.
func (h *EpochHeader) Scrubbed() bool {
	if h == nil {
		return false
	}
	return jsjson.StrEq(h.System, tokenSystem) || scrubbedTools(h.Tools) || scrubbedPrefix(h.MessagePrefix)
}

// A HeaderFold is the request header of a log as far as it has been read
// (SEMANTICS §5.4). The zero value stands before the first event.
type HeaderFold struct {
	// Header in force; nil before the first snapshot. It is never written to
	// again, and shares no memory with the events.
	Header *EpochHeader
	// IgnoreDeltas folds as builds after 07-17 do, to which a delta is nothing.
	IgnoreDeltas bool
}

// Add folds one event and reports whether it was a header event (SEMANTICS
// §5.4). An error is a *HeaderError with the event's seq, and leaves the header as it was.
func (f *HeaderFold) Add(e *logfmt.Event) (bool, error) {
	var h *EpochHeader
	var err error
	switch {
	case e.Type == logfmt.TypeRequestHeader:
		h, err = CanonicalHeader(jsjson.Get(e.Data, "header"))
		h = h.Clone()
	case e.Type == logfmt.TypeRequestHeaderDelta && !f.IgnoreDeltas:
		if f.Header == nil {
			return true, &HeaderError{Seq: e.Seq, Path: "data", Refusal: RefusalNoSnapshot, Got: got(e.Data)}
		}
		if f.Header.Scrubbed() || ScrubbedDelta(e.Data) {
			h = scrubDelta(f.Header, bytes.Clone(e.Data))
			break
		}
		h, err = ApplyHeaderDelta(f.Header, bytes.Clone(e.Data))
	default:
		return false, nil
	}
	if err != nil {
		var he *HeaderError
		if errors.As(err, &he) {
			he.Seq = e.Seq
			he.Path = "data." + he.Path
		}
		return true, err
	}
	f.Header = h
	return true, nil
}

// FoldRequestHeader folds the header events among events, starting from a
// header that may be nil (SEMANTICS §5.4): a snapshot replaces it whatever its
// reason, a delta amends it, nothing else counts. Without header events it
// returns from itself. The first header event that cannot be folded ends it
// with a *HeaderError.
func FoldRequestHeader(events iter.Seq[*logfmt.Event], from *EpochHeader) (*EpochHeader, error) {
	f := HeaderFold{Header: from}
	for e := range events {
		if _, err := f.Add(e); err != nil {
			return nil, err
		}
	}
	return f.Header, nil
}
