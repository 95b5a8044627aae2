"""Attention over layouts, registered with transformers under the names of IMPLEMENTATIONS.

A model's call carries a Plan as the keyword PLAN; every attention layer hands it to the function
registered here, with the layer's own window, softcap, scaling and sinks.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import AttentionInterface

from . import flex
from .kernels import Fused, Plain, Scores
from .layout import Layout
from .parts import Part, build_parts

PLAN = "easyrl_plan"
SEGMENTS = "easyrl_segments"  # dense parts, merged
FLEX = "easyrl_flex"  # flex_attention, which has no backward pass on CPUs


class Plan:
    """The parts of one layout on one device, made once and shared by all layers."""

    def __init__(self, layout: Layout, device: torch.device):
        self.layout, self.device = layout, device
        self._parts: dict[int | None, list[Part]] = {}
        self._masks: dict[int | None, flex.BlockMask] = {}
        self._biases: dict[tuple[int, torch.dtype], Tensor] = {}
        self._longest = int(layout.positions.max()) + 1 if len(layout) else 0

    def parts(self, window: int | None) -> list[Part]:
        """Returns the parts for a sliding window in positions; None for full attention."""
        window = self._effective(window)
        if window not in self._parts:
            self._parts[window] = build_parts(self.layout, window, self.device)
        return self._parts[window]

    def block_mask(self, window: int | None) -> flex.BlockMask:
        """Returns flex_attention's mask for a sliding window in positions; None for full attention."""
        window = self._effective(window)
        if window not in self._masks:
            self._masks[window] = flex.block_mask(self.layout, window, self.device)
        return self._masks[window]

    def _effective(self, window: int | None) -> int | None:
        """window, or None if no sequence is longer."""
        return None if window is None or window >= self._longest else window

    def bias(self, part: Part, dtype: torch.dtype) -> Tensor | None:
        """Returns part's mask as numbers to add to the scores."""
        if part.mask is None:
            return None
        key = (id(part), dtype)
        if key not in self._biases:
            zeros = torch.zeros(part.mask.shape, dtype=dtype, device=self.device)
            self._biases[key] = zeros.masked_fill_(~part.mask, -torch.inf)
        return self._biases[key]


def segments_attention(module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask,
                       scaling: float | None = None, sliding_window: int | None = None,
                       softcap: float | None = None, s_aux: Tensor | None = None, dropout: float = 0.0,
                       **kwargs) -> tuple[Tensor, None]:
    """Attends query [1, H, S, D] to key and value [1, KV, S, D] by the plan's layout.

    Returns [1, S, H, D]. s_aux [H] holds attention sinks: logits that take weight and give no value.
    """
    plan = plan_of(kwargs, query)
    scores = Scores(query.shape[-1] ** -0.5 if scaling is None else scaling, softcap)
    rows = (x[0].transpose(0, 1) for x in (query, key, value))
    return _Attend.apply(*rows, s_aux, plan, sliding_window, scores)[None], None


def flex_attention(module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask,
                   scaling: float | None = None, sliding_window: int | None = None, softcap: float | None = None,
                   s_aux: Tensor | None = None, dropout: float = 0.0, **kwargs) -> tuple[Tensor, None]:
    """Does what segments_attention does, in one kernel."""
    mask = plan_of(kwargs, query).block_mask(sliding_window)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return flex.attend(query, key, value, mask, scale, softcap, s_aux), None


def plan_of(kwargs: dict, query: Tensor) -> Plan:
    """Returns the plan among an attention call's keywords.

    Raises RuntimeError if the model does not hand it through or query has other rows.
    """
    plan = kwargs.get(PLAN)
    if plan is None:
        raise RuntimeError("attention: the model does not hand keywords to its attention")
    if query.shape[0] != 1 or query.shape[2] != len(plan.layout):
        raise RuntimeError(f"attention: query is {tuple(query.shape)}, expected 1 batch of {len(plan.layout)} rows")
    return plan


