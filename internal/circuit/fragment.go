// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"slices"

	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// Fragment is ops without a model around them: benchmarks lower it to see what a class computes them with. Inputs come in
// through ports of their names, and what no op reads is left in ports. An op that overwrites its input needs one that another
// op wrote.
type Fragment struct {
	Name   string
	Inputs []FragmentInput
	States []FragmentState
	Ops    []FragmentOp // in execution order
}

// FragmentInput is an edge [rows, Size].
type FragmentInput struct {
	Name  string
	Size  int64
	DType tensor.DType // None: F32
}

// FragmentState is a state: of paged ones the element type is the plan's for K and V, of others float32.
type FragmentState struct {
	Name string
	Kind plan.StateKind
	Axes []int64 // of a token or slot
}

// FragmentOp is a node, whose name is that of its first output, or the op's.
type FragmentOp struct {
	Op      string
	In, Out []string           // edges
	Weights map[string][]int64 // by the op's port: sizes
	States  map[string]string  // by the op's port
	Attrs   map[string]any     // int, float64 or string; those with defaults may be left out
}

// Instance builds the diagram. Its weights are tensors of their names.
func (f *Fragment) Instance() (*Instance, error) {
	b := &fragmentBuilder{in: &Instance{Circuit: "fragment", ModelType: f.Name, Prefixes: []string{""}, Logits: -1}, edges: map[string]int{}, states: map[string]int{}}
	for _, x := range f.Inputs {
		if x.DType == tensor.None {
			x.DType = tensor.F32
		}
		b.in.Inputs = append(b.in.Inputs, portEdge{x.Name, b.edge(x.Name, []kernel.Axis{{Name: plan.Rows, Size: varying[plan.Rows]}, {Name: x.Name, Size: x.Size}}, x.DType)})
	}
	for _, s := range f.States {
		state := plan.State{Name: s.Name, Kind: s.Kind, DType: kvDType, Split: plan.Replicated}
		if s.Kind == plan.Slot {
			state.DType = tensor.F32
		}
		for i, size := range s.Axes {
			state.Axes = append(state.Axes, plan.Axis{Name: fmt.Sprint(s.Name, i), Size: size})
		}
		b.states[s.Name] = len(b.in.States)
		b.in.States = append(b.in.States, state)
	}
	for i := range f.Ops {
		if err := b.op(&f.Ops[i]); err != nil {
			return nil, fmt.Errorf("fragment %s, op %d: %s: %w", f.Name, i, f.Ops[i].Op, err)
		}
	}
	for e, x := range b.in.Edges {
		if !b.in.isInput(e) && !slices.ContainsFunc(b.in.Nodes, func(n *Node) bool { return slices.Contains(n.In, e) }) {
			b.in.Outputs = append(b.in.Outputs, portEdge{x.Name, e})
		}
	}
	if err := b.in.Verify(); err != nil {
		return nil, fmt.Errorf("fragment %s: %w", f.Name, err)
	}
	return b.in, nil
}

type fragmentBuilder struct {
	in            *Instance
	edges, states map[string]int
}

func (b *fragmentBuilder) edge(name string, axes []kernel.Axis, d tensor.DType) int {
	b.edges[name] = len(b.in.Edges)
	b.in.Edges = append(b.in.Edges, Edge{Name: name, Axes: axes, DType: d, Split: plan.Replicated})
	return b.edges[name]
}

func (b *fragmentBuilder) op(f *FragmentOp) error {
	op, ok := LookupOp(f.Op)
	if !ok || len(f.In) != len(op.in) || len(f.Out) != len(op.out) {
		return fmt.Errorf("there is no such op with %d inputs and %d outputs", len(f.In), len(f.Out))
	}
	n := &Node{ID: f.Op, Op: op, Layer: -1}
	if len(f.Out) > 0 {
		n.ID = f.Out[0]
	}
	for i := range op.attrs {
		a, err := op.attrs[i].of(f.Attrs[op.attrs[i].name])
		if err != nil {
			return err
		}
		n.Attrs = append(n.Attrs, a)
	}
	for _, name := range f.In {
		e, ok := b.edges[name]
		if !ok {
			return fmt.Errorf("nothing before it writes %s", name)
		}
		n.In = append(n.In, e)
	}
	for _, p := range op.weights {
		n.Weights = append(n.Weights, b.weight(n.ID+"."+p.name, f.Weights[p.name], p.dtype))
	}
	for _, p := range op.states {
		s, ok := b.states[f.States[p.name]]
		if !ok {
			return fmt.Errorf("there is no state %q for %s", f.States[p.name], p.name)
		}
		n.States = append(n.States, s)
	}
	if len(op.consts) > 0 {
		return fmt.Errorf("fragments have no constants")
	}
	b.in.Nodes = append(b.in.Nodes, n)
	return b.outputs(n, f)
}

// weight adds one; -1 if there is none.
func (b *fragmentBuilder) weight(name string, sizes []int64, d tensor.DType) int {
	if sizes == nil {
		return -1
	}
	w := Weight{Name: name, DType: d, From: [][]string{{name}}, Split: plan.Replicated}
	for i, size := range sizes {
		w.Axes = append(w.Axes, kernel.Axis{Name: fmt.Sprint(name, i), Size: size})
	}
	b.in.Weights = append(b.in.Weights, w)
	return len(b.in.Weights) - 1
}

// outputs adds a node's output edges, with the sizes that its op's shape rule gives.
func (b *fragmentBuilder) outputs(n *Node, f *FragmentOp) error {
	env := n.env()
	for i, p := range n.Op.in {
		if err := env.Bind(p.axes, b.in.Edges[n.In[i]].Axes); err != nil {
			return fmt.Errorf("%s %w", p.name, err)
		}
	}
	for i, p := range n.Op.weights {
		if n.Weights[i] < 0 {
			continue
		}
		if err := env.Bind(p.axes, b.in.Weights[n.Weights[i]].Axes); err != nil {
			return fmt.Errorf("%s %w", p.name, err)
		}
	}
	for i, name := range f.Out {
		axes, err := env.Axes(n.Op.out[i].axes)
		if err != nil {
			return err
		}
		n.Out = append(n.Out, b.edge(name, axes, n.Op.out[i].dtype))
	}
	return nil
}

// of is the attribute with a given value, or its default.
func (a *attrSpec) of(given any) (plan.Attr, error) {
	v, ok := a.value()
	if given == nil && !ok {
		return v, fmt.Errorf("attribute %s is missing", a.name)
	}
	switch x := given.(type) {
	case nil:
		return v, nil
	case int:
		v.Int, ok = int64(x), a.kind == plan.IntAttr
	case float64:
		v.Float, ok = x, a.kind == plan.FloatAttr
	case string:
		v.Str, ok = x, a.kind == plan.StrAttr && slices.Contains(a.values, x)
	default:
		ok = false
	}
	if !ok {
		return v, fmt.Errorf("attribute %s cannot be %v", a.name, given)
	}
	return v, nil
}
