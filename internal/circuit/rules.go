// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
)

// Rule lowers an op pattern to a kernel. It is written as
//
//	match = ["d = linear(x)", "y2 = add(y, d)"]
//	bind  = { y2 = "y" }
//
// Each line is a node: outputs = op(inputs…, name=value…). Weights, constants and states that are not named are
// variables of their port's name; port=- demands that there is none, and stands for an optional weight that is not named and
// no argument of the kernel. A variable that is an argument of the kernel is bound to it; bind names the argument of an output
// that overwrites an input. Every other output stays inside the group, so all its readers must be in it. With repeat, # in a
// line is the number of the copy, from 0.
//
// An op's attribute is the kernel's attribute of that name. A line may name another one, attr=name; demand its default, attr=-,
// a word, act=silu, or an integer over the kernel's axes and attributes, group=K. attrs gives attributes that no op has.
type Rule struct {
	Name      string            `toml:"name"`
	Kernel    string            `toml:"kernel"`
	Priority  int               `toml:"priority"` // higher is tried first; reference rules have 0
	Numerics  plan.Numerics     `toml:"numerics"`
	Microtest string            `toml:"microtest"` // of bit_identical: the test that compares the bytes
	Lever     string            `toml:"lever"`     // of differs: the setting that opts in
	Settings  map[string]string `toml:"settings"`
	Rows      *RowRange         `toml:"rows"` // of the plan's bucket
	Match     []string          `toml:"match"`
	Bind      map[string]string `toml:"bind"`
	Attrs     map[string]any    `toml:"attrs"` // of the kernel: integers, numbers, words
	Repeat    *Repeat           `toml:"repeat"`

	kernel   *kernel.Kernel
	demands  bool                  // some line demands an integer
	patterns map[int][]patternNode // by number of copies; 1 without repeat
}

// RowRange limits the row buckets that a rule serves; 0 is open.
type RowRange struct {
	Min int64 `toml:"min"`
	Max int64 `toml:"max"`
}

// Repeat copies the (only) line of match.
type Repeat struct {
	Min   int    `toml:"min"`
	Max   int    `toml:"max"`
	Count string `toml:"count"` // the kernel's attribute that gets the number of copies
}

// patternNode is a parsed line.
type patternNode struct {
	op      *Op
	in, out []string
	weights []string // "-" none may be
	consts  []string
	states  []string
	attrs   map[string]string // what the line says of attributes
}

// rulesFile is a FUSIONS.toml.
type rulesFile struct {
	// Defaults are what its rules say where they say nothing.
	Defaults struct {
		Numerics plan.Numerics     `toml:"numerics"`
		Lever    string            `toml:"lever"`
		Settings map[string]string `toml:"settings"`
	} `toml:"defaults"`
	Rules []*Rule `toml:"rule"`
}

// complete gives a rule the file's defaults.
func (f *rulesFile) complete(r *Rule) {
	if r.Numerics == "" {
		r.Numerics, r.Lever = f.Defaults.Numerics, cmp.Or(r.Lever, f.Defaults.Lever)
	}
	if r.Settings == nil {
		r.Settings = f.Defaults.Settings
	}
}

// loadRules reads a class's rules, its own before its ancestors'; a name that is there already is overridden.
func loadRules(fsys fs.FS, class *kernel.Class) ([]*Rule, error) {
	var rules []*Rule
	seen := map[string]string{} // class that has a rule of that name
	for _, name := range class.Fusions {
		var doc rulesFile
		f, err := kernel.ReadTOML(fsys, name, &doc)
		if err != nil {
			return nil, err
		}
		owner, _, _ := strings.Cut(name, "/")
		for i, r := range doc.Rules {
			if r.Name == "" || seen[r.Name] == owner {
				return nil, f.Errorf("rule."+strconv.Itoa(i), "rule %q has no name of its own", r.Name)
			}
			if seen[r.Name] != "" {
				continue
			}
			seen[r.Name] = owner
			doc.complete(r)
			if key, err := r.compile(class); err != nil {
				return nil, f.Errorf("rule."+strconv.Itoa(i)+key, "rule %s: %s", r.Name, err)
			}
			rules = append(rules, r)
		}
	}
	slices.SortStableFunc(rules, func(a, b *Rule) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})
	for _, op := range slices.Sorted(maps.Keys(sigma)) {
		if !class.Partial && !slices.ContainsFunc(rules, func(r *Rule) bool { return r.isReference(op) }) {
			return nil, diag.Errorf(diag.Format, "class %s has no reference rule for op %s", class.Name, op).At(diag.Pos{File: class.Fusions[0]})
		}
	}
	return rules, nil
}

