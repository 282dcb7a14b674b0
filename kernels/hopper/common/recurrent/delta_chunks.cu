// SPDX-License-Identifier: MIT OR Apache-2.0
// Family recurrent, many rows: the gated delta rule with one decay for all of the state, by chunks of 64 rows of a sequence.
//
// With S the state before a chunk, [k_dim, v_dim], G row i's sum of decays since then, and D the rows that the chunk adds to S by kᵀ:
//
//	d = β (v - exp(Gi) Sᵀk - Σ_{j<i} exp(Gi - Gj) (ki·kj) dj)       D = U - W S
//	y = exp(Gi) Sᵀq + Σ_{j≤i} exp(Gi - Gj) (qi·kj) dj               Y = exp(G) Q S + P D
//	S' = exp(Gn) S + Σ_j exp(Gn - Gj) kj djᵀ
//
// where T = (1 + A)⁻¹, Aij = β exp(Gi - Gj) ki·kj below the diagonal, W = T β exp(G) K and U = T β V. W, U and P know nothing of S:
//
//	delta_chunks   all chunks beside each other: P, T by blocks of 16 rows, W and U. Grid: k_heads, rows/64 + seqs; 256 threads
//	delta_scan     chunk after chunk: D, Y and S'. Grid: v_dim/64, v_heads, sequences; 160 threads, the last warp copies. A block has 64
//	               columns of S, transposed, in registers, where they are sums and left operands, as are those of D
//
// Both pass over sequences of up to few rows, for which delta_few_rows (delta_rows.cu) is faster: a chunk costs what 30 rows cost there.
//
// Products are the tensor cores', of operands that are sums of two bf16: hi·hi + lo·hi + hi·lo, which loses 2^-16 of a product. What goes
// from the one launch to the other lies in memory as the products want it in shared memory: bf16 [64 rows][64] by rows of 128 bytes, 16
// bytes each at (chunk ^ row % 8). k_dim and v_dim at most 128 and multiples of 4; what they lack of 64 or 128 is zero.

#include "../../../include/chunks.cuh"
#include "../../../include/copy/vector.cuh"
#include "../../../include/epilogue/fast_act.cuh"
#include "../../../include/mma/bf16.cuh"
#include "../../../include/ptx/wgmma_rows.cuh"
#include "../../../include/step.cuh"
#include "window.cuh"

namespace {

constexpr int kRows = 64, kTile = kRows * 64;
using four = vec<float, 4>;

struct Half {  // [64][64] of two parts
  uint16_t hi[kTile], lo[kTile];
};
struct Pair {  // [64][128] of two parts, in blocks of 64 columns
  uint16_t hi[2 * kTile], lo[2 * kTile];
};

// place is where element (row, column) of a [64][64] lies.
__device__ __forceinline__ int place(int row, int column) { return row * 64 + ((column / 8 ^ row % 8) * 8) + column % 8; }

__device__ __forceinline__ void put_two(uint16_t* hi, uint16_t* lo, int at, float x, float y) {
  uint32_t a, b;
  mma::split(x, y, a, b);
  *reinterpret_cast<uint32_t*>(hi + at) = a;
  *reinterpret_cast<uint32_t*>(lo + at) = b;
}
// put_four splits columns 4·lane to 4·lane+3 of a row.
__device__ __forceinline__ void put_four(Pair& to, int row, int lane, const four& x) {
  vec<uint32_t, 2> hi, lo;
  mma::split(x.at[0], x.at[1], hi.at[0], lo.at[0]);
  mma::split(x.at[2], x.at[3], hi.at[1], lo.at[1]);
  const int at = lane / 16 * kTile + place(row, lane % 16 * 4);
  *reinterpret_cast<vec<uint32_t, 2>*>(to.hi + at) = hi;
  *reinterpret_cast<vec<uint32_t, 2>*>(to.lo + at) = lo;
}
// put_sums splits a product [64, 64], as the tensor cores leave it.
__device__ __forceinline__ void put_sums(uint16_t* hi, uint16_t* lo, const float (&c)[32], int tid) {
  const int lane = tid % 32, row = tid % 128 / 32 * 16 + lane / 4;
#pragma unroll
  for (int j = 0; j < 8; j++) {
    const int at = place(row, j * 8 + lane % 4 * 2);  // row + 8 has the same swizzle
    put_two(hi, lo, at, c[4 * j], c[4 * j + 1]);
    put_two(hi, lo, at + 8 * 64, c[4 * j + 2], c[4 * j + 3]);
  }
}

// Where a row's values lie: q, k and v in arrays of their own or behind each other.
struct Rows {
  const float *q, *k, *v;
  int64_t qk_stride, v_stride;
};
struct Dims { int k_heads, v_heads, k_dim, v_dim; };
// Raw says that all are to be convolved, q and k normalised, and what gates are to be made of.
struct Raw {
  const float *a, *b, *a_log, *dt_bias, *taps;
  float* conv_state;
  const int32_t *state_slot, *fresh;
  float q_scale, eps;
};
struct Gates {
  const float *g, *beta;
};

// What is handed over, for each place.
struct Chunks {
  Pair* kq;      // [places, k_heads, 2] k, q
  Pair* w;       // [places, v_heads]
  Half* p;       // [places, v_heads]
  float* u;      // [places, v_heads, v_dim/64, 64·64], quads of a thread in the order of a product [64 of v_dim, 64 rows]
  float* decay;  // [places, v_heads, 2, 64] exp(G), exp(Gn - G)
};

// Chunk is what a block has: rows from row on, n of them, of a sequence that has all from from on.
struct Chunk {
  int place, seq, from, row, n, all;
};

struct Solve {
  Pair k, q;  // q, then v
  union {
    Half p;
    Half t[2];  // T β exp(G), T β
  };
  union {
    float a[kRows * kRows];  // A, then T
    Half w;                  // half of W; the other half takes T's place
  };
  float sum[kRows], beta[kRows], strength[kRows];
  Chunk chunk;  // not worth registers

