// SPDX-License-Identifier: MIT OR Apache-2.0
// Twins of Hopper's barriers in memory, bulk copies, clusters and warpgroup products on the host (tools/cudahost). All happen at once, so they
// show wrong addresses and counts, but not what is read too early.
#pragma once

#include <cstdint>
#include <cstring>

#include "../mma/host.cuh"

namespace ptx {

inline char* shared_memory() { return static_cast<char*>(cudahost::cudahost_place()->shared); }

// An address of shared memory says where in a block, and of a cluster which block. Dynamic shared memory begins at 0, a multiple of 1024.
//
//	bits 0 … 23    dynamic from 0 on; static ones lie around kStatics
//	bits 24 …      0: this block; else the rank of a block + 1
constexpr uint32_t kStatics = 1 << 23;
inline uint32_t shared_address(const void* p) {
  const char* at = static_cast<const char*>(p);
  const size_t dynamic = size_t(at - shared_memory());
  return dynamic < cudahost::cudahost_place()->shared_bytes ? uint32_t(dynamic) : kStatics + uint32_t(at - &cudahost::statics);
}
inline uint32_t cluster_map(uint32_t address, uint32_t rank) { return (address & 0xffffff) | (rank + 1) << 24; }
inline uint32_t cluster_address(const void* p, uint32_t rank) { return cluster_map(shared_address(p), rank); }

namespace host {

// there is where block rank of the cluster has what this one has at p.
template <class T>
T* there(T* p, uint32_t rank) {
  return static_cast<T*>(cudahost::cudahost_cluster_place(p, rank));
}
template <class T>
T& shared_at(uint32_t address) {
  const uint32_t at = address & 0xffffff;
  char* p = at < kStatics / 2 ? shared_memory() + at : &cudahost::statics + int32_t(at - kStatics);
  return *reinterpret_cast<T*>(address >> 24 ? there(p, (address >> 24) - 1) : p);
}

// Barrier is a phase's count of arrivals and bytes to come. Other blocks change it too.
struct Barrier {
  uint16_t pending, count;
  int32_t bytes : 31;
  uint32_t phase : 1;
};
static_assert(sizeof(Barrier) == 8, "");
// count takes arrivals and bytes off what a phase waits for. Bytes may come before they are expected: then fewer than none are left.
inline void count(uint64_t* b, int arrivals, int32_t bytes) {
  cudahost_update(b, [=](uint64_t bits) {
    Barrier x = cudahost::value<Barrier>(bits);
    x.pending -= arrivals, x.bytes -= bytes;
    if (x.pending == 0 && x.bytes == 0) x.pending = x.count, x.phase ^= 1;
    return cudahost::bits(x);
  });
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

inline void mbarrier_init(uint64_t* b, uint32_t count) { *b = cudahost::bits(host::Barrier{uint16_t(count), uint16_t(count), 0, 0}); }
inline void mbarrier_publish() {}
inline void mbarrier_expect(uint64_t* b, uint32_t bytes) { host::count(b, 1, -int32_t(bytes)); }
inline void mbarrier_arrive(uint64_t* b) { host::count(b, 1, 0); }
inline void mbarrier_free_at(uint64_t* b, uint32_t rank) { mbarrier_arrive(host::there(b, rank)); }
inline void mbarrier_wait(uint64_t* b, uint32_t parity) {
  while (cudahost::value<host::Barrier>(__atomic_load_n(b, __ATOMIC_SEQ_CST)).phase == parity) cudahost::cudahost_pause();
}

inline void bulk_copy(void* shared, const void* global, uint32_t bytes, uint64_t* b) {
  std::memcpy(shared, global, bytes);
  host::count(b, 0, int32_t(bytes));
}

inline uint32_t cluster_rank() { return cudahost::cudahost_place()->rank; }
inline uint32_t cluster_size() { return cudahost::cudahost_place()->blocks; }
inline void cluster_arrive() { cudahost::cudahost_cluster_arrive(); }
inline void cluster_wait() { cudahost::cudahost_cluster_wait(); }
inline void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}
inline void cluster_meet() { cluster_sync(); }
inline float cluster_load(uint32_t address) { return host::shared_at<float>(address); }
inline float4 cluster_load4(uint32_t address) { return host::shared_at<float4>(address); }
inline void cluster_store(uint32_t address, float v) { host::shared_at<float>(address) = v; }

// A barrier of some threads of a block; those from 16 on are here alone, one a warpgroup.
inline void named_barrier(int id, int threads) {
  static thread_local int arrived[24], phase[24];
  const int before = phase[id];
  if (++arrived[id] == threads) {
    arrived[id] = 0, phase[id]++;
    return;
  }
  while (phase[id] == before) cudahost::cudahost_pause();
}

// copy_box brings the box at (at[0], at[1], …), innermost first, to a block of the cluster. What lies outside is zero.
inline void copy_box(void* dst, const void* map, const int* at, uint64_t* b, uint32_t rank = cluster_rank()) {
  cudahost::TensorMap m;
  std::memcpy(&m, map, sizeof m);
  uint32_t rows = 1, row = m.box[0] * m.bytes;
  for (int i = 1; i < m.rank; i++) rows *= m.box[i];
  const uint32_t to = shared_address(dst);
  char* const memory = host::there(shared_memory(), rank);
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
        std::memcpy(memory + place, from + x * m.bytes, m.bytes);
      else
        std::memset(memory + place, 0, m.bytes);
    }
  }
  host::count(host::there(b, rank), 0, int32_t(rows * row));
}

inline void bulk_store(void* global, const void* shared, uint32_t bytes) { std::memcpy(global, shared, bytes); }
inline void bulk_store_read() {}
inline void bulk_store_done() {}
inline void fence_shared_for_async() {}

template <int N>
void keep_registers() {}
template <int N>
void take_registers() {}
inline void wgmma_begin() {}
inline void wgmma_commit() {}
// A product is the warpgroup's: where one of its warps knows that it is complete, the others have read their operands.
template <int Left>
void wgmma_wait() {
  named_barrier(16 + int(cudahost::linear_thread() / 128), 128);
}
template <int N>
void wgmma_done(float (&)[N]) {
  wgmma_wait<0>();
}
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
