// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"slices"

	"github.com/metrale/metrale/internal/plan"
)

// Ends of the names of what a catalog has beside a tensor: float32 that multiply the products of its rows, and its numbers.
const (
	scaleOf = "/scale"
	floatOf = "/f32"
)

// withScales is a copy whose nodes read the scales of their weights' rows. A weight that its kernel does not take as it is stored,
// by its type or because it has no argument for the scales, is read in float32. The reference rules decide, so that all rules
// see the same weights.
func (in *Instance) withScales(found []stored, rules []*Rule) (*Instance, []stored) {
	if !slices.ContainsFunc(found, func(s stored) bool { return s.floats != nil }) {
		return in, found
	}
	out := *in
	out.Nodes, out.Weights, found = slices.Clone(in.Nodes), slices.Clone(in.Weights), slices.Clone(found)
	for i, n := range in.Nodes {
		r := reference(rules, n.Op.Name)
		for j, w := range n.Weights {
			if r == nil || w < 0 || found[w].floats == nil {
				continue
			}
			s, a := found[w], r.kernel.Arg(r.patterns[1][0].weights[j])
			k := portNamed(n.Op.weights, scalePort(n.Op.weights[j].name))
			switch {
			case a == nil || !slices.Contains(a.DTypes, s.dtype), s.scales != nil && (k < 0 || r.patterns[1][0].weights[k] == "-"):
				found[w] = s.asFloats()
			case s.scales != nil:
				c := *out.Nodes[i]
				c.Weights = slices.Clone(c.Weights)
				c.Weights[k] = len(out.Weights)
				out.Nodes[i] = &c
				axes := in.Weights[w].Axes
				scale := Weight{Name: n.ID + "." + n.Op.weights[k].name, Axes: axes[:len(axes)-1], Split: in.Weights[w].Split}
				if scale.Split.Axis == len(axes)-1 {
					scale.Split = plan.Replicated // each device scales its part of the sums
				}
				out.Weights = append(out.Weights, scale)
				found = append(found, s.ofScales())
			}
		}
	}
	return &out, found
}

// scalePort is the port of the scales of a weight's rows.
func scalePort(port string) string {
	if port == "w" {
		return "scale"
	}
	return port + "_scale"
}

// reference is the rule that lowers an op alone; nil if the class has none.
func reference(rules []*Rule, op string) *Rule {
	if i := slices.IndexFunc(rules, func(r *Rule) bool { return r.isReference(op) }); i >= 0 {
		return rules[i]
	}
	return nil
}
