// SPDX-License-Identifier: MIT OR Apache-2.0
// A few rows of x times a matrix whose rows stream through shared memory: the body of every linear-like kernel of 1 to 8 rows.
//
// A block of 8 warps owns a few tiles of 16 weight rows and goes over them in groups of 4, over K in windows of 512 values:
//
//	          window 0    window 1  …              ring in shared memory: [stages] of one tile × one window
//	tile 0   [16 × 512]  [16 × 512]                 row 0   1024 bytes | 64 pad
//	tile 1   [16 × 512]  …                          row 1   1024 bytes | 64 pad     rows alternate between halves of the
//	tile 2                                          …                               banks, so 16-byte reads do not collide
//	tile 3      chunks go down, then right
//
// The weights are the a of mma.m16n8k16 and the rows of x its 8 columns (columns past the real rows are 0): wide, 8 rows, whose
// low parts take a second mma; else 4 rows, and the other columns are their low parts. Within a window, warp w takes the
// 32-value blocks w and w+8: a split of K over the warps, summed at the end of a group.
//
// Order of a sum, whatever the number of rows or blocks: per warp, blocks rising, 16 values by one mma, x's high part and low
// part by themselves; high + low; warps 0 to 7 in order.
//
// Each warp also orders the copies of two rows: it fills the ring before it waits for the predecessor launch, so memory works
// through the launch boundary, and after each chunk refills the place of the one before, which all warps have left by then.
#pragma once

#include "../mma/bf16.cuh"
#include "../ptx/sm90.cuh"

namespace stream {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kGroup = 4;        // tiles of a group
constexpr int kTile = 16;        // weight rows of a tile
constexpr int kRows = 8;         // of x
constexpr int kWindow = 512;     // values of K
constexpr int kBlocks = kWindow / 32;
constexpr int kRowBytes = 2 * kWindow;
constexpr int kPitch = kRowBytes + 64;
constexpr int kStage = kTile * kPitch;
constexpr int kMaxStages = 12;

struct Shared {
  uint64_t full[kMaxStages], empty[kMaxStages];
  float square[kWarps][kRows];
  float sum[kWarps][kGroup][kTile][kRows];
};
static_assert(sizeof(Shared) == 16832, "manifests: shared = 16832 + 17408 per stage");
static_assert(kStage == 17408, "the same");

// Place is where in the ring a reader or the writer stands.
struct Place {
  int stage = 0;
  uint32_t parity = 0;
};

struct Ring {
  Shared* s;
  unsigned char* data;
  int stages;
  Place from, to;  // of the next chunk to read; to write

  __device__ __forceinline__ void step(Place& p) const {
    if (++p.stage == stages) p.stage = 0, p.parity ^= 1;
  }
};

// start lays out dynamic shared memory: Shared, extra bytes (a multiple of 16), stages. All threads call it, first of all, and meet.
__device__ __forceinline__ Ring start(unsigned char* shared, int extra = 0) {
  ptx::start_successor();
  Ring r;
  r.s = reinterpret_cast<Shared*>(shared);
  r.data = shared + sizeof(Shared) + extra;
  r.stages = min(kMaxStages, int(ptx::dynamic_shared_bytes() - sizeof(Shared) - extra) / kStage);
  if (threadIdx.x < r.stages) {
    ptx::mbarrier_init(&r.s->full[threadIdx.x], kWarps);
    ptx::mbarrier_init(&r.s->empty[threadIdx.x], kWarps);
    ptx::mbarrier_publish();
  }
  __syncthreads();
  return r;
}

// Walk is the order of the chunks: by group, window, tile.
struct Walk {
  int tiles, windows;
  int t0 = 0, t = 0, w = 0;

