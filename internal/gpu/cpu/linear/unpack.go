// SPDX-License-Identifier: MIT OR Apache-2.0

package linear

import (
	"math"
	"unsafe"

	"github.com/metrale/metrale/internal/tensor"
)

// groups is the number of scales of a block.
func (f *format) groups() int { return block / f.group }

// codeBytes is the size of a code record: a block of a panel, ready for integer dot products.
//
//	scale f32 [groups][16] │ min f32 [groups][16], if affine │ code u8 [8][16][4]: element 4t+j of row c at [t][c][j]
//
// A weight is scale·(code − zero), or scale·code + min.
func (f *format) codeBytes() int { return f.codeStart() + lanes*block }

func (f *format) codeStart() int {
	if f.affine {
		return 2 * f.groups() * lanes * 4
	}
	return f.groups() * lanes * 4
}

// record finds block b of a panel: its record, and its index there.
func (f *format) record(panel []byte, b int) (rec []byte, i int) {
	per := f.elems / block
	return panel[b/per*f.bytes:][:f.bytes], b % per
}

// scale is the scale of group g of row c, min what its affine weights add. g counts from the record's start.
func (f *format) scale(rec []byte, g, c int) float32 {
	if f.super {
		return f.number(rec[2*c:]) * float32(int8(rec[f.ints+g*lanes+c]))
	}
	return f.number(rec[2*(g*lanes+c):])
}

func (f *format) min(rec []byte, g, c int) float32 {
	m := f.number(rec[f.mins+2*c:])
	if f.super {
		m *= -float32(rec[f.intMins+g*lanes+c])
	}
	return m
}

func (f *format) number(b []byte) float32 {
	if f.bf16 {
		return tensor.FromBF16(le.Uint16(b))
	}
	return tensor.FromF16(le.Uint16(b))
}

// word is the four codes at elements 4t…4t+3 of row c in a block's planes, after the codebook.
func (f *format) word(planes []byte, t, c int) uint32 {
	line := func(i int) uint32 { return le.Uint32(planes[64*i+4*c:]) }
	var w uint32
	high := 0
	switch f.low {
	case 8:
		return line(t)
	case 4:
		w, high = line(t%4)>>(t/4*4)&0x0f0f0f0f, 4
	case 2:
		w, high = line(t%2)>>(t/2*2)&0x03030303, 2
	}
	switch {
	case f.high == 1:
		w |= line(high) >> t & 0x01010101 << f.low
	case f.high == 2:
		w |= line(high+t%2) >> (t / 2 * 2) & 0x03030303 << f.low
	case f.book != nil:
		b := f.book
		w = uint32(b[w&15]) | uint32(b[w>>8&15])<<8 | uint32(b[w>>16&15])<<16 | uint32(b[w>>24])<<24
	}
	return w
}

// unpackGo writes the code records of blocks [first, first+n) of a panel.
func unpackGo(f *format, dst, panel []byte, first, n int) {
	groups, start := f.groups(), f.codeStart()
	for i := range n {
		rec, b := f.record(panel, first+i)
		out := dst[i*f.codeBytes():][:f.codeBytes()]
		floats := view[float32](out[:start])
		for g := range groups {
			for c := range lanes {
				floats[g*lanes+c] = f.scale(rec, b*groups+g, c)
				if f.affine {
					floats[(groups+g)*lanes+c] = f.min(rec, b*groups+g, c)
				}
			}
		}
		planes := rec[f.planes+b*f.planeBytes():][:f.planeBytes()]
		for t := range 8 {
			for c := range lanes {
				le.PutUint32(out[start+64*t+4*c:], f.word(planes, t, c))
			}
		}
	}
}

// widenBytes holds the code records of a superblock.
const widenBytes = super / block * (4*4*lanes + lanes*block)

