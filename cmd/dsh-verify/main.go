// Command dsh-verify judges session logs against the rules of the harness.
package main

import (
	"os"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/verify"
)

func main() { os.Exit(cli.Main(verify.Program())) }
