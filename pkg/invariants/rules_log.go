package invariants

import (
	"strconv"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about the file and its records as such. Those without a checker are
// broken by physical damage, which the reader finds.
var logRules = []*Rule{
	{
		ID: "LOG-READ", Severity: Error, Spec: "PHYSICAL §1, §2",
		Title:  "the log can be read",
		Text:   "The bytes of the log come from the storage without an error and are a session log at all. Nothing can be said about what was not read.",
		How:    "A failing disk, missing permission, a folder that was unmounted, or a file that was never a session log.",
		Advice: "Check the path and its permissions, copy the file from the original storage again, and run the check on the copy.",
	},
	{
		ID: "LOG-FORMAT", Severity: Error, Spec: "PHYSICAL §5.1, §7.1, Appendix A",
		Title:  "the log is of a format that is judged here",
		Text:   "Container, schema, generation and encoding are among those this build reads. A format that is recognised but not read is neither sound nor damaged as far as this check can tell.",
		How:    "The log was written by a harness newer than this build, or kept in a container this build does not open.",
		Advice: "Use a newer build of dsh-audit, or export the session from the harness that wrote it.",
	},
	{
		ID: "LOG-HEADER", Severity: Error, Spec: "SEMANTICS §8.1; PHYSICAL §2.2, §6.4",
		Title:  "the first record is a session header",
		Text:   "A log starts with one header record: type session, version 0 (1 until 06-21), id, createdAt, and from 07-20 delegationDepth. Its optional members have their types, cwd is an absolute path, and no member is left over from policies that moved into events. The header is written once and never changed, so it must fit the oldest event and the newest.",
		How:    "The file was cut at the front, edited by hand, put together from parts of two logs, or written by a development branch.",
		Advice: "Restore the header line from a copy of the session. If none exists, note that the harness will not list or load this file as it is.",
		New:    nil,
	},
	{
		ID: "LOG-FIXTURE", Severity: Warning, Spec: "SEMANTICS §12.1",
		Title:  "the files beside a fixture can be read",
		Text:   "In a fixture of a repository tokens stand for system prompts and tools, which may lie in files beside it, called system-prompt and tool-schemas. With them its requests are rebuilt.",
		How:    "The file was edited, or has a form that is not known here.",
		Advice: "Record the fixture again. Without the file its requests are graded as ambiguous.",
	},
	{
		ID: "LOG-SEQ", Severity: Error, Spec: "SEMANTICS §0.3; PHYSICAL §2.5",
		Title:  "seq counts the events from 0 without a gap",
		Text:   "Each event carries its own index. A gap means that events are missing, a repeated or smaller seq that two writers or two files were mixed. Everything that refers to events does so by seq.",
		How:    "A line was deleted or pasted, two processes appended to one file, or a copy was interrupted and continued.",
		Advice: "Compare with a copy or with the parent log. Do not renumber: citations and replacements refer to the original seqs.",
	},
	{
		ID: "LOG-ENV", Severity: Error, Alone: true, Spec: "SEMANTICS §0.3, §8.1; PHYSICAL §2.3, §6.4, §9.1",
		Title:  "an event has the closed envelope and lossless data",
		Text:   "An event is an object with type, seq, time and data, and at most sourceEventSeqs, surfaceOp and ignorable. type is a string, seq and time are safe integers, ignorable is only ever true, and no number in it is beyond what JSON keeps: an overflowing number or a minus zero does not survive being read and written.",
		How:    "The line was edited, or written by a program other than the harness.",
		Advice: "Restore the line from a copy of the session, and find out what wrote this one. The harness refuses to load the session with it.",
		New:    stateless(checkEnvelope),
	},
	{
		ID: "LOG-TYPE", Severity: Error, Alone: true, Spec: "SEMANTICS §1, §8.1; PHYSICAL §7.3, §7.5",
		Title:  "the type of an event is known, or the event is ignorable",
		Text:   "A reader may skip an event that it does not know only if the event says ignorable: true. A type that no era wrote makes the log one that this build cannot judge. A type that was retired before the log's earlier events were written cannot have come from the builds that wrote them.",
		How:    "The log was written by a newer harness or by a third-party plugin; a retired type: an old build appended to a newer log, or the event was pasted in.",
		Advice: "For an unknown type use a newer build of dsh-audit. For a retired type look at what happened at that point of the session, and which builds had the file open.",
		New:    stateless(checkType),
	},
	{
		ID: "LOG-TIME", Severity: Warning, Spec: "SEMANTICS §0.3, §8.1",
		Title:  "time does not go back",
		Text:   "Events are stamped as they are appended, so the time rarely falls. Nothing depends on it but the order in which a reader of the log imagines things.",
		How:    "The clock was set back, the log moved between machines, or an event was inserted later.",
		Advice: "Harmless after a change of clock. Otherwise compare the event with its neighbours: it may not belong there.",
		New:    stateless(checkTime),
	},
	{
		ID: ruleRefused, Severity: Note, Spec: "PHYSICAL §2.2, §5.1, §6, §7",
		Title:  "the newest harness of the generation loads the log",
		Text:   "The harness of 2026-08-21, the newest that reads this generation, admits a log only whole: its bytes, its header, every event by the shapes of that day, those of older dialects by what it upgrades them to. An old log can be sound and still be refused, because it holds a shape that was dropped without an importer.",
		How:    "The session is older than an importer reaches, or another rule is broken as well: then that finding says what to do.",
		Advice: "Where this note stands alone nothing is wrong with the log. To continue the session use a build of its time; dsh-replay shows it as it is. With --as-loaded the log is judged as that harness would hold it, and this note is an error.",
	},
	{
		ID: "LINE-JSON", Severity: Error, Spec: "PHYSICAL §2.5, §2.6, §9.2",
		Title:  "every line is valid JSON",
		Text:   "A line that does not parse is an event, or a packed row of events, that is lost. The harness stops there: behind it nothing is read, and if a turn ends later the whole log is refused.",
		How:    "A write was cut short and more was appended behind it, a disk gave back garbage, or the line was edited.",
		Advice: "If nothing was committed behind it, the harness cuts the log there by itself. Otherwise restore the line from a copy.",
	},
	{
		ID: "LINE-BLANK", Severity: Error, Spec: "PHYSICAL §2.1, §2.5",
		Title:  "no line is blank",
		Text:   "The writer never emits an empty line, and a reader takes one for a record that does not parse.",
		How:    "The file went through an editor or was joined from pieces.",
		Advice: "Remove the blank line; the events around it are whole.",
	},
	{
		ID: "LINE-VALUE", Severity: Error, Spec: "PHYSICAL §2.5",
		Title:  "every line is an object",
		Text:   "A number, string, array or null has no seq and takes no place in the log. The line null stops the harness wherever it stands, even in a tail that would be cut.",
		How:    "Another program wrote into the file.",
		Advice: "Remove the line, and find out what wrote it.",
	},
	{
		ID: "LINE-ROW", Severity: Error, Spec: "PHYSICAL §4.4",
		Title:  "a packed row is well formed",
		Text:   "A row of type text-chunks, reasoning-chunks or tool-call-chunks stands for a run of chunk events and has an exact shape: exact keys, one time step fewer than members, whole numbers. A row that breaks it stands for no events at all.",
		How:    "The row was edited, or an event took the name of a row.",
		Advice: "Restore the row from a copy of the session in any container; the logical events are the same.",
	},
	{
		ID: "LINE-TORN", Severity: Warning, Spec: "PHYSICAL §2.6",
		Title:  "the last line ends in a line feed",
		Text:   "A last line without line feed is a write that never finished. The harness cuts it away when it continues the session, and loses nothing that was committed.",
		How:    "The process was killed, the machine lost power, or the disk was full.",
		Advice: "Nothing to do. The prefix before it is sound and the session can be continued.",
	},
	{
		ID: "TAIL-OPEN", Severity: Note, Spec: "SEMANTICS §8.5; PHYSICAL §8",
		Title:  "the log ends between turns",
		Text:   "A log that ends inside a turn is sound. Its process was killed there, or is still running. On the next load the harness adds the events that close the turn.",
		How:    "The process was killed or the log was copied while it ran.",
		Advice: "If the process still runs, check again later. Otherwise nothing is lost: continue the session, and the turn is closed as interrupted.",
	},
}

func number(n int64) string {
	if n < 0 {
		return "without a number"
	}
	return strconv.FormatInt(n, 10)
}

// checkHeaderRecord judges the members of the header record that do not keep a
// reader from going on. Facts that the events bring are judged with them.
func checkHeaderRecord(c *Context) {
	h := c.log.Header
	if c.gen != nil {
		checkExact(c)
	}
	at := Place{Pos: h.Pos, Seq: -1, Turn: -1, Step: -1}
	bad := func(key, want string) {
		c.ReportAt(at, key, "header %s is %s, expected %s", key, show(jsjson.Get(h.Raw, key)), want)
	}
	str := func(key string) bool {
		v := jsjson.Get(h.Raw, key)
		if v != nil && jsjson.KindOf(v) != jsjson.String {
			bad(key, "a string or no such member")
			return false
		}
		return v != nil
	}
	count := func(key string) {
		if v := jsjson.Get(h.Raw, key); v != nil {
			if n, ok := jsjson.SafeInt(v); !ok || n < 0 {
				bad(key, "a whole number from 0")
			}
		}
	}
	// The name of its directory is made from the id, and none is made from nothing
	// (PHYSICAL §1.3). What a database may hold is judged with its columns.
	if h.ID == "" && c.log.Database == nil && !c.log.Fixture() {
		bad("id", "a string that is not empty")
	}
	// Any number was fine until 07-24 21:14; the events tell how old the log is.
	c.oddCreation = h.Fault&logfmt.HeaderCreatedAt != 0
	if str("cwd") {
		if cwd, _ := jsjson.Str(jsjson.Get(h.Raw, "cwd")); !absolute(cwd) && !c.log.Fixture() {
			bad("cwd", "an absolute path")
		}
	}
	str("parentSession")
	count("seedLength")
	count("delegationDepth")
	if v := jsjson.Get(h.Raw, "origin"); v != nil && !jsjson.StrEq(v, "subagent") {
		bad("origin", `"subagent" or no such member`)
	}
	str("agentPreset")
	if jsjson.Facts(h.Facts)&jsjson.NumberOverflow != 0 {
		c.ReportAt(at, "", "header holds a number beyond what a double can hold")
	}
	if jsjson.Facts(h.Facts)&jsjson.NegativeZero != 0 {
		c.ReportAt(at, "", "header holds a minus zero, which no writer can store").Severity = Warning
	}
}

// absolute reports whether a path is absolute on the platform that wrote it,
// which may be any.
func absolute(p string) bool {
	if len(p) > 0 && (p[0] == '/' || p[0] == '\\') {
		return true
	}
	return len(p) > 2 && p[1] == ':' && (p[2] == '/' || p[2] == '\\') &&
		(p[0] >= 'a' && p[0] <= 'z' || p[0] >= 'A' && p[0] <= 'Z')
}

// checkHeaderAge reports a header record that the builds which wrote the event
// would have refused.
func checkHeaderAge(c *Context, e *logfmt.Event) {
	h := c.log.Header
	if c.rule = byID["LOG-HEADER"]; !c.runs(c.rule.ID) {
		return
	}
	at := Place{Pos: h.Pos, Seq: -1, Turn: -1, Step: -1}
	since := c.builds.last.from
	var f *Finding
	if h.Fault&logfmt.HeaderJune != 0 {
		f = c.ReportAt(at, "version", "header version is 1, which builds wrote until %s, but seq %d (%s) has a shape that exists since %s: expected version 0",
			eraStart[fold.E1], e.Seq, typeName(e), since)
	} else {
		f = c.ReportAt(at, "delegationDepth", "header delegationDepth is absent, but seq %d (%s) has a shape that exists since %s: expected a whole number from 0, which every header has since %s",
			e.Seq, typeName(e), since, buildDepth)
	}
	f.Related = append(f.Related, Related{e.Seq, e.Pos.Line, "the event that is too new for the header"})
}

// checkCreation reports a createdAt that the builds which wrote the event refuse.
func checkCreation(c *Context) {
	h := c.log.Header
	was := show(jsjson.Get(h.Raw, "createdAt"))
	if was == "0" {
		was = "-0" // the canonical form has no sign, and 0 itself is fine
	}
	if c.rule = byID["LOG-HEADER"]; c.runs(c.rule.ID) {
		c.ReportAt(Place{Pos: h.Pos, Seq: -1, Turn: -1, Step: -1}, "createdAt",
			"header createdAt is %s, expected milliseconds as a whole number from 0, which builds since %s ask for",
			was, buildCreatedAt)
	}
}

// typeName is the type of an event for a message.
func typeName(e *logfmt.Event) string {
	if _, known := lifetimes[e.Type]; known {
		return e.Type
	}
	if _, known := vocabulary4[e.Type]; known {
		return e.Type
	}
	return quoted(e.Type)
}

func checkEnvelope(c *Context, e *logfmt.Event) {
	// That seq is no number the reader has said: it is not the next one.
	const mine = logfmt.FaultType | logfmt.FaultTime | logfmt.FaultTimeNeg | logfmt.FaultNoData |
		logfmt.FaultExtraKey | logfmt.FaultIgnorable
	facts := jsjson.Facts(e.Facts)
	if e.Fault&mine == 0 && facts&(jsjson.NumberOverflow|jsjson.NegativeZero) == 0 || secondHeader(e) {
		return
	}
	raw := func(key string) string { return show(jsjson.Get(e.JSON, key)) }
	if e.Fault&logfmt.FaultType != 0 {
		c.Report(e, "type", "type is %s, expected a string", raw("type"))
	}
	if e.Fault&logfmt.FaultTime != 0 {
		c.Report(e, "time", "time is %s, expected milliseconds as a whole number", raw("time"))
	} else if e.Fault&logfmt.FaultTimeNeg != 0 && c.Builds.Since(buildClosedEnv) && c.Builds.Before(buildTimeNegative) {
		c.Report(e, "time", "time is %s, expected a whole number from 0 until %s", raw("time"), buildTimeNegative)
	}
	if e.Fault&logfmt.FaultNoData != 0 {
		c.Report(e, "data", "data is absent, expected the payload of %s", typeName(e))
	}
	if e.Fault&logfmt.FaultExtraKey != 0 {
		f := c.Report(e, "", "the event has a key outside the envelope: %s; expected type, seq, time, data, sourceEventSeqs, surfaceOp, ignorable", extraKeys(e.JSON))
		if !c.Builds.Since(buildClosedEnv) {
			f.Severity = Warning // the envelope was not closed before
		}
	}
	if e.Fault&logfmt.FaultIgnorable != 0 {
		c.Report(e, "ignorable", "ignorable is %s, expected true or no such key", raw("ignorable"))
	}
	if facts&jsjson.NumberOverflow != 0 {
		c.Report(e, "", "the line holds a number beyond what a double can hold, which reads as infinity and is written back as null")
	}
	if facts&jsjson.NegativeZero != 0 {
		f := c.Report(e, "", "the line holds a minus zero, which is written back as 0")
		if !c.Builds.Since(buildNoNegZero) {
			f.Severity = Warning // accepted then, though no writer could store it
		}
	}
}

func extraKeys(obj []byte) string {
	out, n := "", 0
	for k := range jsjson.Members(obj) {
		s, _ := jsjson.Str(k)
		switch s {
		case "type", "seq", "time", "data", "sourceEventSeqs", "surfaceOp", "ignorable":
			continue
		}
		if n++; n > 4 {
			return out + ", …"
		}
		if out != "" {
			out += ", "
		}
		out += quoted(s)
	}
	return out
}

// branchTypes are those of development branches, which no build of the main line
// wrote.
var branchTypes = map[string]bool{"session/inherited": true, "agent/inbox/added": true, "sandbox/acl-session": true}

// secondHeader reports whether the record is the header of another log. The
// reader says so, and there is no more to it.
func secondHeader(e *logfmt.Event) bool {
	return e.Type == "session" && e.Seq < 0 && jsjson.Get(e.JSON, "seq") == nil
}

// retired reports whether no build of the range wrote a type any more.
func retired(typ string, b Builds) bool {
	life := lifetimes[typ]
	return life.to != 0 && life.last() < b.Min
}

func checkType(c *Context, e *logfmt.Event) {
	if e.Fault&logfmt.FaultType != 0 || e.Ignorable || secondHeader(e) {
		return
	}
	life, known := lifetimes[e.Type]
	switch {
	case e.Type == "mode/set":
		f := c.Report(e, "type", "mode/set was only written by development branches, and builds since 07-22 20:34 refuse it")
		if !c.Builds.Since(7_22_20_34) {
			f.Class = logfmt.Unsupported
		}
	case !known:
		what := "no build of generation 0 wrote this type"
		if branchTypes[e.Type] {
			what = "only development branches wrote this type"
		} else if _, ok := vocabulary4[e.Type]; ok {
			what = "it came with a later generation"
		}
		f := c.Report(e, "type", "event type %s is unknown and not marked ignorable: %s", quoted(e.Type), what)
		f.Class = logfmt.Unsupported
	case retired(e.Type, c.Builds):
		f := c.Report(e, "type", "event type %s was retired on %s, but earlier events of this log were written by builds since %s",
			e.Type, life.to, c.Builds.Min)
		switch {
		case c.Builds.Since(buildIgnorable) && e.Type != "steering/message":
		case e.Type == "request/header-delta", e.Type == "context/message":
			// Refused by every build that came after, even before unknown types were.
		default:
			f.Severity = Warning
		}
	}
}

// hasTime reports whether an event has a time that its log gave it.
func hasTime(e *logfmt.Event) bool {
	return e.Fault&logfmt.FaultTime == 0 && e.Synthetic&logfmt.SyntheticTime == 0
}

func checkTime(c *Context, e *logfmt.Event) {
	if c.timed && hasTime(e) && e.Time < c.time {
		c.Report(e, "time", "time %d is %d ms before that of the event before it, %d", e.Time, c.time-e.Time, c.time)
	}
}
