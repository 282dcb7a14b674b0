// SPDX-License-Identifier: MIT OR Apache-2.0
// Checks and times Hopper's delta rule by chunks against the portable one, row after row. Needs a GPU.
//
//	prefill_delta [check] [time]

#include "../../kernels/cuda/common/recurrent/delta_rule.cu"
#include "../../kernels/hopper/common/recurrent/delta_chunks.cu"
#include "prefill.cuh"

// scale_values multiplies all by factor.
__global__ void scale_values(float* x, uint64_t n, float factor) {
  for (uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; i < n; i += uint64_t(gridDim.x) * blockDim.x) x[i] *= factor;
}
// gate_values makes decays -most … 0 and strengths 0 … 1.
__global__ void gate_values(float* g, float* beta, uint64_t n, float most) {
  for (uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; i < n; i += uint64_t(gridDim.x) * blockDim.x) {
    g[i] = -most * float(rig::hash(i, 21)) * 2.3283064e-10f;
    beta[i] = float(rig::hash(i, 22)) * 2.3283064e-10f;
  }
}

// join makes rows [q | k | v] whose q and k norm_keys divides by their lengths again, and what decays and strengths are made of.
__global__ void join(const float* q, const float* k, const float* v, float* qkv, int64_t rows, int keys, int values) {
  const int width = 2 * keys + values;
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < rows * width; i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t row = i / width;
    const int c = i % width;
    qkv[i] = c < keys ? 3 * q[row * keys + c] : c < 2 * keys ? 0.5f * k[row * keys + c - keys] : v[row * values + c - 2 * keys];
  }
}
__global__ void norm_keys(float* x, int width, float scale) {  // a warp a head of a row
  const int64_t at = (blockIdx.x * int64_t(blockDim.x) + threadIdx.x) / 32 * width;
  double sum = 0;
  for (int c = 0; c < width; c++) sum += double(x[at + c]) * x[at + c];
  __syncwarp();
  for (int c = threadIdx.x % 32; c < width; c += 32) x[at + c] = float(x[at + c] * scale / sqrt(sum));
}
__global__ void raw_gates(const float* g, const float* beta, float* a, float* b, int64_t n) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x) {
    a[i] = float(log(expm1(-double(g[i]) / 0.5)) - 0.25);  // rate 0.5, bias 0.25
    b[i] = float(log(double(beta[i])) - log1p(-double(beta[i])));
  }
}

struct Step {
  int kh, vh, kd, vd, rows = 0, seqs;
  int32_t *head, *cu, *slots, *fresh;
  float *q, *k, *v, *g, *beta, *kq, *w, *p, *u, *decay, *state, *y, *qkv, *a, *b, *rate, *bias;
  size_t outs, states;

  Step(int kh, int vh, int kd, int vd, std::vector<int> chunks, float most) : kh(kh), vh(vh), kd(kd), vd(vd), seqs(chunks.size()) {
    std::vector<int32_t> c{0}, s;
    for (int n : chunks) c.push_back(rows += n), s.push_back(s.size());
    head = rig::upload(std::vector<int32_t>{rows, seqs, seqs, 0, 0, 0, 0, 0});
    cu = rig::upload(c), slots = rig::upload(s), fresh = rig::upload(std::vector<int32_t>(seqs, 0));
    const auto unit = [&](uint32_t seed) {
      float* x = prefill::normals(size_t(rows) * kh * kd, seed);
      scale_values<<<512, 256, 0, rig::stream>>>(x, size_t(rows) * kh * kd, 1 / std::sqrt(float(kd)));
      return x;
    };
    q = unit(1), k = unit(2), v = prefill::normals(size_t(rows) * vh * vd, 3);
    g = rig::device<float>(size_t(rows) * vh), beta = rig::device<float>(size_t(rows) * vh);
    gate_values<<<512, 256, 0, rig::stream>>>(g, beta, size_t(rows) * vh, most);
    OK(cudaGetLastError());
    outs = size_t(rows) * vh * vd, states = size_t(seqs) * vh * vd * kd;
    const size_t places = (rows + kRows - 1) / kRows + seqs;
    kq = reinterpret_cast<float*>(rig::device<Pair>(places * kh * 2)), w = reinterpret_cast<float*>(rig::device<Pair>(places * vh));
    p = reinterpret_cast<float*>(rig::device<Half>(places * vh)), u = rig::device<float>(places * vh * ((vd + 63) / 64) * kTile);
    decay = rig::device<float>(places * vh * 2 * kRows), y = rig::device<float>(outs);
    norm_keys<<<rows * kh, 32, 0, rig::stream>>>(k, kd, 1), norm_keys<<<rows * kh, 32, 0, rig::stream>>>(q, kd, 0.125f);
    qkv = rig::device<float>(size_t(rows) * (2 * kh * kd + vh * vd)), a = rig::device<float>(size_t(rows) * vh), b = rig::device<float>(size_t(rows) * vh);
    join<<<512, 256, 0, rig::stream>>>(q, k, v, qkv, rows, kh * kd, vh * vd);
    raw_gates<<<512, 256, 0, rig::stream>>>(g, beta, a, b, int64_t(rows) * vh);
    OK(cudaGetLastError());
    rate = rig::upload(std::vector<float>(vh, std::log(0.5f))), bias = rig::upload(std::vector<float>(vh, 0.25f));
    state = prefill::normals(states, 4);
  }
  void fill() {
    prefill::fill_normals<<<512, 256, 0, rig::stream>>>(state, states, 4);
    OK(cudaGetLastError());
  }
  void first(bool mix) const {
    const rig::Config c{dim3(kh, (rows + kRows - 1) / kRows + seqs), 256, sizeof(Solve)};
    if (mix) rig::launch(delta_mix_chunks, c, head + 1, qkv, a, b, rate, bias, cu, kq, w, p, u, decay, kh, vh, kd, vd, 0.125f, 1e-6f, 0);
    else rig::launch(delta_chunks, c, head + 1, q, k, v, g, beta, cu, kq, w, p, u, decay, kh, vh, kd, vd);
  }
  void second() const {
    rig::launch(delta_scan, rig::Config{dim3((vd + 63) / 64, vh, seqs), 160, sizeof(Scan)}, head + 1, kq, w, p, u, decay, state, cu, slots, fresh, y, kh, vh, kd, vd, 0);
  }
  void portable() const {
    rig::launch(delta_rule_128, rig::Config{dim3((vd + 31) / 32, vh, seqs), 128, 0}, head + 1, q, k, v, g, beta, state, cu, slots, fresh, y, kh, vh, kd, vd, 1);
  }
};

