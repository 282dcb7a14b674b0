# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes the training data: the teacher's chats and made ones, the tokenizer, rows of token ids, and what is held out. Needs no GPU and no PyTorch.

    python prepare.py --chats chats*.jsonl.gz --out work/

writes work/{tokenizer.json, …, heldout.jsonl.gz, data.json, rows512.npz, rows2048.npz}. Held out are chats of the teacher drawn at random, and made chats
whose names and cities (words.HELD_*) are in no training chat: the teacher's chats that have one are left out."""
import argparse, glob, gzip, json, os, random, re, time

import numpy as np

import data, templated, words
from model_config import CONFIG

LENGTHS = (512, 2048)
HELD = {w.lower() for w in words.HELD_NAMES + words.HELD_CITIES}


def read(paths, limit):
    """Chats without repeats: those with the same question and begin of the answer. Broken ends of files that are being written are left."""
    seen, out, total = set(), [], 0
    for path in sorted(p for pattern in paths for p in glob.glob(pattern)):
        try:
            with gzip.open(path, 'rt') as f:
                for line in f:
                    chat = json.loads(line)
                    total += 1
                    key = hash((chat['messages'][0]['content'], chat['messages'][-1]['content'][:100]))
                    if key not in seen and HELD.isdisjoint(re.findall(r'\w+', line.lower())):
                        seen.add(key)
                        out.append({'kind': 'teacher', 'messages': chat['messages']})
                    if limit and len(out) >= limit:
                        return out, total
        except (EOFError, ValueError) as e:
            print(f'{path}: read up to a broken end: {e}', flush=True)
    return out, total


def chained(chats, rng, share=0.04):
    """Some chats follow each other as turns of one conversation, for contexts up to 2000 tokens or so."""
    out, i = [], 0
    while i < len(chats):
        n = rng.randint(3, 14) if rng.random() < share / 8 else 1
        out.append({'kind': 'teacher', 'messages': [m for c in chats[i:i + n] for m in c['messages']]})
        i += n
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--chats', nargs='*', default=[], help='files of teacher.py; patterns too')
    ap.add_argument('--max-chats', type=int, default=0)
    ap.add_argument('--made', type=int, default=0, help='made chats; 0: as many as make 40 %% of the tokens')
    ap.add_argument('--held', type=int, default=1000, help='chats held out of each kind')
    ap.add_argument('--seed', type=int, default=1)
    ap.add_argument('--workers', type=int, default=os.cpu_count())
    ap.add_argument('--out', required=True)
    args = ap.parse_args()
    begun, rng = time.time(), random.Random(args.seed)
    os.makedirs(args.out, exist_ok=True)
    path = os.path.join(args.out, 'tokenizer.json')

    chats, total = read(args.chats, args.max_chats)
    rng.shuffle(chats)
    held, chats = chats[:args.held], chats[args.held:]
    held += [templated.chat(rng, words.World(held=True)) for _ in range(args.held)]
    with gzip.open(os.path.join(args.out, 'heldout.jsonl.gz'), 'wt') as f:
        for c in held:
            f.write(json.dumps(c) + '\n')
    sample = [data.render(c) for c in chats[:24000]] + [data.render(templated.chat(rng, words.World())) for _ in range(12000)]
    rng.shuffle(sample)
    data.save_tokenizer(data.train_tokenizer(sample, CONFIG['vocab_size']), args.out)
    print(f'{total} chats of the teacher, {len(chats)} without repeats and held-out ones; tokenizer: {time.time() - begun:.0f} s', flush=True)

    trial, made = data.encode_all(path, chats[:4000], 4000, 'trial', args.workers)
    per = [p.lengths.mean() if len(p.lengths) else 0 for p in (trial, made)]
    want = args.made or int(per[0] * len(chats) * 40 / 60 / per[1])
    teacher, made = data.encode_all(path, chained(chats, rng), want, args.seed, args.workers)
    texts = data.Texts.join([teacher, made])
    shape = {}
    for n, over in zip(LENGTHS, (0,) + LENGTHS):
        ids, marks, pos = data.pack(texts, n, over)
        np.savez(os.path.join(args.out, f'rows{n}.npz'), ids=ids, marks=marks, pos=pos)
        shape[n] = {'rows': len(ids), 'filled': round(float((marks > 0).mean()), 4) if len(ids) else 0}
    facts = {'seed': args.seed, 'teacher_chats_read': total, 'teacher_chats': len(chats), 'teacher_tokens': int(teacher.lengths.sum()), 'made_chats': want, 'made_tokens': int(made.lengths.sum()),
             'held_teacher': args.held, 'held_made': args.held, 'vocabulary': CONFIG['vocab_size'], 'answer_tokens': int((texts.marks == 2).sum()), 'rows': shape,
             'seconds': round(time.time() - begun, 1)}
    json.dump(facts, open(os.path.join(args.out, 'data.json'), 'w'), indent=1)
    print(json.dumps(facts), flush=True)


if __name__ == '__main__':
    main()
