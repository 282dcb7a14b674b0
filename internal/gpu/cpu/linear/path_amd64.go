// SPDX-License-Identifier: MIT OR Apache-2.0

package linear

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/metrale/metrale/internal/gpu/cpu/vec"
	"github.com/metrale/metrale/internal/tensor"
)

//go:generate go run ../../../../tools/asm/linear .

// Kernels in assembly, by what they do. All sizes are checked before they are called.
type (
	unpackFunc  = func(dst, src unsafe.Pointer, blocks int)
	decodeFunc  = func(dst, rec unsafe.Pointer, blocks, zero int)
	tileQ8Func  = func(out unsafe.Pointer, ld int, w, a, aux unsafe.Pointer, blocks, add int)
	widenFunc   = func(dst, src unsafe.Pointer, k int)
	tileF32Func = func(out unsafe.Pointer, ld int, w, x unsafe.Pointer, ldx, k, add int)

	directQ8Func  = func(out unsafe.Pointer, ld, panels int, w, a, aux unsafe.Pointer, blocks int)
	directF32Func = func(out unsafe.Pointer, ld, panels int, w, x unsafe.Pointer, ldx, k int)
)

// Kinds of code records. A kernel for a tile is found at kind|rows.
const (
	tileZero32   = 0 << 4
	tileZero16   = 1 << 4
	tileAffine32 = 2 << 4
	tileAffine16 = 3 << 4
	tileSigned32 = 4 << 4 // codes have 128 added, and the kernel wants to know
)

// packOrder puts the words of packed vectors in a row.
//
//lint:ignore U1000 read by assembly
var packOrder = [8]uint32{0, 4, 1, 5, 2, 6, 3, 7}

// simd are the tables of a path.
type simd struct {
	quantize  func(codes, scales unsafe.Pointer, step int, sums, src unsafe.Pointer, blocks int)
	widenBF16 func(dst, src unsafe.Pointer, k int)
	widenF16  func(dst, src unsafe.Pointer, k int)
	widen8    []widenFunc    // by type
	unpack    []unpackFunc   // by type
	decode    []decodeFunc   // by kind
	directQ8  []directQ8Func // by type<<4 | rows
	directF32 []directF32Func
	tileQ8    []tileQ8Func // by kind | rows
	tileF32   []tileF32Func
	signed    bool // tileQ8 has kernels for signed codes
}

var avx2 = simd{quantizeAVX2, widenBF16AVX2, widenF16AVX2, widenFloat8AVX2[:], unpackAVX2[:], decodeAVX2[:], directQ8AVX2[:],
	directF32AVX2[:], tileQ8AVX2[:], tileF32AVX2[:], true}

var avx512 = simd{quantizeAVX512, widenBF16AVX512, widenF16AVX512, widenFloat8AVX512[:], unpackAVX512[:], decodeAVX512[:], directQ8AVX512[:],
	directF32AVX512[:], tileQ8AVX512[:], tileF32AVX512[:], false}

// paths are those that this processor has, the best first.
var paths = findPaths()

func findPaths() (p []*kernels) {
	x := &cpu.X86
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
		name := "avx512"
		if x.HasAVX512VNNI {
			p = append(p, avx512.kernels(name, vec.AVX512, 8, 4, 2, 1))
			name = "avx512-novnni"
		}
		s := avx512 // integers as AVX2 does them, in tiles that it has too
		s.directQ8, s.tileQ8, s.signed = avx2.directQ8, avx2.tileQ8, true
		p = append(p, s.kernels(name, vec.AVX512, 4, 2, 1))
	}
	if x.HasAVX2 && x.HasFMA && x.HasF16C {
		p = append(p, avx2.kernels("avx2", vec.AVX2, 4, 2, 1))
	}
	return append(p, goKernels)
}

