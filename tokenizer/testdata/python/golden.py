"""Writes ../golden.json: what Hugging Face tokenizers makes of random texts with
small tokenizers that use each supported component. See README.md."""
import copy
import json
import random

from tokenizers import Tokenizer

R = random.Random(7)
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
DEEPSEEK = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def alphabet():
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [b for b in range(256) if b not in keep]
    return {**{b: chr(b) for b in keep}, **{b: chr(256 + i) for i, b in enumerate(other)}}


def model():
    chars = alphabet()
    vocab = {chars[b]: b for b in range(256)}
    merges = ["a b", "t h", "th e", "b a", "Ġ the", "ab ab", "Ġ Ġ", "ĠĠ ĠĠ", "Ċ Ċ", "' s", "' S", "' Å¿", "Å ¿", "Ã ©",
              "x x", "xx xx", "xxxx xxxx", "1 2", "12 3", ". .", ".. .", "Ġ a", "Ġa b", "Ì ģ"]
    for m in merges:
        vocab.setdefault(m.replace(" ", ""), len(vocab))
    return dict(type="BPE", vocab=vocab, merges=[m for m in merges if all(p in vocab for p in m.split(" "))])


def added(ident, content, **flags):
    base = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
    return dict(id=ident, content=content, **{**base, **flags})


def split(pattern, behavior="Isolated", invert=False):
    return dict(type="Split", pattern=pattern, behavior=behavior, invert=invert)


def levels(regex, space=False):
    return dict(type="ByteLevel", add_prefix_space=space, trim_offsets=True, use_regex=regex)


def sequence(*parts):
    return dict(pre_tokenizer=dict(type="Sequence", pretokenizers=list(parts)))


def flagged(vocab):
    n = len(vocab)
    return [added(n, "<eos>", special=True), added(n + 1, "<l>", lstrip=True), added(n + 2, "<r>", rstrip=True, special=True),
            added(n + 3, "<w>", single_word=True), added(n + 4, "<e\u0301>", normalized=True),
            added(n + 5, "<lr>", single_word=True, lstrip=True, rstrip=True, normalized=True), added(n + 6, "<eos><l>")]


BASE = dict(version="1.0", truncation=None, padding=None, normalizer=dict(type="NFC"), post_processor=None,
            decoder=levels(True), model=model(), **sequence(split(dict(Regex=QWEN2)), levels(False)))
BASE["added_tokens"] = flagged(BASE["model"]["vocab"])
SMALL = {k: i for i, k in enumerate(k for k in BASE["model"]["vocab"] if not set(k) & set("eÃ2"))}
DROP = dict(type="BPE", vocab=SMALL, merges=[m for m in BASE["model"]["merges"] if all(p in SMALL for p in [*m.split(" "), m.replace(" ", "")])])
TEMPLATE = dict(type="TemplateProcessing", pair=[], single=[dict(SpecialToken=dict(id="<eos>", type_id=0)), dict(Sequence=dict(id="A", type_id=0))],
                special_tokens={"<eos>": dict(id="<eos>", ids=[len(BASE["model"]["vocab"])], tokens=["<eos>"])})
CASES = {
    "qwen2": {}, "llama3": sequence(split(dict(Regex=LLAMA3)), levels(False)), "gpt2": dict(normalizer=None, pre_tokenizer=levels(True)),
    "gpt2 prefix": dict(pre_tokenizer=levels(True, True)), "nfd": dict(normalizer=dict(type="NFD")),
    "nfkc": dict(normalizer=dict(type="Sequence", normalizers=[dict(type="NFKC")])), "nfkd": dict(normalizer=dict(type="NFKD")),
    "digits": sequence(dict(type="Digits", individual_digits=True), levels(True)),
    "digit runs": sequence(dict(type="Digits", individual_digits=False), levels(False)),
    "deepseek": sequence(split(dict(Regex=r"\p{N}{1,3}")), split(dict(Regex="[一-龥぀-ゟ゠-ヿ]+")), split(dict(Regex=DEEPSEEK)), levels(False)),
    "ignore merges": dict(model={**BASE["model"], "ignore_merges": True}), "dropped bytes": dict(model=DROP, added_tokens=flagged(SMALL)),
    "unknown": dict(model={**DROP, "unk_token": "ab"}, added_tokens=flagged(SMALL)),
    "fused": dict(model={**DROP, "unk_token": "ab", "fuse_unk": True}, added_tokens=flagged(SMALL)),
    "template": dict(post_processor=dict(type="Sequence", processors=[levels(True), TEMPLATE])),
}
for b in ["Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"]:
    for inv in (False, True):
        CASES[f"{b} {inv}"] = sequence(split(dict(Regex=r"\s+|[ab]"), b, inv), levels(False))
        CASES[f"string {b} {inv}"] = sequence(split(dict(String="ab"), b, inv), levels(True, True))

ATOMS = ["a", "b", "ab", "abab", "the", "E", "é", "e\u0301", "日", "本語", "ß", "1", "123", "²", "Ⅷ", "٣", " ", "  ", "    ", "\t", "\u00a0", "\u3000",
         "\u0085", "\u200b", "\n", "\r\n", "\n\n", "'", "'s", "'LL", "'Ve", "'d", "'ſ", "ſ", ".", "...", "!", "—", "\u0301", "😀", "\x00", "\x1f", "_", "-",
         "<eos>", "<l>", "<r>", "<w>", "<é>", "<e\u0301>", "<lr>", " the", "가", "\u1100\u1161", "ก็", "ﬁ", "ǅ", "हिन्दी", "\u212b", "x" * 40, "\u0301" * 35, "\u0323"]
cases = []
for name, change in CASES.items():
    t = Tokenizer.from_str(json.dumps({**copy.deepcopy(BASE), **change}))
    texts = ["".join(R.choice(ATOMS) for _ in range(R.randrange(1, 12))) for _ in range(30)]
    rows = [dict(text=x, ids=t.encode(x, add_special_tokens=False).ids, prompt=t.encode(x).ids) for x in texts]
    for r in rows:
        if r["prompt"] == r["ids"]:
            del r["prompt"]
    cases.append(dict(name=name, change=change, rows=rows))
with open("../golden.json", "w") as f:
    f.write('{"base":' + json.dumps(BASE) + ',\n"cases":[\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]}\n")
