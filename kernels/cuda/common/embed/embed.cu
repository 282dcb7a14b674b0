// SPDX-License-Identifier: MIT OR Apache-2.0
// Family embed: rows of a matrix by token. Grid: H/1024, rows; a thread writes four elements.

#include "copy/vector.cuh"
#include "step.cuh"

template <bool Aligned, class T>
__device__ __forceinline__ void embed_quad(const T* __restrict__ w, float* __restrict__ y, int at, int H, float scale) {
  const vec<T, 4> v = Aligned ? load<4>(w + at) : load_some<4>(w + at, H - at);
  vec<float, 4> out;
#pragma unroll
  for (int j = 0; j < 4; j++) out.at[j] = to_f32(v.at[j]) * scale;
  if (Aligned) {
    store(y + at, out);
  } else {
#pragma unroll
    for (int j = 0; j < 4; j++)
      if (at + j < H) y[at + j] = out.at[j];
  }
}

// y = scale * w[token]
#define EMBED(T)                                                                             \
  extern "C" __global__ void embed_##T(const int32_t* __restrict__ count,  /* [1] rows */    \
                                       const int32_t* __restrict__ tokens, /* [rows] */      \
                                       const T* __restrict__ w,            /* [V, H] */      \
                                       float* __restrict__ y,              /* [rows, H] */   \
                                       int32_t H, float scale) {                             \
    begin();                                                                                 \
    const int row = blockIdx.y, at = (blockIdx.x * blockDim.x + threadIdx.x) * 4;            \
    if (row >= *count || at >= H) return;                                                    \
    const T* from = w + int64_t(tokens[row]) * H;                                            \
    float* to = y + int64_t(row) * H;                                                        \
    if (H % 4 == 0)                                                                          \
      embed_quad<true>(from, to, at, H, scale);                                              \
    else                                                                                     \
      embed_quad<false>(from, to, at, H, scale);                                             \
  }

EMBED(f32)
EMBED(bf16)
EMBED(f16)
