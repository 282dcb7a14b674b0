// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// kvDType stands for the element type of paged K and V, which is chosen when a plan is made.
const kvDType = tensor.None

// Instantiate builds the diagram of a checkpoint: that of the decoder, and those of the parts that the config describes
// (InPart). With says which parts are to be served beside the decoder: its diagram takes what they give and gives what they
// take. Errors name the config's key, file and line, or say which model_type has no circuit (code Unsupported).
func Instantiate(lib *Library, cfg *modelconf.Config, with ...string) (*Instance, error) {
	v, err := lib.variant(cfg.ModelType)
	if err != nil {
		n, _ := cfg.Tree.Child("model_type")
		e, _ := diag.As(err)
		return nil, e.At(n.Pos()).For("model_type")
	}
	if v, err = lib.unwrapped(v, cfg.Tree); err != nil {
		return nil, err
	}
	p, err := classify(v, cfg)
	if err != nil {
		return nil, err
	}
	c := v.mapped().circuit
	var there []*Circuit
	for _, name := range slices.Sorted(maps.Keys(c.parts)) {
		on, err := when(c.parts[name].when, p.dims)
		if err != nil {
			return nil, c.parts[name].file.Errorf("when", "%s", err)
		}
		if on {
			there = append(there, c.parts[name])
		}
		p.dims[wanted(name)] = truth(on && slices.Contains(with, name))
	}
	main, err := newBuilder(lib, p, c, v).instance(cfg.Tree)
	if err != nil {
		return nil, err
	}
	main.root = main
	for _, part := range there {
		q, err := p.inPart(part, cfg.Tree)
		if err != nil {
			return nil, err
		}
		in, err := newBuilder(lib, q, part, v).instance(cfg.Tree)
		if err != nil {
			return nil, err
		}
		in.root = main
		main.parts = append(main.parts, in)
	}
	return main, nil
}

func newBuilder(lib *Library, p *point, c *Circuit, v *Variant) *builder {
	return &builder{lib: lib, p: p, c: c, names: map[string]int{}, ofKind: map[string]map[string]int{}, versions: map[string]int{},
		in: &Instance{Circuit: c.name, Part: c.part, ModelType: v.ModelType, Prefixes: v.Prefixes}}
}

// instance builds and checks.
func (b *builder) instance(tree *modelconf.Node) (*Instance, error) {
	if err := b.build(); err != nil {
		return nil, err
	}
	if err := b.in.Verify(); err != nil {
		return nil, diag.Errorf(diag.Format, "the config does not fit circuit %s: %s", b.in.Circuit, err).At(tree.Pos()).Because(err)
	}
	return b.in, nil
}

// builder lays blocks out.
type builder struct {
	lib      *Library
	p        *point
	c        *Circuit
	in       *Instance
	names    map[string]int            // names bound across blocks → edge
	ofKind   map[string]map[string]int // the same, where only layers of a kind see them
	versions map[string]int            // edge names given so far

	// Of the block being placed:
	block  *Block
	use    Use
	layer  int
	nth    int    // of the layers of its kind
	prefix string // of ids
	at     *values
	local  map[string]int
	states map[string]int
	binds  []*strings.Replacer // of tensor names, one per alternative of the binds
}

