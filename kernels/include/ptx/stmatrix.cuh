// SPDX-License-Identifier: MIT OR Apache-2.0
// Matrices of 16-bit values from registers to shared memory.
#pragma once

#include "sm90.cuh"
#ifdef METRALE_HOST
#include "../mma/bf16.cuh"
#endif

namespace ptx {

// store_matrices stores four transposed 8×8 matrices of 16-bit values to shared memory: v[m] is what a lane has of matrix m, as
// mma/bf16.cuh draws c; lane 8m + r says where row r of the transposed goes, 16 bytes.
__device__ __forceinline__ void store_matrices(unsigned char* row, const uint32_t (&v)[4]) {
#ifdef METRALE_HOST
  uint64_t at[32];
  std::memcpy(at, cudahost::cudahost_exchange(~0u, reinterpret_cast<uint64_t>(row)), sizeof at);
  for (int m = 0; m < 4; m++) {
    const uint32_t turned = mma::transpose(v[m]);
    std::memcpy(reinterpret_cast<unsigned char*>(at[8 * m + cudahost::lane() / 4]) + cudahost::lane() % 4 * 4, &turned, 4);
  }
#else
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)), "r"(v[0]), "r"(v[1]), "r"(v[2]),
               "r"(v[3])
               : "memory");
#endif
}

}  // namespace ptx
