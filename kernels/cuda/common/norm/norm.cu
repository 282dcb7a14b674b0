// SPDX-License-Identifier: MIT OR Apache-2.0
// Family norm: a segment is group consecutive elements of a row. A block of up to 32 warps norms one, or each of its 8 warps one of at
// most 256 elements. Squares of a quad are summed in float32 and those sums in float64, as their error would scale the whole
// segment. All else is float32.
//
// What takes time is the way of loads, so a thread holds its first quads of all arrays; weights come before it waits for the
// predecessor:
//
//	quad    0 1 … T-1 | T … 2T-1 | 2T …         T threads
//	        first[0]    first[1]   read again

#include "copy/vector.cuh"
#include "epilogue/act.cuh"
#include "reduce/warp.cuh"
#include "step.cuh"

constexpr int kHeld = 2, kOneWarp = 256;

struct quad {
  float at[4];
};

template <bool Aligned>
__device__ __forceinline__ quad get(const float* p, int n) {
  const vec<float, 4> v = Aligned ? load<4>(p) : load_some<4>(p, n);
  return {{v.at[0], v.at[1], v.at[2], v.at[3]}};
}

// get_early stays where the code has it.
template <bool Aligned>
__device__ __forceinline__ quad get_early(const float* p, int n) {
  if (Aligned) {
    const float4 v = ptx::load_early(reinterpret_cast<const float4*>(p));
    return {{v.x, v.y, v.z, v.w}};
  }
  quad v = {};
#pragma unroll
  for (int j = 0; j < 4; j++)
    if (j < n) v.at[j] = ptx::load_early(p + j);
  return v;
}

template <bool Aligned>
__device__ __forceinline__ void put(float* p, const quad& v, int n) {
  if (Aligned) {
    store(p, vec<float, 4>{{v.at[0], v.at[1], v.at[2], v.at[3]}});
  } else {
#pragma unroll
    for (int j = 0; j < 4; j++)
      if (j < n) p[j] = v.at[j];
  }
}

// Held is a segment of an array, of which the thread holds its first quads.
struct Held {
  const float* p;  // may be null
  quad first[kHeld];
};

// Segment is the thread's part of a segment of n elements, which begins at a whole quad if it is Aligned.
template <bool Aligned>
struct Segment {
  int64_t index;  // of all segments
  int n, thread, threads;

  __device__ __forceinline__ explicit Segment(int group) : n(group) {
    const bool one = group <= kOneWarp;
    index = one ? int64_t(blockIdx.x) * (blockDim.x / 32) + warp_id() : int64_t(blockIdx.x);
    thread = one ? lane_id() : int(threadIdx.x), threads = one ? 32 : int(blockDim.x);
  }

  __device__ __forceinline__ Held hold(const float* p) const {
    Held h = {p, {}};
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
      const int at = 4 * (thread + i * threads);
      if (at < n) h.first[i] = get<Aligned>(p + at, n - at);
    }
    return h;
  }
  // The same of weights, at once; p may be null.
  __device__ __forceinline__ Held hold_early(const float* p) const {
    Held h = {p, {}};
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
      const int at = 4 * (thread + i * threads);
      if (p && at < n) h.first[i] = get_early<Aligned>(p + at, n - at);
    }
    return h;
  }

  // each calls f(at, q, of) for the thread's quads: q says how many of four are real, of(held) is an array's quad.
  template <class F>
  __device__ __forceinline__ void each(F f) const {
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
      const int at = 4 * (thread + i * threads);
      if (at < n) f(at, n - at, [&](auto& h) -> auto& { return h.first[i]; });
    }
    for (int at = 4 * (thread + kHeld * threads); at < n; at += 4 * threads)
      f(at, n - at, [&](auto& h) -> quad { return get<Aligned>(h.p + at, n - at); });
  }

  // sum adds over the segment's threads: over lanes, then over warps.
  __device__ __forceinline__ double sum(double v) const {
    v = warp_sum(v);
    if (n <= kOneWarp) return v;
    __shared__ double sums[32];
    __syncthreads();  // they may be read yet
    if (lane_id() == 0) sums[warp_id()] = v;
    __syncthreads();
    return across(sums);
  }
  // The same, once in a kernel.
  __device__ __forceinline__ double sum_once(double v) const {
    v = warp_sum(v);
    if (n <= kOneWarp) return v;
    __shared__ double sums[32];
    if (lane_id() == 0) sums[warp_id()] = v;
    __syncthreads();
    return across(sums);
  }
  __device__ __forceinline__ double across(const double* sums) const {
    const int warps = threads / 32;
    if (warps <= 8) return warp_sum<8>(lane_id() % 8 < warps ? sums[lane_id() % 8] : 0);
    return warp_sum(lane_id() < warps ? sums[lane_id()] : 0);
  }
};

