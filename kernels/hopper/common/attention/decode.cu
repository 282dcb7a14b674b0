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
// q and P are sums of two bf16, so only K and V are rounded. Keys go by blocks of 16, in splits of consecutive blocks; a split's
// blocks go round its block's warps, each with an online softmax. Partial results are merged over warps, over the blocks of a
// cluster through their shared memory, over clusters through global memory by whoever comes last.
//
// Keys of this step are a block of their own, the last, made in shared memory from k and v; the pool is read before the
// predecessor launch is waited for, since it then holds all keys before the step.
//
// Grid [splits, kv_heads*ceil(heads/kv_heads, 8), rows], clusters along x. Idle splits leave at once. It needs a GPU: mma and clusters have no twin
// on the host.

#include "../../../include/epilogue/act.cuh"
#include "../../../include/mma/bf16.cuh"
#include "../../../include/ptx/sm90.cuh"

namespace {

constexpr int kCols = 8;          // of a tile
constexpr int kNew = 8;           // keys that a sequence brings with a step
constexpr int kPartials = 64;     // tiles × clusters that may meet in global memory
constexpr int kArrived = 64;      // of meet, where counters [kPartials][16] begin
constexpr float kLog2e = 1.4426950408889634f;

struct Args {
  const int32_t *head, *positions, *row_seq, *cu_rows, *block_table, *slots;
  const float *q, *k, *v;          // [rows, heads*head_dim], or [q | gate] per head; [rows, kv_heads*head_dim]
  const float *q_norm, *k_norm;    // [head_dim] or null
  const float* angles;             // [rows, rot]: cos, sin
  uint16_t *k_pool, *v_pool;       // bf16
  float* y;                        // [rows, heads*head_dim]
  int heads, kv_heads, rot, page_size, pages, gated, window, plus_one;
  float eps, scale, softcap;
  float* partial;        // [kPartials, kCols, head_dim] of a cluster's keys: sums of values
  float2* partial_stat;  // [kPartials, kCols]: maximum and sum
  uint32_t* meet;        // counters, 0 between launches
};

template <int HD, int W>
struct Shared {
  static constexpr int kPitch = HD + 32;  // bf16 of a row: neighbours lie in different halves of the banks
  uint16_t q[2][kCols][kPitch];           // high and low parts
  uint16_t k[16][kPitch], v[16][kPitch];  // keys of this step
  float norm[2][HD];                      // of q and of k, to multiply with
  float stat[W][kCols][2];                // maximum and sum of a warp's keys
  float2 mine[kCols];                     // of all of this block's
  float out[kCols][HD];                   // sums of values: of this block
  union {
    struct {  // this step's activations, before the first score
      float q[kCols][HD], k[kNew][HD], v[kNew][HD], angles[kNew][HD];
    } in;
    float warp_out[W][kCols][HD + 4];  // after the last score
  };
  int last;
};
static_assert(sizeof(Shared<64, 8>) == 29768 && sizeof(Shared<128, 4>) == 37704 && sizeof(Shared<256, 4>) == 71496, "manifest: shared");

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  return v;
}

// prepare norms and rotates one head by a warp: each lane gets HD/32 values from dim HD/32*lane.
template <int HD, bool Interleaved>
__device__ __forceinline__ void prepare(float* x, bool normed, const float* norm, float eps, const float* angles, int rot,
                                        float (&out)[HD / 32]) {
  constexpr int N = HD / 32;
  const int lane = threadIdx.x & 31, d0 = N * lane, half = rot / 2;
  float v[N], square = 0;
#pragma unroll
  for (int i = 0; i < N; i++) v[i] = x[d0 + i], square += v[i] * v[i];
  if (normed) {
    const float f = rsqrtf(warp_sum(square) / HD + eps);
#pragma unroll
    for (int i = 0; i < N; i++) x[d0 + i] = v[i] *= f * norm[d0 + i];
    __syncwarp();
  }
#pragma unroll
  for (int i = 0; i < N; i++) {
    const int d = d0 + i;
    out[i] = v[i];
    if (d < rot) {
      const int pair = Interleaved ? d / 2 : d < half ? d : d - half;
      const bool first = Interleaved ? d % 2 == 0 : d < half;
      const float other = x[Interleaved ? d ^ 1 : first ? d + half : d - half];
      const float c = angles[pair], s = angles[half + pair];
      out[i] = first ? v[i] * c - other * s : v[i] * c + other * s;
    }
  }
}

