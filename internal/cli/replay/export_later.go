package replay

import (
	"fmt"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/source"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/invariants"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// laterTail is what else matters of a log of a later generation when a turn is open
// at its end.
type laterTail struct {
	line      int64 // of the last event that is kept
	turn      int64 // seq of its start
	cut       int64 // of the last mark behind inherited events, -1 when there is none
	marked    bool
	compacted bool // a compaction is open
}

func (t *laterTail) add(e *logfmt.Event) {
	t.line = e.Pos.Line
	switch e.Type {
	case logfmt.TypeTurnStart:
		t.turn = e.Seq
	case logfmt.TypeSessionEndSeed:
		t.compacted = false
		if e.SetsCut() {
			t.cut, t.marked = e.Seq, true
		}
	case logfmt.TypeCompactionStart:
		t.compacted = true
	case logfmt.TypeCompactionEnd:
		t.compacted = false
	}
}

// stays says why the open turn is not closed, and what could be done about it;
// nothing when it is known what the harness would add (FORMATS §7.9).
func (t *laterTail) stays(gen int64, open *fold.CloserTracker, texts fold.CloserTexts) (why, advice string) {
	switch {
	case gen == 1:
		return "no harness goes on with a log of generation 1, so nothing is known to close a turn of it",
			"repair the log of generation 0 that it was made from"
	case gen != 4:
		return fmt.Sprintf("which bytes the builds of generation %d add to close a turn is not known, and nothing is guessed", gen), ""
	case t.marked && t.turn < t.cut:
		return fmt.Sprintf("it began at seq %d, before the inherited events end at seq %d, and whether it counts as interrupted or as forked is not known", t.turn, t.cut), ""
	case t.compacted:
		return "a compaction is open in it, which only the process that goes on with the session gives up, with a session/end-seed of its own time",
			"a harness that opens the session closes both"
	}
	if ids := open.NotStarted(); len(ids) > 0 && !fold.OwnNotStarted(texts.NotStarted) {
		id := string(ids[0])
		if len(id) > 64 {
			id = strings.ToValidUTF8(id[:61], "") + "..."
		}
		return fmt.Sprintf("call %s was never recorded as started, and the harness refuses a log in which the result of such a call is in other words than its own", id),
			"give the harness's words with --recovery-text-not-started TEXT"
	}
	return "", ""
}

// hardTail refuses a log of generation 4 whose harness drops no tail: for some
// breaches it refuses the log even where it would cut (FORMATS §2.6).
func (x *export) hardTail() error {
	if x.log.Header.Generation < 4 || x.log.Class() != logfmt.Torn {
		return nil
	}
	path := x.log.Path
	log, err := source.One(x.c, x.path)
	if err != nil {
		return err
	}
	defer log.Close()
	res, err := invariants.Check(x.c, log, invariants.Options{MaxPerRule: 1 << 16, Rules: invariants.HardTail})
	if err != nil {
		return err
	}
	if res.Class != logfmt.Torn {
		return cli.Fail(cli.Found, fmt.Errorf("%s: the log is torn, and it cannot be read a second time to look at what is dropped: nothing is exported", path),
			"write it into a file and export that")
	}
	for _, f := range res.Findings {
		if f.Severity == invariants.Error && f.Pos.Line > x.tail.line {
			return cli.Fail(cli.Found, fmt.Errorf("%s:%d: the tail that a repair drops holds what the harness refuses a log for, wherever it stands: %s: nothing is exported", path, f.Pos.Line, f.Message),
				"restore the log from a copy, or take that line out of a copy and export it again")
		}
	}
	return nil
}
