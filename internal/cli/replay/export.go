package replay

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/source"
	"github.com/dsh-audit/dsh-audit/internal/report"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/load"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

const exportHelp = `dsh-replay export - write a log in another form, mended on request

usage: dsh-replay export [options] --to FORM -o OUT LOG

OUT holds the same events as LOG, those of older builds as they are. It is a new
file: written aside, synced, and named only when it is complete; one that exists
is never replaced. LOG is not changed. A damaged log is refused without --repair.

What was kept, dropped and added is printed on standard output.

options:
  --to FORM       plain: one event a line; packed: runs of chunks as one line;
                  zstd: packed, in Zstandard frames; sqlite: a database of
                  schema 17
  -o OUT          the new file
  --repair        of a torn log drop the tail that the harness drops; close a turn
                  that is open at the end with the events that the harness adds
                  (format versions 0 and 4; of others it is not known what they
                  are). Damage that makes the harness refuse a log cannot be
                  mended
  --recovery-text TEXT
                  the words of the results that stand in for lost ones; the
                  harness has its own
  --recovery-text-started TEXT
                  the same, for calls that were recorded as started
  --recovery-text-not-started TEXT
                  the same, for calls that were not
  --format F      of what is printed: text (default) or json: one object
                  (docs/json.md)
` + common + `
exit status:
  0  OUT is written
  1  the log is damaged, and OUT is not written
  2  the call was wrong, or reading or writing failed
  3  the log is of a kind this build does not read
  130 interrupted; 129 when the terminal was closed
`

func exportCommand() *cli.Command {
	return &cli.Command{
		Name: "export", Run: runExport, Help: exportHelp,
		Flags: []ucli.Flag{cli.Option("to", ""), cli.Option("o", ""), cli.Switch("repair"),
			cli.Option("recovery-text", ""), cli.Option("recovery-text-started", ""), cli.Option("recovery-text-not-started", ""),
			cli.Option("format", "text"), cli.Option("session", ""), cli.ColorFlag()},
	}
}

// A writer is a log being written.
type writer interface {
	Begin(h *logfmt.Header, db *logfmt.Database) error
	Add(e *logfmt.Event) error
	Flush() error
	Close() error // and make it durable
	Abort() error
}

// fileWriter writes lines.
type fileWriter struct {
	*logfmt.Writer
	buf  *bufio.Writer
	file *os.File
}

func newFileWriter(path string, form logfmt.Form) (*fileWriter, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	buf := bufio.NewWriterSize(f, 64<<10)
	return &fileWriter{logfmt.NewWriter(buf, form), buf, f}, nil
}

func (w *fileWriter) Begin(h *logfmt.Header, db *logfmt.Database) error {
	return w.Writer.Begin(h.Line(db))
}

func (w *fileWriter) Close() error {
	err := w.Writer.Close()
	if err == nil {
		err = w.buf.Flush()
	}
	if err == nil {
		err = w.file.Sync()
	}
	return errors.Join(err, w.file.Close())
}

func (w *fileWriter) Abort() error { return w.file.Close() }

// databaseWriter writes rows.
type databaseWriter struct{ *logfmt.DatabaseWriter }

func (w databaseWriter) Begin(h *logfmt.Header, _ *logfmt.Database) error {
	return w.DatabaseWriter.Begin(h)
}

var forms = map[string]func(path string) (writer, error){
	"plain":  func(path string) (writer, error) { return newFileWriter(path, logfmt.FormPlain) },
	"packed": func(path string) (writer, error) { return newFileWriter(path, logfmt.FormPacked) },
	"zstd":   func(path string) (writer, error) { return newFileWriter(path, logfmt.FormZstd) },
	"sqlite": func(path string) (writer, error) {
		w, err := logfmt.CreateDatabase(path)
		if err != nil {
			return nil, err
		}
		return databaseWriter{w}, nil
	},
}

// An export is one run of the command.
type export struct {
	c      *cli.Call
	log    *logfmt.Log
	out    string
	to     string
	path   string // as it was named
	repair bool
	texts  fold.CloserTexts

	loader  *load.Loader
	dialect *fold.Dialect
	open    fold.CloserTracker // over the events as they are stored
	damage  source.Damage
	outcome *load.Outcome
	closers []*logfmt.Event
	tail    laterTail
	stays   string // why the turn stays open in spite of a repair
	advice  string
}

