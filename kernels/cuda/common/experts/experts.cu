// SPDX-License-Identifier: MIT OR Apache-2.0
// Family experts: the feed-forward layers that each row was routed to, as two launches of products of one row each:
//
//	experts_up     h[row, slot] = act(gate x) * (up x), or act(up x)     the slot's expert's gate_up, [gate | up] or [up]
//	experts_down   y[row] = Σ_slot weights[slot] * down h[row, slot], or * x for identity experts, which follow the E others
//
// Dot products are in linear's order; a row adds its slots in order.

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

struct Experts {
  int E, k, H, I;
};

// finish is a dot product with output n's scale and bias, where there are some. Its roundings are those of linear.
__device__ __forceinline__ float finish(float dot, const float* scale, const float* bias, int64_t n) {
  if (scale) dot = __fmul_rn(dot, scale[n]);
  return bias ? dot + bias[n] : dot;
}

// Grid: I/8, k, rows; 256 threads: a warp an element of h.
template <bool Gated, class T, class Act>
__device__ __forceinline__ void up(const int32_t* count, const float* __restrict__ x, const int32_t* __restrict__ ids,
                                   const T* __restrict__ gate_up, const float* __restrict__ scale, const float* __restrict__ bias, float* __restrict__ h,
                                   float limit, const Experts& a) {
  constexpr int N = Gated ? 2 : 1;
  const int row = blockIdx.z, slot = row * a.k + blockIdx.y, i = blockIdx.x * kWarps + warp_id();
  if (row >= *count || i >= a.I) return;
  const int64_t id = ids[slot];
  if (id >= a.E) return;
  const T* w[N];
  float s[1][N] = {};
#pragma unroll
  for (int j = 0; j < N; j++) w[j] = gate_up + ((id * N + j) * a.I + i) * a.H;
  lane_dots_of(s, x + int64_t(row) * a.H, w, a.H);
#pragma unroll
  for (int j = 0; j < N; j++) s[0][j] = finish(warp_sum(s[0][j]), scale, bias, (id * N + j) * a.I + i);
  if (lane_id() > 0) return;
  if constexpr (Gated)
    h[int64_t(slot) * a.I + i] = Act::of(s[0][0], s[0][1], limit);
  else
    h[int64_t(slot) * a.I + i] = Act::of(s[0][0]);
}

// Grid: H/16, rows; 256 threads: a warp two elements of y.
template <class T>
__device__ __forceinline__ void down(const int32_t* count, const float* __restrict__ x, const int32_t* __restrict__ ids,
                                     const float* __restrict__ weights, const T* __restrict__ down, const float* __restrict__ scale,
                                     const float* __restrict__ bias, const float* __restrict__ h, float* __restrict__ y, const Experts& a) {
  const int row = blockIdx.y, n = (blockIdx.x * kWarps + warp_id()) * 2, next = min(n + 1, a.H - 1);
  if (row >= *count || n >= a.H) return;
  x += int64_t(row) * a.H;
  float u = 0, v = 0;
#pragma unroll 2
  for (int slot = row * a.k; slot < (row + 1) * a.k; slot++) {
    const int64_t id = ids[slot];
    float s[1][2] = {{x[n], x[next]}};
    if (id < a.E) {
      const T* const w[2] = {down + (id * a.H + n) * a.I, down + (id * a.H + next) * a.I};
      s[0][0] = s[0][1] = 0;
      lane_dots_of(s, h + int64_t(slot) * a.I, w, a.I);
      s[0][0] = finish(warp_sum(s[0][0]), scale, bias, id * a.H + n);
      s[0][1] = finish(warp_sum(s[0][1]), scale, bias, id * a.H + next);
    }
    u = fmaf(weights[slot], s[0][0], u);
    v = fmaf(weights[slot], s[0][1], v);
  }
  if (lane_id() > 0) return;
  y[int64_t(row) * a.H + n] = u;
  if (n + 1 < a.H) y[int64_t(row) * a.H + n + 1] = v;
}

#define EXPERTS_UP(T, GATED, ACT, FORM)                                                                     \
  extern "C" __global__ void __launch_bounds__(256, 2)                                                      \
      experts_up_##GATED##_##ACT##_##T(const int32_t* __restrict__ count, /* [1] rows of this step */       \
                                       const float* __restrict__ x,       /* [rows, H] */                   \
                                       const int32_t* __restrict__ ids,   /* [rows, k] */                   \
                                       const T* __restrict__ gate_up,     /* [E, (1+gated)*I, H] */         \
                                       const float* __restrict__ scale,   /* [E, (1+gated)*I], or null */   \
                                       const float* __restrict__ bias,    /* [E, (1+gated)*I], or null */   \
                                       float* __restrict__ h,             /* [rows, k, I] */                \
                                       int32_t E, int32_t k, int32_t H, int32_t I, float limit) {           \
    begin();                                                                                                \
    up<GATED, T, FORM::ACT>(count, x, ids, gate_up, scale, bias, h, limit, Experts{E, k, H, I});            \
  }

#define EXPERTS_DOWN(T)                                                                                     \
  extern "C" __global__ void __launch_bounds__(256, 2)                                                      \
      experts_down_##T(const int32_t* __restrict__ count,   /* [1] rows of this step */                     \
                       const float* __restrict__ x,         /* [rows, H] */                                 \
                       const int32_t* __restrict__ ids,     /* [rows, k] */                                 \
                       const float* __restrict__ weights,   /* [rows, k] */                                 \
                       const T* __restrict__ w,             /* [E, H, I] */                                 \
                       const float* __restrict__ scale,     /* [E, H], or null */                           \
                       const float* __restrict__ bias,      /* [E, H], or null */                           \
                       const float* __restrict__ h,         /* [rows, k, I] */                              \
                       float* __restrict__ y,               /* [rows, H] */                                 \
                       int32_t E, int32_t k, int32_t H, int32_t I) {                                        \
    begin();                                                                                                \
    down<T>(count, x, ids, weights, w, scale, bias, h, y, Experts{E, k, H, I});                             \
  }

#define ALL_OF(T)                              \
  EXPERTS_UP(T, 1, silu, glu)                  \
  EXPERTS_UP(T, 1, gelu_tanh, glu)             \
  EXPERTS_UP(T, 1, relu2, glu)                 \
  EXPERTS_UP(T, 1, silu_then_limit, glu)       \
  EXPERTS_UP(T, 1, swiglu_oai, glu)            \
  EXPERTS_UP(T, 0, silu, act)                  \
  EXPERTS_UP(T, 0, gelu_tanh, act)             \
  EXPERTS_UP(T, 0, relu2, act)                 \
  EXPERTS_DOWN(T)

ALL_OF(f32)
ALL_OF(bf16)
ALL_OF(f16)
