// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"maps"
	"slices"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// group is a set of nodes that one launch computes.
type group struct {
	rule  *Rule
	nodes []int // in the order of the pattern
	vars  binding
	order int // index of the last node
}

// binding is what a pattern's variables stand for in the instance.
type binding struct{ edges, weights, consts, states variables } // weights: -1 absent

// variables are those of one kind: so few that looking for one is faster than a map, and a copy of the slice is a state to come back to.
type variables []variable

type variable struct {
	name string
	is   int
}

// get is what a variable stands for; 0 and false for one that is not bound.
func (l variables) get(name string) (int, bool) {
	for i := range l {
		if l[i].name == name {
			return l[i].is, true
		}
	}
	return 0, false
}

// clone is a binding of its own.
func (b binding) clone() binding {
	return binding{slices.Clone(b.edges), slices.Clone(b.weights), slices.Clone(b.consts), slices.Clone(b.states)}
}

// bind says that a variable stands for x; false if it stands for something else.
func (l *variables) bind(name string, x int) bool {
	if old, ok := l.get(name); ok {
		return old == x
	}
	*l = append(*l, variable{name, x})
	return true
}

// fuser covers an instance with groups.
type fuser struct {
	in       *Instance
	rules    []*Rule
	settings map[string]string
	o        Options
	found    []stored // of each weight

	refused map[int]error // of nodes: why a kernel that would match does not take the arrays
	readers [][]int       // of each edge: nodes
	touch   map[int][]int // of each state: nodes
	writer  []int         // of each edge
	after   [][]int       // of each node: nodes that must come after it
	groupOf []int         // of each node; -1 none yet
	groups  []*group
	empty   binding     // whose room each match takes anew
	env     *kernel.Env // likewise
}

// fuse is greedy: rules by priority, places in execution order. Every node ends in exactly one group.
func fuse(in *Instance, rules []*Rule, settings map[string]string, found []stored, o Options) ([]*group, error) {
	f := &fuser{in: in, rules: rules, settings: settings, o: o, found: found, refused: map[int]error{}, readers: make([][]int, len(in.Edges)),
		touch: map[int][]int{}, writer: make([]int, len(in.Edges)), after: make([][]int, len(in.Nodes)), groupOf: make([]int, len(in.Nodes)),
		empty: binding{make(variables, 0, 64), make(variables, 0, 16), make(variables, 0, 8), make(variables, 0, 8)}, env: kernel.NewEnv(nil)}
	for i, n := range in.Nodes {
		f.groupOf[i] = -1
		for _, e := range n.In {
			f.readers[e] = append(f.readers[e], i)
		}
		for _, e := range n.Out {
			f.writer[e] = i
		}
		for _, s := range n.States {
			f.touch[s] = append(f.touch[s], i)
		}
	}
	if err := f.dependencies(); err != nil {
		return nil, err
	}
	for _, r := range rules {
		if !r.enabled(settings, f.o.Limits.Rows) {
			continue
		}
		for _, copies := range slices.Backward(slices.Sorted(maps.Keys(r.patterns))) {
			for i := range in.Nodes {
				f.try(r, r.patterns[copies], i)
			}
		}
	}
	for i, g := range f.groupOf {
		if g < 0 {
			n := in.Nodes[i]
			if err := f.refused[i]; err != nil {
				return nil, diag.Errorf(diag.Unsupported, "no rule lowers node %s: %w", n.ID, err)
			}
			return nil, diag.Errorf(diag.Unsupported, "no rule lowers node %s, %s with %v", n.ID, n.Op.Signature(), n.Attrs)
		}
	}
	return f.schedule()
}

func (r *Rule) enabled(settings map[string]string, rows int64) bool {
	for k, v := range r.Settings {
		if settings[k] != v {
			return false
		}
	}
	return r.Rows == nil || rows >= r.Rows.Min && (r.Rows.Max == 0 || rows <= r.Rows.Max)
}

