package load

import (
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// An Extent is a stretch of a log that can be read.
type Extent struct {
	Events      int64
	First, Last int64 // seq of the first and of the last event; -1 when there is none
	Turns       int64 // turns that end in it
	LastTurn    int64 // number of the last of them; -1 when there is none, or it has none
}

var none = Extent{First: -1, Last: -1, LastTurn: -1}

func (x *Extent) add(e *logfmt.Event) {
	if x.Events++; x.Events == 1 {
		x.First = e.Seq
	}
	x.Last = e.Seq
	if e.Type == logfmt.TypeTurnEnd {
		x.Turns++
		x.LastTurn = -1
		if n, ok := jsjson.SafeInt(jsjson.Get(e.Data, "turn")); ok && n > 0 {
			x.LastTurn = n
		}
	}
}

// A Cut is what the harness does to a torn log before it goes on writing it
// (PHYSICAL §2.6, §3.3, §5.8). The zero value cuts nothing.
type Cut struct {
	Torn      bool
	Byte      int64 // the file is cut there; -1 for a database
	Row       int64 // rows with this seq and higher are deleted; -1 for a file
	Recovered int64 // events of a cut frame that are written again, in a new one
}

// cut finds where a torn log is cut.
func (l *Loader) cut(log *logfmt.Log) Cut {
	if log.Class() != logfmt.Torn {
		return Cut{}
	}
	c := Cut{Torn: true, Byte: log.Committed(), Row: -1}
	switch log.Container {
	case logfmt.SQLite:
		c.Byte = -1
		if row, ok := log.TornFrom(); ok {
			c.Row = row
		}
	case logfmt.Zstd:
		if l.inFrame > 0 && l.frameAt >= c.Byte {
			c.Recovered = l.inFrame
		}
	}
	return c
}
