// SPDX-License-Identifier: MIT OR Apache-2.0
// Products of many rows, x [rows, K] times w [N, K] transposed, both bf16, on Hopper's tensor cores. Needs a GPU of sm_90a.
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

namespace tiles {

constexpr int kRows = 128, kDepth = 64, kThreads = 384;
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

// Half is what a stage's half of w is copied from.
struct Half {
  const ptx::tensor_map* map;
  int row;
};

// Walk gives the tiles of this cluster: rows fastest within kGroup rows, then columns, then the next rows.
struct Walk {
  int units, cols, group;  // tiles of a cluster along the rows, along the columns; units of kGroup rows
  int at, step;

  __device__ __forceinline__ Walk(int rows, int cols, int blocks)
      : units((rows + kRows * blocks - 1) / (kRows * blocks)), cols(cols), group(kGroup / kRows / blocks), at(blockIdx.x / blocks), step(gridDim.x / blocks) {}
  __device__ __forceinline__ bool next(int& unit, int& col) {
    if (at >= units * cols) return false;
    const int first = at / (group * cols) * group, n = min(group, units - first), i = at - first * cols;
    unit = first + i % n;
    col = i / n;
    at += step;
    return true;
  }
};

// Place is a stage of the ring and how often it was used.
template <int Stages>
struct Place {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == Stages) stage = 0, phase ^= 1;
  }
};

// multiply runs all tiles of this block. Work has
//
//	cols()                 tiles along the columns
//	half(col, i)           where half i of the w of a tile lies
//	put(sums, row, col)    takes the sums that this thread has, as wgmma.cuh draws them; row is that of its first ones
//
// Grid: any multiple of the cluster, best one block a multiprocessor; 384 threads; kSharedBytes.
template <int Cols, int Stages, class Work>
__device__ __forceinline__ void multiply(const ptx::tensor_map& x, const Work& work, const int32_t* count, int K) {
  extern __shared__ unsigned char raw[];
  using S = Shared<Cols, Stages>;
  S& s = *reinterpret_cast<S*>(raw + (-ptx::shared_address(raw) & 1023));
  const int blocks = ptx::cluster_size(), rank = ptx::cluster_rank(), group = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    for (int i = 0; i < Stages; i++) {
      ptx::mbarrier_init(&s.full[i], 1);
      ptx::mbarrier_init(&s.empty[i], 2 * blocks);
    }
    ptx::mbarrier_publish();
  }
  __syncthreads();
  ptx::cluster_sync();
  ptx::start_successor();
  ptx::wait_for_predecessor();
  const int rows = *count, steps = (K + kDepth - 1) / kDepth;
  Walk walk(rows, work.cols(), blocks);
  Place<Stages> at;
  int unit, col;
  if (group == 0) {
    ptx::keep_registers<40>();
    if (threadIdx.x == 0) {
      while (walk.next(unit, col)) {
        const int row = (unit * blocks + rank) * kRows;
        const Half a = work.half(col, 0), b = work.half(col, 1), mine = rank == 0 ? a : b;
        for (int k = 0; k < steps; k++, at.next()) {
          auto& stage = s.stage[at.stage];
          uint64_t* full = &s.full[at.stage];
          ptx::mbarrier_wait(&s.empty[at.stage], at.phase ^ 1);
          ptx::mbarrier_expect(full, sizeof stage);
          ptx::tensor_copy(stage.x, &x, k * kDepth, row, full);
          if (blocks == 1) {
            ptx::tensor_copy(stage.w[0], a.map, k * kDepth, a.row, full);
            ptx::tensor_copy(stage.w[1], b.map, k * kDepth, b.row, full);
          } else {
            ptx::tensor_copy_to(3, stage.w[rank], mine.map, k * kDepth, mine.row, full);
          }
        }
      }
    }
  } else {
    ptx::take_registers<232>();
    const int thread = threadIdx.x % 128, warp = thread / 32;
    const bool tells = threadIdx.x % 32 == 0 && warp < blocks;  // this thread tells block warp that a stage is free
    while (walk.next(unit, col)) {
      float sums[Cols / 2];
      int last = 0;
      for (int k = 0; k < steps; k++, at.next()) {
        ptx::mbarrier_wait(&s.full[at.stage], at.phase);
        const uint64_t a = ptx::wgmma_operand(ptx::shared_address(s.stage[at.stage].x) + (group - 1) * 64 * kDepth * 2);
        const uint64_t b = ptx::wgmma_operand(ptx::shared_address(s.stage[at.stage].w));
        ptx::wgmma_begin();
#pragma unroll
        for (int i = 0; i < kDepth / 16; i++) ptx::wgmma_bf16(sums, a + i * ptx::kWgmmaStep, b + i * ptx::kWgmmaStep, k + i > 0);
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
        if (tells && k > 0) ptx::mbarrier_arrive_at(&s.empty[last], warp);
        last = at.stage;
      }
      ptx::wgmma_done(sums);
      if (tells) ptx::mbarrier_arrive_at(&s.empty[last], warp);
      work.put(sums, (unit * blocks + rank) * kRows + (group - 1) * 64 + warp * 16 + thread % 32 / 4, col, rows);
    }
  }
  __syncwarp();
  ptx::cluster_sync();  // a block that leaves takes its shared memory along
}

}  // namespace tiles
