// SPDX-License-Identifier: MIT OR Apache-2.0
// Checks and times Hopper's experts of 9 rows and more. Needs a GPU.
//
//	prefill_experts [check] [time] [cluster=1,2] [rows=2048,8192]

#include "../../kernels/include/epilogue/fast_act.cuh"
#include "../../kernels/include/mma/bf16.cuh"
#include "../../kernels/include/mma/ragged.cuh"
#include "prefill.cuh"

namespace k_experts {
#include "../../kernels/hopper/common/experts/tiles.cu"
}  // namespace k_experts

using rig::Config;
using Map = ptx::tensor_map;

struct Moe {
  int rows, all, E, k, H, I;
  const int32_t *count, *ids;
  const float *x, *weights;
  const uint16_t *gate_up, *down;
  int32_t *first, *place;
  uint16_t *xs, *h, *d;
  float* y;
};
void moe_sort(const Moe& m) { rig::launch(k_experts::experts_sort, Config{dim3(m.E), 1024}, m.count, m.ids, m.first, m.place, m.E, m.k); }
void moe_spread(const Moe& m) { rig::launch(k_experts::experts_spread, Config{dim3(m.all), 256}, m.count, m.x, m.place, m.xs, m.H, m.k); }
int cluster = 2;  // blocks that share rows of x
Config tiles() { return {dim3(rig::sms / cluster * cluster), ragged::kThreads, ragged::kSharedBytes, cluster}; }
void moe_up(const Moe& m) {
  const uint64_t E = m.E, H = m.H, I = m.I;
  const auto x = [&](int rows) { return prefill::matrix_map<Map>(m.xs, m.all * m.k, H, rows); };
  const Map w = prefill::box_map<Map>(m.gate_up, {H, 8, 2, I / 8, E}, {2 * H, 2 * H * I, 16 * H, 4 * H * I}, {64, 8, 2, 8, 1});
  rig::launch(k_experts::experts_up_tiles_silu, tiles(), m.first, x(128), x(64), x(32), x(16), w, nullptr, m.h, m.E, m.H, m.I, 0.0f);
}
void moe_down(const Moe& m) {
  const auto h = [&](int rows) { return prefill::matrix_map<Map>(m.h, m.all * m.k, m.I, rows); };
  rig::launch(k_experts::experts_down_tiles, tiles(), m.first, h(128), h(64), h(32), h(16),
              prefill::matrices_map<Map>(m.down, m.E, m.H, m.I, ragged::kCols), nullptr, m.d, m.E, m.H, m.I);
}
void moe_combine(const Moe& m) { rig::launch(k_experts::experts_combine, Config{dim3(m.all), 256}, m.count, m.weights, m.place, m.d, m.y, m.H, m.k); }
void moe_all(const Moe& m) { moe_sort(m), moe_spread(m), moe_up(m), moe_down(m), moe_combine(m); }

// moe makes experts whose rows are spread evenly, but for lots: that many choices of a row are the first experts.
Moe moe(int rows, int all, int E, int k, int H, int I, uint32_t seed, int lots = 0) {
  Moe m{rows, all, E, k, H, I};
  m.count = rig::upload(std::vector<int32_t>{rows, 1, 1, 0, 0, 0, 0, 0});
  std::vector<int32_t> ids(size_t(all) * k, 1 << 20);
  for (int r = 0; r < rows; r++)
    for (int s = 0; s < k; s++) {
      uint64_t at = uint64_t(r) * 64 + s;
      for (;; at += 7919 * 64) {
        ids[r * k + s] = s < lots ? s : rig::hash(at, seed) % E;
        if (std::find(&ids[r * k], &ids[r * k + s], ids[r * k + s]) == &ids[r * k + s]) break;
      }
    }
  m.ids = rig::upload(ids);
  m.x = prefill::normals(size_t(all) * H, seed + 1), m.weights = prefill::normals(size_t(all) * k, seed + 2);
  m.gate_up = rig::weights(size_t(E) * 2 * I * H, seed + 3, H > 1024 ? 4 : 3), m.down = rig::weights(size_t(E) * H * I, seed + 4, 4);
  m.first = rig::device<int32_t>(E + 1), m.place = rig::device<int32_t>(size_t(all) * k);
  m.xs = rig::device<uint16_t>(size_t(all) * k * H), m.h = rig::device<uint16_t>(size_t(all) * k * I);
  m.d = rig::device<uint16_t>(size_t(all) * k * H), m.y = rig::device<float>(size_t(all) * H);
  return m;
}

