package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"
)

func testProgram() *Program {
	echo := func(c *Call) error {
		_, err := fmt.Fprintf(c.Out, "%s format=%s strict=%t %q\n", c.Command, c.Text("format"), c.Bool("strict"), c.Operands)
		return err
	}
	flags := []cli.Flag{Option("format", "text"), Switch("strict"), ColorFlag()}
	return &Program{
		Name: "dsh-x", Help: "the help\n", Flags: flags, Run: echo,
		Commands: []*Command{
			{Name: "sub", Help: "the help of sub\n", Flags: flags, Run: echo},
			{Name: "found", Help: "h\n", Run: func(*Call) error { return Exit(Found) }},
			{Name: "unsupported", Help: "h\n", Run: func(*Call) error { return Fail(Unsupported, errors.New("not yet"), "wait") }},
			{Name: "plain", Help: "h\n", Run: func(*Call) error { return fmt.Errorf("a.jsonl: %w", io.ErrUnexpectedEOF) }},
			{Name: "cancelled", Help: "h\n", Run: func(*Call) error { return fmt.Errorf("reading: %w", context.Canceled) }},
			{Name: "fine", Help: "h\n", Run: func(*Call) error { return Exit(OK) }},
		},
	}
}

func TestExecute(t *testing.T) {
	tests := []struct {
		name     string
		args     string // separated by '|'
		code     int
		out, err string
	}{
		{"no operand", "dsh-x", 0, "dsh-x format=text strict=false []\n", ""},
		{"options first", "dsh-x|--format|json|-strict|a|b", 0, "dsh-x format=json strict=true [\"a\" \"b\"]\n", ""},
		{"comma stays", "dsh-x|a,b", 0, "dsh-x format=text strict=false [\"a,b\"]\n", ""},
		{"standard input", "dsh-x|-", 0, "dsh-x format=text strict=false [\"-\"]\n", ""},
		{"help", "dsh-x|--help", 0, "the help\n", ""},
		{"help with file", "dsh-x|-h|a", 0, "the help\n", ""},
		{"help of sub", "dsh-x|sub|--help", 0, "the help of sub\n", ""},
		{"a file named help", "dsh-x|sub|help", 0, "dsh-x sub format=text strict=false [\"help\"]\n", ""},
		{"a file named as an option", "dsh-x|--strict|strict", 0, "dsh-x format=text strict=true [\"strict\"]\n", ""},
		{"option last", "dsh-x|a b|--format|json", 2, "",
			"dsh-x: error: option --format stands after a file; options come first\ndsh-x: hint: run: dsh-x --format json 'a b'\n"},
		{"option between", "dsh-x|sub|--strict|a|--format=json|b", 2, "",
			"dsh-x: error: option --format=json stands after a file; options come first\ndsh-x: hint: run: dsh-x sub --strict --format=json a b\n"},
		{"hostile file name", "dsh-x|a\x1b[2J'|--strict", 2, "",
			"dsh-x: error: option --strict stands after a file; options come first\ndsh-x: hint: run: dsh-x --strict $'a\\x1b[2J\\''\n"},
		{"help last", "dsh-x|a|--help", 2, "",
			"dsh-x: error: option --help stands after a file; options come first\ndsh-x: hint: run: dsh-x --help a\n"},
		{"unknown option last", "dsh-x|a|--nope", 2, "",
			"dsh-x: error: unknown option --nope\ndsh-x: hint: a file whose name begins with '-' is written ./--nope\n"},
		{"unknown option to be quoted", "dsh-x|a|-no pe;\x1b", 2, "",
			"dsh-x: error: unknown option $'-no pe;\\x1b'\ndsh-x: hint: a file whose name begins with '-' is written $'./-no pe;\\x1b'\n"},
		{"dashes end options", "dsh-x|--strict|--|--format|-x", 0, "dsh-x format=text strict=true [\"--format\" \"-x\"]\n", ""},
		{"dashes after a file", "dsh-x|a|--|-x", 0, "dsh-x format=text strict=false [\"a\" \"-x\"]\n", ""},
		{"misplaced before dashes", "dsh-x|a|--strict|--|-x", 2, "",
			"dsh-x: error: option --strict stands after a file; options come first\ndsh-x: hint: run: dsh-x --strict a -- -x\n"},
		{"unknown option", "dsh-x|--nope|a", 2, "",
			"dsh-x: error: unknown option --nope\ndsh-x: hint: for the options, run: dsh-x --help\n"},
		{"unknown option of sub", "dsh-x|sub|--\x1b[31m", 2, "",
			"dsh-x: error: unknown option --\\x1b[31m\ndsh-x: hint: for the options, run: dsh-x sub --help\n"},
		{"missing value", "dsh-x|--format", 2, "",
			"dsh-x: error: option --format needs a value\ndsh-x: hint: for the options, run: dsh-x --help\n"},
		{"bad color", "dsh-x|--color|pink|a", 2, "", "dsh-x: error: --color: \"pink\" is not one of auto, always, never\n"},
		{"found", "dsh-x|found", 1, "", ""},
		{"fine", "dsh-x|fine", 0, "", ""},
		{"unsupported", "dsh-x|unsupported", 3, "", "dsh-x: error: not yet\ndsh-x: hint: wait\n"},
		{"plain error", "dsh-x|plain", 2, "", "dsh-x: error: a.jsonl: unexpected EOF\n"},
		{"cancelled", "dsh-x|cancelled", 130, "", "dsh-x: error: interrupted\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out, errs strings.Builder
			code := Execute(context.Background(), testProgram(), strings.Split(tt.args, "|"), strings.NewReader(""), &out, &errs)
			if code != tt.code {
				t.Errorf("code %d, want %d", code, tt.code)
			}
			if d := cmp.Diff(tt.out, out.String()); d != "" {
				t.Errorf("standard output (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.err, errs.String()); d != "" {
				t.Errorf("standard error (-want +got):\n%s", d)
			}
		})
	}
}

