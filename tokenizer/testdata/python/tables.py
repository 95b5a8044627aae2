"""Writes ../../internal/ucd/tables.txt: what each component of Hugging Face
tokenizers knows of Unicode, read from the library's behaviour. See README.md."""
import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, POINTS))


def matched(pattern, text=TEXT):
    """The characters that a regular expression of Oniguruma matches."""
    return set(text) - set(normalizers.Replace(Regex(pattern), "").normalize_str(text))


def codes(chars):
    return {ord(c) for c in chars}


def changes(component):
    return {c: x for c in POINTS if (x := component.normalize_str(chr(c))) != chr(c)}


def runs(kind_of):
    """[kind, length] of all code points in order. Surrogates, which no text has, join the run before them."""
    out = []
    for c in range(0x110000):
        kind = out[-1][0] if 0xD800 <= c < 0xE000 else kind_of(c)
        if out and out[-1][0] == kind:
            out[-1][1] += 1
        else:
            out.append([kind, 1])
    return out


def members(chars):
    """Alternating lengths of gaps and members, from U+0000 on."""
    rows = runs(lambda c: c in chars)
    lengths = [n for _, n in rows]
    if rows[0][0]:
        lengths.insert(0, 0)
    if not rows[-1][0]:
        lengths.pop()
    return " ".join(f"{n:x}" for n in lengths)


def partition(names):
    kind = {}
    for name in names:
        for c in codes(matched(r"\p{%s}" % name)):
            assert c not in kind, (name, hex(c))
            kind[c] = name
    assert len(kind) == len(POINTS)
    return " ".join(f"{name} {n:x}" for name, n in runs(kind.get))


def mapping(pairs):
    """Rows "first count stride delta" of a map from character to character."""
    rows, left = [], dict(pairs)
    while left:
        first = min(left)
        delta = left[first] - first
        best = []
        for stride in (1, 2):
            row = [first]
            while left.get(row[-1] + stride, -1) == row[-1] + stride + delta:
                row.append(row[-1] + stride)
            best = max(best, row, key=len)
        stride = best[1] - best[0] if len(best) > 1 else 1
        rows.append(f"{first:x} {len(best):x} {stride} {'-' if delta < 0 else ''}{abs(delta):x}")
        for c in best:
            del left[c]
    return " ".join(rows)


def folds():
    """Which characters (?i) takes for each other, as a map to the least of them."""
    cased = sorted(matched(r"[\p{cased}\p{changeswhencasemapped}\p{changeswhencasefolded}]"))
    text = "\0".join(cased)
    least = {ord(c): ord(min(matched(r"(?i:\x{%x})" % ord(c), text))) for c in cased}
    return mapping({c: x for c, x in least.items() if c != x})


def word():
    """The word characters of the regex crate, which the Whitespace step joins to a letter."""
    step = pre_tokenizers.Whitespace()
    return {c for c in POINTS if len(step.pre_tokenize_str("a" + chr(c))) == 1 and not chr(c).isspace()}


def digits():
    step = pre_tokenizers.Digits(True)
    return {c for c in POINTS if len(step.pre_tokenize_str("a" + chr(c))) == 2}


def newer():
    """The characters that normalization changes or composes in a recent Unicode, but not
    in the library's old one."""
    forms = [normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD()]
    nfc, nfd = forms[0].normalize_str, forms[1].normalize_str
    recent, pairs = set(), {}
    for c in POINTS:
        if unicodedata2.combining(chr(c)) or any(unicodedata2.normalize(f, chr(c)) != chr(c) for f in ("NFC", "NFKD")):
            recent.add(c)
        parts = unicodedata2.decomposition(chr(c)).split()
        if len(parts) == 2 and not parts[0].startswith("<") and unicodedata2.normalize("NFC", chr(c)) == chr(c):
            for p in parts:
                recent.add(int(p, 16))
                pairs.setdefault(int(p, 16), []).append("".join(chr(int(x, 16)) for x in parts))
    hangul = {*range(0x1100, 0x1113), *range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}

    def inert(c):
        x = chr(c)
        return (all(f.normalize_str(x) == x for f in forms) and nfd(x + "\u0334") == x + "\u0334" and nfd("\u0301" + x) == "\u0301" + x
                and all(nfc(p) == p for p in pairs.get(c, [])) and c not in hangul)

    return {c for c in recent if inert(c)}


def main():
    sections, section = {}, None
    for line in open("properties.txt"):
        if line.startswith("["):
            section = sections.setdefault(line.strip()[1:-1], [])
        elif not line.startswith("#"):
            section.append(line.split())
    out = ["# Unicode as the components of Hugging Face tokenizers 0.23.3 know it, written by testdata/python/tables.py. Numbers are hexadecimal."]

    def add(name, text):
        out.append(f"{name}: {text}")

    for group in ("categories", "scripts"):
        add(group, partition([names[0] for names in sections[group]]))
    for names in sections["sets"]:
        add(names[0], members(codes(matched(r"\p{%s}" % names[0]))))
    for names in (n for group in sections.values() for n in group):
        for alias in names[1:]:
            add("alias", f"{alias} {names[0]}")
    add("fold", folds())
    lower = changes(normalizers.Lowercase())
    assert {c: x for c, x in lower.items() if len(x) > 1} == {0x130: "i\u0307"}
    add("lowercase", mapping({c: ord(x) for c, x in lower.items() if len(x) == 1}))
    assert changes(normalizers.Strip()).keys() == codes(matched(r"\s"))
    add("regexword", members(word()))
    add("numeric", members(digits()))
    add("punctuationstep", members({c for c in POINTS if pre_tokenizers.Punctuation("removed").pre_tokenize_str(chr(c)) == []}))
    add("accents", members(set(changes(normalizers.StripAccents()))))
    add("newer", members(newer()))
    with open("../../internal/ucd/tables.txt", "w") as f:
        f.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
