package verify

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/internal/report"
	"github.com/dsh-audit/dsh-audit/internal/ui"
)

var formats = []string{"text", "json", "jsonl", "junit", "sarif", "github"}

// A sink is one report being written.
type sink struct {
	report.VerifyWriter
	name  string // for messages
	flush func() error
	file  *outfile // nil for standard output
}

// A collector gives every result to all sinks and draws the conclusion.
type collector struct {
	c        *cli.Call
	policy   policy
	limit    int
	base     *accepted  // nil without --baseline
	gather   *gathering // nil without --write-baseline
	sinks    []*sink
	sum      report.Summary
	status   cli.Status
	worst    string   // severity of the finding that hint names
	hint     string   // rule to explain
	first    []string // command that lists the requests of the first log
	progress *ui.Progress
}

// openSinks starts the reports: --format on standard output, and each --output.
// inputs are files that must not be overwritten.
func (j *collector) openSinks(format string, notes bool, shard *report.Shard, inputs []string) error {
	used := map[string]bool{}
	add := func(format, name string, w io.Writer, pal ui.Palette, width int) *sink {
		s := &sink{name: name}
		switch format {
		case "text":
			s.VerifyWriter = report.NewVerifyText(w, ruleInfo, pal, notes, width)
		case "json":
			s.VerifyWriter = report.NewVerifyJSON(w, ruleInfo, shard)
		case "jsonl":
			s.VerifyWriter = report.NewVerifyLines(w, ruleInfo, shard)
		case "junit":
			s.VerifyWriter = report.NewVerifyJUnit(w, ruleInfo)
		case "sarif":
			s.VerifyWriter = report.NewVerifySARIF(w, ruleInfo, notes, cli.Version())
		case "github":
			summary, room := stepSummary(os.Getenv("GITHUB_STEP_SUMMARY"))
			s.VerifyWriter = report.NewVerifyGitHub(w, ruleInfo, notes, summary, room)
		}
		j.sinks = append(j.sinks, s)
		return s
	}
	for _, o := range j.c.List("output") {
		format, path, ok := strings.Cut(o, "=")
		if !ok || path == "" || !slices.Contains(formats, format) {
			return cli.Usage(fmt.Sprintf("--output: %q is not FORMAT=FILE", o), "the formats are "+strings.Join(formats, ", "))
		}
		if used[filepath.Clean(path)] {
			return cli.Usage("--output: " + path + " is named twice")
		}
		used[filepath.Clean(path)] = true
		f, err := createFile(j.c, path, inputs)
		if err != nil {
			return err
		}
		s := add(format, path, f, ui.Palette{}, 0)
		s.file = f
		s.flush = func() error { return nil }
	}
	add(format, "standard output", j.c.Out, j.c.Palette, j.c.Width).flush = j.c.Out.Flush
	return nil
}

// files are those that are being written.
func (j *collector) files() []*outfile {
	var out []*outfile
	for _, s := range j.sinks {
		if s.file != nil {
			out = append(out, s.file)
		}
	}
	if j.gather != nil && j.gather.file != nil {
		out = append(out, j.gather.file)
	}
	return out
}

// written are the files that the sinks write, under all their names.
func (j *collector) written() map[string]bool {
	own := map[string]bool{}
	for _, f := range j.files() {
		for _, name := range []string{f.path, f.dest, f.temp} {
			own[filepath.Clean(name)] = true
		}
	}
	return own
}

// abort drops what is not complete. It may be called after close.
func (j *collector) abort() {
	j.progress.Close()
	for _, f := range j.files() {
		f.abort()
	}
}

