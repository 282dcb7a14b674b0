// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kernel"
)

// Library is the kernel tree as the compiler needs it: circuits, blocks, config maps, kernel manifests and fusion rules.
// It is immutable after LoadLibrary.
type Library struct {
	Tree     *kernel.Tree
	Blocks   map[string]*Block
	Circuits map[string]*Circuit
	Variants map[string]*Variant // by model_type
	Refused  map[string]*Refused // by model_type
	Rules    map[string][]*Rule  // by class, in the order of trial
}

// Block is a part of a layer: kernels/circuits/blocks/<name>.toml.
type Block struct {
	Doc      string               `toml:"doc"`
	In       []string             `toml:"in"`   // names that must be bound outside; name? may be
	Out      []string             `toml:"out"`  // names that are bound outside afterwards; name?switch if it is on
	Bind     map[string]string    `toml:"bind"` // parts of tensor names, with their defaults
	Defaults                      // of its parameters
	States   map[string]StateDecl `toml:"state"`
	Inputs   map[string]PortDecl  `toml:"input"`  // edges that come in through ports
	Outputs  map[string]PortDecl  `toml:"output"` // edges that are left for others
	Nodes    []NodeDecl           `toml:"node"`
	Unused   []Unused             `toml:"unused"` // tensors that a checkpoint may have beside the block's

	name string
	file *kernel.File
}

// Defaults are values of parameters that nothing before them sets: the config, then its map, then the circuit, then its
// blocks.
type Defaults struct {
	Dims    map[string]string `toml:"dims"`
	Params  map[string]string `toml:"params"`  // a number or rsqrt(dims)
	Strings map[string]string `toml:"strings"` // words
}

// StateDecl declares what a block keeps between steps.
type StateDecl struct {
	Kind  string   `toml:"kind"`  // paged, slot
	Every string   `toml:"every"` // of paged: how many tokens share an entry, an expression; each has its own unless given
	Axes  []string `toml:"axes"`  // of one token or slot
	DType string   `toml:"dtype"`
	Split string   `toml:"split"`
}

// NodeDecl is a node of a block.
type NodeDecl struct {
	ID      string                `toml:"id"`
	Op      string                `toml:"op"`
	In      []string              `toml:"in"`
	Out     *[]string             `toml:"out"`   // [id] unless given
	When    string                `toml:"when"`  // an expression over dims that must not be 0, or !expression
	Attrs   map[string]any        `toml:"attrs"` // a number; an expression over dims; a param or rsqrt(dims); a string or $variant
	Weights map[string]WeightDecl `toml:"weights"`
	Consts  map[string]string     `toml:"consts"`
	States  map[string]string     `toml:"states"`
	Split   string                `toml:"split"` // dim along which outputs are divided, where inputs do not say it
}

// WeightDecl binds a weight to checkpoint tensors.
type WeightDecl struct {
	Axes []string `toml:"axes"`
	// From lists alternatives; the first that the checkpoint has is taken. The tensors of one alternative have equally
	// many rows and follow each other; {e} runs over the first axis. {P} is the model's prefix, {R} that prefix without its
	// last word, {L} the layer's path, {name} a bind. tensor[lo:hi:of] is, of each "of" rows, those from lo to before hi.
	From  [][]string `toml:"from"`
	Split string     `toml:"split"` // dim along which it is divided
	When  string     `toml:"when"`
}

// Circuit lays blocks out: kernels/circuits/<name>.toml.
type Circuit struct {
	Doc string `toml:"doc"`
	Defaults
	Begin  []Use    `toml:"begin"`
	Layers Layers   `toml:"layers"`
	End    []Use    `toml:"end"`
	Unused []Unused `toml:"unused"`

	Part map[string]string `toml:"part"` // name → file of kernels/circuits/parts

	name  string
	file  *kernel.File
	all   Defaults                // its own and its blocks'
	by    map[string]*kernel.File // which block gave "dims.name"
	parts map[string]*Circuit
	part  string // which one this is
	when  string // as in its file, with own
	own   []string
}

