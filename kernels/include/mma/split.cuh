// SPDX-License-Identifier: MIT OR Apache-2.0
// Products of some rows, x [rows, K] float32 times w [N, K] bf16 transposed, on Hopper's tensor cores, where what takes time is the way
// to the first product and back: one launch, x is rounded to bf16 on its way to shared memory, and K is split over the blocks of a
// cluster, so that small matrices keep many multiprocessors at it.
//
// A cluster of Blocks takes Groups × 64 rows of w by Cols rows of x, each of its blocks a part of K:
//
//	thread 0           copies 64 of K of w into a ring, before the launches before this one are complete as far as the ring goes
//	all 256 threads    load x, Ahead steps of 64 in registers, round it and store it
//	warpgroups         64 rows of w × Cols rows of x each, the first Groups: wgmma m64nColsk16
//
//	w    [kWeights][Groups·64, 64]      x  [3][Cols, 64]      rows of 128 bytes, swizzled; zeros past K, N
//	sums [Cols][Groups·64 + 4] float32  where those were; a block adds all blocks' sums of some outputs
//
// Order of a sum: a block's K by 16, ascending, each 16 as the tensor core adds them; blocks ascending. It depends on K and Blocks.
#pragma once

#include "../ptx/cluster.cuh"
#include "../ptx/tensor_copy.cuh"
#include "../ptx/wgmma.cuh"

