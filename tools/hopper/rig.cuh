// SPDX-License-Identifier: MIT OR Apache-2.0
// What the checks and timings of Hopper's decode kernels stand on: memory, random values that host and device agree on, launches
// with attributes, graph timing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

#include "fatal.cuh"

namespace rig {

inline cudaStream_t stream;
inline int sms = 132;
inline bool pdl = true;        // of launches that support it
inline int carveout = 0;       // percent of L1 that launches ask for as shared memory; 0: the driver's choice
inline double sweep = 0;       // GB/s of the read sweep
inline int failures = 0;

// ------------------------------------------------------------------------------------------------------------- values

__host__ __device__ inline uint32_t hash(uint64_t i, uint32_t seed) {
  uint64_t z = (i + 1) * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return uint32_t(z >> 32);
}
// Odd multiples of 2^-8 below 1, times 2^-e: exact in bf16.
__host__ __device__ inline float weight(uint64_t i, uint32_t seed, int e) {
  return float(2 * int(hash(i, seed) & 255) - 255) * (1.0f / 256) / float(1 << e);
}
__host__ __device__ inline uint16_t bits(float v) {
#ifdef __CUDA_ARCH__
  return uint16_t(__float_as_uint(v) >> 16);
#else
  uint32_t u;
  memcpy(&u, &v, 4);
  return uint16_t(u >> 16);
#endif
}
// About normal.
inline float normal(uint64_t i, uint32_t seed) {
  double s = 0;
  for (int k = 0; k < 4; k++) s += double(hash(4 * i + k, seed)) / 4294967296.0 - 0.5;
  return float(s * 1.7320508);
}
inline float to_bf16(float v) {
  uint32_t u;
  memcpy(&u, &v, 4);
  u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
  memcpy(&v, &u, 4);
  return v;
}

__global__ void fill_weights(uint16_t* p, uint64_t n, uint32_t seed, int e) {
  for (uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; i < n; i += uint64_t(gridDim.x) * blockDim.x)
    p[i] = bits(weight(i, seed, e));
}

// --------------------------------------------------------------------------------------------------------------- memory

inline std::vector<void*> owned;
template <class T>
T* device(size_t n, int byte = 0xff) {  // poisoned with NaN
  void* p = nullptr;
  OK(cudaMalloc(&p, n * sizeof(T) + 256));
  OK(cudaMemset(p, byte, n * sizeof(T) + 256));
  owned.push_back(p);
  return static_cast<T*>(p);
}
template <class T>
T* upload(const std::vector<T>& v) {
  T* p = device<T>(v.size());
  OK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
  return p;
}
template <class T>
std::vector<T> download(const T* p, size_t n) {
  std::vector<T> v(n);
  OK(cudaDeviceSynchronize());
  OK(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
  return v;
}
inline void release() {
  for (void* p : owned) OK(cudaFree(p));
  owned.clear();
}
inline uint16_t* weights(size_t n, uint32_t seed, int e) {
  void* q = nullptr;
  OK(cudaMalloc(&q, n * 2 + 256));
  owned.push_back(q);
  fill_weights<<<132 * 8, 256, 0, stream>>>(static_cast<uint16_t*>(q), n, seed, e);
  OK(cudaGetLastError());
  return static_cast<uint16_t*>(q);
}
inline std::vector<float> normals(size_t n, uint32_t seed, float scale = 1) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; i++) v[i] = scale * normal(i, seed);
  return v;
}

template <class F>
void parallel(int n, F f) {
  std::atomic<int> next{0};
  std::vector<std::thread> team;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); t++)
    team.emplace_back([&] {
      for (int i; (i = next++) < n;) f(i);
    });
  for (auto& t : team) t.join();
}

// -------------------------------------------------------------------------------------------------------------- launches

struct Config {
  dim3 grid;
  int block;
  size_t shared = 0;
  int cluster = 1;
  bool pdl = true;
};

