// SPDX-License-Identifier: MIT OR Apache-2.0
// Family linear, many rows, bf16 weights as stored: linear, linear_add, linear_n, linear_glu.
//
// Two launches: x is rounded to bf16, then tiles of it meet tiles of w on the tensor cores. Algorithm, order of sums, grid:
// mma/tiles.cuh. K must divide by 8, N may be any.

#include "../../../include/epilogue/fast_act.cuh"
#include "../../../include/mma/parts.cuh"
#include "../../../include/mma/tiles.cuh"

namespace {

constexpr int kCols = 256, kStages = 4;

// Stored writes y = x wᵀ + bias, or adds that to y, for Parts matrices of one x.
template <int Parts, class Store>
struct Stored {
  parts::Parts<Parts, kCols> p;

  __device__ __forceinline__ int cols() const { return p.tiles(); }
  __device__ __forceinline__ void copy(void* dst, const tiles::Tile& t, int k, int half, uint64_t* full) const {
    int col = t.col;
    const int at = p.find(col);
    ptx::tensor_copy(dst, parts::pick(p.w, at), k, col * kCols + half * (kCols / 2), full);
  }
  __device__ __forceinline__ void copy_to(uint16_t blocks, void* dst, const tiles::Tile& t, int k, int half, uint64_t* full) const {
    int col = t.col;
    const int at = p.find(col);
    ptx::tensor_copy_to(blocks, dst, parts::pick(p.w, at), k, col * kCols + half * (kCols / 2), full);
  }
  __device__ __forceinline__ void put(const float (&sums)[kCols / 2], const tiles::Tile& t, int row) const {
    int col = t.col;
    const int at = p.find(col), N = parts::pick(p.n, at), first = col * kCols + threadIdx.x % 4 * 2;
    const float* b = parts::pick(p.bias, at);
    const auto biased = [&](int j, int i) { return sums[4 * j + i] + (first + 8 * j + i % 2 < N ? b[first + 8 * j + i % 2] : 0); };
    const auto plain = [&](int j, int i) { return sums[4 * j + i]; };
    float* out = parts::pick(p.y, at) + int64_t(row) * N + first;
    if (b)
      tiles::put<kCols / 8, Store>(biased, out, N, N - first, t.end - row);
    else
      tiles::put<kCols / 8, Store>(plain, out, N, N - first, t.end - row);
  }
};

// Gated writes y = act(x wgᵀ) * (x wuᵀ): a tile is half rows of wg and half rows of wu, so a thread has both sums of an output.
template <class Glu>
struct Gated {
  const ptx::tensor_map *wg, *wu;  // [N, K]
  float* y;                        // [rows, N]
  int N;
  float limit;

  __device__ __forceinline__ int cols() const { return (N + kCols / 2 - 1) / (kCols / 2); }
  __device__ __forceinline__ void copy(void* dst, const tiles::Tile& t, int k, int half, uint64_t* full) const {
    ptx::tensor_copy(dst, half ? wu : wg, k, t.col * (kCols / 2), full);
  }
  __device__ __forceinline__ void copy_to(uint16_t blocks, void* dst, const tiles::Tile& t, int k, int half, uint64_t* full) const {
    ptx::tensor_copy_to(blocks, dst, half ? wu : wg, k, t.col * (kCols / 2), full);
  }
  __device__ __forceinline__ void put(const float (&sums)[kCols / 2], const tiles::Tile& t, int row) const {
    const int first = t.col * (kCols / 2) + threadIdx.x % 4 * 2;
    tiles::put<kCols / 16, tiles::Set>([&](int j, int i) { return Glu::of(sums[4 * j + i], sums[kCols / 4 + 4 * j + i], limit); },
                                       y + int64_t(row) * N + first, N, N - first, t.end - row);
  }
};

template <class Work>
__device__ __forceinline__ void run(const ptx::tensor_map& x, const Work& work, const int32_t* count, int K) {
  auto& s = tiles::begin<kCols, kStages>();
  tiles::multiply<true>(s, x, tiles::Dense(*count, work.cols()), work, K);
}

}  // namespace

