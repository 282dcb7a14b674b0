// SPDX-License-Identifier: MIT OR Apache-2.0
// Two entries with all that a device loads of a module. two.cubin is: nvcc -cubin -arch=sm_90a -O3 -lineinfo -o two.cubin two.cu
__constant__ float table[4] = {1, 2, 3, 4};
__device__ __noinline__ float far(float x) { return x * table[2]; }
extern "C" __global__ void first(float* y) {
  __shared__ float s[32];
  s[threadIdx.x] = y[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = far(s[31 - threadIdx.x]);
}
extern "C" __global__ void second(float* y, int n) { y[threadIdx.x] += n; }
