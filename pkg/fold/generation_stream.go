package fold

import (
	"fmt"
	"iter"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// A Chunk is one chunk of an embedded stream.
type Chunk struct {
	JSON   []byte // as data.chunk of an assistant/chunk event would hold it, canonical
	Time   int64  // when it came
	Record int    // the record of the stream that holds it, from 0
	Member int    // its place in a record of several, from 0; -1 in one of its own
}

// A StreamError is a record of an embedded stream that is none (FORMATS §2.7).
type StreamError struct {
	Record int    // from 0; -1 when the stream itself is meant
	Path   string // within the record, e.g. "dt"
	Want   string
	Got    string
}

func (e *StreamError) Error() string {
	if e.Record < 0 {
		return fmt.Sprintf("the stream is %s, want %s", e.Got, e.Want)
	}
	at := fmt.Sprintf("stream[%d]", e.Record)
	if e.Path != "" {
		at += "." + e.Path
	}
	return fmt.Sprintf("%s is %s, want %s", at, e.Got, e.Want)
}

// ExpandStream yields the chunks of the stream that the data of an
// assistant/message or assistant/attempt embeds (FORMATS §2.7), in order and with
// their times, as the chunk events of older generations had them. A record that
// is malformed is a *StreamError in its place, and what follows is still
// expanded. A chunk is valid until the next step.
func ExpandStream(data []byte) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		stream := jsjson.Get(data, "stream")
		if jsjson.KindOf(stream) != jsjson.Array {
			yield(Chunk{}, &StreamError{Record: -1, Want: "an array", Got: got(stream)})
			return
		}
		x := expander{yield: yield}
		for r := range jsjson.Elements(stream) {
			if !x.record(r) {
				return
			}
			x.n++
		}
	}
}

// expander holds what expanding a stream needs from one record to the next.
type expander struct {
	yield func(Chunk, error) bool
	n     int // of the record
	gaps  []int64
	buf   []byte
}

func (x *expander) fail(path, want string, v []byte) bool {
	return x.yield(Chunk{}, &StreamError{Record: x.n, Path: path, Want: want, Got: got(v)})
}

// streamKeys are the members of a packed record, by its payload's key.
var streamKeys = []string{"type", "time0", "index", "dt", "texts", "id", "name", "args"}

func (x *expander) record(r []byte) bool {
	if jsjson.KindOf(r) != jsjson.Object {
		return x.fail("", "an object", r)
	}
	typ := jsjson.Get(r, "type")
	switch string(typ) {
	case `"chunk"`:
		return x.single(r)
	case `"text-chunks"`:
		return x.packed(r, "text-delta", false)
	case `"reasoning-chunks"`:
		return x.packed(r, "reasoning-delta", false)
	case `"tool-call-chunks"`:
		return x.packed(r, "tool-call-delta", true)
	}
	if jsjson.KindOf(typ) != jsjson.String {
		return x.fail("type", "a string", typ)
	}
	return x.fail("type", "text-chunks, reasoning-chunks, tool-call-chunks or chunk", typ)
}

func (x *expander) single(r []byte) bool {
	var f [3][]byte
	others := jsjson.Fields(r, f[:], []string{"type", "time", "chunk"})
	at, ok := jsjson.SafeInt(f[1])
	switch {
	case !ok:
		return x.fail("time", "a whole number", f[1])
	case jsjson.KindOf(f[2]) != jsjson.Object:
		return x.fail("chunk", "an object", f[2])
	case others > 0:
		return x.fail("", "exactly type, time and chunk", r)
	}
	return x.yield(Chunk{JSON: f[2], Time: at, Record: x.n, Member: -1}, nil)
}

func (x *expander) packed(r []byte, kind string, tool bool) bool {
	var f [8][]byte
	others := jsjson.Fields(r, f[:], streamKeys)
	time0, index, dt, texts, id, name, args := f[1], f[2], f[3], f[4], f[5], f[6], f[7]
	payload, key := texts, "texts"
	if tool {
		payload, key = args, "args"
	}
	at, ok := jsjson.SafeInt(time0)
	switch {
	case !ok:
		return x.fail("time0", "a whole number", time0)
	case jsjson.KindOf(index) != jsjson.Number:
		return x.fail("index", "a number", index)
	case jsjson.KindOf(dt) != jsjson.Array:
		return x.fail("dt", "an array", dt)
	case jsjson.KindOf(payload) != jsjson.Array || len(payload) == 2:
		return x.fail(key, "a non-empty array", payload)
	case tool && jsjson.KindOf(id) != jsjson.String:
		return x.fail("id", "a string", id)
	case name != nil && jsjson.KindOf(name) != jsjson.String:
		return x.fail("name", "a string", name)
	case others > 0 || tool && texts != nil || !tool && (id != nil || name != nil || args != nil):
		return x.fail("", "exactly the members of its type", r)
	}
	x.gaps = x.gaps[:0]
	t := at
	for g := range jsjson.Elements(dt) {
		n, ok := jsjson.SafeInt(g)
		if !ok {
			return x.fail("dt", "an array of whole numbers", dt)
		}
		if t += n; t > jsjson.MaxSafe || t < -jsjson.MaxSafe {
			return x.fail("dt", "gaps that keep the times safe integers", dt)
		}
		x.gaps = append(x.gaps, n)
	}
	members := 0
	for s := range jsjson.Elements(payload) {
		if jsjson.KindOf(s) != jsjson.String {
			return x.fail(key, "an array of strings", payload)
		}
		members++
	}
	if len(x.gaps) != members-1 {
		return x.yield(Chunk{}, &StreamError{Record: x.n, Path: "dt", Want: fmt.Sprintf("%d gaps for %d members", members-1, members), Got: fmt.Sprintf("%d long", len(x.gaps))})
	}
	x.buf = append(append(x.buf[:0], `{"type":"`...), kind...)
	x.buf = append(append(x.buf, `","index":`...), index...)
	last := `,"text":`
	if tool {
		x.buf = append(append(x.buf, `,"id":`...), id...)
		if name != nil {
			x.buf = append(append(x.buf, `,"name":`...), name...)
		}
		last = `,"argumentsDelta":`
	}
	x.buf = append(x.buf, last...)
	head, i := len(x.buf), 0
	for s := range jsjson.Elements(payload) {
		if i > 0 {
			at += x.gaps[i-1]
		}
		x.buf = append(append(x.buf[:head], s...), '}')
		if !x.yield(Chunk{JSON: x.buf, Time: at, Record: x.n, Member: i}, nil) {
			return false
		}
		i++
	}
	return true
}

// streamFacts looks at both ends of a stream: when its first chunk came, nil when
// it has none, and the reason of its last finish chunk.
func streamFacts(data []byte) (start *int64, reason []byte) {
	for r := range jsjson.Elements(jsjson.Get(data, "stream")) {
		if start == nil {
			at := jsjson.Get(r, "time")
			if at == nil {
				at = jsjson.Get(r, "time0")
			}
			if t, ok := jsjson.SafeInt(at); ok {
				start = &t
			}
		}
		if !jsjson.StrEq(jsjson.Get(r, "type"), "chunk") {
			continue
		}
		if c := jsjson.Get(r, "chunk"); jsjson.StrEq(jsjson.Get(c, "type"), "finish") {
			reason = jsjson.Get(c, "reason")
		}
	}
	return start, reason
}
