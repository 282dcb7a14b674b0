// SPDX-License-Identifier: MIT OR Apache-2.0
// Addresses that stay in registers, and stores to them: what the compiler would compute anew at each use makes code large.
#pragma once

#include "sm90.cuh"

namespace ptx {

#ifdef METRALE_HOST

template <class T>
T* kept(T* p) {
  return p;
}
inline void store_shared(shared_pointer p, uint32_t a, uint32_t b) {
  const uint32_t v[2] = {a, b};
  std::memcpy(const_cast<unsigned char*>(p), v, 8);
}

#else

// kept is p, computed here and nowhere else.
template <class T>
__device__ __forceinline__ T* kept(T* p) {
  asm volatile("" : "+l"(p));
  return p;
}
// store_shared writes two words. 8-byte aligned.
__device__ __forceinline__ void store_shared(shared_pointer p, uint32_t a, uint32_t b) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(p), "r"(a), "r"(b) : "memory");
}

#endif

}  // namespace ptx
