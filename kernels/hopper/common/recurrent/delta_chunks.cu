// SPDX-License-Identifier: MIT OR Apache-2.0
// Family recurrent, many rows: the gated delta rule with one decay for all of the state, by chunks of 64 rows of a sequence.
//
// With S the state before a chunk, [k_dim, v_dim], G row i's sum of decays since then, and D the rows that the chunk adds to S by kᵀ:
//
//	d = β (v - exp(Gi) Sᵀk - Σ_{j<i} exp(Gi - Gj) (ki·kj) dj)       D = U - W S
//	y = exp(Gi) Sᵀq + Σ_{j≤i} exp(Gi - Gj) (qi·kj) dj               Y = exp(G) Q S + P D
//	S' = exp(Gn) S + Σ_j exp(Gn - Gj) kj djᵀ
//
// where (1 + A) [W | U] = [β exp(G) K | β V] and Aij = β exp(Gi - Gj) ki·kj below the diagonal. W, U and P know nothing of S:
//
//	delta_chunks   all chunks beside each other: A and P, then W and U by substitution, a column a thread. Grid: v_heads, rows/64 + seqs
//	delta_scan     chunk after chunk: D, Y and S'. Grid: v_dim/32, v_heads, seqs; a block has 32 columns of S
//
// 256 threads, float32 throughout. k_dim and v_dim at most 128, k_dim a multiple of 4.

#include "../../../include/copy/vector.cuh"
#include "../../../include/reduce/warp.cuh"
#include "../../../include/step.cuh"

namespace {

constexpr int kRows = 64, kDim = 128, kPitch = kDim + 4, kThreads = 256, kColumns = 32, kSpan = kColumns + 4, kScores = kRows + 4;
constexpr int kPart = kRows * kDim / 4 / kThreads;  // quads of a thread
using four = vec<float, 4>;

struct Solve {
  float k[kRows * kPitch], q[kRows * kPitch], a[kRows * kRows], decay[kRows], beta[kRows];
};
struct Scan {
  float w[kRows * kPitch], q[kRows * kPitch], k[kRows * kPitch], p[kRows * kScores], d[kRows * kSpan], s[kDim * kSpan], decay[kRows];
};

// decays leaves the sums of g over a chunk's rows in shared memory, by the first warp: lane i has rows i and 32 + i, 0 behind the last.
__device__ __forceinline__ void decays(float* out, const float (&g)[2]) {
  if (threadIdx.x >= 32) return;
  const int lane = threadIdx.x;
  float before = 0;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float sum = g[half];
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const float other = __shfl_up_sync(~0u, sum, d);
      if (lane >= d) sum += other;
    }
    out[32 * half + lane] = sum += before;
    before = __shfl_sync(~0u, sum, 31);
  }
}
__device__ __forceinline__ void fetch_decays(float (&g)[2], const float* from, int stride, int n) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int i = 32 * half + threadIdx.x % 32;
    g[half] = i < n ? from[int64_t(i) * stride] : 0.0f;
  }
}

// fetch loads a thread's part of n rows of width values; all else up to [64, 128] is zero. put leaves it in shared memory, each row
// times its factor.
__device__ __forceinline__ void fetch(four (&x)[kPart], const float* from, int64_t stride, int width, int n) {
#pragma unroll
  for (int m = 0; m < kPart; m++) {
    const int at = threadIdx.x + m * kThreads, i = at / (kDim / 4), c = at % (kDim / 4) * 4;
    x[m] = i < n && c < width ? load<4>(from + i * stride + c) : four{};
  }
}
template <class Factor>
__device__ __forceinline__ void put(float* to, const four (&x)[kPart], Factor factor) {
#pragma unroll
  for (int m = 0; m < kPart; m++) {
    const int at = threadIdx.x + m * kThreads, i = at / (kDim / 4), c = at % (kDim / 4) * 4;
    const float f = factor(i);
    store(to + i * kPitch + c, four{{f * x[m].at[0], f * x[m].at[1], f * x[m].at[2], f * x[m].at[3]}});
  }
}
__device__ __forceinline__ float one(int) { return 1.0f; }

}  // namespace

