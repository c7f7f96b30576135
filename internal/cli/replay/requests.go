package replay

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/source"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/internal/report"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// RequestsSchema names the JSON lines of "requests --format jsonl".
const RequestsSchema = "dsh-audit/requests/1"

// A lister prints requests in one of the forms.
type lister interface {
	begin(path string, session string) error
	request(r *fold.Request) error
	aux(o *fold.OneShot) error
	end(total, shown int) error
}

func runRequests(c *cli.Call) error {
	path, err := oneLog(c)
	if err != nil {
		return err
	}
	format, err := c.Choice("format", "text", "jsonl")
	if err != nil {
		return err
	}
	opts, err := source.FoldOptions(c)
	if err != nil {
		return err
	}
	var out lister
	switch {
	case c.Bool("bodies") && c.IsSet("format"):
		return cli.Usage("--bodies and --format exclude each other", "--bodies has a form of its own")
	case c.Bool("bodies"):
		out = &bodyLister{c: c}
	case format == "jsonl":
		out = &lineLister{c: c}
	default:
		out = newTableLister(c)
	}
	log, err := source.One(c, path)
	if err != nil {
		return err
	}
	defer log.Close()
	v := newView(c, log)
	if err := v.ahead(c); err != nil {
		return err
	}
	session := ""
	if log.Header != nil {
		session = log.Header.ID
	}
	if err := out.begin(log.Path, session); err != nil {
		return err
	}
	candidates, inherited, aux := c.Bool("candidates"), c.Bool("inherited"), c.Bool("aux")
	var damage source.Damage
	total, shown, hiddenCandidates, hiddenInherited := 0, 0, 0, 0
	opts.OneShots = aux
	f := fold.New(log.Header, opts)
	list := func(completed []*fold.Request) error {
		for _, r := range completed {
			total++
			switch {
			case r.Inherited && !inherited:
				hiddenInherited++
				continue
			case r.Candidate != "" && !candidates:
				hiddenCandidates++
				continue
			}
			shown++
			if err := out.request(r); err != nil {
				return err
			}
		}
		return nil
	}
	n := 0
	for e, d := range v.events() {
		if n++; n&1023 == 0 && c.Err() != nil {
			return c.Err()
		}
		if d != nil {
			damage.Add(d)
			continue
		}
		if err := list(f.Add(e)); err != nil {
			return err
		}
		if !aux {
			continue
		}
		for _, o := range f.OneShots() {
			if o.Inherited && !inherited {
				continue
			}
			if err := out.aux(o); err != nil {
				return err
			}
		}
	}
	if c.Err() != nil {
		return c.Err()
	}
	if err := list(f.End()); err != nil {
		return err
	}
	if l, ok := out.(*tableLister); ok && total == 0 && (log.Class() == logfmt.Unsupported || log.Class() == logfmt.Unreadable) {
		l.silent = true // nothing was read: "no requests" would be a claim
	}
	if err := out.end(total, shown); err != nil {
		return err
	}
	if err := c.Out.Flush(); err != nil { // diagnostics come after the result
		return err
	}
	status := damage.Status(c, log)
	if format == "text" {
		if hiddenInherited > 0 {
			c.UI.Hint(fmt.Sprintf("not listed: %s of the parent log, which --inherited lists", plural.Count(hiddenInherited, "request")))
		}
		if hiddenCandidates > 0 {
			c.UI.Hint(fmt.Sprintf("%d more may or may not have been sent: see --candidates", hiddenCandidates))
		}
	}
	return status
}

// bodyLister prints {"turn":T,"step":S,"request":BODY} lines.
type bodyLister struct {
	c   *cli.Call
	buf []byte
}

func (l *bodyLister) begin(string, string) error { return nil }
func (l *bodyLister) end(int, int) error         { return nil }

func (l *bodyLister) request(r *fold.Request) error {
	b := append(l.buf[:0], `{"turn":`...)
	b = strconv.AppendInt(b, r.Turn, 10)
	b = append(b, `,"step":`...)
	b = strconv.AppendInt(b, r.Step, 10)
	b = append(b, `,"request":`...)
	b = r.AppendBody(b)
	b = append(b, '}')
	l.buf = b
	return writeJSONLine(l.c.Out, b)
}

