// SPDX-License-Identifier: MIT OR Apache-2.0
// Family attention, many rows: causal grouped-query attention over bf16 pages.
//
// A tile is some rows of one sequence, times the query heads of one KV head: 64 queries for each of Groups warpgroups, the heads of a
// row together. Blocks stay, and take one (tile, KV head) after the other, those with the longest contexts first:
//
//	warpgroup 0       its first warp copies K and V by page, kKeys at a time, as far ahead as the rings are long
//	warpgroups 1 …    64 queries each: scores by wgmma, online softmax in registers, weights times V by wgmma
//
// With one group there are twice as many tiles: for steps of fewer tiles than multiprocessors. Of head_dim 512 and 576 both groups have the same 64
// queries and scores, and half of the values' columns each. What a block reads of the step block for
// its first tile, it reads before it waits for the predecessor.
//
//	q [64, head_dim] of each group    k v  rings of [keys, head_dim]     all in blocks of 64 columns: rows of 128 bytes, swizzled
//
// A group multiplies the next keys while it takes the softmax of these:
//
//	tensor   Q K₀ᵀ | Q K₁ᵀ | P₀ V₀  | Q K₂ᵀ | P₁ V₁  | …
//	others         | softmax 0 ──── | softmax 1 ──── | …
//
// Keys are counted from position 0, so a row's result depends on its query, position and sequence only. Order of sums: scores by 16
// of head_dim; values by 16 keys, ascending.

#include "../../../include/epilogue/fast_act.cuh"
#include "../../../include/ptx/tensor_copy.cuh"
#include "../../../include/ptx/wgmma.cuh"
#include "../../../include/ptx/wgmma_rows.cuh"

namespace {

constexpr int kStages = 2, kMaxSeqs = 1024, kPage = 16, kNone = -1, kOutside = -kPage;
constexpr float kLog2e = 1.4426950408889634f;

template <int HD>
constexpr int kKeys = HD >= 512 ? 32 : HD == 256 ? 64 : 128;

// Columns of a value: of 576, one vector per token, its first 512.
template <int HD>
constexpr int kValues = HD == 576 ? 512 : HD;

// Groups that share queries, each with a part of the columns of values, and what has queries of its own.
template <int HD>
constexpr int kSharers = HD >= 512 ? 2 : 1;
template <int HD, int Groups>
constexpr int kQueries = 64 * Groups / kSharers<HD>;

template <int Groups>
constexpr int kThreads = 128 + 128 * Groups;

template <int HD, int Groups>
struct Shared {
  template <int N>
  struct Tile {
    uint16_t block[N / 64][kKeys<HD> * 64];
  };
  uint16_t q[Groups / kSharers<HD>][HD / 64][64 * 64];
  Tile<HD> k[kStages];
  Tile<kValues<HD>> v[kStages];
  uint64_t k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
  int32_t first[kMaxSeqs + 1];  // of a sequence's tiles; the last one is how many there are
};
template <int HD, int Groups>
constexpr int kSharedBytes = sizeof(Shared<HD, Groups>) + 1024;  // rows are swizzled by address

struct Args {
  const int32_t* head;  // rows, seqs, …
  const float *q, *sinks;
  const uint16_t* turned;  // q in bf16, or null
  const float* gate;       // [rows, heads, 2, head_dim], of which the second; or null
  uint16_t* rounded;       // y in bf16 instead, or null
  const int32_t *positions, *cu_rows, *block_table;
  float* y;
  int heads, kv_heads;
  float scale;
  int window;
  float softcap;
  int page_size, pages;
};

// Item is a tile for one KV head: rows of a sequence, and the tiles of keys that they see.
struct Item {
  int row, rows, kv, seq;
  int lo, hi;       // positions of the first and the last row
  int first, start, keys;  // first key that a row sees, first key of a tile, tiles of keys
};

// Walk gives a block its items. Every second round goes backwards, so that no block always has the longest of a round.
struct Walk {
  const Args& a;
  const int32_t* first;
  int seqs, per, tiles, round = 0;  // rows of a tile

