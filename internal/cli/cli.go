// Package cli turns an argument list into one run of a program: options,
// operands, standard streams, and the exit code.
//
// Options stand before the first file; one that stands after it is an error
// that shows the corrected command, never a file and never ignored. "--" ends
// the options. What is wrong with the call goes to standard error and ends in
// code 2; help goes to standard output and ends in code 0. Standard output is
// buffered, and a write that fails (full disk, closed pipe) is an error.
package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dsh-audit/dsh-audit/internal/ui"
)

// Status is the exit code of a run. What each means for a program is in its
// help.
type Status int

const (
	OK          Status = 0
	Found       Status = 1   // the answer is no: findings, differences, nothing there
	Trouble     Status = 2   // could not run: usage, input or output
	Unsupported Status = 3   // recognised, but not judged by this build
	HungUp      Status = 129 // the terminal was closed
	Interrupted Status = 130 // by another signal
)

// errHungUp is why a run was cancelled whose terminal was closed.
var errHungUp = errors.New("the terminal was closed")

// A Failure ends a run with a status. Without an Err nothing is printed: the
// result already says why.
type Failure struct {
	Status Status
	Err    error
	Hints  []string
}

func (f *Failure) Error() string {
	if f.Err == nil {
		return fmt.Sprintf("exit status %d", int(f.Status))
	}
	return f.Err.Error()
}

func (f *Failure) Unwrap() error { return f.Err }

// Exit ends the run with s and prints nothing. Exit(OK) is nil.
func Exit(s Status) error {
	if s == OK {
		return nil
	}
	return &Failure{Status: s}
}

// Fail ends the run with s, an error message and hints.
func Fail(s Status, err error, hints ...string) error {
	return &Failure{Status: s, Err: err, Hints: hints}
}

// Usage is a call that cannot be understood.
func Usage(msg string, hints ...string) error { return Fail(Trouble, errors.New(msg), hints...) }

// exitCode is the one place where an error becomes an exit code.
func exitCode(err error) Status {
	var f *Failure
	switch {
	case err == nil:
		return OK
	case errors.Is(err, context.Canceled):
		return Interrupted
	case errors.As(err, &f):
		return f.Status
	default:
		return Trouble
	}
}

// A Program is one of the commands, with or without subcommands.
type Program struct {
	Name     string
	Help     string // the whole help text, ending in a line feed
	Flags    []cli.Flag
	Run      func(*Call) error // nil when a subcommand is required
	Commands []*Command
}

// A Command is a subcommand of a Program.
type Command struct {
	Name  string
	Help  string
	Flags []cli.Flag
	Run   func(*Call) error // nil when one of its own commands is required
	// Commands are commands of a command, written behind its name.
	Commands []*Command
}

// A Call is one run: the parsed options, the operands and the streams.
type Call struct {
	context.Context
	Command  string // as typed before the options, e.g. "dsh-replay show"
	Operands []string
	Stdin    io.Reader
	Out      *bufio.Writer // standard output; flushed and checked at the end
	UI       *ui.UI
	Palette  ui.Palette // for standard output
	Width    int        // columns of the terminal that standard output is; 0 when it is none
	opts     *cli.Context
}

// Bool returns the value of a switch.
func (c *Call) Bool(name string) bool { return c.opts.Bool(name) }

// Text returns the value of an option.
func (c *Call) Text(name string) string {
	if o, ok := c.opts.Generic(name).(*optional); ok {
		return o.value
	}
	return c.opts.String(name)
}

// IsSet reports whether an option was given.
func (c *Call) IsSet(name string) bool { return c.opts.IsSet(name) }

// List returns the values of an option that may be repeated.
func (c *Call) List(name string) []string { return c.opts.StringSlice(name) }

// Choice returns the value of an option that must be one of a few words.
func (c *Call) Choice(name string, words ...string) (string, error) {
	v := c.opts.String(name)
	for _, w := range words {
		if v == w {
			return v, nil
		}
	}
	return "", Usage(fmt.Sprintf("--%s: %q is not one of %s", name, v, strings.Join(words, ", ")))
}

// ColorFlag is the --color option every printing command has.
func ColorFlag() cli.Flag { return &cli.StringFlag{Name: "color", Value: string(ui.Auto)} }

