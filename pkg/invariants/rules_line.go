package invariants

import (
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about the bytes of a line that does parse. The writer is
// JSON.stringify, so whatever it would write otherwise was written or changed
// by something else (PHYSICAL §9.4). Its meaning is that of JSON.parse.
var lineRules = []*Rule{
	factRule("LINE-SPACE", jsjson.Whitespace, "a line has no white space between its tokens",
		"The writer puts none, and ends a line with a line feed alone. What parses the same is not the same file: sizes, offsets and digests differ.",
		"the line holds white space between its tokens", "the line ends in carriage return and line feed",
		"Nothing is lost: the values are the same. Find out which program rewrote the file, and what else it changed; an editor or a checkout that converts line ends is the usual one."),
	factRule("LINE-DUPKEY", jsjson.DuplicateKey, "an object has every key once",
		"Of a repeated key the last value counts, at the place of the first. A reader that takes the first, or shows both, sees another event than the harness does.",
		"an object in the line repeats a key: the last value counts", "",
		"Look at both values in the line. The check goes on with the last one, as the harness does; find out what wrote the other."),
	factRule("LINE-KEYS", jsjson.KeyOrder, "keys that look like array indices come first, in order",
		"JavaScript keeps such keys in ascending order before all others, so the line cannot have come from it as it stands. Requests are rebuilt with the keys where the harness puts them.",
		"an object in the line has a key like an array index out of its place", "",
		"Nothing is lost: the check goes on with the keys where the harness puts them. Find out what wrote the line."),
	factRule("LINE-NUMBER", jsjson.NumberForm|jsjson.NumberLoss, "a number is in its shortest form and keeps its value",
		"The writer prints the shortest digits that read back as the same double. A number with more digits than a double holds is silently another one to the harness.",
		"a number in the line is not in the form the writer gives it", "a number in the line is not one that a double can hold: it reads as its nearest neighbour",
		"Compare the number with a copy of the session. The check goes on with the value that the harness reads."),
	factRule("LINE-ESCAPE", jsjson.EscapeForm, "a string is escaped as the writer escapes it",
		"The writer escapes quotes, backslashes, control characters and lone surrogates, each in one way, and nothing else.",
		"a string in the line is escaped otherwise than the writer does", "",
		"Nothing is lost: the text is the same. Find out which program rewrote the file, and what else it changed."),
	factRule("LINE-UTF8", jsjson.BadUTF8, "a line is well-formed UTF-8",
		"Bytes that are no UTF-8 are read as U+FFFD, without an error. What stood there is lost to the harness and to the model.",
		"the line is not well-formed UTF-8: the bytes read as U+FFFD", "",
		"Restore the line from a copy of the session, if what stood there matters: the check goes on with U+FFFD, as the harness does."),
}

// factRule makes the rule for a fact that reading notices about a line. Every
// one of them is reported once, where it first occurs, with a count of the rest:
// they come by the file and not by the event.
func factRule(id string, fact jsjson.Facts, title, text, found, other, advice string) *Rule {
	return &Rule{
		ID: id, Severity: Warning, Alone: true, Spec: "PHYSICAL §2.1, §9.2, §9.3, §9.4", Title: title, Text: text,
		How:    "The file went through an editor or another program, or was written by one.",
		Advice: advice,
		New:    func() Checker { return &factChecker{fact: fact, found: found, other: other} },
	}
}

type factChecker struct {
	fact         jsjson.Facts
	found, other string
	first        *Finding
	line         int64
	headed       bool
}

func (f *factChecker) Event(c *Context, e *logfmt.Event) {
	f.header(c)
	if jsjson.Facts(e.Facts)&f.fact == 0 || e.Pos.Member > 0 || e.Pos.Line > 0 && e.Pos.Line == f.line {
		return
	}
	f.line = e.Pos.Line
	if f.first != nil {
		f.first.More++
		return
	}
	f.first = c.Report(e, "", "%s", f.message(jsjson.Facts(e.Facts), e.Line))
}

func (f *factChecker) message(facts jsjson.Facts, line []byte) string {
	switch {
	case f.other == "":
	case facts&jsjson.NumberLoss != 0 && f.fact&jsjson.NumberLoss != 0:
		return f.other
	case f.fact == jsjson.Whitespace && len(line) > 0 && line[len(line)-1] == '\r':
		return f.other
	}
	return f.found
}

// header looks at the header record, which is a line too.
func (f *factChecker) header(c *Context) {
	if f.headed {
		return
	}
	f.headed = true
	if h := c.log.Header; h != nil && jsjson.Facts(h.Facts)&f.fact != 0 {
		var end []byte
		if h.Pos.Length == int64(len(h.Raw))+2 {
			end = []byte{'\r'}
		}
		f.first = c.ReportAt(Place{Pos: h.Pos, Seq: -1, Turn: -1, Step: -1}, "", "%s", f.message(jsjson.Facts(h.Facts), end))
		f.line = h.Pos.Line
	}
}

func (f *factChecker) End(c *Context) { f.header(c) }
