// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"fmt"
	"unsafe"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
)

// buffer is device memory.
type buffer struct {
	dev  *Device
	name string
	ptr  uintptr // 0 once freed
	size int64
}

// Alloc takes device memory and zeroes it in the order of the stream. It is aligned to at least 256 bytes.
func (d *Device) Alloc(name string, bytes int64) (gpu.Buffer, error) {
	d.enter()
	defer d.leave()
	if d.dead != nil {
		return nil, d.dead
	}
	b := &buffer{dev: d, name: name, size: bytes}
	r := d.drv.do(cuMemAlloc, uintptr(unsafe.Pointer(&b.ptr)), uintptr(max(bytes, 1)))
	if r == errOutOfMemory {
		free := new([2]int64)
		d.drv.do(cuMemGetInfo, uintptr(unsafe.Pointer(&free[0])), uintptr(unsafe.Pointer(&free[1])))
		return nil, diag.Errorf(diag.Unsupported, "cuda: %s needs %d bytes; %d of %d are free on %s", name, bytes, free[0], free[1], d.found.Name)
	}
	if err := d.check(r, fmt.Sprintf("allocating %d bytes for %s", bytes, name)); err != nil {
		return nil, err
	}
	// Weights come on another stream: it waits for the zeroes.
	d.plain = true
	r = d.drv.do(cuMemsetD8Async, b.ptr, 0, uintptr(max(bytes, 1)), d.stream)
	if r == success {
		r = d.drv.do(cuEventRecord, d.zeroed, d.stream)
	}
	if r == success {
		r = d.drv.do(cuStreamWaitEvent, d.upload, d.zeroed, 0)
	}
	if err := d.check(r, "zeroing "+name); err != nil {
		d.drv.do(cuMemFree, b.ptr)
		return nil, err
	}
	d.buffers[b] = true
	return b, nil
}

// Size is in bytes.
func (b *buffer) Size() int64 { return b.size }

// bounceBytes is the size of the pinned buffer that pageable memory goes through.
const bounceBytes = 4 << 20

// Write copies and waits.
func (b *buffer) Write(off int64, src []byte) error { return b.copy(off, src, true) }

// Read waits for what was launched, and copies.
func (b *buffer) Read(off int64, dst []byte) error { return b.copy(off, dst, false) }

func (b *buffer) copy(off int64, host []byte, up bool) error {
	d := b.dev
	d.enter()
	defer d.leave()
	err := b.check(off, int64(len(host)))
	if err != nil {
		return err
	}
	if d.bounce == nil {
		if d.bounce, err = d.newPinned("bounce", bounceBytes); err != nil {
			return err
		}
	}
	p := d.bounce
	d.plain = true
	for len(host) > 0 {
		n := min(len(host), bounceBytes)
		var r result
		if up {
			copy(p.bytes, host[:n])
			r = d.drv.do(cuMemcpyHtoDAsync, b.ptr+uintptr(off), p.addr, uintptr(n), d.stream)
		} else {
			r = d.drv.do(cuMemcpyDtoHAsync, p.addr, b.ptr+uintptr(off), uintptr(n), d.stream)
		}
		if r == success {
			r = d.awaitStream(d.stream)
		}
		if err := d.check(r, fmt.Sprintf("copying %d bytes at %d of %s", n, off, b.name)); err != nil {
			return err
		}
		if !up {
			copy(host, p.bytes[:n])
		}
		host, off = host[n:], off+int64(n)
	}
	return nil
}

// check refuses what lies outside; the device is entered.
func (b *buffer) check(off, n int64) error {
	switch {
	case b.dev.dead != nil:
		return b.dev.dead
	case b.ptr == 0:
		return diag.Errorf(diag.Internal, "cuda: buffer %s was freed", b.name)
	case off < 0 || n < 0 || off > b.size-n:
		return diag.Errorf(diag.Internal, "cuda: %d bytes at %d of buffer %s of %d", n, off, b.name, b.size)
	}
	return nil
}

