// SPDX-License-Identifier: MIT OR Apache-2.0
// Family recurrent, a few rows a sequence: l2 norms of q and k, gates, the gated delta rule, and the convolution before or the gated norm
// behind it, in one launch.
//
// A block is one value head of one sequence; its state [v_dim, k_dim] lies in registers from the first row to the last:
//
//	          k_dim: 4·lane … 4·lane+3
//	warp w    v rows 8w … 8w+7
//
// so sums over k_dim stay in a warp. With S the state before a row, a = exp(g), d = beta*(v - a S k):  S' = a S + d kᵀ  and
// y = S' q = a S q + (k·q) d, so one pass over S gives both sums. The state is read before the predecessor launch is waited for:
// only this layer writes it.
//
// Grid [v_heads, seqs], 512 threads. k_dim at most 128 and a multiple of 4; v_dim at most 128.

#include <climits>

#include "../../../include/epilogue/act.cuh"
#include "../../../include/ptx/cluster.cuh"

namespace {

constexpr int kWarps = 16, kMax = 128, kPer = kMax / kWarps;

__device__ __forceinline__ float sum_lanes(float v) {
#pragma unroll
  for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  return v;
}

// sum_lanes_of adds 8 values over the lanes at once; lanes 4i to 4i+3 get value i. A lane passes on the half it does not keep.
__device__ __forceinline__ float sum_lanes_of(float (&v)[8]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int d = 16, n = 4; d > 2; d /= 2, n /= 2) {
    const bool upper = lane & d;
#pragma unroll
    for (int i = 0; i < n; i++) {
      const float keep = upper ? v[i + n] : v[i], pass = upper ? v[i] : v[i + n];
      v[i] = keep + __shfl_xor_sync(~0u, pass, d);
    }
  }
  v[0] += __shfl_xor_sync(~0u, v[0], 2);
  return v[0] + __shfl_xor_sync(~0u, v[0], 1);
}

__device__ __forceinline__ float dot(const float4& a, const float4& b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }

// Step is what both kernels work on.
struct Step {
  const int32_t *head, *cu_rows, *state_slot, *fresh;
  const float *qkv, *a, *b, *a_log, *dt_bias;
  float *state, *y;
  int k_heads, v_heads, k_dim, v_dim;
  float q_scale, l2_eps;
  const float* taps;  // of the convolution
  float* conv_state;
};

