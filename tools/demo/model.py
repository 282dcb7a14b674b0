# SPDX-License-Identifier: MIT OR Apache-2.0
"""The demo model in PyTorch: qwen3_5_moe (text) with its draft layer, under the names of the published layout.

Gated delta nets and full attention 3:1, every layer with a mixture of experts and a shared expert. Experts are computed densely
with routing weights of zero: at this size that is faster than gathering. The delta rule is computed in chunks of rows by matrix products.

A row of tokens may hold several texts: pos [B, T] counts within each. Nothing passes from one to the next: attention is masked, the
state of delta nets and of their convolutions begins anew."""
import math
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F

from model_config import CONFIG


def rms(x, w, eps):
    """In float32, written out for the compiler to fuse."""
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w


def softplus(x):
    return torch.logaddexp(x, torch.zeros_like(x))


class Norm(nn.Module):
    """x / rms(x) * (1 + w)."""

    def __init__(self, n, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(n)), eps

    def forward(self, x):
        return rms(x, 1 + self.weight.float(), self.eps).to(x.dtype)


class GatedNorm(nn.Module):
    """x / rms(x) * w * silu(z)."""

    def __init__(self, n, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x, z):
        return (rms(x, self.weight.float(), self.eps) * F.silu(z.float())).to(z.dtype)


def linear(n, m):
    return nn.Linear(n, m, bias=False)


class Frame(NamedTuple):
    """What layers know of where texts begin. Of rows with one text each, mask and pos are None."""
    angles: torch.Tensor  # [1 or B, T, rot/2]
    mask: torch.Tensor | None  # [B, 1, T, T] added to scores
    pos: torch.Tensor | None  # [B, T]


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, h, d = c, c['num_attention_heads'], c['head_dim']
        self.q_proj = linear(c['hidden_size'], h * d * 2)
        self.k_proj = linear(c['hidden_size'], c['num_key_value_heads'] * d)
        self.v_proj = linear(c['hidden_size'], c['num_key_value_heads'] * d)
        self.o_proj = linear(h * d, c['hidden_size'])
        self.q_norm, self.k_norm = Norm(d), Norm(d)

    def forward(self, x, frame):
        B, T, _ = x.shape
        d = self.c['head_dim']
        q, gate = self.q_proj(x).view(B, T, -1, 2 * d).chunk(2, -1)
        q = rotate(self.q_norm(q), frame.angles).transpose(1, 2)
        k = rotate(self.k_norm(self.k_proj(x).view(B, T, -1, d)), frame.angles).transpose(1, 2)
        v = self.v_proj(x).view(B, T, -1, d).transpose(1, 2)
        n = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(n, 1), v.repeat_interleave(n, 1)
        if frame.mask is None:
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:  # written out: rows are short, and the compiler fuses it
            o = (((q * d ** -0.5) @ k.mT).float() + frame.mask).softmax(-1).to(v.dtype) @ v
        o = o.transpose(1, 2).reshape(B, T, -1) * torch.sigmoid(gate.reshape(B, T, -1))
        return self.o_proj(o)


