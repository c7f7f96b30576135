// Command dsh-replay shows the requests that a session log leads to.
package main

import (
	"os"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/replay"
)

func main() { os.Exit(cli.Main(replay.Program())) }
