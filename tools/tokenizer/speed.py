# SPDX-License-Identifier: MIT OR Apache-2.0
"""Times the engine's tokenizer and tiktoken on the same texts with the same vocabulary (o200k), one thread each, in turn.

    python tools/tokenizer/speed.py TOKCHECK CORPUS WORK TOKENIZER_JSON [ROUNDS]

TOKENIZER_JSON is gpt-oss's, from which tiktoken's ranks are taken too. Each text is a part of the corpus, in the pieces of
6 KB that it comes in. A figure is the best of the rounds; tiktoken's is the better of its two ways to give ids back.
"""
import json
import pathlib
import subprocess
import sys
import time

import tiktoken

from check_ids import read_pieces, write_pieces


def tiktoken_encoding(path):
    t = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    byte = {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}
    ranks = {bytes(byte[c] for c in token): i for token, i in t["model"]["vocab"].items()}
    pattern = t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    return tiktoken.Encoding("o200k", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 199999})


def is_plain(piece):
    try:
        text = piece.decode()
    except UnicodeDecodeError:
        return False
    return 2000 < len(piece) < 12000 and text.count(text[0]) < len(text) / 2


def main():
    tokcheck, corpus, work, path = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), sys.argv[4]
    rounds = int(sys.argv[5]) if len(sys.argv) > 5 else 3
    pieces = [p for p in read_pieces(corpus) if is_plain(p)]
    code = [p for p in pieces if b"import " in p or b"function" in p or b"    def " in p]
    english = [p for p in pieces if p.isascii() and b"the " in p]
    other = [p for p in pieces if sum(b >= 0x80 for b in p) > len(p) / 4]
    encoding = tiktoken_encoding(path)
    for name, part in [("code", code), ("ASCII", english), ("other scripts", other), ("all", pieces)]:
        size = sum(map(len, part)) / 1e6
        write_pieces(work / "speed", part)
        texts = [p.decode() for p in part]
        ours, theirs, tokens, count = [], [], 0, 0
        for _ in range(rounds):
            out = subprocess.run([tokcheck, "-tokenizer", path, "-in", work / "speed", "-bench", "3"], capture_output=True, text=True, check=True)
            seconds, tokens = out.stdout.split()
            ours.append(float(seconds))
            start = time.perf_counter()
            count = sum(len(encoding.encode_ordinary(t)) for t in texts)
            theirs.append(time.perf_counter() - start)
            start = time.perf_counter()
            for t in texts:
                encoding._core_bpe.encode_to_tiktoken_buffer(t, set())
            theirs.append(time.perf_counter() - start)
        if count != int(tokens):
            sys.exit(f"{name}: {tokens} tokens here, {count} in tiktoken")
        a, b = size / min(ours), size / min(theirs)
        print(f"{name:14} {size:6.2f} MB {count:9} tokens   ours {a:6.1f} MB/s   tiktoken {b:6.1f} MB/s   ratio {a / b:5.2f}")


if __name__ == "__main__":
    main()
