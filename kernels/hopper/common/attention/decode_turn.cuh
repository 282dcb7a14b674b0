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

// Angles are of a lane's dims of a row, from HD/32*lane: cos and sin; of those that do not turn whatever.
template <int HD>
struct Angles {
  float cos[HD / 32], sin[HD / 32];
};
template <int HD, bool Interleaved>
__device__ __forceinline__ void load_angles(const Args& a, unsigned lane, int row, Angles<HD>& v) {
  constexpr int N = HD / 32;
  const int half = a.rot / 2, d = N * lane, from = d >= a.rot ? 0 : Interleaved ? d / 2 : d < half ? d : d - half;
  const float* p = a.angles + row * a.rot + from;
  if constexpr (Interleaved) {
#pragma unroll
    for (int i = 0; i < N; i++) v.cos[i] = ptx::load_l2(p + i / 2), v.sin[i] = ptx::load_l2(p + half + i / 2);
  } else {
    load_dims(v.cos, p), load_dims(v.sin, p + half);
  }
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  return v;
}

// turned norms and rotates one head by a warp, x the dims of a lane from HD/32*lane.
template <int HD, bool Interleaved>
__device__ __forceinline__ void turned(const Args& a, unsigned lane, float (&x)[HD / 32], const float* norm, bool normed, const Angles<HD>& angle) {
  constexpr int N = HD / 32;
  if (normed) {
    float square = 0;
#pragma unroll
    for (int i = 0; i < N; i++) square += x[i] * x[i];
    const float f = rsqrtf(warp_sum(square) / HD + a.eps);
#pragma unroll
    for (int i = 0; i < N; i++) x[i] *= f * norm[N * lane + i];
  }
  const unsigned lanes = a.rot / 2 / unsigned(N), other = lane < lanes ? lane + lanes : lane - lanes;  // which has the other halves of pairs
  float y[N];
#pragma unroll
  for (int i = 0; i < N; i++) y[i] = Interleaved ? x[i ^ 1] : __shfl_sync(~0u, x[i], other & 31);
#pragma unroll
  for (int i = 0; i < N; i++) {
    const bool first = Interleaved ? i % 2 == 0 : lane < lanes;
    const float turn = x[i] * angle.cos[i] + (first ? -y[i] : y[i]) * angle.sin[i];
    if (lane < 2 * lanes) x[i] = turn;
  }
}
