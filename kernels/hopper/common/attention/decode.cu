// SPDX-License-Identifier: MIT OR Apache-2.0
// Family attention, 1 to 8 rows: norm and rotation of q and k, the append to the KV cache, attention over its pages and the
// output gate, in one launch. Pools are bf16 [pages, page_size, kv_heads, head_dim]; page_size a multiple of 16.
//
// A tile is up to 8 columns: the query heads of one KV head, of one or more consecutive rows of a sequence. Keys are the m of
// mma.m16n8k16, columns its n; rows of the pool are brought to shared memory as they lie and read as matrices (mma/matrices.cuh):
//
//	scores   S [16 keys, 8]  =  K [16 keys, dims]  Qᵀ [dims, 8]
//	values   O [dims, 8]    +=  Vᵀ [dims, 16 keys]  P [16 keys, 8]
//
// q and P are sums of two bf16, so only K and V are rounded. Keys go by blocks of 16, counted from position 0. An item is a part of a
// tile's blocks, all of them where they are few; else parts are as many as whole clusters have blocks of threads. How a tile is parted
// depends on its own keys, the grid, and whether a step of the plan may have more than 4 rows. Blocks of threads take items in turn,
// those of a cluster parts of the same tile first:
//
//	item       k₀ k₁ k₂ k₃ …  k₀ to warp 0, k₁ to warp 1, …; a warp has an online softmax
//	a warp     K(k₀) V(k₀) K(k₈) V(k₈) …  on to its blocks of the next item: P pairs are on their way, to shared memory of its own
//
// Behind an item the warps meet, then the blocks of the cluster, in each other's shared memory, each for a slice of the sums; slices of
// several clusters meet in global memory, where whoever comes last adds them in order.
//
// The pool is read before the predecessor launch is waited for, since it then holds all keys before the step. Keys of this step replace
// what the pool has at their places once they are made from k and v.
//
// Grid: one block a multiprocessor, in clusters.

#include "../../../include/epilogue/act.cuh"
#include "../../../include/mma/bf16.cuh"
#include "../../../include/mma/matrices.cuh"
#include "../../../include/ptx/cluster.cuh"
#include "../../../include/ptx/copy_or_zero.cuh"
#include "../../../include/ptx/sm90.cuh"

