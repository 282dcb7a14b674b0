// SPDX-License-Identifier: MIT OR Apache-2.0
// Checks and times Hopper's linear kernels of 9 rows and more. Needs a GPU.
//
//	prefill_linear [check] [time] [few] [rows=2048,8192]

#include "linear.cuh"
#include "prefill.cuh"

using rig::Config;
using Map = ptx::tensor_map;

// Nothing is linear_tiles without its stores: what multiplying alone takes.
struct Nothing : k_tiles::Stored<1, tiles::Set> {
  __device__ __forceinline__ void put(const float (&sums)[128], const tiles::Tile& t, int row) const {
    float s = 0;
#pragma unroll
    for (int i = 0; i < 128; i++) s += sums[i];
    if (s == 1.25e30f) p.y[0][0] = s;
  }
};
extern "C" __global__ void __launch_bounds__(tiles::kThreads, 1)
    nothing(const int32_t* count, const __grid_constant__ Map x, const __grid_constant__ Map w, const float* bias, float* y, int32_t N, int32_t K) {
  k_tiles::run(x, Nothing{{{{&w}, {bias}, {y}, {N}}}}, count, K);
}

// Way is how a product is cut: rows of x in a tile of linear/narrow, or 0 for linear/tiles; blocks of a cluster.
struct Way {
  int cols, cluster;
};

// Call is a linear kernel on its arrays. kind: 'l' linear, 'a' linear_add, 'n' linear_n, 'g' linear_glu, '-' nothing.
struct Call {
  char kind;
  int all, K;          // rows of the bucket
  std::vector<int> N;  // of each matrix
  const int32_t* count;
  const float* x;
  uint16_t* rounded;
  std::vector<const uint16_t*> w;
  std::vector<const float*> bias;
  std::vector<float*> y;
};

