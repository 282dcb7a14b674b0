// SPDX-License-Identifier: MIT OR Apache-2.0
// Products of many rows, x [rows, K] times w [N, K] transposed, both bf16, on Hopper's tensor cores. Needs sm_90a.
//
// A block of three warpgroups takes one tile after the other, 128 rows of x by Cols rows of w:
//
//	warpgroup 0       one thread copies 64 of K of both into a ring of stages, as far ahead as it is long
//	warpgroups 1, 2   64 rows × Cols each: wgmma m64nColsk16, sums in registers, then to memory, while the other still multiplies
//
//	stage   x [128, 64] | w first half [Cols/2, 64] | w second half [Cols/2, 64]     swizzled by tensor maps, zeros past K, N
//	full    both copies are there: 1 arrival and the bytes
//	empty   both warpgroups are through, in all blocks of the cluster
//
// Blocks of a cluster of two have neighbouring rows and the same columns: each copies one half of w, for both.
//
// Order of a sum: K by 16, ascending, each 16 as the tensor core adds them. It depends on nothing but K.
#pragma once

#include "../ptx/tensor_copy.cuh"
#include "../ptx/wgmma.cuh"
#include "ring.cuh"

namespace tiles {

constexpr int kRows = 128, kDepth = ring::kDepth, kThreads = 384;
constexpr int kGroup = 2048;  // rows whose tiles are taken before those of the next rows: their x stays in L2

template <int Cols, int Stages>
struct Shared {
  struct Stage {
    uint16_t x[kRows * kDepth], w[2][Cols / 2 * kDepth];
  } stage[Stages];
  uint64_t full[Stages], empty[Stages];
};
template <int Cols, int Stages>
constexpr int kSharedBytes = sizeof(Shared<Cols, Stages>) + 1024;  // the ring starts at a multiple of 1024

// Tile is what a block multiplies at a time: rows of x from row on, of which those from end on are not its own, by tile col of the
// columns.
struct Tile {
  int row, end, col;
};

// Dense gives the tiles of this block of its cluster: rows fastest within kGroup rows, then columns, then the next rows.
struct Dense {
  int rows, cols, units, group;  // tiles along the columns; of a cluster along the rows, and how many of these kGroup has
  int blocks, rank, at, step;

