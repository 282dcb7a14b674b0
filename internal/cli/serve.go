// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/metrale/metrale/internal/diag"
)

// newServeCmd is `met serve`.
func newServeCmd(env environment) *cobra.Command {
	return &cobra.Command{
		Use: "serve <id | path | file.gguf>", Short: "Serve a model over HTTP", Args: cobra.ExactArgs(1),
		RunE: func(*cobra.Command, []string) error {
			return diag.Errorf(diag.Unsupported, "this build has no server yet")
		},
	}
}

// serveForChat serves a model on a free port for as long as a conversation lasts and gives its URL.
func serveForChat(ctx context.Context, env environment, model string, log io.Writer) (url string, stop func(), err error) {
	return "", nil, diag.Errorf(diag.Unsupported, "this build has no server yet")
}
