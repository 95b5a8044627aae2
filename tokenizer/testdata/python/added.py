"""Writes ../added.json: what Hugging Face tokenizers encodes and decodes with
random added tokens, in small tokenizers of each supported kind. See README.md."""
import json
import random

from tokenizers import Tokenizer

R = random.Random(23)
CONTENTS = ["<a>", "<think>", "é", "Ġ", "Ġx", "▁", "▁x", "e\u0301", "E\u0301", " s ", "tok", "日本", "Ab", "<0x41>", "<0xE6>", "ﬁ", "a b", "\t", "ab", "x", "\u00a0", "İ", "²", "<|im|>", "ſ", "가", "\u1100\u1161", "ﾅ"]
ATOMS = [*CONTENTS, *CONTENTS, " ", "  ", "\t", "\n", "a", "b", "ab", "z", ".", "_", "1", "²", "\u200c", "\u00a0", "日", "😀", "\u0301", "É", "A", "!", " .", " n't"]
chars = [*range(33, 127), *range(161, 173), *range(174, 256)]
SPELL = {**{b: chr(b) for b in chars}, **{b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in chars)}}
BYTES = dict(type="BPE", vocab={**{SPELL[b]: b for b in range(256)}, "ab": 256, "Ġa": 257}, merges=["a b", "Ġ a"])
PIECES = {p: i for i, p in enumerate(["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "▁", "a", "b", "A", "z", "x", ".", "日", "ab", "▁a"])}
RUNES = dict(type="BPE", unk_token="<unk>", fuse_unk=True, byte_fallback=True, vocab=PIECES, merges=["a b", "▁ a"])


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def replace(a, b):
    return dict(type="Replace", pattern=dict(String=a), content=b)


def levels(space=False, regex=True):
    return dict(type="ByteLevel", add_prefix_space=space, trim_offsets=True, use_regex=regex)


def meta(scheme):
    return dict(type="Metaspace", replacement="▁", prepend_scheme=scheme, split=scheme != "first")


def strip(start):
    return dict(type="Strip", content=" ", start=start, stop=0)


LLAMA = sequence("decoders", replace("▁", " "), dict(type="ByteFallback"), dict(type="Fuse"), strip(1))
KINDS = {
    "gpt2": dict(normalizer=None, pre_tokenizer=levels(), decoder=levels(), model=BYTES),
    "gpt2 prefix": dict(normalizer=None, pre_tokenizer=levels(True), decoder=levels(), model=BYTES),
    "qwen": dict(normalizer=dict(type="NFC"), pre_tokenizer=levels(), decoder=levels(), model=BYTES),
    "nfkc lowercase": dict(normalizer=sequence("normalizers", dict(type="NFKC"), dict(type="Lowercase")), pre_tokenizer=levels(), decoder=levels(), model=BYTES),
    "llama": dict(normalizer=sequence("normalizers", dict(type="Prepend", prepend="▁"), replace(" ", "▁")), pre_tokenizer=None, decoder=LLAMA, model=RUNES),
    "mistral": dict(normalizer=None, pre_tokenizer=meta("first"), decoder=LLAMA, model=RUNES),
    "gemma": dict(normalizer=replace(" ", "▁"), pre_tokenizer=None, decoder=sequence("decoders", replace("▁", " "), dict(type="ByteFallback"), dict(type="Fuse")), model=RUNES),
    "metaspace": dict(normalizer=None, pre_tokenizer=meta("always"), decoder=meta("always"), model=RUNES),
    "lowercase spaced": dict(normalizer=dict(type="Lowercase"), pre_tokenizer=meta("never"), decoder=None, model=RUNES),
}


def added(model):
    free = [c for c in CONTENTS if c not in model["vocab"]]
    contents = R.sample(free, R.randrange(2, 9)) + R.sample([c for c in CONTENTS if c in model["vocab"]], R.randrange(3))
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    out, top = [], max(model["vocab"].values())
    for c in contents:
        if c not in model["vocab"]:
            top += 1
        out.append(dict(id=model["vocab"].get(c, top), content=c, **{f: R.random() < 0.4 for f in flags}))
    return sorted(out, key=lambda t: t["id"])


def main():
    cases = []
    for name, kind in KINDS.items():
        for _ in range(12):
            while True:
                tokens = added(kind["model"])
                file = dict(version="1.0", truncation=None, padding=None, added_tokens=tokens, post_processor=None, **kind)
                t = Tokenizer.from_str(json.dumps(file))
                normal = t.normalizer.normalize_str if t.normalizer else str
                if len({normal(a["content"]) for a in tokens}) == len(tokens):  # else the library chooses at random
                    break
            rows = []
            for _ in range(12):
                text = "".join(R.choice([*ATOMS, *(a["content"] for a in tokens)]) for _ in range(R.randrange(1, 10)))
                ids = t.encode(text).ids
                rows.append(dict(text=text, ids=ids, decoded=t.decode(ids, skip_special_tokens=True)))
            for _ in range(8):
                ids = [R.choice([R.randrange(300), *(a["id"] for a in tokens), *(a["id"] for a in tokens)]) for _ in range(R.randrange(1, 8))]
                rows.append(dict(ids=ids, decoded=t.decode(ids, skip_special_tokens=True)))
            cases.append(dict(kind=name, added=tokens, rows=rows))
    with open("../added.json", "w") as f:
        f.write('{"kinds":' + json.dumps(KINDS, separators=(",", ":")) + ',\n"cases":[\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]}\n")


if __name__ == "__main__":
    main()
