// SPDX-License-Identifier: MIT OR Apache-2.0
// The streaming kernels cut in other ways than the tree's entries are, to find the best way for a shape.
#pragma once

#include <map>
#include <tuple>

#include "kernels.cuh"
#include "rig.cuh"

namespace variants {

#define KERNEL template <class P> __global__ void __launch_bounds__(P::kThreads, P::B)

KERNEL add(const int32_t* head, const float* x, const uint16_t* w, const float* bias, float* y, int N, int K) {
  rows::stack<P, tiles::Bf16, false, true, false, rows::Reads::kAll>({head[0], x}, {{w}, {bias}, {y}, {N}}, K);
}
KERNEL norm_n(const int32_t* head, const float* x, const float* norm, const uint16_t* w0, const uint16_t* w1, const uint16_t* w2,
              const uint16_t* w3, const float* b0, const float* b1, const float* b2, const float* b3, float* y0, float* y1, float* y2,
              float* y3, int N0, int N1, int N2, int N3, int K, float eps, int plus_one) {
  rows::stack<P, tiles::Bf16, true, false>({head[0], x, nullptr, norm, eps, plus_one}, {{w0, w1, w2, w3}, {b0, b1, b2, b3}, {y0, y1, y2, y3}, {N0, N1, N2, N3}}, K);
}
KERNEL conv(const int32_t* head, const int32_t* row_seq, const int32_t* cu_rows, const int32_t* slot, const int32_t* fresh, const float* x,
            const float* norm, const uint16_t* w0, const uint16_t* w1, const uint16_t* w2, const uint16_t* w3, const float* c, float* state,
            float* y0, float* y1, float* y2, float* y3, int N0, int N1, int N2, int N3, int K, float eps, int plus_one) {
  rows::stack<P, tiles::Bf16, true, false, true>({head[0], x, nullptr, norm, eps, plus_one}, {{w0, w1, w2, w3}, {}, {y0, y1, y2, y3}, {N0, N1, N2, N3}}, K,
                                        {c, state, row_seq, cu_rows, slot, fresh});
}
KERNEL outs(const int32_t* head, const float* x, const int32_t* out_rows, const float* norm, const uint16_t* w, const float* bias, float* y,
            int N, int K, float eps, int plus_one) {
  rows::stack<P, tiles::Bf16, true, false>({head[2], x, out_rows, norm, eps, plus_one}, {{w}, {bias}, {y}, {N}}, K);
}
KERNEL glu(const int32_t* head, const float* x, const float* norm, const uint16_t* g, const uint16_t* u, float* y, int N, int K, float eps,
           int plus_one) {
  rows::gate_up<P, tiles::Bf16, true, act::silu>({head[0], x, nullptr, norm, eps, plus_one}, g, u, y, N, K);
}
KERNEL hidden(const int32_t* head, const float* x, const int32_t* ids, const float* weights, const uint16_t* gate_up, const float* scale,
              const uint16_t* sg, const uint16_t* su, float* h, int E, int I, int S, int H, int k) {
  experts::hidden<P, tiles::Bf16, glu::silu>(head[0], x, ids, weights, scale, {gate_up, nullptr, sg, su, nullptr, E, I, S, H, k}, h);
}
KERNEL down(const int32_t* head, const int32_t* ids, const float* h, const uint16_t* w, const uint16_t* sd, float* y, int I, int S, int H, int k) {
  experts::down<P, tiles::Bf16>(head[0], ids, nullptr, h, {nullptr, w, nullptr, nullptr, sd, 0, I, S, H, k}, y);
}
#undef KERNEL

// layer is a cut of experts/layer.cu: P pieces of a warp's queue.
template <int P, int Most>
__global__ void __launch_bounds__(k_layer::kThreads, Most > 4 ? 1 : 2)
    layer(const int32_t* head, float* x, const float* norm, const uint16_t* router, const uint16_t* router_shared, const uint16_t* gate_up,
          const uint16_t* down, const uint16_t* sg, const uint16_t* su, const uint16_t* sd, float* h, uint32_t* meet, int E, int I, int S, int H,
          int k, int region, float eps, int plus_one, int renorm, float renorm_eps, float weight_scale) {
  k_layer::layer<k_layer::Bf16<P>, Most, act::silu>({Most == 1 ? 1 : head[0], x, norm, router, router_shared, gate_up, down, sg, su, sd, h, meet, E, I, S, H, k,
                                      region, eps, float(plus_one), renorm_eps, weight_scale, renorm});
}
struct LayerCut {
  int pieces;
  decltype(&layer<4, 1>) kernel[3];  // of 1, of up to 4, of up to 8 rows
};
template <int P>
constexpr LayerCut layer_cut_of() {
  return {P, {layer<P, 1>, layer<P, 4>, layer<P, 8>}};
}
inline const LayerCut kLayers[] = {layer_cut_of<3>(), layer_cut_of<2>(), layer_cut_of<4>()};
inline int layer_cut = 0;  // the tree's

using First = tiles::Point<8, 6, 2, 0>;

// Set is one cut of all kernels.
struct Set {
  const char* name;
  int threads, resident;  // resident: blocks that registers allow
  decltype(&add<First>) add;
  decltype(&norm_n<First>) norm_n;
  decltype(&conv<First>) conv;
  decltype(&outs<First>) outs;
  decltype(&glu<First>) glu;
  decltype(&hidden<First>) hidden;
  decltype(&down<First>) down;
};
template <int W, int D, int B, int A>
Set set(const char* name) {
  using P = tiles::Point<W, D, B, A>;
  return {name, P::kThreads, B, add<P>, norm_n<P>, conv<P>, outs<P>, glu<P>, hidden<P>, down<P>};
}
#define SET(W, D, B, A) set<W, D, B, A>("W" #W " D" #D " B" #B " A" #A)
inline const std::vector<Set>& all() {
  static const std::vector<Set> v = {SET(8, 6, 2, 0), SET(8, 8, 2, 0), SET(8, 8, 2, -2), SET(8, 4, 3, 0), SET(16, 3, 2, 0),
                                     SET(16, 4, 1, 1), SET(16, 4, 1, -1), SET(16, 4, 1, -2)};
  return v;
}
#undef SET

// Choice is a set and its grid: blocks a multiprocessor, 0 a block a tile.
struct Choice {
  int set = 0, per_sm = 2;
};
// Key is kernel ("add", …), rows of weights, K.
using Key = std::tuple<std::string, int, int>;
inline std::map<Key, Choice> chosen;
inline bool forced = false;
inline Choice force;

inline Choice choice(const char* kernel, int N, int K) {
  if (forced) return force;
  const auto it = chosen.find(Key(kernel, N, K));
  if (it != chosen.end()) return it->second;
  if (std::string(kernel) == "add" && N * K <= 12000000) return {7, 1};  // as the tree's entries
  if (std::string(kernel) == "norm_n" && N * K <= 20000000) return {6, 1};
  if (std::string(kernel) == "add") return {4, 2};
  return Choice();
}
inline dim3 grid(const Choice& c, int units) { return dim3(c.per_sm == 0 ? (units + 1) / 2 : std::min(units, rig::sms * c.per_sm)); }

// x_bytes is shared memory of R rows of x, and of their norm.
inline size_t x_bytes(int R, int K, bool norm) { return size_t(4) * K * (R + norm); }

}  // namespace variants
