// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/gpu/cpu"
	"github.com/metrale/metrale/internal/gpu/cuda"
	"github.com/metrale/metrale/internal/gpu/cudatest"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/kernels"
)

// The tests of kernels run wherever a driver is, or without a GPU (package cudatest says how).
var large = flag.Bool("large", false, "try kernels on the sizes of real models too")

// machine is a device and the class whose kernels it runs.
type machine struct {
	dev   gpu.Device
	class *kernel.Class
	code  fs.FS // its modules
	saw   func(kernels ...string)
}

// machines opens the CUDA device and the reference, or skips the test.
func machines(t *testing.T) (gpu, ref machine) {
	t.Helper()
	d := cudatest.Open(t, kernels.FS)
	host, err := cpu.Open(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	saw := func(names ...string) { d.Saw(t, names...) }
	return machine{d.Device, d.Class, d.Code, saw}, machine{dev: host, class: d.Tree.Classes["cpu"]}
}

// story is launches that share states, with all that they need: what a plan would hand to a device.
type story struct {
	name   string
	limits plan.Limits
	states map[string]*array
	steps  []*step
	rng    *rand.Rand
}

// step is one launch of the reference kernel of that name, or of a kernel that is held against it. A kernel takes those fields of
// the step block that it has.
type step struct {
	kernel string
	limits plan.Limits
	counts map[string]int // real rows, seqs, outs
	arrays []*array
	attrs  []plan.Attr
}

// array is an argument. Data is what it holds before: stored bytes of a weight, little-endian elements of everything else.
type array struct {
	param  string
	kind   kernel.ArgKind
	access plan.Access
	dtype  tensor.DType
	axes   plan.Axes
	data   []byte
	state  string // the state's name, of a state
}

// poison is what outputs and padding hold: a NaN that no kernel makes.
const poison = 0x7fc0dead

// newStory has bounds a little above the real counts, to catch kernels that take one for the other; but a step of at most 4 or 8 rows
// stays one, since there are kernels for so many.
func newStory(name string, rows, seqs, outs int) *story {
	bound := rows + 2
	for _, most := range []int{4, 8} {
		if rows <= most {
			bound = min(bound, most)
		}
	}
	seed := uint64(0)
	for _, c := range name {
		seed = seed*31 + uint64(c)
	}
	return &story{name: name, states: map[string]*array{}, rng: rand.New(rand.NewPCG(1, seed)),
		limits: plan.Limits{Rows: int64(bound), Seqs: int64(seqs + 1), Outs: int64(outs + 1), PageSize: 16, Pages: 20}}
}

func (s *story) step(kernel string, rows, seqs, outs int) *step {
	p := &step{kernel: kernel, limits: s.limits, counts: map[string]int{plan.Rows: rows, plan.Seqs: seqs, plan.Outs: outs}}
	s.steps = append(s.steps, p)
	head := make([]int32, 8)
	head[0], head[1], head[2] = int32(rows), int32(seqs), int32(outs)
	return p.ints("head", 8, head)
}

// axes are varying ones by name, with their bounds, and fixed ones by size.
func (s *story) axes(list ...any) (out plan.Axes) {
	bounds := map[string]int64{plan.Rows: s.limits.Rows, plan.Seqs: s.limits.Seqs, plan.Outs: s.limits.Outs}
	for i, x := range list {
		switch x := x.(type) {
		case string:
			out = append(out, plan.Axis{Name: x, Size: bounds[x]})
		case int:
			out = append(out, plan.Axis{Name: fmt.Sprint("a", i), Size: int64(x)})
		}
	}
	return out
}

func (p *step) add(a *array) *step {
	p.arrays = append(p.arrays, a)
	return p
}

// ints adds a field of the step block of n elements; those that v leaves are nonsense.
func (p *step) ints(name string, n int, v []int32) *step {
	data := make([]byte, 4*n)
	for i := range n {
		x := int32(-1 << 30)
		if i < len(v) {
			x = v[i]
		}
		binary.LittleEndian.PutUint32(data[4*i:], uint32(x))
	}
	return p.add(&array{param: name, kind: kernel.StepArg, dtype: tensor.I32, axes: plan.Axes{{Name: name, Size: int64(n)}}, data: data})
}

// acts adds activations: make gives the real rows' elements, the rest is poison; without make all of it is.
func (p *step) acts(s *story, name string, access plan.Access, axis string, width int, make_ func() float32) *step {
	axes := s.axes(axis, width)
	data := make([]byte, 4*axes.Shape().Elems())
	for i := 0; i < len(data)/4; i++ {
		v := uint32(poison)
		if make_ != nil && i < p.counts[axis]*width {
			v = math.Float32bits(make_())
		}
		binary.LittleEndian.PutUint32(data[4*i:], v)
	}
	return p.add(&array{param: name, access: access, dtype: tensor.F32, axes: axes, data: data})
}

func (p *step) in(s *story, name, axis string, width int, f func() float32) *step {
	return p.acts(s, name, plan.In, axis, width, f)
}

func (p *step) io(s *story, name, axis string, width int, f func() float32) *step {
	return p.acts(s, name, plan.InOut, axis, width, f)
}

func (p *step) out(s *story, name, axis string, width int) *step {
	return p.acts(s, name, plan.Out, axis, width, nil)
}

// picks adds int32 activations, [rows, k].
func (p *step) picks(s *story, name string, access plan.Access, k int, v []int32) *step {
	p.ints(name, int(s.limits.Rows)*k, v)
	a := p.arrays[len(p.arrays)-1]
	a.kind, a.access, a.axes = kernel.BufferArg, access, s.axes(plan.Rows, k)
	return p
}

// weight adds a weight of normal elements times scale, as stored; constant one of float32 that the compiler would make.
func (p *step) weight(s *story, name string, d tensor.DType, scale float64, shape ...int) *step {
	axes := make([]any, len(shape))
	n := 1
	for i, x := range shape {
		axes[i] = x
		n *= x
	}
	return p.add(&array{param: name, kind: kernel.WeightArg, dtype: d, axes: s.axes(axes...), data: s.stored(d, n, scale)})
}

func (p *step) constant(s *story, name string, values []float32) *step {
	data := make([]byte, 4*len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(v))
	}
	return p.add(&array{param: name, kind: kernel.ConstArg, dtype: tensor.F32, axes: s.axes(len(values)), data: data})
}

