// SPDX-License-Identifier: MIT OR Apache-2.0
// Products of some rows, x [rows, K] times w [N, K] transposed, both bf16, on Hopper's tensor cores: w is the tall operand and K is
// split over the blocks of a cluster, so that few rows of x keep all multiprocessors at reading w. Needs sm_90a.
//
// A cluster takes 128 rows of w by Cols rows of x. Each of its blocks takes a part of K:
//
//	warps 0-3, 4-7    64 rows of w × Cols rows of x each: wgmma m64nColsk16
//	warp 8            one thread copies 64 of K of both into a ring; of w before the launches before this one are complete
//
//	stage    w [128, 64] | x [Cols, 64]          swizzled by tensor maps, zeros past K, N
//	sums     [Cols][128 + 4] float32             where the ring was; all blocks read all others' of some rows of x
//
// Order of a sum: a block's K by 16, ascending, each 16 as the tensor core adds them; blocks ascending. It depends on K and the
// size of the cluster.
#pragma once

#include "../ptx/tensor_copy.cuh"
#include "../ptx/wgmma.cuh"

namespace narrow {

constexpr int kTile = 128, kDepth = 64, kThreads = 288;
constexpr int kPitch = kTile + 4;  // floats of a row of sums

template <int Cols, int Stages>
struct Shared {
  struct Stage {
    uint16_t w[kTile * kDepth], x[Cols * kDepth];
  };
  union {
    Stage stage[Stages];
    float sums[Cols][kPitch];
  };
  uint64_t full[Stages], empty[Stages];
};
// So many blocks fit a multiprocessor, two or three.
template <int Cols, int Blocks>
constexpr int kStages = Blocks == 3 ? (Cols == 16 ? 4 : 3) : Cols == 128 ? 3 : Cols == 64 ? 4 : Cols == 32 ? 5 : 6;
template <int Cols, int Blocks>
constexpr int kSharedBytes = sizeof(Shared<Cols, kStages<Cols, Blocks>>) + 1024;  // the ring starts at a multiple of 1024

// multiply runs the tile of this cluster. Work has
//
//	copy(dst, tile, k, full)            copies 128 rows of w, from k on
//	put(sum, tile, row)                 takes a row of sums, a warp at a time; sum(i) gives those of 4 i … 4 i + 3 of the tile's rows
//
// Grid [tiles × cluster, rows / Cols], 288 threads, kSharedBytes.
template <int Cols, int Blocks = 2, class Work>
__device__ __forceinline__ void multiply(const ptx::tensor_map& x, const Work& work, const int32_t* count, int K) {
  extern __shared__ unsigned char raw[];
  constexpr int Stages = kStages<Cols, Blocks>;
  auto& s = *reinterpret_cast<Shared<Cols, Stages>*>(raw + (-ptx::shared_address(raw) & 1023));
  const int blocks = ptx::cluster_size(), rank = ptx::cluster_rank(), tile = blockIdx.x / blocks, row = blockIdx.y * Cols, warp = threadIdx.x / 32;
  const int all = (K + kDepth - 1) / kDepth, first = all * rank / blocks, steps = all * (rank + 1) / blocks - first;
  if (threadIdx.x == 0) {
    for (int i = 0; i < Stages; i++) {
      ptx::mbarrier_init(&s.full[i], 1);
      ptx::mbarrier_init(&s.empty[i], 2);
    }
    ptx::mbarrier_publish();
  }
  __syncthreads();
  ptx::start_successor();
  if (warp == 8) {
    if (threadIdx.x == 256) {
      const int ahead = min(steps, Stages);
      for (int i = 0; i < ahead; i++) {
        ptx::mbarrier_expect(&s.full[i], sizeof s.stage[0]);
        work.copy(s.stage[i].w, tile, (first + i) * kDepth, &s.full[i]);
      }
      ptx::wait_for_predecessor();
      for (int i = 0; i < ahead; i++) ptx::tensor_copy(s.stage[i].x, &x, (first + i) * kDepth, row, &s.full[i]);
      for (int i = ahead; i < steps; i++) {
        const int at = i % Stages;
        ptx::mbarrier_wait(&s.empty[at], (i / Stages - 1) & 1);
        ptx::mbarrier_expect(&s.full[at], sizeof s.stage[0]);
        work.copy(s.stage[at].w, tile, (first + i) * kDepth, &s.full[at]);
        ptx::tensor_copy(s.stage[at].x, &x, (first + i) * kDepth, row, &s.full[at]);
      }
    }
    __syncwarp();
    ptx::wait_for_predecessor();
  } else {
    const int group = warp / 4, lane = threadIdx.x % 32;
    float sums[Cols / 2];
#pragma unroll
    for (int i = 0; i < Cols / 2; i++) sums[i] = 0;
    int last = 0;
    for (int k = 0; k < steps; k++) {
      const int at = k % Stages;
      ptx::mbarrier_wait(&s.full[at], k / Stages & 1);
      const uint64_t a = ptx::wgmma_operand(ptx::shared_address(s.stage[at].w) + group * 64 * kDepth * 2);
      const uint64_t b = ptx::wgmma_operand(ptx::shared_address(s.stage[at].x));
      ptx::wgmma_begin();
#pragma unroll
      for (int i = 0; i < kDepth / 16; i++) ptx::wgmma_bf16(sums, a + i * ptx::kWgmmaStep, b + i * ptx::kWgmmaStep, true);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      if (k > 0 && threadIdx.x % 128 == 0) ptx::mbarrier_arrive(&s.empty[last]);
      last = at;
    }
    ptx::wgmma_done(sums);
    ptx::wait_for_predecessor();
    ptx::named_barrier(1, 256);  // the ring is read
    float* to = &s.sums[lane % 4 * 2][warp * 16 + lane / 4];
#pragma unroll
    for (int j = 0; j < Cols / 8; j++) {
      to[8 * j * kPitch] = sums[4 * j], to[(8 * j + 1) * kPitch] = sums[4 * j + 1];
      to[8 * j * kPitch + 8] = sums[4 * j + 2], to[(8 * j + 1) * kPitch + 8] = sums[4 * j + 3];
    }
  }
  blocks > 1 ? ptx::cluster_sync() : __syncthreads();
  const int rows = min(*count - row, Cols);
  for (int r = warp * blocks + rank; r < rows; r += 9 * blocks) {
    const auto sum = [&](int i) {
      float4 v = {0, 0, 0, 0};
      for (int b = 0; b < blocks; b++) {
        const float4 u = ptx::cluster_load4(ptx::cluster_address(&s.sums[r][4 * i], b));
        v = {v.x + u.x, v.y + u.y, v.z + u.z, v.w + u.w};
      }
      return v;
    };
    work.put(sum, tile, row + r);
  }
  ptx::cluster_meet();  // a block that leaves takes its sums along
}

}  // namespace narrow
