// SPDX-License-Identifier: MIT OR Apache-2.0
// Family experts, 1 to 8 rows, bf16 weights as stored, in two launches: experts/rows.cuh. Threads: hidden 256, down 512. H, I and S
// must divide by 32.

#include "rows.cuh"

namespace {

using F = tiles::Bf16;
using Hidden = tiles::Point<8, 4, 3, 0>;
using DownOne = tiles::Point<16, 4, 1, 1>;  // of one row
using DownSome = tiles::Point<16, 3, 2, 0>;

}  // namespace

#define ENTRY(P) extern "C" __global__ void __launch_bounds__(P::kThreads, P::B)

// h = weights * act(gate x) * up x of the row's experts, and of the shared one with sigmoid(shared_scale) for a weight; without a gate
// weights * act(up x), of gate_up [E, I, H]
#define HIDDEN(name, Act, Gated)                                                                                                           \
  ENTRY(Hidden) name(const int32_t* __restrict__ head, const float* __restrict__ x, /* [rows, H] */                                 \
             const int32_t* __restrict__ ids,                               /* [rows, k] */                                         \
             const float* __restrict__ weights,                             /* [rows, k] */                                         \
             const uint16_t* __restrict__ gate_up,                          /* [E, 2I, H] bf16 */                                   \
             const float* __restrict__ shared_scale,                        /* [rows, 1] or null */                                 \
             const uint16_t* __restrict__ shared_gate,                      /* [S, H] or null */                                    \
             const uint16_t* __restrict__ shared_up,                        /* [S, H] or null */                                    \
             float* __restrict__ h,                                         /* [rows, k*I + S] */                                   \
             int32_t E, int32_t I, int32_t S, int32_t H, int32_t k) {                                                               \
    experts::hidden<Hidden, F, Act, Gated>(head[0], x, ids, weights, shared_scale,                                                         \
                                    {gate_up, nullptr, shared_gate, shared_up, nullptr, E, I, S, H, k}, h);                         \
  }
HIDDEN(experts_hidden_rows_bf16_silu, glu::silu, true)
HIDDEN(experts_hidden_rows_bf16_gelu_tanh, glu::gelu_tanh, true)
HIDDEN(experts_hidden_rows_bf16_act_relu2, act::relu2, false)

// y = down h, over the row's experts and the shared one, or y += it; of one row, of up to 8
#define DOWN(name, P, Add)                                                                                                               \
  ENTRY(P) name(const int32_t* __restrict__ head,                                                                                   \
                const int32_t* __restrict__ ids,          /* [rows, k] */                                                           \
                const float* __restrict__ h,              /* [rows, k*I + S] */                                                     \
                const uint16_t* __restrict__ w,           /* [E, H, I] bf16 */                                                      \
                const uint16_t* __restrict__ shared_down, /* [H, S] or null */                                                      \
                float* y,                                 /* [rows, H] */                                                           \
                int32_t I, int32_t S, int32_t H, int32_t k) {                                                                       \
    experts::down<P, F, Add>(head[0], ids, nullptr, h, {nullptr, w, nullptr, nullptr, shared_down, 0, I, S, H, k}, y);                   \
  }
DOWN(experts_down_rows_bf16_2, DownSome, false)
DOWN(experts_down_add_rows_bf16_1, DownOne, true)
DOWN(experts_down_add_rows_bf16_2, DownSome, true)
