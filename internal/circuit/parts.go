// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// A model may have parts beside its decoder, as a draft head or a vision tower. A circuit names them,
//
//	[part]
//	mtp = "qwen_mtp"                    kernels/circuits/parts/qwen_mtp.toml
//
// and each is laid out as the circuit is, of the same blocks, at the same point of the same config. It becomes an Instance and
// a plan of its own; values pass from part to part through ports.

// partFile is kernels/circuits/parts/<name>.toml.
type partFile struct {
	Doc  string   `toml:"doc"`
	When string   `toml:"when"` // the config has the part where this dim is not 0
	Own  []string `toml:"own"`  // tensors that no other part has; a checkpoint without any of them lacks the part
	Defaults
	Begin  []Use  `toml:"begin"`
	Layers Layers `toml:"layers"` // its kinds, and those of the decoder
	End    []Use  `toml:"end"`
}

// wanted is the dim that says in a circuit whether a part is to be served.
func wanted(part string) string { return "with_" + part }

// loadParts reads the parts that a circuit names.
func (c *Circuit) loadParts(fsys fs.FS) error {
	c.parts = map[string]*Circuit{}
	for _, name := range slices.Sorted(maps.Keys(c.Part)) {
		var doc partFile
		file := path.Join("circuits/parts", c.Part[name]+".toml")
		f, err := kernel.ReadTOML(fsys, file, &doc)
		if err != nil {
			return c.file.Errorf("part."+name, "part %s: %s", name, err)
		}
		p := &Circuit{Doc: doc.Doc, Defaults: doc.Defaults, Begin: doc.Begin, Layers: doc.Layers, End: doc.End, name: c.name, file: f, part: name, when: doc.When, own: doc.Own}
		if p.when == "" || len(p.own) == 0 {
			return f.Errorf("", "a part needs when and own")
		}
		kinds := maps.Clone(c.Layers.Kind)
		maps.Copy(kinds, p.Layers.Kind)
		p.Layers.Kind = kinds
		c.parts[name] = p
	}
	return nil
}

// inPart is the point of a part of the model: the same values, layers of its own.
func (p *point) inPart(c *Circuit, tree *modelconf.Node) (*point, error) {
	q := *p
	q.part = c.part
	if err := q.layerKinds(c, tree); err != nil {
		return nil, err
	}
	q.ofLayer = make([]*values, len(q.kinds))
	for i := range q.ofLayer {
		q.ofLayer[i] = newValues()
	}
	return &q, nil
}

// PartNames are the parts that a circuit has beside the decoder and the config describes.
func (in *Instance) PartNames() (names []string) {
	for _, x := range in.all()[1:] {
		names = append(names, x.Part)
	}
	return names
}

// InPart is the instance of a part, "" being the decoder; nil if the config does not describe it.
func (in *Instance) InPart(name string) *Instance {
	for _, x := range in.all() {
		if x.Part == name {
			return x
		}
	}
	return nil
}

// all are the decoder and the other parts of the model.
func (in *Instance) all() []*Instance {
	if in.root != nil {
		in = in.root
	}
	return append([]*Instance{in}, in.parts...)
}

// Stored says whether a checkpoint has tensors of the part's own.
func (in *Instance) Stored(cat Catalog) bool {
	if in.Part == "" {
		return true
	}
	prefix := in.all()[0].prefix(cat)
	return slices.ContainsFunc(cat.Names(), func(name string) bool { return in.owns(name, prefix) })
}

// owns says whether a tensor is one that only this part has.
func (in *Instance) owns(name, prefix string) bool {
	return slices.ContainsFunc(in.own, func(pattern string) bool { return wildcard(place(pattern, prefix, 0), name) })
}

// port is an edge that comes in from outside, or is left for it.
type portEdge struct {
	name string
	edge int
}

// PortDecl declares that an edge of a block is an array outside of the plan.
type PortDecl struct {
	Port string   `toml:"port"` // its name; {binds} and {dims} are filled in
	Axes []string `toml:"axes"` // of one that comes in: pool, rows or outs, then expressions
	When string   `toml:"when"`
}

// check refuses a port that no config could make right.
func (d *PortDecl) check(b *Block, at string, in bool) error {
	switch {
	case d.Port == "":
		return b.file.Errorf(at, "a port needs a name")
	case in != (len(d.Axes) == 2):
		return b.file.Errorf(at, "an input has two axes, an output those of its edge")
	case in && varying[d.Axes[0]] == 0:
		return b.file.Errorf(at, "the first axis is %q; it is pool, rows or outs", d.Axes[0])
	}
	return nil
}

// portName fills in binds and dims; "" where the port's condition does not hold.
func (b *builder) portName(d *PortDecl) (string, error) {
	if on, err := when(d.When, b.at.dims); err != nil || !on {
		return "", err
	}
	return b.fill(b.binds[0].Replace(d.Port))
}

// inputs binds the block's edges that come in through ports. A port that an earlier block named is the same edge.
func (b *builder) inputs() error {
	for _, name := range slices.Sorted(maps.Keys(b.block.Inputs)) {
		d, at := b.block.Inputs[name], "input."+name
		port, err := b.portName(&d)
		if err != nil {
			return b.block.file.Errorf(at, "%s", err)
		}
		if port == "" {
			continue
		}
		i := slices.IndexFunc(b.in.Inputs, func(p portEdge) bool { return p.name == port })
		if i < 0 {
			axes, err := b.portAxes(&d)
			if err != nil {
				return b.block.file.Errorf(at, "%s", err)
			}
			i = len(b.in.Inputs)
			b.in.Inputs = append(b.in.Inputs, portEdge{port, len(b.in.Edges)})
			b.in.Edges = append(b.in.Edges, Edge{Name: b.edgeName(port), Axes: axes, DType: tensor.F32, Split: plan.Replicated})
		}
		b.local[name] = b.in.Inputs[i].edge
	}
	return nil
}

// leave lists the block's edges that ports name.
func (b *builder) leave() error {
	for _, name := range slices.Sorted(maps.Keys(b.block.Outputs)) {
		d, at := b.block.Outputs[name], "output."+name
		port, err := b.portName(&d)
		if err != nil {
			return b.block.file.Errorf(at, "%s", err)
		}
		if port == "" {
			continue
		}
		e, ok := b.local[name]
		if !ok || slices.ContainsFunc(b.in.Outputs, func(p portEdge) bool { return p.name == port || p.edge == e }) {
			return b.block.file.Errorf(at, "port %s: edge %s is bound by no node at this config, or left twice", port, name)
		}
		b.in.Outputs = append(b.in.Outputs, portEdge{port, e})
	}
	return nil
}

// portAxes are those of an edge that comes in.
func (b *builder) portAxes(d *PortDecl) ([]kernel.Axis, error) {
	size, err := tensor.Eval(d.Axes[1], b.at.dims)
	return []kernel.Axis{{Name: d.Axes[0], Size: varying[d.Axes[0]]}, {Name: d.Axes[1], Size: size}}, err
}

// ownTensors fills in dims in the names of the part's own tensors.
func (b *builder) ownTensors() error {
	for _, name := range b.c.own {
		filled, err := b.fill(name)
		if err != nil {
			return b.c.file.Errorf("own", "%s: %s", strings.TrimSpace(name), err)
		}
		b.in.own = append(b.in.own, filled)
	}
	return nil
}
