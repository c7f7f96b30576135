// Command rules writes the rule reference: docs/rules.md, and the examples that
// dsh-verify explain prints.
//
//	go run ./scripts/rules
//
// The text of a rule stands in its source. Its example is the line that the
// smallest breaking log in pkg/invariants/testdata is about, with what dsh-verify
// says; for rules that no line shows it stands in examples.txt.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/verify"
	"github.com/dsh-audit/dsh-audit/internal/ui"
	"github.com/dsh-audit/dsh-audit/pkg/invariants"
)

func main() {
	root, err := moduleRoot()
	if err == nil {
		var files map[string][]byte
		if files, err = reference(root); err == nil {
			for name, b := range files {
				err = errors.Join(err, os.WriteFile(filepath.Join(root, name), b, 0o644))
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rules:", err)
		os.Exit(1)
	}
}

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	return strings.TrimSpace(string(out)), err
}

// reference gives the files to be written.
func reference(root string) (map[string][]byte, error) {
	extra, err := os.ReadFile(filepath.Join(root, "scripts", "rules", "examples.txt"))
	if err != nil {
		return nil, err
	}
	written := verify.ParseExamples(string(extra))
	examples := map[string]string{}
	var b bytes.Buffer
	b.WriteString("Made by go run ./scripts/rules; not to be edited.\n\n")
	for _, r := range invariants.All() {
		text, err := example(root, r.ID)
		if err != nil {
			return nil, err
		}
		switch {
		case text != "" && written[r.ID] != "":
			return nil, fmt.Errorf("%s has an example in examples.txt and a log in testdata: take the former away", r.ID)
		case text == "":
			text = written[r.ID]
		}
		if text == "" {
			return nil, fmt.Errorf("%s has no example: write one into scripts/rules/examples.txt, or a log into pkg/invariants/testdata", r.ID)
		}
		examples[r.ID] = text
		fmt.Fprintf(&b, "-- %s --\n%s\n", r.ID, text)
		delete(written, r.ID)
	}
	for id := range written {
		if id != "" {
			return nil, fmt.Errorf("examples.txt has an example of %s, which is no rule", id)
		}
	}
	return map[string][]byte{
		filepath.Join("internal", "cli", "verify", "examples.txt"): b.Bytes(),
		filepath.Join("docs", "rules.md"):                          verify.RuleReference(examples),
	}, nil
}

// longest is how much of a line is shown.
const longest = 360

// example is the line that breaks a rule in the first archive of testdata that is
// named after it, and the finding; "" when there is none.
func example(root, id string) (string, error) {
	file := archiveOf(root, id)
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	logs := verify.ParseExamples(string(text))
	bad := logs["bad.jsonl"] + "\n"
	comment, _, _ := strings.Cut(string(text), "\n-- ")
	if slices.Contains(strings.Split(comment, "\n"), "cut bad.jsonl") {
		bad = strings.TrimSuffix(bad, "\n")
	}
	dir, err := os.MkdirTemp("", "rules")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	log := filepath.Join(dir, "log.jsonl")
	if err := os.WriteFile(log, []byte(bad), 0o666); err != nil {
		return "", err
	}
	args := []string{"dsh-verify", "--config", os.DevNull, "--notes", "--only", id, log}
	if parent, ok := logs["parent.jsonl"]; ok {
		path := filepath.Join(dir, "parent.jsonl")
		if err := os.WriteFile(path, []byte(parent+"\n"), 0o666); err != nil {
			return "", err
		}
		args = append(args, path)
	}
	var out, errs bytes.Buffer
	cli.Execute(context.Background(), verify.Program(), args, strings.NewReader(""), &out, &errs)
	for line := range strings.Lines(out.String()) {
		rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), log+":")
		if !ok || !strings.Contains(rest, " "+id+" ") {
			continue
		}
		number, _, _ := strings.Cut(rest, ":")
		n, err := strconv.Atoi(number)
		lines := strings.Split(bad, "\n")
		if err != nil || n < 1 || n > len(lines) {
			return "", fmt.Errorf("%s: no line in %q", file, line)
		}
		return shorten(lines[n-1]) + "\nlog.jsonl:" + strings.ReplaceAll(rest, dir+string(filepath.Separator), ""), nil
	}
	return "", fmt.Errorf("%s: no finding of %s:\n%s%s", file, id, out.Bytes(), errs.Bytes())
}

// archiveOf prefers the archive that has the plain name of the rule.
func archiveOf(root, id string) string {
	dir := filepath.Join(root, "pkg", "invariants", "testdata")
	if file := filepath.Join(dir, id+".txtar"); exists(file) {
		return file
	}
	files, _ := filepath.Glob(filepath.Join(dir, id+"-*.txtar"))
	for _, f := range files {
		// The longest id that the name begins with is the rule it shows.
		name := strings.TrimSuffix(filepath.Base(f), ".txtar")
		for invariants.Lookup(name) == nil {
			i := strings.LastIndexByte(name, '-')
			if i < 0 {
				break
			}
			name = name[:i]
		}
		if name == id {
			return f
		}
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// shorten makes a line of a log printable, and takes the middle out of a long one.
func shorten(line string) string {
	if line == "" {
		return "(an empty line)"
	}
	line = ui.Escape(line)
	if r := []rune(line); len(r) > longest {
		line = string(r[:longest/2]) + " ... " + string(r[len(r)-longest/2:])
	}
	return line
}
