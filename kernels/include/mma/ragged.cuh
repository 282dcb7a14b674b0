// SPDX-License-Identifier: MIT OR Apache-2.0
// Products of rows that come in runs of any length, each run times a matrix of its own: x [rows, K] times w [N, K] transposed, both
// bf16, on Hopper's tensor cores. Needs sm_90a.
//
// A tile is 128 rows of w, which are the left operand, by up to 256 rows of x, in steps of 32: a run of 150 rows costs what 160 do, and
// up to 256 each matrix is read once. A run of more is cut into tiles of about the same length. A block of three warpgroups takes one
// tile after the other:
//
//	warpgroup 0       one thread copies 64 of K of both into a ring of stages, as far ahead as it is long
//	warpgroups 1, 2   64 rows of w × the rows of x each: wgmma m64n32k16 to m64n256k16, sums in registers, then to memory
//
//	stage   w [128, 64] | x [rows, 64] of the launch's longest tile       swizzled by tensor maps
//	full    both copies are there: 1 arrival and the bytes
//	empty   both warpgroups are through, in all blocks of the cluster
//
// Runs are read, and w is copied as far as the ring is long, before the predecessor is complete: neither is what it writes.
//
// Two blocks of a cluster have the same rows of x and neighbouring rows of w: each copies half of x, for both. Copies are few and large,
// for each takes the copy engine 22 ns more: half of a tile is at most three boxes, of 128, 64, 32 or 16 rows.
//
// Order of a sum: K by 16, ascending, each 16 as the tensor core adds them. It depends on nothing but K.
#pragma once

#include "../ptx/stmatrix.cuh"
#include "../ptx/tensor_copy.cuh"
#include "../ptx/wgmma.cuh"
#include "bf16.cuh"
#include "ring.cuh"

namespace ragged {

constexpr int kCols = 128, kBox = 32, kMostBoxes = 8, kDepth = ring::kDepth, kThreads = 384;
constexpr int kTurnBytes = 8192;  // of a warpgroup
constexpr int kMostRuns = 1025, kMostStages = 8, kRingBytes = 4 * (kCols + kMostBoxes * kBox) * kDepth * 2;
constexpr int kSharedBytes = kRingBytes + 1024;  // the ring starts at a multiple of 1024

// Registers of a thread: what the launch has for 384 of them, and what they share anew. A warpgroup that asks for more than others gave
// back waits for ever.
constexpr int kRegisters = 65536 / kThreads / 8 * 8, kFew = 56, kMany = 224;
static_assert(kFew + 2 * kMany <= 3 * kRegisters, "");

// Tile is what a block multiplies at a time: boxes of rows of x from row on, of which those from end on are not its own, by tile col of
// the rows of a matrix.
struct Tile {
  int row, end, boxes, col, matrix;
};

// Runs gives the tiles of this block: by run, then rows of w, tiles of the run fastest. Runs of the longest tiles come first, so that
// blocks that take turns get about the same.
struct Runs {
  const int* first;  // [runs+1] a run's first row
  const int* order;  // [num] runs that have rows
  const int* tiles;  // [num+1] number of its first tile along the rows
  int num, units;    // of a cluster along the rows of w
  int longest;       // boxes of the longest tile
  int blocks, rank, at, step, turn = 0;

