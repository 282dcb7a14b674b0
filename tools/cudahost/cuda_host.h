// SPDX-License-Identifier: MIT OR Apache-2.0
// What CUDA C++ has and C++ lacks, so that a kernel compiles for the host. Every thread of a block is a fiber of one operating
// system thread (block.cpp); barriers and warp exchanges switch fibers. Force-included before a kernel's source.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#define METRALE_HOST 1

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __shared__
#undef __forceinline__
#undef __launch_bounds__
#undef __noinline__
#undef __grid_constant__
#undef __cluster_dims__
#undef __align__
#define __global__ METRALE_ENTRY  // the build finds entries by this word, then defines it away
#define __device__
#define __host__
#define __constant__ static const
#define __shared__ static thread_local  // a block runs on one operating system thread
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __cluster_dims__(...)
#define __align__(n) alignas(n)

namespace cudahost {

// What the builtin variables of a thread say.
struct Place {
  dim3 thread_idx, block_idx, block_dim, grid_dim;
  void* shared;            // dynamic shared memory
  size_t shared_bytes;     // of it
  unsigned rank, blocks;   // of the block's cluster, which may be one block
};

extern "C" {
__attribute__((const)) Place* cudahost_place();  // fixed while a thread lives
void cudahost_barrier();
// Each lane of mask gives a value; the result is [32] values, valid until the lane's next exchange.
const uint64_t* cudahost_exchange(unsigned mask, uint64_t value);
// Halves of a barrier of a cluster's threads, and where block rank has what this one has at p, in shared memory. It must have begun, and not left.
void cudahost_cluster_arrive();
void cudahost_cluster_wait();
void* cudahost_cluster_place(const void* p, unsigned rank);
void cudahost_pause();  // lets the block's other threads go on
}

// A block's static shared memory is its thread's part of a module's thread_local variables: in each block, each lies as far from this one.
namespace {
thread_local char statics;
}

// TensorMap is what a kernel finds in the 128 bytes of a tensor map; extents and strides innermost first.
struct TensorMap {
  const char* memory;
  uint64_t dim[5], stride[4];  // elements; bytes from one of dim[i+1] to the next
  uint32_t box[5];
  uint8_t rank, bytes, swizzle;  // bytes of an element, and of a swizzled row; 0 none
};
static_assert(sizeof(TensorMap) <= 128, "");

// Entry is a kernel as the driver sees it.
struct Entry {
  const char* name;
  void (*call)(void** params);
  size_t num_params;
  const size_t* sizes;
  const size_t* aligns;
  char* (*statics)();  // of the module, on this operating system thread
};
extern "C" void cudahost_register(const Entry*);

template <auto F>
struct Kernel;
template <class... A, void (*F)(A...)>
struct Kernel<F> {
  template <size_t... I>
  static void spread(void** p, std::index_sequence<I...>) {
    F(*static_cast<std::remove_reference_t<A>*>(p[I])...);
  }
  static void call(void** p) { spread(p, std::index_sequence_for<A...>{}); }
  explicit Kernel(const char* name) {
    static const size_t sizes[] = {sizeof(A)..., 0}, aligns[] = {alignof(A)..., 0};
    static Entry e;
    e = Entry{name, call, sizeof...(A), sizes, aligns, [] { return &statics; }};
    cudahost_register(&e);
  }
};

// Values up to 8 bytes travel as bits.
template <class T>
uint64_t bits(T v) {
  static_assert(sizeof(T) <= 8, "a warp exchanges up to 8 bytes");
  uint64_t b = 0;
  std::memcpy(&b, &v, sizeof v);
  return b;
}
template <class T>
T value(uint64_t b) {
  T v;
  std::memcpy(&v, &b, sizeof v);
  return v;
}
inline unsigned linear_thread() {
  const Place* p = cudahost_place();
  return p->thread_idx.x + p->block_dim.x * (p->thread_idx.y + p->block_dim.y * p->thread_idx.z);
}
inline int lane() { return int(linear_thread() & 31); }

}  // namespace cudahost

#define threadIdx (::cudahost::cudahost_place()->thread_idx)
#define blockIdx (::cudahost::cudahost_place()->block_idx)
#define blockDim (::cudahost::cudahost_place()->block_dim)
#define gridDim (::cudahost::cudahost_place()->grid_dim)
constexpr int warpSize = 32;

// ---------------------------------------------------------------------------------------------------------------- barriers

