// Package diff is the dsh-diff program: it compares requests and recordings and
// explains what differs.
package diff

import (
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"os"
	"strconv"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/source"
	"github.com/dsh-audit/dsh-audit/internal/report"
	"github.com/dsh-audit/dsh-audit/internal/ui"
	"github.com/dsh-audit/dsh-audit/pkg/drift"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

const help = `dsh-diff - say what changed in what the model saw, and why

usage: dsh-diff [options] A B
       dsh-diff [options] --steps LOG
       dsh-diff [options] --resumes LOG or ROOT ...
       dsh-diff [options] --fork CHILD PARENT
       dsh-diff [options] --runs LOG LOG
       dsh-diff [options] --headers LOG or ROOT ...
       dsh-diff [options] --cache LOG or ROOT ...
       dsh-diff [options] --generations DIR ...

A and B are each LOG@TURN.STEP or LOG@TURN.STEP.ATTEMPT, one request of a log, or
LOG, its last request. What follows the last "@" names the request; a file that
has the whole name wins. LOG may be "-", standard input, on one side.

Shown are the config, the system prompt line by line, the tools by name, the
messages, whether B extends A, and the first byte that differs. Under every
difference stands the event of the log that made it; what no event accounts for
is called UNEXPLAINED.

modes:
  --steps         each request against the one before it: an extension, or a
                  break and its cause
  --resumes       each process that went on with a log: same header, or which
                  drift; what crash repair added; messages that are others now
  --fork          the prefix a child inherited against its parent's log, and what
                  the child's first own request changed
  --runs          two recordings of one scenario, turn by turn; ids and working
                  directories are matched one to one, times are not compared
  --headers       how models, system prompts and tools vary over many sessions
  --cache         what of each request a provider could reuse, where the prefix
                  breaks, and the cache reads expected and reported
  --generations   logs that lie beside their own successor of a later format
                  generation: the same conversation, or what was lost

options:
  --format F      text (default) or json: one object, see docs/json.md
  --session ID    of a database that holds several sessions, the one to read
  --stat          counts only
  --side          texts side by side
  --width N       columns of --side; default: the terminal's, else 120
  --full          cut and fold nothing; else a change takes at most 40 lines
  --color WHEN    auto (default), always or never
  --help          print this
  --version       print the version

exit status:
  0  the requests are the same, byte for byte; --steps: every request extends or
     repeats the one before; --resumes: nothing drifted; --fork: the prefix is the
     parent's and the first request extends it, or without a prefix has the same
     header; --runs: nothing differs; --headers: one model, prompt and set of
     tools; --cache: always; --generations: every successor begins with
     what a migration makes of the log
  1  they differ
  2  the call was wrong, a request is not there, a log is damaged (what could be
     read is shown), or reading or writing failed
  130 interrupted; 129 when the terminal was closed

examples:
  dsh-diff session.jsonl@1.1 session.jsonl@2.1
  dsh-diff --steps session.jsonl
  dsh-diff --resumes ~/.dsh/sessions
  dsh-diff --runs before/session.jsonl after/session.jsonl
`

// modes are the switches that choose what is compared.
var modes = []struct {
	name string
	run  func(*cli.Call, string, report.DiffOptions) error
}{
	{"steps", steps}, {"resumes", resumes}, {"fork", fork}, {"runs", runs}, {"headers", headers}, {"cache", cache},
	{"generations", generations},
}

// Program returns the program.
func Program() *cli.Program {
	flags := []ucli.Flag{cli.Option("format", "text"), cli.Option("session", ""), cli.Switch("stat"), cli.Switch("side"), cli.Option("width", ""),
		cli.Switch("full"), cli.ColorFlag()}
	for _, m := range modes {
		flags = append(flags, cli.Switch(m.name))
	}
	return &cli.Program{Name: "dsh-diff", Help: help, Run: run, Flags: flags}
}

func run(c *cli.Call) error {
	format, err := c.Choice("format", "text", "json")
	if err != nil {
		return err
	}
	o, err := options(c)
	if err != nil {
		return err
	}
	var chosen []string
	mode := -1
	for i, m := range modes {
		if c.Bool(m.name) {
			chosen = append(chosen, "--"+m.name)
			mode = i
		}
	}
	switch {
	case len(chosen) > 1:
		return cli.Usage(strings.Join(chosen, " and ")+" do not go together", "give one of them")
	case mode >= 0:
		return modes[mode].run(c, format, o)
	}
	return requests(c, format, o)
}

func options(c *cli.Call) (report.DiffOptions, error) {
	o := report.DiffOptions{Palette: c.Palette, Stat: c.Bool("stat"), Full: c.Bool("full"), Side: c.Bool("side"), Width: 120}
	if v := c.Text("width"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 50 || n > 10_000 {
			return o, cli.Usage(fmt.Sprintf("--width: %q is no number from 50 to 10000", v))
		}
		o.Width = n
	} else if n := ui.Width(os.Stdout); n >= 50 {
		o.Width = n
	}
	return o, nil
}

// trouble turns the errors that say "not there" into trouble: here 1 means that
// there is a difference.
func trouble(err error) error {
	if f, ok := errors.AsType[*cli.Failure](err); ok && f.Status != cli.OK {
		return &cli.Failure{Status: cli.Trouble, Err: f.Err, Hints: f.Hints}
	}
	return err
}

// requests compares two requests.
func requests(c *cli.Call, format string, o report.DiffOptions) error {
	if len(c.Operands) != 2 {
		return cli.Usage(fmt.Sprintf("two requests expected, got %d", len(c.Operands)),
			"usage: dsh-diff [options] LOG@TURN.STEP LOG@TURN.STEP")
	}
	var sides [2]*report.Side
	var sources [2]*drift.Source
	stdin := 0
	for i, operand := range c.Operands {
		path, ref, err := source.SplitRef(operand)
		if err != nil {
			return err
		}
		if path == "-" {
			if stdin++; stdin == 2 {
				return cli.Usage("standard input can be read only once", "save it to a file first")
			}
		}
		if sources[i], err = load(c, path, ref); err != nil {
			return err
		}
		sides[i] = side(path, sources[i], true)
	}
	d := drift.Explain(sources[0], sources[1])
	var err error
	if format == "json" {
		err = report.WriteDiffJSON(c.Out, sides[0], sides[1], d)
	} else {
		err = report.WriteDiffText(c.Out, o, sides[0], sides[1], d)
	}
	if err != nil {
		return err
	}
	if !d.Same {
		return cli.Exit(cli.Found)
	}
	return nil
}

// load reads one side. A damaged log whose request is there is compared: the
// damage is printed, and shows in the grade.
func load(c *cli.Call, path string, ref *source.Ref) (*drift.Source, error) {
	log, err := source.One(c, path)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	t := drift.NewTracker(log.Header, fold.Options{})
	type key struct{ turn, step, attempt, end int64 }
	keyOf := func(r *fold.Request) key { return key{r.Turn, r.Step, int64(r.Attempt), r.End} }
	known := make(map[key]*drift.Sent) // without the request itself
	r, _, err := source.FindIn(c, log, seq(t.Walk(log), func(s *drift.Sent) {
		known[keyOf(s.Request)] = &drift.Sent{Time: s.Time, Usage: s.Usage}
	}), ref)
	if err != nil {
		return nil, trouble(err)
	}
	s := known[keyOf(r)]
	s.Request = r
	return newSource(path, s, t.History)
}

func newSource(path string, s *drift.Sent, h *drift.History) (*drift.Source, error) {
	src, err := drift.NewSource(s, h)
	if err != nil {
		return nil, cli.Fail(cli.Trouble, fmt.Errorf("%s: request %d.%d: %w", path, s.Turn, s.Step, err))
	}
	return src, nil
}

// seq passes on the requests of a walk and shows each to note.
func seq(walk iter.Seq2[*drift.Sent, error], note func(*drift.Sent)) iter.Seq2[*fold.Request, error] {
	return func(yield func(*fold.Request, error) bool) {
		for s, err := range walk {
			var r *fold.Request
			if err == nil {
				note(s)
				r = s.Request
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

func side(path string, s *drift.Source, digest bool) *report.Side {
	out := &report.Side{Log: report.Text(path), Session: report.Text(s.History.SessionID), Turn: s.Turn, Step: s.Step, Attempt: s.Attempt,
		Grade: string(s.Grade), Reasons: s.Reasons, Bytes: s.Request.Len(), Time: s.Time}
	if digest {
		sum := s.Sum()
		out.SHA256 = hex.EncodeToString(sum[:])
	}
	return out
}

// oneLog opens the log that a mode works on.
func oneLog(c *cli.Call, mode string) (*logfmt.Log, error) {
	if len(c.Operands) != 1 {
		return nil, cli.Usage(fmt.Sprintf("one log expected, got %d", len(c.Operands)), "usage: dsh-diff [options] --"+mode+" LOG")
	}
	return source.One(c, c.Operands[0])
}
