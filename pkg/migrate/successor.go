package migrate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"hash"
	"iter"
	"strconv"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// A Succession compares a log with its own successor: the file of a later generation
// that a migration published beside it. A successor begins with what the migration
// makes of the older log, and goes on from there.
type Succession struct {
	From, To int64
	Events   int64 // of the older log
	Carried  int64 // what the migration makes of them
	Listed   int64 // children that the migration listed behind them
	Since    int64 // events of the newer log behind these
	// Refusal is set when no migration takes the older log: then the newer one
	// cannot have come from it, and nothing is compared.
	Refusal   *Result
	Differing int64       // of the carried events, those that the newer log has otherwise or not at all
	First     *Difference // nil when there is none
	// Chunks tells that the chunks of the older log, and when they came, are those
	// of the newer one. It counts for nothing when events differ.
	Chunks bool
}

// Same reports whether the newer log is the older one, and what came since.
func (s *Succession) Same() bool { return s.Refusal == nil && s.Differing == 0 && s.Chunks }

// A Difference is an event that the newer log should have.
type Difference struct {
	Seq    int64  // in the numbering of the newer log
	Source int64  // of the event of the older log it comes from; -1 for one that the migration adds
	Want   []byte // the event as the migration makes it, its stream left out
	Got    []byte // the event that stands there; nil when the newer log ends before
}

// Follow compares two logs of one session. Both are read to their ends, the older
// one twice.
func Follow(ctx context.Context, older, newer *logfmt.Log) (*Succession, error) {
	s := &Succession{From: older.Header.Format().Version, To: newer.Header.Format().Version}
	next, stop := iter.Pull2(newer.Events())
	defer stop()
	chunks := chunkSum{h: sha256.New()}
	event := func() *logfmt.Event {
		for {
			e, d, ok := next()
			if !ok {
				return nil
			}
			if d == nil && !e.AfterDamage {
				return e
			}
		}
	}
	header := true
	last := int64(0) // time of the last carried event
	res, err := run(ctx, older, s.To, func(gen int64, line []byte) {
		if gen != s.To {
			return
		}
		if header { // judged by whoever opens the newer log
			header = false
			return
		}
		s.Carried++
		last, _ = jsjson.SafeInt(jsjson.Get(line, "time"))
		want, _, err := jsjson.Stringify(bytes.TrimSuffix(line, []byte{'\n'}))
		if err != nil {
			return // written here
		}
		e := event()
		var got []byte
		if e != nil {
			chunks.event(e)
			if got = normal(e); jsjson.Equal(want, got) {
				return
			}
		}
		if s.Differing++; s.First == nil {
			s.First = &Difference{Seq: s.Carried - 1, Source: -1, Want: bytes.Clone(want), Got: bytes.Clone(got)}
		}
	})
	if err != nil {
		return nil, err
	}
	list := s.To >= 4 && s.From < 4
	var child child
	for e := event(); e != nil; e = event() {
		if list = list && child.follows(e, last); list {
			s.Listed++
			continue
		}
		s.Since++
	}
	if !res.Accepted {
		*s = Succession{From: s.From, To: s.To, Refusal: res}
	}
	old := chunkSum{h: sha256.New()}
	for e, d := range older.Events() {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if d != nil || e.AfterDamage {
			continue
		}
		s.Events++
		old.event(e)
	}
	s.Chunks = bytes.Equal(old.h.Sum(nil), chunks.h.Sum(nil))
	return s, nil
}

// child is the last child that a migration listed. The step to generation 4 ends with
// the children that were not listed before, in order of their creation, all with the
// time of the last event (FORMATS §7.5). Which children there are is in their logs,
// so what is listed is taken as it stands.
type child struct {
	created int64
	id      string
}

func (c *child) follows(e *logfmt.Event, last int64) bool {
	version, ok := jsjson.SafeInt(jsjson.Get(e.Data, "version"))
	created, dated := jsjson.SafeInt(jsjson.Get(e.Data, "childCreatedAt"))
	id, named := jsjson.Str(jsjson.Get(e.Data, "childId"))
	if e.Type != logfmt.TypeSubagentCatalog || e.Time != last || !ok || version > 1 || !dated || !named ||
		created < c.created || created == c.created && id <= c.id {
		return false
	}
	*c = child{created, id}
	return true
}

// chunkSum is a digest of chunks and their times, whether they are events or
// embedded.
type chunkSum struct {
	h   hash.Hash
	buf []byte
}

func (c *chunkSum) event(e *logfmt.Event) {
	switch {
	case e.Type == logfmt.TypeAssistantChunk:
		c.add(e.Time, jsjson.Get(e.Data, "chunk"))
	case fold.Settled(int64(e.Gen)) && (e.Type == logfmt.TypeAssistantMessage || e.Type == logfmt.TypeAssistantAttempt):
		for ch, err := range fold.ExpandStream(e.Data) {
			if err == nil {
				c.add(ch.Time, ch.JSON)
			}
		}
	}
}

func (c *chunkSum) add(at int64, chunk []byte) {
	c.buf = append(strconv.AppendInt(c.buf[:0], at, 10), ' ')
	c.h.Write(append(append(c.buf, chunk...), '\n'))
}

// normal is an event as the steps here write it: sources in full, streams empty.
func normal(e *logfmt.Event) []byte {
	out := e.JSON
	if e.Sources != nil {
		if seqs, ok := e.SourceSeqs(nil); ok {
			out = with(out, "sourceEventSeqs", seqList(seqs))
		}
	}
	if jsjson.Get(e.Data, "stream") != nil {
		out = with(out, "data", with(e.Data, "stream", []byte("[]")))
	}
	return out
}
