// SPDX-License-Identifier: MIT OR Apache-2.0
// Family linear, 1 to 8 rows, bf16 weights as stored: linear, linear_add, linear_n, linear_glu, each also behind a norm.
//
// Grid: any number of blocks, best one a multiprocessor; they share 8-row units of the matrices evenly. 256 threads, dynamic
// shared memory 16832 + 17408 per stage, 4 K more with a norm. Algorithm, order of sums and layout: copy/row_stream.cuh. K must divide by 8.
// It needs a GPU: mma and bulk copies have no twin on the host.

#include "../../../include/copy/row_stream.cuh"
#include "../../../include/epilogue/act.cuh"

namespace {

using stream::kTile;

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

struct StackSource : stream::Walk {
  const Stack& m;
  int lo, hi, K;  // rows of this block
  __device__ StackSource(const Stack& m, int lo, int hi, int K, int tiles)
      : Walk{tiles, (K + stream::kWindow - 1) / stream::kWindow}, m(m), lo(lo), hi(hi), K(K) {}
  __device__ __forceinline__ uint32_t bytes() const { return 2 * min(stream::kWindow, K - w * stream::kWindow); }
  __device__ __forceinline__ const void* row(int r) const {
    int row = lo + t * kTile + r;
    if (row >= hi) return nullptr;
    const int i = m.find(row);
    return pick(m.w, i) + int64_t(row) * K + w * stream::kWindow;
  }
};

// Conv is the causal convolution of four taps and silu that follows a matrix's output.
struct Conv {
  const float* w;  // [C, 4]
  float* state;    // [slots, 3, C]
  const int32_t *row_seq, *cu_rows, *slot, *fresh;
};

// StackOut writes y = factor*sum + bias, or adds it.
template <bool Norm, bool Add, bool Convolve>
struct StackOut {
  stream::Shared* s;
  const Stack& m;
  int lo, hi, rows, K;
  float eps;
  Conv conv;
  float old[2];  // of y, where it is added to

  // place is output i of this thread in a group: 16 n weight rows fastest, then rows of x.
  __device__ __forceinline__ bool place(int i, int t0, int n, int& tile, int& r, int& col, int& row) const {
    const int at = threadIdx.x + i * 256, per = n * kTile;
    col = at / per;
    tile = at % per / kTile;
    r = at % kTile;
    row = lo + (t0 + tile) * kTile + r;
    return col < rows && row < hi;
  }
  __device__ __forceinline__ void begin(int t0, int n) {
    if (Add || Convolve) {
#pragma unroll
      for (int i = 0; i < 2; i++) {
        int tile, r, col, row;
        if (!place(i, t0, n, tile, r, col, row)) continue;
        const int at = m.find(row);
        if (Add) old[i] = ptx::load_l2(pick(m.y, at) + int64_t(col) * pick(m.n, at) + row);
        if (Convolve && at == 0) {
          const float* p = conv.state + int64_t(conv.slot[conv.row_seq[col]]) * 3 * m.n[0] + row;
          for (int j = 0; j < 3; j++) ptx::prefetch_l2(p + j * m.n[0]);
          ptx::prefetch_l2(conv.w + 4 * row);
        }
      }
    }
  }
  __device__ __forceinline__ float value(int tile, int r, int col) const {
    const float v = stream::total(s, tile, r, col);
    return Norm ? v * stream::norm_factor(s, col, K, eps) : v;
  }
  __device__ __forceinline__ void emit(int t0, int n) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int tile, r, col, row;
      if (!place(i, t0, n, tile, r, col, row)) continue;
      const int at = m.find(row);
      if (Convolve && at == 0) continue;
      float v = value(tile, r, col);
      if (const float* b = pick(m.bias, at)) v += b[row];
      pick(m.y, at)[int64_t(col) * pick(m.n, at) + row] = Add ? old[i] + v : v;
    }
    if (Convolve) {
      const int tile = threadIdx.x / kTile, r = threadIdx.x % kTile, c = lo + (t0 + tile) * kTile + r;
      if (tile < n && c < min(hi, m.n[0])) channel(tile, r, c);
    }
  }
  // channel takes the rows of channel c in order, each sequence's with its own state.
  __device__ __forceinline__ void channel(int tile, int r, int c) {
    const int C = m.n[0];
    const float4 w = *reinterpret_cast<const float4*>(conv.w + 4 * c);
    for (int col = 0; col < rows;) {
      const int seq = conv.row_seq[col], end = conv.cu_rows[seq + 1];
      float* p = conv.state + int64_t(conv.slot[seq]) * 3 * C + c;
      float h0 = 0, h1 = 0, h2 = 0;
      if (!conv.fresh[seq]) h0 = ptx::load_l2(p), h1 = ptx::load_l2(p + C), h2 = ptx::load_l2(p + 2 * C);
      for (; col < end; col++) {
        const float x = value(tile, r, col);
        m.y[0][int64_t(col) * C + c] = act::silu::of(w.x * h0 + w.y * h1 + w.z * h2 + w.w * x);
        h0 = h1, h1 = h2, h2 = x;
      }
      p[0] = h0, p[C] = h1, p[2 * C] = h2;
    }
  }
};

