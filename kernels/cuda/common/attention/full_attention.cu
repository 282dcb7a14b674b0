// SPDX-License-Identifier: MIT OR Apache-2.0
// Family attention: each row sees all rows of its sequence in the step, whose keys and values are activations.

#include "sources.cuh"

// Grid: heads, rows; 256 threads; 4 padded queries of shared memory. VALUES is the most of head_dim.
#define FULL_ATTENTION(VALUES)                                                                              \
  extern "C" __global__ void __launch_bounds__(256, 2)                                                      \
      full_attention_##VALUES(const int32_t* __restrict__ count,   /* [1] rows of this step */              \
                              const float* __restrict__ q,         /* [rows, heads*head_dim] */             \
                              const float* __restrict__ k,         /* [rows, heads*head_dim] */             \
                              const float* __restrict__ v,         /* [rows, heads*head_dim] */             \
                              const int32_t* __restrict__ cu_rows, /* [seqs+1] */                           \
                              const int32_t* __restrict__ row_seq, /* [rows] */                             \
                              float* __restrict__ y,               /* [rows, heads*head_dim] */             \
                              int32_t heads, int32_t head_dim, float scale) {                               \
    begin();                                                                                                \
    const int row = blockIdx.y;                                                                             \
    if (row >= *count) return;                                                                              \
    const int first = cu_rows[row_seq[row]], keys = cu_rows[row_seq[row] + 1] - first;                      \
    attend_row<VALUES / 128>(q, Together<float>(k, v, head_dim, first), row, 0, keys - 1, nullptr, y,       \
                             Shape{heads, heads, head_dim, head_dim, scale, 0.0f});                         \
  }

FULL_ATTENTION(128)
FULL_ATTENTION(256)
