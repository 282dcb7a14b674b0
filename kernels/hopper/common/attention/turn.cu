// SPDX-License-Identifier: MIT OR Apache-2.0
// Family attention, many rows, before prefill.cu: norms and rotation of q and k, q rounded to bf16, k and v into their pages.
//
// A warp has one head of a row, of q, k or v; a lane values that lie together, four at most:
//
//	head_dim 64    lane: 2·lane, +1        128    4·lane … +3        256    4·lane … +3, 128 + 4·lane … +3
//
// Heads of a row are beside each other: q first, then k, then v.

#include "../../../include/copy/vector.cuh"
#include "../../../include/mma/bf16.cuh"
#include "../../../include/step.cuh"

namespace {

constexpr int kWarps = 8;

struct Args {
  const float *q, *k, *v, *q_norm, *k_norm, *angles;
  const int32_t* slots;
  uint16_t *turned, *k_pool, *v_pool;
  int heads, kv_heads, rot, gated, plus_one;
  float eps;
};

template <int HD, bool Interleaved>
__device__ __forceinline__ void turn(const int32_t* rows, const Args& a) {
  constexpr int N = HD / 32, C = N < 4 ? N : 4;
  __shared__ float shared[kWarps][HD];
  begin();
  const int lane = threadIdx.x % 32, items = a.heads + 2 * a.kv_heads, half = a.rot / 2;
  const int64_t item = blockIdx.x * int64_t(kWarps) + threadIdx.x / 32, row = item / items;
  if (row >= *rows) return;
  const int h = item % items;
  const bool is_q = h < a.heads, is_k = !is_q && h < a.heads + a.kv_heads;
  const int kv = is_q ? 0 : is_k ? h - a.heads : h - a.heads - a.kv_heads;
  const float* from = is_q ? a.q + (row * a.heads + h) * (1 + a.gated) * HD : (is_k ? a.k : a.v) + (row * a.kv_heads + kv) * HD;
  uint16_t* to = is_q ? a.turned + (row * a.heads + h) * HD : (is_k ? a.k_pool : a.v_pool) + (int64_t(a.slots[row]) * a.kv_heads + kv) * HD;
  const auto dim = [&](int i) { return i / C * 32 * C + lane * C + i % C; };

  float v[N], square = 0;
#pragma unroll
  for (int i = 0; i < N; i += C) {
    const vec<float, C> x = load<C>(from + dim(i));
#pragma unroll
    for (int e = 0; e < C; e++) v[i + e] = x.at[e], square += x.at[e] * x.at[e];
  }
  if (is_q || is_k) {
    const float* norm = is_q ? a.q_norm : a.k_norm;
    if (norm) {
#pragma unroll
      for (int d = 16; d; d /= 2) square += __shfl_xor_sync(~0u, square, d);
      const float f = rsqrtf(square / float(HD) + a.eps), plus = a.plus_one;
#pragma unroll
      for (int i = 0; i < N; i++) v[i] *= f * (norm[dim(i)] + plus);
    }
    float* x = shared[threadIdx.x / 32];
#pragma unroll
    for (int i = 0; i < N; i++) x[dim(i)] = v[i];
    __syncwarp();
    const float* angles = a.angles + row * a.rot;
#pragma unroll
    for (int i = 0; i < N; i++) {
      const int d = dim(i);
      if (d >= a.rot) continue;
      const bool first = Interleaved ? d % 2 == 0 : d < half;
      const int pair = Interleaved ? d / 2 : first ? d : d - half;
      const float other = x[Interleaved ? d ^ 1 : first ? d + half : d - half], cos = angles[pair], sin = angles[half + pair];
      v[i] = first ? v[i] * cos - other * sin : v[i] * cos + other * sin;
    }
  }
#pragma unroll
  for (int i = 0; i < N; i += C) {
    vec<uint32_t, C / 2> out;
#pragma unroll
    for (int e = 0; e < C; e += 2) out.at[e / 2] = mma::pack(v[i + e], v[i + e + 1]);
    *reinterpret_cast<vec<uint32_t, C / 2>*>(to + dim(i)) = out;
  }
}

}  // namespace

// Grid: rows*(heads + 2*kv_heads)/8; 256 threads.
#define TURN(HD, STYLE, INTERLEAVED)                                                                                             \
  extern "C" __global__ void __launch_bounds__(32 * kWarps) turn_rows_##HD##_##STYLE(                                            \
      const int32_t* __restrict__ rows,    /* [1] of this step */                                                                \
      const float* __restrict__ q,         /* [rows, heads*HD], or [q | gate] per head */                                        \
      const float* __restrict__ k,         /* [rows, kv_heads*HD] */                                                             \
      const float* __restrict__ v,         /* [rows, kv_heads*HD] */                                                             \
      const float* __restrict__ q_norm,    /* [HD], or null */                                                                   \
      const float* __restrict__ k_norm,    /* [HD], or null */                                                                   \
      const float* __restrict__ angles,    /* [rows, rot] cos, sin */                                                            \
      const int32_t* __restrict__ slots,   /* [rows] */                                                                          \
      uint16_t* __restrict__ turned,       /* [rows, heads*HD] */                                                                \
      uint16_t* __restrict__ k_pool,       /* [slots, kv_heads, HD] */                                                           \
      uint16_t* __restrict__ v_pool,       /* the same */                                                                        \
      int32_t heads, int32_t kv_heads, int32_t rot, int32_t gated, int32_t plus_one, float eps) {                                \
    turn<HD, INTERLEAVED>(rows, {q, k, v, q_norm, k_norm, angles, slots, turned, k_pool, v_pool, heads, kv_heads, rot, gated, plus_one, eps}); \
  }

TURN(64, half, false)
TURN(128, half, false)
TURN(256, half, false)
TURN(64, interleaved, true)
TURN(128, interleaved, true)
TURN(256, interleaved, true)
