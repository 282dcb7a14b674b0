// SPDX-License-Identifier: MIT OR Apache-2.0
// Family experts_layer (layer.cuh), bf16 weights as stored, which stream through shared memory by mma/weight_queue.cuh. Warps split K: of
// H in hidden, of each expert's I in down. H, I and S must divide by 32.

#include "layer.cuh"

namespace {

using namespace experts;
using queue::kRows;
using queue::kStep;
using queue::kTile;

// Reads is what a warp of this block reads: tiles of the shared expert's hidden part, of the others', and for each tile of columns the
// down parts of all.
struct Reads {
  const Args& a;
  const Table& table;
  Span span, inner, sinner;   // steps of H, I and S
  queue::Share shared, cols;  // hidden tiles of the shared expert; tiles of columns
  int routed = 0;             // hidden tiles of the others, and
  int experts = 0;            // how many there are, with the shared one, once they are known
  int tile = 0, d = 0, u = 0;                   // the next hidden tile; its expert and unit of 8 rows
  int col = 0, e = 0;                           // the next tile of columns, expert
  const uint16_t *p0 = nullptr, *p1 = nullptr;  // of the next step
  int left = 0;                                 // of the run

  __device__ __forceinline__ Reads(const Args& a, const Table& table)
      : a(a), table(table), span(a.H / kStep), inner(a.I / kStep), sinner(a.S / kStep), shared(a.S / 8), cols((a.H + kTile - 1) / kTile) {}

  // know tells it which experts there are.
  __device__ __forceinline__ void know() {
    const int per = a.I / 8;
    const queue::Share share(table.count * per);
    routed = share.n, d = share.lo / per, u = share.lo - d * per, experts = table.count + (a.S > 0);
  }
  __device__ __forceinline__ int steps(int expert) const { return expert == table.count ? sinner.n : inner.n; }
  __device__ __forceinline__ int next(const uint16_t*& from0, const uint16_t*& from1) {
    while (left == 0)
      if (!open()) return 0;
    const int n = min(left, queue::kPiece);
    from0 = p0, from1 = p1;
    p0 += n * kStep, p1 += n * kStep, left -= n;
    return n;
  }

