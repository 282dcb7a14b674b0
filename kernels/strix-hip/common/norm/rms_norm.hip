// SPDX-License-Identifier: MIT OR Apache-2.0
// Family norm: a block of 256 threads norms one segment, group consecutive elements of a row. Squares are summed in float64:
// their error would scale the whole segment. All else is float32.

#include "amdgcn/kernel.h"

ENTRY(256) void rms_norm(const float* x,                // [R, n]
                         const float* __restrict__ w,   // [group], or null: all ones
                         float* y,                      // [R, n], may be x
                         int32_t group, float eps, int32_t plus_one) {
  SHARED static double part[256];  // a thread's sum, then those of halves of the block
  const int t = thread_id();
  const int64_t begin = int64_t(block_id_x()) * group;
  double s = 0;
  for (int i = t; i < group; i += 256) s += double(x[begin + i]) * double(x[begin + i]);
  part[t] = s;
  sync_block();
  for (int half = 128; half > 0; half /= 2) {
    if (t < half) part[t] += part[t + half];
    sync_block();
  }
  const float scale = 1.0f / __builtin_sqrtf(float(part[0] / group + double(eps)));
  for (int i = t; i < group; i += 256) {
    const float g = w ? w[i] + float(plus_one) : 1.0f;
    y[begin + i] = x[begin + i] * scale * g;
  }
}
