package invariants

import (
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about the payload of the core events.
var shapeRules = []*Rule{
	{
		ID: "EVT-SHAPE", Severity: Error, Alone: true, Spec: "SEMANTICS §1, §2.1, §8.3, §9; PHYSICAL §6.2, §7.6",
		Title:  "the data of an event has the members its type asks for",
		Text:   "Turns and steps are numbered by whole numbers from 1, a chunk names its block, a tool call carries its id, name and raw arguments, a turn ends for a reason of a known form, and each event of a plugin holds what the builds of its time put there. A member that is missing or of another type leaves the event without the meaning that later events rely on. It is an error where a check of the harness stumbles over it and a warning where none looks; members beyond the known ones are no fault unless the set is closed.",
		How:    "The event was edited, or written by a program other than the harness.",
		Advice: "Compare the event with a copy of the session. Requests that depend on it are rebuilt on a guess at best.",
		New:    func() Checker { return new(shapeChecker) },
	},
	{
		ID: "MSG-SHAPE", Severity: Error, Alone: true, Spec: "SEMANTICS §2, §3.3; PHYSICAL §6.5",
		Title:  "a message is whole",
		Text:   "A message that the model sees has the role of its event, an array of content and a source with a kind; from 07-28 an id of its own. The answer of a model names provider and model, a tool result holds exactly one block and answers the call it names. The harness checks this at every append and at every load.",
		How:    "The event was edited, or a plugin wrote it past the harness.",
		Advice: "Restore the event from a copy. The harness refuses to load the session with it.",
		Types:  []string{"user/message", "assistant/message", "tool/result", "context/message", "steering/message"},
		New:    stateless(checkMessage),
	},
}

// retiredRules come last: what another rule says of an event is said better there.
var retiredRules = []*Rule{
	{
		ID: "EVT-RETIRED", Severity: Warning, Alone: true, Spec: "SEMANTICS §1.1, §10.4; PHYSICAL §7.6",
		Title:  "an event does not have a form that was given up before",
		Text:   "Builds changed what the events of a type hold: from 07-28 a message is stored with its id, until 08-05 the start of a turn names its trigger, and so on. Events before this one show a build that no longer wrote its form. The harness upgrades most old forms when it loads a log, so it may not notice, but while it ran it cannot have written this one.",
		How:    "The event was edited or written by another program, or an older build went on with the session of a newer one.",
		Advice: "Find out what wrote this event. If an older build had the file open, the requests since then were built by its rules.",
		New:    stateless(checkRetired),
	},
}

func checkRetired(c *Context, e *logfmt.Event) {
	if !c.Foreign || c.said || !c.ownWriting(e) || retired(e.Type, c.Builds) {
		return
	}
	c.Report(e, "data", "%s has a form that was given up on %s, but earlier events of this log were written by builds since %s",
		e.Type, c.builds.last.to, c.Builds.Min)
}

// A want is what a member has to be; it returns "" or what was expected.
type want func(v []byte) string

func wantPositive(v []byte) string {
	if n, ok := jsjson.SafeInt(v); ok && n >= 1 {
		return ""
	}
	return "a whole number from 1"
}

func wantCount(v []byte) string {
	if n, ok := jsjson.SafeInt(v); ok && n >= 0 {
		return ""
	}
	return "a whole number from 0"
}

func wantNumber(v []byte) string {
	if jsjson.KindOf(v) == jsjson.Number {
		return ""
	}
	return "a number"
}

func wantString(v []byte) string {
	if jsjson.KindOf(v) == jsjson.String {
		return ""
	}
	return "a string"
}

func wantText(v []byte) string {
	if jsjson.KindOf(v) == jsjson.String && len(v) > 2 {
		return ""
	}
	return "a non-empty string"
}

func wantBool(v []byte) string {
	if jsjson.KindOf(v) == jsjson.Bool {
		return ""
	}
	return "true or false"
}

func wantTrue(v []byte) string {
	if string(v) == "true" {
		return ""
	}
	return "true or no such member"
}

func wantArray(v []byte) string {
	if jsjson.KindOf(v) == jsjson.Array {
		return ""
	}
	return "an array"
}

func wantObject(v []byte) string {
	if jsjson.KindOf(v) == jsjson.Object {
		return ""
	}
	return "an object"
}

func wantOwner(v []byte) string {
	if jsjson.KindOf(v) == jsjson.Null {
		return ""
	}
	if wantPositive(v) == "" {
		return ""
	}
	return "a turn number or null"
}

// member is one member of a payload.
type member struct {
	key  string
	want want
	opt  bool
}

// checkMessage judges the message of a surface event. The shape tells whether
// it is an identified one (from 07-28) or one of those before.
func checkMessage(c *Context, e *logfmt.Event) {
	d := e.Data
	if jsjson.KindOf(d) != jsjson.Object {
		if e.Type == "user/message" || e.Type == "context/message" {
			if e.Fault&logfmt.FaultNoData == 0 {
				c.Report(e, "data", "data of %s is %s, expected an object", e.Type, show(d))
			}
		}
		return
	}
	m := messageCheck{c: c, e: e}
	nested := c.message()
	switch e.Type {
	case "user/message":
		if jsjson.Get(d, "role") != nil || jsjson.Get(d, "id") != nil || c.Builds.Since(buildMessages) && jsjson.Get(d, "source") == nil {
			m.identified(d, "data")
			return
		}
		m.legacy(d)
	case "context/message":
		m.legacy(d)
	case "steering/message":
		if nested != nil {
			m.identified(nested, "data.message")
			return
		}
		m.legacy(d)
	case "assistant/message":
		switch {
		case nested != nil:
			m.identified(nested, "data.message")
		case jsjson.Get(d, "provenance") == nil && c.Builds.Since(buildMessages):
			c.Report(e, "data.message", "message of assistant/message is absent, expected an identified message from %s", buildMessages)
		default:
			m.array(d, "data", "content")
			m.provenance()
		}
	case "tool/result":
		switch {
		case nested != nil:
			m.identified(nested, "data.message")
		case c.Builds.Since(buildMessages) && jsjson.Get(d, "callId") == nil:
			c.Report(e, "data.message", "message of tool/result is absent, expected an identified message from %s", buildMessages)
		default:
			m.member(d, "data", member{key: "callId", want: wantString})
			m.array(d, "data", "content")
			m.member(d, "data", member{key: "isError", want: wantBool})
		}
	}
}

type messageCheck struct {
	c *Context
	e *logfmt.Event
}

func (m messageCheck) member(obj []byte, path string, w member) bool {
	v := jsjson.Get(obj, w.key)
	if v == nil && w.opt {
		return true
	}
	exp := w.want(v)
	if exp != "" {
		m.c.Report(m.e, path+"."+w.key, "%s of the message is %s, expected %s", w.key, show(v), exp)
	}
	return exp == ""
}

func (m messageCheck) array(obj []byte, path, key string) bool {
	return m.member(obj, path, member{key: key, want: wantArray})
}

// source checks that there is a source and that it says what kind it is.
func (m messageCheck) source(obj []byte, path string) []byte {
	if !m.member(obj, path, member{key: "source", want: wantObject}) {
		return nil
	}
	src := jsjson.Get(obj, "source")
	if !m.member(src, path+".source", member{key: "kind", want: wantText}) {
		return nil
	}
	return src
}

func (m messageCheck) legacy(d []byte) {
	m.array(d, "data", "content")
	m.source(d, "data")
	if !m.c.ownWriting(m.e) {
		return
	}
	// Prompts and what took the place of contexts had them for five days, contexts
	// their envelope for three (SEMANTICS §1.1).
	for _, x := range [...]struct {
		key  string
		gone Build
	}{{"envelope", buildNoPrefix}, {"meta", buildNoPrefix}} {
		if x.key == "envelope" && m.e.Type == "context/message" {
			x.gone = eraStart[fold.E6]
		}
		if v := jsjson.Get(d, x.key); v != nil && m.c.Builds.Since(x.gone) {
			m.c.Report(m.e, "data."+x.key, "%s of %s is %s, but builds since %s, which wrote this, have no such member", x.key, m.e.Type, show(v), x.gone).Severity = Warning
		}
	}
}

func (m messageCheck) provenance() {
	p := jsjson.Get(m.e.Data, "provenance")
	if p == nil {
		if m.c.Builds.Since(buildProvider) {
			m.c.Report(m.e, "data.provenance", "provenance of assistant/message is absent, expected provider and model from %s", buildProvider)
		}
		return
	}
	if jsjson.KindOf(p) != jsjson.Object {
		m.c.Report(m.e, "data.provenance", "provenance of the message is %s, expected an object", show(p))
		return
	}
	m.member(p, "data.provenance", member{key: "provider", want: wantText})
	m.member(p, "data.provenance", member{key: "model", want: wantText})
}

func (m messageCheck) identified(msg []byte, path string) {
	if jsjson.KindOf(msg) != jsjson.Object {
		m.c.Report(m.e, path, "the message is %s, expected an object", show(msg))
		return
	}
	m.member(msg, path, member{key: "id", want: wantText})
	role := "user"
	if m.e.Type == "assistant/message" {
		role = "assistant"
	}
	if v := jsjson.Get(msg, "role"); !jsjson.StrEq(v, role) {
		m.c.Report(m.e, path+".role", "role of the message is %s, expected %q for %s", show(v), role, m.e.Type)
	}
	array := m.array(msg, path, "content")
	src := m.source(msg, path)
	switch m.e.Type {
	case "assistant/message":
		if src == nil {
			return
		}
		if !jsjson.StrEq(jsjson.Get(src, "kind"), "model") {
			m.c.Report(m.e, path+".source.kind", "source kind of assistant/message is %s, expected \"model\"", show(jsjson.Get(src, "kind")))
			return
		}
		m.member(src, path+".source", member{key: "provider", want: wantText})
		m.member(src, path+".source", member{key: "model", want: wantText})
	case "tool/result":
		m.toolResult(msg, path, src, array)
	}
}

func (m messageCheck) toolResult(msg []byte, path string, src []byte, array bool) {
	call := []byte(nil)
	if src != nil {
		if !jsjson.StrEq(jsjson.Get(src, "kind"), "tool") {
			m.c.Report(m.e, path+".source.kind", "source kind of tool/result is %s, expected \"tool\"", show(jsjson.Get(src, "kind")))
		} else if m.member(src, path+".source", member{key: "callId", want: wantText}) {
			call = jsjson.Get(src, "callId")
		}
	}
	if !array {
		return
	}
	content := jsjson.Get(msg, "content")
	if n := jsjson.Len(content); n != 1 {
		m.c.Report(m.e, path+".content", "content of tool/result has %s, expected exactly one", plural.Count(n, "block"))
		return
	}
	block, at := jsjson.Index(content, 0), path+".content[0]"
	if !jsjson.StrEq(jsjson.Get(block, "type"), "tool-result") {
		m.c.Report(m.e, at+".type", "type of the block is %s, expected \"tool-result\"", show(jsjson.Get(block, "type")))
		return
	}
	if v := jsjson.Get(block, "content"); wantArray(v) != "" {
		m.c.Report(m.e, at+".content", "content of the tool-result block is %s, expected an array", show(v))
	}
	if v := jsjson.Get(block, "toolCallId"); call != nil && !jsjson.Equal(v, call) {
		m.c.Report(m.e, at+".toolCallId", "toolCallId of the block is %s, expected the callId of the message's source, %s", show(v), show(call))
	}
}
