package fold

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// A format is what a generation makes of its events: which of them stand on the
// surface, what message follows from each, and how a request is put together
// (FORMATS §4 to §7). Generations are told apart nowhere else in this package.
type format struct {
	// surface are the types that take a place on the surface; nil where the era
	// decides (generation 0 and what shares its events).
	surface []string
	// project derives the message of an event on the surface; nil likewise.
	project func(*logfmt.Event) ([]byte, error)
	// settled tells that an attempt is one event, its settlement, with the chunks
	// in it; a request then is made of what stands before that event.
	settled bool
	// rooted tells that the system prompt is the head of the surface, and not part
	// of the header.
	rooted bool
	// first and last are the keys in a replace that name the ends of its range.
	first, last string
	// offload tells that image/offload changes messages on the surface.
	offload bool
	// tools tells that a request carries the history of its tools.
	tools bool
	// bare tells that a tool result is its own message, without a block around it.
	bare bool
}

var (
	chunked  = &format{first: "start", last: "end"}
	embedded = []string{logfmt.TypeUserMessage, logfmt.TypeAssistantMessage, logfmt.TypeToolResult}
)

// formats are the generations by number.
var formats = []*format{
	chunked,
	chunked,
	{surface: embedded, project: projectMessage, settled: true, first: "start", last: "end"},
	{surface: append([]string{logfmt.TypeSystemMessage}, embedded...), project: projectMessage, settled: true, rooted: true,
		first: "startSeq", last: "endSeq", offload: true},
	{surface: append([]string{logfmt.TypeSystemMessage, logfmt.TypeDeveloperMessage}, embedded...), project: projectMessage, settled: true, rooted: true,
		first: "startSeq", last: "endSeq", offload: true, tools: true, bare: true},
}

// formatOf returns the format of a generation; one that is not known is taken for
// the first.
func formatOf(gen uint8) *format {
	if int(gen) < len(formats) {
		return formats[gen]
	}
	return chunked
}

// SurfaceTypes are the types that take a place on the surface in a generation;
// nil where that depends on the era, see Eligible.
func SurfaceTypes(generation int64) []string {
	if generation < 0 || generation >= int64(len(formats)) {
		return nil
	}
	return formats[generation].surface
}

// Settled reports whether the attempts of a generation are single events with
// their chunks in them.
func Settled(generation int64) bool {
	return generation >= 0 && generation < int64(len(formats)) && formats[generation].settled
}

// takesPart reports whether the type of an event ever stands on a surface of its
// generation.
func takesPart(e *logfmt.Event) bool {
	if f := formatOf(e.Gen); f.surface != nil {
		return slices.Contains(f.surface, e.Type)
	}
	return messageType(e.Type)
}

// eligible is Eligible for an event, which knows its generation.
func eligible(e *logfmt.Event, r Eras) bool {
	if f := formatOf(e.Gen); f.surface != nil {
		return slices.Contains(f.surface, e.Type)
	}
	return Eligible(e.Type, r)
}

// projectMessage derives the message where every message has an identity
// (FORMATS §6.3, §7.3): a user message is its data, any other is data.message, and
// those of the system, the developer and the assistant count for nothing when
// their content is empty.
func projectMessage(e *logfmt.Event) ([]byte, error) {
	if jsjson.KindOf(e.Data) != jsjson.Object {
		return nil, shape(e, "data", "an object", e.Data)
	}
	if e.Type == logfmt.TypeUserMessage {
		if content := jsjson.Get(e.Data, "content"); jsjson.KindOf(content) != jsjson.Array {
			return nil, shape(e, "data.content", "an array", content)
		}
		return e.Data, nil
	}
	message := jsjson.Get(e.Data, "message")
	if jsjson.KindOf(message) != jsjson.Object {
		return nil, shape(e, "data.message", "an object", message)
	}
	content := jsjson.Get(message, "content")
	if jsjson.KindOf(content) != jsjson.Array {
		return nil, shape(e, "data.message.content", "an array", content)
	}
	if e.Type != logfmt.TypeToolResult && empty(content) {
		return nil, nil
	}
	return message, nil
}

// Reasons and assumptions of generations that embed their streams.
const (
	ReasonTools     = "tool-history" // developer messages changed the tools: what the request says of it is not verified (FORMATS §7.3)
	AssumeTools     = "tool-history" // it says that the tools are those of the header, with no updates
	AssumeOffload   = "offload-key"  // a marked image has the mark as its last member (FORMATS §6.3)
	boundarySettled = "settlement"
)

