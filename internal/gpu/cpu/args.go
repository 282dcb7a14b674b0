// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"fmt"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/gpu/cpu/vec"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// args checks one binding while a kernel's binder takes its arguments and attributes. The first fault wins; after it, every
// getter gives zero values, so binders read straight on and ask finish once.
type args struct {
	dev    *Device
	b      *gpu.Binding
	err    error
	params map[string]plan.Access // that the kernel has, as its binder asks for them
	attrs  map[string]bool
	head   []int32
}

func newArgs(d *Device, b *gpu.Binding) *args {
	return &args{dev: d, b: b, params: map[string]plan.Access{}, attrs: map[string]bool{}}
}

// positions of the counts in the step block's head.
var headIndex = map[string]int{plan.Rows: 0, plan.Seqs: 1, plan.Outs: 2}

// fail notes a fault of the launch itself, or of the named param.
func (a *args) fail(param, format string, v ...any) {
	if a.err != nil {
		return
	}
	where := fmt.Sprintf("launch %s (%s)", a.b.Name, a.b.Kernel)
	if param != "" {
		where += ", argument " + param
	}
	a.err = diag.Errorf(diag.Internal, "%s: %s", where, fmt.Sprintf(format, v...)).For(param)
}

// finish checks that nothing was bound that the kernel does not take and that nothing written overlaps something else.
// Pairs of params in same may be one array: y0, x0, y1, x1, …
func (a *args) finish(same ...string) {
	for _, x := range a.b.Attrs {
		if !a.attrs[x.Name] {
			a.fail("", "the kernel has no attribute %q", x.Name)
		}
	}
	for i, x := range a.b.Args {
		if _, ok := a.params[x.Param]; !ok {
			a.fail(x.Param, "the kernel has no such parameter")
		}
		for _, y := range a.b.Args[:i] {
			if x.Param == y.Param {
				a.fail(x.Param, "bound twice")
			}
			if x.Access == plan.In && y.Access == plan.In || !overlap(x, y) {
				continue
			}
			if !(x.Off == y.Off && allowed(same, x.Param, y.Param)) {
				a.fail(x.Param, "overlaps argument %s", y.Param)
			}
		}
	}
}

func allowed(same []string, x, y string) bool {
	for i := 0; i+1 < len(same); i += 2 {
		if same[i] == x && same[i+1] == y || same[i] == y && same[i+1] == x {
			return true
		}
	}
	return false
}

func overlap(x, y gpu.Arg) bool {
	return x.Buf == y.Buf && x.Off < y.Off+argBytes(y) && y.Off < x.Off+argBytes(x)
}

// argBytes is the size of an argument that is stored as its dtype says.
func argBytes(x gpu.Arg) int64 { return x.DType.Bytes(x.Axes.Shape().Elems()) }

// take finds an argument and checks its access and that this device has its buffer.
func (a *args) take(param string, access plan.Access) (gpu.Arg, bool) {
	a.params[param] = access
	x, ok := a.b.Arg(param)
	switch buf, mine := x.Buf.(*buffer); {
	case a.err != nil:
		return x, false
	case !ok:
		a.fail(param, "missing")
	case !mine || buf.data == nil:
		a.fail(param, "its buffer is not live memory of this device")
	case x.Access != access:
		a.fail(param, "access %s, the kernel's is %s", accessNames[x.Access], accessNames[access])
	case x.Off < 0 || x.Off%4 != 0:
		a.fail(param, "offset %d is not on an element", x.Off)
	default:
		return x, true
	}
	return x, false
}

var accessNames = [...]string{plan.In: "in", plan.Out: "out", plan.InOut: "inout"}

// bytes are the memory of an argument, need bytes long.
func (a *args) bytes(x gpu.Arg, need int64) []byte {
	data := x.Buf.(*buffer).data
	if x.Off > int64(len(data)) || need > int64(len(data))-x.Off {
		a.fail(x.Param, "%v%s takes %d bytes at %d of a buffer of %d", x.DType, axesString(x.Axes), need, x.Off, len(data))
		return nil
	}
	return data[x.Off : x.Off+need : x.Off+need]
}

// stored gives an argument's elements as T after checking dtype and layout "".
func stored[T any](a *args, x gpu.Arg, d tensor.DType) []T {
	if x.DType != d || x.Layout != "" && !(x.Layout == "f32" && d == tensor.F32) {
		a.fail(x.Param, "%v in layout %q, the kernel takes %v as it is", x.DType, x.Layout, d)
		return nil
	}
	return view[T](a.bytes(x, argBytes(x)))
}

// extent is a count that varies from step to step.
type extent struct {
	head  []int32
	index int
	max   int
}

// rows is the count in this step.
func (e extent) rows() int {
	n := int(e.head[e.index])
	if n < 0 || n > e.max {
		panic(fmt.Sprintf("step has %d in place %d of its head, the plan's bound is %d", n, e.index, e.max))
	}
	return n
}

// steps takes the argument head, which every kernel has.
func (a *args) steps() {
	if x, ok := a.take("head", plan.In); ok {
		if a.head = stored[int32](a, x, tensor.I32); len(a.head) < 3 {
			a.fail("head", "%d elements, want at least 3", len(a.head))
		}
	}
}

// matrix is float32 activations [rows, n] with rows varying.
type matrix struct {
	extent
	axis string
	data []float32
	n    int // all axes but the leading one
}

// row is row i.
func (m *matrix) row(i int) []float32 { return m.data[i*m.n : (i+1)*m.n] }

