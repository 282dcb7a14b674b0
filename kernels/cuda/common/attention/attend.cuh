// SPDX-License-Identifier: MIT OR Apache-2.0
// Attention of one row, wherever its keys are (sources.cuh).
//
// A block computes one row's queries of one KV head, four at a time. Keys are taken in chunks of 32, counted from position 0;
// chunk c is warp c % 8's. A warp first gives each lane a key, and the lane its whole dot products with the queries; then each
// lane keeps a few dims of v, and adds the chunk's values one key after the other:
//
//	scores                            values
//	         d=0 1 2 … head_dim-1               d=0…3  4…7  …
//	key 0     lane 0 ───────────►      key 0    lane 0  1   …
//	key 1     lane 1 ───────────►      key 1      │     │
//	…                                  …          ▼     ▼
//
// Each warp runs an online softmax over its chunks; at the end the warps' sums are merged in order. So a row's result depends
// on its query, position and sequence only.
#pragma once

#include "pool.cuh"
#include "reduce/warp.cuh"

constexpr int kWarps = 8, kQueries = 4, kChunk = 32;

struct Shape {
  int heads, kv_heads, head_dim, v_dim;
  float scale, softcap;

  __device__ int padded() const { return ceil_div(head_dim, 8) * 8; }  // a query in shared memory
};

// partial is what the warps of a block have summed up over their keys, per query: the largest score, Σ exp(score - top), and
// of one query at a time Σ exp(score - top) v.
template <int Q>
struct partial {
  float top[kWarps][kQueries], sum[kWarps][kQueries];
  float values[kWarps][Q * 128];
};

// scores are this lane's key's dot products with n queries [n][padded].
template <bool Aligned, class T>
__device__ __forceinline__ void dots(float (&s)[kQueries], const T* __restrict__ key, const float* q, const Shape& a, int n) {
  constexpr int V = kWide<T>;
  const int stride = a.padded();
  for (int d = 0; d < a.head_dim; d += V) {
    const vec<T, V> k = Aligned ? load<V>(key + d) : load_some<V>(key + d, a.head_dim - d);
#pragma unroll
    for (int j = 0; j < kQueries; j++) {
      if (j >= n) break;
#pragma unroll
      for (int i = 0; i < V; i += 4) {
        const vec<float, 4> x = load<4>(q + j * stride + d + i);
#pragma unroll
        for (int e = 0; e < 4; e++) s[j] = fmaf(x.at[e], to_f32(k.at[i + e]), s[j]);
      }
    }
  }
}

// values adds p*v to this lane's Q quads of v_dim, quad c at 128*c + 4*lane.
template <bool Aligned, int Q, class T>
__device__ __forceinline__ void values(float (&o)[kQueries][Q][4], const float (&p)[kQueries], const T* __restrict__ v, int v_dim, int n) {
#pragma unroll
  for (int c = 0; c < Q; c++) {
    const int d = c * 128 + lane_id() * 4;
    if (d >= v_dim) break;
    const vec<T, 4> x = Aligned ? load<4>(v + d) : load_some<4>(v + d, v_dim - d);
#pragma unroll
    for (int j = 0; j < kQueries; j++) {
      if (j >= n) break;
#pragma unroll
      for (int e = 0; e < 4; e++) o[j][c][e] = fmaf(p[j], to_f32(x.at[e]), o[j][c][e]);
    }
  }
}