// settledWords replace the reasons of candidates where there are no chunks to
// speak of.
var settledWords = map[string]string{
	"the step ends with neither chunk nor message":                     "the step ends with neither message nor attempt",
	"the log ends before the step's first chunk":                       "the log ends before the step's answer",
	"llm/retry-started is not followed by a chunk":                     "llm/retry-started is followed by neither message nor attempt",
	"the compaction after a failed attempt is not followed by a chunk": "the compaction after a failed attempt is followed by neither message nor attempt",
	"a header was logged for an attempt that left no chunk":            "a header was logged for an attempt that left neither message nor attempt",
	"llm/retry follows without a chunk":                                "llm/retry follows without an attempt",
	"llm/retry is not followed by a chunk":                             "llm/retry is followed by neither message nor attempt",
}

// settle takes an event that settles an attempt: the answer, or a failure. The
// request is made of everything before it.
func (f *Fold) settle(e *logfmt.Event) {
	loose := !f.step.open
	if loose {
		f.implicitStep(e)
	}
	f.step.attempts++
	f.step.due = ""
	f.try = attempt{
		open: true, first: -1, last: -1, at: f.now(), late: len(f.step.messages),
		pos: e.Pos, context: f.context(),
	}
	r := f.request(f.step.attempts, e.Seq)
	r.Boundary.Rule = boundarySettled
	start, reason := streamFacts(e.Data)
	if reason != nil {
		r.Finish, _ = jsjson.Str(jsjson.Get(reason, "kind"))
	}
	// A message that is stamped later than the first chunk was logged while the
	// answer was on its way, as in logs whose attempts were gathered by a migration.
	if start != nil {
		for i, t := range f.step.times {
			if t > *start {
				r.Late = append(r.Late, f.step.messages[i])
			}
		}
		if len(r.Late) > 0 {
			r.doubt(ReasonBoundary)
		}
	}
	if f.format.tools {
		f.toolGrade(r)
	}
	if f.offloads > 0 {
		r.Assumptions = append(r.Assumptions, AssumeOffload)
	}
	answered := e.Type == logfmt.TypeAssistantMessage
	if answered {
		r.Response = e.Seq
	}
	f.finishAttempt(!answered)
	f.step.answered = f.step.answered || answered
	if loose {
		f.step = stepState{messages: f.step.messages[:0], times: f.step.times[:0]}
	}
}

// toolGrade says how sure the request's history of tools is.
func (f *Fold) toolGrade(r *Request) {
	switch {
	case f.toolHist.lost || len(f.toolHist.updates) > 0:
		r.doubt(ReasonTools)
	case f.toolHist.tools != nil:
		r.Assumptions = append(r.Assumptions, AssumeTools)
	}
}

// addFormat takes what only later generations have into account, after the event
// closed what it closes.
func (f *Fold) addFormat(e *logfmt.Event) {
	if e.SetsCut() && f.cutOpen {
		f.seed = e.Seq // the last one counts: until the next
		f.cutSeen = true
	}
	if !f.format.tools {
		return
	}
	switch e.Type {
	case logfmt.TypeRequestHeader:
		if f.headerErr == nil && f.header.Header != nil {
			f.toolHist.header(e, f.header.Header.Tools)
		}
	case logfmt.TypeDeveloperMessage:
		f.toolHist.message(e)
	}
}

// toolHistory follows which tools a request declares and how they came to be
// (FORMATS §7.3).
type toolHistory struct {
	tools   []byte            // of the header that began the series; nil when it has none
	known   map[string][]byte // every tool of the series by name
	active  map[string]bool
	updates [][]byte // one for each developer message
	headers []toolHeader
	latest  []byte // tools of the latest header
	begun   bool
	lost    bool // an addition names no tool that is known
	json    []byte
}

type toolHeader struct {
	seq   int64
	tools []byte
}

// keepHeaders is how many headers are kept for developer messages to refer to;
// the harness refers to the one just logged.
const keepHeaders = 16

