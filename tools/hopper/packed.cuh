// SPDX-License-Identifier: MIT OR Apache-2.0
// Random weights in the layout "rows" (mma/quantised.cuh) and their values, for benches.
#pragma once

#include "../../kernels/include/mma/quantised.cuh"
#include "rig.cuh"

namespace quantised {

template <int M>
using E4m3 = tiles::Fp8<false, M>;
template <int M>
using E4m3Blocks = tiles::Fp8<true, M>;
template <int M>
using Nvfp4 = tiles::Fp4<tiles::Nvfp4Scales, M>;
template <int M>
using Mxfp4 = tiles::Fp4<tiles::Mxfp4Scales, M>;

// Kind says what the bytes of a unit are, and how large values are in the mean.
struct Kind {
  const char* name;
  int bytes, codes, fp8, scale;  // of a unit; scale: 0 none, 1 f32, 2 nvfp4, 3 mxfp4
  float up;                      // what sums are multiplied by
};
template <class F>
struct KindOf;
template <int M>
struct KindOf<E4m3<M>> {
  static Kind of() { return {"e4m3", E4m3<M>::kBytes, 1024, 1, 0, 1}; }
};
template <int M>
struct KindOf<E4m3Blocks<M>> {
  static Kind of() { return {"e4m3_b128", E4m3Blocks<M>::kBytes, 1024, 1, 1, 1}; }
};
template <int M>
struct KindOf<Nvfp4<M>> {
  static Kind of() { return {"nvfp4", Nvfp4<M>::kBytes, 512, 0, 2, 1}; }
};
template <int M>
struct KindOf<Mxfp4<M>> {
  static Kind of() { return {"mxfp4", Mxfp4<M>::kBytes, 512, 0, 3, 1}; }
};
template <class F>
Kind kind() {
  return KindOf<F>::of();
}

// byte_of is byte i of random packed weights whose products with K values about 1 are about 1; spread gives codes of every size.
__host__ __device__ inline uint8_t byte_of(const Kind& k, uint64_t i, uint32_t seed, int log_k) {
  const int off = int(i % k.bytes);
  const uint32_t h = rig::hash(i, seed);
  if (off < k.codes) return k.fp8 ? (uint8_t(h & 0x7f) == 0x7f ? uint8_t(h & 0xfe) : uint8_t(h)) : uint8_t(h);
  const int root = log_k / 2;
  switch (k.scale) {
    case 1: {  // (1 + m/8) 2^-(6 + root) · 2^56
      const uint32_t m = rig::hash(i / 4, seed) & 7, bits = (uint32_t(127 - 6 - root + 56) << 23) | m << 20;
      return uint8_t(bits >> 8 * ((off - k.codes) & 3));
    }
    case 2: return h % 61 == 0 ? uint8_t(0) : uint8_t((9 - 1 - root + (h >> 8) % 3) << 3 | (h & 7));
    default: return uint8_t(127 + 100 - 1 - root + h % 3);
  }
}
__global__ void fill(uint8_t* p, uint64_t n, Kind k, uint32_t seed, int log_k) {
  for (uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; i < n; i += uint64_t(gridDim.x) * blockDim.x) p[i] = byte_of(k, i, seed, log_k);
}
inline int log_of(int K) {
  int l = 0;
  while (1 << (l + 1) <= K) l++;
  return l;
}
inline uint64_t packed(const Kind& k, int64_t N, int K) { return uint64_t(N / 8) * ((K + 127) / 128) * k.bytes; }
inline uint8_t* weights(const Kind& k, int64_t N, int K, int copies, uint32_t seed) {
  const uint64_t n = packed(k, N, K) * copies;
  uint8_t* p = rig::device<uint8_t>(n, 0);
  fill<<<rig::sms * 8, 256, 0, rig::stream>>>(p, n, k, seed, log_of(K));
  OK(cudaGetLastError());
  return p;
}

// value decodes what the layout has for one weight, without its row's scale.
inline double value(const Kind& k, int64_t row, int col, int K, uint32_t seed) {
  const int l = log_of(K), g = row & 7, unit = col / 128, step = col / 32 % 4, t = col % 32 / 8, j = col % 8;
  const uint64_t base = (uint64_t(row >> 3) * ((K + 127) / 128) + unit) * k.bytes;
  auto at = [&](int off) { return byte_of(k, base + off, seed, l); };
  auto word = [&](int off) { return uint32_t(at(off)) | uint32_t(at(off + 1)) << 8 | uint32_t(at(off + 2)) << 16 | uint32_t(at(off + 3)) << 24; };
  double v, s = 1;
  if (k.fp8) {
    const int place = step / 2 * 512 + (4 * g + t) * 16 + step % 2 * 8 + j / 4 * 4;
    static const int order[4] = {1, 3, 0, 2};
    const int b = at(place + order[j % 4]), e = b >> 3 & 15, m = b & 7;
    v = (e ? std::ldexp(1 + m / 8.0, e - 7) : std::ldexp(m / 8.0, -6)) * (b & 128 ? -1 : 1);
    if (k.scale == 1) {
      const uint32_t u = word(1024 + 4 * g);
      float f;
      memcpy(&f, &u, 4);
      s = std::ldexp(double(f), -56);
    }
    return v * s;
  }
  const uint32_t stored = word((4 * g + t) * 16 + step * 4), w = j % 2 ? stored << 16 | stored >> 16 : stored;
  static const int bits[4][4] = {{15, 8, 7, 6}, {9, 2, 1, 0}, {3, 28, 27, 26}, {13, 14, 5, 4}};
  const int* b = bits[j / 2];
  const int e = (w >> b[1] & 1) * 2 + (w >> b[2] & 1), m = w >> b[3] & 1;
  v = (e ? std::ldexp(1 + m / 2.0, e - 1) : m / 2.0) * (w >> b[0] & 1 ? -1 : 1);
  if (k.scale == 2) {
    const int c = at(512 + 8 * g + t / 2 * 4 + step);
    s = std::ldexp(1 + (c & 7) / 8.0, (c >> 3) - 9);
  } else {
    s = std::ldexp(1.0, int(at(512 + 4 * g + step)) - 100 - 127);
  }
  return v * s;
}

}  // namespace quantised
