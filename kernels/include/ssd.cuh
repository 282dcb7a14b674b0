// SPDX-License-Identifier: MIT OR Apache-2.0
// What state space scans by chunks of 64 rows share: where chunks lie, gates, C and B on their way.
#pragma once

#include "chunks.cuh"
#include "copy/vector.cuh"
#include "epilogue/act.cuh"
#include "reduce/warp.cuh"

namespace ssd {

constexpr int kRows = 64, kPart = 64, kWidePart = kPart + 4;  // of a chunk, of state_dim at a time; rows begin in other banks
using four = vec<float, 4>;

struct Dims {
  int heads, groups, head_dim, state_dim;

  __device__ __forceinline__ int inner() const { return heads * head_dim; }
  __device__ __forceinline__ int width() const { return inner() + 2 * groups * state_dim; }
};

// Gates of a head's rows in a chunk; of rows behind the last, G stays and t is zero.
struct Gates {
  float high[kRows], low[kRows], t[kRows];  // G = high + low
};

// Part is a thread's share of 64 rows and 64 values of state_dim of C and of B, on its way.
struct Part {
  four c[4], b[4];

  // fetch reads values from k on of rows that are there; the others are zero.
  __device__ __forceinline__ void fetch(const float* all, const Dims& a, int group, int rows, int k) {
    const int at = k + threadIdx.x % 16 * 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int row = threadIdx.x / 16 + 16 * i;
      c[i] = b[i] = {};
      if (row >= rows || at >= a.state_dim) continue;
      const float* from = all + int64_t(row) * a.width() + a.inner() + group * a.state_dim + at;
      b[i] = load<4>(from);
      c[i] = load<4>(from + a.groups * a.state_dim);
    }
  }
  // put stores them, rows of B times scale.
  __device__ __forceinline__ void put(float (*to_c)[kWidePart], float (*to_b)[kWidePart], const float* scale) const {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int row = threadIdx.x / 16 + 16 * i, at = threadIdx.x % 16 * 4;
      four x = b[i];
      if (scale)
#pragma unroll
        for (int e = 0; e < 4; e++) x.at[e] *= scale[row];
      store(&to_c[row][at], c[i]);
      store(&to_b[row][at], x);
    }
  }
};

// multiply adds C Bᵀ over a part to a thread's 16 of the 64 × 64: rows and columns 16 apart.
__device__ __forceinline__ void multiply(float (&sum)[4][4], const float (*c)[kWidePart], const float (*b)[kWidePart], int row, int column) {
#pragma unroll 2
  for (int e = 0; e < kPart; e += 4) {
    four x[4], y[4];
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = load<4>(&c[row + 16 * i][e]), y[i] = load<4>(&b[column + 16 * i][e]);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++)
#pragma unroll
        for (int n = 0; n < 4; n++) sum[i][j] = fmaf(x[i].at[n], y[j].at[n], sum[i][j]);
  }
}

// Sum is a sum of two floats, the second below the first's last bit.
struct Sum {
  float high, low;

  __device__ __forceinline__ Sum operator+(const Sum& o) const {
    const float s = __fadd_rn(high, o.high), back = __fsub_rn(s, high);
    const float lost = __fadd_rn(__fsub_rn(high, __fsub_rn(s, back)), __fsub_rn(o.high, back));
    const float rest = __fadd_rn(lost, __fadd_rn(low, o.low)), top = __fadd_rn(s, rest);
    return {top, __fsub_rn(rest, __fsub_rn(top, s))};
  }
};

// gates fills a head's gates; a lane has two rows.
__device__ __forceinline__ void gates(Gates& to, const float* dt, int stride, int rows, float rate, float bias) {
  const int lane = lane_id();
  float t[2];
  Sum g[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int row = 2 * lane + i;
    t[i] = row < rows ? act::softplus::of(dt[int64_t(row) * stride] + bias) : 0.0f;
    g[i] = {rate * t[i], 0.0f};
  }
  g[1] = g[0] + g[1];
  Sum before = g[1];  // of this lane and those before
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const Sum o = {__shfl_up_sync(kAllLanes, before.high, d), __shfl_up_sync(kAllLanes, before.low, d)};
    if (lane >= d) before = o + before;
  }
  before = {__shfl_up_sync(kAllLanes, before.high, 1), __shfl_up_sync(kAllLanes, before.low, 1)};
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const Sum s = lane > 0 ? before + g[i] : g[i];
    to.high[2 * lane + i] = s.high, to.low[2 * lane + i] = s.low, to.t[2 * lane + i] = t[i];
  }
}

}  // namespace ssd
