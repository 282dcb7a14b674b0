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
// The tanh form: x*sigmoid(2*sqrt(2/π)*(x + 0.044715x³)).
struct gelu_tanh {
  __device__ __forceinline__ static float of(float x) {
    const float t = fmaf(-0.0713548162726f, __fmul_rn(x, x), -1.59576912160573f);
    return x / (1.0f + expf(__fmul_rn(x, t)));
  }
};
struct softplus {
  __device__ __forceinline__ static float of(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }
};

}  // namespace act
