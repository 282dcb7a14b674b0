// SPDX-License-Identifier: MIT OR Apache-2.0
// What a launch of a layer's experts (layer.cuh) is given, its router, and the table of which experts the rows take.
#pragma once

#include <type_traits>

#include "../../../include/epilogue/act.cuh"
#include "../../../include/mma/weight_queue.cuh"
#include "../../../include/ptx/patience.cuh"

namespace experts {

using queue::kRows;
using queue::kStep;
using queue::kTile;

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kMaxExperts = 512, kMaxPairs = 128, kMaxK = 16;
constexpr int kMeet = 1088, kWords = 2048, kStride = 528;
using Span = queue::Span<kWarps>;

// Table is which experts a step takes, by rising id.
struct Table {
  uint32_t taken[kMaxExperts / 32];
  int16_t id[kMaxPairs];
  alignas(8) int8_t slot[kMaxPairs][kRows];  // of a row that takes it, read 8 at a time; -1
  int16_t pair[kMaxPairs][kRows];  // number of (expert, row); -1
  int16_t first[kMaxPairs + 1];    // pair of an expert
  int16_t source[kMaxPairs];       // of a pair: 32 row + slot
  int count;
};

struct Shared {
  float sum[2][kWarps][kRows][kTile + 4];  // of even and odd tiles
  float part[kWarps][kRows][4];            // squares and two logits
  float factor[kRows];                     // of the norm
  float weight[kRows][kMaxK + 1];          // of slots; the shared expert's last
  int32_t id[kRows][kMaxK];                // of slots
  Table table;
};

// Args are what the launch is given.
struct Args {
  int rows;
  float* x;                             // [rows, H]
  const float* norm;                    // [H]
  const uint16_t* gate;                 // [E, H]
  const uint16_t* scale_gate;           // [1, H] or null
  const void *gate_up, *down;           // [E, 2I, H], [E, H, I]
  const void *sgate, *sup, *sdown;      // [S, H], [S, H], [H, S] or null
  float* h;                             // [rows, k*I + S]
  uint32_t* meet;
  int E, I, S, H, k, region;
  float eps, one, renorm_eps, weight_scale;
  int renorm;
  const float *gate_up_scale = nullptr, *down_scale = nullptr;                    // of weight rows: [E, 2I], [E, H]
  const float *sgate_scale = nullptr, *sup_scale = nullptr, *sdown_scale = nullptr;  // [S], [S], [H]
  const float *gate_bias = nullptr, *gate_up_bias = nullptr, *down_bias = nullptr;   // [E], [E, 2I], [E, H]
  float limit = 0;                                                                   // of the activation

  __device__ __forceinline__ int logits() const { return E + (scale_gate != nullptr); }
  __device__ __forceinline__ uint32_t* words(int row) const { return meet + kWords + row * kStride; }
  __device__ __forceinline__ int width() const { return k * I + S; }
};

// key orders floats as unsigned integers, of which 0 is none's but a NaN's that no sum gives.
__device__ __forceinline__ uint32_t key(float x) {
  const uint32_t u = __float_as_uint(x);
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}
__device__ __forceinline__ float unkey(uint32_t u) { return __uint_as_float(u & 0x80000000u ? u & 0x7fffffffu : ~u); }

// -------------------------------------------------------------------------------------------------------------- router

// put splits 8 values of x or h as the weights' format wants them.
template <class W>
__device__ __forceinline__ void put(unsigned char* region, int high, const float (&v)[8]) {
  if constexpr (W::kUp == 1) {
    queue::put_parts(region, high, v);
  } else {
    float u[8];
#pragma unroll
    for (int i = 0; i < 8; i++) u[i] = v[i] * W::kUp;
    queue::put_parts(region, high, u);
  }
}

// Logits works out this block's, two at a time, and splits x on the first round. A lane has 8 values of a step: lane
// 4i + t those from 8t of step i.
template <class W>
struct Logits {
  const Args& a;
  Span span;
  int lo, hi;      // of the logits
  float4 n0, n1;   // of the norm, of this lane's first values
  uint4 w[2];      // of two logits' weights
  float bias;      // of the logit that this thread sends of the first two

