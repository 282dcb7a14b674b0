// SPDX-License-Identifier: MIT OR Apache-2.0

package bench

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// fragment is a plan without a model on a device, with arrays of its own.
type fragment struct {
	dev      gpu.Device
	plan     *plan.Plan
	shape    *shape
	ranges   map[string][2]float32
	rng      *rand.Rand
	buffers  []gpu.Buffer
	arena    gpu.Buffer
	step     gpu.Buffer
	fields   map[string]gpu.Arg // of the step block
	arrays   map[string]gpu.Arg // by kind and name
	launches []gpu.Launch       // those that are measured
	bytes    int64              // of all arrays but the step block
}

// newFragment makes the arrays and binds the launches, and runs them once.
func newFragment(dev gpu.Device, p *plan.Plan, s *shape, ranges map[string][2]float32) (_ *fragment, err error) {
	f := &fragment{dev: dev, plan: p, shape: s, ranges: ranges, rng: rand.New(rand.NewPCG(1, 2)), arrays: map[string]gpu.Arg{}}
	defer func() {
		if err != nil {
			f.free()
		}
	}()
	if f.arena, err = f.alloc("arena", p.Arena); err != nil {
		return nil, err
	}
	if err := f.fillStep(); err != nil {
		return nil, err
	}
	for i := range p.Launches {
		l := &p.Launches[i]
		b := gpu.Binding{Name: l.Name, Kernel: l.Kernel, Attrs: l.Attrs, Grid: l.Grid, Limits: p.Limits}
		for _, a := range l.Args {
			arg, err := f.arg(&a)
			if err != nil {
				return nil, diag.Errorf(diag.CodeOf(err), "launch %s, argument %s: %w", l.Name, a.Param, err)
			}
			b.Args = append(b.Args, arg)
		}
		bound, err := dev.Bind(b)
		if err != nil {
			return nil, err
		}
		if err := dev.Stream().Launch(bound); err != nil {
			return nil, err
		}
		if measured(l) {
			f.launches = append(f.launches, bound)
		}
	}
	return f, dev.Stream().Sync()
}

// measured says whether a launch does more than to make what others give.
func measured(l *plan.Launch) bool {
	return slices.ContainsFunc(l.Ops, func(id string) bool { return !strings.HasPrefix(id, given) })
}

func (f *fragment) free() {
	for _, b := range f.buffers {
		b.Free()
	}
	f.buffers = nil
}

func (f *fragment) alloc(name string, bytes int64) (gpu.Buffer, error) {
	b, err := f.dev.Alloc(name, max(bytes, 64))
	if err == nil {
		f.buffers, f.bytes = append(f.buffers, b), f.bytes+bytes
	}
	return b, err
}

// fillStep writes the step block of one sequence.
func (f *fragment) fillStep() error {
	l, rows, behind := f.plan.Limits, f.shape.rows, f.shape.behind
	line := func(n, from, by int) []int32 {
		out := make([]int32, n)
		for i := range out {
			out[i] = int32(from + i*by)
		}
		return out
	}
	block := []struct {
		name   string
		axes   plan.Axes
		values []int32
	}{
		{"head", plan.Axes{{Name: "head", Size: 8}}, []int32{int32(rows), 1, 1}},
		{"tokens", plan.Axes{{Name: plan.Rows, Size: l.Rows}}, line(rows, 0, 1)},
		{"positions", plan.Axes{{Name: plan.Rows, Size: l.Rows}}, line(rows, behind, 1)},
		{"row_seq", plan.Axes{{Name: plan.Rows, Size: l.Rows}}, line(rows, 0, 0)},
		{"slots", plan.Axes{{Name: plan.Rows, Size: l.Rows}}, line(rows, behind, 1)},
		{"cu_rows", plan.Axes{{Name: "seqs+1", Size: 2}}, []int32{0, int32(rows)}},
		{"state_slot", plan.Axes{{Name: plan.Seqs, Size: 1}}, []int32{0}},
		{"fresh", plan.Axes{{Name: plan.Seqs, Size: 1}}, []int32{0}},
		{"out_rows", plan.Axes{{Name: plan.Outs, Size: 1}}, []int32{0}},
		{"block_table", plan.Axes{{Name: plan.Seqs, Size: 1}, {Name: "pages", Size: l.Pages}}, line(int(l.Pages), 0, 1)},
		{"meet", plan.Axes{{Name: "meet", Size: 8192}}, nil},
	}
	f.fields = map[string]gpu.Arg{}
	var raw []byte
	for _, x := range block {
		f.fields[x.name] = gpu.Arg{Off: int64(len(raw)), DType: tensor.I32, Axes: x.axes}
		end := (len(raw) + 4*int(x.axes.Shape().Elems()) + 63) &^ 63
		for _, v := range x.values {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(v))
		}
		raw = append(raw, make([]byte, end-len(raw))...)
	}
	var err error
	if f.step, err = f.alloc("step", int64(len(raw))); err != nil {
		return err
	}
	f.bytes -= int64(len(raw)) // caches need no rotation of the step block
	return f.step.Write(0, raw)
}

