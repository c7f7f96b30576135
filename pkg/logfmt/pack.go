package logfmt

import "github.com/dsh-audit/dsh-audit/internal/jsjson"

// minRun is the shortest run that is written as a row (PHYSICAL §4.2).
const minRun = 3

// A Packer writes events as storage records, runs of chunk deltas as packed rows
// (PHYSICAL §4.1 to §4.3). A run never crosses the end of a batch, which Flush
// marks. Packing is no canonical form: what batches a log had decides its rows.
//
// The zero value is ready.
type Packer struct {
	lines []byte // the events of the open run, each with its line feed
	ends  []int  // end of each event in lines
	last  delta  // the last event of the run; its slices are parts of lines
	base  int    // where the last event starts in lines
	dt    []int64
	time0 int64
	seq0  int64

	ev    Event
	env   envelope
	names nameCache
}

// delta is the identity of a chunk delta; slices are parts of its line.
type delta struct {
	tag                         string
	seq, time                   int64
	turn, step, index, id, name []byte
	text                        []byte
}

// Add appends to dst the records that event, the JSON of the next event, lets it
// write. The event must be canonical JSON and without line feed.
func (p *Packer) Add(dst, event []byte) []byte {
	d, ok := p.delta(event)
	if !ok {
		dst = p.Flush(dst)
		return append(append(dst, event...), '\n')
	}
	if len(p.ends) > 0 && !p.last.extends(&d) {
		dst = p.Flush(dst)
	}
	if len(p.ends) == 0 {
		p.seq0, p.time0 = d.seq, d.time
	} else {
		p.dt = append(p.dt, d.time-p.last.time)
	}
	p.base = len(p.lines)
	p.lines = append(append(p.lines, event...), '\n')
	p.ends = append(p.ends, len(p.lines))
	p.last, _ = p.delta(p.lines[p.base : len(p.lines)-1])
	return dst
}

// Flush ends the batch: it appends what is left of the open run.
func (p *Packer) Flush(dst []byte) []byte {
	if len(p.ends) < minRun {
		dst = append(dst, p.lines...)
	} else {
		dst = p.row(dst)
	}
	p.lines, p.ends, p.dt = p.lines[:0], p.ends[:0], p.dt[:0]
	return dst
}

func (p *Packer) row(dst []byte) []byte {
	d := &p.last
	dst = append(append(dst, `{"type":"`...), d.tag...)
	dst = append(dst, `","seq0":`...)
	dst = appendInt(dst, p.seq0)
	dst = append(dst, `,"time0":`...)
	dst = appendInt(dst, p.time0)
	dst = append(append(dst, `,"data":{"turn":`...), d.turn...)
	dst = append(append(dst, `,"step":`...), d.step...)
	dst = append(append(dst, `,"index":`...), d.index...)
	dst = append(dst, `,"dt":[`...)
	for i, t := range p.dt {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendInt(dst, t)
	}
	dst = append(dst, ']')
	key := `,"texts":[`
	if d.tag == rowToolCall {
		dst = append(append(dst, `,"id":`...), d.id...)
		if d.name != nil {
			dst = append(append(dst, `,"name":`...), d.name...)
		}
		key = `,"args":[`
	}
	dst = append(dst, key...)
	start := 0
	for i, end := range p.ends {
		m, _ := p.delta(p.lines[start : end-1])
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, m.text...)
		start = end
	}
	return append(dst, "]}}\n"...)
}

// extends reports whether n continues the run that d ends.
func (d *delta) extends(n *delta) bool {
	gap := n.time - d.time
	return d.tag == n.tag && n.seq == d.seq+1 && gap <= maxSafe && gap >= -maxSafe &&
		string(d.turn) == string(n.turn) && string(d.step) == string(n.step) &&
		string(d.index) == string(n.index) && string(d.id) == string(n.id) &&
		(d.name == nil) == (n.name == nil) && string(d.name) == string(n.name)
}

// delta reads an event that may be packed. It reports false for any other.
func (p *Packer) delta(event []byte) (delta, bool) {
	e, env := &p.ev, &p.env
	parseEnvelope(event, e, env, &p.names)
	if env.shape != shapeEvent || e.Type != TypeAssistantChunk || e.Fault&^FaultTimeNeg != 0 ||
		env.members() != 4 || len(e.Data) == 0 || e.Data[0] != '{' {
		return delta{}, false
	}
	d := delta{seq: e.Seq, time: e.Time}
	var chunk []byte
	n := 0
	for i := 1; i < len(e.Data) && e.Data[i] == '"'; i++ {
		j := jsjson.Skip(e.Data, i)
		key := e.Data[i:j]
		i = jsjson.Skip(e.Data, j+1)
		val := e.Data[j+1 : i]
		n++
		switch string(key) {
		case `"turn"`:
			d.turn = val
		case `"step"`:
			d.step = val
		case `"chunk"`:
			chunk = val
		}
	}
	if n != 3 || !isNumber(d.turn, false) || !isNumber(d.step, false) || len(chunk) == 0 || chunk[0] != '{' {
		return delta{}, false
	}
	var kind, text, args []byte
	n = 0
	for i := 1; i < len(chunk) && chunk[i] == '"'; i++ {
		j := jsjson.Skip(chunk, i)
		key := chunk[i:j]
		i = jsjson.Skip(chunk, j+1)
		val := chunk[j+1 : i]
		n++
		switch string(key) {
		case `"type"`:
			kind = val
		case `"index"`:
			d.index = val
		case `"text"`:
			text = val
		case `"id"`:
			d.id = val
		case `"name"`:
			d.name = val
		case `"argumentsDelta"`:
			args = val
		}
	}
	if !isNumber(d.index, false) {
		return delta{}, false
	}
	switch string(kind) {
	case `"text-delta"`:
		d.tag, d.text = rowText, text
	case `"reasoning-delta"`:
		d.tag, d.text = rowReasoning, text
	case `"tool-call-delta"`:
		d.tag, d.text = rowToolCall, args
		want := 4
		if d.name != nil {
			want = 5
		}
		ok := n == want && isString(d.id) && isString(args) && (d.name == nil || isString(d.name))
		return d, ok
	}
	return d, d.tag != "" && n == 3 && isString(text)
}

func isString(v []byte) bool { return len(v) > 0 && v[0] == '"' }

// AppendPacked appends the storage records of one batch of events to dst, each
// ended by a line feed. The events must be canonical JSON.
func AppendPacked(dst []byte, batch ...[]byte) []byte {
	var p Packer
	for _, e := range batch {
		dst = p.Add(dst, e)
	}
	return p.Flush(dst)
}
