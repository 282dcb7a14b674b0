// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// point is a checkpoint's place in the space that a circuit spans: what its config.json says, classified.
type point struct {
	variant *Variant
	part    string             // of the model
	values                     // of the whole model
	kinds   [][]string         // of each layer, one word of each part
	ofKind  map[string]*values // what differs in layers of a kind
	ofLayer []*values          // what differs in one layer
	consts  []plan.Const
	formula map[string]string          // params that the circuit computes, where the config gives none
	ropeAt  map[string]*modelconf.Node // keys that rope.go reads

	lists    []placedNode // of kinds and layer numbers
	perLayer []placedNode
	pending  []pendingDim
}

// pendingDim waits for the dims that its expression names.
type pendingDim struct {
	name, expr string
	fail       func(error) error
}

// classify reads a config by its variant's map.
func classify(v *Variant, cfg *modelconf.Config) (*point, error) {
	p := &point{variant: v, values: *newValues(), ofKind: map[string]*values{}, formula: v.mapped().circuit.all.Params, ropeAt: map[string]*modelconf.Node{}}
	tree := cfg.Tree
	if v.Wraps != "" {
		inner, _ := tree.Child(v.Wraps)
		if err := p.keys(v, tree, "", v.Wraps); err != nil {
			return nil, err
		}
		tree = inner
	}
	m := v.mapped()
	if err := p.keys(m, tree, "", ""); err != nil {
		return nil, err
	}
	if err := p.defaults(m, tree); err != nil {
		return nil, err
	}
	if v != m {
		if err := p.defaults(v, cfg.Tree); err != nil {
			return nil, err
		}
	}
	for _, more := range []struct {
		dims   map[string]string
		errorf func(at, format string, args ...any) error
	}{{v.Dims, v.errorf}, {m.Dims, m.errorf}, {m.circuit.all.Dims, m.circuit.errorf}} {
		for _, name := range slices.Sorted(maps.Keys(more.dims)) {
			p.pend(name, more.dims[name], func(err error) error { return more.errorf("dims."+name, "dim %s: %s", name, err) })
		}
	}
	for name, s := range m.circuit.all.Strings {
		if _, ok := p.strings[name]; !ok {
			p.strings[name] = s
		}
	}
	_ = p.settle() // some dims may wait for those of the rotation
	if err := p.layers(m, tree); err != nil {
		return nil, err
	}
	if err := p.rope(m, tree); err != nil {
		return nil, err
	}
	if err := p.axialRope(cfg.Tree); err != nil {
		return nil, err
	}
	if err := p.settle(); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(p.formula)) {
		if _, err := p.number(name, &p.values); err != nil {
			return nil, m.circuit.errorf("params."+name, "param %s: %s", name, err)
		}
	}
	return p, nil
}

// refuse is an error about a value that is well-formed and not supported.
func refuse(n *modelconf.Node, format string, args ...any) *diag.Error {
	e := n.Errorf(format, args...)
	e.Code = diag.Unsupported
	return e
}

