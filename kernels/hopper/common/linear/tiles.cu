// SPDX-License-Identifier: MIT OR Apache-2.0
// Family linear, many rows, bf16 weights as stored: linear, linear_add, linear_n, linear_glu.
//
// Two launches: x is rounded to bf16, normed or not, then tiles of it meet tiles of w on the tensor cores. What goes from one linear to
// the next in a chain is stored rounded. Algorithm, order of sums, grid:
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
template <class Glu, class Store, class T>
struct Gated {
  const ptx::tensor_map *wg, *wu;  // [N, K]
  T* y;                            // [rows, N]
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
    tiles::put<kCols / 16, Store>([&](int j, int i) { return Glu::of(sums[4 * j + i], sums[kCols / 4 + 4 * j + i], limit); },
                                  y + int64_t(row) * N + first, N, N - first, t.end - row);
  }
};

constexpr int kLongest = 8192;  // row that norm_rows takes
template <int N>
__device__ __forceinline__ float sum_of(const float4 (&v)[N]) {
  float s = 0;
#pragma unroll
  for (int i = 0; i < N; i++) s += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
  return s;
}
__device__ __forceinline__ float sum_lanes(float s) {
#pragma unroll
  for (int d = 16; d; d /= 2) s += __shfl_xor_sync(~0u, s, d);
  return s;
}

template <class Work>
__device__ __forceinline__ void run(const ptx::tensor_map& x, const Work& work, const int32_t* count, int K) {
  auto& s = tiles::begin<kCols, kStages>();
  tiles::multiply(s, x, tiles::Dense(*count, work.cols()), work, K);
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

// norm_rows writes rms(x) * w rounded to bf16; a null w is all ones. Grid: rows; 256 threads, each with eight columns at a time. K at
// most 8192.
extern "C" __global__ void __launch_bounds__(256) norm_rows(const int32_t* __restrict__ count, /* [1] rows of this step */
                                                            const float* __restrict__ x,       /* [rows, K] */
                                                            const float* __restrict__ w,       /* [K], or null */
                                                            uint16_t* __restrict__ y,          /* [rows, K] */
                                                            int32_t K, float eps, int32_t plus_one) {
  __shared__ float sums[8];
  constexpr int kMost = kLongest / 2048;
  ptx::start_successor();
  ptx::wait_for_predecessor();
  const int row = blockIdx.x, warp = threadIdx.x / 32;
  if (row >= *count) return;
  float4 v[2 * kMost] = {};
#pragma unroll
  for (int m = 0; m < kMost; m++) {
    const int i = threadIdx.x + 256 * m;
    if (i < K / 8)
#pragma unroll
      for (int j = 0; j < 2; j++) v[2 * m + j] = reinterpret_cast<const float4*>(x + int64_t(row) * K)[2 * i + j];
  }
  const float mine = sum_lanes(sum_of(v));
  if (threadIdx.x % 32 == 0) sums[warp] = mine;
  __syncthreads();
  float all = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) all += sums[i];
  const float r = rsqrtf(all / float(K) + eps), plus = plus_one;
#pragma unroll
  for (int m = 0; m < kMost; m++) {
    const int i = threadIdx.x + 256 * m;
    if (i >= K / 8) break;
    uint32_t out[4];
#pragma unroll
    for (int j = 0; j < 2; j++) {
      float4 f = {1, 1, 1, 1};
      if (w) f = reinterpret_cast<const float4*>(w)[2 * i + j], f = {f.x + plus, f.y + plus, f.z + plus, f.w + plus};
      const float4 a = v[2 * m + j];
      out[2 * j] = ptx::pack_bf16(a.x * r * f.x, a.y * r * f.y), out[2 * j + 1] = ptx::pack_bf16(a.z * r * f.z, a.w * r * f.w);
    }
    reinterpret_cast<uint4*>(y + int64_t(row) * K)[i] = {out[0], out[1], out[2], out[3]};
  }
}