// Fetch brings rows of floats from global memory to shared memory, all loads before the first store.
template <int Max, int Threads>
struct Fetch {
  static constexpr int N = (Max / 4 + Threads - 1) / Threads;
  float4 v[N];
  // at gives the address of four floats by their place among rows of HD.
  template <class At>
  __device__ __forceinline__ void load(int count, At at) {
#pragma unroll
    for (int i = 0; i < N; i++) {
      const int j = 4 * (threadIdx.x + i * Threads);
      if (j < count) v[i] = ptx::load_l2(reinterpret_cast<const float4*>(at(j)));
    }
  }
  __device__ __forceinline__ void store(int count, float* dst) const {
#pragma unroll
    for (int i = 0; i < N; i++) {
      const int j = 4 * (threadIdx.x + i * Threads);
      if (j < count) *reinterpret_cast<float4*>(dst + j) = v[i];
    }
  }
};

template <int HD>
struct Keys {
  uint4 k[HD / 32][2];
};
template <int HD>
struct Values {
  uint4 v[HD / 64][4];
};

template <int HD, int W, bool Interleaved>
__device__ __forceinline__ void attend(const Args& a) {
  ptx::start_successor();
  extern __shared__ __align__(128) unsigned char memory[];
  using S = Shared<HD, W>;
  S& s = *reinterpret_cast<S*>(memory);
  const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
  const int row = blockIdx.z, rows = a.head[0];
  if (row >= rows) return;
  const int group = a.heads / a.kv_heads, tiles = (group + kCols - 1) / kCols;
  const int kv = blockIdx.y / tiles, h0 = kv * group + blockIdx.y % tiles * kCols;  // first query head
  const int per = min(kCols, kv * group + group - h0);                              // heads of the tile
  const int seq = a.row_seq[row], first = a.cu_rows[seq], per_tile = kCols / per;
  if ((row - first) % per_tile != 0) return;
  const int n = min(per_tile, a.cu_rows[seq + 1] - row);  // rows of the tile
  const int cols = n * per, fresh = row + n - first;      // keys of this step that it may see
  const int p0 = a.positions[first], lowest = a.window > 0 ? max(0, a.positions[row] - a.window + 1) : 0;
  const int b0 = lowest / 16, blocks = max(0, (p0 + 15) / 16 - b0) + 1;  // the last one holds this step's keys

  const int cluster = ptx::cluster_size(), rank = ptx::cluster_rank();
  int splits = min((blocks + W - 1) / W, int(gridDim.x));
  const int tile = blockIdx.z * gridDim.y + blockIdx.y, clusters_all = gridDim.x / cluster;
  if (gridDim.z * gridDim.y * clusters_all > kPartials) splits = min(splits, cluster);
  const int clusters = (splits + cluster - 1) / cluster;
  if (int(blockIdx.x) / cluster >= clusters || (splits == 1 && rank > 0)) return;
  const int lo = blockIdx.x < splits ? int64_t(blockIdx.x) * blocks / splits : 0;
  const int hi = blockIdx.x < splits ? int64_t(blockIdx.x + 1) * blocks / splits : 0;
  const bool newest = blockIdx.x == splits - 1;
  const int old = newest ? hi - 1 : hi;  // blocks of the pool: [lo, old)

  const int64_t token = int64_t(a.kv_heads) * HD;
  const int32_t* table = a.block_table + int64_t(seq) * a.pages;
  Keys<HD> key;
  Values<HD> value;
  auto base = [&](int b) {
    const int pos = (b0 + b) * 16;
    return (int64_t(table[pos / a.page_size]) * a.page_size + pos % a.page_size) * token + int64_t(kv) * HD;
  };
  auto load_keys = [&](int64_t at) {
    const uint16_t* p = a.k_pool + at + g * token + t * 8;
#pragma unroll
    for (int j = 0; j < HD / 32; j++) {
      key.k[j][0] = ptx::load_stream(p + 32 * j);
      key.k[j][1] = ptx::load_stream(p + 8 * token + 32 * j);
    }
  };
  auto load_values = [&](int64_t at) {
    const uint16_t* p = a.v_pool + at + 2 * t * token + g * 8;
#pragma unroll
    for (int f = 0; f < HD / 64; f++)
#pragma unroll
      for (int i = 0; i < 4; i++) value.v[f][i] = ptx::load_stream(p + ((i & 1) + (i >> 1) * 8) * token + 64 * f);
  };
  int b = lo + warp;
  if (b < old) {
    const int64_t at = base(b);
    load_keys(at);
    load_values(at);
  }
  for (int d = tid; d < HD; d += 32 * W) {
    if (a.q_norm) s.norm[0][d] = float(a.plus_one) + a.q_norm[d];
    if (a.k_norm) s.norm[1][d] = float(a.plus_one) + a.k_norm[d];
  }
  ptx::wait_for_predecessor();

  const int64_t wide = HD * (1 + a.gated);  // of a query head
  const int mine = newest ? fresh * HD : 0;
  Fetch<kCols * HD, 32 * W> fq;
  Fetch<kNew * HD, 32 * W> fk, fv, fa;
  fq.load(cols * HD, [&](int i) { return a.q + (int64_t(row + i / HD / per) * a.heads + h0 + i / HD % per) * wide + i % HD; });
  fk.load(mine, [&](int i) { return a.k + (int64_t(first + i / HD) * a.kv_heads + kv) * HD + i % HD; });
  fv.load(mine, [&](int i) { return a.v + (int64_t(first + i / HD) * a.kv_heads + kv) * HD + i % HD; });
  fa.load(fresh * a.rot, [&](int i) { return a.angles + int64_t(first) * a.rot + i; });
  fq.store(cols * HD, s.in.q[0]);
  fk.store(mine, s.in.k[0]);
  fv.store(mine, s.in.v[0]);
  fa.store(fresh * a.rot, s.in.angles[0]);
  __syncthreads();

  const bool capped = a.softcap > 0;
  const int d0 = HD / 32 * lane;
  for (int c = warp; c < cols; c += W) {  // column c is head c%per of row c/per
    float x[HD / 32];
    prepare<HD, Interleaved>(s.in.q[c], a.q_norm, s.norm[0], a.eps, s.in.angles[0] + (row - first + c / per) * a.rot, a.rot, x);
    const float f = capped ? a.scale : a.scale * kLog2e;
#pragma unroll
    for (int i = 0; i < HD / 32; i += 2) {
      uint32_t high, low;
      mma::split(f * x[i], f * x[i + 1], high, low);
      *reinterpret_cast<uint32_t*>(&s.q[0][c][d0 + i]) = high;
      *reinterpret_cast<uint32_t*>(&s.q[1][c][d0 + i]) = low;
    }
  }
  for (int j = W - 1 - warp; newest && j < 16; j += W) {
    if (j >= fresh) {  // weight 0 does not cancel what may lie here
#pragma unroll
      for (int i = 0; i < HD / 32; i += 2) *reinterpret_cast<uint32_t*>(&s.v[j][d0 + i]) = 0;
      continue;
    }
    const int64_t out = int64_t(a.slots[first + j]) * token + int64_t(kv) * HD;
    float x[HD / 32];
    prepare<HD, Interleaved>(s.in.k[j], a.k_norm, s.norm[1], a.eps, s.in.angles[0] + j * a.rot, a.rot, x);
    const bool append = first + j >= row && blockIdx.y % tiles == 0;
#pragma unroll
    for (int i = 0; i < HD / 32; i += 2) {
      const uint32_t kk = mma::pack(x[i], x[i + 1]), vv = mma::pack(s.in.v[j][d0 + i], s.in.v[j][d0 + i + 1]);
      *reinterpret_cast<uint32_t*>(&s.k[j][d0 + i]) = kk;
      *reinterpret_cast<uint32_t*>(&s.v[j][d0 + i]) = vv;
      if (append) {
        *reinterpret_cast<uint32_t*>(a.k_pool + out + d0 + i) = kk;
        *reinterpret_cast<uint32_t*>(a.v_pool + out + d0 + i) = vv;
      }
    }
  }
  __syncthreads();

  float m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
  float o[HD / 16][4] = {};
  int seen[2];  // position of the rows of this lane's two columns; -1 none
#pragma unroll
  for (int c = 0; c < 2; c++) seen[c] = 2 * t + c < cols ? a.positions[row + (2 * t + c) / per] : -1;
  for (; b < hi; b += W) {
    const bool here = b == old;  // this step's keys
    const int pos = here ? p0 : (b0 + b) * 16, end = here ? fresh : p0 - pos;  // keys that exist: [0, end) of 16
    if (here) {
#pragma unroll
      for (int j = 0; j < HD / 32; j++) {
        key.k[j][0] = *reinterpret_cast<const uint4*>(&s.k[g][32 * j + 8 * t]);
        key.k[j][1] = make_uint4(0, 0, 0, 0);
      }
#pragma unroll
      for (int f = 0; f < HD / 64; f++)
#pragma unroll
        for (int i = 0; i < 4; i++) value.v[f][i] = *reinterpret_cast<const uint4*>(&s.v[2 * t + (i & 1) + (i >> 1) * 8][64 * f + 8 * g]);
    }
    float high[4] = {}, low[4] = {};
#pragma unroll
    for (int j = 0; j < HD / 32; j++) {
      const uint4 qh = *reinterpret_cast<const uint4*>(&s.q[0][g][32 * j + 8 * t]), ql = *reinterpret_cast<const uint4*>(&s.q[1][g][32 * j + 8 * t]);
      const uint4 k0 = key.k[j][0], k1 = key.k[j][1];
      mma::bf16(high, k0.x, k1.x, k0.y, k1.y, qh.x, qh.y);
      mma::bf16(low, k0.x, k1.x, k0.y, k1.y, ql.x, ql.y);
      mma::bf16(high, k0.z, k1.z, k0.w, k1.w, qh.z, qh.w);
      mma::bf16(low, k0.z, k1.z, k0.w, k1.w, ql.z, ql.w);
    }
    const bool more = b + W < old;
    const int64_t next = more ? base(b + W) : 0;
    if (more) load_keys(next);

    float p[4], scale[2];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int kk = g + (i >> 1) * 8;
      float x = high[i] + low[i];
      if (capped) x = a.softcap * tanhf(x / a.softcap) * kLog2e;
      const bool sees = kk < end && pos + kk <= seen[i & 1] && (a.window <= 0 || pos + kk > seen[i & 1] - a.window);
      p[i] = sees ? x : -INFINITY;
    }
#pragma unroll
    for (int c = 0; c < 2; c++) {
      float top = fmaxf(p[c], p[c + 2]);
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 4));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 8));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 16));
      top = fmaxf(top, m[c]);
      const float at = top == -INFINITY ? 0 : top;  // no key yet
      scale[c] = exp2f(m[c] - at);
      m[c] = top;
      p[c] = exp2f(p[c] - at);
      p[c + 2] = exp2f(p[c + 2] - at);
      l[c] = l[c] * scale[c] + (p[c] + p[c + 2]);
    }
    uint32_t ph[2], pl[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      mma::split(p[2 * i], p[2 * i + 1], ph[i], pl[i]);
      ph[i] = mma::transpose(ph[i]);
      pl[i] = mma::transpose(pl[i]);
    }
    if (!here && end < 16) {  // a page's unwritten end may hold anything
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (2 * t + (i & 1) + (i >> 1) * 8 >= end)
#pragma unroll
          for (int f = 0; f < HD / 64; f++) value.v[f][i] = make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int f = 0; f < HD / 64; f++) {
      const uint4 v0 = value.v[f][0], v1 = value.v[f][1], v2 = value.v[f][2], v3 = value.v[f][3];
      const uint32_t w0[4] = {v0.x, v0.y, v0.z, v0.w}, w1[4] = {v1.x, v1.y, v1.z, v1.w};
      const uint32_t w2[4] = {v2.x, v2.y, v2.z, v2.w}, w3[4] = {v3.x, v3.y, v3.z, v3.w};
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
    if (more) load_values(next);
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
  if (tid < kCols) {
    float top = -INFINITY, sum = 0;
    for (int w = 0; w < W; w++) top = fmaxf(top, s.stat[w][tid][0]);
    for (int w = 0; w < W; w++) {
      const float f = top == -INFINITY ? 0 : exp2f(s.stat[w][tid][0] - top);
      sum += f * s.stat[w][tid][1];
      s.stat[w][tid][0] = f;
    }
    s.mine[tid] = make_float2(top, sum);
  }
  __syncthreads();
  const int parts = splits == 1 ? 1 : cluster, all = cols * HD;
  auto store = [&](int c, int d, float v) {
    const int r = row + c / per, h = h0 + c % per;
    const int64_t at = (int64_t(r) * a.heads + h) * HD + d;
    if (a.gated) v *= act::sigmoid::of(ptx::load_l2(a.q + (int64_t(r) * a.heads + h) * HD * 2 + HD + d));
    a.y[at] = v;
  };
  for (int i = tid; i < all; i += 32 * W) {
    const int c = i / HD, d = i % HD;
    float v = 0;
#pragma unroll
    for (int w = 0; w < W; w++) v += s.stat[w][c][0] * s.warp_out[w][c][d];
    if (parts == 1) store(c, d, v / s.mine[c].y);
    else s.out[c][d] = v;
  }
  if (parts == 1) return;

  // Over the cluster: each block takes a part of the outputs.
  ptx::cluster_sync();
  const int live = min(cluster, splits - int(blockIdx.x) / cluster * cluster);
  const int at = tile * clusters_all + blockIdx.x / cluster;
  const int from = rank * all / cluster, to = (rank + 1) * all / cluster;
  for (int i = from + tid; i < to; i += 32 * W) {
    const int c = i / HD, d = i % HD;
    const uint32_t stat = ptx::shared_address(&s.mine[c]), out = ptx::shared_address(&s.out[c][d]);
    float top = -INFINITY, sum = 0, v = 0;
    for (int k = 0; k < live; k++) top = fmaxf(top, ptx::cluster_load(ptx::cluster_map(stat, k)));
    for (int k = 0; k < live; k++) {
      const float f = exp2f(ptx::cluster_load(ptx::cluster_map(stat, k)) - top);
      sum += f * ptx::cluster_load(ptx::cluster_map(stat + 4, k));
      v += f * ptx::cluster_load(ptx::cluster_map(out, k));
    }
    if (clusters == 1) {
      store(c, d, v / sum);
    } else {
      a.partial[(at * kCols + c) * HD + d] = v;
      a.partial_stat[at * kCols + c] = make_float2(top, sum);
    }
  }
  ptx::cluster_sync();  // no block leaves while another reads from it
  if (clusters == 1) return;

  // Over clusters: whoever completes a part of the outputs.
  __threadfence();
  __syncthreads();
  uint32_t* arrived = a.meet + kArrived + tile * 16 + rank;
  if (tid == 0) s.last = ptx::add_release(arrived, 1) == uint32_t(clusters - 1);
  __syncthreads();
  if (!s.last) return;
  for (int i = from + tid; i < to; i += 32 * W) {
    const int c = i / HD, d = i % HD, first_at = tile * clusters_all;
    float top = -INFINITY, sum = 0, v = 0;
    for (int k = 0; k < clusters; k++) top = fmaxf(top, ptx::load_l2(&a.partial_stat[(first_at + k) * kCols + c].x));
    for (int k = 0; k < clusters; k++) {
      const float f = exp2f(ptx::load_l2(&a.partial_stat[(first_at + k) * kCols + c].x) - top);
      sum += f * ptx::load_l2(&a.partial_stat[(first_at + k) * kCols + c].y);
      v += f * ptx::load_l2(&a.partial[((first_at + k) * kCols + c) * HD + d]);
    }
    store(c, d, v / sum);
  }
  if (tid == 0) *arrived = 0;
}

}  // namespace

