package invariants

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/load"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Verdict is what a log is, all in all. The first seven are in order: the worst
// wins.
type Verdict string

const (
	OK          Verdict = "ok"          // no error, no warning
	Warn        Verdict = "warn"        // warnings only
	Open        Verdict = "open"        // sound, but ends inside a turn: killed, or still running
	Torn        Verdict = "torn"        // the tail was cut; the kept prefix is sound
	Violations  Verdict = "violations"  // readable, and breaks a rule of severity error
	Corrupt     Verdict = "corrupt"     // damage in the committed region
	Unsupported Verdict = "unsupported" // a format, or an event type, that this build does not judge
	Unreadable  Verdict = "unreadable"  // I/O, permission, or not a log at all
)

// A Finding is one breach of one rule, with its place.
type Finding struct {
	Rule     string
	Severity Severity
	Class    logfmt.Class    // what physical damage makes of the log; "" for a rule about meaning
	Pos      logfmt.Position // of the record; At is added to it for the exact byte
	At       int64           // offset of the byte meant within the record; 0 for the record as a whole
	Seq      int64           // -1 when no event is meant
	Turn     int64           // the turn it belongs to; -1 when none is open or known
	Step     int64           // the step within it; -1 likewise
	Path     string          // the value meant within the event, as in "data.message.id"; "" for the event
	Message  string          // what was found and what was expected; lower case, printable
	Hint     string          // what to do next, where the rule's own advice is not enough
	Related  []Related       // other places that explain it
	More     int64           // further places of the same finding that are not listed: members of one packed row, or lines of one kind
	Dropped  bool            // lies behind the point where a torn log is cut; a note, whatever the rule says

	order int  // of the rule in the catalogue
	hard  bool // counts even in a tail that is cut
}

// Related is another place that a finding refers to.
type Related struct {
	Seq     int64
	Line    int64 // 0 when unknown
	Message string
}

// Offset is the byte offset of the finding in the plain text of the log.
func (f *Finding) Offset() int64 { return f.Pos.Offset + f.At }

// Omitted counts the findings of a rule beyond Options.MaxPerRule.
type Omitted struct {
	Rule  string
	Count int64
}

// RequestCounts counts the log's own loop requests by grade.
type RequestCounts struct {
	Exact      int64
	Messages   int64
	Ambiguous  int64
	Candidates int64 // not counted in a grade: the log cannot tell whether they were sent
	Inherited  int64 // below the header's seedLength, not counted elsewhere
}

// Options steers Check.
type Options struct {
	MaxPerRule int                  // findings kept of one rule; 0 means 100
	Rules      func(id string) bool // rules to run; nil means all
	Fold       fold.Options         // what settles what the log leaves open
	// AsLoaded judges the log as the newest harness holds it after loading: its
	// events upgraded, its torn tail dropped, its open turn closed.
	AsLoaded bool
	// Parent finds the log of another session, nil when it is not at hand. Check
	// reads and closes it. Without Parent no log is.
	Parent   func(id string) *logfmt.Log
	Paranoid Paranoia // how many requests are rebuilt a second time
	// Ahead reads in a second goroutine: one large log is judged faster when a
	// processor is idle, at the cost of a little more processor time.
	Ahead bool
	// Request is called for every request of the log, in order of dispatch,
	// candidates and inherited ones included. The request is valid during the call.
	Request func(*fold.Request)
}

const defaultMaxPerRule = 100

