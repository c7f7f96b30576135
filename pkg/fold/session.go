package fold

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Newest is the newest dialect of format generation 0, and the default one of
// Session and Store.
const Newest = E13

// OpAppend returns the surfaceOp that puts an event at the end of the surface
// (SEMANTICS §3.1).
func OpAppend() json.RawMessage { return json.RawMessage(`"append"`) }

// OpReplace returns the surfaceOp that puts an event in the place of the surface
// nodes from start to end, both included (SEMANTICS §3.1).
func OpReplace(start, end int64) json.RawMessage {
	return fmt.Appendf(nil, `{"op":"replace","start":%d,"end":%d}`, start, end)
}

// AppendOptions are the parts of an event beside type and data (SEMANTICS §0.3).
type AppendOptions struct {
	Op        json.RawMessage // surfaceOp; nil for none
	Sources   []int64         // sourceEventSeqs; nil for none, empty for []
	Ignorable bool            // from E10
	Time      *int64          // ms since the epoch; nil asks the session's clock
}

// OnSurface returns the options of a message that joins the end of the surface
// and cites the given events (SEMANTICS §3.3). Without any it has no citation; a known empty
// stream is Sources set to an empty list.
func OnSurface(sources ...int64) AppendOptions {
	return AppendOptions{Op: OpAppend(), Sources: sources}
}

// SessionRule names the check that refuses an event or a header (PHYSICAL §6.4).
type SessionRule string

const (
	SessionHeader   SessionRule = "header"   // the session's header (PHYSICAL §6.4a)
	SessionJSON     SessionRule = "json"     // data that JSON does not keep (PHYSICAL §9.1)
	SessionEnvelope SessionRule = "envelope" // type, seq, time, keys of the event (§6.4b)
	SessionConfig   SessionRule = "config"   // the config of a header or a provenance (§6.4c)
	SessionMessage  SessionRule = "message"  // shape of an identified message (§6.5)
	SessionRetired  SessionRule = "retired"  // header-delta, reason "fallback" (§6.1)
	SessionEnd      SessionRule = "end"      // turn/end reasons from 07-21 to 08-05 (SEMANTICS §3.3)
	SessionSeq      SessionRule = "seq"      // seq is the index (§6.4e)
	SessionSurface  SessionRule = "surface"  // the surface rules (§6.6); the cause is a *SurfaceError
)

// A SessionError is an event or a header that the session's era does not accept
// (SEMANTICS §3.3, PHYSICAL §6.4).
// The session is as it was.
type SessionError struct {
	Rule   SessionRule
	Seq    int64  // the event's place in the log; -1 for the header
	Type   string // of the event; may be text of a log
	Detail string
	Err    error // cause; may be nil
}

func (e *SessionError) Error() string {
	if e.Seq < 0 {
		return "session header: " + e.Detail
	}
	return fmt.Sprintf("seq %d: %q: %s", e.Seq, e.Type, e.Detail)
}

func (e *SessionError) Unwrap() error { return e.Err }

// SessionMeta is what a session's header says (PHYSICAL §2.2). The zero value of
// a member leaves it out, but for CreatedAt, which is always there.
type SessionMeta struct {
	ID              string // WTF-8, not empty
	CreatedAt       int64  // ms since the epoch
	Cwd             string // absolute
	ParentSession   string
	SeedLength      int64
	Origin          string // "subagent" or ""; from E9
	DelegationDepth int64  // from E6
	AgentPreset     string // from E10
}

// A Session is an append-only log in memory, with the acceptance rules of one
// era (SEMANTICS §3.3, PHYSICAL §6.4 to §6.6). It is what the harness keeps
// while it runs, for writing logs by hand and for testing readers. Whether a type
// is known is asked only when a stored log is loaded, and not here.
//
// Up to E4 the surface is judged when it is asked for, not when an event is
// appended: a replace of something that is not there is accepted, and from then
// on Surface and DeriveMessages fail.
//
// Whatever a session hands out is a copy, or text that cannot be changed. It must
// not be used from several goroutines at once.
type Session struct {
	era    Era
	meta   SessionMeta
	clock  func() int64
	events []*logfmt.Event

	surface    Surface
	surfaceErr error // what the surface of the old eras failed on
	marked     bool  // some event carries surfaceOp
	scan       []int64

	header    HeaderFold
	headerErr error

	messages    map[int64]message // by seq, of nodes on the surface
	generation  int               // of the surface that messages was pruned for
	projections int
}

