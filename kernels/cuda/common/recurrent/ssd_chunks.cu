// SPDX-License-Identifier: MIT OR Apache-2.0
// Family recurrent, many rows: the state space recurrence of Mamba-2 (ssd.cu) by chunks of 64 rows of a sequence.
//
// With S the state before a chunk, [state_dim, head_dim], t = softplus(dt + dt_bias), g = -exp(a_log) t and G row i's sum of g since
// then, the rows of a chunk are
//
//	yi = exp(Gi) Sᵀci + Σ_{j≤i} exp(Gi - Gj) (ci·bj) tj xj + d xi        Y = exp(G) C S + M (t X) + d X
//	S' = exp(Gn) S + Σ_j exp(Gn - Gj) tj bj xjᵀ
//
// and what knows nothing of S is made for all chunks beside each other:
//
//	ssd_chunks   C Bᵀ of a group, t and G of its heads. Grid: groups, rows/64 + seqs; 256 threads
//	ssd_scan     chunk after chunk: M, Y and S'. Grid: head_dim/32, heads, seqs; 256 threads. A block has 32 columns of S in
//	             shared memory; C and B pass by 64 of state_dim at a time
//
// Loops end with a chunk's rows; a sequence of one row still costs several times what ssd.cu takes. G is a sum of two floats: a difference
// of two of them is as exact as it is small, whatever decayed before in the chunk.

#include "ssd.cuh"
#include "step.cuh"

namespace {

using namespace ssd;
constexpr int kColumns = 32, kWideColumns = kColumns + 4;  // of S, of a block of ssd_scan

}  // namespace

extern "C" __global__ void __launch_bounds__(256, 2) ssd_chunks(const int32_t* __restrict__ seqs,     // [1] of this step
               const float* __restrict__ xbc,        // [rows, heads*head_dim + 2*groups*state_dim] x, B and C
               const float* __restrict__ dt,         // [rows, heads]
               const float* __restrict__ a_log,      // [heads]
               const float* __restrict__ dt_bias,    // [heads]
               const int32_t* __restrict__ cu_rows,  // [seqs+1]
               float* __restrict__ cb,               // [places, groups, 64, 64] row i and column j: ci·bj
               Gates* __restrict__ made,             // [places, heads]
               int32_t heads, int32_t groups, int32_t head_dim, int32_t state_dim) {
  begin();
  const Dims a = {heads, groups, head_dim, state_dim};
  const int group = blockIdx.x, place = blockIdx.y, seq = chunks::sequence_at<kRows>(place, cu_rows, *seqs);
  const int first = (place - cu_rows[seq] / kRows - seq) * kRows, from = cu_rows[seq] + first, rows = min(kRows, cu_rows[seq + 1] - from);
  if (rows <= 0) return;
  __shared__ float c[kRows][kWidePart], b[kRows][kWidePart];
  const int per = heads / groups;
  for (int i = warp_id(); i < per; i += 8) {
    const int h = group * per + i;
    gates(made[int64_t(place) * heads + h], dt + int64_t(from) * heads + h, heads, rows, -expf(a_log[h]), dt_bias[h]);
  }
  const float* all = xbc + int64_t(from) * a.width();
  const int row = threadIdx.x / 16, column = threadIdx.x % 16;  // and every 16th from there
  float sum[4][4] = {};
  Part part;
  part.fetch(all, a, group, rows, 0);
  for (int k = 0; k < state_dim; k += kPart) {
    __syncthreads();
    part.put(c, b, nullptr);
    __syncthreads();
    part.fetch(all, a, group, rows, k + kPart);
    if (row < rows) multiply(sum, c, b, row, column);
  }
  float* out = cb + (int64_t(place) * groups + group) * kRows * kRows;
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) out[(row + 16 * i) * kRows + column + 16 * j] = sum[i][j];
}

// Scan is ssd_scan's shared memory; behind it lie 32 columns of S, [state_dim to whole parts of 64][32, and 4 more].
struct Scan {
  union {
    float c[kRows][kWidePart];
    float m[kRows][kWidePart];  // M, before C comes
  };
  float b[kRows][kWidePart];     // times exp(Gn - G)
  float x[kRows][kWideColumns];  // t X
  float high[kRows], low[kRows];   // G
  float keep[kRows], rest[kRows];  // exp(G), exp(Gn - G)
};
static_assert(sizeof(Scan) == 45056, "as the manifest has it");

