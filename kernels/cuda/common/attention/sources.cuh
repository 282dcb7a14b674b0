// SPDX-License-Identifier: MIT OR Apache-2.0
// Where the keys and values are that a row attends over. A source numbers them from 0:
//
//	place(i)             an int that stands for key i
//	key(p), value(p)     the elements of the key, and of its value, at a place
//	aligned              whether all of them may be read 16 bytes at a time
//	of_head(kv, shape)   fixes the KV head
#pragma once

#include "attend.cuh"

// Pools are keys and values by slot.
template <class T>
struct Pools {
  const T *k, *v;  // [slots, kv_heads, stride]
  int k_stride, v_stride;
  int kv_heads = 1, kv = 0;
  bool aligned = false;

  __device__ void of_head(int head, const Shape& a) {
    kv_heads = a.kv_heads, kv = head;
    aligned = a.head_dim % kWide<T> == 0 && k_stride % kWide<T> == 0 && a.v_dim % 4 == 0 && v_stride % 4 == 0;
  }
  __device__ const T* key(int slot) const { return token(k, slot, kv_heads, kv, k_stride); }
  __device__ const T* value(int slot) const { return token(v, slot, kv_heads, kv, v_stride); }
};

// Pages is what a sequence's positions lie in.
struct Pages {
  const int32_t* table;
  int size;
  __device__ int operator()(int position) const { return slot_of(table, position, size); }
};

// Paged are the positions of a sequence.
template <class T>
struct Paged : Pools<T> {
  Pages pages;
  __device__ Paged(const T* k, int k_stride, const T* v, int v_stride, Pages pages) : Pools<T>{k, v, k_stride, v_stride}, pages(pages) {}
  __device__ int place(int i) const { return pages(i); }
};

// Listed are the positions that ids has.
template <class T>
struct Listed : Pools<T> {
  Pages pages;
  const int32_t* ids;
  __device__ Listed(const T* pool, int stride, Pages pages, const int32_t* ids) : Pools<T>{pool, pool, stride, stride}, pages(pages), ids(ids) {}
  __device__ int place(int i) const { return pages(ids[i]); }
};

// Together are consecutive rows of a matrix.
template <class T>
struct Together : Pools<T> {
  int first;
  __device__ Together(const T* k, const T* v, int stride, int first) : Pools<T>{k, v, stride, stride}, first(first) {}
  __device__ int place(int i) const { return first + i; }
};

// Compressed are entries of a sequence, all from the first on or those that ids has, and then far of them on its positions from
// first on. Entries have negative places.
template <class T>
struct Compressed : Pools<T> {
  Pages pages;
  Entries<T> entries;
  const int32_t* ids;  // or null
  int far, first;
  __device__ Compressed(const T* pool, int stride, Pages pages, Entries<T> entries, const int32_t* ids, int far, int first)
      : Pools<T>{pool, pool, stride, stride}, pages(pages), entries(entries), ids(ids), far(far), first(first) {}
  __device__ int place(int i) const { return i < far ? ~entries.place(ids ? ids[i] : i) : pages(first + i - far); }
  __device__ const T* key(int p) const { return p < 0 ? token(entries.pool, ~p, 1, 0, this->k_stride) : Pools<T>::key(p); }
  __device__ const T* value(int p) const { return key(p); }
};

// listed counts the ids of a list of n that are not -1; those come last.
__device__ __forceinline__ int listed(const int32_t* ids, int n) {
  int lo = 0, hi = n;
  while (lo < hi) {
    const int mid = (lo + hi) / 2;
    if (ids[mid] >= 0)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}
