// SPDX-License-Identifier: MIT OR Apache-2.0
// Checks and times the ways to cut products of some rows on Hopper: rows of x in a tile, warpgroups, blocks of a cluster that split K
// (mma/split.cuh), beside linear/narrow. Needs a GPU.
//
//	split [check] [time]

#include "../../kernels/include/mma/split.cuh"
#include "linear.cuh"
#include "prefill.cuh"

namespace k_split {
#define SPLIT_NO_ENTRIES
#include "../../kernels/hopper/common/linear/split.cu"
#undef MAP
#undef ENTRY
}  // namespace k_split

using rig::Config;
using Map = ptx::tensor_map;

template <int Cols, int Groups, int Blocks>
__global__ void __launch_bounds__(split::kThreads, 2)
    cut(const int32_t* count, const float* x, const __grid_constant__ Map w, float* y, int32_t N, int32_t K) {
  split::multiply<Cols, Groups, Blocks>(x, k_split::Stored<Groups, false>{&w, nullptr, y, N}, count, K);
}

struct Call {
  int rows, K, N;
  const int32_t* count;
  const float* x;
  uint16_t* rounded;
  const uint16_t* w;
  float* y;
};

// Way is a cut; cols 0 is narrow with its rounding.
struct Way {
  int cols, groups, blocks;
};

template <int Cols, int Groups, int Blocks>
void run_cut(const Call& c) {
  const int tiles = (c.N + 64 * Groups - 1) / (64 * Groups);
  rig::launch(cut<Cols, Groups, Blocks>, Config{dim3(tiles * Blocks, (c.rows + Cols - 1) / Cols), 256, split::kSharedBytes<Cols, Groups, Blocks>, Blocks}, c.count,
              c.x, prefill::matrix_map<Map>(c.w, c.N, c.K, 64 * Groups), c.y, c.N, c.K);
}
template <int Cols, int Groups>
void run_blocks(const Call& c, int blocks) {
  if (blocks == 1) run_cut<Cols, Groups, 1>(c);
  if (blocks == 2) run_cut<Cols, Groups, 2>(c);
  if (blocks == 4) run_cut<Cols, Groups, 4>(c);
  if (blocks == 8) run_cut<Cols, Groups, 8>(c);
}
template <int Cols>
void run_cols(const Call& c, const Way& w) {
  w.groups == 1 ? run_blocks<Cols, 1>(c, w.blocks) : run_blocks<Cols, 2>(c, w.blocks);
}
void run(const Call& c, const Way& w) {
  if (w.cols == 16) return run_cols<16>(c, w);
  if (w.cols == 24) return run_cols<24>(c, w);
  if (w.cols == 32) return run_cols<32>(c, w);
  if (w.cols == 40) return run_cols<40>(c, w);
  if (w.cols == 48) return run_cols<48>(c, w);
  if (w.cols == 64) return run_cols<64>(c, w);
  if (w.cols == 80) return run_cols<80>(c, w);
  rig::launch(k_tiles::round_rows, Config{dim3(std::min<int64_t>(rig::sms * 8, (int64_t(c.rows) * c.K + 2047) / 2048)), 256}, c.count, c.x, c.rounded, c.K);
  const int cols = c.rows <= 16 ? 16 : c.rows <= 32 ? 32 : c.rows <= 64 ? 64 : 128, tiles = (c.N + 127) / 128, cluster = tiles >= 128 ? 1 : 4;
  const auto entry = cols == 16   ? k_narrow::linear_narrow_16
                     : cols == 32 ? k_narrow::linear_narrow_32
                     : cols == 64 ? k_narrow::linear_narrow_64
                                  : k_narrow::linear_narrow_128;
  rig::launch(entry, Config{dim3(tiles * cluster, (c.rows + cols - 1) / cols), 288, 111712, cluster}, c.count, prefill::matrix_map<Map>(c.rounded, c.rows, c.K, cols),
              prefill::matrix_map<Map>(c.w, c.N, c.K, 128), static_cast<const float*>(nullptr), c.y, c.N, c.K);
}

