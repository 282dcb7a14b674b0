// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// Precision policies.
const (
	Float32  = "float32"  // activations float32, weights dequantised exactly
	Declared = "declared" // as the checkpoint's format is meant to be computed: block-quantised weights with int8 activations
)

// Options choose how an instance is lowered.
type Options struct {
	Class    string       // hardware class: "cpu"
	Compute  string       // Float32 or Declared
	KV       tensor.DType // element type of paged K and V; None is the class's default
	Limits   plan.Limits  // of the row bucket
	NoFusion bool         // reference rules only
}

// Lower makes the plan for steps within o.Limits. Before anything else it checks the checkpoint's tensors.
func (in *Instance) Lower(lib *Library, cat Catalog, o Options) (*plan.Plan, error) {
	p, _, err := in.LowerWired(lib, cat, o)
	return p, err
}

// Wire says which edges of the instance a launch's buffer argument carries, before and after the launch; "" none.
type Wire struct{ In, Out string }

// LowerWired is Lower that also tells, for each launch, the wires of its buffer arguments by parameter: two plans of an
// instance name the same values alike, however they fuse and share memory.
func (in *Instance) LowerWired(lib *Library, cat Catalog, o Options) (*plan.Plan, []map[string]Wire, error) {
	class := lib.Tree.Classes[o.Class]
	if class == nil || len(lib.Rules[o.Class]) == 0 {
		return nil, nil, diag.Errorf(diag.Unsupported, "hardware class %q has no lowering rules", o.Class)
	}
	if o.Compute != Float32 && o.Compute != Declared {
		return nil, nil, diag.Errorf(diag.Invalid, "compute is %q; it is %s or %s", o.Compute, Float32, Declared).For("compute")
	}
	if o.KV == tensor.None {
		o.KV, _ = tensor.ParseDType(class.Defaults.KV)
	}
	if l := o.Limits; l.Rows < 1 || l.Seqs < 1 || l.Outs < 1 || l.PageSize < 1 || l.Pages < 1 {
		return nil, nil, diag.Errorf(diag.Internal, "limits %+v", l)
	}
	found, err := in.resolve(cat)
	if err != nil {
		return nil, nil, err
	}
	in, found = in.withScales(found, lib.Rules[o.Class])
	in = in.withPolicy(found, o.Compute)
	settings := map[string]string{"fuse": "on", "compute": o.Compute}
	if o.NoFusion {
		settings["fuse"] = "off"
	}
	groups, err := fuse(in, lib.Rules[o.Class], settings, found, o)
	if err != nil {
		if class.Partial {
			return nil, nil, diag.Errorf(diag.Unsupported, "hardware class %s is partial, its kernels compute %s only: %w", o.Class, strings.Join(class.Ops(), ", "), err)
		}
		return nil, nil, diag.Errorf(diag.CodeOf(err), "circuit %s on class %s: %w", in.Name(), o.Class, err)
	}
	w := &lowering{in: in, o: o, found: found, groups: groups, weights: map[string]int{}, states: map[int]int{}, consts: map[int]int{},
		p: &plan.Plan{Circuit: in.Name(), Part: in.Part, Class: o.Class, Compute: o.Compute, KV: o.KV, Limits: o.Limits, Dims: in.Dims}}
	if err := w.buffers(); err != nil {
		return nil, nil, diag.Errorf(diag.Internal, "circuit %s on class %s: %w", in.Name(), o.Class, err)
	}
	for i := range groups {
		if err := w.launch(i); err != nil {
			return nil, nil, err
		}
	}
	if err := w.p.Verify(); err != nil {
		return nil, nil, err
	}
	return w.p, w.wires, checkManifest(w.p, class)
}

// withPolicy is a copy whose nodes have the attribute compute that the policy gives their weights.
func (in *Instance) withPolicy(found []stored, policy string) *Instance {
	out := *in
	out.Nodes = make([]*Node, len(in.Nodes))
	for i, n := range in.Nodes {
		c := *n
		out.Nodes[i] = &c
		if n.attr("compute") == nil {
			continue
		}
		q8 := policy == Declared
		for j, p := range n.Op.weights {
			if n.Weights[j] >= 0 && !p.optional && len(p.axes) > 1 {
				q8 = q8 && found[n.Weights[j]].dtype.Integers()
			}
		}
		c.Attrs = slices.Clone(n.Attrs)
		c.attr("compute").Str = "f32"
		if q8 {
			c.attr("compute").Str = "q16"
		}
	}
	return &out
}

