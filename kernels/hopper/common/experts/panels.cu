// SPDX-License-Identifier: MIT OR Apache-2.0
// Family experts, 3 and more rows, few for each expert, weights that stay quantised, in the layout "rows" (mma/quantised.cuh). The experts' rows
// are sorted and combined by experts/tiles.cu; in between, weights are the left operand of mma.m16n8k16 and rows of x its columns:
//
//	experts_up_panels    h = act(gate x) * (up x), rounded to bf16     a unit: 8 rows of gate and the same 8 of up
//	experts_act_panels   h = act(up x), of experts without a gate      a unit: 16 rows
//	experts_down_panels  d = down h, rounded to bf16                   a unit: 16 rows
//
//	part    some rows of one expert, at most Cols; its units follow each other          part 0 [u][u][u]… part 1 [u][u]…
//	block   consecutive units; it has x of the part at hand in shared memory, [step][row][32 values], rows in eights
//	warp    every 16th unit of a part of the block, with all of K: sums never leave it
//
// Each warp has a ring in shared memory, which bulk copies fill with what it multiplies next, whatever part that belongs to.
//
// Grid: any number of blocks, best one a multiprocessor; 512 threads. Dynamic shared memory: 128*ceil(K, 128)*2*Cols bytes of x, then the rings, two
// slots each at least. Cols is 8, 16 or 32; K and rows of matrices must divide by 8.
//
// Order of a sum: of 128 values, even and odd steps of 32 (of 17 rows and more of a part all steps), each 16 as the tensor core adds them; then
// units of 128, ascending.

#include <type_traits>

#include "../../../include/epilogue/act.cuh"
#include "../linear/formats.cuh"

namespace {

constexpr int kWarps = 16, kThreads = 32 * kWarps, kMaxExperts = 1024, kMostSlots = 8;

// Parts says where the parts of experts are.
struct Parts {
  int first[kMaxExperts + 1];  // place of an expert's first row
  int part[kMaxExperts + 1];   // number of its first part
};

// make_parts fills in parts of at most cols rows.
__device__ __forceinline__ void make_parts(Parts& p, const int32_t* first, int E, int cols) {
  for (int e = threadIdx.x; e <= E; e += kThreads) p.first[e] = first[e];
  __syncthreads();
  if (threadIdx.x < 32) {
    int before = 0;
    for (int base = 0; base < E; base += 32) {
      const int e = base + threadIdx.x;
      int upto = e < E ? (p.first[e + 1] - p.first[e] + cols - 1) / cols : 0;
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        const int v = __shfl_up_sync(~0u, upto, d);
        if (threadIdx.x >= d) upto += v;
      }
      if (e < E) p.part[e + 1] = before + upto;
      before += __shfl_sync(~0u, upto, 31);
    }
    if (threadIdx.x == 0) p.part[0] = 0;
  }
  __syncthreads();
}

// Walk goes through the parts of a block: units [lo, hi) of all, per of a part.
struct Walk {
  const Parts& p;
  int lo, hi, per, part, expert;
  __device__ __forceinline__ Walk(const Parts& p, int E, int per) : p(p), per(per), expert(0) {
    const uint64_t all = uint64_t(p.part[E]) * per;
    lo = int(all * blockIdx.x / gridDim.x), hi = int(all * (blockIdx.x + 1) / gridDim.x), part = lo / per;
    settle();
  }
  __device__ __forceinline__ bool more() const { return part * per < hi; }
  __device__ __forceinline__ void next() { part++, settle(); }
  __device__ __forceinline__ void settle() {
    if (more())
      while (part >= p.part[expert + 1]) expert++;
  }
  // from and to bound the block's units of the part; row is the place of its first row of x, of rows.
  __device__ __forceinline__ int from() const { return max(lo - part * per, 0); }
  __device__ __forceinline__ int to() const { return min(hi - part * per, per); }
  __device__ __forceinline__ int row(int cols) const { return p.first[expert] + (part - p.part[expert]) * cols; }
  __device__ __forceinline__ int rows(int cols) const { return min(p.first[expert + 1] - row(cols), cols); }
};

