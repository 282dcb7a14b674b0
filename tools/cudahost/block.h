// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once
#include "cuda_host.h"

namespace cudahost {
constexpr unsigned kMultiprocessors = 4;

// run_grid computes a launch and returns when it is done.
void run_grid(const Entry* e, void** params, dim3 grid, dim3 block, size_t shared, unsigned cluster);
}  // namespace cudahost