  // at is element (row, column) of a; quads are spread over the banks.
  __device__ __forceinline__ float* at(int row, int column) { return a + row * kRows + (column ^ row % 16 * 4); }
};

// invert makes T of A, both lower triangles with zeros above: T's diagonal blocks of 16 rows by substitution, a column a thread; then of
// blocks T0, T1 on the diagonal and A10 below, T10 = -T1 (A10 T0). The upper right quarter is room.
__device__ __forceinline__ void invert(Solve& s, int tid) {
  float x[16];
  const int first = tid / 16 * 16, column = tid % 16;
  if (tid < 64) {
#pragma unroll
    for (int i = 0; i < 16; i++) {
      float sum = i == column ? 1.0f : 0.0f, other = 0;
#pragma unroll
      for (int j = 0; j < i; j += 4) {
        const four a = load<4>(s.at(first + i, first + j));
        sum = fmaf(-a.at[0], x[j], sum);
        if (j + 1 < i) other = fmaf(-a.at[1], x[j + 1], other);
        if (j + 2 < i) sum = fmaf(-a.at[2], x[j + 2], sum);
        if (j + 3 < i) other = fmaf(-a.at[3], x[j + 3], other);
      }
      x[i] = sum + other;
    }
  }
  __syncthreads();
  if (tid < 64) {
#pragma unroll
    for (int i = 0; i < 16; i++) *s.at(first + i, first + column) = x[i];
  }
  __syncthreads();
  {  // two pairs of 16
    const int pair = tid / 128, top = 32 * pair, r = tid % 128 / 8, c = tid % 8 * 2;
    float m[2] = {};
#pragma unroll
    for (int k = 0; k < 16; k++) {
      const float a = *s.at(top + 16 + r, top + k);
      const auto t = load<2>(s.at(top + k, top + c));
      m[0] = fmaf(a, t.at[0], m[0]), m[1] = fmaf(a, t.at[1], m[1]);
    }
    store(s.at(16 * pair + r, 32 + 16 * pair + c), vec<float, 2>{{m[0], m[1]}});
    __syncthreads();
    m[0] = m[1] = 0;
#pragma unroll
    for (int k = 0; k < 16; k++) {
      const float t = *s.at(top + 16 + r, top + 16 + k);
      const auto a = load<2>(s.at(16 * pair + k, 32 + 16 * pair + c));
      m[0] = fmaf(-t, a.at[0], m[0]), m[1] = fmaf(-t, a.at[1], m[1]);
    }
    store(s.at(top + 16 + r, top + c), vec<float, 2>{{m[0], m[1]}});
  }
  __syncthreads();
  {  // one of 32
    const int r = tid / 8, c = tid % 8 * 4;
    float m[4] = {};
#pragma unroll 8
    for (int k = 0; k < 32; k++) {
      const float a = *s.at(32 + r, k);
      const four t = load<4>(s.at(k, c));
#pragma unroll
      for (int e = 0; e < 4; e++) m[e] = fmaf(a, t.at[e], m[e]);
    }
    store(s.at(r, 32 + c), four{{m[0], m[1], m[2], m[3]}});
    __syncthreads();
    float n[4] = {};
#pragma unroll 8
    for (int k = 0; k < 32; k++) {
      const float t = *s.at(32 + r, 32 + k);
      const four a = load<4>(s.at(k, 32 + c));
#pragma unroll
      for (int e = 0; e < 4; e++) n[e] = fmaf(-t, a.at[e], n[e]);
    }
    store(s.at(32 + r, c), four{{n[0], n[1], n[2], n[3]}});
  }
  __syncthreads();
}

__device__ __forceinline__ float sum_lanes(float v) {
#pragma unroll
  for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  return v;
}

// make_gates leaves the sums of decays over a chunk's rows, and strengths, in shared memory, by the first warp: lane i has rows i and
// 32 + i, which have neither behind the last.
template <class Make>
__device__ __forceinline__ void make_gates(Solve& s, float* decay, int n, Make make) {
  if (threadIdx.x >= 32) return;
  const int lane = threadIdx.x;
  float before = 0, sums[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int i = 32 * half + lane;
    float sum = 0, beta = 0;
    if (i < n) make(i, sum, beta);
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const float other = __shfl_up_sync(~0u, sum, d);
      if (lane >= d) sum += other;
    }
    sums[half] = sum += before;
    before = __shfl_sync(~0u, sum, 31);
    s.sum[i] = sum, s.beta[i] = beta, s.strength[i] = beta * expf(sum);
    decay[i] = expf(sum);
  }
#pragma unroll
  for (int half = 0; half < 2; half++) decay[kRows + 32 * half + lane] = expf(before - sums[half]);
}

