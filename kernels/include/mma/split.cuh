// SPDX-License-Identifier: MIT OR Apache-2.0
// Products of some rows, x [rows, K] float32 times w [N, K] bf16 transposed, on Hopper's tensor cores, where what takes time is the way
// to the first product and back: one launch, x is rounded to bf16 on its way to shared memory, kDeep of a block's K are under way at
// once, and K is split over the blocks of a cluster, so that small matrices keep many multiprocessors at it.
//
// A cluster of Blocks takes 64 rows of w by Cols rows of x, each of its blocks a part of K:
//
//	thread 0           copies w, the first 2·kDeep before the launches before this one are complete
//	all 256 threads    load x, round it and store it, then load the next kDeep
//	both warpgroups    half of kDeep each: wgmma m64nColsk16; then each has the sums of half of the rows of x
//
//	x     [kDeep/64][Cols, 64]               rows of 128 bytes, swizzled; zeros past K, N
//	w     [2][kDeep/64][64, 64]              the same; one of two where a block has only kDeep
//	part  [Blocks][kWidth][Cols + 4] float32   what each block of the cluster has of kWidth rows of w, which this one adds up
//
// Order of a sum: quarters of kDeep 0, 1 of all of a block's K by 16, ascending, each 16 as the tensor core adds them; quarters 2, 3; their
// sum; blocks ascending. It depends on K and Blocks.
#pragma once

#include "../ptx/cluster.cuh"
#include "../ptx/tensor_copy.cuh"
#include "../ptx/wgmma.cuh"

namespace split {

constexpr int kDepth = 64, kSteps = 4, kDeep = kSteps * kDepth, kTile = 64, kThreads = 256;

template <int Cols, int Blocks>
struct Shared {
  static constexpr int kWidth = kTile / Blocks;
  uint16_t x[kSteps][Cols * kDepth];
  float part[Blocks][kWidth][Cols + 4];
  uint64_t full[2];
  alignas(1024) uint16_t w[2][kSteps][kTile * kDepth];
};
template <int Cols, int Blocks>
constexpr int kSharedBytes = sizeof(Shared<Cols, Blocks>) + 1024;  // x starts at a multiple of 1024; half of w less where it is not used

// Blocks that fit a multiprocessor: its successor's, and those of clusters that find no place elsewhere.
template <int Cols>
constexpr int kResident = Cols <= 40 ? 3 : 2;

// Rounding brings [Cols, kDeep] of x to shared memory: four rows at a time, 64 threads each, four values a thread.
template <int Cols>
struct Rounding {
  static constexpr int kPasses = Cols / 4;
  const float* x;  // this thread's of the first row
  uint16_t* to;
  int rows, k;     // from the thread's first one on, and its place in K
  int64_t four;

