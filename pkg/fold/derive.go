package fold

import (
	"fmt"
	"strconv"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Form says what the build that issued a request made of events older than
// identified messages (SEMANTICS §4.1, §4.3, §10.4). It makes no difference to
// an identified event, which is its own message in every form.
type Form uint8

const (
	FormFramed   Form = iota // context and steering stand between tag blocks (through E5)
	FormVerbatim             // content as stored (E6 to E8)
	FormImported             // upgraded to an identified message when the log was loaded (E9 on)
)

// A Projection is everything outside an event that decides its message: the
// habits of the build that issued the request (SEMANTICS §4.1, §4.3). The zero
// value is Framed().
type Projection struct {
	Form Form
	// KeepEmpty gives an assistant message without content a message all the
	// same (E0 and the marker-less branch; SEMANTICS §4.2).
	KeepEmpty bool
	// Provenance keeps that member of a legacy assistant message (E5 to E8).
	Provenance bool
	// React is the import of E10 and later, where steering becomes a user
	// message and a key outside its closed shape is refused (PHYSICAL §6.2c).
	React bool
	// SessionID is the id in the header of the log being loaded, WTF-8. It is
	// part of every imported message's id.
	SessionID string
	// MessageID returns the JSON string token of the message id recorded for an
	// earlier event, nil when there is none. Only imported tool results that
	// replace another ask for it (PHYSICAL §6.2d).
	MessageID func(seq int64) []byte
}

// Framed is the projection of E1 to E4 (SEMANTICS §4.1).
func Framed() Projection { return Projection{Form: FormFramed} }

// Verbatim is the projection of E6 to E8 (SEMANTICS §4.1).
func Verbatim() Projection { return Projection{Form: FormVerbatim, Provenance: true} }

// Imported is the projection of E10 and later for events of older dialects
// (SEMANTICS §10.4). For E9 set React to false.
func Imported(sessionID string, messageID func(seq int64) []byte) Projection {
	return Projection{Form: FormImported, React: true, SessionID: sessionID, MessageID: messageID}
}

// ProjectionOf returns the projection of a build of the given era (SEMANTICS
// §4.1, §10.4). From E9 on
// the log's session id and the ids of earlier messages take part.
func ProjectionOf(era Era, sessionID string, messageID func(seq int64) []byte) Projection {
	switch {
	case era >= E9:
		p := Imported(sessionID, messageID)
		p.React = era >= E10
		return p
	case era >= E6:
		return Verbatim()
	case era == E5:
		return Projection{Form: FormFramed, Provenance: true}
	case era == E0:
		return Projection{Form: FormFramed, KeepEmpty: true}
	}
	return Framed()
}

// A ShapeError says which part of an event does not have the shape its type
// asks for (SEMANTICS §2, PHYSICAL §6.5), so that no message can be read from it.
type ShapeError struct {
	Type string // of the event
	Seq  int64
	Path string // e.g. "data.message.content"
	Want string // e.g. "an array"
	Got  string // kind of what stands there: "absent", "null", "a string", …
}

func (e *ShapeError) Error() string {
	return fmt.Sprintf("seq %d: %s: %s is %s, want %s", e.Seq, e.Type, e.Path, e.Got, e.Want)
}

// got names the kind of a value in prose.
func got(v []byte) string {
	switch jsjson.KindOf(v) {
	case jsjson.Null:
		return "null"
	case jsjson.Bool:
		return "a boolean"
	case jsjson.Number:
		return "a number"
	case jsjson.String:
		return "a string"
	case jsjson.Array:
		return "an array"
	case jsjson.Object:
		return "an object"
	}
	return "absent"
}

func shape(e *logfmt.Event, path, want string, v []byte) error {
	return &ShapeError{Type: e.Type, Seq: e.Seq, Path: path, Want: want, Got: got(v)}
}

// messageFields are the members of data that derivation looks at, found in one
// walk: absent ones are nil.
type messageFields struct {
	content, source, role, id, message, provenance, callID, isError, envelope []byte
	n                                                                         int // members in all
	turn                                                                      []byte
}

func readFields(data []byte) (f messageFields) {
	for i := 1; ; {
		key, val, next := member(data, i)
		if key == nil {
			return f
		}
		f.n++
		switch string(key) {
		case `"content"`:
			f.content = val
		case `"source"`:
			f.source = val
		case `"role"`:
			f.role = val
		case `"id"`:
			f.id = val
		case `"message"`:
			f.message = val
		case `"provenance"`:
			f.provenance = val
		case `"callId"`:
			f.callID = val
		case `"isError"`:
			f.isError = val
		case `"envelope"`:
			f.envelope = val
		case `"turn"`:
			f.turn = val
		}
		i = next
	}
}

// member returns the member of a canonical object that starts at i (1 for the
// first one) and where the next one starts; a nil key after the last. Other
// values have no members. It is the loop body of jsjson.Members without the
// iterator, for the paths that run once per event.
func member(obj []byte, i int) (key, val []byte, next int) {
	if len(obj) < 2 || obj[0] != '{' || i >= len(obj) || obj[i] != '"' {
		return nil, nil, i
	}
	k := jsjson.Skip(obj, i)
	if k+1 >= len(obj) {
		return nil, nil, len(obj)
	}
	v := jsjson.Skip(obj, k+1)
	return obj[i:k], obj[k+1 : v], v + 1
}

// DeriveEventMessage returns the message an event puts before the model, as
// JSON.stringify would write it, under the projection of the build that issued
// the request (SEMANTICS §4). An event that derives none (an assistant message
// without content, any type that is not a message) gives nil and no error.
//
// The message of an identified event, and only that, is a slice of e.Data. A
// shape from which no message follows is a *ShapeError.
func DeriveEventMessage(e *logfmt.Event, p Projection) ([]byte, error) {
	if f := formatOf(e.Gen); f.project != nil {
		if !takesPart(e) {
			return nil, nil
		}
		return f.project(e)
	}
	switch e.Type {
	case logfmt.TypeUserMessage, logfmt.TypeContextMessage, logfmt.TypeSteeringMessage,
		logfmt.TypeAssistantMessage, logfmt.TypeToolResult:
	default:
		return nil, nil
	}
	if jsjson.KindOf(e.Data) != jsjson.Object {
		return nil, shape(e, "data", "an object", e.Data)
	}
	f := readFields(e.Data)
	switch e.Type {
	case logfmt.TypeUserMessage:
		return deriveUser(e, &f, p)
	case logfmt.TypeAssistantMessage:
		return deriveAssistant(e, &f, p)
	case logfmt.TypeToolResult:
		return deriveToolResult(e, &f, p)
	case logfmt.TypeSteeringMessage:
		return deriveSteering(e, &f, p)
	}
	return deriveContext(e, &f, p)
}

func deriveUser(e *logfmt.Event, f *messageFields, p Projection) ([]byte, error) {
	if f.role != nil && f.id != nil {
		return e.Data, nil
	}
	if p.Form == FormImported {
		return importUser(e, "data", e.Data, f, p)
	}
	return plainUser(e, f)
}

// importUser upgrades a user message in place: its own keys first, then id and
// role. An object that has part of an identity is left alone by the importer
// and then refused.
func importUser(e *logfmt.Event, path string, data []byte, f *messageFields, p Projection) ([]byte, error) {
	switch {
	case f.id == nil && (f.role != nil || f.message != nil):
		return nil, shape(e, path+".id", "a string", nil)
	case f.role == nil && (f.id != nil || f.message != nil):
		return nil, shape(e, path+".role", `"user"`, nil)
	case jsjson.KindOf(f.content) != jsjson.Array:
		return nil, shape(e, path+".content", "an array", f.content)
	case jsjson.KindOf(f.source) != jsjson.Object:
		return nil, shape(e, path+".source", "an object", f.source)
	}
	id := p.legacyID(e.Seq)
	out := make([]byte, 0, len(data)+len(id)+len(`,"id":,"role":"user"`))
	out = append(out, data[:len(data)-1]...)
	out = append(out, `,"id":`...)
	out = append(out, id...)
	return append(out, `,"role":"user"}`...), nil
}

func plainUser(e *logfmt.Event, f *messageFields) ([]byte, error) {
	if jsjson.KindOf(f.content) != jsjson.Array {
		return nil, shape(e, "data.content", "an array", f.content)
	}
	return wrap(`{"role":"user","content":`, f.content, `}`), nil
}

func wrap(before string, v []byte, after string) []byte {
	out := make([]byte, 0, len(before)+len(v)+len(after))
	out = append(out, before...)
	out = append(out, v...)
	return append(out, after...)
}

func deriveContext(e *logfmt.Event, f *messageFields, p Projection) ([]byte, error) {
	switch p.Form {
	case FormImported:
		// Gone two months before messages had an identity; it never got an importer.
		return nil, &ShapeError{Type: e.Type, Seq: e.Seq, Path: "type", Want: "a type that builds since 07-24 load", Got: "older"}
	case FormFramed:
		if !jsjson.StrEq(f.envelope, "raw") {
			return frame(e, f, "context")
		}
	}
	return plainUser(e, f)
}

func deriveSteering(e *logfmt.Event, f *messageFields, p Projection) ([]byte, error) {
	if f.message != nil {
		return steeringMessage(e, f, p)
	}
	switch p.Form {
	case FormFramed:
		return frame(e, f, "steering")
	case FormVerbatim:
		return plainUser(e, f)
	}
	if jsjson.KindOf(f.content) != jsjson.Array {
		return nil, shape(e, "data.content", "an array", f.content)
	}
	if jsjson.KindOf(f.source) != jsjson.Object {
		return nil, shape(e, "data.source", "an object", f.source)
	}
	id := p.legacyID(e.Seq)
	if !p.React {
		out := make([]byte, 0, len(id)+len(f.content)+len(f.source)+48)
		out = append(out, `{"id":`...)
		out = append(out, id...)
		out = append(out, `,"role":"user","content":`...)
		out = append(out, f.content...)
		out = append(out, `,"source":`...)
		out = append(out, f.source...)
		return append(out, '}'), nil
	}
	if err := closedSteering(e, f, 3); err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(e.Data)+len(id)+24)
	out = append(out, '{')
	for i := 1; ; {
		key, val, next := member(e.Data, i)
		if key == nil {
			break
		}
		i = next
		if string(key) == `"turn"` {
			continue
		}
		out = append(out, key...)
		out = append(out, ':')
		out = append(out, val...)
		out = append(out, ',')
	}
	out = append(out, `"id":`...)
	out = append(out, id...)
	return append(out, `,"role":"user"}`...), nil
}

