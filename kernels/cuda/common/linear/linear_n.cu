// SPDX-License-Identifier: MIT OR Apache-2.0
// Family linear: up to four linears of the same few rows in one launch, to the bit what they give one by one.

#include "few.cuh"

// matrix computes one of them.
template <class T>
__device__ __forceinline__ void matrix(const float* __restrict__ x, const T* w, const float* scale, const float* bias, float* y, int N, int rows, int K) {
  few<T>(x, K, stored<T, false>{w, scale, bias, y, N, N}, rows, K);
}

// Grid: the most pairs/8, rows/8, matrices; 256 threads.
#define LINEAR_N(T)                                                                                              \
  extern "C" __global__ void __launch_bounds__(256, 2)                                                           \
      linear_n_##T(const int32_t* __restrict__ count, /* [1] rows of this step */                                \
                   const float* __restrict__ x,       /* [rows, K] */                                            \
                   const T* w0, const T* w1, const T* w2, const T* w3, /* [Ni, K] */                             \
                   const float* s0, const float* s1, const float* s2, const float* s3, /* [Ni], or null */       \
                   const float* b0, const float* b1, const float* b2, const float* b3, /* [Ni], or null */       \
                   float* y0, float* y1, float* y2, float* y3, /* [rows, Ni] */                                  \
                   int32_t N0, int32_t N1, int32_t N2, int32_t N3, int32_t K) {                                  \
    begin();                                                                                                     \
    const int i = blockIdx.z;                                                                                    \
    matrix(x, i == 0 ? w0 : i == 1 ? w1 : i == 2 ? w2 : w3, i == 0 ? s0 : i == 1 ? s1 : i == 2 ? s2 : s3,        \
           i == 0 ? b0 : i == 1 ? b1 : i == 2 ? b2 : b3, i == 0 ? y0 : i == 1 ? y1 : i == 2 ? y2 : y3,           \
           i == 0 ? N0 : i == 1 ? N1 : i == 2 ? N2 : N3, *count, K);                                             \
  }

LINEAR_N(f32)
LINEAR_N(bf16)
LINEAR_N(f16)