__device__ __forceinline__ double squares(const quad& v) {
  return double((v.at[0] * v.at[0] + v.at[1] * v.at[1]) + (v.at[2] * v.at[2] + v.at[3] * v.at[3]));
}

template <bool Aligned>
__device__ __forceinline__ double squares(const Segment<Aligned>& g, const Held& x) {
  double s = 0;
  g.each([&](int, int, auto of) { s += squares(of(x)); });
  return g.sum_once(s);
}

// one_over errs by 2^-24, and takes no branch.
__device__ __forceinline__ double one_over(int n) {
  const float r = __fdividef(1.0f, float(n));
  return fmaf(r, fmaf(-float(n), r, 1.0f), r);
}

// inverse_root errs by 2^-23: an approximation and a step of Newton.
__device__ __forceinline__ float inverse_root(double mean, float eps) {
  const float m = float(mean + double(eps)), r = rsqrtf(m);
  return fmaf(0.5f * r, fmaf(-m * r, r, 1.0f), r);
}

template <bool Aligned>
__device__ __forceinline__ void rms(const Segment<Aligned>& g, const Held& x, const Held& w, float* y, double mean, float eps, float plus, float scale) {
  const float r = inverse_root(squares(g, x) * mean, eps) * scale;
  g.each([&](int at, int q, auto of) {
    quad v = of(x);
    if (!w.p) {
#pragma unroll
      for (int j = 0; j < 4; j++) v.at[j] *= r;
    } else {
      const quad f = of(w);
#pragma unroll
      for (int j = 0; j < 4; j++) v.at[j] = v.at[j] * r * (f.at[j] + plus);
    }
    put<Aligned>(y + at, v, q);
  });
}

// spanned is the part of w that goes with the segment; w has one for each of span segments in turn.
template <bool Aligned>
__device__ __forceinline__ const float* spanned(const Segment<Aligned>& g, const float* w, int span) {
  return w && span > 1 ? w + g.index % span * g.n : w;
}

// Early is what a kernel has read before it waited for its predecessor: of the weights, and the segments of this step.
struct Early {
  Held w;
  int64_t segments;
};

template <bool Aligned>
__device__ __forceinline__ Early enter(const Segment<Aligned>& g, const int32_t* count, int n, const float* w) {
  return begin([&] { return Early{g.hold_early(w), int64_t(ptx::load_early(count)) * (n / g.n)}; });
}

template <bool Aligned>
__device__ __forceinline__ void rms_norm_of(const int32_t* count, const float* x, const float* w, float* y, int n, int group, int span, float eps,
                                            float plus, float scale) {
  const Segment<Aligned> g(group);
  const double mean = one_over(group);
  const Early e = enter(g, count, n, spanned(g, w, span));
  if (g.index >= e.segments) return;
  const int64_t base = g.index * group;
  rms(g, g.hold(x + base), e.w, y + base, mean, eps, plus, scale);
}

extern "C" __global__ void __launch_bounds__(1024, 1) rms_norm(const int32_t* __restrict__ count,  // [1] rows of this step
                                                            const float* x,                     // [rows, n]
                                                            const float* __restrict__ w,        // [span*group], or null
                                                            float* y,                           // [rows, n], may be x
                                                            int32_t n, int32_t group, int32_t span, float eps, int32_t plus_one, float scale) {
  if (group % 4 == 0)
    rms_norm_of<true>(count, x, w, y, n, group, span, eps, plus_one, scale);
  else
    rms_norm_of<false>(count, x, w, y, n, group, span, eps, plus_one, scale);
}

