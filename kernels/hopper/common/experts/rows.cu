// SPDX-License-Identifier: MIT OR Apache-2.0
// Family experts, 1 to 8 rows, bf16 weights as stored: gate and up, activation, down, sum over slots and the residual in one
// launch; an expert that several rows take is read once.
//
//	phase 1   hidden[row, slot, I] = weight * act(gate x) * up x      over (expert, 8 columns of I)
//	          all blocks of the grid meet
//	phase 2   y[row, H] += Σ down hidden                              over 16 columns of H; K runs through experts and I
//
// Grid: at most one block a multiprocessor, so that all are resident and can meet; they share the units of each phase evenly.
// 256 threads, dynamic shared memory 16832 + 17408 per stage. The ring runs on from phase 1 into phase 2: the weights of down
// are on their way while blocks meet. Algorithm: copy/row_stream.cuh. H, I and S must divide by 8.
// It needs a GPU: mma and bulk copies have no twin on the host.
//
// Order of a sum over slots: experts by rising id, the shared one last, whatever the row's slots are.

#include "../../../include/copy/row_stream.cuh"
#include "../../../include/epilogue/act.cuh"

namespace {

using stream::kTile;
using stream::kWindow;

constexpr int kSlots = 16;  // of a row, the shared expert's included
constexpr int kMaxExperts = 1024;

// Table is which experts a step takes, by rising id.
struct Table {
  uint32_t taken[kMaxExperts / 32];
  int16_t id[stream::kRows * kSlots];
  int8_t slot[stream::kRows * kSlots][stream::kRows];  // of a row that takes it; -1
};

struct Experts {
  const uint16_t *gate_up, *down;        // [E, 2I, H], [E, H, I]
  const uint16_t *sgate, *sup, *sdown;   // shared expert [S, H], [S, H], [H, S]; null
  int H, I, S, k;
  float* hidden;  // [rows, k+1, max(I, S)]
};

// make_table fills the table by warp 0 and gives the number of experts.
__device__ __forceinline__ int make_table(Table& t, const int32_t* ids, int rows, int k, int E) {
  const int lane = threadIdx.x, words = (E + 31) / 32, n = rows * k;
  int32_t id[4];
#pragma unroll
  for (int i = 0; i < 4; i++) id[i] = lane + 32 * i < n ? ptx::load_l2(ids + lane + 32 * i) : -1;
  t.taken[lane] = 0;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (id[i] >= 0) atomicOr(&t.taken[id[i] >> 5], 1u << (id[i] & 31));
  __syncwarp();
  uint32_t mine = lane < words ? t.taken[lane] : 0;
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
  return count;
}

// Source walks over phase 1, then phase 2.
struct Source {
  const Experts& e;
  const Table& table;
  stream::Walk a, b;
  int lo, lo2, count;  // first unit of phase 1, first column of phase 2; routed experts
  int per, wI, wS;     // units of an expert, windows of I and S
  bool second = false;

