// SPDX-License-Identifier: MIT OR Apache-2.0
// The bodies of the kernels of family experts_layer, 1 to 8 rows, whatever the format of their weights (W): norm, router, experts, shared
// expert and residual in one launch, a block a multiprocessor. Blocks meet twice, and weights keep coming meanwhile:
//
//	            before the wait   router's weights into registers, the shared expert's first ones into the queue
//	logits      a block has a few of the router's weight rows; each logit goes to all blocks through a word of meet
//	            every block finds the best k of each row by itself, and fills the queue with their weights
//	hidden      h[row, slot·I …] = weight * act(gate x) * up x: tiles of 8 rows of gate and the same 8 of up, of each expert
//	            all blocks have written h; meanwhile the queue fills with what down reads
//	down        x[row, 16 columns] += down h[row]: K runs through the experts that any row takes, by rising id, the shared one last
//
// An expert is read once, however many rows take it. Warps split K; so what a warp reads of x and h only itself has split, in a region
// of its own.
//
// meet, integers that are 0 between launches:
//
//	kMeet       blocks that have written h; blocks that have seen that all have
//	kWords      [8][kStride]  logits, as keys that are not 0; behind a row's E the shared expert's scale
//
// The last block to leave clears them: by then, all have read.
//
// Grid: a block a multiprocessor, 256 threads. Dynamic shared memory 8*(W::kArea + region). I and S must be at most H; E at most
// 512, k at most 16, rows*k at most 128.
//
// Blocks wait for each other, so all must run at once: binding the launch makes sure that they fit (resident in the manifest). The launch
// before this one ends by itself, and none behind it comes up before all of its blocks have (start_successor), so nothing of the same
// stream keeps a block out for good. A stream beside it may only have launches that end by themselves, too; the engine has one of launches.
// If one stays out all the same, the others lose patience (ptx/patience.cuh).
//
// W has the weights' Queue, of kArea bytes a warp, and Feed, a product with x and what is done of down; kUp, which x and h are multiplied
// by, kFactor, which sums are; kScaled, whether weight rows have scales, and kOwners, whether down asks for the expert of a pair.
//
// Order of a sum: the queue's, warps in order; of down, experts by rising id. Of a logit: quads of 8 values to a lane, float32.
#pragma once

#include "layer_router.cuh"

namespace experts {

__device__ __forceinline__ float total(const Shared& s, int turn, int r, int col) {
  float v = s.sum[turn & 1][0][col][r];
#pragma unroll
  for (int w = 1; w < kWarps; w++) v += s.sum[turn & 1][w][col][r];
  return v;
}

// hidden takes the tiles of h; returns their number.
template <class W, bool Wide, class Act>
__device__ __forceinline__ int hidden(const Args& a, Shared& s, typename W::Queue& queue, typename W::Feed& feed, unsigned char* region) {
  const int tiles = feed.shared.n + feed.routed, row = threadIdx.x / 8, r = threadIdx.x % 8, per = a.I / 8, mine = queue::row_of<Wide>(a.rows);
  int d = -1, u = 0;  // of the tile, worked out at the first that is no shared one's
  for (int turn = 0; turn < tiles; turn++) {
    float of_gate = W::kFactor, of_up = W::kFactor, gate_bias = 0, up_bias = 0;
    if constexpr (W::kScaled || W::kBiased)
      if (row < a.rows) W::of_hidden(a, feed, turn, r, of_gate, of_up, gate_bias, up_bias);
    float acc[2][Wide ? 2 : 1][4] = {};
    queue::Fragments<Wide> x(region, mine, mine, a.rows * 128);
    W::template product<Wide>(queue, feed, x, feed.span.n, acc);
    queue::leave<Wide>(acc, s.sum[turn & 1][threadIdx.x >> 5]);
    __syncthreads();
    const bool is_shared = turn < feed.shared.n;
    if (!is_shared) {
      if (d < 0) {
        const int lo = queue::Share(feed.table.count * per).lo;
        d = lo / per, u = lo - d * per;
      } else if (++u == per) {
        u = 0, d++;
      }
    }
    if (row >= a.rows) continue;
    const int slot = is_shared ? a.k : feed.table.slot[d][row], i = (is_shared ? feed.shared.lo + turn : u) * 8 + r;
    if (slot < 0) continue;
    const float f = s.factor[row];
    if constexpr (W::kBiased)
      a.h[row * a.width() + slot * a.I + i] = s.weight[row][slot] * Act::of(f * total(s, turn, r, row) * of_gate + gate_bias, f * total(s, turn, r + 8, row) * of_up + up_bias, a.limit);
    else
      a.h[row * a.width() + slot * a.I + i] = s.weight[row][slot] * Act::of(f * total(s, turn, r, row) * of_gate) * (f * total(s, turn, r + 8, row) * of_up);
  }
  return tiles;
}

template <class W, bool Wide, class Act>
__device__ __forceinline__ void phases(const Args& a, Shared& s, typename W::Queue& queue, typename W::Feed& feed, unsigned char* region, const int8_t* owner) {
  const int turn = hidden<W, Wide, Act>(a, s, queue, feed, region);
  // The region, whose x is read, is h's from here.
  __syncthreads();
  uint32_t left = 0;
  if (threadIdx.x == 0) {
    ptx::add_release(a.meet + kMeet, 1);
    for (ptx::Patience patience; ptx::load_acquire(a.meet + kMeet) != gridDim.x;) patience.pause();
    left = atomicInc(a.meet + kMeet + 1, gridDim.x - 1);
  }
  __syncthreads();
  W::template down<Wide>(a, s, queue, feed, region, turn, owner);
  if (threadIdx.x >= 32 || __shfl_sync(~0u, left, 0) != gridDim.x - 1) return;
  for (int r = 0; r < a.rows; r++)
    for (int i = threadIdx.x; i < a.logits(); i += 32) a.words(r)[i] = 0;
  if (threadIdx.x == 0) a.meet[kMeet] = 0;
}

// layer is a launch of up to Most rows: 1, 4 or 8.
template <class W, int Most, class Act>
__device__ __forceinline__ void layer(const Args& a) {
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ Shared s;
  __shared__ int8_t owners[W::kOwners ? kMaxPairs : 1];
  int8_t* owner = W::kOwners && Most > 1 ? owners : nullptr;
  ptx::start_successor();
  const int warp = threadIdx.x >> 5;
  typename W::Feed feed(a, s.table);
  Logits<W> logits(a, feed.span);
  typename W::Queue queue(memory);
  queue.begin(feed);
  unsigned char* region = memory + kWarps * W::kArea + warp * a.region;
  ptx::wait_for_predecessor();
  logits.template run<Most == 1 ? 1 : 4>(s, region);
  Choice choice;
  if (warp < a.rows) {
    const bool all = !a.renorm || a.renorm_eps != 0;  // else the sum cancels
    choice = a.E <= 128 ? choose<4>(a, warp, s.id[warp], all) : a.E <= 256 ? choose<8>(a, warp, s.id[warp], all) : choose<16>(a, warp, s.id[warp], all);
    if (Most == 1) list_one(s.table, s.id[0], a.k);
  }
  __syncthreads();
  if (Most > 1) {
    if (warp == 0) list_experts(s, a.rows, a.k);
    __syncthreads();
  }
  feed.know();
  queue.fill(feed);
  if (warp < a.rows) weigh(a, choice, s.weight[warp]);
  if (Most > 1 && warp == 0) number_pairs(s.table, a.rows, owner);
  phases<W, (Most > kRows / 2), Act>(a, s, queue, feed, region, owner);
}

}  // namespace experts