  // boxes is the length of a tile of a run of rows, which are n tiles.
  __device__ __forceinline__ static int boxes(int rows, int n) { return ((rows + n - 1) / n + kBox - 1) / kBox; }
  __device__ __forceinline__ bool next(Tile& t) {
    while (turn < num && at >= tiles[turn + 1] * units) turn++;
    if (turn == num) return false;
    const int run = order[turn], i = at - tiles[turn] * units, n = tiles[turn + 1] - tiles[turn], last = first[run + 1];
    const int length = boxes(last - first[run], n) * kBox;
    t.row = first[run] + i % n * length;
    t.end = min(t.row + length, last);
    t.boxes = (t.end - t.row + kBox - 1) / kBox;
    t.col = i / n * blocks + rank;
    t.matrix = run;
    at += step;
    return true;
  }
};

// walk makes the walk over N rows of each matrix from the runs' first rows, which the predecessor has not written: it has let this launch
// up only after its own wait. A warp puts the runs of one length in order.
__device__ __forceinline__ Runs walk(const int32_t* rows, int runs, int N) {
  __shared__ int first[kMostRuns + 1], order[kMostRuns], tiles[kMostRuns + 1], num_of[kMostBoxes], tiles_of[kMostBoxes];
  for (int r = threadIdx.x; r <= runs; r += kThreads) first[r] = ptx::load_l2(rows + r);
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, length = kMostBoxes - warp;
  const auto each = [&](auto&& with) {  // how many tiles a run is, if of this warp's length, else 0; all lanes
    for (int base = 0; base < runs; base += 32) {
      const int r = base + lane, have = r < runs ? first[r + 1] - first[r] : 0, n = (have + kMostBoxes * kBox - 1) / (kMostBoxes * kBox);
      with(r, n > 0 && Runs::boxes(have, n) == length ? n : 0);
    }
  };
  if (warp < kMostBoxes) {
    int num = 0, sum = 0;
    each([&](int, int n) { num += n > 0, sum += n; });
    num = __reduce_add_sync(~0u, num), sum = __reduce_add_sync(~0u, sum);
    if (lane == 0) num_of[warp] = num, tiles_of[warp] = sum;
  }
  __syncthreads();
  int num = 0, before = 0, all = 0, longest = 0;
  for (int w = 0; w < kMostBoxes; w++) {
    if (longest == 0 && num_of[w] > 0) longest = kMostBoxes - w;
    if (w < warp) num += num_of[w], before += tiles_of[w];
    all += num_of[w];
  }
  if (warp < kMostBoxes) {
    each([&](int r, int n) {
      int sum = n;
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        const int v = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += v;
      }
      const uint32_t mine = __ballot_sync(~0u, n > 0);
      const int at = num + __popc(mine & ((1u << lane) - 1));
      if (n > 0) order[at] = r, tiles[at + 1] = before + sum;
      num += __popc(mine), before += __shfl_sync(~0u, sum, 31);
    });
  }
  if (threadIdx.x == 0) tiles[0] = 0;
  __syncthreads();
  const int blocks = ptx::cluster_size(), cols = (N + kCols - 1) / kCols;
  return {first,  order, tiles, all, (cols + blocks - 1) / blocks, longest, blocks, int(ptx::cluster_rank()), int(blockIdx.x) / blocks,
          int(gridDim.x) / blocks};
}

// Ring is the stages and their barriers, and where the outputs of each warpgroup turn.
struct Ring {
  uint64_t full[kMostStages], empty[kMostStages];
  unsigned char* stages;
  alignas(128) unsigned char turn[2][kTurnBytes];
};

// begin makes the ring.
__device__ __forceinline__ Ring& begin() {
  extern __shared__ unsigned char raw[];
  __shared__ Ring s;
  if (threadIdx.x == 0) s.stages = raw + (-ptx::shared_address(raw) & 1023);
  ring::open(s.full, s.empty, kMostStages);
  return s;
}

// Boxes are maps of x whose boxes have 128, 64, 32 and 16 rows.
struct Boxes {
  const ptx::tensor_map* map[4];
};

