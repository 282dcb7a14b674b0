# SPDX-License-Identifier: MIT OR Apache-2.0
"""Samples chats from SmolLM2-135M-Instruct (Apache-2.0), read from its GGUF file, with a plain batched decoder: static cache, CUDA graphs.

    python teacher.py --gguf SmolLM2-135M-Instruct.Q4_1.gguf --seconds 200 --out chats.jsonl.gz

A line is {"kind": "teacher", "messages": [{"role": "user" | "assistant", "content": …}, …]}."""
import argparse, gzip, json, random, time

import gguf
import torch
import torch.nn.functional as F
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

import prompts

SYSTEM = 'You are a helpful assistant. You answer briefly, clearly and in a friendly way.'
END = '<|im_end|>'


def read_gguf(path, dtype, device):
    """Weights by name, dequantised; metadata; the tokenizer."""
    r = gguf.GGUFReader(path)
    w = {t.name: torch.from_numpy(gguf.quants.dequantize(t.data, t.tensor_type).copy()).to(device, dtype) for t in r.tensors}
    meta = {k: f.contents() for k, f in r.fields.items() if not k.startswith('tokenizer.ggml.')}
    tokens, merges = r.fields['tokenizer.ggml.tokens'].contents(), r.fields['tokenizer.ggml.merges'].contents()
    t = Tokenizer(models.BPE(vocab={s: i for i, s in enumerate(tokens)}, merges=[tuple(m.split(' ')) for m in merges]))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(['<|im_start|>', END, '<|endoftext|>'])
    return w, meta, t


def rms(x, w, eps):
    return F.rms_norm(x.float(), (x.shape[-1],), w.float(), eps).to(x.dtype)


