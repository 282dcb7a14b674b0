// SPDX-License-Identifier: MIT OR Apache-2.0
// Checks and times Hopper's delta rule by chunks against the portable one, row after row. Needs a GPU.
//
//	prefill_delta [check] [time]

#include "../../kernels/cuda/common/recurrent/delta_rule.cu"
#include "../../kernels/hopper/common/recurrent/delta_chunks.cu"
#include "../../kernels/include/ptx/cluster.cuh"
#include "prefill.cuh"
namespace k_conv {
#include "../../kernels/cuda/common/recurrent/conv.cu"
}
namespace k_rows {
#include "../../kernels/hopper/common/recurrent/delta_rows.cu"
}

// gate_values makes decays -most … 0 and strengths 0 … 1.
__global__ void gate_values(float* g, float* beta, uint64_t n, float most) {
  for (uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; i < n; i += uint64_t(gridDim.x) * blockDim.x) {
    g[i] = -most * float(rig::hash(i, 21)) * 2.3283064e-10f;
    beta[i] = float(rig::hash(i, 22)) * 2.3283064e-10f;
  }
}

// part takes q, k and v of rows [q | k | v]; norm_keys divides q and k by their lengths.
__global__ void part(const float* qkv, float* q, float* k, float* v, int64_t rows, int keys, int values) {
  const int width = 2 * keys + values;
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < rows * width; i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t row = i / width;
    const int c = i % width;
    (c < keys ? q[row * keys + c] : c < 2 * keys ? k[row * keys + c - keys] : v[row * values + c - 2 * keys]) = qkv[i];
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
  float *q, *k, *v, *g, *beta, *kq, *w, *p, *u, *decay, *state, *y, *raw, *qkv, *taps, *conv_state, *a, *b, *rate, *bias;
  size_t outs, states, kept;

  Step(int kh, int vh, int kd, int vd, std::vector<int> chunks, float most) : kh(kh), vh(vh), kd(kd), vd(vd), seqs(chunks.size()) {
    std::vector<int32_t> c{0}, s;
    for (int n : chunks) c.push_back(rows += n), s.push_back(s.size());
    head = rig::upload(std::vector<int32_t>{rows, seqs, seqs, 0, 0, 0, 0, 0});
    cu = rig::upload(c), slots = rig::upload(s), fresh = rig::upload(std::vector<int32_t>(seqs, 0));
    const int width = 2 * kh * kd + vh * vd;
    q = rig::device<float>(size_t(rows) * kh * kd), k = rig::device<float>(size_t(rows) * kh * kd), v = rig::device<float>(size_t(rows) * vh * vd);
    raw = prefill::normals(size_t(rows) * width, 1), qkv = rig::device<float>(size_t(rows) * width);
    kept = size_t(seqs) * 3 * width, taps = prefill::normals(size_t(width) * 4, 2), conv_state = rig::device<float>(kept);
    g = rig::device<float>(size_t(rows) * vh), beta = rig::device<float>(size_t(rows) * vh);
    gate_values<<<512, 256, 0, rig::stream>>>(g, beta, size_t(rows) * vh, most);
    OK(cudaGetLastError());
    outs = size_t(rows) * vh * vd, states = size_t(seqs) * vh * vd * kd;
    const size_t places = (rows + kRows - 1) / kRows + seqs;
    kq = reinterpret_cast<float*>(rig::device<Pair>(places * kh * 2)), w = reinterpret_cast<float*>(rig::device<Pair>(places * vh));
    p = reinterpret_cast<float*>(rig::device<Half>(places * vh)), u = rig::device<float>(places * vh * ((vd + 63) / 64) * kTile);
    decay = rig::device<float>(places * vh * 2 * kRows), y = rig::device<float>(outs);
    a = rig::device<float>(size_t(rows) * vh), b = rig::device<float>(size_t(rows) * vh);
    raw_gates<<<512, 256, 0, rig::stream>>>(g, beta, a, b, int64_t(rows) * vh);
    OK(cudaGetLastError());
    rate = rig::upload(std::vector<float>(vh, std::log(0.5f))), bias = rig::upload(std::vector<float>(vh, 0.25f));
    state = rig::device<float>(states);
    fill(), convolve();
    part<<<512, 256, 0, rig::stream>>>(qkv, q, k, v, rows, kh * kd, vh * vd);
    norm_keys<<<rows * kh, 32, 0, rig::stream>>>(k, kd, 1), norm_keys<<<rows * kh, 32, 0, rig::stream>>>(q, kd, 0.125f);
    OK(cudaGetLastError());
  }
  void fill() {
    prefill::fill_normals<<<512, 256, 0, rig::stream>>>(state, states, 4);
    prefill::fill_normals<<<512, 256, 0, rig::stream>>>(conv_state, kept, 5);
    OK(cudaGetLastError());
  }
  void convolve() const {
    const int width = 2 * kh * kd + vh * vd, at_once = rows > 256 ? 8 : 4;
    const rig::Config c{dim3((width + 127) / 128, (rows + 15) / 16 + seqs), 512u / at_once};
    rig::launch(at_once == 8 ? k_conv::conv_silu_4_8 : k_conv::conv_silu_4_4, c, head + 1, raw, taps, nullptr, conv_state, cu, slots, fresh, qkv, width);
  }
  void few_rows(int few) const {
    rig::launch(k_rows::delta_few_rows, rig::Config{dim3(vh, seqs), 512, 0}, head, cu, slots, fresh, raw, taps, conv_state, a, b, rate, bias, state, y, kh, vh, kd, vd,
                0.125f, 1e-12f, few);
  }
  void step(const float* z, const float* norm, float* out) const {
    rig::launch(k_rows::delta_conv_step_rows, rig::Config{dim3(vh, seqs), 512, 0, 2}, head, cu, slots, fresh, raw, taps, conv_state, a, b, z, rate, bias, norm, state,
                out, kh, vh, kd, vd, 0.125f, 1e-12f, 1e-6f);
  }
  void first(bool mix, int few) const {
    const rig::Config c{dim3(kh, (rows + kRows - 1) / kRows + seqs), 256, sizeof(Solve)};
    if (mix) rig::launch(delta_mix_chunks, c, head + 1, raw, taps, conv_state, a, b, rate, bias, cu, slots, fresh, kq, w, p, u, decay, kh, vh, kd, vd, 0.125f, 1e-12f, few);
    else rig::launch(delta_chunks, c, head + 1, q, k, v, g, beta, cu, kq, w, p, u, decay, kh, vh, kd, vd);
  }
  void second(int few) const {
    rig::launch(delta_scan, rig::Config{dim3((vd + 63) / 64, vh, seqs), 160, sizeof(Scan)}, head + 1, kq, w, p, u, decay, state, cu, slots, fresh, y, kh, vh, kd, vd, few);
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

// normed gives the gated norm of y [segments, n] by z: float64 sums.
__global__ void normed(const float* y, const float* z, const float* norm, float* out, int n) {
  const int64_t at = int64_t(blockIdx.x) * n;
  double sum = 0;
  for (int i = 0; i < n; i++) sum += double(y[at + i]) * y[at + i];
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    out[at + i] = float(y[at + i] / sqrt(sum / n + 1e-6) * norm[i] * (z[at + i] / (1 + exp(-double(z[at + i])))));
}

void check(int kh, int vh, int kd, int vd, std::vector<int> chunks, float most) {
  Step s(kh, vh, kd, vd, chunks, most);
  const auto kept = rig::download(s.conv_state, s.kept);
  s.portable();
  const auto y = rig::download(s.y, s.outs), state = rig::download(s.state, s.states);
  for (int how = 0; how < 3; how++) {  // chunks; with what comes before; and sequences of few rows apart
    const int few = how == 2 ? 31 : 0;
    s.fill();
    OK(cudaMemsetAsync(s.y, 0xff, s.outs * 4, rig::stream));
    if (few) s.few_rows(few);
    s.first(how > 0, few), s.second(few);
    char name[96];
    snprintf(name, sizeof name, "%s%d/%d x %d x %d rows %d of %d, decay %g", how == 0 ? "" : how == 1 ? "mix " : "few ", kh, vh, kd, vd, s.rows, s.seqs, most);
    compare(name, rig::download(s.y, s.outs), y);
    compare("  its state", rig::download(s.state, s.states), state);
    if (how > 0) compare("  what the convolution keeps", rig::download(s.conv_state, s.kept), kept);
  }
  if (vh == 2 * kh) {  // all row after row, and the norm behind
    const float *z = prefill::normals(s.outs, 6), *norm = prefill::normals(vd, 7);
    float *want = rig::device<float>(s.outs), *got = rig::device<float>(s.outs);
    OK(cudaMemcpyAsync(s.y, y.data(), s.outs * 4, cudaMemcpyDefault, rig::stream));
    normed<<<s.rows * vh, 128, 0, rig::stream>>>(s.y, z, norm, want, vd);
    s.fill();
    OK(cudaMemsetAsync(got, 0xff, s.outs * 4, rig::stream));
    s.step(z, norm, got);
    compare("  row after row, with its norm", rig::download(got, s.outs), rig::download(want, s.outs));
    compare("  its state", rig::download(s.state, s.states), state);
    compare("  what the convolution keeps", rig::download(s.conv_state, s.kept), kept);
  }
  rig::release();
}

void time(std::vector<int> chunks) {
  Step s(16, 32, 128, 128, chunks, 0.1f);
  const auto us = [](auto f) { return rig::time_graph(2, [&](int) { f(); }, 9); };
  const double conv = us([&] { s.convolve(); }), plain = us([&] { s.first(false, 0); }), few = us([&] { s.few_rows(31); }), mixed = us([&] { s.first(true, 31); }),
               scan = us([&] { s.second(31); }), all = us([&] { s.few_rows(31), s.first(true, 31), s.second(31); }), step = us([&] { s.step(s.v, s.v, s.y); });
  printf("time  16/32 x 128 rows %5d of %2d: conv %7.1f us, chunks %7.1f us, few %7.1f us, chunks with conv and norms %7.1f us, scan %7.1f us, all three %7.1f us; row after row %8.1f us, with its norm; portable %8.1f us\n",
         s.rows, s.seqs, conv, plain, few, mixed, scan, all, step, rig::time_graph(1, [&](int) { s.portable(); }, 3));
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
    check(2, 4, 128, 64, {1, 2, 3, 4, 31, 32, 33, 67}, 0.5f);
  }
  if (words.has("time")) {
    time({16}), time({32}), time({64}), time({128}), time({512}), time({2048}), time({8192}), time(std::vector<int>(8, 1024));
    std::vector<int> mixed(64, 1);
    time(std::vector<int>(32, 1)), time(mixed);
    mixed.push_back(2048);
    time(mixed);
  }
  return words.close();
}
