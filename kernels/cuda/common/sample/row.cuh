// SPDX-License-Identifier: MIT OR Apache-2.0
// What sampling reads and writes of a row, and the numbers that it computes with. Masses are integers and logits are rounded in
// every operation, so that any order of summation, and the CPU's sampler (internal/sample), give the same token.
#pragma once

#include <cstdint>

#include "reduce/warp.cuh"

constexpr int kThreads = 512;           // of a block
constexpr int kEach = 8;                // consecutive logits of a thread
constexpr int kTile = kThreads * kEach; // logits of a block
constexpr int kBuckets = 2048;          // over x
constexpr int kList = 4096;             // tokens that a block can sort
constexpr int kBest = 64;               // likeliest tokens that a row gives
constexpr int kIdBits = 19;             // of a vocabulary
constexpr float kMax = 3.40282347e38f;

enum : uint32_t { kGreedy = 1, kRank = 2, kCounts = 4 };

// Draw is what the host says of a row (internal/exec/draw.go has the same layout).
struct Draw {
  int32_t out;     // row of logits
  uint32_t flags;  // kGreedy: the largest; kRank: no draw, the top_k likeliest; kCounts: there are penalties
  int32_t seat;    // of its counts, edits and newest token; -1: none
  int32_t token;   // of kRank: whose logit is wanted too; -1: none
  uint64_t index;  // tokens generated before
  uint64_t seed;
  uint64_t top_p;  // share in units of 2^-64; 0: all
  float scale;     // x = (logit - max) * scale
  float low;       // least x that may be drawn
  float sigmas;    // 0: all
  uint32_t top_k;  // 0: all
  float repetition, frequency, presence;
  int32_t mask;         // row of masks; -1: none
  int32_t biases, bans; // edits of its seat: first those, then these
};
static_assert(sizeof(Draw) == 80, "the host writes 20 words");

// shared_draw brings a row's words into the block's memory and says whether the step has that row. Both loads are under way at once.
__device__ __forceinline__ bool shared_draw(Draw& d, const int32_t* head, const Draw* draws, int row) {
  uint32_t word = 0;
  const bool mine = threadIdx.x < sizeof(Draw) / 4;
  if (mine) word = reinterpret_cast<const uint32_t*>(draws + row)[threadIdx.x];
  const bool real = row < head[3];
  if (mine) reinterpret_cast<uint32_t*>(&d)[threadIdx.x] = word;
  __syncthreads();
  return real;
}

// Result is what a row gives.
struct Result {
  int32_t token;  // -1: nothing is allowed; -2: the logit of token where is no number
  int32_t where;
  float logit;     // of the token, as the model gave it
  float top;       // largest logit
  uint64_t total;  // of kRank: the sum of masses
  uint64_t unused;
};
static_assert(sizeof(Result) == 32, "the host reads 8 words");

struct Best {
  int32_t token;
  float logit;
};

// Edit is added to a logit; a ban's is not looked at.
struct Edit {
  int32_t token;
  float value;
};

// Tile is what one block knows of its logits.
struct Tile {
  uint64_t best;  // order of the largest, then the complement of its id
  float least;    // above -Inf
  int32_t count;  // above -Inf, with sigmas
  double sum, squares;
};
static_assert(sizeof(Tile) == 32, "the manifest says 8 words");

// order rises with v; both zeros are one, and a NaN is above all.
__device__ __forceinline__ uint32_t order(float v) {
  if (v != v) return ~0u;
  const uint32_t u = __float_as_uint(__fadd_rn(v, 0.0f));
  return u >> 31 ? ~u : u | 0x80000000u;
}
__device__ __forceinline__ float unorder(uint32_t o) { return __uint_as_float(o >> 31 ? o & 0x7fffffffu : ~o); }

// place orders the tokens of a row: by logit falling, then by id.
__device__ __forceinline__ uint64_t place(uint32_t top, float v, int id) { return uint64_t(top - order(v)) << kIdBits | unsigned(id); }
__device__ __forceinline__ float logit_at(uint32_t top, uint64_t place) { return unorder(top - uint32_t(place >> kIdBits)); }
__device__ __forceinline__ int id_at(uint64_t place) { return int(place & ((1u << kIdBits) - 1)); }

constexpr float kCutoff = -30;  // x of a token without mass

// make_powers fills 2^-i/256 in units of 2^-31.
__device__ __forceinline__ void make_powers(uint32_t* powers) {
#pragma unroll 1
  for (int i = threadIdx.x; i < 256; i += kThreads) {
    const uint64_t f = uint64_t(i) << 24;
    uint64_t t = 0x00539DEBu - (f * 0x00072C34u >> 32);
    t = 0x0273DA07u - (f * t >> 32);
    t = 0x0E34AACEu - (f * t >> 32);
    t = 0x3D7F584Eu - (f * t >> 32);
    t = 0xB17215C4u - (f * t >> 32);
    powers[i] = uint32_t(((uint64_t(1) << 32) - (f * t >> 32)) >> 1);
  }
}

