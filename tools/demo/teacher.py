# SPDX-License-Identifier: MIT OR Apache-2.0
"""Samples chats from SmolLM2-135M-Instruct (Apache-2.0), read from its GGUF file.

    python teacher.py --gguf SmolLM2-135M-Instruct.Q4_1.gguf --seconds 150 --out chats.jsonl.gz

writes chats.0.jsonl.gz … (one per worker). A line is {"kind": "teacher", "messages": [{"role": "user" | "assistant", "content": …}, …]}.

One process decodes; workers ask, read answers and write. Every answer that ends is followed by another prompt, so slots never wait for the slowest:

    worker:  prompts ─────► ready ─► free slots ─► 4 steps ─► answers that ended ─► worker: filter, ask further or write, next prompt

The host looks at what one burst of steps left while the next one runs."""
import time

BEGUN = time.time()

import argparse, gzip, json, multiprocessing, os, queue, random, re, threading
from collections import Counter, deque

os.environ['TOKENIZERS_PARALLELISM'] = 'false'

import gguf
import numpy as np
import torch

import prompts
from decoder import END, START, Decoder, ascii_ids, read_meta, read_tokenizer, read_weights

SELF = re.compile(r'smollm|hugging ?face|openai|chatgpt', re.I)
MODEL = re.compile(r"as an? (ai|artificial|language|digital)|\b(ai|language) (model|assistant)|i'm an ai|i am an ai|i'm sorry, (but )?i (can't|cannot|am not)|i (can't|cannot) (assist|help|provide|fulfil)", re.I)
MANNERS = list(prompts.SHOTS)
BURST = 4


def loops(text):
    """Whether an answer repeats itself: the same 6 words twice, or a sentence, or a line."""
    if max(grams(text, 6).values(), default=0) > 1:
        return True
    said = [s.strip().lower() for s in re.split(r'[.!?\n]', text) if len(s.strip()) > 12]
    return len(set(said)) < len(said)


def grams(text, n):
    words = re.findall(r"[a-z0-9']+", text.lower())
    return Counter(tuple(words[i:i + n]) for i in range(len(words) - n + 1))


SHOWN = set().union(*(grams(shot[1], 5) for shots in prompts.SHOTS.values() for shot in shots[shots is prompts.SHOTS['talk']:]))  # all but a greeting
COUNTED = re.compile(r'(?:name|list|tell me|give me|in) (two|three|four|five)\b', re.I)


def astray(talk, text, manner):
    """Why an answer does not belong to its question; empty if it does."""
    question = talk[-1]['content']
    if any(text.lower() in m['content'].lower() for m in talk):
        return 'echo'
    if SHOWN & set(grams(text, 5)):
        return 'from an example'
    counted = COUNTED.search(question) if manner == 'list' else None
    if counted:
        items = len(re.findall(r'^\d\.', text, re.M)) or len(re.findall(r',\s*(?:and\s)?|\band\b', text)) + 1
        if items != ['two', 'three', 'four', 'five'].index(counted[1].lower()) + 2:
            return 'count'
    words = set(re.findall(r'[a-z]+', text.lower()))
    about = set(re.findall(r'[a-z]+', question.lower())) & prompts.NOUNS if manner in ('tale', 'line', 'fact') else set()
    if 2 * sum(w in words or w + 's' in words or w.rstrip('s') in words for w in about) < len(about):
        return 'another subject'
    return 'short' if manner == 'tale' and len(text) < 200 else ''


def fault(text, rng):
    """Why an answer is dropped whatever was asked; empty if it is kept."""
    if len(text) < 2 or not any(c.isalpha() for c in text):
        return 'empty'
    if any(not (c == '\n' or ' ' <= c <= '~') for c in text):
        return 'not ASCII'
    if SELF.search(text):
        return 'names its maker'
    if MODEL.search(text) and rng.random() > 0.03:
        return 'speaks as a model'
    if loops(text):
        return 'loops'
    if text.count('"') % 2 or text.count('```') or text.count('[') or text.count('**') % 2:
        return 'form'
    if text[-1] not in '.!?")' and len(text) > 60:
        return 'no end'
    return ''


def turns(talk):
    return ''.join(f'{START}{m["role"]}\n{m["content"]}{END}\n' for m in talk)


def prefix(tok, manner):
    """What all of a manner's chats begin with: the system's turn, the examples, the begin of the user's turn."""
    shots = [{'role': r, 'content': text} for shot in prompts.SHOTS[manner] for r, text in zip(('user', 'assistant'), shot)]
    return tok.encode(turns([{'role': 'system', 'content': prompts.SYSTEM}] + shots) + f'{START}user\n', add_special_tokens=False).ids


