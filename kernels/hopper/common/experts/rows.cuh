// SPDX-License-Identifier: MIT OR Apache-2.0
// The bodies of the experts' kernels of 1 to 8 rows, whatever the format of their weights (F), in two launches:
//
//	hidden   h[row, slot·I …] = weight * act(gate x) * up x     units of 8 rows of gate and the same 8 of up, of each expert
//	down     y[row, H] += down h[row]                           tiles of columns of H of each row; K runs through the slots
//
// A shared expert of S, where there is one, is the last slot. An expert that several rows take is read once by the first launch,
// and by the second as often as it is taken, at about the same time, so found in L2. The first starts the second only when the
// ids are known, since the second finds its weights by them before it waits.
//
// H, I and S are padded to whole units of the format: I' = up<F>(I). Then h has zeros there. Grids: any number of blocks; they share
// the tiles evenly. Dynamic shared memory: hidden 4*H'*rows, down 8*(k*I' + S'), half of it for one row, and before it the ring's slots, where
// the format streams through one. Rows*k at most 128.
// Algorithm: mma/weight_tiles.cuh.
//
// Order of a sum over slots: slots rising, the shared expert last, split over warps.
#pragma once

#include <type_traits>

#include "../../../include/epilogue/act.cuh"
#include "../../../include/mma/quantised.cuh"

namespace experts {

using tiles::kRows;
using tiles::kStep;

constexpr int kMaxExperts = 1024;
constexpr int kMaxPairs = 128;  // rows * k

// units is how many of the format K has; up is K in whole ones.
template <class F>
__device__ __forceinline__ int units(int K) {
  return (K + kStep * F::kSteps - 1) / (kStep * F::kSteps);
}
template <class F>
__device__ __forceinline__ int up(int K) {
  return units<F>(K) * kStep * F::kSteps;
}

// Table is which experts a step takes.
struct Table {
  uint32_t taken[kMaxExperts / 32];
  int16_t id[kMaxPairs];
  int8_t slot[kMaxPairs][kRows];  // of a row that takes it; -1
  int count;
};

// make_table fills the table by warp 0, by rising id if there is more than one row.
__device__ __forceinline__ void make_table(Table& t, const int32_t* ids, int rows, int k, int E) {
  const int lane = threadIdx.x, words = (E + 31) / 32, n = rows * k;
  if (rows == 1) {
    for (int i = lane; i < k; i += 32) t.id[i] = int16_t(ptx::load_l2(ids + i)), t.slot[i][0] = int8_t(i);
    if (lane == 0) t.count = k;
    return;
  }
  int32_t id[4];
#pragma unroll
  for (int i = 0; i < 4; i++) id[i] = lane + 32 * i < n ? ptx::load_l2(ids + lane + 32 * i) : -1;
  t.taken[lane] = 0;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (id[i] >= 0) atomicOr(&t.taken[id[i] >> 5], 1u << (id[i] & 31));
  __syncwarp();
  const uint32_t mine = lane < words ? t.taken[lane] : 0;
  int upto = __popc(mine);  // experts in words up to this one
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int v = __shfl_up_sync(~0u, upto, d);
    if (lane >= d) upto += v;
  }
  const int count = __shfl_sync(~0u, upto, 31), before = upto - __popc(mine);
  int at = before;
  for (uint32_t m = mine; m; m &= m - 1) t.id[at++] = int16_t(32 * lane + __ffs(m) - 1);
  for (int i = lane; i < count * 2; i += 32) reinterpret_cast<uint32_t*>(t.slot)[i] = ~0u;
  if (lane == 0) t.count = count;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int word = id[i] >= 0 ? id[i] >> 5 : 0;
    const int base = __shfl_sync(~0u, before, word);
    if (id[i] >= 0) {
      const int rank = base + __popc(t.taken[word] & ((1u << (id[i] & 31)) - 1)), s = lane + 32 * i;
      t.slot[rank][s / k] = int8_t(s % k);
    }
  }
}

