// SPDX-License-Identifier: MIT OR Apache-2.0
// Family embed: a square table of position embeddings, stretched over each row's image, corners on corners; a patch is looked
// up between its four neighbours. Grid: n/256, rows.

#include <cmath>

#include "step.cuh"

// Between is a place on an axis of the table: the points before and after, and how far it is past the first.
struct Between {
  int before, after;
  float past;

  // Index i of n on an axis of side points.
  __device__ Between(int i, int n, int side) {
    const float at = float(i) * float(side - 1) / float(max(n - 1, 1));
    before = int(at);
    after = min(before + 1, side - 1);
    past = at - float(before);
  }
};

extern "C" __global__ void grid_embed(const int32_t* __restrict__ count,    // [1] rows of this step
                                      const int32_t* __restrict__ coords,   // [rows, 3] time, height, width
                                      const int32_t* __restrict__ grids,    // [seqs, 3] frames, rows and columns of patches
                                      const int32_t* __restrict__ row_seq,  // [rows]
                                      const float* __restrict__ w,          // [P, n], P a square
                                      float* __restrict__ y,                // [rows, n]
                                      int32_t P, int32_t n) {
  begin();
  const int row = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x, side = int(sqrtf(float(P)) + 0.5f);
  if (row >= *count || i >= n) return;
  const int32_t* grid = grids + 3 * row_seq[row];
  const Between v(coords[3 * row + 1], grid[1], side), h(coords[3 * row + 2], grid[2], side);
  auto tap = [&](int r, int c) { return w[int64_t(r * side + c) * n + i]; };
  y[int64_t(row) * n + i] = tap(v.before, h.before) * ((1 - v.past) * (1 - h.past)) + tap(v.before, h.after) * ((1 - v.past) * h.past) +
                            tap(v.after, h.before) * (v.past * (1 - h.past)) + tap(v.after, h.after) * (v.past * h.past);
}