// isReference says whether the rule lowers that op alone, under all settings.
func (r *Rule) isReference(op string) bool {
	p := r.patterns[1]
	return r.Numerics == plan.Reference && len(p) == 1 && p[0].op.Name == op && len(r.Settings) == 0 && r.Rows == nil
}

// knownSettings are what rules may ask for: LowerWired sets each to one of its words.
var knownSettings = map[string][]string{"fuse": {"on", "off"}, "compute": {Float32, Declared}}

// checkConditions refuses what could never hold, so that a misspelt rule is not silently out of use; key is the TOML key at fault.
func (r *Rule) checkConditions() (key string, err error) {
	for _, name := range slices.Sorted(maps.Keys(r.Settings)) {
		words, ok := knownSettings[name]
		if !ok {
			return ".settings." + name, fmt.Errorf("there is no setting %s; there are %s", name, strings.Join(slices.Sorted(maps.Keys(knownSettings)), ", "))
		}
		if !slices.Contains(words, r.Settings[name]) {
			return ".settings." + name, fmt.Errorf("setting %s is never %q; it is %s", name, r.Settings[name], strings.Join(words, " or "))
		}
	}
	if l := r.Rows; l != nil && (l.Min < 0 || l.Max < 0 || l.Max > 0 && l.Max < l.Min) {
		return ".rows", fmt.Errorf("no plan has rows from %d to %d", l.Min, l.Max)
	}
	return "", nil
}

// compile parses and checks a rule; key is the TOML key at fault.
func (r *Rule) compile(class *kernel.Class) (key string, err error) {
	if r.kernel = class.Kernels[r.Kernel]; r.kernel == nil {
		return ".kernel", fmt.Errorf("class %s has no kernel %q", class.Name, r.Kernel)
	}
	switch r.Numerics {
	case plan.Reference:
	case plan.BitIdentical:
		if r.Microtest == "" {
			return ".numerics", fmt.Errorf("bit_identical needs the microtest that shows it")
		}
	case plan.Differs:
		if r.Lever == "" {
			return ".numerics", fmt.Errorf("differs needs its lever")
		}
	default:
		return ".numerics", fmt.Errorf("numerics is %q; it is reference, bit_identical or differs", r.Numerics)
	}
	if key, err := r.checkConditions(); err != nil {
		return key, err
	}
	lo, hi := 1, 1
	if r.Repeat != nil {
		if lo, hi = r.Repeat.Min, r.Repeat.Max; lo < 1 || hi < lo || hi > 16 || len(r.Match) != 1 {
			return ".repeat", fmt.Errorf("repeat copies one line, min to max times")
		}
		if a := r.kernel.Attr(r.Repeat.Count); r.Repeat.Count != "" && (a == nil || a.Type != "int") {
			return ".repeat.count", fmt.Errorf("kernel %s has no integer attribute %s", r.Kernel, r.Repeat.Count)
		}
	}
	if len(r.Match) == 0 {
		return ".match", fmt.Errorf("no pattern")
	}
	r.patterns = map[int][]patternNode{}
	for n := lo; n <= hi; n++ {
		for i := range n {
			for _, line := range r.Match {
				p, err := parsePattern(strings.ReplaceAll(line, "#", strconv.Itoa(i)), r.kernel)
				if err != nil {
					return ".match", fmt.Errorf("%q: %w", line, err)
				}
				r.patterns[n] = append(r.patterns[n], p)
			}
		}
		if err := r.checkArgs(r.patterns[n]); err != nil {
			return "", err
		}
	}
	return r.checkBind(r.patterns[hi])
}

// checkBind makes sure that what bind says is of an output and of an argument that the kernel writes, one each.
func (r *Rule) checkBind(nodes []patternNode) (key string, err error) {
	outs, taken := map[string]bool{}, map[string]string{}
	for _, n := range nodes {
		mark(outs, n.out)
	}
	for _, v := range slices.Sorted(maps.Keys(r.Bind)) {
		to := r.Bind[v]
		a := r.kernel.Arg(to)
		switch {
		case !outs[v]:
			return ".bind." + v, fmt.Errorf("no line gives %s", v)
		case a == nil || a.Kind != kernel.BufferArg || a.Access == "in":
			return ".bind." + v, fmt.Errorf("%s is no argument that kernel %s writes", to, r.Kernel)
		case taken[to] != "":
			return ".bind." + v, fmt.Errorf("argument %s is bound to %s already", to, taken[to])
		}
		taken[to] = v
	}
	return "", nil
}

