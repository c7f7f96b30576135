package ui

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A Progress says how far a run is, in one line that rewrites itself, and leaves
// nothing behind. It exists on a terminal only; a nil Progress does nothing. It is
// used by one goroutine.
type Progress struct {
	bar   *progressbar.ProgressBar
	what  string
	n     int
	drawn time.Time
}

// progressEvery is how often the line is drawn at most.
const progressEvery = 100 * time.Millisecond

// Progress starts a line that counts things, like "judging 12". It is nil when
// standard error is no terminal, or one that cannot rewrite a line.
func (u *UI) Progress(what string, getenv func(string) string) *Progress {
	f, ok := u.w.(*os.File)
	if !ok || getenv("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	u.progress = newProgress(f, what)
	return u.progress
}

func newProgress(w io.Writer, what string) *Progress {
	return &Progress{what: what, drawn: time.Now(), bar: progressbar.NewOptions64(-1,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionSetSpinnerChangeInterval(0), // no goroutine of its own
		progressbar.OptionSpinnerType(14),
		progressbar.OptionClearOnFinish(),
	)}
}

// Add counts n more. Drawing may fail; nothing depends on it.
func (p *Progress) Add(n int) {
	if p == nil {
		return
	}
	p.n += n
	if now := time.Now(); now.Sub(p.drawn) >= progressEvery {
		p.drawn = now
		p.bar.Describe(fmt.Sprintf("%s %d", p.what, p.n))
	}
}

// Clear makes room for other output on the terminal. A later Add draws again.
func (p *Progress) Clear() {
	if p != nil {
		_ = p.bar.Clear()
	}
}

// Close ends the line.
func (p *Progress) Close() { p.Clear() }
