// SPDX-License-Identifier: MIT OR Apache-2.0
// Family attention: writes keys and values of a step's rows into their pages.

#include "pool.cuh"

// append converts this thread's quad of a row of n elements.
template <class T>
__device__ __forceinline__ void append(const float* __restrict__ x, T* __restrict__ pool, int at, int n) {
  if (n % 4 == 0) {
    if (at >= n) return;
    const vec<float, 4> v = load<4>(x + at);
    vec<T, 4> out;
#pragma unroll
    for (int j = 0; j < 4; j++) out.at[j] = from_f32<T>(v.at[j]);
    store(pool + at, out);
  } else {
    for (int i = at; i < at + 4 && i < n; i++) pool[i] = from_f32<T>(x[i]);
  }
}

// Grid: kv_heads*max(head_dim, v_dim)/1024, rows.
#define KV_APPEND(T)                                                                                           \
  extern "C" __global__ void kv_append_##T(const int32_t* __restrict__ count, /* [1] rows of this step */      \
                                           const float* __restrict__ k,       /* [rows, kv_heads*head_dim] */  \
                                           const float* __restrict__ v,       /* [rows, kv_heads*v_dim] */     \
                                           const int32_t* __restrict__ slots, /* [rows] */                     \
                                           T* __restrict__ k_pool,            /* [slots, kv_heads, head_dim] */ \
                                           T* __restrict__ v_pool,            /* [slots, kv_heads, v_dim] */   \
                                           int32_t kv_heads, int32_t head_dim, int32_t v_dim) {                \
    begin();                                                                                                   \
    const int row = blockIdx.y, at = (blockIdx.x * blockDim.x + threadIdx.x) * 4;                              \
    if (row >= *count) return;                                                                                 \
    const int nk = kv_heads * head_dim, nv = kv_heads * v_dim, slot = slots[row];                              \
    append(k + int64_t(row) * nk, token(k_pool, slot, kv_heads, 0, head_dim), at, nk);                         \
    append(v + int64_t(row) * nv, token(v_pool, slot, kv_heads, 0, v_dim), at, nv);                            \
  }

KV_APPEND(f32)
KV_APPEND(bf16)
KV_APPEND(f16)

// One vector per token, for latent attention. Grid: n/1024, rows.
#define APPEND(T)                                                                               \
  extern "C" __global__ void append_##T(const int32_t* __restrict__ count, /* [1] rows */       \
                                        const float* __restrict__ k,       /* [rows, n] */      \
                                        const int32_t* __restrict__ slots, /* [rows] */         \
                                        T* __restrict__ pool,              /* [slots, n] */     \
                                        int32_t n) {                                            \
    begin();                                                                                    \
    const int row = blockIdx.y, at = (blockIdx.x * blockDim.x + threadIdx.x) * 4;               \
    if (row >= *count) return;                                                                  \
    append(k + int64_t(row) * n, token(pool, slots[row], 1, 0, n), at, n);                      \
  }

APPEND(f32)
APPEND(bf16)
APPEND(f16)

// Entries: rows that end a window of every tokens are written. Grid: n/1024, rows.
#define APPEND_ENTRY(T)                                                                                    \
  extern "C" __global__ void append_entry_##T(const int32_t* __restrict__ count,     /* [1] rows */        \
                                              const float* __restrict__ k,           /* [rows, n] */       \
                                              const int32_t* __restrict__ slots,     /* [rows] */          \
                                              const int32_t* __restrict__ positions, /* [rows] */          \
                                              T* __restrict__ pool,                  /* [entries, n] */    \
                                              int32_t n, int32_t every, int32_t page_size) {               \
    begin();                                                                                               \
    const int row = blockIdx.y, at = (blockIdx.x * blockDim.x + threadIdx.x) * 4;                          \
    if (row >= *count || (positions[row] + 1) % every != 0) return;                                        \
    const int entry = entry_of(slots[row] / page_size, slots[row] % page_size, page_size, every);          \
    append(k + int64_t(row) * n, token(pool, entry, 1, 0, n), at, n);                                      \
  }

APPEND_ENTRY(f32)
APPEND_ENTRY(bf16)
APPEND_ENTRY(f16)
