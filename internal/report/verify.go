package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/ui"
)

// VerifySchema names the JSON format of dsh-verify. It changes only when a
// reader of the old format could misread the new one; members may be added.
const VerifySchema = "dsh-audit/verify/1"

// Verdicts in the order of the summary, the best first.
var Verdicts = []string{"ok", "warn", "open", "torn", "violations", "corrupt", "unsupported", "unreadable"}

// meanings completes each verdict for a reader who has not seen one before.
var meanings = map[string]string{
	"ok":          "nothing wrong was found",
	"warn":        "sound, but something is unusual",
	"open":        "sound, but it ends inside a turn: the process was killed, or still runs",
	"torn":        "the last write was cut off; everything before it is sound",
	"violations":  "it can be read, but it breaks rules the harness enforces",
	"corrupt":     "bytes that were already committed are damaged",
	"unsupported": "this build does not judge this kind of log",
	"unreadable":  "it could not be read as a session log",
}

// A Result is the verdict on one log.
type Result struct {
	Path       Text      `json:"path"`
	Session    Text      `json:"session"`    // id of the header, "" when there is none
	Container  string    `json:"container"`  // jsonl, zstd, sqlite, zip, golden; "" when unknown
	Generation *int64    `json:"generation"` // format version of the header
	Eras       []string  `json:"eras"`       // one range a process, like "E5" or "E10-E13"
	Mode       string    `json:"mode"`       // surface or linear
	Events     int64     `json:"events"`
	Requests   Requests  `json:"requests"`
	Verdict    string    `json:"verdict"`
	Errors     int64     `json:"errors"`
	Warnings   int64     `json:"warnings"`
	Notes      int64     `json:"notes"`
	Findings   []Finding `json:"findings"`
	Omitted    []Omitted `json:"omitted,omitempty"` // findings beyond the limit of one rule
	Damage     *Damage   `json:"damage,omitempty"`
	Recording  *Compared `json:"recording,omitempty"`
	// Whole marks a result about a directory or an archive, whose logs have results
	// of their own.
	Whole bool `json:"whole,omitempty"`
}

// Requests counts the log's own loop requests by grade.
type Requests struct {
	Exact      int64 `json:"exact"`
	Messages   int64 `json:"messages"`
	Ambiguous  int64 `json:"ambiguous"`
	Candidates int64 `json:"candidates"`
	Inherited  int64 `json:"inherited"`
}

// A Finding is one breach of one rule. Absent places are left out.
type Finding struct {
	Rule     string    `json:"rule"`
	Severity string    `json:"severity"`
	Line     int64     `json:"line,omitempty"` // physical line, from 1
	Offset   *int64    `json:"offset,omitempty"`
	Frame    *int      `json:"frame,omitempty"` // Zstandard frame, from 0
	Row      *int64    `json:"row,omitempty"`   // seq column of an SQLite row
	Seq      *int64    `json:"seq,omitempty"`
	Turn     *int64    `json:"turn,omitempty"`
	Step     *int64    `json:"step,omitempty"`
	Path     Text      `json:"path,omitempty"` // of the value within the event
	Message  Text      `json:"message"`
	Hint     Text      `json:"hint,omitempty"`
	More     int64     `json:"more,omitempty"` // further events of the same packed row
	Related  []Related `json:"related,omitempty"`
}

// Related is another place a finding refers to.
type Related struct {
	Line    int64  `json:"line,omitempty"`
	Seq     *int64 `json:"seq,omitempty"`
	Message Text   `json:"message"`
}

// Omitted counts findings that are not listed.
type Omitted struct {
	Rule  string `json:"rule"`
	Count int64  `json:"count"`
}

// Compared counts what became of the requests of a recording.
type Compared struct {
	Path      Text  `json:"path"`
	Recorded  int64 `json:"recorded"`
	Matched   int64 `json:"matched"`
	KeyOrder  int64 `json:"keyOrder"`
	Differing int64 `json:"differing"`
	Missing   int64 `json:"missing"` // rebuilt from the log, not in the recording
	Extra     int64 `json:"extra"`   // in the recording, not in the log
	Auxiliary int64 `json:"auxiliary"`
	Unsent    int64 `json:"unsent"` // of the log, may or may not have been sent, not recorded
}