namespace {

#include "decode_items.cuh"
#include "decode_turn.cuh"

// power is 2 to x, 0 below -126.
__device__ __forceinline__ float power(float x) {
#ifdef METRALE_HOST
  return exp2f(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

// inverse is 1 / x, of sums of weights.
__device__ __forceinline__ float inverse(float x) {
#ifdef METRALE_HOST
  return 1 / x;
#else
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}
// capped is a score with a cap; out of the way of those without.
__device__ __noinline__ float capped(float x, float cap) { return cap * tanhf(x / cap) * kLog2e; }

template <int HD, int P>
struct Shared {
  unsigned char ring[W][P][2][32 * HD];    // 16 keys, and their values
  float4 warp_out[W][HD / 16][32];         // sums of values, as a warp's fragments
  float4 come[HD / 32][2][32];             // from the other block of the cluster: sums of this one's fragments, and statistics of a lane's two columns
  unsigned char q[2][kCols * 2 * HD];      // high and low parts
  unsigned char fresh[2][kNew * 2 * HD];   // keys and values of this step
  float norm[2][HD];                       // of q and of k, to multiply with
  float2 stat[W][kCols];                   // maximum and sum of a warp's keys
  uint64_t full;                           // come is
  Row row[kRows];
  Item item;        // that the block is at
  int position[kRows], slot[kRows];
  int items, shared, last;  // shared: items that blocks of a cluster share
  int group, tiles, kinds;  // heads of a KV head, tiles of them, tiles of a row
};

static_assert(sizeof(Shared<64, 2>) == 89552 && sizeof(Shared<128, 1>) == 112592 && sizeof(Shared<256, 1>) == 224208, "manifest: shared");

template <int HD, int P, int C, bool Interleaved>
struct Attention {
  static constexpr int N = HD / 32;  // dims of a lane
  static constexpr int kUnit = 32 * HD;
  using S = Shared<HD, P>;
  const Args& a;
  S& s;
  unsigned tid, warp, lane, g, t;

  __device__ __forceinline__ Attention(const Args& a, S& s) : a(a), s(s) {
    tid = threadIdx.x, warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
  }

  // elements of a token
  __device__ __forceinline__ int token() const { return a.kv_heads * HD; }

  // --------------------------------------------------------------------------------------------------------------- flow

  int next;               // item to load from
  int at, end;            // its block to load, of this warp; the item's blocks end there
  int b0, p0, seq, head;  // of the item: its row's first block, first key of this step and sequence, the KV head's place in a token
  int64_t from;           // of that block in the pools
  int old;                // how many of its keys are there: all but this step's, or less than none
  // Rows of keys, values and q lie in shared memory as in the pool, pieces of 16 bytes of row r exchanged by r % 8 among 8, so that neither
  // rows that are written nor pieces of 8 rows that are read meet in a bank.
  static __device__ __forceinline__ int piece(unsigned row, unsigned i) { return row * 2 * HD + i / 8 * 128 + (i % 8 ^ row % 8) * 16; }
  unsigned char* ring;         // of the warp
  int to;                      // of this lane's piece of row lane/8
  int key_at, value_at, q_at;  // of the rows that this lane gives for fragments

  // start begins to copy, of item x and what follows.
  __device__ __forceinline__ void start(const Item& x) {
    to = piece(lane / 8, lane % 8), ring = s.ring[warp][0][0];
    key_at = piece(lane % 16, lane / 16), value_at = piece(lane % 8 + lane / 16 * 8, lane / 8 % 2), q_at = piece(lane % 8, lane / 8);
    next = blockIdx.x;
    if (!enter(x)) next += gridDim.x, enter();
#pragma unroll 1
    for (int i = 0; i < P; i++) load_keys(ring + i * 2 * kUnit), load_values(ring + i * 2 * kUnit + kUnit);
  }
  // enter goes to the warp's first block of item next, or of one behind it; of x, if it has one there.
  __device__ __forceinline__ void enter() {
#pragma unroll 1
    for (; next < s.items; next += gridDim.x)
      if (enter(item_of(a, s, next))) return;
  }
  __device__ __forceinline__ bool enter(const Item& x) {
    at = x.lo + warp, end = x.hi;
    if (at >= end) return false;
    const Row& r = s.row[x.row];
    seq = r.seq, b0 = r.b0, p0 = r.p0, head = x.kv * HD;
    find();
    return true;
  }
  // find looks up where block at lies.
  __device__ __forceinline__ void find() {
    const unsigned pos = (b0 + at) * 16, page = pos / unsigned(a.page_size);
    from = (int64_t(a.block_table[int64_t(seq) * a.pages + page]) * a.page_size + (pos - page * a.page_size)) * token() + head;
    old = p0 - int(pos);
  }
  // load starts the copy of a block's rows, those that are not there are zero; load_keys and load_values make a group of it, the latter goes on to the next.
  __device__ __forceinline__ void load(const uint16_t* pool, unsigned char* unit) const {
    const uint16_t* p = pool + from + lane / 8 * token() + lane % 8 * 8;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int f = 0; f < HD / 64; f++) ptx::async_copy_or_zero(unit + (to ^ i % 2 * 64) + i * 8 * HD + f * 128, p + i * 4 * token() + f * 64, i * 4 + int(lane / 8) < old);
  }
  __device__ __forceinline__ void load_keys(unsigned char* unit) const {
    if (next < s.items) load(a.k_pool, unit);
    ptx::async_commit();
  }
  __device__ __forceinline__ void load_values(unsigned char* unit) {
    if (next < s.items) {
      load(a.v_pool, unit);
      at += W;
      if (at < end) {
        find();
      } else {
        next += gridDim.x;
        enter();
      }
    }
    ptx::async_commit();
  }

  // ---------------------------------------------------------------------------------------------------------------- item

  // What a warp prepares of an item: a column of q, and one of this step's k and v; their rows, -1 none, places, and the slot that k and v go into, -1 none.
  int q_row, k_row, q_place, k_place, slot;

  __device__ __forceinline__ void choose(const Item& x, const Row& r) {
    const int c = warp, j = kNew - 1 - warp;
    q_row = c < r.rows * x.per ? x.row + int(c * x.inverse / 64) : -1;
    q_place = head_of(a, x, c) * (HD * (1 + a.gated));
    k_row = (r.b0 + x.hi) * 16 > r.p0 && j < r.fresh ? r.first + j : -1;
    k_place = k_row * token() + x.kv * HD;
    const bool keep = x.part == r.parts - 1 && x.kind == x.kv * s.tiles && k_row >= x.row;
    slot = keep ? s.slot[k_row] : -1;
  }
  // prepare brings q, and where the item has them this step's k and v, to shared memory, and k and v to their slots.
  __device__ __forceinline__ void prepare() {
    const int c = warp, j = kNew - 1 - warp, d0 = N * lane;
    float q[N], k[N] = {}, v[N] = {};
    Angles<HD> q_angle = {}, k_angle = {};
    load_dims(q, a.q + (q_row < 0 ? 0 : q_place) + d0);  // of warps without a column too, so that nothing waits for it before k and v are on their way
    if (a.rot > 0) load_angles<HD, Interleaved>(a, lane, max(0, q_row), q_angle);
    if (k_row >= 0) {
      load_dims(k, a.k + k_place + d0), load_dims(v, a.v + k_place + d0);
      if (a.rot > 0) load_angles<HD, Interleaved>(a, lane, k_row, k_angle);
    }
    if (q_row >= 0) {
      turned<HD, Interleaved>(a, lane, q, s.norm[0], a.q_norm, q_angle);
      const float f = a.softcap > 0 ? a.scale : a.scale * kLog2e;
#pragma unroll
      for (int i = 0; i < N; i += 2) {
        uint32_t high, low;
        mma::split(f * q[i], f * q[i + 1], high, low);
        const int at = piece(c, (d0 + i) / 8) + (d0 + i) % 8 * 2;
        *reinterpret_cast<uint32_t*>(s.q[0] + at) = high;
        *reinterpret_cast<uint32_t*>(s.q[1] + at) = low;
      }
    }
    if (k_row >= 0) {
      turned<HD, Interleaved>(a, lane, k, s.norm[1], a.k_norm, k_angle);
      const int64_t to = int64_t(slot - k_row) * token() + k_place;
#pragma unroll
      for (int i = 0; i < N; i += 2) {
        const uint32_t kk = mma::pack(k[i], k[i + 1]), vv = mma::pack(v[i], v[i + 1]);
        *reinterpret_cast<uint32_t*>(&s.fresh[0][(j * HD + d0 + i) * 2]) = kk;
        *reinterpret_cast<uint32_t*>(&s.fresh[1][(j * HD + d0 + i) * 2]) = vv;
        if (slot >= 0) {
          *reinterpret_cast<uint32_t*>(a.k_pool + to + d0 + i) = kk;
          *reinterpret_cast<uint32_t*>(a.v_pool + to + d0 + i) = vv;
        }
      }
    }
  }

  float m[2], l[2], o[HD / 16][4];  // of columns 2t and 2t+1: maximum, sum of weights, sums of values: of dims 16i + g and 16i + g + 8

  // renew brings this step's keys and values to a block from key pos on.
  __device__ __forceinline__ void renew(unsigned char* unit, int pos, int p0, int end) const {
    constexpr unsigned kPieces = HD / 8;  // of a row
#pragma unroll 1
    for (int row = max(0, p0 - pos); row < min(16, end); row++)
#pragma unroll
      for (unsigned i = lane; i < (2 * kPieces + 31) / 32 * 32; i += 32)
        if (i < 2 * kPieces)
          *reinterpret_cast<uint4*>(unit + i / kPieces * kUnit + piece(row, i % kPieces)) =
              *reinterpret_cast<const uint4*>(s.fresh[i / kPieces] + ((pos + row - p0) * HD + i % kPieces * 8) * 2);
    __syncwarp();
  }

  // block takes 16 keys from pos on, of which the first end exist; those from p0 on are this step's.
  __device__ __forceinline__ void block(unsigned char* unit, int pos, int p0, int end) {
    ptx::async_wait_but<2 * P - 1>();
    if (pos + 16 > p0) {
      ptx::async_wait_but<2 * P - 2>();  // values too
      __syncwarp();
      renew(unit, pos, p0, end);
    }
    __syncwarp();
    float high[2][4] = {}, low[2][4] = {};  // of even and odd sixteens of dims
#pragma unroll 8
    for (int j = 0; j < HD / 32; j++) {
      const int q_from = (q_at ^ j % 2 * 64) + j / 2 * 128, from = j / 2 * 128;
      const uint4 qh = mma::load_matrices(s.q[0] + q_from), ql = mma::load_matrices(s.q[1] + q_from);
      const uint4 k0 = mma::load_matrices(unit + (key_at ^ j % 2 * 64) + from), k1 = mma::load_matrices(unit + (key_at ^ (j % 2 * 64 + 32)) + from);
      mma::bf16(high[0], k0.x, k0.y, k0.z, k0.w, qh.x, qh.y);
      mma::bf16(low[0], k0.x, k0.y, k0.z, k0.w, ql.x, ql.y);
      mma::bf16(high[1], k1.x, k1.y, k1.z, k1.w, qh.z, qh.w);
      mma::bf16(low[1], k1.x, k1.y, k1.z, k1.w, ql.z, ql.w);
    }
    __syncwarp();  // all have read the keys
    load_keys(unit);
    const int window = a.window > 0 ? a.window : 1 << 30;
    float p[4], scale[2];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int kk = g + (i >> 1) * 8;
      float x = (high[0][i] + high[1][i]) + (low[0][i] + low[1][i]);
      if (a.softcap > 0) x = capped(x, a.softcap);
      p[i] = pos + kk <= seen[i & 1] && pos + kk > seen[i & 1] - window ? x : -INFINITY;
    }
#pragma unroll
    for (int c = 0; c < 2; c++) {
      float top = fmaxf(p[c], p[c + 2]);
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 4));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 8));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 16));
      top = fmaxf(top, m[c]);
      const float from = top == -INFINITY ? 0 : top;  // no key yet
      scale[c] = m[c] == -INFINITY ? 1 : power(m[c] - from);  // sums are 0 before the first key
      m[c] = top;
      p[c] = power(p[c] - from);
      p[c + 2] = power(p[c + 2] - from);
      l[c] = l[c] * scale[c] + (p[c] + p[c + 2]);
    }
    uint32_t ph[2], pl[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      mma::split(p[2 * i], p[2 * i + 1], ph[i], pl[i]);
      ph[i] = mma::transpose(ph[i]);
      pl[i] = mma::transpose(pl[i]);
    }
    if (__any_sync(~0u, scale[0] != 1 || scale[1] != 1)) {
#pragma unroll
      for (int i = 0; i < HD / 16; i++) o[i][0] *= scale[0], o[i][1] *= scale[1], o[i][2] *= scale[0], o[i][3] *= scale[1];
    }
    ptx::async_wait_but<2 * P - 1>();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < HD / 16; i++) {
      const uint4 v = mma::load_transposed(unit + kUnit + (value_at ^ i % 4 * 32) + i / 4 * 128);
      mma::bf16(o[i], v.x, v.y, v.z, v.w, ph[0], ph[1]);
      mma::bf16(o[i], v.x, v.y, v.z, v.w, pl[0], pl[1]);
    }
    __syncwarp();  // and the values
    load_values(unit + kUnit);
  }

  int place = 0;         // of the ring, of the block to take
  bool came = false;     // the block has arrived at the cluster's barrier, as come may be written, and not waited there
  uint32_t phase = 0;    // of full

  int seen[2], place_of[2];  // of columns 2t and 2t+1: the last key that they see, -1 none; places in y

  // begin says what the block is at.
  __device__ __forceinline__ void begin(const Item& x) {
    const Row& r = s.row[x.row];
    if (tid == 0) {
      s.item = x;
      if (r.parts > 1) ptx::cluster_expect<C>(&s.full, sizeof s.come);
    }
    choose(x, r);
    const int cols = r.rows * x.per;
#pragma unroll
    for (int c = 0; c < 2; c++) {
      const int col = 2 * t + c;
      seen[c] = col < cols ? s.position[x.row + col * x.inverse / 64] : -1;
      place_of[c] = head_of(a, x, col) * HD;
    }
  }

  // run does the item that is the number-th.
  __device__ __forceinline__ void run(int number) {
    const Item& x = s.item;
    const Row& r = s.row[x.row];
    prepare();
    __syncthreads();
    m[0] = m[1] = -INFINITY, l[0] = l[1] = 0;
#pragma unroll
    for (int i = 0; i < HD / 16; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) o[i][j] = 0;
#pragma unroll 1
    for (int b = x.lo + warp; b < x.hi; b += W) {
      const int pos = (r.b0 + b) * 16;
      block(ring + place, pos, r.p0, r.p0 + r.fresh - pos);
      place = place + 2 * kUnit == 2 * P * kUnit ? 0 : place + 2 * kUnit;
    }

    const bool whole = r.parts == 1;
    constexpr int kAll = HD / 16, kEach = kAll / C, kMine = kAll < W ? 1 : kAll / W;  // fragments: all, of a rank's, that a warp adds
    const int rank = blockIdx.x % C, mine = whole ? warp : rank * kEach + warp % kEach;
    const bool adds = kEach < W && !whole ? warp / kEach == rank : warp < kAll;  // fragment mine; of a whole item, every W-th behind it too
    float gates[kMine][4], sinks[2];
#pragma unroll
    for (int k = 0; k < kMine; k++) load_gates(gates[k], mine + k * W);
#pragma unroll
    for (int c = 0; c < 2; c++) sinks[c] = sink_of(x, 2 * t + c);

    // Over warps that had keys.
    const int warps = min(W, x.hi - x.lo);
    if (warp < warps) {
#pragma unroll
      for (int c = 0; c < 2; c++) {
        l[c] += __shfl_xor_sync(~0u, l[c], 4);
        l[c] += __shfl_xor_sync(~0u, l[c], 8);
        l[c] += __shfl_xor_sync(~0u, l[c], 16);
        if (g == 0) s.stat[warp][2 * t + c] = make_float2(m[c], l[c]);
      }
#pragma unroll
      for (int i = 0; i < kAll; i++) s.warp_out[warp][i][lane] = make_float4(o[i][0], o[i][1], o[i][2], o[i][3]);
    }
    if (!whole && came) ptx::cluster_wait<C>(), came = false;
    __syncthreads();
    float top[2], sum[2];
    float4 st[W], v[kMine];
#pragma unroll
    for (int w = 0; w < W; w++) st[w] = w < warps ? *reinterpret_cast<const float4*>(&s.stat[w][2 * t]) : make_float4(-INFINITY, 0, -INFINITY, 0);
#pragma unroll
    for (int k = 0; k < kMine; k++) {
      const int i = warp + k * W;
      if (i >= kAll) break;
      float4 u[W];
#pragma unroll
      for (int w = 0; w < W; w++) u[w] = w < warps ? s.warp_out[w][i][lane] : float4{};
      merge<W>(v[k], top, sum, st, u);
      if (!whole && i / kEach != rank) {
        const ptx::cluster_array<C> to(&s.come[i % kEach][0][lane].x, &s.full, rank ^ 1);
        to.push(0, v[k]), to.push(32 * 4, make_float4(top[0], sum[0], top[1], sum[1]));
      }
    }
    if (!whole) {
      // Over the blocks of the cluster: each adds its fragments, of which the other brings the rest.
      ptx::cluster_pushed<C>(&s.full, phase);
      phase ^= 1;
      if (kMine > 1 && rank) v[0] = v[kMine - 1];
      if (adds) {
        const float4 own = make_float4(top[0], sum[0], top[1], sum[1]), other = s.come[warp % kEach][1][lane], own_v = v[0], u = s.come[warp % kEach][0][lane];
        merge<C>(v[0], top, sum, {rank ? other : own, rank ? own : other}, {rank ? u : own_v, rank ? own_v : u});
      }
      if (number + int(gridDim.x) < s.shared) ptx::cluster_arrive<C>(), came = true;
      if (r.parts > C && !over_clusters(x, adds, mine, v[0], top, sum)) return;
    }
#pragma unroll
    for (int k = 0; k < kMine; k++)
      if (adds && (whole || k == 0)) store(mine + k * W, v[k], top, sum, sinks, gates[k]);
  }

  // over_clusters gives fragment mine, where the block has one, to the tile's other clusters; whoever comes last has the sum of all, in order.
  __device__ __forceinline__ bool over_clusters(const Item& x, bool adds, int mine, float4& v, float (&top)[2], float (&sum)[2]) {
    const Row& r = s.row[x.row];
    const int n = r.parts / C;
    const int64_t from = int64_t(x.row * kMost + x.kind * n) * (HD * 2) + mine * 32 + lane;
    float4* partial = reinterpret_cast<float4*>(a.partial) + from;
    float4* stat = reinterpret_cast<float4*>(a.partial_stat) + from;
    if (adds) {
      const int64_t to = int64_t(x.part / C) * (HD * 2);
      partial[to] = v, stat[to] = make_float4(top[0], sum[0], top[1], sum[1]);
    }
    __syncthreads();
    uint32_t* arrived = a.meet + kArrived + (x.row * s.kinds + x.kind) * C + blockIdx.x % C;
    if (tid == 0) s.last = ptx::add_release(arrived, 1) == uint32_t(n - 1);
    __syncthreads();
    if (!s.last) return false;
    if (adds) {
      constexpr int kBatch = 4;
      top[0] = top[1] = -INFINITY, sum[0] = sum[1] = 0, v = float4{};
#pragma unroll 1
      for (int k = 0; k < n; k += kBatch) {
        float4 st[kBatch + 1], u[kBatch + 1];
        st[0] = make_float4(top[0], sum[0], top[1], sum[1]), u[0] = v;
#pragma unroll
        for (int j = 0; j < kBatch; j++) {
          st[j + 1] = make_float4(-INFINITY, 0, -INFINITY, 0), u[j + 1] = float4{};
          if (k + j >= n) continue;
          st[j + 1] = __ldcg(stat + int64_t(k + j) * (HD * 2));
          u[j + 1] = __ldcg(partial + int64_t(k + j) * (HD * 2));
        }
        merge<kBatch + 1>(v, top, sum, st, u);
      }
    }
    if (tid == 0) *arrived = 0;
    return true;
  }

  // merge adds fragments u, in order, to v; of their two columns st has maximum and sum.
  template <int K>
  __device__ __forceinline__ static void merge(float4& v, float (&top)[2], float (&sum)[2], const float4 (&st)[K], const float4 (&u)[K]) {
    top[0] = st[0].x, top[1] = st[0].z;
#pragma unroll
    for (int k = 1; k < K; k++) top[0] = fmaxf(top[0], st[k].x), top[1] = fmaxf(top[1], st[k].z);
    const float from[2] = {top[0] == -INFINITY ? 0 : top[0], top[1] == -INFINITY ? 0 : top[1]};
    v = float4{}, sum[0] = sum[1] = 0;
#pragma unroll
    for (int k = 0; k < K; k++) {
      const float f = power(st[k].x - from[0]), h = power(st[k].z - from[1]);
      sum[0] += f * st[k].y, sum[1] += h * st[k].w;
      v.x += f * u[k].x, v.y += h * u[k].y, v.z += f * u[k].z, v.w += h * u[k].w;
    }
  }

  // sink_of is a column's sink as scores are, times log2 e; of none its weight is 0.
  __device__ __forceinline__ float sink_of(const Item& x, int c) const {
    return a.sinks && seen[c & 1] >= 0 ? a.sinks[x.h0 + c - c * x.inverse / 64 * x.per] * kLog2e : -INFINITY;
  }
  // A lane has of fragment i columns 2t and 2t+1, dims 16i + g and 16i + g + 8. load_gates brings what they are weighed with, store writes them.
  __device__ __forceinline__ void load_gates(float (&gates)[4], int i) const {
#pragma unroll
    for (int c = 0; c < 2; c++) {
      gates[c] = gates[c + 2] = 0;
      if (!a.gated || seen[c] < 0 || i >= HD / 16) continue;
      const float* p = a.q + place_of[c] * 2 + HD + 16 * i + g;
      gates[c] = ptx::load_l2(p), gates[c + 2] = ptx::load_l2(p + 8);
    }
  }
  __device__ __forceinline__ void store(int i, const float4& v, const float (&top)[2], const float (&sum)[2], const float (&sinks)[2], const float (&gates)[4]) const {
    const float u[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int c = 0; c < 2; c++) {
      if (seen[c] < 0) continue;
      float* p = a.y + place_of[c] + 16 * i + g;
      const float f = inverse(sum[c] + power(sinks[c] - top[c]));
#pragma unroll
      for (int e = c; e < 4; e += 2) p[e / 2 * 8] = u[e] * f * (a.gated ? act::sigmoid::of(gates[e]) : 1);
    }
  }
};

