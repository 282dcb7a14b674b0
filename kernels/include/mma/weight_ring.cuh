// SPDX-License-Identifier: MIT OR Apache-2.0
// weight_tiles.cuh for weights in panels (quantised.cuh): they stream through shared memory, where each warp has a ring of its own.
//
//	slot   [panel 0: D units] [panel 1] …      what a warp multiplies at once: a tile's rows, D units of the warp's part of K
//
// A panel's units follow each other in memory, so a lane's one copy brings a panel's part of a slot. The warp that reads a slot fills
// it again, with what comes as many slots later, whatever tile that belongs to: no barrier of the block stands between memory and the
// tensor cores, and a slot is waited for by itself.
#pragma once

#include "weight_tiles.cuh"

namespace tiles {

// Cut is a Point of a ring: warps of a block, units of a slot, blocks that registers must allow on a multiprocessor, tiles that meet
// at once, and most rows of x.
template <int Warps, int Depth, int Blocks, int Meet, int Rows>
struct Cut {
  static constexpr int W = Warps, D = Depth, B = Blocks, G = Meet, R = Rows, kThreads = 32 * Warps;
};

constexpr int kMostSlots = 8;

// Zero is what lanes of a warp without a row of x read; barriers say that a slot is full.
template <class P>
struct RingShared {
  uint4 zero[P::W];
  uint64_t full[P::W][kMostSlots];
};

// Meeting is where the warps' sums of some tiles meet, so that what follows them is seldom and has work for many threads.
template <class P, class F>
struct Meeting {
  static constexpr int kMeet = P::G, kMost = P::R;
  float square[P::W][kRows];
  float sum[P::W][P::G][P::R][F::kTile + 4];
  __device__ __forceinline__ float at(int tile, int first, int warp, int col, int r) const { return sum[warp][tile - first][col][r]; }
};

template <class P, class F>
struct Ring {
  static constexpr int D = P::D, kGroups = F::kTile / 8, kPart = D * F::kBytes, kSlot = kPart * kGroups;
  unsigned char* memory;  // of this warp
  uint64_t* full;
  Span span;
  int slots, put = 0, get = 0;
  uint32_t parity = 0;     // of each slot
  int tile = 0, unit;      // to copy next

  // The constructor starts the first copies. The rings of all warps have that many bytes, at least two slots each. The successor is let in when
  // all weights are asked for: before, it would take memory's time, and multiprocessors' room unevenly.
  template <class Job>
  __device__ __forceinline__ Ring(const Job& job, RingShared<P>& s, unsigned char* ring, int bytes)
      : span(span_of<P>(job.steps())), slots(min(kMostSlots, bytes / (P::W * kSlot))) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    memory = ring + warp * slots * kSlot;
    full = s.full[warp];
    unit = span.lo;
    if (lane < slots) ptx::mbarrier_init(full + lane, 1);
    s.zero[warp] = make_uint4(0, 0, 0, 0);
    ptx::mbarrier_publish();
    __syncwarp();
    if (job.tiles() == 0 || span.lo == span.hi) ptx::start_successor();
    for (int i = 0; i < slots; i++) fill(job);
  }
  template <class Job>
  __device__ __forceinline__ int chunk(const Job& job, int at) const {
    return min(min(D, span.hi - at), job.run(at));
  }
  // fill copies what comes next, if there is more, into the oldest slot.
  template <class Job>
  __device__ __forceinline__ void fill(const Job& job) {
    if (tile >= job.tiles() || span.lo == span.hi) return;
    const int n = chunk(job, unit), panels = job.panels(tile), lane = threadIdx.x & 31;
    if (lane == 0) ptx::mbarrier_expect(full + put, n * F::kBytes * panels);
    if (lane < panels) ptx::bulk_copy(memory + put * kSlot + lane * kPart, job.row(tile, 8 * lane, unit), n * F::kBytes, full + put);
    if (++put == slots) put = 0;
    if ((unit += n) < span.hi) return;
    unit = span.lo;
    if (++tile == job.tiles()) ptx::start_successor();
  }
  // take waits for the next slot.
  __device__ __forceinline__ unsigned char* take() {
    ptx::mbarrier_wait(full + get, parity >> get & 1);
    return memory + get * kSlot;
  }
  // refill gives the slot back.
  template <class Job>
  __device__ __forceinline__ void refill(const Job& job) {
    parity ^= 1u << get;
    if (++get == slots) get = 0;
    __syncwarp();  // all lanes have read it
    fill(job);
  }
};

