// SPDX-License-Identifier: MIT OR Apache-2.0
// The bodies of linear-like kernels of 1 to 8 rows, whatever the format of their weights (F): a stack of matrices of one x, gate and
// up in step, and what follows their sums. Algorithm, order of sums and layout: mma/weight_tiles.cuh.
//
// Grid: any number of blocks, best as many as a multiprocessor holds; they share 8-row units of the matrices evenly. Dynamic shared
// memory 4*K*(rows + 1) with a norm; else 4*K*rows, or that of a Window where that were more. K must divide by 32*F::kSteps. Of panels, it is
// the rings, and behind them x: 4*K*rows of up to 4 rows, 2*K*rows of more, none where x streams; the grid's second axis is groups of 8
// rows of x, of which there may be more.
#pragma once

#include <type_traits>

#include "../../../include/epilogue/act.cuh"
#include "../../../include/mma/quantised.cuh"

namespace rows {

constexpr int kNear = 128 * 1024;  // bytes of x


// Matrices of one x, behind each other: [N0 + N1 + N2 + N3, K].
template <class F>
struct Stack {
  typename F::Weights w[4];
  const float* bias[4];
  float* y[4];
  int n[4];
  const float* scale[4];  // of their rows, or null; only if F::kScaled

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

// within is row r behind row from, or another that exists, of the same place in its panel.
template <class F>
__device__ __forceinline__ int within(int from, int r, int end) {
  return F::kPanel == 1 ? min(from + r, end - 1) : min(from + (r & -F::kPanel), end - F::kPanel) + (r & (F::kPanel - 1));
}

template <class F>
struct StackJob {
  static constexpr bool kFactors = false;
  const Stack<F>& m;
  int lo, hi, K;  // rows of this block
  __device__ __forceinline__ int tiles() const { return (hi - lo + F::kTile - 1) / F::kTile; }
  __device__ __forceinline__ int steps() const { return K / (tiles::kStep * F::kSteps); }
  __device__ __forceinline__ int run(int) const { return 1 << 30; }
  __device__ __forceinline__ int panels(int tile) const { return min(F::kTile, hi - lo - tile * F::kTile) / 8; }
  __device__ __forceinline__ const void* row(int tile, int r, int unit) const {
    int row = within<F>(lo + tile * F::kTile, r, hi);
    const int i = m.find(row);
    return F::row(pick(m.w, i), row, K, unit);
  }
};

// Conv is the causal convolution of four taps and silu that follows a matrix's output.
struct Conv {
  const float* w;  // [C, 4]
  float* state;    // [slots, 3, C]
  const int32_t *row_seq, *cu_rows, *slot, *fresh;
};

// Outputs are those of tiles that meet, Per of a tile and row of x: which of them are a thread's.
template <class S, class P, int Per>
struct Outputs {
  static constexpr int kEach = (S::kMeet * Per * S::kMost + P::kThreads - 1) / P::kThreads;
  // place finds output number i of this thread; false: none.
  __device__ __forceinline__ static bool place(int i, int first, int n, int rows, int& tile, int& r, int& col) {
    const int j = threadIdx.x + i * P::kThreads;
    r = j % Per;
    if (S::kMeet == 1) {
      tile = first, col = j / Per;
      return col < rows;
    }
    tile = first + j / (Per * rows), col = j / Per % rows;
    return tile < first + n;
  }
};

// StackOut writes y = factor*sum + bias, or adds it.
template <class S, class P, class F, bool Norm, bool Add, bool Convolve>
struct StackOut {
  using Mine = Outputs<S, P, F::kTile>;
  static constexpr int kEach = Mine::kEach;
  const S& s;
  const Stack<F>& m;
  int lo, hi, rows, K;
  float eps;
  Conv conv;
  float old[kEach];     // of y, where it is added to
  float factor[kEach];  // of the row
  float scale[kEach];   // of the matrix's row

