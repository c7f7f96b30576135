// Package verify is the dsh-verify program: it judges session logs.
package verify

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/source"
	"github.com/dsh-audit/dsh-audit/internal/report"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/invariants"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

const help = `dsh-verify - judge session logs against the rules of the harness

usage: dsh-verify [options] PATH ...
       dsh-verify explain RULE
       dsh-verify rules

PATH is a log, "-" for standard input, or a directory. A session root is judged
as the harness reads it, with the place of every log in it; any other directory
gives every file in it that is named session*.jsonl, every session database and
every export. Logs are only read, never changed. A file named like a command is
written ./rules.

verdicts, the best first:
  ok           nothing wrong was found
  warn         sound, but something is unusual
  open         sound, but it ends inside a turn: killed, or still running
  torn         the last write was cut off; everything before it is sound
  violations   readable, but it breaks rules the harness enforces
  corrupt      bytes that were already committed are damaged
  unsupported  this build does not judge this kind of log
  unreadable   could not be read as a session log

options:
  --requests FILE  compare the one log with a recording of what was sent, lines
                   of {"turn":T,"step":S,"request":BODY}
  --as-loaded      judge each log as the harness of 2026-08-21 holds it after
                   loading; that it refuses one is an error then, not a note,
                   and nothing else in it is judged
  --strict         end with 1 for warn, open and torn too
  --notes          also list notes, which never change a verdict
  --limit N        list at most N findings of one rule (100); the rest is counted
  --framing HOW    how context and steering messages of July 17 to 20 were sent
                   where the log leaves it open: auto (default), tagged, verbatim
  --session ID     of a database that holds several sessions, judge this one only
  --format F       text (default) or json: one object, see docs/json.md
  --color WHEN     auto (default), always or never
  --help           print this
  --version        print the version

exit status:
  0  no log is violations, corrupt, unsupported or unreadable
  1  a log is violations or corrupt (with --strict also warn, open, torn)
  2  a log is unreadable, the call was wrong, or writing failed
  3  a log is unsupported, and none of the above
  130 interrupted

example: dsh-verify goldens/sound
`

// Program returns the program.
func Program() *cli.Program {
	return &cli.Program{
		Name: "dsh-verify", Help: help, Run: run,
		Flags: []ucli.Flag{cli.Option("requests", ""), cli.Switch("as-loaded"), cli.Switch("strict"), cli.Switch("notes"),
			cli.Option("limit", "100"), cli.Option("framing", "auto"), cli.Option("session", ""), cli.Option("format", "text"), cli.ColorFlag()},
		Commands: []*cli.Command{
			{Name: "explain", Run: explain, Flags: []ucli.Flag{cli.ColorFlag()},
				Help: `dsh-verify explain - say what a rule means and what to do when it is broken

usage: dsh-verify explain [options] RULE ...

options:
  --color WHEN  auto (default), always or never
  --help        print this

exit status: 0 printed, 2 no such rule
`},
			{Name: "rules", Run: rules, Flags: []ucli.Flag{cli.ColorFlag()},
				Help: `dsh-verify rules - list the rules

usage: dsh-verify rules [options]

options:
  --color WHEN  auto (default), always or never
  --help        print this

exit status: 0 printed
`},
		},
	}
}

// A judge runs through the logs of one call.
type judge struct {
	c       *cli.Call
	opts    invariants.Options
	out     report.VerifyWriter
	sum     report.Summary
	worst   invariants.Severity // of the finding that hint names
	hint    string              // rule to explain
	first   []string            // command that lists the requests of the first log
	trouble bool                // a path gave no log at all

	recording io.Reader // of --requests; nil when not given
}

