// SPDX-License-Identifier: MIT OR Apache-2.0
// Products of some rows, x [rows, K] float32 times w [N, K] transposed, on Hopper's tensor cores, where what takes time is the way to the
// first product and back: one launch, x is rounded to bf16 on its way to shared memory, all of a block's K is under way at once, and K is
// split over the blocks of a cluster, so that small matrices keep many multiprocessors at it.
//
// A cluster of Blocks takes Groups × 64 rows of w by Cols rows of x, each of its blocks a part of K, at most Steps × 64:
//
//	thread 0           copies w before the launches before this one are complete, or all threads fill it in
//	all 256 threads    load x, round it and store it
//	warpgroups         64 rows of w × Cols rows of x each, the first Groups: wgmma m64nColsk16
//	                   push their sums to the blocks that add them up, whose barriers count the bytes
//
//	w     [Steps][Groups·64, 64] bf16      x  [Steps][Cols, 64] bf16      rows of 128 bytes, swizzled; zeros past K, N
//	part  [Blocks][Cols][kWidth + 4] float32      what each block of the cluster has of kWidth rows of w, which this one adds up
//
// Code behind the wait for the predecessor is kept small: 4 KB more cost 0.5 µs.
//
// Order of a sum: a block's K by 16, ascending, each 16 as the tensor core adds them; blocks ascending. It depends on K and Blocks.
#pragma once

#include "../ptx/cluster.cuh"
#include "../ptx/shared.cuh"
#include "../ptx/tensor_copy.cuh"
#include "../ptx/wgmma.cuh"

namespace split {

constexpr int kDepth = 64, kThreads = 256;

template <int Cols, int Groups, int Blocks, int Steps>
struct Shared {
  static constexpr int kWidth = Groups * 64 / Blocks;
  uint16_t w[Steps][Groups * 64 * kDepth], x[Steps][Cols * kDepth];
  float part[Blocks][Cols][kWidth + 4];
  uint64_t full, summed;
};
template <int Cols, int Groups, int Blocks, int Steps>
constexpr int kSharedBytes = sizeof(Shared<Cols, Groups, Blocks, Steps>) + 1024;  // w starts at a multiple of 1024

// Rounding brings rows of x, [rows, K], values [from, end) of K, to shared memory. Rows beyond those that are there are copies of the last one.
template <int Cols, int Steps>
struct Rounding {
  static constexpr int kPasses = (Cols + 15) / 16;  // a pass is 16 rows, 16 threads each, four values a thread and step
  const float* from[kPasses];                       // this thread's of each pass
  ptx::shared_pointer to;
  int here;  // values from this thread's first on

