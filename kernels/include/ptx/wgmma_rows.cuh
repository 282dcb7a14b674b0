// SPDX-License-Identifier: MIT OR Apache-2.0
// Products of a warpgroup whose left operand lies in registers and whose right one has its columns innermost: weights of attention
// times values as they are stored. Needs a GPU of sm_90a.
//
// Left, of warp w, lane = 4g + t, 16 values along k (what sums of an earlier product are, packed in pairs):
//
//	a0   row 16w + g, k 2t 2t+1    a1   row 16w + g + 8, same k    a2 a3   the same rows, k 2t+8 2t+9
//
// Right, [k, N] bf16, in blocks of 64 columns; rows of 128 bytes, swizzled as wgmma.cuh has it:
//
//	block 0   k = 0 … 7 (1024 bytes) | k = 8 … 15 | …
//	block 1   behind all k of block 0
#pragma once

#include "wgmma.cuh"

namespace ptx {

// wgmma_columns describes a right operand by the address of its first k and the bytes from one block of 64 columns to the next.
__device__ __forceinline__ uint64_t wgmma_columns(uint32_t shared_address, uint32_t block) {
  return uint64_t(shared_address >> 4 & 0x3fff) | uint64_t(block >> 4) << 16 | uint64_t(64) << 32 | uint64_t(1) << 62;
}
constexpr uint64_t kWgmmaColumnsStep = 128;  // added to a description: the next 16 of k

// fence_shared_for_async makes this thread's writes to shared memory known to the tensor cores and the copy engine; a barrier of the
// threads follows.
__device__ __forceinline__ void fence_shared_for_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// exp2_fast errs by 2^-22 of its value; below 2^-126 it is 0.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// wgmma_hold keeps the compiler from moving reads and writes of sums across.
template <int N>
__device__ __forceinline__ void wgmma_hold(float (&c)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(c[i])::"memory");
}

#define METRALE_TEN(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
#define METRALE_C8(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])
#define METRALE_C32(i) METRALE_C8(i), METRALE_C8(i + 8), METRALE_C8(i + 16), METRALE_C8(i + 24)

// wgmma_bf16_rows adds a [64, 16] times b [16, N] to c.
__device__ __forceinline__ void wgmma_bf16_rows(float (&c)[32], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" METRALE_TEN() METRALE_TEN(1) METRALE_TEN(2)
               "%30,%31}, {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
               : METRALE_C32(0)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}
__device__ __forceinline__ void wgmma_bf16_rows(float (&c)[64], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" METRALE_TEN() METRALE_TEN(1) METRALE_TEN(2) METRALE_TEN(3) METRALE_TEN(4)
                   METRALE_TEN(5)
               "%60,%61,%62,%63}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
               : METRALE_C32(0), METRALE_C32(32)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}
__device__ __forceinline__ void wgmma_bf16_rows(float (&c)[128], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" METRALE_TEN() METRALE_TEN(1) METRALE_TEN(2) METRALE_TEN(3) METRALE_TEN(4)
                   METRALE_TEN(5) METRALE_TEN(6) METRALE_TEN(7) METRALE_TEN(8) METRALE_TEN(9) METRALE_TEN(10) METRALE_TEN(11)
               "%120,%121,%122,%123,%124,%125,%126,%127}, {%128,%129,%130,%131}, %132, 1, 1, 1, 1;"
               : METRALE_C32(0), METRALE_C32(32), METRALE_C32(64), METRALE_C32(96)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}

#undef METRALE_TEN
#undef METRALE_C8
#undef METRALE_C32

}  // namespace ptx