template <bool Aligned>
__device__ __forceinline__ void add_rms_norm_of(const int32_t* count, float* x, const float* d, const float* w, float* y, int n, int group, int span,
                                                float eps, float plus) {
  const Segment<Aligned> g(group);
  const double mean = one_over(group);
  const Early e = enter(g, count, n, spanned(g, w, span));
  if (g.index >= e.segments) return;
  const int64_t base = g.index * group;
  Held sum = g.hold(x + base);
  const Held more = g.hold(d + base);
  g.each([&](int at, int q, auto of) {
    auto&& v = of(sum);
    const quad u = of(more);
#pragma unroll
    for (int j = 0; j < 4; j++) v.at[j] += u.at[j];
    put<Aligned>(x + base + at, v, q);
  });
  rms(g, sum, e.w, y + base, mean, eps, plus, 1.0f);
}

// To the bit what add and rms_norm give: each thread norms what it has added.
extern "C" __global__ void __launch_bounds__(1024, 1) add_rms_norm(const int32_t* __restrict__ count,  // [1] rows of this step
                                                                float* x,                           // [rows, n] x += d
                                                                const float* __restrict__ d,        // [rows, n]
                                                                const float* __restrict__ w,        // [span*group], or null
                                                                float* __restrict__ y,              // [rows, n] norm of the sum
                                                                int32_t n, int32_t group, int32_t span, float eps, int32_t plus_one) {
  if (group % 4 == 0)
    add_rms_norm_of<true>(count, x, d, w, y, n, group, span, eps, plus_one);
  else
    add_rms_norm_of<false>(count, x, d, w, y, n, group, span, eps, plus_one);
}

template <bool Aligned>
__device__ __forceinline__ void norm_add_of(const int32_t* count, float* x, const float* d, const float* w, const float* next, float* y, int n, float eps,
                                            float plus) {
  const Segment<Aligned> g(n);
  const double mean = one_over(n);
  const Early e = enter(g, count, n, w);
  if (g.index >= e.segments) return;
  const int64_t base = g.index * n;
  Held sum = g.hold(x + base);
  const Held more = g.hold(d + base);
  const float r = inverse_root(squares(g, more) * mean, eps);
  double square = 0;
  g.each([&](int at, int q, auto of) {
    auto&& v = of(sum);
    const quad u = of(more), f = of(e.w);
#pragma unroll
    for (int j = 0; j < 4; j++) v.at[j] += u.at[j] * r * (f.at[j] + plus);
    put<Aligned>(x + base + at, v, q);
    square += squares(v);
  });
  if (!y) return;
  const Held after = g.hold(next);
  const float s = inverse_root(g.sum(square) * mean, eps);
  g.each([&](int at, int q, auto of) {
    quad v = of(sum);
    const quad f = of(after);
#pragma unroll
    for (int j = 0; j < 4; j++) v.at[j] = v.at[j] * s * (f.at[j] + plus);
    put<Aligned>(y + base + at, v, q);
  });
}

// x += rms_norm(d), and what a norm of that is, if y is there: of layers that norm what they add.
extern "C" __global__ void __launch_bounds__(1024, 1) norm_add(const int32_t* __restrict__ count,    // [1] rows of this step
                                                            float* x,                             // [rows, n]
                                                            const float* __restrict__ d,          // [rows, n]
                                                            const float* __restrict__ w,          // [n]
                                                            const float* __restrict__ next,       // [n], or null
                                                            float* __restrict__ y,                // [rows, n], or null
                                                            int32_t n, float eps, int32_t plus_one) {
  if (n % 4 == 0)
    norm_add_of<true>(count, x, d, w, next, y, n, eps, plus_one);
  else
    norm_add_of<false>(count, x, d, w, next, y, n, eps, plus_one);
}

template <bool Aligned>
__device__ __forceinline__ void l2_norm_of(const int32_t* count, const float* x, float* y, int n, int group, float eps, float scale) {
  const Segment<Aligned> g(group);
  const Early e = enter(g, count, n, nullptr);
  if (g.index >= e.segments) return;
  const int64_t base = g.index * group;
  rms(g, g.hold(x + base), e.w, y + base, 1, eps, 0, scale);
}

extern "C" __global__ void __launch_bounds__(1024, 1) l2_norm(const int32_t* __restrict__ count,  // [1] rows of this step
                                                           const float* x,                     // [rows, n]
                                                           float* y,                           // [rows, n], may be x
                                                           int32_t n, int32_t group, float eps, float scale) {
  if (group % 4 == 0)
    l2_norm_of<true>(count, x, y, n, group, eps, scale);
  else
    l2_norm_of<false>(count, x, y, n, group, eps, scale);
}