func run(c *cli.Call) error {
	if len(c.Operands) == 0 {
		return cli.Usage("no log given", "usage: dsh-verify [options] PATH ...")
	}
	j := &judge{c: c}
	format, err := c.Choice("format", "text", "json")
	if err != nil {
		return err
	}
	limit, err := strconv.ParseUint(c.Text("limit"), 10, 31)
	if err != nil || limit == 0 {
		return cli.Usage(fmt.Sprintf("--limit: %q is not a number from 1", c.Text("limit")))
	}
	j.opts.MaxPerRule = int(limit)
	j.opts.AsLoaded = c.Bool("as-loaded")
	framing, err := c.Choice("framing", "auto", "tagged", "verbatim")
	if err != nil {
		return err
	}
	switch framing {
	case "tagged":
		j.opts.Fold.Framing = fold.FramingTagged
	case "verbatim":
		j.opts.Fold.Framing = fold.FramingVerbatim
	}
	if format == "json" {
		j.out = report.NewVerifyJSON(c.Out)
	} else {
		j.out = report.NewVerifyText(c.Out, c.Palette, c.Bool("notes"))
	}
	if c.IsSet("requests") {
		f, err := openRecording(c)
		if err != nil {
			return err
		}
		defer f.Close()
		j.recording = f
	}
	for _, path := range c.Operands {
		if err := j.path(path); err != nil {
			return err
		}
	}
	next := ""
	switch {
	case j.hint != "":
		next = "dsh-verify explain " + j.hint
	case j.first != nil:
		next = cli.CommandLine(j.first)
	}
	if err := j.out.Close(&j.sum, next); err != nil {
		return err
	}
	return cli.Exit(j.status())
}

// openRecording opens the file of --requests; "-" is standard input.
func openRecording(c *cli.Call) (io.ReadCloser, error) {
	name := c.Text("requests")
	if len(c.Operands) > 1 {
		return nil, cli.Usage("--requests compares one log", "run it once for each log")
	}
	if st, err := os.Stat(c.Operands[0]); err == nil && st.IsDir() {
		return nil, cli.Usage("--requests compares one log, and "+c.Operands[0]+" is a directory", "name the log in it")
	}
	if name == "-" {
		if c.Operands[0] == "-" {
			return nil, cli.Usage("standard input can be read only once", "save one of the two to a file first")
		}
		return io.NopCloser(c.Stdin), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, source.Trouble(name, err)
	}
	return f, nil
}

// status is the exit code of the verdicts.
func (j *judge) status() cli.Status {
	n := j.sum.Verdicts
	has := func(v ...invariants.Verdict) bool {
		for _, v := range v {
			if n[string(v)] > 0 {
				return true
			}
		}
		return false
	}
	switch {
	case j.trouble || has(invariants.Unreadable):
		return cli.Trouble
	case has(invariants.Violations, invariants.Corrupt):
		return cli.Found
	case j.c.Bool("strict") && has(invariants.Warn, invariants.Open, invariants.Torn):
		return cli.Found
	case has(invariants.Unsupported):
		return cli.Unsupported
	}
	return cli.OK
}

// path judges every log at one operand.
func (j *judge) path(path string) error {
	if path == "-" {
		// Standard input is not ours to close.
		log, err := logfmt.NewReader(struct{ reader }{j.c.Stdin}, "-", logfmt.Options{Session: j.c.Text("session")})
		if err != nil {
			return j.unreadable(path, err)
		}
		return j.log(log)
	}
	before, skipped := j.sum.Logs, j.sum.Skipped
	var places places
	opts := logfmt.Options{
		Session: j.c.Text("session"),
		Skip:    func(string, string) { j.sum.Skipped++ },
		Finding: func(place string, c logfmt.Container, d *logfmt.Defect) {
			places.at(place, c, j.opts).Add(d)
		},
	}
	for log, err := range logfmt.Open(path, opts) {
		if j.c.Err() != nil {
			return j.c.Err()
		}
		if err != nil {
			err = j.unreadable(path, err)
		} else {
			err = j.log(log)
		}
		if err != nil {
			return err
		}
	}
	for _, p := range places {
		if err := j.place(p.root.Result()); err != nil {
			return err
		}
	}
	if j.sum.Logs == before {
		j.trouble = true
		msg := path + ": no file in this directory is named session*.jsonl, or is a session database or an export"
		if n := j.sum.Skipped - skipped; n > 0 {
			msg += fmt.Sprintf(" (%d others passed over)", n)
		}
		j.c.UI.Error(msg)
		j.c.UI.Hint("name the log itself: any file name will do")
	}
	return nil
}

type reader interface{ Read([]byte) (int, error) }

// places are the directories and archives of one operand about which something
// is to be said, in order of appearance.
type places []struct {
	path string
	root *invariants.Root
}

func (p *places) at(path string, c logfmt.Container, opts invariants.Options) *invariants.Root {
	for i := len(*p) - 1; i >= 0; i-- {
		if (*p)[i].path == path {
			return (*p)[i].root
		}
	}
	r := invariants.NewRoot(path, c, opts)
	*p = append(*p, struct {
		path string
		root *invariants.Root
	}{path, r})
	return r
}