// Switch is a boolean option.
func Switch(name string) cli.Flag { return &cli.BoolFlag{Name: name} }

// Option is an option with a value.
func Option(name, value string) cli.Flag { return &cli.StringFlag{Name: name, Value: value} }

// Repeated is an option with a value that may be given several times.
func Repeated(name string) cli.Flag { return &cli.StringSliceFlag{Name: name} }

// Optional is an option that may stand without a value: --name means --name=bare.
func Optional(name, value, bare string) cli.Flag {
	return &cli.GenericFlag{Name: name, Value: &optional{value, bare}}
}

type optional struct{ value, bare string }

func (o *optional) String() string { return o.value }

func (o *optional) Set(s string) error {
	if o.value = s; s == "true" {
		o.value = o.bare
	}
	return nil
}

// IsBoolFlag makes the flag package take no value from the next word.
func (o *optional) IsBoolFlag() bool { return true }

// bare reports whether an option can stand without a value.
func bare(f cli.Flag) bool {
	switch f := f.(type) {
	case *cli.BoolFlag:
		return true
	case *cli.GenericFlag:
		b, ok := f.Value.(interface{ IsBoolFlag() bool })
		return ok && b.IsBoolFlag()
	}
	return false
}

// Main runs a program as a process and returns its exit code.
func Main(p *Program) int {
	// Without this a write to a closed pipe kills the process silently.
	signal.Ignore(syscall.SIGPIPE)
	base, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if !signal.Ignored(syscall.SIGHUP) { // as below nohup
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		go func() {
			<-hup
			cancel(errHungUp)
		}()
	}
	ctx, stop := signal.NotifyContext(base, os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once; not a second hangup, as the system
	// and the shell send one each.
	context.AfterFunc(ctx, stop)
	done := make(chan int, 1)
	go func() { done <- Execute(ctx, p, os.Args, os.Stdin, os.Stdout, os.Stderr) }()
	select {
	case code := <-done:
		return code
	case <-ctx.Done():
	}
	// A run that waits for standard input does not see the signal.
	select {
	case code := <-done:
		return code
	case <-time.After(time.Second):
		ui.New(os.Stderr, p.Name, ui.Palette{}).Error("interrupted")
		return int(interruption(ctx))
	}
}

// interruption is the exit code of a run that was cancelled.
func interruption(ctx context.Context) Status {
	if errors.Is(context.Cause(ctx), errHungUp) {
		return HungUp
	}
	return Interrupted
}

// The library's own help and version printing would look up operands as help
// topics and end the process.
func init() { cli.HelpFlag = nil }

// Execute runs a program with the given arguments (the first is its name) and
// streams, and returns its exit code.
func Execute(ctx context.Context, p *Program, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := bufio.NewWriterSize(stdout, 64<<10)
	say := ui.New(stderr, p.Name, ui.NewPalette(ui.Colored(ui.Auto, stderr, os.Getenv)))
	base := Call{Context: ctx, Stdin: stdin, Out: out, UI: say}
	if f, ok := stdout.(*os.File); ok {
		base.Width = ui.Width(f)
	}
	err := run(p, markDash(args), base, stdout, stderr, &say)
	if werr := out.Flush(); werr != nil {
		// Whatever else happened, the reader of the output does not have it all. Of
		// those who interrupt a pipeline, the reader may be gone first.
		if err = ctx.Err(); err == nil {
			err = Fail(Trouble, fmt.Errorf("standard output: %w", reason(werr)))
		}
	}
	code := exitCode(err)
	if code == Interrupted {
		say.Error("interrupted")
		return int(interruption(ctx))
	}
	var f *Failure
	if errors.As(err, &f) {
		if f.Err != nil {
			say.Error(f.Err.Error())
		}
		for _, h := range f.Hints {
			say.Hint(h)
		}
	} else if err != nil {
		say.Error(err.Error())
	}
	return int(code)
}

// reason drops "write /dev/stdout: " before the cause.
func reason(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

func run(p *Program, args []string, base Call, stdout, stderr io.Writer, say **ui.UI) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = Fail(Trouble, fmt.Errorf("internal error: %v", r),
				"this is a defect of "+p.Name+"; please report it with these lines")
			(*say).Error(string(debug.Stack()))
		}
	}()
	bind := func(name, help string, flags []cli.Flag, action func(*Call) error) cli.ActionFunc {
		return func(c *cli.Context) error {
			call := base
			call.opts, call.Command = c, name
			if c.Bool("help") {
				_, err := io.WriteString(call.Out, help)
				return err
			}
			if c.Bool("version") {
				_, err := fmt.Fprintf(call.Out, "%s %s\n", p.Name, Version())
				return err
			}
			if hasFlag(flags, "color") {
				mode, err := call.Choice("color", string(ui.Auto), string(ui.Always), string(ui.Never))
				if err != nil {
					return err
				}
				call.Palette = ui.NewPalette(ui.Colored(ui.ColorMode(mode), stdout, os.Getenv))
				call.UI = ui.New(stderr, p.Name, ui.NewPalette(ui.Colored(ui.ColorMode(mode), stderr, os.Getenv)))
				*say = call.UI
			}
			tail := c.Args().Slice()
			ops, err := operands(args[:len(args)-len(tail)], tail, flags)
			if err != nil {
				return err
			}
			call.Operands = ops
			if action == nil {
				return noCommand(name, commandsOf(p, name), ops)
			}
			return action(&call)
		}
	}
	usage := func(_ *cli.Context, err error, _ bool) error {
		return Usage(flagError(err), "for the options, run: "+p.Name+" --help")
	}
	rootFlags := append([]cli.Flag{Switch("version"), helpFlag()}, p.Flags...)
	app := &cli.App{
		Name: p.Name, HelpName: p.Name, Usage: p.Name,
		Flags:  rootFlags,
		Action: bind(p.Name, p.Help, rootFlags, p.Run),
		Reader: base.Stdin, Writer: base.Out, ErrWriter: stderr,
		HideHelp: true, HideHelpCommand: true, HideVersion: true,
		DisableSliceFlagSeparator: true,
		OnUsageError:              usage,
		// Codes are ours to map, and Run must return.
		ExitErrHandler: func(*cli.Context, error) {},
	}
	var add func(to *[]*cli.Command, under string, list []*Command)
	add = func(to *[]*cli.Command, under string, list []*Command) {
		for _, cmd := range list {
			name := under + " " + cmd.Name
			flags := append([]cli.Flag{helpFlag()}, cmd.Flags...)
			c := &cli.Command{
				Name: cmd.Name, Flags: flags,
				Action:   bind(name, cmd.Help, flags, cmd.Run),
				HideHelp: true, HideHelpCommand: true,
				OnUsageError: func(_ *cli.Context, err error, _ bool) error {
					return Usage(flagError(err), "for the options, run: "+name+" --help")
				},
			}
			add(&c.Subcommands, name, cmd.Commands)
			*to = append(*to, c)
		}
	}
	add(&app.Commands, p.Name, p.Commands)
	return app.RunContext(base.Context, args)
}

