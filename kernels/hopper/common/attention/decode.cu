// SPDX-License-Identifier: MIT OR Apache-2.0
// Family attention, 1 to 8 rows: norm and rotation of q and k, the append to the KV cache, attention over its pages and the
// output gate, in one launch. Pools are bf16 [pages, page_size, kv_heads, head_dim]; page_size a multiple of 16.
//
// A tile is up to 8 columns: the query heads of one KV head, of one or more consecutive rows of a sequence. Keys are the m of
// mma.m16n8k16, columns its n, so 16-byte loads of keys as they lie in the pool are fragments (mma/bf16.cuh):
//
//	scores   S [16 keys, 8]  =  K [16 keys, dims]  Qᵀ [dims, 8]
//	values   O [dims, 8]    +=  Vᵀ [dims, 16 keys]  P [16 keys, 8]      dims permuted: lane g holds dims 8g … 8g+7 of 64
//
// q and P are sums of two bf16, so only K and V are rounded. Keys go by blocks of 16. An item is a part of a tile's blocks, all of
// them where they are few; how a tile is parted depends on its own keys and the grid alone. Blocks of threads take items in turn:
//
//	item       k₀ k₁ k₂ k₃ …  k₀ to warp 0, k₁ to warp 1, …; a warp has an online softmax, warps meet behind the item
//	a warp     K(k₀) V(k₀) K(k₈) V(k₈) …  on to its blocks of the next item: up to U of these are on their way, each lane's 16-byte
//	           pieces to a place in shared memory that it alone reads, so no barrier stands between memory and the tensor cores
//
// Items of one tile meet in global memory, where whoever comes last adds them in order.
//
// Keys of this step are a block of their own, the last, made in shared memory from k and v; the pool is read before the
// predecessor launch is waited for, since it then holds all keys before the step.
//
// Grid: one block a multiprocessor.

#include "../../../include/epilogue/act.cuh"
#include "../../../include/mma/bf16.cuh"
#include "../../../include/ptx/sm90.cuh"

namespace {

constexpr int kCols = 8;       // of a tile
constexpr int kNew = 8;        // keys that a sequence brings with a step
constexpr int kRows = 8;       // of a step
constexpr int kMost = 160;     // parts of a row's tiles
constexpr int kArrived = 64;   // of meet, where counters begin: one a tile
constexpr float kLog2e = 1.4426950408889634f;

struct Args {
  const int32_t *head, *positions, *row_seq, *cu_rows, *block_table, *slots;
  const float *q, *k, *v;          // [rows, heads*head_dim], or [q | gate] per head; [rows, kv_heads*head_dim]
  const float *q_norm, *k_norm;    // [head_dim] or null
  const float* sinks;              // [heads] or null: a score that has a weight and no value
  const float* angles;             // [rows, rot]: cos, sin
  uint16_t *k_pool, *v_pool;       // bf16
  float* y;                        // [rows, heads*head_dim]
  int most_rows, most_seqs;  // that a step of this plan may have
  int heads, kv_heads, rot, page_size, pages, gated, window, plus_one;
  float eps, scale, softcap;
  float* partial;        // [rows, kMost, kCols, head_dim]: sums of values
  float2* partial_stat;  // [rows, kMost, kCols]: maximum and sum
  uint32_t* meet;        // counters, 0 between launches
};

// Parts says how many blocks a warp has of a tile that is one item, at most, and of an item of a tile that is parted, at least.
constexpr int kWhole = 6, kPart = 2;

// Row is the tiles of a row, one for each KV head and 8 of its query heads.
struct Row {
  int rows, first, fresh;       // rows of a tile, 0: the row is of a tile before it; the sequence's first; keys of this step
  int seq, p0, b0, blocks;      // the first key of this step; the first block, and how many, of which the last is this step's
  int parts, base;              // of a tile; items of rows before
};

// Item is a part of a tile: blocks [lo, hi), of which those of the pool end at old.
struct Item {
  int row, kind, part, lo, hi, old;
};

template <int HD, int W, int U>
struct Shared {
  static constexpr int kPitch = HD + 32;  // bf16 of a row: neighbours lie in different halves of the banks
  unsigned char ring[W][U][32 * HD];      // 16 keys or values
  unsigned char fresh[2][32 * HD];        // keys and values of this step, as a warp has them
  float warp_out[W][kCols][HD + 4];       // sums of values; before them, a head that a warp rotates
  uint16_t q[2][kCols][kPitch];              // high and low parts
  float norm[2][HD];                         // of q and of k, to multiply with
  float stat[W][kCols][2];                   // maximum and sum of a warp's keys
  Row row[kRows];
  Item item;         // that the block is at
  int seen[kCols];   // the last key that each of its columns sees; -1 none
  int items, last;
  int group, tiles, kinds, most;  // heads of a KV head, tiles of them, tiles of a row; parts that a tile may have
};

static_assert(sizeof(Shared<64, 8, 4>) == 91504 && sizeof(Shared<128, 8, 3>) == 147312 && sizeof(Shared<256, 8, 2>) == 226160, "manifest: shared");

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  return v;
}