  __device__ __forceinline__ bool more() const { return b.more(); }
  __device__ __forceinline__ void step() {
    if (second) b.step();
    else a.step(), second = !a.more();
  }
  __device__ __forceinline__ uint32_t bytes() const {
    if (!second) return 2 * min(kWindow, e.H - a.w * kWindow);
    const int d = b.w / wI;
    return d < count ? 2 * min(kWindow, e.I - (b.w - d * wI) * kWindow) : 2 * min(kWindow, e.S - (b.w - count * wI) * kWindow);
  }
  __device__ __forceinline__ const void* row(int r) const {
    if (!second) {
      const int u = lo + a.t, d = u / per, k = a.w * kWindow;
      if (d < count) {
        const int i = (u - d * per) * 8 + (r & 7) + (r < 8 ? 0 : e.I);
        return e.gate_up + (int64_t(table.id[d]) * 2 * e.I + i) * e.H + k;
      }
      return (r < 8 ? e.sgate : e.sup) + int64_t((u - count * per) * 8 + (r & 7)) * e.H + k;
    }
    const int n = lo2 + b.t * kTile + r, d = b.w / wI;
    if (n >= e.H) return nullptr;
    if (d < count) return e.down + (int64_t(table.id[d]) * e.H + n) * e.I + (b.w - d * wI) * kWindow;
    return e.sdown + int64_t(n) * e.S + (b.w - count * wI) * kWindow;
  }
};

template <class Act>
struct HiddenOut {
  stream::Shared* s;
  const Table& table;
  const Experts& e;
  const float *weights, *shared_scale;  // [rows, k]; [rows] before the sigmoid
  int lo, count, per, rows, stride;     // stride of h's slots
  __device__ __forceinline__ void begin(int, int) {}
  __device__ __forceinline__ void emit(int t0, int n) {
    const int all = n * 8, col = threadIdx.x / all, tile = threadIdx.x % all / 8, r = threadIdx.x % 8;
    if (col >= rows) return;
    const int u = lo + t0 + tile, d = min(u / per, count), i = (u - d * per) * 8 + r;
    int slot = e.k;
    float f;
    if (d < count) {
      slot = table.slot[d][col];
      if (slot < 0) return;
      f = ptx::load_l2(weights + col * e.k + slot);
    } else {
      f = shared_scale ? act::sigmoid::of(ptx::load_l2(shared_scale + col)) : 1.0f;
    }
    e.hidden[(col * (e.k + 1) + slot) * stride + i] = f * Act::of(stream::total(s, tile, r, col)) * stream::total(s, tile, r + 8, col);
  }
};

// Rows of h: another slot, so another row of memory, with each expert.
struct HiddenRows {
  const Table& table;
  const float* hidden;
  int col, count, wI, wS, I, S, k, stride;
  bool real;

  using Raw = stream::Rows::Raw;
  __device__ __forceinline__ int windows() const { return count * wI + wS; }
  __device__ __forceinline__ int values(int w) const {
    const int d = w / wI;
    return d < count ? min(kWindow, I - (w - d * wI) * kWindow) : min(kWindow, S - (w - count * wI) * kWindow);
  }
  __device__ __forceinline__ void issue(int w, int block, Raw& r) const {
    const int d = min(w / wI, count), at = (w - d * wI) * kWindow + block * 32 + (threadIdx.x & 3) * 8;
    const int slot = d < count ? table.slot[d][col] : k;
    r.a = r.b = make_float4(0, 0, 0, 0);
    if (real && slot >= 0 && at < (d < count ? I : S)) {
      const float4* p = reinterpret_cast<const float4*>(hidden + (col * (k + 1) + slot) * stride + at);
      r.a = ptx::load_l2(p);
      r.b = ptx::load_l2(p + 1);
    }
  }
  __device__ __forceinline__ void finish(int, int, const Raw& r, float (&v)[8]) {
    v[0] = r.a.x, v[1] = r.a.y, v[2] = r.a.z, v[3] = r.a.w;
    v[4] = r.b.x, v[5] = r.b.y, v[6] = r.b.z, v[7] = r.b.w;
  }
  __device__ __forceinline__ void squares(stream::Shared*, int) const {}
};

struct DownOut {
  stream::Shared* s;
  float* y;
  int lo, hi, H, rows;
  float old[2];
  __device__ __forceinline__ bool place(int i, int t0, int n, int& tile, int& r, int& col, int& row) const {
    const int at = threadIdx.x + i * 256, per = n * kTile;
    col = at / per;
    tile = at % per / kTile;
    r = at % kTile;
    row = lo + (t0 + tile) * kTile + r;
    return col < rows && row < hi;
  }
  __device__ __forceinline__ void begin(int t0, int n) {
    int tile, r, col, row;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      if (place(i, t0, n, tile, r, col, row)) old[i] = ptx::load_l2(y + int64_t(col) * H + row);
    }
  }
  __device__ __forceinline__ void emit(int t0, int n) {
    int tile, r, col, row;
#pragma unroll
    for (int i = 0; i < 2; i++)
      if (place(i, t0, n, tile, r, col, row)) y[int64_t(col) * H + row] = old[i] + stream::total(s, tile, r, col);
  }
};

