// SPDX-License-Identifier: MIT OR Apache-2.0
// Family linear, many rows, bf16 weights as stored: linear, linear_add, linear_n, linear_glu. Needs a GPU of sm_90a.
//
// Two launches: x is rounded to bf16, then tiles of it meet tiles of w on the tensor cores. Algorithm, order of sums, grid:
// mma/tiles.cuh. K must divide by 8, N may be any.

#include "../../../include/epilogue/act.cuh"
#include "../../../include/mma/tiles.cuh"

namespace {

// pick is p[i] without indexing memory.
template <class T, int N>
__device__ __forceinline__ T pick(const T (&p)[N], int i) {
  T v = p[0];
#pragma unroll
  for (int j = 1; j < N; j++) v = i == j ? p[j] : v;
  return v;
}

// put_pairs writes, or adds, what a thread has of a tile: value(j, i) of pair j, i as wgmma.cuh draws it. y is the first one's place
// in rows of N; cols and rows are what is left from there on.
template <int Pairs, bool Add, class Value>
__device__ __forceinline__ void put_pairs(const Value& value, float* y, int N, int cols, int rows) {
  if (N % 2 == 0) {
#pragma unroll
    for (int j = 0; j < Pairs; j++)
#pragma unroll
      for (int i = 0; i < 4; i += 2)
        if (8 * j < cols && 4 * i < rows) {
          float* at = y + int64_t(4 * i) * N + 8 * j;
          if (Add)
            ptx::add_to(at, value(j, i), value(j, i + 1));
          else
            *reinterpret_cast<float2*>(at) = {value(j, i), value(j, i + 1)};
        }
    return;
  }
#pragma unroll
  for (int j = 0; j < Pairs; j++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float* at = y + int64_t(i / 2 * 8) * N + 8 * j + i % 2;
      if (8 * j + i % 2 < cols && i / 2 * 8 < rows) *at = Add ? *at + value(j, i) : value(j, i);
    }
}

// Stored writes y = x wᵀ + bias, or adds that to y, for Parts matrices of one x.
template <int Cols, int Parts, bool Add>
struct Stored {
  const ptx::tensor_map* w[Parts];  // [N, K]
  const float* bias[Parts];         // [N], or null
  float* y[Parts];                  // [rows, N]
  int n[Parts];

  __device__ __forceinline__ static int tiles(int n) { return (n + Cols - 1) / Cols; }
  __device__ __forceinline__ int cols() const {
    int sum = 0;
#pragma unroll
    for (int i = 0; i < Parts; i++) sum += tiles(n[i]);
    return sum;
  }
  // find turns a tile of all into one of a matrix.
  __device__ __forceinline__ int find(int& col) const {
    int at = 0;
#pragma unroll
    for (int i = 0; i < Parts - 1; i++)
      if (at == i && col >= tiles(n[i])) col -= tiles(n[i]), at = i + 1;
    return at;
  }
  __device__ __forceinline__ tiles::Half half(int col, int i) const {
    const int at = find(col);
    return {pick(w, at), col * Cols + i * (Cols / 2)};
  }
  __device__ __forceinline__ void put(const float (&sums)[Cols / 2], int row, int col, int rows) const {
    const int at = find(col), N = pick(n, at), first = col * Cols + threadIdx.x % 4 * 2;
    const float* b = pick(bias, at);
    const auto biased = [&](int j, int i) { return sums[4 * j + i] + (first + 8 * j + i % 2 < N ? b[first + 8 * j + i % 2] : 0); };
    const auto plain = [&](int j, int i) { return sums[4 * j + i]; };
    float* out = pick(y, at) + int64_t(row) * N + first;
    if (b)
      put_pairs<Cols / 8, Add>(biased, out, N, N - first, rows - row);
    else
      put_pairs<Cols / 8, Add>(plain, out, N, N - first, rows - row);
  }
};

// Gated writes y = act(x wgᵀ) * (x wuᵀ): a tile is Cols/2 rows of wg and the same of wu, so a thread has both sums of an output.
template <int Cols, class Glu>
struct Gated {
  const ptx::tensor_map *wg, *wu;  // [N, K]
  float* y;                        // [rows, N]
  int N;
  float limit;

