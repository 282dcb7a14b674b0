// SPDX-License-Identifier: MIT OR Apache-2.0
// Family experts, 1 to 8 rows, bf16 weights as stored, in two launches:
//
//	hidden   h[row, slot·I …] = weight * act(gate x) * up x     tiles of 8 rows of gate and the same 8 of up, of each expert
//	down     y[row, H] += down h[row]                           tiles of 16 columns of H of each row; K runs through the slots
//
// A shared expert of S, where there is one, is the last slot. An expert that several rows take is read once by the first launch,
// and by the second as often as it is taken, at about the same time, so found in L2. The first starts the second only when the
// ids are known, since the second finds its weights by them before it waits.
//
// Grids: any number of blocks; they share the tiles evenly. Threads: hidden 256, down 512. Dynamic shared memory: hidden 4*H*rows,
// down 8*(k*I + S), half of it for one row. H, I and S must divide by 32; rows*k at most 128. Algorithm: mma/weight_tiles.cuh.
//
// Order of a sum over slots: slots rising, the shared expert last, split over warps.

#include "../../../include/epilogue/act.cuh"
#include "../../../include/mma/weight_tiles.cuh"

namespace {

using tiles::kRows;
using tiles::kStep;
using tiles::kTile;
using Hidden = tiles::Point<8, 4, 3, 0>;
using DownOne = tiles::Point<16, 4, 1, 1>;  // of one row
using DownSome = tiles::Point<16, 3, 2, 0>;

constexpr int kMaxExperts = 1024;
constexpr int kMaxPairs = 128;  // rows * k

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

struct HiddenJob {
  const Table& table;
  const uint16_t *gate_up, *sgate, *sup;  // [E, 2I, H], [S, H], [S, H]
  int lo, hi, count, per, I, H;           // units of this block; routed experts; units of an expert
  __device__ __forceinline__ int tiles() const { return hi - lo; }
  __device__ __forceinline__ int steps() const { return H / kStep; }
  __device__ __forceinline__ int run(int) const { return 1 << 30; }
  __device__ __forceinline__ const uint16_t* row(int tile, int r, int step) const {
    const int u = lo + tile, d = u / per, k = step * kStep;
    if (d < count) {
      const int i = (u - d * per) * 8 + (r & 7) + (r < 8 ? 0 : I);
      return gate_up + (int64_t(table.id[d]) * 2 * I + i) * H + k;
    }
    return (r < 8 ? sgate : sup) + int64_t((u - count * per) * 8 + (r & 7)) * H + k;
  }
};

template <class P, class Act>
struct HiddenOut {
  tiles::Shared<P>& s;
  const HiddenJob& job;
  const float *weights, *shared_scale;  // [rows, k]; [rows] before the sigmoid
  float* h;
  int rows, k, width;  // of h
  __device__ __forceinline__ void begin(int) {}
  __device__ __forceinline__ void emit(int tile) {
    const int col = threadIdx.x / 8, r = threadIdx.x % 8;
    if (col >= rows) return;
    const int u = job.lo + tile, d = min(u / job.per, job.count), i = (u - d * job.per) * 8 + r;
    int slot = k;
    float f;
    if (d < job.count) {
      slot = job.table.slot[d][col];
      if (slot < 0) return;
      f = ptx::load_l2(weights + col * k + slot);
    } else {
      f = shared_scale ? act::sigmoid::of(ptx::load_l2(shared_scale + col)) : 1.0f;
    }
    h[int64_t(col) * width + slot * job.I + i] = f * Act::of(tiles::total(s, tile, r, col)) * tiles::total(s, tile, r + 8, col);
  }
};

template <class P, class Act>
__device__ __forceinline__ void hidden(int rows, const float* x, const int32_t* ids, const float* weights, const uint16_t* gate_up,
                                       const float* shared_scale, const uint16_t* sgate, const uint16_t* sup, float* h, int E, int I,
                                       int S, int H, int k) {
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ tiles::Shared<P> s;
  __shared__ Table table;
  ptx::wait_for_predecessor_first();
  const tiles::Span span = tiles::span_of<P>(H / kStep);
  tiles::Near near{{memory, rows}};
  for (int r = 0; r < rows; r++) near.fetch(span, r, x + int64_t(r) * H);
  if (threadIdx.x < 32) make_table(table, ids, rows, k, E);
  __syncthreads();
  const int per = I / 8;
  const tiles::Share units(table.count * per + S / 8);
  const HiddenJob job{table, gate_up, sgate, sup, units.lo, units.hi, table.count, per, I, H};
  tiles::Flow<P> flow(job);
  near.split<false>(span, nullptr, 0, nullptr);
  HiddenOut<P, Act> out{s, job, weights, shared_scale, h, rows, k, k * I + S};
  rows > kRows / 2 ? tiles::multiply<true>(flow, near, s, job, out) : tiles::multiply<false>(flow, near, s, job, out);
}

// A unit is 16 columns of one row, rows of the same columns behind each other.
struct DownJob {
  const uint16_t *down, *sdown;  // [E, H, I], [H, S]
  const int32_t* ids;            // [rows, k], in shared memory
  int lo, hi, rows, I, S, H, k;  // units of this block
  __device__ __forceinline__ int tiles() const { return hi - lo; }
  __device__ __forceinline__ int steps() const { return (k * I + S) / kStep; }
  __device__ __forceinline__ int run(int step) const {
    const int per = I / kStep;
    return step < k * per ? per - step % per : 1 << 30;
  }
  __device__ __forceinline__ const uint16_t* row(int tile, int r, int step) const {
    const int u = lo + tile, n = min(u / rows * kTile + r, H - 1), per = I / kStep, slot = step / per;
    if (slot < k) return down + (int64_t(ids[u % rows * k + slot]) * H + n) * I + (step - slot * per) * kStep;
    return sdown + int64_t(n) * S + (step - k * per) * kStep;
  }
};

// HiddenRows holds the h of a unit's row and of the next, of this warp's steps.
struct HiddenRows {
  tiles::Part part;  // of the current unit
  unsigned char* memory;
  const float* h;
  tiles::Span span;
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
    part.split<false>(span.lo, span.hi - span.lo, 0, nullptr, 0);
    if (rows > 1 && lo + tile + 1 < hi) fetch(lo + tile + 1, place_of(tile + 1));
    __syncwarp();
  }
  __device__ __forceinline__ void ready(int, int, int, int) {}
  __device__ __forceinline__ int place(int step) const { return step; }
};

