// SPDX-License-Identifier: MIT OR Apache-2.0
// Family linear, 1 to 8 rows, weights that stay quantised, in the layout "rows": the kernels of linear/rows.cu, by the formats of
// mma/quantised.cuh. K must divide by 128, the rows of matrices by 8. 256 threads. Scales of rows, [N] or null, multiply sums before
// the bias; e4m3_b128 and mxfp4 have none.

#include "../../../include/mma/quantised.cuh"
#include "rows.cuh"

namespace {

struct e4m3 : tiles::Fp8<false, 1> {};
struct e4m3_b128 : tiles::Fp8<true, 1> {};
struct nvfp4 : tiles::Fp4<tiles::Nvfp4Scales, 2> {};
struct mxfp4 : tiles::Fp4<tiles::Mxfp4Scales, 2> {};

using Usual = tiles::Point<8, 2, 2, 0>;

}  // namespace

#define ENTRY extern "C" __global__ void __launch_bounds__(Usual::kThreads, Usual::B)
#define IN(T, NAME) const T* __restrict__ NAME
#define OUT(NAME) float* __restrict__ NAME
#define FOUR(IT) IT(0), IT(1), IT(2), IT(3)
#define W_(I) IN(uint8_t, w##I)
#define SCALE_(I) IN(float, scale##I)
#define BIAS_(I) IN(float, bias##I)
#define Y_(I) OUT(y##I)
#define N_(I) int32_t N##I

