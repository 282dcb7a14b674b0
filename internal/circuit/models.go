// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/modelconf"
)

// Model is a config.json with what stands beside it.
type Model struct {
	Name   string // as on the hub
	Config *modelconf.Config
	Err    error // of reading it
}

// ModelType is the config's, "" if it could not be read.
func (m *Model) ModelType() string {
	if m.Config == nil {
		return ""
	}
	return m.Config.ModelType
}

// Files of the kernel tree that hold known configs.
const (
	publishedConfigs = "circuits/configs/published.tar.gz" // of the hub: owner--name_config.json, owner--name_hf_quant_config.json
	smallConfigs     = "circuits/configs/*.json"           // of the reference checkpoints
)

// Published are the configs of real models that the kernel tree holds.
func Published(fsys fs.FS) ([]Model, error) {
	src, err := fs.ReadFile(fsys, publishedConfigs)
	if err != nil {
		return nil, kernel.Unread(publishedConfigs, err)
	}
	z, err := gzip.NewReader(bytes.NewReader(src))
	if err != nil {
		return nil, diag.Errorf(diag.Format, "%s: %s", publishedConfigs, err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return Models(files), nil
		}
		if err != nil {
			return nil, diag.Errorf(diag.Format, "%s: %s", publishedConfigs, err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			return nil, diag.Errorf(diag.Format, "%s: %s", publishedConfigs, err)
		}
	}
}

// Small are the configs of the reference checkpoints, named after their families.
func Small(fsys fs.FS) ([]Model, error) {
	var out []Model
	for _, file := range glob(fsys, smallConfigs) {
		src, err := fs.ReadFile(fsys, file)
		if err != nil {
			return nil, err
		}
		m := Model{Name: strings.TrimSuffix(path.Base(file), ".json")}
		m.Config, m.Err = modelconf.Read(map[string][]byte{"config.json": src})
		out = append(out, m)
	}
	return out, nil
}

// Known finds a config that the kernel tree holds by what the model is called, or the first one of a model_type; reference
// checkpoints come before published models.
func Known(fsys fs.FS, name string) (Model, error) {
	for _, read := range []func(fs.FS) ([]Model, error){Small, Published} {
		models, err := read(fsys)
		if err != nil {
			return Model{}, err
		}
		for _, is := range []func(Model) bool{
			func(m Model) bool { return m.Name == name },
			func(m Model) bool { return m.ModelType() == name },
		} {
			if i := slices.IndexFunc(models, is); i >= 0 {
				return models[i], models[i].Err
			}
		}
	}
	return Model{}, diag.Errorf(diag.NotFound, "%s is no file, and no config of that name or model_type is known (met circuit configs lists published ones)", name)
}

// Models makes models of files by path: each config.json and owner--name_config.json is one, with the hf_quant_config.json
// beside it. They are sorted by name.
func Models(files map[string][]byte) []Model {
	const config, quant = "config.json", "hf_quant_config.json"
	var out []Model
	for file, src := range files {
		stem, ok := strings.CutSuffix(file, config)
		if last := path.Base("/" + stem); !ok || strings.HasSuffix(file, quant) || !strings.HasSuffix("/"+stem, "/") && !strings.Contains(last, "--") {
			continue // generation_config.json and others are no models
		}
		m := Model{Name: modelName(stem)}
		beside := map[string][]byte{config: src}
		if q, ok := files[stem+quant]; ok {
			beside[quant] = q
		}
		m.Config, m.Err = modelconf.Read(beside)
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Model) int {
		return cmp.Or(strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)), strings.Compare(a.Name, b.Name))
	})
	return out
}

// modelName reads the name off a path: "…/models--owner--name/snapshots/…/", "owner--name_", or the folder.
// Owners have no "--" in their names; models may.
func modelName(stem string) string {
	stem = strings.Trim(stem, "/_")
	for dir := range strings.SplitSeq(stem, "/") {
		if id, ok := strings.CutPrefix(dir, "models--"); ok {
			return strings.Replace(id, "--", "/", 1)
		}
	}
	if base := path.Base(stem); strings.Contains(base, "--") {
		return strings.Replace(base, "--", "/", 1)
	}
	return path.Clean(stem)
}
