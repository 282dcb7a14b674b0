// SPDX-License-Identifier: MIT OR Apache-2.0

// Package linear multiplies activations with weight matrices: the linear family of the CPU class.
//
// # Weights
//
// A matrix [N, K] is packed into panels of 16 rows, one after the other; the last is filled up with zeros. A panel is a
// sequence of records along k, so that a vector of 16 lanes holds one number of each of the 16 rows and a dot product
// never sums across lanes:
//
//	f32     record of 1 k:  f32 [16]
//	f16     record of 1 k:  f16 [16]
//	bf16    record of 2 k:  bf16 [16][2]; an odd K ends with a zero
//	e4m3    record of 1 k:  e4m3 [16]
//	e4m3_b  record of 32 or 128 k: scale f32 [16] │ e4m3 [k][16]
//	blocks  record of 32 k: scale f16 [groups][16] │ min f16 [16] │ planes                    Q4_0 … Q8_0, IQ4_NL, MXFP4, INT4, NVFP4
//	_K      record of 256 k: d f16 [16] │ dmin f16 [16] │ s i8 [groups][16] │ m u8 [groups][16] │ planes × 8
//
// with min, dmin and m only where the stored type has them. The scales of MXFP4, halved, and of INT4_B32 are bf16, which holds
// every E8M0; NVFP4's are halved. A group is the 32 (Q2_K, Q3_K, Q6_K, NVFP4: 16) elements that share a scale. Everything is exact:
// a weight is scale·value, scale·(code−zero) or scale·code+min with the very numbers of the stored block, and takes the memory
// of the stored type, up to 1.2 times.
//
// The codes of 32 k × 16 rows are eight vectors v0…v7 of 64 bytes; byte 4c+j of vt is the code at k = 4t+j of row c, what
// an integer dot product of 4 bytes wants. Codes of 8 bits lie as they are, fewer bits in planes of 64-byte lines:
//
//	4 bits  4 lines: line t has vt in the low nibbles, vt+4 in the high ones
//	2 bits  2 lines: line t has vt, vt+2, vt+4, vt+6 at bits 0, 2, 4, 6
//	1 bit   1 line:  bit t is of vt
//
// Q4_*, IQ4_NL, MXFP4, INT4_B32 and NVFP4 have a 4-bit plane, Q5_* also a 1-bit plane for the highest bit, Q6_K a 4- and a 2-bit plane, Q2_K
// a 2-bit plane, Q3_K a 2- and a 1-bit plane.
//
// # Numbers
//
// F32: y is the float32 sum over k, in order, of x·w with w dequantised exactly, each step one fused multiply-add.
//
// Q16 (types of integer codes only: e4m3 is computed as F32): x is written per 32 as two digits, each of int8 codes and a float32 scale: the first with
// a = max|x|/127, the second, of what the first leaves, the same way. Together they hold x to max|x|/2^16, where one digit, as
// others use, changes what models say. The digits are two rows for the integer kernels, whose results are added. For each,
// blocks follow in order, and in a block its groups: the integer dot product of codes is exact, sum(x_q·(code−zero)), and
//
//	y = fma(dot, scale·a, y), then for types with a min: y = fma(min, a·sum(x_q), y)
//
// Either way y is then multiplied with the scale of its column, if there is one, and the bias is added.
//
// A block of activations with a NaN or an infinity makes every y of its row NaN or infinite.
//
// # Contract
//
//  1. The bits of a row's results depend on that row, the weights and the path only: not on the other rows, the number of
//     workers, the split of the work, nor on whether one row or many were multiplied. LinearN, the fused bias, add and glu
//     give the bits of the single steps.
//  2. Paths: "avx512" (with VNNI where the processor has it; "avx512-novnni" does without) and "avx2" give the same bits;
//     "go" rounds products before it adds them.
//  3. Run and Experts allocate nothing once a Scratch has seen the largest call. A Scratch serves one call at a time.
//  4. Sizes are the caller's duty; a wrong one panics before memory outside a slice is touched.
//
// The assembly is written by tools/asm/linear; loops.go and unpack.go are its plain twins, and the path "go".
package linear
