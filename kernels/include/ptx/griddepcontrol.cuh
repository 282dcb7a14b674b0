// SPDX-License-Identifier: MIT OR Apache-2.0
// Programmatic dependent launch: a kernel may come up while the one before it still runs.
#pragma once

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

}  // namespace ptx