// lowering turns groups into launches.
type lowering struct {
	in     *Instance
	o      Options
	found  []stored
	groups []*group
	p      *plan.Plan
	wires  []map[string]Wire

	bufferOf []int          // of each edge
	weights  map[string]int // layout and sources → index
	states   map[int]int    // instance → plan
	consts   map[int]int
}

// edgeUse says which launch writes an edge first and which reads it last.
type edgeUse struct{ first, last int }

// buffers gives each edge its memory: outputs that overwrite an input share it, everything else is laid out by lifetime.
func (w *lowering) buffers() error {
	uses := make([]edgeUse, len(w.in.Edges))
	inside := make([]bool, len(w.in.Edges)) // stays in a launch
	for e := range uses {
		uses[e] = edgeUse{-1, -1}
		inside[e] = true
	}
	for i, g := range w.groups {
		for _, v := range g.vars.edges {
			if a := g.arg(v.name); a != nil {
				inside[v.is] = false
				if !g.reads(v.name) {
					uses[v.is].first = i
				}
				uses[v.is].last = max(uses[v.is].last, i)
			}
		}
	}
	w.bufferOf = make([]int, len(w.in.Edges))
	for e := range w.bufferOf {
		w.bufferOf[e] = -1
		if w.in.isOutput(e) || w.in.isInput(e) {
			uses[e].last = len(w.groups) // nothing takes its memory over
		}
	}
	var lives []life
	for _, p := range w.in.Inputs {
		w.bufferOf[p.edge] = w.buffer(p.edge, plan.Port{Name: p.name, Dir: plan.In})
		lives = append(lives, life{first: 0, last: len(w.groups)}) // none of the arena's bytes
	}
	for i, g := range w.groups {
		for _, a := range g.rule.kernel.Args {
			e, ok := g.output(a.Name)
			if !ok {
				continue
			}
			b, err := w.inPlace(g, &a, i, uses)
			if err != nil {
				return err
			}
			if b < 0 {
				b = w.buffer(e, plan.Port{})
				buf := &w.p.Buffers[b]
				lives = append(lives, life{first: i, last: i, bytes: buf.DType.Bytes(buf.Axes.Shape().Elems())})
			}
			w.bufferOf[e] = b
			lives[b].last = max(lives[b].last, uses[e].last)
		}
		scratch, err := w.scratch(g)
		if err != nil {
			return err
		}
		for _, s := range scratch {
			w.p.Buffers = append(w.p.Buffers, s)
			lives = append(lives, life{first: i, last: i, bytes: s.DType.Bytes(s.Axes.Shape().Elems())})
		}
	}
	for _, p := range w.in.Outputs {
		b := w.bufferOf[p.edge]
		if lives[b].bytes = 0; w.p.Buffers[b].Port.Name != "" {
			return fmt.Errorf("edge %s is in the memory of port %s", w.in.Edges[p.edge].Name, w.p.Buffers[b].Port.Name)
		}
		w.p.Buffers[b].Port = plan.Port{Name: p.name, Dir: plan.Out}
	}
	w.p.Arena = layout(lives)
	for i := range w.p.Buffers {
		if w.p.Buffers[i].Port.Name == "" {
			w.p.Buffers[i].Offset = lives[i].offset
		}
	}
	if w.p.Logits = -1; w.in.Logits >= 0 {
		w.p.Logits = w.bufferOf[w.in.Logits]
	}
	return nil
}

