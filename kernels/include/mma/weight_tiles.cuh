// SPDX-License-Identifier: MIT OR Apache-2.0
// A few rows of x times a matrix whose rows stream into registers: the body of every linear-like kernel of 1 to 8 rows.
//
// A block owns consecutive tiles of 16 weight rows. Its warps split K, so a warp reads the same part of each tile:
//
//	            warp 0          warp 1        …        a step: 32 values of 16 rows, 1 KiB; lane 4g+t loads 16 bytes of
//	tile 0   [16 × 32·n]     [16 × 32·n]               row g and of row g+8
//	tile 1   [16 × 32·n]     …                         a chunk: D steps, each lane's 2·D loads in flight at once;
//	…                                                  a step's registers are loaded again as soon as they are used
//
// The first chunk is loaded before the predecessor launch is waited for, and more is brought to L2, so memory works through the
// launch boundary. Weights are the a of mma.m16n8k16 (mma/bf16.cuh), rows of x the 8 columns of b: wide, 8 rows, whose low
// parts take a second mma; else up to 4, and the other columns are their low parts. A warp splits its part of x once, in shared
// memory, where 128 bytes hold 32 values of a row; halves of odd rows change places, so that neighbours' reads do not collide:
//
//	[step][row][high 32 | low 32]
//
// Of an x that is too long for that, a warp holds the current chunk and the next (Window); or, of up to 4 rows, each lane reads
// what it needs from L2 a step ahead (Direct).
//
// A format (Bf16 here, others in quantised.cuh) says how weights lie. What is drawn above for steps holds for its units, of one or
// more steps; a tile may have more than 16 rows, which share fragments of x:
//
//	kSteps        steps of a unit                     kTile      weight rows of a tile
//	kPanel        rows that lie together              kBytes     from a unit to the next of the same panel of rows
//	kUp           factor of x, a power of two         kFactor    what a finished sum is multiplied by
//	Unit          what a lane holds of one            row(w, row, K, unit)   where the unit of a row begins
//	load(unit, p, i)                                  by pointers of the lane's rows, the i-th unit from there; or, of panels,
//	read(unit, p, part)                               from a slot of a ring in shared memory (weight_ring.cuh)
//	multiply(unit, lane, at, acc)                     by the fragments of x from place at
//
// Order of a sum, whatever the number of rows or blocks: per warp, steps rising, 16 values by one mma, x's high part and low part
// by themselves; high + low; warps in order.
#pragma once

#include "../ptx/sm90.cuh"
#include "bf16.cuh"

