# SPDX-License-Identifier: MIT OR Apache-2.0
"""Chats to token ids: the chat template, the tokenizer and its training."""
import json, os

import jinja2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

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
