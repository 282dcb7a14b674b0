// SPDX-License-Identifier: MIT OR Apache-2.0
// OK ends the program where a call of the runtime fails.
#pragma once

#include <cstdio>
#include <cstdlib>

#include <cuda_runtime.h>

#define OK(call)                                                                          \
  do {                                                                                    \
    cudaError_t e_ = (call);                                                              \
    if (e_ != cudaSuccess) {                                                              \
      printf("FATAL %s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_)); \
      fflush(stdout);                                                                     \
      std::_Exit(2);                                                                      \
    }                                                                                     \
  } while (0)
