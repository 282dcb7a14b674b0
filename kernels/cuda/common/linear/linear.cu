// SPDX-License-Identifier: MIT OR Apache-2.0
// Family linear: y = x wᵀ * scale + bias, added to y, or group by group, for weights of float32, bf16 and f16 as stored. Each comes for
// few rows and for many, which agree to the bit (dot.cuh).

#include "few.cuh"
#include "many.cuh"

#define LINEAR(NAME, SHAPE, T, ADD)                                                                      \
  extern "C" __global__ void __launch_bounds__(256, 2)                                                   \
      NAME##_##T(const int32_t* __restrict__ count, /* [1] rows of this step */                          \
                 const float* __restrict__ x,       /* [rows, K] */                                      \
                 const T* __restrict__ w,           /* [N, K] */                                         \
                 const float* __restrict__ scale,   /* [N], or null */                                   \
                 const float* __restrict__ bias,    /* [N], or null */                                   \
                 float* __restrict__ y,             /* [rows, N] */                                      \
                 int32_t N, int32_t K) {                                                                 \
    begin();                                                                                             \
    SHAPE<T>(x, K, stored<T, ADD>{w, scale, bias, y, N, N}, *count, K);                                  \
  }

// The group is blockIdx.z.
#define GROUP_LINEAR(NAME, SHAPE, T)                                                                     \
  extern "C" __global__ void __launch_bounds__(256, 2)                                                   \
      NAME##_##T(const int32_t* __restrict__ count, /* [1] rows of this step */                          \
                 const float* __restrict__ x,       /* [rows, groups*K] */                               \
                 const T* __restrict__ w,           /* [groups, N, K] */                                 \
                 const float* __restrict__ scale,   /* [groups, N], or null */                           \
                 float* __restrict__ y,             /* [rows, groups*N] */                               \
                 int32_t groups, int32_t N, int32_t K) {                                                 \
    begin();                                                                                             \
    const int g = blockIdx.z;                                                                            \
    const stored<T, false> out = {w + int64_t(g) * N * K, scale ? scale + int64_t(g) * N : nullptr,      \
                                  nullptr, y + int64_t(g) * N, N, groups * N};                           \
    SHAPE<T>(x + int64_t(g) * K, groups * K, out, *count, K);                                            \
  }

#define ALL_OF(T)                            \
  LINEAR(linear, few, T, false)              \
  LINEAR(linear_many, many, T, false)        \
  LINEAR(linear_add, few, T, true)           \
  LINEAR(linear_add_many, many, T, true)     \
  GROUP_LINEAR(group_linear, few, T)         \
  GROUP_LINEAR(group_linear_many, many, T)

ALL_OF(f32)
ALL_OF(bf16)
ALL_OF(f16)
