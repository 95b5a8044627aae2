"""Writes ../sentencepiece.json: what Hugging Face tokenizers makes of random texts
with small tokenizers of the SentencePiece family, ids and decoded text; and
../models.json, tokenizer.model files with what sentencepiece makes of the texts.
See README.md."""
import base64
import io
import json
import random

import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb
from tokenizers import Tokenizer

R = random.Random(5)
WORDS = "the then there a ab abab cat cats sat on mat hello world 12 123 7 x+1=2 naïve café 日本語 ... , . ! what's it's don't".split()
ATOMS = [*WORDS, " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "é", "e\u0301", "☃", "😀", "\u00a0", "\u3000", "▁", "▁▁", "<s>", "</s>", "<unk>", "<pad>", "<0x0A>",
         "<keep>", "<l>", "<r>", "Ä", "İ", "ﬁ", "ß", "q" * 40, "_", "-", "\u0301", "가", "z", "ZZ", "𝔘", "\x00", "'", "2²"]


def corpus():
    for _ in range(3000):
        yield "".join(R.choice(WORDS) + R.choice([" ", " ", "  ", ", "]) for _ in range(R.randrange(2, 9)))


def train(**options):
    out = io.BytesIO()
    spm.SentencePieceTrainer.train(sentence_iterator=corpus(), model_writer=out, **{**dict(
        model_type="bpe", vocab_size=420, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True,
        character_coverage=0.9995, pad_id=3, allow_whitespace_only_pieces=True, num_threads=1, minloglevel=2, hard_vocab_limit=False), **options})
    return out.getvalue()


def texts(n):
    return ["", " ", "hello", " hello", "hello <s> world", "</s>x"] + ["".join(R.choice(ATOMS) + R.choice(["", "", " "]) for _ in range(R.randrange(1, 12))) for _ in range(n)]


def model(proto, **change):
    m = pb.ModelProto.FromString(proto)
    vocab = {p.piece: i for i, p in enumerate(m.pieces)}
    merges = []
    for p in m.pieces:
        if p.type == 1 and len(p.piece) > 1:
            splits = [(vocab[p.piece[:i]], p.piece[:i], p.piece[i:]) for i in range(1, len(p.piece)) if p.piece[:i] in vocab and p.piece[i:] in vocab]
            merges += [(-p.score, i, a, b) for i, a, b in sorted(splits)]
    merges = [[a, b] for _, _, a, b in sorted(merges, key=lambda x: x[0])]
    return {**dict(type="BPE", dropout=None, unk_token="<unk>", continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=True,
                   byte_fallback=True, ignore_merges=False, vocab=vocab, merges=merges), **change}


def added(ident, content, **flags):
    return {**dict(id=ident, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=False), **flags}


def replace(a, b, regex=False):
    return dict(type="Replace", pattern={"Regex" if regex else "String": a}, content=b)


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def meta(scheme, split):
    return dict(type="Metaspace", replacement="▁", prepend_scheme=scheme, split=split)


FALLBACK, FUSE = dict(type="ByteFallback"), dict(type="Fuse")
STRIP = dict(type="Strip", content=" ", start=1, stop=0)
LLAMA_NORMAL = sequence("normalizers", dict(type="Prepend", prepend="▁"), replace(" ", "▁"))
LLAMA_DECODER = sequence("decoders", replace("▁", " "), FALLBACK, FUSE, STRIP)
PROTO = train()
BASE_MODEL = model(PROTO)
N = len(BASE_MODEL["vocab"])
SPECIAL = [added(0, "<unk>", special=True), added(1, "<s>", special=True), added(2, "</s>", special=True), added(3, "<pad>", special=True)]
MORE = [*SPECIAL, added(N, "<keep>"), added(N + 1, "<l>", lstrip=True, normalized=True), added(N + 2, "<r>", rstrip=True, special=True)]
TEMPLATE = dict(type="TemplateProcessing", single=[dict(SpecialToken=dict(id="<s>", type_id=0)), dict(Sequence=dict(id="A", type_id=0))],
                pair=[], special_tokens={"<s>": dict(id="<s>", ids=[1], tokens=["<s>"])})
ENDED = {**TEMPLATE, "single": [*TEMPLATE["single"], dict(SpecialToken=dict(id="</s>", type_id=0))],
         "special_tokens": {**TEMPLATE["special_tokens"], "</s>": dict(id="</s>", ids=[2], tokens=["</s>"])}}
BASE = dict(version="1.0", truncation=None, padding=None, added_tokens=SPECIAL, normalizer=LLAMA_NORMAL, pre_tokenizer=None,
            post_processor=TEMPLATE, decoder=LLAMA_DECODER, model=BASE_MODEL)