  __device__ __forceinline__ bool place(int i, int first, int n, int& tile, int& r, int& col, int& row) const {
    const bool is = Mine::place(i, first, n, rows, tile, r, col);
    row = lo + tile * F::kTile + r;
    return is && row < hi;
  }
  __device__ __forceinline__ void begin(int first, int n) {
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      int tile, r, col, row;
      if (!(Add || Convolve || F::kScaled) || !place(i, first, n, tile, r, col, row)) continue;
      const int at = m.find(row);
      if (Add) old[i] = ptx::load_l2(pick(m.y, at) + int64_t(col) * pick(m.n, at) + row);
      if (F::kScaled) {
        const float* f = pick(m.scale, at);
        scale[i] = f ? f[row] : 1;
      }
      if (Convolve && at == 0) {
        const float* p = conv.state + int64_t(conv.slot[conv.row_seq[col]]) * 3 * m.n[0] + row;
        for (int j = 0; j < 3; j++) ptx::prefetch_l2(p + j * m.n[0]);
        ptx::prefetch_l2(conv.w + 4 * row);
      }
    }
  }
  __device__ __forceinline__ void emit(int first, int n) {
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      int tile, r, col, row;
      if (!place(i, first, n, tile, r, col, row)) continue;
      if (Norm && first == 0) factor[i] = tiles::norm_factor(s, col, K, eps);
      const int at = m.find(row);
      if (Convolve && at == 0) {
        if (col == 0) channel(tile, first, r, row, F::kScaled ? scale[i] : 1);
        continue;
      }
      float v = tiles::total(s, tile, first, r, col);
      if (Norm) v *= factor[i];
      if (F::kScaled) v *= scale[i];
      if (const float* b = pick(m.bias, at)) v += b[row];
      pick(m.y, at)[int64_t(col) * pick(m.n, at) + row] = Add ? old[i] + v : v;
    }
  }
  // channel takes the rows of channel c in order, each sequence's with its own state.
  __device__ __forceinline__ void channel(int tile, int first, int r, int c, float scale) {
    const int C = m.n[0];
    const float4 w = *reinterpret_cast<const float4*>(conv.w + 4 * c);
    for (int col = 0; col < rows;) {
      const int seq = conv.row_seq[col], end = conv.cu_rows[seq + 1];
      float* p = conv.state + int64_t(conv.slot[seq]) * 3 * C + c;
      float h0 = 0, h1 = 0, h2 = 0;
      if (!conv.fresh[seq]) h0 = ptx::load_l2(p), h1 = ptx::load_l2(p + C), h2 = ptx::load_l2(p + 2 * C);
      for (; col < end; col++) {
        float x = tiles::total(s, tile, first, r, col);
        if (Norm) x *= tiles::norm_factor(s, col, K, eps);
        if (F::kScaled) x *= scale;
        m.y[0][int64_t(col) * C + c] = act::silu::of(w.x * h0 + w.y * h1 + w.z * h2 + w.w * x);
        h0 = h1, h1 = h2, h2 = x;
      }
      p[0] = h0, p[C] = h1, p[2 * C] = h2;
    }
  }
};

// Sums is where those of a format meet.
template <class P, class F, bool Panels = (F::kPanel > 1)>
struct SumsOf {
  using type = tiles::Shared<P, F>;
};
template <class P, class F>
struct SumsOf<P, F, true> {
  using type = tiles::Meeting<P, F>;
};
template <class P, class F>
using Sums = typename SumsOf<P, F>::type;

// Reads says where warps have their parts of x: in shared memory, all or, of a long x, some; or nowhere, each lane reads what it needs.
enum class Reads { kAny, kAll, kDirect };

// X says what a linear multiplies: rows of x [rows, K], those that from names if it is there, or their norms.
struct X {
  int rows;
  const float* x;
  const int32_t* from;
  const float* norm;
  float eps;
  int plus_one;
};

// finish is what follows the first loads of weights into registers.
template <class P, class F, bool Norm, Reads R, class Job, class Out, class Multiply>
__device__ __forceinline__ void finish(uint8_t* memory, const tiles::Span& units, const Job& job, const X& x, int K, Out& out, int near_bytes,
                                       const Multiply& multiply, float (*square)[tiles::kRows]) {
  const tiles::Span span = tiles::in_steps<F>(units);
  float* weights = reinterpret_cast<float*>(memory + x.rows * 4 * K);
  if (Norm) tiles::fetch_const(span, weights, x.norm);
  ptx::wait_for_predecessor();
  if constexpr (R == Reads::kDirect) {
    tiles::DirectOf<F> direct(x.x, x.rows, K, units);
    multiply(std::false_type(), direct);
    return;
  }
  const auto go = [&](auto& part) { multiply(std::false_type(), part); };
  if (Norm || R == Reads::kAll || x.rows * 4 * K <= near_bytes) {
    tiles::NearOf<F> near{{memory, x.rows}};
    for (int r = 0; r < x.rows; r++) near.fetch(span, r, x.x + int64_t(x.from ? x.from[r] : r) * K);
    near.template split<Norm>(span, weights, x.plus_one, square);
    go(near);
  } else if constexpr (!Norm && R == Reads::kAny) {
    tiles::Window<P, F> window(memory, x.x, x.rows, K);
    window.fetch(units.lo, min(P::D, units.hi - units.lo));
    go(window);
  }
}

