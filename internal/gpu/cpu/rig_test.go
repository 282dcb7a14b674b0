// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/gpu/cpu/vec"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eachPath runs f on a device of every SIMD path that this processor has.
func eachPath(t *testing.T, f func(t *testing.T, d *Device)) {
	for l := vec.Go; l <= vec.Best(); l++ {
		t.Run(l.String(), func(t *testing.T) { f(t, open(t, Options{Threads: 2, Path: l.String()})) })
	}
}

func open(t testing.TB, o Options) *Device {
	t.Helper()
	d, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// poison is what outputs hold before a launch: a NaN that no kernel makes.
var poison = math.Float32frombits(0x7fc0dead)

func poisoned(x float32) bool { return math.Float32bits(x) == math.Float32bits(poison) }

// rig is a launch under construction.
type rig struct {
	t   testing.TB
	dev *Device
	b   gpu.Binding
}

// newRig has a head of these counts. Bounds of the plan are a little larger, to catch kernels that take one for the other.
func newRig(t testing.TB, dev *Device, kernel string, rows, seqs, outs int) *rig {
	r := &rig{t: t, dev: dev, b: gpu.Binding{Name: "L00.test", Kernel: kernel, Limits: plan.Limits{
		Rows: int64(rows + 2), Seqs: int64(seqs + 1), Outs: int64(outs + 1), PageSize: 32, Pages: 20}}}
	r.ints("head", plan.In, ax("head", 8), int32(rows), int32(seqs), int32(outs))
	return r
}

func ax(name string, size int) plan.Axis { return plan.Axis{Name: name, Size: int64(size)} }

func (r *rig) rows() plan.Axis { return plan.Axis{Name: plan.Rows, Size: r.b.Limits.Rows} }
func (r *rig) outs() plan.Axis { return plan.Axis{Name: plan.Outs, Size: r.b.Limits.Outs} }

// arg binds a fresh buffer with 64 bytes before it.
func (r *rig) arg(param string, access plan.Access, d tensor.DType, layout string, bytes int64, axes plan.Axes) []byte {
	r.t.Helper()
	buf := alloc(r.t, r.dev, param, bytes+64)
	r.b.Args = append(r.b.Args, gpu.Arg{Param: param, Buf: buf, Off: 64, DType: d, Axes: axes, Layout: layout, Access: access})
	return buf.Bytes()[64:]
}

// alloc is a buffer until the test ends.
func alloc(t testing.TB, d *Device, name string, bytes int64) gpu.HostBuffer {
	t.Helper()
	buf, err := d.Alloc(name, bytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(buf.Free)
	return buf.(gpu.HostBuffer)
}

// floats binds float32 values; what v leaves of the axes is poison.
func (r *rig) floats(param string, access plan.Access, v []float32, axes ...plan.Axis) []float32 {
	r.t.Helper()
	n := plan.Axes(axes).Shape().Elems()
	dst := view[float32](r.arg(param, access, tensor.F32, "", 4*n, axes))
	for i := copy(dst, v); i < len(dst); i++ {
		dst[i] = poison
	}
	return dst
}

func (r *rig) ints(param string, access plan.Access, axis plan.Axis, v ...int32) []int32 {
	r.t.Helper()
	dst := view[int32](r.arg(param, access, tensor.I32, "", 4*axis.Size, plan.Axes{axis}))
	for i := copy(dst, v); i < len(dst); i++ {
		dst[i] = -1 << 30
	}
	return dst
}

func (r *rig) attr(name string, v any) *rig {
	a := plan.Attr{Name: name}
	switch v := v.(type) {
	case int:
		a.Kind, a.Int = plan.IntAttr, int64(v)
	case float64:
		a.Kind, a.Float = plan.FloatAttr, v
	case string:
		a.Kind, a.Str = plan.StrAttr, v
	}
	r.b.Attrs = append(r.b.Attrs, a)
	return r
}

func (r *rig) bind() gpu.Launch {
	r.t.Helper()
	l, err := r.dev.Bind(r.b)
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

func (r *rig) run() {
	r.t.Helper()
	if err := r.dev.Launch(r.bind()); err != nil {
		r.t.Fatal(err)
	}
}

func normals(rng *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(rng.NormFloat64())
	}
	return v
}

// near fails unless |got-want| ≤ tol*(1+|want|) everywhere.
func near(t *testing.T, what string, got []float32, want []float64, tol float64) {
	t.Helper()
	for i, w := range want {
		if g := float64(got[i]); !(math.Abs(g-w) <= tol*(1+math.Abs(w))) {
			t.Fatalf("%s[%d] = %v, want %v within %g", what, i, g, w, tol)
		}
	}
}

func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s[%d] = %v (%#x), want the bits of %v (%#x)", what, i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

func allPoison(t *testing.T, what string, v []float32) {
	t.Helper()
	if i := slices.IndexFunc(v, func(x float32) bool { return !poisoned(x) }); i >= 0 {
		t.Fatalf("%s: wrote element %d past the step's rows", what, i)
	}
}

func wide(v []float32) []float64 {
	w := make([]float64, len(v))
	for i, x := range v {
		w[i] = float64(x)
	}
	return w
}
