// SPDX-License-Identifier: MIT OR Apache-2.0
// PTX that Hopper adds or that C++ has no word for, each instruction wrapped once.
#pragma once

#include <cstdint>
#include <cstring>

#include "griddepcontrol.cuh"
#ifdef METRALE_HOST
#include "host.cuh"
#endif

namespace ptx {

// ------------------------------------------------------------------------------------- programmatic dependent launch

// start_successor lets the next launch come up; wait_for_predecessor returns once all launches before this one are complete and
// their writes visible. In between, a kernel may only read what was there before the step: weights, constants, the step block,
// keys and states of earlier steps.
__device__ __forceinline__ void start_successor() { griddepcontrol_launch_dependents(); }
__device__ __forceinline__ void wait_for_predecessor() { griddepcontrol_wait(); }
// For a kernel whose successor reads, before it waits, what the launch before this one wrote.
__device__ __forceinline__ void wait_for_predecessor_first() {
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
}

#ifndef METRALE_HOST

__device__ __forceinline__ uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

// ------------------------------------------------------------------------------------------------- barriers in memory

__device__ __forceinline__ void mbarrier_init(uint64_t* b, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count) : "memory");
}
// Makes initialised barriers known to the copy engine.
__device__ __forceinline__ void mbarrier_publish() { asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void mbarrier_expect(uint64_t* b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint64_t* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
// Returns once the phase of that parity is complete.
__device__ __forceinline__ void mbarrier_wait(uint64_t* b, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(shared_address(b)),
      "r"(parity)
      : "memory");
}
// A barrier of some threads of a block, all of the same warps.
__device__ __forceinline__ void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ------------------------------------------------------------------------------------------------------------- copies

// Copies 16 bytes into shared memory; async_wait returns once those that the thread has started are there.
__device__ __forceinline__ void async_copy(void* dst, const void* src) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(dst)), "l"(src) : "memory");
}
__device__ __forceinline__ void async_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// The same of weights. async_commit makes a group of what the thread has started since the last one; async_wait_but returns once
// all but the newest N groups are there.
__device__ __forceinline__ void async_copy_weights(void* dst, const void* src) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_address(dst)), "l"(src) : "memory");
}
// The same, and L2 lets go of it before anything else.
__device__ __forceinline__ void async_copy_passing(void* dst, const void* src) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(dst)), "l"(src), "l"(policy) : "memory");
}
__device__ __forceinline__ void async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void async_wait_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
// Brings bytes (a multiple of 16, the addresses too) to shared memory, and counts them at the barrier.
__device__ __forceinline__ void bulk_copy(void* shared, const void* global, uint32_t bytes, uint64_t* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(shared)), "l"(global),
               "r"(bytes), "r"(shared_address(b))
               : "memory");
}
// Takes bytes (the same) from shared memory, whose writers have fenced it (fence_shared_for_async) before a barrier. What the thread
// has stored so is read after bulk_store_read, and written after bulk_store_done.
__device__ __forceinline__ void bulk_store(void* global, const void* shared, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n\tcp.async.bulk.commit_group;" ::"l"(global), "r"(shared_address(shared)),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_store_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ __forceinline__ void bulk_store_done() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
// fence_shared_for_async makes this thread's writes to shared memory known to the tensor cores and the copy engine; a barrier of the
// threads follows.
__device__ __forceinline__ void fence_shared_for_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Brings bytes (a multiple of 16, the address too) to L2.
__device__ __forceinline__ void bulk_prefetch_l2(const void* p, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes));
}
__device__ __forceinline__ void prefetch_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// What is read once, as the KV cache: not kept in L1. Volatile, so that it stays where the code has it.
__device__ __forceinline__ uint4 load_stream(const void* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// Weights: the same, of what no launch writes.
__device__ __forceinline__ uint4 load_weights(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

__device__ __forceinline__ uint32_t load_weights_word(const void* p) {
  uint32_t v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}

// Activations: what another multiprocessor wrote lies in L2. Volatile, so that they stay where the code has them.
__device__ __forceinline__ float4 load_l2(const float4* p) {
  float4 v;
  asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
  return v;
}
__device__ __forceinline__ float load_l2(const float* p) {
  float v;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ int32_t load_l2(const int32_t* p) {
  int32_t v;
  asm volatile("ld.global.cg.s32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}

// Shared memory by its own address, which stays in a register. Loads are volatile, so that they stay between barriers.
using shared_pointer = uint32_t;
__device__ __forceinline__ shared_pointer pinned(const void* p) {
  uint32_t a;
  asm volatile("mov.u32 %0, %1;" : "=r"(a) : "r"(shared_address(p)));
  return a;
}
__device__ __forceinline__ uint4 load_shared(shared_pointer p) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(p));
  return v;
}
__device__ __forceinline__ uint32_t load_shared_word(shared_pointer p) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(p));
  return v;
}

#else

inline void async_copy(void* dst, const void* src) { std::memcpy(dst, src, 16); }
inline void async_wait() {}
inline void async_copy_weights(void* dst, const void* src) { std::memcpy(dst, src, 16); }
inline void async_copy_passing(void* dst, const void* src) { std::memcpy(dst, src, 16); }
inline void async_commit() {}
template <int N>
void async_wait_but() {}
using shared_pointer = const unsigned char*;
inline shared_pointer pinned(const void* p) { return static_cast<const unsigned char*>(p); }
inline uint4 load_shared(shared_pointer p) { return *reinterpret_cast<const uint4*>(p); }
inline uint32_t load_shared_word(shared_pointer p) { return *reinterpret_cast<const uint32_t*>(p); }
inline void bulk_prefetch_l2(const void*, uint32_t) {}
inline void prefetch_l2(const void*) {}
inline uint4 load_stream(const void* p) { return *static_cast<const uint4*>(p); }
inline uint4 load_weights(const void* p) { return *static_cast<const uint4*>(p); }
inline uint32_t load_weights_word(const void* p) { return *static_cast<const uint32_t*>(p); }
template <class T>
T load_l2(const T* p) {
  return *p;
}

#endif

// --------------------------------------------------------------------------------------------------- synchronisation

#ifdef METRALE_HOST
inline uint32_t load_acquire(const uint32_t* p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
inline uint32_t add_release(uint32_t* p, uint32_t v) { return atomicAdd(p, v); }
inline uint32_t load_word(const uint32_t* p) { return load_acquire(p); }
inline uint4 load_words(const uint32_t* p) { return {load_word(p), load_word(p + 1), load_word(p + 2), load_word(p + 3)}; }
inline void store_word(uint32_t* p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }
inline void pause() { cudahost::cudahost_pause(); }
#else
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ uint32_t add_release(uint32_t* p, uint32_t v) {
  uint32_t old;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
  return old;
}
// Words that are their own flags: each arrives whole, and nothing is known of what else its writer wrote.
__device__ __forceinline__ uint4 load_words(const uint32_t* p) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ uint32_t load_word(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void store_word(uint32_t* p, uint32_t v) { asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
// pause stands in loops that wait for other blocks.
__device__ __forceinline__ void pause() {}

// ----------------------------------------------------------------------------------------------------------- clusters

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
__device__ __forceinline__ uint32_t cluster_size() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(r));
  return r;
}
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}
// Address of the same shared variable in another block of the cluster.
__device__ __forceinline__ uint32_t cluster_map(uint32_t address, uint32_t rank) {
  uint32_t a;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) : "r"(address), "r"(rank));
  return a;
}
__device__ __forceinline__ uint32_t cluster_address(const void* p, uint32_t rank) { return cluster_map(shared_address(p), rank); }
__device__ __forceinline__ float cluster_load(uint32_t address) {
  float v;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ void cluster_store(uint32_t address, float v) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory");
}

#endif

}  // namespace ptx
