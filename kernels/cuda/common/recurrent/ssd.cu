// SPDX-License-Identifier: MIT OR Apache-2.0
// Family recurrent: the state space recurrence of Mamba-2, t = softplus(dt + dt_bias);  S = exp(-exp(a_log) t) S + t x Bᵀ;
// y = S C + d x. State:
//
//	[slots] [heads] [head_dim] [state_dim]
//
// Rows of S (one per element of x) do not meet, so a warp has eight of them: four lanes a row, every fourth quad of state_dim
// each, in registers while the rows of a sequence pass in order. Grid: head_dim/32, heads, seqs; 128 threads.

#include "copy/vector.cuh"
#include "epilogue/act.cuh"
#include "reduce/warp.cuh"
#include "step.cuh"

struct Scan {
  int heads, groups, head_dim, state_dim;
};

// head runs one head of one sequence; Q is the most quads of state_dim that a lane has.
template <int Q>
__device__ __forceinline__ void head(const float* __restrict__ xbc, const float* __restrict__ dt, const float* __restrict__ a_log,
                                     const float* __restrict__ dt_bias, const float* __restrict__ d, float* __restrict__ state, float* __restrict__ y,
                                     int from, int to, bool fresh, const Scan& a) {
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
    if (mine && part == 0) y[int64_t(row) * inner + h * a.head_dim + col] = fmaf(direct, x, out);
  }
  if (!mine) return;
#pragma unroll
  for (int i = 0; i < Q; i++) {
    const int n = (i * 4 + part) * 4;
    if (n < a.state_dim) store(home + n, s[i]);
  }
}

#define SSD(DIM)                                                                                                       \
  extern "C" __global__ void __launch_bounds__(128)                                                                    \
      ssd_##DIM(const int32_t* __restrict__ seqs,       /* [1] of this step */                                         \
                const float* __restrict__ xbc,          /* [rows, heads*head_dim + 2*groups*state_dim] x, B and C */   \
                const float* __restrict__ dt,           /* [rows, heads] */                                            \
                const float* __restrict__ a_log,        /* [heads] */                                                  \
                const float* __restrict__ dt_bias,      /* [heads] */                                                  \
                const float* __restrict__ d,            /* [heads] */                                                  \
                float* __restrict__ state,              /* [slots, heads, head_dim, state_dim] */                      \
                const int32_t* __restrict__ cu_rows,    /* [seqs+1] */                                                 \
                const int32_t* __restrict__ state_slot, /* [seqs] */                                                   \
                const int32_t* __restrict__ fresh,      /* [seqs] */                                                   \
                float* __restrict__ y,                  /* [rows, heads*head_dim] */                                   \
                int32_t heads, int32_t groups, int32_t head_dim, int32_t state_dim) {                                  \
    begin();                                                                                                           \
    const int seq = blockIdx.z;                                                                                        \
    if (seq >= *seqs) return;                                                                                          \
    head<DIM / 16>(xbc, dt, a_log, dt_bias, d, state + int64_t(state_slot[seq]) * heads * head_dim * state_dim, y,     \
                   cu_rows[seq], cu_rows[seq + 1], fresh[seq], Scan{heads, groups, head_dim, state_dim});              \
  }

// DIM is the most of state_dim.
SSD(64)
SSD(128)
SSD(192)
SSD(256)