func (p *point) missing(tree *modelconf.Node, key string) error {
	return tree.Errorf("key %s is missing; model_type %s needs it", join(tree.Path(), key), p.variant.ModelType)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// keys classifies each key of an object whose own key is within (with a dot), or of the config; skip is the key of a wrapped
// decoder.
func (p *point) keys(v *Variant, tree *modelconf.Node, within, skip string) error {
	if tree.Kind() != modelconf.Object {
		return tree.Errorf("%s is %s; a config must be an object", tree.Path(), tree.Kind())
	}
	for i, name := range tree.Keys() {
		n := tree.Items()[i]
		if name == skip && skip != "" {
			continue
		}
		name = within + name
		k, ok := v.keys[name]
		if !ok && v.hasWithin(name+".") {
			if n.IsNull() {
				continue
			}
			if err := p.keys(v, n, name+".", ""); err != nil {
				return err
			}
			continue
		}
		if !ok {
			return refuse(n, "key %s is not known for model_type %s: what it changes is not supported", n.Path(), p.variant.ModelType)
		}
		if err := p.key(k, n); err != nil {
			return err
		}
	}
	return nil
}

// key takes one value.
func (p *point) key(k placedKey, n *modelconf.Node) error {
	null := n.IsNull()
	switch {
	case k.Ignore != "" || k.Quant:
		return nil
	case k.Rope:
		if !null {
			p.ropeAt[k.name] = n
		}
		return nil
	case k.Accept != nil:
		if null || accepts(k.Accept, n) {
			return nil
		}
		return refuse(n, "%s is %s; supported is %s (%s)", n.Path(), literal(n), listed(k.Accept), k.Why)
	case null && k.Null != nil && k.Dim != "":
		return p.kindValues(k.Of).set(k.Dim, *k.Null, n)
	case null && k.Null != nil && k.Param != "":
		p.kindValues(k.Of).params[k.Param] = float64(*k.Null)
		return nil
	case null:
		return nil // as if absent
	case k.Kinds != nil, k.Layers != "":
		p.lists = append(p.lists, placedNode{k, n})
		if k.Count != "" {
			p.dims[k.Count] = int64(n.Len())
		}
		return k.checkKinds(n)
	case k.PerLayer, k.Each:
		p.perLayer = append(p.perLayer, placedNode{k, n})
	case k.Variant != "":
		s, ok := n.Str()
		if _, truth := n.Bool(); truth {
			s, ok = n.Literal(), true
		}
		ours, known := k.Allow[s]
		if !ok || !known {
			return refuse(n, "%s is %s; supported is %s", n.Path(), literal(n), strings.Join(slices.Sorted(maps.Keys(k.Allow)), ", "))
		}
		p.strings[k.Variant] = ours
	default:
		return p.kindValues(k.Of).read(k, n)
	}
	return nil
}

// read takes a dim, switch or param.
func (v *values) read(k placedKey, n *modelconf.Node) error {
	switch {
	case k.Dim != "":
		x, ok := n.Int()
		lo, hi := int64(1), int64(1)<<31
		if k.Min != nil {
			lo = *k.Min
		}
		if k.Max != nil {
			hi = *k.Max
		}
		if !ok || x < lo || x > hi {
			return n.Errorf("%s is %s; it must be an integer from %d to %d", n.Path(), literal(n), lo, hi)
		}
		return v.set(k.Dim, x, n)
	case k.Switch != "":
		x, ok := n.Bool()
		if !ok {
			return n.Errorf("%s is %s; it must be true or false", n.Path(), literal(n))
		}
		for _, name := range append([]string{k.Switch}, k.Also...) {
			if err := v.set(name, truth(x), n); err != nil {
				return err
			}
		}
	case k.Param != "":
		x, ok := n.Float()
		if !ok || math.IsNaN(x) || math.IsInf(x, 0) {
			return n.Errorf("%s is %s; it must be a number", n.Path(), literal(n))
		}
		v.params[k.Param] = x
		for _, name := range k.Also {
			if err := v.set(name, truth(x != 0), n); err != nil {
				return err
			}
		}
	}
	return nil
}

// set gives a dim its value. What stands around a wrapped decoder was read first and stays.
func (v *values) set(dim string, x int64, n *modelconf.Node) error {
	if _, ok := v.dims[dim]; !ok {
		v.dims[dim], v.where[dim] = x, n
	} else if at := v.where[dim]; at.Key() != n.Key() && v.dims[dim] != x {
		return n.Errorf("%s is %s, but %s is %s", n.Path(), literal(n), at.Path(), literal(at)).Note(at.Pos(), "%s stands here", at.Path())
	}
	return nil
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func literal(n *modelconf.Node) string {
	switch n.Kind() {
	case modelconf.Array, modelconf.Object:
		return n.Kind().String()
	case modelconf.String:
		return strconv.Quote(n.Literal())
	}
	return n.Literal()
}

// accepts says whether a value is in an accept list, or is a list of such. TOML's values are int64, float64, bool, string or
// a list of them.
func accepts(list []any, n *modelconf.Node) bool {
	if n.Kind() == modelconf.Array && n.Len() > 0 && !slices.ContainsFunc(n.Items(), func(e *modelconf.Node) bool { return !accepts(list, e) }) {
		return true
	}
	return slices.ContainsFunc(list, func(want any) bool { return isValue(want, n) })
}

func isValue(want any, n *modelconf.Node) bool {
	switch w := want.(type) {
	case bool:
		v, ok := n.Bool()
		return ok && v == w
	case int64:
		v, ok := n.Float()
		return ok && v == float64(w)
	case float64:
		v, ok := n.Float()
		return ok && v == w
	case string:
		v, ok := n.Str()
		return ok && v == w
	case []any:
		if n.Kind() != modelconf.Array || n.Len() != len(w) {
			return false
		}
		for i, e := range n.Items() {
			if !isValue(w[i], e) {
				return false
			}
		}
		return true
	}
	return false
}

func listed(list []any) string {
	var s []string
	for _, v := range list {
		if inner, ok := v.([]any); ok {
			s = append(s, "["+strings.ReplaceAll(listed(inner), " or ", ", ")+"]")
		} else {
			s = append(s, fmt.Sprintf("%#v", v))
		}
	}
	return strings.Join(s, " or ")
}

// defaults fills in keys that the config does not have.
func (p *point) defaults(v *Variant, tree *modelconf.Node) error {
	p.countLayers(v.circuit.Layers.Count)
	for _, spelling := range slices.Sorted(maps.Keys(v.keys)) {
		k := v.keys[spelling]
		if k.name != spelling || k.Of != "" {
			continue
		}
		at := func(format string, args ...any) error {
			return k.file.Errorf(k.at, "key %s: "+format, append([]any{k.name}, args...)...)
		}
		switch {
		case k.Must && !k.given(tree):
			return p.missing(tree, k.name)
		case k.Layers != "" && k.Count != "":
			if _, ok := p.dims[k.Count]; !ok {
				return p.missing(tree, k.name)
			}
		case k.Dim != "":
			if _, ok := p.dims[k.Dim]; ok {
				continue
			}
			if k.Default == nil {
				return p.missing(tree, k.name)
			}
			p.pend(k.Dim, fmt.Sprint(k.Default), func(err error) error {
				return tree.Errorf("key %s is missing, and its default %v cannot be taken: %s", join(tree.Path(), k.name), k.Default, err)
			})
		case k.Switch != "":
			b, ok := k.Default.(bool)
			if !ok {
				return at("a switch needs a default")
			}
			for _, name := range append([]string{k.Switch}, k.Also...) {
				if _, ok := p.dims[name]; !ok {
					p.dims[name] = truth(b)
				}
			}
		case k.Param != "":
			if _, ok := p.params[k.Param]; ok {
				continue
			}
			f, ok := k.Default.(float64)
			if !ok {
				return p.missing(tree, k.name)
			}
			p.params[k.Param] = f
			for _, name := range k.Also {
				p.dims[name] = truth(f != 0)
			}
		case k.Variant != "":
			if _, ok := p.strings[k.Variant]; ok {
				continue
			}
			s, _ := k.Default.(string)
			if p.strings[k.Variant], _ = k.Allow[s]; p.strings[k.Variant] == "" {
				return p.missing(tree, k.name)
			}
		}
	}
	return p.settle()
}

// given says whether a config has the key, by any of its spellings.
func (k *placedKey) given(tree *modelconf.Node) bool {
	return slices.ContainsFunc(append([]string{k.name}, k.Alias...), func(name string) bool {
		n, ok := tree.Get(name)
		return ok && !n.IsNull()
	})
}

// pend sets a dim to an expression, unless it is set already.
func (p *point) pend(name, expr string, fail func(error) error) {
	if _, ok := p.dims[name]; ok {
		return
	}
	if slices.ContainsFunc(p.pending, func(d pendingDim) bool { return d.name == name }) {
		return
	}
	p.pending = append(p.pending, pendingDim{name, expr, fail})
}

// settle evaluates pending dims until none can be.
func (p *point) settle() error {
	for len(p.pending) > 0 {
		var last error
		rest := p.pending[:0:0]
		for _, d := range p.pending {
			v, err := tensor.Eval(d.expr, p.dims)
			if err != nil {
				last = d.fail(err)
				rest = append(rest, d)
				continue
			}
			p.dims[d.name] = v
		}
		if len(rest) == len(p.pending) {
			return last
		}
		p.pending = rest
	}
	return nil
}

// cutProduct parts "a*b" at a * outside parentheses.
func cutProduct(text string) (a, b string, ok bool) {
	depth := 0
	for i, c := range text {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == '*' && depth == 0:
			return text[:i], text[i+1:], true
		}
	}
	return "", "", false
}

// number reads a float at a place: a literal, a param of the config or the circuit, sqrt(dims), rsqrt(dims) = dims^-½, or a
// product of such.
func (p *point) number(text string, at *values) (float64, error) {
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		return f, nil
	}
	if f, ok := at.params[text]; ok {
		return f, nil
	}
	if a, b, ok := cutProduct(text); ok {
		x, err := p.number(a, at)
		if err != nil {
			return 0, err
		}
		y, err := p.number(b, at)
		return x * y, err
	}
	if formula, ok := p.formula[text]; ok && formula != text {
		return p.number(formula, at)
	}
	for name, power := range map[string]float64{"sqrt(": 0.5, "rsqrt(": -0.5} {
		if expr, ok := strings.CutPrefix(text, name); ok && strings.HasSuffix(expr, ")") {
			v, err := tensor.Eval(strings.TrimSuffix(expr, ")"), at.dims)
			if err != nil {
				return 0, err
			}
			return math.Pow(float64(v), power), nil
		}
	}
	return 0, fmt.Errorf("%q is no number, no param and no sqrt(dims) or rsqrt(dims)", text)
}
