// SPDX-License-Identifier: MIT OR Apache-2.0
// The linear kernels of many rows, each file in a namespace of its own. Needs a GPU.
#pragma once

#include "../../kernels/include/epilogue/fast_act.cuh"
#include "../../kernels/include/mma/bf16.cuh"
#include "../../kernels/include/mma/narrow.cuh"
#include "../../kernels/include/mma/parts.cuh"
#include "../../kernels/include/mma/tiles.cuh"

namespace k_tiles {
#include "../../kernels/hopper/common/linear/tiles.cu"
#undef MAP
#undef ENTRY
#undef LINEAR
#undef LINEAR_GLU
}  // namespace k_tiles
namespace k_narrow {
#include "../../kernels/hopper/common/linear/narrow.cu"
#undef MAP
#undef ENTRY
#undef LINEAR
#undef LINEAR_N
#undef LINEAR_GLU
#undef ALL_OF
}  // namespace k_narrow