# Without bytes, and with pieces that have a mark inside or are marks.
FEW = [p for p in BASE_MODEL["vocab"] if not p.startswith("<0x") and not set(p) & set("é日3")]
FEW += ["e▁", "e▁c", "▁▁a"]
FEW_VOCAB = {p: i for i, p in enumerate(dict.fromkeys(FEW))}
FEW_MERGES = [["e", "▁"]] + [m for m in BASE_MODEL["merges"] if all(p in FEW_VOCAB for p in [*m, "".join(m)])] + [["e▁", "c"], ["▁", "▁a"]]
FEW_MODEL = {**BASE_MODEL, "vocab": FEW_VOCAB, "merges": FEW_MERGES, "byte_fallback": False}
FEW_ADDED = [added(FEW_VOCAB[t["content"]], t["content"], special=True) for t in SPECIAL]
PRE = {"always": meta("always", True), "first": meta("first", True), "never": meta("never", True), "whole": meta("first", False), "whole always": meta("always", False),
       "after words": sequence("pretokenizers", dict(type="WhitespaceSplit"), meta("first", True)), "digits": sequence("pretokenizers", dict(type="Digits", individual_digits=True), meta("always", True)),
       "whitespace": dict(type="Whitespace"), "punctuation": sequence("pretokenizers", dict(type="Punctuation", behavior="Isolated"), meta("always", True)),
       "punctuation next": dict(type="Punctuation", behavior="MergedWithNext"), "delimiter": dict(type="CharDelimiterSplit", delimiter="t"),
       "gemma": dict(type="Split", pattern=dict(String=" "), behavior="MergedWithPrevious", invert=False)}
CASES = {"llama-2": {}, "added": dict(added_tokens=MORE, post_processor=ENDED),
         "mistral": dict(normalizer=None, pre_tokenizer=meta("first", False), added_tokens=MORE),
         "gemma": dict(normalizer=replace(" ", "▁"), pre_tokenizer=PRE["gemma"], decoder=sequence("decoders", replace("▁", " "), FALLBACK, FUSE)),
         "ignore merges": dict(model={**BASE_MODEL, "ignore_merges": True}), "few": dict(model=FEW_MODEL, added_tokens=FEW_ADDED),
         "few, not fused": dict(model={**FEW_MODEL, "fuse_unk": False}, added_tokens=FEW_ADDED),
         "few, dropped": dict(model={**FEW_MODEL, "unk_token": None}, added_tokens=FEW_ADDED),
         "few bytes": dict(model={**FEW_MODEL, "byte_fallback": True, "vocab": {**FEW_VOCAB, "<0xE2>": len(FEW_VOCAB), "<0x98>": len(FEW_VOCAB) + 1, "<0x83>": len(FEW_VOCAB) + 2}}, added_tokens=FEW_ADDED),
         "lowercase": dict(normalizer=sequence("normalizers", dict(type="NFKC"), dict(type="Lowercase"), LLAMA_NORMAL)),
         "accents": dict(normalizer=sequence("normalizers", dict(type="NFD"), dict(type="StripAccents"), dict(type="Strip", strip_left=True, strip_right=True), replace(" ", "▁"))),
         "strip left": dict(normalizer=sequence("normalizers", dict(type="Strip", strip_left=True, strip_right=False), replace(r"\s+", "▁", True))),
         "no decoder": dict(decoder=None), "decoder metaspace": dict(decoder=meta("always", True)), "decoder metaspace never": dict(decoder=meta("never", True)),
         "decoder strip": dict(decoder=sequence("decoders", dict(type="Strip", content="▁", start=2, stop=0), FALLBACK, replace("▁", " "), FUSE))}
for name, pre in PRE.items():
    CASES["pre " + name] = dict(normalizer=None, pre_tokenizer=pre, decoder=meta("always", True))


def valid(text):
    return "\ufffd" not in text


cases = []
for name, change in CASES.items():
    t = Tokenizer.from_str(json.dumps({**BASE, **change}))
    rows = []
    for x in texts(25):
        ids = t.encode(x, add_special_tokens=False).ids
        row = dict(text=x, ids=ids, prompt=t.encode(x).ids)
        decoded = t.decode(ids, skip_special_tokens=True)
        if valid(decoded):
            row["decoded"] = decoded
        rows.append({k: v for k, v in row.items() if k != "prompt" or v != ids})
    cases.append(dict(name=name, change=change, rows=rows))
with open("../sentencepiece.json", "w") as f:
    f.write('{"base":' + json.dumps(BASE) + ',\n"cases":[\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]}\n")

MODELS = {"llama": {}, "squeezed": dict(remove_extra_whitespaces=True), "no prefix": dict(add_dummy_prefix=False),
          "no bytes": dict(byte_fallback=False), "symbols": dict(user_defined_symbols=["<keep>", "▁▁▁", "catsat", "  x"]),
          "across": dict(split_by_whitespace=False, vocab_size=450)}
models = []
for name, options in MODELS.items():
    proto = train(**options)
    p = spm.SentencePieceProcessor(model_proto=proto)
    rows = [dict(text=x, ids=p.encode(x), decoded=p.decode(p.encode(x))) for x in texts(25) if not any(s in x for s in ["<s>", "</s>", "<unk>", "<pad>", "\x00"])]
    models.append(dict(name=name, model=base64.b64encode(proto).decode(), rows=rows))
with open("../models.json", "w") as f:
    f.write('[\n' + ",\n".join(json.dumps(m, separators=(",", ":")) for m in models) + "\n]\n")
