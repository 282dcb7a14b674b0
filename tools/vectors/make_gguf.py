#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes what the GGUF tests hold the reader against (needs the Python packages gguf and numpy).

internal/weights/gguf/testdata/dequant.txt: per block format "<format> <blocks> <sha256> <first values>" of what the gguf
    package makes of a pseudo-random byte stream (the test makes the same stream: see stream).
internal/weights/testdata/<architecture>.gguf: a tiny random model, converted as llama.cpp's converter does, and
<architecture>.txt: its tensors as the Hugging Face checkpoint has them: "<name> <dtype> <extents> <sha256 of the bytes>".
"""
import hashlib
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q
from gguf import quants

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Offsets of the halves in a block: their top exponent bit is cleared, so that they stay finite.
HALVES = {Q.Q4_0: [0], Q.Q4_1: [0, 2], Q.Q5_0: [0], Q.Q5_1: [0, 2], Q.Q8_0: [0], Q.Q2_K: [80, 82], Q.Q3_K: [108],
          Q.Q4_K: [0, 2], Q.Q5_K: [0, 2], Q.Q6_K: [208], Q.IQ4_NL: [0], Q.MXFP4: []}


def stream(name, n):
    """n bytes: sha256("<name> 0"), sha256("<name> 1"), …"""
    out = b""
    i = 0
    while len(out) < n:
        out += hashlib.sha256(f"{name} {i}".encode()).digest()
        i += 1
    return out[:n]


def dequant():
    with open(ROOT / "internal/weights/gguf/testdata/dequant.txt", "w") as w:
        for q, halves in HALVES.items():
            elems, size = gguf.GGML_QUANT_SIZES[q]
            blocks = 8192 // elems
            raw = np.frombuffer(stream(q.name.lower(), blocks * size), np.uint8).reshape(blocks, size).copy()
            for h in halves:
                raw[:, h + 1] &= 0xBF
            f = quants.dequantize(raw, q).astype("<f4").reshape(-1)
            assert f.size == blocks * elems and not np.isnan(f).any()
            first = " ".join(f"{x:08x}" for x in f[:4].view(np.uint32))
            print(q.name.lower(), blocks, hashlib.sha256(f.tobytes()).hexdigest(), first, file=w)


class Model:
    """A GGUF file in the making, and the checkpoint that it is converted from."""

    def __init__(self, arch, **kw):
        self.path = ROOT / f"internal/weights/testdata/{arch}.gguf"
        self.w = gguf.GGUFWriter(self.path, arch, **kw)
        self.arch, self.want, self.rng = arch, [], np.random.default_rng(len(arch))

    def random(self, *shape):
        return (self.rng.standard_normal(shape) * 0.25).astype(np.float32)

    def expect(self, name, dtype, shape, data):
        extents = "x".join(map(str, shape))
        self.want.append(f"{name} {dtype} {extents} {hashlib.sha256(data.tobytes()).hexdigest()}")

    def add(self, stored, name, x, q=Q.F32, convert=lambda x: x, back=None, shape=None, split=None):
        """Stores convert(x) quantised as q under stored. The checkpoint has name: x quantised (row and block orders
        commute with quantisation), or what back makes of the stored numbers, as float32."""
        y = convert(x)
        data = quants.quantize(y, q) if q != Q.F32 else y
        self.w.add_tensor(stored, data, raw_dtype=q if q not in (Q.F32, Q.F16) else None)
        if back is not None:
            z = quants.dequantize(data, q) if q != Q.F32 else data
            self.expect(name, "f32", shape or x.shape, back(z.reshape(y.shape)).astype("<f4"))
            return
        for part, z in (split or (lambda x: [(name, x)]))(x):
            self.expect(part, q.name.lower(), shape or z.shape, quants.quantize(z, q) if q != Q.F32 else z)

    def experts(self, stored, pattern, x, q):
        self.add(stored, "", x, q, split=lambda x: [(pattern.format(e), x[e]) for e in range(len(x))])

    def common(self, vocab, hidden, layers, heads, kv, ff, eps=1e-6, theta=10000.0, dim=None):
        w = self.w
        w.add_block_count(layers)
        w.add_context_length(512)
        w.add_embedding_length(hidden)
        if ff:
            w.add_feed_forward_length(ff)
        w.add_head_count(heads)
        w.add_head_count_kv(kv)
        w.add_layer_norm_rms_eps(eps)
        w.add_rope_freq_base(theta)
        if dim:
            w.add_key_length(dim)
            w.add_value_length(dim)
        w.add_file_type(7)
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("qwen2")
        w.add_token_list([f"t{i}" for i in range(vocab)])
        w.add_token_types([1] * vocab)
        w.add_bos_token_id(1)
        w.add_eos_token_id(2)
        w.add_eot_token_id(3)
        w.add_chat_template("{{ messages }}")
        w.add_array("general.languages", ["en", "fr"])

    def close(self):
        self.w.write_header_to_file()
        self.w.write_kv_data_to_file()
        self.w.write_tensors_to_file()
        self.w.close()
        self.path.with_suffix(".txt").write_text("".join(s + "\n" for s in sorted(self.want)))


def pairs(x, heads):
    """llama.cpp's permutation of rotary rows: halves to neighbours."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def tile(x, axis, keys, per, dim):
    """llama.cpp's order of value heads: grouped by key head to tiled."""
    s = x.shape
    y = x.reshape(s[:axis] + (keys, per, dim) + s[axis + 1:])
    return np.ascontiguousarray(y.swapaxes(axis, axis + 1)).reshape(s)


