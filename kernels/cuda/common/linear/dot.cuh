// SPDX-License-Identifier: MIT OR Apache-2.0
// Dot products of rows x [K] of float32 with rows w [K] of a stored type. All kernels of linear add in one order, so that a
// row's result does not depend on which of them computes it, nor on the rows beside it: V elements (16 bytes of w) belong to
// one lane, which adds its products one by one with rising k; lanes are added by a butterfly.
//
//	k      0 … V-1   V … 2V-1   …   31V … 32V-1   32V …
//	lane      0         1       …       31          0
#pragma once

#include "copy/vector.cuh"
#include "reduce/warp.cuh"

// fused adds x*w to s, rounding once.
template <int N, class T>
__device__ __forceinline__ void fused(float& s, const float (&x)[N], const vec<T, N>& w) {
#pragma unroll
  for (int i = 0; i < N; i++) s = fmaf(x[i], to_f32(w.at[i]), s);
}

// load_row reads N floats of a row from k on: as 16-byte vectors where Aligned, else one by one and zero from K on.
template <bool Aligned, int N>
__device__ __forceinline__ void load_row(float (&v)[N], const float* __restrict__ x, int k, int K) {
  if (Aligned) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const vec<float, 4> q = load<4>(x + k + i);
#pragma unroll
      for (int j = 0; j < 4; j++) v[i + j] = q.at[j];
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = k + i < K ? x[k + i] : 0.0f;
  }
}

template <bool Aligned, int N, class T>
__device__ __forceinline__ vec<T, N> load_weight(const T* __restrict__ w, int k, int K) {
  return Aligned ? load<N>(w + k) : load_some<N>(w + k, K - k);
}

// lane_dots adds this lane's part of R × W dot products to s. Rows of x are K apart; row r is rows[r].
template <bool Aligned, int R, int W, class T>
__device__ __forceinline__ void lane_dots(float (&s)[R][W], const float* const (&x)[R], const T* const (&w)[W], int K) {
  constexpr int V = kWide<T>;
#pragma unroll(R == 1 ? 4 : R == 2 ? 2 : 1)
  for (int k = lane_id() * V; k < K; k += 32 * V) {
    vec<T, V> b[W];
#pragma unroll
    for (int j = 0; j < W; j++) b[j] = load_weight<Aligned, V>(w[j], k, K);
#pragma unroll
    for (int r = 0; r < R; r++) {
      float a[V];
      load_row<Aligned>(a, x[r], k, K);
#pragma unroll
      for (int j = 0; j < W; j++) fused(s[r][j], a, b[j]);
    }
  }
}

// aligned says whether rows of K elements of x and w begin on 16 bytes.
template <class T>
__device__ __forceinline__ bool aligned_rows(int K) {
  return K % kWide<T> == 0;
}