// Layer is the experts' weights and sizes. Biases, scales of rows and the shared expert are null where there are none.
template <class F>
struct Layer {
  typename F::Weights gate_up, down;           // [E, 2I, H], [E, H, I]
  typename F::Weights sgate, sup, sdown;       // [S, H], [S, H], [H, S]
  int E, I, S, H, k;
  const float *gate_up_bias, *down_bias;       // [E, 2I], [E, H]
  const float *gate_up_scale, *down_scale;     // of rows, likewise
  const float *sgate_scale, *sup_scale, *sdown_scale;
  float limit;
};

// ring_bytes is what a ring of so many slots takes.
template <class P, class F>
__device__ __forceinline__ int ring_bytes(int slots) {
  if constexpr (F::kPanel == 1)
    return 0;
  else
    return P::W * slots * tiles::Ring<P, F>::kSlot;
}

// stream starts the flow of weights, makes x, which may wait for the predecessor, and multiplies.
template <class P, class F, bool Wide, bool Narrow, class Job, class Out, class Make>
__device__ __forceinline__ void stream(const Job& job, unsigned char* memory, int slots, tiles::Shared<P, F>& s, Out& out, bool wide, const Make& make) {
  const auto go = [&](const tiles::Span& span, const auto& multiply) {
    auto&& x = make(span);
    if constexpr (Wide)
      if (!Narrow || wide) return multiply(std::true_type(), x);
    if constexpr (Narrow) multiply(std::false_type(), x);
  };
  if constexpr (F::kPanel == 1) {
    tiles::Flow<P, F> flow(job);
    go(flow.span, [&](auto w, auto& x) { tiles::multiply<decltype(w)::value>(flow, x, s, job, out); });
  } else {
    __shared__ tiles::RingShared<P> shared;
    tiles::Ring<P, F> ring(job, shared, memory, slots);
    go(ring.span, [&](auto w, auto& x) { tiles::multiply<decltype(w)::value>(ring, shared, x, s, job, out); });
  }
}

template <class F>
struct HiddenJob {
  static constexpr bool kFactors = false;
  static constexpr int kUnits = F::kTile / 16;  // of a tile
  const Table& table;
  const Layer<F>& m;
  int lo, hi, count, per;  // units of this block; routed experts; units of an expert
  __device__ __forceinline__ int tiles() const { return (hi - lo + kUnits - 1) / kUnits; }
  __device__ __forceinline__ int steps() const { return units<F>(m.H); }
  __device__ __forceinline__ int run(int) const { return 1 << 30; }
  __device__ __forceinline__ int panels(int tile) const { return 2 * min(kUnits, hi - lo - tile * kUnits); }
  __device__ __forceinline__ const void* row(int tile, int r, int step) const {
    const int u = min(lo + tile * kUnits + (r >> 4), hi - 1), d = u / per;
    if (d < count) {
      const int i = (u - d * per) * 8 + (r & 7) + (r & 8 ? m.I : 0);
      return F::row(m.gate_up, int64_t(table.id[d]) * 2 * m.I + i, m.H, step);
    }
    return F::row(r & 8 ? m.sup : m.sgate, (u - count * per) * 8 + (r & 7), m.H, step);
  }
};

template <class P, class F, class Glu>
struct HiddenOut {
  static constexpr int kHalf = F::kTile / 2;
  tiles::Shared<P, F>& s;
  const HiddenJob<F>& job;
  const float *weights, *shared_scale;  // [rows, k]; [rows] before the sigmoid
  float* h;
  int rows, stride, width;  // of h: of a slot, of a row
  __device__ __forceinline__ void begin(int) {}
  __device__ __forceinline__ void emit(int tile) {
    const int col = threadIdx.x / kHalf, r = threadIdx.x % kHalf, u = job.lo + tile * (kHalf / 8) + r / 8;
    if (col >= rows || u >= job.hi) return;
    const Layer<F>& m = job.m;
    const int d = min(u / job.per, job.count), i = (u - d * job.per) * 8 + r % 8, at = r / 8 * 16 + r % 8;
    float g = tiles::total(s, tile, at, col), v = tiles::total(s, tile, at + 8, col), f;
    int slot = m.k;
    if (d < job.count) {
      slot = job.table.slot[d][col];
      if (slot < 0) return;
      f = ptx::load_l2(weights + col * m.k + slot);
      const int64_t row = int64_t(job.table.id[d]) * 2 * m.I + i;
      if (F::kScaled && m.gate_up_scale) g *= m.gate_up_scale[row], v *= m.gate_up_scale[row + m.I];
      if (m.gate_up_bias) g += m.gate_up_bias[row], v += m.gate_up_bias[row + m.I];
    } else {
      f = shared_scale ? act::sigmoid::of(ptx::load_l2(shared_scale + col)) : 1.0f;
      if (F::kScaled && m.sgate_scale) g *= m.sgate_scale[i];
      if (F::kScaled && m.sup_scale) v *= m.sup_scale[i];
    }
    h[int64_t(col) * width + slot * stride + i] = f * Glu::of(g, v, m.limit);
  }
};

