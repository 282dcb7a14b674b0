// SPDX-License-Identifier: MIT OR Apache-2.0
// The bodies of the experts' kernels of 1 to 8 rows, whatever the format of their weights (F), in two launches:
//
//	hidden   h[row, slot·I …] = weight * act(gate x) * up x     units of 8 rows of gate and the same 8 of up, of each expert;
//	         or, without a gate, weight * act(up x)             units of 16 rows
//	down     y[row, H] += down h[row]                           tiles of columns of H of each row; K runs through the slots
//
// A shared expert of S, where there is one, is the last slot. An expert that several rows take is read once by the first launch,
// and by the second as often as it is taken, at about the same time, so found in L2. The first starts the second only when the
// ids are known, since the second finds its weights by them before it waits.
//
// H, I and S are padded to whole units of the format: I' = up<F>(I). Then h has zeros there. Grids: any number of blocks; they share
// the tiles evenly. Dynamic shared memory: hidden 4*H'*rows, of panels and more than 4 rows half of it; down 8*(k*I' + S'), half of
// it for one row; before it the ring's slots, where the format streams through one. Rows*k at most 128.
// Algorithm: mma/weight_tiles.cuh.
//
// Order of a sum over slots: slots rising, the shared expert last, split over warps.
#pragma once

#include "../linear/rows.cuh"

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

// stream starts the flow of weights, makes x, which may wait for the predecessor, and multiplies. Of Single, x is one row.
template <class P, class F, bool Single, class Job, class Out, class Make>
__device__ __forceinline__ void stream(const Job& job, unsigned char* memory, int ring, rows::Sums<P, F>& s, Out& out, bool wide, const Make& make) {
  if constexpr (F::kPanel == 1) {
    tiles::Flow<P, F> flow(job);
    auto&& x = make(flow.span);
    if constexpr (!Single)
      if (wide) return tiles::multiply<true>(flow, x, s, job, out);
    tiles::multiply<false>(flow, x, s, job, out);
  } else {
    __shared__ tiles::RingShared<P> shared;
    tiles::Ring<P, F> flow(job, shared, memory, ring, 0);
    auto&& x = make(flow.span);
    tiles::multiply<(P::R > kRows / 2)>(flow, shared, x, s, job, out);
  }
}

template <class F, bool Gated>
struct HiddenJob {
  static constexpr bool kFactors = false;
  static constexpr int kUnits = F::kTile / 16;  // of a tile
  static constexpr int kOwn = Gated ? 8 : 16;   // values of h that a unit gives
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
      const int i = (u - d * per) * kOwn + r % kOwn + (Gated && r & 8 ? m.I : 0);
      return F::row(m.gate_up, int64_t(table.id[d]) * (Gated ? 2 : 1) * m.I + i, m.H, step);
    }
    return F::row(!Gated || r & 8 ? m.sup : m.sgate, (u - count * per) * kOwn + r % kOwn, m.H, step);
  }
};

// Act is of gate and up, or of up alone.
template <class S, class P, class F, class Act, bool Gated>
struct HiddenOut {
  static constexpr int kOwn = HiddenJob<F, Gated>::kOwn, kTileOwn = F::kTile / 16 * kOwn;
  using Mine = rows::Outputs<S, P, kTileOwn>;
  static constexpr int kEach = Mine::kEach;
  const S& s;
  const HiddenJob<F, Gated>& job;
  const float *weights, *shared_scale;  // [rows, k]; [rows] before the sigmoid
  float* h;
  int rows, stride, width;  // of h: of a slot, of a row
  int to[kEach];            // in h; -1: the row does not take the expert
  float factor[kEach], gate_of[kEach], up_of[kEach], gate_bias[kEach], up_bias[kEach];
  __device__ __forceinline__ void begin(int first, int n) {
    const Layer<F>& m = job.m;
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      int tile, r, col;
      to[i] = -1;
      if (!Mine::place(i, first, n, rows, tile, r, col)) continue;
      const int u = job.lo + tile * (kTileOwn / kOwn) + r / kOwn;
      if (u >= job.hi) continue;
      const int d = min(u / job.per, job.count), c = (u - d * job.per) * kOwn + r % kOwn;
      int slot = m.k;
      gate_of[i] = up_of[i] = 1, gate_bias[i] = up_bias[i] = 0;
      if (d < job.count) {
        slot = job.table.slot[d][col];
        if (slot < 0) continue;
        factor[i] = ptx::load_l2(weights + col * m.k + slot);
        const int64_t gate = int64_t(job.table.id[d]) * (Gated ? 2 : 1) * m.I + c, up = gate + (Gated ? m.I : 0);
        if (F::kScaled && m.gate_up_scale) gate_of[i] = m.gate_up_scale[gate], up_of[i] = m.gate_up_scale[up];
        if (m.gate_up_bias) gate_bias[i] = m.gate_up_bias[gate], up_bias[i] = m.gate_up_bias[up];
      } else {
        factor[i] = shared_scale ? act::sigmoid::of(ptx::load_l2(shared_scale + col)) : 1.0f;
        if (F::kScaled && m.sgate_scale) gate_of[i] = m.sgate_scale[c];
        if (F::kScaled && m.sup_scale) up_of[i] = m.sup_scale[c];
      }
      to[i] = col * width + slot * stride + c;
    }
  }
  __device__ __forceinline__ void emit(int first, int n) {
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      int tile, r, col;
      if (!Mine::place(i, first, n, rows, tile, r, col) || to[i] < 0) continue;
      if constexpr (Gated) {
        const int at = r / 8 * 16 + r % 8;
        float g = tiles::total(s, tile, first, at, col), v = tiles::total(s, tile, first, at + 8, col);
        if (F::kScaled) g *= gate_of[i], v *= up_of[i];
        h[to[i]] = factor[i] * Act::of(g + gate_bias[i], v + up_bias[i], job.m.limit);
      } else {
        float v = tiles::total(s, tile, first, r, col);
        if (F::kScaled) v *= up_of[i];
        h[to[i]] = factor[i] * Act::of(v + up_bias[i]);
      }
    }
  }
};