  __device__ __forceinline__ Walk(const Args& a, const int32_t* first, int queries)
      : a(a), first(first), seqs(a.head[1]), per(queries / (a.heads / a.kv_heads)), tiles(first[seqs]) {}

  __device__ __forceinline__ bool next(Item& t, int keys) {
    const int n = gridDim.x, i = round * n + (round & 1 ? n - 1 - int(blockIdx.x) : int(blockIdx.x));
    if (i >= tiles * a.kv_heads) return false;
    round++;
    const int tile = tiles - 1 - i / a.kv_heads;
    int low = 0, high = seqs - 1;  // the last sequence whose tiles begin at or before this one
    while (low < high) {
      const int mid = (low + high + 1) / 2;
      if (first[mid] <= tile) low = mid;
      else high = mid - 1;
    }
    t.seq = low, t.kv = i % a.kv_heads;
    t.row = a.cu_rows[low] + (tile - first[low]) * per;
    t.rows = min(per, a.cu_rows[low + 1] - t.row);
    t.lo = a.positions[t.row], t.hi = a.positions[t.row + t.rows - 1];
    t.first = a.window > 0 ? max(0, t.lo - a.window + 1) : 0;
    t.start = t.first / keys * keys, t.keys = t.hi / keys + 1 - t.first / keys;
    return true;
  }
};

// Turn is a place of a ring: its stage, and the parity of the use that is awaited.
struct Turn {
  int at;
  __device__ __forceinline__ int stage() const { return at % kStages; }
  __device__ __forceinline__ uint32_t full() const { return at / kStages & 1; }
  __device__ __forceinline__ uint32_t empty() const { return full() ^ 1; }
};

// copy brings all keys and values of this block's items, by one warp: a lane has a page's 64 columns. Pages that no row sees may be
// gone: zeros stand for them, as for all that lies outside a tensor map.
template <int HD, int Groups>
__device__ __forceinline__ void copy(Shared<HD, Groups>& s, const Args& a, const ptx::tensor_map& k, const ptx::tensor_map& v) {
  constexpr int Keys = kKeys<HD>, Pages = Keys / kPage;
  constexpr bool Whole = kValues<HD> == HD;  // values have as many columns as keys
  const int lane = threadIdx.x % 32, page = lane % Pages, block = lane / Pages;
  Walk walk(a, s.first, kQueries<HD, Groups>);
  Item t;
  int at = 0, slot = kNone, bytes = 0, column = 0;  // of the last tile of keys, whose values follow one later
  const auto values = [&](Turn turn) {
    uint64_t* full = &s.v_full[turn.stage()];
    ptx::mbarrier_wait(&s.v_empty[turn.stage()], turn.empty());
    if (lane == 0) ptx::mbarrier_expect(full, bytes);
    __syncwarp();
    if (slot != kNone && (Whole || block < kValues<HD> / 64)) ptx::tensor_copy(s.v[turn.stage()].block[block] + page * kPage * 64, &v, column, slot, full);
  };
  while (walk.next(t, Keys)) {
    const int32_t* table = a.block_table + int64_t(t.seq) * a.pages;
    for (int j = 0; j < t.keys; j++, at++) {
      const int start = t.start + j * Keys, position = start + page * kPage;
      int place = kNone;
      if (block < HD / 64 && position <= t.hi)
        place = position + kPage <= t.first ? kOutside : table[position / a.page_size] * a.page_size + position % a.page_size;
      const Turn turn{at};
      uint64_t* full = &s.k_full[turn.stage()];
      const int have = min(Pages, (t.hi - start) / kPage + 1) * kPage * HD * 2, col = t.kv * HD + block * 64;
      if (at == 0) ptx::wait_for_predecessor();
      ptx::mbarrier_wait(&s.k_empty[turn.stage()], turn.empty());
      if (lane == 0) ptx::mbarrier_expect(full, have);
      __syncwarp();
      if (place != kNone) ptx::tensor_copy(s.k[turn.stage()].block[block] + page * kPage * 64, &k, col, place, full);
      if (at > 0) values({at - 1});
      slot = place, bytes = Whole ? have : have / HD * kValues<HD>, column = col;
    }
  }
  if (at > 0) values({at - 1});
}

// softmax turns scores into weights 2^(c s - top) and adds them up; keep is what earlier sums are worth.
template <int N>
__device__ __forceinline__ void softmax(float (&s)[N], float c, float (&top)[2], float (&sum)[2], float (&keep)[2]) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float most = top[r];
#pragma unroll
    for (int j = 0; j < N; j += 4) most = fmaxf(most, fmaxf(s[j + 2 * r], s[j + 2 * r + 1]));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    const float base = most == -INFINITY ? 0 : most * c;
    keep[r] = most == top[r] ? 1.0f : ptx::exp2_fast(fmaf(top[r], c, -base));
    top[r] = most;
    float add = 0;
#pragma unroll
    for (int j = 0; j < N; j += 4) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float& p = s[j + 2 * r + e];
        p = ptx::exp2_fast(fmaf(p, c, -base));
        add += p;
      }
    }
    sum[r] = fmaf(sum[r], keep[r], add);
  }
}