def block(m, i, hidden, heads, kv, dim, ff, rotary=False, norms=False, bias=False, types=(Q.Q4_1, Q.Q5_1, Q.Q8_0)):
    """The attention and dense feed-forward tensors of one block."""
    b, h = f"blk.{i}.", f"model.layers.{i}."
    q, k, v = types
    order = (lambda n: (lambda x: pairs(x, n))) if rotary else (lambda n: (lambda x: x))
    m.add(b + "attn_norm.weight", h + "input_layernorm.weight", m.random(hidden))
    m.add(b + "attn_q.weight", h + "self_attn.q_proj.weight", m.random(heads * dim, hidden), q, order(heads))
    m.add(b + "attn_k.weight", h + "self_attn.k_proj.weight", m.random(kv * dim, hidden), k, order(kv))
    m.add(b + "attn_v.weight", h + "self_attn.v_proj.weight", m.random(kv * dim, hidden), v)
    m.add(b + "attn_output.weight", h + "self_attn.o_proj.weight", m.random(hidden, heads * dim), Q.Q4_0)
    if bias:
        m.add(b + "attn_q.bias", h + "self_attn.q_proj.bias", m.random(heads * dim), convert=order(heads))
        m.add(b + "attn_k.bias", h + "self_attn.k_proj.bias", m.random(kv * dim), convert=order(kv))
        m.add(b + "attn_v.bias", h + "self_attn.v_proj.bias", m.random(kv * dim))
    if norms:
        m.add(b + "attn_q_norm.weight", h + "self_attn.q_norm.weight", m.random(dim))
        m.add(b + "attn_k_norm.weight", h + "self_attn.k_norm.weight", m.random(dim))
    m.add(b + "ffn_norm.weight", h + "post_attention_layernorm.weight", m.random(hidden))
    if ff:
        m.add(b + "ffn_gate.weight", h + "mlp.gate_proj.weight", m.random(ff, hidden), Q.Q5_0)
        m.add(b + "ffn_up.weight", h + "mlp.up_proj.weight", m.random(ff, hidden), Q.F16)
        m.add(b + "ffn_down.weight", h + "mlp.down_proj.weight", m.random(hidden, ff), Q.BF16)


def ends(m, vocab, hidden, head=False, one=False):
    m.add("token_embd.weight", "model.embed_tokens.weight", m.random(vocab, hidden), Q.Q8_0)
    back = dict(convert=lambda x: x + 1, back=lambda x: x - np.float32(1)) if one else {}
    m.add("output_norm.weight", "model.norm.weight", m.random(hidden), **back)
    if head:
        m.add("output.weight", "lm_head.weight", m.random(vocab, hidden), Q.Q8_0)


def llama():
    m = Model("llama")
    m.common(40, 64, 2, 4, 2, 96, 1e-5, 500000.0)
    m.w.add_vocab_size(40)
    m.w.add_rope_dimension_count(16)
    ends(m, 40, 64)
    for i in range(2):
        block(m, i, 64, 4, 2, 16, 96, rotary=True)
    wave = 2 * np.pi * 500000.0 ** (np.arange(8) / 8)
    smooth = (8192 / wave - 1) / 3
    f = np.where(wave < 2048, 1, np.where(wave > 8192, 8.0, 1 / ((1 - smooth) / 8.0 + smooth)))
    m.w.add_tensor("rope_freqs.weight", f.astype(np.float32))
    m.close()


