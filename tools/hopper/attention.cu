// SPDX-License-Identifier: MIT OR Apache-2.0
// Checks and times attention of 1 to 8 rows on Hopper. Needs a GPU.
//
//	attention [check] [time]

#include "attention.cuh"
#include "prefill.cuh"

// Shape is a step of one row a sequence.
struct Shape {
  const char* name;
  std::vector<int> context;
  ops::Heads heads;
  bool norm;
  double bytes() const {
    double sum = 0;
    for (int c : context) sum += 4.0 * c * heads.kv * heads.hd;
    return sum;
  }
};

// timing gives microseconds over the same pools again and again, or over more than any cache keeps.
double timing(const Shape& s, bool cold) {
  const int R = s.context.size(), copies = cold ? std::max(2, std::min(400, int(600e6 / s.bytes()) + 1)) : 1;
  const auto& h = s.heads;
  check::Host st = check::step_of(std::vector<int>(R, 1), s.context);
  const size_t pool = size_t(st.pool_pages) * 16 * h.kv * h.hd;
  uint16_t *k = rig::weights(pool * copies, 1, 0), *v = rig::weights(pool * copies, 2, 0);
  const float* q = rig::upload(rig::normals(size_t(R) * h.heads * h.hd * 2, 3));
  const float *kk = rig::upload(rig::normals(size_t(R) * h.kv * h.hd, 4)), *vv = rig::upload(rig::normals(size_t(R) * h.kv * h.hd, 5));
  const float *norm = s.norm ? rig::upload(check::ones_about(h.hd, 6, 0)) : nullptr, *angles = rig::upload(rig::normals(size_t(R) * h.rot, 7));
  float* y = rig::device<float>(size_t(R) * h.heads * h.hd);
  const double us = rig::time_graph(std::max(copies, 40), [&](int i) {
    const size_t at = size_t(i % copies) * pool;
    ops::attention(st.device, R, h, q, kk, vv, norm, norm, angles, k + at, v + at, y, 1e-6f, 0);
  }, 9);
  rig::release();
  return us;
}

int main(int argc, char** argv) {
  const prefill::Words words(argc, argv);
  ops::meet(), ops::scratch();  // not while a graph is recorded
  if (words.has("check")) check::attentions();
  if (words.has("time")) {
    rig::measure_sweep();
    const ops::Heads llama{32, 8, 128, 128, 0}, qwen3{32, 4, 128, 128, 0}, gated{16, 2, 256, 64, 1}, micro{16, 2, 256, 64, 0};
    std::vector<Shape> shapes;
    for (int c : {63, 255, 1023, 4095}) shapes.push_back({"16 heads on 2 of 256", {c}, micro, false});
    for (int c : {128, 8192, 32768})
      shapes.push_back({"llama", {c}, llama, false}), shapes.push_back({"qwen3", {c}, qwen3, true}), shapes.push_back({"qwen3.5", {c}, gated, true});
    for (int c : {128, 1024, 8192})
      shapes.push_back({"llama, 8 rows", std::vector<int>(8, c), llama, false}), shapes.push_back({"qwen3.5, 8 rows", std::vector<int>(8, c), gated, true});
    shapes.push_back({"qwen3, ragged", {32768, 100, 100, 2000, 100, 100, 500, 100}, qwen3, true});
    for (const Shape& s : shapes)
      for (bool cold : {false, true}) {
        if (!cold && s.bytes() > 30e6) continue;
        char name[96];
        snprintf(name, sizeof name, "%s, %d keys, %s", s.name, s.context[0], cold ? "from memory" : "from L2");
        rig::report(name, timing(s, cold), s.bytes());
      }
  }
  return words.close();
}
