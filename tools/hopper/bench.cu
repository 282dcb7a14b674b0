// SPDX-License-Identifier: MIT OR Apache-2.0
// Checks and times Hopper's kernels of 1 to 8 rows; README.md says how to build and read it.
//
//	bench [check] [time] [chain] [stages=N] [model=I] [batches=1,2,4,8] [context=N]

#include "chain.cuh"

namespace timing {

// Enough copies of what a launch reads that none is in L2 when its turn comes.
inline int copies_of(double bytes) { return std::max(2, std::min(400, int(600e6 / bytes) + 1)); }

inline void linear(const char* what, int R, int K, std::vector<int> N, int kind) {  // 0 linear_n 1 norm_linear_n 2 linear_add 3 norm_glu 4 logits
  const int total = [&] { int s = 0; for (int n : N) s += n; return s; }();
  const double bytes = 2.0 * total * K;
  const int copies = copies_of(bytes);
  check::Host st = check::step_of(std::vector<int>(R, 1), std::vector<int>(R, 5));
  const uint16_t* w = rig::weights(size_t(copies) * total * K, 1, check::scale_of(K));
  const float* x = rig::upload(rig::normals(size_t(R) * K, 2));
  const float* norm = rig::upload(check::ones_about(K, 3, 0));
  float* y = rig::device<float>(size_t(R) * total, 0);
  auto step = [&](int i) {
    const uint16_t* p = w + size_t(i % copies) * total * K;
    ops::Stack s;
    float* at = y;
    for (size_t j = 0; j < N.size(); j++) s.n[j] = N[j], s.w[j] = p, s.y[j] = at, p += size_t(N[j]) * K, at += size_t(R) * N[j];
    if (kind == 0) ops::linear_n(st.device.head, x, s, K);
    if (kind == 1) ops::norm_linear_n(st.device.head, x, norm, s, K, 1e-6f, 0);
    if (kind == 2) ops::linear_add(st.device.head, x, s.w[0], nullptr, y, N[0], K);
    if (kind == 3) ops::norm_glu(st.device.head, x, norm, s.w[0], s.w[1], y, N[0], K, 1e-6f, 0);
    if (kind == 4) ops::logits(st.device, x, norm, s.w[0], y, N[0], K, 1e-6f, 0);
  };
  const int n = std::max(copies, 20);
  char name[128];
  for (bool p : {true, false}) {
    rig::pdl = p;
    const double us = rig::time_graph(n, step);
    snprintf(name, sizeof name, "%s R=%d N=%d K=%d%s", what, R, total, K, p ? "" : " serial");
    rig::report(name, us, bytes);
  }
  rig::pdl = true;
  rig::release();
}

inline void attention(const char* what, std::vector<int> context, const ops::Heads& h, bool qk_norm) {
  const int R = context.size();
  double bytes = 0;
  for (int c : context) bytes += 4.0 * c * h.kv * h.hd;
  check::Host st = check::step_of(std::vector<int>(R, 1), context);
  const size_t pool = size_t(st.pool_pages) * 16 * h.kv * h.hd;
  const int copies = copies_of(bytes);
  uint16_t *k = rig::weights(pool * copies, 1, 0), *v = rig::weights(pool * copies, 2, 0);
  const float* q = rig::upload(rig::normals(size_t(R) * h.heads * h.hd * 2, 3));
  const float *kk = rig::upload(rig::normals(size_t(R) * h.kv * h.hd, 4)), *vv = rig::upload(rig::normals(size_t(R) * h.kv * h.hd, 5));
  const float *norm = rig::upload(check::ones_about(h.hd, 6, 0)), *angles = rig::upload(rig::normals(size_t(R) * h.rot, 7));
  float* y = rig::device<float>(size_t(R) * h.heads * h.hd);
  for (int cluster : {4, 8}) {
    ops::attention_cluster = cluster;
    const double us = rig::time_graph(std::max(copies, 20), [&](int i) {
      const size_t at = size_t(i % copies) * pool;
      ops::attention(st.device, R, h, q, kk, vv, qk_norm ? norm : nullptr, qk_norm ? norm : nullptr, angles, k + at, v + at, y, 1e-6f, 0);
    });
    char name[128];
    snprintf(name, sizeof name, "attention %s R=%d cluster %d", what, R, cluster);
    rig::report(name, us, bytes);
  }
  ops::attention_cluster = 8;
  rig::release();
}

inline void moe(int R, int E, int I, int S, int H, int k) {
  check::Host st = check::step_of(std::vector<int>(R, 1), std::vector<int>(R, 5));
  const int layers = 6;
  std::vector<ops::Moe> m;
  const float* norm = rig::upload(check::ones_about(H, 6, 0));
  for (int l = 0; l < layers; l++) {
    auto mat = [&](size_t n, size_t c) { return (const uint16_t*)rig::weights(n * c, 10 + l, check::scale_of(c)); };
    m.push_back({mat(E, H), S ? mat(1, H) : nullptr, mat(size_t(E) * 2 * I, H), mat(size_t(E) * H, I), S ? mat(S, H) : nullptr,
                 S ? mat(S, H) : nullptr, S ? mat(H, S) : nullptr, norm, E, I, S, H, k});
  }
  const float* x = rig::upload(rig::normals(size_t(R) * H, 2));
  float *h = rig::device<float>(size_t(R) * H), *w = rig::device<float>(R * k), *scale = rig::device<float>(R), *y = rig::device<float>(size_t(R) * H, 0);
  // Other experts in each launch, so that none is in L2: ids by hash.
  const int turns = 24;
  std::vector<int32_t> ids;
  double bytes = 0;
  for (int t = 0; t < turns; t++) {
    std::vector<char> used(E);
    for (int r = 0; r < R; r++)
      for (int j = 0; j < k; j++) {
        const int e = (rig::hash(t * 8 + r, 1) + j * (rig::hash(t * 8 + r, 2) | 1)) % E;  // an odd stride: all differ
        ids.push_back(e), used[e] = 1;
      }
    bytes += 6.0 * (std::count(used.begin(), used.end(), 1) * double(I) + S) * H / turns;
  }
  const int32_t* di = rig::upload(ids);
  int32_t* out = rig::device<int32_t>(R * k);
  const float* dw = rig::upload(std::vector<float>(R * k, 1.0f / k));
  OK(cudaMemset(scale, 0, R * 4));
  char name[96];
  snprintf(name, sizeof name, "router R=%d E=%d", R, E);
  rig::report(name, rig::time_graph(60, [&](int i) { ops::router(st.device.head, x, m[i % layers], h, out, w, scale, 1e-6f, 0); }), 2.0 * (E + (S > 0)) * H);
  OK(cudaMemset(h, 0x3c, size_t(R) * H * 4));  // 0.0115 everywhere
  snprintf(name, sizeof name, "experts R=%d E=%d I=%d S=%d", R, E, I, S);
  rig::report(name, rig::time_graph(turns, [&](int i) {
                ops::experts_add(st.device.head, h, di + size_t(i) * R * k, dw, S ? scale : nullptr, m[i % layers], y);
              }), bytes);
  rig::release();
}

inline void delta(int R) {
  const ops::Delta d{16, 32, 128, 128};
  check::Host st = check::step_of(std::vector<int>(R, 1), std::vector<int>(R, 5));
  const size_t one = size_t(11) * d.values() * d.k_dim;
  const int copies = 40;
  float* state = rig::device<float>(one * copies, 0);
  const float *qkv = rig::upload(rig::normals(size_t(R) * d.channels(), 1)), *z = rig::upload(rig::normals(size_t(R) * d.values(), 2)),
              *a = rig::upload(rig::normals(R * 32, 3)), *n = rig::upload(rig::normals(128, 4));
  float* y = rig::device<float>(size_t(R) * d.values());
  char name[96];
  snprintf(name, sizeof name, "delta step R=%d (state read and written)", R);
  rig::report(name, rig::time_graph(80, [&](int i) { ops::delta(st.device, R, d, qkv, a, a, z, n, n, n, state + one * (i % copies), y, 1e-6f); }),
              8.0 * R * d.values() * d.k_dim);
  rig::release();
}

inline void launches() {
  for (int shared : {0, 100 * 1024})
    for (bool p : {true, false}) {
      rig::pdl = p;
      const double us = rig::time_graph(200, [&](int) { rig::launch(ops::nothing, rig::Config{dim3(rig::sms), 256, size_t(shared)}); });
      printf("time  empty launch, %d blocks, %3d KiB shared, %s: %.2f us\n", rig::sms, shared / 1024, p ? "PDL" : "serial", us);
    }
  rig::pdl = true;
}

inline void all() {
  launches();
  linear("o", 1, 4096, {2048}, 2);
  linear("llama o", 1, 4096, {4096}, 2);
  linear("llama down", 1, 14336, {4096}, 2);
  linear("llama qkv", 1, 4096, {4096, 1024, 1024}, 1);
  linear("llama gate up", 1, 4096, {14336, 14336}, 3);
  linear("qwen qkv", 1, 2048, {4096, 512, 512}, 1);
  linear("gdn in", 1, 2048, {8192, 4096, 32, 32}, 1);
  linear("llama logits", 1, 4096, {128256}, 4);
  linear("qwen logits", 1, 2048, {151936}, 4);
  for (int R : {2, 4, 8}) {
    linear("llama down", R, 14336, {4096}, 2);
    linear("llama qkv", R, 4096, {4096, 1024, 1024}, 1);
    linear("llama gate up", R, 4096, {14336, 14336}, 3);
    linear("qwen logits", R, 2048, {151936}, 4);
  }
  const ops::Heads llama{32, 8, 128, 128, 0}, qwen{32, 4, 128, 128, 0}, gated{16, 2, 256, 64, 1};
  for (int c : {128, 1024, 8192, 32768}) {
    char name[64];
    snprintf(name, sizeof name, "llama ctx %d", c);
    attention(name, {c}, llama, false);
    snprintf(name, sizeof name, "qwen3 ctx %d", c);
    attention(name, {c}, qwen, true);
    snprintf(name, sizeof name, "qwen3.5 ctx %d", c);
    attention(name, {c}, gated, true);
  }
  attention("llama ctx 128", std::vector<int>(8, 128), llama, false);
  attention("llama ctx 4096", std::vector<int>(8, 4096), llama, false);
  attention("qwen3 ragged", {32768, 100, 100, 2000, 100, 100, 500, 100}, qwen, true);
  for (int R : {1, 2, 4, 8}) moe(R, 128, 768, 0, 2048, 8);
  for (int R : {1, 8}) moe(R, 256, 512, 512, 2048, 8);
  for (int R : {1, 8}) delta(R);
}

}  // namespace timing

