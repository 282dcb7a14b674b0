// SPDX-License-Identifier: MIT OR Apache-2.0
// Formats of quantised weights for weight_tiles.cuh: codes stay what they are in memory and become bf16 in registers, exactly.
//
// The layout "rows" of internal/gpu/cuda. 8 rows are a panel, 128 values of K a unit (4 steps), and a panel's units follow each other:
//
//	fp8   [512: steps 0 1] [512: steps 2 3] [8 × f32 scale]     e4m3; the scales only of formats that have them by 128 values
//	fp4   [512: steps 0-3] [8 × 2 × 4 bytes]                    nvfp4: scales of the halves of a step's 32 values, by step
//	fp4   [512: steps 0-3] [8 × 4 bytes]                        mxfp4: scales of steps
//
// In 512 bytes, lane 4g+t has 16 of row g: its 8 values of each step, 8 bytes (fp8) or a word (fp4), whose codes are so placed that
// few instructions make pairs of bf16 of them. Of a word, in each half (pairs 01, 23, … are low and high half):
//
//	fp8   bits 15-8: pair 0   7-0: pair 1                 sign, 4 exponent, 3 mantissa
//	fp4   15,8,7,6: pair 0   9,2,1,0: 1   3,28,27,26: 2   13,14,5,4: 3      sign, 2 exponent, 1 mantissa
//
// (of the low half's codes; the high half's stand 16 bits further, around the word).
//
// A code's exponent and mantissa stand where bf16 has its lowest ones, so the bf16 is the value times 2^-120 (fp8) or 2^-126 (fp4),
// subnormals included. Of fp8, x is 2^64 times as large, and the scale, 2^56 times as large, multiplies the float32 sum of 128
// values. Of fp4, a scale is a bf16, 2^117 or 2^100 times as large; the product with it keeps all its 6 bits.
#pragma once

#include "weight_ring.cuh"

