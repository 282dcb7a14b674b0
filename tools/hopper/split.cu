// SPDX-License-Identifier: MIT OR Apache-2.0
// Checks and times the ways to cut products of some rows on Hopper: rows of x in a tile, warpgroups, blocks of a cluster that split K, 64s
// of K that a block has (mma/split.cuh), of bf16 and of nvfp4. Needs a GPU.
//
//	split [check] [time]

#include "../../kernels/include/mma/split.cuh"
#include "packed.cuh"
#include "prefill.cuh"

namespace k_split {
#define SPLIT_NO_ENTRIES
#include "../../kernels/hopper/common/linear/split.cu"
#include "../../kernels/hopper/common/linear/split_quantised.cu"
#undef MAP
#undef ENTRY
}  // namespace k_split

using rig::Config;
using Map = ptx::tensor_map;
using Nvfp4 = quantised::Nvfp4<1>;

template <int Cols, int Groups, int Blocks, int Steps>
__global__ void __launch_bounds__(split::kThreads, 2)
    cut(const int32_t* count, const float* x, const __grid_constant__ Map w, float* y, int32_t N, int32_t K) {
  split::multiply<Cols, Groups, Blocks, Steps>(x, k_split::Stored<Groups, false>{&w, nullptr, y, N}, count, K);
}
template <int Cols, int Groups, int Blocks, int Steps>
__global__ void __launch_bounds__(split::kThreads, 2)
    cut_codes(const int32_t* count, const float* x, const uint8_t* w, const float* scale, float* y, int32_t N, int32_t K) {
  split::multiply<Cols, Groups, Blocks, Steps>(x, k_split::Coded<Nvfp4, Groups, Steps, false>{w, scale, nullptr, y, N, K}, count, K);
}

struct Call {
  int rows, K, N;
  const int32_t* count;
  const float* x;
  const uint16_t* w;
  float* y;
  const uint8_t* codes;
  const float* scale;
};

// Way is a cut.
struct Way {
  int cols, groups, blocks, steps;
  bool codes;
  std::function<void(const Call&)> run;
};

std::vector<Way> list;

template <int Cols, int Groups, int Blocks, int Steps>
void add() {
  const auto config = [](const Call& c) {
    return Config{dim3((c.N + 64 * Groups - 1) / (64 * Groups) * Blocks, (c.rows + Cols - 1) / Cols), 256, split::kSharedBytes<Cols, Groups, Blocks, Steps>, Blocks};
  };
  list.push_back({Cols, Groups, Blocks, Steps, false, [=](const Call& c) {
                    rig::launch(cut<Cols, Groups, Blocks, Steps>, config(c), c.count, c.x, prefill::matrix_map<Map>(c.w, c.N, c.K, 64 * Groups), c.y, c.N, c.K);
                  }});
  list.push_back({Cols, Groups, Blocks, Steps, true, [=](const Call& c) {
                    rig::launch(cut_codes<Cols, Groups, Blocks, Steps>, config(c), c.count, c.x, c.codes, c.scale, c.y, c.N, c.K);
                  }});
}
template <int Cols>
void add_cols() {
  add<Cols, 1, 1, 4>(), add<Cols, 1, 2, 4>(), add<Cols, 1, 4, 4>(), add<Cols, 1, 8, 4>(), add<Cols, 2, 8, 4>(), add<Cols, 2, 4, 4>();
  if constexpr (Cols <= 48) add<Cols, 1, 1, 8>(), add<Cols, 1, 2, 8>(), add<Cols, 1, 4, 8>(), add<Cols, 2, 4, 8>();
}

// ways are the cuts that serve a shape; unless all, those worth a try: blocks that have something to do, at most two waves of them.
std::vector<Way> ways(int rows, int K, int N, bool codes, bool all = false) {
  std::vector<Way> some;
  for (const Way& w : list) {
    const int lines = (rows + w.cols - 1) / w.cols, tiles = (N + 64 * w.groups - 1) / (64 * w.groups), steps = (K + 63) / 64;
    if (w.codes != codes || steps > w.steps * w.blocks) continue;
    if (!all) {
      const int grid = tiles * lines * w.blocks;
      if (w.cols > 16 && lines * w.cols - rows >= 24) continue;  // mostly empty
      if (grid > 272 || grid < 24 && w.blocks < 8 || steps <= w.steps * w.blocks / 2) continue;
    }
    some.push_back(w);
  }
  return some;
}

