// SPDX-License-Identifier: MIT OR Apache-2.0
// What checks and timings of many-row kernels need beside rig.cuh: values made on the device, tensor maps, comparison of whole
// arrays with a float64 product. Needs a GPU.
#pragma once

#include <cuda.h>

#include "rig.cuh"

namespace prefill {

// -------------------------------------------------------------------------------------------------------- command line

// Words opens the device and says what of a bench was asked for.
struct Words {
  std::vector<std::string> list;

  Words(int argc, char** argv) : list(argv + 1, argv + argc) {
    OK(cudaSetDevice(0));
    cudaDeviceProp prop;
    OK(cudaGetDeviceProperties(&prop, 0));
    OK(cudaStreamCreate(&rig::stream));
    rig::sms = prop.multiProcessorCount;
    printf("%s, %d multiprocessors\n", prop.name, rig::sms);
  }
  // has is true of all parts if none was named.
  bool has(const char* part) const {
    bool named = false;
    for (const std::string& w : list) {
      if (w == part) return true;
      named |= w.find('=') == std::string::npos;
    }
    return !named;
  }
  // numbers reads name=1,2,3.
  std::vector<int> numbers(const std::string& name, std::vector<int> otherwise) const {
    for (const std::string& w : list) {
      if (w.rfind(name + "=", 0) != 0) continue;
      otherwise.clear();
      for (const char* p = w.c_str() + name.size() + 1; *p; p += strcspn(p, ","), p += *p == ',') otherwise.push_back(atoi(p));
    }
    return otherwise;
  }
  // close is main's result.
  int close() const {
    printf("%d failures\n", rig::failures);
    return rig::failures != 0;
  }
};

// ------------------------------------------------------------------------------------------------------------- values

__global__ void fill_normals(float* p, uint64_t n, uint32_t seed) {  // about normal
  for (uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; i < n; i += uint64_t(gridDim.x) * blockDim.x) {
    float s = 0;
    for (int k = 0; k < 4; k++) s += float(rig::hash(4 * i + k, seed)) * 2.3283064e-10f - 0.5f;
    p[i] = s * 1.7320508f;
  }
}
inline float* normals(size_t n, uint32_t seed) {
  float* p = rig::device<float>(n);
  fill_normals<<<rig::sms * 8, 256, 0, rig::stream>>>(p, n, seed);
  OK(cudaGetLastError());
  return p;
}

// --------------------------------------------------------------------------------------------------------- tensor maps

// box_map encodes boxes of a bf16 array of any axes, innermost first: how many, how many bytes apart (of all but the first), how many a
// box has. A row of 64 is swizzled as 128 bytes.
template <class Map>
Map box_map(const void* p, const std::vector<uint64_t>& dims, const std::vector<uint64_t>& strides, const std::vector<uint32_t>& box) {
  static decltype(&cuTensorMapEncodeTiled) encode = nullptr;
  if (!encode) {
    cudaDriverEntryPointQueryResult found;
    OK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", reinterpret_cast<void**>(&encode), 12000, cudaEnableDefault, &found));
  }
  CUtensorMap m;
  const cuuint32_t step[5] = {1, 1, 1, 1, 1};
  const std::vector<cuuint64_t> d(dims.begin(), dims.end()), s(strides.begin(), strides.end());
  const CUresult r = encode(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, dims.size(), const_cast<void*>(p), d.data(), s.data(), box.data(), step,
                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) {
    printf("FATAL tensor map of %zu axes, rows of %llu: %d\n", dims.size(), (unsigned long long)dims[0], int(r));
    std::_Exit(2);
  }
  Map out;
  static_assert(sizeof out == sizeof m, "");
  memcpy(&out, &m, sizeof m);
  return out;
}
// matrices_map is that of n matrices with boxes of 1 × box_rows × 64.
template <class Map>
Map matrices_map(const void* p, uint64_t n, uint64_t rows, uint64_t K, uint32_t box_rows) {
  return box_map<Map>(p, {K, rows, n}, {K * 2, K * 2 * rows}, {64, box_rows, 1});
}
template <class Map>
Map matrix_map(const void* p, uint64_t rows, uint64_t K, uint32_t box_rows) {
  return box_map<Map>(p, {K, rows}, {K * 2}, {64, box_rows});
}

// ---------------------------------------------------------------------------------------------------------- reference

__device__ inline double wide(uint16_t v) { return double(__uint_as_float(uint32_t(v) << 16)); }

// product: y[r, n] = Σ_k bf16(x[r, k]) w[n, k], in float64. Blocks of 16 × 16 outputs.
__global__ void product(const float* x, const uint16_t* w, double* y, int rows, int N, int K) {
  __shared__ double a[16][33], b[16][33];
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, r0 = blockIdx.y * 16, n0 = blockIdx.x * 16;
  double s = 0;
  for (int k = 0; k < K; k += 32) {
    for (int i = threadIdx.x; i < 16 * 32; i += 256) {
      const int r = i / 32, c = i % 32;
      uint32_t u = 0;
      if (r0 + r < rows && k + c < K) u = __float_as_uint(x[uint64_t(r0 + r) * K + k + c]);
      u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
      a[r][c] = double(__uint_as_float(u));
      b[r][c] = n0 + r < N && k + c < K ? wide(w[uint64_t(n0 + r) * K + k + c]) : 0.0;
    }
    __syncthreads();
    for (int c = 0; c < 32; c++) s += a[ty][c] * b[tx][c];
    __syncthreads();
  }
  if (r0 + ty < rows && n0 + tx < N) y[uint64_t(r0 + ty) * N + n0 + tx] = s;
}
inline double* reference(const float* x, const uint16_t* w, int rows, int N, int K) {
  double* y = rig::device<double>(size_t(rows) * N);
  product<<<dim3((N + 15) / 16, (rows + 15) / 16), 256, 0, rig::stream>>>(x, w, y, rows, N, K);
  OK(cudaGetLastError());
  return y;
}

// combine turns products into what a kernel shall give: bias, old value, or act(gate)*up with silu.
__global__ void combine(double* y, const double* up, const float* bias, const float* old, uint64_t n, int N) {
  for (uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; i < n; i += uint64_t(gridDim.x) * blockDim.x) {
    double v = y[i];
    if (bias) v += bias[i % N];
    if (old) v += old[i];
    if (up) v = v / (1 + exp(-v)) * up[i];
    y[i] = v;
  }
}

struct Sums {
  double diff, ref, worst;
  unsigned long long bad, touched;
};
// compare holds rows of y against ref; rows from there on up to all must still be poisoned.
__global__ void compare(const float* y, const double* ref, uint64_t n, uint64_t all, Sums* out) {
  double diff = 0, sum = 0, worst = 0;
  unsigned long long bad = 0, touched = 0;
  for (uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; i < all; i += uint64_t(gridDim.x) * blockDim.x) {
    if (i >= n) {
      touched += __float_as_uint(y[i]) != 0xffffffffu;
      continue;
    }
    const double d = double(y[i]) - ref[i];
    if (!isfinite(y[i])) {
      bad++;
      continue;
    }
    diff += d * d, sum += ref[i] * ref[i], worst = fmax(worst, fabs(d));
  }
  atomicAdd(&out->diff, diff);
  atomicAdd(&out->ref, sum);
  atomicAdd(&out->bad, bad);
  atomicAdd(&out->touched, touched);
  atomicMax(reinterpret_cast<unsigned long long*>(&out->worst), (unsigned long long)__double_as_longlong(worst));
}
inline void hold(const char* what, const float* y, const double* ref, int rows, int all, int N, double limit) {
  Sums* d = rig::device<Sums>(1, 0);
  compare<<<rig::sms * 4, 256, 0, rig::stream>>>(y, ref, uint64_t(rows) * N, uint64_t(all) * N, d);
  OK(cudaGetLastError());
  const Sums s = rig::download(d, 1)[0];
  const double rel = std::sqrt(s.diff / std::max(s.ref, 1e-300));
  const bool good = s.bad == 0 && s.touched == 0 && rel <= limit;
  if (!good) rig::failures++;
  printf("check %-62s rel %.2e worst %.2e", what, rel, s.worst);
  if (s.bad || s.touched) printf(" %llu not finite, %llu beyond the rows touched", s.bad, s.touched);
  printf("  %s\n", good ? "ok" : "FAILED");
  fflush(stdout);
}

}  // namespace prefill
