// SPDX-License-Identifier: MIT OR Apache-2.0
// Each kernel against float64 on the host: random data, poisoned outputs, odd sizes, ragged steps.
#pragma once

#include "ops.cuh"

namespace check {

template <class X>
double dot(const X* x, uint64_t at, int K, uint32_t seed, int e) {
  double s = 0;
  for (int k = 0; k < K; k++) s += double(x[k]) * weight(at + k, seed, e);
  return s;
}
inline double silu(double x) { return x / (1 + std::exp(-x)); }
inline int scale_of(int K) { return K > 8192 ? 6 : K > 1024 ? 5 : K > 256 ? 4 : 3; }

// linears holds every entry of the linear family on one shape against the host.
inline void linears(int R, int K, std::vector<int> N, bool biased) {
  const int e = scale_of(K), parts = N.size();
  Host st = step_of(std::vector<int>(R, 1), std::vector<int>(R, 5));
  const auto x = rig::normals(size_t(R) * K, 3);
  const auto norm = ones_about(K, 4, 1);
  const float* dx = rig::upload(x);
  const float* dn = rig::upload(norm);
  std::vector<std::vector<double>> nx(R);
  for (int r = 0; r < R; r++) nx[r] = normed(&x[size_t(r) * K], K, norm, 1, 1e-6);
  ops::Stack s;
  std::vector<std::vector<float>> bias(parts);
  for (int i = 0; i < parts; i++) {
    s.n[i] = N[i];
    s.w[i] = rig::weights(size_t(N[i]) * K, 10 + i, e);
    bias[i] = rig::normals(N[i], 20 + i);
    if (biased) s.bias[i] = rig::upload(bias[i]);
    s.y[i] = rig::device<float>(size_t(R) * N[i]);
  }
  auto compare = [&](const char* what, int i, bool with_norm, const std::vector<float>* old) {
    const auto y = rig::download(s.y[i], size_t(R) * N[i]);
    rig::all_finite(what, y);
    const int samples = std::min(N[i], 192);
    std::vector<double> want(size_t(samples) * R);
    auto pick = [&](int j) { return samples == N[i] ? j : int(rig::hash(j, 9) % N[i]); };
    rig::parallel(samples, [&](int j) {
      for (int r = 0; r < R; r++) {
        const uint64_t at = uint64_t(pick(j)) * K;
        double v = with_norm ? dot(nx[r].data(), at, K, 10 + i, e) : dot(&x[size_t(r) * K], at, K, 10 + i, e);
        if (biased) v += bias[i][pick(j)];
        if (old) v += (*old)[size_t(r) * N[i] + pick(j)];
        want[size_t(j) * R + r] = v;
      }
    });
    Error err;
    for (int j = 0; j < samples; j++)
      for (int r = 0; r < R; r++) err.add(y[size_t(r) * N[i] + pick(j)], want[size_t(j) * R + r]);
    char name[128];
    snprintf(name, sizeof name, "%s R=%d K=%d N=%d part %d", what, R, K, N[i], i);
    rig::verdict(name, err, 2e-5);
  };
  ops::linear_n(st.device.head, dx, s, K);
  for (int i = 0; i < parts; i++) compare("linear_n", i, false, nullptr);
  for (int i = 0; i < parts; i++) OK(cudaMemset(s.y[i], 0xff, size_t(R) * N[i] * 4));
  ops::norm_linear_n(st.device.head, dx, dn, s, K, 1e-6f, 1);
  for (int i = 0; i < parts; i++) compare("norm_linear_n", i, true, nullptr);
  const auto old = rig::normals(size_t(R) * N[0], 30);
  OK(cudaMemcpy(s.y[0], old.data(), old.size() * 4, cudaMemcpyHostToDevice));
  ops::linear_add(st.device.head, dx, s.w[0], s.bias[0], s.y[0], N[0], K);
  compare("linear_add", 0, false, &old);
  OK(cudaMemset(s.y[0], 0xff, size_t(R) * N[0] * 4));
  ops::linear(st.device.head, dx, s.w[0], s.bias[0], s.y[0], N[0], K);
  compare("linear", 0, false, nullptr);
  if (parts > 1 && N[0] == N[1]) {
    float* y = rig::device<float>(size_t(R) * N[0]);
    for (int n = 0; n < 2; n++) {
      OK(cudaMemset(y, 0xff, size_t(R) * N[0] * 4));
      if (n) ops::norm_glu(st.device.head, dx, dn, s.w[0], s.w[1], y, N[0], K, 1e-6f, 1);
      else ops::glu(st.device.head, dx, s.w[0], s.w[1], y, N[0], K);
      const auto got = rig::download(y, size_t(R) * N[0]);
      rig::all_finite("glu", got);
      Error err;
      for (int j = 0; j < std::min(N[0], 96); j++)
        for (int r = 0; r < R; r++) {
          const int c = rig::hash(j, 8) % N[0];
          const uint64_t at = uint64_t(c) * K;
          const double g = n ? dot(nx[r].data(), at, K, 10, e) : dot(&x[size_t(r) * K], at, K, 10, e);
          const double u = n ? dot(nx[r].data(), at, K, 11, e) : dot(&x[size_t(r) * K], at, K, 11, e);
          err.add(got[size_t(r) * N[0] + c], silu(g) * u);
        }
      char name[128];
      snprintf(name, sizeof name, "%s R=%d K=%d N=%d", n ? "norm_linear_glu" : "linear_glu", R, K, N[0]);
      rig::verdict(name, err, 3e-5);
    }
  }
  rig::release();
}

// convolved checks the in-projection of a delta net: y0 through the convolution, states moved on, ragged.
inline void convolved(std::vector<int> rows_of, int K, int C, int N1) {
  Host st = step_of(rows_of, std::vector<int>(rows_of.size(), 5));
  const int R = st.rows, e = scale_of(K), slots = 11;
  const auto x = rig::normals(size_t(R) * K, 3), w = rig::normals(size_t(C) * 4, 5), state = rig::normals(size_t(slots) * 3 * C, 6);
  const auto norm = ones_about(K, 4, 0);
  ops::Stack s;
  s.n[0] = C, s.n[1] = N1, s.n[2] = 32, s.n[3] = 32;
  for (int i = 0; i < 4; i++) s.w[i] = rig::weights(size_t(s.n[i]) * K, 10 + i, e), s.y[i] = rig::device<float>(size_t(R) * s.n[i]);
  float* ds = rig::upload(state);
  ops::norm_linear_conv(st.device, rig::upload(x), rig::upload(norm), s, rig::upload(w), ds, K, 1e-6f, 0);
  const auto y = rig::download(s.y[0], size_t(R) * C), z = rig::download(s.y[1], size_t(R) * N1), after = rig::download(ds, state.size());
  std::vector<std::vector<double>> nx(R);
  for (int r = 0; r < R; r++) nx[r] = normed(&x[size_t(r) * K], K, norm, 0, 1e-6);
  Error ey, ez, es;
  for (int j = 0; j < 160; j++) {
    const int c = rig::hash(j, 1) % C;
    for (size_t q = 0; q < rows_of.size(); q++) {
      const size_t at = size_t(st.state_slot[q]) * 3 * C + c;
      double h[3];
      for (int i = 0; i < 3; i++) h[i] = st.fresh[q] ? 0 : state[at + i * C];
      for (int r = st.cu[q]; r < st.cu[q + 1]; r++) {
        const double v = dot(nx[r].data(), uint64_t(c) * K, K, 10, e);
        ey.add(y[size_t(r) * C + c], silu(w[4 * c] * h[0] + w[4 * c + 1] * h[1] + w[4 * c + 2] * h[2] + w[4 * c + 3] * v));
        h[0] = h[1], h[1] = h[2], h[2] = v;
        const int cz = c % N1;
        ez.add(z[size_t(r) * N1 + cz], dot(nx[r].data(), uint64_t(cz) * K, K, 11, e));
      }
      for (int i = 0; i < 3; i++) es.add(after[at + i * C], h[i]);
    }
  }
  char name[96];
  snprintf(name, sizeof name, "norm_linear_conv R=%d seqs=%zu", R, rows_of.size());
  rig::verdict(name, ey, 3e-5);
  rig::verdict("  other part", ez, 3e-5);
  rig::verdict("  state", es, 3e-5);
  rig::release();
}

// moe checks router and experts; E must not be huge, since the host works out all of h.
inline void moe(int R, int E, int I, int S, int H, int k) {
  Host st = step_of(std::vector<int>(R, 1), std::vector<int>(R, 5));
  const auto x = rig::normals(size_t(R) * H, 3);
  const auto norm = ones_about(H, 4, 1);
  const int eh = scale_of(H), ei = scale_of(I), es = scale_of(S);
  ops::Moe m{rig::weights(size_t(E) * H, 40, eh), S ? rig::weights(H, 41, eh) : nullptr, rig::weights(size_t(E) * 2 * I * H, 42, eh),
             rig::weights(size_t(E) * H * I, 43, ei), S ? rig::weights(size_t(S) * H, 44, eh) : nullptr,
             S ? rig::weights(size_t(S) * H, 45, eh) : nullptr, S ? rig::weights(size_t(S) * H, 46, es) : nullptr, rig::upload(norm), E, I, S, H, k};
  float *h = rig::device<float>(size_t(R) * H), *w = rig::device<float>(R * k), *scale = rig::device<float>(R);
  float* dh = rig::device<float>(size_t(R) * (k * I + S));
  int32_t* ids = rig::device<int32_t>(R * k);
  ops::router(st.device.head, rig::upload(x), m, h, ids, w, scale, 1e-6f, 1);
  const auto gi = rig::download(ids, R * k);
  const auto gw = rig::download(w, R * k), gh = rig::download(h, size_t(R) * H), gs = rig::download(scale, R);
  Error eh2, ew, esc;
  int wrong = 0;
  std::vector<std::vector<double>> nx(R);
  for (int r = 0; r < R; r++) {
    nx[r] = normed(&x[size_t(r) * H], H, norm, 1, 1e-6);
    for (int i = 0; i < H; i++) eh2.add(gh[size_t(r) * H + i], nx[r][i]);
    std::vector<double> l(E);
    rig::parallel(E, [&](int i) { l[i] = dot(nx[r].data(), uint64_t(i) * H, H, 40, eh); });
    std::vector<int> order(E);
    for (int i = 0; i < E; i++) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return l[a] > l[b]; });
    double sum = 0;
    for (int j = 0; j < k; j++) sum += std::exp(l[order[j]] - l[order[0]]);
    for (int j = 0; j < k; j++) {
      wrong += gi[r * k + j] != order[j];
      ew.add(gw[r * k + j], std::exp(l[order[j]] - l[order[0]]) / sum);
    }
    if (S) esc.add(gs[r], dot(nx[r].data(), 0, H, 41, eh));
  }
  char name[128];
  snprintf(name, sizeof name, "norm_router R=%d E=%d k=%d (%d ids differ): h", R, E, k, wrong);
  rig::verdict(name, eh2, wrong ? -1 : 1e-6);
  rig::verdict("  weights", ew, 2e-5);
  if (S) rig::verdict("  shared scale", esc, 2e-5);

  const auto y0 = rig::normals(size_t(R) * H, 50);
  float* y = rig::upload(y0);
  for (int pass = 0; pass < 2; pass++) {
    OK(cudaMemcpy(y, y0.data(), y0.size() * 4, cudaMemcpyHostToDevice));
    ops::experts_add(st.device.head, h, ids, w, S ? scale : nullptr, m, dh, y);
  }
  const auto got = rig::download(y, size_t(R) * H);
  rig::all_finite("experts", got);
  // h of each slot, the shared one last
  std::vector<std::vector<double>> hid(size_t(R) * (k + 1));
  rig::parallel(R * (k + 1), [&](int i) {
    const int r = i / (k + 1), j = i % (k + 1);
    if (j == k && !S) return;
    const int n = j < k ? I : S;
    const double f = j < k ? gw[r * k + j] : sigmoid(gs[r]);
    const float* in = &gh[size_t(r) * H];
    hid[i].resize(n);
    for (int c = 0; c < n; c++) {
      double g, u;
      if (j < k) {
        const uint64_t at = (uint64_t(gi[r * k + j]) * 2 * I + c) * H;
        g = dot(in, at, H, 42, eh), u = dot(in, at + uint64_t(I) * H, H, 42, eh);
      } else {
        g = dot(in, uint64_t(c) * H, H, 44, eh), u = dot(in, uint64_t(c) * H, H, 45, eh);
      }
      hid[i][c] = f * silu(g) * u;
    }
  });
  // The same in one launch, on x; again and again, since it must leave its counters as it found them.
  std::vector<float> layer;
  int differ = 0;
  for (int pass = 0; pass < 4; pass++) {
    float* z = rig::upload(x);
    OK(cudaMemset(dh, 0xff, size_t(R) * (k * I + S) * 4));
    ops::experts_layer(st.device.head, z, m, dh, 1e-6f, 1);
    const auto now = rig::download(z, size_t(R) * H);
    if (pass) differ += memcmp(now.data(), layer.data(), now.size() * 4) != 0;
    layer = now;
  }
  rig::all_finite("experts_layer", layer);
  Error ey, el;
  for (int s = 0; s < 128; s++) {
    const int n = s < 16 ? H - 1 - s : int(rig::hash(s, 2) % H);
    for (int r = 0; r < R; r++) {
      double v = y0[size_t(r) * H + n];
      for (int j = 0; j < k; j++) v += dot(hid[r * (k + 1) + j].data(), (uint64_t(gi[r * k + j]) * H + n) * I, I, 43, ei);
      if (S) v += dot(hid[r * (k + 1) + k].data(), uint64_t(n) * S, S, 46, es);
      ey.add(got[size_t(r) * H + n], v);
      el.add(layer[size_t(r) * H + n], v - y0[size_t(r) * H + n] + x[size_t(r) * H + n]);
    }
  }
  snprintf(name, sizeof name, "experts_layer R=%d E=%d I=%d S=%d H=%d (%d runs differ)", R, E, I, S, H, differ);
  rig::verdict(name, el, differ ? -1 : 3e-5);
  snprintf(name, sizeof name, "experts_add R=%d E=%d I=%d S=%d H=%d", R, E, I, S, H);
  rig::verdict(name, ey, 3e-5);
  rig::release();
}

