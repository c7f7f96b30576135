package report

import (
	"io"

	"github.com/dsh-audit/dsh-audit/internal/ui"
	"github.com/dsh-audit/dsh-audit/pkg/drift"
)

// DiffSchema names the JSON format of dsh-diff.
const DiffSchema = "dsh-audit/diff/1"

// A Side is one of two compared requests.
type Side struct {
	Log     Text     `json:"log"`
	Session Text     `json:"session"`
	Turn    int64    `json:"turn"`
	Step    int64    `json:"step"`
	Attempt int      `json:"attempt"`
	Grade   string   `json:"grade"`
	Reasons []string `json:"reasons,omitempty"`
	Bytes   int64    `json:"bytes"`
	SHA256  string   `json:"sha256,omitempty"`
	Time    int64    `json:"time"`
}

type jsonEvent struct {
	Seq  int64    `json:"seq"`
	Time jsonTime `json:"time,omitzero"`
	Type Text     `json:"type"`
}

// A jsonTime is in milliseconds since the epoch. It is left out where it was taken
// from the event.
type jsonTime int64

func (t jsonTime) IsZero() bool { return t == timeless }

type jsonReplaced struct {
	Start int64   `json:"start"`
	End   int64   `json:"end"`
	Seqs  []int64 `json:"seqs"`
}

type jsonCause struct {
	Kind     string        `json:"kind"`
	Log      string        `json:"log,omitempty"`
	Seq      *int64        `json:"seq,omitempty"`
	Time     *jsonTime     `json:"time,omitempty"`
	Type     Text          `json:"type,omitempty"`
	Reason   Text          `json:"reason,omitempty"`
	Note     Text          `json:"note,omitempty"`
	Events   []jsonEvent   `json:"events,omitempty"`
	Sources  []int64       `json:"sources,omitempty"`
	Replaced *jsonReplaced `json:"replaced,omitempty"`
	Reverse  bool          `json:"reverse,omitempty"`
}

func events(list []drift.EventRef) (out []jsonEvent) {
	for _, e := range list {
		out = append(out, jsonEvent{e.Seq, jsonTime(e.Time), Text(e.Type)})
	}
	return out
}

func causeJSON(c *drift.Cause) *jsonCause {
	if c == nil {
		return nil
	}
	out := &jsonCause{Kind: string(c.Kind), Log: c.Log, Reason: Text(c.Reason), Note: Text(c.Note), Events: events(c.With), Sources: c.Sources, Reverse: c.Reverse}
	if e := c.Event; e != nil {
		out.Seq, out.Type = &e.Seq, Text(e.Type)
		if t := jsonTime(e.Time); !t.IsZero() {
			out.Time = &t
		}
	}
	if r := c.Replaced; r != nil {
		out.Replaced = &jsonReplaced{r.Start, r.End, r.ShadowedSeqs}
	}
	return out
}

type jsonMark struct {
	Op   string `json:"op"` // keep, drop, add
	Text Text   `json:"text"`
}

type jsonLines struct {
	Op    string       `json:"op"` // keep, drop, add, edit
	Lines []Text       `json:"lines"`
	New   []Text       `json:"new,omitempty"`   // of edit: the lines in B
	Marks [][]jsonMark `json:"marks,omitempty"` // of edit: line by line
}

var opNames = [...]string{drift.Keep: "keep", drift.Drop: "drop", drift.Add: "add", drift.Edit: "edit"}

func textsJSON(list []string) []Text {
	out := make([]Text, len(list))
	for i, s := range list {
		out[i] = Text(s)
	}
	return out
}

func linesJSON(d *drift.TextDiff) []jsonLines {
	if d == nil {
		return nil
	}
	out := []jsonLines{}
	for _, l := range d.Lines {
		j := jsonLines{Op: opNames[l.Op], Lines: textsJSON(l.Text)}
		if l.Op == drift.Edit {
			j.New = textsJSON(l.New)
			for _, line := range l.Marks {
				marks := []jsonMark{}
				for _, m := range line {
					marks = append(marks, jsonMark{opNames[m.Op], Text(m.Text)})
				}
				j.Marks = append(j.Marks, marks)
			}
		}
		out = append(out, j)
	}
	return out
}

type jsonValue struct {
	Path  Text        `json:"path"`
	Kind  string      `json:"kind"`
	A     Raw         `json:"a,omitempty"`
	B     Raw         `json:"b,omitempty"`
	Lines []jsonLines `json:"lines,omitempty"` // of two strings of several lines
}

