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

// entry_of is the place of the entry, one vector for every tokens, whose last token is at an offset of a page. Pages have room
// for page_size/every entries, or for one where every is larger:
//
//	[pages] [max(1, page_size/every)] [dim]
__device__ __forceinline__ int entry_of(int page, int offset, int page_size, int every) {
  const int per = max(1, page_size / every);
  return page * per + offset * per / page_size;
}

// Entries are a sequence's, by number.
template <class T>
struct Entries {
  const T* pool;
  const int32_t* table;
  int page_size, every, dim;
  __device__ int place(int i) const {
    const int last = i * every + every - 1;
    return entry_of(table[last / page_size], last % page_size, page_size, every);
  }
  __device__ const T* operator()(int i) const { return token(pool, place(i), 1, 0, dim); }
};
