#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Holds met against testdata/smollm2/greedy.json: check.py --met ./met --model FILE.gguf [more arguments for met eval logits]

For each prompt the greedy ids must equal transformers', except from a place on where the reference's own margin is below 1e-3.
"""
import argparse, json, os, struct, subprocess, sys, tempfile


def greedy(path):
    with open(path, 'rb') as f:
        n = struct.unpack('<Q', f.read(8))[0]
        head, body = json.loads(f.read(n)), f.read()
    begin, end = head['greedy']['data_offsets']
    return list(struct.unpack(f'<{(end - begin) // 8}q', body[begin:end]))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--met', required=True)
    ap.add_argument('--model', required=True)
    a, more = ap.parse_known_args()
    golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'testdata', 'smollm2', 'greedy.json')
    bad = 0
    for case in json.load(open(golden))['cases']:
        want = case['greedy']
        with tempfile.TemporaryDirectory() as d:
            out = os.path.join(d, 'o.safetensors')
            subprocess.run([a.met, 'eval', 'logits', a.model, '--ids', ','.join(map(str, case['ids'])), '--greedy', str(len(want)), '--out', out] + more, check=True)
            got = greedy(out)
        first = next((i for i, (x, y) in enumerate(zip(got, want)) if x != y), None)
        ok = len(got) == len(want) and (first is None or case['margins'][first] < 1e-3)
        bad += not ok
        print('ok  ' if ok else 'FAIL', repr(case['prompt']), 'equal' if first is None else f'differs at {first}, margin {case["margins"][first]}')
    return bad


sys.exit(main())