inline void __syncthreads() { cudahost::cudahost_barrier(); }
inline int __syncthreads_or(int p) {
  static thread_local int any;
  __syncthreads();
  any = 0;
  __syncthreads();
  if (p) any = 1;
  __syncthreads();
  return any;
}
inline void __syncwarp(unsigned mask = ~0u) { cudahost::cudahost_exchange(mask, 0); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() {}
inline void __nanosleep(unsigned) {}

// ------------------------------------------------------------------------------------------------------------------- warps

template <class T>
T __shfl_sync(unsigned mask, T v, int src, int width = 32) {
  const uint64_t* all = cudahost::cudahost_exchange(mask, cudahost::bits(v));
  return cudahost::value<T>(all[(cudahost::lane() & ~(width - 1)) + (src & (width - 1))]);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int x, int width = 32) {
  const uint64_t* all = cudahost::cudahost_exchange(mask, cudahost::bits(v));
  const int l = cudahost::lane(), src = l ^ x;
  return cudahost::value<T>(all[(src & ~(width - 1)) > (l & ~(width - 1)) ? l : src]);
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned d, int width = 32) {
  const uint64_t* all = cudahost::cudahost_exchange(mask, cudahost::bits(v));
  const int l = cudahost::lane(), src = l + int(d);
  return cudahost::value<T>(all[(l & (width - 1)) + int(d) < width ? src : l]);
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned d, int width = 32) {
  const uint64_t* all = cudahost::cudahost_exchange(mask, cudahost::bits(v));
  const int l = cudahost::lane();
  return cudahost::value<T>(all[(l & (width - 1)) >= int(d) ? l - int(d) : l]);
}
inline unsigned __ballot_sync(unsigned mask, int p) {
  const uint64_t* all = cudahost::cudahost_exchange(mask, p != 0);
  unsigned b = 0;
  for (int i = 0; i < 32; i++)
    if (mask >> i & 1) b |= unsigned(all[i]) << i;
  return b;
}
inline int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
inline int __all_sync(unsigned mask, int p) { return __ballot_sync(mask, p) == mask; }
template <class T>
T __reduce_add_sync(unsigned mask, T v) {
  const uint64_t* all = cudahost::cudahost_exchange(mask, cudahost::bits(v));
  T s = 0;
  for (int i = 0; i < 32; i++)
    if (mask >> i & 1) s += cudahost::value<T>(all[i]);
  return s;
}
template <class T>
T __reduce_max_sync(unsigned mask, T v) {
  const uint64_t* all = cudahost::cudahost_exchange(mask, cudahost::bits(v));
  T m = v;
  for (int i = 0; i < 32; i++)
    if (mask >> i & 1 && cudahost::value<T>(all[i]) > m) m = cudahost::value<T>(all[i]);
  return m;
}
template <class T>
T __reduce_min_sync(unsigned mask, T v) {
  const uint64_t* all = cudahost::cudahost_exchange(mask, cudahost::bits(v));
  T m = v;
  for (int i = 0; i < 32; i++)
    if (mask >> i & 1 && cudahost::value<T>(all[i]) < m) m = cudahost::value<T>(all[i]);
  return m;
}

// ----------------------------------------------------------------------------------------------------------------- atomics

template <class T>
T cudahost_cas(T* p, T old, T now) {
  __atomic_compare_exchange(p, &old, &now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return old;
}
template <class T, class F>
T cudahost_update(T* p, F f) {
  T old, now;
  __atomic_load(p, &old, __ATOMIC_SEQ_CST);
  do now = f(old);
  while (!__atomic_compare_exchange(p, &old, &now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  return old;
}
template <class T, class U>
T atomicAdd(T* p, U v) { return cudahost_update(p, [=](T o) { return T(o + T(v)); }); }
template <class T, class U>
T atomicSub(T* p, U v) { return cudahost_update(p, [=](T o) { return T(o - T(v)); }); }
template <class T, class U>
T atomicMax(T* p, U v) { return cudahost_update(p, [=](T o) { return o > T(v) ? o : T(v); }); }
template <class T, class U>
T atomicMin(T* p, U v) { return cudahost_update(p, [=](T o) { return o < T(v) ? o : T(v); }); }
template <class T, class U>
T atomicOr(T* p, U v) { return cudahost_update(p, [=](T o) { return T(o | T(v)); }); }
template <class T, class U>
T atomicExch(T* p, U v) { return cudahost_update(p, [=](T) { return T(v); }); }
template <class T, class U, class V>
T atomicCAS(T* p, U old, V now) { return cudahost_cas<T>(p, T(old), T(now)); }
inline unsigned atomicInc(unsigned* p, unsigned top) { return cudahost_update(p, [=](unsigned o) { return o >= top ? 0u : o + 1; }); }

// -------------------------------------------------------------------------------------------------------------- arithmetic

template <class T>
T __ldg(const T* p) { return *p; }
template <class T>
T __ldcs(const T* p) { return *p; }
template <class T>
T __ldcg(const T* p) { return *p; }
template <class T>
void __stcs(T* p, T v) { *p = v; }
template <class T>
void __stcg(T* p, T v) { *p = v; }
inline float __uint_as_float(unsigned u) { return cudahost::value<float>(u); }
inline unsigned __float_as_uint(float f) { return unsigned(cudahost::bits(f)); }
inline float __int_as_float(int i) { return cudahost::value<float>(unsigned(i)); }
inline int __float_as_int(float f) { return int(unsigned(cudahost::bits(f))); }
inline float rsqrtf(float x) { return float(1.0 / std::sqrt(double(x))); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { volatile float p = a * b; return p; }  // never contracted
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frsqrt_rn(float a) { return rsqrtf(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { volatile double p = a * b; return p; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline int __float2int_rn(float f) { return int(nearbyintf(f)); }
inline int __float2int_rz(float f) { return int(f); }
inline int __popc(unsigned u) { return __builtin_popcount(u); }
inline int __clz(int u) { return u ? __builtin_clz(unsigned(u)) : 32; }
inline int __ffs(int u) { return __builtin_ffs(u); }
inline unsigned __brev(unsigned u) {
  unsigned r = 0;
  for (int i = 0; i < 32; i++) r |= (u >> i & 1) << (31 - i);
  return r;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {  // selectors of 3 bits
  const uint64_t all = uint64_t(y) << 32 | x;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) r |= unsigned(all >> 8 * (s >> 4 * i & 7) & 0xff) << 8 * i;
  return r;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
template <class A, class B>
constexpr auto min(A a, B b) -> std::common_type_t<A, B> { return b < a ? b : a; }
template <class A, class B>
constexpr auto max(A a, B b) -> std::common_type_t<A, B> { return a < b ? b : a; }