func (s *simd) kernels(name string, level vec.Level, tiles ...int) *kernels {
	k := &kernels{name: name, level: level, tiles: tiles}
	k.quantize = func(tile []byte, height, r int, sums []int32, x []float32) {
		step, blocks := height*actBytes, len(x)/block
		_, _ = tile[blocks*step-1], sums[2*blocks-1]
		s.quantize(ptr(tile[r*block:]), ptr(tile[height*block+4*r:]), step, ptr(sums), ptr(x), blocks)
	}
	k.unpack = func(f *format, dst, panel []byte, first, n int) {
		_, _ = dst[n*f.codeBytes()-1], panel[(first+n)*block/f.elems*f.bytes-1]
		s.unpack[f.d](ptr(dst), ptr(panel[first*block/f.elems*f.bytes:]), n)
	}
	k.widen = s.widen
	k.direct = func(f *format, rows int, q8 bool) bool {
		if i := int(f.d)<<4 | rows; q8 {
			return i < len(s.directQ8) && s.directQ8[i] != nil
		} else {
			return i < len(s.directF32) && s.directF32[i] != nil
		}
	}
	k.directQ8 = func(f *format, t tile, panels int, w, a []byte, aux []int32, blocks int) {
		_, _ = t.out[(t.rows-1)*t.ld+panels*lanes-1], w[panels*f.panelBytes(blocks*block)-1]
		_, _ = a[blocks*t.rows*actBytes-1], aux[blocks*f.groups()*t.rows-1]
		s.directQ8[int(f.d)<<4|t.rows](ptr(t.out), t.ld, panels, ptr(w), ptr(a), ptr(aux), blocks)
	}
	k.directF32 = func(f *format, t tile, panels int, w []byte, x []float32, ldx, n int) {
		_, _ = t.out[(t.rows-1)*t.ld+panels*lanes-1], w[panels*f.panelBytes(n)-1]
		_ = x[(t.rows-1)*ldx+n-1]
		s.directF32[int(f.d)<<4|t.rows](ptr(t.out), t.ld, panels, ptr(w), ptr(x), ldx, n)
	}
	k.tileQ8 = func(f *format, t tile, w, a []byte, aux []int32, blocks int) {
		_, _ = t.out[(t.rows-1)*t.ld+lanes-1], w[blocks*f.codeBytes()-1]
		_, _ = a[blocks*t.rows*actBytes-1], aux[blocks*f.groups()*t.rows-1]
		kind := f.kind()
		if s.signed && f.zero == 128 {
			kind = tileSigned32
		}
		s.tileQ8[kind|t.rows](ptr(t.out), t.ld, ptr(w), ptr(a), ptr(aux), blocks, flag(t.add))
	}
	k.tileF32 = func(t tile, w, x []float32, ldx, n int) {
		_, _, _ = t.out[(t.rows-1)*t.ld+lanes-1], w[n*lanes-1], x[(t.rows-1)*ldx+n-1]
		s.tileF32[t.rows](ptr(t.out), t.ld, ptr(w), ptr(x), ldx, n, flag(t.add))
	}
	return k
}

// kind is the format's kind of code records.
func (f *format) kind() int {
	switch {
	case f.affine && f.group == 16:
		return tileAffine16
	case f.affine:
		return tileAffine32
	case f.group == 16:
		return tileZero16
	}
	return tileZero32
}

// widen is kernels.widen.
func (s *simd) widen(f *format, dst []float32, panel []byte, k0, k1 int, tmp []byte) {
	n := k1 - k0
	_ = dst[n*lanes-1]
	at := k0 / f.elems * f.bytes
	_ = panel[at+(n+f.elems-1)/f.elems*f.bytes-1]
	switch {
	case f.d == tensor.BF16:
		s.widenBF16(ptr(dst), ptr(panel[at:]), n)
	case f.d == tensor.F16:
		s.widenF16(ptr(dst), ptr(panel[at:]), n)
	case f.float8:
		s.widen8[f.d](ptr(dst), ptr(panel[at:]), n)
	case !f.quantised():
		copy(dst, view[float32](panel[at:])[:n*lanes])
	default:
		per := f.elems / block // unpacked at a time
		_ = tmp[per*f.codeBytes()-1]
		for b := 0; b < n/block; b += per {
			s.unpack[f.d](ptr(tmp), ptr(panel[at+b/per*f.bytes:]), per)
			s.decode[f.kind()](ptr(dst[b*block*lanes:]), ptr(tmp), per, f.zero)
		}
	}
}

func ptr[T any](s []T) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s)) }

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