template <int HD, int P, int C, bool Interleaved>
__device__ __forceinline__ void attend(const Args& a) {
  ptx::start_successor();
  extern __shared__ __align__(128) uint8_t memory[];
  using A = Attention<HD, P, C, Interleaved>;
  auto& s = *reinterpret_cast<typename A::S*>(memory);
  A x(a, s);
  const bool normed = int(threadIdx.x) < HD;
  const float q_norm = normed && a.q_norm ? a.q_norm[threadIdx.x] : 0, k_norm = normed && a.k_norm ? a.k_norm[threadIdx.x] : 0;
  table<C>(a, s, threadIdx.x);
  if (int(blockIdx.x) >= s.items) return;
  if (threadIdx.x == 0) ptx::cluster_open<C>(&s.full);
  ptx::cluster_come<C>(), x.came = true;
  Item it = item_of(a, s, blockIdx.x);
  x.start(it);
  if (normed) s.norm[0][threadIdx.x] = float(a.plus_one) + q_norm, s.norm[1][threadIdx.x] = float(a.plus_one) + k_norm;
#pragma unroll 1
  for (int i = blockIdx.x; i < s.items; i += gridDim.x) {
    if (i != int(blockIdx.x)) {
      it = item_of(a, s, i);
      __syncthreads();  // the item before has been read
    }
    heads_of(s, it);
    x.begin(it);
    __syncthreads();
    if (i == int(blockIdx.x)) ptx::wait_for_predecessor();
    x.run(i);
  }
  if (x.came) ptx::cluster_wait<C>();
}

}  // namespace