func (h *toolHistory) header(e *logfmt.Event, tools []byte) {
	h.json = nil
	h.latest = tools
	if len(h.headers) == keepHeaders {
		h.headers = slices.Delete(h.headers, 0, 1)
	}
	h.headers = append(h.headers, toolHeader{e.Seq, tools})
	restart := !h.begun || jsjson.StrEq(jsjson.Get(e.Data, "reason"), "series") ||
		string(jsjson.Get(e.Data, "startsSeries")) == "true"
	for t := range jsjson.Elements(tools) {
		name, _ := jsjson.Str(jsjson.Get(t, "name"))
		if old, ok := h.known[name]; ok && !bytes.Equal(old, t) {
			restart = true
		}
	}
	if !restart {
		return
	}
	*h = toolHistory{begun: true, tools: tools, latest: tools, headers: h.headers, known: map[string][]byte{}, active: map[string]bool{}}
	for t := range jsjson.Elements(tools) {
		name, _ := jsjson.Str(jsjson.Get(t, "name"))
		h.known[name] = t
		h.active[name] = true
	}
}

func (h *toolHistory) message(e *logfmt.Event) {
	h.json = nil
	message := jsjson.Get(e.Data, "message")
	id := jsjson.Get(message, "id")
	if !h.begun || jsjson.KindOf(id) != jsjson.String {
		h.lost = true
		return
	}
	update := append([]byte(`{"messageId":`), id...)
	update = append(update, `,"additions":[`...)
	n := 0
	for b := range jsjson.Elements(jsjson.Get(message, "content")) {
		name, _ := jsjson.Str(jsjson.Get(b, "toolName"))
		switch {
		case jsjson.StrEq(jsjson.Get(b, "type"), "tool-addition"):
			tool := h.find(jsjson.Get(e.Data, "headerSeq"), name)
			if tool == nil {
				h.lost = true
				continue
			}
			if n > 0 {
				update = append(update, ',')
			}
			n++
			update = append(update, tool...)
			h.known[name] = bytes.Clone(tool)
			h.active[name] = true
		case jsjson.StrEq(jsjson.Get(b, "type"), "tool-removal"):
			delete(h.active, name)
		}
	}
	h.updates = append(h.updates, append(update, "]}"...))
}

// find is the tool of that name in a header; nil unless there is exactly one.
func (h *toolHistory) find(seq []byte, name string) (tool []byte) {
	n, ok := jsjson.SafeInt(seq)
	if !ok {
		return nil
	}
	for _, x := range h.headers {
		if x.seq != n {
			continue
		}
		for t := range jsjson.Elements(x.tools) {
			if jsjson.StrEq(jsjson.Get(t, "name"), name) {
				if tool != nil {
					return nil
				}
				tool = t
			}
		}
	}
	return tool
}

// value is the member of a request, nil when it has none. It stays as it is until
// the next header or developer message.
func (h *toolHistory) value() []byte {
	if h.json != nil || h.tools == nil && h.latest == nil && len(h.updates) == 0 {
		return h.json
	}
	tools, updates := h.tools, h.updates
	n, same := 0, true
	for t := range jsjson.Elements(h.latest) {
		name, _ := jsjson.Str(jsjson.Get(t, "name"))
		n++
		same = same && h.active[name]
	}
	if !same || n != len(h.active) {
		tools, updates = h.latest, nil
	}
	if tools == nil {
		tools = emptyList
	}
	out := append([]byte(`{"tools":`), tools...)
	out = append(out, `,"updates":[`...)
	out = append(out, bytes.Join(updates, comma)...)
	h.json = append(out, "]}"...)
	return h.json
}

// offload marks images of messages on the surface as put away (FORMATS §6.3). The
// nodes concerned are replaced by marked ones under their own seqs.
func (s *Surface) offload(e *logfmt.Event) (changed bool) {
	s.faults = nil
	targets := jsjson.Get(e.Data, "targets")
	if jsjson.KindOf(targets) != jsjson.Array {
		return false
	}
	n := 0
	for t := range jsjson.Elements(targets) {
		path := fmt.Sprintf("data.targets[%d]", n)
		n++
		seq, ok := jsjson.SafeInt(jsjson.Get(t, "seq"))
		if !ok {
			s.fault(e, FaultOffload, -1, path+" names no seq")
			continue
		}
		i := s.index(seq)
		if i < 0 {
			s.fault(e, FaultOffload, seq, path+" names seq "+itoa(seq)+", which is not on the surface")
			continue
		}
		node := s.nodes[i]
		if node.Type != logfmt.TypeUserMessage && node.Type != logfmt.TypeToolResult {
			s.fault(e, FaultOffload, seq, path+" names seq "+itoa(seq)+", which is "+node.Type+"; expected user/message or tool/result")
			continue
		}
		marks := slices.Clone(node.offloaded)
		last, images := int64(-1), countImages(messageContent(node))
		for v := range jsjson.Elements(jsjson.Get(t, "imageIndexes")) {
			k, ok := jsjson.SafeInt(v)
			switch {
			case !ok || k <= last:
				s.fault(e, FaultOffload, seq, path+" lists image indexes that do not rise")
				continue
			case k >= int64(images):
				s.fault(e, FaultOffload, seq, fmt.Sprintf("%s lists image %d of seq %d, which has %d", path, k, seq, images))
				continue
			}
			last = k
			if !slices.Contains(marks, int(k)) {
				marks = append(marks, int(k))
			}
		}
		if len(marks) == len(node.offloaded) {
			continue
		}
		slices.Sort(marks)
		m := *node
		m.memo, m.offloaded = nil, marks
		s.swap(i, &m)
		changed = true
	}
	return changed
}