// Use places a block.
type Use struct {
	Block string            `toml:"use"`
	As    string            `toml:"as"`    // prefix of node ids; the block's name unless given
	When  string            `toml:"when"`  // an expression over dims that must not be 0, or !expression
	Kinds []string          `toml:"kinds"` // before the layers: once for each of these kinds that occurs, whose layers alone see it
	Bind  map[string]string `toml:"bind"`  // replaces binds
	Set   map[string]string `toml:"set"`   // dims that differ here
}

// Unused names tensors that a checkpoint may have and the circuit does not read.
type Unused struct {
	Match string `toml:"match"` // * stands for any text, {expression} for its value
	N     string `toml:"n"`     // n in expressions runs from 0 to below this
	When  string `toml:"when"`
	Why   string `toml:"why"`
}

// LoadLibrary reads and checks kernels/: every TOML file, before any checkpoint is seen.
func LoadLibrary(fsys fs.FS) (*Library, error) {
	tree, err := kernel.Load(fsys)
	if err != nil {
		return nil, err
	}
	lib := &Library{Tree: tree, Blocks: map[string]*Block{}, Circuits: map[string]*Circuit{}, Variants: map[string]*Variant{}, Refused: map[string]*Refused{},
		Rules: map[string][]*Rule{}}
	if err := lib.loadBlocks(fsys); err != nil {
		return nil, err
	}
	if err := lib.loadCircuits(fsys); err != nil {
		return nil, err
	}
	if err := lib.loadMaps(fsys); err != nil {
		return nil, err
	}
	if err := lib.loadRefused(fsys); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(tree.Classes)) {
		class := tree.Classes[name]
		if len(class.Fusions) == 0 {
			continue
		}
		if lib.Rules[name], err = loadRules(fsys, class); err != nil {
			return nil, err
		}
	}
	return lib, nil
}

// For is the library with a target's kernels in place of its class's.
func (lib *Library) For(t *kernel.Target) *Library {
	out, tree := *lib, *lib.Tree
	out.Tree, tree.Classes, out.Rules = &tree, maps.Clone(lib.Tree.Classes), maps.Clone(lib.Rules)
	tree.Classes[t.Class.Name] = t.View()
	rules := slices.Clone(lib.Rules[t.Class.Name])
	for i, r := range rules {
		c := *r
		c.kernel = t.Kernels[r.Kernel]
		rules[i] = &c
	}
	out.Rules[t.Class.Name] = rules
	return &out
}

// Carrying is the library without a class's rules whose kernels' code is not there, and the names of those kernels. What they
// would compute is left to the rules behind them.
func (lib *Library) Carrying(class string, has func(module string) bool) (*Library, []string) {
	out := *lib
	out.Rules = maps.Clone(lib.Rules)
	out.Rules[class] = nil
	var lacking []string
	for _, r := range lib.Rules[class] {
		if !slices.ContainsFunc(r.kernel.Modules(), func(m string) bool { return !has(m) }) {
			out.Rules[class] = append(out.Rules[class], r)
		} else if !slices.Contains(lacking, r.Kernel) {
			lacking = append(lacking, r.Kernel)
		}
	}
	slices.Sort(lacking)
	return &out, lacking
}

func glob(fsys fs.FS, pattern string) []string {
	names, _ := fs.Glob(fsys, pattern)
	slices.Sort(names)
	return names
}

func (lib *Library) loadBlocks(fsys fs.FS) error {
	for _, file := range glob(fsys, "circuits/blocks/*.toml") {
		b := &Block{name: strings.TrimSuffix(path.Base(file), ".toml")}
		var err error
		if b.file, err = kernel.ReadTOML(fsys, file, b); err != nil {
			return err
		}
		if err := b.check(); err != nil {
			return err
		}
		lib.Blocks[b.name] = b
	}
	return nil
}