  __device__ __forceinline__ bool more() const { return t0 < tiles; }
  __device__ __forceinline__ void step() {
    if (++t < min(t0 + kGroup, tiles)) return;
    if (++w == windows) w = 0, t0 += kGroup;
    t = t0;
  }
};

// Source walks over chunks: more(), step(), and of the current one bytes() of a row's part and row(r), null where none is.
//
// fill orders this warp's part of the copy of the source's next chunk, if there is one: two rows, since the copies that the
// lanes of a warp order go out one after the other.
template <class Source>
__device__ __forceinline__ void fill(Ring& ring, Source& src) {
  if (!src.more()) return;
  const int lane = threadIdx.x & 31, r = 2 * (threadIdx.x >> 5) + lane;
  const Place at = ring.to;
  ptx::mbarrier_wait(&ring.s->empty[at.stage], at.parity ^ 1);
  const void* p = lane < 2 ? src.row(r) : nullptr;
  const uint32_t bytes = src.bytes();
  const unsigned live = __ballot_sync(~0u, p != nullptr);
  uint64_t* full = &ring.s->full[at.stage];
  if (lane == 0) ptx::mbarrier_expect(full, bytes * __popc(live));
  __syncwarp();
  if (p) ptx::bulk_copy(ring.data + at.stage * kStage + r * kPitch, p, bytes, full, ptx::evict_first());
  ring.step(ring.to);
  src.step();
}

// fill_all fills every stage of a new ring.
template <class Source>
__device__ __forceinline__ void fill_all(Ring& ring, Source& src) {
  for (int i = 0; i < ring.stages; i++) fill(ring, src);
}

// total sums what the warps have for one output of the group.
__device__ __forceinline__ float total(const Shared* s, int tile, int row, int col) {
  float v = s->sum[0][tile][row][col];
#pragma unroll
  for (int w = 1; w < kWarps; w++) v += s->sum[w][tile][row][col];
  return v;
}

// multiply takes tiles × windows chunks off the ring and goes on filling it from src.
//
// X gives windows(), values(window) of K in it, and reads rows of x: issue(window, block, raw) starts the loads of the lane's
// 8 values, finish(window, block, raw, v) makes them. Out takes a group's sums: begin(t0, n) before them, emit(t0, n) after them, by all threads;
// sums stand in Shared::sum until the barrier after emit.
template <bool Wide, class Source, class X, class Out>
__device__ __forceinline__ void multiply(Ring& ring, Source& src, X& x, Out& out, int tiles) {
  constexpr int kParts = Wide ? 2 : 1;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const int windows = x.windows();
  bool full = ring.to.stage == ring.from.stage;  // no chunk has been read since fill_all
  const unsigned char* mine = ring.data + g * kPitch + warp * 64 + t * 16;
  typename X::Raw raw[2];
  if (tiles > 0) {
    x.issue(0, warp, raw[0]);
    x.issue(0, warp + kWarps, raw[1]);
  }
  for (int t0 = 0; t0 < tiles; t0 += kGroup) {
    const int n = min(kGroup, tiles - t0);
    float acc[kGroup][kParts][4] = {};
    out.begin(t0, n);
    for (int w = 0; w < windows; w++) {
      uint32_t frag[kParts][2][4];
#pragma unroll
      for (int b = 0; b < 2; b++) {
        float v[8];
        x.finish(w, warp + b * kWarps, raw[b], v);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          uint32_t hi, lo;
          mma::split(v[2 * i], v[2 * i + 1], hi, lo);
          if (Wide) {
            frag[0][b][i] = hi, frag[kParts - 1][b][i] = lo;
          } else {
            frag[0][b][i] = g < kRows / 2 ? hi : lo;
          }
        }
      }
      const int values = x.values(w);
      const int after = w + 1 < windows ? w + 1 : 0;
      if (after > 0 || t0 + kGroup < tiles) {
        x.issue(after, warp, raw[0]);
        x.issue(after, warp + kWarps, raw[1]);
      }
#pragma unroll
      for (int m = 0; m < kGroup; m++) {
        if (m >= n) break;
        ptx::mbarrier_wait(&ring.s->full[ring.from.stage], ring.from.parity);
        const unsigned char* chunk = mine + ring.from.stage * kStage;
#pragma unroll
        for (int b = 0; b < 2; b++) {
          const int k = (warp + b * kWarps) * 32;
          if (k < values) {
            uint4 a = *reinterpret_cast<const uint4*>(chunk + b * kWarps * 64);
            uint4 c = *reinterpret_cast<const uint4*>(chunk + b * kWarps * 64 + 8 * kPitch);
            if (k + 32 > values && k + t * 8 >= values) a = c = make_uint4(0, 0, 0, 0);  // never copied
#pragma unroll
            for (int p = 0; p < kParts; p++) mma::bf16(acc[m][p], a.x, c.x, a.y, c.y, frag[p][b][0], frag[p][b][1]);
#pragma unroll
            for (int p = 0; p < kParts; p++) mma::bf16(acc[m][p], a.z, c.z, a.w, c.w, frag[p][b][2], frag[p][b][3]);
          }
        }
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(&ring.s->empty[ring.from.stage]);
        ring.step(ring.from);
        if (!full) fill(ring, src);
        full = false;
      }
    }
#pragma unroll
    for (int m = 0; m < kGroup; m++) {
      if (m >= n) break;
      float2* to = reinterpret_cast<float2*>(&ring.s->sum[warp][m][g][2 * t]);
      float* v = acc[m][0];
      if (Wide) {
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] += acc[m][kParts - 1][i];
        to[0] = make_float2(v[0], v[1]);
        to[8 * kRows / 2] = make_float2(v[2], v[3]);
      } else {  // columns 4 to 7 hold the low parts of rows 0 to 3
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] += __shfl_xor_sync(~0u, v[i], 2);
        if (t < 2) to[0] = make_float2(v[0], v[1]), to[8 * kRows / 2] = make_float2(v[2], v[3]);
      }
    }
    x.squares(ring.s, t0);
    __syncthreads();
    out.emit(t0, n);
    if (t0 + kGroup < tiles) __syncthreads();
  }
}

// column is the row of x that a lane holds values of.
__device__ __forceinline__ int column(bool wide) { return ((threadIdx.x & 31) >> 2) & (wide ? kRows - 1 : kRows / 2 - 1); }

// ------------------------------------------------------------------------------------------------------------ rows of x

