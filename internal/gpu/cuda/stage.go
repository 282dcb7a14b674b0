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
	mem  []byte
	addr uintptr
	huge []byte  // the mapping that mem lies in; nil: it is pinned's
	in   *pinned // without huge pages
	done uintptr // event behind the newest copy
	busy bool
}

// Stage takes pinned memory of that size: large pages, which cost a tenth of what the driver's own take to make.
func (d *Device) Stage(name string, bytes int64) (gpu.Stage, error) {
	s := &stage{dev: d}
	s.huge, s.mem = mapHuge(bytes)
	d.enter()
	defer d.leave()
	if d.dead != nil {
		unmapHuge(s.huge)
		return nil, d.dead
	}
	if s.huge != nil {
		s.addr = address(s.mem)
		if d.drv.do(cuMemHostRegister, s.addr, uintptr(len(s.mem)), hostPortable) != success {
			unmapHuge(s.huge)
			s.huge = nil
		}
	}
	var err error
	if s.huge == nil {
		if s.in, err = d.newPinned(name, bytes); err != nil {
			return nil, err
		}
		s.mem, s.addr = s.in.bytes, s.in.addr
	}
	if err := d.check(d.drv.do(cuEventCreate, uintptr(unsafe.Pointer(&s.done)), eventNoTiming), "making an event"); err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

// release unpins; the device is entered.
func (s *stage) release() {
	if s.in != nil {
		s.in.release()
	} else if s.huge != nil {
		s.dev.drv.do(cuMemHostUnregister, s.addr)
		unmapHuge(s.huge)
	}
	s.mem, s.addr, s.huge, s.in = nil, 0, nil, nil
}

// Bytes is the memory.
func (s *stage) Bytes() []byte { return s.mem }

// Send queues a copy and an event behind it, without waiting for whoever else has entered the device.
func (s *stage) Send(x gpu.Buffer, off, n int64) error {
	d := s.dev
	if err := s.lost(); err != nil {
		return err
	}
	dst, ok := x.(*buffer)
	if !ok || dst.dev != d || off < 0 || n < 0 || off > dst.size-n || n > int64(len(s.mem)) {
		return diag.Errorf(diag.Internal, "cuda: a stage of %d bytes sends %d to byte %d of a buffer", len(s.mem), n, off)
	}
	if dst.ptr == 0 {
		return diag.Errorf(diag.Internal, "cuda: buffer %s was freed", dst.name)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d.drv.do(cuCtxSetCurrent, d.context)
	r := d.drv.do(cuMemcpyHtoDAsync, dst.ptr+uintptr(off), s.addr, uintptr(n), d.upload)
	if r == success {
		r = d.drv.do(cuEventRecord, s.done, d.upload)
	}
	s.busy = true
	return s.check(r, "loading into "+dst.name)
}

// lost is the latched loss. Without one nobody is waited for, since whoever has entered the device may load code.
func (s *stage) lost() error {
	if !s.dev.gone.Load() {
		return nil
	}
	s.dev.mu.Lock()
	defer s.dev.mu.Unlock()
	return s.dev.dead
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
	if err := s.lost(); err != nil {
		return err
	}
	if !s.busy {
		return nil
	}
	s.busy = false
	d := s.dev
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d.drv.do(cuCtxSetCurrent, d.context)
	return s.check(d.await(cuEventQuery, []uintptr{s.done}), "loading weights")
}

// Free waits and unpins.
func (s *stage) Free() {
	d := s.dev
	d.enter()
	defer d.leave()
	if s.addr == 0 || d.hangs {
		return
	}
	if d.context == 0 { // closed: nothing is registered any more
		unmapHuge(s.huge)
		s.addr = 0
		return
	}
	_ = d.check(d.await(cuEventQuery, []uintptr{s.done}), "loading weights")
	if d.hangs {
		return
	}
	d.drv.do(cuEventDestroy, s.done)
	s.release()
}