def mistral3():
    m = Model("mistral3")
    m.common(40, 64, 1, 4, 2, 96, 1e-5, 1000000.0, 32)
    m.w.add_vocab_size(40)
    m.w.add_rope_dimension_count(32)
    m.w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    m.w.add_rope_scaling_factor(16.0)
    m.w.add_rope_scaling_orig_ctx_len(32)
    m.w.add_rope_scaling_yarn_beta_fast(32.0)
    m.w.add_rope_scaling_yarn_beta_slow(1.0)
    m.w.add_rope_scaling_yarn_log_mul(1.0)
    m.w.add_attn_temperature_scale(0.1)
    ends(m, 40, 64, head=True)
    block(m, 0, 64, 4, 2, 32, 96, rotary=True)
    m.close()


def qwen2():
    m = Model("qwen2")
    m.common(40, 64, 1, 4, 2, 96)
    ends(m, 40, 64)
    block(m, 0, 64, 4, 2, 16, 96, bias=True)
    m.close()


def qwen3():
    """In two parts."""
    m = Model("qwen3", split_max_tensors=8)
    m.common(40, 64, 1, 4, 2, 96, 1e-6, 1000000.0, 32)
    ends(m, 40, 64, head=True)
    block(m, 0, 64, 4, 2, 32, 96, norms=True)
    m.close()


def moe(m, i, hidden, inner, count, prefix="", fused=False):
    b, h = f"blk.{i}.", prefix or f"model.layers.{i}."
    m.add(b + "ffn_gate_inp.weight", h + "mlp.gate.weight", m.random(count, hidden))
    if fused:
        x = m.random(count, 2 * inner, hidden)
        halves = lambda x: [(h + f"mlp.experts.{e}.{n}_proj.weight", x[e, p * inner:(p + 1) * inner])
                            for e in range(count) for p, n in enumerate(("gate", "up"))]
        m.add(b + "ffn_gate_up_exps.weight", "", x, Q.Q8_0, split=halves)
    else:
        for n in ("gate", "up"):
            m.experts(b + f"ffn_{n}_exps.weight", h + "mlp.experts.{}." + n + "_proj.weight", m.random(count, inner, hidden), Q.Q8_0)
    m.experts(b + "ffn_down_exps.weight", h + "mlp.experts.{}.down_proj.weight", m.random(count, hidden, inner), Q.Q5_0)


def qwen3moe():
    m = Model("qwen3moe")
    m.common(40, 64, 1, 4, 2, 96, 1e-6, 1000000.0, 32)
    m.w.add_expert_count(3)
    m.w.add_expert_used_count(2)
    m.w.add_expert_feed_forward_length(32)
    ends(m, 40, 64, head=True)
    block(m, 0, 64, 4, 2, 32, 0, norms=True)
    moe(m, 0, 64, 32, 3)
    m.close()