inline void delta(std::vector<int> rows_of, const ops::Delta& d) {
  Host st = step_of(rows_of, std::vector<int>(rows_of.size(), 5));
  const int R = st.rows, C = d.channels(), V = d.values(), slots = 11;
  const auto qkv = rig::normals(size_t(R) * C, 1), a = rig::normals(size_t(R) * d.v_heads, 2), b = rig::normals(size_t(R) * d.v_heads, 3),
             z = rig::normals(size_t(R) * V, 4), al = rig::normals(d.v_heads, 5), dt = rig::normals(d.v_heads, 6),
             state = rig::normals(size_t(slots) * V * d.k_dim, 7);
  const auto norm = ones_about(d.v_dim, 8, 0);
  float *ds = rig::upload(state), *y = rig::device<float>(size_t(R) * V);
  ops::delta(st.device, rows_of.size(), d, rig::upload(qkv), rig::upload(a), rig::upload(b), rig::upload(z), rig::upload(al), rig::upload(dt),
             rig::upload(norm), ds, y, 1e-6f);
  const auto got = rig::download(y, size_t(R) * V), after = rig::download(ds, state.size());
  rig::all_finite("delta", got);
  Error ey, es;
  for (size_t q = 0; q < rows_of.size(); q++)
    for (int h = 0; h < d.v_heads; h++) {
      const size_t at = (size_t(st.state_slot[q]) * d.v_heads + h) * d.k_dim * d.v_dim;
      std::vector<double> S(d.k_dim * d.v_dim);
      for (size_t i = 0; i < S.size(); i++) S[i] = st.fresh[q] ? 0 : state[at + i];
      for (int r = st.cu[q]; r < st.cu[q + 1]; r++) {
        const int kh = h / (d.v_heads / d.k_heads);
        const float *qi = &qkv[size_t(r) * C + kh * d.k_dim], *ki = qi + d.k_heads * d.k_dim,
                    *vi = &qkv[size_t(r) * C + 2 * d.k_heads * d.k_dim + h * d.v_dim];
        double nq = 0, nk = 0;
        for (int i = 0; i < d.k_dim; i++) nq += double(qi[i]) * qi[i], nk += double(ki[i]) * ki[i];
        const double fq = 1 / std::sqrt(nq + 1e-6) / std::sqrt(double(d.k_dim)), fk = 1 / std::sqrt(nk + 1e-6);
        const double sp = std::log1p(std::exp(double(a[r * d.v_heads + h]) + dt[h])), g = std::exp(-std::exp(double(al[h])) * sp),
                     beta = sigmoid(b[r * d.v_heads + h]);
        std::vector<double> o(d.v_dim);
        double sq = 0;
        for (int c = 0; c < d.v_dim; c++) {
          double p = 0;
          for (int i = 0; i < d.k_dim; i++) p += (S[c * d.k_dim + i] *= g) * ki[i] * fk;
          const double delta = beta * (vi[c] - p);
          for (int i = 0; i < d.k_dim; i++) o[c] += (S[c * d.k_dim + i] += ki[i] * fk * delta) * qi[i] * fq;
          sq += o[c] * o[c];
        }
        for (int c = 0; c < d.v_dim; c++)
          ey.add(got[(size_t(r) * d.v_heads + h) * d.v_dim + c],
                 norm[c] * o[c] / std::sqrt(sq / d.v_dim + 1e-6) * silu(z[(size_t(r) * d.v_heads + h) * d.v_dim + c]));
      }
      for (size_t i = 0; i < S.size(); i++) es.add(after[at + i], S[i]);
    }
  char name[96];
  snprintf(name, sizeof name, "delta %d/%d x %dx%d R=%d seqs=%zu", d.k_heads, d.v_heads, d.k_dim, d.v_dim, R, rows_of.size());
  rig::verdict(name, ey, 2e-5);
  rig::verdict("  state", es, 2e-5);
  rig::release();
}

