// SPDX-License-Identifier: MIT OR Apache-2.0
// Checks and times Hopper's kernels of 1 to 8 rows; README.md says how to build and read it.
//
//	bench [check] [tune] [tune_rows] [time] [moe] [chain] [parts] [cuts] [model=I] [batches=1,2,4,8] [context=N]

#include "chain.cuh"

namespace timing {

// Enough copies of what a launch reads that none is in L2 when its turn comes.
inline int copies_of(double bytes) { return std::max(2, std::min(400, int(600e6 / bytes) + 1)); }

// Linear is one linear-like launch with weights to rotate among.
struct Linear {
  std::string name;
  const char* kernel;  // of variants
  int R, K, total;
  std::vector<int> N;
  double bytes;
  std::function<void(int)> step;
  int launches;

  Linear(const char* what, const char* kernel, int R, int K, std::vector<int> N) : kernel(kernel), R(R), K(K), N(N) {
    total = 0;
    for (int n : N) total += n;
    bytes = 2.0 * total * K;
    char text[96];
    snprintf(text, sizeof text, "%s R=%d N=%d K=%d", what, R, total, K);
    name = text;
    const int copies = copies_of(bytes), total = this->total;
    check::Host st = check::step_of(std::vector<int>(R, 1), std::vector<int>(R, 5));
    const uint16_t* w = rig::weights(size_t(copies) * total * K, 1, check::scale_of(K));
    const float* x = rig::upload(rig::normals(size_t(R) * K, 2));
    const float* norm = rig::upload(check::ones_about(K, 3, 0));
    float* y = rig::device<float>(size_t(R) * total, 0);
    const std::string k = kernel;
    const size_t taps = k == "conv" ? size_t(N[0]) * 4 : 0, states = size_t(11) * 3 * N[0];
    const float* conv = taps ? rig::upload(rig::normals(taps * copies, 4)) : nullptr;
    float* state = taps ? rig::device<float>(states * copies, 0) : nullptr;
    step = [=](int i) {
      const uint16_t* p = w + size_t(i % copies) * total * K;
      ops::Stack s;
      float* at = y;
      for (size_t j = 0; j < N.size(); j++) s.n[j] = N[j], s.w[j] = p, s.y[j] = at, p += size_t(N[j]) * K, at += size_t(R) * N[j];
      if (taps) ops::norm_linear_conv(st.device, x, norm, s, conv + taps * (i % copies), state + states * (i % copies), K, 1e-6f, 0);
      if (k == "norm_n") ops::norm_linear_n(st.device.head, x, norm, s, K, 1e-6f, 0);
      if (k == "add") ops::linear_add(st.device.head, x, s.w[0], nullptr, y, N[0], K);
      if (k == "glu") ops::norm_glu(st.device.head, x, norm, s.w[0], s.w[1], y, N[0], K, 1e-6f, 0);
      if (k == "outs") ops::logits(st.device, x, norm, s.w[0], y, N[0], K, 1e-6f, 0);
    };
    launches = std::max(copies, 20);
  }
  ~Linear() { rig::release(); }
  double measure(int replays = 9) const { return rig::time_graph(launches, step, replays); }
};

inline void linear(const char* what, const char* kernel, int R, int K, std::vector<int> N) {
  const Linear l(what, kernel, R, K, N);
  for (bool p : {true, false}) {
    rig::pdl = p;
    rig::report((l.name + (p ? "" : " serial")).c_str(), l.measure(20), l.bytes);
  }
  rig::pdl = true;
}

// choices are the cuts worth trying.
inline std::vector<variants::Choice> choices() {
  std::vector<variants::Choice> v;
  for (size_t s = 0; s < variants::all().size(); s++)
    for (int per = 0; per <= variants::all()[s].resident; per++)
      v.push_back({int(s), per});
  return v;
}
inline std::string text(const variants::Choice& c) {
  return std::string(variants::all()[c.set].name) + " grid " + (c.per_sm ? std::to_string(c.per_sm) : "tiles");
}

// best tries cuts of a launch, prints the better ones and returns the best.
inline variants::Choice best(const std::string& name, const std::vector<variants::Choice>& list, double bytes,
                             const std::function<double()>& measure) {
  std::vector<std::pair<double, variants::Choice>> all;
  variants::forced = true;
  for (const auto& c : list) {
    variants::force = c;
    const double us = measure();
    all.push_back({us, c});
    printf("tune  %-34s %-30s %8.2f us %6.0f GB/s %5.1f%%\n", name.c_str(), text(c).c_str(), us, bytes / us * 1e-3, 100 * bytes / us * 1e-3 / rig::sweep);
  }
  variants::forced = false;
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < std::min<size_t>(3, all.size()); i++)
    printf("best  %-34s %-30s %8.2f us %6.0f GB/s %5.1f%%\n", name.c_str(), text(all[i].second).c_str(), all[i].first, bytes / all[i].first * 1e-3,
           100 * bytes / all[i].first * 1e-3 / rig::sweep);
  fflush(stdout);
  return all[0].second;
}

