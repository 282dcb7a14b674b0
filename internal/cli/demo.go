// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"io/fs"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/weights"
	"github.com/metrale/metrale/models"
)

// demo names the model inside the binary, to every verb. A folder of that name is written ./demo, a repository demo@main.
const demo = "demo"

// openWeights opens what a verb calls its model: the built-in one, a folder or a file.
func openWeights(name string) (weights.Store, *weights.Files, error) {
	if name != demo {
		return weights.Open(name, weights.Options{})
	}
	if demoBytes() == 0 {
		return nil, nil, noDemo()
	}
	return weights.OpenFS(models.Demo(), demo)
}

// readSide reads what stands beside the weights of the built-in model or of a folder.
func readSide(name string) (*weights.Files, error) {
	if name != demo {
		return weights.Side(name)
	}
	if demoBytes() == 0 {
		return nil, noDemo()
	}
	return weights.SideFS(models.Demo(), demo)
}

// asPath makes a name mean the folder or file, though the built-in model has the same name.
func asPath(name string) string {
	if name == demo {
		return "./" + name
	}
	return name
}

// demoBytes is the size of the built-in model's weights; 0: this build has none.
func demoBytes() int64 {
	st, err := fs.Stat(models.Demo(), "model.safetensors")
	if err != nil {
		return 0
	}
	return st.Size()
}

func noDemo() error {
	return diag.Errorf(diag.NotFound, "this build carries no demo model: its source tree had no models/demo/model.safetensors").For("model")
}

// demoFormat is the word for how most of the built-in model's weights are stored.
func demoFormat() (string, error) {
	store, files, err := openWeights(demo)
	if err != nil {
		return "", err
	}
	defer store.Close()
	c := &checkpoint{store: store}
	if c.config, err = modelconf.Read(files.Side); err != nil {
		return "", err
	}
	return c.quant(), nil
}
