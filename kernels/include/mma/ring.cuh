// SPDX-License-Identifier: MIT OR Apache-2.0
// A ring of stages in shared memory, which one thread of a block fills and two warpgroups of each block of the cluster multiply.
//
//	full    what was copied into a stage is there: 1 arrival and the bytes
//	empty   both warpgroups are through with it, in all blocks of the cluster
#pragma once

#include "../ptx/sm90.cuh"

namespace ring {

constexpr int kDepth = 64;  // of K in a stage, 128 bytes of bf16: a row of a swizzled box

// Place is a stage of the ring, and the parity of how often it was used.
struct Place {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void next(int stages) {
    if (++stage == stages) stage = 0, phase ^= 1;
  }
};

// open makes the barriers of so many stages, for all blocks of the cluster.
__device__ __forceinline__ void open(uint64_t* full, uint64_t* empty, int stages) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; i++) {
      ptx::mbarrier_init(&full[i], 1);
      ptx::mbarrier_init(&empty[i], 2 * ptx::cluster_size());
    }
    ptx::mbarrier_publish();
  }
  __syncthreads();
  ptx::cluster_meet();
}

}  // namespace ring
