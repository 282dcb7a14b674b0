// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/weights"
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
models that the binary carries. In a folder, each config.json and owner--name_config.json is a model; folders of the Hugging Face
cache are understood.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lib, err := readLibrary()
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
			survey := circuit.Summaries(lib, models, circuit.Target{Class: class, Reads: weights.Reads})
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
	for i := range models {
		if models[i].Name == "." { // the folder itself
			models[i].Name = filepath.Base(filepath.Clean(dir))
		}
	}
	return models, nil
}

func newCircuitVennCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "venn <A> <B>",
		Short: "Compare two models: blocks, ops and nodes that both have, and that only one has",
		Long: `Compares the circuits of two models, parts included. A model is a config.json, a folder with one, a .gguf file, a model that
` + "`met circuit configs`" + ` lists, or a model_type. A node is shared if its block, name, op and features are the same; numbers may differ.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			lib, err := readLibrary()
			if err != nil {
				return err
			}
			var in [2]*circuit.Instance
			for i, arg := range args {
				cfg, err := findConfig(arg)
				if err == nil {
					in[i], err = circuit.Whole(lib, cfg)
				}
				if err != nil {
					return inFile(err, arg)
				}
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), circuit.Venn(args[0], args[1], in[0], in[1]))
			return err
		},
	}
}

// findConfig reads the config of a file, of a folder, of the built-in model, or one that is known by name.
func findConfig(name string) (*modelconf.Config, error) {
	st, err := os.Stat(name)
	switch {
	case name == demo || err == nil && st.IsDir():
		files, err := readSide(name)
		if err != nil {
			return nil, err
		}
		return modelconf.Read(files.Side)
	case err != nil:
		m, err := circuit.Known(kernels.FS, name)
		return m.Config, err
	case strings.HasSuffix(name, ".json"):
		return readConfig(name)
	}
	store, files, err := weights.Open(name, weights.Options{})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	if files.GGUF == nil {
		return modelconf.Read(files.Side)
	}
	return modelconf.FromGGUF(files.GGUF)
}

func newCircuitLabCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "lab",
		Short: "Measure the library: coverage, models as points, lines of TOML a model, duplicates, use of ops",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lib, err := readLibrary()
			if err != nil {
				return err
			}
			models, err := circuit.Published(kernels.FS)
			if err != nil {
				return err
			}
			text, err := circuit.Lab(lib, kernels.FS, circuit.Summaries(lib, models, circuit.Target{Class: "cpu", Reads: weights.Reads}))
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		},
	}
}
