// SPDX-License-Identifier: MIT OR Apache-2.0

package record

import (
	"fmt"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/tensor"
)

// pageSize is the grain of remembered memory.
const pageSize = 4096

// buffer is memory of which only written pages exist. pages is nil once freed.
type buffer struct {
	dev    *Device
	name   string
	size   int64
	pages  map[int64][]byte
	packed packs
}

var _ gpu.Buffer = (*buffer)(nil)

func (b *buffer) Size() int64 { return b.size }

// Write remembers the bytes.
func (b *buffer) Write(off int64, src []byte) error {
	b.check("write", off, len(src))
	b.dev.log("write %s+%d %d bytes", b.name, off, len(src))
	for len(src) > 0 {
		page, ok := b.pages[off/pageSize]
		if !ok {
			page = make([]byte, pageSize)
			b.pages[off/pageSize] = page
		}
		n := copy(page[off%pageSize:], src)
		src, off = src[n:], off+int64(n)
	}
	return nil
}

// Read gives what was written, zeros elsewhere.
func (b *buffer) Read(off int64, dst []byte) error {
	b.check("read", off, len(dst))
	b.dev.log("read %s+%d %d bytes", b.name, off, len(dst))
	for len(dst) > 0 {
		n := min(len(dst), int(pageSize-off%pageSize))
		if page, ok := b.pages[off/pageSize]; ok {
			copy(dst[:n], page[off%pageSize:])
		} else {
			clear(dst[:n])
		}
		dst, off = dst[n:], off+int64(n)
	}
	return nil
}

// Free forgets the bytes.
func (b *buffer) Free() {
	b.mustLive()
	b.pages = nil
	b.dev.log("free %s", b.name)
}

func (b *buffer) mustLive() {
	if b.pages == nil {
		panic("record: buffer " + b.name + " used after Free")
	}
}

func (b *buffer) check(verb string, off int64, n int) {
	b.mustLive()
	if off < 0 || int64(n) > b.size-off {
		panic(fmt.Sprintf("record: %s of %d bytes at %d of buffer %s of %d", verb, n, off, b.name, b.size))
	}
}

// packs are the weights that were packed into a buffer.
type packs []pack

type pack struct {
	off, bytes int64 // bytes of the stored form
	layout     string
	dtype      tensor.DType
	shape      tensor.Shape
}

// add joins what belongs to one weight; the order of calls does not matter.
func (p *packs) add(off int64, layout string, d tensor.DType, shape tensor.Shape, bytes int64) {
	i, ok := slices.BinarySearchFunc(*p, off, func(x pack, off int64) int { return int(x.off - off) })
	if !ok {
		*p = slices.Insert(*p, i, pack{off: off, layout: layout, dtype: d, shape: shape})
	}
	(*p)[i].bytes += bytes
}

// String is, for each weight, where it lies, its format and the stored bytes that came.
func (p packs) String() string {
	var s strings.Builder
	for _, x := range p {
		fmt.Fprintf(&s, " +%d %q %v%v from %d bytes", x.off, x.layout, x.dtype, x.shape, x.bytes)
	}
	return s.String()
}