// state adds a state that the story's steps share, as the argument of its name; paged ones have pages of the limits' size.
func (p *step) state(s *story, name string, access plan.Access, d tensor.DType, count int, paged bool, shape ...int) *step {
	axes := s.axes(count)
	if paged {
		axes = plan.Axes{{Name: "num_pages", Size: int64(count)}, {Name: "page_size", Size: s.limits.PageSize}}
	}
	for i, x := range shape {
		axes = append(axes, plan.Axis{Name: fmt.Sprint("s", i), Size: int64(x)})
	}
	if s.states[name] == nil {
		data := make([]byte, d.Bytes(axes.Shape().Elems()))
		for i := range data {
			data[i] = 0xff // NaN: nothing unwritten may leak
		}
		s.states[name] = &array{param: name, state: name, kind: kernel.StateArg, dtype: d, axes: axes, data: data}
	}
	a := *s.states[name]
	a.access = access
	return p.add(&a)
}

func (p *step) attr(name string, v any) *step {
	a := plan.Attr{Name: name}
	switch v := v.(type) {
	case int:
		a.Kind, a.Int = plan.IntAttr, int64(v)
	case float64:
		a.Kind, a.Float = plan.FloatAttr, v
	case string:
		a.Kind, a.Str = plan.StrAttr, v
	}
	p.attrs = append(p.attrs, a)
	return p
}

func (s *story) normal() float32 { return float32(s.rng.NormFloat64()) }

// stored makes n elements of a stored type. Block types get random bytes with small scales.
func (s *story) stored(d tensor.DType, n int, scale float64) []byte {
	data := make([]byte, d.Bytes(int64(n)))
	elems, bytes := d.Block()
	for i := 0; elems == 1 && i < n; i++ {
		x := float32(s.rng.NormFloat64() * scale)
		switch d {
		case tensor.F32:
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(x))
		case tensor.BF16:
			binary.LittleEndian.PutUint16(data[2*i:], tensor.ToBF16(x))
		case tensor.F16:
			binary.LittleEndian.PutUint16(data[2*i:], tensor.ToF16(x))
		case tensor.E4M3: // subnormals among them
			data[i] = tensor.ToE4M3(x)
		}
	}
	for at := 0; elems > 1 && at < len(data); at += bytes {
		b := data[at : at+bytes]
		for i := range b {
			b[i] = byte(s.rng.Uint32())
		}
		switch d {
		case tensor.Q8_0:
			binary.LittleEndian.PutUint16(b, tensor.ToF16(float32(scale/64)))
		case tensor.E4M3_B128, tensor.E4M3_B32: // codes of every size, subnormals too; no NaN
			binary.LittleEndian.PutUint32(b, math.Float32bits(float32(scale/90*(0.5+s.rng.Float64()))))
			for i, c := range b[4:] {
				if c&0x7f == 0x7f {
					b[4+i] = c &^ 1
				}
			}
		case tensor.NVFP4: // scales of every size, some of them zero
			b[0] = tensor.ToE4M3(float32(scale / 8 * math.Exp(0.7*s.rng.NormFloat64())))
			if s.rng.IntN(20) == 0 {
				b[0] = byte(s.rng.IntN(9))
			}
		case tensor.MXFP4:
			b[0] = byte(127 + int(math.Floor(math.Log2(scale/3))) + s.rng.IntN(3))
		}
	}
	return data
}

