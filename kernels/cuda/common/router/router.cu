// SPDX-License-Identifier: MIT OR Apache-2.0
// Family router: the best k experts of each row. One warp a row.

#include <cmath>

#include "reduce/warp.cuh"
#include "step.cuh"

// softmax, sigmoid, sqrt_softplus turn a row's logits [E] in shared memory into scores, in place. Each lane has every 32nd.
struct softmax {
  __device__ static void of(float* s, int E) {
    float top = -INFINITY, sum = 0;
    for (int e = lane_id(); e < E; e += 32) top = fmaxf(top, s[e]);
    top = warp_max(top);
    for (int e = lane_id(); e < E; e += 32) sum += s[e] = expf(s[e] - top);
    sum = warp_sum(sum);
    for (int e = lane_id(); e < E; e += 32) s[e] /= sum;
  }
};
struct sigmoid {
  __device__ static void of(float* s, int E) {
    for (int e = lane_id(); e < E; e += 32) s[e] = 1.0f / (1.0f + expf(-s[e]));
  }
};
struct sqrt_softplus {
  __device__ static void of(float* s, int E) {
    for (int e = lane_id(); e < E; e += 32) s[e] = sqrtf(fmaxf(s[e], 0.0f) + log1pf(expf(-fabsf(s[e]))));
  }
};

// key orders numbers as unsigned ones; both zeros have the same.
__device__ __forceinline__ uint32_t key(float v) {
  const uint32_t u = __float_as_uint(v + 0.0f);
  return u >> 31 ? ~u : u | 0x80000000u;
}

// best gives the warp the index of the largest of x [n], of equals the lowest.
__device__ __forceinline__ int best(const float* x, int n) {
  float v = -INFINITY;
  int at = n;
  for (int i = lane_id(); i < n; i += 32)
    if (x[i] > v || at == n) v = x[i], at = i;
  const uint32_t mine = at < n ? key(v) : 0, most = __reduce_max_sync(kAllLanes, mine);
  return __reduce_min_sync(kAllLanes, mine == most ? at : n);
}

// limit takes all but the best groups out of the choice: those whose two highest sum highest, of equals the lower index.
__device__ __forceinline__ void limit(float* choice, float* sums, int E, int groups, int top_groups) {
  const int per = E / groups;
  for (int g = lane_id(); g < groups; g += 32) {
    float first = -INFINITY, second = -INFINITY;
    for (int e = g * per; e < (g + 1) * per; e++) {
      const float v = choice[e];
      if (v > first)
        second = first, first = v;
      else if (v > second)
        second = v;
    }
    sums[g] = per > 1 ? first + second : first;
  }
  __syncwarp();
  for (int g = lane_id(); g < groups; g += 32) {
    int better = 0;
    for (int o = 0; o < groups; o++) better += sums[o] > sums[g] || (sums[o] == sums[g] && o < g);
    if (better >= top_groups)
      for (int e = g * per; e < (g + 1) * per; e++) choice[e] = -INFINITY;
  }
  __syncwarp();
}

struct Routing {
  int E, k;
  float softcap;
  int groups, top_groups, renorm;
  float renorm_eps, scale;
};

// read_scores puts a row's scores into shared memory.
template <class Score>
__device__ __forceinline__ void read_scores(float* scores, const float* logits, int E, float softcap) {
  for (int e = lane_id(); e < E; e += 32) scores[e] = softcap > 0 ? tanhf(logits[e] / softcap) * softcap : logits[e];
  Score::of(scores, E);
  __syncwarp();
}

// weigh gives the k chosen experts their weights; sum is of their scores.
__device__ __forceinline__ void weigh(float* weights, const int32_t* ids, const float* scores, const float* expert_scale, float sum, const Routing& r) {
  for (int j = lane_id(); j < r.k; j += 32) {
    float w = scores[ids[j]];
    if (r.renorm) w /= sum + r.renorm_eps;
    w *= r.scale;
    weights[j] = expert_scale ? w * expert_scale[ids[j]] : w;
  }
}

