// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"runtime"
	"unsafe"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
)

// stage is pinned memory on its way to the device.
type stage struct {
	dev  *Device
	in   *pinned
	done uintptr // event behind the newest copy
	busy bool
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

// Bytes is the memory.
func (s *stage) Bytes() []byte { return s.in.bytes }

// Send queues a copy and an event behind it, without waiting for whoever else has entered the device.
func (s *stage) Send(x gpu.Buffer, off, n int64) error {
	d := s.dev
	dst, ok := x.(*buffer)
	if !ok || dst.dev != d || off < 0 || n < 0 || off > dst.size-n || n > int64(len(s.in.bytes)) {
		return diag.Errorf(diag.Internal, "cuda: a stage of %d bytes sends %d to byte %d of a buffer", len(s.in.bytes), n, off)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d.drv.do(cuCtxSetCurrent, d.context)
	r := d.drv.do(cuMemcpyHtoDAsync, dst.ptr+uintptr(off), s.in.addr, uintptr(n), d.upload)
	if r == success {
		r = d.drv.do(cuEventRecord, s.done, d.upload)
	}
	s.busy = true
	return s.check(r, "loading into "+dst.name)
}

// check is Device.check outside of it.
func (s *stage) check(r result, what string) error {
	if r == success {
		return nil
	}
	s.dev.mu.Lock()
	defer s.dev.mu.Unlock()
	return s.dev.check(r, what)
}

// Wait waits for the newest copy, without keeping others from the device.
func (s *stage) Wait() error {
	if !s.busy {
		return nil
	}
	s.busy = false
	d := s.dev
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d.drv.do(cuCtxSetCurrent, d.context)
	return s.check(d.drv.do(cuEventSynchronize, s.done), "loading weights")
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
}
