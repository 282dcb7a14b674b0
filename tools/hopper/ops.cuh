// SPDX-License-Identifier: MIT OR Apache-2.0
// Launches of the kernels as their manifests have them.
#pragma once

#include "attention.cuh"
#include "variants.cuh"

namespace ops {

using variants::Choice;

inline rig::Config cut(const variants::Set& s, const Choice& c, int units, int K, bool norm) {
  return {variants::grid(c, units), s.threads, variants::x_bytes(rows, K, norm)};
}
inline rig::Config usual(int N, int K, bool norm) {
  return {dim3(std::min(rig::sms, (N + 7) / 8)), k_linear::Usual::kThreads, size_t(4) * K * (rows + norm)};
}

// Stack is up to four matrices of one x.
struct Stack {
  const uint16_t* w[4] = {};
  const float* bias[4] = {};
  float* y[4] = {};
  int n[4] = {};
  int rows() const { return n[0] + n[1] + n[2] + n[3]; }
};

inline void linear(const int32_t* head, const float* x, const uint16_t* w, const float* bias, float* y, int N, int K) {
  auto c = usual(N, K, false);
  if (c.shared > size_t(rows::kNear)) c.shared = tiles::Window<k_linear::Usual>::kBytes * rows;
  rig::launch(k_linear::linear_rows_bf16, c, head, x, w, bias, y, N, K);
}
inline void linear_add(const int32_t* head, const float* x, const uint16_t* w, const float* bias, float* y, int N, int K) {
  if (!variants::forced && K > 8192 && rows <= 4) {
    rig::launch(k_linear::linear_add_rows_bf16_3, rig::Config{dim3(std::min(2 * rig::sms, (N + 7) / 8)), k_linear::Wide::kThreads}, head, x, w,
                bias, y, N, K);
    return;
  }
  const auto c = variants::choice("add", N, K);
  const auto& s = variants::all()[c.set];
  const auto cfg = cut(s, c, (N + 7) / 8, K, false);
  rig::launch(s.add, cfg, head, x, w, bias, y, N, K);
}
inline void linear_n(const int32_t* head, const float* x, const Stack& s, int K) {
  auto c = usual(s.rows(), K, false);
  if (c.shared > size_t(rows::kNear)) c.shared = tiles::Window<k_linear::Usual>::kBytes * rows;
  rig::launch(k_linear::linear_n_rows_bf16, c, head, x, s.w[0], s.w[1], s.w[2], s.w[3], s.bias[0], s.bias[1], s.bias[2], s.bias[3], s.y[0],
              s.y[1], s.y[2], s.y[3], s.n[0], s.n[1], s.n[2], s.n[3], K);
}
inline void norm_linear_n(const int32_t* head, const float* x, const float* norm, const Stack& s, int K, float eps, int plus_one) {
  const auto c = variants::choice("norm_n", s.rows(), K);
  const auto& v = variants::all()[c.set];
  rig::launch(v.norm_n, cut(v, c, (s.rows() + 7) / 8, K, true), head, x, norm, s.w[0], s.w[1], s.w[2], s.w[3], s.bias[0], s.bias[1],
              s.bias[2], s.bias[3], s.y[0], s.y[1], s.y[2], s.y[3], s.n[0], s.n[1], s.n[2], s.n[3], K, eps, plus_one);
}

inline void norm_linear_conv(const Step& st, const float* x, const float* norm, const Stack& s, const float* conv, float* state, int K,
                             float eps, int plus_one) {
  if (!variants::forced) {  // the tree's
    const auto kernel = rows == 1 ? k_queue::norm_linear_conv_rows_bf16_1 : rows <= 4 ? k_queue::norm_linear_conv_rows_bf16_4 : k_queue::norm_linear_conv_rows_bf16_8;
    rig::launch(kernel, rig::Config{dim3(std::min(rig::sms, (s.rows() + 7) / 8)), k_queue::kThreads, size_t(1024) * (32 * k_queue::kPieces + rows * ((K + 255) / 256))},
                st.head, st.row_seq, st.cu_rows, st.state_slot, st.fresh, x, norm, s.w[0], s.w[1], s.w[2], s.w[3], conv, nullptr, state, s.y[0],
                s.y[1], s.y[2], s.y[3], s.n[0], s.n[1], s.n[2], s.n[3], K, eps, plus_one);
    return;
  }
  const auto c = variants::choice("conv", s.rows(), K);
  const auto& v = variants::all()[c.set];
  rig::launch(v.conv, cut(v, c, (s.rows() + 7) / 8, K, true), st.head, st.row_seq, st.cu_rows, st.state_slot, st.fresh, x, norm, s.w[0],
              s.w[1], s.w[2], s.w[3], conv, state, s.y[0], s.y[1], s.y[2], s.y[3], s.n[0], s.n[1], s.n[2], s.n[3], K, eps, plus_one);
}
inline void logits(const Step& st, const float* x, const float* norm, const uint16_t* w, float* y, int N, int K, float eps, int plus_one) {
  const auto c = variants::choice("outs", N, K);
  const auto& v = variants::all()[c.set];
  rig::launch(v.outs, cut(v, c, (N + 7) / 8, K, true), st.head, x, st.out_rows, norm, w, nullptr, y, N, K, eps, plus_one);
}
inline void glu(const int32_t* head, const float* x, const uint16_t* g, const uint16_t* u, float* y, int N, int K) {
  rig::launch(k_linear::linear_glu_rows_bf16_silu, usual(N, K, false), head, x, g, u, y, N, K);
}
inline void norm_glu(const int32_t* head, const float* x, const float* norm, const uint16_t* g, const uint16_t* u, float* y, int N, int K,
                     float eps, int plus_one) {
  const auto c = variants::choice("glu", 2 * N, K);
  const auto& v = variants::all()[c.set];
  rig::launch(v.glu, cut(v, c, c.per_sm ? N / 8 : N / 4, K, true), head, x, norm, g, u, y, N, K, eps, plus_one);
}

struct Moe {
  const uint16_t *gate, *scale;                 // router [E, H]; shared expert's gate [1, H] or null
  const uint16_t *gate_up, *down;               // [E, 2I, H], [E, H, I]
  const uint16_t *sgate, *sup, *sdown;          // shared expert or null
  const float* norm;
  int E, I, S, H, k;
};
inline void router(const int32_t* head, const float* x, const Moe& m, float* h, int32_t* ids, float* weights, float* scale, float eps,
                   int plus_one) {
  const int cluster = 8;
  rig::launch(k_router::norm_router_rows_bf16_softmax,
              rig::Config{dim3(cluster), k_router::Usual::kThreads, size_t(4) * m.H * (rows + 1), cluster}, head, x, m.norm, m.gate, nullptr, m.scale, nullptr, nullptr,
              h, ids, weights, scale, m.E, m.H, m.k, eps, plus_one, 1, 0.0f, 1.0f);
}
inline int expert_launches = 3;  // bits: hidden, down
inline void experts_add(const int32_t* head, const float* x, const int32_t* ids, const float* weights, const float* scale, const Moe& m,
                        float* h, float* y) {
  const auto c = variants::choice("hidden", m.I, m.H), d = variants::choice("down", m.H, m.I);
  const auto &u = variants::all()[c.set], &v = variants::all()[d.set];
  const int tiles = rows * m.k * m.I / 8 + m.S / 8, outs = (m.H + 15) / 16 * rows;
  if (expert_launches & 1)
    rig::launch(u.hidden, rig::Config{variants::grid(c, c.per_sm ? tiles : 2 * tiles), u.threads, size_t(4) * m.H * rows}, head, x, ids,
                weights, m.gate_up, scale, m.sgate, m.sup, h, m.E, m.I, m.S, m.H, m.k);
  if (expert_launches & 2)
    rig::launch(v.down, rig::Config{variants::grid(d, d.per_sm ? outs : 2 * outs), v.threads, size_t(rows > 1 ? 8 : 4) * (m.k * m.I + m.S)},
                head, ids, h, m.down, m.sdown, y, m.I, m.S, m.H, m.k);
}

// experts_layer is router and experts_add in one launch; h [rows, k*I + S].
inline void experts_layer(const int32_t* head, float* x, const Moe& m, float* h, float eps, int plus_one) {
  const auto up = [](int n) { return (n + 255) / 256; };
  const auto& c = variants::kLayers[variants::layer_cut];
  const int region = 128 * std::max(rows * up(m.H), m.k * up(m.I) + up(m.S));
  rig::launch(c.kernel[rows == 1 ? 0 : rows <= 4 ? 1 : 2],
              rig::Config{dim3(rig::sms), k_layer::kThreads, size_t(8) * (4096 * c.pieces + region)}, head, x, m.norm, m.gate, m.scale,
              m.gate_up, m.down, m.sgate, m.sup, m.sdown, h, meet(), m.E, m.I, m.S, m.H, m.k, region, eps, plus_one, 1, 0.0f, 1.0f);
}

struct Delta {
  int k_heads, v_heads, k_dim, v_dim;
  int channels() const { return 2 * k_heads * k_dim + v_heads * v_dim; }
  int values() const { return v_heads * v_dim; }
};
inline void delta(const Step& st, int seqs, const Delta& d, const float* qkv, const float* a, const float* b, const float* z, const float* a_log,
                  const float* dt, const float* norm, float* state, float* y, float eps) {
  rig::launch(k_recurrent::delta_step_rows, rig::Config{dim3(d.v_heads, seqs), 512}, st.head, st.cu_rows, st.state_slot, st.fresh, qkv, a, b, z,
              a_log, dt, norm, state, y, d.k_heads, d.v_heads, d.k_dim, d.v_dim, float(1 / std::sqrt(double(d.k_dim))), 1e-6f, eps);
}

// --------------------------------------------------------------------------------------------- the small ones of a step

__global__ void embed(const int32_t* tokens, const uint16_t* w, float* x, int H) {
  const int r = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < H) x[int64_t(r) * H + i] = __uint_as_float(uint32_t(w[int64_t(tokens[r]) * H + i]) << 16);
}
__global__ void rope_angles(const int32_t* positions, float* y, int half, float base) {
  const int r = blockIdx.x, i = threadIdx.x;
  if (i >= half) return;
  const float f = float(positions[r]) * float(pow(double(base), -double(i) / half));
  y[r * 2 * half + i] = float(cos(double(f)));
  y[r * 2 * half + half + i] = float(sin(double(f)));
}
// Greedy choice: block b of a row has a part; the last of a row to come decides.
__device__ unsigned long long best[8][64];
__device__ unsigned came[8];
__global__ void argmax(const float* logits, int32_t* token, int V) {
  ptx::start_successor();
  ptx::wait_for_predecessor();
  __shared__ unsigned long long s[32];
  const int r = blockIdx.y, tid = threadIdx.x;
  unsigned long long top = 0;
  for (int i = (blockIdx.x * blockDim.x + tid) * 4; i < V; i += gridDim.x * blockDim.x * 4) {
    const float4 v = ptx::load_l2(reinterpret_cast<const float4*>(logits + int64_t(r) * V + i));
    const float w[4] = {v.x, v.y, v.z, v.w};
    for (int j = 0; j < 4; j++) {
      uint32_t u = __float_as_uint(w[j]);
      u = u >> 31 ? ~u : u | 0x80000000u;
      top = max(top, (unsigned long long)u << 32 | (0xffffffffu - (i + j)));
    }
  }
  for (int d = 16; d; d /= 2) top = max(top, __shfl_xor_sync(~0u, top, d));
  if (tid % 32 == 0) s[tid / 32] = top;
  __syncthreads();
  if (tid == 0) {
    for (int i = 1; i < int(blockDim.x) / 32; i++) top = max(top, s[i]);
    best[r][blockIdx.x] = top;
    __threadfence();
    if (ptx::add_release(&came[r], 1) == gridDim.x - 1) {
      came[r] = 0;
      for (int i = 0; i < int(gridDim.x); i++) top = max(top, *(volatile unsigned long long*)&best[r][i]);
      token[r] = int32_t(0xffffffffu - uint32_t(top));
    }
  }
}
__global__ void nothing() {
  ptx::start_successor();
  ptx::wait_for_predecessor();
}

}  // namespace ops
