// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"sync"
	"unsafe"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
)

const (
	alignment = 64      // of every buffer: a cache line and the widest vector
	mapFrom   = 1 << 20 // bytes from which a buffer is its own memory map, which Free gives back
)

// buffer is host memory. data is nil once freed.
type buffer struct {
	name string
	data []byte
	free func() error // unmaps; nil for Go memory
	full sync.Once    // dense was called
}

// dense says that the whole buffer will be written, as a weight is: huge pages save address translations. A pool that fills
// page by page must not have them, since each would bring in 2 MiB at the first touch.
func (b *buffer) dense() {
	b.full.Do(func() {
		if b.free != nil {
			adviseHuge(b.data)
		}
	})
}

var _ gpu.HostBuffer = (*buffer)(nil)

// Alloc gives zeroed memory. Pages of large buffers appear when first touched.
func (d *Device) Alloc(name string, bytes int64) (gpu.Buffer, error) {
	if bytes < 0 || bytes != int64(int(bytes)) {
		return nil, diag.Errorf(diag.Internal, "buffer %s: %d bytes", name, bytes)
	}
	b := &buffer{name: name}
	if bytes >= mapFrom {
		data, free, err := mapAnonymous(int(bytes))
		if err != nil {
			return nil, diag.Errorf(diag.Overloaded, "buffer %s: no memory for %d bytes", name, bytes).Because(err)
		}
		b.data, b.free = data, free
		return b, nil
	}
	raw := make([]byte, bytes+alignment)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(raw))) % alignment
	b.data = raw[skip : skip+uintptr(bytes) : skip+uintptr(bytes)]
	return b, nil
}

// Size is that asked for; 0 once freed.
func (b *buffer) Size() int64 { return int64(len(b.data)) }

// Bytes is the memory itself.
func (b *buffer) Bytes() []byte {
	b.mustLive()
	return b.data
}

// Float32s is the same memory; bytes after the last whole element are left out.
func (b *buffer) Float32s() []float32 {
	b.mustLive()
	return view[float32](b.data)
}

// Write copies src to off.
func (b *buffer) Write(off int64, src []byte) error {
	dst, err := b.span("write", off, len(src))
	copy(dst, src)
	return err
}

// Read copies from off into dst.
func (b *buffer) Read(off int64, dst []byte) error {
	src, err := b.span("read", off, len(dst))
	copy(dst, src)
	return err
}

// Free gives the memory back. Freeing twice panics.
func (b *buffer) Free() {
	b.mustLive()
	b.data = nil
	if b.free != nil {
		if err := b.free(); err != nil {
			panic("cpu: buffer " + b.name + ": " + err.Error())
		}
	}
}

func (b *buffer) mustLive() {
	if b.data == nil {
		panic("cpu: buffer " + b.name + " used after Free")
	}
}

func (b *buffer) span(verb string, off int64, n int) ([]byte, error) {
	b.mustLive()
	if off < 0 || off > int64(len(b.data)) || int64(n) > int64(len(b.data))-off {
		return nil, diag.Errorf(diag.Internal, "buffer %s: %s of %d bytes at %d of %d", b.name, verb, n, off, len(b.data))
	}
	return b.data[off : off+int64(n)], nil
}

// view reads bytes as elements of T. b is aligned for T and not written through another type at the same time.
func view[T any](b []byte) []T {
	var t T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(t)))
}
