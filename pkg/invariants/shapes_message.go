package invariants

import "github.com/dsh-audit/dsh-audit/internal/jsjson"

// Messages are judged as a whole by MSG-SHAPE. What is looked at here no build
// ever checked: the blocks of their content and the details of their sources.
// Both sets are open: a type or kind that is not known is none of our business
// (SEMANTICS §1.0, §2.1).

const maxNesting = 8 // tool results within tool results that are looked into

var blockShapes map[string][]part

func init() { // blocks hold blocks
	blockShapes = map[string][]part{
		"text":        {{key: "text", is: str}},
		"reasoning":   {{key: "text", is: str}},
		"tool-call":   {{key: "id", is: str}, {key: "name", is: str}, {key: "arguments", is: str}},
		"tool-result": {{key: "toolCallId", is: str}, {key: "content", is: blocks}, {key: "isError", is: boolean, opt: true}},
		"image":       {{key: "url", is: str, to: dayNoOldImage, gone: dayImage}, {key: "mimeType", is: str, opt: true}, {key: "attachment", is: attachment, from: dayImage}},
	}
}

// block is a content block of any type.
func block(s *shaper, v []byte) {
	if exp := wantObject(v); exp != "" {
		s.bad(v, exp)
		return
	}
	typ := jsjson.Get(v, "type")
	if jsjson.KindOf(typ) != jsjson.String {
		s.at("type", str, typ)
		return
	}
	if s.depth == maxNesting {
		return
	}
	s.depth++
	s.parts(v, blockShapes[string(typ[1:len(typ)-1])])
	s.depth--
}

// blocks is the content of a message.
var blocks = list(block)

var pixels = object(part{key: "width", is: num}, part{key: "height", is: num})

var attachment = object(
	part{key: "attachmentId", is: str}, part{key: "mediaType", is: oneOf("image/png", "image/jpeg", "image/webp", "image/gif")},
	part{key: "bytes", is: count}, part{key: "width", is: num}, part{key: "height", is: num},
	part{key: "name", is: str, opt: true}, part{key: "originalDimensions", is: pixels, opt: true},
)

// source is where a message comes from.
var source = variants("kind", false, map[string][]part{
	"user":         {{key: "rpcId", is: str, opt: true}},
	"plugin":       {{key: "plugin", is: text}, {key: "form", is: str, opt: true}, {key: "sections", is: list(section), opt: true}, {key: "summary", is: str, opt: true}},
	"agent":        {{key: "agentId", is: str}},
	"goal":         {{key: "goalId", is: text}, {key: "revision", is: num}, {key: "round", is: num, opt: true}},
	"team-message": {{key: "teamId", is: str}, {key: "messageId", is: str}, {key: "senderId", is: str}, {key: "senderName", is: str}},
})

var section = object(part{key: "name", is: str}, part{key: "text", is: str})

// message looks at the blocks and the source of the message that stands at key,
// or in data itself, as those before 07-28 did.
func (s *shaper) message(key string) {
	m := s.e.Data
	if key != "." {
		if v := jsjson.Get(m, key); v != nil {
			s.path = append(s.path, hop{key: key})
			m = v
		}
	}
	s.body(m)
}

func (s *shaper) body(m []byte) {
	c := jsjson.Get(m, "content")
	switch {
	case jsjson.KindOf(c) != jsjson.Array:
	case s.e.Type == "tool/result" && len(s.path) > 0:
		s.at("content", wrappers, c)
	default:
		s.at("content", blocks, c)
	}
	if src := jsjson.Get(m, "source"); jsjson.KindOf(src) == jsjson.Object && jsjson.KindOf(jsjson.Get(src, "kind")) == jsjson.String {
		s.at("source", source, src)
	}
}

// wrapper is the one block of an identified tool result, of which the message
// rule leaves this.
func wrapper(s *shaper, v []byte) {
	if c := jsjson.Get(v, "content"); jsjson.KindOf(c) == jsjson.Array {
		s.at("content", blocks, c)
	}
	if x := jsjson.Get(v, "isError"); x != nil {
		s.at("isError", boolean, x)
	}
}

var wrappers = list(wrapper)

// inboxMessage is a message that waits to be delivered: INBOX judges it as a
// whole, as MSG-SHAPE does one that was.
func inboxMessage(s *shaper, v []byte) {
	hard := s.hard
	s.hard = false
	s.body(v)
	s.hard = hard
}