// run takes the sequences of up to most rows. Conv: qkv is what the convolution is to be made of. Normed: y is the rule's output by its
// norm, times norm and silu(z). Keeps: blocks of a cluster are the two heads of a key head, and what the convolution keeps is written.
template <bool Conv, bool Normed, bool Keeps>
__device__ __forceinline__ void run(const Step& p, const float* z, const float* norm, float eps, int most) {
  const int k_heads = p.k_heads, v_heads = p.v_heads, k_dim = p.k_dim, v_dim = p.v_dim;
  __align__(16) __shared__ float k[kMax], q[kMax];
  __shared__ float v[kMax], gate[kMax];  // gate: norm weight times silu(z)
  __shared__ float rate, bias, decay, beta;
  __shared__ float out[kMax];
  __shared__ float squares[2][4], out_squares[kWarps];
  __shared__ float4 taps[Conv ? 3 * kMax : 1];  // each thread's own
  ptx::start_successor();
  const int h = blockIdx.x, seq = blockIdx.y, tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
  const bool there = seq < ptx::load_early(p.head + 1);
  const int first = there ? ptx::load_early(p.cu_rows + seq) : 0, end = there ? ptx::load_early(p.cu_rows + seq + 1) : 0;
  if (first == end || end - first > most) return ptx::wait_for_predecessor();
  const bool real = 4 * lane < k_dim;
  // The state's place is worked out twice, to hold no registers in between.
  auto place = [&]() {
    return p.state + ((int64_t(ptx::load_l2(p.state_slot + seq)) * v_heads + h) * v_dim + kPer * warp) * k_dim + 4 * lane;
  };
  float4 s[kPer];
  const bool old = !p.fresh[seq];
  // Warps 0 to 3 bring k, 4 to 7 q, 8 to 11 v, 12 to 15 z, a value a thread. Of an input of the convolution a thread has the taps and the
  // three values before.
  const auto channel_of = [&](int at) {
    const int i = at % kMax, what = at / kMax;
    return what == 2 ? 2 * k_heads * k_dim + h * v_dim + i : ((what == 0 ? k_heads : 0) + h / (v_heads / k_heads)) * k_dim + i;
  };
  const auto is_input = [&](int at) { return at / kMax < 2 ? at % kMax < k_dim : at / kMax == 2 && at % kMax < v_dim; };
  const int C = 2 * k_heads * k_dim + v_heads * v_dim;
  float past[3] = {};
  const auto kept = [&](int channel) { return p.conv_state + int64_t(ptx::load_l2(p.state_slot + seq)) * 3 * C + channel; };
  if (Conv && is_input(tid)) {
    const int channel = channel_of(tid);
    taps[tid] = *reinterpret_cast<const float4*>(p.taps + 4 * channel);
    if (old)
#pragma unroll
      for (int j = 0; j < 3; j++) past[j] = ptx::load_l2(kept(channel) + j * C);
  }
  float* S = place();
#pragma unroll
  for (int j = 0; j < kPer; j++) {
    s[j] = make_float4(0, 0, 0, 0);
    if (old && real && kPer * warp + j < v_dim) s[j] = ptx::load_l2(reinterpret_cast<const float4*>(S + j * k_dim));
  }
  if (tid == 32 * kWarps - 1) rate = -__expf(p.a_log[h]), bias = p.dt_bias[h];
  ptx::wait_for_predecessor();

#pragma unroll 1
  for (int row = first;;) {
    int at = tid, head_of = h;
    asm volatile("" : "+r"(at), "+r"(head_of));  // addresses are not worth registers across rows
    const int i = at % kMax, what = at / kMax, warp = at / 32, lane = at % 32, h = head_of;
    const bool input = is_input(at);
    float mine = 0;
    if (input) mine = ptx::load_l2(p.qkv + int64_t(row) * C + channel_of(at));
    if (Conv && input) {
      const float4 w = taps[at];
      const float x = mine, sum = fmaf(w.w, x, fmaf(w.z, past[2], fmaf(w.y, past[1], w.x * past[0])));
      past[0] = past[1], past[1] = past[2], past[2] = x;
      mine = act::silu::of(sum);
    }
    if (Normed && what == 3 && i < v_dim) mine = ptx::load_l2(z + (int64_t(row) * v_heads + h) * v_dim + i);
    if (at == 32 * kWarps - 1) {
      decay = __expf(rate * act::softplus::of(ptx::load_l2(p.a + int64_t(row) * v_heads + h) + bias));
      beta = act::sigmoid::of(ptx::load_l2(p.b + int64_t(row) * v_heads + h));
    }
    if (what < 2) {
      (what == 0 ? k : q)[i] = mine;
      const float square = sum_lanes(mine * mine);
      if (lane == 0) squares[what][warp % 4] = square;
    }
    if (what == 2) v[i] = mine;
    if (Normed && what == 3) gate[i] = i < v_dim ? norm[i] * act::silu::of(mine) : 0;
    __syncthreads();
    const float fk = rsqrtf(squares[0][0] + squares[0][1] + squares[0][2] + squares[0][3] + p.l2_eps);
    const float fq = rsqrtf(squares[1][0] + squares[1][1] + squares[1][2] + squares[1][3] + p.l2_eps) * p.q_scale;
    const float4 kk = *reinterpret_cast<const float4*>(&k[4 * lane]), qq = *reinterpret_cast<const float4*>(&q[4 * lane]);  // raw
    const float kq = sum_lanes(dot(kk, qq)) * fk * fq, g = decay;
    // Lane 8j + half has row 4 half + j of the warp: what it writes to the state, and its output.
    float square = 0;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float sums[8];
#pragma unroll
      for (int j = 0; j < 4; j++) sums[2 * j] = dot(s[4 * half + j], kk), sums[2 * j + 1] = dot(s[4 * half + j], qq);
      const float all = sum_lanes_of(sums);
      const float sk = __shfl_sync(~0u, all, lane & ~4) * fk, sq = __shfl_sync(~0u, all, lane | 4) * fq;
      const float d = beta * (v[kPer * warp + 4 * half + lane / 8] - g * sk);
      if (lane % 8 == half) {
        const int vr = kPer * warp + 4 * half + lane / 8;
        const float o = g * sq + kq * d;
        out[vr] = o;
        square = vr < v_dim ? o * o : 0.0f;
      }
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float dj = __shfl_sync(~0u, d, 8 * j) * fk;
        float4& x = s[4 * half + j];
        x.x = g * x.x + kk.x * dj;
        x.y = g * x.y + kk.y * dj;
        x.z = g * x.z + kk.z * dj;
        x.w = g * x.w + kk.w * dj;
      }
    }
    if (Normed) {
      square = sum_lanes(square);
      if (lane == 0) out_squares[warp] = square;
    }
    __syncthreads();
    if (what == 0 && i < v_dim) {
      float factor = 1;
      if (Normed) {
        float n = 0;
#pragma unroll
        for (int j = 0; j < kWarps; j++) n += out_squares[j];
        factor = rsqrtf(n / float(v_dim) + eps) * gate[i];
      }
      p.y[(int64_t(row) * v_heads + h) * v_dim + i] = out[i] * factor;
    }
    if (++row >= end) break;
    __syncthreads();
  }
  if (Keeps) {
    ptx::cluster_sync<2>();  // both heads have read it
    int at = tid;
    asm volatile("" : "+r"(at));
    if (is_input(at) && (at / kMax == 2 || h % 2 == 0)) {
      float* to = kept(channel_of(at));
#pragma unroll
      for (int j = 0; j < 3; j++) to[j * C] = past[j];
    }
  }
  S = place();
