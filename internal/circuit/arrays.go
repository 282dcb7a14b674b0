// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// What a node is given besides edges: attributes, weights and states.

// attr resolves an attribute; expr is how an axis named by it reads.
func (b *builder) attr(spec *attrSpec, given any) (a plan.Attr, expr string, err error) {
	a = plan.Attr{Name: spec.name, Kind: spec.kind}
	if given == nil {
		v, ok := spec.value()
		if !ok {
			return a, "", fmt.Errorf("attribute %s is not given", spec.name)
		}
		return v, spec.dflt, nil
	}
	switch v := given.(type) {
	case int64:
		if spec.kind == plan.FloatAttr {
			a.Float = float64(v)
			return a, "", nil
		}
		if spec.kind == plan.IntAttr {
			a.Int = v
			return a, strconv.Itoa(int(v)), nil
		}
	case float64:
		if spec.kind == plan.FloatAttr {
			a.Float = v
			return a, "", nil
		}
	case string:
		switch spec.kind {
		case plan.IntAttr:
			a.Int, err = tensor.Eval(v, b.at.dims)
			return a, v, err
		case plan.FloatAttr:
			a.Float, err = b.p.number(v, b.at)
			return a, "", err
		}
		if ref, ok := strings.CutPrefix(v, "$"); ok {
			if v = b.at.strings[ref]; v == "" {
				return a, "", fmt.Errorf("attribute %s: the config gives no %s", spec.name, ref)
			}
		}
		if !slices.Contains(spec.values, v) {
			return a, "", fmt.Errorf("attribute %s is %q; it is one of %s", spec.name, v, strings.Join(spec.values, ", "))
		}
		a.Str = v
		return a, "", nil
	}
	return a, "", fmt.Errorf("attribute %s cannot be %v", spec.name, given)
}

// weight adds a weight; -1 if it is optional and not there.
func (b *builder) weight(n *Node, p *port, decls map[string]WeightDecl) (int, error) {
	d, ok := decls[p.name]
	if ok {
		on, err := when(d.When, b.at.dims)
		if err != nil {
			return -1, err
		}
		ok = on
	}
	if !ok {
		return -1, nil
	}
	w := Weight{Name: n.ID + "." + p.name, DType: p.dtype, Split: plan.Replicated}
	for i, expr := range d.Axes {
		size, err := tensor.Eval(expr, b.at.dims)
		if err != nil {
			return -1, err
		}
		w.Axes = append(w.Axes, kernel.Axis{Name: expr, Size: size})
		if w.Split.Axis < 0 && d.Split != "" && mentions(expr, d.Split) {
			w.Split = plan.Split{Axis: i, Mesh: mesh(d.Split)}
		}
	}
	if d.Split != "" && w.Split.Axis < 0 {
		return -1, fmt.Errorf("no axis of %v is named by %s", d.Axes, d.Split)
	}
	for _, alt := range d.From {
		for _, bind := range b.binds {
			var names []string
			for _, name := range alt {
				name, err := b.fill(bind.Replace(name))
				if err == nil {
					name, err = b.piece(name)
				}
				if err != nil {
					return -1, err
				}
				names = append(names, name)
			}
			if !slices.ContainsFunc(w.From, func(form []string) bool { return slices.Equal(form, names) }) {
				w.From = append(w.From, names)
			}
		}
	}
	b.in.Weights = append(b.in.Weights, w)
	return len(b.in.Weights) - 1, nil
}

// piece evaluates the rows of a source, "tensor[lo:hi:of]", so that plan.ParsePiece reads it once {e} is filled in.
func (b *builder) piece(source string) (string, error) {
	if name, rows, ok := strings.Cut(source, "["); ok {
		exprs := strings.Split(strings.TrimSuffix(rows, "]"), ":")
		for i, expr := range exprs {
			v, err := tensor.Eval(expr, b.at.dims)
			if err != nil {
				return "", err
			}
			exprs[i] = strconv.Itoa(int(v))
		}
		source = name + "[" + strings.Join(exprs, ":") + "]"
	}
	_, err := plan.ParsePiece(strings.ReplaceAll(source, "{e}", "0"))
	return source, err
}

// mesh is the group of devices over which a dim is divided: experts have their own.
func mesh(dim string) string {
	if dim == "experts" {
		return "ep"
	}
	return "tp"
}

// state gives a state of the block, which several nodes may name.
func (b *builder) state(name string) (int, error) {
	if s, ok := b.states[name]; ok {
		return s, nil
	}
	if b.layer >= 0 && b.at.dims["shares"] != 0 {
		from := b.layerPrefix(b.p.keeper(b.layer)) + name
		if i := slices.IndexFunc(b.in.States, func(s plan.State) bool { return s.Name == from }); i >= 0 {
			return i, nil
		}
		return 0, fmt.Errorf("there is no state %s to share", from)
	}
	d := b.block.States[name]
	dtype, err := stateDType(d.DType, kvDType)
	if err != nil {
		return 0, err
	}
	s := plan.State{Name: b.prefix + name, DType: dtype, Split: plan.Replicated}
	if d.Kind == "slot" {
		s.Kind = plan.Slot
	}
	if d.Every != "" {
		if s.Every, err = tensor.Eval(d.Every, b.at.dims); err != nil {
			return 0, err
		}
		if s.Every == 1 {
			s.Every = 0
		}
	}
	for i, expr := range d.Axes {
		size, err := tensor.Eval(expr, b.at.dims)
		if err != nil {
			return 0, err
		}
		s.Axes = append(s.Axes, plan.Axis{Name: expr, Size: size})
		if d.Split != "" && s.Split.Axis < 0 && mentions(expr, d.Split) {
			s.Split = plan.Split{Axis: i, Mesh: mesh(d.Split)}
		}
	}
	b.in.States = append(b.in.States, s)
	b.states[name] = len(b.in.States) - 1
	return b.states[name], nil
}

// stateDType reads a state's element type; "kv" is the plan's.
func stateDType(name string, kv tensor.DType) (tensor.DType, error) {
	if name == "kv" {
		return kv, nil
	}
	d, ok := tensor.ParseDType(name)
	if !ok {
		return d, fmt.Errorf("%q is no element type and not kv", name)
	}
	return d, nil
}
