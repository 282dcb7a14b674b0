// SPDX-License-Identifier: MIT OR Apache-2.0
// Family dummy: random weights, made where they lie. A tensor is a sequence of words of 8 bytes, each SplitMix64 of its number
// as internal/tensor.Words counts; a run is a stretch of such bytes that goes to out:
//
//	words of a tensor   ….......|first ... first+bytes|.…     at any byte
//	out                    ….|to ........ to+bytes|.…         at any byte
//
// A block has one slice of a run, threads every 256th 16 bytes of out. Grid: slices of all runs.

#include <cstdint>

namespace {

struct Run {
  int64_t to, first, bytes;
  int64_t slice;              // of all slices, its first
  uint64_t seed, mask, base;  // of its tensor's words
};

constexpr int64_t kSlice = 256 << 10;  // bytes; internal/gpu/cuda counts by it too

__device__ __forceinline__ uint64_t word(const Run& r, int64_t i) {
  uint64_t z = r.seed + (uint64_t(i) + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return ((z ^ (z >> 31)) & r.mask) | r.base;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256) dummy(const Run* __restrict__ runs,  // [num] by slice, rising
                                                         uint8_t* __restrict__ out,     // [size] aligned to 16 bytes
                                                         int32_t num) {
  int low = 0, high = num - 1;
  while (low < high) {
    const int mid = (low + high + 1) / 2;
    if (runs[mid].slice <= int64_t(blockIdx.x)) low = mid;
    else high = mid - 1;
  }
  const Run r = runs[low];
  const int64_t begin = (int64_t(blockIdx.x) - r.slice) * kSlice;
  const int64_t from = r.to + begin, to = r.to + (begin + kSlice < r.bytes ? begin + kSlice : r.bytes);
  for (int64_t at = from / 16 * 16 + threadIdx.x * 16; at < to; at += blockDim.x * 16) {
    const int64_t place = at - r.to + r.first;  // of the words' bytes; below the run's first in its first 16 bytes
    if (at < from || at + 16 > to) {
      for (int i = 0; i < 16; i++)
        if (at + i >= from && at + i < to) out[at + i] = uint8_t(word(r, (place + i) / 8) >> ((place + i) % 8 * 8));
      continue;
    }
    const int shift = int(place % 8) * 8;
    uint64_t a = word(r, place / 8), b = word(r, place / 8 + 1);
    if (shift) {
      const uint64_t c = word(r, place / 8 + 2);
      a = a >> shift | b << (64 - shift);
      b = b >> shift | c << (64 - shift);
    }
    *reinterpret_cast<ulonglong2*>(out + at) = make_ulonglong2(a, b);
  }
}