template <class Score>
__device__ __forceinline__ void route(const int32_t* count, const float* logits, const float* bias, const float* expert_scale,
                                      int32_t* ids, float* weights, const Routing& r) {
  extern __shared__ float scores[];  // [E] scores, [E] what is chosen by, [groups]
  const int64_t row = blockIdx.x;
  if (row >= *count) return;
  float *choice = scores + r.E, *sums = choice + r.E;
  read_scores<Score>(scores, logits + row * r.E, r.E, r.softcap);
  for (int e = lane_id(); e < r.E; e += 32) choice[e] = bias ? scores[e] + bias[e] : scores[e];
  __syncwarp();
  if (r.top_groups < r.groups) limit(choice, sums, r.E, r.groups, r.top_groups);
  ids += row * r.k;
  float sum = 0;
  for (int j = 0; j < r.k; j++) {
    const int e = best(choice, r.E);
    sum += scores[e];
    __syncwarp();
    if (lane_id() == 0) ids[j] = e, choice[e] = -INFINITY;
    __syncwarp();
  }
  weigh(weights + row * r.k, ids, scores, expert_scale, sum, r);
}

// Grid: rows; 32 threads; 2*E + groups floats of shared memory.
#define ROUTER(SCORE)                                                                                             \
  extern "C" __global__ void router_##SCORE(const int32_t* __restrict__ count,      /* [1] rows of this step */   \
                                            const float* __restrict__ logits,       /* [rows, E] */               \
                                            const float* __restrict__ bias,         /* [E], or null */            \
                                            const float* __restrict__ expert_scale, /* [E], or null */            \
                                            int32_t* ids,                           /* [rows, k] */               \
                                            float* __restrict__ weights,            /* [rows, k] */               \
                                            int32_t E, int32_t k, float softcap, int32_t groups,                  \
                                            int32_t top_groups, int32_t renorm, float renorm_eps, float scale) {  \
    begin();                                                                                                      \
    route<SCORE>(count, logits, bias, expert_scale, ids, weights,                                                 \
                 Routing{E, k, softcap, groups, top_groups, renorm, renorm_eps, scale});                          \
  }

ROUTER(softmax)
ROUTER(sigmoid)
ROUTER(sqrt_softplus)

// The experts that a table names for each row's token.
template <class Score>
__device__ __forceinline__ void look_up(const int32_t* count, const int32_t* tokens, const float* logits, const float* table, int32_t* ids,
                                        float* weights, const Routing& r) {
  extern __shared__ float scores[];  // [E]
  const int64_t row = blockIdx.x;
  if (row >= *count) return;
  read_scores<Score>(scores, logits + row * r.E, r.E, 0.0f);
  ids += row * r.k;
  for (int j = lane_id(); j < r.k; j += 32) ids[j] = int32_t(table[int64_t(tokens[row]) * r.k + j]);
  __syncwarp();
  float sum = 0;
  for (int j = 0; j < r.k; j++) sum += scores[ids[j]];
  weigh(weights + row * r.k, ids, scores, nullptr, sum, r);
}

// Grid: rows; 32 threads; E floats of shared memory.
#define HASH_ROUTER(SCORE)                                                                                        \
  extern "C" __global__ void hash_router_##SCORE(const int32_t* __restrict__ count,  /* [1] rows of this step */  \
                                                 const int32_t* __restrict__ tokens, /* [rows] */                 \
                                                 const float* __restrict__ logits,   /* [rows, E] */              \
                                                 const float* __restrict__ table,    /* [V, k] expert numbers */  \
                                                 int32_t* ids,                       /* [rows, k] */              \
                                                 float* __restrict__ weights,        /* [rows, k] */              \
                                                 int32_t E, int32_t k, int32_t renorm, float renorm_eps,          \
                                                 float scale) {                                                   \
    begin();                                                                                                      \
    look_up<SCORE>(count, tokens, logits, table, ids, weights,                                                    \
                   Routing{E, k, 0.0f, 1, 1, renorm, renorm_eps, scale});                                         \
  }

HASH_ROUTER(softmax)
HASH_ROUTER(sigmoid)
HASH_ROUTER(sqrt_softplus)
