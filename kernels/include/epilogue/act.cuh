// SPDX-License-Identifier: MIT OR Apache-2.0
// Activations, named as plans name them. Their multiply-adds are explicit, so that a fused kernel rounds as its parts do.
#pragma once

#include <cmath>

namespace act {

struct none {
  __device__ __forceinline__ static float of(float x) { return x; }
};
struct sigmoid {
  __device__ __forceinline__ static float of(float x) { return 1.0f / (1.0f + expf(-x)); }
};
struct silu {
  __device__ __forceinline__ static float of(float x) { return x / (1.0f + expf(-x)); }
};
// The same two by the device's quotient, without a branch: it errs by 2^-22, and is 0 where the divisor is above 2^126.
struct quick_sigmoid {
  __device__ __forceinline__ static float of(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }
};
struct quick_silu {
  __device__ __forceinline__ static float of(float x) { return __fdividef(x, 1.0f + expf(-x)); }
};
// The tanh form: x*sigmoid(2*sqrt(2/π)*(x + 0.044715x³)).
struct gelu_tanh {
  __device__ __forceinline__ static float of(float x) {
    const float t = fmaf(-0.0713548162726f, __fmul_rn(x, x), -1.59576912160573f);
    return x / (1.0f + expf(__fmul_rn(x, t)));
  }
};
// The exact form: x*Φ(x).
struct gelu {
  __device__ __forceinline__ static float of(float x) { return 0.5f * x * erfcf(x * -0.707106781186548f); }
};
struct relu2 {
  __device__ __forceinline__ static float of(float x) { return fmaxf(x, 0.0f) * fmaxf(x, 0.0f); }
};
struct softplus {
  __device__ __forceinline__ static float of(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }
};

}  // namespace act

// Activations of a gate and what it opens. The gate is at most limit and u within ±limit, unless it is 0.
namespace glu {

__device__ __forceinline__ float clamped(float u, float limit) { return limit != 0 ? fminf(fmaxf(u, -limit), limit) : u; }
__device__ __forceinline__ float at_most(float g, float limit) { return limit != 0 ? fminf(g, limit) : g; }

template <class Act>
struct limited {
  __device__ __forceinline__ static float of(float g, float u, float limit) { return Act::of(at_most(g, limit)) * clamped(u, limit); }
};
using silu = limited<act::silu>;
using gelu_tanh = limited<act::gelu_tanh>;
using relu2 = limited<act::relu2>;

// The gate is limited after its activation.
struct silu_then_limit {
  __device__ __forceinline__ static float of(float g, float u, float limit) { return at_most(act::silu::of(g), limit) * clamped(u, limit); }
};
// g*sigmoid(1.702g) * (u + 1)
struct swiglu_oai {
  __device__ __forceinline__ static float of(float g, float u, float limit) {
    g = at_most(g, limit);
    return g * act::sigmoid::of(1.702f * g) * (clamped(u, limit) + 1.0f);
  }
};

}  // namespace glu
