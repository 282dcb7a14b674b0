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

struct Step {
  int kh, vh, kd, vd, rows = 0, seqs;
  int32_t *head, *cu, *slots, *fresh;
  float *q, *k, *v, *g, *beta, *w, *p, *state, *y;
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
    w = rig::device<float>(size_t(rows) * vh * kd), p = rig::device<float>(size_t(rows) * vh * kRows), y = rig::device<float>(outs);
    state = prefill::normals(states, 4);
  }
  void fill() {
    prefill::fill_normals<<<512, 256, 0, rig::stream>>>(state, states, 4);
    OK(cudaGetLastError());
  }
  void first() const {
    rig::launch(delta_chunks, rig::Config{dim3(vh, (rows + kRows - 1) / kRows + seqs), 256, sizeof(Solve)}, head + 1, q, k, v, g, beta, cu, w, p, y, kh, vh, kd, vd);
  }
  void second() const {
    rig::launch(delta_scan, rig::Config{dim3((vd + 31) / 32, vh, seqs), 256, sizeof(Scan)}, head + 1, q, k, g, w, p, state, cu, slots, fresh, y, kh, vh, kd, vd);
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
  const bool ok = rel < 1e-5;
  printf("check %-60s rel %.2e worst %.2e  %s\n", name, rel, worst, ok ? "ok" : "FAILED");
  rig::failures += !ok;
}

void check(int kh, int vh, int kd, int vd, std::vector<int> chunks, float most) {
  Step s(kh, vh, kd, vd, chunks, most);
  s.portable();
  const auto y = rig::download(s.y, s.outs), state = rig::download(s.state, s.states);
  s.fill();
  OK(cudaMemsetAsync(s.y, 0xff, s.outs * 4, rig::stream));
  s.first(), s.second();
  char name[96];
  snprintf(name, sizeof name, "%d/%d x %d x %d rows %d of %d, decay %g", kh, vh, kd, vd, s.rows, s.seqs, most);
  compare(name, rig::download(s.y, s.outs), y);
  compare("  its state", rig::download(s.state, s.states), state);
  rig::release();
}

void time(std::vector<int> chunks) {
  Step s(16, 32, 128, 128, chunks, 0.1f);
  const double a = rig::time_graph(2, [&](int) { s.first(); }, 9), b = rig::time_graph(2, [&](int) { s.second(); }, 9),
               both = rig::time_graph(2, [&](int) { s.first(), s.second(); }, 9), old = rig::time_graph(2, [&](int) { s.portable(); }, 5);
  printf("time  16/32 x 128 rows %5d of %2d: chunks %7.1f us, scan %7.1f us, both %7.1f us; row after row %8.1f us\n", s.rows, s.seqs, a, b, both, old);
  fflush(stdout);
  rig::release();
}

int main(int argc, char** argv) {
  OK(cudaSetDevice(0));
  cudaDeviceProp prop;
  OK(cudaGetDeviceProperties(&prop, 0));
  OK(cudaStreamCreate(&rig::stream));
  rig::sms = prop.multiProcessorCount;
  bool checks = argc < 2, times = argc < 2;
  for (int i = 1; i < argc; i++) checks |= !strcmp(argv[i], "check"), times |= !strcmp(argv[i], "time");
  printf("%s, %d multiprocessors\n", prop.name, rig::sms);
  if (checks) {
    check(16, 32, 128, 128, {300, 1, 64, 65}, 0.1f);
    check(1, 2, 128, 128, {2048}, 0.01f);
    check(2, 2, 64, 40, {63, 130}, 1.0f);
    check(2, 4, 128, 128, std::vector<int>(70, 3), 5.0f);
  }
  if (times) {
    time({64}), time({512}), time({2048}), time({8192}), time(std::vector<int>(8, 1024));
    std::vector<int> mixed(64, 1);
    mixed.push_back(2048);
    time(mixed);
  }
  printf("%d failures\n", rig::failures);
  return rig::failures != 0;
}