// Ring is what a warp multiplies next. Job gives panels(unit), how many a unit has, and panel(expert, unit, j), where its panel j begins.
template <class F, int D, class Job>
struct Ring {
  static constexpr int kPart = D * F::kBytes, kSlot = 2 * kPart;
  const Job& job;
  Walk walk;
  unsigned char* memory;
  uint64_t* full;
  int slots, units, unit, at = 0, put = 0, get = 0;  // the unit to copy next, from its 128 values number at on
  uint32_t parity = 0;

  __device__ __forceinline__ Ring(const Job& job, const Walk& walk, unsigned char* memory_, int bytes, uint64_t* full, int K)
      : job(job), walk(walk), full(full), slots(min(kMostSlots, bytes / (kWarps * kSlot))), units((K + 127) / 128) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    memory = memory_ + warp * slots * kSlot;
    unit = walk.from() + warp;
    if (lane < slots) ptx::mbarrier_init(full + lane, 1);
    ptx::mbarrier_publish();
    __syncwarp();
    for (int i = 0; i < slots; i++) fill();
  }
  __device__ __forceinline__ void fill() {
    while (walk.more() && unit >= walk.to()) walk.next(), unit = walk.from() + (threadIdx.x >> 5);
    if (!walk.more()) return;
    const int n = min(D, units - at), panels = job.panels(unit), lane = threadIdx.x & 31;
    if (lane == 0) ptx::mbarrier_expect(full + put, n * F::kBytes * panels);
    if (lane < panels) ptx::bulk_copy(memory + put * kSlot + lane * kPart, job.panel(walk.expert, unit, lane) + at * F::kBytes, n * F::kBytes, full + put);
    if (++put == slots) put = 0;
    if ((at += n) == units) at = 0, unit += kWarps;
  }
  __device__ __forceinline__ ptx::shared_pointer take() {
    ptx::mbarrier_wait(full + get, parity >> get & 1);
    return ptx::pinned(memory + get * kSlot);
  }
  __device__ __forceinline__ void refill() {
    parity ^= 1u << get;
    if (++get == slots) get = 0;
    __syncwarp();  // all lanes have read it
    fill();
  }
};

// Columns reads fragments of x: of 8 rows each.
template <int Eights>
struct Columns {
  ptx::shared_pointer x;
  __device__ __forceinline__ void read(int step, uint4 (&f)[Eights]) const {
#pragma unroll
    for (int i = 0; i < Eights; i++) f[i] = ptx::load_shared(x + (step * Eights + i) * 512);
  }
};

// raise multiplies a pair of bf16 by the format's factor.
template <class F>
__device__ __forceinline__ uint32_t raise(uint32_t v) {
  return F::kUp == 1 ? v : tiles::times(v, mma::pack(F::kUp, F::kUp));
}

// bring puts rows of x, [places, K] bf16, where Columns reads them; zeros behind K. Rows of the last eight that are not there are of no account.
template <class F>
__device__ __forceinline__ void bring(unsigned char* to, const uint16_t* x, int rows, int eights, int K) {
  const int per = (K + 127) / 128 * 16;  // 16 bytes of a row
  for (int i = threadIdx.x; i < rows * per; i += kThreads) {
    const int row = i / per, c = i - row * per;
    float4 v = make_float4(0, 0, 0, 0);
    if (8 * c < K) v = ptx::load_l2(reinterpret_cast<const float4*>(x + int64_t(row) * K + 8 * c));
    *reinterpret_cast<uint4*>(to + ((c / 4 * eights + row / 8) * 8 + row % 8) * 64 + c % 4 * 16) =
        make_uint4(raise<F>(__float_as_uint(v.x)), raise<F>(__float_as_uint(v.y)), raise<F>(__float_as_uint(v.z)), raise<F>(__float_as_uint(v.w)));
  }
}

