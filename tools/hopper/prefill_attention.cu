// SPDX-License-Identifier: MIT OR Apache-2.0
// Checks and times Hopper's attention of many rows. Needs a GPU.
//
//	prefill_attention [check] [time] [short]

#include "../../kernels/hopper/common/attention/prefill.cu"
#include "prefill.cuh"

struct Shape {
  int heads, kv, hd;
  int window = 0;
  float softcap = 0;
  bool sinks = false;
  int page = 16;
};

__host__ __device__ inline float value(uint64_t i, uint32_t seed) { return rig::weight(i, seed, 0); }

// scatter writes keys or values of a sequence's positions into its pages.
__global__ void scatter(uint16_t* pool, const int32_t* table, int positions, int width, int page, uint32_t seed) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < int64_t(positions) * width; i += int64_t(gridDim.x) * blockDim.x) {
    const int p = i / width;
    pool[(int64_t(table[p / page]) * page + p % page) * width + i % width] = rig::bits(value(i, seed));
  }
}

// reference: float64 attention of one row and head a block, q as it is. y is [rows, heads*hd].
__global__ void reference(const float* q, const float* sinks, const uint16_t* k, const uint16_t* v, const int32_t* positions, const int32_t* row_seq,
                          const int32_t* table, int pages, double* scratch, int most, double* y, Shape a, double scale) {
  const int row = blockIdx.x, head = blockIdx.y, kv = head / (a.heads / a.kv), pos = positions[row], tid = threadIdx.x;
  const int lo = a.window > 0 ? max(0, pos - a.window + 1) : 0, n = pos + 1 - lo;
  double* s = scratch + (int64_t(row) * a.heads + head) * most;
  const int32_t* t = table + int64_t(row_seq[row]) * pages;
  const auto at = [&](int p) { return ((int64_t(t[p / a.page]) * a.page + p % a.page) * a.kv + kv) * a.hd; };
  __shared__ double red[128];
  double top = -1e300;
  for (int i = tid; i < n; i += 128) {
    double d = 0;
    const uint16_t* key = k + at(lo + i);
    for (int c = 0; c < a.hd; c++) d += double(q[(int64_t(row) * a.heads + head) * a.hd + c]) * prefill::wide(key[c]);
    d *= scale;
    if (a.softcap > 0) d = a.softcap * tanh(d / a.softcap);
    s[i] = d, top = fmax(top, d);
  }
  red[tid] = top;
  __syncthreads();
  for (int i = 0; i < 128; i++) top = fmax(top, red[i]);
  if (sinks) top = fmax(top, double(sinks[head]));
  __syncthreads();
  double sum = 0;
  for (int i = tid; i < n; i += 128) sum += s[i] = exp(s[i] - top);
  red[tid] = sum;
  __syncthreads();
  sum = sinks ? exp(double(sinks[head]) - top) : 0;
  for (int i = 0; i < 128; i++) sum += red[i];
  for (int c = tid; c < a.hd; c += 128) {
    double o = 0;
    for (int i = 0; i < n; i++) o += s[i] * prefill::wide(v[at(lo + i) + c]);
    y[(int64_t(row) * a.heads + head) * a.hd + c] = o / sum;
  }
}

// Step is chunks of sequences after contexts, on the device.
struct Step {
  Shape a;
  int rows = 0, seqs, pages, most = 0;
  double flops = 0;
  int32_t *head, *positions, *cu, *row_seq, *table;
  uint16_t *k, *v;
  int64_t slots;
  float *q, *sinks, *y;
  ptx::tensor_map km, vm;

