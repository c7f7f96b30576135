package replay

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"

	"golang.org/x/term"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/source"
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/internal/ui"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// onTerminal reports whether exact bytes would be shown on a terminal: there,
// and only there, characters that act on it are written as JSON escapes.
var onTerminal = func() bool { return term.IsTerminal(int(os.Stdout.Fd())) }

// writeJSON writes one JSON value as it stands.
func writeJSON(w io.Writer, v []byte) error {
	if onTerminal() {
		v = ui.SafeJSON(v)
	}
	_, err := w.Write(v)
	return err
}

// writeJSONLine writes one JSON value and a line feed.
func writeJSONLine(w io.Writer, v []byte) error {
	if err := writeJSON(w, v); err != nil {
		return err
	}
	_, err := w.Write([]byte{'\n'})
	return err
}

// errNoSeq is the answer when --at names an event that is not there.
var errNoSeq = errors.New("no such event")

// walk feeds the events through seq last to f, those the harness would keep
// only unless all is set. It returns how the run must end once the result is
// printed; the error is for a run that cannot print.
func walk(c *cli.Call, v *view, last int64, all bool, f func(*logfmt.Event) error) (status error, err error) {
	log := v.log
	var damage source.Damage
	n, hidden := 0, int64(0)
	reached := last == math.MaxInt64
	for e, d := range v.events() {
		if n++; n&1023 == 0 && c.Err() != nil {
			return nil, c.Err()
		}
		switch {
		case d != nil:
			damage.Add(d)
			continue
		case e.AfterDamage && !all:
			hidden++
			continue
		case e.Seq > last:
			// The rest is read for the damage it may hold, as always.
			continue
		}
		reached = reached || e.Seq == last
		if err := f(e); err != nil {
			return nil, err
		}
	}
	if c.Err() != nil {
		return nil, c.Err()
	}
	status = damage.Status(c, log)
	if hidden > 0 {
		c.UI.Warn(fmt.Sprintf("%s: left out behind the damage: %s", log.Path, plural.Count(hidden, "event")))
	}
	if !reached {
		if cli.StatusOf(status) > cli.Found {
			return status, nil
		}
		return cli.Fail(cli.Found, fmt.Errorf("%s: --at %d: %w", log.Path, last, errNoSeq),
			fmt.Sprintf("the log holds %s, seq 0 through %d", plural.Count(v.count(), "event"), v.count()-1)), nil
	}
	return status, nil
}

// stateCommand makes a command that folds a log and prints one JSON value of
// what stands at its end.
func stateCommand(value func(*fold.Fold) []byte) func(*cli.Call) error {
	return func(c *cli.Call) error {
		path, err := oneLog(c)
		if err != nil {
			return err
		}
		last, err := through(c)
		if err != nil {
			return err
		}
		opts, err := source.FoldOptions(c)
		if err != nil {
			return err
		}
		log, err := source.One(c, path)
		if err != nil {
			return err
		}
		defer log.Close()
		f := fold.New(log.Header, opts)
		v := newView(c, log)
		status, err := walk(c, v, last, false, func(e *logfmt.Event) error {
			f.Add(e)
			return nil
		})
		if err != nil {
			return err
		}
		if v.out.Refusal != nil || v.out.Unjudged != "" {
			return v.refused(c, status)
		}
		if cli.StatusOf(status) >= cli.Trouble || errors.Is(status, errNoSeq) {
			return status
		}
		if err := writeJSONLine(c.Out, value(f)); err != nil {
			return err
		}
		return status
	}
}

func printMessages(f *fold.Fold) []byte { return f.AppendMessages(nil) }
func printHeader(f *fold.Fold) []byte   { return f.Header().JSON() }
func printSurface(f *fold.Fold) []byte  { return f.Surface().AppendJSON(nil) }

func runEvents(c *cli.Call) error {
	path, err := oneLog(c)
	if err != nil {
		return err
	}
	last, err := through(c)
	if err != nil {
		return err
	}
	log, err := source.One(c, path)
	if err != nil {
		return err
	}
	defer log.Close()
	v := newView(c, log)
	if v.asLoaded && c.Bool("after-damage") {
		return cli.Usage("--as-loaded and --after-damage exclude each other", "what stands behind damage is not loaded")
	}
	if err := v.ahead(c); err != nil {
		return err
	}
	status, err := walk(c, v, last, c.Bool("after-damage"), func(e *logfmt.Event) error {
		return writeJSONLine(c.Out, e.JSON)
	})
	if err != nil {
		return err
	}
	return status
}

func runSession(c *cli.Call) error {
	path, err := oneLog(c)
	if err != nil {
		return err
	}
	log, err := source.One(c, path)
	if err != nil {
		return err
	}
	defer log.Close()
	if c.Bool("meta") {
		return printSummary(c, log)
	}
	if log.Header != nil && log.Header.Raw != nil {
		if err := writeJSONLine(c.Out, log.Header.Raw); err != nil {
			return err
		}
	}
	// Only the header is read: what opening found is all there is to say.
	var damage source.Damage
	for _, d := range log.Defects() {
		damage.Add(d)
	}
	return damage.Status(c, log)
}

// printSummary prints the summary of a session, in the key order of the file the
// harness wrote.
func printSummary(c *cli.Call, log *logfmt.Log) error {
	sum, err := log.ReadSummary()
	if err != nil {
		return cli.Fail(cli.Found, fmt.Errorf("%s: %w", log.Path, err),
			"nothing in it is needed: for the header record, run: "+source.CommandLine(c, log.Path, "dsh-replay", "session"))
	}
	from := "sidecar"
	switch {
	case log.Database != nil && sum != nil:
		from = "database"
	case sum == nil && log.Header != nil:
		sum, from = &logfmt.Summary{UpdatedAt: log.Header.CreatedAt}, "header"
	}
	if sum != nil {
		line := append([]byte(`{"updatedAt":`), strconv.FormatInt(sum.UpdatedAt, 10)...)
		for _, m := range []struct {
			key string
			val *string
		}{{"title", sum.Title}, {"firstPrompt", sum.FirstPrompt}, {"source", &from}} {
			if m.val != nil {
				line = append(append(append(line, `,"`...), m.key...), `":`...)
				line = jsjson.AppendQuote(line, *m.val)
			}
		}
		if err := writeJSONLine(c.Out, append(line, '}')); err != nil {
			return err
		}
	}
	var damage source.Damage
	for _, d := range log.Defects() {
		damage.Add(d)
	}
	return damage.Status(c, log)
}