#pragma unroll
  for (int j = 0; j < kPer; j++)
    if (real && kPer * warp + j < v_dim) *reinterpret_cast<float4*>(S + j * k_dim) = s[j];
}

}  // namespace

extern "C" __global__ void __launch_bounds__(32 * kWarps, 2) delta_step_rows(
    const int32_t* __restrict__ head, const int32_t* __restrict__ cu_rows, const int32_t* __restrict__ state_slot, const int32_t* __restrict__ fresh,
    const float* __restrict__ qkv,      // [rows, 2*k_heads*k_dim + v_heads*v_dim], after the convolution
    const float* __restrict__ a,        // [rows, v_heads]
    const float* __restrict__ b,        // [rows, v_heads]
    const float* __restrict__ z,        // [rows, v_heads*v_dim]
    const float* __restrict__ a_log,    // [v_heads]
    const float* __restrict__ dt_bias,  // [v_heads]
    const float* __restrict__ norm,     // [v_dim]
    float* state,                       // [slots, v_heads, v_dim, k_dim]
    float* __restrict__ y,              // [rows, v_heads*v_dim]
    int32_t k_heads, int32_t v_heads, int32_t k_dim, int32_t v_dim, float q_scale, float l2_eps, float eps) {
  run<false, true, false>({head, cu_rows, state_slot, fresh, qkv, a, b, a_log, dt_bias, state, y, k_heads, v_heads, k_dim, v_dim, q_scale, l2_eps, nullptr, nullptr}, z, norm, eps, INT_MAX);
}

// The same with the convolution before. Clusters of two.
extern "C" __global__ void __launch_bounds__(32 * kWarps, 2) delta_conv_step_rows(
    const int32_t* __restrict__ head, const int32_t* __restrict__ cu_rows, const int32_t* __restrict__ state_slot, const int32_t* __restrict__ fresh,
    const float* __restrict__ qkv,   // [rows, C], before it, C = 2*k_heads*k_dim + v_heads*v_dim
    const float* __restrict__ taps,  // [C, 4]
    float* conv_state,               // [slots, 3, C]
    const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ z, const float* __restrict__ a_log,
    const float* __restrict__ dt_bias, const float* __restrict__ norm, float* state, float* __restrict__ y, int32_t k_heads, int32_t v_heads,
    int32_t k_dim, int32_t v_dim, float q_scale, float l2_eps, float eps) {
  run<true, true, true>({head, cu_rows, state_slot, fresh, qkv, a, b, a_log, dt_bias, state, y, k_heads, v_heads, k_dim, v_dim, q_scale, l2_eps, taps, conv_state}, z,
                        norm, eps, INT_MAX);
}

// The same without the gated norm, with the convolution before, of sequences of up to most rows. What the convolution keeps is not
// written: heads share it.
extern "C" __global__ void __launch_bounds__(32 * kWarps, 2) delta_few_rows(
    const int32_t* __restrict__ head, const int32_t* __restrict__ cu_rows, const int32_t* __restrict__ state_slot, const int32_t* __restrict__ fresh,
    const float* __restrict__ qkv,         // [rows, C], before it, C = 2*k_heads*k_dim + v_heads*v_dim
    const float* __restrict__ taps,        // [C, 4]
    float* conv_state,                     // [slots, 3, C]
    const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ a_log,
    const float* __restrict__ dt_bias, float* state, float* __restrict__ y, int32_t k_heads, int32_t v_heads, int32_t k_dim, int32_t v_dim, float q_scale,
    float l2_eps, int32_t most) {
  run<true, false, false>({head, cu_rows, state_slot, fresh, qkv, a, b, a_log, dt_bias, state, y, k_heads, v_heads, k_dim, v_dim, q_scale, l2_eps, taps, conv_state}, nullptr, nullptr, 0,
             most);
}