// add takes the next result.
func (j *collector) add(r *report.Result) error {
	if j.gather != nil {
		j.gather.add(r)
	}
	if j.base != nil {
		j.base.accept(r)
	}
	shorten(r, j.limit)
	status := j.policy.status(r)
	if j.gather != nil && status != cli.Trouble && !uncompared(r) {
		status = cli.OK // it is known from now on
	}
	j.status = worse(j.status, status)
	r.Fails = status != cli.OK
	j.sum.Tally(r)
	if j.first == nil && !r.Whole {
		j.first = []string{"dsh-replay", "requests"}
		if r.Container == "sqlite" && r.Session != "" {
			j.first = append(j.first, "--session", string(r.Session))
		}
		j.first = append(j.first, cli.Path(string(r.Path)))
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Severity != "note" && (j.hint == "" || f.Severity == "error" && j.worst == "warning") {
			j.hint, j.worst = f.Rule, f.Severity
		}
	}
	if j.c.Width > 0 {
		j.progress.Clear()
	}
	for _, s := range j.sinks {
		if err := s.Result(r); err != nil {
			return j.failed(s, err)
		}
		// What is printed reaches the reader at once: the next log may take its time.
		if err := s.flush(); err != nil {
			return j.failed(s, err)
		}
	}
	j.progress.Add(1)
	return nil
}

// empty notes an argument that gave no log.
func (j *collector) empty(path string, skipped int64) {
	j.status = worse(j.status, cli.Trouble)
	j.sum.Empty = append(j.sum.Empty, report.Text(path))
	msg := path + ": no file in this directory is named session*.jsonl, or is a session database or an export"
	if skipped > 0 {
		others := "others"
		if skipped == 1 {
			others = "other"
		}
		msg += fmt.Sprintf(" (%d %s passed over)", skipped, others)
	}
	j.c.UI.Error(msg)
	j.c.UI.Hint("name the log itself: any file name will do")
}

// close ends all reports and gives their files their names.
func (j *collector) close() error {
	j.progress.Close()
	next := ""
	switch {
	case j.hint != "":
		next = "dsh-verify explain " + j.hint
	case j.first != nil:
		next = cli.CommandLine(j.first)
	}
	for _, s := range j.sinks {
		if err := s.Close(&j.sum, next); err != nil {
			return j.failed(s, err)
		}
	}
	if j.gather != nil {
		if err := j.gather.baseline().Write(j.gather.file); err != nil {
			if cerr := j.c.Err(); cerr != nil {
				return cerr
			}
			return j.gather.file.trouble(err)
		}
	}
	// Standard output first: when its reader is gone, nothing was delivered.
	if err := j.c.Out.Flush(); err != nil {
		return err
	}
	for _, f := range j.files() {
		if err := j.c.Err(); err != nil {
			return err
		}
		if err := f.commit(); err != nil {
			return err
		}
	}
	if j.gather != nil && j.gather.beyond > 0 {
		j.c.UI.Warn(fmt.Sprintf("%s: not in it, as too many of one rule in one log: %s", j.gather.file.path, plural.Count(j.gather.beyond, "finding")))
	}
	return nil
}

// failed is what a report that cannot be written ends the run with.
func (j *collector) failed(s *sink, err error) error {
	if cerr := j.c.Err(); cerr != nil {
		return cerr // an interruption closes the files
	}
	var f *cli.Failure
	if s.file == nil || errors.As(err, &f) {
		return err // the output is flushed and judged in one place
	}
	return s.file.trouble(err)
}

// stepSummary is the file in which GitHub Actions takes a summary, and how many
// bytes it still has room for; nil when there is none.
func stepSummary(path string) (io.Writer, int64) {
	if path == "" {
		return nil, 0
	}
	room := int64(report.SummaryLimit)
	if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
		room -= st.Size()
	}
	return appendTo(path), room
}

// appendTo is a file that is opened when there is something to append.
type appendTo string

func (path appendTo) Write(b []byte) (int, error) {
	n := 0
	f, err := os.OpenFile(string(path), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err == nil {
		n, err = f.Write(b)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return n, cli.Fail(cli.Trouble, fmt.Errorf("GITHUB_STEP_SUMMARY: %s: %w", string(path), err))
	}
	return n, nil
}