// attend computes n queries of one row that share a KV head and lie in shared memory; out is their [n, v_dim]. The row sees keys
// [lo, hi], where keys (sources.cuh) finds them. Q quads of 128 dims cover v_dim.
template <int Q, class Keys>
__device__ __forceinline__ void attend(partial<Q>& t, const float* q, int n, const Keys& keys, int lo, int hi, const float* sinks, float* out,
                                       const Shape& a) {
  const int lane = lane_id(), warp = warp_id();
  float top[kQueries], sum[kQueries] = {}, o[kQueries][Q][4] = {};
#pragma unroll
  for (int j = 0; j < kQueries; j++) top[j] = -INFINITY;
  // The first of this warp's chunks that holds a visible key.
  const int from = lo / kChunk, mine = from + (warp + kWarps - from % kWarps) % kWarps;
  for (int c = mine; c * kChunk <= hi; c += kWarps) {
    const int first = max(lo - c * kChunk, 0), last = min(hi - c * kChunk, kChunk - 1);
    const bool visible = first <= lane && lane <= last;
    const int place = visible ? keys.place(c * kChunk + lane) : 0;
    float s[kQueries] = {};
    if (visible) {
      if (keys.aligned)
        dots<true>(s, keys.key(place), q, a, n);
      else
        dots<false>(s, keys.key(place), q, a, n);
    }
#pragma unroll
    for (int j = 0; j < kQueries; j++) {
      if (j >= n) break;
      s[j] *= a.scale;
      if (a.softcap > 0) s[j] = a.softcap * tanhf(s[j] / a.softcap);
      if (!visible) s[j] = -INFINITY;
      const float old = top[j];
      top[j] = fmaxf(old, warp_max(s[j]));
      const float keep = expf(old - top[j]);
      s[j] = expf(s[j] - top[j]);  // the weight of this lane's key
      sum[j] = sum[j] * keep + s[j];
#pragma unroll
      for (int c = 0; c < Q; c++)
#pragma unroll
        for (int e = 0; e < 4; e++) o[j][c][e] *= keep;
    }
#pragma unroll 4
    for (int i = first; i <= last; i++) {
      float p[kQueries];
#pragma unroll
      for (int j = 0; j < kQueries; j++) p[j] = __shfl_sync(kAllLanes, s[j], i);
      const auto* v = keys.value(__shfl_sync(kAllLanes, place, i));
      if (keys.aligned)
        values<true>(o, p, v, a.v_dim, n);
      else
        values<false>(o, p, v, a.v_dim, n);
    }
  }
#pragma unroll
  for (int j = 0; j < kQueries; j++) {
    sum[j] = warp_sum(sum[j]);
    if (lane == 0) t.top[warp][j] = top[j], t.sum[warp][j] = sum[j];
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kQueries; j++) {
    if (j >= n) break;
    float all = sinks ? sinks[j] : -INFINITY;
    for (int w = 0; w < kWarps; w++) all = fmaxf(all, t.top[w][j]);
    float total = sinks ? expf(sinks[j] - all) : 0.0f;
    for (int w = 0; w < kWarps; w++) total += t.sum[w][j] * expf(t.top[w][j] - all);
    const float keep = expf(top[j] - all);  // 0 for a warp without keys
#pragma unroll
    for (int c = 0; c < Q; c++)
#pragma unroll
      for (int e = 0; e < 4; e++) t.values[warp][c * 128 + lane * 4 + e] = o[j][c][e] * keep;
    __syncthreads();
    for (int d = threadIdx.x; d < a.v_dim; d += blockDim.x) {
      float v = 0;
      for (int w = 0; w < kWarps; w++) v += t.values[w][d];
      out[j * a.v_dim + d] = v / total;
    }
    __syncthreads();  // values are the next query's
  }
}

// attend_row computes this block's queries of a row: of KV head blockIdx.x / parts, those from 4 * (blockIdx.x % parts) on.
template <int Q, class Keys>
__device__ __forceinline__ void attend_row(const float* __restrict__ q, Keys keys, int row, int lo, int hi, const float* __restrict__ sinks,
                                           float* __restrict__ y, const Shape& a) {
  __shared__ partial<Q> t;
  extern __shared__ float queries[];  // [kQueries][padded]
  const int group = a.heads / a.kv_heads, parts = ceil_div(group, kQueries);
  const int kv = blockIdx.x / parts, part = blockIdx.x % parts * kQueries;
  const int n = min(kQueries, group - part), head = kv * group + part, stride = a.padded();
  for (int i = threadIdx.x; i < n * stride; i += blockDim.x) {
    const int d = i % stride;
    queries[i] = d < a.head_dim ? q[(int64_t(row) * a.heads + head + i / stride) * a.head_dim + d] : 0.0f;
  }
  __syncthreads();
  keys.of_head(kv, a);
  attend<Q>(t, queries, n, keys, lo, hi, sinks ? sinks + head : nullptr, y + (int64_t(row) * a.heads + head) * a.v_dim, a);
}
