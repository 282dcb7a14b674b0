// SPDX-License-Identifier: MIT OR Apache-2.0
// Checks and times the kernels of 1 to 8 rows whose weights stay quantised, in several cuts.
//
//	quantised [check] [tune] [time]

#include <map>

#include "../../kernels/hopper/common/experts/rows.cuh"
#include "../../kernels/hopper/common/linear/rows.cuh"
#include "packed.cuh"

namespace quantised {

// Bare is nvfp4 whose codes go to the tensor cores as they are: what everything but the decoding costs. Its numbers mean nothing.
struct Bare : Nvfp4<1> {
  template <int Parts, class L>
  __device__ __forceinline__ static void multiply(const Unit& u, L& lane, int at, float (&acc)[1][Parts][4]) {
#pragma unroll
    for (int s = 0; s < kSteps; s++) {
      uint4 f[Parts];
      lane.read(at + s, f);
      const uint32_t a = s == 0 ? u.v[0].x : s == 1 ? u.v[0].y : s == 2 ? u.v[0].z : u.v[0].w, c = s == 0 ? u.v[1].x : s == 1 ? u.v[1].y : s == 2 ? u.v[1].z : u.v[1].w;
#pragma unroll
      for (int p = 0; p < Parts; p++) mma::bf16(acc[0][p], a, c, a, c, f[p].x, f[p].y);
#pragma unroll
      for (int p = 0; p < Parts; p++) mma::bf16(acc[0][p], a, c, u.scale[0], u.scale[1], f[p].z, f[p].w);
    }
  }
};

template <>
struct KindOf<Bare> {
  static Kind of() { return {"bare", Bare::kBytes, 512, 0, 2, 1}; }
};

// -------------------------------------------------------------------------------------------------------------- cuts

#define KERNEL template <class P, class F> __global__ void __launch_bounds__(P::kThreads, P::B)

KERNEL add(const int32_t* head, const float* x, const uint8_t* w, const float* scale, const float* bias, float* y, int N, int K, int ring) {
  rows::stack<P, F, false, true>({head[0], x}, {{w}, {bias}, {y}, {N}, {scale}}, K, {}, 0, ring);
}
KERNEL norm_n(const int32_t* head, const float* x, const float* norm, const uint8_t* w0, const uint8_t* w1, const uint8_t* w2, const uint8_t* w3,
              const float* s, const float* b, float* y0, float* y1, float* y2, float* y3, int N0, int N1, int N2, int N3, int K, int ring) {
  rows::stack<P, F, true, false>({head[0], x, nullptr, norm, 1e-6f, 0}, {{w0, w1, w2, w3}, {b, b, b, b}, {y0, y1, y2, y3}, {N0, N1, N2, N3}, {s, s, s, s}}, K, {}, 0,
                                 ring);
}
KERNEL norm_glu(const int32_t* head, const float* x, const float* norm, const uint8_t* g, const uint8_t* u, const float* s, float* y, int N, int K, int ring) {
  rows::gate_up<P, F, true, act::silu>({head[0], x, nullptr, norm, 1e-6f, 0}, g, u, y, N, K, s, s, 0, ring);
}
KERNEL hidden(const int32_t* head, const float* x, const int32_t* ids, const float* weights, const experts::Layer<F> m, float* h, int ring) {
  experts::hidden<P, F, glu::silu>(head[0], x, ids, weights, nullptr, m, h, ring);
}
KERNEL down(const int32_t* head, const int32_t* ids, const float* weights, const float* h, const experts::Layer<F> m, float* y, int ring) {
  experts::down<P, F>(head[0], ids, weights, h, m, y, ring);
}
#undef KERNEL

// Args is all that a launch may need; y and w of a stack are its parts behind each other.
struct Args {
  const int32_t* head;
  const float *x, *norm, *scale, *bias;
  const uint8_t* w[4];
  float* y[4];
  int n[4], K, rows;
};
// Moe is a layer of experts: gate_up [E, 2I, H], down [E, H, I].
struct Moe {
  const int32_t *head, *ids;
  const float *x, *weights, *gate_up_scale, *down_scale, *gate_up_bias, *down_bias;
  const uint8_t *gate_up, *down;
  float *h, *y;
  int E, I, H, k, rows;
};
enum Op { kAdd, kNorm, kGlu, kHidden, kDown };

// room is how many slots fit beside x, blocks a multiprocessor; below 2 the cut does not serve.
inline int room(int blocks, int warps, int fixed, size_t x, int slot) {
  const int64_t left = 233472 / blocks - 1024 - fixed - int64_t(x);
  return int(std::max<int64_t>(0, std::min<int64_t>(tiles::kMostSlots, left / (int64_t(warps) * slot))));
}

struct Cut {
  std::string name;
  Kind kind;
  int threads, resident;
  bool scaled;
  std::function<bool(Op, const Args&, int blocks)> run;  // false: it does not serve
  std::function<bool(Op, const Moe&, int blocks)> run_moe;
};

template <class F, int W, int D, int B, int G, int R, bool Streams = false>
Cut cut(const char* text) {
  using P = tiles::Cut<W, D, B, G, R, Streams>;
  constexpr int fixed = sizeof(tiles::Meeting<P, F>) + sizeof(tiles::RingShared<P>) + 64, slot = tiles::Ring<P, F>::kSlot;
  Cut c{text, kind<F>(), P::kThreads, B, F::kScaled};
  c.run = [](Op op, const Args& a, int blocks) {
    if ((a.rows > 4) != (R > 4)) return false;
    const int N = a.n[0] + a.n[1] + a.n[2] + a.n[3];
    const float* s = F::kScaled ? a.scale : nullptr;
    if (Streams && op != kAdd) return false;
    const size_t x = size_t(R > 4 ? Streams ? 0 : 2 : 4) * a.K * a.rows;
    const int slots = room(B, W, fixed, x, slot);
    if (slots < 2) return false;
    const rig::Config cfg{dim3(std::min(blocks, op == kGlu ? a.n[0] / 8 : N / 8)), P::kThreads, x + size_t(slots) * W * slot};
    if (op == kAdd) rig::launch(add<P, F>, cfg, a.head, a.x, a.w[0], s, a.bias, a.y[0], a.n[0], a.K, slots * W * slot);
    if constexpr (Streams) return true;
    else {
    if (op == kNorm)
      rig::launch(norm_n<P, F>, cfg, a.head, a.x, a.norm, a.w[0], a.w[1], a.w[2], a.w[3], s, a.bias, a.y[0], a.y[1], a.y[2], a.y[3], a.n[0], a.n[1], a.n[2], a.n[3],
                  a.K, slots * W * slot);
    if (op == kGlu) rig::launch(norm_glu<P, F>, cfg, a.head, a.x, a.norm, a.w[0], a.w[1], s, a.y[0], a.n[0], a.K, slots * W * slot);
    return true;
    }
  };
  c.run_moe = [](Op op, const Moe& a, int blocks) {
    if (Streams || op == kHidden ? (a.rows > 4) != (R > 4) : R > 4) return false;
    if constexpr (Streams) return false;
    else {
    auto up = [](int n) { return (n + 127) / 128 * 128; };
    const size_t x = op == kHidden ? size_t(R > 4 ? 2 : 4) * up(a.H) * a.rows : size_t(a.rows > 1 ? 8 : 4) * a.k * up(a.I);
    const int slots = room(B, W, fixed + (op == kHidden ? 1600 : 600), x, slot), tiles = op == kHidden ? a.rows * a.k * a.I / 8 : a.H / F::kTile * a.rows;
    if (slots < 2) return false;
    experts::Layer<F> m = {};
    m.gate_up = a.gate_up, m.down = a.down, m.E = a.E, m.I = a.I, m.H = a.H, m.k = a.k;
    m.gate_up_bias = a.gate_up_bias, m.down_bias = a.down_bias;
    if (F::kScaled) m.gate_up_scale = a.gate_up_scale, m.down_scale = a.down_scale;
    const rig::Config cfg{dim3(std::min(blocks, tiles)), P::kThreads, x + size_t(slots) * W * slot};
    if (op == kHidden) rig::launch(hidden<P, F>, cfg, a.head, a.x, a.ids, a.weights, m, a.h, slots * W * slot);
    if (op == kDown) rig::launch(down<P, F>, cfg, a.head, a.ids, a.weights, a.h, m, a.y, slots * W * slot);
    return true;
    }
  };
  return c;
}
#define CUT(F, W, D, B, G, R) cut<F, W, D, B, G, R>("W" #W " D" #D " B" #B " G" #G " R" #R " " #F)
#define STREAMS(F, W, D, B, G, R) cut<F, W, D, B, G, R, true>("W" #W " D" #D " B" #B " G" #G " R" #R " streams " #F)
inline const std::vector<Cut>& cuts() {
  static const std::vector<Cut> v = {
      CUT(Nvfp4<1>, 8, 2, 2, 4, 4), CUT(Nvfp4<1>, 8, 4, 2, 3, 4), CUT(Nvfp4<1>, 8, 4, 2, 2, 4), CUT(Bare, 8, 4, 2, 3, 4),  CUT(E4m3Blocks<1>, 8, 2, 2, 3, 4), CUT(Mxfp4<1>, 8, 4, 2, 3, 4),
      CUT(Nvfp4<1>, 16, 1, 1, 2, 8), CUT(Nvfp4<1>, 16, 2, 1, 2, 8), STREAMS(Nvfp4<2>, 16, 1, 1, 1, 8),
      CUT(E4m3Blocks<1>, 16, 1, 1, 2, 8), STREAMS(E4m3Blocks<2>, 8, 1, 1, 1, 8),
  };
  return v;
}

// ------------------------------------------------------------------------------------------------------------- check

inline int32_t* head_of(int R) { return rig::upload(std::vector<int32_t>{R, R, R, 0, 0, 0, 0, 0}); }

inline void check(const Cut& c, Op op, int R, int K, std::vector<int> N) {
  const Kind& k = c.kind;
  const auto x = rig::normals(size_t(R) * K, 3), norm = rig::normals(K, 4, 0.3f);
  std::vector<float> w1(K);
  for (int i = 0; i < K; i++) w1[i] = 1 + norm[i];
  int most = 0;
  for (int n : N) most = std::max(most, n);
  const auto scale = rig::normals(most, 5), bias = rig::normals(most, 6);
  Args a{head_of(R), rig::upload(x), rig::upload(w1), rig::upload(scale), op == kGlu ? nullptr : rig::upload(bias), {}, {}, {}, K, R};
  std::vector<std::vector<float>> old(N.size());
  for (size_t i = 0; i < N.size(); i++) {
    a.n[i] = op == kGlu ? N[0] : N[i];
    a.w[i] = weights(k, N[i], K, 1, 10 + i);
    a.y[i] = rig::device<float>(size_t(R) * N[i]);
    old[i] = rig::normals(size_t(R) * N[i], 30 + i);
    if (op == kAdd) OK(cudaMemcpy(a.y[i], old[i].data(), old[i].size() * 4, cudaMemcpyHostToDevice));
  }
  if (op == kGlu) a.n[1] = a.n[2] = a.n[3] = 0;
  if (!c.run(op, a, rig::sms * c.resident)) return rig::release();
  std::vector<std::vector<double>> h(R, std::vector<double>(K));
  for (int r = 0; r < R; r++) {
    double q = 0;
    for (int i = 0; i < K; i++) q += double(x[size_t(r) * K + i]) * x[size_t(r) * K + i];
    const double f = op == kAdd ? 1 : 1 / std::sqrt(q / K + 1e-6);
    for (int i = 0; i < K; i++) h[r][i] = x[size_t(r) * K + i] * f * (op == kAdd ? 1 : w1[i]);
  }
  rig::Error err;
  const size_t parts = op == kGlu ? 1 : N.size();
  for (size_t i = 0; i < parts; i++) {
    const auto y = rig::download(a.y[i], size_t(R) * N[i]);
    rig::all_finite(c.name.c_str(), y);
    const int samples = std::min(N[i], 64);
    std::vector<double> want(size_t(samples) * R);
    auto pick = [&](int j) { return samples == N[i] ? j : j < 8 ? N[i] - 1 - j : int(rig::hash(j, 9) % N[i]); };
    rig::parallel(samples, [&](int j) {
      const int n = pick(j);
      std::vector<double> g(R), u(R);
      for (int q = 0; q < K; q++) {
        const double w = value(k, n, q, K, 10 + i), v = op == kGlu ? value(k, n, q, K, 11) : 0;
        for (int r = 0; r < R; r++) g[r] += h[r][q] * w, u[r] += h[r][q] * v;
      }
      for (int r = 0; r < R; r++) {
        if (c.scaled) g[r] *= scale[n], u[r] *= scale[n];
        double v = g[r];
        if (op == kGlu) v = g[r] / (1 + std::exp(-g[r])) * u[r];
        else v += bias[n];
        if (op == kAdd) v += old[i][size_t(r) * N[i] + n];
        want[size_t(j) * R + r] = v;
      }
    });
    for (int j = 0; j < samples; j++)
      for (int r = 0; r < R; r++) err.add(y[size_t(r) * N[i] + pick(j)], want[size_t(j) * R + r]);
  }
  static const char* ops[] = {"add", "norm_n", "norm_glu"};
  char name[128];
  snprintf(name, sizeof name, "%s %s R=%d K=%d", c.name.c_str(), ops[op], R, K);
  rig::verdict(name, err, R > 4 ? 3e-3 : 3e-5);
  rig::release();
}

// check_moe holds a layer of experts with biases against the host.
inline void check_moe(const Cut& c, int R, int E, int I, int H, int k) {
  const Kind& kd = c.kind;
  const auto x = rig::normals(size_t(R) * H, 3), wt = rig::normals(size_t(R) * k, 4), y0 = rig::normals(size_t(R) * H, 5);
  const auto gb = rig::normals(size_t(E) * 2 * I, 6), db = rig::normals(size_t(E) * H, 7), gs = rig::normals(size_t(E) * 2 * I, 8), ds = rig::normals(size_t(E) * H, 9);
  std::vector<int32_t> ids;
  for (int r = 0; r < R; r++)
    for (int j = 0; j < k; j++) ids.push_back((r * 3 + j * 5) % E);
  const int Ip = (I + 127) / 128 * 128;
  Moe m{head_of(R), rig::upload(ids), rig::upload(x), rig::upload(wt), rig::upload(gs), rig::upload(ds), rig::upload(gb), rig::upload(db),
        weights(kd, int64_t(E) * 2 * I, H, 1, 20), weights(kd, int64_t(E) * H, I, 1, 21), rig::device<float>(size_t(R) * k * Ip), rig::upload(y0), E, I, H, k, R};
  if (!c.run_moe(kHidden, m, rig::sms * c.resident) || !c.run_moe(kDown, m, rig::sms * c.resident)) return rig::release();
  const auto y = rig::download(m.y, y0.size());
  rig::all_finite(c.name.c_str(), y);
  std::vector<std::vector<double>> h(size_t(R) * k);
  rig::parallel(R * k, [&](int p) {
    const int r = p / k, e = ids[p];
    h[p].resize(I);
    for (int i = 0; i < I; i++) {
      double s[2] = {};
      for (int z = 0; z < 2; z++) {
        const int64_t row = int64_t(e) * 2 * I + z * I + i;
        for (int q = 0; q < H; q++) s[z] += x[size_t(r) * H + q] * value(kd, row, q, H, 20);
        if (c.scaled) s[z] *= gs[row];
        s[z] += gb[row];
      }
      h[p][i] = wt[p] * s[0] / (1 + std::exp(-s[0])) * s[1];
    }
  });
  rig::Error err;
  std::vector<double> want(48 * R);
  rig::parallel(48, [&](int s) {
    const int n = s < 8 ? H - 1 - s : int(rig::hash(s, 2) % H);
    for (int r = 0; r < R; r++) {
      double v = y0[size_t(r) * H + n];
      for (int j = 0; j < k; j++) {
        const int p = r * k + j;
        const int64_t row = int64_t(ids[p]) * H + n;
        double d = 0;
        for (int i = 0; i < I; i++) d += h[p][i] * value(kd, row, i, I, 21);
        v += (c.scaled ? d * ds[row] : d) + wt[p] * db[row];
      }
      want[s * R + r] = v;
    }
  });
  for (int s = 0; s < 48; s++)
    for (int r = 0; r < R; r++) err.add(y[size_t(r) * H + (s < 8 ? H - 1 - s : int(rig::hash(s, 2) % H))], want[s * R + r]);
  char name[128];
  snprintf(name, sizeof name, "%s experts R=%d E=%d I=%d H=%d", c.name.c_str(), R, E, I, H);
  rig::verdict(name, err, R > 4 ? 3e-3 : 3e-5);
  rig::release();
}

inline void check_all() {
  for (const auto& c : cuts())
    for (int R : {1, 5, 8}) {
      if (std::string(c.kind.name) == "bare") continue;
      const bool whole = c.kind.scale == 1 || c.kind.scale == 0;  // K of whole units
      check(c, kAdd, R, 2048, {520});
      check(c, kAdd, R, 14336, {264});
      check(c, kNorm, R, R == 4 ? 896 : 4096, {520, 128, 64, 32});
      check(c, kGlu, R, 2048, {328, 328});
      check_moe(c, R, 9, whole ? 128 : 160, whole ? 256 : 288, 3);
    }
}

// ------------------------------------------------------------------------------------------------------------- time

inline void time_shape(const char* what, Op op, int R, int K, std::vector<int> N, bool all) {
  std::map<std::string, std::pair<double, std::string>> best;
  for (const char* format : {"e4m3_b128", "nvfp4", "bare"}) {
    Kind k{};
    for (const auto& c : cuts())
      if (std::string(c.kind.name) == format) k = c.kind;
    int64_t total = 0;
    for (int n : N) total += n;
    const double bytes = double(packed(k, total, K));
    const int copies = std::max(2, std::min(400, int(600e6 / bytes) + 1));
    const uint8_t* w = weights(k, total, K, copies, 1);
    Args a{head_of(R), rig::upload(rig::normals(size_t(R) * K, 2)), rig::upload(rig::normals(K, 3)), rig::upload(rig::normals(total, 4)), nullptr, {}, {}, {}, K, R};
    float* y = rig::device<float>(size_t(R) * total, 0);
    for (const auto& c : cuts()) {
      if (std::string(c.kind.name) != format) continue;
      for (int per = 1; per <= c.resident; per++) {
        if (per < c.resident && !all) continue;
        bool serves = true;
        auto step = [&](int i) {
          const uint8_t* p = w + uint64_t(i % copies) * packed(k, total, K);
          Args b = a;
          float* at = y;
          for (size_t j = 0; j < N.size(); j++) b.n[j] = N[j], b.w[j] = p, b.y[j] = at, p += packed(k, N[j], K), at += size_t(R) * N[j];
          if (op == kGlu) b.n[1] = 0;
          serves = serves && c.run(op, b, rig::sms * per);
        };
        step(0);
        if (!serves) continue;
        const double us = rig::time_graph(std::max(copies, 20), step, all ? 5 : 15);
        char name[128];
        snprintf(name, sizeof name, "%s R=%d %s grid %d", what, R, c.name.c_str(), per);
        rig::report(name, us, bytes);
        auto& b = best[format];
        if (b.first == 0 || us < b.first) b = {us, c.name + " grid " + std::to_string(per)};
      }
    }
    printf("best  %-16s R=%d %-10s %8.2f us  %5.0f GB/s %5.1f%% of sweep, floor %6.2f us  %s\n", what, R, format, best[format].first, bytes / best[format].first * 1e-3,
           100 * bytes / best[format].first * 1e-3 / rig::sweep, bytes / rig::sweep * 1e-3, best[format].second.c_str());
    fflush(stdout);
    rig::release();
  }
}

// time_moe rotates among experts, so that none is in L2.
inline void time_moe(const char* what, int R, int E, int I, int H, int k, bool all) {
  for (const char* format : {"e4m3_b128", "nvfp4"}) {
    Kind kd{};
    for (const auto& c : cuts())
      if (std::string(c.kind.name) == format) kd = c.kind;
    const int layers = 4, turns = 24, Ip = (I + 127) / 128 * 128;
    const uint64_t gate = packed(kd, int64_t(E) * 2 * I, H), out = packed(kd, int64_t(E) * H, I);
    const uint8_t *g = weights(kd, int64_t(E) * 2 * I, H, layers, 1), *d = weights(kd, int64_t(E) * H, I, layers, 2);
    std::vector<int32_t> ids;
    double read = 0;
    for (int t = 0; t < turns; t++) {
      std::vector<char> used(E);
      for (int r = 0; r < R; r++)
        for (int j = 0; j < k; j++) {
          const int e = (rig::hash(t * 8 + r, 1) + j * (rig::hash(t * 8 + r, 2) | 1)) % E;
          ids.push_back(e), used[e] = 1;
        }
      read += double(std::count(used.begin(), used.end(), 1)) / turns;
    }
    Moe m{head_of(R), rig::upload(ids), rig::upload(rig::normals(size_t(R) * H, 2)), rig::upload(std::vector<float>(size_t(turns) * R * k, 1.0f / k)),
          rig::upload(rig::normals(size_t(E) * 2 * I, 3)), rig::upload(rig::normals(size_t(E) * H, 4)), nullptr, nullptr, g, d,
          rig::device<float>(size_t(R) * k * Ip, 0), rig::device<float>(size_t(R) * H, 0), E, I, H, k, R};
    for (Op op : {kHidden, kDown}) {
      double least = 0;
      std::string which;
      const double bytes = read * double(op == kHidden ? gate : out) / E;
      for (const auto& c : cuts()) {
        if (std::string(c.kind.name) != format) continue;
        for (int per : {1, 2, 3, 16}) {
          if (per > c.resident && (per < 16 || op == kHidden) || !all && per != c.resident) continue;
          bool serves = true;
          auto step = [&](int i) {
            Moe b = m;
            b.ids = m.ids + size_t(i % turns) * R * k, b.gate_up = g + gate * (i % layers), b.down = d + out * (i % layers);
            serves = serves && c.run_moe(op, b, rig::sms * per);
          };
          step(0);
          if (!serves) continue;
          const double us = rig::time_graph(turns, step, all ? 5 : 15);
          char name[128];
          snprintf(name, sizeof name, "%s %s R=%d %s grid %d", what, op == kHidden ? "hidden" : "down", R, c.name.c_str(), per);
          rig::report(name, us, bytes);
          if (least == 0 || us < least) least = us, which = c.name + " grid " + std::to_string(per);
        }
      }
      printf("best  %-9s %-6s R=%d %-10s %8.2f us  %5.0f GB/s %5.1f%% of sweep, floor %6.2f us  %s\n", what, op == kHidden ? "hidden" : "down", R, format, least,
             bytes / least * 1e-3, 100 * bytes / least * 1e-3 / rig::sweep, bytes / rig::sweep * 1e-3, which.c_str());
      fflush(stdout);
    }
    rig::release();
  }
}

inline void time_all(bool all) {
  for (int R : {1, 8}) {
    time_shape("o 4096x4096", kAdd, R, 4096, {4096}, all);
    time_shape("down 14336", kAdd, R, 14336, {4096}, all);
    time_shape("qkv 6144", kNorm, R, 4096, {4096, 1024, 1024}, all);
    time_shape("gate_up 28672", kGlu, R, 4096, {14336, 14336}, all);
    if (R == 4) continue;
    time_moe("qwen3", R, 128, 768, 2048, 8, all);
    if (R > 1) continue;
    time_shape("qwen qkv 5120", kNorm, R, 2048, {4096, 512, 512}, all);
    time_shape("qwen o 2048", kAdd, R, 4096, {2048}, all);
    time_moe("gpt-oss", R, 32, 2880, 2880, 4, all);
  }
}

}  // namespace quantised

int main(int argc, char** argv) {
  OK(cudaSetDevice(0));
  cudaDeviceProp prop;
  OK(cudaGetDeviceProperties(&prop, 0));
  OK(cudaStreamCreate(&rig::stream));
  rig::sms = prop.multiProcessorCount;
  bool do_check = argc < 2, do_tune = false, do_time = argc < 2;
  for (int i = 1; i < argc; i++) {
    const std::string a = argv[i];
    if (a == "check") do_check = true;
    if (a == "tune") do_tune = true;
    if (a == "time") do_time = true;
  }
  printf("%s, %d multiprocessors\n", prop.name, rig::sms);
  rig::measure_sweep();
  if (do_check) quantised::check_all();
  if (do_tune) quantised::time_all(true);
  if (do_time) quantised::time_all(false);
  printf("%d failures\n", rig::failures);
  return rig::failures != 0;
}