// widenGo is the plain kernels.widen.
func widenGo(f *format, dst []float32, panel []byte, k0, k1 int, rec []byte) {
	switch {
	case f.quantised():
		for k := k0; k < k1; k += block {
			unpackGo(f, rec[:f.codeBytes()], panel, k/block, 1)
			decodeGo(f, dst[(k-k0)*lanes:][:block*lanes], rec[:f.codeBytes()])
		}
	case f.d == tensor.BF16:
		for i := range (k1 - k0) * lanes {
			k, c := k0+i/lanes, i%lanes
			dst[i] = tensor.FromBF16(le.Uint16(panel[(k/2*lanes+c)*4+k%2*2:]))
		}
	case f.d == tensor.F16:
		tensor.DecodeF16(dst[:(k1-k0)*lanes], panel[k0*f.bytes:k1*f.bytes])
	case f.float8:
		for k := k0; k < k1; k++ {
			for c := range lanes {
				dst[(k-k0)*lanes+c] = f.float(panel, k, c)
			}
		}
	default:
		copy(dst, view[float32](panel[k0*f.bytes:k1*f.bytes]))
	}
}

// float is the weight at k of row c of a panel of e4m3.
func (f *format) float(panel []byte, k, c int) float32 {
	rec := panel[k/f.elems*f.bytes:][:f.bytes]
	v := tensor.FromE4M3(rec[f.bytes-(f.elems-k%f.elems)*lanes+c])
	if f.elems > 1 {
		v *= math.Float32frombits(le.Uint32(rec[4*c:]))
	}
	return v
}

// decodeGo writes a code record as float32 [32][16].
func decodeGo(f *format, dst []float32, rec []byte) {
	floats, codes := view[float32](rec[:f.codeStart()]), rec[f.codeStart():]
	for k := range block {
		g := k / f.group * lanes
		for c := range lanes {
			v := float32(floats[g+c] * float32(int(codes[k/4*64+4*c+k%4])-f.zero)) // rounded: never fused with the sum
			if f.affine {
				v += floats[f.groups()*lanes+g+c]
			}
			dst[k*lanes+c] = v
		}
	}
}

// Embed writes scale times row token of w to dst [K]: exactly the dequantised weights when scale is 1.
func Embed(dst []float32, w Weight, token int, scale float32) {
	f, c := formats[w.D], token%lanes
	size := f.panelBytes(w.K)
	panel := w.Data[token/lanes*size:][:size]
	dst = dst[:w.K]
	switch {
	case f.quantised():
		for b := range w.K / block {
			f.decodeLane(dst[b*block:][:block], panel, b, c)
		}
	case f.d == tensor.BF16:
		for k := range dst {
			dst[k] = tensor.FromBF16(le.Uint16(panel[(k/2*lanes+c)*4+k%2*2:]))
		}
	case f.d == tensor.F16:
		for k := range dst {
			dst[k] = tensor.FromF16(le.Uint16(panel[(k*lanes+c)*2:]))
		}
	case f.float8:
		for k := range dst {
			dst[k] = f.float(panel, k, c)
		}
	default:
		floats := view[float32](panel)
		for k := range dst {
			dst[k] = floats[k*lanes+c]
		}
	}
	if scale != 1 {
		for k := range dst {
			dst[k] *= scale
		}
	}
}

// decodeLane writes block b of row c of a panel as float32 [32].
func (f *format) decodeLane(dst []float32, panel []byte, b, c int) {
	rec, i := f.record(panel, b)
	planes := rec[f.planes+i*f.planeBytes():][:f.planeBytes()]
	var scale, low float32
	for t := range 8 {
		if 4*t%f.group == 0 {
			g := i*f.groups() + 4*t/f.group
			scale = f.scale(rec, g, c)
			if f.affine {
				low = f.min(rec, g, c)
			}
		}
		for j, w := 0, f.word(planes, t, c); j < 4; j, w = j+1, w>>8 {
			v := float32(scale * float32(int(w&255)-f.zero))
			if f.affine {
				v += low
			}
			dst[4*t+j] = v
		}
	}
}

// view reads bytes as elements of T, which b is aligned for.
func view[T any](b []byte) []T {
	var t T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(t)))
}

// align drops bytes from the front of b until it starts on a cache line.
func align(b []byte) []byte {
	return b[-uintptr(unsafe.Pointer(unsafe.SliceData(b)))%64:]
}

// aligned gives n bytes that start on a cache line.
func aligned(n int) []byte { return align(make([]byte, n+64))[:n] }