  __device__ __forceinline__ Dense(int rows, int cols)
      : rows(rows), cols(cols), blocks(ptx::cluster_size()), rank(ptx::cluster_rank()), at(blockIdx.x / blocks), step(gridDim.x / blocks) {
    units = (rows + kRows * blocks - 1) / (kRows * blocks);
    group = kGroup / kRows / blocks;
  }
  __device__ __forceinline__ bool next(Tile& t) {
    if (at >= units * cols) return false;
    const int first = at / (group * cols) * group, n = min(group, units - first), i = at - first * cols;
    t = {((first + i % n) * blocks + rank) * kRows, rows, i / n};
    at += step;
    return true;
  }
};

// begin makes the ring and returns when the launches before this one are complete.
template <int Cols, int Stages>
__device__ __forceinline__ Shared<Cols, Stages>& begin() {
  extern __shared__ unsigned char raw[];
  auto& s = *reinterpret_cast<Shared<Cols, Stages>*>(raw + (-ptx::shared_address(raw) & 1023));
  ring::open(s.full, s.empty, Stages);
  ptx::start_successor();
  ptx::wait_for_predecessor();
  return s;
}

// multiply runs all tiles that the walk gives this block. Work has
//
//	copy(dst, tile, k, half, full)       copies half of the w of a tile, from k on
//	copy_to(blocks, dst, …)              the same for blocks of a cluster
//	put(sums, tile, row)                 takes the sums that this thread has, as wgmma.cuh draws them; row is that of its first ones
//
// Grid: any multiple of the cluster, best one block a multiprocessor; 384 threads; kSharedBytes.
template <int Cols, int Stages, class Walk, class Work>
__device__ __forceinline__ void multiply(Shared<Cols, Stages>& s, const ptx::tensor_map& x, Walk walk, const Work& work, int K) {
  const int blocks = ptx::cluster_size(), rank = ptx::cluster_rank(), group = threadIdx.x / 128;
  const int steps = (K + kDepth - 1) / kDepth;
  ring::Place at;
  Tile t;
  if (group == 0) {
    ptx::keep_registers<40>();
    if (threadIdx.x == 0) {
      while (walk.next(t)) {
        for (int k = 0; k < steps; k++, at.next(Stages)) {
          auto& stage = s.stage[at.stage];
          uint64_t* full = &s.full[at.stage];
          ptx::mbarrier_wait(&s.empty[at.stage], at.phase ^ 1);
          ptx::mbarrier_expect(full, sizeof stage);
          ptx::tensor_copy(stage.x, &x, k * kDepth, t.row, full);
          if (blocks == 1) {
            work.copy(stage.w[0], t, k * kDepth, 0, full);
            work.copy(stage.w[1], t, k * kDepth, 1, full);
          } else {
            work.copy_to(3, stage.w[rank], t, k * kDepth, rank, full);
          }
        }
      }
    }
  } else {
    ptx::take_registers<232>();
    const int thread = threadIdx.x % 128, warp = thread / 32, mine = (group - 1) * 64;
    const bool tells = threadIdx.x % 32 == 0 && warp < blocks;  // this thread tells block warp that a stage is free
    const auto free = [&](int stage) {
      if (!tells) return;
      ptx::mbarrier_free_at(&s.empty[stage], warp);
    };
    while (walk.next(t)) {
      if (t.row + mine >= t.end) {  // nothing of it counts
        for (int k = 0; k < steps; k++, at.next(Stages)) {
          ptx::mbarrier_wait(&s.full[at.stage], at.phase);
          free(at.stage);
        }
        continue;
      }
      float sums[Cols / 2];
      int last = 0;
      for (int k = 0; k < steps; k++, at.next(Stages)) {
        ptx::mbarrier_wait(&s.full[at.stage], at.phase);
        const uint64_t a = ptx::wgmma_operand(ptx::shared_address(s.stage[at.stage].x) + mine * kDepth * 2);
        const uint64_t b = ptx::wgmma_operand(ptx::shared_address(s.stage[at.stage].w));
        ptx::wgmma_begin();
#pragma unroll
        for (int i = 0; i < kDepth / 16; i++) ptx::wgmma_bf16(sums, a + i * ptx::kWgmmaStep, b + i * ptx::kWgmmaStep, k + i > 0);
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
        if (k > 0) free(last);
        last = at.stage;
      }
      ptx::wgmma_done(sums);
      free(last);
      work.put(sums, t, t.row + mine + warp * 16 + thread % 32 / 4);
    }
  }
  __syncwarp();
  ptx::cluster_meet();  // a block that leaves takes its shared memory along
}

// Sums of a thread, to memory: value(j, i) of pair j, i as wgmma.cuh draws it. y is the first one's place in rows of N; cols and
// rows are what is left from there on. Neighbouring lanes exchange pairs, so that each has four values of a row.
//
//	lane 0: [0 1] of j | [0 1] of j+1            lane 0: [0 1 2 3] of j
//	lane 1: [2 3] of j | [2 3] of j+1     →      lane 1: [0 1 2 3] of j+1
template <int Pairs, class Store, class T, class Value>
__device__ __forceinline__ void put(const Value& value, T* y, int N, int cols, int rows) {
  if (N % 4 == 0) {
    const bool odd = threadIdx.x % 2;
#pragma unroll
    for (int j = 0; j < Pairs; j += 2)
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const float a = value(j, i), b = value(j, i + 1), c = value(j + 1, i), d = value(j + 1, i + 1);
        const float u = __shfl_xor_sync(~0u, odd ? a : c, 1), v = __shfl_xor_sync(~0u, odd ? b : d, 1);
        const int at = odd ? 8 * j + 6 : 8 * j;
        if (at < cols && 4 * i < rows) Store::four(y + int64_t(4 * i) * N + at, odd ? float4{u, v, c, d} : float4{a, b, u, v});
      }
    return;
  }
#pragma unroll
  for (int j = 0; j < Pairs; j++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (8 * j + i % 2 < cols && i / 2 * 8 < rows) Store::one(y + int64_t(i / 2 * 8) * N + 8 * j + i % 2, value(j, i));
}

struct Set {
  __device__ __forceinline__ static void four(float* y, float4 v) { *reinterpret_cast<float4*>(y) = v; }
  __device__ __forceinline__ static void one(float* y, float v) { *y = v; }
};
struct Add {
  __device__ __forceinline__ static void four(float* y, float4 v) { ptx::add_to(y, v); }
  __device__ __forceinline__ static void one(float* y, float v) { *y += v; }
};
struct SetBf16 {
  __device__ __forceinline__ static void four(uint16_t* y, float4 v) { *reinterpret_cast<uint2*>(y) = {ptx::pack_bf16(v.x, v.y), ptx::pack_bf16(v.z, v.w)}; }
  __device__ __forceinline__ static void one(uint16_t* y, float v) { *y = uint16_t(ptx::pack_bf16(v, 0)); }
};

}  // namespace tiles
