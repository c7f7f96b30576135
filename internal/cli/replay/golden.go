package replay

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/source"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/internal/report"
	"github.com/dsh-audit/dsh-audit/internal/ui"
	"github.com/dsh-audit/dsh-audit/pkg/golden"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

const goldenAbout = `
DIR holds the log as a fixture (session.jsonl, system-prompt.expected.md,
tool-schemas.expected.json), the last request for a reader (last-request.txt), and
golden.json: the verdict, and size, digest and grade of every request. What it
is all about is in docs/goldens.md.

LOG is a recording. Where it is a directory, each directory in it that has a log
by name of session.jsonl, session.vN.jsonl, .zstd or .zst has a golden of the same
name in DIR; of several logs the one of the latest generation.
`

const helpNormalize = `  --normalize LIST
                  what differs from run to run and does not count, separated by
                  commas: cwd, times, dates (in texts), ids (kept, matched one to
                  one), uuids (all made the same token), or none; default:
                  cwd,dates,ids,times, for update: as it was written
`

const helpFull = `  --full          cut and fold nothing; else a change takes at most 40 lines
`

const helpGoldenFormat = `  --format F      text (default) or json: one object, see docs/json.md
`

const goldenExits = `
exit status:
  0  %s
  1  %s
  2  the call was wrong, the log is damaged, or reading or writing failed
  3  the log is of a kind this build does not read
  130 interrupted; 129 when the terminal was closed
`

func goldenCommand() *cli.Command {
	session := cli.Option("session", "")
	normalize := cli.Option("normalize", "")
	flags := func(more ...ucli.Flag) []ucli.Flag {
		return append(more, cli.Option("format", "text"), session, cli.ColorFlag())
	}
	return &cli.Command{
		Name: "golden", Flags: nil,
		Help: `dsh-replay golden - keep logs as fixtures that can be reviewed

usage: dsh-replay golden COMMAND [options] LOG DIR

commands:
  write   make the golden DIR of a log
  check   say whether a log still gives the golden DIR, and what differs
  update  renew the golden DIR, changing only what changed

options:
  --help          print this, or with a command the help of that command
` + goldenAbout + fmt.Sprintf(goldenExits, "written; or the log gives the golden", "it does not"),
		Commands: []*cli.Command{
			{Name: "write", Run: func(c *cli.Call) error { return runGolden(c, goldenWrite) }, Flags: flags(normalize),
				Help: `dsh-replay golden write - make the golden of a log

usage: dsh-replay golden write [options] LOG DIR

No file that exists is replaced.
` + goldenAbout + `
options:
` + helpNormalize + helpGoldenFormat + common + fmt.Sprintf(goldenExits, "written", "never")},
			{Name: "check", Run: func(c *cli.Call) error { return runGolden(c, goldenCheck) }, Flags: flags(cli.Switch("full")),
				Help: `dsh-replay golden check - say whether a log still gives its golden

usage: dsh-replay golden check [options] LOG DIR

Nothing is written. What differs is told request by request, with the event of the
log that made the difference.
` + goldenAbout + `
options:
` + helpFull + helpGoldenFormat + common + fmt.Sprintf(goldenExits, "the log gives the golden", "something differs, or a golden or a log is not there")},
			{Name: "update", Run: func(c *cli.Call) error { return runGolden(c, goldenUpdate) }, Flags: flags(normalize, cli.Switch("full")),
				Help: `dsh-replay golden update - renew a golden

usage: dsh-replay golden update [options] LOG DIR

Ids of what did not change are those of before. A file that does not change is
not touched.
` + goldenAbout + `
options:
` + helpNormalize + helpFull + helpGoldenFormat + common + fmt.Sprintf(goldenExits, "up to date, changed or not", "never")},
		},
	}
}

type goldenVerb int

const (
	goldenWrite goldenVerb = iota
	goldenCheck
	goldenUpdate
)

func (v goldenVerb) String() string { return [...]string{"write", "check", "update"}[v] }

