package verify

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/source"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/internal/report"
)

// A partial is one report being joined.
type partial struct {
	name string
	*report.VerifyReader
	next *report.Result // nil at the end
}

func (p *partial) advance() error {
	r, err := p.Next()
	if err != nil && err != io.EOF {
		return p.trouble(err)
	}
	p.next = r
	return nil
}

func (p *partial) trouble(err error) error {
	return cli.Fail(cli.Trouble, fmt.Errorf("%s: %w", p.name, err))
}

func merge(c *cli.Call) error {
	if len(c.Operands) == 0 {
		return cli.Usage("no report given", "usage: dsh-verify merge [options] REPORT.json ...")
	}
	set := &settings{c: c}
	format, err := set.choice("format", formats...)
	if err != nil {
		return err
	}
	policy, err := set.policy()
	if err != nil {
		return err
	}
	var parts []*partial
	for _, name := range c.Operands {
		f, err := os.Open(name)
		if err != nil {
			return source.Trouble(name, err)
		}
		defer f.Close()
		p := &partial{name: name}
		if p.VerifyReader, err = report.NewVerifyReader(f); err != nil {
			return p.trouble(err)
		}
		parts = append(parts, p)
	}
	sharded, err := complete(parts)
	if err != nil {
		return err
	}
	j := &collector{c: c, policy: policy, limit: 1<<31 - 1}
	defer j.abort()
	if err := j.openSinks(format, c.Bool("notes"), nil, c.Operands); err != nil {
		return err
	}
	if sharded {
		err = interleave(j, parts)
	} else {
		err = chain(j, parts)
	}
	if err != nil {
		return err
	}
	j.sums(parts)
	if err := j.close(); err != nil {
		return err
	}
	return cli.Exit(j.status)
}

// complete checks that the parts of a sharded run are all there, each once. It
// reports false when the reports are of whole runs.
func complete(parts []*partial) (bool, error) {
	if parts[0].Shard() == nil {
		for _, p := range parts {
			if p.Shard() != nil {
				return false, cli.Usage(fmt.Sprintf("%s is a part of a run, %s is a whole one", p.name, parts[0].name))
			}
		}
		return false, nil
	}
	count := parts[0].Shard().Count
	have := map[int]string{}
	for _, p := range parts {
		s := p.Shard()
		switch {
		case s == nil:
			return false, cli.Usage(fmt.Sprintf("%s is a part of a run, %s is a whole one", parts[0].name, p.name))
		case s.Count != count || s.Index < 1 || s.Index > count:
			return false, cli.Usage(fmt.Sprintf("%s is part %d/%d, %s is one of %d", p.name, s.Index, s.Count, parts[0].name, count))
		case have[s.Index] != "":
			return false, cli.Usage(fmt.Sprintf("%s and %s are both part %d/%d", have[s.Index], p.name, s.Index, count))
		}
		have[s.Index] = p.name
	}
	for i := 1; i <= count; i++ {
		if have[i] == "" {
			return false, cli.Usage(fmt.Sprintf("part %d/%d is missing", i, count))
		}
	}
	return true, nil
}

// chain gives the results of one report after the other.
func chain(j *collector, parts []*partial) error {
	for _, p := range parts {
		for {
			if err := j.c.Err(); err != nil {
				return err
			}
			if err := p.advance(); err != nil {
				return err
			}
			if p.next == nil {
				break
			}
			if err := j.add(p.next); err != nil {
				return err
			}
		}
	}
	return nil
}

// interleave gives the results in the order of the whole run.
func interleave(j *collector, parts []*partial) error {
	for _, p := range parts {
		if err := p.advance(); err != nil {
			return err
		}
	}
	last := int64(0)
	for {
		if err := j.c.Err(); err != nil {
			return err
		}
		var first *partial
		for _, p := range parts {
			if p.next == nil {
				continue
			}
			if p.next.At == nil {
				return p.trouble(fmt.Errorf("a result without the member \"at\": not a part of a run"))
			}
			if first == nil || *p.next.At < *first.next.At {
				first = p
			}
		}
		if first == nil {
			break
		}
		r := first.next
		if *r.At != last+1 {
			return first.trouble(fmt.Errorf("result %d follows on result %d: the parts are not of one run", *r.At, last))
		}
		last = *r.At
		r.At = nil
		if err := j.add(r); err != nil {
			return err
		}
		if err := first.advance(); err != nil {
			return err
		}
	}
	for _, p := range parts {
		if total := p.Summary().Total; total != last {
			return p.trouble(fmt.Errorf("a part of %s, all parts hold %d: they are not of one run", plural.Count(total, "result"), last))
		}
	}
	return nil
}

// sums joins what summaries say beyond the results. Every part of a run met the
// same arguments and the same settings.
func (j *collector) sums(parts []*partial) {
	for _, p := range parts {
		s := p.Summary()
		j.sum.Skipped += s.Skipped
		for _, path := range s.Empty {
			if p.Shard() == nil || !slices.Contains(j.sum.Empty, path) {
				j.sum.Empty = append(j.sum.Empty, path)
				j.status = worse(j.status, cli.Trouble)
				j.c.UI.Error(string(path) + ": no log was found there")
			}
		}
		for _, id := range s.NotRun {
			if !slices.Contains(j.sum.NotRun, id) {
				j.sum.NotRun = append(j.sum.NotRun, id)
			}
		}
		if j.sum.Config == "" {
			j.sum.Config = s.Config
		}
	}
	slices.Sort(j.sum.NotRun)
}
