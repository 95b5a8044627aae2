"""Cuts a layout's attention into dense parts whose results merge by their log-sum-exps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from .layout import Layout

SMALL_TREE = 192  # rows up to which a tree is one masked part
MASK_LIMIT = 1 << 24  # largest number of elements of a mask
BAND = 256  # least rows of a query block inside a sliding window
WASTE = 1.25  # largest ratio of padded to real area in a batch


@dataclass
class Part:
    """Attention of B blocks of L query rows to K key rows each.

    With first, the part covers rows that no earlier part covers, and each sees at least one key; other
    parts merge into rows that are covered. Padding follows a block and repeats its last row.
    """

    queries: torch.Tensor | slice  # [B * L] rows; a slice only if B is 1
    keys: torch.Tensor | slice  # [B * K] rows
    blocks: int  # B
    causal: bool  # query i of a block sees its keys 0 to i; L = K
    mask: torch.Tensor | None  # [B or 1, 1, L, K] bool, True: visible; None: all, or causal
    real: torch.Tensor | None  # [real rows] indices into the B * L rows that are not padding; None: all
    rows: torch.Tensor | slice  # the queries without padding
    first: bool


def build_parts(layout: Layout, window: int | None, device: torch.device) -> list[Part]:
    """Returns parts that together are layout's attention, with rows on device.

    A window hides keys whose position is window or more below the query's.
    """
    return _Builder(layout, window, device).build()


class _Builder:
    def __init__(self, layout: Layout, window: int | None, device: torch.device):
        self.layout, self.window, self.device = layout, window, device
        self.parts: list[Part] = []

    def build(self) -> list[Part]:
        layout = self.layout
        trees: dict[int, list[int]] = {}
        for segment, root in enumerate(layout.roots):
            if layout.segments[segment, 1]:
                trees.setdefault(int(root), []).append(segment)
        small, causal, crossed = [], [], []
        for segments in trees.values():
            size = int(layout.segments[segments, 1].sum())
            if len(segments) > 1 and size <= SMALL_TREE:
                small.append(np.concatenate([self.span(s) for s in segments]))
                continue
            crossed += segments
            for s in segments:
                rows = self.span(s)
                if self.window is None or len(rows) <= self.window:
                    causal.append(rows)
                else:
                    self.band(rows)
        for batch in _batches(small):
            self.batch(batch, masked=True)
        for batch in _batches(causal):
            self.batch(batch, masked=False)
        self.crosses(crossed)
        return self.parts

    def span(self, segment: int) -> np.ndarray:
        start, length, _ = self.layout.segments[segment]
        return np.arange(start, start + length)

    def batch(self, blocks: list[np.ndarray], masked: bool) -> None:
        """Adds the self-attention of blocks of rows, padded to the longest."""
        length = max(map(len, blocks))
        rows = np.stack([np.pad(b, (0, length - len(b)), mode="edge") for b in blocks])
        real = np.concatenate([i * length + np.arange(len(b)) for i, b in enumerate(blocks)])
        mask = None
        if masked:
            mask = self.visible(rows, rows)  # padding sees what its last row sees
            mask &= (np.arange(length) < np.array([len(b) for b in blocks])[:, None])[:, None]
        self.add(rows.reshape(-1), rows.reshape(-1), len(blocks), mask, causal=not masked, first=True,
                 real=real if len(real) < rows.size else None)

    def band(self, rows: np.ndarray) -> None:
        """Adds the self-attention of a segment longer than the window, by blocks of queries."""
        step = max(self.window, BAND)
        for a in range(0, len(rows), step):
            queries, keys = rows[a:a + step], rows[max(0, a - self.window + 1):a + step]
            self.masked(queries, keys, first=True)

    def masked(self, queries: np.ndarray, keys: np.ndarray, first: bool) -> None:
        """Adds one block with the mask that it needs, cut where the mask would be too large."""
        step = max(1, MASK_LIMIT // len(keys))
        for a in range(0, len(queries), step):
            mask = self.visible(queries[a:a + step], keys)
            self.add(queries[a:a + step], keys, 1, None if mask.all() else mask[None], first=first)

    def crosses(self, segments: list[int]) -> None:
        """Adds the attention of each segment's descendants to it, parents before children."""
        below: dict[int, list[np.ndarray]] = {}
        for s in segments:
            for ancestor in self.layout.paths[s][:-1]:
                below.setdefault(ancestor, []).append(self.span(s))
        positions = self.layout.positions
        for ancestor in sorted(below):
            keys, queries = self.span(ancestor), np.concatenate(below[ancestor])
            if not len(keys):
                continue
            if self.window is None:
                self.add(queries, keys, 1, None, first=False)
                continue
            queries = queries[positions[queries] - positions[keys[-1]] < self.window]
            if len(queries):
                keys = keys[positions[queries].min() - positions[keys] < self.window]
                self.masked(queries, keys, first=False)

    def visible(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """[…, queries, keys] whether each query sees each key."""
        layout = self.layout
        of, end = layout.subtrees
        queries, keys = queries[..., :, None], keys[..., None, :]
        mask = (of[keys] <= of[queries]) & (of[queries] < end[keys]) & (keys <= queries)
        if self.window is not None:
            mask &= layout.positions[queries] - layout.positions[keys] < self.window
        return mask

    def add(self, queries, keys, blocks, mask, causal=False, first=True, real=None) -> None:
        rows = queries if real is None else queries[real]
        self.parts.append(Part(
            queries=self.index(queries), keys=self.index(keys), blocks=blocks, causal=causal,
            mask=None if mask is None else torch.from_numpy(mask[:, None]).to(self.device),
            real=None if real is None else torch.from_numpy(real).to(self.device),
            rows=self.index(rows), first=first))

    def index(self, rows: np.ndarray) -> torch.Tensor | slice:
        """rows as a slice if they are consecutive."""
        if rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
            return slice(int(rows[0]), int(rows[-1]) + 1)
        return torch.from_numpy(rows).to(self.device)


def _batches(blocks: list[np.ndarray]) -> list[list[np.ndarray]]:
    """Groups blocks of similar length, so that padding costs little."""
    batches: list[list[np.ndarray]] = []
    area = 0
    for block in sorted(blocks, key=len, reverse=True):
        longest = len(batches[-1][0]) if batches else 0
        padded = longest ** 2 * (len(batches[-1]) + 1) if batches else 0
        if batches and padded <= WASTE * (area + len(block) ** 2) and padded <= MASK_LIMIT:
            batches[-1].append(block)
            area += len(block) ** 2
        else:
            batches.append([block])
            area = len(block) ** 2
    return batches
