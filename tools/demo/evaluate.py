# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measures a trained demo model: held-out loss of each format, acceptance of drafts at K=1, tool calls, and ten conversations as they come.

    python evaluate.py demo/ > evaluation.md"""
import argparse, json, os, random

import torch
from tokenizers import Tokenizer

import data, export, templated, train
from model import Model

ASKED = [['Hello! Who are you?', 'What can you do?'], ['Tell me a short story about a fox who finds a red balloon.'], ['Why does the moon change its shape?', 'Can you say that in simpler words?'],
         ['Name three fruits.', 'Name three more.'], ['What is 7 + 8?', 'And what is 9 times 4?'], ['Give me two tips for learning a language.'],
         ['My name is Nina.', 'What does an owl eat?', 'What is my name?'], ["What is my neighbor's phone number?"], ['What is the capital of France?', 'Why do people visit it?'],
         ['Turn this into JSON (name, age, city): Rosa is 31 years old and lives in Lima.']]


@torch.no_grad()
def generate(model, prompts, limit, end, device):
    """Greedy continuations of a batch of id lists, and the share of drafts at K=1 that the trunk agreed with: (lists, accepted, drafted)."""
    n = max(map(len, prompts)) + limit
    ids = torch.zeros(len(prompts), n, dtype=torch.long, device=device)
    length = torch.tensor([len(p) for p in prompts], device=device)
    for i, p in enumerate(prompts):
        ids[i, :len(p)] = torch.tensor(p, device=device)
    row, done = torch.arange(len(prompts), device=device), torch.zeros(len(prompts), dtype=torch.bool, device=device)
    start = length.clone()
    for _ in range(limit):
        upto = min(n, (int(length.max()) + 63) // 64 * 64)
        h = model.hidden(ids[:, :upto])[row, length - 1]
        token = model.logits(h).float().argmax(-1)
        ids[row, length] = torch.where(done, ids[row, length], token)
        length += (~done).long()
        done |= token == end
        if bool(done.all()):
            break
    hidden = model.hidden(ids)
    draft = model.logits(model.draft(hidden[:, :-1], ids[:, 1:])).float().argmax(-1)  # row t: token t+2
    at = torch.arange(n - 1, device=device)[None]
    counted = (at + 2 >= start[:, None]) & (at + 2 < length[:, None])
    hit = counted[:, :-1] & (draft[:, :-1] == ids[:, 2:])
    return [ids[i, start[i]:length[i]].tolist() for i in range(len(prompts))], int(hit.sum()), int(counted[:, :-1].sum())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('trained')
    args = ap.parse_args()
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    tok = Tokenizer.from_file(os.path.join(args.trained, 'tokenizer.json'))
    end = tok.token_to_id('<|im_end|>')
    state = torch.load(os.path.join(args.trained, 'model.pt'), map_location='cpu')
    held = [json.loads(line) for line in open(os.path.join(args.trained, 'heldout.jsonl'))]
    encode = lambda text: tok.encode(text, add_special_tokens=False).ids

    print('## Held-out loss (answers\' tokens, nats): trunk / draft\n\n| chats |', end='')
    items = {'teacher': [], 'templated': []}
    for c in held:
        items['teacher' if c['kind'] == 'teacher' else 'templated'].append(c)
    models = {}
    for form in ('bf16', 'fp8', 'nvfp4'):
        models[form] = Model().to(device).eval()
        models[form].load_state_dict(export.rounded(state, form))
        print(f' {form} |', end='')
    print('\n|---|---|---|---|')
    for kind, chats in items.items():
        cells = []
        for form in models:
            a, b = train.held_out(models[form], data.encode(tok, [data.render(c) for c in chats]), device)
            cells.append(f'{a:.4f} / {b:.4f}')
        print(f'| {kind} | ' + ' | '.join(cells) + ' |')

    model = models['bf16']
    with torch.autocast(device, torch.bfloat16, enabled=device == 'cuda'):
        print('\n## Drafts at K=1, greedy, on held-out prompts\n')
        for kind, chats in items.items():
            firsts = [encode(data.render({'messages': c['messages'][:1], 'tools': c.get('tools')}, True)) for c in chats[:200] if c['messages'][0]['role'] == 'user']
            _, hit, n = generate(model, firsts, 160, end, device)
            print(f'{kind}: {hit} of {n} accepted = {100 * hit / max(1, n):.1f} %')

        rng = random.Random(20261130)
        right, valid, wrong = 0, 0, []
        asked = []
        while len(asked) < 200:
            c = templated.tool_use(rng)
            asked.append((c['tools'], c['messages'][0], c['messages'][1]['tool_calls'][0]))
        out, _, _ = generate(model, [encode(data.render({'messages': [q], 'tools': t}, True)) for t, q, _ in asked], 120, end, device)
        for (t, q, want), ids in zip(asked, out):
            text = tok.decode(ids, skip_special_tokens=False)
            try:
                got = json.loads(text.split('<tool_call>')[1].split('</tool_call>')[0])
                valid += 1
            except (IndexError, ValueError):
                got = None
            if got == want:
                right += 1
            elif len(wrong) < 5:
                wrong.append((q['content'], text))
        print(f'\n## Tool calls on 200 held-out prompts\n\n{valid} well-formed, {right} right in name and arguments. Wrong ones:\n')
        for q, text in wrong:
            print(f'- {q!r}: {text!r}')

        print('\n## Ten conversations, greedy\n')
        for turns in ASKED:
            messages = []
            for t in turns:
                messages.append({'role': 'user', 'content': t})
                (ids,), _, _ = generate(model, [encode(data.render({'messages': messages}, True))], 220, end, device)
                text = tok.decode(ids, skip_special_tokens=True).strip()
                messages.append({'role': 'assistant', 'content': text})
                print(f'> {t}\n\n{text}\n')
            print('---\n')


if __name__ == '__main__':
    main()
