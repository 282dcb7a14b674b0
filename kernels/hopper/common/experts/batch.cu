// SPDX-License-Identifier: MIT OR Apache-2.0
// Family experts_batch, 9 to 64 rows, bf16 weights as stored: experts, shared expert and residual in one launch, a block a
// multiprocessor, where an expert has few rows and what takes time is its weights:
//
//	            every block sorts the rows by expert for itself, into parts of up to 8 rows of one expert; the shared expert's come last
//	hidden      h[place, 8 columns] = weight * act(gate x) * up x, rounded to bf16: a block has consecutive units of 8 columns of parts
//	            all blocks have written h; meanwhile the queue fills with what down reads
//	down        y[all rows, 16 columns] += Σ down h over all parts, in order
//
// Warps split K, of H in hidden and of each expert's I in down, and each lane copies what it will itself read, x and h too. So in hidden
// warps meet once a unit, to add up, and in down once in all: there each has sums of its own of all rows.
//
//	slot     a piece of up to 2 steps of 32 values: [steps × (32 lanes × 16 bytes of row g | 32 × 16 of row g+8)], lane 4g+t has
//	         values 8t to 8t+7; behind it, of down, [steps × 32 × 16 bytes of h], lane 4g+t has those of the part's row g
//	region   of x, a warp's steps × 32 lanes × 16 bytes; then of sums, a warp's [rows, 16] float32
//
// meet, integers that are 0 between launches: kMeet, blocks that have written h; blocks that have seen that all have.
//
// Grid: a block a multiprocessor, 256 threads; blocks wait for each other as those of experts/layer.cu do, and lose patience as they do.
// Dynamic shared memory kRingBytes + region. H and I must divide by 32, E be at most 512, rows*(k+1) at most 640.
//
// Order of a sum: a warp's steps rising, their first and second 16 values apart; of hidden, warps in order; of down, each warp's
// experts by rising id, the shared one last, then warps in order.

#include "../../../include/epilogue/act.cuh"
#include "../../../include/mma/weight_queue.cuh"
#include "../../../include/ptx/patience.cuh"