  Step(const Shape& a, const std::vector<int>& chunks, const std::vector<int>& contexts, int extra) : a(a), seqs(chunks.size()) {
    std::vector<int32_t> p, c{0}, rs, t;
    for (int s = 0; s < seqs; s++) {
      for (int i = 0; i < chunks[s]; i++) {
        p.push_back(contexts[s] + i), rs.push_back(s);
        const double keys = a.window > 0 ? std::min(a.window, p.back() + 1) : p.back() + 1;
        flops += 4.0 * keys * a.heads * a.hd;
      }
      c.push_back(rows = p.size());
      most = std::max(most, contexts[s] + chunks[s]);
    }
    pages = (most + a.page - 1) / a.page + 1;
    const int pool = seqs * pages + 3;
    std::vector<int> order(pool);
    for (int i = 0; i < pool; i++) order[i] = i;
    for (int i = pool - 1; i > 0; i--) std::swap(order[i], order[rig::hash(i, 9) % (i + 1)]);
    for (int s = 0, next = 0; s < seqs; s++)
      for (int i = 0; i < pages; i++) t.push_back(i * a.page < contexts[s] + chunks[s] ? order[next++] : -1 << 30);
    const int32_t* whole = rig::upload(t);
    for (int s = 0; s < seqs; s++)  // pages behind the window are gone
      for (int i = 0; a.window > 0 && (i + 1) * a.page <= contexts[s] - a.window + 1; i++) t[s * pages + i] = -1 << 30;
    head = rig::upload(std::vector<int32_t>{rows, seqs, seqs, 0, 0, 0, 0, 0});
    positions = rig::upload(p), cu = rig::upload(c), row_seq = rig::upload(rs), table = rig::upload(t);
    slots = int64_t(pool) * a.page;
    const int width = a.kv * a.hd;
    k = rig::device<uint16_t>(slots * width), v = rig::device<uint16_t>(slots * width);  // NaN
    for (int s = 0; s < seqs; s++) {
      scatter<<<1024, 256, 0, rig::stream>>>(k, whole + s * pages, contexts[s] + chunks[s], width, a.page, 10 + s);
      scatter<<<1024, 256, 0, rig::stream>>>(v, whole + s * pages, contexts[s] + chunks[s], width, a.page, 510 + s);
    }
    OK(cudaGetLastError());
    q = prefill::normals(size_t(rows) * a.heads * a.hd, 3);
    sinks = a.sinks ? prefill::normals(a.heads, 4) : nullptr;
    y = rig::device<float>(size_t(rows + extra) * a.heads * a.hd);
    km = prefill::matrix_map<ptx::tensor_map>(k, slots, width, 16), vm = prefill::matrix_map<ptx::tensor_map>(v, slots, width, 16);
  }
  double scale() const { return 1.7 / std::sqrt(double(a.hd)); }  // keys have a deviation of 0.58: scores of about 1

  void run(int groups) const {
    const auto go = [&](auto kernel, size_t shared) {
      rig::launch(kernel, rig::Config{dim3(rig::sms), 128 + 128 * groups, shared}, head, q, sinks, km, vm, positions, cu, table, y, a.heads, a.kv,
                  float(scale()), a.window, a.softcap, a.page, pages);
    };
    if (a.hd == 64) groups == 1 ? go(attention_prefill_64_1, kSharedBytes<64, 1>) : go(attention_prefill_64_2, kSharedBytes<64, 2>);
    if (a.hd == 128) groups == 1 ? go(attention_prefill_128_1, kSharedBytes<128, 1>) : go(attention_prefill_128_2, kSharedBytes<128, 2>);
    if (a.hd == 256) groups == 1 ? go(attention_prefill_256_1, kSharedBytes<256, 1>) : go(attention_prefill_256_2, kSharedBytes<256, 2>);
  }
};

void check(const char* what, const Shape& a, std::vector<int> chunks, std::vector<int> contexts) {
  const int extra = 3;
  Step s(a, chunks, contexts, extra);
  double* scratch = rig::device<double>(size_t(s.rows) * a.heads * s.most);
  double* ref = rig::device<double>(size_t(s.rows) * a.heads * a.hd);
  reference<<<dim3(s.rows, a.heads), 128, 0, rig::stream>>>(s.q, s.sinks, s.k, s.v, s.positions, s.row_seq, s.table, s.pages, scratch, s.most, ref, a, s.scale());
  OK(cudaGetLastError());
  const size_t n = size_t(s.rows + extra) * a.heads * a.hd;
  std::vector<float> first;
  for (int again = 0; again < 4; again++) {  // each number of groups twice: all have the same bits
    OK(cudaMemsetAsync(s.y, 0xff, n * 4, rig::stream));
    s.run(2 - again % 2);
    OK(cudaStreamSynchronize(rig::stream));
    char name[128];
    snprintf(name, sizeof name, "%s %d/%d x %d rows %d of %d", what, a.heads, a.kv, a.hd, s.rows, s.seqs);
    prefill::hold(name, s.y, ref, s.rows, s.rows + extra, a.heads * a.hd, 3e-3);
    if (!again) first = rig::download(s.y, n);
    else if (memcmp(first.data(), rig::download(s.y, n).data(), n * 4)) printf("check %s: other bits again  FAILED\n", name), rig::failures++;
  }
  rig::release();
}