class Decoder:
    """Static batch [B] with a cache of T positions. Sequences end at the right edge of their prompts: prompts are padded on the left."""

    def __init__(self, w, meta, batch, length, device, dtype):
        self.w, self.B, self.T, self.device, self.dtype = w, batch, length, device, dtype
        g = lambda k: meta['llama.' + k]
        self.layers, self.heads, self.kv = g('block_count'), g('attention.head_count'), g('attention.head_count_kv')
        self.dim, self.eps, theta = g('embedding_length') // g('attention.head_count'), g('attention.layer_norm_rms_epsilon'), g('rope.freq_base')
        freq = 1 / theta ** (torch.arange(0, self.dim, 2, device=device).float() / self.dim)
        angle = torch.arange(length, device=device).float()[:, None] * freq
        self.cos, self.sin = angle.cos(), angle.sin()
        shape = (self.layers, batch, self.kv, length, self.dim)
        self.k, self.v = torch.zeros(shape, device=device, dtype=dtype), torch.zeros(shape, device=device, dtype=dtype)
        self.pad = torch.zeros(batch, dtype=torch.long, device=device)
        self.graphs = {}
        self.fused = [torch.cat([w[f'blk.{i}.attn_{n}.weight'] for n in 'qkv']) for i in range(self.layers)]
        self.gate_up = [torch.cat([w[f'blk.{i}.ffn_{n}.weight'] for n in ('gate', 'up')]) for i in range(self.layers)]

    def rope(self, x, pos):
        """x [B, heads, n, dim] in GGUF's interleaved pairs, pos [B, n]."""
        c, s = self.cos[pos][:, None].to(x.dtype), self.sin[pos][:, None].to(x.dtype)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)

    def forward(self, ids, at, upto):
        """ids [B, n] at slots at [n] of a cache read up to upto; gives the last row's logits."""
        B, n = ids.shape
        pos = (at[None] - self.pad[:, None]).clamp(min=0)
        slot = torch.arange(upto, device=self.device)
        seen = (slot[None, None] <= at[None, :, None]) & (slot[None, None] >= self.pad[:, None, None])
        mask = torch.zeros(B, 1, 1, n, upto, device=self.device).masked_fill(~seen[:, None, None], -1e9)
        x = self.w['token_embd.weight'][ids]
        for i in range(self.layers):
            p = f'blk.{i}.'
            h = rms(x, self.w[p + 'attn_norm.weight'], self.eps)
            q, k, v = (h @ self.fused[i].T).view(B, n, -1, self.dim).transpose(1, 2).split([self.heads, self.kv, self.kv], 1)
            self.k[i].index_copy_(2, at, self.rope(k, pos))
            self.v[i].index_copy_(2, at, v)
            keys, values = self.k[i][:, :, :upto], self.v[i][:, :, :upto]
            q = self.rope(q, pos).reshape(B, self.kv, self.heads // self.kv * n, self.dim)
            s = (q @ keys.transpose(-1, -2)).view(B, self.kv, -1, n, upto).float() * self.dim ** -0.5 + mask
            o = s.softmax(-1).to(self.dtype).view(B, self.kv, -1, upto) @ values
            o = o.view(B, self.heads, n, self.dim).transpose(1, 2).reshape(B, n, -1)
            x = x + o @ self.w[p + 'attn_output.weight'].T
            h = rms(x, self.w[p + 'ffn_norm.weight'], self.eps)
            g, u = (h @ self.gate_up[i].T).chunk(2, -1)
            x = x + (F.silu(g) * u) @ self.w[p + 'ffn_down.weight'].T
        return rms(x[:, -1], self.w['output_norm.weight'], self.eps) @ self.w['token_embd.weight'].T

    def sample(self, logits, temperature=0.6, top_k=40):
        top, ids = logits.float().topk(top_k)
        return ids.gather(1, torch.multinomial((top / temperature).softmax(-1), 1))

    def step(self, upto):
        """One token for every sequence, reading the cache up to a multiple of 64: a graph each."""
        upto = min(self.T, (upto + 63) // 64 * 64)
        if self.device != 'cuda':
            self.last.copy_(self.sample(self.forward(self.last, self.at, upto)))
        else:
            if upto not in self.graphs:
                saved = self.last.clone()
                stream = torch.cuda.Stream()
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    self.sample(self.forward(self.last, self.at, upto))
                torch.cuda.current_stream().wait_stream(stream)
                self.graphs[upto] = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graphs[upto]):
                    self.last.copy_(self.sample(self.forward(self.last, self.at, upto)))
                self.last.copy_(saved)
            self.graphs[upto].replay()
        self.at += 1

    @torch.no_grad()
    def generate(self, prompts_ids, limit, end):
        """prompts_ids: B lists; gives B lists of at most limit ids, cut before end (None where it never came)."""
        n = max(map(len, prompts_ids))
        ids = torch.full((self.B, n), end)
        for i, p in enumerate(prompts_ids):
            ids[i, n - len(p):] = torch.tensor(p)
        self.pad.copy_(torch.tensor([n - len(p) for p in prompts_ids]))
        ids, rows = ids.to(self.device), []
        logits = []
        for part in range(0, self.B, 256):  # prompts in parts, to bound the memory of their scores
            sub = self.view(part, min(self.B, part + 256))
            logits.append(sub.forward(ids[part:part + 256], torch.arange(n, device=self.device), n))
        if not hasattr(self, 'last'):
            self.last, self.at = torch.zeros(self.B, 1, dtype=torch.long, device=self.device), torch.zeros(1, dtype=torch.long, device=self.device)
        self.last.copy_(self.sample(torch.cat(logits)))
        self.at.fill_(n)
        done = torch.zeros(self.B, 1, dtype=torch.bool, device=self.device)
        for i in range(min(limit, self.T - n)):
            rows.append(self.last.clone())
            done |= self.last == end
            if i % 32 == 31 and done.float().mean() > 0.97:
                break
            self.step(n + i + 1)
        out = torch.cat(rows, 1).tolist()
        return [r[:r.index(end)] if end in r else None for r in out]

    def view(self, lo, hi):
        """The same model over a part of the batch."""
        d = object.__new__(Decoder)
        d.__dict__.update(self.__dict__)
        d.B, d.k, d.v, d.pad = hi - lo, self.k[:, lo:hi], self.v[:, lo:hi], self.pad[lo:hi]
        return d


def render(tok, messages):
    text = f'<|im_start|>system\n{SYSTEM}{END}\n' + ''.join(f'<|im_start|>{m["role"]}\n{m["content"]}{END}\n' for m in messages)
    return tok.encode(text + '<|im_start|>assistant\n', add_special_tokens=False).ids


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--gguf', required=True)
    ap.add_argument('--out', required=True)
    ap.add_argument('--seconds', type=float, default=200)
    ap.add_argument('--batch', type=int, default=3072)
    ap.add_argument('--length', type=int, default=512)
    ap.add_argument('--limit', type=int, default=230)
    ap.add_argument('--seed', type=int, default=1)
    a = ap.parse_args()
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    torch.manual_seed(a.seed)
    rng = random.Random(a.seed)
    w, meta, tok = read_gguf(a.gguf, torch.bfloat16 if device == 'cuda' else torch.float32, device)
    d = Decoder(w, meta, a.batch, a.length, device, torch.bfloat16 if device == 'cuda' else torch.float32)
    end = tok.token_to_id(END)
    begun, tokens, chats, carried = time.time(), 0, 0, []
    with gzip.open(a.out, 'wt', compresslevel=3) as f:
        while time.time() - begun < a.seconds:
            talks = carried + [[{'role': 'user', 'content': prompts.prompt(rng)}] for _ in range(a.batch - len(carried))]
            carried = []
            for talk, ids in zip(talks, d.generate([render(tok, t) for t in talks], a.limit, end)):
                text = tok.decode(ids).strip() if ids else ''
                if len(text) < 2 or '\ufffd' in text or 'SmolLM' in text or 'Hugging Face' in text:
                    continue
                tokens += len(ids)
                talk = talk + [{'role': 'assistant', 'content': text}]
                if len(talk) == 2 and len(ids) < 140 and rng.random() < 0.35:
                    carried.append(talk + [{'role': 'user', 'content': prompts.follow_up(rng)}])
                else:
                    chats += 1
                    f.write(json.dumps({'kind': 'teacher', 'messages': talk}) + '\n')
            spent = time.time() - begun
            print(f'{spent:.0f} s: {chats} chats, {tokens / 1e6:.1f} M tokens, {tokens / spent / 1e3:.0f} k tokens/s', flush=True)


if __name__ == '__main__':
    main()