namespace {

using queue::kStep;
using queue::kTile;

constexpr int kWarps = 8, kThreads = 32 * kWarps, kCols = 8;
constexpr int kMaxExperts = 512, kMaxRows = 64, kMaxPlaces = 640, kMaxParts = 640;
constexpr int kPieces = 6, kSteps = 2;  // on their way; steps of one
constexpr int kWeights = kSteps * 1024, kSlot = kWeights + kSteps * 512, kRing = kPieces * kSlot, kRingBytes = kWarps * kRing;
constexpr int kMeet = 1088;
using Span = queue::Span<kWarps>;

// Part is up to 8 rows of an expert, at places one behind the other.
struct Part {
  int16_t expert, place, rows;
};

struct Table {
  Part part[kMaxParts];
  int16_t row[kMaxPlaces];    // of a place
  float weight[kMaxPlaces];   // of a place
  uint32_t takes[kMaxRows / 32][kMaxExperts];  // bit r: row r takes the expert
  int16_t first[kMaxExperts];  // place of an expert's first row
  int places[kWarps], parts[kWarps];
  int count;
};

struct Shared {
  float sum[2][kWarps][kCols][kTile + 4];  // of even and odd units
  Table table;
};

// Args are what the launch is given.
struct Args {
  int rows;
  const float* x;                       // [rows, H]
  const int32_t* ids;                   // [rows, k]
  const float *weights, *scale;         // [rows, k], [rows] or null
  const uint16_t *gate_up, *down;       // [E, 2I, H], [E, H, I]
  const uint16_t *sgate, *sup, *sdown;  // [I, H], [I, H], [H, I] or null
  float* y;                             // [rows, H]
  uint16_t* h;                          // [places, I] bf16
  uint32_t* meet;
  int E, I, H, k;
};

// sort fills in the table. An expert's rows stand in their order: all blocks must agree.
__device__ __forceinline__ void sort(const Args& a, Table& t) {
  constexpr int kEach = kMaxExperts / kThreads, kIds = (kMaxPlaces + kThreads - 1) / kThreads;
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, slots = a.rows * a.k;
  int id[kIds], row[kIds];
  float weight[kIds];
#pragma unroll
  for (int j = 0; j < kIds; j++) {
    const int i = tid + j * kThreads;
    if (i < slots) id[j] = ptx::load_l2(a.ids + i), weight[j] = ptx::load_l2(a.weights + i), row[j] = i / a.k;
  }
#pragma unroll
  for (int j = 0; j < kIds; j++)
    if (tid + j * kThreads < slots) atomicOr(&t.takes[row[j] / 32][id[j]], 1u << row[j] % 32);
  __syncthreads();
  // A thread has experts one behind the other.
  int rows[kEach], places = 0, parts = 0;
#pragma unroll
  for (int j = 0; j < kEach; j++) {
    const int e = tid * kEach + j;
    rows[j] = e < a.E ? __popc(t.takes[0][e]) + __popc(t.takes[1][e]) : 0;
    places += rows[j], parts += (rows[j] + kCols - 1) / kCols;
  }
  int place = places, part = parts;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int p = __shfl_up_sync(~0u, place, d), q = __shfl_up_sync(~0u, part, d);
    if (lane >= d) place += p, part += q;
  }
  if (lane == 31) t.places[warp] = place, t.parts[warp] = part;
  place -= places, part -= parts;
  __syncthreads();
  int all = 0;
#pragma unroll
  for (int w = 0; w < kWarps; w++) {
    if (w < warp) place += t.places[w], part += t.parts[w];
    all += t.parts[w];
  }
#pragma unroll
  for (int j = 0; j < kEach; j++) {
    const int e = tid * kEach + j;
    if (e < a.E) t.first[e] = int16_t(place);
    for (int r = 0; r < rows[j]; r += kCols) t.part[part++] = {int16_t(e), int16_t(place + r), int16_t(min(rows[j] - r, kCols))};
    place += rows[j];
  }
  if (a.sgate) {
    const int own = (a.rows + kCols - 1) / kCols;
    if (tid < own) t.part[all + tid] = {int16_t(a.E), int16_t(slots + tid * kCols), int16_t(min(a.rows - tid * kCols, kCols))};
    if (tid < a.rows) t.row[slots + tid] = int16_t(tid), t.weight[slots + tid] = a.scale ? act::sigmoid::of(ptx::load_l2(a.scale + tid)) : 1.0f;
    all += own;
  }
  if (tid == 0) t.count = all;
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kIds; j++) {
    if (tid + j * kThreads >= slots) continue;
    const uint32_t before = (1u << row[j] % 32) - 1, low = t.takes[0][id[j]];
    const int at = t.first[id[j]] + (row[j] < 32 ? __popc(low & before) : __popc(low) + __popc(t.takes[1][id[j]] & before));
    t.row[at] = int16_t(row[j]), t.weight[at] = weight[j];
  }
  __syncthreads();
}

// Queue is a warp's ring, and what it asks for next: units of hidden, then for each tile of columns the down parts of all.
struct Queue {
  const Args& a;
  const Table& table;
  Span span, inner;           // steps of H, of I
  queue::Share units, cols;   // of hidden; tiles of 16 columns
  unsigned char* mine;        // this lane's 16 bytes of the first slot
  int put = 0, got = 0;       // the next piece's slot; the one to take
  int unit = 0, d, u;         // the next unit; its part, and which of 8 columns
  int col = 0, p = 0;         // the next tile of columns, part
  bool met = false;           // h is there
  int early = 0;              // pieces of down that were asked for without
  const uint16_t *p0 = nullptr, *p1 = nullptr, *ph = nullptr;  // of the next step
  int left = 0;               // of the run

