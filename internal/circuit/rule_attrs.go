// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"maps"
	"slices"

	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// attrName is the attribute of the kernel that an op's attribute gives; "" if the line says otherwise or the kernel has none.
func (p *patternNode) attrName(k *kernel.Kernel, attr string) string {
	name, ok := p.attrs[attr]
	if !ok {
		name = attr
	}
	if k.Attr(name) == nil {
		return ""
	}
	return name
}

// demand is what a line wants of an attribute that it does not give to the kernel: "-" its default, else a word or expression.
func (p *patternNode) demand(attr string) string {
	if v, ok := p.attrs[attr]; ok {
		return v
	}
	return "-"
}

// checkAttrs makes sure that every attribute of the kernel has one source and that demands can be met.
func (r *Rule) checkAttrs(nodes []patternNode) error {
	for _, name := range slices.Sorted(maps.Keys(r.Attrs)) {
		if _, ok := r.constant(name); !ok {
			return fmt.Errorf("attrs: kernel %s has no attribute %s of that type", r.Kernel, name)
		}
	}
	for _, a := range r.kernel.Attrs {
		_, ok := r.Attrs[a.Name]
		ok = ok || r.Repeat != nil && r.Repeat.Count == a.Name
		for _, n := range nodes {
			for _, x := range n.op.attrs {
				ok = ok || n.attrName(r.kernel, x.name) == a.Name
			}
		}
		if !ok {
			return fmt.Errorf("attribute %s of kernel %s is an attribute of no op", a.Name, r.Kernel)
		}
	}
	for _, n := range nodes {
		for _, name := range slices.Sorted(maps.Keys(n.attrs)) {
			v, a := n.attrs[name], n.op.attr(name)
			if v == "-" || n.attrName(r.kernel, name) != "" {
				continue
			}
			switch a.kind {
			case plan.StrAttr:
				if !slices.Contains(a.values, v) {
					return fmt.Errorf("attribute %s of %s is never %s", name, n.op.Name, v)
				}
			case plan.IntAttr:
				if err := r.kernel.CheckExpr(v); err != nil {
					return err
				}
				r.demands = true
			default:
				return fmt.Errorf("attribute %s of %s: kernel %s has no attribute %s", name, n.op.Name, r.Kernel, v)
			}
		}
	}
	return nil
}

// constant is what the rule's attrs give for an attribute of the kernel.
func (r *Rule) constant(name string) (plan.Attr, bool) {
	out, a := plan.Attr{Name: name}, r.kernel.Attr(name)
	if a == nil {
		return out, false
	}
	switch v := r.Attrs[name].(type) {
	case int64:
		if out.Kind, out.Int = plan.IntAttr, v; a.Type == "float" {
			out.Kind, out.Int, out.Float = plan.FloatAttr, 0, float64(v)
		}
		return out, a.Type != "str"
	case float64:
		out.Kind, out.Float = plan.FloatAttr, v
		return out, a.Type == "float"
	case string:
		out.Kind, out.Str = plan.StrAttr, v
		return out, a.Type == "str"
	}
	return out, false
}

// lines are the pattern's lines for a group of that many nodes.
func (r *Rule) lines(nodes int) []patternNode { return r.patterns[nodes/len(r.Match)] }

// launchAttrs are the kernel's attributes; nodes are in the order of the pattern. It is not ok if ops disagree, if the kernel
// does not take a value, or if an op's attribute is not what its line demands; integers are left to demands.
func launchAttrs(r *Rule, in *Instance, nodes []int) ([]plan.Attr, bool) {
	lines := r.lines(len(nodes))
	var out []plan.Attr
	for _, ka := range r.kernel.Attrs {
		if r.Repeat != nil && r.Repeat.Count == ka.Name {
			out = append(out, plan.Attr{Name: ka.Name, Kind: plan.IntAttr, Int: int64(len(nodes))})
			continue
		}
		got, ok := r.constant(ka.Name)
		for i, n := range nodes {
			for _, a := range in.Nodes[n].Attrs {
				if lines[i].attrName(r.kernel, a.Name) != ka.Name {
					continue
				}
				if a.Name = ka.Name; ok && got != a {
					return nil, false
				}
				got, ok = a, true
			}
		}
		if !ok || len(ka.Values) > 0 && !slices.Contains(ka.Values, got.Str) {
			return nil, false
		}
		out = append(out, got)
	}
	for i, n := range nodes {
		for _, a := range in.Nodes[n].Attrs {
			if lines[i].attrName(r.kernel, a.Name) != "" {
				continue
			}
			switch want := lines[i].demand(a.Name); {
			case want == "-":
				if d, ok := in.Nodes[n].Op.attr(a.Name).value(); !ok || d != a {
					return nil, false
				}
			case a.Kind == plan.StrAttr && a.Str != want:
				return nil, false
			}
		}
	}
	return out, true
}

// demands holds the ops' integers against what their lines say.
func (m *match) demands(env *kernel.Env) error {
	for i, c := range m.nodes {
		for _, a := range m.f.in.Nodes[c].Attrs {
			p := &m.pattern[i]
			want, ok := p.attrs[a.Name]
			if !ok || want == "-" || a.Kind != plan.IntAttr || p.attrName(m.rule.kernel, a.Name) != "" {
				continue
			}
			if v, err := tensor.Eval(want, env.Sizes); err != nil || v != a.Int {
				return fmt.Errorf("kernel %s needs %s of %s to be %s", m.rule.Kernel, a.Name, p.op.Name, want)
			}
		}
	}
	return nil
}