// steeringMessage handles the shape of E9, {turn, message}. On import the
// message itself may still lack an identity.
func steeringMessage(e *logfmt.Event, f *messageFields, p Projection) ([]byte, error) {
	if jsjson.KindOf(f.message) != jsjson.Object {
		return nil, shape(e, "data.message", "an object", f.message)
	}
	if p.Form != FormImported || !p.React {
		return f.message, nil
	}
	if err := closedSteering(e, f, 2); err != nil {
		return nil, err
	}
	m := readFields(f.message)
	if m.id == nil && m.role == nil && m.message == nil && m.content != nil && m.source != nil {
		return importUser(e, "data.message", f.message, &m, p)
	}
	return f.message, nil
}

// closedSteering refuses what the importer of E10 refuses: a turn that is no
// safe integer, or a key beyond the n that the shape has.
func closedSteering(e *logfmt.Event, f *messageFields, n int) error {
	if _, ok := jsjson.SafeInt(f.turn); !ok {
		return shape(e, "data.turn", "an integer", f.turn)
	}
	if f.n != n {
		return &ShapeError{Type: e.Type, Seq: e.Seq, Path: "data", Want: strconv.Itoa(n) + " keys",
			Got: "an object of " + strconv.Itoa(f.n)}
	}
	return nil
}

