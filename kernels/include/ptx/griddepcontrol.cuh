// SPDX-License-Identifier: MIT OR Apache-2.0
// Programmatic dependent launch: a kernel may come up while the one before it still runs.
#pragma once

#include <cstdint>

namespace ptx {

// griddepcontrol_wait returns when all grids that this one depends on are done and their writes are visible.
__device__ __forceinline__ void griddepcontrol_wait() {
#ifdef __CUDA_ARCH__
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// griddepcontrol_launch_dependents lets the next grid come up once every block of this one has called it or left.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
#ifdef __CUDA_ARCH__
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// load_early is a load that stays where the code has it, before a wait above all; others come when they are needed.
__device__ __forceinline__ int32_t load_early(const int32_t* p) {
#ifdef __CUDA_ARCH__
  int32_t v;
  asm volatile("ld.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
#else
  return *p;
#endif
}
__device__ __forceinline__ float load_early(const float* p) {
#ifdef __CUDA_ARCH__
  float v;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
  return v;
#else
  return *p;
#endif
}
__device__ __forceinline__ float4 load_early(const float4* p) {
#ifdef __CUDA_ARCH__
  float4 v;
  asm volatile("ld.global.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p) : "memory");
  return v;
#else
  return *p;
#endif
}

}  // namespace ptx
