# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes internal/circuit/testdata/rope.json: rotation tables as transformers computes them.

Usage: python tools/rope/make.py   (needs torch and transformers; run from the root of the repository)

Each case is a config.json (as a dict) and what its rotary embedding holds: inv_freq as float32 bits and attention_scaling.
"""
import json

from transformers import AutoConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.ministral3.modeling_ministral3 import Ministral3RotaryEmbedding
from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeTextRotaryEmbedding

LLAMA = {
    "model_type": "llama", "vocab_size": 512, "hidden_size": 512, "intermediate_size": 64, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "max_position_embeddings": 131072,
}
MINISTRAL = {**LLAMA, "model_type": "ministral3", "max_position_embeddings": 262144}
QWEN35 = {
    **LLAMA, "model_type": "qwen3_5_moe_text", "head_dim": 256, "num_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
}
del QWEN35["intermediate_size"]

CASES = [
    ({**LLAMA, "rope_theta": 500000.0}, LlamaRotaryEmbedding),
    ({**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}, LlamaRotaryEmbedding),
    ({**LLAMA, "head_dim": 80, "rope_theta": 1000000}, LlamaRotaryEmbedding),
    ({**LLAMA, "rope_scaling": {"type": "linear", "factor": 2.5}, "rope_theta": 10000.0}, LlamaRotaryEmbedding),
    ({**LLAMA, "rope_theta": 500000.0, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}}, LlamaRotaryEmbedding),
    ({**LLAMA, "head_dim": 64, "rope_parameters": {
        "rope_theta": 500000.0, "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}}, LlamaRotaryEmbedding),
    ({**LLAMA, "head_dim": 16, "max_position_embeddings": 256, "rope_parameters": {
        "rope_theta": 500000.0, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32}}, LlamaRotaryEmbedding),
    ({**LLAMA, "rope_theta": 1000000.0, "rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}, LlamaRotaryEmbedding),
    ({**LLAMA, "rope_parameters": {
        "rope_theta": 150000.0, "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
        "original_max_position_embeddings": 4096, "truncate": False}}, LlamaRotaryEmbedding),
    ({**LLAMA, "rope_parameters": {
        "rope_theta": 10000.0, "rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.707,
        "original_max_position_embeddings": 4096}}, LlamaRotaryEmbedding),
    ({**LLAMA, "rope_parameters": {
        "rope_theta": 10000.0, "rope_type": "yarn", "factor": 40.0, "attention_factor": 1.25,
        "original_max_position_embeddings": 4096}}, LlamaRotaryEmbedding),
    ({**MINISTRAL, "rope_parameters": {
        "rope_theta": 1000000.0, "rope_type": "yarn", "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
        "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1}},
     Ministral3RotaryEmbedding),
    ({**QWEN35, "rope_parameters": {
        "rope_theta": 10000000, "rope_type": "default", "partial_rotary_factor": 0.25, "mrope_interleaved": True,
        "mrope_section": [11, 11, 10]}}, Qwen3_5MoeTextRotaryEmbedding),
    ({**QWEN35, "rope_theta": 10000000}, Qwen3_5MoeTextRotaryEmbedding),
]


def main():
    out = []
    for config, embedding in CASES:
        args = json.loads(json.dumps(config))
        cfg = AutoConfig.for_model(args.pop("model_type"), **args)
        rope = embedding(cfg)
        bits = rope.inv_freq.numpy().view("uint32").tolist()
        out.append({"config": config, "inv_freq": bits, "scale": rope.attention_scaling})
    with open("internal/circuit/testdata/rope.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in out) + "\n]\n")


if __name__ == "__main__":
    main()
