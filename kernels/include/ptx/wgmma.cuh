// SPDX-License-Identifier: MIT OR Apache-2.0
// Matrix products by a warpgroup of Hopper: 128 threads, both operands in shared memory, sums in registers. Needs sm_90a.
//
// Operands are [rows, 64] bf16 with K innermost, a row being the 128 bytes of one swizzle, as a tensor map with a swizzle of 128
// lays them: 8 rows × 128 bytes after each other, each 16 bytes at (chunk ^ row % 8). They start at a multiple of 1024.
//
// Sums of m64nN, warp w of the group, lane = 4g + t:
//
//	c[4j] c[4j+1]      row 16w + g,     columns 8j + 2t, 8j + 2t + 1
//	c[4j+2] c[4j+3]    row 16w + g + 8, same columns
#pragma once

#include <cstdint>

#include "sm90.cuh"

namespace ptx {

// wgmma_operand describes an operand by its address: swizzle of 128 bytes, 1024 bytes from 8 rows to the next 8.
__device__ __forceinline__ uint64_t wgmma_operand(uint32_t shared_address) {
  return uint64_t(shared_address >> 4 & 0x3fff) | uint64_t(1) << 16 | uint64_t(64) << 32 | uint64_t(1) << 62;
}
constexpr uint64_t kWgmmaStep = 2;  // added to a description: the next 16 of K
// wgmma_columns describes an operand whose rows are innermost, [K, rows], in blocks of 64 rows; 128 bytes of one k are swizzled as above:
//
//	block 0   k = 0 … 7 (1024 bytes) | k = 8 … 15 | …
//	block 1   so many bytes behind block 0
__device__ __forceinline__ uint64_t wgmma_columns(uint32_t shared_address, uint32_t block) {
  return uint64_t(shared_address >> 4 & 0x3fff) | uint64_t(block >> 4) << 16 | uint64_t(64) << 32 | uint64_t(1) << 62;
}
constexpr uint64_t kWgmmaColumnsStep = 128;  // added to a description: the next 16 of k

#ifndef METRALE_HOST

// wgmma_begin comes before the first product, and again after other code touched the sums.
__device__ __forceinline__ void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// wgmma_commit makes a batch of the products since the last one.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// wgmma_wait returns when at most Left batches are not complete.
template <int Left>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory");
}
// wgmma_done waits for all, and only then lets the sums be read.
template <int N>
__device__ __forceinline__ void wgmma_done(float (&c)[N]) {
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(c[i])::"memory");
}

#define METRALE_TEN(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
#define METRALE_C8(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])
#define METRALE_C4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define METRALE_C32(i) METRALE_C8(i), METRALE_C8(i + 8), METRALE_C8(i + 16), METRALE_C8(i + 24)

// wgmma_hold keeps the compiler from moving reads and writes of sums across.
template <int N>
__device__ __forceinline__ void wgmma_hold(float (&c)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(c[i])::"memory");
}