// round_rows writes x rounded to bf16. Grid: any; 256 threads.
extern "C" __global__ void __launch_bounds__(256) round_rows(const int32_t* __restrict__ count, /* [1] rows of this step */
                                                             const float* __restrict__ x,       /* [rows, K] */
                                                             uint16_t* __restrict__ y,          /* [rows, K] */
                                                             int32_t K) {
  ptx::start_successor();
  ptx::wait_for_predecessor();
  const int64_t n = int64_t(*count) * K / 8;
  for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) {
    const float4 a = reinterpret_cast<const float4*>(x)[2 * i], b = reinterpret_cast<const float4*>(x)[2 * i + 1];
    reinterpret_cast<uint4*>(y)[i] = {ptx::pack_bf16(a.x, a.y), ptx::pack_bf16(a.z, a.w), ptx::pack_bf16(b.x, b.y), ptx::pack_bf16(b.z, b.w)};
  }
}

#define MAP const __grid_constant__ ptx::tensor_map

#define ENTRY(NAME) extern "C" __global__ void __launch_bounds__(tiles::kThreads, 1) NAME

#define LINEAR(NAME, STORE)                                                                                       \
  ENTRY(NAME)                                                                                                     \
  (const int32_t* __restrict__ count, /* [1] rows of this step */                                                 \
   MAP x,                             /* [rows, K] bf16, boxes of 128 × 64 */                                     \
   MAP w,                             /* [N, K] bf16, boxes of 128 × 64 */                                        \
   const float* __restrict__ bias,    /* [N], or null */                                                          \
   float* __restrict__ y,             /* [rows, N] */                                                             \
   int32_t N, int32_t K) {                                                                                        \
    run(x, Stored<1, tiles::STORE>{{{&w}, {bias}, {y}, {N}}}, count, K);                                          \
  }

LINEAR(linear_tiles, Set)
LINEAR(linear_add_tiles, Add)

ENTRY(linear_n_tiles)
(const int32_t* __restrict__ count, /* [1] rows of this step */
 MAP x,                             /* [rows, K] bf16, boxes of 128 × 64 */
 MAP w0, MAP w1, MAP w2, MAP w3,    /* [Ni, K] bf16, boxes of 128 × 64 */
 const float* __restrict__ bias0, const float* __restrict__ bias1, const float* __restrict__ bias2, const float* __restrict__ bias3,
 float* __restrict__ y0, float* __restrict__ y1, float* __restrict__ y2, float* __restrict__ y3, /* [rows, Ni] */
 int32_t N0, int32_t N1, int32_t N2, int32_t N3, int32_t K) {
  run(x, Stored<4, tiles::Set>{{{&w0, &w1, &w2, &w3}, {bias0, bias1, bias2, bias3}, {y0, y1, y2, y3}, {N0, N1, N2, N3}}}, count, K);
}

#define LINEAR_GLU(ACT)                                                                            \
  ENTRY(linear_glu_tiles_##ACT)                                                                    \
  (const int32_t* __restrict__ count, /* [1] rows of this step */                                  \
   MAP x,                             /* [rows, K] bf16, boxes of 128 × 64 */                      \
   MAP wg, MAP wu,                    /* [N, K] bf16, boxes of 128 × 64 */                         \
   float* __restrict__ y,             /* [rows, N] */                                              \
   int32_t N, int32_t K, float limit) {                                                            \
    run(x, Gated<fast_glu::ACT>{&wg, &wu, y, N, limit}, count, K);                                 \
  }

LINEAR_GLU(silu)
LINEAR_GLU(gelu_tanh)
LINEAR_GLU(silu_then_limit)
LINEAR_GLU(swiglu_oai)