// dependencies orders nodes: writer before reader, touches of one state as written, and whoever overwrites an edge after
// its other readers.
func (f *fuser) dependencies() error {
	last := map[int]int{} // of each state
	for i, n := range f.in.Nodes {
		for _, e := range n.In {
			if !f.in.isInput(e) {
				f.after[f.writer[e]] = append(f.after[f.writer[e]], i)
			}
		}
		for _, s := range n.States {
			if j, ok := last[s]; ok {
				f.after[j] = append(f.after[j], i)
			}
			last[s] = i
		}
		for _, e := range f.overwritten(i) {
			if f.in.isInput(e) || f.in.isOutput(e) {
				return fmt.Errorf("node %s overwrites %s, which a port names", n.ID, f.in.Edges[e].Name)
			}
			for _, r := range f.readers[e] {
				switch {
				case r > i:
					return fmt.Errorf("node %s overwrites %s, which %s reads later", n.ID, f.in.Edges[e].Name, f.in.Nodes[r].ID)
				case r < i:
					f.after[r] = append(f.after[r], i)
				}
			}
		}
	}
	return nil
}

// overwritten are the input edges that a node's reference kernel writes over.
func (f *fuser) overwritten(i int) []int {
	n := f.in.Nodes[i]
	var out []int
	for _, r := range f.rules {
		if !r.isReference(n.Op.Name) {
			continue
		}
		p := r.patterns[1][0]
		for _, arg := range r.Bind {
			if k := slices.Index(p.in, arg); k >= 0 {
				out = append(out, n.In[k])
			}
		}
		break
	}
	return out
}

// try matches a pattern whose first line is node i and makes a group of it.
func (f *fuser) try(r *Rule, pattern []patternNode, i int) {
	if f.in.Nodes[i].Op != pattern[0].op || f.groupOf[i] >= 0 {
		return
	}
	m := &match{f: f, rule: r, pattern: pattern}
	if !m.extend(0, []int{i}, f.empty) {
		return
	}
	g := &group{rule: r, nodes: m.nodes, vars: m.vars.clone(), order: slices.Max(m.nodes)}
	for _, n := range g.nodes {
		f.groupOf[n] = len(f.groups)
	}
	f.groups = append(f.groups, g)
}

// match searches an assignment of pattern lines to nodes.
type match struct {
	f       *fuser
	rule    *Rule
	pattern []patternNode
	nodes   []int
	vars    binding
}

// extend assigns line k to one of the candidates and the rest behind it.
func (m *match) extend(k int, candidates []int, vars binding) bool {
	for _, c := range candidates {
		if m.f.in.Nodes[c].Op != m.pattern[k].op || m.f.groupOf[c] >= 0 || slices.Contains(m.nodes, c) {
			continue
		}
		if m.rule.Repeat != nil && k > 0 && c < m.nodes[k-1] {
			continue // copies in execution order, so that each set is tried once
		}
		v := vars
		if !m.assign(k, c, &v) {
			continue
		}
		m.nodes = append(m.nodes, c)
		if k+1 == len(m.pattern) {
			if m.closed(v) {
				m.vars = v
				return true
			}
		} else if m.extend(k+1, m.candidates(k+1, v), v) {
			return true
		}
		m.nodes = m.nodes[:k]
	}
	return false
}

// candidates are nodes that touch an edge or state that line k shares with earlier ones, by what leaves the fewest.
func (m *match) candidates(k int, vars binding) []int {
	for _, v := range m.pattern[k].out {
		if e, ok := vars.edges.get(v); ok {
			return []int{m.f.writer[e]}
		}
	}
	for _, v := range m.pattern[k].states {
		if s, ok := vars.states.get(v); ok {
			return m.f.touch[s]
		}
	}
	for _, v := range m.pattern[k].in {
		if e, ok := vars.edges.get(v); ok {
			return m.f.readers[e]
		}
	}
	return nil
}

// assign binds the variables of line k to the arrays of node c, whose op it is; false if they contradict.
func (m *match) assign(k, c int, vars *binding) bool {
	p, n := &m.pattern[k], m.f.in.Nodes[c]
	for i, v := range p.in {
		if !vars.edges.bind(v, n.In[i]) {
			return false
		}
	}
	for i, v := range p.out {
		if !vars.edges.bind(v, n.Out[i]) {
			return false
		}
	}
	for i, v := range p.weights {
		w := n.Weights[i]
		if v == "-" {
			if w >= 0 {
				return false
			}
			continue
		}
		arg := m.rule.kernel.Arg(v)
		if w < 0 && !arg.Optional || !vars.weights.bind(v, w) {
			return false
		}
		if w >= 0 && !slices.Contains(arg.DTypes, m.f.found[w].dtype) {
			m.refuse(k, c, &wrongType{m.rule.kernel, arg, m.f.in.Weights[w].Name, m.f.found[w].dtype})
			return false
		}
	}
	for i, v := range p.consts {
		if !vars.consts.bind(v, n.Consts[i]) {
			return false
		}
	}
	for i, v := range p.states {
		if !vars.states.bind(v, n.States[i]) {
			return false
		}
	}
	return true
}