// check refuses what no config could make right: unknown ops, wrong arity, unknown names.
func (b *Block) check() error {
	bound := map[string]bool{}
	for _, n := range b.In {
		bound[strings.TrimSuffix(n, "?")] = true
	}
	for _, name := range slices.Sorted(maps.Keys(b.States)) {
		s, at := b.States[name], "state."+name
		if s.Kind != "paged" && s.Kind != "slot" {
			return b.file.Errorf(at, "state %s is %q; it is paged or slot", name, s.Kind)
		}
		if _, err := stateDType(s.DType, 0); err != nil {
			return b.file.Errorf(at, "state %s: %s", name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.Inputs)) {
		d := b.Inputs[name]
		if err := d.check(b, "input."+name, true); err != nil {
			return err
		}
		bound[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(b.Outputs)) {
		d := b.Outputs[name]
		if err := d.check(b, "output."+name, false); err != nil {
			return err
		}
	}
	for i := range b.Nodes {
		if err := b.checkNode(i, bound); err != nil {
			return err
		}
	}
	for _, n := range slices.Concat(b.Out, slices.Sorted(maps.Keys(b.Outputs))) {
		n, _, _ = strings.Cut(n, "?")
		if !bound[n] {
			return b.file.Errorf("out", "output %s is bound by no node", n)
		}
	}
	return nil
}

func (b *Block) checkNode(i int, bound map[string]bool) error {
	n := &b.Nodes[i]
	at := "node." + strconv.Itoa(i)
	fail := func(key, format string, args ...any) error {
		return b.file.Errorf(at+key, "node %s: "+format, append([]any{n.ID}, args...)...)
	}
	op, ok := LookupOp(n.Op)
	switch {
	case n.ID == "":
		return b.file.Errorf(at, "a node has no id")
	case !ok:
		return fail(".op", "%q is no op", n.Op)
	case len(n.In) != len(op.in):
		return fail(".in", "%s takes %d edges, not %d", op.Signature(), len(op.in), len(n.In))
	case len(n.outs()) != len(op.out):
		return fail(".out", "%s gives %d edges, not %d", op.Signature(), len(op.out), len(n.outs()))
	}
	for _, e := range n.In {
		if !bound[e] {
			return fail(".in", "edge %s is bound by no earlier node", e)
		}
	}
	for _, e := range n.outs() {
		bound[e] = true
	}
	for _, a := range slices.Sorted(maps.Keys(n.Attrs)) {
		if op.attr(a) == nil {
			return fail(".attrs."+a, "%s has no attribute %s", op.Signature(), a)
		}
	}
	for _, w := range slices.Sorted(maps.Keys(n.Weights)) {
		d := n.Weights[w]
		if portNamed(op.weights, w) < 0 {
			return fail(".weights."+w, "%s has no weight %s", op.Signature(), w)
		}
		if len(d.From) == 0 || len(d.Axes) == 0 || slices.ContainsFunc(d.From, func(a []string) bool { return len(a) == 0 }) {
			return fail(".weights."+w, "weight %s needs axes and from", w)
		}
	}
	for _, c := range slices.Sorted(maps.Keys(n.Consts)) {
		if portNamed(op.consts, c) < 0 {
			return fail(".consts."+c, "%s has no constant %s", op.Signature(), c)
		}
	}
	for _, s := range slices.Sorted(maps.Keys(n.States)) {
		if portNamed(op.states, s) < 0 {
			return fail(".states."+s, "%s has no state %s", op.Signature(), s)
		}
		name := n.States[s]
		if _, ok := b.States[name]; !ok {
			return fail(".states."+s, "the block declares no state %s", name)
		}
	}
	if len(n.Consts) != len(op.consts) || len(n.States) != len(op.states) {
		return fail("", "%s needs %d constants and %d states", op.Signature(), len(op.consts), len(op.states))
	}
	return nil
}

// outs are the names that a node binds.
func (n *NodeDecl) outs() []string {
	if n.Out == nil {
		return []string{n.ID}
	}
	return *n.Out
}

func (lib *Library) loadCircuits(fsys fs.FS) error {
	for _, file := range glob(fsys, "circuits/*.toml") {
		base := path.Base(file)
		if strings.HasSuffix(base, ".config.toml") || base == "INSTANCES.toml" || base == "REFUSED.toml" {
			continue
		}
		c := &Circuit{name: strings.TrimSuffix(base, ".toml")}
		var err error
		if c.file, err = kernel.ReadTOML(fsys, file, c); err != nil {
			return err
		}
		if err := c.loadParts(fsys); err != nil {
			return err
		}
		if err := lib.checkCircuit(c); err != nil {
			return err
		}
		lib.Circuits[c.name] = c
	}
	return nil
}

// inherit adds what a block says of its circuits: defaults and unused tensors. It names a parameter whose default two blocks disagree on.
func (c *Circuit) inherit(b *Block) (conflict string) {
	add := func(table string, into, own, more map[string]string) {
		for _, name := range slices.Sorted(maps.Keys(more)) {
			v := more[name]
			if old, ok := into[name]; !ok {
				into[name], c.by[table+"."+name] = v, b.file
			} else if _, mine := own[name]; !mine && old != v {
				conflict = name
			}
		}
	}
	add("dims", c.all.Dims, c.Dims, b.Dims)
	add("params", c.all.Params, c.Params, b.Params)
	add("strings", c.all.Strings, c.Strings, b.Strings)
	for _, u := range b.Unused {
		if !slices.Contains(c.Unused, u) {
			c.Unused = append(c.Unused, u)
		}
	}
	return conflict
}

// errorf is about a default, "dims.name", wherever it stands.
func (c *Circuit) errorf(at, format string, args ...any) error {
	f := c.file
	if b, ok := c.by[at]; ok {
		f = b
	}
	return f.Errorf(at, format, args...)
}

// copyOf is never nil.
func copyOf(m map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, m)
	return out
}

func (lib *Library) checkCircuit(c *Circuit) error {
	c.by = map[string]*kernel.File{}
	c.all = Defaults{copyOf(c.Dims), copyOf(c.Params), copyOf(c.Strings)}
	if err := lib.checkUses(c, c); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.parts)) {
		p := c.parts[name]
		if conflict := c.inherit(&Block{Defaults: p.Defaults, file: p.file}); conflict != "" {
			return p.file.Errorf("", "circuit %s has another default of %s", c.name, conflict)
		}
		if err := lib.checkUses(p, c); err != nil {
			return err
		}
	}
	return nil
}

