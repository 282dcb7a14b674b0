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

// cluster_store writes to where block rank of the cluster has what this one has at p, in dynamic shared memory.
template <int C>
__device__ __forceinline__ void cluster_store(float* p, int rank, float v) {
#ifdef METRALE_HOST
  if (C > 1) p = static_cast<float*>(cudahost::cudahost_cluster_place(p, rank));
#else
  if (C > 1) {
    uint32_t at;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_address(p)), "r"(rank));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory");
    return;
  }
#endif
  *p = v;
}

// cluster_load reads what block rank of the cluster has where this one has p, in dynamic shared memory.
template <int C>
__device__ __forceinline__ float4 cluster_load(const float4* p, int rank) {
#ifdef METRALE_HOST
  if (C > 1) p = static_cast<const float4*>(cudahost::cudahost_cluster_place(p, rank));
#else
  if (C > 1) {
    uint32_t at;
    float4 v;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_address(p)), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at) : "memory");
    return v;
  }
#endif
  return *p;
}

}  // namespace ptx
