// SPDX-License-Identifier: MIT OR Apache-2.0
// The state space recurrence of Mamba-2, row after row: ssd.cu, and where the gate behind it is in the same launch.
#pragma once

#include "copy/vector.cuh"
#include "epilogue/act.cuh"
#include "reduce/warp.cuh"
#include "step.cuh"

struct Scan {
  int heads, groups, head_dim, state_dim;
};

// head runs one head of one sequence; Q is the most quads of state_dim that a lane has. Gated, y is times silu(z).
template <int Q, bool Gated = false>
__device__ __forceinline__ void head(const float* __restrict__ xbc, const float* __restrict__ dt, const float* __restrict__ a_log,
                                     const float* __restrict__ dt_bias, const float* __restrict__ d, float* __restrict__ state, float* __restrict__ y,
                                     int from, int to, bool fresh, const Scan& a,
                                     const float* __restrict__ z = nullptr) {
  const int h = blockIdx.y, group = h / (a.heads / a.groups), part = lane_id() % 4;
  const int column = blockIdx.x * 32 + warp_id() * 8 + lane_id() / 4, col = min(column, a.head_dim - 1);
  const bool mine = column < a.head_dim;
  const int inner = a.heads * a.head_dim, width = inner + 2 * a.groups * a.state_dim;
  const float rate = -expf(a_log[h]), bias = dt_bias[h], direct = d[h];
  float* home = state + (int64_t(h) * a.head_dim + col) * a.state_dim;
  vec<float, 4> s[Q];
#pragma unroll
  for (int i = 0; i < Q; i++) {
    const int n = (i * 4 + part) * 4;
    s[i] = {};
    if (!fresh && n < a.state_dim) s[i] = load<4>(home + n);
  }
  for (int row = from; row < to; row++) {
    const float* all = xbc + int64_t(row) * width;
    const float* b = all + inner + group * a.state_dim;
    const float* c = b + a.groups * a.state_dim;
    const float x = all[h * a.head_dim + col], t = act::softplus::of(dt[int64_t(row) * a.heads + h] + bias);
    const float decay = expf(rate * t), in = t * x;
    float out = 0;
#pragma unroll
    for (int i = 0; i < Q; i++) {
      const int n = (i * 4 + part) * 4;
      vec<float, 4> bs = {}, cs = {};
      if (n < a.state_dim) bs = load<4>(b + n), cs = load<4>(c + n);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        s[i].at[j] = fmaf(bs.at[j], in, s[i].at[j] * decay);
        out = fmaf(s[i].at[j], cs.at[j], out);
      }
    }
    out = warp_sum<4>(out);
    const int64_t at = int64_t(row) * inner + h * a.head_dim + col;
    if (mine && part == 0) y[at] = Gated ? __fmul_rn(fmaf(direct, x, out), act::silu::of(z[at])) : fmaf(direct, x, out);
  }
  if (!mine) return;
#pragma unroll
  for (int i = 0; i < Q; i++) {
    const int n = (i * 4 + part) * 4;
    if (n < a.state_dim) store(home + n, s[i]);
  }
}