// frame puts the content between two text blocks that name the source's kind as
// JSON.stringify would write it, whatever it is (SEMANTICS §4.1).
func frame(e *logfmt.Event, f *messageFields, tag string) ([]byte, error) {
	if jsjson.KindOf(f.content) != jsjson.Array {
		return nil, shape(e, "data.content", "an array", f.content)
	}
	if k := jsjson.KindOf(f.source); k == jsjson.Absent || k == jsjson.Null {
		return nil, shape(e, "data.source", "an object", f.source)
	}
	kind := "undefined"
	if v := jsjson.Get(f.source, "kind"); v != nil {
		kind = string(v)
	}
	out := make([]byte, 0, len(f.content)+len(kind)+2*len(tag)+128)
	out = append(out, `{"role":"user","content":[{"type":"text","text":`...)
	out = jsjson.AppendQuote(out, "<"+tag+" source="+kind+">")
	out = append(out, `},`...)
	if inner := f.content[1 : len(f.content)-1]; len(inner) > 0 {
		out = append(out, inner...)
		out = append(out, ',')
	}
	out = append(out, `{"type":"text","text":`...)
	out = jsjson.AppendQuote(out, "</"+tag+">")
	return append(out, `}]}`...), nil
}

func deriveAssistant(e *logfmt.Event, f *messageFields, p Projection) ([]byte, error) {
	if f.message != nil {
		if jsjson.KindOf(f.message) != jsjson.Object {
			return nil, shape(e, "data.message", "an object", f.message)
		}
		content := jsjson.Get(f.message, "content")
		if jsjson.KindOf(content) != jsjson.Array {
			return nil, shape(e, "data.message.content", "an array", content)
		}
		if empty(content) && !p.KeepEmpty {
			return nil, nil
		}
		return f.message, nil
	}
	if jsjson.KindOf(f.content) != jsjson.Array {
		return nil, shape(e, "data.content", "an array", f.content)
	}
	if p.Form == FormImported {
		return importAssistant(e, f, p)
	}
	if empty(f.content) && !p.KeepEmpty {
		return nil, nil
	}
	if !p.Provenance || f.provenance == nil {
		return wrap(`{"role":"assistant","content":`, f.content, `}`), nil
	}
	out := make([]byte, 0, len(f.content)+len(f.provenance)+48)
	out = append(out, `{"role":"assistant","content":`...)
	out = append(out, f.content...)
	out = append(out, `,"provenance":`...)
	out = append(out, f.provenance...)
	return append(out, '}'), nil
}

