package diff

import (
	"fmt"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/source"
	"github.com/dsh-audit/dsh-audit/internal/report"
	"github.com/dsh-audit/dsh-audit/pkg/drift"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// eachLog reads every log that the operands hold. What cannot be read is told,
// and the others are still read; the run then ends in trouble.
func eachLog(c *cli.Call, mode string, read func(log *logfmt.Log, damage *source.Damage) error) (status error, err error) {
	if len(c.Operands) == 0 {
		return nil, cli.Usage("no log given", "usage: dsh-diff [options] --"+mode+" LOG or ROOT ...")
	}
	opts := logfmt.Options{Session: c.Text("session")}
	logs := 0
	for _, path := range c.Operands {
		before := logs
		list := logfmt.Open(path, opts)
		if path == "-" {
			list = func(yield func(*logfmt.Log, error) bool) { yield(source.One(c, path)) }
		}
		for log, err := range list {
			if c.Err() != nil {
				return nil, c.Err()
			}
			if err != nil {
				c.UI.Error(source.Trouble(path, err).Error())
				status = cli.Exit(cli.Trouble)
				continue
			}
			logs++
			var damage source.Damage
			if err := read(log, &damage); err != nil {
				return nil, err
			}
			if d := damaged(c, log, &damage); d != nil {
				status = d
			}
		}
		if logs == before && status == nil {
			return nil, cli.Fail(cli.Trouble, fmt.Errorf("%s: there is no session log", path), "logs in a directory are named session.jsonl or session.jsonl.zstd")
		}
	}
	return status, nil
}

func resumes(c *cli.Call, format string, o report.DiffOptions) error {
	w, err := report.NewDiffStream(c.Out, format == "json", o, "resumes")
	if err != nil {
		return err
	}
	var n report.ResumeCounts
	status, err := eachLog(c, "resumes", func(log *logfmt.Log, damage *source.Damage) error {
		t := drift.NewTracker(log.Header, fold.Options{})
		l := &report.ResumedLog{Log: log.Path, History: t.History,
			Side: func(s *drift.Source) *report.Side { return side(log.Path, s, false) }}
		for r, err := range t.Resumes(log) {
			if c.Err() != nil {
				return c.Err()
			}
			if err != nil {
				if err := asDamage(damage, log.Path, err); err != nil {
					return err
				}
				continue
			}
			l.Resumes = append(l.Resumes, r)
		}
		return w.Resumes(l, &n)
	})
	if err != nil {
		return err
	}
	if err := w.CloseResumes(&n); err != nil {
		return err
	}
	return found(status, n.Drift+n.Messages > 0)
}

// found is how a mode ends: in trouble when something could not be read, else by
// whether something differs.
func found(status error, differ bool) error {
	if status == nil && differ {
		return cli.Exit(cli.Found)
	}
	return status
}

func cache(c *cli.Call, format string, o report.DiffOptions) error {
	w, err := report.NewCacheWriter(c.Out, format == "json", o)
	if err != nil {
		return err
	}
	status, err := eachLog(c, "cache", func(log *logfmt.Log, damage *source.Damage) error {
		t := drift.NewTracker(log.Header, fold.Options{})
		var rows []*drift.CacheRow
		for r, err := range t.Cache(log) {
			if c.Err() != nil {
				return c.Err()
			}
			if err != nil {
				if err := asDamage(damage, log.Path, err); err != nil {
					return err
				}
				continue
			}
			rows = append(rows, r)
		}
		return w.Session(log.Path, t.History.SessionID, rows)
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return status
}

func headers(c *cli.Call, format string, o report.DiffOptions) error {
	var v drift.HeaderSurvey
	status, err := eachLog(c, "headers", func(log *logfmt.Log, damage *source.Damage) error {
		t := drift.NewTracker(log.Header, fold.Options{})
		for _, err := range t.Walk(log) {
			if c.Err() != nil {
				return c.Err()
			}
			if err != nil {
				if err := asDamage(damage, log.Path, err); err != nil {
					return err
				}
			}
		}
		v.Add(log.Path, t.History)
		return nil
	})
	if err != nil {
		return err
	}
	v.End()
	if err := report.WriteHeaders(c.Out, format == "json", o, &v); err != nil {
		return err
	}
	return found(status, len(v.Models) > 1 || len(v.Systems) > 1 || len(v.Tools) > 1)
}

// twoLogs opens the logs that a mode compares.
func twoLogs(c *cli.Call, usage string) (a, b *logfmt.Log, err error) {
	if len(c.Operands) != 2 {
		return nil, nil, cli.Usage(fmt.Sprintf("two logs expected, got %d", len(c.Operands)), "usage: "+usage)
	}
	if c.Operands[0] == "-" && c.Operands[1] == "-" {
		return nil, nil, cli.Usage("standard input can be read only once", "save it to a file first")
	}
	if a, err = source.One(c, c.Operands[0]); err != nil {
		return nil, nil, err
	}
	if b, err = source.One(c, c.Operands[1]); err != nil {
		a.Close()
		return nil, nil, err
	}
	return a, b, nil
}

// both prints the damage of two logs.
func both(c *cli.Call, a, b *logfmt.Log, da, db *source.Damage) error {
	sa, sb := damaged(c, a, da), damaged(c, b, db)
	if sa != nil {
		return sa
	}
	return sb
}

func fork(c *cli.Call, format string, o report.DiffOptions) error {
	child, parent, err := twoLogs(c, "dsh-diff [options] --fork CHILD PARENT")
	if err != nil {
		return err
	}
	defer child.Close()
	defer parent.Close()
	var dc, dp source.Damage
	opts := fold.Options{Ancestor: func(id string) *logfmt.Header {
		if parent.Header != nil && parent.Header.ID == id {
			return parent.Header
		}
		return nil
	}}
	f, err := drift.CompareFork(child, parent, opts, func(e error) { dc.AddErr(e) }, func(e error) { dp.AddErr(e) })
	if err != nil {
		return source.Trouble(child.Path, err)
	}
	var a, b *report.Side
	if f.A != nil {
		path := child.Path
		if f.A.History == f.Parent {
			path = parent.Path
		}
		a = side(path, f.A, false)
	}
	if f.B != nil {
		b = side(child.Path, f.B, false)
	}
	if err := report.WriteFork(c.Out, format == "json", o, child.Path, parent.Path, f, a, b); err != nil {
		return err
	}
	changed := f.Diff != nil && !f.Diff.Extends
	if f.Seed == 0 {
		changed = f.Diff != nil && !f.Diff.HeaderEqual() // there is nothing to extend
	}
	return found(both(c, child, parent, &dc, &dp), !f.Related || !f.Identical() || changed)
}

func runs(c *cli.Call, format string, o report.DiffOptions) error {
	a, b, err := twoLogs(c, "dsh-diff [options] --runs A B")
	if err != nil {
		return err
	}
	defer a.Close()
	defer b.Close()
	var da, db source.Damage
	ra := drift.ReadRun(a, fold.Options{}, func(e error) { da.AddErr(e) })
	rb := drift.ReadRun(b, fold.Options{}, func(e error) { db.AddErr(e) })
	d := drift.CompareRuns(ra, rb)
	if err := report.WriteRuns(c.Out, format == "json", o, a.Path, b.Path, d); err != nil {
		return err
	}
	return found(both(c, a, b, &da, &db), !d.Same())
}
