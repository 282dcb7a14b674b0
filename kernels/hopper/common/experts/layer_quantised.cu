// SPDX-License-Identifier: MIT OR Apache-2.0
// Family experts_layer (layer.cuh), weights that stay quantised, in the layout "rows", which stream through shared memory by
// mma/panel_queue.cuh. H, I and S must divide by 128, of experts with biases H by 32 and I by 8. A tile is two panels: 8 rows of gate and the
// same of up, or 16 columns of down.
//
// Warps split K: of H in hidden; in down, the units of all experts that any row takes, by rising id, the shared one's behind them, as if
// they were one K, so that experts of few units keep all warps busy.
//
// A warp's region has h of its units of down, of the rows that take them:
//
//	item     512 bytes   a unit of one row: 4 steps of 128 bytes
//	unit     items of its takers, by rising row, [step][taker][128 bytes]
//
// Item numbers run through all units: with first[d] pairs before expert d, of r takers, its unit u begins with item first[d]*units(I) + u*r.

#include "../../../include/mma/panel_queue.cuh"
#include "../linear/formats.cuh"
#include "layer.cuh"

namespace {

using namespace experts;
using queue::kRows;
using queue::kStep;
using queue::kTile;
using queue::kUnit;

constexpr int kItem = 512, kSteps = kUnit / kStep;

__device__ __forceinline__ int units(int K) { return (K + kUnit - 1) / kUnit; }

// Place is a unit of down: of expert number e of the table, or of the shared one, which follows them.
struct Place {
  int e, u;
  __device__ __forceinline__ Place(const Args& a, const Table& t, int unit) : e(min(unit / ::units(a.I), t.count)), u(unit - e * ::units(a.I)) {}
  __device__ __forceinline__ int units(const Args& a, const Table& t) const { return ::units(e < t.count ? a.I : a.S); }
  __device__ __forceinline__ int takers(const Args& a, const Table& t) const { return e < t.count ? t.first[e + 1] - t.first[e] : a.rows; }
  __device__ __forceinline__ int item(const Args& a, const Table& t) const { return t.first[e] * ::units(a.I) + u * takers(a, t); }
};

// Feed is what a warp of this block reads: tiles of the shared expert's hidden part, of the others', and for each tile of columns its
// part of down.
template <class F>
struct Feed {
  const Args& a;
  const Table& table;
  Span span;                  // steps of H, whole units
  queue::Share shared, cols;  // hidden tiles of the shared expert; tiles of columns
  int routed = 0;             // hidden tiles of the others, once they are known
  int from = 0, count = 0;    // units of down, likewise
  int tile = 0, d = 0, u = 0;                  // the next hidden tile; its expert and unit of 8 rows
  int col = 0, done = 0;                       // the next tile of columns; its units that have been asked for
  const uint8_t *p0 = nullptr, *p1 = nullptr;  // of the next unit
  int left = 0;                                // of the run

  __device__ __forceinline__ Feed(const Args& a, const Table& table) : a(a), table(table), span(units(a.H)), shared(a.S / 8), cols(a.H / kTile) {
    span.lo *= kSteps, span.n *= kSteps;
  }
  // know tells it which experts there are.
  __device__ __forceinline__ void know() {
    const int per = a.I / 8;
    const queue::Share share(table.count * per);
    const Span down(table.count * units(a.I) + units(a.S));
    routed = share.n, d = share.lo / per, u = share.lo - d * per, from = down.lo, count = down.n;
  }
  __device__ __forceinline__ bool next(const uint8_t*& from0, const uint8_t*& from1) {
    while (left == 0)
      if (!open()) return false;
    from0 = p0, from1 = p1;
    p0 += F::kBytes, p1 += F::kBytes, left--;
    return true;
  }