// units multiplies this warp's units of the part at hand.
template <int Eights, class F, int D, class Job>
__device__ __forceinline__ void units(Ring<F, D, Job>& ring, const Job& job, const Walk& walk, const unsigned char* x, int row, int rows) {
  const Columns<Eights> lane{ptx::pinned(x + (threadIdx.x & 31) * 16)};
  for (int unit = walk.from() + (threadIdx.x >> 5); unit < walk.to(); unit += kWarps) {
    typename Job::Factors factors;
    job.begin(walk.expert, unit, factors);
    float acc[1][Eights][4] = {};
    for (int at = 0; at < ring.units; at += D) {
      const ptx::shared_pointer slot = ring.take();
      typename F::Unit u[2];
      F::read(u[0], slot, Ring<F, D, Job>::kPart);
#pragma unroll
      for (int i = 0; i < D; i++)
        if (at + i < ring.units) {
          if (i + 1 < D && at + i + 1 < ring.units) F::read(u[(i + 1) & 1], slot + (i + 1) * F::kBytes, Ring<F, D, Job>::kPart);
          F::template multiply<Eights>(u[i & 1], lane, (at + i) * F::kSteps, acc);
        }
      ring.refill();
    }
#pragma unroll
    for (int j = 0; j < Eights; j++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const int col = 8 * j + 2 * (threadIdx.x & 3) + e;
        if (col < rows) job.put(unit, row + col, acc[0][j][e], acc[0][j][2 + e], factors);
      }
  }
}

// run is the whole of a launch.
template <class F, int D, class Job>
__device__ __forceinline__ void run(const Job& job, const int32_t* first, const uint16_t* x, int E, int K, int per, int cols, int ring_bytes) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Parts parts;
  __shared__ uint64_t full[kWarps][kMostSlots];
  ptx::wait_for_predecessor_first();
  make_parts(parts, first, E, cols);
  Walk walk(parts, E, per);
  Ring<F, D, Job> ring(job, walk, memory + (K + 127) / 128 * 256 * cols, ring_bytes, full[threadIdx.x >> 5], K);
  for (; walk.more(); walk.next()) {
    const int row = walk.row(cols), rows = walk.rows(cols);
    const auto go = [&](auto eights) {
      constexpr int Eights = decltype(eights)::value;
      bring<F>(memory, x + int64_t(row) * K, rows, Eights, K);
      __syncthreads();
      units<Eights>(ring, job, walk, memory, row, rows);
    };
    if (rows <= 8)
      go(std::integral_constant<int, 1>());
    else if (rows <= 16)
      go(std::integral_constant<int, 2>());
    else
      go(std::integral_constant<int, 4>());
    __syncthreads();  // x is read
  }
}

// Up is h = act(gate x) * (up x).
template <class F, class Glu>
struct Up {
  const uint8_t* w;    // [E, 2I, H]
  const float *scale, *bias;  // [E, 2I], or null
  uint16_t* h;         // [places, I]
  int I, H;
  float limit;
  struct Factors {
    float gate, up, gate_bias, up_bias;
  };
  __device__ __forceinline__ int panels(int) const { return 2; }
  __device__ __forceinline__ const unsigned char* panel(int e, int unit, int j) const {
    return static_cast<const unsigned char*>(F::row(w, (int64_t(e) * 2 + j) * I + 8 * unit, H, 0));
  }
  __device__ __forceinline__ void begin(int e, int unit, Factors& f) const {
    const int64_t row = int64_t(e) * 2 * I + 8 * unit + (threadIdx.x & 31) / 4;
    f = {F::kFactor, F::kFactor, 0, 0};
    if (F::kScaled && scale) f.gate *= scale[row], f.up *= scale[row + I];
    if (bias) f.gate_bias = bias[row], f.up_bias = bias[row + I];
  }
  __device__ __forceinline__ void put(int unit, int place, float gate, float up, const Factors& f) const {
    const float v = Glu::of(fmaf(gate, f.gate, f.gate_bias), fmaf(up, f.up, f.up_bias), limit);
    h[int64_t(place) * I + 8 * unit + (threadIdx.x & 31) / 4] = uint16_t(mma::pack(v, 0));
  }
};

