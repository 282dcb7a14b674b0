// SPDX-License-Identifier: MIT OR Apache-2.0
// Family unpack: weights in the layout "rows" (mma/quantised.cuh) become bf16, [N, K], for kernels of many rows. Codes times scales are
// rounded once.
//
// Grid: any; 256 threads. A warp takes 8 rows of 256 values at a time. Of matrices of experts, those without rows are left out.

#include "formats.cuh"

namespace {

constexpr int kUnits = 2;

template <class F>
__device__ __forceinline__ void unpack(const int32_t* first, const uint8_t* w, const float* scale, uint16_t* y, int N, int K, int rows) {
  ptx::start_successor();
  ptx::wait_for_predecessor();
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, units = (K + 127) / 128, parts = (units + kUnits - 1) / kUnits;
  const unsigned warps = gridDim.x * 8, all = unsigned(N / 8) * parts;
  for (unsigned i = blockIdx.x * 8 + (threadIdx.x >> 5); i < all; i += warps) {
    const int panel = i / parts, from = i % parts * kUnits;
    if (first) {
      const int e = panel * 8 / rows;
      if (first[e] == first[e + 1]) continue;
    }
    const int row = panel * 8 + g;
    typename F::Unit u[kUnits];
#pragma unroll
    for (int k = 0; k < kUnits; k++)
      if (from + k < units) F::load(u[k], 0, static_cast<const unsigned char*>(F::row(w, panel * 8, K, from + k)));
    const float f = scale ? scale[row] : 1;
#pragma unroll
    for (int k = 0; k < kUnits; k++)
#pragma unroll
      for (int s = 0; s < 4; s++) {
        const int col = (from + k) * 128 + s * 32 + t * 8;
        if (col >= K) continue;
        float v[8];
        F::values(u[k], 0, s, v);
        *reinterpret_cast<uint4*>(y + int64_t(row) * K + col) =
            make_uint4(mma::pack(v[0] * f, v[1] * f), mma::pack(v[2] * f, v[3] * f), mma::pack(v[4] * f, v[5] * f), mma::pack(v[6] * f, v[7] * f));
      }
  }
}

}  // namespace

#define UNPACK(F)                                                                                                          \
  extern "C" __global__ void __launch_bounds__(256) unpack_##F(                                                            \
      const int32_t* __restrict__ first, /* [N/rows + 1] places of experts, or null: all are wanted */                     \
      const uint8_t* __restrict__ w,     /* [N, K] */                                                                      \
      const float* __restrict__ scale,   /* [N], or null */                                                                \
      uint16_t* __restrict__ y,          /* [N, K] bf16 */                                                                 \
      int32_t N, int32_t K, int32_t rows /* of an expert */) {                                                             \
    unpack<F>(first, w, scale, y, N, K, rows);                                                                             \
  }

UNPACK(e4m3)
UNPACK(e4m3_b128)
UNPACK(nvfp4)
UNPACK(mxfp4)
