// Package verify is the dsh-verify program: it judges session logs.
//
// Logs are judged side by side and reported in the order of the arguments. What is
// judged, what is printed and what makes a run fail are three things that do not
// depend on each other: a pipeline makes results, sinks print them, and a policy
// says how the run ends.
package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/source"
	"github.com/dsh-audit/dsh-audit/internal/report"
)

const help = `dsh-verify - judge session logs against the rules of the harness

usage: dsh-verify [options] PATH ...
       dsh-verify merge [options] REPORT.json ...
       dsh-verify explain RULE
       dsh-verify rules

PATH is a log, "-" for standard input, a directory, or a pattern like 'a/*.jsonl'
that the shell left as it is. A session root is judged as the harness reads it,
with the place of every log in it; any other directory gives every file in it
that is named session*.jsonl, every session database and every export. Logs are
only read, never changed. A file named like a command is written ./rules.

verdicts, the best first:
  ok           nothing wrong was found
  warn         sound, but something is unusual
  open         sound, but it ends inside a turn: killed, or still running
  torn         the last write was cut off; everything before it is sound
  violations   readable, but it breaks rules the harness enforces
  corrupt      bytes that were already committed are damaged
  unsupported  this build does not judge this kind of log
  unreadable   could not be read as a session log

what is judged:
  --requests FILE  compare the one log with a recording of what was sent, lines
                   of {"turn":T,"step":S,"request":BODY}; where T and S are there,
                   they must match too. A log that no requests can be rebuilt
                   from makes the run end with 3, or worse
  --as-loaded      judge each log as the harness of 2026-08-21 holds it after
                   loading; that it refuses one is an error then, not a note,
                   and nothing else in it is judged
  --paranoid       rebuild each request a second time, from a fresh fold of the
                   events before it, and compare: all of a small log, a sample of
                   a large one; --paranoid=all of every log
  --only RULES     run these rules only: ids, or patterns like 'SURF-*', with
                   commas between them; damage is reported all the same
  --disable RULES  do not run these rules
  --migrate-to V   also tell whether the harness's own migrations would take each
                   log to format v1, v2, v3 or v4, and if not, at which step and
                   why; a log that is refused makes the run end with 1. What is
                   said of v4 is unverified
  --framing HOW    how context and steering messages of July 17 to 20 were sent
                   where the log leaves it open: auto (default), tagged, verbatim
  --config-layout HOW
                   in which order requests of about July 27 had their members
                   where the log leaves it open: auto (default), named (as until
                   then), spread (the config first, as logged)
  --session ID     of a database that holds several sessions, judge this one only
  --jobs N         judge N logs at a time (as many as there are processors)
  --shard I/N      judge the I-th of N parts; the parts do not depend on the order
                   of the arguments. dsh-verify merge joins their JSON reports

what is printed:
  --format F       text (default), json, jsonl, junit, sarif, github
  --output F=FILE  write a report to a file too; may be repeated. The file
                   appears when it is complete
  --notes          also list notes, which never change a verdict
  --limit N        list at most N findings of one rule (100); the rest is counted
  --color WHEN     auto (default), always or never

what makes it fail:
  --strict         end with 1 for warn, open and torn too
  --fail-on LEVEL  end with 1 for findings of this severity: error (default),
                   warning, or never
  --fail-on-drift  a header that a resume changed is an error, not a note
  --baseline FILE  accept the findings that this file lists
  --write-baseline FILE
                   write a file that lists what is found, and end with 0

  --config FILE    settings; without it, .dsh-audit.yaml if it lies here (see
                   docs/verify.md). What the command line says goes first
  --help           print this
  --version        print the version

exit status:
  0  no log is violations, corrupt, unsupported or unreadable
  1  a log is violations or corrupt (and see --strict, --fail-on)
  2  a log is unreadable, the call was wrong, or writing failed
  3  a log is unsupported, and none of the above
  130 interrupted; 129 when the terminal was closed

example: dsh-verify goldens/sound
`