func empty(array []byte) bool { return len(array) == 2 }

func importAssistant(e *logfmt.Event, f *messageFields, p Projection) ([]byte, error) {
	if jsjson.KindOf(f.provenance) != jsjson.Object {
		return nil, shape(e, "data.provenance", "an object", f.provenance)
	}
	if empty(f.content) {
		return nil, nil
	}
	id := p.legacyID(e.Seq)
	out := make([]byte, 0, len(id)+len(f.content)+len(f.provenance)+80)
	out = append(out, `{"id":`...)
	out = append(out, id...)
	out = append(out, `,"role":"assistant","content":`...)
	out = append(out, f.content...)
	out = append(out, `,"source":{`...)
	found := false
	for i := 1; ; {
		key, val, next := member(f.provenance, i)
		if key == nil {
			break
		}
		if i > 1 {
			out = append(out, ',')
		}
		out = append(out, key...)
		out = append(out, ':')
		if string(key) == `"kind"` {
			found = true
			out = append(out, `"model"`...)
		} else {
			out = append(out, val...)
		}
		i = next
	}
	if !found {
		if len(f.provenance) > 2 {
			out = append(out, ',')
		}
		out = append(out, `"kind":"model"`...)
	}
	return append(out, `}}`...), nil
}

func deriveToolResult(e *logfmt.Event, f *messageFields, p Projection) ([]byte, error) {
	if f.message != nil {
		if jsjson.KindOf(f.message) != jsjson.Object {
			return nil, shape(e, "data.message", "an object", f.message)
		}
		return f.message, nil
	}
	if f.callID == nil {
		return nil, shape(e, "data.callId", "a string", nil)
	}
	if jsjson.KindOf(f.content) != jsjson.Array {
		return nil, shape(e, "data.content", "an array", f.content)
	}
	if p.Form != FormImported {
		out := make([]byte, 0, len(f.callID)+len(f.content)+len(f.isError)+96)
		out = append(out, `{"role":"user","content":`...)
		out = appendResultBlock(out, f)
		return append(out, '}'), nil
	}
	if f.isError == nil {
		return nil, shape(e, "data.isError", "a boolean", nil)
	}
	if jsjson.KindOf(f.callID) != jsjson.String {
		return nil, shape(e, "data.callId", "a string", f.callID)
	}
	id := p.legacyID(e.Seq)
	// Any object with op "replace" counts here, even one the surface refuses.
	if jsjson.StrEq(jsjson.Get(e.Op, "op"), "replace") {
		var prev []byte
		if start, ok := jsjson.SafeInt(jsjson.Get(e.Op, "start")); ok && p.MessageID != nil {
			prev = p.MessageID(start)
		}
		if prev == nil {
			return nil, &ShapeError{Type: e.Type, Seq: e.Seq, Path: "surfaceOp.start",
				Want: "the seq of an event with a message id", Got: got(jsjson.Get(e.Op, "start")) + " that names none"}
		}
		id = prev
	}
	out := make([]byte, 0, len(id)+2*len(f.callID)+len(f.content)+len(f.isError)+144)
	out = append(out, `{"id":`...)
	out = append(out, id...)
	out = append(out, `,"role":"user","content":`...)
	out = appendResultBlock(out, f)
	out = append(out, `,"source":{"kind":"tool","callId":`...)
	out = append(out, f.callID...)
	return append(out, `}}`...), nil
}

