// SPDX-License-Identifier: MIT OR Apache-2.0

package weights

import (
	"encoding/binary"
	"math"

	"github.com/metrale/metrale/internal/tensor"
)

// codec says how values become blocks, and numbers.
type codec struct {
	bits   int64
	float  func(dst []float32, src []byte)
	blocks func(r *blockRow)
}

// blockRow is a row to be written as blocks.
type blockRow struct {
	dst, values, scales []byte
	size, of            int // bytes of a block, and of its values
	scale, share        int // bytes of a scale, and blocks that share it
	d                   tensor.DType
}

// own is the scale of block i.
func (r *blockRow) own(i int) []byte { return r.scales[i/r.share*r.scale:][:r.scale] }

var (
	codesE4M3 = codec{8, func(dst []float32, src []byte) { _ = tensor.Decode(dst, tensor.E4M3, src) }, blocksE4M3}
	codesE2M1 = codec{4, func(dst []float32, src []byte) { _ = tensor.Decode(dst, tensor.E2M1, src) }, blocksE2M1}
	codesInt4 = codec{4, func(dst []float32, src []byte) { nibbles(dst, src, 8) }, blocksInt4}
	// codesUint4 are codes from which a zero point is taken, the last byte of their scale.
	codesUint4 = codec{4, func(dst []float32, src []byte) { nibbles(dst, src, 0) }, blocksUint4}
)

// nibbles writes codes of 4 bits less zero.
func nibbles(dst []float32, src []byte, zero float32) {
	for i, b := range src {
		dst[2*i], dst[2*i+1] = float32(b&15)-zero, float32(b>>4)-zero
	}
}

// blocksE4M3 writes E4M3_B32 or E4M3_B128.
func blocksE4M3(r *blockRow) {
	for i := range len(r.values) / r.of {
		dst := r.dst[i*r.size:][:r.size]
		binary.LittleEndian.PutUint32(dst, math.Float32bits(number(r.d, r.own(i))))
		copy(dst[4:], r.values[i*r.of:])
	}
}

// blocksE2M1 writes NVFP4 or MXFP4.
func blocksE2M1(r *blockRow) {
	for i := range len(r.values) / r.of {
		dst, src := r.dst[i*r.size:][:r.size], r.values[i*r.of:][:r.of]
		if dst[0] = r.scales[i/r.share]; r.of == 8 {
			binary.LittleEndian.PutUint64(dst[1:], binary.LittleEndian.Uint64(src))
			continue
		}
		halves(dst[1:], src)
	}
}

// blocksInt4 writes Q4_0 or INT4_B32.
func blocksInt4(r *blockRow) {
	for i := range len(r.values) / r.of {
		dst := r.dst[i*r.size:][:r.size]
		copy(dst, r.own(i)[:2])
		halves(dst[2:], r.values[i*r.of:])
	}
}

// blocksUint4 writes the same where all zero points are 8, else Q5_0: a code less its zero point has five bits.
func blocksUint4(r *blockRow) {
	if r.size == 18 {
		blocksInt4(r)
		return
	}
	const all, low, fifth = 0x0101010101010101, 0x0F0F0F0F0F0F0F0F, 0x1010101010101010
	for i := range len(r.values) / r.of {
		dst, own := r.dst[i*r.size:][:r.size], r.own(i)
		add := uint64(16-own[2]) * all
		copy(dst, own[:2])
		halves(dst[6:], r.values[i*r.of:])
		var high [2]uint32 // fifth bits of elements 0 to 15, and of 16 to 31
		for j := range 2 {
			b := binary.LittleEndian.Uint64(dst[6+8*j:])
			x, y := b&low+add, b>>4&low+add // at most 15+16
			binary.LittleEndian.PutUint64(dst[6+8*j:], x&low|y&low<<4)
			high[0] |= gather(x&fifth>>4) << (8 * j)
			high[1] |= gather(y&fifth>>4) << (8 * j)
		}
		binary.LittleEndian.PutUint32(dst[2:], high[0]|high[1]<<16)
	}
}

// gather makes a byte of the lowest bits of 8.
func gather(x uint64) uint32 { return uint32(x * 0x0102040810204080 >> 56) }

// halves puts 32 codes of 4 bits that follow each other into ggml's order: element i with element i+16.
func halves(dst, src []byte) {
	a, b := binary.LittleEndian.Uint64(src), binary.LittleEndian.Uint64(src[8:])
	const low = 0x0F0F0F0F0F0F0F0F
	even, odd := a&low|b&low<<4, a>>4&low|b&^low // of elements 2i and 2i+1
	binary.LittleEndian.PutUint64(dst, spread(uint32(even))|spread(uint32(odd))<<8)
	binary.LittleEndian.PutUint64(dst[8:], spread(uint32(even>>32))|spread(uint32(odd>>32))<<8)
}

// spread puts a zero byte behind each of four.
func spread(x uint32) uint64 {
	y := uint64(x)
	y = (y | y<<16) & 0x0000FFFF0000FFFF
	return (y | y<<8) & 0x00FF00FF00FF00FF
}

// number is one number of a stored scale.
func number(d tensor.DType, b []byte) float32 {
	switch d {
	case tensor.F32:
		return math.Float32frombits(binary.LittleEndian.Uint32(b))
	case tensor.BF16:
		return tensor.FromBF16(binary.LittleEndian.Uint16(b))
	case tensor.F16:
		return tensor.FromF16(binary.LittleEndian.Uint16(b))
	case tensor.E4M3:
		return tensor.FromE4M3(b[0])
	}
	return tensor.FromE8M0(b[0])
}
