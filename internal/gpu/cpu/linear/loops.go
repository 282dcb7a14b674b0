// SPDX-License-Identifier: MIT OR Apache-2.0

package linear

import "math"

// tiny is the least max|x| of a block that is not taken for zero: the bits of 2^-119, below which 127/max|x| overflows.
const tiny = 0x04000000

// Activations of a tile of R rows are records of 32 k:
//
//	code i8 [R][32] │ scale f32 [R]
const actBytes = block + 4 // of a row in a record

// quantizeGo is the plain kernels.quantize.
func quantizeGo(tile []byte, height, r int, sums []int32, x []float32) {
	step := height * actBytes
	for b := range len(x) / block {
		v := x[b*block:][:block]
		var most uint32 // the largest |x|; as bits, so that a NaN is larger than all
		for _, f := range v {
			most = max(most, math.Float32bits(f)&^(1<<31))
		}
		a := math.Float32frombits(most)
		scale, inverse := a/127, 127/a
		if most < tiny {
			scale, inverse = 0, 0
		}
		rec := tile[b*step:][:step]
		var sum [2]int32
		for i, f := range v {
			const magic = 12582912 // 1.5·2^23: adding it rounds to an integer, ties to even
			q := int32(math.Float32bits(float32(f*inverse)+magic)) - 0x4b400000
			q = max(min(q, 127), -128)
			rec[r*block+i] = byte(q)
			sum[i/16] += q
		}
		le.PutUint32(rec[height*block+4*r:], math.Float32bits(scale))
		sums[2*b], sums[2*b+1] = sum[0], sum[1]
	}
}

// tileQ8Go is the plain kernels.tileQ8.
func tileQ8Go(f *format, t tile, w, a []byte, aux []int32, blocks int) {
	size, start, groups := f.codeBytes(), f.codeStart(), f.groups()
	for r := range t.rows {
		out := (*[lanes]float32)(t.out[r*t.ld:])
		if !t.add {
			*out = [lanes]float32{}
		}
		for b := range blocks {
			rec := a[b*t.rows*actBytes:][:t.rows*actBytes]
			x := (*[block]byte)(rec[r*block:])
			scale := math.Float32frombits(le.Uint32(rec[t.rows*block+4*r:]))
			weights := w[b*size:][:size]
			floats, codes := view[float32](weights[:start]), weights[start:]
			for g := range groups {
				extra := aux[(b*groups+g)*t.rows+r]
				dots := dotGo(x, codes, g, f.group)
				for c, dot := range dots {
					ws := floats[g*lanes+c]
					if f.affine {
						out[c] += float32(dot) * float32(ws*scale)
						out[c] += floats[(groups+g)*lanes+c] * math.Float32frombits(uint32(extra))
					} else {
						out[c] += float32(dot+extra) * float32(ws*scale)
					}
				}
			}
		}
	}
}

// dotGo multiplies a group's codes of 16 rows with one row of activations.
func dotGo(x *[block]byte, codes []byte, g, group int) (dots [lanes]int32) {
	for t := g * group / 4; t < (g+1)*group/4; t++ {
		x0, x1, x2, x3 := int32(int8(x[4*t])), int32(int8(x[4*t+1])), int32(int8(x[4*t+2])), int32(int8(x[4*t+3]))
		line := (*[4 * lanes]byte)(codes[t*4*lanes:])
		for c := range dots {
			dots[c] += x0*int32(line[4*c]) + x1*int32(line[4*c+1]) + x2*int32(line[4*c+2]) + x3*int32(line[4*c+3])
		}
	}
	return dots
}

// tileF32Go is the plain kernels.tileF32: eight columns at a time, so that sums stay in registers.
func tileF32Go(t tile, w, x []float32, ldx, k int) {
	for r := range t.rows {
		for half := 0; half < lanes; half += 8 {
			out := (*[8]float32)(t.out[r*t.ld+half:])
			var s [8]float32
			if t.add {
				s = *out
			}
			s0, s1, s2, s3, s4, s5, s6, s7 := s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]
			for i, v := range x[r*ldx:][:k] {
				w := (*[8]float32)(w[i*lanes+half:])
				s0 += v * w[0]
				s1 += v * w[1]
				s2 += v * w[2]
				s3 += v * w[3]
				s4 += v * w[4]
				s5 += v * w[5]
				s6 += v * w[6]
				s7 += v * w[7]
			}
			*out = [8]float32{s0, s1, s2, s3, s4, s5, s6, s7}
		}
	}
}
