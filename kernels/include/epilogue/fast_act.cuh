// SPDX-License-Identifier: MIT OR Apache-2.0
// Activations of a gate and what it opens, by the approximate exp and quotient of the device: they err by 2^-21 of their value, 2^-21
// more per unit of the argument. For kernels whose sums err by more.
#pragma once

#include "act.cuh"

namespace fast_glu {

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

struct silu {
  __device__ __forceinline__ static float of(float g, float u, float limit) {
    g = glu::at_most(g, limit);
    return g * sigmoid(g) * glu::clamped(u, limit);
  }
};
// The tanh form.
struct gelu_tanh {
  __device__ __forceinline__ static float of(float g, float u, float limit) {
    g = glu::at_most(g, limit);
    return g * sigmoid(g * fmaf(0.0713548162726f, g * g, 1.59576912160573f)) * glu::clamped(u, limit);
  }
};
// The gate is limited after its activation.
struct silu_then_limit {
  __device__ __forceinline__ static float of(float g, float u, float limit) { return glu::at_most(g * sigmoid(g), limit) * glu::clamped(u, limit); }
};
struct swiglu_oai {
  __device__ __forceinline__ static float of(float g, float u, float limit) {
    g = glu::at_most(g, limit);
    return g * sigmoid(1.702f * g) * (glu::clamped(u, limit) + 1.0f);
  }
};

}  // namespace fast_glu