// swap puts another node in the place of one, for the same event.
func (s *Surface) swap(i int, n *Node) {
	if s.shared {
		s.nodes = append(make([]*Node, 0, len(s.nodes)+16), s.nodes...)
		s.shared = false
	}
	s.nodes[i] = n
	s.gen++
	if s.onReplace != nil {
		s.onReplace(i)
	}
}

func messageContent(n *Node) []byte {
	if n.Type == logfmt.TypeUserMessage {
		return jsjson.Get(n.Data, "content")
	}
	return jsjson.Get(jsjson.Get(n.Data, "message"), "content")
}

// countImages counts the images among blocks, those within other blocks included.
func countImages(blocks []byte) int {
	n := 0
	if jsjson.KindOf(blocks) != jsjson.Array {
		return 0
	}
	for b := range jsjson.Elements(blocks) {
		if jsjson.StrEq(jsjson.Get(b, "type"), "image") {
			n++
			continue
		}
		n += countImages(jsjson.Get(b, "content"))
	}
	return n
}

// markImages is a message with some of its images marked, counted depth first.
func markImages(message []byte, marks []int) []byte {
	seen := 0
	return appendMarked(make([]byte, 0, len(message)+len(marks)*len(offloadMark)), message, marks, &seen)
}

const offloadMark = `,"offloaded":true`

// appendMarked appends an object whose content may hold images.
func appendMarked(dst, obj []byte, marks []int, seen *int) []byte {
	dst = append(dst, '{')
	sep := false
	for key, val := range jsjson.Members(obj) {
		if sep {
			dst = append(dst, ',')
		}
		sep = true
		dst = append(append(dst, key...), ':')
		if string(key) != `"content"` || jsjson.KindOf(val) != jsjson.Array {
			dst = append(dst, val...)
			continue
		}
		dst = append(dst, '[')
		first := true
		for b := range jsjson.Elements(val) {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			switch {
			case jsjson.StrEq(jsjson.Get(b, "type"), "image"):
				if slices.Contains(marks, *seen) && jsjson.Get(b, "offloaded") == nil {
					dst = append(append(append(dst, b[:len(b)-1]...), offloadMark...), '}')
				} else {
					dst = append(dst, b...)
				}
				*seen++
			case jsjson.KindOf(b) == jsjson.Object:
				dst = appendMarked(dst, b, marks, seen)
			default:
				dst = append(dst, b...)
			}
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// replaceForm is an exact replace in words.
func (f *format) replaceForm() string {
	return `{"op":"replace","` + f.first + `":seq,"` + f.last + `":seq}`
}

// checkHead holds a replace of nodes i to j to the rule that the head of the
// surface, once a system prompt, is only replaced by another, alone (FORMATS
// §7.4, S11).
func (s *Surface) checkHead(e *logfmt.Event, i, j int) {
	switch {
	case e.Type == logfmt.TypeSystemMessage && !s.rooted:
		s.fault(e, FaultHead, s.nodes[0].Seq, "a system/message joins a surface that did not begin with one")
	case !s.rooted || i > 0:
	case e.Type != logfmt.TypeSystemMessage:
		s.fault(e, FaultHead, s.nodes[0].Seq, "the system prompt at seq "+itoa(s.nodes[0].Seq)+" is replaced by "+e.Type+"; only a system/message may")
	case j > 0:
		s.fault(e, FaultHead, s.nodes[0].Seq, "the system prompt at seq "+itoa(s.nodes[0].Seq)+" is replaced together with what follows it; expected it alone")
	}
}

// sameSlice reports whether two values are the same bytes in the same place.
func sameSlice(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