  __device__ __forceinline__ Queue(const Args& a, const Table& table, unsigned char* memory)
      : a(a), table(table), span(a.H / kStep), inner(a.I / kStep), units(table.count * (a.I / 8)), cols(a.H / kTile),
        mine(memory + (threadIdx.x >> 5) * kRing + (threadIdx.x & 31) * 16), d(units.lo / (a.I / 8)), u(units.lo - d * (a.I / 8)) {
#pragma unroll 1
    for (int i = 0; i < kPieces; i++) ask();
  }
  __device__ __forceinline__ static int after(int at) { return at + kSlot == kRing ? 0 : at + kSlot; }
  // ask asks for the next piece, a group whether there is one or not.
  __device__ __forceinline__ void ask() {
    bool some = true;
    while (left == 0 && some) some = open();
    if (some) {
      unsigned char* to = mine + put;
#pragma unroll
      for (int i = 0; i < kSteps; i++)
        if (i < left) ptx::async_copy_passing(to + i * 1024, p0 + i * kStep), ptx::async_copy_passing(to + i * 1024 + 512, p1 + i * kStep);
      if (ph) {
        if (met)
          bring(to, ph, left);
        else
          early++;
        ph += kSteps * kStep;
      }
      p0 += kSteps * kStep, p1 += kSteps * kStep, left = max(left - kSteps, 0);
    }
    ptx::async_commit();
    put = after(put);
  }
  // meet asks for the h of pieces that are on their way, and waits for all of them.
  __device__ __forceinline__ void meet() {
    int p = 0, step = 0, at = got;
#pragma unroll 1
    for (int i = 0; i < early; i++, at = after(at)) {
      bring(mine + at, from(p) + step * kStep, inner.n - step);
      if ((step += kSteps) >= inner.n) step = 0, p = p + 1 == table.count ? 0 : p + 1;
    }
    met = true;
    ptx::async_wait();
  }
  // next waits for the next piece and gives where it is; pass is called once it is read.
  __device__ __forceinline__ const unsigned char* next() const {
    ptx::async_wait_but<kPieces - 1>();
    return mine + got;
  }
  __device__ __forceinline__ void pass() {
    got = after(got);
    ask();
  }

 private:
  // from is where this lane's row of h begins, of a part. Rows that are not there are copies of the last one.
  __device__ __forceinline__ const uint16_t* from(int part) const {
    const Part& t = table.part[part];
    const int lane = threadIdx.x & 31;
    return a.h + (t.place + min(lane >> 2, t.rows - 1)) * a.I + inner.lo * kStep + (lane & 3) * 8;
  }
  __device__ __forceinline__ static void bring(unsigned char* slot, const uint16_t* h, int steps) {
#pragma unroll
    for (int i = 0; i < kSteps; i++)
      if (i < steps) ptx::async_copy(slot + kWeights + i * 512, h + i * kStep);
  }
  // open begins the next run.
  __device__ __forceinline__ bool open() {
    const int g = (threadIdx.x & 31) >> 2, t8 = (threadIdx.x & 3) * 8;
    if (unit < units.n) {
      const int e = table.part[d].expert, at = (u * 8 + g) * a.H + span.lo * kStep + t8;
      const bool own = e == a.E;
      p0 = own ? a.sgate : a.gate_up + uint64_t(uint32_t(2 * a.I * a.H)) * uint32_t(e);
      p1 = (own ? a.sup : p0 + a.I * a.H) + at, p0 += at, ph = nullptr;
      if (++u == a.I / 8) u = 0, d++;
      unit++, left = span.n;
      return true;
    }
    if (col == cols.n) return false;
    const int e = table.part[p].expert;
    p0 = (e == a.E ? a.sdown : a.down + uint64_t(uint32_t(a.H * a.I)) * uint32_t(e)) + ((cols.lo + col) * kTile + g) * a.I + inner.lo * kStep + t8;
    p1 = p0 + 8 * a.I, ph = from(p), left = inner.n;
    if (++p == table.count) p = 0, col++;
    return true;
  }
};

