// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"io/fs"
	"maps"
	"slices"
	"strconv"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

// Tree is the kernel tree's manifests: every class, every target and every device model.
type Tree struct {
	Classes map[string]*Class
	Targets map[string]*Target // by name: the classes that are not abstract, and the leaves
	Devices map[string]*Device
}

// Family is one algorithm for one class of ops.
type Family struct {
	Name     string   `toml:"name"`
	Doc      string   `toml:"doc"`
	Ops      []string `toml:"ops"`     // circuit ops that it computes
	Compute  string   `toml:"compute"` // where the arithmetic runs: "simd", "scalar", "memory"
	Params   []Param  `toml:"params"`
	Numerics Numerics `toml:"numerics"`
}

// Param is a parameter of a family.
type Param struct {
	Name string `toml:"name"`
	Kind string `toml:"kind"` // runtime, compile, policy, numerics
	Doc  string `toml:"doc"`
}

// Numerics says in which order and precision a family computes. Equal records mean equal bytes.
type Numerics struct {
	Accumulate  string      `toml:"accumulate"`  // element type of sums
	Contraction string      `toml:"contraction"` // "fma": products are added unrounded; "none"; "either"
	Reductions  []Reduction `toml:"reductions"`
	Rounding    string      `toml:"rounding"` // where values are rounded to a narrower type, if anywhere
}

// Reduction is a sum over an axis, from the innermost level outwards.
type Reduction struct {
	Over   string   `toml:"over"`
	Levels []string `toml:"levels"` // "8 lanes, tree", "blocks of 32, in order"
}

// ArgKind tells where an argument comes from.
type ArgKind string

const (
	BufferArg ArgKind = "buffer"
	WeightArg ArgKind = "weight"
	ConstArg  ArgKind = "const"
	StateArg  ArgKind = "state"
	StepArg   ArgKind = "step"
	// ScratchArg is memory that the launch writes and reads and nobody else sees.
	ScratchArg ArgKind = "scratch"
)

// Arg is an argument of a kernel.
type Arg struct {
	Name     string   `toml:"name"`
	Kind     ArgKind  `toml:"kind"`   // buffer unless given
	Access   string   `toml:"access"` // in unless given; out, inout
	Shape    []string `toml:"shape"`  // of a state: of one token or slot
	DType    []string `toml:"dtype"`  // element types or names of formats; f32 unless given
	Layout   string   `toml:"layout"` // of a weight
	Alias    string   `toml:"alias"`  // of an output: the input whose memory it may take
	Optional bool     `toml:"optional"`
	Like     string   `toml:"like"` // another argument, whose element type this one has

	DTypes []tensor.DType `toml:"-"` // DType resolved
}

// Attr is a scalar that a launch passes.
type Attr struct {
	Name   string   `toml:"name"`
	Type   string   `toml:"type"` // int, float, str
	Values []string `toml:"values"`
}

// Kernel is what a launch names.
type Kernel struct {
	Name   string `toml:"name"`
	Family string `toml:"family"`
	Doc    string `toml:"doc"`
	Args   []Arg  `toml:"args"`
	Attrs  []Attr `toml:"attrs"`
	// Where are conditions on axes and integer attributes, as "K % 64 == 0"; a launch that breaks one is another kernel's.
	Where     []string   `toml:"where"`
	Launch    *Launch    `toml:"launch"`    // of classes with a driver
	Then      []*Launch  `toml:"then"`      // further launches, in order, that see what the ones before wrote
	Reference string     `toml:"reference"` // the cpu class's kernel of the same arrays and attributes that this one is held against
	Tolerance *Tolerance `toml:"tolerance"` // towards the reference
	// Many is the tolerance of launches of more than Many.Over rows, which the kernel takes otherwise.
	Many *Tolerance `toml:"tolerance_many"`

	file      *File
	at        string
	constants map[string]int64 // of the modules, as the class that declares the kernel has them
}

// ToleranceOf is that of a launch whose outputs have at most that many rows; nil: none is stated.
func (k *Kernel) ToleranceOf(rows int64) *Tolerance {
	if k.Many != nil && rows > k.Many.Over {
		return k.Many
	}
	return k.Tolerance
}

// Arg gives the argument of that name, or nil.
func (k *Kernel) Arg(name string) *Arg {
	for i := range k.Args {
		if k.Args[i].Name == name {
			return &k.Args[i]
		}
	}
	return nil
}

