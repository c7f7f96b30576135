package invariants

import (
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// genMessage judges the message of a surface event where the prompt, the
// developer and, from generation 4, results of tools have messages of their own
// (FORMATS §6.2, §7.4 M).
func genMessage(c *Context, e *logfmt.Event) {
	m := messageCheck{c: c, e: e}
	switch e.Type {
	case "agent/inbox/spliced":
		genSlots(c, e, "inserted")
		return
	case "session/title-llm-request":
		genSlots(c, e, "messages")
		return
	case "system/message", "developer/message":
		genOwn(m)
	case "tool/result":
		if c.gen.bare {
			genToolResult(m)
			break
		}
		checkMessage(c, e)
		block := jsjson.Index(jsjson.Get(jsjson.Get(e.Data, "message"), "content"), 0)
		if jsjson.Get(e.Data, "error") != nil && block != nil && !truthy(block, "isError") {
			c.Report(e, "data.error", "error is %s, expected none unless isError of the block is true", show(jsjson.Get(e.Data, "error")))
		}
	default:
		checkMessage(c, e)
	}
	if !c.gen.bare {
		return
	}
	msg, path := jsjson.Get(e.Data, "message"), "data.message"
	if e.Type == "user/message" {
		msg, path = e.Data, "data"
	}
	genSource(c, e, msg, path)
}

// genSource holds the source of a message to what generation 4 made of it: its
// kind is who produced it.
func genSource(c *Context, e *logfmt.Event, msg []byte, path string) {
	if jsjson.StrEq(jsjson.Get(jsjson.Get(msg, "source"), "kind"), "plugin") {
		c.Report(e, path+".source.kind", `source kind is "plugin", which ended with generation 3: expected the name of the producer`)
	}
}

// genSlots looks at the messages in a list: whole ones, of which only what retired
// is judged here.
func genSlots(c *Context, e *logfmt.Event, key string) {
	n := 0
	for msg := range jsjson.Elements(jsjson.Get(e.Data, key)) {
		path := "data." + key + "[" + number(int64(n)) + "]"
		n++
		if jsjson.KindOf(msg) != jsjson.Object {
			c.Report(e, path, "the message is %s, expected an object", show(msg))
			continue
		}
		src := jsjson.Get(msg, "source")
		if exp := wantText(jsjson.Get(src, "kind")); exp != "" {
			c.Report(e, path+".source.kind", "source kind of the message is %s, expected %s", show(jsjson.Get(src, "kind")), exp)
		}
		genSource(c, e, msg, path)
		if jsjson.StrEq(jsjson.Get(msg, "role"), "developer") {
			c.Report(e, path+".role", "role of the message is \"developer\", which only a developer/message has")
		}
	}
}

// genOwn judges a message of the system or the developer.
func genOwn(m messageCheck) {
	c, e := m.c, m.e
	if jsjson.KindOf(e.Data) != jsjson.Object {
		return // said of the shape of the event
	}
	msg := jsjson.Get(e.Data, "message")
	if jsjson.KindOf(msg) != jsjson.Object {
		c.Report(e, "data.message", "the message is %s, expected an object", show(msg))
		return
	}
	m.member(msg, "data.message", member{key: "id", want: wantText})
	role := "system"
	if e.Type == "developer/message" {
		role = "developer"
	}
	if v := jsjson.Get(msg, "role"); !jsjson.StrEq(v, role) {
		c.Report(e, "data.message.role", "role of the message is %s, expected %q for %s", show(v), role, e.Type)
	}
	m.array(msg, "data.message", "content")
	src := m.source(msg, "data.message")
	if src != nil && !c.gen.bare && !jsjson.StrEq(jsjson.Get(src, "kind"), "plugin") {
		c.Report(e, "data.message.source.kind", "source kind of %s is %s, expected \"plugin\"", e.Type, show(jsjson.Get(src, "kind")))
	}
}

// genToolResult judges a result that is its own message (FORMATS §7.4 M6 to M8).
func genToolResult(m messageCheck) {
	c, e := m.c, m.e
	if jsjson.KindOf(e.Data) != jsjson.Object {
		return
	}
	msg := jsjson.Get(e.Data, "message")
	if jsjson.KindOf(msg) != jsjson.Object {
		c.Report(e, "data.message", "the message is %s, expected an object", show(msg))
		return
	}
	const path = "data.message"
	m.member(msg, path, member{key: "id", want: wantText})
	if v := jsjson.Get(msg, "role"); !jsjson.StrEq(v, "tool") {
		c.Report(e, path+".role", "role of the message is %s, expected \"tool\" for tool/result", show(v))
	}
	m.array(msg, path, "content")
	m.member(msg, path, member{key: "isError", want: wantBool, opt: true})
	call := jsjson.Get(msg, "toolCallId")
	m.member(msg, path, member{key: "toolCallId", want: wantText})
	if src := m.source(msg, path); src != nil {
		if !jsjson.StrEq(jsjson.Get(src, "kind"), "tool") {
			c.Report(e, path+".source.kind", "source kind of tool/result is %s, expected \"tool\"", show(jsjson.Get(src, "kind")))
		} else if v := jsjson.Get(src, "callId"); !jsjson.Equal(v, call) {
			c.Report(e, path+".source.callId", "callId of the message's source is %s, expected its toolCallId, %s", show(v), show(call))
		}
	}
	if jsjson.Get(e.Data, "error") != nil && !truthy(msg, "isError") {
		c.Report(e, "data.error", "error is %s, expected none unless isError of the message is true", show(jsjson.Get(e.Data, "error")))
	}
}

// blockPlaces are where content blocks stand in payloads, besides messages.
var blockPlaces = map[string][]string{
	"compaction/summary":      {"summary", "rawOutput"},
	"tool/ptc-dispatch":       {"content"},
	"tool/ptc-dispatch-start": nil,
}

// genBlocks looks for blocks that generation 4 has given up (FORMATS §7.4 M3 to
// M5).
func genBlocks(c *Context, e *logfmt.Event) {
	d := e.Data
	switch e.Type {
	case "user/message":
		blocksIn(c, e, d, "data", false)
	case "system/message", "assistant/message", "tool/result", "developer/message":
		blocksIn(c, e, jsjson.Get(d, "message"), "data.message", e.Type == "developer/message")
	case "team/message/queued":
		blocksIn(c, e, jsjson.Get(d, "message"), "data.message", false)
	case "agent/inbox/spliced", "session/title-llm-request":
		key := "inserted"
		if e.Type == "session/title-llm-request" {
			key = "messages"
		}
		n := 0
		for m := range jsjson.Elements(jsjson.Get(d, key)) {
			blocksIn(c, e, m, "data."+key+"["+number(int64(n))+"]", false)
			n++
		}
	}
	for _, key := range blockPlaces[e.Type] {
		blockList(c, e, jsjson.Get(d, key), "data."+key, false)
	}
	if e.Type != "assistant/message" && e.Type != "assistant/attempt" {
		return
	}
	n := 0
	for r := range jsjson.Elements(jsjson.Get(d, "stream")) {
		ch := jsjson.Get(r, "chunk")
		path := "data.stream[" + number(int64(n)) + "].chunk"
		n++
		if v := jsjson.Get(ch, "blockType"); retiredBlock(v) {
			c.Report(e, path+".blockType", "a chunk starts a block of type %s, which no stream of generation %d has", show(v), c.gen.version)
		}
		if v := jsjson.Get(jsjson.Get(ch, "block"), "type"); retiredBlock(v) {
			c.Report(e, path+".block.type", "a chunk ends a block of type %s, which no stream of generation %d has", show(v), c.gen.version)
		}
	}
}

func retiredBlock(typ []byte) bool {
	return jsjson.StrEq(typ, "tool-result") || jsjson.StrEq(typ, "tool-addition") || jsjson.StrEq(typ, "tool-removal")
}

func blocksIn(c *Context, e *logfmt.Event, msg []byte, path string, updates bool) {
	blockList(c, e, jsjson.Get(msg, "content"), path+".content", updates)
}

func blockList(c *Context, e *logfmt.Event, list []byte, path string, updates bool) {
	if jsjson.KindOf(list) != jsjson.Array {
		return
	}
	n := 0
	for b := range jsjson.Elements(list) {
		at := path + "[" + number(int64(n)) + "]"
		n++
		typ := jsjson.Get(b, "type")
		switch {
		case jsjson.StrEq(typ, "tool-result"):
			c.Report(e, at+".type", "a block of type tool-result, which ended with generation 3: a result is a message of role tool")
		case !retiredBlock(typ):
		case !updates:
			c.Report(e, at+".type", "a block of type %s, which only a developer/message has", show(typ))
		case wantText(jsjson.Get(b, "toolName")) != "":
			c.Report(e, at+".toolName", "toolName of the block is %s, expected a non-empty string", show(jsjson.Get(b, "toolName")))
		case jsjson.Get(b, "tool") != nil:
			c.Report(e, at+".tool", "the block holds a tool, expected only its name")
		}
	}
}

// genUpdate holds messages that change the tools to the headers they name.
type genUpdate struct {
	seqs  map[int64]bool
	tools map[int64][]byte // of the latest few headers
	order []int64
}

func (u *genUpdate) Event(c *Context, e *logfmt.Event) {
	if e.Type == "request/header" {
		if u.seqs == nil {
			u.seqs, u.tools = map[int64]bool{}, map[int64][]byte{}
		}
		u.seqs[e.Seq] = true
		u.tools[e.Seq] = clone(jsjson.Get(jsjson.Get(e.Data, "header"), "tools"))
		if u.order = append(u.order, e.Seq); len(u.order) > 32 {
			delete(u.tools, u.order[0])
			u.order = u.order[1:]
		}
		return
	}
	content := jsjson.Get(jsjson.Get(e.Data, "message"), "content")
	if jsjson.KindOf(content) != jsjson.Array {
		return
	}
	var added []string
	for b := range jsjson.Elements(content) {
		if jsjson.StrEq(jsjson.Get(b, "type"), "tool-addition") {
			name, _ := jsjson.Str(jsjson.Get(b, "toolName"))
			added = append(added, name)
		}
	}
	v := jsjson.Get(e.Data, "headerSeq")
	if v == nil && added != nil {
		c.Report(e, "data.headerSeq", "headerSeq is absent, expected the seq of the header that defines the added tools")
		return
	}
	if v == nil {
		return
	}
	n, ok := jsjson.SafeInt(v)
	switch {
	case added == nil:
		c.Report(e, "data.headerSeq", "headerSeq is %s, expected none in a message that adds no tool", show(v))
		return
	case !ok || n < 0 || n >= e.Seq:
		c.Report(e, "data.headerSeq", "headerSeq is %s, expected the seq of an earlier request/header", show(v))
		return
	case !u.seqs[n]:
		if !c.Doubtful(n) {
			c.Report(e, "data.headerSeq", "headerSeq names seq %d, which is no request/header", n)
		}
		return
	}
	tools, known := u.tools[n]
	if !known {
		return
	}
	for _, name := range added {
		var found []byte
		count := 0
		for t := range jsjson.Elements(tools) {
			if jsjson.StrEq(jsjson.Get(t, "name"), name) {
				found = t
				count++
			}
		}
		switch {
		case count != 1:
			c.Report(e, "data.headerSeq", "the header at seq %d has %d tools named %s, expected one", n, count, quoted(name))
		case wantString(jsjson.Get(found, "description")) != "" || wantObject(jsjson.Get(found, "parameters")) != "":
			c.Report(e, "data.headerSeq", "the tool %s in the header at seq %d has no description or no parameters", quoted(name), n)
		}
	}
}

func (u *genUpdate) End(*Context) {}

// genHeader judges a request header (FORMATS §6.2, §7.4 Q).
func genHeader(c *Context, e *logfmt.Event) {
	h := jsjson.Get(e.Data, "header")
	// The harness looks at little of this once a log is written: what it does not
	// refuse is a warning.
	c.soft = true
	checkHeaderShape(c, e)
	c.soft = false
	if jsjson.KindOf(h) != jsjson.Object || !c.gen.rooted {
		return
	}
	gone := func(key, why string) {
		f := c.Report(e, "data.header."+key, "%s of the header is %s, expected it to be left out: %s", key, show(jsjson.Get(h, key)), why)
		f.hard = f.Dropped && c.gen.hard != nil
	}
	if jsjson.Get(h, "system") != nil {
		gone("system", "the system prompt is a message from generation 3 on")
	}
	if v := jsjson.Get(h, "tools"); jsjson.KindOf(v) == jsjson.Array && len(v) == 2 {
		gone("tools", "it is empty")
	}
	if v := jsjson.Get(h, "adapterDefaults"); jsjson.KindOf(v) == jsjson.Object && len(v) == 2 {
		gone("adapterDefaults", "it is empty")
	}
	if !c.gen.bare {
		return
	}
	n := 0
	for t := range jsjson.Elements(jsjson.Get(h, "tools")) {
		if v := jsjson.Get(t, "deferLoading"); v != nil && string(v) != "true" {
			f := c.Report(e, "data.header.tools["+number(int64(n))+"].deferLoading", "deferLoading of tool %d is %s, expected true or no such member", n, show(v))
			f.hard = f.Dropped && c.gen.hard != nil
		}
		n++
	}
}

// genFirstHeader looks for an answer before any header.
type genFirstHeader struct{ done bool }

func (h *genFirstHeader) Event(c *Context, e *logfmt.Event) {
	if h.done {
		return
	}
	h.done = true
	if e.Type != "request/header" && !c.HeaderSeen && !c.HeaderLost && c.Turn.Known && c.Step.Known {
		c.Report(e, "", "the model answers before any request/header, expected one first")
	}
}

func (h *genFirstHeader) End(*Context) {}

// genNoop looks for a change of header that changes nothing. The prompt may be
// what changed: it was part of the header once.
type genNoop struct{ prompt bool }

func (n *genNoop) Event(c *Context, e *logfmt.Event) {
	if e.Type == "system/message" {
		n.prompt = true
		return
	}
	if !n.prompt {
		checkNoop(c, e)
	}
	n.prompt = false
}

func (n *genNoop) End(*Context) {}