  __device__ __forceinline__ int cols() const { return (N + Cols / 2 - 1) / (Cols / 2); }
  __device__ __forceinline__ tiles::Half half(int col, int i) const { return {i ? wu : wg, col * (Cols / 2)}; }
  __device__ __forceinline__ void put(const float (&sums)[Cols / 2], int row, int col, int rows) const {
    const int first = col * (Cols / 2) + threadIdx.x % 4 * 2;
    put_pairs<Cols / 16, false>([&](int j, int i) { return Glu::of(sums[4 * j + i], sums[Cols / 4 + 4 * j + i], limit); },
                                y + int64_t(row) * N + first, N, N - first, rows - row);
  }
};

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

#define LINEAR(NAME, COLS, STAGES, ADD)                                                            \
  ENTRY(NAME##_##COLS)                                                                             \
  (const int32_t* __restrict__ count, /* [1] rows of this step */                                  \
   MAP x,                             /* [rows, K] bf16, boxes of 128 × 64 */                      \
   MAP w,                             /* [N, K] bf16, boxes of COLS/2 × 64 */                      \
   const float* __restrict__ bias,    /* [N], or null */                                           \
   float* __restrict__ y,             /* [rows, N] */                                              \
   int32_t N, int32_t K) {                                                                         \
    tiles::multiply<COLS, STAGES>(x, Stored<COLS, 1, ADD>{{&w}, {bias}, {y}, {N}}, count, K);      \
  }

#define LINEAR_N(NAME, COLS, STAGES)                                                                                           \
  ENTRY(NAME##_##COLS)                                                                                                         \
  (const int32_t* __restrict__ count, MAP x, MAP w0, MAP w1, MAP w2, MAP w3, const float* __restrict__ bias0,                  \
   const float* __restrict__ bias1, const float* __restrict__ bias2, const float* __restrict__ bias3, float* __restrict__ y0,  \
   float* __restrict__ y1, float* __restrict__ y2, float* __restrict__ y3, int32_t N0, int32_t N1, int32_t N2, int32_t N3,     \
   int32_t K) {                                                                                                                \
    const Stored<COLS, 4, false> out = {{&w0, &w1, &w2, &w3}, {bias0, bias1, bias2, bias3}, {y0, y1, y2, y3}, {N0, N1, N2, N3}}; \
    tiles::multiply<COLS, STAGES>(x, out, count, K);                                                                           \
  }

#define LINEAR_GLU(NAME, COLS, STAGES, ACT)                                                        \
  ENTRY(NAME##_##ACT##_##COLS)                                                                     \
  (const int32_t* __restrict__ count, /* [1] rows of this step */                                  \
   MAP x,                             /* [rows, K] bf16, boxes of 128 × 64 */                      \
   MAP wg, MAP wu,                    /* [N, K] bf16, boxes of COLS/2 × 64 */                      \
   float* __restrict__ y,             /* [rows, N] */                                              \
   int32_t N, int32_t K, float limit) {                                                            \
    tiles::multiply<COLS, STAGES>(x, Gated<COLS, glu::ACT>{&wg, &wu, y, N, limit}, count, K);      \
  }

#define ALL_OF(COLS, STAGES)                             \
  LINEAR(linear_tiles, COLS, STAGES, false)              \
  LINEAR(linear_add_tiles, COLS, STAGES, true)           \
  LINEAR_N(linear_n_tiles, COLS, STAGES)                 \
  LINEAR_GLU(linear_glu_tiles, COLS, STAGES, silu)       \
  LINEAR_GLU(linear_glu_tiles, COLS, STAGES, gelu_tanh)

ALL_OF(256, 4)
ALL_OF(128, 6)
