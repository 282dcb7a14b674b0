// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/kernels"
)

// maxConfig bounds a config file that is read from a folder.
const maxConfig = 16 << 20

func newCircuitConfigsCmd() *cobra.Command {
	var dir, class string
	var markdown bool
	cmd := &cobra.Command{
		Use:   "configs",
		Short: "List models by their configs: sizes, formats, and which run or what they lack",
		Long: `Reads config.json files, and hf_quant_config.json beside them, without any weights. Without --dir they are those of published
models that the binary carries. In a folder, …config.json is a model each; folders of the Hugging Face cache are understood.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lib, err := circuit.LoadLibrary(kernels.FS)
			if err != nil {
				return err
			}
			if err := checkClass(lib, class); err != nil {
				return err
			}
			models, err := readModels(dir)
			if err != nil {
				return err
			}
			survey := circuit.Summaries(lib, models, class)
			text := survey.Table()
			if markdown {
				text = survey.Markdown()
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&dir, "dir", "", "folder with configs (default: published models that the binary knows)")
	fl.StringVar(&class, "class", "cpu", "hardware class that is to run them")
	fl.BoolVar(&markdown, "markdown", false, "print the page docs/models.md")
	return cmd
}

// readModels reads the configs under a folder, or the known ones.
func readModels(dir string) ([]circuit.Model, error) {
	if dir == "" {
		return circuit.Published(kernels.FS)
	}
	files, tree := map[string][]byte{}, os.DirFS(dir)
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, "config.json") {
			return err
		}
		st, err := fs.Stat(tree, name) // of what a link leads to
		if err != nil || !st.Mode().IsRegular() {
			return err
		}
		if st.Size() > maxConfig {
			return diag.Errorf(diag.Format, "%d bytes are too many for a config", st.Size()).At(diag.Pos{File: name})
		}
		files[name], err = fs.ReadFile(tree, name)
		return err
	})
	if e, ok := diag.As(err); ok {
		return nil, e
	}
	if err != nil {
		return nil, diag.Errorf(diag.NotFound, "--dir %s cannot be read", dir).For("dir").Because(err)
	}
	models := circuit.Models(files)
	if len(models) == 0 {
		return nil, diag.Errorf(diag.NotFound, "--dir %s has no config.json", dir).For("dir")
	}
	return models, nil
}
