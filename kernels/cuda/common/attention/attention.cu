// SPDX-License-Identifier: MIT OR Apache-2.0
// Family attention: causal grouped-query attention over pages, for rows of any sequences and positions. With one vector per
// token for keys and values (latent attention), both pools are one, and values are the first v_dim of v_stride elements.

#include "sources.cuh"

// Grid: kv_heads * group/4, rows; 256 threads; 4 padded queries of shared memory. VALUES is the most of v_dim.
#define ATTENTION(T, VALUES, BLOCKS)                                                                               \
  extern "C" __global__ void __launch_bounds__(256, BLOCKS)                                                        \
      attention_##VALUES##_##T(const int32_t* __restrict__ count,       /* [1] rows of this step */                \
                               const float* __restrict__ q,             /* [rows, heads*head_dim] */               \
                               const float* __restrict__ sinks,         /* [heads], or null */                     \
                               const T* k_pool,                         /* [slots, kv_heads, head_dim] */          \
                               const T* v_pool,                         /* [slots, kv_heads, v_stride] */          \
                               const int32_t* __restrict__ positions,   /* [rows] */                               \
                               const int32_t* __restrict__ row_seq,     /* [rows] */                               \
                               const int32_t* __restrict__ block_table, /* [seqs, pages] */                        \
                               float* __restrict__ y,                   /* [rows, heads*v_dim] */                  \
                               int32_t heads, int32_t kv_heads, int32_t head_dim, int32_t v_dim, int32_t v_stride, \
                               float scale, int32_t window, float softcap, int32_t page_size, int32_t pages) {     \
    begin();                                                                                                       \
    const int row = blockIdx.y;                                                                                    \
    if (row >= *count) return;                                                                                     \
    const int hi = positions[row], lo = window > 0 ? max(hi - window + 1, 0) : 0;                                  \
    const Pages table = {block_table + int64_t(row_seq[row]) * pages, page_size};                                  \
    attend_row<VALUES / 128>(q, Paged<T>(k_pool, head_dim, v_pool, v_stride, table), row, lo, hi, sinks, y,        \
                             Shape{heads, kv_heads, head_dim, v_dim, scale, softcap});                             \
  }

#define ALL_OF(T)        \
  ATTENTION(T, 128, 2)   \
  ATTENTION(T, 256, 2)   \
  ATTENTION(T, 384, 1)   \
  ATTENTION(T, 512, 1)

ALL_OF(f32)
ALL_OF(bf16)
ALL_OF(f16)
