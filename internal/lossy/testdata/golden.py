"""Writes golden.json: what Python 3's bytes.decode makes of random bytes, in
hexadecimal. Run in this folder: python golden.py"""
import json
import random

R = random.Random(3)
EDGES = [0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]
rows = [bytes([a, b]) for a in EDGES for b in EDGES] + [bytes([a, b, c]) for a in EDGES[9:] for b in EDGES[3:10] for c in EDGES[1:12:2]]
for _ in range(1500):
    chars = [R.choice("aé日😀\ufffd").encode() for _ in range(3)]
    broken = [c[:R.randrange(len(c) + 1)] for c in chars] + [bytes(R.choice(EDGES) for _ in range(R.randrange(5)))]
    rows.append(b"".join(R.sample(chars + broken, R.randrange(1, 7))))
with open("golden.json", "w") as f:
    json.dump({r.hex(): r.decode("utf-8", errors="replace") for r in rows}, f, ensure_ascii=True, indent=0)
