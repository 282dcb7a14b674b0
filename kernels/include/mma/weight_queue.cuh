// SPDX-License-Identifier: MIT OR Apache-2.0
// A few rows of x times a matrix whose rows stream through shared memory: what weight_tiles.cuh does in registers, for launches of
// several phases, whose weights are on their way while blocks wait for each other.
//
// A warp's queue is its own, and each lane copies what it will itself read, so nobody waits for another's copies:
//
//	step   1 KiB   [row g: 32 lanes × 16 bytes | row g+8: 32 lanes × 16 bytes],  lane 4g+t has values 8t to 8t+7
//	piece  4 steps, or fewer at the end of a run of steps that lie behind each other
//
// P pieces are on their way at a time; what is loaded otherwise waits behind them. Which pieces come is a feed's to say.
//
// Order of a sum: steps rising, their first and second 16 values apart, x's high and low parts apart; (first + second) of the high
// parts + the same of the low ones.
#pragma once

#include "../ptx/sm90.cuh"
#include "bf16.cuh"

namespace queue {

constexpr int kTile = 16;  // weight rows
constexpr int kRows = 8;   // of x
constexpr int kStep = 32;  // values of K
constexpr int kPiece = 4;  // steps

// Share is this block's part of count units; blocks times units are below 2^32.
struct Share {
  int lo, n;
  __device__ __forceinline__ explicit Share(unsigned count) : lo(blockIdx.x * count / gridDim.x), n((blockIdx.x + 1) * count / gridDim.x - lo) {}
};

// Span is warp's part of a number of steps, of all warps of the block.
template <int Warps>
struct Span {
  int lo, n;
  __device__ __forceinline__ explicit Span(int steps) {
    const int warp = threadIdx.x >> 5;
    lo = warp * steps / Warps, n = (warp + 1) * steps / Warps - lo;
  }
};

// ------------------------------------------------------------------------------------------------------------------- x

// place is where 16 bytes of a step of x or h are, whose bf16 parts take 128: values 8t to 8t+7 of the high or the low part; halves
// of odd rows change places, so that neighbours' reads do not collide.
__device__ __forceinline__ int place(int row, int part, int t) { return (part ^ (row & 1)) * 64 + t * 16; }

// put_parts splits 8 values to where their high parts belong.
__device__ __forceinline__ void put_parts(unsigned char* region, int high, const float (&v)[8]) {
  uint4 hi, lo;
  mma::split(v[0], v[1], hi.x, lo.x);
  mma::split(v[2], v[3], hi.y, lo.y);
  mma::split(v[4], v[5], hi.z, lo.z);
  mma::split(v[6], v[7], hi.w, lo.w);
  *reinterpret_cast<uint4*>(region + high) = hi;
  *reinterpret_cast<uint4*>(region + (high ^ 64)) = lo;
}

// sum_over_lanes adds N values over the lanes at once; lanes 32/N·i and on get value i. A lane passes on the half it does not keep.
template <int N, int D = 16>
__device__ __forceinline__ float sum_over_lanes(float (&v)[N]) {
  if constexpr (N > 1) {
    const bool upper = threadIdx.x & D;
    float half[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++) half[i] = (upper ? v[i + N / 2] : v[i]) + __shfl_xor_sync(~0u, upper ? v[i] : v[i + N / 2], D);
    return sum_over_lanes<N / 2, D / 2>(half);
  } else {
    float sum = v[0];
#pragma unroll
    for (int d = D; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    return sum;
  }
}

// Fragments are those of a row for this lane, from a step on. Without a row they are 0.
template <bool Wide>
struct Fragments {
  const unsigned char* at;  // high part of the next step
  int step, low;            // bytes to the next step, to the low part
  bool real;
  // row is the place in a step that region begins with, or negative; number says which of its halves comes first.
  __device__ __forceinline__ Fragments(const unsigned char* region, int row, int number, int step) : step(step), low(number & 1 ? -64 : 64), real(row >= 0) {
    at = region + row * 128 + place(number, Wide ? 0 : (threadIdx.x & 31) >> 4, threadIdx.x & 3);
  }
  __device__ __forceinline__ void read(int i, uint4 (&f)[Wide ? 2 : 1]) const {
    f[0] = make_uint4(0, 0, 0, 0);
    if (Wide) f[Wide] = f[0];
    if (!real) return;
    f[0] = *reinterpret_cast<const uint4*>(at + i * step);
    if (Wide) f[Wide] = *reinterpret_cast<const uint4*>(at + i * step + low);
  }
  __device__ __forceinline__ void pass(int n) { at += n * step; }
};
// row_of is the row of x whose column of b this lane has; narrow, columns 4 to 7 are the low parts of rows 0 to 3.
template <bool Wide>
__device__ __forceinline__ int row_of(int rows) {
  const int row = (threadIdx.x & 31) >> 2 & (Wide ? kRows - 1 : kRows / 2 - 1);
  return row < rows ? row : -1;
}

// ------------------------------------------------------------------------------------------------------------- weights

// Queue is fed by a feed's next(p0, p1): the steps of the next piece of this warp, 0 if none is known, and where this lane's values
// of rows g and g+8 begin.
template <int P>
struct Queue {
  static constexpr int kPieces = P, kBytes = P * kPiece * 1024;  // of a warp
  unsigned char* mine;                                           // this lane's 16 bytes of the first step
  int put = 0, got = 0, ahead = 0;                               // where the next piece goes, is; pieces between

  __device__ __forceinline__ Queue(unsigned char* memory) : mine(memory + (threadIdx.x >> 5) * kBytes + (threadIdx.x & 31) * 16) {}

  // ask asks for a piece; false: there is none, yet.
  template <class Feed>
  __device__ __forceinline__ bool ask(Feed& feed) {
    const uint16_t *p0, *p1;
    const int n = feed.next(p0, p1);
    unsigned char* to = mine + put;
#pragma unroll
    for (int i = 0; i < kPiece; i++)
      if (i < n) ptx::async_copy_passing(to + i * 1024, p0 + i * kStep), ptx::async_copy_passing(to + i * 1024 + 512, p1 + i * kStep);
    return n > 0;
  }
  // pass makes what was asked for a group: one a piece, whether something comes or not.
  __device__ __forceinline__ void pass() {
    ptx::async_commit();
    put = after(put), ahead++;
  }
  __device__ __forceinline__ static int after(int at) { return at + kPiece * 1024 == kBytes ? 0 : at + kPiece * 1024; }
  // begin asks for what is known, fill for all that there is room for.
  template <class Feed>
  __device__ __forceinline__ void begin(Feed& feed) {
#pragma unroll 1
    while (ahead < P && ask(feed)) pass();
  }
  template <class Feed>
  __device__ __forceinline__ void fill(Feed& feed) {
#pragma unroll 1
    while (ahead < P) ask(feed), pass();
  }
};

// take multiplies a piece of N steps; x.read(i, f) gives the fragments of a step.
template <int N, bool Wide, int P, class X>
__device__ __forceinline__ void take(const Queue<P>& q, const X& x, float (&acc)[2][Wide ? 2 : 1][4]) {
  constexpr int kAtOnce = Wide ? 2 : 4;  // registers
  const unsigned char* at = q.mine + q.got;
#pragma unroll
  for (int s = 0; s < N; s += kAtOnce) {
    uint4 a[kAtOnce], c[kAtOnce], f[kAtOnce][Wide ? 2 : 1];
#pragma unroll
    for (int i = 0; i < kAtOnce; i++)
      if (s + i < N) {
        a[i] = *reinterpret_cast<const uint4*>(at + (s + i) * 1024);
        c[i] = *reinterpret_cast<const uint4*>(at + (s + i) * 1024 + 512);
        x.read(s + i, f[i]);
      }
#pragma unroll
    for (int i = 0; i < kAtOnce; i++)
      if (s + i < N)
#pragma unroll
        for (int p = 0; p <= Wide; p++) {
          mma::bf16(acc[0][p], a[i].x, c[i].x, a[i].y, c[i].y, f[i][p].x, f[i][p].y);
          mma::bf16(acc[1][p], a[i].z, c[i].z, a[i].w, c[i].w, f[i][p].z, f[i][p].w);
        }
  }
}

// product adds a run of n steps, and asks for as many pieces as it takes.
template <bool Wide, int P, class Feed, class X>
__device__ __forceinline__ void product(Queue<P>& q, Feed& feed, X& x, int n, float (&acc)[2][Wide ? 2 : 1][4]) {
#pragma unroll 1
  for (; n > 0; n -= kPiece) {
    ptx::async_wait_but<P - 1>();
    if (n >= 4) take<4, Wide>(q, x, acc);
    else if (n == 3) take<3, Wide>(q, x, acc);
    else if (n == 2) take<2, Wide>(q, x, acc);
    else take<1, Wide>(q, x, acc);
    x.pass(kPiece);
    q.got = q.after(q.got), q.ahead--;
    q.ask(feed);
    q.pass();
  }
}

// leave writes a warp's sums of a tile, [col][row of the tile].
template <bool Wide>
__device__ __forceinline__ void leave(const float (&acc)[2][Wide ? 2 : 1][4], float (*to)[kTile + 4]) {
  const int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
  float v[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    v[i] = acc[0][0][i] + acc[1][0][i];
    if (Wide) v[i] += acc[0][Wide][i] + acc[1][Wide][i];
    else v[i] += __shfl_xor_sync(~0u, v[i], 2);  // columns 4 to 7 hold the low parts of rows 0 to 3
  }
  if (Wide || t < 2) to[2 * t][g] = v[0], to[2 * t + 1][g] = v[1], to[2 * t][g + 8] = v[2], to[2 * t + 1][g + 8] = v[3];
}

}  // namespace queue
