// SPDX-License-Identifier: MIT OR Apache-2.0
// Tensor-core products of bf16 whose float32 operand is kept as a sum of two bf16, so that it loses 2^-17 at most and not 2^-9.
//
// Fragments of m16n8k16, lane = 4g + t:
//
//	a  [16, 16]  a0: row g, k 2t 2t+1   a1: row g+8, same k   a2: row g, k 2t+8 2t+9   a3: row g+8, same k
//	b  [16, 8]   b0: k 2t 2t+1, col g   b1: k 2t+8 2t+9, col g
//	c  [16, 8]   c0 c1: row g, cols 2t 2t+1   c2 c3: row g+8, same cols
//
// Which value stands at which k is free as long as a and b agree. Kernels here give lane t the values 8t to 8t+7 of 32
// consecutive ones, so that 16-byte loads of rows as stored are fragments: the first four feed one mma, the others the next.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#ifdef METRALE_HOST
#include "host.cuh"
#endif

namespace mma {

__device__ __forceinline__ void bf16(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
#ifdef METRALE_HOST
  host::multiply(c, a0, a1, a2, a3, b0, b1);
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}

// {lo, hi} rounded to nearest even; lo in the lower half.
__device__ __forceinline__ uint32_t pack(float lo, float hi) {
#ifdef METRALE_HOST
  return uint32_t(__bfloat16_as_ushort(__float2bfloat16_rn(hi))) << 16 | __bfloat16_as_ushort(__float2bfloat16_rn(lo));
#else
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
#endif
}
__device__ __forceinline__ float low(uint32_t v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float high(uint32_t v) { return __uint_as_float(v & 0xffff0000u); }

// Splits two floats into their bf16 and the bf16 of what is left.
__device__ __forceinline__ void split(float x0, float x1, uint32_t& hi, uint32_t& lo) {
  hi = pack(x0, x1);
  lo = pack(x0 - low(hi), x1 - high(hi));
}

// Transposes an 8×8 matrix of 16-bit values held as one register of a lane: row g, columns 2t 2t+1.
__device__ __forceinline__ uint32_t transpose(uint32_t v) {
#ifdef METRALE_HOST
  return host::transpose(v);
#else
  uint32_t r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(v));
  return r;
#endif
}

}  // namespace mma