  __device__ __forceinline__ Logits(const Args& a, const Span& span) : a(a), span(span) {
    const queue::Share share(a.logits());
    lo = share.lo, hi = share.lo + share.n;
    n0 = n1 = make_float4(0, 0, 0, 0);
    w[0] = w[1] = make_uint4(0, 0, 0, 0);
    load(0, lo);
    if constexpr (W::kBiased) bias = bias_of(lo);
  }
  __device__ __forceinline__ int lane_step() const { return (threadIdx.x & 31) >> 2; }
  // past tells whether a step of the warp's only fills the weights' last unit.
  __device__ __forceinline__ bool past(int step) const { return W::kBiased && span.lo + step >= a.H / kStep; }
  __device__ __forceinline__ float bias_of(int e) const {
    e += threadIdx.x % 2;
    return a.gate_bias && e < hi && e < a.E ? a.gate_bias[e] : 0;
  }
  __device__ __forceinline__ int at(int step) const { return (span.lo + step + lane_step()) * kStep + (threadIdx.x & 3) * 8; }
  // load brings what the warp's steps from there need for logits e and e+1.
  __device__ __forceinline__ void load(int step, int e) {
    if (step + lane_step() >= span.n || past(step + lane_step())) return;
    const float4* n = reinterpret_cast<const float4*>(a.norm + at(step));
    n0 = n[0], n1 = n[1];
#pragma unroll
    for (int j = 0; j < 2; j++)
      if (e + j < hi) w[j] = ptx::load_weights((e + j < a.E ? a.gate + (e + j) * a.H : a.scale_gate) + at(step));
  }
  // run takes N rows at once.
  template <int N>
  __device__ __forceinline__ void run(Shared& s, unsigned char* region) {
#pragma unroll 1
    for (int e = lo;;) {
      round<N>(s, region, e);
      if ((e += 2) >= hi) break;
      __syncthreads();  // the sums before have been read
    }
  }

 private:
  // round does logits e and e+1 of all rows.
  template <int N>
  __device__ __forceinline__ void round(Shared& s, unsigned char* region, int e) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, t = lane & 3;
    const bool first = e == lo, late = first && N == 1 && span.n <= 8;  // late: x is split behind the barrier
    float y[N][8] = {};
#pragma unroll 1
    for (int r0 = 0; r0 < a.rows; r0 += N) {
      float sums[4 * N] = {};  // squares and two logits of each row
#pragma unroll 1
      for (int step = 0; step < span.n; step += 8) {
        const int mine = step + lane_step();
        const bool real = mine < span.n && !past(mine);
#pragma unroll
        for (int r = 0; r < N; r++) {
          float4 v[2] = {};
          if (real && r0 + r < a.rows) {
            const float4* p = reinterpret_cast<const float4*>(a.x + (r0 + r) * a.H + at(step));
            v[0] = ptx::load_l2(p), v[1] = ptx::load_l2(p + 1);
          }
          y[r][0] = v[0].x, y[r][1] = v[0].y, y[r][2] = v[0].z, y[r][3] = v[0].w;
          y[r][4] = v[1].x, y[r][5] = v[1].y, y[r][6] = v[1].z, y[r][7] = v[1].w;
        }
        if (!first || step + r0 > 0) load(step, e);
        const float m[8] = {a.one + n0.x, a.one + n0.y, a.one + n0.z, a.one + n0.w, a.one + n1.x, a.one + n1.y, a.one + n1.z, a.one + n1.w};
        const uint32_t u[2][4] = {{w[0].x, w[0].y, w[0].z, w[0].w}, {w[1].x, w[1].y, w[1].z, w[1].w}};
#pragma unroll
        for (int r = 0; r < N; r++) {
#pragma unroll
          for (int i = 0; i < 8; i++) {
            sums[4 * r] = fmaf(y[r][i], y[r][i], sums[4 * r]);
            y[r][i] *= m[i];
            sums[4 * r + 1] = fmaf(y[r][i], i & 1 ? mma::high(u[0][i / 2]) : mma::low(u[0][i / 2]), sums[4 * r + 1]);
            sums[4 * r + 2] = fmaf(y[r][i], i & 1 ? mma::high(u[1][i / 2]) : mma::low(u[1][i / 2]), sums[4 * r + 2]);
          }
          if (first && !late && (W::kBiased ? mine < span.n : real) && r0 + r < a.rows) put<W>(region, (mine * a.rows + r0 + r) * 128 + queue::place(r0 + r, 0, t), y[r]);
        }
      }
      const float sum = queue::sum_over_lanes(sums);
      constexpr int kLanes = 8 / N;  // of a value
      const int r = r0 + lane / kLanes / 4;
      if (lane % kLanes == 0 && r < a.rows) s.part[warp][r][lane / kLanes % 4] = sum;
    }
    __syncthreads();
    if (int(threadIdx.x) < 2 * a.rows) {
      const int row = threadIdx.x / 2, j = threadIdx.x % 2;
      float q = 0, v = 0;
#pragma unroll
      for (int i = 0; i < kWarps; i++) q += s.part[i][row][0], v += s.part[i][row][1 + j];
      const float f = rsqrtf(q / float(a.H) + a.eps);
      float logit = f * v;
      if constexpr (W::kBiased) logit += first ? bias : bias_of(e);
      if (e + j < hi) ptx::store_word(a.words(row) + e + j, key(logit));
      if (first && j == 0) s.factor[row] = f;
    }
    if (late && lane_step() < span.n) put<W>(region, lane_step() * 128 + queue::place(0, 0, t), y[0]);
  }
};

