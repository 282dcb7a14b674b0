// SPDX-License-Identifier: MIT OR Apache-2.0
// Paged pools of keys and values, of float32, bf16 or f16. A slot is page*page_size + offset; its token's heads lie together:
//
//	[slots] [kv_heads] [dim]
#pragma once

#include "copy/vector.cuh"
#include "step.cuh"

// token is where a head of the token in a slot begins.
template <class T>
__device__ __forceinline__ T* token(T* pool, int slot, int kv_heads, int head, int dim) {
  return pool + (int64_t(slot) * kv_heads + head) * dim;
}

// slot_of is where a sequence, whose pages table lists, keeps the token of a position.
__device__ __forceinline__ int slot_of(const int32_t* table, int position, int page_size) {
  return table[position / page_size] * page_size + position % page_size;
}
