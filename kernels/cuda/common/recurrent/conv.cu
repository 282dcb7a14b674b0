// SPDX-License-Identifier: MIT OR Apache-2.0
// Family recurrent: depthwise causal convolution with its state, the last K-1 inputs, oldest first:
//
//	[slots] [K-1] [C]
//
// A thread has a channel of one sequence, and takes the sequence's rows in order. Grid: C/128, seqs.

#include "copy/vector.cuh"
#include "epilogue/act.cuh"
#include "step.cuh"

template <int K, class Act>
__device__ __forceinline__ void convolve(const int32_t* seqs, const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias, float* __restrict__ state,
                                         const int32_t* __restrict__ cu_rows, const int32_t* __restrict__ state_slot,
                                         const int32_t* __restrict__ fresh, float* __restrict__ y, int C) {
  const int seq = blockIdx.y, c = blockIdx.x * blockDim.x + threadIdx.x;
  if (seq >= *seqs || c >= C) return;
  float taps[K], in[K];  // the last tap meets the newest input
  const float b = bias ? bias[c] : 0.0f;
  state += int64_t(state_slot[seq]) * (K - 1) * C + c;
#pragma unroll
  for (int j = 0; j < K; j++) taps[j] = w[c * K + j];
#pragma unroll
  for (int j = 1; j < K; j++) in[j] = fresh[seq] ? 0.0f : state[(j - 1) * C];
#pragma unroll 8
  for (int row = cu_rows[seq]; row < cu_rows[seq + 1]; row++) {
#pragma unroll
    for (int j = 1; j < K; j++) in[j - 1] = in[j];
    in[K - 1] = x[int64_t(row) * C + c];
    float s = taps[0] * in[0];
#pragma unroll
    for (int j = 1; j < K; j++) s = fmaf(taps[j], in[j], s);
    y[int64_t(row) * C + c] = Act::of(s + b);
  }
#pragma unroll
  for (int j = 1; j < K; j++) state[(j - 1) * C] = in[j];
}

#define CONV(ACT, K)                                                                                        \
  extern "C" __global__ void conv_##ACT##_##K(const int32_t* __restrict__ seqs,       /* [1] of this step */ \
                                              const float* __restrict__ x,            /* [rows, C] */       \
                                              const float* __restrict__ w,            /* [C, K] */          \
                                              const float* __restrict__ bias,         /* [C], or null */    \
                                              float* __restrict__ state,              /* [slots, K-1, C] */ \
                                              const int32_t* __restrict__ cu_rows,    /* [seqs+1] */        \
                                              const int32_t* __restrict__ state_slot, /* [seqs] */          \
                                              const int32_t* __restrict__ fresh,      /* [seqs] */          \
                                              float* __restrict__ y,                  /* [rows, C] */       \
                                              int32_t C) {                                                  \
    begin();                                                                                                \
    convolve<K, act::ACT>(seqs, x, w, bias, state, cu_rows, state_slot, fresh, y, C);                             \
  }

CONV(silu, 2)
CONV(silu, 3)
CONV(silu, 4)
CONV(none, 2)
CONV(none, 3)
CONV(none, 4)