func valuesJSON(list []drift.ValueChange) (out []jsonValue) {
	for _, v := range list {
		j := jsonValue{Path: Text(v.Path), Kind: string(v.Kind), A: safe(v.A), B: safe(v.B)}
		if v.Text != nil && len(v.Text.Lines) > 1 {
			j.Lines = linesJSON(v.Text)
		}
		out = append(out, j)
	}
	return out
}

// A jsonHeader is one difference outside the messages.
type jsonHeader struct {
	Part     string      `json:"part"` // config, adapterDefaults, system, tools
	Name     Text        `json:"name,omitempty"`
	Kind     string      `json:"kind"` // added, removed, changed, key-order, reordered, presence
	IndexA   *int        `json:"indexA,omitempty"`
	IndexB   *int        `json:"indexB,omitempty"`
	A        Raw         `json:"a,omitempty"`
	B        Raw         `json:"b,omitempty"`
	DefaultA bool        `json:"defaultA,omitempty"`
	DefaultB bool        `json:"defaultB,omitempty"`
	At       *jsonAt     `json:"at,omitempty"`
	Dropped  *int        `json:"linesDropped,omitempty"`
	Added    *int        `json:"linesAdded,omitempty"`
	Coarse   bool        `json:"coarse,omitempty"`
	Lines    []jsonLines `json:"lines,omitempty"`
	Values   []jsonValue `json:"values,omitempty"`
	Cause    *jsonCause  `json:"cause,omitempty"`
}

type jsonAt struct {
	Offset int64 `json:"offset"`
	Path   Text  `json:"path"`
}

func atJSON(v *drift.Divergence) *jsonAt {
	if v == nil {
		return nil
	}
	return &jsonAt{v.Offset, Text(v.Path)}
}

func indexJSON(i int) *int {
	if i < 0 {
		return nil
	}
	return &i
}

func changeKind(a, b []byte) string {
	switch {
	case a == nil:
		return "added"
	case b == nil:
		return "removed"
	}
	return "changed"
}

func headerJSON(d *drift.Diff) []jsonHeader {
	out := []jsonHeader{}
	for i := range d.Config {
		c := &d.Config[i]
		out = append(out, jsonHeader{Part: "config", Name: Text(c.Name), Kind: changeKind(c.A, c.B), A: safe(c.A), B: safe(c.B),
			DefaultA: c.DefaultA, DefaultB: c.DefaultB, Cause: causeJSON(c.Cause)})
	}
	if d.KeyOrder {
		out = append(out, jsonHeader{Part: "config", Kind: "key-order", Cause: causeJSON(d.Order)})
	}
	for i := range d.Defaults {
		c := &d.Defaults[i]
		out = append(out, jsonHeader{Part: "adapterDefaults", Name: Text(c.Name), Kind: "changed", A: safe(c.A), B: safe(c.B),
			DefaultA: c.DefaultA, DefaultB: c.DefaultB, Cause: causeJSON(c.Cause)})
	}
	if s := d.System; s != nil {
		j := jsonHeader{Part: "system", Kind: changeKind(s.A, s.B), Cause: causeJSON(s.Cause)}
		if s.Text {
			dropped, added := s.Count()
			j.Dropped, j.Added, j.Coarse, j.Lines = &dropped, &added, s.Coarse, linesJSON(&s.TextDiff)
		} else {
			j.A, j.B = safe(s.A), safe(s.B)
		}
		out = append(out, j)
	}
	t := &d.Tools
	for _, x := range t.Removed {
		out = append(out, jsonHeader{Part: "tools", Name: Text(x.Name), Kind: "removed", IndexA: indexJSON(x.Index), A: safe(x.Value), Cause: causeJSON(x.Cause)})
	}
	for _, x := range t.Added {
		out = append(out, jsonHeader{Part: "tools", Name: Text(x.Name), Kind: "added", IndexB: indexJSON(x.Index), B: safe(x.Value), Cause: causeJSON(x.Cause)})
	}
	for i := range t.Changed {
		x := &t.Changed[i]
		kind := "changed"
		if x.KeyOrderOnly() {
			kind = "key-order"
		}
		out = append(out, jsonHeader{Part: "tools", Name: Text(x.Name), Kind: kind, IndexA: indexJSON(x.IndexA), IndexB: indexJSON(x.IndexB),
			A: safe(x.A), B: safe(x.B), At: atJSON(&x.At), Values: valuesJSON(x.Values), Cause: causeJSON(x.Cause)})
	}
	for _, x := range t.Moved {
		out = append(out, jsonHeader{Part: "tools", Name: Text(x.Name), Kind: "reordered", IndexB: indexJSON(x.Index), Cause: causeJSON(x.Cause)})
	}
	if p := t.Present; p != nil {
		out = append(out, jsonHeader{Part: "tools", Kind: "presence", A: safe(p.A), B: safe(p.B), Cause: causeJSON(p.Cause)})
	}
	return out
}