// Attr gives the attribute of that name, or nil.
func (k *Kernel) Attr(name string) *Attr {
	for i := range k.Attrs {
		if k.Attrs[i].Name == name {
			return &k.Attrs[i]
		}
	}
	return nil
}

// Load reads DEVICES.toml and every class folder (one with a HARDWARE.toml).
func Load(fsys fs.FS) (*Tree, error) {
	raw, err := readHardware(fsys)
	if err != nil {
		return nil, err
	}
	t := &Tree{Classes: map[string]*Class{}}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		if _, err := t.class(fsys, raw, name, nil); err != nil {
			return nil, err
		}
	}
	if err := t.checkReferences(); err != nil {
		return nil, err
	}
	if err := t.readTargets(fsys); err != nil {
		return nil, err
	}
	t.Devices, err = loadDevices(fsys)
	return t, err
}

func exists(fsys fs.FS, name string) bool {
	_, err := fs.Stat(fsys, name)
	return err == nil
}

// check fills defaults and refuses what no launch could satisfy.
func (k *Kernel) check(f *File, at string, formats map[string][]string) error {
	seen := map[string]bool{}
	for i := range k.Args {
		a := &k.Args[i]
		here := at + ".args." + strconv.Itoa(i)
		if a.Kind == "" {
			a.Kind = BufferArg
		}
		if a.Access == "" {
			if a.Access = "in"; a.Kind == ScratchArg {
				a.Access = "out"
			}
		}
		switch {
		case a.Name == "" || seen[a.Name]:
			return f.Errorf(here, "kernel %s: argument %q has no name of its own", k.Name, a.Name)
		case !slices.Contains([]ArgKind{BufferArg, WeightArg, ConstArg, StateArg, StepArg, ScratchArg}, a.Kind):
			return f.Errorf(here, "kernel %s: argument %s has kind %q; it is buffer, weight, const, state, step or scratch", k.Name, a.Name, a.Kind)
		case !slices.Contains([]string{"in", "out", "inout"}, a.Access):
			return f.Errorf(here, "kernel %s: argument %s has access %q; it is in, out or inout", k.Name, a.Name, a.Access)
		case a.Access != "in" && a.Kind != BufferArg && a.Kind != StateArg && a.Kind != ScratchArg:
			return f.Errorf(here, "kernel %s: a %s is never written", k.Name, a.Kind)
		case a.Kind != StepArg && len(a.Shape) == 0:
			return f.Errorf(here, "kernel %s: argument %s has no shape", k.Name, a.Name)
		}
		seen[a.Name] = true
		var err error
		if a.DTypes, err = dtypes(a.DType, formats); err != nil {
			return f.Errorf(here, "kernel %s, argument %s: %s", k.Name, a.Name, err)
		}
	}
	for i, a := range k.Args {
		if a.Like != "" && k.Arg(a.Like) == nil {
			return f.Errorf(at+".args."+strconv.Itoa(i), "kernel %s: argument %s is like %q, which is none", k.Name, a.Name, a.Like)
		}
		if in := k.Arg(a.Alias); a.Alias != "" && (in == nil || in.Kind != BufferArg || in.Access != "in" || a.Access != "out") {
			return f.Errorf(at+".args."+strconv.Itoa(i), "kernel %s: output %s cannot take the memory of %q", k.Name, a.Name, a.Alias)
		}
	}
	for i, a := range k.Attrs {
		if !slices.Contains([]string{"int", "float", "str"}, a.Type) || a.Name == "" {
			return f.Errorf(at+".attrs."+strconv.Itoa(i), "kernel %s: attribute %q has type %q; it is int, float or str", k.Name, a.Name, a.Type)
		}
	}
	k.file, k.at = f, at
	return k.checkLaunch()
}

// dtypes resolves element types; a name of formats stands for its list.
func dtypes(names []string, formats map[string][]string) ([]tensor.DType, error) {
	if len(names) == 0 {
		return []tensor.DType{tensor.F32}, nil
	}
	var out []tensor.DType
	for _, n := range names {
		list, ok := formats[n]
		if !ok {
			list = []string{n}
		}
		for _, l := range list {
			d, ok := tensor.ParseDType(l)
			if !ok {
				return nil, diag.Errorf(diag.Format, "%q is no element type and no entry of [formats]", l)
			}
			out = append(out, d)
		}
	}
	return out, nil
}
