package logfmt

import (
	"fmt"
	"strconv"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

// row is a decoded packed row: a run of chunk deltas that share everything but
// seq, time and text (PHYSICAL §4). Its slices are parts of the record.
type row struct {
	tag     string
	stored  bool // a row of a database, which has limits and words of its own
	seq0    int64
	time0   int64
	turn    []byte
	step    []byte
	index   []byte
	id      []byte // of a tool call
	name    []byte // of a tool call, nil when absent
	dt      []byte // the array
	texts   []byte // the array: texts or args
	members int

	ends []int   // where each string ends in texts
	gaps []int64 // dt, decoded
	end  int64   // time of the last member
	head []byte  // the data of a member up to its text

	falls bool // a member has an earlier time than the one before it

	// The walk over the members.
	at    int // members already expanded
	time  int64
	piece PieceMark // of the first member
	json  memberJSON
}

// memberJSON is where the parts of the current member stand in its JSON, of which
// the next one has most.
type memberJSON struct {
	seqEnd, data, text int // ends of the seq, starts of data and text
}

// A rowError says which check of PHYSICAL §4.4 a row fails.
type rowError struct{ tag, why string }

func (e *rowError) Error() string { return "malformed " + e.tag + " storage row: " + e.why }

// decode fills r from the envelope of a record whose type is a row tag, making
// the checks of PHYSICAL §4.4 in their order. With overflow the record held a
// number beyond the doubles, which is a number to the harness although it is
// written back as null.
func (r *row) decode(env *envelope, overflow bool) error {
	r.reset(env.typ)
	bad := func(why string) error { return &rowError{env.typ, why} }
	if env.members() != 4 || env.field[fSeq0] == nil || env.field[fTime0] == nil || env.field[fData] == nil {
		return bad("envelope must be exactly {type, seq0, time0, data}")
	}
	var ok bool
	if r.seq0, ok = safeInt(env.field[fSeq0]); !ok || r.seq0 < 0 {
		return bad("seq0 must be a non-negative safe integer")
	}
	if r.time0, ok = safeInt(env.field[fTime0]); !ok {
		return bad("time0 must be a safe integer")
	}
	return r.decodeData(env.field[fData], overflow)
}

// decodeData reads the data of a row; seq0, time0 and tag are set. It is the
// part that SQLite rows share.
func (r *row) decodeData(data []byte, overflow bool) error {
	bad := func(why, stored string) error {
		if r.stored && stored != "" {
			why = stored
		}
		return &rowError{r.tag, why}
	}
	if len(data) == 0 || data[0] != '{' {
		return bad("data must be an object", "")
	}
	tool := r.tag == rowToolCall
	payload := "texts"
	if tool {
		payload = "args"
	}
	names := rowFields
	if tool {
		names = toolFields
	}
	var field [7][]byte
	others := jsjson.Fields(data, field[:], names)
	r.turn, r.step, r.index, r.dt = field[0], field[1], field[2], field[3]
	if tool {
		r.id, r.name, r.texts = field[4], field[5], field[6]
	} else {
		r.texts = field[4]
	}
	all := r.turn != nil && r.step != nil && r.index != nil && r.dt != nil && r.texts != nil && others == 0
	if tool {
		if !all || r.id == nil {
			return bad("data must be exactly {turn, step, index, id, name?, dt, args}", "invalid tool-call data fields")
		}
		if r.id[0] != '"' || r.name != nil && r.name[0] != '"' {
			return bad("id (and name when present) must be strings", "id and optional name must be strings")
		}
	} else if !all {
		return bad("data must be exactly {turn, step, index, dt, texts}", "invalid text data fields")
	}
	if !isNumber(r.turn, overflow) || !isNumber(r.step, overflow) || !isNumber(r.index, overflow) {
		return bad("turn/step/index must be numbers", "")
	}

	if r.texts[0] == '[' {
		for i := 1; i < len(r.texts) && r.texts[i] != ']'; i++ {
			if r.texts[i] != '"' {
				r.ends = r.ends[:0]
				break
			}
			i = jsjson.Skip(r.texts, i)
			r.ends = append(r.ends, i)
		}
	}
	r.members = len(r.ends)
	if r.members == 0 || r.stored && (r.members < minMembers || r.members > maxMembers) {
		return bad(payload+" must be a non-empty string array", payload+" must contain 3..1024 strings")
	}
	if r.dt[0] != '[' {
		return bad("dt must be an array of safe integers", "")
	}
	for i := 1; i < len(r.dt) && r.dt[i] != ']'; i++ {
		j := jsjson.Skip(r.dt, i)
		d, ok := safeInt(r.dt[i:j])
		if !ok {
			return bad("dt must be an array of safe integers", "")
		}
		r.gaps = append(r.gaps, d)
		i = j
	}
	if len(r.gaps) != r.members-1 {
		return bad(fmt.Sprintf("dt length %d does not match %d members", len(r.gaps), r.members), "dt length must match the member count")
	}
	// In doubles and from left to right, as the harness computes it: 2^53-1 with
	// two members passes.
	if last := float64(r.seq0) + float64(r.members) - 1; last > maxSafe {
		return bad("member seqs must stay safe integers", "member seqs exceed safe integers")
	}
	t := r.time0
	for _, d := range r.gaps {
		r.falls = r.falls || d < 0
		if t += d; t > maxSafe || t < -maxSafe {
			return bad("member times must stay safe integers", "member times exceed safe integers")
		}
	}
	r.end = t
	r.head = r.appendHead(r.head[:0])
	r.rewind()
	return nil
}

// rowFields and toolFields are the members of a row's data.
var (
	rowFields  = []string{"turn", "step", "index", "dt", "texts"}
	toolFields = []string{"turn", "step", "index", "dt", "id", "name", "args"}
)

// appendHead appends the start of every member's data.
func (r *row) appendHead(b []byte) []byte {
	b = append(append(b, `{"turn":`...), r.turn...)
	b = append(append(b, `,"step":`...), r.step...)
	switch r.tag {
	case rowText:
		b = append(b, `,"chunk":{"type":"text-delta","index":`...)
		return append(append(b, r.index...), `,"text":`...)
	case rowReasoning:
		b = append(b, `,"chunk":{"type":"reasoning-delta","index":`...)
		return append(append(b, r.index...), `,"text":`...)
	}
	b = append(b, `,"chunk":{"type":"tool-call-delta","index":`...)
	b = append(append(b, r.index...), `,"id":`...)
	b = append(b, r.id...)
	if r.name != nil {
		b = append(append(b, `,"name":`...), r.name...)
	}
	return append(b, `,"argumentsDelta":`...)
}

// reset makes r an empty row, keeping its buffers.
func (r *row) reset(tag string) {
	*r = row{tag: tag, ends: r.ends[:0], gaps: r.gaps[:0], head: r.head}
}

// isNumber reports whether canonical v is a number.
func isNumber(v []byte, overflow bool) bool {
	return len(v) > 0 && (v[0] == '-' || v[0] >= '0' && v[0] <= '9' || overflow && v[0] == 'n')
}

func (r *row) rewind() { r.at, r.time = 0, r.time0 }

// text is the JSON string of member i.
func (r *row) text(i int) []byte {
	start := 1
	if i > 0 {
		start = r.ends[i-1] + 1
	}
	return r.texts[start:r.ends[i]]
}

// next expands the next member into e, its JSON into buf, which it returns
// grown. The caller sees to it that a member is left.
func (r *row) next(e *Event, buf []byte) []byte {
	if r.at > 0 {
		r.time += r.gaps[r.at-1]
	}
	text := r.text(r.at)

	e.Type = TypeAssistantChunk
	e.Seq = r.seq0 + int64(r.at)
	e.Time = r.time
	e.Op, e.Sources, e.Ignorable, e.Fault = nil, nil, false, 0
	if e.Time < 0 {
		e.Fault = FaultTimeNeg
	}
	e.Pos.Member = r.at
	r.at++

	j := &r.json
	b := buf
	if r.at == 1 || r.gaps[r.at-2] != 0 || !increment(b[:j.seqEnd]) {
		b = append(b[:0], formSeq...)
		b = appendInt(b, e.Seq)
		j.seqEnd = len(b)
		b = append(b, formTime...)
		b = appendInt(b, e.Time)
		b = append(b, formData...)
		j.data = len(b)
		b = append(b, r.head...)
		j.text = len(b)
	}
	b = append(b[:j.text], text...)
	b = append(b, pieceEnd...)
	e.JSON = b
	e.Data = b[j.data : len(b)-1]
	if r.at == 1 {
		r.piece = readPiece(e.Data)
	}
	// Members differ in their text only, which is a string in each.
	if e.Mark = r.piece; r.piece.Size != 0 {
		e.Mark.Size = uint32(len(e.Data))
	}
	return b
}

// increment adds one to the decimal number at the end of b, unless that makes it
// longer.
func increment(b []byte) bool {
	i := len(b) - 1
	for i >= 0 && b[i] == '9' {
		i--
	}
	if i < 0 || b[i] < '0' || b[i] > '9' {
		return false
	}
	b[i]++
	for i++; i < len(b); i++ {
		b[i] = '0'
	}
	return true
}
