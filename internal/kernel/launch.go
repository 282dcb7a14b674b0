// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/tensor"
)

// Launch says how the driver starts a kernel. Expressions are over bound axes, integer attributes, LaunchNames and the
// module's constants (KERNEL.toml), which Load replaces by their values.
type Launch struct {
	// Module is "<family>/<file>" and Entry the symbol in it. {name.dtype} stands for an argument's element type ("none"
	// when absent), {name} for an attribute or a bound axis.
	Module string `toml:"module"`
	Entry  string `toml:"entry"`
	// Params are the entry's parameters in order:
	//
	//	name               an argument: 8-byte pointer, null when absent; an axis or integer attribute: int32; a float attribute: float32
	//	count:axis         8-byte pointer to the step's count in head of an axis that varies: int32 rows, seqs or outs
	//	i32:expr i64:expr  an integer expression
	//	tmap:arg:box:swz   a tensor map (128 bytes) over the argument: box as extents joined by x, outermost first, each a
	//	                   number or a name; swz is none, 32, 64 or 128 bytes; a state has one more axis, its tokens or slots, outermost;
	//	                   arg[a@s,b] is the argument seen as of other axes: a of them s values apart, by default as many as those inside have
	Params  []string `toml:"params"`
	Grid    []string `toml:"grid"`    // blocks along x, y, z; missing ones are 1
	Block   string   `toml:"block"`   // threads
	Shared  string   `toml:"shared"`  // dynamic shared bytes; 0 unless given
	Cluster int64    `toml:"cluster"` // blocks of a cluster along x; 1 unless given
	PDL     bool     `toml:"pdl"`     // programmatic stream serialization: the kernel waits for its predecessor by itself
	// Resident says that blocks wait for each other, so that a device on which the grid does not run all at once is refused.
	Resident bool `toml:"resident"`
	// Carveout is the percentage of a multiprocessor's L1 that is shared memory while blocks run, or more where they need it; 0: the
	// driver's choice. Launches of one carveout come up beside each other; where it changes, a multiprocessor first runs empty.
	Carveout int64 `toml:"carveout"`

	// Ceilings of the entries, enforced when the module is built.
	Registers    int  `toml:"registers"`
	SpillBytes   *int `toml:"spill_bytes"`
	StaticShared *int `toml:"static_shared"`
}

// Tolerance bounds |x - reference| by Abs + Rel*|reference|; Why derives it. The reference reads the arguments of Rounded rounded to
// bf16, as the kernel does by itself, so that the bound need not cover what this rounding moves.
type Tolerance struct {
	Abs     float64  `toml:"abs"`
	Rel     float64  `toml:"rel"`
	Rounded []string `toml:"rounded"`
	Over    int64    `toml:"over"` // of Kernel.Many
	Why     string   `toml:"why"`
}

// LaunchNames are what launch expressions may use besides axes and attributes: the row bucket's upper bounds, the KV cache's
// page size in tokens and most pages of a sequence, and the device's multiprocessors.
var LaunchNames = []string{"rows", "seqs", "outs", "page_size", "pages", "sms"}

// Bits behind a weight's name is how many whole bits one of its elements takes (tensor.DType.Bits), in launch expressions: w_bits.
const Bits = "_bits"

// Expressions are grid x, y, z, block and shared bytes.
func (l *Launch) Expressions() []string {
	out := []string{"1", "1", "1", l.Block, l.Shared}
	copy(out, l.Grid)
	return out
}

// Launches are all launches of a kernel, in order.
func (k *Kernel) Launches() []*Launch {
	if k.Launch == nil {
		return nil
	}
	return append([]*Launch{k.Launch}, k.Then...)
}

// launchKey is the key of launch i in the manifest.
func (k *Kernel) launchKey(i int) string {
	if i == 0 {
		return k.at + ".launch"
	}
	return k.at + ".then." + strconv.Itoa(i-1)
}

// Expressions are those of all launches: what a plan carries.
func (k *Kernel) Expressions() (out []string) {
	for _, l := range k.Launches() {
		out = append(out, l.Expressions()...)
	}
	return out
}

