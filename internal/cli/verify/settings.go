package verify

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	// The YAML library is the one that the YAML organisation keeps going since the
	// original, gopkg.in/yaml.v3, is no longer maintained. It needs no other module
	// and gives the line of every node.
	"go.yaml.in/yaml/v3"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/source"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/invariants"
	"github.com/dsh-audit/dsh-audit/pkg/migrate"
)

// configName is the file of settings that is used when it lies in the working
// directory.
const configName = ".dsh-audit.yaml"

// Settings that a file may hold too. What a file can not do is make the program
// write anything: it may come with the logs.
var (
	switches = []string{"strict", "fail-on-drift", "notes", "as-loaded"}
	options  = []string{"fail-on", "framing", "config-layout", "limit", "jobs", "format", "baseline", "paranoid"}
	lists    = []string{"disable", "only"}
)

// A settings is what one run was told: by the command line, else by a file, else
// by default.
type settings struct {
	c    *cli.Call
	path string // of the file, "" when there is none
	file map[string]value
}

// A value is a setting in a file.
type value struct {
	line int
	text string
	list []item
}

type item struct {
	line int
	text string
}

// readSettings reads the file that --config names, or the one that lies here.
func readSettings(c *cli.Call) (*settings, error) {
	s := &settings{c: c, path: c.Text("config")}
	if s.path == "" {
		s.path = configName
		if _, err := os.Lstat(s.path); errors.Is(err, fs.ErrNotExist) {
			s.path = ""
			return s, nil
		}
	}
	b, err := os.ReadFile(s.path)
	if err != nil {
		return nil, source.Trouble(s.path, err)
	}
	if s.file, err = parseConfig(b); err != nil {
		var le *lineError
		if errors.As(err, &le) {
			return nil, cli.Usage(fmt.Sprintf("%s:%d: %s", s.path, le.line, le.msg), le.hint...)
		}
		return nil, cli.Usage(fmt.Sprintf("%s: %v", s.path, err))
	}
	return s, nil
}

// A lineError is a mistake in a file of settings.
type lineError struct {
	line int
	msg  string
	hint []string
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.msg) }

// parseConfig reads a mapping of settings.
func parseConfig(b []byte) (map[string]value, error) {
	d := yaml.NewDecoder(bytes.NewReader(b))
	var doc yaml.Node
	if err := d.Decode(&doc); err == io.EOF {
		return nil, nil
	} else if err != nil {
		return nil, yamlError(err)
	}
	var second yaml.Node
	if err := d.Decode(&second); err == nil {
		return nil, &lineError{line: second.Line, msg: "a second document: expected one"}
	} else if err != io.EOF {
		return nil, yamlError(err)
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, &lineError{line: root.Line, msg: "expected settings, each as \"name: value\""}
	}
	out := map[string]value{}
	for i := 0; i < len(root.Content); i += 2 {
		k, n := root.Content[i], root.Content[i+1]
		if old, twice := out[k.Value]; twice {
			return nil, &lineError{line: k.Line, msg: fmt.Sprintf("%s is set a second time, first in line %d", k.Value, old.line)}
		}
		v, err := setting(k, n)
		if err != nil {
			return nil, err
		}
		out[k.Value] = v
	}
	return out, nil
}

func yamlError(err error) error {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(msg, "line "); ok {
		if n, what, ok := strings.Cut(rest, ": "); ok {
			if line, err := strconv.Atoi(n); err == nil {
				return &lineError{line: line, msg: "not YAML: " + what}
			}
		}
	}
	return errors.New("not YAML: " + msg)
}

// setting reads one value by what its name wants.
func setting(k, n *yaml.Node) (value, error) {
	v := value{line: k.Line}
	want := ""
	switch {
	case k.Kind != yaml.ScalarNode:
		return v, &lineError{line: k.Line, msg: "expected the name of a setting"}
	case slices.Contains(switches, k.Value):
		want = "true or false"
		if n.Kind == yaml.ScalarNode && n.Tag == "!!bool" {
			var b bool
			if n.Decode(&b) == nil {
				v.text = strconv.FormatBool(b)
				return v, nil
			}
		}
	case slices.Contains(options, k.Value):
		want = "one value"
		if n.Kind == yaml.ScalarNode && n.Tag != "!!null" {
			v.text = n.Value
			return v, nil
		}
	case slices.Contains(lists, k.Value):
		want = "a list of rules"
		items := []*yaml.Node{n}
		if n.Kind == yaml.SequenceNode {
			items = n.Content
		}
		ok := true
		for _, n := range items {
			ok = ok && n.Kind == yaml.ScalarNode && n.Tag == "!!str"
			v.list = append(v.list, item{n.Line, n.Value})
		}
		if ok {
			return v, nil
		}
	default:
		return v, &lineError{line: k.Line, msg: fmt.Sprintf("unknown setting %q", k.Value),
			hint: []string{"the settings are " + strings.Join(slices.Concat(switches, options, lists), ", ")}}
	}
	return v, &lineError{line: n.Line, msg: fmt.Sprintf("%s: expected %s", k.Value, want)}
}

// on is a switch. A command line can turn one off that the file turns on:
// --strict=false.
func (s *settings) on(name string) bool {
	if v, ok := s.file[name]; ok && !s.c.IsSet(name) {
		return v.text == "true"
	}
	return s.c.Bool(name)
}

