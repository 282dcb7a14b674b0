// SPDX-License-Identifier: MIT OR Apache-2.0
// Family recurrent, many rows: the state space recurrence of Mamba-2 by chunks of 64 rows (cuda/common/recurrent/ssd_chunks.cu has the
// formulas), with products on tensor cores, of operands that are sums of two bf16: hi·hi + lo·hi + hi·lo.
//
//	ssd_parts   C Bᵀ of a group in float32, C and B as fragments, t and G of its heads. Grid: groups, rows/64 + seqs; 256 threads
//	ssd_tiles   chunk after chunk. Grid: head_dim/64, heads, seqs; 256 threads
//
// All is transposed, so that S is a sum and a left operand without leaving the registers. Of Sᵀ [64, 128] warp w has
//
//	             state_dim 0-63   64-127
//	columns 16(w%4) …    w < 4    w >= 4      of head_dim
//
// and of Yᵀ [64, 64 rows] it ends every other tile of 8 rows; warps w and w+4 exchange what their halves of state_dim give. Values of a
// fragment that lie along 32 (of state_dim or of rows) are a lane t's 8q+2t and 8q+2t+1, q < 4, as sums have them: the first four feed one
// mma, the others the next. head_dim is a multiple of 4, state_dim at most 128; what it lacks of 128 is zero.

#include "../../../include/mma/bf16.cuh"
#include "../../../include/ptx/cp_async.cuh"
#include "../../../include/ssd.cuh"
#include "../../../include/step.cuh"

namespace {

using namespace ssd;
constexpr int kColumns = 64, kWideColumns = kColumns + 4;

struct alignas(16) Fragment {
  uint32_t at[4];
};
// Operand is what a lane has of two parts of a fragment.
struct Operand {
  Fragment hi[32], lo[32];
};
// Made is what a group's heads share of a chunk.
struct Made {
  Operand c[8][4];   // [rows by 8][state_dim by 32]
  Operand b[16][2];  // [state_dim by 8][rows by 32]
  float cb[kRows * kRows];
};

// put splits a lane's eight values.
__device__ __forceinline__ void put(Operand& to, int lane, const float (&v)[8]) {
  Fragment hi, lo;
#pragma unroll
  for (int i = 0; i < 4; i++) mma::split(v[2 * i], v[2 * i + 1], hi.at[i], lo.at[i]);
  to.hi[lane] = hi, to.lo[lane] = lo;
}

// Left are 16 rows and 32 values along: of each of two mma four registers.
struct Left {
  uint32_t hi[2][4], lo[2][4];

  // set splits values of row g and row g+8.
  __device__ __forceinline__ void set(const float (&top)[8], const float (&bottom)[8]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      mma::split(top[2 * i], top[2 * i + 1], hi[i / 2][i % 2 * 2], lo[i / 2][i % 2 * 2]);
      mma::split(bottom[2 * i], bottom[2 * i + 1], hi[i / 2][i % 2 * 2 + 1], lo[i / 2][i % 2 * 2 + 1]);
    }
  }
};

