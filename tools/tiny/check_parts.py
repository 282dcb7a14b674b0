#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Holds draft heads and vision towers against reference checkpoints.

    check_parts.py --met ./met --dir CHECKPOINTS [--chunk N] [--args "--device cuda"] [FAMILY ...]

Of each folder whose ref.safetensors has mtp.logits, it runs `met eval logits --part mtp` over long.input_ids and compares the drafts; of
each that has image.logits, `met eval logits --image ref.safetensors` over image.input_ids, and compares the logits. It prints max
|ours - ref| / (1 + |ref|) over all positions; the limit is --tol. Exit status 1 if any falls short. Standard library only.
"""
import argparse, array, json, os, shlex, struct, subprocess, sys, tempfile

CODES = {'F32': 'f', 'I64': 'q'}


def read(path):
    """safetensors → {name: array}."""
    with open(path, 'rb') as f:
        n = struct.unpack('<Q', f.read(8))[0]
        head, body = json.loads(f.read(n)), f.read()
    out = {}
    for name, t in head.items():
        if name != '__metadata__' and t['dtype'] in CODES:
            out[name] = array.array(CODES[t['dtype']])
            out[name].frombytes(body[slice(*t['data_offsets'])])
    return out


def error(met, folder, ids, flags, name, want):
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, 'o.safetensors')
        p = subprocess.run([met, 'eval', 'logits', folder, '--ids', ','.join(map(str, ids)), '--out', out] + flags, capture_output=True, text=True, timeout=300)
        if p.returncode:
            raise RuntimeError((p.stderr or p.stdout).strip()[-300:])
        got = read(out)[name]
    if len(got) != len(want) or any(x != x for x in got):
        raise RuntimeError(f'{len(got)} values of {len(want)}, or not a number')
    return max(abs(a - b) / (1 + abs(b)) for a, b in zip(got, want))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--met', default='./met')
    ap.add_argument('--dir', required=True)
    ap.add_argument('--tol', type=float, default=1e-3)
    ap.add_argument('--chunk', type=int, default=0)
    ap.add_argument('--args', default='')
    ap.add_argument('family', nargs='*')
    a = ap.parse_args()
    names = a.family or sorted(n for n in os.listdir(a.dir) if os.path.exists(os.path.join(a.dir, n, 'ref.safetensors')))
    flags = (['--chunk', str(a.chunk)] if a.chunk else []) + shlex.split(a.args)
    good = bad = 0
    for name in names:
        folder = os.path.join(a.dir, name)
        file = os.path.join(folder, 'ref.safetensors')
        ref = read(file)
        runs = []
        if 'mtp.logits' in ref:
            runs.append(('mtp', ref['long.input_ids'], ['--part', 'mtp'], 'drafts', ref['mtp.logits']))
        if 'image.logits' in ref:
            runs.append(('image', ref['image.input_ids'], ['--image', file], 'logits', ref['image.logits']))
        for what, ids, more, out, want in runs:
            try:
                e = error(a.met, folder, ids, more + flags, out, want)
                ok, line = e <= a.tol, f'{e:.2e}'
            except (RuntimeError, KeyError, subprocess.TimeoutExpired) as x:
                ok, line = False, 'error: ' + str(x).replace('\n', ' | ')
            good, bad = good + ok, bad + (not ok)
            print(f'{"ok  " if ok else "FAIL"} {name:18} {what:6} {line}', flush=True)
    print(f'{good} passed, {bad} failed')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
