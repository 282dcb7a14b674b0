// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernels as the tree has them, each file in a namespace of its own.
#pragma once

#include <type_traits>

#include "../../kernels/hopper/common/experts/rows.cuh"
#include "../../kernels/hopper/common/linear/rows.cuh"
#include "../../kernels/include/epilogue/act.cuh"
#include "../../kernels/include/mma/weight_queue.cuh"
#include "../../kernels/include/mma/weight_tiles.cuh"
#include "../../kernels/include/ptx/patience.cuh"

namespace k_linear {
#include "../../kernels/hopper/common/linear/rows.cu"
#undef ENTRY
}  // namespace k_linear
namespace k_queue {
#include "../../kernels/hopper/common/linear/queue.cu"
}  // namespace k_queue
namespace k_experts {
#include "../../kernels/hopper/common/experts/rows.cu"
#undef ENTRY
}  // namespace k_experts
namespace k_layer {
#include "../../kernels/hopper/common/experts/layer.cu"
}  // namespace k_layer
namespace k_router {
#include "../../kernels/hopper/common/router/rows.cu"
}  // namespace k_router
namespace k_recurrent {
#include "../../kernels/hopper/common/recurrent/delta_rows.cu"
}  // namespace k_recurrent