 private:
  // unit is where this lane's codes of a unit of a matrix begin.
  __device__ __forceinline__ static const uint8_t* unit(const void* w, int number) {
    return static_cast<const uint8_t*>(w) + uint64_t(uint32_t(number)) * F::kBytes + (threadIdx.x & 31) * 16;
  }
  __device__ __forceinline__ bool open() {
    if (tile < shared.n + routed) {
      const int of_panel = units(a.H), first = span.lo / kSteps;
      if (tile < shared.n) {
        p0 = unit(a.sgate, (shared.lo + tile) * of_panel + first), p1 = unit(a.sup, (shared.lo + tile) * of_panel + first);
      } else {
        p0 = unit(a.gate_up, (table.id[d] * (a.I / 4) + u) * of_panel + first), p1 = p0 + uint64_t(uint32_t(a.I / 8 * of_panel)) * F::kBytes;
        if (++u == a.I / 8) u = 0, d++;
      }
      tile++, left = span.n / kSteps;
      return true;
    }
    if (col == cols.n || count == 0) return false;
    const Place at(a, table, from + done);
    const int of_panel = at.units(a, table), panel = (at.e < table.count ? table.id[at.e] * (a.H / 8) : 0) + 2 * (cols.lo + col);
    p0 = unit(at.e < table.count ? a.down : a.sdown, panel * of_panel + at.u), p1 = p0 + of_panel * F::kBytes;
    left = min(of_panel - at.u, count - done);
    if ((done += left) == count) done = 0, col++;
    return true;
  }
};

// Quantised is format F, without biases or with them.
template <class F, bool Biased>
struct Quantised {
  static constexpr int kArea = 9216;   // 4 units of e4m3 and its blocks, 7 of four bits
  static constexpr int kEarly = 4;     // biases of down that come before the sums
  static constexpr float kUp = F::kUp, kFactor = F::kFactor;
  static constexpr bool kScaled = F::kScaled, kOwners = true, kBiased = Biased;
  using Queue = queue::Panels<F, kArea>;
  using Feed = ::Feed<F>;

  template <bool Wide, class X>
  __device__ __forceinline__ static void product(Queue& queue, Feed& feed, X& x, int n, float (&acc)[2][Wide ? 2 : 1][4]) {
    queue.template product<Wide>(feed, x, n / kSteps, acc[0]);
  }

  // of_hidden multiplies by the scales of row r of tile number turn, and brings its biases.
  __device__ __forceinline__ static void of_hidden(const Args& a, const Feed& feed, int turn, int r, float& gate, float& up, float& gate_bias, float& up_bias) {
    if (turn < feed.shared.n) {
      const int i = (feed.shared.lo + turn) * 8 + r;
      if (a.sgate_scale) gate *= load(a.sgate_scale + i);
      if (a.sup_scale) up *= load(a.sup_scale + i);
      return;
    }
    const int per = a.I / 8, t = queue::Share(feed.table.count * per).lo + turn - feed.shared.n, d = t / per;
    const int i = feed.table.id[d] * 2 * a.I + (t - d * per) * 8 + r;
    if (kScaled && a.gate_up_scale) gate *= load(a.gate_up_scale + i), up *= load(a.gate_up_scale + i + a.I);
    if (kBiased && a.gate_up_bias) gate_bias = load(a.gate_up_bias + i), up_bias = load(a.gate_up_bias + i + a.I);
  }
  __device__ __forceinline__ static float load(const float* p) { return __uint_as_float(ptx::load_weights_word(p)); }

