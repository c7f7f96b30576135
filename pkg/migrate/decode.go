package migrate

import (
	"context"
	"path"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// source is the generation that the chain starts with: the one in the name of the
// file, by which the harness goes, else the one in the header.
func source(c *chain, log *logfmt.Log) int64 {
	h := log.Header
	named, ok := logfmt.GenerationOfName(path.Base(strings.ReplaceAll(log.Path, `\`, "/")))
	switch {
	case h == nil && !ok:
		return 0
	case h == nil:
		return named
	case ok && named != h.Generation:
		c.refuse(decoding(named), &row{src: -1, line: h.Pos.Line}, "LOG-GENERATION", "rename the file after the version in its header",
			"the name of the file says generation %d, its header %d", named, h.Generation)
		return named
	}
	return h.Generation
}

// decode reads the log as the decoder of its generation does, and hands its events
// on (FORMATS §8, step 0).
func decode(ctx context.Context, c *chain, log *logfmt.Log, from int64, out *steps) error {
	at := decoding(from)
	h := log.Header
	if h == nil {
		headless(c, log, at)
	} else if from == 0 {
		header0(c, h)
	} else if h.Fault != 0 {
		c.refuse(at, &row{src: -1, line: h.Pos.Line}, "LOG-HEADER", "restore the header record from a copy", "the header record has a member that generation %d does not have, or one of another type", from)
	}
	if logfmt.GenerationOf(from) == nil && c.open(at) {
		c.refuse(at, nil, "LOG-FORMAT", "", "generation %d is not one the chain knows", from)
	}
	var damage *logfmt.Defect
	n, events := 0, int64(0)
	for e, d := range log.Events() {
		if n++; n&1023 == 1 && ctx.Err() != nil {
			return ctx.Err()
		}
		if d != nil {
			if damage == nil && d.Class == logfmt.Corrupt {
				damage = d
			}
			continue
		}
		if e.AfterDamage {
			if e.Type == logfmt.TypeTurnEnd && damage != nil {
				c.refuse(at, &row{src: damage.Seq, line: damage.Pos.Line}, damage.Rule, "restore the line from a copy; what stands behind it was committed", "%s", damage.Message)
			}
			continue
		}
		events++
		if !c.open(at) {
			continue
		}
		if malformed(c, e, at) {
			continue
		}
		out.source(e)
	}
	if log.Class() == logfmt.Corrupt && log.Container != logfmt.Plain && damage != nil {
		c.refuse(at, &row{src: damage.Seq, line: damage.Pos.Line}, damage.Rule, "", "%s", damage.Message)
	}
	if log.Class() == logfmt.Unreadable || log.Class() == logfmt.Unsupported && len(log.Defects()) > 0 && c.open(at) {
		d := log.Defects()[0]
		c.refuse(at, nil, d.Rule, d.Hint, "%s", d.Message)
	}
	if h != nil && from <= 1 && h.Seed() > events {
		c.refuse(at, nil, "FORK-LEN", "the header belongs to another log, or events are missing", "seedLength is %d, but the log has %d events", h.Seed(), events)
	}
	return nil
}

// headless refuses a log without a usable header record: in a line that is not
// there the decoder sees nothing at all.
func headless(c *chain, log *logfmt.Log, at stage) {
	for range log.Events() {
		break
	}
	message := "there is no header record"
	line := int64(1)
	if defects := log.Defects(); len(defects) > 0 {
		d := defects[0]
		message = d.Message
		if d.Rule == logfmt.RuleHeader && (strings.Contains(d.Message, "no line feed") || strings.Contains(d.Message, "cut after") || strings.Contains(d.Message, "empty")) {
			at = reading
		}
	}
	c.refuse(at, &row{src: -1, line: line}, logfmt.RuleHeader, "restore the header record from a copy", "%s", message)
}

// header0 holds the header record of generation 0 to what the last release of it
// wrote.
func header0(c *chain, h *logfmt.Header) {
	const advice = "no current build reads such a header; the log can be shown and judged here"
	at := decoding(0)
	bad := func(format string, args ...any) {
		c.refuse(at, &row{src: -1, line: h.Pos.Line}, "LOG-HEADER", advice, format, args...)
	}
	f := h.Fault
	switch {
	case f&logfmt.HeaderJune != 0:
		bad("the header says version 1, as builds of June 2026 did")
	case f&logfmt.HeaderNoDepth != 0:
		bad("the header has no delegationDepth")
	case f&logfmt.HeaderCreatedAt != 0:
		bad("createdAt of the header is no whole number from 0")
	case f&logfmt.HeaderCwd != 0:
		bad("cwd of the header is no string")
	case f&logfmt.HeaderCwdRelative != 0:
		bad("cwd of the header is no absolute path")
	case f&logfmt.HeaderParent != 0:
		bad("parentSession of the header is no string")
	case f&logfmt.HeaderSeed != 0:
		bad("seedLength of the header is no whole number from 0")
	case f&logfmt.HeaderUnknownKey != 0:
		bad("the header has the key %q", h.Unknown[0])
	}
}

// malformed refuses a record that the decoder does not take for an event.
func malformed(c *chain, e *logfmt.Event, at stage) bool {
	r := &row{src: e.Seq, line: e.Pos.Line}
	if e.Fault&logfmt.FaultSources != 0 || !risingPairs(e) {
		c.refuse(at, r, "SURF-SOURCES", "restore the event from a copy", "sourceEventSeqs is no list of seqs and rising pairs")
		return true
	}
	if e.Pos.Member == 0 && e.Pos.Line > 0 { // the first of a packed row
		chunk := jsjson.Get(e.Data, "chunk")
		for _, v := range [][]byte{jsjson.Get(e.Data, "turn"), jsjson.Get(e.Data, "step"), jsjson.Get(chunk, "index")} {
			if n, ok := jsjson.SafeInt(v); !ok || n < 0 {
				c.refuse(at, r, "LINE-ROW", "restore the row from a copy", "turn, step and index of a packed row are whole numbers from 0, one is %s", v)
				return true
			}
		}
	}
	return false
}

// risingPairs reports whether a list with pairs rises.
func risingPairs(e *logfmt.Event) bool {
	if e.Fault&logfmt.FaultSourceRuns == 0 {
		return true
	}
	runs, ok := e.SourceRanges(nil)
	last := int64(-1)
	for _, r := range runs {
		if r.First <= last {
			return false
		}
		last = r.Last
	}
	return ok
}
