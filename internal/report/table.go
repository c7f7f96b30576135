// Package report writes results: what a command found, as text for people and
// as JSON for programs. It knows neither rules nor logs, only the plain structs
// it is given, and it writes the same bytes for the same structs, whatever the
// locale, the width of the terminal or the time.
//
// Text from logs is escaped here, at the last moment, with [ui.Escape].
package report

import (
	"io"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/pkg/twwidth"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"github.com/dsh-audit/dsh-audit/internal/ui"
)

// tableRows is how many rows a Table keeps to find the widths of its columns.
// A longer table is streamed with the widths of the first rows.
const tableRows = 60

// Align places the text of a column.
type Align bool

const (
	Left  Align = false
	Right Align = true
)

// A Column is a heading and where its cells stand.
type Column struct {
	Name  string
	Align Align
}

// A Table prints rows under headings, columns separated by two spaces. Up to
// tens of rows every column is as wide as its widest cell; beyond, rows are
// written as they come and a wide cell may push the rest of its row.
type Table struct {
	w      io.Writer
	cols   []Column
	rows   [][]string
	widths []int // set once streaming
	err    error
}

// NewTable returns a table on w.
func NewTable(w io.Writer, cols ...Column) *Table { return &Table{w: w, cols: cols} }

// Row adds a row of as many cells as there are columns.
func (t *Table) Row(cells ...string) error {
	row := make([]string, len(t.cols))
	for i := range row {
		row[i] = ui.Escape(cells[i])
	}
	if t.widths != nil {
		t.stream(row)
		return t.err
	}
	t.rows = append(t.rows, row)
	if len(t.rows) > tableRows {
		t.startStream()
	}
	return t.err
}

// Close writes what is kept. Without any row only the headings are written.
func (t *Table) Close() error {
	if t.widths == nil && t.err == nil {
		t.render()
	}
	return t.err
}

func (t *Table) startStream() {
	t.widths = make([]int, len(t.cols))
	head := make([]string, len(t.cols))
	for i, c := range t.cols {
		head[i] = c.Name
		t.widths[i] = twwidth.Width(c.Name)
		for _, r := range t.rows {
			t.widths[i] = max(t.widths[i], twwidth.Width(r[i]))
		}
	}
	t.stream(head)
	for _, r := range t.rows {
		t.stream(r)
	}
	t.rows = nil
}

func (t *Table) stream(row []string) {
	if t.err != nil {
		return
	}
	var b strings.Builder
	for i, cell := range row {
		if i > 0 {
			b.WriteString("  ")
		}
		pad := strings.Repeat(" ", max(0, t.widths[i]-twwidth.Width(cell)))
		if t.cols[i].Align == Right {
			b.WriteString(pad + cell)
		} else {
			b.WriteString(cell + pad)
		}
	}
	_, t.err = io.WriteString(t.w, strings.TrimRight(b.String(), " ")+"\n")
}

func (t *Table) render() {
	align := make(tw.Alignment, len(t.cols))
	head := make([]any, len(t.cols))
	for i, c := range t.cols {
		head[i] = c.Name
		align[i] = tw.AlignLeft
		if c.Align == Right {
			align[i] = tw.AlignRight
		}
	}
	cell := func(format tw.State) tw.CellConfig {
		return tw.CellConfig{
			Formatting: tw.CellFormatting{AutoWrap: tw.WrapNone, AutoFormat: format},
			Alignment:  tw.CellAlignment{PerColumn: align},
			Padding:    tw.CellPadding{Global: tw.Padding{Left: "", Right: "  ", Overwrite: true}},
		}
	}
	var out strings.Builder
	tb := tablewriter.NewTable(&out,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders: tw.BorderNone,
			Symbols: tw.NewSymbols(tw.StyleNone),
			Settings: tw.Settings{
				Lines:      tw.LinesNone,
				Separators: tw.SeparatorsNone,
			},
		})),
		tablewriter.WithConfig(tablewriter.Config{Header: cell(tw.Off), Row: cell(tw.Off),
			Behavior: tw.Behavior{TrimSpace: tw.Off}}),
		tablewriter.WithEastAsian(tw.Off), // else the locale decides
	)
	tb.Header(head...)
	for _, r := range t.rows {
		cells := make([]any, len(r))
		for i := range r {
			cells[i] = r[i]
		}
		if t.err = tb.Append(cells...); t.err != nil {
			return
		}
	}
	if t.err = tb.Render(); t.err != nil {
		return
	}
	for line := range strings.Lines(out.String()) {
		if _, t.err = io.WriteString(t.w, strings.TrimRight(line, " \n")+"\n"); t.err != nil {
			return
		}
	}
}
