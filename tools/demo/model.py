# SPDX-License-Identifier: MIT OR Apache-2.0
"""The demo model in PyTorch: qwen3_5_moe (text) with its draft layer, under the names of the published layout.

Gated delta nets and full attention 3:1, every layer with a mixture of experts and a shared expert. Experts are computed densely
with routing weights of zero: at this size that is faster than gathering. The delta rule is computed in chunks of rows by matrix products."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIG = {
    'architectures': ['Qwen3_5MoeForCausalLM'], 'model_type': 'qwen3_5_moe_text', 'vocab_size': 4096, 'hidden_size': 256, 'num_hidden_layers': 8,
    'layer_types': (['linear_attention'] * 3 + ['full_attention']) * 2, 'full_attention_interval': 4, 'num_attention_heads': 4, 'num_key_value_heads': 2, 'head_dim': 64,
    'attn_output_gate': True, 'attention_bias': False, 'hidden_act': 'silu', 'rms_norm_eps': 1e-6, 'linear_conv_kernel_dim': 4, 'linear_num_key_heads': 2,
    'linear_num_value_heads': 4, 'linear_key_head_dim': 64, 'linear_value_head_dim': 64, 'mamba_ssm_dtype': 'float32', 'num_experts': 8, 'num_experts_per_tok': 2,
    'moe_intermediate_size': 128, 'shared_expert_intermediate_size': 128, 'mtp_num_hidden_layers': 1, 'mtp_use_dedicated_embeddings': False,
    'max_position_embeddings': 2048, 'bos_token_id': None, 'eos_token_id': 2, 'pad_token_id': 0, 'tie_word_embeddings': True,
    'rope_parameters': {'rope_type': 'default', 'rope_theta': 10000.0, 'partial_rotary_factor': 0.5, 'mrope_interleaved': True, 'mrope_section': [6, 5, 5]},
}


class Norm(nn.Module):
    """x / rms(x) * (1 + w)."""

    def __init__(self, n, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(n)), eps

    def forward(self, x):
        return F.rms_norm(x.float(), (x.shape[-1],), 1 + self.weight.float(), self.eps).to(x.dtype)


class GatedNorm(nn.Module):
    """x / rms(x) * w * silu(z)."""

    def __init__(self, n, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x, z):
        return (F.rms_norm(x.float(), (x.shape[-1],), self.weight.float(), self.eps) * F.silu(z.float())).to(z.dtype)


def linear(n, m):
    return nn.Linear(n, m, bias=False)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, h, d = c, c['num_attention_heads'], c['head_dim']
        self.q_proj = linear(c['hidden_size'], h * d * 2)
        self.k_proj = linear(c['hidden_size'], c['num_key_value_heads'] * d)
        self.v_proj = linear(c['hidden_size'], c['num_key_value_heads'] * d)
        self.o_proj = linear(h * d, c['hidden_size'])
        self.q_norm, self.k_norm = Norm(d), Norm(d)

    def forward(self, x, angles):
        B, T, _ = x.shape
        d = self.c['head_dim']
        q, gate = self.q_proj(x).view(B, T, -1, 2 * d).chunk(2, -1)
        q = rotate(self.q_norm(q), angles).transpose(1, 2)
        k = rotate(self.k_norm(self.k_proj(x).view(B, T, -1, d)), angles).transpose(1, 2)
        v = self.v_proj(x).view(B, T, -1, d).transpose(1, 2)
        n = q.shape[1] // k.shape[1]
        o = F.scaled_dot_product_attention(q, k.repeat_interleave(n, 1), v.repeat_interleave(n, 1), is_causal=True)
        o = o.transpose(1, 2).reshape(B, T, -1) * torch.sigmoid(gate.reshape(B, T, -1))
        return self.o_proj(o)


def rotate(x, angles):
    """The first 2 * len(angles) dims of each head, halves paired. x [B, T, heads, d], angles [T, rot/2]."""
    n = angles.shape[-1]
    c, s = angles.cos()[:, None].to(x.dtype), angles.sin()[:, None].to(x.dtype)
    a, b, rest = x[..., :n], x[..., n:2 * n], x[..., 2 * n:]
    return torch.cat((a * c - b * s, b * c + a * s, rest), -1)


class DeltaNet(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.nk, self.nv, self.dk, self.dv = c['linear_num_key_heads'], c['linear_num_value_heads'], c['linear_key_head_dim'], c['linear_value_head_dim']
        wide = 2 * self.nk * self.dk + self.nv * self.dv
        self.in_proj_qkv, self.in_proj_z = linear(c['hidden_size'], wide), linear(c['hidden_size'], self.nv * self.dv)
        self.in_proj_b, self.in_proj_a = linear(c['hidden_size'], self.nv), linear(c['hidden_size'], self.nv)
        self.conv1d = nn.Conv1d(wide, wide, c['linear_conv_kernel_dim'], groups=wide, bias=False)
        self.A_log = nn.Parameter(torch.empty(self.nv).uniform_(1, 16).log())
        dt = torch.exp(torch.empty(self.nv).uniform_(math.log(1e-3), math.log(0.1)))
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.norm = GatedNorm(self.dv)
        self.out_proj = linear(self.nv * self.dv, c['hidden_size'])

    def forward(self, x, angles):
        B, T, _ = x.shape
        qkv, w = self.in_proj_qkv(x), self.conv1d.weight[:, 0]
        taps = w.shape[1]
        padded = F.pad(qkv, (0, 0, taps - 1, 0))
        qkv = F.silu(sum(padded[:, i:i + T] * w[:, i].to(qkv.dtype) for i in range(taps)))
        q, k, v = qkv.split([self.nk * self.dk, self.nk * self.dk, self.nv * self.dv], -1)
        q, k = (t.reshape(B, T, self.nk, self.dk).repeat_interleave(self.nv // self.nk, 2) for t in (q, k))
        v = v.reshape(B, T, self.nv, self.dv)
        beta = torch.sigmoid(self.in_proj_b(x))
        g = -self.A_log.float().exp() * F.softplus(self.in_proj_a(x).float() + self.dt_bias)
        o = delta_rule(q, k, v, g, beta)
        o = self.norm(o.reshape(-1, self.dv), self.in_proj_z(x).reshape(-1, self.dv))
        return self.out_proj(o.view(B, T, -1))


def delta_rule(q, k, v, g, beta, chunk=64):
    """The gated delta rule in its chunked form (arXiv 2412.06464, section 3.3), in float32.

    Within a chunk, rows see each other through T = (I - A)^-1, A strictly lower triangular; A^chunk is zero, so that T is the product of
    I + A^(2^i). q, k [B, T, h, dk] before their l2 norms, v [B, T, h, dv], g (log decay) and beta [B, T, h]."""
    with torch.autocast(q.device.type, enabled=False):
        kind, n = v.dtype, q.shape[1]
        unit = lambda t: t.float() * torch.rsqrt(t.float().pow(2).sum(-1, keepdim=True) + 1e-6)
        q, k, v, beta = unit(q) * q.shape[-1] ** -0.5, unit(k), v.float(), beta.float()
        pad = -n % chunk
        q, k, v, g, beta = (F.pad(t, (0, 0) * (t.dim() - 2) + (0, pad)).transpose(1, 2).unflatten(2, (-1, chunk)) for t in (q, k, v, g, beta))
        g = g.cumsum(-1)
        lower = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
        decay = (g[..., :, None] - g[..., None, :]).masked_fill(~lower, -1e30).exp()
        kb = k * beta[..., None]
        a = -(kb @ k.transpose(-1, -2) * decay).tril(-1)
        eye = torch.eye(chunk, device=q.device)
        t, power = eye + a, a
        for _ in range(chunk.bit_length() - 2):
            power = power @ power
            t = t + t @ power
        u, w = t @ (v * beta[..., None]), t @ (kb * g.exp()[..., None])
        scores, qg = q @ k.transpose(-1, -2) * decay, q * g.exp()[..., None]
        kg, last = k * (g[..., -1:] - g).exp()[..., None], g[..., -1].exp()
        S, out = torch.zeros(*q.shape[:2], q.shape[-1], v.shape[-1], device=q.device), []
        for i in range(q.shape[2]):
            fresh = u[:, :, i] - w[:, :, i] @ S
            out.append(qg[:, :, i] @ S + scores[:, :, i] @ fresh)
            S = S * last[:, :, i, None, None] + kg[:, :, i].transpose(-1, -2) @ fresh
        return torch.stack(out, 2).flatten(2, 3)[:, :, :n].transpose(1, 2).to(kind)


class Experts(nn.Module):
    def __init__(self, c):
        super().__init__()
        e, i, h = c['num_experts'], c['moe_intermediate_size'], c['hidden_size']
        self.gate_up_proj = nn.Parameter(torch.randn(e, 2 * i, h) * h ** -0.5)
        self.down_proj = nn.Parameter(torch.randn(e, h, i) * i ** -0.5)

    def forward(self, x, weights):
        """x [n, H], weights [n, E] with zeros for experts that were not chosen."""
        e, i2, h = self.gate_up_proj.shape
        g, u = (x @ self.gate_up_proj.reshape(e * i2, h).T.to(x.dtype)).view(-1, e, i2).chunk(2, -1)
        a = F.silu(g) * u * weights[..., None].to(x.dtype)
        return a.reshape(-1, e * i2 // 2) @ self.down_proj.permute(0, 2, 1).reshape(-1, h).to(x.dtype)


class SharedExpert(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, i = c['hidden_size'], c['shared_expert_intermediate_size']
        self.gate_proj, self.up_proj, self.down_proj = linear(h, i), linear(h, i), linear(i, h)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class MoE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.k = c['num_experts_per_tok']
        self.gate = linear(c['hidden_size'], c['num_experts'])
        self.experts, self.shared_expert = Experts(c), SharedExpert(c)
        self.shared_expert_gate = linear(c['hidden_size'], 1)

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        p = self.gate(flat).float().softmax(-1)
        top, ids = p.topk(self.k)
        chosen = torch.zeros_like(p).scatter(1, ids, top / top.sum(-1, keepdim=True))
        # Balance as in Switch Transformers (arXiv 2101.03961), equation 4: share of tokens times mean probability of each expert.
        self.balance = p.shape[-1] * ((chosen > 0).float().mean(0) / self.k * p.mean(0)).sum()
        y = self.experts(flat, chosen) + torch.sigmoid(self.shared_expert_gate(flat)) * self.shared_expert(flat)
        return y.view_as(x)


class Layer(nn.Module):
    def __init__(self, c, kind):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(c['hidden_size']), Norm(c['hidden_size'])
        self.mixer = 'self_attn' if kind == 'full_attention' else 'linear_attn'
        self.add_module(self.mixer, Attention(c) if kind == 'full_attention' else DeltaNet(c))
        self.mlp = MoE(c)

    def forward(self, x, angles):
        x = x + getattr(self, self.mixer)(self.input_layernorm(x), angles)
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c['vocab_size'], c['hidden_size'])
        self.layers = nn.ModuleList(Layer(c, k) for k in c['layer_types'])
        self.norm = Norm(c['hidden_size'])


class Draft(nn.Module):
    """From the trunk's normed output of row t and token t+1, the token t+2."""

    def __init__(self, c):
        super().__init__()
        h = c['hidden_size']
        self.fc = linear(2 * h, h)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = Norm(h), Norm(h), Norm(h)
        self.layers = nn.ModuleList([Layer(c, 'full_attention')])