extern "C" __global__ void __launch_bounds__(256, 2) ssd_scan(const int32_t* __restrict__ seqs,       // [1] of this step
             const float* __restrict__ xbc,          // [rows, heads*head_dim + 2*groups*state_dim] x, B and C
             const float* __restrict__ d,            // [heads]
             const float* __restrict__ cb,           // [places, groups, 64, 64]
             const Gates* __restrict__ made,         // [places, heads]
             float* __restrict__ state,              // [slots, heads, head_dim, state_dim]
             const int32_t* __restrict__ cu_rows,    // [seqs+1]
             const int32_t* __restrict__ state_slot, // [seqs]
             const int32_t* __restrict__ fresh,      // [seqs]
             float* __restrict__ y,                  // [rows, heads*head_dim]
             int32_t heads, int32_t groups, int32_t head_dim, int32_t state_dim) {
  begin();
  extern __shared__ __align__(16) uint8_t shared[];
  Scan& s = *reinterpret_cast<Scan*>(shared);
  float(*st)[kWideColumns] = reinterpret_cast<float(*)[kWideColumns]>(shared + sizeof(Scan));
  const Dims a = {heads, groups, head_dim, state_dim};
  const int seq = blockIdx.z, h = blockIdx.y, group = h / (heads / groups), tid = threadIdx.x;
  if (seq >= *seqs) return;
  const int from = cu_rows[seq], num = cu_rows[seq + 1] - from, column = blockIdx.x * kColumns, columns = min(kColumns, head_dim - column);
  if (num == 0) return;
  const int padded = (state_dim + kPart - 1) / kPart * kPart;
  float* home = state + ((int64_t(state_slot[seq]) * heads + h) * head_dim + column) * state_dim;
  for (int i = tid; i < kColumns * padded; i += 256) {
    const int w = i / padded, k = i % padded;
    st[k][w] = !fresh[seq] && w < columns && k < state_dim ? home[int64_t(w) * state_dim + k] : 0.0f;
  }
  const float direct = d[h];
  const float* all = xbc + int64_t(from) * a.width();
  const int row = tid / 8, quad = tid % 8 * 4;  // of Y: this row and the 32nd behind it, four columns
  const int k0 = tid / 16 * 4, pair = tid % 16 * 2;  // of 64 rows of S: four rows, two columns
  Part part;
  part.fetch(all, a, group, min(kRows, num), 0);
  for (int at = 0; at < num; at += kRows) {
    const int rows = min(kRows, num - at), place = from / kRows + seq + at / kRows;
    const float* mine = all + int64_t(at) * a.width() + h * head_dim + column;  // x
    const Gates& g = made[int64_t(place) * heads + h];
    const float* pairs = cb + (int64_t(place) * groups + group) * kRows * kRows;
    __syncthreads();  // the chunk before is done with
    if (tid < kRows) {
      s.high[tid] = g.high[tid], s.low[tid] = g.low[tid];
      s.keep[tid] = expf(g.high[tid] + g.low[tid]);
      s.rest[tid] = expf(g.high[kRows - 1] - g.high[tid] + (g.low[kRows - 1] - g.low[tid]));
    }
    for (int i = tid; i < kRows * kColumns; i += 256) {
      const int r = i / kColumns, w = i % kColumns;
      s.x[r][w] = r < rows && w < columns ? g.t[r] * mine[int64_t(r) * a.width() + w] : 0.0f;
    }
    __syncthreads();
    for (int i = tid; i < rows * (kRows / 4); i += 256) {
      const int r = i / (kRows / 4), j = i % (kRows / 4) * 4;
      four m = {};
      if (j <= r) {
        m = load<4>(pairs + r * kRows + j);
#pragma unroll
        for (int e = 0; e < 4; e++) m.at[e] = j + e <= r ? m.at[e] * expf(s.high[r] - s.high[j + e] + (s.low[r] - s.low[j + e])) : 0.0f;
      }
      store(&s.m[r][j], m);
    }
    __syncthreads();
    float out[2][4] = {}, own[2][4] = {};  // what S gives, what the chunk gives
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int r = row + 32 * i;
      for (int j = 0; j <= r && r < rows; j += 4) {
        const four m = load<4>(&s.m[r][j]);
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const four x = load<4>(&s.x[j + e][quad]);
#pragma unroll
          for (int n = 0; n < 4; n++) own[i][n] = fmaf(m.at[e], x.at[n], own[i][n]);
        }
      }
    }
    for (int k = 0; k < state_dim; k += kPart) {
      __syncthreads();
      part.put(s.c, s.b, s.rest);
      __syncthreads();
      if (k + kPart < state_dim) part.fetch(all + int64_t(at) * a.width(), a, group, rows, k + kPart);
      else part.fetch(all + int64_t(at + kRows) * a.width(), a, group, min(kRows, num - at - kRows), 0);
      if (row < rows) {
#pragma unroll 4
        for (int e = 0; e < kPart; e += 4) {
          const four c0 = load<4>(&s.c[row][e]), c1 = load<4>(&s.c[row + 32][e]);
#pragma unroll
          for (int i = 0; i < 4; i++) {
            const four v = load<4>(&st[k + e + i][quad]);
#pragma unroll
            for (int n = 0; n < 4; n++) {
              out[0][n] = fmaf(c0.at[i], v.at[n], out[0][n]);
              out[1][n] = fmaf(c1.at[i], v.at[n], out[1][n]);
            }
          }
        }
      }
      __syncthreads();  // this part of S is read
      float sum[4][2] = {};
#pragma unroll 4
      for (int j = 0; j < rows; j++) {
        const four b = load<4>(&s.b[j][k0]);
        const vec<float, 2> x = load<2>(&s.x[j][pair]);
#pragma unroll
        for (int i = 0; i < 4; i++) sum[i][0] = fmaf(b.at[i], x.at[0], sum[i][0]), sum[i][1] = fmaf(b.at[i], x.at[1], sum[i][1]);
      }
      const float keep = s.keep[kRows - 1];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float* v = &st[k + k0 + i][pair];
        const vec<float, 2> old = load<2>(v);
        store(v, vec<float, 2>{{fmaf(keep, old.at[0], sum[i][0]), fmaf(keep, old.at[1], sum[i][1])}});
      }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int r = row + 32 * i;
      if (r >= rows) continue;
      float* to = y + int64_t(from + at + r) * a.inner() + h * head_dim + column;
#pragma unroll
      for (int n = 0; n < 4; n++)
        if (quad + n < columns) to[quad + n] = fmaf(direct, mine[int64_t(r) * a.width() + quad + n], fmaf(s.keep[r], out[i][n], own[i][n]));
    }
  }
  __syncthreads();
  for (int i = tid; i < columns * state_dim; i += 256) {
    const int w = i / state_dim, k = i % state_dim;
    home[int64_t(w) * state_dim + k] = st[k][w];
  }
}
