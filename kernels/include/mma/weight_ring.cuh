// SPDX-License-Identifier: MIT OR Apache-2.0
// weight_tiles.cuh for weights in panels (quantised.cuh): they stream through shared memory, where each warp has a ring of its own.
//
//	slot   [panel 0: D units] [panel 1] …      what a warp multiplies at once: a tile's rows, D units of the warp's part of K
//	       [row 0: D units] [row 1] …          behind them, where x streams too, the same values of its rows, float32
//
// A panel's units follow each other in memory, so a lane's one copy brings a panel's part of a slot. The warp that reads a slot fills
// it again, with what comes as many slots later, whatever tile that belongs to: no barrier of the block stands between memory and the
// tensor cores, and a slot is waited for by itself. Up to 4 rows of x are kept as sums of two bf16; more, and those that stream, are rounded
// to one, so that 8 rows cost the tensor core and shared memory what 4 do.
#pragma once

#include "weight_tiles.cuh"

namespace tiles {

// Cut is a Point of a ring: warps of a block, units of a slot, blocks that registers must allow on a multiprocessor, tiles that meet
// at once, and most rows of x: 4 or 8. Streams says that x comes through the rings too.
template <int Warps, int Depth, int Blocks, int Meet, int Rows, bool Streams = false>
struct Cut {
  static constexpr int W = Warps, D = Depth, B = Blocks, G = Meet, R = Rows, kThreads = 32 * Warps;
  static constexpr bool kStreams = Streams;
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
  static constexpr int D = P::D, kGroups = F::kTile / 8, kPart = D * F::kBytes, kWeights = kPart * kGroups;
  static constexpr int kUnit = 4 * F::kSteps * kStep, kRow = D * kUnit + 16;  // bytes of x: of a row's unit, from a row to the next
  static constexpr int kSlot = kWeights + P::kStreams * P::R * kRow;
  unsigned char* memory;  // of this warp
  uint64_t* full;
  Span span;
  int slots, put = 0, get = 0;
  uint32_t parity = 0;     // of each slot
  int tile = 0, unit;      // to copy next
  const unsigned char* from = nullptr;  // of this lane's panel, unless it begins anew
  bool anew = true;
  int rows;                // of x
  const float* x = nullptr;  // this lane's row, once it is there; only if it streams