// Choice is what a warp finds of its row: lane j has the key of its jth best.
struct Choice {
  uint32_t chosen, scale;  // scale: of the shared expert, in lane 0
  float sum;               // of exp(logit - best) over all experts, if it is asked for
};

// choose waits for a row's logits and finds the k best, falling; of equal ones the lower id. A lane has P consecutive ones. By a warp.
template <int P>
__device__ __forceinline__ Choice choose(const Args& a, int row, int32_t* ids, bool all) {
  const int lane = threadIdx.x & 31, first = lane * P;
  const uint32_t* words = a.words(row);
  uint32_t v[P];
  Choice c = {0, 1, 1};
  for (ptx::Patience patience;; patience.pause()) {
    bool missing = false;
#pragma unroll
    for (int i = 0; i < P; i += 4) {
      const uint4 u = ptx::load_words(words + first + i);
      v[i] = u.x, v[i + 1] = u.y, v[i + 2] = u.z, v[i + 3] = u.w;
    }
    if (a.scale_gate && lane == 0) c.scale = ptx::load_word(words + a.E);
#pragma unroll
    for (int i = 0; i < P; i++) {
      if (first + i >= a.E) v[i] = 0;
      else missing |= v[i] == 0;
    }
    if (!__any_sync(~0u, missing || c.scale == 0)) break;
  }
  uint32_t u[P];
#pragma unroll
  for (int i = 0; i < P; i++) u[i] = v[i];
  float top = 0;
#pragma unroll 1
  for (int j = 0; j < a.k; j++) {
    uint32_t best[P];
    int at[P];
#pragma unroll
    for (int i = 0; i < P; i++) best[i] = v[i], at[i] = i;
#pragma unroll
    for (int n = 1; n < P; n *= 2)
#pragma unroll
      for (int i = 0; i < P; i += 2 * n)
        if (best[i + n] > best[i]) best[i] = best[i + n], at[i] = at[i + n];
    const uint32_t most = __reduce_max_sync(~0u, best[0]);
    const uint32_t who = __ballot_sync(~0u, best[0] == most);
    const bool won = who >> lane & 1 && (who & ((1u << lane) - 1)) == 0;
    if (lane == j) c.chosen = most;
    if (j == 0) top = unkey(most);
    if (won) ids[j] = first + at[0];
    const uint32_t taken = won ? 1u << at[0] : 0;
#pragma unroll
    for (int i = 0; i < P; i++) v[i] = taken >> i & 1 ? 0 : v[i];
  }
  if (all) {
    c.sum = 0;
#pragma unroll
    for (int i = 0; i < P; i++)
      if (first + i < a.E) c.sum += __expf(unkey(u[i]) - top);
#pragma unroll
    for (int d = 16; d; d /= 2) c.sum += __shfl_xor_sync(~0u, c.sum, d);
  }
  return c;
}