// Summary counts the logs of a run.
type Summary struct {
	Logs     int64            `json:"logs"`
	Places   int64            `json:"places,omitempty"` // directories and archives with a result of their own
	Skipped  int64            `json:"skipped"`          // files of directories that are not taken for logs
	Verdicts map[string]int64 `json:"verdicts"`
	Errors   int64            `json:"errors"`
	Warnings int64            `json:"warnings"`
	Notes    int64            `json:"notes"`
}

// A VerifyWriter prints results as they come.
type VerifyWriter interface {
	Result(*Result) error
	// Close prints the summary. next is the command a reader may want to run.
	Close(s *Summary, next string) error
}

// Tally adds a result to the summary.
func (s *Summary) Tally(r *Result) {
	if s.Verdicts == nil {
		s.Verdicts = make(map[string]int64)
	}
	if r.Whole {
		s.Places++
	} else {
		s.Logs++
	}
	s.Verdicts[r.Verdict]++
	s.Errors += r.Errors
	s.Warnings += r.Warnings
	s.Notes += r.Notes
}

type verifyJSON struct {
	w     io.Writer
	begun bool
}

// NewVerifyJSON writes one JSON object, one result a line.
func NewVerifyJSON(w io.Writer) VerifyWriter { return &verifyJSON{w: w} }

func (v *verifyJSON) begin() error {
	if v.begun {
		return writeString(v.w, ",\n")
	}
	v.begun = true
	return writeString(v.w, `{"schema":"`, VerifySchema, `","results":[`, "\n")
}

func (v *verifyJSON) Result(r *Result) error {
	if err := v.begin(); err != nil {
		return err
	}
	if r.Findings == nil {
		r.Findings = []Finding{}
	}
	if r.Eras == nil {
		r.Eras = []string{}
	}
	b, err := Marshal(r)
	if err != nil {
		return err
	}
	_, err = v.w.Write(b)
	return err
}

func (v *verifyJSON) Close(s *Summary, _ string) error {
	if !v.begun {
		if err := v.begin(); err != nil {
			return err
		}
	}
	if s.Verdicts == nil {
		s.Verdicts = map[string]int64{}
	}
	b, err := Marshal(s)
	if err != nil {
		return err
	}
	return writeString(v.w, "\n", `],"summary":`, string(b), "}\n")
}

type verifyText struct {
	w     io.Writer
	pal   ui.Palette
	notes bool
}

// NewVerifyText writes for people. Notes are listed only if asked for.
func NewVerifyText(w io.Writer, pal ui.Palette, notes bool) VerifyWriter {
	return &verifyText{w, pal, notes}
}

func (v *verifyText) verdict(s string) string {
	switch s {
	case "ok":
		return v.pal.Good(s)
	case "warn", "open", "torn", "unsupported":
		return v.pal.Warn(s)
	}
	return v.pal.Bad(s)
}

func (v *verifyText) Result(r *Result) error {
	if r.Whole && !v.notes && r.Errors+r.Warnings == 0 {
		return nil
	}
	path := ui.Escape(string(r.Path))
	var facts []string
	for _, c := range []struct {
		n    int64
		word string
	}{{r.Errors, "error"}, {r.Warnings, "warning"}, {r.Notes, "note"}} {
		if c.n > 0 {
			facts = append(facts, count(c.n, c.word))
		}
	}
	if !r.Whole {
		facts = append(facts, count(r.Events, "event"))
	}
	if r.Requests != (Requests{}) {
		facts = append(facts, r.Requests.String())
	}
	name := path
	if r.Container == "sqlite" {
		name += " (session " + ui.Escape(string(r.Session)) + ")" // a database may hold several
	}
	if err := writeString(v.w, v.pal.Head(name), ": ", v.verdict(r.Verdict), ": ", meanings[r.Verdict],
		"; ", strings.Join(facts, ", "), "\n"); err != nil {
		return err
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Severity == "note" && !v.notes {
			continue
		}
		if err := v.finding(path, f); err != nil {
			return err
		}
	}
	for _, o := range r.Omitted {
		if err := writeString(v.w, "    and ", count(o.Count, "more finding"), " of ", o.Rule, "\n"); err != nil {
			return err
		}
	}
	if r.Damage != nil {
		var b strings.Builder
		r.Damage.appendText(&b, path)
		if err := writeString(v.w, b.String()); err != nil {
			return err
		}
	}
	if c := r.Recording; c != nil {
		return writeString(v.w, path, ": recording ", ui.Escape(string(c.Path)), ": ", c.String(), "\n")
	}
	return nil
}

