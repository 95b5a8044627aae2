"""Dense attention of one part: forward with log-sum-exps, and backward given merged ones.

Shapes: q [B, H, L, D], k [B, KV, K, D] and v [B, KV, K, E] with H a multiple of KV, log-sum-exps [B, H, L] float32.
Backward takes the output and log-sum-exps of all parts merged, so that it yields this part's share.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SCORES = 1 << 25  # largest number of scores held at once


@dataclass(frozen=True)
class Scores:
    """What happens to the product of a query and a key before the softmax."""

    scale: float
    softcap: float | None = None  # c in c * tanh(x / c)


class Fused:
    """PyTorch's fused CPU kernels. They know no softcap, and need E = D."""

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, mask: Tensor | None, scores: Scores):
        q, k, v, mask = _expand(q, k, v, mask)
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, causal, attn_mask=mask, scale=scores.scale)
        return out, lse

    @staticmethod
    def backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool,
                 mask: Tensor | None, scores: Scores):
        kv = k.shape[1]
        q, k, v, mask = _expand(q, k, v, mask)
        dq, dk, dv = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, k, v, out, lse, 0.0, causal, attn_mask=mask, scale=scores.scale)
        return dq, _fold(dk, kv), _fold(dv, kv)


class Plain:
    """Matrix products and a softmax in float32, in blocks of queries. It runs on every device."""

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, mask: Tensor | None, scores: Scores):
        out, lse = q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3], dtype=torch.float32)
        for block in _blocks(q, k):
            s, _ = _score(q[:, :, block], k, causal, mask, block, scores)
            lse[:, :, block] = top = torch.logsumexp(s, -1)
            out[:, :, block] = _mix((s - top[..., None]).exp().to(v.dtype), v)
        return out, lse

    @staticmethod
    def backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool,
                 mask: Tensor | None, scores: Scores):
        dq = torch.empty_like(q)
        dk, dv = torch.zeros_like(k, dtype=torch.float32), torch.zeros_like(v, dtype=torch.float32)
        for block in _blocks(q, k):
            g = grad[:, :, block]
            s, tanh = _score(q[:, :, block], k, causal, mask, block, scores)
            p = (s - lse[:, :, block, None]).exp()
            dv += _gather(p.to(g.dtype), g, k.shape[1])
            delta = (g.float() * out[:, :, block].float()).sum(-1, keepdim=True)
            ds = p * (_mix(g, v.transpose(2, 3)).float() - delta)
            if tanh is not None:
                ds *= 1 - tanh * tanh
            ds = (ds * scores.scale).to(q.dtype)
            dq[:, :, block] = _mix(ds, k)
            dk += _gather(ds, q[:, :, block], k.shape[1])
        return dq, dk.to(k.dtype), dv.to(v.dtype)


def _blocks(q: Tensor, k: Tensor):
    step = max(1, SCORES // (q.shape[0] * q.shape[1] * k.shape[2]))
    for a in range(0, q.shape[2], step):
        yield slice(a, min(a + step, q.shape[2]))


def _score(q: Tensor, k: Tensor, causal: bool, mask: Tensor | None, block: slice, scores: Scores):
    """Returns the float32 scores of a block of queries, and tanh of the capped ones."""
    s, tanh = _mix(q, k.transpose(2, 3)).float() * scores.scale, None
    if scores.softcap is not None:
        tanh = torch.tanh(s / scores.softcap)
        s = scores.softcap * tanh
    if causal:
        rows = torch.arange(block.start, block.stop, device=q.device)
        hidden = torch.arange(k.shape[2], device=q.device) > rows[:, None]
        s = s.masked_fill(hidden, -torch.inf)
    elif mask is not None:
        s = s + mask[:, :, block]
    return s, tanh


def _mix(x: Tensor, y: Tensor) -> Tensor:
    """x [B, H, L, K] times y [B, KV, K, D], each of y's heads for H / KV consecutive heads of x."""
    b, h, l, _ = x.shape
    kv = y.shape[1]
    folded = x.reshape(b, kv, h // kv * l, x.shape[3])
    return (folded @ y).view(b, h, l, y.shape[3])


def _gather(x: Tensor, y: Tensor, kv: int) -> Tensor:
    """x [B, H, L, K] transposed times y [B, H, L, D], summed over the heads that share one of kv heads."""
    b, h, l, _ = x.shape
    folded = [t.reshape(b, kv, h // kv * l, t.shape[3]) for t in (x, y)]
    return folded[0].transpose(2, 3) @ folded[1]


def _expand(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None):
    """Gives every query head a view of its key and value heads."""
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    return q, k, v, mask


def _fold(x: Tensor, kv: int) -> Tensor:
    """Sums gradients [B, H, K, D] over the query heads that share one of kv heads."""
    if x.shape[1] == kv:
        return x
    b, h, n, d = x.shape
    return x.view(b, kv, h // kv, n, d).sum(2)