// Plain is y = act(w x): d = down h, and h of experts without a gate.
template <class F, class Act>
struct Plain {
  const uint8_t* w;    // [E, N, K]
  const float *scale, *bias;  // [E, N], or null
  uint16_t* y;         // [places, N]
  int N, K;
  struct Factors {
    float low, high, low_bias, high_bias;
  };
  __device__ __forceinline__ int panels(int unit) const { return min(2, N / 8 - 2 * unit); }
  __device__ __forceinline__ const unsigned char* panel(int e, int unit, int j) const {
    return static_cast<const unsigned char*>(F::row(w, int64_t(e) * N + 16 * unit + 8 * j, K, 0));
  }
  __device__ __forceinline__ void begin(int e, int unit, Factors& f) const {
    const int n = 16 * unit + (threadIdx.x & 31) / 4;
    const int64_t row = int64_t(e) * N + n;
    const bool both = n + 8 < N;
    f = {F::kFactor, F::kFactor, 0, 0};
    if (F::kScaled && scale) f.low *= scale[row], f.high *= both ? scale[row + 8] : 0;
    if (bias) f.low_bias = bias[row], f.high_bias = both ? bias[row + 8] : 0;
  }
  __device__ __forceinline__ void put(int unit, int place, float low, float high, const Factors& f) const {
    const int n = 16 * unit + (threadIdx.x & 31) / 4;
    uint16_t* to = y + int64_t(place) * N + n;
    to[0] = uint16_t(mma::pack(Act::of(fmaf(low, f.low, f.low_bias)), 0));
    if (n + 8 < N) to[8] = uint16_t(mma::pack(Act::of(fmaf(high, f.high, f.high_bias)), 0));
  }
};

// Units of a chunk: formats of four bits take more at once.
template <class F>
constexpr int kDepth = F::kBytes < 1024 ? 2 : 1;

}  // namespace

#define ENTRY extern "C" __global__ void __launch_bounds__(kThreads, 1)
#define IN(T, NAME) const T* __restrict__ NAME

// first [E+1] places, as experts_sort has them; x [places, K] bf16; scale and bias of rows, or null.
#define UP(F, ACT)                                                                                                                            \
  ENTRY experts_up_panels_##F##_##ACT(IN(int32_t, first), IN(uint16_t, x), IN(uint8_t, gate_up), IN(float, scale), IN(float, bias),            \
                                      uint16_t* __restrict__ h, int32_t E, int32_t H, int32_t I, float limit, int32_t cols, int32_t ring) {    \
    run<F, kDepth<F>>(Up<F, glu::ACT>{gate_up, scale, bias, h, I, H, limit}, first, x, E, H, I / 8, cols, ring);                               \
  }
#define PLAIN(NAME, F, ACT)                                                                                                                   \
  ENTRY NAME(IN(int32_t, first), IN(uint16_t, x), IN(uint8_t, w), IN(float, scale), IN(float, bias), uint16_t* __restrict__ y, int32_t E,      \
             int32_t N, int32_t K, int32_t cols, int32_t ring) {                                                                               \
    run<F, kDepth<F>>(Plain<F, act::ACT>{w, scale, bias, y, N, K}, first, x, E, K, (N + 15) / 16, cols, ring);                                 \
  }
#define ALL_OF(F)                            \
  UP(F, silu)                                \
  UP(F, gelu_tanh)                           \
  UP(F, silu_then_limit)                     \
  UP(F, swiglu_oai)                          \
  PLAIN(experts_act_panels_##F##_relu2, F, relu2) \
  PLAIN(experts_down_panels_##F, F, none)

ALL_OF(e4m3)
ALL_OF(e4m3_b128)
ALL_OF(nvfp4)
ALL_OF(mxfp4)
