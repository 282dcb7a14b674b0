// SPDX-License-Identifier: MIT OR Apache-2.0
// What a HIP kernel needs of clang itself: no header or library of ROCm is there.
#pragma once

using int32_t = int;
using int64_t = long;

// An entry; threads is the most that a block of it has.
#define ENTRY(threads) extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define DEVICE __attribute__((device)) inline
#define SHARED __attribute__((shared))

DEVICE int block_id_x() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE int thread_id() { return __builtin_amdgcn_workitem_id_x(); }

// All threads of the block come here before any goes on, and see what the others wrote.
DEVICE void sync_block() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
