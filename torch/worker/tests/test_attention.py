"""Attention over layouts against a dense mask."""

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention as uncompiled

from easyrl_torch import flex, kernels
from easyrl_torch.attention import FLEX, PLAN, SEGMENTS, Plan, flex_attention, implementations, segments_attention
from families import layout

SMALL = [(20, -1), (5, 0), (9, 0), (0, 0), (7, 2), (8, 2), (6, -1), (3, 6), (12, 6)]
LARGE = [(300, -1)] + [(20 + 3 * i, 0) for i in range(6)] + [(40, 3), (17, 3), (200, -1), (90, 9), (100, 9)]
LATE = [(150, -1), (140, -1), (130, 0), (150, 1), (20, 0), (9, 3)]  # responses do not follow their prompt
FORESTS = {"small": SMALL, "large": LARGE, "late": LATE, "one": [(300, -1)], "row": [(1, -1)]}
CPU = torch.device("cpu")


def dense(forest, window):
    """[rows, rows] what sees what, from the definition."""
    of, positions = forest.segment_of, forest.positions
    lineage = np.zeros((len(forest.segments),) * 2, bool)
    for segment, path in enumerate(forest.paths):
        lineage[segment, path] = True
    mask = lineage[of][:, of] & (np.arange(len(of)) <= np.arange(len(of))[:, None])
    if window is not None:
        mask &= positions[:, None] - positions < window
    return torch.from_numpy(mask)


def reference(q, k, v, mask, cap, sinks):
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    scores = scores.masked_fill(~mask, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], -1)
    return (scores.softmax(-1)[..., :k.shape[2]] @ v).transpose(1, 2)


def inputs(rows, sinks):
    torch.manual_seed(rows)
    tensors = [torch.randn(1, heads, rows, 16, requires_grad=True) for heads in (4, 2, 2)]
    return tensors, torch.randn(4, requires_grad=True) if sinks else None


@pytest.mark.parametrize("plain, cap", [(False, None), (True, None), (True, 5.0)], ids=["fused", "plain", "capped"])
@pytest.mark.parametrize("window, sinks", [(None, False), (4, True), (33, False), (150, True)])
@pytest.mark.parametrize("name", FORESTS)
def test_segments(name, window, cap, sinks, plain, monkeypatch):
    if plain:
        monkeypatch.setattr("easyrl_torch.attention.Fused", kernels.Plain)
        monkeypatch.setattr(kernels, "SCORES", 1 << 14)
    forest = layout(FORESTS[name])
    tensors, sinks = inputs(len(forest), sinks)
    out, _ = segments_attention(None, *tensors, None, sliding_window=window, softcap=cap, s_aux=sinks,
                                **{PLAN: Plan(forest, CPU)})
    want = reference(*tensors, dense(forest, window), cap, sinks)
    torch.testing.assert_close(out, want, rtol=0, atol=3e-6)
    leaves, seed = [*tensors, *([sinks] if sinks is not None else [])], torch.randn_like(out)
    for got, expected in zip(torch.autograd.grad(out, leaves, seed), torch.autograd.grad(want, leaves, seed)):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("window, cap, sinks", [(None, None, True), (33, 5.0, False), (150, None, False)])
@pytest.mark.parametrize("name", FORESTS)
def test_flex(name, window, cap, sinks, monkeypatch):
    """Forward without compilation: it has no backward pass on CPUs."""
    monkeypatch.setattr(flex, "_compiled", lambda: uncompiled)
    forest = layout(FORESTS[name])
    tensors, sinks = inputs(len(forest), sinks)
    tensors, mask = [x.detach() for x in tensors], dense(forest, window)
    with torch.no_grad():
        out, _ = flex_attention(None, *tensors, None, sliding_window=window, softcap=cap, s_aux=sinks,
                                **{PLAN: Plan(forest, CPU)})
        torch.testing.assert_close(out, reference(*tensors, mask, cap, sinks), rtol=0, atol=3e-6)


@pytest.mark.parametrize("rows", [1, 2, 85, 127, 128, 131, 257])
def test_flex_has_one_kernel(rows, monkeypatch):
    """flex_attention takes another kernel for fewer than 128 queries; no layout comes to it."""
    seen = []

    def spy(query, key, value, block_mask, **options):
        seen.append((query.shape[2], key.shape[2], value.shape[2], block_mask.seq_lengths))
        return uncompiled(query, key, value, block_mask=block_mask, **options)
    monkeypatch.setattr(flex, "_compiled", lambda: spy)
    forest = layout([(rows, -1)])
    tensors = [x.detach() for x in inputs(rows, False)[0]]
    out, _ = flex_attention(None, *tensors, None, **{PLAN: Plan(forest, CPU)})
    torch.testing.assert_close(out, reference(*tensors, dense(forest, None), None, None), rtol=0, atol=3e-6)
    padded = max(rows, 128)
    assert seen == [(padded, padded, padded, (padded, padded))]


def test_flex_compiles_caps_and_windows():
    """Compiled for any number of rows, a captured number is a symbol, which flex_attention does not take."""
    for name in ("small", "late"):
        forest = layout(FORESTS[name])
        tensors = [x.detach() for x in inputs(len(forest), False)[0]]
        with torch.no_grad():
            out, _ = flex_attention(None, *tensors, None, sliding_window=33, softcap=5.0, **{PLAN: Plan(forest, CPU)})
        torch.testing.assert_close(out, reference(*tensors, dense(forest, 33), 5.0, None), rtol=0, atol=3e-6)


@pytest.mark.parametrize("window", [None, 33, 150, 260])
@pytest.mark.parametrize("name", FORESTS)
def test_blocks(name, window):
    """No pair is outside the blocks that are seen, and all are inside those that are full."""
    forest = layout(FORESTS[name])
    blocks = -(-len(forest) // flex.BLOCK)
    mask = np.zeros((blocks * flex.BLOCK,) * 2, bool)
    mask[:len(forest), :len(forest)] = dense(forest, window)
    tiles = mask.reshape(blocks, flex.BLOCK, blocks, flex.BLOCK)
    seen, full = flex.blocks_of(forest, window)
    np.testing.assert_array_equal(seen, tiles.any((1, 3)))
    np.testing.assert_array_equal(full, tiles.all((1, 3)))


def test_implementations():
    assert implementations(CPU) == [SEGMENTS]
    assert implementations(torch.device("cuda")) == [FLEX, SEGMENTS]


def test_needs_its_plan():
    q = torch.randn(1, 2, 5, 8)
    with pytest.raises(RuntimeError, match="does not hand keywords to its attention"):
        segments_attention(None, q, q, q, None)
    with pytest.raises(RuntimeError, match="expected 1 batch of 7 rows"):
        segments_attention(None, q, q, q, None, **{PLAN: Plan(layout([(7, -1)]), CPU)})