func runExport(c *cli.Call) error {
	const usage = "usage: dsh-replay export [options] --to FORM -o OUT LOG"
	if len(c.Operands) == 0 {
		return cli.Usage("no log given", usage)
	}
	path, err := oneLog(c)
	if err != nil {
		return err
	}
	x := &export{c: c, path: path, out: c.Text("o"), repair: c.Bool("repair")}
	switch {
	case !c.IsSet("to"):
		return cli.Usage("no form given: --to is needed", usage)
	case x.out == "":
		return cli.Usage("no file to write given: -o is needed", usage)
	case x.out == "-":
		return cli.Usage("-o: export writes a file, not standard output", "./- is a file of that name")
	}
	if x.to, err = c.Choice("to", "plain", "packed", "zstd", "sqlite"); err != nil {
		return err
	}
	format, err := c.Choice("format", "text", "json")
	if err != nil {
		return err
	}
	if x.texts, err = recoveryTexts(c, x.repair); err != nil {
		return err
	}
	if x.log, err = source.One(c, path); err != nil {
		return err
	}
	defer x.log.Close()

	p, err := newPublication(c, x.out)
	if err != nil {
		return err
	}
	defer p.abandon()
	if err := x.write(p.temp); err != nil {
		if c.Err() != nil {
			return c.Err()
		}
		return err
	}
	if err := p.publish(); err != nil {
		return err
	}
	if format == "json" {
		return x.printJSON()
	}
	return x.print()
}

// recoveryTexts reads the words of stand-in results.
func recoveryTexts(c *cli.Call, repair bool) (fold.CloserTexts, error) {
	texts := fold.DefaultCloserTexts
	for _, o := range []struct {
		name string
		to   []*string
	}{
		{"recovery-text", []*string{&texts.Lost, &texts.Started, &texts.NotStarted}},
		{"recovery-text-started", []*string{&texts.Started}},
		{"recovery-text-not-started", []*string{&texts.NotStarted}},
	} {
		if !c.IsSet(o.name) {
			continue
		}
		if !repair {
			return texts, cli.Usage("--"+o.name+" has no meaning without --repair", "only a repair adds results")
		}
		for _, t := range o.to {
			*t = strings.ToValidUTF8(c.Text(o.name), "\ufffd")
		}
	}
	return texts, nil
}

// write writes the log to a file that does not exist yet, and removes nothing
// when it fails.
func (x *export) write(path string) error {
	if x.log.Header == nil {
		return x.refuse()
	}
	w, err := forms[x.to](path)
	if err != nil {
		return cli.Fail(cli.Trouble, fmt.Errorf("%s: %w", x.out, cause(err)))
	}
	done := false
	defer func() {
		if !done {
			w.Abort()
		}
	}()
	x.loader = load.New(x.log.Header, load.Options{Texts: &x.texts})
	x.dialect = fold.NewDialect(x.log.Header)
	failed := w.Begin(x.log.Header, x.log.Database) // told once the log is read: damage matters more
	n := 0
	for e, d := range x.log.Events() {
		if n++; n&255 == 0 && x.c.Err() != nil {
			return x.c.Err()
		}
		if d != nil {
			x.damage.Add(d)
			continue
		}
		if x.loader.Add(e); e.AfterDamage {
			continue
		}
		x.dialect.Add(e)
		x.open.Add(e)
		x.tail.add(e)
		if failed == nil {
			if failed = add(w, e); broken(failed) {
				break
			}
		}
	}
	if broken(failed) {
		return cli.Fail(cli.Trouble, fmt.Errorf("%s: %w", x.out, cause(failed)))
	}
	if x.c.Err() != nil {
		return x.c.Err()
	}
	x.outcome = x.loader.End(x.log)
	if class := x.log.Class(); class != logfmt.Intact && (class != logfmt.Torn || !x.repair) {
		return x.refuse()
	}
	if x.repair {
		if err := x.hardTail(); err != nil {
			return err
		}
		x.close()
		for i, e := range x.closers {
			if i == 0 && failed == nil {
				failed = w.Flush() // a batch of their own
			}
			if failed == nil {
				failed = w.Add(e)
			}
		}
	}
	switch {
	case broken(failed):
		return cli.Fail(cli.Trouble, fmt.Errorf("%s: %w", x.out, cause(failed)))
	case failed != nil:
		return cli.Fail(cli.Found, fmt.Errorf("%s: cannot be written as %s: %w", x.log.Path, x.to, failed),
			"another form may hold it")
	}
	done = true
	if err := w.Close(); err != nil {
		return cli.Fail(cli.Trouble, fmt.Errorf("%s: %w", x.out, cause(err)))
	}
	return nil
}

// broken reports an error of writing, and not of what was to be written.
func broken(err error) bool {
	if err == nil {
		return false
	}
	var pe *fs.PathError
	msg := err.Error() // SQLite has words only
	return errors.As(err, &pe) || strings.Contains(msg, "database or disk is full") || strings.Contains(msg, "disk I/O error")
}

