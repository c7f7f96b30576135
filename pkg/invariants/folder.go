package invariants

import (
	"crypto/sha256"
	"fmt"
	"hash"

	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// folder runs the fold beside the rules: they look at its surface and header,
// and the requests it gives are counted.
type folder struct {
	c    *Context
	f    *fold.Fold
	sums hash.Hash // of the requests that are counted as exact
}

func newFolder(c *Context) *folder {
	f := &folder{c, fold.New(c.log.Header, c.opts.Fold), sha256.New()}
	c.Surface = f.f.Surface()
	return f
}

func (f *folder) add(e *logfmt.Event) {
	f.c.fed++
	f.take(f.f.Add(e), e)
}

func (f *folder) end() { f.take(f.f.End(), nil) }

// inherit makes all requests so far inherited ones: the log has just told where
// what it took over ends.
func (f *folder) inherit() {
	n := &f.c.counts
	*n = RequestCounts{Inherited: n.Exact + n.Messages + n.Ambiguous + n.Candidates + n.Inherited}
	f.sums.Reset()
}

// take counts the requests that event e has ended; nil at the end of the log.
func (f *folder) take(rs []*fold.Request, e *logfmt.Event) {
	n := &f.c.counts
	for _, r := range rs {
		switch {
		case r.Inherited:
			n.Inherited++
		case r.Candidate != "":
			n.Candidates++
		case r.Grade == fold.Exact:
			n.Exact++
			sum := r.Sum()
			f.sums.Write(sum[:])
		case r.Grade == fold.Messages:
			n.Messages++
		default:
			n.Ambiguous++
		}
		f.c.witness.request(f.c, r, e)
		f.c.second.request(f.c, r)
		if f.c.opts.Request != nil {
			f.c.opts.Request(r)
		}
	}
}

// digest is what Result.RequestsSHA256 says.
func (f *folder) digest() string {
	if f.c.counts.Exact == 0 {
		return ""
	}
	return fmt.Sprintf("%x", f.sums.Sum(nil))
}