func (b *builder) build() error {
	b.listDims("", b.p.dims)
	for _, kind := range slices.Sorted(maps.Keys(b.p.ofKind)) {
		b.listDims(kind+".", b.p.ofKind[kind].dims)
	}
	b.in.Consts, b.at = b.p.consts, &b.p.values
	if err := b.ownTensors(); err != nil {
		return err
	}
	for _, u := range b.c.Unused {
		if err := b.unused(u); err != nil {
			return b.c.file.Errorf("unused", "%s: %s", u.Match, err)
		}
	}
	for _, u := range b.c.Begin {
		if u.Kinds == nil {
			if err := b.place(u, -1, ""); err != nil {
				return err
			}
		}
		for _, kind := range u.Kinds {
			if !b.p.occurs(kind) {
				continue
			}
			if err := b.place(u, -1, kind); err != nil {
				return err
			}
		}
	}
	before := map[string]int{} // layers of a kind
	for i, kinds := range b.p.kinds {
		b.in.Kinds = append(b.in.Kinds, strings.Join(kinds, "+"))
		for _, kind := range kinds {
			b.nth = before[kind]
			before[kind]++
			for _, u := range b.c.Layers.Kind[kind] {
				if err := b.place(u, i, ""); err != nil {
					return err
				}
			}
		}
	}
	for _, u := range b.c.End {
		if err := b.place(u, -1, ""); err != nil {
			return err
		}
	}
	var ok bool
	if b.in.Logits, ok = b.names["logits"]; !ok {
		b.in.Logits = -1
	}
	return nil
}

// listDims adds dims to the instance's, but for switches that are off: a new one changes no plan that is without it.
func (b *builder) listDims(prefix string, dims map[string]int64) {
	for _, name := range slices.Sorted(maps.Keys(dims)) {
		if dims[name] != 0 {
			b.in.Dims = append(b.in.Dims, plan.Dim{Name: prefix + name, Size: dims[name]})
		}
	}
}

// mostUnused bounds how many names an entry stands for: as many as a layer may have experts.
const mostUnused = 1 << 16

// unused adds the tensors that an entry matches at this config.
func (b *builder) unused(u Unused) error {
	on, err := when(u.When, b.p.dims)
	if err != nil || !on {
		return err
	}
	count := int64(1)
	if u.N != "" {
		if count, err = tensor.Eval(u.N, b.p.dims); err != nil {
			return err
		}
		if count > mostUnused {
			return fmt.Errorf("n is %s, %d here; it is at most %d", u.N, count, mostUnused)
		}
	}
	dims := maps.Clone(b.p.dims)
	for n := range count {
		dims["n"] = n
		match, err := fill(u.Match, dims)
		if err != nil {
			return err
		}
		b.in.Unused = append(b.in.Unused, Unused{Match: match, Why: u.Why})
	}
	return nil
}

// fill replaces {expressions} over the dims in force in a name.
func (b *builder) fill(name string) (string, error) { return fill(name, b.at.dims) }

// fill replaces {expressions} over dims in a name. {P}, {R} and {e} wait for the checkpoint.
func fill(name string, dims map[string]int64) (string, error) {
	out := ""
	for {
		before, rest, ok := strings.Cut(name, "{")
		if out += before; !ok {
			return out, nil
		}
		expr, after, _ := strings.Cut(rest, "}")
		if expr == "P" || expr == "R" || expr == "e" {
			out += "{" + expr + "}"
		} else if v, err := tensor.Eval(expr, dims); err != nil {
			return name, err
		} else {
			out += fmt.Sprint(v)
		}
		name = after
	}
}

// layerPrefix begins the names of nodes and states that the block being placed has in a layer.
func (b *builder) layerPrefix(layer int) string {
	prefix := fmt.Sprintf("L%02d.%s.", layer, cmp.Or(b.use.As, b.use.Block))
	if b.c.part != "" {
		prefix = b.c.part + "." + prefix
	}
	return prefix
}

