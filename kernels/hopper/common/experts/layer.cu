// SPDX-License-Identifier: MIT OR Apache-2.0
// Family experts_layer, 1 to 8 rows, bf16 weights as stored: norm, router, experts, shared expert and residual in one launch, a block
// a multiprocessor. Blocks meet twice, and weights keep coming meanwhile (mma/weight_queue.cuh):
//
//	            before the wait   router's weights into registers, the shared expert's first ones into the queue
//	logits      a block has a few of the router's weight rows; each logit goes to all blocks through a word of meet
//	            every block finds the best k of each row by itself, and fills the queue with their weights
//	hidden      h[row, slot·I …] = weight * act(gate x) * up x: tiles of 8 rows of gate and the same 8 of up, of each expert
//	            all blocks have written h; meanwhile the queue fills with what down reads
//	down        x[row, 16 columns] += down h[row]: K runs through the experts that any row takes, by rising id, the shared one last
//
// An expert is read once, however many rows take it. Warps split K: of H in hidden, of each expert's I in down; so what a warp reads of
// x and h only itself has split, in a region of its own.
//
// meet, integers that are 0 between launches:
//
//	kMeet       blocks that have written h; blocks that have seen that all have
//	kWords      [8][kStride]  logits, as keys that are not 0; behind a row's E the shared expert's scale
//
// The last block to leave clears them: by then, all have read.
//
// Grid: a block a multiprocessor, 256 threads. Dynamic shared memory 8*(4096*kPieces + region). H, I and S must divide by 32, I and S be
// at most H; E at most 512, k at most 16, rows*k at most 128.
//
// Blocks wait for each other, so all must run at once: binding the launch makes sure that they fit (resident in the manifest). The launch
// before this one ends by itself, and none behind it comes up before all of its blocks have (start_successor), so nothing of the same
// stream keeps a block out for good. A stream beside it may only have launches that end by themselves, too; the engine has one of launches.
// If one stays out all the same, the others lose patience (ptx/patience.cuh).
//
// Order of a sum: mma/weight_queue.cuh, warps in order; of down, experts by rising id. Of a logit: quads of 8 values to a lane, float32.

#include <type_traits>

#include "../../../include/epilogue/act.cuh"
#include "../../../include/mma/weight_queue.cuh"
#include "../../../include/ptx/patience.cuh"

namespace {

using queue::kRows;
using queue::kStep;
using queue::kTile;

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kMaxExperts = 512, kMaxPairs = 128, kMaxK = 16;
constexpr int kPieces = 3;
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
  const uint16_t *gate_up, *down;       // [E, 2I, H], [E, H, I]
  const uint16_t *sgate, *sup, *sdown;  // [S, H], [S, H], [H, S] or null
  float* h;                             // [rows, k*I + S]
  uint32_t* meet;
  int E, I, S, H, k, region;
  float eps, one, renorm_eps, weight_scale;
  int renorm;

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

// Logits works out this block's, two at a time, and splits x on the first round. A lane has 8 values of a step: lane 4i + t those from
// 8t of step i.
struct Logits {
  const Args& a;
  Span span;
  int lo, hi;      // of the logits
  float4 n0, n1;   // of the norm, of this lane's first values
  uint4 w[2];      // of two logits' weights