// mass is e^x in units of 2^-44 for x in [kCutoff, 0], and 0 below.
__device__ __forceinline__ uint64_t mass(const uint32_t* powers, float x) {
  if (x < kCutoff) return 0;
  const uint64_t p = uint64_t(uint32_t(-x * 67108864.0f)) * 0xB8AA3B29u;
  const uint64_t z = uint64_t(uint32_t(p >> 25) & 0xffffffu) * 0xB17217F8u >> 32;
  return uint64_t(powers[p >> 49 & 255]) * ((uint64_t(1) << 32) - z + (z * z >> 33)) >> (p >> 57) + 19;
}

__device__ __forceinline__ uint64_t high64(uint64_t a, uint64_t b) {
#ifdef METRALE_HOST
  return uint64_t((unsigned __int128)a * b >> 64);
#else
  return __umul64hi(a, b);
#endif
}

// random64 is words 0 and 1 of Philox4x32-10 with the seed as key and the index as counter.
__device__ __forceinline__ uint64_t random64(uint64_t seed, uint64_t index) {
  uint32_t c0 = uint32_t(index), c1 = uint32_t(index >> 32), c2 = 0, c3 = 0, k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  for (int i = 0; i < 10; i++) {
    const uint64_t a = uint64_t(0xD2511F53u) * c0, b = uint64_t(0xCD9E8D57u) * c2;
    c0 = uint32_t(b >> 32) ^ c1 ^ k0, c1 = uint32_t(b), c2 = uint32_t(a >> 32) ^ c3 ^ k1, c3 = uint32_t(a);
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return uint64_t(c0) << 32 | c1;
}

// Memory is where a row's numbers are.
struct Memory {
  const float* logits;     // [vocab] of the row
  const uint32_t* counts;  // [vocab] of its seat: bit 31 seen, below it how often in the text
  const Edit* edits;       // of its seat
  const uint32_t* mask;    // [ceil(vocab, 32)], or null
  int vocab;
};

__device__ __forceinline__ float finite(float v) { return v > kMax ? kMax : v; }

// Stage holds a tile's logits in shared memory: a thread's are its column.
struct Stage {
  float at[kEach][kThreads];

  __device__ float& mine(int j) { return at[j][threadIdx.x]; }
  __device__ float& of(int i) { return at[i % kEach][i / kEach]; }  // of a logit of the tile
};

// stage brings a tile's logits as the policy makes them, in the order mask, bias, penalties; past the vocabulary they are -Inf. Every
// thread of the block calls it and may use its own column then. Loops stay loops: code is fetched once a launch, and cold.
__device__ __forceinline__ void stage(Stage& s, const Draw& d, const Memory& m, int tile) {
  const int first = tile * kTile, base = first + threadIdx.x * kEach, n = m.vocab - base;
  if (n >= kEach && reinterpret_cast<uintptr_t>(m.logits) % 16 == 0) {
    const float4 a = *reinterpret_cast<const float4*>(m.logits + base), b = *reinterpret_cast<const float4*>(m.logits + base + 4);
    s.mine(0) = a.x, s.mine(1) = a.y, s.mine(2) = a.z, s.mine(3) = a.w;
    s.mine(4) = b.x, s.mine(5) = b.y, s.mine(6) = b.z, s.mine(7) = b.w;
  } else {
#pragma unroll 1
    for (int j = 0; j < kEach; j++) s.mine(j) = j < n ? m.logits[base + j] : -INFINITY;
  }
  if (d.flags & kRank) return;
  if (m.mask && n > 0) {
    const uint32_t allowed = m.mask[base / 32] >> base % 32;
#pragma unroll 1
    for (int j = 0; j < kEach; j++)
      if (!(allowed >> j & 1)) s.mine(j) = -INFINITY;
  }
  if (d.biases + d.bans > 0) {
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < d.biases; i += kThreads) {
      const int at = m.edits[i].token - first;
      if (at >= 0 && at < kTile) s.of(at) = finite(__fadd_rn(s.of(at), m.edits[i].value));
    }
    __syncthreads();
#pragma unroll 1
    for (int i = d.biases + threadIdx.x; i < d.biases + d.bans; i += kThreads) {
      const int at = m.edits[i].token - first;
      if (at >= 0 && at < kTile) s.of(at) = -INFINITY;
    }
    __syncthreads();
  }
  if (d.flags & kCounts) {
#pragma unroll 1
    for (int j = 0; j < kEach && j < n; j++) {
      const uint32_t c = m.counts[base + j];
      if (c == 0) continue;
      float v = s.mine(j);
      v = v > 0 ? __fdiv_rn(v, d.repetition) : __fmul_rn(v, d.repetition);
      if (const uint32_t text = c & 0x7fffffffu) v = __fsub_rn(__fsub_rn(v, __fmul_rn(d.frequency, float(text))), d.presence);
      s.mine(j) = finite(v);
    }
  }
}

// last says to every thread of one of the blocks that all have come here; what they wrote before is visible to it.
__device__ __forceinline__ bool last(uint32_t* arrived, int blocks) {
  __shared__ bool is;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is = atomicInc(arrived, unsigned(blocks - 1)) == unsigned(blocks - 1);
  __syncthreads();
  __threadfence();
  return is;
}
