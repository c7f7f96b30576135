package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/ui"
)

// ExportSchema names the JSON format of "dsh-replay export".
const ExportSchema = "dsh-audit/export/1"

// An Extent is a stretch of events. Absent members say that there is none.
type Extent struct {
	Events   int64  `json:"events"`
	First    *int64 `json:"first,omitempty"` // seq
	Last     *int64 `json:"last,omitempty"`  // seq
	Turns    int64  `json:"turns"`           // that end in it
	LastTurn *int64 `json:"lastTurn,omitempty"`
}

// String says the extent in words.
func (x Extent) String() string {
	if x.Events == 0 {
		return "no event"
	}
	s := count(x.Events, "event")
	if x.First != nil && x.Last != nil {
		if *x.First == *x.Last {
			s += fmt.Sprintf(", seq %d", *x.First)
		} else {
			s += fmt.Sprintf(", seq %d to %d", *x.First, *x.Last)
		}
	}
	switch {
	case x.Turns == 0:
		s += ", no complete turn"
	case x.LastTurn != nil && x.Turns > 1:
		s += fmt.Sprintf(", %d complete turns, the last is turn %d", x.Turns, *x.LastTurn)
	case x.LastTurn != nil:
		s += fmt.Sprintf(", one complete turn, turn %d", *x.LastTurn)
	default:
		s += ", " + count(x.Turns, "complete turn")
	}
	return s
}

// An Added is an event that closes an open turn.
type Added struct {
	Type string `json:"type"`
	Seq  int64  `json:"seq"`
}

// addedWords lists events by type.
func addedWords(list []Added) string {
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j < len(list) && list[j].Type == list[i].Type {
			j++
		}
		word := list[i].Type
		if j > i+1 {
			word = fmt.Sprintf("%d %s", j-i, word)
		}
		parts = append(parts, word)
		i = j
	}
	return strings.Join(parts, ", ")
}

// A Dropped is what a repair left out.
type Dropped struct {
	Byte    *int64 `json:"byte,omitempty"` // the file up to here was kept, but for Recovered events
	Row     *int64 `json:"row,omitempty"`  // of a database: rows up to here were kept
	Events  int64  `json:"events"`         // that could be read in it
	Message Text   `json:"message"`        // the first defect
}

// An Export says what became of a log that was written in another form.
type Export struct {
	Schema    string   `json:"schema"`
	Path      Text     `json:"path"`
	Session   Text     `json:"session"`
	Out       Text     `json:"out"`
	To        string   `json:"to"`
	Bytes     int64    `json:"bytes"` // size of the new file
	Kept      Extent   `json:"kept"`
	Recovered int64    `json:"recovered"` // of the kept events, those of a cut frame
	Dropped   *Dropped `json:"dropped"`   // null when nothing was
	Added     []Added  `json:"added"`
	// Unheld are members of the header record that the new form has no place for.
	Unheld []Text `json:"unheld"`
	// Refused is why the newest harness does not load the log; "" when it does.
	Refused Text `json:"refused"`
	// Open is why a turn that is open at the end was not closed by the repair; ""
	// when none is, or none was asked for.
	Open Text `json:"open"`
}

// WriteExportJSON writes one JSON object and a line feed.
func WriteExportJSON(w io.Writer, x *Export) error {
	x.Schema = ExportSchema
	if x.Added == nil {
		x.Added = []Added{}
	}
	if x.Unheld == nil {
		x.Unheld = []Text{}
	}
	b, err := Marshal(x)
	if err != nil {
		return err
	}
	return writeString(w, string(b), "\n")
}

// WriteExportText writes for people.
func WriteExportText(w io.Writer, pal ui.Palette, x *Export) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: written as %s, %s, from %s\n", pal.Head(ui.Escape(string(x.Out))), x.To, count(x.Bytes, "byte"), ui.Escape(string(x.Path)))
	fmt.Fprintf(&b, "  kept     %s\n", x.Kept)
	if x.Recovered > 0 {
		fmt.Fprintf(&b, "           of these, %s from the frame that was cut\n", count(x.Recovered, "event"))
	}
	switch d := x.Dropped; {
	case d == nil:
		b.WriteString("  dropped  nothing\n")
	default:
		what := "the rows from seq "
		if d.Byte != nil {
			what = fmt.Sprintf("what lies behind byte %d", *d.Byte)
		} else if d.Row != nil {
			what += fmt.Sprint(*d.Row)
		}
		if x.Recovered > 0 {
			what += ", but for these"
		}
		if d.Events > 0 {
			what += fmt.Sprintf(", %s that can be read in it included", count(d.Events, "event"))
		}
		fmt.Fprintf(&b, "  dropped  %s: %s\n", what, ui.Escape(string(d.Message)))
	}
	for _, k := range x.Unheld {
		fmt.Fprintf(&b, "  dropped  %s of the header record, which no harness reads\n", ui.Escape(string(k)))
	}
	if len(x.Added) == 0 {
		b.WriteString("  added    nothing\n")
	} else {
		fmt.Fprintf(&b, "  added    %s from seq %d on: %s\n", count(int64(len(x.Added)), "event"), x.Added[0].Seq, addedWords(x.Added))
	}
	return writeString(w, b.String())
}
