// SPDX-License-Identifier: MIT OR Apache-2.0
// Copies of boxes of a matrix into shared memory by the copy engine, for one block or all of a cluster. Needs sm_90a.
#pragma once

#include "sm90.cuh"
#ifdef METRALE_HOST
#include "../mma/bf16.cuh"
#endif

namespace ptx {

// tensor_map is what the driver encoded: a kernel's parameter by value, __grid_constant__.
struct alignas(64) tensor_map {
  uint8_t bytes[128];
};

#ifdef METRALE_HOST

inline void prefetch_map(const tensor_map*) {}
inline void tensor_copy(void* dst, const tensor_map* m, int column, int row, uint64_t* b) {
  const int at[2] = {column, row};
  copy_box(dst, m, at, b);
}
inline void tensor_copy(void* dst, const tensor_map* m, int column, int row, int matrix, uint64_t* b) {
  const int at[3] = {column, row, matrix};
  copy_box(dst, m, at, b);
}
inline void tensor_copy(void* dst, const tensor_map* m, int a, int b, int c, int d, int e, uint64_t* full) {
  const int at[5] = {a, b, c, d, e};
  copy_box(dst, m, at, full);
}
inline void tensor_copy_to(uint16_t blocks, void* dst, const tensor_map* m, int column, int row, uint64_t* b) {
  const int at[2] = {column, row};
  for (uint32_t rank = 0; blocks >> rank; rank++)
    if (blocks >> rank & 1) copy_box(dst, m, at, b, rank);
}
inline void add_to(float* y, float4 v) {
  const float add[4] = {v.x, v.y, v.z, v.w};
  for (int i = 0; i < 4; i++) atomicAdd(y + i, add[i]);
}
inline uint32_t pack_bf16(float lo, float hi) { return mma::pack(lo, hi); }

#else

__device__ __forceinline__ void prefetch_map(const tensor_map* m) { asm volatile("prefetch.tensormap [%0];" ::"l"(m) : "memory"); }

// tensor_copy brings the box at (row, column) to dst; what lies outside of the matrix is zero, and counts.
__device__ __forceinline__ void tensor_copy(void* dst, const tensor_map* m, int column, int row, uint64_t* b) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                   shared_address(dst)),
               "l"(m), "r"(column), "r"(row), "r"(shared_address(b))
               : "memory");
}
// Box of a matrix of several.
__device__ __forceinline__ void tensor_copy(void* dst, const tensor_map* m, int column, int row, int matrix, uint64_t* b) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
                   shared_address(dst)),
               "l"(m), "r"(column), "r"(row), "r"(matrix), "r"(shared_address(b))
               : "memory");
}
// Box of an array of five axes.
__device__ __forceinline__ void tensor_copy(void* dst, const tensor_map* m, int a, int b, int c, int d, int e, uint64_t* full) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(
                   shared_address(dst)),
               "l"(m), "r"(a), "r"(b), "r"(c), "r"(d), "r"(e), "r"(shared_address(full))
               : "memory");
}
// tensor_copy_to brings it to the same place of all blocks whose bits are set, and counts at the same barrier of each.
__device__ __forceinline__ void tensor_copy_to(uint16_t blocks, void* dst, const tensor_map* m, int column, int row, uint64_t* b) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], "
      "%5;" ::"r"(shared_address(dst)),
      "l"(m), "r"(column), "r"(row), "r"(shared_address(b)), "h"(blocks)
      : "memory");
}
// mbarrier_free_at arrives at the barrier of a block of the cluster, to say that what lay in shared memory was read. It publishes no
// writes: those would need a release of the cluster, which waits for all memory of the thread.
__device__ __forceinline__ void mbarrier_free_at(uint64_t* b, uint32_t rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(cluster_address(b, rank)) : "memory");
}
// cluster_meet returns once all threads of the cluster have come. It publishes no writes but initialised barriers.
__device__ __forceinline__ void cluster_meet() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}
__device__ __forceinline__ float4 cluster_load4(uint32_t address) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(address) : "memory");
  return v;
}

// add_to adds to four neighbours in memory, without waiting. 16-byte aligned.
__device__ __forceinline__ void add_to(float* y, float4 v) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(y), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
// pack_bf16 rounds to bf16, nearest even; lo in the lower half.
__device__ __forceinline__ uint32_t pack_bf16(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}

#endif

}  // namespace ptx
