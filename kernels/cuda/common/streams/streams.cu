// SPDX-License-Identifier: MIT OR Apache-2.0
// Family streams: hyper-connections. A row carries several residual streams of width elements, [streams] [width]; weights of the
// row say how they are collapsed into the input of a layer, and how its output is spread over the streams, which are mixed.
// Grids are width/256, rows: a thread has one element of all streams.

#include "epilogue/act.cuh"
#include "reduce/warp.cuh"
#include "step.cuh"

constexpr int kStreams = 8;  // at most

// column is this thread's element, or -1 where the step or the row has none.
__device__ __forceinline__ int column(const int32_t* count, int width) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  return int(blockIdx.y) < *count && i < width ? i : -1;
}

// Copies a row to all streams.
extern "C" __global__ void repeat(const int32_t* __restrict__ count,  // [1] rows of this step
                                  const float* __restrict__ x,        // [rows, width]
                                  float* __restrict__ y,              // [rows, streams*width]
                                  int32_t streams, int32_t width) {
  begin();
  const int i = column(count, width);
  if (i < 0) return;
  const float v = x[int64_t(blockIdx.y) * width + i];
  for (int s = 0; s < streams; s++) y[(int64_t(blockIdx.y) * streams + s) * width + i] = v;
}

// The mean of the streams.
extern "C" __global__ void mean(const int32_t* __restrict__ count,  // [1] rows of this step
                                const float* __restrict__ x,        // [rows, streams*width]
                                float* __restrict__ y,              // [rows, width]
                                int32_t streams, int32_t width) {
  begin();
  const int i = column(count, width);
  if (i < 0) return;
  float sum = 0;
  for (int s = 0; s < streams; s++) sum += x[(int64_t(blockIdx.y) * streams + s) * width + i];
  y[int64_t(blockIdx.y) * width + i] = sum * (1.0f / float(streams));
}

// collapse is Σ (sigmoid(m*scale + base) + eps) x over the streams of this block's row.
__device__ __forceinline__ float collapse(const float* x, const float* m, const float* base, float scale, int i, int streams, int width, float eps) {
  float sum = 0;
  for (int s = 0; s < streams; s++)
    sum = fmaf(act::sigmoid::of(fmaf(m[s], scale, base[s])) + eps, x[(int64_t(blockIdx.y) * streams + s) * width + i], sum);
  return sum;
}

// sinkhorn makes c [n, n] in shared memory nearly doubly stochastic: softmax over rows, plus eps, then divided by the sums of
// columns, rows, columns, … iters times. One warp; lane k has row or column k.
__device__ __forceinline__ void sinkhorn(float* c, int n, int iters, float eps) {
  const int k = lane_id();
  if (k < n) {
    float top = c[k * n], sum = 0;
    for (int j = 1; j < n; j++) top = fmaxf(top, c[k * n + j]);
    for (int j = 0; j < n; j++) sum += c[k * n + j] = expf(c[k * n + j] - top);
    for (int j = 0; j < n; j++) c[k * n + j] = c[k * n + j] / sum + eps;
  }
  for (int it = 0; it < 2 * iters - 1; it++) {
    __syncwarp();
    if (k >= n) continue;
    const int first = it % 2 ? k * n : k, step = it % 2 ? 1 : n;  // columns first
    float sum = eps;
    for (int j = 0; j < n; j++) sum += c[first + j * step];
    for (int j = 0; j < n; j++) c[first + j * step] /= sum;
  }
  __syncwarp();
}

// The row's coefficients m become weights:
//
//	m      [streams] pre                      [streams] post      [streams, streams] comb
//	to     sigmoid + eps, which collapse x    2*sigmoid           sinkhorn
extern "C" __global__ void mhc_mix(const int32_t* __restrict__ count,  // [1] rows of this step
                                   const float* __restrict__ x,        // [rows, streams*width]
                                   const float* __restrict__ m,        // [rows, (2+streams)*streams]
                                   const float* __restrict__ base,     // [(2+streams)*streams]
                                   const float* __restrict__ scale,    // [3] of the parts of m
                                   float* __restrict__ y,              // [rows, width]
                                   float* __restrict__ post,           // [rows, streams]
                                   float* __restrict__ comb,           // [rows, streams*streams]
                                   int32_t streams, int32_t width, int32_t iters, float eps) {
  begin();
  __shared__ float c[kStreams * kStreams];
  const int row = blockIdx.y, i = column(count, width);
  if (row >= *count) return;
  m += int64_t(row) * (2 + streams) * streams;
  if (i >= 0) y[int64_t(row) * width + i] = collapse(x, m, base, scale[0], i, streams, width, eps);
  if (blockIdx.x > 0 || warp_id() > 0) return;
  for (int k = lane_id(); k < streams; k += 32) {
    const int at = streams + k;
    post[int64_t(row) * streams + k] = 2.0f * act::sigmoid::of(fmaf(m[at], scale[1], base[at]));
  }
  for (int k = lane_id(); k < streams * streams; k += 32) {
    const int at = 2 * streams + k;
    c[k] = fmaf(m[at], scale[2], base[at]);
  }
  __syncwarp();
  sinkhorn(c, streams, iters, eps);
  for (int k = lane_id(); k < streams * streams; k += 32) comb[int64_t(row) * streams * streams + k] = c[k];
}

// Spreads a layer's output over the mixed streams: x_j = post_j*d + Σ_i comb[i, j] x_i.
extern "C" __global__ void mhc_add(const int32_t* __restrict__ count,  // [1] rows of this step
                                   float* __restrict__ x,              // [rows, streams*width]
                                   const float* __restrict__ d,        // [rows, width]
                                   const float* __restrict__ post,     // [rows, streams]
                                   const float* __restrict__ comb,     // [rows, streams*streams]
                                   int32_t streams, int32_t width) {
  begin();
  const int row = blockIdx.y, i = column(count, width);
  if (i < 0) return;
  x += int64_t(row) * streams * width + i;
  post += int64_t(row) * streams;
  comb += int64_t(row) * streams * streams;
  const float add = d[int64_t(row) * width + i];
  float in[kStreams] = {};
#pragma unroll
  for (int s = 0; s < kStreams; s++)
    if (s < streams) in[s] = x[int64_t(s) * width];
  for (int j = 0; j < streams; j++) {
    float sum = post[j] * add;
#pragma unroll
    for (int s = 0; s < kStreams; s++)
      if (s < streams) sum = fmaf(comb[s * streams + j], in[s], sum);
    x[int64_t(j) * width] = sum;
  }
}

// Collapses the streams by weights sigmoid(m*scale + base) + eps.
extern "C" __global__ void mhc_head(const int32_t* __restrict__ count,  // [1] rows of this step
                                    const float* __restrict__ x,        // [rows, streams*width]
                                    const float* __restrict__ m,        // [rows, streams]
                                    const float* __restrict__ base,     // [streams]
                                    const float* __restrict__ scale,    // [1]
                                    float* __restrict__ y,              // [rows, width]
                                    int32_t streams, int32_t width, float eps) {
  begin();
  const int row = blockIdx.y, i = column(count, width);
  if (i >= 0) y[int64_t(row) * width + i] = collapse(x, m + int64_t(row) * streams, base, scale[0], i, streams, width, eps);
}
