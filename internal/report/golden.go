package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/internal/ui"
	"github.com/dsh-audit/dsh-audit/pkg/drift"
	goldens "github.com/dsh-audit/dsh-audit/pkg/golden"
)

// A Golden is what became of one golden.
type Golden struct {
	Dir   string
	Log   string
	Word  string // "written", "same", "differs", "updated", "unchanged"
	Now   *goldens.Golden
	Diff  *goldens.Diff // nil for one that was written
	Files []GoldenFile
}

// A GoldenFile is a file that is not as it was.
type GoldenFile struct{ Name, Word string }

// WriteGolden says what became of a golden, and why. What is the same for several
// requests is shown in full once.
func WriteGolden(out io.Writer, o DiffOptions, g *Golden) error {
	w := &differ{DiffOptions: o}
	word := w.Palette.Good(g.Word)
	if g.Word == "differs" || g.Word == "updated" {
		word = w.Palette.Warn(g.Word)
	}
	w.p("%s: %s; verdict %s, %s, %s", ui.Escape(g.Dir), word, g.Now.Verdict, count(int64(len(g.Now.Requests)), "request"), w.paths(g.Now.Paths))
	if d := g.Diff; d != nil && (g.Word == "differs" || g.Word == "updated") {
		w.golden(d)
	}
	for _, f := range g.Files {
		w.p("  %-9s %s", f.Word, f.Name)
	}
	if g.Diff == nil {
		for _, p := range g.Now.Paths {
			w.p("  path      %s in the arguments of %s: the fixture does not replay in another directory%s", w.path(p.Path), w.path(p.Tool), times(p.Count))
		}
	}
	return writeString(out, w.out.String())
}

func (w *differ) path(s string) string { return clip(ui.Escape(s), 200) }

func times(n int64) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" (%d times)", n)
}

func (w *differ) paths(list []goldens.Path) string {
	if len(list) == 0 {
		return "no absolute path in arguments"
	}
	return w.Palette.Warn(count(int64(len(list)), "absolute path") + " in arguments")
}

func (w *differ) golden(d *goldens.Diff) {
	if d.Verdict[0] != d.Verdict[1] {
		w.p("  verdict   was %s, is %s", ui.Escape(d.Verdict[0]), d.Verdict[1])
	}
	for _, f := range d.Findings {
		w.p("  %-9s %s: was found %s, is found %s", ui.Escape(f.Severity), ui.Escape(f.Rule), plural.Count(f.Before, "time"), plural.Count(f.Now, "time"))
	}
	w.p("  A is the golden as it was, B what the log gives")
	same := 0
	shown := map[string]string{}
	for _, r := range d.Requests {
		head := w.Palette.Head("  request " + r.Name)
		switch r.State {
		case goldens.Same:
			same++
			continue
		case goldens.Added:
			w.p("%s: new, %d bytes, %s", head, r.Now.Bytes, r.Now.Grade)
			continue
		case goldens.Gone:
			w.p("%s: gone", head)
			continue
		case goldens.Regrade:
			w.p("%s: the same bytes; was %s, is %s", head, standing(r.Before), standing(r.Now))
			continue
		}
		w.p("%s: changed, first at byte %d, in %s", head, r.Diff.At.Offset, where(r.Diff.At.Path))
		untimed(r.Diff)
		for _, part := range w.parts(r.Diff) {
			if first, ok := shown[part]; ok {
				word, _, _ := strings.Cut(part, " ")
				w.p("    %-9s as in request %s", word, first)
				continue
			}
			shown[part] = r.Name
			for line := range strings.Lines(part) {
				w.p("    %s", strings.TrimSuffix(line, "\n"))
			}
		}
	}
	if same > 0 {
		w.p("  %s the same", count(int64(same), "request"))
	}
	if d.Header {
		w.p("  the header record differs")
	}
	if len(d.Changed) > 0 {
		w.p("  events: %d the same, %d not", d.Kept, len(d.Changed))
		var lines []string
		for _, e := range d.Changed {
			switch {
			case e.Before < 0:
				lines = append(lines, fmt.Sprintf("+ seq %d %s", e.Now, ui.Escape(e.Type)))
			case e.Now < 0:
				lines = append(lines, fmt.Sprintf("- seq %d %s", e.Before, ui.Escape(e.Type)))
			default:
				lines = append(lines, fmt.Sprintf("~ seq %d %s", e.Now, ui.Escape(e.Type)))
			}
		}
		if len(lines) > 8 && !w.Full {
			n := len(lines)
			lines = append(lines[:7], fmt.Sprintf("... %d more; --full shows all", n-7))
		}
		for _, l := range lines {
			w.p("    %s", l)
		}
	}
	if d.Stale {
		w.p("  golden.json is not what its own log leads to: a file was edited, or another build wrote it")
	}
}

// untimed takes the times of events from causes: those of a golden have none.
func untimed(d *drift.Diff) {
	for _, c := range d.Causes() {
		if c == nil {
			continue
		}
		if c.Event != nil {
			e := *c.Event
			e.Time = timeless
			c.Event = &e
		}
		c.With = slices.Clone(c.With)
		for i := range c.With {
			c.With[i].Time = timeless
		}
	}
}

// parts shows the parts of a request that changed, each by itself.
func (w *differ) parts(d *drift.Diff) (out []string) {
	part := func(changed bool, show func(w *differ)) {
		if p := (&differ{DiffOptions: w.DiffOptions}); changed {
			show(p)
			out = append(out, p.out.String())
		}
	}
	part(d.Session != nil, func(w *differ) { w.session(d.Session) })
	part(len(d.Config)+len(d.Defaults) > 0 || d.KeyOrder, func(w *differ) { w.config(d) })
	part(d.System != nil, func(w *differ) { w.system(d.System) })
	part(!d.Tools.Equal(), func(w *differ) { w.tools(&d.Tools) })
	part(len(d.Messages.Changes) > 0, func(w *differ) { w.messages(&d.Messages) })
	part(d.Unexplained() > 0, func(w *differ) { w.unexplained(d) })
	return out
}

func standing(r *goldens.Request) string {
	s := r.Grade
	if len(r.Reasons) > 0 {
		s += " (" + strings.Join(r.Reasons, ", ") + ")"
	}
	if r.State != "" {
		s += ", " + r.State
	}
	return s
}
