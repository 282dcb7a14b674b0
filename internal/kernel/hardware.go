// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"cmp"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

// Vendors of devices; each has a compiler of its own.
const (
	AnyVendor = "any" // kernels are Go
	NVIDIA    = "nvidia"
	AMD       = "amd"
)

// archs is how a vendor writes the architecture that code is compiled for.
var archs = map[string]*regexp.Regexp{
	AnyVendor: regexp.MustCompile(`^$`),
	NVIDIA:    regexp.MustCompile(`^sm_\d{2,3}[af]?$`),
	AMD:       regexp.MustCompile(`^gfx[0-9a-f]{3,4}$`),
}

// Class is a hardware class with what it inherits already merged in. One without kernels cannot run plans yet.
type Class struct {
	Name     string
	Vendor   string
	Arch     string   // that its sources are compiled for: sm_90a, gfx1151; "" where kernels are Go
	Inherits string   // its parent, or ""
	Chain    []string // itself and its ancestors, nearest first
	Abstract bool     // only inherited from
	Partial  bool     // some ops have no kernel yet: circuits that need them are refused
	Build    Build
	Defaults Defaults
	Families map[string]*Family
	Kernels  map[string]*Kernel
	// Fusions are the class's rules, FUSIONS.toml and <folder>/FUSIONS.toml, then its ancestors'; circuit reads them.
	Fusions []string

	layers   []*Layer           // common/ of each class of the chain
	declared map[string]*Kernel // before constants stand for their values
}

// Build says how a class's sources are compiled.
type Build struct {
	Flags []string // of the compiler; an ancestor's come first
	// Ceilings of an entry whose manifest does not say; more fails the build.
	SpillBytes   int
	StaticShared *int // bytes; nil: none
	// Shared is what a block may have of shared memory on the device, in bytes, static ones included; 0: not known.
	Shared int64
}

// Defaults are a class's serving defaults.
type Defaults struct {
	KV       string `toml:"kv"`        // element type of paged K and V
	PageSize int64  `toml:"page_size"` // tokens in a KV page
}

// hardwareFile is a HARDWARE.toml.
type hardwareFile struct {
	Hardware struct {
		Class    string `toml:"class"`
		Vendor   string `toml:"vendor"`
		Arch     string `toml:"arch"`
		Inherits string `toml:"inherits"`
		Abstract bool   `toml:"abstract"`
		Partial  bool   `toml:"partial"`
	} `toml:"hardware"`
	Build struct {
		Flags        []string `toml:"flags"`
		SpillBytes   *int     `toml:"spill_bytes"`
		StaticShared *int     `toml:"static_shared"`
		Shared       int64    `toml:"shared"`
	} `toml:"build"`
	Defaults Defaults `toml:"defaults"`

	file *File
}

// readHardware reads every class folder's HARDWARE.toml, by class.
func readHardware(fsys fs.FS) (map[string]*hardwareFile, error) {
	files, err := fs.Glob(fsys, "*/HARDWARE.toml")
	if err != nil {
		return nil, diag.Errorf(diag.IO, "kernel tree: %w", err)
	}
	raw := map[string]*hardwareFile{}
	for _, name := range files {
		h := &hardwareFile{}
		if h.file, err = ReadTOML(fsys, name, h); err != nil {
			return nil, err
		}
		if want := path.Dir(name); h.Hardware.Class != want {
			return nil, h.file.Errorf("hardware.class", "class %q lies in folder %s", h.Hardware.Class, want)
		}
		arch := archs[h.Hardware.Vendor]
		switch {
		case arch == nil:
			return nil, h.file.Errorf("hardware.vendor", "vendor %q; it is %s, %s or %s", h.Hardware.Vendor, AnyVendor, NVIDIA, AMD)
		case h.Hardware.Arch == "" && !h.Hardware.Abstract && h.Hardware.Vendor != AnyVendor:
			return nil, h.file.Errorf("hardware", "class %s has no arch to compile for", h.Hardware.Class)
		case h.Hardware.Arch != "" && !arch.MatchString(h.Hardware.Arch):
			return nil, h.file.Errorf("hardware.arch", "%q is no architecture of vendor %s", h.Hardware.Arch, h.Hardware.Vendor)
		case h.Build.SpillBytes != nil && *h.Build.SpillBytes < 0:
			return nil, h.file.Errorf("build.spill_bytes", "a ceiling is not negative")
		case h.Build.StaticShared != nil && *h.Build.StaticShared < 0:
			return nil, h.file.Errorf("build.static_shared", "a ceiling is not negative")
		case h.Build.Shared < 0:
			return nil, h.file.Errorf("build.shared", "a device's limit is not negative")
		}
		raw[h.Hardware.Class] = h
	}
	return raw, nil
}