// meet returns once all blocks of the grid have called it; what they wrote before is visible. But for its top bit, the counter is 0
// between launches.
__device__ __forceinline__ void meet(uint32_t* meeting) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    // The top bit flips when the last block has come: block 0 adds what the others leave to it.
    const uint32_t old = ptx::add_release(meeting, blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u);
    while (((old ^ ptx::load_acquire(meeting)) >> 31) == 0) {
    }
  }
  __syncthreads();
}

template <class Act>
__device__ __forceinline__ void run(const int32_t* head, const float* x, const int32_t* ids, const float* weights,
                                    const float* shared_scale, const Experts& e, float* y, int E, uint32_t* meeting) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ Table table;
  __shared__ int found;
  stream::Ring ring = stream::start(shared);
  const int rows = head[0];
  ptx::wait_for_predecessor();
  if (threadIdx.x < 32) {
    const int n = make_table(table, ids, rows, e.k, E);
    if (threadIdx.x == 0) found = n;
  }
  __syncthreads();
  const int count = found, per = e.I / 8, wI = (e.I + kWindow - 1) / kWindow, wS = (e.S + kWindow - 1) / kWindow;
  const stream::Share units(count * per + e.S / 8), columns((e.H + 7) / 8);
  const int lo2 = columns.lo * 8, hi2 = min(columns.hi * 8, e.H);
  const int tiles = units.hi - units.lo, tiles2 = (hi2 - lo2 + kTile - 1) / kTile;
  Source src{e,  table, {tiles, (e.H + kWindow - 1) / kWindow}, {tiles2, count * wI + wS}, units.lo, lo2, count, per, wI, wS, tiles == 0};
  stream::fill_all(ring, src);
  const int stride = max(e.I, e.S);
  HiddenOut<Act> first{ring.s, table, e, weights, shared_scale, units.lo, count, per, rows, stride};
  stream::multiply_rows<false>(ring, src, first, tiles, rows, x, e.H, nullptr, nullptr);
  meet(meeting);
  const bool wide = rows > stream::kRows / 2;
  const int col = stream::column(wide);
  HiddenRows h{table, e.hidden, col, count, wI, wS, e.I, e.S, e.k, stride, col < rows};
  DownOut second{ring.s, y, lo2, hi2, e.H, rows};
  wide ? stream::multiply<true>(ring, src, h, second, tiles2) : stream::multiply<false>(ring, src, h, second, tiles2);
}

}  // namespace

#define ENTRY extern "C" __global__ void __launch_bounds__(stream::kThreads, 2)

// y += Σ weights * down(act(gate x) * up x), and of the shared expert, scaled by sigmoid(shared_scale), where there is one
#define EXPERTS(name, Act)                                                                                                        \
  ENTRY name(const int32_t* __restrict__ head, const float* __restrict__ x, /* [rows, H] */                                   \
             const int32_t* __restrict__ ids,                              /* [rows, k] */                                   \
             const float* __restrict__ weights,                            /* [rows, k] */                                   \
             const uint16_t* __restrict__ gate_up,                         /* [E, 2I, H] bf16 */                             \
             const uint16_t* __restrict__ down,                            /* [E, H, I] bf16 */                              \
             const float* __restrict__ shared_scale,                       /* [rows, 1] or null */                           \
             const uint16_t* __restrict__ shared_gate,                     /* [S, H] or null */                              \
             const uint16_t* __restrict__ shared_up,                       /* [S, H] or null */                              \
             const uint16_t* __restrict__ shared_down,                     /* [H, S] or null */                              \
             float* y,                                                     /* [rows, H] */                                   \
             int32_t E, int32_t I, int32_t S, int32_t H, int32_t k,                                                          \
             float* hidden,                                                /* [rows, k+1, max(I, S)] scratch */              \
             uint32_t* meet) {                                             /* [1..] 0 at first */                            \
    run<Act>(head, x, ids, weights, shared_scale, {gate_up, down, shared_gate, shared_up, shared_down, H, I, S, k, hidden}, y, E, \
             meet);                                                                                                          \
  }
EXPERTS(experts_add_rows_bf16_silu, act::silu)
EXPERTS(experts_add_rows_bf16_gelu_tanh, act::gelu_tanh)
