// SPDX-License-Identifier: MIT OR Apache-2.0

package bench

import (
	"bytes"
	"embed"
	"io/fs"
	"path"
	"slices"
	"strings"
)

//go:embed models/*.json models/quantised/*.json
var configs embed.FS

// Models are the names of the configurations that the package carries.
func Models() (names []string) {
	files, _ := fs.Glob(configs, "models/*.json")
	for _, f := range files {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(f, "models/"), ".json"))
	}
	return names
}

// Formats are the names of quantisations that Config adds.
func Formats() (names []string) {
	files, _ := fs.Glob(configs, "models/quantised/*.json")
	for _, f := range files {
		names = append(names, strings.TrimSuffix(path.Base(f), ".json"))
	}
	return names
}

// Config is the config.json of one of Models, or quantised, of a model's name, "-" and one of Formats.
func Config(name string) ([]byte, bool) {
	if src, err := configs.ReadFile("models/" + name + ".json"); err == nil {
		return src, true
	}
	at := max(0, strings.LastIndexByte(name, '-'))
	src, err := configs.ReadFile("models/" + name[:at] + ".json")
	quantised, missing := configs.ReadFile("models/quantised/" + strings.TrimPrefix(name[at:], "-") + ".json")
	if err != nil || missing != nil {
		return nil, false
	}
	keys := bytes.TrimSuffix(bytes.TrimSpace(src), []byte("}"))
	return slices.Concat(keys, []byte(`, "quantization_config": `), quantised, []byte("}")), true
}
