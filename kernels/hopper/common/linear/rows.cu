// SPDX-License-Identifier: MIT OR Apache-2.0
// Family linear, 1 to 8 rows, bf16 weights as stored: linear, linear_add, linear_n, linear_glu, each also behind a norm.
//
// Grid: any number of blocks, best as many as a multiprocessor holds; they share 8-row units of the matrices evenly. 256 threads,
// linear_add 512. Dynamic shared memory 4*K*(rows + 1) with a norm; else 4*K*rows, or 128 KiB where that were more.
// linear_add_2, of up to 4 rows, takes none. K must divide by 32. Algorithm, order of sums and layout: mma/weight_tiles.cuh.

#include "../../../include/epilogue/act.cuh"
#include "../../../include/mma/weight_tiles.cuh"

namespace {

using tiles::kTile;
constexpr int kNear = 128 * 1024;  // bytes of x
using Usual = tiles::Point<8, 8, 2, 0>;
using Alone = tiles::Point<16, 4, 1, 1>;  // of few tiles a block
using Deep = tiles::Point<16, 3, 2, 0>;   // the same, of a long K that is read directly

// Matrices of one x, behind each other: [N0 + N1 + N2 + N3, K].
struct Stack {
  const uint16_t* w[4];
  const float* bias[4];
  float* y[4];
  int n[4];

  __device__ __forceinline__ int rows() const { return n[0] + n[1] + n[2] + n[3]; }
  // find turns a row of all into one of a matrix.
  __device__ __forceinline__ int find(int& row) const {
    if (row < n[0]) return 0;
    row -= n[0];
    if (row < n[1]) return 1;
    row -= n[1];
    if (row < n[2]) return 2;
    row -= n[2];
    return 3;
  }
};

// pick is p[i] without indexing memory.
template <class T>
__device__ __forceinline__ T pick(const T (&p)[4], int i) {
  return i == 0 ? p[0] : i == 1 ? p[1] : i == 2 ? p[2] : p[3];
}

struct StackJob {
  const Stack& m;
  int lo, hi, K;  // rows of this block
  __device__ __forceinline__ int tiles() const { return (hi - lo + kTile - 1) / kTile; }
  __device__ __forceinline__ int steps() const { return K / tiles::kStep; }
  __device__ __forceinline__ int run(int) const { return 1 << 30; }
  __device__ __forceinline__ const uint16_t* row(int tile, int r, int step) const {
    int row = min(lo + tile * kTile + r, hi - 1);
    const int i = m.find(row);
    return pick(m.w, i) + int64_t(row) * K + step * tiles::kStep;
  }
};

// Conv is the causal convolution of four taps and silu that follows a matrix's output.
struct Conv {
  const float* w;  // [C, 4]
  float* state;    // [slots, 3, C]
  const int32_t *row_seq, *cu_rows, *slot, *fresh;
};

// StackOut writes y = factor*sum + bias, or adds it. Thread 16 col + r has row r of a tile and row col of x.
template <class P, bool Norm, bool Add, bool Convolve>
struct StackOut {
  tiles::Shared<P>& s;
  const Stack& m;
  int lo, hi, rows, K;
  float eps;
  Conv conv;
  float old;     // of y, where it is added to
  float factor;  // of the row

