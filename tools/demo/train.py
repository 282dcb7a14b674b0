# SPDX-License-Identifier: MIT OR Apache-2.0
"""Trains the demo model on chats: tokenizer, trunk and draft layer jointly, for a given time.

    python train.py --chats chats.jsonl.gz --templated 400000 --seconds 400 --out demo/

writes demo/{model.pt, tokenizer.json, …, log.jsonl, heldout.jsonl}."""
import argparse, gzip, json, math, os, random, time

import numpy as np
import torch
import torch.nn.functional as F

import data, templated
from model import CONFIG, Model

BUCKET = 64


def corpus(args, rng):
    chats = []
    for path in args.chats:
        with gzip.open(path, 'rt') as f:
            for line in f:
                chats.append(json.loads(line))
                if args.max_chats and len(chats) >= args.max_chats:
                    break
    seen, unique = set(), []
    for c in chats:
        key = c['messages'][-1]['content'][:200]
        if key not in seen:
            seen.add(key)
            unique.append(c)
    print(f'{len(chats)} chats of the teacher, {len(unique)} after removing repeats', flush=True)
    rng.shuffle(unique)
    made = [templated.chat(rng) for _ in range(args.templated)]
    held = unique[:args.held] + made[:args.held]
    return unique[args.held:] + made[args.held:], held


def batches(items, tokens, rng):
    """Padded batches of about tokens ids, each of one length class, in random order: arrays of indices."""
    by = {}
    for i, (ids, _) in enumerate(items):
        by.setdefault((len(ids) + BUCKET - 1) // BUCKET, []).append(i)
    out = []
    for n, members in by.items():
        rng.shuffle(members)
        size = max(1, tokens // (n * BUCKET))
        out += [(n * BUCKET, members[i:i + size]) for i in range(0, len(members), size)]
    rng.shuffle(out)
    return out


def collate(items, length, members, device):
    ids, mine = np.zeros((len(members), length + 2), np.int32), np.zeros((len(members), length + 2), np.uint8)
    for row, i in enumerate(members):
        t, m = items[i]
        ids[row, :len(t)], mine[row, :len(t)] = t, [2 if x else 1 for x in m]
    return torch.from_numpy(ids).to(device, non_blocking=True).long(), torch.from_numpy(mine).to(device, non_blocking=True)


def losses(model, ids, mine, prompt_weight):
    """Cross entropy of the trunk and of the draft layer; tokens of prompts weigh less. mine: 0 padding, 1 prompt, 2 answer."""
    hidden = model.hidden(ids[:, :-2])
    weight = (mine == 2).float() + prompt_weight * (mine == 1).float()
    def ce(h, shift):
        target, w = ids[:, shift:shift + h.shape[1]], weight[:, shift:shift + h.shape[1]]
        each = F.cross_entropy(model.logits(h).flatten(0, 1).float(), target.flatten(), reduction='none')
        return (each * w.flatten()).sum() / w.sum().clamp(min=1)
    return ce(hidden, 1), ce(model.draft(hidden, ids[:, 1:-1]), 2)


@torch.no_grad()
def held_out(model, items, device):
    """Mean loss of answers' tokens: trunk, draft."""
    total, n = [0.0, 0.0], 0
    for length, members in batches(items, 32768, random.Random(0)):
        ids, mine = collate(items, length, members, device)
        with torch.autocast(device, torch.bfloat16, enabled=device == 'cuda'):
            a, b = losses(model, ids, mine, 0.0)
        w = int((mine == 2).sum())
        total[0] += float(a) * w
        total[1] += float(b) * w
        n += w
    return total[0] / n, total[1] / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--chats', nargs='+', required=True)
    ap.add_argument('--max-chats', type=int, default=0)
    ap.add_argument('--templated', type=int, default=400000)
    ap.add_argument('--held', type=int, default=1000)
    ap.add_argument('--seconds', type=float, default=400)
    ap.add_argument('--tokens', type=int, default=65536)
    ap.add_argument('--lr', type=float, default=3e-3)
    ap.add_argument('--seed', type=int, default=1)
    ap.add_argument('--out', required=True)
    args = ap.parse_args()
    os.makedirs(args.out, exist_ok=True)
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision('high')
    rng = random.Random(args.seed)
    begun = time.time()

    train, held = corpus(args, rng)
    with open(os.path.join(args.out, 'heldout.jsonl'), 'w') as f:
        for c in held:
            f.write(json.dumps(c) + '\n')
    texts = [data.render(c) for c in train]
    tok = data.train_tokenizer(rng.sample(texts, min(len(texts), 60000)), CONFIG['vocab_size'])
    data.save_tokenizer(tok, args.out)
    items = [x for x in data.encode(tok, texts) if 8 < len(x[0]) <= 2000]
    held_items = data.encode(tok, [data.render(c) for c in held])
    # Long contexts: some chats follow each other in one sequence.
    for _ in range(len(items) // 100):
        ids, mine = [], []
        while len(ids) < 1200:
            t, m = rng.choice(items)
            if len(ids) + len(t) > 2000:
                break
            ids, mine = ids + t, mine + m
        items.append((ids, mine))
    print(f'{len(items)} sequences, {sum(len(t) for t, _ in items) / 1e6:.1f} M tokens, {time.time() - begun:.0f} s to prepare', flush=True)

    model = Model().to(device)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    opt = torch.optim.AdamW([{'params': decay, 'weight_decay': 0.1}, {'params': rest, 'weight_decay': 0.0}], lr=args.lr, betas=(0.9, 0.95), fused=device == 'cuda')
    log = open(os.path.join(args.out, 'log.jsonl'), 'w')
    begun, step, seen, epoch, mean = time.time(), 0, 0, 0, None
    while time.time() - begun < args.seconds:
        epoch += 1
        for length, members in batches(items, args.tokens, rng):
            spent = (time.time() - begun) / args.seconds
            if spent >= 1:
                break
            rate = min(1, (step + 1) / 100) * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * spent)))
            for g in opt.param_groups:
                g['lr'] = args.lr * rate
            ids, mine = collate(items, length, members, device)
            with torch.autocast(device, torch.bfloat16, enabled=device == 'cuda'):
                a, b = losses(model, ids, mine, 0.2)
                loss = a + 0.3 * b + 0.01 * model.balance() / CONFIG['num_hidden_layers']
            opt.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            step, seen = step + 1, seen + ids.numel()
            if step % 100 == 0 or step == 1:
                row = {'step': step, 'seconds': round(time.time() - begun, 1), 'tokens_m': round(seen / 1e6, 1), 'epoch': epoch, 'loss': round(float(a), 4), 'draft': round(float(b), 4)}
                if step % 1000 == 0:
                    row['held'], row['held_draft'] = (round(x, 4) for x in held_out(model, held_items, device))
                log.write(json.dumps(row) + '\n')
                log.flush()
                if step % 500 == 0 or step == 1:
                    print(row, flush=True)
    a, b = held_out(model, held_items, device)
    print(f'held out: {a:.4f}, draft {b:.4f} after {step} steps, {seen / 1e6:.0f} M tokens, {epoch} epochs', flush=True)
    log.write(json.dumps({'step': step, 'held': a, 'held_draft': b}) + '\n')
    torch.save(model.state_dict(), os.path.join(args.out, 'model.pt'))


if __name__ == '__main__':
    main()
