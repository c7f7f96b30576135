package cli_test

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/diff"
	"github.com/dsh-audit/dsh-audit/internal/cli/replay"
	"github.com/dsh-audit/dsh-audit/internal/cli/verify"
	"github.com/dsh-audit/dsh-audit/internal/corpus"
)

func programs() map[string]*cli.Program {
	return map[string]*cli.Program{"dsh-replay": replay.Program(), "dsh-verify": verify.Program(), "dsh-diff": diff.Program()}
}

// TestReadme runs every command of the README that is shown with its output.
func TestReadme(t *testing.T) {
	t.Chdir(corpus.Root(t))
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	const indent = "    "
	ran := 0
	text := strings.Split(string(b), "\n")
	for i := 0; i < len(text); i++ {
		command, ok := strings.CutPrefix(text[i], indent+"$ ")
		if !ok {
			continue
		}
		var want strings.Builder
		for i+1 < len(text) && strings.HasPrefix(text[i+1], indent) && !strings.HasPrefix(text[i+1], indent+"$ ") {
			i++
			want.WriteString(text[i][len(indent):] + "\n")
		}
		args := strings.Fields(command)
		p := programs()[args[0]]
		if p == nil {
			t.Fatalf("README shows %q, which is none of the programs", command)
		}
		var out, errs bytes.Buffer
		cli.Execute(context.Background(), p, args, strings.NewReader(""), &out, &errs)
		if d := cmp.Diff(want.String(), out.String()+errs.String()); d != "" {
			t.Errorf("%s (-README +now):\n%s", command, d)
		}
		ran++
	}
	if ran < 3 {
		t.Errorf("%d commands with output were found, want at least 3", ran)
	}
}

// TestHelpNamesEveryOption holds help texts, which are written by hand, to the
// options there are: each is explained, and none that is not there.
func TestHelpNamesEveryOption(t *testing.T) {
	option := regexp.MustCompile(`(?m)^  (--[a-z-]+|-[a-z]\b)`)
	check := func(name, help string, flags []string) {
		var have []string
		for _, m := range option.FindAllStringSubmatch(help, -1) {
			have = append(have, m[1])
		}
		want := map[string]int{"--help": 1}
		for _, f := range flags {
			dash := "--"
			if len(f) == 1 {
				dash = "-"
			}
			want[dash+f] = 1
		}
		got := map[string]int{}
		for _, h := range have {
			got[h]++
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("help of %s (-options +explained):\n%s", name, d)
		}
		if !strings.Contains(help, "exit status") || !strings.Contains(help, "usage: "+name) || !strings.HasSuffix(help, "\n") {
			t.Errorf("help of %s lacks its usage or its exit status", name)
		}
		for _, line := range strings.Split(help, "\n") {
			if len(line) > 82 {
				t.Errorf("help of %s: line of %d characters: %s", name, len(line), line)
			}
		}
	}
	for name, p := range programs() {
		flags := []string{"version"}
		for _, f := range p.Flags {
			flags = append(flags, f.Names()...)
		}
		check(name, p.Help, flags)
		var commands func(under string, list []*cli.Command)
		commands = func(under string, list []*cli.Command) {
			for _, c := range list {
				var flags []string
				for _, f := range c.Flags {
					flags = append(flags, f.Names()...)
				}
				check(under+" "+c.Name, c.Help, flags)
				commands(under+" "+c.Name, c.Commands)
			}
		}
		commands(name, p.Commands)
	}
}