namespace tiles {

constexpr int kTile = 16;  // weight rows
constexpr int kRows = 8;   // of x
constexpr int kStep = 32;  // values of K

// Bf16 is bf16 as stored, [N, K].
struct Bf16 {
  using Weights = const uint16_t*;
  static constexpr int kSteps = 1, kTile = 16, kPanel = 1, kBytes = 64;
  static constexpr float kUp = 1, kFactor = 1;
  static constexpr bool kScaled = false;
  struct Unit {
    uint4 a, c;  // of rows g and g+8
  };
  __device__ __forceinline__ static const void* row(Weights w, int64_t row, int K, int unit) { return w + row * K + unit * kStep; }
  __device__ __forceinline__ static void load(Unit& u, const unsigned char* const (&p)[2], int i) {
    u.a = ptx::load_weights(p[0] + i * kBytes);
    u.c = ptx::load_weights(p[1] + i * kBytes);
  }
  template <bool Wide, class L>
  __device__ __forceinline__ static void multiply(const Unit& u, L& lane, int at, float (&acc)[1][Wide ? 2 : 1][4]) {
    uint4 f[Wide ? 2 : 1];
    lane.read(at, f);
    const uint4 a = u.a, c = u.c;
#pragma unroll
    for (int p = 0; p <= Wide; p++) mma::bf16(acc[0][p], a.x, c.x, a.y, c.y, f[p].x, f[p].y);
#pragma unroll
    for (int p = 0; p <= Wide; p++) mma::bf16(acc[0][p], a.z, c.z, a.w, c.w, f[p].z, f[p].w);
  }
};

// Point is how a launch is cut: warps of a block, steps of a chunk, blocks that registers must allow on a multiprocessor, and
// tiles after the current one that are brought to L2 ahead of their loads; negative: as many tiles, of the block's first, and no more.
template <int Warps, int Depth, int Blocks, int Ahead>
struct Point {
  static constexpr int W = Warps, D = Depth, B = Blocks, A = Ahead, kThreads = 32 * Warps;
};

// Shared is where the warps' sums of a tile meet.
template <class P, class F = Bf16>
struct Shared {
  static constexpr int kMeet = 1, kMost = kRows;  // tiles that meet at once, rows of x
  float square[P::W][kRows];
  float sum[2][P::W][kRows][F::kTile + 4];  // of even and odd tiles
  __device__ __forceinline__ float at(int tile, int, int warp, int col, int r) const { return sum[tile & 1][warp][col][r]; }
};

// Share is this block's part of count units; blocks times units are below 2^32.
struct Share {
  int lo, hi;
  __device__ Share(int lo, int hi) : lo(lo), hi(hi) {}
  __device__ Share(unsigned count) : lo(blockIdx.x * count / gridDim.x), hi((blockIdx.x + 1) * count / gridDim.x) {}
};

// Span is a warp's part of a number of units, or of steps.
struct Span {
  int lo, hi;
};
template <class F>
__device__ __forceinline__ Span in_steps(const Span& s) {
  return {s.lo * F::kSteps, s.hi * F::kSteps};
}
template <class P>
__device__ __forceinline__ Span span_of(int steps) {
  const int warp = threadIdx.x >> 5;
  return {warp * steps / P::W, (warp + 1) * steps / P::W};
}

// ------------------------------------------------------------------------------------------------------------- weights

// Flow is a warp's stream of weights. Job gives tiles(), steps() of K, run(step): how many steps lie behind each other from
// there, and row(tile, r, step): where row r of a tile has that step. Steps are units of the format here. Rows that do not exist
// may be any that do.
template <class P, class F = Bf16>
struct Flow {
  static constexpr int D = P::D, kGroups = F::kTile / 8;
  typename F::Unit unit[D];        // the current chunk
  const unsigned char* p[kGroups];  // of the next chunk, of rows g, g+8, …
  int count;                       // its units
  Span span;

