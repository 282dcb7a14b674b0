// SPDX-License-Identifier: MIT OR Apache-2.0
// Activations of a gate and what it opens, silu by the device's quotient (act.cuh): for kernels that do little else.
#pragma once

#include "act.cuh"

namespace quick_glu {

using silu = glu::limited<act::quick_silu>;
using glu::gelu_tanh;
using glu::silu_then_limit;
using glu::swiglu_oai;

}  // namespace quick_glu