// three adds a bᵀ of operands of two parts, lo bytes behind hi, to c; step 16 of k.
template <int TransA = 0, int TransB = 0, int N>
__device__ __forceinline__ void three(float (&c)[N], uint64_t a, uint32_t a_lo, uint64_t b, uint32_t b_lo, bool add) {
  ptx::wgmma_bf16<TransA, TransB>(c, a, b, add);
  ptx::wgmma_bf16<TransA, TransB>(c, a + a_lo / 16, b, true);
  ptx::wgmma_bf16<TransA, TransB>(c, a, b + b_lo / 16, true);
}

template <class G>
__device__ __forceinline__ void take(Solve& s, const Rows& x, const G& gates, const Chunks& out, const Dims& d) {
  constexpr bool kRaw = std::is_same<G, Raw>::value;
  const Chunk& at = s.chunk;
  const int kh = blockIdx.x, tid = threadIdx.x, warp = tid / 32, lane = tid % 32, share = d.v_heads / d.k_heads;
  const int64_t keys = int64_t(d.k_heads) * d.k_dim;
  // eight brings rows 8 · warp on of the chunk, four channels of each: x's own, or what the convolution makes of them.
  const auto eight = [&](four (&values)[8], const float* p, int64_t stride, int64_t channel, bool real) {
    if constexpr (kRaw) {
      Window<8> window;
      const float* home = at.row == at.from && warp == 0 && !gates.fresh[at.seq] ? gates.conv_state + int64_t(gates.state_slot[at.seq]) * 3 * stride + channel : nullptr;
      window.load(p + at.from * stride, stride, at.row - at.from + 8 * warp, at.all, home, real);
      window.convolve(gates.taps + 4 * channel, real);
#pragma unroll
      for (int m = 0; m < 8; m++) values[m] = 8 * warp + m < at.n ? window.x[m] : four{};
    } else {
#pragma unroll
      for (int m = 0; m < 8; m++) values[m] = 8 * warp + m < at.n && real ? load<4>(p + (at.row + 8 * warp + m) * stride) : four{};
    }
  };

#pragma unroll
  for (int what = 0; what < 2; what++) {
    const int64_t channel = int64_t(kh) * d.k_dim + 4 * lane;
    four values[8];
    eight(values, (what ? x.q : x.k) + channel, x.qk_stride, channel + (what ? 0 : keys), 4 * lane < d.k_dim);
#pragma unroll
    for (int m = 0; m < 8; m++) {
      if constexpr (kRaw) {
        four& v = values[m];
        const float f = rsqrtf(sum_lanes(v.at[0] * v.at[0] + v.at[1] * v.at[1] + v.at[2] * v.at[2] + v.at[3] * v.at[3]) + gates.eps) * (what ? gates.q_scale : 1.0f);
#pragma unroll
        for (int e = 0; e < 4; e++) v.at[e] *= f;
      }
      put_four(what ? s.q : s.k, 8 * warp + m, lane, values[m]);
    }
  }
  ptx::fence_shared_for_async();
  __syncthreads();

  // Products of keys, by the first warpgroup, and of queries with keys, by the second.
  const bool second = __shfl_sync(~0u, tid / 128, 0);  // known to be the same in a warp
  const uint64_t k_rows = ptx::wgmma_operand(ptx::shared_address(&s.k)), q_rows = ptx::wgmma_operand(ptx::shared_address(&s.q));
  if (tid == 0) ptx::bulk_store(out.kq + (int64_t(at.place) * d.k_heads + kh) * 2, &s.k, 2 * sizeof(Pair));
  float scores[32];
  ptx::wgmma_begin();
#pragma unroll
  for (int b = 0; b < 2; b++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t step = b * (kTile * 2 / 16) + i * ptx::kWgmmaStep;
      three(scores, (second ? q_rows : k_rows) + step, 4 * kTile, k_rows + step, 4 * kTile, b + i > 0);
    }
  ptx::wgmma_commit();
  ptx::wgmma_done(scores);
  if (tid == 0) ptx::bulk_store_read();

  for (int i = 0; i < share; i++) {
    const int h = kh * share + i;
    const int64_t chunk = int64_t(at.place) * d.v_heads + h;
    int tid = threadIdx.x;
    asm volatile("" : "+r"(tid));  // addresses are not worth registers across heads
    const int warp = tid / 32, lane = tid % 32;
    four values[8];
    const int64_t channel = int64_t(h) * d.v_dim + 4 * lane;
    eight(values, x.v + channel, x.v_stride, channel + 2 * keys, 4 * lane < d.v_dim);
    make_gates(s, out.decay + chunk * 2 * kRows, at.n, [&](int i, float& g, float& beta) {
      const int64_t j = int64_t(at.row + i) * d.v_heads + h;
      if constexpr (kRaw) {
        g = -expf(gates.a_log[h]) * act::softplus::of(gates.a[j] + gates.dt_bias[h]);
        beta = act::sigmoid::of(gates.b[j]);
      } else {
        g = gates.g[j], beta = gates.beta[j];
      }
    });
    __syncthreads();  // also: q is read, and what the last head left
#pragma unroll
    for (int m = 0; m < 8; m++) put_four(s.q, 8 * warp + m, lane, values[m]);
    {
      const int r0 = warp % 4 * 16 + lane / 4, c0 = lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < 8; j++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const int r = r0 + 8 * half, c = c0 + 8 * j;
          const float x0 = scores[4 * j + 2 * half], x1 = scores[4 * j + 2 * half + 1];
          const float f0 = c <= r ? expf(s.sum[r] - s.sum[c]) : 0.0f, f1 = c + 1 <= r ? expf(s.sum[r] - s.sum[c + 1]) : 0.0f;
          if (second) put_two(s.p.hi, s.p.lo, place(r, c), f0 * x0, f1 * x1);
          else store(s.at(r, c), vec<float, 2>{{c < r ? s.beta[r] * f0 * x0 : 0.0f, c + 1 < r ? s.beta[r] * f1 * x1 : 0.0f}});
        }
    }
    ptx::fence_shared_for_async();
    __syncthreads();
    if (tid == 0) ptx::bulk_store(out.p + chunk, &s.p, sizeof(Half));
    invert(s, tid);
    if (tid == 0) ptx::bulk_store_read();
    __syncthreads();
    {
      const int r = tid / 4, c = tid % 4 * 16;
#pragma unroll
      for (int e = 0; e < 16; e += 4) {
        const four t = r < 32 && c >= 32 ? four{} : load<4>(s.at(r, c + e));
        const four f = load<4>(s.strength + c + e), b = load<4>(s.beta + c + e);
#pragma unroll
        for (int o = 0; o < 4; o += 2) {
          put_two(s.t[0].hi, s.t[0].lo, place(r, c + e + o), f.at[o] * t.at[o], f.at[o + 1] * t.at[o + 1]);
          put_two(s.t[1].hi, s.t[1].lo, place(r, c + e + o), b.at[o] * t.at[o], b.at[o + 1] * t.at[o + 1]);
        }
      }
    }
    ptx::fence_shared_for_async();
    __syncthreads();

    // Blocks of 64 columns of W, by the first warpgroup, and of U, transposed, by the second.
    Pair* w = out.w + chunk;
    float sums[32];
#pragma unroll
    for (int b = 0; b < 2; b++) {
      if (!second) {
        const uint64_t t = ptx::wgmma_operand(ptx::shared_address(&s.t[0])), k = ptx::wgmma_columns(ptx::shared_address(s.k.hi + b * kTile), 2 * kTile);
        ptx::wgmma_begin();
#pragma unroll
        for (int i = 0; i < 4; i++) three<0, 1>(sums, t + i * ptx::kWgmmaStep, 2 * kTile, k + i * ptx::kWgmmaColumnsStep, 4 * kTile, i > 0);
      } else {
        const uint64_t t = ptx::wgmma_operand(ptx::shared_address(&s.t[1])), v = ptx::wgmma_columns(ptx::shared_address(s.q.hi + b * kTile), 2 * kTile);
        ptx::wgmma_begin();
#pragma unroll
        for (int i = 0; i < 4; i++) three<1, 0>(sums, v + i * ptx::kWgmmaColumnsStep, 4 * kTile, t + i * ptx::kWgmmaStep, 2 * kTile, i > 0);
      }
      ptx::wgmma_commit();
      ptx::wgmma_done(sums);
      if (b == 1) __syncthreads();  // T is read
      if (!second) {
        Half& half = b ? s.p : s.w;
        put_sums(half.hi, half.lo, sums, tid);
        ptx::fence_shared_for_async();
      } else if (b * 64 < d.v_dim) {
        float* u = out.u + (chunk * ((d.v_dim + 63) / 64) + b) * kTile + tid % 128 * 4;
#pragma unroll
        for (int j = 0; j < 8; j++) store(u + j * 512, four{{sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]}});
      }
    }
    __syncthreads();
    if (tid == 0) {
      ptx::bulk_store(w->hi, s.w.hi, 2 * kTile);
      ptx::bulk_store(w->lo, s.w.lo, 2 * kTile);
      ptx::bulk_store(w->hi + kTile, s.p.hi, 2 * kTile);
      ptx::bulk_store(w->lo + kTile, s.p.lo, 2 * kTile);
      if (i + 1 < share) ptx::bulk_store_read();
      else ptx::bulk_store_done();
    }
  }
}

