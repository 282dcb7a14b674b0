// SPDX-License-Identifier: MIT OR Apache-2.0
// Family experts, 1 to 8 rows, weights that stay quantised, in the layout "rows", in two launches: experts/rows.cuh, by the formats of
// mma/quantised.cuh, which stream through rings (mma/weight_ring.cuh). Of up to 4 rows 256 threads, else, and down, 512. H, I and S must divide
// by 8; without a gate I and S by 16.

#include "../linear/formats.cuh"
#include "rows.cuh"

namespace {

template <class F, int Rows>
using Hidden = std::conditional_t<Rows == 4, tiles::Cut<8, F::kCodes == 4 ? 4 : 2, 2, 3, 4>, tiles::Cut<16, 1, 1, 2, 8>>;
template <class F>
using Down = tiles::Cut<16, 2, 1, 2, 4>;  // of few tiles, a row each

}  // namespace

#define ENTRY(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__::kThreads, __VA_ARGS__::B)
#define IN(T, NAME) const T* __restrict__ NAME

// h = weights * act(gate x) * up x of the row's experts, and of the shared one with sigmoid(shared_scale) for a weight. x [rows, H],
// ids and weights [rows, k], h [rows, k*I' + S'], the rest as in experts::Layer. AT is most rows, 4 or 8. Without a gate weights * act(up x).
#define HIDDEN(F, AT, NAME, ACT, GATED)                                                                                                                \
  ENTRY(Hidden<F, AT>) experts_hidden_rows_##F##_##NAME##_##AT(                                                                                      \
      IN(int32_t, head), IN(float, x), IN(int32_t, ids), IN(float, weights), IN(uint8_t, gate_up), IN(float, gate_up_scale),                    \
      IN(float, gate_up_bias), IN(float, shared_scale), IN(uint8_t, shared_gate), IN(uint8_t, shared_up), IN(float, sg), IN(float, su),         \
      float* __restrict__ h, int32_t E, int32_t I, int32_t S, int32_t H, int32_t k, float limit, int32_t ring) {                               \
    experts::hidden<Hidden<F, AT>, F, ACT, GATED>(head[0], x, ids, weights, shared_scale,                                                       \
                                                  {gate_up, nullptr, shared_gate, shared_up, nullptr, E, I, S, H, k, gate_up_bias, nullptr,     \
                                                   gate_up_scale, nullptr, sg, su, nullptr, limit},                                             \
                                                  h, ring);                                                                                    \
  }
#define BOTH_OF(F, NAME, ACT, GATED) \
  HIDDEN(F, 4, NAME, ACT, GATED)     \
  HIDDEN(F, 8, NAME, ACT, GATED)

// y = down h + weights * down_bias, over the row's experts and the shared one; or y += it
#define DOWN(NAME, F, ADD)                                                                                                                      \
  ENTRY(Down<F>) NAME##_##F(IN(int32_t, head), IN(int32_t, ids), IN(float, weights), IN(float, h), IN(uint8_t, w), IN(float, down_scale),       \
                            IN(float, down_bias), IN(uint8_t, shared_down), IN(float, sd), float* y, int32_t I, int32_t S, int32_t H, int32_t k, \
                            int32_t ring) {                                                                                                    \
    experts::down<Down<F>, F, ADD>(head[0], ids, weights, h,                                                                                    \
                                   {nullptr, w, nullptr, nullptr, shared_down, 0, I, S, H, k, nullptr, down_bias, nullptr, down_scale, nullptr, \
                                    nullptr, sd, 0.0f},                                                                                         \
                                   y, ring);                                                                                                   \
  }

#define ALL_OF(F)               \
  BOTH_OF(F, silu, glu::silu, true) \
  BOTH_OF(F, gelu_tanh, glu::gelu_tanh, true) \
  BOTH_OF(F, silu_then_limit, glu::silu_then_limit, true) \
  BOTH_OF(F, swiglu_oai, glu::swiglu_oai, true) \
  BOTH_OF(F, act_relu2, act::relu2, false) \
  DOWN(experts_down_rows, F, false) \
  DOWN(experts_down_add_rows, F, true)

ALL_OF(e4m3)
ALL_OF(e4m3_b128)
ALL_OF(nvfp4)
ALL_OF(mxfp4)