const mergeHelp = `dsh-verify merge - join the JSON reports of several runs

usage: dsh-verify merge [options] REPORT.json ...

The reports of all parts of a run with --shard give what the whole run would have
given. Other reports are put one behind the other.

options:
  --format F       text (default), json, jsonl, junit, sarif, github
  --output F=FILE  write a report to a file too; may be repeated
  --notes          also list notes
  --strict         end with 1 for warn, open and torn too
  --fail-on LEVEL  end with 1 for findings of this severity: error (default),
                   warning, or never
  --color WHEN     auto (default), always or never
  --help           print this

exit status: that of the whole run; 2 also when a report is missing or damaged

example: dsh-verify merge part1.json part2.json part3.json
`

// Program returns the program.
func Program() *cli.Program {
	return &cli.Program{
		Name: "dsh-verify", Help: help, Run: run,
		Flags: []ucli.Flag{cli.Option("requests", ""), cli.Switch("as-loaded"), cli.Optional("paranoid", "off", "sample"),
			cli.Repeated("only"), cli.Repeated("disable"), cli.Option("migrate-to", ""), cli.Option("framing", "auto"), cli.Option("config-layout", "auto"),
			cli.Option("session", ""), cli.Option("jobs", ""), cli.Option("shard", ""),
			cli.Option("format", "text"), cli.Repeated("output"), cli.Switch("notes"), cli.Option("limit", "100"), cli.ColorFlag(),
			cli.Switch("strict"), cli.Option("fail-on", "error"), cli.Switch("fail-on-drift"),
			cli.Option("baseline", ""), cli.Option("write-baseline", ""), cli.Option("config", "")},
		Commands: []*cli.Command{
			{Name: "merge", Run: merge, Help: mergeHelp,
				Flags: []ucli.Flag{cli.Option("format", "text"), cli.Repeated("output"), cli.Switch("notes"),
					cli.Switch("strict"), cli.Option("fail-on", "error"), cli.ColorFlag()}},
			{Name: "explain", Run: explain, Flags: []ucli.Flag{cli.ColorFlag()},
				Help: `dsh-verify explain - say what a rule means and what to do when it is broken

usage: dsh-verify explain [options] RULE ...

options:
  --color WHEN  auto (default), always or never
  --help        print this

exit status: 0 printed, 2 no such rule
`},
			{Name: "rules", Run: rules, Flags: []ucli.Flag{cli.ColorFlag()},
				Help: `dsh-verify rules - list the rules

usage: dsh-verify rules [options]

options:
  --color WHEN  auto (default), always or never
  --help        print this

exit status: 0 printed
`},
		},
	}
}

func run(c *cli.Call) error {
	if len(c.Operands) == 0 {
		return cli.Usage("no log given", "usage: dsh-verify [options] PATH ...")
	}
	if slices.Contains(c.Operands, "") {
		return cli.Usage("the path of a log is empty", "a variable of the shell that is not set gives one")
	}
	if i := slices.Index(c.Operands, "-"); i >= 0 && slices.Contains(c.Operands[i+1:], "-") {
		return cli.Usage("standard input can be read only once", "save it to a file first")
	}
	set, err := readSettings(c)
	if err != nil {
		return err
	}
	format, err := set.choice("format", formats...)
	if err != nil {
		return err
	}
	plan, err := set.judging()
	if err != nil {
		return err
	}
	if plan.migrate > 0 && slices.Contains(c.Operands, "-") {
		return cli.Usage("--migrate-to has to read the log twice, which standard input does not allow", "save it to a file first")
	}
	p := &pipeline{c: c, plan: plan}
	j := &collector{c: c, policy: plan.policy, limit: plan.limit, base: plan.base}
	j.sum.NotRun = plan.notRun
	if set.path != "" {
		j.sum.Config = report.Text(set.path)
	}
	if c.IsSet("shard") {
		if p.shard, err = parseShard(c.Text("shard")); err != nil {
			return err
		}
	}
	if c.IsSet("write-baseline") {
		if p.shard != nil {
			return cli.Usage("--write-baseline needs the whole run, not a part of it")
		}
		j.gather = &gathering{entries: map[string]*report.KnownEntry{}}
	}
	paths, err := expand(c.Operands)
	if err != nil {
		return err
	}
	if c.IsSet("requests") {
		if p.shard != nil {
			return cli.Usage("--requests compares one log, which --shard may leave to another part", "leave --shard out")
		}
		f, err := openRecording(c, paths)
		if err != nil {
			return err
		}
		defer f.Close()
		p.recording = f
	}
	defer j.abort()
	if err := j.openSinks(format, plan.notes, p.shard, paths); err != nil {
		return err
	}
	if j.gather != nil {
		if j.gather.file, err = createFile(c, c.Text("write-baseline"), paths); err != nil {
			return err
		}
	}
	p.own = j.written()
	j.progress = c.UI.Progress("judging", os.Getenv)
	if err := p.collect(j, paths); err != nil {
		return err
	}
	if err := j.close(); err != nil {
		return err
	}
	return cli.Exit(j.status)
}

