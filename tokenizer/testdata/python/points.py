"""Writes ../points.json: what Hugging Face tokenizers makes of every code point, as
a checksum for each block of 256. See README.md."""
import itertools
import json
import random
import unicodedata2
import zlib
from tokenizers import Tokenizer
from tables import POINTS, codes, matched

BLOCK = 256
FORMS = ("NFC", "NFD", "NFKC", "NFKD")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
WORDS = "a@1@ @!@\n@'@'l@'@e@@"  # @ stands for the code point
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PATTERNS = {GPT2: WORDS, QWEN2: WORDS, LLAMA3: WORDS, O200K: WORDS + "A@a",
            **{p: "@" for p in [r"\s", r"\S", r"\d", r"\w", r"\W", r"\h", r".", r"[\w-]", r"[^\W_]", "[[:word:]]", "[[:punct:]]", "[[:alnum:]]", "[[:^graph:]]", r"\p{^L}", r"\P{Mn}",
                                  "(?i:[a-z])", "(?i:k)", r"(?i:\p{Lu})", r"(?i:\P{Ll})", r"(?i:[^\p{Ll}])", r"(?i:[[:upper:]])", r"[\p{L}&&[^\p{Lu}]]", r"[\p{Han}\p{Hira}[:digit:]]"]},
            **{p: "x@ @q@1" for p in [r"(?<=x)\w", r"\b\p{L}", r"\B[^\s\p{Lu}]", r"(?i)(?<!q)[^\s\p{Lu}]", r"(?<=x)(?i:[k-ß])", r"(?<=x)(?:\R|[[:punct:]])", r"\p{L}$|^\p{N}"]}}
NORMAL = "@|@ a@\u0301|@\u0334\u0301|\u0301@\u0334|"


def base(normalizer=None, pre=None):
    chars = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spell = {**{b: chr(b) for b in chars}, **{b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in chars)}}
    added = [dict(id=256 + i, content=c, single_word=w, lstrip=s, rstrip=s, normalized=False, special=False) for i, (c, w, s) in enumerate([("<w>", True, False), ("<s>", False, True)])]
    return dict(version="1.0", added_tokens=added, normalizer=normalizer, pre_tokenizer=pre or dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False),
                post_processor=None, decoder=None, model=dict(type="BPE", vocab={spell[b]: b for b in range(256)}, merges=[]))


def checksum(parts):
    return zlib.crc32("\0".join(parts).encode())


def blocks(text, treat):
    """Checksums of the blocks that are not treated like private characters. treat
    returns the parts that a component makes of a list of texts."""
    usual = treat([text.replace("@", "\ue000")] * BLOCK)
    out = {}
    for first in range(0, 0x110000, BLOCK):
        if 0xD800 <= first < 0xE000:
            continue
        chars = [chr(c) for c in range(first, first + BLOCK)]
        got = treat([text.replace("@", c) for c in chars])
        each = itertools.chain.from_iterable([c] * text.count("@") for c in chars)
        if got != ["".join(next(each, "?") if c == "\ue000" else c for c in part) for part in usual]:
            out[f"{first:x}"] = checksum(got)
    return out


def described(kind):
    return dict(type=kind, **(dict(strip_left=True, strip_right=True) if kind == "Strip" else {}))


def normalizing(kind):
    step = Tokenizer.from_str(json.dumps(base(described(kind)))).normalizer
    return lambda texts: [step.normalize_str(t) for t in texts]


def cutting(component):
    step = Tokenizer.from_str(json.dumps(base(None, component))).pre_tokenizer
    return lambda texts: [p for p, _ in step.pre_tokenize_str("".join(texts))]


def encoding():
    whole = Tokenizer.from_str(json.dumps(base()))
    return lambda texts: [str(i) for i in whole.encode("".join(texts)).ids]


def characters():
    """The parts of decompositions in two, and the characters that normalization changes or orders."""
    firsts, seconds, marks = set(), set(), []
    for c in POINTS:
        parts = unicodedata2.decomposition(chr(c)).split()
        if len(parts) == 2 and parts[0][0] != "<":
            firsts.add(chr(int(parts[0], 16)))
            seconds.add(chr(int(parts[1], 16)))
        if unicodedata2.combining(chr(c)) or parts:
            marks.append(chr(c))
    return dict(firsts="".join(sorted(firsts)), seconds="".join(sorted(seconds)), marks="".join(marks))


