package invariants

import (
	"slices"
	"strconv"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about the grammar of one provider stream, which is one attempt. Only a
// development companion of the harness holds streams to it, from buildCompanions
// on: what the harness itself takes from an adapter, and puts together as well
// as it can, is no error here either. The stream itself finds the breaches: one
// state serves all of them.
var streamRules = []*Rule{
	streamRule("STREAM-INDEX", "a chunk names its block by a whole number from 0",
		"Text, reasoning and tool calls of one answer come in blocks, each under an index of its own. A chunk under any other number belongs to no block."),
	streamRule("STREAM-START", "a block starts when no block of that index is open",
		"A second start of an open block is passed over when the answer is put together, so that two blocks run into one."),
	streamRule("STREAM-DELTA", "a delta adds to an open block of its own kind",
		"A piece of text belongs to a text block that has started and not ended, and likewise for reasoning and tool calls. What comes behind the end of its block is lost: the answer does not hold it."),
	streamRule("STREAM-END", "a block ends when it is open, as the kind it started as",
		"The end of a block carries the whole block and decides what the answer holds of it. An end without a start, or of another kind, puts something into the answer that was never streamed."),
	streamRule("STREAM-USAGE", "a stream reports its usage once",
		"The last report counts, so that the tokens of an earlier one are billed and nowhere counted."),
	streamRule("STREAM-TAIL", "nothing comes after the finish of a stream",
		"The finish says that the answer is complete. Chunks behind it belong to another stream, or were moved."),
	streamRule("STREAM-OPEN", "a stream finishes with every block ended, unless it failed",
		"A block that is open when the model has finished holds what had arrived so far, and nobody knows whether that was all of it."),
	finishRule(streamRule("STREAM-FINISH", "a stream that was answered has a finish",
		"Only a stream that was cancelled or whose process died may break off. An answer from a stream without a finish counts as a regular stop, whatever the reason was. In an answer that embeds its chunks the finish is the last of them.")),
}

func finishRule(r *Rule) *Rule {
	r.Types, r.New = []string{"assistant/message"}, stateless(checkAnswered)
	return r
}

func streamRule(id, title, text string) *Rule {
	return &Rule{
		stream: true,
		ID:     id, Severity: Warning, Spec: "SEMANTICS §6.4, §8.3, §8.4", Title: title, Text: text + " In generations after 1, where the chunks stand in the event that ends their attempt, sound logs break off blocks and leave out their starts: nothing is said of that there.",
		How:    "An adapter of a provider is at fault, chunks were lost or edited, or two processes wrote into one log.",
		Advice: "Compare the chunks of the step with its assistant/message: the message is what later requests hold.",
	}
}

// stream is the open attempt as its chunks tell it. It holds one answer, however
// many chunks that came in.
type stream struct {
	asm     fold.Assembler
	open    bool // chunks came, and neither a message nor anything else has ended the attempt
	blind   bool // chunks of it may be missing
	failed  bool // it finished with error or aborted
	finish  string
	place   Place // of the first chunk
	last    int64
	time    int64  // of the last chunk
	began   int64  // of the first one
	spans   []span // seqs of its chunks; one span unless other events came between
	usages  int
	tail    bool              // chunks came behind the finish
	altered bool              // a line of it does not read as what it says
	header  *fold.EpochHeader // in force at the first chunk
	kept    bool              // and known to be
	cited   []int64           // room for citations

	blocks []streamBlock
	byNum  map[int64]int // once there are many blocks
	recent int
}

// streamBlock is one block of the stream.
type streamBlock struct {
	index int64
	kind  blockKind
	other []byte // the type, a JSON token, when kind is otherBlock
	open  bool
	told  bool // what is wrong with it was said
}

type blockKind byte

const (
	noBlock blockKind = iota
	textBlock
	reasoningBlock
	callBlock
	otherBlock
)

var blockTokens = [...]string{textBlock: `"text"`, reasoningBlock: `"reasoning"`, callBlock: `"tool-call"`}

func kindOfBlock(token []byte) blockKind {
	for k, t := range blockTokens {
		if string(token) == t && t != "" {
			return blockKind(k)
		}
	}
	return otherBlock
}

func (b *streamBlock) token() string {
	if b.kind == otherBlock {
		return string(appendSafeJSON(nil, b.other))
	}
	return blockTokens[b.kind]
}

// mostSpans bounds what is kept of an attempt whose chunks do not follow one
// another; beyond it citations are not compared.
const mostSpans = 4096

// chunk takes the next assistant/chunk and tells what is wrong with it.
func (s *stream) chunk(c *Context, e *logfmt.Event) {
	ch := c.payload[2]
	typ := c.chunkIs
	if !s.open || s.failed && !s.lasting(c) {
		s.begin(c, e)
	}
	if !c.Step.Known || !c.Step.Open || s.blind {
		s.blind = true
	}
	if n := len(s.spans); n > 0 && s.spans[n-1].to == e.Seq {
		s.spans[n-1].to = e.Seq + 1
	} else if n < mostSpans {
		s.spans = append(s.spans, span{e.Seq, e.Seq + 1})
	}
	s.last, s.time = e.Seq, e.Time
	s.altered = s.altered || jsjson.Facts(e.Facts)&alters != 0
	if s.finish != "" && !s.blind && !s.tail {
		s.tail = true
		c.tell("STREAM-TAIL", e, "data.chunk", "a %s chunk follows the finish %s of its stream, expected nothing", typ, string(appendSafe(nil, s.finish, 24)))
	}
	if s.asm.Add(ch) != nil {
		return // its shape is wrong, which is said elsewhere
	}
	switch typ {
	case "text-delta":
		s.delta(c, e, ch, textBlock)
	case "reasoning-delta":
		s.delta(c, e, ch, reasoningBlock)
	case "tool-call-delta":
		s.delta(c, e, ch, callBlock)
	case "block-start":
		s.start(c, e, ch)
	case "block-end":
		s.end(c, e, ch)
	case "usage":
		if s.usages++; s.usages == 2 && !s.blind {
			c.tell("STREAM-USAGE", e, "data.chunk", "the stream reports its usage a second time, expected one report")
		}
	case "finish":
		s.finished(c, e, ch)
	}
}

// lasting reports whether a chunk behind a failure still belongs to the stream
// that failed: builds before the react loop asked once in a step.
func (s *stream) lasting(c *Context) bool { return c.Builds.Before(buildReact) }

func (s *stream) begin(c *Context, e *logfmt.Event) {
	s.asm.Reset()
	s.open, s.failed, s.tail, s.altered, s.finish = true, false, false, false, ""
	s.began = e.Time
	s.place, s.spans, s.usages = c.place(e), s.spans[:0], 0
	s.header, s.kept = c.Header, !c.HeaderLost
	s.blocks, s.recent = s.blocks[:0], 0
	clear(s.byNum)
}

// after takes in what an event that is no chunk means for the attempt.
func (s *stream) after(c *Context, e *logfmt.Event) {
	switch e.Type {
	case "assistant/message":
		if isReplace(e) || !c.Step.Open {
			return
		}
	case "turn/start", "turn/end", "step/start", "step/end", "session/end-seed", "llm/retry", "llm/retry-started":
	case "request/header", "request/header-delta", "request/context", "compaction/start", "compact/start":
		if s.finish == "" {
			return
		}
	default:
		if _, known := lifetimes[e.Type]; !known && !e.Ignorable {
			s.blind = true // it may stand where a chunk was
		}
		return
	}
	s.open, s.blind = false, false
}

// block finds the block of an index, nil when there is none.
func (s *stream) block(index int64) *streamBlock {
	if s.recent < len(s.blocks) && s.blocks[s.recent].index == index {
		return &s.blocks[s.recent]
	}
	const many = 16
	if len(s.blocks) <= many {
		for i := range s.blocks {
			if s.blocks[i].index == index {
				s.recent = i
				return &s.blocks[i]
			}
		}
		return nil
	}
	if len(s.byNum) == 0 {
		s.byNum = map[int64]int{}
		for i := range s.blocks {
			s.byNum[s.blocks[i].index] = i
		}
	}
	i, ok := s.byNum[index]
	if !ok {
		return nil
	}
	s.recent = i
	return &s.blocks[i]
}

func (s *stream) add(index int64, kind blockKind, token []byte) *streamBlock {
	if len(s.blocks) < cap(s.blocks) {
		s.blocks = s.blocks[:len(s.blocks)+1]
	} else {
		s.blocks = append(s.blocks, streamBlock{})
	}
	s.recent = len(s.blocks) - 1
	b := &s.blocks[s.recent]
	b.index, b.open, b.told = index, true, false
	b.be(kind, token)
	if len(s.byNum) > 0 {
		s.byNum[index] = s.recent
	}
	return b
}

// be gives the block a type.
func (b *streamBlock) be(kind blockKind, token []byte) {
	b.kind, b.other = kind, b.other[:0]
	if kind == otherBlock {
		b.other = append(b.other, token...)
	}
}

// index reads the index of a chunk.
func (s *stream) index(c *Context, e *logfmt.Event, ch []byte) (int64, bool) {
	const before = `,"index":` // the writer puts it behind the type
	var v []byte
	if i := len(`{"type":"`) + len(c.chunkIs) + 1; i+len(before) < len(ch) && string(ch[i:i+len(before)]) == before {
		i += len(before)
		if d := ch[i]; d >= '0' && d <= '9' && (ch[i+1] == ',' || ch[i+1] == '}') {
			return int64(d - '0'), true
		}
		v = ch[i:jsjson.Skip(ch, i)]
	} else {
		v = jsjson.Get(ch, "index")
	}
	n, ok := jsjson.SafeInt(v)
	if ok && n >= 0 {
		return n, true
	}
	if jsjson.KindOf(v) == jsjson.Number {
		f := c.tell("STREAM-INDEX", e, "data.chunk.index", "index of the chunk is %s, expected a whole number from 0", show(v))
		if c.Builds.Since(buildCompanions) {
			f.Severity = Error
		}
	}
	return 0, false
}

func (s *stream) start(c *Context, e *logfmt.Event, ch []byte) {
	i, ok := s.index(c, e, ch)
	if !ok {
		return
	}
	token := jsjson.Get(ch, "blockType")
	kind := kindOfBlock(token)
	b := s.block(i)
	switch {
	case b == nil:
		s.add(i, kind, token)
	case b.open && !s.blind && !b.told:
		b.told = true
		c.tell("STREAM-START", e, "data.chunk.index", "block %d starts, but a block %s of that index is open; expected its end first", i, b.token())
	default:
		b.be(kind, token)
		b.open = true
	}
}

func (s *stream) delta(c *Context, e *logfmt.Event, ch []byte, kind blockKind) {
	i, ok := s.index(c, e, ch)
	if !ok {
		return
	}
	b := s.block(i)
	if b != nil && b.open && b.kind == kind {
		return
	}
	if b != nil && b.told {
		return
	}
	wrong := ""
	switch {
	case b == nil:
		wrong = "no such block has started"
		b = s.add(i, kind, nil)
	case !b.open:
		wrong = "that block has ended"
	default:
		wrong = "that block is of type " + b.token()
	}
	b.told = true
	if s.blind {
		return
	}
	c.tell("STREAM-DELTA", e, "data.chunk.index", "a %s for block %d, but %s; expected an open block of type %s", c.chunkIs, i, wrong, blockTokens[kind])
}

func (s *stream) end(c *Context, e *logfmt.Event, ch []byte) {
	i, ok := s.index(c, e, ch)
	if !ok {
		return
	}
	token := jsjson.Get(jsjson.Get(ch, "block"), "type")
	kind := kindOfBlock(token)
	b := s.block(i)
	if b == nil {
		s.add(i, kind, token).open = false
		if !s.blind {
			c.tell("STREAM-END", e, "data.chunk.index", "block %d ends, but no such block has started", i)
		}
		return
	}
	same := b.kind == kind && (kind != otherBlock || string(b.other) == string(token))
	switch {
	case s.blind || b.told:
	case !b.open:
		b.told = true
		c.tell("STREAM-END", e, "data.chunk.index", "block %d ends a second time", i)
	case !same:
		c.tell("STREAM-END", e, "data.chunk.block.type", "block %d ends with type %s, expected %s, with which it started", i, show(token), b.token())
	}
	b.open = false
}

func (s *stream) finished(c *Context, e *logfmt.Event, ch []byte) {
	s.finish, _ = jsjson.Str(jsjson.Get(jsjson.Get(ch, "reason"), "kind"))
	if s.finish == "" {
		s.finish = "unknown"
	}
	s.failed = s.finish == "error" || s.finish == "aborted"
	if s.failed {
		s.blind = false // what follows is another attempt
		return
	}
	if s.blind {
		return
	}
	var open []int64
	for i := range s.blocks {
		if b := &s.blocks[i]; b.open && !b.told {
			open = append(open, b.index)
		}
	}
	if len(open) == 0 {
		return
	}
	is, what := "is", "block "+strconv.FormatInt(open[0], 10)
	if len(open) > 1 {
		slices.Sort(open)
		what = "blocks " + seqList(open)
		is = "are"
	}
	c.tell("STREAM-OPEN", e, "data.chunk", "the stream finishes with %s while %s %s open, expected block-end first", string(appendSafe(nil, s.finish, 24)), what, is)
}

// checkAnswered looks for the finish of the stream that a message answers.
func checkAnswered(c *Context, e *logfmt.Event) {
	if s := &c.stream; s.open && s.finish == "" && c.answers(e) && !cancelled(e) {
		f := c.Report(e, "", "assistant/message follows a stream without a finish chunk, expected one")
		f.Related = append(f.Related, Related{s.place.Seq, s.place.Pos.Line, "the stream starts here"})
	}
}

// tell reports a finding of a stream rule, or of another one that has no checker
// of its own.
func (c *Context) tell(id string, e *logfmt.Event, path, format string, args ...any) *Finding {
	return c.tellAt(id, c.place(e), path, format, args...)
}

// tellAt is tell for a place kept earlier.
func (c *Context) tellAt(id string, p Place, path, format string, args ...any) *Finding {
	r := byID[id]
	if !c.runs(id) || !r.active(c.Builds) || c.gen != nil && !c.gen.shares(id) {
		return &Finding{}
	}
	was := c.rule
	c.rule = r
	f := c.ReportAt(p, path, format, args...)
	c.rule = was
	return f
}