// stack is the body of linear, linear_add, linear_n.
template <bool Norm, bool Add, bool Convolve = false>
__device__ __forceinline__ void stack(int rows, const float* x, const int32_t* from, const float* norm, float eps, int plus_one,
                                      const Stack& m, int K, const Conv& conv = {}) {
  extern __shared__ __align__(128) unsigned char shared[];
  float* weights = reinterpret_cast<float*>(shared + sizeof(stream::Shared));
  stream::Ring ring = stream::start(shared, Norm ? 4 * K : 0);
  const stream::Share units((m.rows() + 7) / 8);
  const int lo = units.lo * 8, hi = min(units.hi * 8, m.rows()), tiles = (hi - lo + kTile - 1) / kTile;
  StackSource src(m, lo, hi, K, tiles);
  stream::fill_all(ring, src);
  if (Norm) stream::norm_weights(weights, norm, K, plus_one);
  __syncthreads();
  ptx::wait_for_predecessor();
  StackOut<Norm, Add, Convolve> out{ring.s, m, lo, hi, rows, K, eps, conv};
  stream::multiply_rows<Norm>(ring, src, out, tiles, rows, x, K, weights, from);
}

// Gate and up matrices in step: a tile is 8 rows of one and the same 8 of the other.
struct GluSource : stream::Walk {
  const uint16_t *gate, *up;
  int lo, N, K;  // first unit of this block
  __device__ GluSource(const uint16_t* gate, const uint16_t* up, int lo, int N, int K, int tiles)
      : Walk{tiles, (K + stream::kWindow - 1) / stream::kWindow}, gate(gate), up(up), lo(lo), N(N), K(K) {}
  __device__ __forceinline__ uint32_t bytes() const { return 2 * min(stream::kWindow, K - w * stream::kWindow); }
  __device__ __forceinline__ const void* row(int r) const {
    const int row = (lo + t) * 8 + (r & 7);
    return row < N ? (r < 8 ? gate : up) + int64_t(row) * K + w * stream::kWindow : nullptr;
  }
};

template <bool Norm, class Act>
struct GluOut {
  stream::Shared* s;
  float* y;
  int lo, N, rows, K;
  float eps;
  __device__ __forceinline__ void begin(int, int) {}
  __device__ __forceinline__ void emit(int t0, int n) {
    const int per = n * 8, col = threadIdx.x / per, tile = threadIdx.x % per / 8, r = threadIdx.x % 8;
    const int row = (lo + t0 + tile) * 8 + r;
    if (col >= rows || row >= N) return;
    const float f = Norm ? stream::norm_factor(s, col, K, eps) : 1.0f;
    y[int64_t(col) * N + row] = Act::of(f * stream::total(s, tile, r, col)) * (f * stream::total(s, tile, r + 8, col));
  }
};

template <bool Norm, class Act>
__device__ __forceinline__ void gate_up(int rows, const float* x, const float* norm, float eps, int plus_one, const uint16_t* gate,
                                    const uint16_t* up, float* y, int N, int K) {
  extern __shared__ __align__(128) unsigned char shared[];
  float* weights = reinterpret_cast<float*>(shared + sizeof(stream::Shared));
  stream::Ring ring = stream::start(shared, Norm ? 4 * K : 0);
  const stream::Share units((N + 7) / 8);
  const int tiles = units.hi - units.lo;
  GluSource src(gate, up, units.lo, N, K, tiles);
  stream::fill_all(ring, src);
  if (Norm) stream::norm_weights(weights, norm, K, plus_one);
  __syncthreads();
  ptx::wait_for_predecessor();
  GluOut<Norm, Act> out{ring.s, y, units.lo, N, rows, K, eps};
  stream::multiply_rows<Norm>(ring, src, out, tiles, rows, x, K, weights, nullptr);
}

}  // namespace

#define ENTRY extern "C" __global__ void __launch_bounds__(stream::kThreads, 2)