// Free gives the memory back after what was launched has run.
func (b *buffer) Free() {
	d := b.dev
	d.enter()
	defer d.leave()
	if b.ptr == 0 || !d.idle(d.stream) {
		return
	}
	d.drv.do(cuMemFree, b.ptr)
	b.ptr = 0
	delete(d.buffers, b)
}

// pinned is page-locked host memory.
type pinned struct {
	dev   *Device
	name  string
	addr  uintptr
	bytes []byte
}

// Pinned allocates page-locked host memory. It is not zeroed.
func (d *Device) Pinned(name string, bytes int64) (gpu.Pinned, error) {
	d.enter()
	defer d.leave()
	p, err := d.newPinned(name, bytes)
	if err != nil {
		return nil, err // not p: a nil *pinned is no nil gpu.Pinned
	}
	return p, nil
}

// newPinned is Pinned on an entered device.
func (d *Device) newPinned(name string, bytes int64) (*pinned, error) {
	if d.dead != nil {
		return nil, d.dead
	}
	p := &pinned{dev: d, name: name}
	if err := d.check(d.drv.do(cuMemHostAlloc, uintptr(unsafe.Pointer(&p.addr)), uintptr(max(bytes, 1)), hostPortable), fmt.Sprintf("pinning %d bytes for %s", bytes, name)); err != nil {
		return nil, err
	}
	p.bytes = unsafe.Slice((*byte)(pointer(p.addr)), bytes)
	d.pinned[p] = true
	return p, nil
}

// pointer is memory that the driver gave, not Go's.
func pointer(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// address is where a slice lies.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Bytes is the memory.
func (p *pinned) Bytes() []byte { return p.bytes }

// Float32s is the same memory.
func (p *pinned) Float32s() []float32 {
	return unsafe.Slice((*float32)(pointer(p.addr)), len(p.bytes)/4)
}

// Upload queues a copy of the first n bytes on the stream of launches.
func (p *pinned) Upload(dst gpu.Buffer, off, n int64) error {
	d := p.dev
	d.enter()
	defer d.leave()
	b, err := p.target(dst, off, n)
	if err != nil {
		return err
	}
	d.plain = true
	a := append(d.args[:0], b.ptr+uintptr(off), p.addr, uintptr(n), d.stream)
	if r := d.drv.call(cuMemcpyHtoDAsync, a); r != success {
		return d.check(r, "uploading "+p.name)
	}
	return nil
}

// Download queues a copy into the first n bytes on the stream of launches; Sync waits for it.
func (p *pinned) Download(src gpu.Buffer, off, n int64) error {
	d := p.dev
	d.enter()
	defer d.leave()
	b, err := p.target(src, off, n)
	if err != nil {
		return err
	}
	d.plain = true
	a := append(d.args[:0], p.addr, b.ptr+uintptr(off), uintptr(n), d.stream)
	if r := d.drv.call(cuMemcpyDtoHAsync, a); r != success {
		return d.check(r, "downloading "+p.name)
	}
	return nil
}

// target is the device's side of a copy; the device is entered.
func (p *pinned) target(x gpu.Buffer, off, n int64) (*buffer, error) {
	b, ok := x.(*buffer)
	switch {
	case !ok || b.dev != p.dev:
		return nil, diag.Errorf(diag.Internal, "cuda: %s copies to or from another device's memory", p.name)
	case n > int64(len(p.bytes)):
		return nil, diag.Errorf(diag.Internal, "cuda: %d bytes of %s, which has %d", n, p.name, len(p.bytes))
	}
	return b, b.check(off, n)
}

// Free unpins the memory after its copies have ended.
func (p *pinned) Free() {
	d := p.dev
	d.enter()
	defer d.leave()
	if p.addr == 0 || !d.idle(d.stream) {
		return
	}
	p.release()
}

// release frees the memory; the device is entered and nothing is copied any more.
func (p *pinned) release() {
	p.dev.drv.do(cuMemFreeHost, p.addr)
	delete(p.dev.pinned, p)
	p.addr, p.bytes = 0, nil
}