type message struct {
	text string // "" for a node without a message
	err  error
}

// NewSession makes a session of the newest dialect, holding a copy of the seed
// (PHYSICAL §6.4).
func NewSession(meta SessionMeta, seed ...*logfmt.Event) (*Session, error) {
	return NewSessionOf(Newest, meta, seed...)
}

// NewSessionOf makes a session of the given era, holding a copy of the seed, of
// events as a reader yields them (SEMANTICS §3.3, PHYSICAL §6.4). An error is a
// *SessionError.
func NewSessionOf(era Era, meta SessionMeta, seed ...*logfmt.Event) (*Session, error) {
	s := &Session{era: era, meta: meta, messages: map[int64]message{}}
	s.clock = func() int64 { return time.Now().UnixMilli() }
	s.header.IgnoreDeltas = era >= E5
	if why := meta.check(era); why != "" {
		return nil, &SessionError{Rule: SessionHeader, Seq: -1, Detail: why}
	}
	for _, e := range seed {
		if err := s.admit(e); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (m *SessionMeta) check(era Era) string {
	for _, s := range [...]struct{ name, v string }{
		{"id", m.ID}, {"cwd", m.Cwd}, {"parentSession", m.ParentSession}, {"agentPreset", m.AgentPreset},
	} {
		if !isWTF8(s.v) {
			return s.name + " is no text"
		}
	}
	switch {
	case m.ID == "":
		return "id is empty"
	case m.CreatedAt < 0 || m.CreatedAt > jsjson.MaxSafe:
		return "createdAt is no time"
	case m.Cwd != "" && !absolutePath(m.Cwd):
		return "cwd is not an absolute path"
	case m.SeedLength < 0 || m.SeedLength > jsjson.MaxSafe:
		return "seedLength is negative or too large"
	case m.SeedLength > 0 && era < E1:
		return "this era writes no seedLength"
	case m.Origin != "" && m.Origin != "subagent":
		return `origin is neither absent nor "subagent"`
	case m.Origin != "" && era < E9:
		return "this era writes no origin"
	case m.DelegationDepth < 0 || m.DelegationDepth > jsjson.MaxSafe:
		return "delegationDepth is negative or too large"
	case m.DelegationDepth > 0 && era < E6:
		return "this era writes no delegationDepth"
	case m.AgentPreset != "" && era < E10:
		return "this era writes no agentPreset"
	}
	return ""
}

// absolutePath reports whether a path is absolute on POSIX or on Windows.
func absolutePath(p string) bool {
	if strings.HasPrefix(p, "/") || strings.HasPrefix(p, `\`) {
		return true
	}
	return len(p) >= 3 && p[1] == ':' && (p[2] == '\\' || p[2] == '/') && (p[0]|0x20 >= 'a' && p[0]|0x20 <= 'z')
}

// ID returns the session's id, WTF-8.
func (s *Session) ID() string { return s.meta.ID }

// Era returns the era whose rules the session follows.
func (s *Session) Era() Era { return s.era }

// Seq returns the seq that the next event gets: the number of events.
func (s *Session) Seq() int64 { return int64(len(s.events)) }

// SetClock sets where times come from, in ms since the epoch.
func (s *Session) SetClock(now func() int64) { s.clock = now }

// Header returns the session's header record as its era stores it (PHYSICAL
// §2.2), a new copy each time.
func (s *Session) Header() *logfmt.Header {
	m := s.meta
	h := &logfmt.Header{ID: m.ID, CreatedAt: m.CreatedAt, Pos: nowhere}
	if s.era == E0 {
		h.Version = 1
		h.Fault |= logfmt.HeaderJune
	}
	b := append([]byte(`{"type":"session","version":`), byte('0'+h.Version))
	b = jsjson.AppendQuote(append(b, `,"id":`...), m.ID)
	b = strconv.AppendInt(append(b, `,"createdAt":`...), m.CreatedAt, 10)
	text := func(key, v string, to **string) {
		if v != "" {
			b = jsjson.AppendQuote(append(b, key...), v)
			*to = &v
		}
	}
	text(`,"cwd":`, m.Cwd, &h.Cwd)
	text(`,"parentSession":`, m.ParentSession, &h.ParentSession)
	if m.SeedLength > 0 {
		b = strconv.AppendInt(append(b, `,"seedLength":`...), m.SeedLength, 10)
		h.SeedLength = &m.SeedLength
	}
	text(`,"origin":`, m.Origin, &h.Origin)
	if s.era >= E6 {
		b = strconv.AppendInt(append(b, `,"delegationDepth":`...), m.DelegationDepth, 10)
		h.DelegationDepth = &m.DelegationDepth
	} else {
		h.Fault |= logfmt.HeaderNoDepth
	}
	text(`,"agentPreset":`, m.AgentPreset, &h.AgentPreset)
	h.Raw = append(b, '}')
	return h
}

// nowhere is the position of what is in memory only.
var nowhere = logfmt.Position{Frame: -1, FrameAt: -1, Row: -1, Member: -1}

// Events iterates over copies of the events, in order.
func (s *Session) Events() iter.Seq[*logfmt.Event] {
	return func(yield func(*logfmt.Event) bool) {
		for _, e := range s.events {
			if !yield(e.Clone()) {
				return
			}
		}
	}
}

// Append adds an event and returns a copy of it (SEMANTICS §0.3). Data is any
// value that IsJSONValue accepts; json.RawMessage keeps the order of its keys.
// What the session's era does not accept is a *SessionError.
func (s *Session) Append(typ string, data any, opts AppendOptions) (*logfmt.Event, error) {
	e := &logfmt.Event{Type: typ, Seq: s.Seq(), Ignorable: opts.Ignorable, Pos: nowhere}
	fail := func(rule SessionRule, detail string, err error) (*logfmt.Event, error) {
		return nil, &SessionError{Rule: rule, Seq: e.Seq, Type: typ, Detail: detail, Err: err}
	}
	var err error
	if e.Data, err = appendJSONValue(nil, data); err != nil {
		return fail(SessionJSON, "data: "+err.Error(), err)
	}
	if !isWTF8(typ) {
		return fail(SessionEnvelope, "the type is no text", nil)
	}
	if opts.Op != nil {
		op, facts, err := jsjson.Stringify(opts.Op)
		if err != nil || facts&lossy != 0 {
			return fail(SessionEnvelope, "surfaceOp is not valid JSON", err)
		}
		e.Op = slices.Clone(op)
	}
	if opts.Sources != nil {
		e.Sources = appendSeqs(nil, opts.Sources)
	}
	if opts.Time != nil {
		e.Time = *opts.Time
	} else {
		e.Time = s.clock()
	}
	e.JSON = logfmt.AppendEvent(nil, e)
	e.Line = e.JSON
	if err := s.accept(e, false); err != nil {
		return nil, err
	}
	return e.Clone(), nil
}

// admit takes an event of a seed.
func (s *Session) admit(e *logfmt.Event) error {
	if jsjson.Facts(e.Facts)&(jsjson.NumberOverflow|jsjson.NegativeZero) != 0 {
		return &SessionError{Rule: SessionJSON, Seq: s.Seq(), Type: e.Type, Detail: "holds a number that JSON does not keep"}
	}
	e = e.Clone()
	if e.JSON == nil {
		e.JSON = logfmt.AppendEvent(nil, e)
		e.Line = e.JSON
	}
	return s.accept(e, true)
}

// accept makes the checks in the order of PHYSICAL §6.4 and takes the event,
// which it owns.
func (s *Session) accept(e *logfmt.Event, seed bool) error {
	fail := func(rule SessionRule, detail string, err error) error {
		return &SessionError{Rule: rule, Seq: s.Seq(), Type: e.Type, Detail: detail, Err: err}
	}
	if why := s.checkEnvelope(e, seed); why != "" {
		return fail(SessionEnvelope, why, nil)
	}
	if why := s.checkConfig(e); why != "" {
		return fail(SessionConfig, why, nil)
	}
	if s.era >= E9 {
		var bad *ShapeError
		if errors.As(CheckMessageShape(e), &bad) {
			return fail(SessionMessage, bad.Path+" is "+bad.Got+", want "+bad.Want, bad)
		}
	}
	if s.era >= E5 {
		if e.Type == logfmt.TypeRequestHeaderDelta {
			return fail(SessionRetired, "builds since 07-17 do not accept header deltas", nil)
		}
		if e.Type == logfmt.TypeRequestHeader && jsjson.StrEq(jsjson.Get(e.Data, "reason"), "fallback") {
			return fail(SessionRetired, `builds since 07-17 do not accept the reason "fallback"`, nil)
		}
	}
	if seed && e.Type == logfmt.TypeTurnEnd && s.era >= E6 && s.era <= E9 {
		reason := jsjson.Get(e.Data, "reason")
		if jsjson.StrEq(jsjson.Get(reason, "kind"), "aborted") && jsjson.Len(reason) != 1 {
			return fail(SessionEnd, "an aborted turn has no more than its kind in this era", nil)
		}
	}
	if e.Seq != s.Seq() {
		return fail(SessionSeq, fmt.Sprintf("has seq %d, want %d", e.Seq, s.Seq()), nil)
	}
	change, faults := s.surface.Check(e, Eras{s.era, s.era})
	refused := RefusedBy(s.era)
	for _, f := range faults {
		atAppend := s.era >= E5 || f.Fault == FaultMarker
		if refused.Has(f.Fault) && atAppend {
			return fail(SessionSurface, f.Detail, f)
		}
	}
	// From here on the event is in the log.
	if s.surfaceErr == nil {
		if change == Unchanged && e.Op != nil && Eligible(e.Type, Eras{s.era, s.era}) {
			s.surfaceErr = faults[0]
		} else {
			s.surface.Apply(e, Eras{s.era, s.era})
		}
	}
	s.marked = s.marked || e.Op != nil
	if s.era < E2 && Eligible(e.Type, Eras{s.era, s.era}) {
		s.scan = append(s.scan, e.Seq)
	}
	if s.headerErr == nil {
		_, s.headerErr = s.header.Add(e)
	}
	s.events = append(s.events, e)
	return nil
}

func (s *Session) checkEnvelope(e *logfmt.Event, seed bool) string {
	if e.Ignorable && s.era < E10 {
		return "this era knows no ignorable events"
	}
	if e.Data == nil {
		return "has no data"
	}
	if e.Fault&(logfmt.FaultType|logfmt.FaultSeq) != 0 {
		return "type or seq is missing or of the wrong kind"
	}
	if s.era < E5 && seed {
		return "" // the envelope was not closed yet
	}
	switch {
	case e.Fault&logfmt.FaultTime != 0 || e.Time > jsjson.MaxSafe || e.Time < -jsjson.MaxSafe:
		return "time is no integer"
	case e.Time < 0 && s.era < E10:
		return "time is negative"
	case e.Fault&logfmt.FaultExtraKey != 0:
		return "has a key that no event has"
	case e.Fault&logfmt.FaultIgnorable != 0:
		return "ignorable is not true"
	}
	return ""
}

// checkConfig holds the config of a header, and the provenance of a legacy
// message, to what the era asks for (SEMANTICS §3.3).
func (s *Session) checkConfig(e *logfmt.Event) string {
	if s.era < E5 {
		return ""
	}
	switch e.Type {
	case logfmt.TypeRequestHeader:
		return CheckHeaderConfig(s.era, jsjson.Get(e.Data, "header"))
	case logfmt.TypeAssistantMessage:
		if s.era >= E9 {
			return "" // part of the message's shape
		}
		p := jsjson.Get(e.Data, "provenance")
		if !filled(jsjson.Get(p, "provider")) || !filled(jsjson.Get(p, "model")) {
			return "provenance lacks provider or model"
		}
	}
	return ""
}

// filled reports whether v is a string that is not empty.
func filled(v []byte) bool { return jsjson.KindOf(v) == jsjson.String && len(v) > 2 }

// CheckHeaderConfig returns what builds of an era refuse in the config and the
// adapterDefaults of a logged header, "" if nothing (SEMANTICS §3.3, PHYSICAL
// §6.4c). Before E5 they look at neither.
func CheckHeaderConfig(era Era, header []byte) string {
	if era < E5 {
		return ""
	}
	config := jsjson.Get(header, "config")
	if !filled(jsjson.Get(config, "provider")) || !filled(jsjson.Get(config, "model")) {
		return "header.config lacks provider or model"
	}
	if v := jsjson.Get(config, "reasoningEffort"); era >= E8 && v != nil && !filled(v) {
		return "header.config.reasoningEffort is no text"
	}
	defaults := jsjson.Get(header, "adapterDefaults")
	if era < E9 || defaults == nil {
		return ""
	}
	if jsjson.KindOf(defaults) != jsjson.Object {
		return "header.adapterDefaults is " + got(defaults) + ", want an object"
	}
	for key, v := range jsjson.Members(defaults) {
		name, _ := jsjson.Str(key)
		switch {
		case name != "reasoningEffort" && name != "maxTokens":
			return "header.adapterDefaults has a key other than reasoningEffort and maxTokens"
		case string(v) != "true":
			return "header.adapterDefaults." + name + " is not true"
		case jsjson.Get(config, name) == nil:
			return "header.adapterDefaults names " + name + ", which header.config lacks"
		}
	}
	return ""
}

// CheckMessageShape holds the message of an identified event to PHYSICAL §6.5;
// events of other types pass. An error is a *ShapeError.
func CheckMessageShape(e *logfmt.Event) error {
	m, path := e.Data, "data"
	role := `"user"`
	switch e.Type {
	case logfmt.TypeUserMessage:
	case logfmt.TypeAssistantMessage:
		role = `"assistant"`
		fallthrough
	case logfmt.TypeToolResult, logfmt.TypeSteeringMessage:
		m, path = jsjson.Get(e.Data, "message"), "data.message"
	default:
		return nil
	}
	if jsjson.KindOf(m) != jsjson.Object {
		return shape(e, path, "an object", m)
	}
	f := readFields(m)
	text := func(v []byte, at string) error {
		if filled(v) {
			return nil
		}
		err := &ShapeError{Type: e.Type, Seq: e.Seq, Path: path + at, Want: "text", Got: got(v)}
		if jsjson.KindOf(v) == jsjson.String {
			err.Got = "empty"
		}
		return err
	}
	if err := text(f.id, ".id"); err != nil {
		return err
	}
	if string(f.role) != role {
		err := &ShapeError{Type: e.Type, Seq: e.Seq, Path: path + ".role", Want: role, Got: got(f.role)}
		if jsjson.KindOf(f.role) == jsjson.String {
			err.Got = "another"
		}
		return err
	}
	if jsjson.KindOf(f.source) != jsjson.Object {
		return shape(e, path+".source", "an object", f.source)
	}
	kind := jsjson.Get(f.source, "kind")
	if err := text(kind, ".source.kind"); err != nil {
		return err
	}
	if jsjson.KindOf(f.content) != jsjson.Array {
		return shape(e, path+".content", "an array", f.content)
	}
	kindIs := func(want string) error {
		if jsjson.StrEq(kind, want) {
			return nil
		}
		return &ShapeError{Type: e.Type, Seq: e.Seq, Path: path + ".source.kind", Want: strconv.Quote(want), Got: "another"}
	}
	switch e.Type {
	case logfmt.TypeAssistantMessage:
		if err := kindIs("model"); err != nil {
			return err
		}
		if err := text(jsjson.Get(f.source, "provider"), ".source.provider"); err != nil {
			return err
		}
		return text(jsjson.Get(f.source, "model"), ".source.model")
	case logfmt.TypeToolResult:
		if err := kindIs("tool"); err != nil {
			return err
		}
		call := jsjson.Get(f.source, "callId")
		if err := text(call, ".source.callId"); err != nil {
			return err
		}
		if n := jsjson.Len(f.content); n != 1 {
			return &ShapeError{Type: e.Type, Seq: e.Seq, Path: path + ".content", Want: "one block", Got: "an array of " + strconv.Itoa(n)}
		}
		block := jsjson.Index(f.content, 0)
		if !jsjson.StrEq(jsjson.Get(block, "type"), "tool-result") {
			return &ShapeError{Type: e.Type, Seq: e.Seq, Path: path + ".content[0].type", Want: `"tool-result"`, Got: "another"}
		}
		if c := jsjson.Get(block, "content"); jsjson.KindOf(c) != jsjson.Array {
			return shape(e, path+".content[0].content", "an array", c)
		}
		if string(jsjson.Get(block, "toolCallId")) != string(call) {
			return &ShapeError{Type: e.Type, Seq: e.Seq, Path: path + ".content[0].toolCallId", Want: "the callId of the source", Got: "another"}
		}
	}
	return nil
}

// SurfaceView is the surface of a session at one moment (SEMANTICS §3.1).
type SurfaceView struct {
	Nodes        []int64 // seqs in surface order
	Replacements []Replacement
}

// Surface returns the surface as it is now (SEMANTICS §3.1). The error is the
// *SurfaceError of an event that an old era accepts and then cannot fold.
func (s *Session) Surface() (SurfaceView, error) {
	if s.surfaceErr != nil {
		return SurfaceView{}, s.surfaceErr
	}
	v := SurfaceView{Nodes: s.surface.Seqs(nil)}
	for _, r := range s.surface.Replacements() {
		r.ShadowedSeqs = slices.Clone(r.ShadowedSeqs)
		v.Replacements = append(v.Replacements, r)
	}
	return v, nil
}

// RequestHeader returns the request header that the log folds to (SEMANTICS
// §5.4), a copy; nil before the first. The error is the *HeaderError of an event
// that cannot be folded.
func (s *Session) RequestHeader() (*EpochHeader, error) {
	if s.headerErr != nil {
		return nil, s.headerErr
	}
	return s.header.Header.Clone(), nil
}

// DeriveMessages returns the messages of the log, each as JSON.stringify writes
// it (SEMANTICS §4): the surface, or up to E1 a scan of the whole log as long as
// no event carries surfaceOp (§3.2). Every node is projected once in the
// session's life; the slice is new with every call, its texts are shared.
//
// The error is that of Surface, or the *ShapeError of a node that an old era
// accepts and then cannot derive.
func (s *Session) DeriveMessages() ([]string, error) {
	seqs := s.scan
	if s.era >= E2 || s.marked {
		if s.surfaceErr != nil {
			return nil, s.surfaceErr
		}
		seqs = s.surface.Seqs(nil)
	}
	if g := s.surface.Generation(); g != s.generation {
		s.generation = g
		kept := make(map[int64]message, len(seqs))
		for _, seq := range seqs {
			if m, ok := s.messages[seq]; ok {
				kept[seq] = m
			}
		}
		s.messages = kept
	}
	out := make([]string, 0, len(seqs))
	for _, seq := range seqs {
		m, ok := s.messages[seq]
		if !ok {
			s.projections++
			b, err := DeriveEventMessage(s.events[seq], ProjectionOf(s.era, s.meta.ID, nil))
			m = message{string(b), err}
			s.messages[seq] = m
		}
		if m.err != nil {
			return nil, m.err
		}
		if m.text != "" {
			out = append(out, m.text)
		}
	}
	return out, nil
}
