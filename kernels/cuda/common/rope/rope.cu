// SPDX-License-Identifier: MIT OR Apache-2.0
// Family rope: rotation of pairs by position.

#include "copy/vector.cuh"
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

// Two are the arrays that a launch turns by the same angles, as queries and keys: heads of the second follow those of the first.
struct Two {
  float *x0, *x1;       // [rows, heads0*head_dim], [rows, heads1*head_dim]
  int heads0, heads1;  // 0: there is only the first
  __device__ __forceinline__ int heads() const { return heads0 + heads1; }
  __device__ __forceinline__ float* head(int row, int h, int head_dim) const {
    return h < heads0 ? x0 + (int64_t(row) * heads0 + h) * head_dim : x1 + (int64_t(row) * heads1 + (h - heads0)) * head_dim;
  }
};

// kHeads heads of a row are turned by a thread, of each the same V pairs: V is 4, or 1 where those do not begin at whole 16 bytes.
constexpr int kHeads = 2;

// Half pairs elements i and i + rot/2.
struct Half {
  template <int V>
  __device__ __forceinline__ static void turn(float* const (&head)[kHeads], int n, int i, int half, const float* cos, const float* sin, float sign) {
    vec<float, V> a[kHeads], b[kHeads];
#pragma unroll
    for (int h = 0; h < kHeads; h++)
      if (h < n) a[h] = load<V>(head[h] + i), b[h] = load<V>(head[h] + i + half);
    const vec<float, V> c = load<V>(cos + i), s = load<V>(sin + i);
#pragma unroll
    for (int h = 0; h < kHeads; h++) {
      if (h >= n) break;
      vec<float, V> u, v;
#pragma unroll
      for (int j = 0; j < V; j++) {
        u.at[j] = a[h].at[j] * c.at[j] - b[h].at[j] * (s.at[j] * sign);
        v.at[j] = b[h].at[j] * c.at[j] + a[h].at[j] * (s.at[j] * sign);
      }
      store(head[h] + i, u), store(head[h] + i + half, v);
    }
  }
};

// Interleaved pairs elements 2i and 2i + 1.
struct Interleaved {
  template <int V>
  __device__ __forceinline__ static void turn(float* const (&head)[kHeads], int n, int i, int, const float* cos, const float* sin, float sign) {
    constexpr int W = V == 1 ? 2 : 4;  // elements of a load
    const vec<float, V> c = load<V>(cos + i), s = load<V>(sin + i);
    vec<float, W> x[kHeads][2 * V / W];
#pragma unroll
    for (int h = 0; h < kHeads; h++)
#pragma unroll
      for (int k = 0; k < 2 * V / W; k++)
        if (h < n) {
          if (V == 1)
            x[h][k].at[0] = head[h][2 * i], x[h][k].at[1] = head[h][2 * i + 1];
          else
            x[h][k] = load<W>(head[h] + 2 * i + W * k);
        }
#pragma unroll
    for (int h = 0; h < kHeads; h++) {
      if (h >= n) break;
#pragma unroll
      for (int k = 0; k < 2 * V / W; k++) {
        vec<float, W> y;
#pragma unroll
        for (int j = 0; j < W; j += 2) {
          const float a = x[h][k].at[j], b = x[h][k].at[j + 1], cj = c.at[(W * k + j) / 2], sj = s.at[(W * k + j) / 2] * sign;
          y.at[j] = a * cj - b * sj, y.at[j + 1] = b * cj + a * sj;
        }
        if (V == 1)
          head[h][2 * i] = y.at[0], head[h][2 * i + 1] = y.at[1];
        else
          store(head[h] + 2 * i + W * k, y);
      }
    }
  }
};

// turn is a thread's part: V pairs of kHeads heads of a row, threads counting through pairs, heads, rows.
template <class Style, int V>
__device__ __forceinline__ void turn(const int32_t* count, const Two& x, const float* angles, int head_dim, int rot, int offset, int inverse) {
  const int half = rot / 2, pairs = half / V, groups = ceil_div(x.heads(), kHeads);
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, item = thread / uint32_t(pairs);
  const int i = int(thread - item * pairs) * V, row = int(item / uint32_t(groups)), first = int(item - uint32_t(row) * groups) * kHeads;
  float* head[kHeads];
#pragma unroll
  for (int h = 0; h < kHeads; h++) head[h] = x.head(row, min(first + h, x.heads() - 1), head_dim) + offset;
  const int rows = begin([&] { return ptx::load_early(count); });
  if (row >= rows) return;
  const float* cos = angles + int64_t(row) * rot;
  Style::template turn<V>(head, x.heads() - first, i, half, cos, cos + half, inverse ? -1.0f : 1.0f);
}

template <class Style>
__device__ __forceinline__ void rope(const int32_t* count, const Two& x, const float* angles, int head_dim, int rot, int offset, int inverse) {
  if (rot % 8 == 0 && head_dim % 4 == 0 && offset % 4 == 0)
    turn<Style, 4>(count, x, angles, head_dim, rot, offset, inverse);
  else
    turn<Style, 1>(count, x, angles, head_dim, rot, offset, inverse);
}

// Rotates dims [offset, offset+rot) of each head; inverse rotates back. Grid: rows * heads/2 * rot/2 / 4 threads, without the 4 where rot,
// head_dim or offset are odd ones.
#define ROPE(NAME, STYLE)                                                                                                   \
  extern "C" __global__ void rope_##NAME(const int32_t* __restrict__ count, /* [1] rows of this step */                     \
                                         float* __restrict__ x,             /* [rows, heads*head_dim] */                    \
                                         const float* __restrict__ angles,  /* [rows, rot] */                               \
                                         int32_t heads, int32_t head_dim, int32_t rot, int32_t offset, int32_t inverse) {   \
    rope<STYLE>(count, {x, nullptr, heads, 0}, angles, head_dim, rot, offset, inverse);                                     \
  }                                                                                                                         \
  extern "C" __global__ void rope_pair_##NAME(const int32_t* __restrict__ count, /* [1] rows of this step */                \
                                              float* __restrict__ x0,            /* [rows, heads0*head_dim] */              \
                                              float* __restrict__ x1,            /* [rows, heads1*head_dim] */              \
                                              const float* __restrict__ angles,  /* [rows, rot] */                          \
                                              int32_t heads0, int32_t heads1, int32_t head_dim, int32_t rot, int32_t offset, \
                                              int32_t inverse) {                                                            \
    rope<STYLE>(count, {x0, x1, heads0, heads1}, angles, head_dim, rot, offset, inverse);                                   \
  }

ROPE(half, Half)
ROPE(interleaved, Interleaved)