// String says the counts in words.
func (r Requests) String() string {
	n := r.Exact + r.Messages + r.Ambiguous
	s := count(n, "request")
	switch {
	case n > 0 && r.Exact == n:
		s += " rebuilt exactly"
	case n > 0 && r.Messages == n:
		s += " rebuilt as message lists (no header was logged in this era)"
	case n > 0:
		var parts []string
		for _, g := range []struct {
			n    int64
			word string
		}{{r.Exact, "exact"}, {r.Messages, "as message lists"}, {r.Ambiguous, "ambiguous"}} {
			if g.n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", g.n, g.word))
			}
		}
		s += " rebuilt (" + strings.Join(parts, ", ") + ")"
	}
	if r.Candidates > 0 {
		s += fmt.Sprintf(", %d more may or may not have been sent", r.Candidates)
	}
	if r.Inherited > 0 {
		s += fmt.Sprintf(", %d inherited from the parent log", r.Inherited)
	}
	return s
}

// String says the counts in words.
func (c *Compared) String() string {
	parts := []string{fmt.Sprintf("%d of %s equal byte for byte", c.Matched, count(c.Recorded, "recorded request"))}
	for _, x := range []struct {
		n    int64
		word string
	}{
		{c.KeyOrder, "differ in the order of config keys only"}, {c.Differing, "differ"},
		{c.Missing, "rebuilt from the log but not recorded"}, {c.Extra, "recorded but not in the log"},
		{c.Auxiliary, "not of the agent loop, not judged"},
		{c.Unsent, "of the log not sent, by the recording"},
	} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.word))
		}
	}
	return strings.Join(parts, ", ")
}

func (v *verifyText) finding(path string, f *Finding) error {
	var b strings.Builder
	b.WriteString(path)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d", f.Line)
	}
	sev := f.Severity
	switch sev {
	case "error":
		sev = v.pal.Bad(sev)
	case "warning":
		sev = v.pal.Warn(sev)
	}
	fmt.Fprintf(&b, ": %s %s: ", f.Rule, sev)
	var place []string
	if f.Row != nil {
		place = append(place, fmt.Sprintf("row %d", *f.Row))
	}
	if f.Seq != nil {
		place = append(place, fmt.Sprintf("seq %d", *f.Seq))
	}
	if f.Turn != nil {
		t := fmt.Sprintf("turn %d", *f.Turn)
		if f.Step != nil {
			t += fmt.Sprintf(".%d", *f.Step)
		}
		place = append(place, t)
	}
	if f.Frame != nil {
		place = append(place, fmt.Sprintf("frame %d", *f.Frame))
	}
	if f.Offset != nil {
		place = append(place, fmt.Sprintf("byte %d", *f.Offset))
	}
	if f.Path != "" {
		place = append(place, ui.Escape(string(f.Path)))
	}
	if len(place) > 0 {
		b.WriteString(strings.Join(place, ", ") + ": ")
	}
	b.WriteString(ui.Escape(string(f.Message)))
	if f.More > 0 {
		b.WriteString(" (and in " + count(f.More, "more event") + " of the same row)")
	}
	b.WriteByte('\n')
	for _, r := range f.Related {
		b.WriteString("    ")
		if r.Line > 0 {
			fmt.Fprintf(&b, "line %d, ", r.Line)
		}
		if r.Seq != nil {
			fmt.Fprintf(&b, "seq %d: ", *r.Seq)
		}
		b.WriteString(ui.Escape(string(r.Message)) + "\n")
	}
	if f.Hint != "" {
		b.WriteString("    hint: " + ui.Escape(string(f.Hint)) + "\n")
	}
	return writeString(v.w, b.String())
}

func (v *verifyText) Close(s *Summary, next string) error {
	var parts []string
	for _, word := range Verdicts {
		if n := s.Verdicts[word]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v.verdict(word)))
		}
	}
	line := "checked " + count(s.Logs, "log")
	if s.Places > 0 {
		line += " and " + count(s.Places, "place")
	}
	if s.Skipped > 0 {
		line += fmt.Sprintf(" (%s passed over)", count(s.Skipped, "other file"))
	}
	if len(parts) > 0 {
		line += ": " + strings.Join(parts, ", ")
	}
	if next != "" {
		line += "; next: " + ui.Escape(next)
	}
	return writeString(v.w, line, "\n")
}

// count writes a number with its noun.
func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