class Asker:
    """Makes prompts, reads answers. A task is (key, ids after the prefix, heat, number of the manner)."""

    def __init__(self, tok, seed, room):
        self.tok, self.rng, self.room, self.talks, self.key = tok, random.Random(seed), room, {}, 0
        self.chats, self.tokens, self.dropped, self.lines = 0, 0, Counter(), []

    def task(self, talk, ask):
        """ask: prompts' (question, manner, heat)."""
        question, manner, heat = ask
        talk = talk + [{'role': 'user', 'content': question}]
        text = turns(talk)[len(f'{START}user\n'):] + f'{START}assistant\n'
        ids = self.tok.encode(text, add_special_tokens=False).ids
        if len(ids) > self.room:
            return None
        self.key += 1
        self.talks[self.key] = talk, manner
        return self.key, ids, heat, MANNERS.index(manner)

    def fresh(self):
        return self.task([], prompts.prompt(self.rng))

    def read(self, answers):
        """answers: (key, ids up to end, or None where it did not end). A task for each."""
        tasks, texts = [], self.tok.decode_batch([ids if ids is not None else [] for _, ids in answers])
        for (key, ids), text in zip(answers, texts):
            (talk, manner), text, task = self.talks.pop(key), text.strip(), None
            why = 'too long' if ids is None else fault(text, self.rng) or astray(talk, text, manner)
            if why:
                self.dropped[why] += 1
                self.write(talk[:-1])
            else:
                self.tokens += len(ids)
                talk = talk + [{'role': 'assistant', 'content': text}]
                ask = prompts.follow_up(self.rng, talk) if len(talk) < 4 else None
                task = self.task(talk, ask) if ask else None
                if not task:
                    self.write(talk)
            tasks.append(task or self.fresh())
        return tasks

    def write(self, talk):
        if talk:
            self.chats += 1
            self.lines.append(json.dumps({'kind': 'teacher', 'messages': talk}) + '\n')

    def flush(self, f):
        f.write(''.join(self.lines))
        self.lines = []


def work(pipe, tok, seed, room, share, path):
    """A worker: tasks out, answers in; None ends it."""
    asker = Asker(tok, seed, room)
    pipe.send([asker.fresh() for _ in range(share)])
    with gzip.open(path, 'wt', compresslevel=6) as f:
        while (answers := pipe.recv()) is not None:
            pipe.send(asker.read(answers))
            asker.flush(f)
        for talk, _ in asker.talks.values():  # what was asked further and not answered in time
            asker.write(talk[:-1])
        asker.flush(f)
    pipe.send((asker.chats, asker.tokens, asker.dropped))