// attend runs the items of this block for 64 queries.
template <int HD, int Groups>
__device__ __forceinline__ void attend(Shared<HD, Groups>& s, const Args& a) {
  constexpr int Keys = kKeys<HD>, Sharers = kSharers<HD>, Columns = kValues<HD> / Sharers, Chunks = Columns / 8;  // 16 bytes of a value
  constexpr int Queries = HD / Sharers / 8, Rows = Sharers == 1 ? 32 / Queries : 1;  // 16 bytes of q; rows that a warp loads at a time
  const int consumer = threadIdx.x / 128 - 1, group = Sharers > 1 ? 0 : consumer, column = Sharers > 1 ? consumer * Columns : 0, thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, g = lane / 4, t4 = lane % 4;
  const int share = a.heads / a.kv_heads, together = Sharers > 1 ? 3 : 1 + group;  // barrier of those that share queries
  const bool capped = a.softcap > 0;
  const float c = capped ? kLog2e : a.scale * kLog2e;
  const uint64_t q = ptx::wgmma_operand(ptx::shared_address(s.q[group]));
  Walk walk(a, s.first, kQueries<HD, Groups>);
  Item t;
  int at = 0;

  float scores[Keys / 2], o[Columns / 2];
  const auto free = [&](uint64_t* empty) {
    if (lane == 0) ptx::mbarrier_arrive(empty);
  };
  const auto multiply_keys = [&](int stage) {
    const uint64_t k = ptx::wgmma_operand(ptx::shared_address(&s.k[stage]));
#pragma unroll(HD == 576 ? 3 : HD == 512 ? 2 : HD / 64)
    for (int b = 0; b < HD / 64; b++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        ptx::wgmma_bf16(scores, q + b * (64 * 128 / 16) + i * ptx::kWgmmaStep, k + b * (Keys * 128 / 16) + i * ptx::kWgmmaStep, b + i > 0);
    ptx::wgmma_commit();
  };
  uint32_t p[Keys / 4];
  const auto multiply_values = [&](int stage) {
    const uint64_t v = ptx::wgmma_columns(ptx::shared_address(s.v[stage].block[column / 64]), Keys * 128);
#pragma unroll
    for (int i = 0; i < Keys / 16; i++) ptx::wgmma_bf16_rows(o, p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3], v + i * ptx::kWgmmaColumnsStep);
    ptx::wgmma_commit();
  };

  while (walk.next(t, Keys)) {
    int position[2];  // of this lane's two queries; -1 none
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int row = (group * 64 + warp * 16 + g + 8 * r) / share;
      position[r] = row < t.rows ? ptx::load_early(a.positions + t.row + row) : -1;
    }
    ptx::wait_for_predecessor();
    // Queries, rounded to bf16; what is no query is 0.
    ptx::named_barrier(together, 128 * Sharers);  // the last ones are read
    const auto query = [&](int r, int chunk) {
      const int m = group * 64 + r, row = m / share;
      uint4 x = make_uint4(0, 0, 0, 0);
      const int64_t from_at = (int64_t(t.row + row) * a.heads + t.kv * share + m % share) * HD + chunk * 8;
      if (row < t.rows && a.turned) {
        x = __ldcg(reinterpret_cast<const uint4*>(a.turned + from_at));
      } else if (row < t.rows) {
        const float4* from = reinterpret_cast<const float4*>(a.q + from_at);
        const float4 u = ptx::load_l2(from), w = ptx::load_l2(from + 1);
        x = {ptx::pack_bf16(u.x, u.y), ptx::pack_bf16(u.z, u.w), ptx::pack_bf16(w.x, w.y), ptx::pack_bf16(w.z, w.w)};
      }
      *reinterpret_cast<uint4*>(&s.q[group][chunk / 8][r * 64 + (chunk % 8 ^ r % 8) * 8]) = x;
    };
#pragma unroll
    for (int i = 0; i < 16; i += Rows) {
      if constexpr (Sharers == 1) {
        query(warp * 16 + i + lane / Queries, lane % Queries);
      } else {
#pragma unroll
        for (int c = 0; c < Queries; c += 32)
          if (c + lane < Queries) query(warp * 16 + i, consumer * Queries + c + lane);
      }
    }
    ptx::fence_shared_for_async();
    ptx::named_barrier(together, 128 * Sharers);

    float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, keep[2];
#pragma unroll
    for (int i = 0; i < Columns / 2; i++) o[i] = 0;
    const auto weigh = [&](int start) {
      if (capped) {
#pragma unroll
        for (int i = 0; i < Keys / 2; i++) {
          const float e = ptx::exp2_fast(scores[i] * (2 * kLog2e * a.scale / a.softcap));
          scores[i] = a.softcap - 2 * a.softcap * __fdividef(1.0f, 1.0f + e);
        }
      }
      if (start + Keys - 1 > t.lo || (a.window > 0 && start <= t.hi - a.window)) {
#pragma unroll
        for (int i = 0; i < Keys / 2; i++) {
          const int key = start + i / 4 * 8 + 2 * t4 + i % 2, pos = position[i / 2 % 2];
          if (key > pos || (a.window > 0 && key <= pos - a.window)) scores[i] = -INFINITY;
        }
      }
      softmax(scores, c, top, sum, keep);
    };
    const auto pack = [&]() {
#pragma unroll
      for (int i = 0; i < Keys / 4; i++) p[i] = ptx::pack_bf16(scores[2 * i], scores[2 * i + 1]);
    };

    ptx::mbarrier_wait(&s.k_full[Turn{at}.stage()], Turn{at}.full());
    ptx::wgmma_begin();
    multiply_keys(Turn{at}.stage());
    ptx::wgmma_wait<0>();
    ptx::wgmma_hold(scores);
    free(&s.k_empty[Turn{at}.stage()]);
    weigh(t.start);
    pack();
    for (int j = 1; j < t.keys; j++) {
      const Turn values{at}, keys{++at};
      ptx::mbarrier_wait(&s.k_full[keys.stage()], keys.full());
      ptx::mbarrier_wait(&s.v_full[values.stage()], values.full());
      ptx::wgmma_begin();
      multiply_keys(keys.stage());
      multiply_values(values.stage());
      ptx::wgmma_wait<1>();
      ptx::wgmma_hold(scores);
      free(&s.k_empty[keys.stage()]);
      weigh(t.start + j * Keys);
      ptx::wgmma_wait<0>();
      ptx::wgmma_hold(o);
      free(&s.v_empty[values.stage()]);
      if (HD < 128 || !__all_sync(~0u, keep[0] == 1 && keep[1] == 1)) {  // mostly the largest score stays what it was
#pragma unroll
        for (int i = 0; i < Columns / 2; i++) o[i] *= keep[i / 2 % 2];
      }
      pack();
    }
    const Turn values{at++};
    ptx::mbarrier_wait(&s.v_full[values.stage()], values.full());
    const int end_key = t.hi + 1 - t.start - (t.keys - 1) * Keys;
    if (end_key < Keys) {  // weight 0 does not cancel what may lie behind the last key
      for (int i = thread; i < (Keys - end_key) * Chunks; i += 128)
        *reinterpret_cast<uint4*>(&s.v[values.stage()].block[column / 64 + i % Chunks / 8][(end_key + i / Chunks) * 64 + i % 8 * 8]) = make_uint4(0, 0, 0, 0);
      ptx::fence_shared_for_async();
      ptx::named_barrier(1 + consumer, 128);
    }
    ptx::wgmma_begin();
    multiply_values(values.stage());
    ptx::wgmma_wait<0>();
    ptx::wgmma_hold(o);
    free(&s.v_empty[values.stage()]);

#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int m = group * 64 + warp * 16 + g + 8 * r, head = t.kv * share + m % share;
      sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
      sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
      if (position[r] < 0) continue;
      float f = 1, all = sum[r];
      if (a.sinks) {
        const float sink = a.sinks[head] * kLog2e, most = fmaxf(top[r] * c, sink);
        f = ptx::exp2_fast(fmaf(top[r], c, -most));
        all = fmaf(all, f, ptx::exp2_fast(sink - most));
      }
      f /= all;
      const int64_t to = (int64_t(t.row + m / share) * a.heads + head) * kValues<HD> + column + 2 * t4;
      float* y = a.y + to;
      if (a.gate) {
        const float* gate = a.gate + 2 * to - column - 2 * t4 + HD;
#pragma unroll
        for (int j = 0; j < Columns / 8; j++) {
          const float2 g = *reinterpret_cast<const float2*>(gate + 8 * j);
          o[4 * j + 2 * r] *= fast_glu::sigmoid(g.x), o[4 * j + 2 * r + 1] *= fast_glu::sigmoid(g.y);
        }
      }
      if (a.rounded) {
#pragma unroll
        for (int j = 0; j < Columns / 8; j++) *reinterpret_cast<uint32_t*>(a.rounded + to + 8 * j) = ptx::pack_bf16(o[4 * j + 2 * r] * f, o[4 * j + 2 * r + 1] * f);
        continue;
      }
#pragma unroll
      for (int j = 0; j < Columns / 8; j++) *reinterpret_cast<float2*>(y + 8 * j) = {o[4 * j + 2 * r] * f, o[4 * j + 2 * r + 1] * f};
    }
  }
}