  __device__ __forceinline__ bool place(int tile, int& col, int& row) const {
    col = threadIdx.x / kTile;
    row = lo + tile * kTile + threadIdx.x % kTile;
    return col < rows && row < hi;
  }
  __device__ __forceinline__ void begin(int tile) {
    int col, row;
    if (!(Add || Convolve) || !place(tile, col, row)) return;
    const int at = m.find(row);
    if (Add) old = ptx::load_l2(pick(m.y, at) + int64_t(col) * pick(m.n, at) + row);
    if (Convolve && at == 0) {
      const float* p = conv.state + int64_t(conv.slot[conv.row_seq[col]]) * 3 * m.n[0] + row;
      for (int j = 0; j < 3; j++) ptx::prefetch_l2(p + j * m.n[0]);
      ptx::prefetch_l2(conv.w + 4 * row);
    }
  }
  __device__ __forceinline__ void emit(int tile) {
    int col, row;
    if (!place(tile, col, row)) return;
    if (Norm && tile == 0) factor = tiles::norm_factor(s, col, K, eps);
    const int at = m.find(row);
    if (Convolve && at == 0) {
      if (col == 0) channel(tile, row);
      return;
    }
    float v = tiles::total(s, tile, threadIdx.x % kTile, col);
    if (Norm) v *= factor;
    if (const float* b = pick(m.bias, at)) v += b[row];
    pick(m.y, at)[int64_t(col) * pick(m.n, at) + row] = Add ? old + v : v;
  }
  // channel takes the rows of channel c in order, each sequence's with its own state.
  __device__ __forceinline__ void channel(int tile, int c) {
    const int C = m.n[0];
    const float4 w = *reinterpret_cast<const float4*>(conv.w + 4 * c);
    for (int col = 0; col < rows;) {
      const int seq = conv.row_seq[col], end = conv.cu_rows[seq + 1];
      float* p = conv.state + int64_t(conv.slot[seq]) * 3 * C + c;
      float h0 = 0, h1 = 0, h2 = 0;
      if (!conv.fresh[seq]) h0 = ptx::load_l2(p), h1 = ptx::load_l2(p + C), h2 = ptx::load_l2(p + 2 * C);
      for (; col < end; col++) {
        const float x = tiles::total(s, tile, threadIdx.x % kTile, col) * tiles::norm_factor(s, col, K, eps);
        m.y[0][int64_t(col) * C + c] = act::silu::of(w.x * h0 + w.y * h1 + w.z * h2 + w.w * x);
        h0 = h1, h1 = h2, h2 = x;
      }
      p[0] = h0, p[C] = h1, p[2 * C] = h2;
    }
  }
};

// X says what a linear multiplies: rows of x [rows, K], those that from names if it is there, or their norms.
struct X {
  int rows;
  const float* x;
  const int32_t* from;
  const float* norm;
  float eps;
  int plus_one;
};

// run multiplies; x is split once where it takes at most near_bytes, and must be where there is a norm; or, read directly, never lies
// in shared memory.
template <class P, bool Norm, bool Direct, class Job, class Out>
__device__ __forceinline__ void run(const Job& job, const X& x, int K, Out& out, int near_bytes) {
  extern __shared__ __align__(128) uint8_t memory[];
  tiles::Flow<P> flow(job);
  float* weights = reinterpret_cast<float*>(memory + x.rows * 4 * K);
  if (Norm) tiles::fetch_const(flow.span, weights, x.norm);
  ptx::wait_for_predecessor();
  if constexpr (Direct) {
    tiles::Direct direct(x.x, x.rows, K, flow.span);
    tiles::multiply<false>(flow, direct, out.s, job, out);
    return;
  }
  const bool wide = x.rows > tiles::kRows / 2;
  if (Norm || x.rows * 4 * K <= near_bytes) {
    tiles::Near near{{memory, x.rows}};
    for (int r = 0; r < x.rows; r++) near.fetch(flow.span, r, x.x + int64_t(x.from ? x.from[r] : r) * K);
    near.split<Norm>(flow.span, weights, x.plus_one, out.s.square);
    wide ? tiles::multiply<true>(flow, near, out.s, job, out) : tiles::multiply<false>(flow, near, out.s, job, out);
  } else if constexpr (!Norm) {
    tiles::Window<P> window(memory, x.x, x.rows, K);
    window.fetch(flow.span.lo, min(P::D, flow.span.hi - flow.span.lo));
    wide ? tiles::multiply<true>(flow, window, out.s, job, out) : tiles::multiply<false>(flow, window, out.s, job, out);
  }
}

// stack is the body of linear, linear_add, linear_n.
template <class P, bool Norm, bool Add, bool Convolve = false, bool Direct = false>
__device__ __forceinline__ void stack(const X& x, const Stack& m, int K, const Conv& conv = {}, int near_bytes = kNear) {
  __shared__ tiles::Shared<P> s;
  ptx::start_successor();
  const tiles::Share units((m.rows() + 7) / 8);
  const StackJob job{m, units.lo * 8, min(units.hi * 8, m.rows()), K};
  StackOut<P, Norm, Add, Convolve> out{s, m, job.lo, job.hi, x.rows, K, x.eps, conv};
  run<P, Norm, Direct>(job, x, K, out, near_bytes);
}

// Gate and up matrices in step: a tile is 8 rows of one and the same 8 of the other.
struct GluJob {
  const uint16_t *gate, *up;
  int lo, hi, N, K;  // tiles of this block
  __device__ __forceinline__ int tiles() const { return hi - lo; }
  __device__ __forceinline__ int steps() const { return K / tiles::kStep; }
  __device__ __forceinline__ int run(int) const { return 1 << 30; }
  __device__ __forceinline__ const uint16_t* row(int tile, int r, int step) const {
    const int row = min((lo + tile) * 8 + (r & 7), N - 1);
    return (r < 8 ? gate : up) + int64_t(row) * K + step * tiles::kStep;
  }
};

template <class P, bool Norm, class Act>
struct GluOut {
  tiles::Shared<P>& s;
  float* y;
  int lo, N, rows, K;
  float eps;
  __device__ __forceinline__ void begin(int) {}
  __device__ __forceinline__ void emit(int tile) {
    const int col = threadIdx.x / 8, r = threadIdx.x % 8, row = (lo + tile) * 8 + r;
    if (col >= rows || row >= N) return;
    const float f = Norm ? tiles::norm_factor(s, col, K, eps) : 1.0f;
    y[int64_t(col) * N + row] = Act::of(f * tiles::total(s, tile, r, col)) * (f * tiles::total(s, tile, r + 8, col));
  }
};

template <class P, bool Norm, class Act>
__device__ __forceinline__ void gate_up(const X& x, const uint16_t* gate, const uint16_t* up, float* y, int N, int K) {
  __shared__ tiles::Shared<P> s;
  ptx::start_successor();
  const tiles::Share units((N + 7) / 8);
  const GluJob job{gate, up, units.lo, units.hi, N, K};
  GluOut<P, Norm, Act> out{s, y, units.lo, N, x.rows, K, x.eps};
  run<P, Norm, false>(job, x, K, out, kNear);
}

}  // namespace

