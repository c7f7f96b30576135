package diff

import (
	"errors"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/source"
	"github.com/dsh-audit/dsh-audit/internal/report"
	"github.com/dsh-audit/dsh-audit/pkg/drift"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// damaged prints the damage of a log and says how the run must end: what could be
// read is shown, but when the log is not whole that is no answer. A torn log is
// whole as far as the harness keeps it.
func damaged(c *cli.Call, log *logfmt.Log, d *source.Damage) error {
	err := d.Status(c, log)
	if err == nil || log.Class() == logfmt.Torn {
		return nil
	}
	return cli.Exit(cli.Trouble)
}

// asDamage takes an error of a walk: damage is collected, anything else ends the
// run.
func asDamage(d *source.Damage, path string, err error) error {
	if def, ok := errors.AsType[*logfmt.Defect](err); ok {
		d.Add(def)
		return nil
	}
	return source.Trouble(path, err)
}

func steps(c *cli.Call, format string, o report.DiffOptions) error {
	log, err := oneLog(c, "steps")
	if err != nil {
		return err
	}
	defer log.Close()
	var damage source.Damage
	t := drift.NewTracker(log.Header, fold.Options{})
	w := report.NewStepsWriter(c.Out, format == "json", o, log.Path, t.History.SessionID)
	for s, err := range t.Steps(log) {
		if c.Err() != nil {
			return c.Err()
		}
		if err != nil {
			if err := asDamage(&damage, log.Path, err); err != nil {
				return err
			}
			continue
		}
		var a *report.Side
		if s.A != nil {
			a = side(log.Path, s.A, false)
		}
		if err := w.Step(a, side(log.Path, s.B, false), s); err != nil {
			return err
		}
	}
	n, err := w.Close()
	if err != nil {
		return err
	}
	if err := damaged(c, log, &damage); err != nil {
		return err
	}
	if n.Breaks > 0 {
		return cli.Exit(cli.Found)
	}
	return nil
}
