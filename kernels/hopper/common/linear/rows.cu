// SPDX-License-Identifier: MIT OR Apache-2.0
// Family linear, 1 to 4 rows (narrow.cu has more), bf16 weights as stored: linear, linear_add, linear_n, linear_glu, each also behind a norm.
//
// Grid: any number of blocks, best as many as a multiprocessor holds; they share 8-row units of the matrices evenly. 256 threads,
// linear_add and norm_linear_n_1 512. Dynamic shared memory 4*K*(rows + 1) with a norm; else 4*K*rows, or 128 KiB where that were more.
// linear_add_3 takes none. K must divide by 32. Algorithm, order of sums and layout: mma/weight_tiles.cuh.

#include "rows.cuh"

namespace {

using F = tiles::Bf16;
using Usual = tiles::Point<8, 6, 2, 0>;
using Wide = tiles::Point<16, 3, 2, 0>;    // of few tiles a block: half as many steps a warp
using First = tiles::Point<16, 4, 1, -1>;  // of so few that one block a multiprocessor takes them; what its registers do not hold comes to L2
using Both = tiles::Point<16, 4, 1, -2>;

}  // namespace

#define ENTRY_OF(P) extern "C" __global__ void __launch_bounds__(P::kThreads, P::B)
#define ENTRY ENTRY_OF(Usual)

// y = x wᵀ + bias
ENTRY linear_rows_bf16(const int32_t* __restrict__ head,  // [8] rows, seqs, outs
                       const float* __restrict__ x,       // [rows, K]
                       const uint16_t* __restrict__ w,    // [N, K] bf16
                       const float* __restrict__ bias,    // [N] or null
                       float* __restrict__ y,             // [rows, N]
                       int32_t N, int32_t K) {
  rows::stack<Usual, F, false, false>({head[0], x}, {{w}, {bias}, {y}, {N}}, K);
}

// y += x wᵀ + bias, by one block a multiprocessor, or two; 3: x is read directly
ENTRY_OF(Both) linear_add_rows_bf16_1(const int32_t* __restrict__ head, const float* __restrict__ x, const uint16_t* __restrict__ w,
                                      const float* __restrict__ bias, float* y, int32_t N, int32_t K) {
  rows::stack<Both, F, false, true, false, rows::Reads::kAll>({head[0], x}, {{w}, {bias}, {y}, {N}}, K);
}
ENTRY_OF(Wide) linear_add_rows_bf16_2(const int32_t* __restrict__ head, const float* __restrict__ x, const uint16_t* __restrict__ w,
                                      const float* __restrict__ bias, float* y, int32_t N, int32_t K) {
  rows::stack<Wide, F, false, true, false, rows::Reads::kAll>({head[0], x}, {{w}, {bias}, {y}, {N}}, K);
}
ENTRY_OF(Wide) linear_add_rows_bf16_3(const int32_t* __restrict__ head, const float* __restrict__ x, const uint16_t* __restrict__ w,
                                      const float* __restrict__ bias, float* y, int32_t N, int32_t K) {
  rows::stack<Wide, F, false, true, false, rows::Reads::kDirect>({head[0], x}, {{w}, {bias}, {y}, {N}}, K);
}

// yi = x wiᵀ + biasi; absent ones have Ni = 0
ENTRY linear_n_rows_bf16(const int32_t* __restrict__ head, const float* __restrict__ x,  //
                         const uint16_t* __restrict__ w0, const uint16_t* __restrict__ w1, const uint16_t* __restrict__ w2,
                         const uint16_t* __restrict__ w3,  // [Ni, K]
                         const float* __restrict__ bias0, const float* __restrict__ bias1, const float* __restrict__ bias2,
                         const float* __restrict__ bias3,                                                    // [Ni] or null
                         float* __restrict__ y0, float* __restrict__ y1, float* __restrict__ y2, float* __restrict__ y3,  // [rows, Ni]
                         int32_t N0, int32_t N1, int32_t N2, int32_t N3, int32_t K) {
  rows::stack<Usual, F, false, false>({head[0], x},
                      {{w0, w1, w2, w3}, {bias0, bias1, bias2, bias3}, {y0, y1, y2, y3}, {N0, N1, N2, N3}}, K);
}