template <class P, class F, class Act, bool Gated = true>
__device__ __forceinline__ void hidden(int rows, const float* x, const int32_t* ids, const float* weights, const float* shared_scale,
                                       const Layer<F>& m, float* h, int ring = 0) {
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ rows::Sums<P, F> s;
  __shared__ Table table;
  F::kPanel == 1 ? ptx::wait_for_predecessor_first() : ptx::wait_for_predecessor();
  const tiles::Span span = tiles::in_steps<F>(tiles::span_of<P>(units<F>(m.H)));
  constexpr bool kPanels = F::kPanel > 1, kWide = rows::Sums<P, F>::kMost > kRows / 2;
  std::conditional_t<kPanels, tiles::Resident<F, kWide>, tiles::NearOf<F>> near{{memory + ring, rows}};
  if constexpr (!kPanels)
    for (int r = 0; r < rows; r++) near.fetch(span, r, x + int64_t(r) * m.H);
  if (threadIdx.x < 32) make_table(table, ids, rows, m.k, m.E);
  const int stride = up<F>(m.I), width = m.k * stride + up<F>(m.S);
  if (F::kSteps > 1 && blockIdx.x == 0 && width > m.k * m.I + m.S)  // what pads h
    for (int slot = 0; slot <= m.k; slot++)
      for (int n = slot < m.k ? m.I : m.S, i = n + threadIdx.x; i < up<F>(n); i += P::kThreads)
        for (int r = 0; r < rows; r++) h[int64_t(r) * width + slot * stride + i] = 0;
  __syncthreads();
  using Job = HiddenJob<F, Gated>;
  const int per = m.I / Job::kOwn;
  const tiles::Share share(table.count * per + m.S / Job::kOwn);
  const Job job{table, m, share.lo, share.hi, table.count, per};
  HiddenOut<rows::Sums<P, F>, P, F, Act, Gated> out{s, job, weights, shared_scale, h, rows, stride, width};
  stream<P, F, false>(job, memory, ring, s, out, rows > kRows / 2, [&](const tiles::Span&) -> auto& {
    if constexpr (kPanels)
      near.template bring<false>(span, [&](int r) { return x + int64_t(r) * m.H; }, m.H, {}, nullptr, 0, nullptr);
    else
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

template <class S, class P, class F, bool Add>
struct DownOut {
  static constexpr int kEach = (S::kMeet * F::kTile + P::kThreads - 1) / P::kThreads;
  const S& s;
  const DownJob<F>& job;
  const float* weights;  // [rows, k]; for biases
  float* y;
  float old[kEach];
  __device__ __forceinline__ float* place(int i, int first, int n, int& tile, int& row, int& c) const {
    const int j = threadIdx.x + i * P::kThreads;
    tile = first + j / F::kTile;
    const int u = job.lo + tile;
    row = u % job.rows, c = u / job.rows * F::kTile + j % F::kTile;
    return j < n * F::kTile && c < job.m.H ? y + int64_t(row) * job.m.H + c : nullptr;
  }
  __device__ __forceinline__ void begin(int first, int n) {
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      int tile, row, c;
      const float* p = place(i, first, n, tile, row, c);
      if (!p) continue;
      old[i] = Add ? ptx::load_l2(p) : 0;
      if (const float* b = job.m.down_bias)
        for (int k = row * job.m.k; k < (row + 1) * job.m.k; k++) old[i] = fmaf(ptx::load_l2(weights + k), b[int64_t(job.ids[k]) * job.m.H + c], old[i]);
    }
  }
  __device__ __forceinline__ void emit(int first, int n) {
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      int tile, row, c;
      if (float* p = place(i, first, n, tile, row, c)) *p = old[i] + tiles::total(s, tile, first, (threadIdx.x + i * P::kThreads) % F::kTile, 0);
    }
  }
};

template <class P, class F, bool Add = true>
__device__ __forceinline__ void down(int rows, const int32_t* ids, const float* weights, const float* h, const Layer<F>& m, float* y,
                                     int ring = 0) {
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ rows::Sums<P, F> s;
  __shared__ int32_t id[kMaxPairs];
  if (F::kPanel == 1) ptx::start_successor();  // a ring does
  for (int i = threadIdx.x; i < rows * m.k; i += P::kThreads) id[i] = ptx::load_l2(ids + i);
  __syncthreads();
  const tiles::Share share((m.H + F::kTile - 1) / F::kTile * rows);
  const DownJob<F> job{m, id, share.lo, share.hi, rows};
  DownOut<rows::Sums<P, F>, P, F, Add> out{s, job, weights, y};
  unsigned char* from = memory + ring;
  stream<P, F, true>(job, memory, ring, s, out, false, [&](const tiles::Span& span) {
    ptx::wait_for_predecessor();
    HiddenRows<F> x{{from, 1}, from, h, tiles::in_steps<F>(span), share.lo, share.hi, rows, m.k * up<F>(m.I) + up<F>(m.S)};
    if (job.tiles() > 0) x.fetch(share.lo, from);
    return x;
  });
}

}  // namespace experts
