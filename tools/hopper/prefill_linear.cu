// SPDX-License-Identifier: MIT OR Apache-2.0
// Checks and times Hopper's linear kernels and experts of 9 rows and more. Needs a GPU.
//
//	prefill_linear [check] [time] [few] [experts] [rows=2048,8192]

#include "../../kernels/include/epilogue/fast_act.cuh"
#include "../../kernels/include/mma/bf16.cuh"
#include "../../kernels/include/mma/narrow.cuh"
#include "../../kernels/include/mma/parts.cuh"
#include "../../kernels/include/mma/tiles.cuh"
#include "prefill.cuh"

namespace k_tiles {
#include "../../kernels/hopper/common/linear/tiles.cu"
#undef MAP
#undef ENTRY
#undef LINEAR
#undef LINEAR_GLU
}  // namespace k_tiles
namespace k_narrow {
#include "../../kernels/hopper/common/linear/narrow.cu"
#undef MAP
#undef ENTRY
#undef LINEAR
#undef LINEAR_N
#undef LINEAR_GLU
#undef ALL_OF
}  // namespace k_narrow
namespace k_experts {
#include "../../kernels/hopper/common/experts/tiles.cu"
}  // namespace k_experts

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
  {k_narrow::linear_narrow_##COLS, k_narrow::linear_add_narrow_##COLS, k_narrow::linear_n_narrow_##COLS, k_narrow::linear_glu_narrow_silu_##COLS}

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

// ------------------------------------------------------------------------------------------------------------ experts

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
template <class M>
M cube_map(const void* p, uint64_t n, uint64_t rows, uint64_t K) {  // boxes of 1 × 128 × 64
  return prefill::matrices_map<M>(p, n, rows, K, 128);
}
void moe_up(const Moe& m) {
  rig::launch(k_experts::experts_up_tiles_silu, Config{dim3(rig::sms), 384, 197696}, m.first, prefill::matrix_map<Map>(m.xs, m.all * m.k, m.H, 128),
              cube_map<Map>(m.gate_up, m.E, 2 * m.I, m.H), m.h, m.E, m.H, m.I, 0.0f);
}
void moe_down(const Moe& m) {
  rig::launch(k_experts::experts_down_tiles, Config{dim3(rig::sms), 384, 197696}, m.first, prefill::matrix_map<Map>(m.h, m.all * m.k, m.I, 128),
              cube_map<Map>(m.down, m.E, m.H, m.I), m.d, m.E, m.H, m.I);
}
void moe_combine(const Moe& m) { rig::launch(k_experts::experts_combine, Config{dim3(m.all), 256}, m.count, m.weights, m.place, m.d, m.y, m.H, m.k); }
void moe_all(const Moe& m) { moe_sort(m), moe_spread(m), moe_up(m), moe_down(m), moe_combine(m); }

Moe moe(int rows, int all, int E, int k, int H, int I, uint32_t seed) {
  Moe m{rows, all, E, k, H, I};
  m.count = rig::upload(std::vector<int32_t>{rows, 1, 1, 0, 0, 0, 0, 0});
  std::vector<int32_t> ids(size_t(all) * k, 1 << 20);
  for (int r = 0; r < rows; r++)
    for (int s = 0; s < k; s++) {
      uint64_t at = uint64_t(r) * 64 + s;
      for (;; at += 7919 * 64) {
        ids[r * k + s] = rig::hash(at, seed) % E;
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
void check_moe(int rows, int all, int E, int k, int H, int I) {
  const Moe m = moe(rows, all, E, k, H, I, 77);
  double* ref = rig::device<double>(size_t(rows) * H);
  moe_reference<<<rows, 256, I * 8, rig::stream>>>(m, ref);
  OK(cudaGetLastError());
  moe_all(m);
  OK(cudaStreamSynchronize(rig::stream));
  char name[128];
  snprintf(name, sizeof name, "experts rows %d of %d E=%d k=%d H=%d I=%d", rows, all, E, k, H, I);
  prefill::hold(name, m.y, ref, rows, all, H, 5e-4);
  rig::release();
}
void check_experts() {
  check_moe(20, 32, 8, 2, 64, 64);
  check_moe(150, 256, 3, 2, 72, 136);
  check_moe(9, 16, 200, 5, 264, 96);
  check_moe(300, 512, 128, 8, 2048, 768);
  check_moe(300, 512, 256, 8, 2048, 512);
}
void time_experts(int rows, int E, int k, int H, int I) {
  const Moe m[2] = {moe(rows, rows, E, k, H, I, 5), moe(rows, rows, E, k, H, I, 6)};
  for (const Moe& x : m) moe_all(x);
  OK(cudaStreamSynchronize(rig::stream));
  const auto t = [&](void (*f)(const Moe&)) { return rig::time_graph(6, [&](int i) { f(m[i % 2]); }, 7); };
  const double flop = 6.0 * rows * k * H * I, all = t(moe_all);
  printf("experts rows %5d E %3d k %d H %d I %d: sort %6.1f spread %6.1f up %7.1f down %7.1f combine %6.1f, all %8.1f us %6.1f TFLOP/s, weights at %6.0f GB/s\n", rows,
         E, k, H, I, t(moe_sort), t(moe_spread), t(moe_up), t(moe_down), t(moe_combine), all, flop / all * 1e-6,
         6.0 * std::min(E, rows * k) * H * I / all * 1e-3);
  fflush(stdout);
  rig::release();
}

int main(int argc, char** argv) {
  OK(cudaSetDevice(0));
  cudaDeviceProp prop;
  OK(cudaGetDeviceProperties(&prop, 0));
  OK(cudaStreamCreate(&rig::stream));
  rig::sms = prop.multiProcessorCount;
  bool do_check = argc < 2, do_time = argc < 2, do_few = argc < 2, do_experts = argc < 2;
  std::vector<int> rows = {2048, 8192};
  for (int i = 1; i < argc; i++) {
    const std::string a = argv[i];
    if (a == "check") do_check = true;
    if (a == "time") do_time = true;
    if (a == "few") do_few = true;
    if (a == "experts") do_experts = true;
    if (a.rfind("rows=", 0) == 0) {
      rows.clear();
      for (const char* p = a.c_str() + 5; *p; p += strcspn(p, ","), p += *p == ',') rows.push_back(atoi(p));
    }
  }
  printf("%s, %d multiprocessors\n", prop.name, rig::sms);
  if (do_check) checks(), check_experts();
  const std::vector<Way> both = {{0, 1}, {0, 2}};
  if (do_time) {
    for (int r : rows) {
      timing("qkv", 'n', r, 4096, {4096, 1024, 1024}, both);
      timing("no stores", '-', r, 4096, {6144}, both);
      timing("o", 'l', r, 4096, {4096}, both);
      timing("o+add", 'a', r, 4096, {4096}, both);
      timing("gate up", 'g', r, 4096, {14336, 14336}, both);
      timing("down+add", 'a', r, 14336, {4096}, both);
      timing("qwen qkv", 'n', r, 2048, {4096, 512, 512}, both);
      timing("qwen o+add", 'a', r, 4096, {2048}, both);
    }
  }
  if (do_few) {
    for (int r : {16, 32, 64, 128, 256, 512, 1024}) {
      timing("o", 'l', r, 4096, {4096}, ways(r));
      timing("qkv", 'n', r, 4096, {4096, 1024, 1024}, ways(r));
      timing("gate up", 'g', r, 4096, {14336, 14336}, ways(r));
      timing("down+add", 'a', r, 14336, {4096}, ways(r));
      timing("qwen o+add", 'a', r, 4096, {2048}, ways(r));
    }
  }
  if (do_experts) {
    for (int r : {16, 32, 64, 128, 256, 512, 2048, 8192}) time_experts(r, 128, 8, 2048, 768);
    for (int r : {64, 2048, 8192}) time_experts(r, 256, 8, 2048, 512);
  }
  printf("%d failures\n", rig::failures);
  return rig::failures != 0;
}
