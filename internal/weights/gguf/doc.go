// SPDX-License-Identifier: MIT OR Apache-2.0

// Package gguf reads GGUF files: llama.cpp's format of one file for configuration, vocabulary and (quantised) tensors.
//
//	file    magic "GGUF" │ version u32 (2, 3) │ tensors u64 │ pairs u64 │ pairs × (key, type u32, value) │
//	        tensors × (name, axes u32, axes × extent u64, type u32, offset u64) │ padding to alignment │ data
//	string  length u64 │ bytes          array  element type u32 │ count u64 │ elements
//
// All little-endian. GGUF lists extents innermost first; here shapes are row-major, [out, in].
//
// Block formats (bytes of one block of 32, or of 256 for the _K ones; d, m are halves; element i of 32 lies in the low
// nibble of byte i, element i+16 in its high nibble):
//
//	Q4_0    d 2 │ nibbles 16                     d·(q-8)
//	Q4_1    d 2 │ m 2 │ nibbles 16               d·q + m
//	Q5_0    d 2 │ fifth bits 4 │ nibbles 16      d·(q-16)
//	Q5_1    d 2 │ m 2 │ fifth bits 4 │ nibbles   d·q + m
//	Q8_0    d 2 │ int8 32                        d·q
//	IQ4_NL  d 2 │ nibbles 16                     d·table[q]
//	MXFP4   e 1 │ nibbles 16                     2^(e-127)·e2m1(q)
//	Q2_K    scale, min nibbles 16 │ 2-bit 64 │ d 2 │ dmin 2               groups of 16: d·s·q - dmin·m
//	Q3_K    third bits 32 │ 2-bit 64 │ 6-bit scales 12 │ d 2              groups of 16: d·(s-32)·(q-4)
//	Q4_K    d 2 │ dmin 2 │ 6-bit scales and mins 12 │ nibbles 128         groups of 32: d·s·q - dmin·m
//	Q5_K    d 2 │ dmin 2 │ 6-bit scales and mins 12 │ fifth bits 32 │ nibbles 128
//	Q6_K    low nibbles 128 │ high 2 bits 64 │ int8 scales 16 │ d 2       groups of 16: d·s·(q-32)
//
// Contract:
//
//  1. Read checks everything that the header says (names, counts, types, extents, offsets, alignment) against the size of
//     the file and refuses with an error that names the file and the key or tensor. Memory is bounded by the file's size
//     and by MaxHeader.
//  2. Views shows the tensors as a Hugging Face checkpoint of the same model has them: its names, its row order, one tensor
//     per expert. What a converter changed is described by the View (Rows, Cols, Value), and undone by whoever reads it.
//  3. Dequantize is bit-equal with ggml's reference on every platform (no fused multiply-add).
package gguf
