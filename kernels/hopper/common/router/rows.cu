// SPDX-License-Identifier: MIT OR Apache-2.0
// Family router, 1 to 8 rows: norm, the linear of the experts' logits (and of the shared expert's scale), their scores and the best
// k, in one launch of one cluster. The normed rows are written too: the experts read them.
//
// Grid: one cluster of up to 8 blocks, which share the experts' weight rows. 512 threads, dynamic shared memory 4*H*(rows + 1).
// Block 0 gathers the logits in its shared memory and chooses, a warp a row; the others write h. Algorithm: mma/weight_tiles.cuh.

#include "../../../include/epilogue/act.cuh"
#include "../../../include/mma/weight_tiles.cuh"

namespace {

using tiles::kRows;
using tiles::kStep;
using tiles::kTile;
using Usual = tiles::Point<16, 4, 1, 0>;

constexpr int kMaxLogits = 520;  // experts and the shared expert's scale

struct Job {
  const uint16_t *gate, *scale;  // [E, H], [1, H] or null
  int lo, hi, E, H;
  __device__ __forceinline__ int tiles() const { return (hi - lo + kTile - 1) / kTile; }
  __device__ __forceinline__ int steps() const { return H / kStep; }
  __device__ __forceinline__ int run(int) const { return 1 << 30; }
  __device__ __forceinline__ const uint16_t* row(int tile, int r, int step) const {
    const int n = min(lo + tile * kTile + r, hi - 1);
    return (n < E ? gate + int64_t(n) * H : scale) + step * kStep;
  }
};

struct Out {
  tiles::Shared<Usual>& s;
  uint32_t first;     // block 0's logits [rows, kMaxLogits]
  const float* bias;  // [E] of logits, or null
  int lo, hi, rows, E, H;
  float eps;
  __device__ __forceinline__ void begin(int, int) {}
  __device__ __forceinline__ void emit(int tile, int) {
    const int col = threadIdx.x / kTile, r = threadIdx.x % kTile, row = lo + tile * kTile + r;
    if (col < rows && row < hi)
      ptx::cluster_store(first + 4 * (col * kMaxLogits + row),
                         tiles::total(s, tile, r, col) * tiles::norm_factor(s, col, H, eps) + (bias && row < E ? bias[row] : 0.0f));
  }
};

// key orders floats as unsigned integers.
__device__ __forceinline__ uint32_t key(float x) {
  const uint32_t u = __float_as_uint(x);
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}

// Routing is how experts are chosen and weighed.
struct Routing {
  int E, k;
  const float *bias, *expert_scale;  // [E] or null: added to scores for the choice; factors of weights
  int renorm;
  float renorm_eps, scale;
};

// choose finds a row's k best by score, a sigmoid or softmax, and bias; a warp, kPerLane logits a lane.
template <bool Sigmoid, int kPerLane>
__device__ __forceinline__ void choose(const float* logits, const Routing& r, int32_t* ids, float* weights) {
  const int lane = threadIdx.x & 31;
  float v[kPerLane], top = -INFINITY, sum = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; i++) {
    const int e = lane + 32 * i;
    v[i] = e < r.E ? logits[e] : -INFINITY;
    top = fmaxf(top, v[i]);
  }
  if (!Sigmoid) {
#pragma unroll
    for (int d = 16; d; d /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
#pragma unroll
    for (int i = 0; i < kPerLane; i++) sum += __expf(v[i] - top);
#pragma unroll
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  }
  const auto score = [&](float x) { return Sigmoid ? act::sigmoid::of(x) : __expf(x - top) / sum; };
  if (Sigmoid || r.bias) {  // else logits are in the order of scores
#pragma unroll
    for (int i = 0; i < kPerLane; i++) {
      const int e = lane + 32 * i;
      if (e < r.E) v[i] = score(v[i]) + (r.bias ? r.bias[e] : 0.0f);
    }
  }

  int id = 0;
  for (int j = 0; j < r.k; j++) {
    float best = v[0];
    int at = 0;
#pragma unroll
    for (int i = 1; i < kPerLane; i++)
      if (v[i] > best) best = v[i], at = i;
    const uint32_t mine = key(best), all = __reduce_max_sync(~0u, mine);
    const uint32_t e = __reduce_min_sync(~0u, mine == all ? uint32_t(lane + 32 * at) : ~0u);
    if (lane == j) id = e;
#pragma unroll
    for (int i = 0; i < kPerLane; i++)
      if (e == uint32_t(lane + 32 * i)) v[i] = -INFINITY;
  }
  const float p = lane < r.k ? score(logits[id]) : 0;
  float all = p;
#pragma unroll
  for (int d = 16; d; d /= 2) all += __shfl_xor_sync(~0u, all, d);
  if (lane < r.k) {
    const float w = (r.renorm ? p / (all + r.renorm_eps) : p) * r.scale;
    ids[lane] = id;
    weights[lane] = r.expert_scale ? w * r.expert_scale[id] : w;
  }
}

template <bool Sigmoid>
__device__ __forceinline__ void route(const int32_t* head, const float* __restrict__ x, const float* norm, const uint16_t* gate, const float* gate_bias,
                                      const uint16_t* scale, float* __restrict__ h, int32_t* ids, float* weights, float* shared_scale, int H, float eps,
                                      int plus_one, const Routing& routing) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ float logits[kRows][kMaxLogits];
  __shared__ tiles::Shared<Usual> s;
  ptx::start_successor();
  const int E = routing.E, k = routing.k;
  const int all = E + (scale != nullptr), rows = head[0];
  const tiles::Share units((all + 7) / 8);
  // A block without rows of its own takes some again, for the squares of x.
  const int lo = min(units.lo, (all + 7) / 8 - 1) * 8, hi = min(max(units.hi * 8, lo + 8), all);
  const Job job{gate, scale, lo, hi, E, H};
  tiles::Flow<Usual> flow(job);
  tiles::Near near{{memory, rows}};
  float* w = reinterpret_cast<float*>(memory + rows * 4 * H);
  tiles::fetch_const(flow.span, w, norm);
  ptx::cluster_sync();  // block 0 runs, so its memory may be written
  ptx::wait_for_predecessor();
  for (int r = 0; r < rows; r++) near.fetch(flow.span, r, x + int64_t(r) * H);
  near.split<true>(flow.span, w, plus_one, s.square);
  Out out{s, ptx::cluster_address(logits, 0), gate_bias, lo, hi, rows, E, H, eps};
  rows > kRows / 2 ? tiles::multiply<true>(flow, near, s, job, out) : tiles::multiply<false>(flow, near, s, job, out);
  ptx::cluster_arrive();
  const int others = gridDim.x - 1, rank = ptx::cluster_rank();
  if (rank > 0 || others == 0) {
    const int part = others ? rank - 1 : 0, parts = max(others, 1);
    const int from = int64_t(part) * (H / 4) / parts, to = int64_t(part + 1) * (H / 4) / parts;
    for (int r = 0; r < rows; r++) {
      const float f = tiles::norm_factor(s, r, H, eps);
      for (int i = from + threadIdx.x; i < to; i += Usual::kThreads) {
        const float4 v = ptx::load_l2(reinterpret_cast<const float4*>(x + int64_t(r) * H) + i), u = reinterpret_cast<const float4*>(w)[i];
        const float one = f * plus_one;
        reinterpret_cast<float4*>(h + int64_t(r) * H)[i] =
            make_float4(v.x * (one + f * u.x), v.y * (one + f * u.y), v.z * (one + f * u.z), v.w * (one + f * u.w));
      }
    }
  }
  ptx::cluster_wait();
  if (rank > 0) return;
  const int r = threadIdx.x / 32;
  if (r >= rows) return;
  int32_t* to = ids + r * k;
  float* weight = weights + r * k;
  if (E <= 128) choose<Sigmoid, 4>(logits[r], routing, to, weight);
  else if (E <= 256) choose<Sigmoid, 8>(logits[r], routing, to, weight);
  else choose<Sigmoid, 16>(logits[r], routing, to, weight);
  if (scale && threadIdx.x % 32 == 0) shared_scale[r] = logits[r][E];
}

}  // namespace