void all_checks() {
  check("one tile", {4, 1, 128}, {32}, {0});
  check("small", {2, 2, 64}, {5, 130, 1}, {0, 7, 300});
  check("small", {2, 2, 128}, {5, 130, 1}, {0, 7, 300});
  check("small", {2, 2, 256}, {5, 130, 1}, {0, 7, 300});
  check("llama", {32, 8, 128}, {300, 1, 77, 16}, {0, 129, 1000, 4096});
  check("qwen3", {32, 4, 128}, {257, 130}, {500, 0});
  check("qwen3.5", {16, 2, 256}, {300, 40}, {0, 777});
  check("gpt-oss", {64, 8, 64, 128, 0, true}, {300, 90}, {0, 500});
  check("gpt-oss full", {64, 8, 64, 0, 0, true}, {300}, {50});
  check("gemma", {8, 4, 256, 100, 50, false}, {200, 64}, {0, 400});
  check("softcap", {8, 4, 128, 0, 3, false, 64}, {200, 64}, {0, 400});
  check("group 6", {12, 2, 128, 0, 0, false, 32}, {100, 64, 3}, {33, 0, 64});
  check("many sequences", {8, 2, 128}, std::vector<int>(70, 3), std::vector<int>(70, 40));
  check("group 1", {3, 3, 64, 33}, {500}, {10});
}

void time(const char* what, const Shape& a, std::vector<int> chunks, std::vector<int> contexts, int launches = 2) {
  Step s(a, chunks, contexts, 0);
  printf("time  %-14s %2d/%d x %3d rows %5d of %2d, context %5d:", what, a.heads, a.kv, a.hd, s.rows, s.seqs, s.most);
  for (int groups : {2, 1}) {
    const double us = rig::time_graph(launches, [&](int) { s.run(groups); }, 9);
    printf("  %d groups %9.2f us %6.1f TFLOP/s, %4.1f%% of 780", groups, us, s.flops / us * 1e-6, s.flops / us * 1e-6 / 7.8);
  }
  printf("\n");
  fflush(stdout);
  rig::release();
}

void short_times() {
  for (int n : {16, 32, 64, 128, 256, 512, 1024, 2048}) time("qwen3.5", {16, 2, 256}, {n}, {0}, 64);
  for (int n : {32, 128, 512, 1024}) time("llama", {32, 8, 128}, {n}, {0}, 64);
  for (int n : {32, 128, 512}) time("gpt-oss", {64, 8, 64}, {n}, {0}, 64);
  for (int n : {16, 64, 128}) time("llama decode", {32, 8, 128}, std::vector<int>(n, 1), std::vector<int>(n, 1000), 16);
  for (int n : {16, 64, 128}) time("qwen3.5 decode", {16, 2, 256}, std::vector<int>(n, 1), std::vector<int>(n, 1000), 16);
}

void all_times() {
  const Shape llama{32, 8, 128}, qwen{32, 4, 128}, gated{16, 2, 256}, oss{64, 8, 64};
  time("llama", llama, {2048}, {0});
  time("llama", llama, {8192}, {0});
  time("llama", llama, {512}, {0});
  time("llama", llama, {2048}, {14336});
  time("llama", llama, std::vector<int>(8, 1024), std::vector<int>(8, 0));
  time("llama", llama, {32768}, {0});
  time("qwen3", qwen, {2048}, {0});
  time("qwen3", qwen, {8192}, {0});
  time("qwen3.5", gated, {2048}, {0});
  time("qwen3.5", gated, {8192}, {0});
  time("gpt-oss", oss, {2048}, {0});
  time("gpt-oss", oss, {8192}, {0});
  time("gpt-oss", {64, 8, 64, 128}, {8192}, {0});
  std::vector<int> chunks(64, 1), contexts(64, 2000);
  chunks.push_back(2048), contexts.push_back(0);
  time("mixed", llama, chunks, contexts);
}

int main(int argc, char** argv) {
  const prefill::Words words(argc, argv);
  if (words.has("check")) all_checks();
  if (words.has("time")) all_times();
  if (words.has("short")) short_times();
  return words.close();
}
