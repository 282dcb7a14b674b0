// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
)

// newListCmd is `met list`: the models that are in the cache.
func newListCmd(env environment) *cobra.Command {
	var cacheDir string
	cmd := &cobra.Command{
		Use: "list", Short: "List the model in the binary and those in the cache", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cacheDir == "" {
				cacheDir = env.hub.Cache
			}
			list, err := choices(cacheDir)
			if err != nil {
				return err
			}
			if cached := slices.ContainsFunc(list, func(c choice) bool { return c.name != demo }); !cached {
				fmt.Fprintf(cmd.ErrOrStderr(), "no models in %s; `met serve <id>` downloads one\n", cacheDir)
			}
			return printChoices(cmd.OutOrStdout(), list, false)
		},
	}
	cmd.Flags().StringVar(&cacheDir, "cache-dir", "", "Hugging Face cache (default: HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub)")
	return cmd
}

// folderSize is the bytes of a folder's own files.
func folderSize(dir string) (n int64) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
	}
	return n
}

// byteCount is 92.1 MB.
func byteCount(n int64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	v, u := float64(n), 0
	for v >= 1000 && u < len(units)-1 {
		v, u = v/1000, u+1
	}
	if u == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}
