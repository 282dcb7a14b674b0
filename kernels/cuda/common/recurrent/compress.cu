// SPDX-License-Identifier: MIT OR Apache-2.0
// Family recurrent: pools windows of ratio tokens into one vector each, channel by channel the mean of kv weighted by the softmax
// of gate + ape over the window. With two series, [first | second] in kv and gate, windows overlap: a window's vector pools
// the first series of the window before it, if there is one, and the second of its own. State, of running softmaxes: the
// window's of each series, and of two the first series' of the window before,
//
//	[slots] [2*series-1] [top, sum, value] [n]
//
// A thread has a channel of one sequence. Grid: n/128, seqs.

#include <cmath>

#include "step.cuh"

// softsum is a running softmax: the largest gate, Σ exp(gate - top), Σ exp(gate - top) * kv.
struct softsum {
  float top, sum, value;

  __device__ void add(float gate, float kv, bool first) {
    if (first) {
      top = gate, sum = 1.0f, value = kv;
      return;
    }
    const float old = top;
    top = fmaxf(old, gate);
    const float keep = expf(old - top), more = expf(gate - top);
    sum = fmaf(sum, keep, more);
    value = fmaf(more, kv, value * keep);
  }
};

template <int Series>
__device__ __forceinline__ void pool(const float* __restrict__ kv, const float* __restrict__ gate, const float* __restrict__ ape, float* __restrict__ state,
                                     float* __restrict__ y, int from, int to, int position, bool fresh, int n, int ratio) {
  constexpr int kSums = 2 * Series - 1;
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= n) return;
  softsum s[kSums];  // of each series, then the window's before
#pragma unroll
  for (int i = 0; i < kSums; i++) {
    const float* at = state + 3 * i * n + c;
    s[i] = fresh ? softsum{} : softsum{at[0], at[n], at[2 * n]};
  }
  for (int row = from; row < to; row++, position++) {
    const int j = position % ratio;
    if (Series == 2 && j == 0) s[kSums - 1] = s[0];
#pragma unroll
    for (int i = 0; i < Series; i++) {
      const int64_t at = (int64_t(row) * Series + i) * n + c;
      s[i].add(gate[at] + ape[(j * Series + i) * n + c], kv[at], j == 0);
    }
    const softsum &own = s[Series - 1], &before = s[kSums - 1];
    float out = 0;
    if (j == ratio - 1) {
      out = own.value / own.sum;
      if (Series == 2 && position >= ratio) {
        const float top = fmaxf(before.top, own.top), a = expf(before.top - top), b = expf(own.top - top);
        out = (before.value * a + own.value * b) / (before.sum * a + own.sum * b);
      }
    }
    y[int64_t(row) * n + c] = out;
  }
#pragma unroll
  for (int i = 0; i < kSums; i++) {
    float* at = state + 3 * i * n + c;
    at[0] = s[i].top, at[n] = s[i].sum, at[2 * n] = s[i].value;
  }
}

#define COMPRESS(SERIES)                                                                                           \
  extern "C" __global__ void compress_##SERIES(const int32_t* __restrict__ seqs,       /* [1] of this step */      \
                                               const float* __restrict__ kv,           /* [rows, series*n] */      \
                                               const float* __restrict__ gate,         /* [rows, series*n] */      \
                                               const float* __restrict__ ape,          /* [ratio, series*n] */     \
                                               float* __restrict__ state,              /* [slots, 3*(2*series-1), n] */ \
                                               const int32_t* __restrict__ positions,  /* [rows] */                \
                                               const int32_t* __restrict__ cu_rows,    /* [seqs+1] */              \
                                               const int32_t* __restrict__ state_slot, /* [seqs] */                \
                                               const int32_t* __restrict__ fresh,      /* [seqs] */                \
                                               float* __restrict__ y,                  /* [rows, n] 0 but in rows that end a window */ \
                                               int32_t n, int32_t ratio) {                                         \
    begin();                                                                                                       \
    const int seq = blockIdx.y;                                                                                    \
    if (seq >= *seqs) return;                                                                                      \
    const int from = cu_rows[seq], to = cu_rows[seq + 1];                                                          \
    pool<SERIES>(kv, gate, ape, state + int64_t(state_slot[seq]) * 3 * (2 * SERIES - 1) * n, y, from, to,          \
                 from < to ? positions[from] : 0, fresh[seq], n, ratio);                                           \
  }

COMPRESS(1)
COMPRESS(2)