// PinnedLane is where a lane's fragments of b are in a part of x.
template <bool Wide>
struct PinnedLane {
  ptx::shared_pointer high, low;
  int pitch, low_pitch;  // of steps; 0: it reads zeros
  __device__ __forceinline__ PinnedLane(const Part& x, const uint4& zero) {
    const int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3, row = g & (Wide ? kRows - 1 : kRows / 2 - 1);
    const bool real = row < x.rows;
    high = ptx::pinned(real ? x.data + x.place(0, row, Wide ? 0 : g >> 2, t) : reinterpret_cast<const unsigned char*>(&zero));
    pitch = real ? x.rows * 128 : 0;
    if (Wide) low = ptx::pinned(real ? x.data + x.place(0, row, 1, t) : reinterpret_cast<const unsigned char*>(&zero));
  }
  __device__ __forceinline__ void read(int step, uint4 (&f)[Wide ? 2 : 1]) const {
    f[0] = ptx::load_shared(high + step * pitch);
    if (Wide) f[Wide] = ptx::load_shared(low + step * pitch);
  }
};

// turn_units multiplies units I … of n that have been read into u, reading the next ahead.
template <int I, bool Wide, class P, class F, class L>
__device__ __forceinline__ void turn_units(typename F::Unit (&u)[2], ptx::shared_pointer slot, int n, const L& lane, int at,
                                           float (&acc)[F::kTile / 16][Wide ? 2 : 1][4]) {
  if constexpr (I < P::D) {
    if (I < n) {
      if (I + 1 < P::D && I + 1 < n) F::read(u[(I + 1) & 1], slot + (I + 1) * F::kBytes, Ring<P, F>::kPart);
      F::template multiply<Wide ? 2 : 1>(u[I & 1], lane, at + I * F::kSteps, acc);
      turn_units<I + 1, Wide, P, F>(u, slot, n, lane, at, acc);
    }
  }
}

// multiply is that of weight_tiles.cuh, by a ring.
template <bool Wide, class P, class F, class X, class Job, class Out>
__device__ __forceinline__ void multiply(Ring<P, F>& ring, const RingShared<P>& zero, X& x, Meeting<P, F>& s, const Job& job, Out& out) {
  const int g = (threadIdx.x & 31) >> 2, tiles = job.tiles();
  const Span span = ring.span;
  for (int first = 0; first < tiles; first += P::G) {
    const int n = min(P::G, tiles - first);
    out.begin(first, n);
    for (int tile = first; tile < first + n; tile++) {
      x.turn(tile);
      const PinnedLane<Wide> lane(x.part, zero.zero[threadIdx.x >> 5]);
      float acc[F::kTile / 16][Wide ? 2 : 1][4] = {};
      for (int unit = span.lo; unit < span.hi;) {
        const int n = ring.chunk(job, unit), after = unit + n, next = after < span.hi ? after : span.lo;
        x.ready(unit, n, next, ring.chunk(job, next));
        typename F::Unit u[2];
        const ptx::shared_pointer slot = ptx::pinned(ring.take());
        F::read(u[0], slot, Ring<P, F>::kPart);
        if constexpr (scales_chunks<F, Job>()) {
          float factor[F::kTile / 8], part[F::kTile / 16][Wide ? 2 : 1][4] = {};
#pragma unroll
          for (int j = 0; j < F::kTile / 8; j++) factor[j] = job.factor(tile, g + 8 * j, unit);
          turn_units<0, Wide, P, F>(u, slot, n, lane, x.place(unit), part);
#pragma unroll
          for (int m = 0; m < F::kTile / 16; m++)
#pragma unroll
            for (int p = 0; p <= Wide; p++)
#pragma unroll
              for (int i = 0; i < 4; i++) acc[m][p][i] = fmaf(factor[2 * m + i / 2], part[m][p][i], acc[m][p][i]);
        } else {
          turn_units<0, Wide, P, F>(u, slot, n, lane, x.place(unit), acc);
        }
        ring.refill(job);
        unit = after;
      }
      if (tile == first && first > 0) __syncthreads();  // those of the tiles before are read
      leave<Wide, F>(s.sum[threadIdx.x >> 5][tile - first], acc);
    }
    __syncthreads();
    out.emit(first, n);
  }
}

}  // namespace tiles