template <int HD, int Groups>
__device__ __forceinline__ void run(const Args& a, const ptx::tensor_map& k, const ptx::tensor_map& v) {
  extern __shared__ unsigned char raw[];
  auto& s = *reinterpret_cast<Shared<HD, Groups>*>(raw + (-ptx::shared_address(raw) & 1023));
  ptx::start_successor();
  if (threadIdx.x == 0) {
    ptx::prefetch_map(&k);
    ptx::prefetch_map(&v);
    for (int i = 0; i < kStages; i++) {
      ptx::mbarrier_init(&s.k_full[i], 1);
      ptx::mbarrier_init(&s.v_full[i], 1);
      ptx::mbarrier_init(&s.k_empty[i], 4 * Groups);
      ptx::mbarrier_init(&s.v_empty[i], 4 * Groups);
    }
    ptx::mbarrier_publish();
  }
  if (threadIdx.x < 32) {
    const int lane = threadIdx.x, seqs = a.head[1], per = kQueries<HD, Groups> / (a.heads / a.kv_heads);
    int before = 0;
    for (int i = lane; i - lane < seqs; i += 32) {
      const int mine = i < seqs ? (a.cu_rows[i + 1] - a.cu_rows[i] + per - 1) / per : 0;
      int sum = mine;
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        const int other = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += other;
      }
      if (i < seqs) s.first[i] = before + sum - mine;
      before += __shfl_sync(~0u, sum, 31);
    }
    if (lane == 0) s.first[seqs] = before;
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    if (Groups > 1) ptx::keep_registers<40>();
    if (threadIdx.x < 32) copy(s, a, k, v);
  } else {
    if (Groups > 1) ptx::take_registers<232>();
    attend(s, a);
  }
  ptx::wait_for_predecessor();
}

}  // namespace

