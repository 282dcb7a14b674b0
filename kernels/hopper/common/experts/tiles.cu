// SPDX-License-Identifier: MIT OR Apache-2.0
// Family experts, many rows, bf16 weights as stored: rows are sorted by expert, then tiles of them meet tiles of its weights on the
// tensor cores. Five launches:
//
//	experts_sort       which slot (row, choice) stands where when slots are sorted by expert, in their order within one
//	experts_spread     x rounded to bf16, a copy at each of a row's places
//	experts_up_tiles   h = act(gate x) * (up x), rounded to bf16; of experts without a gate experts_act_tiles: h = act(up x)
//	experts_down_tiles d = down h, rounded to bf16
//	experts_combine    y = Σ weights * d over a row's choices, in order, then the shared expert's times sigmoid(scale); or y += it
//
//	places   0 … first[1] … first[2] …   first[E] = rows * k       sorted slots: x [places, H], h [places, I], d [places, H]
//	         expert 0   1       2
//
// An expert that every row takes is one more, whose places are behind those, in the order of the rows; its matrices are apart.
//
// Algorithm and order of sums: mma/ragged.cuh. H and I must divide by 8.

#include "../../../include/epilogue/fast_act.cuh"
#include "../../../include/mma/bf16.cuh"
#include "../../../include/mma/ragged.cuh"

namespace {

// mine is the row of w, of those of a warpgroup, that a thread's sums begin with: each warp has Each of them.
template <int Each>
__device__ __forceinline__ int mine() {
  return threadIdx.x % 128 / 32 * Each + threadIdx.x % 32 / 4;
}

// Up writes h = act(gate x) * (up x). Eights of rows of gate and up are in turns, so that a thread has both sums of an output.
template <class Glu, bool Shared>
struct Up {
  static constexpr int kCols = ragged::kCols / 2;
  const ptx::tensor_map *w, *gate, *up;  // [E, 2I, H] by eights of I, gate, up, row, K; [I, H] of the shared expert
  const float* bias;                     // [E, 2I], or null
  uint16_t* h;                           // [places, I]
  int E, I;
  float limit;

  __device__ __forceinline__ void copy(unsigned char* dst, const ragged::Tile& t, int k, uint64_t* full) const {
    constexpr int kEight = 8 * ragged::kDepth * 2;
    if (Shared && t.matrix == E) {
      for (int i = 0; i < ragged::kCols / 8; i++) ptx::tensor_copy(dst + i * kEight, i % 2 ? up : gate, k, t.col * kCols + i / 2 * 8, full);
      return;
    }
    ptx::tensor_copy(dst, w, k, 0, 0, t.col * 8, t.matrix, full);
  }
  template <int N>
  __device__ __forceinline__ void put(const float (&sums)[N], const ragged::Tile& t, int row, unsigned char* turn) const {
    const int col = t.col * kCols + row / 2, own = min(col + mine<8>(), I - 1);
    const float* b = bias ? bias + int64_t(t.matrix) * 2 * I + own : nullptr;
    const float g = b ? b[0] : 0, u = b ? b[I] : 0;
    const auto word = [&](int q) {
      const float* s = sums + 4 * q;
      return ptx::pack_bf16(Glu::of(s[0] + g, s[2] + u, limit), Glu::of(s[1] + g, s[3] + u, limit));
    };
    ragged::leave<4, N>(turn, word, h + int64_t(t.row) * I + col, I, t.end - t.row, I - col);
  }
};

// Plain writes y = act(w x): d = down h, and h of experts without a gate.
template <class Act, bool Shared>
struct Plain {
  const ptx::tensor_map *w, *shared;  // [E, N, K]; [1, N, K]
  const float* bias;                  // [E, N], or null
  uint16_t* y;                        // [places, N]
  int E, N;