// acts takes activations. The leading axis is rows or outs; n is their width, or 0 for any.
func (a *args) acts(param string, access plan.Access, n int) matrix {
	x, ok := a.take(param, access)
	if !ok {
		return matrix{}
	}
	if len(x.Axes) < 2 || x.Axes[0].Name != plan.Rows && x.Axes[0].Name != plan.Outs {
		a.fail(param, "axes %s, want [rows, n] or [outs, n]", axesString(x.Axes))
		return matrix{}
	}
	m := matrix{axis: x.Axes[0].Name, n: int(x.Axes[1:].Shape().Elems()), data: stored[float32](a, x, tensor.F32)}
	m.extent = extent{head: a.head, index: headIndex[m.axis], max: int(x.Axes[0].Size)}
	if m.n <= 0 || n > 0 && m.n != n {
		a.fail(param, "axes %s are %d wide, want %d", axesString(x.Axes), m.n, n)
	}
	return m
}

// actsLike takes activations whose leading axis is that of m.
func (a *args) actsLike(m matrix, param string, access plan.Access, n int) matrix {
	o := a.acts(param, access, n)
	if a.err == nil && (o.axis != m.axis || o.max != m.max) {
		a.fail(param, "leading axis %s of %d, other arguments have %s of %d", o.axis, o.max, m.axis, m.max)
	}
	return o
}

// ints takes a field of the step block of at least n elements.
func (a *args) ints(param string, n int64) []int32 {
	x, ok := a.take(param, plan.In)
	if !ok {
		return nil
	}
	v := stored[int32](a, x, tensor.I32)
	if int64(len(v)) < n {
		a.fail(param, "%d elements, want %d", len(v), n)
	}
	return v
}

// floats takes a weight or constant of n float32.
func (a *args) floats(param string, n int) []float32 {
	x, ok := a.take(param, plan.In)
	if !ok {
		return nil
	}
	v := stored[float32](a, x, tensor.F32)
	if a.err == nil && len(v) != n {
		a.fail(param, "axes %s, want %d elements", axesString(x.Axes), n)
	}
	return v
}

// optFloats is floats for an optional argument; nil when it is not bound.
func (a *args) optFloats(param string, n int) []float32 {
	if _, ok := a.b.Arg(param); !ok {
		a.params[param] = plan.In
		return nil
	}
	return a.floats(param, n)
}

// divides gives n/part and faults param if that leaves a rest.
func (a *args) divides(param string, n, part int) int {
	if a.err == nil && (part <= 0 || n%part != 0) {
		a.fail(param, "width %d is not a multiple of %d", n, part)
	}
	if a.err != nil {
		return 1
	}
	return n / part
}

// attr finds an attribute of one of the kinds.
func (a *args) attr(name string, kinds ...plan.AttrKind) (plan.Attr, bool) {
	a.attrs[name] = true
	for _, x := range a.b.Attrs {
		if x.Name == name {
			if !slices.Contains(kinds, x.Kind) {
				a.fail("", "attribute %s is of the wrong kind", name)
			}
			return x, true
		}
	}
	return plan.Attr{}, false
}

// size is a positive integer attribute. Without otherwise it is required.
func (a *args) size(name string, otherwise ...int) int {
	v := a.int(name, otherwise...)
	if a.err == nil && v <= 0 {
		a.fail("", "attribute %s is %d, want a positive size", name, v)
	}
	if a.err != nil {
		return 1
	}
	return v
}

// int is a non-negative integer attribute. Without otherwise it is required.
func (a *args) int(name string, otherwise ...int) int {
	x, ok := a.attr(name, plan.IntAttr)
	switch {
	case ok:
		if x.Int < 0 || x.Int > 1<<40 {
			a.fail("", "attribute %s is %d", name, x.Int)
		}
		return int(x.Int)
	case len(otherwise) > 0:
		return otherwise[0]
	}
	a.fail("", "attribute %s is missing", name)
	return 0
}

// flag is an integer attribute that is 0 or 1, 0 when missing.
func (a *args) flag(name string) bool {
	v := a.int(name, 0)
	if v > 1 {
		a.fail("", "attribute %s is %d, want 0 or 1", name, v)
	}
	return v == 1
}

// float is a number attribute. Without otherwise it is required.
func (a *args) float(name string, otherwise ...float64) float64 {
	x, ok := a.attr(name, plan.FloatAttr, plan.IntAttr)
	switch {
	case ok && x.Kind == plan.IntAttr:
		return float64(x.Int)
	case ok:
		return x.Float
	case len(otherwise) > 0:
		return otherwise[0]
	}
	a.fail("", "attribute %s is missing", name)
	return 0
}

// word is a string attribute, one of want.
func (a *args) word(name string, want ...string) string {
	x, ok := a.attr(name, plan.StrAttr)
	if !ok {
		a.fail("", "attribute %s is missing", name)
	} else if !slices.Contains(want, x.Str) {
		a.fail("", "attribute %s is %q, want %s", name, x.Str, strings.Join(want, ", "))
	}
	return x.Str
}

func axesString(axes plan.Axes) string {
	s := make([]string, len(axes))
	for i, x := range axes {
		s[i] = fmt.Sprintf("%s=%d", x.Name, x.Size)
	}
	return "[" + strings.Join(s, " ") + "]"
}

// act is an activation attribute, one of want.
func (a *args) act(name string, want ...vec.Act) vec.Act {
	names := make([]string, len(want))
	for i, w := range want {
		names[i] = w.String()
	}
	act, err := vec.ParseAct(a.word(name, names...))
	if err != nil && a.err == nil {
		a.fail("", "attribute %s: %v", name, err)
	}
	return act
}
