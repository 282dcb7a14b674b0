// SPDX-License-Identifier: MIT OR Apache-2.0

// Command met serves large language models.
package main

import (
	"os"

	"github.com/metrale/metrale/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
