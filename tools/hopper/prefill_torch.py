# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rates of cuBLASLt (torch.mm, bf16) on the shapes of prefill_linear, as graph replays over rotating weights."""

import sys

import torch


def time_graph(step, n, replays=7):
    """Microseconds of one step: median of graph replays of n steps."""
    s = torch.cuda.Stream()
    with torch.cuda.stream(s):
        for i in range(n):
            step(i)
    torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        for i in range(n):
            step(i)
    times = []
    for i in range(replays + 3):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        g.replay()
        b.record()
        torch.cuda.synchronize()
        times.append(a.elapsed_time(b))
    times = sorted(times[3:])
    return times[len(times) // 2] * 1e3 / n


def main():
    torch.manual_seed(1)
    rows = [int(r) for r in sys.argv[1].split(",")] if len(sys.argv) > 1 else [16, 32, 64, 128, 256, 512, 1024, 2048, 8192]
    print(torch.cuda.get_device_name(), torch.__version__)
    for r in rows:
        for n, k in [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (5120, 2048), (2048, 4096)]:
            copies = max(2, min(16, int(160e6 / (2 * n * k)) + 1))
            w = [torch.randn(n, k, dtype=torch.bfloat16, device="cuda") for _ in range(copies)]
            x = [torch.randn(r, k, dtype=torch.bfloat16, device="cuda") for _ in range(2)]
            y = torch.empty(r, n, dtype=torch.bfloat16, device="cuda")
            us = time_graph(lambda i: torch.mm(x[i % 2], w[i % copies].t(), out=y), max(copies, 6))
            print(f"torch rows {r:5d} K {k:5d} N {n:6d}: {us:8.1f} us {2 * r * n * k / us * 1e-6:6.1f} TFLOP/s", flush=True)
            del w, x, y


main()
