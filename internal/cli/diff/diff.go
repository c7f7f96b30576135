// Package diff is the dsh-diff program: it compares two requests.
package diff

import (
	"encoding/hex"
	"fmt"

	ucli "github.com/urfave/cli/v2"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/source"
	"github.com/dsh-audit/dsh-audit/internal/report"
	"github.com/dsh-audit/dsh-audit/pkg/drift"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
)

const help = `dsh-diff - compare two requests

usage: dsh-diff [options] A B

A and B are each LOG@TURN.STEP or LOG@TURN.STEP.ATTEMPT, one request of a log, or
LOG, its last request. What follows the last "@" names the request; a file that
has the whole name wins. LOG may be "-", standard input, on one side.

Shown are the config, the system prompt line by line, the tools by name, the
messages, whether B extends A, and the first byte that differs.

options:
  --format F      text (default) or json: one object, see docs/json.md
  --session ID    of a database that holds several sessions, the one to read
  --color WHEN    auto (default), always or never
  --help          print this
  --version       print the version

exit status:
  0  the requests are the same, byte for byte
  1  they differ
  2  the call was wrong, a request is not there, or reading or writing failed
  130 interrupted

example: dsh-diff session.jsonl@1.1 session.jsonl@2.1
`

// Program returns the program.
func Program() *cli.Program {
	return &cli.Program{Name: "dsh-diff", Help: help, Run: run,
		Flags: []ucli.Flag{cli.Option("format", "text"), cli.Option("session", ""), cli.ColorFlag()}}
}

func run(c *cli.Call) error {
	if len(c.Operands) != 2 {
		return cli.Usage(fmt.Sprintf("two requests expected, got %d", len(c.Operands)),
			"usage: dsh-diff [options] LOG@TURN.STEP LOG@TURN.STEP")
	}
	format, err := c.Choice("format", "text", "json")
	if err != nil {
		return err
	}
	var sides [2]report.Side
	var bodies [2]*drift.Body
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
		if sides[i], bodies[i], err = load(c, path, ref); err != nil {
			return err
		}
	}
	d := drift.Compare(bodies[0], bodies[1])
	if format == "json" {
		err = report.WriteDiffJSON(c.Out, &sides[0], &sides[1], d)
	} else {
		err = report.WriteDiffText(c.Out, c.Palette, &sides[0], &sides[1], d)
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
func load(c *cli.Call, path string, ref *source.Ref) (report.Side, *drift.Body, error) {
	log, err := source.One(c, path)
	if err != nil {
		return report.Side{}, nil, err
	}
	defer log.Close()
	r, _, err := source.Find(c, log, fold.Options{}, ref)
	if err != nil {
		// Here 1 means "differ": what cannot be compared is trouble.
		if f, ok := err.(*cli.Failure); ok {
			return report.Side{}, nil, &cli.Failure{Status: cli.Trouble, Err: f.Err, Hints: f.Hints}
		}
		return report.Side{}, nil, err
	}
	body, err := drift.Parse(r.AppendBody(nil))
	if err != nil {
		return report.Side{}, nil, cli.Fail(cli.Trouble, fmt.Errorf("%s: request %d.%d: %w", path, r.Turn, r.Step, err))
	}
	sum := r.Sum()
	return report.Side{
		Log: report.Text(path), Turn: r.Turn, Step: r.Step, Attempt: r.Attempt,
		Grade: string(r.Grade), Reasons: r.Reasons, Bytes: r.Len(), SHA256: hex.EncodeToString(sum[:]),
	}, body, nil
}