class Pool:
    """The workers: tasks that wait, answers to hand over."""

    def __init__(self, tok, args, room, ahead):
        self.pipes, self.ready = [], deque()
        context = multiprocessing.get_context('fork')  # before the process touches the GPU
        for i in range(args.workers):
            here, there = context.Pipe()
            context.Process(target=work, args=(there, tok, args.seed * 1000 + i, room, ahead // args.workers, f'{args.out.removesuffix(".jsonl.gz")}.{i}.jsonl.gz'), daemon=True).start()
            self.pipes.append(here)
        self.sent = queue.SimpleQueue()
        threading.Thread(target=self.send, daemon=True).start()

    def send(self):
        """A thread of its own, so that a full pipe never holds up the decoder."""
        while True:
            pipe, answers = self.sent.get()
            pipe.send(answers)

    def poll(self):
        for i, p in enumerate(self.pipes):
            while p.poll():
                self.ready += [(i, *task) for task in p.recv()]

    def give(self, ended):
        """ended: (worker, key, ids or None)"""
        for i, p in enumerate(self.pipes):
            mine = [(key, ids) for w, key, ids in ended if w == i]
            if mine:
                self.sent.put((p, mine))

    def close(self):
        chats, tokens, dropped = 0, 0, Counter()
        for p in self.pipes:
            self.sent.put((p, None))
        for p in self.pipes:
            while isinstance(last := p.recv(), list):
                pass
            chats, tokens, dropped = chats + last[0], tokens + last[1], dropped + last[2]
        return chats, tokens, dropped


class Board:
    """Who sits in which slot, and since which burst."""

    def __init__(self, d):
        self.caps = [min(d.limit, prompts.MOST[m]) for m in MANNERS]
        self.d, self.owner, self.since = d, [None] * d.slots, np.zeros(d.slots, np.int64)
        pinned = lambda x: torch.zeros(x.shape, dtype=x.dtype, pin_memory=d.device == 'cuda')
        self.shots = [[pinned(x) for x in (d.done, d.count, d.out)] for _ in range(2)]
        self.events = [torch.cuda.Event() for _ in range(2)] if d.device == 'cuda' else None

    def shoot(self, burst):
        """Copies the state after a burst to the host, in the GPU's own time."""
        for to, x in zip(self.shots[burst % 2], (self.d.done, self.d.count, self.d.out)):
            to.copy_(x, non_blocking=True)
        if self.events:
            self.events[burst % 2].record()

    def ended(self, burst):
        """(free slots, answers that ended, their tokens) as a burst left them."""
        if self.events:
            self.events[burst % 2].synchronize()
        done, count, out = (x.numpy() for x in self.shots[burst % 2])
        free = np.flatnonzero((done != 0) & (self.since <= burst))
        ended, tokens = [], 0
        for slot, n, row in zip(free.tolist(), count[free].tolist(), out[free]):
            if self.owner[slot]:
                tokens += n
                whole = n > 0 and row[n - 1] == self.d.end
                ended.append((*self.owner[slot], row[:n - 1].tolist() if whole else None))
                self.owner[slot] = None
        return free.tolist(), ended, tokens

    def seat(self, free, ready, burst):
        """Fills free slots with tasks that wait; they count from the burst after."""
        n = min(len(free), len(ready))
        tasks = [ready.popleft() for _ in range(n)]
        for slot, (worker, key, *_) in zip(free, tasks):
            self.owner[slot], self.since[slot] = (worker, key), burst + 1
        if n:
            self.d.fill(free[:n], [t[2] for t in tasks], [t[3] for t in tasks], [t[4] for t in tasks], [self.caps[t[4]] for t in tasks])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--gguf', required=True)
    ap.add_argument('--out', required=True)
    ap.add_argument('--seconds', type=float, default=150, help='in all, start and end included')
    ap.add_argument('--slots', type=int, default=3072)
    ap.add_argument('--length', type=int, default=768)
    ap.add_argument('--limit', type=int, default=200)
    ap.add_argument('--min-p', type=float, default=0.1)
    ap.add_argument('--penalty', type=float, default=1.08, help='on tokens that an answer has')
    ap.add_argument('--workers', type=int, default=6)
    ap.add_argument('--attend', default='64,4', help="positions and warps of the attention kernel")
    ap.add_argument('--seed', type=int, default=1)
    a = ap.parse_args()
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    dtype = torch.bfloat16 if device == 'cuda' else torch.float32
    said = lambda text: print(f'{time.time() - BEGUN:.1f} s: {text}', flush=True)
    reader = gguf.GGUFReader(a.gguf)
    tok, meta = read_tokenizer(reader), read_meta(reader)
    end = tok.token_to_id(END)
    prefixes = [prefix(tok, m) for m in MANNERS]
    pool = Pool(tok, a, a.length - max(map(len, prefixes)) - a.limit, a.slots * 3 // 2)
    allowed = ascii_ids(tok, end)
    d = Decoder(read_weights(reader, dtype, device), meta, a.slots, a.length, a.limit, prefixes, end, allowed[:len(allowed) // 64 * 64], a.min_p, a.penalty, device, dtype, tuple(map(int, a.attend.split(','))))
    torch.manual_seed(a.seed)
    d.clock.fill_(a.seed * 1000003 % 2 ** 30)
    said('model read')
    d.warm()
    said(f'{len(pool.pipes)} workers, {a.slots} slots, {len(allowed)} tokens')
    board, burst, ran, shown, idle, waited = Board(d), 0, 0, time.time(), 0, 0.0
    board.shoot(0)
    while time.time() - BEGUN < a.seconds - 2:
        for _ in range(BURST):
            d.step()
        burst += 1
        board.shoot(burst)
        t = time.time()
        free, ended, n = board.ended(burst - 1)
        waited += time.time() - t
        ran += n
        pool.give(ended)
        pool.poll()
        board.seat(free, pool.ready, burst)
        idle += max(0, len(free) - len(ended))
        if time.time() - shown > 5:
            spent, shown = time.time() - BEGUN, time.time()
            said(f'{ran / 1e6:.2f} M tokens decoded, {ran / spent / 1e3:.0f} k a second in all; {burst} bursts, slots empty {idle / burst / a.slots:.1%}, '
                 f'host waited {waited / spent:.0%}, {len(pool.ready)} tasks ready')
    chats, tokens, dropped = pool.close()
    said(f'{chats} chats, {tokens / 1e6:.2f} M tokens of answers kept, {tokens / (time.time() - BEGUN) / 1e3:.0f} k a second; dropped: {dict(dropped.most_common())}')


if __name__ == '__main__':
    main()