int main(int argc, char** argv) {
  OK(cudaSetDevice(0));
  cudaDeviceProp prop;
  OK(cudaGetDeviceProperties(&prop, 0));
  OK(cudaStreamCreate(&rig::stream));  // in step with the default stream, which copies use
  rig::sms = prop.multiProcessorCount;
  bool do_check = argc < 2, do_time = argc < 2, do_chain = argc < 2;
  int context = 128, model = -1;
  std::vector<int> batches = {1, 2, 4, 8};
  for (int i = 1; i < argc; i++) {
    const std::string a = argv[i];
    if (a == "check") do_check = true;
    if (a == "time") do_time = true;
    if (a == "chain") do_chain = true;
    if (a.rfind("stages=", 0) == 0) rig::stages = atoi(a.c_str() + 7);
    if (a.rfind("model=", 0) == 0) model = atoi(a.c_str() + 6);
    if (a.rfind("context=", 0) == 0) context = atoi(a.c_str() + 8);
    if (a.rfind("batches=", 0) == 0) {
      batches.clear();
      for (const char* p = a.c_str() + 8; *p; p += strcspn(p, ","), p += *p == ',') batches.push_back(atoi(p));
    }
  }
  printf("%s, %d multiprocessors, L2 %d MiB, stages %d\n", prop.name, rig::sms, prop.l2CacheSize >> 20, rig::stages);
  rig::measure_sweep();
  if (do_check) check::all();
  if (do_time) timing::all();
  if (do_chain)
    for (int i = 0; i < 3; i++)
      if (model < 0 || model == i) chain::run(chain::kModels[i], context, batches);
  printf("%d failures\n", rig::failures);
  return rig::failures != 0;
}
