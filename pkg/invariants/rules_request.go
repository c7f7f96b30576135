package invariants

import (
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about requests. Those without a checker compare with a recording of
// what was sent; see CompareRequests.
var requestRules = []*Rule{
	{
		ID: "REQ-BOUNDARY", Severity: Warning, Since: buildReact, Spec: "SEMANTICS §6.2, §8.1",
		Title:  "no message is logged between the header of an attempt and its first chunk",
		Text:   "From 08-05 a request is made from everything before its dispatch. The header is the last thing logged before it, so a message between the header and the first chunk was logged too late to be in the request that follows, or the request is not what the log says. From generation 2 on chunks are not logged as they come: a request holds everything before the event that ends its attempt.",
		How:    "Something appended a message while the request was on its way.",
		Advice: "Take the message as part of the next request, and treat this one as uncertain.",
		New:    func() Checker { return new(boundaryChecker) },
	},
	{
		ID: "REQ-BYTES", Severity: Error, Spec: "SEMANTICS §6",
		Title:  "a recorded request is the one the log gives",
		Text:   "The body that was sent and the body rebuilt from the log are the same bytes.",
		How:    "The log or the recording was edited, the log misses events, or something changed the request after it was logged.",
		Advice: "Look at the first difference. If it lies in a message, compare the event it came from with the recording.",
	},
	{
		ID: "REQ-KEYORDER", Severity: Warning, Spec: "SEMANTICS §5.3, §6.1",
		Title:  "a recorded request has its config in the order that was logged",
		Text:   "The config of a request may have another order of keys than the header in force, because a header that differs in nothing else is not logged again. The values are the same.",
		How:    "A listener returned the config with its keys in another order.",
		Advice: "Nothing is wrong: provider and model saw the same values.",
	},
	{
		ID: "REQ-LABEL", Severity: Error, Spec: "SEMANTICS §6",
		Title:  "a recorded request is recorded under its turn and step",
		Text:   "A line of the recording may say which turn and step its request belongs to. The bytes of the request are those that the log gives, but for another turn or step.",
		How:    "The recorder counts turns or steps in another way, lines were put together from several runs, or the recording was edited.",
		Advice: "Compare the place that the message names with the log. Where a recorder cannot know turn and step, leave both out of its lines.",
	},
	{
		ID: "REQ-MISSING", Severity: Error, Spec: "SEMANTICS §6",
		Title:  "every request of the log was recorded",
		Text:   "The log shows a request that the recording does not have.",
		How:    "The recording is incomplete, or the log holds a step that was never sent.",
		Advice: "Check that the recording belongs to this session and covers it.",
	},
	{
		ID: "REQ-EXTRA", Severity: Error, Spec: "SEMANTICS §6",
		Title:  "every recorded request is in the log",
		Text:   "The recording has a request that the log does not show.",
		How:    "The log was cut, or the recording belongs to another session or run.",
		Advice: "Check that the recording belongs to this session; then look at the end of the log.",
	},
	{
		ID: "REQ-AUX", Severity: Note, Spec: "SEMANTICS §7",
		Title:  "a recorded request that the loop did not make",
		Text:   "Compactions, titles and web searches send requests of their own. They are recorded with the others and are not compared.",
		How:    "The session used one of these features.",
		Advice: "Nothing to do.",
	},
	{
		ID: "REQ-RECORD", Severity: Error, Spec: "SEMANTICS §6",
		Title:  "a line of the recording can be read",
		Text:   "A recording holds one JSON object a line, with the exact body under request.",
		How:    "The recording was cut or edited, or is not a recording.",
		Advice: "Record the requests again.",
	},
}

// boundaryChecker looks for messages between a header event and the first chunk
// of its attempt.
type boundaryChecker struct {
	armed bool    // a header event was logged in this step and no chunk since
	late  []Place // surface events since
	types []string
}

func (b *boundaryChecker) Event(c *Context, e *logfmt.Event) {
	switch e.Type {
	case "request/header", "request/context":
		if c.Step.Open && c.Step.Known {
			b.disarm()
			b.armed = true
		}
	case "assistant/chunk":
		for i, p := range b.late {
			f := c.ReportAt(p, "", "%s stands between the header of an attempt and its first chunk at seq %d, expected it before the header or after the answer", b.types[i], e.Seq)
			f.Related = append(f.Related, Related{e.Seq, e.Pos.Line, "the first chunk of the attempt"})
		}
		b.disarm()
	case "step/start", "step/end", "turn/start", "turn/end", "llm/retry", "llm/retry-started",
		"compaction/start", "compaction/prune", "compact/start", "compact/prune", "assistant/message", "session/end-seed":
		b.disarm()
	default:
		if b.armed && c.Change != fold.Unchanged && !c.Inherited(e) && len(b.late) < 16 {
			b.late = append(b.late, c.place(e))
			b.types = append(b.types, e.Type)
		}
	}
}

func (b *boundaryChecker) disarm() { b.armed, b.late, b.types = false, nil, nil }

func (b *boundaryChecker) End(*Context) {}