// y = x wᵀ + bias
ENTRY linear_rows_bf16(const int32_t* __restrict__ head,  // [8] rows, seqs, outs
                       const float* __restrict__ x,       // [rows, K]
                       const uint16_t* __restrict__ w,    // [N, K] bf16
                       const float* __restrict__ bias,    // [N] or null
                       float* __restrict__ y,             // [rows, N]
                       int32_t N, int32_t K) {
  stack<false, false>(head[0], x, nullptr, nullptr, 0, 0, {{w}, {bias}, {y}, {N}}, K);
}

// y += x wᵀ + bias
ENTRY linear_add_rows_bf16(const int32_t* __restrict__ head, const float* __restrict__ x, const uint16_t* __restrict__ w,
                           const float* __restrict__ bias, float* y, int32_t N, int32_t K) {
  stack<false, true>(head[0], x, nullptr, nullptr, 0, 0, {{w}, {bias}, {y}, {N}}, K);
}

// yi = x wiᵀ + biasi; absent ones have Ni = 0
ENTRY linear_n_rows_bf16(const int32_t* __restrict__ head, const float* __restrict__ x,  //
                         const uint16_t* __restrict__ w0, const uint16_t* __restrict__ w1, const uint16_t* __restrict__ w2,
                         const uint16_t* __restrict__ w3,  // [Ni, K]
                         const float* __restrict__ bias0, const float* __restrict__ bias1, const float* __restrict__ bias2,
                         const float* __restrict__ bias3,                                                    // [Ni] or null
                         float* __restrict__ y0, float* __restrict__ y1, float* __restrict__ y2, float* __restrict__ y3,  // [rows, Ni]
                         int32_t N0, int32_t N1, int32_t N2, int32_t N3, int32_t K) {
  stack<false, false>(head[0], x, nullptr, nullptr, 0, 0,
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
  stack<true, false>(head[0], x, nullptr, norm, eps, plus_one,
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
  stack<true, false, true>(head[0], x, nullptr, norm, eps, plus_one, {{w0, w1, w2, w3}, {}, {y0, y1, y2, y3}, {N0, N1, N2, N3}}, K,
                           {conv, state, row_seq, cu_rows, state_slot, fresh});
}

// y = rms_norm(x[out_rows]) wᵀ + bias: the logits.
ENTRY norm_linear_outs_bf16(const int32_t* __restrict__ head, const float* __restrict__ x,  // [rows, K]
                            const int32_t* __restrict__ out_rows,                           // [outs]
                            const float* __restrict__ norm, const uint16_t* __restrict__ w, const float* __restrict__ bias,
                            float* __restrict__ y,  // [outs, N]
                            int32_t N, int32_t K, float eps, int32_t plus_one) {
  stack<true, false>(head[2], x, out_rows, norm, eps, plus_one, {{w}, {bias}, {y}, {N}}, K);
}

// y = silu(x gateᵀ) * (x upᵀ)
ENTRY linear_glu_rows_bf16_silu(const int32_t* __restrict__ head, const float* __restrict__ x,
                                const uint16_t* __restrict__ wg,  // [N, K]
                                const uint16_t* __restrict__ wu,  // [N, K]
                                float* __restrict__ y,            // [rows, N]
                                int32_t N, int32_t K) {
  gate_up<false, act::silu>(head[0], x, nullptr, 0, 0, wg, wu, y, N, K);
}
ENTRY linear_glu_rows_bf16_gelu_tanh(const int32_t* __restrict__ head, const float* __restrict__ x,
                                     const uint16_t* __restrict__ wg, const uint16_t* __restrict__ wu, float* __restrict__ y,
                                     int32_t N, int32_t K) {
  gate_up<false, act::gelu_tanh>(head[0], x, nullptr, 0, 0, wg, wu, y, N, K);
}

// As linear_glu, of rms_norm(x).
ENTRY norm_linear_glu_rows_bf16_silu(const int32_t* __restrict__ head, const float* __restrict__ x,
                                     const float* __restrict__ norm, const uint16_t* __restrict__ wg,
                                     const uint16_t* __restrict__ wu, float* __restrict__ y, int32_t N, int32_t K, float eps,
                                     int32_t plus_one) {
  gate_up<true, act::silu>(head[0], x, norm, eps, plus_one, wg, wu, y, N, K);
}
ENTRY norm_linear_glu_rows_bf16_gelu_tanh(const int32_t* __restrict__ head, const float* __restrict__ x,
                                          const float* __restrict__ norm, const uint16_t* __restrict__ wg,
                                          const uint16_t* __restrict__ wu, float* __restrict__ y, int32_t N, int32_t K, float eps,
                                          int32_t plus_one) {
  gate_up<true, act::gelu_tanh>(head[0], x, norm, eps, plus_one, wg, wu, y, N, K);
}
