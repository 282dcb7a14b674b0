// SPDX-License-Identifier: MIT OR Apache-2.0
// Family linear, 1 to 8 rows, bf16 weights as stored, which stream through shared memory (mma/weight_queue.cuh): the projections into
// a delta net, behind a norm, one of them through a causal convolution.
//
// A block owns consecutive rows of the matrices, as many as the others within 8; its warps split K, and each splits its own part of x.
// The queue is full before the predecessor launch is waited for.
//
// Grid: a block a multiprocessor; 256 threads. Dynamic shared memory 8*(4096*kPieces + 128*rows*ceil(K, 256)). K must divide by 32.
//
// Order of a sum: mma/weight_queue.cuh, warps in order. Of squares: 8 values of every 8th step of a warp's to a lane, 32 lanes, warps in
// order.

#include "../../../include/epilogue/act.cuh"
#include "../../../include/mma/weight_queue.cuh"

namespace {

using queue::kRows;
using queue::kStep;
using queue::kTile;

constexpr int kWarps = 8, kThreads = 32 * kWarps, kPieces = 4;
using Span = queue::Span<kWarps>;

struct Shared {
  float sum[2][kWarps][kRows][kTile + 4];  // of even and odd tiles
  float square[kWarps][kRows];
};

// Args are what the launch is given.
struct Args {
  int rows;
  const int32_t *row_seq, *cu_rows, *slot, *fresh;
  const float *x, *norm;  // [rows, K], [K]
  const uint16_t* w[4];   // [n, K]
  const float *conv, *conv_bias;  // [n[0], 4]; [n[0]] or null
  float* state;           // [slots, 3, n[0]]
  float* y[4];            // [rows, n]
  int n[4], K;
  float eps, one;

  __device__ __forceinline__ int outputs() const { return n[0] + n[1] + n[2] + n[3]; }
  // find turns a row of all matrices into one of matrix number i.
  __device__ __forceinline__ int find(int& row) const {
    int i = 0;
#pragma unroll
    for (int j = 0; j < 3; j++)
      if (i == j && row >= n[j]) row -= n[j], i++;
    return i;
  }
};

// pick is p[i] without indexing memory.
template <class T>
__device__ __forceinline__ T pick(const T (&p)[4], int i) {
  return i == 0 ? p[0] : i == 1 ? p[1] : i == 2 ? p[2] : p[3];
}

// Feed is a warp's part of this block's tiles.
struct Feed {
  const Args& a;
  Span span;
  int lo, hi, tiles;  // rows of this block
  int tile = 0, left = 0;
  const uint16_t *p0 = nullptr, *p1 = nullptr;