struct Entries {
  void (*linear)(const int32_t*, Map, Map, const float*, float*, int32_t, int32_t);
  void (*add)(const int32_t*, Map, Map, const float*, float*, int32_t, int32_t);
  void (*n)(const int32_t*, Map, Map, Map, Map, Map, const float*, const float*, const float*, const float*, float*, float*, float*, float*, int32_t, int32_t,
            int32_t, int32_t, int32_t);
  void (*glu)(const int32_t*, Map, Map, Map, float*, int32_t, int32_t, float);
};
#define NARROW(COLS) \
  {k_narrow::linear_narrow_##COLS, k_narrow::linear_add_narrow_##COLS, k_narrow::linear_n_narrow_2_##COLS, k_narrow::linear_glu_narrow_silu_##COLS}

void product(const Call& c, Way way) {
  const bool wide = way.cols == 0, glu = c.kind == 'g';
  const Entries e = wide ? Entries{k_tiles::linear_tiles, k_tiles::linear_add_tiles, k_tiles::linear_n_tiles, k_tiles::linear_glu_tiles_silu}
                    : way.cols == 16 ? Entries NARROW(16)
                    : way.cols == 32 ? Entries NARROW(32)
                    : way.cols == 64 ? Entries NARROW(64)
                                     : Entries NARROW(128);
  int tiles = 0;
  const int tile = (wide ? 256 : 128) / (glu ? 2 : 1);
  for (size_t i = 0; i < (glu ? 1 : c.N.size()); i++) tiles += (c.N[i] + tile - 1) / tile;
  Config config;
  if (wide) {
    const int units = (c.all + 128 * way.cluster - 1) / (128 * way.cluster);
    config = {dim3(std::min(units * tiles, rig::sms / way.cluster) * way.cluster), 384, 197696, way.cluster};
  } else {
    config = {dim3(tiles * way.cluster, (c.all + way.cols - 1) / way.cols), 288, 111712, way.cluster};
  }
  const Map x = prefill::matrix_map<Map>(c.rounded, c.all, c.K, wide ? 128 : way.cols);
  Map w[4];
  const float* bias[4] = {};
  float* y[4] = {};
  int n[4] = {};
  for (size_t i = 0; i < c.w.size(); i++) w[i] = prefill::matrix_map<Map>(c.w[i], c.N[i], c.K, glu && !wide ? 64 : 128), n[i] = c.N[i];
  for (size_t i = 0; i < c.bias.size(); i++) bias[i] = c.bias[i];
  for (size_t i = 0; i < c.y.size(); i++) y[i] = c.y[i];
  if (c.kind == 'l') rig::launch(e.linear, config, c.count, x, w[0], bias[0], y[0], n[0], c.K);
  if (c.kind == '-') rig::launch(nothing, config, c.count, x, w[0], bias[0], y[0], n[0], c.K);
  if (c.kind == 'a') rig::launch(e.add, config, c.count, x, w[0], bias[0], y[0], n[0], c.K);
  if (c.kind == 'g') rig::launch(e.glu, config, c.count, x, w[0], w[1], y[0], n[0], c.K, 0.0f);
  if (c.kind == 'n')
    rig::launch(e.n, config, c.count, x, w[0], w[1], w[2], w[3], bias[0], bias[1], bias[2], bias[3], y[0], y[1], y[2], y[3], n[0], n[1], n[2], n[3], c.K);
}
void rounding(const Call& c) {
  rig::launch(k_tiles::round_rows, Config{dim3(std::min<int64_t>(rig::sms * 8, (int64_t(c.all) * c.K + 2047) / 2048)), 256}, c.count, c.x, c.rounded, c.K);
}
int narrow_cols(int rows) { return rows <= 16 ? 16 : rows <= 32 ? 32 : rows <= 64 ? 64 : 128; }

std::vector<Way> ways(int rows) {
  std::vector<Way> list = {{0, 1}, {0, 2}};
  for (int cluster : {1, 2, 4, 8}) list.push_back({narrow_cols(rows), cluster});
  return list;
}

void check(char kind, int rows, int all, int K, std::vector<int> N, bool biased) {
  Call c{kind, all, K, N};
  c.count = rig::upload(std::vector<int32_t>{rows, 1, 1, 0, 0, 0, 0, 0});
  c.x = prefill::normals(size_t(all) * K, 3);
  c.rounded = rig::device<uint16_t>(size_t(all) * K);
  const int e = K > 1024 ? 5 : K > 256 ? 4 : 3;
  for (size_t i = 0; i < N.size(); i++) {
    c.w.push_back(rig::weights(size_t(N[i]) * K, 10 + i, e));
    c.bias.push_back(biased ? prefill::normals(N[i], 20 + i) : nullptr);
  }
  std::vector<float*> old;
  std::vector<double*> ref;
  for (size_t i = 0; i < N.size(); i++) {
    ref.push_back(prefill::reference(c.x, c.w[i], rows, N[i], K));
    old.push_back(kind == 'a' ? prefill::normals(size_t(rows) * N[i], 30 + i) : nullptr);
    c.y.push_back(rig::device<float>(size_t(all) * N[i]));
  }
  if (kind == 'g') {
    prefill::combine<<<rig::sms * 8, 256, 0, rig::stream>>>(ref[0], ref[1], nullptr, nullptr, uint64_t(rows) * N[0], N[0]);
    c.y.resize(1), ref.resize(1);
  } else {
    for (size_t i = 0; i < N.size(); i++)
      prefill::combine<<<rig::sms * 8, 256, 0, rig::stream>>>(ref[i], nullptr, c.bias[i], old[i], uint64_t(rows) * N[i], N[i]);
  }
  OK(cudaGetLastError());
  for (const Way& way : ways(all)) {
    for (size_t i = 0; i < c.y.size(); i++) {
      OK(cudaMemsetAsync(c.y[i], 0xff, size_t(all) * N[i] * 4, rig::stream));
      if (old[i]) OK(cudaMemcpyAsync(c.y[i], old[i], size_t(rows) * N[i] * 4, cudaMemcpyDeviceToDevice, rig::stream));
    }
    OK(cudaMemsetAsync(c.rounded, 0xff, size_t(all) * K * 2, rig::stream));
    rounding(c);
    product(c, way);
    OK(cudaStreamSynchronize(rig::stream));
    for (size_t i = 0; i < c.y.size(); i++) {
      char name[128];
      snprintf(name, sizeof name, "%c rows %d of %d K=%d N=%d%s tile %d cluster %d", kind, rows, all, K, N[i], biased ? " bias" : "", way.cols, way.cluster);
      prefill::hold(name, c.y[i], ref[i], rows, all, N[i], 2e-5);
    }
  }
  rig::release();
}

void checks() {
  check('l', 128, 128, 64, {256}, false);
  check('l', 256, 256, 256, {512}, false);
  check('l', 200, 256, 72, {300}, true);
  check('l', 17, 32, 1000, {77}, true);
  check('l', 1, 16, 8, {1}, false);
  check('l', 30, 32, 4096, {1024}, true);
  check('a', 50, 64, 4096, {516}, true);
  check('g', 16, 16, 2048, {1000, 1000}, false);
  check('n', 64, 64, 2048, {520, 130, 128, 1}, true);
  check('a', 129, 256, 520, {258}, false);
  check('a', 300, 512, 640, {1001}, true);
  check('n', 333, 512, 1024, {640, 128, 128, 32}, false);
  check('n', 100, 128, 512, {520, 65, 257}, true);
  check('g', 257, 512, 768, {384, 384}, false);
  check('g', 31, 32, 512, {77, 77}, false);
  check('g', 90, 128, 512, {77, 77}, false);
  check('l', 2048, 2048, 4096, {6144}, false);
  check('g', 2000, 2048, 4096, {4096, 4096}, false);
}

// timing gives microseconds of rounding x, of the product, and of both, over arrays that no cache keeps.
void timing(const char* what, char kind, int rows, int K, std::vector<int> N, std::vector<Way> ways) {
  double bytes = 0, flop = 0;
  for (int n : N) bytes += 2.0 * n * K, flop += 2.0 * rows * n * K;
  const int copies = std::max(2, std::min(16, int(160e6 / bytes) + 1));
  std::vector<Call> calls;
  const int32_t* count = rig::upload(std::vector<int32_t>{rows, 1, 1, 0, 0, 0, 0, 0});
  std::vector<float*> y;
  for (size_t i = 0; i < N.size(); i++) y.push_back(rig::device<float>(size_t(rows) * N[i], 0));
  for (int j = 0; j < copies; j++) {
    Call c{kind, rows, K, N, count};
    if (j < 2) {
      c.x = prefill::normals(size_t(rows) * K, 40 + j);
      c.rounded = rig::device<uint16_t>(size_t(rows) * K);
      rounding(c);
    } else {
      c.x = calls[j % 2].x, c.rounded = calls[j % 2].rounded;
    }
    for (size_t i = 0; i < N.size(); i++) c.w.push_back(rig::weights(size_t(N[i]) * K, 50 + 8 * j + i, 5));
    c.bias.assign(N.size(), nullptr);
    c.y = y;
    if (kind == 'g') c.y.resize(1);
    calls.push_back(c);
  }
  OK(cudaStreamSynchronize(rig::stream));
  const int n = std::max(copies, 6);
  const double first = rig::time_graph(n, [&](int i) { rounding(calls[i % copies]); }, 7);
  for (const Way& way : ways) {
    const double alone = rig::time_graph(n, [&](int i) { product(calls[i % copies], way); }, 7);
    const double both = rig::time_graph(n, [&](int i) { rounding(calls[i % copies]), product(calls[i % copies], way); }, 7);
    printf("time  %-14s rows %5d K %5d N %6.0f tile %d×%d: round %6.1f us, product %8.1f us %6.1f TFLOP/s, both %8.1f us %6.1f TFLOP/s\n", what, rows, K,
           flop / 2 / rows / K, way.cols, way.cluster, first, alone, flop / alone * 1e-6, both, flop / both * 1e-6);
    fflush(stdout);
  }
  rig::release();
}

int main(int argc, char** argv) {
  const prefill::Words words(argc, argv);
  if (words.has("check")) checks();
  const std::vector<Way> both = {{0, 1}, {0, 2}};
  if (words.has("time")) {
    for (int r : words.numbers("rows", {2048, 8192})) {
      timing("qkv", 'n', r, 4096, {4096, 1024, 1024}, both);
      timing("no stores", '-', r, 4096, {6144}, both);
      timing("o", 'l', r, 4096, {4096}, both);
      timing("o+add", 'a', r, 4096, {4096}, both);
      timing("gate up", 'g', r, 4096, {14336, 14336}, both);
      timing("down+add", 'a', r, 14336, {4096}, both);
      timing("qwen qkv", 'n', r, 2048, {4096, 512, 512}, both);
      timing("qwen o+add", 'a', r, 4096, {2048}, both);
      timing("qwen gate", 'l', r, 2048, {128}, ways(r));
      timing("qwen3.5 gate", 'n', r, 2048, {256, 1}, ways(r));
    }
  }
  if (words.has("few")) {
    for (int r : {16, 32, 64, 128, 256, 512, 1024}) {
      timing("o", 'l', r, 4096, {4096}, ways(r));
      timing("qkv", 'n', r, 4096, {4096, 1024, 1024}, ways(r));
      timing("gate up", 'g', r, 4096, {14336, 14336}, ways(r));
      timing("down+add", 'a', r, 14336, {4096}, ways(r));
      timing("qwen o+add", 'a', r, 4096, {2048}, ways(r));
    }
  }
  return words.close();
}
