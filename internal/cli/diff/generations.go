package diff

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/source"
	"github.com/dsh-audit/dsh-audit/internal/report"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
	"github.com/dsh-audit/dsh-audit/pkg/migrate"
)

// generations compares each log that lies beside a later generation of itself with
// the next one.
func generations(c *cli.Call, format string, o report.DiffOptions) error {
	if len(c.Operands) == 0 {
		return cli.Usage("no directory given", "usage: dsh-diff [options] --generations DIR ...")
	}
	var pairs []report.GenerationPair
	differ := false
	for _, dir := range c.Operands {
		found, err := successions(dir)
		if err != nil {
			return source.Trouble(dir, err)
		}
		for _, f := range found {
			if c.Err() != nil {
				return c.Err()
			}
			p, err := follow(c, f[0], f[1])
			if err != nil {
				return err
			}
			differ = differ || !p.Same
			pairs = append(pairs, *p)
		}
	}
	if len(pairs) == 0 {
		return cli.Fail(cli.Trouble, fmt.Errorf("%s: no log lies beside a later generation of itself", c.Operands[0]),
			"generations of one session lie in one directory, as session.jsonl and session.v3.jsonl")
	}
	if err := report.WriteGenerations(c.Out, format == "json", o, pairs); err != nil {
		return err
	}
	return found(nil, differ)
}

// successions lists pairs of files: a log, and the next generation of it in the same
// directory.
func successions(root string) (out [][2]string, err error) {
	type file struct {
		path string
		gen  int64
	}
	var dir string
	var files []file
	flush := func() {
		slices.SortFunc(files, func(a, b file) int { return int(a.gen - b.gen) })
		for i := 1; i < len(files); i++ {
			if files[i].gen > files[i-1].gen {
				out = append(out, [2]string{files[i-1].path, files[i].path})
			}
		}
		files = files[:0]
	}
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d := filepath.Dir(path); d != dir {
			flush()
			dir = d
		}
		if n, ok := logfmt.GenerationOfName(e.Name()); ok && e.Type().IsRegular() {
			files = append(files, file{path, n})
		}
		return nil
	})
	flush()
	return out, err
}

func follow(c *cli.Call, older, newer string) (*report.GenerationPair, error) {
	var logs [2]*logfmt.Log
	for i, path := range []string{older, newer} {
		log, err := logfmt.OpenFile(path, logfmt.Options{})
		if err != nil {
			return nil, source.Trouble(path, err)
		}
		defer log.Close()
		if log.Header == nil || logfmt.GenerationOf(log.Header.Generation) == nil {
			return nil, cli.Fail(cli.Trouble, fmt.Errorf("%s: there is no header record of a generation that is read", path), "for every defect, run: "+cli.CommandLine([]string{"dsh-verify", cli.Path(path)}))
		}
		logs[i] = log
	}
	p := &report.GenerationPair{Older: report.Text(older), Newer: report.Text(newer)}
	if logs[0].Header.ID != logs[1].Header.ID {
		p.Note = "the two logs are of different sessions"
		return p, nil
	}
	s, err := migrate.Follow(c, logs[0], logs[1])
	if err != nil {
		return nil, err
	}
	p.From, p.To, p.Same = s.From, s.To, s.Same()
	p.Events, p.Carried, p.Listed, p.Since, p.Differing, p.Chunks = s.Events, s.Carried, s.Listed, s.Since, s.Differing, s.Chunks
	if r := s.Refusal; r != nil {
		p.Note = report.Text("no migration takes the older log: " + r.Stage + " refuses it: " + r.Rule + ": " + r.Message)
	}
	if d := s.First; d != nil {
		p.First = &report.GenerationDifference{Seq: d.Seq, Want: report.Raw(d.Want), Got: report.Raw(d.Got)}
	}
	p.Unverified = s.To >= 4
	return p, nil
}
