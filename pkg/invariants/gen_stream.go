package invariants

import (
	"errors"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

func genStream(c *Context, e *logfmt.Event) {
	if jsjson.KindOf(jsjson.Get(e.Data, "stream")) != jsjson.Array {
		return // said of the shape of the event
	}
	n := 0
	for ch, err := range fold.ExpandStream(e.Data) {
		var bad *fold.StreamError
		switch {
		case errors.As(err, &bad):
			path := "data.stream[" + number(int64(bad.Record)) + "]"
			c.Report(e, path, "record %d of the stream: %s", bad.Record, printable(bad.Error()))
			n++
		case chunkType(ch.JSON) == "":
			v := jsjson.Get(ch.JSON, "type")
			c.Report(e, "data.stream["+number(int64(ch.Record))+"].chunk.type", "type of the chunk is %s, expected one of block-start, text-delta, reasoning-delta, tool-call-delta, block-end, usage, finish", show(v)).Severity = Warning
			n++
		default:
			n += genChunk(c, e, &ch)
		}
		if n >= 4 {
			return // what follows is more of the same
		}
	}
}

// genChunk looks at the members of a chunk, as of those that were events of their
// own: the harness puts an answer together without asking for most of them, so
// what is wrong there is a warning. It returns how much it found.
func genChunk(c *Context, e *logfmt.Event, ch *fold.Chunk) int {
	typ, record := chunkType(ch.JSON), "stream["+number(int64(ch.Record))+"]"
	if ch.Member > 0 || plainDelta(ch.JSON, typ) {
		return 0 // all members of a record are alike
	}
	s := shaper{c: c, e: e}
	if typ != "usage" && typ != "finish" {
		if v := jsjson.Get(ch.JSON, "index"); wantCount(v) != "" {
			c.Report(e, "data."+record, "index of the chunk is %s, expected a whole number from 0", show(v)).Severity = Warning
			s.found++
		}
	}
	if ch.Member < 0 {
		s.path = []hop{{key: "stream"}, {index: ch.Record}, {key: "chunk"}}
		s.parts(ch.JSON, chunkShapes[typ])
	}
	return s.found
}

// genAsm puts an answer together from its chunks again. One assembler serves
// all answers of a log.
type genAsm struct{ a fold.Assembler }

func (k *genAsm) Event(c *Context, e *logfmt.Event) {
	message := jsjson.Get(e.Data, "message")
	content := jsjson.Get(message, "content")
	if e.Type != "assistant/message" || jsjson.KindOf(content) != jsjson.Array {
		return
	}
	k.a.Reset()
	chunks := 0
	for ch, err := range fold.ExpandStream(e.Data) {
		if err != nil {
			return // said of the record
		}
		chunks++
		if err := k.a.Add(ch.JSON); err != nil {
			c.Report(e, "data.stream["+number(int64(ch.Record))+"]", "%s", printable(err.Error()))
			return
		}
	}
	if chunks == 0 {
		return // nothing is known of how the answer came
	}
	interrupted := truthy(e.Data, "interrupted")
	var got *fold.Assembly
	var err error
	if interrupted {
		got, err = k.a.Interrupted()
	} else {
		got, err = k.a.Result(fold.ReplayTrimmed)
	}
	switch {
	case err != nil:
		c.Report(e, "data.stream", "the chunks give no answer: %s", printable(err.Error()))
	case got == nil:
		c.Report(e, "data.message.content", "the answer has content, but its chunks say nothing that an interrupted answer keeps")
	case !jsjson.Equal(got.Content, content):
		path, what := contentDiff(got.Content, content)
		c.Report(e, path, "%s", what)
	}
}

func (k *genAsm) End(*Context) {}

// contentDiff says where an answer differs from what its chunks add up to.
func contentDiff(chunks, content []byte) (path, what string) {
	n, m := jsjson.Len(chunks), jsjson.Len(content)
	for i := range min(n, m) {
		a, b := jsjson.Index(chunks, i), jsjson.Index(content, i)
		if jsjson.Equal(a, b) {
			continue
		}
		at := "data.message.content[" + number(int64(i)) + "]"
		for key, val := range jsjson.Members(b) {
			name, _ := jsjson.Str(key)
			if old := jsjson.Get(a, name); !jsjson.Equal(old, val) {
				return at + "." + name, name + " of block " + number(int64(i)) + " is " + show(val) + ", its chunks give " + show(old)
			}
		}
		return at, "block " + number(int64(i)) + " is " + show(b) + ", its chunks give " + show(a)
	}
	return "data.message.content", "the answer has " + number(int64(m)) + " blocks, its chunks give " + number(int64(n))
}

func genUsage(c *Context, e *logfmt.Event) {
	stream := jsjson.Get(e.Data, "stream")
	if e.Type != "assistant/message" || jsjson.KindOf(stream) != jsjson.Array || len(stream) == 2 {
		return
	}
	var last []byte
	for r := range jsjson.Elements(stream) {
		if ch := jsjson.Get(r, "chunk"); jsjson.StrEq(jsjson.Get(ch, "type"), "usage") {
			last = jsjson.Get(ch, "usage")
		}
	}
	if usage := jsjson.Get(e.Data, "usage"); !jsjson.Equal(usage, last) {
		c.Report(e, "data.usage", "usage of the answer is %s, its last usage chunk says %s", show(usage), show(last))
	}
}

// genFinish looks how the stream of an answer ends. What fails or is given up
// becomes an attempt, or an interrupted answer (FORMATS §2.8): any other answer has
// a finish, as the last of its chunks. Which one is ASST-ONE.
func genFinish(c *Context, e *logfmt.Event) {
	stream := jsjson.Get(e.Data, "stream")
	if jsjson.KindOf(stream) != jsjson.Array || len(stream) == 2 || truthy(e.Data, "interrupted") {
		return // no chunks are known, or they may break off
	}
	finish, last := -1, -1
	for r := range jsjson.Elements(stream) {
		last++
		if ch := jsjson.Get(r, "chunk"); finish < 0 && jsjson.StrEq(jsjson.Get(ch, "type"), "finish") {
			finish = last
		}
	}
	switch {
	case finish < 0:
		c.Report(e, "data.stream", "the stream of the answer has no finish, and the answer is not marked as interrupted")
	case finish < last:
		c.Report(e, "data.stream["+number(int64(finish+1))+"]", "the stream of the answer goes on behind its finish, expected that as the last chunk")
	}
}