#define ENTRY_OF(P) extern "C" __global__ void __launch_bounds__(P::kThreads, P::B)
#define ENTRY ENTRY_OF(Usual)

// y = x wᵀ + bias
ENTRY linear_rows_bf16(const int32_t* __restrict__ head,  // [8] rows, seqs, outs
                       const float* __restrict__ x,       // [rows, K]
                       const uint16_t* __restrict__ w,    // [N, K] bf16
                       const float* __restrict__ bias,    // [N] or null
                       float* __restrict__ y,             // [rows, N]
                       int32_t N, int32_t K) {
  stack<Usual, false, false>({head[0], x}, {{w}, {bias}, {y}, {N}}, K);
}

// y += x wᵀ + bias; the entry's number is blocks a multiprocessor
ENTRY_OF(Alone) linear_add_rows_bf16_1(const int32_t* __restrict__ head, const float* __restrict__ x, const uint16_t* __restrict__ w,
                                       const float* __restrict__ bias, float* y, int32_t N, int32_t K) {
  stack<Alone, false, true>({head[0], x}, {{w}, {bias}, {y}, {N}}, K);
}
ENTRY_OF(Deep) linear_add_rows_bf16_2(const int32_t* __restrict__ head, const float* __restrict__ x, const uint16_t* __restrict__ w,
                                      const float* __restrict__ bias, float* y, int32_t N, int32_t K) {
  stack<Deep, false, true, false, true>({head[0], x}, {{w}, {bias}, {y}, {N}}, K);
}

// yi = x wiᵀ + biasi; absent ones have Ni = 0
ENTRY linear_n_rows_bf16(const int32_t* __restrict__ head, const float* __restrict__ x,  //
                         const uint16_t* __restrict__ w0, const uint16_t* __restrict__ w1, const uint16_t* __restrict__ w2,
                         const uint16_t* __restrict__ w3,  // [Ni, K]
                         const float* __restrict__ bias0, const float* __restrict__ bias1, const float* __restrict__ bias2,
                         const float* __restrict__ bias3,                                                    // [Ni] or null
                         float* __restrict__ y0, float* __restrict__ y1, float* __restrict__ y2, float* __restrict__ y3,  // [rows, Ni]
                         int32_t N0, int32_t N1, int32_t N2, int32_t N3, int32_t K) {
  stack<Usual, false, false>({head[0], x},
                      {{w0, w1, w2, w3}, {bias0, bias1, bias2, bias3}, {y0, y1, y2, y3}, {N0, N1, N2, N3}}, K);
}

