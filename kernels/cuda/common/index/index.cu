// SPDX-License-Identifier: MIT OR Apache-2.0
// Family index: chooses the keys of sparse attention, the top ones of highest Σ_h w_h * max(q_h·k, 0), of equals the earlier,
// listed rising. A block does a row: it scores 1024 keys after the other behind the best so far, which it sorts out by their
// bits, from the highest digit:
//
//	candidates in shared memory   [top best so far, rising | up to 1024 new ones, rising]   →   [top best, rising]

#include "../attention/pool.cuh"
#include "reduce/warp.cuh"

constexpr int kThreads = 256, kTile = 64, kParts = kThreads / kTile, kNew = 1024;

// candidates are keys with their scores.
struct candidates {
  float* score;
  int32_t* id;
};

// order maps floats to integers that rise with them.
__device__ __forceinline__ uint32_t order(float v) {
  const uint32_t u = __float_as_uint(v);
  return u >> 31 ? ~u : u | 0x80000000u;
}

// rank counts the threads before this one that say yes, and all of them.
__device__ __forceinline__ int rank(bool yes, int& all) {
  __shared__ int counts[kThreads / 32];
  const unsigned votes = __ballot_sync(kAllLanes, yes);
  __syncthreads();  // counts may be in use
  if (lane_id() == 0) counts[warp_id()] = __popc(votes);
  __syncthreads();
  int before = __popc(votes & ((1u << lane_id()) - 1));
  all = 0;
  for (int w = 0; w < kThreads / 32; w++) {
    if (w < warp_id()) before += counts[w];
    all += counts[w];
  }
  return before;
}

// select keeps the k best of n candidates, in their order.
__device__ __forceinline__ void select(const candidates& c, int n, int k) {
  __shared__ int counts[256];
  __shared__ int found[2];  // a digit, and how many of that digit are wanted
  uint32_t least = 0, mask = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    counts[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += kThreads) {
      const uint32_t u = order(c.score[i]);
      if ((u & mask) == least) atomicAdd(&counts[u >> shift & 0xff], 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int digit = 255, wanted = k;
      while (counts[digit] < wanted) wanted -= counts[digit--];
      found[0] = digit, found[1] = wanted;
    }
    __syncthreads();
    least |= uint32_t(found[0]) << shift;
    mask |= 0xffu << shift;
    k = found[1];
  }
  int kept = 0, equal = 0;
  for (int first = 0; first < n; first += kThreads) {
    const int i = first + threadIdx.x;
    const float v = i < n ? c.score[i] : 0.0f;
    const int id = i < n ? c.id[i] : 0;
    int same, better;
    const int before = equal + rank(i < n && order(v) == least, same);
    const bool keep = i < n && (order(v) > least || (order(v) == least && before < k));
    const int at = kept + rank(keep, better);  // its barriers come after all reads above
    if (keep) c.score[at] = v, c.id[at] = id;
    equal += same;
    kept += better;
    __syncthreads();
  }
}

// score computes the scores of keys [base, base + m) into c, from place at on. Four threads share a key, and have a quarter of
// the heads each.
template <class T, class Keys>
__device__ __forceinline__ void score(const candidates& c, int at, float* tile, const Keys& keys, const float* __restrict__ q,
                                      const float* __restrict__ w, int base, int m, int heads, int dim) {
  __shared__ float parts[kParts][kTile];
  const int key = threadIdx.x % kTile, part = threadIdx.x / kTile;
  const int per = ceil_div(heads, kParts), first = part * per, last = min(first + per, heads);
  for (int done = 0; done < m; done += kTile) {
    const int here = min(kTile, m - done);
    for (int i = threadIdx.x; i < here * dim; i += kThreads) tile[i / dim * (dim + 1) + i % dim] = to_f32(keys(base + done + i / dim)[i % dim]);
    __syncthreads();
    float sum = 0;
    for (int h = first; h < last && key < here; h++) {
      float s = 0;
#pragma unroll 4
      for (int d = 0; d < dim; d++) s = fmaf(q[int64_t(h) * dim + d], tile[key * (dim + 1) + d], s);
      sum = fmaf(w[h], fmaxf(s, 0.0f), sum);
    }
    parts[part][key] = sum;
    __syncthreads();
    if (threadIdx.x < here) {
      float s = 0;
      for (int p = 0; p < kParts; p++) s += parts[p][threadIdx.x];
      c.score[at + done + threadIdx.x] = s;
      c.id[at + done + threadIdx.x] = base + done + threadIdx.x;
    }
    __syncthreads();
  }
}

// choose leaves the ids of the top of n keys in c; all n where there are no more.
template <class T, class Keys>
__device__ __forceinline__ void choose(const candidates& c, float* tile, const Keys& keys, const float* q, const float* w, int n, int heads, int dim, int top) {
  if (n <= top) {
    for (int i = threadIdx.x; i < n; i += kThreads) c.id[i] = i;
    __syncthreads();
    return;
  }
  int have = 0;
  for (int base = 0; base < n; base += kNew) {
    const int m = min(kNew, n - base);
    score<T>(c, have, tile, keys, q, w, base, m, heads, dim);
    have += m;
    if (have > top) {
      select(c, have, top);
      have = top;
    }
  }
}

