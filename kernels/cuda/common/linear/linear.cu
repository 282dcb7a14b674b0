// SPDX-License-Identifier: MIT OR Apache-2.0
// Family linear: y = x wᵀ + bias, added to y, or the gated pair of a feed-forward layer, for weights of float32, bf16 and f16
// as stored. Each comes for few rows and for many, which agree to the bit (dot.cuh).

#include "few.cuh"
#include "many.cuh"

#define LINEAR(NAME, SHAPE, T, ADD)                                                                      \
  extern "C" __global__ void __launch_bounds__(256, 2)                                                   \
      NAME##_##T(const int32_t* __restrict__ count, /* [1] rows of this step */                          \
                 const float* __restrict__ x,       /* [rows, K] */                                      \
                 const T* __restrict__ w,           /* [N, K] */                                         \
                 const float* __restrict__ bias,    /* [N], or null */                                   \
                 float* __restrict__ y,             /* [rows, N] */                                      \
                 int32_t N, int32_t K) {                                                                 \
    begin();                                                                                             \
    SHAPE<T>(x, stored<T, ADD>{w, bias, y, N}, *count, K);                                               \
  }

#define LINEAR_GLU(NAME, SHAPE, T, ACT)                                                                  \
  extern "C" __global__ void __launch_bounds__(256, 2)                                                   \
      NAME##_##ACT##_##T(const int32_t* __restrict__ count, /* [1] rows of this step */                  \
                         const float* __restrict__ x,       /* [rows, K] */                              \
                         const T* __restrict__ wg,          /* [N, K] */                                 \
                         const T* __restrict__ wu,          /* [N, K] */                                 \
                         float* __restrict__ y,             /* [rows, N] */                              \
                         int32_t N, int32_t K) {                                                         \
    begin();                                                                                             \
    SHAPE<T>(x, gated<T, act::ACT>{wg, wu, y, N}, *count, K);                                            \
  }

#define ALL_OF(T)                             \
  LINEAR(linear, few, T, false)               \
  LINEAR(linear_many, many, T, false)         \
  LINEAR(linear_add, few, T, true)            \
  LINEAR(linear_add_many, many, T, true)      \
  LINEAR_GLU(linear_glu, few, T, silu)        \
  LINEAR_GLU(linear_glu, few, T, gelu_tanh)   \
  LINEAR_GLU(linear_glu_many, many, T, silu)  \
  LINEAR_GLU(linear_glu_many, many, T, gelu_tanh)

ALL_OF(f32)
ALL_OF(bf16)
ALL_OF(f16)
