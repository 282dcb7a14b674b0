# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measures a trained demo model and writes evaluation.md: curve, held-out loss of each format, acceptance of drafts at K=1, tool calls, conversations.

    python evaluate.py work/        # writes work/{evaluation.md, evaluation.json, prompts.json, curve.svg}"""
import argparse, collections, gzip, json, os, random, time

import torch
from tokenizers import Tokenizer

import data, export, templated, train, words
from model import Model

ASKED = [['Hello! Who are you?', 'What can you do?'], ['Tell me a short story about a fox who finds a red balloon.'], ['Why does the moon change its shape?', 'Can you say that in simpler words?'],
         ['Name three fruits.', 'Name three more.'], ['What is 7 + 8?', 'And what is 9 times 4?'], ['Give me two tips for learning a language.'],
         ['My name is Ottilie.', 'What does an owl eat?', 'What is my name?'], ["What is my neighbor's phone number?"], ['What is the capital of France?', 'Why do people visit it?'],
         ['Turn this into JSON (name, age, city): Femke is 31 years old and lives in Tampere.']]


@torch.no_grad()
def generate(model, prompts, limit, end, device, temperature=0.0):
    """Continuations of a batch of id lists, greedy or drawn, and how the draft layer would have done at K=1.

    Gives (lists, accepted, drafted): accepted counts greedy drafts that are the trunk's token; drawn ones by the chance sum(min(p, q)) of rejection
    sampling (arXiv 2211.17192), p of the trunk and q of the draft at the temperature. Prefixes are computed again for each token: it is simple, and fast enough."""
    n = max(map(len, prompts)) + limit
    ids = torch.zeros(len(prompts), n, dtype=torch.long, device=device)
    length = torch.tensor([len(p) for p in prompts], device=device)
    for i, p in enumerate(prompts):
        ids[i, :len(p)] = torch.tensor(p, device=device)
    row, done, start, longest = torch.arange(len(prompts), device=device), torch.zeros(len(prompts), dtype=torch.bool, device=device), length.clone(), n - limit
    for i in range(limit):
        live = (~done).nonzero()[:, 0]  # those that go on
        upto = min(n, (longest + i + 63) // 64 * 64)
        logits = model.logits(model.hidden(ids[live, :upto])[torch.arange(len(live), device=device), length[live] - 1]).float()
        token = torch.multinomial((logits / temperature).softmax(-1), 1)[:, 0] if temperature else logits.argmax(-1)
        ids[live, length[live]] = token
        length[live] += 1
        done[live] = token == end
        if bool(done.all()):
            break
    hits = counted = 0.0
    for part in row.split(64):
        hidden = model.hidden(ids[part])
        p, q = model.logits(hidden[:, 1:-1]).float(), model.logits(model.draft(hidden[:, :-2], ids[part, 1:-1])).float()  # both of token t+2, from rows t+1 and t
        at = torch.arange(n - 2, device=device)[None] + 2
        mine = (at >= start[part, None] + 1) & (at < length[part, None])  # the first token of an answer is no draft's
        if temperature:
            agree = torch.minimum((p / temperature).softmax(-1), (q / temperature).softmax(-1)).sum(-1)
        else:
            agree = (q.argmax(-1) == ids[part, 2:]).float()
        hits, counted = hits + float((agree * mine).sum()), counted + float(mine.sum())
    return [ids[i, start[i]:length[i]].tolist() for i in range(len(prompts))], hits, counted


def called(text):
    """The calls in an answer, as values; None if one is not well-formed."""
    try:
        return [json.loads(part.split('</tool_call>')[0]) for part in text.split('<tool_call>')[1:]]
    except ValueError:
        return None


def plot(log, wide=760, high=260):
    """The curve as SVG: training loss of trunk and draft by millions of tokens, held-out loss as dots."""
    rows = [r for r in log if 'loss' in r and r['step'] > 1]
    if len(rows) < 2:
        return ''
    most, top = rows[-1]['tokens_m'] or 1, max(r['loss'] for r in rows[len(rows) // 50:])
    x, y = lambda t: 50 + (wide - 60) * t / most, lambda v: 10 + (high - 40) * (1 - min(v, top) / top)
    line = lambda key, color: f'<polyline fill="none" stroke="{color}" points="' + ' '.join(f'{x(r["tokens_m"]):.0f},{y(r[key]):.0f}' for r in rows) + '"/>'
    dots = ''.join(f'<circle r="3" fill="{color}" cx="{x(r["tokens_m"]):.0f}" cy="{y(r[k]):.0f}"/>' for r in log for k, color in (('held_teacher', '#c33'), ('held_made', '#393')) if k in r)
    axis = ''.join(f'<text x="5" y="{y(top * i / 4) + 4:.0f}">{top * i / 4:.2f}</text>' for i in range(5)) + ''.join(f'<text x="{x(most * i / 4) - 20:.0f}" y="{high - 8}">{most * i / 4:.0f} M</text>' for i in range(5))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" font-size="11" font-family="sans-serif"><rect width="{wide}" height="{high}" fill="#fff"/>{axis}{line("draft", "#9bd")}{line("loss", "#036")}{dots}'
            f'<text x="{wide - 330}" y="16">dark: training loss, light: its draft, red/green: held out (teacher/made)</text></svg>\n')


def curve(log):
    rows = [r for r in log if 'loss' in r]
    out = ['| step | M tokens | seconds | loss | draft | held out: teacher | made |', '|---|---|---|---|---|---|---|']
    for r in [r for i, r in enumerate(rows) if i % max(1, len(rows) // 16) == 0 or 'held_teacher' in r]:
        out.append(f'| {r["step"]} | {r["tokens_m"]} | {r["seconds"]} | {r["loss"]} | {r["draft"]} | {r.get("held_teacher", "")} | {r.get("held_made", "")} |')
    last = log[-1]
    return out + [f'| {last["step"]} | {last["tokens_m"]} | {last["seconds"]} | | | {last.get("held_teacher", "")} | {last.get("held_made", "")} |']


class Evaluation:
    def __init__(self, folder, limit):
        self.folder, self.limit, self.device = folder, limit, 'cuda' if torch.cuda.is_available() else 'cpu'
        self.tok = Tokenizer.from_file(os.path.join(folder, 'tokenizer.json'))
        self.end, self.figures, self.lines = self.tok.token_to_id('<|im_end|>'), {}, []
        self.state = export.load(folder)
        self.held = [json.loads(line) for line in gzip.open(os.path.join(folder, 'heldout.jsonl.gz'), 'rt')]
        self.model = self.of('bf16')

    def of(self, form):
        model = Model().to(self.device).eval()
        model.load_state_dict(export.rounded(self.state, form))
        return model

    def say(self, *lines):
        self.lines += lines

    def prompt(self, messages, tools=None):
        return self.tok.encode(data.render({'messages': messages, 'tools': tools}, True), add_special_tokens=False).ids

    def text(self, ids, special=False):
        return self.tok.decode(ids, skip_special_tokens=not special)

    def losses(self):
        texts = train.held_texts(self.folder)
        self.say('## Held-out loss', '', 'Nats a token of answers: trunk / draft layer.', '', '| chats | bf16 | fp8 | nvfp4 |', '|---|---|---|---|')
        table = {form: {k: train.held_out(self.of(form), t, self.device) for k, t in texts.items()} for form in ('bf16', 'fp8', 'nvfp4')}
        for k in texts:
            self.say(f'| {k} | ' + ' | '.join('%.4f / %.4f' % table[form][k] for form in table) + ' |')
        self.figures['held_out'] = {form: {k: [round(x, 4) for x in v] for k, v in row.items()} for form, row in table.items()}

    def drafts(self):
        self.say('', '## Drafts at K=1 on held-out prompts', '', 'Share of drafts that the trunk accepts: the first question of each chat, answers of at most 160 tokens.', '',
                 '| prompts | answers | greedy | drawn at temperature 0.7 |', '|---|---|---|---|')
        for kind in ('teacher', 'made'):
            firsts = []
            for c in self.held:
                if (c['kind'] == 'teacher') == (kind == 'teacher') and len(firsts) < self.limit:
                    upto = next(i for i, m in enumerate(c['messages']) if m['role'] == 'user') + 1
                    firsts.append(self.prompt(c['messages'][:upto], c.get('tools')))
            cells = []
            for t in (0.0, 0.7):
                _, hit, n = generate(self.model, firsts, 160, self.end, self.device, t)
                cells.append(f'{100 * hit / max(1, n):.1f} % of {n:.0f}')
                self.figures[f'accepted_{kind}_' + ('drawn' if t else 'greedy')] = round(hit / max(1, n), 4)
            self.say(f'| {kind} | {len(firsts)} | ' + ' | '.join(cells) + ' |')

    def tools(self):
        """Prompts with names and cities of words.HELD_*, the first call of an answer must be the wanted calls exactly."""
        rng, world, asked = random.Random(20261130), words.World(held=True), []
        while len(asked) < self.limit:
            c = templated.tool_use(rng, world)
            at = next(i for i, m in enumerate(c['messages']) if m['role'] == 'user')
            asked.append((c['tools'], c['messages'][:at + 1], c['messages'][at + 1]['tool_calls']))
        out, _, _ = generate(self.model, [self.prompt(m, t) for t, m, _ in asked], 140, self.end, self.device)
        count, wrong = collections.Counter(), []
        for (tools, messages, want), ids in zip(asked, out):
            text = self.text(ids, True)
            got = called(text)
            count['well-formed'] += bool(got)
            count['right tools'] += bool(got) and [c.get('name') for c in got] == [c['name'] for c in want]
            count['right'] += got == want
            count['tools offered'] += len(tools)
            if got != want:
                wrong.append((messages[-1]['content'], want, text))
        n = len(asked)
        self.say('', f'## Tool calls on {n} held-out prompts', '', f'On average {count["tools offered"] / n:.1f} tools are offered. {count["well-formed"]} answers have well-formed calls, {count["right tools"]} call the right '
                 f'tools, **{count["right"]}** are right in every argument ({100 * count["right"] / n:.1f} %). Names and cities of the prompts are in no training chat.', '', 'Wrong ones:' if wrong else 'None is wrong.', '')
        for q, want, text in wrong[:8]:
            self.say(f'- {q!r} wants `{json.dumps(want)}`, got `{text!r}`')
        self.figures['tools'] = {'prompts': n, **count}

    def kinds(self):
        """Greedy answers to held-out made chats that are exactly what the template says; questions with several good answers count what is one of them rarely."""
        asked, count, total = [], collections.Counter(), collections.Counter()
        for c in self.held:
            if c['kind'] in ('json', 'arithmetic', 'fact', 'copy', 'read', 'memory') and total[c['kind']] < 60:
                total[c['kind']] += 1
                asked.append((c['kind'], self.prompt(c['messages'][:-1]), c['messages'][-1]['content']))
        asked = [a for a in asked if len(a[1]) < 700]
        total = collections.Counter(k for k, _, _ in asked)
        if not asked:
            return
        out, _, _ = generate(self.model, [p for _, p, _ in asked], 120, self.end, self.device)
        for (kind, _, want), ids in zip(asked, out):
            count[kind] += self.text(ids).strip() == want
        self.say('', '## Held-out made questions answered to the letter', '', '| kind | right |', '|---|---|', *(f'| {k} | {count[k]} of {n} |' for k, n in total.items()))
        self.figures['exact'] = {k: [count[k], n] for k, n in total.items()}

    def talk(self):
        talks = [[] for _ in ASKED]
        for turn in range(max(map(len, ASKED))):
            live = [i for i, asked in enumerate(ASKED) if turn < len(asked)]
            for i in live:
                talks[i].append({'role': 'user', 'content': ASKED[i][turn]})
            out, _, _ = generate(self.model, [self.prompt(talks[i]) for i in live], 200, self.end, self.device)
            for i, ids in zip(live, out):
                talks[i].append({'role': 'assistant', 'content': self.text(ids).strip()})
        self.say('', '## Ten conversations, greedy, as they came', '')
        for t in talks:
            for m in t:
                self.say(('> ' if m['role'] == 'user' else '') + m['content'], '')
            self.say('---', '')

    def prompts(self):
        """Held-out prompts for check.py."""
        some = [c for c in self.held if len(c['messages']) <= 3]
        chosen = [c for c in some if c['kind'] == 'teacher'][:10] + [c for c in some if c['kind'] != 'teacher'][:10]
        rows = []
        for c in chosen:
            upto = next(i for i, m in enumerate(c['messages']) if m['role'] == 'user') + 1
            rows.append({'kind': c['kind'], 'prompt': c['messages'][upto - 1]['content'], 'ids': self.prompt(c['messages'][:upto], c.get('tools'))})
        json.dump(rows, open(os.path.join(self.folder, 'prompts.json'), 'w'))

    def run(self):
        begun = time.time()
        log = [json.loads(line) for line in open(os.path.join(self.folder, 'log.jsonl'))]
        svg = plot(log)
        if svg:
            open(os.path.join(self.folder, 'curve.svg'), 'w').write(svg)
        self.say('# The demo model, measured', '', '![training curve](curve.svg)' if svg else '', '', '## Training', '', *curve(log), '')
        self.losses()
        self.prompts()
        with train.cast(self.device):
            for part in (self.drafts, self.tools, self.kinds, self.talk):
                part()
                print(f'{part.__name__}: {time.time() - begun:.0f} s', flush=True)
        self.figures['seconds'] = round(time.time() - begun, 1)
        open(os.path.join(self.folder, 'evaluation.md'), 'w').write('\n'.join(self.lines) + '\n')
        json.dump(self.figures, open(os.path.join(self.folder, 'evaluation.json'), 'w'), indent=1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('folder')
    ap.add_argument('--limit', type=int, default=200, help='prompts of a kind')
    args = ap.parse_args()
    torch.manual_seed(7)
    torch.set_float32_matmul_precision('high')
    Evaluation(args.folder, args.limit).run()


if __name__ == '__main__':
    main()
