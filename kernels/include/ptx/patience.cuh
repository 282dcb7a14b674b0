// SPDX-License-Identifier: MIT OR Apache-2.0
// How long a block waits for other blocks.
#pragma once

#include "sm90.cuh"

namespace ptx {

// Patience bounds a loop that looks at what other blocks write. A block that never comes would hold the device for ever; a trap loses
// it with an error that names the launch. Looks are counted, not time: the kernel may be stopped by a debugger, or run in turns with others. A
// look goes to L2 and takes a third of a microsecond at least, so the end of patience is above a second; blocks come within microseconds.
// Barriers in memory have no bound: what they wait for comes from the same block, or waits for the launch before, which may take long. A
// lost arrival ends by the host's limit (internal/gpu/cuda/wait.go).
class Patience {
 public:
  __device__ __forceinline__ void pause() {
    ptx::pause();
#ifndef METRALE_HOST
    if (++looks_ == kMostLooks) __trap();
#endif
  }

 private:
  static constexpr uint32_t kMostLooks = 1 << 22;
  uint32_t looks_ = 0;
};

}  // namespace ptx