inline void tune(const char* what, const char* kernel, int R, int K, std::vector<int> N) {
  const Linear l(what, kernel, R, K, N);
  const auto c = best(l.name, choices(), l.bytes, [&] { return l.measure(); });
  if (R == 1) variants::chosen[variants::Key(kernel, l.total, K)] = c;
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
  const double us = rig::time_graph(std::max(copies, 20), [&](int i) {
    const size_t at = size_t(i % copies) * pool;
    ops::attention(st.device, R, h, q, kk, vv, qk_norm ? norm : nullptr, qk_norm ? norm : nullptr, angles, k + at, v + at, y, 1e-6f, 0);
  });
  char name[128];
  snprintf(name, sizeof name, "attention %s R=%d", what, R);
  rig::report(name, us, bytes);
  rig::release();
}

// distinct is how many of E experts R rows take, if each takes any k.
inline double distinct(int E, int k, int R) { return E * (1 - std::pow(1 - double(k) / E, R)); }

inline void moe(int R, int E, int I, int S, int H, int k, bool tune = false) {
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
  float *h = rig::device<float>(size_t(R) * H), *w = rig::device<float>(R * k), *scale = rig::device<float>(R), *y = rig::device<float>(size_t(R) * H, 0),
        *hid = rig::device<float>(size_t(R) * (k * I + S), 0);
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
  const double read = bytes;
  char name[96];
  OK(cudaMemset(h, 0x3c, size_t(R) * H * 4));  // 0.0115 everywhere
  auto measure = [&](int which, int replays) {
    ops::expert_launches = which;
    const double us = rig::time_graph(turns, [&](int i) {
      ops::experts_add(st.device.head, h, di + size_t(i) * R * k, dw, S ? scale : nullptr, m[i % layers], hid, y);
    }, replays);
    ops::expert_launches = 3;
    return us;
  };
  if (tune) {
    snprintf(name, sizeof name, "hidden R=%d E=%d", R, E);
    const auto c = best(name, choices(), read * 2 / 3, [&] { return measure(1, 9); });
    snprintf(name, sizeof name, "down R=%d E=%d", R, E);
    const auto d = best(name, choices(), read / 3, [&] { return measure(2, 9); });
    if (R == 1) variants::chosen[variants::Key("hidden", I, H)] = c, variants::chosen[variants::Key("down", H, I)] = d;
    rig::release();
    return;
  }
  snprintf(name, sizeof name, "experts R=%d E=%d I=%d S=%d", R, E, I, S);
  rig::report(name, measure(3, 20), read);
  rig::report("  hidden", measure(1, 20), read * 2 / 3);
  rig::report("  down", measure(2, 20), read / 3);
  snprintf(name, sizeof name, "router R=%d E=%d", R, E);
  rig::report(name, rig::time_graph(60, [&](int i) { ops::router(st.device.head, x, m[i % layers], h, out, w, scale, 1e-6f, 0); }), 2.0 * (E + (S > 0)) * H);
  // The layer chooses by itself: other rows in each launch.
  std::vector<float*> rows_of;
  for (int t = 0; t < turns; t++) rows_of.push_back(rig::upload(rig::normals(size_t(R) * H, 100 + t)));
  const double expected = 6.0 * (distinct(E, k, R) * I + S) * H + 2.0 * (E + (S > 0)) * H;
  for (size_t c = 0; c < std::size(variants::kLayers); c++) {
    variants::layer_cut = c;
    snprintf(name, sizeof name, "layer R=%d E=%d I=%d S=%d, %d pieces", R, E, I, S, variants::kLayers[c].pieces);
    rig::report(name, rig::time_graph(turns, [&](int i) { ops::experts_layer(st.device.head, rows_of[i], m[i % layers], hid, 1e-6f, 0); }), expected);
  }
  variants::layer_cut = 0;
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

inline void tune_all() {
  tune("o", "add", 1, 4096, {2048});
  tune("llama o", "add", 1, 4096, {4096});
  tune("llama down", "add", 1, 14336, {4096});
  tune("llama qkv", "norm_n", 1, 4096, {4096, 1024, 1024});
  tune("llama gate up", "glu", 1, 4096, {14336, 14336});
  tune("qwen qkv", "norm_n", 1, 2048, {4096, 512, 512});
  tune("qwen3.5 qkv", "norm_n", 1, 2048, {8192, 512, 512});
  tune("gdn in", "conv", 1, 2048, {8192, 4096, 32, 32});
  tune("llama logits", "outs", 1, 4096, {128256});
  tune("qwen logits", "outs", 1, 2048, {151936});
  variants::chosen[variants::Key("outs", 248320, 2048)] = variants::chosen[variants::Key("outs", 151936, 2048)];
  moe(1, 128, 768, 0, 2048, 8, true);
  moe(1, 256, 512, 512, 2048, 8, true);
}
inline void tune_rows() {
  for (int R : {2, 4}) {
    tune("llama down", "add", R, 14336, {4096});
    tune("llama qkv", "norm_n", R, 4096, {4096, 1024, 1024});
    tune("llama gate up", "glu", R, 4096, {14336, 14336});
    moe(R, 128, 768, 0, 2048, 8, true);
  }
}

inline void all() {
  launches();
  linear("o", "add", 1, 4096, {2048});
  linear("llama o", "add", 1, 4096, {4096});
  linear("llama down", "add", 1, 14336, {4096});
  linear("llama qkv", "norm_n", 1, 4096, {4096, 1024, 1024});
  linear("llama gate up", "glu", 1, 4096, {14336, 14336});
  linear("qwen qkv", "norm_n", 1, 2048, {4096, 512, 512});
  for (int R : {1, 8}) linear("gdn in", "conv", R, 2048, {8192, 4096, 32, 32});
  linear("llama logits", "outs", 1, 4096, {128256});
  linear("qwen logits", "outs", 1, 2048, {151936});
  for (int R : {2, 4}) {
    linear("llama o", "add", R, 4096, {4096});
    linear("llama down", "add", R, 14336, {4096});
    linear("llama qkv", "norm_n", R, 4096, {4096, 1024, 1024});
    linear("llama gate up", "glu", R, 4096, {14336, 14336});
    linear("qwen logits", "outs", R, 2048, {151936});
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
  for (int R : {1, 2, 4, 8}) moe(R, 256, 512, 512, 2048, 8);
  for (int R : {1, 8}) delta(R);
}

}  // namespace timing

int main(int argc, char** argv) {
  OK(cudaSetDevice(0));
  cudaDeviceProp prop;
  OK(cudaGetDeviceProperties(&prop, 0));
  OK(cudaStreamCreate(&rig::stream));  // in step with the default stream, which copies use
  rig::sms = prop.multiProcessorCount;
  bool do_check = argc < 2, do_time = argc < 2, do_chain = argc < 2, do_tune = false, do_tune_rows = false, do_moe = false, do_cuts = false;
  int context = 128, model = -1;
  std::vector<int> batches = {1, 2, 4};
  for (int i = 1; i < argc; i++) {
    const std::string a = argv[i];
    if (a == "check") do_check = true;
    if (a == "time") do_time = true;
    if (a == "chain") do_chain = true;
    if (a == "tune") do_tune = true;
    if (a == "moe") do_moe = true;
    if (a == "cuts") do_cuts = true;
    if (a == "parts") chain::whole_layers = false;
    if (a == "tune_rows") do_tune_rows = true;
    if (a.rfind("model=", 0) == 0) model = atoi(a.c_str() + 6);
    if (a.rfind("context=", 0) == 0) context = atoi(a.c_str() + 8);
    if (a.rfind("batches=", 0) == 0) {
      batches.clear();
      for (const char* p = a.c_str() + 8; *p; p += strcspn(p, ","), p += *p == ',') batches.push_back(atoi(p));
    }
  }
  printf("%s, %d multiprocessors, L2 %d MiB\n", prop.name, rig::sms, prop.l2CacheSize >> 20);
  rig::measure_sweep();
  rig::carveout = 57;  // as the manifests
  ops::meet();  // not while a graph is recorded
  if (do_check) check::all();
  if (do_tune) timing::tune_all();
  if (do_tune_rows) timing::tune_rows();
  if (do_moe) {
    for (int R : {1, 2, 3, 4, 5, 8}) timing::moe(R, 128, 768, 0, 2048, 8);
    for (int R : {1, 2, 3, 4, 5, 8}) timing::moe(R, 256, 512, 512, 2048, 8);
  }
  if (do_time) timing::all();
  if (do_chain)
    for (int i = 0; i < 3; i++)
      if (model < 0 || model == i) chain::run(chain::kModels[i], context, batches);
  if (do_cuts)
    for (int i = 0; i < 3; i++)
      if (model < 0 || model == i) chain::cuts(chain::kModels[i], context);
  printf("%d failures\n", rig::failures);
  return rig::failures != 0;
}