// Angles are those of a lane's dims, from HD/32*lane.
template <int HD>
struct Angles {
  float cos[HD / 32], sin[HD / 32];
};

template <int HD, int W, int U, bool Interleaved>
struct Attention {
  static constexpr int N = HD / 32;  // dims of a lane
  static constexpr int kUnit = 32 * HD;
  using S = Shared<HD, W, U>;
  const Args& a;
  S& s;
  int tid, warp, lane, g, t;
  int token;  // elements of a token

  __device__ __forceinline__ Attention(const Args& a, S& s) : a(a), s(s) {
    tid = threadIdx.x, warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
    if (tid == 0) {
      s.group = a.heads / a.kv_heads, s.tiles = (s.group + kCols - 1) / kCols, s.kinds = a.kv_heads * s.tiles;
      s.most = max(1, min(int(gridDim.x), kMost) / s.kinds);
    }
    token = a.kv_heads * HD;
  }

  // table works out the tiles of all rows, a lane each; what it reads comes at once.
  __device__ __forceinline__ void table() {
    if (tid < 32) {
      __syncwarp();
      const int row = tid, rows = a.head[0], mine = min(row, a.most_rows - 1), per_tile = max(1, kCols / s.group);
      const int seq = a.row_seq[mine], position = a.positions[mine], cu = a.cu_rows[min(row, a.most_seqs)];
      Row r = {};
      r.seq = seq, r.first = __shfl_sync(~0u, cu, seq);
      const int end = __shfl_sync(~0u, cu, seq + 1);
      r.p0 = __shfl_sync(~0u, position, r.first);
      if (row < min(rows, kRows) && (row - r.first) % per_tile == 0) {
        r.rows = min(per_tile, end - row), r.fresh = row + r.rows - r.first;
        const int lowest = a.window > 0 ? max(0, position - a.window + 1) : 0;
        r.b0 = lowest / 16, r.blocks = max(0, (r.p0 + 15) / 16 - r.b0) + 1;
        r.parts = r.blocks <= kWhole * W ? 1 : min((r.blocks + kPart * W - 1) / (kPart * W), s.most);
      }
      const int items = r.parts * s.kinds;
      int sum = items;
#pragma unroll
      for (int d = 1; d < kRows; d *= 2) {
        const int v = __shfl_up_sync(~0u, sum, d);
        if (row >= d) sum += v;
      }
      r.base = sum - items;
      if (row < kRows) s.row[row] = r;
      if (row == kRows - 1) s.items = sum;
    }
    __syncthreads();
  }