  // bring splits the whole units among count items, from number first on, into the region.
  __device__ __forceinline__ static void bring(const Args& a, const Table& table, unsigned char* region, int first, int count, const int8_t* owner) {
    const int lane = threadIdx.x & 31, t = lane & 3, per = units(a.I), pairs = table.first[table.count];
#pragma unroll 1
    for (int i = lane >> 2; i < count; i += 8) {
      const int item = first + i;
      int from, j, r, left;  // of h; which of r takers; values to the end of K
      if (item < pairs * per) {
        const int q = item / per, d = owner ? owner[q] : q, begin = table.first[d];
        r = table.first[d + 1] - begin;
        const int y = item - begin * per, u = y / r;
        j = y - u * r;
        const int source = table.source[begin + j];
        from = (source >> 5) * a.width() + (source & 31) * a.I + u * kUnit, left = a.I - u * kUnit;
      } else {
        r = a.rows;
        const int y = item - pairs * per, u = y / r;
        j = y - u * r;
        from = j * a.width() + a.k * a.I + u * kUnit, left = a.S - u * kUnit;
      }
      if (i - j + r > count) continue;  // of a unit that does not fit
      const float4* p = reinterpret_cast<const float4*>(a.h + from + t * 8);
      float4 v[kSteps][2];
#pragma unroll
      for (int s = 0; s < kSteps; s++) {
        v[s][0] = v[s][1] = make_float4(0, 0, 0, 0);
        if (!Biased || s * kStep + t * 8 < left) v[s][0] = ptx::load_l2(p + s * 8), v[s][1] = ptx::load_l2(p + s * 8 + 1);
      }
#pragma unroll
      for (int s = 0; s < kSteps; s++) {
        const float w[8] = {v[s][0].x, v[s][0].y, v[s][0].z, v[s][0].w, v[s][1].x, v[s][1].y, v[s][1].z, v[s][1].w};
        put<Quantised>(region, (i - j) * kItem + (s * r + j) * 128 + queue::place(j, 0, t), w);
      }
    }
  }

  // down adds to this block's columns of x.
  template <bool Wide>
  __device__ __forceinline__ static void down(const Args& a, Shared& s, Queue& queue, Feed& feed, unsigned char* region, int turn, const int8_t* owner) {
    const Table& table = feed.table;
    const int mine = queue::row_of<Wide>(a.rows), room = a.region / kItem;
    const Place from(a, table, feed.from), to(a, table, feed.from + feed.count);
    const int last = to.item(a, table);
    for (int tile = 0; tile < feed.cols.n; tile++, turn++) {
      const int row = threadIdx.x / kTile, column = (feed.cols.lo + tile) * kTile + threadIdx.x % kTile;
      float* y = row < a.rows ? a.x + row * a.H + column : nullptr;
      const float old = y ? ptx::load_l2(y) : 0;
      float bias[kEarly] = {};
      if (Biased && y && a.down_bias) {
#pragma unroll
        for (int i = 0; i < kEarly; i++)
          if (i < a.k) bias[i] = load(a.down_bias + (s.id[row][i] * a.H + column));
      }
      float acc[2][Wide ? 2 : 1][4] = {};
      Place at = from;
      // Units [at, …) whose h fits into the region, then the next ones.
      for (int item = from.item(a, table), rest = feed.count; rest > 0;) {
        const int first = item, count = min(room, last - first);
        __syncwarp();  // all lanes have read what was here
        bring(a, table, region, first, count, owner);
        __syncwarp();
        while (rest > 0) {
          const int takers = at.takers(a, table), all = at.units(a, table), n = min(min(all - at.u, rest), (first + count - item) / takers);
          if (n == 0) break;
          const bool is_shared = at.e == table.count;
          const int pair = mine < 0 || is_shared ? -1 : table.pair[at.e][mine];
          const int j = is_shared ? mine : pair < 0 ? -1 : pair - table.first[at.e];
          float low = 1, high = 1;  // scales of rows g and g+8
          const float* scale = is_shared ? a.sdown_scale : a.down_scale;
          if (kScaled && scale) {
            scale += (is_shared ? 0 : table.id[at.e] * a.H) + (feed.cols.lo + tile) * kTile + ((threadIdx.x & 31) >> 2);
            low = load(scale), high = load(scale + 8);
          }
          queue::Fragments<Wide> x(region, j < 0 ? -1 : (item - first) * kSteps + j, j, takers * 128);
          queue.template product<Wide>(feed, x, n, acc[1]);
          if (kScaled) {
#pragma unroll
            for (int p = 0; p <= Wide; p++)
#pragma unroll
              for (int i = 0; i < 4; i++) acc[0][p][i] = fmaf(i < 2 ? low : high, acc[1][p][i], acc[0][p][i]), acc[1][p][i] = 0;
          }
          item += n * takers, rest -= n;
          if ((at.u += n) == all) at.u = 0, at.e++;
        }
      }
      queue::leave<Wide>(acc, s.sum[turn & 1][threadIdx.x >> 5]);
      __syncthreads();
      if (!y) continue;
      float v = old + total(s, turn, threadIdx.x % kTile, row) * kFactor;
      if (Biased && a.down_bias) {
#pragma unroll
        for (int i = 0; i < kEarly; i++)
          if (i < a.k) v = fmaf(s.weight[row][i], bias[i], v);
        for (int i = kEarly; i < a.k; i++) v = fmaf(s.weight[row][i], load(a.down_bias + (s.id[row][i] * a.H + column)), v);
      }
      *y = v;
    }
  }
};

}  // namespace

