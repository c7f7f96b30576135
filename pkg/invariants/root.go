package invariants

import (
	"strings"

	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about the places of logs: session roots and archives (PHYSICAL §1). What
// concerns one log is a finding of that log, what concerns the whole is one of a
// Result of its own, which a Root makes.
var rootRules = []*Rule{
	{
		ID: logfmt.RuleIdentity, Severity: Error, Spec: "PHYSICAL §1.5; FORMATS-V1-V4 §2.1", Since: 7_25_15_15,
		Title:  "a log lies where its header puts it",
		Text:   "The project directory is named after the cwd in the header, the session directory after the id, and the file after the format version. The harness derives the path from the header and compares; a log that lies elsewhere makes it refuse the listing of the whole root.",
		How:    "A session was copied or renamed by hand, restored into the wrong place, or its header was edited.",
		Advice: "Move the log where its header puts it, or out of the root. The log itself is not damaged by where it lies.",
	},
	{
		ID: logfmt.RuleBucket, Severity: Warning, Spec: "PHYSICAL §1.2, §1.5", Until: 7_25_15_15,
		Title:  "a log in the flat layout lies in the bucket of its cwd under its id",
		Text:   "Until 07-25 a log was a file named after its id in a directory named after a digest of its cwd. Readers took any file there until 07-23, and compared path and header in the last two days.",
		How:    "The log was copied or renamed by hand.",
		Advice: "Trust the header, which was written with the log. Nothing in the log is wrong.",
	},
	{
		ID: logfmt.RuleTwice, Severity: Error, Spec: "PHYSICAL §1.5",
		Title:  "an id lies in one place of a root",
		Text:   "The harness looks for a session by its id in every project directory. With more than one match it refuses, because it cannot know which one is meant.",
		How:    "A session was copied to another project directory instead of moved.",
		Advice: "Compare the two with dsh-diff, keep the one that goes on, and move the other out of the root.",
	},
	{
		ID: logfmt.RuleEncoding, Severity: Error, Spec: "PHYSICAL §1.5; FORMATS-V1-V4 §2.1", Since: 7_20_20_06,
		Title:  "the logs of a root are all plain or all compressed",
		Text:   "A root belongs to one encoding. Before its first operation the harness looks for the other one, and finding a single log of it refuses the root.",
		How:    "The compression setting was changed, a log was unpacked in place, or two roots were merged.",
		Advice: "Use a root of its own for each setting, or convert the logs of the smaller part.",
	},
	{
		ID: logfmt.RuleStray, Severity: Error, Spec: "PHYSICAL §1.5", Since: 7_25_15_15,
		Title:  "no log lies directly in a project directory",
		Text:   "Each session has a directory of its own. A log file directly in a project directory is the layout of older builds, and one such file makes the harness refuse the whole root.",
		How:    "A log was copied into the directory by hand, or an old root was put to use again.",
		Advice: "Move the file out of the root. It can be judged anywhere.",
	},
	{
		ID: logfmt.RuleFlat, Severity: Note, Spec: "PHYSICAL §1.2, §1.5", Until: 7_25_15_15,
		Title:  "a root has the layout with a directory for each session",
		Text:   "Builds until 07-25 kept logs as files in buckets. The root is sound for them, and later builds refuse it as a whole.",
		How:    "The root is old.",
		Advice: "Nothing is wrong with the logs. To continue the sessions use a build of their time.",
	},
	{
		ID: logfmt.RuleTemp, Severity: Note, Spec: "PHYSICAL §1.6; FORMATS-V1-V4 §2.1",
		Title:  "no temporary file or directory is left over",
		Text:   "A log is first written under a temporary name and then linked to its final one. What is left under such a name was never published and is never read.",
		How:    "The process was killed while it wrote the first events of a session, or while a session was migrated.",
		Advice: "Nothing to do. If no harness runs, the entry can be removed.",
	},
	{
		ID: logfmt.RuleGeneration, Severity: Note, Spec: "FORMATS-V1-V4 §2.1",
		Title:  "a session has one log",
		Text:   "A harness that opens a log of an older generation for writing publishes it anew in its own and keeps the older file as it was. Only the highest generation is ever read again, so it is the one that is judged.",
		How:    "The session was continued by a newer harness.",
		Advice: "Nothing to do. To look at an older generation name its file.",
	},
	{
		ID: logfmt.RuleEntry, Severity: Warning, Spec: "PHYSICAL §1.5",
		Title:  "every entry is a file or a directory",
		Text:   "Links are not followed, neither by the harness nor here, and special files are not opened. What stands behind them is not judged.",
		How:    "Somebody linked a session or a project directory into the root, or a loop.",
		Advice: "To judge what a link leads to, give that as the argument.",
	},
	{
		ID: logfmt.RuleName, Severity: Warning, Spec: "PHYSICAL §1.3, §1.4; FORMATS-V1-V4 §2.1",
		Title:  "a name is one that the harness writes",
		Text:   "The harness writes names of letters, digits, dot, underscore, hyphen and tilde only, and of the generations only those that a release wrote.",
		How:    "The file was made by another program, or by hand.",
		Advice: "Find out what made it. Such names are shown with escapes, never as they are.",
	},
	{
		ID: logfmt.RuleSidecar, Severity: Note, Spec: "PHYSICAL §1.2",
		Title:  "a summary fits its log",
		Text:   "Builds from 06-17 to 06-20 kept a small file with title, first prompt and time of the latest append beside each log. It was written after the log and never synced, so it may be behind, and no later build reads it.",
		How:    "The process was killed between the two writes, or the log was moved or continued by a later build.",
		Advice: "Nothing to do. Everything in it can be read off the log.",
		New:    func() Checker { return new(sidecarChecker) },
	},
}

// sidecarChecker compares the summary beside a log with its last event.
type sidecarChecker struct {
	at Place
	// latest is the time of the latest event, by its stamp.
	latest int64
	any    bool
}

func (s *sidecarChecker) Event(c *Context, e *logfmt.Event) {
	if c.log.Sidecar == nil || e.AfterDamage || e.Fault&logfmt.FaultTime != 0 {
		return
	}
	if !s.any || e.Time > s.latest {
		s.at, s.latest, s.any = c.place(e), e.Time, true
	}
}

func (s *sidecarChecker) End(c *Context) {
	if sum := c.log.Sidecar; sum != nil && s.any && sum.UpdatedAt < s.latest {
		c.ReportAt(s.at, "time", "the summary beside the log was last updated at %d, before this event of %d", sum.UpdatedAt, s.latest)
	}
}

// A Root gathers what the reader says about a session root or an archive, and
// makes a Result of it.
type Root struct {
	path string
	c    *Context
}

// NewRoot starts the judgement on the root or archive at path.
func NewRoot(path string, container logfmt.Container, opts Options) *Root {
	if opts.MaxPerRule <= 0 {
		opts.MaxPerRule = defaultMaxPerRule
	}
	return &Root{path, &Context{
		log:   &logfmt.Log{Path: path, Container: container},
		opts:  opts,
		found: map[string]*bucket{},
	}}
}

// Add takes a finding of the reader.
func (r *Root) Add(d *logfmt.Defect) {
	if !r.c.runs(d.Rule) {
		return
	}
	f := finding(d)
	f.order = ruleOrder(d.Rule)
	rel, ok := strings.CutPrefix(d.File, strings.TrimRight(r.path, "/")+"/")
	if r.c.log.Container == logfmt.ZIP {
		rel, ok = strings.CutPrefix(d.File, r.path+"!")
	}
	if ok && rel != "" {
		f.Message = printable(rel) + ": " + f.Message
	} else if d.File != r.path && d.File != "" {
		f.Message = printable(d.File) + ": " + f.Message
	}
	r.c.add(f)
}

// Result is the verdict on the root: its logs have verdicts of their own.
func (r *Root) Result() *Result {
	res := &Result{Path: r.path, Container: r.c.log.Container, Generation: -1, Class: logfmt.Intact}
	for _, b := range r.c.found {
		for _, f := range b.kept {
			switch f.Class {
			case logfmt.Corrupt, logfmt.Unreadable:
				if res.Class != logfmt.Unreadable {
					res.Class = f.Class
				}
			}
		}
	}
	r.c.settle(res)
	return res
}
