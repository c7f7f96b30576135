package verify

import (
	"context"
	"path/filepath"
	"strings"
	"sync"

	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// parents finds the log that another one was forked from, among all that the run
// was given. Most runs hold no fork; the index of ids is made when the first one
// asks, by a walk that reads headers only.
type parents struct {
	paths []string
	once  sync.Once
	at    map[string][]place
}

// A place is where a log lies.
type place struct {
	path    string
	session string // of a database
}

// samePlaces is how many logs of one id are told apart.
const samePlaces = 16

func (p *parents) index(ctx context.Context) {
	p.at = map[string][]place{}
	for _, path := range p.paths {
		if path == "-" {
			continue // it can be read only once
		}
		for log, err := range logfmt.Open(path, logfmt.Options{}) {
			if ctx.Err() != nil {
				return
			}
			if err != nil || log.Header == nil || len(p.at[log.Header.ID]) == samePlaces {
				continue
			}
			at := place{path: log.Path}
			if log.Container == logfmt.SQLite {
				at.session = log.Session
			}
			p.at[log.Header.ID] = append(p.at[log.Header.ID], at)
		}
	}
}

// find opens the log of a session for one of its children, nil when it is not at
// hand. Of several the nearest is meant: in the same file, else in the same
// directory or the one around it, and so on.
func (p *parents) find(ctx context.Context, child *logfmt.Log, id string) *logfmt.Log {
	p.once.Do(func() { p.index(ctx) })
	best, near := place{}, -1
	for _, at := range p.at[id] {
		if at.path == child.Path && at.session == child.Session {
			continue // its own
		}
		if n := nearness(at.path, child.Path); n > near {
			best, near = at, n
		}
	}
	if near < 0 {
		return nil
	}
	log, err := logfmt.OpenFile(best.path, logfmt.Options{Session: best.session})
	if err != nil {
		return nil // said where that log is judged
	}
	return log
}

// nearness is how many leading parts two paths share.
func nearness(a, b string) int {
	x, y := strings.Split(filepath.ToSlash(a), "/"), strings.Split(filepath.ToSlash(b), "/")
	n := 0
	for n < min(len(x), len(y)) && x[n] == y[n] {
		n++
	}
	return n
}
