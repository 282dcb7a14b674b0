# SPDX-License-Identifier: MIT OR Apache-2.0
"""What train.py --smoke shows: gradients of compiled bfloat16 against eager float32, milliseconds a step of each way to run, and whether losses fall."""
import copy, time

import torch

from train import BALANCE, MTP, PROMPT, Z, Trainer, losses


def sync(device):
    if device == 'cuda':
        torch.cuda.synchronize()


def reference(trainer, step, parts):
    """Gradients in eager float32 of the step's rows, in parts to fit the memory: name to gradient. Balance is left out: it is no sum over rows."""
    model, rows = trainer.model, [t[step.index] for t in step.rows]
    for p in model.parameters():
        p.grad = None
    torch.set_float32_matmul_precision('highest')
    with torch.compiler.set_stance('force_eager'):
        cut = [[r.chunk(parts)[i].long() for r in rows] for i in range(parts)]
        with torch.no_grad():
            sums = [losses(model, *c, PROMPT)[4:] for c in cut]
        total = [sum(s[i] for s in sums) for i in (0, 1)]
        for c, (wa, wb) in zip(cut, sums):
            a, b, z, *_ = losses(model, *c, PROMPT)
            ((a + Z * z) * wa / total[0] + MTP * b * wb / total[1]).backward()
    torch.set_float32_matmul_precision('high')
    return {n: p.grad.clone() for n, p in model.named_parameters()}


def gradients(trainer, step):
    """Cosine of the angle between the step's gradients and the reference's, the worst ones."""
    want = reference(trainer, step, max(1, len(step.index) // 8))
    for p in trainer.model.parameters():
        p.grad = None
    ids, marks, pos = (t[step.index] for t in step.rows)
    with torch.autocast(trainer.device, torch.bfloat16, enabled=trainer.device == 'cuda'):
        a, b, z, *_ = losses(trainer.model, ids.long(), marks, pos.long(), PROMPT, step.ce)
        (a + MTP * b + Z * z).backward()
    bad = []
    for n, p in trainer.model.named_parameters():
        g, w = p.grad.double().flatten(), want[n].double().flatten()
        bad.append((float(g @ w / (g.norm() * w.norm()).clamp(min=1e-30)), float(g.norm() / w.norm().clamp(min=1e-30)), n))
    bad.sort()
    whole = lambda f: torch.cat([f(n, p).double().flatten() for n, p in trainer.model.named_parameters()])
    g, w = whole(lambda n, p: p.grad), whole(lambda n, p: want[n])
    print(f'gradients against eager float32: cosine of all {float(g @ w / (g.norm() * w.norm())):.5f}; worst ' + ', '.join(f'{n} {c:.4f} (norm x{r:.3f})' for c, r, n in bad[:4]), flush=True)


def speed(trainer, step, name, n):
    sync(trainer.device)
    begun = time.time()
    for _ in range(n):
        step(step.index)
    sync(trainer.device)
    ms = (time.time() - begun) / n * 1e3
    tokens = len(step.index) * step.rows[0].shape[1]
    print(f'{name}: {ms:.1f} ms a step of {tokens} tokens = {tokens / ms:.0f} k tokens/s', flush=True)


def falling(args, muon, adam, steps, n=512):
    """Mean losses as training goes on from the start with these rates, on the same rows."""
    args = copy.copy(args)
    args.muon, args.adam = muon, adam
    t = Trainer(args)
    t.rows = {n: t.rows[n]}
    step = t.ready()[n]
    order, seen = torch.randperm(len(step.rows[0]), device=t.device, generator=torch.Generator(t.device).manual_seed(1)), []
    step.means()
    for i in range(steps):
        t.rate.fill_(min(1, (i + 1) / (0.2 * steps), (steps - i) / (0.7 * steps)))
        at = i * len(step.index) % max(1, len(order) - len(step.index))
        step(order[at:at + len(step.index)])
        if (i + 1) % max(1, steps // 5) == 0:
            seen.append('%.3f / %.3f' % tuple(step.means()[:2]))
    print(f'{steps} steps, muon {muon}, adam {adam}: trunk / draft ' + ', '.join(seen), flush=True)


def run(args):
    begun = time.time()
    said = lambda: print(f'[{time.time() - begun:.0f} s]', flush=True)
    if torch.cuda.is_available():
        print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    t = Trainer(args)
    few = 5 if t.device == 'cuda' else 1
    # Eager first, then compiled layers, then the graph: what fails is named, what works is measured.
    from train import Step, cross_entropy
    t.rate.fill_(1e-4)
    step = Step(t.model, t.opt, t.rows[512], max(1, args.tokens // 512), t.device, cross_entropy)
    step(step.index)
    speed(t, step, 'eager', few)
    gradients(t, step)
    said()
    del step
    for compiled, graph in ((True, False), (True, True)) if t.device == 'cuda' and not args.eager else ():
        try:
            t = Trainer(args)
            t.rate.fill_(1e-4)
            t.rows = {512: t.rows[512]}
            step = t.steps(compiled, graph)[512]
            speed(t, step, f'compiled={compiled} graph={graph}', 3 * few)
            if not graph:
                gradients(t, step)
        except Exception as e:
            print(f'!!! compiled={compiled}, graph={graph} FAILED: {type(e).__name__}: {str(e)[:600]}', flush=True)
            torch.compiler.reset()
        said()
    steps = 100 if t.device == 'cuda' else 4
    t.rows = step = None
    for muon, adam in ((0.02, 8e-3), (0.04, 8e-3), (0.02, 3e-3), (0.0, 4e-3)):
        falling(args, muon, adam, steps)
        said()
    if t.device == 'cuda':
        print(f'memory: {torch.cuda.max_memory_allocated() / 1e9:.1f} GB', flush=True)