// add multiplies a step: rows of w, and x as fragments.
__device__ __forceinline__ void add(float (&sums)[2][4], const unsigned char* w, const unsigned char* x) {
  const uint4 a = *reinterpret_cast<const uint4*>(w), c = *reinterpret_cast<const uint4*>(w + 512), f = *reinterpret_cast<const uint4*>(x);
  mma::bf16(sums[0], a.x, c.x, a.y, c.y, f.x, f.y);
  mma::bf16(sums[1], a.z, c.z, a.w, c.w, f.z, f.w);
}

// hidden takes this block's units.
template <class Act>
__device__ __forceinline__ void hidden(const Args& a, Shared& s, Queue& queue, unsigned char* region) {
  const Span span = queue.span;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3, per = a.I / 8;
  const int col = threadIdx.x / 8 % kCols, r = threadIdx.x % 8;
  int d = queue.units.lo / per, u = queue.units.lo - d * per;
  unsigned char* const x = region + span.lo * 512 + lane * 16;
  for (int unit = 0, have = -1; unit < queue.units.n; unit++) {
    const Part part = s.table.part[d];
    if (have != d) {
      have = d;
      const float* from = a.x + int64_t(s.table.row[part.place + min(g, part.rows - 1)]) * a.H + span.lo * kStep + t * 8;
#pragma unroll 4
      for (int i = 0; i < span.n; i++) {
        const float4 v = ptx::load_l2(reinterpret_cast<const float4*>(from + i * kStep)), w = ptx::load_l2(reinterpret_cast<const float4*>(from + i * kStep) + 1);
        *reinterpret_cast<uint4*>(x + i * 512) = make_uint4(mma::pack(v.x, v.y), mma::pack(v.z, v.w), mma::pack(w.x, w.y), mma::pack(w.z, w.w));
      }
    }
    float sums[2][4] = {};
    for (int i = 0; i < span.n; i += kSteps) {
      const unsigned char* w = queue.next();
#pragma unroll
      for (int j = 0; j < kSteps; j++)
        if (i + j < span.n) add(sums, w + j * 1024, x + (i + j) * 512);
      queue.pass();
    }
    float(&to)[kCols][kTile + 4] = s.sum[unit & 1][warp];
    to[2 * t][g] = sums[0][0] + sums[1][0], to[2 * t + 1][g] = sums[0][1] + sums[1][1];
    to[2 * t][g + 8] = sums[0][2] + sums[1][2], to[2 * t + 1][g + 8] = sums[0][3] + sums[1][3];
    __syncthreads();
    // Warps take turns at what becomes of the sums.
    if (warp / 2 == unit % (kWarps / 2) && col < part.rows) {
      float gate = 0, up = 0;
#pragma unroll
      for (int w = 0; w < kWarps; w++) gate += s.sum[unit & 1][w][col][r], up += s.sum[unit & 1][w][col][r + 8];
      const int place = part.place + col;
      a.h[place * a.I + u * 8 + r] = uint16_t(mma::pack(s.table.weight[place] * Act::of(gate) * up, 0));
    }
    if (++u == per) u = 0, d++;
  }
}

// down adds to this block's columns of y.
__device__ __forceinline__ void down(const Args& a, Shared& s, Queue& queue, unsigned char* region) {
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, n = queue.inner.n;
  float* const mine = reinterpret_cast<float*>(region) + (threadIdx.x >> 5) * a.rows * kTile;
  for (int tile = 0; tile < queue.cols.n; tile++) {
    for (int i = lane; i < a.rows * kTile / 4; i += 32) reinterpret_cast<float4*>(mine)[i] = make_float4(0, 0, 0, 0);
    for (int p = 0; p < s.table.count; p++) {
      const Part part = s.table.part[p];
      const bool one = 2 * t < part.rows, two = 2 * t + 1 < part.rows;  // whether the part has the rows whose sums this lane gets
      float* const y0 = mine + (one ? s.table.row[part.place + 2 * t] * kTile + g : 0);
      float* const y1 = mine + (two ? s.table.row[part.place + 2 * t + 1] * kTile + g : 0);
      float sums[2][4] = {};
      for (int i = 0; i < n; i += kSteps) {
        const unsigned char* w = queue.next();
#pragma unroll
        for (int j = 0; j < kSteps; j++)
          if (i + j < n) add(sums, w + j * 1024, w + kWeights + j * 512);
        queue.pass();
      }
      __syncwarp();  // other lanes have added to these rows
      const float old[4] = {y0[0], y1[0], y0[8], y1[8]};
      if (one) y0[0] = old[0] + (sums[0][0] + sums[1][0]), y0[8] = old[2] + (sums[0][2] + sums[1][2]);
      if (two) y1[0] = old[1] + (sums[0][1] + sums[1][1]), y1[8] = old[3] + (sums[0][3] + sums[1][3]);
      __syncwarp();
    }
    __syncthreads();
    for (int i = threadIdx.x; i < a.rows * kTile; i += kThreads) {
      float* y = a.y + int64_t(i / kTile) * a.H + (queue.cols.lo + tile) * kTile + i % kTile;
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; w++) sum += reinterpret_cast<const float*>(region)[w * a.rows * kTile + i];
      *y = ptx::load_l2(y) + sum;
    }
    __syncthreads();
  }
}