// closed accepts a full assignment: attributes fit the kernel, edges that are no argument stay inside, and nothing outside
// lies between the nodes.
func (m *match) closed(vars binding) bool {
	if _, ok := launchAttrs(m.rule, m.f.in, m.nodes); !ok {
		return false
	}
	for k, c := range m.nodes {
		for i, v := range m.pattern[k].out {
			if b, ok := m.rule.Bind[v]; ok {
				v = b
			}
			if a := m.rule.kernel.Arg(v); a != nil && a.Kind == kernel.BufferArg && a.Access != "in" {
				continue
			}
			e := m.f.in.Nodes[c].Out[i]
			if m.f.in.isOutput(e) || slices.ContainsFunc(m.f.readers[e], func(r int) bool { return !slices.Contains(m.nodes, r) }) {
				return false
			}
		}
	}
	if m.f.cyclic(m.nodes) {
		return false
	}
	if err := m.takes(vars); err != nil {
		m.refuse(len(m.nodes), 0, err)
		return false
	}
	return true
}

// refuse notes why the kernel takes not what line k would have been, node c, of the pattern.
func (m *match) refuse(k, c int, err error) {
	if k > 0 {
		c = m.nodes[0]
	}
	m.f.refused[c] = err
}

// wrongType is that a kernel does not take an array's elements. Most of them nobody reads: another rule takes the node.
type wrongType struct {
	kernel *kernel.Kernel
	arg    *kernel.Arg
	array  string
	dtype  tensor.DType
}

func (e *wrongType) Error() string {
	return fmt.Sprintf("kernel %s: argument %s is %s of type %v; the kernel takes %v", e.kernel.Name, e.arg.Name, e.array, e.dtype, e.arg.DTypes)
}

// takes says whether the kernel lists the element types of the arrays and its conditions hold.
func (m *match) takes(vars binding) error {
	k := m.rule.kernel
	g := &group{rule: m.rule, nodes: m.nodes, vars: vars}
	types := make([]tensor.DType, len(k.Args)) // None: absent
	for i := range k.Args {
		a := &k.Args[i]
		x, ok := g.array(m.f.in, m.f.o, m.f.found, a)
		if !ok {
			continue
		}
		if !slices.Contains(a.DTypes, x.dtype) {
			return &wrongType{k, a, x.name, x.dtype}
		}
		types[i] = x.dtype
	}
	for i := range k.Args {
		a := &k.Args[i]
		if a.Like == "" || types[i] == tensor.None {
			continue
		}
		j := slices.IndexFunc(k.Args, func(x kernel.Arg) bool { return x.Name == a.Like })
		if j >= 0 && types[j] != tensor.None && types[i] != types[j] {
			return fmt.Errorf("kernel %s: argument %s is of type %v, %s of %v", k.Name, a.Name, types[i], a.Like, types[j])
		}
	}
	env := m.f.env
	clear(env.Sizes)
	clear(env.Names)
	if err := g.bind(env, m.f.in, m.f.o, m.f.found); err != nil {
		return err
	}
	if err := m.demands(env); err != nil {
		return err
	}
	for _, c := range k.Where {
		if ok, err := env.Holds(c); err != nil {
			return fmt.Errorf("kernel %s: %w", k.Name, err)
		} else if !ok {
			return fmt.Errorf("kernel %s needs %s", k.Name, c)
		}
	}
	return nil
}

// boundArray is what an argument of a group's kernel stands for.
type boundArray struct {
	name  string
	dtype tensor.DType
	axes  plan.Axes // of a state: of a token or slot
}

// array finds it; not ok for an argument that is absent, a constant, a step field or scratch.
func (g *group) array(in *Instance, o Options, found []stored, a *kernel.Arg) (x boundArray, ok bool) {
	switch a.Kind {
	case kernel.WeightArg:
		w, ok := g.vars.weights.get(a.Name)
		if !ok || w < 0 {
			return x, false
		}
		return boundArray{in.Weights[w].Name, found[w].dtype, toPlanAxes(in.Weights[w].Axes, o.Limits)}, true
	case kernel.StateArg:
		k, _ := g.vars.states.get(a.Name)
		s := &in.States[k]
		if x = (boundArray{s.Name, s.DType, s.Axes}); x.dtype == kvDType {
			x.dtype = o.KV
		}
		return x, true
	case kernel.BufferArg:
		e, ok := g.vars.edges.get(a.Name)
		for v, b := range g.rule.Bind { // an argument that only takes an output
			if !ok && b == a.Name {
				e, ok = g.vars.edges.get(v)
			}
		}
		if !ok {
			return x, false
		}
		return boundArray{in.Edges[e].Name, in.Edges[e].DType, toPlanAxes(in.Edges[e].Axes, o.Limits)}, true
	}
	return x, false
}

