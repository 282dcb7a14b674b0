// SPDX-License-Identifier: MIT OR Apache-2.0
// Whole decode steps of three models: every launch of a step in one graph, with weights of the true sizes.
#pragma once

#include "check.cuh"

namespace chain {

struct Model {
  const char* name;
  int layers, hidden, vocab;
  ops::Heads attn;
  bool qk_norm;
  int inter;                 // of dense layers
  int experts, k, moe, shared;
  ops::Delta delta;
  int every;                 // full attention in each such layer; 1 everywhere
  int plus_one;
  float base;
};
inline const Model kModels[] = {
    {"Llama-3.1-8B", 32, 4096, 128256, {32, 8, 128, 128, 0}, false, 14336, 0, 0, 0, 0, {}, 1, 0, 500000},
    {"Qwen3-30B-A3B", 48, 2048, 151936, {32, 4, 128, 128, 0}, true, 0, 128, 8, 768, 0, {}, 1, 0, 1000000},
    {"Qwen3.5-35B-A3B", 40, 2048, 248320, {16, 2, 256, 64, 1}, true, 0, 256, 8, 512, 512, {16, 32, 128, 128}, 4, 1, 10000000},
};

struct Layer {
  ops::Stack in;       // q k v, or qkv z b a
  const float* norm;
  const uint16_t *o, *gate, *up, *down;
  const float* norm2;
  ops::Moe moe;
  uint16_t *kp, *vp;
  float *conv_state, *state;
  const float *conv, *a_log, *dt, *out_norm;
};

inline bool whole_layers = true;  // experts in one launch with their router

struct Chain {
  const Model& m;
  int B, context;
  check::Host st;
  std::vector<Layer> layers;
  const uint16_t *embed, *head;
  const float *norm, *qn, *kn;
  float *x, *y[4], *o, *h, *w, *scale, *hid, *act, *angles, *logits;
  int32_t *ids, *token, *tokens;
  int launches = 0;
  double bytes = 0;  // of weights and state that a step reads; experts: as many as rows take that choose at random

  bool full(int l) const { return m.every == 1 || l % m.every == m.every - 1; }

  Chain(const Model& m, int B, int context) : m(m), B(B), context(context) {
    st = check::step_of(std::vector<int>(B, 1), std::vector<int>(B, context));
    std::fill(st.fresh.begin(), st.fresh.end(), 0);
    st.device.fresh = rig::upload(st.fresh);
    const int H = m.hidden, D = m.attn.hd, Q = m.attn.heads * D, KV = m.attn.kv * D, eh = check::scale_of(H);
    uint32_t seed = 100;
    auto mat = [&](size_t n, size_t k, bool every_row = true) {
      if (every_row) bytes += 2.0 * n * k;
      return rig::weights(n * k, seed++, check::scale_of(k));
    };
    auto vec = [&](int n, float scale, float one) {
      auto v = rig::normals(n, seed++, scale);
      for (auto& f : v) f += one;
      return rig::upload(v);
    };
    auto norm_of = [&](int n) { return vec(n, 0.1f, m.plus_one ? 0 : 1); };
    for (int l = 0; l < m.layers; l++) {
      Layer a = {};
      a.norm = norm_of(H), a.norm2 = norm_of(H);
      if (full(l)) {
        a.in.n[0] = Q * (1 + m.attn.gated), a.in.n[1] = KV, a.in.n[2] = KV;
        a.o = mat(H, Q);
        const size_t pool = size_t(st.pool_pages) * 16 * KV;
        a.kp = rig::weights(pool, seed++, 0), a.vp = rig::weights(pool, seed++, 0);
        bytes += 4.0 * B * context * KV;
      } else {
        const auto& d = m.delta;
        a.in.n[0] = d.channels(), a.in.n[1] = d.values(), a.in.n[2] = a.in.n[3] = d.v_heads;
        a.o = mat(H, d.values());
        a.conv_state = rig::device<float>(size_t(11) * 3 * d.channels(), 0);
        a.state = rig::device<float>(size_t(11) * d.values() * d.k_dim, 0);
        bytes += 4.0 * B * d.values() * d.k_dim;
        a.conv = vec(d.channels() * 4, 0.3f, 0), a.a_log = vec(d.v_heads, 0.5f, 0), a.dt = vec(d.v_heads, 0.5f, 0);
        a.out_norm = vec(d.v_dim, 0.1f, 1);
      }
      for (int i = 0; i < 4; i++)
        if (a.in.n[i]) a.in.w[i] = mat(a.in.n[i], H);
      if (m.experts) {
        auto& e = a.moe;
        e = {mat(m.experts, H), m.shared ? mat(1, H) : nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, a.norm2, m.experts, m.moe, m.shared, H, m.k};
        e.gate_up = mat(size_t(m.experts) * 2 * m.moe, H, false), e.down = mat(size_t(m.experts) * H, m.moe, false);
        bytes += 6.0 * m.experts * (1 - std::pow(1 - double(m.k) / m.experts, B)) * m.moe * H;
        if (m.shared) e.sgate = mat(m.shared, H), e.sup = mat(m.shared, H), e.sdown = mat(H, m.shared);
      } else {
        a.gate = mat(m.inter, H), a.up = mat(m.inter, H), a.down = mat(H, m.inter);
      }
      layers.push_back(a);
    }
    embed = rig::weights(size_t(m.vocab) * H, seed++, 0);
    head = mat(m.vocab, H);
    norm = norm_of(H), qn = norm_of(D), kn = norm_of(D);
    (void)eh;
    auto buf = [&](size_t n) { return rig::device<float>(size_t(B) * n); };
    size_t widest[4] = {};
    for (auto& l : layers)
      for (int i = 0; i < 4; i++) widest[i] = std::max<size_t>(widest[i], l.in.n[i]);
    for (int i = 0; i < 4; i++) y[i] = buf(std::max<size_t>(1, widest[i]));
    for (auto& l : layers)
      for (int i = 0; i < 4; i++) l.in.y[i] = y[i];
    x = buf(H), o = buf(std::max(Q, m.delta.values())), h = buf(H), w = buf(16), scale = buf(1), act = buf(std::max(1, m.inter)), hid = buf(m.k * m.moe + m.shared + 1);
    angles = buf(m.attn.rot), logits = buf(m.vocab);
    ids = rig::device<int32_t>(B * 16), token = rig::device<int32_t>(8);
    std::vector<int32_t> t(8);
    for (int i = 0; i < 8; i++) t[i] = rig::hash(i, 5) % m.vocab;
    tokens = rig::upload(t);
  }