// ways are the cuts worth a try: blocks that have something to do, at most two waves of them, at most 256 of K a block.
std::vector<Way> ways(int rows, int K, int N, bool all = false) {
  std::vector<Way> list = {{0, 0, 0}};
  for (int cols : {16, 24, 32, 40, 48, 64, 80}) {
    const int lines = (rows + cols - 1) / cols;
    if (!all && cols > 16 && lines * cols - rows >= 24) continue;  // mostly empty
    for (int groups : {1, 2})
      for (int blocks : {1, 2, 4, 8}) {
        const int tiles = (N + 64 * groups - 1) / (64 * groups), grid = tiles * lines * blocks, steps = (K + 63) / 64;
        if (steps > 4 * blocks || !all && (grid > 272 || grid < 24 && blocks < 8 || steps < blocks)) continue;
        list.push_back({cols, groups, blocks});
      }
  }
  return list;
}

void check(int rows, int all, int K, int N) {
  Call c{all, K, N};
  c.count = rig::upload(std::vector<int32_t>{rows, 1, 1, 0, 0, 0, 0, 0});
  c.x = prefill::normals(size_t(all) * K, 3);
  c.rounded = rig::device<uint16_t>(size_t(all) * K);
  c.w = rig::weights(size_t(N) * K, 10, K > 1024 ? 5 : K > 256 ? 4 : 3);
  c.y = rig::device<float>(size_t(all) * N);
  const double* ref = prefill::reference(c.x, c.w, rows, N, K);
  for (const Way& w : ways(all, K, N, true)) {
    OK(cudaMemsetAsync(c.y, 0xff, size_t(all) * N * 4, rig::stream));
    run(c, w);
    OK(cudaStreamSynchronize(rig::stream));
    char name[128];
    snprintf(name, sizeof name, "rows %d of %d K=%d N=%d cols %d groups %d blocks %d", rows, all, K, N, w.cols, w.groups, w.blocks);
    prefill::hold(name, c.y, ref, rows, all, N, 2e-5);
  }
  rig::release();
}

// timing gives microseconds over the same arrays again and again, or over more than any cache keeps.
void timing(int rows, int K, int N, bool cold) {
  const int copies = cold ? std::max(2, std::min(24, int(160e6 / (2.0 * N * K)) + 1)) : 1;
  std::vector<Call> calls;
  const int32_t* count = rig::upload(std::vector<int32_t>{rows, 1, 1, 0, 0, 0, 0, 0});
  float* y = rig::device<float>(size_t(rows) * N, 0);
  const float* x = prefill::normals(size_t(rows) * K, 40);
  uint16_t* rounded = rig::device<uint16_t>(size_t(rows) * K);
  for (int j = 0; j < copies; j++) calls.push_back({rows, K, N, count, x, rounded, rig::weights(size_t(N) * K, 50 + j, 5), y});
  OK(cudaStreamSynchronize(rig::stream));
  const int n = cold ? std::max(copies, 12) : 64;
  printf("%3d x %5d x %5d %s floor %5.1f:", rows, K, N, cold ? "cold" : "L2  ", cold ? 2.0 * N * K / 4.4e6 : 0.0);
  double best = 1e9;
  Way first{};
  for (const Way& w : ways(rows, K, N)) {
    const double us = rig::time_graph(n, [&](int i) { run(calls[i % copies], w); }, 7);
    if (w.cols == 0)
      printf(" narrow %6.2f |", us);
    else
      printf(" %d/%d/%d %.2f", w.cols, w.groups, w.blocks, us);
    if (w.cols && us < best) best = us, first = w;
  }
  printf(" | best %d/%d/%d %.2f\n", first.cols, first.groups, first.blocks, best);
  fflush(stdout);
  rig::release();
}

int main(int argc, char** argv) {
  const prefill::Words words(argc, argv);
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
    for (int r : {16, 32, 64, 128}) {
      timing(r, 2048, 128, true);  // a router
      timing(r, 2048, 512, true);
      timing(r, 2048, 2048, true);
    }
  }
  return words.close();
}