namespace tiles {

// times multiplies pairs of bf16.
__device__ __forceinline__ uint32_t times(uint32_t a, uint32_t b) {
#ifdef METRALE_HOST
  return mma::pack(mma::low(a) * mma::low(b), mma::high(a) * mma::high(b));
#else
  uint32_t r;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
#endif
}

// sums_of is how many sums a unit's products go to: of few parts two, of even and odd steps, so that a product seldom waits for the one before.
__host__ __device__ constexpr int sums_of(int parts) { return parts <= 2 ? 2 : 1; }

// Fp8 is e4m3 with a scale of every 128 values (Blocks), or only with scales of rows.
template <bool Blocks, int Tiles>
struct Fp8 {
  using Weights = const uint8_t*;
  using Taller = Fp8<Blocks, 2 * Tiles>;
  static constexpr int kSteps = 4, kTile = 16 * Tiles, kPanel = 8, kCodes = 8, kBytes = 1024 + 32 * Blocks;
  static constexpr float kUp = 0x1p64f, kFactor = Blocks ? 1 : 0x1p56f;
  static constexpr bool kScaled = !Blocks;
  static constexpr int kGroups = 2 * Tiles;
  struct Unit {
    uint4 v[kGroups][2];
    float scale[kGroups];
  };
  __device__ __forceinline__ static const void* row(Weights w, int64_t row, int K, int unit) {
    return w + ((row >> 3) * ((K + 127) / 128) + unit) * kBytes + (row & 7) * 64;
  }
  // load takes a unit of panel j from memory.
  __device__ __forceinline__ static void load(Unit& u, int j, const unsigned char* p) {
    const int lane = threadIdx.x & 31;
    u.v[j][0] = ptx::load_weights(p + lane * 16);
    u.v[j][1] = ptx::load_weights(p + lane * 16 + 512);
    if (Blocks) u.scale[j] = __uint_as_float(ptx::load_weights_word(p + 1024 + (lane >> 2) * 4));
  }
  // read takes a unit of each panel from shared memory, part bytes apart.
  __device__ __forceinline__ static void read(Unit& u, ptx::shared_pointer p, int part) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int j = 0; j < kGroups; j++) {
      u.v[j][0] = ptx::load_shared(p + lane * 16 + j * part);
      u.v[j][1] = ptx::load_shared(p + lane * 16 + j * part + 512);
      if (Blocks) u.scale[j] = __uint_as_float(ptx::load_shared_word(p + (lane >> 2) * 4 + j * part + 1024));
    }
  }
  // values are those of panel j's row in step s, without the row's scale.
  __device__ __forceinline__ static void values(const Unit& u, int j, int s, float (&out)[8]) {
    const uint4& a = u.v[j][s / 2];
    const uint32_t w[2] = {s % 2 ? a.z : a.x, s % 2 ? a.w : a.y};
    const float f = Blocks ? u.scale[j] : 0x1p56f;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint32_t p = odd(w[i]), q = even(w[i]);
      const float v[4] = {mma::low(p), mma::high(p), mma::low(q), mma::high(q)};
#pragma unroll
      for (int k = 0; k < 4; k++) out[4 * i + k] = v[k] * kUp * f;
    }
  }
  __device__ __forceinline__ static uint32_t odd(uint32_t w) { return (w & 0x80008000u) | ((w >> 4) & 0x07f007f0u); }
  __device__ __forceinline__ static uint32_t even(uint32_t w) { return ((w << 8) & 0x80008000u) | ((w << 4) & 0x07f007f0u); }
  // multiply takes Parts fragments of x a step: of 8 rows each, or of their high and low parts.
  template <int Parts, class L>
  __device__ __forceinline__ static void multiply(const Unit& u, L& lane, int at, float (&acc)[Tiles][Parts][4]) {
    constexpr int kSums = sums_of(Parts);
    float sum[kSums][Tiles][Parts][4] = {};
#pragma unroll
    for (int s = 0; s < kSteps; s++) {
      uint4 f[Parts];
      lane.read(at + s, f);
#pragma unroll
      for (int m = 0; m < Tiles; m++) {
        const uint4 &a = u.v[2 * m][s / 2], &c = u.v[2 * m + 1][s / 2];
        const uint32_t a0 = s % 2 ? a.z : a.x, a1 = s % 2 ? a.w : a.y, c0 = s % 2 ? c.z : c.x, c1 = s % 2 ? c.w : c.y;
#pragma unroll
        for (int p = 0; p < Parts; p++) mma::bf16(sum[s % kSums][m][p], odd(a0), odd(c0), even(a0), even(c0), f[p].x, f[p].y);
#pragma unroll
        for (int p = 0; p < Parts; p++) mma::bf16(sum[s % kSums][m][p], odd(a1), odd(c1), even(a1), even(c1), f[p].z, f[p].w);
      }
    }
#pragma unroll
    for (int m = 0; m < Tiles; m++)
#pragma unroll
      for (int p = 0; p < Parts; p++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const float v = kSums == 1 ? sum[0][m][p][i] : sum[0][m][p][i] + sum[kSums - 1][m][p][i];
          acc[m][p][i] = Blocks ? fmaf(u.scale[2 * m + i / 2], v, acc[m][p][i]) : acc[m][p][i] + v;
        }
  }
};

// Scales of fp4, as bytes that become bf16 by a shift and a sum.
struct Nvfp4Scales {  // 5 bits of exponent, from 2^-9 on, and 3 of mantissa
  static constexpr int kRow = 8;  // bytes of a row's unit
  static constexpr float kFactor = 0x1p9f;
  static constexpr bool kScaled = true;
  static constexpr uint32_t kShift = 4, kBase = (117 + 127 - 9) << 7;
  __device__ __forceinline__ static int place(int t) { return (t >> 1) * 4; }
};
struct Mxfp4Scales {  // 8 bits of exponent, of 2^100 times the scale
  static constexpr int kRow = 4;
  static constexpr float kFactor = 0x1p26f;
  static constexpr bool kScaled = false;
  static constexpr uint32_t kShift = 7, kBase = 0;
  __device__ __forceinline__ static int place(int) { return 0; }
};

