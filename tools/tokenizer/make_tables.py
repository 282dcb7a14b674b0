# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes internal/tokenizer/tables.go: what the Hugging Face tokenizers library believes about each code point.

The library mixes several Unicode versions (its regex engine, Rust's standard library, two older crates), and none of them
need be Go's. So every property is probed from the library itself, code point by code point, and written as ranges.

    pip install tokenizers==0.23.3 unicodedata2
    python tools/tokenizer/make_tables.py > internal/tokenizer/tables.go
"""
import unicodedata2 as ucd
from tokenizers import Regex, __version__, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
EVERYTHING = "".join(map(chr, CODE_POINTS))
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn").split()
SCRIPTS = "Han Hiragana Katakana Hangul Latin Greek Cyrillic Arabic Hebrew Devanagari Thai".split()


def removed(pre_tokenizer):
    """The code points that a pre-tokenizer with behaviour "removed" drops."""
    kept = set()
    for _, (a, b) in pre_tokenizer.pre_tokenize_str(EVERYTHING):
        kept.update(CODE_POINTS[a:b])
    return set(CODE_POINTS) - kept


def matching(pattern):
    return removed(pre_tokenizers.Split(Regex(pattern), "removed"))


def ranges(points):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def wrap(items, per_line):
    for i in range(0, len(items), per_line):
        print("\t" + " ".join(items[i : i + per_line]))


def print_ranges(name, comment, points):
    print(f"\n// {name} {comment}\nvar {name} = []runeRange{{")
    wrap([f"{{{a:#x}, {b:#x}}}," for a, b in ranges(points)], 7)
    print("}")


def print_runs(name, comment, bits, value):
    """value(c) for every code point c, as runs of equal ones: first code point << bits | value."""
    print(f"\n// {name} {comment}\nvar {name} = []uint32{{")
    runs, last = [], None
    for c in range(0x110000):
        v = value(c)
        if v != last:
            runs.append(f"{c << bits | v:#x},")
            last = v
    wrap(runs, 16)
    print("}")


def index(category):
    return (CATEGORIES + ["Cs"]).index(category)


def numeric():
    text = "a" + "a".join(map(chr, CODE_POINTS)) + "a"
    pieces = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str(text)
    return {ord(s) for s, _ in pieces if len(s) == 1 and s != "a"}


def word_characters():
    text = " ".join("a" + chr(c) for c in CODE_POINTS)
    pieces = pre_tokenizers.Whitespace().pre_tokenize_str(text)
    return {ord(s[1]) for s, _ in pieces if len(s) == 2 and s[0] == "a"}


def print_lower():
    lower = normalizers.Lowercase()
    pairs = []
    for c in CODE_POINTS:
        low = lower.normalize_str(chr(c))
        if low == chr(c):
            continue
        if len(low) > 1:
            assert c == 0x130 and low == "i\u0307", hex(c)  # the only one; lowerRune's caller knows it
            continue
        pairs.append((c, ord(low) - c))
    runs = []  # lo, hi, stride, delta
    for c, delta in pairs:
        if runs and runs[-1][3] == delta and (c - runs[-1][1] == runs[-1][2] or runs[-1][0] == runs[-1][1]) and c - runs[-1][1] <= 2:
            runs[-1][2] = c - runs[-1][1]
            runs[-1][1] = c
        else:
            runs.append([c, c, 1, delta])
    print("\n// lowerRuns maps upper to lower case: {first, last, stride, difference}.")
    print("var lowerRuns = [][4]int32{")
    wrap([f"{{{a:#x}, {b:#x}, {s}, {d}}}," for a, b, s, d in runs], 5)
    print("}")


def unknown_to_normalizer():
    """Code points that compose, decompose or reorder in a newer Unicode, while the library leaves them where they are."""
    nfd, nfkd = normalizers.NFD(), normalizers.NFKD()
    parts = set()  # of compositions
    for c in CODE_POINTS:
        d = ucd.decomposition(chr(c))
        if d and not d.startswith("<"):
            parts.update(int(x, 16) for x in d.split())
    out = set()
    for c in CODE_POINTS:
        ch = chr(c)
        if not (ucd.combining(ch) or ucd.decomposition(ch) or c in parts) or nfkd.normalize_str(ch) != ch:
            continue
        # Does the library sort it past a mark of the lowest class, or let a mark of the highest past it?
        if nfd.normalize_str("a" + ch + "\u0334") != "a" + ch + "\u0334":
            continue
        if nfd.normalize_str("a\u0345" + ch) != "a\u0345" + ch:
            continue
        if c in parts and not ucd.combining(ch) and is_old_part(c):
            continue
        out.add(c)
    return out


def is_old_part(c):
    nfd = normalizers.NFD()
    for x in CODE_POINTS:
        d = ucd.decomposition(chr(x))
        if d and not d.startswith("<") and f"{c:04X}" in d.split() and nfd.normalize_str(chr(x)) != chr(x):
            return True
    return False


def form_flags():
    """For NFC 1, NFD 2, NFKC 4, NFKD 8: code points that the form changes, or that may join or pass what stands before."""
    nfd, nfc = normalizers.NFD(), normalizers.NFC()
    flags = {}
    for bit, form in enumerate([nfc, nfd, normalizers.NFKC(), normalizers.NFKD()]):
        for c in CODE_POINTS:
            if form.normalize_str(chr(c)) != chr(c):
                flags[c] = flags.get(c, 0) | 1 << bit
    for c in CODE_POINTS:
        ch = chr(c)
        if nfd.normalize_str(ch) == ch and (nfd.normalize_str("a" + ch + "\u0334") != "a" + ch + "\u0334" or nfd.normalize_str("a\u0345" + ch) != "a\u0345" + ch):
            flags[c] = 15  # a combining mark
        d = ucd.decomposition(ch).split()
        if len(d) == 2 and d[0][0] != "<":
            a, b = (chr(int(x, 16)) for x in d)
            if nfc.normalize_str(a + b) != a + b:
                flags[ord(b)] = flags.get(ord(b), 0) | 5
    for c in [*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)]:  # Hangul vowels and trailing consonants
        flags[c] = flags.get(c, 0) | 5
    return flags


def main():
    category = {}
    for k in CATEGORIES:
        for c in matching(rf"\p{{{k}}}"):
            assert c not in category
            category[c] = k
    assert set(category) == set(CODE_POINTS)
    gc = lambda *ks: {c for c, k in category.items() if k.startswith(ks)}
    space = matching(r"\s")
    assert removed(pre_tokenizers.WhitespaceSplit()) == space == removed(pre_tokenizers.Whitespace())

    print("// SPDX-License-Identifier: MIT OR Apache-2.0\n")
    print(f"// Code generated by tools/tokenizer/make_tables.py from tokenizers {__version__}; DO NOT EDIT.\n")
    print("package tokenizer\n")
    print("// General categories, as the regular expressions of a Split see them.\nconst (")
    for i, k in enumerate(CATEGORIES + ["Cs"]):
        print(f"\tcat{k}" + (" category = iota" if i == 0 else ""))
    print(")\n\nvar categoryNames = [...]string{")
    wrap([f'"{k}",' for k in CATEGORIES + ["Cs"]], 15)
    print("}")
    print_runs("categoryRuns", "has the first code point of each run of equal general category, << 5, | the category.", 5, lambda c: index(category.get(c, "Cs")))
    flags = form_flags()
    print_runs("formRuns", "has the first code point of each run of equal flags, << 4, | flags: NFC 1, NFD 2, NFKC 4, NFKD 8\n// does something to the code point, or to what stands before because of it.", 4, lambda c: flags.get(c, 0))
    print_ranges("spaceRanges", "are \\s and white space everywhere.", space)
    for name, want, got, comment in [
        ("numericDiff", numeric(), gc("N"), "differ between a Digits pre-tokenizer's digits and category N."),
        ("punctDiff", removed(pre_tokenizers.Punctuation("removed")), gc("P"), "differ between the Punctuation pre-tokenizer and category P."),
        ("wordDiff", word_characters(), gc("L", "M", "Nd", "Nl", "Pc"), "differ between \\w of the Whitespace pre-tokenizer and categories L, M, Nd, Nl, Pc."),
        ("splitWordDiff", matching(r"\w"), gc("L", "M", "Nd", "Nl", "Pc"), "differ between \\w of a Split and categories L, M, Nd, Nl, Pc."),
        ("accentDiff", {c for c in CODE_POINTS if not normalizers.StripAccents().normalize_str(chr(c))}, gc("M"), "differ between what StripAccents strips and category M."),
    ]:
        print_ranges(name, comment, want ^ got)
    print_ranges("inertRanges", "are code points that the normalizers NFC, NFD, NFKC, NFKD leave alone whatever newer Unicode says.", unknown_to_normalizer())
    print_lower()
    print("\n// scriptRanges are the scripts that a Split's pattern may name.\nvar scriptRanges = map[string][]runeRange{")
    for s in SCRIPTS:
        print(f'\t"{s}": {{')
        wrap([f"\t{{{a:#x}, {b:#x}}}," for a, b in ranges(matching(rf"\p{{{s}}}"))], 7)
        print("\t},")
    print("}")


main()