def hybrid(arch, value_dim, ff):
    """qwen35 and qwen35moe: two blocks, the second with full attention, and one that predicts a further token."""
    m = Model(arch)
    hidden, keys, values, key_dim, dim = 64, 2, 6, 16, 32
    per = values // keys
    m.common(40, hidden, 3, 4, 2, ff, 1e-6, 10000000.0, dim)
    m.w.add_nextn_predict_layers(1)
    m.w.add_rope_dimension_count(8)
    m.w.add_rope_dimension_sections([2, 1, 1, 0])
    m.w.add_full_attention_interval(2)
    m.w.add_ssm_conv_kernel(4)
    m.w.add_ssm_state_size(key_dim)
    m.w.add_ssm_group_count(keys)
    m.w.add_ssm_time_step_rank(values)
    m.w.add_ssm_inner_size(values * value_dim)
    if not ff:
        m.w.add_expert_count(2)
        m.w.add_expert_used_count(1)
        m.w.add_expert_feed_forward_length(32)
        m.w.add_expert_shared_feed_forward_length(32)
    one = dict(convert=lambda x: x + 1, back=lambda x: x - np.float32(1))
    rows = lambda n: (lambda x: tile(x, 0, keys, per, n))
    qk = 2 * keys * key_dim

    def tail(x):
        return np.concatenate([x[:qk], tile(x[qk:], 0, keys, per, value_dim)])

    def cols(x):
        return tile(x, 1, keys, per, value_dim)

    def uncols(y):
        return tile(y, 1, per, keys, value_dim)

    def ffn(i, h):
        b = f"blk.{i}."
        m.add(b + "post_attention_norm.weight", h + "post_attention_layernorm.weight", m.random(hidden), **one)
        if ff:
            for n in ("gate", "up"):
                m.add(b + f"ffn_{n}.weight", h + f"mlp.{n}_proj.weight", m.random(ff, hidden), Q.Q8_0)
            m.add(b + "ffn_down.weight", h + "mlp.down_proj.weight", m.random(hidden, ff), Q.Q8_0)
            return
        moe(m, i, hidden, 32, 2, h, fused=i == 1)
        for n in ("gate", "up"):
            m.add(b + f"ffn_{n}_shexp.weight", h + f"mlp.shared_expert.{n}_proj.weight", m.random(32, hidden), Q.Q8_0)
        m.add(b + "ffn_down_shexp.weight", h + "mlp.shared_expert.down_proj.weight", m.random(hidden, 32), Q.Q8_0)
        m.add(b + "ffn_gate_inp_shexp.weight", h + "mlp.shared_expert_gate.weight", m.random(hidden), shape=(1, hidden))

    def attention(i, h):
        b = f"blk.{i}."
        m.add(b + "attn_q.weight", h + "self_attn.q_proj.weight", m.random(2 * 4 * dim, hidden), Q.Q8_0)
        for n in ("k", "v"):
            m.add(b + f"attn_{n}.weight", h + f"self_attn.{n}_proj.weight", m.random(2 * dim, hidden), Q.Q8_0)
        m.add(b + "attn_output.weight", h + "self_attn.o_proj.weight", m.random(hidden, 4 * dim), Q.Q8_0)
        for n in ("q", "k"):
            m.add(b + f"attn_{n}_norm.weight", h + f"self_attn.{n}_norm.weight", m.random(dim), **one)

    ends(m, 40, hidden, head=True, one=True)
    h, b = "model.layers.0.", "blk.0."
    m.add(b + "attn_norm.weight", h + "input_layernorm.weight", m.random(hidden), **one)
    inner = values * value_dim
    a = h + "linear_attn."
    m.add(b + "attn_qkv.weight", a + "in_proj_qkv.weight", m.random(qk + inner, hidden), Q.Q8_0, tail)
    m.add(b + "attn_gate.weight", a + "in_proj_z.weight", m.random(inner, hidden), Q.Q5_1, rows(value_dim))
    m.add(b + "ssm_beta.weight", a + "in_proj_b.weight", m.random(values, hidden), Q.Q8_0, rows(1))
    m.add(b + "ssm_alpha.weight", a + "in_proj_a.weight", m.random(values, hidden), Q.F32, rows(1))
    m.add(b + "ssm_conv1d.weight", a + "conv1d.weight", m.random(qk + inner, 4), Q.F32, tail, shape=(qk + inner, 1, 4))
    m.add(b + "ssm_dt.bias", a + "dt_bias", m.random(values), Q.F32, rows(1))
    m.add(b + "ssm_a", a + "A_log", m.random(values), Q.F32, lambda x: rows(1)(-np.exp(x)),
          back=lambda y: np.log(-tile(y, 0, per, keys, 1).astype(np.float64)))
    m.add(b + "ssm_norm.weight", a + "norm.weight", m.random(value_dim))
    m.add(b + "ssm_out.weight", a + "out_proj.weight", m.random(hidden, inner), Q.Q8_0, cols, back=uncols if value_dim % 32 else None)
    ffn(0, h)
    m.add("blk.1.attn_norm.weight", "model.layers.1.input_layernorm.weight", m.random(hidden), **one)
    attention(1, "model.layers.1.")
    ffn(1, "model.layers.1.")
    for n, name in (("eh_proj", "fc"), ("enorm", "pre_fc_norm_embedding"), ("hnorm", "pre_fc_norm_hidden"), ("shared_head_norm", "norm")):
        x = m.random(hidden, 2 * hidden) if n == "eh_proj" else m.random(hidden)
        m.add(f"blk.2.nextn.{n}.weight", f"mtp.{name}.weight", x, **({} if n == "eh_proj" else one))
    m.add("blk.2.attn_norm.weight", "mtp.layers.0.input_layernorm.weight", m.random(hidden), **one)
    attention(2, "mtp.layers.0.")
    ffn(2, "mtp.layers.0.")
    m.close()


if __name__ == "__main__":
    dequant()
    llama()
    mistral3()
    qwen2()
    qwen3()
    qwen3moe()
    hybrid("qwen35", 32, 96)
    hybrid("qwen35moe", 16, 0)