// Expand replaces each {name} of text by what lookup gives for it.
func Expand(text string, lookup func(name string) (string, error)) (string, error) {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "{")
		b.WriteString(before)
		if !ok {
			return b.String(), nil
		}
		name, after, ok := strings.Cut(rest, "}")
		if !ok {
			return "", fmt.Errorf("%q: { without }", text)
		}
		v, err := lookup(name)
		if err != nil {
			return "", err
		}
		b.WriteString(v)
		text = after
	}
}

// ParamKind is the form of an entry's parameter.
type ParamKind uint8

const (
	PointerParam ParamKind = iota
	CountParam             // pointer to a count of the step
	IntParam               // int32
	LongParam              // int64
	FloatParam             // float32
	MapParam               // tensor map
)

// Size is the parameter's size in bytes.
func (k ParamKind) Size() int { return [...]int{8, 8, 4, 8, 4, 128}[k] }

// LaunchParam is an entry of Launch.Params, read.
type LaunchParam struct {
	Kind    ParamKind
	Arg     string   // of a pointer or tensor map
	View    []string // extents that a tensor map sees instead of its argument's
	Strides []string // values from one to the next of each, "" what those inside have
	Attr    string   // of a float
	Axis    string   // of a count
	Expr    string   // of an integer
	Box     []string // of a tensor map
	Swizzle int      // bytes, 0 none
}

// Param reads an entry of Launch.Params.
func (k *Kernel) Param(text string) (LaunchParam, error) {
	kind, rest, typed := strings.Cut(text, ":")
	switch {
	case typed && kind == "count":
		return LaunchParam{Kind: CountParam, Axis: rest}, k.checkCount(rest)
	case typed && kind == "i32":
		return LaunchParam{Kind: IntParam, Expr: rest}, k.CheckExpr(rest)
	case typed && kind == "i64":
		return LaunchParam{Kind: LongParam, Expr: rest}, k.CheckExpr(rest)
	case typed && kind == "tmap":
		return k.mapParam(rest)
	case typed:
		return LaunchParam{}, fmt.Errorf("parameter %q: the prefix is count, i32, i64 or tmap", text)
	case k.Arg(text) != nil:
		return LaunchParam{Kind: PointerParam, Arg: text}, nil
	}
	if a := k.Attr(text); a != nil && a.Type == "float" {
		return LaunchParam{Kind: FloatParam, Attr: text}, nil
	} else if a != nil && a.Type == "str" {
		return LaunchParam{}, fmt.Errorf("parameter %q: a string attribute chooses the entry and is not passed", text)
	}
	return LaunchParam{Kind: IntParam, Expr: text}, k.CheckExpr(text)
}

func (k *Kernel) mapParam(text string) (LaunchParam, error) {
	parts := strings.Split(text, ":")
	name, view, seen := strings.Cut(parts[0], "[")
	arg := k.Arg(name)
	if len(parts) != 3 || arg == nil || seen && (!strings.HasSuffix(view, "]") || arg.Kind == StateArg) {
		return LaunchParam{}, fmt.Errorf("parameter %q: a tensor map is tmap:argument:box:swizzle", "tmap:"+text)
	}
	p := LaunchParam{Kind: MapParam, Arg: name, Box: strings.Split(parts[1], "x")}
	rank := len(arg.Shape)
	if arg.Kind == StateArg {
		rank++
	}
	if seen {
		for axis := range strings.SplitSeq(strings.TrimSuffix(view, "]"), ",") {
			extent, stride, apart := strings.Cut(axis, "@")
			p.View, p.Strides = append(p.View, extent), append(p.Strides, stride)
			if err := k.CheckExpr(stride); apart && err != nil {
				return p, err
			}
		}
		rank = len(p.View)
	}
	if parts[2] != "none" {
		p.Swizzle, _ = strconv.Atoi(parts[2])
		if p.Swizzle != 32 && p.Swizzle != 64 && p.Swizzle != 128 {
			return p, fmt.Errorf("parameter %q: swizzle is none, 32, 64 or 128", "tmap:"+text)
		}
	}
	if len(p.Box) != rank {
		return p, fmt.Errorf("parameter %q: a box of %d extents over %d axes", "tmap:"+text, len(p.Box), rank)
	}
	for _, b := range slices.Concat(p.View, p.Box) {
		if err := k.CheckExpr(b); err != nil {
			return p, err
		}
	}
	return p, nil
}

