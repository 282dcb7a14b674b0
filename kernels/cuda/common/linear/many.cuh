// SPDX-License-Identifier: MIT OR Apache-2.0
// Linear for many rows: a block of 8 warps computes 16 rows × 16 pairs, a warp 8 rows × 4 pairs with K over its lanes, in the
// order of dot.cuh. Tiles of x and w wait in shared memory, 32*V of K at a time, in quads by lane, so that a warp's loads
// touch all banks:
//
//	element k of a row lies at [k % V / 4] [k / V % 32] [k % 4]
#pragma once

#include "dot.cuh"
#include "outputs.cuh"
#include "ptx/cp_async.cuh"

constexpr int kManyRows = 16, kManyPairs = 16;

template <class T>
struct tiles {
  static constexpr int kQuads = kWide<T> / 4;
  vec<float, 4> x[kManyRows][kQuads][32];
  vec<T, 4> w[2 * kManyPairs][kQuads][32];
};
static_assert(sizeof(tiles<bf16>) == 32 << 10 && sizeof(tiles<float>) == 24 << 10, "two blocks of a multiprocessor keep their tiles");

// Rows are what a tile's rows of x are: from first on, stride apart. row(i) is null past the last; id(i) is what outputs call it.
struct Rows {
  const float* x;
  int stride, first, rows;
  __device__ const float* row(int i) const { return first + i < rows ? x + int64_t(first + i) * stride : nullptr; }
  __device__ int id(int i) const { return first + i; }
};

// read_x puts 32*V elements of 16 rows from k on into the tile; what lies past K, and rows that are not there, are zero.
template <bool Aligned, class T, class In>
__device__ __forceinline__ void read_x(tiles<T>& t, const In& in, int k, int K) {
  constexpr int V = kWide<T>, kPerRow = 32 * V / 4;
#pragma unroll 1  // copies fly by themselves
  for (int i = threadIdx.x; i < kManyRows * kPerRow; i += 256) {
    const int r = i / kPerRow, at = i % kPerRow * 4, here = K - (k + at);
    const float* p = in.row(r);
    vec<float, 4>& to = t.x[r][at % V / 4][at / V];
    if (Aligned)
      ptx::cp_async<16>(&to, p + k + at, p && here > 0);
    else
      to = p ? load_some<4>(p + k + at, here) : vec<float, 4>{};
  }
}

// read_w does the same for 32 rows of w, 16 bytes a thread.
template <bool Aligned, class T, class Out>
__device__ __forceinline__ void read_w(tiles<T>& t, const Out& out, int first, int k, int K) {
  constexpr int V = kWide<T>, kPart = 4 * sizeof(T);
#pragma unroll 1
  for (int i = threadIdx.x; i < 2 * kManyPairs * 32; i += 256) {
    const int c = i / 32, lane = i % 32, here = K - (k + lane * V);
    const T* p = out.row(first + c / 2, c % 2, K) + k + lane * V;
#pragma unroll
    for (int q = 0; q < V / 4; q++) {
      vec<T, 4>& to = t.w[c][q][lane];
      if (Aligned)
        ptx::cp_async<kPart>(&to, p + 4 * q, here > 0);
      else
        to = load_some<4>(p + 4 * q, here - 4 * q);
    }
  }
}

template <bool Aligned, class T, class In, class Out>
__device__ __forceinline__ void many_tiles(tiles<T>& t, const In& in, const Out& out, int K) {
  const int pair0 = blockIdx.x * kManyPairs;
  const int r0 = warp_id() / 4 * 8, c0 = warp_id() % 4 * 8;  // the warp's part of the tile
  float s[64] = {};                                          // [8 rows][4 pairs][2]
  for (int k = 0; k < K; k += 32 * kWide<T>) {
    read_x<Aligned>(t, in, k, K);
    read_w<Aligned>(t, out, pair0, k, K);
    ptx::cp_async_wait();
    __syncthreads();
#pragma unroll 1  // registers: the sums take 64, a quad of w 32
    for (int q = 0; q < t.kQuads; q++) {
      float w[8][4];
#pragma unroll
      for (int c = 0; c < 8; c++) {
        const vec<T, 4> v = t.w[c0 + c][q][lane_id()];
#pragma unroll
        for (int j = 0; j < 4; j++) w[c][j] = to_f32(v.at[j]);
      }
#pragma unroll
      for (int r = 0; r < 8; r++) {
        const vec<float, 4> a = t.x[r0 + r][q][lane_id()];
#pragma unroll
        for (int c = 0; c < 8; c++)
#pragma unroll
          for (int j = 0; j < 4; j++) s[r * 8 + c] = fmaf(a.at[j], w[c][j], s[r * 8 + c]);
      }
    }
    __syncthreads();
  }
  warp_sums<64>(s);  // lane l has row l/4, pair l%4
  const int r = r0 + lane_id() / 4, p = pair0 + c0 / 2 + lane_id() % 4;
  if (in.row(r) && p < out.pairs()) out.put(in.id(r), p, s[0], s[1]);
}

// tile computes 16 rows × 16 pairs, of pairs from 16 * blockIdx.x on; 256 threads.
template <class T, class In, class Out>
__device__ __forceinline__ void tile(const In& in, const Out& out, int K) {
  __shared__ tiles<T> t;
  if (aligned_rows<T>(K))
    many_tiles<true>(t, in, out, K);
  else
    many_tiles<false>(t, in, out, K);
}

// many computes all rows of x [rows, K], which are stride apart. Grid: pairs/16, rows/16.
template <class T, class Out>
__device__ __forceinline__ void many(const float* __restrict__ x, int stride, const Out& out, int rows, int K) {
  const int first = blockIdx.y * kManyRows;
  if (first < rows) tile<T>(Rows{x, stride, first, rows}, out, K);
}
