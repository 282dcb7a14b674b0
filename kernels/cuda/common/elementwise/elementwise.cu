// SPDX-License-Identifier: MIT OR Apache-2.0
// Family elementwise: each output element is a function of a few inputs. Arrays are flat [rows * n] of less than 2^32 elements,
// whose real length count gives; a thread computes four consecutive ones, as one 16-byte vector unless they end early.

#include "copy/vector.cuh"
#include "epilogue/quick_glu.cuh"
#include "step.cuh"

__device__ __forceinline__ uint32_t thread() { return blockIdx.x * blockDim.x + threadIdx.x; }

// begin_length begins a kernel, and gives how many elements of n a row this step has.
__device__ __forceinline__ uint32_t begin_length(const int32_t* count, int n) {
  return begin([&] { return uint32_t(ptx::load_early(count)) * uint32_t(n); });
}

// four are the thread's elements of an array of total.
__device__ __forceinline__ vec<float, 4> four(const float* x, uint32_t total) {
  const uint32_t i = thread() * 4;
  return i + 4 <= total ? load<4>(x + i) : load_some<4>(x + i, i < total ? int(total - i) : 0);
}

// map4 writes y[i] = f(i, j) for them; j counts from 0.
template <class F>
__device__ __forceinline__ void map4(float* y, uint32_t total, F f) {
  const uint32_t i = thread() * 4;
  if (i >= total) return;
  vec<float, 4> v;
#pragma unroll
  for (int j = 0; j < 4; j++) v.at[j] = f(min(i + j, total - 1), j);
  if (i + 4 <= total) {
    store(y + i, v);
  } else {
#pragma unroll
    for (int j = 0; j < 3; j++)
      if (i + j < total) y[i + j] = v.at[j];
  }
}

// x += y
extern "C" __global__ void add(const int32_t* __restrict__ count,  // [1] rows of this step
                               float* __restrict__ x,              // [rows, n]
                               const float* __restrict__ y,        // [rows, n]
                               int32_t n) {
  const uint32_t total = begin_length(count, n);
  const vec<float, 4> a = four(x, total), b = four(y, total);
  map4(x, total, [&](uint32_t, int j) { return a.at[j] + b.at[j]; });
}

// y = act(g) * u, within limits
#define GLU(ACT)                                                                              \
  extern "C" __global__ void glu_##ACT(const int32_t* __restrict__ count, /* [1] rows */      \
                                       const float* g,                    /* [rows, n] */     \
                                       const float* u,                    /* [rows, n] */     \
                                       float* y,                          /* [rows, n] */     \
                                       int32_t n, float limit) {                              \
    const uint32_t total = begin_length(count, n);                                            \
    const vec<float, 4> a = four(g, total), b = four(u, total);                               \
    map4(y, total, [&](uint32_t, int j) { return quick_glu::ACT::of(a.at[j], b.at[j], limit); });   \
  }

GLU(silu)
GLU(gelu_tanh)
GLU(silu_then_limit)
GLU(swiglu_oai)

// y = act(x)
#define ACT(ACT)                                                                              \
  extern "C" __global__ void act_##ACT(const int32_t* __restrict__ count, /* [1] rows */      \
                                       const float* x,                    /* [rows, n] */     \
                                       float* y,                          /* [rows, n] */     \
                                       int32_t n) {                                           \
    const uint32_t total = begin_length(count, n);                                            \
    const vec<float, 4> a = four(x, total);                                                   \
    map4(y, total, [&](uint32_t, int j) { return act::ACT::of(a.at[j]); });                   \
  }

ACT(silu)
ACT(gelu)
ACT(gelu_tanh)
ACT(relu2)

// x *= act(g), each g for n/m consecutive x
#define GATE(ACT)                                                                             \
  extern "C" __global__ void gate_##ACT(const int32_t* __restrict__ count, /* [1] rows */     \
                                        float* __restrict__ x,             /* [rows, n] */    \
                                        const float* __restrict__ g,       /* [rows, m] */    \
                                        int32_t n, int32_t m) {                               \
    const uint32_t total = begin_length(count, n);                                            \
    const uint32_t per = uint32_t(n) / uint32_t(m);                                                                    \
    const vec<float, 4> a = four(x, total);                                                   \
    map4(x, total, [&](uint32_t i, int j) { return a.at[j] * act::ACT::of(g[i / per]); });     \
  }

