// SPDX-License-Identifier: MIT OR Apache-2.0
// Family recurrent: depthwise causal convolution with its state, the last K-1 inputs, oldest first:
//
//	[slots] [K-1] [C]
//
// A warp has 128 channels of some rows of a sequence and loads them, and the K-1 rows before, at once; a block has 16 rows, its warps
// one behind the other. Few rows are over sooner with 4 to a warp, many read less twice with 8. The warp of a sequence's first rows
// reads its state, and writes what comes after its last: no other needs it. Grid: C/128, rows/16 + seqs; 32 threads a warp.

#include "copy/vector.cuh"
#include "epilogue/act.cuh"
#include "step.cuh"

namespace {

constexpr int kTile = 16;

// get loads channels c to c+3 of a row of C, of which there may be fewer; put stores them.
__device__ __forceinline__ void get(float (&to)[4], const float* row, int c, int C) {
  const vec<float, 4> v = C % 4 == 0 ? load<4>(row + c) : load_some<4>(row + c, C - c);
#pragma unroll
  for (int e = 0; e < 4; e++) to[e] = v.at[e];
}
__device__ __forceinline__ void put(float* row, int c, int C, const float (&v)[4]) {
  if (C % 4 == 0) return store(row + c, vec<float, 4>{{v[0], v[1], v[2], v[3]}});
#pragma unroll
  for (int e = 0; e < 4; e++)
    if (c + e < C) row[c + e] = v[e];
}

template <int K, int kRows, class Act>
__device__ __forceinline__ void convolve(const int32_t* seqs, const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias, float* __restrict__ state,
                                         const int32_t* __restrict__ cu_rows, const int32_t* __restrict__ state_slot,
                                         const int32_t* __restrict__ fresh, float* __restrict__ y, int C) {
  const int c = (blockIdx.x * 32 + threadIdx.x % 32) * 4, place = blockIdx.y;
  if (c >= C) return;
  // Sequence i has places from cu_rows[i]/16 + i on, which are enough for its rows, and one at least.
  int seq = 0, high = *seqs - 1;
  while (seq < high) {
    const int mid = (seq + high + 1) / 2;
    if (cu_rows[mid] / kTile + mid <= place) seq = mid;
    else high = mid - 1;
  }
  const int from = cu_rows[seq], n = cu_rows[seq + 1] - from;
  const int first = (place - from / kTile - seq) * kTile + threadIdx.x / 32 * kRows;  // of the sequence's n rows
  if (first > 0 && first >= n) return;
  x += int64_t(from) * C;
  y += int64_t(from) * C;

  float in[K - 1 + kRows][4] = {};  // from row first-(K-1) on
#pragma unroll
  for (int i = 0; i < K - 1 + kRows; i++) {
    const int row = first - (K - 1) + i;
    if (row >= 0 && row < n) get(in[i], x + int64_t(row) * C, c, C);
  }
  if (first == 0) {
    float* home = state + int64_t(state_slot[seq]) * (K - 1) * C;
    if (!fresh[seq]) {
#pragma unroll
      for (int j = 0; j < K - 1; j++) get(in[j], home + j * C, c, C);
    }
#pragma unroll
    for (int j = 0; j < K - 1; j++) {
      const int row = n - (K - 1) + j;
      float last[4] = {};
      if (row >= 0) get(last, x + int64_t(row) * C, c, C);
#pragma unroll
      for (int i = j; i < K - 1; i++)  // of a sequence shorter than its state
        if (n == i - j)
#pragma unroll
          for (int e = 0; e < 4; e++) last[e] = in[i][e];
      put(home + j * C, c, C, last);
    }
  }
  float taps[4][K], b[4];  // the last tap meets the newest input
#pragma unroll
  for (int e = 0; e < 4; e++) {
    b[e] = bias && c + e < C ? bias[c + e] : 0.0f;
#pragma unroll
    for (int j = 0; j < K; j++) taps[e][j] = c + e < C ? w[(c + e) * K + j] : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < kRows; i++) {
    if (first + i >= n) break;
    float out[4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
      float s = taps[e][0] * in[i][e];
#pragma unroll
      for (int j = 1; j < K; j++) s = fmaf(taps[e][j], in[i + j][e], s);
      out[e] = Act::of(s + b[e]);
    }
    put(y + int64_t(first + i) * C, c, C, out);
  }
}

}  // namespace

#define CONV(ACT, K, ROWS)                                                                                  \
  extern "C" __global__ void conv_##ACT##_##K##_##ROWS(const int32_t* __restrict__ seqs,       /* [1] */     \
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
    convolve<K, ROWS, act::ACT>(seqs, x, w, bias, state, cu_rows, state_slot, fresh, y, C);                 \
  }
#define CONVS(ACT, K) CONV(ACT, K, 4) CONV(ACT, K, 8)

CONVS(silu, 2)
CONVS(silu, 3)
CONVS(silu, 4)
CONVS(none, 2)
CONVS(none, 3)
CONVS(none, 4)
