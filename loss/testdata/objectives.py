"""Writes objectives.json: losses, gradients and advantages of the methods in this
package, computed from the papers' formulas in float64, response by response, with
gradients by central differences. Needs: pip install numpy.
Run in this folder: python objectives.py"""
import json

import numpy as np

R = np.random.default_rng(20250718)
H = 1e-6


def clip_surrogate(r, a, c):
    low, high = 1 - c["EpsilonLow"], 1 + c["EpsilonHigh"]
    j = min(r * a, float(np.clip(r, low, high)) * a)
    if c.get("DualClip", 0) and a < 0:
        j = max(j, c["DualClip"] * a)
    return j


# Each method: the objective, to be maximised, of token t of a response with
# log-probabilities p (p0: the same behind a stop-gradient) and advantage a.
def grpo(t, p, p0, old, a, c):
    return clip_surrogate(np.exp(p[t]) / np.exp(old[t]), a, c)


def gspo(t, p, p0, old, a, c):
    s = (np.exp(p.sum()) / np.exp(old.sum())) ** (1 / len(p))
    return clip_surrogate(s, a, c)


def gspo_token(t, p, p0, old, a, c):
    s = (np.exp(p0.sum()) / np.exp(old.sum())) ** (1 / len(p))
    return clip_surrogate(s * np.exp(p[t]) / np.exp(p0[t]), a, c)


def cispo(t, p, p0, old, a, c):
    r = np.exp(p0[t]) / np.exp(old[t])
    return min(max(r, 1 - c["EpsilonLow"]), 1 + c["EpsilonHigh"]) * a * p[t]


def reinforce(t, p, p0, old, a, c):
    return a * p[t]


KINDS = {"grpo": grpo, "gspo": gspo, "gspo-token": gspo_token, "cispo": cispo, "reinforce": reinforce}


def weight(recomputed, behaviour, c):
    rho = np.exp(recomputed) / np.exp(behaviour)
    if c.get("Correction") == "truncate":
        return min(rho, c["CorrectionHigh"])
    if c.get("Correction") == "mask":
        return rho if c["CorrectionLow"] <= rho <= c["CorrectionHigh"] else 0.0
    return 1.0


def kl(p, ref, c):
    ratio = np.exp(ref) / np.exp(p)
    return {"k2": np.log(ratio) ** 2 / 2, "k3": ratio - np.log(ratio) - 1}[c.get("KL", "k3")]


def loss(policy, base, v, c):
    responses, at = [], 0
    for i, n in enumerate(v["lengths"]):
        s = slice(at, at + n)
        at += n
        p, p0, old = policy[s], base[s], v["old"][s]
        tokens = [weight(v["recomputed"][s][t], v["behaviour"][s][t], c) * KINDS[c["Kind"]](t, p, p0, old, v["advantage"][i], c)
                  - c.get("Beta", 0) * kl(p[t], v["reference"][s][t], c) for t in range(n)]
        responses.append(np.array(tokens))
    how = c["Aggregation"]
    if how == "sequence-mean":
        j = np.mean([r.mean() for r in responses])
    elif how == "token-mean":
        j = np.concatenate(responses).mean()
    else:
        j = np.mean([r.sum() / c["Constant"] for r in responses])
    return -j


def single(a):
    """Single precision of four decimals, which are what is written."""
    return np.round(a, 4).astype(np.float32).astype(np.float64)


def case(name, **c):
    c = {"EpsilonLow": 0.2, "EpsilonHigh": 0.2, "Aggregation": "token-mean", "Constant": 16, **c}
    lengths = [int(n) for n in R.permutation([1, 2, 3, 5, 7, 12])]
    n = sum(lengths)
    recomputed = single(-R.exponential(1.5, n))
    v = {"lengths": lengths, "policy": single(recomputed + R.normal(0, 0.3, n)), "old": recomputed,
         "reference": single(recomputed + R.normal(0, 0.4, n)), "recomputed": recomputed,
         "behaviour": single(recomputed + R.normal(0, 0.6, n)), "advantage": single(R.normal(0, 1, len(lengths)))}
    base, grad = v["policy"], []
    for t in range(n):
        d = np.zeros(n)
        d[t] = H
        grad.append((loss(base + d, base, v, c) - loss(base - d, base, v, c)) / (2 * H))
    want = {"loss": float(loss(base, base, v, c)), "grad": [float("%.10g" % g) for g in grad]}
    return {"name": name, "config": c, **{k: x if k == "lengths" else [round(float(e), 4) for e in x] for k, x in v.items()}, **want}