__device__ double rounded(double v) {
  const uint32_t u = __float_as_uint(float(v));
  return double(__uint_as_float((u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u));
}
// moe_reference: h and what experts give round to bf16. Grid: rows; 256 threads, I doubles of shared memory.
__global__ void moe_reference(Moe m, double* y) {
  extern __shared__ double h[];
  const int row = blockIdx.x;
  for (int n = threadIdx.x; n < m.H; n += 256) y[int64_t(row) * m.H + n] = 0;
  for (int s = 0; s < m.k; s++) {
    const int64_t e = m.ids[row * m.k + s];
    __syncthreads();
    for (int i = threadIdx.x; i < m.I; i += 256) {
      double g = 0, u = 0;
      const uint16_t *wg = m.gate_up + (e * 2 * m.I + i) * m.H, *wu = wg + int64_t(m.I) * m.H;
      for (int k = 0; k < m.H; k++) {
        const double x = rounded(m.x[int64_t(row) * m.H + k]);
        g += x * prefill::wide(wg[k]), u += x * prefill::wide(wu[k]);
      }
      h[i] = rounded(g / (1 + exp(-g)) * u);
    }
    __syncthreads();
    for (int n = threadIdx.x; n < m.H; n += 256) {
      double d = 0;
      const uint16_t* w = m.down + (e * m.H + n) * m.I;
      for (int i = 0; i < m.I; i++) d += h[i] * prefill::wide(w[i]);
      y[int64_t(row) * m.H + n] += double(m.weights[row * m.k + s]) * rounded(d);
    }
  }
}
void check(int rows, int all, int E, int k, int H, int I, int lots = 0) {
  const Moe m = moe(rows, all, E, k, H, I, 77, lots);
  double* ref = rig::device<double>(size_t(rows) * H);
  moe_reference<<<rows, 256, I * 8, rig::stream>>>(m, ref);
  OK(cudaGetLastError());
  moe_all(m);
  OK(cudaStreamSynchronize(rig::stream));
  char name[128];
  snprintf(name, sizeof name, "rows %d of %d E=%d k=%d H=%d I=%d cluster %d", rows, all, E, k, H, I, cluster);
  prefill::hold(name, m.y, ref, rows, all, H, 5e-4);
  rig::release();
}
void checks() {
  check(20, 32, 8, 2, 64, 64);
  check(150, 256, 3, 2, 72, 136);
  check(9, 16, 200, 5, 264, 96);
  check(300, 512, 128, 8, 2048, 768);
  check(300, 512, 256, 8, 2048, 512);
  check(1000, 1024, 16, 3, 256, 72, 2);
  check(2048, 2048, 20, 4, 512, 768);
}
void time(int rows, int E, int k, int H, int I) {
  const Moe m[2] = {moe(rows, rows, E, k, H, I, 5), moe(rows, rows, E, k, H, I, 6)};
  for (const Moe& x : m) moe_all(x);
  OK(cudaStreamSynchronize(rig::stream));
  const auto t = [&](void (*f)(const Moe&)) { return rig::time_graph(6, [&](int i) { f(m[i % 2]); }, 7); };
  const double flop = 6.0 * rows * k * H * I, all = t(moe_all);
  printf("time  rows %5d E %3d k %d H %d I %d cluster %d: sort %6.1f spread %6.1f up %7.1f down %7.1f combine %6.1f, all %8.1f us %6.1f TFLOP/s, weights at %6.0f GB/s\n", rows,
         E, k, H, I, cluster, t(moe_sort), t(moe_spread), t(moe_up), t(moe_down), t(moe_combine), all, flop / all * 1e-6,
         6.0 * std::min(E, rows * k) * H * I / all * 1e-3);
  fflush(stdout);
  rig::release();
}

int main(int argc, char** argv) {
  const prefill::Words words(argc, argv);
  const std::vector<int> clusters = words.numbers("cluster", {2});
  for (int c : clusters) {
    cluster = c;
    if (words.has("check")) checks();
    if (!words.has("time")) continue;
    for (int r : words.numbers("rows", {16, 32, 64, 128, 256, 512, 2048, 8192})) time(r, 128, 8, 2048, 768);
    for (int r : words.numbers("rows", {64, 2048, 8192})) time(r, 256, 8, 2048, 512);
  }
  return words.close();
}