#define ENTRY(name, HD, P, INTERLEAVED)                                                                                           \
  extern "C" __global__ void __launch_bounds__(32 * W, HD == 256 ? 1 : 2) name(                                                          \
      const int32_t* head, const int32_t* positions, const int32_t* row_seq, const int32_t* cu_rows, const int32_t* block_table,     \
      const int32_t* slots, const float* q, const float* k, const float* v, const float* q_norm, const float* k_norm, const float* sinks, \
      const float* angles, uint16_t* k_pool, uint16_t* v_pool, float* y, int32_t rows, int32_t seqs, int32_t heads, int32_t kv_heads, int32_t rot,               \
      int32_t page_size, int32_t pages, int32_t gated, int32_t window, int32_t plus_one, float eps, float scale, float softcap,      \
      float* partial, float2* partial_stat, uint32_t* meet) {                                                                        \
    attend<HD, P, kBlocks, INTERLEAVED>({head, positions, row_seq, cu_rows, block_table, slots, q, k, v, q_norm, k_norm, sinks, angles, k_pool, \
                                   v_pool, y, rows, seqs, heads, kv_heads, rot, page_size, pages, gated, window, plus_one, eps, scale, softcap,  \
                                   partial, partial_stat, meet});                                                                    \
  }

// y = attention of q over the pages and this step's keys, [* sigmoid(gate)]; k and v go into their slots
ENTRY(attention_step_bf16_64_half, 64, 2, false)
ENTRY(attention_step_bf16_128_half, 128, 1, false)
ENTRY(attention_step_bf16_256_half, 256, 1, false)
ENTRY(attention_step_bf16_64_interleaved, 64, 2, true)
ENTRY(attention_step_bf16_128_interleaved, 128, 1, true)
ENTRY(attention_step_bf16_256_interleaved, 256, 1, true)