  __device__ __forceinline__ Item item(int i) const {
    Item x;
    x.row = 0;
#pragma unroll
    for (int r = 1; r < kRows; r++)
      if (s.row[r].rows > 0 && i >= s.row[r].base) x.row = r;
    const Row& r = s.row[x.row];
    x.kind = (i - r.base) / r.parts, x.part = (i - r.base) % r.parts;
    x.lo = int64_t(x.part) * r.blocks / r.parts, x.hi = int64_t(x.part + 1) * r.blocks / r.parts;
    x.old = x.part == r.parts - 1 ? x.hi - 1 : x.hi;
    return x;
  }

  // --------------------------------------------------------------------------------------------------------------- flow

  int next;              // item to load from
  int at, end;           // its block to load, of this warp; blocks of the pool of the item end there
  int b0, page;          // of that block
  int seq, head;         // of the item: sequence, the KV head's place in a token
  bool values = false;   // its values are next
  // 16 keys, or values, are pieces of 16 bytes in shared memory, so placed that whole lines of a row are written and neighbours' reads
  // do not collide:
  //
  //	keys     512 * (2j + i)  +  16 * (4g + t)            of key g + 8i, dims 32j + 8t …
  //	values   512 * (4f + i)  +  128t + 16 * (g ^ 2t)     of value 2t + i%2 + i/2*8, dims 64f + 8g …
  static __device__ __forceinline__ int value_piece(int g, int t) { return t * 128 + (g ^ 2 * t) * 16; }
  static __device__ __forceinline__ int key_at(int key, int d) { return 512 * (d / 32 * 2 + key / 8) + 16 * (key % 8 * 4 + d % 32 / 8) + d % 8 * 2; }
  static __device__ __forceinline__ int value_at(int key, int d) {
    return 512 * (d / 64 * 4 + key % 2 + key / 8 * 2) + value_piece(d % 64 / 8, key % 8 / 2) + d % 8 * 2;
  }
  int put = 0, get = 0;        // places in the warp's ring
  int key_place, value_place;  // of this lane's piece, among 32

  __device__ __forceinline__ void start() {
    key_place = lane * 16, value_place = value_piece(g, t);
    next = blockIdx.x;
    enter();
#pragma unroll
    for (int i = 0; i < U; i++) load();
  }
  // enter goes to the warp's first block of item next, or of one behind it.
  __device__ __forceinline__ void enter() {
    for (; next < s.items; next += gridDim.x) {
      const Item x = item(next);
      at = x.lo + warp, end = x.old;
      if (at >= end) continue;
      const Row& r = s.row[x.row];
      seq = r.seq, b0 = r.b0, head = x.kind / s.tiles * HD;
      page = page_of(b0 + at);
      return;
    }
  }
  __device__ __forceinline__ int page_of(int b) const { return a.block_table[int64_t(seq) * a.pages + b * 16 / a.page_size]; }
  // load starts the copy of a block's keys or values, a group of its own.
  __device__ __forceinline__ void load() {
    if (U % 2) __syncwarp();  // a slot held keys before values, or values before keys, which other lanes have read
    if (next < s.items) {
      const int64_t p = (int64_t(page) * a.page_size + (b0 + at) * 16 % a.page_size) * token + head;
      unsigned char* to = s.ring[warp][0] + put;
      if (!values) {
        const uint16_t* k = a.k_pool + p + g * token + t * 8;
#pragma unroll
        for (int j = 0; j < HD / 32; j++) {
          ptx::async_copy_weights(to + key_place + (2 * j) * 512, k + 32 * j);
          ptx::async_copy_weights(to + key_place + (2 * j + 1) * 512, k + 8 * token + 32 * j);
        }
        values = true;
      } else {
        const uint16_t* v = a.v_pool + p + 2 * t * token + g * 8;
#pragma unroll
        for (int f = 0; f < HD / 64; f++)
#pragma unroll
          for (int i = 0; i < 4; i++) ptx::async_copy_weights(to + value_place + (4 * f + i) * 512, v + ((i & 1) + (i >> 1) * 8) * token + 64 * f);
        values = false;
        at += W;
        if (at < end) {
          page = page_of(b0 + at);
        } else {
          next += gridDim.x;
          enter();
        }
      }
    }
    ptx::async_commit();
    put = behind(put);
  }
  __device__ __forceinline__ static int behind(int place) { return place + kUnit == U * kUnit ? 0 : place + kUnit; }