class _Attend(torch.autograd.Function):
    """Attention of q [S, H, D] to k and v [S, KV, D] by the parts of a plan."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, plan: Plan, window: int | None,
                scores: Scores) -> Tensor:
        kernel = _kernel(q, v, scores)
        out = q.new_empty(*q.shape[:2], v.shape[2])
        lse = q.new_empty(q.shape[:2], dtype=torch.float32)
        for part in plan.parts(window):
            o, l = kernel.forward(*_take(part, q, k, v), part.causal, plan.bias(part, q.dtype), scores)
            o, l = _rows(part, o), _rows(part, l[..., None])[..., 0]
            if part.first:
                out[part.rows], lse[part.rows] = o, l
            else:
                _merge(out, lse, part.rows, o, l)
        if sinks is not None:
            total = torch.logaddexp(lse, sinks.float())
            out *= (lse - total).exp().to(out.dtype)[..., None]
            lse = total
        ctx.save_for_backward(q, k, v, sinks, out, lse)
        ctx.plan, ctx.window, ctx.scores = plan, window, scores
        return out

    @staticmethod
    def backward(ctx, grad: Tensor):
        q, k, v, sinks, out, lse = ctx.saved_tensors
        kernel = _kernel(q, v, ctx.scores)
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for part in ctx.plan.parts(ctx.window):
            g = _blocks(part, grad)
            if part.real is not None:
                g = _without_padding(part, g)
            o, l = _blocks(part, out), _blocks(part, lse[..., None])[..., 0]
            x, y, z = kernel.backward(g, *_take(part, q, k, v), o, l, part.causal,
                                      ctx.plan.bias(part, q.dtype), ctx.scores)
            if part.first:
                dq[part.rows] = _rows(part, x)
            else:
                _add(dq, part.rows, _rows(part, x))
            _add_keys(part, dk, y)
            _add_keys(part, dv, z)
        return dq, dk, dv, _sink_gradient(sinks, grad, out, lse), None, None, None


def _kernel(q: Tensor, v: Tensor, scores: Scores):
    fused = q.device.type == "cpu" and scores.softcap is None and q.shape[-1] == v.shape[-1]
    return Fused if fused else Plain


def _take(part: Part, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the part's rows as [B, H, L, D], [B, KV, K, D], [B, KV, K, D]."""
    keys = [x[part.keys].unflatten(0, (part.blocks, -1)).transpose(1, 2) for x in (k, v)]
    return _blocks(part, q), *keys


def _blocks(part: Part, x: Tensor) -> Tensor:
    """[S, H, D] to the part's queries [B, H, L, D]."""
    return x[part.queries].unflatten(0, (part.blocks, -1)).transpose(1, 2)


def _rows(part: Part, x: Tensor) -> Tensor:
    """[B, H, L, D] to rows without padding [real rows, H, D]."""
    x = x.transpose(1, 2).flatten(0, 1)
    return x if part.real is None else x[part.real]


def _without_padding(part: Part, grad: Tensor) -> Tensor:
    """Zeroes the gradient [B, H, L, D] of padding."""
    b, _, l, _ = grad.shape
    real = torch.zeros(b * l, dtype=grad.dtype, device=grad.device)
    real[part.real] = 1
    return grad * real.view(b, 1, l, 1)


def _merge(out: Tensor, lse: Tensor, rows, o: Tensor, l: Tensor) -> None:
    """Merges another part's output o [n, H, D] and log-sum-exps l [n, H] into rows of out and lse."""
    before = lse[rows]
    total = torch.logaddexp(before, l)
    kept, added = (before - total).exp()[..., None], (l - total).exp()[..., None]
    out[rows] = (out[rows] * kept + o * added).to(out.dtype)
    lse[rows] = total


def _add(x: Tensor, rows, y: Tensor) -> None:
    """Adds y to distinct rows of x."""
    if isinstance(rows, slice):
        x[rows] += y
    else:
        x.index_add_(0, rows, y)


def _add_keys(part: Part, x: Tensor, y: Tensor) -> None:
    """Adds gradients y [B, KV, K, D] of the part's keys to x [S, KV, D]."""
    y = y.transpose(1, 2).flatten(0, 1)
    if part.real is None:
        _add(x, part.keys, y)
    else:  # padded blocks attend to themselves
        _add(x, part.rows, y[part.real])


def _sink_gradient(sinks: Tensor | None, grad: Tensor, out: Tensor, lse: Tensor) -> Tensor | None:
    if sinks is None:
        return None
    weight = (sinks.float() - lse).exp()
    return -(weight * (grad.float() * out.float()).sum(-1)).sum(0).to(sinks.dtype)


def implementations(device: torch.device) -> list[str]:
    """The names of the implementations for device, the fastest first."""
    return [FLEX, SEGMENTS] if device.type == "cuda" else [SEGMENTS]


AttentionInterface.register(SEGMENTS, segments_attention)
AttentionInterface.register(FLEX, flex_attention)