// lacks names a module of the kernel whose code is not there, as where only some were compiled.
func (m *machine) lacks(k *kernel.Kernel) string {
	for _, name := range k.Modules() {
		if !cuda.Carries(m.code, name) {
			return name
		}
	}
	return ""
}

// kernelOf is what the machine runs for a step: over where its reference is the step's, else its kernel of the step's name.
func (m *machine) kernelOf(p *step, over *kernel.Kernel) *kernel.Kernel {
	if over != nil && over.Reference == p.kernel {
		return over
	}
	return m.class.Kernels[p.kernel]
}

// refuses says why a kernel does not take a step: an element type, a condition, an optional argument or an attribute that it lacks.
func refuses(k *kernel.Kernel, p *step) error {
	env, err := environment(k, p)
	if err != nil {
		return err
	}
	types := map[string]tensor.DType{}
	for _, a := range p.arrays {
		m := k.Arg(a.param)
		if m == nil && a.kind == kernel.StepArg {
			continue
		}
		if m == nil {
			return fmt.Errorf("no argument %s", a.param)
		}
		if types[a.param] = a.dtype; m.Kind != kernel.StepArg && !slices.Contains(m.DTypes, a.dtype) {
			return fmt.Errorf("argument %s of type %v", a.param, a.dtype)
		}
	}
	for _, m := range k.Args {
		d, there := types[m.Name]
		if like, ok := types[m.Like]; ok && there && d != like {
			return fmt.Errorf("argument %s is not like %s", m.Name, m.Like)
		}
	}
	for _, x := range p.attrs {
		m := k.Attr(x.Name)
		if m == nil && x.Kind == plan.FloatAttr && !neutral(x) || m != nil && len(m.Values) > 0 && !slices.Contains(m.Values, x.Str) {
			return fmt.Errorf("attribute %s is %s", x.Name, x.Value())
		}
	}
	for _, c := range k.Where {
		if ok, err := env.Holds(c); err != nil || !ok {
			return fmt.Errorf("%s (%v)", c, err)
		}
	}
	return nil
}

// neutral says whether a float attribute does nothing, so that a kernel need not have it: a limit or cap of 0, a scale of 1.
func neutral(x plan.Attr) bool {
	if strings.HasSuffix(x.Name, "scale") {
		return x.Float == 1
	}
	return x.Float == 0
}

// environment binds the names of a kernel's shapes.
func environment(k *kernel.Kernel, p *step) (*kernel.Env, error) {
	ints := map[string]int64{plan.Rows: p.limits.Rows, plan.Seqs: p.limits.Seqs, plan.Outs: p.limits.Outs, "page_size": p.limits.PageSize, "pages": p.limits.Pages}
	for _, a := range p.attrs {
		if a.Kind == plan.IntAttr {
			ints[a.Name] = a.Int
		}
	}
	env := kernel.NewEnv(ints)
	var arrays []kernel.Array
	for _, a := range p.arrays {
		m := k.Arg(a.param)
		if m == nil || m.Kind == kernel.StepArg {
			continue
		}
		axes := a.axes
		if m.Kind == kernel.StateArg {
			axes = axes[max(0, len(axes)-len(m.Shape)):]
		}
		list := make([]kernel.Axis, len(axes))
		for i, x := range axes {
			list[i] = kernel.Axis(x)
		}
		arrays = append(arrays, kernel.Array{Arg: m, Axes: list})
	}
	return env, env.Unify(k, arrays)
}