void compare(const char* name, const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0, norm = 0, worst = 0;
  for (size_t i = 0; i < got.size(); i++) {
    const double d = double(got[i]) - want[i];
    error += d * d, norm += double(want[i]) * want[i];
    worst = d == d ? std::max(worst, std::fabs(d)) : INFINITY;
  }
  const double rel = std::sqrt(error / norm);
  const bool ok = rel < 2e-5;
  printf("check %-60s rel %.2e worst %.2e  %s\n", name, rel, worst, ok ? "ok" : "FAILED");
  rig::failures += !ok;
}

void check(int kh, int vh, int kd, int vd, std::vector<int> chunks, float most) {
  Step s(kh, vh, kd, vd, chunks, most);
  s.portable();
  const auto y = rig::download(s.y, s.outs), state = rig::download(s.state, s.states);
  for (bool mix : {false, true}) {
    s.fill();
    OK(cudaMemsetAsync(s.y, 0xff, s.outs * 4, rig::stream));
    s.first(mix), s.second();
    char name[96];
    snprintf(name, sizeof name, "%s%d/%d x %d x %d rows %d of %d, decay %g", mix ? "mix " : "", kh, vh, kd, vd, s.rows, s.seqs, most);
    compare(name, rig::download(s.y, s.outs), y);
    compare("  its state", rig::download(s.state, s.states), state);
  }
  rig::release();
}

void time(std::vector<int> chunks) {
  Step s(16, 32, 128, 128, chunks, 0.1f);
  const auto us = [](auto f) { return rig::time_graph(2, [&](int) { f(); }, 9); };
  const double plain = us([&] { s.first(false); }), mixed = us([&] { s.first(true); }), scan = us([&] { s.second(); }), both = us([&] { s.first(true), s.second(); });
  printf("time  16/32 x 128 rows %5d of %2d: chunks %7.1f us, with norms %7.1f us, scan %7.1f us, both %7.1f us; row after row %8.1f us\n", s.rows, s.seqs, plain,
         mixed, scan, both, rig::time_graph(1, [&](int) { s.portable(); }, 3));
  fflush(stdout);
  rig::release();
}

int main(int argc, char** argv) {
  const prefill::Words words(argc, argv);
  if (words.has("check")) {
    check(16, 32, 128, 128, {300, 1, 64, 65}, 0.1f);
    check(1, 2, 128, 128, {2048}, 0.01f);
    check(2, 2, 64, 40, {63, 130}, 1.0f);
    check(16, 32, 128, 128, {4096, 130}, 0.1f);
    check(2, 4, 128, 128, std::vector<int>(70, 3), 5.0f);
  }
  if (words.has("time")) {
    time({16}), time({32}), time({64}), time({128}), time({512}), time({2048}), time({8192}), time(std::vector<int>(8, 1024));
    std::vector<int> mixed(64, 1);
    mixed.push_back(2048);
    time(mixed);
  }
  return words.close();
}
