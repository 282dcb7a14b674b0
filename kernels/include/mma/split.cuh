// SPDX-License-Identifier: MIT OR Apache-2.0
// Products of some rows, x [rows, K] float32 times w [N, K] bf16 transposed, on Hopper's tensor cores, where what takes time is the way
// to the first product and back: one launch, x is rounded to bf16 on its way to shared memory, all of a block's K is under way at once,
// and K is split over the blocks of a cluster, so that small matrices keep many multiprocessors at it.
//
// A cluster of Blocks takes Groups × 64 rows of w by Cols rows of x, each of its blocks a part of K, at most kDeep:
//
//	thread 0           copies w before the launches before this one are complete, or all threads fill it in
//	all 256 threads    load x, round it and store it
//	warpgroups         64 rows of w × Cols rows of x each, the first Groups: wgmma m64nColsk16
//	                   push their sums to the blocks that add them up, whose barriers count the bytes
//
//	w     [kDeep/64][Groups·64, 64]      x  [kDeep/64][Cols, 64]      rows of 128 bytes, swizzled; zeros past K, N
//	part  [Blocks][Cols][kWidth + 4] float32      what each block of the cluster has of kWidth rows of w, which this one adds up
//
// Order of a sum: a block's K by 16, ascending, each 16 as the tensor core adds them; blocks ascending. It depends on K and Blocks.
#pragma once

#include "../ptx/cluster.cuh"
#include "../ptx/tensor_copy.cuh"
#include "../ptx/wgmma.cuh"

namespace split {

constexpr int kDepth = 64, kSteps = 4, kDeep = kSteps * kDepth, kThreads = 256;

template <int Cols, int Groups, int Blocks>
struct Shared {
  static constexpr int kWidth = Groups * 64 / Blocks;
  uint16_t w[kSteps][Groups * 64 * kDepth], x[kSteps][Cols * kDepth];
  float part[Blocks][Cols][kWidth + 4];
  uint64_t full, summed;
};
template <int Cols, int Groups, int Blocks>
constexpr int kSharedBytes = sizeof(Shared<Cols, Groups, Blocks>) + 1024;  // w starts at a multiple of 1024

// Rounding brings [Cols, kDeep] of x to shared memory.
template <int Cols>
struct Rounding {
  static constexpr int kPasses = Cols / 4;  // a pass is four rows, 64 threads each, four values a thread
  const float* x;                           // this thread's of the first row
  uint16_t* to;
  int rows, K, k;  // rows that the thread has, and its place in K