GATE(sigmoid)
GATE(silu)
GATE(softplus)

// Parts each group of a+b elements.
extern "C" __global__ void split(const int32_t* __restrict__ count,  // [1] rows of this step
                                 const float* __restrict__ x,        // [rows, groups*(a+b)]
                                 float* __restrict__ y0,             // [rows, groups*a]
                                 float* __restrict__ y1,             // [rows, groups*b]
                                 uint32_t groups, uint32_t a, uint32_t b) {
  const uint32_t total = begin_length(count, groups * (a + b)), i = thread() * 4;
  const vec<float, 4> v = four(x, total);
  auto place = [&](uint32_t i) {
    const uint32_t group = i / uint32_t(a + b), at = i % uint32_t(a + b);
    return at < a ? y0 + group * a + at : y1 + group * b + (at - a);
  };
  if (a % 4 == 0 && b % 4 == 0) {
    if (i < total) store(place(i), v);
  } else {
#pragma unroll
    for (int j = 0; j < 4; j++)
      if (i + j < total) *place(i + j) = v.at[j];
  }
}

// Puts groups of a and b elements together, a thread four elements of y.
extern "C" __global__ void join(const int32_t* __restrict__ count,  // [1] rows of this step
                                const float* __restrict__ x0,       // [rows, groups*a]
                                const float* __restrict__ x1,       // [rows, groups*b]
                                float* __restrict__ y,              // [rows, groups*(a+b)]
                                uint32_t groups, uint32_t a, uint32_t b) {
  const uint32_t total = begin_length(count, groups * (a + b)), i = thread() * 4;
  auto place = [&](uint32_t i) {
    const uint32_t group = i / (a + b), at = i % (a + b);
    return at < a ? x0 + group * a + at : x1 + group * b + (at - a);
  };
  if (a % 4 == 0 && b % 4 == 0) {
    if (i < total) store(y + i, load<4>(place(i)));
  } else {
#pragma unroll
    for (int j = 0; j < 4; j++)
      if (i + j < total) y[i + j] = *place(i + j);
  }
}

// row4 calls f(i, q) for this thread's four elements of a row of n: q is how many are real, and rows of whole quads are aligned.
template <class F>
__device__ __forceinline__ void row4(int n, F f) {
  const int at = int(thread()) * 4;
  if (at < n) f(at, n - at);
}

// y[i] = x[from[i]]. Grid: n/1024, rows or outs.
extern "C" __global__ void gather_rows(const int32_t* __restrict__ count,  // [1] rows of y in this step
                                       const float* __restrict__ x,        // [any, n]
                                       const int32_t* __restrict__ from,   // [rows of y]
                                       float* __restrict__ y,              // [rows of y, n]
                                       int32_t n) {
  begin();
  const int row = blockIdx.y;
  if (row >= *count) return;
  x += int64_t(from[row]) * n;
  y += int64_t(row) * n;
  row4(n, [&](int at, int q) {
    if (n % 4 == 0) {
      store(y + at, load<4>(x + at));
    } else {
      for (int i = at; i < at + min(q, 4); i++) y[i] = x[i];
    }
  });
}

// x[i] = pool[from[i]], or that added to it; x[i] stays where from is negative. Grid: n/1024, rows.
#define PUT_FEATURES(MODE, OP)                                                                            \
  extern "C" __global__ void put_features_##MODE(const int32_t* __restrict__ count, /* [1] rows */        \
                                                 float* __restrict__ x,             /* [rows, n] */       \
                                                 const float* __restrict__ pool,    /* [S, n] */          \
                                                 const int32_t* __restrict__ from,  /* [rows] */          \
                                                 int32_t n) {                                             \
    begin();                                                                                              \
    const int row = blockIdx.y;                                                                           \
    if (row >= *count || from[row] < 0) return;                                                           \
    pool += int64_t(from[row]) * n;                                                                       \
    x += int64_t(row) * n;                                                                                \
    row4(n, [&](int at, int q) {                                                                          \
      for (int i = at; i < at + min(q, 4); i++) x[i] OP pool[i];                                          \
    });                                                                                                   \
  }

PUT_FEATURES(replace, =)
PUT_FEATURES(add, +=)

