# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes what Python's jinja2 renders, for the tests of internal/chat. Needs only jinja2.

    python make_goldens.py [--out DIR] [--random N --seed S]

Reads and writes in testdata/chat, or writes to DIR:

    templates/*.jinja, chats.json  ──►  goldens.json.gz   each template with each chat in each variant
    cases.json.gz                  ──►  cases.json.gz     small templates: "t" with "ctx" gives "want" or "err"
    random.json.gz                 ──►  random.json.gz    the same, made by random_templates.py; --random makes new ones
"""

import argparse
import copy
import gzip
import json
import pathlib
import warnings

import environment
import random_templates

DATA = pathlib.Path(__file__).resolve().parents[2] / "testdata" / "chat"


def read(name):
    with gzip.open(DATA / name) as f:
        return json.load(f)


def write(path, value):
    data = json.dumps(value, ensure_ascii=False, indent=0).encode()
    with open(path, "wb") as f, gzip.GzipFile("", "wb", 9, f, mtime=0) as z:
        z.write(data)


def goldens(env):
    data = json.loads((DATA / "chats.json").read_text())
    compiled, out = {}, []
    for path in sorted((DATA / "templates").glob("*.jinja")):
        source = path.read_text()
        for chat, messages in data["chats"].items():
            for variant, kwargs in data["variants"].items():
                variables = {
                    "documents": None, "add_generation_prompt": False, "bos_token": "<s>", "eos_token": "</s>", **kwargs,
                    "messages": copy.deepcopy(messages), "tools": copy.deepcopy(data["tools"]) if kwargs.get("tools") else None,
                }
                text, error = environment.render(env, compiled, source, variables)
                out.append({"template": path.stem, "chat": chat, "variant": variant, "want": text, "err": error})
    return out


def cases(env, old):
    return [case(env, c["name"], c["t"], c["ctx"]) for c in old]


def case(env, name, source, ctx):
    text, error = environment.render(env, {}, source, copy.deepcopy(ctx))
    return {"name": name, "t": source, "ctx": ctx, "want": text, "err": error}


def new_random(env, count, seed):
    """Random templates whose text has no address of an object in it."""
    out = []
    for name, source in random_templates.make(seed, count):
        c = case(env, name, source, random_templates.CONTEXT)
        if " at 0x" not in (c["want"] or ""):
            out.append(c)
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=DATA)
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    args.out.mkdir(parents=True, exist_ok=True)
    env = environment.make()
    write(args.out / "goldens.json.gz", goldens(env))
    write(args.out / "cases.json.gz", cases(env, read("cases.json.gz")))
    made = new_random(env, args.random, args.seed) if args.random else cases(env, read("random.json.gz"))
    write(args.out / "random.json.gz", made)


if __name__ == "__main__":
    main()
