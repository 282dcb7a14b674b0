// SPDX-License-Identifier: MIT OR Apache-2.0
// What every kernel of a plan begins with.
#pragma once

#include <cstdint>

#include "ptx/griddepcontrol.cuh"

// begin lets the next launch come up and waits for what the launches before have written. It is the first statement of a
// kernel, in every thread: a grid that ended without it could end before its predecessor.
__device__ __forceinline__ void begin() {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
}

// The same with what early reads in between, and gives: what no launch of a step writes, as weights, constants and the step block but
// for its tokens.
template <class F>
__device__ __forceinline__ auto begin(F early) {
  ptx::griddepcontrol_launch_dependents();
  const auto read = early();
  ptx::griddepcontrol_wait();
  return read;
}

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
