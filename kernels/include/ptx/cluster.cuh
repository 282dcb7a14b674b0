// SPDX-License-Identifier: MIT OR Apache-2.0
// Blocks of a cluster of C, also where C is 1.
#pragma once

#include "sm90.cuh"

namespace ptx {

// cluster_arrive and cluster_wait are the halves of a barrier: what a thread wrote before it arrived, any block's shared memory too,
// is there for all that have waited.
template <int C>
__device__ __forceinline__ void cluster_arrive() {
#ifdef METRALE_HOST
  if (C > 1) cudahost::cudahost_cluster_arrive();
#else
  if (C > 1) asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
template <int C>
__device__ __forceinline__ void cluster_wait() {
#ifdef METRALE_HOST
  if (C > 1) cudahost::cudahost_cluster_wait();
#else
  if (C > 1) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
template <int C>
__device__ __forceinline__ void cluster_sync() {
  if (C == 1) return __syncthreads();
  cluster_arrive<C>();
  cluster_wait<C>();
}

// cluster_come is an arrival that publishes initialised barriers, and nothing else: a release of the cluster waits for all memory of the thread.
template <int C>
__device__ __forceinline__ void cluster_come() {
#ifdef METRALE_HOST
  cluster_arrive<C>();
#else
  if (C > 1) asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

// cluster_array is what block rank of the cluster has where this one has p, in dynamic shared memory. What is pushed there counts its bytes at the
// barrier full of that block; cluster_pushed, by all threads of a block, returns once all it expects are there. Of one block it is what the block
// stores, and a barrier of the block.
template <int C>
struct cluster_array {
#ifdef METRALE_HOST
  float* at;
  uint64_t* full;
  cluster_array(float* p, uint64_t* full, int rank) : at(C > 1 ? host::there(p, rank) : p), full(C > 1 ? host::there(full, rank) : nullptr) {}
  void push(int i, float v) const {
    at[i] = v;
    if (C > 1) host::count(full, 0, 4);
  }
  void push(int i, const float4& v) const {
    std::memcpy(at + i, &v, 16);
    if (C > 1) host::count(full, 0, 16);
  }
#else
  uint32_t at, full;
  __device__ __forceinline__ cluster_array(float* p, uint64_t* full, int rank)
      : at(C > 1 ? cluster_address(p, rank) : shared_address(p)), full(C > 1 ? cluster_address(full, rank) : 0) {}
  __device__ __forceinline__ void push(int i, float v) const {
    if (C > 1)
      asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(at + 4 * i), "r"(__float_as_uint(v)), "r"(full)
                   : "memory");
    else
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(at + 4 * i), "f"(v) : "memory");
  }
  // The same of four, i a multiple of 4.
  __device__ __forceinline__ void push(int i, const float4& v) const {
    if (C > 1)
      asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(at + 4 * i), "r"(__float_as_uint(v.x)),
                   "r"(__float_as_uint(v.y)), "r"(__float_as_uint(v.z)), "r"(__float_as_uint(v.w)), "r"(full)
                   : "memory");
    else
      asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at + 4 * i), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
  }
#endif
};
// cluster_open, by one thread before it arrives, makes full such a barrier; cluster_expect, by that thread, says what a phase brings.
template <int C>
__device__ __forceinline__ void cluster_open(uint64_t* full) {
  if (C > 1) mbarrier_init(full, 1), mbarrier_publish();
}
template <int C>
__device__ __forceinline__ void cluster_expect(uint64_t* full, uint32_t bytes) {
  if (C > 1) mbarrier_expect(full, bytes);
}
template <int C>
__device__ __forceinline__ void cluster_pushed(uint64_t* full, uint32_t parity = 0) {
  if (C > 1)
    mbarrier_wait(full, parity);
  else
    __syncthreads();
}

}  // namespace ptx
