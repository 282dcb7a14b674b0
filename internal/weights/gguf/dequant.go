// SPDX-License-Identifier: MIT OR Apache-2.0

package gguf

import (
	"encoding/binary"
	"math"

	"github.com/metrale/metrale/internal/tensor"
)

// Products that are added to something are converted to float32 first: the language then forbids fusing the two, which
// would give other bits on machines with fused multiply-add.

var iq4nl = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// mxfp4 are twice the values of E2M1 (so the scale is halved); ggml has no negative zero.
var mxfp4 = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// blocks decodes one block of each format.
var blocks = map[tensor.DType]func(dst []float32, b []byte){
	tensor.Q4_0: q4_0, tensor.Q4_1: q4_1, tensor.Q5_0: q5_0, tensor.Q5_1: q5_1, tensor.Q8_0: q8_0,
	tensor.Q2_K: q2_K, tensor.Q3_K: q3_K, tensor.Q4_K: q4_K, tensor.Q5_K: q5_K, tensor.Q6_K: q6_K,
	tensor.IQ4_NL: iq4_NL, tensor.MXFP4: mxFP4,
}

// Dequantize decodes whole blocks of one of GGUF's block formats. It fails for other formats and for sizes that differ.
func Dequantize(dst []float32, d tensor.DType, src []byte) error {
	decode := blocks[d]
	if decode == nil {
		return errNoBlocks
	}
	if err := checkBlocks(d, len(dst), len(src)); err != nil {
		return err
	}
	elems, size := d.Block()
	for len(src) > 0 {
		decode(dst[:elems], src[:size])
		dst, src = dst[elems:], src[size:]
	}
	return nil
}

// half is the number at the start of b.
func half(b []byte) float32 { return tensor.FromF16(binary.LittleEndian.Uint16(b)) }

func q4_0(dst []float32, b []byte) {
	d := half(b)
	for i, q := range b[2:18] {
		dst[i] = d * float32(int(q&15)-8)
		dst[i+16] = d * float32(int(q>>4)-8)
	}
}

func q4_1(dst []float32, b []byte) {
	d, m := half(b), half(b[2:])
	for i, q := range b[4:20] {
		dst[i] = float32(d*float32(q&15)) + m
		dst[i+16] = float32(d*float32(q>>4)) + m
	}
}

func q5_0(dst []float32, b []byte) {
	d, high := half(b), binary.LittleEndian.Uint32(b[2:])
	for i, q := range b[6:22] {
		dst[i] = d * float32(int(uint32(q&15)|high>>i&1<<4)-16)
		dst[i+16] = d * float32(int(uint32(q>>4)|high>>(i+16)&1<<4)-16)
	}
}

func q5_1(dst []float32, b []byte) {
	d, m, high := half(b), half(b[2:]), binary.LittleEndian.Uint32(b[4:])
	for i, q := range b[8:24] {
		dst[i] = float32(d*float32(uint32(q&15)|high>>i&1<<4)) + m
		dst[i+16] = float32(d*float32(uint32(q>>4)|high>>(i+16)&1<<4)) + m
	}
}

func q8_0(dst []float32, b []byte) {
	d := half(b)
	for i, q := range b[2:34] {
		dst[i] = float32(int8(q)) * d
	}
}

func iq4_NL(dst []float32, b []byte) {
	d := half(b)
	for i, q := range b[2:18] {
		dst[i] = d * iq4nl[q&15]
		dst[i+16] = d * iq4nl[q>>4]
	}
}

func mxFP4(dst []float32, b []byte) {
	d := math.Float32frombits(0x00200000 << b[0]) // 2^(e-128), subnormal for e < 2
	if b[0] >= 2 {
		d = math.Float32frombits(uint32(b[0]-1) << 23)
	}
	for i, q := range b[1:17] {
		dst[i] = d * mxfp4[q&15]
		dst[i+16] = d * mxfp4[q>>4]
	}
}

// In the _K formats element e = 128·h + 32·j + l (h < 2, j < 4, l < 32) has its two low bits at bits 2j of byte 32h + l.

func q2_K(dst []float32, b []byte) {
	scales, qs, d, dmin := b[:16], b[16:80], half(b[80:]), half(b[82:])
	for g, s := range scales { // groups of 16
		dl, ml := d*float32(s&15), dmin*float32(s>>4)
		q, shift := qs[g/8*32+g%2*16:], g/2%4*2
		for i := range 16 {
			dst[16*g+i] = float32(dl*float32(q[i]>>shift&3)) - ml
		}
	}
}

func q3_K(dst []float32, b []byte) {
	high, qs, scales, d := b[:32], b[32:96], b[96:108], half(b[108:])
	for g := range 16 { // groups of 16
		low := scales[g%8] >> (g / 8 * 4) & 15
		dl := d * float32(int(low|scales[8+g%4]>>(g/4*2)&3<<4)-32)
		q, shift, bit := qs[g/8*32+g%2*16:], g/2%4*2, g/2
		for i := range 16 {
			v := int(q[i] >> shift & 3)
			if high[g%2*16+i]>>bit&1 == 0 {
				v -= 4
			}
			dst[16*g+i] = dl * float32(v)
		}
	}
}

// scaleMin unpacks the 6-bit scale and min of group g < 8 from 12 bytes.
func scaleMin(s []byte, g int) (scale, low float32) {
	if g < 4 {
		return float32(s[g] & 63), float32(s[g+4] & 63)
	}
	return float32(s[g+4]&15 | s[g-4]>>6<<4), float32(s[g+4]>>4 | s[g]>>6<<4)
}

func q4_K(dst []float32, b []byte) {
	d, dmin, scales, qs := half(b), half(b[2:]), b[4:16], b[16:144]
	for g := range 8 { // groups of 32
		s, m := scaleMin(scales, g)
		dl, ml := d*s, dmin*m
		for i, q := range qs[g/2*32:][:32] {
			dst[32*g+i] = float32(dl*float32(q>>(g%2*4)&15)) - ml
		}
	}
}

func q5_K(dst []float32, b []byte) {
	d, dmin, scales, high, qs := half(b), half(b[2:]), b[4:16], b[16:48], b[48:176]
	for g := range 8 { // groups of 32
		s, m := scaleMin(scales, g)
		dl, ml := d*s, dmin*m
		for i, q := range qs[g/2*32:][:32] {
			dst[32*g+i] = float32(dl*float32(q>>(g%2*4)&15|high[i]>>g&1<<4)) - ml
		}
	}
}

func q6_K(dst []float32, b []byte) {
	low, high, scales, d := b[:128], b[128:192], b[192:208], half(b[208:])
	for g, s := range scales { // groups of 16
		dl := d * float32(int8(s))
		h, j, l := g/8, g/2%4, g%2*16
		ql, qh := low[64*h+32*(j&1)+l:], high[32*h+l:]
		for i := range 16 {
			dst[16*g+i] = dl * float32(int(ql[i]>>(j/2*4)&15|qh[i]>>(2*j)&3<<4)-32)
		}
	}
}