  // ---------------------------------------------------------------------------------------------------------------- item

  // turned norms and rotates one head by a warp, x its dims from N*lane.
  __device__ __forceinline__ void turned(float (&x)[N], const float* norm, bool normed, const Angles<HD>& angle) {
    float* all = s.warp_out[warp][0];
    const int d0 = N * lane, half = a.rot / 2;
    if (normed) {
      float square = 0;
#pragma unroll
      for (int i = 0; i < N; i++) square += x[i] * x[i];
      const float f = rsqrtf(warp_sum(square) / HD + a.eps);
#pragma unroll
      for (int i = 0; i < N; i++) x[i] *= f * norm[d0 + i];
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < N; i++) all[d0 + i] = x[i];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < N; i++) {
      const int d = d0 + i;
      if (d >= a.rot) continue;
      const bool first = Interleaved ? d % 2 == 0 : d < half;
      const float other = all[Interleaved ? d ^ 1 : first ? d + half : d - half];
      x[i] = first ? x[i] * angle.cos[i] - other * angle.sin[i] : x[i] * angle.cos[i] + other * angle.sin[i];
    }
  }
  __device__ __forceinline__ Angles<HD> angles_of(int row) const {
    Angles<HD> v = {};
    const int half = a.rot / 2;
    const float* p = a.angles + int64_t(row) * a.rot;
#pragma unroll
    for (int i = 0; i < N; i++) {
      const int d = N * lane + i, pair = Interleaved ? d / 2 : d < half ? d : d - half;
      if (d < a.rot) v.cos[i] = ptx::load_l2(p + pair), v.sin[i] = ptx::load_l2(p + half + pair);
    }
    return v;
  }
  __device__ __forceinline__ void load_dims(float (&x)[N], const float* p) const {
    if constexpr (N == 2) {
      x[0] = ptx::load_l2(p + N * lane), x[1] = ptx::load_l2(p + N * lane + 1);
    } else {
#pragma unroll
      for (int i = 0; i < N; i += 4) {
        const float4 v = ptx::load_l2(reinterpret_cast<const float4*>(p + N * lane + i));
        x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
      }
    }
  }

  // prepare brings q, and where the item has them this step's k and v, to shared memory, and k and v to their slots.
  __device__ __forceinline__ void prepare(const Item& x, const Row& r, int h0, int per, bool append) {
    const int cols = r.rows * per, kv = x.kind / s.tiles, d0 = N * lane;
    const int64_t wide = HD * (1 + a.gated);
    const bool newest = x.part == r.parts - 1;
#pragma unroll
    for (int turn = 0; turn < (kCols + W - 1) / W; turn++) {
      const int c = warp + turn * W, row = x.row + c / per, j = kNew - 1 - c;  // of q; of k and v
      const bool is_q = c < cols, is_k = newest && j < r.fresh;
      float q[N] = {}, k[N] = {}, v[N] = {};
      int slot = 0;
      Angles<HD> q_angle = {}, k_angle = {};
      if (is_q) load_dims(q, a.q + (int64_t(row) * a.heads + h0 + c % per) * wide), q_angle = angles_of(row);
      if (is_k) {
        const int64_t at = (int64_t(r.first + j) * a.kv_heads + kv) * HD;
        load_dims(k, a.k + at), load_dims(v, a.v + at), k_angle = angles_of(r.first + j);
        slot = a.slots[r.first + j];
      }
      if (is_q) {
        turned(q, s.norm[0], a.q_norm, q_angle);
        const float f = a.softcap > 0 ? a.scale : a.scale * kLog2e;
#pragma unroll
        for (int i = 0; i < N; i += 2) {
          uint32_t high, low;
          mma::split(f * q[i], f * q[i + 1], high, low);
          *reinterpret_cast<uint32_t*>(&s.q[0][c][d0 + i]) = high;
          *reinterpret_cast<uint32_t*>(&s.q[1][c][d0 + i]) = low;
        }
      }
      if (is_k) {
        turned(k, s.norm[1], a.k_norm, k_angle);
        const int64_t to = int64_t(slot) * token + kv * HD;
        const bool keep = append && r.first + j >= x.row;
#pragma unroll
        for (int i = 0; i < N; i += 2) {
          const uint32_t kk = mma::pack(k[i], k[i + 1]), vv = mma::pack(v[i], v[i + 1]);
          *reinterpret_cast<uint32_t*>(&s.fresh[0][key_at(j, d0 + i)]) = kk;
          *reinterpret_cast<uint32_t*>(&s.fresh[1][value_at(j, d0 + i)]) = vv;
          if (keep) {
            *reinterpret_cast<uint32_t*>(a.k_pool + to + d0 + i) = kk;
            *reinterpret_cast<uint32_t*>(a.v_pool + to + d0 + i) = vv;
          }
        }
      }
    }
  }

  float m[2], l[2], o[HD / 16][4];  // of columns 2t and 2t+1: maximum, sum of weights, sums of values

  // block takes 16 keys from pos on, of which the first end exist; of the pool, or this step's.
  __device__ __forceinline__ void block(int pos, int end, bool pool) {
    if (pool) ptx::async_wait_but<U - 1>();
    const unsigned char* keys = (pool ? s.ring[warp][0] + get : s.fresh[0]) + key_place;
    float high[2][4] = {}, low[2][4] = {};  // of even and odd halves of 32 dims
#pragma unroll 2
    for (int j = 0; j < HD / 32; j++) {
      const uint4 qh = *reinterpret_cast<const uint4*>(&s.q[0][g][32 * j + 8 * t]), ql = *reinterpret_cast<const uint4*>(&s.q[1][g][32 * j + 8 * t]);
      const uint4 k0 = *reinterpret_cast<const uint4*>(keys + 1024 * j), k1 = *reinterpret_cast<const uint4*>(keys + 1024 * j + 512);
      mma::bf16(high[0], k0.x, k1.x, k0.y, k1.y, qh.x, qh.y);
      mma::bf16(low[0], k0.x, k1.x, k0.y, k1.y, ql.x, ql.y);
      mma::bf16(high[1], k0.z, k1.z, k0.w, k1.w, qh.z, qh.w);
      mma::bf16(low[1], k0.z, k1.z, k0.w, k1.w, ql.z, ql.w);
    }
    const unsigned char* vals = s.fresh[1] + value_place;
    if (pool) {
      load();
      get = behind(get);
      vals = s.ring[warp][0] + get + value_place;
    }
    float p[4], scale[2];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int kk = g + (i >> 1) * 8;
      float x = (high[0][i] + high[1][i]) + (low[0][i] + low[1][i]);
      if (a.softcap > 0) x = a.softcap * tanhf(x / a.softcap) * kLog2e;
      const int seen = s.seen[2 * t + (i & 1)];
      const bool sees = kk < end && pos + kk <= seen && (a.window <= 0 || pos + kk > seen - a.window);
      p[i] = sees ? x : -INFINITY;
    }