def advantages(kind, groups):
    def each(f):
        return [[float(x) for x in f(np.array(g))] for g in groups]
    if kind == "group":
        return each(lambda r: (r - r.mean()) / (r.std(ddof=1) + 1e-4))
    if kind == "group-mean":
        return each(lambda r: r - r.mean())
    if kind == "leave-one-out":
        return each(lambda r: [r[i] - np.delete(r, i).mean() for i in range(len(r))])
    if kind == "reward":
        return each(lambda r: r)
    rows = [np.array(g) for g in groups]
    if kind == "batch-baseline":
        rows = [r - r.mean() for r in rows]
    batch = np.concatenate(rows)
    return [[float(x) for x in (r - batch.mean()) / (batch.std(ddof=1) + 1e-4)] for r in rows]


def main():
    seq, tok, con = "sequence-mean", "token-mean", "constant"
    cases = [
        case("grpo", Kind="grpo", Aggregation=seq, Beta=0.04),
        case("grpo k2", Kind="grpo", Aggregation=seq, Beta=0.5, KL="k2"),
        case("dr-grpo", Kind="grpo", Aggregation=con),
        case("dapo", Kind="grpo", Aggregation=tok, EpsilonHigh=0.28),
        case("dual clip", Kind="grpo", DualClip=1.4),
        case("gspo", Kind="gspo", Aggregation=seq, EpsilonLow=3e-4, EpsilonHigh=4e-4),
        case("gspo wide", Kind="gspo", Aggregation=seq, EpsilonLow=0.1, EpsilonHigh=0.15),
        case("gspo k2", Kind="gspo", Aggregation=tok, EpsilonLow=0.01, EpsilonHigh=0.01, Beta=0.3, KL="k2"),
        case("gspo dual clip", Kind="gspo", Aggregation=con, EpsilonLow=0.05, EpsilonHigh=0.05, DualClip=1.1),
        case("gspo-token", Kind="gspo-token", Aggregation=seq, EpsilonLow=0.1, EpsilonHigh=0.15),
        case("cispo", Kind="cispo", Aggregation=tok, EpsilonLow=1, EpsilonHigh=0.3),
        case("cispo both bounds", Kind="cispo", Aggregation=tok, Beta=0.1),
        case("reinforce", Kind="reinforce", Aggregation=con),
        case("tis", Kind="grpo", Correction="truncate", CorrectionHigh=1.5),
        case("tis gspo", Kind="gspo", Aggregation=seq, Correction="truncate", CorrectionHigh=2, Beta=0.2),
        case("icepop", Kind="grpo", Correction="mask", CorrectionLow=0.5, CorrectionHigh=2, Beta=0.1),
        case("icepop cispo", Kind="cispo", Correction="mask", CorrectionLow=0.7, CorrectionHigh=5),
        case("icepop reinforce", Kind="reinforce", Correction="mask", CorrectionLow=0, CorrectionHigh=1.2),
    ]
    batches = [
        [[1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0], [0.5, 0.25, 1.0, 0.0]],
        [[float(x) for x in R.normal(0, 3, n)] for n in (2, 3, 8, 5)],
        [[1e6 + float(x) for x in R.normal(0, 1, 6)], [-1e3, 1e-3, 7.0]],
    ]
    kinds = ["group", "group-mean", "leave-one-out", "reward", "batch", "batch-baseline"]
    rows = [{"kind": k, "groups": b, "want": advantages(k, b)} for k in kinds for b in batches]
    with open("objectives.json", "w") as f:
        json.dump({"cases": cases, "advantages": rows}, f, indent=None, separators=(",", ":"))
        f.write("\n")


main()