// checkLaunch refuses a launch that no binding could satisfy.
func (k *Kernel) checkLaunch() error {
	for i, c := range k.Where {
		left, _, right, err := splitCondition(c)
		for _, x := range []string{left, right} {
			if err == nil {
				err = k.CheckExpr(x)
			}
		}
		if err != nil {
			return k.file.Errorf(k.at+".where."+strconv.Itoa(i), "kernel %s: %s", k.Name, err)
		}
	}
	if err := k.checkTolerance("tolerance", k.Tolerance); err != nil {
		return err
	}
	if k.Tolerance != nil && k.Tolerance.Over != 0 || k.Many != nil && (k.Many.Over < 1 || k.Tolerance == nil) {
		return k.file.Errorf(k.at+".tolerance", "kernel %s: tolerance_many, beside a tolerance, says over how many rows it holds", k.Name)
	}
	if err := k.checkTolerance("tolerance_many", k.Many); err != nil {
		return err
	}
	if len(k.Then) > 0 && k.Launch == nil {
		return k.file.Errorf(k.at+".then", "kernel %s: [[kernel.then]] follows a [kernel.launch]", k.Name)
	}
	passed := map[string]bool{}
	for i, l := range k.Launches() {
		if err := k.checkOne(l, k.launchKey(i), passed); err != nil {
			return err
		}
	}
	for _, a := range k.Args {
		if k.Launch != nil && a.Access != "in" && !passed[a.Name] {
			return k.file.Errorf(k.at+".launch.params", "kernel %s: no parameter passes %s, which the kernel writes", k.Name, a.Name)
		}
	}
	return nil
}

// checkOne refuses a launch that no binding could satisfy, and notes the arguments that it passes.
func (k *Kernel) checkOne(l *Launch, at string, passed map[string]bool) error {
	if l.Shared == "" {
		l.Shared = "0"
	}
	if l.Cluster == 0 {
		l.Cluster = 1
	}
	fail := func(key string, err error) error {
		return k.file.Errorf(at+"."+key, "kernel %s: %s", k.Name, err)
	}
	module, err := Expand(l.Module, k.checkPlaceholder)
	if err != nil {
		return fail("module", fmt.Errorf("module is %q: %w", l.Module, err))
	}
	if family, file, ok := strings.Cut(module, "/"); !ok || family == "" || file == "" || strings.ContainsAny(file, "/.") {
		return fail("module", fmt.Errorf("module is %q; it is <family>/<file> without an ending", l.Module))
	}
	if entry, err := Expand(l.Entry, k.checkPlaceholder); err != nil {
		return fail("entry", fmt.Errorf("entry is %q: %w", l.Entry, err))
	} else if entry == "" {
		return fail("entry", fmt.Errorf("there is no entry"))
	}
	for i, text := range l.Params {
		p, err := k.Param(text)
		if err != nil {
			return fail("params."+strconv.Itoa(i), err)
		}
		passed[p.Arg] = true
	}
	if len(l.Grid) < 1 || len(l.Grid) > 3 || l.Cluster < 1 || l.Cluster > 16 {
		return fail("grid", fmt.Errorf("a grid has 1 to 3 extents and clusters of 1 to 16 blocks"))
	}
	for i, x := range l.Expressions() {
		if err := k.CheckExpr(x); err != nil {
			return fail([]string{"grid", "grid", "grid", "block", "shared"}[i], err)
		}
	}
	switch {
	case l.Carveout < 0 || l.Carveout > 100:
		return fail("carveout", fmt.Errorf("carveout is 0 to 100 percent, not %d", l.Carveout))
	case l.Registers < 0:
		return fail("registers", fmt.Errorf("a ceiling is not negative"))
	case l.SpillBytes != nil && *l.SpillBytes < 0:
		return fail("spill_bytes", fmt.Errorf("a ceiling is not negative"))
	case l.StaticShared != nil && *l.StaticShared < 0:
		return fail("static_shared", fmt.Errorf("a ceiling is not negative"))
	}
	return nil
}