  // The constructor may come before x is there.
  __device__ __forceinline__ Rounding(uint16_t (&to)[Steps][Cols * kDepth], const float* x, int row, int rows, int K, int from, int end) : here(end - from) {
    const int quad = threadIdx.x % 16, line = threadIdx.x / 16;
    here -= 4 * quad;
    this->to = ptx::pinned(to[0] + line * kDepth + (quad / 2 ^ line % 8) * 8 + quad % 2 * 4);
#pragma unroll
    for (int j = 0; j < kPasses; j++) this->from[j] = ptx::kept(x + int64_t(max(row + min(16 * j + line, rows - 1), 0)) * K + from + 4 * quad);
  }
  __device__ __forceinline__ void run() const {
    float4 v[Steps][kPasses];
#pragma unroll
    for (int i = 0; i < Steps; i++)
#pragma unroll
      for (int j = 0; j < kPasses; j++) {
        v[i][j] = make_float4(0, 0, 0, 0);
        if (i * kDepth < here) v[i][j] = ptx::load_l2(reinterpret_cast<const float4*>(from[j] + i * kDepth));
      }
#pragma unroll
    for (int i = 0; i < Steps; i++)
#pragma unroll
      for (int j = 0; j < kPasses; j++)
        if (Cols % 16 == 0 || j + 1 < kPasses || threadIdx.x < 128)
          ptx::store_shared(to + (i * Cols + 16 * j) * kDepth * 2, ptx::pack_bf16(v[i][j].x, v[i][j].y), ptx::pack_bf16(v[i][j].z, v[i][j].w));
  }
};

// multiply runs the tile of this cluster. Work has
//
//	kFilled                  whether threads fill in w, by fill(w, tile, k), from k on, a multiple of 128
//	copy(dst, tile, k, full) else: copies Groups × 64 rows of 64 of w, from k on
//	at(tile, quad)           what becomes of the sums 4·quad … 4·quad + 3 of the tile's rows of w: put(v, row) takes them. It is called early.
//
// Grid [tiles × Blocks, rows / Cols], 256 threads, kSharedBytes.
template <int Cols, int Groups, int Blocks, int Steps, class Work>
__device__ __forceinline__ void multiply(const float* x, const Work& work, const int32_t* count, int K) {
  extern __shared__ unsigned char raw[];
  auto& s = *reinterpret_cast<Shared<Cols, Groups, Blocks, Steps>*>(raw + (-ptx::shared_address(raw) & 1023));
  constexpr int Width = s.kWidth, kQuads = Width / 4;  // of a row, each a thread's
  constexpr int kGrain = Work::kFilled ? 2 : 1;        // steps that stay together
  // A warp's number comes through a shuffle: products in a branch that the compiler does not know to be a warp's are not kept under way.
  const int thread = threadIdx.x, lane = thread % 32, warp = __shfl_sync(~0u, thread / 32, 0);
  const int rank = blockIdx.x % Blocks, tile = blockIdx.x / Blocks, row = blockIdx.y * Cols;
  const int all = (K + kGrain * kDepth - 1) / (kGrain * kDepth), first = all * rank / Blocks * kGrain, steps = all * (rank + 1) / Blocks * kGrain - first;
  if (thread == 0) {
    ptx::mbarrier_init(&s.full, 1);
    ptx::mbarrier_init(&s.summed, 1);
    ptx::mbarrier_publish();
    if (Blocks > 1) ptx::mbarrier_expect(&s.summed, Blocks * Cols * Width * 4);
    if constexpr (!Work::kFilled) {
      ptx::mbarrier_expect(&s.full, steps * sizeof s.w[0]);
#pragma unroll 1
      for (int i = 0; i < steps; i++) work.copy(s.w[i], tile, (first + i) * kDepth, &s.full);
    }
  }
  if constexpr (Work::kFilled) work.fill(s.w, tile, first * kDepth);
  const auto out = work.at(tile, rank * kQuads + thread % kQuads);
  const int rows = min(ptx::load_early(count) - row, Cols);
  const Rounding<Cols, Steps> rounding(s.x, x, row, rows, K, first * kDepth, min(K, (first + steps) * kDepth));
  ptx::cluster_come<Blocks>();        // blocks push to others whose barriers are there
  ptx::wait_for_predecessor_first();  // successors that come before lie two on one multiprocessor and none on another

  rounding.run();
  ptx::fence_shared_for_async();
  ptx::cluster_wait<Blocks>();
  __syncthreads();  // x is there, and the barriers
  if (warp / 4 < Groups) {
    float sums[Cols / 2];
#pragma unroll
    for (float& v : sums) v = 0;
    if (!Work::kFilled) ptx::mbarrier_wait(&s.full, 0);
    uint64_t a = ptx::wgmma_operand(ptx::shared_address(s.w[0]) + warp / 4 * 64 * kDepth * 2), b = ptx::wgmma_operand(ptx::shared_address(s.x[0]));
    ptx::wgmma_begin();
#pragma unroll 1
    for (int i = 0; i < steps; i++) {
#pragma unroll
      for (int j = 0; j < kDepth / 16; j++) ptx::wgmma_bf16(sums, a + j * ptx::kWgmmaStep, b + j * ptx::kWgmmaStep, true);
      a += sizeof s.w[0] / 16, b += sizeof s.x[0] / 16;
    }
    ptx::wgmma_commit();
    ptx::wgmma_done(sums);
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
#pragma unroll 1
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