  __device__ __forceinline__ void copy(unsigned char* dst, const ragged::Tile& t, int k, uint64_t* full) const {
    const bool own = Shared && t.matrix == E;
    ptx::tensor_copy(dst, own ? shared : w, k, t.col * ragged::kCols, own ? 0 : t.matrix, full);
  }
  template <int Sums>
  __device__ __forceinline__ void put(const float (&sums)[Sums], const ragged::Tile& t, int row, unsigned char* turn) const {
    const int col = t.col * ragged::kCols + row, own = col + mine<16>();
    const float* b = bias ? bias + int64_t(t.matrix) * N : nullptr;
    const float low = b ? b[min(own, N - 1)] : 0, high = b ? b[min(own + 8, N - 1)] : 0;
    const auto word = [&](int q) {
      const float v = q % 2 ? high : low;
      return ptx::pack_bf16(Act::of(sums[2 * q] + v), Act::of(sums[2 * q + 1] + v));
    };
    ragged::leave<8, Sums>(turn, word, y + int64_t(t.row) * N + col, N, t.end - t.row, N - col);
  }
};

}  // namespace

// experts_sort: a block finds the slots of one expert. Grid: E; 1024 threads, of which each warp takes a piece of the slots: it counts
// those of lower experts and of this one, then writes its own behind those of the warps before. A lane has four slots of 128, sixteen
// times; what it found there are 64 bits, so ids are read twice only if a piece is longer.
extern "C" __global__ void __launch_bounds__(1024, 2) experts_sort(const int32_t* __restrict__ count, /* [1] rows of this step */
                                                                   const int32_t* __restrict__ ids,   /* [rows, k] */
                                                                   int32_t* __restrict__ first,       /* [E+2] */
                                                                   int32_t* __restrict__ place,       /* [rows, k] */
                                                                   int32_t E, int32_t k) {
  constexpr int kStep = 128, kSteps = 16, kAtOnce = 4;
  __shared__ int lower[32], mine[32];
  ptx::start_successor();
  ptx::wait_for_predecessor();
  const int slots = *count * k, e = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int piece = (slots + 32 * kStep - 1) / (32 * kStep) * kStep, from = min(warp * piece, slots), to = min(from + piece, slots);
  int low = 0, same = 0;
  const auto look = [&](int base) {  // bit 4j + b: slot base + 128j + 4·lane + b is this expert's
    uint64_t hits = 0;
#pragma unroll
    for (int j0 = 0; j0 < kSteps; j0 += kAtOnce) {
      if (base + j0 * kStep >= to) break;
      int4 id[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; j++) {
        const int i = base + (j0 + j) * kStep + 4 * lane;
        if (i + 4 <= to) id[j] = *reinterpret_cast<const int4*>(ids + i);
        else id[j] = {i < to ? ids[i] : E, i + 1 < to ? ids[i + 1] : E, i + 2 < to ? ids[i + 2] : E, E};
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; j++) {
        low += (id[j].x < e) + (id[j].y < e) + (id[j].z < e) + (id[j].w < e);
        hits |= uint64_t((id[j].x == e) | (id[j].y == e) << 1 | (id[j].z == e) << 2 | (id[j].w == e) << 3) << 4 * (j0 + j);
      }
    }
    return hits;
  };
  uint64_t hits = 0;
  for (int base = from; base < to; base += kSteps * kStep) hits = look(base), same += __popc(uint32_t(hits)) + __popc(uint32_t(hits >> 32));
#pragma unroll
  for (int d = 16; d > 0; d /= 2) low += __shfl_xor_sync(~0u, low, d), same += __shfl_xor_sync(~0u, same, d);
  if (lane == 0) lower[warp] = low, mine[warp] = same;
  __syncthreads();
  int start = 0, total = 0, at = 0;
  for (int w = 0; w < 32; w++) {
    start += lower[w];
    if (w == warp) at = total;
    total += mine[w];
  }
  if (threadIdx.x == 0) {
    first[e] = start;
    if (e == E - 1) first[E] = start + total, first[E + 1] = start + total + *count;
  }
  at += start;
  for (int base = from; base < to; base += kSteps * kStep) {
    if (piece > kSteps * kStep) hits = look(base);
    for (int j = 0; j < kSteps; j++) {
      const uint32_t four = hits >> 4 * j & 15;
      if (!__any_sync(~0u, four != 0)) continue;
      int before = at;
#pragma unroll
      for (int b = 0; b < 4; b++) {
        const uint32_t all = __ballot_sync(~0u, four >> b & 1);
        before += __popc(all & ((1u << lane) - 1)), at += __popc(all);
      }
#pragma unroll
      for (int b = 0; b < 4; b++)
        if (four >> b & 1) place[base + j * kStep + 4 * lane + b] = before++;
    }
  }
}