// run plays the story and gives what each step left in the arrays that it wrote, states excepted: their order is the class's.
func (m *machine) run(t *testing.T, s *story, over *kernel.Kernel) (out []map[string][]byte) {
	t.Helper()
	states := map[string]gpu.Buffer{}
	for _, p := range s.steps {
		k := m.kernelOf(p, over)
		if k == nil {
			t.Fatalf("class %s has no kernel %s", m.class.Name, p.kernel)
		}
		b := gpu.Binding{Name: s.name, Kernel: k.Name, Limits: p.limits}
		for _, a := range p.attrs {
			if k.Attr(a.Name) != nil {
				b.Attrs = append(b.Attrs, a)
			}
		}
		wrote := map[string][]byte{}
		var outputs []gpu.Arg
		for _, a := range p.arrays {
			if k.Arg(a.param) == nil && a.kind == kernel.StepArg {
				continue
			}
			if a.kind == kernel.StateArg && states[a.state] != nil {
				b.Args = append(b.Args, gpu.Arg{Param: a.param, Buf: states[a.state], Off: 256, DType: a.dtype, Axes: a.axes, Access: a.access})
				continue
			}
			arg := m.bind(t, a, k.Arg(a.param))
			b.Args = append(b.Args, arg)
			if a.kind == kernel.StateArg {
				states[a.state] = arg.Buf
			} else if a.access != plan.In {
				wrote[a.param] = make([]byte, len(a.data))
				outputs = append(outputs, arg)
			}
		}
		m.scratch(t, &b, k, p)
		l, err := m.dev.Bind(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.dev.Stream().Launch(l); err != nil {
			t.Fatal(err)
		}
		if err := m.dev.Stream().Sync(); err != nil {
			if diag.Is(err, diag.DeviceLost) {
				panic(err) // nothing after this can run
			}
			t.Fatal(err)
		}
		for _, a := range outputs {
			if err := a.Buf.Read(a.Off, wrote[a.Param]); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, wrote)
	}
	return out
}

// bind puts an array into the device's memory, 256 bytes behind the start of a buffer, in the layout that the kernel wants.
func (m *machine) bind(t *testing.T, a *array, decl *kernel.Arg) gpu.Arg {
	t.Helper()
	arg := gpu.Arg{Param: a.param, Off: 256, DType: a.dtype, Axes: a.axes, Access: a.access}
	alloc := func(n int64) {
		buf, err := m.dev.Alloc(a.param, n+256)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(buf.Free)
		arg.Buf = buf
	}
	if a.kind != kernel.WeightArg {
		alloc(int64(len(a.data)))
		if err := arg.Buf.Write(arg.Off, a.data); err != nil {
			t.Fatal(err)
		}
		return arg
	}
	l, err := m.dev.Layout(decl.Layout)
	if err != nil {
		t.Fatal(err)
	}
	shape := a.axes.Shape()
	size, err := l.Size(a.dtype, shape)
	if err != nil {
		t.Fatal(err)
	}
	alloc(size)
	arg.DType, arg.Layout = l.DType(a.dtype), decl.Layout
	count, n := int64(1), int64(1)
	if len(shape) > 1 {
		n = shape[len(shape)-2]
	}
	if len(shape) == 3 {
		count = shape[0]
	}
	bytes := int64(len(a.data)) / count
	for i := range count {
		if err := l.Pack(arg.Buf, arg.Off, a.dtype, shape, i, 0, n, a.data[i*bytes:(i+1)*bytes]); err != nil {
			t.Fatal(err)
		}
	}
	return arg
}

// scratch binds the kernel's own memory, full of NaN.
func (m *machine) scratch(t *testing.T, b *gpu.Binding, k *kernel.Kernel, p *step) {
	t.Helper()
	for i := range k.Args {
		a := &k.Args[i]
		if a.Kind != kernel.ScratchArg {
			continue
		}
		env, err := environment(k, p)
		if err != nil {
			t.Fatal(err)
		}
		list, err := env.Axes(a.Shape)
		if err != nil {
			t.Fatal(err)
		}
		axes := make(plan.Axes, len(list))
		for j, x := range list {
			axes[j] = plan.Axis(x)
		}
		data := make([]byte, a.DTypes[0].Bytes(axes.Shape().Elems()))
		for j := range data {
			data[j] = 0xff
		}
		b.Args = append(b.Args, m.bind(t, &array{param: a.Name, access: plan.Out, dtype: a.DTypes[0], axes: axes, data: data}, a))
	}
}