// multiply runs all tiles that the walk gives this block. Work has
//
//	copy(dst, tile, k, full)      copies the w of a tile, from k on
//	put(sums, tile, row, turn)    takes the sums of this warpgroup, as wgmma.cuh draws them, from row of w on; turn is for leave
//
// Grid: any multiple of the cluster, which is one or two blocks, best one block a multiprocessor; 384 threads; kSharedBytes.
template <class Work>
__device__ __forceinline__ void multiply(Ring& s, const Boxes& x, Runs walk, const Work& work, int K) {
  constexpr int kLeft = kCols * kDepth * 2, kRight = kBox * kDepth * 2;
  const int blocks = walk.blocks, group = threadIdx.x / 128, steps = (K + kDepth - 1) / kDepth;
  const int stage_bytes = kLeft + max(walk.longest, 1) * kRight, stages = min(kMostStages, kRingBytes / stage_bytes);
  ring::Place at;
  Tile t;
  if (group == 0) {
    ptx::keep_registers<kFew>();
    int early = 0;  // stages whose w is under way
    const auto left = [&](const Tile& t, int k, int stage) {
      ptx::mbarrier_expect(&s.full[stage], kLeft + t.boxes * kRight);
      work.copy(s.stages + stage * stage_bytes, t, k * kDepth, &s.full[stage]);
    };
    if (threadIdx.x == 0) {
      for (Runs ahead = walk; early < stages && ahead.next(t);)
        for (int k = 0; k < steps && early < stages; k++) left(t, k, early++);
    }
    ptx::wait_for_predecessor_first();
    if (threadIdx.x == 0) {
      while (walk.next(t)) {
        for (int k = 0; k < steps; k++, at.next(stages)) {
          unsigned char* stage = s.stages + at.stage * stage_bytes;
          uint64_t* full = &s.full[at.stage];
          if (early > 0) {
            early--;
          } else {
            ptx::mbarrier_wait(&s.empty[at.stage], at.phase ^ 1);
            left(t, k, at.stage);
          }
          for (int half = walk.rank; half < 2; half += blocks) {
            int row = half * t.boxes * (kBox / 2);
#pragma unroll
            for (int i = 0; i < 4; i++) {
              if (!(t.boxes & 8 >> i)) continue;
              ptx::tensor_copy_to(uint16_t(2 * blocks - 1), stage + kLeft + row * kDepth * 2, x.map[i], k * kDepth, t.row + row, full);
              row += 128 >> i;
            }
          }
        }
      }
    }
  } else {
    ptx::take_registers<kMany>();
    ptx::wait_for_predecessor_first();
    const int warp = threadIdx.x % 128 / 32, mine = (group - 1) * 64;
    const bool tells = threadIdx.x % 32 == 0 && warp < blocks;  // this thread tells block warp that a stage is free
    const auto free = [&](int stage) {
      if (!tells) return;
      if (blocks > 1)
        ptx::mbarrier_free_at(&s.empty[stage], warp);
      else
        ptx::mbarrier_arrive(&s.empty[stage]);
    };
    const auto product = [&](auto& sums) {
      int last = 0;
      for (int k = 0; k < steps; k++, at.next(stages)) {
        ptx::mbarrier_wait(&s.full[at.stage], at.phase);
        const uint32_t stage = ptx::shared_address(s.stages) + at.stage * stage_bytes;
        const uint64_t a = ptx::wgmma_operand(stage + mine * kDepth * 2), b = ptx::wgmma_operand(stage + kLeft);
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
      work.put(sums, t, mine, s.turn[group - 1]);
    };
    while (walk.next(t)) {
      switch (t.boxes) {
#define METRALE_BOXES(N)     \
  case N: {                  \
    float sums[N * kBox / 2] = {}; \
    product(sums);           \
    break;                   \
  }
        METRALE_BOXES(1)
        METRALE_BOXES(2)
        METRALE_BOXES(3)
        METRALE_BOXES(4)
        METRALE_BOXES(5)
        METRALE_BOXES(6)
        METRALE_BOXES(7)
        METRALE_BOXES(8)
#undef METRALE_BOXES
      }
    }
  }
  __syncwarp();
  ptx::cluster_meet();  // a block that leaves takes its shared memory along
}

// leave writes the outputs of a warpgroup, as bf16. Of each row of x it has Chunks eights of columns, of which warp w has Chunks/4 from
// w * Chunks/4 on; word(q) is what a thread has of the q-th 8×8 of its warp, columns of y by rows of x: rows of x in turn, of each eight
// all of the warp's columns. y is the first one's place in rows of pitch; rows and cols are what is left from there on.
//
//	turn   [512 / Chunks rows of x, Chunks × 16 bytes]     each 16 bytes at (chunk ^ row / (8 / Chunks) % Chunks)
template <int Chunks, int N, class Word>
__device__ __forceinline__ void leave(unsigned char* turn, const Word& word, uint16_t* y, int pitch, int rows, int cols) {
  constexpr int kRows = kTurnBytes / 16 / Chunks, kWarp = Chunks / 4, kAll = N / 4 * kWarp, kPiece = 16;
  const int thread = threadIdx.x % 128, lane = thread % 32, at = lane / 8, barrier = threadIdx.x / 128;
  const auto place = [&](int row, int chunk) { return turn + (row * Chunks + (chunk ^ row / (8 / Chunks) % Chunks)) * 16; };
  unsigned char* const mine = place(at / kWarp * 8 + lane % 8, thread / 32 * kWarp + at % kWarp);
  const int row = thread / Chunks, chunk = thread % Chunks;
  const unsigned char* const from = place(row, chunk);
  const bool in = chunk * 8 < cols;
  y += int64_t(row) * pitch + chunk * 8;
#pragma unroll
  for (int first = 0; first < kAll; first += kPiece) {
    if (first > 0) ptx::named_barrier(barrier, 128);  // all have read the piece before
#pragma unroll
    for (int q = 0; q < kPiece; q += 4) {
      if (first + q >= kAll) break;
      const uint32_t v[4] = {word(first + q), word(first + q + 1), word(first + q + 2), word(first + q + 3)};
      ptx::store_matrices(mine + q / kWarp * 8 * Chunks * 16, v);
    }
    ptx::named_barrier(barrier, 128);
#pragma unroll
    for (int i = 0; i < kRows; i += 128 / Chunks) {
      const int x = first / kWarp * 8 + i;
      if (x >= kAll / kWarp * 8) break;
      const uint4 v = *reinterpret_cast<const uint4*>(from + i * Chunks * 16);
      if (in && x + row < rows) *reinterpret_cast<uint4*>(y + int64_t(x) * pitch) = v;
    }
  }
  ptx::named_barrier(barrier, 128);
}

}  // namespace ragged