// spread copies a row of x to its places.
template <bool Shared>
__device__ __forceinline__ void spread(const int32_t* count, const float* __restrict__ x, const int32_t* __restrict__ place, uint16_t* __restrict__ y, int H, int k) {
  ptx::wait_for_predecessor_first();  // the next launch reads what experts_sort wrote
  const int row = blockIdx.x, rows = *count;
  if (row >= rows) return;
  for (int i = threadIdx.x; i < H / 8; i += 256) {
    const float4* from = reinterpret_cast<const float4*>(x + int64_t(row) * H) + 2 * i;
    const float4 a = from[0], b = from[1];
    const uint4 v = {ptx::pack_bf16(a.x, a.y), ptx::pack_bf16(a.z, a.w), ptx::pack_bf16(b.x, b.y), ptx::pack_bf16(b.z, b.w)};
    for (int s = 0; s < k; s++) reinterpret_cast<uint4*>(y + int64_t(place[row * k + s]) * H)[i] = v;
    if (Shared) reinterpret_cast<uint4*>(y + (int64_t(rows) * k + row) * H)[i] = v;
  }
}

// Grid: rows; 256 threads.
#define SPREAD(NAME, SHARED)                                                                                   \
  extern "C" __global__ void __launch_bounds__(256) NAME(const int32_t* __restrict__ count, /* [1] rows */     \
                                                         const float* __restrict__ x,       /* [rows, H] */    \
                                                         const int32_t* __restrict__ place, /* [rows, k] */    \
                                                         uint16_t* __restrict__ y,          /* [places, H] */  \
                                                         int32_t H, int32_t k) {                               \
    spread<SHARED>(count, x, place, y, H, k);                                                                  \
  }

SPREAD(experts_spread, false)
SPREAD(experts_spread_shared, true)

#define MAP const __grid_constant__ ptx::tensor_map
#define X(NAME) MAP NAME##128, MAP NAME##64, MAP NAME##32, MAP NAME##16
#define BOXES(NAME) {{&NAME##128, &NAME##64, &NAME##32, &NAME##16}}
#define TILES extern "C" __global__ void __launch_bounds__(ragged::kThreads, 1)

#define UP(ACT)                                                                                                           \
  TILES experts_up_tiles_##ACT(const int32_t* __restrict__ first, /* [E+1] */                                             \
                               X(x),                              /* [places, H] bf16, boxes of 128, 64, 32, 16 × 64 */   \
                               MAP gate_up,                       /* [E, I/8, 2, 8, H] bf16, boxes of 8 × 2 × 8 × 64 */   \
                               const float* __restrict__ bias,    /* [E, 2I], or null */                                  \
                               uint16_t* __restrict__ h,          /* [places, I] */                                       \
                               int32_t E, int32_t H, int32_t I, float limit) {                                            \
    auto& s = ragged::begin();                                                                                            \
    const Up<fast_glu::ACT, false> work{&gate_up, nullptr, nullptr, bias, h, E, I, limit};                                      \
    ragged::multiply(s, BOXES(x), ragged::walk(first, E, 2 * I), work, H);                                                       \
  }                                                                                                                       \
  TILES experts_up_tiles_shared_##ACT(const int32_t* __restrict__ first, /* [E+2] */                                      \
                                      X(x), MAP gate_up,                                                                  \
                                      MAP gate, MAP up,                  /* [I, H] bf16, boxes of 8 × 64 */               \
                                      uint16_t* __restrict__ h, int32_t E, int32_t H, int32_t I, float limit) {           \
    auto& s = ragged::begin();                                                                                            \
    const Up<fast_glu::ACT, true> work{&gate_up, &gate, &up, nullptr, h, E, I, limit};                                             \
    ragged::multiply(s, BOXES(x), ragged::walk(first, E + 1, 2 * I), work, H);                                                   \
  }

UP(silu)
UP(gelu_tanh)
UP(silu_then_limit)
UP(swiglu_oai)

