# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random regular expressions of the kinds that compilePattern translates, for make_golden.py."""
from tokenizers import Regex, pre_tokenizers

ATOMS = [
    "a", "b", "x", "1", r"\.", "é", "中", " ", r"\s", r"\S", r"\d", r"\D", r"\w", r"\W", r"\p{L}", r"\p{Lu}", r"\P{L}", r"\p{M}", r"\p{N}", ".",
    "[abc]", "[^abc]", "[a-z]", r"[^\s\w]", r"[\p{L}\p{M}]", r"[\p{L}&&[^\p{Lu}]]", r"[^\r\n\p{L}\p{N}]", r"\n", r"\t", "[A-Za-z0-9_]", "[一-龥]",
    r"\x41", r"\u00e9", r"[\x{4e00}-\x{9fff}]", "'", "-", "[-a]", r"[a\-z]", r"\p{Han}", r"\p{^L}", r"[\d.]",
]
FOLDED = ["'s", "'t", "'re", "ll", "k", "[sdmt]", "[a-f]", "x"]
ASSERTIONS = ["(?=%s)", "(?!%s)", "(?<=%s)", "(?<!%s)", r"\b", "$", r"\z", r"\A"]
QUANTIFIERS = ["?", "*", "+", "??", "*?", "+?", "?+", "*+", "++", "{2}", "{1,3}", "{2,}", "{,2}", "{1,2}?"]


def atom(rng, depth):
    r = rng.random()
    if depth > 0 and r < 0.25:
        return rng.choice(["(?:%s)", "(%s)", "(?>%s)"]) % alternatives(rng, depth - 1)
    if r < 0.32:
        return "(?i:%s)" % "|".join(rng.sample(FOLDED, rng.randint(1, 3)))
    return rng.choice(ATOMS)


def term(rng, depth):
    if rng.random() < 0.1:
        return rng.choice(ASSERTIONS).replace("%s", rng.choice(ATOMS))
    return atom(rng, depth) + (rng.choice(QUANTIFIERS) if rng.random() < 0.5 else "")


def alternatives(rng, depth):
    return "|".join("".join(term(rng, depth) for _ in range(rng.randint(1, 3))) for _ in range(rng.randint(1, 2)))


def patterns(rng, count, texts):
    """Patterns with, for each of texts(), the pieces that a Split makes of it."""
    out = []
    while len(out) < count:
        pattern = alternatives(rng, 2)
        try:
            split = pre_tokenizers.Split(Regex(pattern), "isolated")
            out.append([pattern, [[t, [p for p, _ in split.pre_tokenize_str(t)]] for t in texts()]])
        except BaseException:  # not a pattern, or too much backtracking even for the reference
            continue
    return out
