// SPDX-License-Identifier: MIT OR Apache-2.0
// Family recurrent: the gated delta rule, S = exp(g) S;  S += k (beta (v - Sᵀk))ᵀ;  y = Sᵀq, with one decay for all of S
// (channels = 1) or one for each row of it (channels = k_dim). State, keys together:
//
//	[slots] [v_heads] [v_dim] [k_dim]
//
// Columns of S (one per element of v) do not meet, so a warp has eight of them: four lanes a column, every fourth quad of
// k_dim each, in registers while the rows of a sequence pass in order. Grid: v_dim/32, v_heads, seqs; 128 threads.
//
//	k          0-3  4-7  8-11  12-15  16-19 …
//	lane of 4   0    1    2      3      0   …

#include "copy/vector.cuh"
#include "reduce/warp.cuh"
#include "step.cuh"

struct Rule {
  int k_heads, v_heads, k_dim, v_dim, channels;
};

// head runs one value head of one sequence; Q is the most quads of k_dim that a lane has.
template <int Q>
__device__ __forceinline__ void head(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
                                     const float* __restrict__ g, const float* __restrict__ beta, float* __restrict__ state, float* __restrict__ y,
                                     int from, int to, bool fresh, const Rule& a) {
  const int h = blockIdx.y, kh = h / (a.v_heads / a.k_heads), part = lane_id() % 4;
  const int column = blockIdx.x * 32 + warp_id() * 8 + lane_id() / 4, col = min(column, a.v_dim - 1);
  const bool mine = column < a.v_dim;
  float* home = state + (int64_t(h) * a.v_dim + col) * a.k_dim;
  vec<float, 4> s[Q];
#pragma unroll
  for (int i = 0; i < Q; i++) {
    const int d = (i * 4 + part) * 4;
    s[i] = {};
    if (!fresh && d < a.k_dim) s[i] = load<4>(home + d);
  }
  for (int row = from; row < to; row++) {
    const int64_t at = (int64_t(row) * a.k_heads + kh) * a.k_dim, head = int64_t(row) * a.v_heads + h;
    const float* gates = g + head * a.channels;
    const float decay = a.channels == 1 ? expf(gates[0]) : 0.0f;
    vec<float, 4> key[Q];
    float have = 0, out = 0;
#pragma unroll
    for (int i = 0; i < Q; i++) {
      const int d = (i * 4 + part) * 4;
      key[i] = {};
      vec<float, 4> keep = {{decay, decay, decay, decay}};
      if (d < a.k_dim) {
        key[i] = load<4>(k + at + d);
        if (a.channels > 1) {
          keep = load<4>(gates + d);
#pragma unroll
          for (int j = 0; j < 4; j++) keep.at[j] = expf(keep.at[j]);
        }
      }
#pragma unroll
      for (int j = 0; j < 4; j++) {
        s[i].at[j] *= keep.at[j];
        have = fmaf(s[i].at[j], key[i].at[j], have);
      }
    }
    const float delta = beta[head] * (v[head * a.v_dim + col] - warp_sum<4>(have));
#pragma unroll
    for (int i = 0; i < Q; i++) {
      const int d = (i * 4 + part) * 4;
      vec<float, 4> query = {};
      if (d < a.k_dim) query = load<4>(q + at + d);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        s[i].at[j] = fmaf(key[i].at[j], delta, s[i].at[j]);
        out = fmaf(s[i].at[j], query.at[j], out);
      }
    }
    out = warp_sum<4>(out);
    if (mine && part == 0) y[head * a.v_dim + col] = out;
  }
  if (!mine) return;
#pragma unroll
  for (int i = 0; i < Q; i++) {
    const int d = (i * 4 + part) * 4;
    if (d < a.k_dim) store(home + d, s[i]);
  }
}

#define DELTA_RULE(DIM)                                                                                                \
  extern "C" __global__ void __launch_bounds__(128, DIM <= 64 ? 4 : 2)                                                  \
      delta_rule_##DIM(const int32_t* __restrict__ seqs,       /* [1] of this step */                                  \
                       const float* __restrict__ q,            /* [rows, k_heads*k_dim] */                             \
                       const float* __restrict__ k,            /* [rows, k_heads*k_dim] */                             \
                       const float* __restrict__ v,            /* [rows, v_heads*v_dim] */                             \
                       const float* __restrict__ g,            /* [rows, v_heads*channels] */                          \
                       const float* __restrict__ beta,         /* [rows, v_heads] */                                   \
                       float* __restrict__ state,              /* [slots, v_heads, v_dim, k_dim] */                    \
                       const int32_t* __restrict__ cu_rows,    /* [seqs+1] */                                          \
                       const int32_t* __restrict__ state_slot, /* [seqs] */                                            \
                       const int32_t* __restrict__ fresh,      /* [seqs] */                                            \
                       float* __restrict__ y,                  /* [rows, v_heads*v_dim] */                             \
                       int32_t k_heads, int32_t v_heads, int32_t k_dim, int32_t v_dim, int32_t channels) {             \
    begin();                                                                                                           \
    const int seq = blockIdx.z;                                                                                        \
    if (seq >= *seqs) return;                                                                                          \
    head<DIM / 16>(q, k, v, g, beta, state + int64_t(state_slot[seq]) * v_heads * v_dim * k_dim, y, cu_rows[seq],      \
                   cu_rows[seq + 1], fresh[seq], Rule{k_heads, v_heads, k_dim, v_dim, channels});                      \
  }

// DIM is the most of k_dim.
DELTA_RULE(64)
DELTA_RULE(128)
DELTA_RULE(192)
DELTA_RULE(256)