#define ENTRY(name, HD, W, INTERLEAVED)                                                                                              \
  extern "C" __global__ void __launch_bounds__(32 * W, 1) name(                                                                      \
      const int32_t* head, const int32_t* positions, const int32_t* row_seq, const int32_t* cu_rows, const int32_t* block_table,     \
      const int32_t* slots, const float* q, const float* k, const float* v, const float* q_norm, const float* k_norm,                \
      const float* angles, uint16_t* k_pool, uint16_t* v_pool, float* y, int32_t heads, int32_t kv_heads, int32_t rot,               \
      int32_t page_size, int32_t pages, int32_t gated, int32_t window, int32_t plus_one, float eps, float scale, float softcap,      \
      float* partial, float2* partial_stat, uint32_t* meet) {                                                                        \
    attend<HD, W, INTERLEAVED>({head, positions, row_seq, cu_rows, block_table, slots, q, k, v, q_norm, k_norm, angles, k_pool,      \
                                v_pool, y, heads, kv_heads, rot, page_size, pages, gated, window, plus_one, eps, scale, softcap,     \
                                partial, partial_stat, meet});                                                                       \
  }

// y = attention of q over the pages and this step's keys, [* sigmoid(gate)]; k and v go into their slots
ENTRY(attention_step_bf16_64_half, 64, 8, false)
ENTRY(attention_step_bf16_128_half, 128, 4, false)
ENTRY(attention_step_bf16_256_half, 256, 4, false)
ENTRY(attention_step_bf16_64_interleaved, 64, 8, true)
ENTRY(attention_step_bf16_128_interleaved, 128, 4, true)
ENTRY(attention_step_bf16_256_interleaved, 256, 4, true)