  // step makes the launches of a whole step; only: leave others out, to see where time goes.
  void step(bool attention_on = true) {
    const int H = m.hidden;
    const float eps = 1e-6f;
    launches = 0;
    ops::embed<<<dim3((H + 255) / 256, B), 256, 0, rig::stream>>>(tokens, embed, x, H), launches++;
    ops::rope_angles<<<B, 256, 0, rig::stream>>>(st.device.positions, angles, m.attn.rot / 2, m.base), launches++;
    for (int l = 0; l < m.layers; l++) {
      const Layer& a = layers[l];
      const int p1 = m.plus_one;
      if (full(l)) {
        ops::norm_linear_n(st.device.head, x, a.norm, a.in, H, eps, p1);
        if (attention_on)
          ops::attention(st.device, B, m.attn, y[0], y[1], y[2], m.qk_norm ? qn : nullptr, m.qk_norm ? kn : nullptr, angles, a.kp, a.vp, o, eps, p1);
        ops::linear_add(st.device.head, o, a.o, nullptr, x, H, m.attn.heads * m.attn.hd);
      } else {
        ops::norm_linear_conv(st.device, x, a.norm, a.in, a.conv, a.conv_state, H, eps, p1);
        if (attention_on) ops::delta(st.device, B, m.delta, y[0], y[3], y[2], y[1], a.a_log, a.dt, a.out_norm, a.state, o, eps);
        ops::linear_add(st.device.head, o, a.o, nullptr, x, H, m.delta.values());
      }
      launches += 2 + attention_on;
      if (m.experts && whole_layers) {
        ops::experts_layer(st.device.head, x, a.moe, hid, eps, p1);
        launches--;
      } else if (m.experts) {
        ops::router(st.device.head, x, a.moe, h, ids, w, scale, eps, p1);
        ops::experts_add(st.device.head, h, ids, w, m.shared ? scale : nullptr, a.moe, hid, x);
        launches++;
      } else {
        ops::norm_glu(st.device.head, x, a.norm2, a.gate, a.up, act, m.inter, H, eps, p1);
        ops::linear_add(st.device.head, act, a.down, nullptr, x, H, m.inter);
      }
      launches += 2;
    }
    ops::logits(st.device, x, norm, head, logits, m.vocab, H, eps, m.plus_one);
    rig::launch(ops::argmax, rig::Config{dim3(32, B), 256}, logits, token, m.vocab);
    launches += 2;
  }