__device__ __forceinline__ void product(float (&sum)[4], const Left& a, const Operand& b, int lane) {
  const Fragment hi = b.hi[lane], lo = b.lo[lane];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    mma::bf16(sum, a.lo[i][0], a.lo[i][1], a.lo[i][2], a.lo[i][3], hi.at[2 * i], hi.at[2 * i + 1]);
    mma::bf16(sum, a.hi[i][0], a.hi[i][1], a.hi[i][2], a.hi[i][3], lo.at[2 * i], lo.at[2 * i + 1]);
    mma::bf16(sum, a.hi[i][0], a.hi[i][1], a.hi[i][2], a.hi[i][3], hi.at[2 * i], hi.at[2 * i + 1]);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256) ssd_parts(const int32_t* __restrict__ seqs,     // [1] of this step
                                                            const float* __restrict__ xbc,        // [rows, heads*head_dim + 2*groups*state_dim] x, B and C
                                                            const float* __restrict__ dt,         // [rows, heads]
                                                            const float* __restrict__ a_log,      // [heads]
                                                            const float* __restrict__ dt_bias,    // [heads]
                                                            const int32_t* __restrict__ cu_rows,  // [seqs+1]
                                                            Made* __restrict__ made,              // [places, groups]
                                                            Gates* __restrict__ gates_,           // [places, heads]
                                                            int32_t heads, int32_t groups, int32_t head_dim, int32_t state_dim) {
  begin();
  const Dims a = {heads, groups, head_dim, state_dim};
  const int group = blockIdx.x, place = blockIdx.y, seq = chunks::sequence_at<kRows>(place, cu_rows, *seqs), lane = lane_id();
  const int first = (place - cu_rows[seq] / kRows - seq) * kRows, from = cu_rows[seq] + first, rows = min(kRows, cu_rows[seq + 1] - from);
  if (rows <= 0) return;
  __shared__ float c[kRows][kWidePart], b[kRows][kWidePart];
  const int per = heads / groups;
  for (int i = warp_id(); i < per; i += 8) {
    const int h = group * per + i;
    gates(gates_[int64_t(place) * heads + h], dt + int64_t(from) * heads + h, heads, rows, -expf(a_log[h]), dt_bias[h]);
  }
  const float* all = xbc + int64_t(from) * a.width();
  Made& to = made[int64_t(place) * groups + group];
  const int row = threadIdx.x / 16, column = threadIdx.x % 16;  // and every 16th from there
  float sum[4][4] = {};
  Part part;
  part.fetch(all, a, group, rows, 0);
#pragma unroll
  for (int k = 0; k < 2; k++) {
    __syncthreads();
    part.put(c, b, nullptr);
    __syncthreads();
    if (k == 0) part.fetch(all, a, group, rows, kPart);
    if (row < rows) multiply(sum, c, b, row, column);
#pragma unroll
    for (int i = 0; i < 2; i++) {  // a warp has tiles 2w and 2w+1 of 16
      const int tile = 2 * warp_id() + i, eight = tile / 2, half = tile % 2, g = lane / 4, t = lane % 4;
      float x[8], y[8];
#pragma unroll
      for (int e = 0; e < 8; e++) {
        const int at = 32 * half + e / 2 * 8 + 2 * t + e % 2;
        x[e] = c[8 * eight + g][at], y[e] = b[at][8 * eight + g];
      }
      put(to.c[eight][2 * k + half], lane, x);
      put(to.b[8 * k + eight][half], lane, y);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) to.cb[(row + 16 * i) * kRows + column + 16 * j] = sum[i][j];
}

namespace {

// Stage is a chunk in shared memory.
struct Stage {
  Made made;
  float x[kRows][kWideColumns];
  Gates g;
};
struct Shared {
  Stage stage[2];
  Operand m[8][2];  // M, [rows by 8][rows by 32]
  float keep[kRows], rest[kRows];  // exp(G), exp(Gn - G)
};
static_assert(sizeof(Shared) == 217088, "as the manifest has it");

}  // namespace

extern "C" __global__ void __launch_bounds__(256) ssd_tiles(const int32_t* __restrict__ seqs,        // [1] of this step
                                                            const float* __restrict__ xbc,           // [rows, heads*head_dim + 2*groups*state_dim] x, B and C
                                                            const float* __restrict__ d,             // [heads]
                                                            const Made* __restrict__ made,           // [places, groups]
                                                            const Gates* __restrict__ gates_,        // [places, heads]
                                                            float* __restrict__ state,               // [slots, heads, head_dim, state_dim]
                                                            const int32_t* __restrict__ cu_rows,     // [seqs+1]
                                                            const int32_t* __restrict__ state_slot,  // [seqs]
                                                            const int32_t* __restrict__ fresh,       // [seqs]
                                                            float* __restrict__ y,                   // [rows, heads*head_dim]
                                                            int32_t heads, int32_t groups, int32_t head_dim, int32_t state_dim) {
  begin();
  extern __shared__ __align__(16) uint8_t shared[];
  Shared& s = *reinterpret_cast<Shared*>(shared);
  const Dims a = {heads, groups, head_dim, state_dim};
  const int seq = blockIdx.z, h = blockIdx.y, group = h / (heads / groups), tid = threadIdx.x, lane = lane_id(), g = lane / 4, t = lane % 4;
  if (seq >= *seqs) return;
  const int from = cu_rows[seq], num = cu_rows[seq + 1] - from, column = blockIdx.x * kColumns, columns = min(kColumns, head_dim - column);
  if (num == 0) return;
  const int w = warp_id() % 4 * 16 + g, half = warp_id() / 4;  // columns w and w+8
  float* home = state + ((int64_t(state_slot[seq]) * heads + h) * head_dim + column) * state_dim + half * 64;
  const auto there = [&](int n, int i) { return w + 8 * i < columns && half * 64 + 8 * n < state_dim && half * 64 + 8 * n + 2 * t < state_dim; };
  float st[8][4];  // Sᵀ by 8 of state_dim
#pragma unroll
  for (int n = 0; n < 8; n++)
#pragma unroll
    for (int i = 0; i < 2; i++) {
      vec<float, 2> v = {};
      if (!fresh[seq] && there(n, i)) v = load<2>(home + int64_t(w + 8 * i) * state_dim + 8 * n + 2 * t);
      st[n][2 * i] = v.at[0], st[n][2 * i + 1] = v.at[1];
    }
  const float* all = xbc + int64_t(from) * a.width() + h * head_dim + column;
  const int first = from / kRows + seq;
  const auto fetch = [&](int chunk) {
    Stage& to = s.stage[chunk % 2];
    const uint4* shares = reinterpret_cast<const uint4*>(made + int64_t(first + chunk) * groups + group);
    for (int i = tid; i < int(sizeof(Made) / 16); i += 256) ptx::cp_async<16>(reinterpret_cast<uint4*>(&to.made) + i, shares + i, true);
    for (int i = tid; i < kRows * 16; i += 256) {
      const int r = i / 16, c = i % 16 * 4, row = chunk * kRows + r;
      const bool is = row < num && c < columns;
      ptx::cp_async<16>(&to.x[r][c], all + (is ? int64_t(row) * a.width() + c : 0), is);
    }
    const uint4* own = reinterpret_cast<const uint4*>(gates_ + int64_t(first + chunk) * heads + h);
    if (tid < int(sizeof(Gates) / 16)) ptx::cp_async<16>(reinterpret_cast<uint4*>(&to.g) + tid, own + tid, true);
  };
  fetch(0);
  const float direct = d[h];
  for (int chunk = 0; chunk * kRows < num; chunk++) {
    Stage& now = s.stage[chunk % 2];
    const int rows = min(kRows, num - chunk * kRows);
    ptx::cp_async_wait();
    __syncthreads();  // the chunk is there, and the one before is done with
    if ((chunk + 1) * kRows < num) fetch(chunk + 1);
    if (tid < kRows) {
      s.keep[tid] = expf(now.g.high[tid] + now.g.low[tid]);
      s.rest[tid] = expf(now.g.high[kRows - 1] - now.g.high[tid] + (now.g.low[kRows - 1] - now.g.low[tid]));
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int tile = 2 * warp_id() + i, eight = tile / 2, by = tile % 2, r = 8 * eight + g;
      if (32 * by > 8 * eight + 7) continue;
      const float high = now.g.high[r], low = now.g.low[r];
      float m[8];
#pragma unroll
      for (int e = 0; e < 8; e++) {
        const int j = 32 * by + e / 2 * 8 + 2 * t + e % 2;
        m[e] = j <= r ? now.made.cb[r * kRows + j] * expf(high - now.g.high[j] + (low - now.g.low[j])) : 0.0f;
      }
      put(s.m[eight][by], lane, m);
    }
    __syncthreads();

    float given[8][4] = {};  // Sᵀ Cᵀ over this warp's half, by 8 rows
#pragma unroll
    for (int k = 0; k < 2; k++) {
      float top[8], bottom[8];
#pragma unroll
      for (int e = 0; e < 8; e++) top[e] = st[4 * k + e / 2][e % 2], bottom[e] = st[4 * k + e / 2][2 + e % 2];
      Left left;
      left.set(top, bottom);
#pragma unroll
      for (int n = 0; n < 8; n++)
        if (8 * n < rows) product(given[n], left, now.made.c[n][2 * half + k], lane);
    }
    float4* swap = reinterpret_cast<float4*>(now.made.cb);  // [warp][4][32], M is made
#pragma unroll
    for (int n = 0; n < 4; n++) {
      const float* v = given[2 * n + 1];
      const float* u = given[2 * n];
      swap[(warp_id() * 4 + n) * 32 + lane] = half ? make_float4(u[0], u[1], u[2], u[3]) : make_float4(v[0], v[1], v[2], v[3]);
    }
    const float last = s.keep[kRows - 1];
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) st[n][i] *= last;
    float own[4][4] = {};
#pragma unroll
    for (int by = 0; by < 2; by++) {
      if (32 * by >= rows) break;
      float top[8], bottom[8];
#pragma unroll
      for (int e = 0; e < 8; e++) {
        const int j = 32 * by + e / 2 * 8 + 2 * t + e % 2;
        top[e] = now.x[j][w] * now.g.t[j], bottom[e] = now.x[j][w + 8] * now.g.t[j];
      }
      Left left;
      left.set(top, bottom);
#pragma unroll
      for (int n = 0; n < 4; n++)
        if (32 * by <= 16 * n + 8 * half + 7) product(own[n], left, s.m[2 * n + half][by], lane);
#pragma unroll
      for (int e = 0; e < 8; e++) {
        const float rest = s.rest[32 * by + e / 2 * 8 + 2 * t + e % 2];
        top[e] *= rest, bottom[e] *= rest;
      }
      left.set(top, bottom);
#pragma unroll
      for (int n = 0; n < 8; n++) product(st[n], left, now.made.b[8 * half + n][by], lane);
    }
    __syncthreads();  // what the other half gives is there
#pragma unroll
    for (int n = 0; n < 4; n++) {
      const float4 other = swap[((warp_id() ^ 4) * 4 + n) * 32 + lane];
      const float v[4] = {other.x, other.y, other.z, other.w};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int r = 16 * n + 8 * half + 2 * t + i % 2, c = w + i / 2 * 8;
        const float mine = half ? given[2 * n + 1][i] : given[2 * n][i];
        if (r < rows && c < columns)
          y[(int64_t(from) + chunk * kRows + r) * a.inner() + h * head_dim + column + c] = fmaf(direct, now.x[r][c], fmaf(s.keep[r], mine + v[i], own[n][i]));
      }
    }
  }
#pragma unroll
  for (int n = 0; n < 8; n++)
#pragma unroll
    for (int i = 0; i < 2; i++)
      if (there(n, i)) store(home + int64_t(w + 8 * i) * state_dim + 8 * n + 2 * t, vec<float, 2>{{st[n][2 * i], st[n][2 * i + 1]}});
}
