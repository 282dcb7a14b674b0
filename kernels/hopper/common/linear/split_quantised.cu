// SPDX-License-Identifier: MIT OR Apache-2.0
// Family linear, 9 to some hundred rows, small matrices of codes of four bits, in the layout "rows": linear, linear_add in one launch.
//
// Algorithm, order of sums, grid: mma/split.cuh. Codes become bf16, exactly, before the launches before this one are
// complete; scales of rows multiply the sums. K must divide by 128, N by 8.

#include "../../../include/mma/parts.cuh"
#include "../../../include/mma/split.cuh"
#include "formats.cuh"

namespace {

// Coded writes y = x wᵀ * scale + bias, or adds that to y. F is nvfp4 or mxfp4.
template <class F, int Groups, int Steps, bool Add>
struct Coded {
  static constexpr bool kFilled = true;
  static constexpr int kTile = Groups * 64, kUnit = 128, kUnits = Steps * split::kDepth / kUnit;  // units of a block's K
  const uint8_t* w;
  const float *scale, *bias;  // [N], or null
  float* y;
  int N, K;

  // fill turns a block's w into bf16: a warp takes a panel's unit at a time, a lane 8 values of each step of 32, which are 16 bytes of a swizzle.
  __device__ __forceinline__ void fill(uint16_t (&to)[Steps][kTile * split::kDepth], int tile, int k) const {
    constexpr int kEach = kTile / 8 * kUnits / (split::kThreads / 32);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    typename F::Unit u[kEach];
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const int at = i * (split::kThreads / 32) + warp, n = tile * kTile + at / kUnits * 8, unit = k / kUnit + at % kUnits;
      u[i].v[0] = make_uint4(0, 0, 0, 0), u[i].scale[0] = 0;
      if (n < N && unit * kUnit < K) F::load(u[i], 0, static_cast<const unsigned char*>(F::row(w, n, K, unit)));
    }
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const int at = i * (split::kThreads / 32) + warp, row = at / kUnits * 8 + g, unit = at % kUnits;
      const uint32_t words[4] = {u[i].v[0].x, u[i].v[0].y, u[i].v[0].z, u[i].v[0].w};
#pragma unroll
      for (int s = 0; s < 4; s++)
        *reinterpret_cast<uint4*>(&to[2 * unit + s / 2][row * split::kDepth + ((s % 2 * 4 + t) ^ g) * 8]) = F::pairs(words[s], u[i].scale[0], s);
    }
  }
  struct Out {
    float* y;
    float4 scale, bias;
    int N;
    bool there;
    __device__ __forceinline__ void put(float4 v, int row) const {
      if (!there) return;
      v = {v.x * scale.x + bias.x, v.y * scale.y + bias.y, v.z * scale.z + bias.z, v.w * scale.w + bias.w};
      parts::put_four<Add>(y + int64_t(row) * N, v, 4, true);
    }
  };
  __device__ __forceinline__ Out at(int tile, int quad) const {
    const int n = tile * kTile + 4 * quad;
    float4 f = {F::kFactor, F::kFactor, F::kFactor, F::kFactor};
    if (F::kScaled && scale && n < N) {
      const float4 s = *reinterpret_cast<const float4*>(scale + n);
      f = {f.x * s.x, f.y * s.y, f.z * s.z, f.w * s.w};
    }
    return {y + n, f, parts::biased({0, 0, 0, 0}, n < N ? bias : nullptr, n, N), N, n < N};
  }
};

}  // namespace

#ifndef SPLIT_NO_ENTRIES
#define LINEAR(NAME, F, COLS, GROUPS, BLOCKS, STEPS, ADD)                                                                            \
  extern "C" __global__ void __launch_bounds__(split::kThreads, 2) NAME##_##F##_##COLS##_##GROUPS##_##BLOCKS##_##STEPS(              \
      const int32_t* __restrict__ count, /* [1] rows of this step */                                                                 \
      const float* __restrict__ x,       /* [rows, K] */                                                                             \
      const uint8_t* __restrict__ w,     /* [N, K] */                                                                                \
      const float* __restrict__ scale,   /* [N], or null */                                                                          \
      const float* __restrict__ bias,    /* [N], or null */                                                                          \
      float* __restrict__ y,             /* [rows, N] */                                                                             \
      int32_t N, int32_t K) {                                                                                                        \
    split::multiply<COLS, GROUPS, BLOCKS, STEPS>(x, Coded<F, GROUPS, STEPS, ADD>{w, scale, bias, y, N, K}, count, K);                \
  }
#define BOTH(F, COLS, GROUPS, BLOCKS, STEPS)                  \
  LINEAR(linear_split, F, COLS, GROUPS, BLOCKS, STEPS, false) \
  LINEAR(linear_add_split, F, COLS, GROUPS, BLOCKS, STEPS, true)
#define OF_CUT(F, GROUPS, BLOCKS, STEPS) \
  BOTH(F, 16, GROUPS, BLOCKS, STEPS)     \
  BOTH(F, 24, GROUPS, BLOCKS, STEPS)     \
  BOTH(F, 32, GROUPS, BLOCKS, STEPS)     \
  BOTH(F, 40, GROUPS, BLOCKS, STEPS)     \
  BOTH(F, 48, GROUPS, BLOCKS, STEPS)
#define OF_FORMAT(F)   \
  BOTH(F, 16, 1, 8, 4) \
  OF_CUT(F, 1, 4, 8)   \
  OF_CUT(F, 2, 4, 8)   \
  OF_CUT(F, 1, 2, 8)   \
  OF_CUT(F, 1, 1, 8)   \
  OF_CUT(F, 1, 1, 4)

OF_FORMAT(nvfp4)
OF_FORMAT(mxfp4)
#endif
