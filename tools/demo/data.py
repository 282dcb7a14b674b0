# SPDX-License-Identifier: MIT OR Apache-2.0
"""Chats to token ids: the chat template, the tokenizer and its training; many chats in rows of one length."""
import json, multiprocessing, os, random

import jinja2
import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
TEMPLATE = open(os.path.join(HERE, 'chat_template.jinja')).read()
SPECIAL = ['<|endoftext|>', '<|im_start|>', '<|im_end|>']
MARKS = ['<think>', '</think>', '<tool_call>', '</tool_call>', '<tool_response>', '</tool_response>']
OPEN = '<|im_start|>assistant\n<think>\n\n</think>\n\n'  # what stands before an answer

# Letters with a leading space, single digits, other signs, line ends, blanks.
WORDS = r"'(?:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

_env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
_env.policies['json.dumps_kwargs'] = {'sort_keys': False, 'ensure_ascii': False}
_env.filters['tojson'] = lambda x: json.dumps(x, ensure_ascii=False)
_template = _env.from_string(TEMPLATE)


def render(chat, generate=False):
    return _template.render(messages=chat['messages'], tools=chat.get('tools'), add_generation_prompt=generate)


def answers(text):
    """The text in pieces (piece, whether the model wrote it): answers end with their <|im_end|>."""
    out = []
    for i, part in enumerate(text.split(OPEN)):
        if i == 0:
            out.append((part + (OPEN if OPEN in text else ''), False))
            continue
        said, _, rest = part.partition('<|im_end|>')
        out.append((said + '<|im_end|>', True))
        out.append((rest + OPEN, False))
    if out[-1][0].endswith(OPEN) and not text.endswith(OPEN):
        out[-1] = (out[-1][0][:-len(OPEN)], False)
    return [p for p in out if p[0]]


def train_tokenizer(texts, vocab):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(WORDS), 'isolated'), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=vocab, special_tokens=SPECIAL + MARKS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    raw = json.loads(t.to_str())
    for a in raw['added_tokens']:
        a['special'] = a['content'] in SPECIAL
    return Tokenizer.from_str(json.dumps(raw))


def save_tokenizer(t, folder):
    t.save(os.path.join(folder, 'tokenizer.json'))
    json.dump({'tokenizer_class': 'PreTrainedTokenizerFast', 'bos_token': None, 'eos_token': '<|im_end|>', 'pad_token': '<|endoftext|>', 'model_max_length': 2048,
               'clean_up_tokenization_spaces': False, 'chat_template': TEMPLATE}, open(os.path.join(folder, 'tokenizer_config.json'), 'w'), indent=1)
    json.dump({'eos_token_id': [2, 0], 'pad_token_id': 0, 'do_sample': True, 'temperature': 0.6, 'top_k': 20, 'top_p': 0.95}, open(os.path.join(folder, 'generation_config.json'), 'w'), indent=1)


def encode(tok, texts):
    """Per text: ids and, per id, whether the model wrote it."""
    pieces = [answers(t) for t in texts]
    flat = tok.encode_batch([p for ps in pieces for p, _ in ps], add_special_tokens=False)
    out, at = [], 0
    for ps in pieces:
        ids, mine = [], []
        for _, own in ps:
            e = flat[at].ids
            at += 1
            ids += e
            mine += [own] * len(e)
        out.append((ids, mine))
    return out


class Texts:
    """Many encoded chats: ids and marks (1 prompt, 2 answer) one after another, and the length of each."""

    def __init__(self, ids, marks, lengths):
        self.ids, self.marks, self.lengths = ids, marks, lengths

    @classmethod
    def of(cls, encoded):
        flat = lambda i, kind: np.fromiter((x for e in encoded for x in e[i]), kind)
        return cls(flat(0, np.uint16), flat(1, np.uint8) + np.uint8(1), np.array([len(e[0]) for e in encoded], np.int64))

    @classmethod
    def join(cls, parts):
        return cls(*(np.concatenate([getattr(p, k) for p in parts]) for k in ('ids', 'marks', 'lengths')))


def _encode_part(job):
    """In a process of its own: a list of chats, or (seed, how many) of made ones."""
    import templated, words
    os.environ['TOKENIZERS_PARALLELISM'] = 'false'
    path, chats = job
    tok = Tokenizer.from_file(path)
    if isinstance(chats, tuple):
        rng, world = random.Random(chats[0]), words.World()
        chats = [templated.chat(rng, world) for _ in range(chats[1])]
    return Texts.of(encode(tok, [render(c) for c in chats]))


def encode_all(path, chats, made, seed, workers):
    """The teacher's chats and as many made ones, encoded by processes with the tokenizer at path: two Texts."""
    part = 4000
    jobs = [(path, chats[i:i + part]) for i in range(0, len(chats), part)]
    n = len(jobs)
    jobs += [(path, (f'{seed}/{i}', min(part, made - i))) for i in range(0, made, part)]
    with multiprocessing.get_context('spawn').Pool(workers) as pool:
        out = pool.map(_encode_part, jobs, chunksize=1)
    return Texts.join(out[:n]), Texts.join(out[n:])


def pack(texts, length, over=0):
    """Whole texts of more than `over` ids in rows of `length`: ids [R, length], marks (0 where there is nothing), pos within each text.

    Each row takes the longest text that still fits, again and again."""
    by, begin, have = {}, np.concatenate(([0], np.cumsum(texts.lengths))), 0
    for i in np.flatnonzero((texts.lengths > over) & (texts.lengths <= length)):
        by.setdefault(int(texts.lengths[i]), []).append(int(begin[i]))
    for n in by:
        have |= 1 << n  # bit n: some text of n ids is left
    rows = []
    while have:
        row, space = [], length
        while fit := have & ((2 << space) - 1):
            n = fit.bit_length() - 1
            row.append((by[n].pop(), n))
            space -= n
            if not by[n]:
                have ^= 1 << n
        rows.append(row)
    ids, marks, pos = (np.zeros((len(rows), length), kind) for kind in (np.uint16, np.uint8, np.uint16))
    for r, row in enumerate(rows):
        at = 0
        for b, n in row:
            ids[r, at:at + n], marks[r, at:at + n], pos[r, at:at + n] = texts.ids[b:b + n], texts.marks[b:b + n], np.arange(n)
            at += n
    return ids, marks, pos