// arg gives an argument its memory, which is made and filled when it is first named.
func (f *fragment) arg(a *plan.Arg) (gpu.Arg, error) {
	if a.Kind == plan.ArgStep {
		x, ok := f.fields[a.Step]
		if !ok {
			return x, diag.Errorf(diag.Internal, "the step block has no field %q", a.Step)
		}
		x.Param, x.Buf = a.Param, f.step
		return x, nil
	}
	name, d, axes := f.plan.Array(a)
	key := string(rune('0'+a.Kind)) + name
	x, ok := f.arrays[key]
	if !ok {
		var err error
		if x, err = f.array(a, name, d, axes); err != nil {
			return x, err
		}
		f.arrays[key] = x
	}
	x.Param, x.Access = a.Param, a.Access
	return x, nil
}

func (f *fragment) array(a *plan.Arg, name string, d tensor.DType, axes plan.Axes) (x gpu.Arg, err error) {
	x = gpu.Arg{DType: d, Axes: axes}
	switch a.Kind {
	case plan.ArgBuffer:
		b := &f.plan.Buffers[a.Index]
		if b.Port.Name == "" {
			x.Buf, x.Off = f.arena, b.Offset
			return x, nil
		}
	case plan.ArgState:
		lead := plan.Axes{{Name: "slots", Size: 1}}
		if s := &f.plan.States[a.Index]; s.Kind == plan.Paged {
			lead = plan.Axes{{Name: "num_pages", Size: f.plan.Limits.Pages}, {Name: "page_size", Size: s.PageEntries(f.plan.Limits.PageSize)}}
		}
		x.Axes = append(lead, axes...)
	case plan.ArgWeight:
		return f.weight(&f.plan.Weights[a.Index])
	default:
		return x, diag.Errorf(diag.Internal, "argument kind %d", a.Kind)
	}
	n := x.Axes.Shape().Elems()
	if x.Buf, err = f.alloc(name, d.Bytes(n)); err != nil {
		return x, err
	}
	return x, x.Buf.Write(0, f.values(name, d, n, x.Axes[len(x.Axes)-1].Size))
}

// weight packs a weight. Its matrices, if there are several, are alike.
func (f *fragment) weight(w *plan.Weight) (x gpu.Arg, err error) {
	layout, err := f.dev.Layout(w.Layout)
	if err != nil {
		return x, err
	}
	shape := w.Axes.Shape()
	size, err := layout.Size(w.DType, shape)
	if err != nil {
		return x, err
	}
	if x.Buf, err = f.alloc(w.Name, size); err != nil {
		return x, err
	}
	matrices, rows, last := int64(1), int64(1), len(shape)-1
	if last >= 1 {
		rows = shape[last-1]
	}
	if last >= 2 {
		matrices = shape[:last-1].Elems()
	}
	src := f.values(w.Name, w.DType, rows*shape[last], shape[last])
	for m := range matrices {
		if err := layout.Pack(x.Buf, 0, w.DType, shape, m, 0, rows, src); err != nil {
			return x, err
		}
	}
	x.DType, x.Axes, x.Layout = layout.DType(w.DType), w.Axes, w.Layout
	return x, nil
}

// values are random: floats of an input within its range, of weights about 1/√K, ids of a row apart from each other.
func (f *fragment) values(name string, d tensor.DType, n, width int64) []byte {
	out := make([]byte, 0, d.Bytes(n))
	lo, hi := float32(-1), float32(1)
	if r, ok := f.ranges[name]; ok {
		lo, hi = r[0], r[1]
	} else if strings.Contains(name, ".") { // a weight
		hi = float32(1 / math.Sqrt(float64(width)))
		lo = -hi
	}
	switch d {
	case tensor.F32:
		for range n {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(lo+(hi-lo)*f.rng.Float32()))
		}
	case tensor.BF16:
		for range n {
			out = binary.LittleEndian.AppendUint16(out, uint16(math.Float32bits(lo+(hi-lo)*f.rng.Float32())>>16))
		}
	case tensor.I32: // width ids of each row
		for range n / width {
			for _, id := range f.rng.Perm(experts)[:width] {
				out = binary.LittleEndian.AppendUint32(out, uint32(id))
			}
		}
	default: // whatever the format takes for scales: ±2^-15 as bf16, ±1 as e4m3
		out = out[:cap(out)]
		for i := range out {
			out[i] = 0x38 | byte(f.rng.Uint32())&0x83
		}
	}
	return out
}
