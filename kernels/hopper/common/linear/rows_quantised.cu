// SPDX-License-Identifier: MIT OR Apache-2.0
// Family linear, 1 to 8 rows, weights that stay quantised, in the layout "rows": the kernels of linear/rows.cu, by the formats of
// mma/quantised.cuh, which stream through rings (mma/weight_ring.cuh). K must divide by 128, the rows of matrices by 8. Scales of rows,
// [N] or null, multiply sums before the bias; e4m3_b128 and mxfp4 have none.
//
//	entry       rows   x                                       threads
//	_4          1-4    two bf16, in shared memory              256
//	_long       1-4    the same, of a long K                   512
//	_8          1-8    rounded to bf16, in shared memory       512
//	_streamed   1-8    float32, in the rings beside weights    256 of formats of eight bits, 512 of four

#include "formats.cuh"
#include "rows.cuh"

namespace {

template <class F, int Rows>
using Usual = std::conditional_t<Rows == 4, tiles::Cut<8, F::kCodes == 4 ? 4 : 2, 2, 3, 4>, tiles::Cut<16, 1, 1, 2, 8>>;
using Long = tiles::Cut<16, 1, 1, 2, 4>;
template <class F>
using Streamed = tiles::Cut<F::kCodes == 8 ? 8 : 16, 1, 1, 1, 8, true>;  // a tile is 32 rows

}  // namespace

#define ENTRY(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__::kThreads, __VA_ARGS__::B)
#define IN(T, NAME) const T* __restrict__ NAME
#define OUT(NAME) float* __restrict__ NAME
#define FOUR(IT) IT(0), IT(1), IT(2), IT(3)
#define W_(I) IN(uint8_t, w##I)
#define SCALE_(I) IN(float, scale##I)
#define BIAS_(I) IN(float, bias##I)
#define Y_(I) OUT(y##I)
#define N_(I) int32_t N##I

// x [rows, K], norm [K], w and wi [N, K], scale and bias [N] or null, y [rows, N]; absent matrices have Ni = 0. AT is most rows, 4 or
// 8. Rings have that many bytes of shared memory, before x.
#define ALL_OF(F, AT)                                                                                                                       \
  /* y = x wᵀ * scale + bias */                                                                                                                \
  ENTRY(Usual<F, AT>) linear_rows_##F##_##AT(IN(int32_t, head), IN(float, x), IN(uint8_t, w), IN(float, scale), IN(float, bias), OUT(y),           \
                                         int32_t N, int32_t K, int32_t ring) {                                                                \
    rows::stack<Usual<F, AT>, F, false, false>({head[0], x}, {{w}, {bias}, {y}, {N}, {scale}}, K, {}, 0, ring);              \
  }                                                                                                                                            \
  /* y += x wᵀ * scale + bias */                                                                                                    \
  ENTRY(Usual<F, AT>) linear_add_rows_##F##_##AT(IN(int32_t, head), IN(float, x), IN(uint8_t, w), IN(float, scale), IN(float, bias), float* y,     \
                                             int32_t N, int32_t K, int32_t ring) {                                                            \
    rows::stack<Usual<F, AT>, F, false, true>({head[0], x}, {{w}, {bias}, {y}, {N}, {scale}}, K, {}, 0, ring);               \
  }                                                                                                                                            \
  /* yi = x wiᵀ * scalei + biasi */                                                                                                            \
  ENTRY(Usual<F, AT>) linear_n_rows_##F##_##AT(IN(int32_t, head), IN(float, x), FOUR(W_), FOUR(SCALE_), FOUR(BIAS_), FOUR(Y_), FOUR(N_), int32_t K, \
                                           int32_t ring) {                                                                                    \
    rows::stack<Usual<F, AT>, F, false, false>({head[0], x}, {{w0, w1, w2, w3}, {bias0, bias1, bias2, bias3}, {y0, y1, y2, y3},   \
                                                            {N0, N1, N2, N3}, {scale0, scale1, scale2, scale3}}, K, {}, 0, ring);         \
  }                                                                                                                                            \
  /* as linear_n, of rms_norm(x) */                                                                                                            \
  ENTRY(Usual<F, AT>) norm_linear_n_rows_##F##_##AT(IN(int32_t, head), IN(float, x), IN(float, norm), FOUR(W_), FOUR(SCALE_), FOUR(BIAS_), FOUR(Y_), \
                                                FOUR(N_), int32_t K, float eps, int32_t plus_one, int32_t ring) {                             \
    rows::stack<Usual<F, AT>, F, true, false>({head[0], x, nullptr, norm, eps, plus_one},                                         \
                                                           {{w0, w1, w2, w3}, {bias0, bias1, bias2, bias3}, {y0, y1, y2, y3}, {N0, N1, N2, N3}, \
                                                            {scale0, scale1, scale2, scale3}}, K, {}, 0, ring);                               \
  }                                                                                                                                            \
  /* as norm_linear_n; y0 goes through the causal convolution, conv [N0, 4] and state [slots, 3, N0], and silu */                              \
  ENTRY(Usual<F, AT>) norm_linear_conv_rows_##F##_##AT(IN(int32_t, head), IN(int32_t, row_seq), IN(int32_t, cu_rows), IN(int32_t, state_slot),     \
                                                   IN(int32_t, fresh), IN(float, x), IN(float, norm), FOUR(W_), FOUR(SCALE_), IN(float, conv), \
                                                   float* state, FOUR(Y_), FOUR(N_), int32_t K, float eps, int32_t plus_one, int32_t ring) {  \
    rows::stack<Usual<F, AT>, F, true, false, true>({head[0], x, nullptr, norm, eps, plus_one},                                          \
                                                          {{w0, w1, w2, w3}, {}, {y0, y1, y2, y3}, {N0, N1, N2, N3},                           \
                                                           {scale0, scale1, scale2, scale3}},                                                  \
                                                          K, {conv, state, row_seq, cu_rows, state_slot, fresh}, 0, ring);                    \
  }                                                                                                                                            \
  /* as norm_linear_conv, without the norm */                                                                                                  \
  ENTRY(Usual<F, AT>) linear_conv_rows_##F##_##AT(IN(int32_t, head), IN(int32_t, row_seq), IN(int32_t, cu_rows), IN(int32_t, state_slot),          \
                                              IN(int32_t, fresh), IN(float, x), FOUR(W_), FOUR(SCALE_), IN(float, conv), float* state,         \
                                              FOUR(Y_), FOUR(N_), int32_t K, int32_t ring) {                                                  \
    rows::stack<Usual<F, AT>, F, false, false, true>({head[0], x},                                                                       \
                                                           {{w0, w1, w2, w3}, {}, {y0, y1, y2, y3}, {N0, N1, N2, N3},                          \
                                                            {scale0, scale1, scale2, scale3}},                                                 \
                                                           K, {conv, state, row_seq, cu_rows, state_slot, fresh}, 0, ring);               \
  }                                                                                                                                            \
  /* y = rms_norm(x[out_rows]) wᵀ * scale + bias: the logits, [outs, N] */                                                                     \
  ENTRY(Usual<F, AT>) norm_linear_outs_##F##_##AT(IN(int32_t, head), IN(float, x), IN(int32_t, out_rows), IN(float, norm), IN(uint8_t, w),         \
                                              IN(float, scale), IN(float, bias), OUT(y), int32_t N, int32_t K, float eps, int32_t plus_one,    \
                                              int32_t ring) {                                                                                 \
    rows::stack<Usual<F, AT>, F, true, false>({head[2], x, out_rows, norm, eps, plus_one}, {{w}, {bias}, {y}, {N}, {scale}}, K,   \
                                                           {}, 0, ring);                                                                      \
  }                                                                                                                                            \
  GLU_OF(F, AT, silu)                                                                                                                       \
  GLU_OF(F, AT, gelu_tanh)