Call make(int rows, int all, int K, int N, int number) {
  Call c{all, K, N};
  c.count = rig::upload(std::vector<int32_t>{rows, 1, 1, 0, 0, 0, 0, 0});
  c.x = prefill::normals(size_t(all) * K, 3);
  c.w = rig::weights(size_t(N) * K, 10 + number, K > 1024 ? 5 : K > 256 ? 4 : 3);
  c.y = rig::device<float>(size_t(all) * N);
  if (K % 128 == 0 && N % 8 == 0) c.codes = quantised::weights(quantised::kind<Nvfp4>(), N, K, 1, 10 + number);
  c.scale = rig::upload(rig::normals(N, 5));
  OK(cudaStreamSynchronize(rig::stream));
  return c;
}

// reference_of_codes is the product with what the codes of make's number 0 are.
double* reference_of_codes(const Call& c, int rows) {
  const auto x = rig::download(c.x, size_t(rows) * c.K), scale = rig::download(c.scale, c.N);
  std::vector<double> y(size_t(rows) * c.N);
  const auto kind = quantised::kind<Nvfp4>();
  rig::parallel(c.N, [&](int n) {
    for (int k = 0; k < c.K; k++) {
      const double v = quantised::value(kind, n, k, c.K, 10) * scale[n];
      for (int r = 0; r < rows; r++) y[size_t(r) * c.N + n] += rig::to_bf16(x[size_t(r) * c.K + k]) * v;
    }
  });
  return rig::upload(y);
}

void check(int rows, int all, int K, int N) {
  Call c = make(rows, all, K, N, 0);
  for (bool codes : {false, true}) {
    if (codes && !c.codes) continue;
    const double* ref = codes ? reference_of_codes(c, rows) : prefill::reference(c.x, c.w, rows, N, K);
    for (const Way& w : ways(all, K, N, codes, true)) {
      OK(cudaMemsetAsync(c.y, 0xff, size_t(all) * N * 4, rig::stream));
      w.run(c);
      OK(cudaStreamSynchronize(rig::stream));
      char name[128];
      snprintf(name, sizeof name, "rows %d of %d K=%d N=%d %s %d/%d/%d/%d", rows, all, K, N, codes ? "nvfp4" : "bf16", w.cols, w.groups, w.blocks, w.steps);
      prefill::hold(name, c.y, ref, rows, all, N, 2e-5);
    }
  }
  rig::release();
}

// timing gives microseconds over the same arrays again and again, or over more than any cache keeps.
void timing(int rows, int K, int N, bool cold, bool codes = false) {
  const int copies = cold ? std::max(2, std::min(24, int(160e6 / (2.0 * N * K)) + 1)) : 1;
  std::vector<Call> calls;
  for (int j = 0; j < copies; j++) calls.push_back(make(rows, rows, K, N, j));
  const int n = cold ? std::max(copies, 12) : 64;
  printf("%3d x %5d x %5d %s %s floor %5.1f:", rows, K, N, codes ? "nvfp4" : "bf16 ", cold ? "cold" : "L2  ", cold ? (codes ? 0.5625 : 2.0) * N * K / 4.4e6 : 0.0);
  double best = 1e9;
  const Way* first = nullptr;
  const auto some = ways(rows, K, N, codes);
  for (const Way& w : some) {
    const double us = rig::time_graph(n, [&](int i) { w.run(calls[i % copies]); }, 7);
    printf(" %d/%d/%d/%d %.2f", w.cols, w.groups, w.blocks, w.steps, us);
    if (us < best) best = us, first = &w;
  }
  if (first) printf(" | best %d/%d/%d/%d %.2f", first->cols, first->groups, first->blocks, first->steps, best);
  printf("\n");
  fflush(stdout);
  rig::release();
}

int main(int argc, char** argv) {
  const prefill::Words words(argc, argv);
  add_cols<16>(), add_cols<24>(), add_cols<32>(), add_cols<40>(), add_cols<48>(), add_cols<80>();
  if (words.has("check")) {
    check(80, 80, 2048, 512);
    check(80, 80, 512, 2048);
    check(9, 16, 2048, 256);
    check(256, 256, 256, 256);
    check(17, 32, 1000, 77);
    check(1, 16, 8, 1);
    check(50, 64, 1096, 516);
    check(200, 256, 72, 300);
    check(33, 48, 520, 64);
    check(128, 128, 2048, 130);
  }
  if (words.has("time")) {
    timing(80, 2048, 512, false);
    timing(80, 512, 2048, false);
    timing(16, 2048, 256, false);
    timing(256, 256, 256, false);
    timing(80, 2048, 1024, false);
    timing(80, 2048, 1024, false, true);
    for (int r : {16, 32, 64, 128}) {
      timing(r, 2048, 128, true);  // a router
      timing(r, 2048, 512, true);
      timing(r, 2048, 2048, true);
      timing(r, 2048, 1024, true, true);
    }
  }
  return words.close();
}
