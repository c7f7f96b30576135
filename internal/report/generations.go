package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/ui"
)

// A GenerationPair is a log and its successor of a later format generation.
type GenerationPair struct {
	Older      Text                  `json:"older"`
	Newer      Text                  `json:"newer"`
	From       int64                 `json:"from"`
	To         int64                 `json:"to"`
	Same       bool                  `json:"same"`
	Events     int64                 `json:"events"`    // of the older log
	Carried    int64                 `json:"carried"`   // what a migration makes of them
	Listed     int64                 `json:"listed"`    // children that the migration listed behind these
	Since      int64                 `json:"since"`     // events of the newer log behind all these
	Differing  int64                 `json:"differing"` // of the carried ones
	Chunks     bool                  `json:"chunks"`    // chunks and their times are the same
	First      *GenerationDifference `json:"first,omitempty"`
	Note       Text                  `json:"note,omitempty"` // why nothing was compared
	Unverified bool                  `json:"unverified,omitempty"`
}

// A GenerationDifference is the first event that the newer log has otherwise.
type GenerationDifference struct {
	Seq  int64 `json:"seq"` // in the newer log
	Want Raw   `json:"want"`
	Got  Raw   `json:"got"` // null when it ends before
}

// WriteGenerations writes what became of logs in later generations.
func WriteGenerations(out io.Writer, asJSON bool, o DiffOptions, pairs []GenerationPair) error {
	if asJSON {
		b, err := Marshal(struct {
			Schema  string           `json:"schema"`
			Mode    string           `json:"mode"`
			Results []GenerationPair `json:"results"`
		}{DiffSchema, "generations", pairs})
		if err != nil {
			return err
		}
		return writeString(out, string(b)+"\n")
	}
	var b strings.Builder
	for i := range pairs {
		p := &pairs[i]
		fmt.Fprintf(&b, "A  %s\nB  %s\n", o.Palette.Head(ui.Escape(string(p.Older))), o.Palette.Head(ui.Escape(string(p.Newer))))
		switch {
		case p.Note != "":
			fmt.Fprintf(&b, "%s: %s\n", o.Palette.Warn("differ"), ui.Escape(string(p.Note)))
			continue
		case p.Same:
			fmt.Fprintf(&b, "%s conversation: %s of generation %d became %d of generation %d", o.Palette.Good("same"), count(p.Events, "event"), p.From, p.Carried, p.To)
		case p.Differing == 0:
			fmt.Fprintf(&b, "%s: the events are the same, the chunks that the model sent, or their times, are others", o.Palette.Warn("differ"))
		default:
			fmt.Fprintf(&b, "%s: %d of %s that a migration makes of A are others in B, or not there", o.Palette.Warn("differ"), p.Differing, count(p.Carried, "event"))
		}
		switch {
		case p.Listed == 1:
			b.WriteString("; a child was listed")
		case p.Listed > 1:
			fmt.Fprintf(&b, "; %d children were listed", p.Listed)
		}
		fmt.Fprintf(&b, "; %s came since", count(p.Since, "event"))
		if p.Unverified {
			b.WriteString(" (unverified)")
		}
		b.WriteByte('\n')
		if d := p.First; d != nil && !o.Stat {
			got := "nothing: the log ends before"
			if d.Got != nil {
				got = clipText(string(d.Got), o.Full)
			}
			fmt.Fprintf(&b, "  first at seq %d of B\n    expected %s\n    got      %s\n", d.Seq, clipText(string(d.Want), o.Full), got)
		}
	}
	return writeString(out, b.String())
}

// clipText shows JSON of a log on one line.
func clipText(s string, full bool) string {
	const most = 300
	if !full && len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return ui.Escape(s)
}
