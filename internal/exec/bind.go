// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"encoding/binary"
	"math"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// binder holds what the plans of one model share while they are bound.
type binder struct {
	model   *Model
	opts    Options
	arena   gpu.Buffer
	weights map[string]*loadJob // by weightKey
	states  map[string]gpu.Buffer
	consts  map[string]gpu.Buffer
}

func (b *binder) alloc(name string, bytes int64) (gpu.Buffer, error) {
	buf, err := b.opts.Device.Alloc(name, max(bytes, 64))
	if err != nil {
		return nil, diag.Errorf(diag.CodeOf(err), "%s: %d bytes: %w", name, bytes, err)
	}
	b.model.buffers = append(b.model.buffers, buf)
	return buf, nil
}

// bind prepares every launch of a plan.
func (b *binder) bind(p *plan.Plan, y *stepLayout) (bucket, error) {
	k := bucket{plan: p, layout: y, launches: make([]gpu.Launch, len(p.Launches))}
	for i := range p.Launches {
		l := &p.Launches[i]
		g := gpu.Binding{Name: l.Name, Kernel: l.Kernel, Attrs: l.Attrs, Grid: l.Grid, Limits: p.Limits}
		for _, a := range l.Args {
			arg, err := b.arg(p, y, a)
			if err != nil {
				return k, diag.Errorf(diag.CodeOf(err), "launch %s (%s), argument %s: %w", l.Name, l.Kernel, a.Param, err)
			}
			g.Args = append(g.Args, arg)
		}
		bound, err := b.opts.Device.Bind(g)
		if err != nil {
			return k, err
		}
		k.launches[i] = bound
	}
	k.arena = b.arena
	if p.Logits < 0 {
		return k, nil
	}
	logits := p.Buffers[p.Logits]
	k.vocab, k.logitOff = b.model.parts[p.Part].vocab, logits.Offset
	elems := logits.Axes.Shape().Elems()
	if h, ok := b.arena.(gpu.HostBuffer); ok {
		k.logits, k.direct = h.Float32s()[logits.Offset/4:][:elems], true
	} else if b.model.fetched != nil {
		k.logits = b.model.fetched.Float32s()[:elems]
	} else {
		k.logits = make([]float32, elems)
		b.model.raw = make([]byte, max(4*elems, int64(len(b.model.raw))))
	}
	return k, nil
}

// arg resolves a plan's argument to memory that is large enough for its axes.
func (b *binder) arg(p *plan.Plan, y *stepLayout, a plan.Arg) (gpu.Arg, error) {
	arg := gpu.Arg{Param: a.Param, Access: a.Access}
	var err error
	switch a.Kind {
	case plan.ArgBuffer:
		x := p.Buffers[a.Index]
		arg.Buf, arg.Off, arg.DType, arg.Axes = b.arena, x.Offset, x.DType, x.Axes
		if x.Port.Name != "" {
			arg.Buf, arg.Axes = b.portArg(&x)
		}
	case plan.ArgWeight:
		w := p.Weights[a.Index]
		j := b.weights[weightKey(&w)]
		arg.Buf, arg.Off, arg.DType, arg.Axes, arg.Layout = j.dst, j.off, j.layout.DType(w.DType), w.Axes, w.Layout
		return arg, nil
	case plan.ArgConst:
		c := p.Consts[a.Index]
		arg.DType, arg.Axes = tensor.F32, plan.Axes{{Name: c.Name, Size: int64(len(c.Values))}}
		arg.Buf, err = b.constant(c)
	case plan.ArgState:
		s := p.States[a.Index]
		arg.DType = s.DType
		arg.Buf, arg.Axes, err = b.state(s, p.Limits)
	case plan.ArgStep:
		f, ok := y.fields[a.Step]
		if !ok {
			return arg, diag.Errorf(diag.Internal, "the step block has no field %q", a.Step)
		}
		arg.Buf, arg.Off, arg.DType, arg.Axes = b.model.step.buf, f.off, tensor.I32, f.axes
	default:
		return arg, diag.Errorf(diag.Internal, "argument kind %d", a.Kind)
	}
	if err != nil {
		return arg, err
	}
	if need := arg.DType.Bytes(arg.Axes.Shape().Elems()); need < 0 || arg.Off < 0 || arg.Off+need > arg.Buf.Size() {
		return arg, diag.Errorf(diag.Internal, "%d bytes at %d of a buffer of %d", need, arg.Off, arg.Buf.Size())
	}
	return arg, nil
}

// state is the pool of a state, with the leading axes that say how many tokens or slots it holds.
func (b *binder) state(s plan.State, l plan.Limits) (gpu.Buffer, plan.Axes, error) {
	axes := plan.Axes{{Name: "slots", Size: int64(b.opts.NumSlots)}}
	if s.Kind == plan.Paged {
		axes = plan.Axes{{Name: "num_pages", Size: int64(b.opts.NumPages)}, {Name: "page_size", Size: s.PageEntries(l.PageSize)}}
	}
	if axes[0].Size < 1 {
		return nil, nil, diag.Errorf(diag.Internal, "state %s: a pool of %d", s.Name, axes[0].Size)
	}
	axes = append(axes, s.Axes...)
	if buf, ok := b.states[s.Name]; ok {
		return buf, axes, nil
	}
	buf, err := b.alloc(s.Name, s.DType.Bytes(axes.Shape().Elems()))
	if err != nil {
		return nil, nil, err
	}
	b.states[s.Name] = buf
	return buf, axes, nil
}

func (b *binder) constant(c plan.Const) (gpu.Buffer, error) {
	if buf, ok := b.consts[c.Name]; ok {
		return buf, nil
	}
	raw := make([]byte, 4*len(c.Values))
	for i, v := range c.Values {
		binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(v))
	}
	buf, err := b.alloc(c.Name, int64(len(raw)))
	if err != nil {
		return nil, err
	}
	b.consts[c.Name] = buf
	return buf, buf.Write(0, raw)
}