  // The constructor starts the first loads.
  template <class Job>
  __device__ __forceinline__ Flow(const Job& job) : span(span_of<P>(job.steps())) {
    plan(job, 0, span.lo);
#pragma unroll
    for (int i = 0; i < D; i++) load(i);
    if (P::A != 0) {
      rest_ahead(job);
#pragma unroll
      for (int i = 1; i < (P::A < 0 ? -P::A : P::A); i++) ahead(job, i);
    }
  }
  template <class Job>
  __device__ __forceinline__ int chunk(const Job& job, int step) const {
    return min(min(D, span.hi - step), job.run(step));
  }
  // plan works out the chunk to load next.
  template <class Job>
  __device__ __forceinline__ void plan(const Job& job, int tile, int step) {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    count = 0;
    if (tile >= job.tiles() || step >= span.hi) return;
    count = chunk(job, step);
#pragma unroll
    for (int j = 0; j < kGroups; j++) {
      const void* row = job.row(tile, g + 8 * j, step);
      p[j] = static_cast<const unsigned char*>(row) + t * 16;
    }
  }
  __device__ __forceinline__ void load(int i) {
    if (i < count) F::load(unit[i], p, i);
  }
  // bring prefetches units of a row's panel, once for all its rows.
  template <class Job>
  __device__ __forceinline__ static void bring(const Job& job, int tile, int r, int step, int n) {
    if (r % F::kPanel == 0) ptx::bulk_prefetch_l2(job.row(tile, r, step), n * F::kBytes);
  }
  // rest_ahead brings to L2 what the first chunk leaves of this warp's part of tile 0.
  template <class Job>
  __device__ __forceinline__ void rest_ahead(const Job& job) const {
    const int r = threadIdx.x & 31;
    if (r >= F::kTile || job.tiles() == 0) return;
    for (int s = span.lo + count, n; s < span.hi; s += n) {
      n = min(span.hi - s, job.run(s));
      bring(job, 0, r, s, n);
    }
  }
  // ahead brings a tile to L2, a row or two by each warp.
  template <class Job>
  __device__ __forceinline__ void ahead(const Job& job, int tile) const {
    const int r = (threadIdx.x >> 5) + (threadIdx.x & 31) * P::W;
    if (r >= F::kTile || tile >= job.tiles()) return;
    for (int s = 0, n; s < job.steps(); s += n) {
      n = min(job.steps() - s, job.run(s));
      bring(job, tile, r, s, n);
    }
  }
};

// ------------------------------------------------------------------------------------------------------------------- x

// fetch_const starts the copy of a warp's part of a constant [K] to shared memory.
__device__ __forceinline__ void fetch_const(const Span& span, float* dst, const float* src) {
#pragma unroll 1
  for (int i = (threadIdx.x & 31) + span.lo * 8; i < span.hi * 8; i += 32) ptx::async_copy(dst + i * 4, src + i * 4);
}

// raise multiplies by the format's factor.
template <class F>
__device__ __forceinline__ void raise(float4& v) {
  if (F::kUp != 1) v.x *= F::kUp, v.y *= F::kUp, v.z *= F::kUp, v.w *= F::kUp;
}

// Part is some steps of x in shared memory, [step][row][64].
struct Part {
  unsigned char* data;
  int rows;

  // place is 16 bytes of a row: values 8t to 8t+7 of its high or low part.
  __device__ __forceinline__ int place(int step, int row, int part, int t) const {
    return (step * rows + row) * 128 + (part ^ (row & 1)) * 64 + t * 16;
  }
  // fetch starts the copy of n steps of a row as they are, float32, to those from step; zeros behind the values that there are.
  __device__ __forceinline__ void fetch(int step, int n, int row, const float* x, int values = 1 << 30) const {
#pragma unroll 1
    for (int i = threadIdx.x & 31; i < n * 8; i += 32) {
      unsigned char* to = data + ((step + i / 8) * rows + row) * 128 + i % 8 * 16;
      if (i * 4 < values)
        ptx::async_copy(to, x + i * 4);
      else
        *reinterpret_cast<float4*>(to) = make_float4(0, 0, 0, 0);
    }
  }
  // split replaces n steps of values that have come by their two parts, times F::kUp; times one + w where there is a norm, whose
  // sum of squares it returns.
  template <bool Norm, class F = Bf16>
  __device__ __forceinline__ float split(int step, int n, int row, const float* w, float one) const {
    const int lane = threadIdx.x & 31, t = lane & 3;
    float q = 0;
#pragma unroll 1
    for (int s0 = step; s0 < step + n; s0 += 8) {
      const int s = s0 + (lane >> 2);
      const bool real = s < step + n;
      float4 v[2] = {};
      if (real) {
        const float4* p = reinterpret_cast<const float4*>(data + (s * rows + row) * 128 + t * 32);
        v[0] = p[0], v[1] = p[1];
        if (Norm) {
          const float4* m = reinterpret_cast<const float4*>(w + s * kStep + t * 8);
#pragma unroll
          for (int i = 0; i < 2; i++) {
            const float4 u = m[i];
            q += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
            v[i].x *= one + u.x, v[i].y *= one + u.y, v[i].z *= one + u.z, v[i].w *= one + u.w;
          }
        }
        raise<F>(v[0]), raise<F>(v[1]);
      }
      __syncwarp();
      if (real) {
        uint4 hi, lo;
        mma::split(v[0].x, v[0].y, hi.x, lo.x);
        mma::split(v[0].z, v[0].w, hi.y, lo.y);
        mma::split(v[1].x, v[1].y, hi.z, lo.z);
        mma::split(v[1].z, v[1].w, hi.w, lo.w);
        *reinterpret_cast<uint4*>(data + place(s, row, 0, t)) = hi;
        *reinterpret_cast<uint4*>(data + place(s, row, 1, t)) = lo;
      }
    }
    return q;
  }
};

// Lane is where a lane's fragments of b are in a part of x.
template <bool Wide>
struct Lane {
  const Part& x;
  int high, low;  // of step 0; negative: no such row. Narrow: low is unused, high is either
  __device__ __forceinline__ Lane(const Part& x) : x(x) {
    const int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3, row = g & (Wide ? kRows - 1 : kRows / 2 - 1);
    high = row < x.rows ? x.place(0, row, Wide ? 0 : g >> 2, t) : -1;
    low = x.place(0, row, 1, t);
  }
  __device__ __forceinline__ void read(int step, uint4 (&f)[Wide ? 2 : 1]) const {
    f[0] = make_uint4(0, 0, 0, 0);
    if (Wide) f[Wide] = f[0];
    if (high < 0) return;
    const unsigned char* at = x.data + step * x.rows * 128;
    f[0] = *reinterpret_cast<const uint4*>(at + high);
    if (Wide) f[Wide] = *reinterpret_cast<const uint4*>(at + low);
  }
};

// Near holds all of a warp's steps. Spans are of steps here.
template <class F>
struct NearOf {
  Part part;  // of all of K
  __device__ __forceinline__ void turn(int) {}
  __device__ __forceinline__ void ready(int, int, int, int) {}
  __device__ __forceinline__ int place(int step) const { return step * F::kSteps; }

