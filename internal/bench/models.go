// SPDX-License-Identifier: MIT OR Apache-2.0

package bench

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed models/*.json
var configs embed.FS

// Models are the names of the configurations that the package carries.
func Models() (names []string) {
	files, _ := fs.Glob(configs, "models/*.json")
	for _, f := range files {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(f, "models/"), ".json"))
	}
	return names
}

// Config is the config.json of one of Models.
func Config(name string) ([]byte, bool) {
	src, err := configs.ReadFile("models/" + name + ".json")
	return src, err == nil
}