namespace split {

constexpr int kDepth = 64, kThreads = 256, kRounded = 3;

template <int Cols>
constexpr int kAhead = Cols <= 32 ? 4 : Cols <= 64 ? 3 : Cols <= 96 ? 2 : 1;
template <int Groups>
constexpr int kWeights = 8 / Groups;

template <int Cols, int Groups>
struct Shared {
  struct Ring {
    uint16_t w[kWeights<Groups>][Groups * 64 * kDepth], x[kRounded][Cols * kDepth];
  };
  union {
    Ring ring;
    float sums[Cols][Groups * 64 + 4];
  };
  uint64_t full[kWeights<Groups>];
};
template <int Cols, int Groups>
constexpr int kSharedBytes = sizeof(Shared<Cols, Groups>) + 1024;  // the ring starts at a multiple of 1024

// multiply runs the tile of this cluster. Work has
//
//	kQuads                              fours of outputs of a row of x and a tile
//	copy(dst, tile, k, full)            copies Groups × 64 rows of w, from k on
//	put(sum, tile, row, quad)           takes sums; sum(i) gives those of 4i … 4i + 3 of the tile's rows
//
// Grid [tiles × Blocks, rows / Cols], 256 threads, kSharedBytes.
template <int Cols, int Groups, int Blocks, class Work>
__device__ __forceinline__ void multiply(const float* x, const Work& work, const int32_t* count, int K) {
  extern __shared__ unsigned char raw[];
  constexpr int Ahead = kAhead<Cols>, Weights = kWeights<Groups>, Each = Cols / 16;  // quads of x that a thread has of a step
  auto& s = *reinterpret_cast<Shared<Cols, Groups>*>(raw + (-ptx::shared_address(raw) & 1023));
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int rank = blockIdx.x % Blocks, tile = blockIdx.x / Blocks, row = blockIdx.y * Cols;
  const int all = (K + kDepth - 1) / kDepth, first = all * rank / Blocks, steps = all * (rank + 1) / Blocks - first;
  if (thread == 0) {
    for (int i = 0; i < Weights; i++) ptx::mbarrier_init(&s.full[i], 1);
    ptx::mbarrier_publish();
    for (int i = 0; i < min(steps, Weights); i++) {
      ptx::mbarrier_expect(&s.full[i], sizeof s.ring.w[0]);
      work.copy(s.ring.w[i], tile, (first + i) * kDepth, &s.full[i]);
    }
  }
  ptx::start_successor();
  const int rows = min(ptx::load_early(count) - row, Cols), quad = thread % 16, line = thread / 16;
  const int place = line * kDepth + ((quad / 2 ^ line % 8) * 8 + quad % 2 * 4);
  __syncthreads();
  ptx::wait_for_predecessor();

  float4 ahead[Ahead][Each];
  const auto load = [&](float4(&v)[Each], int step) {
    const int k = (first + step) * kDepth + 4 * quad;
    const float* from = x + int64_t(row + line) * K + k;
#pragma unroll
    for (int i = 0; i < Each; i++) {
      v[i] = make_float4(0, 0, 0, 0);
      if (16 * i + line < rows && k < K) v[i] = ptx::load_l2(reinterpret_cast<const float4*>(from + int64_t(16 * i) * K));
    }
  };
  float sums[Cols / 2];
#pragma unroll
  for (int i = 0; i < Cols / 2; i++) sums[i] = 0;
#pragma unroll
  for (int i = 0; i < Ahead; i++)
    if (i < steps) load(ahead[i], i);
  for (int at = 0; at < steps; at += Ahead) {
#pragma unroll
    for (int i = 0; i < Ahead; i++) {
      const int k = at + i;
      if (k >= steps) break;
      uint16_t* const to = s.ring.x[k % kRounded];
#pragma unroll
      for (int j = 0; j < Each; j++)
        *reinterpret_cast<uint2*>(to + j * 16 * kDepth + place) = {ptx::pack_bf16(ahead[i][j].x, ahead[i][j].y), ptx::pack_bf16(ahead[i][j].z, ahead[i][j].w)};
      if (k + Ahead < steps) load(ahead[i], k + Ahead);
      ptx::fence_shared_for_async();
      __syncthreads();  // x of this step is there, the products of the step before the last are complete
      if (thread == 0 && k >= 2 && k - 2 + Weights < steps) {
        const int next = k - 2 + Weights, free = next % Weights;
        ptx::mbarrier_expect(&s.full[free], sizeof s.ring.w[0]);
        work.copy(s.ring.w[free], tile, (first + next) * kDepth, &s.full[free]);
      }
      if (warp / 4 < Groups) {
        ptx::mbarrier_wait(&s.full[k % Weights], k / Weights & 1);
        const uint64_t a = ptx::wgmma_operand(ptx::shared_address(s.ring.w[k % Weights]) + warp / 4 * 64 * kDepth * 2);
        const uint64_t b = ptx::wgmma_operand(ptx::shared_address(to));
        ptx::wgmma_begin();
#pragma unroll
        for (int j = 0; j < kDepth / 16; j++) ptx::wgmma_bf16(sums, a + j * ptx::kWgmmaStep, b + j * ptx::kWgmmaStep, true);
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
      }
    }
  }
  ptx::wgmma_done(sums);
  __syncthreads();  // the rings are read
  if (warp / 4 < Groups) {
    float* to = &s.sums[lane % 4 * 2][warp * 16 + lane / 4];
    constexpr int Pitch = Groups * 64 + 4;
#pragma unroll
    for (int j = 0; j < Cols / 8; j++) {
      to[8 * j * Pitch] = sums[4 * j], to[(8 * j + 1) * Pitch] = sums[4 * j + 1];
      to[8 * j * Pitch + 8] = sums[4 * j + 2], to[(8 * j + 1) * Pitch + 8] = sums[4 * j + 3];
    }
  }
  ptx::cluster_sync<Blocks>();
  // Blocks take outputs in turn, eight quads at a time.
  for (int i = (thread / 8 * Blocks + rank) * 8 + thread % 8; i < rows * Work::kQuads; i += Blocks * kThreads) {
    const int r = i / Work::kQuads;
    const auto sum = [&](int at) {
      const float4* p = reinterpret_cast<const float4*>(&s.sums[r][4 * at]);
      float4 u[Blocks], v = {0, 0, 0, 0};
#pragma unroll
      for (int b = 0; b < Blocks; b++) u[b] = ptx::cluster_load<Blocks>(p, b);
#pragma unroll
      for (int b = 0; b < Blocks; b++) v = {v.x + u[b].x, v.y + u[b].y, v.z + u[b].z, v.w + u[b].w};
      return v;
    };
    work.put(sum, tile, row + r, i % Work::kQuads);
  }
  if (Blocks > 1) ptx::cluster_sync<Blocks>();  // a block that leaves takes its sums along
}

}  // namespace split