  // fetch starts the copy of row number i, x, of that many values.
  __device__ __forceinline__ void fetch(const Span& span, int i, const float* x, int values = 1 << 30) const {
    part.fetch(span.lo, span.hi - span.lo, i, x + span.lo * kStep, values - span.lo * kStep);
  }
  // split waits for what fetch and fetch_const have started and makes parts of it; it leaves squares of a norm's rows.
  template <bool Norm>
  __device__ __forceinline__ void split(const Span& span, const float* w, float one, float (*square)[kRows]) const {
    ptx::async_wait();
    __syncwarp();
#pragma unroll 1
    for (int r = 0; r < part.rows; r++) {
      float q = part.template split<Norm, F>(span.lo, span.hi - span.lo, r, w, one);
      if (Norm) {
#pragma unroll
        for (int d = 16; d; d /= 2) q += __shfl_xor_sync(~0u, q, d);
        if ((threadIdx.x & 31) == 0) square[threadIdx.x >> 5][r] = q;
      }
    }
    __syncwarp();
  }
};

using Near = NearOf<Bf16>;

// Window holds two chunks, and reads x [rows, K] for each tile again.
template <class P, class F = Bf16>
struct Window {
  static constexpr int kChunk = P::D * F::kSteps;      // steps
  static constexpr int kBytes = 2 * P::W * kChunk * 128;  // a row
  Part part;  // of this warp: two chunks
  const float* x;
  int K, now = 1;
  __device__ __forceinline__ Window(unsigned char* memory, const float* x, int rows, int K)
      : part{memory + (threadIdx.x >> 5) * (kBytes / P::W) * rows, rows}, x(x), K(K) {}
  __device__ __forceinline__ void turn(int) {}
  __device__ __forceinline__ int place(int) const { return now * kChunk; }
  __device__ __forceinline__ void fetch(int unit, int n) const {
#pragma unroll 1
    for (int r = 0; r < part.rows; r++)
      part.fetch((now ^ 1) * kChunk, n * F::kSteps, r, x + int64_t(r) * K + unit * F::kSteps * kStep);
  }
  // ready makes parts of the chunk that was fetched last, n units, and fetches the next.
  __device__ __forceinline__ void ready(int, int n, int next, int next_n) {
    ptx::async_wait();
    __syncwarp();  // all lanes have read the chunk before, too
    now ^= 1;
    fetch(next, next_n);
#pragma unroll 1
    for (int r = 0; r < part.rows; r++) part.template split<false, F>(now * kChunk, n * F::kSteps, r, nullptr, 0);
    __syncwarp();
  }
};

// Direct holds nothing but a lane's values of the next step. Up to 4 rows.
template <class F>
struct DirectOf {
  const float* x;  // of this lane's row, its values of step 0; null: no such row
  Span span;       // of steps
  float4 a = {}, b = {};
  __device__ __forceinline__ DirectOf(const float* from, int rows, int K, const Span& units) : span(in_steps<F>(units)) {
    const int row = (threadIdx.x & 31) >> 2 & 3;
    x = row < rows && span.lo < span.hi ? from + int64_t(row) * K + (threadIdx.x & 3) * 8 : nullptr;
    load(span.lo);
  }
  __device__ __forceinline__ void load(int step) {
    if (!x) return;
    const float4* p = reinterpret_cast<const float4*>(x + step * kStep);
    a = ptx::load_l2(p), b = ptx::load_l2(p + 1);
  }
  __device__ __forceinline__ void turn(int) {}
  __device__ __forceinline__ void ready(int, int, int, int) {}
  __device__ __forceinline__ int place(int step) const { return step * F::kSteps; }
  // read takes the step that was loaded, which must be this one, and loads the next: after a tile's last, its first.
  __device__ __forceinline__ void read(int step, uint4 (&f)[1]) {
    float4 u = a, v = b;
    raise<F>(u), raise<F>(v);
    load(step + 1 < span.hi ? step + 1 : span.lo);
    const bool high = (threadIdx.x & 16) == 0;
    uint4 hi, lo;
    mma::split(u.x, u.y, hi.x, lo.x);
    mma::split(u.z, u.w, hi.y, lo.y);
    mma::split(v.x, v.y, hi.z, lo.z);
    mma::split(v.z, v.w, hi.w, lo.w);
    f[0] = make_uint4(high ? hi.x : lo.x, high ? hi.y : lo.y, high ? hi.z : lo.z, high ? hi.w : lo.w);
  }
};

// lane_of is what a lane reads fragments by.
template <bool Wide, class X>
__device__ __forceinline__ Lane<Wide> lane_of(const X& x) {
  return Lane<Wide>(x.part);
}
template <bool Wide, class F>
__device__ __forceinline__ DirectOf<F>& lane_of(DirectOf<F>& x) {
  return x;
}

// ------------------------------------------------------------------------------------------------------------- product

// total sums what the warps have for one output of a tile, of those from first on that meet.
template <class P, class F, template <class, class> class S>
__device__ __forceinline__ float total(const S<P, F>& s, int tile, int first, int r, int col) {
  float v = s.at(tile, first, 0, col, r);
#pragma unroll
  for (int w = 1; w < P::W; w++) v += s.at(tile, first, w, col, r);
  return F::kFactor == 1 ? v : v * F::kFactor;
}
template <class P, class F>
__device__ __forceinline__ float total(const Shared<P, F>& s, int tile, int r, int col) {
  return total(s, tile, tile, r, col);
}

// norm_factor is 1/sqrt(mean square + eps) of a row, once its squares are there.
template <class P, class F, template <class, class> class S>
__device__ __forceinline__ float norm_factor(const S<P, F>& s, int row, int K, float eps) {
  float q = 0;
#pragma unroll
  for (int w = 0; w < P::W; w++) q += s.square[w][row];
  return rsqrtf(q / float(K) + eps);
}

// steps multiplies units I … of a chunk of n, whose x stands from place at, and loads the next chunk's behind each.
template <int I, bool Wide, class P, class F, class L>
__device__ __forceinline__ void steps(Flow<P, F>& flow, int n, L& lane, int at, float (&acc)[F::kTile / 16][Wide ? 2 : 1][4]) {
  if constexpr (I < P::D) {
    if (I < n) F::template multiply<Wide>(flow.unit[I], lane, at + I * F::kSteps, acc);
    flow.load(I);
    steps<I + 1, Wide>(flow, n, lane, at, acc);
  }
}

// leave puts a warp's sums of a tile where total finds them.
template <bool Wide, class F>
__device__ __forceinline__ void leave(float (*to)[F::kTile + 4], float (&acc)[F::kTile / 16][Wide ? 2 : 1][4]) {
  const int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
#pragma unroll
  for (int m = 0; m < F::kTile / 16; m++) {
    float(&v)[4] = acc[m][0];
    if (Wide) {
#pragma unroll
      for (int i = 0; i < 4; i++) v[i] += acc[m][Wide][i];
    } else {  // columns 4 to 7 hold the low parts of rows 0 to 3
#pragma unroll
      for (int i = 0; i < 4; i++) v[i] += __shfl_xor_sync(~0u, v[i], 2);
    }
    const int r = m * 16 + g;
    if (Wide || t < 2) to[2 * t][r] = v[0], to[2 * t + 1][r] = v[1], to[2 * t][r + 8] = v[2], to[2 * t + 1][r + 8] = v[3];
  }
}

// scales_chunks says whether a chunk's sums are multiplied by factors that the job has for its rows: of formats whose rows have
// scales, where those change along K.
template <class F, class Job>
__host__ __device__ constexpr bool scales_chunks() {
  if constexpr (F::kScaled) return Job::kFactors;
  return false;
}

// multiply takes all tiles of the block. X gives turn(tile) before a tile, and ready(step, n, next, next_n) and place(step) for a
// chunk's fragments, which lane_of(x) reads; Out gives begin(tile, n) before the sums of n tiles that meet and emit(tile, n) after them, by
// all threads.
template <bool Wide, class P, class F, class X, class Job, class Out>
__device__ __forceinline__ void multiply(Flow<P, F>& flow, X& x, Shared<P, F>& s, const Job& job, Out& out) {
  const int g = (threadIdx.x & 31) >> 2;
  const Span span = flow.span;
  auto&& lane = lane_of<Wide>(x);
  for (int tile = 0; tile < job.tiles(); tile++) {
    x.turn(tile);
    out.begin(tile, 1);
    if (P::A > 0) flow.ahead(job, tile + P::A);
    float acc[F::kTile / 16][Wide ? 2 : 1][4] = {};
    for (int step = span.lo; step < span.hi;) {
      const int n = flow.count, after = step + n, next = after < span.hi ? after : span.lo;
      flow.plan(job, after < span.hi ? tile : tile + 1, next);
      x.ready(step, n, next, flow.count);
      if constexpr (scales_chunks<F, Job>()) {
        float factor[F::kTile / 8], part[F::kTile / 16][Wide ? 2 : 1][4] = {};
#pragma unroll
        for (int j = 0; j < F::kTile / 8; j++) factor[j] = job.factor(tile, g + 8 * j, step);
        steps<0, Wide>(flow, n, lane, x.place(step), part);
#pragma unroll
        for (int m = 0; m < F::kTile / 16; m++)
#pragma unroll
          for (int p = 0; p <= Wide; p++)
#pragma unroll
            for (int i = 0; i < 4; i++) acc[m][p][i] = fmaf(factor[2 * m + i / 2], part[m][p][i], acc[m][p][i]);
      } else {
        steps<0, Wide>(flow, n, lane, x.place(step), acc);
      }
      step = after;
    }
    leave<Wide, F>(s.sum[tile & 1][threadIdx.x >> 5], acc);
    __syncthreads();
    out.emit(tile, 1);
  }
}

}  // namespace tiles