// Plain rows of x [rows, K].
struct Rows {
  const float* row;  // of lane g; null if there is none
  int K;

  struct Raw {
    float4 a, b;
  };
  __device__ Rows(const float* x, int rows, int K, bool wide, const int32_t* pick = nullptr) : row(nullptr), K(K) {
    const int g = column(wide);
    if (g < rows) row = x + int64_t(pick ? ptx::load_l2(pick + g) : g) * K;
  }
  __device__ __forceinline__ int windows() const { return (K + kWindow - 1) / kWindow; }
  __device__ __forceinline__ int values(int window) const { return min(kWindow, K - window * kWindow); }
  __device__ __forceinline__ int at(int window, int block) const { return window * kWindow + block * 32 + (threadIdx.x & 3) * 8; }
  __device__ __forceinline__ void issue(int window, int block, Raw& r) const {
    const int k = at(window, block);
    r.a = r.b = make_float4(0, 0, 0, 0);
    if (row && k < K) {
      const float4* p = reinterpret_cast<const float4*>(row + k);
      r.a = ptx::load_l2(p);
      r.b = ptx::load_l2(p + 1);
    }
  }
  __device__ __forceinline__ void finish(int, int, const Raw& r, float (&v)[8]) {
    v[0] = r.a.x, v[1] = r.a.y, v[2] = r.a.z, v[3] = r.a.w;
    v[4] = r.b.x, v[5] = r.b.y, v[6] = r.b.z, v[7] = r.b.w;
  }
  __device__ __forceinline__ void squares(Shared*, int) const {}
};

// Rows that a root-mean-square norm goes before: x*w goes into the product, the row's factor is applied to its result.
struct NormRows : Rows {
  const float* w;  // [K] in shared memory
  float square = 0;

  __device__ NormRows(const float* x, int rows, int K, bool wide, const float* w, const int32_t* pick = nullptr)
      : Rows(x, rows, K, wide, pick), w(w) {}
  __device__ __forceinline__ void finish(int window, int block, const Raw& r, float (&v)[8]) {
    Rows::finish(window, block, r, v);
    const int k = at(window, block);
    if (!row || k >= K) return;
    const float4 a = *reinterpret_cast<const float4*>(w + k), b = *reinterpret_cast<const float4*>(w + k + 4);
#pragma unroll
    for (int i = 0; i < 8; i++) square += v[i] * v[i];
    v[0] *= a.x, v[1] *= a.y, v[2] *= a.z, v[3] *= a.w;
    v[4] *= b.x, v[5] *= b.y, v[6] *= b.z, v[7] *= b.w;
  }
  // The first group's pass has seen all of x.
  __device__ __forceinline__ void squares(Shared* s, int t0) {
    if (t0 == 0) {
      float q = square;
      q += __shfl_xor_sync(~0u, q, 1);
      q += __shfl_xor_sync(~0u, q, 2);
      if ((threadIdx.x & 3) == 0) s->square[threadIdx.x >> 5][(threadIdx.x & 31) >> 2] = q;
    }
  }
};

// norm_weights brings a norm's weights to dst in shared memory [K]; plus_one: they are stored around 0.
__device__ __forceinline__ void norm_weights(float* dst, const float* w, int K, int plus_one) {
  const float one = plus_one;
  for (int k = threadIdx.x * 4; k < K; k += kThreads * 4) {
    const float4 v = ptx::load_const(reinterpret_cast<const float4*>(w + k));
    *reinterpret_cast<float4*>(dst + k) = make_float4(one + v.x, one + v.y, one + v.z, one + v.w);
  }
}

// multiply_rows multiplies rows of x, or of their norm with weights in shared memory, as narrow as they allow.
template <bool Norm, class Source, class Out>
__device__ __forceinline__ void multiply_rows(Ring& ring, Source& src, Out& out, int tiles, int rows, const float* x, int K,
                                              const float* norm, const int32_t* pick) {
  const bool wide = rows > kRows / 2;
  if constexpr (Norm) {
    NormRows r(x, rows, K, wide, norm, pick);
    wide ? multiply<true>(ring, src, r, out, tiles) : multiply<false>(ring, src, r, out, tiles);
  } else {
    Rows r(x, rows, K, wide, pick);
    wide ? multiply<true>(ring, src, r, out, tiles) : multiply<false>(ring, src, r, out, tiles);
  }
}

// norm_factor is 1/sqrt(mean square + eps) of a row, once its squares are there.
__device__ __forceinline__ float norm_factor(const Shared* s, int row, int K, float eps) {
  float q = 0;
#pragma unroll
  for (int w = 0; w < kWarps; w++) q += s->square[w][row];
  return rsqrtf(q / float(K) + eps);
}

// ---------------------------------------------------------------------------------------------------------------- shares

// Share is this block's part of count units.
struct Share {
  int lo, hi;
  __device__ Share(int count)
      : lo(int64_t(blockIdx.x) * count / gridDim.x), hi(int64_t(blockIdx.x + 1) * count / gridDim.x) {}
};

}  // namespace stream