// The entry's number is how many rows it takes at most.
#define ENTRY(F, NAME, MOST) extern "C" __global__ void __launch_bounds__(kThreads, MOST > 4 ? 1 : 2) experts_layer_rows_##F##_##NAME##_##MOST
#define IN(T, NAME) const T* __restrict__ NAME
#define LAYER(F, MOST)                                                                                                                \
  ENTRY(F, silu, MOST)                                                                                                                \
  (IN(int32_t, head), float* x,                                                     /* [rows, H], added to */                         \
   IN(float, norm), IN(uint16_t, router), IN(uint16_t, router_shared),              /* [H], [E, H] bf16, [1, H] or null */            \
   IN(uint8_t, gate_up), IN(uint8_t, down), IN(float, gate_up_scale), IN(float, down_scale), /* [E, 2I, H], [E, H, I], of rows */     \
   IN(uint8_t, shared_gate), IN(uint8_t, shared_up), IN(uint8_t, shared_down),      /* [S, H], [S, H], [H, S] or null */              \
   IN(float, sg), IN(float, su), IN(float, sd),                                     /* of rows, or null */                            \
   float* h,                                                                        /* [rows, k*I + S] */                             \
   uint32_t* meet, int32_t E, int32_t I, int32_t S, int32_t H, int32_t k, int32_t region, /* bytes of a warp's region */              \
   float eps, int32_t plus_one, int32_t renorm, float renorm_eps, float weight_scale) {                                               \
    layer<Quantised<F, false>, MOST, act::silu>({MOST == 1 ? 1 : head[0], x, norm, router, router_shared, gate_up, down, shared_gate,  \
                                                 shared_up, shared_down, h, meet, E, I, S, H, k, region, eps, float(plus_one),         \
                                                 renorm_eps, weight_scale, renorm, gate_up_scale, down_scale, sg, su, sd});            \
  }
#define LAYERS(F) \
  LAYER(F, 1)     \
  LAYER(F, 4)     \
  LAYER(F, 8)
LAYERS(e4m3)
LAYERS(e4m3_b128)
LAYERS(nvfp4)

// The same with biases, without a shared expert, of one row.
#define BIASED(F, ACT, MOST)                                                                                                          \
  ENTRY(F, ACT, MOST)                                                                                                                 \
  (IN(int32_t, head), float* x, IN(float, norm), IN(uint16_t, router), IN(float, router_bias),        /* [E] or null */               \
   IN(uint8_t, gate_up), IN(uint8_t, down), IN(float, gate_up_bias), IN(float, down_bias),            /* [E, 2I], [E, H] or null */   \
   float* h, uint32_t* meet, int32_t E, int32_t I, int32_t H, int32_t k, int32_t region, float eps, int32_t plus_one, int32_t renorm,  \
   float renorm_eps, float weight_scale, float limit) {                                                                               \
    layer<Quantised<F, true>, MOST, glu::ACT>({MOST == 1 ? 1 : head[0], x, norm, router, nullptr, gate_up, down, nullptr, nullptr,     \
                                               nullptr, h, meet, E, I, 0, H, k, region, eps, float(plus_one), renorm_eps, weight_scale,\
                                               renorm, nullptr, nullptr, nullptr, nullptr, nullptr, router_bias, gate_up_bias,         \
                                               down_bias, limit});                                                                    \
  }
BIASED(mxfp4, swiglu_oai, 1)
