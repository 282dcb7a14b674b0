// SPDX-License-Identifier: MIT OR Apache-2.0
// Family linear: y = x w group by group, the transpose of group_linear. A thread has a column of up to eight rows, and adds its
// products one by one with rising k. Grid: N/128, groups, rows/8; 128 threads.

#include "step.cuh"

constexpr int kRows = 8;

extern "C" __global__ void group_mul(const int32_t* __restrict__ count,  // [1] rows of this step
                                     const float* __restrict__ x,        // [rows, groups*K]
                                     const float* __restrict__ w,        // [groups, K, N]
                                     float* __restrict__ y,              // [rows, groups*N]
                                     int32_t groups, int32_t K, int32_t N) {
  begin();
  const int n = blockIdx.x * blockDim.x + threadIdx.x, g = blockIdx.y, first = blockIdx.z * kRows;
  const int rows = min(*count - first, kRows);
  if (rows <= 0 || n >= N) return;
  x += (int64_t(first) * groups + g) * K;
  w += int64_t(g) * K * N + n;
  y += (int64_t(first) * groups + g) * N + n;
  float s[kRows] = {};
#pragma unroll 8
  for (int k = 0; k < K; k++) {
    const float v = w[int64_t(k) * N];
#pragma unroll
    for (int r = 0; r < kRows; r++)
      if (r < rows) s[r] = fmaf(x[int64_t(r) * groups * K + k], v, s[r]);
  }
#pragma unroll
  for (int r = 0; r < kRows; r++)
    if (r < rows) y[int64_t(r) * groups * N] = s[r];
}