// place adds a block's nodes: in a layer, or (layer -1) around them, there for the layers of a kind or for all.
func (b *builder) place(u Use, layer int, kind string) error {
	b.block, b.use, b.layer = b.lib.Blocks[u.Block], u, layer
	b.prefix, b.local, b.states = "", map[string]int{}, map[string]int{}
	subst := []string{}
	switch {
	case layer >= 0:
		b.at, b.prefix = b.p.inLayer(layer), b.layerPrefix(layer)
		b.at.dims["nth"] = int64(b.nth)
		subst = append(subst, "{L}", strings.ReplaceAll(b.c.Layers.Path, "{i}", strconv.Itoa(layer)))
	case kind != "":
		b.at, b.prefix = b.p.inKind(kind), kind+"."
	default:
		b.at = &b.p.values
	}
	if b.c.part != "" && layer < 0 {
		b.prefix = b.c.part + "." + b.prefix
	}
	b.bind(u, subst)
	if len(u.Set) > 0 {
		set := newValues()
		for _, name := range slices.Sorted(maps.Keys(u.Set)) {
			v, err := tensor.Eval(u.Set[name], b.at.dims)
			if err != nil {
				return b.c.file.Errorf("layers", "block %s sets %s: %s", u.Block, name, err)
			}
			set.dims[name] = v
		}
		b.at = b.at.over(set)
	}
	on, err := when(u.When, b.at.dims)
	if err != nil {
		return b.c.file.Errorf("layers", "block %s: %s", u.Block, err)
	}
	if !on {
		return nil
	}
	for _, name := range b.block.In {
		name, optional := strings.CutSuffix(name, "?")
		e, ok := b.visible(name)
		if !ok && optional {
			continue
		}
		if !ok {
			return b.c.file.Errorf("begin", "block %s needs the edge %s, which nothing before it binds", u.Block, name)
		}
		b.local[name] = e
	}
	if err := b.inputs(); err != nil {
		return err
	}
	for i := range b.block.Nodes {
		if err := b.node(i); err != nil {
			return err
		}
	}
	if err := b.leave(); err != nil {
		return err
	}
	into := b.names
	if kind != "" {
		if b.ofKind[kind] == nil {
			b.ofKind[kind] = map[string]int{}
		}
		into = b.ofKind[kind]
	}
	for _, name := range b.block.Out {
		name, cond, optional := strings.Cut(name, "?")
		if on, err := when(cond, b.at.dims); err != nil {
			return b.block.file.Errorf("out", "output %s: %s", name, err)
		} else if !on {
			continue
		}
		e, ok := b.local[name]
		if !ok && optional {
			continue
		}
		if !ok {
			return b.block.file.Errorf("out", "output %s is bound by no node at this config", name)
		}
		into[name] = e
	}
	return nil
}

// visible finds an edge that an earlier block bound: for the layer's kinds, or for all.
func (b *builder) visible(name string) (int, bool) {
	if b.layer >= 0 {
		for _, kind := range b.p.kinds[b.layer] {
			if e, ok := b.ofKind[kind][name]; ok {
				return e, true
			}
		}
	}
	e, ok := b.names[name]
	return e, ok
}

// bind fills in the parts of tensor names. A bind may be several words, "mlp|block_sparse_moe": the n-th ones belong together.
func (b *builder) bind(u Use, subst []string) {
	binds, most := map[string][]string{}, 1
	for name, word := range b.block.Bind {
		if over, ok := u.Bind[name]; ok {
			word = over
		}
		binds[name] = strings.Split(strings.NewReplacer(subst...).Replace(word), "|")
		most = max(most, len(binds[name]))
	}
	b.binds = nil
	for i := range most {
		all := slices.Clone(subst)
		for name, words := range binds {
			all = append(all, "{"+name+"}", words[min(i, len(words)-1)])
		}
		b.binds = append(b.binds, strings.NewReplacer(all...))
	}
}

