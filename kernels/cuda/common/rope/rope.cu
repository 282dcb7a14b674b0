// SPDX-License-Identifier: MIT OR Apache-2.0
// Family rope: rotation of pairs by position.

#include "step.cuh"

// write_angle writes cos and sin of p*f, half elements apart. The product is rounded to float32 first, as references round it;
// cos and sin are the accurate ones.
__device__ __forceinline__ void write_angle(float* out, int half, int32_t p, float f, float scale) {
  const float angle = __fmul_rn(float(p), f);
  out[0] = cosf(angle) * scale;
  out[half] = sinf(angle) * scale;
}

// y = [cos(p*f)*scale | sin(p*f)*scale], p being back tokens before the row's position. Grid: half/256, rows.
extern "C" __global__ void rope_angles(const int32_t* __restrict__ count,      // [1] rows of this step
                                       const int32_t* __restrict__ positions,  // [rows]
                                       const float* __restrict__ inv_freq,     // [half]
                                       float* __restrict__ y,                  // [rows, 2*half]
                                       int32_t half, float scale, int32_t back) {
  begin();
  const int row = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= *count || i >= half) return;
  write_angle(y + int64_t(row) * 2 * half + i, half, max(positions[row] - back, 0), inv_freq[i], scale);
}

// The same with a coordinate for each frequency: axis says which of time, height and width. Grid: half/256, rows.
extern "C" __global__ void grid_angles(const int32_t* __restrict__ count,   // [1] rows of this step
                                       const int32_t* __restrict__ coords,  // [rows, 3]
                                       const float* __restrict__ inv_freq,  // [half]
                                       const float* __restrict__ axis,      // [half] 0, 1 or 2
                                       float* __restrict__ y,               // [rows, 2*half]
                                       int32_t half, float scale) {
  begin();
  const int row = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= *count || i >= half) return;
  write_angle(y + int64_t(row) * 2 * half + i, half, coords[3 * row + int(axis[i])], inv_freq[i], scale);
}

// rotate turns pair i of a head's rotated dims; first and second are where its two elements lie.
__device__ __forceinline__ void rotate(float* first, float* second, float cos, float sin) {
  const float a = *first, b = *second;
  *first = a * cos - b * sin;
  *second = b * cos + a * sin;
}

// Pairs are (i, i + rot/2), or (2i, 2i + 1) when interleaved; inverse rotates back. Grid: heads*rot/2/256, rows.
#define ROPE(STYLE, FIRST, SECOND)                                                                         \
  extern "C" __global__ void rope_##STYLE(const int32_t* __restrict__ count, /* [1] rows of this step */   \
                                          float* __restrict__ x,             /* [rows, heads*head_dim] */  \
                                          const float* __restrict__ angles,  /* [rows, rot] */             \
                                          int32_t heads, int32_t head_dim, int32_t rot, int32_t offset,    \
                                          int32_t inverse) {                                               \
    begin();                                                                                               \
    const int row = blockIdx.y, pair = blockIdx.x * blockDim.x + threadIdx.x, half = rot / 2;              \
    if (row >= *count || pair >= heads * half) return;                                                     \
    const int i = pair % half;                                                                             \
    float* at = x + (int64_t(row) * heads + pair / half) * head_dim + offset;                              \
    const float* angle = angles + int64_t(row) * rot + i;                                                  \
    rotate(at + (FIRST), at + (SECOND), angle[0], inverse ? -angle[half] : angle[half]);                   \
  }

ROPE(half, i, i + half)
ROPE(interleaved, 2 * i, 2 * i + 1)