// scratch are the buffers of a group's launch that nobody else sees, in the order of the kernel's arguments.
func (w *lowering) scratch(g *group) (out []plan.Buffer, err error) {
	var env *kernel.Env
	for _, a := range g.rule.kernel.Args {
		if a.Kind != kernel.ScratchArg {
			continue
		}
		if env == nil {
			if env, err = g.env(w.in, w.o, w.found); err != nil {
				return nil, err
			}
		}
		axes, err := env.Axes(a.Shape)
		if err != nil {
			return nil, fmt.Errorf("scratch %s of kernel %s: %w", a.Name, g.rule.Kernel, err)
		}
		out = append(out, plan.Buffer{Name: scratchName(g.name(w.in), a.Name), Axes: toPlanAxes(axes, w.o.Limits), DType: a.DTypes[0], Split: plan.Replicated})
	}
	return out, nil
}

func scratchName(launch, arg string) string { return launch + "." + arg }

// buffer adds an edge's buffer.
func (w *lowering) buffer(e int, port plan.Port) int {
	edge := &w.in.Edges[e]
	w.p.Buffers = append(w.p.Buffers, plan.Buffer{Name: edge.Name, Axes: toPlanAxes(edge.Axes, w.o.Limits), DType: edge.DType, Port: port, Split: edge.Split})
	return len(w.p.Buffers) - 1
}

// inPlace is the buffer of the input that output a of launch i takes over, or -1.
func (w *lowering) inPlace(g *group, a *kernel.Arg, i int, uses []edgeUse) (int, error) {
	input := a.Alias
	if a.Access == "inout" {
		input = a.Name
	}
	e, ok := g.vars.edges.get(input)
	if input == "" || !ok {
		return -1, nil
	}
	if a.Access == "inout" {
		if uses[e].last > i {
			return -1, fmt.Errorf("launch %s overwrites %s, which launch %s reads", g.name(w.in), w.in.Edges[e].Name, w.groups[min(uses[e].last, len(w.groups)-1)].name(w.in))
		}
		return w.bufferOf[e], nil
	}
	out, _ := g.output(a.Name)
	readers := 0
	for _, v := range g.vars.edges {
		if v.is == e && g.reads(v.name) {
			readers++
		}
	}
	if uses[e].last > i || readers > 1 || w.in.Edges[e].DType != w.in.Edges[out].DType || !slices.EqualFunc(w.in.Edges[e].Axes, w.in.Edges[out].Axes, func(a, b kernel.Axis) bool { return a.Size == b.Size }) {
		return -1, nil
	}
	return w.bufferOf[e], nil
}

// arg is the kernel's argument that a pattern variable is bound to, nil for an edge that stays inside.
func (g *group) arg(v string) *kernel.Arg {
	if b, ok := g.rule.Bind[v]; ok {
		v = b
	}
	if a := g.rule.kernel.Arg(v); a != nil && a.Kind == kernel.BufferArg {
		return a
	}
	return nil
}

// reads says whether a variable is an input of the group.
func (g *group) reads(v string) bool {
	read := false
	for _, n := range g.rule.lines(len(g.nodes)) {
		if slices.Contains(n.out, v) {
			return false
		}
		read = read || slices.Contains(n.in, v)
	}
	return read
}

// output is the edge that a kernel's argument writes.
func (g *group) output(arg string) (int, bool) {
	for _, n := range g.rule.lines(len(g.nodes)) {
		for _, v := range n.out {
			b, bound := g.rule.Bind[v]
			if bound && b == arg || !bound && v == arg {
				if a := g.rule.kernel.Arg(arg); a.Access != "in" {
					e, _ := g.vars.edges.get(v)
					return e, true
				}
			}
		}
	}
	return 0, false
}

// name joins the ids of a group's nodes: "L00.attn.q+k+v".
func (g *group) name(in *Instance) string {
	nodes := slices.Clone(g.nodes)
	slices.Sort(nodes)
	first := in.Nodes[nodes[0]].ID
	prefix := first[:strings.LastIndexByte(first, '.')+1]
	for _, n := range nodes[1:] {
		id := in.Nodes[n].ID
		if prefix != "" {
			id = strings.TrimPrefix(id, prefix)
		}
		first += "+" + id
	}
	return first
}