// text is the value of an option and where it was given, for messages.
func (s *settings) text(name string) (text, where string) {
	if v, ok := s.file[name]; ok && !s.c.IsSet(name) {
		return v.text, fmt.Sprintf("%s:%d: %s", s.path, v.line, name)
	}
	return s.c.Text(name), "--" + name
}

func (s *settings) choice(name string, words ...string) (string, error) {
	v, where := s.text(name)
	if slices.Contains(words, v) {
		return v, nil
	}
	return "", cli.Usage(fmt.Sprintf("%s: %q is not one of %s", where, v, strings.Join(words, ", ")))
}

func (s *settings) number(name string, most int) (int, error) {
	v, where := s.text(name)
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > most {
		return 0, cli.Usage(fmt.Sprintf("%s: %q is not a number from 1", where, v))
	}
	return n, nil
}

// rules returns the rules that a list names: by id, or by a pattern like SURF-*.
func (s *settings) rules(name string) (map[string]bool, error) {
	var words []item
	if v, ok := s.file[name]; ok && !s.c.IsSet(name) {
		words = v.list
	} else {
		for _, w := range s.c.List(name) {
			words = append(words, item{0, w})
		}
	}
	if len(words) == 0 {
		return nil, nil
	}
	out := map[string]bool{}
	for _, w := range words {
		where := "--" + name
		if w.line > 0 {
			where = fmt.Sprintf("%s:%d: %s", s.path, w.line, name)
		}
		for part := range strings.SplitSeq(w.text, ",") {
			part = strings.ToUpper(strings.TrimSpace(part))
			found := false
			for _, r := range invariants.All() {
				if ok, err := path.Match(part, r.ID); ok && err == nil {
					out[r.ID], found = true, true
				}
			}
			if !found {
				return nil, cli.Usage(fmt.Sprintf("%s: no rule %s", where, cli.Quote(part)), "to list the rules, run: dsh-verify rules")
			}
		}
	}
	return out, nil
}

// A plan is how a run judges, and when it fails.
type plan struct {
	opts    invariants.Options
	limit   int
	jobs    int
	notes   bool
	drift   bool
	session string
	migrate int64 // generation to migrate to; 0 without
	policy  policy
	notRun  []string
	config  string
	base    *accepted // nil without a baseline
}

// judging reads the settings that change what is found.
func (s *settings) judging() (*plan, error) {
	p := &plan{notes: s.on("notes"), drift: s.on("fail-on-drift"), session: s.c.Text("session"), config: s.path}
	var err error
	if p.policy, err = s.policy(); err != nil {
		return nil, err
	}
	if to := s.c.Text("migrate-to"); to != "" {
		for n := int64(1); n <= migrate.Latest; n++ {
			if to == fmt.Sprintf("v%d", n) {
				p.migrate = n
			}
		}
		if p.migrate == 0 {
			return nil, cli.Usage(fmt.Sprintf("--migrate-to: %q is no generation that a log is taken to: expected v1, v2, v3 or v4", to))
		}
	}
	if p.limit, err = s.number("limit", 1<<31-1); err != nil {
		return nil, err
	}
	p.jobs = runtime.GOMAXPROCS(0)
	if v, _ := s.text("jobs"); v != "" {
		if p.jobs, err = s.number("jobs", 1024); err != nil {
			return nil, err
		}
	}
	p.opts.MaxPerRule = p.limit
	paranoid, err := s.choice("paranoid", "off", "sample", "all")
	if err != nil {
		return nil, err
	}
	p.opts.Paranoid = map[string]invariants.Paranoia{"sample": invariants.ParanoidSample, "all": invariants.ParanoidAll}[paranoid]
	p.opts.AsLoaded = s.on("as-loaded")
	framing, err := s.choice("framing", source.Framings...)
	if err != nil {
		return nil, err
	}
	layout, err := s.choice("config-layout", source.Layouts...)
	if err != nil {
		return nil, err
	}
	p.opts.Fold = fold.Options{Framing: source.Framing(framing), Layout: source.Layout(layout)}
	if err := s.selection(p); err != nil {
		return nil, err
	}
	if path, _ := s.text("baseline"); path != "" {
		if _, ok := s.file["baseline"]; ok && !s.c.IsSet("baseline") && !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(s.path), path)
		}
		if p.base, err = readBaseline(path); err != nil {
			return nil, err
		}
	}
	if p.base != nil || s.c.IsSet("write-baseline") {
		// A finding that is not listed cannot be known.
		p.opts.MaxPerRule = max(p.limit, baselineMost)
	}
	return p, nil
}

// selection settles which rules run.
func (s *settings) selection(p *plan) error {
	only, err := s.rules("only")
	if err != nil {
		return err
	}
	disable, err := s.rules("disable")
	if err != nil {
		return err
	}
	if only == nil && disable == nil {
		return nil
	}
	run := func(id string) bool { return (only == nil || only[id]) && !disable[id] }
	p.opts.Rules = run
	any := false
	for _, r := range invariants.All() {
		if run(r.ID) {
			any = true
		} else {
			p.notRun = append(p.notRun, r.ID)
		}
	}
	if !any {
		return cli.Usage("no rule is left to run", "what --only names, --disable takes away")
	}
	return nil
}

// driftRule is the rule whose findings --fail-on-drift makes errors.
const driftRule = "HDR-RESUME-DRIFT"