// x [rows, K], norm [K], w and wi [N, K], scale and bias [N] or null, y [rows, N]; absent matrices have Ni = 0.
#define ALL_OF(F)                                                                                                                           \
  /* y = x wᵀ * scale + bias */                                                                                                             \
  ENTRY linear_rows_##F(IN(int32_t, head), IN(float, x), IN(uint8_t, w), IN(float, scale), IN(float, bias), OUT(y), int32_t N, int32_t K) { \
    rows::stack<Usual, F, false, false>({head[0], x}, {{w}, {bias}, {y}, {N}, {scale}}, K);                                                 \
  }                                                                                                                                         \
  /* y += x wᵀ * scale + bias */                                                                                                            \
  ENTRY linear_add_rows_##F(IN(int32_t, head), IN(float, x), IN(uint8_t, w), IN(float, scale), IN(float, bias), float* y, int32_t N,        \
                            int32_t K) {                                                                                                    \
    rows::stack<Usual, F, false, true>({head[0], x}, {{w}, {bias}, {y}, {N}, {scale}}, K);                                                  \
  }                                                                                                                                         \
  /* yi = x wiᵀ * scalei + biasi */                                                                                                         \
  ENTRY linear_n_rows_##F(IN(int32_t, head), IN(float, x), FOUR(W_), FOUR(SCALE_), FOUR(BIAS_), FOUR(Y_), FOUR(N_), int32_t K) {            \
    rows::stack<Usual, F, false, false>({head[0], x}, {{w0, w1, w2, w3}, {bias0, bias1, bias2, bias3}, {y0, y1, y2, y3}, {N0, N1, N2, N3},  \
                                                       {scale0, scale1, scale2, scale3}}, K);                                               \
  }                                                                                                                                         \
  /* as linear_n, of rms_norm(x) */                                                                                                         \
  ENTRY norm_linear_n_rows_##F(IN(int32_t, head), IN(float, x), IN(float, norm), FOUR(W_), FOUR(SCALE_), FOUR(BIAS_), FOUR(Y_), FOUR(N_),   \
                               int32_t K, float eps, int32_t plus_one) {                                                                    \
    rows::stack<Usual, F, true, false>({head[0], x, nullptr, norm, eps, plus_one},                                                          \
                                       {{w0, w1, w2, w3}, {bias0, bias1, bias2, bias3}, {y0, y1, y2, y3}, {N0, N1, N2, N3},                 \
                                        {scale0, scale1, scale2, scale3}}, K);                                                              \
  }                                                                                                                                         \
  /* as norm_linear_n; y0 goes through the causal convolution, conv [N0, 4] and state [slots, 3, N0], and silu */                           \
  ENTRY norm_linear_conv_rows_##F(IN(int32_t, head), IN(int32_t, row_seq), IN(int32_t, cu_rows), IN(int32_t, state_slot),                   \
                                  IN(int32_t, fresh), IN(float, x), IN(float, norm), FOUR(W_), FOUR(SCALE_), IN(float, conv), float* state, \
                                  FOUR(Y_), FOUR(N_), int32_t K, float eps, int32_t plus_one) {                                             \
    rows::stack<Usual, F, true, false, true>({head[0], x, nullptr, norm, eps, plus_one},                                                    \
                                             {{w0, w1, w2, w3}, {}, {y0, y1, y2, y3}, {N0, N1, N2, N3}, {scale0, scale1, scale2, scale3}},  \
                                             K, {conv, state, row_seq, cu_rows, state_slot, fresh});                                        \
  }                                                                                                                                         \
  /* as norm_linear_conv, without the norm */                                                                                               \
  ENTRY linear_conv_rows_##F(IN(int32_t, head), IN(int32_t, row_seq), IN(int32_t, cu_rows), IN(int32_t, state_slot), IN(int32_t, fresh),    \
                             IN(float, x), FOUR(W_), FOUR(SCALE_), IN(float, conv), float* state, FOUR(Y_), FOUR(N_), int32_t K) {          \
    rows::stack<Usual, F, false, false, true>({head[0], x},                                                                                 \
                                              {{w0, w1, w2, w3}, {}, {y0, y1, y2, y3}, {N0, N1, N2, N3}, {scale0, scale1, scale2, scale3}}, \
                                              K, {conv, state, row_seq, cu_rows, state_slot, fresh});                                       \
  }                                                                                                                                         \
  /* y = rms_norm(x[out_rows]) wᵀ * scale + bias: the logits, [outs, N] */                                                                  \
  ENTRY norm_linear_outs_##F(IN(int32_t, head), IN(float, x), IN(int32_t, out_rows), IN(float, norm), IN(uint8_t, w), IN(float, scale),     \
                             IN(float, bias), OUT(y), int32_t N, int32_t K, float eps, int32_t plus_one) {                                  \
    rows::stack<Usual, F, true, false>({head[2], x, out_rows, norm, eps, plus_one}, {{w}, {bias}, {y}, {N}, {scale}}, K);                   \
  }                                                                                                                                         \
  GLU_OF(F, silu)                                                                                                                           \
  GLU_OF(F, gelu_tanh)

#define GLU_OF(F, ACT)                                                                                                                     \
  /* y = act(x wgᵀ * sg) * (x wuᵀ * su) */                                                                                                 \
  ENTRY linear_glu_rows_##F##_##ACT(IN(int32_t, head), IN(float, x), IN(uint8_t, wg), IN(uint8_t, wu), IN(float, sg), IN(float, su),       \
                                    OUT(y), int32_t N, int32_t K) {                                                                        \
    rows::gate_up<Usual, F, false, act::ACT>({head[0], x}, wg, wu, y, N, K, sg, su);                                                       \
  }                                                                                                                                        \
  /* as linear_glu, of rms_norm(x) */                                                                                                      \
  ENTRY norm_linear_glu_rows_##F##_##ACT(IN(int32_t, head), IN(float, x), IN(float, norm), IN(uint8_t, wg), IN(uint8_t, wu),               \
                                         IN(float, sg), IN(float, su), OUT(y), int32_t N, int32_t K, float eps, int32_t plus_one) {        \
    rows::gate_up<Usual, F, true, act::ACT>({head[0], x, nullptr, norm, eps, plus_one}, wg, wu, y, N, K, sg, su);                          \
  }

ALL_OF(e4m3)
ALL_OF(e4m3_b128)
ALL_OF(nvfp4)
ALL_OF(mxfp4)