template <class P, class F, class Glu, bool Wide, bool Narrow = !Wide>
__device__ __forceinline__ void hidden(int rows, const float* x, const int32_t* ids, const float* weights, const float* shared_scale,
                                       const Layer<F>& m, float* h, int slots = 0) {
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ tiles::Shared<P, F> s;
  __shared__ Table table;
  static_assert(P::kThreads >= F::kTile / 2 * kRows, "a thread an output");
  ptx::wait_for_predecessor_first();
  const tiles::Span span = tiles::in_steps<F>(tiles::span_of<P>(units<F>(m.H)));
  tiles::NearOf<F> near{{memory + ring_bytes<P, F>(slots), rows}};
  for (int r = 0; r < rows; r++) near.fetch(span, r, x + int64_t(r) * m.H, F::kSteps == 1 ? 1 << 30 : m.H);
  if (threadIdx.x < 32) make_table(table, ids, rows, m.k, m.E);
  const int stride = up<F>(m.I), width = m.k * stride + up<F>(m.S);
  if (F::kSteps > 1 && blockIdx.x == 0 && width > m.k * m.I + m.S)  // what pads h
    for (int slot = 0; slot <= m.k; slot++)
      for (int n = slot < m.k ? m.I : m.S, i = n + threadIdx.x; i < up<F>(n); i += P::kThreads)
        for (int r = 0; r < rows; r++) h[int64_t(r) * width + slot * stride + i] = 0;
  __syncthreads();
  const int per = m.I / 8;
  const tiles::Share share(table.count * per + m.S / 8);
  const HiddenJob<F> job{table, m, share.lo, share.hi, table.count, per};
  HiddenOut<P, F, Glu> out{s, job, weights, shared_scale, h, rows, stride, width};
  stream<P, F, Wide, Narrow>(job, memory, slots, s, out, rows > kRows / 2, [&](const tiles::Span&) -> tiles::NearOf<F>& {
    near.template split<false>(span, nullptr, 0, nullptr);
    return near;
  });
}

// A unit is a tile of columns of one row, rows of the same columns behind each other.
template <class F>
struct DownJob {
  static constexpr bool kFactors = true;
  const Layer<F>& m;
  const int32_t* ids;  // [rows, k], in shared memory
  int lo, hi, rows;    // units of this block
  __device__ __forceinline__ int tiles() const { return hi - lo; }
  __device__ __forceinline__ int steps() const { return m.k * units<F>(m.I) + units<F>(m.S); }
  __device__ __forceinline__ int run(int step) const {
    const int per = units<F>(m.I);
    return step < m.k * per ? per - step % per : 1 << 30;
  }
  __device__ __forceinline__ int panels(int tile) const { return min(F::kTile, m.H - (lo + tile) / rows * F::kTile) / 8; }
  __device__ __forceinline__ int column(int tile, int r) const {
    const int from = (lo + tile) / rows * F::kTile;
    return F::kPanel == 1 ? min(from + r, m.H - 1) : min(from + (r & -F::kPanel), m.H - F::kPanel) + (r & (F::kPanel - 1));
  }
  __device__ __forceinline__ const void* row(int tile, int r, int step) const {
    const int n = column(tile, r), per = units<F>(m.I), slot = step / per;
    if (slot < m.k) return F::row(m.down, int64_t(ids[(lo + tile) % rows * m.k + slot]) * m.H + n, m.I, step - slot * per);
    return F::row(m.sdown, n, m.S, step - m.k * per);
  }
  // factor is the scale of a row of a chunk's slot.
  __device__ __forceinline__ float factor(int tile, int r, int step) const {
    const int n = column(tile, r), slot = step / units<F>(m.I);
    if (slot >= m.k) return m.sdown_scale ? m.sdown_scale[n] : 1;
    return m.down_scale ? m.down_scale[int64_t(ids[(lo + tile) % rows * m.k + slot]) * m.H + n] : 1;
  }
};