// weigh turns a row's choice into weights, and the shared expert's logit into its. By a warp.
__device__ __forceinline__ void weigh(const Args& a, const Choice& c, float* weight) {
  const int lane = threadIdx.x & 31;
  const float top = unkey(__shfl_sync(~0u, c.chosen, 0)), p = lane < a.k ? __expf(unkey(c.chosen) - top) / c.sum : 0;
  float all = p;
#pragma unroll
  for (int d = 16; d; d /= 2) all += __shfl_xor_sync(~0u, all, d);
  if (lane < a.k) weight[lane] = (a.renorm ? p / (all + a.renorm_eps) : p) * a.weight_scale;
  if (lane == 0) weight[a.k] = a.scale_gate ? act::sigmoid::of(unkey(c.scale)) : 1.0f;
}

// list_one fills the table for one row. By a warp, after its choice.
__device__ __forceinline__ void list_one(Table& t, const int32_t* ids, int k) {
  const int lane = threadIdx.x & 31;
  __syncwarp();
  const int id = lane < k ? ids[lane] : 1 << 20;
  int rank = 0;
  for (int i = 0; i < k; i++) rank += __shfl_sync(~0u, id, i) < id;
  if (lane < k) {
    t.id[rank] = int16_t(id), t.slot[rank][0] = int8_t(lane), t.source[rank] = int16_t(lane);
    t.pair[lane][0] = int16_t(lane);
  }
  if (lane <= k) t.first[lane] = int16_t(lane);
  if (lane == 0) t.count = k;
}

// list_experts fills a table's taken, id, slot and count for several rows by warp 0.
__device__ __forceinline__ void list_experts(Shared& s, int rows, int k) {
  Table& t = s.table;
  const int lane = threadIdx.x;
  int32_t id[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int p = lane + 32 * i;
    id[i] = p / kMaxK < rows && p % kMaxK < k ? s.id[p / kMaxK][p % kMaxK] : -1;
  }
  if (lane < kMaxExperts / 32) t.taken[lane] = 0;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (id[i] >= 0) atomicOr(&t.taken[id[i] >> 5], 1u << (id[i] & 31));
  __syncwarp();
  const uint32_t mine = lane < kMaxExperts / 32 ? t.taken[lane] : 0;
  int upto = __popc(mine);  // experts in words up to this one
#pragma unroll
  for (int d = 1; d < kMaxExperts / 32; d *= 2) {
    const int v = __shfl_up_sync(~0u, upto, d);
    if (lane >= d) upto += v;
  }
  const int count = __shfl_sync(~0u, upto, kMaxExperts / 32 - 1), before = upto - __popc(mine);
  for (int i = lane; i < count * 2; i += 32) reinterpret_cast<uint32_t*>(t.slot)[i] = ~0u;
  if (lane == 0) t.count = count;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int base = __shfl_sync(~0u, before, id[i] >= 0 ? id[i] >> 5 : 0);
    if (id[i] >= 0) {
      const int rank = base + __popc(t.taken[id[i] >> 5] & ((1u << (id[i] & 31)) - 1)), p = lane + 32 * i;
      t.id[rank] = int16_t(id[i]);
      t.slot[rank][p / kMaxK] = int8_t(p % kMaxK);
    }
  }
}

// number_pairs fills the rest, by warp 0; owner, where it is asked for, is the expert of a pair.
__device__ __forceinline__ void number_pairs(Table& t, int rows, int8_t* owner) {
  const int lane = threadIdx.x;
  int pairs = 0;
  for (int base = 0; base < t.count; base += 32) {
    const int d = base + lane;
    uint64_t slots = ~uint64_t(0);
    if (d < t.count) slots = *reinterpret_cast<const uint64_t*>(t.slot[d]);
    const int n = kRows - __popc(uint32_t(slots) & 0x80808080u) - __popc(uint32_t(slots >> 32) & 0x80808080u);
    int upto = n;
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
      const int v = __shfl_up_sync(~0u, upto, i);
      if (lane >= i) upto += v;
    }
    int at = pairs + upto - n;
    pairs += __shfl_sync(~0u, upto, 31);
    if (d >= t.count) continue;
    t.first[d] = int16_t(at);
    for (int r = 0; r < rows; r++) {
      const int slot = int8_t(slots >> (8 * r));
      t.pair[d][r] = int16_t(slot < 0 ? -1 : at);
      if (owner && slot >= 0) owner[at] = int8_t(d);
      if (slot >= 0) t.source[at++] = int16_t(32 * r + slot);
    }
  }
  if (lane == 0) t.first[t.count] = int16_t(pairs);
}

}  // namespace experts