#define ROUTE(SCORE, SIGMOID)                                                                                              \
  extern "C" __global__ void __launch_bounds__(Usual::kThreads, Usual::B) norm_router_rows_bf16_##SCORE(                   \
      const int32_t* __restrict__ head, const float* __restrict__ x, /* [rows, H] */                                       \
      const float* __restrict__ norm,                                /* [H] */                                             \
      const uint16_t* __restrict__ gate,                             /* [E, H] bf16 */                                     \
      const float* __restrict__ gate_bias,                           /* [E] or null */                                     \
      const uint16_t* __restrict__ scale,                            /* [1, H] bf16 or null */                             \
      const float* __restrict__ bias,                                /* [E] or null: of the choice */                      \
      const float* __restrict__ expert_scale,                        /* [E] or null */                                     \
      float* __restrict__ h,                                         /* [rows, H] */                                       \
      int32_t* __restrict__ ids,                                     /* [rows, k] */                                       \
      float* __restrict__ weights,                                   /* [rows, k] */                                       \
      float* __restrict__ shared_scale,                              /* [rows, 1] or null */                               \
      int32_t E, int32_t H, int32_t k, float eps, int32_t plus_one, int32_t renorm, float renorm_eps, float weight_scale) { \
    route<SIGMOID>(head, x, norm, gate, gate_bias, scale, h, ids, weights, shared_scale, H, eps, plus_one,                 \
                   {E, k, bias, expert_scale, renorm, renorm_eps, weight_scale});                                          \
  }
ROUTE(softmax, false)
ROUTE(sigmoid, true)

// A row's choice alone, of logits [rows, E], without groups and softcap. Grid: rows; 32 threads.
#define CHOOSE(SCORE, SIGMOID)                                                                                            \
  extern "C" __global__ void __launch_bounds__(32) router_flat_##SCORE(                                                    \
      const int32_t* __restrict__ count, const float* __restrict__ logits, const float* __restrict__ bias,                 \
      const float* __restrict__ expert_scale, int32_t* __restrict__ ids, float* __restrict__ weights, int32_t E, int32_t k, \
      int32_t renorm, float renorm_eps, float scale) {                                                                     \
    ptx::start_successor();                                                                                                \
    ptx::wait_for_predecessor();                                                                                           \
    const int row = blockIdx.x;                                                                                            \
    if (row >= *count) return;                                                                                             \
    logits += row * E, ids += row * k, weights += row * k;                                                                 \
    const Routing routing{E, k, bias, expert_scale, renorm, renorm_eps, scale};                                            \
    if (E <= 128) choose<SIGMOID, 4>(logits, routing, ids, weights);                                                       \
    else if (E <= 256) choose<SIGMOID, 8>(logits, routing, ids, weights);                                                  \
    else choose<SIGMOID, 16>(logits, routing, ids, weights);                                                               \
  }
CHOOSE(softmax, false)
CHOOSE(sigmoid, true)
