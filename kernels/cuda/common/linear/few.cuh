// SPDX-License-Identifier: MIT OR Apache-2.0
// Linear for few rows: a warp per pair of dot products, which reads its rows of w once for up to eight rows of x.
#pragma once

#include "dot.cuh"
#include "outputs.cuh"

constexpr int kFewRows = 8, kFewWarps = 8;

template <int R, class T, class Out>
__device__ __forceinline__ void few_rows(const float* __restrict__ x, int stride, const Out& out, int first, int rows, int K) {
  const int p = blockIdx.x * kFewWarps + warp_id();
  if (p >= out.pairs()) return;
  const float* a[R];
#pragma unroll
  for (int r = 0; r < R; r++) a[r] = x + int64_t(min(first + r, rows - 1)) * stride;
  const T* const w[2] = {out.row(p, 0, K), out.row(p, 1, K)};
  float s[R][2] = {};
  if (aligned_rows<T>(K))
    lane_dots<true>(s, a, w, K);
  else
    lane_dots<false>(s, a, w, K);
#pragma unroll
  for (int r = 0; r < R; r++) {
    const float u = warp_sum(s[r][0]), v = warp_sum(s[r][1]);
    if (lane_id() == r && first + r < rows) out.put(first + r, p, u, v);
  }
}

// few computes rows [8 * blockIdx.y, + 8) of x [rows, K], whose rows are stride apart. Grid: pairs/8, rows/8; 256 threads.
template <class T, class Out>
__device__ __forceinline__ void few(const float* __restrict__ x, int stride, const Out& out, int rows, int K) {
  const int first = blockIdx.y * kFewRows, n = rows - first;
  if (n <= 0) return;
  if (n == 1)
    few_rows<1, T>(x, stride, out, first, rows, K);
  else if (n == 2)
    few_rows<2, T>(x, stride, out, first, rows, K);
  else if (n <= 4)
    few_rows<4, T>(x, stride, out, first, rows, K);
  else
    few_rows<8, T>(x, stride, out, first, rows, K);
}
