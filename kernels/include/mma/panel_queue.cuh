// SPDX-License-Identifier: MIT OR Apache-2.0
// weight_queue.cuh for panels of quantised weights (quantised.cuh), a unit of two panels a piece:
//
//	[panel][512 bytes of codes]   32 lanes × 16 bytes        once (fp4) or twice (fp8) a panel
//	[panel]                       32 lanes × 4 bytes         the word of scales that the lane needs; not of e4m3 without blocks
//
// A lane copies what it will itself read here, too; so scales come once for each lane that needs them.
//
// Order of a sum: the format's, units rising.
#pragma once

#include "quantised.cuh"
#include "weight_queue.cuh"

namespace queue {

constexpr int kUnit = 128;  // values of K

// copy_word copies 4 bytes into shared memory, as ptx::async_copy does 16.
__device__ __forceinline__ void copy_word(void* dst, const void* src) {
#ifdef METRALE_HOST
  std::memcpy(dst, src, 4);
#else
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(ptx::shared_address(dst)), "l"(src) : "memory");
#endif
}

// Panels is fed by a feed's next(p0, p1): whether a unit is known, and where its two panels have this lane's first codes. As many
// pieces are on their way as Area bytes of a warp hold.
template <class F, int Area>
struct Panels {
  static constexpr int kChunks = F::kCodes == 8 ? 2 : 1, kScales = (F::kBytes - 512 * kChunks) / 8;  // bytes of a row
  static constexpr int kPanel = 512 * kChunks, kPiece = 2 * kPanel + (kScales > 0 ? 256 : 0), kPieces = Area / kPiece, kBytes = kPieces * kPiece;
  unsigned char *codes, *words;     // this lane's of the first piece
  int scale;                        // from this lane's first codes to its scales
  int put = 0, got = 0, ahead = 0;  // where the next piece goes, is; pieces between

  __device__ __forceinline__ explicit Panels(unsigned char* memory) {
    const int lane = threadIdx.x & 31;
    codes = memory + (threadIdx.x >> 5) * Area + lane * 16, words = codes + 2 * kPanel - lane * 12;
    scale = kPanel + (lane >> 2) * kScales + (kScales == 8 ? (lane & 2) * 2 : 0) - lane * 16;
  }
  // ask asks for a piece; false: there is none, yet.
  template <class Feed>
  __device__ __forceinline__ bool ask(Feed& feed) {
    const uint8_t* p[2];
    if (!feed.next(p[0], p[1])) return false;
#pragma unroll
    for (int j = 0; j < 2; j++) {
#pragma unroll
      for (int i = 0; i < kChunks; i++) ptx::async_copy_passing(codes + put + j * kPanel + i * 512, p[j] + i * 512);
      if (kScales > 0) copy_word(words + put + j * 128, p[j] + scale);
    }
    return true;
  }
  // pass makes what was asked for a group: one a piece, whether something comes or not.
  __device__ __forceinline__ void pass() {
    ptx::async_commit();
    put = after(put), ahead++;
  }
  __device__ __forceinline__ static int after(int at) { return at + kPiece == kBytes ? 0 : at + kPiece; }
  // begin asks for what is known, fill for all that there is room for.
  template <class Feed>
  __device__ __forceinline__ void begin(Feed& feed) {
#pragma unroll 1
    while (ahead < kPieces && ask(feed)) pass();
  }
  template <class Feed>
  __device__ __forceinline__ void fill(Feed& feed) {
#pragma unroll 1
    while (ahead < kPieces) ask(feed), pass();
  }
  // read takes the oldest piece.
  __device__ __forceinline__ void read(typename F::Unit& u) const {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const unsigned char* c = codes + got + j * kPanel;
      if constexpr (F::kCodes == 8) {
        u.v[j][0] = *reinterpret_cast<const uint4*>(c);
        u.v[j][1] = *reinterpret_cast<const uint4*>(c + 512);
        if (kScales > 0) u.scale[j] = *reinterpret_cast<const float*>(words + got + j * 128);
      } else {
        u.v[j] = *reinterpret_cast<const uint4*>(c);
        u.scale[j] = *reinterpret_cast<const uint32_t*>(words + got + j * 128);
      }
    }
  }
  // product adds a run of n units, and asks for as many pieces as it takes.
  template <bool Wide, class Feed, class X>
  __device__ __forceinline__ void product(Feed& feed, X& x, int n, float (&acc)[Wide ? 2 : 1][4]) {
    constexpr int kParts = Wide ? 2 : 1;
#pragma unroll 1
    for (; n > 0; n--) {
      ptx::async_wait_but<kPieces - 1>();
      typename F::Unit u;
      read(u);
      F::template multiply<kParts>(u, x, 0, reinterpret_cast<float(&)[1][kParts][4]>(acc));
      x.pass(F::kSteps);
      got = after(got), ahead--;
      ask(feed);
      pass();
    }
  }
};

}  // namespace queue
