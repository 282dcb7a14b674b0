// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// newListCmd is `met list`: the models that are in the cache.
func newListCmd(env environment) *cobra.Command {
	var cacheDir string
	cmd := &cobra.Command{
		Use: "list", Short: "List the models in the cache", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cacheDir == "" {
				cacheDir = env.hub.Cache
			}
			repos, err := filepath.Glob(filepath.Join(cacheDir, "models--*"))
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, dir := range repos {
				id := strings.ReplaceAll(strings.TrimPrefix(filepath.Base(dir), "models--"), "--", "/")
				fmt.Fprintf(w, "%s\t%s\n", id, byteCount(folderSize(filepath.Join(dir, "blobs"))))
			}
			if len(repos) == 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "no models in %s; `met serve <id>` downloads one\n", cacheDir)
			}
			return w.Flush()
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
