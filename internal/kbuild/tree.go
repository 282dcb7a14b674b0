// SPDX-License-Identifier: MIT OR Apache-2.0

package kbuild

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"

	"github.com/pelletier/go-toml/v2"

	"github.com/metrale/metrale/internal/diag"
)

// Hardware is a class's HARDWARE.toml, with what it inherits filled in.
type Hardware struct {
	Class, Vendor, Arch, Inherits string
	Abstract                      bool
	Flags                         []string
	SpillBytes                    int
}

// hardwareFile is the part of HARDWARE.toml that building reads; [defaults] belongs to serving.
type hardwareFile struct {
	Hardware struct {
		Class    string `toml:"class"`
		Vendor   string `toml:"vendor"`
		Arch     string `toml:"arch"`
		Inherits string `toml:"inherits"`
		Abstract bool   `toml:"abstract"`
	} `toml:"hardware"`
	Build struct {
		Flags      []string `toml:"flags"`
		SpillBytes int      `toml:"spill_bytes"`
	} `toml:"build"`
}

// ReadHardware reads a class and its ancestors below root. Flags of an ancestor come first.
func ReadHardware(root, class string) (*Hardware, error) {
	return readHardware(root, class, nil)
}

func readHardware(root, class string, seen []string) (*Hardware, error) {
	file := filepath.Join(root, class, "HARDWARE.toml")
	for _, s := range seen {
		if s == class {
			return nil, diag.Errorf(diag.Format, "class %s inherits from itself", class).At(diag.Pos{File: file})
		}
	}
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, diag.Errorf(diag.NotFound, "no hardware class %q: %s is missing", class, file).Because(err)
	}
	var f hardwareFile
	dec := toml.NewDecoder(bytes.NewReader(src))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return nil, tomlError(file, err)
	}
	h := &Hardware{Class: f.Hardware.Class, Vendor: f.Hardware.Vendor, Arch: f.Hardware.Arch, Inherits: f.Hardware.Inherits,
		Abstract: f.Hardware.Abstract, Flags: f.Build.Flags, SpillBytes: f.Build.SpillBytes}
	if h.Class != class {
		return nil, diag.Errorf(diag.Format, "class is %q, its folder %q", h.Class, class).At(diag.Pos{File: file})
	}
	if h.Inherits != "" {
		parent, err := readHardware(root, h.Inherits, append(seen, class))
		if err != nil {
			return nil, err
		}
		if parent.Vendor != h.Vendor {
			return nil, diag.Errorf(diag.Format, "vendor %q, but it inherits from %s of %q", h.Vendor, parent.Class, parent.Vendor).At(diag.Pos{File: file})
		}
		h.Flags = append(append([]string(nil), parent.Flags...), h.Flags...)
		if h.SpillBytes == 0 {
			h.SpillBytes = parent.SpillBytes
		}
	}
	if !h.Abstract && h.Vendor == "nvidia" && h.Arch == "" {
		return nil, diag.Errorf(diag.Format, "hardware.arch is missing").At(diag.Pos{File: file})
	}
	return h, nil
}

// tomlError gives a TOML fault its place.
func tomlError(file string, err error) error {
	var strict *toml.StrictMissingError
	var decode *toml.DecodeError
	switch {
	case errors.As(err, &strict) && len(strict.Errors) > 0:
		line, col := strict.Errors[0].Position()
		return diag.Errorf(diag.Format, "unknown key %q", path.Join(strict.Errors[0].Key()...)).At(diag.Pos{File: file, Line: line, Col: col})
	case errors.As(err, &decode):
		line, col := decode.Position()
		return diag.Errorf(diag.Format, "%s", decode.Error()).At(diag.Pos{File: file, Line: line, Col: col})
	}
	return diag.Errorf(diag.Format, "%w", err).At(diag.Pos{File: file})
}

// Source is one translation unit of a class.
type Source struct {
	Name string // "<family>.<stem>"
	Path string // below root, slashes
}

// Sources lists a class's translation units: its own and those it inherits, by name.
func Sources(root string, h *Hardware) ([]Source, error) {
	byName := map[string]Source{}
	for class := h.Class; class != ""; {
		dir := path.Join(class, "common")
		files, err := fs.Glob(os.DirFS(root), path.Join(dir, "*", "*.cu"))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			stem := path.Base(f)
			name := path.Base(path.Dir(f)) + "." + stem[:len(stem)-len(".cu")]
			if _, hidden := byName[name]; !hidden {
				byName[name] = Source{name, f}
			}
		}
		up, err := ReadHardware(root, class)
		if err != nil {
			return nil, err
		}
		class = up.Inherits
	}
	list := make([]Source, 0, len(byName))
	for _, s := range byName {
		list = append(list, s)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list, nil
}