template <class G>
__device__ __forceinline__ void solve(const int32_t* seqs, int few, const Rows& x, const G& gates, const int32_t* cu_rows, const Chunks& out, const Dims& d) {
  extern __shared__ four raw[];
  Solve& s = *reinterpret_cast<Solve*>(raw);  // at a multiple of 1024, as the swizzle wants it: static arrays would be before it
  const Chunk& at = s.chunk;
  begin();
  if (threadIdx.x == 0) {
    const int place = blockIdx.y, seq = chunks::sequence_at<kRows>(place, cu_rows, *seqs), from = cu_rows[seq], all = cu_rows[seq + 1] - from;
    const int row = from + (place - from / kRows - seq) * kRows;
    s.chunk = {place, seq, from, row, min(kRows, from + all - row), all};
  }
  __syncthreads();
  if (at.n <= 0) return;
  if (at.all > few) take(s, x, gates, out, d);
  if constexpr (std::is_same<G, Raw>::value) {  // the warp that has read what was kept before
    if (at.row != at.from || threadIdx.x >= 32) return;
    const int kh = blockIdx.x, lane = threadIdx.x, share = d.v_heads / d.k_heads, slot = gates.state_slot[at.seq];
    const auto end = [&](int64_t channel) {
      channel += 4 * lane, keep(x.q + at.from * x.qk_stride + channel, x.qk_stride, at.all, gates.conv_state + int64_t(slot) * 3 * x.qk_stride + channel, gates.fresh[at.seq]);
    };
    for (int i = 0; i < 2 && 4 * lane < d.k_dim; i++) end(int64_t(i * d.k_heads + kh) * d.k_dim);
    for (int i = 0; i < share && 4 * lane < d.v_dim; i++) end(2 * int64_t(d.k_heads) * d.k_dim + int64_t(kh * share + i) * d.v_dim);
  }
}

