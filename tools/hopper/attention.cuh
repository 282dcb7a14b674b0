// SPDX-License-Identifier: MIT OR Apache-2.0
// Attention of 1 to 8 rows: its step block, its launch, and its check against float64 on the host.
#pragma once

#include "../../kernels/include/epilogue/act.cuh"
#include "../../kernels/include/mma/bf16.cuh"
#include "../../kernels/include/mma/matrices.cuh"
#include "../../kernels/include/ptx/cluster.cuh"
#include "../../kernels/include/ptx/copy_or_zero.cuh"
#include "../../kernels/include/ptx/sm90.cuh"
#include "rig.cuh"

namespace k_attention {
#include "../../kernels/hopper/common/attention/decode.cu"
#undef ENTRY
}  // namespace k_attention

namespace ops {

inline int rows = 1;  // of the step: what a manifest knows as the row bucket

// meet and scratch are what a plan would give: counters, zero at first, and memory of a launch.
inline uint32_t* meet() {
  static uint32_t* p = nullptr;
  if (!p) {
    OK(cudaMalloc(&p, 8192 * 4));
    OK(cudaMemset(p, 0, 8192 * 4));
  }
  return p;
}
inline float* scratch() {
  static float* p = nullptr;
  if (!p) OK(cudaMalloc(&p, 16 << 20));
  return p;
}

// Step is the step block on the device.
struct Step {
  int32_t *head, *positions, *row_seq, *slots, *cu_rows, *block_table, *state_slot, *fresh, *out_rows;
  int pages;  // stride of block_table
};

struct Heads {
  int heads, kv, hd, rot, gated;
};

// AttentionCut is the kernel cut in one way: entries for heads of 64, 128 and 256 values.
struct AttentionCut {
  const char* name;
  decltype(&k_attention::attention_step_bf16_64_half) kernel[3];
  size_t shared[3];
  int threads, grid;  // grid 0: a block a multiprocessor
  int cluster;
};
constexpr size_t kNoPair = 116736;  // more than half of a multiprocessor's: what is left is for successors' loads
inline const AttentionCut kTree = {"tree", {k_attention::attention_step_bf16_64_half, k_attention::attention_step_bf16_128_half, k_attention::attention_step_bf16_256_half},
                                   {kNoPair, kNoPair, sizeof(k_attention::Shared<256, 1>)}, 256, 0, k_attention::kBlocks};
inline const AttentionCut* attention_cut = &kTree;

inline void attention(const Step& st, int rows, const Heads& h, const float* q, const float* k, const float* v, const float* qn,
                      const float* kn, const float* angles, uint16_t* kp, uint16_t* vp, float* y, float eps, int plus_one, int window = 0, const float* sinks = nullptr) {
  const AttentionCut& c = *attention_cut;
  const int i = h.hd == 64 ? 0 : h.hd == 128 ? 1 : 2;
  rig::launch(c.kernel[i], rig::Config{dim3(c.grid ? c.grid : rig::sms - rig::sms % c.cluster), c.threads, c.shared[i], c.cluster}, st.head, st.positions, st.row_seq, st.cu_rows,
              st.block_table, st.slots, q, k, v, qn, kn, sinks, angles, kp, vp, y, rows, rows, h.heads, h.kv, h.rot, 16, st.pages, h.gated, window, plus_one, eps,
              float(1 / std::sqrt(double(h.hd))), 0.0f, scratch(), reinterpret_cast<float2*>(scratch() + size_t(rows) * k_attention::kMost * 8 * h.hd), meet());
}

}  // namespace ops