// Takes the mean away first; deviations are rounded to float32.
template <bool Aligned>
__device__ __forceinline__ void layer_norm_of(const int32_t* count, const float* x, const float* w, const float* bias, float* y, int n, int group,
                                              float eps) {
  const Segment<Aligned> g(group);
  const Early e = enter(g, count, n, w);
  if (g.index >= e.segments) return;
  const int64_t base = g.index * group;
  const Held v = g.hold(x + base);
  const double each = one_over(group);
  double s = 0;
  g.each([&](int, int, auto of) {
    const quad u = of(v);
#pragma unroll
    for (int j = 0; j < 4; j++) s += double(u.at[j]);
  });
  const double mean = g.sum(s) * each;
  const auto deviations = [&](quad u, int q) {
#pragma unroll
    for (int j = 0; j < 4; j++) u.at[j] = j < q ? float(double(u.at[j]) - mean) : 0.0f;
    return u;
  };
  s = 0;
  g.each([&](int, int q, auto of) { s += squares(deviations(of(v), q)); });
  const float r = inverse_root(g.sum(s) * each, eps);
  const Held b = g.hold_early(bias);  // not before: sums in float64 want the registers
  g.each([&](int at, int q, auto of) {
    quad u = deviations(of(v), q);
    if (w) {
      const quad f = of(e.w);
#pragma unroll
      for (int j = 0; j < 4; j++) u.at[j] = u.at[j] * r * f.at[j];
    } else {
#pragma unroll
      for (int j = 0; j < 4; j++) u.at[j] *= r;
    }
    if (bias) {
      const quad c = of(b);
#pragma unroll
      for (int j = 0; j < 4; j++) u.at[j] += c.at[j];
    }
    put<Aligned>(y + base + at, u, q);
  });
}

extern "C" __global__ void __launch_bounds__(1024, 1) layer_norm(const int32_t* __restrict__ count,  // [1] rows of this step
                                                              const float* x,                     // [rows, n]
                                                              const float* __restrict__ w,        // [group], or null
                                                              const float* __restrict__ bias,     // [group], or null
                                                              float* y,                           // [rows, n], may be x
                                                              int32_t n, int32_t group, float eps) {
  if (group % 4 == 0)
    layer_norm_of<true>(count, x, w, bias, y, n, group, eps);
  else
    layer_norm_of<false>(count, x, w, bias, y, n, group, eps);
}

template <class Act, bool Aligned>
__device__ __forceinline__ void gated_norm_of(const int32_t* count, const float* x, const float* z, const float* w, float* y, int n, int group,
                                              float eps) {
  const Segment<Aligned> g(group);
  const double mean = one_over(group);
  const Early e = enter(g, count, n, w);
  if (g.index >= e.segments) return;
  const int64_t base = g.index * group;
  const Held v = g.hold(x + base), gate = g.hold(z + base);
  const float r = inverse_root(squares(g, v) * mean, eps);
  g.each([&](int at, int q, auto of) {
    quad u = of(v);
    const quad a = of(gate), f = of(e.w);
#pragma unroll
    for (int j = 0; j < 4; j++) u.at[j] = u.at[j] * r * f.at[j] * Act::of(a.at[j]);
    put<Aligned>(y + base + at, u, q);
  });
}

#define GATED_NORM(ACT)                                                                                                          \
  extern "C" __global__ void __launch_bounds__(1024, 1) gated_norm_##ACT(const int32_t* __restrict__ count, /* [1] rows */          \
                                                                      const float* x,                    /* [rows, n] */         \
                                                                      const float* z,                    /* [rows, n] gate */    \
                                                                      const float* __restrict__ w,       /* [group] */           \
                                                                      float* y,                          /* [rows, n], may be x or z */ \
                                                                      int32_t n, int32_t group, float eps) {                     \
    if (group % 4 == 0)                                                                                                          \
      gated_norm_of<act::quick_##ACT, true>(count, x, z, w, y, n, group, eps);                                                           \
    else                                                                                                                         \
      gated_norm_of<act::quick_##ACT, false>(count, x, z, w, y, n, group, eps);                                                          \
  }

GATED_NORM(silu)
GATED_NORM(sigmoid)