// checkUses refuses a circuit, or a part of one, that places what is not there. The whole circuit inherits from its blocks.
func (lib *Library) checkUses(c, whole *Circuit) error {
	uses := func(at string, list []Use) error {
		for i, u := range list {
			b, ok := lib.Blocks[u.Block]
			if !ok {
				return c.file.Errorf(at+"."+strconv.Itoa(i), "there is no block %q", u.Block)
			}
			for _, k := range u.Kinds {
				if c.Layers.Kind[k] == nil {
					return c.file.Errorf(at+"."+strconv.Itoa(i)+".kinds", "there is no layer kind %s", k)
				}
			}
			for _, k := range slices.Sorted(maps.Keys(u.Bind)) {
				if _, ok := b.Bind[k]; !ok {
					return c.file.Errorf(at+"."+strconv.Itoa(i)+".bind."+k, "block %s has no bind %s", u.Block, k)
				}
			}
			if name := whole.inherit(b); name != "" {
				return c.file.Errorf(at+"."+strconv.Itoa(i), "block %s has another default of %s than a block before it; the circuit must set it", u.Block, name)
			}
		}
		return nil
	}
	if err := uses("begin", c.Begin); err != nil {
		return err
	}
	if err := uses("end", c.End); err != nil {
		return err
	}
	for _, kind := range slices.Sorted(maps.Keys(c.Layers.Kind)) {
		if err := uses("layers.kind."+kind, c.Layers.Kind[kind]); err != nil {
			return err
		}
	}
	return c.Layers.check(c)
}

// ModelTypes are the model_types that are mapped, sorted.
func (lib *Library) ModelTypes() []string { return slices.Sorted(maps.Keys(lib.Variants)) }

// variant gives what a model_type is mapped by.
func (lib *Library) variant(modelType string) (*Variant, error) {
	v, ok := lib.Variants[modelType]
	if r := lib.Refused[modelType]; r != nil {
		return nil, r.err(modelType)
	}
	if !ok {
		return nil, diag.Errorf(diag.Unsupported, "no circuit maps model_type %q (mapped are %s)", modelType, strings.Join(lib.ModelTypes(), ", "))
	}
	return v, nil
}
