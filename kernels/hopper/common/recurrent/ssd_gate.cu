// SPDX-License-Identifier: MIT OR Apache-2.0
// Family ssd_gate: the scan of Mamba-2 by cuda/common/recurrent/ssd_rows.cuh, and the gate behind it: y = ssd(xbc, dt) * silu(z).
// Grid: head_dim/32, heads, seqs; 128 threads.

#include "cuda/common/recurrent/ssd_rows.cuh"

#define SSD_GATE(DIM)                                                                                                       \
  extern "C" __global__ void __launch_bounds__(128)                                                                         \
      ssd_gate_##DIM(const int32_t* __restrict__ seqs,       /* [1] of this step */                                         \
                     const float* __restrict__ xbc,          /* [rows, heads*head_dim + 2*groups*state_dim] x, B and C */   \
                     const float* __restrict__ dt,           /* [rows, heads] */                                            \
                     const float* __restrict__ a_log,        /* [heads] */                                                  \
                     const float* __restrict__ dt_bias,      /* [heads] */                                                  \
                     const float* __restrict__ d,            /* [heads] */                                                  \
                     const float* __restrict__ z,            /* [rows, heads*head_dim] */                                   \
                     float* __restrict__ state,              /* [slots, heads, head_dim, state_dim] */                      \
                     const int32_t* __restrict__ cu_rows,    /* [seqs+1] */                                                 \
                     const int32_t* __restrict__ state_slot, /* [seqs] */                                                   \
                     const int32_t* __restrict__ fresh,      /* [seqs] */                                                   \
                     float* __restrict__ y,                  /* [rows, heads*head_dim] */                                   \
                     int32_t heads, int32_t groups, int32_t head_dim, int32_t state_dim) {                                  \
    begin();                                                                                                                \
    const int seq = blockIdx.z;                                                                                             \
    if (seq >= *seqs) return;                                                                                               \
    head<DIM / 16, true>(xbc, dt, a_log, dt_bias, d, state + int64_t(state_slot[seq]) * heads * head_dim * state_dim, y,    \
                         cu_rows[seq], cu_rows[seq + 1], fresh[seq], Scan{heads, groups, head_dim, state_dim}, z);          \
  }

// DIM is the most of state_dim.
SSD_GATE(64)
SSD_GATE(128)
SSD_GATE(192)
SSD_GATE(256)
