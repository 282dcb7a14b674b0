# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the engine's tokenizer with Hugging Face's tokenizers over a corpus: every id and every decoded text.

    python tools/tokenizer/check_ids.py TOKCHECK CORPUS WORK NAME=PATH...

TOKCHECK is the built command, CORPUS the file of make_corpus.py, WORK a folder for what goes between. PATH is one of

    …/tokenizer.json             the engine reads it, as the reference does
    …/model.gguf                 a byte-level vocabulary; the reference is put together from the file's own merges
    gguf:PRE:…/tokenizer.json    the engine reads GGUF metadata made of it: tokenizer.ggml.pre PRE, or scores if PRE is empty

Prints a table; exits non-zero if anything differs.
"""
import json
import pathlib
import random
import struct
import subprocess
import sys
import time

import numpy
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

BATCH = 400  # pieces given to the reference at once


def read_pieces(path):
    data = pathlib.Path(path).read_bytes()
    pieces, i = [], 0
    while i < len(data):
        (n,) = struct.unpack_from("<I", data, i)
        pieces.append(data[i + 4 : i + 4 + n])
        i += 4 + n
    return pieces


def write_pieces(path, pieces):
    with open(path, "wb") as f:
        for p in pieces:
            f.write(struct.pack("<I", len(p)) + p)


def read_results(path):
    data = pathlib.Path(path).read_bytes()
    i = 0
    while i < len(data):
        (n,) = struct.unpack_from("<I", data, i)
        ids = numpy.frombuffer(data, "<i4", n, i + 4)
        i += 4 + 4 * n
        (n,) = struct.unpack_from("<I", data, i)
        yield ids, data[i + 4 : i + 4 + n].decode()
        i += 4 + n


def with_added_tokens(tokenizer, pieces):
    """Pieces with the tokenizer's added tokens in their text, whole, broken and with white space around."""
    rng = random.Random(2)
    added = sorted(t.content for t in tokenizer.get_added_tokens_decoder().values())
    words = [w for p in pieces[:: len(pieces) // 40] for w in p.decode(errors="replace").split(" ")[:200]]
    for _ in range(300):
        out = []
        for _ in range(60):
            out.append(rng.choice(words))
            token = rng.choice(added) if added else ""
            match rng.randrange(5):
                case 0:
                    out.append(token[: rng.randrange(len(token) + 1)])
                case 1:
                    out.append(token + rng.choice(added) if added else "")
                case _:
                    out.append(rng.choice(["", " ", "\n", "  \n"]) + token + rng.choice(["", " ", "\n", "\t "]))
        yield " ".join(out).encode()


def gguf_reference(path, work):
    """The reference for a GGUF vocabulary, and the arguments that make the engine read the same metadata."""
    from gguf import GGUFReader

    fields = GGUFReader(path).fields
    meta = {k: f.contents() for k, f in fields.items() if k.startswith("tokenizer.")}
    assert meta["tokenizer.ggml.model"] == "gpt2" and meta["tokenizer.ggml.pre"] == "smollm"
    tokens = meta["tokenizer.ggml.tokens"]
    merges = [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]]
    t = Tokenizer(models.BPE({s: i for i, s in enumerate(tokens)}, merges))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    control = [s for s, k in zip(tokens, meta["tokenizer.ggml.token_type"]) if k == 3]
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in control])
    file = work / "metadata.json"
    file.write_text(json.dumps(meta))
    return t, ["-metadata", file]


def as_gguf(path, pre, work):
    """A tokenizer.json as the GGUF metadata that converters make of it. SentencePiece's pieces lie in the order of
    their scores, but for runs of spaces, which come last."""
    file = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    model = file["model"]
    ids = dict(model["vocab"])
    kinds = {i: 6 if s.startswith("<0x") and s.endswith(">") and len(s) == 6 and model["byte_fallback"] else 1 for s, i in ids.items()}
    for t in file["added_tokens"]:
        ids[t["content"]] = t["id"]
        kinds[t["id"]] = 3 if t["special"] else 4
    by_id = {i: s for s, i in ids.items()}
    tokens = [by_id.get(i, f"[PAD{i}]") for i in range(max(by_id) + 1)]
    g = "tokenizer.ggml."
    meta = {g + "tokens": tokens, g + "token_type": [kinds.get(i, 5) for i in range(len(tokens))], g + "add_bos_token": not pre, g + "bos_token_id": 1}
    if pre:
        meta |= {g + "model": "gpt2", g + "pre": pre, g + "merges": [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]}
    else:
        meta |= {g + "model": "llama", g + "scores": [-1e9 if set(s) == {"▁"} and len(s) > 1 else -float(i) for i, s in enumerate(tokens)]}
    out = work / "metadata.json"
    out.write_text(json.dumps(meta))
    return Tokenizer.from_file(path), ["-metadata", out]


def compare(name, path, tokcheck, pieces, work):
    """A row of the table; the number of differences."""
    if path.endswith(".gguf"):
        reference, source = gguf_reference(path, work)
    elif path.startswith("gguf:"):
        _, pre, file = path.split(":", 2)
        reference, source = as_gguf(file, pre, work)
    else:
        reference, source = Tokenizer.from_file(path), ["-tokenizer", path]
    reference.no_truncation()
    reference.no_padding()
    pieces = pieces + list(with_added_tokens(reference, pieces))
    write_pieces(work / "pieces", pieces)
    start = time.time()
    done = subprocess.run([tokcheck, *source, "-special", "-in", work / "pieces", "-out", work / "results"], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{name:13} {done.stderr.strip()}")
        return 1
    ours = time.time() - start
    results = read_results(work / "results")
    start, differ, tokens = time.time(), 0, 0
    for i in range(0, len(pieces), BATCH):
        batch = [p.decode(errors="replace") for p in pieces[i : i + BATCH]]
        encodings = reference.encode_batch_fast(batch)
        all_ids = [e.ids for e in encodings]
        texts = reference.decode_batch(all_ids, skip_special_tokens=False)
        for k, (want_ids, want_text) in enumerate(zip(all_ids, texts)):
            ids, text = next(results)
            tokens += len(want_ids)
            same = numpy.array_equal(ids, numpy.array(want_ids, "<i4"))
            if same and text == want_text:
                continue
            differ += 1
            if differ <= 3:
                report(i + k, batch[k], ids.tolist(), want_ids, text, want_text, reference)
    mb = sum(map(len, pieces)) / 1e6
    print(f"{name:13} {mb:7.2f} MB {len(pieces):7} pieces {tokens:10} tokens {differ:6} differ   reference {time.time() - start:5.1f} s, ours {ours:4.1f} s", flush=True)
    return differ


def report(number, piece, ids, want_ids, text, want_text, reference):
    if ids != want_ids:
        at = next((i for i, (a, b) in enumerate(zip(ids, want_ids)) if a != b), min(len(ids), len(want_ids)))
        show = lambda x: [(i, reference.id_to_token(i)) for i in x[max(0, at - 2) : at + 4]]
        print(f"  piece {number}: from token {at} on: ours {show(ids)}, reference {show(want_ids)}")
    else:
        at = next((i for i, (a, b) in enumerate(zip(text, want_text)) if a != b), min(len(text), len(want_text)))
        print(f"  piece {number}: text from character {at} on: ours {text[at - 5 : at + 20]!r}, reference {want_text[at - 5 : at + 20]!r}")


def main():
    tokcheck, corpus, work = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    pieces = read_pieces(corpus)
    differ = 0
    for arg in sys.argv[4:]:
        name, path = arg.split("=", 1)
        differ += compare(name, path, tokcheck, pieces, work)
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