// env binds the names of the kernel's shapes.
func (g *group) env(in *Instance, o Options, found []stored) (*kernel.Env, error) {
	env := kernel.NewEnv(nil)
	return env, g.bind(env, in, o, found)
}

// bind is env in one that is empty.
func (g *group) bind(env *kernel.Env, in *Instance, o Options, found []stored) error {
	l := &o.Limits
	env.Sizes["page_size"], env.Sizes["pages"] = l.PageSize, l.Pages
	env.Sizes[plan.Rows], env.Sizes[plan.Seqs], env.Sizes[plan.Outs] = l.Rows, l.Seqs, l.Outs
	env.Names[plan.Rows], env.Names[plan.Seqs], env.Names[plan.Outs] = plan.Rows, plan.Seqs, plan.Outs
	attrs, _ := launchAttrs(g.rule, in, g.nodes)
	for _, a := range attrs {
		if a.Kind == plan.IntAttr {
			env.Sizes[a.Name] = a.Int
		}
	}
	var arrays []kernel.Array
	for i := range g.rule.kernel.Args {
		a := &g.rule.kernel.Args[i]
		if x, ok := g.array(in, o, found, a); ok {
			arrays = append(arrays, kernel.Array{Arg: a, Axes: fromPlanAxes(x.axes)})
		} else if c, ok := g.vars.consts.get(a.Name); ok {
			arrays = append(arrays, kernel.Array{Arg: a, Axes: []kernel.Axis{{Name: in.Consts[c].Name, Size: int64(len(in.Consts[c].Values))}}})
		}
	}
	if err := env.Unify(g.rule.kernel, arrays); err != nil {
		return fmt.Errorf("kernel %s: %w", g.rule.Kernel, err)
	}
	return nil
}

// cyclic says whether making one launch of the nodes would let it wait for itself.
func (f *fuser) cyclic(nodes []int) bool {
	// Nothing that starts behind the horizon leads back: execution order rises, and no group lies across it.
	horizon := slices.Max(nodes)
	for i := 0; i <= horizon; i++ {
		if g := f.groupOf[i]; g >= 0 {
			horizon = max(horizon, f.groups[g].order)
		}
	}
	seen := map[int]bool{}
	var stack []int
	push := func(from []int) {
		for _, n := range from {
			for _, s := range f.after[n] {
				if s <= horizon && !seen[s] && !slices.Contains(nodes, s) {
					seen[s] = true
					stack = append(stack, s)
				}
			}
		}
	}
	push(nodes)
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		unit := []int{n}
		if g := f.groupOf[n]; g >= 0 {
			unit = f.groups[g].nodes
		}
		for _, u := range unit {
			for _, s := range f.after[u] {
				if slices.Contains(nodes, s) {
					return true
				}
			}
		}
		push(unit)
	}
	return false
}

// schedule orders the groups: dependencies first, then the place of their last node.
func (f *fuser) schedule() ([]*group, error) {
	waits := make([]int, len(f.groups))
	next := make([][]int, len(f.groups))
	for n, list := range f.after {
		for _, s := range list {
			if a, b := f.groupOf[n], f.groupOf[s]; a != b {
				next[a] = append(next[a], b)
				waits[b]++
			}
		}
	}
	var ready []int
	for g := range f.groups {
		if waits[g] == 0 {
			ready = append(ready, g)
		}
	}
	var out []*group
	for len(ready) > 0 {
		best := 0
		for i, g := range ready {
			if f.groups[g].order < f.groups[ready[best]].order {
				best = i
			}
		}
		g := ready[best]
		ready = slices.Delete(ready, best, best+1)
		out = append(out, f.groups[g])
		for _, s := range next[g] {
			if waits[s]--; waits[s] == 0 {
				ready = append(ready, s)
			}
		}
	}
	if len(out) != len(f.groups) {
		return nil, fmt.Errorf("%d of %d groups wait for each other", len(f.groups)-len(out), len(f.groups))
	}
	return out, nil
}
