// SPDX-License-Identifier: MIT OR Apache-2.0
// Family sweep: reads memory once, as fast as it goes: what benchmarks are measured against. Nothing is kept in caches.

#include <stdint.h>

// Grid: any number of blocks; out is written only if all words cancel to one value, so that the reads are needed.
extern "C" __global__ void read_sweep(const uint4* __restrict__ x,  // [n/4]
                                      uint32_t* __restrict__ out,   // [1]
                                      int64_t quads) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  uint32_t s = 0;
  for (; i + 7 * step < quads; i += 8 * step) {
    uint4 v[8];
#pragma unroll
    for (int k = 0; k < 8; k++) v[k] = __ldcs(x + i + k * step);
#pragma unroll
    for (int k = 0; k < 8; k++) s ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
  }
  for (; i < quads; i += step) s ^= x[i].x ^ x[i].y ^ x[i].z ^ x[i].w;
  if (s == 0x12345678) *out = s;
}
