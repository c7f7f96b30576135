// Package source opens the logs that a command line names, and turns what is
// wrong with them into messages and an exit status.
package source

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// One opens the single log an operand names: a file, or "-" for standard input.
// Of a database with several sessions it is the one that --session names.
func One(c *cli.Call, path string) (*logfmt.Log, error) {
	opts := logfmt.Options{Session: c.Text("session")}
	if path == "-" {
		// Standard input is not ours to close.
		log, err := logfmt.NewReader(struct{ reader }{c.Stdin}, "-", opts)
		return log, Trouble("-", err)
	}
	log, err := logfmt.OpenFile(path, opts)
	if err != nil {
		return nil, Trouble(path, err)
	}
	return log, nil
}

// CommandLine is a command about the log at hand, ready to be pasted: with the
// session that was chosen, and a path that nothing takes for an option.
func CommandLine(c *cli.Call, path string, words ...string) string {
	if c.IsSet("session") {
		words = append(words, "--session", c.Text("session"))
	}
	return cli.CommandLine(append(words, cli.Path(path)))
}

type reader interface{ Read([]byte) (int, error) }

// Trouble words an error of opening or reading path.
func Trouble(path string, err error) error {
	if err == nil {
		return nil
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	msg := strings.TrimPrefix(err.Error(), path+": ")
	var hints []string
	switch {
	case strings.Contains(msg, "is a directory"):
		hints = []string{"name one log in it, like " + cli.Quote(cli.Path(strings.TrimRight(path, "/")+"/session.jsonl"))}
	case strings.HasPrefix(msg, "the database holds"):
		hints = []string{"name one with --session ID"}
	}
	return cli.Fail(cli.Trouble, fmt.Errorf("%s: %s", path, msg), hints...)
}

// maxDefects is how many defects are printed; dsh-verify lists them all.
const maxDefects = 10

// A Damage collects the defects met while a log is read.
type Damage struct{ defects []*logfmt.Defect }

// Add takes a defect, or nil.
func (d *Damage) Add(def *logfmt.Defect) {
	if def != nil {
		d.defects = append(d.defects, def)
	}
}

// Defects lists what was taken so far.
func (d *Damage) Defects() []*logfmt.Defect { return d.defects }

// AddErr takes an error that a fold passed on. It reports whether the error is
// damage; any other error ends the run.
func (d *Damage) AddErr(err error) bool {
	var def *logfmt.Defect
	if !errors.As(err, &def) {
		return false
	}
	d.Add(def)
	return true
}

// Status prints the damage found and returns how a run that printed what it
// could must end. path is the operand as given.
func (d *Damage) Status(c *cli.Call, log *logfmt.Log) error {
	for i, def := range d.defects {
		if i == maxDefects {
			c.UI.Warn(fmt.Sprintf("%s: and %s", log.Path, plural.Count(len(d.defects)-i, "more defect")))
			break
		}
		say := c.UI.Error
		if def.Class == "" || def.Class == logfmt.Torn || def.Class == logfmt.Unsupported {
			say = c.UI.Warn
		}
		say(def.Error())
		if def.Hint != "" {
			c.UI.Hint(def.Hint)
		}
	}
	switch log.Class() {
	case logfmt.Torn:
		c.UI.Warn(fmt.Sprintf("%s: the tail is cut off; the harness keeps %s", log.Path, first(log.Kept())))
		return cli.Exit(cli.Found)
	case logfmt.Corrupt:
		if log.Path != "-" {
			c.UI.Hint("for every defect, run: " + CommandLine(c, log.Path, "dsh-verify"))
		}
		return cli.Exit(cli.Found)
	case logfmt.Unsupported:
		return cli.Exit(cli.Unsupported)
	case logfmt.Unreadable:
		return cli.Exit(cli.Trouble)
	}
	return nil
}

// first names the leading events of a log.
func first(n int64) string {
	switch n {
	case 0:
		return "no event"
	case 1:
		return "the first event"
	}
	return "the first " + plural.Count(n, "event")
}
