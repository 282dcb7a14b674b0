// SPDX-License-Identifier: MIT OR Apache-2.0
// Family sample: tokens that never leave the device.

#include "step.cuh"

// A row whose feed is a seat takes the newest token drawn there. One block.
extern "C" __global__ void sample_feed(const int32_t* __restrict__ head,    // [8] rows, …
                                       int32_t* tokens,                     // [rows]
                                       const int32_t* __restrict__ feed,    // [rows]; -1: the token is there
                                       const int32_t* __restrict__ newest) {  // [seats]
  begin();
  for (int r = threadIdx.x; r < head[0]; r += blockDim.x)
    if (feed[r] >= 0) tokens[r] = newest[feed[r]];
}
