// SPDX-License-Identifier: MIT OR Apache-2.0
// Family attention: latent attention over entries of every tokens, which have ended, and then over the tokens of a window.

#include "sources.cuh"

// Grid: heads/4, rows; 256 threads; 4 padded queries of shared memory. VALUES is the most of v_dim. Without ids, a row sees all
// entries that end at it or before.
#define ENTRY_ATTENTION(T, VALUES, BLOCKS)                                                                               \
  extern "C" __global__ void __launch_bounds__(256, BLOCKS)                                                              \
      entry_attention_##VALUES##_##T(const int32_t* __restrict__ count,       /* [1] rows of this step */                \
                                     const float* __restrict__ q,             /* [rows, heads*head_dim] */               \
                                     const int32_t* __restrict__ ids,         /* [rows, top] rising, then -1; or null */ \
                                     const float* __restrict__ sinks,         /* [heads], or null */                     \
                                     const T* __restrict__ pool,              /* [slots, head_dim] */                    \
                                     const T* __restrict__ entries,           /* [pages, page_size/every, head_dim] */   \
                                     const int32_t* __restrict__ positions,   /* [rows] */                               \
                                     const int32_t* __restrict__ row_seq,     /* [rows] */                               \
                                     const int32_t* __restrict__ block_table, /* [seqs, pages] */                        \
                                     float* __restrict__ y,                   /* [rows, heads*v_dim] */                  \
                                     int32_t heads, int32_t head_dim, int32_t v_dim, float scale, int32_t window,        \
                                     int32_t every, int32_t top, int32_t page_size, int32_t pages) {                     \
    begin();                                                                                                             \
    const int row = blockIdx.y;                                                                                          \
    if (row >= *count) return;                                                                                           \
    const int seen = positions[row] + 1, near = min(seen, window);                                                       \
    if (ids) ids += int64_t(row) * top;                                                                                  \
    const int far = ids ? listed(ids, top) : seen / every;                                                               \
    const int32_t* table = block_table + int64_t(row_seq[row]) * pages;                                                  \
    const Entries<T> ended = {entries, table, page_size, every, head_dim};                                               \
    attend_row<VALUES / 128>(q, Compressed<T>(pool, head_dim, Pages{table, page_size}, ended, ids, far, seen - near),    \
                             row, 0, far + near - 1, sinks, y, Shape{heads, 1, head_dim, v_dim, scale, 0.0f});           \
  }

#define ALL_OF(T)                \
  ENTRY_ATTENTION(T, 128, 2)     \
  ENTRY_ATTENTION(T, 256, 2)     \
  ENTRY_ATTENTION(T, 384, 1)     \
  ENTRY_ATTENTION(T, 512, 1)

ALL_OF(f32)
ALL_OF(bf16)
ALL_OF(f16)