// add writes an event; where a step or a turn ends, a batch ends.
func add(w writer, e *logfmt.Event) error {
	if err := w.Add(e); err != nil {
		return err
	}
	switch e.Type {
	case logfmt.TypeStepEnd, logfmt.TypeTurnEnd:
		return w.Flush()
	}
	return nil
}

// close finds the events that close an open turn: those of the newest harness, if
// it loads the log, else those of the builds that may have written it.
func (x *export) close() {
	switch {
	case x.log.Header.Generation > 0:
		if !x.open.Open() {
			return
		}
		if x.stays, x.advice = x.tail.stays(x.log.Header.Generation, &x.open, x.texts); x.stays == "" {
			x.closers = x.open.Closers(fold.CloserBare, x.texts)
		}
		return
	case x.outcome.Refusal == nil:
		x.closers = x.outcome.Closers
		return
	}
	x.closers = x.open.Closers(fold.CloserFormOf(x.dialect.Eras().Min), x.texts)
}

// refuse says why the log is not exported.
func (x *export) refuse() error {
	path := x.log.Path
	if x.log.Header == nil {
		for _, d := range x.log.Defects() {
			x.damage.Add(d)
		}
	}
	status := x.damage.Status(x.c, x.log)
	if cli.StatusOf(status) > cli.Found {
		return status
	}
	if x.log.Class() == logfmt.Torn {
		words := []string{"dsh-replay", "export", "--to", x.to, "-o", cli.Path(x.out)}
		if x.c.IsSet("session") {
			words = append(words, "--session", x.c.Text("session"))
		}
		return cli.Fail(cli.Found, fmt.Errorf("%s: the log is torn: nothing is exported without --repair", path),
			"to drop the tail and close the turn, run: "+cli.CommandLine(append(words, "--repair", cli.Path(path))))
	}
	return cli.Fail(cli.Found, fmt.Errorf("%s: what was committed is damaged, and the harness refuses the log: nothing is exported", path),
		"restore it from a copy; for what can be read of it, run: "+source.CommandLine(x.c, path, "dsh-replay", "events", "--after-damage"))
}

// report collects what became of the log.
func (x *export) report() (*report.Export, error) {
	st, err := os.Stat(x.out)
	if err != nil {
		return nil, cli.Fail(cli.Trouble, fmt.Errorf("%s: %w", x.out, cause(err)))
	}
	o := x.outcome
	r := &report.Export{
		Path: report.Text(x.log.Path), Session: report.Text(x.log.Header.ID), Out: report.Text(x.out), To: x.to,
		Bytes: st.Size(), Kept: extent(o.Before), Recovered: o.Cut.Recovered,
	}
	if o.Cut.Torn {
		r.Dropped = &report.Dropped{Byte: known(o.Cut.Byte), Row: known(o.Cut.Row), Events: o.Behind.Events}
		if len(x.damage.Defects()) > 0 {
			r.Dropped.Message = report.Text(x.damage.Defects()[0].Message)
		}
	}
	for _, e := range x.closers {
		r.Added = append(r.Added, report.Added{Type: e.Type, Seq: e.Seq})
	}
	if x.to == "sqlite" {
		for _, k := range x.log.Header.Unknown {
			r.Unheld = append(r.Unheld, report.Text(k))
		}
	}
	r.Open = report.Text(x.stays)
	if o.Refusal != nil && x.log.Header.Generation == 0 {
		r.Refused = report.Text(o.Refusal.Error())
	}
	return r, nil
}

func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

func extent(x load.Extent) report.Extent {
	return report.Extent{Events: x.Events, First: known(x.First), Last: known(x.Last), Turns: x.Turns, LastTurn: known(x.LastTurn)}
}

func (x *export) printJSON() error {
	r, err := x.report()
	if err != nil {
		return err
	}
	return report.WriteExportJSON(x.c.Out, r)
}

func (x *export) print() error {
	r, err := x.report()
	if err != nil {
		return err
	}
	if err := report.WriteExportText(x.c.Out, x.c.Palette, r); err != nil {
		return err
	}
	if err := x.c.Out.Flush(); err != nil { // diagnostics come after the result
		return err
	}
	if r.Refused != "" {
		x.c.UI.Warn(fmt.Sprintf("%s: the harness of %s refuses this log, and this file: %s", x.log.Path, load.Date, x.outcome.Refusal))
	}
	switch {
	case !x.open.Open() || len(x.closers) > 0:
	case x.stays != "":
		x.c.UI.Hint("the log ends inside a turn, which stays open: " + x.stays)
		if x.advice != "" {
			x.c.UI.Hint(x.advice)
		}
	case !x.repair:
		x.c.UI.Hint("the log ends inside a turn; with --repair it is closed")
	}
	return nil
}
