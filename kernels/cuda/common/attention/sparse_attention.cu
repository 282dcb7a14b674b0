// SPDX-License-Identifier: MIT OR Apache-2.0
// Family attention: latent attention over listed positions of a row's sequence.

#include "sources.cuh"

// Grid: heads/4, rows; 256 threads; 4 padded queries of shared memory. VALUES is the most of v_dim.
#define SPARSE_ATTENTION(T, VALUES, BLOCKS)                                                                              \
  extern "C" __global__ void __launch_bounds__(256, BLOCKS)                                                              \
      sparse_attention_##VALUES##_##T(const int32_t* __restrict__ count,       /* [1] rows of this step */               \
                                      const float* __restrict__ q,             /* [rows, heads*head_dim] */              \
                                      const int32_t* __restrict__ ids,         /* [rows, top] rising, then -1 */         \
                                      const float* __restrict__ sinks,         /* [heads], or null */                    \
                                      const T* __restrict__ pool,              /* [slots, head_dim] */                   \
                                      const int32_t* __restrict__ row_seq,     /* [rows] */                              \
                                      const int32_t* __restrict__ block_table, /* [seqs, pages] */                       \
                                      float* __restrict__ y,                   /* [rows, heads*v_dim] */                 \
                                      int32_t heads, int32_t head_dim, int32_t v_dim, float scale, int32_t top,          \
                                      int32_t page_size, int32_t pages) {                                                \
    begin();                                                                                                             \
    const int row = blockIdx.y;                                                                                          \
    if (row >= *count) return;                                                                                           \
    ids += int64_t(row) * top;                                                                                           \
    const Pages table = {block_table + int64_t(row_seq[row]) * pages, page_size};                                        \
    attend_row<VALUES / 128>(q, Listed<T>(pool, head_dim, table, ids), row, 0, listed(ids, top) - 1, sinks, y,           \
                             Shape{heads, 1, head_dim, v_dim, scale, 0.0f});                                             \
  }

#define ALL_OF(T)                 \
  SPARSE_ATTENTION(T, 128, 2)     \
  SPARSE_ATTENTION(T, 256, 2)     \
  SPARSE_ATTENTION(T, 384, 1)     \
  SPARSE_ATTENTION(T, 512, 1)

ALL_OF(f32)
ALL_OF(bf16)
ALL_OF(f16)