#pragma unroll
    for (int c = 0; c < 2; c++) {
      float top = fmaxf(p[c], p[c + 2]);
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 4));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 8));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 16));
      top = fmaxf(top, m[c]);
      const float from = top == -INFINITY ? 0 : top;  // no key yet
      scale[c] = exp2f(m[c] - from);
      m[c] = top;
      p[c] = exp2f(p[c] - from);
      p[c + 2] = exp2f(p[c + 2] - from);
      l[c] = l[c] * scale[c] + (p[c] + p[c + 2]);
    }
    if (pool) ptx::async_wait_but<U - 1>();
    uint32_t ph[2], pl[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      mma::split(p[2 * i], p[2 * i + 1], ph[i], pl[i]);
      ph[i] = mma::transpose(ph[i]);
      pl[i] = mma::transpose(pl[i]);
    }
#pragma unroll
    for (int f = 0; f < HD / 64; f++) {
      uint4 v[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        v[i] = *reinterpret_cast<const uint4*>(vals + (4 * f + i) * 512);
        if (2 * t + (i & 1) + (i >> 1) * 8 >= end) v[i] = make_uint4(0, 0, 0, 0);  // a page's unwritten end may hold anything
      }
      const uint32_t w0[4] = {v[0].x, v[0].y, v[0].z, v[0].w}, w1[4] = {v[1].x, v[1].y, v[1].z, v[1].w};
      const uint32_t w2[4] = {v[2].x, v[2].y, v[2].z, v[2].w}, w3[4] = {v[3].x, v[3].y, v[3].z, v[3].w};
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const uint32_t pick = j & 1 ? 0x7632 : 0x5410;
        const uint32_t a0 = __byte_perm(w0[j / 2], w1[j / 2], pick), a1 = __byte_perm(w0[2 + j / 2], w1[2 + j / 2], pick);
        const uint32_t a2 = __byte_perm(w2[j / 2], w3[j / 2], pick), a3 = __byte_perm(w2[2 + j / 2], w3[2 + j / 2], pick);
        float(&c)[4] = o[4 * f + j];
        c[0] *= scale[0], c[1] *= scale[1], c[2] *= scale[0], c[3] *= scale[1];
        mma::bf16(c, a0, a1, a2, a3, ph[0], ph[1]);
        mma::bf16(c, a0, a1, a2, a3, pl[0], pl[1]);
      }
    }
    if (pool) load(), get = behind(get);
  }

  __device__ __forceinline__ void run(int i) {
    {
      const Item x = item(i);
      const Row& r = s.row[x.row];
      const int h0 = x.kind / s.tiles * s.group + x.kind % s.tiles * kCols, per = min(kCols, (x.kind / s.tiles + 1) * s.group - h0);
      if (tid == 0) s.item = x;
      if (tid < kCols) s.seen[tid] = tid < r.rows * per ? a.positions[x.row + tid / per] : -1;
      prepare(x, r, h0, per, x.kind % s.tiles == 0);
    }
    __syncthreads();
    const Item& x = s.item;
    const Row& r = s.row[x.row];
    m[0] = m[1] = -INFINITY, l[0] = l[1] = 0;
#pragma unroll
    for (int i = 0; i < HD / 16; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) o[i][j] = 0;
    for (int b = x.lo + warp; b < x.hi; b += W) {
      const bool pool = b < x.old;
      const int pos = pool ? (r.b0 + b) * 16 : r.p0;
      block(pos, pool ? r.p0 - pos : r.fresh, pool);
    }

    // Over warps.
#pragma unroll
    for (int c = 0; c < 2; c++) {
      l[c] += __shfl_xor_sync(~0u, l[c], 4);
      l[c] += __shfl_xor_sync(~0u, l[c], 8);
      l[c] += __shfl_xor_sync(~0u, l[c], 16);
      if (g == 0) s.stat[warp][2 * t + c][0] = m[c], s.stat[warp][2 * t + c][1] = l[c];
    }
#pragma unroll
    for (int f = 0; f < HD / 64; f++)
#pragma unroll
      for (int e = 0; e < 2; e++)  // dims 64f + 8g + 4e …
#pragma unroll
        for (int c = 0; c < 2; c++)
          *reinterpret_cast<float4*>(&s.warp_out[warp][2 * t + c][64 * f + 8 * g + 4 * e]) =
              make_float4(o[4 * f][2 * e + c], o[4 * f + 1][2 * e + c], o[4 * f + 2][2 * e + c], o[4 * f + 3][2 * e + c]);
    __syncthreads();
    const int h0 = x.kind / s.tiles * s.group + x.kind % s.tiles * kCols, per = min(kCols, (x.kind / s.tiles + 1) * s.group - h0), cols = r.rows * per;
    const int place = x.row * kMost + x.kind * s.most;  // of the tile's parts
    for (int i = tid; i < cols * (HD / 4); i += 32 * W) {
      const int c = i / (HD / 4), d = i % (HD / 4) * 4;
      const float4 gate = a.gated && r.parts == 1 ? load_gate(x.row + c / per, h0 + c % per, d) : float4{};
      const float sink = r.parts == 1 ? sink_of(h0 + c % per) : 0;
      float top = -INFINITY, sum = 0;
      float4 v = {};
#pragma unroll
      for (int w = 0; w < W; w++) top = fmaxf(top, s.stat[w][c][0]);
#pragma unroll
      for (int w = 0; w < W; w++) {
        const float f = top == -INFINITY ? 0 : exp2f(s.stat[w][c][0] - top);
        sum += f * s.stat[w][c][1];
        add(v, f, *reinterpret_cast<const float4*>(&s.warp_out[w][c][d]));
      }
      if (r.parts == 1) {
        store(x.row + c / per, h0 + c % per, d, v, 1 / (sum + exp2f(sink - top)), gate);
      } else {
        const int64_t to = (int64_t(place) + x.part) * kCols + c;
        *reinterpret_cast<float4*>(a.partial + to * HD + d) = v;
        if (d == 0) a.partial_stat[to] = make_float2(top, sum);
      }
    }
    if (r.parts == 1) return;

    // Over parts: whoever comes last takes all, in order, kBatch at a time.
    __syncthreads();
    uint32_t* arrived = a.meet + kArrived + x.row * s.kinds + x.kind;
    if (tid == 0) s.last = ptx::add_release(arrived, 1) == uint32_t(r.parts - 1);
    __syncthreads();
    if (!s.last) return;
    constexpr int kBatch = 8;
    for (int i = tid; i < cols * (HD / 4); i += 32 * W) {
      const int c = i / (HD / 4), d = i % (HD / 4) * 4;
      const float4 gate = a.gated ? load_gate(x.row + c / per, h0 + c % per, d) : float4{};
      const float sink = sink_of(h0 + c % per);
      const float2* stat = a.partial_stat + int64_t(place) * kCols + c;
      const float* from = a.partial + (int64_t(place) * kCols + c) * HD + d;
      float top = -INFINITY, sum = 0;
      float4 v = {};
      for (int k = 0; k < r.parts; k += kBatch) {
        float2 st[kBatch];
        float4 u[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; j++) {
          st[j] = make_float2(-INFINITY, 0), u[j] = float4{};
          if (k + j >= r.parts) continue;
          st[j] = __ldcg(stat + (k + j) * kCols);
          u[j] = __ldcg(reinterpret_cast<const float4*>(from + int64_t(k + j) * kCols * HD));
        }
        float now = top;
#pragma unroll
        for (int j = 0; j < kBatch; j++) now = fmaxf(now, st[j].x);
        const float at = now == -INFINITY ? 0 : now, f = exp2f(top - at);
        v.x *= f, v.y *= f, v.z *= f, v.w *= f, sum *= f, top = now;
#pragma unroll
        for (int j = 0; j < kBatch; j++) {
          const float w = exp2f(st[j].x - at);
          sum += w * st[j].y;
          add(v, w, u[j]);
        }
      }
      store(x.row + c / per, h0 + c % per, d, v, 1 / (sum + exp2f(sink - top)), gate);
    }
    if (tid == 0) *arrived = 0;
  }

  __device__ __forceinline__ static void add(float4& v, float f, const float4& u) {
    v.x += f * u.x, v.y += f * u.y, v.z += f * u.z, v.w += f * u.w;
  }
  // sink_of is a head's sink as scores are, times log2 e; of none its weight is 0.
  __device__ __forceinline__ float sink_of(int h) const { return a.sinks ? a.sinks[h] * kLog2e : -INFINITY; }
  __device__ __forceinline__ float4 load_gate(int row, int h, int d) const {
    return ptx::load_l2(reinterpret_cast<const float4*>(a.q + (int64_t(row) * a.heads + h) * HD * 2 + HD + d));
  }
  __device__ __forceinline__ void store(int row, int h, int d, float4 v, float f, const float4& gate) const {
    v.x *= f, v.y *= f, v.z *= f, v.w *= f;
    if (a.gated) v.x *= act::sigmoid::of(gate.x), v.y *= act::sigmoid::of(gate.y), v.z *= act::sigmoid::of(gate.z), v.w *= act::sigmoid::of(gate.w);
    *reinterpret_cast<float4*>(a.y + (int64_t(row) * a.heads + h) * HD + d) = v;
  }
};

