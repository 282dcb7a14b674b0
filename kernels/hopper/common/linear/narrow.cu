// SPDX-License-Identifier: MIT OR Apache-2.0
// Family linear, 3 to some hundred rows, bf16 weights as stored: linear, linear_add, linear_n, linear_glu.
//
// x comes rounded to bf16 (round_rows of linear/tiles). Algorithm, order of sums, grid: mma/narrow.cuh. K must divide by 8, N may be
// any.

#include "../../../include/epilogue/fast_act.cuh"
#include "../../../include/mma/narrow.cuh"
#include "../../../include/mma/parts.cuh"

namespace {

// Stored writes y = x wᵀ + bias, or adds that to y, for Parts matrices of one x.
template <int Parts, bool Add>
struct Stored {
  parts::Parts<Parts, narrow::kTile> p;

  __device__ __forceinline__ void copy(void* dst, int tile, int k, uint64_t* full) const {
    const int at = p.find(tile);
    ptx::tensor_copy(dst, parts::pick(p.w, at), k, tile * narrow::kTile, full);
  }
  template <class Sum>
  __device__ __forceinline__ void put(const Sum& sum, int tile, int row) const {
    const int at = p.find(tile), N = parts::pick(p.n, at), lane = threadIdx.x % 32, n = tile * narrow::kTile + 4 * lane;
    if (n >= N) return;
    const float4 v = parts::biased(sum(lane), parts::pick(p.bias, at), n, N);
    parts::put_four<Add>(parts::pick(p.y, at) + int64_t(row) * N + n, v, N - n, N % 4 == 0);
  }
};

// Gated writes y = act(x wgᵀ) * (x wuᵀ): a tile is 64 rows of wg and 64 of wu.
template <class Glu>
struct Gated {
  const ptx::tensor_map *wg, *wu;  // [N, K]
  float* y;                        // [rows, N]
  int N;
  float limit;

  static constexpr int kHalf = narrow::kTile / 2;
  __device__ __forceinline__ void copy(uint16_t* dst, int tile, int k, uint64_t* full) const {
    ptx::tensor_copy(dst, wg, k, tile * kHalf, full);
    ptx::tensor_copy(dst + kHalf * narrow::kDepth, wu, k, tile * kHalf, full);
  }
  template <class Sum>
  __device__ __forceinline__ void put(const Sum& sum, int tile, int row) const {
    const int lane = threadIdx.x % 32, n = tile * kHalf + 4 * lane;
    if (lane >= kHalf / 4 || n >= N) return;
    const float4 g = sum(lane), u = sum(lane + kHalf / 4);
    const float4 v = {Glu::of(g.x, u.x, limit), Glu::of(g.y, u.y, limit), Glu::of(g.z, u.z, limit), Glu::of(g.w, u.w, limit)};
    parts::put_four<false>(y + int64_t(row) * N + n, v, N - n, N % 4 == 0);
  }
};

}  // namespace

#define MAP const __grid_constant__ ptx::tensor_map

#define ENTRY_OF(NAME, BLOCKS) extern "C" __global__ void __launch_bounds__(narrow::kThreads, BLOCKS) NAME
#define ENTRY(NAME) ENTRY_OF(NAME, 2)

#define LINEAR(NAME, COLS, ADD)                                                                          \
  ENTRY(NAME##_##COLS)                                                                                   \
  (const int32_t* __restrict__ count, /* [1] rows of this step */                                        \
   MAP x,                             /* [rows, K] bf16, boxes of COLS × 64 */                           \
   MAP w,                             /* [N, K] bf16, boxes of 128 × 64 */                               \
   const float* __restrict__ bias,    /* [N], or null */                                                 \
   float* __restrict__ y,             /* [rows, N] */                                                    \
   int32_t N, int32_t K) {                                                                               \
    narrow::multiply<COLS>(x, Stored<1, ADD>{{{&w}, {bias}, {y}, {N}}}, count, K);                       \
  }

#define LINEAR_N(NAME, COLS, BLOCKS)                                                                                           \
  ENTRY_OF(NAME##_##BLOCKS##_##COLS, BLOCKS)                                                                                   \
  (const int32_t* __restrict__ count, MAP x, MAP w0, MAP w1, MAP w2, MAP w3, const float* __restrict__ bias0,                  \
   const float* __restrict__ bias1, const float* __restrict__ bias2, const float* __restrict__ bias3, float* __restrict__ y0,  \
   float* __restrict__ y1, float* __restrict__ y2, float* __restrict__ y3, int32_t N0, int32_t N1, int32_t N2, int32_t N3,     \
   int32_t K) {                                                                                                                \
    const Stored<4, false> out = {{{&w0, &w1, &w2, &w3}, {bias0, bias1, bias2, bias3}, {y0, y1, y2, y3}, {N0, N1, N2, N3}}};   \
    narrow::multiply<COLS, BLOCKS>(x, out, count, K);                                                                          \
  }

#define LINEAR_GLU(NAME, COLS, ACT)                                                                      \
  ENTRY(NAME##_##ACT##_##COLS)                                                                           \
  (const int32_t* __restrict__ count, /* [1] rows of this step */                                        \
   MAP x,                             /* [rows, K] bf16, boxes of COLS × 64 */                           \
   MAP wg, MAP wu,                    /* [N, K] bf16, boxes of 64 × 64 */                                \
   float* __restrict__ y,             /* [rows, N] */                                                    \
   int32_t N, int32_t K, float limit) {                                                                  \
    narrow::multiply<COLS>(x, Gated<fast_glu::ACT>{&wg, &wu, y, N, limit}, count, K);                    \
  }

#define ALL_OF(COLS)                                    \
  LINEAR(linear_narrow, COLS, false)                    \
  LINEAR(linear_add_narrow, COLS, true)                 \
  LINEAR_N(linear_n_narrow, COLS, 2)                    \
  LINEAR_GLU(linear_glu_narrow, COLS, silu)             \
  LINEAR_GLU(linear_glu_narrow, COLS, gelu_tanh)        \
  LINEAR_GLU(linear_glu_narrow, COLS, silu_then_limit)  \
  LINEAR_GLU(linear_glu_narrow, COLS, swiglu_oai)

ALL_OF(16)
ALL_OF(32)
ALL_OF(64)
ALL_OF(128)

// Of more tiles than two on each multiprocessor take.
LINEAR_N(linear_n_narrow, 16, 3)
LINEAR_N(linear_n_narrow, 32, 3)
LINEAR_N(linear_n_narrow, 64, 3)