  // The constructor starts the first copies. The rings of all warps have that many bytes, at least two slots each. The successor is let in when
  // all weights are asked for: before, it would take memory's time, and multiprocessors' room unevenly.
  template <class Job>
  __device__ __forceinline__ Ring(const Job& job, RingShared<P>& s, unsigned char* ring, int bytes, int rows)
      : span(span_of<P>(job.steps())), slots(min(kMostSlots, bytes / (P::W * kSlot))), rows(rows) {
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
    const int run = job.run(unit), n = min(min(D, span.hi - unit), run), panels = job.panels(tile), lane = threadIdx.x & 31;
    if (lane == 0) ptx::mbarrier_expect(full + put, n * (F::kBytes * panels + P::kStreams * kUnit * rows));
    if (P::kStreams && x) bring(put, unit, n);
    if (lane < panels) {
      if (anew) from = static_cast<const unsigned char*>(job.row(tile, 8 * lane, unit));
      ptx::bulk_copy(memory + put * kSlot + lane * kPart, from, n * F::kBytes, full + put);
      from += n * F::kBytes;
    }
    if (++put == slots) put = 0;
    anew = n == run;
    if ((unit += n) < span.hi) return;
    unit = span.lo, anew = true;
    if (++tile == job.tiles()) ptx::start_successor();
  }
  // bring copies n units of this lane's row of x.
  __device__ __forceinline__ void bring(int slot, int unit, int n) const {
    ptx::bulk_copy(memory + slot * kSlot + kWeights + (threadIdx.x & 31) % P::R * kRow, x + unit * F::kSteps * kStep, n * kUnit, full + slot);
  }
  // begin_x says that x [rows, K] is there, of which the slots that are under way want theirs. Lanes 16 and on copy a row each.
  template <class Job>
  __device__ __forceinline__ void begin_x(const Job& job, const float* from, int K) {
    const int lane = threadIdx.x & 31, row = lane - 16;
    if (row < 0 || row >= rows) return;
    x = from + int64_t(row) * K;
    const int last = tile * (span.hi - span.lo) + unit - span.lo;  // units that are under way
    for (int slot = 0, at = 0, unit = span.lo; at < last; slot++) {
      const int n = chunk(job, unit);
      bring(slot, unit, n);
      at += n, unit = unit + n < span.hi ? unit + n : span.lo;
    }
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

// Resident is x in shared memory, all of a warp's steps: of up to 4 rows in two parts, as Part has them, or (Wide) of up to 8 rows,
// rounded: [step][row][32 values].
template <class F, bool Wide>
struct Resident {
  static constexpr int kMost = Wide ? kRows : kRows / 2, kGroups = 8 / kMost;  // rows; eights of steps that are under way at once
  Part part;
  __device__ __forceinline__ void turn(int) {}
  __device__ __forceinline__ void ready(int, int, int, int) {}
  __device__ __forceinline__ int place(int unit) const { return unit * F::kSteps; }

  // Norm has the weights [K] of this lane's values: 8t to 8t+7 of step l/4 of each eight. They may be asked for before x is there.
  struct Norm {
    float4 v[kGroups][2];
    __device__ __forceinline__ void load(const Span& span, int from, const float* w) {
#pragma unroll
      for (int i = 0; i < kGroups; i++) {
        const int s = from + 8 * i + ((threadIdx.x & 31) >> 2);
        if (s >= span.hi) continue;
        const float4* p = reinterpret_cast<const float4*>(w + s * kStep + (threadIdx.x & 3) * 8);
        v[i][0] = p[0], v[i][1] = p[1];
      }
    }
  };

  // bring fills in this warp's steps of rows, whose first values there are, in eights, times F::kUp; times one + w where there is a norm, whose
  // weights of the first steps are in norm and whose squares it leaves.
  template <bool Normed, class Row>
  __device__ __forceinline__ void bring(const Span& span, const Row& row, int values, Norm norm, const float* w, float one, float (*square)[kRows]) const {
    const int lane = threadIdx.x & 31, t = lane & 3;
    float q[kMost] = {};
#pragma unroll 1
    for (int from = span.lo; from < span.hi; from += 8 * kGroups) {
      float4 v[kGroups][kMost][2] = {};
#pragma unroll
      for (int i = 0; i < kGroups; i++) {
        const int s = from + 8 * i + (lane >> 2), at = s * kStep + 8 * t;
#pragma unroll
        for (int r = 0; r < kMost; r++)
          if (s < span.hi && r < part.rows && at < values) {
            const float4* p = reinterpret_cast<const float4*>(row(r) + at);
            v[i][r][0] = ptx::load_l2(p), v[i][r][1] = ptx::load_l2(p + 1);
          }
      }
      if (Normed && from > span.lo) norm.load(span, from, w);
#pragma unroll
      for (int i = 0; i < kGroups; i++) {
        const int s = from + 8 * i + (lane >> 2);
        if (s >= span.hi) continue;
        float m[8];
#pragma unroll
        for (int j = 0; j < 8; j++) m[j] = F::kUp;
        if (Normed) {
          const float4 a = norm.v[i][0], b = norm.v[i][1];
          m[0] *= one + a.x, m[1] *= one + a.y, m[2] *= one + a.z, m[3] *= one + a.w;
          m[4] *= one + b.x, m[5] *= one + b.y, m[6] *= one + b.z, m[7] *= one + b.w;
        }
#pragma unroll
        for (int r = 0; r < kMost; r++) {
          if (r >= part.rows) continue;
          float4 a = v[i][r][0], b = v[i][r][1];
          if (Normed) q[r] += a.x * a.x + a.y * a.y + a.z * a.z + a.w * a.w + b.x * b.x + b.y * b.y + b.z * b.z + b.w * b.w;
          a.x *= m[0], a.y *= m[1], a.z *= m[2], a.w *= m[3], b.x *= m[4], b.y *= m[5], b.z *= m[6], b.w *= m[7];
          uint4 hi, lo;
          mma::split(a.x, a.y, hi.x, lo.x);
          mma::split(a.z, a.w, hi.y, lo.y);
          mma::split(b.x, b.y, hi.z, lo.z);
          mma::split(b.z, b.w, hi.w, lo.w);
          *reinterpret_cast<uint4*>(part.data + (Wide ? (s * part.rows + r) * 64 + t * 16 : part.place(s, r, 0, t))) = hi;
          if (!Wide) *reinterpret_cast<uint4*>(part.data + part.place(s, r, 1, t)) = lo;
        }
      }
    }
    if (Normed) {
#pragma unroll
      for (int r = 0; r < kMost; r++) {
#pragma unroll
        for (int d = 16; d; d /= 2) q[r] += __shfl_xor_sync(~0u, q[r], d);
        if (lane == 0 && r < part.rows) square[threadIdx.x >> 5][r] = q[r];
      }
    }
    __syncwarp();
  }
};

// Streamed is x that comes through the ring.
struct Streamed {
  Part part = {};
  __device__ __forceinline__ void turn(int) {}
  __device__ __forceinline__ void ready(int, int, int, int) {}
  __device__ __forceinline__ int place(int) const { return 0; }
};

// PinnedLane is where a lane's fragments of b are in a part of x: of two parts of up to 4 rows, or (Wide) of up to 8 rows, rounded.
template <bool Wide>
struct PinnedLane {
  ptx::shared_pointer at;
  int pitch;  // of steps; 0: it reads zeros
  __device__ __forceinline__ PinnedLane(const Part& x, const uint4& zero) {
    const int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3, row = g & (Wide ? kRows - 1 : kRows / 2 - 1);
    const bool real = row < x.rows;
    at = ptx::pinned(real ? x.data + (Wide ? row * 64 + t * 16 : x.place(0, row, g >> 2, t)) : reinterpret_cast<const unsigned char*>(&zero));
    pitch = real ? x.rows * (Wide ? 64 : 128) : 0;
  }
  __device__ __forceinline__ void read(int step, uint4 (&f)[1]) const { f[0] = ptx::load_shared(at + step * pitch); }
};

// StreamedLane rounds those of a slot.
template <class F>
struct StreamedLane {
  ptx::shared_pointer at;
  bool real;
  __device__ __forceinline__ StreamedLane(ptx::shared_pointer x, int pitch, int rows) {
    const int row = (threadIdx.x & 31) >> 2;
    real = row < rows, at = x + row * pitch + (threadIdx.x & 3) * 32;
  }
  __device__ __forceinline__ static uint32_t pair(uint32_t lo, uint32_t hi) {
    return mma::pack(__uint_as_float(lo) * F::kUp, __uint_as_float(hi) * F::kUp);
  }
  __device__ __forceinline__ void read(int step, uint4 (&f)[1]) const {
    f[0] = make_uint4(0, 0, 0, 0);
    if (!real) return;
    const uint4 a = ptx::load_shared(at + step * 4 * kStep), b = ptx::load_shared(at + step * 4 * kStep + 16);
    f[0] = make_uint4(pair(a.x, a.y), pair(a.z, a.w), pair(b.x, b.y), pair(b.z, b.w));
  }
};

// turn_units multiplies units I … of n that have been read into u, reading the next ahead.
template <int I, class P, class F, class L>
__device__ __forceinline__ void turn_units(typename F::Unit (&u)[2], ptx::shared_pointer slot, int n, const L& lane, int at, float (&acc)[F::kTile / 16][1][4]) {
  if constexpr (I < P::D) {
    if (I < n) {
      if (I + 1 < P::D && I + 1 < n) F::read(u[(I + 1) & 1], slot + (I + 1) * F::kBytes, Ring<P, F>::kPart);
      F::template multiply<1>(u[I & 1], lane, at + I * F::kSteps, acc);
      turn_units<I + 1, P, F>(u, slot, n, lane, at, acc);
    }
  }
}

// leave_sums puts a warp's sums of a tile where total finds them; narrow, columns 4 to 7 hold the low parts of rows 0 to 3.
template <bool Wide, class F>
__device__ __forceinline__ void leave_sums(float (*to)[F::kTile + 4], float (&acc)[F::kTile / 16][1][4]) {
  const int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
#pragma unroll
  for (int m = 0; m < F::kTile / 16; m++) {
    float(&v)[4] = acc[m][0];
    if (!Wide) {
#pragma unroll
      for (int i = 0; i < 4; i++) v[i] += __shfl_xor_sync(~0u, v[i], 2);
    }
    const int r = m * 16 + g;
    if (Wide || t < 2) to[2 * t][r] = v[0], to[2 * t + 1][r] = v[1], to[2 * t][r + 8] = v[2], to[2 * t + 1][r + 8] = v[3];
  }
}

// multiply is that of weight_tiles.cuh, by a ring. Wide: x is of up to 8 rows, rounded, else of up to 4, in two parts.
template <bool Wide, class P, class F, class X, class Job, class Out>
__device__ __forceinline__ void multiply(Ring<P, F>& ring, const RingShared<P>& zero, X& x, Meeting<P, F>& s, const Job& job, Out& out) {
  using Sums = float[F::kTile / 16][1][4];
  const int g = (threadIdx.x & 31) >> 2, tiles = job.tiles();
  const Span span = ring.span;
  for (int first = 0; first < tiles; first += P::G) {
    const int n = min(P::G, tiles - first);
    out.begin(first, n);
    for (int tile = first; tile < first + n; tile++) {
      x.turn(tile);
      const PinnedLane<Wide> pinned(x.part, zero.zero[threadIdx.x >> 5]);
      Sums acc = {};
      for (int unit = span.lo; unit < span.hi;) {
        const int n = ring.chunk(job, unit), after = unit + n, next = after < span.hi ? after : span.lo;
        x.ready(unit, n, next, ring.chunk(job, next));
        typename F::Unit u[2];
        const ptx::shared_pointer slot = ptx::pinned(ring.take());
        F::read(u[0], slot, Ring<P, F>::kPart);
        const auto turn = [&](Sums& to) {
          if constexpr (P::kStreams)
            turn_units<0, P, F>(u, slot, n, StreamedLane<F>(slot + Ring<P, F>::kWeights, Ring<P, F>::kRow, ring.rows), 0, to);
          else
            turn_units<0, P, F>(u, slot, n, pinned, x.place(unit), to);
        };
        if constexpr (scales_chunks<F, Job>()) {
          float factor[F::kTile / 8];
          Sums part = {};
#pragma unroll
          for (int j = 0; j < F::kTile / 8; j++) factor[j] = job.factor(tile, g + 8 * j, unit);
          turn(part);
#pragma unroll
          for (int m = 0; m < F::kTile / 16; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) acc[m][0][i] = fmaf(factor[2 * m + i / 2], part[m][0][i], acc[m][0][i]);
        } else {
          turn(acc);
        }
        ring.refill(job);
        unit = after;
      }
      if (tile == first && first > 0) __syncthreads();  // those of the tiles before are read
      leave_sums<Wide, F>(s.sum[threadIdx.x >> 5][tile - first], acc);
    }
    __syncthreads();
    out.emit(first, n);
  }
}

}  // namespace tiles