// node adds one node, unless its switch is off.
func (b *builder) node(i int) error {
	d, at := &b.block.Nodes[i], "node."+strconv.Itoa(i)
	fail := func(key string, err error) error {
		return b.block.file.Errorf(at+key, "node %s%s: %s", b.prefix, d.ID, err)
	}
	on, err := when(d.When, b.at.dims)
	if err != nil {
		return fail(".when", err)
	}
	if !on {
		return nil
	}
	op, _ := LookupOp(d.Op)
	n := &Node{ID: b.prefix + d.ID, Op: op, Layer: b.layer, Block: b.block.name}
	exprs := map[string]string{}
	for _, spec := range op.attrs {
		a, expr, err := b.attr(&spec, d.Attrs[spec.name])
		if err != nil {
			return fail(".attrs", err)
		}
		n.Attrs = append(n.Attrs, a)
		exprs[spec.name] = expr
	}
	for _, name := range d.In {
		e, ok := b.local[name]
		if !ok {
			return fail(".in", fmt.Errorf("edge %s is bound by no node at this config", name))
		}
		n.In = append(n.In, e)
	}
	for _, port := range op.weights {
		w, err := b.weight(n, &port, d.Weights)
		if err != nil {
			return fail(".weights."+port.name, err)
		}
		n.Weights = append(n.Weights, w)
	}
	for _, port := range op.consts {
		c, ok := b.at.tables[d.Consts[port.name]]
		if !ok {
			return fail(".consts", fmt.Errorf("the config gives no table %q", d.Consts[port.name]))
		}
		n.Consts = append(n.Consts, c)
	}
	for _, port := range op.states {
		s, err := b.state(d.States[port.name])
		if err != nil {
			return fail(".states", err)
		}
		n.States = append(n.States, s)
	}
	if err := b.outputs(n, d, exprs); err != nil {
		return fail("", err)
	}
	b.in.Nodes = append(b.in.Nodes, n)
	return nil
}

// outputs adds a node's output edges, with the sizes that its op's shape rule gives.
func (b *builder) outputs(n *Node, d *NodeDecl, exprs map[string]string) error {
	env := n.env()
	for i, p := range n.Op.in {
		if err := env.Bind(p.axes, b.in.Edges[n.In[i]].Axes); err != nil {
			return fmt.Errorf("%s %w", p.name, err)
		}
	}
	for i, p := range n.Op.weights {
		if n.Weights[i] >= 0 {
			if err := env.Bind(p.axes, b.in.Weights[n.Weights[i]].Axes); err != nil {
				return fmt.Errorf("%s %w", p.name, err)
			}
		}
	}
	for i, p := range n.Op.consts {
		c := b.in.Consts[n.Consts[i]]
		if err := env.Bind(p.axes, []kernel.Axis{{Name: c.Name, Size: int64(len(c.Values))}}); err != nil {
			return fmt.Errorf("%s %w", p.name, err)
		}
	}
	split := b.splitDims(n, d)
	for i, name := range d.outs() {
		axes, err := env.Axes(n.Op.out[i].axes)
		if err != nil {
			return err
		}
		e := Edge{Name: b.edgeName(name), Axes: axes, DType: n.Op.out[i].dtype, Split: plan.Replicated}
		for j := range axes {
			a := &axes[j]
			if _, bound := env.Names[n.Op.out[i].axes[j]]; !bound {
				a.Name = substitute(a.Name, exprs)
			}
			for _, dim := range split {
				if e.Split.Axis < 0 && mentions(a.Name, dim) {
					e.Split, e.dims = plan.Split{Axis: j, Mesh: mesh(dim)}, []string{dim}
				}
			}
		}
		n.Out = append(n.Out, len(b.in.Edges))
		b.local[name] = len(b.in.Edges)
		b.in.Edges = append(b.in.Edges, e)
	}
	return nil
}

// splitDims are the dims along which a node's work is divided: its declaration's, its weights', its inputs'.
func (b *builder) splitDims(n *Node, d *NodeDecl) []string {
	var dims []string
	if d.Split != "" {
		dims = append(dims, d.Split)
	}
	for i, p := range n.Op.weights {
		if n.Weights[i] >= 0 && d.Weights[p.name].Split != "" {
			dims = append(dims, d.Weights[p.name].Split)
		}
	}
	for _, e := range n.In {
		dims = append(dims, b.in.Edges[e].dims...)
	}
	return dims
}

// edgeName is the node's prefix and the bound name, with a number when it was bound before.
func (b *builder) edgeName(name string) string {
	full := b.prefix + name
	b.versions[full]++
	if v := b.versions[full]; v > 1 {
		full += "." + strconv.Itoa(v)
	}
	return full
}