  __device__ __forceinline__ Logits(const Args& a, const Span& span) : a(a), span(span) {
    const queue::Share share(a.logits());
    lo = share.lo, hi = share.lo + share.n;
    n0 = n1 = make_float4(0, 0, 0, 0);
    w[0] = w[1] = make_uint4(0, 0, 0, 0);
    load(0, lo);
  }
  __device__ __forceinline__ int lane_step() const { return (threadIdx.x & 31) >> 2; }
  __device__ __forceinline__ int at(int step) const { return (span.lo + step + lane_step()) * kStep + (threadIdx.x & 3) * 8; }
  // load brings what the warp's steps from there need for logits e and e+1.
  __device__ __forceinline__ void load(int step, int e) {
    if (step + lane_step() >= span.n) return;
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
        const bool real = mine < span.n;
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
          if (first && !late && real && r0 + r < a.rows) queue::put_parts(region, (mine * a.rows + r0 + r) * 128 + queue::place(r0 + r, 0, t), y[r]);
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
      if (e + j < hi) ptx::store_word(a.words(row) + e + j, key(f * v));
      if (first && j == 0) s.factor[row] = f;
    }
    if (late && lane_step() < span.n) queue::put_parts(region, lane_step() * 128 + queue::place(0, 0, t), y[0]);
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

// number_pairs fills the rest, by warp 0.
__device__ __forceinline__ void number_pairs(Table& t, int rows) {
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
      if (slot >= 0) t.source[at++] = int16_t(32 * r + slot);
    }
  }
  if (lane == 0) t.first[t.count] = int16_t(pairs);
}

// ------------------------------------------------------------------------------------------------------------- weights

// Feed is what a warp of this block reads: tiles of the shared expert's hidden part, of the others', and for each tile of columns the
// down parts of all.
struct Feed {
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