func helpFlag() cli.Flag { return &cli.BoolFlag{Name: "help", Aliases: []string{"h"}} }

func hasFlag(flags []cli.Flag, name string) bool { return findFlag(flags, name) != nil }

func findFlag(flags []cli.Flag, name string) cli.Flag {
	for _, f := range flags {
		for _, n := range f.Names() {
			if n == name {
				return f
			}
		}
	}
	return nil
}

// commandsOf returns the commands that may stand behind a name.
func commandsOf(p *Program, name string) []*Command {
	list := p.Commands
	for _, word := range strings.Fields(name)[1:] {
		for _, c := range list {
			if c.Name == word {
				list = c.Commands
				break
			}
		}
	}
	return list
}

func noCommand(name string, commands []*Command, ops []string) error {
	names := make([]string, len(commands))
	for i, c := range commands {
		names[i] = c.Name
	}
	hint := "the commands are " + strings.Join(names, ", ") + "; for more, run: " + name + " --help"
	if len(ops) == 0 {
		return Usage("no command given", hint)
	}
	return Usage(fmt.Sprintf("unknown command %s", Quote(ops[0])), hint)
}

// Version is the version of the module this program was built from.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// StatusOf is the exit code that err leads to.
func StatusOf(err error) Status { return exitCode(err) }