template <class... P, class... A>
void launch(void (*kernel)(P...), const Config& c, A... args) {
  static std::vector<const void*> seen;
  if (std::find(seen.begin(), seen.end(), (const void*)kernel) == seen.end()) {
    cudaFuncAttributes at;
    OK(cudaFuncGetAttributes(&at, kernel));
    OK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024 - int(at.sharedSizeBytes)));
    if (carveout) OK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, carveout));
    seen.push_back((const void*)kernel);
  }
  cudaLaunchAttribute at[2];
  cudaLaunchConfig_t config = {};
  config.gridDim = c.grid, config.blockDim = c.block, config.dynamicSmemBytes = c.shared, config.stream = stream, config.attrs = at;
  if (c.pdl && pdl) {
    at[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    at[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (c.cluster > 1) {
    at[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    at[config.numAttrs].val.clusterDim = {unsigned(c.cluster), 1, 1};
    config.numAttrs++;
  }
  OK(cudaLaunchKernelEx(&config, kernel, P(args)...));
}

// microseconds of one call of step, which makes launches for i = 0 … n-1, as replays of one graph.
inline double time_graph(int n, const std::function<void(int)>& step, int replays = 20) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < n; i++) step(i);
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t a, b;
  OK(cudaEventCreate(&a));
  OK(cudaEventCreate(&b));
  std::vector<float> t;
  for (int i = 0; i < replays + 3; i++) {
    OK(cudaEventRecord(a, stream));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaEventRecord(b, stream));
    OK(cudaEventSynchronize(b));
    float ms;
    OK(cudaEventElapsedTime(&ms, a, b));
    if (i >= 3) t.push_back(ms);
  }
  std::sort(t.begin(), t.end());
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
  OK(cudaEventDestroy(a));
  OK(cudaEventDestroy(b));
  return double(t[t.size() / 2]) * 1e3 / n;
}

// ---------------------------------------------------------------------------------------------------------------- checks

struct Error {
  double diff = 0, ref = 0, worst = 0;
  bool finite = true;
  void add(double got, double want) {
    if (!std::isfinite(got)) finite = false;
    diff += (got - want) * (got - want);
    ref += want * want;
    worst = std::max(worst, std::fabs(got - want));
  }
  double relative() const { return finite ? std::sqrt(diff / std::max(ref, 1e-300)) : NAN; }
};

inline void verdict(const char* what, const Error& e, double limit) {
  const bool good = e.relative() <= limit;
  if (!good) failures++;
  printf("check %-58s rel %.2e worst %.2e  %s\n", what, e.relative(), e.worst, good ? "ok" : "FAILED");
  fflush(stdout);
}
inline void all_finite(const char* what, const std::vector<float>& v) {
  for (size_t i = 0; i < v.size(); i++)
    if (!std::isfinite(v[i])) {
      printf("check %s: element %zu of %zu is %g  FAILED\n", what, i, v.size(), v[i]);
      failures++;
      return;
    }
}

// report prints a timing against the floor of the read sweep.
inline void report(const char* what, double us, double bytes) {
  printf("time  %-58s %9.2f us %8.0f GB/s %5.1f%% of sweep\n", what, us, bytes / us * 1e-3, 100 * bytes / us * 1e-3 / sweep);
  fflush(stdout);
}

__global__ void sweep_kernel(const uint4* p, uint64_t n, uint32_t* out) {
  uint32_t s = 0;
  uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x;
  const uint64_t step = uint64_t(gridDim.x) * blockDim.x;
  for (; i + 7 * step < n; i += 8 * step) {
    uint4 v[8];
#pragma unroll
    for (int k = 0; k < 8; k++) v[k] = __ldcs(p + i + k * step);
#pragma unroll
    for (int k = 0; k < 8; k++) s ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
  }
  for (; i < n; i += step) s ^= p[i].x;
  if (s == 0x12345678) *out = s;
}

inline void measure_sweep() {
  const uint64_t bytes = 8ull << 30;
  uint16_t* p = weights(bytes / 2, 1, 0);
  uint32_t* out = device<uint32_t>(1);
  for (int blocks : {2, 4, 8, 16}) {
    const double us = time_graph(1, [&](int) { sweep_kernel<<<sms * blocks, 512, 0, stream>>>((const uint4*)p, bytes / 16, out); }, 9);
    sweep = std::max(sweep, bytes / us * 1e-3);
  }
  printf("read sweep %.0f GB/s over 8 GiB\n", sweep);
  release();
}

}  // namespace rig
