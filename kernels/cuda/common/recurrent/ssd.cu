// SPDX-License-Identifier: MIT OR Apache-2.0
// Family recurrent: the state space recurrence of Mamba-2, t = softplus(dt + dt_bias);  S = exp(-exp(a_log) t) S + t x Bᵀ;
// y = S C + d x. State:
//
//	[slots] [heads] [head_dim] [state_dim]
//
// Rows of S (one per element of x) do not meet, so a warp has eight of them: four lanes a row, every fourth quad of state_dim
// each, in registers while the rows of a sequence pass in order. Grid: head_dim/32, heads, seqs; 128 threads.

#include "ssd_rows.cuh"

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
