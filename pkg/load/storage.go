package load

import (
	"fmt"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// header holds the header record to what the harness of Date asks for. The
// reader judged it by the rules of its own era.
func (l *Loader) header(h *logfmt.Header) {
	at := func(r *Refusal) *Refusal {
		r.Pos = h.Pos
		return r
	}
	if l.opts.ID != "" && h.ID != l.opts.ID {
		at(l.refuse(Identity, nil, "id", "the header is that of another session than the one asked for"))
	}
	if h.ID == "" && !stored(h) {
		at(l.refuse(Identity, nil, "id", "the id in the header is empty, and none is the place of a session without one"))
	}
	raw := func(key string) []byte { return jsjson.Get(h.Raw, key) }
	if v := raw("version"); h.Version != 0 || h.Fault&logfmt.HeaderJune != 0 {
		msg := "it takes format version %s for a later one than the 0 that it reads"
		if n, ok := jsjson.Float(v); ok && n < 0 {
			msg = "it takes format version %s for an older one than the 0 that it reads"
		}
		if h.Fault&logfmt.HeaderJune != 0 {
			msg = "it takes format version %s for a later one than the 0 that it reads, although builds of 06-17 to 06-21 wrote it"
		}
		at(l.refuse(Version, nil, "version", msg, show(v))).Unsupported = true
		return // before it looks at the shape
	}
	switch {
	case h.Fault&logfmt.HeaderCreatedAt != 0:
		at(l.refuse(Record, nil, "createdAt", "createdAt in the header is no whole number from 0, which it asks for since 07-24"))
	case h.Fault&logfmt.HeaderNoDepth != 0 && !stored(h):
		at(l.refuse(Record, nil, "delegationDepth", "the header has no delegationDepth, which it asks for since 07-20"))
	case h.Fault&logfmt.HeaderRetired != 0:
		at(l.refuse(Record, nil, "", "the header holds sandboxMode or approvalPolicy, which only a development build wrote"))
	}
	switch {
	case h.Fault&logfmt.HeaderCwd != 0:
		at(l.refuse(Header, nil, "cwd", "cwd in the header is no text"))
	case h.Fault&logfmt.HeaderCwdRelative != 0:
		at(l.refuse(Header, nil, "cwd", "cwd in the header is no absolute path"))
	case h.Fault&logfmt.HeaderParent != 0:
		at(l.refuse(Header, nil, "parentSession", "parentSession in the header is no text"))
	case h.Fault&logfmt.HeaderSeed != 0:
		at(l.refuse(Header, nil, "seedLength", "seedLength in the header is no whole number from 0"))
	}
}

// stored reports whether a header comes from the columns of a database, where
// delegation_depth may be absent.
func stored(h *logfmt.Header) bool { return h.Pos.Line == 0 }

// show quotes a value for a message.
func show(v []byte) string {
	switch {
	case v == nil:
		return "nothing"
	case len(v) > 40:
		return string(v[:40]) + "…"
	}
	return string(v)
}

// storage finds what keeps the harness from reading the stored bytes. It returns
// why that is not known, "" when it is.
func (l *Loader) storage(log *logfmt.Log) (unjudged string) {
	if log.Container == logfmt.Golden {
		return "a projected fixture is no log that the harness loads"
	}
	if db := log.Database; db != nil && db.Schema != Schema {
		l.refusals[Version] = nil // the schema is looked at before anything in the database
		l.refuse(Version, nil, "", "it opens databases of schema %d only, and this one is of schema %d", Schema, db.Schema).Unsupported = true
	}
	class := log.Class()
	for _, d := range log.Defects() {
		switch {
		case d.Class == logfmt.Unreadable:
			unjudged = "the log cannot be read: " + d.Message
		case d.Class == logfmt.Unsupported && d.Rule == logfmt.RuleLong:
			if unjudged == "" {
				unjudged = "a line is longer than this build reads"
			}
		case d.Class == logfmt.Unsupported && (log.Header == nil || d.Pos.Line <= 1 && d.Seq < 0):
			if l.refusals[Version] == nil && l.refusals[Record] == nil {
				r := l.refuse(Version, nil, "", "%s", d.Message)
				r.Unsupported, r.Pos, r.Err = true, d.Pos, d
			}
		case d.Class == logfmt.Corrupt && class == logfmt.Corrupt:
			stage := Storage
			if d.Rule == logfmt.RuleHeader {
				stage = Record
			}
			if l.refusals[stage] == nil {
				r := l.refuse(stage, nil, "", "%s", place(log, d)+d.Message)
				r.Seq, r.Pos, r.Err = d.Seq, d.Pos, d
			}
		}
	}
	if class == logfmt.Corrupt && l.refusals[Storage] == nil && l.refusals[Record] == nil {
		// A torn line or frame that a record with turn/end stands behind.
		l.refuse(Storage, nil, "", "committed events are damaged")
	}
	if l.refusals[Storage] != nil && l.earlier(log) {
		l.refusals[Storage] = nil
	}
	return unjudged
}

// earlier reports whether the harness looks at what it refuses the header for
// before it meets the damage that it refuses the log for.
func (l *Loader) earlier(log *logfmt.Log) bool {
	switch log.Container {
	case logfmt.SQLite:
		return log.Database != nil && log.Database.Schema != Schema
	case logfmt.Zstd:
		// The frames of the whole file are found first, then the first is read.
		if d, ok := l.refusals[Storage].Err.(*logfmt.Defect); ok {
			switch d.Rule {
			case logfmt.RuleFrameMagic, logfmt.RuleFrameReserved, logfmt.RuleFrameSkip:
				return false
			}
		}
	}
	return l.refusals[Record] != nil || l.refusals[Version] != nil
}

// place names the record of a defect.
func place(log *logfmt.Log, d *logfmt.Defect) string {
	switch {
	case d.Pos.Row >= 0:
		return fmt.Sprintf("row %d: ", d.Pos.Row)
	case d.Pos.Line > 0 && d.Pos.Frame >= 0:
		return fmt.Sprintf("frame %d, line %d: ", d.Pos.Frame, d.Pos.Line)
	case d.Pos.Frame >= 0:
		return fmt.Sprintf("frame %d: ", d.Pos.Frame)
	case d.Pos.Line > 0:
		return fmt.Sprintf("line %d: ", d.Pos.Line)
	}
	return ""
}