func (k *Kernel) checkTolerance(key string, t *Tolerance) error {
	if t == nil {
		return nil
	}
	finite := func(v float64) bool { return v >= 0 && v <= math.MaxFloat64 }
	if !finite(t.Abs) || !finite(t.Rel) || t.Why == "" {
		return k.file.Errorf(k.at+"."+key, "kernel %s: a tolerance has abs and rel, numbers of at least 0, and says why", k.Name)
	}
	for _, name := range t.Rounded {
		if a := k.Arg(name); a == nil || a.Kind != BufferArg || a.Access != "in" || !slices.Equal(a.DTypes, []tensor.DType{tensor.F32}) {
			return k.file.Errorf(k.at+"."+key+".rounded", "kernel %s: %q is no float32 buffer that the kernel reads", k.Name, name)
		}
	}
	return nil
}

// checkCount makes sure that an axis is bound by an array.
func (k *Kernel) checkCount(axis string) error {
	for i := range k.Args {
		if slices.Contains(k.Args[i].Shape, axis) {
			return nil
		}
	}
	if slices.Contains([]string{"rows", "seqs", "outs"}, axis) {
		return nil
	}
	return fmt.Errorf("count of %q, which is no axis", axis)
}

// checkPlaceholder accepts what Launch documents and gives something of its kind.
func (k *Kernel) checkPlaceholder(name string) (string, error) {
	if arg, ok := strings.CutSuffix(name, ".dtype"); ok {
		if k.Arg(arg) == nil {
			return "", fmt.Errorf("{%s} names no argument", name)
		}
		return "f32", nil
	}
	if a := k.Attr(name); a != nil && a.Type != "float" {
		return "1", nil
	}
	return "1", k.CheckExpr(name)
}

// CheckExpr makes sure that an expression parses and that all its names can be bound.
func (k *Kernel) CheckExpr(expr string) error {
	names, err := tensor.Names(expr)
	if err != nil {
		return err
	}
	for _, n := range names {
		a := k.Attr(n)
		_, known := k.constants[n]
		known = known || a != nil && a.Type == "int" || slices.Contains(LaunchNames, n)
		for i := range k.Args {
			known = known || slices.Contains(k.Args[i].Shape, n) || k.Args[i].Kind == WeightArg && n == k.Args[i].Name+Bits
		}
		if !known {
			return fmt.Errorf("expression %q: no axis, int attribute or launch name is called %s", expr, n)
		}
	}
	return nil
}

// splitCondition cuts "K % 64 == 0".
func splitCondition(c string) (left, op, right string, err error) {
	for _, op := range []string{"==", "!=", "<=", ">=", "<", ">"} {
		if l, r, ok := strings.Cut(c, op); ok {
			return strings.TrimSpace(l), op, strings.TrimSpace(r), nil
		}
	}
	return "", "", "", fmt.Errorf("condition %q has no == != <= >= < >", c)
}

// Holds evaluates a condition as "K % 64 == 0".
func (e *Env) Holds(condition string) (bool, error) {
	left, op, right, err := splitCondition(condition)
	if err != nil {
		return false, err
	}
	a, err := tensor.Eval(left, e.Sizes)
	if err != nil {
		return false, err
	}
	b, err := tensor.Eval(right, e.Sizes)
	if err != nil {
		return false, err
	}
	switch op {
	case "==":
		return a == b, nil
	case "!=":
		return a != b, nil
	case "<=":
		return a <= b, nil
	case ">=":
		return a >= b, nil
	case "<":
		return a < b, nil
	}
	return a > b, nil
}

// checkReferences makes sure that every reference is a kernel of the class cpu that takes the same arguments. Fields of the step
// block may differ: they are there for any kernel.
func (t *Tree) checkReferences() error {
	cpu := t.Classes["cpu"]
	if cpu == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(t.Classes)) {
		for _, k := range sortedKernels(t.Classes[name].Kernels) {
			if k.Reference == "" {
				continue
			}
			ref := cpu.Kernels[k.Reference]
			if ref == nil {
				return k.file.Errorf(k.at+".reference", "kernel %s: the class cpu has no kernel %q", k.Name, k.Reference)
			}
			for _, a := range k.Args {
				if a.Kind != ScratchArg && a.Kind != StepArg && ref.Arg(a.Name) == nil {
					return k.file.Errorf(k.at+".reference", "kernel %s: its reference %s has no argument %s", k.Name, k.Reference, a.Name)
				}
			}
		}
	}
	return nil
}