  __device__ __forceinline__ explicit Feed(const Args& a) : a(a), span(a.K / kStep) {
    const queue::Share share((a.outputs() + 7) / 8);
    lo = share.lo * 8, hi = min((share.lo + share.n) * 8, a.outputs()), tiles = (hi - lo + kTile - 1) / kTile;
  }
  __device__ __forceinline__ const uint16_t* at(int row) const {
    row = min(row, hi - 1);
    const uint16_t* w = pick(a.w, a.find(row));
    return w + int64_t(row) * a.K + span.lo * kStep + (threadIdx.x & 3) * 8;
  }
  __device__ __forceinline__ int next(const uint16_t*& from0, const uint16_t*& from1) {
    if (left == 0) {
      if (tile == tiles || span.n == 0) return 0;
      const int row = lo + tile * kTile + ((threadIdx.x & 31) >> 2);
      p0 = at(row), p1 = at(row + 8);
      tile++, left = span.n;
    }
    const int n = min(left, queue::kPiece);
    from0 = p0, from1 = p1;
    p0 += n * kStep, p1 += n * kStep, left -= n;
    return n;
  }
};

// Norm has the weights of a warp's first 8 steps: lane 4i + t has values 8t to 8t+7 of step i.
struct Norm {
  float4 a, b;
  __device__ __forceinline__ void load(const Args& args, const Span& span, int step) {
    a = b = make_float4(0, 0, 0, 0);
    const int lane = threadIdx.x & 31;
    if (step + (lane >> 2) >= span.n) return;
    const float4* p = reinterpret_cast<const float4*>(args.norm + (span.lo + step + (lane >> 2)) * kStep + (lane & 3) * 8);
    a = p[0], b = p[1];
  }
};

// split brings this warp's part of x·norm to its region, N rows at once, and leaves the rows' squares.
template <int N>
__device__ __forceinline__ void split(const Args& a, const Span& span, Norm norm, unsigned char* region, float (*square)[kRows]) {
  const int lane = threadIdx.x & 31, t = lane & 3;
#pragma unroll 1
  for (int r0 = 0; r0 < a.rows; r0 += N) {
    float sums[N] = {};
#pragma unroll 1
    for (int step = 0; step < span.n; step += 8) {
      const int mine = step + (lane >> 2);
      const bool real = mine < span.n;
      float4 v[N][2] = {};
#pragma unroll
      for (int r = 0; r < N; r++)
        if (real && r0 + r < a.rows) {
          const float4* p = reinterpret_cast<const float4*>(a.x + (r0 + r) * a.K + (span.lo + mine) * kStep + t * 8);
          v[r][0] = ptx::load_l2(p), v[r][1] = ptx::load_l2(p + 1);
        }
      if (step + r0 > 0) norm.load(a, span, step);
      const float m[8] = {a.one + norm.a.x, a.one + norm.a.y, a.one + norm.a.z, a.one + norm.a.w, a.one + norm.b.x, a.one + norm.b.y, a.one + norm.b.z, a.one + norm.b.w};
#pragma unroll
      for (int r = 0; r < N; r++) {
        float y[8] = {v[r][0].x, v[r][0].y, v[r][0].z, v[r][0].w, v[r][1].x, v[r][1].y, v[r][1].z, v[r][1].w};
#pragma unroll
        for (int i = 0; i < 8; i++) sums[r] = fmaf(y[i], y[i], sums[r]), y[i] *= m[i];
        if (real && r0 + r < a.rows) queue::put_parts(region, (mine * a.rows + r0 + r) * 128 + queue::place(r0 + r, 0, t), y);
      }
    }
    const float sum = queue::sum_over_lanes(sums);
    constexpr int kLanes = 32 / N;  // of a value
    if (lane % kLanes == 0 && r0 + lane / kLanes < a.rows) square[threadIdx.x >> 5][r0 + lane / kLanes] = sum;
  }
  __syncwarp();
}

// Taps are a channel's inputs before one row's, the oldest first. load has those before the step, under way while sums are made;
// inputs of the sequence's rows in this step are the caller's to fill in.
struct Taps {
  float4 w;
  float bias, h0, h1, h2;
  int behind;  // rows of the sequence before this one