func TestExecuteNeedsACommand(t *testing.T) {
	p := &Program{Name: "dsh-y", Help: "h\n", Commands: []*Command{{Name: "one", Help: "1\n"}, {Name: "two", Help: "2\n"}}}
	for args, want := range map[string]string{
		"dsh-y":      "dsh-y: error: no command given\ndsh-y: hint: the commands are one, two; for more, run: dsh-y --help\n",
		"dsh-y|on e": "dsh-y: error: unknown command 'on e'\ndsh-y: hint: the commands are one, two; for more, run: dsh-y --help\n",
	} {
		var out, errs strings.Builder
		if code := Execute(context.Background(), p, strings.Split(args, "|"), nil, &out, &errs); code != 2 {
			t.Errorf("%q: code %d, want 2", args, code)
		}
		if errs.String() != want || out.Len() != 0 {
			t.Errorf("%q: got %q and %q, want %q", args, out.String(), errs.String(), want)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestOutputFailureIsTrouble(t *testing.T) {
	for _, args := range [][]string{{"dsh-x", "a"}, {"dsh-x", "--help"}} {
		var errs strings.Builder
		code := Execute(context.Background(), testProgram(), args, nil, fullDisk{}, &errs)
		want := "dsh-x: error: standard output: " + syscall.ENOSPC.Error() + "\n"
		if code != 2 || errs.String() != want {
			t.Errorf("%v: code %d, %q; want 2, %q", args, code, errs.String(), want)
		}
	}
}

func TestPanicIsTrouble(t *testing.T) {
	p := &Program{Name: "dsh-z", Help: "h\n", Run: func(*Call) error { panic("fold: \x1b[31m") }}
	var out, errs strings.Builder
	if code := Execute(context.Background(), p, []string{"dsh-z"}, nil, &out, &errs); code != 2 {
		t.Errorf("code %d, want 2", code)
	}
	if !strings.Contains(errs.String(), `dsh-z: error: internal error: fold: \x1b[31m`+"\n") {
		t.Errorf("got %q", errs.String())
	}
}

func TestPath(t *testing.T) {
	for in, want := range map[string]string{
		"-": "-", "-x.jsonl": "./-x.jsonl", "--strict": "./--strict", "rules": "./rules", "merge": "./merge", "explain": "./explain",
		"a": "a", "./-x": "./-x", "a/rules": "a/rules", "-a b\n": "./-a b\n",
	} {
		if got := Path(in); got != want {
			t.Errorf("Path(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"a.jsonl@2.1": "a.jsonl@2.1", "": "''", "a b": "'a b'", "a'b": `'a'\''b'`, "$(rm)": "'$(rm)'",
		"日本": "'日本'", "a\nb": `$'a\x0ab'`, "\xff'": `$'\xff\''`, "\u009b": `$'\xc2\x9b'`, "a\u202eb": `$'a\xe2\x80\xaeb'`,
	} {
		if got := Quote(in); got != want {
			t.Errorf("Quote(%q) = %s, want %s", in, got, want)
		}
	}
}