 private:
  __device__ __forceinline__ static const uint16_t* bf16(const void* w) { return static_cast<const uint16_t*>(w); }
  __device__ __forceinline__ bool open() {
    const int g = (threadIdx.x & 31) >> 2, t8 = (threadIdx.x & 3) * 8;
    if (tile < shared.n + routed) {
      const bool is_shared = tile < shared.n;
      const int at = ((is_shared ? shared.lo + tile : u) * 8 + g) * a.H + span.lo * kStep + t8;
      p0 = is_shared ? bf16(a.sgate) : bf16(a.gate_up) + uint64_t(uint32_t(2 * a.I * a.H)) * uint32_t(table.id[d]);
      p1 = (is_shared ? bf16(a.sup) : p0 + a.I * a.H) + at, p0 += at;
      if (!is_shared && ++u == a.I / 8) u = 0, d++;
      tile++, left = span.n;
      return true;
    }
    if (col == cols.n || experts == 0) return false;
    const int n = min((cols.lo + col) * kTile + g, a.H - 1), m = min(n + 8, a.H - 1);
    const bool is_shared = e == table.count;
    const int K = is_shared ? a.S : a.I, at = (is_shared ? sinner.lo : inner.lo) * kStep + t8;
    const uint16_t* w = is_shared ? bf16(a.sdown) : bf16(a.down) + uint64_t(uint32_t(a.H * a.I)) * uint32_t(table.id[e]);
    p0 = w + (n * K + at), p1 = w + (m * K + at);
    left = steps(e);
    if (++e == experts) e = 0, col++;
    return true;
  }
};

// bring splits the h of count pairs of n steps each into the region, from pair number first on; or of the rows' shared parts.
template <bool Routed>
__device__ __forceinline__ void bring(const Args& a, const Table& table, unsigned char* region, int first, int count, int lo, int n) {
  constexpr int kAtOnce = 3;
  const int lane = threadIdx.x & 31, t = lane & 3, total = count * n, inverse = (65535 + n) / max(n, 1);
  for (int base = lane >> 2; base < total; base += 8 * kAtOnce) {
    float4 v[kAtOnce][2];
    int to[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; j++) {
      const int i = base + 8 * j;
      if (i >= total) break;
      const int q = i * inverse >> 16, pair = first + q, source = Routed ? table.source[pair] : 32 * q + a.k;
      const float* p = a.h + (source >> 5) * a.width() + (source & 31) * a.I + (lo + i - q * n) * kStep + t * 8;
      v[j][0] = ptx::load_l2(reinterpret_cast<const float4*>(p)), v[j][1] = ptx::load_l2(reinterpret_cast<const float4*>(p) + 1);
      to[j] = i * 128 + queue::place(pair, 0, t);
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; j++) {
      if (base + 8 * j >= total) break;
      const float u[8] = {v[j][0].x, v[j][0].y, v[j][0].z, v[j][0].w, v[j][1].x, v[j][1].y, v[j][1].z, v[j][1].w};
      queue::put_parts(region, to[j], u);
    }
  }
}

// add_down adds to this block's columns of x.
template <bool Wide, int P>
__device__ __forceinline__ void add_down(const Args& a, Shared& s, queue::Queue<P>& queue, Reads& feed, unsigned char* region, int turn) {
  const Table& table = feed.table;
  const int mine = queue::row_of<Wide>(a.rows), n = feed.inner.n, sn = feed.sinner.n;
  for (int tile = 0; tile < feed.cols.n; tile++, turn++) {
    const int row = threadIdx.x / kTile, column = (feed.cols.lo + tile) * kTile + threadIdx.x % kTile;
    float* y = row < a.rows && column < a.H ? a.x + row * a.H + column : nullptr;
    const float old = y ? ptx::load_l2(y) : 0;
    float acc[2][Wide ? 2 : 1][4] = {};
    // Experts [d, end) whose h fits into the region, then the next ones; the shared one last.
    for (int d = 0; d < feed.experts;) {
      const int first = table.first[d];
      int end = d, room = a.region / 128;
      while (end < table.count && (table.first[end + 1] - first) * n <= room) end++;
      const int pairs = table.first[end] - first;
      const bool with_shared = end == table.count && a.S > 0 && pairs * n + a.rows * sn <= room;
      __syncwarp();  // all lanes have read what was here
      bring<true>(a, table, region, first, pairs, feed.inner.lo, n);
      if (with_shared) bring<false>(a, table, region + pairs * n * 128, 0, a.rows, feed.sinner.lo, sn);
      __syncwarp();
      int pair = d < end && mine >= 0 ? table.pair[d][mine] : -1;
      for (; d < end; d++) {
        queue::Fragments<Wide> x(region, pair < 0 ? -1 : (pair - first) * n, pair, 128);
        if (d + 1 < end && mine >= 0) pair = table.pair[d + 1][mine];
        queue::product<Wide>(queue, feed, x, n, acc);
      }
      if (with_shared) {
        queue::Fragments<Wide> x(region + pairs * n * 128, mine < 0 ? -1 : mine * sn, mine, 128);
        queue::product<Wide>(queue, feed, x, sn, acc);
        d++;
      }
    }
    queue::leave<Wide>(acc, s.sum[turn & 1][threadIdx.x >> 5]);
    __syncthreads();
    if (y) *y = old + total(s, turn, threadIdx.x % kTile, row);
  }
}

// Bf16 has a queue of P pieces a warp.
template <int P>
struct Bf16 {
  static constexpr int kArea = P * queue::kPiece * 1024;
  static constexpr float kUp = 1, kFactor = 1;
  static constexpr bool kScaled = false, kOwners = false, kBiased = false;
  using Queue = queue::Queue<P>;
  using Feed = Reads;
  template <bool Wide, class X>
  __device__ __forceinline__ static void product(Queue& queue, Feed& feed, X& x, int n, float (&acc)[2][Wide ? 2 : 1][4]) {
    queue::product<Wide>(queue, feed, x, n, acc);
  }
  template <bool Wide>
  __device__ __forceinline__ static void down(const Args& a, Shared& s, Queue& queue, Feed& feed, unsigned char* region, int turn, const int8_t*) {
    add_down<Wide>(a, s, queue, feed, region, turn);
  }
};

}  // namespace

// The entry's number is how many rows it takes at most.
#define LAYER(NAME, MOST, ACT)                                                                                                      \
  extern "C" __global__ void __launch_bounds__(kThreads, MOST > 4 ? 1 : 2)                                                          \
      NAME(const int32_t* __restrict__ head, float* x,              /* [rows, H], added to */                                       \
           const float* __restrict__ norm,                          /* [H] */                                                       \
           const uint16_t* __restrict__ router,                     /* [E, H] bf16 */                                               \
           const uint16_t* __restrict__ router_shared,              /* [1, H] or null */                                            \
           const uint16_t* __restrict__ gate_up,                    /* [E, 2I, H] bf16 */                                           \
           const uint16_t* __restrict__ down,                       /* [E, H, I] bf16 */                                            \
           const uint16_t* __restrict__ shared_gate,                /* [S, H] or null */                                            \
           const uint16_t* __restrict__ shared_up,                  /* [S, H] or null */                                            \
           const uint16_t* __restrict__ shared_down,                /* [H, S] or null */                                            \
           float* h,                                                /* [rows, k*I + S] */                                           \
           uint32_t* meet, int32_t E, int32_t I, int32_t S, int32_t H, int32_t k, int32_t region, /* bytes of a warp's region */    \
           float eps, int32_t plus_one, int32_t renorm, float renorm_eps, float weight_scale) {                                     \
    layer<Bf16<3>, MOST, ACT>({MOST == 1 ? 1 : head[0], x, norm, router, router_shared, gate_up, down, shared_gate, shared_up, shared_down, h, \
                               meet, E, I, S, H, k, region, eps, float(plus_one), renorm_eps, weight_scale, renorm});               \
  }
#define LAYERS(ACT)                                          \
  LAYER(experts_layer_rows_bf16_##ACT##_1, 1, act::ACT)      \
  LAYER(experts_layer_rows_bf16_##ACT##_4, 4, act::ACT)      \
  LAYER(experts_layer_rows_bf16_##ACT##_8, 8, act::ACT)
LAYERS(silu)
LAYERS(gelu_tanh)