// launch adds the launch of group i.
func (w *lowering) launch(i int) error {
	g := w.groups[i]
	l := plan.Launch{Name: g.name(w.in), Kernel: g.rule.Kernel, Rule: g.rule.Name, Numerics: g.rule.Numerics}
	nodes := slices.Clone(g.nodes)
	slices.Sort(nodes)
	for _, n := range nodes {
		l.Ops = append(l.Ops, w.in.Nodes[n].ID)
	}
	l.Attrs, _ = launchAttrs(g.rule, w.in, g.nodes)
	l.Grid = g.rule.kernel.Expressions()
	wires := map[string]Wire{}
	for j := range g.rule.kernel.Args {
		a := &g.rule.kernel.Args[j]
		arg := plan.Arg{Param: a.Name}
		there := true
		switch a.Kind {
		case kernel.StepArg:
			arg.Kind, arg.Step = plan.ArgStep, a.Name
		case kernel.WeightArg:
			k, ok := g.vars.weights.get(a.Name)
			if there = ok && k >= 0; there {
				arg.Kind, arg.Index = plan.ArgWeight, w.weight(k, a.Layout)
			}
		case kernel.ScratchArg:
			name := scratchName(l.Name, a.Name)
			arg.Kind, arg.Access = plan.ArgBuffer, plan.Out
			arg.Index = slices.IndexFunc(w.p.Buffers, func(b plan.Buffer) bool { return b.Name == name })
		case kernel.ConstArg:
			k, _ := g.vars.consts.get(a.Name)
			arg.Kind, arg.Index = plan.ArgConst, w.constant(k)
		case kernel.StateArg:
			k, _ := g.vars.states.get(a.Name)
			arg.Kind, arg.Index, arg.Access = plan.ArgState, w.state(k), access(a.Access)
		default:
			e, ok := g.vars.edges.get(a.Name)
			if a.Access != "in" {
				e, ok = g.output(a.Name)
			}
			if there = ok; there {
				arg.Kind, arg.Index, arg.Access = plan.ArgBuffer, w.bufferOf[e], access(a.Access)
				wires[a.Name] = w.wire(g, a)
			}
		}
		if there {
			l.Args = append(l.Args, arg)
		} else if !a.Optional {
			return diag.Errorf(diag.Internal, "launch %s: nothing is bound to argument %s", l.Name, a.Name)
		}
	}
	w.p.Launches = append(w.p.Launches, l)
	w.wires = append(w.wires, wires)
	return nil
}

// wire names the edges of a buffer argument.
func (w *lowering) wire(g *group, a *kernel.Arg) (x Wire) {
	if e, ok := g.vars.edges.get(a.Name); ok && a.Access != "out" {
		x.In = w.in.Edges[e].Name
	}
	if e, ok := g.output(a.Name); ok && a.Access != "in" {
		x.Out = w.in.Edges[e].Name
	}
	return x
}

func access(s string) plan.Access {
	switch s {
	case "out":
		return plan.Out
	case "inout":
		return plan.InOut
	}
	return plan.In
}

// weight gives the plan's index of a weight in a layout; two weights of the same tensors are one.
func (w *lowering) weight(k int, layout string) int {
	s, src := w.found[k], &w.in.Weights[k]
	key := layout + "\x00" + strings.Join(s.sources, "\x00")
	if i, ok := w.weights[key]; ok {
		return i
	}
	name := src.Name
	if slices.ContainsFunc(w.p.Weights, func(o plan.Weight) bool { return o.Name == name }) {
		name += "." + layout
	}
	w.weights[key] = len(w.p.Weights)
	w.p.Weights = append(w.p.Weights, plan.Weight{Name: name, Axes: toPlanAxes(src.Axes, w.o.Limits), DType: s.dtype, Layout: layout, Sources: s.sources, Split: src.Split})
	return w.weights[key]
}

func (w *lowering) state(k int) int {
	if i, ok := w.states[k]; ok {
		return i
	}
	s := w.in.States[k]
	if s.DType == kvDType {
		s.DType = w.o.KV
	}
	w.states[k] = len(w.p.States)
	w.p.States = append(w.p.States, s)
	return w.states[k]
}

func (w *lowering) constant(k int) int {
	if i, ok := w.consts[k]; ok {
		return i
	}
	w.consts[k] = len(w.p.Consts)
	w.p.Consts = append(w.p.Consts, w.in.Consts[k])
	return w.consts[k]
}
