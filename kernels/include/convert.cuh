// SPDX-License-Identifier: MIT OR Apache-2.0
// Stored element types, named as plans name them, and their conversions.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

using f32 = float;
struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

__device__ __forceinline__ float to_f32(f32 x) { return x; }
__device__ __forceinline__ float to_f32(bf16 x) { return __bfloat162float(__ushort_as_bfloat16(x.bits)); }
__device__ __forceinline__ float to_f32(f16 x) { return __half2float(__ushort_as_half(x.bits)); }

// from_f32 rounds to nearest even.
template <class T>
__device__ __forceinline__ T from_f32(float x);
template <>
__device__ __forceinline__ f32 from_f32<f32>(float x) {
  return x;
}
template <>
__device__ __forceinline__ bf16 from_f32<bf16>(float x) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}
template <>
__device__ __forceinline__ f16 from_f32<f16>(float x) {
  return {__half_as_ushort(__float2half_rn(x))};
}
