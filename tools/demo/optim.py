# SPDX-License-Identifier: MIT OR Apache-2.0
"""Muon for matrices, AdamW for the rest, in tensor operations that a CUDA graph can record: rates are tensors."""
import torch


@torch.no_grad()
def orthogonal(g, steps=5):
    """About U V^T of g = U S V^T [n, r, c], by Newton-Schulz iteration with the coefficients of Muon (https://kellerjordan.github.io/posts/muon/)."""
    x = g.bfloat16() if g.is_cuda else g.float()
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return (x.mT if tall else x).float()


class Optimizer:
    """rate is a tensor between 0 and 1 that multiplies both learning rates; muon 0 leaves everything to AdamW. Matrices of one shape are updated together."""

    def __init__(self, model, rate, muon, adam, momentum=0.95, muon_decay=0.03, adam_decay=0.1):
        self.rate, self.muon, self.adam, self.momentum, self.muon_decay, self.adam_decay = rate, muon, adam, momentum, muon_decay, adam_decay
        self.groups, self.rest = {}, []
        for name, p in model.named_parameters():
            if muon and is_matrix(name, p):
                halves = 2 if name.endswith('gate_up_proj') else 1  # gate and up are matrices of their own
                shape = (p.shape[-2] // halves, p.shape[-1])
                self.groups.setdefault(shape, []).append((p, torch.zeros_like(p)))
            else:
                self.rest.append((p, torch.zeros_like(p), torch.zeros_like(p), p.dim() >= 2))
        self.count = torch.zeros((), device=rate.device)

    def parameters(self):
        return [p for g in self.groups.values() for p, _ in g] + [p for p, *_ in self.rest]

    @torch.no_grad()
    def step(self):
        for shape, members in self.groups.items():
            params, momenta = [p for p, _ in members], [m for _, m in members]
            torch._foreach_lerp_(momenta, [p.grad for p in params], 1 - self.momentum)
            nesterov = torch._foreach_lerp([p.grad for p in params], momenta, self.momentum)
            update = orthogonal(torch.cat([u.reshape(-1, *shape) for u in nesterov]))
            step = self.rate * self.muon * max(1, shape[0] / shape[1]) ** 0.5
            torch._foreach_mul_(params, 1 - self.rate * self.muon * self.muon_decay)
            at = 0
            for p in params:
                n = p.numel() // (shape[0] * shape[1])
                p.sub_(update[at:at + n].reshape(p.shape) * step)
                at += n
        # AdamW (arXiv 1711.05101), betas 0.9 and 0.95.
        self.count += 1
        params, m, v = ([t[i] for t in self.rest] for i in range(3))
        grads = [p.grad for p in params]
        torch._foreach_lerp_(m, grads, 0.1)
        torch._foreach_mul_(v, 0.95)
        torch._foreach_addcmul_(v, grads, grads, 0.05)
        den = torch._foreach_sqrt(v)
        torch._foreach_div_(den, (1 - 0.95 ** self.count).sqrt())
        torch._foreach_add_(den, 1e-8)
        update = torch._foreach_div(m, den)
        torch._foreach_mul_(update, self.rate * self.adam / (1 - 0.9 ** self.count))
        torch._foreach_mul_([p for p, _, _, w in self.rest if w], 1 - self.rate * self.adam * self.adam_decay)
        torch._foreach_sub_(params, update)


def is_matrix(name, p):
    """What Muon moves: hidden matrices; not embeddings, the router, single rows, convolutions."""
    return p.dim() >= 2 and not any(k in name for k in ('embed_tokens', 'mlp.gate.', 'shared_expert_gate', 'in_proj_a', 'in_proj_b', 'conv1d'))
