// Command genroot makes a directory with many sessions in every container, some of
// them damaged in known ways, and checks that dsh-verify finds exactly those.
//
//	go run ./scripts/genroot [-n 1000] [-damaged 30] [-seed 1] OUT
//	go run ./scripts/genroot -check [-n 1000] [-damaged 30] [-seed 1]
//
// The first form writes OUT, which must not exist, and lists the damaged logs. The
// second does so in a temporary directory, judges it ten times with one to five logs
// at a time and once in three parts that are joined, each in every format, and
// reports what is not as it should be: a damaged log that is not found by its rule, a
// sound one in which anything is, a byte of a report that differs.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/verify"
)

func main() {
	n := flag.Int("n", 1000, "sessions")
	damaged := flag.Int("damaged", 30, "sessions to damage")
	seed := flag.Uint64("seed", 1, "seed of the random numbers")
	sound := flag.String("templates", filepath.Join("goldens", "sound"), "directory of the sound logs to multiply")
	check := flag.Bool("check", false, "judge what is made, and drop it")
	flag.Parse()
	err := run(*n, *damaged, *seed, *sound, *check, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "genroot:", err)
		os.Exit(1)
	}
}

func run(n, damaged int, seed uint64, sound string, check bool, args []string) error {
	ts, err := templates(sound)
	if err != nil {
		return err
	}
	if !check {
		if len(args) != 1 {
			return fmt.Errorf("name one directory to write")
		}
		list, err := generate(args[0], n, damaged, seed, ts)
		if err != nil {
			return err
		}
		for _, d := range list {
			fmt.Printf("%s (session %s): %s: %s, %s\n", d.Path, d.Session, d.How, d.Verdict, d.Rule)
		}
		return nil
	}
	dir, err := os.MkdirTemp("", "genroot")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	root := filepath.Join(dir, "root")
	start := time.Now()
	list, err := generate(root, n, damaged, seed, ts)
	if err != nil {
		return err
	}
	fmt.Printf("made %d sessions, %d of them damaged, in %v\n", n, len(list), time.Since(start).Round(time.Millisecond))
	start = time.Now()
	problems, err := checkRoot(root, n, list, 10)
	if err != nil {
		return err
	}
	for _, p := range problems {
		fmt.Println(p)
	}
	fmt.Printf("judged them 10 times and in 3 parts, in %d formats each, in %v: %d problems\n", len(formats), time.Since(start).Round(time.Millisecond), len(problems))
	if len(problems) > 0 {
		return fmt.Errorf("not as it should be")
	}
	return nil
}

// dshVerify runs the program in this process.
func dshVerify(args ...string) (code int, out []byte, err error) {
	var o, e bytes.Buffer
	code = cli.Execute(context.Background(), verify.Program(), append([]string{"dsh-verify"}, args...), strings.NewReader(""), &o, &e)
	if e.Len() > 0 {
		err = fmt.Errorf("dsh-verify %s: %s", strings.Join(args, " "), e.Bytes())
	}
	return code, o.Bytes(), err
}

// formats are all forms of a report.
var formats = []string{"text", "json", "jsonl", "junit", "sarif", "github"}

// everyFormat runs the program once and returns its reports.
func everyFormat(args ...string) (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "reports")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var words []string
	if args[0] == "merge" {
		words, args = args[:1:1], args[1:]
	}
	for _, f := range formats {
		words = append(words, "--output", f+"="+filepath.Join(dir, f))
	}
	if _, _, err := dshVerify(append(words, args...)...); err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, f := range formats {
		if out[f], err = os.ReadFile(filepath.Join(dir, f)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// checkRoot judges a root of n sessions and says what differs from what was done
// to them.
func checkRoot(root string, n int, list []Damaged, runs int) (problems []string, err error) {
	os.Unsetenv("GITHUB_STEP_SUMMARY") // what is checked here is no business of the step
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	code, whole, err := dshVerify("--format", "json", root)
	if err != nil {
		return nil, err
	}
	if want := map[bool]int{true: 1, false: 0}[len(list) > 0]; code != want {
		bad("code %d, want %d", code, want)
	}
	var doc struct {
		Results []struct {
			Path, Session, Verdict string
			Whole                  bool
			Findings               []struct{ Rule, Severity string }
		}
		Summary struct {
			Logs     int
			Verdicts map[string]int
		}
	}
	if err := json.Unmarshal(whole, &doc); err != nil {
		return nil, err
	}
	if doc.Summary.Logs != n {
		bad("%d logs, want %d", doc.Summary.Logs, n)
	}
	want := map[string]Damaged{}
	for _, d := range list {
		want[filepath.Join(root, d.Path)+" "+d.Session] = d
	}
	for _, r := range doc.Results {
		d, damaged := want[r.Path+" "+r.Session]
		if !damaged {
			// A log whose header is damaged has no session.
			d, damaged = want[r.Path+" "]
		}
		rules := []string{}
		for _, f := range r.Findings {
			if f.Severity != "note" {
				rules = append(rules, f.Rule)
			}
		}
		switch {
		case !damaged && (r.Verdict != "ok" || len(rules) > 0):
			bad("%s (session %s): %s %v, and nothing was done to it", r.Path, r.Session, r.Verdict, rules)
		case damaged && (r.Verdict != d.Verdict || !slices.Contains(rules, d.Rule)):
			bad("%s (session %s): %s %v, want %s %s by %s", r.Path, r.Session, r.Verdict, rules, d.Verdict, d.Rule, d.How)
		}
		delete(want, r.Path+" "+r.Session)
	}
	for _, d := range want {
		bad("%s (session %s) has no result", d.Path, d.Session)
	}
	first, err := everyFormat(root)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(first["json"], whole) {
		bad("JSON in a file is another than on standard output")
	}
	differ := func(what string, got map[string][]byte) {
		for _, f := range formats {
			if len(got[f]) == 0 || !bytes.Equal(got[f], first[f]) {
				bad("%s: other %s", what, f)
			}
		}
	}
	for i := range runs {
		jobs := fmt.Sprint(1 + i%5)
		again, err := everyFormat("--jobs", jobs, root)
		if err != nil {
			return nil, err
		}
		differ(fmt.Sprintf("run %d with --jobs %s", i+1, jobs), again)
	}
	parts, err := os.MkdirTemp("", "parts")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(parts)
	join := []string{"merge"}
	logs := 0
	for i := 3; i >= 1; i-- { // the order does not matter
		part := filepath.Join(parts, fmt.Sprintf("%d.json", i))
		_, out, err := dshVerify("--format", "json", "--shard", fmt.Sprintf("%d/3", i), root)
		if err == nil {
			err = os.WriteFile(part, out, 0o666)
		}
		if err != nil {
			return nil, err
		}
		var p struct{ Summary struct{ Logs int } }
		if err := json.Unmarshal(out, &p); err != nil {
			return nil, err
		}
		logs += p.Summary.Logs
		if p.Summary.Logs < n/6 {
			bad("part %d has %d of %d logs", i, p.Summary.Logs, n)
		}
		join = append(join, part)
	}
	if logs != n {
		bad("the parts have %d logs, want %d", logs, n)
	}
	mergedCode, _, err := dshVerify(join...)
	if err != nil {
		return nil, err
	}
	if mergedCode != code {
		bad("the joined parts give code %d, want %d", mergedCode, code)
	}
	merged, err := everyFormat(join...)
	if err != nil {
		return nil, err
	}
	differ("the joined parts", merged)
	return problems, nil
}
