// SPDX-License-Identifier: MIT OR Apache-2.0
// Copies into shared memory where some rows are not there.
#pragma once

#include "sm90.cuh"

namespace ptx {

// Copies 16 bytes into shared memory as async_copy_weights does, or zeros, and then reads nothing.
__device__ __forceinline__ void async_copy_or_zero(void* dst, const void* src, bool copies) {
#ifdef METRALE_HOST
  copies ? std::memcpy(dst, src, 16) : std::memset(dst, 0, 16);
#else
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(dst)), "l"(src), "r"(copies ? 16 : 0) : "memory");
#endif
}

}  // namespace ptx
