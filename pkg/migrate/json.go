package migrate

import (
	"strconv"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// row is an event on its way through the chain. Its slices stay valid only during
// the call that hands it on; clone keeps one.
type row struct {
	typ       string
	seq       int64 // in the generation at hand
	src       int64 // of the event it comes from; -1 for one that a step adds
	line      int64
	time      int64
	data      []byte
	op        []byte
	sources   []int64
	cites     bool // it has sourceEventSeqs, maybe empty
	ignorable bool
}

func (r *row) clone() *row {
	c := *r
	c.data = append([]byte(nil), r.data...)
	c.op = append([]byte(nil), r.op...)
	if r.op == nil {
		c.op = nil
	}
	c.sources = append([]int64(nil), r.sources...)
	return &c
}

// append appends the row as a line.
func (r *row) append(dst []byte) []byte {
	dst = jsjson.AppendQuote(append(dst, `{"type":`...), r.typ)
	dst = strconv.AppendInt(append(dst, `,"seq":`...), r.seq, 10)
	dst = strconv.AppendInt(append(dst, `,"time":`...), r.time, 10)
	dst = append(append(dst, `,"data":`...), r.data...)
	if r.cites {
		dst = append(append(dst, `,"sourceEventSeqs":`...), seqList(r.sources)...)
	}
	if r.op != nil {
		dst = append(append(dst, `,"surfaceOp":`...), r.op...)
	}
	if r.ignorable {
		dst = append(dst, `,"ignorable":true`...)
	}
	return append(dst, "}\n"...)
}

func seqList(seqs []int64) []byte {
	b := []byte{'['}
	for i, n := range seqs {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return append(b, ']')
}

func itoa(n int64) []byte { return strconv.AppendInt(nil, n, 10) }

// mapped is an object with members changed: f gets each key, decoded, and value,
// and returns the value to put there, nil to leave the member out.
func mapped(obj []byte, f func(key string, val []byte) []byte) []byte {
	if jsjson.KindOf(obj) != jsjson.Object {
		return obj
	}
	out := make([]byte, 0, len(obj)+16)
	out = append(out, '{')
	for k, v := range jsjson.Members(obj) {
		key, _ := jsjson.Str(k)
		v = f(key, v)
		if v == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, k...), ':'), v...)
	}
	return append(out, '}')
}

// with is an object with one member changed, or added at the end.
func with(obj []byte, key string, val []byte) []byte {
	if jsjson.KindOf(obj) != jsjson.Object {
		return obj
	}
	found := false
	out := mapped(obj, func(k string, v []byte) []byte {
		if k == key {
			found = true
			return val
		}
		return v
	})
	if found {
		return out
	}
	out = out[:len(out)-1]
	if len(out) > 1 {
		out = append(out, ',')
	}
	out = append(jsjson.AppendQuote(out, key), ':')
	return append(append(out, val...), '}')
}

// each is an array with every element changed.
func each(arr []byte, f func(v []byte) []byte) []byte {
	if jsjson.KindOf(arr) != jsjson.Array {
		return arr
	}
	out := []byte{'['}
	for v := range jsjson.Elements(arr) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, f(v)...)
	}
	return append(out, ']')
}

func is(obj []byte, key, want string) bool { return jsjson.StrEq(jsjson.Get(obj, key), want) }

func truthy(obj []byte, key string) bool { return string(jsjson.Get(obj, key)) == "true" }