// same_rows: a row's result has the same bits alone as among others.
inline void same_rows(int R, int K, int N, int E, int I, int S, int k) {
  Host many = step_of(std::vector<int>(R, 1), std::vector<int>(R, 5)), one = step_of({1}, {5});
  const float *x = rig::upload(rig::normals(size_t(R) * K, 3)), *norm = rig::upload(ones_about(K, 4, 1));
  const auto y0 = rig::normals(size_t(R) * K, 5);
  auto mat = [&](size_t n, size_t c, int seed) { return (const uint16_t*)rig::weights(n * c, seed, scale_of(c)); };
  const uint16_t* w = mat(N, K, 6);
  const ops::Moe m{mat(E, K, 14), mat(1, K, 15), mat(size_t(E) * 2 * I, K, 7), mat(size_t(E) * K, I, 8), mat(S, K, 9), mat(S, K, 10), mat(K, S, 11), norm, E, I, S, K, k};
  std::vector<int32_t> ids;
  for (int r = 0; r < R; r++)
    for (int j = 0; j < k; j++) ids.push_back((r * 3 + j * 5) % E);
  const int32_t* di = rig::upload(ids);
  const float *wt = rig::upload(rig::normals(size_t(R) * k, 12)), *scale = rig::upload(rig::normals(R, 13));
  float* h = rig::device<float>(size_t(R) * (k * I + S));
  int differ = 0;
  auto run = [&](const Host& st, int row, int which) {
    const int n = st.rows, width = which == 0 ? N : K;
    ops::rows = n;
    float* y = rig::device<float>(size_t(n) * width);
    if (which > 0) OK(cudaMemcpy(y, y0.data() + size_t(row) * width, size_t(n) * width * 4, cudaMemcpyHostToDevice));
    ops::Stack s;
    s.w[0] = w, s.n[0] = N, s.y[0] = y;
    if (which == 0) ops::norm_linear_n(st.device.head, x + size_t(row) * K, norm, s, K, 1e-6f, 1);
    if (which == 1) ops::experts_add(st.device.head, x + size_t(row) * K, di + row * k, wt + row * k, scale + row, m, h, y);
    if (which == 2) ops::experts_layer(st.device.head, y, m, h, 1e-6f, 1);
    return rig::download(y, size_t(n) * width);
  };
  for (int which = R > 4; which < 3; which++) {  // linears take up to 4
    const auto all = run(many, 0, which);
    const size_t width = all.size() / R;
    for (int r = 0; r < R; r++) {
      const auto alone = run(one, r, which);
      differ += memcmp(alone.data(), all.data() + r * width, width * 4) != 0;
    }
  }
  if (differ) rig::failures++;
  printf("check rows alone: R=%d K=%d: %d differ  %s\n", R, K, differ, differ ? "FAILED" : "ok");
  rig::release();
}