extern "C" __global__ void __launch_bounds__(256, 2) delta_chunks(
    const int32_t* __restrict__ seqs,     /* [1] of this step */
    const float* __restrict__ q,          /* [rows, k_heads*k_dim] */
    const float* __restrict__ k,          /* [rows, k_heads*k_dim] */
    const float* __restrict__ v,          /* [rows, v_heads*v_dim] */
    const float* __restrict__ g,          /* [rows, v_heads] */
    const float* __restrict__ beta,       /* [rows, v_heads] */
    const int32_t* __restrict__ cu_rows,  /* [seqs+1] */
    float* __restrict__ w,                /* [rows, v_heads*k_dim] */
    float* __restrict__ p,                /* [rows, v_heads*64] */
    float* __restrict__ u,                /* [rows, v_heads*v_dim] */
    int32_t k_heads, int32_t v_heads, int32_t k_dim, int32_t v_dim) {
  extern __shared__ four raw[];
  Solve& s = *reinterpret_cast<Solve*>(raw);
  begin();
  // Sequence i has places from cu_rows[i]/64 + i on, which are enough for its chunks.
  const int h = blockIdx.x, place = blockIdx.y, kh = h / (v_heads / k_heads), tid = threadIdx.x;
  int low = 0, high = *seqs - 1;
  while (low < high) {
    const int mid = (low + high + 1) / 2;
    if (cu_rows[mid] / kRows + mid <= place) low = mid;
    else high = mid - 1;
  }
  const int from = cu_rows[low], row = from + (place - from / kRows - low) * kRows, n = min(kRows, cu_rows[low + 1] - row);
  if (n <= 0) return;

  const int64_t stride = int64_t(k_heads) * k_dim;
  four part[kPart];
  float gates[2];
  fetch_decays(gates, g + int64_t(row) * v_heads + h, v_heads, n);
  decays(s.decay, gates);
  if (tid < kRows) s.beta[tid] = tid < n ? beta[int64_t(row + tid) * v_heads + h] : 0.0f;
  fetch(part, k + row * stride + int64_t(kh) * k_dim, stride, k_dim, n);
  put(s.k, part, one);
  fetch(part, q + row * stride + int64_t(kh) * k_dim, stride, k_dim, n);
  put(s.q, part, one);
  __syncthreads();

  // Rows ty, ty+16, … by columns tx, tx+16, … of K Kᵀ and Q Kᵀ.
  const int ty = tid / 16, tx = tid % 16;
  float kk[4][4] = {}, qk[4][4] = {};
  for (int c = 0; c < k_dim; c += 4) {
    four right[4];
#pragma unroll
    for (int j = 0; j < 4; j++) right[j] = load<4>(s.k + (tx + 16 * j) * kPitch + c);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const four key = load<4>(s.k + (ty + 16 * i) * kPitch + c), query = load<4>(s.q + (ty + 16 * i) * kPitch + c);
#pragma unroll
      for (int j = 0; j < 4; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          kk[i][j] = fmaf(key.at[e], right[j].at[e], kk[i][j]);
          qk[i][j] = fmaf(query.at[e], right[j].at[e], qk[i][j]);
        }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int r = ty + 16 * i, c = tx + 16 * j;
      const float f = c <= r ? expf(s.decay[r] - s.decay[c]) : 0.0f;
      s.a[r * kRows + c] = c < r ? s.beta[r] * f * kk[i][j] : 0.0f;
      if (r < n) p[(int64_t(row + r) * v_heads + h) * kRows + c] = c <= r ? f * qk[i][j] : 0.0f;
    }
  __syncthreads();

  // A column of W or U: what is known of it lies in registers.
  const bool left = tid < kDim;
  const int col = tid % kDim;
  if (col >= (left ? k_dim : v_dim)) return;
  const int width = left ? k_dim : v_dim;
  float* out = (left ? w : u) + (int64_t(row) * v_heads + h) * width + col;
  const float* values = v + (int64_t(row) * v_heads + h) * v_dim + col;
  const int64_t next = int64_t(v_heads) * width;
  float x[kRows];
#pragma unroll
  for (int i = 0; i < kRows; i++) {
    if (i < n) {
      float sum = s.beta[i] * (left ? expf(s.decay[i]) * s.k[i * kPitch + col] : values[i * next]), other = 0;
#pragma unroll
      for (int j = 0; j < i; j += 4) {
        const four a = load<4>(s.a + i * kRows + j);
        sum = fmaf(-a.at[0], x[j], sum);
        if (j + 1 < i) other = fmaf(-a.at[1], x[j + 1], other);
        if (j + 2 < i) sum = fmaf(-a.at[2], x[j + 2], sum);
        if (j + 3 < i) other = fmaf(-a.at[3], x[j + 3], other);
      }
      x[i] = sum + other;
      out[i * next] = x[i];
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 1) delta_scan(
    const int32_t* __restrict__ seqs,        /* [1] of this step */
    const float* __restrict__ q,             /* [rows, k_heads*k_dim] */
    const float* __restrict__ k,             /* [rows, k_heads*k_dim] */
    const float* __restrict__ g,             /* [rows, v_heads] */
    const float* __restrict__ w,             /* [rows, v_heads*k_dim] */
    const float* __restrict__ p,             /* [rows, v_heads*64] */
    float* state,                            /* [slots, v_heads, v_dim, k_dim] */
    const int32_t* __restrict__ cu_rows,     /* [seqs+1] */
    const int32_t* __restrict__ state_slot,  /* [seqs] */
    const int32_t* __restrict__ fresh,       /* [seqs] */
    float* y,                                /* [rows, v_heads*v_dim], U before */
    int32_t k_heads, int32_t v_heads, int32_t k_dim, int32_t v_dim) {
  extern __shared__ four raw[];
  Scan& s = *reinterpret_cast<Scan*>(raw);
  begin();
  const int seq = blockIdx.z;
  if (seq >= *seqs) return;
  const int h = blockIdx.y, kh = h / (v_heads / k_heads), first = blockIdx.x * kColumns, tid = threadIdx.x;
  const int64_t stride = int64_t(k_heads) * k_dim;
  float* home = state + ((int64_t(state_slot[seq]) * v_heads + h) * v_dim + first) * k_dim;
  for (int at = tid; at < kColumns * kDim; at += kThreads) {
    const int c = at % kDim, col = at / kDim;
    s.s[c * kSpan + col] = !fresh[seq] && c < k_dim && first + col < v_dim ? home[int64_t(col) * k_dim + c] : 0.0f;
  }
  const int ty = tid / 16, tx = tid % 16;  // rows 4ty … of D and Y, columns 2tx, 2tx+1
  // The next chunk is on its way while this one is computed.
  four nw[kPart], nq[kPart], nk[kPart], np[kPart / 2];
  float nu[4][2], ng[2];
  const int end = cu_rows[seq + 1];
  const auto fetch_chunk = [&](int row) {
    const int n = min(kRows, end - row);
    fetch_decays(ng, g + int64_t(row) * v_heads + h, v_heads, n);
    fetch(nw, w + (int64_t(row) * v_heads + h) * k_dim, int64_t(v_heads) * k_dim, k_dim, n);
    fetch(nq, q + row * stride + int64_t(kh) * k_dim, stride, k_dim, n);
    fetch(nk, k + row * stride + int64_t(kh) * k_dim, stride, k_dim, n);
#pragma unroll
    for (int m = 0; m < kPart / 2; m++) {
      const int at = tid + m * kThreads, i = at / (kRows / 4), c = at % (kRows / 4) * 4;
      np[m] = i < n ? load<4>(p + (int64_t(row + i) * v_heads + h) * kRows + c) : four{};
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const int r = 4 * ty + i, col = first + 2 * tx + e;
        nu[i][e] = r < n && col < v_dim ? y[(int64_t(row + r) * v_heads + h) * v_dim + col] : 0.0f;
      }
  };
  if (cu_rows[seq] < end) fetch_chunk(cu_rows[seq]);
  for (int row = cu_rows[seq]; row < end; row += kRows) {
    const int n = min(kRows, end - row);
    decays(s.decay, ng);
    __syncthreads();  // also: the last chunk is read
    const float last = s.decay[kRows - 1];
    put(s.w, nw, one);
    put(s.q, nq, [&](int i) { return expf(s.decay[i]); });
    put(s.k, nk, [&](int i) { return expf(last - s.decay[i]); });
#pragma unroll
    for (int m = 0; m < kPart / 2; m++) {
      const int at = tid + m * kThreads;
      store(s.p + at / (kRows / 4) * kScores + at % (kRows / 4) * 4, np[m]);
    }
    float d[4][2], out[4][2] = {};
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int e = 0; e < 2; e++) d[i][e] = nu[i][e];
    if (row + kRows < end) fetch_chunk(row + kRows);
    __syncthreads();
    for (int c = 0; c < k_dim; c += 4) {
      vec<float, 2> right[4];
#pragma unroll
      for (int e = 0; e < 4; e++) right[e] = load<2>(s.s + (c + e) * kSpan + 2 * tx);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const four a = load<4>(s.w + (4 * ty + i) * kPitch + c), b = load<4>(s.q + (4 * ty + i) * kPitch + c);
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
          for (int f = 0; f < 2; f++) {
            d[i][f] = fmaf(-a.at[e], right[e].at[f], d[i][f]);
            out[i][f] = fmaf(b.at[e], right[e].at[f], out[i][f]);
          }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) store(s.d + (4 * ty + i) * kSpan + 2 * tx, vec<float, 2>{{d[i][0], d[i][1]}});
    __syncthreads();
    for (int j = 0; j < 4 * (ty + 1); j += 4) {  // later rows weigh nothing
      vec<float, 2> right[4];
#pragma unroll
      for (int e = 0; e < 4; e++) right[e] = load<2>(s.d + (j + e) * kSpan + 2 * tx);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const four a = load<4>(s.p + (4 * ty + i) * kScores + j);
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
          for (int f = 0; f < 2; f++) out[i][f] = fmaf(a.at[e], right[e].at[f], out[i][f]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const int r = 4 * ty + i, col = first + 2 * tx + e;
        if (r < n && col < v_dim) y[(int64_t(row + r) * v_heads + h) * v_dim + col] = out[i][e];
      }
    // S': rows 4(tid/8) … of k_dim, columns 4(tid%8) …
    const int kr = tid / 8 * 4, vc = tid % 8 * 4;
    const float keep = expf(last);
    float sum[4][4];
#pragma unroll
    for (int a = 0; a < 4; a++) {
      const four x = load<4>(s.s + (kr + a) * kSpan + vc);
#pragma unroll
      for (int b = 0; b < 4; b++) sum[a][b] = keep * x.at[b];
    }
    for (int i = 0; i < n; i++) {
      const four key = load<4>(s.k + i * kPitch + kr), add = load<4>(s.d + i * kSpan + vc);
#pragma unroll
      for (int a = 0; a < 4; a++)
#pragma unroll
        for (int b = 0; b < 4; b++) sum[a][b] = fmaf(key.at[a], add.at[b], sum[a][b]);
    }
    // Only this thread has these elements now: all have passed the barrier behind D.
#pragma unroll
    for (int a = 0; a < 4; a++) store(s.s + (kr + a) * kSpan + vc, four{{sum[a][0], sum[a][1], sum[a][2], sum[a][3]}});
  }
  __syncthreads();
  for (int at = tid; at < kColumns * kDim; at += kThreads) {
    const int c = at % kDim, col = at / kDim;
    if (c < k_dim && first + col < v_dim) home[int64_t(col) * k_dim + c] = s.s[c * kSpan + col];
  }
}
