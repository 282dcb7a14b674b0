// SPDX-License-Identifier: MIT OR Apache-2.0
// Family norm: a segment is group consecutive elements of a row; a block of one to eight warps norms one. Squares are summed
// in float64: their error would scale the whole segment. All else is float32.

#include "copy/vector.cuh"
#include "epilogue/act.cuh"
#include "reduce/warp.cuh"
#include "step.cuh"

// each calls f(at, q) for this thread's quads of a segment of n elements that begins at base; q is how many of four are real.
// Segments that are whole quads are aligned to them.
template <class F>
__device__ __forceinline__ void each(int64_t base, int n, F f) {
  for (int i = threadIdx.x * 4; i < n; i += blockDim.x * 4) f(base + i, n - i);
}

struct quad {
  float at[4];
};

template <bool Aligned>
__device__ __forceinline__ quad get(const float* p, int n) {
  const vec<float, 4> v = Aligned ? load<4>(p) : load_some<4>(p, n);
  return {{v.at[0], v.at[1], v.at[2], v.at[3]}};
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

__device__ __forceinline__ double squares(const quad& v) {
  double s = 0;
#pragma unroll
  for (int j = 0; j < 4; j++) s += double(v.at[j]) * double(v.at[j]);
  return s;
}

__device__ __forceinline__ float inverse_root(double mean, float eps) { return 1.0f / sqrtf(float(mean + double(eps))); }

// weights is w of a segment, with plus added; a null w is all ones.
template <bool Aligned>
__device__ __forceinline__ quad weights(const float* w, float plus, int at, int n) {
  if (!w) return {{1.0f, 1.0f, 1.0f, 1.0f}};
  quad q = get<Aligned>(w + at, n);
#pragma unroll
  for (int j = 0; j < 4; j++) q.at[j] += plus;
  return q;
}

// rms norms the segment of n elements at base; w has a part for each of span segments in turn.
template <bool Aligned>
__device__ __forceinline__ void rms(const float* x, const float* w, float* y, int64_t base, int n, int span, float eps, float plus, float scale) {
  if (w) w += blockIdx.x % span * n;
  double s = 0;
  each(base, n, [&](int64_t at, int q) { s += squares(get<Aligned>(x + at, q)); });
  const float r = inverse_root(block_sum(s) / n, eps) * scale;
  each(base, n, [&](int64_t at, int q) {
    quad v = get<Aligned>(x + at, q);
    const quad f = weights<Aligned>(w, plus, int(at - base), q);
#pragma unroll
    for (int j = 0; j < 4; j++) v.at[j] = v.at[j] * r * f.at[j];
    put<Aligned>(y + at, v, q);
  });
}

// segment is the place of this block's segment, or -1 when the step has fewer rows.
__device__ __forceinline__ int64_t segment(const int32_t* count, int n, int group) {
  return int64_t(blockIdx.x) < int64_t(*count) * (n / group) ? int64_t(blockIdx.x) * group : -1;
}

extern "C" __global__ void rms_norm(const int32_t* __restrict__ count,  // [1] rows of this step
                                    const float* x,                     // [rows, n]
                                    const float* __restrict__ w,        // [span*group], or null
                                    float* y,                           // [rows, n], may be x
                                    int32_t n, int32_t group, int32_t span, float eps, int32_t plus_one, float scale) {
  begin();
  const int64_t base = segment(count, n, group);
  if (base < 0) return;
  if (group % 4 == 0)
    rms<true>(x, w, y, base, group, span, eps, plus_one, scale);
  else
    rms<false>(x, w, y, base, group, span, eps, plus_one, scale);
}

template <bool Aligned>
__device__ __forceinline__ void add_to(float* x, const float* d, int64_t base, int n) {
  each(base, n, [&](int64_t at, int q) {
    quad v = get<Aligned>(x + at, q);
    const quad u = get<Aligned>(d + at, q);
#pragma unroll
    for (int j = 0; j < 4; j++) v.at[j] += u.at[j];
    put<Aligned>(x + at, v, q);
  });
}

// To the bit what add and rms_norm give: each thread norms what it has added.
extern "C" __global__ void add_rms_norm(const int32_t* __restrict__ count,  // [1] rows of this step
                                        float* x,                           // [rows, n] x += d
                                        const float* __restrict__ d,        // [rows, n]
                                        const float* __restrict__ w,        // [span*group], or null
                                        float* __restrict__ y,              // [rows, n] norm of the sum
                                        int32_t n, int32_t group, int32_t span, float eps, int32_t plus_one) {
  begin();
  const int64_t base = segment(count, n, group);
  if (base < 0) return;
  if (group % 4 == 0) {
    add_to<true>(x, d, base, group);
    rms<true>(x, w, y, base, group, span, eps, plus_one, 1.0f);
  } else {
    add_to<false>(x, d, base, group);
    rms<false>(x, w, y, base, group, span, eps, plus_one, 1.0f);
  }
}

template <bool Aligned>
__device__ __forceinline__ void l2(const float* x, float* y, int64_t base, int n, float eps, float scale) {
  double s = 0;
  each(base, n, [&](int64_t at, int q) { s += squares(get<Aligned>(x + at, q)); });
  const float r = inverse_root(block_sum(s), eps) * scale;
  each(base, n, [&](int64_t at, int q) {
    quad v = get<Aligned>(x + at, q);
#pragma unroll
    for (int j = 0; j < 4; j++) v.at[j] *= r;
    put<Aligned>(y + at, v, q);
  });
}

extern "C" __global__ void l2_norm(const int32_t* __restrict__ count,  // [1] rows of this step
                                   const float* x,                     // [rows, n]
                                   float* y,                           // [rows, n], may be x
                                   int32_t n, int32_t group, float eps, float scale) {
  begin();
  const int64_t base = segment(count, n, group);
  if (base < 0) return;
  if (group % 4 == 0)
    l2<true>(x, y, base, group, eps, scale);
  else
    l2<false>(x, y, base, group, eps, scale);
}

// layer takes the mean away first; deviations are rounded to float32.
template <bool Aligned>
__device__ __forceinline__ void layer(const float* x, const float* w, const float* bias, float* y, int64_t base, int n, float eps) {
  double s = 0;
  each(base, n, [&](int64_t at, int q) {
    const quad v = get<Aligned>(x + at, q);
#pragma unroll
    for (int j = 0; j < 4; j++) s += double(v.at[j]);
  });
  const double mean = block_sum(s) / n;
  auto deviations = [&](int64_t at, int q) {
    quad v = get<Aligned>(x + at, q);
#pragma unroll
    for (int j = 0; j < 4; j++) v.at[j] = j < q ? float(double(v.at[j]) - mean) : 0.0f;
    return v;
  };
  s = 0;
  each(base, n, [&](int64_t at, int q) { s += squares(deviations(at, q)); });
  const float r = inverse_root(block_sum(s) / n, eps);
  each(base, n, [&](int64_t at, int q) {
    quad v = deviations(at, q);
    const quad f = weights<Aligned>(w, 0, int(at - base), q);
    quad b = {};
    if (bias) b = get<Aligned>(bias + (at - base), q);
#pragma unroll
    for (int j = 0; j < 4; j++) v.at[j] = v.at[j] * r * f.at[j] + b.at[j];
    put<Aligned>(y + at, v, q);
  });
}

extern "C" __global__ void layer_norm(const int32_t* __restrict__ count,  // [1] rows of this step
                                      const float* x,                     // [rows, n]
                                      const float* __restrict__ w,        // [group], or null
                                      const float* __restrict__ bias,     // [group], or null
                                      float* y,                           // [rows, n], may be x
                                      int32_t n, int32_t group, float eps) {
  begin();
  const int64_t base = segment(count, n, group);
  if (base < 0) return;
  if (group % 4 == 0)
    layer<true>(x, w, bias, y, base, group, eps);
  else
    layer<false>(x, w, bias, y, base, group, eps);
}

template <class Act, bool Aligned>
__device__ __forceinline__ void gated(const float* x, const float* z, const float* w, float* y, int64_t base, int n, float eps) {
  double s = 0;
  each(base, n, [&](int64_t at, int q) { s += squares(get<Aligned>(x + at, q)); });
  const float r = inverse_root(block_sum(s) / n, eps);
  each(base, n, [&](int64_t at, int q) {
    quad v = get<Aligned>(x + at, q);
    const quad g = get<Aligned>(z + at, q), f = weights<Aligned>(w, 0, int(at - base), q);
#pragma unroll
    for (int j = 0; j < 4; j++) v.at[j] = v.at[j] * r * f.at[j] * Act::of(g.at[j]);
    put<Aligned>(y + at, v, q);
  });
}

#define GATED_NORM(ACT)                                                                                \
  extern "C" __global__ void gated_norm_##ACT(const int32_t* __restrict__ count, /* [1] rows */        \
                                              const float* x,                    /* [rows, n] */       \
                                              const float* z,                    /* [rows, n] gate */  \
                                              const float* __restrict__ w,       /* [group] */         \
                                              float* y,                          /* [rows, n], may be x or z */ \
                                              int32_t n, int32_t group, float eps) {                   \
    begin();                                                                                           \
    const int64_t base = segment(count, n, group);                                                     \
    if (base < 0) return;                                                                              \
    if (group % 4 == 0)                                                                                \
      gated<act::ACT, true>(x, z, w, y, base, group, eps);                                             \
    else                                                                                               \
      gated<act::ACT, false>(x, z, w, y, base, group, eps);                                            \
  }

GATED_NORM(silu)
GATED_NORM(sigmoid)