  __device__ __forceinline__ static float* state(const Args& a, int seq, int c) { return a.state + int64_t(a.slot[seq]) * 3 * a.n[0] + c; }
  __device__ __forceinline__ void load(const Args& a, int row, int c) {
    const int seq = a.row_seq[row], C = a.n[0];
    behind = row - a.cu_rows[seq];
    w = *reinterpret_cast<const float4*>(a.conv + 4 * c);
    bias = a.conv_bias ? a.conv_bias[c] : 0;
    h0 = h1 = h2 = 0;
    if (a.fresh[seq]) return;
    const float* p = state(a, seq, c);
    if (behind < 3) h0 = ptx::load_l2(p + behind * C);
    if (behind < 2) h1 = ptx::load_l2(p + (behind + 1) * C);
    if (behind < 1) h2 = ptx::load_l2(p + 2 * C);
  }
  // push gives the row's output, and keeps the newest inputs if the row is the sequence's last.
  __device__ __forceinline__ float push(const Args& a, int row, int c, float x) const {
    const int seq = a.row_seq[row], C = a.n[0];
    if (row + 1 == a.cu_rows[seq + 1]) {
      float* p = state(a, seq, c);
      p[0] = h1, p[C] = h2, p[2 * C] = x;
    }
    return act::silu::of(w.x * h0 + w.y * h1 + w.z * h2 + w.w * x + bias);
  }
};

// value is an output of a tile, before the convolution.
__device__ __forceinline__ float value(const Shared& s, int tile, int r, int col, float factor) {
  float v = s.sum[tile & 1][0][col][r];
#pragma unroll
  for (int w = 1; w < kWarps; w++) v += s.sum[tile & 1][w][col][r];
  return v * factor;
}
__device__ __forceinline__ float factor_of(const Shared& s, const Args& a, int col) {
  float q = 0;
#pragma unroll
  for (int w = 0; w < kWarps; w++) q += s.square[w][col];
  return rsqrtf(q / float(a.K) + a.eps);
}

// project is a launch of up to Most rows: 1, 4 or 8.
template <int Most>
__device__ __forceinline__ void project(const Args& a) {
  constexpr bool Wide = Most > kRows / 2;
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ Shared s;
  ptx::start_successor();
  const int warp = threadIdx.x >> 5;
  Feed feed(a);
  Norm norm;
  norm.load(a, feed.span, 0);
  queue::Queue<kPieces> queue(memory);
  queue.fill(feed);
  unsigned char* region = memory + kWarps * queue.kBytes + feed.span.lo * a.rows * 128;
  ptx::wait_for_predecessor();
  split<Most == 1 ? 1 : 4>(a, feed.span, norm, region, s.square);
  const int mine = queue::row_of<Wide>(a.rows), col = threadIdx.x / kTile, r = threadIdx.x % kTile;
  float factor = 0;
  for (int tile = 0; tile < feed.tiles; tile++) {
    int row = feed.lo + tile * kTile + r;
    const bool real = col < a.rows && row < feed.hi;
    const int at = a.find(row);
    Taps taps;
    if (real && at == 0) taps.load(a, col, row);
    float acc[2][Wide ? 2 : 1][4] = {};
    queue::Fragments<Wide> x(region, mine, mine, a.rows * 128);
    queue::product<Wide>(queue, feed, x, feed.span.n, acc);
    queue::leave<Wide>(acc, s.sum[tile & 1][warp]);
    __syncthreads();
    if (!real) continue;
    if (tile == 0) factor = factor_of(s, a, col);
    float v = value(s, tile, r, col, factor);
    if (at == 0) {
      for (int j = 1; j <= min(taps.behind, 3); j++) {  // inputs that this step has
        const float u = value(s, tile, r, col - j, factor_of(s, a, col - j));
        (j == 1 ? taps.h2 : j == 2 ? taps.h1 : taps.h0) = u;
      }
      v = taps.push(a, col, row, v);
    }
    pick(a.y, at)[int64_t(col) * pick(a.n, at) + row] = v;
  }
}

}  // namespace

// yi = rms_norm(x) wiᵀ; y0 goes through the causal convolution and silu. Absent matrices have Ni = 0. The entry's number is how many
// rows it takes at most.
#define PROJECT(MOST)                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(kThreads, MOST > 4 ? 1 : 2) norm_linear_conv_rows_bf16_##MOST(                         \
      const int32_t* __restrict__ head, const int32_t* __restrict__ row_seq, const int32_t* __restrict__ cu_rows,                     \
      const int32_t* __restrict__ state_slot, const int32_t* __restrict__ fresh, const float* __restrict__ x, /* [rows, K] */         \
      const float* __restrict__ norm,                                                                        /* [K] */                \
      const uint16_t* __restrict__ w0, const uint16_t* __restrict__ w1, const uint16_t* __restrict__ w2,                              \
      const uint16_t* __restrict__ w3,   /* [Ni, K] bf16 */                                                                           \
      const float* __restrict__ conv,    /* [N0, 4] */                                                                                \
      const float* __restrict__ conv_bias, /* [N0] or null */                                                                         \
      float* state,                      /* [slots, 3, N0] */                                                                         \
      float* __restrict__ y0, float* __restrict__ y1, float* __restrict__ y2, float* __restrict__ y3, /* [rows, Ni] */                \
      int32_t N0, int32_t N1, int32_t N2, int32_t N3, int32_t K, float eps, int32_t plus_one) {                                       \
    project<MOST>({MOST == 1 ? 1 : head[0], row_seq, cu_rows, state_slot, fresh, x, norm, {w0, w1, w2, w3}, conv, conv_bias, state,              \
                   {y0, y1, y2, y3}, {N0, N1, N2, N3}, K, eps, float(plus_one)});                                                     \
  }
PROJECT(1)
PROJECT(4)
PROJECT(8)