// ------------------------------------------------------------------------------------------------------------------ scan

constexpr int kSlots = 2;  // of what a step waits for first

struct Scan {
  Pair w[kSlots], k[kSlots], q;
  Half p;
  float u[kSlots][kTile], decay[kSlots][2 * kRows];
  uint64_t first_full[kSlots], first_empty[kSlots] /* w, u, decay */, k_full[kSlots], k_empty[kSlots], q_full, q_empty, p_full, p_empty;
};

// copy brings the chunks of a sequence, by one thread.
__device__ __forceinline__ void copy(Scan& s, const Chunks& in, int place, int chunks, int h, const Dims& d) {
  const int kh = h / (d.v_heads / d.k_heads), blocks = gridDim.x;
  for (int i = 0; i < chunks; i++, place++) {
    const int slot = i % kSlots, turn = i / kSlots & 1;
    const int64_t chunk = int64_t(place) * d.v_heads + h;
    ptx::mbarrier_wait(&s.first_empty[slot], turn ^ 1);
    ptx::mbarrier_expect(&s.first_full[slot], sizeof(Pair) + sizeof s.u[0] + sizeof s.decay[0]);
    ptx::bulk_copy(&s.w[slot], in.w + chunk, sizeof(Pair), &s.first_full[slot]);
    ptx::bulk_copy(s.u[slot], in.u + (chunk * blocks + blockIdx.x) * kTile, sizeof s.u[0], &s.first_full[slot]);
    ptx::bulk_copy(s.decay[slot], in.decay + chunk * 2 * kRows, sizeof s.decay[0], &s.first_full[slot]);
    const Pair* kq = in.kq + (int64_t(place) * d.k_heads + kh) * 2;
    ptx::mbarrier_wait(&s.k_empty[slot], turn ^ 1);
    ptx::mbarrier_expect(&s.k_full[slot], sizeof(Pair));
    ptx::bulk_copy(&s.k[slot], kq, sizeof(Pair), &s.k_full[slot]);
    ptx::mbarrier_wait(&s.q_empty, (i & 1) ^ 1);
    ptx::mbarrier_expect(&s.q_full, sizeof(Pair));
    ptx::bulk_copy(&s.q, kq + 1, sizeof(Pair), &s.q_full);
    ptx::mbarrier_wait(&s.p_empty, (i & 1) ^ 1);
    ptx::mbarrier_expect(&s.p_full, sizeof(Half));
    ptx::bulk_copy(&s.p, in.p + chunk, sizeof(Half), &s.p_full);
  }
}