// appendResultBlock appends the content of a legacy tool result. A missing
// isError is left out, as JSON.stringify leaves out undefined.
func appendResultBlock(out []byte, f *messageFields) []byte {
	out = append(out, `[{"type":"tool-result","toolCallId":`...)
	out = append(out, f.callID...)
	out = append(out, `,"content":`...)
	out = append(out, f.content...)
	if f.isError != nil {
		out = append(out, `,"isError":`...)
		out = append(out, f.isError...)
	}
	return append(out, `}]`...)
}

// legacyID is the JSON string token of the id that an imported event gets.
func (p Projection) legacyID(seq int64) []byte {
	return jsjson.AppendQuote(nil, "legacy-message:"+p.SessionID+":"+strconv.FormatInt(seq, 10))
}

// EventMessageID returns the JSON string token of the message id that an event
// carries or gets on import under p, nil when it has none (PHYSICAL §6.2d). It
// is what a Projection's MessageID has to answer for earlier events; unlike
// DeriveEventMessage it also sees messages without content.
func EventMessageID(e *logfmt.Event, p Projection) []byte {
	f := readFields(e.Data)
	id := f.id
	if e.Type != logfmt.TypeUserMessage {
		id = jsjson.Get(f.message, "id")
	}
	if id == nil && p.Form == FormImported {
		switch e.Type {
		case logfmt.TypeAssistantMessage:
			if f.message == nil && f.content != nil && f.provenance != nil {
				return p.legacyID(e.Seq)
			}
		case logfmt.TypeUserMessage, logfmt.TypeToolResult, logfmt.TypeSteeringMessage:
			if msg, err := DeriveEventMessage(e, p); err == nil {
				id = jsjson.Get(msg, "id")
			}
		}
	}
	if jsjson.KindOf(id) != jsjson.String {
		return nil
	}
	return id
}
