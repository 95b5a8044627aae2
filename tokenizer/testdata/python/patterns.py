"""Writes ../patterns.json: how Hugging Face tokenizers splits random texts by
regular expressions of many kinds. See README.md."""
import json
import random

from tokenizers import Regex, pre_tokenizers

R = random.Random(5)
PATTERNS = r"""\w+|\W
[\w-]+
[^\W_]+
[[:alpha:]]+|[[:^alpha:]]
[[:word:]]+
[\p{L}&&[^\p{Lu}]]+
[a-c&&b-d]
[a[bc]]+
[^a[bc]]+
[^\p{L}\p{N}\s]+
\p{^L}+
\P{^L}+
\p{Script_Extensions}|a
\p{Letter}+|\p{Decimal Number}
\p{han}+|\p{Hiragana}
\x41|\x{e9}|\u00df
[\x{4e00}-\x{9fff}]+
\h+
[\t\n\f\v\r\a\e]
(?i:k)+
(?i:[a-k]+)
(?i:[^k])
(?i:\p{Lu}+)
(?i)ab|É
a(?i)b
a(?i:b)c?
(?-i:a)b
(?<=a)b+
(?<!a)b
(?<=\p{L})\p{N}
\bab
ab\b
\Ba
(?>a+)b
a+?b
(?:ab)+
(ab|b)*c
(?:a|b){2,3}
a{,2}b
a{2}
b++a?
[ab]*+c
\s+$
^\s*
^a|b$
\A.|.\z
\Z
.+
(?:\R|a)+
\s+(?!\S)|\s
[\p{L}\p{M}]+
'(?i:[sdmt]|ll|ve|re)|\p{N}{1,3}
[^\r\n\p{L}\p{N}]?+\p{L}+|\s++$
(?=a)\w
(?!a)\w
[]a]
[a\]]+
[-a]+
[a-]+
[\^a]+
\.|\$|\[
[!-/:-@\[-`{-~]+
\p{Emoji}+
\p{Extended_Pictographic}
\p{ASCII}+
[\p{Cn}\p{Co}]+
(?<name>a)b
(a)\1
\pL
\X
(?m:.)+
a|
[a&&]
[z-a]
(?<=x)(?i:ß|s)
(?<![\p{L}&&\p{ASCII}])\d
\p{Greek}(?=\p{Cyrillic})
(?<=^|\s)\S
[^\n]+(?:\n|$)
""".splitlines()
ATOMS = [*"aabbabcABCkKxzsS019_-.'$[]^!", "ab", "É", "é", "ß", "ſ", "K", "²", "¼", "٣", "α", "д", "日", "あ", "가", "\u0301", "\u200c", "\u0085", "\u00a0", "\u3000", "\u2028", " ", "  ", "\t", "\n", "\r\n",
         "\u1c89", "\u1c8a", "\ua7cb", "\U00010d50", "\U00010d70", "\U00010d40", "\U000105c0", "\U00016ea0", "\u0897", "\U0001fae9", "😀", "\ue000", "\U000e0fff", "\x1b", "\x07", "`", "@"]


def main():
    cases = []
    for pattern in PATTERNS:
        try:
            step = pre_tokenizers.Split(Regex(pattern), "isolated")
        except Exception as e:
            cases.append(dict(pattern=pattern, error=str(e)))
            continue
        rows = []
        for _ in range(25):
            text = "".join(R.choice(ATOMS) for _ in range(R.randrange(1, 14)))
            rows.append([p for p, _ in step.pre_tokenize_str(text)])
        cases.append(dict(pattern=pattern, rows=rows))
    with open("../patterns.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