  __device__ __forceinline__ Feed(const Args& a, const Table& table)
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
  __device__ __forceinline__ bool open() {
    const int g = (threadIdx.x & 31) >> 2, t8 = (threadIdx.x & 3) * 8;
    if (tile < shared.n + routed) {
      const bool is_shared = tile < shared.n;
      const int at = ((is_shared ? shared.lo + tile : u) * 8 + g) * a.H + span.lo * kStep + t8;
      p0 = is_shared ? a.sgate : a.gate_up + uint64_t(uint32_t(2 * a.I * a.H)) * uint32_t(table.id[d]);
      p1 = (is_shared ? a.sup : p0 + a.I * a.H) + at, p0 += at;
      if (!is_shared && ++u == a.I / 8) u = 0, d++;
      tile++, left = span.n;
      return true;
    }
    if (col == cols.n || experts == 0) return false;
    const int n = min((cols.lo + col) * kTile + g, a.H - 1), m = min(n + 8, a.H - 1);
    const bool is_shared = e == table.count;
    const int K = is_shared ? a.S : a.I, at = (is_shared ? sinner.lo : inner.lo) * kStep + t8;
    const uint16_t* w = is_shared ? a.sdown : a.down + uint64_t(uint32_t(a.H * a.I)) * uint32_t(table.id[e]);
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

__device__ __forceinline__ float total(const Shared& s, int turn, int r, int col) {
  float v = s.sum[turn & 1][0][col][r];
#pragma unroll
  for (int w = 1; w < kWarps; w++) v += s.sum[turn & 1][w][col][r];
  return v;
}

// -------------------------------------------------------------------------------------------------------------- phases

// hidden takes the tiles of h; returns their number.
template <bool Wide, class Act, int P>
__device__ __forceinline__ int hidden(const Args& a, Shared& s, queue::Queue<P>& queue, Feed& feed, unsigned char* region) {
  const int tiles = feed.shared.n + feed.routed, row = threadIdx.x / 8, r = threadIdx.x % 8, per = a.I / 8, mine = queue::row_of<Wide>(a.rows);
  int d = -1, u = 0;  // of the tile, worked out at the first that is no shared one's
  for (int turn = 0; turn < tiles; turn++) {
    float acc[2][Wide ? 2 : 1][4] = {};
    queue::Fragments<Wide> x(region, mine, mine, a.rows * 128);
    queue::product<Wide>(queue, feed, x, feed.span.n, acc);
    queue::leave<Wide>(acc, s.sum[turn & 1][threadIdx.x >> 5]);
    __syncthreads();
    const bool is_shared = turn < feed.shared.n;
    if (!is_shared) {
      if (d < 0) {
        const int lo = queue::Share(feed.table.count * per).lo;
        d = lo / per, u = lo - d * per;
      } else if (++u == per) {
        u = 0, d++;
      }
    }
    if (row >= a.rows) continue;
    const int slot = is_shared ? a.k : feed.table.slot[d][row], i = (is_shared ? feed.shared.lo + turn : u) * 8 + r;
    if (slot < 0) continue;
    const float f = s.factor[row];
    a.h[row * a.width() + slot * a.I + i] = s.weight[row][slot] * Act::of(f * total(s, turn, r, row)) * (f * total(s, turn, r + 8, row));
  }
  return tiles;
}

// down adds to this block's columns of x.
template <bool Wide, int P>
__device__ __forceinline__ void down(const Args& a, Shared& s, queue::Queue<P>& queue, Feed& feed, unsigned char* region, int turn) {
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

template <bool Wide, class Act, int P>
__device__ __forceinline__ void phases(const Args& a, Shared& s, queue::Queue<P>& queue, Feed& feed, unsigned char* region) {
  const int turn = hidden<Wide, Act>(a, s, queue, feed, region);
  // The region, whose x is read, is h's from here.
  __syncthreads();
  uint32_t left = 0;
  if (threadIdx.x == 0) {
    ptx::add_release(a.meet + kMeet, 1);
    for (ptx::Patience patience; ptx::load_acquire(a.meet + kMeet) != gridDim.x;) patience.pause();
    left = atomicInc(a.meet + kMeet + 1, gridDim.x - 1);
  }
  __syncthreads();
  down<Wide>(a, s, queue, feed, region, turn);
  if (threadIdx.x >= 32 || __shfl_sync(~0u, left, 0) != gridDim.x - 1) return;
  for (int r = 0; r < a.rows; r++)
    for (int i = threadIdx.x; i < a.logits(); i += 32) a.words(r)[i] = 0;
  if (threadIdx.x == 0) a.meet[kMeet] = 0;
}

// layer is a launch whose queues have P pieces, of up to Most rows: 1, 4 or 8.
template <int P, int Most, class Act>
__device__ __forceinline__ void layer(const Args& a) {
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ Shared s;
  ptx::start_successor();
  const int warp = threadIdx.x >> 5;
  Feed feed(a, s.table);
  Logits logits(a, feed.span);
  queue::Queue<P> queue(memory);
  queue.begin(feed);
  unsigned char* region = memory + kWarps * queue.kBytes + warp * a.region;
  ptx::wait_for_predecessor();
  logits.template run<Most == 1 ? 1 : 4>(s, region);
  Choice choice;
  if (warp < a.rows) {
    const bool all = !a.renorm || a.renorm_eps != 0;  // else the sum cancels
    choice = a.E <= 128 ? choose<4>(a, warp, s.id[warp], all) : a.E <= 256 ? choose<8>(a, warp, s.id[warp], all) : choose<16>(a, warp, s.id[warp], all);
    if (Most == 1) list_one(s.table, s.id[0], a.k);
  }
  __syncthreads();
  if (Most > 1) {
    if (warp == 0) list_experts(s, a.rows, a.k);
    __syncthreads();
  }
  feed.know();
  queue.fill(feed);
  if (warp < a.rows) weigh(a, choice, s.weight[warp]);
  if (Most > 1 && warp == 0) number_pairs(s.table, a.rows);
  phases<(Most > kRows / 2), Act>(a, s, queue, feed, region);
}

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
    layer<kPieces, MOST, ACT>({MOST == 1 ? 1 : head[0], x, norm, router, router_shared, gate_up, down, shared_gate, shared_up, shared_down, h, \
                               meet, E, I, S, H, k, region, eps, float(plus_one), renorm_eps, weight_scale, renorm});               \
  }
#define LAYERS(ACT)                                          \
  LAYER(experts_layer_rows_bf16_##ACT##_1, 1, act::ACT)      \
  LAYER(experts_layer_rows_bf16_##ACT##_4, 4, act::ACT)      \
  LAYER(experts_layer_rows_bf16_##ACT##_8, 8, act::ACT)
LAYERS(silu)
LAYERS(gelu_tanh)