  __device__ __forceinline__ Rounding(const float* x, uint16_t* to, int row, int rows, int K, int from) : four(4 * int64_t(K)) {
    const int quad = threadIdx.x % 64, line = threadIdx.x / 64;
    k = from + 4 * quad;
    this->rows = rows - line;
    this->x = x + int64_t(row + line) * K + k;
    this->to = to + quad / 16 * Cols * kDepth + line * kDepth + quad % 2 * 4;
  }
  // load takes passes from First on. Values from end on are 0.
  template <int First, int N>
  __device__ __forceinline__ void load(float4 (&v)[N], int end) const {
    const float* from = x + First * four;
#pragma unroll
    for (int i = 0; i < N; i++, from += four) {
      v[i] = make_float4(0, 0, 0, 0);
      if (4 * (First + i) < rows && k < end) v[i] = ptx::load_l2(reinterpret_cast<const float4*>(from));
    }
  }
  template <int First, int N>
  __device__ __forceinline__ void store(const float4 (&v)[N]) const {
    const int line = threadIdx.x / 64, chunk = threadIdx.x % 16 / 2;
#pragma unroll
    for (int i = 0; i < N; i++) {
      const int r = 4 * (First + i);
      *reinterpret_cast<uint2*>(to + r * kDepth + (chunk ^ (r + line) % 8) * 8) = {ptx::pack_bf16(v[i].x, v[i].y), ptx::pack_bf16(v[i].z, v[i].w)};
    }
  }
  __device__ __forceinline__ void advance() { x += kDeep, k += kDeep; }
};

// multiply runs the tile of this cluster. Work has
//
//	copy(dst, tile, k, full)            copies 64 rows of w, from k on
//	put(v, tile, row, quad)             takes the sums 4·quad … 4·quad + 3 of the tile's rows of w
//
// Grid [tiles × Blocks, rows / Cols], 256 threads, kSharedBytes.
template <int Cols, int Blocks, class Work>
__device__ __forceinline__ void multiply(const float* x, const Work& work, const int32_t* count, int K) {
  extern __shared__ unsigned char raw[];
  auto& s = *reinterpret_cast<Shared<Cols, Blocks>*>(raw + (-ptx::shared_address(raw) & 1023));
  constexpr int Width = s.kWidth, Half = Cols / 8;  // passes of half of the rows of x, and eights of rows
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, group = warp / 4;
  const int rank = blockIdx.x % Blocks, tile = blockIdx.x / Blocks, row = blockIdx.y * Cols;
  const int all = (K + kDepth - 1) / kDepth, first = all * rank / Blocks, end = all * (rank + 1) / Blocks, turns = (end - first + kSteps - 1) / kSteps;
  const auto copy = [&](int turn) {
    const int from = first + turn * kSteps, steps = min(end - from, kSteps);
    ptx::mbarrier_expect(&s.full[turn % 2], steps * sizeof s.w[0][0]);
    for (int i = 0; i < steps; i++) work.copy(s.w[turn % 2][i], tile, (from + i) * kDepth, &s.full[turn % 2]);
  };
  if (thread == 0) {
    for (int i = 0; i < 2; i++) ptx::mbarrier_init(&s.full[i], 1);
    ptx::mbarrier_publish();
    for (int turn = 0; turn < min(turns, 2); turn++) copy(turn);
  }
  ptx::start_successor();
  const int rows = min(ptx::load_early(count) - row, Cols), stop = min(K, end * kDepth);
  ptx::cluster_arrive<Blocks>();  // blocks write to others that have come up
  ptx::wait_for_predecessor();

  Rounding<Cols> rounding(x, s.x[0], row, rows, K, first * kDepth);
  {
    float4 v[2 * Half];
    rounding.template load<0>(v, stop);
    rounding.template store<0>(v);
  }
  float sums[Cols / 2];
#pragma unroll
  for (int i = 0; i < Cols / 2; i++) sums[i] = 0;
  for (int turn = 0; turn < turns; turn++) {
    ptx::fence_shared_for_async();
    __syncthreads();  // x is there, and the barriers
    float4 next[Half];
    const bool more = turn + 1 < turns;
    if (more) rounding.advance(), rounding.template load<0>(next, stop);
    ptx::mbarrier_wait(&s.full[turn % 2], turn / 2 & 1);
    const int steps = min(end - first - turn * kSteps, kSteps);
    ptx::wgmma_begin();
#pragma unroll
    for (int i = 0; i < kSteps / 2; i++) {
      const int at = group * (kSteps / 2) + i;
      if (at >= steps) break;
      const uint64_t a = ptx::wgmma_operand(ptx::shared_address(s.w[turn % 2][at])), b = ptx::wgmma_operand(ptx::shared_address(s.x[at]));
#pragma unroll
      for (int j = 0; j < kDepth / 16; j++) ptx::wgmma_bf16(sums, a + j * ptx::kWgmmaStep, b + j * ptx::kWgmmaStep, true);
    }
    ptx::wgmma_commit();
    ptx::wgmma_done(sums);
    __syncthreads();  // both are read
    if (!more) break;
    if (thread == 0 && turn + 2 < turns) copy(turn + 2);
    rounding.template store<0>(next);
    rounding.template load<Half>(next, stop);
    rounding.template store<Half>(next);
  }

  if (turns == 0) __syncthreads();

  // The groups pass each other the sums of the rows that the other keeps: eights of rows from 0 on, and from Keep on.
  constexpr int Eights = Cols / 8, Keep = (Eights + 1) / 2;
  float4* const passed = reinterpret_cast<float4*>(s.x) + thread % 128;
#pragma unroll
  for (int j = 0; j < Eights; j++)
    if ((j < Keep) == (group == 1)) passed[j * 128] = {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]};
  __syncthreads();
  ptx::cluster_wait<Blocks>();
  const int n = warp % 4 * 16 + lane / 4;  // row of w in the tile, and eight behind it
  const ptx::cluster_array<Blocks> low(&s.part[rank][n % Width][lane % 4 * 2], n / Width), high(&s.part[rank][(n + 8) % Width][lane % 4 * 2], (n + 8) / Width);
#pragma unroll
  for (int j = 0; j < Eights; j++)
    if ((j < Keep) == (group == 0)) {
      const float4 other = passed[j * 128];
      low.set(8 * j, sums[4 * j] + other.x, sums[4 * j + 1] + other.y);
      high.set(8 * j, sums[4 * j + 2] + other.z, sums[4 * j + 3] + other.w);
    }
  ptx::cluster_sync<Blocks>();
  for (int i = thread; i < rows * (Width / 4); i += kThreads) {
    const int r = i / (Width / 4), quad = i % (Width / 4);
    float4 v = {0, 0, 0, 0};
#pragma unroll
    for (int b = 0; b < Blocks; b++) {
      const float(*p)[Cols + 4] = &s.part[b][4 * quad];
      v = {v.x + p[0][r], v.y + p[1][r], v.z + p[2][r], v.w + p[3][r]};
    }
    work.put(v, tile, row + r, rank * (Width / 4) + quad);
  }
}

}  // namespace split