func (j *judge) log(log *logfmt.Log) error {
	if j.first == nil {
		j.first = []string{"dsh-replay", "requests"}
		if log.Container == logfmt.SQLite && log.Header != nil {
			j.first = append(j.first, "--session", log.Header.ID)
		}
		j.first = append(j.first, log.Path)
	}
	if j.recording == nil {
		res, err := invariants.Check(j.c, log, j.opts)
		if err != nil {
			return err
		}
		return j.result(res, nil)
	}
	// The requests come while the log is judged, in one pass.
	name := j.c.Text("requests")
	comparer := invariants.NewComparer(j.recording)
	var failed error
	opts := j.opts
	opts.Request = func(r *fold.Request) {
		if failed == nil {
			failed = comparer.Add(r)
		}
	}
	res, err := invariants.Check(j.c, log, opts)
	if err != nil {
		return err
	}
	var cmp *invariants.Comparison
	if failed == nil {
		cmp, failed = comparer.End()
	}
	if failed != nil {
		return cli.Fail(cli.Trouble, fmt.Errorf("%s: %w", name, failed))
	}
	if res.Verdict == invariants.Unreadable || res.Verdict == invariants.Unsupported {
		// Nothing was rebuilt: every recorded request would count as extra.
		return j.result(res, nil)
	}
	add(res, cmp)
	return j.result(res, &report.Compared{
		Path: report.Text(name), Recorded: cmp.Recorded, Matched: cmp.Matched, KeyOrder: cmp.KeyOrder,
		Differing: cmp.Differing, Missing: cmp.Missing, Extra: cmp.Extra, Auxiliary: cmp.Auxiliary,
		Unsent: cmp.Skipped,
	})
}

// add joins a comparison to the result of the log: what the recording
// contradicts is held against the log like any other finding.
func add(res *invariants.Result, cmp *invariants.Comparison) {
	count := func(s invariants.Severity, n int64) {
		switch s {
		case invariants.Error:
			res.Errors += n
		case invariants.Warning:
			res.Warnings += n
		default:
			res.Notes += n
		}
	}
	var errs, warns int64
	for _, f := range cmp.Findings {
		count(f.Severity, 1)
		switch f.Severity {
		case invariants.Error:
			errs++
		case invariants.Warning:
			warns++
		}
	}
	for _, o := range cmp.Omitted {
		count(invariants.Lookup(o.Rule).Severity, o.Count)
	}
	res.Findings = append(res.Findings, cmp.Findings...)
	res.Omitted = append(res.Omitted, cmp.Omitted...)
	switch res.Verdict {
	case invariants.OK, invariants.Warn, invariants.Open, invariants.Torn:
		if errs > 0 {
			res.Verdict = invariants.Violations
		} else if warns > 0 && res.Verdict == invariants.OK {
			res.Verdict = invariants.Warn
		}
	}
}

// result prints one verdict. What is printed reaches the reader at once: the
// next log may take its time.
func (j *judge) result(res *invariants.Result, cmp *report.Compared) error {
	r := convert(res)
	r.Recording = cmp
	return j.print(res, r)
}

// place prints the verdict on a directory or an archive as a whole.
func (j *judge) place(res *invariants.Result) error {
	r := convert(res)
	r.Whole = true
	return j.print(res, r)
}

func (j *judge) print(res *invariants.Result, r *report.Result) error {
	j.sum.Tally(r)
	for _, f := range res.Findings {
		if f.Severity != invariants.Note && (j.hint == "" || f.Severity > j.worst) {
			j.hint, j.worst = f.Rule, f.Severity
		}
	}
	if err := j.out.Result(r); err != nil {
		return err
	}
	return j.c.Out.Flush()
}

// unreadable is the verdict on what could not be opened.
func (j *judge) unreadable(path string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		path, err = pe.Path, pe.Err
	}
	return j.result(&invariants.Result{
		Path: path, Generation: -1, Verdict: invariants.Unreadable, Errors: 1,
		Findings: []*invariants.Finding{{
			Rule: logfmt.RuleRead, Severity: invariants.Error, Class: logfmt.Unreadable,
			Pos: logfmt.Position{Offset: -1, Frame: -1, FrameAt: -1, Row: -1, Member: -1},
			Seq: -1, Turn: -1, Step: -1, Message: err.Error(),
		}},
	}, nil)
}

