// SPDX-License-Identifier: MIT OR Apache-2.0
// Family elementwise: the residual sum x += y, one thread an element.

#include "amdgcn/kernel.h"

ENTRY(256) void add(float* __restrict__ x,        // [R, n]
                    const float* __restrict__ y,  // [R, n]
                    int64_t size) {               // R*n
  const int64_t i = int64_t(block_id_x()) * 256 + thread_id();
  if (i < size) x[i] += y[i];
}
