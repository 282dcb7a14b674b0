// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"fmt"
	"unsafe"

	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// mapTypes are the driver's numbers of element types.
var mapTypes = map[tensor.DType]uintptr{tensor.U8: 0, tensor.I32: 3, tensor.F16: 6, tensor.F32: 7, tensor.BF16: 9, tensor.E4M3: 0, tensor.E5M2: 0}

// tensorMap encodes a tensor map over an argument as it lies: its axes, innermost last and contiguous, and a box of the same
// rank; the pages of a state and their tokens are one axis. What lies outside reads as zeros. The argument is plain (no blocks of
// several values), its rows a multiple of 16 bytes. A view gives it other axes, of the same values.
func (b *binding) tensorMap(p kernel.LaunchParam, at unsafe.Pointer) error {
	a := b.args[p.Arg]
	if a == nil {
		return nil // absent: the kernel must not use it
	}
	elems, bytes := a.DType.Block()
	number, ok := mapTypes[a.DType]
	axes := a.Axes
	if rank := len(p.Box); b.k.Arg(p.Arg).Kind == kernel.StateArg && len(axes) > rank {
		outer := axes[:len(axes)-rank+1]
		axes = append(plan.Axes{{Name: "slots", Size: outer.Shape().Elems()}}, axes[len(outer):]...)
	}
	strides := make([]int64, len(axes)) // in values; 0 what the axes inside have
	if p.View != nil {
		var err error
		if axes, strides, err = b.view(p, a.Axes.Shape().Elems()); err != nil {
			return err
		}
	}
	rank := len(axes)
	if !ok || elems != 1 || rank < 1 || rank > 5 || rank != len(p.Box) {
		return fmt.Errorf("no tensor map of rank %d with a box of rank %d over %v", rank, len(p.Box), a.DType)
	}
	m := new(struct { // the driver's order is innermost first
		dim, stride [5]uint64
		box, step   [5]uint32
	})
	inside := uint64(bytes)
	for i := range rank {
		size := axes[rank-1-i].Size
		box, err := tensor.Eval(p.Box[rank-1-i], b.env.Sizes)
		if err != nil {
			return err
		}
		if box < 1 || box > 256 || i == 0 && p.Swizzle > 0 && box*int64(bytes) > int64(p.Swizzle) {
			return fmt.Errorf("a box of %d along %s with a swizzle of %d bytes", box, axes[rank-1-i].Name, p.Swizzle)
		}
		m.dim[i], m.box[i], m.step[i] = uint64(size), uint32(box), 1
		if i > 0 {
			stride := inside
			if s := strides[rank-1-i]; s > 0 {
				stride = uint64(s) * uint64(bytes)
			}
			if m.stride[i-1] = stride; stride%16 != 0 {
				return fmt.Errorf("rows of %d bytes; a tensor map needs a multiple of 16", stride)
			}
		}
		inside *= uint64(size)
	}
	swizzle := map[int]uintptr{0: 0, 32: 1, 64: 2, 128: 3}[p.Swizzle]
	const promote256 = 3 // sectors of L2 that a miss fetches
	r := b.dev.drv.do(cuTensorMapEncodeTiled, uintptr(at), number, uintptr(rank), a.Buf.(*buffer).ptr+uintptr(a.Off),
		uintptr(unsafe.Pointer(&m.dim)), uintptr(unsafe.Pointer(&m.stride)), uintptr(unsafe.Pointer(&m.box)), uintptr(unsafe.Pointer(&m.step)),
		0, swizzle, promote256, 0)
	return b.dev.check(r, "encoding a tensor map over "+p.Arg)
}

// view gives the axes that a tensor map sees of an argument of so many values, and how many apart theirs are.
func (b *binding) view(p kernel.LaunchParam, elems int64) (plan.Axes, []int64, error) {
	axes, strides := make(plan.Axes, len(p.View)), make([]int64, len(p.View))
	last, inside := int64(0), int64(1)
	for i := len(axes) - 1; i >= 0; i-- {
		size, err := tensor.Eval(p.View[i], b.env.Sizes)
		if err == nil && p.Strides[i] != "" {
			strides[i], err = tensor.Eval(p.Strides[i], b.env.Sizes)
		}
		if err != nil {
			return nil, nil, err
		}
		axes[i] = plan.Axis{Name: p.View[i], Size: size}
		stride := strides[i]
		if stride == 0 {
			stride = inside
		}
		last += (size - 1) * stride
		inside *= size
	}
	if last >= elems {
		return nil, nil, fmt.Errorf("a tensor map sees %s as %v, up to value %d of %d", p.Arg, axes, last, elems)
	}
	return axes, strides, nil
}