// checkArgs makes sure that every argument and attribute of the kernel has a source.
func (r *Rule) checkArgs(nodes []patternNode) error {
	reads, writes, given := map[string]bool{}, map[string]bool{}, map[string]bool{}
	weights, consts, states := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, n := range nodes {
		mark(given, n.out)
	}
	for _, n := range nodes {
		for _, v := range n.in {
			if !given[v] {
				reads[v] = true
			}
		}
		for _, v := range n.out {
			if b, ok := r.Bind[v]; ok {
				v = b
			}
			writes[v] = true
		}
		mark(weights, n.weights)
		mark(consts, n.consts)
		mark(states, n.states)
	}
	for _, a := range r.kernel.Args {
		ok := true
		switch a.Kind {
		case kernel.BufferArg:
			ok = (a.Access == "out" || reads[a.Name]) && (a.Access == "in" || writes[a.Name])
		case kernel.WeightArg:
			ok = weights[a.Name]
		case kernel.ConstArg:
			ok = consts[a.Name]
		case kernel.StateArg:
			ok = states[a.Name]
		case kernel.ScratchArg:
		}
		if !ok && !a.Optional {
			return fmt.Errorf("argument %s of kernel %s (%s %s) has no variable", a.Name, r.Kernel, a.Access, a.Kind)
		}
	}
	for _, v := range slices.Sorted(maps.Keys(reads)) {
		if a := r.kernel.Arg(v); a == nil || a.Kind != kernel.BufferArg || a.Access == "out" {
			return fmt.Errorf("input %s is no argument that kernel %s reads", v, r.Kernel)
		}
	}
	for _, of := range []struct {
		what string
		kind kernel.ArgKind
		vars map[string]bool
	}{{"weight", kernel.WeightArg, weights}, {"constant", kernel.ConstArg, consts}, {"state", kernel.StateArg, states}} {
		for _, v := range slices.Sorted(maps.Keys(of.vars)) {
			if a := r.kernel.Arg(v); v != "-" && (a == nil || a.Kind != of.kind) {
				return fmt.Errorf("%s %s is no argument of kernel %s", of.what, v, r.Kernel)
			}
		}
	}
	return r.checkAttrs(nodes)
}

func mark(set map[string]bool, names []string) {
	for _, n := range names {
		set[n] = true
	}
}

// parsePattern reads "a, b = op(x, y, port=var)" of a rule of kernel k; the outputs may be left out with their "=".
func parsePattern(line string, k *kernel.Kernel) (patternNode, error) {
	var n patternNode
	head, args, ok := strings.Cut(line, "(")
	if !ok || !strings.HasSuffix(args, ")") {
		return n, fmt.Errorf("no op(…)")
	}
	name := strings.TrimSpace(head)
	if outs, op, ok := strings.Cut(head, "="); ok {
		n.out, name = list(outs), strings.TrimSpace(op)
	}
	if n.op, ok = LookupOp(name); !ok {
		return n, fmt.Errorf("%q is no op", name)
	}
	named := map[string]string{}
	for _, a := range list(strings.TrimSuffix(args, ")")) {
		if port, v, ok := strings.Cut(a, "="); ok {
			named[strings.TrimSpace(port)] = strings.TrimSpace(v)
		} else {
			n.in = append(n.in, a)
		}
	}
	fill := func(ports []port) (vars []string) {
		for _, p := range ports {
			v, ok := named[p.name]
			if !ok {
				if v = p.name; p.optional && k.Arg(v) == nil {
					v = "-"
				}
			}
			delete(named, p.name)
			vars = append(vars, v)
		}
		return vars
	}
	n.weights, n.consts, n.states = fill(n.op.weights), fill(n.op.consts), fill(n.op.states)
	for name, v := range named {
		if n.op.attr(name) != nil {
			if n.attrs == nil {
				n.attrs = map[string]string{}
			}
			n.attrs[name] = v
			delete(named, name)
		}
	}
	if len(n.in) != len(n.op.in) || len(n.out) != len(n.op.out) || len(named) > 0 {
		return n, fmt.Errorf("the op is %s", n.op.Signature())
	}
	return n, nil
}

func list(s string) []string {
	var out []string
	for _, w := range strings.Split(s, ",") {
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}