template <class Act>
__device__ __forceinline__ void batch(const Args& a) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Shared s;
  ptx::start_successor();
  for (int e = threadIdx.x; e < a.E; e += kThreads) s.table.takes[0][e] = s.table.takes[1][e] = 0;
  if (a.sgate && threadIdx.x < 3) {  // memory idles while rows choose, and every row takes the shared expert
    const uint64_t bytes = uint64_t(a.I) * a.H * 2, from = bytes * blockIdx.x / gridDim.x & ~uint64_t(127), to = bytes * (blockIdx.x + 1) / gridDim.x & ~uint64_t(127);
    ptx::bulk_prefetch_l2(reinterpret_cast<const unsigned char*>(threadIdx.x == 0 ? a.sgate : threadIdx.x == 1 ? a.sup : a.sdown) + from, uint32_t(to - from));
  }
  __syncthreads();
  ptx::wait_for_predecessor();
  sort(a, s.table);
  Queue queue(a, s.table, memory);
  unsigned char* region = memory + kRingBytes;
  hidden<Act>(a, s, queue, region);
  __syncthreads();  // h is written, x is read
  uint32_t left = 0;
  if (threadIdx.x == 0) {
    ptx::add_release(a.meet + kMeet, 1);
    for (ptx::Patience patience; ptx::load_acquire(a.meet + kMeet) != gridDim.x;) patience.pause();
    left = atomicInc(a.meet + kMeet + 1, gridDim.x - 1);
  }
  __syncthreads();
  if (threadIdx.x == 0 && left == gridDim.x - 1) a.meet[kMeet] = 0;
  queue.meet();
  down(a, s, queue, region);
}

}  // namespace

#define BATCH(ACT)                                                                                                                       \
  extern "C" __global__ void __launch_bounds__(kThreads, 1)                                                                              \
      experts_batch_bf16_##ACT(const int32_t* __restrict__ head, const float* __restrict__ x,       /* [rows, H] */                      \
                               const int32_t* __restrict__ ids, const float* __restrict__ weights,  /* [rows, k] */                      \
                               const float* __restrict__ scale,                                     /* [rows, 1], or null: 1 */          \
                               const uint16_t* __restrict__ gate_up,                                /* [E, 2I, H] bf16 */                \
                               const uint16_t* __restrict__ down,                                   /* [E, H, I] bf16 */                 \
                               const uint16_t* __restrict__ shared_gate,                            /* [I, H] or null */                 \
                               const uint16_t* __restrict__ shared_up,                              /* [I, H] or null */                 \
                               const uint16_t* __restrict__ shared_down,                            /* [H, I] or null */                 \
                               float* y, uint16_t* h, uint32_t* meet, int32_t E, int32_t I, int32_t H, int32_t k) {                       \
    batch<act::ACT>({head[0], x, ids, weights, scale, gate_up, down, shared_gate, shared_up, shared_down, y, h, meet, E, I, H, k});      \
  }

BATCH(silu)
BATCH(gelu_tanh)