// run multiplies. Of panels, x is brought to shared memory once, behind the ring's bytes, or streams. Otherwise x is split once where it
// takes at most near_bytes, and must be where there is a norm.
template <class P, class F, bool Norm, Reads R, class Job, class Out>
__device__ __forceinline__ void run(const Job& job, const X& x, int K, Sums<P, F>& s, Out& out, int near_bytes, int ring) {
  extern __shared__ __align__(128) uint8_t memory[];
  if constexpr (F::kPanel == 1) {
    tiles::Flow<P, F> flow(job);
    finish<P, F, Norm, R>(
        memory, flow.span, job, x, K, out, near_bytes, [&](auto wide, auto& part) { tiles::multiply<decltype(wide)::value>(flow, part, s, job, out); }, s.square);
  } else {
    constexpr bool kWide = P::R > tiles::kRows / 2;
    __shared__ tiles::RingShared<P> shared;
    tiles::Ring<P, F> flow(job, shared, memory, ring, x.rows);
    if constexpr (P::kStreams) {
      static_assert(!Norm);
      ptx::wait_for_predecessor();
      flow.begin_x(job, x.x, K);
      tiles::Streamed part;
      tiles::multiply<kWide>(flow, shared, part, s, job, out);
    } else {
      using Resident = tiles::Resident<F, kWide>;
      const tiles::Span span = tiles::in_steps<F>(flow.span);
      typename Resident::Norm norm = {};
      if (Norm) norm.load(span, span.lo, x.norm);
      ptx::wait_for_predecessor();
      Resident part{{memory + ring, x.rows}};
      part.template bring<Norm>(span, [&](int r) { return x.x + int64_t(x.from ? x.from[r] : r) * K; }, K, norm, x.norm, x.plus_one, s.square);
      tiles::multiply<kWide>(flow, shared, part, s, job, out);
    }
  }
}

// Block is which 8 rows of x a block takes, and which share of the weights. Blocks of one share and other rows are neighbours, so
// what they stream comes from memory once.
struct Block {
  int group;
  unsigned at, all;  // of shares
  __device__ __forceinline__ Block() {
    const unsigned i = blockIdx.y * gridDim.x + blockIdx.x;
    group = int(i % gridDim.y), at = i / gridDim.y, all = gridDim.x;
  }
  __device__ __forceinline__ tiles::Share share(unsigned count) const { return {int(at * count / all), int((at + 1) * count / all)}; }
  // of are the block's rows of x.
  __device__ __forceinline__ X of(X x, int K) const {
    const int before = group * tiles::kRows;
    x.rows = max(0, min(x.rows - before, tiles::kRows));
    if (x.from)
      x.from += before;
    else
      x.x += int64_t(before) * K;
    return x;
  }
};

// stack is the body of linear, linear_add, linear_n.
template <class P, class F, bool Norm, bool Add, bool Convolve = false, Reads R = Reads::kAny>
__device__ __forceinline__ void stack(const X& x, const Stack<F>& m, int K, const Conv& conv = {}, int near_bytes = kNear,
                                      int ring = 0) {
  __shared__ Sums<P, F> s;
  if (F::kPanel == 1) ptx::start_successor();  // a ring does
  if constexpr (F::kPanel == 1) {
    const tiles::Share units((m.rows() + 7) / 8);
    const StackJob<F> job{m, units.lo * 8, min(units.hi * 8, m.rows()), K};
    StackOut<Sums<P, F>, P, F, Norm, Add, Convolve> out{s, m, job.lo, job.hi, x.rows, K, x.eps, conv};
    run<P, F, Norm, R>(job, x, K, s, out, near_bytes, ring);
  } else {
    const Block block;
    const X mine = block.of(x, K);
    Stack<F> part = m;
#pragma unroll
    for (int i = 0; i < 4; i++) part.y[i] += int64_t(block.group) * tiles::kRows * m.n[i];
    const tiles::Share units = block.share(m.rows() / 8);
    const StackJob<F> job{part, units.lo * 8, mine.rows > 0 ? units.hi * 8 : units.lo * 8, K};
    StackOut<Sums<P, F>, P, F, Norm, Add, Convolve> out{s, part, job.lo, job.hi, mine.rows, K, x.eps, conv};
    run<P, F, Norm, R>(job, mine, K, s, out, near_bytes, ring);
  }
}

