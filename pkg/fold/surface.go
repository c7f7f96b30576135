package fold

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Node is one entry of the surface: an event that puts a message before the
// model, or, for an assistant message without content, only takes a place.
// Nodes are shared by every snapshot that holds them and never change.
type Node struct {
	Seq  int64
	Type string // event type
	Data []byte // the event's data, canonical JSON, owned by the node
	Op   []byte // its surfaceOp, canonical JSON; nil when absent

	// A legacy tool result that replaces another takes over its id on import: the
	// stored one (identity, a JSON string token), else the one made from root.
	identity  []byte
	root      int64
	gen       uint8
	offloaded []int     // images of the message that are put away, by their place in it
	memo      []derived // messages by projection; see message
}

// Replacement is one replace that took effect.
type Replacement struct {
	Seq, Start, End int64
	ShadowedSeqs    []int64
}

// AppendJSON appends the replacement in the form of surface.json:
// {"seq":…,"start":…,"end":…,"shadowedSeqs":[…]}.
func (r *Replacement) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendInt(dst, r.Seq, 10)
	dst = append(dst, `,"start":`...)
	dst = strconv.AppendInt(dst, r.Start, 10)
	dst = append(dst, `,"end":`...)
	dst = strconv.AppendInt(dst, r.End, 10)
	dst = append(dst, `,"shadowedSeqs":`...)
	return append(appendSeqs(dst, r.ShadowedSeqs), '}')
}

func appendSeqs(dst []byte, seqs []int64) []byte {
	dst = append(dst, '[')
	for i, s := range seqs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, s, 10)
	}
	return append(dst, ']')
}

// A SurfaceFault names the row of SEMANTICS §3.3 that an event breaks.
type SurfaceFault uint8

const (
	FaultMarker   SurfaceFault = iota // an eligible event without surfaceOp
	FaultEligible                     // surfaceOp or sourceEventSeqs on an event that takes no part
	FaultOpShape                      // surfaceOp is neither "append" nor an exact replace object
	FaultRange                        // start or end not on the surface, or start after end by position
	FaultSources                      // sourceEventSeqs: not an array of seqs, a duplicate, or not earlier
	FaultEmpty                        // an empty sourceEventSeqs where none may stand
	FaultShadow                       // a shadowed node is not cited
	FaultRewrite                      // a tool result replaces something else than one tool result, or changes more than content
	FaultCited                        // sourceEventSeqs on an event whose sources are in it (from generation 2)
	FaultHead                         // the system prompt at the head is put or taken by what may not (from generation 3)
	FaultOffload                      // image/offload names no image of a message on the surface
	numSurfaceFaults
)

var surfaceFaultNames = [numSurfaceFaults]string{"marker", "eligible", "op", "range", "sources", "empty", "shadow", "rewrite", "cited", "head", "offload"}

// String is the short name of the fault: marker, eligible, op, range, sources,
// empty, shadow or rewrite.
func (f SurfaceFault) String() string {
	if f < numSurfaceFaults {
		return surfaceFaultNames[f]
	}
	return "fault " + strconv.Itoa(int(f))
}

// SurfaceFaults is a set of faults.
type SurfaceFaults uint16

// Has reports whether f is in the set.
func (s SurfaceFaults) Has(f SurfaceFault) bool { return s&(1<<f) != 0 }

// FaultSet returns the set of the given faults.
func FaultSet(faults ...SurfaceFault) (s SurfaceFaults) {
	for _, f := range faults {
		s |= 1 << f
	}
	return s
}

// RefusedBy returns the faults that a session of the given era refuses by
// itself, at append or when a log is loaded (SEMANTICS §3.3). Dates within an
// era count from the era's end, E4 and E6 excepted: an exact op is asked for
// from 07-14, in the middle of E4, and counts from E5.
func RefusedBy(era Era) SurfaceFaults {
	switch {
	case era < E2:
		return FaultSet(FaultRange)
	case era < E5:
		return FaultSet(FaultMarker, FaultRange)
	case era < E6:
		return FaultSet(FaultMarker, FaultEligible, FaultOpShape, FaultRange, FaultSources, FaultEmpty, FaultShadow)
	}
	return 1<<numSurfaceFaults - 1
}

// A SurfaceError is one breach of a surface rule.
type SurfaceError struct {
	Fault  SurfaceFault
	Seq    int64  // of the event
	Type   string // its type
	Detail string // what is wrong and what was expected; may quote the log
	Node   int64  // the seq the fault is about (the missing start, the uncited node, …); -1 when none
}