// y[i] = rows fold*i to fold*(i+1) of x, which lie as they are.
extern "C" __global__ void fold_rows(const int32_t* __restrict__ outs,  // [1] outputs of this step
                                     const float* __restrict__ x,       // [rows, n]
                                     float* __restrict__ y,             // [outs, fold*n]
                                     int32_t n) {                       // fold*n
  const uint32_t total = begin_length(outs, n);
  const vec<float, 4> a = four(x, total);
  map4(y, total, [&](uint32_t, int j) { return a.at[j]; });
}

// x = x * w * factor, w going over each group of x; a null w is all ones
extern "C" __global__ void scale(const int32_t* __restrict__ count,  // [1] rows of this step
                                 float* __restrict__ x,              // [rows, n]
                                 const float* __restrict__ w,        // [group], or null
                                 int32_t n, float factor, int32_t group) {
  const uint32_t total = begin_length(count, n);
  const vec<float, 4> a = four(x, total);
  map4(x, total, [&](uint32_t i, int j) { return w ? a.at[j] * factor * w[i % uint32_t(group)] : a.at[j] * factor; });
}

// x = cap*tanh(x/cap)
extern "C" __global__ void softcap(const int32_t* __restrict__ count,  // [1] rows of this step
                                   float* __restrict__ x,              // [rows, n]
                                   int32_t n, float cap) {
  const uint32_t total = begin_length(count, n);
  const vec<float, 4> a = four(x, total);
  map4(x, total, [&](uint32_t, int j) { return cap * tanhf(a.at[j] / cap); });
}

// n elements of each row, from one on. Grid: n/1024, rows.
extern "C" __global__ void slice(const int32_t* __restrict__ count,  // [1] rows of this step
                                 const float* __restrict__ x,        // [rows, m]
                                 float* __restrict__ y,              // [rows, n]
                                 int32_t m, int32_t n, int32_t from) {
  begin();
  const int row = blockIdx.y;
  if (row >= *count) return;
  x += int64_t(row) * m + from;
  y += int64_t(row) * n;
  row4(n, [&](int at, int q) {
    if (n % 4 == 0 && m % 4 == 0 && from % 4 == 0) {
      store(y + at, load<4>(x + at));
    } else {
      for (int i = at; i < at + min(q, 4); i++) y[i] = x[i];
    }
  });
}

// x *= 1 + beta*ln(1+floor(p/period))
extern "C" __global__ void position_scale(const int32_t* __restrict__ count,      // [1] rows of this step
                                          const int32_t* __restrict__ positions,  // [rows]
                                          float* __restrict__ x,                  // [rows, n]
                                          int32_t n, float beta, int32_t period) {
  const uint32_t total = begin_length(count, n);
  const vec<float, 4> a = four(x, total);
  map4(x, total, [&](uint32_t i, int j) { return a.at[j] * fmaf(beta, logf(float(1 + positions[i / uint32_t(n)] / period)), 1.0f); });
}

// g = -exp(a_log)*softplus(a+dt_bias), or floor*sigmoid(exp(a_log)*(a+dt_bias)) if there is a floor; beta = sigmoid(b).
// n is h*channels; beta's threads are among g's.
extern "C" __global__ void delta_gates(const int32_t* __restrict__ count,  // [1] rows of this step
                                       const float* __restrict__ a,        // [rows, n]
                                       const float* __restrict__ b,        // [rows, h]
                                       const float* __restrict__ a_log,    // [h]
                                       const float* __restrict__ dt_bias,  // [n]
                                       float* __restrict__ g,              // [rows, n] log of the decay
                                       float* __restrict__ beta,           // [rows, h]
                                       int32_t h, int32_t n, float floor) {
  const uint32_t rows = begin_length(count, 1), total = rows * uint32_t(n), few = rows * uint32_t(h);
  const vec<float, 4> u = four(a, total), v = four(b, few);
  map4(g, total, [&](uint32_t i, int j) {
    const uint32_t at = i % uint32_t(n);
    const float x = u.at[j] + dt_bias[at], e = expf(a_log[at / uint32_t(n / h)]);
    return floor != 0 ? floor * act::sigmoid::of(e * x) : -e * act::softplus::of(x);
  });
  map4(beta, few, [&](uint32_t, int j) { return act::sigmoid::of(v.at[j]); });
}