  __device__ __forceinline__ Rounding(const float* x, uint16_t* to, int row, int rows, int K, int from) : rows(rows), K(K) {
    const int quad = threadIdx.x % 64, line = threadIdx.x / 64;
    k = from + 4 * quad;
    this->x = x + int64_t(row + line) * K + k;
    this->to = to + quad / 16 * Cols * kDepth + line * kDepth + quad % 2 * 4;
  }
  // run has all loads under way at once. Values from end on are 0.
  __device__ __forceinline__ void run(int end) const {
    const int line = threadIdx.x / 64, chunk = threadIdx.x % 16 / 2, here = k < end ? rows - line : 0;
    float4 v[kPasses];
#pragma unroll
    for (int p = 0; p < kPasses; p++) {
      v[p] = make_float4(0, 0, 0, 0);
      if (4 * p < here) v[p] = ptx::load_l2(reinterpret_cast<const float4*>(x + 4 * int64_t(p) * K));
    }
#pragma unroll
    for (int p = 0; p < kPasses; p++)
      *reinterpret_cast<uint2*>(to + 4 * p * kDepth + (chunk ^ (4 * p + line) % 8) * 8) = {ptx::pack_bf16(v[p].x, v[p].y), ptx::pack_bf16(v[p].z, v[p].w)};
  }
};

// multiply runs the tile of this cluster. Work has
//
//	kFilled                  whether threads fill in w, by fill(w, tile, k), from k on, a multiple of 128
//	copy(dst, tile, k, full) else: copies Groups × 64 rows of 64 of w, from k on
//	at(tile, quad)           what becomes of the sums 4·quad … 4·quad + 3 of the tile's rows of w: put(v, row) takes them. It is called early.
//
// Grid [tiles × Blocks, rows / Cols], 256 threads, kSharedBytes.
template <int Cols, int Groups, int Blocks, class Work>
__device__ __forceinline__ void multiply(const float* x, const Work& work, const int32_t* count, int K) {
  extern __shared__ unsigned char raw[];
  auto& s = *reinterpret_cast<Shared<Cols, Groups, Blocks>*>(raw + (-ptx::shared_address(raw) & 1023));
  constexpr int Width = s.kWidth;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int rank = blockIdx.x % Blocks, tile = blockIdx.x / Blocks, row = blockIdx.y * Cols;
  constexpr int kGrain = Work::kFilled ? 2 : 1;  // steps that stay together
  const int all = (K + kGrain * kDepth - 1) / (kGrain * kDepth), first = all * rank / Blocks * kGrain, steps = all * (rank + 1) / Blocks * kGrain - first;
  if (thread == 0) {
    ptx::mbarrier_init(&s.full, 1);
    ptx::mbarrier_init(&s.summed, 1);
    ptx::mbarrier_publish();
    if (Blocks > 1) ptx::mbarrier_expect(&s.summed, Blocks * Cols * Width * 4);
    if constexpr (!Work::kFilled) {
      ptx::mbarrier_expect(&s.full, steps * sizeof s.w[0]);
      for (int i = 0; i < steps; i++) work.copy(s.w[i], tile, (first + i) * kDepth, &s.full);
    }
  }
  ptx::start_successor();
  if constexpr (Work::kFilled) work.fill(s.w, tile, first * kDepth);
  constexpr int kQuads = Width / 4;  // of a row, each a thread's
  const auto out = work.at(tile, rank * kQuads + thread % kQuads);
  const int rows = min(ptx::load_early(count) - row, Cols);
  ptx::cluster_come<Blocks>();  // blocks push to others whose barriers are there
  ptx::wait_for_predecessor();

  Rounding<Cols>(x, s.x[0], row, rows, K, first * kDepth).run(min(K, (first + steps) * kDepth));
  float sums[Cols / 2];
#pragma unroll
  for (int i = 0; i < Cols / 2; i++) sums[i] = 0;
  ptx::fence_shared_for_async();
  __syncthreads();  // x is there, and the barriers
  if (warp / 4 < Groups) {
    if (!Work::kFilled) ptx::mbarrier_wait(&s.full, 0);
    ptx::wgmma_begin();
    for (int i = 0; i < steps; i++) {
      const uint64_t a = ptx::wgmma_operand(ptx::shared_address(s.w[i]) + warp / 4 * 64 * kDepth * 2);
      const uint64_t b = ptx::wgmma_operand(ptx::shared_address(s.x[i]));
#pragma unroll
      for (int j = 0; j < kDepth / 16; j++) ptx::wgmma_bf16(sums, a + j * ptx::kWgmmaStep, b + j * ptx::kWgmmaStep, true);
    }
    ptx::wgmma_commit();
    ptx::wgmma_done(sums);
  }
  ptx::cluster_wait<Blocks>();
  if (warp / 4 < Groups) {
    const int n = warp * 16 + lane / 4;  // row of w in the tile, and eight behind it
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const ptx::cluster_array<Blocks> to(&s.part[rank][lane % 4 * 2][(n + 8 * h) % Width], &s.summed, (n + 8 * h) / Width);
#pragma unroll
      for (int j = 0; j < Cols / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) to.push((8 * j + e) * (Width + 4), sums[4 * j + 2 * h + e]);
    }
  }
  ptx::cluster_pushed<Blocks>(&s.summed);
  for (int r = thread / kQuads; r < rows; r += kThreads / kQuads) {
    float4 v = {0, 0, 0, 0};
#pragma unroll
    for (int b = 0; b < Blocks; b++) {
      const float4 u = *reinterpret_cast<const float4*>(&s.part[b][r][4 * (thread % kQuads)]);
      v = {v.x + u.x, v.y + u.y, v.z + u.z, v.w + u.w};
    }
    out.put(v, row + r);
  }
}

}  // namespace split
