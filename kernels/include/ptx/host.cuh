// SPDX-License-Identifier: MIT OR Apache-2.0
// Twins of Hopper's barriers in memory, bulk copies and warpgroup products on the host (tools/cudahost). All happen at once, so they
// show wrong addresses and counts, but not what is read too early.
#pragma once

#include <cstdint>
#include <cstring>

#include "../mma/host.cuh"

namespace ptx {

inline char* shared_memory() { return static_cast<char*>(cudahost::cudahost_place()->shared); }
// shared_address is relative to the block's dynamic shared memory, which lies at a multiple of 1024.
inline uint32_t shared_address(const void* p) { return uint32_t(static_cast<const char*>(p) - shared_memory()); }

namespace host {

// Barrier is a phase's count of arrivals and bytes to come.
struct Barrier {
  uint16_t pending, count;
  int32_t bytes : 31;
  uint32_t phase : 1;
};
static_assert(sizeof(Barrier) == 8, "");
inline Barrier& barrier(uint64_t* b) { return *reinterpret_cast<Barrier*>(b); }
inline void check(Barrier& b) {
  if (b.pending == 0 && b.bytes == 0) b.pending = b.count, b.phase ^= 1;
}

// operand reads element (row, k) as a description of wgmma.cuh or wgmma_rows.cuh has it.
inline float operand(uint64_t d, int row, int k, bool columns) {
  const uint32_t start = (d & 0x3fff) << 4, lead = (d >> 16 & 0x3fff) << 4, stride = (d >> 32 & 0x3fff) << 4;
  uint32_t at = columns ? start + row / 64 * lead + k / 8 * stride + k % 8 * 128 + row % 64 * 2 : start + row / 8 * stride + row % 8 * 128 + k * 2;
  at ^= at >> 3 & 0x70;
  uint16_t bits;
  std::memcpy(&bits, shared_memory() + at, 2);
  return mma::host::value(bits, 0);
}

// product adds sign·a bᵀ to c: a [64, 16] by rows g and g+8 of each warp, b [2N, 16].
template <int N>
void product(float (&c)[N], const float (&a)[2][16], uint64_t b, bool columns, bool add, float sign) {
  const int t = cudahost::lane() % 4;
  for (int j = 0; j < N / 4; j++)
    for (int e = 0; e < 2; e++) {
      float right[16], sums[2] = {0, 0};
      for (int k = 0; k < 16; k++) right[k] = operand(b, 8 * j + 2 * t + e, k, columns);
      for (int r = 0; r < 2; r++) {
        for (int k = 0; k < 16; k++) sums[r] += a[r][k] * right[k];
        float& out = c[4 * j + 2 * r + e];
        out = (add ? out : 0.0f) + sign * sums[r];
      }
    }
}

}  // namespace host

inline void mbarrier_init(uint64_t* b, uint32_t count) { host::barrier(b) = {uint16_t(count), uint16_t(count), 0, 0}; }
inline void mbarrier_publish() {}
inline void mbarrier_expect(uint64_t* b, uint32_t bytes) {
  auto& x = host::barrier(b);
  x.bytes += int32_t(bytes), x.pending--;
  host::check(x);
}
inline void mbarrier_arrive(uint64_t* b) { mbarrier_expect(b, 0); }
inline void mbarrier_wait(uint64_t* b, uint32_t parity) {
  while (host::barrier(b).phase == parity) cudahost::cudahost_pause();
}

inline void bulk_copy(void* shared, const void* global, uint32_t bytes, uint64_t* b) {
  std::memcpy(shared, global, bytes);
  auto& x = host::barrier(b);
  x.bytes -= int32_t(bytes);
  host::check(x);
}
// A barrier of some threads of a block.
inline void named_barrier(int id, int threads) {
  static thread_local int arrived[16], phase[16];
  const int before = phase[id];
  if (++arrived[id] == threads) {
    arrived[id] = 0, phase[id]++;
    return;
  }
  while (phase[id] == before) cudahost::cudahost_pause();
}

// copy_box brings the box at (at[0], at[1], …), innermost first. What lies outside is zero.
inline void copy_box(void* dst, const void* map, const int* at, uint64_t* b) {
  cudahost::TensorMap m;
  std::memcpy(&m, map, sizeof m);
  uint32_t rows = 1, row = m.box[0] * m.bytes;
  for (int i = 1; i < m.rank; i++) rows *= m.box[i];
  const uint32_t to = shared_address(dst);
  for (uint32_t r = 0; r < rows; r++) {
    const char* from = m.memory;
    bool inside = true;
    for (uint32_t i = 1, left = r; i < m.rank; left /= m.box[i++]) {
      const int64_t x = at[i] + int64_t(left % m.box[i]);
      inside &= x >= 0 && x < int64_t(m.dim[i]);
      from += x * int64_t(m.stride[i - 1]);
    }
    for (uint32_t c = 0; c < row; c += m.bytes) {
      uint32_t place = to + r * row + c;
      if (m.swizzle) place ^= place >> 3 & (m.swizzle - 16);
      const int64_t x = at[0] + int64_t(c / m.bytes);
      if (inside && x >= 0 && x < int64_t(m.dim[0]))
        std::memcpy(shared_memory() + place, from + x * m.bytes, m.bytes);
      else
        std::memset(shared_memory() + place, 0, m.bytes);
    }
  }
  auto& x = host::barrier(b);
  x.bytes -= int32_t(rows * row);
  host::check(x);
}

inline void bulk_store(void* global, const void* shared, uint32_t bytes) { std::memcpy(global, shared, bytes); }
inline void bulk_store_read() {}
inline void bulk_store_done() {}
inline void fence_shared_for_async() {}

// Blocks are alone.
inline uint32_t cluster_rank() { return 0; }
inline uint32_t cluster_size() { return 1; }
inline void cluster_meet() {}

template <int N>
void keep_registers() {}
template <int N>
void take_registers() {}
inline void wgmma_begin() {}
inline void wgmma_commit() {}
template <int Left>
void wgmma_wait() {}
template <int N>
void wgmma_done(float (&)[N]) {}
template <int N>
void wgmma_hold(float (&)[N]) {}

// TransA, TransB: that operand has its rows innermost (wgmma_columns).
template <int TransA = 0, int TransB = 0, int N>
void wgmma_bf16(float (&c)[N], uint64_t a, uint64_t b, bool add) {
  const int g = int(cudahost::linear_thread() % 128) / 32 * 16 + cudahost::lane() / 4;
  float rows[2][16];
  for (int r = 0; r < 2; r++)
    for (int k = 0; k < 16; k++) rows[r][k] = host::operand(a, g + 8 * r, k, TransA);
  host::product(c, rows, b, TransB, add, 1.0f);
}
template <int TransB = 1, int Sign = 1, int N>
void wgmma_bf16_rows(float (&c)[N], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, bool add = true) {
  uint64_t halves[2][32];
  mma::host::gather(halves[0], a0, a2);
  mma::host::gather(halves[1], a1, a3);
  const int g = cudahost::lane() / 4;
  float rows[2][16];
  for (int r = 0; r < 2; r++)
    for (int k = 0; k < 16; k++) rows[r][k] = mma::host::value(halves[r][4 * g + k % 8 / 2], k / 8 * 2 + k % 2);
  host::product(c, rows, b, TransB, add, float(Sign));
}

}  // namespace ptx
