// SPDX-License-Identifier: MIT OR Apache-2.0
// Attention of 1 to 8 rows: norm and rotation of one head of q or k by a warp (see decode.cu).
#pragma once

// load_dims brings what a lane has of a row, N values.
template <int N>
__device__ __forceinline__ void load_dims(float (&x)[N], const float* p) {
  if constexpr (N == 2) {
    x[0] = ptx::load_l2(p), x[1] = ptx::load_l2(p + 1);
  } else {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const float4 v = ptx::load_l2(reinterpret_cast<const float4*>(p + i));
      x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
    }
  }
}

// Angles are what a lane turns its dims with, from HD/32*lane: x cos + (the other of the pair) sin.
template <int HD>
struct Angles {
  float cos[HD / 32], sin[HD / 32];
};
template <int HD, bool Interleaved>
__device__ __forceinline__ Angles<HD> angles_of(const Args& a, int lane, int row) {
  constexpr int N = HD / 32;
  Angles<HD> v;
#pragma unroll
  for (int i = 0; i < N; i++) v.cos[i] = 1, v.sin[i] = 0;
  const int half = a.rot / 2, d = N * lane;
  if (d >= a.rot) return v;
  const float* p = a.angles + int64_t(row) * a.rot;
  if constexpr (Interleaved) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      v.cos[i] = v.cos[i + 1] = ptx::load_l2(p + (d + i) / 2), v.sin[i + 1] = ptx::load_l2(p + half + (d + i) / 2);
      v.sin[i] = -v.sin[i + 1];
    }
  } else {
    const bool first = d < half;
    load_dims(v.cos, p + (first ? d : d - half)), load_dims(v.sin, p + half + (first ? d : d - half));
#pragma unroll
    for (int i = 0; i < N; i++) v.sin[i] = first ? -v.sin[i] : v.sin[i];
  }
  return v;
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  return v;
}

// turned norms and rotates one head by a warp, x the dims of a lane from HD/32*lane.
template <int HD, bool Interleaved>
__device__ __forceinline__ void turned(const Args& a, int lane, float (&x)[HD / 32], const float* norm, bool normed, const Angles<HD>& angle) {
  constexpr int N = HD / 32;
  if (normed) {
    float square = 0;
#pragma unroll
    for (int i = 0; i < N; i++) square += x[i] * x[i];
    const float f = rsqrtf(warp_sum(square) / HD + a.eps);
#pragma unroll
    for (int i = 0; i < N; i++) x[i] *= f * norm[N * lane + i];
  }
  const int lanes = a.rot / 2 / N, other = lane < lanes ? lane + lanes : lane - lanes;  // which has the other halves of pairs
  float y[N];
#pragma unroll
  for (int i = 0; i < N; i++) y[i] = Interleaved ? x[i ^ 1] : __shfl_sync(~0u, x[i], other & 31);
#pragma unroll
  for (int i = 0; i < N; i++) x[i] = x[i] * angle.cos[i] + y[i] * angle.sin[i];
}