inline void all() {
  for (int R : {1, 3, 4}) {
    linears(R, 4096, {1024, 1024, 256}, true);
    linears(R, 2048, {512, 512, 40, 8}, false);
  }
  linears(1, 96, {200, 200}, true);  // fewer steps than warps, tiles with a tail
  linears(4, 288, {88, 88}, true);
  linears(2, 14336, {4096}, false);
  linears(3, 2560, {6144, 1000}, false);
  for (size_t i = 0; i < variants::all().size(); i++) {
    variants::forced = true, variants::force = {int(i), int(i % 3)};
    linears(3, 2048, {512, 512, 40, 8}, false);
    moe(3, 16, 96, 64, 128, 4);
    same_rows(4, 2048, 256, 32, 96, 64, 4);
  }
  variants::forced = false;
  for (size_t i = 0; i < std::size(variants::kLayers); i++) {
    variants::layer_cut = i;
    for (int R : {1, 3, 8}) moe(R, 32, 96, i & 1 ? 64 : 0, 160, 4);
    same_rows(4, 2048, 256, 32, 96, 64, 4);
  }
  variants::layer_cut = 0;
  same_rows(8, 2048, 256, 64, 256, 256, 8);
  same_rows(3, 288, 48, 16, 32, 32, 2);
  convolved({1}, 2048, 8192, 4096);
  convolved({1, 1, 1, 1, 1}, 2048, 512, 256);
  convolved({2, 1, 5}, 512, 640, 64);
  for (int R : {1, 4, 8}) moe(R, 128, 768, 0, 2048, 8);
  for (int R : {1, 6}) moe(R, 256, 512, 512, 2048, 8);
  moe(3, 16, 96, 64, 128, 4);
  attentions();
  delta({1}, {16, 32, 128, 128});
  delta({1, 1, 1, 1, 1, 1, 1, 1}, {16, 32, 128, 128});
  delta({3, 1, 4}, {2, 6, 64, 96});
}

}  // namespace check