template <int HD, int W, int U, bool Interleaved>
__device__ __forceinline__ void attend(const Args& a) {
  ptx::start_successor();
  extern __shared__ __align__(128) uint8_t memory[];
  using A = Attention<HD, W, U, Interleaved>;
  auto& s = *reinterpret_cast<typename A::S*>(memory);
  A x(a, s);
  x.table();
  if (int(blockIdx.x) >= s.items) return;
  x.start();
  for (int d = threadIdx.x; d < HD; d += 32 * W) {
    if (a.q_norm) s.norm[0][d] = float(a.plus_one) + a.q_norm[d];
    if (a.k_norm) s.norm[1][d] = float(a.plus_one) + a.k_norm[d];
  }
  __syncthreads();
  ptx::wait_for_predecessor();
  for (int i = blockIdx.x; i < s.items; i += gridDim.x) {
    if (i >= int(gridDim.x)) __syncthreads();  // the item before has been read
    x.run(i);
  }
}

}  // namespace

#define ENTRY(name, HD, W, U, INTERLEAVED)                                                                                           \
  extern "C" __global__ void __launch_bounds__(32 * W, HD == 256 ? 1 : 2) name(                                                          \
      const int32_t* head, const int32_t* positions, const int32_t* row_seq, const int32_t* cu_rows, const int32_t* block_table,     \
      const int32_t* slots, const float* q, const float* k, const float* v, const float* q_norm, const float* k_norm, const float* sinks, \
      const float* angles, uint16_t* k_pool, uint16_t* v_pool, float* y, int32_t rows, int32_t seqs, int32_t heads, int32_t kv_heads, int32_t rot,               \
      int32_t page_size, int32_t pages, int32_t gated, int32_t window, int32_t plus_one, float eps, float scale, float softcap,      \
      float* partial, float2* partial_stat, uint32_t* meet) {                                                                        \
    attend<HD, W, U, INTERLEAVED>({head, positions, row_seq, cu_rows, block_table, slots, q, k, v, q_norm, k_norm, sinks, angles, k_pool, \
                                   v_pool, y, rows, seqs, heads, kv_heads, rot, page_size, pages, gated, window, plus_one, eps, scale, softcap,  \
                                   partial, partial_stat, meet});                                                                    \
  }

// y = attention of q over the pages and this step's keys, [* sigmoid(gate)]; k and v go into their slots
ENTRY(attention_step_bf16_64_half, 64, 8, 4, false)
ENTRY(attention_step_bf16_128_half, 128, 8, 3, false)
ENTRY(attention_step_bf16_256_half, 256, 8, 2, false)
ENTRY(attention_step_bf16_64_interleaved, 64, 8, 4, true)
ENTRY(attention_step_bf16_128_interleaved, 128, 8, 3, true)
ENTRY(attention_step_bf16_256_interleaved, 256, 8, 2, true)
