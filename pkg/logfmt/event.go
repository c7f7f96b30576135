package logfmt

import (
	"bytes"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// maxSafe is the largest integer that a double holds exactly together with its
// neighbours: Number.MAX_SAFE_INTEGER.
const maxSafe = 1<<53 - 1

// shape is what one stored JSON value is, seen as a record.
type shape byte

const (
	shapeEvent shape = iota // an object that is not a row
	shapeRow                // an object whose type is a row tag
	shapeNull               // the value null, on which the harness stops
	shapeValue              // any other value: it has no seq
)

// envelope is the result of one pass over the top-level members of a record.
// All slices are parts of the canonical record, nil when absent.
type envelope struct {
	shape shape
	field [numFields][]byte
	// others counts the members that are none of these.
	others int
	typ    string
}

// The members of envelopes, the live writer's order first.
const (
	fType = iota
	fSeq
	fTime
	fData
	fSources
	fOp
	fIgnorable
	fSeq0
	fTime0
	numFields
)

var fieldNames = []string{
	fType: "type", fSeq: "seq", fTime: "time", fData: "data", fSources: "sourceEventSeqs",
	fOp: "surfaceOp", fIgnorable: "ignorable", fSeq0: "seq0", fTime0: "time0",
}

// members counts the members of the record.
func (env *envelope) members() int {
	n := env.others
	for _, v := range env.field {
		if v != nil {
			n++
		}
	}
	return n
}

// parseEnvelope reads canonical bytes b into e and env. It keeps no copy.
func parseEnvelope(b []byte, e *Event, env *envelope, names *nameCache) {
	env.others = jsjson.Fields(b, env.field[:], fieldNames)
	env.read(b, e, names, generations[0])
}

// read judges the members that were looked up in canonical bytes b.
func (env *envelope) read(b []byte, e *Event, names *nameCache, g *Generation) {
	e.Type, e.Seq, e.Time = "", -1, 0
	e.Data, e.Op, e.Sources, e.Ignorable, e.Fault = nil, nil, nil, false, 0
	e.Mark = PieceMark{}
	e.Gen = uint8(g.Version)
	env.shape, env.typ = shapeEvent, ""
	if env.others < 0 { // no object
		env.shape = shapeValue
		if string(b) == "null" {
			env.shape = shapeNull
		}
		return
	}
	e.Type = names.intern(env.field[fType])
	switch e.Type {
	case rowText, rowReasoning, rowToolCall:
		env.shape, env.typ = shapeRow, e.Type
		return
	}
	if t := env.field[fType]; len(t) == 0 || t[0] != '"' {
		e.Fault |= FaultType
	}
	if n, ok := safeInt(env.field[fSeq]); ok && n >= 0 {
		e.Seq = n
	} else {
		e.Fault |= FaultSeq
	}
	if n, ok := safeInt(env.field[fTime]); ok {
		e.Time = n
		if n < 0 {
			e.Fault |= FaultTimeNeg
		}
	} else {
		e.Fault |= FaultTime
	}
	if e.Data = env.field[fData]; e.Data == nil {
		e.Fault |= FaultNoData
	}
	if e.Type == TypeAssistantChunk {
		e.Mark = readPiece(e.Data)
	}
	if env.others > 0 || env.field[fSeq0] != nil || env.field[fTime0] != nil {
		e.Fault |= FaultExtraKey
	}
	if v := env.field[fIgnorable]; v != nil {
		if string(v) == "true" {
			e.Ignorable = true
		} else {
			e.Fault |= FaultIgnorable
		}
	}
	if e.Op = env.field[fOp]; e.Op != nil {
		if _, ok := parseOp(e.Op, g); !ok {
			e.Fault |= FaultOp
		}
	}
	if e.Sources = env.field[fSources]; e.Sources != nil {
		e.readSources()
	}
}

// safeInt reads an integer of at most 2^53-1 in magnitude. Plain decimals are
// read here, everything else by jsjson.
func safeInt(v []byte) (int64, bool) {
	neg, d := false, v
	if len(d) > 0 && d[0] == '-' {
		neg, d = true, d[1:]
	}
	if len(d) == 0 || len(d) > 15 {
		if len(v) == 0 {
			return 0, false
		}
		return jsjson.SafeInt(v)
	}
	var n int64
	for _, c := range d {
		if c < '0' || c > '9' {
			return jsjson.SafeInt(v)
		}
		n = n*10 + int64(c-'0')
	}
	if neg {
		n = -n
	}
	return n, true
}

// parseOp decodes a surfaceOp: "append", or an object of exactly op and the two
// ends of the range with op "replace" (PHYSICAL §2.3, FORMATS §6.2).
func parseOp(v []byte, g *Generation) (ReplaceOp, bool) {
	if string(v) == `"append"` {
		return ReplaceOp{Append: true}, true
	}
	var op ReplaceOp
	if len(v) == 0 || v[0] != '{' {
		return op, false
	}
	members, seen := 0, 0
	for i := 1; i < len(v) && v[i] == '"'; i++ {
		j := jsjson.Skip(v, i)
		key := v[i:j]
		i = jsjson.Skip(v, j+1)
		val := v[j+1 : i]
		members++
		n, ok := safeInt(val)
		ok = ok && n >= 0
		switch key = key[1 : len(key)-1]; string(key) {
		case "op":
			if string(val) == `"replace"` {
				seen |= 1
			}
		case g.First:
			if op.Start = n; ok {
				seen |= 2
			}
		case g.Last:
			if op.End = n; ok {
				seen |= 4
			}
		}
	}
	if members != 3 || seen != 7 {
		return ReplaceOp{}, false
	}
	return op, true
}

// readSources notes the runs of Sources, which reading has just set, or what is
// wrong with it.
func (e *Event) readSources() {
	var fault EnvelopeFault
	e.Runs.list, fault = appendRuns(e.Runs.list[:0], e.Sources)
	if e.Runs.of = nil; len(e.Sources) > 0 {
		e.Runs.of, e.Runs.size = &e.Sources[0], len(e.Sources)
	}
	e.Fault |= fault
}

// checkSources says whether v is a list of seqs, a list with [first,last] pairs in
// it, or neither.
func checkSources(v []byte) EnvelopeFault {
	_, fault := appendRuns(nil, v)
	return fault
}

// appendRuns reads sourceEventSeqs. Seqs that follow one another are joined.
func appendRuns(dst []SeqRange, v []byte) ([]SeqRange, EnvelopeFault) {
	none := len(dst)
	if len(v) == 0 || v[0] != '[' {
		return dst, FaultSources
	}
	var fault EnvelopeFault
	for i := 1; i < len(v) && v[i] != ']'; i++ {
		// Nearly all are the seqs of chunks, one behind the other.
		n, j := plainCount(v, i)
		if n < 0 || j == len(v) || v[j] != ',' && v[j] != ']' {
			j = jsjson.Skip(v, i)
			el := v[i:j]
			if el[0] == '[' {
				a, b, ok := readRun(el)
				if !ok {
					return dst[:none], FaultSources
				}
				fault, i = FaultSourceRuns, j
				dst = append(dst, SeqRange{a, b})
				continue
			}
			var ok bool
			if n, ok = safeInt(el); !ok || n < 0 {
				return dst[:none], FaultSources
			}
		}
		i = j
		if k := len(dst) - 1; k >= none && dst[k].Last == n-1 {
			dst[k].Last = n
		} else {
			dst = append(dst, SeqRange{n, n})
		}
	}
	return dst, fault
}

// Replace decodes the surfaceOp of the event. It reports false when there is
// none, or when it is neither "append" nor an exact replace object.
func (e *Event) Replace() (ReplaceOp, bool) { return parseOp(e.Op, e.format()) }

func (e *Event) format() *Generation {
	if g := GenerationOf(int64(e.Gen)); g != nil {
		return g
	}
	return generations[0]
}

// SourceSeqs appends the seqs of sourceEventSeqs to dst, pairs expanded. It
// reports false when there is no such list, when it is not a list of seqs, or when
// its pairs claim more seqs than a list is expanded to; see SourceRanges.
func (e *Event) SourceSeqs(dst []int64) ([]int64, bool) {
	runs, ok := e.SourceRanges(nil)
	if !ok {
		return dst, false
	}
	total := int64(0)
	for _, r := range runs {
		if total += r.Last - r.First + 1; r.Last > r.First && total > maxExpanded {
			return dst, false
		}
	}
	for _, r := range runs {
		for s := r.First; s <= r.Last; s++ {
			dst = append(dst, s)
		}
	}
	return dst, true
}

// maxExpanded is how many sources a list with pairs may expand to.
const maxExpanded = 1 << 22

// Clone returns a copy that stays valid. The parts that lie inside JSON share its
// bytes.
func (e *Event) Clone() *Event {
	c := *e
	c.Runs = KnownRuns{}
	c.JSON = bytes.Clone(e.JSON)
	if c.Line = c.JSON; !bytes.Equal(e.Line, e.JSON) {
		c.Line = bytes.Clone(e.Line)
	}
	var field [numFields][]byte
	jsjson.Fields(c.JSON, field[:], fieldNames)
	part := func(own, old []byte) []byte {
		if old == nil || bytes.Equal(own, old) {
			return own
		}
		return bytes.Clone(old)
	}
	c.Data = part(field[fData], e.Data)
	c.Op = part(field[fOp], e.Op)
	c.Sources = part(field[fSources], e.Sources)
	return &c
}

// AppendEvent appends the JSON of an event in the key order of the live writer:
// type, seq, time, data, sourceEventSeqs, surfaceOp, ignorable (PHYSICAL §2.3).
// The slices of e must be canonical; nil ones are left out.
func AppendEvent(dst []byte, e *Event) []byte {
	dst = append(dst, `{"type":`...)
	dst = jsjson.AppendQuote(dst, e.Type)
	dst = append(dst, `,"seq":`...)
	dst = appendInt(dst, e.Seq)
	dst = append(dst, `,"time":`...)
	dst = appendInt(dst, e.Time)
	if e.Data != nil {
		dst = append(append(dst, `,"data":`...), e.Data...)
	}
	if e.Sources != nil {
		dst = append(append(dst, `,"sourceEventSeqs":`...), e.Sources...)
	}
	if e.Op != nil {
		dst = append(append(dst, `,"surfaceOp":`...), e.Op...)
	}
	if e.Ignorable {
		dst = append(dst, `,"ignorable":true`...)
	}
	return append(dst, '}')
}

// nameCache interns event types: known ones are constants, a limited number of
// others is remembered, so that a type costs no allocation per event.
type nameCache map[string]string

func (c *nameCache) intern(tok []byte) string {
	if s := internType(tok); s != "" {
		return s
	}
	if len(tok) < 2 || tok[0] != '"' {
		return ""
	}
	if s, ok := (*c)[string(tok)]; ok {
		return s
	}
	s, _ := jsjson.Str(tok)
	if *c == nil {
		*c = make(nameCache)
	}
	if len(*c) < 256 {
		(*c)[string(tok)] = s
	}
	return s
}