// As linear_n, of rms_norm(x), by one block a multiprocessor, or two.
#define NORM_LINEAR_N(NAME, P)                                                                                                          \
  ENTRY_OF(P)                                                                                                                           \
  NAME(const int32_t* __restrict__ head, const float* __restrict__ x, const float* __restrict__ norm, /* [K] */                         \
       const uint16_t* __restrict__ w0, const uint16_t* __restrict__ w1, const uint16_t* __restrict__ w2, const uint16_t* __restrict__ w3, \
       const float* __restrict__ bias0, const float* __restrict__ bias1, const float* __restrict__ bias2, const float* __restrict__ bias3, \
       float* __restrict__ y0, float* __restrict__ y1, float* __restrict__ y2, float* __restrict__ y3, int32_t N0, int32_t N1, int32_t N2, \
       int32_t N3, int32_t K, float eps, int32_t plus_one) {                                                                            \
    rows::stack<P, F, true, false>({head[0], x, nullptr, norm, eps, plus_one},                                                          \
                                   {{w0, w1, w2, w3}, {bias0, bias1, bias2, bias3}, {y0, y1, y2, y3}, {N0, N1, N2, N3}}, K);            \
  }
NORM_LINEAR_N(norm_linear_n_rows_bf16_1, First)
NORM_LINEAR_N(norm_linear_n_rows_bf16_2, Usual)

// y = rms_norm(x[out_rows]) wᵀ + bias: the logits.
ENTRY norm_linear_outs_bf16(const int32_t* __restrict__ head, const float* __restrict__ x,  // [rows, K]
                            const int32_t* __restrict__ out_rows,                           // [outs]
                            const float* __restrict__ norm, const uint16_t* __restrict__ w, const float* __restrict__ bias,
                            float* __restrict__ y,  // [outs, N]
                            int32_t N, int32_t K, float eps, int32_t plus_one) {
  rows::stack<Usual, F, true, false>({head[2], x, out_rows, norm, eps, plus_one}, {{w}, {bias}, {y}, {N}}, K);
}

// y = silu(x gateᵀ) * (x upᵀ)
ENTRY linear_glu_rows_bf16_silu(const int32_t* __restrict__ head, const float* __restrict__ x,
                                const uint16_t* __restrict__ wg,  // [N, K]
                                const uint16_t* __restrict__ wu,  // [N, K]
                                float* __restrict__ y,            // [rows, N]
                                int32_t N, int32_t K) {
  rows::gate_up<Usual, F, false, act::silu>({head[0], x}, wg, wu, y, N, K);
}
ENTRY linear_glu_rows_bf16_gelu_tanh(const int32_t* __restrict__ head, const float* __restrict__ x,
                                     const uint16_t* __restrict__ wg, const uint16_t* __restrict__ wu, float* __restrict__ y,
                                     int32_t N, int32_t K) {
  rows::gate_up<Usual, F, false, act::gelu_tanh>({head[0], x}, wg, wu, y, N, K);
}

// As linear_glu, of rms_norm(x).
ENTRY norm_linear_glu_rows_bf16_silu(const int32_t* __restrict__ head, const float* __restrict__ x,
                                     const float* __restrict__ norm, const uint16_t* __restrict__ wg,
                                     const uint16_t* __restrict__ wu, float* __restrict__ y, int32_t N, int32_t K, float eps,
                                     int32_t plus_one) {
  rows::gate_up<Usual, F, true, act::silu>({head[0], x, nullptr, norm, eps, plus_one}, wg, wu, y, N, K);
}
ENTRY norm_linear_glu_rows_bf16_gelu_tanh(const int32_t* __restrict__ head, const float* __restrict__ x,
                                          const float* __restrict__ norm, const uint16_t* __restrict__ wg,
                                          const uint16_t* __restrict__ wu, float* __restrict__ y, int32_t N, int32_t K, float eps,
                                          int32_t plus_one) {
  rows::gate_up<Usual, F, true, act::gelu_tanh>({head[0], x, nullptr, norm, eps, plus_one}, wg, wu, y, N, K);
}
