// Package ui speaks to the person at the terminal.
//
// Rules: everything it says goes to standard error, one line a message, as
// "dsh-verify: error: …" or "dsh-verify: hint: …", without capitalised initials
// and without a period at the end. Results never pass through here. Whatever
// comes from outside (paths, arguments, text of logs) is escaped on the way.
package ui

import (
	"io"
	"os"

	"github.com/fatih/color"
	"golang.org/x/term"
)

// ColorMode is the value of --color.
type ColorMode string

const (
	Auto   ColorMode = "auto"   // only on a terminal, not with NO_COLOR or TERM=dumb
	Always ColorMode = "always" // even into a pipe
	Never  ColorMode = "never"
)

// Colored reports whether colour may be written to w.
func Colored(mode ColorMode, w io.Writer, getenv func(string) string) bool {
	switch mode {
	case Always:
		return true
	case Never:
		return false
	}
	if getenv("NO_COLOR") != "" || getenv("TERM") == "dumb" {
		return false
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Palette colours words, or leaves them alone. The zero value leaves them alone.
type Palette struct{ on bool }

// NewPalette returns a palette that colours if on is true.
func NewPalette(on bool) Palette { return Palette{on} }

func (p Palette) paint(s string, attrs ...color.Attribute) string {
	if !p.on || s == "" {
		return s
	}
	c := color.New(attrs...)
	c.EnableColor()
	return c.Sprint(s)
}

func (p Palette) Bad(s string) string   { return p.paint(s, color.FgRed, color.Bold) }
func (p Palette) Warn(s string) string  { return p.paint(s, color.FgYellow) }
func (p Palette) Good(s string) string  { return p.paint(s, color.FgGreen) }
func (p Palette) Added(s string) string { return p.paint(s, color.FgGreen) }
func (p Palette) Gone(s string) string  { return p.paint(s, color.FgRed) }
func (p Palette) Head(s string) string  { return p.paint(s, color.Bold) }
func (p Palette) Dim(s string) string   { return p.paint(s, color.Faint) }

// UI writes diagnostics of one program.
type UI struct {
	w        io.Writer
	program  string
	pal      Palette
	progress *Progress // nil when none is shown
}

// New returns a UI that speaks for program on w.
func New(w io.Writer, program string, pal Palette) *UI {
	return &UI{w: w, program: program, pal: pal}
}

// Error says what went wrong.
func (u *UI) Error(msg string) { u.say(u.pal.Bad("error:"), msg) }

// Warn says what the user should know although the run went on.
func (u *UI) Warn(msg string) { u.say(u.pal.Warn("warning:"), msg) }

// Hint says what to do next.
func (u *UI) Hint(msg string) { u.say("hint:", msg) }

// A failure to write to standard error has nowhere to be reported.
func (u *UI) say(label, msg string) {
	u.progress.Clear()
	_, _ = io.WriteString(u.w, u.program+": "+label+" "+Escape(msg)+"\n")
}
