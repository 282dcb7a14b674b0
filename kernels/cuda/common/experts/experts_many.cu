// SPDX-License-Identifier: MIT OR Apache-2.0
// Family experts for many rows, to the bit what the launches for few rows give (experts.cu): slots, one of a row's k choices each,
// are sorted by expert, and tiles of 16 are multiplied with their expert's matrix, by linear's kernel for many rows.
//
//	experts_sort      order, tiles                 slots by expert, and where each tile's begin
//	experts_stacked   pair[slot] = gate_up x       of the slot's row and expert
//	experts_act       h[slot] = act(pair[slot])
//	experts_stacked   part[slot] = down h[slot]
//	experts_sum       y[row] = Σ_slot weights[slot] * part[slot], or * x for identity experts

#include "../linear/many.cuh"

// Tiles are [0] their number, then of each its expert and its slots in order, [begin, end).
struct Tile {
  int expert, begin, end;
};
__device__ __forceinline__ Tile* tiles_of(int32_t* memory) { return reinterpret_cast<Tile*>(memory + 1); }
__device__ __forceinline__ const Tile* tiles_of(const int32_t* memory) { return reinterpret_cast<const Tile*>(memory + 1); }

// One block of 1024 threads; 2*E integers of shared memory. The order of an expert's slots changes nothing but their place.
extern "C" __global__ void experts_sort(const int32_t* __restrict__ count,  // [1] rows of this step
                                        const int32_t* __restrict__ ids,    // [rows, k]
                                        int32_t* __restrict__ order,        // [rows, k] slots
                                        int32_t* __restrict__ tiles,        // [1 + 3*(rows*k/16 + E)]
                                        int32_t E, int32_t k) {
  begin();
  extern __shared__ int32_t counts[];  // [E] slots of each expert
  int32_t* next = counts + E;          // [E] where its next slot goes
  const int slots = *count * k;
  for (int e = threadIdx.x; e < E; e += blockDim.x) counts[e] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < slots; i += blockDim.x)
    if (ids[i] < E) atomicAdd(&counts[ids[i]], 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    int at = 0, n = 0;
    for (int e = 0; e < E; e++) {
      next[e] = at;
      for (int done = 0; done < counts[e]; done += kManyRows)
        tiles_of(tiles)[n++] = {e, at + done, at + min(done + kManyRows, counts[e])};
      at += counts[e];
    }
    tiles[0] = n;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < slots; i += blockDim.x)
    if (ids[i] < E) order[atomicAdd(&next[ids[i]], 1)] = i;
}

// Picked are a tile's slots; each reads row slot/per of x.
struct Picked {
  const float* x;
  int stride, per;
  const int32_t* order;
  Tile tile;
  __device__ const float* row(int i) const { return tile.begin + i < tile.end ? x + int64_t(id(i) / per) * stride : nullptr; }
  __device__ int id(int i) const { return order[tile.begin + i]; }
};

// Grid: N/32, rows*k/16 + E; 256 threads.
#define EXPERTS_STACKED(T)                                                                                     \
  extern "C" __global__ void __launch_bounds__(256, 2)                                                         \
      experts_stacked_##T(const int32_t* __restrict__ tiles, /* what experts_sort wrote */                     \
                          const int32_t* __restrict__ order, /* [rows, k] slots */                             \
                          const float* __restrict__ x,       /* [rows*k/per, K] */                             \
                          const T* __restrict__ w,           /* [E, N, K] */                                   \
                          const float* __restrict__ scale,   /* [E, N], or null */                             \
                          const float* __restrict__ bias,    /* [E, N], or null */                             \
                          float* __restrict__ y,             /* [rows, k, N] */                                \
                          int32_t per, int32_t N, int32_t K) {                                                 \
    begin();                                                                                                   \
    if (int(blockIdx.y) >= tiles[0]) return;                                                                   \
    const Tile t = tiles_of(tiles)[blockIdx.y];                                                                \
    const int64_t at = int64_t(t.expert) * N;                                                                  \
    const stored<T, false> out = {w + at * K, scale ? scale + at : nullptr, bias ? bias + at : nullptr, y, N, N}; \
    tile<T>(Picked{x, K, per, order, t}, out, K);                                                              \
  }

EXPERTS_STACKED(f32)
EXPERTS_STACKED(bf16)
EXPERTS_STACKED(f16)

// Grid: I/256, k, rows; 256 threads.
#define EXPERTS_ACT(GATED, ACT, VALUE)                                                                         \
  extern "C" __global__ void experts_act_##GATED##_##ACT(const int32_t* __restrict__ count, /* [1] rows */      \
                                                         const int32_t* __restrict__ ids,   /* [rows, k] */    \
                                                         const float* __restrict__ pair, /* [rows, k, (1+gated)*I] */ \
                                                         float* __restrict__ h,          /* [rows, k, I] */    \
                                                         int32_t E, int32_t k, int32_t I, float limit) {       \
    begin();                                                                                                   \
    const int i = blockIdx.x * blockDim.x + threadIdx.x, slot = blockIdx.z * k + blockIdx.y;                   \
    if (int(blockIdx.z) >= *count || i >= I || ids[slot] >= E) return;                                         \
    const float* g = pair + int64_t(slot) * (1 + GATED) * I + i;                                               \
    h[int64_t(slot) * I + i] = VALUE;                                                                          \
  }

EXPERTS_ACT(1, silu, glu::silu::of(g[0], g[I], limit))
EXPERTS_ACT(1, gelu_tanh, glu::gelu_tanh::of(g[0], g[I], limit))
EXPERTS_ACT(1, relu2, glu::relu2::of(g[0], g[I], limit))
EXPERTS_ACT(1, silu_then_limit, glu::silu_then_limit::of(g[0], g[I], limit))
EXPERTS_ACT(1, swiglu_oai, glu::swiglu_oai::of(g[0], g[I], limit))
EXPERTS_ACT(0, silu, act::silu::of(g[0]))
EXPERTS_ACT(0, gelu_tanh, act::gelu_tanh::of(g[0]))
EXPERTS_ACT(0, relu2, act::relu2::of(g[0]))

// Grid: H/256, rows; 256 threads.
extern "C" __global__ void experts_sum(const int32_t* __restrict__ count,  // [1] rows of this step
                                       const float* __restrict__ x,        // [rows, H]
                                       const int32_t* __restrict__ ids,    // [rows, k]
                                       const float* __restrict__ weights,  // [rows, k]
                                       const float* __restrict__ part,     // [rows, k, H]
                                       float* __restrict__ y,              // [rows, H]
                                       int32_t E, int32_t k, int32_t H) {
  begin();
  const int row = blockIdx.y, n = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= *count || n >= H) return;
  float sum = 0;
  for (int slot = row * k; slot < (row + 1) * k; slot++) {
    const float v = ids[slot] < E ? part[int64_t(slot) * H + n] : x[int64_t(row) * H + n];
    sum = fmaf(weights[slot], v, sum);
  }
  y[int64_t(row) * H + n] = sum;
}
