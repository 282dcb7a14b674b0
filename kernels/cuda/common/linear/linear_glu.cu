// SPDX-License-Identifier: MIT OR Apache-2.0
// Family linear: the gated pair of a feed-forward layer, y = act(x wgᵀ) * (x wuᵀ), to the bit what linear, linear and glu give.

#include "epilogue/quick_glu.cuh"
#include "few.cuh"
#include "many.cuh"

#define LINEAR_GLU(NAME, SHAPE, T, ACT)                                                                  \
  extern "C" __global__ void __launch_bounds__(256, 2)                                                   \
      NAME##_##ACT##_##T(const int32_t* __restrict__ count, /* [1] rows of this step */                  \
                         const float* __restrict__ x,       /* [rows, K] */                              \
                         const T* __restrict__ wg,          /* [N, K] */                                 \
                         const T* __restrict__ wu,          /* [N, K] */                                 \
                         const float* __restrict__ sg,      /* [N] scale of gate, or null */             \
                         const float* __restrict__ su,      /* [N] scale of up, or null */               \
                         float* __restrict__ y,             /* [rows, N] */                              \
                         int32_t N, int32_t K, float limit) {                                            \
    begin();                                                                                             \
    SHAPE<T>(x, K, gated<T, quick_glu::ACT>{wg, wu, sg, su, y, N, limit}, *count, K);                          \
  }

#define BOTH_OF(T, ACT)                       \
  LINEAR_GLU(linear_glu, few, T, ACT)         \
  LINEAR_GLU(linear_glu_many, many, T, ACT)

#define ALL_OF(T)              \
  BOTH_OF(T, silu)             \
  BOTH_OF(T, gelu_tanh)        \
  BOTH_OF(T, silu_then_limit)  \
  BOTH_OF(T, swiglu_oai)

ALL_OF(f32)
ALL_OF(bf16)
ALL_OF(f16)
