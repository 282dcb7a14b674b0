// SPDX-License-Identifier: MIT OR Apache-2.0
// Sums and maxima over warps and blocks, each in one fixed order.
#pragma once

constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ int lane_id() { return threadIdx.x % 32; }
__device__ __forceinline__ int warp_id() { return threadIdx.x / 32; }

// warp_sum adds over W lanes that lie together, by a butterfly from the widest distance down; all of them get the sum.
template <int W = 32, class T>
__device__ __forceinline__ T warp_sum(T v) {
#pragma unroll
  for (int d = W / 2; d > 0; d /= 2) v += __shfl_xor_sync(kAllLanes, v, d);
  return v;
}

template <class T>
__device__ __forceinline__ T warp_max(T v) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    const T o = __shfl_xor_sync(kAllLanes, v, d);
    v = o > v ? o : v;
  }
  return v;
}

// warp_sums is warp_sum of N values at once, N a power of two and at least 32: lane l gets the sums of values l*N/32 … in
// v[0] …, to the bit what warp_sum gives. Each lane passes on the half that it does not keep:
//
//	distance 16   values 0 … N/2-1 to lanes 0-15, the rest to lanes 16-31
//	distance 8    a quarter each, and so on
template <int N, int D = 16, int M>
__device__ __forceinline__ void warp_sums(float (&v)[M]) {
  const bool upper = lane_id() & D;
#pragma unroll
  for (int i = 0; i < N / 2; i++) {
    const float keep = upper ? v[i + N / 2] : v[i], pass = upper ? v[i] : v[i + N / 2];
    v[i] = keep + __shfl_xor_sync(kAllLanes, pass, D);
  }
  if constexpr (D > 1) warp_sums<N / 2, D / 2>(v);
}

// block_sum adds over a block of whole warps, at most 32: over lanes, then over warps in order. Every thread gets the sum.
template <class T>
__device__ __forceinline__ T block_sum(T v) {
  __shared__ T sums[32];
  v = warp_sum(v);
  if (lane_id() == 0) sums[warp_id()] = v;
  __syncthreads();
  T s = sums[0];
  for (int w = 1; w < int(blockDim.x) / 32; w++) s += sums[w];
  __syncthreads();  // sums may be used again
  return s;
}
