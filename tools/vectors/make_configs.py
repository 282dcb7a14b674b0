#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes internal/modelconf/testdata/configs.txt: what plain JSON reading says about each file of kernels/circuits/configs/published.tar.gz.

    <file> <leaves> <model_type> <hidden size> <method> <kv cache> <modules named per algorithm> <patterns left alone> <the rest>

A dash stands for nothing; an hf_quant_config.json has leaves only, and is folded into the row of its config.json.
"""
import collections
import json
import pathlib
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def leaves(v):
    if isinstance(v, dict):
        return sum(map(leaves, v.values()))
    if isinstance(v, list):
        return sum(map(leaves, v))
    return 1


def quant(c, hf):
    q = c.get("quantization_config") or c.get("text_config", {}).get("quantization_config") or {}
    h = (hf or {}).get("quantization", {})
    if not q and not h:
        return ["-"] * 5
    s = q or h
    method = q.get("quant_method") or "modelopt"
    kv = "e4m3" if any(d.get(k) for d in (q, h) for k in ("kv_cache_scheme", "kv_cache_quant_algo")) else "-"
    named = collections.Counter(v["quant_algo"] for v in s.get("quantized_layers", {}).values())
    if method == "mxfp4" or c.get("expert_dtype") == "fp4" and not named:
        named["MXFP4"] = 1
    alone = [] if s.get("moe_quant_algo") else s.get("ignore") or s.get("exclude_modules") or s.get("modules_to_not_convert") or []
    rest = s.get("quant_algo", "-")
    if method == "fp8":
        rest = "FP8_BLOCK"
    if method == "compressed-tensors":
        rest = s["format"]
    if rest == "MIXED_PRECISION":
        rest = "-"
    return [method, kv, ",".join(f"{k}:{n}" for k, n in sorted(named.items())) or "-", str(len(alone)), rest]


def main():
    files = {}
    with tarfile.open(ROOT / "kernels/circuits/configs/published.tar.gz") as t:
        for m in t:
            if m.isfile():
                files[pathlib.PurePath(m.name).name] = json.load(t.extractfile(m))
    with open(ROOT / "internal/modelconf/testdata/configs.txt", "w") as w:
        for name, c in sorted(files.items()):
            if name.endswith("hf_quant_config.json"):
                print(name, leaves(c), file=w)
                continue
            hf = files.get(name.removesuffix("config.json") + "hf_quant_config.json")
            hidden = c.get("hidden_size") or c["text_config"]["hidden_size"]
            print(name, leaves(c), c["model_type"], hidden, *quant(c, hf), file=w)


if __name__ == "__main__":
    main()
