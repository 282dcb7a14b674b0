// SPDX-License-Identifier: MIT OR Apache-2.0
// Loads and stores of several elements at once.
#pragma once

#include "convert.cuh"

// vec is N elements that lie together, aligned to their size; N is a power of two and N*sizeof(T) at most 16.
template <class T, int N>
struct alignas(N * sizeof(T)) vec {
  T at[N];
};

// Elements of T in 16 bytes, the widest load.
template <class T>
constexpr int kWide = 16 / sizeof(T);

template <int N, class T>
__device__ __forceinline__ vec<T, N> load(const T* p) {
  return *reinterpret_cast<const vec<T, N>*>(p);
}

template <class T, int N>
__device__ __forceinline__ void store(T* p, const vec<T, N>& v) {
  *reinterpret_cast<vec<T, N>*>(p) = v;
}

// load_some is load of the first n of N elements at p, which need no alignment; the rest is zero.
template <int N, class T>
__device__ __forceinline__ vec<T, N> load_some(const T* p, int n) {
  vec<T, N> v = {};
#pragma unroll
  for (int i = 0; i < N; i++)
    if (i < n) v.at[i] = p[i];
  return v;
}
