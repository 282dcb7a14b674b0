# SPDX-License-Identifier: MIT OR Apache-2.0
"""Trains the demo model on the rows of prepare.py: trunk and draft layer jointly, for a given time.

    python train.py work/ --seconds 270        # writes work/{model.pt, log.jsonl, train.json}
    python train.py work/ --smoke              # a minute: speed of each way to run, gradients, a few steps

On a GPU layers are compiled, and a whole step (rows by index, forward, backward, optimizer) is one CUDA graph for each length of rows. Where the
compiler or the graph fails, the run says so loudly and goes on without; --eager and --no-graph do so at once."""
import argparse, gzip, json, math, os, shutil, time, traceback

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import data
from model import Model
from model_config import CONFIG
from optim import Optimizer

MTP, BALANCE, Z, PROMPT = 0.3, 0.01, 1e-5, 0.1  # weights of the draft's loss, of the experts' balance, of log(sum exp)^2, of prompts' tokens


def cross_entropy(h, head, target, w):
    """Mean over weights w [B, T] of the loss of h [B, T, H], and of its squared log-normaliser."""
    logits = F.linear(h, head).float()
    norm = logits.logsumexp(-1)
    each = norm - logits.gather(-1, target[..., None])[..., 0]
    n = w.sum().clamp(min=1)
    return (each * w).sum() / n, (norm.square() * w).sum() / n


def shifted(ids, marks, pos, by, prompt):
    """Targets by rows further in the same text, and their weights."""
    ahead = lambda t, fill: F.pad(t[:, by:], (0, by), value=fill)
    m = ahead(marks, 0)
    return ahead(ids, 0), (ahead(pos, -1) == pos + by) * ((m == 2).float() + prompt * (m == 1).float())


def losses(model, ids, marks, pos, prompt, ce=cross_entropy):
    """Of rows of texts: loss of trunk and draft, log-normaliser, balance; and the weights that the means are over. All [B, T]."""
    frame, head = model.frame(ids.shape[1], pos), model.model.embed_tokens.weight
    hidden, balance = model.trunk(ids, frame)
    draft, more = model.drafts(hidden, F.pad(ids[:, 1:], (0, 1)), frame)
    (t1, w1), (t2, w2) = shifted(ids, marks, pos, 1, prompt), shifted(ids, marks, pos, 2, prompt)
    (a, z), (b, _) = ce(hidden, head, t1, w1), ce(draft, head, t2, w2)
    return a, b, z, (balance + more) / (CONFIG['num_hidden_layers'] + 1), w1.sum(), w2.sum()


def cast(device):
    return torch.autocast(device, torch.bfloat16, enabled=device == 'cuda')


@torch.no_grad()
def held_out(model, texts, device):
    """Mean loss of answers' tokens: trunk, draft."""
    sums, n = [0.0, 0.0], [0.0, 0.0]
    with torch.compiler.set_stance('force_eager'), cast(device):
        for length, over in ((512, 0), (2048, 512)):
            rows = [torch.from_numpy(x.astype(np.int64)) for x in data.pack(texts, length, over)]
            size = 32768 // length
            for i in range(0, len(rows[0]), size):
                a, b, _, _, wa, wb = losses(model, *(r[i:i + size].to(device) for r in rows), 0.0)
                sums, n = [sums[0] + float(a * wa), sums[1] + float(b * wb)], [n[0] + float(wa), n[1] + float(wb)]
    return sums[0] / max(1, n[0]), sums[1] / max(1, n[1])


def held_texts(folder):
    """The held-out chats by kind, encoded."""
    tok = Tokenizer.from_file(os.path.join(folder, 'tokenizer.json'))
    chats = {'teacher': [], 'made': []}
    for line in gzip.open(os.path.join(folder, 'heldout.jsonl.gz'), 'rt'):
        c = json.loads(line)
        chats['teacher' if c['kind'] == 'teacher' else 'made'].append(c)
    return {k: data.Texts.of(data.encode(tok, [data.render(c) for c in v])) for k, v in chats.items() if v}


