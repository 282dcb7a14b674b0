// SPDX-License-Identifier: MIT OR Apache-2.0
// Family linear, 5 to some hundred rows, bf16 weights as stored, small matrices: linear, linear_add, linear_n of two in one launch.
//
// Algorithm, order of sums, grid: mma/split.cuh. K must divide by 8, N may be any.

#include "../../../include/mma/parts.cuh"
#include "../../../include/mma/split.cuh"

namespace {

// Stored writes y = x wᵀ + bias, or adds that to y.
template <int Groups, bool Add>
struct Stored {
  static constexpr bool kFilled = false;
  static constexpr int kTile = Groups * 64;
  const ptx::tensor_map* w;  // [N, K]
  const float* bias;         // [N], or null
  float* y;                  // [rows, N]
  int N;

  __device__ __forceinline__ void copy(void* dst, int tile, int k, uint64_t* full) const { ptx::tensor_copy(dst, w, k, tile * kTile, full); }
  struct Out {
    float* y;
    float4 bias;
    int N, left;  // outputs of the row from here on
    __device__ __forceinline__ void put(float4 v, int row) const {
      if (left <= 0) return;
      parts::put_four<Add>(y + int64_t(row) * N, {v.x + bias.x, v.y + bias.y, v.z + bias.z, v.w + bias.w}, left, N % 4 == 0);
    }
  };
  __device__ __forceinline__ Out at(int tile, int quad) const {
    const int n = tile * kTile + 4 * quad;
    return {y + n, parts::biased({0, 0, 0, 0}, n < N ? bias : nullptr, n, N), N, N - n};
  }
};

// Two is Stored of two matrices of one x, whose tiles count through.
template <int Groups>
struct Two {
  static constexpr bool kFilled = false;
  Stored<Groups, false> first, second;
  int tiles;  // of the first

  __device__ __forceinline__ void copy(void* dst, int tile, int k, uint64_t* full) const {
    tile < tiles ? first.copy(dst, tile, k, full) : second.copy(dst, tile - tiles, k, full);
  }
  __device__ __forceinline__ auto at(int tile, int quad) const { return tile < tiles ? first.at(tile, quad) : second.at(tile - tiles, quad); }
};

}  // namespace

#ifndef SPLIT_NO_ENTRIES
#define MAP const __grid_constant__ ptx::tensor_map

#define ENTRY(NAME) extern "C" __global__ void __launch_bounds__(split::kThreads, 2) NAME

#define LINEAR(NAME, COLS, GROUPS, BLOCKS, STEPS, ADD)                                                        \
  ENTRY(NAME##_##COLS##_##GROUPS##_##BLOCKS##_##STEPS)                                                        \
  (const int32_t* __restrict__ count, /* [1] rows of this step */                                             \
   const float* __restrict__ x,       /* [rows, K] */                                                         \
   MAP w,                             /* [N, K] bf16, boxes of GROUPS·64 × 64 */                              \
   const float* __restrict__ bias,    /* [N], or null */                                                      \
   float* __restrict__ y,             /* [rows, N] */                                                         \
   int32_t N, int32_t K) {                                                                                    \
    split::multiply<COLS, GROUPS, BLOCKS, STEPS>(x, Stored<GROUPS, ADD>{&w, bias, y, N}, count, K);           \
  }
#define BOTH(COLS, GROUPS, BLOCKS, STEPS)                  \
  LINEAR(linear_split, COLS, GROUPS, BLOCKS, STEPS, false) \
  LINEAR(linear_add_split, COLS, GROUPS, BLOCKS, STEPS, true)
#define OF_CUT(GROUPS, BLOCKS, STEPS) \
  BOTH(16, GROUPS, BLOCKS, STEPS)     \
  BOTH(24, GROUPS, BLOCKS, STEPS)     \
  BOTH(32, GROUPS, BLOCKS, STEPS)     \
  BOTH(40, GROUPS, BLOCKS, STEPS)     \
  BOTH(48, GROUPS, BLOCKS, STEPS)

BOTH(16, 1, 8, 4)
OF_CUT(1, 4, 8)
OF_CUT(2, 4, 8)
OF_CUT(1, 2, 8)
OF_CUT(1, 1, 8)
OF_CUT(1, 1, 4)

ENTRY(linear_2_split_16_1_4_8)
(const int32_t* __restrict__ count, const float* __restrict__ x, MAP w0, MAP w1, const float* __restrict__ bias0,
 const float* __restrict__ bias1, float* __restrict__ y0, float* __restrict__ y1, int32_t N0, int32_t N1, int32_t K) {
  split::multiply<16, 1, 4, 8>(x, Two<1>{{&w0, bias0, y0, N0}, {&w1, bias1, y1, N1}, (N0 + 63) / 64}, count, K);
}
#endif
