"""Attention over layouts by PyTorch's flex_attention, whose block mask comes from the segments."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from .layout import Layout

BLOCK = 128  # rows of a block
VARIANTS = 64  # compilations: windows, caps, types, with and without gradients


def attend(query: Tensor, key: Tensor, value: Tensor, mask: BlockMask, scale: float, softcap: float | None,
           sinks: Tensor | None) -> Tensor:
    """Attends query [1, H, S, D] to key and value [1, KV, S, D]; returns [1, S, H, D]. sinks is [H].

    A layout of fewer than BLOCK rows is padded to BLOCK: flex_attention has another kernel for fewer queries, which
    does not compile for every model. So all layouts use one kernel, and what the self-check finds holds for each.
    """
    rows = query.shape[2]
    if rows < BLOCK:
        query, key, value = (F.pad(x, (0, 0, 0, BLOCK - rows)) for x in (query, key, value))
    cap = None if softcap is None else _cap(softcap, query.device)
    out = _compiled()(query, key, value, score_mod=cap, block_mask=mask, scale=scale,
                      enable_gqa=query.shape[1] != key.shape[1],
                      return_aux=None if sinks is None else AuxRequest(lse=True))
    if sinks is not None:
        out, aux = out
        out = out * torch.sigmoid(aux.lse - sinks[:, None]).to(out.dtype)[..., None]
    return out[:, :, :rows].transpose(1, 2).contiguous()


@cache
def _compiled() -> Callable:
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, VARIANTS)
    return torch.compile(flex_attention, dynamic=True)


@cache
def _cap(softcap: float, device: torch.device) -> Callable:
    """Returns a score_mod that caps scores.

    It captures a tensor: a captured number becomes a symbol under dynamic=True, with which flex_attention fails.
    """
    limit = torch.tensor(softcap, dtype=torch.float32, device=device)
    return lambda score, batch, head, query, key: limit * torch.tanh(score / limit)


def block_mask(layout: Layout, window: int | None, device: torch.device) -> BlockMask:
    """Returns the mask of layout, padded to BLOCK rows if it has fewer. Padding sees nothing, and nothing sees it.

    A window hides keys whose position is window or more below the query's.
    """
    blocks = -(-len(layout) // BLOCK)
    seen, full = blocks_of(layout, window)
    partial = [_lists(seen & ~full, device), _lists(full, device)]
    pad = blocks * BLOCK - len(layout)
    of, end, position = (torch.from_numpy(np.pad(x, (0, pad), constant_values=-1)).int().to(device)
                         for x in (*layout.subtrees, layout.positions))
    span = None if window is None else torch.tensor(window, dtype=torch.int32, device=device)  # see _cap

    def visible(batch, head, query, key):
        shown = (of[key] <= of[query]) & (of[query] < end[key]) & (key <= query)
        return shown if span is None else shown & (position[query] - position[key] < span)

    rows = max(BLOCK, len(layout))
    return BlockMask.from_kv_blocks(*partial[0], *partial[1], BLOCK_SIZE=BLOCK, mask_mod=visible,
                                    seq_lengths=(rows, rows))


def blocks_of(layout: Layout, window: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns [query blocks, key blocks] whether any pair of rows may see each other, and whether all do."""
    blocks = -(-len(layout) // BLOCK)
    seen, pairs = np.zeros((blocks, blocks), bool), np.zeros((blocks, blocks), np.int64)
    for segment, path in enumerate(layout.paths):
        queries = _span(layout, segment)
        if queries is None:
            continue
        for ancestor in path:
            keys = _span(layout, ancestor)
            if keys is None:
                continue
            some = np.ones((len(queries.index), len(keys.index)), bool)
            every = some.copy()
            if ancestor == segment:
                some &= keys.index[None] <= queries.index[:, None]
                every &= keys.last[None] <= queries.first[:, None]
            if window is not None:
                some &= queries.first[:, None] - keys.last[None] < window
                every &= queries.last[:, None] - keys.first[None] < window
            area = slice(queries.index[0], queries.index[-1] + 1), slice(keys.index[0], keys.index[-1] + 1)
            seen[area] |= some
            pairs[area] += every * queries.count[:, None] * keys.count[None]
    return seen, pairs == BLOCK * BLOCK


class _Blocks:
    """The blocks that a segment's rows touch: indices, first and last position in each, and number of rows."""

    def __init__(self, start: int, length: int, position: int):
        self.index = np.arange(start // BLOCK, (start + length - 1) // BLOCK + 1)
        begin = np.maximum(self.index * BLOCK, start)
        end = np.minimum((self.index + 1) * BLOCK, start + length)
        self.first, self.last = position + begin - start, position + end - 1 - start
        self.count = end - begin


def _span(layout: Layout, segment: int) -> _Blocks | None:
    start, length, _ = layout.segments[segment]
    return _Blocks(start, length, layout.positions[start]) if length else None


def _lists(blocks: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor]:
    """[1, 1, query blocks] counts and [1, 1, query blocks, key blocks] indices, those that count first."""
    order = np.argsort(~blocks, axis=1, kind="stable")
    counts, indices = (torch.from_numpy(x[None, None]).int().to(device) for x in (blocks.sum(1), order))
    return counts, indices
