// SPDX-License-Identifier: MIT OR Apache-2.0
// What racecheck sees: small kernels with a pattern of kernels/hopper each, or with a fault (docs/kernels/hopper-prefill.md, "What
// racecheck says").
//
//	sh prefill.sh races.cu OUTPUT [NVCC]
//	compute-sanitizer --tool racecheck --racecheck-report analysis OUTPUT
//
// A kernel's report stands before the line that says that it ran.

#include <cstdio>

#include "../../kernels/include/ptx/tensor_copy.cuh"

namespace {

constexpr int kPitch = 132;

enum class Meet { kSome, kAll };  // who meets before the writes: the warps that write, or all nine

// write_and_read: eight warps write rows of 128, then nine read a row each.
template <Meet First, bool Window>
__device__ __forceinline__ void write_and_read(float* y) {
  __shared__ alignas(16) float s[32][kPitch];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (First == Meet::kAll) __syncthreads();
  if (warp < 8) {
    if (First == Meet::kSome) ptx::named_barrier(1, 256);
    for (int j = 0; j < 8; j++) s[4 * j + lane % 4][warp * 16 + lane / 4] = float(j), s[4 * j + lane % 4][warp * 16 + lane / 4 + 8] = float(lane);
  }
  __syncthreads();
  for (int r = warp; r < 32; r += 9) {
    const float4 v = Window ? ptx::cluster_load4(ptx::cluster_address(&s[r][4 * lane], 0)) : *reinterpret_cast<const float4*>(&s[r][4 * lane]);
    reinterpret_cast<float4*>(y)[(blockIdx.x * 32 + r) * 32 + lane] = v;
  }
}

enum class Free { kOne, kOneJoined, kEach, kEarly };

// ring: four warps read what a thread of another copies into two slots, and give them back by a lane of each warp, by one that waited
// for the others, by each lane, or before they have read.
template <Free How>
__device__ __forceinline__ void ring(const float* x, float* y) {
  constexpr int kTurns = 12;
  __shared__ alignas(128) float slot[2][1024];
  __shared__ uint64_t full[2], empty[2];
  const int tid = threadIdx.x, lane = tid % 32;
  if (tid == 0) {
    for (int i = 0; i < 2; i++) {
      ptx::mbarrier_init(&full[i], 1);
      ptx::mbarrier_init(&empty[i], How == Free::kEach ? 128 : 4);
    }
    ptx::mbarrier_publish();
  }
  __syncthreads();
  if (tid >= 128) {
    for (int i = 0; i < kTurns && tid == 128; i++) {
      ptx::mbarrier_wait(&empty[i % 2], (i / 2 & 1) ^ 1);
      ptx::mbarrier_expect(&full[i % 2], sizeof slot[0]);
      ptx::bulk_copy(slot[i % 2], x + i * 1024, sizeof slot[0], &full[i % 2]);
    }
    return;
  }
  float4 sum = {};
  for (int i = 0; i < kTurns; i++) {
    ptx::mbarrier_wait(&full[i % 2], i / 2 & 1);
    if (How == Free::kEarly && lane == 0) ptx::mbarrier_arrive(&empty[i % 2]);
    for (int j = 0; j < 2; j++) {
      const float4 u = reinterpret_cast<const float4*>(slot[i % 2])[j * 128 + tid];
      sum = {sum.x + u.x, sum.y + u.y, sum.z + u.z, sum.w + u.w};
    }
    if (How == Free::kOneJoined) __syncwarp();
    if (How == Free::kEach || (How != Free::kEarly && lane == 0)) ptx::mbarrier_arrive(&empty[i % 2]);
  }
  reinterpret_cast<float4*>(y)[blockIdx.x * 128 + tid] = sum;
}

#define KERNEL(NAME, THREADS, ...) \
  __global__ void __launch_bounds__(THREADS) NAME(const float* x, float* y) { __VA_ARGS__; }

KERNEL(some_meet, 288, write_and_read<Meet::kSome, false>(y))
KERNEL(all_meet, 288, write_and_read<Meet::kAll, false>(y))
KERNEL(all_meet_window, 288, write_and_read<Meet::kAll, true>(y))
KERNEL(one_frees, 160, ring<Free::kOne>(x, y))
KERNEL(one_frees_joined, 160, ring<Free::kOneJoined>(x, y))
KERNEL(each_frees, 160, ring<Free::kEach>(x, y))
KERNEL(freed_early, 160, ring<Free::kEarly>(x, y))

}  // namespace

int main() {
  constexpr int kBlocks = 300;
  float *x, *y;
  cudaMalloc(&x, 1 << 16);
  cudaMemset(x, 0, 1 << 16);
  cudaMalloc(&y, kBlocks * 32 * 128 * sizeof(float));
#define RUN(NAME, THREADS)                \
  NAME<<<kBlocks, THREADS>>>(x, y);       \
  printf("ran %s: %s\n", #NAME, cudaGetErrorString(cudaDeviceSynchronize())), fflush(stdout);
  RUN(some_meet, 288)
  RUN(all_meet, 288)
  RUN(all_meet_window, 288)
  RUN(one_frees, 160)
  RUN(one_frees_joined, 160)
  RUN(each_frees, 160)
  RUN(freed_early, 160)
}