func (e *SurfaceError) Error() string {
	return fmt.Sprintf("seq %d: %s: %s", e.Seq, e.Type, e.Detail)
}

// Change is what applying one event did to the surface.
type Change uint8

const (
	Unchanged Change = iota // no marker, or a fault that keeps the event off the surface
	Appended
	Replaced
	Marked // messages that stand on it changed: images were put away
)

// Surface is the ordered list of message-producing events (SEMANTICS §3.1), kept
// up event by event. The zero value is the empty surface.
//
// An auditor keeps going where the harness refuses: an event with a fault is
// reported and then treated as the fold of the harness treats it when nothing
// stops it. Without a marker, with a range that is not on the surface or with an
// op that means nothing it stays off; any other fault changes nothing.
type Surface struct {
	nodes   []*Node
	shared  bool // nodes' array may be seen by a snapshot: replace must copy
	gen     int
	history []Replacement
	rooted  bool // the first event on it was a system prompt
	faults  []*SurfaceError
	sources []logfmt.SeqRange
	sorted  []logfmt.SeqRange
	// Lean keeps the data of tool results only, with which the surface rules compare
	// later events. It is for those who look at the faults and at no message.
	Lean bool
	// onReplace is told the first position that a replace changed.
	onReplace func(pos int)
}

// Nodes returns the surface as it is now, in order. The slice stays as it is
// when the surface goes on; taking it costs nothing.
func (s *Surface) Nodes() []*Node {
	s.shared = true
	return s.nodes[:len(s.nodes):len(s.nodes)]
}

// Len is the number of nodes.
func (s *Surface) Len() int { return len(s.nodes) }

// Generation counts the replaces that took effect.
func (s *Surface) Generation() int { return s.gen }

// Replacements lists the replaces that took effect, in log order.
func (s *Surface) Replacements() []Replacement { return s.history }

// Seqs appends the seqs of the surface to dst.
func (s *Surface) Seqs(dst []int64) []int64 {
	for _, n := range s.nodes {
		dst = append(dst, n.Seq)
	}
	return dst
}

