// SPDX-License-Identifier: MIT OR Apache-2.0
// Attention of 1 to 8 rows: what a launch is given, and how rows are parted into items for blocks of threads (see decode.cu).
#pragma once

constexpr int W = 8;           // warps
constexpr int kBlocks = 2;     // of a cluster
constexpr int kCols = 8;       // of a tile
constexpr int kNew = 8;        // keys that a sequence brings with a step
constexpr int kRows = 8;       // of a step
constexpr int kMost = 80;      // clusters, where they share a tile
constexpr int kArrived = 64;   // of meet, where counters begin: one a block of a cluster, for each tile
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
  float2* partial_stat;  // [rows, kMost, head_dim*2, 2]: maximum and sum of a fragment's two columns
  uint32_t* meet;        // counters, 0 between launches
};

// Row is the tiles of a row, one for each KV head and 8 of its query heads.
struct Row {
  int rows, first, fresh;  // rows of a tile, 0: the row is of a tile before it; the sequence's first; keys of this step
  int seq, p0, b0, blocks;  // the first key of this step; the first block, and how many
  int parts, base, items;  // of a tile; the first of the row's items, and how many
};

// Item is a part of a tile: blocks [lo, hi), of KV head kv. Query heads from h0 on are its columns, per of each row; c / per is c * inverse / 64.
struct Item {
  int row, kind, kv, part, lo, hi;
  int h0, per;
  unsigned inverse;
};

// table works out the tiles of all rows, a lane each; what it reads comes at once. Of cluster C, by all threads of a block.
template <int C, class S>
__device__ __forceinline__ void table(const Args& a, S& s, int tid) {
  if (tid < 32) {
    const int row = tid, rows = a.head[0], mine = min(row, a.most_rows - 1);
    const int seq = a.row_seq[mine], position = a.positions[mine], cu = a.cu_rows[min(row, a.most_seqs)], slot = a.slots[mine];
    const int group = a.heads / a.kv_heads, tiles = (group + kCols - 1) / kCols, kinds = a.kv_heads * tiles, per_tile = max(1, kCols / group);
    if (tid == 0) s.group = group, s.tiles = tiles, s.kinds = kinds;
    Row r = {};
    r.seq = seq, r.first = __shfl_sync(~0u, cu, seq);
    const int end = __shfl_sync(~0u, cu, seq + 1);
    r.p0 = __shfl_sync(~0u, position, r.first);
    if (row < min(rows, kRows) && (row - r.first) % per_tile == 0) {
      r.rows = min(per_tile, end - row), r.fresh = row + r.rows - r.first;
      const int lowest = a.window > 0 ? max(0, position - a.window + 1) : 0;
      r.b0 = lowest / 16, r.blocks = (r.p0 + r.fresh + 15) / 16 - r.b0;
      const bool few = a.most_rows <= 4;
      r.parts = r.blocks <= W * (few ? 1 : 2) ? 1 : C * max(1, min(r.blocks / (W * C * (few ? 1 : 16)), min(int(gridDim.x) / C, kMost) / kinds));
      r.items = r.parts * kinds;
    }
    const int big = r.parts > 1 ? r.items : 0;
    int sum = big, small = r.items - big;
#pragma unroll
    for (int d = 1; d < kRows; d *= 2) {
      const int v = __shfl_up_sync(~0u, sum, d), u = __shfl_up_sync(~0u, small, d);
      if (row >= d) sum += v, small += u;
    }
    const int all = __shfl_sync(~0u, sum, kRows - 1);
    r.base = big ? sum - big : all + small - r.items;
    if (row < kRows) s.row[row] = r, s.position[row] = position, s.slot[row] = slot;
    if (row == kRows - 1) s.shared = all, s.items = all + small;
  }
  __syncthreads();
}

// item_of is item i, without its heads.
template <class S>
__device__ __forceinline__ Item item_of(const Args& a, const S& s, int i) {
  Item x;
  x.row = 0;
#pragma unroll 1
  for (int r = 1; r < min(kRows, a.most_rows); r++)
    if (unsigned(i - s.row[r].base) < unsigned(s.row[r].items)) x.row = r;
  const Row& r = s.row[x.row];
  const unsigned in = i - r.base, parts = r.parts, blocks = r.blocks;
  x.kind = in / parts, x.part = in - x.kind * parts, x.kv = x.kind / s.tiles;
  x.lo = x.part * blocks / parts, x.hi = (x.part + 1) * blocks / parts;
  return x;
}
// heads_of completes an item that the block begins.
template <class S>
__device__ __forceinline__ void heads_of(const S& s, Item& x) {
  const int first = (x.kind - x.kv * s.tiles) * kCols;
  x.h0 = x.kv * s.group + first, x.per = min(kCols, s.group - first), x.inverse = (63 + x.per) / unsigned(x.per);
}

// head_of is the place of column c among all heads of rows.
__device__ __forceinline__ int head_of(const Args& a, const Item& x, int c) {
  const int i = c * x.inverse / 64;
  return (x.row + i) * a.heads + x.h0 + c - i * x.per;
}
