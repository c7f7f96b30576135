package fold

import (
	"bytes"
	"fmt"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// ReplayRule says what becomes of a finish chunk's replayState (SEMANTICS §8.3
// rule 8).
type ReplayRule uint8

const (
	ReplayNever       ReplayRule = iota // not stored (before 07-17)
	ReplayIfUnchanged                   // kept unless blocks were dropped (07-17 to 07-27)
	ReplayAsIs                          // kept (07-28 to 08-17)
	ReplayTrimmed                       // its list of blocks follows the blocks dropped (from 08-17)
)

// ReplayRuleOf returns the rule of an era (SEMANTICS §8.3 rule 8). The last
// change falls within E11, whose logs may follow either of the last two; E11 gets ReplayAsIs.
func ReplayRuleOf(era Era) ReplayRule {
	switch {
	case era < E5:
		return ReplayNever
	case era < E9:
		return ReplayIfUnchanged
	case era < E12:
		return ReplayAsIs
	}
	return ReplayTrimmed
}

// An Assembler builds the content of an assistant message from the chunks of
// one attempt (SEMANTICS §8.3). The zero value follows the rules of E1 and
// later. It holds no more than the message, and reuses its memory after Reset.
type Assembler struct {
	LastCloseWins    bool // of several block-end chunks the last counts (06-11 to 06-14)
	KeepCutToolCalls bool // max-tokens drops no tool calls (before 06-18 or a little later)

	blocks   []partial
	index    map[string]int // canonical index → place in blocks, once there are many
	chunks   int64
	usage    []byte
	finish   []byte // the reason of the last finish chunk
	finished bool
	replay   []byte
	err      error

	recent int // place in blocks of the one that the latest chunk added to
	added  target
}

// target is where the latest chunk added to.
type target uint8

const (
	noPart target = iota
	textPart
	argsPart
)

// Usage is what the last usage chunk reported, nil when none came. It is valid
// until the next Add.
func (a *Assembler) Usage() []byte {
	if len(a.usage) == 0 {
		return nil
	}
	return a.usage
}

// partial is one block. Its text members hold the inside of JSON strings as
// they will be written, so that a delta is copied once and never decoded.
type partial struct {
	index  []byte
	kind   []byte // blockType, a JSON string token
	closed []byte // the block of a block-end chunk; nil while open
	text   []byte
	args   []byte
	id     []byte // JSON string token, empty when none came
	name   []byte
	isDone bool
}

// A ChunkError is a chunk that no harness writes: a member is missing or of the
// wrong kind (SEMANTICS §8.3).
type ChunkError struct {
	N    int64  // of the chunk within the attempt, from 0
	Path string // e.g. "chunk.text"
	Want string
	Got  string
}

func (e *ChunkError) Error() string {
	return fmt.Sprintf("chunk %d: %s is %s, want %s", e.N, e.Path, e.Got, e.Want)
}

// An OpenBlockError is a block of a type that only a closed block may have, left
// open: the harness fails the step (SEMANTICS §8.3 rule 5).
type OpenBlockError struct {
	Index string // as logged
	Type  string // JSON text of its blockType
}

func (e *OpenBlockError) Error() string {
	return fmt.Sprintf("block %s of type %s is never closed", e.Index, e.Type)
}

// Reset forgets the chunks and keeps the options.
func (a *Assembler) Reset() {
	a.blocks = a.blocks[:0]
	clear(a.index)
	a.chunks, a.err, a.added = 0, nil, noPart
	a.usage, a.finish, a.replay, a.finished = a.usage[:0], a.finish[:0], a.replay[:0], false
}

// Add takes the next chunk (SEMANTICS §8.3 rules 1 to 4): the canonical JSON of an event's data.chunk, which
// it does not keep. Chunks of unknown types are passed over. An error is a
// *ChunkError; the chunk then counts for nothing, and the first error is also
// what Result returns.
func (a *Assembler) Add(chunk []byte) error {
	err := a.add(chunk)
	a.chunks++
	if err != nil && a.err == nil {
		a.err = err
	}
	return err
}

// Runs reports whether the latest chunk was a delta, which More can go on with.
func (a *Assembler) Runs() bool { return a.added != noPart }

// More takes a chunk that differs from the one before it in its text only, which
// is a JSON string. It reports false, having changed nothing, when the one before
// was no delta.
func (a *Assembler) More(text []byte) bool {
	if !a.Runs() {
		return false
	}
	a.chunks++
	switch p := &a.blocks[a.recent]; {
	case p.isDone:
	case a.added == textPart:
		p.text = jsjson.AppendContent(p.text, text)
	default:
		p.args = jsjson.AppendContent(p.args, text)
	}
	return true
}

func (a *Assembler) fault(path, want string, v []byte) error {
	return &ChunkError{N: a.chunks, Path: path, Want: want, Got: got(v)}
}

func (a *Assembler) add(chunk []byte) error {
	a.added = noPart
	if jsjson.KindOf(chunk) != jsjson.Object {
		return a.fault("chunk", "an object", chunk)
	}
	if kind, index, text := plainDelta(chunk); kind != nil {
		if p := a.block(index, kind); !p.isDone {
			p.text = jsjson.AppendContent(p.text, text)
		}
		a.added = textPart
		return nil
	}
	var typ, index, text, id, name, args, blockType, block, usage, reason, replay []byte
	for i := 1; ; {
		key, val, next := member(chunk, i)
		if key == nil {
			break
		}
		switch string(key) {
		case `"type"`:
			typ = val
		case `"index"`:
			index = val
		case `"text"`:
			text = val
		case `"id"`:
			id = val
		case `"name"`:
			name = val
		case `"argumentsDelta"`:
			args = val
		case `"blockType"`:
			blockType = val
		case `"block"`:
			block = val
		case `"usage"`:
			usage = val
		case `"reason"`:
			reason = val
		case `"replayState"`:
			replay = val
		}
		i = next
	}
	if jsjson.KindOf(typ) != jsjson.String {
		return a.fault("chunk.type", "a string", typ)
	}
	switch string(typ) {
	case `"text-delta"`, `"reasoning-delta"`, `"tool-call-delta"`, `"block-start"`, `"block-end"`:
		if k := jsjson.KindOf(index); k != jsjson.Number {
			return a.fault("chunk.index", "a number", index)
		}
	}
	switch string(typ) {
	case `"block-start"`:
		if jsjson.KindOf(blockType) != jsjson.String {
			return a.fault("chunk.blockType", "a string", blockType)
		}
		a.block(index, blockType)
	case `"text-delta"`, `"reasoning-delta"`:
		if jsjson.KindOf(text) != jsjson.String {
			return a.fault("chunk.text", "a string", text)
		}
		kind := kindText
		if string(typ) == `"reasoning-delta"` {
			kind = kindReasoning
		}
		if p := a.block(index, kind); !p.isDone {
			p.text = jsjson.AppendContent(p.text, text)
		}
		a.added = textPart
	case `"tool-call-delta"`:
		if jsjson.KindOf(args) != jsjson.String {
			return a.fault("chunk.argumentsDelta", "a string", args)
		}
		if k := jsjson.KindOf(id); k != jsjson.String && k != jsjson.Absent {
			return a.fault("chunk.id", "a string", id)
		}
		if k := jsjson.KindOf(name); k != jsjson.String && k != jsjson.Absent {
			return a.fault("chunk.name", "a string", name)
		}
		if p := a.block(index, kindToolCall); !p.isDone {
			if id != nil {
				p.id = append(p.id[:0], id...)
			}
			if len(name) > 2 {
				p.name = append(p.name[:0], name...)
			}
			p.args = jsjson.AppendContent(p.args, args)
		}
		a.added = argsPart
	case `"block-end"`:
		if jsjson.KindOf(block) != jsjson.Object {
			return a.fault("chunk.block", "an object", block)
		}
		if p := a.block(index, nil); !p.isDone || a.LastCloseWins {
			p.closed = append(p.closed[:0], block...)
			p.isDone = true
		}
	case `"usage"`:
		if usage == nil {
			return a.fault("chunk.usage", "an object", nil)
		}
		a.usage = append(a.usage[:0], usage...)
	case `"finish"`:
		if jsjson.KindOf(jsjson.Get(reason, "kind")) != jsjson.String {
			return a.fault("chunk.reason.kind", "a string", jsjson.Get(reason, "kind"))
		}
		a.finish = append(a.finish[:0], reason...)
		a.replay = append(a.replay[:0], replay...)
		a.finished = true
	}
	return nil
}

// plainDelta reads a text or reasoning delta laid out as the writer lays it out,
// which is what most chunks are; kind is nil for any other chunk.
func plainDelta(chunk []byte) (kind, index, text []byte) {
	const (
		textHead      = `{"type":"text-delta","index":`
		reasoningHead = `{"type":"reasoning-delta","index":`
		before        = `,"text":"`
	)
	i := 0
	switch {
	case len(chunk) > len(textHead) && string(chunk[:len(textHead)]) == textHead:
		kind, i = kindText, len(textHead)
	case len(chunk) > len(reasoningHead) && string(chunk[:len(reasoningHead)]) == reasoningHead:
		kind, i = kindReasoning, len(reasoningHead)
	default:
		return nil, nil, nil
	}
	at := i
	for i < len(chunk) && chunk[i] >= '0' && chunk[i] <= '9' {
		i++
	}
	if i == at || len(chunk)-i <= len(before) || string(chunk[i:i+len(before)]) != before {
		return nil, nil, nil
	}
	index = chunk[at:i]
	i += len(before) - 1
	if jsjson.Skip(chunk, i) != len(chunk)-1 {
		return nil, nil, nil // more members follow
	}
	return kind, index, chunk[i : len(chunk)-1]
}

var (
	kindText      = []byte(`"text"`)
	kindReasoning = []byte(`"reasoning"`)
	kindToolCall  = []byte(`"tool-call"`)
)

// manyBlocks is where a search through the blocks gives way to a map.
const manyBlocks = 16

// block finds the block of an index, or makes one of the given kind.
func (a *Assembler) block(index, kind []byte) *partial {
	if len(a.blocks) > manyBlocks {
		if i, ok := a.index[string(index)]; ok {
			a.recent = i
			return &a.blocks[i]
		}
	} else {
		for i := len(a.blocks) - 1; i >= 0; i-- {
			if bytes.Equal(a.blocks[i].index, index) {
				a.recent = i
				return &a.blocks[i]
			}
		}
	}
	n := len(a.blocks)
	if n < cap(a.blocks) {
		a.blocks = a.blocks[:n+1]
	} else {
		a.blocks = append(a.blocks, partial{})
	}
	a.recent = n
	p := &a.blocks[n]
	p.index = append(p.index[:0], index...)
	p.kind = append(p.kind[:0], kind...)
	p.closed, p.text, p.args, p.id, p.name = p.closed[:0], p.text[:0], p.args[:0], p.id[:0], p.name[:0]
	p.isDone = false
	if len(a.blocks) > manyBlocks {
		if a.index == nil {
			a.index = map[string]int{}
		}
		if len(a.index) == 0 {
			for i := range a.blocks {
				a.index[string(a.blocks[i].index)] = i
			}
		} else {
			a.index[string(index)] = n
		}
	}
	return p
}

// An Assembly is what the chunks of one attempt add up to (SEMANTICS §8.3). It
// stays valid after Reset.
type Assembly struct {
	Content     []byte // canonical JSON array
	Blocks      int    // in Content
	Dropped     int    // tool calls left out for max-tokens
	Usage       []byte // of the last usage chunk; nil when none came
	Finish      string // kind of the last finish chunk; "stop" when none came
	Finished    bool   // a finish chunk came
	Reason      []byte // reason of the last finish chunk; nil when none came
	ReplayState []byte // as the message stores it; nil when absent
}

// Result assembles the chunks seen so far (SEMANTICS §8.3 rules 5 to 8). The
// error is the first one of Add, or an *OpenBlockError.
func (a *Assembler) Result(rule ReplayRule) (*Assembly, error) {
	if a.err != nil {
		return nil, a.err
	}
	r := a.facts()
	cut := r.Finish == "max-tokens" && !a.KeepCutToolCalls
	out := []byte{'['}
	var kept []bool
	for i := range a.blocks {
		p := &a.blocks[i]
		if cut && string(p.blockType()) == `"tool-call"` {
			r.Dropped++
			kept = append(kept, false)
			continue
		}
		kept = append(kept, true)
		if r.Blocks > 0 {
			out = append(out, ',')
		}
		var err error
		if out, err = p.appendBlock(out); err != nil {
			return nil, err
		}
		r.Blocks++
	}
	r.Content = append(out, ']')
	r.ReplayState = a.replayState(rule, kept, r.Dropped)
	return r, nil
}

// Interrupted assembles the chunks of a cancelled attempt (SEMANTICS §8.3 rule
// 9, from E12): the text and reasoning blocks that say something, closed or
// not. Without any there is no message, and it returns nil.
func (a *Assembler) Interrupted() (*Assembly, error) {
	if a.err != nil {
		return nil, a.err
	}
	r := a.facts()
	out := []byte{'['}
	for i := range a.blocks {
		p := &a.blocks[i]
		switch string(p.blockType()) {
		case `"text"`, `"reasoning"`:
		default:
			continue
		}
		if !p.saysSomething() {
			continue
		}
		if r.Blocks > 0 {
			out = append(out, ',')
		}
		var err error
		if out, err = p.appendBlock(out); err != nil {
			return nil, err
		}
		r.Blocks++
	}
	if r.Blocks == 0 {
		return nil, nil
	}
	r.Content = append(out, ']')
	return r, nil
}

func (a *Assembler) facts() *Assembly {
	r := &Assembly{Finish: "stop", Finished: a.finished}
	if len(a.usage) > 0 {
		r.Usage = bytes.Clone(a.usage)
	}
	if a.finished {
		r.Reason = bytes.Clone(a.finish)
		r.Finish, _ = jsjson.Str(jsjson.Get(r.Reason, "kind"))
	}
	return r
}

// blockType is the type the block has in the message, a JSON token.
func (p *partial) blockType() []byte {
	if p.isDone {
		return jsjson.Get(p.closed, "type")
	}
	return p.kind
}

// saysSomething reports whether the text has more than white space.
func (p *partial) saysSomething() bool {
	if p.isDone {
		s, ok := jsjson.Str(jsjson.Get(p.closed, "text"))
		return ok && jsjson.TrimJS(s) != ""
	}
	token := make([]byte, 0, len(p.text)+2)
	token = append(append(append(token, '"'), p.text...), '"')
	s, _ := jsjson.Str(token)
	return jsjson.TrimJS(s) != ""
}

func (p *partial) appendBlock(out []byte) ([]byte, error) {
	if p.isDone {
		return append(out, p.closed...), nil
	}
	switch string(p.kind) {
	case `"text"`, `"reasoning"`:
		out = append(out, `{"type":`...)
		out = append(out, p.kind...)
		out = append(out, `,"text":"`...)
		out = append(out, p.text...)
	case `"tool-call"`:
		out = append(out, `{"type":"tool-call","id":`...)
		if len(p.id) > 0 {
			out = append(out, p.id...)
		} else {
			out = append(out, `"call-`...)
			out = append(out, p.index...)
			out = append(out, '"')
		}
		out = append(out, `,"name":`...)
		if len(p.name) > 0 {
			out = append(out, p.name...)
		} else {
			out = append(out, `""`...)
		}
		out = append(out, `,"arguments":"`...)
		out = append(out, p.args...)
	default:
		return nil, &OpenBlockError{Index: string(p.index), Type: string(p.kind)}
	}
	return append(out, `"}`...), nil
}

func (a *Assembler) replayState(rule ReplayRule, kept []bool, dropped int) []byte {
	if len(a.replay) == 0 {
		return nil
	}
	switch rule {
	case ReplayNever:
		return nil
	case ReplayIfUnchanged:
		if dropped > 0 {
			return nil
		}
	case ReplayTrimmed:
		blocks := jsjson.Get(a.replay, "blocks")
		if blocks == nil {
			break
		}
		if jsjson.KindOf(blocks) != jsjson.Array || jsjson.Len(blocks) != len(kept) {
			return nil
		}
		if dropped == 0 {
			break
		}
		out := []byte{'{'}
		if response := jsjson.Get(a.replay, "response"); response != nil {
			out = append(out, `"response":`...)
			out = append(out, response...)
			out = append(out, ',')
		}
		out = append(out, `"blocks":[`...)
		i, n := 0, 0
		for b := range jsjson.Elements(blocks) {
			if kept[i] {
				if n > 0 {
					out = append(out, ',')
				}
				out = append(out, b...)
				n++
			}
			i++
		}
		return append(out, `]}`...)
	}
	return bytes.Clone(a.replay)
}