// gated_norm_rows writes w * rms(x) * act(z), by segments of group columns, rounded to bf16. Grid: segments/8; 256 threads, a warp a
// segment, which is at most 512 and divides by 4.
template <bool Silu>
__device__ __forceinline__ void gated_norm(const int32_t* count, const float* __restrict__ x, const float* __restrict__ z, const float* __restrict__ w, uint16_t* __restrict__ y,
                                           int n, int group, float eps) {
  constexpr int kMost = 4;
  ptx::start_successor();
  ptx::wait_for_predecessor();
  const int64_t segment = blockIdx.x * 8ll + threadIdx.x / 32, base = segment * group;
  if (segment >= int64_t(*count) * (n / group)) return;
  float4 v[kMost] = {}, u[kMost] = {};
#pragma unroll
  for (int m = 0; m < kMost; m++) {
    const int i = threadIdx.x % 32 + 32 * m;
    if (i < group / 4) v[m] = reinterpret_cast<const float4*>(x + base)[i], u[m] = reinterpret_cast<const float4*>(z + base)[i];
  }
  const float r = rsqrtf(sum_lanes(sum_of(v)) / float(group) + eps);
#pragma unroll
  for (int m = 0; m < kMost; m++) {
    const int i = threadIdx.x % 32 + 32 * m;
    if (i >= group / 4) break;
    const float4 f = reinterpret_cast<const float4*>(w)[i], a = v[m], b = u[m];
    const auto open = [](float z) { return Silu ? z * fast_glu::sigmoid(z) : fast_glu::sigmoid(z); };
    reinterpret_cast<uint2*>(y + base)[i] = {ptx::pack_bf16(a.x * r * f.x * open(b.x), a.y * r * f.y * open(b.y)),
                                             ptx::pack_bf16(a.z * r * f.z * open(b.z), a.w * r * f.w * open(b.w))};
  }
}
#define GATED_NORM(ACT, SILU)                                                                                                \
  extern "C" __global__ void __launch_bounds__(256) gated_norm_rows_##ACT(const int32_t* __restrict__ count, /* [1] rows */  \
                                                                          const float* __restrict__ x,       /* [rows, n] */ \
                                                                          const float* __restrict__ z,       /* [rows, n] */ \
                                                                          const float* __restrict__ w,       /* [group] */   \
                                                                          uint16_t* __restrict__ y,          /* [rows, n] */ \
                                                                          int32_t n, int32_t group, float eps) {             \
    gated_norm<SILU>(count, x, z, w, y, n, group, eps);                                                                      \
  }

GATED_NORM(silu, true)
GATED_NORM(sigmoid, false)

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

#define LINEAR_GLU(ACT)                                                                                  \
  ENTRY(linear_glu_tiles_##ACT)                                                                          \
  (const int32_t* __restrict__ count, /* [1] rows of this step */                                        \
   MAP x,                             /* [rows, K] bf16, boxes of 128 × 64 */                            \
   MAP wg, MAP wu,                    /* [N, K] bf16, boxes of 128 × 64 */                               \
   float* __restrict__ y,             /* [rows, N] */                                                    \
   int32_t N, int32_t K, float limit) {                                                                  \
    run(x, Gated<fast_glu::ACT, tiles::Set, float>{&wg, &wu, y, N, limit}, count, K);                    \
  }                                                                                                      \
  ENTRY(linear_glu_tiles_rounded_##ACT)                                                                  \
  (const int32_t* __restrict__ count, MAP x, MAP wg, MAP wu, uint16_t* __restrict__ y, /* [rows, N] */   \
   int32_t N, int32_t K, float limit) {                                                                  \
    run(x, Gated<fast_glu::ACT, tiles::SetBf16, uint16_t>{&wg, &wu, y, N, limit}, count, K);             \
  }

LINEAR_GLU(silu)
LINEAR_GLU(gelu_tanh)
LINEAR_GLU(silu_then_limit)
LINEAR_GLU(swiglu_oai)