// As linear_n, of rms_norm(x).
ENTRY norm_linear_n_rows_bf16(const int32_t* __restrict__ head, const float* __restrict__ x,
                              const float* __restrict__ norm,  // [K]
                              const uint16_t* __restrict__ w0, const uint16_t* __restrict__ w1, const uint16_t* __restrict__ w2,
                              const uint16_t* __restrict__ w3, const float* __restrict__ bias0, const float* __restrict__ bias1,
                              const float* __restrict__ bias2, const float* __restrict__ bias3, float* __restrict__ y0,
                              float* __restrict__ y1, float* __restrict__ y2, float* __restrict__ y3, int32_t N0, int32_t N1,
                              int32_t N2, int32_t N3, int32_t K, float eps, int32_t plus_one) {
  stack<Usual, true, false>({head[0], x, nullptr, norm, eps, plus_one},
                     {{w0, w1, w2, w3}, {bias0, bias1, bias2, bias3}, {y0, y1, y2, y3}, {N0, N1, N2, N3}}, K);
}

// As norm_linear_n; y0 goes through the causal convolution and silu.
ENTRY norm_linear_conv_rows_bf16(const int32_t* __restrict__ head, const int32_t* __restrict__ row_seq,
                                 const int32_t* __restrict__ cu_rows, const int32_t* __restrict__ state_slot,
                                 const int32_t* __restrict__ fresh, const float* __restrict__ x, const float* __restrict__ norm,
                                 const uint16_t* __restrict__ w0, const uint16_t* __restrict__ w1, const uint16_t* __restrict__ w2,
                                 const uint16_t* __restrict__ w3,
                                 const float* __restrict__ conv,  // [N0, 4]
                                 float* state,                    // [slots, 3, N0]
                                 float* __restrict__ y0, float* __restrict__ y1, float* __restrict__ y2, float* __restrict__ y3,
                                 int32_t N0, int32_t N1, int32_t N2, int32_t N3, int32_t K, float eps, int32_t plus_one) {
  stack<Usual, true, false, true>({head[0], x, nullptr, norm, eps, plus_one}, {{w0, w1, w2, w3}, {}, {y0, y1, y2, y3}, {N0, N1, N2, N3}}, K,
                           {conv, state, row_seq, cu_rows, state_slot, fresh});
}

// y = rms_norm(x[out_rows]) wᵀ + bias: the logits.
ENTRY norm_linear_outs_bf16(const int32_t* __restrict__ head, const float* __restrict__ x,  // [rows, K]
                            const int32_t* __restrict__ out_rows,                           // [outs]
                            const float* __restrict__ norm, const uint16_t* __restrict__ w, const float* __restrict__ bias,
                            float* __restrict__ y,  // [outs, N]
                            int32_t N, int32_t K, float eps, int32_t plus_one) {
  stack<Usual, true, false>({head[2], x, out_rows, norm, eps, plus_one}, {{w}, {bias}, {y}, {N}}, K);
}

// y = silu(x gateᵀ) * (x upᵀ)
ENTRY linear_glu_rows_bf16_silu(const int32_t* __restrict__ head, const float* __restrict__ x,
                                const uint16_t* __restrict__ wg,  // [N, K]
                                const uint16_t* __restrict__ wu,  // [N, K]
                                float* __restrict__ y,            // [rows, N]
                                int32_t N, int32_t K) {
  gate_up<Usual, false, act::silu>({head[0], x}, wg, wu, y, N, K);
}
ENTRY linear_glu_rows_bf16_gelu_tanh(const int32_t* __restrict__ head, const float* __restrict__ x,
                                     const uint16_t* __restrict__ wg, const uint16_t* __restrict__ wu, float* __restrict__ y,
                                     int32_t N, int32_t K) {
  gate_up<Usual, false, act::gelu_tanh>({head[0], x}, wg, wu, y, N, K);
}

// As linear_glu, of rms_norm(x).
ENTRY norm_linear_glu_rows_bf16_silu(const int32_t* __restrict__ head, const float* __restrict__ x,
                                     const float* __restrict__ norm, const uint16_t* __restrict__ wg,
                                     const uint16_t* __restrict__ wu, float* __restrict__ y, int32_t N, int32_t K, float eps,
                                     int32_t plus_one) {
  gate_up<Usual, true, act::silu>({head[0], x, nullptr, norm, eps, plus_one}, wg, wu, y, N, K);
}
ENTRY norm_linear_glu_rows_bf16_gelu_tanh(const int32_t* __restrict__ head, const float* __restrict__ x,
                                          const float* __restrict__ norm, const uint16_t* __restrict__ wg,
                                          const uint16_t* __restrict__ wu, float* __restrict__ y, int32_t N, int32_t K, float eps,
                                          int32_t plus_one) {
  gate_up<Usual, true, act::gelu_tanh>({head[0], x, nullptr, norm, eps, plus_one}, wg, wu, y, N, K);
}
