// SPDX-License-Identifier: MIT OR Apache-2.0
// Family linear, 1 to 4 rows (narrow.cu has more), bf16 weights as stored: linear, linear_add, linear_n, linear_glu, each also behind a norm.
//
// Grid: any number of blocks, best as many as a multiprocessor holds; they share 8-row units of the matrices evenly. 256 threads,
// linear_add 512. Dynamic shared memory 4*K*(rows + 1) with a norm; else 4*K*rows, or 128 KiB where that were more.
// linear_add_2 takes none. K must divide by 32. Algorithm, order of sums and layout: mma/weight_tiles.cuh.

#include "rows.cuh"

namespace {

using F = tiles::Bf16;
using Usual = tiles::Point<8, 8, 2, 0>;
using Alone = tiles::Point<16, 4, 1, 1>;  // of few tiles a block
using Deep = tiles::Point<16, 3, 2, 0>;   // the same, of a long K that is read directly

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

// y += x wᵀ + bias; the entry's number is blocks a multiprocessor
ENTRY_OF(Alone) linear_add_rows_bf16_1(const int32_t* __restrict__ head, const float* __restrict__ x, const uint16_t* __restrict__ w,
                                       const float* __restrict__ bias, float* y, int32_t N, int32_t K) {
  rows::stack<Alone, F, false, true>({head[0], x}, {{w}, {bias}, {y}, {N}}, K);
}
ENTRY_OF(Deep) linear_add_rows_bf16_2(const int32_t* __restrict__ head, const float* __restrict__ x, const uint16_t* __restrict__ w,
                                      const float* __restrict__ bias, float* y, int32_t N, int32_t K) {
  rows::stack<Deep, F, false, true, false, true>({head[0], x}, {{w}, {bias}, {y}, {N}}, K);
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

// As linear_n, of rms_norm(x).
ENTRY norm_linear_n_rows_bf16(const int32_t* __restrict__ head, const float* __restrict__ x,
                              const float* __restrict__ norm,  // [K]
                              const uint16_t* __restrict__ w0, const uint16_t* __restrict__ w1, const uint16_t* __restrict__ w2,
                              const uint16_t* __restrict__ w3, const float* __restrict__ bias0, const float* __restrict__ bias1,
                              const float* __restrict__ bias2, const float* __restrict__ bias3, float* __restrict__ y0,
                              float* __restrict__ y1, float* __restrict__ y2, float* __restrict__ y3, int32_t N0, int32_t N1,
                              int32_t N2, int32_t N3, int32_t K, float eps, int32_t plus_one) {
  rows::stack<Usual, F, true, false>({head[0], x, nullptr, norm, eps, plus_one},
                     {{w0, w1, w2, w3}, {bias0, bias1, bias2, bias3}, {y0, y1, y2, y3}, {N0, N1, N2, N3}}, K);
}

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
