// SPDX-License-Identifier: MIT OR Apache-2.0
// Family experts: the gated feed-forward layers that each row was routed to, as two launches of products of one row each:
//
//	experts_up     h[row, slot] = act(gate x) * (up x)    the slot's expert's gate_up, [gate | up]
//	experts_down   y[row] = Σ_slot weights[slot] * down h[row, slot]
//
// Dot products are in linear's order; the slots of a row are added in each lane, in order, before the lanes.

#include "../linear/dot.cuh"
#include "epilogue/act.cuh"
#include "step.cuh"

constexpr int kWarps = 8;

template <int W, class T>
__device__ __forceinline__ void lane_dots_of(float (&s)[1][W], const float* x, const T* const (&w)[W], int K) {
  const float* const rows[1] = {x};
  if (aligned_rows<T>(K))
    lane_dots<true>(s, rows, w, K);
  else
    lane_dots<false>(s, rows, w, K);
}

// Grid: I/8, k, rows; 256 threads: a warp an element of h.
template <class T, class Act>
__device__ __forceinline__ void up(const int32_t* count, const float* __restrict__ x, const int32_t* __restrict__ ids,
                                   const T* __restrict__ gate_up, float* __restrict__ h, int k, int H, int I) {
  const int row = blockIdx.z, slot = row * k + blockIdx.y, i = blockIdx.x * kWarps + warp_id();
  if (row >= *count || i >= I) return;
  const T* expert = gate_up + int64_t(ids[slot]) * 2 * I * H;
  const T* const w[2] = {expert + int64_t(i) * H, expert + int64_t(I + i) * H};
  float s[1][2] = {};
  lane_dots_of(s, x + int64_t(row) * H, w, H);
  const float g = warp_sum(s[0][0]), u = warp_sum(s[0][1]);
  if (lane_id() == 0) h[int64_t(slot) * I + i] = Act::of(g) * u;
}

// Grid: H/16, rows; 256 threads: a warp two elements of y.
template <class T>
__device__ __forceinline__ void down(const int32_t* count, const int32_t* __restrict__ ids, const float* __restrict__ weights,
                                     const T* __restrict__ down, const float* __restrict__ h, float* __restrict__ y, int k, int H, int I) {
  const int row = blockIdx.y, n = (blockIdx.x * kWarps + warp_id()) * 2;
  if (row >= *count || n >= H) return;
  float sum[2] = {};
  for (int slot = row * k; slot < (row + 1) * k; slot++) {
    const T* expert = down + int64_t(ids[slot]) * H * I;
    const T* const w[2] = {expert + int64_t(n) * I, expert + int64_t(min(n + 1, H - 1)) * I};
    float s[1][2] = {};
    lane_dots_of(s, h + int64_t(slot) * I, w, I);
    sum[0] = fmaf(weights[slot], s[0][0], sum[0]);
    sum[1] = fmaf(weights[slot], s[0][1], sum[1]);
  }
  const float a = warp_sum(sum[0]), b = warp_sum(sum[1]);
  if (lane_id() == 0) {
    y[int64_t(row) * H + n] = a;
    if (n + 1 < H) y[int64_t(row) * H + n + 1] = b;
  }
}

#define EXPERTS_UP(T, ACT)                                                                                            \
  extern "C" __global__ void __launch_bounds__(256) experts_up_##ACT##_##T(const int32_t* __restrict__ count, /* [1] */ \
                                                     const float* __restrict__ x,         /* [rows, H] */             \
                                                     const int32_t* __restrict__ ids,     /* [rows, k] */             \
                                                     const T* __restrict__ gate_up,       /* [E, 2*I, H] */           \
                                                     float* __restrict__ h,               /* [rows, k, I] */          \
                                                     int32_t k, int32_t H, int32_t I) {                               \
    begin();                                                                                                          \
    up<T, act::ACT>(count, x, ids, gate_up, h, k, H, I);                                                              \
  }

#define EXPERTS_DOWN(T)                                                                                               \
  extern "C" __global__ void __launch_bounds__(256) experts_down_##T(const int32_t* __restrict__ count, /* [1] */     \
                                               const int32_t* __restrict__ ids,     /* [rows, k] */                   \
                                               const float* __restrict__ weights,   /* [rows, k] */                   \
                                               const T* __restrict__ w,             /* [E, H, I] */                   \
                                               const float* __restrict__ h,         /* [rows, k, I] */                \
                                               float* __restrict__ y,               /* [rows, H] */                   \
                                               int32_t k, int32_t H, int32_t I) {                                     \
    begin();                                                                                                          \
    down<T>(count, ids, weights, w, h, y, k, H, I);                                                                   \
  }

#define ALL_OF(T)          \
  EXPERTS_UP(T, silu)      \
  EXPERTS_UP(T, gelu_tanh) \
  EXPERTS_DOWN(T)

ALL_OF(f32)
ALL_OF(bf16)
ALL_OF(f16)
