package invariants

import (
	"github.com/dsh-audit/dsh-audit/pkg/load"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

const ruleRefused = "LOAD-REFUSED"

// load takes the next event of the log, and lets the newest harness have a look at
// it. With AsLoaded it is that harness's event that is judged.
func (c *Context) load(e *logfmt.Event) {
	c.header()
	held := c.loader.Add(e)
	switch {
	case !c.opts.AsLoaded:
		c.event(e)
	case held != nil:
		c.event(held)
	}
}

// loaded concludes what the newest harness makes of the log.
func (c *Context) loaded() {
	o := c.loader.End(c.log)
	c.outcome = o
	if c.opts.AsLoaded {
		for _, e := range o.Closers {
			c.event(e)
		}
	}
	r := o.Refusal
	c.refused = c.opts.AsLoaded && r != nil
	if r == nil || o.Unjudged != "" || !c.runs(ruleRefused) || c.gen != nil && !c.opts.AsLoaded {
		return // it is no news that it reads no later generation
	}
	c.rule = byID[ruleRefused]
	f := c.ReportAt(Place{Pos: r.Pos, Seq: r.Seq, Turn: -1, Step: -1}, r.Path, "the harness of %s refuses the log: %s", load.Date, printable(r.Message))
	if c.opts.AsLoaded {
		f.Severity = Error
		if r.Unsupported && c.log.Class() == logfmt.Unsupported {
			f.Class = logfmt.Unsupported // which is all that can be said of it
		}
	}
	c.rule = nil
}

// nothing forgets what was found in events that no harness holds: a log that is
// refused has no meaning to be judged, only stored bytes.
func (c *Context) nothing() {
	c.counts = RequestCounts{}
	c.tailOpen = false
	for id, b := range c.found {
		b.flush()
		for w := range b.omitted {
			if w.class == "" && id != ruleRefused {
				delete(b.omitted, w)
			}
		}
		kept := b.kept[:0]
		for _, f := range b.kept {
			if f.Class != "" || id == ruleRefused {
				kept = append(kept, f)
			}
		}
		if b.kept = kept; len(kept) == 0 && len(b.omitted) == 0 {
			delete(c.found, id)
		}
	}
}
