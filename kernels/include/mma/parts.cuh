// SPDX-License-Identifier: MIT OR Apache-2.0
// Several matrices of one x, whose rows are cut into tiles that count through: those of the first, of the second, …
#pragma once

#include "../ptx/tensor_copy.cuh"

namespace parts {

// pick is p[i] without indexing memory.
template <class T, int N>
__device__ __forceinline__ T pick(const T (&p)[N], int i) {
  T v = p[0];
#pragma unroll
  for (int j = 1; j < N; j++) v = i == j ? p[j] : v;
  return v;
}

// biased adds b's four values from n on, of which those below N exist, where there is b.
__device__ __forceinline__ float4 biased(float4 v, const float* b, int n, int N) {
  if (b) {
    v.x += b[n];
    if (n + 1 < N) v.y += b[n + 1];
    if (n + 2 < N) v.z += b[n + 2];
    if (n + 3 < N) v.w += b[n + 3];
  }
  return v;
}

// put_four writes, or adds, four neighbours, of which cols exist.
template <bool Add>
__device__ __forceinline__ void put_four(float* y, float4 v, int cols, bool aligned) {
  if (aligned && cols >= 4) {
    if (Add)
      ptx::add_to(y, v);
    else
      *reinterpret_cast<float4*>(y) = v;
    return;
  }
  const float s[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (i < cols) y[i] = Add ? y[i] + s[i] : s[i];
}

template <int N, int Cols>
struct Parts {
  const ptx::tensor_map* w[N];  // [n, K]
  const float* bias[N];         // [n], or null
  float* y[N];                  // [rows, n]
  int n[N];

  __device__ __forceinline__ static int of(int n) { return (n + Cols - 1) / Cols; }
  __device__ __forceinline__ int tiles() const {
    int sum = 0;
#pragma unroll
    for (int i = 0; i < N; i++) sum += of(n[i]);
    return sum;
  }
  // find turns a tile of all into one of a matrix.
  __device__ __forceinline__ int find(int& tile) const {
    int at = 0;
#pragma unroll
    for (int i = 0; i < N - 1; i++)
      if (at == i && tile >= of(n[i])) tile -= of(n[i]), at = i + 1;
    return at;
  }
};

}  // namespace parts