type jsonBlock struct {
	Kind   string      `json:"kind"` // added, dropped, changed
	IndexA *int        `json:"indexA,omitempty"`
	IndexB *int        `json:"indexB,omitempty"`
	A      Raw         `json:"a,omitempty"`
	B      Raw         `json:"b,omitempty"`
	Values []jsonValue `json:"values,omitempty"`
}

type jsonMessage struct {
	Kind   string      `json:"kind"` // appended, inserted, replaced, edited, reordered, dropped
	IndexA *int        `json:"indexA,omitempty"`
	IndexB *int        `json:"indexB,omitempty"`
	Range  []int       `json:"range,omitempty"` // of replaced: the indexes of all that gave way
	At     *jsonAt     `json:"at,omitempty"`
	A      Raw         `json:"a,omitempty"`
	B      Raw         `json:"b,omitempty"`
	Values []jsonValue `json:"values,omitempty"`
	Blocks []jsonBlock `json:"blocks,omitempty"`
	Cause  *jsonCause  `json:"cause,omitempty"`
}

func messagesJSON(d *drift.MessagesDiff) []jsonMessage {
	out := []jsonMessage{}
	for i := range d.Changes {
		c := &d.Changes[i]
		j := jsonMessage{Kind: string(c.Kind), IndexA: indexJSON(c.A), IndexB: indexJSON(c.B), Range: c.Range, At: atJSON(c.At),
			A: safe(c.Old), B: safe(c.New), Values: valuesJSON(c.Values), Cause: causeJSON(c.Cause)}
		for _, b := range c.Blocks {
			j.Blocks = append(j.Blocks, jsonBlock{string(b.Kind), indexJSON(b.A), indexJSON(b.B), safe(b.Old), safe(b.New), valuesJSON(b.Values)})
		}
		out = append(out, j)
	}
	return out
}

type jsonHeaders struct {
	Equal   bool         `json:"equal"`
	Changes []jsonHeader `json:"changes"`
}

type jsonMessages struct {
	A       int           `json:"a"`
	B       int           `json:"b"`
	Kept    int           `json:"kept"`
	Coarse  bool          `json:"coarse,omitempty"`
	Changes []jsonMessage `json:"changes"`
}

type jsonSession struct {
	A     Raw        `json:"a"`
	B     Raw        `json:"b"`
	Cause *jsonCause `json:"cause,omitempty"`
}

// A jsonPair is two requests and their comparison.
type jsonPair struct {
	A *Side `json:"a"`
	B *Side `json:"b"`
	jsonComparison
}

// A jsonComparison is what differs between two requests.
type jsonComparison struct {
	Same        bool         `json:"same"`
	Extends     bool         `json:"extends"`
	First       *int64       `json:"firstDivergentByte"`
	FirstPath   *Text        `json:"firstDivergentPath"`
	Header      jsonHeaders  `json:"header"`
	Session     *jsonSession `json:"sessionId,omitempty"`
	Messages    jsonMessages `json:"messages"`
	Unexplained int          `json:"unexplained"`
}

func pairJSON(a, b *Side, d *drift.Diff) *jsonPair { return &jsonPair{a, b, comparisonJSON(d)} }

func comparisonJSON(d *drift.Diff) jsonComparison {
	out := jsonComparison{Same: d.Same, Extends: d.Extends, Unexplained: d.Unexplained(),
		Header:   jsonHeaders{d.HeaderEqual(), headerJSON(d)},
		Messages: jsonMessages{d.Messages.A, d.Messages.B, d.Messages.Kept, d.Messages.Coarse, messagesJSON(&d.Messages)}}
	if d.At != nil {
		path := Text(d.At.Path)
		out.First, out.FirstPath = &d.At.Offset, &path
	}
	if s := d.Session; s != nil {
		out.Session = &jsonSession{safe(s.A), safe(s.B), causeJSON(s.Cause)}
	}
	return out
}

// WriteDiffJSON writes a comparison as one JSON object.
func WriteDiffJSON(w io.Writer, a, b *Side, d *drift.Diff) error {
	return writeJSON(w, &struct {
		Schema string `json:"schema"`
		Mode   string `json:"mode"`
		*jsonPair
	}{DiffSchema, "requests", pairJSON(a, b, d)})
}

func writeJSON(w io.Writer, v any) error {
	line, err := Marshal(v)
	if err != nil {
		return err
	}
	return writeString(w, string(line), "\n")
}

func safe(v []byte) Raw {
	if v == nil {
		return nil
	}
	return ui.SafeJSON(v)
}
