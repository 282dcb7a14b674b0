// SPDX-License-Identifier: MIT OR Apache-2.0
// What tensor cores compute, by exchanges of a warp of fibers (tools/cudahost).
#pragma once

#include <cstdint>
#include <cstring>

namespace mma::host {

inline float value(uint64_t pair, int half) {  // a bf16 of a register pair: halves 0 to 3
  const uint32_t bits = uint32_t(pair >> (16 * half) & 0xffff) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

// gather gives every lane's two registers.
inline void gather(uint64_t (&all)[32], uint32_t low, uint32_t high) {
  std::memcpy(all, cudahost::cudahost_exchange(~0u, uint64_t(high) << 32 | low), sizeof all);
}

// multiply adds m16n8k16's product to this lane's part of c.
inline void multiply(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  uint64_t top[32], bottom[32], b[32];  // rows g: a0 a2; rows g+8: a1 a3
  gather(top, a0, a2);
  gather(bottom, a1, a3);
  gather(b, b0, b1);
  const int g = cudahost::lane() / 4, t = cudahost::lane() % 4;
  for (int i = 0; i < 4; i++) {
    const uint64_t* a = i < 2 ? top : bottom;
    const int col = 2 * t + i % 2;
    float sum = 0;
    for (int k = 0; k < 16; k++) sum += value(a[4 * g + k % 8 / 2], k / 8 * 2 + k % 2) * value(b[4 * col + k % 8 / 2], k / 8 * 2 + k % 2);
    c[i] += sum;
  }
}

inline uint32_t transpose(uint32_t v) {
  uint64_t all[32];
  gather(all, v, 0);
  const int g = cudahost::lane() / 4, t = cudahost::lane() % 4;
  const auto at = [&](int row, int col) { return uint32_t(all[4 * row + col / 2] >> (16 * (col % 2)) & 0xffff); };
  return at(2 * t, g) | at(2 * t + 1, g) << 16;
}

}  // namespace mma::host