#define GLU_OF(F, AT, ACT)                                                                                                                  \
  /* y = act(x wgᵀ * sg) * (x wuᵀ * su) */                                                                                                     \
  ENTRY(Usual<F, AT>) linear_glu_rows_##F##_##ACT##_##AT(IN(int32_t, head), IN(float, x), IN(uint8_t, wg), IN(uint8_t, wu), IN(float, sg),         \
                                                     IN(float, su), OUT(y), int32_t N, int32_t K, int32_t ring) {                             \
    rows::gate_up<Usual<F, AT>, F, false, act::ACT>({head[0], x}, wg, wu, y, N, K, sg, su, 0, ring);                                       \
  }                                                                                                                                            \
  /* as linear_glu, of rms_norm(x) */                                                                                                          \
  ENTRY(Usual<F, AT>) norm_linear_glu_rows_##F##_##ACT##_##AT(IN(int32_t, head), IN(float, x), IN(float, norm), IN(uint8_t, wg), IN(uint8_t, wu),  \
                                                          IN(float, sg), IN(float, su), OUT(y), int32_t N, int32_t K, float eps,               \
                                                          int32_t plus_one, int32_t ring) {                                                   \
    rows::gate_up<Usual<F, AT>, F, true, act::ACT>({head[0], x, nullptr, norm, eps, plus_one}, wg, wu, y, N, K, sg, su, 0, ring);              \
  }

#define LONG(NAME, CUT, F, FORMAT, ADD)                                                                                                    \
  ENTRY(CUT) NAME(IN(int32_t, head), IN(float, x), IN(uint8_t, w), IN(float, scale), IN(float, bias), float* y, int32_t N, int32_t K, int32_t ring) { \
    rows::stack<CUT, FORMAT, false, ADD>({head[0], x}, {{w}, {bias}, {y}, {N}, {scale}}, K, {}, 0, ring);                                    \
  }

#define BOTH_OF(F)                                                            \
  LONG(linear_add_rows_long_##F, Long, F, F, true)                            \
  LONG(linear_rows_streamed_##F, Streamed<F>, F, F::Taller, false)            \
  LONG(linear_add_rows_streamed_##F, Streamed<F>, F, F::Taller, true)         \
  ALL_OF(F, 4) \
  ALL_OF(F, 8)

BOTH_OF(e4m3)
BOTH_OF(e4m3_b128)
BOTH_OF(nvfp4)
BOTH_OF(mxfp4)