class Step:
    """One step on rows of one length. stats sums trunk, draft, log-normaliser, balance, gradient norm, steps."""

    def __init__(self, model, opt, rows, size, device, ce):
        self.model, self.opt, self.rows, self.device, self.ce, self.graph = model, opt, rows, device, ce, None
        self.index, self.stats = torch.arange(size, device=device) % len(rows[0]), torch.zeros(6, device=device)

    def gradients(self):
        ids, marks, pos = (t[self.index] for t in self.rows)
        with cast(self.device):
            a, b, z, balance, _, _ = losses(self.model, ids.long(), marks, pos.long(), PROMPT, self.ce)
            (a + MTP * b + Z * z + BALANCE * balance).backward()
        return a, b, z, balance

    def compute(self):
        params = self.opt.parameters()
        for p in params:
            p.grad = None
        seen = self.gradients()
        norm = torch.nn.utils.clip_grad_norm_(params, 1.0)
        for p in params:  # a step whose gradients are no numbers moves nothing but momenta
            torch.nan_to_num_(p.grad, 0.0, 0.0, 0.0)
        self.opt.step()
        self.stats += torch.stack([*(t.detach() for t in seen), norm, torch.ones_like(norm)])

    def record(self, pool):
        """Graphs that never run at once share the memory of pool."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.compute()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # what the trial runs left; while recording, nothing can be given back
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            self.compute()
        self.graph = graph

    def __call__(self, index):
        self.index.copy_(index)
        self.graph.replay() if self.graph else self.compute()

    def means(self):
        """Since the last call; waits for the device."""
        a, b, z, balance, norm, n = self.stats.tolist()
        self.stats.zero_()
        return [x / max(1, n) for x in (a, b, z, balance, norm)]


def loaded(folder, device):
    """Rows by length, on the device."""
    out = {}
    for n in (512, 2048):
        z = np.load(os.path.join(folder, f'rows{n}.npz'))
        if len(z['ids']):
            out[n] = [torch.from_numpy(z[k].astype(np.int32 if k != 'marks' else np.uint8)).to(device) for k in ('ids', 'marks', 'pos')]
    return out


class Trainer:
    def __init__(self, args):
        self.args, self.device = args, 'cuda' if torch.cuda.is_available() else 'cpu'
        torch.manual_seed(args.seed)
        torch.set_float32_matmul_precision('high')
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch._dynamo.config.recompile_limit = 64
        self.rows = loaded(args.folder, self.device)
        self.model = Model().to(self.device)
        self.rate = torch.zeros((), device=self.device)
        self.opt = Optimizer(self.model, self.rate, args.muon, args.adam)
        self.how = {}

    def steps(self, compiled, graph):
        """A step for each length of rows. Long rows are few: they are compiled only if --compile-long says so."""
        ce = torch.compile(cross_entropy, dynamic=False) if compiled else cross_entropy
        if compiled:
            self.model.compile()
        out, pool = {}, torch.cuda.graph_pool_handle() if graph else None
        for n, rows in self.rows.items():
            step = Step(self.model, self.opt, rows, max(1, self.args.tokens // n), self.device, ce)
            eager = not compiled or (n > 512 and not self.args.compile_long)
            begun = time.time()
            with torch.compiler.set_stance('force_eager' if eager else 'default'):
                if graph:
                    step.record(pool)
                else:
                    step.compute()
                if self.device == 'cuda':
                    torch.cuda.synchronize()
            self.how[n] = ('eager' if eager else 'compiled') + (', one CUDA graph' if graph else '')
            print(f'rows of {n}: {len(rows[0])}, {len(step.index)} a step, {self.how[n]}, ready after {time.time() - begun:.0f} s', flush=True)
            out[n] = step
        return out

    def ready(self):
        """Steps, the fastest way that works."""
        a = self.args
        cuda = self.device == 'cuda'
        compiler = any(map(shutil.which, ('gcc', 'cc', 'clang')))
        if cuda and not a.eager and not compiler:
            print('!!! NO C COMPILER: layers are not compiled', flush=True)
        ways = [(True, True), (True, False), (False, True), (False, False)]
        for compiled, graph in ways:
            if (compiled and (not cuda or a.eager or not compiler)) or (graph and (not cuda or a.no_graph)):
                continue
            try:
                self.rate.fill_(1e-3)
                return self.steps(compiled, graph)
            except Exception:
                if not compiled and not graph:
                    raise
                traceback.print_exc()
                print(f'!!! FAILED with compiled={compiled}, graph={graph}; going on without', flush=True)
                self.restart()

    def restart(self):
        torch.compiler.reset()
        old = self.model.state_dict()
        self.model = Model().to(self.device)
        if all(bool(torch.isfinite(t).all()) for t in old.values()):
            self.model.load_state_dict(old)
        self.opt = Optimizer(self.model, self.rate, self.args.muon, self.args.adam)

    def schedule(self, step, spent):
        """Warm-up, level, then linearly to zero (arXiv 2502.15938)."""
        return min(1, (step + 1) / 200, max(0.0, 1 - spent) / (1 - self.args.level))

    def epoch(self):
        """(length, indices) of all whole batches in random order."""
        plan = []
        for n, rows in self.rows.items():
            size = max(1, self.args.tokens // n)
            order = torch.randperm(len(rows[0]), device=self.device)
            plan += [(n, part) for part in order.split(size) if len(part) == size]
        if not plan:
            plan = [(n, torch.randint(len(rows[0]), (max(1, self.args.tokens // n),), device=self.device)) for n, rows in self.rows.items()]
        return [plan[i] for i in torch.randperm(len(plan)).tolist()]

    def train(self):
        a, begun = self.args, time.time()
        held, steps = held_texts(a.folder), self.ready()
        log = open(os.path.join(a.folder, 'log.jsonl'), 'w')
        setup, begun = time.time() - begun, time.time()
        step, seen, epoch, spent, next_held = 0, 0, 0, 0.0, a.seconds / 12
        while spent < 1 and not (a.steps and step >= a.steps):
            epoch += 1
            for n, index in self.epoch():
                self.rate.fill_(self.schedule(step, spent))
                steps[n](index)
                step, seen = step + 1, seen + len(index) * n
                if step % 10 == 0 or step == 1 or step == a.steps:  # the host runs ahead of the device no further than this
                    if self.device == 'cuda':
                        torch.cuda.synchronize()
                    seconds = time.time() - begun
                    spent = min(1.0, (step / a.steps if a.steps else seconds / a.seconds))
                if step % 50 == 0 or step == 1 or step == a.steps:
                    loss, draft, z, balance, norm = steps[min(steps)].means()
                    row = {'step': step, 'seconds': round(seconds, 1), 'tokens_m': round(seen / 1e6, 1), 'epoch': epoch, 'rate': round(float(self.rate), 4), 'loss': round(loss, 4),
                           'draft': round(draft, 4), 'balance': round(balance, 3), 'norm': round(norm, 3)}
                    if not math.isfinite(loss):
                        print(f'!!! the loss is no number near step {step}', flush=True)
                    if seconds > next_held:
                        next_held += a.seconds / 12
                        row.update(self.measure(held))
                        torch.save(self.model.state_dict(), os.path.join(a.folder, 'model.pt'))
                    log.write(json.dumps(row) + '\n')
                    log.flush()
                    if step % 250 == 0 or 'held_teacher' in row or step == 1:
                        print(row, flush=True)
                if spent >= 1 or (a.steps and step >= a.steps):
                    break
        seconds = time.time() - begun
        last = self.measure(held)
        log.write(json.dumps({'step': step, 'seconds': round(seconds, 1), 'tokens_m': round(seen / 1e6, 1), **last}) + '\n')
        torch.save(self.model.state_dict(), os.path.join(a.folder, 'model.pt'))
        facts = {'seed': a.seed, 'steps': step, 'epochs': epoch, 'tokens_m': round(seen / 1e6, 1), 'seconds': round(seconds, 1), 'seconds_before': round(setup, 1),
                 'tokens_per_second': round(seen / seconds), 'tokens_per_step': a.tokens, 'muon': a.muon, 'adam': a.adam, 'level': a.level, 'how': self.how, 'torch': torch.__version__,
                 'device': torch.cuda.get_device_name() if self.device == 'cuda' else 'CPU', 'memory_gb': round(torch.cuda.max_memory_allocated() / 1e9, 1) if self.device == 'cuda' else None, **last}
        json.dump(facts, open(os.path.join(a.folder, 'train.json'), 'w'), indent=1)
        print(json.dumps(facts), flush=True)

    def measure(self, held):
        out = {}
        for kind, texts in held.items():
            out['held_' + kind], out['held_draft_' + kind] = (round(x, 4) for x in held_out(self.model, texts, self.device))
        return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('folder', help='of prepare.py')
    ap.add_argument('--seconds', type=float, default=270, help='of training, after compiling')
    ap.add_argument('--steps', type=int, default=0, help='instead of --seconds')
    ap.add_argument('--tokens', type=int, default=65536, help='a step')
    ap.add_argument('--muon', type=float, default=0.012, help='learning rate of matrices; 0: AdamW for all')
    ap.add_argument('--adam', type=float, default=6e-3, help='learning rate of the rest')
    ap.add_argument('--level', type=float, default=0.3, help='share of the time before the rate falls')
    ap.add_argument('--seed', type=int, default=1)
    ap.add_argument('--eager', action='store_true')
    ap.add_argument('--no-graph', action='store_true')
    ap.add_argument('--compile-long', action='store_true', help='compile rows of 2048 too')
    ap.add_argument('--smoke', action='store_true')
    args = ap.parse_args()
    if args.smoke:
        import smoke
        smoke.run(args)
    else:
        Trainer(args).train()


if __name__ == '__main__':
    main()