// wgmma_bf16 adds a [64, 16] times b [N, 16] transposed to c, or sets c to it. N is twice the sums a thread has. TransA, TransB: that
// operand has its rows innermost.
__device__ __forceinline__ void wgmma_bf16(float (&c)[128], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" METRALE_TEN() METRALE_TEN(1) METRALE_TEN(2) METRALE_TEN(3) METRALE_TEN(4)
          METRALE_TEN(5) METRALE_TEN(6) METRALE_TEN(7) METRALE_TEN(8) METRALE_TEN(9) METRALE_TEN(10) METRALE_TEN(11)
      "%120,%121,%122,%123,%124,%125,%126,%127}, %128, %129, add, 1, 1, 0, 0;\n"
      "}"
      : METRALE_C32(0), METRALE_C32(32), METRALE_C32(64), METRALE_C32(96)
      : "l"(a), "l"(b), "r"(int(add)));
}
__device__ __forceinline__ void wgmma_bf16(float (&c)[112], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %114, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n224k16.f32.bf16.bf16 {" METRALE_TEN() METRALE_TEN(1) METRALE_TEN(2) METRALE_TEN(3) METRALE_TEN(4) METRALE_TEN(5) METRALE_TEN(6) METRALE_TEN(7) METRALE_TEN(8) METRALE_TEN(9) METRALE_TEN(10)
      "%110,%111}, %112, %113, add, 1, 1, 0, 0;\n"
      "}"
      : METRALE_C32(0), METRALE_C32(32), METRALE_C32(64), METRALE_C8(96), METRALE_C8(104)
      : "l"(a), "l"(b), "r"(int(add)));
}
__device__ __forceinline__ void wgmma_bf16(float (&c)[96], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %98, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" METRALE_TEN() METRALE_TEN(1) METRALE_TEN(2) METRALE_TEN(3) METRALE_TEN(4) METRALE_TEN(5) METRALE_TEN(6) METRALE_TEN(7) METRALE_TEN(8)
      "%90,%91,%92,%93,%94,%95}, %96, %97, add, 1, 1, 0, 0;\n"
      "}"
      : METRALE_C32(0), METRALE_C32(32), METRALE_C32(64)
      : "l"(a), "l"(b), "r"(int(add)));
}
__device__ __forceinline__ void wgmma_bf16(float (&c)[80], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %82, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n160k16.f32.bf16.bf16 {" METRALE_TEN() METRALE_TEN(1) METRALE_TEN(2) METRALE_TEN(3) METRALE_TEN(4) METRALE_TEN(5) METRALE_TEN(6)
      "%70,%71,%72,%73,%74,%75,%76,%77,%78,%79}, %80, %81, add, 1, 1, 0, 0;\n"
      "}"
      : METRALE_C32(0), METRALE_C32(32), METRALE_C8(64), METRALE_C8(72)
      : "l"(a), "l"(b), "r"(int(add)));
}
template <int TransA = 0, int TransB = 0>
__device__ __forceinline__ void wgmma_bf16(float (&c)[64], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" METRALE_TEN() METRALE_TEN(1) METRALE_TEN(2) METRALE_TEN(3) METRALE_TEN(4)
          METRALE_TEN(5)
      "%60,%61,%62,%63}, %64, %65, add, 1, 1, %67, %68;\n"
      "}"
      : METRALE_C32(0), METRALE_C32(32)
      : "l"(a), "l"(b), "r"(int(add)), "n"(TransA), "n"(TransB));
}
template <int TransA = 0, int TransB = 0>
__device__ __forceinline__ void wgmma_bf16(float (&c)[32], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" METRALE_TEN() METRALE_TEN(1) METRALE_TEN(2)
      "%30,%31}, %32, %33, add, 1, 1, %35, %36;\n"
      "}"
      : METRALE_C32(0)
      : "l"(a), "l"(b), "r"(int(add)), "n"(TransA), "n"(TransB));
}
// The same of other widths: operands are numbered behind the sums.
#define METRALE_PRODUCT(SUMS, COLUMNS, LIST, A, B, ADD, ...)                                                      \
  __device__ __forceinline__ void wgmma_bf16(float (&c)[SUMS], uint64_t a, uint64_t b, bool add) {                \
    asm volatile(                                                                                                 \
        "{\n"                                                                                                     \
        ".reg .pred add;\n"                                                                                       \
        "setp.ne.b32 add, %" #ADD ", 0;\n"                                                                        \
        "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32.bf16.bf16 {" LIST "}, %" #A ", %" #B ", add, 1, 1, 0, 0;\n" \
        "}"                                                                                                       \
        : __VA_ARGS__                                                                                             \
        : "l"(a), "l"(b), "r"(int(add)));                                                                         \
  }
METRALE_PRODUCT(8, 16, "%0,%1,%2,%3,%4,%5,%6,%7", 8, 9, 10, METRALE_C8(0))
METRALE_PRODUCT(12, 24, METRALE_TEN() "%10,%11", 12, 13, 14, METRALE_C8(0), METRALE_C4(8))
METRALE_PRODUCT(16, 32, METRALE_TEN() "%10,%11,%12,%13,%14,%15", 16, 17, 18, METRALE_C8(0), METRALE_C8(8))
METRALE_PRODUCT(20, 40, METRALE_TEN() "%10,%11,%12,%13,%14,%15,%16,%17,%18,%19", 20, 21, 22, METRALE_C8(0), METRALE_C8(8), METRALE_C4(16))
METRALE_PRODUCT(24, 48, METRALE_TEN() METRALE_TEN(1) "%20,%21,%22,%23", 24, 25, 26, METRALE_C8(0), METRALE_C8(8), METRALE_C8(16))
METRALE_PRODUCT(28, 56, METRALE_TEN() METRALE_TEN(1) "%20,%21,%22,%23,%24,%25,%26,%27", 28, 29, 30, METRALE_C8(0), METRALE_C8(8), METRALE_C8(16), METRALE_C4(24))
METRALE_PRODUCT(36, 72, METRALE_TEN() METRALE_TEN(1) METRALE_TEN(2) "%30,%31,%32,%33,%34,%35", 36, 37, 38, METRALE_C32(0), METRALE_C4(32))
METRALE_PRODUCT(40, 80, METRALE_TEN() METRALE_TEN(1) METRALE_TEN(2) "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39", 40, 41, 42, METRALE_C32(0), METRALE_C8(32))
METRALE_PRODUCT(48, 96, METRALE_TEN() METRALE_TEN(1) METRALE_TEN(2) METRALE_TEN(3) "%40,%41,%42,%43,%44,%45,%46,%47", 48, 49, 50, METRALE_C32(0), METRALE_C8(32), METRALE_C8(40))

#undef METRALE_PRODUCT
#undef METRALE_C4
#undef METRALE_TEN
#undef METRALE_C8
#undef METRALE_C32

// Warpgroups of a block share its registers anew: those that copy need few, those that multiply many.
template <int N>
__device__ __forceinline__ void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

#endif

}  // namespace ptx
