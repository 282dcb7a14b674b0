// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"slices"

	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// Extents that vary from step to step have no size in an instance; these stand for them, so that axes of different kinds
// never unify. Lower replaces them by the plan's limits.
var varying = map[string]int64{plan.Rows: -1, plan.Seqs: -2, plan.Outs: -3, plan.Pool: -4}

// Instance is a circuit at one checkpoint's point: a Σ-diagram with every size known but rows, seqs and outs.
type Instance struct {
	Circuit   string // "llama"
	ModelType string // "mistral"
	Prefixes  []string
	Dims      []plan.Dim // by name; those of kinds of layers as kind.name; none that are 0
	Kinds     []string   // of each layer
	Nodes     []*Node    // in execution order
	Edges     []Edge
	Weights   []Weight
	States    []plan.State
	Consts    []plan.Const
	Logits    int      // the edge [outs, vocab]; -1: none
	Unused    []Unused // patterns of tensors that are not read, those whose switch is on

	Part            string     // "" is the decoder
	Inputs, Outputs []portEdge // edges that ports name
	own             []string   // patterns of tensors that no other part has
	root            *Instance  // the decoder
	parts           []*Instance
}

// Node is an op with its arrays.
type Node struct {
	ID      string // "L03.attn.q"
	Op      *Op
	Layer   int // -1 outside the layers
	Block   string
	In, Out []int // edges, in the order of the op's ports
	Weights []int // -1: absent
	Consts  []int
	States  []int
	Attrs   []plan.Attr // in the order of the op's attributes
}

// Edge is an array that flows from the node that writes it.
type Edge struct {
	Name  string // "L03.attn.q"; a name that was bound before gets .2, .3, …
	Axes  []kernel.Axis
	DType tensor.DType
	Split plan.Split
	dims  []string // dims along which it is divided, as words of an axis's name
}

// Weight is an array that the checkpoint must have.
type Weight struct {
	Name  string // "L03.attn.q.w"
	Axes  []kernel.Axis
	DType tensor.DType // I32: whole numbers; else any type of numbers
	From  [][]string   // alternatives; {P}, {R} and {e} still stand in them
	Split plan.Split
}

// attr gives an attribute of the node; the op has it.
func (n *Node) attr(name string) *plan.Attr {
	i := slices.IndexFunc(n.Attrs, func(a plan.Attr) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return &n.Attrs[i]
}

// Dim gives a dim's size, 0 if there is none.
func (in *Instance) Dim(name string) int64 {
	for _, d := range in.Dims {
		if d.Name == name {
			return d.Size
		}
	}
	return 0
}

// isOutput says whether somebody outside reads an edge.
func (in *Instance) isOutput(e int) bool {
	return e == in.Logits || slices.ContainsFunc(in.Outputs, func(p portEdge) bool { return p.edge == e })
}

// isInput says whether an edge comes in through a port.
func (in *Instance) isInput(e int) bool {
	return slices.ContainsFunc(in.Inputs, func(p portEdge) bool { return p.edge == e })
}

// Name is circuit/model_type.
func (in *Instance) Name() string { return in.Circuit + "/" + in.ModelType }

// Verify checks the diagram: single assignment, order, and every op's shapes. It is the verifier after instantiation.
func (in *Instance) Verify() error {
	written := make([]bool, len(in.Edges))
	for _, p := range in.Inputs {
		written[p.edge] = true
	}
	ids := map[string]bool{}
	for _, n := range in.Nodes {
		if ids[n.ID] {
			return fmt.Errorf("node %s is there twice", n.ID)
		}
		ids[n.ID] = true
		for _, e := range n.In {
			if !written[e] {
				return fmt.Errorf("node %s reads %s before it is written", n.ID, in.Edges[e].Name)
			}
		}
		for _, e := range n.Out {
			if written[e] {
				return fmt.Errorf("edge %s is written twice", in.Edges[e].Name)
			}
			written[e] = true
		}
		if err := in.checkShapes(n); err != nil {
			return fmt.Errorf("node %s: %w", n.ID, err)
		}
	}
	switch {
	case in.Logits < 0 && len(in.Outputs) == 0:
		return fmt.Errorf("no block binds logits or an output")
	case in.Logits < 0:
		return nil
	}
	if len(in.Edges[in.Logits].Axes) != 2 || in.Edges[in.Logits].Axes[0].Name != plan.Outs {
		return fmt.Errorf("logits %s are no [outs, vocab]", in.Edges[in.Logits].Name)
	}
	return nil
}

// checkShapes unifies every array of a node with its op's patterns.
func (in *Instance) checkShapes(n *Node) error {
	env := n.env()
	type pair struct {
		port *port
		axes []kernel.Axis
	}
	var arrays []pair
	for i := range n.Op.in {
		arrays = append(arrays, pair{&n.Op.in[i], in.Edges[n.In[i]].Axes})
	}
	for i := range n.Op.weights {
		if n.Weights[i] >= 0 {
			arrays = append(arrays, pair{&n.Op.weights[i], in.Weights[n.Weights[i]].Axes})
		} else if !n.Op.weights[i].optional {
			return fmt.Errorf("%s has no weight %s", n.Op.Signature(), n.Op.weights[i].name)
		}
	}
	for i := range n.Op.consts {
		c := in.Consts[n.Consts[i]]
		arrays = append(arrays, pair{&n.Op.consts[i], []kernel.Axis{{Name: c.Name, Size: int64(len(c.Values))}}})
	}
	for i := range n.Op.states {
		s := in.States[n.States[i]]
		arrays = append(arrays, pair{&n.Op.states[i], fromPlanAxes(s.Axes)})
	}
	for i := range n.Op.out {
		if n.Out[i] < len(in.Edges) {
			arrays = append(arrays, pair{&n.Op.out[i], in.Edges[n.Out[i]].Axes})
		}
	}
	for _, a := range arrays {
		if err := env.Bind(a.port.axes, a.axes); err != nil {
			return fmt.Errorf("%s %w", a.port.name, err)
		}
	}
	for _, a := range arrays {
		if err := env.Check(a.port.axes, a.axes); err != nil {
			return fmt.Errorf("%s: %w", a.port.name, err)
		}
	}
	for _, z := range n.Op.zero {
		if v, err := tensor.Eval(z, env.Sizes); err != nil || v != 0 {
			return fmt.Errorf("%s: %s must be 0, it is %d (%v)", n.Op.Name, z, v, env.Sizes)
		}
	}
	return nil
}

// env starts a node's unification: integer attributes and the varying extents that its patterns name.
func (n *Node) env() *kernel.Env {
	ints := map[string]int64{}
	for _, a := range n.Attrs {
		if a.Kind == plan.IntAttr {
			ints[a.Name] = a.Int
		}
	}
	for name, v := range varying {
		ints[name] = v
	}
	env := kernel.NewEnv(ints)
	for name := range varying {
		env.Names[name] = name
	}
	return env
}

func fromPlanAxes(a plan.Axes) []kernel.Axis {
	out := make([]kernel.Axis, len(a))
	for i, x := range a {
		out[i] = kernel.Axis(x)
	}
	return out
}