// Grid: any, best one block a multiprocessor; kThreads; kSharedBytes. At most 1024 sequences, groups of at most kQueries heads, pages of a
// multiple of 16 tokens.
#define ATTENTION(HD, GROUPS)                                                                                                    \
  extern "C" __global__ void __launch_bounds__(kThreads<GROUPS>, 1) attention_prefill_##HD##_##GROUPS(                           \
      const int32_t* __restrict__ head,                     /* rows, seqs, … of this step */                                     \
      const float* __restrict__ q,                          /* [rows, heads*HD] */                                               \
      const float* __restrict__ sinks,                      /* [heads], or null */                                               \
      const __grid_constant__ ptx::tensor_map k,            /* [slots, kv_heads*HD] bf16, boxes of 16 × 64 */                    \
      const __grid_constant__ ptx::tensor_map v,            /* the same */                                                       \
      const int32_t* __restrict__ positions,                /* [rows] */                                                         \
      const int32_t* __restrict__ cu_rows,                  /* [seqs+1] */                                                       \
      const int32_t* __restrict__ block_table,              /* [seqs, pages] */                                                  \
      float* __restrict__ y,                                /* [rows, heads*kValues] */                                          \
      int32_t heads, int32_t kv_heads, float scale, int32_t window, float softcap, int32_t page_size, int32_t pages) {           \
    const Args a = {head, q, sinks, nullptr, nullptr, nullptr, positions, cu_rows, block_table, y, heads, kv_heads, scale, window, softcap, page_size, pages}; \
    run<HD, GROUPS>(a, k, v);                                                                                                    \
  }

