// SPDX-License-Identifier: MIT OR Apache-2.0
// The formats of mma/quantised.cuh under the names of element types, a tile of 16 rows.
#pragma once

#include "../../../include/mma/quantised.cuh"

struct e4m3 : tiles::Fp8<false, 1> {};
struct e4m3_b128 : tiles::Fp8<true, 1> {};
struct nvfp4 : tiles::Fp4<tiles::Nvfp4Scales, 1> {};
struct mxfp4 : tiles::Fp4<tiles::Mxfp4Scales, 1> {};