// long_sequence finds the i-th of those with more than few rows; -1 if there are fewer.
__device__ __forceinline__ int long_sequence(int i, const int32_t* cu_rows, int seqs, int few) {
  for (int seq = 0; seq < seqs; seq++)
    if (cu_rows[seq + 1] - cu_rows[seq] > few && i-- == 0) return seq;
  return -1;
}

// Parts are sums as left operands: registers 4i to 4i+3 have k = 16i to 16i+15.
template <int N>
struct Parts {
  uint32_t hi[N], lo[N];
  __device__ __forceinline__ void split(int i, float x, float y) { mma::split(x, y, hi[i], lo[i]); }
};
// times adds (Sign)·a bᵀ of step i, 16 of k, to c.
template <int TransB, int Sign, int N, int M>
__device__ __forceinline__ void times(float (&c)[N], const Parts<M>& a, int i, uint64_t b, uint32_t b_lo, bool add) {
  const auto one = [&](const uint32_t(&r)[M], uint64_t right, bool sum) {
    ptx::wgmma_bf16_rows<TransB, Sign>(c, r[4 * i], r[4 * i + 1], r[4 * i + 2], r[4 * i + 3], right, sum);
  };
  one(a.hi, b, add);
  one(a.lo, b, true);
  one(a.hi, b + b_lo / 16, true);
}

