// SPDX-License-Identifier: MIT OR Apache-2.0
// Products of a warpgroup whose left operand lies in registers and whose right one has its columns innermost: weights of attention
// times values as they are stored. Needs sm_90a.
//
// Left, of warp w, lane = 4g + t, 16 values along k (what sums of an earlier product are, packed in pairs):
//
//	a0   row 16w + g, k 2t 2t+1    a1   row 16w + g + 8, same k    a2 a3   the same rows, k 2t+8 2t+9
#pragma once

#include "wgmma.cuh"

namespace ptx {

#ifdef METRALE_HOST
inline float exp2_fast(float x) { return exp2f(x); }
#else

// exp2_fast errs by 2^-22 of its value; below 2^-126 it is 0.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#define METRALE_TEN(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
#define METRALE_C8(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])
#define METRALE_C32(i) METRALE_C8(i), METRALE_C8(i + 8), METRALE_C8(i + 16), METRALE_C8(i + 24)

// wgmma_bf16_rows adds Sign times a [64, 16] times b to c, or sets c to it. b is [16, N], its columns innermost; without TransB it is [N, 16],
// as wgmma_bf16 has it.
template <int TransB = 1, int Sign = 1>
__device__ __forceinline__ void wgmma_bf16_rows(float (&c)[32], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, bool add = true) {
  asm volatile("{\n"
               ".reg .pred add;\n"
               "setp.ne.b32 add, %37, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" METRALE_TEN() METRALE_TEN(1) METRALE_TEN(2)
               "%30,%31}, {%32,%33,%34,%35}, %36, add, %38, 1, %39;\n"
               "}"
               : METRALE_C32(0)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(int(add)), "n"(Sign), "n"(TransB));
}
template <int TransB = 1, int Sign = 1>
__device__ __forceinline__ void wgmma_bf16_rows(float (&c)[64], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, bool add = true) {
  asm volatile("{\n"
               ".reg .pred add;\n"
               "setp.ne.b32 add, %69, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" METRALE_TEN() METRALE_TEN(1) METRALE_TEN(2) METRALE_TEN(3) METRALE_TEN(4)
                   METRALE_TEN(5)
               "%60,%61,%62,%63}, {%64,%65,%66,%67}, %68, add, %70, 1, %71;\n"
               "}"
               : METRALE_C32(0), METRALE_C32(32)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(int(add)), "n"(Sign), "n"(TransB));
}
template <int TransB = 1, int Sign = 1>
__device__ __forceinline__ void wgmma_bf16_rows(float (&c)[128], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, bool add = true) {
  asm volatile("{\n"
               ".reg .pred add;\n"
               "setp.ne.b32 add, %133, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" METRALE_TEN() METRALE_TEN(1) METRALE_TEN(2) METRALE_TEN(3) METRALE_TEN(4)
                   METRALE_TEN(5) METRALE_TEN(6) METRALE_TEN(7) METRALE_TEN(8) METRALE_TEN(9) METRALE_TEN(10) METRALE_TEN(11)
               "%120,%121,%122,%123,%124,%125,%126,%127}, {%128,%129,%130,%131}, %132, add, %134, 1, %135;\n"
               "}"
               : METRALE_C32(0), METRALE_C32(32), METRALE_C32(64), METRALE_C32(96)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(int(add)), "n"(Sign), "n"(TransB));
}

#undef METRALE_TEN
#undef METRALE_C8
#undef METRALE_C32

#endif

}  // namespace ptx