#define PLAIN(NAME, ACT)                                                                                                  \
  TILES NAME(const int32_t* __restrict__ first, /* [E+1] */                                                               \
             X(x),                              /* [places, K] bf16, boxes of 128, 64, 32, 16 × 64 */                     \
             MAP w,                             /* [E, N, K] bf16, boxes of 128 × 64 */                                   \
             const float* __restrict__ bias,    /* [E, N], or null */                                                     \
             uint16_t* __restrict__ y,          /* [places, N] */                                                         \
             int32_t E, int32_t N, int32_t K) {                                                                           \
    auto& s = ragged::begin();                                                                                            \
    ragged::multiply(s, BOXES(x), ragged::walk(first, E, N), Plain<act::ACT, false>{&w, nullptr, bias, y, E, N}, K);      \
  }

PLAIN(experts_down_tiles, none)
PLAIN(experts_act_tiles_relu2, relu2)

TILES experts_down_tiles_shared(const int32_t* __restrict__ first, /* [E+2] */
                                X(h), MAP down,
                                MAP shared,                        /* [1, H, I] bf16, boxes of 128 × 64 */
                                uint16_t* __restrict__ d, int32_t E, int32_t H, int32_t I) {
  auto& s = ragged::begin();
  ragged::multiply(s, BOXES(h), ragged::walk(first, E + 1, H), Plain<act::none, true>{&down, &shared, nullptr, d, E, H}, I);
}

// What combine does with a row's sum; and with the shared expert's place.
enum { kSet, kAdd, kAddShared };

// Grid: rows; 256 threads, each with eight columns at a time.
template <int How>
__device__ __forceinline__ void combine(const int32_t* count, const float* __restrict__ weights, const int32_t* __restrict__ place,
                                        const float* __restrict__ scale, const uint16_t* __restrict__ d, float* y, int H, int k) {
  ptx::start_successor();
  ptx::wait_for_predecessor();
  const int row = blockIdx.x, rows = *count;
  if (row >= rows) return;
  const float own = How == kAddShared && scale ? act::sigmoid::of(scale[row]) : 1.0f;
  for (int i = threadIdx.x; i < H / 8; i += 256) {
    float sum[8] = {};
    const auto add = [&](int64_t at, float w) {
      const uint4 v = reinterpret_cast<const uint4*>(d + at * H)[i];
      const uint32_t pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int j = 0; j < 4; j++) sum[2 * j] = fmaf(w, mma::low(pairs[j]), sum[2 * j]), sum[2 * j + 1] = fmaf(w, mma::high(pairs[j]), sum[2 * j + 1]);
    };
    for (int s = 0; s < k; s++) add(place[row * k + s], weights[row * k + s]);
    if (How == kAddShared) add(int64_t(rows) * k + row, own);
    float4* out = reinterpret_cast<float4*>(y + int64_t(row) * H) + 2 * i;
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const float4 add = {sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]};
      out[j] = How != kSet ? float4{out[j].x + add.x, out[j].y + add.y, out[j].z + add.z, out[j].w + add.w} : add;
    }
  }
}

#define COMBINE(NAME, HOW)                                                                                     \
  extern "C" __global__ void __launch_bounds__(256) NAME(const int32_t* __restrict__ count,   /* [1] rows */   \
                                                         const float* __restrict__ weights,   /* [rows, k] */  \
                                                         const int32_t* __restrict__ place,   /* [rows, k] */  \
                                                         const uint16_t* __restrict__ d,      /* [places, H] */\
                                                         float* __restrict__ y,               /* [rows, H] */  \
                                                         int32_t H, int32_t k) {                               \
    combine<HOW>(count, weights, place, nullptr, d, y, H, k);                                                  \
  }

COMBINE(experts_combine, kSet)
COMBINE(experts_combine_add, kAdd)

extern "C" __global__ void __launch_bounds__(256) experts_combine_add_shared(const int32_t* __restrict__ count, const float* __restrict__ weights,
                                                                             const int32_t* __restrict__ place,
                                                                             const float* __restrict__ scale, /* [rows], or null: 1 */
                                                                             const uint16_t* __restrict__ d, float* __restrict__ y, int32_t H, int32_t k) {
  combine<kAddShared>(count, weights, place, scale, d, y, H, k);
}
