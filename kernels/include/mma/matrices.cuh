// SPDX-License-Identifier: MIT OR Apache-2.0
// Matrices of 8×8 16-bit values from shared memory to fragments: lane 8j + r of a warp gives the 16 bytes of row r of matrix j, and
// lane 4g + t receives of each matrix its row g, columns 2t and 2t+1, or of its transpose.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef METRALE_HOST
#include "host.cuh"
#else
#include "../ptx/sm90.cuh"
#endif

namespace mma {

#ifdef METRALE_HOST
template <bool Transposed>
uint4 matrices(const void* row) {
  uint64_t rows[32];
  std::memcpy(rows, cudahost::cudahost_exchange(~0u, uint64_t(reinterpret_cast<uintptr_t>(row))), sizeof rows);
  const int g = cudahost::lane() / 4, t = cudahost::lane() % 4;
  uint32_t v[4];
  for (int j = 0; j < 4; j++) {
    const auto at = [&](int r, int c) { return uint32_t(reinterpret_cast<const uint16_t*>(rows[8 * j + r])[c]); };
    v[j] = Transposed ? at(2 * t, g) | at(2 * t + 1, g) << 16 : at(g, 2 * t) | at(g, 2 * t + 1) << 16;
  }
  return {v[0], v[1], v[2], v[3]};
}
inline uint4 load_matrices(const void* row) { return matrices<false>(row); }
inline uint4 load_transposed(const void* row) { return matrices<true>(row); }
#else
__device__ __forceinline__ uint4 load_matrices(const void* row) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(ptx::shared_address(row)) : "memory");
  return v;
}
__device__ __forceinline__ uint4 load_transposed(const void* row) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(ptx::shared_address(row)) : "memory");
  return v;
}
#endif

}  // namespace mma