template <class P>
struct DownOut {
  tiles::Shared<P>& s;
  float* y;
  int lo, rows, H;
  float old;
  __device__ __forceinline__ float* place(int tile) const {
    const int u = lo + tile, n = u / rows * kTile + threadIdx.x;
    return threadIdx.x < kTile && n < H ? y + int64_t(u % rows) * H + n : nullptr;
  }
  __device__ __forceinline__ void begin(int tile) {
    if (const float* p = place(tile)) old = ptx::load_l2(p);
  }
  __device__ __forceinline__ void emit(int tile) {
    if (float* p = place(tile)) *p = old + tiles::total(s, tile, threadIdx.x, 0);
  }
};

template <class P>
__device__ __forceinline__ void down(int rows, const int32_t* ids, const float* h, const uint16_t* down, const uint16_t* sdown, float* y,
                                     int I, int S, int H, int k) {
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ tiles::Shared<P> s;
  __shared__ int32_t id[kMaxPairs];
  ptx::start_successor();
  for (int i = threadIdx.x; i < rows * k; i += P::kThreads) id[i] = ptx::load_l2(ids + i);
  __syncthreads();
  const tiles::Share units((H + kTile - 1) / kTile * rows);
  const DownJob job{down, sdown, id, units.lo, units.hi, rows, I, S, H, k};
  tiles::Flow<P> flow(job);
  ptx::wait_for_predecessor();
  HiddenRows x{{memory, 1}, memory, h, flow.span, units.lo, units.hi, rows, k * I + S};
  if (job.tiles() > 0) x.fetch(units.lo, memory);
  DownOut<P> out{s, y, units.lo, rows, H};
  tiles::multiply<false>(flow, x, s, job, out);
}

}  // namespace

#define ENTRY(P) extern "C" __global__ void __launch_bounds__(P::kThreads, P::B)

// h = weights * act(gate x) * up x of the row's experts, and of the shared one with sigmoid(shared_scale) for a weight
#define HIDDEN(name, Act)                                                                                                           \
  ENTRY(Hidden) name(const int32_t* __restrict__ head, const float* __restrict__ x, /* [rows, H] */                                 \
             const int32_t* __restrict__ ids,                               /* [rows, k] */                                         \
             const float* __restrict__ weights,                             /* [rows, k] */                                         \
             const uint16_t* __restrict__ gate_up,                          /* [E, 2I, H] bf16 */                                   \
             const float* __restrict__ shared_scale,                        /* [rows, 1] or null */                                 \
             const uint16_t* __restrict__ shared_gate,                      /* [S, H] or null */                                    \
             const uint16_t* __restrict__ shared_up,                        /* [S, H] or null */                                    \
             float* __restrict__ h,                                         /* [rows, k*I + S] */                                   \
             int32_t E, int32_t I, int32_t S, int32_t H, int32_t k) {                                                               \
    hidden<Hidden, Act>(head[0], x, ids, weights, gate_up, shared_scale, shared_gate, shared_up, h, E, I, S, H, k);                 \
  }
HIDDEN(experts_hidden_rows_bf16_silu, act::silu)
HIDDEN(experts_hidden_rows_bf16_gelu_tanh, act::gelu_tanh)

// y += down h, over the row's experts and the shared one; of one row, of up to 8
#define DOWN(name, P)                                                                                                               \
  ENTRY(P) name(const int32_t* __restrict__ head,                                                                                   \
                const int32_t* __restrict__ ids,          /* [rows, k] */                                                           \
                const float* __restrict__ h,              /* [rows, k*I + S] */                                                     \
                const uint16_t* __restrict__ w,           /* [E, H, I] bf16 */                                                      \
                const uint16_t* __restrict__ shared_down, /* [H, S] or null */                                                      \
                float* y,                                 /* [rows, H] */                                                           \
                int32_t I, int32_t S, int32_t H, int32_t k) {                                                                       \
    down<P>(head[0], ids, h, w, shared_down, y, I, S, H, k);                                                                        \
  }
DOWN(experts_down_add_rows_bf16_1, DownOne)
DOWN(experts_down_add_rows_bf16_2, DownSome)