class Draw:
    """A generator of numbers that the test repeats."""

    def __init__(self):
        self.state = 1

    def below(self, n):
        self.state = (self.state * 1103515245 + 12345) % (1 << 31)
        return (self.state >> 8) % n


def compositions(firsts, seconds, marks):
    """Pairs, Hangul and random rows of characters."""
    yield "pairs", [a + b for a in firsts for b in seconds]
    yield "orders", [a + b for a in seconds for b in seconds]
    yield "classes", ["a" + a + b for a in "\u0334\u0327\u0323\u0301\u0345\u05b0" for b in marks]
    lead, vowel, trail = range(0x1100, 0x1114), range(0x1160, 0x1177), range(0x11A7, 0x11C4)
    yield "leads", [chr(a) + chr(b) + chr(c) for a in lead for b in vowel for c in trail]
    yield "syllables", [chr(a) + chr(b) for a in range(0xAC00, 0xD7A4, 7) for b in trail]
    draw, pool = Draw(), firsts + seconds * 3 + marks + "".join(map(chr, range(0x1100, 0x1200))) + "".join(map(chr, range(0xAC00, 0xAD00))) + "aeio ux"
    yield "random", ["".join(pool[draw.below(len(pool))] for _ in range(2 + draw.below(7))) for _ in range(20000)]
    pool = seconds + marks[:200]
    yield "long", ["".join(pool[draw.below(len(pool))] for _ in range(20 + draw.below(40))) for _ in range(500)]


def ranges(chars):
    out = []
    for c in sorted(chars):
        if out and (c == out[-1][1] + 1 or out[-1][1] == 0xD7FF and c == 0xE000):
            out[-1][1] = c
        else:
            out.append([c, c])
    return ",".join(f"{a:x}-{b:x}" for a, b in out)


def main():
    cases = []
    for kind in (*FORMS, "Lowercase", "StripAccents", "Strip"):
        cases.append(dict(normalizer=described(kind), text=NORMAL, blocks=blocks(NORMAL, normalizing(kind))))
    steps = [dict(type="Split", pattern=dict(Regex=p), behavior="Isolated" if len(t) > 1 else "Removed", invert=False) for p, t in PATTERNS.items()]
    texts = list(PATTERNS.values())
    for kind in ("Whitespace", "WhitespaceSplit"):
        steps.append(dict(type=kind))
        texts.append("a@-@@ @")
    for step in (dict(type="Digits", individual_digits=True), dict(type="Digits", individual_digits=False), dict(type="Punctuation", behavior="Isolated")):
        steps.append(step)
        texts.append("a@@a1@ ")
    for step, text in zip(steps, texts):
        cases.append(dict(pre_tokenizer=step, text=text, blocks=blocks(text, cutting(step))))
    text = "@<w>@ <w>-<w>@@<s>@ "
    cases.append(dict(text=text, blocks=blocks(text, encoding())))
    properties = {}
    for line in open("properties.txt"):
        if line[0] not in "[#":
            same = zlib.crc32(ranges(codes(matched(r"\p{%s}" % line.split()[0]))).encode())
            properties.update((name, same) for name in line.split())
    for name in "L M N P S Z C LC Any Assigned ASCII alnum alpha blank cntrl digit graph lower print punct posixpunct space upper xdigit Uppercase Lowercase_Letter White-Space Old_Italic".split():
        properties[name] = zlib.crc32(ranges(codes(matched(r"\p{%s}" % name))).encode())
    chars = characters()
    composed = {name: {kind: [checksum(normalizing(kind)(rows[i:i + 1000])) for i in range(0, len(rows), 1000)] for kind in FORMS}
                for name, rows in compositions(**chars)}
    with open("../points.json", "w") as f:
        f.write('{"cases":[\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n],\n")
        f.write('"properties":' + json.dumps(properties, separators=(",", ":")) + ",\n")
        f.write('"characters":' + json.dumps(chars, ensure_ascii=False) + ",\n")
        f.write('"composed":' + json.dumps(composed, separators=(",", ":")) + "}\n")


if __name__ == "__main__":
    main()
