// SPDX-License-Identifier: MIT OR Apache-2.0

package weights

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights/gguf"
)

// Block formats of safetensors checkpoints: what such a checkpoint keeps in two tensors, side by side.
//
//	INT4_B32   scale bf16 │ nibbles 16      scale·(q-8)          element i of 32 in the low nibble of byte i, i+16 in the high one
//	NVFP4      scale e4m3 │ nibbles 8       scale·e2m1(q)        element 2i of 16 in the low nibble of byte i, 2i+1 in the high one
//	E4M3_B32   scale f32 │ e4m3 32          scale·value
//	E4M3_B128  scale f32 │ e4m3 128
//
// Those of GGUF are drawn in package gguf.

// Dequantize decodes len(dst) elements of any type, blocks included, into float32. Bit-equal with PyTorch's conversions and
// ggml's reference. It fails if src has not their size.
func Dequantize(dst []float32, d tensor.DType, src []byte) error {
	switch d {
	case tensor.INT4_B32:
		return eachBlock(dst, d, src, func(dst []float32, b []byte) {
			scale := tensor.FromBF16(binary.LittleEndian.Uint16(b))
			for i, q := range b[2:18] {
				dst[i], dst[i+16] = scale*float32(int(q&15)-8), scale*float32(int(q>>4)-8)
			}
		})
	case tensor.NVFP4:
		return eachBlock(dst, d, src, func(dst []float32, b []byte) {
			scale := tensor.FromE4M3(b[0])
			for i, q := range b[1:9] {
				dst[2*i], dst[2*i+1] = scale*tensor.FromE2M1(q), scale*tensor.FromE2M1(q>>4)
			}
		})
	case tensor.E4M3_B32, tensor.E4M3_B128:
		return eachBlock(dst, d, src, func(dst []float32, b []byte) {
			scale := math.Float32frombits(binary.LittleEndian.Uint32(b))
			for i, q := range b[4:] {
				dst[i] = scale * tensor.FromE4M3(q)
			}
		})
	}
	if elems, _ := d.Block(); elems > 2 {
		return gguf.Dequantize(dst, d, src)
	}
	return tensor.Decode(dst, d, src)
}

// eachBlock decodes block by block.
func eachBlock(dst []float32, d tensor.DType, src []byte, decode func(dst []float32, b []byte)) error {
	elems, size := d.Block()
	if len(dst)%elems != 0 || len(dst)/elems*size != len(src) {
		return fmt.Errorf("weights: %d elements of %v do not take %d bytes", len(dst), d, len(src))
	}
	for len(src) > 0 {
		decode(dst[:elems], src[:size])
		dst, src = dst[elems:], src[size:]
	}
	return nil
}