func runGolden(c *cli.Call, verb goldenVerb) error {
	if len(c.Operands) != 2 {
		return cli.Usage(fmt.Sprintf("a log and a directory expected, got %s", plural.Count(len(c.Operands), "operand")), "usage: "+c.Command+" [options] LOG DIR")
	}
	format, err := c.Choice("format", "text", "json")
	if err != nil {
		return err
	}
	var kinds []golden.Volatile
	if verb != goldenCheck && c.IsSet("normalize") {
		if kinds, err = normalize(c.Text("normalize")); err != nil {
			return err
		}
	}
	log, dir := c.Operands[0], c.Operands[1]
	if log == "-" {
		return cli.Usage("a golden is made in two readings, which standard input does not allow", "save it to a file first")
	}
	pairs, err := goldenPairs(log, dir)
	if err != nil {
		return err
	}
	o := report.DiffOptions{Palette: c.Palette, Width: 120, Full: verb != goldenWrite && c.Bool("full")}
	w, err := report.NewGoldenStream(c.Out, format == "json", o, verb.String())
	if err != nil {
		return err
	}
	code := cli.OK
	for _, p := range pairs {
		err := oneGolden(c, w, verb, kinds, p[0], p[1])
		if c.Err() != nil {
			return err
		}
		if why := failure(err); why != nil {
			why.Log, why.Dir = p[0], p[1]
			if err := w.Failed(why); err != nil {
				return err
			}
		}
		if len(pairs) == 1 {
			return cmp.Or(w.Close(), err)
		}
		if f, ok := errors.AsType[*cli.Failure](err); ok {
			if f.Err != nil {
				c.UI.Error(f.Err.Error())
			}
			for _, h := range f.Hints {
				c.UI.Hint(h)
			}
		} else if err != nil {
			c.UI.Error(err.Error())
		}
		code = max(code, cli.StatusOf(err))
	}
	if err := w.Close(); err != nil {
		return err
	}
	return cli.Exit(code)
}

// failure is why nothing came of a golden; nil when it was told of.
func failure(err error) *report.GoldenFailure {
	out := &report.GoldenFailure{Status: int(cli.StatusOf(err))}
	if f, ok := errors.AsType[*cli.Failure](err); ok {
		if f.Err == nil {
			return nil
		}
		out.Error, out.Hints = f.Err.Error(), f.Hints
		return out
	}
	if err == nil {
		return nil
	}
	out.Error = err.Error()
	return out
}

func normalize(list string) ([]golden.Volatile, error) {
	kinds := []golden.Volatile{}
	if list == "none" {
		return kinds, nil
	}
	for _, w := range strings.Split(list, ",") {
		k := golden.Volatile(w)
		if !slices.Contains(golden.All, k) {
			return nil, cli.Usage(fmt.Sprintf("--normalize: %q is not one of cwd, dates, ids, times, uuids", w), "none alone normalises nothing")
		}
		if !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	slices.Sort(kinds)
	return kinds, nil
}

// logName is the name of a log; the number is its generation.
var logName = regexp.MustCompile(`^session(?:\.v([1-9][0-9]{0,3}))?\.jsonl(?:\.zstd?)?$`)

// goldenPairs lists logs and their goldens.
func goldenPairs(log, dir string) ([][2]string, error) {
	st, err := os.Stat(log)
	if err != nil {
		return nil, source.Trouble(log, err)
	}
	if !st.IsDir() {
		return [][2]string{{log, dir}}, nil
	}
	names := map[string]string{}
	entries, err := os.ReadDir(log)
	if err != nil {
		return nil, source.Trouble(log, err)
	}
	for _, e := range entries {
		inside, err := os.ReadDir(filepath.Join(log, e.Name()))
		if err != nil {
			continue // no directory
		}
		best := int64(-1)
		for _, f := range inside {
			m := logName.FindStringSubmatch(f.Name())
			if m == nil || !f.Type().IsRegular() {
				continue
			}
			if n, _ := strconv.ParseInt(m[1], 10, 32); n > best { // "" is 0
				best, names[e.Name()] = n, filepath.Join(log, e.Name(), f.Name())
			}
		}
	}
	if entries, err = os.ReadDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, source.Trouble(dir, err)
	}
	for _, e := range entries {
		if _, ok := names[e.Name()]; ok {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, e.Name(), golden.FileManifest)); err == nil {
			names[e.Name()] = ""
		}
	}
	if len(names) == 0 {
		return nil, cli.Fail(cli.Trouble, fmt.Errorf("%s: no directory in it has a log", log), "name one log, or a directory of directories with a session.jsonl each")
	}
	var pairs [][2]string
	for name, path := range names {
		pairs = append(pairs, [2]string{path, filepath.Join(dir, name)})
	}
	slices.SortFunc(pairs, func(a, b [2]string) int { return strings.Compare(a[1], b[1]) })
	return pairs, nil
}