// The same after turn.cu, whose bf16 it takes; q is [q | gate] per head where y is to be multiplied with the sigmoid of gate. ROUNDED is y
// where y is rounded for the linear behind it, else null.
#define TURNED(NAME, HD, GROUPS, T, Y, ROUNDED)                                                                                         \
  extern "C" __global__ void __launch_bounds__(kThreads<GROUPS>, 1) NAME(                                                               \
      const int32_t* __restrict__ head, const uint16_t* __restrict__ turned, /* [rows, heads*HD] */                                     \
      const float* __restrict__ q, const float* __restrict__ sinks, const __grid_constant__ ptx::tensor_map k,                          \
      const __grid_constant__ ptx::tensor_map v, const int32_t* __restrict__ positions, const int32_t* __restrict__ cu_rows,            \
      const int32_t* __restrict__ block_table, T* __restrict__ y, int32_t heads, int32_t kv_heads, int32_t gated, float scale,          \
      int32_t window, float softcap, int32_t page_size, int32_t pages) {                                                                \
    const Args a = {head, nullptr, sinks, turned, gated ? q : nullptr, ROUNDED, positions, cu_rows, block_table, Y, heads, kv_heads, scale, window, \
                    softcap, page_size, pages};                                                                                         \
    run<HD, GROUPS>(a, k, v);                                                                                                           \
  }
#define ATTENTION_TURNED(HD, GROUPS) TURNED(attention_turned_##HD##_##GROUPS, HD, GROUPS, float, y, nullptr)
#define ATTENTION_ROUNDED(HD) TURNED(attention_rounded_##HD, HD, 2, uint16_t, nullptr, y)

ATTENTION(64, 1)
ATTENTION(128, 1)
ATTENTION(256, 1)
ATTENTION(64, 2)
ATTENTION(128, 2)
ATTENTION(256, 2)
ATTENTION(512, 2)
ATTENTION(576, 2)
ATTENTION_TURNED(64, 1)
ATTENTION_TURNED(128, 1)
ATTENTION_TURNED(256, 1)
ATTENTION_TURNED(64, 2)
ATTENTION_TURNED(128, 2)
ATTENTION_TURNED(256, 2)
ATTENTION_ROUNDED(64)
ATTENTION_ROUNDED(128)
ATTENTION_ROUNDED(256)