// scan takes the chunks of 64 columns of a head's state. Of sums, lane = 4g + t of warp w has, as r = 0, 1 and e = 0, 1:
//
//	state  columns 16w + g + 8r of v_dim, 8j + 2t + e of k_dim
//	D, Y   the same of v_dim, rows 8j + 2t + e
__device__ __forceinline__ void scan(Scan& s, float* home, bool fresh, float* y, int chunks, int rows, int64_t stride, int columns, int k_dim) {
  const int tid = threadIdx.x, lane = tid % 32, g = lane / 4, t = lane % 4, v0 = tid / 32 * 16 + g;
  float state[64];
#pragma unroll
  for (int j = 0; j < 16; j++)
#pragma unroll
    for (int r = 0; r < 2; r++) {
      vec<float, 2> x = {};
      if (!fresh && v0 + 8 * r < columns && 8 * j + 2 * t < k_dim) x = load<2>(home + int64_t(v0 + 8 * r) * k_dim + 8 * j + 2 * t);
      state[4 * j + 2 * r] = x.at[0], state[4 * j + 2 * r + 1] = x.at[1];
    }
  begin();
  const auto free = [&](uint64_t* empty) {
    if (lane == 0) ptx::mbarrier_arrive(empty);
  };
  float out[32];
  for (int i = 0; i < chunks; i++) {
    const int slot = i % kSlots, turn = i / kSlots & 1;
    const float* decay = s.decay[slot];
    Parts<32> parts;
#pragma unroll
    for (int j = 0; j < 32; j++) parts.split(j, state[2 * j], state[2 * j + 1]);
    ptx::mbarrier_wait(&s.first_full[slot], turn);
    float add[32];  // D
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const four u = load<4>(s.u[slot] + (j * 128 + tid) * 4);
#pragma unroll
      for (int e = 0; e < 4; e++) add[4 * j + e] = u.at[e];
    }
    const float keep = decay[kRows - 1];
#pragma unroll
    for (int j = 0; j < 64; j++) state[j] *= keep;  // before anything is under way: the compiler orders all behind what comes later
    const uint64_t w = ptx::wgmma_operand(ptx::shared_address(&s.w[slot])), q = ptx::wgmma_operand(ptx::shared_address(&s.q));
    ptx::wgmma_begin();
#pragma unroll
    for (int j = 0; j < 8; j++) times<0, -1>(add, parts, j, w + j / 4 * (2 * kTile / 16) + j % 4 * ptx::kWgmmaStep, 4 * kTile, true);
    ptx::wgmma_commit();
    ptx::mbarrier_wait(&s.q_full, i & 1);
    ptx::wgmma_begin();
#pragma unroll
    for (int j = 0; j < 8; j++) times<0, 1>(out, parts, j, q + j / 4 * (2 * kTile / 16) + j % 4 * ptx::kWgmmaStep, 4 * kTile, j > 0);
    ptx::wgmma_commit();

    ptx::wgmma_wait<1>();
    ptx::wgmma_hold(add);
    Parts<16> late;  // of what is left of D at the chunk's end
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const auto rest = load<2>(decay + kRows + 8 * j + 2 * t);
#pragma unroll
      for (int r = 0; r < 2; r++) late.split(2 * j + r, add[4 * j + 2 * r] * rest.at[0], add[4 * j + 2 * r + 1] * rest.at[1]);
    }
    ptx::mbarrier_wait(&s.k_full[slot], turn);
    const uint64_t k = ptx::wgmma_columns(ptx::shared_address(&s.k[slot]), 2 * kTile);
    ptx::wgmma_begin();
#pragma unroll
    for (int j = 0; j < 4; j++) times<1, 1>(state, late, j, k + j * ptx::kWgmmaColumnsStep, 4 * kTile, true);
    ptx::wgmma_commit();

    ptx::wgmma_wait<1>();
    ptx::wgmma_hold(out);
    free(&s.q_empty);
    Parts<16> now;
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const auto since = load<2>(decay + 8 * j + 2 * t);
#pragma unroll
      for (int r = 0; r < 2; r++) {
        out[4 * j + 2 * r] *= since.at[0], out[4 * j + 2 * r + 1] *= since.at[1];
        now.split(2 * j + r, add[4 * j + 2 * r], add[4 * j + 2 * r + 1]);
      }
    }
    __syncwarp();  // all lanes have read u and decay
    free(&s.first_empty[slot]);
    ptx::mbarrier_wait(&s.p_full, i & 1);
    const uint64_t p = ptx::wgmma_operand(ptx::shared_address(&s.p));
    ptx::wgmma_begin();
#pragma unroll
    for (int j = 0; j < 4; j++) times<0, 1>(out, now, j, p + j * ptx::kWgmmaStep, 2 * kTile, true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    ptx::wgmma_hold(state);
    free(&s.k_empty[slot]);
    ptx::wgmma_wait<0>();
    ptx::wgmma_hold(out);
    free(&s.p_empty);
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const int row = i * kRows + 8 * j + 2 * t + e;
#pragma unroll
        for (int r = 0; r < 2; r++)
          if (row < rows && v0 + 8 * r < columns) y[row * stride + v0 + 8 * r] = out[4 * j + 2 * r + e];
      }
  }
#pragma unroll
  for (int j = 0; j < 16; j++)
#pragma unroll
    for (int r = 0; r < 2; r++)
      if (v0 + 8 * r < columns && 8 * j + 2 * t < k_dim)
        store(home + int64_t(v0 + 8 * r) * k_dim + 8 * j + 2 * t, vec<float, 2>{{state[4 * j + 2 * r], state[4 * j + 2 * r + 1]}});
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256, 2) delta_chunks(
    const int32_t* __restrict__ seqs,     /* [1] of this step */
    const float* __restrict__ q, const float* __restrict__ k, /* [rows, k_heads*k_dim] */
    const float* __restrict__ v,          /* [rows, v_heads*v_dim] */
    const float* __restrict__ g, const float* __restrict__ beta, /* [rows, v_heads] */
    const int32_t* __restrict__ cu_rows,  /* [seqs+1] */
    float* kq, float* w, float* p, float* u, float* decay, /* see Chunks */
    int32_t k_heads, int32_t v_heads, int32_t k_dim, int32_t v_dim) {
  const Chunks out = {reinterpret_cast<Pair*>(kq), reinterpret_cast<Pair*>(w), reinterpret_cast<Half*>(p), u, decay};
  solve(seqs, 0, Rows{q, k, v, int64_t(k_heads) * k_dim, int64_t(v_heads) * v_dim}, Gates{g, beta}, cu_rows, out, Dims{k_heads, v_heads, k_dim, v_dim});
}