func oneGolden(c *cli.Call, w *report.GoldenStream, verb goldenVerb, kinds []golden.Volatile, path, dir string) error {
	if path == "" {
		if verb == goldenWrite {
			return nil
		}
		status := cli.Found
		if verb == goldenUpdate {
			status = cli.Trouble
		}
		return cli.Fail(status, fmt.Errorf("%s: there is no log for this golden", dir), "remove it, or bring the log back")
	}
	files, err := golden.Read(dir)
	if err != nil {
		return source.Trouble(dir, err)
	}
	if err := apart(path, dir); err != nil {
		return err
	}
	_, there := files[golden.FileManifest]
	switch {
	case verb == goldenWrite && len(files) > 0:
		for _, name := range golden.Names {
			if files[name] != nil {
				return cli.Fail(cli.Trouble, fmt.Errorf("%s: the file exists, and write never replaces one", filepath.Join(dir, name)),
					"to renew a golden, run: "+cli.CommandLine([]string{"dsh-replay", "golden", "update", cli.Path(path), cli.Path(dir)}))
			}
		}
	case verb != goldenWrite && !there:
		status := cli.Found
		if verb == goldenUpdate {
			status = cli.Trouble
		}
		return cli.Fail(status, fmt.Errorf("%s: there is no golden", dir), "to make it, run: "+cli.CommandLine([]string{"dsh-replay", "golden", "write", cli.Path(path), cli.Path(dir)}))
	}
	var old *golden.Golden
	if verb != goldenWrite {
		if old, err = golden.Parse(dir, files); err != nil {
			return cli.Fail(cli.Trouble, err)
		}
		if err := old.Fold(c); err != nil {
			return err
		}
		if kinds == nil {
			kinds = old.Normalize
		}
	} else if kinds == nil {
		kinds = golden.Default
	}
	now, err := golden.Build(c, func() (*logfmt.Log, error) { return source.One(c, path) }, kinds)
	if err != nil {
		return goldenTrouble(c, path, err)
	}
	r := &report.Golden{Dir: dir, Log: path, Now: now, Word: "written"}
	if old != nil {
		if slices.Contains(kinds, golden.IDs) && now.Carry(old) > 0 {
			if err := now.Fold(c); err != nil {
				return err
			}
		}
		r.Diff = golden.Compare(old, now, files[golden.FileManifest])
	}
	var last []byte
	if now.Last != nil {
		text, err := render(ui.Palette{}, now.Last.Request)
		if err != nil {
			return err
		}
		last = []byte(text)
	}
	want := now.Files(last)
	for _, name := range golden.Names {
		switch is, was := want[name], files[name]; {
		case bytes.Equal(is, was) && (is == nil) == (was == nil):
		case is == nil:
			r.Files = append(r.Files, report.GoldenFile{Name: name, Word: "removed"})
		case was == nil:
			r.Files = append(r.Files, report.GoldenFile{Name: name, Word: "new"})
		default:
			r.Files = append(r.Files, report.GoldenFile{Name: name, Word: "changed"})
		}
	}
	switch {
	case verb == goldenCheck && len(r.Files) > 0:
		r.Word = "differs"
	case verb == goldenCheck:
		r.Word = "same"
	case verb == goldenUpdate && len(r.Files) > 0:
		r.Word = "updated"
	case verb == goldenUpdate:
		r.Word = "unchanged"
	}
	if verb != goldenCheck {
		if err := writeGolden(c, dir, want, r.Files); err != nil {
			return err
		}
	}
	if err := w.Golden(r); err != nil {
		return err
	}
	if r.Word == "differs" {
		return cli.Exit(cli.Found)
	}
	return nil
}

// apart refuses a log that is one of the files that would be written.
func apart(path, dir string) error {
	log, err := os.Stat(path)
	if err != nil {
		return source.Trouble(path, err)
	}
	for _, name := range golden.Names {
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil && os.SameFile(st, log) {
			return cli.Fail(cli.Trouble, fmt.Errorf("%s: the log is a file of the golden %s: logs are never written to", path, dir), "keep goldens in a directory of their own")
		}
	}
	return nil
}

func goldenTrouble(c *cli.Call, path string, err error) error {
	if c.Err() != nil {
		return c.Err()
	}
	if _, ok := errors.AsType[*cli.Failure](err); ok {
		return err
	}
	if d, ok := errors.AsType[*logfmt.Defect](err); ok {
		status := cli.Trouble
		if d.Class == logfmt.Unsupported {
			status = cli.Unsupported
		}
		return cli.Fail(status, d, "for every defect, run: "+cli.CommandLine([]string{"dsh-verify", cli.Path(path)}))
	}
	return cli.Fail(cli.Trouble, fmt.Errorf("%s: %w", path, err))
}

// writeGolden writes the files that change, each aside and renamed, golden.json
// last: it is what makes a golden of a directory.
func writeGolden(c *cli.Call, dir string, want map[string][]byte, changes []report.GoldenFile) error {
	if len(changes) == 0 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return cli.Fail(cli.Trouble, fmt.Errorf("%s: %w", dir, cause(err)))
	}
	for _, f := range changes {
		if c.Err() != nil {
			return c.Err()
		}
		path := filepath.Join(dir, f.Name)
		err := error(nil)
		if f.Word == "removed" {
			err = os.Remove(path)
		} else {
			err = replaceFile(path, want[f.Name])
		}
		if err != nil {
			return cli.Fail(cli.Trouble, fmt.Errorf("%s: %w", path, cause(err)))
		}
	}
	return syncDir(dir)
}

// replaceFile gives a file new content at once.
func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".dsh-golden-*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