// aux prints {"turn":T,"kind":K,"seq":N,"request":BODY}; what no log holds stands
// as "{{name}}" in BODY.
func (l *bodyLister) aux(o *fold.OneShot) error {
	b := append(l.buf[:0], `{"turn":`...)
	if o.Turn >= 0 {
		b = strconv.AppendInt(b, o.Turn, 10)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"kind":"`...)
	b = append(b, o.Kind...)
	b = append(b, `","seq":`...)
	b = strconv.AppendInt(b, o.Seq, 10)
	b = append(b, `,"request":`...)
	if o.Known() {
		b = o.AppendBody(b)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, '}')
	l.buf = b
	return writeJSONLine(l.c.Out, b)
}

// lineLister prints one JSON object a line.
type lineLister struct{ c *cli.Call }

func (l *lineLister) line(v any) error {
	b, err := report.Marshal(v)
	if err != nil {
		return err
	}
	_, err = l.c.Out.Write(append(b, '\n'))
	return err
}

func (l *lineLister) begin(path, session string) error {
	return l.line(struct {
		Kind    string      `json:"kind"`
		Schema  string      `json:"schema"`
		Path    report.Text `json:"path"`
		Session report.Text `json:"session"`
	}{"log", RequestsSchema, report.Text(path), report.Text(session)})
}

func (l *lineLister) end(total, shown int) error {
	return l.line(struct {
		Kind   string `json:"kind"`
		Total  int    `json:"total"`
		Listed int    `json:"listed"`
	}{"summary", total, shown})
}

type requestLine struct {
	Kind        string       `json:"kind"`
	Turn        int64        `json:"turn"`
	Step        int64        `json:"step"`
	Attempt     int          `json:"attempt"`
	Candidate   string       `json:"candidate,omitempty"`
	Inherited   bool         `json:"inherited,omitempty"`
	Grade       fold.Grade   `json:"grade"`
	Reasons     []string     `json:"reasons,omitempty"`
	Assumptions []string     `json:"assumptions,omitempty"`
	Mode        fold.Mode    `json:"mode"`
	Boundary    boundaryLine `json:"boundary"`
	Header      *headerLine  `json:"header"`
	Nodes       []int64      `json:"nodes"`
	Late        []int64      `json:"late,omitempty"`
	FirstChunk  *int64       `json:"firstChunk,omitempty"`
	LastChunk   *int64       `json:"lastChunk,omitempty"`
	Response    *int64       `json:"response,omitempty"`
	Finish      report.Text  `json:"finish,omitempty"`
	Line        int64        `json:"line,omitempty"`
	Offset      int64        `json:"offset"`
	Bytes       int64        `json:"bytes"`
	SHA256      string       `json:"sha256"`
}

type boundaryLine struct {
	Seq  int64  `json:"seq"`
	Rule string `json:"rule"`
}

type headerLine struct {
	Seq    int64       `json:"seq"`
	Reason report.Text `json:"reason"`
	Own    bool        `json:"own"`
}

func (l *lineLister) request(r *fold.Request) error {
	v := requestLine{
		Kind: "request", Turn: r.Turn, Step: r.Step, Attempt: r.Attempt, Candidate: r.Candidate,
		Inherited: r.Inherited, Grade: r.Grade, Reasons: r.Reasons, Assumptions: r.Assumptions, Mode: r.Mode,
		Boundary: boundaryLine{r.Boundary.Seq, r.Boundary.Rule},
		Nodes:    []int64{}, Late: r.Late,
		FirstChunk: seqPtr(r.FirstChunk), LastChunk: seqPtr(r.LastChunk), Response: seqPtr(r.Response),
		Finish: report.Text(r.Finish), Line: r.Pos.Line, Offset: r.Pos.Offset,
		Bytes: r.Len(), SHA256: digest(r),
	}
	if r.HeaderSeq >= 0 {
		v.Header = &headerLine{r.HeaderSeq, report.Text(r.HeaderReason), r.HeaderOwn}
	}
	for _, n := range r.Nodes() {
		v.Nodes = append(v.Nodes, n.Seq)
	}
	return l.line(v)
}

type auxLine struct {
	Kind      string      `json:"kind"`
	Call      string      `json:"call"`
	Seq       int64       `json:"seq"`
	Turn      *int64      `json:"turn"`
	Inherited bool        `json:"inherited,omitempty"`
	Grade     fold.Grade  `json:"grade"`
	Reasons   []string    `json:"reasons,omitempty"`
	Holes     []auxHole   `json:"holes,omitempty"`
	Endpoint  report.Text `json:"endpoint,omitempty"`
	Line      int64       `json:"line,omitempty"`
	Offset    int64       `json:"offset"`
}

type auxHole struct {
	Name   string   `json:"name"`
	SHA256 []string `json:"sha256"`
}

func (l *lineLister) aux(o *fold.OneShot) error {
	v := auxLine{Kind: "aux", Call: string(o.Kind), Seq: o.Seq, Turn: seqPtr(o.Turn), Inherited: o.Inherited,
		Grade: o.Grade, Reasons: o.Reasons, Endpoint: report.Text(o.Endpoint), Line: o.Pos.Line, Offset: o.Pos.Offset}
	for _, h := range o.Holes {
		sums := h.SHA256
		if sums == nil {
			sums = []string{}
		}
		v.Holes = append(v.Holes, auxHole{h.Name, sums})
	}
	return l.line(v)
}

func seqPtr(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

func digest(r *fold.Request) string {
	sum := r.Sum()
	return hex.EncodeToString(sum[:])
}

// tableLister prints a table.
type tableLister struct {
	c       *cli.Call
	t       *report.Table
	assumed []string // assumptions met, in order
	doubts  []string // reasons of ambiguous grades met, in order
	calls   [][]string
	silent  bool
}

func newTableLister(c *cli.Call) *tableLister {
	return &tableLister{c: c, t: report.NewTable(c.Out,
		report.Column{Name: "request"}, report.Column{Name: "grade"},
		report.Column{Name: "messages", Align: report.Right}, report.Column{Name: "bytes", Align: report.Right},
		report.Column{Name: "sha256"}, report.Column{Name: "header"},
		report.Column{Name: "before seq", Align: report.Right}, report.Column{Name: "answer", Align: report.Right},
		report.Column{Name: "notes"})}
}

// aux keeps the call for a table of its own.
func (l *tableLister) aux(o *fold.OneShot) error {
	turn := "none"
	if o.Turn >= 0 {
		turn = fmt.Sprint(o.Turn)
	}
	var notes []string
	if o.Inherited {
		notes = append(notes, "inherited")
	}
	for _, reason := range o.Reasons {
		notes = append(notes, "ambiguous: "+reason)
	}
	l.doubt(o.Reasons)
	for _, h := range o.Holes {
		notes = append(notes, "not logged: "+h.Name)
	}
	l.calls = append(l.calls, []string{string(o.Kind), turn, fmt.Sprint(o.Seq), string(o.Grade), strings.Join(notes, "; ")})
	return nil
}

func (l *tableLister) begin(string, string) error { return nil }

// doubt notes reasons that are to be explained.
func (l *tableLister) doubt(reasons []string) {
	for _, r := range reasons {
		if !slices.Contains(l.doubts, r) {
			l.doubts = append(l.doubts, r)
		}
	}
}

// explain writes what the reasons noted since mean.
func (l *tableLister) explain() error {
	for _, r := range l.doubts {
		if text := doubts[r]; text != "" {
			if _, err := fmt.Fprintf(l.c.Out, "ambiguous, %s: %s\n", r, text); err != nil {
				return err
			}
		}
	}
	l.doubts = nil
	return nil
}

func (l *tableLister) request(r *fold.Request) error {
	messages := 0
	for range r.Messages() {
		messages++
	}
	header, answer := "none", "none"
	if r.HeaderSeq >= 0 {
		header = fmt.Sprintf("%d %s", r.HeaderSeq, r.HeaderReason)
	}
	switch {
	case r.Response >= 0:
		answer = fmt.Sprint(r.Response)
	case r.Finish != "":
		answer = r.Finish
	}
	grade := string(r.Grade)
	for _, a := range r.Assumptions {
		if !slices.Contains(l.assumed, a) {
			l.assumed = append(l.assumed, a)
		}
		grade += marks[slices.Index(l.assumed, a)]
	}
	if r.Candidate == "" {
		l.doubt(r.Reasons)
	} else { // the note says why it may not have been sent
		l.doubt(slices.DeleteFunc(slices.Clone(r.Reasons), func(s string) bool { return s == fold.ReasonDispatch }))
	}
	return l.t.Row(Name(r), grade, fmt.Sprint(messages), fmt.Sprint(r.Len()), digest(r)[:12],
		header, fmt.Sprint(r.Boundary.Seq), answer, strings.Join(notes(r), "; "))
}

func (l *tableLister) end(total, shown int) error {
	if l.silent {
		return nil
	}
	if shown == 0 {
		if _, err := fmt.Fprintln(l.c.Out, "no requests"); err != nil {
			return err
		}
	} else if err := l.t.Close(); err != nil {
		return err
	}
	for i, a := range l.assumed {
		if _, err := fmt.Fprintf(l.c.Out, "%s assumes %s: %s\n", marks[i], a, assumptions[a]); err != nil {
			return err
		}
	}
	if len(l.calls) == 0 {
		return l.explain()
	}
	if _, err := fmt.Fprintln(l.c.Out, "\ncalls outside the agent loop"); err != nil {
		return err
	}
	t := report.NewTable(l.c.Out, report.Column{Name: "call"}, report.Column{Name: "turn", Align: report.Right},
		report.Column{Name: "seq", Align: report.Right}, report.Column{Name: "grade"}, report.Column{Name: "notes"})
	for _, row := range l.calls {
		if err := t.Row(row...); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return l.explain()
}

// marks stand behind a grade for the assumptions met, in order.
var marks = [...]string{"*", "+", "^", "~", "#", "=", "!", "%"}

// assumptions says what each means.
var assumptions = map[string]string{
	fold.AssumeKeyOrder: "no header was logged again, so the config had its logged key order",
	fold.AssumeFraming:  "settled by --framing",
	fold.AssumeLayout:   "settled by --config-layout",
	fold.AssumeTools:    "the request said of its tools that they are those of the header, which is not verified",
	fold.AssumeOffload:  "a put-away image had its mark as last member, which is not verified",
	fold.AssumeFixture:  "the log is a fixture, in which tokens stand for ids and paths of the run",
	fold.AssumeSnapshot: "prompt or tools are those of the files beside the fixture",
}

// doubts says what each reason of an ambiguous grade means.
var doubts = map[string]string{
	fold.ReasonDispatch:  "nothing in the log tells whether it was sent",
	fold.ReasonFraming:   "context and steering messages went between tags until 07-20, and nothing tells which build sent it; --framing settles it",
	fold.ReasonLayout:    "from 07-27 on the config goes first, in the order it was logged, and nothing tells which build sent it; --config-layout settles it",
	fold.ReasonBoundary:  "messages stand where they may have come too late for it, or the start of its turn is missing",
	fold.ReasonDamage:    "events before it are missing or damaged",
	fold.ReasonSurface:   "an event before it broke a rule that decides which messages count",
	fold.ReasonMessage:   "an event on the surface has a shape that makes no message",
	fold.ReasonHeader:    "no usable request header is in force",
	fold.ReasonScrubbed:  "the log is a fixture: its prompt or tools stand as tokens",
	fold.ReasonStep:      "its chunks lie outside any step, or in one that does not say which it is",
	fold.ReasonSession:   "it is inherited and shown as the parent's, which may have inherited it too; --parent LOG settles it",
	fold.ReasonTools:     "messages changed the tools, and what the request says of that is not verified",
	fold.ReasonCallForm:  "the harness of the time used two forms of the call",
	fold.ReasonNotLogged: "what was asked for is not in the log",
}

// Name is how a request is called on the command line.
func Name(r *fold.Request) string {
	if r.Attempt > 1 {
		return fmt.Sprintf("%d.%d.%d", r.Turn, r.Step, r.Attempt)
	}
	return fmt.Sprintf("%d.%d", r.Turn, r.Step)
}

// notes says in words what is special about a request.
func notes(r *fold.Request) []string {
	var out []string
	if r.Candidate != "" {
		out = append(out, "may not have been sent: "+r.Candidate)
	}
	if r.Inherited {
		out = append(out, "inherited")
	}
	for _, reason := range r.Reasons {
		if reason == fold.ReasonDispatch && r.Candidate != "" {
			continue
		}
		out = append(out, "ambiguous: "+reason)
	}
	if len(r.Late) > 0 {
		out = append(out, "came too late: seq "+seqs(r.Late))
	}
	if r.Mode == fold.LinearMode {
		out = append(out, "by scan")
	}
	return out
}

func seqs(list []int64) string {
	s := make([]string, len(list))
	for i, n := range list {
		s[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(s, ", ")
}
