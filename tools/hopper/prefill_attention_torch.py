# SPDX-License-Identifier: MIT OR Apache-2.0
# PyTorch's causal attention at the shapes of prefill_attention, per backend: what its figures stand beside.
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


def timed(f):
    for _ in range(3):
        f()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        f()
    times = []
    for _ in range(9):
        a, b = torch.cuda.Event(True), torch.cuda.Event(True)
        a.record()
        graph.replay()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) * 1e3)
    return sorted(times)[len(times) // 2]


print(torch.cuda.get_device_name(), torch.__version__)
for heads, kv, hd in [(32, 8, 128), (16, 2, 256), (64, 8, 64)]:
    for rows in [2048, 8192]:
        q, k, v = (torch.randn(1, n, rows, hd, device="cuda", dtype=torch.bfloat16) for n in (heads, kv, kv))
        for name, backend in [("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)]:
            try:
                with sdpa_kernel(backend):
                    us = timed(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))
                print(f"torch {name} {heads}/{kv} x {hd} rows {rows}: {us:8.1f} us {2 * rows * (rows + 1) * heads * hd / us * 1e-6:6.1f} TFLOP/s")
            except RuntimeError as e:
                print(f"torch {name} {heads}/{kv} x {hd} rows {rows}: {str(e).splitlines()[0][:80]}")
