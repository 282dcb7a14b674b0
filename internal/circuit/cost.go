// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"maps"
	"math"
	"slices"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// Load says how full a step is, for costs: rows and sequences, rows with logits, and the mean number of keys that a row's
// attention sees.
type Load struct{ Rows, Seqs, Outs, Context int64 }

// Cost is what a launch does and moves in one step.
type Cost struct {
	Flops       int64
	Bytes       int64  // of activations, weights and state, each moved once
	WeightBytes int64  // the weights' part of Bytes
	Operands    string // element type that bounds the arithmetic: "q16", "bf16", "f32"
}

// Costs gives each launch's cost, from the rows of Σ that it covers and the arrays that it names. p was lowered from in.
func (in *Instance) Costs(p *plan.Plan, load Load) ([]Cost, error) {
	nodes := map[string]*Node{}
	for _, n := range in.Nodes {
		nodes[n.ID] = n
	}
	out := make([]Cost, len(p.Launches))
	for i := range p.Launches {
		l, c := &p.Launches[i], &out[i]
		c.Operands = "f32"
		touched := map[int]float64{} // share of each weight
		for _, id := range l.Ops {
			n := nodes[id]
			if n == nil {
				return nil, diag.Errorf(diag.Internal, "launch %s covers %s, which the instance does not have", l.Name, id)
			}
			if err := in.addOp(c, p, l, n, load, touched); err != nil {
				return nil, diag.Errorf(diag.Internal, "launch %s, op %s: %w", l.Name, id, err)
			}
		}
		for j := range l.Args {
			c.addArg(p, &l.Args[j], load, touched)
		}
		for _, a := range l.Attrs {
			if a.Name == "compute" && a.Str == "q16" {
				c.Operands = "q16"
			}
		}
	}
	return out, nil
}

// addOp adds an op's arithmetic and the state that it moves, and notes which share of its weights it reads.
func (in *Instance) addOp(c *Cost, p *plan.Plan, l *plan.Launch, n *Node, load Load, touched map[int]float64) error {
	sizes, err := in.sizes(n, load)
	if err != nil {
		return err
	}
	flops, err := tensor.Eval(n.Op.Flops, sizes)
	if err != nil {
		return err
	}
	c.Flops += flops
	if n.Op.Extra != "" {
		elems, err := tensor.Eval(n.Op.Extra, sizes)
		if err != nil {
			return err
		}
		d := in.States[n.States[0]].DType
		if d == kvDType {
			d = p.KV
		}
		c.Bytes += d.Bytes(elems)
	}
	if n.Op.Touched == "" {
		return nil
	}
	elems, err := tensor.Eval(n.Op.Touched, sizes)
	if err != nil {
		return err
	}
	total := int64(0)
	var own []int
	for _, a := range l.Args {
		if a.Kind == plan.ArgWeight && in.reads(n, &p.Weights[a.Index]) {
			own = append(own, a.Index)
			total += p.Weights[a.Index].Axes.Shape().Elems()
		}
	}
	for _, i := range own {
		touched[i] = min(1, float64(elems)/float64(total))
	}
	return nil
}

// reads says whether a weight of the plan is the node's.
func (in *Instance) reads(n *Node, w *plan.Weight) bool {
	return slices.ContainsFunc(n.Weights, func(i int) bool {
		return i >= 0 && (w.Name == in.Weights[i].Name || w.Name == in.Weights[i].Name+"."+w.Layout)
	})
}

