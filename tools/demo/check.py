#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Holds met against transformers on held-out prompts of the demo model: bf16 weights, computed in float32.

    check.py --met ./met --checkpoints checkpoints/ --prompts work/prompts.json [--count 20 --tokens 48]

The greedy ids must equal transformers', except from a place on where the reference's own margin is below 1e-3; the drafts of --part mtp must equal
those of model.py. fp8 and nvfp4 must load, and their logits equal model.py's with the weights that the formats hold (export.rounded)."""
import argparse, json, os, subprocess, sys, tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import export
from model import Model


def met(args, form, ids, *more):
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, 'o.safetensors')
        subprocess.run([args.met, 'eval', 'logits', os.path.join(args.checkpoints, form), '--ids', ','.join(map(str, ids)), '--out', out, *more], check=True)
        return load_file(out)


@torch.no_grad()
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--met', required=True)
    ap.add_argument('--checkpoints', required=True)
    ap.add_argument('--prompts', required=True)
    ap.add_argument('--count', type=int, default=20)
    ap.add_argument('--tokens', type=int, default=48)
    args = ap.parse_args()
    bf16 = os.path.join(args.checkpoints, 'bf16')
    reference, state, bad = AutoModelForCausalLM.from_pretrained(bf16, dtype=torch.float32).eval(), export.load(bf16), 0
    ours = {}
    for form in ('bf16', 'fp8', 'nvfp4'):
        ours[form] = Model()
        ours[form].load_state_dict(export.rounded(state, form))
    for n, case in enumerate(json.load(open(args.prompts))[:args.count]):
        ids = case['ids']
        got = met(args, 'bf16', ids, '--greedy', str(args.tokens), '--part', 'mtp')
        greedy = got['greedy'].tolist()
        # One pass over the prompt and what met wrote tells what transformers writes, as long as the two agree.
        logits = reference(torch.tensor([ids + greedy])).logits[0, len(ids) - 1:-1]
        top = logits.topk(2)
        margin = (top.values[:, 0] - top.values[:, 1]).tolist()
        first = next((i for i, (a, b) in enumerate(zip(greedy, top.indices[:, 0].tolist())) if a != b), None)
        ok = len(greedy) == args.tokens and (first is None or margin[first] < 1e-3)
        hidden = ours['bf16'].hidden(torch.tensor([ids]))
        drafts = ours['bf16'].logits(ours['bf16'].draft(hidden[:, :-1], torch.tensor([ids[1:]])))[0]
        worst = {'drafts': float((drafts - got['drafts'][:len(ids) - 1]).abs().max())}
        for form in ('bf16', 'fp8', 'nvfp4'):
            theirs = got['logits'] if form == 'bf16' else met(args, form, ids)['logits']
            worst[form] = float((ours[form].logits(ours[form].hidden(torch.tensor([ids])))[0] - theirs[:len(ids)]).abs().max())
        ok &= max(worst.values()) < 2e-3
        bad += not ok
        print('ok  ' if ok else 'FAIL', f'{n + 1}', repr(case['prompt'][:60]), f'{args.tokens} ids equal' if first is None else f'differs at {first}, margin {margin[first]:.1e}',
              'largest differences: ' + ', '.join(f'{k} {v:.1e}' for k, v in worst.items()), flush=True)
    return bad


if __name__ == '__main__':
    sys.exit(main())