class Model(nn.Module):
    def __init__(self, c=CONFIG):
        super().__init__()
        self.c, self.model, self.mtp = c, Trunk(c), Draft(c)
        for name, p in self.named_parameters():
            if name.endswith(('out_proj.weight', 'o_proj.weight', 'down_proj.weight')):
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * c['num_hidden_layers']))
            elif p.dim() == 2:
                nn.init.normal_(p, std=0.02)
        for m in self.modules():
            if isinstance(m, Experts):
                nn.init.normal_(m.gate_up_proj, std=0.02)
                nn.init.normal_(m.down_proj, std=0.02 / math.sqrt(2 * c['num_hidden_layers']))
        rope = c['rope_parameters']
        rot = int(c['head_dim'] * rope['partial_rotary_factor'])
        self.register_buffer('freq', 1 / rope['rope_theta'] ** (torch.arange(0, rot, 2).float() / rot), persistent=False)

    def hidden(self, ids):
        """The trunk's output after its final norm [B, T, H]."""
        angles = torch.arange(ids.shape[1], device=ids.device).float()[:, None] * self.freq
        x = self.model.embed_tokens(ids).to(torch.get_autocast_dtype('cuda') if torch.is_autocast_enabled('cuda') else self.model.embed_tokens.weight.dtype)
        for layer in self.model.layers:
            x = layer(x, angles)
        return self.model.norm(x)

    def draft(self, hidden, next_ids):
        """Draft rows: hidden [B, T, H] of row t, next_ids [B, T] the token at t+1."""
        angles = torch.arange(next_ids.shape[1], device=hidden.device).float()[:, None] * self.freq
        e = self.model.embed_tokens(next_ids).to(hidden.dtype)
        x = self.mtp.fc(torch.cat((self.mtp.pre_fc_norm_embedding(e), self.mtp.pre_fc_norm_hidden(hidden)), -1))
        return self.mtp.norm(self.mtp.layers[0](x, angles))

    def logits(self, h):
        return F.linear(h, self.model.embed_tokens.weight.to(h.dtype))

    def balance(self):
        return sum(m.balance for m in self.modules() if isinstance(m, MoE))
