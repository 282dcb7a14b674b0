// SPDX-License-Identifier: MIT OR Apache-2.0
// What the kernels of linear do with their dot products. They come in pairs, and a pair is the unit of work: two neighbouring
// outputs, or gate and up of one output.
//
//	pairs()             how many there are
//	row(p, i, K)        row i of w, 0 or 1, of pair p; any row where there is none
//	put(r, p, a, b)     takes the pair's dot products with row r of x
#pragma once

#include "epilogue/act.cuh"
#include "step.cuh"

// stored writes y = dot * scale + bias, or adds that to y.
template <class T, bool Add>
struct stored {
  const T* w;                 // [N, K]
  const float *scale, *bias;  // [N], or null
  float* y;                   // [R, stride]
  int N, stride;

  __device__ int pairs() const { return ceil_div(N, 2); }
  __device__ const T* row(int p, int i, int K) const { return w + int64_t(min(2 * p + i, N - 1)) * K; }
  __device__ void put(int r, int p, float a, float b) const {
    one(r, 2 * p, a);
    if (2 * p + 1 < N) one(r, 2 * p + 1, b);
  }
  __device__ void one(int r, int n, float v) const {
    if (scale) v = __fmul_rn(v, scale[n]);  // rounded before it is added to anything, wherever that happens
    if (bias) v += bias[n];
    float* out = y + int64_t(r) * stride + n;
    *out = Add ? *out + v : v;
  }
};

// gated writes y = act(x wgᵀ) * (x wuᵀ), Glu being of namespace glu.
template <class T, class Glu>
struct gated {
  const T *wg, *wu;      // [N, K]
  const float *sg, *su;  // [N] factors of the dot products, or null
  float* y;              // [R, N]
  int N;
  float limit;

  __device__ int pairs() const { return N; }
  __device__ const T* row(int p, int i, int K) const { return (i ? wu : wg) + int64_t(min(p, N - 1)) * K; }
  __device__ void put(int r, int p, float g, float u) const {
    if (sg) g = __fmul_rn(g, sg[p]);
    if (su) u = __fmul_rn(u, su[p]);
    y[int64_t(r) * N + p] = Glu::of(g, u, limit);
  }
};
