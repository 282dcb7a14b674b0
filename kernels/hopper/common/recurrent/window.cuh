// SPDX-License-Identifier: MIT OR Apache-2.0
// A causal convolution of four taps, on the way from memory to registers.
#pragma once

#include "../../../include/copy/vector.cuh"
#include "../../../include/epilogue/fast_act.cuh"

namespace {

// Window is four channels of some rows of a sequence and of the three before them, which the convolution has four taps for; those before
// the sequence's first row are its state, oldest first.
template <int Rows>
struct Window {
  vec<float, 4> x[3 + Rows];

  // load brings them: at is the first row, of the n that the sequence has from x on; home is null if there is no state.
  __device__ __forceinline__ void load(const float* from, int64_t stride, int at, int n, const float* home, bool real) {
#pragma unroll
    for (int i = 0; i < 3 + Rows; i++) {
      const int row = at + i - 3;
      x[i] = vec<float, 4>{};
      if (real && row >= 0 && row < n) x[i] = ::load<4>(from + row * stride);
      if (i < 3 && real && row < 0 && home) x[i] = ::load<4>(home + (3 + row) * stride);
    }
  }
  // convolve leaves the result of row at + i in x[i].
  __device__ __forceinline__ void convolve(const float* taps, bool real) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const vec<float, 4> w = real ? ::load<4>(taps + 4 * e) : vec<float, 4>{};
#pragma unroll
      for (int i = 0; i < Rows; i++) {
        float sum = w.at[0] * x[i].at[e];
#pragma unroll
        for (int j = 1; j < 4; j++) sum = fmaf(w.at[j], x[i + j].at[e], sum);
        x[i].at[e] = sum * fast_glu::sigmoid(sum);
      }
    }
  }
};

// keep leaves the last three inputs of a sequence of n rows to the next step, in the place of those before.
__device__ __forceinline__ void keep(const float* from, int64_t stride, int n, float* home, bool fresh) {
  Window<3> last;
  last.load(from, stride, n, n, fresh ? nullptr : home, true);
#pragma unroll
  for (int j = 0; j < 3; j++) store(home + j * stride, last.x[j]);
}

}  // namespace