// class resolves a class after its parent.
func (t *Tree) class(fsys fs.FS, raw map[string]*hardwareFile, name string, below []string) (*Class, error) {
	if c, ok := t.Classes[name]; ok {
		return c, nil
	}
	h := raw[name]
	c := &Class{Name: name, Vendor: h.Hardware.Vendor, Arch: h.Hardware.Arch, Inherits: h.Hardware.Inherits, Chain: []string{name},
		Abstract: h.Hardware.Abstract, Partial: h.Hardware.Partial, Defaults: h.Defaults, Build: Build{Flags: h.Build.Flags, Shared: h.Build.Shared},
		Families: map[string]*Family{}, declared: map[string]*Kernel{}}
	common, err := readLayer(fsys, name+"/common", c.Vendor)
	if err != nil {
		return nil, err
	}
	c.layers = []*Layer{common}
	if c.Inherits != "" {
		if raw[c.Inherits] == nil {
			return nil, h.file.Errorf("hardware.inherits", "class %s inherits %q, which is no class", name, c.Inherits)
		}
		if slices.Contains(below, name) {
			return nil, h.file.Errorf("hardware.inherits", "class %s inherits itself", name)
		}
		parent, err := t.class(fsys, raw, c.Inherits, append(below, name))
		if err != nil {
			return nil, err
		}
		if parent.Vendor != c.Vendor {
			return nil, h.file.Errorf("hardware.vendor", "class %s of vendor %s inherits from %s of vendor %s", name, c.Vendor, parent.Name, parent.Vendor)
		}
		c.inherit(parent)
	}
	if h.Build.SpillBytes != nil {
		c.Build.SpillBytes = *h.Build.SpillBytes
	}
	if h.Build.StaticShared != nil {
		c.Build.StaticShared = h.Build.StaticShared
	}
	if err := c.readFamilies(fsys, name+"/common"); err != nil {
		return nil, err
	}
	var own []string
	for _, pattern := range []string{"/common/" + fusionsFile, "/common/*/" + fusionsFile} {
		names, err := fs.Glob(fsys, name+pattern)
		if err != nil {
			return nil, diag.Errorf(diag.IO, "kernel tree: %w", err)
		}
		own = append(own, names...)
	}
	c.Fusions = append(own, c.Fusions...)
	c.Kernels = c.kernels(c.layers)
	t.Classes[name] = c
	if len(c.Kernels) == 0 {
		return c, nil
	}
	if _, ok := tensor.ParseDType(c.Defaults.KV); !ok {
		return nil, h.file.Errorf("defaults.kv", "%q is no element type", c.Defaults.KV)
	}
	if c.Defaults.PageSize < 1 {
		return nil, h.file.Errorf("defaults.page_size", "a page needs at least one token")
	}
	return c, nil
}

// inherit takes over what the class does not say itself; its own manifests are read afterwards.
func (c *Class) inherit(parent *Class) {
	c.Chain = append(c.Chain, parent.Chain...)
	c.layers = append(c.layers, parent.layers...)
	maps.Copy(c.Families, parent.Families)
	maps.Copy(c.declared, parent.declared)
	c.Fusions = parent.Fusions
	c.Partial = c.Partial || parent.Partial
	c.Build = Build{Flags: slices.Concat(parent.Build.Flags, c.Build.Flags), SpillBytes: parent.Build.SpillBytes, StaticShared: parent.Build.StaticShared,
		Shared: cmp.Or(c.Build.Shared, parent.Build.Shared)}
	if c.Defaults.KV == "" {
		c.Defaults.KV = parent.Defaults.KV
	}
	if c.Defaults.PageSize == 0 {
		c.Defaults.PageSize = parent.Defaults.PageSize
	}
}

// kernels are the class's with the constants that the layers give their modules.
func (c *Class) kernels(layers []*Layer) map[string]*Kernel {
	out := map[string]*Kernel{}
	for name, k := range c.declared {
		out[name] = k
		if k.Launch != nil {
			out[name] = k.withConstants(k.constantsOf(layers))
		}
	}
	return out
}

// Ops are the circuit ops that the class's families compute, sorted.
func (c *Class) Ops() []string {
	set := map[string]bool{}
	for _, f := range c.Families {
		for _, op := range f.Ops {
			set[op] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}
