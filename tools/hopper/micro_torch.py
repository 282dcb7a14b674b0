# SPDX-License-Identifier: MIT OR Apache-2.0
"""The 32 shapes of `met benchmark run micro` in PyTorch: eager, eager in a CUDA graph, torch.compile in a graph.

Writes the same JSON; `met benchmark compare` sets the two beside each other. Activations are bf16, recurrent states float32.
A time is the median over replays of repetitions on the same arrays, or, with --rotate, on as many sets of arrays as make up so
many MiB. Weights of four bits are packed two to a byte with a scale for each 16, and made bf16 before the product, as PyTorch
has no kernel for them. What PyTorch has beside (library functions, chunked algorithms, other precisions) is timed as "others".
"""

import argparse
import json
import re
import sys
import time

import torch
import torch.nn.functional as F

HIDDEN, Q, KV, D = 2048, 16, 2, 256
KH, VH, DD = 16, 32, 128
E, TOP, INNER = 256, 10, 512
GRAPH_COPIES, GRAPH_US = 64, 2000.0


def rand(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device=DEV, dtype=torch.float32).to(dtype)


# ---------------------------------------------------------------------------------------------------- functions


def prefill_attn(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def decode_attn(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def gemm(x, w):
    return F.linear(x, w)


def unpack(packed, scale):
    """[n, k/2] bytes and [n, k/16] scales → [n, k] bf16; a value is its code - 8."""
    low, high = packed & 15, packed >> 4
    codes = torch.stack((low, high), -1).view(packed.shape[0], -1, 16).to(torch.bfloat16) - 8
    return (codes * scale[..., None]).view(packed.shape[0], -1)


def w4a16(x, packed, scale):
    return F.linear(x, unpack(packed, scale))


def moe_loop(x, ids, weights, up, up_scale, down, down_scale):
    out = torch.zeros_like(x)
    for e in range(E):
        rows, slot = torch.where(ids == e)
        if rows.numel() == 0:
            continue
        g, u = F.linear(x[rows], unpack(up[e], up_scale[e])).chunk(2, -1)
        y = F.linear(F.silu(g) * u, unpack(down[e], down_scale[e]))
        out.index_add_(0, rows, y * weights[rows, slot, None])
    return out


def moe_grouped(x, ids, weights, up, down):
    order = ids.flatten().argsort()
    ends = (ids.flatten()[:, None] == torch.arange(E, device=ids.device)).sum(0).cumsum(0).to(torch.int32)
    xs = x[order // TOP]
    g, u = torch._grouped_mm(xs, up.transpose(1, 2), offs=ends).chunk(2, -1)
    y = torch._grouped_mm(F.silu(g) * u, down.transpose(1, 2), offs=ends) * weights.flatten()[order, None]
    return torch.zeros_like(x).index_add_(0, order // TOP, y)


def conv_prefill(x, w):
    """x [1, C, n], w [C, 1, 4]"""
    return F.silu(F.conv1d(x, w, padding=3, groups=w.shape[0])[..., : x.shape[-1]])


def conv_decode(x, state, w):
    """x [C], state [C, 3], w [C, 4]"""
    window = torch.cat((state, x[:, None]), -1)
    state.copy_(window[:, 1:])
    return F.silu((window * w).sum(-1))


def l2(x):
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def gdr_step(q, k, v, g, beta, state):
    """q, k [KH, D], v [VH, D], g, beta [VH], state [VH, D, D] float32, overwritten"""
    q = (l2(q.float()) * DD**-0.5).repeat_interleave(VH // KH, 0)
    k = l2(k.float()).repeat_interleave(VH // KH, 0)
    s = state * g.float().exp()[:, None, None]
    delta = (v.float() - (s * k[..., None]).sum(-2)) * beta.float()[:, None]
    s = s + k[..., None] * delta[:, None, :]
    state.copy_(s)
    return (s * q[..., None]).sum(-2).to(v.dtype)


def gdr_loop(q, k, v, g, beta, state, step=gdr_step):
    return torch.stack([step(q[i], k[i], v[i], g[i], beta[i], state) for i in range(q.shape[0])])


def gdr_chunk(q, k, v, g, beta, state, size=64):
    """The delta rule by chunks: what the keys of a chunk do to each other is a triangular system."""
    n = q.shape[0]
    c = min(size, n)
    q = (l2(q.float()) * DD**-0.5).repeat_interleave(VH // KH, 1).transpose(0, 1).reshape(VH, n // c, c, DD)
    k = l2(k.float()).repeat_interleave(VH // KH, 1).transpose(0, 1).reshape(VH, n // c, c, DD)
    v = v.float().transpose(0, 1).reshape(VH, n // c, c, DD)
    g = g.float().t().reshape(VH, n // c, c).cumsum(-1)
    beta = beta.float().t().reshape(VH, n // c, c, 1)
    decay = (g[..., :, None] - g[..., None, :]).tril().exp().tril()
    a = (beta * (k @ k.transpose(-1, -2)) * decay).tril(-1)
    eye = torch.eye(c, device=q.device).expand_as(a)
    solve = torch.linalg.solve_triangular(eye + a, torch.cat((beta * v, beta * k * g.exp()[..., None]), -1), upper=False, unitriangular=True)
    u, w = solve[..., :DD], solve[..., DD:]
    out = []
    for i in range(n // c):
        d = u[:, i] - w[:, i] @ state
        out.append((q[:, i] * g[:, i].exp()[..., None]) @ state + (q[:, i] @ k[:, i].transpose(-1, -2) * decay[:, i]) @ d)
        last = g[:, i, -1]
        state.copy_(state * last.exp()[:, None, None] + (k[:, i] * (last[:, None] - g[:, i]).exp()[..., None]).transpose(-1, -2) @ d)
    return torch.cat(out, 1).transpose(0, 1).to(torch.bfloat16)


def rmsnorm(x, w):
    h = x.float()
    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def gated_rmsnorm(x, z, w):
    h = x.float()
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
    return (w * h.to(x.dtype) * F.silu(z.float())).to(x.dtype)


def silu_mul(g, u):
    return F.silu(g) * u


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def rope(q, k, cos, sin):
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


# ------------------------------------------------------------------------------------------------------- shapes


class Shape:
    """A function with arrays; others are (name, function, arrays, in a graph)."""

    def __init__(self, name, f, make, compiled=True, graph=True, others=(), further=False):
        self.name, self.f, self.make, self.compiled, self.graph, self.others, self.further = name, f, make, compiled, graph, others, further


def packed(*shape):
    return torch.randint(0, 256, (*shape[:-1], shape[-1] // 2), device=DEV, dtype=torch.uint8), rand(*shape[:-1], shape[-1] // 16).abs() * 0.01


def routed(n=80):
    ids = torch.stack([torch.randperm(E, device=DEV)[:TOP] for _ in range(n)])
    return rand(n, HIDDEN), ids, torch.rand(n, TOP, device=DEV).to(torch.bfloat16)


def bf16_experts():
    return *routed(), rand(E, 2 * INNER, HIDDEN) * 0.02, rand(E, HIDDEN, INNER) * 0.02


def delta(n=None):
    lead = () if n is None else (n,)
    return (rand(*lead, KH, DD), rand(*lead, KH, DD), rand(*lead, VH, DD), -torch.rand(*lead, VH, device=DEV), torch.rand(*lead, VH, device=DEV),
            torch.zeros(VH, DD, DD, device=DEV))


def shapes():
    out = []
    for n in (1, 16, 80):
        make = lambda n=n: (rand(n, HIDDEN), rand(HIDDEN))
        lib = lambda x, w: F.rms_norm(x, (HIDDEN,), w, 1e-6)
        out.append(Shape(f"rmsnorm [{n},2048]", rmsnorm, make, others=[("F.rms_norm graph", lib, make, True)]))
    for n in (2048, 8192):
        out.append(Shape(f"gated_rmsnorm dim={n}", gated_rmsnorm, lambda n=n: (rand(1, n), rand(1, n), rand(n))))
    for n in (16, 80, 800):
        out.append(Shape(f"silu_mul [{n},512]", silu_mul, lambda n=n: (rand(n, 512), rand(n, 512))))
    for n in (32, 128, 512):
        out.append(Shape(f"rope seq={n} 16:2", rope, lambda n=n: (rand(1, Q, n, D), rand(1, KV, n, D), rand(1, 1, n, D), rand(1, 1, n, D))))
    out.append(Shape("conv1d_decode dim=8192", conv_decode, lambda: (rand(8192), rand(8192, 3), rand(8192, 4))))
    for n in (32, 128, 512):
        out.append(Shape(f"conv1d_prefill dim=8192 seq={n}", conv_prefill, lambda n=n: (rand(1, 8192, n), rand(8192, 1, 4))))
    out.append(Shape("gdr_decode 32vh dim=128", gdr_step, delta))
    out.append(Shape("w4a16 [80,2048]x[2048,1024]", w4a16, lambda: (rand(80, HIDDEN), *packed(1024, HIDDEN)),
                     others=[("bf16 weights graph", gemm, lambda: (rand(80, HIDDEN), rand(1024, HIDDEN)), True)]))
    for m, k, n in ((80, 2048, 512), (80, 512, 2048), (16, 2048, 256), (256, 256, 256)):
        out.append(Shape(f"gemm [{m},{k}]x[{k},{n}]", gemm, lambda m=m, k=k, n=n: (rand(m, k), rand(n, k))))
    for n in (32, 128, 256, 512):
        out.append(Shape(f"prefill_attn seq={n}", prefill_attn, lambda n=n: (rand(1, Q, n, D), rand(1, KV, n, D), rand(1, KV, n, D))))
    for n in (64, 256, 1024, 4096):
        out.append(Shape(f"decode_attn hist={n}", decode_attn, lambda n=n: (rand(1, Q, 1, D), rand(1, KV, n, D), rand(1, KV, n, D))))
    for n in (32, 128):  # a compiled loop takes minutes to compile; its step does not
        out.append(Shape(f"gdr_prefill seq={n}", gdr_loop, lambda n=n: delta(n), compiled=False, others=[
            ("chunks graph", gdr_chunk, lambda n=n: delta(n), True),
            ("compiled steps graph", lambda *a: gdr_loop(*a, step=compiled(gdr_step)), lambda n=n: delta(n), True)]))
    out.append(Shape("moe_w4a16 256exp 80tok", moe_loop, lambda: (*routed(), *packed(E, 2 * INNER, HIDDEN), *packed(E, HIDDEN, INNER)),
                     compiled=False, graph=False, others=[("bf16 grouped", moe_grouped, bf16_experts, True)]))
    out.append(Shape("moe_bf16 256exp 80tok", moe_grouped, bf16_experts, compiled=False, further=True))
    out.append(Shape("bf16 [80,2048]x[2048,1024]", gemm, lambda: (rand(80, HIDDEN), rand(1024, HIDDEN)), compiled=False, further=True))
    return out


# ------------------------------------------------------------------------------------------------------- timing

_compiled = {}


def compiled(f):
    if f not in _compiled:
        _compiled[f] = torch.compile(f, dynamic=False)
    return _compiled[f]


def median(values):
    return sorted(values)[len(values) // 2]


def elapsed(f):
    """Microseconds that the device works on what f starts."""
    if DEV != "cuda":
        began = time.perf_counter()
        f()
        return (time.perf_counter() - began) * 1e6
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a.record()
    f()
    b.record()
    torch.cuda.synchronize()
    return a.elapsed_time(b) * 1e3


def eager_us(f, sets):
    f(*sets[0])
    once = elapsed(lambda: f(*sets[0]))
    n = max(1, min(200, int(4 * GRAPH_US / max(once, 1))))

    def many():
        for i in range(n):
            f(*sets[i % len(sets)])

    return median([elapsed(many) for _ in range(5 if once < 20000 else 3)]) / n


def graph_us(f, sets):
    if DEV != "cuda":
        return None
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            for s in sets:
                f(*s)
    torch.cuda.synchronize()
    once = min(elapsed(lambda: f(*sets[0])) for _ in range(2))
    n = max(1, min(GRAPH_COPIES // len(sets), int(4 * GRAPH_US / max(once, 1)))) * len(sets)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        for i in range(n):
            f(*sets[i % len(sets)])
    return median([elapsed(g.replay) for _ in range(13)][2:]) / n


def size(arrays):
    return sum(a.numel() * a.element_size() for a in arrays)


def measure(shape, rotate, deadline):
    def make(f):
        sets = [f()]
        while size(sets[0]) * len(sets) < rotate << 20 and len(sets) < GRAPH_COPIES:
            sets.append(f())
        return sets

    times, notes = {}, []

    def run(way, f):
        try:
            us = f()
            if us is not None:
                times[way] = us
        except Exception as e:
            notes.append(f"{way}: {type(e).__name__} {str(e).splitlines()[0][:120] if str(e) else ''}")
            if DEV == "cuda":
                torch.cuda.synchronize()

    sets = make(shape.make)
    run("eager", lambda: eager_us(shape.f, sets))
    if shape.graph:
        run("graph", lambda: graph_us(shape.f, sets))
    if shape.compiled and time.monotonic() < deadline and DEV == "cuda":
        run("compiled", lambda: graph_us(compiled(shape.f), sets))
    elif shape.compiled and DEV == "cuda":
        notes.append("compiled: out of time")
    for name, f, arrays, graph in shape.others:
        sets = make(arrays)
        run(name, lambda: (graph_us if graph and DEV == "cuda" else eager_us)(f, sets))
    return {"shape": shape.name, "further": shape.further, "us": times, "missing": "; ".join(notes), "sets": len(sets)}


def main():
    global DEV
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", nargs="?", default="-", help="file to write (default: standard output)")
    p.add_argument("--rotate", type=int, default=0, help="MiB of arrays that repetitions go over (0: always the same arrays)")
    p.add_argument("--only", default="", help="regular expression of the shapes to measure")
    p.add_argument("--seconds", type=float, default=70, help="after so long, nothing more is compiled")
    p.add_argument("--device", default="cuda")
    args = p.parse_args()
    DEV = args.device
    torch.manual_seed(1)
    torch.set_grad_enabled(False)
    torch._dynamo.config.recompile_limit = 64
    began = time.monotonic()
    out = []
    for s in shapes():
        if re.search(args.only, s.name):
            out.append(measure(s, args.rotate, began + args.seconds))
            times = ", ".join(f"{k} {v:.2f}" for k, v in out[-1]["us"].items())
            print(f"{time.monotonic() - began:5.1f} s  {s.name}: {times} {out[-1]['missing']}", file=sys.stderr, flush=True)
    device = torch.cuda.get_device_name() if DEV == "cuda" else DEV
    text = json.dumps({"program": f"torch {torch.__version__}", "device": device, "rotate_mib": args.rotate, "shapes": out}, indent=1)
    if args.out == "-":
        print(text)
    else:
        with open(args.out, "w") as f:
            f.write(text + "\n")


DEV = "cuda"
if __name__ == "__main__":
    main()
