// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/tensor"
)

// Layers may differ from the model. What holds at a place is looked up from the inside out:
//
//	layer    a list with an entry per layer, or an object of the layer's number      keys with each; per_layer
//	kind     the layer's kinds, each of another part                                 keys with of; tables of rotations
//	model    everything else
//
// A per-layer dim that is the same in all layers of a kind is also the kind's, so that what is made once for a kind (its
// rotation, above all) follows it.

// values are dims, params and tables that hold somewhere.
type values struct {
	dims    map[string]int64
	params  map[string]float64
	strings map[string]string
	tables  map[string]int // index into point.consts
	where   map[string]*modelconf.Node
}

func newValues() *values {
	return &values{dims: map[string]int64{}, params: map[string]float64{}, strings: map[string]string{}, tables: map[string]int{},
		where: map[string]*modelconf.Node{}}
}

// over is a copy of v with more put over it.
func (v *values) over(more ...*values) *values {
	out := &values{dims: maps.Clone(v.dims), params: maps.Clone(v.params), strings: maps.Clone(v.strings), tables: maps.Clone(v.tables)}
	for _, m := range more {
		maps.Copy(out.dims, m.dims)
		maps.Copy(out.params, m.params)
		maps.Copy(out.strings, m.strings)
		maps.Copy(out.tables, m.tables)
	}
	return out
}

// kindValues are what differs for a kind; an empty name is the model.
func (p *point) kindValues(kind string) *values {
	if kind == "" {
		return &p.values
	}
	if p.ofKind[kind] == nil {
		p.ofKind[kind] = newValues()
	}
	return p.ofKind[kind]
}

// inKind is what holds for layers of a kind.
func (p *point) inKind(kind string) *values { return p.values.over(p.kindValues(kind)) }

// inLayer is what holds in a layer. Its number is the dim "layer".
func (p *point) inLayer(i int) *values {
	var more []*values
	for _, kind := range p.kinds[i] {
		more = append(more, p.kindValues(kind))
	}
	v := p.values.over(append(more, p.ofLayer[i])...)
	v.dims["layer"] = int64(i)
	return v
}

// occurs says whether some layer is of a kind.
func (p *point) occurs(kind string) bool {
	return slices.ContainsFunc(p.kinds, func(k []string) bool { return slices.Contains(k, kind) })
}

// placedNode is a value of the config that waits until the number of layers is known.
type placedNode struct {
	key placedKey
	n   *modelconf.Node
}

// layers decides what each layer is and what holds in it.
func (p *point) layers(v *Variant, tree *modelconf.Node) error {
	if err := p.layerKinds(v.circuit, tree); err != nil {
		return err
	}
	p.ofLayer = make([]*values, len(p.kinds))
	for i := range p.ofLayer {
		p.ofLayer[i] = newValues()
	}
	for _, x := range p.perLayer {
		var err error
		if x.key.PerLayer {
			err = p.objects(v, x.n)
		} else {
			err = p.each(x)
		}
		if err != nil {
			return err
		}
	}
	p.lift()
	if err := p.kindDefaults(v, tree); err != nil {
		return err
	}
	return p.share(v.circuit, tree)
}

// share marks the layers that keep no state.
func (p *point) share(c *Circuit, tree *modelconf.Node) error {
	if c.Layers.Sharing == "" {
		return nil
	}
	p.dims["shares"] = 0
	n, err := tensor.Eval(c.Layers.Sharing, p.dims)
	if err != nil {
		return c.file.Errorf("layers.sharing", "%s", err)
	}
	for i := len(p.kinds) - int(n); i < len(p.kinds); i++ {
		if i < 0 || p.keeper(i) < 0 {
			return tree.Errorf("layer %d keeps no state, and no layer before those that keep none is like it", max(i, 0))
		}
		p.ofLayer[i].dims["shares"] = 1
	}
	return nil
}