// AppendJSON appends {"nodes":[…],"replacements":[…]}.
func (s *Surface) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"nodes":`...)
	dst = appendSeqs(dst, s.Seqs(nil))
	dst = append(dst, `,"replacements":[`...)
	for i := range s.history {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = s.history[i].AppendJSON(dst)
	}
	return append(dst, `]}`...)
}

// Eligible reports whether an event of that type belongs on the surface of a
// log written by the given builds. Where they disagree, it does (SEMANTICS §1.1).
func Eligible(typ string, r Eras) bool {
	switch typ {
	case logfmt.TypeUserMessage, logfmt.TypeAssistantMessage, logfmt.TypeToolResult:
		return true
	case logfmt.TypeContextMessage:
		return r.Min <= E6
	case logfmt.TypeSteeringMessage:
		return r.Min <= E9
	}
	return false
}

// message reports whether events of that type ever stood on a surface.
func messageType(typ string) bool { return Eligible(typ, Eras{}) }

// Apply checks the event against the surface rules and takes it up. The faults
// stand in the order in which the harness looks for them and are valid until the
// next call; era tells which types are eligible.
func (s *Surface) Apply(e *logfmt.Event, era Eras) (Change, []*SurfaceError) {
	c, i, j := s.judge(e, era)
	switch c {
	case Appended:
		if len(s.nodes) == 0 && s.gen == 0 {
			s.rooted = e.Type == logfmt.TypeSystemMessage
		}
		s.nodes = append(s.nodes, s.node(e))
	case Replaced:
		n := s.node(e)
		if e.Type == logfmt.TypeToolResult {
			// A rewritten result keeps the id of the one it replaces (SEMANTICS §10.4).
			first := s.nodes[i]
			n.root, n.identity = first.root, first.identity
			if id := storedID(first); id != nil {
				n.identity = bytes.Clone(id)
			}
		}
		s.replace(n, i, j)
	}
	return c, s.faults
}

// Check is Apply without taking the event up: what would happen, and which
// rules it breaks.
func (s *Surface) Check(e *logfmt.Event, era Eras) (Change, []*SurfaceError) {
	c, _, _ := s.judge(e, era)
	return c, s.faults
}

// judge finds what the event would do. Of a replace, i and j are the ends of the
// range, by position.
func (s *Surface) judge(e *logfmt.Event, era Eras) (c Change, i, j int) {
	s.faults = nil
	if e.Op == nil && e.Sources == nil && !takesPart(e) {
		return Unchanged, 0, 0
	}
	format := formatOf(e.Gen)
	if !eligible(e, era) {
		if e.Op != nil {
			s.fault(e, FaultEligible, -1, "this type takes no place on the surface and cannot carry surfaceOp")
		}
		if e.Sources != nil {
			s.fault(e, FaultEligible, -1, "this type takes no place on the surface and cannot carry sourceEventSeqs")
		}
		if !takesPart(e) {
			return Unchanged, 0, 0
		}
	}
	if e.Sources != nil && format.settled && e.Type == logfmt.TypeAssistantMessage {
		s.fault(e, FaultCited, -1, "an assistant/message carries its chunks and cites nothing")
	}
	if e.Op == nil {
		if eligible(e, era) {
			s.fault(e, FaultMarker, -1, "a message without surfaceOp is not seen by the model")
		}
		s.checkSources(e)
		return Unchanged, 0, 0
	}
	start, end, kind := readOp(e.Op, format)
	switch kind {
	case opAppend:
		s.checkSources(e)
		if format.rooted && e.Type == logfmt.TypeSystemMessage && !s.rooted && (len(s.nodes) > 0 || s.gen > 0) {
			s.fault(e, FaultHead, s.nodes[0].Seq, "a system/message joins a surface that did not begin with one")
		}
		return Appended, 0, 0
	case opBad:
		s.fault(e, FaultOpShape, -1, `surfaceOp is neither "append" nor `+format.replaceForm())
		s.checkSources(e)
		return Unchanged, 0, 0
	case opLoose:
		s.fault(e, FaultOpShape, -1, "surfaceOp is not exactly "+format.replaceForm())
	}
	i, j = s.index(start), s.index(end)
	switch {
	case i < 0:
		s.fault(e, FaultRange, start, "replace starts at seq "+itoa(start)+", which is not on the surface")
	case j < 0:
		s.fault(e, FaultRange, end, "replace ends at seq "+itoa(end)+", which is not on the surface")
	case i > j:
		s.fault(e, FaultRange, start, fmt.Sprintf("replace starts at seq %d (position %d), after its end seq %d (position %d)", start, i, end, j))
	}
	ok := s.checkSources(e)
	if i < 0 || j < 0 || i > j {
		return Unchanged, 0, 0
	}
	if ok {
		s.checkShadow(e, s.nodes[i:j+1])
	}
	if format.rooted {
		s.checkHead(e, i, j)
	}
	if e.Type == logfmt.TypeToolResult {
		s.checkRewrite(e, s.nodes[i:j+1])
	}
	return Replaced, i, j
}

func (s *Surface) fault(e *logfmt.Event, f SurfaceFault, node int64, detail string) {
	s.faults = append(s.faults, &SurfaceError{Fault: f, Seq: e.Seq, Type: e.Type, Detail: detail, Node: node})
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func (s *Surface) node(e *logfmt.Event) *Node {
	if s.Lean && e.Type != logfmt.TypeToolResult {
		return &Node{Seq: e.Seq, Type: e.Type, root: e.Seq, gen: e.Gen}
	}
	return newNode(e)
}

func newNode(e *logfmt.Event) *Node {
	buf := make([]byte, 0, len(e.Data)+len(e.Op))
	buf = append(buf, e.Data...)
	buf = append(buf, e.Op...)
	n := &Node{Seq: e.Seq, Type: e.Type, root: e.Seq, gen: e.Gen, Data: buf[:len(e.Data):len(e.Data)]}
	if e.Op != nil {
		n.Op = buf[len(e.Data):]
	}
	return n
}

// event is the node as the event it came from, as far as derivation looks at it.
func (n *Node) event() *logfmt.Event {
	return &logfmt.Event{Type: n.Type, Seq: n.Seq, Data: n.Data, Op: n.Op, Gen: n.gen}
}

func (s *Surface) index(seq int64) int {
	// Replaced ranges mostly lie near the ends: compaction starts at the front,
	// pruning works on recent results. Neither end is favoured.
	for i, n := range s.nodes {
		if n.Seq == seq {
			return i
		}
	}
	return -1
}

func (s *Surface) replace(n *Node, i, j int) {
	shadowed := make([]int64, 0, j-i+1)
	for _, m := range s.nodes[i : j+1] {
		shadowed = append(shadowed, m.Seq)
	}
	start, end := s.nodes[i].Seq, s.nodes[j].Seq
	if s.shared {
		nodes := make([]*Node, 0, len(s.nodes)+16)
		nodes = append(nodes, s.nodes[:i]...)
		nodes = append(nodes, n)
		s.nodes = append(nodes, s.nodes[j+1:]...)
		s.shared = false
	} else {
		s.nodes[i] = n
		s.nodes = slices.Delete(s.nodes, i+1, j+1)
	}
	s.gen++
	s.history = append(s.history, Replacement{Seq: n.Seq, Start: start, End: end, ShadowedSeqs: shadowed})
	if s.onReplace != nil {
		s.onReplace(i)
	}
}

type opKind uint8

const (
	opAppend opKind = iota
	opReplace
	opLoose // not exact, but with a start and an end that an old fold would use
	opBad
)

// readOp reads a surfaceOp. Up to E5 the fold took anything but "append" for a
// replace and looked its start and end up (SEMANTICS §3.3), which only numbers
// can survive.
func readOp(op []byte, f *format) (start, end int64, kind opKind) {
	if jsjson.StrEq(op, "append") {
		return 0, 0, opAppend
	}
	if jsjson.KindOf(op) != jsjson.Object {
		return 0, 0, opBad
	}
	start, ok1 := jsjson.SafeInt(jsjson.Get(op, f.first))
	end, ok2 := jsjson.SafeInt(jsjson.Get(op, f.last))
	if !ok1 || !ok2 {
		return 0, 0, opBad
	}
	if jsjson.Len(op) != 3 || start < 0 || end < 0 || !jsjson.StrEq(jsjson.Get(op, "op"), "replace") {
		return start, end, opLoose
	}
	return start, end, opReplace
}

// checkSources reads sourceEventSeqs into s.sources and says whether citations
// can be looked up there.
func (s *Surface) checkSources(e *logfmt.Event) bool {
	s.sources = nil
	if e.Sources == nil {
		return true
	}
	if jsjson.KindOf(e.Sources) != jsjson.Array {
		s.fault(e, FaultSources, -1, "sourceEventSeqs is not an array")
		return false
	}
	var ok bool
	if s.sources, ok = e.SourceRuns(); !ok {
		s.fault(e, FaultSources, -1, "sourceEventSeqs holds something else than non-negative integers")
		return false
	}
	if len(s.sources) == 0 {
		if e.Type != logfmt.TypeAssistantMessage {
			s.fault(e, FaultEmpty, -1, "sourceEventSeqs is empty; only an assistant/message may cite an empty stream")
		}
		return true
	}
	rising := true
	last := int64(-1)
	for _, r := range s.sources {
		rising = rising && r.First > last
		last = r.Last
	}
	s.sorted = s.sources
	if !rising {
		if bytes.IndexByte(e.Sources[1:], '[') >= 0 {
			s.fault(e, FaultSources, -1, "sourceEventSeqs holds pairs and does not rise")
		}
		s.sorted = slices.Clone(s.sources)
		slices.SortFunc(s.sorted, func(a, b logfmt.SeqRange) int {
			return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
		})
		for k := 1; k < len(s.sorted); k++ {
			if a, b := s.sorted[k-1], s.sorted[k]; b.First <= a.Last {
				s.fault(e, FaultSources, b.First, "sourceEventSeqs cites seq "+itoa(b.First)+" twice")
				break
			}
		}
	}
	top := int64(-1)
	for _, r := range s.sorted {
		top = max(top, r.Last)
	}
	if top >= e.Seq {
		s.fault(e, FaultSources, top, "sourceEventSeqs cites seq "+itoa(top)+", which is not an earlier event")
	}
	return true
}

// cites reports whether sourceEventSeqs, as checkSources read it, lists seq.
func (s *Surface) cites(seq int64) bool {
	if len(s.sources) == 0 {
		return false
	}
	i, found := slices.BinarySearchFunc(s.sorted, seq, func(r logfmt.SeqRange, n int64) int { return cmp.Compare(r.First, n) })
	return found || i > 0 && s.sorted[i-1].Last >= seq
}

func (s *Surface) checkShadow(e *logfmt.Event, shadowed []*Node) {
	for _, n := range shadowed {
		if s.cites(n.Seq) {
			continue
		}
		s.fault(e, FaultShadow, n.Seq, "sourceEventSeqs does not cite the replaced seq "+itoa(n.Seq))
		return
	}
}

// checkRewrite holds a tool result that replaces to SEMANTICS §3.3: one tool
// result for another, with only its content changed.
func (s *Surface) checkRewrite(e *logfmt.Event, shadowed []*Node) {
	if len(shadowed) != 1 {
		s.fault(e, FaultRewrite, shadowed[0].Seq, fmt.Sprintf("a tool result replaces %d nodes; it may replace one tool result", len(shadowed)))
		return
	}
	old := shadowed[0]
	if old.Type != logfmt.TypeToolResult {
		s.fault(e, FaultRewrite, old.Seq, "a tool result replaces seq "+itoa(old.Seq)+", which is no tool result")
		return
	}
	if diff := rewriteDiff(old, e.Data, formatOf(e.Gen).bare); diff != "" {
		s.fault(e, FaultRewrite, old.Seq, "a tool result that replaces seq "+itoa(old.Seq)+" changes "+diff+"; only content may change")
	}
}

// rewriteDiff names the first member other than the content that two tool
// results differ in, "" when there is none. A result of an older dialect that an
// E9+ build had upgraded is compared by what the upgrade makes of it
// (SEMANTICS §10.4).
func rewriteDiff(old *Node, data []byte, bare bool) string {
	a, b := old.Data, data
	am, bm := jsjson.Get(a, "message"), jsjson.Get(b, "message")
	if am == nil && bm != nil {
		return upgradedDiff(old, data, bm)
	}
	skip := "content"
	if bm != nil {
		skip = "message"
	}
	if d := objectDiff(a, b, skip, ""); d != "" || bm == nil {
		return d
	}
	if d := objectDiff(am, bm, "content", "message."); d != "" || bare {
		return d
	}
	ac, bc := jsjson.Get(am, "content"), jsjson.Get(bm, "content")
	if jsjson.Len(ac) != jsjson.Len(bc) {
		return "message.content"
	}
	ab, bb := collect(ac), collect(bc)
	for i := range bb {
		if i == 0 && jsjson.KindOf(bb[0]) == jsjson.Object && i < len(ab) {
			if d := objectDiff(ab[0], bb[0], "content", "message.content[0]."); d != "" {
				return d
			}
			continue
		}
		if i >= len(ab) || !jsjson.Equal(ab[i], bb[i]) {
			return "message.content"
		}
	}
	return ""
}

func collect(array []byte) (out [][]byte) {
	if jsjson.KindOf(array) != jsjson.Array {
		return nil
	}
	for v := range jsjson.Elements(array) {
		out = append(out, v)
	}
	return out
}

// objectDiff names the first member, skip left out, in which two objects differ.
func objectDiff(a, b []byte, skip, path string) string {
	if jsjson.KindOf(a) != jsjson.Object || jsjson.KindOf(b) != jsjson.Object {
		if jsjson.Equal(a, b) {
			return ""
		}
		return strings.TrimSuffix(path, ".") + " as a whole"
	}
	for key, val := range jsjson.Members(b) {
		k, _ := jsjson.Str(key)
		if k != skip && !jsjson.Equal(jsjson.Get(a, k), val) {
			return path + k
		}
	}
	for key := range jsjson.Members(a) {
		if k, _ := jsjson.Str(key); jsjson.Get(b, k) == nil {
			return path + k
		}
	}
	return ""
}

func upgradedDiff(old *Node, data, message []byte) string {
	a := old.Data
	for _, k := range []string{"turn", "step", "error", "meta"} {
		if !jsjson.Equal(jsjson.Get(a, k), jsjson.Get(data, k)) {
			return k
		}
	}
	call := jsjson.Get(a, "callId")
	if !jsjson.Equal(jsjson.Get(jsjson.Get(message, "source"), "callId"), call) {
		return "message.source.callId"
	}
	for i, block := range collect(jsjson.Get(message, "content")) {
		switch {
		case i > 0:
			return "message.content"
		case !jsjson.Equal(jsjson.Get(block, "toolCallId"), call):
			return "message.content[0].toolCallId"
		case !jsjson.Equal(jsjson.Get(block, "isError"), jsjson.Get(a, "isError")):
			return "message.content[0].isError"
		}
	}
	id, _ := jsjson.Str(jsjson.Get(message, "id"))
	if !strings.HasPrefix(id, "legacy-message:") || !strings.HasSuffix(id, ":"+itoa(old.root)) {
		return "message.id"
	}
	return ""
}

// storedID is the JSON string token of the message id that the node's own bytes
// carry; nil for a legacy shape.
func storedID(n *Node) []byte {
	obj := n.Data
	if n.Type != logfmt.TypeUserMessage {
		obj = jsjson.Get(obj, "message")
	}
	if id := jsjson.Get(obj, "id"); jsjson.KindOf(id) == jsjson.String {
		return id
	}
	return nil
}