// Result is everything known about one log after one pass.
type Result struct {
	Path       string
	Session    string // id in the header; "" when there is none
	Container  logfmt.Container
	Generation int64       // format version in the header; -1 when there is none
	Eras       []fold.Eras // one range for each process that shows in the log, in order
	Mode       fold.Mode   // how the surface was found
	Events     int64       // events read
	Requests   RequestCounts
	// RequestsSHA256 is the SHA-256 of the SHA-256 sums, 32 bytes each, of the
	// requests counted as exact, in order of dispatch, in hexadecimal; "" when there
	// is none. Logs that agree in it sent the same.
	RequestsSHA256 string
	Usage          Usage // what providers reported
	Resumes        Resumes
	Extended       int64 // requests that were found to extend the one before, as they must
	Lineage        Lineage
	Paranoid       Paranoid
	Verdict        Verdict
	Class          logfmt.Class   // physical soundness
	Findings       []*Finding     // by place
	Omitted        []Omitted      // by rule
	Damage         *logfmt.Defect // the first damage of a torn or corrupt log
	Load           *load.Outcome  // what the newest harness of generation 0 makes of the log
	Errors         int64          // of severity error, omitted ones included
	Warnings       int64
	Notes          int64
}

// Check reads a log to its end and judges it. The error is that of the context;
// whatever is wrong with the log is in the result.
func Check(ctx context.Context, log *logfmt.Log, opts Options) (*Result, error) {
	if opts.MaxPerRule <= 0 {
		opts.MaxPerRule = defaultMaxPerRule
	}
	c := newContext(log, opts)
	defer c.lineage.close()
	records, load := log.Records(), true
	if opts.Ahead && !opts.AsLoaded && log.Archive == nil {
		// What the newest harness makes of an event does not depend on what is found
		// in it, and goes along with the reading. An archive is asked for its media
		// while it is read, and has no second goroutine.
		c.header()
		records, load = log.RecordsAhead(c.loader.Record), false
	}
	n := 0
	for r, d := range records {
		if n++; n&1023 == 1 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if d != nil {
			c.defect(d)
			continue
		}
		c.record(r, load)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	res := c.conclude()
	var err error
	if res.Paranoid, err = c.second.run(ctx, c); err != nil {
		return nil, err
	}
	c.settle(res)
	return res, nil
}

// record takes the events of a record, with load also into what the newest harness
// makes of the log.
func (c *Context) record(r *logfmt.Record, load bool) {
	for i := range r.Len() {
		if e := r.Event(i); load {
			c.load(e)
		} else {
			c.event(e)
		}
		if i == 0 && !c.opts.AsLoaded && c.run.record(c, r, load) {
			return
		}
	}
}

// conclude closes the state, lets the checkers have their last word and fills in
// the result but for its findings.
func (c *Context) conclude() *Result {
	c.header() // a log without events still has a header record to judge
	class := c.log.Class()
	// Defects that only the whole log shows are in the list and were not yielded.
	for _, d := range c.log.Defects() {
		c.defect(d)
	}
	c.loaded()
	c.fold.end()
	c.closeState()
	for _, r := range c.running {
		c.rule = r.rule
		r.checker.End(c)
	}
	c.rule = nil
	c.lineage.finish(c)
	if c.refused {
		c.nothing()
	}
	res := &Result{
		Path:       c.log.Path,
		Container:  c.log.Container,
		Generation: -1,
		Mode:       c.mode(),
		Events:     c.events,
		Requests:   c.counts,
		Class:      class,
		Eras:       c.processes(),
		Usage:      c.witness.usage,
		Resumes:    c.resumes,
		Extended:   c.extended,
		Lineage:    c.lineage.Lineage,

		RequestsSHA256: c.fold.digest(),
	}
	for _, d := range c.log.Defects() {
		if d.Class == logfmt.Torn || d.Class == logfmt.Corrupt {
			res.Damage = d
			break
		}
	}
	res.Load = c.outcome
	if h := c.log.Header; h != nil {
		res.Session, res.Generation = h.ID, h.Generation
	}
	return res
}

// settle fixes what depends on the class of the whole log, sorts, and decides.
func (c *Context) settle(res *Result) {
	unsupported := res.Class == logfmt.Unsupported
	violated := false
	weigh := func(w weight, n int64) weight {
		w = w.settle(res.Class)
		if w.class == logfmt.Unsupported {
			unsupported = true
		} else if w.severity == Error && w.class == "" {
			violated = true
		}
		res.count(w.severity, n)
		return w
	}
	for id, b := range c.found {
		b.flush()
		for _, f := range b.kept {
			w := weigh(f.weight(), 1)
			f.Severity, f.Class, f.Dropped = w.severity, w.class, w.dropped
			res.Findings = append(res.Findings, f)
		}
		if n := b.total(); n > 0 {
			res.Omitted = append(res.Omitted, Omitted{id, n})
			for w, n := range b.omitted {
				weigh(w, n)
			}
		}
	}
	sortFindings(res.Findings, res.Omitted)
	res.Verdict = c.verdict(res, violated, unsupported)
}

func (r *Result) count(s Severity, n int64) {
	switch s {
	case Error:
		r.Errors += n
	case Warning:
		r.Warnings += n
	default:
		r.Notes += n
	}
}

func (c *Context) verdict(res *Result, violated, unsupported bool) Verdict {
	switch {
	case res.Class == logfmt.Unreadable:
		return Unreadable
	case res.Class == logfmt.Corrupt:
		return Corrupt
	case violated:
		return Violations
	case unsupported:
		return Unsupported
	case res.Class == logfmt.Torn:
		return Torn
	case c.tailOpen:
		return Open
	case res.Warnings > 0:
		return Warn
	}
	return OK
}

func compareFindings(a, b *Finding) int {
	return cmp.Or(
		cmp.Compare(a.Pos.Line, b.Pos.Line),
		cmp.Compare(a.Pos.Offset, b.Pos.Offset),
		cmp.Compare(a.Seq, b.Seq),
		cmp.Compare(a.order, b.order),
		cmp.Compare(a.At, b.At),
		strings.Compare(a.Message, b.Message),
	)
}

func sortFindings(fs []*Finding, om []Omitted) {
	slices.SortStableFunc(fs, compareFindings)
	slices.SortFunc(om, func(a, b Omitted) int { return strings.Compare(a.Rule, b.Rule) })
}

// ruleOrder is the place of a rule in the catalogue.
func ruleOrder(id string) int {
	for i, r := range registry {
		if r.ID == id {
			return i
		}
	}
	return len(registry)
}

// weight is what a finding means for the verdict. Listed or not, every finding
// counts by it.
type weight struct {
	severity Severity
	class    logfmt.Class
	dropped  bool
	hard     bool // see Finding
}

func (f *Finding) weight() weight { return weight{f.Severity, f.Class, f.Dropped, f.hard} }

// settle is the weight in a log of the class.
func (w weight) settle(class logfmt.Class) weight {
	switch {
	case w.class == logfmt.Corrupt && class == logfmt.Torn:
		// The same damage, but behind everything that was committed.
		w.class, w.severity = logfmt.Torn, Warning
	case w.class == logfmt.Torn:
		w.severity = Warning
	case w.hard:
		w.dropped = false
	case (w.class == "" || w.class == logfmt.Unsupported) && w.dropped && class == logfmt.Torn:
		// The harness never gets to see the event.
		w.class, w.severity = "", Note
	default:
		w.dropped = false
	}
	return w
}

// bucket keeps some findings of one rule, the first ones, but those of a higher
// severity before others, and counts the rest.
type bucket struct {
	kept    []*Finding
	over    *Finding // the latest beyond the limit: it may still be given detail
	omitted map[weight]int64
	order   int
}

// omit counts findings that are not kept.
func (b *bucket) omit(w weight, n int64) {
	if b.omitted == nil {
		b.omitted = map[weight]int64{}
	}
	b.omitted[w] += n
}

// total is the number of findings that are not kept.
func (b *bucket) total() int64 {
	n := int64(0)
	for _, m := range b.omitted {
		n += m
	}
	return n
}

// flush settles what becomes of the latest finding beyond the limit.
func (b *bucket) flush() {
	f := b.over
	if f == nil {
		return
	}
	b.over = nil
	if f.Severity > Note {
		least := len(b.kept) - 1
		for i, k := range b.kept {
			if k.Severity <= b.kept[least].Severity {
				least = i
			}
		}
		if least >= 0 && b.kept[least].Severity < f.Severity {
			b.kept[least], f = f, b.kept[least]
		}
	}
	b.omit(f.weight(), 1)
}

func (c *Context) add(f *Finding) *Finding {
	c.reports++
	b := c.found[f.Rule]
	if b == nil {
		b = &bucket{order: ruleOrder(f.Rule)}
		c.found[f.Rule] = b
	}
	f.order = b.order
	last := b.over
	if n := len(b.kept); last == nil && n > 0 {
		last = b.kept[n-1]
	}
	if last != nil && f.Pos.Member >= 0 {
		// A packed row holds many events in one line: one finding for them all.
		if last.Pos.Line == f.Pos.Line && last.Pos.Offset == f.Pos.Offset && last.Pos.Row == f.Pos.Row && last.Path == f.Path {
			last.More++
			return last
		}
	}
	if b.flush(); len(b.kept) >= c.opts.MaxPerRule {
		b.over = f
		return f
	}
	b.kept = append(b.kept, f)
	return f
}

// Report records a finding of the rule at hand about an event, or about one
// value in it. The finding may still be given more detail.
func (c *Context) Report(e *logfmt.Event, path, format string, args ...any) *Finding {
	c.said = c.said || ofForms(c.rule.ID)
	return c.ReportAt(c.place(e), path, format, args...)
}

// ofForms reports whether a rule is about the form of an event.
func ofForms(id string) bool {
	return strings.HasPrefix(id, "EVT-") || strings.HasPrefix(id, "MSG-") || strings.HasPrefix(id, "HDR-") && id != "HDR-PLACE"
}

// A Place is where a finding points at, kept for later.
type Place struct {
	Pos        logfmt.Position
	Seq        int64
	Turn, Step int64
	Dropped    bool
}

func (c *Context) place(e *logfmt.Event) Place {
	p := Place{Pos: e.Pos, Seq: e.Seq, Turn: -1, Step: -1, Dropped: e.AfterDamage}
	if c.Turn.Open && c.Turn.Known {
		p.Turn = c.Turn.N
		if c.Step.Open && c.Step.Known {
			p.Step = c.Step.N
		}
	}
	return p
}

// ReportAt is Report for a place kept earlier.
func (c *Context) ReportAt(p Place, path, format string, args ...any) *Finding {
	f := c.add(&Finding{
		Rule:     c.rule.ID,
		Severity: c.rule.Severity,
		Pos:      p.Pos,
		Seq:      p.Seq,
		Turn:     p.Turn,
		Step:     p.Step,
		Path:     path,
		Message:  fmt.Sprintf(format, args...),
		Dropped:  p.Dropped,
	})
	if c.soft && f.Severity > Warning {
		f.Severity = Warning
	}
	if c.gen != nil && p.Dropped && slices.Contains(c.gen.hard, c.rule.ID) {
		f.hard = true
	}
	return f
}

// defect turns physical damage into a finding.
func (c *Context) defect(d *logfmt.Defect) {
	if c.defects[d] {
		return
	}
	c.defects[d] = true
	if d.Class == "" && !c.runs(d.Rule) {
		return
	}
	f := finding(d)
	if c.damaged == nil && d.Class != "" && !c.opts.AsLoaded {
		c.damage()
	}
	c.add(f)
}

// finding gives a defect the form of a finding.
func finding(d *logfmt.Defect) *Finding {
	f := &Finding{
		Rule: d.Rule, Severity: Error, Class: d.Class, Pos: d.Pos, At: d.At,
		Seq: d.Seq, Turn: -1, Step: -1, Message: printable(d.Message), Hint: printable(d.Hint),
	}
	switch d.Class {
	case logfmt.Torn:
		f.Severity = Warning
	case "": // about the place of the log: it weighs what its rule weighs
		if r := byID[d.Rule]; r != nil {
			f.Severity = r.Severity
		}
	}
	return f
}