// keeper is the layer whose states layer i reads: the last like it that keeps its own, -1 if there is none.
func (p *point) keeper(i int) int {
	for j := i; j >= 0; j-- {
		if p.ofLayer[j].dims["shares"] == 0 && j < i && slices.Equal(p.kinds[i], p.kinds[j]) {
			return j
		}
	}
	return -1
}

// each reads a list with a value for each layer.
func (p *point) each(x placedNode) error {
	if x.n.Kind() != modelconf.Array {
		return x.n.Errorf("%s is %s; it must be a list with an entry for each layer", x.n.Path(), x.n.Kind())
	}
	if err := x.fits(x.n.Len(), len(p.kinds)); err != nil {
		return err
	}
	for i, v := range p.ofLayer {
		if e := x.n.Items()[i]; !e.IsNull() {
			if err := v.read(x.key, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// objects reads an object: layer number → keys that differ there.
func (p *point) objects(v *Variant, n *modelconf.Node) error {
	if n.Kind() != modelconf.Object {
		return n.Errorf("%s is %s; it must be an object of layer numbers", n.Path(), n.Kind())
	}
	for i, number := range n.Keys() {
		at := n.Items()[i]
		layer, err := strconv.Atoi(number)
		if err != nil || layer < 0 || layer >= len(p.ofLayer) || at.Kind() != modelconf.Object {
			return at.Errorf("%s must be an object, named by a layer from 0 to %d", at.Path(), len(p.ofLayer)-1)
		}
		for j, name := range at.Keys() {
			e := at.Items()[j]
			k, ok := v.keys[name]
			if !ok || k.Dim == "" && k.Switch == "" && k.Param == "" || k.Of != "" || k.Each {
				return refuse(e, "key %s cannot differ from layer to layer for model_type %s", e.Path(), v.ModelType)
			}
			if e.IsNull() {
				continue
			}
			if err := p.ofLayer[layer].read(k, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// lift makes per-layer dims that are one number in all layers of a kind the kind's.
func (p *point) lift() {
	sizes := map[string]map[int64]bool{} // kind, dim → what its layers have
	differ := map[string]bool{}
	for _, v := range p.ofLayer {
		for dim := range v.dims {
			differ[dim] = true
		}
	}
	for i := range p.ofLayer {
		dims := p.inLayer(i).dims
		for dim := range differ {
			for _, kind := range p.kinds[i] {
				if sizes[kind+"\x00"+dim] == nil {
					sizes[kind+"\x00"+dim] = map[int64]bool{}
				}
				sizes[kind+"\x00"+dim][dims[dim]] = true
			}
		}
	}
	for at, set := range sizes {
		kind, dim, _ := strings.Cut(at, "\x00")
		for size := range set {
			if len(set) == 1 {
				p.kindValues(kind).dims[dim] = size
			}
		}
	}
}

// kindDefaults fills in what the config does not say of a kind that occurs.
func (p *point) kindDefaults(v *Variant, tree *modelconf.Node) error {
	for _, spelling := range slices.Sorted(maps.Keys(v.keys)) {
		k := v.keys[spelling]
		if k.Of == "" || k.name != spelling || !p.occurs(k.Of) {
			continue
		}
		into := p.kindValues(k.Of)
		switch d := k.Default.(type) {
		case nil:
			_, dim := into.dims[k.Dim+k.Switch]
			_, param := into.params[k.Param]
			if !dim && !param {
				return p.missing(tree, k.name)
			}
		case bool:
			for _, name := range append([]string{k.Switch}, k.Also...) {
				if _, ok := into.dims[name]; !ok {
					into.dims[name] = truth(d)
				}
			}
		case float64:
			if _, ok := into.params[k.Param]; !ok {
				into.params[k.Param] = d
			}
		case string:
			if _, ok := into.dims[k.Dim]; ok {
				continue
			}
			n, err := tensor.Eval(d, p.inKind(k.Of).dims)
			if err != nil {
				return tree.Errorf("key %s is missing, and its default %s cannot be taken: %s", join(tree.Path(), k.name), d, err)
			}
			into.dims[k.Dim] = n
		}
	}
	return nil
}