// sizes binds every name of a node's patterns, with the load's extents for those that vary.
func (in *Instance) sizes(n *Node, load Load) (map[string]int64, error) {
	env := n.env()
	bind := func(ports []port, axes func(int) []kernel.Axis) error {
		for i := range ports {
			if a := axes(i); a != nil {
				if err := env.Bind(ports[i].axes, a); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := bind(n.Op.in, func(i int) []kernel.Axis { return in.Edges[n.In[i]].Axes }); err != nil {
		return nil, err
	}
	if err := bind(n.Op.out, func(i int) []kernel.Axis { return in.Edges[n.Out[i]].Axes }); err != nil {
		return nil, err
	}
	if err := bind(n.Op.weights, func(i int) []kernel.Axis {
		if n.Weights[i] < 0 {
			return nil
		}
		return in.Weights[n.Weights[i]].Axes
	}); err != nil {
		return nil, err
	}
	if err := bind(n.Op.consts, func(i int) []kernel.Axis {
		return []kernel.Axis{{Name: "", Size: int64(len(in.Consts[n.Consts[i]].Values))}}
	}); err != nil {
		return nil, err
	}
	out := maps.Clone(env.Sizes)
	if _, ok := out["R"]; !ok {
		out["R"] = varying[plan.Rows]
	}
	out["ctx"] = load.Context
	if w := out["window"]; w > 0 {
		out["ctx"] = min(load.Context, w)
	}
	for name, v := range out {
		out[name] = load.extent(v)
	}
	if e := float64(out["E"]); e > 0 {
		out["taken"] = int64(math.Round(e * (1 - math.Pow(1-min(1, float64(out["k"])/e), float64(out["R"])))))
	}
	return out, nil
}

// extent replaces a varying extent by the load's.
func (l Load) extent(v int64) int64 {
	switch v {
	case varying[plan.Rows]:
		return l.Rows
	case varying[plan.Seqs]:
		return l.Seqs
	case varying[plan.Outs]:
		return l.Outs
	}
	return v
}

// addArg adds the bytes of a buffer (twice if it is read and written) or weight.
func (c *Cost) addArg(p *plan.Plan, a *plan.Arg, load Load, touched map[int]float64) {
	switch a.Kind {
	case plan.ArgBuffer:
		b := &p.Buffers[a.Index]
		elems := int64(1)
		for _, x := range b.Axes {
			switch x.Name {
			case plan.Rows:
				elems *= load.Rows
			case plan.Outs:
				elems *= load.Outs
			default:
				elems *= x.Size
			}
		}
		c.Bytes += b.DType.Bytes(elems)
		if a.Access == plan.InOut {
			c.Bytes += b.DType.Bytes(elems)
		}
	case plan.ArgWeight:
		w := &p.Weights[a.Index]
		bytes := weightBytes(w)
		if share, ok := touched[a.Index]; ok {
			bytes = int64(float64(bytes) * share)
		}
		c.Bytes += bytes
		c.WeightBytes += bytes
		if len(w.Axes) > 1 && c.Operands == "f32" {
			c.Operands = w.DType.String()
		}
	}
}

// weightBytes is the size of a weight in memory. Layouts that keep the stored format keep its size, up to padding; "dense" keeps
// floats and turns all else into float32.
func weightBytes(w *plan.Weight) int64 {
	d := w.DType
	if plain := d == tensor.F32 || d == tensor.BF16 || d == tensor.F16; w.Layout == "f32" || w.Layout == "dense" && !plain {
		d = tensor.F32
	}
	return d.Bytes(w.Axes.Shape().Elems())
}

// Memory is what a plan needs.
type Memory struct {
	Weights  int64 // bytes
	Arena    int64
	PerToken int64 // paged K and V
	PerSeq   int64 // recurrent state
}

// MemoryOf adds up a plan.
func MemoryOf(p *plan.Plan) Memory {
	m, page := Memory{Arena: p.Arena}, int64(0)
	for i := range p.Weights {
		m.Weights += weightBytes(&p.Weights[i])
	}
	for i := range p.States {
		s := &p.States[i]
		if bytes := s.DType.Bytes(s.Axes.Shape().Elems()); s.Kind == plan.Paged {
			page += bytes * s.PageEntries(p.Limits.PageSize)
		} else {
			m.PerSeq += bytes
		}
	}
	m.PerToken = (page + p.Limits.PageSize - 1) / p.Limits.PageSize
	return m
}

// Concurrency is the largest number of sequences of that many tokens that fit into total bytes; negative if not even the
// weights do.
func (m Memory) Concurrency(total, tokens, pageSize int64) int64 {
	free := total - m.Weights - m.Arena
	if free < 0 {
		return -1
	}
	per := (tokens+pageSize-1)/pageSize*pageSize*m.PerToken + m.PerSeq
	if per == 0 {
		return 0
	}
	return free / per
}
