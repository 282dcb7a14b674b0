// SPDX-License-Identifier: MIT OR Apache-2.0
// Linear for many rows: a block of 8 warps computes 16 rows × 16 pairs, a warp 8 rows × 4 pairs with K over its lanes, in the
// order of dot.cuh. Tiles of x and w wait in shared memory, 32*V of K at a time, in quads by lane, so that a warp's loads
// touch all banks:
//
//	element k of a row lies at [k % V / 4] [k / V % 32] [k % 4]
#pragma once

#include "dot.cuh"
#include "outputs.cuh"

constexpr int kManyRows = 16, kManyPairs = 16;

template <class T>
struct tiles {
  static constexpr int kQuads = kWide<T> / 4;
  vec<float, 4> x[kManyRows][kQuads][32];
  vec<T, 4> w[2 * kManyPairs][kQuads][32];
};
static_assert(sizeof(tiles<bf16>) == 32 << 10 && sizeof(tiles<float>) == 24 << 10, "two blocks of a multiprocessor keep their tiles");

// read_x puts 32*V elements of 16 rows from k on into the tile; what lies past K or rows is zero.
template <bool Aligned, class T>
__device__ __forceinline__ void read_x(tiles<T>& t, const float* __restrict__ x, int stride, int first, int rows, int k, int K) {
  constexpr int V = kWide<T>, kPerRow = 32 * V / 4;
#pragma unroll
  for (int i = threadIdx.x; i < kManyRows * kPerRow; i += 256) {
    const int r = i / kPerRow, at = i % kPerRow * 4, here = first + r < rows ? K - (k + at) : 0;
    const float* p = x + int64_t(first + r) * stride + k + at;
    vec<float, 4> v = {};
    if (Aligned ? here > 0 : true) v = Aligned ? load<4>(p) : load_some<4>(p, here);
    t.x[r][at % V / 4][at / V] = v;
  }
}

// read_w does the same for 32 rows of w, with one 16-byte load a thread.
template <bool Aligned, class T, class Out>
__device__ __forceinline__ void read_w(tiles<T>& t, const Out& out, int first, int k, int K) {
  constexpr int V = kWide<T>;
#pragma unroll 2
  for (int i = threadIdx.x; i < 2 * kManyPairs * 32; i += 256) {
    const int c = i / 32, lane = i % 32, here = K - (k + lane * V);
    vec<T, V> v = {};
    if (here > 0) v = load_weight<Aligned, V>(out.row(first + c / 2, c % 2, K), k + lane * V, K);
#pragma unroll
    for (int q = 0; q < V / 4; q++) {
      vec<T, 4> part;
#pragma unroll
      for (int j = 0; j < 4; j++) part.at[j] = v.at[4 * q + j];
      t.w[c][q][lane] = part;
    }
  }
}

template <bool Aligned, class T, class Out>
__device__ __forceinline__ void many_tiles(tiles<T>& t, const float* __restrict__ x, int stride, const Out& out, int rows, int K) {
  const int row0 = blockIdx.y * kManyRows, pair0 = blockIdx.x * kManyPairs;
  const int r0 = warp_id() / 4 * 8, c0 = warp_id() % 4 * 8;  // the warp's part of the tile
  float s[64] = {};                                          // [8 rows][4 pairs][2]
  for (int k = 0; k < K; k += 32 * kWide<T>) {
    read_x<Aligned>(t, x, stride, row0, rows, k, K);
    read_w<Aligned>(t, out, pair0, k, K);
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
  const int r = row0 + r0 + lane_id() / 4, p = pair0 + c0 / 2 + lane_id() % 4;
  if (r < rows && p < out.pairs()) out.put(r, p, s[0], s[1]);
}

// many computes all rows of x [rows, K], which are stride apart. Grid: pairs/16, rows/16; 256 threads.
template <class T, class Out>
__device__ __forceinline__ void many(const float* __restrict__ x, int stride, const Out& out, int rows, int K) {
  __shared__ tiles<T> t;
  if (int(blockIdx.y) * kManyRows >= rows) return;
  if (aligned_rows<T>(K))
    many_tiles<true>(t, x, stride, out, rows, K);
  else
    many_tiles<false>(t, x, stride, out, rows, K);
}