// HiddenRows holds the h of a unit's row and of the next, of this warp's steps.
template <class F>
struct HiddenRows {
  tiles::Part part;  // of the current unit
  unsigned char* memory;
  const float* h;
  tiles::Span span;  // of steps
  int lo, hi, rows, width;
  __device__ __forceinline__ void fetch(int unit, unsigned char* data) const {
    tiles::Part{data, 1}.fetch(span.lo, span.hi - span.lo, 0, h + int64_t(unit % rows) * width + span.lo * kStep);
  }
  __device__ __forceinline__ unsigned char* place_of(int tile) const { return memory + (tile & 1) * width * 4; }
  __device__ __forceinline__ void turn(int tile) {
    if (tile > 0 && rows == 1) return;
    part.data = place_of(tile);
    ptx::async_wait();
    __syncwarp();
    part.template split<false, F>(span.lo, span.hi - span.lo, 0, nullptr, 0);
    if (rows > 1 && lo + tile + 1 < hi) fetch(lo + tile + 1, place_of(tile + 1));
    __syncwarp();
  }
  __device__ __forceinline__ void ready(int, int, int, int) {}
  __device__ __forceinline__ int place(int step) const { return step * F::kSteps; }
};

template <class P, class F, bool Add>
struct DownOut {
  tiles::Shared<P, F>& s;
  const DownJob<F>& job;
  const float* weights;  // [rows, k]; for biases
  float* y;
  float old;
  __device__ __forceinline__ float* place(int tile, int& row, int& n) const {
    const int u = job.lo + tile;
    row = u % job.rows, n = u / job.rows * F::kTile + threadIdx.x;
    return threadIdx.x < F::kTile && n < job.m.H ? y + int64_t(row) * job.m.H + n : nullptr;
  }
  __device__ __forceinline__ void begin(int tile) {
    int row, n;
    const float* p = place(tile, row, n);
    if (!p) return;
    old = Add ? ptx::load_l2(p) : 0;
    if (const float* b = job.m.down_bias)
      for (int i = row * job.m.k; i < (row + 1) * job.m.k; i++) old = fmaf(ptx::load_l2(weights + i), b[int64_t(job.ids[i]) * job.m.H + n], old);
  }
  __device__ __forceinline__ void emit(int tile) {
    int row, n;
    if (float* p = place(tile, row, n)) *p = old + tiles::total(s, tile, threadIdx.x, 0);
  }
};

template <class P, class F, bool Add = true>
__device__ __forceinline__ void down(int rows, const int32_t* ids, const float* weights, const float* h, const Layer<F>& m, float* y,
                                     int slots = 0) {
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ tiles::Shared<P, F> s;
  __shared__ int32_t id[kMaxPairs];
  ptx::start_successor();
  for (int i = threadIdx.x; i < rows * m.k; i += P::kThreads) id[i] = ptx::load_l2(ids + i);
  __syncthreads();
  const tiles::Share share((m.H + F::kTile - 1) / F::kTile * rows);
  const DownJob<F> job{m, id, share.lo, share.hi, rows};
  DownOut<P, F, Add> out{s, job, weights, y};
  unsigned char* from = memory + ring_bytes<P, F>(slots);
  stream<P, F, false, true>(job, memory, slots, s, out, false, [&](const tiles::Span& span) {
    ptx::wait_for_predecessor();
    HiddenRows<F> x{{from, 1}, from, h, tiles::in_steps<F>(span), share.lo, share.hi, rows, m.k * up<F>(m.I) + up<F>(m.S)};
    if (job.tiles() > 0) x.fetch(share.lo, from);
    return x;
  });
}

}  // namespace experts