namespace check {

using rig::Error;
using rig::weight;

inline std::vector<float> ones_about(size_t n, uint32_t seed, int plus_one) {  // norm weights
  std::vector<float> v(n);
  for (size_t i = 0; i < n; i++) v[i] = (plus_one ? 0.0f : 1.0f) + 0.25f * rig::normal(i, seed);
  return v;
}

// normed is the norm of a row in float64.
inline std::vector<double> normed(const float* x, int n, const std::vector<float>& w, int plus_one, double eps) {
  double q = 0;
  for (int i = 0; i < n; i++) q += double(x[i]) * x[i];
  std::vector<double> y(n);
  for (int i = 0; i < n; i++) y[i] = x[i] / std::sqrt(q / n + eps) * (plus_one + double(w[i]));
  return y;
}
inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
// step_of makes a step block: rows of each sequence and its context before the step.
struct Host {
  std::vector<int> rows_of, context;
  std::vector<int32_t> positions, row_seq, slots, cu, table, state_slot, fresh, out_rows;
  int rows = 0, pages, pool_pages;
  ops::Step device;
};
inline Host step_of(const std::vector<int>& rows_of, const std::vector<int>& context, bool fresh = false) {
  Host h;
  h.rows_of = rows_of, h.context = context;
  const int seqs = rows_of.size();
  int longest = 0, total = 0;
  std::vector<int> need;
  for (int s = 0; s < seqs; s++) {
    need.push_back((context[s] + rows_of[s] + 15) / 16);
    longest = std::max(longest, need[s]), total += need[s];
  }
  h.pages = longest + 1, h.pool_pages = total + 3;
  h.table.assign(size_t(seqs) * h.pages, -1);
  std::vector<int> order(total);
  for (int i = 0; i < total; i++) order[i] = i + 2;
  for (int i = total - 1; i > 0; i--) std::swap(order[i], order[rig::hash(i, 77) % (i + 1)]);
  h.cu = {0};
  int at = 0;
  for (int s = 0; s < seqs; s++) {
    for (int p = 0; p < need[s]; p++) h.table[size_t(s) * h.pages + p] = order[at++];
    for (int r = 0; r < rows_of[s]; r++) {
      const int pos = context[s] + r;
      h.positions.push_back(pos), h.row_seq.push_back(s);
      h.slots.push_back(h.table[size_t(s) * h.pages + pos / 16] * 16 + pos % 16);
      h.out_rows.push_back(h.rows);
      h.rows++;
    }
    h.cu.push_back(h.rows);
    h.state_slot.push_back((s * 5 + 3) % 11);
    h.fresh.push_back(fresh || (seqs > 2 && s == 1));
  }
  ops::rows = h.rows;
  std::vector<int32_t> head = {h.rows, seqs, h.rows, 0, 0, 0, 0, 0};
  h.device = {rig::upload(head),  rig::upload(h.positions),  rig::upload(h.row_seq), rig::upload(h.slots),   rig::upload(h.cu),
              rig::upload(h.table), rig::upload(h.state_slot), rig::upload(h.fresh),   rig::upload(h.out_rows), h.pages};
  return h;
}

// attention checks a ragged step; the pools are NaN but for the tokens before it.
inline void attention(std::vector<int> rows_of, std::vector<int> context, const ops::Heads& hd, bool qk_norm, int window = 0, bool sinks = false) {
  Host st = step_of(rows_of, context);
  const int R = st.rows, D = hd.hd, T = hd.kv * D, group = hd.heads / hd.kv, wide = D * (1 + hd.gated);
  const auto q = rig::normals(size_t(R) * hd.heads * wide, 1), k = rig::normals(size_t(R) * T, 2), v = rig::normals(size_t(R) * T, 3);
  const auto qn = ones_about(D, 4, 1), kn = ones_about(D, 5, 1);
  const auto sink = rig::normals(hd.heads, 8, 2);
  std::vector<float> angles(size_t(R) * hd.rot);
  for (int r = 0; r < R; r++)
    for (int i = 0; i < hd.rot / 2; i++) {
      const double f = st.positions[r] * std::pow(10000.0, -2.0 * i / hd.rot);
      angles[r * hd.rot + i] = std::cos(f), angles[r * hd.rot + hd.rot / 2 + i] = std::sin(f);
    }
  std::vector<uint16_t> kp(size_t(st.pool_pages) * 16 * T, 0xffff), vp = kp;
  for (size_t s = 0; s < rows_of.size(); s++)
    for (int p = 0; p < context[s]; p++) {
      const size_t at = (size_t(st.table[s * st.pages + p / 16]) * 16 + p % 16) * T;
      for (int i = 0; i < T; i++) kp[at + i] = rig::bits(weight(at + i, 6, -1)), vp[at + i] = rig::bits(weight(at + i, 7, 0));
    }
  uint16_t *dk = rig::upload(kp), *dv = rig::upload(vp);
  float* y = rig::device<float>(size_t(R) * hd.heads * D);
  ops::attention(st.device, R, hd, rig::upload(q), rig::upload(k), rig::upload(v), qk_norm ? rig::upload(qn) : nullptr,
                 qk_norm ? rig::upload(kn) : nullptr, rig::upload(angles), dk, dv, y, 1e-6f, 1, window, sinks ? rig::upload(sink) : nullptr);
  const auto got = rig::download(y, size_t(R) * hd.heads * D);
  const auto kp2 = rig::download(dk, kp.size()), vp2 = rig::download(dv, vp.size());
  rig::all_finite("attention", got);

  auto prepared = [&](const float* x, const std::vector<float>& w, int r) {
    std::vector<double> a(D), b;
    if (qk_norm) a = normed(x, D, w, 1, 1e-6);
    else
      for (int i = 0; i < D; i++) a[i] = x[i];
    b = a;
    for (int i = 0; i < hd.rot / 2; i++) {
      const double c = angles[r * hd.rot + i], s = angles[r * hd.rot + hd.rot / 2 + i], lo = a[i], hi = a[i + hd.rot / 2];
      b[i] = lo * c - hi * s, b[i + hd.rot / 2] = hi * c + lo * s;
    }
    return b;
  };
  auto value = [&](uint16_t u) {
    float f;
    uint32_t w = uint32_t(u) << 16;
    memcpy(&f, &w, 4);
    return double(f);
  };
  Error ek, ey;
  for (int r = 0; r < R; r++)
    for (int h = 0; h < hd.kv; h++) {
      const auto kk = prepared(&k[size_t(r) * T + h * D], kn, r);
      for (int i = 0; i < D; i++) {
        const size_t at = size_t(st.slots[r]) * T + h * D + i;
        ek.add(value(kp2[at]), kk[i]);
        ek.add(value(vp2[at]), v[size_t(r) * T + h * D + i]);
      }
    }
  std::vector<Error> part(R * hd.heads);
  rig::parallel(R * hd.heads, [&](int i) {
    const int r = i / hd.heads, h = i % hd.heads, s = st.row_seq[r], pos = st.positions[r];
    const auto qq = prepared(&q[(size_t(r) * hd.heads + h) * wide], qn, r);
    std::vector<double> p(pos + 1), o(D, 0);
    double top = -1e300, sum = 0;
    const int from = window > 0 ? std::max(0, pos - window + 1) : 0;
    auto at = [&](int j) { return (size_t(st.table[size_t(s) * st.pages + j / 16]) * 16 + j % 16) * T + h / group * D; };
    for (int j = from; j <= pos; j++) {
      double d = 0;
      for (int c = 0; c < D; c++) d += qq[c] * value(kp2[at(j) + c]);
      p[j] = d / std::sqrt(double(D)), top = std::max(top, p[j]);
    }
    if (sinks) sum = std::exp(sink[h] - top);
    for (int j = from; j <= pos; j++) {
      const double f = std::exp(p[j] - top);
      sum += f;
      for (int c = 0; c < D; c++) o[c] += f * value(vp2[at(j) + c]);
    }
    for (int c = 0; c < D; c++) {
      const double g = hd.gated ? sigmoid(q[(size_t(r) * hd.heads + h) * wide + D + c]) : 1;
      part[i].add(got[(size_t(r) * hd.heads + h) * D + c], o[c] / sum * g);
    }
  });
  for (auto& e : part) ey.diff += e.diff, ey.ref += e.ref, ey.worst = std::max(ey.worst, e.worst), ey.finite &= e.finite;
  char name[160], list[96] = "";
  for (size_t i = 0; i < rows_of.size() && strlen(list) < 80; i++) snprintf(list + strlen(list), 16, " %d+%d", context[i], rows_of[i]);
  snprintf(name, sizeof name, "attention %d/%d x %d%s%s%s%s", hd.heads, hd.kv, D, hd.gated ? " gated" : "", window ? " window" : "", sinks ? " sinks :" : " :", list);
  rig::verdict(name, ey, 5e-5);
  rig::verdict("  appended (bf16)", ek, 3e-3);
  rig::release();
}

// attentions checks steps of each head size, ragged ones, with windows, sinks and without rotation.
inline void attentions() {
  const ops::Heads llama{32, 8, 128, 128, 0}, qwen{32, 4, 128, 128, 0}, gated{16, 2, 256, 64, 1}, small{6, 2, 64, 64, 0}, wide{24, 2, 64, 32, 0},
      plain{12, 3, 128, 0, 0};
  attention({1}, {128}, llama, false);
  attention({1}, {0}, llama, false);
  attention({1}, {1337}, qwen, true);
  attention({1}, {63}, gated, false);
  attention({1}, {4099}, gated, true);
  attention({1}, {20000}, qwen, true);
  attention({1, 1, 1, 1, 1, 1, 1, 1}, {3, 16, 511, 512, 1, 0, 2000, 90}, llama, false);
  attention({1, 1, 1, 1, 1, 1, 1, 1}, {3, 16, 511, 512, 1, 0, 6000, 90}, gated, true);
  attention({3, 1, 4}, {15, 40, 300}, llama, true);
  attention({5, 3}, {1000, 29}, qwen, true);
  attention({2, 2}, {77, 3}, small, true);
  attention({1, 2}, {700, 31}, wide, false);
  attention({1, 1}, {700, 31}, llama, false, 100);
  attention({2, 1}, {4000, 5}, qwen, true, 256);
  attention({1, 1, 2}, {5000, 70, 300}, small, false, 128, true);
  attention({1, 1}, {1500, 7}, small, false, 0, true);
  attention({1, 3}, {9000, 100}, gated, true, 0, true);
  attention({8}, {777}, plain, false);
}

}  // namespace check