// convert copies a result into the form that reports print.
func convert(res *invariants.Result) *report.Result {
	r := &report.Result{
		Path: report.Text(res.Path), Session: report.Text(res.Session), Container: string(res.Container),
		Mode: string(res.Mode), Events: res.Events, Verdict: string(res.Verdict),
		Errors: res.Errors, Warnings: res.Warnings, Notes: res.Notes,
		Requests: report.Requests{Exact: res.Requests.Exact, Messages: res.Requests.Messages,
			Ambiguous: res.Requests.Ambiguous, Candidates: res.Requests.Candidates, Inherited: res.Requests.Inherited},
	}
	if res.Generation >= 0 {
		r.Generation = &res.Generation
	}
	for _, e := range res.Eras {
		s := fmt.Sprintf("E%d", e.Min)
		if e.Max != e.Min {
			s += fmt.Sprintf("-E%d", e.Max)
		}
		r.Eras = append(r.Eras, s)
	}
	for _, f := range res.Findings {
		r.Findings = append(r.Findings, convertFinding(res.Container, f))
	}
	r.Damage = damage(res)
	for _, o := range res.Omitted {
		r.Omitted = append(r.Omitted, report.Omitted{Rule: o.Rule, Count: o.Count})
	}
	return r
}

// convertFinding copies a finding with the places its container has.
func convertFinding(c logfmt.Container, f *invariants.Finding) report.Finding {
	known := func(n int64) *int64 {
		if n < 0 {
			return nil
		}
		return &n
	}
	out := report.Finding{
		Rule: f.Rule, Severity: f.Severity.String(), Line: f.Pos.Line,
		Seq: known(f.Seq), Turn: known(f.Turn), Step: known(f.Step),
		Path: report.Text(f.Path), Message: report.Text(f.Message), Hint: report.Text(f.Hint), More: f.More,
	}
	if c == logfmt.SQLite {
		out.Row = known(f.Pos.Row)
	} else if f.Pos.Line > 0 {
		out.Offset = known(f.Offset())
	}
	if frame := f.Pos.Frame; c == logfmt.Zstd && frame >= 0 {
		out.Frame = &frame
	}
	for _, r := range f.Related {
		out.Related = append(out.Related, report.Related{Line: r.Line, Seq: known(r.Seq), Message: report.Text(r.Message)})
	}
	return out
}

func explain(c *cli.Call) error {
	if len(c.Operands) == 0 {
		return cli.Usage("no rule given", "to list the rules, run: dsh-verify rules")
	}
	for i, id := range c.Operands {
		r := invariants.Lookup(strings.ToUpper(id))
		if r == nil {
			return cli.Usage("no rule "+cli.Quote(id), "to list the rules, run: dsh-verify rules")
		}
		if i > 0 {
			fmt.Fprintln(c.Out)
		}
		fmt.Fprintf(c.Out, "%s (%s): %s\n", c.Palette.Head(r.ID), r.Severity, r.Title)
		for _, part := range []struct{ label, text string }{
			{"meaning", r.Text}, {"how it happens", r.How}, {"what to do", r.Advice},
			{"holds", r.When()}, {"specification", r.Spec},
		} {
			if part.text == "" {
				continue
			}
			fmt.Fprintf(c.Out, "\n%s\n%s", c.Palette.Head(part.label), wrap(part.text, "  ", 78))
		}
	}
	return nil
}

// wrap breaks text into lines of at most width bytes, each behind indent.
func wrap(text, indent string, width int) string {
	var b strings.Builder
	n := 0
	for _, w := range strings.Fields(text) {
		switch {
		case n == 0:
			b.WriteString(indent)
			n = len(indent)
		case n+1+len(w) > width:
			b.WriteString("\n" + indent)
			n = len(indent)
		default:
			b.WriteByte(' ')
			n++
		}
		b.WriteString(w)
		n += len(w)
	}
	b.WriteByte('\n')
	return b.String()
}

func rules(c *cli.Call) error {
	if len(c.Operands) > 0 {
		return cli.Usage("rules takes no operand", "to explain one, run: "+cli.CommandLine(append([]string{"dsh-verify", "explain"}, c.Operands[0])))
	}
	t := report.NewTable(c.Out, report.Column{Name: "rule"}, report.Column{Name: "severity"}, report.Column{Name: "says that"})
	for _, r := range invariants.All() {
		if err := t.Row(r.ID, r.Severity.String(), r.Title); err != nil {
			return err
		}
	}
	return t.Close()
}