// Gate and up matrices in step: every 16 rows of a tile are 8 of one and the same 8 of the other.
template <class F>
struct GluJob {
  static constexpr bool kFactors = false;
  static constexpr int kHalf = F::kTile / 2;
  typename F::Weights gate, up;
  int lo, hi, N, K;  // units of 8 rows of this block
  __device__ __forceinline__ int tiles() const { return ((hi - lo) * 8 + kHalf - 1) / kHalf; }
  __device__ __forceinline__ int steps() const { return K / (tiles::kStep * F::kSteps); }
  __device__ __forceinline__ int run(int) const { return 1 << 30; }
  __device__ __forceinline__ int panels(int tile) const { return 2 * min(kHalf / 8, hi - lo - tile * (kHalf / 8)); }
  __device__ __forceinline__ const void* row(int tile, int r, int unit) const {
    const int row = within<F>(lo * 8 + tile * kHalf, (r >> 4) * 8 + (r & 7), min(hi * 8, N));
    return F::row(r & 8 ? up : gate, row, K, unit);
  }
};

template <class S, class P, class F, bool Norm, class Act>
struct GluOut {
  static constexpr int kHalf = F::kTile / 2;
  using Mine = Outputs<S, P, kHalf>;
  static constexpr int kEach = Mine::kEach;
  const S& s;
  float* y;
  int lo, hi, N, rows, K;
  float eps;
  const float *gate_scale, *up_scale;      // [N], or null; only if F::kScaled
  float gate_of[kEach], up_of[kEach];
  __device__ __forceinline__ bool place(int i, int first, int n, int& tile, int& r, int& col, int& row) const {
    const bool is = Mine::place(i, first, n, rows, tile, r, col);
    row = lo * 8 + tile * kHalf + r;
    return is && row < min(hi * 8, N);
  }
  __device__ __forceinline__ void begin(int first, int n) {
#pragma unroll
    for (int i = 0; F::kScaled && i < kEach; i++) {
      int tile, r, col, row;
      if (!place(i, first, n, tile, r, col, row)) continue;
      gate_of[i] = gate_scale ? gate_scale[row] : 1, up_of[i] = up_scale ? up_scale[row] : 1;
    }
  }
  __device__ __forceinline__ void emit(int first, int n) {
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      int tile, r, col, row;
      if (!place(i, first, n, tile, r, col, row)) continue;
      const float f = Norm ? tiles::norm_factor(s, col, K, eps) : 1.0f;
      const int at = (r & -8) * 2 + (r & 7);
      float g = f * tiles::total(s, tile, first, at, col), u = f * tiles::total(s, tile, first, at + 8, col);
      if (F::kScaled) g *= gate_of[i], u *= up_of[i];
      y[int64_t(col) * N + row] = Act::of(g) * u;
    }
  }
};

template <class P, class F, bool Norm, class Act>
__device__ __forceinline__ void gate_up(const X& x, typename F::Weights gate, typename F::Weights up, float* y, int N, int K,
                                        const float* gate_scale = nullptr, const float* up_scale = nullptr, int near_bytes = kNear, int ring = 0) {
  __shared__ Sums<P, F> s;
  if (F::kPanel == 1) ptx::start_successor();  // a ring does
  if constexpr (F::kPanel == 1) {
    const tiles::Share units((N + 7) / 8);
    const GluJob<F> job{gate, up, units.lo, units.hi, N, K};
    GluOut<Sums<P, F>, P, F, Norm, Act> out{s, y, units.lo, units.hi, N, x.rows, K, x.eps};
    run<P, F, Norm, Reads::kAny>(job, x, K, s, out, near_bytes, ring);
  } else {
    const Block block;
    const X mine = block.of(x, K);
    const tiles::Share units = block.share(N / 8);
    const GluJob<F> job{gate, up, units.lo, mine.rows > 0 ? units.hi : units.lo, N, K};
    GluOut<Sums<P, F>, P, F, Norm, Act> out{s, y + int64_t(block.group) * tiles::kRows * N, job.lo, job.hi, N, mine.rows, K, x.eps, gate_scale, up_scale};
    run<P, F, Norm, Reads::kAny>(job, mine, K, s, out, near_bytes, ring);
  }
}

}  // namespace rows
