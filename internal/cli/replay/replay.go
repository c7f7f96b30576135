// Package replay is the dsh-replay program: it shows what a session log says
// was sent to the model.
package replay

import (
	"fmt"
	"math"
	"strconv"

	ucli "github.com/urfave/cli/v2"

	"github.com/dsh-audit/dsh-audit/internal/cli"
)

const exits = `
exit status:
  0  printed
  1  printed, but the log is damaged; or what was asked for is not in it
  2  the call was wrong, or reading or writing failed
  3  the log is of a kind this build does not read
  130 interrupted; 129 when the terminal was closed
`

const help = `dsh-replay - show the requests that a session log leads to

usage: dsh-replay COMMAND [options] LOG ...

commands:
  requests   list every request the harness sent
  show       print one request
  messages   print the message list at the end of the log
  header     print the request header in force at the end of the log
  surface    print the surface: which events the model can still see
  events     print the events, unpacked, one JSON object a line
  session    print the header record of the log
  export     write the log in another form, mended on request
  golden     keep logs as fixtures that can be reviewed: write, check, update

options:
  --help     print this, or with a command the help of that command
  --version  print the version

LOG is a file; "-" is standard input. Logs are only read, never changed.
` + exits + `
example: dsh-replay requests session.jsonl
         dsh-replay show session.jsonl 2.1
`

const common = `  --session ID    of a database that holds several sessions, the one to read
  --color WHEN    auto (default), always or never
  --help          print this
`

const helpFraming = `  --framing HOW   how context and steering messages of July 17 to 20 were sent
                  where the log leaves it open: auto (default: reported as
                  ambiguous), tagged, or verbatim
  --config-layout HOW
                  in which order requests of about July 27 had their members
                  where the log leaves it open: auto (default: as until then, and
                  reported as ambiguous), named (as until then), or spread (the
                  config first, as logged)
`

const helpParent = `  --parent LOG    the log of the session that this one was forked from, and so on
                  up to the one that was not forked; may be repeated. It tells
                  under whose id inherited requests were sent
`

const helpAt = `  --at SEQ        fold the events through SEQ only (SEQ itself included)
`

// Program returns the program.
func Program() *cli.Program {
	framing, layout, session := cli.Option("framing", "auto"), cli.Option("config-layout", "auto"), cli.Option("session", "")
	parent := cli.Repeated("parent")
	state := []ucli.Flag{cli.Option("at", ""), session, cli.ColorFlag()}
	loaded := append([]ucli.Flag{cli.Switch("as-loaded")}, state...)
	folded := append([]ucli.Flag{framing, layout}, loaded...)
	return &cli.Program{
		Name: "dsh-replay",
		Help: help,
		Commands: []*cli.Command{
			{Name: "requests", Run: runRequests,
				Flags: []ucli.Flag{cli.Option("format", "text"), cli.Switch("bodies"), cli.Switch("candidates"),
					cli.Switch("inherited"), cli.Switch("aux"), cli.Switch("as-loaded"), framing, layout, parent, session, cli.ColorFlag()},
				Help: `dsh-replay requests - list every request the harness sent

usage: dsh-replay requests [options] LOG

options:
  --format F      text (default) or jsonl: one JSON object a line (docs/json.md)
  --bodies        print {"turn":T,"step":S,"request":BODY} for each request, BODY
                  being the exact bytes that JSON.stringify gives
  --candidates    also list attempts that may or may not have been sent: the log
                  holds no chunk and no message of them
  --inherited     also list the requests of the parent log a fork began with
  --aux           also list calls outside the agent loop: compaction, titles,
                  web search
` + helpParent + helpLoaded + helpFraming + common + exits},
			{Name: "show", Run: runShow,
				Flags: []ucli.Flag{cli.Switch("raw"), framing, layout, parent, session, cli.ColorFlag()},
				Help: `dsh-replay show - print one request

usage: dsh-replay show [options] LOG TURN.STEP[.ATTEMPT]

Without ATTEMPT the only one of that step is meant.

options:
  --raw           print exactly the bytes of the request body, nothing else
` + helpParent + helpFraming + common + exits},
			{Name: "messages", Run: stateCommand(printMessages), Flags: folded,
				Help: `dsh-replay messages - print the message list as one JSON array

usage: dsh-replay messages [options] LOG

options:
` + helpAt + helpLoaded + helpFraming + common + exits},
			{Name: "header", Run: stateCommand(printHeader), Flags: state,
				Help: `dsh-replay header - print the request header in force, null if there is none

usage: dsh-replay header [options] LOG

options:
` + helpAt + common + exits},
			{Name: "surface", Run: stateCommand(printSurface), Flags: loaded,
				Help: `dsh-replay surface - print which events the model can still see

usage: dsh-replay surface [options] LOG

The result is {"nodes":[SEQ,...],"replacements":[...]}. A log without surface
markers has no nodes: its messages are found by scanning.

options:
` + helpAt + helpLoaded + common + exits},
			{Name: "events", Run: runEvents,
				Flags: []ucli.Flag{cli.Option("at", ""), cli.Switch("after-damage"), cli.Switch("as-loaded"), session, cli.ColorFlag()},
				Help: `dsh-replay events - print the events, unpacked, one JSON object a line

usage: dsh-replay events [options] LOG

options:
  --at SEQ        print the events through SEQ only (SEQ itself included)
  --after-damage  also print events that stand behind damage: the harness would
                  not see them
` + helpLoaded + common + exits},
			exportCommand(),
			goldenCommand(),
			{Name: "session", Run: runSession,
				Flags: []ucli.Flag{cli.Switch("meta"), session, cli.ColorFlag()},
				Help: `dsh-replay session - print the header record of the log as it is stored

usage: dsh-replay session [options] LOG

options:
  --meta          print the summary that harnesses of June 2026 kept beside the
                  log instead, {"updatedAt":MS,"title":...,"firstPrompt":...,
                  "source":"sidecar"}; source is database where the log lies in
                  one, and header where there is none: then updatedAt is createdAt
` + common + exits},
		},
	}
}

// oneLog returns the only operand.
func oneLog(c *cli.Call) (string, error) {
	switch len(c.Operands) {
	case 1:
		return c.Operands[0], nil
	case 0:
		return "", cli.Usage("no log given", "usage: "+c.Command+" [options] LOG")
	}
	return "", cli.Usage(fmt.Sprintf("one log expected, got %d", len(c.Operands)),
		"run it once for each log")
}

// through returns the value of --at, the last seq to fold.
func through(c *cli.Call) (int64, error) {
	if !c.IsSet("at") {
		return math.MaxInt64, nil
	}
	n, err := strconv.ParseUint(c.Text("at"), 10, 53)
	if err != nil {
		return 0, cli.Usage(fmt.Sprintf("--at: %q is not the seq of an event", c.Text("at")))
	}
	return int64(n), nil
}
