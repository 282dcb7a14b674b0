#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes PyTorch's number-format conversions to internal/tensor/testdata (needs torch >= 2.15 and numpy).

decode.txt: "<format> <sha256>" of all codes widened to little-endian float32, NaN replaced by 0x7fc00000;
            then for the 8-bit and 4-bit formats every value, for the 16-bit ones a sample: "<format> <code> <float32>".
encode.txt: "<float32> <bf16> <f16> <e4m3> <e5m2> <e8m0> <e2m1>", all hexadecimal bit patterns; "nan" for any NaN.

float4_e2m1 has no conversion in PyTorch: its column is the nearest of the 16 values, ties to the even code, NaN to 6.
"""
import hashlib
import pathlib
import sys

import numpy as np
import torch

OUT = pathlib.Path(__file__).resolve().parents[2] / "internal/tensor/testdata"
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
FORMATS = {  # name: (dtype, bits)
    "bf16": (torch.bfloat16, 16), "f16": (torch.float16, 16), "e4m3": (torch.float8_e4m3fn, 8),
    "e5m2": (torch.float8_e5m2, 8), "e8m0": (torch.float8_e8m0fnu, 8),
}


def widen(name):
    """All codes of a format as float32 bits, NaN canonical."""
    dtype, bits = FORMATS[name]
    codes = np.arange(1 << bits, dtype=np.uint16 if bits == 16 else np.uint8)
    t = torch.from_numpy(codes.view(np.int16) if bits == 16 else codes).view(dtype)
    f = t.to(torch.float32).numpy()
    u = f.view(np.uint32).copy()
    u[np.isnan(f)] = 0x7FC00000
    return u


def narrow(name, f):
    """Floats to hexadecimal codes."""
    dtype, bits = FORMATS[name]
    t = torch.from_numpy(f).to(dtype)
    back = t.to(torch.float32).numpy()
    codes = t.view(torch.int16 if bits == 16 else torch.uint8).numpy()
    codes = codes.view(np.uint16 if bits == 16 else np.uint8)
    return ["nan" if np.isnan(b) else f"{int(c):0{bits // 4}x}" for b, c in zip(back, codes)]


def narrow_e2m1(f):
    out = []
    for x in f.astype(np.float64):
        if np.isnan(x):
            out.append("7")
            continue
        d = np.abs(E2M1 - min(abs(x), 6.0))
        best = [i for i in range(8) if d[i] == d.min()]
        code = best[0] if len(best) == 1 else next(i for i in best if i % 2 == 0)
        out.append(f"{code | (8 if np.signbit(x) else 0):x}")
    return out


def inputs():
    """Float32 bit patterns: every value of the small formats, the middles between neighbours and what lies beside them,
    the borders of each format, and random bits."""
    bits = {0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF,
            0x00000001, 0x007FFFFF, 0x00800000, 0x00400000, 0x00400001, 0x003FFFFF, 0x7F7FFFFF}

    def around(values):
        v = np.unique(np.abs(np.asarray(values, np.float64)))
        v = v[np.isfinite(v)]
        for x in np.concatenate([v, (v[1:] + v[:-1]) / 2]).astype(np.float32):
            u = int(x.view(np.uint32))
            for w in (u - 1, u, u + 1):
                if 0 <= w < 0x80000000:
                    bits.add(w)
                    if w % 3 == 0:
                        bits.add(w | 0x80000000)

    f32 = lambda u: u.view(np.float32).astype(np.float64)
    around(E2M1)
    around(f32(widen("e4m3")))
    around(f32(widen("e5m2")))
    around(f32(widen("e8m0"))[::16])
    around(f32(widen("f16"))[[0, 1, 2, 3, 0x3FE, 0x3FF, 0x400, 0x401, 0x7BFE, 0x7BFF]])
    around([65519.99, 65520, 65536, 61440, 57344, 464, 480, 448, 2.0**-24, 2.0**-25, 3.3961775e38, 3.3895314e38])
    rng = np.random.default_rng(0)
    for u in rng.integers(0, 1 << 32, 400):
        bits.add(int(u))
    for x in rng.standard_normal(400).astype(np.float32) * np.float32(4):
        bits.add(int(x.view(np.uint32)))
    return np.array(sorted(bits), np.uint64).astype(np.uint32)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / "decode.txt", "w") as w:
        for name, (_, bits) in FORMATS.items():
            u = widen(name)
            print(name, hashlib.sha256(u.astype("<u4").tobytes()).hexdigest(), file=w)
        for name, (_, bits) in FORMATS.items():
            u = widen(name)
            for code in range(0, len(u), 1 if bits == 8 else 1021):
                print(f"{name} {code:x} {u[code]:08x}", file=w)
        for code, x in enumerate(np.concatenate([E2M1, -E2M1]).astype(np.float32)):
            print(f"e2m1 {code:x} {int(x.view(np.uint32)):08x}", file=w)
    u = inputs()
    f = u.view(np.float32)
    columns = [[f"{x:08x}" for x in u]] + [narrow(n, f) for n in FORMATS] + [narrow_e2m1(f)]
    with open(OUT / "encode.txt", "w") as w:
        for row in zip(*columns):
            print(*row, file=w)
    print(f"{len(u)} inputs, torch {torch.__version__}", file=sys.stderr)


if __name__ == "__main__":
    main()