  // result runs one step from cleared states, and reads the logits.
  std::vector<float> result() {
    for (auto& l : layers)
      if (l.state) {
        OK(cudaMemset(l.state, 0, size_t(11) * m.delta.values() * m.delta.k_dim * 4));
        OK(cudaMemset(l.conv_state, 0, size_t(11) * 3 * m.delta.channels() * 4));
      }
    OK(cudaMemset(logits, 0xff, size_t(B) * m.vocab * 4));
    OK(cudaDeviceSynchronize());
    step();
    return rig::download(logits, size_t(B) * m.vocab);
  }
  int distinct(int l) const {  // experts of a layer's last step: only the last layer's ids are left
    auto v = rig::download(ids, size_t(B) * m.k);
    std::sort(v.begin(), v.end());
    (void)l;
    return std::unique(v.begin(), v.end()) - v.begin();
  }
};

inline void run(const Model& m, int context, const std::vector<int>& batches) {
  printf("\n%s, context %d\n", m.name, context);
  for (int B : batches) {
    Chain c(m, B, context);
    rig::pdl = false;
    auto plain = c.result();
    rig::pdl = true;
    int differ = 0;
    for (int i = 0; i < 3; i++) {
      auto with = c.result();
      for (size_t j = 0; j < with.size(); j++) differ += memcmp(&with[j], &plain[j], 4) != 0;
    }
    rig::all_finite("logits of the chain", plain);
    if (differ) rig::failures++;
    const double us = rig::time_graph(1, [&](int) { c.step(); });
    const double again = rig::time_graph(1, [&](int) { c.step(); });
    rig::pdl = false;
    const double serial = rig::time_graph(1, [&](int) { c.step(); });
    rig::pdl = true;
    const double without = rig::time_graph(1, [&](int) { c.step(false); });
    const double floor = c.bytes / rig::sweep * 1e-3;
    printf("chain %-16s B=%d %4d launches  PDL %8.1f us (again %8.1f)  serial %8.1f us  floor %8.1f us = %5.1f%%  %6.0f tok/s  without attention %8.1f"
           "  %d logits differ%s",
           m.name, B, c.launches + 0, us, again, serial, floor, 100 * floor / us, 1e6 * B / us, without, differ, differ ? " FAILED" : "");
    if (m.experts && !whole_layers) printf("  (%d experts in the last layer)", c.distinct(0));
    printf("\n");
    fflush(stdout);
    rig::release();
  }
}

// cuts tries cuts of each linear within whole steps of one row: what wins alone does not always win there.
inline void cuts(const Model& m, int context) {
  Chain c(m, 1, context);
  const auto us = [&](int replays) { return rig::time_graph(1, [&](int) { c.step(); }, replays); };
  const int Q = m.attn.heads * m.attn.hd, qkv = Q * (1 + m.attn.gated) + 2 * m.attn.kv * m.attn.hd;
  std::vector<variants::Key> keys = {{"add", m.hidden, Q}, {"norm_n", qkv, m.hidden}, {"outs", m.vocab, m.hidden}};
  if (!m.experts) keys.push_back({"glu", 2 * m.inter, m.hidden});
  printf("\ncuts  %s %.1f us\n", m.name, us(20));
  for (const auto& k : keys) {
    const auto& [kernel, N, K] = k;
    const variants::Choice was = variants::choice(kernel.c_str(), N, K);
    variants::Choice best = was;
    double top = us(20);
    for (int s = 0; s < int(variants::all().size()); s++)
      for (int per = 1; per <= variants::all()[s].resident; per++) {
        variants::chosen[k] = {s, per};
        const double t = us(7);
        printf("cuts  %s %s N=%d K=%d %s grid %d: %.1f us\n", m.name, kernel.c_str(), N, K, variants::all()[s].name, per, t);
        if (t < top) top = t, best = {s, per};
      }
    variants::chosen[k] = best;
    printf("best  %s %s %s grid %d: %.1f us\n", m.name, kernel.c_str(), variants::all()[best.set].name, best.per_sm, us(20));
    fflush(stdout);
  }
  variants::chosen.clear();
  rig::release();
}

}  // namespace chain
