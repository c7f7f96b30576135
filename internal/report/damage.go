package report

import (
	"fmt"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/ui"
)

// A Damage says what happened to a log that is torn or corrupt, what of it is
// sound, and what a harness makes of it. The single defects are findings.
type Damage struct {
	Kind    string   `json:"kind"` // torn or corrupt
	Rule    string   `json:"rule"` // that the first defect breaks
	At      DamageAt `json:"at"`
	Message Text     `json:"message"` // what the first defect is
	Before  Extent   `json:"before"`  // what stands before it
	Behind  Extent   `json:"behind"`  // what can be read behind it
	Harness Harness  `json:"harness"`
	Next    Text     `json:"next,omitempty"` // command to run
}

// DamageAt is the place of the first defect.
type DamageAt struct {
	Line        int64  `json:"line,omitempty"`        // physical line, from 1
	Offset      *int64 `json:"offset,omitempty"`      // in the plain text
	Frame       *int   `json:"frame,omitempty"`       // from 0
	FrameOffset *int64 `json:"frameOffset,omitempty"` // of the frame in the file
	Row         *int64 `json:"row,omitempty"`
	Seq         *int64 `json:"seq,omitempty"` // expected there
}

// A Harness is what a harness does when it opens the log.
type Harness struct {
	Build     string  `json:"build"`  // date of the build, "" for those of a later generation
	Action    string  `json:"action"` // cut, refuse or unknown
	Reason    Text    `json:"reason,omitempty"`
	Byte      *int64  `json:"byte,omitempty"` // a build that loads the log cuts the file there
	Row       *int64  `json:"row,omitempty"`  // and deletes the rows from this seq on
	Recovered int64   `json:"recovered"`      // events of the cut frame that are written again
	Adds      []Added `json:"adds"`           // events that close the open turn
}

// appendText appends the report for people.
func (d *Damage) appendText(b *strings.Builder, path string) {
	var place []string
	if d.At.Row != nil {
		place = append(place, fmt.Sprintf("row %d", *d.At.Row))
	}
	if d.At.Frame != nil {
		s := fmt.Sprintf("frame %d", *d.At.Frame)
		if d.At.FrameOffset != nil {
			s += fmt.Sprintf(" at byte %d of the file", *d.At.FrameOffset)
		}
		place = append(place, s)
	}
	if d.At.Line > 0 {
		place = append(place, fmt.Sprintf("line %d", d.At.Line))
	}
	if d.At.Offset != nil {
		s := "byte"
		if d.At.Frame != nil {
			s = "text byte"
		}
		place = append(place, fmt.Sprintf("%s %d", s, *d.At.Offset))
	}
	if d.At.Seq != nil {
		place = append(place, fmt.Sprintf("seq %d", *d.At.Seq))
	}
	fmt.Fprintf(b, "%s: damage: %s", path, d.Kind)
	if len(place) > 0 {
		b.WriteString(" from " + strings.Join(place, ", "))
	}
	b.WriteString("\n")
	fmt.Fprintf(b, "    before   %s\n", d.Before)
	fmt.Fprintf(b, "    behind   %s\n", behind(d.Behind))
	fmt.Fprintf(b, "    harness  %s\n", ui.Escape(d.Harness.String()))
	if d.Next != "" {
		fmt.Fprintf(b, "    next     %s\n", ui.Escape(string(d.Next)))
	}
}

func behind(x Extent) string {
	if x.Events == 0 {
		return "nothing that can be read"
	}
	return x.String()
}

// String says in words what the harness does.
func (h *Harness) String() string {
	who := "a build of its generation "
	if h.Build != "" {
		who = "that of " + h.Build + " "
	}
	cut := h.cut()
	switch h.Action {
	case "refuse":
		s := who + "refuses the log: " + string(h.Reason)
		if cut != "" {
			s += "; a build of its time " + cut
		}
		return s
	case "cut":
		return who + cut
	}
	return "what " + who + "does is not known: " + string(h.Reason)
}

func (h *Harness) cut() string {
	s := ""
	switch {
	case h.Byte != nil:
		s = fmt.Sprintf("cuts the file at byte %d", *h.Byte)
	case h.Row != nil:
		s = fmt.Sprintf("deletes the rows from seq %d on", *h.Row)
	default:
		return ""
	}
	if h.Recovered > 0 {
		s += fmt.Sprintf(", writes %s of the cut frame again", count(h.Recovered, "event"))
	}
	if len(h.Adds) > 0 {
		s += fmt.Sprintf(", and adds %s from seq %d on: %s", count(int64(len(h.Adds)), "event"), h.Adds[0].Seq, addedWords(h.Adds))
	}
	return s
}
