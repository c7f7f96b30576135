package replay

import (
	"fmt"
	"iter"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/source"
	"github.com/dsh-audit/dsh-audit/pkg/load"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

const helpLoaded = `  --as-loaded     show the log as the harness of 2026-08-21 holds it after
                  loading: events of older builds upgraded, the torn tail
                  dropped, an open turn closed, with words of our own where a
                  result was lost; nothing when that harness refuses the log
`

// A view is the events of a log: as they are stored, or with --as-loaded as the
// harness holds them.
type view struct {
	log      *logfmt.Log
	asLoaded bool
	out      load.Outcome // of a log that was read to its end, with asLoaded
}

func newView(c *cli.Call, log *logfmt.Log) *view {
	return &view{log: log, asLoaded: c.Bool("as-loaded")}
}

// events reads the log. Events behind damage are no part of a log as loaded.
func (v *view) events() iter.Seq2[*logfmt.Event, *logfmt.Defect] {
	if v.asLoaded {
		return load.Events(v.log, load.Options{}, &v.out)
	}
	return v.log.Events()
}

// count is the number of events that the harness keeps or holds.
func (v *view) count() int64 { return v.log.Kept() + int64(len(v.out.Closers)) }

// ahead reads the log as loaded once before a command prints events as it reads
// them: whether the harness would hold any of them only the end tells.
func (v *view) ahead(c *cli.Call) error {
	if !v.asLoaded {
		return nil
	}
	if v.log.Path == "-" {
		return cli.Usage("--as-loaded has to read the log twice, which standard input does not allow", "save it to a file first")
	}
	var damage source.Damage
	n := 0
	for _, d := range v.events() {
		if n++; n&1023 == 0 && c.Err() != nil {
			return c.Err()
		}
		damage.Add(d)
	}
	if v.out.Refusal == nil && v.out.Unjudged == "" {
		return nil
	}
	return v.refused(c, damage.Status(c, v.log))
}

// refused tells why the harness holds no such log, once it was read. status is
// how the run ends for the damage found; without a refusal it stays.
func (v *view) refused(c *cli.Call, status error) error {
	if !v.asLoaded || v.out.Refusal == nil && v.out.Unjudged == "" {
		return status
	}
	msg := fmt.Sprintf("%s: what the harness of %s holds is not known: %s", v.log.Path, load.Date, v.out.Unjudged)
	if r := v.out.Refusal; r != nil && v.out.Unjudged == "" {
		at := v.log.Path
		if r.Pos.Line > 0 {
			at += fmt.Sprintf(":%d", r.Pos.Line)
		}
		if r.Seq >= 0 {
			at += fmt.Sprintf(": seq %d", r.Seq)
		}
		msg = fmt.Sprintf("%s: the harness of %s refuses the log: %s", at, load.Date, r.Message)
	}
	c.UI.Error(msg)
	c.UI.Hint("without --as-loaded it is shown as it is stored")
	if cli.StatusOf(status) > cli.Found {
		return status
	}
	return cli.Exit(cli.Found)
}
