// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"runtime"
	"unsafe"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/tensor"
)

// stage is pinned memory that stored rows are read into. Rows that need no packing are copied from where they lie; others
// are packed into a second piece of pinned memory first:
//
//	checkpoint ──read──► in ───────────────copy──► device
//	                      └──pack──► out ──copy──►
type stage struct {
	dev     *Device
	in, out *pinned
	done    uintptr // event behind the copies of the newest Pack
	busy    bool
}

// Stage takes pinned memory of that size.
func (d *Device) Stage(name string, bytes int64) (gpu.Stage, error) {
	d.enter()
	defer d.leave()
	s := &stage{dev: d}
	var err error
	if s.in, err = d.newPinned(name, bytes); err != nil {
		return nil, err
	}
	if err := d.check(d.drv.do(cuEventCreate, uintptr(unsafe.Pointer(&s.done)), eventNoTiming), "making an event"); err != nil {
		s.in.release()
		return nil, err
	}
	return s, nil
}

// Bytes is where rows are read to.
func (s *stage) Bytes() []byte { return s.in.bytes }

// Pack packs rows and queues their copy.
func (s *stage) Pack(x gpu.Layout, dst gpu.Buffer, off int64, d tensor.DType, shape tensor.Shape, m, row, n int64) error {
	l, ok := x.(*layout)
	if !ok {
		return diag.Errorf(diag.Internal, "cuda: a layout of another device: %T", x)
	}
	_, _, k := gpu.Matrices(shape)
	size := n * d.Bytes(k)
	if size < 0 || size > int64(len(s.in.bytes)) {
		return diag.Errorf(diag.Internal, "cuda: %d bytes of a stage of %d", size, len(s.in.bytes))
	}
	t, err := l.target(dst, off, d, shape, m, row, n, size)
	if err != nil {
		return err
	}
	from := s.in
	if l.packs(d) {
		if err := s.grow(t.bytes); err != nil {
			return err
		}
		from = s.out
		if err := l.pack(from.bytes[:t.bytes], d, t.k, s.in.bytes[:size]); err != nil {
			return err
		}
	}
	dev := s.dev
	dev.enter()
	defer dev.leave()
	if err := t.dst.check(0, 0); err != nil {
		return err
	}
	src, r := from.addr, success
	for _, p := range t.pieces {
		if r == success {
			r = dev.drv.do(cuMemcpyHtoDAsync, t.dst.ptr+uintptr(p.off), src, uintptr(p.bytes), dev.upload)
		}
		src += uintptr(p.bytes)
	}
	if r == success {
		r = dev.drv.do(cuEventRecord, s.done, dev.upload)
	}
	s.busy = true
	return dev.check(r, "loading into "+t.dst.name)
}

// grow makes the memory that rows are packed into.
func (s *stage) grow(bytes int64) error {
	if s.out != nil && int64(len(s.out.bytes)) >= bytes {
		return nil
	}
	s.dev.enter()
	defer s.dev.leave()
	if s.out != nil {
		s.out.release()
	}
	var err error
	s.out, err = s.dev.newPinned(s.in.name+" packed", max(bytes, int64(len(s.in.bytes))))
	return err
}

// Wait waits for the copies of the newest Pack, without keeping others from the device.
func (s *stage) Wait() error {
	if !s.busy {
		return nil
	}
	s.busy = false
	d := s.dev
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d.drv.do(cuCtxSetCurrent, d.context)
	r := d.drv.do(cuEventSynchronize, s.done)
	if r == success {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.check(r, "loading weights")
}

// Free waits and unpins.
func (s *stage) Free() {
	d := s.dev
	d.enter()
	defer d.leave()
	if d.context == 0 || s.in.addr == 0 {
		return
	}
	d.drv.do(cuEventSynchronize, s.done)
	d.drv.do(cuEventDestroy, s.done)
	s.in.release()
	if s.out != nil {
		s.out.release()
	}
}
