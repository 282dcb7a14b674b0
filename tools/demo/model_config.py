# SPDX-License-Identifier: MIT OR Apache-2.0
"""The demo model's config.json."""

CONFIG = {
    'architectures': ['Qwen3_5MoeForCausalLM'], 'model_type': 'qwen3_5_moe_text', 'vocab_size': 4096, 'hidden_size': 256, 'num_hidden_layers': 8,
    'layer_types': (['linear_attention'] * 3 + ['full_attention']) * 2, 'full_attention_interval': 4, 'num_attention_heads': 4, 'num_key_value_heads': 2, 'head_dim': 64,
    'attn_output_gate': True, 'attention_bias': False, 'hidden_act': 'silu', 'rms_norm_eps': 1e-6, 'linear_conv_kernel_dim': 4, 'linear_num_key_heads': 2,
    'linear_num_value_heads': 4, 'linear_key_head_dim': 64, 'linear_value_head_dim': 64, 'mamba_ssm_dtype': 'float32', 'num_experts': 8, 'num_experts_per_tok': 2,
    'moe_intermediate_size': 128, 'shared_expert_intermediate_size': 128, 'mtp_num_hidden_layers': 1, 'mtp_use_dedicated_embeddings': False,
    'max_position_embeddings': 2048, 'bos_token_id': None, 'eos_token_id': 2, 'pad_token_id': 0, 'tie_word_embeddings': True,
    'rope_parameters': {'rope_type': 'default', 'rope_theta': 10000.0, 'partial_rotary_factor': 0.5, 'mrope_interleaved': True, 'mrope_section': [6, 5, 5]},
}