// collect runs the pipeline and gives its results to j.
func (p *pipeline) collect(j *collector, paths []string) error {
	ctx, stop := context.WithCancel(p.c)
	queue := p.run(ctx, paths)
	// Whatever ends the run, nothing of it goes on behind its back; but a user who
	// interrupts does not wait for a read that may never end.
	defer func() {
		stop()
		if p.c.Err() == nil {
			for range queue {
			}
		}
	}()
	at := int64(0)
	for {
		var unit chan outcome
		select {
		case u, ok := <-queue:
			if !ok {
				if p.shard != nil {
					j.sum.Total = at
				}
				return p.c.Err()
			}
			unit = u
		case <-p.c.Done():
			return p.c.Err()
		}
		for open := true; open; {
			var o outcome
			select {
			case o, open = <-unit:
			case <-p.c.Done():
				return p.c.Err()
			}
			switch {
			case !open:
			case o.err != nil:
				return o.err
			case o.end:
				j.sum.Skipped += o.skipped
				if o.logs == 0 {
					j.empty(o.path, o.skipped)
				}
			case o.report:
				if at++; o.res == nil {
					continue
				}
				if p.shard != nil {
					n := at
					o.res.At = &n
				}
				if err := j.add(o.res); err != nil {
					return err
				}
			}
		}
	}
}

// expand replaces patterns that the shell did not expand, as on Windows or within
// quotes, by the files they match. A file of that very name goes first.
func expand(operands []string) ([]string, error) {
	var out []string
	for _, o := range operands {
		if o == "-" || !strings.ContainsAny(o, "*?[") {
			out = append(out, o)
			continue
		}
		if _, err := os.Lstat(o); err == nil || !errors.Is(err, fs.ErrNotExist) {
			out = append(out, o)
			continue
		}
		found, err := filepath.Glob(o)
		if err != nil {
			return nil, cli.Usage(fmt.Sprintf("%s: not a pattern: %v", o, err))
		}
		if len(found) == 0 {
			return nil, cli.Fail(cli.Trouble, fmt.Errorf("%s: no file matches", o))
		}
		slices.Sort(found)
		out = append(out, found...)
	}
	return out, nil
}

// openRecording opens the file of --requests; "-" is standard input.
func openRecording(c *cli.Call, paths []string) (io.ReadCloser, error) {
	name := c.Text("requests")
	if len(paths) > 1 {
		return nil, cli.Usage("--requests compares one log", "run it once for each log")
	}
	if st, err := os.Stat(paths[0]); err == nil && st.IsDir() {
		return nil, cli.Usage("--requests compares one log, and "+paths[0]+" is a directory", "name the log in it")
	}
	if name == "-" {
		if paths[0] == "-" {
			return nil, cli.Usage("standard input can be read only once", "save one of the two to a file first")
		}
		return io.NopCloser(c.Stdin), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, source.Trouble(name, err)
	}
	return f, nil
}