// The same of what the convolution is yet to be made of: then q and k are normalised, and gates made of a and b. It keeps the convolution's
// inputs of all sequences, also of those of few rows, which another launch has computed.
extern "C" __global__ void __launch_bounds__(256, 2) delta_mix_chunks(
    const int32_t* __restrict__ seqs,     /* [1] of this step */
    const float* __restrict__ qkv,        /* [rows, C], C = 2*k_heads*k_dim + v_heads*v_dim */
    const float* __restrict__ taps,       /* [C, 4] */
    float* conv_state,                    /* [slots, 3, C] */
    const float* __restrict__ a, const float* __restrict__ b,           /* [rows, v_heads] */
    const float* __restrict__ a_log, const float* __restrict__ dt_bias, /* [v_heads] */
    const int32_t* __restrict__ cu_rows,                                /* [seqs+1] */
    const int32_t* __restrict__ state_slot, const int32_t* __restrict__ fresh, /* [seqs] */
    float* kq, float* w, float* p, float* u, float* decay, /* see Chunks */
    int32_t k_heads, int32_t v_heads, int32_t k_dim, int32_t v_dim, float q_scale, float l2_eps, int32_t few) {
  const Chunks out = {reinterpret_cast<Pair*>(kq), reinterpret_cast<Pair*>(w), reinterpret_cast<Half*>(p), u, decay};
  const int64_t keys = int64_t(k_heads) * k_dim, stride = 2 * keys + int64_t(v_heads) * v_dim;
  solve(seqs, few, Rows{qkv, qkv + keys, qkv + 2 * keys, stride, stride}, Raw{a, b, a_log, dt_bias, taps, conv_state, state_slot, fresh, q_scale, l2_eps}, cu_rows, out, Dims{k_heads, v_heads, k_dim, v_dim});
}

extern "C" __global__ void __launch_bounds__(160, 1) delta_scan(
    const int32_t* __restrict__ seqs,        /* [1] of this step */
    float* kq, float* w, float* p, float* u, float* decay, /* see Chunks */
    float* state,                            /* [slots, v_heads, v_dim, k_dim] */
    const int32_t* __restrict__ cu_rows,     /* [seqs+1] */
    const int32_t* __restrict__ state_slot, const int32_t* __restrict__ fresh, /* [seqs] */
    float* __restrict__ y,                   /* [rows, v_heads*v_dim] */
    int32_t k_heads, int32_t v_heads, int32_t k_dim, int32_t v_dim, int32_t few) {
  extern __shared__ four raw[];
  Scan& s = *reinterpret_cast<Scan*>(raw);
  const int h = blockIdx.y, seq = long_sequence(blockIdx.z, cu_rows, *seqs, few), column = blockIdx.x * 64;
  const bool there = seq >= 0;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlots; i++) {
      ptx::mbarrier_init(&s.first_full[i], 1);
      ptx::mbarrier_init(&s.k_full[i], 1);
      ptx::mbarrier_init(&s.first_empty[i], 4);
      ptx::mbarrier_init(&s.k_empty[i], 4);
    }
    ptx::mbarrier_init(&s.q_full, 1);
    ptx::mbarrier_init(&s.p_full, 1);
    ptx::mbarrier_init(&s.q_empty, 4);
    ptx::mbarrier_init(&s.p_empty, 4);
    ptx::mbarrier_publish();
  }
  __syncthreads();
  const int from = there ? cu_rows[seq] : 0, rows = there ? cu_rows[seq + 1] - from : 0, chunks = (rows + kRows - 1) / kRows;
  if (!there || threadIdx.x >= 128) {
    begin();
    if (there && threadIdx.x == 128) {
      const Chunks in = {reinterpret_cast<Pair*>(kq), reinterpret_cast<Pair*>(w), reinterpret_cast<Half*>(p), u, decay};
      copy(s, in, from / kRows + seq, chunks, h, Dims{k_heads, v_heads, k_dim, v_dim});
    }
    return;
  }
  float* home = state + ((int64_t(state_slot[seq]) * v_heads + h) * v_dim + column) * k_dim;
  const int64_t stride = int64_t(v_heads) * v_dim;
  scan(s, home, fresh[seq], y + from * stride + int64_t(h) * v_dim + column, chunks, rows, stride, v_dim - column, k_dim);
}