// Fp4 is e2m1 with scales S.
template <class S, int Tiles>
struct Fp4 {
  using Weights = const uint8_t*;
  using Taller = Fp4<S, 2 * Tiles>;
  static constexpr int kSteps = 4, kTile = 16 * Tiles, kPanel = 8, kCodes = 4, kBytes = 512 + 8 * S::kRow;
  static constexpr float kUp = 1, kFactor = S::kFactor;
  static constexpr bool kScaled = S::kScaled;
  static constexpr int kGroups = 2 * Tiles;
  struct Unit {
    uint4 v[kGroups];
    uint32_t scale[kGroups];
  };
  __device__ __forceinline__ static const void* row(Weights w, int64_t row, int K, int unit) {
    return w + ((row >> 3) * ((K + 127) / 128) + unit) * kBytes + (row & 7) * 64;
  }
  // load takes a unit of panel j from memory.
  __device__ __forceinline__ static void load(Unit& u, int j, const unsigned char* p) {
    const int lane = threadIdx.x & 31;
    u.v[j] = ptx::load_weights(p + lane * 16);
    u.scale[j] = ptx::load_weights_word(p + 512 + (lane >> 2) * S::kRow + S::place(lane & 3));
  }
  // read takes a unit of each panel from shared memory, part bytes apart.
  __device__ __forceinline__ static void read(Unit& u, ptx::shared_pointer p, int part) {
    const int lane = threadIdx.x & 31, scale = (lane >> 2) * S::kRow + S::place(lane & 3);
#pragma unroll
    for (int j = 0; j < kGroups; j++) {
      u.v[j] = ptx::load_shared(p + lane * 16 + j * part);
      u.scale[j] = ptx::load_shared_word(p + scale + j * part + 512);
    }
  }
  // pairs are the values of a word times the scale of step s.
  __device__ __forceinline__ static uint4 pairs(uint32_t w, uint32_t scales, int s) {
    constexpr uint32_t kMask = 0x81c081c0u;
    const uint32_t f = scale(scales, s);
    const uint32_t last = ((w << 2) & 0x80c080c0u) | ((w >> 6) & 0x01000100u);
    return make_uint4(times(w & kMask, f), times((w << 6) & kMask, f), times((w << 12 | w >> 20) & kMask, f), times(last, f));
  }
  // scale is that of step s, twice.
  __device__ __forceinline__ static uint32_t scale(uint32_t scales, int s) {
    const uint32_t two = ((s & 1 ? scales >> 8 : scales) & 0x00ff00ffu) * (1u << S::kShift) + (S::kBase << 16 | S::kBase);
    return __byte_perm(two, 0, s & 2 ? 0x3232 : 0x1010);
  }
  // values are those of panel j's row in step s, without the row's scale.
  __device__ __forceinline__ static void values(const Unit& u, int j, int s, float (&out)[8]) {
    const uint4& v = u.v[j];
    const uint4 p = pairs(s == 0 ? v.x : s == 1 ? v.y : s == 2 ? v.z : v.w, u.scale[j], s);
    const uint32_t w[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
    for (int i = 0; i < 4; i++) out[2 * i] = mma::low(w[i]) * kFactor, out[2 * i + 1] = mma::high(w[i]) * kFactor;
  }
  // multiply takes Parts fragments of x a step: of 8 rows each, or of their high and low parts.
  template <int Parts, class L>
  __device__ __forceinline__ static void multiply(const Unit& u, L& lane, int at, float (&acc)[Tiles][Parts][4]) {
    constexpr int kSums = sums_of(Parts);
    float sum[kSums][Tiles][Parts][4] = {};  // even steps join those of the units before
#pragma unroll
    for (int m = 0; m < Tiles; m++)
#pragma unroll
      for (int p = 0; p < Parts; p++)
#pragma unroll
        for (int i = 0; i < 4; i++) sum[0][m][p][i] = acc[m][p][i];
#pragma unroll
    for (int s = 0; s < kSteps; s++) {
      uint4 f[Parts];
      lane.read(at + s, f);
#pragma unroll
      for (int m = 0; m < Tiles; m++) {
        const uint4 &v = u.v[2 * m], &w = u.v[2 * m + 1];
        const uint4 a = pairs(s == 0 ? v.x : s == 1 ? v.y : s == 2 ? v.z : v.w, u.scale[2 * m], s);
        const uint4 c = pairs(s == 0 ? w.x : s == 1 ? w.y : s == 2 ? w.z : w.w, u.scale[2 * m + 1], s);
#pragma unroll
        for (int p = 0; p < Parts; p++) mma::bf16(sum[s % kSums][m][p], a.x, c.x, a.y, c.y, f[p].x, f[p].y);
#pragma unroll
        for (int p = 0; p < Parts; p++) mma::bf16(sum[s % kSums][m][p], a.z, c.z, a.w, c.w, f[p].z, f[p].w);
      }
    }
#pragma unroll
    for (int m = 0; m < Tiles; m++)
#pragma unroll
      for (int p = 0; p < Parts; p++)
#pragma unroll
        for (int i = 0; i < 4; i++) acc[m][p][i] = kSums == 1 ? sum[0][m][p][i] : sum[0][m][p][i] + sum[kSums - 1][m][p][i];
  }
};

}  // namespace tiles
