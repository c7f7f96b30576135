// Command dsh-diff compares two requests.
package main

import (
	"os"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/diff"
)

func main() { os.Exit(cli.Main(diff.Program())) }
