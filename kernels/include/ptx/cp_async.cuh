// SPDX-License-Identifier: MIT OR Apache-2.0
// Copies from global to shared memory that pass no register.
#pragma once

#include <cstdint>
#include <cstring>

namespace ptx {

// cp_async copies N bytes, 4, 8 or 16 and aligned to that; zeros where there is nothing to copy. They are there after
// cp_async_wait, and after a barrier for other threads.
template <int N>
__device__ __forceinline__ void cp_async(void* shared, const void* global, bool there) {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(uint32_t(__cvta_generic_to_shared(shared))), "l"(global), "n"(N), "r"(there ? N : 0)
               : "memory");
#else
  if (there)
    std::memcpy(shared, global, N);
  else
    std::memset(shared, 0, N);
#endif
}

__device__ __forceinline__ void cp_async_wait() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

}  // namespace ptx
