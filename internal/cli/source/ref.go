package source

import (
	"fmt"
	"iter"
	"os"
	"strconv"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// A Ref names a request of a log.
type Ref struct {
	Turn, Step int64
	Attempt    int // 0: the only one of the step
}

func (r Ref) String() string {
	s := fmt.Sprintf("%d.%d", r.Turn, r.Step)
	if r.Attempt > 0 {
		s += fmt.Sprintf(".%d", r.Attempt)
	}
	return s
}

// ParseRef reads TURN.STEP[.ATTEMPT].
func ParseRef(s string) (Ref, error) {
	parts := strings.Split(s, ".")
	var n [3]uint64
	ok := len(parts) == 2 || len(parts) == 3
	for i := 0; ok && i < len(parts); i++ {
		var err error
		n[i], err = strconv.ParseUint(parts[i], 10, 53)
		ok = err == nil
	}
	if !ok || len(parts) == 3 && (n[2] == 0 || n[2] > 1<<31-1) {
		return Ref{}, cli.Usage(fmt.Sprintf("%q is not TURN.STEP or TURN.STEP.ATTEMPT", s), "for example 2.1, or 2.1.2 for a second attempt")
	}
	return Ref{int64(n[0]), int64(n[1]), int(n[2])}, nil
}

// SplitRef reads LOG@TURN.STEP[.ATTEMPT] or LOG. A file whose whole name is
// there wins over the reading as a reference.
func SplitRef(s string) (path string, ref *Ref, err error) {
	i := strings.LastIndexByte(s, '@')
	if i < 0 {
		return s, nil, nil
	}
	if _, err := os.Lstat(s); err == nil {
		return s, nil, nil
	}
	r, err := ParseRef(s[i+1:])
	if err != nil {
		return "", nil, err
	}
	if i == 0 {
		return "", nil, cli.Usage(fmt.Sprintf("%q names no log", s), "write LOG@TURN.STEP")
	}
	return s[:i], &r, nil
}

// Find reads a log to its end and returns the request that ref names, or the
// last one that was sent when ref is nil. The status is how a run that prints
// the request must end.
func Find(c *cli.Call, log *logfmt.Log, opts fold.Options, ref *Ref) (found *fold.Request, status, err error) {
	return FindIn(c, log, fold.Requests(log, opts), ref)
}

// FindIn is Find among the requests that another reading of the log yields.
func FindIn(c *cli.Call, log *logfmt.Log, requests iter.Seq2[*fold.Request, error], ref *Ref) (found *fold.Request, status, err error) {
	var damage Damage
	var matches []*fold.Request
	total := 0
	for r, err := range requests {
		if c.Err() != nil {
			return nil, nil, c.Err()
		}
		switch {
		case err != nil:
			if !damage.AddErr(err) {
				return nil, nil, Trouble(log.Path, err)
			}
		case ref == nil:
			total++
			if r.Candidate == "" && !r.Inherited {
				matches = append(matches[:0], r.Clone())
			}
		default:
			total++
			if r.Turn == ref.Turn && r.Step == ref.Step && (ref.Attempt == 0 || ref.Attempt == r.Attempt) {
				matches = append(matches, r.Clone())
			}
		}
	}
	if c.Err() != nil {
		return nil, nil, c.Err()
	}
	status = damage.Status(c, log)
	if code := cli.StatusOf(status); code >= cli.Trouble && len(matches) == 0 {
		return nil, nil, status
	}
	list := CommandLine(c, log.Path, "dsh-replay", "requests", "--candidates", "--inherited")
	switch {
	case len(matches) == 1:
		return matches[0], status, nil
	case len(matches) == 0 && ref == nil:
		return nil, nil, cli.Fail(cli.Found, fmt.Errorf("%s: no request in this log was sent", log.Path), "for what it holds, run: "+list)
	case len(matches) == 0:
		return nil, nil, cli.Fail(cli.Found, fmt.Errorf("%s: no request %s in this log (%s)", log.Path, ref, plural.Count(total, "request")),
			"to list them, run: "+list)
	}
	var names []string
	for _, r := range matches {
		s := fmt.Sprintf("%d.%d.%d", r.Turn, r.Step, r.Attempt)
		switch {
		case r.Candidate != "":
			s += " (may not have been sent)"
		case r.Response >= 0:
			s += " (answered)"
		case r.Finish != "":
			s += " (" + r.Finish + ")"
		}
		names = append(names, s)
	}
	if ref.Attempt > 0 {
		return nil, nil, cli.Fail(cli.Trouble, fmt.Errorf("%s: several requests are called %s: the log numbers its turns or steps twice", log.Path, ref),
			"to see them, run: "+list)
	}
	return nil, nil, cli.Fail(cli.Trouble, fmt.Errorf("%s: %s has %d attempts: %s", log.Path, ref, len(matches), strings.Join(names, ", ")),
		fmt.Sprintf("name one, like %s.%d", ref, matches[len(matches)-1].Attempt))
}