def rotate(x, angles):
    """The first 2 * len(angles) dims of each head, halves paired. x [B, T, heads, d], angles [1 or B, T, rot/2]."""
    n = angles.shape[-1]
    c, s = angles.cos()[:, :, None].to(x.dtype), angles.sin()[:, :, None].to(x.dtype)
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

    def forward(self, x, frame):
        B, T, _ = x.shape
        qkv, w = self.in_proj_qkv(x), self.conv1d.weight[:, 0]
        taps = w.shape[1]
        padded = F.pad(qkv, (0, 0, taps - 1, 0))
        seen = lambda back: 1 if frame.pos is None or back == 0 else (frame.pos >= back)[..., None].to(qkv.dtype)
        qkv = F.silu(sum(padded[:, i:i + T] * w[:, i].to(qkv.dtype) * seen(taps - 1 - i) for i in range(taps)))
        q, k, v = qkv.split([self.nk * self.dk, self.nk * self.dk, self.nv * self.dv], -1)
        q, k = (t.reshape(B, T, self.nk, self.dk).repeat_interleave(self.nv // self.nk, 2) for t in (q, k))
        v = v.reshape(B, T, self.nv, self.dv)
        beta = torch.sigmoid(self.in_proj_b(x))
        g = -self.A_log.float().exp() * softplus(self.in_proj_a(x).float() + self.dt_bias)
        if frame.pos is not None:
            g = torch.where((frame.pos == 0)[..., None], FORGET, g)
        o = delta_rule(q, k, v, g, beta)
        o = self.norm(o.reshape(-1, self.dv), self.in_proj_z(x).reshape(-1, self.dv))
        return self.out_proj(o.view(B, T, -1))


FORGET = -60.0  # log decay that empties the state: e^-60 is nothing, and sums of 64 such stay exact enough in float32


class Inverse(torch.autograd.Function):
    """(I - A)^-1 of strictly lower triangular A [..., n, n], n a power of two, by blocks that double: with the inverses P and R of two diagonal
    blocks, what lies below the first is R A P. Products of powers of A are no way: their terms cancel where keys are alike."""

    @staticmethod
    def forward(ctx, a):
        n = a.shape[-1]
        at = torch.arange(n, device=a.device)
        t, size = torch.eye(n, device=a.device, dtype=a.dtype), 1
        while size < n:
            below = (at[:, None] // size % 2 == 1) & (at[:, None] // size - 1 == at[None] // size)
            part = a * below
            t = t + (part if size == 1 else t @ part @ t)
            size *= 2
        ctx.save_for_backward(t)
        return t

    @staticmethod
    def backward(ctx, grad):
        t, = ctx.saved_tensors
        return (t.mT @ grad @ t.mT).tril(-1)


def delta_rule(q, k, v, g, beta, chunk=64):
    """The gated delta rule in its chunked form (arXiv 2412.06464, section 3.3).

    Within a chunk, rows see each other through (I - A)^-1, A strictly lower triangular. Decays, the inverse and the state are float32; other
    products take their factors in v's type. q, k [B, T, h, dk] before their l2 norms, v [B, T, h, dv], g (log decay) and beta [B, T, h]."""
    with torch.autocast(q.device.type, enabled=False):
        kind, n = v.dtype, q.shape[1]
        unit = lambda t: t.float() * torch.rsqrt(t.float().pow(2).sum(-1, keepdim=True) + 1e-6)
        q, k, v, beta = unit(q) * q.shape[-1] ** -0.5, unit(k), v.float(), beta.float()
        pad = -n % chunk
        if pad:
            q, k, v, g, beta = (F.pad(t, (0, 0) * (t.dim() - 2) + (0, pad)) for t in (q, k, v, g, beta))
        q, k, v, g, beta = (t.transpose(1, 2).unflatten(2, (-1, chunk)) for t in (q, k, v, g, beta))
        g = g.cumsum(-1)
        lower = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
        decay = (g[..., :, None] - g[..., None, :]).masked_fill(~lower, -1e30).exp()
        kb, cut = k * beta[..., None], lambda t: t.to(kind)
        t = cut(Inverse.apply(-((cut(kb) @ cut(k).mT).float() * decay).tril(-1)))
        u, w = t @ cut(v * beta[..., None]), t @ cut(kb * g.exp()[..., None])
        scores, qg = cut((cut(q) @ cut(k).mT).float() * decay), cut(q * g.exp()[..., None])
        kg, last = cut(k * (g[..., -1:] - g).exp()[..., None]), g[..., -1].exp()
        S, out = torch.zeros(*q.shape[:2], q.shape[-1], v.shape[-1], device=q.device), []
        for i in range(q.shape[2]):
            fresh = u[:, :, i] - w[:, :, i] @ cut(S)
            out.append(qg[:, :, i] @ cut(S) + scores[:, :, i] @ fresh)
            S = S * last[:, :, i, None, None] + (kg[:, :, i].mT @ fresh).float()
        return torch.stack(out, 2).flatten(2, 3)[:, :, :n].transpose(1, 2)


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
        a = F.silu(g) * u * weights[..., None].to(g.dtype)
        return a.reshape(-1, e * i2 // 2) @ self.down_proj.permute(0, 2, 1).reshape(-1, h).to(g.dtype)


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
        with torch.autocast(x.device.type, enabled=False):
            p = self.gate(flat.to(self.gate.weight.dtype)).float().softmax(-1)
        mask = torch.zeros_like(p)
        for _ in range(self.k):  # argmax again and again: k is small, and it fuses
            best = (p.detach() - 2 * mask).argmax(-1, keepdim=True)
            mask = mask + (best == torch.arange(p.shape[-1], device=p.device)).to(p.dtype)
        chosen = p * mask / (p * mask).sum(-1, keepdim=True)
        # Balance as in Switch Transformers (arXiv 2101.03961), equation 4: share of tokens times mean probability of each expert.
        balance = p.shape[-1] * (mask.mean(0) / self.k * p.mean(0)).sum()
        y = self.experts(flat, chosen) + torch.sigmoid(self.shared_expert_gate(flat)) * self.shared_expert(flat)
        return y.view_as(x), balance


class Layer(nn.Module):
    def __init__(self, c, kind):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(c['hidden_size']), Norm(c['hidden_size'])
        self.mixer = 'self_attn' if kind == 'full_attention' else 'linear_attn'
        self.add_module(self.mixer, Attention(c) if kind == 'full_attention' else DeltaNet(c))
        self.mlp = MoE(c)

    def forward(self, x, frame):
        """x [B, T, H]; also the balance of its experts."""
        x = x + getattr(self, self.mixer)(self.input_layernorm(x), frame)
        y, balance = self.mlp(self.post_attention_layernorm(x))
        return x + y, balance


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

    def frame(self, n, pos=None):
        """n tokens a row, and pos [B, n] where rows hold several texts."""
        at = torch.arange(n, device=self.freq.device)
        if pos is None:
            return Frame(at[None, :, None] * self.freq, None, None)
        begin = at - pos
        seen = (begin[:, :, None] == begin[:, None, :]) & (at[:, None] >= at)
        mask = torch.zeros(pos.shape[0], 1, n, n, device=pos.device, dtype=torch.bfloat16).masked_fill(~seen[:, None], float('-inf'))
        return Frame(pos[..., None] * self.freq, mask, pos)

    def trunk(self, ids, frame):
        """The output after the final norm [B, T, H], and the sum of the layers' balances."""
        x, total = self.model.embed_tokens(ids), 0
        for layer in self.model.layers:
            x, balance = layer(x, frame)
            total = total + balance
        return self.model.norm(x), total

    def drafts(self, hidden, next_ids, frame):
        """Rows of the draft layer [B, T, H]: hidden [B, T, H] of row t, next_ids [B, T] the token at t+1; and its balance."""
        e = self.model.embed_tokens(next_ids).to(hidden.dtype)
        x = self.mtp.fc(torch.cat((self.mtp.pre_fc_norm_embedding(e), self.mtp.pre_fc_norm_hidden(hidden)), -1))
        x, balance = self.mtp.layers[0](x, frame)
        return self.mtp.norm(x), balance

    def hidden(self, ids):
        return self.trunk(ids, self.frame(ids.shape[1]))[0]

    def draft(self, hidden, next_ids):
        return self.drafts(hidden, next_ids, self.frame(next_ids.shape[1]))[0]

    def logits(self, h):
        return F.linear(h, self.model.embed_tokens.weight.to(h.dtype))

    def compile(self):
        """Compiles layers one by one: layers of a kind share the code."""
        for layer in [*self.model.layers, *self.mtp.layers]:
            layer.compile(dynamic=False)