// Shared memory: [top + 1024] scores, as many ids, [64][head_dim + 1] keys.
__device__ __forceinline__ candidates place_candidates(float* memory, int top, float*& tile) {
  const int n = top + kNew;
  tile = memory + 2 * n;
  return {memory, reinterpret_cast<int32_t*>(memory + n)};
}

// Tokens are a sequence's, by position.
template <class T>
struct Tokens {
  const T* pool;  // [slots, dim]
  const int32_t* table;
  int page_size, dim;
  __device__ const T* operator()(int i) const { return token(pool, slot_of(table, i, page_size), 1, 0, dim); }
};

// Grid: rows; 256 threads.
#define INDEX(T)                                                                                              \
  extern "C" __global__ void __launch_bounds__(256)                                                           \
      index_##T(const int32_t* __restrict__ count,       /* [1] rows of this step */                          \
                const float* __restrict__ q,             /* [rows, heads*head_dim] */                         \
                const float* __restrict__ w,             /* [rows, heads] */                                  \
                const T* __restrict__ pool,              /* [slots, head_dim] */                              \
                const int32_t* __restrict__ positions,   /* [rows] */                                         \
                const int32_t* __restrict__ row_seq,     /* [rows] */                                         \
                const int32_t* __restrict__ block_table, /* [seqs, pages] */                                  \
                int32_t* __restrict__ ids,               /* [rows, top] positions, then -1 */                 \
                int32_t heads, int32_t head_dim, int32_t top, int32_t page_size, int32_t pages) {             \
    begin();                                                                                                  \
    extern __shared__ float memory[];                                                                         \
    const int row = blockIdx.x;                                                                               \
    if (row >= *count) return;                                                                                \
    float* tile;                                                                                              \
    const candidates c = place_candidates(memory, top, tile);                                                 \
    const int n = positions[row] + 1;                                                                         \
    const Tokens<T> keys = {pool, block_table + int64_t(row_seq[row]) * pages, page_size, head_dim};          \
    choose<T>(c, tile, keys, q + int64_t(row) * heads * head_dim, w + int64_t(row) * heads, n, heads, head_dim, top); \
    for (int i = threadIdx.x; i < top; i += kThreads) ids[int64_t(row) * top + i] = i < n ? c.id[i] : -1;     \
  }

// expand lists the tokens of k chosen entries, and those of the window that has not ended; -1 in the rest of width.
__device__ __forceinline__ void expand(int32_t* ids, const candidates& c, int k, int every, int position, int width) {
  const int whole = k * every, rest = (position + 1) % every;
  for (int i = threadIdx.x; i < width; i += kThreads)
    ids[i] = i < whole ? c.id[i / every] * every + i % every : i < whole + rest ? position + 1 - rest + (i - whole) : -1;
}

// Grid: rows; 256 threads. An entry stands for every tokens; with tokens, the list is of tokens, [rows, (top+1)*every - 1].
#define INDEX_ENTRIES(T)                                                                                      \
  extern "C" __global__ void __launch_bounds__(256)                                                           \
      index_entries_##T(const int32_t* __restrict__ count,       /* [1] rows of this step */                  \
                        const float* __restrict__ q,             /* [rows, heads*head_dim] */                 \
                        const float* __restrict__ w,             /* [rows, heads] */                          \
                        const T* __restrict__ pool,              /* [pages, page_size/every, head_dim] */     \
                        const int32_t* __restrict__ positions,   /* [rows] */                                 \
                        const int32_t* __restrict__ row_seq,     /* [rows] */                                 \
                        const int32_t* __restrict__ block_table, /* [seqs, pages] */                          \
                        int32_t* __restrict__ ids,               /* [rows, top], then -1 */                   \
                        int32_t heads, int32_t head_dim, int32_t every, int32_t top, int32_t tokens,          \
                        int32_t page_size, int32_t pages) {                                                   \
    begin();                                                                                                  \
    extern __shared__ float memory[];                                                                         \
    const int row = blockIdx.x;                                                                               \
    if (row >= *count) return;                                                                                \
    float* tile;                                                                                              \
    const candidates c = place_candidates(memory, top, tile);                                                 \
    const int n = (positions[row] + 1) / every, k = min(n, top);                                              \
    const Entries<T> keys = {pool, block_table + int64_t(row_seq[row]) * pages, page_size, every, head_dim};  \
    choose<T>(c, tile, keys, q + int64_t(row) * heads * head_dim, w + int64_t(row) * heads, n, heads, head_dim, top); \
    if (tokens) {                                                                                             \
      const int width = (top + 1) * every - 1;                                                                \
      expand(ids + int64_t(row) * width, c, k, every, positions[row], width);                                 \
    } else {                                                                                                  \
      for (int i = threadIdx.x; i < top; i += kThreads) ids[int64_t(row) * top + i] = i < k ? c.id[i] : -1;   \
    }                                                                                                         \
  }

#define ALL_OF(T)  \
  INDEX(T)         \
  INDEX_ENTRIES(T)

ALL_OF(f32)
ALL_OF(bf16)
ALL_OF(f16)
