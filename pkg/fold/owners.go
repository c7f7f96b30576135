package fold

import (
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// maxAncestors bounds the line of forks that is followed.
const maxAncestors = 1 << 10

// lineage tells which session an inherited event was logged in: events are copied
// with their seqs, so each log of the line says by its seedLength which of them are
// its own (SEMANTICS §10.1, §10.2). The log of the child alone tells only that its
// parent had them all.
type lineage struct {
	ask    func(id string) *logfmt.Header
	line   []*logfmt.Header // the log's own header, its parent's, and so on
	tokens [][]byte         // JSON strings of the ids of their parents
	end    bool             // the next one is not at hand
}

// of returns the id, a JSON string, of the session that logged an inherited event.
// Where that is not known it is the last ancestor that is, or nil.
func (l *lineage) of(seq int64) (id []byte, known bool) {
	if len(l.line) == 0 || seq < 0 {
		return nil, false
	}
	for i := 0; i < maxAncestors; i++ {
		h := l.line[i]
		switch {
		case i == 0:
		case h.CutUnknown():
			return id, false
		case seq >= h.Seed():
			return id, true
		}
		if h.ParentSession == nil {
			return id, false
		}
		if i == len(l.tokens) {
			l.tokens = append(l.tokens, jsjson.AppendQuote(nil, *h.ParentSession))
		}
		id = l.tokens[i]
		if i+1 == len(l.line) {
			if l.end || l.ask == nil {
				return id, false
			}
			p := l.ask(*h.ParentSession)
			if p == nil || p.ID != *h.ParentSession || p.Format().Version != h.Format().Version {
				l.end = true // a copy in another generation may be numbered anew
				return id, false
			}
			l.line = append(l.line, p)
		}
	}
	return id, false
}
